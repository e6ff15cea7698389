# SPDX-License-Identifier: Apache-2.0
"""What the cluster tests share: the running cluster, pods as HAMi's users write them, and what they say.

Every test has a namespace of its own and leaves nothing behind. A program of ours that the build lacks is
a failure of every test that needs it.
"""

import atexit
import contextlib
import json
import pathlib
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import host  # noqa: E402
import kube  # noqa: E402
import programs  # noqa: E402
from harness import MIB, check, check_equal, finish, private_kib, skip, wait_until  # noqa: E402,F401
from host import NODE, WORK  # noqa: E402
from kube import ApiError  # noqa: E402,F401
from programs import EXTENDER, NAMESPACE  # noqa: E402,F401

ALLOCATED = "hami.io/vgpu-devices-allocated"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
BIND_PHASE = "hami.io/bind-phase"
ON_NODE = "hami.io/vgpu-node"
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
IMAGE = "docker.io/local/box:1"
CARD_MIB = 30000

if not (WORK / "cluster.json").exists():
    if host.unfit():
        skip(host.unfit())
    check(False, "there is a cluster (tests/cluster/cluster up)")
    finish()

STATE = json.loads((WORK / "cluster.json").read_text())
BINARIES = pathlib.Path(STATE["binaries"])
api = kube.Api()


def need(*names):
    """Ends the test, failed, where the build lacks one of these programs."""
    lacking = [name for name in names or programs.OURS if name in STATE["missing"]]
    if lacking:
        check(False, f"the build has {', '.join(lacking)}")
        finish()


# Namespaces


def pods_path(namespace, name=""):
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


def new_namespace(name):
    """A namespace of this test's, empty; at its end its pods are gone, and what was theirs on the node."""
    delete_namespace(name)
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    if not wait_until(lambda: api.find(account), 60, 0.05):
        raise SystemExit(f"namespace {name} got no service account")
    atexit.register(delete_namespace, name)
    return name


def delete_namespace(name):
    if not wait_until(lambda: reachable(), 30, 0.2):
        return
    for pod in pods(name) if api.find(f"/api/v1/namespaces/{name}") else []:
        if pod["metadata"].get("finalizers"):
            api.patch(pods_path(name, pod["metadata"]["name"]), {"metadata": {"finalizers": None}})
        # Where there is no kubelet nobody else says that a pod is over.
        api.delete(pods_path(name, pod["metadata"]["name"]), grace=1 if pod["spec"].get("nodeName") == NODE else 0)
    api.delete(f"/api/v1/namespaces/{name}")
    if not wait_until(lambda: api.find(f"/api/v1/namespaces/{name}") is None, 60, 0.1):
        print(f"namespace {name} does not go: {[p['metadata']['name'] for p in pods(name)]}", file=sys.stderr)


def reachable():
    try:
        return api.raw("GET", "/readyz", timeout=2)[0] == 200
    except OSError:
        return False


# Pods


def share(gpu=1, mem=None, cores=None):
    """Limits as a user writes them."""
    amounts = {GPU: gpu, MEMORY: mem, CORES: cores}
    return {name: str(amount) for name, amount in amounts.items() if amount is not None}


def container(name="main", command=("/bin/slice", "--stay"), limits=None, **more):
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": list(command)} | (
        {"resources": {"limits": limits}} if limits else {}
    ) | more


def pod(name, *containers, annotations=None, labels=None, grace=1, **spec):
    """A manifest: as small as can be, soon gone when deleted, with no token in it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {
            "containers": list(containers) or [container()],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace,
            "automountServiceAccountToken": False,
            "dnsPolicy": "Default",
        } | spec,
    }


def slice_pod(name, mem=3000, cores=10, gpu=1, command=("/bin/slice", "--stay"), **more):
    return pod(name, container(command=command, limits=share(gpu, mem, cores)), **more)


def create(namespace, manifest):
    return api.create(pods_path(namespace), manifest)


def create_at_once(namespace, manifests):
    """All at the same moment, each from a thread of its own."""
    answers = {}

    def one(manifest):
        name = manifest["metadata"]["name"]
        try:
            answers[name] = create(namespace, manifest)
        except (ApiError, OSError) as error:
            answers[name] = error

    threads = [threading.Thread(target=one, args=(m,)) for m in manifests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def get(namespace, name):
    return api.find(pods_path(namespace, name))


def pods(namespace):
    return api.get(pods_path(namespace))["items"]


def delete(namespace, name, wait=30):
    api.delete(pods_path(namespace, name))
    return not wait or wait_until(lambda: get(namespace, name) is None, wait, 0.05)


def phase(namespace, name):
    return (get(namespace, name) or {}).get("status", {}).get("phase")


def statuses(thing, kind="containerStatuses"):
    return thing.get("status", {}).get(kind, [])


def is_running(thing):
    """Running, and every container of it started."""
    found = statuses(thing)
    return thing.get("status", {}).get("phase") == "Running" and all("running" in s["state"] for s in found) and bool(found)


def wait_running(namespace, names, seconds=60):
    """Seconds until all of them ran; None where one does not, at once where one has failed for good. Says why."""
    begun = time.monotonic()
    lacking = set(names)

    def settled():
        nonlocal lacking
        there = pods(namespace)
        lacking = set(names) - {p["metadata"]["name"] for p in there if is_running(p)}
        failed = {p["metadata"]["name"] for p in there if p["status"].get("phase") == "Failed"}
        return not lacking or lacking & failed

    wait_until(settled, seconds, 0.05)
    if not lacking:
        return time.monotonic() - begun
    for name in sorted(lacking):
        print(f"      {name}: {why(namespace, name)}")
    return None


def why(namespace, name):
    """What the API knows of a pod that does not run."""
    thing = get(namespace, name)
    if thing is None:
        return "there is none"
    states = [s["state"] for s in statuses(thing) + statuses(thing, "initContainerStatuses")]
    said = [f"{e.get('reason')}: {e.get('message')}" for e in events(namespace, name)]
    reason = {key: thing["status"].get(key) for key in ("phase", "reason", "message")}
    return json.dumps([reason, states, said])


def annotation(thing, key):
    return thing["metadata"].get("annotations", {}).get(key)


def events(namespace, name):
    selector = f"involvedObject.name={name},involvedObject.kind=Pod"
    return api.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector)["items"]


def logs(namespace, name, inside="main"):
    status, body = api.raw("GET", pods_path(namespace, name) + f"/log?container={inside}")
    return body.decode(errors="replace") if status == 200 else ""


def told(namespace, name, inside="main", seconds=30):
    """The line of JSON that `slice` wrote in a container."""
    if not wait_until(lambda: logs(namespace, name, inside).endswith("}\n"), seconds, 0.1):
        print(f"      {name}/{inside} said: {logs(namespace, name, inside)!r}")
        return None
    return json.loads(logs(namespace, name, inside))


def execute(namespace, name, *command, inside="main"):
    """A command in a running container: code, stdout, stderr."""
    words = [BINARIES / "kubectl", "--kubeconfig", programs.ADMIN, "--cache-dir", WORK / "kubectl", "-n", namespace, "exec", name, "-c", inside, "--"]
    ended = subprocess.run(
        [str(w) for w in [*words, *command]], text=True, timeout=30, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )
    return ended.returncode, ended.stdout, ended.stderr


def devices(text):
    """An allocation, decoded by hand: a list of containers, each a list of (uuid, type, MiB, cores)."""
    containers = text.split(";")[:-1]
    fields = [[device.split(",") for device in c.split(":") if device] for c in containers]
    return [[(d[0], d[1], int(d[2]), int(d[3])) for d in c] for c in fields]


def allocated(thing):
    text = annotation(thing, ALLOCATED)
    return devices(text) if text else []


def check_share(namespace, name, wanted_mib, inside="main", index=0):
    """A container sees the card it was given, and that much of it, by CUDA and by NVML."""
    seen = told(namespace, name, inside)
    given = allocated(get(namespace, name))
    given = given[index] if index < len(given) else []
    wanted = [{"uuid": device[0], "bytes": wanted_mib * MIB} for device in given]
    label = f"{name}/{inside}"
    check(len(given) == 1 and given[0][2] == wanted_mib, f"{label} was given {wanted_mib} MiB of one card", given)
    if check(seen is not None, f"{label} found the driver"):
        check(seen["preloaded"], f"{label} has libvgpu.so preloaded")
        check_equal(seen["cuda"], wanted, f"{label} sees its card and {wanted_mib} MiB by CUDA")
        check_equal(seen["nvml"], wanted, f"{label} sees its card and {wanted_mib} MiB by NVML")
    return seen


# The machine and our programs


def use_machine(gpus, memory=f"{CARD_MIB}Mi"):
    """Gives the node another simulated machine; nothing may be using the one before."""
    shown = json.loads(host.output(programs.HAMICTL, "sim", "show", "--json", programs.SIM))
    same = len(shown["gpus"]) == gpus and not shown["processes"]
    if not same:
        replace_machine(gpus, memory)
    if not check(wait_until(registered, 40, 0.1), f"the node has registered {gpus} card(s)", node_register()):
        finish()
    return programs.cards()


def restart(name, ready=lambda: True):
    gone = programs.kill(name)
    check(programs.back(name, gone, 30) and wait_until(ready, 60, 0.1), f"{name} is started anew", programs.last_lines(name))


def extender_ready():
    return programs.fetch(f"{EXTENDER}/readyz")


@contextlib.contextmanager
def held(*names):
    """These programs are away meanwhile."""
    for name in names:
        spec = WORK / "programs" / f"{name}.json"
        if spec.exists():
            spec.rename(spec.with_suffix(".held"))
            wait_until(lambda name=name: host.read_pid(name) is None, 30)
    try:
        yield
    finally:
        for spec in (WORK / "programs").glob("*.held"):
            spec.rename(spec.with_suffix(".json"))


def replace_machine(gpus, memory):
    with held("hami-device-plugin", "hami-vgpu-monitor"):
        make_machine(gpus, memory)


def make_machine(gpus, memory):
    host.run(programs.HAMICTL, "sim", "remove", "--force", programs.SIM, stdout=subprocess.DEVNULL)
    words = [f"--gpus={gpus}", f"--memory={memory}", "--context=100Mi"]
    host.run(programs.HAMICTL, "sim", "create", *words, programs.SIM, stdout=subprocess.DEVNULL)


def registered():
    try:
        return programs.registered(api)
    except (OSError, ValueError, ApiError):
        return False


def node_register():
    return annotation(api.get(f"/api/v1/nodes/{NODE}"), programs.REGISTER)


def machine_use():
    """The simulator's own count: bytes in use on each card."""
    shown = json.loads(host.output(programs.HAMICTL, "sim", "show", "--json", programs.SIM))
    return {gpu["uuid"]: gpu["used_bytes"] for gpu in shown["gpus"]}


def view():
    """The scheduler's view, as bytes."""
    return programs.fetch(f"{EXTENDER}/debug/view")


def samples(address):
    """A page of metrics: (name, labels) -> value."""
    page = programs.fetch(f"http://{address}/metrics")
    found = {}
    for line in (page or b"").decode().splitlines():
        if line and not line.startswith("#"):
            name, labels, value = split_sample(line)
            found[name, frozenset(labels.items())] = value
    return found


def split_sample(line):
    """NAME{a="b",...} VALUE; label values here hold no comma or quote."""
    series, value = line.rsplit(" ", 1)
    name, _, inner = series.partition("{")
    pairs = (pair.split("=", 1) for pair in inner.rstrip("}").split(",") if pair)
    return name, {key: text.strip('"') for key, text in pairs}, float(value)


def sample(found, name, **labels):
    """The one sample of this name with these labels, among others; None where it is not one."""
    hits = [v for (n, ls), v in found.items() if n == name and labels.items() <= dict(ls).items()]
    return hits[0] if len(hits) == 1 else None


@contextlib.contextmanager
def audited():
    """Collects the requests made meanwhile: a list of (user, verb, resource, subresource)."""
    begun = programs.AUDIT_LOG.stat().st_size
    collected = []
    yield collected
    time.sleep(0.5)
    with open(programs.AUDIT_LOG, "rb") as log:
        log.seek(begun)
        for line in log:
            entry = json.loads(line)
            thing = entry.get("objectRef", {})
            collected.append(
                (entry["user"]["username"], entry["verb"], thing.get("resource", ""), thing.get("subresource", ""))
            )


@contextlib.contextmanager
def scheduler_with(*flags):
    """hami-scheduler runs with these meanwhile."""

    def restart(argv):
        programs.start("hami-scheduler", argv, BINARIES)
        ready = lambda: programs.fetch(f"{EXTENDER}/readyz") is not None
        leads = lambda: b"hami_scheduler_leader 1" in (programs.fetch(f"http://{programs.SCHEDULER_METRICS}/metrics") or b"")
        check(wait_until(ready, 60, 0.1) and wait_until(leads, 60, 0.1), "hami-scheduler runs, and decides", programs.last_lines("hami-scheduler"))

    argv = programs.ours()["hami-scheduler"]
    try:
        restart([*argv, *flags])
        yield
    finally:
        restart(argv)


def account(name):
    return f"system:serviceaccount:{NAMESPACE}:{name}"

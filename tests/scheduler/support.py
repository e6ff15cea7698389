# SPDX-License-Identifier: Apache-2.0
"""hami-scheduler as a process between a pretended API server and a pretended kube-scheduler."""

import contextlib
import http.client
import itertools
import random
import re
import socket
import ssl
import sys
import threading

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from api import ALLOCATED, LEASES, NODES, ON_NODE, PODS, QUOTAS, REGISTER, Api, shares

PROGRAM = BUILD / "src/scheduler/hami-scheduler"
CONFIG = SOURCE / "tests/data/vectors/config-default.yaml"
TO_ALLOCATE, PHASE = "hami.io/vgpu-devices-to-allocate", "hami.io/bind-phase"
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
CARD_MIB = 30000
SANITIZED = "-fsanitize" in (BUILD / "build.ninja").read_text() if (BUILD / "build.ninja").exists() else False
numbers = itertools.count(1)


def openssl(*words):
    subprocess.run(["openssl", *[str(w) for w in words]], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def make_certificate(folder, serial=1):
    folder.mkdir(exist_ok=True)
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-set_serial", serial, "-subj", "/CN=test", "-keyout", folder / "tls.key", "-out", folder / "tls.crt",
    )  # fmt: skip
    return folder


TRUSTING = ssl._create_unverified_context()
certificates = None


def certificate_folder():
    global certificates
    certificates = certificates or make_certificate(scratch / "certificate")
    return certificates


# Objects


def node(name, cards=1, memory=CARD_MIB, count=10, **more):
    register = [
        {
            "id": f"GPU-{name}-{card}", "index": card, "count": count, "devmem": memory, "devcore": 100, "custominfo": {"lock": "none"},
            "type": "NVIDIA A100-SXM4-40GB", "numa": 0, "mode": "hami-core", "health": True,
        }
        for card in range(cards)
    ]  # fmt: skip
    thing = {
        "metadata": {"name": name, "uid": f"node-{name}", "annotations": {REGISTER: json.dumps(register)}},
        "status": {
            "allocatable": {"cpu": "8", GPU: str(cards * count)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    thing["metadata"].update(more)
    return thing


def pod(memory=1000, cores=None, gpus=1, namespace="ns", name=None, **metadata):
    """As a user writes it; memory None asks for nothing of ours."""
    number = next(numbers)
    name = name or f"pod-{number}"
    limits = {"cpu": "1"}
    if memory is not None:
        limits.update({GPU: str(gpus), MEMORY: str(memory)})
    if cores is not None:
        limits[CORES] = str(cores)
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{number}-{random.getrandbits(32):08x}"} | metadata,
        "spec": {"containers": [{"name": "main", "image": "i", "resources": {"limits": limits, "requests": limits}}]},
        "status": {"phase": "Pending"},
    }  # fmt: skip


class Scheduler:
    def __init__(self, api, *flags, certificate=None, ready=True, config=CONFIG):
        self.api = api
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=scratch, prefix="scheduler-"))
        self.certificate = certificate or certificate_folder()
        self.flags = [
            "--http_bind=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0", "--scheduler-name=hami-scheduler",
            f"--cert_file={self.certificate}/tls.crt", f"--key_file={self.certificate}/tls.key",
            "--bind-timeout=300ms", f"--device-config-file={config}", f"--kubeconfig={api.kubeconfig(self.folder / 'kubeconfig')}", *flags,
        ]  # fmt: skip
        self.start(ready)

    def start(self, ready=True):
        self.log_path = self.folder / f"log-{next(numbers)}"
        with self.log_path.open("w") as log:
            self.process = start(self.command(), bare_environment(None, no_proxy="*"), stderr=log, stdout=log)
        check_here(wait_until(lambda: "serving on" in self.said() or self.process.poll() is not None, 20), self.said)
        ports = re.search(r"serving on \S+:(\d+), metrics on \S+:(\d+)", self.said())
        check_here(ports, self.said)
        self.port, self.metrics_port = int(ports[1]), int(ports[2])
        self.local = threading.local()
        if ready:
            check_here(wait_until(self.is_ready, 20), self.said)

    def command(self):
        return [PROGRAM, *self.flags]

    def said(self):
        return self.log_path.read_text(errors="replace")

    def pid(self):
        return self.process.pid

    def end(self, how=signal.SIGTERM, seconds=15):
        """Its exit status."""
        self.process.send_signal(how)
        code = self.process.wait(seconds)
        if how == signal.SIGTERM:
            check_equal(code, 0, "terminated, it ends with status 0", self.said()[-3000:])
        return code

    def kill_and_restart(self, ready=True):
        self.process.kill()
        self.process.wait()
        self.start(ready)

    # Asking

    def connect(self, timeout=30):
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=TRUSTING, timeout=timeout)

    def ask(self, method, path, body=None, headers=None):
        """(status, text) over this thread's connection, which is kept, as kube-scheduler keeps its own."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        for last in (False, True):
            connection = getattr(self.local, "connection", None)
            fresh = not connection
            connection = connection or self.connect()
            self.local.connection = connection
            try:
                connection.request(method, path, body, headers or {"Content-Type": "application/json"})
                response = connection.getresponse()
                return response.status, response.read().decode()
            except (OSError, http.client.HTTPException):
                self.local.connection = None
                connection.close()
                if fresh or last:
                    raise

    def is_ready(self):
        """It has read everything, and decides."""
        try:
            return self.ask("GET", "/readyz")[0] == 200 and self.metric("hami_scheduler_leader") == 1
        except OSError:
            return False

    def filter(self, pod, nodes):
        status, text = self.ask("POST", "/filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        return json.loads(text) if status == 200 else {"Error": f"status {status}"}

    def bind(self, pod, name):
        metadata = pod["metadata"]
        status, text = self.ask(
            "POST", "/bind",
            {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"], "Node": name},
        )  # fmt: skip
        return json.loads(text)["Error"] if status == 200 else f"status {status}"

    def view(self):
        return json.loads(self.ask("GET", "/debug/view")[1])

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def metric(self, name):
        return float(re.search(rf"^{re.escape(name)} (\S+)$", self.metrics(), re.M)[1])

    def sees_what_is(self, seconds=20):
        """Its view comes to be what the API's objects say, with nothing reserved."""

        def same():
            view = self.view()
            seen = {p["uid"]: sorted((d["uuid"], d["memory_mib"], d["cores"]) for d in p["devices"]) for p in view["pods"]}
            wanted = {uid: added_up(text) for uid, (_, text) in self.api.live().items()}
            return seen == wanted and not view["reserved"]

        return wait_until(same, seconds, 0.05)

    def private_kib(self):
        return private_kib(self.pid())

    def anonymous_kib(self):
        return anonymous_kib(self.pid())

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid()}/fd"))


def added_up(text):
    sums = {}
    for uuid, memory, cores in shares(text):
        old = sums.get(uuid, (0, 0))
        sums[uuid] = (old[0] + memory, old[1] + cores)
    return sorted((uuid, *amounts) for uuid, amounts in sums.items())


def start_containers(api, thing, phase="Pending"):
    """As kubelet tells once all allocations are done."""
    metadata = thing["metadata"]
    api.patch_pod(f"{metadata['namespace']}/{metadata['name']}", {"status": {"phase": phase, "containerStatuses": [{"name": "c0"}]}})


def run_part(test, *given):
    """Runs it, unless the command line names others, and says how long it took."""
    named = [word for word in sys.argv[1:] if word.startswith("test_")]
    if named and test.__name__ not in named:
        return
    begun = time.monotonic()
    test(*given)
    print(f"{test.__name__}: {time.monotonic() - begun:.1f} s")


def run_each(api, scheduler, *tests):
    for test in tests:
        run_part(test, api, scheduler)


def check_here(holds, said):
    if not holds:
        check(False, "hami-scheduler starts", said()[-3000:])
        finish()


def used(view, uuid):
    (card,) = [d for n in view["nodes"] for d in n["devices"] if d["uuid"] == uuid]
    return card["used"]


def check_equal(got, wanted, sentence, *more):
    return check(got == wanted, sentence, f"got    {got!r}", f"wanted {wanted!r}", *more)


def in_threads(functions):
    """Runs them at once; what they return, in order."""
    results = [None] * len(functions)

    def run_one(index, function):
        results[index] = function()

    threads = [threading.Thread(target=run_one, args=pair, daemon=True) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


def failed(answer):
    """node -> reason, whether or not somebody's going would help."""
    return {**(answer["FailedNodes"] or {}), **(answer["FailedAndUnresolvableNodes"] or {})}


def place(scheduler, thing, names):
    """Filters and binds, as kube-scheduler does: the node, or None; and why not."""
    answer = scheduler.filter(thing, names)
    if answer.get("Error") or not answer.get("NodeNames"):
        return None, answer.get("Error") or failed(answer)
    error = scheduler.bind(thing, answer["NodeNames"][0])
    return (None, error) if error else (answer["NodeNames"][0], "")


def give_back(scheduler, thing, names):
    """Asks for the pod again with what nobody has: what was promised to it is free."""
    again = json.loads(json.dumps(thing))
    again["spec"]["containers"][0]["resources"]["limits"] = {GPU: "1", MEMORY: str(100 * CARD_MIB)}
    return scheduler.filter(again, names)["Error"]


def fits(scheduler, thing, names):
    """Whether it would be placed; nothing stays promised."""
    placed = bool(scheduler.filter(thing, names).get("NodeNames"))
    give_back(scheduler, thing, names)
    return placed

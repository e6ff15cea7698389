#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes of other vendors on a real Kubernetes: a pretended agent (tests/agents.py) registers with the real kubelet and on the
Node, looks for its pod under the lock that the scheduler wrote, takes its time, and is killed. It has an account of its own,
which deploy/other-agents.yaml names, so that policy.yaml judges what it writes.

A vendor is a row of ROWS here and of VENDORS in tests/agents.py.

usage: vendors.py [VENDOR[:alive]...]   alive: its agent is not killed
an agent, as a process: vendors.py agent VENDOR FOLDER
"""

import base64
import concurrent.futures
import os
import pathlib
import re
import signal
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "node"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import agents  # noqa: E402
import kubelet  # noqa: E402
from harness import BUILD, SOURCE, skip  # noqa: E402

kubelet.with_grpc(BUILD, skip)

from support import *  # noqa: E402
import manifests  # noqa: E402

PLUGINS = pathlib.Path("/var/lib/kubelet/device-plugins")
AGENTS = "kube-system"
# What a pod asks for, as HAMi's examples do; which account the agent has; what it registers with kubelet, and how much of each
# a device has (tasks: of the one resource); which page of docs/vendors has the section of the device configuration.
ROWS = {
    "hygon": {"limits": {"hygon.com/dcunum": 1, "hygon.com/dcumem": 2000, "hygon.com/dcucores": 10}, "account": "hami-dcu-vgpu-device-plugin", "tasks": 4},
    "ascend": {"limits": {"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 16384}, "account": "hami-ascend", "tasks": 4},
    "nvidia": {"limits": {GPU: 1, MEMORY: 1000, CORES: 5}, "tasks": 10, "instead_of": ["hami-device-plugin"]},
    "vastai": {"limits": {"vastaitech.com/va": 1}, "devices": 8, "tasks": 1},
    "biren": {"limits": {"birentech.com/gpu": 1}, "devices": 8, "tasks": 1},
    "kunlunxin": {"limits": {"kunlunxin.com/vxpu": 1, "kunlunxin.com/vxpu-memory": 24576}, "tasks": 4},
    "iluvatar": {"limits": {"iluvatar.ai/BI-V150-vgpu": 1, "iluvatar.ai/BI-V150.vMem": 16, "iluvatar.ai/BI-V150.vCore": 10}, "tasks": 100},
    "amd": {"limits": {"amd.com/gpu": 1}, "devices": 8, "tasks": 10},
    "rocm": {"limits": {"amd.com/gpu": 1}, "devices": 8, "tasks": 1},
    "metax": {"limits": {"metax-tech.com/sgpu": 1, "metax-tech.com/vcore": 10, "metax-tech.com/vmemory": "4Gi"}, "tasks": 16},
    "metax-gpu": {"limits": {"metax-tech.com/gpu": 1}, "devices": 8, "tasks": 1},
    "cambricon": {
        "limits": {"cambricon.com/vmlu": 1, "cambricon.com/mlu.smlu.vmemory": 20, "cambricon.com/mlu.smlu.vcore": 10},
        "serves": {"cambricon.com/mlu.smlu.vcore": 100, "cambricon.com/mlu.smlu.vmemory": 96, "cambricon.com/real-mlu-counts": 1},
    },
    "enflame-gcu": {"limits": {"enflame.com/gcu": 1}, "devices": 8, "tasks": 1},
    "enflame-vgcu": {"limits": {"enflame.com/vgcu": 1, "enflame.com/vgcu-percentage": 22}, "devices": 4, "tasks": 6},
    "enflame-drs": {"limits": {"enflame.com/drs-gcu": 3}, "devices": 4, "tasks": 6, "page": "enflame"},
    "mthreads": {
        "limits": {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 32, "mthreads.com/sgpu-core": 8},
        "serves": {"mthreads.com/sgpu-core": 16, "mthreads.com/sgpu-memory": 96}, "devices": 4,
    },
    "neuron": {"limits": {"aws.amazon.com/neuron": 1}, "serves": {"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2}, "devices": 8},
    "neuron-core": {"limits": {"aws.amazon.com/neuroncore": 1}, "serves": {"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2}, "devices": 8},
    "kunlun": {"limits": {"kunlunxin.com/xpu": 1}, "devices": 8, "tasks": 1},
}  # fmt: skip
CONFIG = SOURCE / "tests/data/vectors/config-default.yaml"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


# The agent, a process


class Client:
    def __init__(self, token):
        self.api = kube.Api(token)

    def node(self):
        return self.api.get(f"/api/v1/nodes/{NODE}")

    def patch_node(self, patch):
        return self.api.raw("PATCH", f"/api/v1/nodes/{NODE}", patch, kind=kube.MERGE)[0]

    def patch_status(self, patch):
        return self.api.raw("PATCH", f"/api/v1/nodes/{NODE}/status", patch, kind=kube.MERGE)[0]

    def pod(self, namespace, name):
        return self.api.find(pods_path(namespace, name))

    def pods(self):
        return self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE}")["items"]

    def patch_pod(self, namespace, name, patch):
        status, body = self.api.raw("PATCH", pods_path(namespace, name), patch, kind=kube.MERGE)
        if status != 200:
            print(f"pod {name}: {status} {body.decode()}", flush=True)
        return status


def serves(vendor):
    """What kubelet is told of: resource -> of each device."""
    return ROWS[vendor].get("serves") or {agents.VENDORS[vendor]["resource"]: ROWS[vendor]["tasks"]}


class Server:
    """One resource, as a device plugin: devices by number, and an Allocate that the agent answers."""

    def __init__(self, plugin, resource, each):
        self.plugin, self.resource = plugin, resource
        self.ids = [f"{device}-{i}" for device in plugin.agent.devices for i in range(each)]

    def allocate(self, request, context):
        import grpc

        (wanted,) = [v for n, v in kubelet.unpack(request) if n == 1]
        ids = kubelet.texts(wanted, 1)
        try:
            with self.plugin.one:
                _, devices = self.plugin.agent.allocate(len(ids), self.plugin.wait, self.resource, ids)
        except agents.Failed as error:
            print(f"allocate: {error}", flush=True)
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        given = kubelet.field(1, "GIVEN") + kubelet.field(2, ",".join(devices))
        return kubelet.field(1, kubelet.field(1, given))

    def list_and_watch(self, _, context):
        yield b"".join(kubelet.field(1, kubelet.field(1, d) + kubelet.field(2, "Healthy")) for d in self.ids)
        while context.is_active():
            time.sleep(0.5)

    def serve(self):
        import grpc

        server = self

        class Handler(grpc.GenericRpcHandler):
            def service(self, call):
                how = dict(request_deserializer=lambda b: b, response_serializer=lambda b: b)
                if call.method.endswith("/ListAndWatch"):
                    return grpc.unary_stream_rpc_method_handler(server.list_and_watch, **how)
                if call.method.endswith("/Allocate"):
                    return grpc.unary_unary_rpc_method_handler(server.allocate, **how)
                return grpc.unary_unary_rpc_method_handler(lambda *_: b"", **how)

        name = self.resource.replace("/", "_") + ".sock"
        (PLUGINS / name).unlink(missing_ok=True)
        self.grpc = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        self.grpc.add_generic_rpc_handlers((Handler(),))
        self.grpc.add_insecure_port(f"unix://{PLUGINS}/{name}")
        self.grpc.start()
        request = kubelet.field(1, "v1beta1") + kubelet.field(2, name) + kubelet.field(3, self.resource)
        with grpc.insecure_channel(f"unix://{PLUGINS}/kubelet.sock") as channel:
            channel.unary_unary("/v1beta1.Registration/Register", **kubelet.RAW)(request, timeout=5)


class Plugin:
    """kubelet's side of an agent: a server for each of its resources. An allocation waits as the test says."""

    def __init__(self, vendor, folder):
        self.folder, self.one = folder, threading.Lock()
        self.agent = agents.make(Client((folder / "token").read_text()), vendor, NODE, ROWS[vendor].get("devices", 2))
        self.servers = [Server(self, resource, each) for resource, each in serves(vendor).items()]

    def wait(self, _):
        """The test holds the agent here, or kills it."""
        (self.folder / "allocating").write_text("")
        while (self.folder / "hold").exists():
            time.sleep(0.02)
        (self.folder / "allocating").unlink()

    def run(self):
        self.agent.start()
        for server in self.servers:
            server.serve()
        while True:
            status = self.agent.register()
            print(f"registered: {status}", flush=True)
            time.sleep(30 if status == 200 else 5)


# The test


class Process:
    """An agent that is started and killed."""

    def __init__(self, vendor, namespace):
        self.vendor, self.namespace = vendor, namespace
        self.folder = pathlib.Path(WORK / f"agent-{vendor}")
        self.folder.mkdir(exist_ok=True)
        (self.folder / "hold").unlink(missing_ok=True)
        (self.folder / "token").write_text(make_account(ROWS[vendor].get("account", "hami-device-plugin")))
        self.start()

    def start(self):
        with open(WORK / f"log/agent-{self.vendor}.log", "ab") as log:
            self.process = subprocess.Popen([sys.executable, __file__, "agent", self.vendor, self.folder], stdout=log, stderr=log)
        atexit.register(self.kill)

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def hold(self):
        (self.folder / "allocating").unlink(missing_ok=True)
        (self.folder / "hold").write_text("")

    def let_go(self):
        (self.folder / "hold").unlink(missing_ok=True)

    def allocates(self):
        return wait_until(lambda: (self.folder / "allocating").exists(), 20, 0.02)


def make_account(name):
    """As the agents' own manifests do: nodes and pods may be read and patched. Returns a token."""
    path = f"/api/v1/namespaces/{AGENTS}/serviceaccounts"
    if not api.find(f"{path}/{name}"):
        api.create(path, {"metadata": {"name": name}})
    manifests.apply_objects(BINARIES, [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": f"agent-{name}"},
         "rules": [{"apiGroups": [""], "resources": ["nodes", "nodes/status", "pods"], "verbs": ["get", "list", "watch", "update", "patch"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": f"agent-{name}"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"agent-{name}"},
         "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": AGENTS}]},
    ])  # fmt: skip
    return api.create(f"{path}/{name}/token", {"spec": {"expirationSeconds": 86400}})["status"]["token"]


def use_config(text):
    """The device configuration, and what `hamictl config render` makes of it."""
    file = WORK / "device-config.yaml"
    file.write_text(text)
    rendered = WORK / "rendered.yaml"
    rendered.write_text(host.output(programs.HAMICTL, "config", "render", file))
    things = manifests.read(BINARIES, rendered)
    manifests.apply_objects(BINARIES, [t for t in things if t["kind"] == "ValidatingAdmissionPolicy"])
    (webhook,) = [t for t in things if t["kind"] == "MutatingWebhookConfiguration"]
    authority = base64.b64encode((programs.PKI / "ca.crt").read_bytes()).decode()
    webhook["webhooks"][0]["clientConfig"] = {"url": f"{programs.EXTENDER}/webhook", "caBundle": authority}
    api.delete(f"{WEBHOOKS}/{webhook['metadata']['name']}")
    (shipped,) = [t["data"]["config.yaml"] for t in things if t["kind"] == "ConfigMap"]
    (WORK / "kube-scheduler.yaml").write_text(programs.scheduler_config(shipped))
    for name in ("hami-scheduler", "kube-scheduler"):
        programs.back(name, programs.kill(name))
    wait_until(leads, 60)
    api.create(WEBHOOKS, webhook)


def leads():
    page = programs.fetch(f"http://{programs.SCHEDULER_METRICS}/metrics")
    return page is not None and b"\nhami_scheduler_leader 1\n" in page


def put_back(text):
    (WORK / "device-config.yaml").write_text(text)
    use_config(text)
    manifests.kubectl(BINARIES, "delete", "--ignore-not-found", "-f", host.DEPLOY / "other-agents.yaml")
    for vendor in ROWS:
        forget_agent(vendor)


def forget_agent(vendor):
    """What an agent left on the node."""
    row = agents.VENDORS[vendor]
    annotations = [key for key in (row["register"], row["handshake"], lock_key(vendor)) if key]
    metadata = {"annotations": dict.fromkeys(annotations), "labels": dict.fromkeys(row.get("labels", {}))}
    api.patch(f"/api/v1/nodes/{NODE}", {"metadata": metadata})
    if "capacity" in row:
        amounts = dict.fromkeys(row["capacity"]([]))
        api.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": amounts, "allocatable": amounts}})


def section_of(page):
    """The section of the device configuration that a page of docs/vendors has."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", (SOURCE / f"docs/vendors/{page}.md").read_text(), re.M | re.S)
    (found,) = [block for block in blocks if "kind:" not in block]
    return found


def configuration(vendor):
    """The vectors' device configuration; where the vendor's row names a page, with that page's section."""
    text, page = CONFIG.read_text(), ROWS[vendor].get("page")
    if not page:
        return text
    section = section_of(page)
    return re.sub(rf"^{section.split(':')[0]}:\n(  .*\n)*", lambda _: section, text, flags=re.M)


def vendor_pod(vendor, name, containers=1):
    limits = {key: str(value) for key, value in ROWS[vendor]["limits"].items()}
    made = [container(f"c{i}", ["sh", "-c", "echo $GIVEN; exec sleep 1000"], limits) for i in range(containers)]
    return pod(name, *made)


def lock_key(vendor):
    """The lock that the agent waits for; None: it waits for none."""
    row = agents.VENDORS[vendor]
    return row.get("lock", None if "kind" in row else agents.LOCK)


def lock(vendor):
    key = lock_key(vendor)
    return key and annotation(api.get(f"/api/v1/nodes/{NODE}"), key)


def offers(vendor, some=True):
    allocatable = api.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]
    return all((int(allocatable.get(resource, 0)) > 0) == some for resource in serves(vendor))


def registered_as(vendor):
    """The scheduler knows its devices, by the names that it has for them."""
    known = {device["uuid"] for node in view()["nodes"] for device in node["devices"]}
    return set(device_names(vendor)) <= known


def device_names(vendor):
    row = agents.VENDORS[vendor]
    name = row.get("known") or row.get("named") or f"{row['device']}-{{node}}-{{i}}"
    return [name.format(node=NODE, i=i) for i in range(ROWS[vendor].get("devices", 2))]


def view():
    return json.loads(programs.fetch(f"{programs.EXTENDER}/debug/view"))


def given_to(namespace, name, inside):
    """What a container got of its agent."""
    wait_until(lambda: logs(namespace, name, inside), 10, 0.1)
    return logs(namespace, name, inside).strip()


def check_given(namespace, vendor, name, containers=1):
    """Each container has what the pod's annotation says that it was granted."""
    thing = get(namespace, name)
    granted = devices(annotation(thing, agents.VENDORS[vendor]["allocated"]) or "")
    got = [given_to(namespace, name, f"c{i}") for i in range(containers)]
    if agents.VENDORS[vendor].get("kind") == "kubelet":
        check_equal([text.count(",") + 1 for text in got], [len(c) for c in granted], f"{vendor}: {name} has as many as it was granted")
    else:
        check_equal(got, [",".join(d[0] for d in c) for c in granted], f"{vendor}: {name} has what it was granted")


def check_nothing_twice(vendor):
    for node in view()["nodes"]:
        for device in node["devices"]:
            over = [what for what in ("slots", "memory_mib") if device["used"][what] > device[what]]
            check(not over, f"{vendor}: no device is granted beyond what it has", device)


def check_clean(vendor, words):
    check(wait_until(lambda: lock(vendor) is None, 15, 0.1), f"{vendor}: {words}: no lock is left", lock(vendor))
    check(wait_until(lambda: not view()["reserved"], 15, 0.2), f"{vendor}: {words}: nothing stays reserved", view()["reserved"])


def has_turns(vendor):
    """Its agent looks for the pod of an allocation, so that one at a time is bound."""
    return agents.VENDORS[vendor].get("kind") != "kubelet"


def check_said(vendor, notes):
    """What an agent leaves on a pod whose allocation is over."""
    row = agents.VENDORS[vendor]
    habits = agents.PROFILES[row["profile"]] if "profile" in row else {"phase": "none", "pop": False}
    check_equal(notes.get(BIND_PHASE), "success" if habits["phase"] == "both" else "allocating", f"{vendor}: its agent said what it says of success")
    if habits["pop"]:
        check_equal(notes.get(row["to_allocate"], "").strip(":;"), "", f"{vendor}: and took all that it was to allocate")
    if "done" in row:
        check_equal(notes.get(row["done"]), "true", f"{vendor}: and marked the pod")


def run_vendor(vendor, deaths):
    namespace = new_namespace(f"vendor-{vendor}")
    check(wait_until(lambda: offers(vendor, False), 30, 0.2), f"{vendor}: kubelet offers nothing before")
    agent = Process(vendor, namespace)
    if not check(wait_until(lambda: offers(vendor) and registered_as(vendor), 30, 0.1), f"{vendor}: kubelet offers its devices"):
        print(programs.last_lines(f"agent-{vendor}"))
        return

    create(namespace, vendor_pod(vendor, "first"))
    took = wait_running(namespace, ["first"], 60)
    check(took is not None, f"{vendor}: HAMi's example runs", took)
    check_given(namespace, vendor, "first")
    check_said(vendor, get(namespace, "first")["metadata"]["annotations"])
    check_clean(vendor, "after one pod")

    names = [f"crowd-{i}" for i in range(4)]
    create_at_once(namespace, [vendor_pod(vendor, name) for name in names])
    check(wait_running(namespace, names, 90) is not None, f"{vendor}: four at once run")
    for name in names:
        check_given(namespace, vendor, name)
    check_nothing_twice(vendor)
    check_clean(vendor, "after four at once")
    for name in ["first", *names]:
        delete(namespace, name)
    if deaths:
        run_deaths(vendor, namespace, agent)
    agent.kill()
    forget_agent(vendor)


def run_deaths(vendor, namespace, agent):
    # Held in the middle of an allocation, which nobody else may begin meanwhile.
    agent.hold()
    create(namespace, vendor_pod(vendor, "held"))
    check(agent.allocates(), f"{vendor}: the agent is asked")
    create(namespace, vendor_pod(vendor, "behind"))
    if has_turns(vendor):
        time.sleep(3)
        check(not (get(namespace, "behind")["spec"].get("nodeName")), f"{vendor}: while an allocation goes on the next pod is not bound")
    agent.let_go()
    check(wait_running(namespace, ["held", "behind"], 60) is not None, f"{vendor}: then both run")
    for name in ("held", "behind"):
        check_given(namespace, vendor, name)
        delete(namespace, name)
    check_clean(vendor, "after a slow one")

    # Killed in the middle of one.
    agent.hold()
    create(namespace, vendor_pod(vendor, "lost"))
    check(agent.allocates(), f"{vendor}: the agent is asked again")
    agent.kill()
    check(wait_until(lambda: phase(namespace, "lost") == "Failed", 30, 0.1), f"{vendor}: when it dies the pod fails", phase(namespace, "lost"))
    check_clean(vendor, "after the agent died")
    check(not [p for p in view()["pods"] if p["name"] == "lost"], f"{vendor}: what the pod had is free")
    create(namespace, vendor_pod(vendor, "after"))
    agent.let_go()
    check(wait_until(lambda: offers(vendor, False), 30, 0.2), f"{vendor}: kubelet offers nothing without it")
    agent.start()
    check(wait_until(lambda: offers(vendor), 30, 0.1), f"{vendor}: it is back")
    running = wait_running(namespace, ["after"], 90)
    check(running is not None or phase(namespace, "after") == "Failed", f"{vendor}: a pod of that moment runs, or kubelet failed it", why(namespace, "after"))
    create(namespace, vendor_pod(vendor, "again"))
    check(wait_running(namespace, ["again"], 60) is not None, f"{vendor}: pods run again")
    check_given(namespace, vendor, "again")

    # The scheduler is killed while a pod waits for its allocation.
    agent.hold()
    create(namespace, vendor_pod(vendor, "orphan"))
    check(agent.allocates(), f"{vendor}: the agent is asked once more")
    programs.back("hami-scheduler", programs.kill("hami-scheduler"))
    wait_until(leads, 60)
    create(namespace, vendor_pod(vendor, "next"))
    if has_turns(vendor):
        time.sleep(4)
        check(not get(namespace, "next")["spec"].get("nodeName"), f"{vendor}: a new scheduler knows that an allocation goes on")
    agent.let_go()
    check(wait_running(namespace, ["orphan", "next"], 60) is not None, f"{vendor}: then both run")
    for name in ("orphan", "next"):
        check_given(namespace, vendor, name)
    check_nothing_twice(vendor)
    check_clean(vendor, "at the end")


def status_of(act):
    try:
        act()
    except ApiError as error:
        return error.status
    return 200


def check_rights():
    """What other-agents.yaml lets the scheduler and an agent write, and what not."""
    scheduler = kube.Api((WORK / "hami-scheduler.token").read_text())
    node = f"/api/v1/nodes/{NODE}"
    notes = lambda **more: {"metadata": {"annotations": more}}
    allowed = {agents.LOCK: "2026-01-02T03:04:05Z,a,b", "hami.io/node-handshake-dcu": "Requesting_2026-01-02 03:04:05", "cambricon.com/dsmlu.lock": "2026-01-02T03:04:05Z"}
    for key, value in allowed.items():
        check(wait_until(lambda: status_of(lambda: scheduler.patch(node, notes(**{key: value}))) == 200, 10, 0.2), f"the scheduler writes {key}")
        check_equal(status_of(lambda: scheduler.patch(node, notes(**{key: None}))), 200, "and removes it")
    refused = {
        "another annotation": notes(**{"hami.io/node-nvidia-register": "[]"}),
        "a label": {"metadata": {"labels": {"a": "b"}}},
        "the node's spec": {"spec": {"unschedulable": True}},
        "a finalizer": {"metadata": {"finalizers": ["a.b/c"]}},
    }
    for words, patch in refused.items():
        check(wait_until(lambda: status_of(lambda: scheduler.patch(node, patch)) == 422, 10, 0.2), f"the scheduler does not write {words}")

    namespace = new_namespace("agents-rights")
    create(namespace, pod("plain", container(command=["sleep", "1000"])))
    path = pods_path(namespace, "plain")
    agent = kube.Api(make_account("hami-ascend"))
    stranger = kube.Api(make_account("stranger"))
    for key in ("hami.io/bind-phase", "hami.io/Ascend910B3-devices-to-allocate", "hami.io/amd-cu-allocated"):
        check(wait_until(lambda: status_of(lambda: agent.patch(path, notes(**{key: "x"}))) == 200, 10, 0.2), f"an agent writes {key}")
        check_equal(status_of(lambda: stranger.patch(path, notes(**{key: "y"}))), 422, "and an account that is not listed does not")
    for key in ("hami.io/Ascend910B3-devices-allocated", "hami.io/vgpu-node", "hami.io/bind-time"):
        check_equal(status_of(lambda: agent.patch(path, notes(**{key: "x"}))), 422, f"an agent does not write {key}")


def check_shares():
    """Pods that ask for any vendor's devices past the scheduler are denied."""
    namespace = new_namespace("agents-shares")
    for vendor, resource in (("hygon", "hygon.com/dcunum"), ("mthreads", "mthreads.com/sgpu-core"), ("neuron-core", "aws.amazon.com/neuroncore")):
        thing = pod(f"past-{vendor}", container(limits={resource: "1"}), schedulerName="another")
        check(wait_until(lambda: status_of(lambda: create(namespace, thing)) == 422, 10, 0.2), f"a pod of another scheduler that asks for {resource} is denied")


def main():
    need("hami-scheduler")
    before = (WORK / "device-config.yaml").read_text()
    atexit.register(put_back, before)
    manifests.apply(BINARIES, "other-agents.yaml")
    config = None
    for number, word in enumerate(sys.argv[1:] or ROWS):
        vendor, _, kind = word.partition(":")
        if configuration(vendor) != config:
            config = configuration(vendor)
            use_config(config)
        if number == 0:
            check_rights()
            check_shares()
        with held(*ROWS[vendor].get("instead_of", [])):
            run_vendor(vendor, kind != "alive")
    finish()


if sys.argv[1:2] == ["agent"]:
    Plugin(sys.argv[2], pathlib.Path(sys.argv[3])).run()
else:
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hami-device-plugin between a kubelet, an API server and a simulated machine."""

import fcntl
import random
import sys
import threading

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from api import Api
from kubelet import Kubelet, with_grpc

with_grpc(BUILD, skip)

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
NODE = "node-1"
PROGRAM = BUILD / "src/plugin/hami-device-plugin"
REGISTER = "hami.io/node-nvidia-register"
ALLOCATED, TO_ALLOCATE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"
PHASE, VGPU_NODE = "hami.io/bind-phase", "hami.io/vgpu-node"


def check_equal(got, wanted, sentence, *more):
    return check(got == wanted, sentence, f"got    {got!r}", f"wanted {wanted!r}", *more)


class Node:
    """All that one node has."""

    def __init__(self, gpus=2, memory=30000 * MIB, config=None, more=(), cards=None, driver={}, **environment):
        """Of simulated cards, or, given lines of nvml_stub.c, of cards that only NVML knows; more: arguments."""
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=scratch, prefix="node-"))
        self.more = list(more)
        self.environment = environment
        self.machine = None if cards else Machine(gpus, memory, driver=driver)
        self.uuids = [line.split()[0] for line in cards] if cards else [g["uuid"] for g in self.machine.view()["gpus"]]
        if cards:
            self.show_cards(cards)
        self.api = Api(objects={PODS: {}, NODES: {NODE: {"metadata": {"name": NODE, "uid": "node-uid", "resourceVersion": "1"}}}})
        self.kubelet = Kubelet(self.folder / "kubelet")
        # As on k0s, where kubelet's root is elsewhere, and the folder of plugins' sockets is not.
        (self.folder / "root/pod-resources").mkdir(parents=True)
        (self.folder / "root/pod-resources/kubelet.sock").symlink_to(self.folder / "kubelet/podresources.sock")
        self.config = config
        self.log = open(self.folder / "log", "w+")
        self.uids = 0
        self.start()

    def show_cards(self, lines):
        (self.folder / "cards.new").write_text("".join(f"{line}\n" for line in lines))
        (self.folder / "cards.new").rename(self.folder / "cards")

    def install_driver(self, root, folder="usr/lib64"):
        """NVML as a driver's root has it; elsewhere there is none."""
        (root / folder).mkdir(parents=True)
        shutil.copy(BUILD / "tests/nvml_stub.so", root / folder / "libnvidia-ml.so.580.1")
        (root / folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.1")

    def start(self):
        environment = bare_environment(self.machine, NODE_NAME=NODE, no_proxy="*", **self.environment)
        arguments = [
            "--hook-path", self.folder / "vgpu", "--cdi-dir", self.folder / "cdi",
            "--nvidia-cdi-dirs", f"{self.folder}/toolkit,{self.folder}/toolkit-etc",
            "--runtime-socket", self.folder / "runtime.sock", *self.more,
            "--kubelet-socket", self.folder / "kubelet/kubelet.sock",
            "--pod-resources-socket", self.folder / "root/pod-resources/kubelet.sock",
            "--kubeconfig", self.api.kubeconfig(self.folder / "kubeconfig"),
            "--node-config-file", self.folder / "config.json",  # never this machine's own
        ]
        if self.config:
            (self.folder / "config.json").write_text(json.dumps({"nodeconfig": [self.config | {"name": NODE}]}))
        if not self.machine:
            if not (self.folder / "driver").exists():
                self.install_driver(self.folder / "driver")
            environment["NVML_STUB"] = str(self.folder / "cards")
            if not any("driver-root" in str(word) for word in self.more):
                arguments += ["--driver-root-ctr-path", self.folder / "driver"]
        self.plugin = start([PROGRAM, *arguments], environment, stderr=self.log)
        return self.plugin

    def restart(self, how=signal.SIGKILL):
        self.plugin.send_signal(how)
        self.plugin.wait(30)
        self.start()
        return self.kubelet.connect()

    def said(self):
        self.log.flush()
        return (self.folder / "log").read_text()

    def pod(self, name, *containers, init=(), gives=None, **status):
        """A bound pod whose containers were given what `gives` says: a list of (uuid, MiB, cores) each."""
        self.uids += 1
        value = "".join("".join(f"{u},NVIDIA,{m},{c}:" for u, m, c in given) + ";" for given in gives)
        return {
            "metadata": {
                "name": name, "namespace": "ns", "uid": f"uid-{self.uids}",
                "annotations": {ALLOCATED: value, TO_ALLOCATE: value, VGPU_NODE: NODE, PHASE: "allocating"},
            },
            "spec": {
                "nodeName": NODE,
                "initContainers": [{"name": n} for n in init],
                "containers": [{"name": n} for n in containers],
            },
            "status": {"phase": "Pending"} | status,
        }

    def show(self, pod):
        """The API server has it."""
        name = pod["metadata"]["name"]
        return self.api.put(PODS, name, **pod)

    def patches(self):
        """Those of annotations and labels."""
        return [r for r in self.api.seen("PATCH") if not r[1].endswith("/status")]

    def condition(self):
        """What the Node says of the driver: status, reason, message."""
        found = self.api.objects[NODES][NODE].get("status", {}).get("conditions", [])
        return next(((c["status"], c["reason"], c["message"]) for c in found if c["type"] == "hami.io/DriverReady"), (None, None, None))

    def spec(self, name):
        path = self.folder / "cdi" / f"hami-{name.partition('=')[2]}.json"
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None

    def all_edits(self, name):
        return self.spec(name)["devices"][0]["containerEdits"]

    def edits(self, name):
        if not self.spec(name):
            return None
        edits = self.all_edits(name)
        return dict(e.split("=", 1) for e in edits["env"]), {m["containerPath"]: m for m in edits["mounts"]}

    def limits(self, name):
        return dict(line.split("=", 1) for line in pathlib.Path(self.edits(name)[1]["/usr/local/vgpu/limits"]["hostPath"]).read_text().split())

    def run_container(self, pod, container, ids, init=False):
        """As kubelet starts a container: what PreStartContainer says, and the CDI name."""
        _, names = self.kubelet.allocate(ids)
        self.kubelet.hold(pod, container, ids, init)
        status, why = self.kubelet.prestart(ids)
        return status, why, names[0]

    def end(self):
        self.plugin.terminate()
        check_equal(self.plugin.wait(30), 0, "the plugin ends on SIGTERM")
        self.kubelet.stop()
        self.api.close()


def registers():
    node = Node()
    got = node.kubelet.connect()
    check_equal(
        got, {"version": "v1beta1", "endpoint": "nvidia-gpu.sock", "resource": "nvidia.com/gpu", "options": {1: 1}},
        "it registers with kubelet, and wants PreStartContainer",
    )
    devices = node.kubelet.lists.get(timeout=30)
    check_equal(devices, {f"{u}::{i}": "Healthy" for u in node.uuids for i in range(10)}, "ten devices a card are listed")
    check_equal(node.kubelet.call("GetDevicePluginOptions")[1], b"\x08\x01", "its options say the same")
    check_equal(node.kubelet.call("Nothing")[0], "UNIMPLEMENTED", "what it does not know it says")

    check("NVIDIA's driver 615.00.sim, for CUDA up to 13.5" in node.said(), "it says which driver there is", node.said())
    check(wait_until(lambda: node.patches()), "it writes the node's annotation")
    registered = json.loads(node.api.objects[NODES][NODE]["metadata"]["annotations"][REGISTER])
    check_equal([d["id"] for d in registered], node.uuids, "with the cards in NVML's order")
    check_equal({k: registered[1][k] for k in ("index", "count", "devmem", "devcore", "health", "mode")},
                {"index": 1, "count": 10, "devmem": 30000, "devcore": 100, "health": True, "mode": "hami-core"}, "and what they have")
    time.sleep(0.5)
    check_equal(len(node.patches()), 1, "once")
    time.sleep(1)
    node.api.put(NODES, NODE, metadata={"annotations": {REGISTER: None}})
    check(wait_until(lambda: len(node.patches()) == 2), "and again when it was removed")
    node.api.put(NODES, NODE, metadata={"annotations": {REGISTER: "[]"}})
    time.sleep(0.5)
    check_equal(len(node.patches()), 2, "but not at once when the Node comes as it was before that write")
    time.sleep(1)
    node.api.put(NODES, NODE, metadata={"annotations": {REGISTER: None}})
    check(wait_until(lambda: len(node.patches()) == 3), "only later")

    node.kubelet.stop()
    node.kubelet.start()
    began = time.monotonic()
    node.kubelet.connect()
    check(node.kubelet.lists.get(timeout=30), "it registers again when kubelet restarts", time.monotonic() - began)

    old = node.plugin
    node.start()
    node.kubelet.connect()
    check(node.kubelet.lists.get(timeout=30), "in an update the new one takes the old one's place")
    time.sleep(8)
    check(node.kubelet.registrations.empty(), "and the old one does not fight for it", node.said())
    lost = node.kubelet.lost
    old.terminate()
    check_equal(old.wait(30), 0, "the old one goes")
    time.sleep(1)
    check_equal((node.kubelet.lost - lost, node.kubelet.registrations.empty()), (0, True), "without kubelet losing its connection, for which it would drop the new one")
    check_equal(node.kubelet.call("GetDevicePluginOptions")[0], "OK", "and leaves the new one's socket")
    (first, *_) = node.uuids
    waiting = node.pod("late", "main", gives=[[(first, 100, 1)]])
    node.kubelet.hold(waiting, "main", [f"{first}::9"])
    third, answers = node.plugin, []
    calls = [threading.Thread(target=lambda: answers.append(node.kubelet.prestart([f"{first}::9"])))]
    calls[0].start()
    time.sleep(0.3)
    node.start()
    node.kubelet.connect()
    node.kubelet.lists.get(timeout=30)
    third.terminate()
    check_equal(third.wait(30), 0, "and the next one, too")
    calls[0].join()
    check_equal(answers[0], ("UNAVAILABLE", "the device plugin is ending"), "which answers whom it can't serve any more")
    node.kubelet.release(waiting)
    time.sleep(1)
    check_equal(node.kubelet.lost - lost, 0, "hands on what it was handed")

    before = len(node.patches())
    node.restart()
    check(node.kubelet.lists.get(timeout=30), "and when it restarts itself")
    time.sleep(0.5)
    check_equal(len(node.patches()), before, "without writing what is written already")
    private = private_kib(node.plugin.pid)
    print(f"private memory {private} KiB")
    check(private < 10240, "in less than 10 MiB of private memory", private)
    node.end()


def is_ready():
    """The ready file, by which a rolling update goes on."""
    node = Node(gpus=1, more=["--ready-file", scratch / "ready"])
    asks = lambda: run([PROGRAM, "--check", scratch / "ready"], bare_environment(None)).returncode
    time.sleep(1)
    check_equal(asks(), 1, "the plugin is not ready before kubelet listens")
    node.kubelet.connect()
    check(wait_until(lambda: asks() == 0), "it is when kubelet does")
    node.kubelet.stop()
    check(wait_until(lambda: asks() == 1, 10), "and not while kubelet is away")
    node.kubelet.start()
    node.kubelet.connect()
    check(wait_until(lambda: asks() == 0), "until it is back")
    (node.folder / "kubelet/kubelet.sock").rename(node.folder / "kubelet/away.sock")
    check(wait_until(lambda: asks() == 1, 10), "nor while kubelet's socket is gone, though its stream stays")
    time.sleep(1)
    check("cannot register" not in node.said().partition("away.sock")[2] and node.kubelet.registrations.empty(), "and nobody is asked to register it")
    (node.folder / "kubelet/away.sock").rename(node.folder / "kubelet/kubelet.sock")
    node.kubelet.connect()
    check(wait_until(lambda: asks() == 0), "until that is there again")
    node.plugin.kill()
    node.plugin.wait()
    node.kubelet.stop()
    node.start()
    check(wait_until(lambda: asks() == 1), "what a dead one left is taken away")
    node.kubelet.start()
    node.kubelet.connect()
    node.end()


def hands_over():
    node = Node()
    node.kubelet.connect()
    a, b = node.uuids
    pod = node.show(node.pod("one", "main", "side", gives=[[(a, 3000, 10)], []]))
    status, names = node.kubelet.allocate([f"{b}::3"])
    check(status == "OK" and names[0].startswith("hami.io/alloc=a"), "Allocate gives a CDI name", status, names)
    check_equal(node.kubelet.allocate([f"{b}::3"])[1], names, "the same for the same ids")
    check_equal(node.kubelet.allocate(["GPU-none::0"])[0], "INVALID_ARGUMENT", "ids that are none of ours are refused")
    check(node.spec(names[0]) is None, "and nothing is written yet")

    node.kubelet.hold(pod, "main", [f"{b}::3"])
    began = time.monotonic()
    check_equal(node.kubelet.prestart([f"{b}::3"]), ("OK", b""), "PreStartContainer succeeds", node.said())
    print(f"PreStartContainer took {(time.monotonic() - began) * 1000:.1f} ms")
    env, mounts = node.edits(names[0])
    check_equal(
        {k: v for k, v in env.items() if k != "CUDA_DEVICE_MEMORY_SHARED_CACHE"},
        {"NVIDIA_VISIBLE_DEVICES": a, "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "10", "LIBCUDA_LOG_LEVEL": "1",
         "HAMI_POD_UID": pod["metadata"]["uid"], "HAMI_CONTAINER": "main", "HAMI_SIM": "/usr/local/vgpu/machine", "CUDA_VISIBLE_DEVICES": a},
        "the environment is HAMi's, for the card that the scheduler chose",
    )
    region = env["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
    cell, cells = f"/usr/local/vgpu/cells/{a}", f"/usr/local/vgpu/cards/{a}"
    check_equal(
        sorted(p for p in mounts if "linux-gnu" not in p),
        sorted(["/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu/limits", "/usr/local/vgpu/machine", cell, cells, region]),
        "the files are mounted",
    )
    check_equal({p for p, m in mounts.items() if "rw" in m["options"]}, {region, cell, "/usr/local/vgpu/machine"}, "read-only but for the region and the cell")
    check(all(pathlib.Path(m["hostPath"]).is_file() == (p != cells) for p, m in mounts.items()), "and are there on the host", mounts)
    check_equal(pathlib.Path(mounts["/etc/ld.so.preload"]["hostPath"]).read_text(), "/usr/local/vgpu/libvgpu.so\n", "the preload file names the library")
    check("libvgpu.so." in mounts["/usr/local/vgpu/libvgpu.so"]["hostPath"], "the library's file has a version")
    limits = node.limits(names[0])
    check_equal({k: limits[k] for k in ("NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT_0", "CUDA_DEVICE_MEMORY_SHARED_CACHE")},
                {"NVIDIA_VISIBLE_DEVICES": a, "CUDA_DEVICE_MEMORY_LIMIT_0": str(3000 * MIB), "CUDA_DEVICE_SM_LIMIT_0": "10", "CUDA_DEVICE_MEMORY_SHARED_CACHE": region},
                "the limits file says the same")

    def written():
        return node.api.objects[PODS]["one"]["metadata"]

    check(wait_until(lambda: written()["annotations"][PHASE] == "success"), "the bind-phase is success")
    check_equal((written()["annotations"][TO_ALLOCATE], written()["labels"]), (";;", {VGPU_NODE: NODE}), "what was to allocate is consumed, the label is there")
    writes = [r for r in node.patches() if "pods" in r[1]]
    check_equal((len(writes), len(node.api.seen("GET", "/namespaces/"))), (1, 0), "by one write and no read")

    check_equal(node.kubelet.prestart([f"{b}::3"])[0], "OK", "a restart of the container")
    check(node.edits(names[0])[0]["CUDA_DEVICE_MEMORY_SHARED_CACHE"] != region, "gets a new region")
    check_equal(len(list((node.folder / "vgpu/containers").glob("*/*.cache"))), 1, "in place of the old")
    node.kubelet.release(pod)
    node.api.delete(PODS, "one")
    check(wait_until(lambda: node.spec(names[0]) is None), "a pod that is gone leaves no CDI file")
    check(wait_until(lambda: not list((node.folder / "vgpu/containers").iterdir())), "and no folder")
    node.end()


def matches():
    """Twenty pods at once, of two containers each, in any order: each gets its own."""
    node = Node(config={"devicesplitcount": 40})
    node.kubelet.connect()
    check_equal(len(node.kubelet.lists.get(timeout=30)), 80, "the node's own configuration is taken")
    free = [f"{u}::{i}" for u in node.uuids for i in range(40)]
    random.shuffle(free)
    work = []
    for i in range(20):
        gives = [[(node.uuids[i % 2], 100 + i, 1)], [(node.uuids[1 - i % 2], 300 + i, 2)]]
        pod = node.show(node.pod(f"p{i}", "x", "y", gives=gives))
        for container, given in zip(("x", "y"), gives):
            ids = [free.pop()]
            _, names = node.kubelet.allocate(ids)
            node.kubelet.hold(pod, container, ids)
            work.append((names[0], ids, given[0]))
    random.shuffle(work)
    threads, answers = [], {}
    began = time.monotonic()
    for name, ids, _ in work:
        threads.append(threading.Thread(target=lambda n, i: answers.update({n: node.kubelet.prestart(i)}), args=(name, ids)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    print(f"40 containers at once: {(time.monotonic() - began) * 1000:.0f} ms")
    check(all(a[0] == "OK" for a in answers.values()), "40 containers start at once", answers, node.said()[-2000:])
    wrong = [(n, g) for n, _, g in work if (node.edits(n)[0]["NVIDIA_VISIBLE_DEVICES"], node.edits(n)[0]["CUDA_DEVICE_MEMORY_LIMIT_0"]) != (g[0], f"{g[1]}m")]
    check_equal(wrong, [], "each with its own card and limit")
    done = lambda: all(p["metadata"]["annotations"][PHASE] == "success" for p in node.api.objects[PODS].values())
    check(wait_until(done), "every pod is told of")
    check_equal(len([r for r in node.patches() if "pods" in r[1]]), 20, "by one write a pod")
    node.end()


def prepared(name):
    """A node, and what kubelet has of a pod with an init container of 1000 MiB and one of 2000 that uses the same id: ids, CDI names."""
    node = Node()
    node.kubelet.connect()
    a, b = node.uuids
    pod = node.show(node.pod(name, "main", init=["prepare"], gives=[[(a, 1000, 5)], [(b, 2000, 50)]]))
    ids = [f"{a}::0"]
    _, names = node.kubelet.allocate(ids)
    node.kubelet.hold(pod, "prepare", ids, init=True)
    node.kubelet.hold(pod, "main", ids)
    return node, ids, names


def cut_short(starts, limit):
    """After a start that came to nothing the status may stay as it was: the refused container is found by the refusal."""
    node, ids, names = prepared("cut")
    check_equal(node.kubelet.prestart(ids)[0], "OK", f"{starts}: an init container is handed its card", node.said()[-1000:])
    status, why = node.kubelet.prestart(ids)
    check_equal(status, "UNAVAILABLE", f"{starts}: who is to start then is not known", why)
    kind = {"prepare": "initContainerStatuses", "main": "containerStatuses"}[starts]
    told = lambda message: node.api.put(PODS, "cut", status={kind: [{"name": starts, "restartCount": 0, "state": {"waiting": {"reason": "CreateContainerConfigError", "message": message}}}]})
    told("desc = of another time (refusal 00000001)")
    check_equal(node.kubelet.prestart(ids)[0], "UNAVAILABLE", f"{starts}: another refusal says nothing")
    told(f"device plugin PreStartContainer rpc failed with err: rpc error: code = Unavailable desc = {why}")
    check_equal(node.kubelet.prestart(ids)[0], "OK", f"{starts}: once its status tells of the refusal it starts", node.said()[-1000:])
    check_equal(node.limits(names[0])["CUDA_DEVICE_MEMORY_LIMIT_0"], str(limit * MIB), f"{starts}: with its own limit")
    node.end()


def old_failure():
    """The status may still tell of a run before the last one: a failed init container is tried again, ends, and the next one starts."""
    node, ids, names = prepared("old")

    def ended(run, code):
        state = {"terminated": {"exitCode": code, "containerID": f"containerd://{run}"}}
        node.api.put(PODS, "old", status={"initContainerStatuses": [{"name": "prepare", "restartCount": run, "state": state}]})

    def starts(mib, what):
        check_equal(node.kubelet.prestart(ids)[0], "OK", what, node.said()[-1000:])
        check_equal(node.limits(names[0])["CUDA_DEVICE_MEMORY_LIMIT_0"], str(mib * MIB), "with its own limit")

    starts(1000, "an init container starts")
    ended(0, 1)
    starts(1000, "it failed, and starts again")
    threading.Timer(1, lambda: ended(1, 1)).start()
    starts(1000, "that it failed again is seen a second later")
    threading.Timer(1, lambda: ended(2, 0)).start()
    starts(2000, "that it has ended since is seen late: then the pod's container starts")
    ended(1, 1)
    node.restart()
    threading.Timer(1, lambda: ended(2, 0)).start()
    starts(2000, "or after the plugin was started anew, with a status that is older")
    node.end()


def init_containers():
    for with_checkpoint in (True, False):
        how = "with the checkpoint" if with_checkpoint else "without the checkpoint"
        node = Node()
        node.kubelet.with_checkpoint = with_checkpoint
        node.kubelet.connect()
        a, b = node.uuids
        gives = [[(a, 1000, 5)], [(b, 2000, 50)]]
        pod = node.show(node.pod("init", "main", init=["prepare"], gives=gives))
        ids = [f"{a}::0"]
        _, names = node.kubelet.allocate(ids)
        node.kubelet.hold(pod, "prepare", ids, init=True)
        node.kubelet.hold(pod, "main", ids)
        check_equal(node.kubelet.prestart(ids)[0], "OK", f"{how}: an init container with a card starts", node.said()[-1000:])
        check_equal(node.limits(names[0])["CUDA_DEVICE_MEMORY_LIMIT_0"], str(1000 * MIB), f"{how}: with its own limit")
        check_equal(node.api.objects[PODS]["init"]["metadata"]["annotations"][PHASE], "allocating", f"{how}: the pod is not told of yet")
        # The container of the pod starts before the API server knows that the init container is done.
        behind = lambda: node.api.put(PODS, "init", status={"initContainerStatuses": [{"name": "prepare", "state": {"terminated": {"exitCode": 0}}}]})
        threading.Timer(0.3, behind).start()
        check_equal(node.kubelet.prestart(ids)[0], "OK", f"{how}: then the pod's container, with the same device ids", node.said()[-1000:])
        check_equal(node.limits(names[0])["CUDA_DEVICE_MEMORY_LIMIT_0"], str(2000 * MIB), f"{how}: with its own limit")
        check(wait_until(lambda: node.api.objects[PODS]["init"]["metadata"]["annotations"][PHASE] == "success"), f"{how}: and the pod is told of")
        node.end()

    cut_short("prepare", 1000)
    cut_short("main", 2000)
    old_failure()

    node = Node()
    node.kubelet.connect()
    a, b = node.uuids
    pod = node.show(node.pod("only-init", "main", init=["prepare"], gives=[[(a, 700, 5)], []]))
    status, why, name = node.run_container(pod, "prepare", [f"{a}::1"], init=True)
    check_equal(status, "OK", "an init container whose ids no other container has is found by the checkpoint", why)
    check_equal(node.limits(name)["CUDA_DEVICE_MEMORY_LIMIT_0"], str(700 * MIB), "with its limit")
    node.end()


def refuses():
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    pod = node.show(node.pod("big", "main", gives=[[(a, 20000, 10)]]))
    check_equal(node.run_container(pod, "main", [f"{a}::0"])[0], "OK", "a pod takes 20,000 MiB of 30,000")
    two = node.show(node.pod("two", "main", gives=[[(a, 10001, 10)]]))
    status, why, name = node.run_container(two, "main", [f"{a}::1"])
    check_equal((status, why), ("FAILED_PRECONDITION", f"card {a} would be given out for 30001 MiB of its 30000"), "one that would exceed the card does not start")
    check(node.spec(name) is None and len(list((node.folder / "vgpu/containers").iterdir())) == 1, "and gets no files")
    check_equal(node.kubelet.prestart([f"{a}::0"])[0], "OK", "the first may start again")

    for what, gives, said in (
        ("a card that is not here", [[("GPU-else", 100, 1)]], "is not here"),
        ("no memory", [[(a, 0, 1)]], "gives it 0 MiB"),
        ("another number of devices", [[(a, 1, 1), (a, 1, 1)]], "holds 1 devices, and the pod's annotation gives it 2"),
    ):
        bad = node.show(node.pod(what.replace(" ", "-"), "main", gives=gives))
        status, why, _ = node.run_container(bad, "main", [f"{a}::2"])
        check(status == "FAILED_PRECONDITION" and said in why, f"{what} is refused", status, why)
        node.kubelet.release(bad)
    garbage = node.pod("garbage", "main", gives=[[]])
    garbage["metadata"]["annotations"][ALLOCATED] = "GPU-a,NVIDIA;x:y"
    status, why, _ = node.run_container(node.show(garbage), "main", [f"{a}::3"])
    check_equal(status, "FAILED_PRECONDITION", "garbage in the annotation is that pod's own", why)
    node.kubelet.release(garbage)
    stranger = node.pod("stranger", "main", gives=[[(a, 1, 1)]])
    del stranger["metadata"]["annotations"][ALLOCATED]
    status, why, _ = node.run_container(node.show(stranger), "main", [f"{a}::4"])
    check(status == "FAILED_PRECONDITION" and "hami-scheduler" in why, "a pod of another scheduler does not start", status, why)
    node.kubelet.release(stranger)

    late = node.pod("late", "main", gives=[[(a, 100, 1)]])
    threading.Timer(0.5, lambda: node.show(late)).start()
    check_equal(node.run_container(late, "main", [f"{a}::5"])[0], "OK", "a pod that is not known yet is waited for", node.said()[-500:])
    node.end()


def begins_anew():
    """SIGHUP: the configuration is read again, what runs keeps what it has."""
    node = Node(gpus=1, config={"devicesplitcount": 3, "devicesplitcont": 7})
    node.kubelet.connect()
    (a,) = node.uuids
    check_equal(len(node.kubelet.lists.get(timeout=10)), 3, "three tasks a card")
    check("devicesplitcont has no effect" in node.said() and "devicesplitcount" not in node.said(), "a misspelt key is told of", node.said())
    pod = node.show(node.pod("p", "main", gives=[[(a, 20000, 10)]]))
    _, _, name = node.run_container(pod, "main", [f"{a}::0"])
    before = node.spec(name)
    (node.folder / "config.json").write_text(json.dumps({"nodeconfig": [{"name": NODE, "devicesplitcount": 7}]}))
    node.plugin.send_signal(signal.SIGHUP)
    node.kubelet.connect()
    check_equal(len(node.kubelet.lists.get(timeout=10)), 7, "after SIGHUP seven, in the same process", node.said())
    check(node.plugin.poll() is None and "beginning anew" in node.said(), "which goes on")
    check_equal(node.spec(name), before, "a container keeps what it has")
    other = node.show(node.pod("q", "main", gives=[[(a, 20000, 10)]]))
    status, why, _ = node.run_container(other, "main", [f"{a}::1"])
    check(status == "FAILED_PRECONDITION" and "40000 MiB" in why, "and is counted", status, why)
    (node.folder / "config.json").write_text("garbage")
    node.plugin.send_signal(signal.SIGHUP)
    check_equal(node.plugin.wait(30), 1, "a configuration that can't be read ends it")
    check("config.json" in node.said().splitlines()[-1], "with a word", node.said()[-300:])
    node.kubelet.stop()
    node.api.close()


def tells_again():
    """A write that the API server refuses is written at the next look, half a minute later."""
    node = Node(gpus=1)
    node.kubelet.connect()
    check(wait_until(lambda: node.patches()), "the node's cards are registered")
    pod = node.show(node.pod("p", "main", gives=[[(node.uuids[0], 100, 1)]]))
    node.api.refuse = [(500, {})]
    check_equal(node.run_container(pod, "main", [f"{node.uuids[0]}::0"])[0], "OK", "a container starts")
    check(wait_until(lambda: not node.api.refuse), "and the API server refuses to be told")
    told = lambda: node.api.objects[PODS]["p"]["metadata"]["annotations"][PHASE] == "success"
    check(wait_until(told, 40), "it is told again", node.said()[-500:])
    node.end()


def is_dropped():
    """kubelet knows plugins by their resource's name: when another one's stream ends it drops ours."""
    node = Node(gpus=1)
    node.kubelet.connect()
    node.kubelet.lists.get(timeout=10)
    began = time.monotonic()
    node.kubelet.stream.cancel()
    got = node.kubelet.registrations.get(timeout=20)
    took = time.monotonic() - began
    check_equal(got["resource"], "nvidia.com/gpu", "a plugin that kubelet drops registers again")
    check(took < 1, "at once, since until then the cards count as unhealthy", took)
    node.kubelet.registrations.put(got)
    node.kubelet.connect()
    check_equal(len(node.kubelet.lists.get(timeout=10)), 10, "and lists them again")
    node.end()


def upgrades():
    """Containers that an earlier version gave ids of its form, which kubelet's checkpoint has."""
    node = Node(gpus=1)
    (a,) = node.uuids
    node.plugin.kill()
    node.plugin.wait()
    node.kubelet.registrations.queue.clear()
    pod = node.show(node.pod("old", "main", gives=[[(a, 1000, 10)]]))
    node.kubelet.hold(pod, "main", [f"{a}-3"])
    node.start()
    node.kubelet.connect()
    ids = node.kubelet.lists.get(timeout=10)
    check_equal(sorted(ids), sorted([f"{a}-3"] + [f"{a}::{i}" for i in range(10) if i != 3]), "an id that a container has keeps its old form")
    check_equal(node.kubelet.prestart([f"{a}-3"])[0], "OK", "and its container starts again", node.said()[-500:])
    node.kubelet.release(pod)
    node.api.delete(PODS, "old")
    node.restart()
    check_equal(sorted(node.kubelet.lists.get(timeout=10)), sorted(f"{a}::{i}" for i in range(10)), "until it is gone")

    # And what it kept of a pod: the annotation alone, beside the container's limits.
    pod = node.show(node.pod("kept", "main", gives=[[(a, 1000, 10)]]))
    status, why, name = node.run_container(pod, "main", [f"{a}::1"])
    (folder,) = (node.folder / "vgpu/containers").iterdir()
    node.plugin.kill()
    node.plugin.wait()
    (folder / "pod").unlink()
    (folder / "grant").write_text(pod["metadata"]["annotations"][ALLOCATED])
    node.api.put(PODS, "kept", metadata={"annotations": {ALLOCATED: f"{a},NVIDIA,29000,100:;"}})
    node.start()
    node.kubelet.connect()
    check_equal(node.kubelet.prestart([f"{a}::1"])[0], "OK", "a container that an earlier version started starts again")
    check_equal(node.limits(name)["CUDA_DEVICE_MEMORY_LIMIT_0"], str(1000 * MIB), "with what it was given first")
    check((folder / "pod").exists(), "and is kept in the present form from then on")
    node.end()


def survives():
    node = Node()
    node.kubelet.connect()
    a, b = node.uuids
    pod = node.show(node.pod("one", "x", "y", gives=[[(a, 1000, 10)], [(b, 1000, 10)]]))
    status, _, first = node.run_container(pod, "x", [f"{a}::0"])
    gone = node.show(node.pod("gone", "x", gives=[[(a, 1000, 10)]]))
    status, _, stale = node.run_container(gone, "x", [f"{a}::1"])
    before = node.spec(first)
    node.plugin.kill()
    node.plugin.wait()
    node.api.delete(PODS, "gone")
    node.kubelet.release(gone)
    half = node.folder / "cdi" / "hami-a0123456789abcdef.json.new"
    half.write_text('{"cdiVersion":')
    cut = node.folder / "cdi" / "hami-a0123456789abcde0.json"
    cut.write_text('{"cdiVersion":')
    others = node.folder / "cdi" / "hami-other.json"
    others.write_text("{}")
    (node.folder / "vgpu/containers/uid-999_x").mkdir()
    (node.folder / "vgpu/containers/uid-999_x/limits").write_text("")
    node.start()
    node.kubelet.connect()
    check(wait_until(lambda: node.spec(stale) is None), "after kill -9: what a pod left that went meanwhile is removed")
    check(wait_until(lambda: not (node.folder / "vgpu/containers/uid-999_x").exists()), "and folders of unknown pods")
    check(not half.exists() and not cut.exists(), "and half-written files")
    check(others.exists(), "but not those of others")
    check_equal(node.spec(first), before, "a running container's files stay")
    status, why, _ = node.run_container(pod, "y", [f"{b}::0"])
    check_equal(status, "OK", "the pod's other container starts", why)
    check(wait_until(lambda: node.api.objects[PODS]["one"]["metadata"]["annotations"][PHASE] == "success"), "and the pod is told of")
    two = node.show(node.pod("two", "x", gives=[[(a, 29500, 10)]]))
    status, why, _ = node.run_container(two, "x", [f"{a}::2"])
    check(status == "FAILED_PRECONDITION", "what was handed out before still counts", status, why)

    # Killed at any moment while containers start: every file is complete, and all start in the end.
    random.seed(7)
    for turn in range(12):
        pod = node.show(node.pod(f"k{turn}", "x", gives=[[(b, 100 + turn, 1)]]))
        ids = [f"{b}::{turn % 9 + 1}"]
        node.kubelet.hold(pod, "x", ids)
        threading.Timer(random.random() * 0.012, node.plugin.kill).start()
        node.kubelet.prestart(ids)
        node.plugin.wait()
        for path in (node.folder / "cdi").glob("hami-a*.json"):
            json.loads(path.read_text())
        node.start()
        node.kubelet.connect()
        status, why = node.kubelet.prestart(ids)
        if status != "OK":
            check(False, f"turn {turn}: the container starts", status, why, node.said()[-1000:])
        node.kubelet.release(pod)
        node.api.delete(PODS, f"k{turn}")
    check(True, "killed twelve times while a container started")
    check(wait_until(lambda: len(list((node.folder / "cdi").glob("hami-a*.json"))) == 2), "nothing stale is left", list((node.folder / "cdi").iterdir()))

    node.api.cut_all()
    started = len(node.api.requests)
    pod = node.show(node.pod("after", "x", gives=[[(a, 100, 1)]]))
    check_equal(node.run_container(pod, "x", [f"{a}::5"])[0], "OK", "after a cut of all connections it goes on")
    node.end()


def alone():
    """The API server is away: what containers were given is on the node's disk."""
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    pod = node.show(node.pod("one", "main", init=["prepare"], gives=[[(a, 700, 5)], [(a, 20000, 10)]]))
    ids = [f"{a}::0"]
    _, (name,) = node.kubelet.allocate(ids)
    node.kubelet.hold(pod, "prepare", ids, init=True)
    node.kubelet.hold(pod, "main", ids)
    check_equal(node.kubelet.prestart(ids)[0], "OK", "an init container starts")
    node.api.put(PODS, "one", status={"initContainerStatuses": [{"name": "prepare", "state": {"terminated": {"exitCode": 0}}}]})
    check_equal(node.kubelet.prestart(ids)[0], "OK", "and then its pod's container", node.said()[-500:])
    two = node.show(node.pod("two", "main", gives=[[(a, 1000, 10)]]))
    check(wait_until(lambda: node.api.objects[PODS]["one"]["metadata"]["annotations"][PHASE] == "success"), "the pod is told of")
    writes = len(node.patches())
    node.api.close()
    for how in (signal.SIGKILL, signal.SIGTERM):
        began = time.monotonic()
        node.restart(how)
        check_equal(node.kubelet.prestart(ids)[0], "OK", f"restarted by {how.name}, without an API server, it lets the container start again", node.said()[-500:])
        check(time.monotonic() - began < 3, "at once", time.monotonic() - began)
        check_equal(node.limits(name)["CUDA_DEVICE_MEMORY_LIMIT_0"], str(20000 * MIB), "with its own limit")
    check_equal(node.run_container(two, "main", [f"{a}::1"])[0], "UNAVAILABLE", "one that it does not know waits")
    # A pod of the same name is another one.
    node.kubelet.release(pod)
    other = json.loads(json.dumps(pod))
    other["metadata"]["uid"] = "uid-other"
    node.kubelet.hold(other, "main", ids)
    check_equal(node.kubelet.prestart(ids)[0], "UNAVAILABLE", "and a pod that was made anew under its name gets nothing of it")
    node.kubelet.release(other)
    node.kubelet.hold(pod, "main", ids)
    port, objects, version = node.api.port, node.api.objects, node.api.version
    node.api = Api(port=port, objects=objects)
    node.api.version = version
    check(wait_until(lambda: node.kubelet.prestart([f"{a}::1"])[0] == "OK", 60), "until the API server is back", node.said()[-500:])
    check_equal(len([r for r in node.patches() if r[1].endswith("/one")]), 0, "the first pod is not written to again")
    node.api.delete(PODS, "one")
    check(wait_until(lambda: len(list((node.folder / "vgpu/containers").iterdir())) == 1), "what is gone by then is tidied away")
    node.end()


def priorities():
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    pod = node.pod("one", "low", "high", "own", init=["first"], gives=[[(a, 100, 1)]] * 4)
    variable = [{"name": "CUDA_TASK_PRIORITY", "value": "0"}]
    limits = lambda value: {"limits": {"nvidia.com/priority": value}}
    pod["spec"]["initContainers"][0] |= {"resources": limits("0")}
    for inside, more in zip(pod["spec"]["containers"], ({"resources": limits("1")}, {"resources": limits("0")}, {"env": variable})):
        inside |= more
    pod = node.show(pod)
    got = {}
    for i, inside in enumerate(("first", "low", "high", "own")):
        status, why, name = node.run_container(pod, inside, [f"{a}::{i}"], init=inside == "first")
        got[inside] = node.limits(name)["CUDA_TASK_PRIORITY"] if status == "OK" else why
        if inside == "first":
            node.api.put(PODS, "one", status={"initContainerStatuses": [{"name": "first", "state": {"terminated": {"exitCode": 0}}}]})
    check_equal(got, {"first": "0", "low": "1", "high": "0", "own": "1"}, "each container has its own priority, an init container, too; nobody gives it to himself")
    node.end()


def holds_fast():
    """What a pod was given first is final: neither it nor a restart of ours takes another annotation."""
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    pod = node.show(node.pod("one", "x", "y", gives=[[(a, 1000, 10)], [(a, 2000, 20)]]))
    ids = [f"{a}::0"]
    check_equal(node.run_container(pod, "x", ids)[0], "OK", "a container starts")
    _, (name,) = node.kubelet.allocate(ids)
    big = node.show(node.pod("big", "x", gives=[[(a, 29000, 10)]]))
    limit = lambda: node.limits(name)["CUDA_DEVICE_MEMORY_LIMIT_0"]

    def tries(what):
        check_equal((node.kubelet.prestart(ids)[0], limit()), ("OK", str(1000 * MIB)), f"{what}: the container starts again, with its old limit")
        status, why, _ = node.run_container(big, "x", [f"{a}::1"])
        check(status == "FAILED_PRECONDITION" and "32000 MiB of its 30000" in why, f"{what}: what it holds is still counted", status, why)
        node.kubelet.release(big)
        node.show(big)

    for what, value in (
        ("more memory", f"{a},NVIDIA,29000,100:;{a},NVIDIA,1000,1:;"),
        ("less memory", f"{a},NVIDIA,10,1:;{a},NVIDIA,10,1:;"),
        ("no devices", ";;"),
        ("garbage", "x"),
        ("nothing", None),
    ):
        node.api.put(PODS, "one", metadata={"annotations": {ALLOCATED: value}})
        time.sleep(0.3)
        tries(what)
    check_equal(node.said().count("ns/one: its annotation hami.io/vgpu-devices-allocated was changed"), 1, "which is said, once")
    node.restart()
    tries("after kill -9")
    node.api.put(PODS, "one", metadata={"annotations": {ALLOCATED: f"{a},NVIDIA,29000,100:;{a},NVIDIA,1000,1:;"}})
    node.restart()
    tries("changed while the plugin was away")
    check_equal(node.run_container(pod, "y", [f"{a}::2"])[0], "OK", "the pod's other container starts")
    _, (other,) = node.kubelet.allocate([f"{a}::2"])
    check_equal(node.limits(other)["CUDA_DEVICE_MEMORY_LIMIT_0"], str(2000 * MIB), "with what it was given first")
    node.kubelet.release(pod)
    node.api.put(PODS, "one", metadata={"annotations": {"nvidia.com/x": "\0", ALLOCATED: "x"}}, spec={"containers": "none"})
    time.sleep(0.3)
    check(node.spec(name), "a pod that can't be read any more keeps what it has")
    node.api.delete(PODS, "one")
    check(wait_until(lambda: node.spec(name) is None), "and when it goes, it goes")
    check_equal(node.run_container(big, "x", [f"{a}::1"])[0], "OK", "so that others have the room", )
    node.end()


def is_not_listened_to():
    """kubelet took the registration and never asked for the list: seconds later it is registered again."""
    node = Node(gpus=1)
    node.kubelet.registrations.get(timeout=10)
    check(node.kubelet.registrations.empty(), "it is registered once")
    check_equal(node.kubelet.registrations.get(timeout=20)["resource"], "nvidia.com/gpu", "and again where kubelet does not ask for the list")
    node.kubelet.registrations.queue.clear()
    node.kubelet.registrations.put({"endpoint": "nvidia-gpu.sock"})
    node.kubelet.connect()
    node.kubelet.lists.get(timeout=10)
    time.sleep(7)
    check(node.kubelet.registrations.empty(), "once it has, no more")
    node.end()


def leaves():
    """A pod that is deleted with a grace period of 0 may run on: what it holds is its own until kubelet has ended it."""
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    pod = node.show(node.pod("one", "x", gives=[[(a, 20000, 50)]], phase="Running"))
    folder = node.folder / "pods" / pod["metadata"]["uid"]
    folder.mkdir(parents=True)
    status, why, name = node.run_container(pod, "x", [f"{a}::0"])
    check_equal(status, "OK", "a container starts", why)
    node.kubelet.release(pod)
    node.api.delete(PODS, "one")
    check(wait_until(lambda: "ns/one is gone, and kubelet has not ended it" in node.said()), "its pod is gone from the API server, which is said")
    other = node.show(node.pod("other", "x", gives=[[(a, 20000, 50)]]))

    def refused(when):
        status, why, _ = node.run_container(other, "x", [f"{a}::1"])
        check(status == "FAILED_PRECONDITION" and "40000 MiB of its 30000" in why, f"{when}: what it holds is counted", status, why)
        check(node.spec(name), f"{when}: its specification is there")

    refused("while its folder is there")
    node.restart()
    refused("after kill -9")
    folder.rmdir()
    check_equal(node.run_container(other, "x", [f"{a}::1"])[0], "OK", "once it has ended, others have the room")
    check(wait_until(lambda: node.spec(name) is None), "and nothing is left of it")
    node.end()


def updated():
    """What an earlier plugin hands over beside the next one, in an update, is counted and kept by that as well."""
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    old = node.plugin
    node.start()
    time.sleep(3)
    pod = node.show(node.pod("one", "x", gives=[[(a, 20000, 50)]], phase="Running"))
    folder = node.folder / "root/pods" / pod["metadata"]["uid"]
    folder.mkdir(parents=True)
    status, why, name = node.run_container(pod, "x", [f"{a}::0"])
    check_equal(status, "OK", "the earlier one starts a container when the next one has looked around already", why)
    node.kubelet.connect()
    node.kubelet.lists.get(timeout=30)
    old.terminate()
    check_equal(old.wait(30), 0, "the earlier one ends")
    node.kubelet.release(pod)
    node.api.delete(PODS, "one")
    time.sleep(1)
    other = node.show(node.pod("other", "x", gives=[[(a, 20000, 50)]]))
    status, why, _ = node.run_container(other, "x", [f"{a}::1"])
    check(status == "FAILED_PRECONDITION" and "40000 MiB of its 30000" in why, "its pod goes from the API server, and what it holds is counted", status, why)
    time.sleep(32)
    check(node.spec(name) and list((node.folder / "vgpu/containers").iterdir()), "and nothing of it is removed")
    folder.rmdir()
    check_equal(node.run_container(other, "x", [f"{a}::1"])[0], "OK", "once it has ended, others have the room")
    check(wait_until(lambda: node.spec(name) is None), "and nothing is left of it")
    node.end()


def lists_again():
    """A pod that starts while a list is under way, whose snapshot lacks it, keeps what it has."""
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    time.sleep(0.5)
    node.api.held = threading.Event()
    node.api.quiet = True
    before = node.api.snapshots
    node.api.forget_events()
    node.api.cut_all()
    check(wait_until(lambda: node.api.snapshots >= before + 2), "a list is under way")
    pod = node.show(node.pod("one", "x", gives=[[(a, 20000, 10)]]))
    status, why, name = node.run_container(pod, "x", [f"{a}::0"])
    check_equal(status, "OK", "a container of a pod starts that was bound after its snapshot", why)
    node.api.held.set()
    time.sleep(1)
    check(node.spec(name), "and keeps its files when the list is complete", node.said()[-1000:])
    node.api.quiet = False
    two = node.show(node.pod("two", "x", gives=[[(a, 20000, 10)]]))
    check_equal(node.run_container(two, "x", [f"{a}::1"])[0], "FAILED_PRECONDITION", "and its devices")
    node.end()


def loses_its_socket():
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(node.kubelet.prestart([f"{a}::0"])))
    waiting.start()
    time.sleep(0.5)
    (node.folder / "kubelet/nvidia-gpu.sock").unlink()
    waiting.join()
    check(answers[0][0] != "OK", "a container that waits when the socket is removed does not start", answers)
    node.kubelet.connect()
    pod = node.show(node.pod("one", "x", gives=[[(a, 1000, 10)]]))
    node.kubelet.hold(pod, "x", [f"{a}::0"])
    time.sleep(2)
    check(node.plugin.poll() is None and not list((node.folder / "cdi").glob("hami-a*.json")), "nothing is handed over for whom nobody waits", node.said()[-1000:])
    check_equal(node.kubelet.prestart([f"{a}::0"])[0], "OK", "kubelet's next try succeeds")
    node.end()


def trims():
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    pod = node.show(node.pod("one", "x", gives=[[(a, 2000, 100)]]))
    _, _, name = node.run_container(pod, "x", [f"{a}::0"])
    env, mounts = node.edits(name)
    region = pathlib.Path(mounts[env["CUDA_DEVICE_MEMORY_SHARED_CACHE"]]["hostPath"])
    guest = start([LOAD, "--memory", "100M", "--hold"], bare_environment(node.machine, LD_PRELOAD=container(region, NVIDIA_VISIBLE_DEVICES=a, CUDA_DEVICE_MEMORY_LIMIT_0=2000 * MIB)))
    check(wait_until(lambda: node.machine.used(guest.pid) >= 100 * MIB), "a container runs")
    size = region.stat().st_size
    time.sleep(1.5)
    check(0 < size == region.stat().st_size, "its region is left alone", size)
    check("had grown to" not in node.said(), "and nothing is said of it", node.said()[-500:])
    with open(region, "r+b") as file:
        file.seek(0, 2)
        file.write(b"x" * (100 * MIB))
        file.flush()
        check(wait_until(lambda: region.stat().st_size <= 8 * MIB), "a region that the container made longer is cut")
        if subprocess.run(["fallocate", "--keep-size", "--length", "100M", region]).returncode == 0:
            check(wait_until(lambda: region.stat().st_blocks * 512 <= 16 * MIB), "and blocks beyond its end are given back", region.stat())
    check("had grown to" in node.said(), "which is said", node.said()[-500:])
    check(guest.poll() is None and node.machine.used(guest.pid) >= 100 * MIB, "and what runs in it runs on")
    again = start([LOAD, "--memory", "100M", "--hold"], bare_environment(node.machine, LD_PRELOAD=container(region, NVIDIA_VISIBLE_DEVICES=a, CUDA_DEVICE_MEMORY_LIMIT_0=2000 * MIB)))
    check(wait_until(lambda: node.machine.used(again.pid) >= 100 * MIB), "and what starts there starts")
    guest.kill()
    again.kill()
    node.end()


def can_lease(path):
    """Whether root of a container could, by a read-only mount, make others wait who open the file (fcntl(2))."""
    with open(path, "rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except BlockingIOError:
            return False
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True


def keeps_apart():
    """Programs of a container start by files of its own, or by such as no other container can lock."""
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    mounts = []
    for i, name in enumerate(("one", "two")):
        pod = node.show(node.pod(name, "x", gives=[[(a, 1000, 10)]]))
        mounts.append(node.edits(node.run_container(pod, "x", [f"{a}::{i}"])[2])[1])
    common = [p for p in mounts[0] if p in mounts[1] and mounts[0][p]["hostPath"] == mounts[1][p]["hostPath"] and "linux-gnu" not in p]
    check_equal(sorted(common), sorted(["/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu/machine", f"/usr/local/vgpu/cards/{a}"]),
                "containers have the library and the card's cells in common")
    try:
        check(can_lease(mounts[0]["/etc/ld.so.preload"]["hostPath"]), "one can lock the file that loads it, which is its own")
    except OSError as error:
        print(f"skipped: no leases of files here: {error}")
        return node.end()
    library = mounts[0]["/usr/local/vgpu/libvgpu.so"]["hostPath"]
    check(not can_lease(library), "but not the library")
    former = node.folder / "vgpu/ld.so.preload"
    former.write_text("/usr/local/vgpu/libvgpu.so\n")
    check(can_lease(former), "a file that containers of an earlier version have in common can be locked")
    node.restart()
    check_equal((can_lease(library), can_lease(former)), (False, False), "until a plugin of this version begins")
    node.plugin.kill()
    node.plugin.wait()
    with open(library, "rb") as file:
        before = signal.signal(signal.SIGIO, lambda *_: None)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        began = time.monotonic()
        node.start()
        node.kubelet.connect()
        check(time.monotonic() - began < 20, "which no lease that was taken before keeps from its start", time.monotonic() - began)
        check("has a lease of" in node.said(), "and which tells of it", node.said()[-400:])
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        signal.signal(signal.SIGIO, before)
    check(wait_until(lambda: not can_lease(library), 5), "once that is given up nobody gets another")
    node.end()


def lends():
    """Each container has a cell of its card, and sees the others' read-only: who wants it is known to all."""
    node = Node(gpus=1)
    node.kubelet.connect()
    (a,) = node.uuids
    cells = node.folder / "vgpu/cards" / a

    def run_one(name, number):
        return node.run_container(node.show(node.pod(name, "x", gives=[[(a, 1000, 10)]])), "x", [f"{a}::{number}"])[2]

    first, second = run_one("one", 0), run_one("two", 1)
    mine, theirs = (cells / f"uid-{number}_x.1.10" for number in (1, 2))
    mounts = node.edits(first)[1]
    own, others = (mounts.get(f"/usr/local/vgpu/{folder}/{a}", {}) for folder in ("cells", "cards"))
    check_equal((own["hostPath"], "rw" in own["options"]), (str(mine), True), "a container may write its own cell")
    check_equal((others["hostPath"], "ro" in others["options"]), (str(cells), True), "and read those of the card")
    limits = node.limits(first)
    check_equal((limits.get("HAMI_CARD_CELLS"), limits.get("HAMI_CARDS")), ("/usr/local/vgpu/cells", "/usr/local/vgpu/cards"), "and its limits say where they are")
    check_equal({p.name: p.stat().st_size for p in cells.iterdir()}, {"uid-1_x.1.10": 4096, "uid-2_x.1.10": 4096}, "each container has one, whose name says its priority and its share")

    with open(mine, "rb") as file:
        node.kubelet.prestart([f"{a}::0"])
        check(not os.path.samestat(os.fstat(file.fileno()), mine.stat()), "a container that starts again has a new one")
    with open(theirs, "r+b") as file:
        file.truncate(10 * MIB)
        check(wait_until(lambda: os.fstat(file.fileno()).st_size <= 4096), "one that a container made longer is cut")

    # A container of a version that knew no cells can't say what it wants.
    path = pathlib.Path(node.edits(second)[1]["/usr/local/vgpu/limits"]["hostPath"])
    text = path.read_text()
    path.unlink()
    path.write_text("".join(line for line in text.splitlines(keepends=True) if "HAMI_CARD" not in line))
    theirs.unlink()
    node.restart()
    check((cells / "uid-2_x").exists() and (cells / "uid-2_x").stat().st_size not in (0, 4096), "for one of an earlier version the card is wanted always")
    check_equal(mine.stat().st_size, 4096, "the other's cell stays as it was")
    node.api.delete(PODS, "two")
    check(wait_until(lambda: [p.name for p in cells.iterdir()] == [mine.name]), "and goes with its pod", list(cells.iterdir()))
    node.end()

    (scratch / "force.yaml").write_text("nvidia: {resourceCountName: nvidia.com/gpu, resourcePriorityName: nvidia.com/priority, gpuCorePolicy: force, memoryImports: allow}\n")
    node = Node(gpus=1, more=["--device-config-file", scratch / "force.yaml"])
    node.kubelet.connect()
    (a,) = node.uuids
    name = node.run_container(node.show(node.pod("one", "x", gives=[[(a, 1000, 10)]])), "x", [f"{a}::0"])[2]
    mounts = node.edits(name)[1]
    check(f"/usr/local/vgpu/cells/{a}" in mounts and "ro" in mounts[f"/usr/local/vgpu/cards/{a}"]["options"], "by the policy force a container says what it wants, and sees the others' priorities")
    limits = node.limits(name)
    check_equal(limits.get("HAMI_IMPORTS"), "allow", "and imports what the configuration lets it")
    check_equal((limits.get("HAMI_CARDS"), limits.get("HAMI_CARD_RANKS")), (None, "/usr/local/vgpu/cards"), "but uses nothing of theirs")

    # With a priority of its own the cell's name says it, and the share: the tenant can't write that.
    pod = node.pod("high", "x", gives=[[(a, 1000, 20)]])
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/priority": "0"}}
    name = node.run_container(node.show(pod), "x", [f"{a}::1"])[2]
    cells, own = node.folder / "vgpu/cards" / a, node.edits(name)[1][f"/usr/local/vgpu/cells/{a}"]["hostPath"]
    check(own.startswith(str(cells)) and own.endswith("_x.0.20"), "a container's cell has its priority and its share in the name", own)
    node.kubelet.prestart([f"{a}::1"])
    check_equal(len(list(cells.iterdir())), 2, "made anew it is one still", list(cells.iterdir()))
    node.api.delete(PODS, "high")
    check(wait_until(lambda: len(list(cells.iterdir())) == 1), "and goes with its pod", list(cells.iterdir()))
    node.end()


def contexts():
    """What a context takes is in the limits where the configuration says it, by the card's model or of the whole node."""
    base = "nvidia:\n  resourceCountName: nvidia.com/gpu\n"
    for more, config, wanted in (
        ("", None, [None, None]),
        ("  contextSizes:\n    - {models: [Nothing], memory: 900}\n    - {models: [NVIDIA], memory: 300}\n", None, [300, 300]),
        ("  contextSizes: [{models: [NVIDIA], memory: 300}]\n", {"contextsize": 420}, [420, 420]),
    ):
        (scratch / "contexts.yaml").write_text(base + more)
        node = Node(config=config, more=["--device-config-file", scratch / "contexts.yaml", "--measure-contexts=false"])
        node.kubelet.connect()
        node.kubelet.lists.get(timeout=30)
        pod = node.show(node.pod("one", "main", gives=[[(u, 1000, 10) for u in node.uuids]]))
        status, why, name = node.run_container(pod, "main", [f"{u}::0" for u in node.uuids])
        limits = node.limits(name)
        got = [limits.get(f"CUDA_DEVICE_CONTEXT_SIZE_{i}") for i in range(2)]
        check_equal((status, got), ("OK", [w and str(w * MIB) for w in wanted]), f"sizes of contexts are {wanted}", why)
        node.end()


def hangs():
    node = Node(gpus=1)
    node.kubelet.connect()
    node.machine.hang()
    time.sleep(6)
    began = time.monotonic()
    node.plugin.terminate()
    check_equal(node.plugin.wait(30), 0, "the plugin ends on SIGTERM while the driver hangs")
    check(time.monotonic() - began < 10, "without waiting for it", time.monotonic() - began)
    check("the driver does not answer" in node.said(), "and says why it did not wait", node.said()[-500:])
    check(not (node.folder / "kubelet/nvidia-gpu.sock").exists(), "and leaves no socket")
    node.start()
    time.sleep(1)
    node.plugin.terminate()
    check(node.plugin.wait(30) is not None, "and while it hangs from the start")
    node.kubelet.stop()
    node.api.close()


def options():
    """What they take, and what they refuse: --check ends the program before it does anything."""
    there = tempfile.NamedTemporaryFile(dir=scratch)

    def ends(*words, **environment):
        # No program of its own: argp writes to the terminal.
        done = subprocess.run([PROGRAM, *words, f"--check={there.name}"], env=bare_environment(None, **environment), capture_output=True, text=True, timeout=20)
        return done.returncode, done.stderr

    longest = "n" * 255
    for words, wanted, sentence in (
        ([], 0, "a file that is there is found"),
        (["--check=/nonexistent"], 1, "one that is not there is not"),
        (["--node-name=node-1"], 0, "a node has a name"),
        ([f"--node-name={longest}"], 0, "of 255 bytes at most"),
        ([f"--node-name={longest}n"], 2, "and no more"),
        (["--node-name="], 2, "nor none"),
        (["--v=5"], 0, "a level is a number"),
        (["--v=loud"], 2, "and not a word"),
        (["--runtime-cdi=on"], 0, "the runtime takes CDI"),
        (["--runtime-cdi=auto"], 0, "or is asked"),
        (["--runtime-cdi=off"], 2, "and nothing else"),
        (["--device-list-strategy=envvar,volume-mounts", "--device-list-strategy=cdi-annotations"], 0, "ways to hand devices over are HAMi's"),
        (["--device-list-strategy=envvar,tegra"], 2, "and no others"),
        (["--pass-device-specs"], 0, "a switch without a value is on"),
        (["--node-capacity=false"], 0, "or says which"),
        (["--measure-contexts=false"], 0, "as does one that is on without it"),
        (["--node-capacity=perhaps"], 2, "and only that"),
        (["--mig-strategy=none"], 0, "instances of cards are left alone"),
        (["--mig-strategy=mixed"], 0, "or served"),
        (["--mig-strategy=foo"], 2, "and nothing else"),
        (["--resource-name=x"], 0, "an option of HAMi's that has no effect here is taken"),
        (["--no-such-option"], 2, "an unknown one is refused"),
    ):
        status, said = ends(*words)
        check_equal(status, wanted, sentence, words, said)
    for variable, value, said in (
        ("DEVICE_LIST_STRATEGY", "envvar,tegra", 'hami-device-plugin: DEVICE_LIST_STRATEGY: device list strategy "tegra"'),
        ("MIG_STRATEGY", "foo", 'hami-device-plugin: MIG_STRATEGY: "foo" is none of none, single, mixed'),
    ):
        done = subprocess.run([PROGRAM], env=bare_environment(None, NODE_NAME=NODE, **{variable: value}), capture_output=True, text=True, timeout=20)
        check(done.returncode == 2 and said in done.stderr, f"{variable} is refused by its name, too", done.stderr)
    for option in ("device-config-file", "node-config-file"):
        file = scratch / "none" if option == "device-config-file" else scratch
        done = subprocess.run([PROGRAM, f"--hook-path={scratch}/none-hook", f"--{option}={file}"], env=bare_environment(None, NODE_NAME=NODE), capture_output=True, text=True, timeout=20)
        check(done.returncode == 1 and f"error --{option}: {file}: " in done.stderr, f"--{option} is named with the file that can't be read", done.stderr)
    done = subprocess.run([PROGRAM], env=bare_environment(None), capture_output=True, text=True, timeout=20)
    check_equal(done.returncode, 2, "without a node's name it does not start", done.stderr)


def modes():
    """Files for containers are for all to read and for nobody but us to write; what is ours alone is ours alone."""
    node = Node(gpus=1)
    node.kubelet.connect()
    pod = node.show(node.pod("one", "x", gives=[[(node.uuids[0], 1000, 10)]]))
    old = os.umask(0)
    try:
        node.restart()
        check_equal(node.run_container(pod, "x", [f"{node.uuids[0]}::0"])[0], "OK", "a container starts")
    finally:
        os.umask(old)
    seen = {path: path.lstat().st_mode & 0o7777 for root in ("vgpu", "cdi") for path in (node.folder / root).rglob("*") if not path.is_symlink()}
    folders = {str(p.relative_to(node.folder)): oct(m) for p, m in seen.items() if p.is_dir() and m != 0o755}
    check_equal(folders, {}, "folders are everybody's to read")
    files = {str(p.relative_to(node.folder)): m for p, m in seen.items() if p.is_file()}
    regions = {name: m for name, m in files.items() if name.endswith(".cache") or name.startswith("vgpu/cards/")}
    check(len(regions) == 2 and set(regions.values()) == {0o666}, "a container's region and cell are written by whichever user it has", files)
    libraries = {name: m for name, m in files.items() if ".so" in name and not name.endswith("ld.so.preload")}
    check(libraries and set(libraries.values()) == {0o755}, "the library can be executed", files)
    strict = {"limits": 0o444, "pod": 0o400}
    others = {name: oct(m) for name, m in files.items() if name not in regions and name not in libraries and m != strict.get(name.rpartition("/")[2], 0o644)}
    check_equal(others, {}, "all else is read only")
    node.end()


PARTS = ["options", "modes", "registers", "is_ready", "hands_over", "matches", "init_containers", "refuses", "begins_anew", "tells_again", "is_dropped", "is_not_listened_to", "upgrades", "survives", "alone", "priorities", "holds_fast", "leaves", "updated", "lists_again", "loses_its_socket", "trims", "keeps_apart", "lends", "contexts", "hangs"]

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        globals()[part]()
    finish()

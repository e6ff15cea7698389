#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Handing over where CDI devices do not reach containers: Allocate answers all, for the one pod that is being bound."""

import sys

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from plugin import *
from driver import CARDS, TOOLKIT, Runtime
from extender import Extender
from geometry import Made
from kubelet import field, unpack

LOCK = "hami.io/mutex.lock"
OFF = {"enableCDI": False}


class Ordered(Node):
    """A node whose runtime has CDI off, unless it is given another configuration."""

    def __init__(self, runtime=OFF, info=None, **more):
        self.info = info or {}
        self.runtime_config = runtime
        super().__init__(**more)

    def start(self):
        if not hasattr(self, "runtime"):
            self.runtime = Runtime(self.folder / "runtime.sock", self.runtime_config)
            self.api.put(NODES, NODE, status={"nodeInfo": self.info})
        return super().start()

    def allocate(self, ids):
        """What kubelet lays over the container: environment, mounts, device nodes, annotations."""
        status, answer = self.kubelet.call("Allocate", field(1, b"".join(field(1, i) for i in ids)))
        if status != "OK":
            return status, answer
        ((_, response),) = unpack(answer)
        parts = lambda number: [{n: v.decode() if isinstance(v, bytes) else v for n, v in unpack(part)} for k, part in unpack(response) if k == number]
        return status, {
            "env": {e[1]: e.get(2, "") for e in parts(1)},
            "mounts": {m[1]: (m[2], bool(m.get(3))) for m in parts(2)},
            "nodes": {d[1]: (d[2], d[3]) for d in parts(3)},
            "annotations": {a[1]: a[2] for a in parts(4)},
            "cdi": [d[1] for d in parts(5)],
        }

    def bind(self, name, *containers, lock=True, **more):
        """As HAMi's scheduler binds: under the node's lock."""
        pod = self.pod(name, *containers, **more)
        if lock:
            self.api.put(NODES, NODE, metadata={"annotations": {LOCK: f"2026-11-23T00:00:00Z,ns,{name}"}})
        return self.show(pod)

    def annotations(self, name):
        return self.api.objects[PODS][name]["metadata"]["annotations"]

    def lock(self):
        return self.api.objects[NODES][NODE]["metadata"].get("annotations", {}).get(LOCK)

    def registered(self):
        return json.loads(self.api.objects[NODES][NODE]["metadata"].get("annotations", {}).get(REGISTER, "[]"))

    def fails(self, name):
        """As kubelet does with a pod that it does not admit."""
        self.api.put(PODS, name, status={"phase": "Failed"})


def hands_over():
    node = Ordered()
    node.kubelet.connect()
    a, b = node.uuids
    check(wait_until(lambda: [d.get("custominfo") for d in node.registered()] == [{"lock": "turn"}] * 2), "the registration says that pods are to be bound one at a time", node.registered())
    check_equal(node.condition()[:2], ("True", "Simulated"), "and the Node has its driver")

    pod = node.bind("one", "main", "side", "last", init=("init",), gives=[[(a, 500, 0)], [(a, 3000, 10)], [], [(a, 100, 1), (b, 200, 1)]])
    status, init = node.allocate([f"{b}::3"])
    check_equal((status, init["cdi"]), ("OK", []), "Allocate answers without CDI", node.said())
    status, main = node.allocate([f"{b}::3"])
    check_equal(status, "OK", "for one container after the other; the init container's ids are given again", main)
    check_equal(node.annotations("one")[PHASE], "allocating", "the pod is allocating until its last container has its devices")
    check(node.lock(), "and holds the lock")
    check_equal((init["env"]["CUDA_DEVICE_MEMORY_LIMIT_0"], main["env"]["CUDA_DEVICE_MEMORY_LIMIT_0"]), ("500m", "3000m"), "init containers first")
    region = main["env"]["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
    check_equal((main["env"]["NVIDIA_VISIBLE_DEVICES"], main["env"]["CUDA_DEVICE_SM_LIMIT"], main["env"]["HAMI_CONTAINER"]), (a, "10", "main"), "with the card that the scheduler chose, whatever the ids", main)
    for path in ("/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu/limits", region):
        check(path in main["mounts"] and pathlib.Path(main["mounts"][path][0]).is_file(), f"{path} is mounted, and is there", main["mounts"])
        check_equal(main["mounts"][path][1], path != region, "read-only but for the region")
    limits = lambda answer: dict(line.split("=", 1) for line in pathlib.Path(answer["mounts"]["/usr/local/vgpu/limits"][0]).read_text().split())
    check_equal((limits(main)["NVIDIA_VISIBLE_DEVICES"], limits(main)["CUDA_DEVICE_MEMORY_LIMIT_0"]), (a, str(3000 * MIB)), "the limits file says the same")
    status, last = node.allocate([f"{a}::1", f"{a}::2"])
    check_equal((status, last["env"]["NVIDIA_VISIBLE_DEVICES"]), ("OK", f"{a},{b}"), "the last one has both cards")
    check(wait_until(lambda: node.annotations("one")[PHASE] == "success"), "then the bind-phase is success")
    check_equal(node.annotations("one")[TO_ALLOCATE], ";;;;", "what was to allocate is consumed")
    check(wait_until(lambda: node.lock() is None), "and the lock is gone", node.lock())
    check_equal(len(node.api.seen("PATCH", f"nodes/{NODE}?")), 2, "by one write of the Node, beside its registration")

    node.restart()
    node.kubelet.hold(pod, "init", [f"{b}::3"], init=True)
    check_equal(node.kubelet.prestart([f"{b}::3"]), ("OK", b""), "the init container starts", node.said())
    node.restart()
    node.api.put(PODS, "one", status={"initContainerStatuses": [{"name": "init", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]})
    node.kubelet.hold(pod, "main", [f"{b}::3"])
    node.kubelet.hold(pod, "last", [f"{a}::2", f"{a}::1"])
    file = pathlib.Path(main["mounts"][region][0])
    file.write_bytes(b"x" * 100)
    check(wait_until(lambda: node.kubelet.prestart([f"{b}::3"]) == ("OK", b"")), "so does the container that has its ids after it", node.said())
    check_equal(file.stat().st_size, 0, "with a new region of the same name, which kubelet keeps")
    check_equal(node.kubelet.prestart([f"{a}::1", f"{a}::2"])[0], "OK", "and the last")

    file.write_bytes(b"x" * 100)
    node.restart()
    check_equal((node.kubelet.prestart([f"{b}::3"])[0], file.stat().st_size), ("OK", 0), "a container starts again after the plugin did, as kubelet knows it", node.said())
    file.write_bytes(b"x" * 100)
    node.plugin.kill()
    node.plugin.wait()
    node.api.refuse = [(503, None)] * 50
    node.start()
    node.kubelet.connect()
    check_equal((node.kubelet.prestart([f"{b}::3"])[0], file.stat().st_size), ("OK", 0), "without an API server, too", node.said())
    node.api.refuse = []
    for path in (node.folder / "cdi").iterdir():
        path.unlink()
    node.restart()
    check_equal(node.kubelet.prestart([f"{b}::3"])[0], "OK", "and after a reboot, which empties the folder of CDI", node.said())
    status, again = node.allocate([f"{a}::1", f"{a}::2"])
    check_equal((status, again), ("OK", last), "a kubelet that forgot an allocation and asks with the same ids gets the same")
    check_equal(node.annotations("one")[PHASE], "success", "and nothing changes")

    node.kubelet.release(pod)
    node.api.delete(PODS, "one")
    check(wait_until(lambda: not list((node.folder / "vgpu/containers").iterdir())), "a pod that is gone leaves no folder")
    node.end()


def refuses():
    """What is not certain is refused, with a reason, and changes nothing."""
    node = Ordered()
    node.kubelet.connect()
    a, b = node.uuids
    said = lambda answer: (answer[0], str(answer[1]))
    status, why = said(node.allocate([f"{a}::0"]))
    check(status == "FAILED_PRECONDITION" and "no pod of this node is being bound" in why, "no pod is being bound", status, why)
    node.bind("one", "main", gives=[[(a, 1000, 10)]])
    node.bind("two", "main", gives=[[(b, 1000, 10)]])
    status, why = said(node.allocate([f"{a}::0"]))
    check(status == "FAILED_PRECONDITION" and "two pods wait for devices, ns/one and ns/two" in why, "two are", status, why)
    check_equal([node.annotations(p)[PHASE] for p in ("one", "two")], ["allocating"] * 2, "neither is touched")
    node.fails("two")
    status, why = said(node.allocate([f"{a}::0", f"{a}::1"]))
    check(status == "FAILED_PRECONDITION" and "asks for 2 devices" in why and "was granted 1" in why, "another number is", status, why)
    status, answer = node.kubelet.call("Allocate", field(1, field(1, f"{a}::0")) + field(1, field(1, f"{a}::1")))
    check_equal(status, "UNIMPLEMENTED", "several containers at once are", answer)
    check_equal(node.allocate(["GPU-none::0"])[0], "INVALID_ARGUMENT", "ids that are none of ours are")
    check(not list((node.folder / "vgpu/containers").iterdir()), "nothing was written")
    check_equal(node.annotations("one")[PHASE], "allocating", "and the pod still waits")
    check_equal(node.allocate([f"{a}::0"])[0], "OK", "until kubelet asks for it")
    check(wait_until(lambda: node.annotations("one")[PHASE] == "success"), "and it has its devices")
    check_equal(node.lock().rpartition(",")[2], "two", "another pod's lock stays")

    for gives, reason in (
        ([[("GPU-elsewhere", 1000, 10)]], "card GPU-elsewhere of the pod's annotation is not here"),
        ([[(a, 29500, 10)]], "would be given out for 30500 MiB"),
        ([[(a, 0, 10)]], "gives it 0 MiB"),
    ):
        node.bind("bad", "main", gives=gives)
        status, why = said(node.allocate([f"{b}::0"]))
        check(status == "FAILED_PRECONDITION" and reason in why, "a grant that the node can't keep is refused", status, why)
        check(wait_until(lambda: node.annotations("bad")[PHASE] == "failed"), "its pod has failed", node.annotations("bad"))
        check(wait_until(lambda: node.lock() is None), "and its lock is gone")
        node.fails("bad")
        node.api.delete(PODS, "bad")

    node.bind("mine", "main", gives=[[(a, 1000, 10)]])
    node.api.refuse = [(500, None)]
    check_equal(node.allocate([f"{b}::0"])[0], "OK", "an API server that fails is asked again", node.said())
    check(wait_until(lambda: node.annotations("mine")[PHASE] == "success"), "and the pod has its devices")

    node.api.quiet = True
    node.bind("new", "x", "y", gives=[[(a, 300, 1)], [(b, 400, 1)]])
    answers = []
    calls = [threading.Thread(target=lambda i=i: answers.append(node.allocate([f"{b}::{i}"]))) for i in (3, 4)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    given = sorted(answer["env"]["CUDA_DEVICE_MEMORY_LIMIT_0"] for status, answer in answers if status == "OK")
    check_equal(given, ["300m", "400m"], "a pod that the watch has not shown is known, and two calls at once get a container each", answers)
    node.api.quiet = False
    node.end()


def checks():
    """kubelet asks for another pod than the one that is being bound: that does not start with its devices."""
    node = Ordered()
    node.kubelet.connect()
    a, b = node.uuids
    meant = node.bind("meant", "main", gives=[[(a, 1000, 10)]])
    other = node.show(node.pod("other", "main", gives=[[(b, 2000, 10)]]) | {"status": {"phase": "Pending"}})
    node.api.put(PODS, "other", metadata={"annotations": {PHASE: None, TO_ALLOCATE: None}})
    check_equal(node.allocate([f"{a}::0"])[0], "OK", "an allocation is matched")
    node.kubelet.hold(other, "main", [f"{a}::0"])
    status, why = node.kubelet.prestart([f"{a}::0"])
    check(status == "FAILED_PRECONDITION" and "was taken for one of ns/meant" in why and "delete it" in why, "a container that it was not meant for does not start", status, why)
    check(not list((node.folder / "vgpu/containers").glob("*other*")), "and gets no files")
    status, why = node.allocate([f"{a}::1"])
    check(status == "FAILED_PRECONDITION" and "no pod of this node" in why, "the pod that it was meant for is refused then", status, why)
    node.kubelet.release(other)
    node.kubelet.hold(meant, "main", [f"{a}::1"])
    status, why = node.kubelet.prestart([f"{a}::1"])
    check(status == "FAILED_PRECONDITION" and "was not handed these devices by Allocate" in why, "nor does one start with ids that Allocate did not answer", status, why)
    node.kubelet.release(meant)
    node.kubelet.hold(meant, "main", [f"{a}::0"])
    check_equal(node.kubelet.prestart([f"{a}::0"])[0], "OK", "the right one does")
    node.end()


def drivers():
    """How the driver comes into a container without hooks."""
    node = Ordered(cards=CARDS)
    (node.folder / "toolkit").mkdir()
    (node.folder / "toolkit/nvidia.yaml").write_text(TOOLKIT)
    node.kubelet.connect()
    check(wait_until(lambda: node.condition()[:2] == ("True", "ToolkitSpecification")), "the toolkit's specification brings the driver", node.condition())
    pod = node.bind("one", "main", gives=[[("GPU-b", 1000, 10)]])
    status, answer = node.allocate(["GPU-a::0"])
    check_equal((status, answer["nodes"]), ("OK", {"/dev/nvidiactl": ("/dev/nvidiactl", "rw"), "/dev/nvidia3": ("/dev/nvidia3", "rw")}), "with the nodes of the card", answer)
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.1"
    check_equal([answer["mounts"].get(f"{folder}/{name}") for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64") for name in ("libcuda.so.580.1", "libcuda.so.1")],
                [(library, True)] * 4, "its library, and by the name that the toolkit's hook would make")
    check_equal((answer["env"]["NVIDIA_VISIBLE_DEVICES"], answer["env"]["NVIDIA_CTK_LIBCUDA_DIR"]), ("void", "/usr/lib"), "and its variables; no runtime brings it once more")
    node.kubelet.hold(pod, "main", ["GPU-a::0"])
    check_equal(node.kubelet.prestart(["GPU-a::0"])[0], "OK", "it starts")
    node.show_cards([CARDS[0], CARDS[1].replace(" 3 ", " 5 ")])
    node.restart()
    status, why = node.kubelet.prestart(["GPU-a::0"])
    check(status == "FAILED_PRECONDITION" and "other device nodes" in why and "delete the pod" in why, "not with the node of a card that has another one since, and which kubelet keeps", status, why)
    node.end()

    for words, config, variable, visible in (
        ([], {}, {}, "GPU-b"),
        (["--device-list-strategy=envvar"], {}, {}, "GPU-b"),
        (["--device-list-strategy=volume-mounts"], {}, {}, "/var/run/nvidia-container-devices"),
        ([], {"enableCDI": True}, {"DEVICE_LIST_STRATEGY": "volume-mounts"}, "/var/run/nvidia-container-devices"),
    ):
        what = words or variable or "NVIDIA's runtime"
        node = Ordered(OFF | config | {"containerd": {"defaultRuntimeName": "nvidia"}}, cards=CARDS, more=words, **variable)
        (node.folder / "toolkit").mkdir()
        (node.folder / "toolkit/nvidia.yaml").write_text(TOOLKIT)
        node.kubelet.connect()
        check(wait_until(lambda: node.condition()[:2] == ("True", "DefaultRuntime")), f"{what}: the runtime brings the driver", node.condition())
        node.bind("one", "main", gives=[[("GPU-b", 1000, 10)]])
        status, answer = node.allocate(["GPU-a::0"])
        check_equal((status, answer["env"]["NVIDIA_VISIBLE_DEVICES"], answer["nodes"]), ("OK", visible, {}), f"{what}: of the card that it is told of")
        listed = [path for path in answer["mounts"] if path.startswith("/var/run/nvidia-container-devices/")]
        check_equal(listed, ["/var/run/nvidia-container-devices/GPU-b"] if visible != "GPU-b" else [], f"{what}: by mounts if so told")
        check("/usr/local/vgpu/limits" in answer["mounts"] and not [m for m in answer["mounts"] if "libcuda" in m], f"{what}: and the limits are ours")
        node.end()


def ways():
    """Which way a node goes, and what changes it."""
    for what, config, info, words, way in (
        ("CDI off", OFF, {}, [], "ordered"),
        ("CDI elsewhere", {"cdiSpecDirs": ["/etc/cdi"]}, {}, [], "ordered"),
        ("an old kubelet", {}, {"kubeletVersion": "v1.28.9"}, [], "ordered"),
        ("an old kubelet, and annotations", {}, {"kubeletVersion": "v1.28.9"}, ["--device-list-strategy=cdi-annotations"], "annotation"),
        ("annotations", {}, {}, ["--device-list-strategy=cdi-annotations"], "annotation"),
        ("the first that works", {}, {}, ["--device-list-strategy=envvar,cdi-annotations", "--device-list-strategy=cdi-cri"], "field"),
        ("the first that works without CDI", OFF, {}, ["--device-list-strategy=envvar,cdi-annotations"], "ordered"),
        ("CDI", {}, {}, [], "field"),
    ):
        node = Ordered(config, info, more=words)
        node.kubelet.connect()
        lock = "turn" if way == "ordered" else "none"
        check(wait_until(lambda: [d["custominfo"]["lock"] for d in node.registered()] == [lock] * 2), f"{what}: the registration says so", node.registered())
        check_equal(len(node.patches()), 1, f"{what}: written once")
        pod = node.bind("one", "main", gives=[[(node.uuids[1], 1000, 10)]])
        ids = [f"{node.uuids[0]}::0"]
        status, answer = node.allocate(ids)
        check_equal(status, "OK", f"{what}: Allocate answers", answer)
        name = (answer["cdi"] + list(answer["annotations"].values()) + [""])[0]
        check_equal((bool(answer["cdi"]), list(answer["annotations"]), bool(answer["mounts"])),
                    (way == "field", ["cdi.k8s.io/hami-device-plugin"] if way == "annotation" else [], way == "ordered"), f"{what}: by that way", answer)
        node.kubelet.hold(pod, "main", ids)
        check_equal(node.kubelet.prestart(ids)[0], "OK", f"{what}: the container starts")
        if way != "ordered":
            check_equal(node.edits(name)[0]["NVIDIA_VISIBLE_DEVICES"], node.uuids[1], f"{what}: with its card, by a specification")
        node.end()

    node = Ordered()
    node.kubelet.connect()
    a, b = node.uuids
    first = node.bind("first", "main", gives=[[(a, 1000, 10)]])
    check_equal(node.allocate([f"{a}::0"])[0], "OK", "a container is handed over without CDI")
    node.kubelet.hold(first, "main", [f"{a}::0"])
    node.runtime.config = {}
    node.restart()
    check(wait_until(lambda: node.registered()[0]["custominfo"]["lock"] == "none"), "where CDI is switched on later, the node says so", node.registered())
    check_equal(node.kubelet.prestart([f"{a}::0"])[0], "OK", "what was handed over starts as it was", node.said())
    second = node.show(node.pod("second", "main", gives=[[(b, 1000, 10)]]))
    _, (name,) = node.kubelet.allocate([f"{a}::1"])
    node.kubelet.hold(second, "main", [f"{a}::1"])
    check_equal((node.kubelet.prestart([f"{a}::1"])[0], node.edits(name)[0]["NVIDIA_VISIBLE_DEVICES"]), ("OK", b), "and what comes after by CDI")
    node.runtime.config = OFF
    node.restart()
    status, why = node.kubelet.prestart([f"{a}::1"])
    check(status == "FAILED_PRECONDITION" and "CDI devices do not reach containers here" in why, "which does not start where CDI is off again", status, why)
    check_equal(node.kubelet.prestart([f"{a}::0"])[0], "OK", "the first one does")
    node.end()


class OrderedMade(Ordered, Made):
    """One that makes MIG instances."""


def parts():
    """Of a card in MIG mode the instance is made while Allocate waits."""
    node = OrderedMade()
    node.begin()
    pod, ids = node.asks("one", ("1-3", 4000))
    status, answer = node.allocate(ids)
    uuid = node.uuid_at(6)
    check_equal((status, bool(uuid), status == "OK" and answer["env"]["NVIDIA_VISIBLE_DEVICES"]), ("OK", True, uuid), "the instance that the scheduler chose is made when kubelet asks", node.said()[-800:])
    check(wait_until(lambda: node.annotations("one")[PHASE] == "success"), "and the pod has its devices")
    node.kubelet.hold(pod, "main", ids)
    check_equal(node.kubelet.prestart(ids)[0], "OK", "its container starts")
    node.restart()
    check_equal((node.kubelet.prestart(ids)[0], node.uuid_at(6)), ("OK", uuid), "and again with its own", node.said()[-800:])
    node.gone(pod)
    check(wait_until(lambda: not node.uuid_at(6), 20), "it is ended after it")
    node.end()


def scheduler():
    """The scheduler binds one pod at a time to such a node, and the plugin says when the next may come."""
    node = Ordered()
    node.kubelet.connect()
    check(wait_until(lambda: node.registered()), "the node is registered")
    node.api.put(NODES, NODE, status={"allocatable": {"nvidia.com/gpu": "20"}, "conditions": [{"type": "Ready", "status": "True"}]})
    node.api.objects["/api/v1/resourcequotas"] = {}
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "600"}
    names = [f"p{i}" for i in range(4)]
    for name in names:
        node.api.put(PODS, name, metadata={"namespace": "ns", "uid": f"uid-{name}"}, spec={"containers": [{"name": "c", "resources": {"limits": limits}}]}, status={"phase": "Pending"})
    extender = Extender(node.api.kubeconfig(node.folder / "scheduler"), stderr=node.log)
    place = lambda name: extender.place(node.api.objects[PODS][name], NODE)
    answers = {}

    def bind(name):
        answers[name] = extender.bind(name, NODE)

    check(wait_until(lambda: extender.ask("/readyz")), "the scheduler is ready", node.said())
    for name in names:
        check(wait_until(lambda: place(name) == [NODE]), f"{name} is placed there", node.said()[-1500:])
    threads = [threading.Thread(target=bind, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    waiting = lambda: [n for n in names if node.api.objects[PODS][n]["metadata"].get("annotations", {}).get(PHASE) == "allocating"]
    for i in range(len(names)):
        check(wait_until(waiting, 20), "a pod is bound", answers, node.said())
        time.sleep(0.3)
        check_equal(len(waiting()), 1, "one alone")
        (name,) = waiting()
        status, answer = node.allocate([f"{node.uuids[0]}::{i}"])
        granted = node.annotations(name)[ALLOCATED].split(",")[0]
        check_equal((status, status == "OK" and answer["env"]["NVIDIA_VISIBLE_DEVICES"], status == "OK" and answer["env"]["HAMI_POD_UID"]), ("OK", granted, f"uid-{name}"), "what kubelet asks for is its own")
        check(wait_until(lambda: node.annotations(name)[PHASE] == "success"), "which the pod says")
    for thread in threads:
        thread.join()
    check_equal(answers, {name: "" for name in names}, "all are bound")
    check(not [r for r in node.api.seen("PATCH", f"nodes/{NODE}?") if LOCK in r[3]], "and no lock was written")
    extender.end()
    node.end()


def unlocks():
    """With CDI nothing waits for a lock: HAMi's scheduler finds the node free as soon as its pod is bound."""
    node = Node()
    node.kubelet.connect()
    (card, _) = node.uuids

    def bound(name, **annotations):
        pod = node.pod(name, "main", init=("first",), gives=[[(card, 500, 0)], [(card, 3000, 10)]])
        pod["metadata"]["annotations"] |= annotations
        node.api.put(NODES, NODE, metadata={"annotations": {LOCK: f"2026-11-23T00:00:00Z,ns,{name}"}})
        return node.show(pod)

    lock = lambda: node.api.objects[NODES][NODE]["metadata"].get("annotations", {}).get(LOCK)
    node.api.put(NODES, NODE, metadata={"annotations": {LOCK: "2026-11-23T00:00:00Z,ns,elsewhere"}})
    time.sleep(1)
    check(lock(), "the lock of a pod that is not bound here stays")
    bound("one")
    check(wait_until(lambda: lock() is None), "a pod's lock goes once it is bound, though its first container has not started", lock(), node.said())
    bound("two", **{"hami.io/dcu-devices-to-allocate": "DCU-1,DCU,1000,10:;"})
    time.sleep(1)
    check(lock(), "but not while another vendor's agent has devices to allocate to it")
    node.end()


def late_word():
    """A runtime that did not answer as the plugin started, and then says that it has CDI off, is believed."""
    node = Node()
    node.kubelet.connect()
    locks = lambda: {d.get("custominfo", {}).get("lock") for d in json.loads(node.api.objects[NODES][NODE]["metadata"].get("annotations", {}).get(REGISTER, "[]"))}
    check(wait_until(lambda: locks() == {"none"}), "a runtime that does not answer is taken for one with CDI", locks())
    node.runtime = Runtime(node.folder / "runtime.sock", OFF)
    check(wait_until(lambda: locks() == {"turn"}, 45), "until it says otherwise", node.said())
    node.end()


PARTS = ["hands_over", "refuses", "checks", "drivers", "ways", "parts", "scheduler", "unlocks", "late_word"]

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        globals()[part]()
    finish()

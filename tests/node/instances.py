#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MIG instances that somebody made: hami-device-plugin finds and serves them, by --mig-strategy."""

import sys

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from plugin import *
from mig import Mig


class Cut(Node):
    """Two A100 of 40 GB; `made` is called with Mig before the plugin starts."""

    def __init__(self, made, *more, gpus=2, **others):
        self.made = made
        super().__init__(gpus=gpus, memory=40960 * MIB, more=more, **others)

    def start(self):
        if self.made:
            with Mig(self.machine, SIMDRIVER) as mig:
                self.made(mig)
        self.made = None
        return super().start()

    def mig(self):
        return Mig(self.machine, SIMDRIVER)

    def registered(self):
        found = self.api.objects[NODES][NODE]["metadata"].get("annotations", {}).get(REGISTER)
        return json.loads(found) if found else None

    def anew(self):
        """Killed and started; no registration is taken up yet, and none is left of before."""
        self.plugin.kill()
        self.plugin.wait(30)
        while not self.kubelet.registrations.empty():
            self.kubelet.registrations.get()
        self.start()

    def connect_to(self, resource):
        """The registration of one of several resources."""
        seen = []
        while True:
            got = self.kubelet.connect()
            seen.append(got["resource"])
            if got["resource"] == resource:
                self.kubelet.resource = resource
                return seen

    def devices_of(self, resource, ids):
        """What kubelet is told of a resource that has these ids, or, cut short, of none."""
        self.connect_to(resource)
        while True:  # those of registrations that were passed over came before
            devices = self.kubelet.lists.get(timeout=30)
            if set(ids) <= set(devices):
                return devices


def cut_first(mig):
    assert mig.set_mode(0) == 0
    cut_first.uuids = [mig.make(0, "1g", 0), mig.make(0, "3g", 4), mig.make(0, "1g", 1)]


def none():
    node = Cut(cut_first)
    node.kubelet.connect()
    check(wait_until(node.registered), "it registers")
    check_equal([(d["id"], d.get("health", False)) for d in node.registered()], [(node.uuids[0], False), (node.uuids[1], True)], "with none, a card in MIG mode is there and not given out")
    node.machine.fault(1, "--mig=on")
    check(wait_until(lambda: [e for e in node.api.told if "--mig-strategy is none" in e["message"]], 10), "an event says why", node.api.told)
    node.end()


def single():
    node = Cut(cut_first, "--mig-strategy=single")
    (one, two, three) = cut_first.uuids
    node.kubelet.connect()
    check(wait_until(node.registered), "it registers")
    wanted = [(one, 4864, 0), (three, 4864, 0), (two, 19968, 0), (node.uuids[1], 40960, 1)]
    check_equal([(d["id"], d["devmem"], d.get("index", 0)) for d in node.registered()], wanted, "with single, instances are cards like the whole one beside them")
    check_equal({(d["mode"], d["count"], d["devcore"], d["health"]) for d in node.registered()}, {("hami-core", 10, 100, True)}, "which several may share")
    check_equal([d["type"] for d in node.registered()][:2], ["NVIDIA A100-SXM4-40GB MIG 1g.5gb"] * 2, "of a type that says which instance")
    check_equal(set(node.kubelet.lists.get(timeout=30)), {f"{u}::{i}" for u, _, _ in wanted for i in range(10)}, "and kubelet has ids of them")

    pod = node.show(node.pod("one", "main", gives=[[(two, 1000, 30)]]))
    status, why, name = node.run_container(pod, "main", [f"{one}::0"])
    check_equal(status, "OK", "a container starts with a part of one", why)
    env, _ = node.edits(name)
    check_equal((env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT"]), (two, "1000m", "30"), "by the instance's uuid, with its limits")
    limits = node.limits(name)
    check_equal((limits["NVIDIA_VISIBLE_DEVICES"], limits["CUDA_DEVICE_MEMORY_LIMIT_0"], limits["CUDA_DEVICE_SM_LIMIT_0"]), (two, str(1000 * MIB), "30"), "which libvgpu holds it to")

    node.machine.fault(0, "--xid=79")
    check(wait_until(lambda: [d.get("health", False) for d in node.registered()] == [False] * 3 + [True], 7), "what befalls the card befalls its instances", node.registered())
    node.machine.fault(0, "--state=lost")
    time.sleep(6)
    check_equal([(d["id"], d.get("health", False)) for d in node.registered()], [(one, False), (three, False), (two, False), (node.uuids[1], True)], "and those of a lost card are known for what they were", node.said()[-600:])
    node.end()


def mixed():
    node = Cut(cut_first, "--mig-strategy=mixed")
    (one, two, three) = cut_first.uuids
    small, large = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
    seen = []
    for _ in range(3):
        seen.append(node.kubelet.connect())
    check_equal(sorted((g["resource"], g["endpoint"]) for g in seen),
                [("nvidia.com/gpu", "nvidia-gpu.sock"), (small, "nvidia-mig-1g.5gb.sock"), (large, "nvidia-mig-3g.20gb.sock")],
                "with mixed, each profile is a resource of its own, named as NVIDIA's plugin does")
    check(wait_until(node.registered), "the Node is annotated")
    check_equal([d["id"] for d in node.registered()], [node.uuids[1]], "and hami-scheduler has the whole card alone")
    node.anew()
    check_equal(node.devices_of(small, [one]), {one: "Healthy", three: "Healthy"}, "kubelet's ids are the instances' uuids")

    pod = node.show({**node.pod("one", "main", gives=[]), "metadata": {"name": "one", "namespace": "ns", "uid": "uid-plain"}})
    status, why, name = node.run_container(pod, "main", [three])
    check_equal(status, "OK", "a container of a pod that our scheduler never saw starts", why)
    env, _ = node.edits(name)
    check_equal((env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT"]), (three, "4864m", "0"), "with the whole instance that kubelet chose")
    check_equal(node.limits(name).get("CUDA_DEVICE_SM_LIMIT_0"), None, "and no limit of time", node.limits(name))
    check_equal(node.kubelet.prestart(["MIG-nothing"])[0] == "OK", False, "ids of nothing are refused")
    node.anew()
    node.connect_to(small)
    check_equal(node.kubelet.prestart([three])[0], "OK", "it starts again after a restart of the plugin", node.said()[-600:])

    with node.mig() as mig:
        mig.make(0, "2g", 2)
    check(wait_until(lambda: any(g["resource"] == "nvidia.com/mig-2g.10gb" for g in list(node.kubelet.registrations.queue)), 12), "an instance that is made later becomes a resource", node.said()[-400:])
    node.kubelet.release(pod)
    node.api.delete(PODS, "one")
    check(wait_until(lambda: node.spec(name) is None), "and what the pod had is removed with it")
    with node.mig() as mig:
        check_equal(len(mig.uuids(0)), 4, "but no instance is: they are not the plugin's")
    node.end()


def two_kinds():
    node = Cut(cut_first, "--mig-strategy=mixed")
    (one, two, three) = cut_first.uuids
    node.devices_of("nvidia.com/mig-1g.5gb", [one])
    pod = node.show(node.pod("both", "main", gives=[[(node.uuids[1], 1000, 10)]]))
    status, why, _ = node.run_container(pod, "main", [one])
    check((status, "another kind of device" in why) == ("FAILED_PRECONDITION", True), "a container with a share and an instance is refused, and told why", status, why)
    wrong = node.show(node.pod("wrong", "main", gives=[[(two, 1000, 10)]]))
    node.kubelet.release(pod)
    node.kubelet.resource = "nvidia.com/gpu"
    node.anew()
    node.devices_of("nvidia.com/gpu", [f"{node.uuids[1]}::0"])
    status, why, _ = node.run_container(wrong, "main", [f"{node.uuids[1]}::0"])
    check((status, "not given out as" in why) == ("FAILED_PRECONDITION", True), "an annotation can't name kubelet's instances", status, why)
    node.end()


PARTS = ["none", "single", "mixed", "two_kinds"]

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        globals()[part]()
    finish()

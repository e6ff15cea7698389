# SPDX-License-Identifier: Apache-2.0
"""Pretended agents of nodes: what the vendors' own device plugins do, with their habits and their defects.

An agent writes its devices and its handshake on the node. When kubelet asks it to allocate, it looks for the pod: the one
that the node's lock names, else the first pending one of the node. It takes the pod's next container out of the annotation
of what is to be allocated, says success or failure in the pod's bind-phase, and removes the lock. When, and whether, it
does each of these is a row of PROFILES; a vendor's names are a row of VENDORS.

Agents that know nothing of HAMi have a way of their own (KINDS): Cambricon's looks for the one pod that is not assigned yet,
others take the oldest by an annotation with a time, or leave the choice to kubelet.

An agent speaks through a client: node(), patch_node(patch), patch_status(patch) of the node, pod(namespace, name), pods(),
patch_pod(namespace, name, patch); the patches return a status.
"""

import datetime
import json

LOCK = "hami.io/mutex.lock"
PHASE, BIND_TIME, ON_NODE = "hami.io/bind-phase", "hami.io/bind-time", "hami.io/vgpu-node"

# lookup: L1 takes pods that are allocating where there is no lock, L2 those that succeeded, too.
# pop: its part leaves the annotation. phase: what it says. unlock: at the last container, the first one, or never.
# owner: whether the lock's value must end with the pod's name, only contain it, or nothing.
PROFILES = {
    "nvidia-2.8": {"lookup": "L1", "pop": True, "phase": "both", "unlock": "last", "on_failure": True, "owner": "suffix"},
    "ascend-1.2": {"lookup": "L1", "pop": False, "phase": "none", "unlock": "first", "on_failure": True, "owner": "none"},
    "ascend-1.4": {"lookup": "L2", "pop": True, "phase": "both", "unlock": "first", "on_failure": True, "owner": "suffix"},
    "hygon": {"lookup": "L1", "pop": True, "phase": "both", "unlock": "last", "on_failure": True, "owner": "contains"},
    "never": {"lookup": "L1", "pop": True, "phase": "both", "unlock": "never", "on_failure": False, "owner": "suffix"},
    "amd": {"lookup": "L1", "pop": True, "phase": "both", "unlock": "first", "on_failure": True, "owner": "suffix"},
    "biren": {"lookup": "L1", "pop": True, "phase": "failed", "unlock": "last", "on_failure": False, "owner": "suffix"},
}


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def listed(entry):
    """A registration in JSON: what entry says of each device, by its id and number."""
    return lambda devices: json.dumps([{"id": d, "index": i, "health": True} | entry(d, i) for i, d in enumerate(devices)])


def as_json(devices, kind):
    return json.dumps([
        {"id": d, "index": i, "count": 4, "devmem": 65536, "devcore": 20, "type": kind, "health": True} | ({"custominfo": {"NetworkID": 0}} if "910" in kind else {})
        for i, d in enumerate(devices)
    ])  # fmt: skip


def as_colons(devices, kind):
    return "".join(f"{d},4,65536,100,{kind},0,true,{i},hami:" for i, d in enumerate(devices))


def dotted():
    return now().strftime("Reported_%Y.%m.%d %H:%M:%S")


def spelled():
    return now().strftime("Reported %Y-%m-%d %H:%M:%S.%f +0000 UTC m=+31.5")


def ascend(word):
    return {
        "resource": f"huawei.com/{word}", "memory": f"huawei.com/{word}-memory", "profile": "ascend-1.4",
        "register": f"hami.io/node-register-{word}", "handshake": f"hami.io/node-handshake-{word}", "says": dotted,
        "to_allocate": f"hami.io/{word}-devices-to-allocate", "allocated": f"hami.io/{word}-devices-allocated",
        "device": word.lower(), "text": lambda devices: as_json(devices, word), "slice": 16384,
    }  # fmt: skip


# The names of each vendor, how its agent registers, and the annotation of what is to be allocated.
VENDORS = {
    "hygon": {
        "resource": "hygon.com/dcunum", "memory": "hygon.com/dcumem", "profile": "hygon",
        "register": "hami.io/node-dcu-register", "handshake": "hami.io/node-handshake-dcu", "says": spelled,
        "to_allocate": "hami.io/dcu-devices-to-allocate", "allocated": "hami.io/dcu-devices-allocated",
        "device": "DCU", "text": lambda devices: as_colons(devices, "DCU-K100_AI"), "slice": 16384,
    },
    "ascend": ascend("Ascend910B3"),
    # HAMi's own plugin, which does not say that it needs no lock.
    "nvidia": {
        "resource": "nvidia.com/gpu", "memory": "nvidia.com/gpumem", "profile": "nvidia-2.8",
        "register": "hami.io/node-nvidia-register", "handshake": None,
        "to_allocate": "hami.io/vgpu-devices-to-allocate", "allocated": "hami.io/vgpu-devices-allocated", "device": "GPU",
        "text": listed(lambda d, i: {"count": 10, "devmem": 30000, "devcore": 100, "type": "NVIDIA-NVIDIA A10", "mode": "hami-core", "devicepairscore": {}}),
    },
    "vastai": {
        "resource": "vastaitech.com/va", "memory": None, "profile": "nvidia-2.8",
        "register": "hami.io/node-va-register", "handshake": "hami.io/node-handshake-va", "says": dotted,
        "to_allocate": "hami.io/Vastai-devices-to-allocate", "allocated": "hami.io/Vastai-devices-allocated", "device": "va",
        "text": listed(lambda d, i: {"count": 1, "devmem": 32768, "type": "Vastai", "custominfo": {"AIC": str(i), "DeviceStrategy": "die"}}),
    },
    "biren": {
        "resource": "birentech.com/gpu", "memory": None, "profile": "biren",
        "register": "hami.io/node-biren-register", "handshake": "hami.io/node-handshake-biren", "says": dotted,
        "to_allocate": "hami.io/Biren-devices-allocated", "allocated": "hami.io/Biren-devices-to-allocate", "device": "card",
        "text": listed(lambda d, i: {"count": 1, "devmem": 32768, "type": "Biren106C", "devicepairscore": {}}),
    },
    "kunlunxin": {
        "resource": "kunlunxin.com/vxpu", "memory": "kunlunxin.com/vxpu-memory", "profile": "nvidia-2.8",
        "register": "hami.io/node-register-xpu", "handshake": "hami.io/node-handshake-xpu", "says": dotted,
        "to_allocate": "hami.io/xpu-devices-to-allocate", "allocated": "hami.io/xpu-devices-allocated", "device": "XPU",
        "text": listed(lambda d, i: {"count": 4, "devmem": 98304, "devcore": 100, "type": "XPU-P800"}),
    },
    "iluvatar": {
        "resource": "iluvatar.ai/BI-V150-vgpu", "memory": "iluvatar.ai/BI-V150.vMem", "profile": "nvidia-2.8",
        "register": "hami.io/node-BI-V150-register", "handshake": "hami.io/node-handshake-BI-V150", "says": dotted,
        "to_allocate": "hami.io/BI-V150-devices-to-allocate", "allocated": "hami.io/BI-V150-devices-allocated", "device": "BI-V150",
        "text": lambda devices: "".join(f"{d},100,32768,100,BI-V150,0,true,{i},default:" for i, d in enumerate(devices)),
    },
    "amd": {
        "resource": "amd.com/gpu", "memory": "amd.com/gpumem", "profile": "amd",
        "register": "hami.io/node-amd-register", "handshake": None,
        "to_allocate": "hami.io/amd-devices-to-allocate", "allocated": "hami.io/amd-devices-allocated", "device": "amd",
        "text": listed(lambda d, i: {"count": 10, "devmem": 196592, "devcore": 304, "type": "AMD Instinct MI300X", "devicevendor": "amd", "custominfo": {"pciBDF": f"0000:{i:02x}:00.0"}}),
        "also": {"hami.io/amd-cu-allocated": '{"amd":"0-60"}'},
    },
    "metax": {
        "resource": "metax-tech.com/sgpu", "memory": "metax-tech.com/vmemory", "profile": "nvidia-2.8",
        "register": "metax-tech.com/node-gpu-devices", "handshake": None,
        "to_allocate": "hami.io/metax-sgpu-devices-to-allocate", "allocated": "hami.io/metax-sgpu-devices-allocated", "device": "MX",
        "text": lambda devices: json.dumps([
            {"uuid": d, "bdf": f"0000:{i:02x}:00.0", "model": "C500", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536,
             "availableVRam": 65536, "numa": 0, "healthy": True, "qosPolicy": "best-effort", "linkZone": 1} for i, d in enumerate(devices)
        ]),
    },
    # Cambricon's, in the mode dynamic-smlu: nothing on the node, and a call for each of two resources.
    "cambricon": {
        "resource": "cambricon.com/mlu.smlu.vcore", "memory": "cambricon.com/mlu.smlu.vmemory", "kind": "dsmlu",
        "register": None, "handshake": None, "lock": "cambricon.com/dsmlu.lock", "named": "{node}-cambricon-mlu-{i}",
        "allocated": "hami.io/cambricon-mlu-devices-allocated",
    },
    # gcushare's of instances, and its older one of slices.
    "enflame-drs": {
        "resource": "enflame.com/drs-gcu", "memory": None, "kind": "ordered", "named": "{node}-enflame-drs-{i}",
        "register": "enflame.com/gcu-drs-capacity", "handshake": None,
        "text": lambda devices: json.dumps({
            "devices": [{"index": str(i), "minor": str(i), "capacity": 6} for i, _ in enumerate(devices)],
            "profiles": {"1g.7gb": "0", "3g.21gb": "1", "6g.42gb": "2"},
        }),
        "time": "enflame.com/gcu-assigned-time", "cards": "enflame.com/gcu-assigned-minor",
        "done": "enflame.com/gcu-assigned", "containers": "assigned-containers",
        "allocated": "hami.io/enflame-vgpu-devices-allocated",
    },
    "enflame-vgcu": {
        "resource": "enflame.com/shared-gcu", "memory": None, "kind": "ordered", "named": "{node}-enflame-{i}",
        "register": "enflame.com/gcu-shared-capacity", "handshake": None,
        "text": lambda devices: json.dumps({str(i): 6 for i, _ in enumerate(devices)}),
        "capacity": lambda devices: {"enflame.com/gcu-count": str(len(devices))},
        "time": "enflame.com/gcu-assigned-time", "cards": "enflame.com/gcu-assigned-id",
        "done": "enflame.com/gcu-assigned", "containers": "assigned-containers",
        "allocated": "hami.io/enflame-vgpu-devices-allocated",
    },
    "mthreads": {
        "resource": "mthreads.com/sgpu-core", "memory": "mthreads.com/sgpu-memory", "kind": "ordered", "named": "{node}-mthreads-{i}",
        "register": None, "handshake": None, "time": "mthreads.com/predicate-time", "cards": "mthreads.com/gpu-index",
        "allocated": "hami.io/mthreads-vgpu-devices-allocated",
    },
    "neuron": {
        "resource": "aws.amazon.com/neuron", "memory": None, "kind": "ordered", "named": "{node}-AWSNeuron-{i}",
        "register": None, "handshake": None, "labels": {"node.kubernetes.io/instance-type": "inf2.24xlarge"},
        "time": "NEURON_ALLOC_TIME", "cards": "AWS_NEURON_IDS", "done": "NEURON_ALLOCATED",
        "allocated": "hami.io/aws-neuron-devices-allocated",
    },
    "kunlun": {
        "resource": "kunlunxin.com/xpu", "memory": None, "kind": "ordered", "named": "{node}-kunlun-{i}",
        "register": None, "handshake": None, "time": "hami.io/bind-time", "cards": "BAIDU_COM_DEVICE_IDX",
        "allocated": "hami.io/kunlun-allocated",
    },
    # Whole cards, of which kubelet chooses: ROCm's agent, Enflame's and MetaX's.
    "rocm": {
        "resource": "amd.com/gpu", "memory": None, "kind": "kubelet", "register": None, "handshake": None, "known": "{node}-AMDGPU-{i}", "device": "0000:3b",
        "allocated": "hami.io/amd-devices-allocated",
    },
    "enflame-gcu": {
        "resource": "enflame.com/gcu", "memory": None, "kind": "kubelet", "register": None, "handshake": None, "known": "{node}-GCU-{i}", "device": "gcu",
        "allocated": "hami.io/enflame-gcu-devices-allocated",
    },
    "metax-gpu": {
        "resource": "metax-tech.com/gpu", "memory": None, "kind": "kubelet",
        "register": "metax-tech.com/gpu.topology.losses", "handshake": None, "text": lambda devices: '{"1":0,"2":40}', "known": "{node}-metax-{i}", "device": "MXC",
        "allocated": "hami.io/metax-gpu-devices-allocated",
    },
}  # fmt: skip
VENDORS["neuron-core"] = VENDORS["neuron"] | {"resource": "aws.amazon.com/neuroncore", "cores": 2}


class Failed(Exception):
    pass


class Pretended:
    """What all agents have: devices, and what they say of them on the node."""

    def __init__(self, client, vendor, node, devices=2):
        self.client, self.node, self.vendor = client, node, VENDORS[vendor]
        name = self.vendor.get("named", "{device}-{node}-{i}")
        self.devices = [name.format(device=self.vendor.get("device"), node=node, i=i) for i in range(devices)]
        self.given = []  # (pod's uid, devices) of each allocation

    def start(self):
        """Before it registers with kubelet for the first time."""

    def register(self):
        annotations = {self.vendor["register"]: self.vendor["text"](self.devices)} if self.vendor["register"] else {}
        if self.vendor["handshake"]:
            annotations[self.vendor["handshake"]] = self.vendor["says"]()
        status = self.client.patch_node({"metadata": {"annotations": annotations, "labels": self.vendor.get("labels", {})}})
        if status == 200 and "capacity" in self.vendor:
            status = self.client.patch_status({"status": {"capacity": self.vendor["capacity"](self.devices)}})
        return status

    def waiting(self):
        """The pods of the node that have been bound and that kubelet has not started."""
        pods = sorted(self.client.pods(), key=lambda p: (p["metadata"]["namespace"], p["metadata"]["name"]))
        return [p for p in pods if p["status"]["phase"] == "Pending" and p["spec"].get("nodeName") == self.node]

    def say(self, pod, annotations):
        return self.client.patch_pod(pod["metadata"]["namespace"], pod["metadata"]["name"], {"metadata": {"annotations": annotations}})


def notes_of(pod):
    return pod["metadata"].get("annotations") or {}


def limit(container, resource):
    return int(container.get("resources", {}).get("limits", {}).get(resource, 0))


class Agent(Pretended):
    """One that is built on HAMi's library: by the lock, and what is to be allocated."""

    def __init__(self, client, vendor, node, devices=2, profile=None):
        super().__init__(client, vendor, node, devices)
        self.habits = PROFILES[profile or self.vendor["profile"]]

    # The pod of an allocation

    def locked(self):
        return (self.client.node()["metadata"].get("annotations") or {}).get(LOCK)

    def find_pod(self):
        lock = self.locked()
        words = lock.split(",") if lock is not None else []
        if len(words) == 3:
            pod = self.client.pod(words[1], words[2])
            if not pod:
                raise Failed(f"the lock names {words[1]}/{words[2]}, which is gone")
            return pod
        phases = ["allocating", "success"] if self.habits["lookup"] == "L2" else ["allocating"]
        for pod in self.waiting():
            notes = notes_of(pod)
            if BIND_TIME in notes and notes.get(PHASE) in phases and notes.get(ON_NODE) == self.node:
                return pod
        raise Failed(f"no binding pod found on node {self.node}")

    def unlock(self, pod):
        metadata = pod["metadata"]
        for _ in range(5):
            node = self.client.node()["metadata"]
            value = (node.get("annotations") or {}).get(LOCK)
            owner = {"suffix": f",{metadata['namespace']},{metadata['name']}", "contains": metadata["name"], "none": ""}[self.habits["owner"]]
            if value is None or (self.habits["owner"] == "contains" and owner not in value) or not value.endswith(owner if self.habits["owner"] == "suffix" else ""):
                return
            if self.client.patch_node({"metadata": {"resourceVersion": node["resourceVersion"], "annotations": {LOCK: None}}}) == 200:
                return

    def fail(self, pod, why):
        if self.habits["phase"] in ("both", "failed"):
            self.say(pod, {PHASE: "failed"})
        if self.habits["on_failure"]:
            self.unlock(pod)
        raise Failed(why)

    def allocate(self, count, between=lambda pod: None, resource=None, ids=()):
        """As kubelet's Allocate of one container: (pod, its devices). between: what happens before it commits. The resource
        and kubelet's choice of ids are nothing to it."""
        pod = self.find_pod()
        text = (pod["metadata"].get("annotations") or {}).get(self.vendor["to_allocate"])
        if text is None:
            self.fail(pod, "device request not found")
        slots = text.split(";")
        first = next((i for i, slot in enumerate(slots) if slot.strip(":")), None)
        if first is None:
            self.fail(pod, "no pending device allocation found")
        devices = [d.split(",")[0] for d in slots[first].split(":") if d]
        if self.habits["pop"] and len(devices) != count:
            self.fail(pod, "device number not matched")
        between(pod)
        last = True
        if self.habits["pop"]:
            slots[first] = ""
            last = not any(slot.strip(":") for slot in slots)
            self.say(pod, {self.vendor["to_allocate"]: ";".join(slots)} | self.vendor.get("also", {}))
        unlock = self.habits["unlock"]
        if self.habits["phase"] == "both" and (last or unlock == "first"):
            self.say(pod, {PHASE: "success"})
        if unlock == "first" or (unlock == "last" and last):
            self.unlock(pod)
        self.given.append((pod["metadata"]["uid"], devices))
        return pod, devices


class Dsmlu(Pretended):
    """Cambricon's: the only pending pod that is not assigned yet; two calls a container, of which the second commits. When an
    allocation fails the lock stays; when the agent starts it goes, whoever has it."""

    ASSIGNED, PROFILE, INSTANCE = "CAMBRICON_DSMLU_ASSIGHED", "CAMBRICON_DSMLU_PROFILE", "CAMBRICON_DSMLU_PROFILE_INSTANCE"

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.begun = set()  # the names of pods that had their first call

    def start(self):
        self.unlock()

    def unlock(self):
        return self.client.patch_node({"metadata": {"annotations": {self.vendor["lock"]: None}}})

    def find_pod(self):
        names = (self.vendor["resource"], self.vendor["memory"])
        pods = [
            p for p in self.waiting()
            if notes_of(p).get(self.ASSIGNED) == "false" and any(limit(c, n) for c in p["spec"]["containers"] for n in names)
        ]  # fmt: skip
        if len(pods) > 1:
            raise Failed("number of dynamic smlu candidate pods large than one")
        if not pods:
            raise Failed("no dynamic smlu candidate pod found")
        return pods[0]

    def allocate(self, count, between=lambda pod: None, resource=None, ids=()):
        pod = self.find_pod()
        name = pod["metadata"]["name"]
        slot, cores, units = notes_of(pod)[self.PROFILE].split("_")
        wanted = {self.vendor["resource"]: cores, self.vendor["memory"]: units}[resource]
        if int(wanted) != count:
            raise Failed(f"the profile has {wanted} of {resource}, kubelet wants {count}")
        devices = [self.devices[int(slot)]]
        if name not in self.begun:
            self.begun.add(name)
            return pod, devices
        between(pod)
        self.begun.remove(name)
        for status in (self.say(pod, {self.ASSIGNED: "true", self.INSTANCE: f"1_258_{slot}_1"}), self.unlock()):
            if status != 200:
                raise SystemExit("panic: invalid argument to Intn")
        self.given.append((pod["metadata"]["uid"], devices))
        return pod, devices


class Ordered(Pretended):
    """The oldest pod, by an annotation with a time, that has a container with as many and no device yet. Some mark what they
    have done; the others remember it."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.served = set()  # (pod's uid, container, resource)

    def is_done(self, pod, container, resource):
        notes = notes_of(pod)
        if "containers" in self.vendor:
            marks = json.loads(notes.get(self.vendor["containers"], "{}"))
            return marks.get(container["name"], {}).get("allocated", False)
        if "done" in self.vendor:
            return notes.get(self.vendor["done"]) != "false"
        return (pod["metadata"]["uid"], container["name"], resource) in self.served

    def find(self, count, resource):
        pods = [p for p in self.waiting() if self.vendor["time"] in notes_of(p)]
        for pod in sorted(pods, key=lambda p: int(notes_of(p)[self.vendor["time"]])):
            for container in pod["spec"]["containers"]:
                if limit(container, resource) == count and not self.is_done(pod, container, resource):
                    return pod, container
        raise Failed(f"no pod waits for {count} of {resource}")

    def cards(self, pod):
        numbers = [int(n) for n in notes_of(pod)[self.vendor["cards"]].split(",")]
        return [self.devices[n // self.vendor.get("cores", 1)] for n in numbers]

    def mark(self, pod, container):
        marks = {}
        if "containers" in self.vendor:
            done = json.loads(notes_of(pod).get(self.vendor["containers"], "{}"))
            done[container["name"]] = done.get(container["name"], {}) | {"allocated": True}
            marks[self.vendor["containers"]] = json.dumps(done)
        if "done" in self.vendor:
            marks[self.vendor["done"]] = "true"
        if marks and self.say(pod, marks) != 200:
            raise Failed("the pod can't be marked")

    def allocate(self, count, between=lambda pod: None, resource=None, ids=()):
        pod, container = self.find(count, resource)
        devices = self.cards(pod)
        between(pod)
        self.mark(pod, container)
        self.served.add((pod["metadata"]["uid"], container["name"], resource))
        self.given.append((pod["metadata"]["uid"], devices))
        return pod, devices


class Unaware(Pretended):
    """Whole cards: kubelet chooses, and pods are not looked at."""

    def allocate(self, count, between=lambda pod: None, resource=None, ids=()):
        between(None)
        return None, list(ids)


KINDS = {"dsmlu": Dsmlu, "ordered": Ordered, "kubelet": Unaware}


def make(client, vendor, node, devices=2):
    return KINDS.get(VENDORS[vendor].get("kind"), Agent)(client, vendor, node, devices)

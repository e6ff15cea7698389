#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hami-vgpu-monitor holds who uses the cards against what was given: what goes around libvgpu.so is found in seconds.

Whose a process is the kernel says in its cgroup; here a folder beside /proc says it, for no test may make cgroups.
"""

import fcntl
import struct
import sys
import uuid

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from mig import Mig
from monitor import *

NODES = "/api/v1/nodes"
FOUND_S = 5
# Of region/region.h.
SLOTS, SLOT_SIZE, STATUS, SLOT_COUNT, EXTENSION, LOCK_SLOTS = 1856, 1960, 1928, 2008896, 2011136, (1 << 40) + 4096
ACCOUNTS, EXT_SLOT_SIZE = 56, 64 + 16 * 24


class Watched:
    """A node with a monitor, and pods on it."""

    def __init__(self, *arguments, gpus=2, pods={}):
        self.machine = Machine(gpus, 30000 * MIB)
        self.uuids = [g["uuid"] for g in self.machine.view()["gpus"]]
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        self.hook, self.proc = self.folder / "vgpu", self.folder / "proc"
        (self.hook / "containers").mkdir(parents=True)
        self.proc.mkdir()
        self.uids = {name: str(uuid.uuid4()) for name in pods}
        things = {n: {"metadata": {"name": n, "namespace": space, "uid": self.uids[n], "resourceVersion": "1"}, "spec": {"nodeName": NODE}} for n, space in pods.items()}
        self.api = Api(objects={PODS: things, NODES: {NODE: {"metadata": {"name": NODE, "uid": "n", "resourceVersion": "1"}}}})
        self.log = open(self.folder / "log", "w+")
        self.monitor = Monitor(self.machine, self.api, self.hook, f"--procfs={self.proc}", *arguments)
        check(wait_until(lambda: value(self.monitor.scrape(), "hami_monitor_comparison_up") == 1), "who uses the cards is compared with what was given")

    def container(self, pod, card=0, memory=LIMIT, cores=30):
        return Container(self.hook, self.uids[pod], "main", self.uuids[card], memory, cores)

    def own(self, guest, pod=None):
        """Says that a process is in a pod, or none."""
        folder = self.proc / str(guest.pid)
        folder.mkdir()
        for name in ("stat", "status", "task"):
            (folder / name).symlink_to(f"/proc/{guest.pid}/{name}")
        (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{self.uids[pod]}/0123\n" if pod else "0::/system.slice/x.service\n")
        return guest

    def bare(self, pod, *arguments, card=0):
        return self.own(start([LOAD, *arguments], bare_environment(self.machine, CUDA_VISIBLE_DEVICES=self.uuids[card])), pod)

    def cases(self):
        return {tuple(dict(labels)[k] for k in ("namespace", "pod", "device_uuid", "kind")) for labels in self.monitor.scrape().get("hami_pod_bypass", {})}

    def becomes(self, wanted, sentence, seconds=FOUND_S):
        began = time.monotonic()
        check(wait_until(lambda: self.cases() == wanted, seconds), sentence, self.cases(), self.api.told[-3:])
        print(f"    after {time.monotonic() - began:.1f} s")

    def stays(self, wanted, seconds, sentence):
        check(not wait_until(lambda: self.cases() != wanted, seconds), sentence, self.cases(), self.api.told[-3:])

    def told(self, pod):
        return [e["message"] for e in self.api.told if e["involvedObject"].get("name") == pod and e["reason"] == "DeviceBypass"]

    def condition(self):
        found = self.api.objects[NODES][NODE].get("status", {}).get("conditions", [])
        return next(((c["status"], c["message"]) for c in found if c["type"] == "hami.io/DevicesBypassed"), (None, ""))

    def end(self):
        self.monitor.program.terminate()
        check_equal(self.monitor.program.wait(30), 0, "the monitor ends on SIGTERM")
        self.api.close()


def hold(memory):
    return ["--memory", memory, "--hold"]


def honest():
    """Processes that come, work, and go by all ways, within their limits: nobody is accused."""
    node = Watched(pods={"one": "ns", "two": "ns", "idle": "ns"})
    boxes = {name: node.container(name, memory=6000 * MIB, cores=50) for name in ("one", "two")}
    own = node.own(start([LOAD, *hold("500M")], bare_environment(node.machine)))
    steady = node.own(boxes["one"].start(node.machine, *hold("1G")), "one")
    check(wait_until(lambda: node.machine.used(steady.pid) >= GIB), "a process holds its memory")
    region_pid = lambda: struct.unpack_from("<i", boxes["one"].region.read_bytes(), SLOTS + 4)[0]
    check(wait_until(lambda: region_pid() == steady.pid, 5), "the host's pid is in its slot", region_pid(), steady.pid)
    deadline = time.monotonic() + 12
    rounds = 0
    while time.monotonic() < deadline and not node.cases():
        crowd = [node.own(boxes[n].start(node.machine, "--kernel", "1ms", "--seconds", "1", "--memory", "300M"), n) for n in boxes for _ in range(3)]
        time.sleep(0.7)
        for guest in crowd[::2]:
            guest.kill()
        for guest in crowd:
            guest.wait()
        rounds += 1
    check_equal((node.cases(), node.api.told), (set(), []), f"over {rounds} rounds of processes that start, work, end and are killed nobody is accused")
    got = node.monitor.scrape()
    check_equal((value(got, "hami_host_gpu_own_processes"), sum(got["hami_bypasses_total"].values())), (1, 0), "a process of the node itself is counted")
    check_equal(node.condition()[0], "False", "the Node's condition says so")
    steady.kill()
    own.kill()
    node.end()


def brief():
    """Honest processes that end one after another, and whenever that is in a look: none is ended, nor told of, and no two deaths add up."""
    node = Watched("--bypass=kill", pods={"one": "ns"})
    box = node.container("one", memory=20000 * MIB, cores=100)
    ended, deadline = [], time.monotonic() + 6
    while time.monotonic() < deadline:
        crowd = [node.own(box.start(node.machine, "--kernel", "1ms", "--seconds", "0.2", "--memory", "100M"), "one") for _ in range(3)]
        ended += [guest.wait() for guest in crowd]
    check_equal(set(ended), {0}, f"{len(ended)} short processes end by themselves")
    check_equal((node.cases(), node.api.told), (set(), []), "and nobody is accused")

    # The first card's processes are listed, and their slots are read once the second one's driver answers.
    guest = node.own(box.start(node.machine, *hold("100M")), "one")
    for _ in range(8):
        check(wait_until(lambda: node.machine.used(guest.pid) > 0), "a process holds memory")
        node.machine.fault(1, "--state=hangs")
        time.sleep(1.6)
        guest.kill()
        guest.wait()
        guest = node.own(box.start(node.machine, *hold("100M")), "one")
        node.machine.fault(1, "--state=ok")
        time.sleep(0.15)
    check_equal((node.cases(), node.api.told), (set(), []), "processes that end between the driver's list and their slots' reading accuse nobody")
    check_equal(value(node.monitor.scrape(), "hami_bypass_kills_total"), 0, "and nobody is ended")
    guest.kill()
    node.end()


def swings():
    """An honest process that takes memory and gives it back, each time between the driver's list and the reading of its slot, is not ended."""
    node = Watched("--bypass=kill", pods={"one": "ns"})
    box = node.container("one", memory=20000 * MIB, cores=100)
    guest = Caller(bare_environment(node.machine, LD_PRELOAD=box.library, CUDA_VISIBLE_DEVICES=box.uuid)).begin()
    node.own(guest.process, "one")
    guest.must("cuMemAlloc_v2", f"n{slot('ptr')}", GIB)
    time.sleep(1.5)
    for _ in range(5):  # more than it takes to be ended, less than what its slot said is remembered
        node.machine.fault(1, "--state=hangs")  # the first card is listed, and the second one's driver does not answer yet
        time.sleep(1.6)
        if guest.process.poll() is not None:
            break
        guest.must("cuMemFree_v2", f"h{slot('ptr')}")
        node.machine.fault(1, "--state=ok")
        time.sleep(0.15)
        guest.must("cuMemAlloc_v2", f"n{slot('ptr')}", GIB)
    check_equal((node.cases(), node.api.told), (set(), []), "and is not accused")
    check_equal((guest.process.poll(), value(node.monitor.scrape(), "hami_bypass_kills_total")), (None, 0), "it goes on")
    guest.kill()
    node.end()


def found():
    node = Watched(pods={"one": "ns", "two": "ns", "none": "ns", "dcgm": "kube-system"})
    a, b = node.uuids
    box = node.container("one")
    node.container("two", card=1)
    good = node.own(box.start(node.machine, *hold("500M")), "one")
    dcgm = node.bare("dcgm", *hold("100M"))
    check(wait_until(lambda: node.machine.used(good.pid) >= 500 * MIB), "an honest process")
    node.stays(set(), 4, "and one of an exempt namespace are not accused")

    bad = node.bare("one", *hold("1G"))
    check(wait_until(lambda: node.machine.used(bad.pid) >= GIB), "a process without the library")
    node.becomes({("ns", "one", a, "no-slot")}, "is found")
    check(wait_until(lambda: node.told("one"), 2), "its pod has an event", node.api.told)
    check(str(bad.pid) in node.told("one")[0] and a in node.told("one")[0], "that names process and card", node.told("one"))
    check(wait_until(lambda: node.condition()[0] == "True", 3) and "ns/one" in node.condition()[1], "the Node has a condition", node.condition())
    check(good.poll() is None and bad.poll() is None, "and nobody is ended")
    bad.kill()
    bad.wait()
    node.becomes(set(), "it is over when the process is gone", 2)
    check_equal(len(node.told("one")), 1, "one event was written")

    bad = node.bare("one", *hold("100M"), card=1)
    node.becomes({("ns", "one", b, "not-given")}, "one on a card that its pod was not given is found", FOUND_S + 2)
    bad.kill()
    bad.wait()
    bad = node.bare("none", *hold("100M"))
    node.becomes({("ns", "none", a, "not-given")}, "so is one of a pod that was given nothing", FOUND_S + 2)
    bad.kill()
    bad.wait()
    node.becomes(set(), "and all is well", 3)
    got = node.monitor.scrape()
    check_equal((value(got, "hami_bypasses_total", kind="no-slot"), value(got, "hami_bypasses_total", kind="not-given")), (1, 2), "they were counted")
    dcgm.kill()
    node.end()


def forge(region, held):
    """In a child, before it becomes another program: takes the second slot as the library would, and says what it holds."""
    descriptor = os.open(region, os.O_RDWR)
    os.set_inheritable(descriptor, True)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, LOCK_SLOTS + 1)
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    first = struct.unpack_from("<i", data, SLOTS)[0]
    at = next(i for i in range(EXTENSION, len(data) - 8, 64) if struct.unpack_from("<i", data, i)[0] == first)
    os.pwrite(descriptor, struct.pack("<i", os.getpid()), SLOTS + SLOT_SIZE)
    os.pwrite(descriptor, struct.pack("<i", 1), SLOTS + SLOT_SIZE + STATUS)
    os.pwrite(descriptor, struct.pack("<i", 2), SLOT_COUNT)
    ext = at + EXT_SLOT_SIZE
    os.pwrite(descriptor, struct.pack("<iI", os.getpid(), 0), ext)
    os.pwrite(descriptor, struct.pack("<QQQ", 0, (held // 512) << 30, 0), ext + ACCOUNTS)


def forged():
    """A process that takes a slot by itself, which is the tenant's to write, is found by what the slot says, or by the limit."""
    node = Watched(pods={"one": "ns"})
    (a, _) = node.uuids
    box = node.container("one", cores=30)
    good = node.own(box.start(node.machine, *hold("100M")), "one")
    check(wait_until(lambda: node.machine.used(good.pid) >= 100 * MIB), "an honest process")

    def forger(held, *arguments):
        environment = bare_environment(node.machine, CUDA_VISIBLE_DEVICES=a)
        return node.own(start([LOAD, *arguments], environment, close_fds=False, preexec_fn=lambda: forge(box.region, held)), "one")

    bad = forger(0, *hold("1G"))
    node.becomes({("ns", "one", a, "ledger")}, "one whose slot says that it holds nothing", FOUND_S + 2)
    bad.kill()
    bad.wait()
    node.becomes(set(), "it is over", 3)
    bad = forger(20000 * MIB, *hold("4G"))
    node.becomes({("ns", "one", a, "memory")}, "one whose slot says that it holds very much, by the limit", FOUND_S + 2)
    check(wait_until(lambda: any("its limit is 3000 MiB" in m for m in node.told("one")), 2), "which the event names", node.told("one"))
    bad.kill()
    bad.wait()
    node.becomes(set(), "it is over", 3)
    bad = forger(20000 * MIB, "--kernel", "1ms", "--seconds", "30")
    node.becomes({("ns", "one", a, "compute")}, "one within its memory, that takes the card's time", 20)
    check(wait_until(lambda: any("its limit is 30 percent" in m for m in node.told("one")), 2), "which the event names", node.told("one"))
    bad.kill()
    good.kill()
    node.end()


def take_every_slot(region):
    descriptor = os.open(region, os.O_RDWR)
    os.set_inheritable(descriptor, True)
    for slot in range(1024):
        if slot % 2 == 0:  # neighbours would become one lock
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, LOCK_SLOTS + slot)
        # Nobody's pid: a slot with its own says that the library is there, without our ledger.
        os.pwrite(descriptor, struct.pack("<i", (1 << 23) + slot), SLOTS + slot * SLOT_SIZE)
        os.pwrite(descriptor, struct.pack("<i", 1), SLOTS + slot * SLOT_SIZE + STATUS)
    os.pwrite(descriptor, struct.pack("<i", 1 << 30), SLOT_COUNT)


def hostile():
    """Tenants who fill their slots, cut their regions, or make rubbish of them, keep nobody from being found, nor the monitor busy."""
    node = Watched(pods={f"h{i}": "ns" for i in range(20)} | {"one": "ns"})
    boxes = [node.container(f"h{i}") for i in range(20)]
    guests = []
    for i, box in enumerate(boxes):
        first = box.start(node.machine, *hold("10M"))
        check(wait_until(lambda: node.machine.used(first.pid) > 0), f"tenant {i} has a region") if i == 0 else wait_until(lambda: node.machine.used(first.pid) > 0)
        first.kill()
        first.wait()
        if i % 4 == 3:
            box.region.write_bytes(os.urandom(5000) if i % 8 == 3 else b"")
        environment = bare_environment(node.machine, CUDA_VISIBLE_DEVICES=box.uuid)
        how = (lambda box=box: take_every_slot(box.region)) if i % 4 != 3 else None
        guests.append(node.own(start([LOAD, *hold("500M")], environment, close_fds=False, preexec_fn=how), f"h{i}"))
    bad = node.bare("one", *hold("1G"))
    node.container("one")
    check(wait_until(lambda: ("ns", "one", node.uuids[0], "no-slot") in node.cases(), FOUND_S + 3), "one beside twenty of them is found", node.cases())
    check(wait_until(lambda: len({c[1] for c in node.cases()}) == 21, 3 * FOUND_S), "and so are they", node.cases())
    ticks = lambda: sum(int(f) for f in pathlib.Path(f"/proc/{node.monitor.program.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])
    before = ticks()
    time.sleep(5)
    print(f"    the monitor takes {(ticks() - before) / 5:.0f} % of a core")
    check(ticks() - before < 300, "the monitor has time left", ticks() - before)
    check_equal(value(node.monitor.scrape(), "hami_monitor_comparison_up"), 1, "and looks on")
    for guest in [bad, *guests]:
        guest.kill()
    node.end()


def kills():
    node = Watched("--bypass=kill", pods={"one": "ns", "two": "ns", "dcgm": "kube-system"})
    box = node.container("one")
    node.container("two", card=1)
    good = node.own(box.start(node.machine, *hold("500M")), "one")
    others = [node.bare("dcgm", *hold("100M")), node.bare(None, *hold("100M"))]
    bad = [node.bare("one", *hold("1G")), node.bare("two", *hold("100M"))]
    check(wait_until(lambda: all(b.poll() == -signal.SIGKILL for b in bad), FOUND_S + 2), "by policy such processes are ended", [b.poll() for b in bad])
    time.sleep(2)
    check_equal([g.poll() for g in [good, *others]], [None] * 3, "and no others: an honest one, one of an exempt namespace, one of the node")
    check(node.told("one") and node.told("two"), "it is an event all the same", node.api.told)
    check_equal(value(node.monitor.scrape(), "hami_bypass_kills_total"), 2, "and counted")
    for guest in [good, *others]:
        guest.kill()
    node.end()


def blind():
    """Where the monitor can't see it says so; where it is told not to look it does not."""
    api, machine, hook = two_pods(), Machine(1, 30000 * MIB), scratch / "vgpu-blind"
    off = Monitor(machine, api, hook, "--bypass=off")
    no_driver = Monitor(None, api, hook, f"--procfs={scratch}", f"--nvidia-driver-root={scratch}/none")
    sees = pathlib.Path("/proc/self/ns/pid").stat().st_ino == 0xEFFFFFFC
    own_pids = Monitor(machine, api, hook)
    up = lambda monitor: value(monitor.scrape(), "hami_monitor_comparison_up")
    check(wait_until(lambda: up(own_pids) == int(sees)), "without the host's pids nothing is compared", up(own_pids))
    time.sleep(1)
    check_equal((up(off), up(no_driver), up(own_pids)), ([], 0, int(sees)), "which is said")
    for monitor in off, no_driver, own_pids:
        monitor.program.terminate()
        check_equal(monitor.program.wait(30), 0, "it ends on SIGTERM")
    ended = run([PROGRAM, "--node-name=n", "--bypass=perhaps"], bare_environment(None), timeout=20)
    check(ended.returncode == 2 and "none of report, kill and off" in ended.stderr, "another policy is refused", ended.stderr)
    api.close()


def hangs():
    node = Watched(pods={"one": "ns"})
    node.machine.fault(1, "--state=hangs")
    check(wait_until(lambda: value(node.monitor.scrape(), "hami_monitor_comparison_up") == 0, 20), "a driver that hangs is told of")
    check_equal(node.monitor.get("/healthz")[0], 200, "and keeps nothing else")
    node.machine.fault(1, "--state=ok")
    check(wait_until(lambda: value(node.monitor.scrape(), "hami_monitor_comparison_up") == 1, 5), "until it answers")
    node.end()


def instances():
    """A process in an instance is held against what its pod was given of that instance."""
    node = Watched(pods={"one": "ns", "two": "ns"})
    with Mig(node.machine, SIMDRIVER) as mig:
        check_equal(mig.set_mode(0), 0, "a card is in MIG mode")
        uuids = [mig.make(0, "3g", 0), mig.make(0, "3g", 4)]
    boxes = {name: Container(node.hook, node.uids[name], "main", uuid, 6000 * MIB, 50) for name, uuid in zip(("one", "two"), uuids)}
    guests = [node.own(box.start(node.machine, *hold("1G")), name) for name, box in boxes.items()]
    check(wait_until(lambda: all(node.machine.used(g.pid) >= GIB for g in guests)), "two pods are in two of its instances")
    node.stays(set(), 6, "nobody is accused")
    bad = node.own(start([LOAD, *hold("1G")], bare_environment(node.machine, CUDA_VISIBLE_DEVICES=uuids[1])), "one")
    check(wait_until(lambda: node.machine.used(bad.pid) >= GIB), "one of them is in the other's as well")
    node.becomes({("ns", "one", uuids[1], "not-given")}, "which is found, by the instance's uuid", FOUND_S + 2)
    for guest in (*guests, bad):
        guest.kill()
    node.end()


PARTS = ["honest", "brief", "swings", "found", "instances", "forged", "hostile", "kills", "blind", "hangs"]

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        globals()[part]()
    finish()

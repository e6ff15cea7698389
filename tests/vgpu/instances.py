#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libvgpu in a MIG instance: its memory and time are the instance's, and what is less than that is held."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/node")
from harness import *
from mig import Mig

GUEST = BUILD / "tests/guest"
SECONDS = 3
WHOLE = 19968 * MIB  # 3g.20gb of an A100 of 40 GB

ASK = """
import ctypes, json, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
class Memory(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]
device, memory, count = ctypes.c_void_p(), Memory(), ctypes.c_uint()
assert nvml.nvmlDeviceGetHandleByUUID(sys.argv[1].encode(), ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
print(json.dumps([memory.total, count.value]))
"""

# Who uses the instance, by the lists that name instances; and what comes of asking for its whole card.
LISTS = """
import ctypes, json, sys
from ctypes import byref, c_uint, c_void_p
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
class Process(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("bytes", ctypes.c_ulonglong), ("gpu", c_uint), ("compute", c_uint)]
class Detail(ctypes.Structure):
    _fields_ = Process._fields_ + [("guarded", ctypes.c_ulonglong)]
class Details(ctypes.Structure):
    _fields_ = [("version", c_uint), ("mode", c_uint), ("count", c_uint), ("list", ctypes.POINTER(Detail))]
device, card, count = c_void_p(), c_void_p(), c_uint()
assert nvml.nvmlDeviceGetHandleByUUID(sys.argv[1].encode(), byref(device)) == 0
rows = []
for version in ("_v2", "_v3"):
    list, count.value = (Process * 64)(), 64
    assert getattr(nvml, "nvmlDeviceGetComputeRunningProcesses" + version)(device, byref(count), list) == 0
    rows.append([[p.pid, p.gpu, p.compute] for p in list[: count.value]])
details = Details(ctypes.sizeof(Details) | 1 << 24, 0, 64, ctypes.cast((Detail * 64)(), ctypes.POINTER(Detail)))
assert nvml.nvmlDeviceGetRunningProcessDetailList(device, byref(details)) == 0
rows.append([[p.pid, p.gpu, p.compute] for p in details.list[: details.count]])
assert nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, byref(card)) == 0
count.value, details.count = 64, 64
codes = [nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, byref(count), list), nvml.nvmlDeviceGetRunningProcessDetailList(card, byref(details))]
print(json.dumps({"rows": rows, "card": codes}))
"""


class Tenant:
    """A container with an instance, or a part of one."""

    def __init__(self, machine, uuid, memory, cores=None):
        self.machine, self.uuid = machine, uuid
        self.region = new_region()
        keys = {"NVIDIA_VISIBLE_DEVICES": uuid, "HAMI_VISIBLE_DEVICES": "granted", "CUDA_DEVICE_MEMORY_LIMIT_0": memory}
        if cores:
            keys["CUDA_DEVICE_SM_LIMIT_0"] = cores
        self.library = container(region=self.region, **keys)

    def environment(self):
        return bare_environment(self.machine, LD_PRELOAD=self.library, CUDA_VISIBLE_DEVICES=self.uuid, NVIDIA_VISIBLE_DEVICES=self.uuid)

    def begin(self, *arguments):
        return start([LOAD, *map(str, arguments)], self.environment())

    def fill(self):
        """What a program gets that takes all it can, by the simulator's count."""
        guest = start([GUEST, "init", "fill=1M", "say=full", "sleep=30000"], self.environment(), stdout=subprocess.PIPE)
        guest.stdout.readline()
        used = self.machine.used(guest.pid)
        guest.kill()
        guest.wait()
        return used


def busy(machine, guests, seconds):
    before = [machine.busy_ns(g.pid) for g in guests]
    time.sleep(seconds)
    after = [machine.busy_ns(g.pid) for g in guests]
    return [100 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(before, after)]


def main():
    machine = Machine(1, 40960 * MIB)
    with Mig(machine, SIMDRIVER) as mig:
        assert mig.set_mode(0) == 0
        one, two = mig.make(0, "3g", 0), mig.make(0, "3g", 4)

    whole, part = Tenant(machine, one, WHOLE), Tenant(machine, two, 2 * GIB, 30)
    used = whole.fill()
    check(WHOLE - 2 * MIB <= used <= WHOLE, "who was given an instance gets all of its memory", used, WHOLE)
    used = part.fill()
    check(2 * GIB - 2 * MIB <= used <= 2 * GIB, "who was given less gets that", used)
    ended = run([sys.executable, "-c", ASK, two], part.environment())
    check((ended.returncode, ended.stdout.strip()) == (0, f"[{2 * GIB}, 1]"), "and NVML says so there", ended.stdout, ended.stderr)
    ended = run([sys.executable, "-c", ASK, one], part.environment())
    check(ended.returncode != 0, "where other instances are not there", ended.stdout)
    text = part.region.read_bytes()
    check(two.encode() in text, "the region names the instance")

    holders = [t.begin("--memory", "100M", "--hold") for t in (whole, part)]
    check(wait_until(lambda: all(machine.used(h.pid) >= 100 * MIB for h in holders)), "two instances are in use")
    lists = lambda uuid, environment: json.loads(run([sys.executable, "-c", LISTS, uuid], environment).stdout)
    for uuid, tenant, holder in ((one, whole, holders[0]), (two, part, holders[1])):
        bare, got = lists(uuid, bare_environment(machine)), lists(uuid, tenant.environment())
        check(all(len(rows) == 1 and rows[0][0] == holder.pid and rows[0][1] < 15 for rows in bare["rows"]), "bare, NVML lists an instance's process with the instance's ids", bare)
        check_equal(got["rows"], bare["rows"], "and so it does in its container")
        if os.geteuid() == 0:
            check_equal(bare["card"], [0, 0], "bare, root may see who uses the whole card")
        check_equal(got["card"], [4, 4], "which nobody may in a container")
    for holder in holders:
        holder.kill()
        holder.wait()

    for attempt in range(3):
        guests = [t.begin("--kernel", "1ms", "--seconds", SECONDS + 4) for t in (whole, part)]
        time.sleep(2)
        shares = busy(machine, guests, SECONDS)
        for guest in guests:
            guest.kill()
            guest.wait()
        if shares[0] > 90 and abs(shares[1] - 30) < 3:
            break
    check(shares[0] > 90, "a whole instance's time is its container's, whoever works beside", shares)
    check(abs(shares[1] - 30) < 3, "and a share of one is a share of the instance's time", shares)
    finish()


main()

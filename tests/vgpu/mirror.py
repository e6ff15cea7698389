#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What HAMi's own monitor reads of our processes is true, and HAMi's words in the environment mean what they say."""

import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
import hamicore
from caller import *
from harness import *


def slots(path):
    """Of each process with a pid: the fields of HAMi's slot."""
    data, found = pathlib.Path(path).read_bytes(), []
    for process in hamicore.read(data)["procs"] if len(data) >= hamicore.SIZE else []:
        base = hamicore.PROCS + process["slot"] * hamicore.SLOT_SIZE
        number = lambda at: struct.unpack_from("<Q", data, base + at)[0]
        found.append(
            process | {"monitor_used": number(hamicore.MONITOR_USED), "sm_util": number(hamicore.UTIL + 16), "total": process["used"][0]["total"]}
        )
    return found


def load(machine, library, *words, **more):
    return start([LOAD, *words], bare_environment(machine, LD_PRELOAD=library, **more))


def check_slots():
    machine, path = Machine(context=60 * MIB), new_region()
    keys = {"NVIDIA_VISIBLE_DEVICES": machine.view()["gpus"][0]["uuid"], "CUDA_DEVICE_MEMORY_LIMIT_0": "2g", "CUDA_DEVICE_SM_LIMIT_0": 40}
    library = container(region=path, **keys)
    busy = load(machine, library, "--memory", "1G", "--kernel", "1ms", "--batch", "8", "--seconds", "7", "--hold")
    idle = load(machine, library, "--memory", "100M", "--hold")
    check(wait_until(lambda: len(slots(path)) == 2 and sum(s["sm_util"] for s in slots(path)) > 30, 10), "how busy a process is, is told", slots(path))
    time.sleep(1.5)
    got = {s["pid"]: s for s in slots(path)}
    check(abs(got[busy.pid]["sm_util"] - 40) <= 6, "in percent of the device's time", got)
    check_equal(got[idle.pid]["sm_util"], 0, "one that launches nothing has 0")
    for guest in (busy, idle):
        slot = got[guest.pid]
        check_equal((slot["status"], slot["monitor_used"]), (1, slot["total"]), "a process runs, and holds what it holds, by both words")
        check_equal(slot["total"], machine.used(guest.pid), "which is what the simulator counts")

    rewrite = lambda **more: write_limits(library, CUDA_DEVICE_MEMORY_SHARED_CACHE=path, **keys, **more)
    rewrite(HAMI_SUSPENDED="true")
    check(wait_until(lambda: [s["status"] for s in slots(path) if s["pid"] == busy.pid] == [2], 3), "suspended by the limits file, a process says so")
    time.sleep(0.3)
    before = machine.view()["processes"]
    time.sleep(0.5)
    of = lambda view: [p["busy"] for p in view if p["pid"] == busy.pid]
    check_equal(of(machine.view()["processes"]), of(before), "and launches nothing")
    rewrite()
    check(wait_until(lambda: [s["status"] for s in slots(path) if s["pid"] == busy.pid] == [1], 3), "until the word is taken back")
    check(wait_until(lambda: of(machine.view()["processes"]) > of(before), 3), "then it goes on")
    check(wait_until(lambda: slots(path)[0]["sm_util"] == 0 and slots(path)[1]["sm_util"] == 0, 15), "who rests is told to rest", slots(path))
    for guest in (busy, idle):
        guest.terminate()
        guest.wait(20)


def check_without_share():
    machine, path = Machine(context=60 * MIB), new_region()
    library = container(region=path, CUDA_DEVICE_MEMORY_LIMIT="2g")
    guest = load(machine, library, "--kernel", "1ms", "--seconds", "9")
    check(wait_until(lambda: sum(s["sm_util"] for s in slots(path)) > 90, 5), "a process that no share holds is told to be busy within 5 s", slots(path))
    guest.kill()
    guest.wait()
    guest = load(machine, library, "--kernel", "20ms", "--batch", "1", "--pause", "80ms", "--seconds", "9")
    busy = lambda: [s["sm_util"] for s in slots(path) if s["pid"] == guest.pid]
    check(wait_until(lambda: busy() and abs(busy()[0] - 20) <= 4, 5), "and how busy: one that launches seldom, too", slots(path))
    guest.kill()
    guest.wait()


def check_environment():
    """CUDA_DEVICE_SM_LIMIT for each device, ACTIVE_OOM_KILLER, LIBCUDA_LOG_LEVEL."""
    machine, path = Machine(gpus=3, context=60 * MIB), new_region()
    one = Caller(limited_environment(machine, memory=GIB, region=path, CUDA_DEVICE_SM_LIMIT="30", CUDA_DEVICE_SM_LIMIT_1="50", CUDA_DEVICE_SM_LIMIT_2="100")).begin()
    check_equal(hamicore.read(path.read_bytes())["sm_limit"][:3], [30, 50, 100], "each device has its own share, and the others the common one")
    one.finish()

    def says(*way, **more):
        """A program that is refused memory, and makes managed memory beyond its limit."""
        one = Caller(limited_environment(machine, memory=512 * MIB, region=new_region(), **more)).begin()
        check_equal(one.call("cuMemAlloc_v2", f"n{slot('ptr', 1)}", GIB), 2, f"{more}: beyond the limit is out of memory")
        for number in (2, 3):
            one.must("cuMemAllocManaged", f"n{slot('ptr', number)}", GIB, 1)
        check_equal(one.call("cuMemGetInfo_v2", "o8", "o8"), 0, f"{more}: and the program lives on")
        return one.finish()

    usual = says()
    check(len(usual.splitlines()) == 1, "as a rule a note is said once", usual)
    check_equal(says(ACTIVE_OOM_KILLER="true"), usual, "ACTIVE_OOM_KILLER changes nothing")
    check_equal((says(LIBCUDA_LOG_LEVEL="0"), says(LIBCUDA_LOG_LEVEL="1")), ("", ""), "LIBCUDA_LOG_LEVEL 0 and 1: errors only")
    check_equal(says(LIBCUDA_LOG_LEVEL="2"), usual, "2 is what is usual")
    check_equal(len(says(LIBCUDA_LOG_LEVEL="4").splitlines()), 2, "4: each time")
    one = Caller(limited_environment(machine, memory="garbage", LIBCUDA_LOG_LEVEL="0"))
    check_equal(one.call("cuInit", 0), 802, "limits that can't be read give no GPU")
    check("garbage" in one.finish(), "which is said at any level")


check_slots()
check_without_share()
check_environment()
finish()

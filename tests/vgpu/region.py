#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HAMi-core 1.2's region, both ways: what it would write is read by `hamictl top`; what libvgpu.so writes has
the same bytes in the same places."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import hamicore
from harness import *

GUEST = BUILD / "tests/guest"
LIMIT = 1 * GIB


def ours():
    context = 300 * MIB
    machine = Machine(gpus=2, memory=4 * GIB, context=context)
    region = new_region()
    environment = limited_environment(machine, memory=LIMIT, cores=40, region=region, CUDA_TASK_PRIORITY=0)
    before = int(time.time())
    guests = [start([GUEST, "init", f"alloc={size}M", "launch=5", "say", "wait"], environment) for size in (64, 128)]
    for guest in guests:
        guest.stdout.readline()
    uuids = [gpu["uuid"] for gpu in machine.view()["gpus"]]
    data = region.read_bytes()
    seen = hamicore.read(data)

    check(len(data) >= hamicore.FILE_SIZE, "the file is no shorter", len(data))
    check_equal(data[hamicore.SIZE], 0, "the byte after HAMi-core's part is 0")
    for field, wanted in {
        "initialized_flag": hamicore.MAGIC,
        "major_version": 1,
        "minor_version": 2,
        "owner_pid": 0,
        "sem": 1,
        "sem_postinit": 1,
        "priority": 0,
        "utilization_switch": 1,
    }.items():
        check_equal(seen[field], wanted, f"{field} is {wanted}")
    count = seen["device_num"]
    check(1 <= count <= 2, "the devices are counted", count)
    check_equal(seen["uuids"][:count], uuids[:count], "and named, in order")
    check_equal(seen["uuids"][count:], [""] * (16 - count), "and no others")
    check_equal(seen["limit"][:count], [LIMIT] * count, "limit is in bytes")
    check_equal(seen["sm_limit"][:count], [40] * count, "sm_limit is in percent")
    check_equal(sorted(p["pid"] for p in seen["procs"]), sorted(g.pid for g in guests), "each process has a slot")
    check(
        seen["proc_num"] > max((p["slot"] for p in seen["procs"]), default=0),
        "proc_num reaches beyond the last slot",
        seen["proc_num"],
    )
    check(seen["recent_kernel"] == 2, "recent_kernel is 2 after a launch", seen["recent_kernel"])
    check(
        before <= seen["last_kernel_time"] <= time.time() + 1,
        "last_kernel_time is the launch's Unix time in seconds",
        seen["last_kernel_time"],
        before,
    )
    for process, (guest, size) in ((p, next((g, s) for g, s in zip(guests, (64, 128)) if g.pid == p["pid"])) for p in seen["procs"]):
        used = process["used"][0]
        title = f"the process with {size} MiB"
        check_equal(process["status"], 1, f"{title}: status runs")
        check_equal(process["seqlock"] % 2, 0, f"{title}: seqlock is even")
        check_equal(used["data_size"], size * MIB, f"{title}: data_size")
        check_equal(used["context_size"], context, f"{title}: context_size")
        check_equal(used["total"], used["context_size"] + used["module_size"] + used["data_size"], f"{title}: total is the sum")
        check_equal(used["total"], machine.used(guest.pid), f"{title}: total is the simulator's count")
        check(all(not any(u.values()) for u in process["used"][1:]), f"{title}: nothing on other devices")
    for guest in guests:
        guest.communicate("\n")
    seen = hamicore.read(region.read_bytes())
    left = sum(u["total"] for p in seen["procs"] for u in p["used"])
    print(f"after the last has gone, before anybody looks: {left} bytes in {len(seen['procs'])} slots")


ours()
finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HAMi-core 1.2's region, both ways: what it would write is read by `hamictl top`; what libvgpu.so writes has
the same bytes in the same places."""

import json
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


def theirs():
    """Every field that `hamictl top` tells of a region, from a file made with numbers that occur only once."""
    sleepers = [start(["sleep", "60"], None) for _ in range(3)]
    devices = [
        {"uuid": "GPU-00000000-1111-2222-3333-444444444444", "limit": 11 * GIB + 1 * MIB, "sm_limit": 31},
        {"uuid": "GPU-55555555-6666-7777-8888-999999999999", "limit": 0, "sm_limit": 0},
        {"uuid": "MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "limit": 3 * GIB, "sm_limit": 100},
    ]

    def memory(context, module, data):
        return {"context_size": context * MIB, "module_size": module * MIB, "data_size": data * MIB,
                "total": (context + module + data) * MIB}

    used = [{0: memory(301, 17, 1001), 2: memory(302, 0, 7)}, {0: memory(303, 19, 503)}, {}]
    processes = [
        {"slot": slot, "pid": guest.pid, "hostpid": guest.pid, "status": 1, "used": held, "util": {0: {"sm_util": 13}}}
        for slot, guest, held in zip((0, 3, 700), sleepers, used)
    ]
    # A slot that was left (pid 0), whose numbers an old HAMi-core does not clear, holds nothing.
    processes.append({"slot": 1, "pid": 0, "hostpid": 0, "status": 0, "used": {0: memory(1, 1, 1)}})
    region = new_region()
    region.write_bytes(hamicore.write(devices, processes, priority=0, last_kernel_time=1700000123))

    ended = run([HAMICTL, "top", "--region", "--json", region], bare_environment(None))
    if not check_equal((ended.returncode, ended.stderr), (0, ""), "hamictl top reads HAMi-core's region"):
        return
    seen = json.loads(ended.stdout)["regions"][0]
    check_equal(seen["version"], "1.2", "its version")
    check_equal(seen["priority"], 0, "priority")
    check_equal(seen["last_kernel_time"], 1700000123, "last_kernel_time")
    check_equal([d["uuid"] for d in seen["devices"]], [d["uuid"] for d in devices], "uuids")
    check_equal([d["limit_bytes"] for d in seen["devices"]], [d["limit"] or None for d in devices], "limits of memory")
    check_equal([d["cores_percent"] for d in seen["devices"]], [d["sm_limit"] or None for d in devices], "limits of compute")
    fields = {"context_bytes": "context_size", "module_bytes": "module_size", "data_bytes": "data_size", "used_bytes": "total"}
    for ours_name, theirs_name in fields.items():
        wanted = [sum(held.get(d, {}).get(theirs_name, 0) for held in used) for d in range(3)]
        check_equal([d[ours_name] for d in seen["devices"]], wanted, f"the devices' {ours_name}")
    check_equal(sorted(p["pid"] for p in seen["processes"]), sorted(g.pid for g in sleepers), "the processes")
    for guest, held in zip(sleepers, used):
        process = next((p for p in seen["processes"] if p["pid"] == guest.pid), {"devices": []})
        for d, device in enumerate(process["devices"]):
            for ours_name, theirs_name in fields.items():
                wanted = held.get(d, {}).get(theirs_name, 0)
                check_equal(device[ours_name], wanted, f"process {sleepers.index(guest)}, device {d}: {ours_name}")
    table = run([HAMICTL, "top", "--region", region], bare_environment(None))
    check(table.returncode == 0 and devices[0]["uuid"] in table.stdout, "and shown as a table", table.stdout, table.stderr)
    data = region.read_bytes()
    check_equal(data, hamicore.write(devices, processes, priority=0, last_kernel_time=1700000123), "the file is left as it was")

    for size in (0, 100, hamicore.SIZE - 1):
        region.write_bytes(data[:size])
        ended = run([HAMICTL, "top", "--region", "--json", region], bare_environment(None))
        check(ended.returncode > 0 and len(ended.stderr.splitlines()) == 1, f"cut to {size} bytes it is refused with a reason", ended)


ours()
theirs()
finish()

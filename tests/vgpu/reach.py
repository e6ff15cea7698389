#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On every way to the driver a program gets exactly its limit, and is otherwise answered as bare."""

import json
import shutil
import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

REACH = BUILD / "tests/reach"
DIRECT = BUILD / "tests/reach_direct"
WRAPPER = BUILD / "tests/libreach_wrapper.so"
THIRD = BUILD / "tests/libreach_third.so"
THIRD_LINKED = BUILD / "tests/libreach_linked.so"
LIBC = next(line.split()[-1] for line in open("/proc/self/maps", encoding="utf-8") if "/libc.so.6" in line)
LIMIT = 1 * GIB
UNIT = 512  # bytes; what is charged is rounded up to this

# Where a driver may come from beside the usual one: the same file under another path and name.
copies = [scratch / "copy/libcuda.so.1", scratch / "other/libcuda.so.580.1"]
copies.append(scratch / "strange/libgpu.so")
for copy in copies:
    copy.parent.mkdir()
    shutil.copy(SIMDRIVER / "libcuda.so.1", copy)

# dlvsym gives what it is asked for only from a library without a version table, whatever the version: so the
# driver's was taken from this copy.
unversioned = scratch / "unversioned/libcuda.so.1"
unversioned.parent.mkdir()


def without_versions(data):
    """An ELF file whose dynamic section does not tell of versions."""
    data = bytearray(data)
    phoff, phentsize, phnum = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for i in range(phnum):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, phoff + i * phentsize)
        if kind != 2:  # PT_DYNAMIC
            continue
        for at in range(offset, offset + size, 16):
            if struct.unpack_from("<Q", data, at)[0] in (0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF):
                struct.pack_into("<Q", data, at, 21)  # DT_DEBUG: of no meaning in a library
    return bytes(data)


unversioned.write_bytes(without_versions((SIMDRIVER / "libcuda.so.1").read_bytes()))

WAYS = [
    (REACH, "dlsym"),
    (REACH, f"dlvsym={unversioned}"),
    (REACH, "default"),
    (REACH, "twice"),
    (REACH, f"copy={copies[0]}"),
    (REACH, f"copy={copies[1]}"),
    (REACH, f"only-copy={copies[0]}"),
    (REACH, f"only-copy={copies[1]}"),
    (REACH, f"copy={copies[2]}"),
    (REACH, f"only-copy={copies[2]}"),
    (REACH, f"copy-proc2={copies[1]}"),
    (REACH, "namespace"),
    (REACH, f"namespace={copies[0]}"),
    (REACH, f"namespace={copies[1]}"),
    (REACH, f"namespace={copies[2]}"),
    (REACH, f"namespace-third={THIRD}"),
    (REACH, f"third-default={THIRD_LINKED}"),
    (REACH, "fetched=libc.so.6"),
    (REACH, "fetched=libdl.so.2"),
    (REACH, "fetched-version=libc.so.6"),
    (REACH, "fetched-version=libdl.so.2"),
    (REACH, "fetched-apart=libc.so.6"),
    (REACH, "fetched-namespace=libc.so.6"),
    (REACH, f"fetched-next={THIRD}"),
    (REACH, "proc1"),
    (REACH, "proc2"),
    (REACH, "proc1-by-proc1"),
    (REACH, "proc2-by-proc1"),
    (REACH, "proc1-by-proc2"),
    (REACH, "proc2-by-proc2"),
    (DIRECT, "linked"),
    (DIRECT, "linked-default"),
    (DIRECT, "next"),
    (DIRECT, "second-next"),
]
# A second namespace may be refused: then nothing is reached, which is no breach.
MAY_REFUSE = "namespace"
ALLOCATORS = ["cuMemAlloc_v2", "cuMemAlloc", "cuMemAllocPitch_v2", "cuMemAllocPitch", "cuMemCreate"]
ALLOCATORS += ["cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuArray3DCreate_v2", "cuMipmappedArrayCreate"]
PIECE = {"cuMemCreate": 2 * MIB, "cuMemAllocAsync": 2 * MIB, "cuMemAllocAsync_ptsz": 2 * MIB}  # in which it gives memory out
PIECE |= {"cuArray3DCreate_v2": 64 * KIB, "cuMipmappedArrayCreate": 64 * KIB}


def name(way):
    return way.split("=")[0] + ("=" + way.split("=")[1].rsplit("/", 1)[-1] if "=" in way else "")


def check_queries(title, said, used):
    """What every query tells, when `used` bytes are charged to a container of one process."""
    left = LIMIT - used
    check_equal(said["info_code"], 0, f"{title}: memory info answers")
    check_equal(said["info"], [left, LIMIT], f"{title}: memory info is what the limit leaves")
    check_equal(said["device_total"], LIMIT, f"{title}: the device's total is the limit")
    if "nvml" not in said:
        return
    check_equal(said["nvml_code"], 0, f"{title}: NVML answers")
    check_equal(said["nvml"], [LIMIT, left, used], f"{title}: NVML's memory agrees")
    total, reserved, free, used_v2 = said["nvml_v2"]
    check_equal((total, free, used_v2), (LIMIT, left, used), f"{title}: NVML's memory v2 agrees")
    check(reserved + free + used_v2 == total, f"{title}: NVML's memory v2 adds up", said["nvml_v2"])
    for version in (1, 2, 3):
        check_equal(
            said[f"processes_v{version}"],
            [0, [said["pid"], used]],
            f"{title}: NVML's process list v{version} is the one process and what it holds",
        )


def check_fill(program, way, allocator, preloaded=None):
    title = f"{name(way)}, {allocator}" + (f", {preloaded[0]}" if preloaded else "")
    machine = Machine(gpus=1, memory=4 * GIB)
    environment = limited_environment(machine, memory=LIMIT)
    if preloaded:
        environment["LD_PRELOAD"] = " ".join(str(library) for library in preloaded[1])
        environment |= preloaded[2] if len(preloaded) > 2 else {}
    guest = start([program, way, "fill", allocator], environment)
    line = guest.stdout.readline()
    if not check(line.startswith("{"), f"{title}: runs", line, guest.poll()):
        return
    said = json.loads(line)
    if "unreachable" in said:
        check(way.startswith(MAY_REFUSE), f"{title}: is reached, or refused where it may be")
        return
    used = machine.used(guest.pid)
    check_equal(said["context"], 0, f"{title}: a context is made")
    check(
        LIMIT - PIECE.get(allocator, UNIT) < used <= LIMIT,
        f"{title}: exactly the limit is had, by the simulator's count",
        f"limit {LIMIT}, used {used}, off by {LIMIT - used}",
        said,
    )
    check(
        said["refused"] > 0 and said["touched"] == 0 and said["strange"] == 0,
        f"{title}: beyond is out of memory, outputs as a real driver leaves them",
        said,
    )
    check_queries(title, said, used)

    guest.stdin.write("\n")
    guest.stdin.flush()
    after = json.loads(guest.stdout.readline())
    kept = machine.used(guest.pid)
    check_equal(after["free"], 0, f"{title}: all of it is given back")
    check_equal(used - kept, said["taken"], f"{title}: nothing of it stays, by the simulator's count")
    check(after["double_free"] not in (0, -1), f"{title}: a second free is an error", after)
    check_queries(f"{title}, freed", after, kept)
    guest.communicate("\n", timeout=20)
    check_equal(guest.returncode, 0, f"{title}: ends well")
    check_equal(machine.used(), 0, f"{title}: the device is empty at the end")


def both(program, way, command):
    """One command, bare and under a limit that is never reached."""
    machine = Machine(gpus=1, memory=4 * GIB)
    bare = run([program, way, command], bare_environment(machine))
    limited = run([program, way, command], limited_environment(machine, memory=3 * GIB))
    return bare, limited


def check_same(program, way, command, sentence):
    bare, limited = both(program, way, command)
    title = f"{name(way)}: {sentence}"
    if way.startswith(MAY_REFUSE) and "unreachable" in limited.stdout:
        check(True, f"{title} (refused)")
        return
    check_equal((bare.returncode, bare.stderr), (0, ""), f"{title}: runs bare")
    check_equal((limited.returncode, limited.stderr), (0, ""), f"{title}: runs under a limit")
    rows = [bare.stdout.splitlines(), limited.stdout.splitlines()]
    if way.startswith("copy") and command == "codes":
        # Bare, the copy is a second driver that nobody has initialised yet; under a limit there is one.
        rows = [lines[lines.index("init: 0") :] for lines in rows]
    different = [(b, l) for b, l in zip(*rows) if b != l]
    same_length = len(rows[0]) == len(rows[1])
    check(not different and same_length, f"{title}", *(f"bare {b!r}, limited {l!r}" for b, l in different[:20]))


def refused_count(region):
    """The library's own count of refused calls, from its extension of the region: see region.py."""
    if not region.exists():
        return 0
    with open(region, "rb") as file:
        file.seek(2011136 + 16)
        return int.from_bytes(file.read(8), "little")


def check_old():
    """A driver that has next to nothing: what it lacks is answered, and nobody is called as NULL."""
    folder = scratch / "old"
    folder.mkdir()
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(BUILD / "tests/old_driver.so", folder / library)
    names = []
    for text in ("entries.txt", "nvml.txt"):
        lines = (SOURCE / "src/driver" / text).read_text().splitlines()
        names += [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    for where in (folder, scratch / "none"):
        environment = limited_environment(None, memory=LIMIT, LD_LIBRARY_PATH=where)
        ended = run([REACH, "self", "old", *names], environment)
        rows = dict(line.split(": ") for line in ended.stdout.splitlines())
        crashed = {name: answer for name, answer in rows.items() if answer.startswith("signal")}
        known = [name for name, answer in rows.items() if answer != "unreachable"]
        title = "an old driver" if where == folder else "no driver"
        check(len(known) > 80, f"{title}: our functions are called", ended.stderr, len(known))
        check_equal(crashed, {}, f"{title}: and none calls one that is not there")


check_old()
passed = run([REACH, "dlsym", "floats"], bare_environment(None, LD_PRELOAD=LIBVGPU, LD_LIBRARY_PATH=scratch / "old"))
check_equal((passed.stdout, passed.stderr), ("1\n", ""), "a call that may pass keeps its floating arguments")


def check_newer():
    """Exports that take memory or launch by their names, and are in no list of ours, follow the policy; a later version of
    one that is known to do neither passes. Those of NVML that change a card by their names are no-permission."""
    folder = scratch / "newer"
    folder.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(BUILD / "tests/newer_driver.so", folder / name)
    no_permission = dict.fromkeys(("nvmlDeviceSetNewer", "nvmlGpuInstanceCreateNewer_v1"), 4)
    others = dict.fromkeys(("nvmlDeviceGetResetNewer", "nvmlDeviceSettleNewer", "nvmlEventSetResetNewer"), 0)
    for policy, code in (("refuse", 801), ("allow", 0)):
        region = new_region()
        environment = limited_environment(None, memory=LIMIT, region=region, HAMI_UNACCOUNTED=policy, LD_LIBRARY_PATH=folder)
        ended = run([REACH, "dlsym", "newer"], environment)
        wanted = {"cuDriverAsked": 1, "cuMemAllocNewer": code, "cuGLCtxCreate_v2": code, "cuMemFreeNewer": 0, "cuLaunchHostFunc_v9": 0, "cuLaunchKernelEx_v9": code, "cuMemAllocNewer by address": code, "cuMemFree at another address": 1, "cuMemAlloc at another address": 1} | no_permission | others
        got = {name: int(answer) for name, answer in (line.split(": ") for line in ended.stdout.splitlines())}
        check_equal(got, wanted, f"an unknown export that takes memory, {policy}; and the driver is asked for what the program asks for alone")
        words = ended.stderr.count("cuMemAllocNewer")
        check_equal(words, code == 801, "and one line says it where it is refused")
        check_equal(refused_count(region), list(wanted.values()).count(801), "and each refusal is counted")


def check_memory():
    """What decides is looked at once: the driver is given what the library saw, no memory that another thread
    could change in between."""
    folder = scratch / "newer"
    environment = limited_environment(None, memory=LIMIT, LD_LIBRARY_PATH=folder)
    ended = run([REACH, "dlsym", "memory"], environment)
    rows = dict(line.split(": ") for line in ended.stdout.splitlines())
    for name in ("cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphAddNode_v3"):
        check_equal(rows.get(name), "0 with an output", f"{name}: the node's type is looked at once, outputs come back")
    for name in ("cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernelMultiDevice"):
        check_equal(rows.get(name), "0", f"{name}: the stream is looked at once")


check_newer()
check_memory()
for program, way in WAYS:
    check_fill(program, way, "cuMemAlloc_v2")
for preloaded in (
    ("driver before", [SIMDRIVER / "libcuda.so.1", LIBVGPU]),
    ("driver before, bound at once", [SIMDRIVER / "libcuda.so.1", LIBVGPU], {"LD_BIND_NOW": "1"}),
    ("driver's copy before", [copies[2], LIBVGPU]),
    ("libc before", [LIBC, LIBVGPU]),
    ("both before", [LIBC, SIMDRIVER / "libcuda.so.1", LIBVGPU]),
):
    for program, way in ((DIRECT, "linked"), (DIRECT, "next"), (REACH, "dlsym"), (REACH, "default"), (REACH, "proc2")):
        check_fill(program, way, "cuMemAlloc_v2", preloaded)
    check_fill(REACH, f"third-default={THIRD_LINKED}", "cuMemAlloc_v2", preloaded)
    check_fill(REACH, f"fetched-next={THIRD}", "cuMemAlloc_v2", preloaded)
for way in ("dlsym", "fetched=libc.so.6", f"fetched-next={THIRD}"):
    for preloaded in (("wrapper behind", [LIBVGPU, WRAPPER]), ("wrapper before", [WRAPPER, LIBVGPU])):
        check_fill(REACH, way, "cuMemAlloc_v2", preloaded)
for allocator in ALLOCATORS[1:]:
    for program, way in WAYS:
        if way in ("dlsym", "proc2", "linked", "second-next"):
            check_fill(program, way, allocator)
for program, way in WAYS:
    check_same(program, way, "codes", "odd calls are answered as the bare driver does")
for way in ("proc1", "proc2-by-proc1", "proc2-by-proc2"):
    check_same(REACH, way, "versions", "every name, version and flavour means what it means bare")
for program, way in ((REACH, "dlsym"), (DIRECT, "next")):
    check_same(program, way, "others", "other libraries' names are left alone")
finish()

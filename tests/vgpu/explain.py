#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the library says of itself in the region, as hamictl region shows it: launches by kind, waits, what our own code
takes; and whether the region's parts agree."""

import json
import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
import hamicore
from caller import *
from harness import *

EXT, DEVICES = 2011136, 512  # the extension, and its devices in it
UNIT = 1 << 30  # of what is charged, in a device's word


def region(path, *words):
    return run([HAMICTL, "region", *words, path], bare_environment(None))


def shown(path):
    return json.loads(region(path, "--json").stdout)


def change(path, offset, form, more):
    with open(path, "r+b") as file:
        file.seek(offset)
        (value,) = struct.unpack(form, file.read(struct.calcsize(form)))
        file.seek(offset)
        file.write(struct.pack(form, value + more))


def check_counts(cores):
    """Of a load's kernels all but the last few are told, with a limit and without."""
    path, machine = new_region(), Machine()
    guest = start(
        [LOAD, "--kernel", "50us", "--launches", "20000", "--seconds", "60", "--batch", "64", "--hold"],
        limited_environment(machine, memory=GIB, cores=cores, region=path), stdout=subprocess.PIPE,
    )  # fmt: skip
    launches = json.loads(guest.stdout.readline())["launches"]
    (device,), (process,) = shown(path)["devices"], shown(path)["processes"]
    told = process["devices"][0]
    check(0.97 * launches <= told["kernels"] <= launches, f"{cores} %: kernels are counted, all but the last few", told, launches)
    check_equal((told["cooperative"], told["graphs"]), (0, 0), f"{cores} %: and nothing else is")
    check(0 < told["own_ns_per_launch"] < 50000, f"{cores} %: our own code is timed", told)
    check_equal(process["pid"], guest.pid, f"{cores} %: of this process")
    waits = (told["throttled_launches"], device["throttled_launches"], sum(device["waits"]))
    check_equal(waits, (waits[0],) * 3, f"{cores} %: the process' waits are the container's, being alone")
    check((waits[0] > 0) == (cores < 100), f"{cores} %: who is limited waited", waits)
    if cores < 100:
        ratio = told["throttled_ns"] / device["throttled_ns"]
        check(0.8 < ratio < 1.2, f"{cores} %: for as long", ratio)
    text = region(path).stdout
    check(("device 0 waited: <=" in text) == (cores < 100), f"{cores} %: for how long how many waited is told", text)
    check("KERNELS" in text and str(told["kernels"]) in text and "ruled by the environment: held to its share" in text, f"{cores} %: a table says so, too", text)
    guest.terminate()
    guest.wait(20)
    check_equal(shown(path)["processes"], [], f"{cores} %: they are gone with their process")


def check_kinds():
    path, machine = new_region(), Machine()
    one = Caller(limited_environment(machine, memory=GIB, cores=50, region=path)).begin()
    one.must("cuModuleLoadData", f"n{slot('module')}", b"hamisim-module 1\nsize=0\nkernel spin\n\0")
    one.must("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"spin\0")
    launch = lambda name: one.must(name, f"h{slot('function')}", 1, 1, 1, 1, 1, 1, 0, 0, "k1000", *([0] if name == "cuLaunchKernel" else []))
    for _ in range(3):
        for _ in range(10):
            launch("cuLaunchKernel")
        for _ in range(5):
            launch("cuLaunchCooperativeKernel")
        one.must("cuCtxSynchronize")
    time.sleep(0.3)
    for _ in range(200):  # what is paid for in advance is told later
        launch("cuLaunchKernel")
    got = shown(path)["processes"][0]["devices"][0]
    check_equal(got["cooperative"], 15, "cooperative launches are counted by themselves")
    check(30 <= got["kernels"] <= 230, "beside the others", got)
    one.finish()


def check_parts():
    path, machine = new_region(), Machine()
    guest = start([LOAD, "--memory", "100M", "--hold"], limited_environment(machine, memory=GIB, region=path), stdout=subprocess.PIPE)
    guest.stdout.readline()
    ended = region(path, "--check")
    check_equal((ended.returncode, ended.stdout), (0, f"{path}: its parts agree\n"), "a region in use is right")
    slot = shown(path)["processes"][0]["slot"]
    total = hamicore.PROCS + slot * hamicore.SLOT_SIZE + hamicore.USED + 32
    for offset, form, more, words in (
        (EXT + DEVICES, "<Q", 4096 * UNIT, "device 0: .* MiB are charged, and the processes' accounts have"),
        (hamicore.LIMIT, "<Q", MIB - GIB, "and the limit is 1 MiB"),
        (total, "<Q", 512, "slot 0, device 0: HAMi's readers are told"),
        (hamicore.HEAD["proc_num"][0], "<i", -1, "slot 0 is in use, and HAMi's readers stop before it"),
    ):
        change(path, offset, form, more)
        ended = region(path, "--check")
        check(ended.returncode == 1 and re.search(words, ended.stdout) and len(ended.stdout.splitlines()) == 1, f"what is wrong is said: {words}", ended)
        change(path, offset, form, -more)
    check_equal(region(path, "--check").returncode, 0, "and then no more")
    guest.kill()
    guest.wait()
    data = path.read_bytes()
    path.write_bytes(b"")
    ended = region(path, "--check")
    check_equal((ended.returncode, ended.stdout), (0, f"{path}: no process has used it yet\n"), "one of a container that has not begun has nothing wrong")
    for bad in (b"x" * 5000, data[:2200000], hamicore.write([], [])):
        path.write_bytes(bad)
        ended = region(path, "--check")
        check(ended.returncode == 1 and len(ended.stderr.splitlines()) == 1, f"{len(bad)} bytes that are no region are refused with a word", ended)
    check(region("/nowhere").returncode == 1 and "No such file" in region("/nowhere").stderr, "so is what is not there")
    check_equal(run([HAMICTL, "region"], bare_environment(None)).returncode > 0, True, "and no file at all")


def check_refusals():
    """Each is counted once, by its process, device and reason; what was made in another way is no refusal."""
    path, machine = new_region(), Machine(gpus=2, context=60 * MIB, driver={"loading": "eager"})
    environment = limited_environment(machine, memory=256 * MIB, region=path)
    one, other = (Caller(environment) for _ in range(2))
    one.begin(1)
    other.begin(1)
    ptr = lambda number: f"n{slot('ptr', number)}"
    for _ in range(3):
        check_equal(one.call("cuMemAlloc_v2", ptr(1), GIB), OUT_OF_MEMORY, "more than the limit")
    one.must("cuStreamCreate", f"n{slot('stream')}", 1)
    check_equal(one.call("cuMemAllocAsync", ptr(1), GIB, f"h{slot('stream')}"), OUT_OF_MEMORY, "of a pool, too")
    for _ in range(2):
        check_equal(one.call("cuModuleLoadData", f"n{slot('module')}", b"hamisim-module 1\nsize=1073741824\nkernel spin\n\0"), OUT_OF_MEMORY, "code")
    one.must("cuMemAlloc_v2", ptr(2), 100 * MIB)
    check_equal(one.call("cuCtxCreate_v2", f"n{slot('context', 5)}", 0, 1), OUT_OF_MEMORY, "a context")
    one.must("cuMemAllocManaged", ptr(3), 64 * MIB, 1)
    check_equal(one.call("cuMemPoolCreate", f"n{slot('pool')}", struct.pack("<iiiiQQ56x", 1, 0, 77, 0, 0, 0)), NOT_SUPPORTED, "a pool nobody knows where")
    (first, second) = sorted(shown(path)["processes"], key=lambda process: process["pid"] != one.pid)
    check_equal(first["devices"][1]["refusals"], {"data": 4, "contexts": 1, "code": 2, "imports": 0, "unaccounted": 1}, "each is counted once, by its reason")
    check_equal(sum(second["devices"][1]["refusals"].values()) + sum(first["devices"][0]["refusals"].values()), 0, "not of another process or card")
    check_equal(shown(path)["devices"][1]["refusals"], 7, "the container's are those for its limit")
    check_equal(re.search(r"4 data, 1 contexts, 2 code, 1 unaccounted *$", region(path).stdout, re.M) is not None, True, "a table says so, too")
    one.finish()
    one = Caller(environment).begin(1)
    check_equal([sum(device["refusals"].values()) for process in shown(path)["processes"] for device in process["devices"]], [0] * 4, "they go with their process")
    one.finish()
    other.finish()


def check_watch():
    path, machine = new_region(), Machine()
    guest = start([LOAD, "--kernel", "50us", "--seconds", "30"], limited_environment(machine, memory=GIB, cores=50, region=path))
    wait_until(lambda: path.exists() and region(path).returncode == 0 and shown(path)["processes"])
    watcher = start([HAMICTL, "region", "--watch", "--json", path], bare_environment(None), stdout=subprocess.PIPE)
    counts = [json.loads(watcher.stdout.readline())["processes"][0]["devices"][0]["kernels"] for _ in range(3)]
    watcher.terminate()
    check(counts[0] < counts[1] < counts[2], "watched, it is shown again each second", counts)
    check_equal(watcher.wait(10), 0, "until a signal")
    guest.terminate()
    guest.wait(20)


def check_crowded(folder, paths):
    """What the owner of one container's folder puts there hides no other, and does nothing to a terminal."""
    crowd, before = folder / "a-crowd", region(folder).stdout.splitlines()
    crowd.mkdir()
    paths["idle"].with_name("\x1b]0;title\x07.cache").write_bytes(b"x")
    (paths["idle"].parent / "\x1b[2J").mkdir()
    for number in range(1100):
        (crowd / f"{number}.cache").touch()
    for number in range(3000):
        (crowd / f"{number}").touch()
    for words in ((), ("--check",)):
        ended = region(folder, *words)
        check("\x1b" not in ended.stdout + ended.stderr, "names reach no terminal as they are", ended)
        lines = [line for line in ended.stdout.splitlines() if str(crowd) not in line]
        told = len(ended.stdout.splitlines()) - len(lines)
        check_equal((len(lines), told <= 16), (len(before) if not words else 3, True), "of a folder that is full of regions some are told, and all of the others")
    shutil.rmtree(crowd)


def check_folder():
    """As the folder of all containers on a node: a folder for each, with its region."""
    machine, folder = Machine(), scratch / "containers"
    folder.mkdir()
    check(region(folder).returncode == 1 and "no region there" in region(folder).stderr, "a folder without a region says so")
    paths = {name: folder / name / f"{name}.cache" for name in ("busy", "idle", "new")}
    for path in paths.values():
        path.parent.mkdir(parents=True)
        path.touch()
    load = lambda path, *words: start([LOAD, *words], limited_environment(machine, memory=GIB, region=path), stdout=subprocess.PIPE)
    guests = [load(paths["busy"], "--memory", "100M", "--hold") for _ in range(2)]
    for guest in guests:
        guest.stdout.readline()
    load(paths["idle"], "--memory", "10M").wait(20)
    (folder / "busy/limits").write_text("")
    (folder / "busy/deeper").mkdir()
    (folder / "busy/deeper/far.cache").touch()
    (folder / "link.cache").symlink_to(paths["busy"])
    ended = region(f"{folder}/")
    rows = [line.split(None, 4) for line in ended.stdout.splitlines()]
    check_equal((ended.returncode, rows[0], [row[0] for row in rows[1:]]), (0, ["REGION", "PROCESSES", "DEVICES", "USED", "WRONG"], [str(p) for p in paths.values()]), "of a folder of folders the regions are listed")
    check_equal([row[1:3] for row in rows[1:]], [["2", "1"], ["0", "1"], ["0", "-"]], "with their living processes")
    check(rows[1][3] != "-" and rows[2][3] == rows[3][3] == "-", "and what they use", rows)
    check_equal([one["path"] for one in json.loads(region(folder, "--json").stdout)["regions"]], [str(paths["busy"]), str(paths["idle"])], "as JSON, those that were used")
    check_equal(len(region(folder / "busy").stdout.splitlines()), 3, "a folder of its own and one in it have two")
    shutil.rmtree(folder / "busy/deeper")
    check_equal((shown(folder / "busy")["path"], len(shown(folder / "busy")["processes"])), (str(paths["busy"]), 2), "of a container's folder its region is shown")
    check_equal(region(folder / "new").stdout, f"{paths['new']}: no process has used it yet\n", "of one that no process used yet that is said")
    ended = region(folder, "--check")
    check_equal((ended.returncode, [line.rsplit(": ", 1)[1] for line in ended.stdout.splitlines()]), (0, ["its parts agree"] * 2 + ["no process has used it yet"]), "each is checked")
    paths["new"].write_bytes(b"x" * 5000)
    ended = region(folder)
    check(ended.returncode == 0 and "it is not a shared region" in ended.stdout.splitlines()[-1], "what is no region is listed with what is wrong", ended)
    ended = region(folder, "--check")
    check_equal((ended.returncode, len(ended.stdout.splitlines())), (1, 3), "and fails a check, of which the others have theirs")
    check_crowded(folder, paths)
    for number in range(1024):
        (folder / f"more-{number}.cache").touch()
    check("more than 1024 regions" in region(folder).stderr, "their number is bounded", region(folder).stderr)
    for guest in guests:
        guest.kill()


check_counts(50)
check_counts(100)
check_kinds()
check_parts()
check_refusals()
check_watch()
check_folder()
finish()

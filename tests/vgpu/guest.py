#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guests of every habit keep their limit, their manners are left alone, and nothing stays behind.

usage: guest.py habits|crowd|damage
"""

import json
import random
import shutil
import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from conversation import end, go_on, heard

GUEST = BUILD / "tests/guest"
LIMIT = 1 * GIB
NOBODY = 65534


def guest(verbs, environment, **options):
    return run([GUEST, *verbs.split()], environment, **options)


def said(ended):
    return [json.loads(line) for line in ended.stdout.splitlines()]


def begin(verbs, environment, **options):
    return start([GUEST, *verbs.split()], environment, **options)


def check_full(machine, pids, sentence):
    """The processes together hold exactly the limit, by the simulator's count."""
    used = sum(machine.used(pid) for pid in pids)
    check(LIMIT - 512 < used <= LIMIT, sentence, f"limit {LIMIT}, used {used}, off by {LIMIT - used}")


# Habits


def habit_manners():
    machine = Machine()
    verbs = "remember init alloc=1M launch=10 free compare inheritable"
    ended = guest(verbs, limited_environment(machine, memory=LIMIT, cores=50))
    check_equal(
        (ended.returncode, ended.stdout, ended.stderr),
        (0, "", ""),
        "signal handlers, mask, umask, environment and descriptors are as they were; nothing is said",
    )


def habit_idle():
    """A program that never asks for a GPU: no region, no word, whatever the environment says."""
    region = new_region()
    for program in (["/bin/ls", "/"], ["/bin/sh", "-c", "echo $((1+1))"], [sys.executable, "-c", "print(2)"]):
        plain = run(program, bare_environment(None))
        preloaded = run(program, limited_environment(None, memory="garbage", cores="-1", region=region))
        check_equal(
            (preloaded.returncode, preloaded.stdout, preloaded.stderr),
            (plain.returncode, plain.stdout, plain.stderr),
            f"{program[0]} preloaded, with no driver at all, does as it does",
        )
    check(not region.exists(), "and no region is made")
    no_driver = run([GUEST, "init"], limited_environment(None, memory=LIMIT, region=region))
    check_equal((no_driver.returncode, no_driver.stdout), (70, ""), "a missing driver is missing")


def habit_fork_before():
    machine = Machine()
    verbs = "fork init fill say wait"
    environment = limited_environment(machine, memory=LIMIT)
    running = begin(verbs, environment)
    first = heard(running)
    check_full(machine, [first.get("pid")], "a child forked before the first call has the whole limit")
    second = begin("init say wait", environment)
    check_equal(heard(second).get("code"), 2, "and leaves nothing to another")
    check_equal((end(second), end(running)), (0, 0), "both end well")
    check_equal(machine.used(), 0, "nothing stays")


def habit_fork_aside():
    machine = Machine()
    environment = limited_environment(machine, memory=LIMIT)
    for way in ("_exit", "exit"):
        running = begin(f"init alloc=256M fork-aside={way} vfork fill say wait free say wait", environment)
        whole = heard(running)
        check_full(machine, [running.pid], f"children that {way} take nothing of the parent's with them")
        check_equal(whole.get("code"), 2, "and the parent is refused at its limit")
        go_on(running)
        check_equal(heard(running).get("taken"), 0, "and frees all")
        check_equal(end(running), 0, "and ends well")
    ended = guest("init alloc=256M fork say", environment)
    check(ended.returncode == 0, "a child that inherits a context goes on without a crash", ended.returncode)


def habit_exec():
    machine = Machine()
    environment = limited_environment(machine, memory=LIMIT)
    running = begin("init fill exec init fill say wait", environment)
    again = heard(running)
    check_equal(again.get("pid"), running.pid, "exec keeps the pid")
    check_full(machine, [running.pid], "what was held before an exec is free after it, all of it")
    check_equal(end(running), 0, "and ends well")


def habit_threads():
    machine = Machine()
    environment = limited_environment(machine, memory=500 * MIB)  # the context and a little
    running = begin("init threads=16 say wait fill say wait", environment)
    after = heard(running)
    left = machine.used(running.pid) - 300 * MIB
    check_equal((after.get("strange"), left), (0, 0), "16 threads take and give back, and nothing is left")
    go_on(running)
    heard(running)
    used = machine.used(running.pid)
    check(500 * MIB - 512 < used <= 500 * MIB, "the limit is whole again", used, 500 * MIB)
    peak = [p["peak"][0] for p in machine.view()["processes"] if p["pid"] == running.pid]
    check(peak and peak[0] <= 500 * MIB, "and never was it exceeded", peak)
    check_equal(end(running), 0, "and ends well")


def cancel():
    """
    A thread that is cancelled takes no lock of ours along: where cards are shared the library reads files beside launches.
    Not under a sanitizer, which takes what is left of such a thread's stack for a write beyond something.
    """
    machine = Machine()
    uuid = machine.view()["gpus"][0]["uuid"]
    cells = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    cell_of(cells, uuid, 1)
    keys = {"CUDA_DEVICE_MEMORY_LIMIT_0": LIMIT, "CUDA_DEVICE_SM_LIMIT_0": 30} | cell_of(cells, uuid, 0)
    library = container(NVIDIA_VISIBLE_DEVICES=uuid, HAMI_VISIBLE_DEVICES="granted", **keys)
    try:
        ended = guest("init cancel=300 launch=10 say", bare_environment(machine, LD_PRELOAD=library, CUDA_VISIBLE_DEVICES=uuid))
        check_equal((ended.returncode, [one["code"] for one in said(ended)]), (0, [0]), "threads that are cancelled leave no lock behind")
    except subprocess.TimeoutExpired:
        check(False, "threads that are cancelled leave no lock behind", "the next one waits for ever")
    ended = guest("init cancel=1 launch=10 say cancel-others say launch=10 say", bare_environment(machine, LD_PRELOAD=library, CUDA_VISIBLE_DEVICES=uuid))
    codes = [one["code"] for one in said(ended)]
    check(ended.returncode == 0 and len(codes) == 3 and codes[1] > 0 and codes[2] == 0, "the library's own thread is not cancelled", codes, ended.stderr)


def habit_small_stack():
    """A thread whose stack has room for little more than the driver's calls has room for ours, too, where limits change and cards are shared.

    Not under a sanitizer, whose frames are larger."""
    if SANITIZER:
        return
    machine = Machine()
    uuid = machine.view()["gpus"][0]["uuid"]
    cells = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    cell_of(cells, uuid, 1)
    keys = {"NVIDIA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_SM_LIMIT_0": 30, "HAMI_VISIBLE_DEVICES": "granted"} | cell_of(cells, uuid, 0)
    library, region = ruled(machine, **keys)
    plain = guest(f"small-stack={24 * KIB} say", bare_environment(machine))
    check_equal((plain.returncode, [one["code"] for one in said(plain)]), (0, [0]), "without the library 24 KiB are enough")
    running = begin(f"small-stack={24 * KIB} say", bare_environment(machine, LD_PRELOAD=library, CUDA_VISIBLE_DEVICES=uuid))
    sizes = 0
    while running.poll() is None:
        sizes += 1
        write_limits(library, CUDA_DEVICE_MEMORY_SHARED_CACHE=region, **keys, CUDA_DEVICE_MEMORY_LIMIT_0=f"{1000 + sizes}m")
        time.sleep(0.05)
    out, _ = running.communicate(timeout=20)
    code = json.loads(out).get("code") if running.returncode == 0 else None
    check_equal((running.returncode, code, sizes > 10), (0, 0, True), "nor are they too few with it")


def habit_fork_in_thread():
    """What a thread paid in advance is given back as it ends, and not by the copy of it in a child, where others hold its locks.

    Not under a sanitizer, whose allocator's own lock another thread may hold as well."""
    if SANITIZER:
        return
    ended = guest("init fork-in-thread say", limited_environment(Machine(), memory=LIMIT, cores=60))
    check_equal((ended.returncode, [one["code"] for one in said(ended)]), (0, [0]), "the child of a thread that launches ends by itself")


def habit_closefrom():
    machine = Machine()
    environment = limited_environment(machine, memory=LIMIT)
    running = begin("init alloc=64M closefrom=3 say wait fill say wait", environment)
    heard(running)
    other = begin("init fill say wait", environment)
    heard(other)
    check_full(machine, [running.pid, other.pid], "one that closed its descriptors still counts")
    check_equal(end(other), 0, "the other ends")
    go_on(running)
    heard(running)
    check_full(machine, [running.pid], "and still gets what is left, and no more")
    check_equal(end(running), 0, "and ends well")
    check_equal(machine.used(), 0, "nothing stays on the device")
    fresh = begin("init fill say wait", environment)
    heard(fresh)
    check_full(machine, [fresh.pid], "nor on the ledger")
    end(fresh)


def habit_setuid():
    if os.geteuid() != 0:
        check(True, "setuid: not root, so not tried")
        return
    machine = Machine()
    os.chmod(machine.path, 0o666)
    os.chmod(scratch, 0o755)
    # The checkout may lie where others can't look.
    libraries = scratch / "libraries"
    libraries.mkdir()
    for library in (LIBVGPU, SIMDRIVER / "libcuda.so.1", SIMDRIVER / "libnvidia-ml.so.1"):
        shutil.copy(library, libraries)
    environment = limited_environment(
        machine, memory=LIMIT, library=libraries / LIBVGPU.name, LD_LIBRARY_PATH=libraries
    )
    running = begin(f"init alloc=64M setuid={NOBODY} fill say wait free say wait", environment)
    whole = heard(running)
    check_equal((whole.get("code"), whole.get("strange")), (2, 0), "one that dropped its rights goes on")
    check_full(machine, [running.pid], "within its limit")
    go_on(running)
    check_equal(heard(running).get("taken"), 0, "and gives back")
    check_equal(end(running), 0, "and ends well")
    other = begin(f"setuid={NOBODY} init fill say wait", environment)
    check_equal(heard(other).get("code"), 2, "another user of the same container counts, too")
    check_full(machine, [other.pid], "within the same limit")
    end(other)


def habit_file():
    """Where there is a limits file it rules; the environment can only lower."""
    machine = Machine()
    uuid = machine.view()["gpus"][0]["uuid"]
    library = container(NVIDIA_VISIBLE_DEVICES=uuid, CUDA_DEVICE_MEMORY_LIMIT_0="1024m")
    for says, wanted in (
        ({}, 1 * GIB),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "3g"}, 1 * GIB),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "0"}, 1 * GIB),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "512m"}, 512 * MIB),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "512m"}, 512 * MIB),
        ({"CUDA_DISABLE_CONTROL": "true"}, 1 * GIB),
    ):
        running = begin("init fill say wait", bare_environment(machine, LD_PRELOAD=library, **says))
        heard(running)
        used = machine.used(running.pid)
        check(wanted - 512 < used <= wanted, f"a file of 1 GiB and {says or 'no word'}", f"used {used}, wanted {wanted}")
        end(running)
    environment = limited_environment(machine, library=library)
    first, second = (begin("init fill say wait", environment | {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(new_region())}) for _ in (1, 2))
    heard(first), heard(second)
    used = machine.used()
    check(used <= 1 * GIB, "a region of one's own choice does not make a second limit", used)
    end(first), end(second)


def ruled(machine, **keys):
    """A container of 1 GiB with a limits file: its library and its region."""
    region = new_region()
    keys = {"NVIDIA_VISIBLE_DEVICES": machine.view()["gpus"][0]["uuid"], "CUDA_DEVICE_MEMORY_LIMIT_0": "1024m"} | keys
    return container(region, **keys), region


def refused(ended, sentence):
    answers = said(ended)
    check_equal([one["taken"] for one in answers], [0] * len(answers), sentence)
    check_equal(len(ended.stderr.splitlines()), 1, "and one line says why")


def habit_small_files():
    """A program that may make no large files is refused memory, not ended by the signal; where its region is made already it has its limit."""
    import resource

    machine = Machine()
    region = new_region()
    environment = limited_environment(machine, memory=LIMIT, region=region)
    small = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64 * KIB, 64 * KIB))}
    for is_there in (False, True):
        if is_there:
            region.write_bytes(b"")
        ended = guest("init fill say", environment, **small)
        if check_equal(ended.returncode, 0, "it lives, with an empty region" if is_there else "it lives, without a region"):
            refused(ended, "and is refused memory")
            check("File too large" in ended.stderr, "and told so", ended.stderr)
    guest("init", environment)
    running = begin("init fill say wait", environment, **small)
    heard(running)
    check_full(machine, [running.pid], "once another process has made the region it has its limit")
    check_equal(end(running), 0, "and ends well")


def habit_exit():
    """Once a program exits, our thread leaves the driver alone."""
    machine = Machine()
    for _ in range(5):
        ended = guest("quiet-exit init launch=50", limited_environment(machine, memory=LIMIT, cores=50))
        check_equal((ended.returncode, ended.stderr), (0, ""), "no thread of ours goes on after exit()")


def habit_relative_preload():
    """The limits file is found wherever the program goes."""
    machine = Machine()
    library, _ = ruled(machine)
    for path in ("./libvgpu.so", f"../{library.parent.name}/libvgpu.so"):
        running = begin("chdir=/ init fill say wait", bare_environment(machine, LD_PRELOAD=path), cwd=library.parent)
        heard(running)
        check_full(machine, [running.pid], f"preloaded as {path}, then in another folder")
        end(running)
    deep = pathlib.Path(library.parent, *["x" * 200] * 5)
    deep.mkdir(parents=True)
    long = shutil.copy(library, deep)
    refused(guest("init fill say", bare_environment(machine, LD_PRELOAD=long)), "by a path too long to keep nothing is given")


def habit_links():
    """Who links to the library keeps its limits; where it has none, as with `hamictl run`, those beside the link rule."""
    machine = Machine()
    library, _ = ruled(machine)
    other = pathlib.Path(tempfile.mkdtemp(dir=scratch)) / "libvgpu.so"
    other.symlink_to(library)
    beside, _ = ruled(machine)
    beside.unlink()
    beside.symlink_to(LIBVGPU)
    for path, title in ((other, "a link to a library with limits"), (beside, "a link with limits beside it, to a library without")):
        running = begin("init fill say wait", bare_environment(machine, LD_PRELOAD=path))
        heard(running)
        check_full(machine, [running.pid], title)
        end(running)


def resize(machine, library, region, size):
    uuid = machine.view()["gpus"][0]["uuid"]
    write_limits(library, CUDA_DEVICE_MEMORY_SHARED_CACHE=region, NVIDIA_VISIBLE_DEVICES=uuid, CUDA_DEVICE_MEMORY_LIMIT_0=size)
    time.sleep(0.1)  # the library looks each 50 ms


def habit_other_root():
    """A file of the program's own that has the path of the limits file, once the program has another root, is none."""
    if os.geteuid() != 0:
        print("skipped: another root needs root")
        return
    for before in ("", "closefrom=3 "):
        machine = Machine()
        library, region = ruled(machine)
        root = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        own = root / library.relative_to("/")
        own.parent.mkdir(parents=True)
        resize(machine, own, region, "7g")
        verbs = f"init alloc=64M say wait {before}chroot={root} sleep=100 fill say wait free fill say wait"
        running = begin(verbs, bare_environment(machine, LD_PRELOAD=library))
        heard(running), go_on(running), heard(running)
        check_full(machine, [running.pid], f"{before}chroot: the limit stays")
        resize(machine, library, region, "512m")
        go_on(running), heard(running)
        used, wanted = machine.used(running.pid), LIMIT if before else 512 * MIB
        check(wanted - 512 < used <= wanted, f"{before}chroot: a change is seen where the folder is still open", used)
        check_equal(end(running), 0, "and it ends well")


def habit_mounted_over():
    """A file that a program mounts over the limits, in a mount namespace of its own, is none, whenever it does so."""
    for title, verbs in (("before the first call", "mount={} init fill say wait"), ("and closes all descriptors", "init alloc=64M mount={} closefrom=3 sleep=300 fill say wait")):
        machine = Machine()
        library, region = ruled(machine)
        own = scratch / "own-limits"
        own.write_text((library.parent / "limits").read_text().replace("1024m", "7g"))
        running = begin(verbs.format(f"{own}:{library.parent / 'limits'}"), bare_environment(machine, LD_PRELOAD=library), stderr=subprocess.DEVNULL)
        line = running.stdout.readline()
        if not line and running.wait(20) == 77:
            print("skipped: a mount namespace can't be made here")
            return
        used = machine.used(running.pid)
        check(used <= LIMIT, f"mounted over {title}: no more than the limit", used)
        end(running)


def habit_parked():
    """Where a thread is held while it reads the limits nothing is given by those that were known before."""
    machine = Machine()
    library, region = ruled(machine)
    running = begin("init alloc=64M park say wait fill say wait", bare_environment(machine, LD_PRELOAD=library), stderr=subprocess.PIPE)
    heard(running)
    resize(machine, library, region, "512m")
    time.sleep(11)
    go_on(running)
    heard(running)
    used = machine.used(running.pid)
    check(used <= 512 * MIB, "a limit that was lowered is not exceeded", used)
    running.kill()
    check("a thread of this process is held while it reads the limits" in running.communicate()[1], "and a word says why")


def habit_no_descriptors():
    """A change that can't be read is not lost, and nothing is given for ever by limits that are not known."""
    machine = Machine()
    library, region = ruled(machine)
    verbs = "init alloc=64M say wait files=3 alloc=64M say wait alloc=64M say wait files=1024 sleep=100 fill say wait"
    running = begin(verbs, bare_environment(machine, LD_PRELOAD=library), stderr=subprocess.PIPE)
    heard(running)
    resize(machine, library, region, "512m")
    go_on(running)
    check_equal(heard(running).get("code"), 0, "for a while the limits stay as they were")
    time.sleep(10.5)
    go_on(running)
    check_equal(heard(running).get("code"), 2, "after 10 s nothing is given")
    go_on(running)
    heard(running)
    used = machine.used(running.pid)
    check(512 * MIB - 512 < used <= 512 * MIB, "once it can be read it is in force", used)
    _, word = running.communicate("\n", timeout=20)
    check_equal((running.returncode, len(word.splitlines())), (0, 1), "and it ends well, with a word")


def habit_file_gone():
    """A limits file that was there and is gone is no freedom."""
    machine = Machine()
    library, region = ruled(machine)
    limits = library.parent / "limits"
    ended = guest(f"unlink={limits} init fill say", bare_environment(machine, LD_PRELOAD=library))
    refused(ended, "removed before the first call, nothing is given")

    library, region = ruled(machine)
    environment = bare_environment(machine, LD_PRELOAD=library)
    running = begin(f"init alloc=64M say wait fill say wait", environment)
    heard(running)
    (library.parent / "limits").unlink()
    time.sleep(0.3)
    go_on(running)
    heard(running)
    check_full(machine, [running.pid], "removed later, what it said stays in force")
    end(running)
    ended = guest("init fill say", environment | {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region)})
    refused(ended, "a region that a file ruled is not for a process without one")


def source_address():
    """Where the library has what it knows of its limits file."""
    names = subprocess.run(["nm", LIBVGPU], capture_output=True, text=True, check=True).stdout
    return next(line.split()[0] for line in names.splitlines() if line.endswith(" source"))


def filtered(ways, verbs):
    return [BUILD / "tests/filtered", ways, source_address(), GUEST, *verbs.split()]


def habit_file_filtered():
    """A limits file that the program's own filter of system calls hides is no freedom either."""
    if SANITIZER:  # whose own calls would be filtered
        return
    for ways in ("hidden,unopened", "hidden,unopened,unseen,unlisted", "hidden,input", "empty", "input", "seen,unopened", "unseen,unopened"):
        machine = Machine()
        library, _ = ruled(machine)
        with open(pathlib.Path(tempfile.mkdtemp(dir=scratch)) / "own", "w+") as own:
            own.write("CUDA_DEVICE_MEMORY_LIMIT=7g\n")
            own.seek(0)
            ended = run(filtered(ways, "init fill say"), bare_environment(machine, LD_PRELOAD=library), stdin=own)
        if ended.returncode == 77:
            check(True, "filters: the kernel has none, so not tried")
            return
        refused(ended, f"{ways}: nothing is given")

    alone = pathlib.Path(tempfile.mkdtemp(dir=scratch)) / "libvgpu.so"
    shutil.copy(LIBVGPU, alone)
    machine = Machine()
    environment = limited_environment(machine, memory=LIMIT, library=alone)
    running = start(filtered("unlisted", "init fill say wait"), environment, stderr=subprocess.PIPE)
    check_equal(heard(running).get("taken", 0), 0, "where there is none, and that can't be told, neither")
    running.communicate("\n", timeout=20)

    for way in ("unseen", "seen", "unopened", "empty"):
        machine = Machine()
        library, region = ruled(machine)
        verbs = f"init alloc=32M say filter={way} wait alloc=32M say wait alloc=400M say wait"
        running = begin(verbs, bare_environment(machine, LD_PRELOAD=library), stderr=subprocess.PIPE)
        heard(running)
        resize(machine, library, region, "400m")
        go_on(running), heard(running)
        time.sleep(10.5)
        go_on(running)
        check_equal(heard(running).get("code"), 2, f"{way}: changed limits that can't be read don't leave all as it was for ever")
        running.communicate("\n", timeout=20)


def habit_cells_hidden():
    """Who can't find its card's cells knows of no priority of others, and is given nothing."""
    machine = Machine()
    uuid = machine.view()["gpus"][0]["uuid"]
    cells = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    keys = cell_of(cells, uuid, 1)
    for hidden in ("HAMI_CARD_CELLS", "HAMI_CARD_RANKS"):
        library, _ = ruled(machine, **keys | {"HAMI_CARDS": "", hidden: cells / "nowhere"})
        refused(guest("init fill say", bare_environment(machine, LD_PRELOAD=library)), f"without {hidden}, nothing is given")
    library, _ = ruled(machine, **keys)
    running = begin("init fill say wait", bare_environment(machine, LD_PRELOAD=library))
    heard(running)
    check_full(machine, [running.pid], "with them it has its limit")
    check_equal(end(running), 0, "and ends well")


def habit_region_removed():
    """There is one ledger, whatever happens to the region's file."""
    for way in ("removed", "replaced", "renamed"):
        machine = Machine()
        library, region = ruled(machine)
        inode = region.stat().st_ino
        write_limits(
            library,
            CUDA_DEVICE_MEMORY_SHARED_CACHE=region,
            CUDA_DEVICE_MEMORY_LIMIT="1024m",
            HAMI_REGION_INODE=inode,
        )
        environment = bare_environment(machine, LD_PRELOAD=library)
        running = begin("init alloc=256M say wait fill say wait", environment, stderr=subprocess.PIPE)
        heard(running)
        region.rename(region.with_suffix(".old")) if way == "renamed" else region.unlink()
        if way == "replaced":
            region.touch()
        refused(guest("init fill say", environment), f"a region that was {way}: no second one begins")
        time.sleep(0.3)
        go_on(running)
        after = heard(running)
        if way != "renamed":
            check_equal(after.get("taken"), 256 * MIB, "and the one that has it gets no more")
        check(machine.used() <= LIMIT, "together they hold no more than the limit", machine.used())
        _, word = running.communicate("\n\n", timeout=20)
        check_equal((running.returncode, len(word.splitlines())), (0, way != "renamed"), "and ends well, with a word")


def habit_forge():
    """A program that writes into its region gets no more than the limit for it."""
    machine = Machine()
    library, region = ruled(machine)
    running = begin(f"init fill forge={region} fill forge={region} fill say wait", bare_environment(machine, LD_PRELOAD=library))
    heard(running)
    used = machine.used(running.pid)
    check(used <= LIMIT, "the ledger's word zeroed: no more than the limit", used)
    check_equal(end(running), 0, "and ends well")


def habit_raise():
    """A raise in the file is in force though the environment says what it was given."""
    machine = Machine()
    given = {"HAMI_ENVIRONMENT_MEMORY_LIMIT_0": "512m"}
    library, _ = ruled(machine, **given)
    for says, wanted in (("512m", LIMIT), ("510m", 510 * MIB)):
        environment = bare_environment(machine, LD_PRELOAD=library, CUDA_DEVICE_MEMORY_LIMIT_0=says)
        running = begin("init fill say wait", environment)
        heard(running)
        used = machine.used(running.pid)
        check(wanted - 512 < used <= wanted, f"given 512 MiB, raised to 1 GiB, the environment says {says}", used)
        end(running)


def habit_instance():
    """A device that the limits name as an instance is known by its 16 bytes."""
    machine = Machine()
    uuid = machine.view()["gpus"][0]["uuid"]
    # The simulated NVML has no such name, so the context is not measured.
    size = {"CUDA_DEVICE_CONTEXT_SIZE_0": "300m"}
    library, _ = ruled(machine, NVIDIA_VISIBLE_DEVICES="MIG-" + uuid[4:], CUDA_TASK_PRIORITY=5000, **size)
    running = begin("init fill say wait", bare_environment(machine, LD_PRELOAD=library))
    answer = heard(running)
    check(answer.get("code") == 2 and LIMIT // 2 < answer["taken"] <= LIMIT, "MIG- and the uuid gets its memory", answer)
    end(running)


def habit_own_functions():
    """A program may replace functions of the C library, a sanitizer for one."""
    ended = run([BUILD / "tests/guest_own_functions", "init", "alloc=1M", "launch=300", "free"], limited_environment(Machine(), memory=LIMIT, cores=10))
    check_equal((ended.returncode, ended.stderr), (0, ""), "one with a dl_iterate_phdr and a clock of its own runs, and the clock is not asked by us")
    library = container(CUDA_DEVICE_MEMORY_LIMIT_0=LIMIT, CUDA_DEVICE_SM_LIMIT_0=10)
    own = shutil.copy(BUILD / "tests/own_functions.so", library.parent / "libc.so.6.own")
    ended = guest("init alloc=1M launch=300 free", bare_environment(Machine(), LD_PRELOAD=f"{own}:{library}"))
    check_equal((ended.returncode, ended.stderr), (0, ""), "nor where they are in a file whose name begins as the C library's")


def habit_early():
    """A library of the program's that begins with CUDA as it is loaded, which is before ours."""
    library = container(CUDA_DEVICE_MEMORY_LIMIT_0=LIMIT)
    ended = guest("init fill say", bare_environment(Machine(), LD_PRELOAD=f"{library}:{BUILD / 'tests/early.so'}"))
    check_equal((ended.returncode, ended.stderr), (0, ""), "a library may call cuInit as it is loaded")
    check_equal([line["code"] for line in said(ended)], [2], "and the limit holds")


def habit_loading():
    """A constructor that asks for an address holds the loader's lock: nobody who waits for that may keep it waiting."""
    words = [BUILD / "tests/loading", BUILD / "tests/loading_asks.so"]
    ended = run(words, limited_environment(Machine(), memory=1 * GIB))
    check_equal((ended.returncode, ended.stdout), (0, "0 0\n"), "an address is had in a constructor while another thread opens NVML")


def habit_unread_words():
    """Words that nobody reads neither end a program nor hold it up, and never get into its own files."""
    import resource

    environment = limited_environment(Machine(), memory="garbage")
    plain = guest("init", environment)
    check_equal(plain.stderr.count("hami: "), 1, "a program is told something")
    for title, prepare in (("that nobody has open", lambda reads, writes: os.close(reads)), ("that is full", lambda reads, writes: (os.set_blocking(writes, False), fill_pipe(writes), os.set_blocking(writes, True)))):
        reads, writes = os.pipe()
        prepare(reads, writes)
        ended = start([GUEST, "init"], environment, stderr=writes)
        os.close(writes)
        check_equal(ended.wait(20), plain.returncode, f"by a pipe {title} it ends as ever")
    folder = new_region().parent
    full = folder / "full"
    with full.open("a") as stderr:
        nothing = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        check_equal(start([GUEST, "init"], environment, stderr=stderr, preexec_fn=nothing).wait(20), plain.returncode, "by a log that may not grow it ends as ever")
    check_equal(full.read_text(), "", "and nothing is written")
    data, log = folder / "data", folder / "log"
    for path, argument in ((data, data), (log, f"append,{log}")):
        check_equal(guest(f"stderr={argument} init", environment).returncode, plain.returncode, "a program may have another file as descriptor 2")
    check_equal((data.read_text(), log.read_text().count("hami: ")), ("", 1), "its data stay its own, and a log has the words")


def fill_pipe(writes):
    try:
        while True:
            os.write(writes, b"x" * 4096)
    except BlockingIOError:
        pass


def habit_bad_words():
    """What can't be read is never 'no limit'; one line says so, once."""
    for word in ("abc", "-1", "1.5.2g", "99999999999999999999g", "12q"):
        machine = Machine()
        ended = guest("init fill say", limited_environment(machine, memory=word))
        lines = ended.stderr.splitlines()
        check(
            len(lines) == 1 and ended.returncode >= 0,
            f"a memory limit of {word!r} is named in one line",
            ended.stderr,
            ended.returncode,
        )
        answers = said(ended)
        check(
            not answers or answers[-1]["taken"] == 0,
            f"and nothing is given out on the strength of it",
            answers,
        )


# A crowd


def crowd():
    machine = Machine(memory=16 * GIB, context=4 * MIB)
    limit = 256 * 4 * MIB + 64 * MIB
    environment = limited_environment(machine, memory=limit)
    began = time.monotonic()
    running = [begin("init say wait churn=3000 say wait", environment) for _ in range(256)]
    going = [heard(one) for one in running]
    check_equal(
        [one for one in going if one.get("code") != 0], [], "256 processes at once all get a context"
    )
    print(f"      after {time.monotonic() - began:.2f} s")
    for one in running:
        go_on(one)
    highest, churning = 0, time.monotonic()
    while time.monotonic() - churning < 4:
        highest = max(highest, machine.used())
    finished = [heard(one) for one in running]
    highest = max(highest, machine.used())
    took = time.monotonic() - began
    check_equal([one for one in finished if one.get("strange") != 0], [], "and only ever good answers")
    check(highest <= limit, "together they never hold more than the limit", f"limit {limit}, highest {highest}")
    check(highest > 256 * 4 * MIB, "while they do hold some", highest)
    check_equal({end(one) for one in running}, {0}, f"and all end well ({took:.1f} s)")
    check_equal(machine.used(), 0, "nothing stays")
    last = begin("init fill=4M say wait", environment)
    heard(last)
    used = machine.used(last.pid)
    check(limit - 512 < used <= limit, "the next one has the whole limit", f"limit {limit}, used {used}")
    end(last)


# Damage


def damaged(machine, region, sentence, limit=LIMIT, word=True):
    """A guest on a region that is not one: no crash, no more than the limit, at most one line."""
    ended = guest("init fill say", limited_environment(machine, memory=limit, region=region), timeout=30)
    view = machine.view()
    answers = said(ended) if ended.returncode == 0 else []
    check(ended.returncode >= 0, f"{sentence}: no crash", ended.returncode, ended.stderr)
    taken = answers[-1]["taken"] if answers else 0
    check(taken <= limit, f"{sentence}: no more than the limit", taken, view)
    lines = ended.stderr.splitlines()
    check(len(lines) <= 1, f"{sentence}: said once at most", ended.stderr)
    if taken < limit - 400 * MIB and word:
        check(len(lines) == 1, f"{sentence}: a refusal is explained", ended.stderr, answers)
    return taken, ended.stderr


def good_region(machine):
    region = new_region()
    guest("init alloc=1M", limited_environment(machine, memory=LIMIT, region=region))
    return region.read_bytes()


def damage():
    machine = Machine()
    good = good_region(machine)
    for size in (0, 1, 4, 1000, 4096, 2008952, 2008953, 2011136, 2011137, len(good) - 1):
        region = new_region()
        region.write_bytes(good[:size])
        damaged(machine, region, f"cut to {size} bytes")
    for kind, content in (
        ("garbage", random.Random(1).randbytes(len(good))),
        ("zeroes", bytes(len(good))),
        ("ones", b"\xff" * len(good)),
        ("text", b"hello\n" * 1000),
        ("of another version", good[:4] + struct.pack("<II", 2, 0) + good[12:]),
        ("long", good + bytes(1 << 20)),
    ):
        region = new_region()
        region.write_bytes(content)
        damaged(machine, region, kind)
    link, folder, pipe = new_region(), new_region(), new_region()
    link.symlink_to(scratch / "elsewhere")
    folder.mkdir()
    os.mkfifo(pipe)
    damaged(machine, link, "a symbolic link")
    check(not (scratch / "elsewhere").exists(), "and what it points to is not made")
    damaged(machine, folder, "a folder")
    damaged(machine, pipe, "a pipe")
    damaged(machine, scratch / "no/such/folder/region", "a folder that is not there")


def damage_bytes(rounds):
    """Good regions with bytes changed, in the parts that decide: no crash, no hang, at most a line."""
    machine = Machine()
    good = good_region(machine)
    seed = int(os.environ.get("HAMI_TEST_SEED", time.time_ns() & 0xFFFFFFFF))
    chance = random.Random(seed)
    print(f"seed {seed}")
    spans = ((0, 1856), (1856, 1856 + 3 * 1960), (2008896, 2008952), (2011136, 2011136 + 24576))
    for round in range(rounds):
        content = bytearray(good)
        for _ in range(chance.choice((1, 4, 64, 1024))):
            low, high = chance.choice(spans)
            content[chance.randrange(low, min(high, len(content)))] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        region = new_region()
        region.write_bytes(content)
        ended = guest("init alloc=1M churn=5 say", limited_environment(machine, memory=LIMIT, region=region), timeout=30)
        lines = ended.stderr.splitlines()
        if ended.returncode < 0 or len(lines) > 1:
            kept = BUILD / f"hostile-region-{seed}-{round}"
            kept.write_bytes(content)
            check(False, f"hostile bytes, round {round}: no crash, one line at most", ended.returncode, ended.stderr, str(kept))
        region.unlink()
    check(True, f"{rounds} hostile regions were met")


def damage_full_disk():
    folder = scratch / "full"
    folder.mkdir()
    mounted = run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], bare_environment(None))
    if mounted.returncode != 0:
        print("a full disk: not tried, mounting is not permitted here")
        return False
    try:
        machine = Machine()
        taken, word = damaged(machine, folder / "region", "a full disk")
        print(f"      said: {word.strip()}")
        (folder / "filler").write_bytes(b"x" * (64 << 10)) if not (folder / "region").exists() else None
        damaged(machine, folder / "second", "a disk with no byte left")
    finally:
        run(["umount", "-l", folder], bare_environment(None))
    return True


what = sys.argv[1] if len(sys.argv) > 1 else "habits"
if what == "habits":
    for habit in [f for n, f in sorted(globals().items()) if n.startswith("habit_")]:
        print(f"-- {habit.__name__}")
        habit()
elif what == "cancel":
    cancel()
elif what == "crowd":
    crowd()
elif what == "damage":
    damage()
    damage_bytes(60)
elif what == "full-disk":
    if not damage_full_disk():
        skip("mounting a small tmpfs is not permitted here")
finish()

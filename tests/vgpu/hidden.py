#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the driver takes for itself, contexts, code and heaps, is held to the limit by the simulator's own count."""

import json
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from conversation import end, go_on, heard

HIDDEN = BUILD / "tests/hidden"
CONTEXT = 300 * MIB
OOM = 2
SETTLED_S = 3  # by then what came unseen is in the account


def begin(verbs, environment, **options):
    return start([HIDDEN, *verbs.split()], environment, **options)


def accounted(said):
    """What the library thinks is in use: all that it tells, less what is free."""
    code, free, total = said["info"]
    return total - free if code == 0 else None


def check_account(machine, running, said, sentence):
    used = machine.used(running.pid)
    check_equal(accounted(said), used, sentence)
    return used


# Heaps


def heap_over():
    """A stack for 64 KiB a thread takes 13.9 GiB: refused before it is taken, whatever the driver keeps."""
    for heaps in ("keep", "shrink"):
        machine = Machine(memory=80 * GIB, driver={"heaps": heaps})
        environment = limited_environment(machine, memory=2 * GIB)
        running = begin("init create limit=0:64K was=0:1K limit=2:22G was=2:8M alloc=1G fill say wait", environment)
        said = heard(running)
        check_equal(said.get("codes"), [0, 0, OOM, 0, OOM, 0, 0], f"heaps {heaps}: over the limit is out of memory, and not done")
        used = check_account(machine, running, said, f"heaps {heaps}: and what is held is in the account")
        check(used <= 2 * GIB, f"heaps {heaps}: within the limit", used)
        peak = [p["peak"][0] for p in machine.view()["processes"] if p["pid"] == running.pid]
        check(peak and peak[0] <= 2 * GIB, f"heaps {heaps}: at any time", peak)
        end(running)


def heap_twice():
    """All that the limits of a context took goes with it."""
    machine = Machine()
    environment = limited_environment(machine, memory=4 * GIB)
    verbs = "init retain create limit=2:64M limit=2:128M limit=1:32M limit=2:16M limit=2:128M say wait destroy retain say wait"
    running = begin(verbs, environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 8, "limits are raised, lowered and raised")
    check_account(machine, running, said, "and what they took is in the account")
    go_on(running)
    said = heard(running)
    check_equal(check_account(machine, running, said, "all of it is gone with the context"), CONTEXT, "by the simulator's count, too")
    end(running)


STACK = 108 * 2048 * KIB  # what each KiB takes that a thread needs; the first one each context has


def most(machine, running):
    """All that the process ever had at once."""
    return max([p["peak"][0] for p in machine.view()["processes"] if p["pid"] == running.pid], default=None)


def stack_over():
    """A launch that would grow the stack beyond the limit is not made, by whatever call."""
    for cores in (None, 50):
        for way in ("", ":x", ":c", ":l"):
            machine = Machine(memory=40 * GIB, driver={"granule": 512, "stream": 0})
            environment = limited_environment(machine, memory=2 * GIB, cores=cores)
            verbs = f"init create deep=32K{way} again=2 again=1 deep=512 alloc=512M say wait"
            running = begin(verbs, environment, stderr=subprocess.PIPE)
            said = heard(running)
            sentence = f"cores {cores}, way {way or ':k'}"
            check_equal(said.get("codes"), [0, 0, OOM, OOM, OOM, 0, 0], f"{sentence}: it is refused, each time, and others are not")
            check_equal(check_account(machine, running, said, f"{sentence}: it is charged nothing"), CONTEXT + 512 * MIB, "and takes nothing")
            check_equal(most(machine, running), CONTEXT + 512 * MIB, "at no time")
            lines = running.communicate("\n", timeout=20)[1].splitlines()
            check(len(lines) == 1 and "local memory" in lines[0], f"{sentence}: and it is said, once", lines)


def stack_within():
    """One that fits is charged at once what it takes; each context has its own stack."""
    for cores in (None, 50):
        machine = Machine(memory=40 * GIB, driver={"granule": 512, "stream": 0})
        environment = limited_environment(machine, memory=4 * GIB, cores=cores)
        verbs = "init create deep=512 deep=1K deep=2K again=3 say wait deep=4K deep=3K:x say wait create deep-kernel=4K spin=2 say wait"
        running = begin(verbs + " deep=16K pop spin=1 fill say wait destroy destroy retain say wait", environment)
        steps = [
            ("by what the largest kernel needs", CONTEXT + STACK, 0),
            ("beyond what is there", CONTEXT + 3 * STACK, 0),
            ("in another context by itself, for a library's kernel", 2 * CONTEXT + 6 * STACK, 0),
        ]
        for sentence, wanted, code in steps:
            said = heard(running)
            check_equal(set(said.get("codes")), {code}, f"cores {cores}: the stack grows {sentence}")
            used = check_account(machine, running, said, f"cores {cores}: and is charged")
            check(0 <= used - wanted < MIB, f"cores {cores}: as much as it takes", used, wanted)
            go_on(running)
        said = heard(running)
        check_equal(said.get("codes"), [OOM, 0, 0], f"cores {cores}: what does not fit is refused beside that, what is there is used")
        used = check_account(machine, running, said, f"cores {cores}: the rest of the limit is had")
        check(4 * GIB - 2 * MIB < used <= 4 * GIB and most(machine, running) <= 4 * GIB, f"cores {cores}: and not more", used)
        go_on(running)
        said = heard(running)
        check_equal(check_account(machine, running, said, f"cores {cores}: it goes with its context"), CONTEXT, "by the simulator's count, too")
        end(running)


def stack_set_down():
    """What a lower limit of the stack gave back is to be had, and a kernel that ran before takes it anew only within the limit."""
    for cores in (None, 50):
        machine = Machine(memory=40 * GIB, driver={"granule": 512, "stream": 0})
        environment = limited_environment(machine, memory=2 * GIB, cores=cores)
        verbs = "init create kernel=512 spin=100 deep=6K again=2000 limit=0:2K say wait fill limit=0:1K spin=1000 alloc=200M say wait"
        running = begin(verbs + " again=1 again=1 spin=10 again=1 free again=1 say wait", environment)
        said = heard(running)
        check_equal(said.get("codes"), [0] * 7, f"cores {cores}: the stack's limit is lowered after kernels that needed more")
        used = check_account(machine, running, said, f"cores {cores}: and what that gave back is in the account")
        check(0 <= used - CONTEXT - STACK < MIB, f"cores {cores}: all of it", used)
        go_on(running)
        said = heard(running)
        check_equal(said.get("codes"), [0] * 3, f"cores {cores}: it can be had")
        go_on(running)
        said = heard(running)
        check_equal(said.get("codes"), [OOM, OOM, 0, OOM, 0, 0], f"cores {cores}: the kernel that ran before is refused until there is room")
        used = check_account(machine, running, said, f"cores {cores}: then it has it")
        check(0 <= used - CONTEXT - 5 * STACK < MIB and most(machine, running) <= 2 * GIB, f"cores {cores}: within the limit at all times", used)
        end(running)


def stack_of_another():
    """The handle of a function that was launched is one's that needs more by now."""
    for cores in (None, 50):
        machine = Machine(memory=40 * GIB, driver={"granule": 512, "stream": 0})
        environment = limited_environment(machine, memory=1 * GIB, cores=cores)
        running = begin("init create kernel=512 spin=1 deep=512 again=2000 unload spin=1000 deep=16K again=1 say wait", environment)
        said = heard(running)
        check_equal(said.get("codes"), [0] * 8 + [OOM] * 2, f"cores {cores}: what is known of a handle goes with its module")
        used = check_account(machine, running, said, f"cores {cores}: nothing is taken")
        check(used < CONTEXT + MIB and most(machine, running) < CONTEXT + MIB, f"cores {cores}: at no time", used)
        end(running)


# Who keeps a context alive


def attached():
    machine = Machine()
    environment = limited_environment(machine, memory=1 * GIB)
    running = begin("init create attach detach alloc=128M say wait detach retain say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 5, "a context is attached to and detached from")
    check_account(machine, running, said, "and stays in the account, as on the card")
    go_on(running)
    said = heard(running)
    check_equal(check_account(machine, running, said, "the last user takes it along"), CONTEXT, "by the simulator's count, too")
    end(running)


def attached_primary():
    machine = Machine()
    environment = limited_environment(machine, memory=1 * GIB)
    running = begin("init retain attach release alloc=64M say wait detach retain say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 5, "a primary context is kept by one that is attached to it")
    check_account(machine, running, said, "and stays in the account")
    go_on(running)
    said = heard(running)
    check_equal(check_account(machine, running, said, "until it goes"), CONTEXT, "by the simulator's count, too")
    end(running)


def unseen_primary():
    machine = Machine()
    environment = limited_environment(machine, memory=2 * GIB)
    running = begin("init unseen alloc=1G say wait reset unseen alloc=1G say wait release fill say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 3, "a primary context that the runtime made is used")
    check_account(machine, running, said, "and is in the account, with what is in it")
    go_on(running)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 3, "reset, and made again")
    check_account(machine, running, said, "nothing stale stays")
    end(running)


def primary_retains():
    machine = Machine()
    environment = limited_environment(machine, memory=1 * GIB)
    running = begin("init retain retain unseen alloc=64M reset release retain release say wait release release create say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 9, "retains outlast a reset")
    check_account(machine, running, said, "and the account is the card's")
    go_on(running)
    said = heard(running)
    check_equal(check_account(machine, running, said, "to the end"), CONTEXT, "by the simulator's count, too")
    end(running)


def stale_handles():
    """As above where a stale handle is a crash: the library does not touch one."""
    machine = Machine(driver={"stale-handles": "crash"})
    environment = limited_environment(machine, memory=1 * GIB, cores=50)
    running = begin("init create attach detach launch=1M detach create launch=1M destroy retain launch=1M release retain say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 13, "no handle of a context that is gone is used")
    check_account(machine, running, said, "and the account is the card's")
    end(running)


# The table of contexts


def address_space(running):
    size = next(line for line in pathlib.Path(f"/proc/{running.pid}/status").read_text().splitlines() if line.startswith("VmSize:"))
    return int(size.split()[1]) * KIB


def many_contexts():
    machine = Machine(memory=80 * GIB, context=64 * KIB, driver={"context-time": 0})
    environment = limited_environment(machine, memory=20 * GIB)
    running = begin("init many=4000 destroy=4000 say wait many=4000 destroy=4000 many=4000 say wait create=100000 retain fill say wait", environment)
    codes = heard(running).get("codes")
    before = address_space(running)
    go_on(running)
    said = heard(running)
    check_equal(codes + said.get("codes"), [0] * 6, "places of contexts that ended are used again")
    grown = address_space(running) - before
    check(grown < 16 * MIB, "and so is the address space that they had", grown)
    go_on(running)
    said = heard(running)
    used = machine.used(running.pid)
    check(used <= 20 * GIB, "with as many contexts as there can be, no more than the limit is had", used, said)
    check_equal(accounted(said), used, "and the account is the card's")
    end(running)


def at_once():
    """Processes of a container that begin at the same time: once one has found out what a context takes, the others don't wait for each other."""
    machine = Machine(memory=40 * GIB, driver={"context-time": "200ms", "pids": "caller"})
    environment = limited_environment(machine, memory=8 * GIB)
    running = [begin("init wait create alloc=2M say wait say wait", environment) for _ in range(8)]
    wait_until(lambda: len(machine.view()["processes"]) == len(running))
    for one in running:
        go_on(one)
    most, made, until = 0, 0, time.monotonic() + 30
    while made < len(running) and time.monotonic() < until:
        used = [p["used"][0] for p in machine.view()["processes"]]
        most = max(most, sum(0 < one < CONTEXT for one in used))
        made = sum(one >= CONTEXT for one in used)
    check(most >= 4, "contexts of processes that begin together are made at once", most)
    said = [heard(one) for one in running]
    check_equal([one.get("codes") for one in said], [[0] * 3] * len(running), "each is granted")
    go_on(running[0])
    check_equal(accounted(heard(running[0])), machine.used(), "and all are charged what they take")
    for one in running:
        end(one)


# A context beside a busy neighbour


def in_container(own_proc=True):
    """A command that runs a program in a pid namespace of its own, if that is permitted."""
    words = ["unshare", "--pid", "--fork", "--kill-child", *(["--mount-proc"] if own_proc else [])]
    if not shutil.which("unshare") or run([*words, "true"], bare_environment(None)).returncode != 0:
        print("skipped: pid namespaces can't be made here")
        return None
    return words


def busy_neighbours(sentence, pids, container=()):
    """Beside those who take and give back gigabytes, and others whose contexts come and go."""
    machine = Machine(memory=40 * GIB, driver={"context-time": "60ms", "pids": pids, "stream": "0"})
    bare = bare_environment(machine)
    neighbours = [begin("init create say churn=20000", bare) for _ in range(2)]
    for neighbour in neighbours:
        heard(neighbour)
    environment = limited_environment(machine, memory=1 * GIB)
    good, said = 0, []
    for _ in range(10):
        running = start([*container, HIDDEN, *"init create launch=8M alloc=2M create say wait".split()], environment)
        said.append(heard(running))
        good += said[-1].get("codes") == [0] * 5 and accounted(said[-1]) == 2 * CONTEXT + 10 * MIB
        end(running)
    check_equal(good, 10, f"{sentence}: contexts are made and charged right beside busy neighbours") or print(*said, sep="\n")
    for neighbour in neighbours:
        neighbour.kill()


def busy():
    busy_neighbours("on a node", "caller")


def busy_in_container():
    container = in_container()
    if container:
        busy_neighbours("in a container, by its own pids", "caller", container)


def busy_by_host_pids():
    container = in_container(own_proc=False)
    if container:
        busy_neighbours("in a container, by the host's pids", "host", container)


def same_namespace_number():
    """A container that starts anew gets the number of the pid namespace that ended, and is process 1 again."""
    container = in_container(own_proc=False)
    if not container:
        return
    machine = Machine(memory=40 * GIB, driver={"pids": "host", "stream": "0"})
    environment = limited_environment(machine, memory=1 * GIB)
    said = []
    for _ in range(3):
        running = start([*container, HIDDEN, *"init create launch=8M alloc=2M create say wait".split()], environment)
        said.append(heard(running))
        end(running)
        time.sleep(0.5)  # the kernel keeps a number for a moment
    told = [(one.get("codes"), accounted(one)) for one in said]
    check_equal(told, [([0] * 5, 2 * CONTEXT + 10 * MIB)] * 3, "nothing of the one before is charged to it")


def children_of(pid, count=1):
    """The pids of so many, once they are there."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: len(children.read_text().split()) >= count)
    return [int(child) for child in children.read_text().split()]


def child_of(running):
    return children_of(running.pid)[0]


# Starts commands under pids of its namespace: a line for each, PID COMMAND.
BY_PID = 'while read -r pid command; do echo $((pid - 1)) >/proc/sys/kernel/ns_last_pid; eval "$command &"; done; wait'


def number_of_a_sibling():
    """In a pid namespace that is full of the numbers that NVML lists, each of the host's, one that is a small sibling's is nobody's name."""
    container = in_container(own_proc=False)
    if not container:
        return
    machine = Machine(memory=40 * GIB, driver={"pids": "host", "stream": "0"})
    environment = limited_environment(machine, memory=2 * GIB)
    small = start([*container, HIDDEN, *"init create say wait".split()], environment)
    heard(small)
    number = child_of(small)
    gate = scratch / "gate"
    os.mkfifo(gate)
    shell = start([*container, "sh", "-c", BY_PID], environment, stderr=subprocess.DEVNULL)
    init = child_of(shell)
    shell.stdin.write(f"{number} {HIDDEN} wait init {'create limit=2:1000M ' * 6} say wait <{gate}\n")
    shell.stdin.flush()
    big = children_of(init)[0]
    if f"NSpid:\t{big}\t{number}\n" not in pathlib.Path(f"/proc/{big}/status").read_text():
        print("skipped: pids can't be chosen here")
    else:
        shell.stdin.write(f"{big} sleep 100\n")
        shell.stdin.flush()
        children_of(init, 2)
        with open(gate, "w") as lines:
            lines.write("\n")
            lines.flush()
            heard(shell)
            used = machine.used()
            check(used <= 2 * GIB, "a process that has a sibling's number is not taken for it", used)
    shell.kill()
    end(small)


SLOTS = 1856  # where they begin in a region
HOST_PID = SLOTS + 4


def slot_of_host(region, pid):
    """What the node writes."""
    with open(region, "r+b") as file:
        file.seek(HOST_PID)
        file.write(pid.to_bytes(4, "little"))


def beside_another(sentence, told, **limits):
    """Another context is made at the same moment: by the host's pids nobody can say which one is ours."""
    container = in_container(own_proc=False)
    if not container:
        return
    machine = Machine(memory=40 * GIB, driver={"context-time": "800ms", "pids": "host", "stream": "0"})
    region = new_region()
    environment = limited_environment(machine, memory=2 * GIB, region=region, **limits)
    running = start([*container, HIDDEN, *"init alloc=1 wait create launch=64M alloc=2M say wait".split()], environment)
    wait_until(lambda: region.exists() and region.stat().st_size > HOST_PID + 4 and region.read_bytes()[SLOTS:HOST_PID] != bytes(4))
    if told:
        slot_of_host(region, child_of(running))
    go_on(running)
    time.sleep(0.3)
    other = begin("init create alloc=1G say wait", bare_environment(machine))
    said = heard(running)
    wanted = CONTEXT + 66 * MIB if told else CONTEXT + 2 * MIB
    check_equal((said.get("codes", [])[2:], accounted(said)), ([0] * 3, wanted), sentence)
    end(running)
    end(other)


def named_by_the_node():
    beside_another("the pid that the node wrote into the slot is believed", True)


def sized_by_the_limits():
    beside_another("else a context is charged what the limits say", False, CUDA_DEVICE_CONTEXT_SIZE="300m")


def without_nvml():
    """A container that has the driver's compute library alone."""
    folder = scratch / "compute-alone"
    folder.mkdir()
    shutil.copy(SIMDRIVER / "libcuda.so.1", folder)
    machine = Machine(memory=40 * GIB, driver={"stream": 0})
    for made, verbs in (("made", "create"), ("the runtime's", "unseen")):
        environment = limited_environment(machine, memory=2 * GIB, LD_LIBRARY_PATH=folder)
        running = begin(f"init {verbs} alloc=1M say wait", environment, stderr=subprocess.PIPE)
        said = heard(running)
        check_equal(said.get("codes", [0])[-1] != 0, True, f"without NVML and a size no context is free ({made})")
        running.communicate("\n\n")
    running = begin("init unseen module=1M limit=2:72M library=1M retain launch=1M say wait", environment, stderr=subprocess.PIPE)
    check_equal(heard(running).get("codes", [])[2:], [OOM] * 5, "and in none of the runtime's is anything made")
    check_equal(machine.used(running.pid), CONTEXT, "by the simulator's count, too")
    running.communicate("\n")
    ended = run([HIDDEN, "init", "create", "alloc=1M", "alloc=1M"], environment)
    lines = ended.stderr.splitlines()
    check(len(lines) == 1 and "CUDA_DEVICE_CONTEXT_SIZE" in lines[0], "and what is missing is said, once", lines)

    environment = limited_environment(machine, memory=2 * GIB, LD_LIBRARY_PATH=folder, CUDA_DEVICE_CONTEXT_SIZE_0=CONTEXT)
    running = begin("init create create limit=2:72M limit=2:80M unseen alloc=1M fill say wait reset destroy destroy free unseen say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 7, "with its size from the limits it is made, however it is made")
    check_equal(check_account(machine, running, said, "and in the account, with its heaps"), 2 * GIB, "up to the limit")
    go_on(running)
    said = heard(running)
    check_equal(check_account(machine, running, said, "and out of it"), CONTEXT, "when it is gone")
    end(running)
    running = begin("init create deep=2K limit=0:1K deep=3K limit=0:2K deep=16K alloc=1M say wait destroy retain say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 6 + [OOM, 0], "what a kernel needs of the stack the driver itself tells")
    used = machine.used(running.pid)
    check(used - 4 * MIB <= accounted(said) <= used, "and it is in the account, but for the code of the kernels", accounted(said), used)
    go_on(running)
    said = heard(running)
    check_equal(check_account(machine, running, said, "until its context is gone"), CONTEXT, "by the simulator's count, too")
    end(running)
    unlimited = limited_environment(machine, cores=50, LD_LIBRARY_PATH=folder)
    ended = run([HIDDEN, "init", "create", "alloc=1M", "say"], unlimited)
    check_equal(json.loads(ended.stdout)["codes"], [0] * 3, "where memory is not limited nothing is refused")


# What comes unseen


def lazy():
    for loaded, verb in (("a first launch", "launch=1200M"), ("a library's kernel", "library=1200M")):
        machine = Machine(memory=40 * GIB)
        environment = limited_environment(machine, memory=2 * GIB)
        verbs = f"init create {verb} fill say wait {verb} {verb} {verb} alloc=1M say wait"
        running = begin(verbs, environment, stderr=subprocess.PIPE)
        said = heard(running)
        used = check_account(machine, running, said, f"{loaded}: what it loaded is in the account at the next allocation")
        check(2 * GIB - 512 < used <= 2 * GIB, f"{loaded}: and the rest of the limit is had", used)
        go_on(running)
        said = heard(running)
        check_equal(said.get("codes", [0])[-1], OOM, f"{loaded}: beyond the limit nothing more is given")
        end(running)


def lazy_in_each_context():
    """A kernel of a library has one handle, and code in each context in which it is launched."""
    for cores in (None, 50):
        machine = Machine(memory=40 * GIB)
        environment = limited_environment(machine, memory=2 * GIB, cores=cores)
        running = begin("init create create kernel=400M spin=100 alloc=1 pop spin=1 fill say wait", environment)
        said = heard(running)
        check_equal(said.get("codes"), [0] * 8, f"cores {cores}: a kernel is launched in two contexts")
        used = check_account(machine, running, said, f"cores {cores}: what it loaded in the second one is in the account at the next allocation")
        check(2 * GIB - 512 < used <= 2 * GIB, f"cores {cores}: and no more than the limit is had", used)
        end(running)


def lazy_busy():
    """Without an allocation the account is right a second or two later, while there is work."""
    for cores in (None, 50):
        machine = Machine(memory=40 * GIB)
        region = new_region()
        environment = limited_environment(machine, memory=2 * GIB, cores=cores, region=region)
        running = begin("init create launch=1200M work=30000", environment)
        other = begin("init create sleep=2500 fill say wait", environment)
        said = heard(other)
        used = machine.used()
        check(2 * GIB - 512 < used <= 2 * GIB, f"cores {cores}: another process of the container gets what is left", used, said)
        end(other)
        running.kill()


def parallel():
    machine = Machine(memory=40 * GIB)
    environment = limited_environment(machine, memory=2 * GIB)
    running = begin("init create threads sleep=200 alloc=1M say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 4, "threads load, unload, take and give back at once")
    check_account(machine, running, said, "and the account is the card's")
    end(running)


def let_pass():
    """Where calls that are not accounted for are let pass, what comes between ours may be theirs: it is not charged."""
    machine = Machine(memory=40 * GIB)
    environment = limited_environment(machine, memory=2 * GIB, HAMI_UNACCOUNTED="allow")
    verbs = "init create launch=100M alloc=2M limit=2:72M say wait destroy create say wait"
    running = begin(verbs, environment)
    said = heard(running)
    check_equal((said.get("codes"), accounted(said)), ([0] * 5, CONTEXT + 66 * MIB), "what our own calls took is in the account")
    go_on(running)
    said = heard(running)
    check_equal(check_account(machine, running, said, "and goes with its context"), CONTEXT, "by the simulator's count, too")
    end(running)


def squeezed():
    """Memory on its way in or out hides no code: whoever moves a lot of it gains nothing."""
    machine = Machine(memory=40 * GIB, driver={"loading": "eager"})
    environment = limited_environment(machine, memory=1 * GIB)
    running = begin("init create squeeze=3000 say wait", environment)
    heard(running)
    peak = [p["peak"][0] for p in machine.view()["processes"] if p["pid"] == running.pid]
    # A module may exceed the limit until it is unloaded again.
    check(peak and 1000 * MIB < peak[0] <= 1 * GIB + 1 * MIB, "the limit is never exceeded by it", peak)
    end(running)


def cramped():
    """Another thread's refusal, which has the account settled, does not make a module stay that has no room."""
    machine = Machine(memory=40 * GIB, driver={"loading": "eager"})
    environment = limited_environment(machine, memory=400 * MIB)
    running = begin("init create module=1M fill cramped=2000 say wait", environment, stderr=subprocess.PIPE)
    said = heard(running)
    check_equal(said.get("codes", [None])[-1], 0, "at the limit no module is loaded")
    check_equal(check_account(machine, running, said, "and the account is the card's"), 400 * MIB, "which is at the limit")
    check_equal(running.communicate("\n", timeout=30)[1], "", "nobody said a word")


def beside_a_load():
    """The driver compiles for seconds: no lock of ours is held over that."""
    machine = Machine(driver={"loading": "eager"})
    environment = limited_environment(machine, memory=1 * GIB)
    running = begin("init create beside alloc=2M say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 5, "a module is loaded while another one is on its way")
    check_equal(check_account(machine, running, said, "and both are in the account"), CONTEXT + 14 * MIB, "as on the card")
    end(running)


def stopped():
    """Code that has no room is unloaded at once: no signal of the program's own keeps the thread from that."""
    machine = Machine(memory=40 * GIB, driver={"loading": "eager"})
    environment = limited_environment(machine, memory=1 * GIB)
    running = begin("init create stopped=3000 say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 3, "the thread is stopped with none of it in its hands")
    check_equal(machine.used(running.pid), CONTEXT, "and none of it stays on the card")
    end(running)


def interrupted():
    """A graph that has no room is tried and undone: no signal of the program's own keeps the thread from that."""
    machine = Machine(memory=40 * GIB)
    environment = limited_environment(machine, memory=1 * GIB)
    running = begin("init create say interrupted=3000 say wait", environment)
    heard(running)
    since = longest = 0
    until = time.monotonic() + 3
    while time.monotonic() < until:
        over, now = machine.used(running.pid) > 1 * GIB, time.monotonic()
        since = (since or now) if over else 0
        longest = max(longest, now - since) if over else longest
    check(longest < 0.5, "who is kept in handlers all the time has no more than his limit meanwhile", longest)
    check_equal(heard(running).get("codes"), [0], "and the graph is not launched")
    end(running)


def refused():
    """Who loads code that has no room again and again has the card no fuller for that, most of the time."""
    machine = Machine(memory=40 * GIB, driver={"loading": "eager"})
    environment = limited_environment(machine, memory=1 * GIB)
    running = begin("init create say refused=4000 say wait", environment)
    heard(running)
    used = []
    while len(used) < 400:
        used.append(machine.used(running.pid))
        time.sleep(0.005)
    over = sum(one > 1 * GIB for one in used) / len(used)
    check(over < 0.1, "code that is refused is there for less than a tenth of the time", over)
    check_equal(heard(running).get("codes"), [0], "and it is refused each time")
    end(running)


def restored():
    """A process that comes back from a checkpoint comes back to the devices on which it is charged."""
    machine = Machine(gpus=2)
    for policy, refused in (({}, 1), ({"HAMI_UNACCOUNTED": "allow"}, 0)):
        ended = run([HIDDEN, "init", "create", "restore=same", "restore=swap", "say"], limited_environment(machine, memory=2 * GIB, **policy))
        told = ended.stderr.count("cuCheckpointProcessRestore is refused")
        check_equal((json.loads(ended.stdout)["codes"], told), ([0, 0, 801, 801], refused), "to others it is " + ("refused" if refused else "the driver's to say"))


def bystanders():
    """Ordinary programs: nothing is refused, and the account is exact."""
    machine = Machine(driver={"granule": "2Mi"})
    environment = limited_environment(machine, memory=2 * GIB)
    running = begin("init create module=3M launch=5M:100 alloc=100M alloc=1 unload free say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 8, "in granules of 2 MiB a program is answered as it was")
    used = machine.used(running.pid)
    check(abs(accounted(said) - used) <= 4 * MIB, "and the account is near the card's", accounted(said), used)
    end(running)


tests = {name: f for name, f in list(globals().items()) if callable(f) and getattr(f, "__module__", "") == "__main__"}
every = [heap_over, heap_twice, stack_over, stack_within, stack_set_down, stack_of_another, attached, attached_primary, unseen_primary, primary_retains]
every += [stale_handles, many_contexts, at_once, busy, busy_in_container, busy_by_host_pids, number_of_a_sibling, same_namespace_number, named_by_the_node, sized_by_the_limits]
every += [without_nvml, lazy, lazy_in_each_context, lazy_busy, parallel, squeezed, cramped, let_pass, beside_a_load, stopped, interrupted, refused, restored, bystanders]
if __name__ == "__main__":
    for test in [tests[name] for name in sys.argv[1:]] or every:
        print(f"-- {test.__name__}")
        test()
    finish()

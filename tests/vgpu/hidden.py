#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the driver takes for itself, contexts, code and heaps, is held to the limit by the simulator's own count."""

import json
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

HIDDEN = BUILD / "tests/hidden"
CONTEXT = 300 * MIB
OOM = 2
SETTLED_S = 3  # by then what came unseen is in the account


def begin(verbs, environment, **options):
    return start([HIDDEN, *verbs.split()], environment, **options)


def heard(running):
    line = running.stdout.readline()
    return json.loads(line) if line.startswith("{") else {"silent": True, "status": running.poll()}


def go_on(running):
    running.stdin.write("\n")
    running.stdin.flush()


def end(running):
    try:
        running.communicate("\n\n\n\n", timeout=30)
    except (BrokenPipeError, ValueError):
        running.wait(30)
    return running.returncode


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


def stack_of_a_kernel():
    """The driver grows the stack for a kernel that needs it: known soon after, and nothing more is given."""
    machine = Machine(memory=40 * GIB)
    environment = limited_environment(machine, memory=2 * GIB)
    running = begin("init create deep=32K alloc=512M say wait", environment, stderr=subprocess.PIPE)
    said = heard(running)
    check_equal(said.get("codes"), [0, 0, 0, OOM], "after a launch that grew the stack beyond the limit nothing is given")
    used = machine.used(running.pid)
    check(used > 6 * GIB, "as the driver has taken it", used)
    running.stdin.close()
    running.wait(20)
    lines = running.stderr.read().splitlines()
    check(len(lines) == 1, "and it is said, once", lines)


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


def many_contexts():
    machine = Machine(memory=80 * GIB, context=64 * KIB)
    environment = limited_environment(machine, memory=1 * GIB)
    running = begin("init many=4000 destroy=4000 many=4000 say wait create=100000 retain fill say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 4, "places of contexts that ended are used again")
    go_on(running)
    said = heard(running)
    used = machine.used(running.pid)
    check(used <= 1 * GIB, "with as many contexts as there can be, no more than the limit is had", used, said)
    check_equal(accounted(said), used, "and the account is the card's")
    end(running)


# A context beside a busy neighbour


def busy_neighbours(sentence, machine, command=lambda environment: environment, **limits):
    neighbours = [begin("init create say churn=8000", bare_environment(machine)) for _ in range(2)]
    for neighbour in neighbours:
        heard(neighbour)
    region = new_region()
    good = 0
    for _ in range(10):
        environment = command(limited_environment(machine, memory=1 * GIB, region=region, **limits))
        running = begin("init create say wait", environment)
        said = heard(running)
        good += said.get("codes") == [0, 0] and accounted(said) == CONTEXT
        end(running)
    check_equal(good, 10, f"{sentence}: contexts are made and charged right while neighbours take and give back gigabytes")
    for neighbour in neighbours:
        neighbour.kill()


def busy():
    harsh = {"context-time": "60ms"}
    busy_neighbours("a card", Machine(memory=40 * GIB, driver=harsh))


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
    running = begin("init create threads alloc=1M say wait", environment)
    said = heard(running)
    check_equal(said.get("codes"), [0] * 4, "threads load and unload at once")
    check_account(machine, running, said, "and the account is the card's")
    end(running)


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
every = [heap_over, heap_twice, stack_of_a_kernel, attached, attached_primary, unseen_primary, primary_retains]
every += [stale_handles, many_contexts, busy, lazy, lazy_busy, parallel, bystanders]
for test in [tests[name] for name in sys.argv[1:]] or every:
    print(f"-- {test.__name__}")
    test()
finish()

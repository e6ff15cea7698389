#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory is given in pages of 2 MiB: what is charged is what the driver takes, by the simulator's own count."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

PAGE = 2 * MIB
CONTEXT = 4 * MIB
ROOM = 16 * PAGE
LIMIT = CONTEXT + ROOM


class Program(Caller):
    def alloc(self, number, size):
        return self.call("cuMemAlloc_v2", f"n{slot('ptr', number)}", size)

    def free(self, number):
        self.must("cuMemFree_v2", f"h{slot('ptr', number)}")


def new_machine():
    return Machine(gpus=1, memory=4 * GIB, context=CONTEXT)


def agree(title, machine, one, wanted):
    check_equal((machine.used(one.pid), one.charged()), (CONTEXT + wanted, CONTEXT + wanted), title)


def check_sizes():
    for size, wanted in ((PAGE + 1, 8), (PAGE, 16), (PAGE // 2 + 1, 16), (PAGE // 2, 32), (700 * 1024, 46)):
        machine = new_machine()
        one = Program(limited_environment(machine, memory=LIMIT)).begin()
        given = 0
        # At most 32 handles are kept: what is lost stays until the context goes.
        while one.alloc(given % 32, size) == 0 and machine.used(one.pid) <= LIMIT:
            given += 1
        check_equal(given, wanted, f"so many pieces of {size} bytes are given")
        agree("which take all there is", machine, one, ROOM)
        one.must("cuDevicePrimaryCtxReset_v2", 0)
        one.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
        one.must("cuCtxSetCurrent", f"h{slot('context')}")
        agree("they go with their context", machine, one, 0)
        check_equal(one.finish(), "", "nobody said a word")


def check_sharing():
    machine = new_machine()
    one = Program(limited_environment(machine, memory=LIMIT)).begin()
    for i in range(30):
        check_equal(one.alloc(i, 600), 0, "a small piece is given") if i in (0, 29) else one.alloc(i, 600)
        agree("they share a page", machine, one, PAGE) if i in (0, 29) else None
    one.alloc(30, PAGE // 2)
    one.alloc(31, PAGE // 2)
    agree("until it is full", machine, one, 2 * PAGE)
    one.free(30)
    agree("and again when one has gone", machine, one, PAGE)
    for i in [*range(0, 30, 2), 31, *range(1, 29, 2)]:
        one.free(i)
    agree("the last keeps it", machine, one, PAGE)
    one.free(29)
    agree("and gives it back", machine, one, 0)
    one.finish()


def check_contexts():
    machine = new_machine()
    one = Program(limited_environment(machine, memory=LIMIT)).begin()
    one.alloc(1, 600)
    one.must("cuCtxCreate_v2", f"n{slot('context', 2)}", 0, 0)
    one.alloc(2, 600)
    agree("contexts share no page", machine, one, CONTEXT + 2 * PAGE)
    one.must("cuCtxDestroy_v2", f"h{slot('context', 2)}")
    agree("and each gives back its own", machine, one, PAGE)
    one.finish()


def check_processes():
    machine, region = new_machine(), new_region()
    programs = [Program(limited_environment(machine, memory=2 * CONTEXT + ROOM, region=region)).begin() for _ in range(2)]
    given = sum(programs[i % 2].alloc(i % 32, PAGE + 1) == 0 for i in range(20))
    check_equal(given, 8, "processes of a container get no more together")
    check_equal(sum(machine.used(one.pid) for one in programs), 2 * CONTEXT + ROOM, "and hold all of it")
    programs[0].kill()
    check_equal(programs[1].alloc(31, 8 * PAGE), 0, "what a killed one had is there for the other")
    programs[1].finish()


def check_handles():
    machine = new_machine()
    one = Program(limited_environment(machine, memory=LIMIT)).begin()
    one.alloc(1, 600)
    one.alloc(2, 600)
    check_equal(one.call("cuIpcGetMemHandle", "y1", f"h{slot('ptr', 1)}+0"), 0, "a small piece is shared")
    agree("and has a page of its own", machine, one, 2 * PAGE)
    check_equal(one.call("cuIpcGetMemHandle", "y1", f"h{slot('ptr', 1)}+0"), 0, "once")
    agree("more", machine, one, 2 * PAGE)
    check_equal(one.alloc(3, ROOM - 2 * PAGE), 0, "the rest is given")
    check_equal(one.call("cuIpcGetMemHandle", "y2", f"h{slot('ptr', 2)}+0"), OUT_OF_MEMORY, "then no other gets its own")
    agree("and nothing is taken", machine, one, ROOM)
    for i in (1, 2, 3):
        one.free(i)
    agree("all is given back", machine, one, 0)
    one.finish()


def check_by_512():
    """A driver that gives less than pages: the container gets as much less, and never more."""
    machine = Machine(gpus=1, memory=4 * GIB, context=CONTEXT, driver={"granule": "512"})
    one = Program(limited_environment(machine, memory=LIMIT)).begin()
    given = 0
    while given < 40 and one.alloc(given % 32, PAGE + 1) == 0:
        given += 1
    used = machine.used(one.pid)
    check(8 <= given and used <= LIMIT, "of another driver no more than the limit is had, either", given, used)
    print(f"{given} pieces of {PAGE + 1} bytes in {ROOM} bytes")
    one.finish()


check_sizes()
check_sharing()
check_contexts()
check_processes()
check_handles()
check_by_512()
finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program's own signal handler changes while a call is on its way gives it no more memory than its limit, at whichever entry into the driver it comes."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

STEPPED = BUILD / "tests/stepped"

if not STEPPED.exists():
    skip("the processor's trap flag is x86-64's")


def stepped(way, gpus=1):
    machine = Machine(gpus=gpus, memory=80 * GIB, driver={"loading": "eager"})
    running = start([STEPPED, way], limited_environment(machine, memory=1 * GIB, CUDA_MODULE_LOADING="EAGER", GLIBC_TUNABLES="glibc.malloc.tcache_count=0"))
    entries, given = map(int, (running.stdout.readline() or "0 0").split())
    return entries, given, machine.used(running.pid), running


def finish_one(running):
    running.stdin.close()
    check_equal(running.wait(10), 0, "and it ends well")


def without_a_context():
    """No context is current, and one is made current in the call: the driver is not asked, so that it can't be given."""
    for way, gpus in (("limit", 1), ("module", 1), ("array", 1), ("array", 2)):
        entries, given, used, running = stepped(way, gpus)
        check(entries > 0 and not given, f"{way} on {gpus}: nothing is given without a context", entries, given)
        check(used <= 1 * GIB, f"{way} on {gpus}: and what is held is within the limit", used)
        finish_one(running)


def lost_captures():
    """A capture, in which nothing is taken, ends in the call: what is taken then is charged, and not more than there is."""
    for way in ("alloc", "graph"):
        entries, given, used, running = stepped(way)
        check(entries > 0 and used <= 1 * GIB, f"{way}: within the limit", entries, given, used)
        finish_one(running)


def given_again():
    """What is launched is another graph by the time that the driver looks, of the same handle, and allocates: that is charged, or not made."""
    for way in ("ended", "ends"):
        entries, given, used, running = stepped(way)
        check(entries > 0 and used <= 1 * GIB, f"{way}: within the limit", entries, given, used)
        finish_one(running)


tests = {name: f for name, f in list(globals().items()) if callable(f) and getattr(f, "__module__", "") == "__main__"}
for test in [tests[name] for name in sys.argv[1:]] or [without_a_context, lost_captures, given_again]:
    print(f"-- {test.__name__}")
    test()
finish()

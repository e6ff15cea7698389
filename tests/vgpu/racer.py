#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program whose threads interfere with each other's calls has no more memory than its limit, by the simulator's own
count (racer.c)."""

import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

LIMIT = 512 * MIB
SECONDS = 3
RACES = (
    ("destroy", "a pool is destroyed while memory is taken from it"),
    ("retain", "another handle is written over the one that is given again"),
    ("map", "a handle is mapped before anybody was given it"),
    ("export", "a handle is given out before anybody was given it"),
    ("give", "memory is given out and let go of by six threads, and none is refused"),
    ("capture", "a capture ends while memory is taken in its stream"),
    ("graph", "a capture ends while a graph is launched into its stream"),
    ("exec", "a graph is launched while it ends"),
    ("swap", "a graph is replaced while another thread makes it executable"),
    ("prefetch", "managed memory is moved before anybody was given it"),
    ("reset", "managed memory is moved while its context's end is refused"),
    ("share", "small pieces come into a page that another thread is refused"),
    ("refused", "memory is freed while its context's end is refused"),
    ("ends", "a context ends and comes again while others look for theirs"),
    ("interrupt", "a signal's handler makes a context current while memory is asked for without one"),
    ("spill", "a signal's handler makes another context current while memory that the card has no room for is made on the host"),
    ("load", "code that exceeds the limit is undone while another thread begins captures that forbid that"),
    ("lookup", "a function is called as soon as its address is written"),
)


for way, sentence in [race for race in RACES if race[0] in (sys.argv[1:] or dict(RACES))]:
    machine = Machine(gpus=1, memory=4 * GIB, context=60 * MIB, driver={"stream": "0"})
    limits = {"memory": 1024 * GIB, "CUDA_OVERSUBSCRIBE": "true"} if way == "spill" else {"memory": LIMIT}
    environment = limited_environment(machine, **limits, CUDA_MODULE_LOADING="EAGER" if way == "load" else "LAZY")
    guest = start([BUILD / "tests/racer", way, SECONDS], environment, stderr=subprocess.PIPE)
    told = int(guest.stdout.readline() or 0)
    used = machine.used()
    check(used <= min(told, limits["memory"]), f"{sentence}: all that it holds is charged", (used // MIB, told // MIB))
    if way in ("refused", "ends", "spill"):
        check_equal(told, used, "and no more")
    guest.stdin.close()
    check_equal((guest.wait(60), machine.used()), (0, 0), "and nothing is left")
finish()

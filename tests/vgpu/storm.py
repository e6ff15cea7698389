#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kill storm from outside: guests of libvgpu.so take, give back and launch under one limit, one in ten
is killed at a random moment and replaced. The simulator's count judges while it lasts, the region at the end.

Where a kill falls can't be known here (kill_ledger.c knows); it is estimated by the share of their time that
guests spend inside calls that charge or discharge.

usage: storm.py [KILLS]
"""

import random
import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import hamicore
from harness import *

GUEST = BUILD / "tests/guest"
GUESTS = 32
KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
CONTEXT = 4 * MIB
LIMIT = GUESTS * CONTEXT + 32 * MIB
CHUNK = 2 * MIB  # that a pool grows by: at the limit one is tried and undone, one at a time in a container
WORD = 2011136  # where the library's own account begins

seed = int(os.environ.get("HAMI_TEST_SEED", time.time_ns() & 0xFFFFFFFF))
chance = random.Random(seed)
print(f"seed {seed}")

machine = Machine(memory=4 * GIB, context=CONTEXT, driver={"stream": 0})
region = new_region()
environment = limited_environment(machine, memory=LIMIT, cores=90, region=region)


def begin():
    # A few launches among the memory, in a loop that only a kill ends.
    return start([GUEST, "init", *["churn=40", "map=200", "pool=50", "launch=3"] * 200], environment, stdout=subprocess.DEVNULL,
                 stderr=subprocess.PIPE)


running = [begin() for _ in range(GUESTS)]
began = time.monotonic()
highest, lowest_free, kills, looks, words = 0, LIMIT, 0, 0, []
while kills < KILLS:
    time.sleep(chance.uniform(0.0, 0.004))
    victim = chance.randrange(GUESTS)
    if running[victim].poll() is None:
        running[victim].kill()
        kills += 1
    running[victim].wait()
    words += running[victim].stderr.read().splitlines()
    guests.remove(running[victim])
    running[victim] = begin()
    if kills % 3 == 0:
        highest = max(highest, machine.used())
        looks += 1
took = time.monotonic() - began
for one in running:
    one.kill()
for one in running:
    one.wait()
    words += one.stderr.read().splitlines()

check(highest <= LIMIT + CHUNK, f"never over the limit, but for a chunk that is tried, in {looks} looks during {kills} kills ({took:.0f} s)", highest, LIMIT)
check(highest > LIMIT // 4, "with memory in use", highest)
check_equal([word for word in words if "a context takes" not in word], [], "nobody said a word but of contexts that have no room")
check_equal(machine.used(), 0, "the device is empty at the end")
last = start([GUEST, "init", "fill=4M", "say", "wait"], environment)
last.stdout.readline()
used = machine.used(last.pid)
check(LIMIT - 512 < used <= LIMIT, "and the next guest gets the whole limit", used, LIMIT)
pids = [p["pid"] for p in hamicore.read(region.read_bytes())["procs"]]
check_equal(pids, [last.pid], "of whose slots only the last guest's is taken")
last.communicate("\n")
finish()

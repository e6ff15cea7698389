#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What streams take of a card is charged and held to the limit, by the simulator's own count, whichever way they are
made, and stays with their context."""

import json
import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

CONTEXT, STREAM = 60 * MIB, 557 * KIB
LIMIT = 256 * MIB
ROOM = LIMIT - CONTEXT
NON_BLOCKING = 1
FITS = ROOM // STREAM  # streams


def stream(number=1):
    return f"h{slot('stream', number)}"


class Maker(Caller):
    def make(self, way="cuStreamCreate", number=1):
        """The result; the handle is at its number."""
        words = {"cuStreamCreate": (NON_BLOCKING,), "cuStreamCreateWithPriority": (NON_BLOCKING, -1)}
        green = (f"h{slot('external', 2)}", NON_BLOCKING, 0)
        return self.call(way, f"n{stream(number)[1:]}", *words.get(way, green))

    def make_many(self, count, way="cuStreamCreate"):
        return [self.make(way) for _ in range(count)]

    def green(self, device):
        resource = struct.pack("<i92xIIII32x", 1, 16, 8, 8, 0)
        self.must("cuDevResourceGenerateDesc", f"n{slot('external', 1)}", resource, 1)
        self.must("cuGreenCtxCreate", f"n{slot('external', 2)}", f"h{slot('external', 1)}", device, 1)

    def use(self, device):
        self.must("cuCtxSetCurrent", f"h{slot('context', 1 + device)}")


def setup(memory=LIMIT, **driver):
    machine, region = Machine(gpus=2, memory=4 * GIB, context=CONTEXT, driver=driver), new_region()
    return machine, Maker(limited_environment(machine, memory=memory, region=region)), region


def refusals(region, device=0):
    shown = json.loads(run([HAMICTL, "region", "--json", region], bare_environment(None)).stdout)
    return sum(process["devices"][device]["refusals"]["code"] for process in shown["processes"])


def settled(title, machine, one, gpu=0):
    """What the simulator counts is what is charged."""
    told = lambda: (machine.used(one.pid, gpu=gpu), one.charged())
    check(wait_until(lambda: len(set(told())) == 1, 3), title, *told())


def check_limit(way, current, **driver):
    """Many more than there is room for, on the second card; where none, or the other one, is current."""
    title = f"{way}, {driver}: " if driver else f"{way}, current {current}: "
    machine, one, region = setup(**driver)
    one.begin(0)
    one.begin(1)
    one.green(1)
    if current is None:
        one.must("cuCtxSetCurrent", 0)
    else:
        one.use(current)
    codes = one.make_many(2 * FITS, way)
    good = codes.index(OUT_OF_MEMORY) if OUT_OF_MEMORY in codes else len(codes)
    check(FITS - 32 < good <= FITS + 16 and set(codes[:good]) == {0}, title + "as many streams are made as there is room for", good, FITS)
    check_equal(set(codes[good:]), {OUT_OF_MEMORY}, title + "and then no more, out of memory")
    over = machine.used(one.pid, gpu=1) - LIMIT
    check(0 <= over <= 16 * STREAM, title + "the limit is passed by no more than sixteen take", over)
    check_equal(refusals(region, 1), len(codes) - good, title + "each refusal is counted")
    one.use(1)
    check_equal((one.charged(), one.call("cuMemAlloc_v2", f"n{slot('ptr')}", MIB)), (LIMIT, OUT_OF_MEMORY), title + "nothing is told to be free, or given")
    one.use(0)
    check_equal(one.make(), 0, title + "what takes nothing there is made all the same")
    one.finish()
    check_equal([machine.used(gpu=i) for i in (0, 1)], [0, 0], title + "nothing is left")


def check_room():
    """Where there is none streams are made again once there is."""
    machine, one, _ = setup()
    one.begin()
    one.must("cuMemAlloc_v2", f"n{slot('ptr')}", ROOM - 20 * MIB)
    codes = one.make_many(100)
    check(set(codes[:30]) == {0} and set(codes[50:]) == {OUT_OF_MEMORY}, "beside an allocation there are as many as fit", codes)
    one.must("cuMemFree_v2", f"h{slot('ptr')}")
    check_equal(one.make_many(100), [0] * 100, "and more when it is freed")
    settled("all of them are charged", machine, one)
    one.finish()


def check_reuse():
    """Within the limit: charged soon, and what ended streams leave is had again without a new charge."""
    machine, one, region = setup()
    one.begin()
    for number in range(1, 4):
        check_equal(one.make(number=number), 0, "a few streams are made")
    used = CONTEXT + 2 * MIB  # in granules
    check_equal(machine.used(one.pid), used, "and take memory")
    settled("which is charged soon, though nothing more is done", machine, one)
    check_equal([one.make(number=number) for number in range(4, 32)], [0] * 28, "as are more")
    settled("all of them are charged", machine, one)
    used = machine.used(one.pid)
    check(used >= CONTEXT + 31 * STREAM, "by what they take", used)
    for _ in range(20):
        for number in range(1, 32):
            one.must("cuStreamDestroy_v2", stream(number))
        check_equal((machine.used(one.pid), one.charged()), (used, used), "when they end their context keeps it")
        check_equal([one.make(number=number) for number in range(1, 32)], [0] * 31, "for others")
    check_equal((machine.used(one.pid), one.charged(), refusals(region)), (used, used, 0), "and nothing more is charged")
    one.must("cuDevicePrimaryCtxReset_v2", 0)
    one.begin()
    check_equal((machine.used(one.pid), one.charged()), (CONTEXT, CONTEXT), "it goes with the context")
    check_equal(one.call("cuMemAlloc_v2", f"n{slot('ptr')}", ROOM), 0, "and all of it is to be had")
    one.finish()


def check_captured():
    """In a capture streams are made, measured and refused as elsewhere, and it goes on."""
    machine, one, _ = setup()
    one.begin()
    one.make(number=2)
    one.must("cuStreamBeginCapture_v2", stream(2), 0)
    codes = one.make_many(2 * FITS)
    check(0 in codes and codes[-1] == OUT_OF_MEMORY, "they are refused beyond the limit", codes.count(0))
    one.must("cuStreamEndCapture", stream(2), f"n{slot('graph')}")
    check(machine.used(one.pid) <= LIMIT + 16 * STREAM, "which holds", machine.used(one.pid))
    one.finish()


for way in ("cuStreamCreate", "cuStreamCreateWithPriority"):
    check_limit(way, 1)
for current in (0, 1, None):
    check_limit("cuGreenCtxStreamCreate", current)
check_limit("cuStreamCreate", 1, pids="host")
check_room()
check_reuse()
check_captured()
finish()

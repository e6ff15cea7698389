#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Green contexts under a limit, by the simulator's own count: what they take and what is made in them is charged, it
goes with the primary context, and launches in their streams pay."""

import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

CONTEXT, GREEN = 60 * MIB, 6 * MIB
LIMIT = 256 * MIB
DETACHED, DESTROYED = 917, 709
NON_BLOCKING = 1


def resource(multiprocessors):
    """CUdevResource."""
    return struct.pack("<i92xIIII32x", 1, multiprocessors, 8, 8, 0)


class Greens(Caller):
    def start(self):
        self.must("cuInit", 0)
        return self

    def make(self, number=1, device=0):
        """A green context, kept at its place among the kinds that are not used here; the result."""
        self.must("cuDevResourceGenerateDesc", f"n{slot('external', 1)}", resource(16), 1)
        return self.call("cuGreenCtxCreate", f"n{slot('external', 1 + number)}", f"h{slot('external', 1)}", device, 1)

    def green(self, number=1):
        return f"h{slot('external', 1 + number)}"

    def use(self, number=1):
        self.must("cuCtxFromGreenCtx", f"n{slot('context', 10 + number)}", self.green(number))
        self.must("cuCtxSetCurrent", f"h{slot('context', 10 + number)}")

    def end(self, number=1):
        return self.call("cuGreenCtxDestroy", self.green(number))

    def take(self, number, size):
        return self.call("cuMemAlloc_v2", f"n{slot('ptr', number)}", size)


def setup(memory=LIMIT, **driver):
    machine = Machine(gpus=2, memory=4 * GIB, context=CONTEXT, driver=driver)
    return machine, Greens(limited_environment(machine, memory=memory)).start()


def check_charges(**driver):
    machine, one = setup(**driver)
    title = f"{driver or 'as it is'}: "
    check_equal(one.make(), 0, title + "a green context is made, and its primary one with it")
    one.use()
    check_equal((machine.used(one.pid), one.charged()), (CONTEXT + GREEN,) * 2, title + "both are charged")
    room = LIMIT - CONTEXT - GREEN
    check_equal((one.take(1, room + MIB), one.take(1, room)), (OUT_OF_MEMORY, 0), title + "in it there is what the limit leaves")
    check_equal(machine.used(one.pid), LIMIT, title + "exactly")
    check_equal(one.make(2), OUT_OF_MEMORY, title + "no more are made")
    check_equal(machine.used(one.pid), LIMIT, title + "nor leave anything")
    one.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
    check_equal(one.end(), 0, title + "it ends")
    check_equal(one.call("cuCtxSynchronize"), DESTROYED, title + "and is no context any more")
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    check_equal((machine.used(one.pid), one.charged()), (LIMIT - GREEN,) * 2, title + "what was made in it is the primary one's")
    one.must("cuMemFree_v2", f"h{slot('ptr', 1)}")
    check_equal((machine.used(one.pid), one.charged()), (CONTEXT,) * 2, title + "and is given back there")
    one.finish()


def check_reset():
    """What was made in a green context goes with the primary one."""
    for ending in ("cuDevicePrimaryCtxReset_v2", "cuGreenCtxDestroy"):
        machine, one = setup()
        check_equal(one.make(), 0, f"{ending}: one is made")
        one.use()
        check_equal(one.take(1, 100 * MIB), 0, f"{ending}: memory is taken in it")
        if ending == "cuGreenCtxDestroy":
            check_equal(one.end(), 0, f"{ending}: the last user of the primary context ends")
        else:
            one.must(ending, 0)
        check_equal(machine.used(one.pid), 0, f"{ending}: nothing is in use")
        one.must("cuCtxCreate_v2", f"n{slot('context', 3)}", 0, 0)
        check_equal((machine.used(one.pid), one.charged()), (CONTEXT,) * 2, f"{ending}: nothing stays charged")
        check_equal(one.take(2, LIMIT - CONTEXT), 0, f"{ending}: all of it is to be had again")
        one.finish()


def load_kernel(one):
    one.must("cuModuleLoadData", f"n{slot('module')}", b"hamisim-module 1\nsize=0\nkernel spin\n")
    one.must("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"spin")


def launch(one, stream=0, ns=1000):
    return one.call("cuLaunchKernel", f"h{slot('function')}", 1, 1, 1, 1, 1, 1, 0, stream, f"k{ns}", 0)


def check_many():
    machine = Machine(gpus=1, memory=4 * GIB, context=CONTEXT, driver={"stream": "0"})
    one = Greens(limited_environment(machine, memory=LIMIT, cores=50)).start()
    one.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    load_kernel(one)
    bad = 0
    for i in range(5000):
        bad += one.make() != 0
        one.use()
        bad += launch(one) != 0
        bad += one.end() != 0
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    check_equal((bad, machine.used(one.pid), one.charged()), (0, CONTEXT, CONTEXT), "five thousand come, are used and go, and nothing is left")
    check_equal(one.take(1, LIMIT - CONTEXT), 0, "and the limit is where it was")
    one.finish()


def check_killed():
    machine = Machine(gpus=1, memory=4 * GIB, context=CONTEXT)
    environment = limited_environment(machine, memory=LIMIT)
    one = Greens(environment).start()
    one.make()
    one.use()
    one.take(1, 100 * MIB)
    one.kill()
    other = Greens(environment).start()
    check_equal(other.make(), 0, "after a kill the next one is made")
    other.use()
    check_equal(other.charged(), CONTEXT + GREEN, "and nothing of the first is charged")
    other.finish()


def check_share():
    """Launches in all kinds of streams of one, in turn: the device's time is theirs together."""
    machine = Machine(gpus=1, memory=4 * GIB, context=CONTEXT)
    one = Greens(limited_environment(machine, memory=LIMIT, cores=30)).start()
    one.make()
    one.must("cuGreenCtxStreamCreate", f"n{slot('stream', 1)}", one.green(), NON_BLOCKING, 0)
    one.use()
    one.must("cuStreamCreate", f"n{slot('stream', 2)}", NON_BLOCKING)
    load_kernel(one)
    streams = [0, f"h{slot('stream', 1)}", f"h{slot('stream', 2)}"]
    (begun, before), i = machine.busy_ns(one.pid), 0
    until = time.monotonic() + 6
    while time.monotonic() < until:
        launch(one, streams[i % 3], 2000000)
        i += 1
        if i % 8 == 0:
            one.must("cuCtxSynchronize")
    one.must("cuCtxSynchronize")
    now, busy = machine.busy_ns(one.pid)
    share = 100 * (busy - before) / (now - begun)
    check(25 < share < 33, f"30 % of the device in a green context's streams: {share:.1f}")
    one.finish()


def check_ended_while_busy():
    """What runs in one goes on after its end: it is charged all the same."""
    machine = Machine(gpus=1, memory=4 * GIB, context=CONTEXT)
    one = Greens(limited_environment(machine, memory=LIMIT, cores=30)).start()
    one.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    load_kernel(one)
    begun, before = machine.busy_ns(one.pid)
    until = time.monotonic() + 8
    while time.monotonic() < until:
        one.make()
        one.must("cuGreenCtxStreamCreate", f"n{slot('stream', 1)}", one.green(), NON_BLOCKING, 0)
        check_equal(launch(one, f"h{slot('stream', 1)}", 300 * 10**6), 0, "a long kernel is launched")
        check_equal(one.end(), 0, "and its green context ends")
        one.must("cuStreamDestroy_v2", f"h{slot('stream', 1)}")
    now, busy = machine.busy_ns(one.pid)
    share = 100 * (busy - before) / (now - begun)
    check(share < 36, f"30 % of the device, whose green contexts end while it works: {share:.1f}")
    one.finish()


def check_streams():
    machine, one = setup()
    one.make()
    one.must("cuGreenCtxStreamCreate", f"n{slot('stream')}", one.green(), NON_BLOCKING, 0)
    one.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    load_kernel(one)
    one.end()
    check_equal((launch(one, f"h{slot('stream')}"), one.call("cuStreamDestroy_v2", f"h{slot('stream')}")), (DETACHED, 0), "a stream outlives it, detached")
    one.finish()


check_charges()
check_charges(loading="eager")
check_charges(pids="host")
check_reset()
check_many()
check_killed()
check_streams()
check_share()
check_ended_while_busy()
finish()

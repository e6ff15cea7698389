#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A kernel at an address that is none: from then on the program gets the driver's own answers, at once, whatever its limits are; and
nothing of it is left for others to pay."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

IMAGE = b"hamisim-module 1\nsize=65536\nkernel spin\nkernel bad faults\nkernel other\n"
ILLEGAL_ADDRESS = 700
MODULE, SPIN, BAD, OTHER = f"h{slot('module')}", *(f"h{slot('function', n)}" for n in (1, 2, 3))
FIRST, SECOND, EVENT = f"h{slot('stream')}", f"h{slot('stream', 2)}", f"h{slot('event')}"
PATIENCE_S = 1.5  # for any one call


class Program(Caller):
    def __init__(self, environment):
        super().__init__(environment)
        self.begin()
        self.must("cuModuleLoadData", f"n{slot('module')}", IMAGE)
        for number, name in enumerate((b"spin", b"bad", b"other"), 1):
            self.must("cuModuleGetFunction", f"n{slot('function', number)}", MODULE, name)
        for number in (1, 2):
            self.must("cuStreamCreate", f"n{slot('stream', number)}", 1)
        self.must("cuEventCreate", f"n{slot('event')}", 0)

    def launch(self, function, stream, ns, blocks=1):
        return self.call("cuLaunchKernel", function, blocks, 1, 1, 1, 1, 1, 0, stream, f"k{ns},0", 0)


def work(program):
    """In two streams, some of it under way: the answers up to the fault."""
    answers = [program.call("cuMemAlloc_v2", f"n{slot('ptr')}", 64 * MIB), program.call("cuMemAllocAsync", f"n{slot('ptr', 2)}", 4 * MIB, FIRST)]
    answers += [program.launch(SPIN, FIRST, 200_000) for _ in range(40)]
    answers += [program.launch(SPIN, SECOND, 3_000_000), program.call("cuEventRecord", EVENT, FIRST)]
    answers += [program.launch(BAD, FIRST, 2_000_000)]
    return answers


def aftermath(program):
    """What each call says then, and the one that took longest."""
    calls = [
        ("cuStreamSynchronize", FIRST), ("cuStreamSynchronize", SECOND), ("cuStreamQuery", FIRST), ("cuEventQuery", EVENT),
        ("cuEventSynchronize", EVENT), ("cuCtxSynchronize",), ("cuMemGetInfo_v2", "o8", "o8"), ("cuMemAlloc_v2", f"n{slot('ptr', 3)}", 2 * MIB),
        ("cuMemAlloc_v2", f"n{slot('ptr', 3)}", 1 << 40), ("cuMemAllocAsync", f"n{slot('ptr', 3)}", 2 * MIB, FIRST),
        ("cuMemAllocManaged", f"n{slot('ptr', 3)}", 2 * MIB, 1), ("cuMemAllocManaged", f"n{slot('ptr', 3)}", 1 << 40, 1),
        ("cuMemCreate", f"n{slot('physical')}", 2 * MIB, allocation_prop(), 0), ("cuMemCreate", f"n{slot('physical')}", 1 << 40, allocation_prop(), 0),
        ("cuMemFree_v2", f"h{slot('ptr')}"), ("cuMemFreeAsync", f"h{slot('ptr', 2)}", FIRST),
        ("cuMemsetD8Async", f"h{slot('ptr')}", 0, 4096, FIRST), ("cuEventRecord", EVENT, FIRST), ("cuEventCreate", f"n{slot('event', 2)}", 0),
        ("cuStreamCreate", f"n{slot('stream', 3)}", 0), ("cuStreamBeginCapture_v2", FIRST, 0), ("cuModuleLoadData", f"n{slot('module', 2)}", IMAGE),
        ("cuModuleUnload", MODULE), ("cuCtxSetLimit", 0, 4096), ("cuCtxCreate_v2", f"n{slot('context', 3)}", 0, 0), ("cuStreamDestroy_v2", SECOND),
        ("cuCtxGetCurrent", f"n{slot('context', 4)}"), ("cuDeviceGetCount", "o4"), ("cuCtxGetDevice", "o4"),
    ]  # fmt: skip
    answers, slowest = [], (0, "")
    for name, *words in calls:
        begun = time.monotonic()
        answers.append((name, program.call(name, *words)))
        slowest = max(slowest, (time.monotonic() - begun, name))
    # As many as there are places to measure launches, of a shape that is known and of ones that are not.
    begun = time.monotonic()
    answers += [("a launch", program.launch(function, FIRST, 10_000, blocks)) for blocks in range(1, 200) for function in (SPIN, OTHER)]
    slowest = max(slowest, (time.monotonic() - begun, "398 launches"))
    answers += [(name, program.call(name, 0)) for name in ("cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2")]
    return answers, slowest


def check_answers():
    machine = Machine(gpus=1, memory=4 * GIB)
    one = Program(bare_environment(machine))
    before, (wanted, _) = work(one), aftermath(one)
    one.finish()
    check_equal(set(before), {0}, "until it faults all goes well")
    check(("cuStreamSynchronize", ILLEGAL_ADDRESS) in wanted and ("a launch", ILLEGAL_ADDRESS) in wanted, "then the driver says so", wanted)
    for title, limits in {"without a limit": {}, "under a limit of memory": {"memory": GIB}, "under limits of both": {"memory": GIB, "cores": 30}}.items():
        region = new_region()
        one = Program(limited_environment(machine, region=region, **limits))
        check_equal(work(one), before, f"{title}: until it faults all goes well")
        got, slowest = aftermath(one)
        different = [(name, a, b) for (name, a), (_, b) in zip(got, wanted) if a != b]
        check_equal(different, [], f"{title}: then each answer is the driver's")
        check(slowest[0] < PATIENCE_S, f"{title}: and comes at once", slowest)
        check_equal(one.finish(), "", f"{title}: nobody said a word")
        check_equal(machine.used(), 0, f"{title}: nothing is in use at the end")
        check_next(machine, region, title, limits)


def check_next(machine, region, title, limits):
    """Another process of the container."""
    one = Program(limited_environment(machine, region=region, **limits))
    begun = time.monotonic()
    check_equal([one.launch(SPIN, FIRST, 200_000), one.call("cuStreamSynchronize", FIRST)], [0, 0], f"{title}: the next process works")
    check(time.monotonic() - begun < PATIENCE_S, f"{title}: and waits for nothing of the former one's", time.monotonic() - begun)
    if limits:
        check(one.charged() < 400 * MIB, f"{title}: nor is it charged for that", one.charged())
    one.finish()


def check_neighbour():
    """Another process of the container, before and after."""
    machine, region = Machine(gpus=1, memory=4 * GIB), new_region()
    there, faulty = (Program(limited_environment(machine, memory=GIB, cores=30, region=region)) for _ in range(2))
    check_equal([there.launch(SPIN, FIRST, 1_000_000), there.call("cuStreamSynchronize", FIRST)], [0, 0], "two processes share a container")
    work(faulty)
    check_equal(faulty.call("cuCtxSynchronize"), ILLEGAL_ADDRESS, "one of them faults")
    answers = [there.launch(SPIN, FIRST, 1_000_000) for _ in range(20)] + [there.call("cuStreamSynchronize", FIRST)]
    check_equal(set(answers), {0}, "the other goes on")
    faulty.kill()
    check(wait_until(lambda: there.charged() < 400 * MIB, 5), "and once the first is killed its memory is free", there.charged())


check_answers()
check_neighbour()
finish()

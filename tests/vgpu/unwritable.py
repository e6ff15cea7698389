#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program whose output can't be written goes on after the fault: it pays for what the device holds alone, and no lock is left behind."""

import sys
import threading

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from anything_calls import array_forms
from caller import *
from harness import *

CONTEXT = 60 * MIB
LIMIT = 1 * GIB
PIECE = 64 * MIB
FAULTS = -11
CODE = b"hamisim-module 1\nsize=65536\nkernel spin\nmanaged variable 4194304\n"
PICTURE = array_forms((4096, 4096, 0, 32, 1, 0))
NOWHERE, HALF = "u0", "u4"
POOL, MODULE, STREAM = f"h{slot('pool')}", f"h{slot('module')}", f"h{slot('stream')}"

# The output is cleared before anything is taken or charged.
CLEARED = [
    ("cuMemAlloc_v2", NOWHERE, PIECE),
    ("cuMemAlloc_v2", HALF, PIECE),
    ("cuMemAlloc_v2", NOWHERE, 2 * LIMIT),
    ("cuMemAlloc", NOWHERE, PIECE),
    ("cuMemAllocPitch_v2", NOWHERE, "o8", 1 << 20, 64, 4),
    ("cuMemAllocPitch_v2", "o8", NOWHERE, 1 << 20, 64, 4),
    ("cuMemAllocPitch_v2", "o8", NOWHERE, 1 << 20, 4096, 4),
    ("cuMemAllocPitch", NOWHERE, "o4", 1 << 20, 64, 4),
    ("cuMemAllocPitch", "o4", NOWHERE, 1 << 20, 64, 4),
    ("cuMemAllocManaged", NOWHERE, PIECE, 1),
    ("cuMemAllocManaged", NOWHERE, 2 * LIMIT, 1),
    ("cuMemAllocAsync", NOWHERE, PIECE, 0),
    ("cuMemAllocAsync", HALF, PIECE, STREAM),
    ("cuMemAllocAsync_ptsz", NOWHERE, PIECE, 0),
    ("cuMemAllocFromPoolAsync", NOWHERE, PIECE, POOL, 0),
    ("cuMemAllocFromPoolAsync_ptsz", NOWHERE, PIECE, POOL, STREAM),
]

# The driver has made it by the time that its handle can't be told: it is there until its context ends, or the program.
MADE = [
    ("cuMemCreate", NOWHERE, PIECE, allocation_prop(), 0),
    ("cuArrayCreate", NOWHERE, PICTURE[0]),
    ("cuArrayCreate_v2", NOWHERE, PICTURE[1]),
    ("cuArray3DCreate", NOWHERE, PICTURE[2]),
    ("cuArray3DCreate_v2", NOWHERE, PICTURE[3]),
    ("cuMipmappedArrayCreate", NOWHERE, PICTURE[3], 3),
    ("cuModuleLoadData", NOWHERE, CODE),
    ("cuLibraryLoadData", NOWHERE, CODE, 0, 0, 0, 0, 0, 0),
    ("cuStreamCreate", NOWHERE, 0),
    ("cuMemPoolCreate", NOWHERE, allocation_prop() + bytes(64)),
    ("cuCtxCreate_v2", NOWHERE, 0, 0),
]


def begin(**more):
    """A machine, and a program with a pool, a module and a stream on it."""
    machine = Machine(gpus=1, memory=4 * GIB, context=CONTEXT)
    one = Caller(limited_environment(machine, memory=LIMIT, **more)).begin()
    one.must("cuDeviceGetDefaultMemPool", f"n{slot('pool')}", 0)
    one.must("cuModuleLoadData", f"n{slot('module')}", CODE)
    one.must("cuStreamCreate", f"n{slot('stream')}", 1)
    settle(machine, one)
    return machine, one


def settle(machine, one):
    """What streams and code take is found a moment later."""
    wait_until(lambda: machine.used(one.pid) == one.charged(), 5)


def check_end(machine, one, sentence):
    """All that is not charged can be had, and no more; with the program it has gone."""
    free, _ = one.info()
    codes = [one.call("cuMemAlloc_v2", f"n{slot('ptr', n)}", bytes) for n, bytes in ((1, free), (2, 1))]
    check_equal((codes, machine.used(one.pid)), ([0, OUT_OF_MEMORY], LIMIT), sentence)
    one.kill()
    check_equal(machine.used(), 0, "and nothing stays")


def check_cleared(**more):
    machine, one = begin(**more)
    for name, *words in CLEARED:
        if HALF in words and SANITIZER:  # which forbids what is not aligned
            continue
        before = machine.used(one.pid), one.charged()
        got = one.call(name, *words), machine.used(one.pid), one.charged()
        check_equal(got, (FAULTS, *before), f"{name} to {words}: it faults, and nothing is taken or charged")
    check_end(machine, one, "the limit is whole")


def check_made():
    machine, one = begin()
    for name, *words in MADE:
        check_equal(one.call(name, *words), FAULTS, f"{name}: it faults")
        settle(machine, one)
        check_equal(one.charged(), machine.used(one.pid), f"{name}: charged is what the device holds")
    check_end(machine, one, "all else of the limit can be had")


def check_variable():
    """A variable in managed memory is paid for once, however often its place can't be told."""
    machine, one = begin()
    before = one.charged()
    for words in ((NOWHERE, "o8"), ("o8", NOWHERE), ("o8", "o8")):
        result = one.call("cuModuleGetGlobal_v2", *words, MODULE, b"variable")
        check_equal((result, one.charged() - before), (FAULTS if NOWHERE in words else 0, 4 * MIB), f"cuModuleGetGlobal_v2 to {words}")
    one.must("cuModuleUnload", MODULE)
    settle(machine, one)
    check_equal(one.charged(), machine.used(one.pid), "and unloaded it is paid for no more")
    one.kill()


def check_captured():
    """What becomes a graph's is taken under a lock that the end of the capture waits for."""
    machine, one = begin()
    before = one.charged()
    one.must("cuStreamBeginCapture_v2", STREAM, 2)
    check_equal(one.call("cuMemAllocAsync", NOWHERE, PIECE, STREAM), FAULTS, "in a capture it faults")
    one.must("cuMemAllocAsync", f"n{slot('ptr')}", PIECE, STREAM)
    one.must("cuStreamEndCapture", STREAM, f"n{slot('graph')}")
    check_equal(one.number("cuGraphGetNodes", f"h{slot('graph')}", 0, "v8:0"), 1, "and the graph has one node, of the allocation that did not")
    check_equal(one.charged(), before, "and nothing is charged yet")
    one.kill()


def begin_all():
    """With all that is given out or changed below."""
    machine, one = begin()
    one.must("cuMemPoolCreate", f"n{slot('pool', 2)}", allocation_prop(handles=POSIX_FD) + bytes(64))
    one.must("cuMemCreate", f"n{slot('physical')}", PIECE, allocation_prop(handles=POSIX_FD), 0)
    one.must("cuGraphCreate", f"n{slot('graph')}", 0)
    one.must("cuGraphInstantiateWithFlags", f"n{slot('exec')}", f"h{slot('graph')}", 0)
    settle(machine, one)
    return machine, one


GRAPH, EXEC = f"h{slot('graph')}", f"h{slot('exec')}"
TELLS = [
    ("cuMemPoolExportToShareableHandle", NOWHERE, f"h{slot('pool', 2)}", POSIX_FD, 0),
    ("cuMemExportToShareableHandle", NOWHERE, f"h{slot('physical')}", POSIX_FD, 0),
    ("cuDevicePrimaryCtxRetain", NOWHERE, 0),
    ("cuCtxAttach", NOWHERE, 0),
    ("cuStreamEndCapture", STREAM, NOWHERE),
    ("cuGraphInstantiate", "o8", GRAPH, NOWHERE, 0, 0),
    ("cuGraphInstantiate", "o8", GRAPH, 0, NOWHERE, 8),
    ("cuGraphInstantiate_v2", "o8", GRAPH, NOWHERE, 0, 0),
    ("cuGraphInstantiate_v2", NOWHERE, GRAPH, 0, 0, 0),
    ("cuGraphInstantiateWithParams", "o8", GRAPH, NOWHERE),
    ("cuGraphExecUpdate", EXEC, GRAPH, NOWHERE, "o8"),
    ("cuGraphExecUpdate", EXEC, GRAPH, "o8", NOWHERE),
    ("cuGraphExecUpdate_v2", EXEC, GRAPH, NOWHERE),
]

# By other threads; each waits for a lock that one of those above has held.
GO_ON = [
    ("cuMemPoolTrimTo", f"h{slot('pool', 2)}", 0),
    ("cuMemRetainAllocationHandle", "o8", 0),
    ("cuDevicePrimaryCtxRetain", "o8", 0),
    ("cuStreamBeginCapture_v2", f"h{slot('stream', 2)}", 2),
    ("cuStreamEndCapture", f"h{slot('stream', 2)}", "o8"),
    ("cuGraphInstantiateWithFlags", "o8", GRAPH, 0),
]


def check_told():
    """Where the driver only tells something no lock is held by who is stopped in the fault."""
    for name, *words in TELLS:
        machine, one = begin_all()
        one.must("cuStreamCreate", f"n{slot('stream', 2)}", 1)
        if name == "cuStreamEndCapture":
            one.must("cuStreamBeginCapture_v2", STREAM, 2)
        alarm = threading.Timer(20, one.process.kill)
        alarm.start()
        check_equal(one.call(name, *words), FAULTS, f"{name} to {words}: it faults")
        for other, *others in GO_ON:
            one.call(other, *others, thread=1)
        one.must("cuModuleLoadData", f"n{slot('module', 2)}", CODE)
        wait_until(lambda: machine.used(one.pid) == one.charged(), 5)
        check_equal(machine.used(one.pid), one.charged(), "and other threads go on, the library's too")
        alarm.cancel()
        one.kill()


def check_unchanged():
    """Parameters of a node that the driver leaves as they are may be where nobody can write."""
    machine, one = begin_all()
    empty = "u8:5"  # CU_GRAPH_NODE_TYPE_EMPTY
    for name, edges in (("cuGraphAddNode", ()), ("cuGraphAddNode_v2", (0,)), ("cuGraphAddNode_v3", (0,))):
        check_equal(one.call(name, f"n{slot('node')}", GRAPH, 0, *edges, 0, empty), 0, f"{name}: its parameters are read only")
    one.kill()


check_told()
check_unchanged()
check_cleared()
check_cleared(CUDA_OVERSUBSCRIBE="true")
check_made()
check_variable()
check_captured()
finish()

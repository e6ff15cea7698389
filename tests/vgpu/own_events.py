#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library's own events, whose handles a program can guess: nothing changes one (`share greedy` has what that would bring). Nor do they fill a stream's queue."""

import signal
import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

KERNEL = b"hamisim-module 1\nsize=0\nkernel one\n"
INVALID_HANDLE = 400
RECORD_NODE = 7  # CU_GRAPH_NODE_TYPE_EVENT_RECORD
STREAM, GRAPH, EVENT, NODE, EXEC = slot("stream"), slot("graph"), slot("event"), slot("node"), slot("exec")
APART, NEAR = 16, 2000  # handles of the simulated driver's, and how many are tried


def node_params(event):
    """CUgraphNodeParams of a node that records it."""
    return struct.pack("<iiiiQ", RECORD_NODE, 0, 0, 0, event).ljust(256, b"\0")


def ways(event):
    """Calls that would change an event, or have it changed."""
    params = node_params(event)
    yield "cuEventRecord", event, f"h{STREAM}"
    yield "cuEventRecord_ptsz", event, f"h{STREAM}"
    yield "cuEventRecordWithFlags", event, f"h{STREAM}", 0
    yield "cuEventRecordWithFlags_ptsz", event, f"h{STREAM}", 0
    yield "cuCtxRecordEvent", f"h{slot('context')}", event
    yield "cuGreenCtxRecordEvent", f"h{slot('context')}", event
    yield "cuGraphAddEventRecordNode", f"n{slot('node', 2)}", f"h{GRAPH}", 0, 0, event
    yield "cuGraphEventRecordNodeSetEvent", f"h{NODE}", event
    yield "cuGraphExecEventRecordNodeSetEvent", f"h{EXEC}", f"h{NODE}", event
    yield "cuGraphAddNode", f"n{slot('node', 2)}", f"h{GRAPH}", 0, 0, params
    yield "cuGraphAddNode_v2", f"n{slot('node', 2)}", f"h{GRAPH}", 0, 0, 0, params
    yield "cuGraphAddNode_v3", f"n{slot('node', 2)}", f"h{GRAPH}", 0, 0, 0, params
    yield "cuGraphNodeSetParams", f"h{NODE}", params
    yield "cuGraphNodeSetParams_v2", f"h{NODE}", params
    yield "cuGraphExecNodeSetParams", f"h{EXEC}", f"h{NODE}", params
    yield "cuEventDestroy", event
    yield "cuEventDestroy_v2", event


machine = Machine()
one = Caller(limited_environment(machine, memory=512 * MIB, cores=50)).begin()
one.must("cuStreamCreate", f"n{STREAM}", 1)
one.must("cuModuleLoadData", f"n{slot('module')}", KERNEL)
one.must("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"one")
one.must("cuGraphCreate", f"n{GRAPH}", 0)
one.must("cuEventCreate", f"n{EVENT}", 0)
one.must("cuGraphAddEventRecordNode", f"n{NODE}", f"h{GRAPH}", 0, 0, f"h{EVENT}")
one.must("cuGraphInstantiateWithFlags", f"n{EXEC}", f"h{GRAPH}", 0)
for _ in range(200):
    one.must("cuLaunchKernel", f"h{slot('function')}", 1, 1, 1, 1, 1, 1, 0, f"h{STREAM}", "k1000", 0)
one.must("cuStreamSynchronize", f"h{STREAM}")

first = one.value(EVENT)
guesses = [first + APART * i for i in range(-NEAR, NEAR) if i]
# What the driver knows as an event that is done, and may not be recorded, is ours.
ours = [event for event in guesses if one.call("cuEventQuery", event) == 0 and one.call("cuEventRecord", event, f"h{STREAM}")]
check(len(ours) > 3, f"of the library's events {len(ours)} can be guessed")
for name, *words in ways(first):
    if "Destroy" not in name and "Green" not in name:
        check_equal(one.call(name, *words), 0, f"{name} changes one of the program's own")
changed = [(name, event) for event in ours for name, *words in ways(event) if one.call(name, *words) != INVALID_HANDLE]
check_equal(changed, [], "none of the library's, by no call")
one.finish()

# The library's events leave a stream's queue (1,024 places on the simulated driver) to the program.
other = Caller(limited_environment(Machine(), memory=512 * MIB)).begin()
for number in (1, 2):
    other.must("cuStreamCreate", f"n{slot('stream', number)}", 1)
other.must("cuModuleLoadData", f"n{slot('module')}", KERNEL)
other.must("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"one")
other.must("cuMemAlloc_v2", f"n{slot('ptr')}", 4096)
other.must("cuMemsetD8_v2", f"h{slot('ptr')}", 0, 4096)
other.must("cuStreamWaitValue32_v2", f"h{STREAM}", f"h{slot('ptr')}", 1, 1)
signal.alarm(60)  # a call that blocks is never answered
for _ in range(950):
    other.must("cuLaunchKernel", f"h{slot('function')}", 1, 1, 1, 1, 1, 1, 0, f"h{STREAM}", "k1000", 0)
other.must("cuStreamWriteValue32_v2", f"h{slot('stream', 2)}", f"h{slot('ptr')}", 1, 0)
other.must("cuStreamSynchronize", f"h{STREAM}")
signal.alarm(0)
check(True, "950 launches behind a wait don't block where compute is not limited")
other.finish()
finish()

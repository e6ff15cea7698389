#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A context that the CUDA runtime's table made where the library gives nothing: on a card that the container was not
given, or under limits that can't be in force. By the simulator's own count nothing comes
into it and nothing runs in it, whatever is called."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

CONTEXT = 60 * MIB
LIMIT = 512 * MIB
MANY = 500
INVALID_DEVICE, NOT_READY = 101, 802
UPLOAD = 2
HEAP = 2
CODE_SIZE = 32 * MIB
CODE = b"hamisim-module 1\nsize=%d\nkernel one\n" % CODE_SIZE
GRAPH, EXEC = f"h{slot('graph')}", f"n{slot('exec', 2)}"
MADE = f"h{slot('exec')}"
LIBRARY, KERNEL = f"h{slot('library')}", f"h{slot('kernel')}"
STREAM = f"n{slot('stream')}"
GREEN = f"h{slot('external', 2)}"

# What takes memory of the card or runs there, in the context that is current.
TAKING = [
    ("cuMemAlloc_v2", f"n{slot('ptr')}", MIB),
    ("cuMemAllocPitch_v2", f"n{slot('ptr')}", "o8", 4096, 256, 4),
    ("cuMemAllocAsync", f"n{slot('ptr')}", MIB, 0),
    ("cuMemAllocManaged", f"n{slot('ptr')}", MIB, 1),
    ("cuModuleLoadData", f"n{slot('module')}", CODE),
    ("cuModuleLoadDataEx", f"n{slot('module')}", CODE, 0, 0, 0),
    ("cuModuleLoadFatBinary", f"n{slot('module')}", CODE),
    ("cuLibraryLoadData", f"n{slot('library', 2)}", CODE, 0, 0, 0, 0, 0, 0),
    ("cuStreamCreate", STREAM, 1),
    ("cuStreamCreateWithPriority", STREAM, 1, 0),
    ("cuGreenCtxStreamCreate", STREAM, GREEN, 1, 0),
    ("cuCtxSetLimit", HEAP, 64 * MIB),
    ("cuGraphInstantiate", EXEC, GRAPH, 0, 0, 0),
    ("cuGraphInstantiate_v2", EXEC, GRAPH, 0, 0, 0),
    ("cuGraphInstantiateWithFlags", EXEC, GRAPH, 0),
    ("cuGraphInstantiateWithParams", EXEC, GRAPH, struct.pack("<QQQi4x", UPLOAD, 0, 0, 0)),
]
# The same, of what was made elsewhere.
RUNNING = [
    ("cuLaunchKernel", KERNEL, 100, 1, 1, 1, 1, 1, 0, 0, "k1000", 0),
    ("cuLaunchKernel_ptsz", KERNEL, 100, 1, 1, 1, 1, 1, 0, 0, "k1000", 0),
    ("cuLaunchCooperativeKernel", KERNEL, 1, 1, 1, 1, 1, 1, 0, 0, "k1000"),
    ("cuKernelGetFunction", f"n{slot('function')}", KERNEL),
    ("cuFuncLoad", KERNEL),
    ("cuLibraryGetModule", f"n{slot('module')}", LIBRARY),
    ("cuGraphUpload", MADE, 0),
    ("cuGraphLaunch", MADE, 0),
    ("cuGraphLaunch_ptsz", MADE, 0),
]


class Tenant(Caller):
    def unseen(self, device):
        """As the runtime makes a primary context: through a table that is no export."""
        context = slot("context", 8 + device)
        check_equal(self.ask(f"call 0 t cuDevicePrimaryCtxRetain n{context} i{device}")[0], "0", f"the table makes a context on card {device}")
        self.must("cuCtxSetCurrent", f"h{context}")

    def library(self):
        """A kernel that has one handle in all contexts, before there is any."""
        self.must("cuInit", 0)
        self.must("cuLibraryLoadData", f"n{slot('library')}", CODE, 0, 0, 0, 0, 0, 0)
        self.must("cuLibraryGetKernel", f"n{slot('kernel')}", LIBRARY, b"one")

    def graph(self):
        self.must("cuGraphCreate", f"n{slot('graph')}", 0)

    def tries(self, calls):
        """Those that are not out of memory, and the answer."""
        return [(name, result) for name, *words in calls if (result := self.call(name, *words)) != OUT_OF_MEMORY]


def has(machine, one, gpu=0):
    """Bytes, and whether anything ran."""
    return machine.used(one.pid, gpu), machine.busy_ns(one.pid, gpu)[1]


def check_not_given(visible, cores):
    title = f"two cards, one given, {visible} shown, {cores or 'no'} share: "
    machine = Machine(gpus=2, memory=4 * GIB, context=CONTEXT)
    keys = {"CUDA_DEVICE_SM_LIMIT": cores} if cores else {}
    given = machine.view()["gpus"][0]["uuid"]
    library = container(NVIDIA_VISIBLE_DEVICES=given, HAMI_VISIBLE_DEVICES=visible, CUDA_DEVICE_MEMORY_LIMIT=LIMIT, **keys)
    one = Tenant(bare_environment(machine, LD_PRELOAD=library))
    one.library()
    one.begin(0)
    one.graph()
    one.must("cuGraphAddKernelNode_v2", f"n{slot('node')}", GRAPH, 0, 0, f"q{slot('kernel')},100,1000")
    one.must("cuGraphInstantiateWithFlags", MADE.replace("h", "n"), GRAPH, 0)
    # Known and paid for where they may run: by then such launches are not looked at.
    check_equal([one.call(*RUNNING[0]) for _ in range(MANY)], [0] * MANY, title + "a kernel is launched on the one")
    check_equal([one.call("cuGraphLaunch", MADE, 0) for _ in range(MANY)], [0] * MANY, title + "and a graph")
    check_equal(one.call("cuDevicePrimaryCtxRetain", f"n{slot('context', 2)}", 1), INVALID_DEVICE, title + "a context on the other is refused by name")
    one.unseen(1)
    check_equal(one.tries(RUNNING + TAKING), [], title + "in one by the table all is out of memory")
    one.must("cuDevResourceGenerateDesc", f"n{slot('external')}", struct.pack("<i92xIIII32x", 1, 16, 8, 8, 0), 1)
    check_equal(one.call("cuGreenCtxCreate", f"n{slot('external', 2)}", f"h{slot('external')}", 1, 1), INVALID_DEVICE, title + "nor is it split")
    check_equal(has(machine, one, 1), (CONTEXT, 0), title + "the other card has the context alone")
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    check_equal([one.call(*RUNNING[0]), one.call("cuGraphLaunch", MADE, 0), one.call(*TAKING[0])], [0] * 3, title + "the given one serves")
    one.finish()


def check_graph_of_other():
    """A node may be in another context than the current one."""
    machine = Machine(gpus=2, memory=4 * GIB, context=CONTEXT)
    one = Tenant(bare_environment(machine, LD_PRELOAD=container(NVIDIA_VISIBLE_DEVICES=machine.view()["gpus"][0]["uuid"], CUDA_DEVICE_MEMORY_LIMIT=LIMIT)))
    one.library()
    one.begin(0)
    # Known to be of the given card.
    one.must("cuStreamCreate", STREAM, 1)
    stream = STREAM.replace("n", "h")
    one.must("cuStreamBeginCapture_v2", stream, 2)
    one.must("cuLaunchKernel", KERNEL, 100, 1, 1, 1, 1, 1, 0, stream, "k1000", 0)
    one.must("cuStreamEndCapture", stream, f"n{slot('graph', 2)}")
    one.unseen(1)
    one.graph()
    one.must("cuGraphAddKernelNode_v2", f"n{slot('node')}", GRAPH, 0, 0, f"q{slot('kernel')},100,1000")
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    made = one.call("cuGraphInstantiateWithFlags", EXEC, GRAPH, 0)
    check_equal(made, OUT_OF_MEMORY, "a graph with a node on a card that was not given is not made")
    if made == 0:
        one.call("cuGraphLaunch", EXEC.replace("n", "h"), 0)
        one.must("cuCtxSynchronize")
    check_equal(has(machine, one, 1), (CONTEXT + CODE_SIZE, 0), "what it would run was loaded for the node, and runs nowhere")
    one.finish()


def check_eager():
    """A library is loaded into each context at once."""
    machine = Machine(gpus=2, memory=4 * GIB, context=CONTEXT, driver={"loading": "eager"})
    one = Tenant(bare_environment(machine, LD_PRELOAD=container(NVIDIA_VISIBLE_DEVICES=machine.view()["gpus"][0]["uuid"], CUDA_DEVICE_MEMORY_LIMIT=LIMIT)))
    one.begin(0)
    one.unseen(1)
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    check_equal(one.call("cuLibraryLoadData", f"n{slot('library')}", CODE, 0, 0, 0, 0, 0, 0), OUT_OF_MEMORY, "a library that would be in the other card's context is not loaded")
    check_equal(has(machine, one, 1), (CONTEXT, 0), "nor anything of it left there")
    one.finish()


def check_denied():
    machine = Machine(memory=4 * GIB, context=CONTEXT)
    one = Tenant(limited_environment(machine, memory="garbage"))
    check_equal(one.call("cuInit", 0), NOT_READY, "under limits that can't be read")
    one.unseen(0)
    one.graph()
    check_equal(one.tries(TAKING + RUNNING), [], "all is out of memory")
    check_equal(has(machine, one), (CONTEXT, 0), "and a context by the table has nothing in it")
    one.finish()


def check_unreadable():
    """What the tenant writes into the environment changes nothing where a file rules."""
    for key, value in (("CUDA_DEVICE_MEMORY_LIMIT", "garbage"), ("CUDA_DEVICE_CONTEXT_SIZE", "x"), ("CUDA_TASK_PRIORITY", "-")):
        machine = Machine(memory=4 * GIB, context=CONTEXT)
        library = container(CUDA_DEVICE_MEMORY_LIMIT=LIMIT)
        one = Tenant(bare_environment(machine, LD_PRELOAD=library, CUDA_DEVICE_MEMORY_LIMIT_0=LIMIT - 2 * MIB, **{key: value}))
        one.begin(0)
        room = LIMIT - 2 * MIB - CONTEXT
        takes = [one.call("cuMemAlloc_v2", f"n{slot('ptr', i)}", size) for i, size in enumerate((room + MIB, room), 1)]
        check_equal(takes, [OUT_OF_MEMORY, 0], f"{key}={value} beside a file of limits: they are in force, and lowered by what can be read")
        said = one.finish()
        check_equal([f'"{key}={value}" can\'t be read' in line for line in said.splitlines()], [True], "which is said, once")


for visible in ("granted", "all"):
    for cores in (30, None):
        check_not_given(visible, cores)
check_graph_of_other()
check_eager()
check_denied()
check_unreadable()
finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What graphs allocate: charged as they are launched or uploaded, by the simulator's own count, until it is trimmed."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

PIECE = 2 * MIB
CONTEXT = 60 * MIB
LIMIT = 512 * MIB
ROOM = LIMIT - CONTEXT
AUTO_FREE, UPLOAD = 1, 2
DEVICE, HOST, HOST_NUMA, HOST_NUMA_CURRENT, UNKNOWN_PLACE = 1, 2, 3, 4, 7
PINNED, MANAGED = 1, 2
KERNEL = b"hamisim-module 1\nsize=0\nkernel one\n"


class Grapher(Caller):
    def begin(self, device=0):
        super().begin(device)
        for i in range(3):
            self.must("cuStreamCreate", f"n{self.stream(i)[1:]}", 1)
        return self

    def stream(self, number):
        return f"h{slot('stream', 1 + number)}"

    def new(self, graph=1):
        self.must("cuGraphCreate", f"n{slot('graph', graph)}", 0)
        self.last = None

    def after(self):
        return (f"d{self.last}", 1) if self.last else (0, 0)

    def take(self, number, size, graph=1, device=0, chained=True, place=DEVICE, kind=PINNED):
        """A node that allocates, behind the last one."""
        node, words = slot("node", number), self.after() if chained else (0, 0)
        code = self.call(
            "cuGraphAddMemAllocNode", f"n{node}", f"h{slot('graph', graph)}", *words, f"a{slot('ptr', number)},{device},{size},{place},{kind}"
        )
        if not code:
            self.last = node
        return code

    def give(self, number, graph=1, at=None):
        node = slot("node", 16 + number)
        code = self.call("cuGraphAddMemFreeNode", f"n{node}", f"h{slot('graph', graph)}", *self.after(), f"h{slot('ptr', number)}")
        self.last = node
        return code

    def load(self):
        self.must("cuModuleLoadData", f"n{slot('module')}", KERNEL)
        self.must("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"one")

    def work(self, number, ns, graph=1):
        """A kernel node."""
        self.load()
        self.kernel(number, ns, graph)

    def kernel(self, number, ns, graph):
        node = slot("node", number)
        self.must("cuGraphAddKernelNode_v2", f"n{node}", f"h{slot('graph', graph)}", *self.after(), f"q{slot('function')},100,{ns}")
        self.last = node

    def make(self, graph=1, flags=0):
        self.must("cuGraphInstantiateWithFlags", f"n{slot('exec', graph)}", f"h{slot('graph', graph)}", flags)

    def temporary(self, size, graph=1):
        """What is launched takes so much and frees it."""
        self.new(graph)
        self.take(graph, size, graph)
        self.give(graph, graph)
        self.make(graph)

    def launch(self, graph=1, stream=0):
        return self.call("cuGraphLaunch", f"h{slot('exec', graph)}", self.stream(stream))

    def upload(self, graph=1, stream=0):
        return self.call("cuGraphUpload", f"h{slot('exec', graph)}", self.stream(stream))

    def wait(self, stream=0):
        self.must("cuStreamSynchronize", self.stream(stream))

    def trim(self, device=0):
        self.must("cuDeviceGraphMemTrim", device)


def new_machine(gpus=1, **driver):
    """What nodes take by themselves is check_nodes()'s; what streams do is vgpu/stream_memory's."""
    return Machine(gpus=gpus, memory=4 * GIB, context=CONTEXT, driver={"graph-node": "0", "stream": "0"} | driver)


def agree(title, machine, one, wanted):
    """The simulator's count of a program, and what it is told, are both so much."""
    check_equal((machine.used(one.pid), one.charged()), (wanted, wanted), title)


def begin(machine, **settings):
    return Grapher(limited_environment(machine, memory=LIMIT, **settings)).begin()


def check_limit():
    machine = new_machine()
    one = begin(machine)
    one.temporary(100 * MIB)
    agree("a graph that is made takes nothing", machine, one, CONTEXT)
    check_equal(one.launch(), 0, "it is launched")
    agree("and takes what it allocates", machine, one, CONTEXT + 100 * MIB)
    for _ in range(5):
        one.launch()
    agree("once", machine, one, CONTEXT + 100 * MIB)
    one.wait()
    agree("and keeps it", machine, one, CONTEXT + 100 * MIB)
    check_equal(one.call("cuMemAlloc_v2", f"n{slot('ptr', 30)}", ROOM - 100 * MIB + 512), OUT_OF_MEMORY, "other memory counts to the same limit")
    check_equal(one.call("cuMemAlloc_v2", f"n{slot('ptr', 30)}", ROOM - 100 * MIB), 0, "up to it")
    check_equal([one.launch() for _ in range(3)], [0, 0, 0], "at the limit the graph is launched with what it has")
    agree("which is no more", machine, one, LIMIT)
    check_equal(one.launch(stream=1), 0, "in another stream as well, where it is done in the first one")
    agree("with the same memory", machine, one, LIMIT)
    one.temporary(110 * MIB, graph=2)
    check_equal(one.launch(2), OUT_OF_MEMORY, "a larger one is out of memory")
    check_equal(machine.used(one.pid) <= LIMIT, True, "and nothing of it stays")
    one.wait()
    one.wait(1)
    one.trim()
    agree("what graphs keep is given back by a trim", machine, one, LIMIT - 100 * MIB)
    one.temporary(100 * MIB, graph=3)
    check_equal(one.launch(3), 0, "and another graph has it")
    agree("exactly", machine, one, LIMIT)
    check_equal(one.launch(1), 0, "the first one, in the same stream, shares it")
    agree("without more", machine, one, LIMIT)
    one.must("cuGraphExecDestroy", f"h{slot('exec', 3)}")
    one.must("cuGraphExecDestroy", f"h{slot('exec', 1)}")
    agree("destroying gives nothing back", machine, one, LIMIT)
    one.trim()
    agree("a trim does", machine, one, LIMIT - 100 * MIB)
    check_equal(one.finish(), "", "nobody said a word")
    check_equal(machine.used(), 0, "nothing is left")


def check_any_node():
    """A node that allocates, added as one of any type, by each version of the function."""
    for name, edges in (("cuGraphAddNode", ()), ("cuGraphAddNode_v2", (0,)), ("cuGraphAddNode_v3", (0,))):
        machine = new_machine()
        one = begin(machine)
        one.new()
        one.must(name, f"n{slot('node')}", f"h{slot('graph', 1)}", 0, *edges, 0, f"A{slot('ptr')},0,{100 * MIB}")
        one.must("cuGraphAddMemFreeNode", f"n{slot('node', 1)}", f"h{slot('graph', 1)}", f"d{slot('node')}", 1, f"h{slot('ptr')}")
        one.make()
        check_equal(one.call("cuMemAlloc_v2", f"n{slot('ptr', 30)}", ROOM - 99 * MIB), 0, f"{name}: there is too little room left")
        check_equal(one.launch(), OUT_OF_MEMORY, "for what the node allocates")
        one.must("cuMemFree_v2", f"h{slot('ptr', 30)}")
        check_equal(one.launch(), 0, "and with enough it is launched")
        agree("and charged", machine, one, CONTEXT + 100 * MIB)
        one.finish()


def check_parts():
    """Parts of a graph that follow one another share memory: their sum may be beyond the limit."""
    machine = new_machine()
    one = begin(machine)
    one.new()
    for i in range(1, 9):
        one.take(i, 300 * MIB)
        one.give(i)
    one.make()
    check_equal(one.launch(), 0, "eight pieces of 300 MiB, one after the other, are 300 MiB")
    agree("which is what is charged", machine, one, CONTEXT + 300 * MIB)
    check_equal(one.upload(), 0, "it can be uploaded, too")
    one.wait()
    one.trim()
    agree("and goes", machine, one, CONTEXT)
    one.new(2)
    for i in range(1, 4):
        one.take(10 + i, 200 * MIB, graph=2, chained=False)
    one.make(2)
    check_equal((one.upload(2), one.launch(2)), (OUT_OF_MEMORY,) * 2, "three of 200 MiB at once are out of memory")
    agree("and leave nothing", machine, one, CONTEXT)
    one.temporary(LIMIT, graph=3)
    check_equal(one.launch(3), OUT_OF_MEMORY, "so is one that is larger than the limit's room")
    agree("and leaves nothing", machine, one, CONTEXT)
    one.finish()


def check_left_over():
    machine = new_machine()
    one = begin(machine)
    one.new()
    one.take(1, 200 * MIB)
    one.make()
    check_equal((one.launch(), one.launch()), (0, INVALID_VALUE), "what a graph leaves over forbids its next launch")
    one.trim()
    agree("and stays charged", machine, one, CONTEXT + 200 * MIB)
    one.must("cuMemFreeAsync", f"h{slot('ptr', 1)}", one.stream(0))
    check_equal(one.launch(), 0, "freed, it is launched again")
    one.must("cuMemFree_v2", f"h{slot('ptr', 1)}")
    one.trim()
    agree("freed and trimmed it is gone", machine, one, CONTEXT)
    one.must("cuGraphExecDestroy", f"h{slot('exec', 1)}")
    one.make(flags=AUTO_FREE)
    check_equal([one.launch() for _ in range(4)], [0] * 4, "launches may free it themselves")
    agree("and it is the same memory", machine, one, CONTEXT + 200 * MIB)
    one.must("cuGraphExecDestroy", f"h{slot('exec', 1)}")
    one.must("cuGraphDestroy", f"h{slot('graph', 1)}")
    one.trim()
    agree("it outlives its graph", machine, one, CONTEXT + 200 * MIB)
    one.must("cuDevicePrimaryCtxReset_v2", 0)
    check_equal(machine.used(one.pid), 200 * MIB, "and its context")
    one.kill()
    check_equal(machine.used(), 0, "a kill leaves nothing")


def check_uploads():
    machine = new_machine()
    one = begin(machine)
    one.new()
    one.take(1, 300 * MIB)
    one.give(1)
    one.must("cuGraphInstantiateWithParams", f"n{slot('exec')}", f"h{slot('graph')}", struct.pack("<QQQi4x", UPLOAD, 0, 0, 0))
    agree("a graph that is uploaded as it is made has its memory", machine, one, CONTEXT + 300 * MIB)
    one.new(2)
    one.take(2, 300 * MIB, graph=2)
    code = one.call(
        "cuGraphInstantiateWithParams", f"n{slot('exec', 2)}", f"h{slot('graph', 2)}", struct.pack("<QQQi4x", UPLOAD, 2, 0, 0)
    )
    check_equal(code, 0, "another one has it instead, as no launch needs it")
    agree("so that both are within the limit", machine, one, CONTEXT + 300 * MIB)
    check_equal(one.launch(2), 0, "which is launched")
    check_equal(one.upload(1), OUT_OF_MEMORY, "and leaves it over, so that the first one is out of memory")
    one.new(3)
    one.take(3, 300 * MIB, graph=3)
    code = one.call(
        "cuGraphInstantiateWithParams", f"n{slot('exec', 3)}", f"h{slot('graph', 3)}", struct.pack("<QQQi4x", UPLOAD, 2, 0, 0)
    )
    check_equal((code, one.words[1]), (OUT_OF_MEMORY, "kept"), "a third one is not made")
    agree("with nothing left of it", machine, one, CONTEXT + 300 * MIB)
    one.make(3)
    one.finish()
    check_equal(machine.used(), 0, "at the end nothing is left")


def check_captures():
    machine = new_machine()
    one = begin(machine)
    one.must("cuStreamBeginCapture_v2", one.stream(0), 0)
    check_equal(one.call("cuMemAllocAsync", f"n{slot('ptr')}", 400 * MIB, one.stream(0)), 0, "an allocation is captured")
    check_equal(one.call("cuMemFreeAsync", f"h{slot('ptr')}", one.stream(0)), 0, "and its free")
    check_equal(one.call("cuMemAllocAsync", f"n{slot('ptr', 2)}", 300 * MIB, one.stream(0)), 0, "and another one")
    agree("which takes nothing", machine, one, CONTEXT)
    one.must("cuStreamEndCapture", one.stream(0), f"n{slot('graph')}")
    one.make()
    check_equal(one.launch(), OUT_OF_MEMORY, "both at once are out of memory, as the second one stays")
    agree("and leave nothing", machine, one, CONTEXT)
    one.must("cuStreamBeginCapture_v2", one.stream(0), 0)
    one.must("cuMemAllocAsync", f"n{slot('ptr')}", 400 * MIB, one.stream(0))
    one.must("cuMemFreeAsync", f"h{slot('ptr')}", one.stream(0))
    one.must("cuStreamEndCapture", one.stream(0), f"n{slot('graph', 2)}")
    one.make(2)
    check_equal(one.launch(2), 0, "one of them is launched")
    agree("and charged", machine, one, CONTEXT + 400 * MIB)
    one.finish()


def check_places():
    """Nodes that allocate on the host, as cuda-core makes them, take nothing of the card; where it can't be told, they are refused.
    Managed memory is vgpu/managed's."""
    machine = new_machine(**{"graph-places": "host"})
    one = begin(machine)
    one.new()
    for number, place in ((1, HOST), (2, HOST_NUMA)):
        check_equal(one.take(number, LIMIT, place=place), 0, f"a node allocates on the host ({place})")
        one.give(number)
    check_equal(one.take(3, 100 * MIB), 0, "and another one on the card")
    one.give(3)
    one.make()
    check_equal(one.launch(), 0, "they are launched")
    agree("and the card's is charged", machine, one, CONTEXT + 100 * MIB)
    one.new(2)
    check_equal([one.take(4, PIECE, 2, place=UNKNOWN_PLACE), one.words[1]], [NOT_SUPPORTED, "kept"], "a place that nobody knows is refused")
    for name, edges in (("cuGraphAddNode", ()), ("cuGraphAddNode_v2", (0,)), ("cuGraphAddNode_v3", (0,))):
        check_equal(one.call(name, f"n{slot('node')}", f"h{slot('graph', 2)}", 0, *edges, 0, f"A{slot('ptr', 4)},0,{PIECE},{UNKNOWN_PLACE}"), NOT_SUPPORTED, f"by {name}, too")
    check_equal(one.take(4, PIECE, 2, place=HOST_NUMA_CURRENT), INVALID_VALUE, "a place that makes no sense is the driver's affair")
    check_equal(one.finish().count("cuGraphAddMemAllocNode"), 1, "one line says so")
    check_equal(machine.used(), 0, "nothing is left")


def check_invalid():
    """At the limit a launch into a stream whose capture is invalid is the driver's affair."""
    machine = new_machine()
    one = begin(machine)
    one.temporary(300 * MIB)
    one.must("cuMemAlloc_v2", f"n{slot('ptr', 30)}", ROOM - PIECE)
    one.must("cuStreamBeginCapture_v2", one.stream(1), 0)
    check_equal(one.launch(stream=1), NOT_SUPPORTED, "a graph that allocates is not captured")
    check_equal(one.call("cuStreamSynchronize", one.stream(1)), 900, "a wait makes the capture invalid")
    check_equal(one.launch(stream=1), NOT_SUPPORTED, "and the launch is answered as before")
    agree("and nothing is taken", machine, one, LIMIT - PIECE)
    check_equal(one.call("cuGraphExecDestroy", 0), INVALID_VALUE, "what is no graph does not end")
    one.finish()


def check_granule():
    """A driver that takes memory in larger pieces than others."""
    machine = new_machine(granule="64Mi")
    one = begin(machine)
    context = machine.used(one.pid)
    pieces = (LIMIT - context) // (64 * MIB)
    one.new()
    for i in range(1, pieces + 2):
        one.take(i, 10 * MIB, chained=False)
    one.make()
    check_equal(one.launch(), OUT_OF_MEMORY, "one piece more than the limit has room for is out of memory")
    agree("and nothing of it stays", machine, one, context)
    one.new(2)
    for i in range(1, pieces + 1):
        one.take(10 + i, 10 * MIB, graph=2, chained=False)
    one.make(2)
    check_equal(one.launch(2), 0, "as many as it has are had")
    agree("and charged as they are taken", machine, one, context + pieces * 64 * MIB)
    one.finish()


def check_devices():
    machine = new_machine(gpus=2)
    one = begin(machine)
    one.new()
    one.take(1, LIMIT, device=1)
    one.give(1)
    one.take(2, 100 * MIB)
    one.give(2)
    one.make()
    check_equal(one.launch(), 0, "a graph allocates on two devices")
    check_equal([machine.used(one.pid, gpu=i) for i in (0, 1)], [CONTEXT + 100 * MIB, LIMIT], "up to the limit of each")
    one.wait()
    one.new(2)
    one.take(3, 10 * MIB, graph=2)
    one.give(3, graph=2)
    one.take(4, LIMIT + PIECE, graph=2, device=1)
    one.make(2)
    check_equal(one.launch(2, stream=1), OUT_OF_MEMORY, "beyond one of them it is out of memory")
    used = [machine.used(one.pid, gpu=i) for i in (0, 1)]
    check(all(each <= LIMIT for each in used), "and stays within both", used)
    one.trim()
    one.trim(1)
    check_equal([machine.used(one.pid, gpu=i) for i in (0, 1)], [CONTEXT, 0], "and all is gone in the end")
    one.finish()


def check_neighbours():
    machine, region = new_machine(), new_region()
    one, other = begin(machine, region=region), begin(machine, region=region)
    one.temporary(300 * MIB)
    other.temporary(200 * MIB)
    check_equal((one.launch(), other.launch()), (0, OUT_OF_MEMORY), "two processes have one limit")
    one.wait()
    one.trim()
    check_equal(other.launch(), 0, "what one gives back the other one has")
    check_equal(one.launch(), OUT_OF_MEMORY, "alone")
    other.kill()
    check_equal(one.launch(), 0, "and what a dead one had")
    check_equal(machine.used(), CONTEXT + 300 * MIB, "exactly")
    one.finish()


def check_work():
    """Its kernels are held to the share."""
    machine = new_machine()
    one = begin(machine, cores=20)
    one.new()
    one.take(1, 20 * MIB)
    one.work(2, 2_000_000)
    one.give(1)
    one.make()
    for _ in range(200):
        one.launch()
    one.wait()
    began, busy = machine.busy_ns(one.pid)
    for _ in range(300):
        one.launch()
    one.wait()
    ended, more = machine.busy_ns(one.pid)
    share = (more - busy) / (ended - began)
    check(0.15 < share < 0.25, "a graph that allocates is held to the share of 20 %", share)
    one.finish()


NODE = 64 << 10  # that each node takes once it can be launched


class Plain(Grapher):
    """Of kernels in no order."""

    def nodes(self, count, graph=1):
        self.load()
        for _ in range(count):
            self.last = None
            self.kernel(1, 1, graph)

    def plain(self, count, graph=1):
        self.new(graph)
        self.nodes(count, graph)

    def try_make(self, function="cuGraphInstantiateWithFlags", graph=1):
        """A handle in the slot of the same number."""
        words = (bytes(32),) if "Params" in function else (0,) if "Flags" in function else (0, 0, 0)
        return self.call(function, f"n{slot('exec', graph)}", f"h{slot('graph', graph)}", *words)

    def end(self, graph=1):
        self.must("cuGraphExecDestroy", f"h{slot('exec', graph)}")


def settled(title, machine, one, wanted):
    check(wait_until(lambda: (machine.used(one.pid), one.charged()) == (wanted, wanted), 3), title, machine.used(one.pid), one.charged(), wanted)


def check_nodes():
    """What can be launched has device memory of its own, which nobody tells of."""
    machine = new_machine(**{"graph-node": NODE})
    one = Plain(limited_environment(machine, memory=LIMIT)).begin()
    one.plain(100)
    check_equal((one.try_make(), machine.used(one.pid)), (0, CONTEXT + 8 * MIB), "a graph of a hundred nodes takes some MiB to be launched")
    settled("which are charged soon", machine, one, CONTEXT + 8 * MIB)
    one.end()
    settled("and given back", machine, one, CONTEXT)
    one.plain(1000, 2)
    check_equal(one.try_make(graph=2), 0, "a large one takes more")
    agree("which is charged at once", machine, one, CONTEXT + 64 * MIB)
    one.end(2)
    settled("and given back", machine, one, CONTEXT)

    check_equal(one.call("cuMemAlloc_v2", f"n{slot('ptr', 30)}", ROOM - 20 * MIB), 0, "20 MiB are left")
    for function in ("cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"):
        check_equal((one.try_make(function, 2), one.words[1]), (OUT_OF_MEMORY, "kept"), f"{function}: what takes more is out of memory")
        agree("and gone", machine, one, LIMIT - 20 * MIB)
    one.plain(0, 3)
    one.plain(40, 4)
    for _ in range(25):
        one.must("cuGraphAddChildGraphNode", f"n{slot('node')}", f"h{slot('graph', 3)}", 0, 0, f"h{slot('graph', 4)}")
    check_equal(one.try_make(graph=3), OUT_OF_MEMORY, "also in 25 children")
    agree("and gone", machine, one, LIMIT - 20 * MIB)
    one.plain(10, 5)
    codes = [one.try_make(graph=5) for _ in range(200)]
    check(codes[:30] == [0] * 30 and codes[60:] == [OUT_OF_MEMORY] * 140, "nor do many small ones", codes)
    check(machine.used(one.pid) <= LIMIT + 16 * MIB, "for which the limit is passed by no more than 256 nodes take", machine.used(one.pid) - LIMIT)
    check_equal(one.charged(), LIMIT, "nothing is told to be free")
    one.must("cuMemFree_v2", f"h{slot('ptr', 30)}")
    settled("all of it is charged", machine, one, machine.used(one.pid))
    check_equal(one.try_make(graph=5), 0, "with room there is another one")
    one.finish()
    check_equal(machine.used(), 0, "nothing is left")


def check_bodies():
    """Of what a conditional node may choose the driver tells nothing."""
    machine = new_machine(**{"graph-node": NODE})
    one = Plain(limited_environment(machine, memory=LIMIT)).begin()
    one.new()
    one.must("cuGraphConditionalHandleCreate", f"n{slot('node', 30)}", f"h{slot('graph')}", 0, 1, 1)
    one.must("cuGraphAddNode", f"n{slot('node', 31)}", f"h{slot('graph')}", 0, 0, f"C{slot('graph', 9)},{slot('node', 30)},0,1")
    one.nodes(600, 9)
    one.must("cuMemAlloc_v2", f"n{slot('ptr', 30)}", ROOM - 20 * MIB)
    check_equal(one.try_make(), OUT_OF_MEMORY, "a body's nodes take memory as any, and what has no room is out of memory")
    agree("and gone", machine, one, LIMIT - 20 * MIB)
    one.must("cuMemFree_v2", f"h{slot('ptr', 30)}")
    check_equal(one.try_make(), 0, "with room it is made")
    agree("and charged at once", machine, one, CONTEXT + 38 * MIB)
    check_equal(one.launch(), 0, "and launched")
    one.wait()
    one.finish()
    check_equal(machine.used(), 0, "nothing is left")


def check_nodes_elsewhere(current, sentence):
    """What nodes take on another device than the current one, or where none is current."""
    machine = Machine(gpus=2, memory=4 * GIB, context=CONTEXT, driver={"graph-node": NODE, "stream": "0"})
    one = Plain(limited_environment(machine, memory=LIMIT)).begin()
    Caller.begin(one, 1)
    one.new()
    one.work(1, 1000)
    one.new(2)
    for _ in range(400):
        one.must("cuGraphAddChildGraphNode", f"n{slot('node')}", f"h{slot('graph', 2)}", 0, 0, f"h{slot('graph')}")
    one.must("cuMemAlloc_v2", f"n{slot('ptr', 30)}", ROOM - 20 * MIB)
    one.must("cuCtxSetCurrent", current)
    codes = [one.try_make(graph=2) for _ in range(3)]
    check_equal(codes, [OUT_OF_MEMORY] * 3, f"{sentence}: a graph of kernels beyond the limit of their device is out of memory")
    check_equal(machine.used(one.pid, gpu=1), LIMIT - 20 * MIB, "and gone")
    codes = [one.try_make() for _ in range(1000)]
    check(codes[:100] == [0] * 100 and codes[-100:] == [OUT_OF_MEMORY] * 100, "so are many small ones", codes)
    over = machine.used(one.pid, gpu=1) - LIMIT
    check(over <= 16 * MIB, "for which the limit is passed by no more than 256 nodes take", over)
    one.must("cuCtxSetCurrent", f"h{slot('context', 1)}")
    one.plain(10, 3)
    check_equal(one.try_make(graph=3), 0, "what takes nothing there is made all the same")
    one.must("cuCtxSetCurrent", f"h{slot('context', 2)}")
    one.must("cuMemFree_v2", f"h{slot('ptr', 30)}")
    wanted = machine.used(one.pid, gpu=1)
    check(wait_until(lambda: one.charged() == wanted, 3), "what it has is charged there", one.charged(), wanted)
    one.finish()
    check_equal([machine.used(gpu=i) for i in (0, 1)], [0, 0], "nothing is left")


for test in (
    check_nodes,
    check_bodies,
    lambda: check_nodes_elsewhere(f"h{slot('context', 1)}", "another device is current"),
    lambda: check_nodes_elsewhere(0, "no device is current"),
    check_limit,
    check_any_node,
    check_parts,
    check_left_over,
    check_uploads,
    check_captures,
    check_places,
    check_invalid,
    check_granule,
    check_devices,
    check_neighbours,
    check_work,
):
    test()
finish()

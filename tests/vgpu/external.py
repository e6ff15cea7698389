#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of other interfaces: refused unless the limits say otherwise, and then whoever has it is charged once it is
its own. What takes the part of Vulkan's descriptors, and of GL's, EGL's and VDPAU's names, is what the simulator's
cuMemCreate gives out. Semaphores are no memory, and pass: a memfd takes the part of theirs."""

import ctypes
import fcntl
import json
import mmap
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

PIECE = 2 * MIB
SIZE = 100 * PIECE
CONTEXT = 60 * MIB
LIMIT = 512 * MIB
OPAQUE_FD = 1
BLOCKS = 132  # more than there are multiprocessors: a kernel has the device to itself
NOT_READY = 600
PR_SET_PTRACER = 0x59616D61


def settled(sentence, condition):
    """What NVML has to be asked for is known within a second."""
    until = time.monotonic() + 5
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    check(condition(), sentence)


TEXTURE_2D = 0x0DE1
INVALID_HANDLE, ARRAY_IS_MAPPED, ALREADY_MAPPED, NOT_MAPPED, NOT_MAPPED_AS_ARRAY, NOT_MAPPED_AS_POINTER = 400, 207, 208, 211, 212, 213
FLOAT = 0x20
REGISTERS = {
    "cuGraphicsGLRegisterBuffer": (0,),
    "cuGraphicsGLRegisterImage": (TEXTURE_2D, 0),
    "cuGraphicsEGLRegisterImage": (0,),
    "cuGraphicsVDPAURegisterVideoSurface": (0,),
    "cuGraphicsVDPAURegisterOutputSurface": (0,),
}


class Semaphore:
    """As the simulator takes one in: a counter in a file that can't be shrunk, which is ours as well."""

    TYPES = {"timeline": 9, "binary": 1}

    def __init__(self):
        self.fd = os.memfd_create("semaphore", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, 8)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.mapped = mmap.mmap(self.fd, 8)

    @property
    def count(self):
        return struct.unpack("<Q", self.mapped[:8])[0]

    @count.setter
    def count(self, value):
        self.mapped[:8] = struct.pack("<Q", value)


class Importer(Caller):
    def take_semaphore(self, semaphore, number=1, kind="timeline"):
        self.ask(f"borrow {slot('fd')} {os.getpid()} {semaphore.fd}")
        desc = struct.pack("<i4xi12xI64x4x", Semaphore.TYPES[kind], self.value(slot("fd")), 0)
        return self.call("cuImportExternalSemaphore", f"n{slot('external', number)}", desc)

    def post(self, value=0, number=1, stream=1, way="Signal"):
        params = struct.pack("<Q64xI64x4x", value, 0)
        return self.call(f"cu{way}ExternalSemaphoresAsync", f"d{slot('external', number)}", params, 1, f"h{slot('stream', stream)}")

    def wait_for(self, value=0, number=1, stream=1):
        return self.post(value, number, stream, "Wait")

    def load(self, streams=2):
        """Streams, and a kernel."""
        for number in range(1, streams + 1):
            self.must("cuStreamCreate", f"n{slot('stream', number)}", 1)
        self.must("cuModuleLoadData", f"n{slot('module')}", b"hamisim-module 1\nsize=0\nkernel spin\n")
        self.must("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"spin")
        return self

    def launch(self, ns, stream=1):
        return self.call("cuLaunchKernel", f"h{slot('function')}", BLOCKS, 1, 1, 1, 1, 1, 0, f"h{slot('stream', stream)}", f"k{ns}", 0)

    def query(self, stream=1):
        return self.call("cuStreamQuery", f"h{slot('stream', stream)}")

    def wait(self, stream=1):
        return self.call("cuStreamSynchronize", f"h{slot('stream', stream)}")

    def borrow(self, maker):
        self.ask(f"borrow {slot('fd')} {maker.pid} {maker.value(slot('fd'))}")

    def take_in(self, size=SIZE):
        desc = struct.pack("<i4xi12xQI64x4x", OPAQUE_FD, self.value(slot("fd")), size, 0)
        return self.call("cuImportExternalMemory", f"n{slot('external')}", desc)

    def register(self, name="cuGraphicsGLRegisterBuffer", number=1):
        return self.call(name, f"n{slot('external', number)}", f"h{slot('fd')}", *REGISTERS[name])

    def unregister(self, number=1):
        return self.call("cuGraphicsUnregisterResource", f"h{slot('external', number)}")

    def resources(self, way, *numbers):
        """Maps them, or unmaps."""
        listed = ",".join(str(slot("external", number)) for number in numbers)
        return self.call(f"cuGraphics{way}Resources", len(numbers), f"d{listed}", 0)

    def map_array(self, number=1, offset=0, levels=1):
        """Of floats, 1024 in a row and as many rows: 4 MiB, and all levels a third more."""
        desc = struct.pack("<QQQQiII4xI68x", offset, 1024, 1024, 0, FLOAT, 1, 0, levels)
        return self.call("cuExternalMemoryGetMappedMipmappedArray", f"n{slot('mipmap', number)}", f"h{slot('external')}", desc)

    def map(self, offset=0, size=SIZE):
        return self.call("cuExternalMemoryGetMappedBuffer", f"n{slot('ptr')}", f"h{slot('external')}", struct.pack("<QQI64x4x", offset, size, 0))


def maker_of(machine):
    """It takes memory, and gives out a descriptor of it."""
    maker = Caller(bare_environment(machine)).begin()
    maker.must("cuMemCreate", f"n{slot('physical')}", SIZE, allocation_prop(handles=POSIX_FD), 0)
    maker.must("cuMemExportToShareableHandle", f"w{slot('fd')}", f"h{slot('physical')}", POSIX_FD, 0)
    return maker


def check_refused():
    machine = Machine(memory=4 * GIB, context=CONTEXT)
    maker = maker_of(machine)
    one = Importer(limited_environment(machine, memory=LIMIT)).begin()
    check_equal(one.call("cuImportExternalMemory", f"n{slot('external')}", bytes(104)), INVALID_VALUE, "what is no import the driver says")
    one.borrow(maker)
    check_equal((one.take_in(), one.words[1]), (NOT_SUPPORTED, "kept"), "an import is refused")
    check(pathlib.Path(f"/proc/{one.pid}/fd/{one.value(slot('fd'))}").exists(), "and its descriptor stays the caller's")
    one.tell(f"close {slot('fd')}")
    maker.tell(f"close {slot('fd')}")
    maker.must("cuMemRelease", f"h{slot('physical')}")
    check_equal(machine.used(), 2 * CONTEXT, "and nothing is held by it")
    said = one.finish()
    check_equal((said.count("cuImportExternalMemory"), said.count("HAMI_IMPORTS=allow")), (1, 1), "one line says so, and what would let it pass")
    maker.finish()


def check_allowed():
    machine = Machine(memory=4 * GIB, context=CONTEXT)
    maker = maker_of(machine)
    one = Importer(limited_environment(machine, memory=LIMIT, HAMI_IMPORTS="allow")).begin()
    one.borrow(maker)
    descriptor = one.value(slot("fd"))
    check_equal(one.take_in(), 0, "where imports are allowed it passes")
    check(not pathlib.Path(f"/proc/{one.pid}/fd/{descriptor}").exists(), "and the descriptor is the driver's")
    check_equal((one.map(), one.map(PIECE, SIZE)), (0, INVALID_VALUE), "it is mapped, as far as it reaches")
    check_equal((machine.used(one.pid), one.charged()), (CONTEXT, CONTEXT), "which takes no new memory")
    maker.finish()
    check_equal(machine.used(), CONTEXT + SIZE, "when its maker has gone it is who imported it that has it")
    settled("and is charged", lambda: one.charged() == CONTEXT + SIZE)
    code = one.call("cuMemAlloc_v2", f"n{slot('ptr', 2)}", LIMIT - CONTEXT - SIZE + 512)
    check_equal(code, OUT_OF_MEMORY, "so that the limit holds")
    one.must("cuDestroyExternalMemory", f"h{slot('external')}")
    check_equal(machine.used(), CONTEXT + SIZE, "what is mapped holds it")
    one.must("cuMemFree_v2", f"h{slot('ptr')}")
    check_equal(machine.used(), CONTEXT, "until it is freed")
    settled("which is seen", lambda: one.charged() == CONTEXT)
    check_equal(one.call("cuDestroyExternalMemory", f"h{slot('external')}"), 400, "it is gone")
    check_equal(one.finish(), "", "nobody said a word")
    check_equal(machine.used(), 0, "nothing is left")


def check_arrays():
    """A mipmapped array over imported memory is no allocation, neither where it is mapped nor where it ends."""
    machine = Machine(memory=4 * GIB, context=CONTEXT)
    maker = maker_of(machine)
    one = Importer(limited_environment(machine, memory=LIMIT, HAMI_IMPORTS="allow")).begin()
    one.borrow(maker)
    check_equal(one.take_in(), 0, "memory is imported")
    one.must("cuArrayCreate_v2", f"n{slot('array')}", struct.pack("<QQiI", 1024, 1024, FLOAT, 1))
    own = one.charged()
    check_equal(own, CONTEXT + 4 * MIB, "an array of one's own is charged")
    check_equal([one.map_array(number, 4 * MIB * number, levels) for number, levels in ((1, 1), (2, 11))], [0, 0], "two are mapped over it")
    check_equal((one.map_array(3, SIZE - 4 * MIB, 2), one.charged()), (INVALID_VALUE, own), "as far as it reaches, and nothing is charged")
    level = f"n{slot('array', 2)}"
    check_equal([one.call("cuMipmappedArrayGetLevel", level, f"h{slot('mipmap', 2)}", number) for number in (10, 11)], [0, INVALID_VALUE], "one has all its levels")
    check_equal(one.call("cuArrayDestroy", f"h{slot('array', 2)}"), INVALID_VALUE, "which are not destroyed by themselves")
    destroy = lambda number: one.call("cuMipmappedArrayDestroy", f"h{slot('mipmap', number)}")
    check_equal((destroy(1), destroy(1), one.charged()), (0, INVALID_HANDLE, own), "its end gives nothing back")
    maker.finish()
    one.must("cuDestroyExternalMemory", f"h{slot('external')}")
    settled("what is mapped still is charged once its maker has gone", lambda: one.charged() == own + SIZE)
    check_equal((destroy(2), machine.used()), (0, own), "and holds the memory until its end")
    settled("which is seen", lambda: one.charged() == own)
    check_equal((one.call("cuArrayDestroy", f"h{slot('array')}"), one.charged()), (0, CONTEXT), "one's own is given back as ever")
    check_equal(one.finish(), "", "nobody said a word")


def check_images():
    """The arrays of an image that is mapped are the driver's."""
    machine = Machine(memory=4 * GIB, context=CONTEXT)
    maker = maker_of(machine)
    one = Importer(limited_environment(machine, memory=LIMIT, HAMI_IMPORTS="allow")).begin()
    one.borrow(maker)
    check_equal((one.register(number=1), one.register("cuGraphicsGLRegisterImage", 2)), (0, 0), "a buffer and an image are registered")
    part = lambda number: one.call("cuGraphicsSubResourceGetMappedArray", f"n{slot('array')}", f"h{slot('external', number)}", 0, 0)
    whole = lambda number: one.call("cuGraphicsResourceGetMappedMipmappedArray", f"n{slot('mipmap')}", f"h{slot('external', number)}")
    check_equal((part(2), whole(2)), (NOT_MAPPED, NOT_MAPPED), "until it is mapped it has no arrays")
    check_equal(one.resources("Map", 1, 2), 0, "it is mapped")
    check_equal((part(1), whole(1), part(2), whole(2)), (NOT_MAPPED_AS_ARRAY, NOT_MAPPED_AS_ARRAY, 0, 0), "the image has arrays then, a buffer not")
    destroyed = one.call("cuArrayDestroy", f"h{slot('array')}"), one.call("cuMipmappedArrayDestroy", f"h{slot('mipmap')}")
    check_equal((destroyed, one.charged()), ((ARRAY_IS_MAPPED, ARRAY_IS_MAPPED), CONTEXT), "which take nothing, and can't be destroyed")
    check_equal((one.resources("Unmap", 1, 2), one.call("cuArrayGetDescriptor_v2", "o24", f"h{slot('array')}")), (0, INVALID_HANDLE), "they are gone when it is unmapped")
    check_equal((one.unregister(1), one.unregister(2), one.charged()), (0, 0, CONTEXT), "and leave nothing")
    check_equal(one.finish(), "", "nobody said a word")
    maker.finish()


def check_policy():
    """It goes for what other containers share, too, and leaves the rest refused."""
    machine = Machine(memory=4 * GIB, context=CONTEXT)
    maker = maker_of(machine)
    for policy, wanted in (("refuse", NOT_SUPPORTED), ("allow", 0)):
        one = Importer(limited_environment(machine, memory=LIMIT, HAMI_IMPORTS=policy)).begin()
        one.borrow(maker)
        code = one.call("cuMemImportFromShareableHandle", f"n{slot('physical')}", f"h{slot('fd')}", POSIX_FD)
        check_equal(code, wanted, f"HAMI_IMPORTS={policy}: a descriptor from outside")
        one.finish()
    maker.finish()


def held_imports(machine, region):
    """As the region has it, of whoever lives: what the monitor tells."""
    told = run([HAMICTL, "top", "--region", "--json", region], bare_environment(machine)).stdout
    return json.loads(told)["regions"][0]["imported_allocations"]


def check_graphics():
    """What is registered of GL, EGL and VDPAU follows the policy one by one, and goes with its context."""
    machine = Machine(memory=4 * GIB, context=CONTEXT)
    maker = maker_of(machine)
    refused = Importer(limited_environment(machine, memory=LIMIT)).begin()
    refused.borrow(maker)
    for name in REGISTERS:
        check_equal((refused.register(name), refused.words[1]), (NOT_SUPPORTED, "kept"), f"{name} is refused")
    check_equal(refused.call("cuGraphicsGLRegisterBuffer", f"n{slot('external')}", 4000, 0), INVALID_HANDLE, "what is no buffer the driver says")
    said = refused.finish()
    check_equal((said.count("cuGraphics"), said.count("HAMI_IMPORTS=allow")), (1, 1), "one line says so, and what would let it pass")

    region = new_region()
    one = Importer(limited_environment(machine, memory=LIMIT, HAMI_IMPORTS="allow", region=region)).begin()
    imports = lambda: held_imports(machine, region)
    one.borrow(maker)
    for number, name in enumerate(REGISTERS, 1):
        check_equal((one.register(name, number), imports()), (0, number), f"where imports are allowed {name} passes, and is counted")
    check_equal((machine.used(one.pid), one.charged()), (CONTEXT, CONTEXT), "which takes no new memory")
    pointer = lambda number: one.call("cuGraphicsResourceGetMappedPointer_v2", f"n{slot('ptr')}", "o8", f"h{slot('external', number)}")
    check_equal(pointer(1), NOT_MAPPED, "until it is mapped it has no address")
    check_equal((one.resources("Map", 1, 1), one.resources("Map", 1, 2)), (INVALID_HANDLE, 0), "it is mapped, none of them twice")
    check_equal((pointer(1), pointer(2)), (0, NOT_MAPPED_AS_POINTER), "a buffer has an address then, an image not")
    check_equal(one.call("cuMemFree_v2", f"h{slot('ptr')}"), INVALID_VALUE, "which can't be freed")
    check_equal((one.resources("Map", 1), one.resources("Unmap", 1, 2), one.resources("Unmap", 1)), (ALREADY_MAPPED, 0, NOT_MAPPED), "and is unmapped")
    check_equal((one.unregister(1), one.unregister(1), imports()), (0, INVALID_HANDLE, 4), "what is given back is counted no more")
    maker.finish()
    check_equal(machine.used(), CONTEXT + SIZE, "when its maker has gone it is who registered it that has it")
    settled("and is charged", lambda: one.charged() == CONTEXT + SIZE)
    one.must("cuCtxCreate_v2", f"n{slot('context', 2)}", 0, 0)
    check_equal((one.register(number=7), imports()), (0, 5), "in another context")
    one.must("cuCtxDestroy_v2", f"h{slot('context', 2)}")
    check_equal(imports(), 4, "it goes with that")
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    one.tell(f"close {slot('fd')}")
    check_equal([one.unregister(number) for number in (2, 3, 4, 5)], [0] * 4, "all are given back")
    check_equal((machine.used(), imports()), (CONTEXT, 0), "and the last one frees it")
    settled("which is seen", lambda: one.charged() == CONTEXT)
    check_equal(one.finish(), "", "nobody said a word")


def check_streams():
    """A connection to a stream of EGL's is an import while it lasts; a buffer of GL's may be registered without a handle."""
    machine = Machine(memory=4 * GIB, context=CONTEXT)
    maker = maker_of(machine)
    connection, frame = slot("external"), slot("external", 2)
    ways = {"cuEGLStreamConsumerConnect": (), "cuEGLStreamConsumerConnectWithFlags": (1,)}
    connect = lambda one, name: one.call(name, f"n{connection}", f"h{slot('fd')}", *ways[name])
    acquire = lambda one: one.call("cuEGLStreamConsumerAcquireFrame", f"d{connection}", f"n{frame}", 0, 0)
    release = lambda one: one.call("cuEGLStreamConsumerReleaseFrame", f"d{connection}", f"h{frame}", 0)
    register = lambda one, way: one.call(f"cuGL{way}BufferObject", f"h{slot('fd')}")

    refused = Importer(limited_environment(machine, memory=LIMIT)).begin()
    refused.borrow(maker)
    for name in ways:
        check_equal((connect(refused, name), refused.words[1]), (NOT_SUPPORTED, "kept"), f"{name} is refused")
    check_equal((register(refused, "Register"), register(refused, "Unregister")), (NOT_SUPPORTED, INVALID_HANDLE), "so is a buffer without a handle, and nothing is left of it")
    check_equal(refused.call("cuEGLStreamConsumerConnect", f"n{connection}", 4000), INVALID_HANDLE, "what is no stream the driver says")
    check_equal(refused.call("cuEGLStreamConsumerDisconnect", 0), INVALID_VALUE, "and what is no connection")
    said = refused.finish()
    check_equal(said.count("HAMI_IMPORTS=allow"), 1, "one line says what would let it pass")

    region = new_region()
    one = Importer(limited_environment(machine, memory=LIMIT, HAMI_IMPORTS="allow", region=region)).begin()
    imports = lambda: held_imports(machine, region)
    one.borrow(maker)
    for name in ways:
        check_equal((connect(one, name), imports()), (0, 1), f"where imports are allowed {name} passes, and is counted")
        check_equal((acquire(one), release(one), release(one), imports()), (0, 0, INVALID_HANDLE, 1), "frames come and go")
        check_equal((one.call("cuEGLStreamConsumerDisconnect", f"d{connection}"), imports()), (0, 0), "until it is given back")
    one.must("cuCtxCreate_v2", f"n{slot('context', 2)}", 0, 0)
    check_equal((connect(one, name), acquire(one)), (0, 0), "in another context a connection")
    check_equal((register(one, "Register"), register(one, "Register"), imports()), (0, ALREADY_MAPPED, 2), "and a buffer without a handle")
    maker.finish()
    one.tell(f"close {slot('fd')}")
    check_equal(machine.used(), 2 * CONTEXT + SIZE, "the memory is kept when its maker has gone")
    settled("and is charged", lambda: one.charged() == 2 * CONTEXT + SIZE)
    one.must("cuCtxDestroy_v2", f"h{slot('context', 2)}")
    check_equal((machine.used(), imports()), (CONTEXT, 0), "both go with their context")
    settled("which is seen", lambda: one.charged() == CONTEXT)
    check_equal(one.finish(), "", "nobody said a word")


def check_semaphores():
    """They pass whatever the policy for memory is, and are no imports of it."""
    machine, region = Machine(memory=4 * GIB, context=CONTEXT), new_region()
    semaphore, binary = Semaphore(), Semaphore()
    one = Importer(limited_environment(machine, memory=LIMIT, cores=50, region=region)).begin().load()
    other = Importer(limited_environment(machine, memory=LIMIT, cores=50)).begin().load()
    before = one.charged()
    check_equal((one.take_semaphore(semaphore), one.take_semaphore(binary, 2, "binary")), (0, 0), "a timeline and a binary semaphore pass")
    check(not pathlib.Path(f"/proc/{one.pid}/fd/{one.value(slot('fd'))}").exists(), "and the descriptor is the driver's")
    check_equal((one.charged(), held_imports(machine, region)), (before, 0), "nothing is charged, and no import counted")
    check_equal((one.wait_for(3), one.launch(1000), one.query()), (0, 0, NOT_READY), "a stream waits for one")
    semaphore.count = 3
    check_equal(one.wait(), 0, "until somebody else signals it")
    check_equal((other.take_semaphore(semaphore), other.take_semaphore(binary, 2, "binary")), (0, 0), "another program has them, too")
    check_equal((one.wait_for(5), one.wait_for(number=2), one.launch(1000), other.launch(1_000_000), other.post(5), one.query()), (0, 0, 0, 0, 0, NOT_READY), "and signals it behind a kernel")
    check_equal((other.wait(), semaphore.count, one.query()), (0, 5, NOT_READY), "which is told")
    check_equal((other.post(number=2), one.wait(), binary.count), (0, 0, 2), "a binary one is signalled, and taken")
    destroy = lambda number: one.call("cuDestroyExternalSemaphore", f"h{slot('external', number)}")
    check_equal((destroy(1), destroy(2), destroy(2), one.charged()), (0, 0, INVALID_HANDLE, before), "they are given back")
    check_equal((one.finish(), other.finish()), ("", ""), "nobody said a word")


def charged_ns(machine, region):
    """Of the device's time, as the region has it."""
    told = run([HAMICTL, "top", "--region", "--json", region], bare_environment(machine)).stdout
    return json.loads(told)["regions"][0]["devices"][0]["busy_ns"]


def check_waits():
    """A kernel behind a wait is charged what it takes itself, and so is what runs meanwhile."""
    machine, region, semaphore = Machine(memory=4 * GIB, context=CONTEXT), new_region(), Semaphore()
    one = Importer(limited_environment(machine, memory=LIMIT, cores=50, region=region)).begin().load()
    for _ in range(10):
        check_equal((one.launch(10_000_000), one.wait()), (0, 0), "kernels are launched")
    check_equal(one.take_semaphore(semaphore), 0, "and a semaphore is imported")
    before = charged_ns(machine, region)
    for value in range(1, 11):
        check_equal((one.wait_for(value), one.launch(10_000_000)), (0, 0), "a kernel comes behind a wait")
        check_equal((one.launch(5_000_000, 2), one.wait(2)), (0, 0), "another stream goes on")
        time.sleep(0.1)
        semaphore.count = value
        check_equal(one.wait(), 0, "until that is over")
    spent = charged_ns(machine, region) - before
    check(abs(spent - 150_000_000) < 5_000_000, "it is charged for its kernels", spent)
    check_equal(one.finish(), "", "nobody said a word")


ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(2**64 - 1), 0, 0, 0)  # who takes a descriptor of ours
def check_graphs():
    """A graph may wait, too. It is charged for its kernels, and no more than from its launch to its end."""
    machine, region, semaphore = Machine(memory=4 * GIB, context=CONTEXT), new_region(), Semaphore()
    one = Importer(limited_environment(machine, memory=LIMIT, cores=50, region=region)).begin().load()
    for _ in range(10):
        check_equal((one.launch(10_000_000), one.wait()), (0, 0), "kernels are launched")
    check_equal(one.take_semaphore(semaphore, kind="binary"), 0, "and a semaphore is imported")
    one.must("cuStreamBeginCapture_v2", f"h{slot('stream')}", 2)
    check_equal([one.wait_for(), one.launch(10_000_000), one.launch(10_000_000)], [0] * 3, "a wait and kernels are captured")
    one.must("cuStreamEndCapture", f"h{slot('stream')}", f"n{slot('graph')}")
    one.must("cuGraphInstantiateWithFlags", f"n{slot('exec')}", f"h{slot('graph')}", 0)
    launch = lambda: one.call("cuGraphLaunch", f"h{slot('exec')}", f"h{slot('stream')}")
    for turn in range(10):
        before, began = charged_ns(machine, region), time.monotonic_ns()
        check_equal((launch(), one.query()), (0, NOT_READY), "the graph waits")
        time.sleep(0.1)
        semaphore.count = 2 * turn + 1
        check_equal((one.wait(), semaphore.count), (0, 2 * turn + 2), "until it is signalled")
        spent, most = charged_ns(machine, region) - before, time.monotonic_ns() - began
        check(19_000_000 < spent < most, "and is charged for its kernels", (spent, most))
    check_equal(one.finish(), "", "nobody said a word")


for test in (check_refused, check_allowed, check_arrays, check_policy, check_graphics, check_images, check_streams, check_semaphores, check_waits, check_graphs):
    test()
finish()

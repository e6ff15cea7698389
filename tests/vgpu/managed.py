#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Managed memory: charged what may be on the device, what does not fit lives on the host; by the simulator's own count
of its pages, as RAPIDS and oversubscribing programs use it."""

import json
import struct
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

PIECE = 2 * MIB
CONTEXT = 60 * MIB
LIMIT = 512 * MIB
ROOM = LIMIT - CONTEXT
GLOBAL = 1
READ_MOSTLY, PREFERRED, UNSET_PREFERRED, ACCESSED_BY = 1, 3, 4, 5  # advice
CPU = -1
IMAGE = b"hamisim-module 1\nsize=0\nkernel touch touches\n"


FORMS = [("cuMemPrefetchAsync", "cuMemAdvise"), ("cuMemPrefetchAsync_ptsz", "cuMemAdvise"), ("cuMemPrefetchAsync_v2", "cuMemAdvise_v2"), ("cuMemPrefetchAsync_v2_ptsz", "cuMemAdvise_v2")]


def target(function, device):
    """A device by its number, or as a CUmemLocation (a type, and a number), in one register."""
    if "_v2" not in function:
        return device
    return device << 32 | 1 if device >= 0 else 2


class Manager(Caller):
    prefetches, advises = FORMS[0]

    def make(self, number, size, flags=GLOBAL):
        return self.call("cuMemAllocManaged", f"n{slot('ptr', number)}", size, flags)

    def alloc(self, number, size):
        return self.call("cuMemAlloc_v2", f"n{slot('ptr', number)}", size)

    def free(self, number):
        return self.call("cuMemFree_v2", f"h{slot('ptr', number)}")

    def prefetch(self, number, size, device=0, at=0):
        flags = (0,) if "_v2" in self.prefetches else ()
        return self.call(self.prefetches, f"h{slot('ptr', number)}+{at}", size, target(self.prefetches, device), *flags, 0)

    def advise(self, number, size, advice, device):
        return self.call(self.advises, f"h{slot('ptr', number)}", size, advice, target(self.advises, device))

    def preferred(self, number):
        self.must("cuMemRangeGetAttribute", "o4", 4, 2, f"h{slot('ptr', number)}", 1)
        return int.from_bytes(bytes.fromhex(self.words[1]), "little", signed=True)

    def touch(self, number):
        """As a kernel does."""
        self.must("cuModuleLoadData", f"n{slot('module')}", IMAGE + b"\0")
        self.must("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"touch\0")
        at = self.value(slot("ptr", number))
        self.must("cuLaunchKernel", f"h{slot('function')}", 1, 1, 1, 1, 1, 1, 0, 0, f"k1000,{at}", 0)
        self.must("cuCtxSynchronize")


def new_machine(gpus=1):
    return Machine(gpus=gpus, memory=4 * GIB, context=CONTEXT, driver={"stream": "0"})


def pages(machine, one):
    return [process["managed"] for process in machine.view()["processes"] if process["pid"] == one.pid][0]


def check_resident():
    machine = new_machine()
    one = Manager(limited_environment(machine, memory=LIMIT)).begin()
    one.must("cuDeviceGetAttribute", "o4", 89, 0)
    check_equal(one.words[1], "01000000", "a device says that it has managed memory")
    check_equal(one.make(1, 100 * MIB), 0, "managed memory is made")
    check_equal((one.charged(), machine.used(one.pid)), (CONTEXT + 100 * MIB, CONTEXT), "and charged what may be on the device")
    one.prefetch(1, 100 * MIB)
    check_equal(pages(machine, one), [100 * MIB], "which may come there")
    check_equal(one.charged(), CONTEXT + 100 * MIB, "and is charged once")
    check_equal(one.alloc(2, ROOM - 100 * MIB + 512), OUT_OF_MEMORY, "other memory has the rest of the limit")
    check_equal(one.alloc(2, ROOM - 100 * MIB), 0, "to the last byte")

    # Oversubscribed: it lives on the host, whatever is said of it.
    check_equal(one.make(3, 800 * MIB), 0, "what the limit has no room for is made all the same")
    check_equal(one.charged(), LIMIT, "and not charged")
    check_equal(one.prefetch(3, 800 * MIB), 0, "it may be prefetched")
    one.touch(3)
    check_equal(pages(machine, one), [100 * MIB], "and touched, and stays on the host")
    for advice, device in ((PREFERRED, 0), (UNSET_PREFERRED, 0), (READ_MOSTLY, 0), (ACCESSED_BY, 0)):
        check_equal(one.advise(3, 800 * MIB, advice, device), 0, f"advice {advice} is heard")
        one.touch(3)
        check_equal((pages(machine, one), one.preferred(3)), ([100 * MIB], CPU), "and where it lives stays what it was")
    check_equal(one.advise(3, 900 * MIB, PREFERRED, 0), INVALID_VALUE, "what makes no sense is still wrong")
    check_equal(one.prefetch(3, 900 * MIB), INVALID_VALUE, "in advice and prefetches")
    check_equal(one.prefetch(3, 1 * MIB, 7), 101, "and a wrong device a wrong device")
    one.touch(1)
    check_equal(pages(machine, one), [100 * MIB], "what has room comes and goes as it likes")

    one.free(3)
    one.free(2)
    check_equal(one.charged(), CONTEXT + 100 * MIB, "freed, it is the limit's again")
    one.free(1)
    check_equal((one.charged(), pages(machine, one)), (CONTEXT, [0]), "all of it")
    check_equal(one.free(1), INVALID_VALUE, "a second free is an error")
    one.make(1, 200 * MIB)
    one.must("cuDevicePrimaryCtxReset_v2", 0)
    one.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    check_equal(one.charged(), CONTEXT, "it goes with its context")
    said = one.finish()
    check_equal(said.count("live on the host"), 1, "one line says what lives on the host")
    check_equal(len(said.splitlines()), 1, "and nothing else is said")
    check_equal(machine.used(), 0, "nothing is left")


def check_forms():
    """Each version of a prefetch and of advice, of memory that lives on the host, and of what is another device's."""
    for prefetches, advises in FORMS:
        machine = new_machine(gpus=2)
        one = Manager(limited_environment(machine, memory=LIMIT)).begin()
        one.prefetches, one.advises = prefetches, advises
        one.make(1, 100 * MIB)
        check_equal((one.prefetch(1, 100 * MIB), pages(machine, one)), (0, [100 * MIB, 0]), f"{prefetches}: what has room comes")
        check_equal((one.prefetch(1, 100 * MIB, CPU), pages(machine, one)), (0, [0, 0]), "and goes")
        check_equal((one.prefetch(1, 100 * MIB, 1), pages(machine, one)), (0, [100 * MIB, 0]), "to the device that it is charged to, and no other")
        check_equal(one.advise(1, 100 * MIB, PREFERRED, 1), 0, f"{advises}: of which device it is to be is heard")
        check_equal(one.preferred(1), 0, "and is the one that it is charged to")
        check_equal(one.advise(1, 100 * MIB, UNSET_PREFERRED, 0), 0, "unset")
        check_equal(one.preferred(1), -2, "it is of none")
        one.make(2, 800 * MIB)
        check_equal((one.prefetch(2, 800 * MIB), pages(machine, one)), (0, [100 * MIB, 0]), "what has no room stays on the host")
        for advice, device in ((PREFERRED, 0), (UNSET_PREFERRED, 0), (READ_MOSTLY, 0), (ACCESSED_BY, 0)):
            one.advise(2, 800 * MIB, advice, device)
            one.touch(2)
            check_equal((pages(machine, one), one.preferred(2)), ([100 * MIB, 0], CPU), f"whatever is advised: {advice}")
        check_equal(one.prefetch(1, 1 * MIB, 7), 101, "a wrong device is a wrong device")
        one.finish()


def check_hidden():
    """NVML lists no process for managed pages: code that is loaded beside them is charged as ever."""
    machine = new_machine()
    one = Manager(limited_environment(machine, memory=LIMIT)).begin()
    one.make(1, 100 * MIB)
    one.prefetch(1, 100 * MIB)
    one.must("cuModuleLoadData", f"n{slot('module')}", b"hamisim-module 1\nsize=20971520\nkernel one\n\0")
    one.must("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"one\0")
    one.must("cuFuncLoad", f"h{slot('function')}")
    check_equal(one.charged(), CONTEXT + 120 * MIB, "code beside managed memory is charged")
    check_equal(one.alloc(2, ROOM - 120 * MIB), 0, "to the last byte")
    check_equal(one.alloc(3, 512), OUT_OF_MEMORY, "of the limit")
    one.finish()


def check_policies():
    machine = new_machine()
    one = Manager(limited_environment(machine, memory=LIMIT, HAMI_MANAGED="full")).begin()
    check_equal((one.make(1, ROOM + 512), one.words[1]), (OUT_OF_MEMORY, "null"), "full: beyond the limit is out of memory")
    check_equal(one.make(1, ROOM), 0, "full: up to the limit it is not")
    check_equal(one.make(2, 512), OUT_OF_MEMORY, "full: to the last byte")
    check_equal(one.finish(), "", "full: nobody said a word")
    one = Manager(limited_environment(machine, memory=LIMIT, HAMI_MANAGED="free")).begin()
    check_equal(one.make(1, 2 * GIB), 0, "free: it may be larger than the limit")
    one.prefetch(1, 2 * GIB)
    check_equal((one.charged(), pages(machine, one)), (CONTEXT, [2 * GIB]), "free: nothing of it is charged")
    check_equal(one.alloc(2, ROOM), 0, "free: other memory has all of the limit")
    check_equal(one.free(1), 0, "free: and it is freed")
    check_equal(one.finish(), "", "free: nobody said a word")
    one = Manager(limited_environment(machine, memory=LIMIT, HAMI_MANAGED="what"))
    check_equal(one.call("cuInit", 0), 802, "what is no policy gives no GPU")
    check("HAMI_MANAGED" in one.finish(), "and is named")


def check_devices():
    """Charged to the device that is current where it is made: it does not go to others."""
    machine = new_machine(gpus=2)
    one = Manager(limited_environment(machine, memory=LIMIT)).begin()
    one.make(1, 100 * MIB)
    check_equal(one.prefetch(1, 100 * MIB, 1), 0, "a prefetch to another device is heard")
    check_equal(pages(machine, one), [100 * MIB, 0], "and the memory goes where it is charged")
    one.advise(1, 100 * MIB, PREFERRED, 1)
    check_equal(one.preferred(1), 0, "advice likewise")
    one.prefetch(1, 100 * MIB, CPU)
    check_equal(pages(machine, one), [0, 0], "the host is free")
    one.finish()


def check_ungranted():
    """Whatever the policy, none of it comes to a card that the container was not given."""
    for policy in ("free", "full"):
        machine = new_machine(gpus=2)
        uuid = machine.view()["gpus"][0]["uuid"]
        library = container(NVIDIA_VISIBLE_DEVICES=uuid, CUDA_DEVICE_MEMORY_LIMIT_0="512m", HAMI_MANAGED=policy)
        one = Manager(bare_environment(machine, LD_PRELOAD=library)).begin()
        check_equal(one.make(1, 100 * MIB), 0, f"{policy}: managed memory is made")
        for one.prefetches, one.advises in FORMS:
            one.prefetch(1, 100 * MIB)
            check_equal((one.prefetch(1, 100 * MIB, 1), pages(machine, one)[1]), (0, 0), f"{policy}, {one.prefetches}: it does not come to another's card")
            one.advise(1, 100 * MIB, PREFERRED, 1)
            check(one.preferred(1) != 1, f"{policy}, {one.advises}: nor is it to be there", one.preferred(1))
        many = struct.pack("<Q", one.value(slot("ptr", 1))), struct.pack("<Q", 100 * MIB), 1, struct.pack("<ii", 1, 1), struct.pack("<Q", 0), 1, 0, 0
        check_equal((one.call("cuMemPrefetchBatchAsync", *many), pages(machine, one)[1]), (NOT_SUPPORTED, 0), f"{policy}: nor with many at once")
        one.finish()


def check_neighbours():
    """Pages are no obstacle to others, who are within their limits."""
    machine = new_machine()
    one = Manager(limited_environment(machine, memory=LIMIT, HAMI_MANAGED="free")).begin()
    one.make(1, 3 * GIB)
    one.prefetch(1, 3 * GIB)
    other = Manager(limited_environment(machine, memory=2 * GIB)).begin()
    check_equal(other.alloc(1, 2 * GIB - CONTEXT), 0, "pages give way to a neighbour's memory")
    one.kill()
    other.kill()
    check_equal(machine.used(), 0, "a kill leaves nothing")


def told(region, key):
    return json.loads(run([HAMICTL, "top", "--region", "--json", region], bare_environment(None)).stdout)["regions"][0][key]


def check_oversubscribed():
    """A limit beyond the card (deviceMemoryScaling): what the card has no room for lives on the host, and that is told."""
    region = new_region()
    machine = new_machine()
    one = Manager(limited_environment(machine, memory=6 * GIB, region=region)).begin()
    check_equal(one.alloc(1, 5 * GIB), OUT_OF_MEMORY, "without the word a card has no more than it has")
    one.finish()
    region = new_region()
    one = Manager(limited_environment(machine, memory=6 * GIB, region=region, CUDA_OVERSUBSCRIBE="true")).begin()
    one.must("cuMemGetInfo_v2", "o8", "o8")
    total, free = (int.from_bytes(bytes.fromhex(one.words[i]), "little") for i in (2, 1))
    check_equal((total, free), (6 * GIB, 6 * GIB - CONTEXT), "oversubscribed, a program sees its limit")
    near, far = 3 * GIB + 800 * MIB, GIB + 512 * MIB
    check_equal(one.alloc(1, near), 0, "what the card has room for is made there")
    check_equal((machine.used(one.pid), told(region, "on_host_bytes")), (near + CONTEXT, 0), "and is on the card")
    check_equal(one.alloc(2, far), 0, "what it has none for is made, too")
    check_equal((machine.used(one.pid), one.charged()), (near + CONTEXT, near + far + CONTEXT), "and charged, and is not on the card")
    check_equal(told(region, "on_host_bytes"), far, "hamictl top says how much lives on the host")
    check("1536 MiB of it live on the host" in run([HAMICTL, "top", "--region", region], bare_environment(None)).stdout, "in words, too")
    check_equal(one.prefetch(2, far), 0, "a prefetch of it is heard")
    one.touch(2)
    check_equal((pages(machine, one), one.preferred(2)), ([0], CPU), "it may be touched, and stays there")
    check_equal(one.alloc(3, 1 * GIB), OUT_OF_MEMORY, "beyond the limit is out of memory")
    check_equal(one.call("cuMemAllocPitch_v2", f"n{slot('ptr', 4)}", "o8", 1000, 2 * MIB, 4), OUT_OF_MEMORY, "so are rows")
    check_equal((one.words[1], int.from_bytes(bytes.fromhex(one.words[2]), "little")), ("null", 1024), "whose pitch is told, as the bare driver does")
    one.must("cuMemAllocPitch_v2", f"n{slot('ptr', 4)}", "o8", 1000, 500000, 4)
    check_equal(int.from_bytes(bytes.fromhex(one.words[2]), "little"), 1024, "rows have a pitch")
    check_equal(told(region, "on_host_bytes"), far + 490 * MIB, "and live there")
    check_equal((one.free(4), one.free(2)), (0, 0), "it is freed as any memory")
    check_equal((told(region, "on_host_bytes"), one.charged()), (0, near + CONTEXT), "and given back")
    check_equal(one.alloc(2, far), 0, "made again")
    one.must("cuDevicePrimaryCtxReset_v2", 0)
    check_equal((told(region, "on_host_bytes"), told(region, "devices")[0]["used_bytes"]), (0, 0), "it goes with its context")
    one.kill()
    one = Manager(limited_environment(machine, memory=6 * GIB, region=region, CUDA_OVERSUBSCRIBE="true")).begin()
    check_equal((one.alloc(1, 5 * GIB), told(region, "on_host_bytes")), (0, 5 * GIB), "what never fits is on the host as a whole")
    one.kill()
    wait_until(lambda: told(region, "processes") == [])
    check_equal((told(region, "on_host_bytes"), machine.used()), (0, 0), "a kill leaves nothing")


def check_small_spilled():
    """A small piece that lives on the host has no part in the pages of those on the card: it is charged by its own size."""
    region, machine = new_region(), new_machine()
    one = Manager(limited_environment(machine, memory=6 * GIB, region=region, CUDA_OVERSUBSCRIBE="true")).begin()
    near = 4 * GIB - CONTEXT - PIECE
    pitched = lambda number: one.call("cuMemAllocPitch_v2", f"n{slot('ptr', number)}", "o8", 512, 2, 4)
    for title, make, size in (("linear", lambda number: one.alloc(number, 1024), 1024), ("pitched", pitched, 1024)):
        check_equal((one.alloc(1, near), one.alloc(2, PIECE), machine.used()), (0, 0, 4 * GIB), f"{title}: the card is full")
        check_equal((make(3), make(4)), (0, 0), "small pieces are made all the same")
        check_equal((one.charged(), told(region, "on_host_bytes")), (4 * GIB + 2 * size, 2 * size), "charged by their own size, and on the host")
        check_equal((one.free(3), one.free(4), one.charged(), told(region, "on_host_bytes")), (0, 0, 4 * GIB, 0), "freed, nothing of them is left")
        one.free(2)
        check_equal((one.alloc(2, MIB), one.alloc(3, MIB - 512)), (0, 0), "what comes to the card now")
        check_equal((one.charged(), machine.used()), (4 * GIB, 4 * GIB), "is charged its page")
        check_equal((one.alloc(4, MIB), one.charged()), (0, 4 * GIB + MIB), "one on the host more")
        check_equal((one.free(2), one.free(3), one.charged(), machine.used()), (0, 0, near + CONTEXT + MIB, near + CONTEXT), "does not keep that page")
        one.must("cuDevicePrimaryCtxReset_v2", 0)
        check_equal((told(region, "on_host_bytes"), told(region, "devices")[0]["used_bytes"]), (0, 0), "all go with their context")
        one.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
        one.must("cuCtxSetCurrent", f"h{slot('context')}")
    check_equal((one.alloc(1, 6 * GIB - CONTEXT - PIECE), one.alloc(2, PIECE - MIB)), (0, 0), "up to the limit")
    check_equal((one.alloc(3, MIB), one.alloc(4, 512)), (0, OUT_OF_MEMORY), "and no further")
    one.finish()


VARIABLES = b"hamisim-module 1\nsize=0\nkernel touch touches\nmanaged small 104857600\nmanaged large 629145600\n\0"
LARGE, SMALL = 600 * MIB, 100 * MIB


class Variables(Manager):
    def load(self, number=1, library=False):
        if library:
            return self.call("cuLibraryLoadData", f"n{slot('library', number)}", VARIABLES, 0, 0, 0, 0, 0, 0)
        return self.call("cuModuleLoadData", f"n{slot('module', number)}", VARIABLES)

    def find(self, name, number=1, library=False):
        """The result; its address is kept at the variable's number. In a library, or in its module here."""
        at = f"n{slot('ptr', 20 + number)}"
        if library == "module":
            self.must("cuLibraryGetModule", f"n{slot('module', number)}", f"h{slot('library', number)}")
            library = False
        if library:
            return self.call("cuLibraryGetManaged", at, "o8", f"h{slot('library', number)}", name + b"\0")
        return self.call("cuModuleGetGlobal_v2", at, "o8", f"h{slot('module', number)}", name + b"\0")

    def unload(self, number=1, library=False):
        if library:
            return self.call("cuLibraryUnload", f"h{slot('library', number)}")
        return self.call("cuModuleUnload", f"h{slot('module', number)}")


def check_variables():
    """Of a module and of a library: charged as managed memory is, from when they are known until they go."""
    for library, kind in ((False, "a module"), (True, "a library"), ("module", "a library's module")):
        machine = new_machine()
        one = Variables(limited_environment(machine, memory=LIMIT)).begin()
        check_equal((one.load(library=library), one.find(b"small", library=library)), (0, 0), f"a variable of {kind} is found")
        check_equal(one.charged(), CONTEXT + SMALL, f"and charged what of it may be on the device")
        check_equal((one.find(b"small", library=library), one.charged()), (0, CONTEXT + SMALL), "once")
        check_equal((one.alloc(1, ROOM - SMALL + 512), one.alloc(1, ROOM - SMALL)), (OUT_OF_MEMORY, 0), "other memory has the rest")
        check_equal(one.free(1), 0, "and is freed")
        check_equal((one.find(b"large", library=library), one.charged()), (0, CONTEXT + SMALL), "what does not fit is there, and lives on the host")
        one.prefetch(21, LARGE)
        check_equal(pages(machine, one), [0], "also when it is called to the device")
        at = one.value(slot("ptr", 21))
        for start, size in ((at + 1024, MIB), (at - 512, LARGE), (at - SMALL, SMALL + LARGE), (at - 4 * MIB, 8 * MIB)):
            one.call("cuMemPrefetchAsync", start, size, 0, 0)
            one.call("cuMemAdvise", start, size, PREFERRED, 0)
            one.call("cuMemPrefetchAsync", start, size, 0, 0)
        check_equal(pages(machine, one), [0], "or a part of it, or more than it")
        check_equal((one.unload(library=library), one.charged()), (0, CONTEXT), f"both go with {kind}")
        for _ in range(200):
            one.load(library=library)
            one.find(b"small", library=library)
            one.unload(library=library)
        check_equal((one.charged(), machine.used(one.pid)), (CONTEXT, CONTEXT), "and after two hundred nothing is left")
        one.load(library=library)
        one.find(b"small", library=library)
        one.must("cuDevicePrimaryCtxReset_v2", 0)
        one.must("cuCtxCreate_v2", f"n{slot('context', 3)}", 0, 0)
        check_equal(one.charged(), CONTEXT, "or with the context")
        one.unload(library=library)
        check_equal(one.charged(), CONTEXT, "whatever is unloaded then")
        one.finish()
    machine = new_machine()
    one = Variables(limited_environment(machine, memory=LIMIT)).begin()
    one.must("cuCtxCreate_v2", f"n{slot('context', 3)}", 0, 0)
    one.load()
    one.find(b"small")
    variable = one.value(slot("ptr", 21))
    one.must("cuCtxDestroy_v2", f"h{slot('context', 3)}")
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    check_equal((one.make(1, 800 * MIB), one.value(slot("ptr", 1)) <= variable < one.value(slot("ptr", 1)) + 800 * MIB), (0, True), "where a variable was that went with its context other memory comes")
    one.prefetch(1, 800 * MIB)
    check_equal((pages(machine, one), one.charged()), ([0], CONTEXT), "which lives on the host, for it does not fit")
    one.finish()
    one = Variables(limited_environment(new_machine(), memory=LIMIT, HAMI_MANAGED="full")).begin()
    check_equal((one.load(), one.find(b"small"), one.find(b"large"), one.charged()), (0, 0, OUT_OF_MEMORY, CONTEXT + SMALL), "by the policy full what does not fit is refused")
    one.finish()
    one = Variables(limited_environment(new_machine(), memory=LIMIT, HAMI_MANAGED="free")).begin()
    check_equal((one.load(), one.find(b"small"), one.find(b"large"), one.charged()), (0, 0, 0, CONTEXT), "by the policy free nothing is charged")
    one.finish()


class Pooler(Manager):
    """Pools of managed memory (CUDA 13), as RMM and cuda-core have them."""

    def pool(self, number, place=1, device=0, kind=2):
        return self.call("cuMemPoolCreate", f"n{slot('pool', number)}", struct.pack("<iiiiQQ56x", kind, 0, place, device, 0, 0))

    def default(self, number, place=1, device=0, kind=2, function="cuMemGetDefaultMemPool"):
        return self.call(function, f"n{slot('pool', number)}", struct.pack("<ii", place, device), kind)

    def take(self, number, size, pool=1):
        return self.call("cuMemAllocFromPoolAsync", f"n{slot('ptr', number)}", size, f"h{slot('pool', pool)}", 0)

    def give(self, number):
        return self.call("cuMemFreeAsync", f"h{slot('ptr', number)}", 0)

    def destroy(self, number):
        return self.call("cuMemPoolDestroy", f"h{slot('pool', number)}")

    def wait(self):
        self.must("cuCtxSynchronize")


def check_pools():
    machine = new_machine()
    for made, title in ((lambda one: one.pool(1), "made"), (lambda one: one.default(1), "the default one"), (lambda one: one.default(1, function="cuMemGetMemPool"), "the current one"), (lambda one: one.pool(1, place=0), "best nowhere"), (lambda one: one.pool(1, place=2), "best on the host")):
        one = Pooler(limited_environment(machine, memory=LIMIT)).begin()
        check_equal((made(one), one.take(1, 100 * MIB)), (0, 0), f"a managed pool, {title}, gives memory")
        check_equal((one.charged(), machine.used(one.pid)), (CONTEXT + 100 * MIB, CONTEXT), "charged what may be on the device")
        check_equal((one.prefetch(1, 100 * MIB), pages(machine, one), one.charged()), (0, [100 * MIB], CONTEXT + 100 * MIB), "which may come there, and is charged once")
        check_equal(one.alloc(2, ROOM - 100 * MIB + 512), OUT_OF_MEMORY, "other memory has the rest of the limit")
        check_equal(one.alloc(2, ROOM - 100 * MIB), 0, "to the last byte")
        check_equal((one.take(3, 800 * MIB), one.take(4, 512), one.charged()), (0, 0, LIMIT), "what it has no room for is given all the same, and not charged")
        check_equal((one.prefetch(3, 800 * MIB), one.prefetch(4, 512)), (0, 0), "it may be prefetched")
        one.touch(3)
        check_equal(pages(machine, one), [100 * MIB], "and touched, and stays on the host")
        for advice in (PREFERRED, UNSET_PREFERRED, READ_MOSTLY):
            check_equal((one.advise(3, 800 * MIB, advice, 0), one.touch(3), pages(machine, one)), (0, None, [100 * MIB]), f"whatever is advised ({advice})")
        one.must("cuPointerGetAttribute", f"n{slot('pool', 9)}", 17, f"h{slot('ptr', 3)}")
        check_equal(one.destroy(9), INVALID_VALUE, "the pool that it is of is not the program's to end")
        check_equal((one.give(3), one.free(4), one.free(2)), (0, 0, 0), "it is freed as any memory")
        check_equal((one.take(2, 200 * MIB), one.charged()), (0, CONTEXT + 300 * MIB), "and where there is room again it is had there")
        check_equal((one.give(1), one.give(2), one.wait(), one.charged(), pages(machine, one)), (0, 0, None, CONTEXT, [0]), "whoever waits gives it back")
        said = one.finish()
        check_equal((said.count("live on the host"), len(said.splitlines())), (1, 1), "one line says what lives on the host")
        check_equal(machine.used(), 0, "nothing is left")

    # It is no hidden memory, and hides none.
    one = Pooler(limited_environment(machine, memory=LIMIT)).begin()
    one.pool(1)
    one.take(1, 100 * MIB)
    one.prefetch(1, 100 * MIB)
    one.must("cuModuleLoadData", f"n{slot('module', 2)}", b"hamisim-module 1\nsize=20971520\nkernel one\n\0")
    one.must("cuModuleGetFunction", f"n{slot('function', 2)}", f"h{slot('module', 2)}", b"one\0")
    one.must("cuLaunchKernel", f"h{slot('function', 2)}", 1, 1, 1, 1, 1, 1, 0, 0, "k1000", 0)
    check(wait_until(lambda: one.charged() == CONTEXT + 120 * MIB, 3), "code beside it is charged", one.charged())
    time.sleep(1.2)
    check_equal(one.charged(), CONTEXT + 120 * MIB, "and neither of them twice, nor less")

    # One that is destroyed keeps what it gave out, and that is charged until it has it back.
    check_equal((one.destroy(1), one.destroy(1), one.take(9, PIECE)), (0, INVALID_VALUE, INVALID_VALUE), "it is destroyed once, and gives no more")
    time.sleep(1.2)
    check_equal((pages(machine, one), one.charged()), ([100 * MIB], CONTEXT + 120 * MIB), "what it gave lives on, and is charged")
    check_equal((one.give(1), one.wait(), one.charged(), pages(machine, one)), (0, None, CONTEXT + 20 * MIB, [0]), "until it is freed")
    check_equal((one.default(1), one.destroy(1)), (0, INVALID_VALUE), "a default one is not to be destroyed")
    check_equal((one.take(1, 100 * MIB), one.destroy(1), one.take(2, 100 * MIB)), (0, INVALID_VALUE, 0), "nor with memory given out")
    one.kill()
    check_equal(machine.used(), 0, "a kill leaves nothing")

    for policy, wanted in (("full", (OUT_OF_MEMORY, CONTEXT + 400 * MIB)), ("free", (0, CONTEXT))):
        one = Pooler(limited_environment(machine, memory=LIMIT, HAMI_MANAGED=policy)).begin()
        check_equal((one.pool(1), one.take(1, 400 * MIB), one.take(2, 400 * MIB), one.charged()), (0, 0, *wanted), f"by the policy {policy}")
        one.finish()

    pair = new_machine(gpus=2)
    one = Pooler(limited_environment(pair, memory=LIMIT)).begin()
    check_equal((one.pool(1, device=1), one.take(1, 100 * MIB), one.charged()), (0, 0, CONTEXT), "one of another device is not this one's")
    check_equal((one.prefetch(1, 100 * MIB, 0), pages(pair, one)), (0, [0, 100 * MIB]), "and its memory comes to the one that it is charged to, and no other")
    one.finish()

    # The host's own pool is free: RMM takes pinned memory from it.
    one = Pooler(limited_environment(machine, memory=LIMIT)).begin()
    check_equal((one.default(1, place=2, kind=1), one.take(1, 4 * GIB), one.charged()), (0, 0, CONTEXT), "the host's default pool is free")
    check_equal((one.default(1, place=3, kind=1), one.take(1, 4 * GIB), one.charged()), (0, 0, CONTEXT), "by its node, too")
    check_equal((one.default(1, kind=1), one.take(1, 100 * MIB), one.charged()), (0, 0, CONTEXT + 100 * MIB), "a device's is the device's")
    check_equal(one.finish(), "", "nobody said a word")


class Grapher(Pooler):
    """Graphs that allocate managed memory, of a device by default, which nothing in them frees."""

    AUTO_FREE = 1

    def begin(self):
        super().begin()
        self.must("cuStreamCreate", f"n{slot('stream')}", 1)
        return self

    def by_node(self, number, size, place=1):
        self.must("cuGraphCreate", f"n{slot('graph', number)}", 0)
        return self.call("cuGraphAddMemAllocNode", f"n{slot('node', number)}", f"h{slot('graph', number)}", 0, 0, f"a{slot('ptr', number)},0,{size},{place},2")

    def by_any_node(self, number, size, place=1):
        self.must("cuGraphCreate", f"n{slot('graph', number)}", 0)
        return self.call("cuGraphAddNode", f"n{slot('node', number)}", f"h{slot('graph', number)}", 0, 0, f"A{slot('ptr', number)},0,{size},{place},2")

    def by_capture(self, number, size, place=1):
        self.pool(number, place=place)
        self.must("cuStreamBeginCapture_v2", f"h{slot('stream')}", 0)
        code = self.call("cuMemAllocFromPoolAsync", f"n{slot('ptr', number)}", size, f"h{slot('pool', number)}", f"h{slot('stream')}")
        self.must("cuStreamEndCapture", f"h{slot('stream')}", f"n{slot('graph', number)}")
        return code

    def launch(self, number):
        self.must("cuGraphInstantiateWithFlags", f"n{slot('exec', number)}", f"h{slot('graph', number)}", self.AUTO_FREE)
        return self.launch_again(number)

    def launch_again(self, number):
        return self.call("cuGraphLaunch", f"h{slot('exec', number)}", f"h{slot('stream')}")


def check_graphs():
    """What graphs allocate of it is their device's, as any memory of theirs, and charged so by each policy; elsewhere there is none."""
    for number, way in enumerate(("by_node", "by_any_node", "by_capture"), 1):
        machine = new_machine()
        for policy in ("resident", "full", "free"):
            one = Grapher(limited_environment(machine, memory=LIMIT, HAMI_MANAGED=policy)).begin()
            before = one.charged()
            check_equal((getattr(one, way)(number, 256 * MIB), one.launch(number)), (0, 0), f"{way}, {policy}: a graph allocates managed memory")
            check_equal((one.charged(), machine.used(one.pid), pages(machine, one)), (before + 256 * MIB, before + 256 * MIB, [0]), "which is the device's, and charged")
            for prefetches, advises in FORMS:
                one.prefetches, one.advises = prefetches, advises
                check_equal((one.prefetch(number, 256 * MIB, CPU), one.advise(number, 256 * MIB, PREFERRED, CPU)), (INVALID_VALUE, INVALID_VALUE), f"{prefetches}, {advises}: it does not move")
            check_equal((getattr(one, way)(9 + number, 256 * MIB), one.launch(9 + number)), (0, OUT_OF_MEMORY), "beyond the limit there is no launch")
            check_equal((one.free(number), one.call("cuDeviceGraphMemTrim", 0), one.charged(), one.free(number)), (0, 0, before, INVALID_VALUE), "it is freed as any")
            check_equal(one.launch_again(9 + number), 0, "and another one has its place")
            check_equal(one.finish(), "", "nobody says a word")
            check_equal(machine.used(), 0, "nothing is left")

            one = Grapher(limited_environment(machine, memory=LIMIT, HAMI_MANAGED=policy)).begin()
            for turn, place in enumerate((0, 2, 3, 4)):
                check_equal(getattr(one, way)(1 + turn, PIECE, place), NOT_SUPPORTED, f"{way}, {policy}: best at a place of type {place} there is none")
            check_equal(one.finish().count("managed memory of graphs can't be charged"), 1, "and one line says so")
        old = Machine(memory=4 * GIB, context=CONTEXT, driver={"stream": "0", "graph-places": "device"})
        one = Grapher(limited_environment(old, memory=LIMIT)).begin()
        check_equal(getattr(one, way)(number, PIECE), NOT_SUPPORTED, "as there is with a driver that has no such nodes")
        one.finish()


for test in (check_variables, check_oversubscribed, check_small_spilled, check_resident, check_forms, check_hidden, check_policies, check_devices, check_ungranted, check_neighbours, check_pools, check_graphs):
    test()
finish()

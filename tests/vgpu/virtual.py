#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that is made apart from its addresses: charged while anything holds it, by the simulator's own count. The
calls of PyTorch's expandable segments, of vLLM asleep and awake, of NCCL and NVSHMEM, in their order."""

import json
import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

PIECE = 2 * MIB
CONTEXT = 60 * MIB
LIMIT = 512 * MIB


class Mapper(Caller):
    """Handles and reservations by number."""

    def create(self, number, size, prop=allocation_prop()):
        return self.call("cuMemCreate", f"n{slot('physical', number)}", size, prop, 0)

    def release(self, number):
        return self.call("cuMemRelease", f"h{slot('physical', number)}")

    def reserve(self, number, size):
        return self.call("cuMemAddressReserve", f"n{slot('va', number)}", size, 0, 0, 0)

    def map(self, number, at, size, handle):
        return self.call("cuMemMap", f"h{slot('va', number)}+{at}", size, 0, f"h{slot('physical', handle)}", 0)

    def unmap(self, number, at, size):
        return self.call("cuMemUnmap", f"h{slot('va', number)}+{at}", size)

    def allow(self, number, at, size):
        return self.call("cuMemSetAccess", f"h{slot('va', number)}+{at}", size, access_desc(), 1)

    def retain(self, number, va, at=0):
        return self.call("cuMemRetainAllocationHandle", f"n{slot('physical', number)}", f"h{slot('va', va)}+{at}")

    def export(self, number, fd=1):
        return self.call("cuMemExportToShareableHandle", f"w{slot('fd', fd)}", f"h{slot('physical', number)}", 1, 0)

    def take_in(self, number, fd=1):
        return self.call("cuMemImportFromShareableHandle", f"n{slot('physical', number)}", f"h{slot('fd', fd)}", 1)

    def borrow(self, other, fd=1, own=1):
        """A descriptor of another program's."""
        return self.ask(f"borrow {slot('fd', own)} {other.pid} {other.value(slot('fd', fd))}")[1] == "1"


def new_machine(gpus=1):
    return Machine(gpus=gpus, memory=4 * GIB, context=CONTEXT)


def agree(title, machine, one, wanted):
    """The simulator's count of a program, and what it is told, are both so much."""
    check_equal((machine.used(one.pid), one.charged()), (wanted, wanted), title)


def check_limit():
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=LIMIT + 512)).begin()
    most = (LIMIT - CONTEXT) // PIECE
    codes = [one.create(1 + i % 20, PIECE) for i in range(most)]
    check_equal(codes, [0] * most, "as many pieces are made as the limit has")
    code = one.create(30, PIECE)
    check_equal((code, one.words[1]), (OUT_OF_MEMORY, "kept"), "one more is out of memory, the output untouched")
    check_equal(machine.used(one.pid), CONTEXT + most * PIECE, "exactly these are in use, by the simulator's count")
    check_equal(one.info(), (512, LIMIT + 512), "and the program is told of what is left")
    check_equal(one.create(30, PIECE + 512), INVALID_VALUE, "beyond the limit a wrong size is still a wrong size")
    check_equal(one.create(30, PIECE, allocation_prop(number=7)), 101, "and a wrong device a wrong device")
    check_equal(one.call("cuMemAlloc_v2", f"n{slot('ptr')}", 1024), OUT_OF_MEMORY, "other memory counts to the same limit")
    check_equal(one.create(30, PIECE, allocation_prop(HOST_NUMA)), 0, "the host's memory is not the card's")
    one.release(2)
    agree("what is released is free", machine, one, CONTEXT + (most - 1) * PIECE)
    check_equal(one.create(2, PIECE), 0, "and may be had again")
    one.must("cuDevicePrimaryCtxReset_v2", 0)
    check_equal(machine.used(one.pid), most * PIECE, "it outlives its context")
    one.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    agree("and stays charged", machine, one, CONTEXT + most * PIECE)
    one.kill()
    check_equal(machine.used(), 0, "a kill leaves nothing")


def check_references():
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    one.must("cuMemAddressReserve", f"n{slot('va')}", 16 * PIECE, 0, 0, 0)
    agree("addresses take nothing", machine, one, CONTEXT)
    one.create(1, 4 * PIECE)
    one.map(1, 0, 4 * PIECE, 1)
    one.map(1, 8 * PIECE, 2 * PIECE, 1)
    one.release(1)
    agree("what is mapped lives without its handle", machine, one, CONTEXT + 4 * PIECE)
    one.unmap(1, 0, 4 * PIECE)
    agree("while one mapping is there", machine, one, CONTEXT + 4 * PIECE)
    check_equal(one.retain(1, 1, 9 * PIECE), 0, "its handle can be had again")
    one.unmap(1, 8 * PIECE, 2 * PIECE)
    agree("and holds it as before", machine, one, CONTEXT + 4 * PIECE)
    one.release(1)
    agree("the last one to go frees it", machine, one, CONTEXT)
    check_equal(one.release(1), INVALID_VALUE, "a second release is an error")
    agree("and frees nothing", machine, one, CONTEXT)
    one.create(1, PIECE)
    one.map(1, 0, PIECE, 1)
    check_equal(one.unmap(1, 0, 2 * PIECE), INVALID_VALUE, "what is not all mapped is not unmapped")
    agree("and stays charged", machine, one, CONTEXT + PIECE)
    check_equal(one.finish(), "", "nobody said a word")


def check_device():
    machine = new_machine(gpus=2)
    one = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    codes = [one.create(1 + i % 20, 16 * PIECE, allocation_prop(number=1)) for i in range(LIMIT // (16 * PIECE))]
    check_equal(set(codes), {0}, "the device that is named has room, whatever is current")
    check_equal(one.create(30, PIECE, allocation_prop(number=1)), OUT_OF_MEMORY, "up to its limit")
    check_equal([machine.used(one.pid, gpu=i) for i in (0, 1)], [CONTEXT, LIMIT], "and it is that one that it takes")
    agree("the current one is not charged", machine, one, CONTEXT)
    one.finish()


def torch_grow(one, first, count):
    """A batch of pieces: on failure it takes back what it has made of it."""
    made = []
    for i in range(count):
        if one.create(first + i, 10 * PIECE, allocation_prop(handles=POSIX_FD)) != 0:
            for number in made:
                one.release(number)
            return False
        made.append(first + i)
    for i, number in enumerate(made):
        one.map(1, (first - 1 + i) * 10 * PIECE, 10 * PIECE, number)
    one.allow(1, (first - 1) * 10 * PIECE, count * 10 * PIECE)
    return True


def torch_shrink(one, numbers):
    one.must("cuCtxSynchronize")
    for number in numbers:
        one.unmap(1, (number - 1) * 10 * PIECE, 10 * PIECE)
        one.release(number)


def check_torch():
    """Expandable segments: a reservation larger than the card, pieces of 20 MiB."""
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    total = one.info()[1]
    one.reserve(1, (total + total // 8) // (10 * PIECE) * 10 * PIECE)
    room = (LIMIT - CONTEXT) // (10 * PIECE)
    check(torch_grow(one, 1, room - 2), "PyTorch: a segment grows")
    check(not torch_grow(one, room - 1, 4), "PyTorch: beyond the limit it does not, and what was made goes back")
    agree("PyTorch: nothing of it stays", machine, one, CONTEXT + (room - 2) * 10 * PIECE)
    torch_shrink(one, range(3, 6))
    agree("PyTorch: cached pieces are given back", machine, one, CONTEXT + (room - 5) * 10 * PIECE)
    check(torch_grow(one, room - 1, 4), "PyTorch: and then it grows")
    torch_shrink(one, [1, 2, *range(6, room + 3)])
    one.must("cuMemAddressFree", f"h{slot('va')}", (total + total // 8) // (10 * PIECE) * 10 * PIECE)
    agree("PyTorch: all is given back at the end", machine, one, CONTEXT)
    check_equal(one.finish(), "", "PyTorch: nobody said a word")


def check_vllm():
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    sizes = [100 * MIB, 200 * MIB, 80 * MIB]
    for i, size in enumerate(sizes, 1):
        one.must("cuMemGetAllocationGranularity", "o8", allocation_prop(), 0)
        codes = one.reserve(i, size), one.create(i, size), one.map(i, 0, size, i), one.allow(i, 0, size)
        check_equal(codes, (0, 0, 0, 0), "vLLM: an allocation")
    awake = CONTEXT + sum(sizes)
    agree("vLLM: awake it has it all", machine, one, awake)
    for night in range(3):
        for i, size in enumerate(sizes, 1):
            one.unmap(i, 0, size)
            one.release(i)
        agree("vLLM: asleep it has its context", machine, one, CONTEXT)
        neighbour = Mapper(limited_environment(machine, memory=LIMIT)).begin()
        check_equal(neighbour.create(1, LIMIT - CONTEXT), 0, "vLLM: others have the room meanwhile")
        neighbour.kill()
        for i, size in enumerate(sizes, 1):
            codes = one.create(i, size), one.map(i, 0, size, i), one.allow(i, 0, size)
            check_equal(codes, (0, 0, 0), "vLLM: at the same address again")
        agree("vLLM: awake it has it all again", machine, one, awake)
    one.must("cuCtxSynchronize")
    for i, size in enumerate(sizes, 1):
        one.unmap(i, 0, size)
        one.release(i)
        one.must("cuMemAddressFree", f"h{slot('va', i)}", size)
    agree("vLLM: freed", machine, one, CONTEXT)
    one.finish()


def check_nccl():
    """It learns the handle by retaining and releasing it, and its second release is the maker's."""
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    prop = allocation_prop(handles=POSIX_FD)
    codes = one.create(1, 5 * PIECE, prop), one.reserve(1, 5 * PIECE), one.map(1, 0, 5 * PIECE, 1), one.allow(1, 0, 5 * PIECE)
    check_equal(codes, (0, 0, 0, 0), "NCCL: a buffer")
    one.retain(2, 1)
    check_equal(one.words[1], f"s{slot('physical', 1)}", "NCCL: the handle is the one that was mapped")
    one.release(2)
    one.must("cuMemGetAddressRange_v2", "o8", "o8", f"h{slot('va')}")
    check_equal(int.from_bytes(bytes.fromhex(one.words[2]), "little"), 5 * PIECE, "NCCL: the range is the mapping")
    one.unmap(1, 0, 5 * PIECE)
    agree("NCCL: unmapped, the maker's handle holds it", machine, one, CONTEXT + 5 * PIECE)
    one.release(1)
    agree("NCCL: freed", machine, one, CONTEXT)
    one.finish()


def check_nvshmem():
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    one.reserve(1, 40 * PIECE)
    for i in range(5):
        one.create(1 + i, 4 * PIECE)
        one.map(1, i * 4 * PIECE, 4 * PIECE, 1 + i)
        one.release(1 + i)
    agree("NVSHMEM: a heap of five pieces", machine, one, CONTEXT + 20 * PIECE)
    check_equal(one.unmap(1, 0, 20 * PIECE), 0, "NVSHMEM: one call unmaps it")
    agree("NVSHMEM: and all of it is gone", machine, one, CONTEXT)
    one.finish()


def settled(sentence, condition):
    """What NVML has to be asked for is known within a second."""
    until = time.monotonic() + 5
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    check(condition(), sentence)


def check_sharing():
    machine, region = new_machine(), new_region()
    environment = limited_environment(machine, memory=LIMIT, region=region)
    maker, user = Mapper(environment).begin(), Mapper(environment).begin()
    maker.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
    check_equal(maker.export(1), 0, "a process gives memory out as a descriptor")
    if not check(user.borrow(maker), "another one of its container has the descriptor"):
        return
    check_equal(user.take_in(1), 0, "and imports it")
    user.tell(f"close {slot('fd')}")
    maker.tell(f"close {slot('fd')}")
    user.reserve(1, 100 * MIB)
    user.map(1, 0, 100 * MIB, 1)
    user.release(1)
    held = 2 * CONTEXT + 100 * MIB
    check_equal((machine.used(), user.charged()), (held, held), "an import takes no new memory")
    maker.kill()
    check_equal(machine.used(), CONTEXT + 100 * MIB, "the memory outlives its maker")
    settled("and is charged to who has it then", lambda: user.charged() == CONTEXT + 100 * MIB)
    check_equal(user.create(2, LIMIT - CONTEXT - 100 * MIB + PIECE), OUT_OF_MEMORY, "so that the limit holds")
    check_equal(user.create(2, LIMIT - CONTEXT - 100 * MIB), 0, "to the last byte")
    user.release(2)
    user.unmap(1, 0, 100 * MIB)
    check_equal(machine.used(), CONTEXT, "its last mapping frees it")
    settled("which is seen", lambda: user.charged() == CONTEXT)
    user.finish()

    # Whoever made it lets go first: it stays charged, or one could have it again and again.
    maker, user = Mapper(environment).begin(), Mapper(environment).begin()
    for turn in range(3):
        maker.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
        maker.export(1)
        user.borrow(maker)
        user.take_in(1 + turn)
        user.tell(f"close {slot('fd')}")
        maker.tell(f"close {slot('fd')}")
        maker.release(1)
    held = 2 * CONTEXT + 300 * MIB
    check_equal(machine.used(), held, "what importers hold outlives its maker's handles")
    check_equal(maker.create(2, LIMIT - held + PIECE), OUT_OF_MEMORY, "and is charged at any moment")
    settled("as to who has it", lambda: user.charged() >= held)
    for turn in range(3):
        user.release(1 + turn)
    settled("and given back by all when it has gone", lambda: (user.charged(), maker.charged()) == (2 * CONTEXT,) * 2)
    maker.finish()
    user.finish()

    # Its maker does nothing more, and has no context, by which NVML would know it.
    maker, user = Mapper(environment), Mapper(environment).begin()
    maker.must("cuInit", 0)
    maker.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
    maker.export(1)
    user.borrow(maker)
    user.take_in(1)
    maker.tell(f"close {slot('fd')}")
    maker.release(1)
    user.tell(f"close {slot('fd')}")
    user.release(1)
    settled("when it has gone its maker sees that without a call", lambda: user.charged() == machine.used() == CONTEXT)
    check_equal(user.create(2, LIMIT - CONTEXT), 0, "so that all can be had")
    maker.finish()
    user.finish()

    # A descriptor alone holds memory, too.
    maker = Mapper(environment).begin()
    maker.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
    maker.export(1)
    maker.release(1)
    check_equal((machine.used(), machine.used(maker.pid)), (CONTEXT + 100 * MIB, CONTEXT), "what an open descriptor holds is in use, and nobody's")
    check_equal(maker.charged(), CONTEXT + 100 * MIB, "and stays charged")
    check_equal(maker.create(2, LIMIT - CONTEXT - 100 * MIB + PIECE), OUT_OF_MEMORY, "so that the limit holds")
    maker.tell(f"close {slot('fd')}")
    check_equal(maker.create(2, LIMIT - CONTEXT), 0, "and when it is closed all can be had")
    maker.finish()

    # Also on a device where the process has no context, so that NVML does not list it there.
    pair = new_machine(gpus=2)
    maker = Mapper(limited_environment(pair, memory=LIMIT)).begin()
    check_equal(maker.create(1, LIMIT, allocation_prop(number=1, handles=POSIX_FD)), 0, "all of a device without a context of ours")
    maker.export(1)
    maker.release(1)
    check_equal(maker.create(2, PIECE, allocation_prop(number=1)), OUT_OF_MEMORY, "is held by a descriptor")
    maker.tell(f"close {slot('fd')}")
    check_equal(maker.create(2, LIMIT, allocation_prop(number=1)), 0, "until it is closed")
    maker.finish()

    maker = Mapper(environment).begin()

    # From one's own descriptor: a second handle, and still the same memory.
    maker.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
    maker.export(1)
    check_equal(maker.take_in(2), 0, "a process imports its own memory")
    maker.tell(f"close {slot('fd')}")
    maker.release(1)
    agree("which the import holds", machine, maker, CONTEXT + 100 * MIB)
    maker.release(2)
    check_equal(maker.create(1, LIMIT - CONTEXT), 0, "and gives back")
    maker.finish()
    check_equal(machine.used(), 0, "nothing is left")


def check_again():
    """One descriptor is imported again and again, as by who is sent tensors of one segment: its importer's own memory is seen to go all the same."""
    machine = new_machine()
    environment = limited_environment(machine, memory=LIMIT, region=new_region())
    maker, user = Mapper(environment).begin(), Mapper(environment).begin()
    maker.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
    maker.export(1)
    codes = []
    for _ in range(200):
        user.borrow(maker)
        codes += [user.take_in(1), user.release(1)]
        user.tell(f"close {slot('fd')}")
    check_equal(set(codes), {0}, "one descriptor is imported two hundred times")
    user.create(2, 100 * MIB, allocation_prop(handles=POSIX_FD))
    user.export(2)
    user.tell(f"close {slot('fd')}")
    user.release(2)
    check_equal(user.charged(), 2 * CONTEXT + 100 * MIB, "and what its importer gave out, and let go of, is charged no more")
    user.finish()
    maker.finish()


def check_chain():
    """Makers that die one after another, and what they leave to a process that NVML does not name, having no context."""
    machine = new_machine()
    environment = limited_environment(machine, memory=LIMIT, region=new_region())
    user, codes = Mapper(environment), []
    user.must("cuInit", 0)
    for turn in range(1, 5):
        maker = Mapper(environment)
        maker.must("cuInit", 0)
        codes.append(maker.create(1, 150 * MIB, allocation_prop(handles=POSIX_FD)))
        if codes[-1] == 0:
            maker.export(1)
            user.borrow(maker)
            user.take_in(turn)
            user.tell(f"close {slot('fd')}")
        maker.kill()
    check_equal(codes, [0, 0, 0, OUT_OF_MEMORY], "what dead makers leave to a process without a context stays charged")
    check_equal(machine.used(), 450 * MIB, "so that the limit holds")
    user.release(1)
    maker = Mapper(environment)
    maker.must("cuInit", 0)
    check_equal(maker.create(1, 100 * MIB), OUT_OF_MEMORY, "as long as anything of it is held")
    user.release(2)
    user.release(3)
    check_equal(maker.create(1, LIMIT), 0, "then all can be had")
    maker.finish()
    user.finish()

    # In a context, which NVML names, and with a descriptor open that keeps memory from its count.
    maker, user = Mapper(environment).begin(), Mapper(environment).begin()
    maker.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
    maker.export(1)
    user.borrow(maker)
    user.take_in(1)
    user.reserve(1, 100 * MIB)
    user.map(1, 0, 100 * MIB, 1)
    maker.kill()
    time.sleep(1.5)
    check(user.charged() >= CONTEXT + 100 * MIB, "memory of which a descriptor is open may be charged twice", user.charged())
    user.tell(f"close {slot('fd')}")
    settled("and is once, when it is closed", lambda: user.charged() == machine.used() == CONTEXT + 100 * MIB)
    user.finish()


def check_few_descriptors():
    """A moment without descriptors leaves nothing charged that is not held."""
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    one.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
    one.leave_descriptors(3)  # two are the simulator's
    check_equal((one.export(1), one.words[1]), (OPERATING_SYSTEM, "kept"), "what nobody could see the end of is not given out")
    one.leave_descriptors(None)
    check_equal((one.release(1), machine.used(), one.charged()), (0, CONTEXT, CONTEXT), "nor left open, nor charged after its end")
    one.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
    check_equal(one.export(1), 0, "later it is given out")
    one.tell(f"close {slot('fd')}")
    one.leave_descriptors(2)
    check_equal(one.export(1), 0, "and once that was done it needs no other descriptor")
    one.leave_descriptors(0)
    one.release(1)
    one.tell(f"close {slot('fd')}")
    one.leave_descriptors(0)
    check_equal(one.create(2, LIMIT - CONTEXT), OUT_OF_MEMORY, "where nobody can look, it counts as held")
    one.leave_descriptors(None)
    check_equal(one.create(2, LIMIT - CONTEXT), 0, "until somebody can")
    one.release(2)
    agree("and nothing stays charged", machine, one, CONTEXT)
    check_equal(one.finish(), "", "nobody said a word")


def check_many_given():
    """As PyTorch's expandable segments are: each piece of memory, whose descriptor is closed again."""
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=2 * GIB)).begin()
    pieces = []
    for _ in range(600):
        codes = one.create(1, PIECE, allocation_prop(handles=POSIX_FD)), one.export(1)
        one.tell(f"close {slot('fd')}")
        if codes != (0, 0):
            break
        pieces.append(one.value(slot("physical")))
    check_equal(codes, (0, 0), "600 pieces are given out")
    agree("and charged", machine, one, CONTEXT + 600 * PIECE)
    for piece in pieces:
        one.must("cuMemRelease", piece)
    agree("released, they come back", machine, one, CONTEXT)
    check_equal(one.create(1, 2 * GIB - CONTEXT), 0, "and all can be had")
    check_equal(one.finish(), "", "nobody said a word")


def check_given_on():
    """What came as a descriptor, from another process or the own one, is not given out as another: nobody would see that close."""
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    one.reserve(1, 100 * MIB)
    for turn in range(8):
        code = one.create(1, 100 * MIB, allocation_prop(handles=POSIX_FD))
        one.export(1)
        one.take_in(2)
        if code or one.export(2, 2) == 0:
            break
        one.map(1, 0, 100 * MIB, 2)
        if one.call("cuMemGetHandleForAddressRange", f"w{slot('fd', 3)}", f"h{slot('va', 1)}", 100 * MIB, 1, 0) == 0:
            break
        one.unmap(1, 0, 100 * MIB)
        one.release(2)
        one.release(1)
        one.tell(f"close {slot('fd')}")
    check_equal((turn, code), (7, 0), "an import is given out neither as a descriptor nor as a dma-buf")
    agree("and nothing of it is left", machine, one, CONTEXT)
    check_equal(one.finish().count("imported has gone"), 1, "one line says so")
    free = Mapper(limited_environment(machine, memory=LIMIT, HAMI_UNACCOUNTED="allow")).begin()
    free.create(1, PIECE, allocation_prop(handles=POSIX_FD))
    free.export(1)
    free.take_in(2)
    check_equal(free.export(2, 2), 0, "where the limits allow it, it is")
    free.finish()


def check_strangers():
    """From another container: refused, unless the limits say that it shall pass."""
    machine = new_machine()
    maker = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    maker.create(1, PIECE, allocation_prop(handles=POSIX_FD))
    maker.export(1)
    stranger = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    stranger.borrow(maker)
    check_equal((stranger.take_in(1), stranger.words[1]), (NOT_SUPPORTED, "kept"), "another container's memory is refused")
    check_equal(stranger.finish().count("cuMemImportFromShareableHandle"), 1, "and one line says so")
    stranger = Mapper(limited_environment(machine, memory=LIMIT, HAMI_UNACCOUNTED="allow")).begin()
    stranger.borrow(maker)
    check_equal(stranger.take_in(1), 0, "where the limits allow it, it passes")
    stranger.finish()
    # A program without the library made it: as far as anybody can tell, a stranger.
    bare = Mapper(bare_environment(machine)).begin()
    bare.create(1, PIECE, allocation_prop(handles=POSIX_FD))
    bare.export(1)
    maker.borrow(bare)
    check_equal(maker.take_in(2), NOT_SUPPORTED, "what a program without limits made is refused")
    bare.finish()
    maker.finish()


def check_attributes():
    machine = new_machine()
    one = Mapper(limited_environment(machine, memory=LIMIT)).begin()
    for attribute, name in ((102, "virtual memory management"), (103, "descriptors of it")):
        one.must("cuDeviceGetAttribute", "o4", attribute, 0)
        check_equal(one.words[1], "01000000", f"a device says that it has {name}")
    one.finish()


def told(region, key):
    return json.loads(run([HAMICTL, "top", "--region", "--json", region], bare_environment(None)).stdout)["regions"][0][key]


def check_oversubscribed_sharing(machine):
    """As PyTorch makes it (expandable segments) and another process of its container takes it in."""
    region = new_region()
    environment = limited_environment(machine, memory=6 * GIB, region=region, CUDA_OVERSUBSCRIBE="true")
    on_host, near, far = lambda: told(region, "on_host_bytes"), 3 * GIB + 700 * MIB, GIB
    maker, user = Mapper(environment).begin(), Mapper(environment).begin()
    held = near + 2 * CONTEXT
    check_equal((maker.create(1, near), maker.create(2, far, allocation_prop(handles=POSIX_FD)), on_host()), (0, 0, far), "what is to be shared lives on the host, too")
    check_equal((maker.export(2), user.borrow(maker), user.take_in(1)), (0, True, 0), "is given out and taken in")
    user.reserve(1, far)
    check_equal((user.map(1, 0, far, 1), user.allow(1, 0, far), user.release(1)), (0, 0, 0), "and mapped there")
    check_equal((user.charged(), on_host(), machine.used()), (held + far, far, held), "charged once, to who made it")
    user.tell(f"close {slot('fd')}")
    maker.tell(f"close {slot('fd')}")
    check_equal((maker.release(2), on_host(), maker.charged()), (0, 0, held), "until that one lets it go: no card holds it for others")
    check_equal((maker.create(2, far, allocation_prop(handles=POSIX_FD)), maker.export(2), user.borrow(maker), user.take_in(2)), (0, 0, True, 0), "made again")
    maker.kill()
    settled("a kill leaves the importer charged nothing", lambda: (on_host(), user.charged()) == (0, CONTEXT))
    time.sleep(1.5)  # longer than NVML is asked again
    check_equal((user.charged(), user.unmap(1, 0, far), user.release(2), user.charged()), (CONTEXT, 0, 0, CONTEXT), "nor later")
    user.finish()


def check_for_network_cards(one, far, on_host):
    """As PyTorch makes it (expandable segments), NCCL and vLLM wherever the card is able to: it lives on the host without."""
    able = allocation_prop(for_cards=1)
    check_equal((one.call("cuDeviceGetAttribute", "o4", 110, 0), one.words[1]), (0, "01000000"), "the card's memory may be network cards'")
    for handles, place in ((0, "the host"), (POSIX_FD, "a node of it")):
        prop = allocation_prop(for_cards=1, handles=handles)
        check_equal((one.create(2, far, prop), on_host()), (0, far), f"what is to be theirs lives on {place}, too")
        one.must("cuMemGetAllocationPropertiesFromHandle", "o32", f"h{slot('physical', 2)}")
        check_equal(one.words[1], allocation_prop(handles=handles).hex(), "and is told to be the device's, but not to be theirs")
        check_equal((one.map(1, 0, far, 2), one.allow(1, 0, far)), (0, 0), "it is mapped, and the device may have it")
        check_equal(one.call("cuMemGetHandleForAddressRange", f"w{slot('fd', 3)}", f"h{slot('va', 1)}", far, 1, 0), INVALID_VALUE, "no card gets it")
        check_equal((one.unmap(1, 0, far), one.release(2), on_host()), (0, 0, 0), "and goes")
    check_equal((one.create(2, PIECE, able), on_host()), (0, 0), "what the card has room for is made there")
    one.must("cuMemGetAllocationPropertiesFromHandle", "o32", f"h{slot('physical', 2)}")
    check_equal((one.words[1], one.release(2)), (able.hex(), 0), "for them")


def check_oversubscribed():
    """cuMemCreate likewise, where the host's memory does: not compressed or for tiles."""
    region = new_region()
    machine = new_machine(gpus=2)
    one = Mapper(limited_environment(machine, memory=6 * GIB, region=region, CUDA_OVERSUBSCRIBE="true")).begin()
    near, far = 3 * GIB + 800 * MIB, GIB + 512 * MIB
    on_host, on_account = lambda: told(region, "on_host_bytes"), lambda: (machine.used(one.pid), one.charged())
    check_equal((one.create(1, near), on_host()), (0, 0), "what the card has room for is made there")
    for title, prop in [("compressed", allocation_prop(compressed=1)), ("for tiles", allocation_prop(usage=1))]:
        check_equal((one.create(2, far, prop), one.words[1]), (OUT_OF_MEMORY, "kept"), f"{title} it must fit on the card")
    check_equal((on_host(), on_account()), (0, (near + CONTEXT,) * 2), "and nothing is charged for it")
    check_equal(one.create(2, far), 0, "other memory that it has no room for is made, too")
    check_equal((on_host(), on_account()), (far, (near + CONTEXT, near + far + CONTEXT)), "charged, on the host, and that is told")
    one.must("cuMemGetAllocationPropertiesFromHandle", "o32", f"h{slot('physical', 2)}")
    check_equal(one.words[1][16:32], "01" + "0" * 14, "the program hears of its device")
    one.reserve(1, far)
    check_equal((one.map(1, 0, far, 2), one.allow(1, 0, far)), (0, 0), "it is mapped, and the device may have it")
    check_equal(one.retain(3, 1), 0, "its handle is given again")
    check_equal((one.release(2), one.release(3), on_host()), (0, 0, far), "while it is mapped it stays")
    one.must("cuModuleLoadData", f"n{slot('module')}", b"hamisim-module 1\nsize=20971520\nkernel one\n\0")
    one.must("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"one\0")
    one.must("cuFuncLoad", f"h{slot('function')}")
    check_equal(one.charged(), near + far + CONTEXT + 20 * MIB, "code beside it is charged as ever")
    check_equal(one.create(4, 2 * GIB), OUT_OF_MEMORY, "beyond the limit is out of memory")
    check_equal((one.unmap(1, 0, far), on_host()), (0, 0), "unmapped, it is given back")
    check_equal(on_account(), (near + CONTEXT + 20 * MIB,) * 2, "and no more charged")
    check_equal((one.create(2, far), on_host(), one.release(2), on_host()), (0, far, 0, 0), "never mapped, by its release")
    check_for_network_cards(one, far, on_host)
    one.create(2, far)
    one.kill()
    wait_until(lambda: told(region, "processes") == [])
    check_equal((on_host(), machine.used()), (0, 0), "a kill leaves nothing")
    check_oversubscribed_sharing(machine)
    older = Machine(gpus=1, memory=4 * GIB, context=CONTEXT, driver={"host-memory": "nodes"})
    one = Mapper(limited_environment(older, memory=6 * GIB, CUDA_OVERSUBSCRIBE="true")).begin()
    check_equal(one.create(3, PIECE, allocation_prop(2)), INVALID_VALUE, "a driver may know nodes of the host alone")
    check_equal((one.create(1, near), one.create(2, far)), (0, 0), "then memory is made on one")
    check_equal(one.create(3, PIECE, allocation_prop(handles=POSIX_FD)), 0, "as what is to be shared always is")
    one.finish()
    one = Mapper(limited_environment(machine, memory=6 * GIB)).begin()
    check_equal((one.create(1, near), one.create(2, far)), (0, OUT_OF_MEMORY), "without the word a card has no more than it has")
    one.finish()


for test in (
    check_limit,
    check_references,
    check_device,
    check_torch,
    check_vllm,
    check_nccl,
    check_nvshmem,
    check_sharing,
    check_again,
    check_chain,
    check_few_descriptors,
    check_many_given,
    check_given_on,
    check_strangers,
    check_attributes,
    check_oversubscribed,
):
    test()
finish()

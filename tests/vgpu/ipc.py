#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that processes share by handles, as PyTorch's multiprocessing and NCCL do: charged to who allocated it, and to
who has it then, by the simulator's own count."""

import random
import signal
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

CONTEXT = 60 * MIB
LIMIT = 512 * MIB
SIZE = 100 * MIB
LAZY = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class Sharer(Caller):
    def alloc(self, number, size):
        return self.call("cuMemAlloc_v2", f"n{slot('ptr', number)}", size)

    def free(self, number):
        return self.call("cuMemFree_v2", f"h{slot('ptr', number)}")

    def give(self, number, at=0):
        """Its handle."""
        self.must("cuIpcGetMemHandle", "y1", f"h{slot('ptr', number)}+{at}")
        return self.blob(1)

    def open(self, number, handle, name="cuIpcOpenMemHandle_v2"):
        self.blob(2, handle)
        return self.call(name, f"n{slot('opened', number)}", "b2", LAZY)

    def close(self, number):
        return self.call("cuIpcCloseMemHandle", f"h{slot('opened', number)}")


def new_machine(gpus=1):
    return Machine(gpus=gpus, memory=4 * GIB, context=CONTEXT)


def new_pair(machine, **more):
    environment = limited_environment(machine, memory=LIMIT, region=new_region(), **more)
    return Sharer(environment).begin(), Sharer(environment).begin()


def settled(sentence, condition):
    """What NVML has to be asked for is known within a second."""
    until = time.monotonic() + 5
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    check(condition(), sentence)


def check_opening():
    machine = new_machine()
    maker, user = new_pair(machine)
    maker.alloc(1, SIZE)
    handle = maker.give(1)
    check_equal(maker.give(1, 5 * MIB), handle, "a handle is of a whole allocation")
    held = 2 * CONTEXT + SIZE
    check_equal((machine.used(), maker.charged()), (held, held), "giving it out takes nothing")
    check_equal(user.open(1, handle), 0, "another process of the container opens it")
    check_equal(user.open(2, handle, "cuIpcOpenMemHandle"), 0, "and again")
    check_equal(user.words[1], f"s{slot('opened', 1)}", "by any version of the call, at the same address")
    user.must("cuMemGetAddressRange_v2", "o8", "o8", f"h{slot('opened', 2)}+100")
    check_equal(int.from_bytes(bytes.fromhex(user.words[2]), "little"), SIZE, "and of the same size")
    check_equal((machine.used(), user.charged()), (held, held), "and that takes no new memory")
    check_equal(user.call("cuIpcOpenMemHandle_v2", 0, "b2", LAZY), INVALID_VALUE, "not into nothing")
    check_equal(maker.open(1, handle), 201, "its maker can't open it")
    check_equal(user.call("cuMemFree_v2", f"h{slot('opened', 2)}"), INVALID_VALUE, "who opened it can't free it")
    check_equal(user.alloc(1, LIMIT - held), 0, "the rest of the limit can be had")
    check_equal(user.alloc(2, 512), OUT_OF_MEMORY, "to the last byte")
    user.free(1)
    codes = [user.close(2) for _ in range(3)]
    check_equal(codes, [0, 0, INVALID_VALUE], "it is closed as often as it was opened")
    check_equal((machine.used(), user.charged()), (held, held), "which gives nothing back")
    maker.free(1)
    check_equal(machine.used(), 2 * CONTEXT, "freed, nothing is left of it")
    settled("nor charged", lambda: maker.charged() == 2 * CONTEXT)
    check_equal((maker.finish(), user.finish()), ("", ""), "nobody said a word")


def check_death():
    """Whose memory it is when its maker dies."""
    machine = new_machine()
    maker, user = new_pair(machine)
    maker.alloc(1, SIZE)
    user.open(1, maker.give(1))
    maker.kill()
    check_equal(machine.used(), CONTEXT + SIZE, "opened memory outlives its maker")
    settled("and is charged to who has it", lambda: user.charged() == CONTEXT + SIZE)
    check_equal(user.alloc(1, LIMIT - CONTEXT - SIZE + 512), OUT_OF_MEMORY, "so that the limit holds")
    check_equal(user.alloc(1, LIMIT - CONTEXT - SIZE), 0, "to the last byte")
    user.free(1)
    user.close(1)
    check_equal(machine.used(), CONTEXT, "closed it is gone")
    settled("which is seen", lambda: user.charged() == CONTEXT)
    user.kill()
    check_equal(machine.used(), 0, "nothing is left")


def check_free_first():
    """Or one could have it again and again."""
    machine = new_machine()
    maker, user = new_pair(machine)
    for turn in range(3):
        maker.alloc(1, SIZE)
        user.open(1 + turn, maker.give(1))
        check_equal(maker.free(1), 0, "its maker may free it first")
    held = 2 * CONTEXT + 3 * SIZE
    check_equal(machine.used(), held, "what others opened lives on")
    check_equal(maker.alloc(2, LIMIT - held + 512), OUT_OF_MEMORY, "and is charged at any moment")
    settled("also to who has it", lambda: user.charged() >= held)
    for turn in range(3):
        user.close(1 + turn)
    settled("and given back by all when it has gone", lambda: (user.charged(), maker.charged()) == (2 * CONTEXT,) * 2)
    check_equal(maker.alloc(1, LIMIT - 2 * CONTEXT), 0, "so that all can be had")
    maker.finish()
    user.finish()


def check_idle_maker():
    """One that handed over what it had, and does nothing more, is in nobody's way."""
    machine = new_machine()
    maker, user = new_pair(machine)
    maker.alloc(1, SIZE)
    user.open(1, maker.give(1))
    maker.free(1)
    user.close(1)
    check_equal(machine.used(), 2 * CONTEXT, "what was handed over is closed, and gone")
    settled("which its maker sees without a call", lambda: user.charged() == 2 * CONTEXT)
    check_equal(user.alloc(1, LIMIT - 2 * CONTEXT), 0, "so that all can be had")
    maker.finish()
    user.finish()


def check_chain():
    """Makers that die one after another, whose memory lives on in others' hands: the limit holds at any moment."""
    for state in ("ready", "stopped"):
        machine = new_machine()
        environment = limited_environment(machine, memory=LIMIT, region=new_region())
        user, codes, most = Sharer(environment).begin(), [], 0
        for turn in range(4):
            maker = Sharer(environment).begin()
            codes.append(maker.alloc(1, 3 * SIZE))
            if codes[-1] == 0:
                user.open(turn, maker.give(1))
            if state == "stopped":
                user.process.send_signal(signal.SIGSTOP)
            maker.kill()
            most = max(most, machine.used())
            if state == "stopped":
                maker = Sharer(environment).begin()
                codes.append(maker.alloc(1, 3 * SIZE))
                maker.kill()
                user.process.send_signal(signal.SIGCONT)
        check_equal((codes[0], set(codes[1:])), (0, {OUT_OF_MEMORY}), f"what its dead maker leaves to a process that is {state} is charged without a gap")
        check(most <= LIMIT, "the limit holds", most)
        settled("soon to who has it, once", lambda: user.charged() == machine.used() == CONTEXT + 3 * SIZE)
        user.close(0)
        settled("until it goes", lambda: user.charged() == machine.used() == CONTEXT)
        check_equal(user.finish(), "", "nobody said a word")


def check_handed_over():
    """What its maker freed, and another one has, is charged once."""
    machine = new_machine()
    maker, user = new_pair(machine)
    maker.alloc(1, 3 * SIZE)
    user.open(1, maker.give(1))
    maker.free(1)
    check(maker.charged() >= machine.used(), "memory that is handed over is charged at any moment")
    held = 2 * CONTEXT + 3 * SIZE
    settled("and soon once", lambda: maker.charged() == machine.used() == held)
    check_equal(maker.alloc(1, LIMIT - held), 0, "so that the rest can be had")
    maker.finish()
    user.kill()
    check_equal(machine.used(), 0, "nothing is left")


def check_handed_on():
    """What a second process takes over, and a third one has as well: as one that lets go of it ends, or is killed."""
    for way in ("close", "kill", "reset"):
        machine = new_machine()
        environment = limited_environment(machine, memory=LIMIT, region=new_region())
        maker, one, two = (Sharer(environment).begin() for _ in range(3))
        maker.alloc(1, 2 * SIZE)
        handle = maker.give(1)
        one.open(1, handle)
        two.open(1, handle)
        maker.kill()
        held = 2 * CONTEXT + 2 * SIZE
        settled(f"{way}: memory of a dead process is charged to one of two that have it", lambda: one.charged() == machine.used() == held)
        first = one if machine.used(one.pid) > CONTEXT else two
        second = two if first is one else one
        second.process.send_signal(signal.SIGSTOP)
        if way == "close":
            first.close(1)
        elif way == "kill":
            first.kill()
        else:
            first.must("cuDevicePrimaryCtxReset_v2", 0)
        third = Sharer(environment).begin() if way == "kill" else first
        if way == "reset":
            first.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
            first.must("cuCtxSetCurrent", f"h{slot('context')}")
        time.sleep(1.5)
        check(third.charged() >= machine.used(), f"{way}: it stays charged where the other one is stopped", third.charged(), machine.used())
        second.process.send_signal(signal.SIGCONT)
        settled(f"{way}: until that one is charged", lambda: third.charged() == machine.used() == held)
        second.close(1)
        settled("and it is closed", lambda: third.charged() == machine.used() == 2 * CONTEXT)
        third.finish()
        second.finish()


def check_contexts():
    """What goes with the context that it was allocated or opened in."""
    machine = new_machine()
    maker, user = new_pair(machine)
    maker.alloc(1, SIZE)
    handle = maker.give(1)
    user.must("cuCtxCreate_v2", f"n{slot('context', 3)}", 0, 0)
    user.open(1, handle)
    user.must("cuCtxDestroy_v2", f"h{slot('context', 3)}")
    check_equal(user.call("cuIpcCloseMemHandle", f"h{slot('opened')}"), INVALID_VALUE, "what was opened goes with its context")
    maker.must("cuDevicePrimaryCtxReset_v2", 0)
    check_equal(machine.used(), CONTEXT, "and what was given out, with its own")
    user.must("cuCtxSetCurrent", f"h{slot('context', 1)}")
    settled("and nothing stays charged", lambda: user.charged() == CONTEXT)

    # A context that ends while others have its memory.
    maker.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
    maker.must("cuCtxSetCurrent", f"h{slot('context')}")
    maker.alloc(1, SIZE)
    user.open(1, maker.give(1))
    maker.must("cuDevicePrimaryCtxReset_v2", 0)
    check_equal(machine.used(), CONTEXT + SIZE, "memory outlives its context where others have it")
    settled("and is charged", lambda: user.charged() >= CONTEXT + SIZE)
    check_equal(user.alloc(1, LIMIT - CONTEXT - SIZE + 512), OUT_OF_MEMORY, "so that the limit holds")
    user.close(1)
    maker.finish()
    settled("until it goes", lambda: user.charged() == CONTEXT)
    user.finish()


def check_strangers():
    """From another container: refused, unless the limits say that it shall pass."""
    machine = new_machine()
    maker, friend = new_pair(machine)
    maker.alloc(1, SIZE)
    handle = maker.give(1)
    stranger = Sharer(limited_environment(machine, memory=LIMIT)).begin()
    check_equal((stranger.open(1, handle), stranger.words[1]), (NOT_SUPPORTED, "kept"), "another container's memory is refused")
    check_equal(stranger.finish().count("cuIpcOpenMemHandle is refused"), 1, "and one line says so")
    stranger = Sharer(limited_environment(machine, memory=LIMIT, HAMI_UNACCOUNTED="allow")).begin()
    check_equal(stranger.open(1, handle), 0, "unless the limits let it pass")
    stranger.finish()
    check_equal(friend.open(1, handle), 0, "which the container's own processes may")
    maker.free(1)
    friend.close(1)
    maker.alloc(1, SIZE)
    check_equal(friend.open(1, handle), INVALID_VALUE, "a handle of memory that is gone is none")
    bare = Sharer(bare_environment(machine)).begin()
    bare.alloc(1, SIZE)
    check_equal(maker.open(1, bare.give(1)), NOT_SUPPORTED, "what a program without limits made is refused")
    check_equal(bare.open(1, maker.give(1)), 0, "which itself may open what it likes")
    bare.finish()
    maker.finish()
    friend.finish()


def check_many():
    """A worker that is given tensors all day, as PyTorch's data loaders are: nothing of it adds up."""
    machine = new_machine()
    maker, user = new_pair(machine)
    for turn in range(300):
        maker.alloc(1, 8 * MIB)
        codes = user.open(1, maker.give(1)), user.close(1), maker.free(1)
        if codes != (0, 0, 0):
            check(False, "tensors are given out all day", codes)
            break
    check_equal(machine.used(), 2 * CONTEXT, "nothing is left of tensors that were given out")
    settled("nor charged", lambda: maker.charged() == 2 * CONTEXT)
    check_equal(maker.alloc(1, LIMIT - 2 * CONTEXT), 0, "all can be had at the end")
    maker.finish()
    user.finish()


def check_events():
    """They take no memory: as without limits."""
    machine = new_machine()
    maker, user = new_pair(machine)
    maker.must("cuEventCreate", f"n{slot('event')}", 6)
    maker.must("cuIpcGetEventHandle", "y1", f"h{slot('event')}")
    user.blob(1, maker.blob(1))
    user.must("cuIpcOpenEventHandle", f"n{slot('event')}", "b1")
    maker.must("cuEventRecord", f"h{slot('event')}", 0)
    check_equal(user.call("cuEventSynchronize", f"h{slot('event')}"), 0, "a process waits for another one's event")
    user.must("cuEventDestroy_v2", f"h{slot('event')}")
    check_equal((maker.finish(), user.finish()), ("", ""), "nobody said a word")


def check_dma_bufs():
    """A descriptor by which a network card reaches memory keeps it, and NVML counts it for nobody."""
    for mapped in (False, True):
        machine = new_machine()
        one = Sharer(limited_environment(machine, memory=LIMIT)).begin()
        if mapped:
            one.must("cuMemAddressReserve", f"n{slot('ptr', 1)}", 4 * SIZE, 0, 0, 0)
            one.must("cuMemCreate", f"n{slot('physical')}", 4 * SIZE, allocation_prop(), 0)
            one.must("cuMemMap", f"h{slot('ptr', 1)}", 4 * SIZE, 0, f"h{slot('physical')}", 0)
            one.must("cuMemRelease", f"h{slot('physical')}")
        else:
            one.alloc(1, 4 * SIZE)
        kind = "memory that is mapped" if mapped else "linear memory"
        at = one.value(slot("ptr", 1))
        check_equal(one.call("cuMemGetHandleForAddressRange", f"w{slot('fd')}", at + 4096, SIZE, 1, 0), 0, f"{kind}: a part of it is given out")
        check_equal(one.call("cuMemUnmap", at, 4 * SIZE) if mapped else one.free(1), 0, "and all of it given back")
        check_equal((machine.used(), machine.used(one.pid)), (CONTEXT + 4 * SIZE, CONTEXT), "the descriptor keeps it, in nobody's name")
        check_equal(one.alloc(2, SIZE), OUT_OF_MEMORY, "so it stays charged")
        time.sleep(1.5)
        check_equal((one.alloc(2, SIZE), one.alloc(2, 50 * MIB)), (OUT_OF_MEMORY, 0), "also later, and there is what else the limit leaves")
        check_equal(one.call("cuMemGetHandleForAddressRange", f"w{slot('fd', 2)}", at, 4096, 1, 0), INVALID_VALUE, "of what is not there nothing is given out")
        one.tell(f"close {slot('fd')}")
        check_equal((one.free(2), one.alloc(2, 4 * SIZE)), (0, 0), "when it is closed all can be had")
        one.kill()
        check_equal(machine.used(), 0, "nothing is left")
    one = Sharer(limited_environment(new_machine(), memory=LIMIT)).begin()
    one.alloc(1, MIB)
    one.alloc(2, MIB)
    check_equal(one.charged(), CONTEXT + 2 * MIB, "two small pieces share a page")
    check_equal((one.call("cuMemGetHandleForAddressRange", f"w{slot('fd')}", f"h{slot('ptr', 1)}", MIB, 1, 0), one.charged()), (0, CONTEXT + 4 * MIB), "until one is given out")
    one.finish()


def check_few_descriptors():
    """Nothing is given out whose end nobody could see for lack of descriptors, and nothing stays charged of it."""
    for mapped in (False, True):
        machine = new_machine()
        one = Sharer(limited_environment(machine, memory=LIMIT)).begin()
        if mapped:
            one.must("cuMemAddressReserve", f"n{slot('ptr', 1)}", 2 * MIB, 0, 0, 0)
            one.must("cuMemCreate", f"n{slot('physical')}", 2 * MIB, allocation_prop(), 0)
            one.must("cuMemMap", f"h{slot('ptr', 1)}", 2 * MIB, 0, f"h{slot('physical')}", 0)
            one.must("cuMemRelease", f"h{slot('physical')}")
        else:
            one.alloc(1, MIB)
            one.alloc(2, MIB)
        kind = "memory that is mapped" if mapped else "a small piece"
        give = lambda: one.call("cuMemGetHandleForAddressRange", f"w{slot('fd')}", f"h{slot('ptr', 1)}", MIB, 1, 0)
        charged = one.charged()
        one.leave_descriptors(3)  # two are the simulator's
        check_equal((give(), one.words[1]), (OPERATING_SYSTEM, "kept"), f"{kind}: not given out without descriptors")
        one.leave_descriptors(None)
        check_equal(one.charged(), charged, "nor charged for that")
        check_equal(give(), 0, "later it is")
        one.tell(f"close {slot('fd')}")
        if mapped:
            one.must("cuMemUnmap", f"h{slot('ptr', 1)}", 2 * MIB)
        else:
            check_equal((one.free(1), one.free(2)), (0, 0), "and all is freed")
        check_equal(machine.used(), CONTEXT, "no descriptor was left open that keeps it")
        check_equal(one.alloc(3, LIMIT - CONTEXT), 0, "then all can be had")
        one.finish()


def check_free():
    """The library without a limit opens what anybody gives."""
    machine = new_machine()
    maker, user = (Sharer(bare_environment(machine, LD_PRELOAD=library)).begin() for library in ("", LIBVGPU))
    maker.alloc(1, SIZE)
    check_equal((user.open(1, maker.give(1)), user.close(1)), (0, 0), "without a limit another program's memory is opened, and closed")
    check_equal((maker.finish(), user.finish()), ("", ""), "nobody said a word")


def one_order(chance, machine, region):
    """What three processes do to one another's memory, in an order drawn by lot; then two of them are killed."""
    environment = limited_environment(machine, memory=LIMIT, region=region)
    all_of_them = [Sharer(environment).begin() for _ in range(3)]
    handles, log = [], []
    for step in range(chance.randrange(20, 90)):
        one, number = chance.choice(all_of_them), chance.randrange(1, 6)
        what = chance.choice(["alloc", "alloc", "alloc", "give", "open", "open", "open", "close", "free", "reset"])
        if what == "alloc" and not one.value(slot("ptr", number)):
            one.alloc(number, chance.randrange(1, 160) * MIB)
        elif what == "give" and one.value(slot("ptr", number)):
            handles.append(one.give(number))
        elif what == "open" and handles:
            one.open(number, chance.choice(handles))
        elif what == "close":
            one.close(number)
        elif what == "free" and one.value(slot("ptr", number)):
            one.free(number)
            one.tell(f"clear {slot('ptr', number)}")
        elif what == "reset" and chance.random() < 0.2:
            one.must("cuDevicePrimaryCtxReset_v2", 0)
            for i in range(1, 6):
                one.tell(f"clear {slot('ptr', i)}")
            if one.call("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0) != 0:
                all_of_them.remove(one)  # another one has its room
                one.kill()
            else:
                one.must("cuCtxSetCurrent", f"h{slot('context')}")
        log.append((what, number, one.pid % 1000, one.__dict__.get("words"), machine.used()))
        if machine.used() > LIMIT:
            return f"step {step}, {what}: {machine.used()} bytes are in use {log}"
        if len(all_of_them) == 1:
            break
    chance.shuffle(all_of_them)
    last = all_of_them.pop()
    for one in all_of_them:
        one.kill()
    used = machine.used()
    until = time.monotonic() + 5
    while last.charged() != used and time.monotonic() < until:
        time.sleep(0.05)
    charged = last.charged()
    last.must("cuDevicePrimaryCtxReset_v2", 0)
    left = machine.used()
    last.finish()
    return None if (charged, left) == (used, 0) else f"{charged} are charged of {used}, and {left} left"


def check_orders():
    machine, region = new_machine(), new_region()
    chance = random.Random(7)
    wrong = [(i, said) for i in range(25) if (said := one_order(chance, machine, region))]
    check_equal(wrong, [], "in every order the limit holds, and what the living have is what is charged")


for test in (
    check_orders,
    check_opening,
    check_death,
    check_free_first,
    check_idle_maker,
    check_chain,
    check_handed_over,
    check_handed_on,
    check_contexts,
    check_strangers,
    check_many,
    check_events,
    check_dma_bufs,
    check_few_descriptors,
    check_free,
):
    test()
finish()

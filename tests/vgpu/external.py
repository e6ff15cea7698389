#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of other interfaces: refused unless the limits say otherwise, and then whoever has it is charged once it is
its own. What takes the part of Vulkan's descriptors is what the simulator's cuMemCreate gives out."""

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


def settled(sentence, condition):
    """What NVML has to be asked for is known within a second."""
    until = time.monotonic() + 5
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    check(condition(), sentence)


class Importer(Caller):
    def borrow(self, maker):
        self.ask(f"borrow {slot('fd')} {maker.pid} {maker.value(slot('fd'))}")

    def take_in(self, size=SIZE):
        desc = struct.pack("<i4xi12xQI64x4x", OPAQUE_FD, self.value(slot("fd")), size, 0)
        return self.call("cuImportExternalMemory", f"n{slot('external')}", desc)

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


for test in (check_refused, check_allowed, check_policy):
    test()
finish()

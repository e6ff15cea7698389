#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Multicast, as NCCL's NVLS uses it: an object takes no memory, and what is bound to it stays charged."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

PIECE = 2 * MIB
CONTEXT = 60 * MIB
LIMIT = 512 * MIB


def team(devices, size):
    """CUmulticastObjectProp."""
    return struct.pack("<IxxxxQQQ", devices, size, POSIX_FD, 0)


def agree(title, machine, one, wanted):
    check_equal((machine.used(one.pid), one.charged()), (wanted, wanted), title)


def settled(sentence, condition):
    """What NVML has to be asked for is known within a second."""
    until = time.monotonic() + 5
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    check(condition(), sentence)


def bind(one, object_, memory, rank, later):
    """By its mapping on the second device, by its handle on the first; later versions name the device."""
    name, what = ("cuMulticastBindAddr", [f"h{slot('va', 1)}"]) if rank else ("cuMulticastBindMem", [f"h{memory}", 0])
    device = [rank] if later else []
    one.must(name + ("_v2" if later else ""), f"h{object_}", *device, 0, *what, 8 * PIECE, 0)


def check_nvls(later):
    machine = Machine(gpus=2, memory=4 * GIB, context=CONTEXT, driver={"multicast": "yes"})
    region = new_region()
    environment = limited_environment(machine, memory=LIMIT, region=region)
    first, second = Caller(environment).begin(), Caller(environment).begin(1)
    object_, memory = slot("physical", 1), slot("physical", 2)
    first.must("cuDeviceGetAttribute", "o4", 132, 0)
    check_equal(first.words[1], "01000000", "a device says that it has multicast")
    first.must("cuMulticastGetGranularity", "o8", team(2, 8 * PIECE), 1)
    first.must("cuMulticastCreate", f"n{object_}", team(2, 8 * PIECE))
    first.must("cuMemExportToShareableHandle", f"w{slot('fd')}", f"h{object_}", POSIX_FD, 0)
    second.ask(f"borrow {slot('fd')} {first.pid} {first.value(slot('fd'))}")
    second.must("cuMemImportFromShareableHandle", f"n{object_}", f"h{slot('fd')}", POSIX_FD)
    for rank, one in enumerate((first, second)):
        one.tell(f"close {slot('fd')}")
        one.must("cuMulticastAddDevice", f"h{object_}", rank)
    check_equal(machine.used(first.pid), CONTEXT, "an object takes no memory")
    for rank, one in enumerate((first, second)):
        one.must("cuMemCreate", f"n{memory}", 8 * PIECE, allocation_prop(number=rank), 0)
        one.must("cuMemAddressReserve", f"n{slot('va', 1)}", 8 * PIECE, 0, 0, 0)
        one.must("cuMemMap", f"h{slot('va', 1)}", 8 * PIECE, 0, f"h{memory}", 0)
        bind(one, object_, memory, rank, later)
        one.must("cuMemAddressReserve", f"n{slot('va', 2)}", 8 * PIECE, 0, 0, 0)
        one.must("cuMemMap", f"h{slot('va', 2)}", 8 * PIECE, 0, f"h{object_}", 0)
        one.must("cuMemSetAccess", f"h{slot('va', 2)}", 8 * PIECE, access_desc(number=rank), 1)
    agree("what is bound is charged once", machine, first, CONTEXT + 8 * PIECE)

    # Its maker lets go, and the object holds it.
    first.must("cuMemUnmap", f"h{slot('va', 1)}", 8 * PIECE)
    first.must("cuMemRelease", f"h{memory}")
    agree("and stays charged while it is bound", machine, first, CONTEXT + 8 * PIECE)
    code = first.call("cuMemAlloc_v2", f"n{slot('ptr')}", LIMIT - CONTEXT - 8 * PIECE + 512)
    check_equal(code, OUT_OF_MEMORY, "so that the limit holds")
    first.must("cuMulticastUnbind", f"h{object_}", 0, 0, 8 * PIECE)
    check_equal(machine.used(first.pid), CONTEXT, "unbound it is gone")
    check_equal(first.call("cuMemAlloc_v2", f"n{slot('ptr')}", LIMIT - CONTEXT), 0, "and all can be had")
    for one in (first, second):
        one.must("cuMemUnmap", f"h{slot('va', 2)}", 8 * PIECE)
        one.must("cuMemRelease", f"h{object_}")
    check_equal((first.finish(), second.finish()), ("", ""), "nobody said a word")
    check_equal([machine.used(gpu=i) for i in (0, 1)], [0, 0], "nothing is left")


check_nvls(later=False)
check_nvls(later=True)
finish()

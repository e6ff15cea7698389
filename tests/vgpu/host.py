#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The host's memory that the driver keeps in place: no limit is its affair, and the region counts it."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

LIMIT = 512 * MIB
PINNED = 2011136 + 10752 + 24  # of the region's first process, in our extension


class Pinner(Caller):
    def host(self, name, number, size, *more):
        return self.call(name, f"n{slot('host', number)}", size, *more)


def pinned(region):
    with open(region, "rb") as file:
        file.seek(PINNED)
        return int.from_bytes(file.read(8), "little")


def check_counting():
    machine, region = Machine(gpus=1, memory=4 * GIB), new_region()
    one = Pinner(limited_environment(machine, memory=LIMIT, region=region)).begin()
    before = one.info()
    check_equal(one.host("cuMemHostAlloc", 1, 1 * GIB, 0), 0, "more than the limit may be pinned")
    check_equal(one.host("cuMemAllocHost_v2", 2, 1 * MIB), 0, "in any way")
    check_equal(one.host("cuMemAllocHost", 3, 4096), 0, "old or new")
    check_equal(one.call("cuMemHostRegister_v2", bytes(512), 512, 0), 0, "or be registered")
    check_equal(pinned(region), 1 * GIB + 1 * MIB + 4096 + 512, "the region counts it")
    check_equal(one.info(), before, "the device's memory is not touched by it")
    check_equal(one.call("cuMemFreeHost", f"h{slot('host', 1)}"), 0, "it is freed")
    check_equal(pinned(region), 1 * MIB + 4096 + 512, "and counted no more")
    check_equal(one.host("cuMemHostAlloc", 1, 0, 0), 0, "none of it is had")
    check_equal(pinned(region), 1 * MIB + 4096 + 512, "and not counted")
    check_equal(one.call("cuMemHostUnregister", f"h{slot('host', 2)}"), 713, "and an error changes nothing")
    check_equal(pinned(region), 1 * MIB + 4096 + 512, "of the count")
    one.must("cuDevicePrimaryCtxReset_v2", 0)
    check_equal(pinned(region), 0, "it goes with its context")
    check_equal(one.finish(), "", "nobody said a word")


check_counting()
finish()

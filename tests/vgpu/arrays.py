#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arrays: charged what they take, by the simulator's own count, as OpenCV's and CuPy's textures and renderers make them."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from anything_calls import array_bytes, array_forms
from caller import *
from harness import *

CONTEXT = 60 * MIB
LIMIT = 512 * MIB
FLOAT, UINT8 = 32, 1
LAYERED, CUBEMAP, SPARSE, DEFERRED = 1, 4, 0x40, 0x80
MAP, UNMAP, TILE_POOL = 1, 2, 1


class Painter(Caller):
    def make(self, number, shape, form=3):
        name = ("cuArrayCreate", "cuArrayCreate_v2", "cuArray3DCreate", "cuArray3DCreate_v2")[form]
        return self.call(name, f"n{slot('array', number)}", array_forms(shape)[form])

    def make_mipmap(self, number, shape, levels):
        return self.call("cuMipmappedArrayCreate", f"n{slot('mipmap', number)}", array_forms(shape)[3], levels)

    def destroy(self, number):
        return self.call("cuArrayDestroy", f"h{slot('array', number)}")

    def alloc(self, number, size):
        return self.call("cuMemAlloc_v2", f"n{slot('ptr', number)}", size)

    def map_tile(self, array, memory, *operations):
        where = struct.pack("<8I", 0, 0, 0, 0, 0, 128, 128, 1)
        head = struct.pack("<iiQii", 0, 0, self.value(slot("array", array)), 0, 0)[:20] + bytes(4)
        info = [head + where + struct.pack("<iiQQII8x", one, 0, self.value(slot("physical", memory)), 0, 1, 0) for one in operations or (MAP,)]
        return self.call("cuMemMapArrayAsync", b"".join(info), len(info), 0)


def new_machine(**more):
    return Machine(gpus=1, memory=4 * GIB, context=CONTEXT, **more)


def agree(title, machine, one, wanted):
    check_equal((machine.used(one.pid), one.charged()), (wanted, wanted), title)


SHAPES = [
    ("one of a line", (1000, 0, 0, FLOAT, 1, 0)),
    ("an image", (1920, 1080, 0, UINT8, 4, 0)),
    ("an image of odd width", (1025, 1024, 0, FLOAT, 1, 0)),
    ("a volume", (256, 256, 64, FLOAT, 1, 0)),
    ("layers", (256, 256, 10, FLOAT, 4, LAYERED)),
    ("a cube", (512, 512, 6, UINT8, 4, CUBEMAP)),
]


def taken_bytes(shape, levels=1):
    """In pages of 2 MiB, of which each of these fills some of its own."""
    return -(-array_bytes(shape, levels) // (2 * MIB)) * 2 * MIB


def check_sizes():
    machine = new_machine()
    one = Painter(limited_environment(machine, memory=LIMIT)).begin()
    for title, shape in SHAPES:
        check_equal(one.make(1, shape), 0, f"{title} is made")
        agree(f"{title} is charged what it takes", machine, one, CONTEXT + taken_bytes(shape))
        one.destroy(1)
        agree(f"{title} is gone", machine, one, CONTEXT)
    for form, name in enumerate(("cuArrayCreate", "cuArrayCreate_v2", "cuArray3DCreate", "cuArray3DCreate_v2")):
        check_equal(one.make(1 + form, SHAPES[1][1], form), 0, f"{name} makes an image")
    agree("each of them is charged", machine, one, CONTEXT + 4 * taken_bytes(SHAPES[1][1]))
    check_equal(one.make_mipmap(1, (2048, 2048, 0, UINT8, 4, 0), 12), 0, "a mipmapped array is made")
    held = CONTEXT + 4 * taken_bytes(SHAPES[1][1]) + taken_bytes((2048, 2048, 0, UINT8, 4, 0), 12)
    agree("and charged with all its levels", machine, one, held)
    one.must("cuMipmappedArrayGetLevel", f"n{slot('array', 10)}", f"h{slot('mipmap')}", 2)
    agree("of which none takes more", machine, one, held)
    one.must("cuDevicePrimaryCtxReset_v2", 0)
    one.must("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0)
    one.must("cuCtxSetCurrent", f"h{slot('context')}")
    agree("they go with their context", machine, one, CONTEXT)
    check_equal(one.finish(), "", "nobody said a word")


def check_limit():
    machine = new_machine()
    one = Painter(limited_environment(machine, memory=LIMIT)).begin()
    shape = (1024, 1024, 0, FLOAT, 1, 0)  # 4 MiB
    codes = [one.make(1 + i % 20, shape) for i in range((LIMIT - CONTEXT) // (4 * MIB))]
    check_equal(set(codes), {0}, "as many are made as the limit has room for")
    check_equal((one.make(30, shape), one.words[1]), (OUT_OF_MEMORY, "kept"), "one more is out of memory")
    check_equal(one.make(30, (1024, 1024, 0, 0x77, 1, 0)), INVALID_VALUE, "and a wrong format a wrong format")
    check_equal(one.make_mipmap(1, shape, 2), OUT_OF_MEMORY, "with levels, too")
    check_equal(one.alloc(1, 512), OUT_OF_MEMORY, "other memory counts to the same limit")
    one.destroy(3)
    check_equal(one.alloc(1, 4 * MIB), 0, "and has what an array gives back")
    agree("which is exactly the limit", machine, one, LIMIT)
    check_equal(one.destroy(3), 400, "a second end is an error")
    one.kill()
    check_equal(machine.used(), 0, "a kill leaves nothing")


def check_later():
    """What is mapped later, or in tiles, takes nothing of its own."""
    machine = new_machine()
    one = Painter(limited_environment(machine, memory=LIMIT)).begin()
    check_equal(one.make(1, (16384, 16384, 0, FLOAT, 1, SPARSE)), 0, "a sparse array may be larger than the limit")
    check_equal(one.make(2, (16384, 16384, 0, FLOAT, 1, DEFERRED)), 0, "one that is mapped later as well")
    agree("and takes nothing", machine, one, CONTEXT)
    prop = struct.pack("<iiiiQBBH4x", 1, 0, DEVICE, 0, 0, 0, 0, TILE_POOL)
    one.must("cuMemCreate", f"n{slot('physical')}", 2 * MIB, prop, 0)
    check_equal(one.map_tile(1, 1), 0, "memory is mapped into a tile")
    check_equal(one.map_tile(1, 1, *[UNMAP, MAP] * 10), 0, "and is unmapped and mapped again, many times in one call")
    one.must("cuMemRelease", f"h{slot('physical')}")
    agree("which holds it", machine, one, CONTEXT + 2 * MIB)
    check_equal(one.alloc(1, LIMIT - CONTEXT - 2 * MIB + 512), OUT_OF_MEMORY, "so that the limit holds")
    one.destroy(1)
    check_equal(machine.used(), CONTEXT, "with the array it is gone")
    check_equal(one.alloc(1, LIMIT - CONTEXT), 0, "and all can be had")
    check_equal(one.map_tile(2, 1), INVALID_VALUE, "what makes no sense the driver says")
    check_equal(one.finish(), "", "nobody said a word")


def check_untold():
    """A driver that knows no such twin: by the elements, and the rest as NVML shows it."""
    machine = new_machine(driver={"deferred-arrays": "no"})
    one = Painter(limited_environment(machine, memory=LIMIT)).begin()
    for title, shape in SHAPES:
        check_equal(one.make(1, shape), 0, f"untold, {title} is made")
        agree(f"untold, {title} is charged what it takes", machine, one, CONTEXT + taken_bytes(shape))
        one.destroy(1)
        agree(f"untold, {title} is gone", machine, one, CONTEXT)
    shape = (1000, 1024, 0, FLOAT, 1, 0)  # 4000 KiB, which take 4 MiB
    for i in range(1000):
        code = one.make(1 + i % 20, shape)
        if code:
            break
    check_equal(code, OUT_OF_MEMORY, "untold, the limit is the limit")
    used = machine.used(one.pid)
    check(LIMIT - 8 * MIB < used <= LIMIT, "untold, to one of them", used - LIMIT)
    check_equal(one.charged(), used, "untold, and what is in use is known")
    check_equal(one.make(30, (0, 1, 0, FLOAT, 1, 0)), INVALID_VALUE, "untold, what makes no sense the driver says")
    one.kill()
    check_equal(machine.used(), 0, "untold, nothing is left")

    # Thin ones take far more than their elements.
    one = Painter(limited_environment(machine, memory=LIMIT)).begin()
    check_equal(one.make(1, (1, 8192, 512, UINT8, 1, 0)), OUT_OF_MEMORY, "untold, one that takes 2 GiB for 4 MiB is refused")
    agree("untold, and nothing of it is left", machine, one, CONTEXT)
    codes = [one.make(number, (1, 65536, 0, UINT8, 1, 0)) for number in range(1, 32)]
    used = machine.used(one.pid)
    check(OUT_OF_MEMORY in codes and LIMIT - 34 * MIB < used <= LIMIT, "untold, so is each 64 KiB that takes 32 MiB beyond the limit", codes, used)
    agree("untold, of which what there is is charged", machine, one, used)
    one.kill()


for test in (check_untold, check_sizes, check_limit, check_later):
    test()
finish()

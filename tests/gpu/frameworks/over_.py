# SPDX-License-Identifier: Apache-2.0
"""More memory than the card has free: pieces are filled, read, and copied between those on the card and those on the host.

The words: `driver` (cuMemCreate, cuMemAllocAsync and cuMemAlloc, by the driver's own functions) or `torch`.
GPU_TEST_PIECES pieces of 256 MiB; none may be refused.
"""

import ctypes
import os
import sys

from steps import *

COUNT, SIZE = int(os.environ.get("GPU_TEST_PIECES", "36")), 256 << 20
SAMPLE = 4096


class Driver:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.must("cuInit", 0)
        context = ctypes.c_void_p()
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxSetCurrent", context)
        self.context = context
        self.stream = ctypes.c_void_p(self.whole("cuStreamCreate", ctypes.c_uint(1)))  # lists are not copied in the default one

    def must(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def whole(self, name, *arguments, kind=ctypes.c_uint64):
        """What a function puts into its first argument."""
        value = kind()
        self.must(name, ctypes.byref(value), *arguments)
        return value.value


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Prop(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location), ("metadata", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Attributes(ctypes.Structure):
    _fields_ = [("order", ctypes.c_int), ("source", Location), ("target", Location), ("flags", ctypes.c_uint)]


class Rows(ctypes.Structure):
    side = lambda name: [(f"{name}_x", ctypes.c_size_t), (f"{name}_y", ctypes.c_size_t), (f"{name}_type", ctypes.c_int), (f"{name}_host", ctypes.c_void_p), (f"{name}_device", ctypes.c_uint64), (f"{name}_array", ctypes.c_void_p), (f"{name}_pitch", ctypes.c_size_t)]
    _fields_ = side("source") + side("target") + [("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


def create(driver):
    """As PyTorch's expandable segments ask for it: for network cards, too."""
    prop = Prop(1, 0, Location(1, 0))
    prop.flags[1] = driver.whole("cuDeviceGetAttribute", 110, 0, kind=ctypes.c_int)  # gpuDirectRDMACapable where it is supported
    where = driver.whole("cuMemAddressReserve", ctypes.c_size_t(COUNT * SIZE), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_ulonglong(0))
    for i in range(COUNT):
        at = where + i * SIZE
        piece = driver.whole("cuMemCreate", ctypes.c_size_t(SIZE), ctypes.byref(prop), ctypes.c_ulonglong(0))
        driver.must("cuMemMap", ctypes.c_uint64(at), ctypes.c_size_t(SIZE), ctypes.c_size_t(0), ctypes.c_uint64(piece), ctypes.c_ulonglong(0))
        driver.must("cuMemRelease", ctypes.c_uint64(piece))
        driver.must("cuMemSetAccess", ctypes.c_uint64(at), ctypes.c_size_t(SIZE), ctypes.byref(Access(Location(1, 0), 3)), ctypes.c_size_t(1))
        yield at
    yield lambda: (driver.must("cuMemUnmap", ctypes.c_uint64(where), ctypes.c_size_t(COUNT * SIZE)), driver.must("cuMemAddressFree", ctypes.c_uint64(where), ctypes.c_size_t(COUNT * SIZE)))


def in_order(driver):
    pieces = []
    for _ in range(COUNT):
        pieces.append(driver.whole("cuMemAllocAsync", ctypes.c_size_t(SIZE), None))
        yield pieces[-1]
    yield lambda: [driver.must("cuMemFreeAsync", ctypes.c_uint64(piece), None) for piece in pieces]


def plainly(driver):
    """What the card has no room for is managed memory, of which no more may be asked than the card has free: only what fits."""
    pieces = []
    free = driver.whole("cuMemGetInfo_v2", ctypes.byref(ctypes.c_size_t()), kind=ctypes.c_size_t)
    for _ in range(min(COUNT, 4, free // SIZE)):
        pieces.append(driver.whole("cuMemAlloc_v2", ctypes.c_size_t(SIZE)))
        yield pieces[-1]
    yield lambda: [driver.must("cuMemFree_v2", ctypes.c_uint64(piece)) for piece in pieces]


def check_pieces(driver, make):
    """Each is told from the others by what it is filled with, which each way to copy has to keep (on a simulated card nothing is kept)."""
    *pieces, give_back = make(driver)
    address, size = ctypes.c_uint64, ctypes.c_size_t
    buffer = (ctypes.c_uint32 * (SAMPLE // 4))()

    def reads(at, number, how):
        ctypes.memset(buffer, 0, SAMPLE)
        driver.must("cuMemcpyDtoH_v2", buffer, address(at), size(SAMPLE))
        assert os.environ.get("HAMI_SIM") or set(buffer) == {number}, f"{how}: {set(buffer)} where {number} was wanted"

    one = lambda value: (ctypes.c_uint64 * 1)(value)
    refused = {}

    def tried(how, name, *arguments):
        """False where the driver refuses, which is said."""
        result = getattr(driver.library, name)(*arguments)
        if result:
            refused.setdefault((how, result), 0)
            refused[how, result] += 1
        return not result

    for i, piece in enumerate(pieces):
        driver.must("cuMemsetD32_v2", address(piece), ctypes.c_uint(1000 + i), size(SIZE // 4))
    for i, piece in enumerate(pieces):
        for at in (0, SIZE // 2, SIZE - SAMPLE):
            reads(piece + at, 1000 + i, f"piece {i}")
    # From each to one of the first ones, which are on the card, and back; the last ones are on the host.
    for i, piece in enumerate(pieces):
        other = pieces[(i + len(pieces) // 2) % len(pieces)]
        rows = Rows(source_type=2, source_device=piece, source_pitch=1024, target_type=2, target_device=other + 3 * SAMPLE, target_pitch=1024, width=1024, height=4)
        for number, (how, name, at, *arguments) in enumerate((
            ("within the device", "cuMemcpyDtoD_v2", 0, address(other), address(piece), size(SAMPLE)),
            ("in order", "cuMemcpyDtoDAsync_v2", SAMPLE, address(other + SAMPLE), address(piece), size(SAMPLE), None),
            ("of any", "cuMemcpy", 2 * SAMPLE, address(other + 2 * SAMPLE), address(piece), size(SAMPLE)),
            ("by rows", "cuMemcpy2D_v2", 3 * SAMPLE, ctypes.byref(rows)),
            ("by lists", "cuMemcpyBatchAsync_v2", 5 * SAMPLE, one(other + 5 * SAMPLE), one(piece), one(SAMPLE), size(1), ctypes.byref(Attributes(1)), one(0), size(1), driver.stream),
            ("to a peer", "cuMemcpyPeer", 4 * SAMPLE, address(other + 4 * SAMPLE), driver.context, address(piece), driver.context, size(SAMPLE)),
        )):
            driver.must("cuMemsetD32_v2", address(piece), ctypes.c_uint(77 + number), size(SAMPLE // 4))
            if tried(how, name, *arguments):
                driver.must("cuCtxSynchronize")
                reads(other + at, 77 + number, how)
        for word in range(SAMPLE // 4):
            buffer[word] = 5
        if tried("from the host", "cuMemcpyHtoD_v2", address(piece), buffer, size(SAMPLE)) and tried("from the host in order", "cuMemcpyHtoDAsync_v2", address(piece + SAMPLE), buffer, size(SAMPLE), None):
            driver.must("cuCtxSynchronize")
            reads(piece, 5, "from the host")
            reads(piece + SAMPLE, 5, "from the host in order")
    give_back()
    driver.must("cuCtxSynchronize")
    assert not refused, f"refused: {refused}"
    return f"{len(pieces)} pieces"


def of_the_driver():
    driver = Driver()
    for make in (create, in_order, plainly):
        check = lambda: check_pieces(driver, make)
        check.__name__ = make.__name__
        step(check)


def of_torch():
    import torch

    @step
    def tensors():
        pieces = [torch.full((SIZE // 4,), float(i), device="cuda") for i in range(COUNT)]
        for i, piece in enumerate(pieces):
            assert piece.mean(dtype=torch.float64).item() == i, i
            assert piece[-1000:].cpu().sum().item() == 1000 * i, i
        for i, piece in enumerate(pieces):
            other = pieces[(i + COUNT // 2) % COUNT]
            other[:1000].copy_(piece[-1000:])
            assert other[:1000].cpu().sum().item() == 1000 * i, i
            piece[:1000] = torch.ones(1000)
            assert piece[:1000].sum().item() == 1000, i
        return f"{COUNT} tensors, {os.environ.get('PYTORCH_ALLOC_CONF', '')}"


if __name__ == "__main__":
    of_torch() if sys.argv[1] == "torch" else of_the_driver()
    finish()

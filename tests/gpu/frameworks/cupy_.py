# SPDX-License-Identifier: Apache-2.0
"""CuPy: its pools, kernels compiled as they are needed, graphs."""

from steps import *

import cupy

limit = LIMIT


def fill(size):
    pieces = []
    try:
        while len(pieces) * size < (LIMIT or 1 << 30) + (1 << 30):
            pieces.append(cupy.cuda.alloc(size))
    except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
        return len(pieces) * size, str(error)
    return len(pieces) * size, ""


@step
def told():
    free, total = cupy.cuda.runtime.memGetInfo()
    assert not limit or total == limit, total
    return f"{mib(free)} of {mib(total)} free, CuPy {cupy.__version__}"


def each_pool(name, allocator, trim):
    def to_the_limit():
        cupy.cuda.set_allocator(allocator)
        before = cupy.cuda.runtime.memGetInfo()[0]
        held, refused = fill(256 << 20)
        cupy.cuda.runtime.deviceSynchronize()
        trim()
        cupy.cuda.runtime.deviceSynchronize()
        after = cupy.cuda.runtime.memGetInfo()[0]
        if limit:
            assert refused, "never refused"
            assert before - (320 << 20) < held <= before, (mib(held), mib(before))
            assert after > before - (64 << 20), (mib(before), mib(after))
        return mib(held)

    to_the_limit.__name__ = f"to_the_limit_{name}"
    step(to_the_limit)


pool = cupy.cuda.MemoryPool()
each_pool("default", pool.malloc, pool.free_all_blocks)
each_pool("plain", None, lambda: None)
stream_pool = cupy.cuda.MemoryAsyncPool()
each_pool("async", stream_pool.malloc, stream_pool.free_all_blocks)
cupy.cuda.set_allocator(pool.malloc)


@step
def managed():
    managed_pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    cupy.cuda.set_allocator(managed_pool.malloc)
    a = cupy.arange(1 << 24, dtype=cupy.float32)
    total = float(a.sum())
    cupy.cuda.set_allocator(pool.malloc)
    return f"sum {total:.4g}"


@step
def raw_kernel():
    kernel = cupy.RawKernel(
        r"""extern "C" __global__ void add(const float *a, const float *b, float *c) {
        int i = blockDim.x * blockIdx.x + threadIdx.x; c[i] = a[i] + b[i]; }""", "add")
    a = cupy.arange(1 << 20, dtype=cupy.float32)
    c = cupy.empty_like(a)
    kernel((4096,), (256,), (a, a, c))
    assert bool((c == 2 * a).all())


@step
def algorithms():
    a = cupy.random.rand(1 << 20)
    assert bool((cupy.diff(cupy.sort(a)) >= 0).all())
    cupy.fft.fft(a)
    cupy.linalg.svd(cupy.random.rand(64, 64))
    b = cupy.ElementwiseKernel("float64 x", "float64 y", "y = x * x", "square")(a)
    assert bool(cupy.allclose(b, a * a))


@step
def graph():
    stream = cupy.cuda.Stream(non_blocking=True)
    a = cupy.ones(1 << 16, dtype=cupy.float32)
    b = cupy.zeros_like(a)
    with stream:
        cupy.add(a, 1, out=b)
        stream.synchronize()
        stream.begin_capture()
        cupy.add(b, 1, out=b)
        captured = stream.end_capture()
        for _ in range(3):
            captured.launch(stream)
        stream.synchronize()
    assert float(b[0]) == 5, float(b[0])


finish()

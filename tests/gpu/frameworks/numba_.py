# SPDX-License-Identifier: Apache-2.0
"""Numba: kernels, streams, atomics, pinned and managed arrays."""

from steps import *

import numpy
from numba import cuda


@step
def told():
    free, total = cuda.current_context().get_memory_info()
    assert not LIMIT or total == LIMIT, total
    return f"{mib(free)} of {mib(total)} free"


@step
def kernel():
    @cuda.jit
    def double(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] *= 2

    a = cuda.to_device(numpy.arange(100000, dtype=numpy.float32))
    double[400, 256](a)
    assert (a.copy_to_host() == 2 * numpy.arange(100000, dtype=numpy.float32)).all()


@step
def atomics():
    @cuda.jit
    def count(a):
        cuda.atomic.add(a, 0, 1)

    a = cuda.to_device(numpy.zeros(1, dtype=numpy.int64))
    stream = cuda.stream()
    for _ in range(10):
        count[100, 128, stream](a)
    stream.synchronize()
    assert a.copy_to_host()[0] == 128000


@step
def arrays():
    cuda.pinned_array(1 << 20, dtype="uint8")
    managed = cuda.managed_array(1 << 20, dtype="uint8")
    managed[:] = 1
    cuda.mapped_array(1 << 20, dtype="uint8")
    events = [cuda.event() for _ in range(2)]
    for event in events:
        event.record()
    cuda.synchronize()
    return f"{cuda.event_elapsed_time(*events) * 1000:.1f} us between two events"


finish()

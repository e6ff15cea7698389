# SPDX-License-Identifier: Apache-2.0
"""A runtime of NVIDIA's of any version, by its exports: runtime_.py LIBRARY."""

import ctypes

from steps import *

runtime = ctypes.CDLL(sys.argv[1])
OUT_OF_MEMORY = 2
size_t, pointer = ctypes.c_size_t, ctypes.c_void_p


def must(name, *arguments):
    result = getattr(runtime, name)(*arguments)
    assert result == 0, f"{name} gives {result}"


def information():
    free, total = size_t(), size_t()
    must("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


@step
def told():
    version = ctypes.c_int()
    must("cudaRuntimeGetVersion", ctypes.byref(version))
    free, total = information()
    assert not LIMIT or total == LIMIT, total
    return f"runtime {version.value}: {mib(free)} of {mib(total)} free"


@step
def plain():
    memory, back = pointer(), ctypes.c_uint()
    must("cudaMalloc", ctypes.byref(memory), size_t(1 << 20))
    must("cudaMemset", memory, 0x11, size_t(1 << 20))
    must("cudaMemcpy", ctypes.byref(back), memory, size_t(4), 2)
    assert back.value == 0x11111111, hex(back.value)
    must("cudaFree", memory)


@step
def in_order():
    stream, memory = pointer(), pointer()
    must("cudaStreamCreate", ctypes.byref(stream))
    must("cudaMallocAsync", ctypes.byref(memory), size_t(64 << 20), stream)
    must("cudaMemsetAsync", memory, 1, size_t(64 << 20), stream)
    must("cudaFreeAsync", memory, stream)
    must("cudaStreamSynchronize", stream)
    must("cudaStreamDestroy", stream)


@step
def captured():
    stream, memory, graph, executable = pointer(), pointer(), pointer(), pointer()
    must("cudaStreamCreate", ctypes.byref(stream))
    must("cudaMalloc", ctypes.byref(memory), size_t(1 << 20))
    must("cudaStreamBeginCapture", stream, 0)
    must("cudaMemsetAsync", memory, 1, size_t(1 << 20), stream)
    must("cudaStreamEndCapture", stream, ctypes.byref(graph))
    must("cudaGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    must("cudaGraphLaunch", executable, stream)
    must("cudaStreamSynchronize", stream)
    must("cudaFree", memory)


@step
def managed():
    memory = pointer()
    must("cudaMallocManaged", ctypes.byref(memory), size_t(64 << 20), 1)
    must("cudaMemset", memory, 1, size_t(64 << 20))
    must("cudaDeviceSynchronize")
    must("cudaFree", memory)


@step
def too_much():
    memory = pointer()
    if LIMIT:
        assert runtime.cudaMalloc(ctypes.byref(memory), size_t(LIMIT)) == OUT_OF_MEMORY
        runtime.cudaGetLastError()


@step
def reset():
    memory = pointer()
    before = information()[0]
    must("cudaMalloc", ctypes.byref(memory), size_t(1 << 30))
    must("cudaDeviceReset")
    after = information()[0]
    assert not LIMIT or after + (512 << 20) > before, (before, after)


finish()

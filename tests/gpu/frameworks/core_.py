# SPDX-License-Identifier: Apache-2.0
"""cuda-core: memory resources, programs compiled by NVRTC, graphs, events."""

from steps import *

from cuda.core import Device, DeviceMemoryResource, LaunchConfig, ManagedMemoryResource, PinnedMemoryResource, Program, ProgramOptions, launch

device = Device(0)
device.set_current()
stream = device.create_stream()


@step
def memory():
    said = []
    for name, resource in (("device", DeviceMemoryResource(device)), ("default", device.memory_resource), ("pinned", PinnedMemoryResource()), ("managed", ManagedMemoryResource())):
        piece = resource.allocate(256 << 20, stream=stream)
        piece.close(stream)
        stream.sync()
        said.append(name)
    return ", ".join(said)


@step
def too_much():
    if not LIMIT:
        return "bare"
    try:
        device.allocate(LIMIT + (1 << 30), stream=stream)
    except Exception as error:
        assert "OUT_OF_MEMORY" in str(error), error
        return "refused as out of memory"
    raise AssertionError("granted")


@step
def program():
    source = 'extern "C" __global__ void fill(float *a, float v) { a[blockIdx.x * blockDim.x + threadIdx.x] = v; }'
    made = Program(source, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
    kernel = made.get_kernel("fill")
    piece = device.allocate(4 * 65536, stream=stream)
    from ctypes import c_float

    launch(stream, LaunchConfig(grid=256, block=256), kernel, piece, c_float(3.0))
    stream.sync()
    piece.close(stream)


@step
def graph():
    builder = device.create_graph_builder().begin_building()
    made = builder.end_building().complete()
    made.launch(stream)
    stream.sync()


finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real clients of the driver: cuda-python (cuda-bindings and cuda-core) and Numba's driver layer, on the simulated
machine, bare and under `hamictl run`. They resolve the driver's entry points as NVIDIA's own programs do, by
cuGetProcAddress."""

import json
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *
from packages import interpreter

PACKAGES = ["cuda-bindings==13.5.0", "cuda-core==1.2.2"]
# Of the runtime it asks the version alone.
NUMBA_PACKAGES = ["numba==0.68.0", "numba-cuda==0.30.4", "nvidia-cuda-runtime==13.5.37"]
LIMIT, CONTEXT = 2 * GIB, 300 * MIB

BINDINGS = """
import json
from cuda.bindings import driver as cu

def ok(answer):
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]

said = {}
ok(cu.cuInit(0))
device = ok(cu.cuDeviceGet(0))
ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(device))))
said["total"] = ok(cu.cuDeviceTotalMem(device))
said["begun"] = ok(cu.cuMemGetInfo())
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
stream = ok(cu.cuStreamCreate(0))
ways = {
    "alloc": (lambda size: cu.cuMemAlloc(size), lambda made: cu.cuMemFree(made)),
    "async": (lambda size: cu.cuMemAllocAsync(size, stream), lambda made: (ok(cu.cuStreamSynchronize(stream)), cu.cuMemFreeAsync(made, stream))[1]),
    "create": (lambda size: cu.cuMemCreate(size, prop, 0), lambda made: cu.cuMemRelease(made)),
}
for name, (make, end) in ways.items():
    made = ok(make(256 << 20))
    held = said["begun"][0] - ok(cu.cuMemGetInfo())[0]
    ok(end(made))
    ok(cu.cuStreamSynchronize(stream))
    pool = ok(cu.cuDeviceGetDefaultMemPool(device))
    ok(cu.cuMemPoolTrimTo(pool, 0))
    answer = make(4 << 30)
    said[name] = (held, answer[0].name)
    if answer[0] == cu.CUresult.CUDA_SUCCESS:
        ok(end(answer[1]))
        ok(cu.cuStreamSynchronize(stream))
        ok(cu.cuMemPoolTrimTo(pool, 0))
managed = ok(cu.cuMemAllocManaged(64 << 20, cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
ok(cu.cuMemFree(managed))
event = ok(cu.cuEventCreate(0))
ok(cu.cuEventRecord(event, stream))
ok(cu.cuEventSynchronize(event))
said["ended"] = ok(cu.cuMemGetInfo())
print(json.dumps(said))
"""

CORE = """
import json
from cuda.core import Device, DeviceMemoryResource, ManagedMemoryResource, PinnedMemoryResource

device = Device(0)
device.set_current()
stream = device.create_stream()
piece = device.allocate(64 << 20, stream=stream)
said = {"name": device.name, "size": piece.size}
piece.close(stream)
stream.sync()
try:
    device.allocate(4 << 30, stream=stream).close(stream)
    said["large"] = "granted"
except Exception as error:
    said["large"] = str(error).split(":")[0]
pool = DeviceMemoryResource(device)
pool.allocate(1 << 20, stream=stream).close(stream)
for name, resource in (("managed", ManagedMemoryResource()), ("pinned", PinnedMemoryResource())):
    for size in (64 << 20, 4 << 30):
        piece = resource.allocate(size, stream=stream)
        said.setdefault(name, []).append((piece.size, piece.is_managed, piece.is_device_accessible))
        piece.close(stream)
stream.sync()
print(json.dumps(said))
"""


NUMBA = """
import gc, json
from numba import cuda

context = cuda.current_context()

def memory():
    gc.collect()
    context.memory_manager.deallocations.clear()
    return list(context.get_memory_info())

def large():
    try:
        cuda.device_array(4 << 30, dtype="uint8")
        return "granted"
    except Exception as error:
        return "CUDA_ERROR_OUT_OF_MEMORY" if "CUDA_ERROR_OUT_OF_MEMORY" in str(error) else str(error)

said = {"begun": memory(), "devices": len(cuda.gpus), "name": str(context.device.name)}
array = cuda.device_array(64 << 20, dtype="uint8")
said["held"] = said["begun"][0] - memory()[0]
said["large"] = large()
managed = cuda.managed_array(1 << 20, dtype="uint8")
pinned = cuda.pinned_array(1 << 20, dtype="uint8")
stream, event = cuda.stream(), cuda.event()
event.record(stream)
event.synchronize()
stream.synchronize()
del array, managed, pinned
said["ended"] = memory()
print(json.dumps(said))
"""


def ask(python, script, environment, prefix, name, said=""):
    ended = run([*prefix, python, "-c", script], environment)
    check_equal((ended.returncode, len(ended.stderr.splitlines())), (0, bool(said)), f"{name} ends well")
    check(said in ended.stderr, f"and says no more than {said or 'nothing'}", ended.stderr)
    return json.loads(ended.stdout or "{}")


python = interpreter(BUILD / "bindings", PACKAGES, skip)
machine = Machine(memory=8 * GIB, context=CONTEXT, driver={"stream": "0"})
environment = bare_environment(machine)
limited = [HAMICTL, "run", "--gpumem", "2g", "--gpucores", "50", "--"]

said = ask(python, BINDINGS, environment, [], "cuda-bindings, bare,")
check_equal(said.get("total"), 8 * GIB, "it sees the whole card")
for way in ("alloc", "async", "create"):
    check_equal(said.get(way), [256 * MIB, "CUDA_SUCCESS"], f"{way}: 4 GiB of 8 are granted")

said = ask(python, BINDINGS, environment, limited, "cuda-bindings, limited,")
check_equal(said.get("total"), LIMIT, "it sees the limit")
check_equal(said.get("begun"), [LIMIT - CONTEXT, LIMIT], "of which the context has its part")
for way in ("alloc", "async", "create"):
    check_equal(said.get(way), [256 * MIB, "CUDA_ERROR_OUT_OF_MEMORY"], f"{way}: what it holds is told, and 4 GiB are too much")
check_equal(said.get("ended"), said.get("begun"), "and all is given back")

bare = ask(python, CORE, environment, [], "cuda-core, bare,")
said = ask(python, CORE, environment, limited, "cuda-core, limited,", "4096 MiB of managed memory exceed the limit and live on the host")
check_equal((bare.get("large"), said.get("large")), ("granted", "CUDA_ERROR_OUT_OF_MEMORY"), "4 GiB are granted bare, and refused")
check_equal(said.get("managed"), [[64 * MIB, True, True], [4 * GIB, True, True]], "managed memory beyond the limit is granted")
for word in ("name", "size", "managed", "pinned"):
    check_equal(said.get(word), bare.get(word), f"{word} is alike")
python = interpreter(BUILD / "numba", NUMBA_PACKAGES, skip)
bare = ask(python, NUMBA, environment, [], "Numba, bare,")
said = ask(python, NUMBA, environment, limited, "Numba, limited,")
check_equal((bare.get("begun", [0, 0])[1], said.get("begun")), (8 * GIB, [LIMIT - CONTEXT, LIMIT]), "it sees the whole card, and the limit")
check_equal((bare.get("large"), said.get("large")), ("granted", "CUDA_ERROR_OUT_OF_MEMORY"), "4 GiB are granted bare, and refused")
check_equal((said.get("held"), said.get("devices"), said.get("name")), (64 * MIB, 1, bare.get("name")), "what it holds is told, and all else is alike")
check_equal((bare.get("ended"), said.get("ended")), (bare.get("begun"), said.get("begun")), "and all is given back")
wait_until(lambda: not machine.view()["processes"], 5)
check_equal(machine.view()["gpus"][0]["used"], 0, "nothing is left on the card")
finish()

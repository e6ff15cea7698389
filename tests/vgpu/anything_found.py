# SPDX-License-Identifier: Apache-2.0
"""What anything.py once found, cut short: a sentence, what of the setting matters, and the calls."""

from anything_calls import MIB

BEGIN = """
call 0 s cuInit i0
call 0 s cuDevicePrimaryCtxRetain n33 i0
call 0 s cuCtxSetCurrent h33
call 0 s cuMemGetInfo_v2 o8 o8
"""

FOUND = [
    (
        "a launch in a context that has ended is answered so, not that there is no memory",
        {"cores": 30},
        BEGIN
        + """
call 0 s cuDevicePrimaryCtxRelease i0
call 0 l cuLaunchKernel h181 i1 i1 i1 i1 i1 i1 i0 h90 k500,0 i0
call 0 s cuLaunchKernelEx i0 h181 k500,0 i0
call 0 s cuGraphLaunch h308 i0
""",
    ),
    (
        "NVML gives out a handle by bus id and by UUID",
        {"gpus": 2},
        """
call 0 n nvmlDeviceGetHandleByIndex_v2 i0 n417
call 0 n nvmlDeviceGetHandleByPciBusId_v2 t24 n418
call 0 n nvmlDeviceGetHandleByPciBusId t25 n419
call 0 n nvmlDeviceGetHandleByUUID t60 n420
call 0 n nvmlDeviceGetHandleByUUID t61 n421
call 0 n nvmlDeviceGetHandleByUUID t24 n422
""",
    ),
    (
        "who asks for memory in a context that has ended leaves nothing charged",
        {},
        BEGIN
        + """
call 1 s cuCtxSetCurrent h33
call 2 s cuDevicePrimaryCtxRelease i0
call 1 s cuMemAlloc_v2 n326 i190732
call 1 s cuDevicePrimaryCtxRetain n42 i0
call 2 s cuCtxCreate_v4 n49 i0 i0 i0
call 1 s cuDevicePrimaryCtxReset_v2 i0
call 1 s cuCtxSetCurrent h49
call 1 s cuMemGetInfo_v2 o8 o8
""",
    ),
    (
        "a library that is loaded eagerly is charged in every context it is loaded into",
        {"gpus": 2, "strict": True, "driver": {"loading": "eager"}},
        BEGIN
        + """
call 3 s cuLibraryLoadData n199 t1 i0 i0 i0 i0 i0 i0
call 0 s cuMemGetInfo_v2 o8 o8
call 1 s cuDevicePrimaryCtxRetain n34 i1
call 1 s cuCtxSetCurrent h34
call 1 s cuMemGetInfo_v2 o8 o8
call 0 s cuLibraryLoadData n200 t2 i0 i0 i0 i0 i0 i0
call 0 s cuMemGetInfo_v2 o8 o8
call 1 s cuMemGetInfo_v2 o8 o8
call 3 s cuLibraryUnload h199
call 1 s cuMemGetInfo_v2 o8 o8
call 1 s cuLibraryUnload h200
call 0 s cuMemGetInfo_v2 o8 o8
""",
    ),
    (
        "and is refused where one of them is full, whichever context is current",
        {"strict": True, "driver": {"loading": "eager"}},
        BEGIN
        + f"""
call 0 s cuMemAlloc_v2 n326 i{440 * MIB}
call 3 s cuLibraryLoadData n199 t2 i0 i0 i0 i0 i0 i0
call 0 s cuMemGetInfo_v2 o8 o8
""",
    ),
    (
        "memory that a lowered limit of a context gives back is the program's at once",
        {"driver": {"heaps": "shrink"}},
        BEGIN
        + """
call 0 s cuCtxSetLimit i0 i16384
call 0 s cuMemGetInfo_v2 o8 o8
call 0 s cuCtxSetLimit i0 i0
call 0 s cuMemGetInfo_v2 o8 o8
""",
    ),
    (
        "a function that has the handle of one that went with its context is a new one",
        {"cores": 95, "strict": True},
        BEGIN
        + f"""
call 0 s cuModuleLoadData n130 t0
call 0 s cuModuleGetFunction n169 h130 t8
call 0 s cuLaunchKernel h169 i1 i1 i1 i32 i1 i1 i0 i0 k500,0 i0
call 0 s cuDevicePrimaryCtxReset i0
call 0 s cuDevicePrimaryCtxRetain n33 i0
call 0 s cuCtxSetCurrent h33
call 0 s cuModuleLoadData n147 t3
call 0 s cuModuleGetFunction n170 h147 t9
call 0 s cuMemAlloc_v2 n326 i512
call 0 s cuLaunchKernel h170 i1 i1 i1 i32 i1 i1 i0 i0 k500,0 i0
call 0 s cuMemAlloc_v2 n327 i{512 * MIB - 64 * MIB}
""",
    ),
    (
        "a library that is unloaded gives its code's memory back on every device",
        {"gpus": 2, "strict": True},
        """
call 0 s cuInit i0
call 0 s cuLibraryLoadData n215 t1 i0 i0 i0 i0 i0 i0
call 0 s cuDevicePrimaryCtxRetain n35 i1
call 3 s cuCtxSetCurrent h35
call 1 s cuLibraryGetKernel n236 h215 t8
call 0 s cuCtxCreate_v3 n46 i0 i0 i8 i1
call 0 s cuLaunchKernel h236 i1 i1 i1 i1 i1 i1 i0 i0 k2000,0 i0
call 0 s cuLibraryUnload h215
call 3 s cuMemGetInfo_v2 o8 o8
""",
    ),
    (
        "a primary context that is refused for its size is gone, also when one before was reset",
        {"strict": True, "driver": {"loading": "eager"}},
        f"""
call 0 s cuInit i0
call 0 s cuCtxCreate_v2 n40 i0 i0
call 0 s cuDevicePrimaryCtxRetain n47 i0
call 0 s cuDevicePrimaryCtxReset_v2 i0
call 0 s cuLibraryLoadData n202 t2 i0 i0 i0 i0 i0 i0
call 0 s cuMemAlloc_v2 n328 i{512 * MIB - 82914816 - 70 * MIB}
call 0 s cuDevicePrimaryCtxRetain n49 i0
call 0 s cuMemGetInfo_v2 o8 o8
call 0 s cuDevicePrimaryCtxGetState i0 o4 o4
call 0 s cuCtxPushCurrent_v2 h47
""",
    ),
    (
        "the code of each of two functions is charged when it is launched, also without a limit of compute",
        {"strict": True},
        BEGIN
        + f"""
call 0 s cuModuleLoadData n130 t3
call 0 s cuModuleGetFunction n169 h130 t8
call 0 s cuModuleGetFunction n170 h130 t9
call 0 s cuLaunchKernel h169 i1 i1 i1 i32 i1 i1 i0 i0 k500,0 i0
call 0 s cuMemAlloc_v2 n326 i512
call 0 s cuLaunchKernel h170 i1 i1 i1 i32 i1 i1 i0 i0 k500,0 i0
call 0 s cuMemAlloc_v2 n327 i{439 * MIB}
""",
    ),
    (
        "a launch that fails makes no function one that was launched: another may have its handle later",
        {"strict": True},
        BEGIN
        + """
call 0 s cuLibraryLoadData n194 t1 i0 i0 i0 i0 i0 i0
call 0 s cuLibraryGetKernel n240 h194 t8
call 0 s cuLibraryUnload h194
call 0 s cuLaunchKernel h240 i1 i1 i1 i1 i1 i1 i0 i0 k2000,0 i0
call 0 s cuLibraryLoadData n206 t0 i0 i0 i0 i0 i0 i0
call 0 s cuLibraryGetKernel n228 h206 t9
call 0 s cuMemGetInfo_v2 o8 o8
call 0 s cuLaunchKernel h228 i1 i0 i1 i1 i1 i1 i0 i0 k2000,0 i0
call 0 s cuMemGetInfo_v2 o8 o8
""",
    ),
    (
        "an upload into a captured stream invalidates its capture also where another one forbids the thread much",
        {},
        BEGIN
        + """
call 0 s cuGraphCreate n257 i0
call 0 s cuGraphAddNode_v2 n673 h257 i0 i0 i0 A321,0,1048576,1
call 0 s cuGraphInstantiateWithFlags n289 h257 i0
call 0 s cuStreamCreate n65 i1
call 0 s cuStreamCreate n66 i1
call 1 s cuCtxSetCurrent h33
call 1 s cuStreamBeginCapture_v2 h65 i0
call 0 s cuStreamBeginCapture_v2 h66 i2
call 0 s cuGraphUpload h289 h66
call 0 s cuMemAllocAsync n326 i512 h66
call 0 s cuStreamEndCapture h66 n258
call 1 s cuStreamEndCapture h65 n259
""",
    ),
]

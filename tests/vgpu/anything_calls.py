# SPDX-License-Identifier: Apache-2.0
"""What anything.py knows of the entry points: a row for each that has a generator, and how an argument is drawn.

A row is a name, its weight, and its arguments, each by a letter or a word of ARGUMENTS below. Written from the
public API reference. Entry points without a row are called with nothing, where that is safe: the simulator has
no code behind them, but libvgpu might.
"""

import struct

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# Kinds of handles, and where their slots begin; the guest (anything.c) has 32 of each.
GROUP = 32
KINDS = "special context stream event module function library kernel graph exec ptr host ptr32 nvml physical va fd pool opened array mipmap node external desc green"
KINDS = KINDS.split()
FIRST = {kind: GROUP * i for i, kind in enumerate(KINDS)}
# Values that a handle may be taken for: those of these kinds are looked up, never followed.
LOOKED_UP = {"context", "stream", "event", "module", "library", "ptr", "ptr32", "physical", "va", "pool", "opened", "array", "mipmap"}

# name: (weight, arguments). "+kind" makes a handle, "-kind" ends one, "?kind" tells one.
ROWS = {
    "cuInit": (0.3, "init"),
    "cuDriverGetVersion": (0.3, "o4"),
    "cuGetProcAddress": (2, "name f version procflags"),
    "cuGetProcAddress_v2": (3, "name f version procflags o4"),
    "cuGetExportTable": (0.3, "?special uuid"),
    "cuGetErrorName": (0.3, "error s"),
    "cuGetErrorString": (0.3, "error s"),
    # Devices
    "cuDeviceGet": (0.5, "o4 device"),
    "cuDeviceGetCount": (0.5, "o4"),
    "cuDeviceGetName": (0.3, "o64 length device"),
    "cuDeviceGetUuid": (0.3, "o16 device"),
    "cuDeviceGetUuid_v2": (0.3, "o16 device"),
    "cuDeviceTotalMem": (0.5, "o4 device"),
    "cuDeviceTotalMem_v2": (0.5, "o8 device"),
    "cuDeviceGetAttribute": (0.8, "o4 attribute device"),
    "cuDeviceComputeCapability": (0.3, "o4 o4 device"),
    "cuDeviceGetByPCIBusId": (0.3, "o4 busid"),
    "cuDeviceGetPCIBusId": (0.3, "o32 length device"),
    "cuDeviceCanAccessPeer": (0.3, "o4 device device"),
    # Contexts
    "cuDevicePrimaryCtxRetain": (4, "+context device"),
    "cuDevicePrimaryCtxRelease": (0.7, "device"),
    "cuDevicePrimaryCtxRelease_v2": (0.7, "device"),
    "cuDevicePrimaryCtxReset": (0.2, "device"),
    "cuDevicePrimaryCtxReset_v2": (0.2, "device"),
    "cuDevicePrimaryCtxSetFlags": (0.3, "device flags"),
    "cuDevicePrimaryCtxSetFlags_v2": (0.3, "device flags"),
    "cuDevicePrimaryCtxGetState": (0.5, "device o4 o4"),
    "cuCtxCreate": (0.4, "+context flags device"),
    "cuCtxCreate_v2": (0.6, "+context flags device"),
    "cuCtxCreate_v3": (0.4, "+context 0 0 flags device"),
    "cuCtxCreate_v4": (0.4, "+context 0 flags device"),
    "cuCtxDestroy": (1, "-context"),
    "cuCtxDestroy_v2": (1.2, "-context"),
    "cuCtxAttach": (1, "+context attachflags"),
    "cuCtxDetach": (1, "-context"),
    "cuCtxPushCurrent": (0.8, "context"),
    "cuCtxPushCurrent_v2": (0.8, "context"),
    "cuCtxPopCurrent": (0.8, "?context"),
    "cuCtxPopCurrent_v2": (0.8, "?context"),
    "cuCtxSetCurrent": (8, "context"),
    "cuCtxGetCurrent": (0.8, "?context"),
    "cuCtxGetDevice": (0.8, "o4"),
    "cuCtxGetFlags": (0.3, "o4"),
    "cuCtxGetApiVersion": (0.3, "context o4"),
    "cuCtxGetLimit": (0.5, "o8 limit"),
    "cuCtxSetLimit": (1.5, "limit limitvalue"),
    "cuCtxGetStreamPriorityRange": (0.3, "o4 o4"),
    "cuCtxSynchronize": (1, ""),
    "cuCtxSynchronize_v2": (0.2, "context"),
    "cuGreenCtxCreate": (1, "+green desc device greenflags"),
    "cuGreenCtxDestroy": (0.5, "-green"),
    "cuGreenCtxRecordEvent": (0.1, "green event"),
    "cuCtxRecordEvent": (0.3, "context event"),
    "cuGreenCtxStreamCreate": (1, "+stream green greenflags 0"),
    "cuGreenCtxGetDevResource": (0.2, "green o144 greenflags"),
    "cuCtxFromGreenCtx": (1, "+context green"),
    "cuCtxGetDevResource": (0.2, "context o144 flags"),
    "cuDeviceGetDevResource": (0.2, "device o144 flags"),
    "cuDevSmResourceSplitByCount": (0.2, "0 o4 0 0 0 0"),
    "cuDevResourceGenerateDesc": (0.6, "+desc resource 1"),
    "cuStreamGetGreenCtx": (0.3, "stream o8"),
    # Code
    "cuModuleLoad": (0.7, "+module path"),
    "cuModuleLoadData": (1.5, "+module image"),
    "cuModuleLoadDataEx": (0.7, "+module image 0 0 0"),
    "cuModuleLoadFatBinary": (0.7, "+module image"),
    "cuModuleUnload": (1.5, "-module"),
    "cuModuleGetFunction": (5, "+function module kernelname"),
    "cuModuleGetLoadingMode": (0.3, "o4"),
    "cuLibraryLoadData": (1, "+library image 0 0 0 0 0 0"),
    "cuLibraryLoadFromFile": (0.5, "+library path 0 0 0 0 0 0"),
    "cuLibraryUnload": (0.8, "-library"),
    "cuLibraryGetModule": (0.3, "+module library"),
    "cuLibraryGetKernel": (3, "+kernel library kernelname"),
    "cuKernelGetFunction": (2, "+function kernel"),
    "cuFuncGetAttribute": (0.5, "o4 smallattribute function"),
    "cuKernelGetAttribute": (0.5, "o4 smallattribute kernel device"),
    "cuFuncLoad": (1, "function"),
    "cuFuncIsLoaded": (0.7, "o4 function"),
    "cuFuncGetModule": (0.4, "?module function"),
    "cuParamSetv": (0.7, "function offset nanoseconds 8"),
    # Memory
    "cuMemGetInfo": (2, "o4 o4"),
    "cuMemGetInfo_v2": (4, "o8 o8"),
    "cuMemAlloc": (3, "+ptr32 size32"),
    "cuMemAlloc_v2": (10, "+ptr size"),
    "cuMemAllocPitch": (1.5, "+ptr32 o4 width32 height element"),
    "cuMemAllocPitch_v2": (3, "+ptr o8 width height element"),
    "cuMemFree": (4, "-ptr32"),
    "cuMemFree_v2": (12, "-ptr"),
    "cuMemGetAddressRange_v2": (1.5, "?ptr o8 inside"),
    "cuMemAllocHost": (0.5, "+host hostsize"),
    "cuMemAllocHost_v2": (0.5, "+host hostsize"),
    "cuMemHostAlloc": (0.5, "+host hostsize flags"),
    "cuMemFreeHost": (1.5, "-host"),
    "cuMemHostRegister": (0.2, "nodetext hostsize 0"),
    "cuMemHostRegister_v2": (0.3, "nodetext hostsize 0"),
    "cuMemHostUnregister": (0.4, "nodetext"),
    # Streams, captures, events
    "cuStreamCreate": (2, "+stream streamflags"),
    "cuStreamCreateWithPriority": (1, "+stream streamflags 0"),
    "cuStreamDestroy": (0.8, "-stream"),
    "cuStreamDestroy_v2": (0.8, "-stream"),
    "cuStreamQuery": (0.8, "stream"),
    "cuStreamQuery_ptsz": (0.8, "stream"),
    "cuStreamSynchronize": (1, "stream"),
    "cuStreamSynchronize_ptsz": (1, "stream"),
    "cuStreamWaitEvent": (1.5, "stream event eventflags"),
    "cuStreamWaitEvent_ptsz": (1, "stream event eventflags"),
    "cuStreamIsCapturing": (0.8, "stream o4"),
    "cuStreamIsCapturing_ptsz": (0.8, "stream o4"),
    "cuStreamBeginCapture": (0.3, "stream"),
    "cuStreamBeginCapture_ptsz": (0.3, "stream"),
    "cuStreamBeginCapture_v2": (0.6, "stream capturemode"),
    "cuStreamBeginCapture_v2_ptsz": (0.4, "stream capturemode"),
    "cuStreamEndCapture": (4, "captured +graph"),
    "cuStreamEndCapture_ptsz": (3, "captured +graph"),
    "cuStreamGetCaptureInfo": (0.5, "stream o4 o8"),
    "cuStreamGetCaptureInfo_ptsz": (0.5, "stream o4 o8"),
    "cuStreamGetCaptureInfo_v2": (0.5, "stream o4 o8 ?graph ?graph o8"),
    "cuStreamGetCaptureInfo_v2_ptsz": (0.5, "stream o4 o8 ?graph ?graph o8"),
    "cuStreamGetCaptureInfo_v3": (0.5, "stream o4 o8 ?graph ?graph ?graph o8"),
    "cuStreamGetCaptureInfo_v3_ptsz": (0.5, "stream o4 o8 ?graph ?graph ?graph o8"),
    "cuStreamGetCtx": (0.7, "stream ?context"),
    "cuStreamGetCtx_ptsz": (0.7, "stream ?context"),
    "cuStreamGetCtx_v2": (0.5, "stream ?context ?context"),
    "cuStreamGetCtx_v2_ptsz": (0.5, "stream ?context ?context"),
    "cuThreadExchangeStreamCaptureMode": (1, "v8mode"),
    "cuEventCreate": (1.5, "+event eventmake"),
    "cuEventDestroy": (0.5, "-event"),
    "cuEventDestroy_v2": (0.6, "-event"),
    "cuEventRecord": (2, "event stream"),
    "cuEventRecord_ptsz": (1, "event stream"),
    "cuEventRecordWithFlags": (1, "event stream eventflags"),
    "cuEventRecordWithFlags_ptsz": (0.7, "event stream eventflags"),
    "cuEventQuery": (1, "event"),
    "cuEventSynchronize": (1, "event"),
    "cuEventElapsedTime": (0.7, "o4 event event"),
    "cuEventElapsedTime_v2": (0.7, "o4 event event"),
    # Launches
    "cuLaunchKernel": (8, "callable grid grid1 1 block 1 1 0 stream parameters 0"),
    "cuLaunchKernel_ptsz": (4, "callable grid grid1 1 block 1 1 0 stream 0 extra"),
    "cuLaunchKernelEx": (3, "config callable parameters 0"),
    "cuLaunchKernelEx_ptsz": (2, "config callable 0 extra"),
    "cuLaunchCooperativeKernel": (1.5, "callable grid grid1 1 block 1 1 0 stream parameters"),
    "cuLaunchCooperativeKernel_ptsz": (1, "callable grid grid1 1 block 1 1 0 stream parameters"),
    "cuLaunchCooperativeKernelMultiDevice": (1, "launches count 0"),
    "cuLaunch": (0.5, "callable"),
    "cuLaunchGrid": (0.5, "callable grid grid1"),
    "cuLaunchGridAsync": (0.7, "callable grid grid1 stream"),
    "cuGraphLaunch": (3, "exec stream"),
    "cuGraphLaunch_ptsz": (2, "exec stream"),
    "cuGraphInstantiateWithFlags": (3, "+exec graph flags"),
    "cuGraphExecDestroy": (1, "-exec"),
    "cuGraphDestroy": (1.2, "-graph"),
    "cuGraphCreate": (0.6, "+graph createflags"),
    "cuGraphClone": (0.2, "+graph graph"),
    "cuGraphNodeFindInClone": (0.2, "?node node graph"),
    "cuGraphAddEmptyNode": (0.4, "+node graph after aftercount"),
    "cuGraphAddKernelNode": (0.4, "+node graph after aftercount nodekernel"),
    "cuGraphAddKernelNode_v2": (0.8, "+node graph after aftercount nodekernel"),
    "cuGraphAddChildGraphNode": (0.4, "+node graph after aftercount graph"),
    "cuGraphAddEventRecordNode": (0.3, "+node graph after aftercount event"),
    "cuGraphAddEventWaitNode": (0.3, "+node graph after aftercount event"),
    "cuGraphAddMemAllocNode": (1.5, "+node graph after aftercount nodealloc"),
    "cuGraphAddMemFreeNode": (1.2, "+node graph after aftercount nodeptr"),
    "cuGraphAddNode": (0.5, "+node graph after aftercount nodeany"),
    "cuGraphAddNode_v2": (0.5, "+node graph after 0 aftercount nodeany"),
    "cuGraphAddNode_v3": (0.3, "+node graph after 0 aftercount nodeany"),
    "cuGraphMemAllocNodeGetParams": (0.3, "node o120"),
    "cuGraphMemFreeNodeGetParams": (0.3, "node o8"),
    "cuGraphKernelNodeGetParams": (0.1, "node 0"),
    "cuGraphKernelNodeGetParams_v2": (0.1, "node 0"),
    "cuGraphKernelNodeSetParams": (0.2, "node nodekernel"),
    "cuGraphKernelNodeSetParams_v2": (0.3, "node nodekernel"),
    "cuGraphChildGraphNodeGetGraph": (0.2, "node ?graph"),
    "cuGraphEventRecordNodeGetEvent": (0.2, "node ?event"),
    "cuGraphEventRecordNodeSetEvent": (0.1, "node event"),
    "cuGraphExecEventRecordNodeSetEvent": (0.1, "exec node event"),
    "cuGraphEventWaitNodeSetEvent": (0.1, "node event"),
    "cuGraphExecEventWaitNodeSetEvent": (0.1, "exec node event"),
    "cuGraphEventWaitNodeGetEvent": (0.2, "node ?event"),
    "cuGraphGetNodes": (0.3, "graph 0 o8"),
    "cuGraphGetRootNodes": (0.2, "graph 0 o8"),
    "cuGraphGetEdges": (0.2, "graph 0 0 o8"),
    "cuGraphNodeGetType": (0.3, "node o4"),
    "cuGraphNodeGetDependencies": (0.2, "node 0 o8"),
    "cuGraphNodeGetDependentNodes": (0.2, "node 0 o8"),
    "cuGraphAddDependencies": (0.4, "graph after after 1"),
    "cuGraphRemoveDependencies": (0.2, "graph after after 1"),
    "cuGraphDestroyNode": (0.2, "-node"),
    "cuGraphInstantiate": (0.4, "+exec graph 0 0 0"),
    "cuGraphInstantiate_v2": (0.6, "+exec graph 0 0 0"),
    "cuGraphInstantiateWithParams": (0.5, "+exec graph instantiation"),
    "cuGraphInstantiateWithParams_ptsz": (0.3, "+exec graph instantiation"),
    "cuGraphExecGetFlags": (0.2, "exec o8"),
    "cuGraphUpload": (0.8, "exec stream"),
    "cuGraphUpload_ptsz": (0.4, "exec stream"),
    "cuGraphExecUpdate": (0.3, "exec graph 0 o4"),
    "cuGraphExecUpdate_v2": (0.3, "exec graph o24"),
    "cuGraphExecKernelNodeSetParams": (0.2, "exec node nodekernel"),
    "cuGraphExecKernelNodeSetParams_v2": (0.3, "exec node nodekernel"),
    "cuDeviceGetGraphMemAttribute": (0.5, "device graphattribute o8"),
    "cuDeviceSetGraphMemAttribute": (0.2, "device graphattribute v8:0"),
    "cuDeviceGraphMemTrim": (0.6, "device"),
    "cuStreamBeginCaptureToGraph": (0.2, "stream graph 0 0 0 capturemode"),
    "cuStreamBeginCaptureToGraph_ptsz": (0.2, "stream graph 0 0 0 capturemode"),
    "cuStreamBeginRecaptureToGraph": (0.1, "stream capturemode graph 0 0"),
    "cuStreamBeginRecaptureToGraph_ptsz": (0.1, "stream capturemode graph 0 0"),
    "cuStreamBeginCaptureToCig": (0.1, "stream 0"),
    "cuStreamBeginCaptureToCig_ptsz": (0.1, "stream 0"),
    "cuStreamEndCaptureToCig": (0.1, "stream"),
    "cuStreamEndCaptureToCig_ptsz": (0.1, "stream"),
    "cuLogicalEndpointBindMem": (0.1, "0 device 0 physical 0 piece 0"),
    "cuLogicalEndpointBindAddr": (0.1, "0 device 0 mapped mappedbytes 0"),
    # Memory that is made apart from its addresses
    "cuMemAddressReserve": (1.5, "+va reservebytes alignment hint 0"),
    "cuMemAddressFree": (0.7, "-va vabytes"),
    "cuMemCreate": (4, "+physical piece prop createflags"),
    "cuMemRelease": (3, "-physical"),
    "cuMemMap": (5, "vapart partbytes 0 physical 0"),
    "cuMemUnmap": (3, "mapped mappedbytes"),
    "cuMemSetAccess": (1.5, "mapped mappedbytes access accesses"),
    "cuMemGetAccess": (0.7, "o8 place mapped"),
    "cuMemRetainAllocationHandle": (1.2, "+physical mapped"),
    "cuMemGetAllocationGranularity": (0.5, "o8 prop granularity"),
    "cuMemGetAllocationPropertiesFromHandle": (0.5, "o32 physical"),
    "cuMemExportToShareableHandle": (0.8, "+fd physical handletype 0"),
    "cuMemGetHandleForAddressRange": (0.4, "+fd mapped mappedbytes handletype 0"),
    "cuMemImportFromShareableHandle": (0.8, "+physical fd handletype"),
    # Without a device that is able to; the rest is in multicast.py
    "cuCheckpointProcessRestore": (0.05, "1 0"),
    "cuMulticastCreate": (0.1, "+physical nodetext"),
    "cuMulticastAddDevice": (0.1, "physical device"),
    "cuMulticastBindMem": (0.1, "physical 0 physical 0 piece 0"),
    "cuMulticastBindMem_v2": (0.1, "physical device 0 physical 0 piece 0"),
    "cuMulticastBindAddr": (0.1, "physical 0 mapped mappedbytes 0"),
    "cuMulticastBindAddr_v2": (0.1, "physical device 0 mapped mappedbytes 0"),
    "cuMulticastUnbind": (0.1, "physical device 0 piece"),
    "cuMulticastGetGranularity": (0.1, "o8 nodetext granularity"),
    # Memory in the order of streams
    "cuMemAllocAsync": (4, "+ptr size stream"),
    "cuMemAllocAsync_ptsz": (2, "+ptr size stream"),
    "cuMemAllocFromPoolAsync": (3, "+ptr size pool stream"),
    "cuMemAllocFromPoolAsync_ptsz": (1.5, "+ptr size pool stream"),
    "cuMemFreeAsync": (6, "-ptr stream"),
    "cuMemFreeAsync_ptsz": (3, "-ptr stream"),
    "cuMemPoolCreate": (0.7, "+pool poolprops"),
    "cuMemPoolDestroy": (0.4, "-pool"),
    "cuMemPoolTrimTo": (0.7, "pool hostsize"),
    "cuMemPoolGetAttribute": (0.7, "pool poolattribute o8"),
    "cuMemPoolSetAttribute": (0.7, "pool poolattribute v8pool"),
    "cuMemPoolSetAccess": (0.3, "pool access accesses"),
    "cuMemPoolGetAccess": (0.3, "o4 pool place"),
    "cuDeviceGetDefaultMemPool": (0.8, "+pool device"),
    "cuDeviceGetMemPool": (0.5, "+pool device"),
    "cuDeviceSetMemPool": (0.5, "device pool"),
    "cuMemGetDefaultMemPool": (0.3, "+pool place kind"),
    "cuMemGetMemPool": (0.3, "+pool place kind"),
    "cuMemSetMemPool": (0.2, "place kind pool"),
    # Managed memory
    "cuMemAllocManaged": (2, "+ptr size attach"),
    "cuModuleGetGlobal_v2": (0.5, "o8 o8 module kernelname"),
    "cuLibraryGetManaged": (0.5, "o8 o8 library kernelname"),
    "cuPointerGetAttribute": (0.5, "o4 8 ptr"),
    "cuPointerGetAttributes": (0.1, "0 0 0 ptr"),
    "cuMemPrefetchAsync": (1, "inside partsize target stream"),
    "cuMemPrefetchAsync_ptsz": (0.5, "inside partsize target stream"),
    "cuMemPrefetchAsync_v2": (0.7, "inside partsize location 0 stream"),
    "cuMemPrefetchAsync_v2_ptsz": (0.3, "inside partsize location createflags stream"),
    "cuMemPrefetchBatchAsync": (0.1, "0 0 0 0 0 0 0 stream"),
    "cuMemPrefetchBatchAsync_ptsz": (0.1, "0 0 0 0 0 0 0 stream"),
    "cuMemDiscardAndPrefetchBatchAsync": (0.1, "0 0 0 0 0 0 0 stream"),
    "cuMemDiscardAndPrefetchBatchAsync_ptsz": (0.1, "0 0 0 0 0 0 0 stream"),
    "cuMemAdvise": (0.7, "inside partsize advice target"),
    "cuMemAdvise_v2": (0.5, "inside partsize advice location"),
    "cuMemRangeGetAttribute": (0.7, "o4 4 rangeattribute inside partsize"),
    "cuMemRangeGetAttributes": (0.1, "0 0 0 0 inside partsize"),
    "cuStreamAttachMemAsync": (0.4, "stream inside 0 attach"),
    "cuStreamAttachMemAsync_ptsz": (0.2, "stream inside partsize attach"),
    # Arrays
    "cuArrayCreate": (0.4, "+array arraynarrow"),
    "cuArrayCreate_v2": (0.7, "+array arraywide"),
    "cuArray3DCreate": (0.4, "+array array3narrow"),
    "cuArray3DCreate_v2": (1.2, "+array array3wide"),
    "cuArrayDestroy": (1.2, "-array"),
    "cuArrayGetDescriptor": (0.2, "o16 array"),
    "cuArrayGetDescriptor_v2": (0.2, "o24 array"),
    "cuArray3DGetDescriptor": (0.2, "o24 array"),
    "cuArray3DGetDescriptor_v2": (0.2, "o40 array"),
    "cuArrayGetMemoryRequirements": (0.5, "o32 array device"),
    "cuArrayGetSparseProperties": (0.3, "o48 array"),
    "cuMipmappedArrayCreate": (0.8, "+mipmap array3wide levels"),
    "cuMipmappedArrayGetLevel": (0.5, "+array mipmap levels"),
    "cuMipmappedArrayDestroy": (0.7, "-mipmap"),
    "cuMipmappedArrayGetMemoryRequirements": (0.3, "o32 mipmap device"),
    "cuMipmappedArrayGetSparseProperties": (0.2, "o48 mipmap"),
    "cuMemMapArrayAsync": (0.2, "0 0 stream"),
    "cuMemMapArrayAsync_ptsz": (0.2, "0 0 stream"),
    # What processes share by handles
    "cuIpcGetMemHandle": (1, "newblob inside"),
    "cuIpcOpenMemHandle": (0.3, "+opened blob ipcflags"),
    "cuIpcOpenMemHandle_v2": (0.5, "+opened blob ipcflags"),
    "cuIpcCloseMemHandle": (0.5, "-opened"),
    "cuIpcGetEventHandle": (0.5, "newblob event"),
    "cuIpcOpenEventHandle": (0.3, "+event blob"),
    # Pools that are shared: the rest is in pools.py
    "cuMemPoolExportToShareableHandle": (0.3, "+fd pool handletype 0"),
    "cuMemPoolImportFromShareableHandle": (0.1, "o8 0 1 0"),
    "cuMemPoolExportPointer": (0.2, "newblob inside"),
    "cuMemPoolImportPointer": (0.1, "o8 pool nodetext"),
    # Without a descriptor; the rest is in external.py
    "cuImportExternalMemory": (0.1, "o8 nodetext"),
    "cuExternalMemoryGetMappedBuffer": (0.1, "o8 0 nodetext"),
    "cuDestroyExternalMemory": (0.1, "0"),
    "cuGraphicsGLRegisterBuffer": (0.1, "o8 0 0"),
    "cuGraphicsGLRegisterImage": (0.1, "o8 0 3553 0"),
    "cuGraphicsEGLRegisterImage": (0.1, "o8 0 0"),
    "cuGraphicsVDPAURegisterVideoSurface": (0.1, "o8 0 0"),
    "cuGraphicsVDPAURegisterOutputSurface": (0.1, "o8 0 0"),
    "cuGraphicsUnregisterResource": (0.1, "0"),
    "cuGLRegisterBufferObject": (0.1, "0"),
    "cuGLUnregisterBufferObject": (0.1, "0"),
    "cuEGLStreamConsumerConnect": (0.1, "o8 0"),
    "cuEGLStreamConsumerConnectWithFlags": (0.1, "o8 0 0"),
    "cuEGLStreamConsumerDisconnect": (0.1, "o8"),
    "cuEGLStreamConsumerAcquireFrame": (0.1, "o8 o8 0 0"),
    "cuEGLStreamConsumerReleaseFrame": (0.1, "o8 0 0"),
    "cuGraphicsMapResources": (0.1, "1 o8 stream"),
    "cuGraphicsMapResources_ptsz": (0.1, "1 o8 stream"),
    "cuGraphicsUnmapResources": (0.1, "1 o8 stream"),
    "cuGraphicsUnmapResources_ptsz": (0.1, "1 o8 stream"),
    "cuGraphicsResourceGetMappedPointer_v2": (0.1, "o8 o8 0"),
    "cuGraphicsResourceSetMapFlags": (0.1, "0 0"),
    "cuGraphicsResourceSetMapFlags_v2": (0.1, "0 0"),
    # Setting and copying memory
    "cuMemsetD8_v2": (0.1, "inside 7 partsize"),
    "cuMemsetD2D8_v2": (0.1, "inside 512 7 width height"),
    "cuMemsetD8_v2_ptds": (0.1, "inside 7 partsize"),
    "cuMemsetD2D8_v2_ptds": (0.1, "inside 512 7 width height"),
    "cuMemsetD8Async": (0.1, "inside 7 partsize stream"),
    "cuMemsetD2D8Async": (0.1, "inside 512 7 width height stream"),
    "cuMemsetD8Async_ptsz": (0.1, "inside 7 partsize stream"),
    "cuMemsetD2D8Async_ptsz": (0.1, "inside 512 7 width height stream"),
    "cuMemsetD16_v2": (0.1, "inside 7 partsize"),
    "cuMemsetD2D16_v2": (0.1, "inside 512 7 width height"),
    "cuMemsetD16_v2_ptds": (0.1, "inside 7 partsize"),
    "cuMemsetD2D16_v2_ptds": (0.1, "inside 512 7 width height"),
    "cuMemsetD16Async": (0.1, "inside 7 partsize stream"),
    "cuMemsetD2D16Async": (0.1, "inside 512 7 width height stream"),
    "cuMemsetD16Async_ptsz": (0.1, "inside 7 partsize stream"),
    "cuMemsetD2D16Async_ptsz": (0.1, "inside 512 7 width height stream"),
    "cuMemsetD32_v2": (0.1, "inside 7 partsize"),
    "cuMemsetD2D32_v2": (0.1, "inside 512 7 width height"),
    "cuMemsetD32_v2_ptds": (0.1, "inside 7 partsize"),
    "cuMemsetD2D32_v2_ptds": (0.1, "inside 512 7 width height"),
    "cuMemsetD32Async": (0.1, "inside 7 partsize stream"),
    "cuMemsetD2D32Async": (0.1, "inside 512 7 width height stream"),
    "cuMemsetD32Async_ptsz": (0.1, "inside 7 partsize stream"),
    "cuMemsetD2D32Async_ptsz": (0.1, "inside 512 7 width height stream"),
    "cuMemcpy": (0.2, "inside inside partsize"),
    "cuMemcpy_ptds": (0.2, "inside inside partsize"),
    "cuMemcpyDtoD_v2": (0.2, "inside inside partsize"),
    "cuMemcpyDtoD_v2_ptds": (0.2, "inside inside partsize"),
    "cuMemcpyAsync": (0.2, "inside inside partsize stream"),
    "cuMemcpyAsync_ptsz": (0.2, "inside inside partsize stream"),
    "cuMemcpyDtoDAsync_v2": (0.2, "inside inside partsize stream"),
    "cuMemcpyDtoDAsync_v2_ptsz": (0.2, "inside inside partsize stream"),
    "cuMemcpy2D_v2": (0.05, "0"),
    "cuMemcpy2D_v2_ptds": (0.05, "0"),
    "cuMemcpy2DAsync_v2": (0.05, "0 stream"),
    "cuMemcpy2DAsync_v2_ptsz": (0.05, "0 stream"),
    "cuMemcpy3D_v2": (0.05, "0"),
    "cuMemcpy3D_v2_ptds": (0.05, "0"),
    "cuMemcpy3DAsync_v2": (0.05, "0 stream"),
    "cuMemcpy3DAsync_v2_ptsz": (0.05, "0 stream"),
    "cuMemcpy2DUnaligned_v2": (0.05, "0"),
    "cuMemcpy2DUnaligned_v2_ptds": (0.05, "0"),
    "cuMemcpy3DPeer": (0.05, "0"),
    "cuMemcpy3DPeer_ptds": (0.05, "0"),
    "cuMemcpy3DPeerAsync": (0.05, "0 stream"),
    "cuMemcpy3DPeerAsync_ptsz": (0.05, "0 stream"),
    "cuMemcpy3DBatchAsync": (0.05, "0 0 o8 0 stream"),
    "cuMemcpy3DBatchAsync_v2": (0.05, "0 0 0 stream"),
    "cuMemcpy3DWithAttributesAsync": (0.05, "0 0 stream"),
    "cuMemcpyBatchAsync": (0.05, "0 0 0 0 0 0 0 o8 stream"),
    "cuMemcpyBatchAsync_v2": (0.05, "0 0 0 0 0 0 0 stream"),
    "cuMemcpyWithAttributesAsync": (0.05, "inside inside partsize 0 stream"),
    "cuMemcpyPeerAsync": (0.05, "inside context inside context partsize stream"),
    "cuMemcpy3DBatchAsync_ptsz": (0.3, "0 0 o8 0 stream"),
    "cuMemcpy3DBatchAsync_v2_ptsz": (0.05, "0 0 0 stream"),
    "cuMemcpy3DWithAttributesAsync_ptsz": (0.05, "0 0 stream"),
    "cuMemcpyBatchAsync_ptsz": (0.05, "0 0 0 0 0 0 0 o8 stream"),
    "cuMemcpyBatchAsync_v2_ptsz": (0.05, "0 0 0 0 0 0 0 stream"),
    "cuMemcpyWithAttributesAsync_ptsz": (0.05, "inside inside partsize 0 stream"),
    "cuMemcpyPeerAsync_ptsz": (0.05, "inside context inside context partsize stream"),
    "cuMemcpyPeer": (0.05, "inside context inside context partsize"),
    "cuMemcpyAtoA_v2": (0.05, "array 0 array 0 partsize"),
    "cuMemcpyAtoD_v2": (0.05, "inside array 0 partsize"),
    "cuMemcpyDtoA_v2": (0.05, "array 0 inside partsize"),
    "cuMemcpyPeer_ptds": (0.05, "inside context inside context partsize"),
    "cuMemcpyAtoA_v2_ptds": (0.05, "array 0 array 0 partsize"),
    "cuMemcpyAtoD_v2_ptds": (0.05, "inside array 0 partsize"),
    "cuMemcpyDtoA_v2_ptds": (0.05, "array 0 inside partsize"),
    "cuGraphAddMemsetNode": (0.1, "+node graph after aftercount 0 context"),
    "cuGraphConditionalHandleCreate": (0.2, "o8 graph context 3 flags"),
    "cuGraphAddMemcpyNode": (0.1, "+node graph after aftercount 0 context"),
    "cuGraphNodeSetParams": (0.1, "node nodeany"),
    "cuGraphNodeSetParams_v2": (0.1, "node nodeany"),
    "cuGraphExecNodeSetParams": (0.1, "exec node nodeany"),
    "cuGraphMemsetNodeSetParams": (0.1, "node 0"),
    "cuGraphMemcpyNodeSetParams": (0.1, "node 0"),
    "cuGraphMemsetNodeGetParams": (0.1, "node 0"),
    "cuGraphMemcpyNodeGetParams": (0.1, "node 0"),
    # What would wait might wait for ever: a value is 0 or 7.
    "cuStreamWaitValue32": (0.1, "stream inside 0 0"),
    "cuStreamWriteValue32": (0.1, "stream inside 7 0"),
    "cuStreamWaitValue32_v2": (0.1, "stream inside 0 0"),
    "cuStreamWriteValue32_v2": (0.1, "stream inside 7 0"),
    "cuStreamWaitValue32_ptsz": (0.1, "stream inside 0 0"),
    "cuStreamWriteValue32_ptsz": (0.1, "stream inside 7 0"),
    "cuStreamWaitValue32_v2_ptsz": (0.1, "stream inside 0 0"),
    "cuStreamWriteValue32_v2_ptsz": (0.1, "stream inside 7 0"),
    "cuStreamWaitValue64": (0.1, "stream inside 0 0"),
    "cuStreamWriteValue64": (0.1, "stream inside 7 0"),
    "cuStreamWaitValue64_v2": (0.1, "stream inside 0 0"),
    "cuStreamWriteValue64_v2": (0.1, "stream inside 7 0"),
    "cuStreamWaitValue64_ptsz": (0.1, "stream inside 0 0"),
    "cuStreamWriteValue64_ptsz": (0.1, "stream inside 7 0"),
    "cuStreamWaitValue64_v2_ptsz": (0.1, "stream inside 0 0"),
    "cuStreamWriteValue64_v2_ptsz": (0.1, "stream inside 7 0"),
    "cuStreamBatchMemOp": (0.05, "stream 0 0 0"),
    "cuStreamBatchMemOp_v2": (0.05, "stream 0 0 0"),
    "cuStreamBatchMemOp_ptsz": (0.05, "stream 0 0 0"),
    "cuStreamBatchMemOp_v2_ptsz": (0.05, "stream 0 0 0"),
    # NVML
    "nvmlInit": (0.3, ""),
    "nvmlInit_v2": (0.5, ""),
    "nvmlInitWithFlags": (0.2, "0"),
    "nvmlDeviceGetCount": (0.3, "o4"),
    "nvmlDeviceGetCount_v2": (0.3, "o4"),
    "nvmlDeviceGetHandleByIndex": (0.5, "device +nvml"),
    "nvmlDeviceGetHandleByIndex_v2": (0.8, "device +nvml"),
    "nvmlDeviceGetHandleByPciBusId": (0.2, "busid +nvml"),
    "nvmlDeviceGetHandleByPciBusId_v2": (0.2, "busid +nvml"),
    "nvmlDeviceGetHandleByUUID": (0.3, "owncard +nvml"),
    "nvmlDeviceGetIndex": (0.3, "nvml o4"),
    "nvmlDeviceGetMigDeviceHandleByIndex": (0.2, "nvml device o8"),
    "nvmlDeviceGetMinorNumber": (0.2, "nvml o4"),
    "nvmlDeviceGetUUID": (0.3, "nvml o96 96"),
    "nvmlDeviceGetName": (0.2, "nvml o96 96"),
    "nvmlDeviceGetMemoryInfo": (1, "nvml o24"),
    "nvmlDeviceGetMemoryInfo_v2": (0.5, "nvml v40:0x2000028"),
    "nvmlDeviceGetComputeRunningProcesses": (0.3, "nvml v4:8 o128"),
    "nvmlDeviceGetComputeRunningProcesses_v2": (0.3, "nvml v4:8 o192"),
    "nvmlDeviceGetComputeRunningProcesses_v3": (0.5, "nvml v4:8 o192"),
    # Of another version: its list would lie where nothing is.
    "nvmlDeviceGetRunningProcessDetailList": (0.3, "nvml v24:0x2000018"),
    "nvmlDeviceGetBAR1MemoryInfo": (0.3, "nvml o24"),
    "nvmlDeviceGetUtilizationRates": (0.3, "nvml o8"),
    "nvmlDeviceGetProcessUtilization": (0.3, "nvml o256 v4:8 0"),
    "nvmlDeviceGetProcessesUtilizationInfo": (0.3, "nvml v24:0x1000018"),
    "nvmlDeviceGetGraphicsRunningProcesses": (0.1, "nvml v4:8 o128"),
    "nvmlDeviceGetGraphicsRunningProcesses_v2": (0.1, "nvml v4:8 o192"),
    "nvmlDeviceGetMPSComputeRunningProcesses": (0.1, "nvml v4:8 o128"),
    "nvmlDeviceGetMPSComputeRunningProcesses_v2": (0.1, "nvml v4:8 o192"),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": (0.2, "nvml v4:8 o192"),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": (0.2, "nvml v4:8 o192"),
}

PIECE = 2 * MIB
# How a number is drawn; the others are in anything_drawer.py.
DEVICES = {1: (0, 0, 0, 0, 0, 1, 2, -1), 2: (0, 0, 0, 1, 1, 1, 2, -1)}
NUMBERS_OF = {
    "init": (0, 0, 0, 1),
    "version": (2000, 3020, 4000, 7000, 11000, 12000, 12080, 13000, 13050),
    "procflags": (0, 0, 1, 2, 3),
    "error": (0, 1, 2, 3, 100, 201, 600, 801, 900, 901, 999, 12345, -1),
    "length": (1, 16, 31),
    "attribute": (0, 1, 16, 39, 75, 83, 102, 115, 145, 146, -1),
    "flags": (0, 0, 1, 8),
    "attachflags": (0, 0, 0, 1),
    "greenflags": (1,) * 12 + (0, 2),
    "smallattribute": (0, 1, 3, 5, -1),
    "offset": (0, 0, 4, -1),
    "limit": (0, 0, 1, 2, 3, 5, 9, 10, -1),
    "element": (4, 4, 8, 16, 5),
    "height": (0, 1, 7, 100, 4000, 2**40),
    "width": (0, 1, 511, 512, 10000, 2**20, 2**63, 2**64 - 5),
    "width32": (0, 1, 511, 512, 10000, 2**20),
    "hostsize": (0, 1, 4096, 100000),
    "streamflags": (0, 1, 1, 2),
    "eventmake": (0, 0, 2, 1, 6, 4),
    "attach": (1, 1, 1, 2, 4, 0, 3),
    "partsize": (1, 4096, 100000, 100000, PIECE, 8 * PIECE, 0, 2**63),
    "target": (0, 0, 0, 1, -1, -1, -2, 5),
    "location": [kind | number << 32 for kind, number in ((1, 0), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (4, 0), (9, 0))],
    "advice": (1, 2, 3, 3, 4, 5, 6, 0, 7),
    "rangeattribute": (1, 2, 2, 3, 4, 0, 9),
    "levels": (1, 1, 2, 5, 20, 0),
    "ipcflags": (1, 1, 1, 0),
    "eventflags": (0, 0, 0, 1),
    "capturemode": (0, 1, 2, 2, 3),
    "grid": (0, 1, 1, 1, 4, 4, 8, 16, 16, 100, 2**31 - 1),
    "grid1": (1, 1, 1, 2, 0),
    "block": (1, 1, 32, 32, 32, 1024, 0),
    "alignment": (0, 0, 0, 2 * MIB, 64 * MIB, 3, 1 << 60),
    "createflags": (0,) * 20 + (1,),
    "accesses": (1, 1, 1, 1, 0),
    "granularity": (0, 0, 1, 2),
    "poolattribute": (1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 9, 0),
    "kind": (1, 1, 1, 1, 2),
    "graphattribute": (0, 1, 1, 2, 3, 3, 4),
    "handletype": (1, 1, 1, 1, 1, 1, 0, 8),
}
RESERVED = (16 * PIECE, 16 * PIECE, 64 * PIECE, 4096, PIECE, 4095, 0, 1 << 50)

# These numbers are what a limit changes: they are judged, not compared.
NUMBERS = {
    "cuMemPoolGetAttribute",
    "cuDeviceGetGraphMemAttribute",
    "cuMemGetInfo",
    "cuMemGetInfo_v2",
    "cuDeviceTotalMem",
    "cuDeviceTotalMem_v2",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetBAR1MemoryInfo",
}
# Who was busy depends on the moment: there may be samples, or none.
SAMPLES = {"nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"}
# The answers that depend on the moment: not ready and done are the same.
QUERIES = {
    "cuStreamQuery",
    "cuStreamQuery_ptsz",
    "cuEventQuery",
    "cuEventElapsedTime",
    "cuEventElapsedTime_v2",
}

# Never called without arguments: they would end the process, or wait.
UNSAFE = set()

IMAGES = [
    b"hamisim-module 1\nsize=65536\nkernel one\nkernel two\n",
    b"hamisim-module 1\nsize=3000000\nkernel one\nkernel two\nkernel three\n",
    b"hamisim-module 1\nsize=20000000\nkernel one\n",
    b"hamisim-module 1\nsize=100000\nkernel one local=2048\nkernel two local=4096\n",
    b"hamisim-module 1\nsize=0\nkernel one\n",
    b".version 8.0\n",
    b"hamisim-module 1\nsize=\n",
    b"not an image",
]
KERNELS = [b"one", b"two", b"three", b"none", b""]
# By the image's number: what it takes at most, all of its kernels loaded.
# A little more for rounding up.
IMAGE_BYTES = [65536 + 4096, 3000000 + 4096, 20000000 + 4096, 100000 + 4096, 4096, 1 * MIB, 0, 0]
LOCAL_BYTES = 4096
TEXT_IMAGE, TEXT_KERNEL, TEXT_PATH, TEXT_BUSID, TEXT_UUID, TEXT_NS, TEXT_NODE, TEXT_NAME = 0, 8, 16, 24, 28, 30, 34, 40
TEXT_OWN_UUID = 60  # the cards' own
TEXT_PROP, TEXT_ACCESS, TEXT_PLACE, TEXT_POOL = 64, 80, 88, 96
TEXT_ARRAY = 106  # four forms of each
TEXT_INSTANTIATION = 132
TEXT_RESOURCE = 138
NAMES = 20  # texts for cuGetProcAddress, drawn anew now and then


def prop(place, number, handles=0, kind=1, usage=0):
    """CUmemAllocationProp."""
    return struct.pack("<iiiiQHHI", kind, handles, place, number, 0, 0, usage, 0)


# By number: memory of the first device, of the second one, of none; then what makes no sense.
PROPS = [prop(1, 0), prop(1, 0, 1), prop(1, 1, 1), prop(1, 0, usage=1), prop(2, 0), prop(3, 0, 1), prop(1, 5)]
PROPS += [prop(2, 0, 1), prop(4, 0), prop(0, 0), prop(1, 0, 8), prop(1, 0, 16), prop(1, 0, kind=0), prop(3, 3)]
POOL_PROPS = [(1, 0), (1, 0), (1, 1), (1, 5), (4, 0)]
# One has a maximum, which is not met: near the limit libvgpu trims pools, which then have room where the bare
# driver's have none.
POOLS = [struct.pack("<iiiiQQ56x", 1, 0, *place, 0, size) for place, size in zip(POOL_PROPS, (0, 4096 * MIB, 0, 0, 0))]
POOLS += [struct.pack("<iiiiQQ56x", 1, 1, 1, 0, 0, 0), struct.pack("<iiiiQQ56x", 2, 0, 1, 0, 0, 0), struct.pack("<iiiiQQ56x", 0, 0, 1, 0, 0, 0)]
ON_DEVICE = 4  # of the first of them

# Width, height, depth, format, channels, flags. FLOAT is 32, UNSIGNED_INT8 1.
ARRAYS = [(1024, 1024, 0, 32, 1, 0), (3000, 200, 0, 32, 4, 0), (128, 128, 16, 1, 1, 0), (5000, 5000, 0, 32, 1, 0)]
ARRAYS += [(100, 0, 0, 32, 1, 0x80), (0, 1, 0, 32, 1, 0)]


def array_bytes(shape, levels=1):
    """What the simulator takes for it, as docs/simulator.md says."""
    width, height, depth, kind, channels, flags = shape
    if flags & 0xC0:
        return 0
    element = channels * (4 if kind == 32 else 1)
    total, levels = 0, min(max(levels, 1), max(width, height, depth).bit_length())
    for level in range(levels):
        across, rows, deep = (max(side >> level, 1) for side in (width, height, depth))
        total += (across * element + 511) // 512 * 512 * rows * deep
    return (total + 65535) // 65536 * 65536


def array_forms(shape):
    """The descriptors of cuArrayCreate, cuArrayCreate_v2, cuArray3DCreate, cuArray3DCreate_v2."""
    width, height, depth, *rest = shape
    forms = [struct.pack("<IIiI", width, height, *rest[:2]), struct.pack("<QQiI", width, height, *rest[:2])]
    return forms + [struct.pack("<IIIiII", *shape), struct.pack("<QQQiII4x", *shape)]
ACCESSES = [struct.pack("<iii", *one) for one in ((1, 0, 3), (1, 0, 1), (1, 1, 3), (2, 0, 3), (1, 0, 2), (1, 7, 3))]


def texts(folder):
    """The texts of a guest: number and bytes."""
    paths = []
    for i, image in enumerate(IMAGES[:3]):
        path = folder / f"image-{i}"
        path.write_bytes(image)
        paths.append(str(path).encode())
    paths += [b"/nowhere/image", b""]
    runtime = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")
    node = [bytes([kind]) + bytes(511) for kind in (10, 0, 1, 4)]
    groups = [
        (TEXT_IMAGE, IMAGES),
        (TEXT_KERNEL, KERNELS),
        (TEXT_PATH, paths),
        (TEXT_BUSID, [b"0000:01:00.0", b"0000:02:00.0", b"0000:09:00.0", b"what"]),
        (TEXT_UUID, [runtime, bytes(16)]),
        (TEXT_NS, [ns.to_bytes(8, "little") for ns in (0, 2000, 40000, 200000)]),
        (TEXT_NODE, node),
        (TEXT_PROP, PROPS),
        (TEXT_ACCESS, ACCESSES),
        (TEXT_POOL, POOLS),
        (TEXT_INSTANTIATION, [struct.pack("<QQQi4x", flags, 0, 0, 0) for flags in (0, 1, 2, 2, 3, 4)]),
        # CUdevResource: its type, and how many multiprocessors
        (TEXT_RESOURCE, [struct.pack("<i92xI44x", *resource) for resource in ((1, 8), (1, 16), (1, 16), (1, 0), (0, 8))]),
        (TEXT_ARRAY, [form for shape in ARRAYS for form in array_forms(shape)]),
        (TEXT_PLACE, [struct.pack("<ii", *place) for place in ((1, 0), (1, 1), (1, 5), (2, 0), (3, 0), (9, 0))]),
    ]
    return [(first + i, text) for first, group in groups for i, text in enumerate(group)]

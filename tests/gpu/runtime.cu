/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program of NVIDIA's runtime that uses much of it: to be built by nvcc with -cudart static and
 * shared (-rdc=true -lcudadevrt, for kernels that launch kernels). Says a line for each step.
 */

#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace cg = cooperative_groups;

static int failures;

static bool good(cudaError_t error, const char *what, int line)
{
    if (error == cudaSuccess)
        return true;
    throw std::string(what) + ", line " + std::to_string(line) + ": " + cudaGetErrorName(error);
}

#define MUST(call) good(call, #call, __LINE__)
#define HOLDS(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            throw std::string(#condition) + " does not hold, line " + std::to_string(__LINE__);                        \
    } while (0)

static void step(const char *name, std::function<void()> run)
{
    try {
        run();
        MUST(cudaDeviceSynchronize());
        printf("ok: %s\n", name);
    } catch (const std::string &why) {
        failures++;
        printf("FAIL: %s: %s\n", name, why.c_str());
        (void)cudaGetLastError();
    }
    fflush(stdout);
}

__global__ void fill(int *a, int value, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count)
        a[i] = value;
}

__global__ void increment(int *a)
{
    atomicAdd(a, 1);
}

__global__ void parent(int *a)
{
    increment<<<4, 32>>>(a);
}

__global__ void grid_wide(int *a)
{
    atomicAdd(a, 1);
    cg::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0)
        a[1] = a[0];
}

__global__ void __cluster_dims__(2, 1, 1) clustered(int *a)
{
    cg::this_cluster().sync();
    if (threadIdx.x == 0)
        atomicAdd(a, (int)cg::this_cluster().num_blocks());
}

__global__ void from_heap(int *a)
{
    int *mine = (int *)malloc(256);

    if (mine) {
        mine[0] = 7;
        a[threadIdx.x] = mine[0];
        free(mine);
    }
}

__global__ void speaking()
{
    printf("a kernel speaks\n");
}

__managed__ int shared_by_both;
__constant__ int constant;
__device__ int of_device[1024];

__global__ void use_symbols()
{
    shared_by_both = constant + of_device[3];
}

__global__ void from_texture(cudaTextureObject_t texture, float *out)
{
    out[threadIdx.x] = tex2D<float>(texture, threadIdx.x + 0.5f, 0.5f);
}

template <int size> __global__ void deep(int *a, int depth)
{
    volatile int local[size];

    for (int i = 0; i < size; i++)
        local[i] = i + depth;
    a[threadIdx.x] = local[(depth * 37) % size];
}

__global__ void count_down(int *left, cudaGraphConditionalHandle handle)
{
    if (--*left == 0)
        cudaGraphSetConditional(handle, 0);
}

static int read_int(const int *from)
{
    int value;

    MUST(cudaMemcpy(&value, from, sizeof(value), cudaMemcpyDefault));
    return value;
}

int main()
{
    size_t limit = strtoull(getenv("GPU_TEST_LIMIT") ? getenv("GPU_TEST_LIMIT") : "0", NULL, 0);
    int *a = NULL;
    int version = 0;

    (void)cudaRuntimeGetVersion(&version);
    step("memory is told", [&] {
        size_t free_bytes, total;
        cudaDeviceProp properties;

        MUST(cudaMemGetInfo(&free_bytes, &total));
        MUST(cudaGetDeviceProperties(&properties, 0));
        printf("      runtime %d: %zu of %zu MiB free\n", version, free_bytes >> 20, total >> 20);
        HOLDS(!limit || (total == limit && properties.totalGlobalMem == limit));
    });
    step("a kernel", [&] {
        MUST(cudaMalloc(&a, 1 << 20));
        fill<<<1024, 256>>>(a, 5, 1 << 18);
        HOLDS(read_int(a + 1000) == 5);
    });
    step("a cooperative launch", [&] {
        void *arguments[] = {&a};

        MUST(cudaMemset(a, 0, 8));
        MUST(cudaLaunchCooperativeKernel((void *)grid_wide, dim3(64), dim3(32), arguments, 0, 0));
        HOLDS(read_int(a + 1) == 2048);
    });
    step("a cluster", [&] {
        MUST(cudaMemset(a, 0, 8));
        clustered<<<4, 32>>>(a);
        MUST(cudaGetLastError());
        HOLDS(read_int(a) == 8);
    });
    step("a launch with attributes", [&] {
        cudaLaunchConfig_t config = {};
        cudaLaunchAttribute attributes[2] = {};

        attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[0].val.programmaticStreamSerializationAllowed = 1;
        attributes[1].id = cudaLaunchAttributePriority;
        attributes[1].val.priority = 0;
        config.gridDim = dim3(4);
        config.blockDim = dim3(32);
        config.attrs = attributes;
        config.numAttrs = 2;
        MUST(cudaMemset(a, 0, 8));
        for (int i = 0; i < 3; i++)
            MUST(cudaLaunchKernelEx(&config, increment, a));
        HOLDS(read_int(a) == 384);
    });
    step("a kernel launches kernels", [&] {
        MUST(cudaMemset(a, 0, 8));
        parent<<<2, 1>>>(a);
        MUST(cudaGetLastError());
        MUST(cudaDeviceSynchronize());
        HOLDS(read_int(a) == 256);
    });
    step("a kernel's heap", [&] {
        from_heap<<<1, 32>>>(a);
        HOLDS(read_int(a + 31) == 7);
    });
    step("a kernel's stack", [&] {
        deep<512><<<132, 256>>>(a, 3);
        MUST(cudaGetLastError());
        HOLDS(read_int(a) == (3 * 37) % 512 + 3);
    });
    step("a kernel's stack that is too large", [&] {
        cudaDeviceProp properties;

        if (!limit)
            return;
        MUST(cudaGetDeviceProperties(&properties, 0));
        if (16384ull * properties.multiProcessorCount * properties.maxThreadsPerMultiProcessor < limit)
            return;
        deep<4096><<<1, 1>>>(a, 3);
        HOLDS(cudaGetLastError() == cudaErrorMemoryAllocation);
    });
    step("a kernel's words", [&] { speaking<<<1, 1>>>(); });
    step("symbols", [&] {
        int three = 3, four[4] = {0, 0, 0, 4};
        void *address;
        size_t size;

        MUST(cudaMemcpyToSymbol(constant, &three, sizeof(three)));
        MUST(cudaMemcpyToSymbol(of_device, four, sizeof(four)));
        MUST(cudaGetSymbolAddress(&address, of_device));
        MUST(cudaGetSymbolSize(&size, of_device));
        use_symbols<<<1, 1>>>();
        MUST(cudaDeviceSynchronize());
        HOLDS(shared_by_both == 7 && size == 4096);
    });
    step("a texture", [&] {
        cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
        cudaArray_t array;
        cudaResourceDesc resource = {};
        cudaTextureDesc how = {};
        cudaTextureObject_t texture;
        float numbers[64], *out = (float *)a, back;

        for (int i = 0; i < 64; i++)
            numbers[i] = (float)i;
        MUST(cudaMallocArray(&array, &format, 64, 1));
        MUST(cudaMemcpy2DToArray(array, 0, 0, numbers, sizeof(numbers), sizeof(numbers), 1, cudaMemcpyHostToDevice));
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
        how.filterMode = cudaFilterModePoint;
        MUST(cudaCreateTextureObject(&texture, &resource, &how, NULL));
        from_texture<<<1, 64>>>(texture, out);
        MUST(cudaMemcpy(&back, out + 42, sizeof(back), cudaMemcpyDefault));
        HOLDS(back == 42);
        MUST(cudaDestroyTextureObject(texture));
        MUST(cudaFreeArray(array));
    });
    step("a mipmapped array", [&] {
        cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
        cudaMipmappedArray_t array;
        cudaArray_t level;

        MUST(cudaMallocMipmappedArray(&array, &format, make_cudaExtent(256, 256, 0), 5));
        MUST(cudaGetMipmappedArrayLevel(&level, array, 2));
        MUST(cudaFreeMipmappedArray(array));
    });
    step("memory in the order of a stream", [&] {
        cudaStream_t stream;
        cudaMemPool_t pool;
        cudaMemPoolProps properties = {};
        int *piece;

        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        MUST(cudaMallocAsync(&piece, 64 << 20, stream));
        fill<<<64, 256, 0, stream>>>(piece, 9, 16384);
        MUST(cudaFreeAsync(piece, stream));
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        MUST(cudaMemPoolCreate(&pool, &properties));
        MUST(cudaMallocFromPoolAsync(&piece, 64 << 20, pool, stream));
        fill<<<64, 256, 0, stream>>>(piece, 9, 16384);
        MUST(cudaFreeAsync(piece, stream));
        MUST(cudaStreamSynchronize(stream));
        MUST(cudaMemPoolDestroy(pool));
        MUST(cudaStreamDestroy(stream));
    });
    step("managed memory", [&] {
        cudaMemLocation there = {cudaMemLocationTypeDevice, 0};
        int *both;

        MUST(cudaMallocManaged(&both, 256 << 20));
        both[5] = 1;
        MUST(cudaMemPrefetchAsync(both, 256 << 20, there, 0, 0));
        fill<<<1024, 256>>>(both, 8, 1 << 18);
        MUST(cudaDeviceSynchronize());
        HOLDS(both[5] == 8);
        MUST(cudaFree(both));
    });
    step("host memory", [&] {
        int *pinned, *mapped;
        std::vector<int> own(1 << 20);

        MUST(cudaMallocHost(&pinned, 1 << 20));
        MUST(cudaHostAlloc(&mapped, 1 << 20, cudaHostAllocMapped));
        MUST(cudaHostRegister(own.data(), own.size() * sizeof(int), cudaHostRegisterDefault));
        fill<<<1, 32>>>(mapped, 6, 32);
        MUST(cudaDeviceSynchronize());
        HOLDS(mapped[31] == 6);
        MUST(cudaMemcpyAsync(pinned, a, 1 << 20, cudaMemcpyDefault, 0));
        MUST(cudaHostUnregister(own.data()));
        MUST(cudaFreeHost(mapped));
        MUST(cudaFreeHost(pinned));
    });
    step("a captured graph with memory of its own", [&] {
        cudaStream_t stream;
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        int *piece;

        MUST(cudaStreamCreate(&stream));
        MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        MUST(cudaMallocAsync(&piece, 8 << 20, stream));
        fill<<<64, 256, 0, stream>>>(piece, 11, 16384);
        MUST(cudaMemcpyAsync(a, piece, 4096, cudaMemcpyDeviceToDevice, stream));
        MUST(cudaFreeAsync(piece, stream));
        MUST(cudaStreamEndCapture(stream, &graph));
        MUST(cudaGraphInstantiate(&executable, graph, 0));
        for (int i = 0; i < 5; i++)
            MUST(cudaGraphLaunch(executable, stream));
        MUST(cudaStreamSynchronize(stream));
        HOLDS(read_int(a + 7) == 11);
        MUST(cudaGraphExecDestroy(executable));
        MUST(cudaGraphDestroy(graph));
        MUST(cudaDeviceGraphMemTrim(0));
        MUST(cudaStreamDestroy(stream));
    });
    step("a graph that loops", [&] {
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        cudaGraphConditionalHandle handle;
        cudaGraphNode_t node, inner;
        cudaGraphNodeParams parameters = {}, kernel = {};
        int ten = 10;

        MUST(cudaMemcpy(a, &ten, sizeof(ten), cudaMemcpyDefault));
        MUST(cudaGraphCreate(&graph, 0));
        MUST(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
        parameters.type = cudaGraphNodeTypeConditional;
        parameters.conditional.handle = handle;
        parameters.conditional.type = cudaGraphCondTypeWhile;
        parameters.conditional.size = 1;
        MUST(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &parameters));
        void *arguments[] = {&a, &handle};
        kernel.type = cudaGraphNodeTypeKernel;
        kernel.kernel.func = (void *)count_down;
        kernel.kernel.gridDim = dim3(1);
        kernel.kernel.blockDim = dim3(1);
        kernel.kernel.kernelParams = arguments;
        MUST(cudaGraphAddNode(&inner, parameters.conditional.phGraph_out[0], NULL, NULL, 0, &kernel));
        MUST(cudaGraphInstantiate(&executable, graph, 0));
        MUST(cudaGraphLaunch(executable, 0));
        MUST(cudaDeviceSynchronize());
        HOLDS(read_int(a) == 0);
        MUST(cudaGraphExecDestroy(executable));
        MUST(cudaGraphDestroy(graph));
    });
    step("a graph that is changed and uploaded", [&] {
        cudaStream_t stream;
        cudaGraph_t graph, other;
        cudaGraphExec_t executable;
        cudaGraphExecUpdateResultInfo result;

        MUST(cudaStreamCreate(&stream));
        for (int i = 0; i < 2; i++) {
            MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            fill<<<1, 32, 0, stream>>>(a, 20 + i, 32);
            MUST(cudaStreamEndCapture(stream, i ? &other : &graph));
        }
        MUST(cudaGraphInstantiate(&executable, graph, 0));
        MUST(cudaGraphUpload(executable, stream));
        MUST(cudaGraphExecUpdate(executable, other, &result));
        MUST(cudaGraphLaunch(executable, stream));
        MUST(cudaStreamSynchronize(stream));
        HOLDS(read_int(a) == 21);
        MUST(cudaGraphExecDestroy(executable));
        MUST(cudaGraphDestroy(graph));
        MUST(cudaGraphDestroy(other));
        MUST(cudaStreamDestroy(stream));
    });
    step("threads", [&] {
        std::vector<std::thread> threads;

        MUST(cudaMemset(a, 0, 4));
        for (int i = 0; i < 8; i++)
            threads.emplace_back([&] {
                for (int k = 0; k < 200; k++) {
                    int *piece = NULL;

                    (void)cudaMalloc(&piece, 1 << 16);
                    increment<<<1, 1, 0, cudaStreamPerThread>>>(a);
                    (void)cudaFree(piece);
                }
                (void)cudaStreamSynchronize(cudaStreamPerThread);
            });
        for (auto &thread : threads)
            thread.join();
        HOLDS(read_int(a) == 1600);
    });
    step("a callback, events and priorities", [&] {
        static int called;
        cudaStream_t high;
        cudaEvent_t start, end;
        float took;
        int least, greatest;

        MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        MUST(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, greatest));
        MUST(cudaEventCreate(&start));
        MUST(cudaEventCreateWithFlags(&end, cudaEventDefault));
        MUST(cudaEventRecord(start, high));
        fill<<<1024, 256, 0, high>>>(a, 1, 1 << 18);
        MUST(cudaEventRecord(end, high));
        MUST(cudaLaunchHostFunc(high, [](void *) { called = 1; }, NULL));
        MUST(cudaStreamSynchronize(high));
        MUST(cudaEventElapsedTime(&took, start, end));
        HOLDS(called == 1 && took > 0);
        MUST(cudaStreamDestroy(high));
    });
    step("an error does no harm", [&] {
        fill<<<1, 4096>>>(a, 1, 1);
        HOLDS(cudaGetLastError() != cudaSuccess);
        HOLDS(cudaFree((void *)0x1234) == cudaErrorInvalidValue);
        (void)cudaGetLastError();
    });
    step("too much is refused", [&] {
        void *much;

        if (!limit)
            return;
        HOLDS(cudaMalloc(&much, limit) == cudaErrorMemoryAllocation);
        (void)cudaGetLastError();
        HOLDS(cudaMallocAsync(&much, limit, 0) == cudaErrorMemoryAllocation);
        (void)cudaGetLastError();
    });
    step("a stack is set", [&] {
        size_t size;

        MUST(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
        MUST(cudaDeviceGetLimit(&size, cudaLimitStackSize));
        HOLDS(size == 4096);
        MUST(cudaDeviceSetLimit(cudaLimitStackSize, 1024));
    });
    step("the device is reset, and begun anew", [&] {
        size_t before, after, total;

        MUST(cudaMemGetInfo(&before, &total));
        MUST(cudaMalloc(&a, 1 << 30));
        MUST(cudaDeviceReset());
        MUST(cudaMemGetInfo(&after, &total));
        HOLDS(!limit || after + (512 << 20) > before);
        MUST(cudaMalloc(&a, 1 << 20));
        fill<<<1024, 256>>>(a, 5, 1 << 18);
        HOLDS(read_int(a + 1000) == 5);
    });
    printf("%d failed\n", failures);
    return failures != 0;
}

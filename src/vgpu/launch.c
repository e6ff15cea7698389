/* SPDX-License-Identifier: Apache-2.0 */

/* Launches, in all their forms. */

#include "vgpu/compute.h"
#include "vgpu/graph_homes.h"
#include "vgpu/graphs.h"
#include "vgpu/real.h"

static bool is_limited(void)
{
    return atomic_load_explicit(&vgpu.limited_compute, memory_order_relaxed);
}

/*
 * The body of a launching function: a call that ends in the driver's, between asking and telling
 * the limiter unless the thread has paid for it already, or there is no limit and it is not this
 * one's turn to be counted.
 */
#define LAUNCH_BY(name, call, ...)                                                                 \
    struct compute_ticket ticket;                                                                  \
    CUresult result;                                                                               \
                                                                                                   \
    const struct launch launch = {__VA_ARGS__};                                                    \
    if (!is_limited() && compute_passes(&launch))                                                  \
        return call;                                                                               \
    if (!REAL(name))                                                                               \
        (void)vgpu_mode();                                                                         \
    if (!REAL(name))                                                                               \
        return CUDA_ERROR_NOT_FOUND;                                                               \
    if (is_limited() && compute_pays(&launch)) {                                                   \
        const unsigned epoch = launch_cache.epoch;                                                 \
        result = call;                                                                             \
        if (compute_may_stray(&launch, epoch))                                                     \
            compute_strayed(&launch, epoch, result);                                               \
        return result;                                                                             \
    }                                                                                              \
    result = compute_admit(&launch, &ticket);                                                      \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    result = call;                                                                                 \
    compute_launched(&launch, &ticket, result);                                                    \
    return result

#define LAUNCH(name, call, ...) LAUNCH_BY(name, REAL(name) call, __VA_ARGS__)

/* For what is seldom launched. */
#define LAUNCH_SELDOM(name, call, ...)                                                             \
    struct compute_flight flight;                                                                  \
    const struct launch launch = {__VA_ARGS__};                                                    \
    CUresult result = compute_begin(&launch, &flight);                                             \
                                                                                                   \
    return result == CUDA_SUCCESS ? compute_end(&launch, &flight, REAL(name) call) : result

PUBLIC CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                               unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                               void **params, void **extra)
{
    LAUNCH(cuLaunchKernel,
           (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
            params, extra),
           .function = function, .grid = {grid_x, grid_y, grid_z},
           .block = {block_x, block_y, block_z}, .stream = stream);
}

PUBLIC CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                    unsigned int block_z, unsigned int shared_bytes,
                                    CUstream stream, void **params, void **extra)
{
    LAUNCH(cuLaunchKernel_ptsz,
           (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
            params, extra),
           .function = function, .grid = {grid_x, grid_y, grid_z},
           .block = {block_x, block_y, block_z}, .stream = stream, .per_thread = true);
}

/*
 * The shape of an extended launch; without a configuration the driver refuses it anyway. The driver
 * is given what was looked at: in the caller's memory another thread could change the stream, and
 * with it the device, in between.
 */
static struct launch extended(const CUlaunchConfig **config, CUlaunchConfig *own)
{
    struct launch launch = {0};

    if (*config) {
        *own = **config;
        *config = own;
        launch.grid[0] = own->gridDimX;
        launch.grid[1] = own->gridDimY;
        launch.grid[2] = own->gridDimZ;
        launch.block[0] = own->blockDimX;
        launch.block[1] = own->blockDimY;
        launch.block[2] = own->blockDimZ;
        launch.stream = own->hStream;
    }
    return launch;
}

PUBLIC CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                                 void **extra)
{
    CUlaunchConfig own;
    struct launch shape = extended(&config, &own);

    LAUNCH(cuLaunchKernelEx, (config, function, params, extra), .function = function,
           .grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
           .block = {shape.block[0], shape.block[1], shape.block[2]}, .stream = shape.stream);
}

PUBLIC CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function,
                                      void **params, void **extra)
{
    CUlaunchConfig own;
    struct launch shape = extended(&config, &own);

    LAUNCH(cuLaunchKernelEx_ptsz, (config, function, params, extra), .function = function,
           .grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
           .block = {shape.block[0], shape.block[1], shape.block[2]}, .stream = shape.stream,
           .per_thread = true);
}

PUBLIC CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                          unsigned int grid_y, unsigned int grid_z,
                                          unsigned int block_x, unsigned int block_y,
                                          unsigned int block_z, unsigned int shared_bytes,
                                          CUstream stream, void **params)
{
    LAUNCH_SELDOM(
        cuLaunchCooperativeKernel,
        (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params),
        .function = function, .grid = {grid_x, grid_y, grid_z},
        .block = {block_x, block_y, block_z}, .stream = stream, .kind = REGION_LAUNCH_COOPERATIVE);
}

PUBLIC CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x,
                                               unsigned int grid_y, unsigned int grid_z,
                                               unsigned int block_x, unsigned int block_y,
                                               unsigned int block_z, unsigned int shared_bytes,
                                               CUstream stream, void **params)
{
    LAUNCH_SELDOM(
        cuLaunchCooperativeKernel_ptsz,
        (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params),
        .function = function, .grid = {grid_x, grid_y, grid_z},
        .block = {block_x, block_y, block_z}, .stream = stream, .per_thread = true,
        .kind = REGION_LAUNCH_COOPERATIVE);
}

enum {
    LAUNCHES_AT_ONCE = REGION_DEVICES,
};

static struct launch one_of_many(const CUDA_LAUNCH_PARAMS *params)
{
    return (struct launch){
        .function = params->function,
        .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
        .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
        .stream = params->hStream,
        .kind = REGION_LAUNCH_COOPERATIVE,
    };
}

/*
 * One launch on several devices: paid for on each. The driver is given the list that was paid for;
 * a longer one than there can be devices it would refuse.
 */
PUBLIC CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int devices,
                                                     unsigned int flags)
{
    struct compute_ticket tickets[LAUNCHES_AT_ONCE];
    struct launch launches[LAUNCHES_AT_ONCE];
    CUDA_LAUNCH_PARAMS own[LAUNCHES_AT_ONCE];
    CUresult result = CUDA_SUCCESS;
    unsigned paid = 0;

    (void)vgpu_mode();
    if (!list)
        return REAL(cuLaunchCooperativeKernelMultiDevice)(NULL, devices, flags);
    if (devices > LAUNCHES_AT_ONCE)
        return CUDA_ERROR_INVALID_VALUE;
    for (; paid < devices && result == CUDA_SUCCESS; paid++) {
        own[paid] = list[paid];
        launches[paid] = one_of_many(&own[paid]);
        result = compute_admit(&launches[paid], &tickets[paid]);
    }
    if (result == CUDA_SUCCESS) {
        for (unsigned i = 0; i < paid; i++)
            tickets[i].is_list = true;
        result = REAL(cuLaunchCooperativeKernelMultiDevice)(own, devices, flags);
    }
    for (unsigned i = 0; i < paid; i++)
        compute_launched(&launches[i], &tickets[i], result);
    return result;
}

PUBLIC CUresult cuLaunch(CUfunction function)
{
    LAUNCH_SELDOM(cuLaunch, (function), .function = function, .grid = {1, 1, 1});
}

PUBLIC CUresult cuLaunchGrid(CUfunction function, int grid_width, int grid_height)
{
    LAUNCH_SELDOM(cuLaunchGrid, (function, grid_width, grid_height), .function = function,
                  .grid = {(uint32_t)grid_width, (uint32_t)grid_height, 1});
}

PUBLIC CUresult cuLaunchGridAsync(CUfunction function, int grid_width, int grid_height,
                                  CUstream stream)
{
    LAUNCH_SELDOM(cuLaunchGridAsync, (function, grid_width, grid_height, stream),
                  .function = function, .grid = {(uint32_t)grid_width, (uint32_t)grid_height, 1},
                  .stream = stream);
}

/* A launch of a graph. */
struct run {
    CUgraphExec exec;
    CUstream stream;
    bool per_thread;
    unsigned devices; /* on which it was paid for if not, or not only, on its stream's; else none */
    bool asked;       /* the driver was, which may refuse it when a part of it runs */
    bool changed;     /* the graph is another one by now, on other devices */
};

/* Where a graph runs if that is not, or not only, the device that it is launched on; else nowhere.
 */
static unsigned devices_of(const struct run *run)
{
    struct vgpu_device *device;
    unsigned devices;

    if (!graph_homes_matter() || !is_limited() ||
        atomic_load_explicit(&contexts_live, memory_order_relaxed) < 2 || vgpu_mode() != VGPU_ON ||
        compute_stream_device(run->stream, run->per_thread, &device) != CUDA_SUCCESS)
        return 0;
    devices = graph_homes_of(run->exec);
    return devices == 1u << (device - vgpu.devices) ? 0 : devices;
}

/* One that allocates takes memory as it is launched. What was looked at before holds only with the
 * lock, under which no graph ends, or while no other one is made of the handle. */
static CUresult start_graph(struct run *run)
{
    struct graphs_launch launch;
    CUresult result = graphs_begin_launch(&launch, run->exec, run->stream, run->per_thread);

    if (result != CUDA_SUCCESS)
        return result;
    run->changed = devices_of(run) != run->devices;
    run->asked = !run->changed;
    if (run->asked)
        graphs_let_go(&launch, run->exec);
    if (run->changed)
        result = CUDA_ERROR_NOT_READY;
    else if (run->per_thread)
        result = REAL(cuGraphLaunch_ptsz)(run->exec, run->stream);
    else
        result = REAL(cuGraphLaunch)(run->exec, run->stream);
    graphs_end_launch(&launch);
    return result;
}

/* A graph is a launch whose cost is the sum of its nodes'. */
static struct launch launch_of(const struct run *run)
{
    return (struct launch){
        .function = (void *)((uintptr_t)run->exec | 1), /* no function's handle, now or later */
        .stream = run->stream,
        .per_thread = run->per_thread,
        .kind = REGION_LAUNCH_GRAPH,
    };
}

static CUresult run_here(struct run *run)
{
    const struct launch launch = launch_of(run);
    struct compute_flight flight;
    CUresult result = compute_begin(&launch, &flight);

    if (result != CUDA_SUCCESS)
        return result;
    result = start_graph(run);
    flight.ticket.is_list = run->asked;
    return compute_end(&launch, &flight, result);
}

static CUresult run_elsewhere(struct run *run)
{
    const struct launch launch = launch_of(run);
    struct compute_spread spread;
    CUresult result = compute_admit_spread(&launch, run->devices, &spread);

    if (result == CUDA_SUCCESS)
        result = start_graph(run);
    spread.own.is_list = run->asked;
    compute_launched_spread(&launch, &spread, result);
    return result;
}

static CUresult launch_graph(CUgraphExec exec, CUstream stream, bool per_thread)
{
    struct run run = {.exec = exec, .stream = stream, .per_thread = per_thread};
    CUresult result;

    (void)real_driver();
    do {
        run.asked = run.changed = false;
        run.devices = devices_of(&run);
        result = run.devices ? run_elsewhere(&run) : run_here(&run);
    } while (run.changed);
    return result;
}

PUBLIC CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return launch_graph(exec, stream, false);
}

PUBLIC CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch_graph(exec, stream, true);
}

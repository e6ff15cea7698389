/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Launches. A simulated kernel takes the time that its first parameter says: a uint64_t of
 * nanoseconds, at most an hour; none when there are no parameters. The second one is a flag's
 * number where its module says so. Of the multiprocessors it fills one for each of its blocks.
 */

#include "base/util.h"
#include "simdriver/graph.h"
#include "simdriver/guest.h"
#include "simdriver/module.h"

#define WORK_MAX_NS UINT64_C(3600000000000)

/* The first two parameters, as far as a kernel has them. */
struct parameters {
    uint64_t values[2];
};

/* The list of marks and values that stands for the parameters: "buffer is", "its size is". */
static struct parameters parameters_of_buffer(void **extra)
{
    struct parameters parameters = {0};
    const void *buffer = NULL;
    size_t size = 0;

    for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = *(const size_t *)extra[1];
        else
            return parameters;
    }
    size = MIN(size, sizeof(parameters)) / sizeof(uint64_t) * sizeof(uint64_t);
    if (buffer && size)
        memcpy(&parameters, buffer, size);
    return parameters;
}

static struct parameters read_parameters(CUfunction handle, void **params, void **extra)
{
    struct parameters parameters = {0};
    struct module_facts function;
    bool has_second =
        module_look_up(handle, &function) && function.role && function.role != SIM_ROLE_FAULTS;
    unsigned count = has_second ? 2 : 1;

    if (!params && extra)
        return parameters_of_buffer(extra);
    for (unsigned i = 0; params && i < count && params[i]; i++)
        memcpy(&parameters.values[i], params[i], sizeof(parameters.values[i]));
    return parameters;
}

/* Others have their part while they are launched. */
static bool is_of_the_model(const struct module_facts *kernel)
{
    return kernel->role != SIM_ROLE_TOUCHES && kernel->role != SIM_ROLE_COUNTS;
}

static uint32_t weight_of(unsigned device, const unsigned grid[3])
{
    uint64_t all = sim_spec_of(guest_state(), device)->multiprocessors;
    uint64_t blocks = 1;

    for (unsigned i = 0; i < 3; i++) {
        blocks *= MIN(grid[i], all);
        blocks = MIN(blocks, all);
    }
    return (uint32_t)blocks;
}

/* Locked before, unlocked after. */
static CUresult launch_now(uint32_t stream, struct sim_op *op)
{
    const struct sim_stream *st = &guest_state()->streams[stream];
    CUresult r = guest_launch(stream, op);

    if (r == CUDA_SUCCESS && guest.blocking)
        r = guest_wait(stream, st->tail, st->enqueued_ns);
    else
        sim_unlock(guest.sim);
    return r;
}

/* In which context it runs a function knows, and a kernel, which has none, becomes one of. The
 * context that parameters name tells where a kernel runs, and nothing beside a function. */
static struct graph_node node_of(const CUDA_KERNEL_NODE_PARAMS *params,
                                 const struct module_facts *kernel, const struct sim_op *op,
                                 const struct parameters *parameters, uint32_t context)
{
    struct graph_node node = {
        .type = CU_GRAPH_NODE_TYPE_KERNEL,
        .op = *op,
        .context = context,
        .context_gen = guest_context(context)->gen,
        .kernel = *params,
        .local_bytes = kernel->local_bytes,
        .counts = kernel->role == SIM_ROLE_COUNTS,
    };

    memcpy(node.values, parameters->values, sizeof(node.values));
    if (params->kern && !params->func)
        node.kernel.ctx = guest_context_handle(context);
    else
        node.kernel.func = kernel->handle;
    node.kernel.extra = NULL;
    return node;
}

static CUresult capture(uint32_t stream, const struct module_facts *kernel, const struct sim_op *op,
                        const unsigned grid[3], const unsigned block[3],
                        const struct parameters *parameters)
{
    const CUDA_KERNEL_NODE_PARAMS params = {
        .gridDimX = grid[0],
        .gridDimY = grid[1],
        .gridDimZ = grid[2],
        .blockDimX = block[0],
        .blockDimY = block[1],
        .blockDimZ = block[2],
    };
    struct graph_node node =
        node_of(&params, kernel, op, parameters, guest_state()->streams[stream].context);

    return guest_capture_node(stream, &node);
}

/* Makes the context's stack grow, unless nothing runs yet: for a graph it grows where that is made
 * executable. */
static CUresult grow_stack(const struct module_facts *kernel, CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r;

    if (!kernel->local_bytes)
        return CUDA_SUCCESS;
    r = (per_thread ? cuStreamIsCapturing_ptsz : cuStreamIsCapturing)(stream, &status);
    if (r != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
        return CUDA_SUCCESS;
    return guest_grow_stack(kernel->context, kernel->context_gen, kernel->local_bytes);
}

static CUresult launch(CUfunction function, const unsigned grid[3], const unsigned block[3],
                       CUstream stream, bool per_thread, struct parameters parameters)
{
    struct sim_op op = {
        .kind = SIM_OP_KERNEL,
        .work_ns = (int64_t)MIN(parameters.values[0], WORK_MAX_NS),
        .target = (uint32_t)MIN(parameters.values[1], (uint64_t)SIM_FLAGS),
    };
    struct module_facts kernel;
    uint32_t i, context;
    unsigned device;
    CUresult r;

    r = guest_current(&context);
    if (r == CUDA_SUCCESS)
        r = module_prepare(function, context, &kernel);
    if (r == CUDA_SUCCESS)
        r = grow_stack(&kernel, stream, per_thread);
    if (r != CUDA_SUCCESS)
        return r;
    if (is_of_the_model(&kernel))
        op.gen = kernel.role;
    else
        op.target = 0;
    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    device = guest_context(guest_state()->streams[i].context)->device;
    op.weight = weight_of(device, grid);

    if (!op.weight || !block[0] || !block[1] || !block[2] || (op.gen && op.target == SIM_FLAGS))
        r = CUDA_ERROR_INVALID_VALUE;
    else if (guest_is_capturing(i))
        r = capture(i, &kernel, &op, grid, block, &parameters);
    else
        r = guest_check_legacy(i, false);
    if (r == CUDA_SUCCESS && !guest_is_capturing(i)) {
        if (kernel.role == SIM_ROLE_TOUCHES)
            guest_managed_touch(parameters.values[1], device);
        return launch_now(i, &op);
    }
    sim_unlock(guest.sim);
    return r;
}

CUresult guest_make_kernel(const CUDA_KERNEL_NODE_PARAMS *params, uint32_t context,
                           struct graph_node *ret_node)
{
    CUfunction function = params->func ? params->func : (CUfunction)params->kern;
    const unsigned grid[] = {params->gridDimX, params->gridDimY, params->gridDimZ};
    struct module_facts kernel;
    struct parameters parameters;
    struct sim_op op;
    CUresult r = module_prepare(function, context, &kernel);

    if (r != CUDA_SUCCESS)
        return r;
    context = kernel.context;
    parameters = read_parameters(function, params->kernelParams, params->extra);
    op = (struct sim_op){
        .kind = SIM_OP_KERNEL,
        .work_ns = (int64_t)MIN(parameters.values[0], WORK_MAX_NS),
        .target = (uint32_t)MIN(parameters.values[1], (uint64_t)SIM_FLAGS),
        .gen = is_of_the_model(&kernel) ? kernel.role : 0,
        .weight = weight_of(guest_context(context)->device, grid),
    };
    op.target = is_of_the_model(&kernel) ? op.target : 0;
    *ret_node = node_of(params, &kernel, &op, &parameters, context);
    if (!op.weight || !params->blockDimX || !params->blockDimY || !params->blockDimZ ||
        (op.gen && op.target == SIM_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult guest_launch(uint32_t stream, struct sim_op *op)
{
    unsigned device = guest_context(guest_state()->streams[stream].context)->device;
    CUresult r;

    guest.may_fault |= op->gen == SIM_ROLE_FAULTS;
    r = guest_append(stream, op);
    if (r == CUDA_SUCCESS)
        guest_state()->processes[guest.sim->slot].usage[device].launches++;
    return r;
}

PUBLIC CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                               unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                               void **params, void **extra)
{
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};

    (void)shared_bytes;
    return launch(function, grid, block, stream, false, read_parameters(function, params, extra));
}

PUBLIC CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                    unsigned int block_z, unsigned int shared_bytes,
                                    CUstream stream, void **params, void **extra)
{
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};

    (void)shared_bytes;
    return launch(function, grid, block, stream, true, read_parameters(function, params, extra));
}

static CUresult launch_config(const CUlaunchConfig *config, CUfunction function, void **params,
                              void **extra, bool per_thread)
{
    if (!config)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    return launch(function,
                  (const unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ},
                  (const unsigned[]){config->blockDimX, config->blockDimY, config->blockDimZ},
                  config->hStream, per_thread, read_parameters(function, params, extra));
}

PUBLIC CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                                 void **extra)
{
    return launch_config(config, function, params, extra, false);
}

PUBLIC CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function,
                                      void **params, void **extra)
{
    return launch_config(config, function, params, extra, true);
}

PUBLIC CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                          unsigned int grid_y, unsigned int grid_z,
                                          unsigned int block_x, unsigned int block_y,
                                          unsigned int block_z, unsigned int shared_bytes,
                                          CUstream stream, void **params)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          stream, params, NULL);
}

PUBLIC CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x,
                                               unsigned int grid_y, unsigned int grid_z,
                                               unsigned int block_x, unsigned int block_y,
                                               unsigned int block_z, unsigned int shared_bytes,
                                               CUstream stream, void **params)
{
    return cuLaunchKernel_ptsz(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                               shared_bytes, stream, params, NULL);
}

/* Each of the list is for a device of its own. What has no stream is told by its launch. */
static bool has_a_device_each(const CUDA_LAUNCH_PARAMS *list, unsigned count)
{
    bool seen[SIM_DEVICES] = {false};
    uint32_t stream;

    if (count > guest.device_count)
        return false;
    for (unsigned i = 0; i < count; i++) {
        unsigned device;

        if (guest_enter_stream(list[i].hStream, false, &stream) != CUDA_SUCCESS)
            continue;
        device = guest_context(guest_state()->streams[stream].context)->device;
        sim_unlock(guest.sim);
        if (seen[device])
            return false;
        seen[device] = true;
    }
    return true;
}

PUBLIC CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int devices,
                                                     unsigned int flags)
{
    CUresult r = guest_check();

    (void)flags;
    if (r != CUDA_SUCCESS)
        return r;
    if (!list || !devices || !has_a_device_each(list, devices))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < devices && r == CUDA_SUCCESS; i++) {
        const CUDA_LAUNCH_PARAMS *p = &list[i];

        r = launch(p->function, (const unsigned[]){p->gridDimX, p->gridDimY, p->gridDimZ},
                   (const unsigned[]){p->blockDimX, p->blockDimY, p->blockDimZ}, p->hStream, false,
                   read_parameters(p->function, p->kernelParams, NULL));
    }
    return r;
}

/* The interface of old: the parameters are set beforehand, of which the first is looked at. */

PUBLIC CUresult cuParamSetv(CUfunction handle, int offset, void *bytes, unsigned int size)
{
    struct module_facts function;
    bool found = module_look_up(handle, &function);
    CUresult r = guest_check();
    uint64_t first;

    if (r != CUDA_SUCCESS)
        return r;
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (offset < 0 || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (offset > 0 || size < sizeof(first))
        return CUDA_SUCCESS;
    memcpy(&first, bytes, sizeof(first));
    return module_set_first(handle, first) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

PUBLIC CUresult cuLaunchGridAsync(CUfunction handle, int grid_width, int grid_height,
                                  CUstream stream)
{
    struct module_facts function;
    bool found = module_look_up(handle, &function);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (grid_width <= 0 || grid_height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    return launch(handle, (const unsigned[]){(unsigned)grid_width, (unsigned)grid_height, 1},
                  (const unsigned[]){1, 1, 1}, stream, false,
                  (struct parameters){.values = {found ? function.first : 0}});
}

PUBLIC CUresult cuLaunchGrid(CUfunction function, int grid_width, int grid_height)
{
    return cuLaunchGridAsync(function, grid_width, grid_height, NULL);
}

PUBLIC CUresult cuLaunch(CUfunction function)
{
    return cuLaunchGridAsync(function, 1, 1, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/graph_demand.h"

#include <string.h>
#include <sys/mman.h>

#include "vgpu/graph_walk.h"
#include "vgpu/pool.h"
#include "vgpu/real.h"

#define PIECE POOL_LEAST_CHUNK /* in which graph memory is taken, at least */

enum {
    FIRST_ROWS = 64,
};

struct row {
    CUgraphExec exec;
    struct graph_demand demand;
};

static struct {
    pthread_mutex_t lock;
    _Atomic size_t count; /* changes with the lock held */
    size_t size;
    struct row *rows; /* of what may be launched and allocates */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

void graph_demand_after_fork(void)
{
    (void)pthread_mutex_init(&table.lock, NULL);
    table.count = 0;
}

/* Rows, with the lock held */

static struct row *find(CUgraphExec exec)
{
    for (size_t i = 0; i < table.count; i++) {
        if (table.rows[i].exec == exec)
            return &table.rows[i];
    }
    return NULL;
}

static bool grow(void)
{
    size_t size = table.size ? 2 * table.size : FIRST_ROWS;
    struct row *rows;

    if (table.count < table.size)
        return true;
    rows = mmap(NULL, size * sizeof(*rows), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0);
    if (rows == MAP_FAILED)
        return false;
    if (table.rows) {
        memcpy(rows, table.rows, table.count * sizeof(*rows));
        (void)munmap(table.rows, table.size * sizeof(*rows));
    }
    table.rows = rows;
    table.size = size;
    return true;
}

bool graph_demand_remember(CUgraphExec exec, const struct graph_demand *demand)
{
    struct row *row;

    (void)pthread_mutex_lock(&table.lock);
    row = find(exec);
    if (!row && grow())
        row = &table.rows[table.count++];
    if (row)
        *row = (struct row){exec, *demand};
    (void)pthread_mutex_unlock(&table.lock);
    return row != NULL;
}

bool graph_demand_look(CUgraphExec exec, struct graph_demand *ret)
{
    const struct row *row;

    if (!atomic_load_explicit(&table.count, memory_order_acquire))
        return false;
    (void)pthread_mutex_lock(&table.lock);
    row = find(exec);
    if (row)
        *ret = row->demand;
    (void)pthread_mutex_unlock(&table.lock);
    return row != NULL;
}

bool graph_demand_forget(CUgraphExec exec, struct graph_demand *ret)
{
    struct row *row;

    (void)pthread_mutex_lock(&table.lock);
    row = find(exec);
    if (row) {
        *ret = row->demand;
        *row = table.rows[--table.count];
    }
    (void)pthread_mutex_unlock(&table.lock);
    return row != NULL;
}

/* What a graph's nodes allocate, of whatever kind it is */

/* In which the driver takes memory of a device. */
static uint64_t granule_of(const struct vgpu_device *device)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle},
    };
    size_t granule = 0;

    if (REAL(cuMemGetAllocationGranularity)(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
        CUDA_SUCCESS)
        return PIECE;
    return MAX(granule, PIECE);
}

static uint64_t in_granules(uint64_t bytes, uint64_t granule)
{
    return bytes > UINT64_MAX - granule ? UINT64_MAX : (bytes + granule - 1) / granule * granule;
}

static bool add_node(CUgraphNode node, CUgraphNodeType type, void *arg)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    const struct vgpu_device *device;
    struct graph_demand *demand = arg;
    uint64_t bytes;
    size_t at;

    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        REAL(cuGraphMemAllocNodeGetParams)(node, &params) != CUDA_SUCCESS ||
        params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return true;
    device = vgpu_device(params.poolProps.location.id);
    if (!device)
        return true;
    at = (size_t)(device - vgpu.devices);
    bytes = in_granules(params.bytesize, granule_of(device));
    demand->largest[at] = MAX(demand->largest[at], bytes);
    demand->bytes[at] += MIN(bytes, UINT64_MAX - demand->bytes[at]);
    return true;
}

bool graph_demand_is_any(const struct graph_demand *demand)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i])
            return true;
    }
    return false;
}

bool graph_demand_of(struct graph_demand *demand, CUgraph graph)
{
    return graph_walk(graph, add_node, demand);
}

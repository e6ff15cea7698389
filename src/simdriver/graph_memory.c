/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/graph_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "simdriver/guest.h"

#define GRANULE (2 * MIB)
#define GRAPH_FROM (UINT64_C(0x7c0) << 36) /* above what pools give out */
#define GRAPH_TO (UINT64_C(0x7ff) << 36)

/* Nodes come and go with and without the machine's lock: this one is taken after it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct device {
    uint64_t reserved_bytes, reserved_high, used_high;
};

static struct device devices[SIM_DEVICES];

static struct graph_memory *memories;
static struct graph *execs; /* that have memory */
static bool any;

static void enter(void)
{
    (void)pthread_mutex_lock(&lock);
}

static void leave(void)
{
    (void)pthread_mutex_unlock(&lock);
}

static uint64_t granule(void)
{
    return MAX(GRANULE, (uint64_t)guest_state()->header.driver.granule_bytes);
}

static uint64_t in_granules(uint64_t bytes)
{
    return (bytes + granule() - 1) / granule() * granule();
}

/* Addresses: those of the dead are used again for as many bytes. */

struct hole {
    uint64_t address, bytes;
    struct hole *next;
};

static struct hole *holes;

static uint64_t take_addresses(uint64_t bytes)
{
    static uint64_t next = GRAPH_FROM;
    struct hole **at = &holes;
    uint64_t address = next;

    while (*at && (*at)->bytes != bytes)
        at = &(*at)->next;
    if (*at) {
        AUTOFREE struct hole *hole = *at;

        *at = hole->next;
        return hole->address;
    }
    if (bytes > GRAPH_TO - next)
        return 0;
    next += bytes;
    return address;
}

static void give_addresses(uint64_t address, uint64_t bytes)
{
    struct hole *hole = malloc(sizeof(*hole));

    if (!hole)
        return;
    *hole = (struct hole){address, bytes, holes};
    holes = hole;
}

/* Whether its memory is a device's for as long as it is mapped. */
static bool is_of_device(const struct guest_place *place)
{
    return !place->on_host;
}

/* What is asked for as managed memory is a device's as any, and is had nowhere else (H200, driver
 * 580). */
bool graph_memory_may_be(const struct guest_place *place)
{
    unsigned places = guest_state()->header.driver.graph_places;

    if (place->managed)
        return places != SIM_GRAPH_PLACES_DEVICE && place->preferred >= 0;
    return !place->on_host || places == SIM_GRAPH_PLACES_HOST;
}

struct graph_memory *graph_memory_new(const struct guest_place *place, uint64_t bytes)
{
    AUTOFREE struct graph_memory *memory = calloc(1, sizeof(*memory));

    if (!memory ||
        bytes > (is_of_device(place) ? sim_spec_of(guest_state(), place->device)->memory_bytes
                                     : GRAPH_TO - GRAPH_FROM))
        return NULL;
    memory->place = *place;
    memory->asked_bytes = bytes;
    memory->bytes = in_granules(bytes);
    memory->holds = 1;
    enter();
    memory->address = take_addresses(memory->bytes);
    if (memory->address) {
        memory->next = memories;
        memories = memory;
    }
    leave();
    __atomic_store_n(&any, true, __ATOMIC_RELAXED);
    return memory->address ? TAKE(memory) : NULL;
}

static void end_if_nobodys(struct graph_memory *memory)
{
    struct graph_memory **at = &memories;

    if (memory->holds || memory->live)
        return;
    while (*at != memory)
        at = &(*at)->next;
    *at = memory->next;
    give_addresses(memory->address, memory->bytes);
    free(memory);
}

void graph_memory_hold(struct graph_memory *memory)
{
    enter();
    memory->holds++;
    leave();
}

void graph_memory_drop(struct graph_memory *memory)
{
    enter();
    memory->holds--;
    end_if_nobodys(memory);
    leave();
}

static struct graph_memory *find(uint64_t address)
{
    struct graph_memory *memory = memories;

    while (memory && memory->address != address)
        memory = memory->next;
    return memory;
}

struct graph_memory *graph_memory_find(uint64_t address)
{
    struct graph_memory *memory;

    enter();
    memory = find(address);
    leave();
    return memory;
}

/* What a graph needs */

struct place {
    const struct graph_node *taken, *freed;
    uint64_t from, bytes;
};

static const struct graph_node *find_free(struct graph_node *const *order, size_t count,
                                          const struct graph_memory *memory)
{
    for (size_t i = 0; i < count; i++) {
        if (order[i]->type == CU_GRAPH_NODE_TYPE_MEM_FREE && order[i]->memory == memory)
            return order[i];
    }
    return NULL;
}

/* The lowest place that nothing has which may be there at the same time. */
static void find_place(struct place *place, const struct place *others, size_t count)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (size_t i = 0; i < count; i++) {
            if (others[i].taken->memory->place.device != place->taken->memory->place.device ||
                place->from >= others[i].from + others[i].bytes ||
                others[i].from >= place->from + place->bytes ||
                graph_is_before(others[i].freed, place->taken))
                continue;
            place->from = others[i].from + others[i].bytes;
            moved = true;
        }
    }
}

bool graph_memory_plan(struct graph *exec, struct graph_node *const *order, size_t count)
{
    AUTOFREE struct place *places = calloc(count + 1, sizeof(*places));
    size_t placed = 0;

    if (!places)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct place *place = &places[placed];
        uint64_t *most;

        if (order[i]->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
            !is_of_device(&order[i]->memory->place))
            continue;
        *place = (struct place){.taken = order[i], .bytes = order[i]->memory->bytes};
        place->freed = find_free(order, count, order[i]->memory);
        if (!place->freed)
            continue;
        find_place(place, places, placed++);
        most = &exec->temporary_bytes[order[i]->memory->place.device];
        *most = MAX(*most, place->from + place->bytes);
    }
    enter();
    exec->next_exec = execs;
    execs = exec;
    leave();
    return true;
}

void graph_memory_forget(struct graph *exec)
{
    struct graph **at = &execs;

    enter();
    while (*at && *at != exec)
        at = &(*at)->next_exec;
    if (*at)
        *at = exec->next_exec;
    leave();
}

/* Memory of devices */

static bool is_same_stream(const struct graph *a, const struct graph *b)
{
    return a->stream == b->stream && a->stream_gen == b->stream_gen;
}

/* Whether another one before it in the list has as much of that stream's memory, or more. */
static bool is_covered(const struct graph *exec, unsigned device)
{
    uint64_t bytes = exec->temporary_bytes[device];
    bool before = true;

    for (const struct graph *e = execs; e; e = e->next_exec) {
        if (e == exec)
            before = false;
        else if (e->mapped && is_same_stream(e, exec) &&
                 (e->temporary_bytes[device] > bytes ||
                  (before && e->temporary_bytes[device] == bytes)))
            return true;
    }
    return false;
}

static uint64_t used_bytes(unsigned device)
{
    uint64_t used = 0;

    for (const struct graph *e = execs; e; e = e->next_exec) {
        if (e->mapped && !is_covered(e, device))
            used += e->temporary_bytes[device];
    }
    for (const struct graph_memory *memory = memories; memory; memory = memory->next) {
        if (memory->mapped && is_of_device(&memory->place) && memory->place.device == device)
            used += memory->bytes;
    }
    return used;
}

static bool grow(unsigned device)
{
    uint64_t used = used_bytes(device);

    if (used > devices[device].reserved_bytes) {
        if (!sim_charge(guest.sim, device, used - devices[device].reserved_bytes))
            return false;
        devices[device].reserved_bytes = used;
    }
    devices[device].reserved_high =
        MAX(devices[device].reserved_high, devices[device].reserved_bytes);
    devices[device].used_high = MAX(devices[device].used_high, used);
    return true;
}

static void shrink(unsigned device)
{
    uint64_t used = used_bytes(device);

    sim_discharge(guest.sim, device, devices[device].reserved_bytes - used);
    devices[device].reserved_bytes = used;
}

/* What a graph allocates and does not free. */
static bool is_left(const struct graph *exec, const struct graph_node *node)
{
    return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
           !find_free(exec->nodes, exec->count, node->memory);
}

static void set_mapped(struct graph *exec, bool mapped)
{
    exec->mapped = mapped;
    for (size_t i = 0; i < exec->count; i++) {
        if (is_left(exec, exec->nodes[i]) && !exec->nodes[i]->memory->live)
            exec->nodes[i]->memory->mapped = mapped;
    }
}

static bool grow_all(void)
{
    struct device before[SIM_DEVICES];
    unsigned device = 0;

    memcpy(before, devices, sizeof(before));
    while (device < sim_device_end(guest_state()) && grow(device))
        device++;
    if (device == sim_device_end(guest_state()))
        return true;
    while (device-- > 0)
        sim_discharge(guest.sim, device,
                      devices[device].reserved_bytes - before[device].reserved_bytes);
    memcpy(devices, before, sizeof(devices));
    return false;
}

CUresult graph_memory_map(struct graph *exec, uint32_t stream)
{
    bool was_mapped = exec->mapped, fits;
    uint32_t old = exec->stream, old_gen = exec->stream_gen;

    enter();
    exec->stream = stream;
    exec->stream_gen = guest_state()->streams[stream].gen;
    set_mapped(exec, true);
    fits = grow_all();
    if (!fits) {
        exec->stream = old;
        exec->stream_gen = old_gen;
        set_mapped(exec, was_mapped);
    }
    leave();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Launches */

static const struct graph_node *find_taking(const struct graph *exec,
                                            const struct graph_memory *memory)
{
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->nodes[i]->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            exec->nodes[i]->memory == memory)
            return exec->nodes[i];
    }
    return NULL;
}

static bool may_launch(const struct graph *exec)
{
    bool frees = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

    for (size_t i = 0; i < exec->count; i++) {
        const struct graph_node *node = exec->nodes[i];

        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->memory->live && !frees)
            return false;
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && !node->memory->live &&
            !find_taking(exec, node->memory))
            return false;
    }
    return true;
}

bool graph_memory_may_launch(const struct graph *exec)
{
    bool may;

    enter();
    may = may_launch(exec);
    leave();
    return may;
}

static void end_life(struct graph_memory *memory)
{
    memory->live = memory->mapped = false;
    end_if_nobodys(memory);
}

void graph_memory_launched(struct graph *exec)
{
    enter();
    exec->seq = guest_state()->streams[exec->stream].tail;
    for (size_t i = 0; i < exec->count; i++) {
        struct graph_node *node = exec->nodes[i];

        if (is_left(exec, node))
            node->memory->live = true;
        else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && node->memory->live)
            end_life(node->memory);
    }
    leave();
}

bool guest_graph_free(uint64_t address)
{
    struct graph_memory *memory;
    bool given;

    if (!__atomic_load_n(&any, __ATOMIC_RELAXED) || address < GRAPH_FROM)
        return false;
    enter();
    memory = find(address);
    given = memory && memory->live;
    if (given)
        end_life(memory);
    leave();
    return given;
}

bool guest_graph_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes)
{
    const struct graph_memory *memory;

    if (!__atomic_load_n(&any, __ATOMIC_RELAXED))
        return false;
    enter();
    memory = memories;
    while (memory && (!memory->live || address - memory->address >= memory->asked_bytes))
        memory = memory->next;
    if (memory) {
        *ret_from = memory->address;
        *ret_bytes = memory->asked_bytes;
    }
    leave();
    return memory != NULL;
}

/* What programs ask of it */

static bool is_running(const struct graph *exec)
{
    const struct sim_stream *st = &guest_state()->streams[exec->stream];

    return st->owner && st->gen == exec->stream_gen && st->head < exec->seq;
}

static void trim(unsigned device)
{
    enter();
    for (struct graph *e = execs; e; e = e->next_exec) {
        if (e->mapped && !is_running(e))
            set_mapped(e, false);
    }
    shrink(device);
    leave();
}

PUBLIC CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    sim_advance_all(guest_state(), sim_lock(guest.sim));
    trim(guest.devices[device]);
    sim_unlock(guest.sim);
    return CUDA_SUCCESS;
}

static CUresult get_attribute(unsigned device, CUgraphMem_attribute attribute, cuuint64_t *ret)
{
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *ret = used_bytes(device);
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *ret = devices[device].used_high;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *ret = devices[device].reserved_bytes;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *ret = devices[device].reserved_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

PUBLIC CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                             void *value)
{
    CUresult r = guest_check_safe();

    if (r == CUDA_SUCCESS)
        r = guest_check_device(device);
    if (r != CUDA_SUCCESS)
        return r;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    enter();
    r = get_attribute(guest.devices[device], attribute, value);
    leave();
    sim_unlock(guest.sim);
    return r;
}

/* A maximum becomes what there is now. */
PUBLIC CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                             void *value)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!value || *(const cuuint64_t *)value)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    enter();
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        devices[guest.devices[device]].used_high = used_bytes(guest.devices[device]);
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        devices[guest.devices[device]].reserved_high =
            devices[guest.devices[device]].reserved_bytes;
    else
        r = CUDA_ERROR_INVALID_VALUE;
    leave();
    sim_unlock(guest.sim);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "place/fit.h"
#include "place/place.h"

/* The most that one pod can take of one device: more is garbage, and sums of many pods must not
 * wrap round. */
enum {
    TASKS_MAX = 4096,
    CORES_MAX = 10000,
};

/* One device while the containers of a pod are counted, one after the other. */
struct tally {
    struct device_usage running; /* by the containers that were started and go on */
    struct device_usage turn;    /* by the container whose turn it is */
};

static struct device_usage sum(struct device_usage a, struct device_usage b)
{
    return (struct device_usage){
        .tasks = a.tasks + b.tasks,
        .cores = a.cores + b.cores,
        .memory_bytes = a.memory_bytes + b.memory_bytes,
        .parts = a.parts | b.parts,
    };
}

static struct device_usage larger(struct device_usage a, struct device_usage b)
{
    return (struct device_usage){
        .tasks = MAX(a.tasks, b.tasks),
        .cores = MAX(a.cores, b.cores),
        .memory_bytes = MAX(a.memory_bytes, b.memory_bytes),
        .parts = a.parts | b.parts,
    };
}

static struct device_usage bounded(struct device_usage usage)
{
    return (struct device_usage){
        .tasks = MIN(usage.tasks, (unsigned)TASKS_MAX),
        .cores = MIN(usage.cores, (unsigned)CORES_MAX),
        .memory_bytes = MIN(usage.memory_bytes, DEVICE_MAX_MIB * MIB),
        .parts = usage.parts,
    };
}

struct device_usage usage_of_granted(const struct device_vendor *vendor,
                                     const struct container_device *granted)
{
    const struct place_rules *rules = rules_of(vendor);
    struct device_usage usage = {
        .tasks = 1,
        .cores = (unsigned)MIN(MAX(granted->cores, 0), CORES_MAX),
        .memory_bytes = (uint64_t)MAX(granted->memory_mib, 0) * MIB,
        .parts = granted->parts,
    };

    if (rules->count)
        rules->count(granted, &usage);
    return usage;
}

static void count_parts(struct device *device, uint64_t parts, int by)
{
    for (unsigned i = 0; parts >> i; i++) {
        if (!(parts >> i & 1))
            continue;
        device->part_users[i] = (uint8_t)(device->part_users[i] + by);
        if (device->part_users[i])
            device->used.parts |= UINT64_C(1) << i;
        else
            device->used.parts &= ~(UINT64_C(1) << i);
        if (i == DEVICE_PARTS - 1)
            return;
    }
}

void device_charge(struct device *device, const struct device_usage *usage, int by)
{
    struct device_usage *used = &device->used;

    used->tasks += by < 0 ? -usage->tasks : usage->tasks;
    used->cores += by < 0 ? -usage->cores : usage->cores;
    used->memory_bytes += by < 0 ? -usage->memory_bytes : usage->memory_bytes;
    if (usage->parts)
        count_parts(device, usage->parts, by);
}

/* The share of this uuid, made if need be. */
static size_t share_of(struct place_usage *usage, const struct device_vendor *vendor,
                       const char *uuid)
{
    for (size_t i = 0; i < usage->count; i++) {
        if (usage->shares[i].vendor == vendor && strcmp(usage->shares[i].uuid, uuid) == 0)
            return i;
    }
    usage->shares[usage->count] = (struct place_share){.vendor = vendor, .uuid = uuid};
    return usage->count++;
}

/* Counts one container; its devices stay taken if it goes on. Returns what the vendor's devices
 * give while it runs. */
static struct place_total take_turn(struct place_usage *usage, struct tally *tallies,
                                    const struct device_vendor *vendor,
                                    const struct container_devices *devices, bool goes_on)
{
    struct place_total total = {.vendor = vendor};

    for (size_t i = 0; i < devices->count; i++) {
        struct tally *tally = &tallies[share_of(usage, vendor, devices->items[i].uuid)];

        tally->turn = bounded(sum(tally->turn, usage_of_granted(vendor, &devices->items[i])));
    }
    for (size_t i = 0; i < usage->count; i++) {
        struct device_usage now = bounded(sum(tallies[i].running, tallies[i].turn));

        usage->shares[i].usage = larger(usage->shares[i].usage, now);
        if (goes_on)
            tallies[i].running = now;
        tallies[i].turn = (struct device_usage){0};
        total.memory_mib += now.memory_bytes / MIB;
        total.cores += cores_counted(rules_of(vendor), &now);
    }
    return total;
}

/* The pod's other vendors' come first. -ENOMEM. */
static int add_total(struct place_usage *usage, const struct place_total *total,
                     struct arena *arena)
{
    struct place_total *totals = ARENA_ARRAY(arena, struct place_total, usage->total_count + 1);

    if (!totals)
        return -ENOMEM;
    if (usage->total_count)
        memcpy(totals, usage->totals, usage->total_count * sizeof(*totals));
    totals[usage->total_count++] = *total;
    usage->totals = totals;
    return 0;
}

int place_usage_add_pod(struct place_usage *usage, const struct device_vendor *vendor,
                        const struct pod_devices *devices, const char *roles, struct arena *arena)
{
    struct place_total most = {.vendor = vendor};
    size_t max = usage->count, inits = strlen(roles);
    struct place_share *shares;
    struct tally *tallies;

    for (size_t i = 0; i < devices->count; i++)
        max += devices->containers[i].count;
    shares = ARENA_ARRAY(arena, struct place_share, max);
    tallies = ARENA_ARRAY(arena, struct tally, max);
    if (!shares || !tallies)
        return -ENOMEM;

    if (usage->count)
        memcpy(shares, usage->shares, usage->count * sizeof(*shares));
    usage->shares = shares;
    for (size_t i = 0; i < devices->count; i++) {
        const struct place_total now = take_turn(usage, tallies, vendor, &devices->containers[i],
                                                 i >= inits || roles[i] != 'i');

        most.memory_mib = MAX(most.memory_mib, now.memory_mib);
        most.cores = MAX(most.cores, now.cores);
    }
    return add_total(usage, &most, arena);
}

/* The device of a share: a part's name is the device's with a suffix, "GPU-a[0-1]". */
static struct device *find_device(struct device *devices, size_t count,
                                  const struct device_vendor *vendor, const char *uuid)
{
    size_t len = strcspn(uuid, "[");

    for (size_t i = 0; i < count; i++) {
        if (devices[i].vendor && devices[i].vendor != vendor)
            continue;
        if (strncmp(devices[i].uuid, uuid, len) == 0 && !devices[i].uuid[len])
            return &devices[i];
    }
    return NULL;
}

const struct device *place_find_device(const struct device *devices, size_t count,
                                       const struct device_vendor *vendor, const char *name)
{
    return find_device((struct device *)devices, count, vendor, name);
}

static bool is_misuse(const struct device *device, const struct place_share *share)
{
    const struct place_rules *rules = rules_of(device->vendor);

    return rules->is_misuse && rules->is_misuse(device, share->uuid, &share->usage);
}

static size_t usage_change(struct device *devices, size_t count, const struct place_usage *usage,
                           int by)
{
    size_t missing = 0;

    for (size_t i = 0; i < usage->count; i++) {
        const struct place_share *share = &usage->shares[i];
        struct device *device = find_device(devices, count, share->vendor, share->uuid);

        if (!device) {
            missing++;
            continue;
        }
        device_charge(device, &share->usage, by);
        if (is_misuse(device, share))
            device->misused += (unsigned)by;
    }
    return missing;
}

size_t place_usage_charge(struct device *devices, size_t count, const struct place_usage *usage)
{
    return usage_change(devices, count, usage, 1);
}

size_t place_usage_discharge(struct device *devices, size_t count, const struct place_usage *usage)
{
    return usage_change(devices, count, usage, -1);
}

static bool has_room(const struct device *device, const struct device_usage *wanted)
{
    const struct device_usage *used = &device->used;

    if (!device->healthy || device->misused || device->cordoned)
        return false;
    if (used->tasks + wanted->tasks > device->max_tasks ||
        used->cores + wanted->cores > device->cores)
        return false;
    if (used->memory_bytes + wanted->memory_bytes > device->memory_bytes)
        return false;
    /* A card without free compute takes no container, not even one that asks for none. With several
     * tasks wanted, one of them may ask for none. */
    if (device->cores && (!wanted->cores || wanted->tasks > 1) &&
        used->cores + wanted->cores >= device->cores)
        return false;
    /* A task with all compute of a card has the card to itself. */
    return used->tasks == 0 || device->cores != DEVICE_CORES ||
           (wanted->cores < DEVICE_CORES && used->cores < DEVICE_CORES);
}

/* What all shares of a device take: several instances of one card have a name each. */
static struct device_usage wanted_of(struct device *devices, size_t count,
                                     const struct place_usage *usage, const struct device *device)
{
    struct device_usage wanted = {0};

    for (size_t i = 0; i < usage->count; i++) {
        const struct place_share *share = &usage->shares[i];

        if (find_device(devices, count, share->vendor, share->uuid) == device)
            wanted = sum(wanted, share->usage);
    }
    return wanted;
}

/* What a vendor's rules would say is not asked: only an unused device is sure to do. */
bool place_usage_fits(struct device *devices, size_t count, const struct place_usage *usage)
{
    for (size_t i = 0; i < usage->count; i++) {
        const struct place_share *share = &usage->shares[i];
        const struct device *device = find_device(devices, count, share->vendor, share->uuid);
        struct device_usage wanted;

        if (!device)
            return false;
        wanted = wanted_of(devices, count, usage, device);
        if (!has_room(device, &wanted) || is_misuse(device, share))
            return false;
        if (usage->alone && device->used.tasks)
            return false;
        if ((device->special || strchr(share->uuid, '[')) && rules_of(device->vendor)->take &&
            device->used.tasks)
            return false;
    }
    return true;
}

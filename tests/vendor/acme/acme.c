/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A vendor that does not exist. Acme gives out seats on benches that stand in rows: nobody sits
 * beside anybody, a container's benches are all of one row, and a node with warm benches is
 * preferred. What a seat takes, no pod says. Its agent opens and shuts, and may want a lock.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor.h"

enum {
    SEATS = 8, /* of a bench */
};

struct acme_config {
    char bench_name[SECTION_NAME_SIZE], cushion_name[SECTION_NAME_SIZE];
    int32_t seat_mib;
};

struct bench {
    unsigned row;
};

extern const struct vendor acme_vendor;

/* Its section. */

static const struct section_key keys[] = {
    {.name = "benchName",
     .read = section_read_resource,
     .offset = offsetof(struct acme_config, bench_name)},
    {.name = "cushionName",
     .read = section_read_resource,
     .offset = offsetof(struct acme_config, cushion_name)},
    {.name = "seatMemory",
     .read = section_read_int32,
     .offset = offsetof(struct acme_config, seat_mib)},
};

static void set_missing(void *ret_config)
{
    *(struct acme_config *)ret_config = (struct acme_config){"acme.example/bench", "", 100};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "acme", keys, ARRAY_SIZE(keys), config);
}

/* Placement. */

static void seat_wants(const struct place_step *step, const struct device *device,
                       struct device_usage *ret_wanted)
{
    const struct acme_config *config = device->vendor->config;
    const bool *cushion = step->request->wishes;

    ret_wanted->cores = 0;
    ret_wanted->memory_bytes = (uint64_t)config->seat_mib * MIB * (*cushion ? 2 : 1);
}

static enum place_reason take_seat(const struct place_step *step, const struct device *device,
                                   struct device_usage *taken)
{
    (void)step;
    for (unsigned seat = 0; seat < SEATS; seat++) {
        if (device->used.parts & UINT64_C(7) << seat >> 1)
            continue;
        taken->parts = UINT64_C(1) << seat;
        return PLACE_REASON_COUNT;
    }
    return PLACE_CARD_CUSTOM_RULE;
}

static bool choose_row(const struct place_step *step, const struct place_set *set,
                       size_t *ret_chosen, struct place_failure *failure)
{
    for (unsigned row = 0; row < SEATS; row++) {
        size_t chosen = 0;

        for (size_t i = set->count; i-- > 0 && chosen < step->request->count;) {
            const struct bench *bench = set->devices[set->order[i]].facts;

            if (set->fits[set->order[i]] && bench->row == row)
                ret_chosen[chosen++] = set->order[i];
        }
        if (chosen == step->request->count)
            return true;
    }
    failure->reasons[PLACE_CARD_CUSTOM_RULE] = (unsigned)set->count;
    return false;
}

static float prefer_warm_benches(const struct place_fitted *fitted)
{
    float warm = 0;

    for (size_t i = 0; i < fitted->given->count; i++) {
        for (size_t k = 0; k < fitted->given->containers[i].count; k++)
            warm += place_find_device(fitted->devices, fitted->device_count, fitted->vendor,
                                      fitted->given->containers[i].items[k].uuid)
                        ->used.tasks > 0;
    }
    return fitted->node_order == PLACE_BINPACK ? 100 * warm : -100 * warm;
}

static void count_seat(const struct container_device *granted, struct device_usage *usage)
{
    const char *seat = strchr(granted->uuid, '[');

    usage->parts =
        seat && seat[1] >= '0' && seat[1] < '0' + SEATS ? UINT64_C(1) << (seat[1] - '0') : 0;
}

static const char *name_seat(const struct device *device, const struct device_usage *taken,
                             struct arena *arena)
{
    return arena_printf(arena, "%s[%d]", device->uuid, __builtin_ctzll(taken->parts));
}

static const struct place_rules rules = {
    .want = seat_wants,
    .take = take_seat,
    .choose = choose_row,
    .score_node = prefer_warm_benches,
    .count = count_seat,
    .name = name_seat,
};

/* Pods. */

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct container *asking = &pod->containers[container];

    if (!container_resource(asking, instance->count_resource))
        return 0;
    for (size_t i = 0; i < asking->env_count; i++) {
        if (strcmp(asking->env[i].name, "ACME_SEAT") == 0)
            return error_set(err, -EINVAL, "a seat can't be wished for");
    }
    mutations->items[mutations->count++] = (struct mutation){
        .kind = MUTATION_ENV, .container = container, .name = "ACME", .value = "seated"};
    return 1;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct acme_config *config = instance->id.config;
    const struct resource *benches =
        container_resource(&pod->containers[container], config->bench_name);
    bool *cushion = ARENA_NEW(arena, bool);

    if (!benches)
        return 0;
    if (!cushion)
        return -ENOMEM;
    *cushion = container_resource(&pod->containers[container], config->cushion_name) != NULL;
    *ret_request = (struct request){
        .vendor = &instance->id,
        .count = (unsigned)benches->quantity.value,
        .wishes = cushion,
        .wishes_size = sizeof(*cushion),
    };
    return 1;
}

static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    const char *text = "";
    int r = vendor_annotate_standard(instance, grant, annotations);

    for (size_t i = 0; i < grant->given->count; i++) {
        for (size_t k = 0; k < grant->given->containers[i].count; k++) {
            const struct device *device =
                place_find_device(grant->devices, grant->device_count, &instance->id,
                                  grant->given->containers[i].items[k].uuid);
            const struct bench *bench = device->facts;

            text = arena_printf(annotations->arena, "%s%u/%u ", text, bench->row, device->index);
        }
    }
    return r < 0 ? r : vendor_annotate_add(annotations, "ACME_ROWS", text);
}

/* Nodes: so many benches as kubelet counts, in so many rows as a label says. */

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    const struct resource *benches = resource_find(&node->allocatable, instance->count_resource);
    const char *rows = text_pairs_get(&node->labels, "acme.example/rows");

    if (!benches || !rows)
        return error_set(err, -ENOENT, "no benches");
    for (*ret_count = 0; *ret_count < max && *ret_count < (size_t)benches->quantity.value;
         (*ret_count)++) {
        struct bench *bench = ARENA_NEW(arena, struct bench);
        struct device *device = &ret_devices[*ret_count];

        if (!bench)
            return -ENOMEM;
        bench->row = (unsigned)*ret_count % (unsigned)(rows[0] - '0');
        *device = (struct device){
            .vendor = &instance->id,
            .healthy = true,
            .special = true,
            .index = (unsigned)*ret_count,
            .numa_node = -1,
            .max_tasks = SEATS,
            .cores = DEVICE_CORES,
            .memory_bytes = 800 * MIB,
            .model = "Bench",
            .facts = bench,
            .facts_size = sizeof(*bench),
        };
        (void)snprintf(device->uuid, sizeof(device->uuid), "%.80s-bench-%u", node->name,
                       device->index);
    }
    return CODEC_EXACT;
}

static bool is_open(const struct vendor_instance *instance, const struct node *node)
{
    (void)instance;
    return text_pairs_get(&node->annotations, "acme.example/open") != NULL;
}

static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    static const struct vendor_lock lock = {"acme.example/turnstile", true, 60 * NS_PER_S};

    (void)instance;
    return text_pairs_get(&node->annotations, "acme.example/turnstile-in-use") ? &lock : NULL;
}

static int add_instances(struct vendor_set *set, const void *own)
{
    const struct acme_config *config = own;
    const struct vendor_instance instance = {
        .vendor = &acme_vendor,
        .id = {"Acme", &rules, config},
        .allocated_key = "acme.example/given",
        .written_keys = {"ACME_ROWS"},
        .count_resource = config->bench_name,
        .resources = {config->bench_name, config->cushion_name},
    };

    return vendor_set_add(set, &instance);
}

static const char *const annotations[] = {"acme.example/", "ACME_", NULL};
static const char *const variables[] = {"ACME_", NULL};
static const char *const labels[] = {"acme.example/rows", NULL};
static const struct vendor_time times[] = {{"acme.example/seated-at", true}, {NULL, false}};

const struct vendor acme_vendor = {
    .name = "acme",
    .section = "acme",
    .config_size = sizeof(struct acme_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .add_instances = add_instances,
    .annotations = annotations,
    .variables = variables,
    .node_labels = labels,
    .counts_resources = true,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .is_alive = is_open,
    .prepare_bind = prepare_bind,
    .annotate = annotate,
    .times = times,
};

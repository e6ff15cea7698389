/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/mig.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"

/* As `nvidia-smi mig -lgipp` lists them on these cards. */
/* clang-format off */
const struct sim_mig_profile sim_mig_profiles[SIM_MIG_PROFILES] = {
    {NVML_GPU_INSTANCE_PROFILE_1_SLICE,      .id = 19, .slices = 1, .size = 1, .step = 1, .last = 6, .max = 7},
    {NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1, .id = 20, .slices = 1, .size = 1, .step = 1, .last = 6, .max = 1},
    {NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2, .id = 15, .slices = 1, .size = 2, .step = 2, .last = 6, .max = 4},
    {NVML_GPU_INSTANCE_PROFILE_2_SLICE,      .id = 14, .slices = 2, .size = 2, .step = 2, .last = 4, .max = 3},
    {NVML_GPU_INSTANCE_PROFILE_3_SLICE,      .id =  9, .slices = 3, .size = 4, .step = 4, .last = 4, .max = 2},
    {NVML_GPU_INSTANCE_PROFILE_4_SLICE,      .id =  5, .slices = 4, .size = 4, .step = 4, .last = 0, .max = 1},
    {NVML_GPU_INSTANCE_PROFILE_7_SLICE,      .id =  0, .slices = 7, .size = 8, .step = 8, .last = 0, .max = 1},
};

/* Memory and multiprocessors of the profiles, in their order, as `nvidia-smi mig -lgip` lists them; the whole
 * card's as nvidia-smi does. What an H200 has in one instance of all is not published: the card's less what an
 * H100 keeps back. */
static const struct known_card {
    const char *model; /* part of its name */
    uint64_t card_mib;
    uint64_t mib[SIM_MIG_PROFILES];
    unsigned card_multiprocessors, multiprocessors[SIM_MIG_PROFILES];
} known_cards[] = {
    {"A100",  40960, { 4864,  4864,  9856,  9856, 19968, 19968,  40192}, 108, {14, 14, 14, 28, 42, 56,  98}},
    {"A100",  81920, { 9856,  9856, 19968, 19968, 40192, 40192,  80384}, 108, {14, 14, 14, 28, 42, 56,  98}},
    {"H100",  81559, { 9984,  9984, 20096, 20096, 40448, 40448,  81152}, 132, {16, 16, 26, 32, 60, 64, 132}},
    {"H200", 143771, {16384, 16384, 33024, 33024, 71168, 71168, 143360}, 132, {16, 16, 26, 32, 60, 64, 132}},
};
/* clang-format on */

/* A card's memory as people write it, 40Gi or 80G, is nearly its own. */
#define NEARLY_PERCENT 3

/* The model's, of the size that is nearest. */
static const struct known_card *find_card(const struct sim_gpu_spec *card)
{
    const struct known_card *found = NULL;
    uint64_t mib = card->memory_bytes / MIB, best = UINT64_MAX;

    for (size_t i = 0; i < ARRAY_SIZE(known_cards); i++) {
        uint64_t other = known_cards[i].card_mib, apart = mib > other ? mib - other : other - mib;

        if (!strstr(card->model, known_cards[i].model) || apart >= best)
            continue;
        best = apart;
        found = &known_cards[i];
    }
    return found;
}

bool sim_mig_is_known(const struct sim_gpu_spec *card)
{
    return find_card(card);
}

uint64_t sim_mig_memory_mib(const struct sim_gpu_spec *card, unsigned profile)
{
    const struct known_card *known = find_card(card);
    uint64_t mib = card->memory_bytes / MIB;
    uint64_t apart = mib > known->card_mib ? mib - known->card_mib : known->card_mib - mib;

    if (apart * 100 <= known->card_mib * NEARLY_PERCENT)
        return MIN(known->mib[profile], mib);
    return known->mib[profile] * mib / known->card_mib;
}

unsigned sim_mig_multiprocessors(const struct sim_gpu_spec *card, unsigned profile)
{
    const struct known_card *known = find_card(card);

    return MAX(
        known->multiprocessors[profile] * card->multiprocessors / known->card_multiprocessors, 1U);
}

/* Its memory in a name is the card's, in whole GiB, by the eighths of it that it nearly fills. */
void sim_mig_name(const struct sim_gpu_spec *card, unsigned profile,
                  char ret_name[SIM_MIG_NAME_SIZE])
{
    const struct sim_mig_profile *row = &sim_mig_profiles[profile];
    uint64_t gib = (card->memory_bytes + GIB - 1) / GIB;
    uint64_t bytes = sim_mig_memory_mib(card, profile) * MIB;
    uint64_t eighths = (bytes * 8 + card->memory_bytes - 1) / card->memory_bytes;

    (void)snprintf(ret_name, SIM_MIG_NAME_SIZE, "%ug.%ugb%s", row->slices,
                   (unsigned)((gib * eighths + 4) / 8),
                   row->enumerator == NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 ? "+me" : "");
}

int sim_mig_by_id(unsigned id)
{
    for (unsigned i = 0; i < SIM_MIG_PROFILES; i++) {
        if (sim_mig_profiles[i].id == id)
            return (int)i;
    }
    return -1;
}

int sim_mig_by_enumerator(unsigned enumerator)
{
    for (unsigned i = 0; i < SIM_MIG_PROFILES; i++) {
        if (sim_mig_profiles[i].enumerator == enumerator)
            return (int)i;
    }
    return -1;
}

/* Use */

static bool has_context(const struct sim_state *s, unsigned device)
{
    for (uint32_t i = 1; i <= s->context_pool.high; i++) {
        if (s->contexts[i].owner && s->contexts[i].device == device)
            return true;
    }
    return false;
}

bool sim_mig_is_used(const struct sim_state *s, unsigned device)
{
    if (s->devices[device].used_bytes || has_context(s, device))
        return true;
    for (unsigned start = 0; device < SIM_MAX_GPUS && start < SIM_MIG_STARTS; start++) {
        if (sim_mig_is_used(s, sim_instance_device(device, start)))
            return true;
    }
    return false;
}

bool sim_mig_has_instances(const struct sim_state *s, unsigned gpu)
{
    for (unsigned start = 0; start < SIM_MIG_STARTS; start++) {
        if (s->instances[gpu][start].in_use)
            return true;
    }
    return false;
}

bool sim_mig_is_free(const struct sim_state *s, unsigned gpu, unsigned profile, unsigned start)
{
    const struct sim_mig_profile *wanted = &sim_mig_profiles[profile];
    unsigned alike = 0;

    if (start > wanted->last || start % wanted->step)
        return false;
    for (unsigned i = 0; i < SIM_MIG_STARTS; i++) {
        const struct sim_instance *other = &s->instances[gpu][i];

        if (!other->in_use)
            continue;
        alike += other->profile == profile;
        if (start < i + sim_mig_profiles[other->profile].size && i < start + wanted->size)
            return false;
    }
    return alike < wanted->max;
}

/* The whole card is 0, its halves 1 and 2, its quarters 3 to 6, its eighths 7 to 14. */
unsigned sim_mig_id(unsigned profile, unsigned start)
{
    unsigned size = sim_mig_profiles[profile].size;

    return SIM_MIG_SLICES / size - 1 + start / size;
}

static bool is_named(const struct sim_state *s, unsigned device, const char *text, size_t len)
{
    const struct sim_gpu_spec *spec = sim_spec_of(s, device);
    unsigned gpu = sim_gpu_of(device), start = (device - SIM_MAX_GPUS) % SIM_MIG_STARTS;
    char old[96];
    int n = snprintf(old, sizeof(old), "MIG-%s/%u/0", s->header.gpus[gpu].uuid,
                     sim_mig_id(s->instances[gpu][start].profile, start));

    if (strlen(spec->uuid) == len && strncasecmp(spec->uuid, text, len) == 0)
        return true;
    return n == (int)len && strncasecmp(old, text, len) == 0;
}

int sim_mig_find(const struct sim_state *s, const char *text, size_t len)
{
    for (unsigned device = SIM_MAX_GPUS; device < sim_device_end(s); device++) {
        if (sim_is_device(s, device) && is_named(s, device, text, len))
            return (int)device;
    }
    return -1;
}

/* Making and ending. Whoever does it may die half-way: what says that it is there comes last. */

nvmlReturn_t sim_mig_create(struct sim_state *s, unsigned gpu, unsigned profile, unsigned start)
{
    struct sim_instance *instance;

    if (!s->health[gpu].mig)
        return NVML_ERROR_NOT_SUPPORTED;
    if (start >= SIM_MIG_STARTS || start > sim_mig_profiles[profile].last ||
        start % sim_mig_profiles[profile].step)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!sim_mig_is_free(s, gpu, profile, start))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    instance = &s->instances[gpu][start];
    instance->profile = profile;
    instance->number = __atomic_add_fetch(&s->instances_made, 1, __ATOMIC_ACQ_REL);
    instance->has_compute = 0;
    __atomic_store_n(&instance->in_use, 1, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* Another one for each that is ever made, on any machine. */
static void name_device(const char *card_uuid, uint64_t number, char *uuid, size_t size)
{
    uint64_t a = number, b;

    for (const char *c = card_uuid; *c; c++)
        a = mix(a ^ (unsigned char)*c);
    b = mix(a + 1);
    (void)snprintf(uuid, size, "MIG-%08x-%04x-5%03x-a%03x-%012llx", (unsigned)(a >> 32),
                   (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xfff, (unsigned)(b >> 52),
                   (unsigned long long)b & UINT64_C(0xffffffffffff));
}

static void describe(const struct sim_gpu_spec *card, struct sim_instance *instance)
{
    struct sim_gpu_spec *spec = &instance->spec;
    char name[SIM_MIG_NAME_SIZE];

    *spec = *card;
    sim_mig_name(card, instance->profile, name);
    (void)snprintf(spec->model, sizeof(spec->model), "%.64s MIG %s", card->model, name);
    name_device(card->uuid, instance->compute_number, spec->uuid, sizeof(spec->uuid));
    spec->memory_bytes = sim_mig_memory_mib(card, instance->profile) * MIB;
    spec->multiprocessors = sim_mig_multiprocessors(card, instance->profile);
}

nvmlReturn_t sim_mig_create_compute(struct sim_state *s, unsigned gpu, unsigned start)
{
    unsigned device = sim_instance_device(gpu, start);
    struct sim_instance *instance = &s->instances[gpu][start];

    if (instance->has_compute)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    instance->compute_number = __atomic_add_fetch(&s->instances_made, 1, __ATOMIC_ACQ_REL);
    describe(&s->header.gpus[gpu], instance);
    memset(&s->devices[device], 0, sizeof(s->devices[device]));
    s->devices[device].now_ns = s->devices[gpu].now_ns;
    for (unsigned i = 0; i < s->slots; i++)
        memset(&s->processes[i].usage[device], 0, sizeof(s->processes[i].usage[device]));
    __atomic_store_n(&instance->has_compute, 1, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

nvmlReturn_t sim_mig_destroy_compute(struct sim_state *s, unsigned device)
{
    if (sim_mig_is_used(s, device))
        return NVML_ERROR_IN_USE;
    __atomic_store_n(&sim_instance(s, device)->has_compute, 0, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

nvmlReturn_t sim_mig_destroy(struct sim_state *s, unsigned device)
{
    struct sim_instance *instance = sim_instance(s, device);

    if (instance->has_compute)
        return NVML_ERROR_IN_USE;
    __atomic_store_n(&instance->in_use, 0, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

nvmlReturn_t sim_mig_set_mode(struct sim_state *s, unsigned gpu, unsigned mode,
                              nvmlReturn_t *ret_activation)
{
    struct sim_health *health = &s->health[gpu];

    if (mode > NVML_MIG_ENABLED)
        return NVML_ERROR_INVALID_ARGUMENT;
    *ret_activation = NVML_SUCCESS;
    health->mig_pending = mode;
    if (health->mig != mode && (sim_mig_is_used(s, gpu) || sim_mig_has_instances(s, gpu)))
        *ret_activation = NVML_ERROR_IN_USE;
    else
        __atomic_store_n(&health->mig, mode, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

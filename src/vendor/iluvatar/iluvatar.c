/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Iluvatar's chips, each with an instance of this vendor, shared by their own agent, which
 * registers them in HAMi's colon form.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/registered.h"

#define PATH "iluvatars"

/* Its agent looks for a container by this name, spelt so. */
#define CONTAINER_VARIABLE "SOL_CONTINER_NAME"

enum {
    CHIPS = 16,
    WORD_SIZE = 64,
    KEY_SIZE = 128,
    UNIT_MIB = 256, /* of requested memory */
};

struct iluvatar_chip {
    char word[WORD_SIZE]; /* "BI-V150" */
    char count_name[SECTION_NAME_SIZE], memory_name[SECTION_NAME_SIZE];
    char cores_name[SECTION_NAME_SIZE];

    char register_key[KEY_SIZE], handshake_key[KEY_SIZE];
    char allocate_key[KEY_SIZE], allocated_key[KEY_SIZE];
    char use_key[KEY_SIZE], avoid_key[KEY_SIZE];
};

/* Section `iluvatars` of the device configuration. */
struct iluvatar_config {
    size_t count;
    struct iluvatar_chip chips[CHIPS];
};

extern const struct vendor iluvatar_vendor;

/* Its section: a list of chips. */

static const char *read_word(const char *text, void *to)
{
    char whole[SECTION_NAME_SIZE];
    const char *wrong = section_read_name(text, whole);

    if (wrong)
        return wrong;
    if (!*text || strlen(text) >= WORD_SIZE)
        return "not a name of at most 63 letters";
    copy_text(to, WORD_SIZE, text);
    return NULL;
}

static const char *skip(const char *text, void *to)
{
    (void)text;
    (void)to;
    return NULL;
}

static const struct section_key keys[] = {
#define KEY(key, reader, member)                                                                   \
    {                                                                                              \
        .name = key, .read = reader, .offset = offsetof(struct iluvatar_chip, member)              \
    }
    KEY("commonWord", read_word, word),
    KEY("resourceCountName", section_read_resource, count_name),
    KEY("resourceMemoryName", section_read_resource, memory_name),
    KEY("resourceCoreName", section_read_resource, cores_name),
#undef KEY
    {.name = "chipName", .read = skip},
};

/* HAMi's keys of the annotations. */
static void name_keys(struct iluvatar_chip *chip)
{
    const struct {
        char *key;
        const char *before, *after;
    } named[] = {
        {chip->register_key, "hami.io/node-", "-register"},
        {chip->handshake_key, "hami.io/node-handshake-", ""},
        {chip->allocate_key, "hami.io/", "-devices-to-allocate"},
        {chip->allocated_key, "hami.io/", "-devices-allocated"},
        {chip->use_key, "hami.io/use-", "-uuid"},
        {chip->avoid_key, "hami.io/no-use-", "-uuid"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(named); i++)
        (void)snprintf(named[i].key, KEY_SIZE, "%s%s%s", named[i].before, chip->word,
                       named[i].after);
}

static int check_chip(const struct section_reading *reading, const struct section *section,
                      const struct iluvatar_config *config, const struct iluvatar_chip *chip)
{
    if (!chip->word[0] || !chip->count_name[0])
        return section_refuse(reading, section->place, PATH,
                              "a chip needs commonWord and resourceCountName");
    for (const struct iluvatar_chip *other = config->chips; other < chip; other++) {
        if (strcmp(other->word, chip->word) == 0)
            return section_refuse(reading, section->place, PATH, "a commonWord is given twice");
    }
    return 0;
}

static void set_missing(void *ret_config)
{
    *(struct iluvatar_config *)ret_config = (struct iluvatar_config){.count = 0};
}

/* An empty section is a list of nothing, too. */
static int read_section(const struct section_reading *reading, const struct section *section,
                        void *own)
{
    struct iluvatar_config *config = own;
    int r;

    if (section->kind == SECTION_NOTHING || (section->kind == SECTION_KEYS && !section->count))
        return 0;
    r = section_check_list(reading, section, PATH, CHIPS);
    for (size_t i = 0; r == 0 && i < section->count; i++) {
        struct iluvatar_chip *chip = &config->chips[i];

        r = section_read_keys(reading, &section->items[i], PATH, keys, ARRAY_SIZE(keys), chip);
        if (r == 0)
            r = check_chip(reading, &section->items[i], config, chip);
        name_keys(chip);
        config->count = i + 1;
    }
    return r;
}

/* Placement: as HAMi, the least preferred first. */

static bool choose_first(const struct place_step *step, const struct place_set *set,
                         size_t *ret_chosen, struct place_failure *failure)
{
    size_t chosen = 0;

    (void)failure;
    for (size_t i = 0; i < set->count && chosen < step->request->count; i++) {
        if (set->fits[set->order[i]])
            ret_chosen[chosen++] = set->order[i];
    }
    return true;
}

static const struct place_rules rules = {.choose = choose_first};

/* Pods. */

/* Several chips are given whole. */
static int set_cores(const struct iluvatar_chip *chip, const struct container *asking,
                     size_t container, int64_t count, struct mutations *mutations)
{
    if (count <= 1 || !chip->cores_name[0])
        return 0;
    return asking_set_amount(asking, container, chip->cores_name, count * DEVICE_CORES, mutations);
}

static int set_name(const struct container *asking, size_t container, struct mutations *mutations)
{
    if (!*asking->name)
        return 0;
    for (size_t i = 0; i < asking->env_count; i++) {
        if (strcmp(asking->env[i].name, CONTAINER_VARIABLE) == 0)
            return 0;
    }
    return asking_change(mutations, &(struct mutation){
                                        .kind = MUTATION_ENV,
                                        .container = container,
                                        .name = CONTAINER_VARIABLE,
                                        .value = asking->name,
                                    });
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct iluvatar_chip *chip = instance->id.config;
    const struct container *asking = &pod->containers[container];
    const struct resource *count = resource_find(&asking->limits, chip->count_name);
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    if (r < 0 || !count)
        return r;
    r = set_cores(chip, asking, container, count->quantity.value, mutations);
    if (r == 0)
        r = set_name(asking, container, mutations);
    return r < 0 ? r : 1;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct iluvatar_chip *chip = instance->id.config;
    const struct asking_share share = {
        .count = chip->count_name,
        .memory = chip->memory_name,
        .cores = chip->cores_name,
        .memory_factor = UNIT_MIB,
    };
    struct request request = {.vendor = &instance->id};
    int r;

    if (!asking_read_share(&pod->containers[container], &share, &request))
        return 0;
    r = asking_uuids(pod, chip->use_key, chip->avoid_key, arena, &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* Nodes. */

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    return registered_read(instance, node, arena, ret_devices, max, ret_count, err, NULL);
}

/* Its agent looks for the pod of an allocation by the node's lock. */
static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return text_pairs_get(&node->annotations, instance->register_key) ? &vendor_mutex_lock : NULL;
}

static int add_instances(struct vendor_set *set, const void *own)
{
    const struct iluvatar_config *config = own;
    int r = 0;

    for (size_t i = 0; i < config->count && r == 0; i++) {
        const struct iluvatar_chip *chip = &config->chips[i];
        const struct vendor_instance instance = {
            .vendor = &iluvatar_vendor,
            .id = {chip->word, &rules, chip},
            .register_key = chip->register_key,
            .handshake_key = chip->handshake_key,
            .to_allocate_key = chip->allocate_key,
            .allocated_key = chip->allocated_key,
            .count_resource = chip->count_name,
            .memory_resource = chip->memory_name,
            .cores_resource = chip->cores_name,
            .memory_unit_mib = UNIT_MIB,
            .resources = {chip->count_name, chip->memory_name, chip->cores_name},
        };

        r = vendor_set_add(set, &instance);
    }
    return r;
}

static const char *const variables[] = {CONTAINER_VARIABLE, NULL};

const struct vendor iluvatar_vendor = {
    .name = "iluvatar",
    .section = "iluvatars",
    .config_size = sizeof(struct iluvatar_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .add_instances = add_instances,
    .variables = variables,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .leaves_handshake = true,
    .prepare_bind = prepare_bind,
    .shares_lock = true,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/kunlun/kunlun.h"

#include <errno.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/counted.h"

#define COMMON_WORD "kunlun"

enum {
    WING = 4,
};

/* Configuration. */

static const struct section_key keys[] = {
#define KEY(key, member)                                                                           \
    {                                                                                              \
        .name = key, .read = section_read_resource,                                                \
        .offset = offsetof(struct kunlun_config, member)                                           \
    }
    KEY("resourceCountName", count_name),
    KEY("resourceVCountName", vcount_name),
    KEY("resourceVMemoryName", vmemory_name),
#undef KEY
};

static void set_missing(void *ret_config)
{
    *(struct kunlun_config *)ret_config = (struct kunlun_config){0};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "kunlun", keys, ARRAY_SIZE(keys), config);
}

/* Memory of parts alone can't be asked for. */
static int check_section(const struct section_reading *reading, const void *own)
{
    const struct kunlun_config *config = own;

    if (config->vcount_name[0] || !config->vmemory_name[0])
        return 0;
    return error_set(reading->err, -EINVAL,
                     "%s: kunlun.resourceVCountName: not given; pods could not ask for a part",
                     reading->file);
}

/* Pods. */

/* What is in both lists. None: a name that no card has, since an empty list asks for nothing. */
static int intersect(const struct text_list *a, const struct text_list *b, struct arena *arena,
                     struct text_list *ret_list)
{
    const char **items = ARENA_ARRAY(arena, const char *, a->count + 1);
    size_t count = 0;

    if (!items)
        return -ENOMEM;
    for (size_t i = 0; i < a->count; i++) {
        if (text_list_has(b, a->items[i]))
            items[count++] = a->items[i];
    }
    if (!count)
        items[count++] = "";
    *ret_list = (struct text_list){.items = items, .count = count, .sorted = true};
    return 0;
}

/* What is in either; not sorted. */
static int unite(const struct text_list *a, const struct text_list *b, struct arena *arena,
                 struct text_list *ret_list)
{
    const char **items = ARENA_ARRAY(arena, const char *, a->count + b->count);

    if (!items)
        return -ENOMEM;
    if (a->count)
        memcpy(items, a->items, a->count * sizeof(*items));
    if (b->count)
        memcpy(items + a->count, b->items, b->count * sizeof(*items));
    *ret_list = (struct text_list){.items = items, .count = a->count + b->count};
    return 0;
}

int kunlun_read_uuids(const struct pod *pod, struct arena *arena, struct request *request)
{
    static const char *const pairs[][2] = {
        {"hami.io/use-xpu-uuid", "hami.io/no-use-xpu-uuid"},
        {"baidu.com/use-gpuuuid", "baidu.com/nouse-gpuuuid"},
    };
    struct text_list use[2], avoid[2];
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(pairs) && r == 0; i++) {
        r = asking_list(pod, pairs[i][0], arena, &use[i]);
        if (r == 0)
            r = asking_list(pod, pairs[i][1], arena, &avoid[i]);
    }
    if (r < 0)
        return r;
    request->use_uuids = use[0].count ? use[0] : use[1];
    if (use[0].count && use[1].count)
        r = intersect(&use[0], &use[1], arena, &request->use_uuids);
    return r < 0 ? r : unite(&avoid[0], &avoid[1], arena, &request->avoid_uuids);
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct resource_list *limits = &pod->containers[container].limits;
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    (void)mutations;
    return r < 0 ? r : resource_find(limits, instance->count_resource) != NULL;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    struct request request = {.vendor = &instance->id, .memory_percent = 100};
    int64_t count = 0;
    int r;

    if (!asking_amount(&pod->containers[container], instance->count_resource, &count) || !count)
        return 0;
    request.count = (unsigned)count;
    r = kunlun_read_uuids(pod, arena, &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

static const struct device *find_granted(const struct vendor_instance *instance,
                                         const struct vendor_grant *grant, const char *uuid)
{
    return place_find_device(grant->devices, grant->device_count, &instance->id, uuid);
}

/* For the agent: the cards' numbers. It knows one list a pod; as in HAMi that is the last
 * container's. */
static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    const struct container_devices *last = NULL;
    struct strbuf text = STRBUF_IN(annotations->arena, CODEC_MAX_TEXT);
    int r = vendor_annotate_standard(instance, grant, annotations);

    for (size_t i = 0; i < grant->given->count; i++) {
        if (grant->given->containers[i].count)
            last = &grant->given->containers[i];
    }
    for (size_t i = 0; last && i < last->count; i++) {
        const struct device *device = find_granted(instance, grant, last->items[i].uuid);

        strbuf_addf(&text, "%s%u", i ? "," : "", device ? device->index : 0);
    }
    return r < 0 ? r
                 : vendor_annotate_add(annotations, instance->written_keys[0],
                                       text.failed ? NULL : strbuf_text(&text));
}

/* Placement. */

/* A card is taken with all that it has. */
static void want(const struct place_step *step, const struct device *device,
                 struct device_usage *ret_wanted)
{
    (void)step;
    ret_wanted->memory_bytes = device->memory_bytes;
    ret_wanted->cores = device->cores;
}

/* Cards of both wings. */
struct wings {
    unsigned left, right;
};

static void count_card(struct wings *wings, const struct device *device)
{
    if (device->index < WING)
        wings->left++;
    else
        wings->right++;
}

/* What of a wing is wasted: nothing of a whole one, most by a single card. */
static int waste_of(unsigned cards)
{
    return cards == WING ? 0 : cards == 1 ? 2 : 1;
}

static int waste(const struct wings *wings)
{
    if (!wings->left && !wings->right)
        return 1;
    return waste_of(wings->left) + waste_of(wings->right);
}

static bool are_all_of(const struct place_fitted *fitted)
{
    for (size_t i = 0; i < fitted->device_count; i++) {
        if (fitted->devices[i].vendor != fitted->vendor)
            return false;
    }
    return true;
}

/* HAMi's: whether the pod leaves the wings better than they were, which it looks up by what was
 * used before and what is taken now. The same for both orders of nodes. */
static float score_node(const struct place_fitted *fitted)
{
    static const float scores[] = {3000, 2000, 1000, 0};
    struct wings before = {0}, now = {0};
    int more;

    if (!are_all_of(fitted))
        return 0;
    for (size_t i = 0; i < fitted->device_count; i++) {
        if (fitted->devices[i].used.tasks)
            count_card(&before, &fitted->devices[i]);
    }
    for (size_t i = 0; i < fitted->given->count; i++) {
        for (size_t k = 0; k < fitted->given->containers[i].count; k++) {
            const struct device *device =
                place_find_device(fitted->devices, fitted->device_count, fitted->vendor,
                                  fitted->given->containers[i].items[k].uuid);

            if (device)
                count_card(&now, device);
        }
    }
    more = waste(&now) - waste(&before);
    return more >= -1 && more <= 2 ? scores[more + 1] : 1000;
}

static const struct place_rules rules = {
    .want = want,
    .choose = kunlun_choose,
    .tell = kunlun_tell,
    .score_node = score_node,
    .score_most = 3000,
};

/* Nodes. */

/* A sick card is one of unknown number. The first cards are given out first, so a card that is
 * taken for the sick one has to be among the last: one in use would hide that another is gone. */
static void put_sick_last(struct device *devices, size_t count)
{
    size_t healthy = 0;

    for (size_t i = 0; i < count; i++)
        healthy += devices[i].healthy;
    for (size_t i = 0; i < count; i++)
        devices[i].healthy = i < healthy;
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    const struct device sample = {
        .model = COMMON_WORD,
        .memory_bytes = KUNLUN_CARD_MIB * MIB,
        .cores = DEVICE_CORES,
        .max_tasks = 100,
    };
    int r;

    (void)arena;
    r = counted_read(instance, node, COMMON_WORD, &sample, ret_devices, max, ret_count, err);
    if (r < 0)
        return r;
    put_sick_last(ret_devices, *ret_count);
    for (size_t i = 0; i < *ret_count; i++)
        ret_devices[i].numa_node = i >= *ret_count / 2;
    return r;
}

/* How the agent finds the pod of an allocation is not known: only one may wait for it. */
static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return counted_amount(&node->capacity, instance->count_resource) > 0 ? &vendor_turn_lock : NULL;
}

static int add_instances(struct vendor_set *set, const void *own)
{
    const struct kunlun_config *config = own;
    const struct vendor_instance whole = {
        .vendor = &kunlun_vendor,
        .id = {COMMON_WORD, &rules, config},
        .allocated_key = "hami.io/kunlun-allocated",
        .written_keys = {"BAIDU_COM_DEVICE_IDX"},
        .count_resource = config->count_name,
        .resources = {config->count_name},
    };
    const struct vendor_instance parts = kunlun_vxpu_instance(config);
    int r = config->count_name[0] ? vendor_set_add(set, &whole) : 0;

    return r == 0 && config->vcount_name[0] ? vendor_set_add(set, &parts) : r;
}

static const char *const annotations[] = {"baidu.com/", "BAIDU_COM_DEVICE_IDX", NULL};

const struct vendor kunlun_vendor = {
    .name = "kunlun",
    .section = "kunlun",
    .config_size = sizeof(struct kunlun_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .check_section = check_section,
    .add_instances = add_instances,
    .annotations = annotations,
    .counts_resources = true,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .annotate = annotate,
};

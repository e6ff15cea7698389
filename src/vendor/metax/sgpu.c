/* SPDX-License-Identifier: Apache-2.0 */

/* Shares of MetaX's cards: what pods ask for, and what is written for their agent. */

#include <errno.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/metax/metax.h"

#define FOR_AGENT "metax-tech.com/gpu-devices-allocated"

const char *const metax_class_names[] = {"", "online", "offline", NULL};
const char *const metax_qos_names[] = {"", "best-effort", "fixed-share", "burst-share", NULL};

/* The position of a name; of another one the position after the last. */
static unsigned find_name(const char *const *names, const char *name)
{
    unsigned i = 0;

    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static const char *annotation(const struct text_pairs *annotations, const char *key)
{
    const char *text = text_pairs_get(annotations, key);

    return text ? text : "";
}

/* Go's words for true and false. */
static bool is_switched_on(const char *text, bool otherwise)
{
    static const char *const words[][2] = {{"1", "0"},        {"t", "f"},        {"T", "F"},
                                           {"true", "false"}, {"TRUE", "FALSE"}, {"True", "False"}};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(text, words[i][0]) == 0)
            return true;
        if (strcmp(text, words[i][1]) == 0)
            return false;
    }
    return otherwise;
}

void metax_read_wishes(const struct metax_config *config, const struct text_pairs *annotations,
                       struct metax_wishes *ret_wishes)
{
    const unsigned app_class =
        find_name(metax_class_names, annotation(annotations, METAX_APP_CLASS));

    /* Requests are compared by all bytes. */
    memset(ret_wishes, 0, sizeof(*ret_wishes));
    if (app_class <= METAX_OFFLINE)
        ret_wishes->app_class = (enum metax_class)app_class;
    ret_wishes->qos =
        (enum metax_qos)find_name(metax_qos_names, annotation(annotations, METAX_QOS));
    ret_wishes->topology =
        is_switched_on(annotation(annotations, METAX_TOPOLOGY), config->sgpu_topology);
}

/* Admission. */

static int refuse(const char *key, const char *text, const char *why, struct error *err)
{
    return error_set(err, -EINVAL, "metadata.annotations[%s]: \"%.64s\" is %s", key, text, why);
}

static int check_class(const struct metax_config *config, const struct pod *pod, size_t container,
                       const char *app_class, struct error *err)
{
    const struct resource *count =
        resource_find(&pod->containers[container].limits, config->vcount_name);

    if (strcmp(app_class, "online") != 0 && strcmp(app_class, "offline") != 0)
        return refuse(METAX_APP_CLASS, app_class, "none of online, offline", err);
    if (count->quantity.value != 1)
        return asking_refuse_amount(pod, container, "limits", count,
                                    "not 1: a pod with a class has one card", err);
    return 0;
}

static bool is_added(const struct mutations *mutations, const char *name)
{
    for (size_t i = 0; i < mutations->count; i++) {
        if (mutations->items[i].kind == MUTATION_ANNOTATION &&
            strcmp(mutations->items[i].name, name) == 0)
            return true;
    }
    return false;
}

static int complete_qos(const struct pod *pod, struct mutations *mutations, struct error *err)
{
    const char *qos = text_pairs_get(&pod->annotations, METAX_QOS);

    if (!qos)
        return is_added(mutations, METAX_QOS)
                   ? 0
                   : asking_change(mutations, &(struct mutation){.kind = MUTATION_ANNOTATION,
                                                                 .name = METAX_QOS,
                                                                 .value = "best-effort"});
    if (!*qos || find_name(metax_qos_names, qos) == METAX_OTHER_QOS)
        return refuse(METAX_QOS, qos, "none of best-effort, fixed-share, burst-share", err);
    return 0;
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct metax_config *config = instance->id.config;
    const char *app_class = text_pairs_get(&pod->annotations, METAX_APP_CLASS);
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    if (r < 0 || !resource_find(&pod->containers[container].limits, config->vcount_name))
        return r;
    if (app_class)
        r = check_class(config, pod, container, app_class, err);
    if (r == 0 && (!app_class || strcmp(app_class, "online") != 0))
        r = complete_qos(pod, mutations, err);
    return r < 0 ? r : 1;
}

/* Requests, of limits alone. */

static bool limit_of(const struct container *asking, const char *name, int64_t *ret_value)
{
    const struct resource *limit = *name ? resource_find(&asking->limits, name) : NULL;

    if (!limit || limit->quantity.form != QUANTITY_WHOLE || limit->quantity.value < 0)
        return false;
    *ret_value = limit->quantity.value;
    return true;
}

/* Memory with a unit is bytes, else GiB. Kubernetes writes a unit wherever a whole one fits. */
static int64_t read_mib(const struct container *asking, const char *name)
{
    int64_t value = 0;
    bool has_unit;

    if (!limit_of(asking, name, &value) || !value)
        return 0;
    has_unit = value % 1000 == 0 || strchr(resource_find(&asking->limits, name)->text, 'i');
    return has_unit ? value / (int64_t)MIB : MIN(value, (int64_t)INT32_MAX) * 1024;
}

/* The same of a quota, where a thousand GiB, which Kubernetes writes as 1k, are no rarity, and a
 * million are. */
static int64_t bound_mib(const struct resource *bound)
{
    const int64_t value = bound->quantity.value;

    return value >= 1000000 || strchr(bound->text, 'i') ? value / (int64_t)MIB : value * 1024;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct metax_config *config = instance->id.config;
    const struct container *asking = &pod->containers[container];
    struct metax_wishes *wishes = ARENA_NEW(arena, struct metax_wishes);
    int64_t count = 0, cores = DEVICE_CORES;
    struct request request = {
        .vendor = &instance->id, .wishes = wishes, .wishes_size = sizeof(*wishes)};
    int r;

    if (!wishes)
        return -ENOMEM;
    if (!limit_of(asking, config->vcount_name, &count) || !count || count > INT32_MAX)
        return 0;
    (void)limit_of(asking, config->vcore_name, &cores);
    metax_read_wishes(config, &pod->annotations, wishes);
    request.count = (unsigned)count;
    request.cores = (unsigned)MIN(cores, (int64_t)INT32_MAX);
    request.memory_bytes = (uint64_t)read_mib(asking, config->vmemory_name) * MIB;
    request.memory_percent = request.memory_bytes ? 0 : 100;
    r = asking_uuids(pod, "metax-tech.com/use-gpuuuid", "metax-tech.com/nouse-gpuuuid", arena,
                     &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

static const char *const recalled[] = {METAX_APP_CLASS, METAX_QOS, METAX_TOPOLOGY, NULL};

static int recall(const struct vendor_instance *instance, const struct text_pairs *annotations,
                  struct arena *arena, struct pod_devices *devices)
{
    struct metax_wishes wishes;

    (void)arena;
    metax_read_wishes(instance->id.config, annotations, &wishes);
    for (size_t i = 0; i < devices->count; i++) {
        for (size_t k = 0; k < devices->containers[i].count; k++) {
            struct container_device *device = &devices->containers[i].items[k];

            device->parts = metax_parts(&wishes, (unsigned)MAX(device->cores, 0));
        }
    }
    return 0;
}

/* Grants. */

static void add_device(struct strbuf *text, const struct container_device *device)
{
    strbuf_add(text, "{\"uuid\":");
    strbuf_add_json(text, device->uuid);
    if (device->cores)
        strbuf_addf(text, ",\"compute\":%d", (int)device->cores);
    if (device->memory_mib)
        strbuf_addf(text, ",\"vRam\":%d", (int)device->memory_mib);
    strbuf_add(text, "}");
}

/* For the agent: a list for each container. */
static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    struct strbuf text = STRBUF_IN(annotations->arena, CODEC_MAX_TEXT);
    int r = vendor_annotate_standard(instance, grant, annotations);

    strbuf_add(&text, "[");
    for (size_t i = 0; i < grant->given->count; i++) {
        strbuf_add(&text, i ? ",[" : "[");
        for (size_t k = 0; k < grant->given->containers[i].count; k++) {
            strbuf_add(&text, k ? "," : "");
            add_device(&text, &grant->given->containers[i].items[k]);
        }
        strbuf_add(&text, "]");
    }
    strbuf_add(&text, "]");
    return r < 0 ? r
                 : vendor_annotate_add(annotations, FOR_AGENT,
                                       text.failed ? NULL : strbuf_text(&text));
}

/* The agent registers nothing where it is gone; kubelet may say it sooner. */
static bool is_alive(const struct vendor_instance *instance, const struct node *node)
{
    const struct resource *count = resource_find(&node->allocatable, instance->count_resource);

    return text_pairs_get(&node->annotations, instance->register_key) &&
           (!count || count->quantity.value > 0);
}

static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return text_pairs_get(&node->annotations, instance->register_key) ? &vendor_mutex_lock : NULL;
}

struct vendor_instance metax_sgpu_instance(const struct metax_config *config)
{
    return (struct vendor_instance){
        .vendor = &metax_sgpu_vendor,
        .id = {METAX_SGPU_WORD, &metax_sgpu_rules, config},
        .register_key = "metax-tech.com/node-gpu-devices",
        .to_allocate_key = "hami.io/metax-sgpu-devices-to-allocate",
        .allocated_key = "hami.io/metax-sgpu-devices-allocated",
        .written_keys = {FOR_AGENT},
        .count_resource = config->vcount_name,
        .memory_resource = config->vmemory_name,
        .cores_resource = config->vcore_name,
        .memory_unit_mib = 1024,
        .resources = {config->vcount_name, config->vmemory_name, config->vcore_name},
    };
}

static const char *const annotations[] = {"metax-tech.com/", NULL};
static const char *const wishes[] = {"metax-tech.com/use-gpuuuid", "metax-tech.com/nouse-gpuuuid",
                                     METAX_QOS, METAX_APP_CLASS, NULL};
static const struct vendor_time times[] = {{"metax-tech.com/predicate-time", true}, {NULL, false}};

/* The section is metax_vendor's. */
const struct vendor metax_sgpu_vendor = {
    .name = "metax",
    .annotations = annotations,
    .wishes = wishes,
    .counts_resources = true,
    .bound_mib = bound_mib,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = metax_sgpu_read_node,
    .is_alive = is_alive,
    .prepare_bind = prepare_bind,
    .shares_lock = true,
    .annotate = annotate,
    .recall = recall,
    .recalled = recalled,
    .times = times,
};

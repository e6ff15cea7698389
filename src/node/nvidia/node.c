/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/node.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "model/mig_allocations.h"
#include "node/nvidia/allocations.h"
#include "node/nvidia/cards.h"
#include "node/nvidia/cells.h"
#include "node/nvidia/driver.h"
#include "node/nvidia/edits.h"
#include "node/nvidia/guest.h"
#include "node/nvidia/instances.h"
#include "node/nvidia/links.h"
#include "node/nvidia/made.h"
#include "node/nvidia/node_config.h"
#include "node/nvidia/sizes.h"
#include "node/nvidia/watched.h"
#include "nvml/find.h"
#include "nvml/report.h"

#define ENDPOINT "nvidia-gpu.sock"

enum {
    INSTANCES_PER_CARD = 7,     /* as many as any card can have */
    ALLOCATIONS_MAX = 64 << 10, /* bytes of an annotation */
};

struct nvidia_node {
    const struct nvidia_node_options *options;
    struct nvidia_config config;
    struct card_filter filter;
    char mode[DEVICE_MODE_SIZE];
    struct guest guest;
    struct edits_source source;
    struct node_way way;
    struct driver *driver;
    struct nvml *nvml; /* find()'s; NULL: not opened yet */
    struct watched watched;

    enum mig_strategy strategy;
    struct sizes *sizes; /* NULL: not measured here */
    struct made *made;   /* with mode mig: the instances that we make; else NULL */

    pthread_mutex_t lock; /* of find() and offer() */
    struct mig_profiles profiles;
};

/* Starting */

static int read_config(struct nvidia_node *node, const struct node_setup *setup, struct error *err)
{
    int r = nvidia_config_load(setup->device_config_file, &node->config, err);

    COPY_TEXT(node->mode, "hami-core");
    if (r < 0)
        return error_wrap(err, r, "--device-config-file");
    if (setup->node_config_file)
        r = node_config_load(setup->node_config_file, setup->node_name, &node->config,
                             &node->filter, node->mode, err);
    return r < 0 ? error_wrap(err, r, "--node-config-file") : 0;
}

/* Cards in MIG mode are used in instances that were made by others, or in those that we make. */
static int read_strategy(struct nvidia_node *node, const struct node_setup *setup,
                         struct error *err)
{
    const char *text = node->options->mig_strategy;

    if (mig_strategy_parse(text, &node->strategy) < 0)
        return error_set(err, -EINVAL, "MIG strategy \"%.32s\" is none of none, single, mixed",
                         text);
    if (node->strategy != MIG_STRATEGY_NONE)
        node->watched.health.split = HEALTH_SPLIT_SERVED;
    if (strcmp(node->mode, MIG_MODE) != 0)
        return 0;
    if (node->strategy != MIG_STRATEGY_NONE)
        return error_set(err, -EINVAL,
                         "with operatingmode mig, instances are made by the plugin, and "
                         "--mig-strategy must be none");
    node->watched.health.split = HEALTH_SPLIT_WANTED;
    node->config.memory_scaling = node->config.cores_scaling = 1;
    node->config.split_count = INSTANCES_PER_CARD;
    return made_new(setup->host, &node->config, node->options->procfs, &node->made, err);
}

/* Libraries of a driver root are of no use without device nodes, so device nodes are listed,
 * too. */
static int make_driver(struct nvidia_node *node, struct error *err)
{
    const struct driver_config config = {
        .cdi_folders = node->options->cdi_folders,
        .root = node->options->driver_root,
        .seen_root = node->options->seen_driver,
    };

    node->source.config = &node->config;
    node->source.guest = &node->guest;
    node->source.dev_root = node->options->dev_root;
    node->source.procfs = node->options->procfs;
    node->source.pass_device_specs = node->options->pass_device_specs || node->options->driver_root;
    node->driver = driver_new(&config);
    return node->driver ? 0 : error_set(err, -ENOMEM, "no memory");
}

static int install_guest(struct nvidia_node *node, const struct node_host *host, struct error *err)
{
    struct error why = ERROR_INIT;
    char library[PATH_MAX];
    int r;

    node->guest.host = host;
    r = guest_find_library(library, err);
    if (r == 0)
        r = guest_install(&node->guest, library, HAMI_VERSION, err);
    if (r == 0)
        r = cells_adopt(node->guest.host, err);
    if (r == 0 && guest_label(&node->guest, node->options->sysfs, &why) < 0)
        log_warn("%s", why.text);
    return r;
}

static int start_sizes(struct nvidia_node *node, const struct node_host *host, struct error *err)
{
    const struct sizes_options options = {
        .host = host,
        .root = node->options->seen_driver,
        .sysfs = node->options->sysfs,
        .limit_ms = node->options->measure_limit_ms,
    };
    int r = node->options->measure_contexts ? sizes_new(&options, &node->sizes, err) : 0;

    node->source.sizes = node->sizes;
    return r;
}

static void nvidia_node_stop(void *data)
{
    struct nvidia_node *node = data;

    if (!node)
        return;
    watched_deinit(&node->watched);
    nvml_close(node->nvml);
    driver_free(node->driver);
    sizes_free(node->sizes);
    made_free(node->made);
    (void)pthread_mutex_destroy(&node->lock);
    free(node);
}

static void read_list(const char *name, const char *text, struct xid_list *list)
{
    size_t bad = xid_list_parse(text, list);

    if (bad)
        log_warn("%s: %zu of its pieces are no XIDs, and are left out", name, bad);
}

static void read_checks(struct nvidia_node *node)
{
    const struct nvidia_node_options *options = node->options;
    struct xid_rules *rules = &node->watched.health.rules;

    read_list("DP_DISABLE_HEALTHCHECKS", options->disabled_checks, &rules->disabled);
    read_list("DP_ENABLE_HEALTHCHECKS", options->enabled_checks, &rules->enabled);
    node->watched.health.quiet_ns = (int64_t)options->health_quiet_ms * NS_PER_MS;
    if (xid_rules_are_off(rules))
        log_info("by DP_DISABLE_HEALTHCHECKS nothing counts but whether NVML answers");
}

static void offer_resources(const struct nvidia_node *node, struct node_offer *ret_offer)
{
    *ret_offer = (struct node_offer){.resource_count = 1};
    COPY_TEXT(ret_offer->resources[0].name, node->config.count_name);
    COPY_TEXT(ret_offer->resources[0].endpoint, ENDPOINT);
    COPY_TEXT(ret_offer->priority_resource, node->config.priority_name);
}

static int nvidia_node_start(const struct node_setup *setup, void **ret_node,
                             struct node_offer *ret_offer, struct error *err)
{
    struct nvidia_node *node = calloc(1, sizeof(*node));
    int r;

    if (!node)
        return error_set(err, -ENOMEM, "no memory");
    node->options = setup->own;
    (void)pthread_mutex_init(&node->lock, NULL);
    watched_init(&node->watched);
    read_checks(node);
    r = read_config(node, setup, err);
    if (r == 0)
        r = read_strategy(node, setup, err);
    if (r == 0)
        r = make_driver(node, err);
    if (r == 0)
        r = install_guest(node, setup->host, err);
    if (r == 0)
        r = start_sizes(node, setup->host, err);
    if (r < 0) {
        nvidia_node_stop(node);
        return r;
    }
    offer_resources(node, ret_offer);
    *ret_node = node;
    return 0;
}

/* Cards */

/* Containers get the folder in which the loader found the simulated NVML. */
static int find_simulated(struct nvidia_node *node, struct error *err)
{
    const char *machine = getenv("HAMI_SIM");
    struct edits_source *source = &node->source;

    if (!machine || !*machine)
        return 0;
    if (!realpath(machine, source->sim_machine))
        return error_set(err, -errno, "HAMI_SIM=%s: %s", machine, strerror(errno));
    if (nvml_folder(node->nvml, source->sim_folder) < 0)
        return error_set(err, -ENOENT, "cannot find the folder of the simulated driver");
    return 0;
}

static void say_versions(struct nvml *nvml)
{
    char driver[NVML_VERSION_SIZE] = "of an unknown version";
    int cuda = nvml_read_cuda_version(nvml);

    (void)nvml_read_version(nvml, driver, NULL);
    if (cuda > 0)
        log_info("NVIDIA's driver %s, for CUDA up to %d.%d", driver, cuda / 1000, cuda % 1000 / 10);
    else
        log_info("NVIDIA's driver %s", driver);
}

static int open_nvml(struct nvidia_node *node, struct error *err)
{
    int r;

    if (node->nvml)
        return 0;
    r = nvml_find(node->options->seen_driver, driver_usual_roots, &node->nvml, err);
    if (r == 0)
        nvml_set_sysfs(node->nvml, node->options->sysfs);
    if (r == 0)
        say_versions(node->nvml);
    return r < 0 ? r : find_simulated(node, err);
}

static void add_health(struct nvidia_node *node, const struct cards *cards,
                       struct nvml_card *reported)
{
    const struct card *card = cards_get(cards, reported->device.uuid);
    struct nvml_health reading;

    if (!card)
        return;
    reported->device.healthy = card->healthy;
    reported->has_health = true;
    COPY_TEXT(reported->why, card->why);
    if (nvml_read_health(node->nvml, card->index, &reading, NULL) == 0) {
        reported->has_errors = reading.has_errors;
        reported->corrected = reading.corrected;
        reported->uncorrected = reading.uncorrected;
    }
    reported->failures = watched_errors(&node->watched, card->uuid);
}

/* For the monitor, which may have no access to the cards, and knows nothing of their errors. */
static void write_report(struct nvidia_node *node, const struct cards *found)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(NVML_REPORT_MAX);
    struct nvml_card cards[CARDS_MAX];
    char path[PATH_MAX + 32];
    int count;

    count = nvml_read_cards(node->nvml, cards, CARDS_MAX, NULL);
    if (count < 0)
        return; /* the former report stays, and grows old */
    for (int i = 0; i < count; i++)
        add_health(node, found, &cards[i]);
    nvml_report_format(cards, (size_t)count, &text);
    (void)snprintf(path, sizeof(path), "%s/" NVML_REPORT_FILE, node->guest.host->hook_path);
    if (text.failed || file_replace(path, text.text, text.len, 0644) < 0)
        log_debug("%s can't be written", path);
}

static void find_instances(struct nvidia_node *node, const struct cards *known, struct cards *cards)
{
    struct mig_profiles profiles;

    (void)pthread_mutex_lock(&node->lock);
    profiles = node->profiles;
    (void)pthread_mutex_unlock(&node->lock);
    instances_expand(node->nvml, &node->config, &node->filter, node->strategy, known, &profiles,
                     cards);
    (void)pthread_mutex_lock(&node->lock);
    node->profiles = profiles;
    (void)pthread_mutex_unlock(&node->lock);
}

static int nvidia_node_find(void *data, const struct cards *known, struct cards *ret_cards,
                            struct error *err)
{
    struct nvidia_node *node = data;
    int r;

    r = open_nvml(node, err);
    if (r == 0)
        r = nvidia_cards_find(node->nvml, &node->config, &node->filter, known, ret_cards, err);
    if (r < 0) {
        *ret_cards = known ? *known : (struct cards){.count = 0};
        cards_set_unhealthy(ret_cards, err->text);
        return r;
    }
    if (node->made)
        made_settle(node->made, node->nvml, ret_cards);
    for (size_t i = 0; i < ret_cards->count; i++)
        watched_judge(&node->watched, node->nvml, &ret_cards->items[i]);
    write_report(node, ret_cards);
    find_instances(node, known, ret_cards);
    links_find(node->nvml, known, ret_cards);
    if (node->sizes)
        sizes_step(node->sizes, node->nvml, &node->config, ret_cards);
    return 0;
}

static enum node_want nvidia_node_want(void *data, const char *const *names, size_t count, bool all)
{
    struct nvidia_node *node = data;

    return node->made ? made_want(node->made, names, count, all) : NODE_WANT_SAME;
}

static int nvidia_node_find_part(void *data, const char *name, struct node_part *ret_part,
                                 struct error *err)
{
    struct nvidia_node *node = data;

    if (!node->made)
        return error_set(err, -EINVAL, "%s: no instances are made on this node", name);
    return made_find(node->made, name, ret_part, err);
}

static int nvidia_node_describe_parts(void *data, const struct pod_devices *devices,
                                      struct arena *arena, struct node_note *ret_note)
{
    struct nvidia_node *node = data;
    struct strbuf text = STRBUF_IN(arena, ALLOCATIONS_MAX);
    int r = node->made ? made_describe(node->made, devices, &text) : 0;

    if (r > 0)
        *ret_note = (struct node_note){MIG_ALLOCATIONS_KEY, strbuf_text(&text)};
    return r;
}

static void nvidia_node_offer(void *data, struct node_offer *offer)
{
    struct nvidia_node *node = data;

    (void)pthread_mutex_lock(&node->lock);
    instances_offer(&node->profiles, offer);
    (void)pthread_mutex_unlock(&node->lock);
}

static int nvidia_node_watch(void *data, struct error *err)
{
    struct nvidia_node *node = data;

    return watched_wait(&node->watched, node->nvml, err);
}

static int nvidia_node_annotate(void *data, const struct cards *cards, struct arena *arena,
                                struct node_note ret_notes[NODE_NOTES_MAX])
{
    const struct nvidia_node *node = data;
    const struct node_note notes[] = {
        {NVIDIA_REGISTER_KEY,
         nvidia_cards_encode(cards, node->mode, node->way.is_ordered, node->made, arena)},
        {NVIDIA_SCORE_KEY, links_encode(cards, arena)},
    };

    memcpy(ret_notes, notes, sizeof(notes));
    return notes[0].value ? (int)ARRAY_SIZE(notes) : -ENOMEM;
}

static size_t nvidia_node_amounts(void *data, const struct cards *cards,
                                  struct node_amount ret_amounts[NODE_AMOUNTS_MAX])
{
    const struct nvidia_node *node = data;
    struct node_amount memory = {.amount = 0}, cores = {.amount = 0};

    for (size_t i = 0; i < cards->count; i++) {
        if (cards->items[i].resource)
            continue;
        memory.amount += cards->items[i].memory_mib;
        cores.amount += cards->items[i].cores;
    }
    if (node->config.memory_factor > 1)
        memory.amount /= (uint64_t)node->config.memory_factor;
    COPY_TEXT(memory.name, node->config.memory_name);
    COPY_TEXT(cores.name, node->config.cores_name);
    ret_amounts[0] = memory;
    ret_amounts[1] = cores;
    return 2;
}

/* The driver */

static void say(struct node_condition *condition, bool ready, const char *reason,
                const char *message)
{
    condition->ready = ready;
    COPY_TEXT(condition->reason, reason);
    COPY_TEXT(condition->message, message);
}

/* No CDI edits bring the driver: the runtime may. */
static void say_of_runtime(const struct nvidia_node *node, const char *handler,
                           struct node_condition *condition)
{
    if (node->config.runtime_class[0])
        say(condition, true, "RuntimeClass",
            "pods name a runtime class, which brings NVIDIA's driver into containers");
    else if (strstr(handler, "nvidia"))
        say(condition, true, "DefaultRuntime",
            "the node's default runtime brings NVIDIA's driver into containers");
    else
        say(condition, false, "NoDriver",
            "nothing brings NVIDIA's driver into containers: install NVIDIA's container toolkit "
            "and run `" DRIVER_CURE "` on the node; or set runtimeClassName or "
            "--nvidia-driver-root");
}

static bool is_nvidia(const char *handler)
{
    return handler && strstr(handler, "nvidia");
}

/* Without CDI a runtime of NVIDIA's does what the toolkit's hooks would do, so it comes first. */
static bool runtime_brings(const struct nvidia_node *node)
{
    return node->way.by_runtime || node->way.by_mounts || node->config.runtime_class[0] ||
           is_nvidia(node->way.handler);
}

static void nvidia_node_set_way(void *data, const struct node_way *way)
{
    struct nvidia_node *node = data;

    node->way = *way;
    node->source.by_mounts = way->by_mounts;
}

static void nvidia_node_describe(void *data, const char *why_no_cards, const char *handler,
                                 struct node_condition *ret_condition)
{
    struct nvidia_node *node = data;
    struct error err = ERROR_INIT;
    int source;

    if (why_no_cards) {
        say(ret_condition, false, "NoNVML", why_no_cards);
        return;
    }
    source = driver_look(node->driver, &err);
    if (node->way.is_ordered && runtime_brings(node) && !node->source.sim_machine[0])
        say_of_runtime(node, handler, ret_condition);
    else if (source == DRIVER_TOOLKIT)
        say(ret_condition, true, "ToolkitSpecification",
            "containers get NVIDIA's driver by its toolkit's CDI specification");
    else if (source == DRIVER_ROOT)
        say(ret_condition, true, "DriverRoot", "containers get NVIDIA's driver from a driver root");
    else if (source < 0)
        say(ret_condition, false, "BadSpecification", err.text);
    else if (node->source.sim_machine[0])
        say(ret_condition, true, "Simulated", "the node's cards are simulated");
    else
        say_of_runtime(node, handler, ret_condition);
}

/* Containers */

/* Chooses the CDI edits that bring the driver into the container. The cards' texts are the
 * grant's. */
static int choose_driver(struct nvidia_node *node, const struct container_grant *grant,
                         const struct cards *cards, struct cdi_choice *ret_choice,
                         struct error *err)
{
    struct cdi_card mine[GRANT_DEVICES_MAX];
    bool every = grant->device_count == cards->present;
    int r;

    for (size_t i = 0; i < grant->device_count; i++) {
        const struct granted_device *device = &grant->devices[i];

        mine[i] = (struct cdi_card){device->uuid, device->index, device->is_instance};
        every &= !device->is_instance;
    }
    r = driver_choose(node->driver, mine, grant->device_count, every, ret_choice, err);
    return MIN(r, 0);
}

_Static_assert((int)GRANT_DEVICES_MAX == (int)NVIDIA_CARDS_MAX, "a configuration's check says it");
_Static_assert((int)GRANT_DEVICES_MAX <= (int)LIMITS_MAX_DEVICES, "libvgpu takes as many");

static int nvidia_node_prepare(void *data, const struct container_grant *grant,
                               const struct cards *cards, const char *folder,
                               struct spec_edits *edits, struct error *err)
{
    struct nvidia_node *node = data;
    char region[GUEST_REGION_SIZE];
    struct cdi_choice driver;
    struct limits limits;
    int r = 0;

    if (grant->laid_out && runtime_brings(node))
        driver = (struct cdi_choice){.count = 0};
    else
        r = choose_driver(node, grant, cards, &driver, err);
    if (r < 0)
        return r;
    edits_limits(&node->source, grant, cards, &limits);
    r = cells_prepare(node->guest.host, folder, edits_lend(&node->source), &limits, err);
    if (r == 0)
        r = guest_prepare(folder, &limits, grant->laid_out, region, err);
    if (r < 0)
        return r;
    edits_add(&node->source, grant, &driver, folder, region, edits);
    cells_add_mounts(node->guest.host, folder, &limits, edits);
    return 0;
}

static int nvidia_node_trim(void *data, void (*fn)(void *data, const char *entry, uint64_t bytes),
                            void *fn_data, struct error *err)
{
    const struct nvidia_node *node = data;

    return guest_trim(node->guest.host, fn, fn_data, err);
}

/* Keeps an NVIDIA runtime from handing out all cards without limits where CDI is not known. */
static const struct node_variable variables[] = {
    {"NVIDIA_VISIBLE_DEVICES", "void"},
};

const struct node_vendor nvidia_node_vendor = {
    .name = "NVIDIA",
    .allocated_key = NVIDIA_ALLOCATED_KEY,
    .parts_key = MIG_ALLOCATIONS_KEY,
    .name_parts = allocations_name_parts,
    .to_allocate_key = NVIDIA_TO_ALLOCATE_KEY,
    .variables = variables,
    .variable_count = ARRAY_SIZE(variables),
    .start = nvidia_node_start,
    .set_way = nvidia_node_set_way,
    .stop = nvidia_node_stop,
    .find = nvidia_node_find,
    .want = nvidia_node_want,
    .find_part = nvidia_node_find_part,
    .describe_parts = nvidia_node_describe_parts,
    .offer = nvidia_node_offer,
    .annotate = nvidia_node_annotate,
    .describe = nvidia_node_describe,
    .prepare = nvidia_node_prepare,
    .watch = nvidia_node_watch,
    .amounts = nvidia_node_amounts,
    .trim = nvidia_node_trim,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/node.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "node/nvidia/cards.h"
#include "node/nvidia/driver.h"
#include "node/nvidia/edits.h"
#include "node/nvidia/guest.h"
#include "node/nvidia/links.h"
#include "node/nvidia/node_config.h"
#include "nvml/find.h"
#include "nvml/report.h"

#define ENDPOINT "nvidia-gpu.sock"

struct nvidia_node {
    const struct nvidia_node_options *options;
    struct nvidia_config config;
    struct card_filter filter;
    char mode[DEVICE_MODE_SIZE];
    struct guest guest;
    struct edits_source source;
    struct driver *driver;
    struct nvml *nvml; /* find()'s; NULL: not opened yet */
};

/* Starting */

static int read_config(struct nvidia_node *node, const struct node_setup *setup, struct error *err)
{
    int r = nvidia_config_load(setup->device_config_file, &node->config, err);

    COPY_TEXT(node->mode, "hami-core");
    if (r == 0 && setup->node_config_file)
        r = node_config_load(setup->node_config_file, setup->node_name, &node->config,
                             &node->filter, node->mode, err);
    return r;
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
    if (r == 0 && guest_label(&node->guest, node->options->sysfs, &why) < 0)
        log_warn("%s", why.text);
    return r;
}

static void nvidia_node_stop(void *data)
{
    struct nvidia_node *node = data;

    if (!node)
        return;
    nvml_close(node->nvml);
    driver_free(node->driver);
    free(node);
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
    r = read_config(node, setup, err);
    if (r == 0)
        r = make_driver(node, err);
    if (r == 0)
        r = install_guest(node, setup->host, err);
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
    char *slash;
    Dl_info info;
    void *handle, *symbol;

    if (!machine || !*machine)
        return 0;
    if (!realpath(machine, source->sim_machine))
        return error_set(err, -errno, "HAMI_SIM=%s: %s", machine, strerror(errno));
    handle = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    symbol = handle ? dlsym(handle, "nvmlInit_v2") : NULL;
    if (!symbol || !dladdr(symbol, &info) || !realpath(info.dli_fname, source->sim_folder))
        return error_set(err, -ENOENT, "cannot find the folder of the simulated driver");
    slash = strrchr(source->sim_folder, '/');
    *slash = '\0';
    return 0;
}

static int open_nvml(struct nvidia_node *node, struct error *err)
{
    int r;

    if (node->nvml)
        return 0;
    r = nvml_find(node->options->seen_driver, driver_usual_roots, &node->nvml, err);
    if (r == 0)
        nvml_set_sysfs(node->nvml, node->options->sysfs);
    return r < 0 ? r : find_simulated(node, err);
}

/* For the monitor, which has no access to the cards. */
static void write_report(const struct nvidia_node *node)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(NVML_REPORT_MAX);
    struct nvml_card cards[CARDS_MAX];
    char path[PATH_MAX + 32];
    int count;

    count = nvml_read_cards(node->nvml, cards, CARDS_MAX, NULL);
    if (count < 0)
        return; /* the former report stays, and grows old */
    nvml_report_format(cards, (size_t)count, &text);
    (void)snprintf(path, sizeof(path), "%s/" NVML_REPORT_FILE, node->guest.host->hook_path);
    if (text.failed || file_replace(path, text.text, text.len, 0644) < 0)
        log_debug("%s can't be written", path);
}

static int nvidia_node_find(void *data, const struct cards *known, struct cards *ret_cards,
                            struct error *err)
{
    struct nvidia_node *node = data;
    int r;

    r = open_nvml(node, err);
    if (r == 0)
        r = nvidia_cards_find(node->nvml, &node->config, &node->filter, known, ret_cards, err);
    if (r == 0)
        write_report(node);
    if (r == 0)
        return 0;
    *ret_cards = known ? *known : (struct cards){.count = 0};
    cards_set_unhealthy(ret_cards);
    return r;
}

static int nvidia_node_annotate(void *data, const struct cards *cards, struct arena *arena,
                                struct node_note ret_notes[NODE_NOTES_MAX])
{
    const struct nvidia_node *node = data;
    const struct node_note notes[] = {
        {NVIDIA_REGISTER_KEY, nvidia_cards_encode(cards, node->mode, arena)},
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
    if (source == DRIVER_TOOLKIT)
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

    for (size_t i = 0; i < grant->device_count; i++)
        mine[i] = (struct cdi_card){grant->devices[i].uuid, grant->devices[i].index};
    r = driver_choose(node->driver, mine, grant->device_count, every, ret_choice, err);
    return MIN(r, 0);
}

_Static_assert((int)GRANT_DEVICES_MAX <= (int)LIMITS_MAX_DEVICES, "libvgpu takes as many");

static int nvidia_node_prepare(void *data, const struct container_grant *grant,
                               const struct cards *cards, const char *folder,
                               struct spec_edits *edits, struct error *err)
{
    struct nvidia_node *node = data;
    char region[GUEST_REGION_SIZE];
    struct cdi_choice driver;
    struct limits limits;
    int r;

    r = choose_driver(node, grant, cards, &driver, err);
    if (r < 0)
        return r;
    edits_limits(&node->source, grant, &limits);
    r = guest_prepare(folder, &limits, region, err);
    if (r < 0)
        return r;
    edits_add(&node->source, grant, &driver, folder, region, edits);
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
    .to_allocate_key = NVIDIA_TO_ALLOCATE_KEY,
    .variables = variables,
    .variable_count = ARRAY_SIZE(variables),
    .start = nvidia_node_start,
    .stop = nvidia_node_stop,
    .find = nvidia_node_find,
    .annotate = nvidia_node_annotate,
    .describe = nvidia_node_describe,
    .prepare = nvidia_node_prepare,
    .amounts = nvidia_node_amounts,
    .trim = nvidia_node_trim,
};

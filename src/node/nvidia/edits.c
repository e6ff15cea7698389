/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/edits.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/util.h"
#include "node/nvidia/laid_out.h"

/* "": the library's own way, which is "default". */
static const char *core_policy(const struct edits_source *source)
{
    return source->config->disable_core_limit ? "disable" : source->config->core_policy;
}

/* The configuration rules. An instance that is none of the cards is taken for its card: what a
 * context takes there is at most as much. */
static uint64_t context_bytes(const struct edits_source *source,
                              const struct granted_device *device, const struct cards *cards)
{
    const struct card *card = cards_get(cards, device->uuid);
    uint64_t configured;

    for (size_t i = 0; i < cards->count && !card; i++) {
        if (cards->items[i].index == device->index)
            card = &cards->items[i];
    }
    if (!card)
        return 0;
    configured = nvidia_find_context(source->config, card->type) * MIB;
    return configured ? configured : sizes_find(source->sizes, card->type);
}

void edits_limits(const struct edits_source *source, const struct container_grant *grant,
                  const struct cards *cards, struct limits *ret_limits)
{
    bool no_cores = strcmp(core_policy(source), "disable") == 0;
    struct limits limits = LIMITS_INIT;

    limits.device_count = (unsigned)grant->device_count;
    /* With real cards the runtime hides other cards; simulated ones need this variable. What
     * Allocate answers, a container's own variables override, by which NVIDIA's runtime may show it
     * others. */
    limits.only_granted = source->sim_machine[0] || grant->laid_out;
    limits.oversubscribed = source->config->memory_scaling > 1;
    if (grant->priority >= 0)
        limits.priority = grant->priority;
    if (source->config->managed[0])
        (void)limits_read_managed(source->config->managed, &limits.managed);
    limits.allow_imports = strcmp(source->config->imports, "allow") == 0;
    for (size_t i = 0; i < grant->device_count; i++) {
        const struct granted_device *device = &grant->devices[i];

        COPY_TEXT(limits.devices[i].uuid, device->uuid);
        limits.devices[i].memory_bytes = device->memory_bytes;
        limits.devices[i].cores = device->cores < DEVICE_CORES && !no_cores ? device->cores : 0;
        limits.devices[i].context_bytes = context_bytes(source, device, cards);
        /* As add_environment() writes them. */
        limits.devices[i].given_memory_bytes = device->memory_bytes / MIB * MIB;
        limits.devices[i].given_cores =
            grant->devices[0].cores < DEVICE_CORES ? grant->devices[0].cores : 0;
    }
    *ret_limits = limits;
}

bool edits_lend(const struct edits_source *source)
{
    return !*core_policy(source) || strcmp(core_policy(source), "default") == 0;
}

/* For NVIDIA's runtime: mounts of nothing, each named as a card, which no container can choose for
 * itself as it can a variable. */
#define VISIBLE_FOLDER "/var/run/nvidia-container-devices"

static bool is_by_mounts(const struct edits_source *source, const struct container_grant *grant,
                         bool with_driver)
{
    return grant->laid_out && source->by_mounts && !with_driver;
}

static void add_visible_mounts(const struct container_grant *grant, struct spec_edits *edits)
{
    char path[sizeof(VISIBLE_FOLDER) + DEVICE_UUID_SIZE + 1];

    for (size_t i = 0; i < grant->device_count; i++) {
        (void)snprintf(path, sizeof(path), VISIBLE_FOLDER "/%s", grant->devices[i].uuid);
        spec_add_mount(edits, "/dev/null", path, false);
    }
}

static void add_environment(const struct edits_source *source, const struct container_grant *grant,
                            bool with_driver, const char *region, struct spec_edits *edits)
{
    char uuids[LIMITS_MAX_DEVICES * (DEVICE_UUID_SIZE + 1)] = "";
    size_t len = 0;

    for (size_t i = 0; i < grant->device_count; i++)
        len += (size_t)snprintf(uuids + len, sizeof(uuids) - len, "%s%s", i ? "," : "",
                                grant->devices[i].uuid);
    /* Where the driver comes by CDI, an NVIDIA runtime must not bring it once more. */
    spec_add_env(edits, "NVIDIA_VISIBLE_DEVICES=%s",
                 with_driver                                ? "void"
                 : is_by_mounts(source, grant, with_driver) ? VISIBLE_FOLDER
                                                            : uuids);
    for (size_t i = 0; i < grant->device_count; i++)
        spec_add_env(edits, "CUDA_DEVICE_MEMORY_LIMIT_%zu=%llum", i,
                     (unsigned long long)(grant->devices[i].memory_bytes / MIB));
    spec_add_env(edits, "CUDA_DEVICE_SM_LIMIT=%u", grant->devices[0].cores);
    spec_add_env(edits, "CUDA_DEVICE_MEMORY_SHARED_CACHE=" GUEST_FOLDER "/%s", region);
    if (source->config->memory_scaling > 1)
        spec_add_env(edits, "CUDA_OVERSUBSCRIBE=true");
    if (source->config->log_level[0])
        spec_add_env(edits, "LIBCUDA_LOG_LEVEL=%s", source->config->log_level);
    if (*core_policy(source) && strcmp(core_policy(source), "default") != 0)
        spec_add_env(edits, "GPU_CORE_UTILIZATION_POLICY=%s", core_policy(source));
    if (source->sim_machine[0] && !with_driver)
        spec_add_env(edits, "HAMI_SIM=" GUEST_FOLDER "/machine");
    /* With real cards, other cards are hidden since their device nodes are missing. */
    if (source->sim_machine[0])
        spec_add_env(edits, "CUDA_VISIBLE_DEVICES=%s", uuids);
}

/* Variables that only we set. */
static bool is_our_variable(const char *text)
{
    static const char *const starts[] = {
        "NVIDIA_VISIBLE_DEVICES=",
        "CUDA_VISIBLE_DEVICES=",
        "CUDA_DEVICE_",
        "CUDA_TASK_PRIORITY=",
        "GPU_CORE_",
        "LD_PRELOAD=",
        SPEC_ENV_POD,
        SPEC_ENV_CONTAINER,
    };

    for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
        if (strncmp(text, starts[i], strlen(starts[i])) == 0)
            return true;
    }
    return false;
}

/* At the places where the NVIDIA runtime mounts the real driver's libraries. */
static void add_sim_mounts(const struct edits_source *source, struct spec_edits *edits)
{
    static const char *const names[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
    char path[PATH_MAX + 32], inside[128];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", source->sim_folder, names[i]);
        (void)snprintf(inside, sizeof(inside), DRIVER_LIBRARY_FOLDER "/%s", names[i]);
        spec_add_mount(edits, path, inside, false);
    }
    spec_add_mount(edits, source->sim_machine, GUEST_FOLDER "/machine", true);
}

/* In our pod the host's root is mounted at HOST_ROOT. */
static bool is_there(const char *host_path)
{
    char seen[PATH_MAX + 128];

    if (access(host_path, F_OK) == 0)
        return true;
    (void)snprintf(seen, sizeof(seen), HOST_ROOT "%s", host_path);
    return access(seen, F_OK) == 0;
}

static void add_device_node(const struct edits_source *source, const char *path, bool optional,
                            struct spec_edits *edits)
{
    char host_path[PATH_MAX + 64];

    (void)snprintf(host_path, sizeof(host_path), "%s%s", source->dev_root, path);
    if (!optional || is_there(host_path))
        spec_add_node(edits, path, host_path);
}

/* The driver's file for an instance says "DeviceFileMinor: 30". */
static void add_capability(const struct edits_source *source, const char *access,
                           struct spec_edits *edits)
{
    char text[256], path[64], *line;
    unsigned minor;

    if (file_read(access, text, sizeof(text)) < 0)
        return;
    line = strstr(text, "DeviceFileMinor:");
    if (!line || sscanf(line, "DeviceFileMinor: %u", &minor) != 1)
        return;
    (void)snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", minor);
    add_device_node(source, path, false, edits);
}

/* The card's own, and for an instance its two capabilities. */
static void add_card_nodes(const struct edits_source *source, const struct granted_device *device,
                           struct spec_edits *edits)
{
    char path[PATH_MAX];

    if (!device->has_minor)
        return;
    (void)snprintf(path, sizeof(path), "/dev/nvidia%u", device->minor);
    add_device_node(source, path, false, edits);
    if (!device->is_instance)
        return;
    (void)snprintf(path, sizeof(path), "%s/driver/nvidia/capabilities/gpu%u/mig/gi%u/access",
                   source->procfs, device->minor, device->gpu_instance);
    add_capability(source, path, edits);
    (void)snprintf(path, sizeof(path), "%s/driver/nvidia/capabilities/gpu%u/mig/gi%u/ci%u/access",
                   source->procfs, device->minor, device->gpu_instance, device->compute_instance);
    add_capability(source, path, edits);
}

static void add_device_nodes(const struct edits_source *source, const struct container_grant *grant,
                             struct spec_edits *edits)
{
    static const char *const shared[] = {
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
    };

    for (size_t i = 0; i < ARRAY_SIZE(shared); i++)
        add_device_node(source, shared[i], true, edits);
    for (size_t i = 0; i < grant->device_count; i++)
        add_card_nodes(source, &grant->devices[i], edits);
}

static bool has_nodes(const struct cdi_choice *driver)
{
    for (size_t i = 0; i < driver->count; i++) {
        if (driver->parts[i]->nodes.count)
            return true;
    }
    return false;
}

void edits_add(const struct edits_source *source, const struct container_grant *grant,
               const struct cdi_choice *driver, const char *folder, const char *region,
               struct spec_edits *edits)
{
    bool simulated = source->sim_machine[0] != '\0';

    add_environment(source, grant, driver->count > 0, region, edits);
    cdi_add_env(driver, is_our_variable, &edits->env);
    guest_add_mounts(source->guest, folder, region, edits);
    if (grant->laid_out)
        laid_out_add_mounts(driver, guest_has_path, &edits->mounts);
    else
        cdi_add_mounts(driver, guest_has_path, &edits->mounts);
    if (is_by_mounts(source, grant, driver->count > 0))
        add_visible_mounts(grant, edits);
    if (!driver->count && simulated)
        add_sim_mounts(source, edits);
    if (has_nodes(driver))
        cdi_add_nodes(driver, &edits->nodes);
    else if (source->pass_device_specs && !simulated)
        add_device_nodes(source, grant, edits);
    for (size_t i = 0; driver->lacks_nodes && has_nodes(driver) && i < grant->device_count; i++)
        add_card_nodes(source, &grant->devices[i], edits);
    if (grant->laid_out)
        return;
    cdi_add_hooks(driver, &edits->hooks);
    cdi_add_gids(driver, &edits->gids);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/edits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

#include "base/util.h"

/* CDI 0.5 is what containerd 1.7 reads; additionalGids came with 0.7. */
#define CDI_VERSION "0.5.0"
#define CDI_VERSION_GIDS "0.7.0"

/* These annotations of a specification name its owner. */
#define ENV_POD "HAMI_POD_UID="
#define ENV_CONTAINER "HAMI_CONTAINER="

int edits_folder(const struct node_host *host, const char *pod_uid, const char *container,
                 char *ret_path, size_t size)
{
    int len = snprintf(ret_path, size, "%s/containers/%s_%s", host->hook_path, pod_uid, container);

    return len > 0 && (size_t)len < size ? 0 : -ENAMETOOLONG;
}

static int compare_ids(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* FNV-1a over the sorted ids: the same whatever their order, from one start to the next. */
void edits_device_name(const char *const *ids, size_t count, char ret_name[EDITS_NAME_SIZE])
{
    const char **sorted = calloc(count + 1, sizeof(*sorted));
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (sorted) {
        memcpy(sorted, ids, count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare_ids);
    }
    for (size_t i = 0; sorted && i < count; i++) {
        /* The terminator, too, so that "a","b" is not "ab". */
        for (const char *p = sorted[i];; p++) {
            hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
            if (!*p)
                break;
        }
    }
    free(sorted);
    (void)snprintf(ret_name, EDITS_NAME_SIZE, "a%016llx", (unsigned long long)hash);
}

/* "": the library's own way, which is "default". */
static const char *core_policy(const struct node_host *host)
{
    return host->config->disable_core_limit ? "disable" : host->config->core_policy;
}

int edits_limits(const struct node_host *host, const struct container_grant *grant, char *text,
                 size_t size)
{
    bool no_cores = strcmp(core_policy(host), "disable") == 0;
    struct limits limits = LIMITS_INIT;

    limits.device_count = (unsigned)grant->device_count;
    /* With real cards the runtime hides other cards; simulated ones need this variable. */
    limits.only_granted = host->sim_machine[0] != '\0';
    if (grant->priority >= 0)
        limits.priority = grant->priority;
    (void)snprintf(limits.region_path, sizeof(limits.region_path), CONTAINER_FOLDER "/%s",
                   grant->region);
    for (size_t i = 0; i < grant->device_count; i++) {
        const struct granted_device *device = &grant->devices[i];

        COPY_TEXT(limits.devices[i].uuid, device->uuid);
        limits.devices[i].memory_bytes = device->memory_bytes;
        limits.devices[i].cores = device->cores < DEVICE_CORES && !no_cores ? device->cores : 0;
        /* As add_environment() writes them. */
        limits.devices[i].given_memory_bytes = device->memory_bytes / MIB * MIB;
        limits.devices[i].given_cores =
            grant->devices[0].cores < DEVICE_CORES ? grant->devices[0].cores : 0;
    }
    return limits_format(&limits, text, size);
}

/* The parts of a specification; each list's elements have commas between them. */

static void add_env(struct strbuf *spec, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void add_env(struct strbuf *spec, const char *fmt, ...)
{
    char text[LIMITS_MAX_DEVICES * (DEVICE_UUID_SIZE + 1) + 64];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    cdi_add_separator(spec);
    strbuf_add_json(spec, text);
}

static void add_environment(const struct node_host *host, const struct container_grant *grant,
                            bool with_driver, struct strbuf *spec)
{
    char uuids[LIMITS_MAX_DEVICES * (DEVICE_UUID_SIZE + 1)] = "";
    size_t len = 0;

    for (size_t i = 0; i < grant->device_count; i++)
        len += (size_t)snprintf(uuids + len, sizeof(uuids) - len, "%s%s", i ? "," : "",
                                grant->devices[i].uuid);
    add_env(spec, ENV_POD "%s", grant->pod_uid);
    add_env(spec, ENV_CONTAINER "%s", grant->container);
    /* Where the driver comes by CDI, an NVIDIA runtime must not bring it once more. */
    add_env(spec, "NVIDIA_VISIBLE_DEVICES=%s", with_driver ? "void" : uuids);
    for (size_t i = 0; i < grant->device_count; i++)
        add_env(spec, "CUDA_DEVICE_MEMORY_LIMIT_%zu=%llum", i,
                (unsigned long long)(grant->devices[i].memory_bytes / MIB));
    add_env(spec, "CUDA_DEVICE_SM_LIMIT=%u", grant->devices[0].cores);
    add_env(spec, "CUDA_DEVICE_MEMORY_SHARED_CACHE=" CONTAINER_FOLDER "/%s", grant->region);
    if (host->config->memory_scaling > 1)
        add_env(spec, "CUDA_OVERSUBSCRIBE=true");
    if (host->config->log_level[0])
        add_env(spec, "LIBCUDA_LOG_LEVEL=%s", host->config->log_level);
    if (*core_policy(host) && strcmp(core_policy(host), "default") != 0)
        add_env(spec, "GPU_CORE_UTILIZATION_POLICY=%s", core_policy(host));
    if (host->sim_machine[0] && !with_driver)
        add_env(spec, "HAMI_SIM=" CONTAINER_FOLDER "/machine");
    /* With real cards, other cards are hidden since their device nodes are missing. */
    if (host->sim_machine[0])
        add_env(spec, "CUDA_VISIBLE_DEVICES=%s", uuids);
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
        ENV_POD,
        ENV_CONTAINER,
    };

    for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
        if (strncmp(text, starts[i], strlen(starts[i])) == 0)
            return true;
    }
    return false;
}

/* Files that only we mount, and their folder. */
static bool is_our_path(const char *path)
{
    size_t len = strlen(CONTAINER_FOLDER);

    return strcmp(path, "/etc/ld.so.preload") == 0 ||
           (strncmp(path, CONTAINER_FOLDER, len) == 0 && (!path[len] || path[len] == '/'));
}

static void edits_add_mount(struct strbuf *spec, const char *host_path, const char *container_path,
                            bool writable)
{
    cdi_add_separator(spec);
    strbuf_add(spec, "{\"hostPath\":");
    strbuf_add_json(spec, host_path);
    strbuf_add(spec, ",\"containerPath\":");
    strbuf_add_json(spec, container_path);
    strbuf_addf(spec, ",\"options\":[\"%s\",\"nosuid\",\"nodev\",\"bind\"]}",
                writable ? "rw" : "ro");
}

/* Each file is a mount of its own, and no mount lies within another: a user can neither unlink nor
 * replace a mounted file. */
static void add_mounts(const struct node_host *host, const struct container_grant *grant,
                       struct strbuf *spec)
{
    char path[PATH_MAX + 320], inside[128], folder[PATH_MAX];

    if (edits_folder(host, grant->pod_uid, grant->container, folder, sizeof(folder)) < 0) {
        spec->failed = true;
        return;
    }
    edits_add_mount(spec, host->library, CONTAINER_FOLDER "/libvgpu.so", false);
    (void)snprintf(path, sizeof(path), "%s/limits", folder);
    edits_add_mount(spec, path, CONTAINER_FOLDER "/limits", false);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, grant->region);
    (void)snprintf(inside, sizeof(inside), CONTAINER_FOLDER "/%s", grant->region);
    edits_add_mount(spec, path, inside, true);
    (void)snprintf(path, sizeof(path), "%s/ld.so.preload", host->hook_path);
    edits_add_mount(spec, path, "/etc/ld.so.preload", false);
}

/* At the places where the NVIDIA runtime mounts the real driver's libraries. */
static void add_sim_mounts(const struct node_host *host, struct strbuf *spec)
{
    static const char *const names[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
    char path[PATH_MAX + 32], inside[128];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", host->sim_folder, names[i]);
        (void)snprintf(inside, sizeof(inside), DRIVER_LIBRARY_FOLDER "/%s", names[i]);
        edits_add_mount(spec, path, inside, false);
    }
    edits_add_mount(spec, host->sim_machine, CONTAINER_FOLDER "/machine", true);
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

static void add_device_node(const struct node_host *host, const char *path, bool optional,
                            struct strbuf *spec)
{
    char host_path[PATH_MAX + 64];

    (void)snprintf(host_path, sizeof(host_path), "%s%s", host->dev_root, path);
    if (optional && !is_there(host_path))
        return;
    cdi_add_separator(spec);
    strbuf_add(spec, "{\"path\":");
    strbuf_add_json(spec, path);
    strbuf_add(spec, ",\"hostPath\":");
    strbuf_add_json(spec, host_path);
    strbuf_add(spec, ",\"permissions\":\"rw\"}");
}

static void add_device_nodes(const struct node_host *host, const struct container_grant *grant,
                             struct strbuf *spec)
{
    static const char *const shared[] = {
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
    };
    char path[32];

    for (size_t i = 0; i < ARRAY_SIZE(shared); i++)
        add_device_node(host, shared[i], true, spec);
    for (size_t i = 0; i < grant->device_count; i++) {
        if (!grant->devices[i].has_minor)
            continue;
        (void)snprintf(path, sizeof(path), "/dev/nvidia%u", grant->devices[i].minor);
        add_device_node(host, path, false, spec);
    }
}

/* The elements of containerEdits, each with a list of its own. */

static void add_all_mounts(const struct node_host *host, const struct container_grant *grant,
                           const struct cdi_choice *driver, struct strbuf *spec)
{
    strbuf_add(spec, ",\"mounts\":[");
    add_mounts(host, grant, spec);
    if (driver->count)
        cdi_add_mounts(driver, is_our_path, spec);
    else if (host->sim_machine[0])
        add_sim_mounts(host, spec);
    strbuf_add(spec, "]");
}

static bool has_nodes(const struct cdi_choice *driver)
{
    for (size_t i = 0; i < driver->count; i++) {
        if (driver->parts[i]->nodes.count)
            return true;
    }
    return false;
}

static void add_all_nodes(const struct node_host *host, const struct container_grant *grant,
                          const struct cdi_choice *driver, struct strbuf *spec)
{
    bool listed = has_nodes(driver);

    if (!listed && (!host->pass_device_specs || host->sim_machine[0]))
        return;
    strbuf_add(spec, ",\"deviceNodes\":[");
    if (listed)
        cdi_add_nodes(driver, spec);
    else
        add_device_nodes(host, grant, spec);
    strbuf_add(spec, "]");
}

static void add_all_hooks(const struct cdi_choice *driver, struct strbuf *spec)
{
    strbuf_add(spec, ",\"hooks\":[");
    cdi_add_hooks(driver, spec);
    strbuf_add(spec, "]");
}

int edits_spec(const struct node_host *host, const struct container_grant *grant,
               const struct cdi_choice *driver, const char *name, struct strbuf *spec)
{
    bool has_gids = cdi_has_gids(driver);

    strbuf_addf(spec, "{\"cdiVersion\":\"%s\",\"kind\":\"" CDI_KIND "\",\"devices\":[{\"name\":",
                has_gids ? CDI_VERSION_GIDS : CDI_VERSION);
    strbuf_add_json(spec, name);
    strbuf_add(spec, ",\"containerEdits\":{\"env\":[");
    add_environment(host, grant, driver->count > 0, spec);
    cdi_add_env(driver, is_our_variable, spec);
    strbuf_add(spec, "]");
    add_all_mounts(host, grant, driver, spec);
    add_all_nodes(host, grant, driver, spec);
    if (driver->count)
        add_all_hooks(driver, spec);
    if (has_gids) {
        strbuf_add(spec, ",\"additionalGids\":[");
        cdi_add_gids(driver, spec);
        strbuf_add(spec, "]");
    }
    strbuf_add(spec, "}}]}\n");
    return spec->failed ? -ENOMEM : 0;
}

static int keep_text(char *to, size_t size, const char *text)
{
    if (!text || !*text || strlen(text) >= size || strchr(text, '/'))
        return -EINVAL;
    copy_text(to, size, text);
    return 0;
}

static const char *find_env(yyjson_val *env, const char *prefix)
{
    size_t index, max;
    yyjson_val *item;

    yyjson_arr_foreach(env, index, max, item)
    {
        const char *text = yyjson_get_str(item);

        if (text && strncmp(text, prefix, strlen(prefix)) == 0)
            return text + strlen(prefix);
    }
    return NULL;
}

int edits_read_spec(const char *text, size_t len, struct spec_owner *ret_owner)
{
    yyjson_doc *doc = yyjson_read(text, len, 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    const char *kind = yyjson_get_str(yyjson_obj_get(root, "kind"));
    yyjson_val *device = yyjson_arr_get_first(yyjson_obj_get(root, "devices"));
    yyjson_val *env = yyjson_obj_get(yyjson_obj_get(device, "containerEdits"), "env");
    struct spec_owner owner;
    int r = -EINVAL;

    if (kind && strcmp(kind, CDI_KIND) == 0)
        r = keep_text(owner.name, sizeof(owner.name),
                      yyjson_get_str(yyjson_obj_get(device, "name")));
    if (r == 0)
        r = keep_text(owner.pod_uid, sizeof(owner.pod_uid), find_env(env, ENV_POD));
    if (r == 0)
        r = keep_text(owner.container, sizeof(owner.container), find_env(env, ENV_CONTAINER));
    if (r == 0)
        *ret_owner = owner;
    yyjson_doc_free(doc);
    return r;
}

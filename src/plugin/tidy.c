/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "node/nvidia/host.h"
#include "plugin/plugin.h"

/* The specification goes before what it points to. */
void plugin_tidy_pod(struct plugin *plugin, struct node_pod *pod)
{
    char entry[512];

    for (size_t i = 0; i < pod->container_count; i++) {
        struct pod_container *container = &pod->containers[i];

        if (container->cdi_name[0])
            host_remove_spec(&plugin->host, container->cdi_name);
        if (container->ready) {
            (void)snprintf(entry, sizeof(entry), "%s_%s", pod->uid, container->name);
            host_remove_folder(&plugin->host, entry);
        }
        container->cdi_name[0] = '\0';
        container->ready = false;
    }
}

/*
 * kubelet's folder of a pod goes when all of its containers have ended. It is seen where the
 * plugin has the host's files: in their place, or below HOST_ROOT.
 */
static bool kubelet_has(const struct plugin *plugin, const char *uid)
{
    static const char *const roots[] = {"", HOST_ROOT};
    const char *socket = plugin->options->kubelet_socket;
    const char *slash = strrchr(socket, '/');
    char path[PATH_MAX];
    struct stat st;

    if (!slash || strchr(uid, '/'))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
        int n = snprintf(path, sizeof(path), "%s%.*s/../pods/%s", roots[i], (int)(slash - socket),
                         socket, uid);

        if (n > 0 && (size_t)n < sizeof(path) && file_stat(path, &st) == 0)
            return true;
    }
    return false;
}

static bool has_ready_container(const struct node_pod *pod)
{
    for (size_t i = 0; i < pod->container_count; i++) {
        if (pod->containers[i].ready)
            return true;
    }
    return false;
}

/*
 * Deleted with a grace period of 0 a pod is gone from the API server at once, while its containers
 * may run on for as long as kubelet was told before.
 */
void plugin_pod_gone(struct plugin *plugin, struct node_pod *pod)
{
    if (pod->over || !has_ready_container(pod) || !kubelet_has(plugin, pod->uid)) {
        plugin_tidy_pod(plugin, pod);
        return;
    }
    log_info("%s/%s is gone, and kubelet has not ended it yet: what it was given stays its own",
             pod->namespace, pod->name);
    pod->leaving = true;
}

static bool has_left(void *data, struct node_pod *pod)
{
    struct plugin *plugin = data;

    if (kubelet_has(plugin, pod->uid))
        return false;
    plugin_tidy_pod(plugin, pod);
    return true;
}

void plugin_pods_leave(struct plugin *plugin)
{
    pods_leave(plugin->pods, has_left, plugin);
}

static bool is_live(const struct plugin *plugin, const char *pod_uid)
{
    const struct node_pod *pod = pods_find(plugin->pods, pod_uid);

    return pod && !pod->over;
}

static void tidy_spec(void *data, const struct spec_owner *owner)
{
    struct plugin *plugin = data;

    if (is_live(plugin, owner->pod_uid))
        return;
    log_info("removing %s of pod %s, which is gone", owner->name, owner->pod_uid);
    host_remove_spec(&plugin->host, owner->name);
}

static void tidy_folder(void *data, const char *pod_uid, const char *entry)
{
    struct plugin *plugin = data;

    if (!is_live(plugin, pod_uid))
        host_remove_folder(&plugin->host, entry);
}

void plugin_tidy_all(struct plugin *plugin)
{
    struct error err = ERROR_INIT;

    if (host_list_specs(&plugin->host, tidy_spec, plugin, &err) < 0 ||
        host_list_folders(&plugin->host, tidy_folder, plugin, &err) < 0)
        log_warn("%s", err.text);
}

/* A container can do it again and again: it does not fill the log with it. */
static void say_trimmed(void *data, const char *entry, uint64_t bytes)
{
    struct plugin *plugin = data;
    uint64_t times = ++plugin->trims;

    if ((times & (times - 1)) == 0)
        log_warn(
            "the region of %s had grown to %llu bytes and was cut; the %llu. time on this node",
            entry, (unsigned long long)bytes, (unsigned long long)times);
}

void plugin_trim(struct plugin *plugin)
{
    struct error err = ERROR_INIT;

    if (host_trim_regions(&plugin->host, say_trimmed, plugin, &err) < 0)
        log_debug("%s", err.text);
}

static void adopt_spec(void *data, const struct spec_owner *owner)
{
    struct plugin *plugin = data;
    struct node_pod *pod = pods_find(plugin->pods, owner->pod_uid);
    struct pod_container *container = pod ? pod_container_find(pod, owner->container) : NULL;

    if (!container || pod->over)
        return;
    container->ready = true;
    plugin->gate.fitness.served_before = true;
    COPY_TEXT(container->cdi_name, owner->name);
}

/* What the pod was given first, whatever its annotation says by now. */
static void adopt_folder(void *data, const char *pod_uid, const char *entry)
{
    struct plugin *plugin = data;
    struct node_pod *pod = pods_find(plugin->pods, pod_uid);
    AUTOFREE char *allocated = NULL;
    struct error err = ERROR_INIT;
    int r;

    if (!pod || pod->over)
        return;
    r = host_read_record(&plugin->host, entry, "grant", &allocated, &err);
    if (r == 0 && (!pod->final || strcmp(pod->allocated, allocated) != 0) &&
        pod_keep(pod, allocated) < 0)
        (void)error_set(&err, -ENOMEM, "no memory");
    if (err.text[0])
        log_warn("what %s/%s was given first can't be read: %s", pod->namespace, pod->name,
                 err.text);
    plugin_say_altered(pod);
}

/* Without asking anybody: the API server may be away when a container is to start again. */
static void adopt_record(void *data, const char *pod_uid, const char *entry)
{
    struct plugin *plugin = data;
    AUTOFREE char *text = NULL;
    struct error err = ERROR_INIT;
    yyjson_doc *doc;
    int r;

    r = host_read_record(&plugin->host, entry, "pod", &text, &err);
    if (r == 0) {
        doc = yyjson_read(text, strlen(text), 0);
        r = pods_adopt(plugin->pods, yyjson_doc_get_root(doc), &err);
        yyjson_doc_free(doc);
    }
    if (r < 0 && r != -ENOENT)
        log_warn("the record of pod %s can't be read: %s", pod_uid, err.text);
}

void plugin_adopt_records(struct plugin *plugin)
{
    struct error err = ERROR_INIT;

    if (host_list_folders(&plugin->host, adopt_record, plugin, &err) < 0)
        log_warn("%s", err.text);
    plugin_adopt(plugin);
}

void plugin_adopt(struct plugin *plugin)
{
    struct error err = ERROR_INIT;

    if (host_list_folders(&plugin->host, adopt_folder, plugin, &err) < 0 ||
        host_list_specs(&plugin->host, adopt_spec, plugin, &err) < 0)
        log_warn("%s", err.text);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Garbage collection: removes the files of containers whose pods are gone, and cuts files that
 * containers made longer. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "plugin/plugin.h"

/* The specification goes before the files that it points to. */
void plugin_gc_pod(struct plugin *plugin, struct node_pod *pod)
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
        container->starting = false;
    }
    if (strchr(pod->allocated, '['))
        plugin_parts_update(plugin);
}

/* Whether there is a folder of the pod's beside that of the socket. The plugin sees the host's
 * files in their place, or below HOST_ROOT. */
static bool has_folder_beside(const char *socket, const char *uid)
{
    static const char *const roots[] = {"", HOST_ROOT};
    const char *slash = strrchr(socket, '/');
    char path[PATH_MAX];
    struct stat st;

    if (!slash)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
        int n = snprintf(path, sizeof(path), "%s%.*s/../pods/%s", roots[i], (int)(slash - socket),
                         socket, uid);

        if (n > 0 && (size_t)n < sizeof(path) && file_stat(path, &st) == 0)
            return true;
    }
    return false;
}

/* kubelet removes its folder of a pod when all of the pod's containers have ended. With a root of
 * its own (k0s) that is beside the one socket or the other. */
static bool kubelet_has(const struct plugin *plugin, const char *uid)
{
    return !strchr(uid, '/') && (has_folder_beside(plugin->options->kubelet_socket, uid) ||
                                 has_folder_beside(plugin->options->pod_resources_socket, uid));
}

static bool has_ready_container(const struct node_pod *pod)
{
    for (size_t i = 0; i < pod->container_count; i++) {
        if (pod->containers[i].ready)
            return true;
    }
    return false;
}

/* Who asks kubelet for a card itself has no annotation. */
static bool may_have_devices(const struct plugin *plugin, const struct node_pod *pod)
{
    return pod->allocated[0] || plugin->offer.resource_count > 1;
}

/*
 * A pod that is deleted with a grace period of 0 is gone from the API server at once, while its
 * containers may run on for the grace period that kubelet knew before.
 */
void plugin_pod_gone(struct plugin *plugin, struct node_pod *pod)
{
    bool goes_on = !pod->over && kubelet_has(plugin, pod->uid);

    /* In an update another plugin may have started its containers beside us. */
    if (goes_on && !has_ready_container(pod) && may_have_devices(plugin, pod))
        plugin_adopt_containers(plugin);
    if (!goes_on || !has_ready_container(pod)) {
        plugin_gc_pod(plugin, pod);
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
    plugin_gc_pod(plugin, pod);
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

static void gc_spec(void *data, const struct spec_owner *owner)
{
    struct plugin *plugin = data;

    if (is_live(plugin, owner->pod_uid))
        return;
    log_info("removing %s of pod %s, which is gone", owner->name, owner->pod_uid);
    host_remove_spec(&plugin->host, owner->name);
}

static void gc_folder(void *data, const char *pod_uid, const char *entry)
{
    struct plugin *plugin = data;

    if (!is_live(plugin, pod_uid))
        host_remove_folder(&plugin->host, entry);
}

void plugin_gc_all(struct plugin *plugin)
{
    struct error err = ERROR_INIT;

    if (host_list_specs(&plugin->host, gc_spec, plugin, &err) < 0 ||
        host_list_folders(&plugin->host, gc_folder, plugin, &err) < 0)
        log_warn("%s", err.text);
}

/* Logs the 1st, 2nd, 4th, 8th... time only: a container could fill the log. */
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

    if (plugin->vendor->trim && plugin->vendor->trim(plugin->node, say_trimmed, plugin, &err) < 0)
        log_debug("%s", err.text);
}

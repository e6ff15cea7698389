/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads back the files of an earlier run of the plugin: the pods that it knew, their grants, and
 * the containers that have their devices.
 */

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "plugin/give.h"
#include "plugin/plugin.h"

static void adopt_spec(void *data, const struct spec_owner *owner)
{
    struct plugin *plugin = data;
    struct node_pod *pod = pods_find(plugin->pods, owner->pod_uid);
    struct pod_container *container = pod ? pod_container_find(pod, owner->container) : NULL;

    if (!container || pod->over)
        return;
    pod_container_adopt(container);
    plugin->gate.fitness.served_before = true;
    COPY_TEXT(container->cdi_name, owner->name);
}

/* NULL: the folder is not one of the pod's containers. */
static struct pod_container *container_of_folder(struct node_pod *pod, const char *entry)
{
    size_t len = strlen(pod->uid);

    return strlen(entry) > len ? pod_container_find(pod, entry + len + 1) : NULL;
}

/* The specification that it shared with a later container is that one's by now. */
static void adopt_init_container(struct node_pod *pod, const char *entry)
{
    struct pod_container *container = container_of_folder(pod, entry);

    if (container && container->role == CONTAINER_INIT)
        pod_container_adopt(container);
}

/* The pod's first grant, whatever its annotation says by now. */
static void adopt_folder(void *data, const char *pod_uid, const char *entry)
{
    struct plugin *plugin = data;
    struct node_pod *pod = pods_find(plugin->pods, pod_uid);
    AUTOFREE char *allocated = NULL;
    struct error err = ERROR_INIT;
    int r;

    if (!pod || pod->over)
        return;
    adopt_init_container(pod, entry);
    r = host_read_record(&plugin->host, entry, "grant", &allocated, &err);
    if (r == 0 && (!pod->final || strcmp(pod->allocated, allocated) != 0) &&
        pod_keep(pod, allocated) < 0)
        (void)error_set(&err, -ENOMEM, "no memory");
    if (err.text[0])
        log_warn("what %s/%s was given first can't be read: %s", pod->namespace, pod->name,
                 err.text);
    plugin_say_altered(plugin, pod);
}

static bool has_started(const struct plugin *plugin, const char *entry)
{
    AUTOFREE char *text = NULL;

    return host_read_record(&plugin->host, entry, GIVE_STARTED_FILE, &text, NULL) == 0;
}

/* Containers that were handed over without CDI have no specification. */
static void adopt_ordered(void *data, const char *pod_uid, const char *entry)
{
    struct plugin *plugin = data;
    struct node_pod *pod = pods_find(plugin->pods, pod_uid);
    struct pod_container *container = NULL;
    struct error err = ERROR_INIT;
    AUTOFREE char *text = NULL;
    int r;

    if (pod && !pod->over)
        container = container_of_folder(pod, entry);
    r = container ? host_read_record(&plugin->host, entry, GIVE_ORDERED_FILE, &text, &err)
                  : -ENOENT;
    if (err.text[0])
        log_warn("what %s/%s was handed can't be read: %s", pod->namespace, pod->name, err.text);
    if (r < 0)
        return;
    container->started = has_started(plugin, entry);
    text[strcspn(text, "\n")] = '\0';
    pod_container_adopt(container);
    container->ordered = true;
    plugin->gate.fitness.ordered_before = true;
    COPY_TEXT(container->cdi_name, text);
}

/* From the disk alone: the API server may be away when a container is to start again. */
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

void plugin_adopt_pods(struct plugin *plugin)
{
    struct error err = ERROR_INIT;

    if (host_list_folders(&plugin->host, adopt_record, plugin, &err) < 0)
        log_warn("%s", err.text);
    plugin_adopt_containers(plugin);
}

void plugin_adopt_containers(struct plugin *plugin)
{
    struct error err = ERROR_INIT;

    if (host_list_folders(&plugin->host, adopt_folder, plugin, &err) < 0 ||
        host_list_specs(&plugin->host, adopt_spec, plugin, &err) < 0 ||
        host_list_folders(&plugin->host, adopt_ordered, plugin, &err) < 0)
        log_warn("%s", err.text);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/fitness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "base/util.h"
#include "grpc/runtime.pb-c.h"

enum {
    LEAST_MINOR = 29, /* of kubelet 1.x: DevicePluginCDIDevices is on from there */
};

static void read_folders(yyjson_val *folders, struct runtime_facts *facts)
{
    size_t index, max, len = 0;
    yyjson_val *item;

    yyjson_arr_foreach(folders, index, max, item)
    {
        const char *text = yyjson_get_str(item);

        if (text && len + strlen(text) + 2 < sizeof(facts->cdi_folders))
            len += (size_t)snprintf(facts->cdi_folders + len, sizeof(facts->cdi_folders) - len,
                                    "%s%s", len ? "," : "", text);
    }
}

/* The JSON is containerd's configuration of CRI; in another runtime's these keys are missing. */
static void read_runtime_config(const char *text, struct runtime_facts *facts)
{
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    const char *handler =
        yyjson_get_str(yyjson_obj_get(yyjson_obj_get(root, "containerd"), "defaultRuntimeName"));

    facts->cdi_off = yyjson_is_false(yyjson_obj_get(root, "enableCDI"));
    read_folders(yyjson_obj_get(root, "cdiSpecDirs"), facts);
    if (handler)
        COPY_TEXT(facts->default_handler, handler);
    yyjson_doc_free(doc);
}

int runtime_facts_read(const uint8_t *message, size_t len, struct runtime_facts *ret_facts)
{
    Runtime__V1__StatusResponse *status = runtime__v1__status_response__unpack(NULL, len, message);
    struct runtime_facts facts = {.cdi_off = false};

    if (!status)
        return -EPROTO;
    for (size_t i = 0; i < status->n_info; i++) {
        if (strcmp(status->info[i]->key, "config") == 0)
            read_runtime_config(status->info[i]->value, &facts);
    }
    runtime__v1__status_response__free_unpacked(status, NULL);
    *ret_facts = facts;
    return 0;
}

/* /var/run is /run, wherever there is Kubernetes. */
static const char *after_var(const char *path)
{
    return strncmp(path, "/var/run/", 9) == 0 ? path + 4 : path;
}

static bool has_folder(const char *folders, const char *folder)
{
    const char *wanted = after_var(folder);
    size_t wanted_len = strlen(wanted);

    for (const char *p = folders; *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        const char *start = after_var(p);
        size_t start_len = len - (size_t)(start - p);

        while (start_len > 1 && start[start_len - 1] == '/')
            start_len--;
        if (start_len == wanted_len && memcmp(start, wanted, wanted_len) == 0)
            return true;
        p += len;
    }
    return false;
}

/* "v1.28.3+k3s1". A version that can't be read counts as new enough. */
static bool is_old(const char *version)
{
    unsigned major, minor;

    if (sscanf(version, "v%u.%u", &major, &minor) != 2)
        return false;
    return major < 1 || (major == 1 && minor < LEAST_MINOR);
}

static enum fitness_outcome judge_runtime(const struct fitness *fitness, struct error *why)
{
    const struct runtime_facts *runtime = &fitness->runtime;

    if (fitness->assume_cdi)
        return FITNESS_GOOD;
    if (fitness->has_runtime && runtime->cdi_off) {
        (void)error_set(
            why, 0,
            "the container runtime has CDI switched off: set enable_cdi = true in containerd's "
            "configuration, and restart it");
        return FITNESS_NO_CDI;
    }
    if (fitness->has_runtime && runtime->cdi_folders[0] &&
        !has_folder(runtime->cdi_folders, fitness->cdi_folder)) {
        (void)error_set(why, 0,
                        "the container runtime looks for CDI specifications in %s, and not in %s: "
                        "change cdi_spec_dirs of its configuration, or --cdi-dir",
                        runtime->cdi_folders, fitness->cdi_folder);
        return FITNESS_NO_CDI;
    }
    if (!fitness->has_runtime && strncmp(fitness->runtime_version, "containerd://1.", 15) == 0) {
        (void)error_set(why, 0,
                        "whether %s has CDI switched on can't be read, since its socket does not "
                        "answer, and it has it off unless told: give --runtime-socket, or say "
                        "--runtime-cdi=on if it is on",
                        fitness->runtime_version);
        return FITNESS_NO_CDI;
    }
    return FITNESS_GOOD;
}

enum fitness_outcome fitness_judge(const struct fitness *fitness, struct error *why)
{
    enum fitness_outcome outcome = judge_runtime(fitness, why);

    if (outcome != FITNESS_GOOD)
        return outcome;
    if (fitness->has_node && is_old(fitness->kubelet_version)) {
        (void)error_set(why, 0, "kubelet %s passes no CDI devices on, which needs Kubernetes 1.%d",
                        fitness->kubelet_version, LEAST_MINOR);
        return FITNESS_OLD_KUBELET;
    }
    if (!fitness->has_node && fitness->ordered_before && !fitness->assume_cdi) {
        (void)error_set(why, 0,
                        "the API server has not yet told which kubelet this node has, and an "
                        "earlier run of the plugin found that CDI devices do not reach containers");
        return FITNESS_OLD_KUBELET;
    }
    if (!fitness->has_node && !fitness->served_before) {
        (void)error_set(why, 0, "the API server has not yet told which kubelet this node has");
        return FITNESS_UNKNOWN;
    }
    return FITNESS_GOOD;
}

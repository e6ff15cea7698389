/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "model/mig_allocations.h"
#include "node/nvidia/made_state.h"

static void read_boot(const char *procfs, char boot[BOOT_SIZE])
{
    char path[PATH_MAX];

    if (file_path(path, NULL, "%s/sys/kernel/random/boot_id", procfs) < 0 ||
        file_read(path, boot, BOOT_SIZE) <= 0)
        copy_text(boot, BOOT_SIZE, "unknown");
    boot[strcspn(boot, " \n")] = '\0';
}

int made_new(const struct node_host *host, const struct nvidia_config *config, const char *procfs,
             struct made **ret_made, struct error *err)
{
    struct made *made = calloc(1, sizeof(*made));
    int r;

    if (!made)
        return error_set(err, -ENOMEM, "no memory");
    made->host = host;
    made->config = config;
    (void)pthread_mutex_init(&made->lock, NULL);
    made->lock_fd = -1;
    read_boot(procfs, made->boot);
    r = records_lock(made, err);
    if (r == 0)
        log_info("an earlier hami-device-plugin still makes and ends this node's instances");
    if (r == 1)
        r = records_load(made, err);
    if (r < 0)
        made_free(made);
    else
        *ret_made = made;
    return r;
}

void made_free(struct made *made)
{
    if (!made)
        return;
    for (size_t i = 0; i < made->offered_count; i++)
        free(made->offered[i].profiles);
    (void)pthread_mutex_destroy(&made->lock);
    if (made->lock_fd >= 0)
        (void)close(made->lock_fd);
    free(made);
}

/* What is wanted */

bool made_is_listed(char (*names)[NAME_SIZE], size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* Nobody settles before something is said to be wanted, so the records are ours to read. */
static enum node_want take_over(struct made *made)
{
    struct error err = ERROR_INIT;
    int r = records_lock(made, &err);

    if (r == 1)
        r = records_load(made, &err) < 0 ? -EIO : 1;
    if (r == 1) {
        log_info("this plugin makes and ends the node's instances from now on");
        return NODE_WANT_ADOPT;
    }
    if (r < 0)
        log_warn("MIG instances are not made: %s", err.text);
    if (made->lock_fd >= 0)
        (void)close(made->lock_fd);
    made->lock_fd = -1;
    return NODE_WANT_LATER;
}

/* Of what is neither wanted any more nor there. With the lock. */
static void drop_old_failures(struct made *made)
{
    for (size_t i = 0; i < made->failure_count; i++) {
        const char *name = made->failures[i].name;

        if (!made_is_listed(made->wanted, made->wanted_count, name) && !record_find(made, name))
            made->failures[i--] = made->failures[--made->failure_count];
    }
}

enum node_want made_want(struct made *made, const char *const *names, size_t count, bool all)
{
    char wanted[RECORDS_MAX][NAME_SIZE];
    size_t wanted_count = 0;
    bool changed = false, is_full = false;

    if (made->lock_fd < 0)
        return take_over(made);
    (void)pthread_mutex_lock(&made->lock);
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) >= NAME_SIZE || made_is_listed(wanted, wanted_count, names[i]))
            continue;
        if (wanted_count == RECORDS_MAX) {
            is_full = true;
            break;
        }
        COPY_TEXT(wanted[wanted_count], names[i]);
        wanted_count++;
        if (made_is_listed(made->wanted, made->wanted_count, names[i]))
            continue;
        changed = true;
        failure_drop(made, names[i]); /* it is tried once more */
    }
    all &= !is_full;
    changed |= !made->is_said || made->all != all || wanted_count != made->wanted_count;
    memcpy(made->wanted, wanted, wanted_count * sizeof(wanted[0]));
    made->wanted_count = wanted_count;
    made->is_said = true;
    made->all = all;
    made->is_full = is_full;
    drop_old_failures(made);
    (void)pthread_mutex_unlock(&made->lock);
    if (is_full)
        return NODE_WANT_FULL;
    return changed ? NODE_WANT_CHANGED : NODE_WANT_SAME;
}

int made_find(struct made *made, const char *name, struct node_part *ret_part, struct error *err)
{
    const struct record *record;
    int r = 0;

    (void)pthread_mutex_lock(&made->lock);
    record = record_find(made, name);
    if (record && record->uuid[0] && record->memory_bytes) {
        *ret_part = (struct node_part){.memory_bytes = record->memory_bytes,
                                       .gpu_instance = record->gpu_instance,
                                       .compute_instance = record->compute_instance};
        COPY_TEXT(ret_part->uuid, record->uuid);
        r = 1;
    }
    for (size_t i = 0; i < made->failure_count && r == 0; i++) {
        if (strcmp(made->failures[i].name, name) == 0)
            r = error_set(err, -EIO, "%s", made->failures[i].why.text);
    }
    if (r == 0 && made->is_full && !made_is_listed(made->wanted, made->wanted_count, name))
        r = error_set(err, -ENOSPC, "containers of this node are to have more than %d instances",
                      RECORDS_MAX);
    (void)pthread_mutex_unlock(&made->lock);
    return r;
}

/* For people and metrics */

static void describe_record(const struct record *record, size_t container, size_t device,
                            struct strbuf *text)
{
    struct mig_allocation allocation = {
        .container = (unsigned)container,
        .device = (unsigned)device,
        .start = record->start,
        .size = record->size,
        .made = true,
        .gpu_instance = record->gpu_instance,
        .compute_instance = record->compute_instance,
    };

    COPY_TEXT(allocation.gpu_uuid, record->card);
    COPY_TEXT(allocation.profile, record->profile);
    COPY_TEXT(allocation.mig_uuid, record->uuid);
    mig_allocations_add(text, &allocation);
}

static bool describe_container(struct made *made, const struct container_devices *devices,
                               size_t container, struct strbuf *text)
{
    for (size_t i = 0; i < devices->count; i++) {
        const struct record *record = record_find(made, devices->items[i].uuid);

        if (!strchr(devices->items[i].uuid, '['))
            continue;
        if (!record || !record->uuid[0] || !record->profile[0])
            return false;
        describe_record(record, container, i, text);
    }
    return true;
}

int made_describe(struct made *made, const struct pod_devices *devices, struct strbuf *text)
{
    bool all = true;

    (void)pthread_mutex_lock(&made->lock);
    for (size_t i = 0; i < devices->count && all; i++)
        all = describe_container(made, &devices->containers[i], i, text);
    (void)pthread_mutex_unlock(&made->lock);
    if (!all || !text->len)
        return 0;
    strbuf_add(text, "]");
    return text->failed ? -ENOMEM : 1;
}

const char *made_profiles(struct made *made, const char *card, struct arena *arena)
{
    const char *profiles = NULL;

    (void)pthread_mutex_lock(&made->lock);
    for (size_t i = 0; i < made->offered_count; i++) {
        if (strcmp(made->offered[i].card, card) == 0 && made->offered[i].profiles)
            profiles = arena_strdup(arena, made->offered[i].profiles);
    }
    (void)pthread_mutex_unlock(&made->lock);
    return profiles;
}

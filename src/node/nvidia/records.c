/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "node/nvidia/made_state.h"

/* Records on the disk */

/* "GPU-uuid[0-3]" is in the file "GPU-uuid_0-3". */
static int record_path(const struct made *made, const struct record *record, char path[PATH_MAX],
                       struct error *err)
{
    const char *open = strchr(record->name, '[');
    size_t len = open ? strcspn(open + 1, "]") : 0;

    if (!len || strchr(record->name, '/'))
        return error_set(err, -EINVAL, "%s is no instance's name", record->name);
    return file_path(path, err, "%s/instances/%s_%.*s", made->host->hook_path, record->card,
                     (int)len, open + 1);
}

int record_write(const struct made *made, const struct record *record, struct error *err)
{
    char path[PATH_MAX], text[512];
    int r = record_path(made, record, path, err);
    int len;

    len = snprintf(text, sizeof(text), "boot=%s profile=%u start=%u size=%u uuid=%s\n", made->boot,
                   record->profile_id, record->start, record->size,
                   record->uuid[0] ? record->uuid : "-");
    return r < 0 ? r : host_write_file(path, text, (size_t)len, 0644, err);
}

static void remove_file(const struct made *made, const struct record *record)
{
    char path[PATH_MAX];

    if (record_path(made, record, path, NULL) == 0)
        (void)unlink(path);
}

static void remove_cells(const struct made *made, const char *uuid)
{
    char path[PATH_MAX];

    if (uuid[0] && file_path(path, NULL, "%s/cards/%s", made->host->hook_path, uuid) == 0)
        (void)rmdir(path); /* a container that is not removed yet keeps it */
}

static void sweep_cells(void *data, const char *uuid)
{
    if (strncmp(uuid, "MIG-", 4) == 0)
        remove_cells(data, uuid);
}

static int parse_file_name(const char *file, struct record *record)
{
    const char *last = strrchr(file, '_');

    if (!last || last == file || !last[1] || (size_t)(last - file) >= sizeof(record->card) ||
        strlen(last) >= sizeof(record->name) - sizeof(record->card))
        return -EINVAL;
    (void)snprintf(record->card, sizeof(record->card), "%.*s", (int)(last - file), file);
    (void)snprintf(record->name, sizeof(record->name), "%s[%s]", record->card, last + 1);
    return 0;
}

/* Sets the boot it is of, "" where that is not said. -EINVAL: the rest is not, or the file's name
 * is no record's. */
static int parse_record(const char *file, const char *text, char boot[BOOT_SIZE],
                        struct record *record)
{
    int read = sscanf(text, "boot=%47s profile=%u start=%u size=%u uuid=%95s", boot,
                      &record->profile_id, &record->start, &record->size, record->uuid);

    if (read < 1)
        boot[0] = '\0';
    if (read != 5 || parse_file_name(file, record) < 0)
        return -EINVAL;
    if (strcmp(record->uuid, "-") == 0)
        record->uuid[0] = '\0';
    return 0;
}

/* Its instance may be there and in use, and nothing says any more that it is ours to end. */
static void keep_aside(const char *path)
{
    char aside[PATH_MAX + sizeof(UNREADABLE_SUFFIX)];

    (void)snprintf(aside, sizeof(aside), "%s" UNREADABLE_SUFFIX, path);
    if (rename(path, aside) < 0)
        log_error("the record %s can't be read, nor be moved to %s: %s", path, aside,
                  strerror(errno));
    else
        log_error("the record of an instance can't be read, and is kept as %s. If its instance is "
                  "there, it counts as somebody else's, is not ended, and its card takes no more: "
                  "end it with `nvidia-smi mig` once nobody uses it, then remove the file",
                  aside);
}

static bool is_aside(const char *file)
{
    size_t len = strlen(file), end = strlen(UNREADABLE_SUFFIX);

    return len >= end && strcmp(file + len - end, UNREADABLE_SUFFIX) == 0;
}

static void load_record(void *data, const char *file)
{
    struct made *made = data;
    struct record record = {.name = ""};
    char path[PATH_MAX], text[512], boot[BOOT_SIZE];
    ssize_t len;
    int r;

    if (file[0] == '.' || is_aside(file) ||
        file_path(path, NULL, "%s/instances/%s", made->host->hook_path, file) < 0)
        return;
    len = file_read(path, text, sizeof(text));
    if (len < 0 && len != -EFBIG) {
        log_error("the record %s can't be read: %s. If its instance is there, it counts as "
                  "somebody else's until a device plugin that starts can read it",
                  path, strerror((int)-len));
        return;
    }
    r = len < 0 ? -EINVAL : parse_record(file, text, boot, &record);
    if (len >= 0 && boot[0] && strcmp(boot, made->boot) != 0) {
        log_info("the record %s is of an instance that went with an earlier boot", file);
        (void)unlink(path);
    } else if (r < 0) {
        keep_aside(path);
    } else if (made->count == RECORDS_MAX) {
        log_error("the record %s is left out: there are more than %d. Its instance counts as "
                  "somebody else's",
                  path, RECORDS_MAX);
    } else {
        made->records[made->count++] = record;
    }
}

int records_lock(struct made *made, struct error *err)
{
    char path[PATH_MAX];
    int r = file_path(path, err, "%s/instances", made->host->hook_path);
    int fd;

    if (r == 0)
        r = host_make_folder(path, 0755, err);
    if (r == 0)
        r = file_path(path, err, "%s/instances/.lock", made->host->hook_path);
    if (r < 0)
        return r;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        r = errno == EWOULDBLOCK ? 0 : error_set(err, -errno, "%s: %s", path, strerror(errno));
        (void)close(fd);
        return r;
    }
    made->lock_fd = fd;
    return 1;
}

int records_load(struct made *made, struct error *err)
{
    char path[PATH_MAX];
    int r = file_path(path, err, "%s/instances", made->host->hook_path);

    if (r < 0)
        return r;
    made->count = 0;
    host_sweep(path, "", HOST_HALF_SUFFIX);
    r = host_list(path, load_record, made, err);
    if (r == 0)
        r = file_path(path, err, "%s/cards", made->host->hook_path);
    return r < 0 ? r : host_list(path, sweep_cells, made, err);
}

/* In memory */

struct record *record_find(struct made *made, const char *name)
{
    for (size_t i = 0; i < made->count; i++) {
        if (strcmp(made->records[i].name, name) == 0)
            return &made->records[i];
    }
    return NULL;
}

void record_put(struct made *made, const struct record *record)
{
    struct record *place;

    (void)pthread_mutex_lock(&made->lock);
    place = record_find(made, record->name);
    if (!place && made->count < RECORDS_MAX)
        place = &made->records[made->count++];
    if (place)
        *place = *record;
    (void)pthread_mutex_unlock(&made->lock);
}

void record_drop(struct made *made, const struct record *record)
{
    char name[NAME_SIZE];
    struct record *place;

    COPY_TEXT(name, record->name);
    remove_cells(made, record->uuid);
    remove_file(made, record);
    (void)pthread_mutex_lock(&made->lock);
    place = record_find(made, name);
    if (place)
        *place = made->records[--made->count];
    (void)pthread_mutex_unlock(&made->lock);
}

/* Failures */

void failure_drop(struct made *made, const char *name)
{
    for (size_t i = 0; i < made->failure_count; i++) {
        if (strcmp(made->failures[i].name, name) == 0)
            made->failures[i--] = made->failures[--made->failure_count];
    }
}

/* Once, while it stays the same. */
static bool was_said(const struct made *made, const char *name, const struct error *why)
{
    for (size_t i = 0; i < made->failure_count; i++) {
        if (strcmp(made->failures[i].name, name) == 0)
            return strcmp(made->failures[i].why.text, why->text) == 0;
    }
    return false;
}

void failure_say(struct made *made, const char *name, const struct error *why)
{
    struct failure *failure;

    (void)pthread_mutex_lock(&made->lock);
    if (!was_said(made, name, why))
        log_warn("instance %s: %s", name, why->text);
    failure_drop(made, name);
    if (made->failure_count < RECORDS_MAX) {
        failure = &made->failures[made->failure_count++];
        failure->why = *why;
        copy_text(failure->name, sizeof(failure->name), name);
    }
    (void)pthread_mutex_unlock(&made->lock);
}

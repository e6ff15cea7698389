/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/registry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/util.h"
#include "ctl/cells.h"
#include "ctl/lease.h"
#include "region/view.h"

enum {
    ID_SIZE = 24,
    MAX_DEPTH = 8, /* of what is removed */
    RESIZED_MAX = 4096,
    KEPT_FD = 200, /* scripts use the low ones by number */
};

static void format_id(uint64_t id, char text[ID_SIZE])
{
    (void)snprintf(text, ID_SIZE, "%" PRIu64, id);
}

static int open_folder(const char *path, const char *name, int *ret_fd, struct error *err)
{
    AUTOCLOSE int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd;

    if (parent < 0)
        return error_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return error_set(err, -errno, "cannot make %s/%s: %s", path, name, strerror(errno));
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return error_set(err, -errno, "cannot open %s/%s: %s", path, name, strerror(errno));
    *ret_fd = fd;
    return 0;
}

int registry_open(struct registry *registry, const char *path, struct error *err)
{
    char lock[PATH_MAX];
    int r;

    *registry = (struct registry)REGISTRY_INIT;
    COPY_TEXT(registry->path, path);
    r = snprintf(lock, sizeof(lock), "%s/lock", path);
    if (r < 0 || (size_t)r >= sizeof(lock))
        return error_set(err, -ENAMETOOLONG, "%s: the path is too long", path);

    registry->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (registry->lock_fd < 0)
        return error_set(err, -errno, "cannot open %s: %s", lock, strerror(errno));

    r = open_folder(path, "grants", &registry->leases_fd, err);
    if (r == 0)
        r = open_folder(path, "runs", &registry->runs_fd, err);
    if (r == 0)
        r = open_folder(path, "waiting", &registry->waiting_fd, err);
    if (r < 0)
        registry_close(registry);
    return r;
}

void registry_close(struct registry *registry)
{
    close_p(&registry->lock_fd);
    close_p(&registry->leases_fd);
    close_p(&registry->runs_fd);
    close_p(&registry->waiting_fd);
    *registry = (struct registry)REGISTRY_INIT;
}

int registry_lock(struct registry *registry, struct error *err)
{
    while (flock(registry->lock_fd, LOCK_EX) < 0) {
        if (errno != EINTR)
            return error_set(err, -errno, "cannot lock %s: %s", registry->path, strerror(errno));
    }
    return 0;
}

void registry_unlock(struct registry *registry)
{
    (void)flock(registry->lock_fd, LOCK_UN);
}

/* Numbers grow for as long as the directory lives; the files themselves settle a lost counter. */
static uint64_t next_id(struct registry *registry)
{
    char text[ID_SIZE] = "";
    uint64_t id = 0;

    if (pread(registry->lock_fd, text, sizeof(text) - 1, 0) > 0)
        (void)parse_u64(text, &id);
    format_id(++id, text);
    (void)!ftruncate(registry->lock_fd, 0);
    (void)!pwrite(registry->lock_fd, text, strlen(text), 0);
    return id;
}

/* Whether some process holds the open-file-description lock on the file. */
static bool is_held(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

/*
 * Programs close descriptors that they do not know when they start others, so a process of theirs
 * may have lost the lock and still use the GPU: then its slot in the region tells.
 */
static bool is_using(const struct registry *registry, uint64_t id)
{
    AUTOFREE struct region_view *view = NULL;
    char path[PATH_MAX];

    if (registry_region_path(registry, id, path) < 0 || access(path, F_OK) < 0)
        return false;
    view = malloc(sizeof(*view));
    return view && region_view_read(path, view, NULL) == 0 && view->process_count > 0;
}

/* A new numbered file, held by the descriptor returned. */
static int make_held(struct registry *registry, int folder, int flags, uint64_t *ret_id)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    AUTOCLOSE int fd = -1;
    char name[ID_SIZE];
    uint64_t id;

    do {
        id = next_id(registry);
        format_id(id, name);
        fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | flags, 0600);
    } while (fd < 0 && errno == EEXIST);
    if (fd < 0)
        return -errno;

    if (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
        int r = -errno;

        (void)unlinkat(folder, name, 0);
        return r;
    }
    *ret_id = id;
    return take_fd(&fd);
}

static void remove_tree(int folder, const char *name, int depth)
{
    AUTOCLOSE int fd = -1;
    const struct dirent *entry;
    DIR *dir;
    int copy;

    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT || depth > MAX_DEPTH)
        return;

    fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        if (copy >= 0)
            (void)close(copy);
        return;
    }
    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_tree(fd, entry->d_name, depth + 1);
    }
    (void)closedir(dir);
    (void)unlinkat(folder, name, AT_REMOVEDIR);
}

/* The run's folder goes first, so that none is ever left without its lease. */
static void remove_lease(struct registry *registry, const char *name)
{
    cells_remove(registry->path, name);
    remove_tree(registry->runs_fd, name, 0);
    (void)unlinkat(registry->leases_fd, name, 0);
}

/* Ids of the files in a folder, ascending. */
static int list_ids(int folder, uint64_t **ret_ids, size_t *ret_count)
{
    AUTOFREE uint64_t *ids = NULL;
    size_t count = 0, size = 0;
    const struct dirent *entry;
    uint64_t id;
    DIR *dir;
    int fd;

    /* Opened anew: a duplicate would share its position with other readers of ours. */
    fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    dir = fdopendir(fd);
    if (!dir) {
        (void)close(fd);
        return -ENOMEM;
    }

    while ((entry = readdir(dir))) {
        if (parse_u64(entry->d_name, &id) < 0)
            continue;
        if (count == size) {
            uint64_t *more = realloc(ids, (size ? 2 * size : 64) * sizeof(*ids));

            if (!more) {
                (void)closedir(dir);
                return -ENOMEM;
            }
            ids = more;
            size = size ? 2 * size : 64;
        }
        ids[count++] = id;
    }
    (void)closedir(dir);

    if (count)
        qsort(ids, count, sizeof(*ids), lease_compare_ids);
    *ret_ids = TAKE(ids);
    *ret_count = count;
    return 0;
}

void lease_list_deinit(struct lease_list *list)
{
    free(list->leases);
    *list = (struct lease_list){0};
}

static int resized_path(const struct registry *registry, uint64_t id, char ret_path[PATH_MAX])
{
    return file_path(ret_path, NULL, "%s/runs/%" PRIu64 "/resized", registry->path, id);
}

static uint64_t bytes_in_use(const struct region_view *view, const char *uuid)
{
    for (unsigned i = 0; i < view->device_count; i++) {
        if (strcmp(view->devices[i].uuid, uuid) == 0)
            return view->devices[i].used.total;
    }
    return 0;
}

/* What the program holds beyond new limits is not free yet. */
static void count_held(const struct registry *registry, struct lease *lease)
{
    AUTOFREE struct region_view *view = malloc(sizeof(*view));
    char path[PATH_MAX];

    if (!view || registry_region_path(registry, lease->id, path) < 0 ||
        region_view_read(path, view, NULL) < 0)
        return;
    for (size_t i = 0; i < lease->device_count; i++) {
        struct lease_device *device = &lease->devices[i];

        device->held_bytes = bytes_in_use(view, device->uuid);
    }
}

static int read_resized(const struct registry *registry, struct lease *lease)
{
    char path[PATH_MAX], text[RESIZED_MAX];
    int r = resized_path(registry, lease->id, path);
    ssize_t len;

    if (r < 0)
        return r;
    len = file_read(path, text, sizeof(text));
    if (len == -ENOENT)
        return 0;
    r = len < 0 ? (int)len : lease_parse_amounts(text, lease);
    if (r == 0)
        count_held(registry, lease);
    return r;
}

/* Room may have come: the close of a lease's file that could be written says so. */
static void wake_waiting(struct registry *registry, uint64_t id)
{
    char name[ID_SIZE];
    int fd;

    format_id(id, name);
    fd = openat(registry->leases_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        (void)close(fd);
}

int registry_resize(struct registry *registry, const struct lease *lease, struct error *err)
{
    char path[PATH_MAX], text[RESIZED_MAX];
    int len = lease_format_amounts(lease, text, sizeof(text));
    int r = len < 0 ? len : resized_path(registry, lease->id, path);

    if (r == 0)
        r = file_replace(path, text, (size_t)len, 0600);
    if (r == 0)
        wake_waiting(registry, lease->id);
    return r < 0 ? error_set(err, r, "cannot change the lease %" PRIu64 ": %s", lease->id,
                             strerror(-r))
                 : 0;
}

/*
 * Reads a living lease; 0 when it was dead and is now gone, 1 when it lives. Opened for reading,
 * since the close of a file that could be written wakes those who wait.
 */
static int look_at_lease(struct registry *registry, uint64_t id, struct lease *ret_lease,
                         struct error *err)
{
    AUTOCLOSE int fd = -1;
    char name[ID_SIZE];
    int r;

    format_id(id, name);
    fd = openat(registry->leases_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return error_set(err, -errno, "cannot open %s/grants/%s: %s", registry->path, name,
                         strerror(errno));
    if (!is_held(fd) && !is_using(registry, id)) {
        remove_lease(registry, name);
        return 0;
    }

    r = lease_read(fd, ret_lease, err);
    if (r < 0)
        return error_wrap(err, r, "cannot read the lease %s/grants/%s", registry->path, name);
    ret_lease->id = id;
    r = read_resized(registry, ret_lease);
    return r < 0 ? error_set(err, r, "cannot read %s/runs/%s/resized", registry->path, name) : 1;
}

int registry_list(struct registry *registry, struct lease_list *ret_list, struct error *err)
{
    AUTOFREE struct lease *leases = NULL;
    AUTOFREE uint64_t *ids = NULL;
    size_t count, living = 0;
    int r;

    r = list_ids(registry->leases_fd, &ids, &count);
    if (r < 0)
        return error_set(err, r, "cannot list %s/grants: %s", registry->path, strerror(-r));
    leases = calloc(count ? count : 1, sizeof(*leases));
    if (!leases)
        return error_set(err, -ENOMEM, "cannot list the leases: out of memory");

    for (size_t i = 0; i < count; i++) {
        r = look_at_lease(registry, ids[i], &leases[living], err);
        if (r < 0)
            return r;
        living += (size_t)r;
    }

    *ret_list = (struct lease_list){TAKE(leases), living};
    return 0;
}

static void charge_device(const struct lease_device *granted, struct device *devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(devices[i].uuid, granted->uuid) != 0)
            continue;
        devices[i].used.tasks++;
        devices[i].used.cores += granted->cores;
        devices[i].used.memory_bytes += MAX(granted->memory_bytes, granted->held_bytes);
        return;
    }
}

void registry_charge(const struct lease_list *list, struct device *devices, size_t count)
{
    for (size_t i = 0; i < list->count; i++) {
        for (size_t j = 0; j < list->leases[i].device_count; j++)
            charge_device(&list->leases[i].devices[j], devices, count);
    }
}

/* The same description under a number that nobody uses by hand, or as it is when there is none. */
static int move_away(int fd)
{
    int high = fcntl(fd, F_DUPFD, KEPT_FD);

    if (high < 0)
        return fd;
    (void)close(fd);
    return high;
}

int registry_add(struct registry *registry, struct lease *lease, struct error *err)
{
    char name[ID_SIZE];
    int fd, r;

    fd = make_held(registry, registry->leases_fd, 0, &lease->id);
    if (fd < 0)
        return error_set(err, fd, "cannot write a lease to %s/grants: %s", registry->path,
                         strerror(-fd));

    r = lease_write(fd, lease);
    if (r < 0) {
        format_id(lease->id, name);
        (void)unlinkat(registry->leases_fd, name, 0);
        (void)close(fd);
        return error_set(err, r, "cannot write a lease to %s/grants: %s", registry->path,
                         strerror(-r));
    }
    return move_away(fd);
}

void registry_set_program(int fd, pid_t program)
{
    /* One write at the end of the file: a reader sees the line as a whole or not at all. */
    (void)dprintf(fd, "program=%d\n", (int)program);
}

void registry_release(struct registry *registry, uint64_t id, int fd)
{
    AUTOCLOSE int again = -1;
    char name[ID_SIZE];

    format_id(id, name);
    if (registry_lock(registry, NULL) < 0) {
        (void)close(fd);
        return;
    }
    (void)close(fd);
    again = openat(registry->leases_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (again >= 0 && !is_held(again) && !is_using(registry, id))
        remove_lease(registry, name);
    registry_unlock(registry);
}

int registry_join_queue(struct registry *registry, uint64_t *ret_id, struct error *err)
{
    int fd = make_held(registry, registry->waiting_fd, O_CLOEXEC, ret_id);

    if (fd < 0)
        return error_set(err, fd, "cannot queue in %s/waiting: %s", registry->path, strerror(-fd));
    return fd;
}

uint64_t registry_find_predecessor(struct registry *registry, uint64_t id)
{
    AUTOFREE uint64_t *ids = NULL;
    size_t count = 0;

    if (list_ids(registry->waiting_fd, &ids, &count) < 0)
        return 0;

    while (count > 0 && ids[count - 1] >= id)
        count--;
    for (; count > 0; count--) {
        AUTOCLOSE int fd = -1;
        char name[ID_SIZE];

        format_id(ids[count - 1], name);
        fd = openat(registry->waiting_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && is_held(fd))
            return ids[count - 1];
        (void)unlinkat(registry->waiting_fd, name, 0);
    }
    return 0;
}

void registry_leave_queue(struct registry *registry, uint64_t id, int fd)
{
    char name[ID_SIZE];

    format_id(id, name);
    (void)unlinkat(registry->waiting_fd, name, 0);
    (void)close(fd);
}

int registry_make_run(struct registry *registry, uint64_t id, char ret_path[PATH_MAX],
                      struct error *err)
{
    char name[ID_SIZE];
    int len;

    format_id(id, name);
    len = snprintf(ret_path, PATH_MAX, "%s/runs/%s", registry->path, name);
    if (len < 0 || len >= PATH_MAX - 64)
        return error_set(err, -ENAMETOOLONG, "%s: the path is too long", registry->path);

    remove_tree(registry->runs_fd, name, 0);
    if (mkdirat(registry->runs_fd, name, 0700) < 0)
        return error_set(err, -errno, "cannot make %s: %s", ret_path, strerror(errno));
    return 0;
}

int registry_region_path(const struct registry *registry, uint64_t id, char ret_path[PATH_MAX])
{
    return file_path(ret_path, NULL, "%s/runs/%" PRIu64 "/region.cache", registry->path, id);
}

int registry_limits_path(const struct registry *registry, uint64_t id, char ret_path[PATH_MAX])
{
    return file_path(ret_path, NULL, "%s/runs/%" PRIu64 "/vgpu/limits", registry->path, id);
}

static int check_leases(struct registry *registry, struct error *err)
{
    CLEANUP(lease_list_deinit) struct lease_list list = {0};
    int r;

    r = registry_lock(registry, err);
    if (r < 0)
        return r;
    r = registry_list(registry, &list, err);
    registry_unlock(registry);
    if (r == 0 && list.count)
        return error_set(err, -EBUSY,
                         "%zu program%s of hamictl run hold%s a part of it; --force removes it all "
                         "the same",
                         list.count, list.count == 1 ? "" : "s", list.count == 1 ? "s" : "");
    return r;
}

int registry_check_unused(const char *path, struct error *err)
{
    struct registry registry = REGISTRY_INIT;
    int r;

    if (access(path, F_OK) < 0)
        return 0;
    r = registry_open(&registry, path, err);
    if (r == 0)
        r = check_leases(&registry, err);
    registry_close(&registry);
    return r;
}

void registry_remove(const char *path)
{
    remove_tree(AT_FDCWD, path, 0);
}

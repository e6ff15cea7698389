/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/util.h"
#include "ctl/cells.h"
#include "region/limits.h"

struct guest {
    struct registry *registry;
    const struct local *local;
    const struct lease *lease;
    const struct guest_wishes *wishes;
    /* The folder's path is short enough for what is put behind it: registry_make_run(). */
    char folder[PATH_MAX];
    char library[PATH_MAX + 64];
    char region[PATH_MAX];
    uint64_t region_inode;
};

static int set_path(char ret_path[LIMITS_PATH_SIZE], const char *folder, const char *name,
                    struct error *err)
{
    int n = snprintf(ret_path, LIMITS_PATH_SIZE, "%s/%s", folder, name);

    return n < LIMITS_PATH_SIZE ? 0
                                : error_set(err, -ENAMETOOLONG, "%s: the path is too long", folder);
}

static int write_limits(const struct guest *guest, struct error *err)
{
    char path[sizeof(guest->library)], text[LIMITS_FILE_MAX];
    const struct lease *lease = guest->lease;
    struct limits limits = LIMITS_INIT;
    int len, r;

    limits.device_count = (unsigned)lease->device_count;
    limits.only_granted = true;
    limits.priority = guest->wishes->priority;
    limits.allow_imports = guest->wishes->allow_imports;
    limits.allow_unaccounted = guest->wishes->allow_unaccounted;
    limits.managed = guest->wishes->managed;
    limits.oversubscribed = guest->wishes->oversubscribe;
    COPY_TEXT(limits.region_path, guest->region);
    limits.region_inode = guest->region_inode;
    r = set_path(limits.cells, guest->folder, "cells", err);
    if (r == 0 && guest->wishes->borrow)
        r = set_path(limits.cards, guest->registry->path, "cards", err);
    if (r == 0)
        r = set_path(limits.ranks, guest->registry->path, "cards", err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < lease->device_count; i++) {
        COPY_TEXT(limits.devices[i].uuid, lease->devices[i].uuid);
        limits.devices[i].memory_bytes = lease->devices[i].memory_bytes;
        limits.devices[i].cores = lease->devices[i].cores;
        /* As set_environment() writes them. */
        limits.devices[i].given_memory_bytes = lease->devices[i].memory_bytes / MIB * MIB;
        limits.devices[i].given_cores = lease->devices[0].cores;
    }

    len = limits_format(&limits, text, sizeof(text));
    (void)snprintf(path, sizeof(path), "%s/vgpu/limits", guest->folder);
    r = len < 0 ? len : file_replace(path, text, (size_t)len, 0444);
    return r < 0 ? error_set(err, r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

/* Empty: the first process makes it a region. The program could put another file in its place, so
 * its limits name this one. */
static int make_region(struct guest *guest, struct error *err)
{
    AUTOCLOSE int fd =
        open(guest->region, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat st;

    if (fd < 0 || fchmod(fd, 0666) < 0 || fstat(fd, &st) < 0)
        return error_set(err, -errno, "cannot make %s: %s", guest->region, strerror(errno));
    guest->region_inode = st.st_ino;
    return 0;
}

/* The library is a link in a folder of its own, and finds its limits beside that link. */
static int make_folder(struct guest *guest, struct error *err)
{
    char vgpu[sizeof(guest->library)];
    int r;

    r = registry_make_run(guest->registry, guest->lease->id, guest->folder, err);
    if (r == 0)
        r = registry_region_path(guest->registry, guest->lease->id, guest->region);
    if (r < 0)
        return r;
    if (strlen(guest->region) >= LIMITS_PATH_SIZE)
        return error_set(err, -ENAMETOOLONG, "%s: the path is too long", guest->folder);

    (void)snprintf(vgpu, sizeof(vgpu), "%s/vgpu", guest->folder);
    (void)snprintf(guest->library, sizeof(guest->library), "%s/vgpu/libvgpu.so", guest->folder);
    if (mkdir(vgpu, 0755) < 0 || symlink(guest->local->paths.vgpu, guest->library) < 0)
        return error_set(err, -errno, "cannot make %s: %s", guest->library, strerror(errno));
    r = make_region(guest, err);
    if (r == 0)
        r = cells_make(guest->registry->path, guest->folder, guest->lease, guest->wishes->priority,
                       err);
    return r < 0 ? r : write_limits(guest, err);
}

static void set(const char *name, const char *value)
{
    (void)setenv(name, value, 1);
}

static void __attribute__((format(printf, 2, 3))) setf(const char *name, const char *fmt, ...)
{
    char value[64];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(value, sizeof(value), fmt, args);
    va_end(args);
    set(name, value);
}

static int prepend(const char *name, const char *path)
{
    const char *old = getenv(name);
    AUTOFREE char *value = NULL;

    if (asprintf(&value, "%s%s%s", path, old && *old ? ":" : "", old && *old ? old : "") < 0)
        return -ENOMEM;
    return setenv(name, value, 1) < 0 ? -errno : 0;
}

/* What the shell around us says about its own cards and limits is not about these. */
static void forget_limits(void)
{
    char name[48];

    (void)unsetenv("CUDA_DEVICE_MEMORY_LIMIT");
    (void)unsetenv("CUDA_DEVICE_SM_LIMIT");
    for (unsigned i = 0; i < LIMITS_MAX_DEVICES; i++) {
        (void)snprintf(name, sizeof(name), "CUDA_DEVICE_MEMORY_LIMIT_%u", i);
        (void)unsetenv(name);
        (void)snprintf(name, sizeof(name), "CUDA_DEVICE_SM_LIMIT_%u", i);
        (void)unsetenv(name);
    }
}

static int set_environment(const struct guest *guest, struct error *err)
{
    char uuids[LEASE_MAX_DEVICES * (DEVICE_UUID_SIZE + 1)] = "", name[48];
    const struct lease *lease = guest->lease;
    int r;

    forget_limits();
    for (size_t i = 0; i < lease->device_count; i++) {
        size_t len = strlen(uuids);

        (void)snprintf(uuids + len, sizeof(uuids) - len, "%s%s", i ? "," : "",
                       lease->devices[i].uuid);
        (void)snprintf(name, sizeof(name), "CUDA_DEVICE_MEMORY_LIMIT_%zu", i);
        setf(name, "%llum", (unsigned long long)(lease->devices[i].memory_bytes / MIB));
    }
    set("CUDA_VISIBLE_DEVICES", uuids);
    set("NVIDIA_VISIBLE_DEVICES", uuids);
    set("CUDA_DEVICE_MEMORY_SHARED_CACHE", guest->region);
    if (lease->devices[0].cores)
        setf("CUDA_DEVICE_SM_LIMIT", "%u", lease->devices[0].cores);

    r = prepend("LD_PRELOAD", guest->library);
    if (r == 0 && *guest->local->machine)
        r = prepend("LD_LIBRARY_PATH", guest->local->paths.sim);
    return r < 0 ? error_set(err, r, "cannot set the environment: %s", strerror(-r)) : 0;
}

int guest_prepare(struct registry *registry, const struct local *local, const struct lease *lease,
                  const struct guest_wishes *wishes, struct error *err)
{
    struct guest guest = {registry, local, lease, wishes};
    int r;

    r = make_folder(&guest, err);
    if (r == 0)
        r = set_environment(&guest, err);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "node/cut.h"
#include "node/nvidia/cells.h"
#include "region/region.h"

enum {
    LIBRARY_MAX = 16 << 20,
};

/* Installing */

static uint64_t hash_of(const char *bytes, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static int install_library(struct guest *guest, const char *source, const char *version,
                           struct error *err)
{
    AUTOFREE char *bytes = malloc(LIBRARY_MAX);
    ssize_t len;
    int r;

    if (!bytes)
        return error_set(err, -ENOMEM, "cannot install %s: no memory", source);
    len = file_read(source, bytes, LIBRARY_MAX);
    if (len < 0)
        return error_set(err, (int)len, "cannot install %s: %s", source, strerror((int)-len));
    r = file_path(guest->library, err, "%s/libvgpu.so.%s-%08x", guest->host->hook_path, version,
                  (unsigned)(hash_of(bytes, (size_t)len) & 0xffffffffu));
    if (r < 0 || access(guest->library, F_OK) == 0)
        return r;
    return host_write_file(guest->library, bytes, (size_t)len, 0755, err);
}

static void *wait_and_hold(void *data)
{
    AUTOFREE char *path = data;

    (void)open(path, O_RDONLY | O_CLOEXEC);
    return NULL;
}

/*
 * Opens a file for as long as this process lives: then nobody can take a write lease (fcntl(2)) of
 * it. A container's root could, through its read-only mount, and whoever opens the file then waits
 * for the kernel to end the lease, for 45 s at most. Where somebody has one already a thread waits.
 */
static void hold(const char *path)
{
    pthread_t thread;
    char *copy;

    if (open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) >= 0 || errno != EWOULDBLOCK)
        return;
    log_warn("a container has a lease of %s, by which it keeps others from their start for a while",
             path);
    copy = strdup(path);
    if (copy && pthread_create(&thread, NULL, wait_and_hold, copy) == 0)
        (void)pthread_detach(thread);
    else
        free(copy);
}

int guest_install(struct guest *guest, const char *source, const char *version, struct error *err)
{
    char former[PATH_MAX];
    int r;

    r = install_library(guest, source, version, err);
    if (r == 0)
        r = file_path(former, err, "%s/ld.so.preload", guest->host->hook_path);
    if (r < 0)
        return r;
    hold(guest->library);
    hold(former);
    return 0;
}

#define CONTAINER_LABEL "system_u:object_r:container_file_t:s0"

static bool is_enforced(const char *sysfs)
{
    char path[PATH_MAX], text[8];

    return file_path(path, NULL, "%s/fs/selinux/enforce", sysfs) == 0 &&
           file_read(path, text, sizeof(text)) > 0 && text[0] == '1';
}

int guest_label(const struct guest *guest, const char *sysfs, struct error *err)
{
    char paths[4][PATH_MAX];
    int r = 0;

    if (!is_enforced(sysfs))
        return 0;
    COPY_TEXT(paths[0], guest->host->hook_path);
    COPY_TEXT(paths[1], guest->library);
    r = file_path(paths[2], err, "%s/containers", guest->host->hook_path);
    if (r == 0)
        r = file_path(paths[3], err, "%s/cards", guest->host->hook_path);
    for (size_t i = 0; i < ARRAY_SIZE(paths) && r == 0; i++) {
        if (setxattr(paths[i], "security.selinux", CONTAINER_LABEL, sizeof(CONTAINER_LABEL), 0) < 0)
            r = error_set(err, -errno,
                          "SELinux is enforced here, and %s can't be labelled (%s), without which "
                          "containers don't get their limits: run the device plugin with type "
                          "spc_t, or `chcon -R -t container_file_t %s` on the node",
                          paths[i], strerror(errno), guest->host->hook_path);
    }
    return r;
}

static int above_program(char ret_folder[PATH_MAX], struct error *err)
{
    ssize_t len = readlink("/proc/self/exe", ret_folder, PATH_MAX - 1);

    if (len < 0)
        return error_set(err, -errno, "/proc/self/exe: %s", strerror(errno));
    ret_folder[len] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(ret_folder, '/');

        if (slash)
            *slash = '\0';
    }
    return 0;
}

int guest_find_library(char ret_path[PATH_MAX], struct error *err)
{
    const char *chosen = getenv("HAMI_LIBDIR");
    char folder[PATH_MAX];
    int r;

    if (chosen && *chosen)
        return file_path(ret_path, err, "%s/libvgpu.so", chosen);
    r = above_program(folder, err);
    if (r == 0)
        r = file_path(ret_path, err, "%s/lib/hami/libvgpu.so", folder);
    if (r < 0 || access(ret_path, F_OK) == 0)
        return r;
    return file_path(ret_path, err, "%s/vgpu/libvgpu.so", folder);
}

/* A container's files */

static void new_region_name(char ret_name[GUEST_REGION_SIZE])
{
    uint8_t b[16];

    if (getrandom(b, sizeof(b), 0) != sizeof(b))
        memset(b, 0, sizeof(b));
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40); /* RFC 9562, version 4 */
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    (void)snprintf(ret_name, GUEST_REGION_SIZE,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x.cache",
                   b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
                   b[13], b[14], b[15]);
}

/* Empty: the first process makes it a region. Open to any user that the container may run as. */
static int make_region(const char *folder, bool keeps_name, char ret_name[GUEST_REGION_SIZE],
                       struct error *err)
{
    char path[PATH_MAX];
    AUTOCLOSE int fd = -1;
    int r;

    if (keeps_name)
        copy_text(ret_name, GUEST_REGION_SIZE, "container.cache");
    else
        new_region_name(ret_name);
    r = file_path(path, err, "%s/%s", folder, ret_name);
    if (r < 0)
        return r;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchmod(fd, 0666) < 0)
        return error_set(err, -errno, "cannot make %s: %s", path, strerror(errno));
    return 0;
}

/* Each container has one of its own: where programs start that open a common file, one container
 * could keep the others waiting. */
static int write_preload(const char *folder, struct error *err)
{
    static const char preload[] = GUEST_FOLDER "/libvgpu.so\n";
    char path[PATH_MAX];
    int r = file_path(path, err, "%s/ld.so.preload", folder);

    return r < 0 ? r : host_write_file(path, preload, strlen(preload), 0644, err);
}

int guest_prepare(const char *folder, const struct limits *limits_but_region, bool keeps_name,
                  char ret_region[GUEST_REGION_SIZE], struct error *err)
{
    struct limits limits = *limits_but_region;
    char path[PATH_MAX], text[LIMITS_FILE_MAX];
    int len, r;

    /* The former processes are dead: a new region drops their accounts. */
    host_sweep(folder, "", ".cache");
    r = make_region(folder, keeps_name, ret_region, err);
    if (r == 0)
        r = write_preload(folder, err);
    if (r == 0)
        r = file_path(path, err, "%s/limits", folder);
    if (r < 0)
        return r;
    (void)snprintf(limits.region_path, sizeof(limits.region_path), GUEST_FOLDER "/%s", ret_region);
    len = limits_format(&limits, text, sizeof(text));
    if (len < 0)
        return error_set(err, len, "the limits of %s are too long", folder);
    return host_write_file(path, text, (size_t)len, 0444, err);
}

/* Each file is a mount of its own, and no mount lies within another: a user can neither unlink nor
 * replace a mounted file. */
void guest_add_mounts(const struct guest *guest, const char *folder, const char *region,
                      struct spec_edits *edits)
{
    char path[PATH_MAX + 320], inside[128];

    spec_add_mount(edits, guest->library, GUEST_FOLDER "/libvgpu.so", false);
    (void)snprintf(path, sizeof(path), "%s/limits", folder);
    spec_add_mount(edits, path, GUEST_FOLDER "/limits", false);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, region);
    (void)snprintf(inside, sizeof(inside), GUEST_FOLDER "/%s", region);
    spec_add_mount(edits, path, inside, true);
    (void)snprintf(path, sizeof(path), "%s/ld.so.preload", folder);
    spec_add_mount(edits, path, "/etc/ld.so.preload", false);
}

bool guest_has_path(const char *path)
{
    size_t len = strlen(GUEST_FOLDER);

    return strcmp(path, "/etc/ld.so.preload") == 0 ||
           (strncmp(path, GUEST_FOLDER, len) == 0 && (!path[len] || path[len] == '/'));
}

/* Trimming */

struct trim {
    const struct node_host *host;
    void (*fn)(void *data, const char *entry, uint64_t bytes);
    void *data;
    const char *entry; /* the folder's name */
    char folder[PATH_MAX];
};

_Static_assert(REGION_SIZE <= GUEST_REGION_MAX, "a region fits");

static bool is_region(const char *name)
{
    size_t len = strlen(name), end = strlen(".cache");

    return len >= end && strcmp(name + len - end, ".cache") == 0;
}

static void trim_file(void *data, const char *name)
{
    static const struct cut_bounds bounds = {GUEST_REGION_MAX, 2 * GUEST_REGION_MAX};
    struct trim *trim = data;
    char path[PATH_MAX];
    uint64_t bytes = 0;

    if (is_region(name) && file_path(path, NULL, "%s/%s", trim->folder, name) == 0)
        bytes = cut_file(path, &bounds);
    if (bytes)
        trim->fn(trim->data, trim->entry, bytes);
}

static void trim_folder(void *data, const char *entry)
{
    struct trim *trim = data;

    trim->entry = entry;
    if (file_path(trim->folder, NULL, "%s/containers/%s", trim->host->hook_path, entry) == 0)
        (void)host_list(trim->folder, trim_file, trim, NULL);
}

int guest_trim(const struct node_host *host,
               void (*fn)(void *data, const char *entry, uint64_t bytes), void *data,
               struct error *err)
{
    struct trim trim = {.host = host, .fn = fn, .data = data};
    char path[PATH_MAX];
    int r;

    cells_trim(host, fn, data);
    r = file_path(path, err, "%s/containers", host->hook_path);
    return r < 0 ? r : host_list(path, trim_folder, &trim, err);
}

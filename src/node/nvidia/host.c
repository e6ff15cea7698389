/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/util.h"
#include "region/region.h"

enum {
    LIBRARY_MAX = 16 << 20,
    SPEC_MAX = 512 << 10,
    GRANT_MAX = 512 << 10, /* twice the bound of an object's annotations */
};

#define TEMPORARY_SUFFIX ".new"

static int make_folder(const char *path, mode_t mode, struct error *err)
{
    char part[PATH_MAX];

    for (const char *p = path + 1;; p++) {
        if (*p && *p != '/')
            continue;
        copy_text(part, MIN(sizeof(part), (size_t)(p - path) + 1), path);
        if (mkdir(part, mode) < 0 && errno != EEXIST)
            return error_set(err, -errno, "cannot make %s: %s", part, strerror(errno));
        if (!*p)
            return 0;
    }
}

/* Writes under another name, syncs, then renames: a reader sees the whole file or none. */
static int write_file(const char *path, const char *bytes, size_t len, mode_t mode,
                      struct error *err)
{
    char beside[PATH_MAX];
    AUTOCLOSE int fd = -1;
    int r;

    r = file_path(beside, err, "%s" TEMPORARY_SUFFIX, path);
    if (r < 0)
        return r;
    (void)unlink(beside);
    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set(err, -errno, "cannot make %s: %s", beside, strerror(errno));
    r = file_write_all(fd, bytes, len);
    if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || rename(beside, path) < 0))
        r = -errno;
    if (r < 0)
        (void)unlink(beside);
    return r < 0 ? error_set(err, r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

/* Calls fn with each name in a folder, which may be absent. */
static int list_folder(const char *path, void (*fn)(void *data, const char *name), void *data,
                       struct error *err)
{
    DIR *folder = opendir(path);

    if (!folder && errno == ENOENT)
        return 0;
    if (!folder)
        return error_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            fn(data, entry->d_name);
    }
    (void)closedir(folder);
    return 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);

    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* Installing */

struct sweep {
    const char *folder;
    const char *prefix, *suffix;
};

static void sweep_one(void *data, const char *name)
{
    struct sweep *sweep = data;
    char path[PATH_MAX];

    if (strncmp(name, sweep->prefix, strlen(sweep->prefix)) == 0 &&
        ends_with(name, sweep->suffix) && file_path(path, NULL, "%s/%s", sweep->folder, name) == 0)
        (void)unlink(path);
}

static uint64_t hash_of(const char *bytes, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static int install_library(struct node_host *host, const char *source, const char *version,
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
    r = file_path(host->library, err, "%s/libvgpu.so.%s-%08x", host->hook_path, version,
                  (unsigned)(hash_of(bytes, (size_t)len) & 0xffffffffu));
    if (r < 0 || access(host->library, F_OK) == 0)
        return r;
    return write_file(host->library, bytes, (size_t)len, 0755, err);
}

int host_install(struct node_host *host, const char *source, const char *version, struct error *err)
{
    static const char preload[] = CONTAINER_FOLDER "/libvgpu.so\n";
    struct sweep specs = {host->cdi_folder, CDI_FILE_PREFIX, TEMPORARY_SUFFIX};
    struct sweep hooks = {host->hook_path, "", TEMPORARY_SUFFIX};
    char path[PATH_MAX], have[sizeof(preload) + 1];
    int r;

    r = file_path(path, err, "%s/containers", host->hook_path);
    if (r == 0)
        r = make_folder(path, 0755, err);
    if (r == 0)
        r = make_folder(host->cdi_folder, 0755, err);
    if (r < 0)
        return r;
    (void)list_folder(specs.folder, sweep_one, &specs, NULL);
    (void)list_folder(hooks.folder, sweep_one, &hooks, NULL);
    r = install_library(host, source, version, err);
    if (r == 0)
        r = file_path(path, err, "%s/ld.so.preload", host->hook_path);
    if (r < 0)
        return r;
    /* Containers have it mounted, so it is not replaced by an equal one. */
    if (file_read(path, have, sizeof(have)) > 0 && strcmp(have, preload) == 0)
        return 0;
    return write_file(path, preload, strlen(preload), 0644, err);
}

#define CONTAINER_LABEL "system_u:object_r:container_file_t:s0"

static bool is_enforced(const char *sysfs)
{
    char path[PATH_MAX], text[8];

    return file_path(path, NULL, "%s/fs/selinux/enforce", sysfs) == 0 &&
           file_read(path, text, sizeof(text)) > 0 && text[0] == '1';
}

int host_label(const struct node_host *host, const char *sysfs, struct error *err)
{
    char paths[4][PATH_MAX];
    int r = 0;

    if (!is_enforced(sysfs))
        return 0;
    COPY_TEXT(paths[0], host->hook_path);
    COPY_TEXT(paths[1], host->library);
    r = file_path(paths[2], err, "%s/containers", host->hook_path);
    if (r == 0)
        r = file_path(paths[3], err, "%s/ld.so.preload", host->hook_path);
    for (size_t i = 0; i < ARRAY_SIZE(paths) && r == 0; i++) {
        if (setxattr(paths[i], "security.selinux", CONTAINER_LABEL, sizeof(CONTAINER_LABEL), 0) < 0)
            r = error_set(err, -errno,
                          "SELinux is enforced here, and %s can't be labelled (%s), without which "
                          "containers don't get their limits: run the device plugin with type "
                          "spc_t, or `chcon -R -t container_file_t %s` on the node",
                          paths[i], strerror(errno), host->hook_path);
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

int host_find_library(char ret_path[PATH_MAX], struct error *err)
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

/* A container's folder */

static void new_region_name(char ret_name[EDITS_REGION_SIZE])
{
    uint8_t b[16];

    if (getrandom(b, sizeof(b), 0) != sizeof(b))
        memset(b, 0, sizeof(b));
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40); /* RFC 9562, version 4 */
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    (void)snprintf(ret_name, EDITS_REGION_SIZE,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x.cache",
                   b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
                   b[13], b[14], b[15]);
}

/* Empty: the first process makes it a region. Open to any user that the container may run as. */
static int make_region(const char *folder, struct container_grant *grant, struct error *err)
{
    char path[PATH_MAX];
    AUTOCLOSE int fd = -1;
    int r;

    new_region_name(grant->region);
    r = file_path(path, err, "%s/%s", folder, grant->region);
    if (r < 0)
        return r;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchmod(fd, 0666) < 0)
        return error_set(err, -errno, "cannot make %s: %s", path, strerror(errno));
    return 0;
}

static int read_record(const char *path, char **ret_text)
{
    AUTOFREE char *text = malloc(GRANT_MAX);
    ssize_t len;

    if (!text)
        return -ENOMEM;
    len = file_read(path, text, GRANT_MAX);
    if (len < 0)
        return (int)len;
    *ret_text = TAKE(text);
    return 0;
}

/* After a restart of the container it exists already. */
static int keep_record(const char *folder, const struct container_grant *grant, struct error *err)
{
    AUTOFREE char *have = NULL;
    char path[PATH_MAX];
    int r;

    r = file_path(path, err, "%s/pod", folder);
    if (r < 0 || (read_record(path, &have) == 0 && strcmp(have, grant->record) == 0))
        return r;
    return write_file(path, grant->record, strlen(grant->record), 0400, err);
}

static bool is_plain_name(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

int host_prepare(const struct node_host *host, struct container_grant *grant, struct error *err)
{
    char folder[PATH_MAX], path[PATH_MAX], text[LIMITS_FILE_MAX];
    struct sweep regions = {folder, "", ".cache"};
    int len, r;

    if (!is_plain_name(grant->pod_uid) || !is_plain_name(grant->container) ||
        edits_folder(host, grant->pod_uid, grant->container, folder, sizeof(folder)) < 0)
        return error_set(err, -EINVAL, "the pod's uid or the container's name is no file's name");
    r = make_folder(folder, 0755, err);
    if (r < 0)
        return r;
    /* The former processes are dead: a new region drops their accounts. */
    (void)list_folder(folder, sweep_one, &regions, NULL);
    r = keep_record(folder, grant, err);
    if (r == 0)
        r = make_region(folder, grant, err);
    if (r == 0)
        r = file_path(path, err, "%s/limits", folder);
    if (r < 0)
        return r;
    len = edits_limits(host, grant, text, sizeof(text));
    if (len < 0)
        return error_set(err, len, "the limits of %s are too long", folder);
    return write_file(path, text, (size_t)len, 0444, err);
}

int host_read_record(const struct node_host *host, const char *entry, const char *name,
                     char **ret_text, struct error *err)
{
    char path[PATH_MAX];
    int r;

    r = file_path(path, err, "%s/containers/%s/%s", host->hook_path, entry, name);
    if (r < 0)
        return r;
    r = read_record(path, ret_text);
    return r < 0 && r != -ENOENT ? error_set(err, r, "%s: %s", path, strerror(-r)) : r;
}

int host_write_spec(const struct node_host *host, const struct container_grant *grant,
                    const struct cdi_choice *driver, const char *name, struct error *err)
{
    CLEANUP(strbuf_deinit) struct strbuf spec = STRBUF_INIT(SPEC_MAX);
    char path[PATH_MAX];
    int r;

    r = edits_spec(host, grant, driver, name, &spec);
    if (r < 0)
        return error_set(err, r, "the CDI specification %s is too long", name);
    r = file_path(path, err, "%s/" CDI_FILE_PREFIX "%s.json", host->cdi_folder, name);
    return r < 0 ? r : write_file(path, spec.text, spec.len, 0644, err);
}

/* Removing and listing */

void host_remove_spec(const struct node_host *host, const char *name)
{
    char path[PATH_MAX];

    if (file_path(path, NULL, "%s/" CDI_FILE_PREFIX "%s.json", host->cdi_folder, name) == 0)
        (void)unlink(path);
}

void host_remove_folder(const struct node_host *host, const char *entry)
{
    char folder[PATH_MAX];
    struct sweep all = {folder, "", ""};

    if (!is_plain_name(entry) ||
        file_path(folder, NULL, "%s/containers/%s", host->hook_path, entry) < 0)
        return;
    (void)list_folder(folder, sweep_one, &all, NULL);
    (void)rmdir(folder);
}

struct spec_list {
    const struct node_host *host;
    void (*fn)(void *data, const struct spec_owner *owner);
    void *data;
};

/* "hami-a0123456789abcdef.json": other programs write to this folder, too. */
static bool is_spec_name(const char *file)
{
    const char *hash = file + strlen(CDI_FILE_PREFIX) + 1;

    return strncmp(file, CDI_FILE_PREFIX "a", strlen(CDI_FILE_PREFIX) + 1) == 0 &&
           strspn(hash, "0123456789abcdef") == 16 && strcmp(hash + 16, ".json") == 0;
}

static void list_spec(void *data, const char *file)
{
    struct spec_list *list = data;
    char path[PATH_MAX], wanted[EDITS_NAME_SIZE + 16];
    AUTOFREE char *text = malloc(SPEC_MAX);
    struct spec_owner owner;
    ssize_t len;

    if (!text || !is_spec_name(file) ||
        file_path(path, NULL, "%s/%s", list->host->cdi_folder, file) < 0)
        return;
    len = file_read(path, text, SPEC_MAX);
    if (len < 0 || edits_read_spec(text, (size_t)len, &owner) < 0) {
        (void)unlink(path);
        return;
    }
    (void)snprintf(wanted, sizeof(wanted), CDI_FILE_PREFIX "%s.json", owner.name);
    if (strcmp(file, wanted) != 0)
        (void)unlink(path);
    else
        list->fn(list->data, &owner);
}

int host_list_specs(const struct node_host *host,
                    void (*fn)(void *data, const struct spec_owner *owner), void *data,
                    struct error *err)
{
    struct spec_list list = {host, fn, data};

    return list_folder(host->cdi_folder, list_spec, &list, err);
}

/* Trimming */

struct trim {
    const struct node_host *host;
    void (*fn)(void *data, const char *entry, uint64_t bytes);
    void *data;
    const char *entry; /* the folder's name */
    char folder[PATH_MAX];
};

_Static_assert(REGION_SIZE <= HOST_REGION_MAX, "a region fits");

/* Blocks count, too, since they can be allocated beyond the file's end. File systems allocate some
 * in advance. */
static uint64_t excess_of(const struct stat *st)
{
    uint64_t size = (uint64_t)st->st_size, taken = (uint64_t)st->st_blocks * 512;

    if (!S_ISREG(st->st_mode) || (size <= HOST_REGION_MAX && taken <= 2 * HOST_REGION_MAX))
        return 0;
    return MAX(size, taken);
}

static void trim_file(void *data, const char *name)
{
    struct trim *trim = data;
    AUTOCLOSE int fd = -1;
    char path[PATH_MAX];
    struct stat st;
    uint64_t bytes;

    if (!ends_with(name, ".cache") || file_path(path, NULL, "%s/%s", trim->folder, name) < 0 ||
        lstat(path, &st) < 0 || !excess_of(&st))
        return;
    fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return;
    bytes = excess_of(&st);
    if (bytes && ftruncate(fd, MIN(st.st_size, (off_t)HOST_REGION_MAX)) == 0)
        trim->fn(trim->data, trim->entry, bytes);
}

static void trim_folder(void *data, const char *entry)
{
    struct trim *trim = data;

    trim->entry = entry;
    if (file_path(trim->folder, NULL, "%s/containers/%s", trim->host->hook_path, entry) == 0)
        (void)list_folder(trim->folder, trim_file, trim, NULL);
}

int host_trim_regions(const struct node_host *host,
                      void (*fn)(void *data, const char *entry, uint64_t bytes), void *data,
                      struct error *err)
{
    struct trim trim = {.host = host, .fn = fn, .data = data};
    char path[PATH_MAX];
    int r;

    r = file_path(path, err, "%s/containers", host->hook_path);
    return r < 0 ? r : list_folder(path, trim_folder, &trim, err);
}

struct folder_list {
    void (*fn)(void *data, const char *pod_uid, const char *entry);
    void *data;
};

static void list_one_folder(void *data, const char *entry)
{
    struct folder_list *list = data;
    char pod_uid[64];
    size_t len = strcspn(entry, "_");

    if (!entry[len] || !len || len >= sizeof(pod_uid))
        return;
    memcpy(pod_uid, entry, len);
    pod_uid[len] = '\0';
    list->fn(list->data, pod_uid, entry);
}

int host_list_folders(const struct node_host *host,
                      void (*fn)(void *data, const char *pod_uid, const char *entry), void *data,
                      struct error *err)
{
    struct folder_list list = {fn, data};
    char path[PATH_MAX];
    int r;

    r = file_path(path, err, "%s/containers", host->hook_path);
    return r < 0 ? r : list_folder(path, list_one_folder, &list, err);
}

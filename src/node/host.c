/* SPDX-License-Identifier: Apache-2.0 */
#include "node/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/util.h"

enum {
    GRANT_MAX = 512 << 10, /* twice the bound of an object's annotations */
};

int host_make_folder(const char *path, mode_t mode, struct error *err)
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

int host_write_file(const char *path, const char *bytes, size_t len, mode_t mode, struct error *err)
{
    char beside[PATH_MAX];
    AUTOCLOSE int fd = -1;
    int r;

    r = file_path(beside, err, "%s" HOST_HALF_SUFFIX, path);
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

int host_list(const char *path, void (*fn)(void *data, const char *name), void *data,
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

void host_sweep(const char *folder, const char *prefix, const char *suffix)
{
    struct sweep sweep = {folder, prefix, suffix};

    (void)host_list(folder, sweep_one, &sweep, NULL);
}

int host_install(const struct node_host *host, struct error *err)
{
    char path[PATH_MAX];
    int r;

    r = file_path(path, err, "%s/containers", host->hook_path);
    if (r == 0)
        r = host_make_folder(path, 0755, err);
    if (r == 0)
        r = host_make_folder(host->cdi_folder, 0755, err);
    if (r < 0)
        return r;
    host_sweep(host->cdi_folder, SPEC_FILE_PREFIX, HOST_HALF_SUFFIX);
    host_sweep(host->hook_path, "", HOST_HALF_SUFFIX);
    return 0;
}

/* A container's folder */

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
    return host_write_file(path, grant->record, strlen(grant->record), 0400, err);
}

static bool is_plain_name(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

int host_prepare(const struct node_host *host, const struct container_grant *grant,
                 char ret_folder[PATH_MAX], struct error *err)
{
    int r;

    if (!is_plain_name(grant->pod_uid) || !is_plain_name(grant->container))
        return error_set(err, -EINVAL, "the pod's uid or the container's name is no file's name");
    r = file_path(ret_folder, err, "%s/containers/%s_%s", host->hook_path, grant->pod_uid,
                  grant->container);
    if (r == 0)
        r = host_make_folder(ret_folder, 0755, err);
    return r < 0 ? r : keep_record(ret_folder, grant, err);
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
                    const char *name, const struct spec_edits *edits, struct error *err)
{
    CLEANUP(strbuf_deinit) struct strbuf spec = STRBUF_INIT(SPEC_MAX);
    char path[PATH_MAX];
    int r;

    r = spec_format(grant->pod_uid, grant->container, name, edits, &spec);
    if (r < 0)
        return error_set(err, r, "the CDI specification %s is too long", name);
    r = file_path(path, err, "%s/" SPEC_FILE_PREFIX "%s.json", host->cdi_folder, name);
    return r < 0 ? r : host_write_file(path, spec.text, spec.len, 0644, err);
}

/* Removing and listing */

void host_remove_spec(const struct node_host *host, const char *name)
{
    char path[PATH_MAX];

    if (file_path(path, NULL, "%s/" SPEC_FILE_PREFIX "%s.json", host->cdi_folder, name) == 0)
        (void)unlink(path);
}

struct removing {
    const struct node_host *host;
    const char *entry;
};

struct removing_cells {
    const char *folder, *entry;
};

static void remove_cell(void *data, const char *name)
{
    const struct removing_cells *removing = data;
    const size_t len = strlen(removing->entry);
    char path[PATH_MAX];

    if (strncmp(name, removing->entry, len) == 0 && (!name[len] || name[len] == '.') &&
        file_path(path, NULL, "%s/%s", removing->folder, name) == 0)
        (void)unlink(path);
}

void host_remove_from_card(const char *folder, const char *entry)
{
    struct removing_cells removing = {folder, entry};

    (void)host_list(folder, remove_cell, &removing, NULL);
}

static void remove_from_card(void *data, const char *card)
{
    const struct removing *removing = data;
    char path[PATH_MAX];

    if (card[0] != '.' &&
        file_path(path, NULL, "%s/cards/%s", removing->host->hook_path, card) == 0)
        host_remove_from_card(path, removing->entry);
}

static void remove_from_cards(const struct node_host *host, const char *entry)
{
    struct removing removing = {host, entry};
    char path[PATH_MAX];

    if (file_path(path, NULL, "%s/cards", host->hook_path) == 0)
        (void)host_list(path, remove_from_card, &removing, NULL);
}

void host_remove_folder(const struct node_host *host, const char *entry)
{
    char folder[PATH_MAX];

    if (!is_plain_name(entry) ||
        file_path(folder, NULL, "%s/containers/%s", host->hook_path, entry) < 0)
        return;
    remove_from_cards(host, entry);
    host_sweep(folder, "", "");
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
    const char *hash = file + strlen(SPEC_FILE_PREFIX) + 1;

    return strncmp(file, SPEC_FILE_PREFIX "a", strlen(SPEC_FILE_PREFIX) + 1) == 0 &&
           strspn(hash, "0123456789abcdef") == 16 && strcmp(hash + 16, ".json") == 0;
}

static void list_spec(void *data, const char *file)
{
    struct spec_list *list = data;
    char path[PATH_MAX], wanted[SPEC_NAME_SIZE + 16];
    AUTOFREE char *text = malloc(SPEC_MAX);
    struct spec_owner owner;
    ssize_t len;

    if (!text || !is_spec_name(file) ||
        file_path(path, NULL, "%s/%s", list->host->cdi_folder, file) < 0)
        return;
    len = file_read(path, text, SPEC_MAX);
    if (len < 0 || spec_read(text, (size_t)len, &owner) < 0) {
        (void)unlink(path);
        return;
    }
    (void)snprintf(wanted, sizeof(wanted), SPEC_FILE_PREFIX "%s.json", owner.name);
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

    return host_list(host->cdi_folder, list_spec, &list, err);
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
    return r < 0 ? r : host_list(path, list_one_folder, &list, err);
}

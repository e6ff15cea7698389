/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/laid_out.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "node/nvidia/edits.h"
#include "node/spec.h"

enum {
    FILES_MAX = 2048,
    PATH_SIZE = 512, /* in a container; longer ones are left out */
};

/* A file that is mounted. */
struct file {
    const char *host_path; /* the choice's */
    char path[PATH_SIZE];
};

struct files {
    bool (*skip)(const char *path);
    struct strbuf *mounts;
    size_t count;
    struct file items[FILES_MAX];
};

static const struct file *find_file(const struct files *files, const char *path)
{
    for (size_t i = 0; i < files->count; i++) {
        if (strcmp(files->items[i].path, path) == 0)
            return &files->items[i];
    }
    return NULL;
}

static void keep_file(struct files *files, const char *host_path, const char *path)
{
    if (files->count == FILES_MAX || strlen(path) >= PATH_SIZE)
        return;
    files->items[files->count].host_path = host_path;
    copy_text(files->items[files->count++].path, PATH_SIZE, path);
}

static void add_file(struct files *files, const char *host_path, const char *path)
{
    struct spec_edits edits = {.mounts = *files->mounts};

    if (find_file(files, path) || files->skip(path) || strlen(path) >= PATH_SIZE)
        return;
    spec_add_mount(&edits, host_path, path, false);
    *files->mounts = edits.mounts;
    keep_file(files, host_path, path);
}

/* Links */

/* "../a/./b" seen from the folder of path, as a path from the root. False: too long, or above it.
 */
static bool resolve(const char *path, const char *target, char ret_path[PATH_SIZE])
{
    char text[2 * PATH_SIZE];
    size_t len = 0;
    char *rest = text, *part;
    int n;

    n = snprintf(text, sizeof(text), "%.*s/%s",
                 *target == '/' ? 0 : (int)(strrchr(path, '/') - path), path, target);
    if (n < 0 || (size_t)n >= sizeof(text))
        return false;
    while ((part = strsep(&rest, "/"))) {
        if (!*part || strcmp(part, ".") == 0)
            continue;
        if (strcmp(part, "..") == 0) {
            while (len && ret_path[--len] != '/')
                ;
            continue;
        }
        if (len + strlen(part) + 2 > PATH_SIZE)
            return false;
        len += (size_t)snprintf(ret_path + len, PATH_SIZE - len, "/%s", part);
    }
    ret_path[len] = '\0';
    return len > 0;
}

/* "target::path" */
static void add_link(struct files *files, const char *text)
{
    const char *colons = strstr(text, "::");
    char target[PATH_SIZE], resolved[PATH_SIZE];
    const struct file *file;

    if (!colons || colons == text || colons[2] != '/' || colons - text >= PATH_SIZE)
        return;
    copy_text(target, (size_t)(colons - text) + 1, text);
    file = resolve(colons + 2, target, resolved) ? find_file(files, resolved) : NULL;
    if (file)
        add_file(files, file->host_path, colons + 2);
}

static bool is_hook(const struct cdi_hook *hook, const char *name)
{
    const char *const *args = hook->args.items;

    for (size_t i = 0; i < hook->args.count; i++) {
        if (strcmp(args[i], name) == 0)
            return true;
    }
    return false;
}

/* Calls fn with each value of an option that the hook is given, as "--link X" or "--link=X". */
static void each_value(struct files *files, const struct cdi_hook *hook, const char *option,
                       void (*fn)(struct files *files, const char *value))
{
    const char *const *args = hook->args.items;
    size_t len = strlen(option);

    for (size_t i = 0; i < hook->args.count; i++) {
        if (strncmp(args[i], option, len) != 0)
            continue;
        if (args[i][len] == '=')
            fn(files, args[i] + len + 1);
        else if (!args[i][len] && i + 1 < hook->args.count)
            fn(files, args[i + 1]);
    }
}

/* Libraries */

/* The name that programs are linked with: the driver's libraries all have version 1 but for these.
 * A library whose own version is its name's gets a name more than it needs. */
static unsigned version_of(const char *name)
{
    return strncmp(name, "libnvidia-nvvm", strlen("libnvidia-nvvm")) == 0 ? 4 : 1;
}

/* Folders that images' loaders search by default: Debian's, and that of the other distributions. */
static void add_library(struct files *files, const char *host_path, const char *folder,
                        const char *name)
{
    const char *const folders[] = {folder, DRIVER_LIBRARY_FOLDER, "/usr/lib64"};
    const char *version = strstr(name, ".so.");
    char path[2 * PATH_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folders[i], name);
        add_file(files, host_path, path);
        if (!version || !strchr(version + strlen(".so."), '.'))
            continue;
        (void)snprintf(path, sizeof(path), "%s/%.*s.so.%u", folders[i], (int)(version - name), name,
                       version_of(name));
        add_file(files, host_path, path);
    }
}

/* Of what was mounted so far the libraries of a folder. */
static void add_libraries(struct files *files, const char *folder)
{
    size_t count = files->count, len = strlen(folder);

    for (size_t i = 0; i < count; i++) {
        const char *path = files->items[i].path;

        if (strncmp(path, folder, len) == 0 && path[len] == '/' && !strchr(path + len + 1, '/') &&
            strstr(path + len, ".so."))
            add_library(files, files->items[i].host_path, folder, path + len + 1);
    }
}

static void each_hook(struct files *files, const struct cdi_choice *choice, const char *name,
                      const char *option, void (*fn)(struct files *files, const char *value))
{
    for (size_t part = 0; part < choice->count; part++) {
        const struct cdi_hook *hooks = choice->parts[part]->hooks.items;

        for (size_t i = 0; i < choice->parts[part]->hooks.count; i++) {
            if (is_hook(&hooks[i], name))
                each_value(files, &hooks[i], option, fn);
        }
    }
}

/* Links may lead to what ldconfig makes. */
void laid_out_add_mounts(const struct cdi_choice *choice, bool (*skip)(const char *path),
                         struct strbuf *mounts)
{
    AUTOFREE struct files *files = calloc(1, sizeof(*files));

    cdi_add_mounts(choice, skip, mounts);
    if (!files) {
        mounts->failed = true;
        return;
    }
    files->skip = skip;
    files->mounts = mounts;
    for (size_t part = 0; part < choice->count; part++) {
        const struct cdi_mount *items = choice->parts[part]->mounts.items;

        for (size_t i = 0; i < choice->parts[part]->mounts.count; i++)
            keep_file(files, items[i].host_path, items[i].container_path);
    }
    each_hook(files, choice, "update-ldcache", "--folder", add_libraries);
    each_hook(files, choice, "create-symlinks", "--link", add_link);
}

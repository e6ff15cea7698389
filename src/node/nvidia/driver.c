/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/driver.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/util.h"
#include "node/nvidia/edits.h"
#include "nvml/find.h"

enum {
    ARENA_MAX = 8 << 20,
    FILES_MAX = 256, /* looked at in a folder */
    LIBRARIES_MAX = 128,
};

struct driver {
    struct driver_config config;
    struct arena *arena; /* holds the specifications */
    struct cdi_spec specs[CDI_SPECS_MAX];
    size_t count;
    struct cdi_edits root_edits;
    bool has_root;
    uint64_t seen; /* hash of the files that they were read from; 0: not read yet */
    int problem;
    struct error why;
};

struct driver *driver_new(const struct driver_config *config)
{
    struct driver *driver = calloc(1, sizeof(*driver));

    if (!driver)
        return NULL;
    driver->config = *config;
    driver->arena = arena_new(ARENA_MAX);
    if (!driver->arena) {
        free(driver);
        return NULL;
    }
    return driver;
}

void driver_free(struct driver *driver)
{
    if (!driver)
        return;
    arena_free(driver->arena);
    free(driver);
}

/* Files */

/* Our own specifications are left out; half-written files have another ending. */
static int is_wanted(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');

    if (!end || strncmp(entry->d_name, "hami-", 5) == 0)
        return 0;
    return strcmp(end, ".json") == 0 || strcmp(end, ".yaml") == 0 || strcmp(end, ".yml") == 0;
}

/* Calls fn with the path of each file that may be a specification, folder by folder, by name. */
static void each_file(const struct driver *driver, void (*fn)(void *data, const char *path),
                      void *data)
{
    char folder[PATH_MAX], path[PATH_MAX];

    for (const char *p = driver->config.cdi_folders; *p; p += *p == ',') {
        size_t len = strcspn(p, ",");
        struct dirent **entries;
        int count;

        copy_text(folder, MIN(sizeof(folder), len + 1), p);
        p += len;
        count = len ? scandir(folder, &entries, is_wanted, alphasort) : -1;
        for (int i = 0; i < count; i++) {
            if (i < FILES_MAX && snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name) <
                                     (int)sizeof(path))
                fn(data, path);
            free(entries[i]);
        }
        if (count >= 0)
            free(entries);
    }
}

static void add_hash(uint64_t *hash, uint64_t number)
{
    *hash = (*hash ^ number) * UINT64_C(0x9e3779b97f4a7c15);
    *hash ^= *hash >> 29;
}

static void add_identity(void *data, const char *path)
{
    uint64_t *hash = data;
    struct stat st;

    for (const char *p = path; *p; p++)
        add_hash(hash, (unsigned char)*p);
    if (stat(path, &st) < 0)
        return;
    add_hash(hash, (uint64_t)st.st_ino);
    add_hash(hash, (uint64_t)st.st_size);
    add_hash(hash, (uint64_t)st.st_mtim.tv_sec);
    add_hash(hash, (uint64_t)st.st_mtim.tv_nsec);
}

/* A file that can't be read may belong to another program, so only the toolkit's is reported. */
static void read_one(void *data, const char *path)
{
    AUTOFREE char *text = malloc(CDI_FILE_MAX + 1);
    struct driver *driver = data;
    struct error why = ERROR_INIT;
    ssize_t len;
    int r;

    if (driver->count == CDI_SPECS_MAX || !text)
        return;
    len = file_read(path, text, CDI_FILE_MAX + 1);
    if (len < 0) {
        r = error_set(&why, (int)len, "%s: %s", path, strerror((int)-len));
        len = 0;
    } else {
        r = cdi_spec_parse(path, text, (size_t)len, driver->arena, &driver->specs[driver->count],
                           &why);
    }
    if (r == 0 && strcmp(driver->specs[driver->count].kind, CDI_DRIVER_KIND) == 0)
        driver->count++;
    if (r < 0 && driver->problem == 0 &&
        (strstr(path, "nvidia") || memmem(text, (size_t)len, CDI_DRIVER_KIND, 14))) {
        driver->problem = r;
        driver->why = why;
    }
}

/* A driver root */

/* The driver's libraries that compute needs. */
static const char *const libraries[] = {
    "libcuda.so.",           "libcudadebugger.so.",
    "libnvidia-ml.so.",      "libnvidia-ptxjitcompiler.so.",
    "libnvidia-nvvm.so.",    "libnvidia-nvvm70.so.",
    "libnvidia-gpucomp.so.", "libnvidia-cfg.so.",
    "libnvidia-opencl.so.",  "libnvidia-allocator.so.",
    "libnvidia-encode.so.",  "libnvcuvid.so.",
};

static int is_library(const struct dirent *entry)
{
    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
        if (strncmp(entry->d_name, libraries[i], strlen(libraries[i])) == 0)
            return 1;
    }
    return 0;
}

static int driver_add_mount(struct driver *driver, const char *host_path,
                            const char *container_path)
{
    static const char *options[] = {"ro", "nosuid", "nodev", "bind"};
    struct cdi_mount *mounts = driver->root_edits.mounts.items;

    mounts[driver->root_edits.mounts.count++] = (struct cdi_mount){
        .host_path = host_path,
        .container_path = container_path,
        .options = {ARRAY_SIZE(options), options},
    };
    return host_path && container_path ? 0 : -ENOMEM;
}

/* Folders that images' loaders search by default: Debian's, and that of the other distributions. */
static int add_library(struct driver *driver, const char *folder, const char *name)
{
    static const char *const inside[] = {DRIVER_LIBRARY_FOLDER, "/usr/lib64"};
    const char *path = arena_printf(driver->arena, "%s/%s/%s", driver->config.root, folder, name);
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(inside) && r == 0; i++)
        r = driver_add_mount(driver, path, arena_printf(driver->arena, "%s/%s", inside[i], name));
    return r;
}

static int add_libraries(struct driver *driver, const char *folder)
{
    struct dirent **entries;
    char path[PATH_MAX];
    int count, r = 0;

    (void)snprintf(path, sizeof(path), "%s/%s", driver->config.seen_root, folder);
    count = scandir(path, &entries, is_library, alphasort);
    if (count < 0)
        return 0;
    for (int i = 0; i < count; i++) {
        if (r == 0 && i < LIBRARIES_MAX)
            r = add_library(driver, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return r;
}

static int read_root(struct driver *driver)
{
    struct cdi_mount *mounts = ARENA_ARRAY(driver->arena, struct cdi_mount, 2 * LIBRARIES_MAX + 1);
    char path[PATH_MAX];
    int r = mounts ? 0 : -ENOMEM;

    driver->root_edits = (struct cdi_edits){.mounts = {0, mounts}};
    for (size_t i = 0; driver_library_folders[i] && r == 0; i++) {
        if (!driver->root_edits.mounts.count)
            r = add_libraries(driver, driver_library_folders[i]);
    }
    if (r == 0 && !driver->root_edits.mounts.count)
        return error_set(&driver->why, -ENOENT, "there is no driver below %s/",
                         driver->config.root);
    (void)snprintf(path, sizeof(path), "%s/usr/bin/nvidia-smi", driver->config.seen_root);
    if (r == 0 && access(path, F_OK) == 0)
        r = driver_add_mount(
            driver, arena_printf(driver->arena, "%s/usr/bin/nvidia-smi", driver->config.root),
            "/usr/bin/nvidia-smi");
    driver->has_root = r == 0;
    return r;
}

/* Looking */

static void forget_spec(struct driver *driver)
{
    arena_reset(driver->arena);
    driver->count = 0;
    driver->has_root = false;
    driver->problem = 0;
    driver->why.text[0] = '\0';
}

static int source_of(const struct driver *driver)
{
    if (driver->count)
        return DRIVER_TOOLKIT;
    return driver->has_root ? DRIVER_ROOT : DRIVER_NONE;
}

int driver_look(struct driver *driver, struct error *err)
{
    uint64_t seen = 1;

    each_file(driver, add_identity, &seen);
    if (seen != driver->seen || driver->problem) {
        forget_spec(driver);
        each_file(driver, read_one, driver);
        if (!driver->count && !driver->problem && driver->config.root)
            driver->problem = read_root(driver);
        driver->seen = seen;
    }
    if (driver->problem && !driver->count)
        return error_set(err, driver->problem, "%s",
                         driver->why.text[0] ? driver->why.text : strerror(-driver->problem));
    return source_of(driver);
}

int driver_choose(struct driver *driver, const struct cdi_card *cards, size_t count,
                  bool has_every_card, struct cdi_choice *ret_choice, struct error *err)
{
    int source = driver_look(driver, err), r;

    *ret_choice = (struct cdi_choice){.count = 0};
    if (source < 0 || source == DRIVER_NONE)
        return source;
    if (source == DRIVER_ROOT) {
        *ret_choice = (struct cdi_choice){.count = 1, .parts = {&driver->root_edits}};
        return source;
    }
    r = cdi_choose(driver->specs, driver->count, cards, count, has_every_card, ret_choice, err);
    if (r == -ENODEV)
        return error_wrap(err, r, "%s is behind the node's cards? " DRIVER_CURE,
                          driver->problem ? driver->why.text : driver->specs[0].file);
    return r < 0 ? r : source;
}

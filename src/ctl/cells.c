/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/cells.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "region/card.h"

static int make_folder(const char *path, struct error *err)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set(err, -errno, "cannot make %s: %s", path, strerror(errno));
    return 0;
}

static int cell_path(char ret_path[PATH_MAX], const char *folder, uint64_t id, int priority,
                     unsigned cores, struct error *err)
{
    char name[32], file[64];

    (void)snprintf(name, sizeof(name), "%" PRIu64, id);
    (void)card_cell_name(file, sizeof(file), name, priority, cores);
    return file_path(ret_path, err, "%s/%s", folder, file);
}

static int make_cell(const char *registry, const char *run, uint64_t id,
                     const struct lease_device *device, int priority, struct error *err)
{
    char folder[PATH_MAX], cell[PATH_MAX], own[PATH_MAX];
    int r = file_path(folder, err, "%s/cards/%s", registry, device->uuid);

    if (r == 0)
        r = cell_path(cell, folder, id, priority, device->cores, err);
    if (r == 0)
        r = file_path(own, err, "%s/cells/%s", run, device->uuid);
    if (r == 0)
        r = make_folder(folder, err);
    if (r < 0)
        return r;
    r = card_make_cell(cell);
    if (r == 0 && link(cell, own) < 0)
        r = -errno;
    return r < 0 ? error_set(err, r, "cannot make %s: %s", own, strerror(-r)) : 0;
}

int cells_make(const char *registry, const char *run, const struct lease *lease, int priority,
               struct error *err)
{
    char path[PATH_MAX];
    int r = file_path(path, err, "%s/cards", registry);

    if (r == 0)
        r = make_folder(path, err);
    if (r == 0)
        r = file_path(path, err, "%s/cells", run);
    if (r == 0)
        r = make_folder(path, err);
    for (size_t i = 0; i < lease->device_count && r == 0; i++)
        r = make_cell(registry, run, lease->id, &lease->devices[i], priority, err);
    return r;
}

struct visit {
    const char *name;
    void (*fn)(const struct visit *visit, const char *folder, const char *file);
    const struct lease *lease;
    int priority;
};

static void visit_card(const struct visit *visit, const char *folder)
{
    const struct dirent *entry;
    DIR *cells = opendir(folder);

    while (cells && (entry = readdir(cells))) {
        if (card_cell_is_of(entry->d_name, visit->name))
            visit->fn(visit, folder, entry->d_name);
    }
    if (cells)
        (void)closedir(cells);
}

static void visit_cells(const char *registry, const struct visit *visit)
{
    const struct dirent *entry;
    char path[PATH_MAX];
    DIR *cards;

    if (file_path(path, NULL, "%s/cards", registry) < 0)
        return;
    cards = opendir(path);
    while (cards && (entry = readdir(cards))) {
        if (entry->d_name[0] != '.' &&
            file_path(path, NULL, "%s/cards/%s", registry, entry->d_name) == 0)
            visit_card(visit, path);
    }
    if (cards)
        (void)closedir(cards);
}

static void remove_cell(const struct visit *visit, const char *folder, const char *file)
{
    char path[PATH_MAX];

    (void)visit;
    if (file_path(path, NULL, "%s/%s", folder, file) == 0)
        (void)unlink(path);
}

void cells_remove(const char *registry, const char *name)
{
    const struct visit visit = {.name = name, .fn = remove_cell};

    visit_cells(registry, &visit);
}

/* The file stays the same. */
static void rename_cell(const struct visit *visit, const char *folder, const char *file)
{
    const char *uuid = strrchr(folder, '/') + 1;
    char from[PATH_MAX], to[PATH_MAX];

    for (size_t i = 0; i < visit->lease->device_count; i++) {
        const struct lease_device *device = &visit->lease->devices[i];

        if (strcmp(device->uuid, uuid) == 0 && file_path(from, NULL, "%s/%s", folder, file) == 0 &&
            cell_path(to, folder, visit->lease->id, visit->priority, device->cores, NULL) == 0 &&
            strcmp(from, to) != 0)
            (void)rename(from, to);
    }
}

void cells_resize(const char *registry, const struct lease *lease, int priority)
{
    char name[32];
    const struct visit visit = {name, rename_cell, lease, priority};

    (void)snprintf(name, sizeof(name), "%" PRIu64, lease->id);
    visit_cells(registry, &visit);
}

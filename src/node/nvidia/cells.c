/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/cells.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/util.h"
#include "node/cut.h"
#include "node/nvidia/guest.h"
#include "region/card.h"

#define CELLS_INSIDE GUEST_FOLDER "/cells"
#define CARDS_INSIDE GUEST_FOLDER "/cards"

/* No reader takes that for a cell: the card is never idle. */
#define ALWAYS_WANTED "made before there were cells\n"

static const char *entry_of(const char *folder)
{
    const char *slash = strrchr(folder, '/');

    return slash ? slash + 1 : folder;
}

/* The card's folder, made. */
static int make_card(const struct node_host *host, const char *uuid, char ret_path[PATH_MAX],
                     struct error *err)
{
    int r;

    if (strchr(uuid, '/') || uuid[0] == '.')
        return error_set(err, -EINVAL, "\"%.100s\" is no name of a card", uuid);
    r = file_path(ret_path, err, "%s/cards", host->hook_path);
    if (r == 0)
        r = host_make_folder(ret_path, 0755, err);
    if (r == 0)
        r = file_path(ret_path, err, "%s/cards/%s", host->hook_path, uuid);
    return r < 0 ? r : host_make_folder(ret_path, 0755, err);
}

struct adopting {
    const struct node_host *host;
    struct error *err;
    int r; /* the first failure */
};

static int adopt_card(const struct node_host *host, const char *uuid, const char *entry,
                      struct error *err)
{
    char card[PATH_MAX], path[PATH_MAX];
    int r = make_card(host, uuid, card, err);

    if (r == 0)
        r = file_path(path, err, "%s/%s", card, entry);
    if (r < 0 || access(path, F_OK) == 0)
        return r;
    return host_write_file(path, ALWAYS_WANTED, strlen(ALWAYS_WANTED), 0444, err);
}

static void adopt(void *data, const char *entry)
{
    struct adopting *adopting = data;
    char path[PATH_MAX], text[LIMITS_FILE_MAX];
    struct limits limits = LIMITS_INIT;

    if (adopting->r < 0 || entry[0] == '.' ||
        file_path(path, NULL, "%s/containers/%s/limits", adopting->host->hook_path, entry) < 0 ||
        file_read(path, text, sizeof(text)) < 0 || limits_parse(&limits, text, NULL) < 0 ||
        limits.cells[0])
        return;
    for (unsigned i = 0; i < limits.device_count && adopting->r == 0; i++)
        adopting->r = adopt_card(adopting->host, limits.devices[i].uuid, entry, adopting->err);
}

static void sweep_card(void *data, const char *uuid)
{
    const struct node_host *host = data;
    char path[PATH_MAX];

    if (uuid[0] != '.' && file_path(path, NULL, "%s/cards/%s", host->hook_path, uuid) == 0)
        host_sweep(path, "", HOST_HALF_SUFFIX);
}

int cells_adopt(const struct node_host *host, struct error *err)
{
    struct adopting adopting = {host, err, 0};
    char path[PATH_MAX];
    int r = file_path(path, err, "%s/cards", host->hook_path);

    if (r == 0)
        r = host_make_folder(path, 0755, err);
    if (r == 0)
        r = host_list(path, sweep_card, (void *)host, err);
    if (r == 0)
        r = file_path(path, err, "%s/containers", host->hook_path);
    if (r == 0)
        r = host_list(path, adopt, &adopting, err);
    return r < 0 ? r : adopting.r;
}

/* The cell of a container on one of its cards, below the hook path. */
static int cell_path(const struct node_host *host, const char *folder, const struct limits *limits,
                     unsigned device, char ret_path[PATH_MAX], struct error *err)
{
    char name[NAME_MAX];

    if (!card_cell_name(name, sizeof(name), entry_of(folder), limits->priority,
                        limits->devices[device].cores))
        return error_set(err, -ENAMETOOLONG, "%s: the name is too long", entry_of(folder));
    return file_path(ret_path, err, "%s/cards/%s/%s", host->hook_path, limits->devices[device].uuid,
                     name);
}

int cells_prepare(const struct node_host *host, const char *folder, bool lends,
                  struct limits *limits, struct error *err)
{
    char card[PATH_MAX], path[PATH_MAX];
    int r = 0;

    for (unsigned i = 0; i < limits->device_count && r == 0; i++) {
        r = make_card(host, limits->devices[i].uuid, card, err);
        if (r == 0)
            r = cell_path(host, folder, limits, i, path, err);
        if (r < 0)
            return r;
        host_remove_from_card(card, entry_of(folder));
        r = card_make_cell(path);
        if (r < 0)
            return error_set(err, r, "cannot make %s: %s", path, strerror(-r));
    }
    (void)snprintf(limits->cells, sizeof(limits->cells), CELLS_INSIDE);
    (void)snprintf(limits->cards, sizeof(limits->cards), "%s", lends ? CARDS_INSIDE : "");
    (void)snprintf(limits->ranks, sizeof(limits->ranks), CARDS_INSIDE);
    return r;
}

void cells_add_mounts(const struct node_host *host, const char *folder, const struct limits *limits,
                      struct spec_edits *edits)
{
    char path[PATH_MAX], inside[sizeof(CELLS_INSIDE) + LIMITS_UUID_SIZE];

    for (unsigned i = 0; i < limits->device_count; i++) {
        const char *uuid = limits->devices[i].uuid;

        if (cell_path(host, folder, limits, i, path, NULL) < 0)
            continue; /* as when it was made */
        (void)snprintf(inside, sizeof(inside), CELLS_INSIDE "/%s", uuid);
        spec_add_mount(edits, path, inside, true);
        if (file_path(path, NULL, "%s/cards/%s", host->hook_path, uuid) < 0)
            continue;
        (void)snprintf(inside, sizeof(inside), CARDS_INSIDE "/%s", uuid);
        spec_add_mount(edits, path, inside, false);
    }
}

struct trimming {
    const struct node_host *host;
    void (*fn)(void *data, const char *entry, uint64_t bytes);
    void *data;
    char card[PATH_MAX];
};

static void trim_cell(void *data, const char *name)
{
    static const struct cut_bounds bounds = {CARD_CELL_SIZE, 16 * CARD_CELL_SIZE};
    struct trimming *trimming = data;
    char path[PATH_MAX], entry[NAME_MAX + 1];
    uint64_t bytes = 0;

    copy_text(entry, sizeof(entry), name);
    entry[strcspn(entry, ".")] = '\0'; /* what follows is its rank */
    if (file_path(path, NULL, "%s/%s", trimming->card, name) == 0)
        bytes = cut_file(path, &bounds);
    if (bytes)
        trimming->fn(trimming->data, entry, bytes);
}

static void trim_card(void *data, const char *uuid)
{
    struct trimming *trimming = data;

    if (uuid[0] != '.' &&
        file_path(trimming->card, NULL, "%s/cards/%s", trimming->host->hook_path, uuid) == 0)
        (void)host_list(trimming->card, trim_cell, trimming, NULL);
}

void cells_trim(const struct node_host *host,
                void (*fn)(void *data, const char *entry, uint64_t bytes), void *data)
{
    struct trimming trimming = {.host = host, .fn = fn, .data = data};
    char path[PATH_MAX];

    if (file_path(path, NULL, "%s/cards", host->hook_path) == 0)
        (void)host_list(path, trim_card, &trimming, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl resize: other limits for a program that runs. */

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/options.h"
#include "base/parse.h"
#include "base/util.h"
#include "ctl/amounts.h"
#include "ctl/cells.h"
#include "ctl/ctl.h"
#include "ctl/local.h"
#include "ctl/registry.h"
#include "model/request.h"
#include "region/limits.h"
#include "region/view.h"

#define ACKNOWLEDGED_WITHIN_NS NS_PER_S
#define LOOK_NS (5 * NS_PER_MS)

struct resize {
    struct request request; /* its memory; nothing in it: as it was */
    bool changes_cores;     /* otherwise they stay as they were */
    unsigned cores;         /* 0: no share, no limit */
    bool suspend, resume;
    bool is_suspended; /* by now */
    const char *word;  /* the ID as it was given; NULL: it was not */
    const char *more;  /* a second one, which is refused */
    uint64_t id;

    struct local local;
    struct registry registry;
    struct lease lease;
    char limits_path[PATH_MAX];
    struct limits limits; /* in force */
};

static void take_id(void *options, char **words, size_t count)
{
    struct resize *resize = options;

    resize->word = count ? words[0] : NULL;
    resize->more = count > 1 ? words[1] : NULL;
    if (count && parse_u64(words[0], &resize->id) < 0)
        resize->id = 0;
}

/* A percentage; or "none", as a program has that was started without a share. */
static int read_cores(char *text, void *member, struct error *err)
{
    struct resize *resize = member;

    resize->changes_cores = true;
    resize->cores = 0;
    if (strcmp(text, "none") == 0)
        return 0;
    if (option_gpucores(text, &resize->cores, NULL) < 0)
        return error_set(err, -EINVAL,
                         "\"%s\" is neither a whole percentage from 1 to 100 nor none", text);
    return 0;
}

static int check_options(void *options, struct error *err)
{
    const struct resize *resize = options;

    if (!resize->word)
        return error_set(err, -EINVAL, "say which lease; \"hamictl top\" lists them by ID");
    if (!resize->id)
        return error_set(err, -EINVAL, "\"%s\" is no lease's ID; \"hamictl top\" lists them",
                         resize->word);
    if (resize->more)
        return error_set(err, -EINVAL, "\"%s\" is too much; one ID is enough", resize->more);
    if (resize->suspend && resize->resume)
        return error_set(err, -EINVAL, "--suspend does not go with --resume");
    if (!resize->request.memory_bytes && !resize->request.memory_percent &&
        !resize->changes_cores && !resize->suspend && !resize->resume)
        return error_set(err, -EINVAL,
                         "say what is to change: --gpumem, --gpucores, --suspend or --resume");
    return 0;
}

#define AT(member) offsetof(struct resize, member)

static const struct option_row rows[] = {
    {"gpumem", 'm', 0, "AMOUNT", option_gpumem, AT(request),
     "Device memory on each card, as hamictl run has it"},
    {"gpucores", 'c', 0, "PERCENT|none", read_cores, 0,
     "Share of each card's compute time, 1 to 100; 100: no limit, on a card that nobody else uses; "
     "none: no share and no limit, beside others"},
    {"suspend", 0, 0, NULL, option_bool, AT(suspend),
     "Let the program launch nothing from now on; what runs ends, and its memory stays"},
    {"resume", 0, 0, NULL, option_bool, AT(resume), "Let it launch again"},
};

static const struct option_table table = {
    .rows = rows,
    .count = ARRAY_SIZE(rows),
    .arguments_doc = "ID",
    .doc = "Change what a program of hamictl run may use of its cards while it runs. hamictl top "
           "lists the programs by ID.\v"
           "More is granted only where the card has room; one of --oversubscribe may exceed a card "
           "that "
           "no other program of hamictl run holds. Where the program holds more than its new "
           "limit it keeps that, gets nothing more until it is below, and what it holds is not "
           "granted to others.",
    .take_arguments = take_id,
    .check = check_options,
};

static struct device *find_device(struct local *local, const char *uuid)
{
    for (size_t i = 0; i < local->device_count; i++) {
        if (strcmp(local->devices[i].uuid, uuid) == 0)
            return &local->devices[i];
    }
    return NULL;
}

static uint64_t wanted_memory(const struct request *request, const struct device *device,
                              uint64_t had)
{
    if (request->memory_bytes)
        return request->memory_bytes;
    if (request->memory_percent)
        return MAX(device->memory_bytes / MIB * request->memory_percent / 100, UINT64_C(1)) * MIB;
    return had;
}

/* As hamictl run has it: what may live on the host exceeds a card that nobody else uses. */
static bool may_exceed(const struct resize *resize, const struct device *device)
{
    return resize->limits.oversubscribed && !device->used.tasks;
}

static int refuse_memory(const struct device *device, uint64_t asked, uint64_t free_bytes,
                         struct error *err)
{
    char wanted[CTL_SIZE_TEXT], left[CTL_SIZE_TEXT];

    return error_set(err, -EBUSY, "no room: %s asked for on %s, %s %s",
                     ctl_format_size(asked, wanted), device->uuid,
                     device->used.tasks ? "of which others leave" : "which has",
                     ctl_format_size(free_bytes, left));
}

/* Less is always there. The device carries what others were granted. */
static int change_device(const struct resize *resize, const struct device *device,
                         struct lease_device *ret_granted, struct error *err)
{
    const struct device_usage *used = &device->used;
    uint64_t memory = wanted_memory(&resize->request, device, ret_granted->memory_bytes);
    unsigned cores = resize->changes_cores ? resize->cores : ret_granted->cores;
    uint64_t free_bytes =
        device->memory_bytes > used->memory_bytes ? device->memory_bytes - used->memory_bytes : 0;
    unsigned free_cores = used->cores < DEVICE_CORES ? DEVICE_CORES - used->cores : 0;

    if (memory > ret_granted->memory_bytes && memory > free_bytes && !may_exceed(resize, device))
        return refuse_memory(device, memory, free_bytes, err);
    if (cores > ret_granted->cores && cores > free_cores)
        return error_set(
            err, -EBUSY,
            "no room: %u %% of the compute time asked for on %s, of which others leave "
            "%u %%",
            cores, device->uuid, free_cores);
    if (cores == DEVICE_CORES && ret_granted->cores != DEVICE_CORES && used->tasks)
        return error_set(err, -EBUSY,
                         "no room: 100 %% needs a card that nobody else uses, and %s "
                         "has others",
                         device->uuid);
    ret_granted->memory_bytes = memory;
    ret_granted->cores = cores;
    return 0;
}

static int change_lease(struct resize *resize, struct error *err)
{
    struct lease *lease = &resize->lease;
    int r = 0;

    for (size_t i = 0; i < lease->device_count && r == 0; i++) {
        struct device *device = find_device(&resize->local, lease->devices[i].uuid);

        r = device ? change_device(resize, device, &lease->devices[i], err)
                   : error_set(err, -ENODEV, "this machine has no %s any more",
                               lease->devices[i].uuid);
    }
    return r;
}

static int find_lease(struct resize *resize, const struct lease_list *list, struct error *err)
{
    bool found = false;

    for (size_t i = 0; i < list->count; i++) {
        const struct lease_list one = {&list->leases[i], 1};

        if (list->leases[i].id == resize->id) {
            resize->lease = list->leases[i];
            found = true;
        } else {
            registry_charge(&one, resize->local.devices, resize->local.device_count);
        }
    }
    return found ? 0
                 : error_set(err, -ESRCH, "no program holds lease %" PRIu64 "; see hamictl top",
                             resize->id);
}

/* The limits that are in force, into the resize. */
static int read_limits(struct resize *resize, struct error *err)
{
    char text[LIMITS_FILE_MAX];
    ssize_t len;
    int r;

    r = registry_limits_path(&resize->registry, resize->lease.id, resize->limits_path);
    if (r < 0)
        return error_set(err, r, "%s: the path is too long", resize->registry.path);
    len = file_read(resize->limits_path, text, sizeof(text));
    if (len == -ENOENT)
        return error_set(err, -EAGAIN,
                         "lease %" PRIu64 ": its program is about to start; try again",
                         resize->lease.id);
    if (len < 0)
        return error_set(err, (int)len, "cannot read %s: %s", resize->limits_path,
                         strerror((int)-len));
    r = limits_parse(&resize->limits, text, err);
    return r < 0 ? error_wrap(err, r, "%s", resize->limits_path) : 0;
}

static int rewrite_limits(struct resize *resize, struct error *err)
{
    const struct lease *lease = &resize->lease;
    struct limits *limits = &resize->limits;
    char text[LIMITS_FILE_MAX];
    int r;

    for (unsigned i = 0; i < limits->device_count && i < lease->device_count; i++) {
        limits->devices[i].memory_bytes = lease->devices[i].memory_bytes;
        limits->devices[i].cores = lease->devices[i].cores;
    }
    if (resize->suspend || resize->resume)
        limits->suspended = resize->suspend;
    resize->is_suspended = limits->suspended;
    r = limits_format(limits, text, sizeof(text));
    if (r > 0)
        r = file_replace(resize->limits_path, text, (size_t)r, 0444);
    if (r == 0)
        cells_resize(resize->registry.path, lease, limits->priority);
    return r < 0 ? error_set(err, r, "cannot write %s: %s", resize->limits_path, strerror(-r)) : 0;
}

static int resize_locked(struct resize *resize, struct error *err)
{
    struct lease_list list = {0};
    int r = registry_list(&resize->registry, &list, err);

    if (r == 0)
        r = find_lease(resize, &list, err);
    if (r == 0)
        r = read_limits(resize, err);
    if (r == 0)
        r = change_lease(resize, err);
    /* Whoever is killed in between has granted less than it says, or as much. */
    if (r == 0)
        r = rewrite_limits(resize, err);
    if (r == 0)
        r = registry_resize(&resize->registry, &resize->lease, err);
    lease_list_deinit(&list);
    return r;
}

/* Its processes have written the new limits into their region. */
static bool is_in_force(const struct lease *lease, const struct region_view *view)
{
    for (size_t i = 0; i < lease->device_count; i++) {
        const struct lease_device *device = &lease->devices[i];
        bool found = false;

        for (unsigned k = 0; k < view->device_count && !found; k++)
            found = strcmp(view->devices[k].uuid, device->uuid) == 0 &&
                    view->devices[k].limit_bytes == device->memory_bytes &&
                    view->devices[k].cores % DEVICE_CORES == device->cores % DEVICE_CORES;
        if (!found)
            return false;
    }
    return true;
}

static bool wait_until_in_force(const struct resize *resize, struct region_view *view)
{
    const struct timespec pause = clock_timespec(LOOK_NS);
    const int64_t until_ns = clock_now_ns() + ACKNOWLEDGED_WITHIN_NS;
    char path[PATH_MAX];

    if (registry_region_path(&resize->registry, resize->lease.id, path) < 0)
        return false;
    do {
        if (region_view_read(path, view, NULL) == 0 && is_in_force(&resize->lease, view))
            return true;
        (void)nanosleep(&pause, NULL);
    } while (clock_now_ns() < until_ns);
    return false;
}

static void tell(const struct resize *resize, const struct region_view *view, bool in_force)
{
    const struct lease *lease = &resize->lease;

    for (size_t i = 0; i < lease->device_count; i++) {
        const struct lease_device *device = &lease->devices[i];
        char limit[CTL_SIZE_TEXT], held[CTL_SIZE_TEXT], cores[CTL_SIZE_TEXT];
        uint64_t used = 0;

        for (unsigned k = 0; k < view->device_count; k++) {
            if (strcmp(view->devices[k].uuid, device->uuid) == 0)
                used = view->devices[k].used.total;
        }
        (void)printf("lease %" PRIu64 ": %s, %s, %s%s", lease->id, device->uuid,
                     ctl_format_size(device->memory_bytes, limit),
                     ctl_format_cores(device->cores, cores),
                     resize->is_suspended ? ", suspended" : "");
        if (used > device->memory_bytes)
            (void)printf("; it holds %s, and gets no more until it is below its limit",
                         ctl_format_size(used, held));
        (void)printf("%s\n", in_force ? "" : "; in force from the program's next call on");
    }
}

static int resize_program(struct resize *resize, struct error *err)
{
    struct region_view *view;
    bool in_force;
    int r = local_open(&resize->local, err);

    if (r == 0)
        r = registry_open(&resize->registry, resize->local.state, err);
    if (r == 0)
        r = registry_lock(&resize->registry, err);
    if (r < 0)
        return r;
    r = resize_locked(resize, err);
    registry_unlock(&resize->registry);
    view = r == 0 ? calloc(1, sizeof(*view)) : NULL;
    if (!view)
        return r < 0 ? r : error_set(err, -ENOMEM, "out of memory");
    in_force = wait_until_in_force(resize, view);
    tell(resize, view, in_force);
    free(view);
    return 0;
}

int resize_main(int argc, char **argv)
{
    static struct resize resize = {.registry = REGISTRY_INIT, .limits = LIMITS_INIT};
    struct error err = ERROR_INIT;
    int r;

    options_read(&table, argc, argv, &resize);
    r = resize_program(&resize, &err);
    registry_close(&resize.registry);
    local_close(&resize.local);
    if (r == 0)
        return 0;
    (void)fprintf(stderr, "hamictl resize: %s\n", err.text[0] ? err.text : strerror(-r));
    return CTL_EXIT_FAILURE;
}

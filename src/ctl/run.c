/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl run: a program gets a part of a GPU, for as long as it lives. */

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/options.h"
#include "base/parse.h"
#include "base/util.h"
#include "ctl/amounts.h"
#include "ctl/ctl.h"
#include "ctl/guest.h"
#include "ctl/launch.h"
#include "ctl/room.h"
#include "region/card.h"

#define PRIORITY_MOST 1000

struct run {
    struct request request;
    struct place_policy policy;
    bool wait;
    int64_t timeout_ns; /* negative: none */
    struct guest_wishes wishes;
    bool verbose;
    const char *uuids[LOCAL_MAX_DEVICES];
    char *const *command;

    struct local local;
    struct registry registry;
    struct lease lease;
};

static int read_gpus(char *text, void *member, struct error *err)
{
    uint64_t count;

    if (parse_u64(text, &count) < 0 || count < 1 || count > LEASE_MAX_DEVICES)
        return error_set(err, -EINVAL, "\"%s\" is not a number from 1 to %d", text,
                         LEASE_MAX_DEVICES);
    *(unsigned *)member = (unsigned)count;
    return 0;
}

static int read_priority(char *text, void *member, struct error *err)
{
    uint64_t priority;

    if (parse_u64(text, &priority) < 0 || priority > PRIORITY_MOST)
        return error_set(err, -EINVAL, "\"%s\" is not a number from 0 to %d", text, PRIORITY_MOST);
    *(int *)member = (int)priority;
    return 0;
}

static int read_uuids(char *text, void *member, struct error *err)
{
    struct run *run = member;
    size_t *count = &run->request.use_uuids.count;
    char *rest, *uuid;

    for (uuid = strtok_r(text, ", ", &rest); uuid; uuid = strtok_r(NULL, ", ", &rest)) {
        if (*count == ARRAY_SIZE(run->uuids))
            return error_set(err, -E2BIG, "more than %d cards", LOCAL_MAX_DEVICES);
        run->uuids[(*count)++] = uuid;
    }
    if (!*count)
        return error_set(err, -EINVAL, "no UUID given; \"hamictl top\" lists them");
    return 0;
}

static int read_policy(char *text, void *member, struct error *err)
{
    enum place_order *order = member;

    if (strcmp(text, "spread") != 0 && strcmp(text, "binpack") != 0)
        return error_set(err, -EINVAL, "\"%s\" is neither spread nor binpack", text);
    *order = strcmp(text, "spread") == 0 ? PLACE_SPREAD : PLACE_BINPACK;
    return 0;
}

static int read_wait(char *text, void *member, struct error *err)
{
    struct run *run = member;

    run->wait = true;
    if (text && ctl_parse_duration(text, &run->timeout_ns) < 0)
        return error_set(err, -EINVAL, "\"%s\" is not a duration; say 90, 500ms, 10m or 2h", text);
    return 0;
}

static int read_managed(char *text, void *member, struct error *err)
{
    if (limits_read_managed(text, member) < 0)
        return error_set(err, -EINVAL, "\"%s\" is none of resident, full and free", text);
    return 0;
}

static void take_command(void *options, char **words, size_t count)
{
    struct run *run = options;

    (void)count;
    run->command = words;
}

static int check_command(void *options, struct error *err)
{
    const struct run *run = options;
    int64_t unread;

    if (!run->command)
        return error_set(err, -EINVAL, "no program given; say hamictl run --gpumem 4Gi PROGRAM");
    if (run->wait && run->timeout_ns < 0 && ctl_parse_duration(run->command[0], &unread) == 0)
        return error_set(err, -EINVAL, "--wait: \"%s\" would be the program; say --wait=%s",
                         run->command[0], run->command[0]);
    if (run->wishes.borrow && !run->request.cores)
        return error_set(err, -EINVAL,
                         "--borrow goes with --gpucores; without a share nothing is held back");
    return 0;
}

#define AT(member) offsetof(struct run, member)

static const struct option_row rows[] = {
    {"gpumem", 'm', 0, "AMOUNT", option_gpumem, AT(request),
     "Device memory on each card: an amount such as 4Gi, 512M or 1.5G (units count by 1024; "
     "rounded up to whole MiB), or a percentage such as 50%. Default: all of the card"},
    {"gpucores", 'c', 0, "PERCENT", option_gpucores, AT(request.cores),
     "Share of each card's compute time, 1 to 100. 100 needs a card that nobody uses. Default: no "
     "share, no limit"},
    {"borrow", 'b', 0, NULL, option_bool, AT(wishes.borrow),
     "Use more than the share of compute time while no other program of hamictl run uses the card"},
    {"priority", 0, 0, "NUMBER", read_priority, AT(wishes.priority),
     "0: programs of a larger number on the same card launch nothing while this one has work. "
     "Default: 1"},
    {"gpu-uuid", 'u', 0, "UUID[,UUID...]", read_uuids, 0, "Use only these cards"},
    {"gpus", 'n', 0, "COUNT", read_gpus, AT(request.count), "Number of cards. Default: 1"},
    {"policy", 'p', 0, "POLICY", read_policy, AT(policy.order),
     "Among the cards with room prefer the least used (spread, the default) or the most used "
     "(binpack)"},
    {"wait", 'w', OPTION_MAY_STAND_ALONE, "DURATION", read_wait, 0,
     "Wait for room, in order of arrival; at most so long, when given: 90, 500ms, 10m, 2h"},
    {"managed", 0, 0, "POLICY", read_managed, AT(wishes.managed),
     "What managed memory counts: what may be on the card, while the rest lives on the host "
     "(resident, the default), all of it (full), or nothing (free)"},
    {"oversubscribe", 0, 0, NULL, option_bool, AT(wishes.oversubscribe),
     "Memory that the card has no room for lives on the host, which is slower. --gpumem may be an "
     "amount beyond the card's, which the program then has alone"},
    {"allow-imports", 0, 0, NULL, option_bool, AT(wishes.allow_imports),
     "Let the program import memory that is not known to be its own: of other programs, of Vulkan"},
    {"allow-unaccounted", 0, 0, NULL, option_bool, AT(wishes.allow_unaccounted),
     "Let allocation calls through that are not accounted for yet, instead of refusing them"},
    {"verbose", 'v', 0, NULL, option_bool, AT(verbose), "Say on standard error what was granted"},
};

static const struct option_table table = {
    .rows = rows,
    .count = ARRAY_SIZE(rows),
    .arguments_doc = "PROGRAM [ARGUMENT...]",
    .doc =
        "Run a program with a part of a GPU.\v"
        "The program sees only the cards it was granted and gets no more of them than that. It "
        "holds its room for as long as any of its processes lives. hamictl passes signals on and "
        "exits with the program's code: 128+N when signal N ended it, 127 when it was not found, "
        "126 when it could not be executed, 125 when hamictl itself failed.",
    .take_arguments = take_command,
    .check = check_command,
    .in_order = true,
};

static int fail(const char *text)
{
    (void)fprintf(stderr, "hamictl run: %s\n", text);
    return CTL_EXIT_RUN_FAILURE;
}

static bool has_device(const struct local *local, const char *uuid)
{
    for (size_t i = 0; i < local->device_count; i++) {
        if (strcmp(local->devices[i].uuid, uuid) == 0)
            return true;
    }
    return false;
}

/* The number of the lease in whose program we run; 0: in none. The library that is loaded there for
 * the lease shows its part of the cards alone, all of which is granted. That of a lease which is
 * over is gone, and was not loaded. */
static uint64_t find_outer_lease(const char *state)
{
    const char *loaded = getenv("LD_PRELOAD"), *found;
    char runs[PATH_MAX + 8], library[sizeof(runs) + 48];
    uint64_t id;

    (void)snprintf(runs, sizeof(runs), "%s/runs/", state);
    found = loaded ? strstr(loaded, runs) : NULL;
    if (!found)
        return 0;
    id = strtoull(found + strlen(runs), NULL, 10);
    (void)snprintf(library, sizeof(library), "%s%" PRIu64 "/vgpu/libvgpu.so", runs, id);
    return access(library, F_OK) == 0 ? id : 0;
}

/* Everything that can be said before anything is granted. */
static int check(const struct run *run, struct error *err)
{
    const char *vgpu = run->local.paths.vgpu;
    const uint64_t outer = find_outer_lease(run->local.state);

    if (outer)
        return error_set(err, -EBUSY,
                         "this is within the program of lease %" PRIu64
                         ", and what that one has of the cards is all that is seen here: there "
                         "will be no room in it. Start the program outside of it",
                         outer);
    for (size_t i = 0; i < run->request.use_uuids.count; i++) {
        if (!has_device(&run->local, run->uuids[i]))
            return error_set(err, -ENODEV,
                             "--gpu-uuid: no card of this machine has the UUID \"%s\"; "
                             "\"hamictl top\" lists them",
                             run->uuids[i]);
    }
    if (access(vgpu, R_OK) < 0)
        return error_set(err, -errno,
                         "cannot read %s: %s; HAMI_LIBDIR names the folder of an installation",
                         vgpu, strerror(errno));
    if (strpbrk(run->local.state, " \t\n:,"))
        return error_set(err, -EINVAL,
                         "the state directory's path \"%s\" has a blank, a comma or a colon, which "
                         "LD_PRELOAD cannot carry; set HAMI_RUN_DIR to another",
                         run->local.state);
    return 0;
}

static void tell_waiting(const struct room *room)
{
    (void)fprintf(stderr, "hamictl run: waiting for room: %s\n", room->why);
}

/* Fills run->lease. Returns the descriptor that keeps it, or a negative errno. */
static int get_room(struct run *run, struct error *err)
{
    struct room room = {
        .registry = &run->registry,
        .local = &run->local,
        .request = &run->request,
        .policy = run->policy,
        .oversubscribes = run->wishes.oversubscribe,
    };
    int r;

    run->lease.keeper = getpid();
    run->lease.started = (int64_t)time(NULL);
    lease_set_command(&run->lease, run->command);

    r = run->wait ? room_wait(&room, &run->lease, run->timeout_ns, tell_waiting, err)
                  : room_take(&room, &run->lease, err);
    switch (r) {
    case ROOM_GRANTED:
        return room.fd;
    case ROOM_NONE:
        return error_set(err, -EBUSY,
                         "no room: %s. Wait for it with --wait, ask for less, or see who holds it: "
                         "hamictl top",
                         room.why);
    case ROOM_NEVER:
        return error_set(err, -ENOSPC, "this machine can never hold that: %s", room.why);
    case ROOM_TOO_MUCH:
        return error_set(err, -ENOSPC,
                         "this machine can never hold that: %s. With --oversubscribe what the card "
                         "has no room for lives on the host",
                         room.why);
    case ROOM_AILING:
        return error_set(err, -ENOSPC,
                         "this machine can't hold that while a card of it is lost or in MIG mode: "
                         "%s",
                         room.why);
    case ROOM_TIMED_OUT:
        return error_set(err, -ETIMEDOUT, "still no room: %s. See who holds it: hamictl top",
                         room.why);
    default:
        return r;
    }
}

static void tell_granted(const struct lease *lease)
{
    char size[CTL_SIZE_TEXT], cores[CTL_SIZE_TEXT];

    for (size_t i = 0; i < lease->device_count; i++)
        (void)fprintf(stderr, "hamictl run: lease %llu: %s, %s, %s\n",
                      (unsigned long long)lease->id, lease->devices[i].uuid,
                      ctl_format_size(lease->devices[i].memory_bytes, size),
                      ctl_format_cores(lease->devices[i].cores, cores));
}

/* Returns the program's exit code, or a negative errno. */
static int run_granted(struct run *run, int lease_fd, struct error *err)
{
    struct launch launch;
    int r;

    r = guest_prepare(&run->registry, &run->local, &run->lease, &run->wishes, err);
    if (r < 0)
        return r;

    if (run->verbose)
        tell_granted(&run->lease);
    r = launch_start(&launch, run->command, err);
    if (r < 0)
        return r;
    registry_set_program(lease_fd, launch.pid);
    return launch_wait(&launch);
}

static int run_program(struct run *run, struct error *err)
{
    int fd, r;

    r = local_open(&run->local, err);
    if (r < 0)
        return r;
    r = check(run, err);
    if (r == 0)
        r = registry_open(&run->registry, run->local.state, err);
    if (r < 0)
        return r;

    fd = get_room(run, err);
    /* Not needed any more, and a program that runs for days should not keep the driver open. */
    local_close(&run->local);
    if (fd < 0)
        return fd;

    r = run_granted(run, fd, err);
    registry_release(&run->registry, run->lease.id, fd);
    return r;
}

int run_main(int argc, char **argv)
{
    static struct run run = {
        .wishes.priority = CARD_PRIORITY,
        .request = {.count = 1},
        .timeout_ns = -1,
        .registry = REGISTRY_INIT,
    };
    struct error err = ERROR_INIT;
    int r;

    argp_err_exit_status = CTL_EXIT_RUN_FAILURE;
    run.request.use_uuids.items = run.uuids;
    options_read(&table, argc, argv, &run);
    if (!run.request.memory_bytes && !run.request.memory_percent)
        run.request.memory_percent = 100;

    r = run_program(&run, &err);
    registry_close(&run.registry);
    return r < 0 ? fail(err.text) : r;
}

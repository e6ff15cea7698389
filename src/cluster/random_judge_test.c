/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/random_judge.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text does not say fractions of a second. */
#define LOCK_NS (299 * SECOND_NS)
#define SILENT_NS (60 * SECOND_NS)
#define RESERVED_NS (60 * SECOND_NS)

static unsigned judged_node;

/* Who has what of a node: for the message of what is wrong. */
static void list_grants(unsigned number)
{
    for (unsigned i = 0; i < PODS; i++) {
        const struct api_pod *pod = &world.api.pods[i];
        const bool bound = pod->node[0];

        if (!pod->exists || (!bound && !pod->binding) ||
            (bound ? pod->node : pod->bind_node)[5] != (char)('0' + number))
            continue;
        for (unsigned k = 0; k < MAKERS; k++)
            (void)fprintf(stderr, "  %s %s %s %s\n", pod->uid, bound ? "has" : "gets",
                          bound ? pod->has.roles : pod->binds.roles,
                          bound ? pod->has.devices[k] : pod->binds.devices[k]);
    }
}

static void __attribute__((format(printf, 1, 2), noreturn)) wrong(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)fprintf(stderr, "the judge, at %lld s: ", (long long)(world.now_ns / SECOND_NS));
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    list_grants(judged_node);
    abort();
}

static long most(long a, long b)
{
    return a > b ? a : b;
}

static unsigned node_number(const char *name)
{
    return (unsigned)(name[5] - '0');
}

/* Agents that have a handshake. */

static struct agent {
    bool known, changed, gone;
    enum word word;
    int64_t word_ns, since_ns;
} agents[NODES];

void judge_begin(void)
{
    memset(agents, 0, sizeof(agents));
}

static void see_agent(unsigned number)
{
    const struct api_node *node = &world.shown[number];
    struct agent *agent = &agents[number];

    if (!node->exists) {
        *agent = (struct agent){.known = false};
        return;
    }
    /* Asked, and kubelet has devices of it. */
    if (node->word == WORD_ASKED && world_counts_dcus(number) && !node->away[HYGON])
        agent->gone = false;
    if (agent->known && agent->word == node->word && agent->word_ns == node->word_ns)
        return;
    agent->known = agent->changed = true;
    agent->word = node->word;
    agent->word_ns = node->word_ns;
    if (node->word == WORD_OWN || node->word == WORD_NONE) {
        world.covered.back += agent->gone;
        agent->gone = false;
    } else if (node->word == WORD_DELETED) {
        agent->gone = true;
    }
}

void judge_looks_at_agents(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        struct agent *agent = &agents[i];
        bool silent;

        if (!world_has_agent(i) || !agent->known)
            continue;
        if (agent->changed)
            agent->since_ns = world.now_ns;
        agent->changed = false;
        if (agent->word != WORD_ASKED)
            continue;
        silent = agent->word_ns == INT64_MIN || world.now_ns - agent->word_ns >= SILENT_NS ||
                 world.now_ns - agent->since_ns >= SILENT_NS;
        if (silent && (!world_counts_dcus(i) || world.shown[i].away[HYGON]))
            agent->gone = true;
    }
}

/* What a device has to give, as it was shown last. */
struct room {
    bool there, healthy;
    bool whole, cut, placed; /* may be given out in this way: in instances of a geometry, or of
                                profiles */
    long mib, cores, tasks;
};

static bool is_there(unsigned number, enum maker maker)
{
    const struct api_node *node = &world.shown[number];

    if (!node->exists || node->garbage[maker])
        return false;
    if (maker == NVIDIA)
        return !node->away[NVIDIA] && !(node->scored && node->badly_scored);
    if (maker == HYGON)
        return !agents[number].gone && !(world_counts_dcus(number) && node->away[HYGON]);
    return !node->away[NEURON];
}

/* kubelet tells only how many Neuron devices are well; the first ones are taken for the sick. */
static bool is_healthy(unsigned number, enum maker maker, unsigned device)
{
    const struct api_card *cards = world.shown[number].cards[maker];
    unsigned sick = 0;

    for (unsigned i = 0; i < world_device_count(number, maker); i++)
        sick += cards[i].sick;
    return maker == NEURON ? device >= sick : !cards[device].sick;
}

static struct room room_of(unsigned number, enum maker maker, unsigned device)
{
    const struct api_node *node = &world.shown[number];
    const struct api_card *card = &node->cards[maker][device];
    struct room room = {.there = is_there(number, maker)};
    bool usable;

    if (!room.there)
        return room;
    room.healthy = is_healthy(number, maker, device);
    usable = room.healthy && !card->cordoned;
    room.whole = usable && !card->mig;
    room.cut = usable && card->mig && !(node->foreign && node->profiles);
    room.placed = usable && card->mig && !room.cut;
    room.mib = maker == NVIDIA ? (node->small && device > 1 ? CARD_MIB / 2 : CARD_MIB) : 0;
    room.mib = maker == HYGON ? DCU_MIB : room.mib;
    room.cores = maker == NEURON ? CHIP_CORES : 100;
    room.tasks = maker == NEURON ? CHIP_CORES : DEVICE_TASKS;
    return room;
}

/* The least that the quotas of a namespace say; LONG_MAX: nothing. */
static long bound_of(const char *space, enum maker maker, enum amount amount)
{
    const long unit = maker == HYGON && amount == MEMORY ? DCU_UNIT_MIB : 1;
    long bound = LONG_MAX;

    for (unsigned i = 0; i < QUOTAS; i++) {
        const struct api_quota *quota = &world.shown_quotas[i];

        if (!quota->exists || strcmp(quota->space, space) != 0)
            continue;
        for (unsigned k = 0; k < quota->count; k++) {
            if (quota->hard[k].maker == maker && quota->hard[k].amount == amount &&
                !quota->hard[k].fraction && quota->hard[k].value * unit < bound)
                bound = quota->hard[k].value * unit;
        }
    }
    return bound;
}

/*
 * What a decision may have counted on: the most that was shown between it and the bind. Whatever
 * was decided in between was decided with all of it in view.
 */
static struct claim {
    struct room rooms[MAKERS][DEVICES];
    long bounds[MAKERS][AMOUNT_KINDS];
} claims[PODS];

static void widen_rooms(struct claim *claim, unsigned number)
{
    for (enum maker maker = 0; maker < MAKERS; maker++) {
        for (unsigned i = 0; i < world_device_count(number, maker); i++) {
            const struct room now = room_of(number, maker, i);
            struct room *room = &claim->rooms[maker][i];

            room->whole |= now.whole;
            room->cut |= now.cut;
            room->placed |= now.placed;
            room->mib = most(room->mib, now.mib);
            room->cores = most(room->cores, now.cores);
            room->tasks = most(room->tasks, now.tasks);
        }
    }
}

static void widen_bounds(struct claim *claim, const char *space)
{
    for (enum maker maker = 0; maker < MAKERS; maker++) {
        for (enum amount amount = 0; amount < AMOUNT_KINDS; amount++)
            claim->bounds[maker][amount] =
                most(claim->bounds[maker][amount], bound_of(space, maker, amount));
    }
}

static void begin_claim(unsigned number)
{
    const struct api_pod *pod = &world.api.pods[number];

    claims[number] = (struct claim){.rooms = {{{.there = false}}}};
    widen_rooms(&claims[number], node_number(pod->decided_node));
    widen_bounds(&claims[number], pod->space);
}

void judge_decided(unsigned number)
{
    begin_claim(number);
}

void judge_sees_node(unsigned number)
{
    see_agent(number);
    for (unsigned i = 0; i < PODS; i++) {
        if (world.api.pods[i].decided && node_number(world.api.pods[i].decided_node) == number)
            widen_rooms(&claims[i], number);
    }
}

void judge_sees_quotas(void)
{
    for (unsigned i = 0; i < PODS; i++) {
        if (world.api.pods[i].decided)
            widen_bounds(&claims[i], world.api.pods[i].space);
    }
}

/* Grants, read anew. */

/* "GPU-1-1[0-2],NVIDIA,6000,25:" */
struct piece {
    char uuid[64];
    long mib, cores;
    uint64_t parts; /* instances of a card, cores of a chip; 0: all of it is shared. Of a card that
                       is cut by profiles its slices, from PLACED on */
    uint64_t counted; /* the same as the cluster numbers them */
};

#define CUT UINT64_C(0xffff)
#define PLACED UINT64_C(0x10000)

/* What lies where of a card: what the annotation says of this device. */
static void read_place(const struct written *written, size_t container, unsigned number,
                       struct piece *piece)
{
    char begin[128], profile[32];
    unsigned start, size;
    const char *at;

    (void)snprintf(begin, sizeof(begin),
                   "{\"containerIndex\":%zu,\"deviceIndex\":%u,\"gpuUUID\":\"%s\",", container,
                   number, piece->uuid);
    at = strstr(written->allocations, begin);
    if (!at)
        return;
    if (sscanf(at + strlen(begin),
               "\"profile\":\"%31[^\"]\",\"placement\":{\"start\":%u,\"size\":%u}", profile, &start,
               &size) != 3 ||
        strcmp(profile, size == 2 ? "1g.quarter" : "3g.half") != 0 || (size != 2 && size != 4) ||
        start % size || start + size > 8)
        wrong("no place: %s", at);
    piece->parts = ((UINT64_C(1) << size) - 1) << start << 16;
    piece->counted = UINT64_C(1) << (start * 8 + size - 1);
}

/* False: the container's pieces are over. */
static bool next_piece(const char **at, enum maker maker, struct piece *ret_piece)
{
    static const char *const words[MAKERS] = {"NVIDIA", "DCU", "AWSNeuron"};
    char type[64], *bracket;
    unsigned group, instance;
    int used = 0;

    if (!**at || **at == ';')
        return false;
    if (sscanf(*at, "%63[^,],%63[^,],%ld,%ld:%n", ret_piece->uuid, type, &ret_piece->mib,
               &ret_piece->cores, &used) != 4 ||
        !used || strcmp(type, words[maker]) != 0)
        wrong("can't read \"%s\"", *at);
    *at += used;
    ret_piece->parts = ret_piece->counted = 0;
    bracket = strchr(ret_piece->uuid, '[');
    if (bracket) {
        if (sscanf(bracket, "[%u-%u]", &group, &instance) != 2 || group > 1 ||
            instance >= (group ? 2u : 4u))
            wrong("no instance: %s", ret_piece->uuid);
        ret_piece->parts = ret_piece->counted = UINT64_C(1) << (group * 8 + instance);
        *bracket = '\0';
    }
    if (maker == NEURON) {
        ret_piece->parts = ret_piece->counted = (uint64_t)ret_piece->cores;
        ret_piece->cores = __builtin_popcountll(ret_piece->parts);
    }
    return true;
}

/* What is taken of one device, or of all of a vendor's. */
struct taken {
    long mib, cores, tasks;
    uint64_t parts, counted;
    bool whole, alone; /* in one piece: with the device's whole compute */
};

/* The most that a pod takes at any time: apps and sidecars together, an init container beside the
 * sidecars before it. uuid NULL: of all devices. */
static struct taken recount(const struct written *written, enum maker maker, const char *uuid)
{
    struct taken apps = {0}, top = {0};
    const char *at = written->devices[maker];

    for (size_t container = 0; *at; container++) {
        const bool goes_on =
            container >= strlen(written->roles) || written->roles[container] == 's';
        struct taken here = {0};
        struct piece piece;

        for (unsigned number = 0; next_piece(&at, maker, &piece); number++) {
            if (maker == NVIDIA)
                read_place(written, container, number, &piece);
            if (uuid && strcmp(piece.uuid, uuid) != 0)
                continue;
            if (uuid && piece.parts & (here.parts | apps.parts))
                wrong("%s: a part of it is given out twice in one pod", uuid);
            here.mib += piece.mib;
            here.cores += piece.cores;
            here.tasks++;
            here.parts |= piece.parts;
            here.counted |= piece.counted;
            here.whole |= !piece.parts;
            here.alone |= !piece.parts && piece.cores >= 100;
        }
        if (*at == ';')
            at++;
        top.mib = most(top.mib, apps.mib + here.mib);
        top.cores = most(top.cores, apps.cores + here.cores);
        top.tasks = most(top.tasks, apps.tasks + here.tasks);
        top.parts |= here.parts;
        top.counted |= here.counted;
        top.whole |= here.whole;
        top.alone |= here.alone;
        if (!goes_on)
            continue;
        apps.mib += here.mib;
        apps.cores += here.cores;
        apps.tasks += here.tasks;
        apps.parts |= here.parts;
    }
    return top;
}

/* What a pod has, or is getting, and where; NULL: nothing. */
static const struct written *grant_of(const struct api_pod *pod, const char **ret_node)
{
    if (!pod->exists || pod->garbage)
        return NULL;
    *ret_node = pod->node[0] ? pod->node : pod->bind_node;
    if (pod->node[0])
        return &pod->has;
    return pod->binding ? &pod->binds : NULL;
}

/* All that is taken of a device. `alone`: some pod has all of its compute. */
struct sum {
    long mib, cores, tasks;
    uint64_t parts, counted;
    bool whole, alone;
};

static struct sum sum_of(unsigned number, enum maker maker, unsigned device)
{
    struct sum sum = {0};
    char uuid[64];

    world_device_name(number, maker, device, uuid);
    for (unsigned i = 0; i < PODS; i++) {
        const char *node;
        const struct written *written = grant_of(&world.api.pods[i], &node);
        struct taken taken;

        if (!written || node_number(node) != number || !written->devices[maker][0])
            continue;
        taken = recount(written, maker, uuid);
        if (taken.parts & sum.parts)
            wrong("%s: a part of it is given out twice", uuid);
        sum.mib += taken.mib;
        sum.cores += taken.cores;
        sum.tasks += taken.tasks;
        sum.parts |= taken.parts;
        sum.counted |= taken.counted;
        sum.whole |= taken.whole;
        sum.alone |= taken.alone;
    }
    return sum;
}

static void check_device(unsigned number, enum maker maker, unsigned device,
                         const struct room *room, const struct taken *mine)
{
    const struct sum sum = sum_of(number, maker, device);
    char uuid[64];

    judged_node = number;
    world_device_name(number, maker, device, uuid);
    if (maker == NVIDIA ? (mine->whole && !room->whole) || (mine->parts & CUT && !room->cut) ||
                              (mine->parts >= PLACED && !room->placed)
                        : !room->whole)
        wrong("%s is not to be had%s", uuid, mine->parts ? " in instances" : "");
    if (sum.mib > room->mib || sum.cores > room->cores || sum.tasks > room->tasks)
        wrong("%s: %ld of %ld MiB, %ld of %ld cores, %ld of %ld tasks granted", uuid, sum.mib,
              room->mib, sum.cores, room->cores, sum.tasks, room->tasks);
    if (maker == NVIDIA && sum.parts && sum.whole)
        wrong("%s is given out whole and in instances", uuid);
    if (maker == NVIDIA &&
        !!(sum.parts & 0xff) + !!(sum.parts & 0xff00) + (sum.parts >= PLACED) > 1)
        wrong("%s is cut in two ways", uuid);
    if (maker != NEURON && sum.alone && sum.tasks > 1)
        wrong("%s: all compute is one task's, and it has %ld", uuid, sum.tasks);
}

/* What was asked for. */

static bool is_listed(const struct api_pod *pod, unsigned number, unsigned device)
{
    switch (pod->list) {
    case LIST_USE:
        return device == 1;
    case LIST_AVOID:
        return device != 1;
    case LIST_TYPE:
        return number == 1;
    case LIST_NOT_TYPE:
        return number != 1;
    default:
        return true;
    }
}

static unsigned pieces_wanted(const struct ask *ask, enum maker maker)
{
    if (maker != NEURON || ask->count)
        return (unsigned)ask->count;
    return ask->cores > 1 ? (unsigned)ask->cores / 2 : (unsigned)ask->cores;
}

static bool is_as_asked(const struct ask *ask, enum maker maker, const struct piece *piece)
{
    const long percent = ask->percent ? ask->percent : 100;

    if (maker == NEURON)
        return piece->mib == 0 && piece->cores == (ask->count || ask->cores > 1 ? 2 : 1);
    if (maker == HYGON)
        return piece->mib == (ask->memory ? ask->memory * DCU_UNIT_MIB : DCU_MIB) &&
               piece->cores == (ask->cores < 0 ? 100 : ask->cores);
    if (piece->parts >= PLACED)
        return piece->mib ==
                   (__builtin_popcountll(piece->parts) == 2 ? CARD_MIB / 4 : CARD_MIB / 2) &&
               piece->cores == (__builtin_popcountll(piece->parts) == 2 ? 25 : 50) &&
               piece->mib >= ask->memory;
    if (piece->parts)
        return piece->mib == (piece->parts & 0xff ? CARD_MIB / 4 : CARD_MIB / 2) &&
               piece->cores == (piece->parts & 0xff ? 25 : 50) && piece->mib >= ask->memory;
    if (piece->cores != ask->cores)
        return false;
    if (ask->memory)
        return piece->mib == ask->memory;
    /* Of a card as it was when it was chosen. */
    return piece->mib == CARD_MIB * percent / 100 || piece->mib == CARD_MIB / 2 * percent / 100;
}

static void check_pieces(const struct api_pod *pod, unsigned number, enum maker maker)
{
    const char *at = pod->binds.devices[maker];
    unsigned containers = 0, count, numa, whole;

    for (; *at; at += *at == ';') {
        struct piece piece;

        count = numa = whole = 0;
        while (next_piece(&at, maker, &piece)) {
            char uuid[64] = "";
            unsigned i = 0;

            if (maker == NVIDIA)
                read_place(&pod->binds, containers, count, &piece);
            for (; i < world_device_count(number, maker); i++) {
                if (strcmp(world_device_name(number, maker, i, uuid), piece.uuid) == 0)
                    break;
            }
            if (strcmp(uuid, piece.uuid) != 0)
                wrong("node-%u has no %s", number, piece.uuid);
            if (maker == NVIDIA && !is_listed(pod, number, i))
                wrong("%s is not in the pod's list", piece.uuid);
            if (!is_as_asked(&pod->asks[maker], maker, &piece))
                wrong("%s: not what was asked for: %s", piece.uuid, pod->binds.devices[maker]);
            if (maker != NEURON && !piece.parts && whole >> i & 1)
                wrong("%s is given to one container twice", piece.uuid);
            whole |= 1u << i;
            numa |= 1u << world_numa_node(number, i);
            count++;
        }
        if (maker == NVIDIA && pod->one_numa && numa & (numa - 1))
            wrong("not of one NUMA node: %s", pod->binds.devices[maker]);
        if (count != (containers && pod->first_only ? 0 : pieces_wanted(&pod->asks[maker], maker)))
            wrong("%u devices for a container: %s", count, pod->binds.devices[maker]);
        containers++;
    }
    if (containers && containers != (pod->shape == SHAPE_APPS ? 2 : 1 + strlen(pod->binds.roles)))
        wrong("%u containers: %s", containers, pod->binds.devices[maker]);
    if (!containers && pieces_wanted(&pod->asks[maker], maker))
        wrong("nothing of a vendor that was asked");
}

static long used_of(const char *space, enum maker maker, enum amount amount)
{
    long used = 0;

    for (unsigned i = 0; i < PODS; i++) {
        const char *node;
        const struct written *written = grant_of(&world.api.pods[i], &node);
        struct taken taken;

        if (!written || strcmp(world.api.pods[i].space, space) != 0)
            continue;
        taken = recount(written, maker, NULL);
        used += amount == MEMORY ? taken.mib : taken.cores;
    }
    return used;
}

static void check_space(const struct api_pod *pod, enum maker maker, const struct claim *claim)
{
    const struct taken mine = recount(&pod->binds, maker, NULL);

    for (enum amount amount = 0; amount < AMOUNT_KINDS; amount++) {
        const long bound = claim->bounds[maker][amount];
        long used;

        if (bound == LONG_MAX || !(amount == MEMORY ? mine.mib : mine.cores))
            continue;
        used = used_of(pod->space, maker, amount);
        if (used > bound)
            wrong("namespace %s has %ld of %ld (%u, %u)", pod->space, used, bound, maker, amount);
        world.covered.quotas_full += used == bound;
    }
}

void judge_is_alone(unsigned number)
{
    const struct api_pod *pod = &world.api.pods[number];
    const unsigned node = node_number(pod->bind_node);

    for (enum maker maker = 0; maker < MAKERS && pod->policy == POLICY_MUTEX; maker++) {
        for (unsigned i = 0; i < world_device_count(node, maker); i++) {
            char uuid[64];
            const struct taken mine =
                recount(&pod->binds, maker, world_device_name(node, maker, i, uuid));

            if (mine.tasks && sum_of(node, maker, i).tasks != mine.tasks)
                wrong("%s is not alone on %s", pod->uid, uuid);
        }
    }
}

void judge_granted(unsigned number)
{
    const struct api_pod *pod = &world.api.pods[number];
    const unsigned node = node_number(pod->bind_node);

    judged_node = node;
    if (world.now_ns - pod->decided_ns >= RESERVED_NS) {
        begin_claim(number);
        judge_is_alone(number);
        world.covered.renewed++;
    }
    for (enum maker maker = 0; maker < MAKERS; maker++) {
        check_pieces(pod, node, maker);
        for (unsigned i = 0; i < world_device_count(node, maker); i++) {
            char uuid[64];
            const struct taken mine =
                recount(&pod->binds, maker, world_device_name(node, maker, i, uuid));

            if (mine.tasks)
                check_device(node, maker, i, &claims[number].rooms[maker][i], &mine);
            world.covered.instances += maker == NVIDIA && mine.parts;
            world.covered.groups[2] += maker == NVIDIA && mine.parts >= PLACED;
            world.covered.groups[1] += maker == NVIDIA && mine.parts & 0xff00;
            world.covered.groups[0] += maker == NVIDIA && mine.parts & 0xff;
        }
        check_space(pod, maker, &claims[number]);
    }
}

/* With nothing on its way. */

/* Others' garbage may name this one. */
static bool is_spoilt(unsigned number, enum maker maker, unsigned device)
{
    for (unsigned i = 0; i < PODS; i++) {
        const struct api_pod *pod = &world.api.pods[i];

        if (pod->exists && pod->garbage && node_number(pod->node) == number && number == 0 &&
            maker == NVIDIA && device == 0)
            return true;
    }
    return false;
}

static void check_counted(unsigned number, enum maker maker, unsigned device)
{
    const struct room room = room_of(number, maker, device);
    const struct sum sum = sum_of(number, maker, device);
    struct device_state state;
    char uuid[64];

    judged_node = number;
    world_device_name(number, maker, device, uuid);
    state = world_device_state(number, uuid);
    if (state.there != room.there)
        wrong("%s is %s", uuid, state.there ? "there still" : "not there");
    if (!room.there || is_spoilt(number, maker, device))
        return;
    if (state.healthy != room.healthy)
        wrong("%s is %shealthy", uuid, room.healthy ? "" : "not ");
    if (state.tasks != sum.tasks || state.mib != sum.mib ||
        (maker != NEURON && state.cores != sum.cores) || state.parts != sum.counted)
        wrong("%s: counted are %ld tasks, %ld MiB, %ld cores, parts %llx, not %ld, %ld, %ld, %llx",
              uuid, state.tasks, state.mib, state.cores, (unsigned long long)state.parts, sum.tasks,
              sum.mib, sum.cores, (unsigned long long)sum.counted);
}

static void check_quota(const char *space, enum maker maker, enum amount amount)
{
    const long bound = bound_of(space, maker, amount);
    long known_bound, known_used;
    const bool known = world_quota_state(space, maker, amount, &known_bound, &known_used);

    if (maker == NEURON && amount == MEMORY)
        return;
    if (known != (bound != LONG_MAX))
        wrong("namespace %s is %sbounded (%u, %u)", space, known ? "" : "not ", maker, amount);
    if (known && (known_bound != bound || known_used != used_of(space, maker, amount)))
        wrong("namespace %s has %ld of %ld, not %ld of %ld (%u, %u)", space, known_used,
              known_bound, used_of(space, maker, amount), bound, maker, amount);
}

void judge_counts(void)
{
    for (unsigned n = 0; n < NODES; n++) {
        for (enum maker maker = 0; maker < MAKERS; maker++) {
            for (unsigned i = 0; i < world_device_count(n, maker); i++)
                check_counted(n, maker, i);
        }
    }
    for (unsigned i = 0; i < SPACES; i++) {
        for (enum maker maker = 0; maker < MAKERS; maker++) {
            for (enum amount amount = 0; amount < AMOUNT_KINDS; amount++)
                check_quota(space_names[i], maker, amount);
        }
    }
}

/* A quarter or a half lies anywhere where nothing is. */
static bool has_place(uint64_t parts, long mib)
{
    const unsigned size = mib <= CARD_MIB / 4 ? 2 : 4;
    const uint64_t slices = parts / PLACED;
    bool found = false;

    if (mib > CARD_MIB / 2)
        return false;
    for (unsigned start = 0; start < 8; start += size)
        found |= !(slices >> start & ((1u << size) - 1));
    return found;
}

/* An instance of the way in which the card is cut, or will be. */
static bool has_instance(uint64_t parts, long mib)
{
    const bool small = mib <= CARD_MIB / 4 && !(parts & 0xff00) && (parts & 0xf) != 0xf;
    const bool large = mib <= CARD_MIB / 2 && !(parts & 0xff) && (parts & 0x300) != 0x300;

    return small || large;
}

/* A device that is shared by amounts. */
static bool fits_on(const struct api_pod *pod, enum maker maker, unsigned number, unsigned device,
                    long *ret_mib)
{
    const struct ask *ask = &pod->asks[maker];
    const struct room room = room_of(number, maker, device);
    const struct sum sum = sum_of(number, maker, device);
    const long cores = maker == HYGON && ask->cores < 0 ? 100 : ask->cores;
    long mib = ask->memory * (maker == HYGON ? DCU_UNIT_MIB : 1);

    if (!mib)
        mib = room.mib * (ask->percent ? ask->percent : 100) / 100;
    *ret_mib = mib;
    if ((!room.whole && !room.cut && !room.placed) || is_spoilt(number, maker, device))
        return false;
    if (maker == NVIDIA && (!is_listed(pod, number, device) || (room.whole && sum.parts) ||
                            (!room.whole && sum.whole) || (room.cut && sum.parts >= PLACED) ||
                            (room.placed && sum.parts & CUT)))
        return false;
    if (pod->policy == POLICY_MUTEX && sum.tasks)
        return false;
    if (sum.tasks >= room.tasks || sum.mib + mib > room.mib || sum.cores + cores > room.cores ||
        (cores == 100 && sum.tasks) || (!cores && sum.cores >= room.cores))
        return false;
    if (room.placed)
        return has_place(sum.parts, mib);
    return room.whole || has_instance(sum.parts, mib);
}

static unsigned most_of(const unsigned counts[static DEVICES])
{
    unsigned top = 0;

    for (unsigned i = 0; i < DEVICES; i++)
        top = counts[i] > top ? counts[i] : top;
    return top;
}

static bool have_shares(const struct api_pod *pod, enum maker maker, unsigned number)
{
    const long bound = bound_of(pod->space, maker, MEMORY);
    const bool bounded = bound != LONG_MAX || bound_of(pod->space, maker, CORES) != LONG_MAX;
    unsigned by_numa[DEVICES] = {0}, all = 0;
    long mib = 0, cores = pod->asks[maker].cores < 0 ? 100 : pod->asks[maker].cores;

    for (unsigned i = 0; i < world_device_count(number, maker); i++) {
        /* An instance may be larger than what is asked for, and use up the quota. */
        if (bounded && (room_of(number, maker, i).cut || room_of(number, maker, i).placed))
            return false;
        if (!fits_on(pod, maker, number, i, &mib))
            continue;
        by_numa[maker == NVIDIA ? world_numa_node(number, i) : 0]++;
        all++;
    }
    if (maker == NVIDIA && pod->one_numa)
        all = most_of(by_numa);
    if (all < (unsigned)pod->asks[maker].count)
        return false;
    /* Parts of cards of two sizes: which of them, is not the judge's to say. */
    if (bound != LONG_MAX && world.shown[number].small && !pod->asks[maker].memory)
        return false;
    if (bound != LONG_MAX &&
        used_of(pod->space, maker, MEMORY) + mib * pod->asks[maker].count > bound)
        return false;
    cores *= pod->asks[maker].count;
    return bound_of(pod->space, maker, CORES) == LONG_MAX ||
           used_of(pod->space, maker, CORES) + cores <= bound_of(pod->space, maker, CORES);
}

/* A device with so many free cores; for several devices only the plain case: all are unused. */
static bool have_chips(const struct api_pod *pod, unsigned number)
{
    const struct ask *ask = &pod->asks[NEURON];
    const unsigned wanted = pieces_wanted(ask, NEURON),
                   cores = ask->count || ask->cores > 1 ? 2 : 1;
    const long bound = bound_of(pod->space, NEURON, CORES);
    unsigned fitting = 0, unused = 0;

    for (unsigned i = 0; i < world_device_count(number, NEURON); i++) {
        const struct sum sum = sum_of(number, NEURON, i);

        if (!room_of(number, NEURON, i).whole || (pod->policy == POLICY_MUTEX && sum.tasks))
            continue;
        fitting += sum.cores + cores <= CHIP_CORES;
        unused += !sum.tasks;
    }
    if (bound != LONG_MAX && used_of(pod->space, NEURON, CORES) + (long)(wanted * cores) > bound)
        return false;
    if (wanted == 1)
        return fitting > 0;
    return unused == world_device_count(number, NEURON) && wanted <= unused &&
           (number == 5 || wanted == unused);
}

bool judge_has_room(const struct api_pod *pod, unsigned first)
{
    /* An init container's devices are free when the app's are chosen. */
    if (pod->shape != SHAPE_APP && pod->shape != SHAPE_INIT)
        return false;
    for (unsigned n = first; n < NODES; n++) {
        bool room = true;

        for (enum maker maker = 0; maker < MAKERS; maker++) {
            if (pieces_wanted(&pod->asks[maker], maker))
                room &= maker == NEURON ? have_chips(pod, n) : have_shares(pod, maker, n);
        }
        if (room)
            return true;
    }
    return false;
}

/* Locks. */

static bool is_allocating(const struct api_pod *pod, unsigned node)
{
    return pod->exists && pod->node[0] && node_number(pod->node) == node && pod->turn &&
           !pod->allocated && !pod->failed && world.now_ns - (pod->has.wall_ns - WALL_NS) < LOCK_NS;
}

void judge_needs_turn(unsigned number, bool needs)
{
    const struct api_pod *pod = &world.api.pods[number];
    const unsigned node = node_number(pod->bind_node);
    const bool foreign = pod->binds.devices[NVIDIA][0] && world.shown[node].foreign;
    const bool dcus = pod->binds.devices[HYGON][0];

    const bool chips = pod->binds.devices[NEURON][0];

    judged_node = node;
    if (needs && !foreign && !dcus && !chips)
        wrong("%s waits for a turn that nobody needs", pod->uid);
    if (!needs && ((foreign && is_there(node, NVIDIA)) || (dcus && is_there(node, HYGON)) ||
                   (chips && is_there(node, NEURON))))
        wrong("%s is bound without a turn", pod->uid);
}

void judge_turn(unsigned node, unsigned number)
{
    for (unsigned i = 0; i < PODS; i++) {
        if (i != number && is_allocating(&world.api.pods[i], node))
            wrong("node-%u: %s has the turn, and %s's allocations go on", node,
                  world.api.pods[number].uid, world.api.pods[i].uid);
    }
}

static bool names(const char *lock, const char *space, const char *name)
{
    char end[LOCK_TEXT];
    size_t len = (size_t)snprintf(end, sizeof(end), ",%s,%s", space, name);

    return strlen(lock) >= len && strcmp(lock + strlen(lock) - len, end) == 0;
}

static bool is_old(const struct api_node *node)
{
    return world.now_ns - node->lock_ns >= LOCK_NS || world.now_ns - node->lock_since_ns >= LOCK_NS;
}

void judge_lock_written(unsigned number, const char *space, const char *name)
{
    const struct api_node *node = &world.api.nodes[number];

    if (node->locked && !names(node->lock, space, name) && !is_old(node))
        wrong("node-%u: \"%s\" is written over by %s/%s", number, node->lock, space, name);
}

void judge_lock_removed(unsigned number)
{
    const struct api_node *node = &world.api.nodes[number];
    const char *comma = node->locked ? strchr(node->lock, ',') : NULL;

    if (!node->locked || is_old(node))
        return;
    if (!comma || node->lock[0] == 'x')
        wrong("node-%u: \"%s\" is removed early", number, node->lock);
    for (unsigned i = 0; i < PODS; i++) {
        const struct api_pod *pod = &world.api.pods[i];

        if (is_allocating(pod, number) && names(node->lock, pod->space, pod->name))
            wrong("node-%u: \"%s\" is removed, and allocations go on", number, node->lock);
    }
}

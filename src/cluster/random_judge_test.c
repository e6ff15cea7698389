/* SPDX-License-Identifier: Apache-2.0 */

/* Of the judge: what devices have to give, and whether what is granted and counted is right. */

#include "cluster/random_judge.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/random_judge_parts.h"

#define SILENT_NS (60 * SECOND_NS)
#define RESERVED_NS (60 * SECOND_NS)

static unsigned judged_node;

void judge_looks_at(unsigned node)
{
    judged_node = node;
}

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

void __attribute__((format(printf, 1, 2), noreturn)) judge_wrong(const char *format, ...)
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

bool judge_is_there(unsigned number, enum maker maker)
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

struct room judge_room_of(unsigned number, enum maker maker, unsigned device)
{
    const struct api_node *node = &world.shown[number];
    const struct api_card *card = &node->cards[maker][device];
    struct room room = {.there = judge_is_there(number, maker)};
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

long judge_bound_of(const char *space, enum maker maker, enum amount amount)
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
            const struct room now = judge_room_of(number, maker, i);
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
                most(claim->bounds[maker][amount], judge_bound_of(space, maker, amount));
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

static void check_device(unsigned number, enum maker maker, unsigned device,
                         const struct room *room, const struct taken *mine)
{
    const struct sum sum = judge_sum_of(number, maker, device);
    char uuid[64];

    judge_looks_at(number);
    world_device_name(number, maker, device, uuid);
    if (maker == NVIDIA ? (mine->whole && !room->whole) || (mine->parts & CUT && !room->cut) ||
                              (mine->parts >= PLACED && !room->placed)
                        : !room->whole)
        judge_wrong("%s is not to be had%s", uuid, mine->parts ? " in instances" : "");
    if (sum.mib > room->mib || sum.cores > room->cores || sum.tasks > room->tasks)
        judge_wrong("%s: %ld of %ld MiB, %ld of %ld cores, %ld of %ld tasks granted", uuid, sum.mib,
                    room->mib, sum.cores, room->cores, sum.tasks, room->tasks);
    if (maker == NVIDIA && sum.parts && sum.whole)
        judge_wrong("%s is given out whole and in instances", uuid);
    if (maker == NVIDIA &&
        !!(sum.parts & 0xff) + !!(sum.parts & 0xff00) + (sum.parts >= PLACED) > 1)
        judge_wrong("%s is cut in two ways", uuid);
    if (maker != NEURON && sum.alone && sum.tasks > 1)
        judge_wrong("%s: all compute is one task's, and it has %ld", uuid, sum.tasks);
}

/* What was asked for. */

bool judge_is_listed(const struct api_pod *pod, unsigned number, unsigned device)
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

unsigned judge_pieces_wanted(const struct ask *ask, enum maker maker)
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
        while (judge_next_piece(&at, maker, &piece)) {
            char uuid[64] = "";
            unsigned i = 0;

            if (maker == NVIDIA)
                judge_read_place(&pod->binds, containers, count, &piece);
            for (; i < world_device_count(number, maker); i++) {
                if (strcmp(world_device_name(number, maker, i, uuid), piece.uuid) == 0)
                    break;
            }
            if (strcmp(uuid, piece.uuid) != 0)
                judge_wrong("node-%u has no %s", number, piece.uuid);
            if (maker == NVIDIA && !judge_is_listed(pod, number, i))
                judge_wrong("%s is not in the pod's list", piece.uuid);
            if (!is_as_asked(&pod->asks[maker], maker, &piece))
                judge_wrong("%s: not what was asked for: %s", piece.uuid,
                            pod->binds.devices[maker]);
            if (maker != NEURON && !piece.parts && whole >> i & 1)
                judge_wrong("%s is given to one container twice", piece.uuid);
            whole |= 1u << i;
            numa |= 1u << world_numa_node(number, i);
            count++;
        }
        if (maker == NVIDIA && pod->one_numa && numa & (numa - 1))
            judge_wrong("not of one NUMA node: %s", pod->binds.devices[maker]);
        if (count !=
            (containers && pod->first_only ? 0 : judge_pieces_wanted(&pod->asks[maker], maker)))
            judge_wrong("%u devices for a container: %s", count, pod->binds.devices[maker]);
        containers++;
    }
    if (containers && containers != (pod->shape == SHAPE_APPS ? 2 : 1 + strlen(pod->binds.roles)))
        judge_wrong("%u containers: %s", containers, pod->binds.devices[maker]);
    if (!containers && judge_pieces_wanted(&pod->asks[maker], maker))
        judge_wrong("nothing of a vendor that was asked");
}

static void check_space(const struct api_pod *pod, enum maker maker, const struct claim *claim)
{
    const struct taken mine = judge_recount(&pod->binds, maker, NULL);

    for (enum amount amount = 0; amount < AMOUNT_KINDS; amount++) {
        const long bound = claim->bounds[maker][amount];
        long used;

        if (bound == LONG_MAX || !(amount == MEMORY ? mine.mib : mine.cores))
            continue;
        used = judge_used_of(pod->space, maker, amount);
        if (used > bound)
            judge_wrong("namespace %s has %ld of %ld (%u, %u)", pod->space, used, bound, maker,
                        amount);
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
                judge_recount(&pod->binds, maker, world_device_name(node, maker, i, uuid));

            if (mine.tasks && judge_sum_of(node, maker, i).tasks != mine.tasks)
                judge_wrong("%s is not alone on %s", pod->uid, uuid);
        }
    }
}

void judge_granted(unsigned number)
{
    const struct api_pod *pod = &world.api.pods[number];
    const unsigned node = node_number(pod->bind_node);

    judge_looks_at(node);
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
                judge_recount(&pod->binds, maker, world_device_name(node, maker, i, uuid));

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

bool judge_is_spoilt(unsigned number, enum maker maker, unsigned device)
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
    const struct room room = judge_room_of(number, maker, device);
    const struct sum sum = judge_sum_of(number, maker, device);
    struct device_state state;
    char uuid[64];

    judge_looks_at(number);
    world_device_name(number, maker, device, uuid);
    state = world_device_state(number, uuid);
    if (state.there != room.there)
        judge_wrong("%s is %s", uuid, state.there ? "there still" : "not there");
    if (!room.there || judge_is_spoilt(number, maker, device))
        return;
    if (state.healthy != room.healthy)
        judge_wrong("%s is %shealthy", uuid, room.healthy ? "" : "not ");
    if (state.tasks != sum.tasks || state.mib != sum.mib ||
        (maker != NEURON && state.cores != sum.cores) || state.parts != sum.counted)
        judge_wrong(
            "%s: counted are %ld tasks, %ld MiB, %ld cores, parts %llx, not %ld, %ld, %ld, %llx",
            uuid, state.tasks, state.mib, state.cores, (unsigned long long)state.parts, sum.tasks,
            sum.mib, sum.cores, (unsigned long long)sum.counted);
}

static void check_quota(const char *space, enum maker maker, enum amount amount)
{
    const long bound = judge_bound_of(space, maker, amount);
    long known_bound, known_used;
    const bool known = world_quota_state(space, maker, amount, &known_bound, &known_used);

    if (maker == NEURON && amount == MEMORY)
        return;
    if (known != (bound != LONG_MAX))
        judge_wrong("namespace %s is %sbounded (%u, %u)", space, known ? "" : "not ", maker,
                    amount);
    if (known && (known_bound != bound || known_used != judge_used_of(space, maker, amount)))
        judge_wrong("namespace %s has %ld of %ld, not %ld of %ld (%u, %u)", space, known_used,
                    known_bound, judge_used_of(space, maker, amount), bound, maker, amount);
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

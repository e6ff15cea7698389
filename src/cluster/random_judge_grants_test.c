/* SPDX-License-Identifier: Apache-2.0 */

/* Of the judge: grants, read anew. */

#include <stdio.h>
#include <string.h>

#include "cluster/random_judge_parts.h"

void judge_read_place(const struct written *written, size_t container, unsigned number,
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
        judge_wrong("no place: %s", at);
    piece->parts = ((UINT64_C(1) << size) - 1) << start << 16;
    piece->counted = UINT64_C(1) << (start * 8 + size - 1);
}

bool judge_next_piece(const char **at, enum maker maker, struct piece *ret_piece)
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
        judge_wrong("can't read \"%s\"", *at);
    *at += used;
    ret_piece->parts = ret_piece->counted = 0;
    bracket = strchr(ret_piece->uuid, '[');
    if (bracket) {
        if (sscanf(bracket, "[%u-%u]", &group, &instance) != 2 || group > 1 ||
            instance >= (group ? 2u : 4u))
            judge_wrong("no instance: %s", ret_piece->uuid);
        ret_piece->parts = ret_piece->counted = UINT64_C(1) << (group * 8 + instance);
        *bracket = '\0';
    }
    if (maker == NEURON) {
        ret_piece->parts = ret_piece->counted = (uint64_t)ret_piece->cores;
        ret_piece->cores = __builtin_popcountll(ret_piece->parts);
    }
    return true;
}

struct taken judge_recount(const struct written *written, enum maker maker, const char *uuid)
{
    struct taken apps = {0}, top = {0};
    const char *at = written->devices[maker];

    for (size_t container = 0; *at; container++) {
        const bool goes_on =
            container >= strlen(written->roles) || written->roles[container] == 's';
        struct taken here = {0};
        struct piece piece;

        for (unsigned number = 0; judge_next_piece(&at, maker, &piece); number++) {
            if (maker == NVIDIA)
                judge_read_place(written, container, number, &piece);
            if (uuid && strcmp(piece.uuid, uuid) != 0)
                continue;
            if (uuid && piece.parts & (here.parts | apps.parts))
                judge_wrong("%s: a part of it is given out twice in one pod", uuid);
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

struct sum judge_sum_of(unsigned number, enum maker maker, unsigned device)
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
        taken = judge_recount(written, maker, uuid);
        if (taken.parts & sum.parts)
            judge_wrong("%s: a part of it is given out twice", uuid);
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

long judge_used_of(const char *space, enum maker maker, enum amount amount)
{
    long used = 0;

    for (unsigned i = 0; i < PODS; i++) {
        const char *node;
        const struct written *written = grant_of(&world.api.pods[i], &node);
        struct taken taken;

        if (!written || strcmp(world.api.pods[i].space, space) != 0)
            continue;
        taken = judge_recount(written, maker, NULL);
        used += amount == MEMORY ? taken.mib : taken.cores;
    }
    return used;
}

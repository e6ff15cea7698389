/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/random_show.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "model/keys.h"
#include "model/mig_allocations.h"
#include "vendor/nvidia/nvidia.h"

/* A quarter of a card may lie at each even slice, a half at the first and the fifth. */
static const char profiles[] =
    ",\"migProfiles\":["
    "{\"name\":\"3g.half\",\"memoryMB\":%d,\"core\":50,\"sliceCount\":3,\"placements\":"
    "[{\"start\":0,\"size\":4},{\"start\":4,\"size\":4}]},"
    "{\"name\":\"1g.quarter\",\"memoryMB\":%d,\"core\":25,\"sliceCount\":1,\"placements\":"
    "[{\"start\":0,\"size\":2},{\"start\":2,\"size\":2},{\"start\":4,\"size\":2},"
    "{\"start\":6,\"size\":2}]}]";

static void write_nvidia(const struct api_node *from, unsigned number, char to[static NODE_TEXT])
{
    size_t len = (size_t)snprintf(to, NODE_TEXT, "[");

    for (unsigned i = 0; i < world_device_count(number, NVIDIA); i++) {
        const struct api_card *card = &from->cards[NVIDIA][i];

        len += (size_t)snprintf(
            to + len, NODE_TEXT - len,
            "%s{\"id\":\"GPU-%u-%u\",\"index\":%u,\"count\":%d,\"devmem\":%d,\"devcore\":100,"
            "\"type\":\"NVIDIA-%s\",\"numa\":%u,\"mode\":\"%s\",\"health\":%s%s",
            i ? "," : "", number, i, i, DEVICE_TASKS,
            from->small && i > 1 ? CARD_MIB / 2 : CARD_MIB, number == 1 ? "M" : "A",
            world_numa_node(number, i), card->mig ? "mig" : "hami-core",
            card->sick ? "false" : "true",
            from->foreign ? "" : ",\"custominfo\":{\"lock\":\"none\"}");
        if (from->profiles)
            len +=
                (size_t)snprintf(to + len, NODE_TEXT - len, profiles, CARD_MIB / 2, CARD_MIB / 4);
        len += (size_t)snprintf(to + len, NODE_TEXT - len, "}");
    }
    (void)snprintf(to + len, NODE_TEXT - len, from->garbage[NVIDIA] ? "!" : "]");
    assert_true(len + 1 < NODE_TEXT);
}

static void write_hygon(const struct api_node *from, unsigned number, char to[static NODE_TEXT])
{
    size_t len = 0;

    for (unsigned i = 0; i < world_device_count(number, HYGON); i++)
        len += (size_t)snprintf(to + len, NODE_TEXT - len, "DCU-%u-%u,%d,%d,100,DCU,%u,%s:", number,
                                i, DEVICE_TASKS, DCU_MIB, i,
                                from->cards[HYGON][i].sick ? "false" : "true");
    if (from->garbage[HYGON])
        (void)snprintf(to, NODE_TEXT, "a,b:");
}

static void write_scores(const struct api_node *from, unsigned number, char to[static NODE_TEXT])
{
    const unsigned count = world_device_count(number, NVIDIA);
    size_t len = (size_t)snprintf(to, NODE_TEXT, "[");

    for (unsigned i = 0; i < count; i++) {
        len += (size_t)snprintf(to + len, NODE_TEXT - len, "%s{\"uuid\":\"GPU-%u-%u\",\"score\":{",
                                i ? "," : "", number, i);
        for (unsigned k = 0; k < count; k++)
            len += (size_t)snprintf(to + len, NODE_TEXT - len, "%s\"GPU-%u-%u\":%u", k ? "," : "",
                                    number, k, (i + 1) * (k + 1) * from->scored * 31 % 97);
        len += (size_t)snprintf(to + len, NODE_TEXT - len, "}}");
    }
    (void)snprintf(to + len, NODE_TEXT - len, from->badly_scored ? "" : "]");
}

static void write_cordon(const struct api_node *from, unsigned number, char to[static NODE_TEXT])
{
    size_t len = 0;

    to[0] = '\0';
    for (unsigned i = 0; i < world_device_count(number, NVIDIA); i++) {
        if (from->cards[NVIDIA][i].cordoned)
            len += (size_t)snprintf(to + len, NODE_TEXT - len, "%sGPU-%u-%u", len ? ", " : "",
                                    number, i);
    }
}

static void write_word(const struct api_node *from, char to[static NODE_TEXT])
{
    char time[HANDSHAKE_TEXT_SIZE];

    if (from->word == WORD_OWN)
        (void)snprintf(to, NODE_TEXT, "Reported %lld", (long long)from->word_ns);
    else if (from->word_ns == INT64_MIN)
        (void)snprintf(to, NODE_TEXT, "Requesting_whenever");
    else
        (void)snprintf(to, NODE_TEXT, "%s",
                       handshake_write(from->word == WORD_ASKED ? "Requesting" : "Deleted",
                                       WALL_NS + from->word_ns, time));
}

static void add_annotation(struct shown_node *shown, const char *key, const char *value)
{
    shown->pairs[shown->node.annotations.count++] = (struct text_pair){key, value};
}

static void add_resource(struct shown_node *shown, const char *name, int64_t all, int64_t left)
{
    const size_t at = shown->node.allocatable.count++;

    shown->node.capacity.count++;
    (void)snprintf(shown->amounts[at][0], sizeof(shown->amounts[at][0]), "%d", (int)all);
    (void)snprintf(shown->amounts[at][1], sizeof(shown->amounts[at][1]), "%d", (int)left);
    shown->capacity[at] = (struct resource){
        .name = name, .text = shown->amounts[at][0], .quantity = {QUANTITY_WHOLE, all}};
    shown->allocatable[at] = (struct resource){
        .name = name, .text = shown->amounts[at][1], .quantity = {QUANTITY_WHOLE, left}};
}

static void add_resources(struct shown_node *shown, const struct api_node *from, unsigned number)
{
    const unsigned chips = world_device_count(number, NEURON);
    unsigned sick = 0;

    for (unsigned i = 0; i < chips; i++)
        sick += from->cards[NEURON][i].sick;
    if (world_device_count(number, NVIDIA))
        add_resource(shown, "nvidia.com/gpu", 12, from->away[NVIDIA] ? 0 : 12);
    if (world_counts_dcus(number))
        add_resource(shown, "hygon.com/dcunum", 12, from->away[HYGON] ? 0 : 12);
    if (!chips)
        return;
    add_resource(shown, "aws.amazon.com/neuron", chips, from->away[NEURON] ? 0 : chips - sick);
    add_resource(shown, "aws.amazon.com/neuroncore", chips * CHIP_CORES, chips * CHIP_CORES);
}

void show_fill_node(const struct api_node *from, struct shown_node *shown)
{
    const unsigned number = (unsigned)(from->name[5] - '0');

    shown->label = (struct text_pair){"node.kubernetes.io/instance-type",
                                      number == 5 ? "inf2.24xlarge" : "trn1.8xlarge"};
    (void)snprintf(shown->version, sizeof(shown->version), "%u", from->version);
    shown->node = (struct node){
        .name = from->name,
        .uid = from->name,
        .resource_version = shown->version,
        .annotations = {shown->pairs, 0},
        .labels = {&shown->label, 1},
        .has_status = true,
        .ready = true,
        .allocatable = {shown->allocatable, 0},
        .capacity = {shown->capacity, 0},
    };
    write_nvidia(from, number, shown->nvidia);
    write_hygon(from, number, shown->hygon);
    write_scores(from, number, shown->scores);
    write_cordon(from, number, shown->cordon);
    if (world_device_count(number, NVIDIA))
        add_annotation(shown, NVIDIA_REGISTER_KEY, shown->nvidia);
    if (world_device_count(number, NVIDIA) && from->scored)
        add_annotation(shown, NVIDIA_SCORE_KEY, shown->scores);
    if (shown->cordon[0])
        add_annotation(shown, KEY_CORDON, shown->cordon);
    if (world_device_count(number, HYGON))
        add_annotation(shown, "hami.io/node-dcu-register", shown->hygon);
    if (from->word != WORD_NONE) {
        write_word(from, shown->word);
        add_annotation(shown, "hami.io/node-handshake-dcu", shown->word);
    }
    if (from->locked)
        add_annotation(shown, KEY_NODE_LOCK, from->lock);
    add_resources(shown, from, number);
}

/* What its agent made of a pod's instances, once it has. */
static void write_made(const char *allocations, char to[static ALLOCATIONS_TEXT])
{
    size_t len = 0;

    for (const char *end; (end = strstr(allocations, "}}")); allocations = end + 2)
        len += (size_t)snprintf(
            to + len, ALLOCATIONS_TEXT - len,
            "%.*s},\"migUUID\":\"MIG-x\",\"gpuInstanceID\":1,\"computeInstanceID\":0}",
            (int)(end - allocations), allocations);
    (void)snprintf(to + len, ALLOCATIONS_TEXT - len, "%s", allocations);
}

void show_fill_pod(const struct api_pod *from, struct shown_pod *shown)
{
    static const char *const keys[MAKERS][2] = {
        {NVIDIA_ALLOCATED_KEY, NVIDIA_TO_ALLOCATE_KEY},
        {"hami.io/dcu-devices-allocated", "hami.io/dcu-devices-to-allocate"},
        {"hami.io/aws-neuron-devices-allocated", NULL},
    };
    size_t count = 0;

    shown->pairs[count++] = (struct text_pair){KEY_NODE, from->node};
    (void)snprintf(shown->time, sizeof(shown->time), "%lld",
                   (long long)(from->has.wall_ns / SECOND_NS));
    shown->pairs[count++] = (struct text_pair){KEY_BIND_TIME, shown->time};
    shown->pairs[count++] =
        (struct text_pair){KEY_BIND_PHASE, from->failed      ? BIND_PHASE_FAILED
                                           : from->allocated ? BIND_PHASE_SUCCESS
                                                             : BIND_PHASE_ALLOCATING};
    if (from->has.roles[0])
        shown->pairs[count++] = (struct text_pair){POD_INIT_ROLES, from->has.roles};
    for (unsigned i = 0; i < MAKERS; i++) {
        if (!from->has.devices[i][0])
            continue;
        shown->pairs[count++] = (struct text_pair){keys[i][0], from->has.devices[i]};
        if (keys[i][1])
            shown->pairs[count++] =
                (struct text_pair){keys[i][1], from->allocated ? ":;" : from->has.devices[i]};
    }
    if (from->has.allocations[0]) {
        if (from->allocated)
            write_made(from->has.allocations, shown->allocations);
        else
            COPY_TEXT(shown->allocations, from->has.allocations);
        shown->pairs[count++] = (struct text_pair){MIG_ALLOCATIONS_KEY, shown->allocations};
    }
    if (world.evicts) {
        (void)snprintf(shown->priority, sizeof(shown->priority), "%d", from->priority);
        shown->pairs[count++] = (struct text_pair){KEY_PRIORITY, shown->priority};
    }
    shown->pod = (struct pod){
        .namespace = from->space,
        .name = from->name,
        .uid = from->uid,
        .resource_version = "1",
        .deleting = from->going,
        .node_name = from->node,
        .annotations = {shown->pairs, count},
        .amounts = world_amounts(from),
    };
}

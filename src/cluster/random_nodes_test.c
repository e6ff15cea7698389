/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes and their agents, quotas and time, as they change. */

#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "cluster/random_pods.h"
#include "cluster/random_steps.h"

/* Of a clock in another zone. */
#define AHEAD_NS (8 * 3600 * SECOND_NS)

static struct api_pod *const pods = world.api.pods;

static void mend_node(unsigned number)
{
    struct api_node *node = &world.api.nodes[number];

    node->exists = true;
    node->small = node->badly_scored = false;
    node->scored = world_draw(2) ? world_draw(20) : 0;
    node->foreign = number == 2 || world_draw(3) == 0;
    node->profiles = world_draw(2);
    memset(node->garbage, 0, sizeof(node->garbage));
    memset(node->away, 0, sizeof(node->away));
    memset(node->cards, 0, sizeof(node->cards));
    node->cards[NVIDIA][1].mig = node->cards[NVIDIA][2].mig = number == 1;
}

static void count_misuse(unsigned number)
{
    for (unsigned i = 0; i < PODS; i++)
        world.covered.misused += pods[i].exists && pods[i].node[0] && number == 1 &&
                                 strcmp(pods[i].node, world.api.nodes[number].name) == 0;
}

void nodes_change(unsigned number)
{
    struct api_node *node = &world.api.nodes[number];
    struct api_card *card = &node->cards[world_draw(MAKERS)][world_draw(DEVICES)];

    switch (world_draw(10)) {
    case 0:
        node->exists = !node->exists;
        break;
    case 1:
        node->garbage[world_draw(2)] ^= true;
        break;
    case 2:
        node->away[world_draw(MAKERS)] ^= true;
        break;
    case 3:
        node->small = !node->small;
        break;
    case 4:
        node->scored = 1 + world_draw(20);
        node->badly_scored = world_draw(3) == 0;
        break;
    case 5:
        if (world_draw(2))
            node->foreign = !node->foreign;
        else
            node->profiles = !node->profiles;
        count_misuse(number);
        break;
    case 6:
        node->cards[NVIDIA][world_draw(DEVICES)].cordoned ^= true;
        break;
    case 7:
        node->cards[NVIDIA][1 + world_draw(2)].mig ^= number == 1;
        count_misuse(number);
        break;
    default:
        card->sick = !card->sick;
        break;
    }
}

void step_node(void)
{
    const unsigned number = world_draw(NODES);

    if (world_draw(2))
        mend_node(number);
    else
        nodes_change(number);
    world.covered.changed++;
    world_node_changed(number);
}

/* Its node's agent falls silent, or comes back; or somebody asks it. */
void step_agent(void)
{
    const unsigned number = world_draw(NODES);
    struct api_node *node = &world.api.nodes[number];

    if (!world_has_agent(number))
        return;
    /* Asked after Deleted was written, it stays gone for those who saw that, and only for those,
     * unless kubelet has devices of it. */
    if ((node->word != WORD_DELETED || world_counts_dcus(number)) && world_draw(8) == 0) {
        node->word = WORD_ASKED;
        node->word_ns = world_draw(2) ? INT64_MIN : world.now_ns / SECOND_NS * SECOND_NS + AHEAD_NS;
        world_node_changed(number);
        return;
    }
    if (world_counts_dcus(number) && world_draw(2)) {
        node->away[HYGON] = !node->away[HYGON];
        world_node_changed(number);
    }
    world.silent[number] = !world.silent[number] && world_draw(2);
}

static void write_hard(struct api_quota *quota)
{
    quota->count = world_draw(HARD + 1);
    for (unsigned i = 0; i < quota->count; i++) {
        const enum maker maker = (enum maker)world_draw(MAKERS);
        const enum amount amount = (enum amount)world_draw(AMOUNT_KINDS);
        static const unsigned largest[MAKERS][AMOUNT_KINDS] = {
            {4 * CARD_MIB, 500}, {DCU_MIB, 400}, {1, 12}};

        quota->hard[i].requests = world_draw(2);
        quota->hard[i].maker = maker;
        quota->hard[i].amount = amount;
        quota->hard[i].value = world_draw(8) ? (long)world_draw(largest[maker][amount] + 1) : 0;
        if (amount == MEMORY && world_draw(2)) /* a few that ask for a part of a card */
            quota->hard[i].value = (long)pods_draw_mib(CARD_MIB) * (1 + (long)world_draw(4));
        quota->hard[i].fraction = world_draw(12) == 0;
    }
}

/* It comes, changes, goes. */
void step_quota(void)
{
    const unsigned number = world_draw(QUOTAS);
    struct api_quota *quota = &world.api.quotas[number];

    if (quota->exists && world_draw(2)) {
        quota->exists = false;
    } else {
        if (!quota->exists)
            COPY_TEXT(quota->space, space_names[world_draw(SPACES)]);
        world.covered.quotas_lowered += quota->exists;
        quota->exists = true;
        write_hard(quota);
    }
    world_quota_changed(number);
}

void step_time(void)
{
    const unsigned longest = world_draw(8) ? 20 : 120;

    world_pass((int64_t)world_draw(longest) * SECOND_NS);
    cluster_expire(world.cluster, world.now_ns);
    world_look_at_agents(true);
}

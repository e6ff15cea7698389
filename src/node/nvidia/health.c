/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/health.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "driver/nvml.h"

const struct health_card *health_find(const struct health *health, const char *uuid)
{
    for (size_t i = 0; i < health->count; i++) {
        if (strcmp(health->cards[i].uuid, uuid) == 0)
            return &health->cards[i];
    }
    return NULL;
}

/* A card's record; where there is no room for more, the first one's is used anew. */
static struct health_card *get_card(struct health *health, const char *uuid)
{
    struct health_card *card = (struct health_card *)health_find(health, uuid);

    if (card)
        return card;
    card = &health->cards[health->count < CARDS_MAX ? health->count++ : 0];
    *card = (struct health_card){.failed = false};
    COPY_TEXT(card->uuid, uuid);
    return card;
}

static int64_t least_quiet(const struct health *health)
{
    return health->quiet_ns ? health->quiet_ns : HEALTH_QUIET_NS;
}

static int64_t quiet_of(const struct health *health, const struct health_card *card)
{
    int64_t quiet_ns = least_quiet(health);

    for (unsigned i = 0; i < card->relapses && quiet_ns < HEALTH_LONGEST_NS; i++)
        quiet_ns *= 2;
    return MIN(quiet_ns, MAX(HEALTH_LONGEST_NS, least_quiet(health)));
}

static void card_fails(struct health_card *card, const char *why, int64_t now_ns)
{
    if (!card->failed && card->well_ns && now_ns - card->well_ns < HEALTH_TRIED_NS)
        card->relapses = MIN(card->relapses + 1, 32u);
    else if (!card->failed)
        card->relapses = 0;
    card->failed = true;
    card->failed_ns = now_ns;
    card->errors++;
    COPY_TEXT(card->why, why);
}

/* "": it is no error that counts. */
static void describe_event(const struct xid_rules *rules, uint64_t type, uint64_t data,
                           char why[CARD_WHY_SIZE])
{
    why[0] = '\0';
    if (type == NVML_EVENT_XID && xid_counts(rules, data))
        (void)snprintf(why, CARD_WHY_SIZE, "XID %" PRIu64, data);
    else if (type == NVML_EVENT_DOUBLE_BIT_ECC && !xid_rules_are_off(rules))
        (void)snprintf(why, CARD_WHY_SIZE, "an uncorrected memory error");
}

bool health_event(struct health *health, const char *uuid, uint64_t type, uint64_t data,
                  int64_t now_ns)
{
    char why[CARD_WHY_SIZE];

    describe_event(&health->rules, type, data, why);
    if (!why[0])
        return false;
    if (uuid)
        card_fails(get_card(health, uuid), why, now_ns);
    for (size_t i = 0; !uuid && i < health->count; i++)
        card_fails(&health->cards[i], why, now_ns);
    return true;
}

/* Counts go back to zero with a reset. */
static void look_at_count(const struct health *health, const struct nvml_health *reading,
                          int64_t now_ns, struct health_card *card)
{
    if (card->has_uncorrected && reading->has_errors && reading->uncorrected > card->uncorrected &&
        !xid_rules_are_off(&health->rules))
        card_fails(card, "an uncorrected memory error", now_ns);
    card->has_uncorrected = reading->has_errors;
    card->uncorrected = reading->uncorrected;
}

static void look_whether_over(const struct health *health, const struct nvml_health *reading,
                              int64_t now_ns, struct health_card *card)
{
    int64_t since_ns = card->failed_ns, least_ns = quiet_of(health, card);

    if (!reading->has_action || reading->action != NVML_RECOVERY_NONE)
        card->asked_for_ns = now_ns;
    if (!card->failed)
        return;
    if (reading->has_action) {
        since_ns = MAX(since_ns, card->asked_for_ns);
        least_ns = MIN(HEALTH_TOLD_NS, least_quiet(health));
    }
    if (now_ns - since_ns < least_ns)
        return;
    card->failed = false;
    card->well_ns = now_ns;
}

static const char *describe_action(unsigned action)
{
    static const char *const texts[] = {
        [NVML_RECOVERY_GPU_RESET] = "the driver asks for a reset of the card",
        [NVML_RECOVERY_NODE_REBOOT] = "the driver asks for a reboot of the node",
        [NVML_RECOVERY_DRAIN_P2P] = "the driver asks for an end of traffic between cards",
        [NVML_RECOVERY_DRAIN_AND_RESET] = "the driver asks for the card to be drained and reset",
    };

    if (action < ARRAY_SIZE(texts) && texts[action])
        return texts[action];
    return "the driver asks for a recovery";
}

/* A card may be well and of no use, by how somebody set it up. */
static bool is_usable(const struct health *health, const struct nvml_health *reading,
                      char why[CARD_WHY_SIZE])
{
    if (reading->is_split && health->split == HEALTH_SPLIT_UNUSED)
        (void)snprintf(why, CARD_WHY_SIZE, "it is in MIG mode, and --mig-strategy is none");
    else if (!reading->is_split && health->split == HEALTH_SPLIT_WANTED)
        (void)snprintf(why, CARD_WHY_SIZE, "it is not in MIG mode");
    else if (reading->compute_mode == NVML_COMPUTE_PROHIBITED)
        (void)snprintf(why, CARD_WHY_SIZE, "its compute mode lets nobody use it");
    else
        return true;
    return false;
}

void health_judge(struct health *health, const struct nvml_health *reading, int64_t now_ns,
                  struct card *card)
{
    struct health_card *record = get_card(health, card->uuid);

    look_at_count(health, reading, now_ns, record);
    look_whether_over(health, reading, now_ns, record);
    if (!card->healthy)
        return;
    if (reading->compute_mode == NVML_COMPUTE_EXCLUSIVE)
        card->max_tasks = 1;
    if (!is_usable(health, reading, card->why))
        card->healthy = false;
    if (xid_rules_are_off(&health->rules) || !card->healthy)
        return;
    if (reading->has_action && reading->action != NVML_RECOVERY_NONE)
        COPY_TEXT(card->why, describe_action(reading->action));
    else if (record->failed)
        COPY_TEXT(card->why, record->why);
    else if (health->unwatched[0])
        COPY_TEXT(card->why, health->unwatched);
    else
        return;
    card->healthy = false;
}

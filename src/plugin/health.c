/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Watches the cards. One thread asks for all of them every few seconds, another one waits for what
 * befalls them, upon which the first one asks at once; either may hang in a driver that does. A
 * thread that does not come back, or that can't ask, counts as a sick card does: for all cards.
 * What has changed is told to kubelet, to the Node, and to people.
 */

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "kube/notice.h"
#include "plugin/plugin.h"

enum {
    HEALTH_MS = 5000,
    LATE_TIMES = 3, /* of HEALTH_MS, until the driver counts as dead */
};

static void say_of_card(const struct plugin *plugin, const struct card *card)
{
    char message[CARD_WHY_SIZE + 256];
    const struct notice notice = {
        .kind = "Node",
        .namespace = "",
        .name = plugin->options->node_name,
        .uid = plugin->node_uid,
        .warns = !card->healthy,
        .reason = card->healthy ? "CardHealthy" : "CardUnhealthy",
        .message = message,
        .component = "hami-device-plugin",
        .host = plugin->options->node_name,
    };

    if (card->healthy)
        (void)snprintf(message, sizeof(message), "card %s is healthy again", card->uuid);
    else
        (void)snprintf(message, sizeof(message),
                       "card %s is not healthy: %s. Containers that use it go on; it takes no more",
                       card->uuid, card->why);
    log_warn("%s", message);
    if (plugin->kube && !plugin->ending)
        notice_write(plugin->kube, &notice);
}

static void say_changes(const struct plugin *plugin, const struct cards *before,
                        const struct cards *after)
{
    for (size_t i = 0; i < after->count; i++) {
        const struct card *card = &after->items[i];
        const struct card *old = cards_get(before, card->uuid);

        if (old ? old->healthy != card->healthy || strcmp(old->why, card->why) != 0
                : !card->healthy)
            say_of_card(plugin, card);
    }
}

static void use_cards(struct plugin *plugin, const struct cards *cards)
{
    bool others = cards->count != plugin->cards.count;

    if (cards_equal(cards, &plugin->cards))
        return;
    say_changes(plugin, &plugin->cards, cards);
    plugin->cards = *cards;
    for (size_t i = 0; i < plugin->offer.resource_count; i++) {
        struct kubelet *kubelet = plugin->servings[i].kubelet;

        if (kubelet && kubelet_set_cards(kubelet, cards) < 0)
            log_error("no memory for the list of devices");
    }
    if (others)
        plugin_capacity_write(plugin);
}

/* Asking */

static void begin_health(void *data)
{
    struct plugin *plugin = data;

    plugin->asked = plugin->cards;
}

static void ask_health(void *data)
{
    struct plugin *plugin = data;

    plugin->found_result =
        plugin->vendor->find(plugin->node, &plugin->asked, &plugin->found, &plugin->found_error);
}

static void on_health(void *data)
{
    struct plugin *plugin = data;

    if (plugin->ending)
        return;
    if (plugin->found_result == 0) {
        plugin->has_cards = true;
        plugin_offer(plugin);
    }
    if (!plugin->has_cards) {
        plugin->why_none = plugin->found_error;
        plugin_condition_check(plugin);
        return;
    }
    if (plugin->found_result < 0)
        log_warn("the cards can't be checked, so none counts as healthy: %s",
                 plugin->found_error.text);
    if (plugin->watches && watchdog_is_late(&plugin->watch))
        cards_set_unhealthy(&plugin->found, "the driver does not answer who waits for its events");
    use_cards(plugin, &plugin->found);
    plugin_register(plugin); /* what could not be written is tried again */
    plugin_condition_check(plugin);
    plugin_serve(plugin);
    plugin_health_watch(plugin);
}

static void on_silence(struct plugin *plugin, const char *why)
{
    struct cards cards = plugin->cards;

    log_warn("%s, so no card counts as healthy", why);
    cards_set_unhealthy(&cards, why);
    use_cards(plugin, &cards);
    plugin_register(plugin);
}

static void on_health_late(void *data)
{
    on_silence(data, "the driver does not answer");
}

static const struct watchdog_ops health_ops = {
    .begin = begin_health,
    .ask = ask_health,
    .done = on_health,
    .late = on_health_late,
};

/* Waiting */

static void ask_watch(void *data)
{
    struct plugin *plugin = data;

    plugin->watch_result = plugin->vendor->watch(plugin->node, &plugin->watch_error);
}

/* Waits again at once. That a wait came back is itself news, if it was late. */
static void on_watch(void *data)
{
    struct plugin *plugin = data;

    if (plugin->ending)
        return;
    if (plugin->watch_result != 0 || plugin->silence[0])
        watchdog_hurry(&plugin->health);
    plugin->silence[0] = '\0';
    watchdog_hurry(&plugin->watch);
}

static void on_watch_late(void *data)
{
    struct plugin *plugin = data;

    COPY_TEXT(plugin->silence, "the driver does not answer who waits for its events");
    on_silence(plugin, plugin->silence);
}

static const struct watchdog_ops watch_ops = {
    .ask = ask_watch,
    .done = on_watch,
    .late = on_watch_late,
};

void plugin_health_watch(struct plugin *plugin)
{
    const struct watchdog_options options = {
        .ops = &watch_ops,
        .data = plugin,
        .period_ms = HEALTH_MS,
        .late_periods = LATE_TIMES,
    };

    if (plugin->watches || !plugin->vendor->watch || !plugin->has_cards)
        return;
    plugin->watches = true;
    watchdog_start(&plugin->watch, plugin->loop, &options);
}

void plugin_health_start(struct plugin *plugin)
{
    const struct watchdog_options options = {
        .ops = &health_ops,
        .data = plugin,
        .first_ms = HEALTH_MS,
        .period_ms = HEALTH_MS,
        .late_periods = LATE_TIMES,
    };

    watchdog_start(&plugin->health, plugin->loop, &options);
}

void plugin_health_stop(struct plugin *plugin)
{
    if (plugin->watches)
        watchdog_stop(&plugin->watch);
    watchdog_stop(&plugin->health);
}

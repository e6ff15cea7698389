/* SPDX-License-Identifier: Apache-2.0 */

/* Metrics of the node's cards, and how old what is said of them is. */

#include <stdio.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "metrics/metrics.h"
#include "monitor/export_parts.h"

/* Cards of the node */

struct card_family {
    const char *name;
    const char *help;
    double (*value)(const struct nvml_card *card);
    bool of_utilization; /* left out where the driver has no samples */
    bool of_health;      /* where the device plugin does not tell */
    bool of_errors;      /* where the card does not count them */
    bool counts;
    bool without_node; /* HAMi leaves the label out of this one */
    bool legacy;
};

static double card_used(const struct nvml_card *card)
{
    return (double)card->status.memory_used_bytes;
}

static double card_total(const struct nvml_card *card)
{
    return (double)card->status.memory_total_bytes;
}

static double card_utilization(const struct nvml_card *card)
{
    return card->status.utilization_percent;
}

static double card_controller(const struct nvml_card *card)
{
    return card->status.controller_percent;
}

static double card_healthy(const struct nvml_card *card)
{
    return card->device.healthy;
}

static double card_failures(const struct nvml_card *card)
{
    return (double)card->failures;
}

static double card_corrected(const struct nvml_card *card)
{
    return (double)card->corrected;
}

static double card_uncorrected(const struct nvml_card *card)
{
    return (double)card->uncorrected;
}

static const struct card_family card_families[] = {
    {"hami_host_gpu_memory_used_bytes", "Device memory in use on the card", card_used},
    {"hami_host_gpu_memory_total_bytes", "Device memory of the card", card_total},
    {"hami_host_gpu_utilization_ratio", "Percent of time with a kernel running, as NVML samples it",
     card_utilization, .of_utilization = true},
    {"hami_host_gpu_memory_controller_utilization_ratio",
     "Percent of time with the memory being read or written, as NVML samples it", card_controller,
     .of_utilization = true, .without_node = true},
    {"hami_host_gpu_healthy", "Whether the device plugin gives the card to containers",
     card_healthy, .of_health = true},
    {"hami_host_gpu_failures_total",
     "Errors (XIDs, memory errors) that took the card out, since the device plugin began",
     card_failures, .of_health = true, .counts = true},
    {"hami_host_gpu_corrected_errors", "Corrected memory errors since the card was reset",
     card_corrected, .of_errors = true},
    {"hami_host_gpu_uncorrected_errors", "Uncorrected memory errors since the card was reset",
     card_uncorrected, .of_errors = true},
    {"HostGPUMemoryUsage", "GPU device memory usage", card_used, .legacy = true},
    {"HostCoreUtilization", "GPU core utilization", card_utilization, .of_utilization = true,
     .legacy = true},
};

static size_t card_labels(const struct exported *what, const struct card_family *family,
                          const struct nvml_card *card, char index[16], char type[128],
                          struct metric_label labels[LABELS_MAX])
{
    size_t count = 0;

    (void)snprintf(index, 16, "%u", card->device.index);
    (void)snprintf(type, 128, "NVIDIA-%s", card->device.model);
    labels[count++] = (struct metric_label){"zone", "vGPU"};
    if (!family->without_node)
        labels[count++] = (struct metric_label){family->legacy ? "nodeid" : "node", what->node};
    labels[count++] = (struct metric_label){family->legacy ? "deviceidx" : "device_index", index};
    labels[count++] =
        (struct metric_label){family->legacy ? "deviceuuid" : "device_uuid", card->device.uuid};
    labels[count++] = (struct metric_label){family->legacy ? "devicetype" : "device_type", type};
    return count;
}

static bool is_told(const struct card_family *family, const struct nvml_card *card)
{
    if (family->of_health)
        return card->has_health;
    if (family->of_errors)
        return card->has_errors;
    return card->has_status && (!family->of_utilization || card->status.has_utilization);
}

static void export_card(const struct exported *what, const struct card_family *family,
                        const struct nvml_card *card, struct strbuf *buf)
{
    struct metric_label labels[LABELS_MAX];
    char index[16], type[128];
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(TEXT_MAX);

    if (!is_told(family, card))
        return;
    metrics_labels(&text, labels, card_labels(what, family, card, index, type, labels));
    metrics_sample(buf, family->name, strbuf_text(&text), family->value(card));
}

void export_cards(const struct exported *what, struct strbuf *buf)
{
    for (size_t i = 0; i < ARRAY_SIZE(card_families); i++) {
        const struct card_family *family = &card_families[i];

        if (family->legacy && !what->legacy)
            continue;
        metrics_family(buf, family->name, family->counts ? METRIC_COUNTER : METRIC_GAUGE,
                       family->help);
        for (size_t k = 0; k < what->card_count; k++)
            export_card(what, family, &what->cards[k], buf);
    }
}

/* How old the names of pods are, and what is said of their containers. */
void export_pods_age(const struct exported *what, struct strbuf *buf)
{
    metrics_family(buf, "hami_monitor_containers_age_seconds", METRIC_GAUGE,
                   "Age of what is said of the containers");
    if (what->uses_age_s >= 0)
        metrics_sample(buf, "hami_monitor_containers_age_seconds", "", what->uses_age_s);
    metrics_family(buf, "hami_monitor_pods_age_seconds", METRIC_GAUGE,
                   "Time since the API server was last heard of the node's pods");
    if (what->pods_age_s >= 0)
        metrics_sample(buf, "hami_monitor_pods_age_seconds", "", what->pods_age_s);
}

/* How old the cards' samples are, and whether NVML answers. */
void export_nvml(const struct exported *what, struct strbuf *buf)
{
    metrics_family(buf, "hami_monitor_nvml_up", METRIC_GAUGE,
                   "Whether NVML answered when it was last asked, and in time");
    metrics_sample(buf, "hami_monitor_nvml_up", "", what->nvml_answers);
    metrics_family(buf, "hami_monitor_cards_age_seconds", METRIC_GAUGE,
                   "Age of what is said of the cards as a whole");
    if (what->cards_age_s >= 0)
        metrics_sample(buf, "hami_monitor_cards_age_seconds", "", what->cards_age_s);
}

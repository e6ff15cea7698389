/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/export.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "metrics/metrics.h"
#include "monitor/export_parts.h"

enum {
    TEXTS_MAX = 32 << 20, /* of all */
};

/* Cards of containers */

/* Names of labels: HAMi's present ones, and those before 2.9. */
enum naming {
    NAMING_NEW,
    NAMING_LEGACY,
    NAMING_COUNT,
};

/* Where labels stand among the samples' texts. */
struct place {
    size_t at, len;
};

/* A container's card and its pod. */
struct sample {
    const struct exported *what;
    const struct container_use *use;
    const struct container_card *card;
    struct place labels[NAMING_COUNT];
};

/* A container whose pod is known. */
struct owner {
    const struct container_use *use;
    struct place labels;
};

/* Data of all families: a row for each container, and one for each of its cards. */
struct samples {
    struct owner *owners;
    size_t owner_count;
    struct sample *items;
    size_t count;
    struct strbuf texts; /* labels */
};

struct use_family {
    const char *name;
    enum metric_type type;
    const char *help;
    double (*value)(const struct sample *sample);
    uint64_t (*ns)(const struct sample *sample); /* instead: a time, told in seconds */
    bool when_launched;                          /* only after the first launch */
    bool legacy;
};

static double memory_used(const struct sample *sample)
{
    return (double)sample->card->used.total;
}

static double memory_limit(const struct sample *sample)
{
    return (double)sample->card->limit_bytes;
}

static double memory_context(const struct sample *sample)
{
    return (double)sample->card->used.context;
}

static double memory_module(const struct sample *sample)
{
    return (double)sample->card->used.module;
}

static double memory_buffer(const struct sample *sample)
{
    return (double)sample->card->used.data;
}

static double utilization(const struct sample *sample)
{
    return sample->card->utilization;
}

static double last_kernel(const struct sample *sample)
{
    return (double)MAX(sample->what->now - (int64_t)sample->use->last_kernel_time, INT64_C(0));
}

static double core_limit(const struct sample *sample)
{
    return sample->card->cores ? sample->card->cores : DEVICE_CORES;
}

static uint64_t busy_ns(const struct sample *sample)
{
    return sample->card->charged_ns;
}

static uint64_t throttled_ns(const struct sample *sample)
{
    return sample->card->delayed_ns;
}

static double throttled_launches(const struct sample *sample)
{
    return (double)sample->card->launches_delayed;
}

static double refusals(const struct sample *sample)
{
    return (double)sample->card->refusals;
}

static const struct use_family use_families[] = {
    {"hami_vgpu_memory_used_bytes", METRIC_GAUGE, "Device memory that the container uses",
     memory_used},
    {"hami_vgpu_memory_limit_bytes", METRIC_GAUGE, "Device memory that it may use; 0: all",
     memory_limit},
    {"hami_container_device_memory_bytes", METRIC_GAUGE, "Device memory that the container uses",
     memory_used},
    {"hami_vgpu_memory_context_bytes", METRIC_GAUGE, "Of it, by contexts", memory_context},
    {"hami_vgpu_memory_module_bytes", METRIC_GAUGE, "Of it, by code", memory_module},
    {"hami_vgpu_memory_buffer_bytes", METRIC_GAUGE, "Of it, by data", memory_buffer},
    {"hami_container_device_utilization_ratio", METRIC_GAUGE,
     "Percent of the card's time that the container used in the last seconds", utilization},
    {"hami_container_last_kernel_elapsed_seconds", METRIC_GAUGE,
     "Time since the container's last launch", last_kernel, .when_launched = true},
    {"hami_vgpu_core_limit_ratio", METRIC_GAUGE,
     "Percent of the card's time that the container may use", core_limit},
    {"hami_vgpu_core_used_percent", METRIC_GAUGE,
     "Percent of the card's time that the container used in the last seconds", utilization},
    {"hami_vgpu_core_limit_percent", METRIC_GAUGE,
     "Percent of the card's time that the container may use", core_limit},
    {"hami_container_device_busy_seconds_total", METRIC_COUNTER,
     "The card's time that the container used", .ns = busy_ns},
    {"hami_container_throttled_seconds_total", METRIC_COUNTER,
     "Time that launches were held back to keep the container to its share", .ns = throttled_ns},
    {"hami_container_throttled_launches_total", METRIC_COUNTER,
     "Launches that were held back to keep the container to its share", throttled_launches},
    {"hami_container_memory_refusals_total", METRIC_COUNTER,
     "Allocations that were refused to keep the container to its memory", refusals},
    {"vGPU_device_memory_usage_in_bytes", METRIC_GAUGE, "vGPU device usage", memory_used,
     .legacy = true},
    {"vGPU_device_memory_limit_in_bytes", METRIC_GAUGE, "vGPU device limit", memory_limit,
     .legacy = true},
    {"Device_utilization_desc_of_container", METRIC_GAUGE, "Container device utilization",
     utilization, .legacy = true},
    {"Device_last_kernel_of_container", METRIC_GAUGE, "Container device last kernel", last_kernel,
     .when_launched = true, .legacy = true},
};

static struct metric_text text_at(const struct samples *samples, struct place place)
{
    return (struct metric_text){strbuf_text(&samples->texts) + place.at, place.len};
}

/* The container's labels, which those of its cards begin with. */
static struct place add_labels(const struct pod_name *pod, const struct container_use *use,
                               enum naming naming, struct strbuf *texts)
{
    bool legacy = naming == NAMING_LEGACY;
    size_t at = texts->len;
    const struct metric_label labels[] = {
        {"zone", "vGPU"},
        {legacy ? "podnamespace" : "namespace", pod->namespace},
        {legacy ? "podname" : "pod", pod->name},
        {legacy ? "ctrname" : "container", use->name},
    };

    metrics_labels(texts, labels, ARRAY_SIZE(labels));
    return (struct place){at, texts->len - at};
}

static struct place add_card_labels(const struct container_card *card, struct place container,
                                    enum naming naming, struct strbuf *texts)
{
    bool legacy = naming == NAMING_LEGACY;
    size_t at = texts->len;
    char index[16];
    const struct metric_label labels[] = {
        {legacy ? "vdeviceid" : "vdevice_index", index},
        {legacy ? "deviceuuid" : "device_uuid", card->uuid},
    };
    char *to = strbuf_extend(texts, container.len - 1);

    if (!to)
        return (struct place){0, 0};
    memcpy(to, texts->text + container.at, container.len - 1);
    (void)snprintf(index, sizeof(index), "%u", card->index);
    metrics_labels(texts, labels, ARRAY_SIZE(labels));
    if (!texts->failed)
        texts->text[at + container.len - 1] = ','; /* for the brace */
    return (struct place){at, texts->len - at};
}

static void add_samples(const struct exported *what, const struct container_use *use,
                        struct samples *samples)
{
    const struct pod_name *pod = pod_names_find(what->names, use->pod_uid);
    const size_t namings = what->legacy ? NAMING_COUNT : NAMING_NEW + 1;
    struct place labels[NAMING_COUNT];

    if (!pod)
        return;
    for (size_t naming = 0; naming < namings; naming++)
        labels[naming] = add_labels(pod, use, naming, &samples->texts);
    samples->owners[samples->owner_count++] = (struct owner){use, labels[NAMING_NEW]};
    for (unsigned i = 0; i < use->card_count; i++) {
        struct sample *sample = &samples->items[samples->count++];

        *sample = (struct sample){.what = what, .use = use, .card = &use->cards[i]};
        for (size_t naming = 0; naming < namings && !samples->texts.failed; naming++)
            sample->labels[naming] =
                add_card_labels(sample->card, labels[naming], naming, &samples->texts);
    }
}

/* HAMi's oldest description of a container's memory has the parts as labels. */
static void export_memory_parts(const struct samples *samples, struct strbuf *buf)
{
    static const char name[] = "Device_memory_desc_of_container";

    metrics_family(buf, name, METRIC_GAUGE, "Container device memory description");
    for (size_t i = 0; i < samples->count; i++) {
        const struct sample *sample = &samples->items[i];
        struct metric_text labels = text_at(samples, sample->labels[NAMING_LEGACY]);
        const struct region_view_memory *used = &sample->card->used;
        CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(TEXT_MAX);

        strbuf_addf(&text, "%.*s,context=\"%llu\",module=\"%llu\",data=\"%llu\",offset=\"0\"}",
                    (int)labels.len - 1, labels.text, (unsigned long long)used->context,
                    (unsigned long long)used->module, (unsigned long long)used->data);
        metrics_sample(buf, name, strbuf_text(&text), (double)used->total);
    }
}

static void export_family(const struct samples *samples, const struct use_family *family,
                          struct strbuf *buf)
{
    enum naming naming = family->legacy ? NAMING_LEGACY : NAMING_NEW;
    struct metric_text name = metric_text(family->name);

    metrics_family(buf, family->name, family->type, family->help);
    for (size_t i = 0; i < samples->count; i++) {
        const struct sample *sample = &samples->items[i];
        struct metric_text labels = text_at(samples, sample->labels[naming]);

        if (family->when_launched && !sample->use->last_kernel_time)
            continue;
        if (family->ns)
            metrics_add_seconds(buf, name, labels, family->ns(sample));
        else
            metrics_add(buf, name, labels, family->value(sample));
    }
}

/* One of a container's cards: buckets add up, each has those that waited no longer. */
static void export_waits_of(const struct sample *sample, struct metric_text labels,
                            struct strbuf *text, struct strbuf *buf)
{
    static const unsigned ends_ms[] = REGION_WAIT_MS;
    uint64_t count = 0;

    for (unsigned i = 0; i < REGION_WAITS; i++) {
        count += sample->card->waits[i];
        text->len = 0;
        if (i < ARRAY_SIZE(ends_ms))
            strbuf_addf(text, "%.*s,le=\"%g\"}", (int)labels.len - 1, labels.text,
                        ends_ms[i] / 1e3);
        else
            strbuf_addf(text, "%.*s,le=\"+Inf\"}", (int)labels.len - 1, labels.text);
        metrics_sample(buf, "hami_container_launch_wait_seconds_bucket", strbuf_text(text),
                       (double)count);
    }
    metrics_add_seconds(buf, metric_text("hami_container_launch_wait_seconds_sum"), labels,
                        sample->card->delayed_ns);
    metrics_add(buf, metric_text("hami_container_launch_wait_seconds_count"), labels,
                (double)count);
}

/* Only of those that ever waited: a page of hundreds of containers is to stay small. */
static void export_waits(const struct samples *samples, struct strbuf *buf)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(TEXT_MAX);

    metrics_family(buf, "hami_container_launch_wait_seconds", METRIC_HISTOGRAM,
                   "How long launches waited that were held back");
    for (size_t i = 0; i < samples->count; i++) {
        const struct sample *sample = &samples->items[i];

        if (sample->card->launches_delayed)
            export_waits_of(sample, text_at(samples, sample->labels[NAMING_NEW]), &text, buf);
    }
}

/* Families of a container as a whole. */
struct count_family {
    const char *name;
    enum metric_type type;
    const char *help;
    size_t member; /* of struct container_use, a uint64_t */
};

static const struct count_family count_families[] = {
    {"hami_container_pinned_host_bytes", METRIC_GAUGE,
     "Host memory that the driver keeps in place for the container's processes",
     offsetof(struct container_use, pinned_bytes)},
    {"hami_container_oversubscribed_host_bytes", METRIC_GAUGE,
     "Of the device memory that the container's processes use, what lives on the host because the "
     "card had no room for it",
     offsetof(struct container_use, spilled_bytes)},
    {"hami_container_imported_allocations", METRIC_GAUGE,
     "Pieces of memory that the container's processes hold and another process or interface made",
     offsetof(struct container_use, imports)},
    {"hami_container_unaccounted_refused_total", METRIC_COUNTER,
     "Calls refused because what they take is not accounted for",
     offsetof(struct container_use, unaccounted_refused)},
    {"hami_container_unaccounted_allowed_total", METRIC_COUNTER,
     "Calls let pass although what they take is not accounted for",
     offsetof(struct container_use, unaccounted_allowed)},
};

static void export_counts(const struct samples *samples, const struct count_family *family,
                          struct strbuf *buf)
{
    const struct metric_text name = metric_text(family->name);

    metrics_family(buf, family->name, family->type, family->help);
    for (size_t i = 0; i < samples->owner_count; i++) {
        const struct owner *owner = &samples->owners[i];
        const uint64_t *count = (const uint64_t *)((const char *)owner->use + family->member);

        metrics_add(buf, name, text_at(samples, owner->labels), (double)*count);
    }
}

/* text is used for the labels, again and again. */
static void export_refusal(struct metric_text labels, const char *reason, uint64_t count,
                           struct strbuf *text, struct strbuf *buf)
{
    text->len = 0;
    strbuf_add_bytes(text, labels.text, labels.len - 1);
    strbuf_add(text, reason);
    metrics_sample(buf, "hami_container_refusals_total", strbuf_text(text), (double)count);
}

static void export_refusals(const struct samples *samples, struct strbuf *buf)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(TEXT_MAX);

    metrics_family(
        buf, "hami_container_refusals_total", METRIC_COUNTER,
        "Calls that were refused, by reason: the limit of memory, or that what they take "
        "is not accounted for");
    for (size_t i = 0; i < samples->owner_count; i++) {
        const struct container_use *use = samples->owners[i].use;
        struct metric_text labels = text_at(samples, samples->owners[i].labels);
        uint64_t refused = 0;

        for (unsigned k = 0; k < use->card_count; k++)
            refused += use->cards[k].refusals;
        export_refusal(labels, ",reason=\"memory-limit\"}", refused, &text, buf);
        export_refusal(labels, ",reason=\"unaccounted\"}", use->unaccounted_refused, &text, buf);
    }
}

static void export_samples(const struct exported *what, const struct samples *samples,
                           struct strbuf *buf)
{
    for (size_t i = 0; i < ARRAY_SIZE(use_families); i++) {
        if (!use_families[i].legacy || what->legacy)
            export_family(samples, &use_families[i], buf);
    }
    export_waits(samples, buf);
    if (what->legacy)
        export_memory_parts(samples, buf);
    for (size_t i = 0; i < ARRAY_SIZE(count_families); i++)
        export_counts(samples, &count_families[i], buf);
    export_refusals(samples, buf);
}

static void export_uses(const struct exported *what, struct strbuf *buf)
{
    struct samples samples = {.texts = STRBUF_INIT(TEXTS_MAX)};
    size_t count = 0;

    for (size_t i = 0; i < what->use_count; i++)
        count += what->uses[i].card_count;
    samples.items = calloc(count + 1, sizeof(*samples.items));
    samples.owners = calloc(what->use_count + 1, sizeof(*samples.owners));
    for (size_t i = 0; samples.items && samples.owners && i < what->use_count; i++)
        add_samples(what, &what->uses[i], &samples);
    buf->failed |= !samples.items || !samples.owners || samples.texts.failed;
    if (!buf->failed)
        export_samples(what, &samples, buf);
    strbuf_deinit(&samples.texts);
    free(samples.owners);
    free(samples.items);
}

static size_t count_nameless(const struct exported *what)
{
    size_t count = 0;

    for (size_t i = 0; i < what->use_count; i++)
        count += !pod_names_find(what->names, what->uses[i].pod_uid);
    return count;
}

void export_metrics(const struct exported *what, struct strbuf *buf)
{
    const struct metric_label version = {"version", what->version};
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(TEXT_MAX);

    metrics_labels(&text, &version, 1);
    metrics_family(buf, "hami_build_info", METRIC_GAUGE, "Always 1; the version is a label");
    metrics_sample(buf, "hami_build_info", strbuf_text(&text), 1);
    export_cards(what, buf);
    export_nvml(what, buf);
    export_pods_age(what, buf);
    export_uses(what, buf);
    export_migs(what, buf);
    export_bypass(what, buf);
    metrics_family(buf, "hami_monitor_nameless_containers", METRIC_GAUGE,
                   "Containers whose pod the API server does not know, or not yet");
    metrics_sample(buf, "hami_monitor_nameless_containers", "", (double)count_nameless(what));
}

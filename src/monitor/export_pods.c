/* SPDX-License-Identifier: Apache-2.0 */

/* Metrics of pods beside those of their containers: MIG instances, uses past the library. */

#include <stdio.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "metrics/metrics.h"
#include "monitor/export_parts.h"

/* Bypasses */

static void export_case(const struct tell_case *item, struct strbuf *buf)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(TEXT_MAX);
    const struct metric_label labels[] = {
        {"zone", "vGPU"},
        {"namespace", item->namespace},
        {"pod", item->pod},
        {"device_uuid", item->uuid},
        {"kind", bypass_word(item->kind)},
    };

    metrics_labels(&text, labels, ARRAY_SIZE(labels));
    metrics_sample(buf, "hami_pod_bypass", strbuf_text(&text), 1);
}

void export_bypass(const struct exported *what, struct strbuf *buf)
{
    if (!what->compares)
        return;
    metrics_family(buf, "hami_monitor_comparison_up", METRIC_GAUGE,
                   "Whether what processes use of the cards is compared with what was given");
    metrics_sample(buf, "hami_monitor_comparison_up", "", what->compare_up);
    metrics_family(buf, "hami_monitor_comparison_age_seconds", METRIC_GAUGE,
                   "Time since the last look at who uses the cards");
    if (what->compare_age_s >= 0)
        metrics_sample(buf, "hami_monitor_comparison_age_seconds", "", what->compare_age_s);
    metrics_family(buf, "hami_pod_bypass", METRIC_GAUGE,
                   "1 while a pod uses a card past the library, or more than it was given");
    for (size_t i = 0; i < what->case_count; i++)
        export_case(&what->cases[i], buf);
    metrics_family(buf, "hami_bypasses_total", METRIC_COUNTER, "Such cases, so far");
    for (unsigned i = BYPASS_NONE + 1; i < BYPASS_KINDS; i++) {
        const struct metric_label label = {"kind", bypass_word(i)};
        CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(TEXT_MAX);

        metrics_labels(&text, &label, 1);
        metrics_sample(buf, "hami_bypasses_total", strbuf_text(&text),
                       (double)what->counts.found[i]);
    }
    metrics_family(buf, "hami_bypass_kills_total", METRIC_COUNTER,
                   "Processes that were ended for it (--bypass=kill)");
    metrics_sample(buf, "hami_bypass_kills_total", "", (double)what->counts.kills);
    metrics_family(buf, "hami_host_gpu_own_processes", METRIC_GAUGE,
                   "Processes on the node's cards that are in no pod");
    metrics_sample(buf, "hami_host_gpu_own_processes", "", (double)what->counts.own);
}

/* MIG instances */

struct migs_export {
    struct strbuf *buf;
    bool legacy;
};

static void export_mig(const struct migs_export *export, const struct pod_name *pod,
                       const struct pod_mig *item)
{
    const struct mig_allocation *mig = &item->mig;
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(TEXT_MAX);
    char device[16], gpu[16], compute[16];
    bool legacy = export->legacy;
    const struct metric_label labels[] = {
        {"zone", "vGPU"},
        {legacy ? "podnamespace" : "namespace", pod->namespace},
        {legacy ? "podname" : "pod", pod->name},
        {legacy ? "ctrname" : "container", item->container},
        {legacy ? "vdeviceid" : "vdevice_index", device},
        {legacy ? "deviceuuid" : "device_uuid", mig->gpu_uuid},
        {legacy ? "instanceid" : "gpu_instance_id", gpu},
        {"mig_uuid", mig->mig_uuid},
        {"profile", mig->profile},
        {"compute_instance_id", compute},
    };

    (void)snprintf(device, sizeof(device), "%u", mig->device);
    (void)snprintf(gpu, sizeof(gpu), "%u", mig->gpu_instance);
    (void)snprintf(compute, sizeof(compute), "%u", mig->compute_instance);
    metrics_labels(&text, labels, legacy ? 7 : ARRAY_SIZE(labels));
    metrics_sample(export->buf, legacy ? "MigInfo" : "hami_mig_device_info", strbuf_text(&text), 1);
}

static void export_pod_migs(void *data, const struct pod_name *pod)
{
    for (size_t i = 0; i < pod->mig_count; i++)
        export_mig(data, pod, &pod->migs[i]);
}

void export_migs(const struct exported *what, struct strbuf *buf)
{
    struct migs_export export = {.buf = buf};

    metrics_family(buf, "hami_mig_device_info", METRIC_GAUGE,
                   "1 for each MIG instance that a container was given");
    pod_names_each(what->names, export_pod_migs, &export);
    if (!what->legacy)
        return;
    export.legacy = true;
    metrics_family(buf, "MigInfo", METRIC_GAUGE, "MIG instances of containers");
    pod_names_each(what->names, export_pod_migs, &export);
}

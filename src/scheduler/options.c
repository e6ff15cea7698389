/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/options.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/options.h"
#include "base/parse.h"
#include "base/util.h"
#include "http/server.h"
#include "place/place.h"

enum {
    BIND_TIMEOUT_MIN_MS = 100,
    BIND_TIMEOUT_MAX_MS = 60000,
    LOCK_TIMEOUT_MIN_MS = 10000,
    LOCK_TIMEOUT_MAX_MS = 24 * 3600 * 1000,
};

static int read_device_policy(char *text, void *member, struct error *err)
{
    if (!place_policy_check(text))
        return error_set(err, -EINVAL,
                         "\"%s\" is not made of binpack, spread, mutex, numa, topology-aware",
                         text);
    return option_text(text, member, err);
}

static int read_policy(char *text, void *member, struct error *err)
{
    enum place_order unread;

    if (!place_node_order_read(text, &unread))
        return error_set(err, -EINVAL, "\"%s\" is none of " PLACE_NODE_ORDERS, text);
    return option_text(text, member, err);
}

static int read_bind_timeout(char *text, void *member, struct error *err)
{
    uint64_t ms = 0;

    if (parse_duration(text, &ms) < 0 || ms < BIND_TIMEOUT_MIN_MS || ms > BIND_TIMEOUT_MAX_MS)
        return error_set(err, -EINVAL, "\"%s\" is not a time from 100ms to 60s", text);
    *(unsigned *)member = (unsigned)ms;
    return 0;
}

static int read_lock_timeout(char *text, void *member, struct error *err)
{
    uint64_t ms = 0;

    if (parse_duration(text, &ms) < 0 || ms < LOCK_TIMEOUT_MIN_MS || ms > LOCK_TIMEOUT_MAX_MS)
        return error_set(err, -EINVAL, "\"%s\" is not a time from 10s to 24h", text);
    *(unsigned *)member = (unsigned)ms;
    return 0;
}

static int check_together(void *data, struct error *err)
{
    const struct options *options = data;

    if (!options->device_config_file)
        return error_set(err, -EINVAL, "--device-config-file is needed");
    if (!options->cert_file != !options->key_file)
        return error_set(err, -EINVAL, "--cert_file and --key_file go together");
    if (options->leader_elect && (!options->lease_name || !options->lease_namespace))
        return error_set(err, -EINVAL,
                         "--leader-elect needs --leader-elect-resource-name and "
                         "--leader-elect-resource-namespace");
    return 0;
}

#define AT(member) offsetof(struct options, member)
#define TEXT(name, member, argument, help)                                                         \
    {                                                                                              \
        name, 0, 0, argument, option_text, AT(member), help                                        \
    }
#define BOOL(name, member, help)                                                                   \
    {                                                                                              \
        name, 0, OPTION_MAY_STAND_ALONE, "BOOL", option_bool, AT(member), help                     \
    }
#define WITHOUT(name, help)                                                                        \
    {                                                                                              \
        name, 0, OPTION_NO_EFFECT, NULL, NULL, 0, help                                             \
    }

static const struct option_row rows[] = {
    {"http_bind", 0, 0, "ADDRESS", http_read_address, AT(http_bind),
     "serve the extender and the webhook here (127.0.0.1:8080)"},
    TEXT("cert_file", cert_file, "FILE", "certificate chain, PEM; read again when it changes"),
    TEXT("key_file", key_file, "FILE", "its key"),
    {"metrics-bind-address", 0, 0, "ADDRESS", http_read_address, AT(metrics_bind),
     "serve /metrics here, without TLS (:9395)"},
    TEXT("scheduler-name", scheduler_name, "NAME",
         "the scheduler that pods with devices are given to, and the source of events (none: pods "
         "keep theirs, and events are hami-scheduler's)"),
    BOOL("leader-elect", leader_elect,
         "decide only while the kube-scheduler of this host holds its lease: needed by more than "
         "one "
         "replica (false)"),
    TEXT("leader-elect-resource-name", lease_name, "NAME",
         "the lease's (none: needed with --leader-elect)"),
    TEXT("leader-elect-resource-namespace", lease_namespace, "NAMESPACE", "the same"),
    {"bind-timeout", 0, 0, "TIME", read_bind_timeout, AT(bind_timeout_ms),
     "how long the API server may take to bind a pod; a new leader or process waits a third longer "
     "before it decides (3s)"},
    BOOL("enable-ascend", enable_ascend,
         "serve the chips of the device configuration's section vnpus (true)"),
    BOOL("enable-iluvatar", enable_iluvatar, "the same of its section iluvatars (true)"),
    BOOL("force-overwrite-default-scheduler", overwrite_default_scheduler,
         "of pods that name default-scheduler, too (true)"),
    TEXT("device-config-file", device_config_file, "FILE", "device-config.yaml; needed"),
    {"node-scheduler-policy", 0, 0, "POLICY", read_policy, AT(node_policy),
     "binpack, spread or scarcity, for pods that do not say (binpack)"},
    {"gpu-scheduler-policy", 0, 0, "POLICY", read_device_policy, AT(device_policy),
     "binpack, spread, mutex or topology-aware among a node's devices, or several of these and "
     "numa "
     "with commas between (spread)"},
    BOOL("evict-for-devices", evict_for_devices,
         "where devices alone are short, evict less important pods that hold them; needs the right "
         "to create pods/eviction (false)"),
    TEXT("node-label-selector", node_selector, "LABELS", "k=v,k=v: know only such nodes"),
    TEXT("kubeconfig", kubeconfig, "FILE",
         "else $KUBECONFIG, the pod's ServiceAccount, ~/.kube/config"),
    WITHOUT("kube-qps", "without effect: requests are not limited here but by the server"),
    WITHOUT("kube-burst", "without effect, as --kube-qps"),
    WITHOUT("kube-timeout", "without effect: each request has its own time"),
    {"node-lock-timeout", 0, 0, "TIME", read_lock_timeout, AT(node_lock_timeout_ms),
     "how old a lock on a node may be before it is broken (5m)"},
    WITHOUT("node-lock-retry-timeout", "without effect: a bind waits 8s for its turn"),
    BOOL("legacy-metrics", legacy_metrics,
         "export metrics under HAMi's former names (GPUDeviceMemoryLimit, QuotaUsed...), too "
         "(false)"),
    WITHOUT("profiling", "without effect"),
    WITHOUT("debug", "without effect: see -v"),
    WITHOUT("logtostderr", "without effect: it always does"),
    {"verbosity", 'v', 0, "N", option_verbosity, 0, "from 5 on decisions are logged in detail (0)"},
    {.name = "v", .flags = OPTION_OTHER_NAME},
};

static const struct option_table table = {
    .rows = rows,
    .count = ARRAY_SIZE(rows),
    .version = "hami-scheduler " HAMI_VERSION,
    .doc =
        "Chooses nodes and devices for pods: kube-scheduler's extender, and the webhook that makes "
        "pods ready for it.",
    .check = check_together,
};

void options_parse(int argc, char **argv, struct options *ret_options)
{
    struct options options = {
        .http_bind = "127.0.0.1:8080",
        .metrics_bind = ":9395",
        .scheduler_name = "",
        .node_policy = "binpack",
        .device_policy = "spread",
        .overwrite_default_scheduler = true,
        .bind_timeout_ms = 3000,
        .node_lock_timeout_ms = 300000,
        .enable_ascend = true,
        .enable_iluvatar = true,
    };

    options_read(&table, argc, argv, &options);
    *ret_options = options;
}

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hami-scheduler's command line: HAMi's flags, from one table. */

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *http_bind;
    const char *metrics_bind;
    const char *cert_file, *key_file; /* NULL: plain HTTP */
    const char *scheduler_name;       /* "": pods keep the one that they name */
    const char *device_config_file;
    const char *kubeconfig; /* NULL: as kube_config_load() finds it */
    const char *node_policy, *device_policy;
    const char *node_selector; /* NULL: all nodes */
    bool overwrite_default_scheduler;
    bool leader_elect;
    const char *lease_name, *lease_namespace; /* NULL: not given */
    unsigned bind_timeout_ms, node_lock_timeout_ms;
    bool enable_ascend, enable_iluvatar;
    bool evict_for_devices;
    bool legacy_metrics;
};

/* Prints help, version or an error, and exits then. */
void options_parse(int argc, char **argv, struct options *ret_options);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is done about those who use cards past the library: an event on the pod, a condition of the
 * Node, and, by policy, SIGKILL. A pod whose name is not known (yet) is left alone, and so are
 * those of exempt namespaces, whose pods are the node's own (DCGM, MPS).
 */

#include <stdbool.h>
#include <stddef.h>

#include "kube/client.h"
#include "monitor/bypass.h"
#include "monitor/podnames.h"

#define TELL_EXEMPT "kube-system,hami-system,gpu-operator,nvidia-gpu-operator"
#define TELL_CONDITION "hami.io/DevicesBypassed"

struct tell;

struct tell_options {
    const char *node_name;
    const char *exempt; /* namespaces, with commas */
    const char *procfs;
    bool kills; /* processes that hold memory which is not theirs */
    struct kube_client *kube;
    const struct pod_names *names;
};

/* A case that counts, for metrics. */
struct tell_case {
    const char *namespace, *pod; /* good until the names change */
    const char *uuid;
    enum bypass_kind kind;
};

/* NULL: no memory. */
struct tell *tell_new(const struct tell_options *options);
void tell_free(struct tell *tell);

/* After each look. */
void tell_act(struct tell *tell, struct bypass *bypass, const struct bypass_look *look);

/* For metrics: what counts now, at most max; the number of processes of the node itself; of cases
 * by kind and of kills, so far. */
struct tell_counts {
    size_t own;
    uint64_t found[BYPASS_KINDS], kills;
};
size_t tell_read(const struct tell *tell, struct tell_case *ret_cases, size_t max,
                 struct tell_counts *ret_counts);

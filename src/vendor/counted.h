/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Devices of a node whose agent registers nothing: kubelet says how many there are. */

#include "vendor/vendor.h"

/* Devices that are all alike. */
struct counted {
    const char *resource; /* of the node's capacity, for messages */
    const char *word;     /* in their ids, "NODE-WORD-3" */
    int64_t count;
    int64_t healthy; /* of them: nobody says which, so the last ones, which are preferred and so in
                        use */
    struct device sample; /* what a device is beside its number */
};

/* vendor.read_node, with so many devices. -ENOENT: there are none. */
int counted_list(const struct vendor_instance *instance, const struct node *node,
                 const struct counted *counted, struct device *ret_devices, size_t max,
                 size_t *ret_count, struct error *err);

/*
 * vendor.read_node, out of the capacity of the instance's count_resource: so many copies of the
 * sample, numbered from 0, with ids like HAMi's, "NODE-WORD-3". -ENOENT: there are none. kubelet
 * counts a sick device in the capacity and not among the allocatable: so many are not healthy, and
 * since nobody says which, it is the first ones. The vendor needs counts_resources.
 */
int counted_read(const struct vendor_instance *instance, const struct node *node, const char *word,
                 const struct device *sample, struct device *ret_devices, size_t max,
                 size_t *ret_count, struct error *err);

/* A whole amount that a node has, above 0; 0: it has none. */
int64_t counted_amount(const struct resource_list *resources, const char *name);

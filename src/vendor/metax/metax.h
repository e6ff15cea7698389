/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MetaX's GPUs: whole ones ("Metax-GPU"), whose number is all that kubelet knows, and shares of
 * them ("Metax-SGPU"), which their agent registers in a form of its own.
 */

#include "vendor/vendor.h"

/* Section `metax` of the device configuration. Names are "" where there is none. */
struct metax_config {
    char count_name[SECTION_NAME_SIZE];   /* whole cards */
    char vcount_name[SECTION_NAME_SIZE];  /* shares */
    char vmemory_name[SECTION_NAME_SIZE]; /* of each; without a unit GiB */
    char vcore_name[SECTION_NAME_SIZE];   /* percent of each card */
    bool sgpu_topology;                   /* nodes are preferred whose idle cards stay connected */
};

extern const struct vendor metax_vendor, metax_sgpu_vendor;

/* The instance of shares. */
struct vendor_instance metax_sgpu_instance(const struct metax_config *config);

/* Shares. */

#define METAX_SGPU_WORD "Metax-SGPU"
#define METAX_APP_CLASS "metax-tech.com/sgpu-app-class" /* on a pod: online, offline */
#define METAX_QOS "metax-tech.com/sgpu-qos-policy"      /* on a pod: one of metax_qos_names */
#define METAX_TOPOLOGY                                                                             \
    "metax-tech.com/sgpu-topology-aware" /* on a pod, instead of the config's                      \
                                          */

enum metax_class {
    METAX_NO_CLASS = 0,
    METAX_ONLINE,  /* takes no compute */
    METAX_OFFLINE, /* runs beside online ones */
};

/* How the shares of a card are scheduled by the card. */
enum metax_qos {
    METAX_NO_QOS = 0,
    METAX_BEST_EFFORT,
    METAX_FIXED_SHARE,
    METAX_BURST_SHARE,
    METAX_OTHER_QOS, /* that has no name here */
};

extern const char *const metax_class_names[]; /* "", "online", "offline"; NULL at the end */
extern const char *const metax_qos_names[];   /* "", "best-effort", ...; NULL at the end */

/* What a card is to its rules. */
struct metax_facts {
    enum metax_qos qos;
    int32_t zone; /* of its links; 0: none */
};

/* What a request is to them. */
struct metax_wishes {
    enum metax_class app_class;
    enum metax_qos qos;
    bool topology;
};

void metax_read_wishes(const struct metax_config *config, const struct text_pairs *annotations,
                       struct metax_wishes *ret_wishes);

/* What of a share its text doesn't say, as parts of the card; cores are the share's. */
uint64_t metax_parts(const struct metax_wishes *wishes, unsigned cores);

extern const struct place_rules metax_sgpu_rules;

/* vendor.read_node. */
int metax_sgpu_read_node(const struct vendor_instance *instance, const struct node *node,
                         struct arena *arena, struct device *ret_devices, size_t max,
                         size_t *ret_count, struct error *err);

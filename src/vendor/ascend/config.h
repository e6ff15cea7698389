/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Section `vnpus` of the device configuration: Huawei's chips, an instance of the vendor for each.
 */

#include "vendor/vendor.h"

enum {
    ASCEND_CHIPS = 16,
    ASCEND_TEMPLATES = 16, /* of a chip */
    ASCEND_KEY_SIZE = 128,
};

/* A part into which a chip is cut. */
struct ascend_template {
    char name[64];
    int32_t memory_mib;
};

struct ascend_chip {
    char word[64]; /* "Ascend910B3" */
    char count_name[SECTION_NAME_SIZE], memory_name[SECTION_NAME_SIZE];
    char cores_name[SECTION_NAME_SIZE]; /* percent of a chip, for soft split */
    char runtime_class[SECTION_NAME_SIZE];
    int32_t allocatable_mib, capacity_mib;
    int32_t memory_factor; /* MiB in a unit of requested memory; 0 and 1: one */
    bool hides_chips;      /* from containers that ask for none */
    bool is_super_pod;     /* chips are given out by the card of two */
    size_t template_count;
    struct ascend_template templates[ASCEND_TEMPLATES]; /* by their memory, ascending */

    char register_key[ASCEND_KEY_SIZE], handshake_key[ASCEND_KEY_SIZE];
    char allocate_key[ASCEND_KEY_SIZE], allocated_key[ASCEND_KEY_SIZE];
    char use_key[ASCEND_KEY_SIZE], avoid_key[ASCEND_KEY_SIZE];
    char chip_key[ASCEND_KEY_SIZE]; /* on a pod, for the chip's own agent */

    const struct ascend_config *config; /* that it stands in */
};

struct ascend_config {
    bool soft_split; /* on nodes that don't say it themselves */
    size_t count;
    struct ascend_chip chips[ASCEND_CHIPS];
};

void ascend_config_missing(void *ret_config);
int ascend_config_read(const struct section_reading *reading, const struct section *section,
                       void *config);

/* What a chip gives for so much memory: a template's memory and name, or all of the chip and "", or
 * 0 if that is more than it has. */
int32_t ascend_trim(const struct ascend_chip *chip, int64_t mib, const char **ret_name);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HAMi's device-config.yaml: a section for each vendor, which the vendor reads itself. An unknown
 * key is an error in any section, also in those of vendors that HAMi serves and this system does
 * not yet; any other section is an error.
 */

#include "base/arena.h"
#include "base/error.h"
#include "vendor/section.h"
#include "vendor/vendor.h"

enum {
    DEVICE_CONFIG_SECTIONS = 32,
};

struct device_config {
    struct arena *arena;
    struct section_doubts *doubts; /* the arena's */
    size_t count;
    struct {
        const struct vendor *vendor;
        const void *config; /* of the vendor's own type */
    } sections[DEVICE_CONFIG_SECTIONS];
};

/*
 * Reads a file of at most 256 KiB, or a ConfigMap's manifest with the file device-config.yaml in
 * it, in which some vendor has a section and each that has one can be asked for. -EINVAL with the
 * key, its line and column in err; -EFBIG, -ENOENT and the like for the file itself. The caller
 * frees the configuration by device_config_deinit().
 */
int device_config_load(const char *path, struct device_config *ret_config, struct error *err);

/* The same for what was in a file, which is written to; '\0' follows it. */
int device_config_read(const char *name, char *text, size_t len, struct device_config *ret_config,
                       struct error *err);

/* For a text without a manifest around it, which may have no section; name stands for it in
 * messages. */
int device_config_parse(const char *name, const char *text, size_t len,
                        struct device_config *ret_config, struct error *err);

void device_config_deinit(struct device_config *config);

/* Drops this section, if there is one: nothing of it is served. */
void device_config_leave_out(struct device_config *config, const char *section);

/* What a vendor read of its section; NULL: it has none. */
const void *device_config_of(const struct device_config *config, const struct vendor *vendor);

/* The configured vendors. The set points into the configuration, which outlives it. -E2BIG: there
 * are too many. */
int device_config_vendors(const struct device_config *config, struct vendor_set *ret_set);

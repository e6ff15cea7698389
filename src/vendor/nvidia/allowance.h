/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HAMi 2.10's migProfileAllowlist: which profiles cards in MIG mode may be cut into, by model. A
 * model's entry is the first one with a name that is part of the model's. A model without an entry
 * may be cut in every way that knownMigGeometries has for it.
 */

#include "vendor/nvidia/nvidia.h"

/* The entry of a model; NULL: it has none. */
const struct nvidia_allowance *allowance_find(const struct nvidia_config *config,
                                              const char *model);

/* Whether the entry lists a profile by this name. */
bool allowance_lists(const struct nvidia_allowance *allowance, const char *profile);

/*
 * The instances of a model's knownMigGeometries that its entry does not allow, as parts (mig.h).
 * An instance is allowed if its profile's name is listed. HAMi goes by a profile's slices alone
 * (its list says 7g.79gb of cards that have 7g.80gb): so a listed name that the geometries of the
 * model don't have allows the profiles of as many slices. Names with a "+" stand for themselves.
 */
uint64_t allowance_barred(const struct nvidia_config *config, const char *model);

/* A name in knownMigGeometries whose instances are all barred; NULL: there is none. */
const char *allowance_find_useless(const struct nvidia_config *config);

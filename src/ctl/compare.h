/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"
#include "ctl/objects.h"

/*
 * For hamictl simulate: places the pods that wait by each of these policies ("scarcity,binpack"),
 * and prints how much is allocated, how many pods were refused, and of each class how many more
 * would fit. Files are read once for each. -EINVAL and others, with err.
 */
int compare_policies(const struct objects_options *options, const char *policies, bool json,
                     struct error *err);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The nodes, devices and pods of a Kubernetes cluster, for hamictl top. */

#include <stdbool.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "ctl/objects.h"

/* Of objects in files, or of what the scheduler's /debug/view says: as tables or as that view. */
int top_print_cluster(const struct objects_options *options, bool json, struct strbuf *text,
                      struct error *err);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a granted program finds: its folder in the registry, and its environment. */

#include <stdbool.h>

#include "base/error.h"
#include "ctl/local.h"
#include "ctl/registry.h"

/*
 * Makes runs/ID with libvgpu.so and its limits file, and changes hamictl's own environment into the
 * program's. The limits file rules; the environment says the same for programs that read it.
 */
int guest_prepare(struct registry *registry, const struct local *local, const struct lease *lease,
                  bool allow_unaccounted, struct error *err);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a granted program finds: its folder in the book, and its environment. */

#include <stdbool.h>

#include "base/error.h"
#include "ctl/book.h"
#include "ctl/local.h"

/*
 * Makes runs/ID with libvgpu.so and its limits file, and changes hamictl's own environment into the
 * program's. The limits file rules; the environment says the same for programs that read it.
 */
int guest_prepare(struct book *book, const struct local *local, const struct grant *grant,
                  bool allow_unaccounted, struct error *err);

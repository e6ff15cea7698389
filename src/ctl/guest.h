/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a granted program finds: its folder in the registry, and its environment. */

#include <stdbool.h>

#include "base/error.h"
#include "ctl/local.h"
#include "ctl/registry.h"
#include "region/limits.h"

struct guest_wishes {
    bool allow_imports;
    bool allow_unaccounted;
    enum limits_managed managed;
    bool oversubscribe; /* what the card has no room for lives on the host */
    bool borrow;        /* use what others leave idle of a card */
    int priority;       /* 0 is high */
};

/*
 * Makes runs/ID with libvgpu.so and its limits file, and changes hamictl's own environment into the
 * program's. The limits file rules; the environment says the same for programs that read it.
 */
int guest_prepare(struct registry *registry, const struct local *local, const struct lease *lease,
                  const struct guest_wishes *wishes, struct error *err);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A list of mutations as a JSON patch (RFC 6902). Inside admit only. */

#include "base/arena.h"
#include "model/pod.h"
#include "vendor/vendor.h"

/* The patch adds what the mutations say, and the objects that they need around it. NULL: the arena
 * is full. */
const char *patch_format(const struct pod *pod, const struct mutations *mutations,
                         struct arena *arena);

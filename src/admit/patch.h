/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A list of edits as a JSON patch (RFC 6902). Inside admit only. */

#include "base/arena.h"
#include "model/pod.h"
#include "vendor/vendor.h"

/* Adds what the edits say, and the objects they need around it. NULL: the arena is full. */
const char *patch_format(const struct pod *pod, const struct edits *edits, struct arena *arena);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Kubernetes objects out of files: YAML, of one document or several, or JSON; lists of objects, as
 * `kubectl get -o json` prints them, too. */

#include <stddef.h>
#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"

/* Takes an object, which is good until the function returns. A negative return ends the reading. */
typedef int manifest_fn(void *data, yyjson_val *object, struct error *err);

/*
 * Reads a text whose name is for messages; the arena is used for each document anew, from where it
 * stands. -EINVAL with line and column, -E2BIG for a document that is too deep or too large,
 * -ENOMEM, or what take() returned.
 */
int manifest_read(const char *name, const char *text, size_t len, struct arena *arena,
                  manifest_fn *take, void *data, struct error *err);

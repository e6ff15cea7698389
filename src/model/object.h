/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What pods and nodes have in common, and the steps of reading them out of JSON. Inside model only.
 *
 * Functions return 0, -EINVAL with the field's path in err, or -ENOMEM. null is as good as absent.
 */

#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/pod.h"
#include "model/text.h"

/* The object being read, for messages and memory. */
struct reading {
    const struct kept_names *kept;
    struct arena *arena;
    struct error *err;
};

/* kept may be NULL. */
struct reading reading_of(const struct kept_names *kept, struct arena *arena, struct error *err);

bool has_prefix(const char *name, const char *const *prefixes, size_t count);

struct metadata {
    const char *namespace, *name, *uid, *resource_version;
    struct text_pairs annotations, labels;
    bool has_annotations; /* kept or not */
    bool deleting;
};

int reading_no_memory(const struct reading *reading);

/* "where: what" */
int reading_refuse(const struct reading *reading, const char *where, const char *what);

/* The member of this name as an object, an array; NULL when it is absent. */
int reading_object(const struct reading *reading, yyjson_val *parent, const char *where,
                   const char *key, yyjson_val **ret_value);
int reading_array(const struct reading *reading, yyjson_val *parent, const char *where,
                  const char *key, yyjson_val **ret_value);

/* The member of this name as text, "" when it is absent. */
int reading_text(const struct reading *reading, yyjson_val *parent, const char *where,
                 const char *key, const char **ret_text);

/* Annotations and labels by prefix; labels by name instead, when names is not NULL. */
int reading_metadata(const struct reading *reading, yyjson_val *object,
                     const struct text_list *label_names, struct metadata *ret_metadata);

/* A list of resources, those with a domain in their name. */
int reading_resources(const struct reading *reading, yyjson_val *parent, const char *where,
                      const char *key, bool *ret_present, struct resource_list *ret_list);

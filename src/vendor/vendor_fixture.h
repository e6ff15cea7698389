/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For the tests of vendors: one vendor that is configured, a node's devices, pods that get some. */

#include "base/check.h"
#include "vendor/vendor.h"

struct vendor_fixture {
    struct arena *arena;
    struct vendor_set vendors;
    char *config;
    struct device devices[PLACE_MAX_DEVICES];
    struct place_node node;
    struct text_pair pairs[VENDOR_MAX_ANNOTATIONS]; /* of the pod that was placed last */
    struct text_pairs written;
    struct place_failure failure; /* of the last that was not */
};

/* The vendor with these keys of its section, each with its text. */
void vendor_fixture_init(struct vendor_fixture *fixture, const struct vendor *vendor,
                         const char *const (*keys)[2], size_t count);

/* The vendor with this section. */
void vendor_fixture_load(struct vendor_fixture *fixture, const struct vendor *vendor,
                         const struct section *section);
void vendor_fixture_deinit(struct vendor_fixture *fixture);

/* A Node as JSON. */
struct node vendor_fixture_parse(struct vendor_fixture *fixture, const char *text);

/* Its devices, of all instances, instead of those before; unused. */
void vendor_fixture_set_node(struct vendor_fixture *fixture, const char *text);

/* A pod of one container; annotations and limits are the insides of JSON objects. */
struct pod vendor_fixture_pod(struct vendor_fixture *fixture, const char *annotations,
                              const char *limits);

/* Places it; PLACE_FITS: its devices are charged and its annotations written. */
int vendor_fixture_place(struct vendor_fixture *fixture, const char *annotations,
                         const char *limits);

/* The annotation of a pod that is placed; "" where it has none, or there is no room. */
const char *vendor_fixture_give(struct vendor_fixture *fixture, const char *annotations,
                                const char *limits, const char *key);

/* Why a pod finds no room; "" when it does. */
const char *vendor_fixture_refuse(struct vendor_fixture *fixture, const char *annotations,
                                  const char *limits);

/* What admission says of the pod, by the set's instance of this number; as vendor.mutate. */
int vendor_fixture_admit(struct vendor_fixture *fixture, size_t instance, const char *annotations,
                         const char *limits, struct mutations *mutations, struct error *err);

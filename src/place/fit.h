/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "place/place.h"
#include "place/rules.h"

/* The rules of a vendor; NULL has none of its own. Inside place only. */
static inline const struct place_rules *rules_of(const struct device_vendor *vendor)
{
    static const struct place_rules none = {0};

    return vendor ? vendor->rules : &none;
}

/*
 * Whether devices as they are have room for one request; place_fit() without choosing and without
 * reasons. Inside place only.
 */
bool fit_may_take(const struct device *devices, size_t count, const struct request *request,
                  const struct place_policy *policy);

/* What a request takes of a device, whatever is used of it; false: it is not of the types that are
 * asked for. Inside place only. */
bool fit_want(const struct request *request, const struct device *device,
              struct device_usage *ret_wanted);

/* False only when place_fit() refuses the device to every request. Inside place only. */
bool fit_is_usable(const struct device *device);

/* A verdict on each device, as place_fit() judges it alone. Inside place only. */
void fit_explain(const struct device *devices, size_t count, const struct place_ask *ask,
                 const struct place_policy *policy, struct place_verdict *ret_verdicts);

/* One grant more on a device, or one less if by is -1. */
void device_charge(struct device *device, const struct device_usage *usage, int by);

/* How many cores a usage is. */
static inline unsigned cores_counted(const struct place_rules *rules,
                                     const struct device_usage *usage)
{
    return rules->cores_are_parts ? (unsigned)__builtin_popcountll(usage->parts) : usage->cores;
}

/* What one container's device takes of it. */
struct device_usage usage_of_granted(const struct device_vendor *vendor,
                                     const struct container_device *granted);

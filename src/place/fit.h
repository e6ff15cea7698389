/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "place/place.h"

/*
 * Whether devices as they are have room for one request; place_fit() without choosing and without
 * reasons. Inside place only.
 */
bool fit_may_take(const struct device *devices, size_t count, const struct request *request,
                  const struct place_policy *policy);

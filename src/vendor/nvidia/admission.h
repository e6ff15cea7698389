/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What admission changes in a container that asks for NVIDIA's devices. */

#include "vendor/vendor.h"

/* vendor.mutate */
int nvidia_mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err);

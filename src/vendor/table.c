/* SPDX-License-Identifier: Apache-2.0 */

/* The vendors: a folder each, and a line here. */

#include "vendor/nvidia/nvidia.h"

const struct vendor *const vendor_table[] = {
    &nvidia_vendor,
    NULL,
};

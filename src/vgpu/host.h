/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The host's memory that the driver keeps in place: so much more of it, or less. */

#include "vgpu/vgpu.h"

void host_count(int64_t units);

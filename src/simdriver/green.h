/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Green contexts, for whoever looks handles up. All of this is what the process alone knows: a
 * stream of one is a stream of the device's primary context, which each of them retains.
 */

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda.h"

/* The handles by which one is used as a context. */
bool green_is_context(CUcontext handle);

/* The primary context that one stands for; false: it has ended, or that has. */
bool green_find(CUcontext handle, uint32_t *ret_context);

/* Under the machine's lock. The stream that stands for the default one where a green context is
 * current; false: none is. */
bool green_default_stream(uint32_t context, CUresult *ret_result, uint32_t *ret_stream);

/* A stream was made: it is the current green context's, if there is one. */
void green_note_stream(uint32_t stream);

/* Its green context has ended. */
bool green_is_detached(uint32_t stream);

/* Of a stream; NULL: it is of none. */
CUgreenCtx green_of_stream(uint32_t stream, CUcontext *ret_context);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* External semaphores that are signalled, or waited for, together: as a call has them, or a node of
 * a graph, and the other way round. They stay as they are made. */

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda.h"

struct semaphores {
    unsigned holds;
    bool signals; /* else they are waited for */
    unsigned count;
    CUexternalSemaphore *list;
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params; /* of a wait, too: they are alike */
};

/* A copy of the lists, with one hold. CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE (one is
 * none), CUDA_ERROR_OUT_OF_MEMORY. Takes the machine's lock. */
CUresult semaphores_new(bool signals, const CUexternalSemaphore *list,
                        const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count,
                        struct semaphores **ret);
void semaphores_hold(struct semaphores *semaphores);
void semaphores_drop(struct semaphores *semaphores); /* NULL is none */

/* Under the machine's lock: puts them into a stream, all or none. CUDA_ERROR_INVALID_HANDLE: one is
 * gone. */
CUresult semaphores_enqueue(uint32_t stream, const struct semaphores *semaphores);

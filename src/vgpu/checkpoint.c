/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checkpoints. While a process is away from the device it stays charged what it had, for the ledger
 * has it, and what NVML does not list is not taken for gone while a context lives (usage.c). A
 * restore brings it all back, which may be to other devices than it was taken from: there nobody
 * has charged it.
 */

#include <string.h>

#include "vgpu/real.h"
#include "vgpu/vgpu.h"

enum {
    PAIRS = 64, /* devices of a process, at most */
};

static bool moves(const CUcheckpointGpuPair *pairs, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (memcmp(&pairs[i].oldUuid, &pairs[i].newUuid, sizeof(CUuuid)) != 0)
            return true;
    }
    return false;
}

static CUresult refuse(void)
{
    return vgpu_refuses(VGPU_WORD_UNACCOUNTED, "cuCheckpointProcessRestore",
                        "what comes back on another device than it was on is charged to the first")
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

/* The driver is given the pairs that were looked at. */
PUBLIC CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    CUcheckpointGpuPair pairs[PAIRS];
    CUcheckpointRestoreArgs own;
    CUresult result;

    if (vgpu_mode() == VGPU_OFF || vgpu_mode() == VGPU_DETACHED || !args)
        return REAL(cuCheckpointProcessRestore)(pid, args);
    own = *args;
    if (!own.gpuPairs || !own.gpuPairsCount)
        return REAL(cuCheckpointProcessRestore)(pid, &own);
    if (own.gpuPairsCount > PAIRS)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(pairs, own.gpuPairs, own.gpuPairsCount * sizeof(pairs[0]));
    own.gpuPairs = pairs;
    result = moves(pairs, own.gpuPairsCount) ? refuse() : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? REAL(cuCheckpointProcessRestore)(pid, &own) : result;
}

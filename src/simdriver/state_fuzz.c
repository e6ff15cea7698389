/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any file is refused as a machine, or has a header that can be trusted. The input is a file's
 * beginning; its size is made right, which is checked elsewhere, or it would never get further.
 */

#include "simdriver/state.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fuzz.h"
#include "base/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTOCLOSE int fd = memfd_create("state", MFD_CLOEXEC);
    struct error err = ERROR_INIT;
    struct sim_state *state;

    size = MIN(size, sizeof(struct sim_header));
    if (fd < 0 || ftruncate(fd, (off_t)sizeof(struct sim_state)) < 0 ||
        pwrite(fd, data, size, 0) != (ssize_t)size)
        return 0;

    if (sim_map(fd, &state, &err) < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    if (state->header.gpu_count > SIM_MAX_GPUS || !sim_driver_is_sane(&state->header.driver))
        abort();
    for (unsigned i = 0; i < state->header.gpu_count; i++) {
        if (strnlen(state->header.gpus[i].uuid, 48) == 48 || !state->header.gpus[i].multiprocessors)
            abort();
    }
    sim_unmap(state);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/patience.h"
#include "nvml/instances.h"

enum {
    /* Without nvidia-persistenced the driver sets each GPU up anew, some seconds for each. */
    OPEN_S = 60,
};

static int open_simulated(struct local *local, struct error *err)
{
    char library[PATH_MAX + 32];
    struct stat st;
    int r;

    if (stat(local->machine, &st) < 0)
        return error_set(err, -errno,
                         "there is no simulated machine at HAMI_SIM=%s: %s; make it with "
                         "\"hamictl sim create\", or unset HAMI_SIM to use real GPUs",
                         local->machine, strerror(errno));
    if (setenv("HAMI_SIM", local->machine, 1) < 0)
        return error_set(err, -errno, "%s", strerror(errno));

    (void)snprintf(library, sizeof(library), "%s/libnvidia-ml.so.1", local->paths.sim);
    if (access(library, R_OK) < 0)
        return error_set(err, -errno,
                         "the simulated driver is not at %s: %s; HAMI_LIBDIR names the folder of "
                         "an installation",
                         library, strerror(errno));
    r = nvml_open(library, &local->nvml, err);
    return r < 0 ? error_wrap(err, r, "cannot use the simulated machine %s", local->machine) : 0;
}

static int open_real(struct local *local, struct error *err)
{
    struct error why = ERROR_INIT;
    int r;

    r = nvml_open("libnvidia-ml.so.1", &local->nvml, &why);
    if (r < 0)
        return error_set(err, r,
                         "no GPU: %.300s. Install NVIDIA's driver, or make a simulated machine: "
                         "hamictl sim create /tmp/gpus; export HAMI_SIM=/tmp/gpus",
                         why.text);
    return 0;
}

/* A program that is granted such a card would find no device. */
static void find_split(struct local *local)
{
    for (size_t i = 0; i < local->device_count; i++) {
        struct device *device = &local->devices[i];
        bool on = false, pending = false;

        if (!device->healthy ||
            nvml_read_mig_mode(local->nvml, device->index, &on, &pending, NULL) < 0)
            continue;
        local->is_split[i] = on;
        device->healthy = !on;
    }
}

static int find_devices(void *work, struct error *err)
{
    struct local *local = work;
    int r = *local->machine ? open_simulated(local, err) : open_real(local, err);

    if (r == 0)
        r = nvml_list(local->nvml, local->devices, LOCAL_MAX_DEVICES, err);
    if (r < 0)
        return r;
    local->device_count = (size_t)r;
    find_split(local);
    return 0;
}

int local_open(struct local *ret_local, struct error *err)
{
    int r;

    *ret_local = (struct local){.nvml = NULL};
    r = paths_find(&ret_local->paths, err);
    if (r == 0)
        r = paths_find_machine(ret_local->machine, err);
    if (r == 0)
        r = patience_call(find_devices, ret_local, sizeof(*ret_local), OPEN_S, err);
    if (r == 0)
        r = paths_open_state(ret_local->machine, ret_local->state, err);
    if (r < 0)
        local_close(ret_local);
    return r;
}

void local_close(struct local *local)
{
    if (!patience_is_lost())
        nvml_close(local->nvml);
    local->nvml = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/find.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#if defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif

const char *const driver_library_folders[] = {
    "usr/lib/" MULTIARCH, /* Debian, Ubuntu */
    "usr/lib64",          /* Red Hat, SUSE, Amazon */
    "usr/lib",            /* Arch */
    "lib/" MULTIARCH,
    "lib64",
    "home/kubernetes/bin/nvidia/lib64", /* Google's Container-Optimized OS */
    "var/lib/nvidia/lib64",             /* the same, without Kubernetes */
    "opt/nvidia/lib64",                 /* Flatcar */
    "opt/nvidia/current/usr/lib64",
    "usr/lib/nvidia/tesla",  /* Bottlerocket */
    "run/opengl-driver/lib", /* NixOS */
    "usr/lib/wsl/lib",
    NULL,
};

const char *const driver_usual_roots[] = {
    "/driver-root",       /* the host's root in our pods */
    "/run/nvidia/driver", /* GPU Operator's driver container */
    "/driver-root/run/nvidia/driver",
    "",
    NULL,
};

static int open_below(const char *root, struct nvml **ret_nvml, struct error *err)
{
    char path[PATH_MAX];

    for (size_t i = 0; driver_library_folders[i]; i++) {
        int len =
            snprintf(path, sizeof(path), "%s/%s/" NVML_LIBRARY, root, driver_library_folders[i]);

        if (len < (int)sizeof(path) && access(path, F_OK) == 0)
            return nvml_open(path, ret_nvml, err);
    }
    return -ENOENT;
}

int nvml_find(const char *root, const char *const *roots, struct nvml **ret_nvml, struct error *err)
{
    int r = nvml_open(NVML_LIBRARY, ret_nvml, NULL);

    if (r == -ENOENT && root)
        r = open_below(root, ret_nvml, err);
    else if (r < 0 && r != -ENOENT)
        return nvml_open(NVML_LIBRARY, ret_nvml, err);
    for (size_t i = 0; r == -ENOENT && roots[i]; i++)
        r = open_below(roots[i], ret_nvml, err);
    if (r != -ENOENT)
        return r;
    return error_set(
        err, r,
        "there is no " NVML_LIBRARY
        ", neither among the loader's folders nor below %s%s%s: NVIDIA's driver is not "
        "installed, or elsewhere (--nvidia-driver-root)",
        root ? root : "", root ? ", " : "", "/run/nvidia/driver, /");
}

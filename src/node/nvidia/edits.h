/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The CDI specification of a container's grant (environment, files, device nodes), and its limits
 * file, as texts. No I/O.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "model/device.h"
#include "node/nvidia/cdi.h"
#include "region/limits.h"
#include "vendor/nvidia/nvidia.h"

#define CDI_KIND "hami.io/alloc"
#define CDI_FILE_PREFIX "hami-" /* and the device's name, and ".json" */

#if defined(__x86_64__)
#define DRIVER_LIBRARY_FOLDER "/usr/lib/x86_64-linux-gnu"
#elif defined(__aarch64__)
#define DRIVER_LIBRARY_FOLDER "/usr/lib/aarch64-linux-gnu"
#else
#error "where are libraries on this machine?"
#endif

/* The host's root in our own pod, if we run in one; see deploy/node.yaml. */
#define HOST_ROOT "/driver-root"

/* Where our files are in every container, whatever the host's folders. */
#define CONTAINER_FOLDER "/usr/local/vgpu"

enum {
    EDITS_NAME_SIZE = 32,
    EDITS_REGION_SIZE = 64,
};

/* The node's files and settings that containers' specifications need. */
struct node_host {
    char hook_path[PATH_MAX]; /* "/usr/local/vgpu": the library, and a folder a container */
    char cdi_folder[PATH_MAX];
    char library[PATH_MAX];     /* the versioned file on the host */
    char dev_root[PATH_MAX];    /* in front of /dev/nvidia0 on the host; "" for none */
    bool pass_device_specs;     /* list device nodes, unless the driver's edits do */
    char sim_machine[PATH_MAX]; /* a simulated machine's state file; "" with real cards */
    char sim_folder[PATH_MAX];  /* of the simulated libraries */
    const struct nvidia_config *config;
};

struct granted_device {
    char uuid[DEVICE_UUID_SIZE];
    uint64_t memory_bytes;
    unsigned cores; /* 0 or 100: no limit */
    unsigned index; /* NVML's */
    bool has_minor;
    unsigned minor;
};

struct container_grant {
    const char *pod_uid, *container;
    const char *record;             /* the pod's record (pods_record()) */
    char region[EDITS_REGION_SIZE]; /* the region file's name, "UUID.cache" */
    int priority;                   /* -1: not said */
    size_t device_count;
    struct granted_device devices[LIMITS_MAX_DEVICES];
};

/* "<hook path>/containers/<pod uid>_<container>"; -ENAMETOOLONG. */
int edits_folder(const struct node_host *host, const char *pod_uid, const char *container,
                 char *ret_path, size_t size);

/* The name of the CDI device for kubelet's device ids, in any order. */
void edits_device_name(const char *const *ids, size_t count, char ret_name[EDITS_NAME_SIZE]);

/* The limits file's text; its length, or -ENOBUFS. */
int edits_limits(const struct node_host *host, const struct container_grant *grant, char *text,
                 size_t size);

/*
 * The CDI specification that defines the one device of this name. driver has the edits that bring
 * the driver, none where the runtime does. 0 or -ENOMEM.
 */
int edits_spec(const struct node_host *host, const struct container_grant *grant,
               const struct cdi_choice *driver, const char *name, struct strbuf *spec);

/* The container that a specification of ours is for. */
struct spec_owner {
    char name[EDITS_NAME_SIZE]; /* the device's */
    char pod_uid[64];
    char container[256];
};

/* Reads the owner back from a specification. -EINVAL when it is not ours, or is cut. */
int edits_read_spec(const char *text, size_t len, struct spec_owner *ret_owner);

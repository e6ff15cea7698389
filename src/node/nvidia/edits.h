/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a container gets with its part of a card: environment, files, device nodes, as the text of a
 * CDI specification, and its limits file. No I/O.
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

/* Where the host's root is in our own pod, if we run in one; deploy/node.yaml. */
#define HOST_ROOT "/driver-root"

/* Where things are in every container, whatever the host's folders. */
#define CONTAINER_FOLDER "/usr/local/vgpu"

enum {
    EDITS_NAME_SIZE = 32,
    EDITS_REGION_SIZE = 64,
};

/* The node, as far as containers see it. */
struct node_host {
    char hook_path[PATH_MAX]; /* "/usr/local/vgpu": the library, and a folder a container */
    char cdi_folder[PATH_MAX];
    char library[PATH_MAX];     /* the versioned file on the host */
    char dev_root[PATH_MAX];    /* in front of /dev/nvidia0 on the host; "" for none */
    bool pass_device_specs;     /* device nodes are listed where nobody else's edits have some */
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
    const char *record;             /* what is to be known of the pod when it starts again */
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
 * The CDI specification that defines the one device of this name. driver is what brings the driver
 * along, empty where the runtime does. 0 or -ENOMEM.
 */
int edits_spec(const struct node_host *host, const struct container_grant *grant,
               const struct cdi_choice *driver, const char *name, struct strbuf *spec);

/* Whom a specification of ours is for. */
struct spec_owner {
    char name[EDITS_NAME_SIZE]; /* the device's */
    char pod_uid[64];
    char container[256];
};

/* Reads a specification back. -EINVAL when it is none of ours, or is cut. */
int edits_read_spec(const char *text, size_t len, struct spec_owner *ret_owner);

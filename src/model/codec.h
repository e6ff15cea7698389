/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HAMi's annotations: the devices registered on a node, and the devices a pod was given.
 *
 * Decoders read whatever HAMi has written, of any age, and read garbage as HAMi reads it, but say
 * so: CODEC_MENDED means that a number was not one (read as 0) or did not fit (read as the
 * nearest), and err says which. Text that can't be read at all is -EINVAL with the place in err.
 * Texts longer than CODEC_MAX_TEXT and lists longer than CODEC_MAX_DEVICES are -E2BIG; a full arena
 * is -ENOMEM. Decoded strings are the arena's.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum {
    CODEC_MAX_TEXT = 1 << 20,   /* Kubernetes' bound is 256 KiB for all annotations of an object */
    CODEC_MAX_DEVICES = 4096,   /* of a node, or of a pod in all containers */
    CODEC_MAX_CONTAINERS = 512, /* of a pod */
};

enum codec_outcome {
    CODEC_EXACT = 1,
    CODEC_MENDED,
};

/* A device as a node registers it; amounts as on the wire, nothing checked. */
struct registered_device {
    const char *id, *type, *mode;
    uint64_t index;
    int32_t count;   /* tasks that may share it */
    int32_t devmem;  /* MiB */
    int32_t devcore; /* percent */
    int64_t numa;
    bool health;
    const char *custom; /* the object custominfo as JSON; NULL: none, or not kept. As HAMi, encoders
                           drop what was read */
    const char *profiles;     /* the list migProfiles as JSON, likewise */
    const char *own_profiles; /* written as migProfiles, JSON; NULL: none. As the next */
    const char *own_custom;   /* written as custominfo; NULL: none. Decoders leave it so */
};

struct registered_devices {
    struct registered_device *items;
    size_t count;
};

/* Either form, told apart by the first character: JSON begins with '[', or is null. */
int node_devices_decode(const char *text, struct arena *arena,
                        struct registered_devices *ret_devices, struct error *err);

/* The JSON form alone: an array of objects, keys in any case, unknown ones skipped. */
int node_devices_decode_json(const char *text, size_t len, struct arena *arena,
                             struct registered_devices *ret_devices, struct error *err);

/* The colon form alone: "id,count,devmem,devcore,type,numa,health[,index,mode]:" for each. */
int node_devices_decode_text(const char *text, size_t len, struct arena *arena,
                             struct registered_devices *ret_devices, struct error *err);

/* As HAMi 2.8 writes them; 2.10 reads both. NULL: the arena is full. */
const char *node_devices_encode_json(const struct registered_devices *devices, struct arena *arena);
const char *node_devices_encode_text(const struct registered_devices *devices, struct arena *arena);

/* A part of a device that one container was given. */
struct container_device {
    const char *uuid;
    const char *type; /* the vendor's common word */
    int32_t memory_mib;
    int32_t cores;
    uint64_t parts; /* of the device, as its vendor numbers them; does not stand in the text */
};

struct container_devices {
    size_t count;
    struct container_device *items;
};

/* One vendor's devices of a pod: an entry for each container, init containers first. */
struct pod_devices {
    size_t count;
    struct container_devices *containers;
};

/*
 * "uuid,type,mem,cores:" for each device, ";" after each container. Containers without a device are
 * kept, in their places. Decoding adds no container for what follows the last ";".
 */
int pod_devices_decode(const char *text, struct arena *arena, struct pod_devices *ret_devices,
                       struct error *err);

/* One container alone. */
int container_devices_decode(const char *text, size_t len, struct arena *arena,
                             struct container_devices *ret_devices, struct error *err);

/* NULL: the arena is full. A text for each container, empty or not: "GPU-a,NVIDIA,3000,30:;". */
const char *pod_devices_encode(const struct pod_devices *devices, struct arena *arena);
const char *container_devices_encode(const struct container_devices *devices, struct arena *arena);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether our CDI devices reach containers: kubelet must pass them on, and the runtime must take
 * them. Where either does not, a container would start without its limits, so its devices are
 * handed over in another way (way.h). Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    FITNESS_FOLDERS_SIZE = 256,
};

/* The runtime's own account of itself. */
struct runtime_facts {
    bool cdi_off;
    char cdi_folders[FITNESS_FOLDERS_SIZE]; /* where it looks, with commas; "": it does not say */
    char default_handler[64];               /* "nvidia"; "": it does not say */
};

/* From a packed StatusResponse of CRI; facts that it lacks stay empty. -EPROTO. */
int runtime_facts_read(const uint8_t *message, size_t len, struct runtime_facts *ret_facts);

struct fitness {
    bool has_runtime; /* it answered */
    struct runtime_facts runtime;
    bool has_node;            /* the API server answered */
    char kubelet_version[64]; /* of the Node: "v1.35.4" */
    char runtime_version[64]; /* "containerd://2.4.2" */
    bool served_before;       /* an earlier run of the plugin found the node fit, and left grants */
    bool ordered_before;      /* an earlier run found it unfit, and left grants (ordered.h) */
    bool assume_cdi;          /* by configuration */
    const char *cdi_folder;   /* where our specifications are written */
};

enum fitness_outcome {
    FITNESS_GOOD = 1,
    FITNESS_UNKNOWN, /* ask again */
    FITNESS_NO_CDI,  /* the runtime's */
    FITNESS_OLD_KUBELET,
};

/* why is set with all outcomes but FITNESS_GOOD. */
enum fitness_outcome fitness_judge(const struct fitness *fitness, struct error *why);

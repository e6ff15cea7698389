/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Module images. One of our own is text:
 *
 *     hamisim-module 1
 *     size=BYTES            the device memory that it takes, once a context
 *     kernel NAME           any number of these
 *
 * Anything that looks like PTX, an ELF file or a fat binary is taken too: it is 1 MiB large and has
 * a kernel of every name. The rest is CUDA_ERROR_INVALID_IMAGE.
 */

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda.h"

struct module_image {
    uint64_t bytes;
    bool any;    /* has every kernel */
    char *names; /* else these: each terminated, the last followed by an empty one */
};

/* CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_OUT_OF_MEMORY. */
CUresult module_image_parse(const void *image, struct module_image *ret_image);
void module_image_deinit(struct module_image *image);
bool module_image_has(const struct module_image *image, const char *name);

/* What a CUfunction, and a CUkernel, is; never freed, only used again. */
struct module_function {
    uint32_t magic;
    struct module_code *code;
    char *name;
    uint64_t first; /* set by the launch interface of old: the first parameter */
    struct module_function *next;
};

/* NULL when it is none (any more). */
struct module_function *module_find_function(CUfunction handle);

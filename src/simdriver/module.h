/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Module images. One of our own is text:
 *
 *     hamisim-module 1
 *     size=BYTES            the device memory that it takes, once a context
 *     kernel NAME           any number of these
 *     managed NAME BYTES    and of these: a variable in managed memory
 *
 * Behind a kernel's name there may be "waits" or "posts": its second parameter, a uint64_t, is then
 * the number of a flag, 0 to 1023, that is the whole machine's. A waiting kernel ends no earlier
 * than it could take a post of that flag; a posting one posts it as it ends. Behind "touches" it is
 * an address of managed memory, which comes to the device as it is launched, and behind "counts" a
 * condition of the graph that the kernel is a node of, which it makes one less if it is above 0.
 * Behind "faults" it is nothing: as such a kernel ends its process is at fault for good.
 * "local=BYTES" is what each of its threads needs of the stack. The size is divided among the
 * kernels, where they are loaded one by one.
 *
 * Anything that looks like PTX, an ELF file or a fat binary is taken too: it is 1 MiB large and has
 * a kernel of every name. The rest is CUDA_ERROR_INVALID_IMAGE.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda.h"

struct module_kernel {
    char name[256];
    uint32_t role; /* enum sim_op_role */
    uint64_t local_bytes;
};

struct module_variable {
    char name[256];
    uint64_t bytes;
};

struct module_image {
    uint64_t bytes;
    bool any; /* has every kernel */
    size_t count;
    struct module_kernel *kernels; /* else these */
    size_t variable_count;
    struct module_variable *variables;
};

/* CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_OUT_OF_MEMORY. */
CUresult module_image_parse(const void *image, struct module_image *ret_image);
void module_image_deinit(struct module_image *image);

/* NULL when it has none of that name. */
const struct module_kernel *module_image_find(const struct module_image *image, const char *name);

/* What a CUfunction, and a CUkernel, is; never freed, only used again. */
struct module_function {
    uint32_t magic;
    struct module_code *code;
    char *name;
    uint32_t role;          /* enum sim_op_role */
    uint32_t loaded;        /* its code is there */
    uint64_t charged_bytes; /* for its code alone */
    uint64_t local_bytes;
    uint64_t first; /* set by the launch interface of old: the first parameter */
    struct module_function *next;
};

/* What a function's handle led to as it was looked up. Another thread may end the function, or its
 * context, at any time: callers have this copy, and never the function. */
struct module_facts {
    CUfunction handle;
    CUmodule module;
    uint32_t context;     /* in which the function is; 0: a library's kernel, which is in none */
    uint32_t context_gen; /* of that context */
    uint32_t role;        /* enum sim_op_role */
    bool is_loaded;
    uint64_t local_bytes;
    uint64_t first;
};

/* False when the handle is none (any more). */
bool module_look_up(CUfunction handle, struct module_facts *ret_facts);

/*
 * What a launch in the context really launches: of a kernel the function there. Its code is loaded.
 * CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_CONTEXT_IS_DESTROYED.
 */
CUresult module_prepare(CUfunction handle, uint32_t context, struct module_facts *ret_facts);

/* Sets the first parameter, for the launch interface of old. False when the handle is none. */
bool module_set_first(CUfunction handle, uint64_t value);

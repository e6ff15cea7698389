/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What hidden.c's verbs have in common. A verb returns an exit status that ends the program, or 0.
 */

#include <stddef.h>
#include <stdint.h>

#include "cu.h"

typedef int cu_limit_set_fn(int limit, size_t value);
typedef int cu_limit_get_fn(size_t *value, int limit);
typedef int cu_attach_fn(cu_handle *context, unsigned int flags);
typedef int cu_library_load_fn(cu_handle *library, const void *image, void *, void *, unsigned,
                               void *, void *, unsigned);
typedef int cu_kernel_fn(cu_handle *kernel, cu_handle library, const char *name);
typedef int cu_kernel_function_fn(cu_handle *function, cu_handle kernel);
struct cu_launch_config {
    unsigned grid[3], block[3], shared;
    cu_handle stream;
    void *attributes;
    unsigned attribute_count;
};
typedef int cu_launch_ex_fn(const struct cu_launch_config *config, cu_handle function,
                            void **params, void **extra);
typedef int cu_cooperative_fn(cu_handle function, unsigned gx, unsigned gy, unsigned gz,
                              unsigned bx, unsigned by, unsigned bz, unsigned shared,
                              cu_handle stream, void **params);
struct cu_launch_params {
    cu_handle function;
    unsigned grid[3], block[3], shared;
    cu_handle stream;
    void **params;
};
typedef int cu_launch_list_fn(struct cu_launch_params *list, unsigned count, unsigned flags);
typedef int cu_export_fn(const void **table, const void *uuid);
typedef int cu_primary_fn(cu_handle *context, int device);

extern struct hidden_driver {
    cu_init_fn *init;
    cu_device_get_fn *device_get;
    cu_retain_fn *retain;
    cu_release_fn *release, *reset;
    cu_ctx_create_fn *create;
    cu_ctx_fn *destroy, *detach, *set_current, *push;
    cu_ctx_out_fn *current, *pop;
    cu_attach_fn *attach;
    cu_limit_set_fn *set_limit;
    cu_limit_get_fn *get_limit;
    cu_alloc_fn *alloc;
    cu_free_fn *free;
    cu_info_fn *info;
    cu_module_load_fn *load;
    cu_module_fn *unload;
    cu_function_fn *function;
    cu_library_load_fn *load_library;
    cu_kernel_fn *kernel;
    cu_kernel_function_fn *kernel_function;
    cu_launch_fn *launch;
    cu_launch_ex_fn *launch_ex;
    cu_cooperative_fn *cooperative;
    cu_launch_list_fn *launch_list;
    cu_void_fn *sync;
    cu_export_fn *export;
} cu;

/* The driver's answer to a verb, which `say` prints. */
void answered(int code);

/* 5M */
uint64_t number(const char *text);

/* The last module that a verb loaded. */
extern cu_handle module;
/* Of a module of that size; in the same memory each time. */
const char *image_of(const char *size);
int launch(cu_handle function);

/* hidden_contexts.c */
int verb_create(const char *argument);
int verb_many(const char *argument);
int verb_destroy(const char *argument);
int verb_attach(const char *argument);
int verb_detach(const char *argument);
int verb_retain(const char *argument);
int verb_unseen(const char *argument);
int verb_release(const char *argument);
int verb_reset(const char *argument);
int verb_limit(const char *argument);
int verb_was(const char *argument);
int verb_pop(const char *argument);
int verb_restore(const char *argument);

/* hidden_code.c */
int verb_module(const char *argument);
int verb_unload(const char *argument);
int verb_launch(const char *argument);
int verb_deep(const char *argument);
int verb_again(const char *argument);
int verb_library(const char *argument);
int verb_kernel(const char *argument);
int verb_deep_kernel(const char *argument);
int verb_spin(const char *argument);
int verb_work(const char *argument);

/* hidden_threads.c */
int verb_threads(const char *argument);
int verb_squeeze(const char *argument);
int verb_cramped(const char *argument);
int verb_beside(const char *argument);
int verb_stopped(const char *argument);
int verb_refused(const char *argument);
int verb_interrupted(const char *argument);

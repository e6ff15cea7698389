/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The driver as a stranger knows it: a test program's own few declarations, written down again from
 * the public API reference so that nothing here leans on the headers under test. Nothing is linked;
 * a program names the ways it gets its pointers itself.
 */

#include <stddef.h>

typedef unsigned long long cu_ptr;
typedef void *cu_handle;

enum {
    CU_OK = 0,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_SUPPORTED = 801,
};

typedef int cu_init_fn(unsigned int flags);
typedef int cu_version_fn(int *version);
typedef int cu_device_get_fn(int *device, int ordinal);
typedef int cu_count_fn(int *count);
typedef int cu_total_fn(size_t *bytes, int device);
typedef int cu_total_v1_fn(unsigned int *bytes, int device);
typedef int cu_attribute_fn(int *value, int attribute, int device);
typedef int cu_retain_fn(cu_handle *context, int device);
typedef int cu_release_fn(int device);
typedef int cu_ctx_create_fn(cu_handle *context, unsigned int flags, int device);
typedef int cu_ctx_fn(cu_handle context);
typedef int cu_ctx_out_fn(cu_handle *context);
typedef int cu_void_fn(void);
typedef int cu_info_fn(size_t *free_bytes, size_t *total);
typedef int cu_info_v1_fn(unsigned int *free_bytes, unsigned int *total);
typedef int cu_alloc_fn(cu_ptr *ptr, size_t bytes);
typedef int cu_alloc_v1_fn(unsigned int *ptr, unsigned int bytes);
typedef int cu_pitch_fn(cu_ptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element);
typedef int cu_pitch_v1_fn(unsigned *ptr, unsigned *pitch, unsigned width, unsigned height,
                           unsigned element);
typedef int cu_managed_fn(cu_ptr *ptr, size_t bytes, unsigned int flags);
typedef int cu_free_fn(cu_ptr ptr);
typedef int cu_free_v1_fn(unsigned int ptr);

/* Memory that is made apart from its addresses */
struct cu_allocation_prop {
    int type, handle_types, location_type, location_id;
    void *metadata;
    unsigned char flags[8];
};
typedef int cu_reserve_fn(cu_ptr *ptr, size_t bytes, size_t alignment, cu_ptr hint,
                          unsigned long long flags);
typedef int cu_create_fn(cu_ptr *handle, size_t bytes, const struct cu_allocation_prop *prop,
                         unsigned long long flags);
typedef int cu_map_fn(cu_ptr ptr, size_t bytes, size_t offset, cu_ptr handle,
                      unsigned long long flags);
typedef int cu_unmap_fn(cu_ptr ptr, size_t bytes);
typedef int cu_alloc_async_fn(cu_ptr *ptr, size_t bytes, cu_handle stream);
typedef int cu_free_async_fn(cu_ptr ptr, cu_handle stream);
typedef int cu_begin_fn(cu_handle stream, int mode);
typedef int cu_end_fn(cu_handle stream, cu_handle *graph);
typedef int cu_instantiate_fn(cu_handle *exec, cu_handle graph, unsigned long long flags);
typedef int cu_graph_launch_fn(cu_handle exec, cu_handle stream);
struct cu_array3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
typedef int cu_array_create_fn(cu_handle *array, const struct cu_array3d *shape);
typedef int cu_mipmap_create_fn(cu_handle *mipmap, const struct cu_array3d *shape, unsigned levels);
typedef int cu_retain_handle_fn(cu_ptr *handle, void *address);

typedef int cu_module_load_fn(cu_handle *module, const void *image);
typedef int cu_module_fn(cu_handle module);
typedef int cu_function_fn(cu_handle *function, cu_handle module, const char *name);
typedef int cu_stream_create_fn(cu_handle *stream, unsigned int flags);
typedef int cu_stream_fn(cu_handle stream);
typedef int cu_launch_fn(cu_handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned shared, cu_handle stream, void **params,
                         void **extra);
typedef int cu_proc_v1_fn(const char *name, void **pfn, int version, unsigned long long flags);
typedef int cu_proc_v2_fn(const char *name, void **pfn, int version, unsigned long long flags,
                          int *status);

/* NVML */

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

struct nvml_process_v1 {
    unsigned int pid;
    unsigned long long bytes;
};

struct nvml_process_v2 {
    unsigned int pid;
    unsigned long long bytes;
    unsigned int gpu_instance, compute_instance;
};

typedef int nvml_void_fn(void);
typedef int nvml_count_fn(unsigned int *count);
typedef int nvml_handle_fn(unsigned int index, cu_handle *device);
typedef int nvml_memory_fn(cu_handle device, struct nvml_memory *memory);
typedef int nvml_memory_v2_fn(cu_handle device, struct nvml_memory_v2 *memory);
typedef int nvml_processes_v1_fn(cu_handle device, unsigned *count, struct nvml_process_v1 *list);
typedef int nvml_processes_v2_fn(cu_handle device, unsigned *count, struct nvml_process_v2 *list);

/* SPDX-License-Identifier: Apache-2.0 */

/* Code that is loaded into a context: measured, charged, undone beyond the limit. */

#include "region/ledger.h"
#include "vgpu/code.h"
#include "vgpu/contexts.h"
#include "vgpu/graph_homes.h"
#include "vgpu/hidden.h"
#include "vgpu/managed.h"
#include "vgpu/overhead.h"
#include "vgpu/primary.h"
#include "vgpu/real.h"

/* Libraries are loaded into every context there is, unless that waits till they are needed. */
static bool loads_everywhere(void)
{
    int mode;

    return vgpu_mode() == VGPU_ON && REAL(cuModuleGetLoadingMode)(&mode) == CUDA_SUCCESS &&
           mode == CU_MODULE_EAGER_LOADING;
}

static bool holds_any(const struct vgpu_device *device)
{
    return ledger_held(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index) > 0;
}

/* On the devices but this one: whether each is within its limit afterwards. */
static bool settle_others(const struct vgpu_device *but)
{
    bool fits = true;

    for (unsigned i = 0; i < vgpu.device_count; i++) {
        struct vgpu_device *device = &vgpu.devices[i];

        /* Into a context there it was loaded, too, and nobody counts that. */
        if (!device->granted)
            fits = fits && !primary_is_active(device->handle);
        if (device == but || !device->granted || !holds_any(device))
            continue;
        (void)hidden_settle(device);
        fits = fits &&
               ledger_total(vgpu.region.ext, device->index) <= atomic_load(&device->limit_units);
    }
    return fits;
}

static bool library_fits(const struct code_loading *loading, CUresult result)
{
    return result != CUDA_SUCCESS || !loads_everywhere() || settle_others(loading->device);
}

/*
 * The body of a loading function. They differ in their arguments only: load is the driver's call,
 * which puts the handle where "made" points to, so that the caller's variable is touched on success
 * only; anywhere, that no context needs to be current; fits says whether what it took elsewhere is
 * within the limits.
 */
#define LOAD(handle_type, anywhere, ret_handle, load, fits, unload, found)                         \
    struct code_loading loading;                                                                   \
    handle_type fresh = NULL, *made = &fresh;                                                      \
    CUresult result = code_begin_loading(&loading, anywhere);                                      \
                                                                                                   \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    if (!(ret_handle))                                                                             \
        made = NULL;                                                                               \
    result = (load);                                                                               \
    if (code_end_loading(&loading, result, fresh) == OVERHEAD_REFUSED) {                           \
        UNDO(unload, fresh);                                                                       \
        overhead_undone(&loading.overhead, 0);                                                     \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    }                                                                                              \
    if (!(fits)) {                                                                                 \
        struct real_relaxed undoing = real_relax();                                                \
                                                                                                   \
        (void)unload(fresh);                                                                       \
        real_end_relaxed(&undoing);                                                                \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    }                                                                                              \
    if (result == CUDA_SUCCESS && (ret_handle)) {                                                  \
        found(fresh);                                                                              \
        *(ret_handle) = fresh;                                                                     \
    }                                                                                              \
    return result

/* It is in no context by itself. */
static void found_library(CUlibrary library)
{
    (void)library;
}

PUBLIC CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(CUmodule, false, module, REAL(cuModuleLoad)(made, path), true, cuModuleUnload,
         graph_homes_found_module);
}

PUBLIC CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(CUmodule, false, module, REAL(cuModuleLoadData)(made, image), true, cuModuleUnload,
         graph_homes_found_module);
}

PUBLIC CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int options,
                                   CUjit_option *names, void **values)
{
    LOAD(CUmodule, false, module, REAL(cuModuleLoadDataEx)(made, image, options, names, values),
         true, cuModuleUnload, graph_homes_found_module);
}

PUBLIC CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(CUmodule, false, module, REAL(cuModuleLoadFatBinary)(made, image), true, cuModuleUnload,
         graph_homes_found_module);
}

PUBLIC CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_names,
                                  void **jit_values, unsigned int jit_options,
                                  CUlibraryOption *names, void **values, unsigned int options)
{
    LOAD(CUlibrary, true, library,
         REAL(cuLibraryLoadData)(made, code, jit_names, jit_values, jit_options, names, values,
                                 options),
         library_fits(&loading, result), cuLibraryUnload, found_library);
}

PUBLIC CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_names,
                                      void **jit_values, unsigned int jit_options,
                                      CUlibraryOption *names, void **values, unsigned int options)
{
    LOAD(CUlibrary, true, library,
         REAL(cuLibraryLoadFromFile)(made, path, jit_names, jit_values, jit_options, names, values,
                                     options),
         library_fits(&loading, result), cuLibraryUnload, found_library);
}

typedef CUresult (*unload_fn)(void *handle);

/* What was remembered is taken out before: the moment it is unloaded, another may have its handle.
 */
static CUresult unload(void *handle, unload_fn driver)
{
    struct code code;
    bool has_variables;
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return driver(handle);
    code = code_take(handle);
    has_variables = managed_begin_unload(handle);
    result = driver(handle);
    if (has_variables)
        managed_end_unload(handle, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        code_forget_functions();
    code_end(handle, &code, result == CUDA_SUCCESS);
    return result;
}

static CUresult unload_module(void *module)
{
    return REAL(cuModuleUnload)((CUmodule)module);
}

static CUresult unload_library(void *library)
{
    return REAL(cuLibraryUnload)((CUlibrary)library);
}

PUBLIC CUresult cuModuleUnload(CUmodule module)
{
    (void)real_driver();
    graph_homes_unloaded(module);
    return unload(module, unload_module);
}

PUBLIC CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult result;

    (void)real_driver();
    result = unload(library, unload_library);
    /* It may have been loaded into contexts of any device. */
    if (result == CUDA_SUCCESS && vgpu_mode() == VGPU_ON)
        (void)settle_others(NULL);
    return result;
}

/* Functions: their code may be loaded now, or as late as at the first launch. */

static CUresult found_function(CUresult result)
{
    if (result == CUDA_SUCCESS && vgpu_mode() == VGPU_ON)
        code_found_function();
    return result;
}

#define FIND(name, ...)                                                                            \
    if (vgpu_gives_nothing())                                                                      \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    (void)real_driver();                                                                           \
    return found_function(REAL(name)(__VA_ARGS__))

PUBLIC CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    FIND(cuModuleGetFunction, function, module, name);
}

PUBLIC CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    CUresult result;

    if (vgpu_gives_nothing())
        return CUDA_ERROR_OUT_OF_MEMORY;
    (void)real_driver();
    result = found_function(REAL(cuLibraryGetModule)(module, library));
    if (result == CUDA_SUCCESS)
        graph_homes_found_module(*module);
    return result;
}

PUBLIC CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    FIND(cuLibraryGetKernel, kernel, library, name);
}

PUBLIC CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUresult result;

    if (vgpu_gives_nothing())
        return CUDA_ERROR_OUT_OF_MEMORY;
    (void)real_driver();
    result = found_function(REAL(cuKernelGetFunction)(function, kernel));
    if (result == CUDA_SUCCESS)
        graph_homes_found_function(*function);
    return result;
}

PUBLIC CUresult cuFuncLoad(CUfunction function)
{
    FIND(cuFuncLoad, function);
}

/* Variables: of those in managed memory the driver tells only as they are asked for. */

static bool is_managed(CUdeviceptr ptr)
{
    unsigned int managed = 0;

    return HAS(cuPointerGetAttribute) &&
           REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr) ==
               CUDA_SUCCESS &&
           managed;
}

/* What the driver found, or left there, either of which may be asked for. */
struct found {
    CUdeviceptr ptr;
    size_t bytes;
};

static CUresult give_variable(CUresult result, const struct found *found, const void *owner,
                              CUdeviceptr *ptr, size_t *bytes)
{
    if (result == CUDA_SUCCESS && vgpu_mode() == VGPU_ON && is_managed(found->ptr) &&
        !managed_met(found->ptr, found->bytes, owner))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ptr)
        *ptr = found->ptr;
    if (bytes)
        *bytes = found->bytes;
    return result;
}

#define GET_VARIABLE(name, owner)                                                                  \
    struct found found = {ptr ? *ptr : 0, bytes ? *bytes : 0};                                     \
    CUresult result;                                                                               \
                                                                                                   \
    (void)real_driver();                                                                           \
    if (!ptr && !bytes)                                                                            \
        return REAL(name)(ptr, bytes, owner, symbol);                                              \
    result = REAL(name)(&found.ptr, &found.bytes, owner, symbol);                                  \
    return give_variable(result, &found, owner, ptr, bytes)

PUBLIC CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *bytes, CUmodule module,
                                     const char *symbol)
{
    GET_VARIABLE(cuModuleGetGlobal_v2, module);
}

PUBLIC CUresult cuLibraryGetManaged(CUdeviceptr *ptr, size_t *bytes, CUlibrary library,
                                    const char *symbol)
{
    GET_VARIABLE(cuLibraryGetManaged, library);
}

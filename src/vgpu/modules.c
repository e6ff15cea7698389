/* SPDX-License-Identifier: Apache-2.0 */

/* Code that is loaded into a context, and a context's heaps: measured, charged, undone beyond the
 * limit. */

#include "vgpu/overhead.h"
#include "vgpu/real.h"

struct loading {
    struct vgpu_device *device; /* NULL: nothing to account */
    struct overhead overhead;
};

static CUresult begin_loading(struct loading *loading)
{
    enum vgpu_mode mode = vgpu_mode();

    loading->device = NULL;
    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mode != VGPU_ON)
        return CUDA_SUCCESS;

    loading->device = vgpu_current_device();
    if (loading->device && !overhead_begin(&loading->overhead, loading->device, VGPU_MODULE))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* Whether it stays: OVERHEAD_REFUSED when it must be unloaded again. */
static enum overhead_outcome end_loading(struct loading *loading, CUresult result,
                                         const void *handle)
{
    enum overhead_outcome outcome;
    uint64_t units;

    outcome = overhead_end(&loading->overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_CHARGED)
        overhead_remember(handle, loading->device, units);
    return outcome;
}

/*
 * The body of a loading function. They differ in their arguments only: load is the driver's call,
 * which puts the handle where "made" points to, so that the caller's variable is touched on success
 * only.
 */
#define LOAD(handle_type, ret_handle, load, unload)                                                \
    struct loading loading;                                                                        \
    handle_type fresh = NULL, *made = &fresh;                                                      \
    CUresult result = begin_loading(&loading);                                                     \
                                                                                                   \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    if (!(ret_handle))                                                                             \
        made = NULL;                                                                               \
    result = (load);                                                                               \
    if (loading.device && end_loading(&loading, result, fresh) == OVERHEAD_REFUSED) {              \
        (void)REAL(unload)(fresh);                                                                 \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    }                                                                                              \
    if (result == CUDA_SUCCESS && (ret_handle))                                                    \
        *(ret_handle) = fresh;                                                                     \
    return result

PUBLIC CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(CUmodule, module, REAL(cuModuleLoad)(made, path), cuModuleUnload);
}

PUBLIC CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(CUmodule, module, REAL(cuModuleLoadData)(made, image), cuModuleUnload);
}

PUBLIC CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int options,
                                   CUjit_option *names, void **values)
{
    LOAD(CUmodule, module, REAL(cuModuleLoadDataEx)(made, image, options, names, values),
         cuModuleUnload);
}

PUBLIC CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(CUmodule, module, REAL(cuModuleLoadFatBinary)(made, image), cuModuleUnload);
}

PUBLIC CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_names,
                                  void **jit_values, unsigned int jit_options,
                                  CUlibraryOption *names, void **values, unsigned int options)
{
    LOAD(CUlibrary, library,
         REAL(cuLibraryLoadData)(made, code, jit_names, jit_values, jit_options, names, values,
                                 options),
         cuLibraryUnload);
}

PUBLIC CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_names,
                                      void **jit_values, unsigned int jit_options,
                                      CUlibraryOption *names, void **values, unsigned int options)
{
    LOAD(CUlibrary, library,
         REAL(cuLibraryLoadFromFile)(made, path, jit_names, jit_values, jit_options, names, values,
                                     options),
         cuLibraryUnload);
}

PUBLIC CUresult cuModuleUnload(CUmodule module)
{
    enum vgpu_mode mode = vgpu_mode();
    CUresult result = REAL(cuModuleUnload)(module);

    if (mode == VGPU_ON && result == CUDA_SUCCESS)
        overhead_forget(module);
    return result;
}

PUBLIC CUresult cuLibraryUnload(CUlibrary library)
{
    enum vgpu_mode mode = vgpu_mode();
    CUresult result = REAL(cuLibraryUnload)(library);

    if (mode == VGPU_ON && result == CUDA_SUCCESS)
        overhead_forget(library);
    return result;
}

/* Stacks, heaps and the printf buffer live as long as the context, and are charged to it. */
PUBLIC CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct loading loading;
    CUresult result = begin_loading(&loading);
    enum overhead_outcome outcome;
    CUcontext context;

    if (result != CUDA_SUCCESS)
        return result;
    if (!loading.device || REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
        return REAL(cuCtxSetLimit)(limit, value);

    result = REAL(cuCtxSetLimit)(limit, value);
    outcome = end_loading(&loading, result, context);
    return outcome == OVERHEAD_REFUSED ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

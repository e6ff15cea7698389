/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Modules, which belong to a context and take memory there, and libraries, which become a module in
 * every context where one of their kernels is used.
 */

#include <limits.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/util.h"
#include "simdriver/guest.h"
#include "simdriver/module.h"

#define FUNCTION_MAGIC 0x6e7546u
#define FILE_MAX (16 * MIB)
#define LOADING_EAGER 1
#define LOADING_LAZY 2

/* What a CUmodule, and a CUlibrary, is. */
struct module_code {
    struct module_image image;
    uint32_t context;            /* 0: a library */
    struct module_code *library; /* of which this is the module here */
    uint64_t charged_bytes;      /* for all of it, loaded eagerly */
    struct module_function *functions;
    uint64_t variables; /* where they lie together; 0: none was asked for yet */
    struct module_code *next;
};

/* Under guest.lock. What a function's handle leads to changes under guest.function_lock as well. */
static struct module_code *codes;
static struct module_function *unused_functions;

static struct module_code *find_code(const void *handle, bool library)
{
    struct module_code *code = codes;

    while (code && code != handle)
        code = code->next;
    if (handle && !code)
        guest_meet_stale();
    return code && (code->context == 0) == library ? code : NULL;
}

static void free_code(struct module_code *code)
{
    struct module_code **at = &codes;

    while (*at != code)
        at = &(*at)->next;
    *at = code->next;
    while (code->functions) {
        struct module_function *function = code->functions;

        code->functions = function->next;
        (void)pthread_mutex_lock(&guest.function_lock);
        function->magic = 0;
        (void)pthread_mutex_unlock(&guest.function_lock);
        free(TAKE(function->name));
        function->next = unused_functions;
        unused_functions = function;
    }
    if (!code->library)
        module_image_deinit(&code->image);
    free(code);
}

void guest_drop_modules(uint32_t context)
{
    struct module_code *next;

    for (struct module_code *code = codes; code; code = next) {
        next = code->next;
        if (code->context == context)
            free_code(code);
    }
}

static void free_variables(struct module_code *code)
{
    (void)sim_lock(guest.sim);
    if (code->variables)
        (void)guest_managed_free(code->variables);
    sim_unlock(guest.sim);
}

static void unload(struct module_code *code)
{
    free_variables(code);
    for (struct module_function *f = code->functions; f; f = f->next)
        guest_discharge_own(code->context, f->charged_bytes);
    guest_discharge_own(code->context, code->charged_bytes);
    free_code(code);
}

/* Takes the image over when it succeeds. */
static CUresult load(const struct module_image *image, uint32_t context,
                     struct module_code *library, struct module_code **ret_code)
{
    struct module_code *code;

    if (context && !guest_context_is_ours(context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    code = calloc(1, sizeof(*code));
    if (!code)
        return CUDA_ERROR_OUT_OF_MEMORY;
    code->charged_bytes = context && guest.eager ? image->bytes : 0;
    if (!guest_charge_own(context, code->charged_bytes)) {
        free(code);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    code->image = *image;
    code->context = context;
    code->library = library;
    code->next = codes;
    codes = code;
    *ret_code = code;
    return CUDA_SUCCESS;
}

static struct module_function *new_function(void)
{
    struct module_function *function = unused_functions;

    if (!function)
        return calloc(1, sizeof(*function));
    unused_functions = function->next;
    return function;
}

static CUresult get_function(struct module_code *code, const char *name,
                             struct module_function **ret_function)
{
    struct module_function *function = code->functions;
    const struct module_kernel *kernel;

    while (function && strcmp(function->name, name) != 0)
        function = function->next;
    if (!function) {
        kernel = module_image_find(&code->image, name);
        if (!kernel)
            return CUDA_ERROR_NOT_FOUND;
        function = new_function();
        if (!function)
            return CUDA_ERROR_OUT_OF_MEMORY;
        function->name = strdup(name);
        function->next = code->functions;
        (void)pthread_mutex_lock(&guest.function_lock);
        function->code = code;
        function->role = kernel->role;
        function->loaded = 0;
        function->charged_bytes = 0;
        function->local_bytes = kernel->local_bytes;
        function->first = 0;
        function->magic = FUNCTION_MAGIC;
        (void)pthread_mutex_unlock(&guest.function_lock);
        code->functions = function;
    }
    *ret_function = function;
    return CUDA_SUCCESS;
}

/* With one of the two locks held. */
static struct module_function *function_of(CUfunction handle)
{
    struct module_function *function = (struct module_function *)handle;

    if (!function || function->magic == FUNCTION_MAGIC)
        return function;
    guest_meet_stale();
    return NULL;
}

static struct module_facts facts_of(const struct module_function *function)
{
    uint32_t context = function->code->context;

    return (struct module_facts){
        .handle = (CUfunction)(uintptr_t)function,
        .module = (CUmodule)function->code,
        .context = context,
        .context_gen = context ? guest_context(context)->gen : 0,
        .role = function->role,
        .is_loaded = __atomic_load_n(&function->loaded, __ATOMIC_RELAXED),
        .local_bytes = function->local_bytes,
        .first = function->first,
    };
}

bool module_look_up(CUfunction handle, struct module_facts *ret_facts)
{
    const struct module_function *function;

    (void)pthread_mutex_lock(&guest.function_lock);
    function = function_of(handle);
    if (function)
        *ret_facts = facts_of(function);
    (void)pthread_mutex_unlock(&guest.function_lock);
    return function != NULL;
}

bool module_set_first(CUfunction handle, uint64_t value)
{
    struct module_function *function;

    (void)pthread_mutex_lock(&guest.function_lock);
    function = function_of(handle);
    if (function)
        function->first = value;
    (void)pthread_mutex_unlock(&guest.function_lock);
    return function != NULL;
}

/* Modules */

PUBLIC CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    struct module_image parsed;
    struct module_code *code;
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    r = module_image_parse(image, &parsed);
    if (r != CUDA_SUCCESS)
        return r;

    (void)pthread_mutex_lock(&guest.lock);
    r = load(&parsed, context, NULL, &code);
    (void)pthread_mutex_unlock(&guest.lock);
    if (r != CUDA_SUCCESS) {
        module_image_deinit(&parsed);
        return r;
    }
    *module = (CUmodule)code;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int options,
                                   CUjit_option *names, void **values)
{
    (void)options;
    (void)names;
    (void)values;
    return cuModuleLoadData(module, image);
}

PUBLIC CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return cuModuleLoadData(module, image);
}

static CUresult read_image(const char *path, char **ret_text)
{
    AUTOFREE char *text = malloc(FILE_MAX);

    if (!text)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (file_read(path, text, FILE_MAX) < 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    *ret_text = TAKE(text);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    AUTOFREE char *text = NULL;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!path || !path[0])
        return CUDA_ERROR_INVALID_VALUE;
    r = read_image(path, &text);
    return r == CUDA_SUCCESS ? cuModuleLoadData(module, text) : r;
}

PUBLIC CUresult cuModuleUnload(CUmodule module)
{
    struct module_code *code;
    CUresult r = guest_check_safe();

    if (r != CUDA_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&guest.lock);
    code = find_code(module, false);
    if (!code)
        r = CUDA_ERROR_INVALID_HANDLE;
    else if (code->library)
        r = CUDA_ERROR_NOT_PERMITTED;
    else
        unload(code);
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    struct module_code *code;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!function || !name || !name[0])
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&guest.lock);
    code = find_code(module, false);
    r = code ? get_function(code, name, (struct module_function **)function)
             : CUDA_ERROR_INVALID_HANDLE;
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuModuleGetLoadingMode(int *mode)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = guest.eager ? LOADING_EAGER : LOADING_LAZY;
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUfunction_attribute attribute, const void *handle,
                              bool is_kernel)
{
    struct module_facts function;
    bool found = module_look_up((CUfunction)(uintptr_t)handle, &function);

    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!found || (function.context == 0) != is_kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    *value = 0;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        *value = 1024;
    else if (attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        *value = (int)MIN(function.local_bytes, (uint64_t)INT_MAX);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    CUresult r = guest_check();

    return r == CUDA_SUCCESS ? get_attribute(value, attribute, function, false) : r;
}

PUBLIC CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                                     CUdevice device)
{
    CUresult r = guest_check_device(device);

    return r == CUDA_SUCCESS ? get_attribute(value, attribute, kernel, true) : r;
}

/* Libraries */

static void unload_library(struct module_code *library)
{
    struct module_code *next;

    for (struct module_code *code = codes; code; code = next) {
        next = code->next;
        if (code->library != library)
            continue;
        unload(code);
    }
    free_variables(library);
    free_code(library);
}

static CUresult module_here(struct module_code *library, uint32_t context,
                            struct module_code **ret_code)
{
    for (struct module_code *code = codes; code; code = code->next) {
        if (code->library == library && code->context == context) {
            *ret_code = code;
            return CUDA_SUCCESS;
        }
    }
    return load(&library->image, context, library, ret_code);
}

static CUresult load_everywhere(struct module_code *library)
{
    struct module_code *here;
    CUresult r = CUDA_SUCCESS;

    for (uint32_t i = 1; i < SIM_CONTEXTS && r == CUDA_SUCCESS; i++) {
        if (guest_context_is_ours(i))
            r = module_here(library, i, &here);
    }
    return r;
}

PUBLIC CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit_names,
                                  void **jit_values, unsigned int jit_options,
                                  CUlibraryOption *names, void **values, unsigned int options)
{
    struct module_image parsed;
    struct module_code *code;
    CUresult r = guest_check_safe();

    (void)jit_names;
    (void)jit_values;
    (void)jit_options;
    (void)names;
    (void)values;
    (void)options;
    if (r != CUDA_SUCCESS)
        return r;
    if (!library || !image)
        return CUDA_ERROR_INVALID_VALUE;
    r = module_image_parse(image, &parsed);
    if (r != CUDA_SUCCESS)
        return r;

    (void)pthread_mutex_lock(&guest.lock);
    r = load(&parsed, 0, NULL, &code);
    if (r != CUDA_SUCCESS)
        module_image_deinit(&parsed);
    if (r == CUDA_SUCCESS && guest.eager) {
        r = load_everywhere(code);
        if (r != CUDA_SUCCESS)
            unload_library(code);
    }
    (void)pthread_mutex_unlock(&guest.lock);
    if (r == CUDA_SUCCESS)
        *library = (CUlibrary)code;
    return r;
}

PUBLIC CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_names,
                                      void **jit_values, unsigned int jit_options,
                                      CUlibraryOption *names, void **values, unsigned int options)
{
    AUTOFREE char *text = NULL;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    r = read_image(path, &text);
    if (r != CUDA_SUCCESS)
        return r;
    return cuLibraryLoadData(library, text, jit_names, jit_values, jit_options, names, values,
                             options);
}

PUBLIC CUresult cuLibraryUnload(CUlibrary library)
{
    struct module_code *code;
    CUresult r = guest_check_safe();

    if (r != CUDA_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&guest.lock);
    code = find_code(library, true);
    if (code)
        unload_library(code);
    else
        r = CUDA_ERROR_INVALID_HANDLE;
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    struct module_code *code;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!kernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&guest.lock);
    code = find_code(library, true);
    r = code ? get_function(code, name, (struct module_function **)kernel)
             : CUDA_ERROR_INVALID_HANDLE;
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    struct module_code *code;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&guest.lock);
    code = find_code(library, true);
    r = code ? module_here(code, context, &code) : CUDA_ERROR_INVALID_HANDLE;
    (void)pthread_mutex_unlock(&guest.lock);
    if (r == CUDA_SUCCESS)
        *module = (CUmodule)code;
    return r;
}

CUresult guest_add_libraries(uint32_t context)
{
    struct module_code *next, *here;
    CUresult r = CUDA_SUCCESS;

    if (!guest.eager)
        return CUDA_SUCCESS;
    for (struct module_code *code = codes; code && r == CUDA_SUCCESS; code = next) {
        next = code->next;
        if (code->context == 0)
            r = module_here(code, context, &here);
    }
    return r;
}

/* What its code takes: its part of the module, or all of one whose kernels are not counted. */
static uint64_t code_bytes(const struct module_code *code)
{
    if (code->charged_bytes)
        return 0;
    if (!code->image.any)
        return code->image.bytes / MAX(code->image.count, (size_t)1);
    for (const struct module_function *f = code->functions; f; f = f->next) {
        if (f->charged_bytes)
            return 0;
    }
    return code->image.bytes;
}

/* Under guest.lock. */
static CUresult load_function(struct module_function *function)
{
    uint64_t bytes = code_bytes(function->code);

    if (function->loaded)
        return CUDA_SUCCESS;
    if (!guest_charge_own(function->code->context, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    function->charged_bytes = bytes;
    __atomic_store_n(&function->loaded, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

/* Under guest.lock. */
static CUresult prepare_locked(CUfunction handle, uint32_t context, struct module_facts *ret_facts)
{
    struct module_function *function = function_of(handle);
    struct module_code *code;
    CUresult r = CUDA_SUCCESS;

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    code = function->code;
    if (code->context == 0) {
        r = module_here(code, context, &code);
        if (r == CUDA_SUCCESS)
            r = get_function(code, function->name, &function);
    }
    if (r == CUDA_SUCCESS)
        r = load_function(function);
    if (r == CUDA_SUCCESS)
        *ret_facts = facts_of(function);
    return r;
}

CUresult module_prepare(CUfunction handle, uint32_t context, struct module_facts *ret_facts)
{
    struct module_facts facts;
    CUresult r;

    if (!module_look_up(handle, &facts))
        return CUDA_ERROR_INVALID_HANDLE;
    if (facts.is_loaded) {
        *ret_facts = facts;
        return CUDA_SUCCESS;
    }
    if (!guest.eager && guest_state()->header.driver.load_waits == SIM_LOAD_WAITS_YES)
        guest_wait_context(context);
    (void)pthread_mutex_lock(&guest.lock);
    r = prepare_locked(handle, context, ret_facts);
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuFuncGetModule(CUmodule *module, CUfunction handle)
{
    struct module_facts function;
    bool found = module_look_up(handle, &function);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    /* A kernel is in no context's module. */
    if (!found || !function.context)
        return CUDA_ERROR_INVALID_HANDLE;
    *module = function.module;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuFuncLoad(CUfunction handle)
{
    struct module_facts function;
    uint32_t context;
    CUresult r = guest_current(&context);

    return r == CUDA_SUCCESS ? module_prepare(handle, context, &function) : r;
}

PUBLIC CUresult cuFuncIsLoaded(int *state, CUfunction handle)
{
    struct module_facts function;
    bool found = module_look_up(handle, &function);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    *state = guest.eager || function.is_loaded;
    return CUDA_SUCCESS;
}

/* A module's function is no kernel, though its handle may once have been one. Under guest.lock. */
static CUresult function_here(CUfunction kernel, uint32_t context,
                              struct module_function **ret_function)
{
    const struct module_function *of = function_of(kernel);
    struct module_code *code;
    CUresult r;

    if (!of || of->code->context)
        return CUDA_ERROR_INVALID_HANDLE;
    r = module_here(of->code, context, &code);
    return r == CUDA_SUCCESS ? get_function(code, of->name, ret_function) : r;
}

PUBLIC CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&guest.lock);
    r = function_here((CUfunction)kernel, context, (struct module_function **)function);
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

/*
 * Variables in managed memory, which is there from the first time on that somebody asks. Those of a
 * module lie in one piece of it, none at its beginning: so the driver's word on where an address'
 * memory begins is not where a variable does.
 */

/* Of the i-th, or of the end. */
static uint64_t offset_of(const struct module_image *image, size_t i)
{
    uint64_t offset = SIM_ALIGN;

    for (size_t k = 0; k < i; k++)
        offset += (image->variables[k].bytes + SIM_ALIGN - 1) / SIM_ALIGN * SIM_ALIGN;
    return offset;
}

static CUresult find_variable(struct module_code *code, const char *name, CUdeviceptr *ptr,
                              size_t *bytes)
{
    struct module_code *of = code->library ? code->library : code;
    const struct module_image *image = &of->image;
    uint32_t context;
    CUresult r = guest_current(&context);
    size_t i = 0;

    if (r != CUDA_SUCCESS)
        return r;
    while (i < image->variable_count && strcmp(image->variables[i].name, name) != 0)
        i++;
    if (i == image->variable_count)
        return CUDA_ERROR_NOT_FOUND;
    if (!of->variables) {
        (void)sim_lock(guest.sim);
        of->variables = guest_managed_make(offset_of(image, image->variable_count),
                                           of->context ? of->context : context);
        sim_unlock(guest.sim);
    }
    if (!of->variables)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ptr)
        *ptr = of->variables + offset_of(image, i);
    if (bytes)
        *bytes = image->variables[i].bytes;
    return CUDA_SUCCESS;
}

static CUresult get_variable(const void *handle, bool library, const char *name, CUdeviceptr *ptr,
                             size_t *bytes)
{
    struct module_code *code;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!name || (!ptr && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&guest.lock);
    code = find_code(handle, library);
    r = code ? find_variable(code, name, ptr, bytes) : CUDA_ERROR_INVALID_HANDLE;
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *bytes, CUmodule module,
                                     const char *name)
{
    GUEST_CLEAR(ptr);
    GUEST_CLEAR(bytes);
    if (name && !name[0])
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    return get_variable(module, false, name, ptr, bytes);
}

PUBLIC CUresult cuLibraryGetManaged(CUdeviceptr *ptr, size_t *bytes, CUlibrary library,
                                    const char *name)
{
    return get_variable(library, true, name, ptr, bytes);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Looking functions up, and naming errors. */

#include "base/util.h"
#include "driver/entries.h"
#include "simdriver/guest.h"

enum {
    VERSION = 13050,
    STREAM_FLAGS =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
};

static const struct {
    CUresult error;
    const char *name;
    const char *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_UNSUPPORTED_LIMIT, "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
     "cannot set while device is active in this process"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would have caused two captures to merge"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not begun in this stream"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency across the boundary of a capture"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "capture was begun by another thread"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "operation not possible in this state"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

PUBLIC CUresult cuGetErrorName(CUresult error, const char **text)
{
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        if (errors[i].error == error)
            *text = errors[i].name;
    }
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PUBLIC CUresult cuGetErrorString(CUresult error, const char **text)
{
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        if (errors[i].error == error)
            *text = errors[i].text;
    }
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PUBLIC CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = VERSION;
    return CUDA_SUCCESS;
}

/*
 * The table by which the CUDA runtime makes primary contexts without calling any function by its
 * name. Of it is known that it begins with its size, and that its third entry is such a function.
 */
static const CUuuid runtime_table_id = {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87,
                                         0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}};

static CUresult retain_primary(CUcontext *context, CUdevice device)
{
    return cuDevicePrimaryCtxRetain(context, device);
}

static const union {
    size_t size;
    CUresult (*function)(CUcontext *context, CUdevice device);
} runtime_table[10] = {
    [0].size = sizeof(runtime_table),
    [2].function = retain_primary,
};

PUBLIC CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = memcmp(id, &runtime_table_id, sizeof(*id)) == 0 ? runtime_table : NULL;
    return *table ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* CUDA_ERROR_INVALID_VALUE: it is nothing that may be asked. */
static CUresult look_up(const char *symbol, int cuda_version, cuuint64_t flags, void **ret_found,
                        CUdriverProcAddressQueryResult *ret_told)
{
    /* Who asks for both kinds of streams means their own. */
    enum driver_stream stream = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                    ? DRIVER_STREAM_PER_THREAD
                                    : DRIVER_STREAM_LEGACY;
    const struct driver_entry *entry;
    enum driver_lookup lookup;

    if (!symbol || !symbol[0] || cuda_version > VERSION || flags > STREAM_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    lookup = driver_entry_resolve(symbol, cuda_version, stream, &entry);
    *ret_found = NULL;
    *ret_told = lookup == DRIVER_TOO_OLD ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                         : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (lookup != DRIVER_FOUND)
        return CUDA_SUCCESS;
    *ret_found = (void *)guest_functions[entry - driver_entries];
    *ret_told = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}

/* Who has a status learns by it alone that nothing was found. */
PUBLIC CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cuda_version,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult told;
    void *found;

    if (!pfn || look_up(symbol, cuda_version, flags, &found, &told) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = found;
    if (!status)
        return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    *status = told;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGetProcAddress(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult told;
    void *found;

    if (!pfn || look_up(symbol, cuda_version, flags, &found, &told) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!found)
        return CUDA_ERROR_NOT_FOUND;
    *pfn = found;
    return CUDA_SUCCESS;
}

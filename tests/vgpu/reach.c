/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every way to reach the driver, tried by a program that knows nothing of libvgpu. It says what it
 * was answered; reach.py runs it bare and under a limit and compares that with the simulator's own
 * count.
 *
 *   reach WAY fill ALLOC    take memory through the entry point ALLOC until nothing is left; say
 *                           what every query tells; wait for a line; give it back; wait for a line
 *   reach WAY codes         a table of odd calls and their answers
 *   reach WAY versions      what cuGetProcAddress means by every name, version and flavour
 *   reach WAY floats        whether a refused function that may pass gets floating arguments
 *   reach WAY old NAME...   calls each of these with nothing for arguments: which crashed?
 *   reach WAY memory        whether the driver is given the caller's memory where that is looked at
 *   reach WAY newer         what exports of the driver's answer that are in no list of ours
 *
 * WAY is a row of the table ways[]; with DIRECT defined the program is linked with the driver.
 */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cu.h"

#define MAX_PIECES 65536
#define POISON UINT64_C(0xa5a5a5a5a5a5a5a5)

#ifdef DIRECT
#define ENTRY(export, class, base, version, stream) extern void export(void);
#include "reach_names.inc"
#undef ENTRY
void *reach_second_next(const char *name);
#endif

struct entry {
    const char *name;
    const char *class;
    const char *base;
    int version; /* 0: cuGetProcAddress does not know it */
    const char *stream;
    void *linked;
};

#ifdef DIRECT
#define ENTRY(export, class, base, version, stream)                                                \
    {#export, class, base, version, stream, (void *)export},
#else
#define ENTRY(export, class, base, version, stream) {#export, class, base, version, stream, NULL},
#endif
static const struct entry entries[] = {
#include "reach_names.inc"
};
#undef ENTRY

#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

static void *library; /* the driver, as this way opened it */
static cu_proc_v1_fn *proc_v1;
static cu_proc_v2_fn *proc_v2;

static const struct entry *entry_find(const char *name)
{
    for (size_t i = 0; i < ENTRIES; i++)
        if (strcmp(entries[i].name, name) == 0)
            return &entries[i];
    return NULL;
}

static int stream_flag(const struct entry *entry)
{
    return entry->stream[0] == '-' ? 0 : 2;
}

static void *open_usual(const char *argument)
{
    (void)argument;
    return dlopen("libcuda.so.1", RTLD_NOW);
}

static void *open_global(const char *argument)
{
    (void)argument;
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
}

/* No driver but what the program has been given already. */
static void *open_self(const char *argument)
{
    (void)argument;
    return dlopen(NULL, RTLD_NOW);
}

static void *open_twice(const char *argument)
{
    (void)argument;
    (void)dlopen("libcuda.so.1", RTLD_NOW);
    return dlopen("libcuda.so.1", RTLD_LAZY);
}

/* The usual driver is there and in use before a copy is opened under a name of its own. */
static void *open_copy(const char *argument)
{
    void *usual = dlopen("libcuda.so.1", RTLD_NOW);
    cu_init_fn *init = usual ? (cu_init_fn *)dlsym(usual, "cuInit") : NULL;

    if (init)
        init(0);
    return dlopen(argument, RTLD_NOW);
}

static void *open_only_copy(const char *argument)
{
    return dlopen(argument, RTLD_NOW);
}

static void *open_namespace(const char *argument)
{
    return dlmopen(LM_ID_NEWLM, argument[0] ? argument : "libcuda.so.1", RTLD_NOW);
}

/* A library that looks the driver up for us, in a namespace of its own or beside the others. */
static void *open_third_apart(const char *argument)
{
    return dlmopen(LM_ID_NEWLM, argument, RTLD_NOW);
}

static void *open_third(const char *argument)
{
    return dlopen(argument, RTLD_NOW | RTLD_LOCAL);
}

static void *look_third(const struct entry *entry)
{
    void *(*find)(const char *) = (void *(*)(const char *))dlsym(library, "reach_third_find");

    return find ? find(entry->name) : NULL;
}

/* libc's functions that look symbols up are found in libc itself, by its handle. */

typedef void *dlsym_fn(void *handle, const char *name);
typedef void *dlvsym_fn(void *handle, const char *name, const char *version);
typedef void *dlmopen_fn(Lmid_t namespace_id, const char *path, int flags);

static dlsym_fn *fetched_dlsym;

/* By the first version that this libc has. */
static void *look_versions(dlvsym_fn *lookup, void *libc, const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *found = NULL;

    for (size_t i = 0; !found && i < sizeof(versions) / sizeof(versions[0]); i++)
        found = lookup(libc, name, versions[i]);
    return found;
}

static void *open_fetched(const char *argument)
{
    fetched_dlsym = (dlsym_fn *)dlsym(dlopen(argument, RTLD_NOW), "dlsym");
    return dlopen("libcuda.so.1", RTLD_NOW);
}

static void *open_fetched_version(const char *argument)
{
    void *libc = dlopen(argument, RTLD_NOW);
    dlvsym_fn *lookup = (dlvsym_fn *)look_versions(dlvsym, libc, "dlvsym");

    fetched_dlsym = (dlsym_fn *)look_versions(lookup, libc, "dlsym");
    return dlopen("libcuda.so.1", RTLD_NOW);
}

static void *open_fetched_apart(const char *argument)
{
    fetched_dlsym = (dlsym_fn *)dlsym(dlmopen(LM_ID_NEWLM, argument, RTLD_NOW), "dlsym");
    return dlopen("libcuda.so.1", RTLD_NOW);
}

static void *open_fetched_namespace(const char *argument)
{
    dlmopen_fn *open = (dlmopen_fn *)dlsym(dlopen(argument, RTLD_NOW), "dlmopen");

    return open(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
}

/* What a library behind all others finds next after itself. */
static void *open_fetched_next(const char *argument)
{
    void *third = dlopen(argument, RTLD_NOW | RTLD_LOCAL);
    dlsym_fn *(*next)(void) = (dlsym_fn * (*)(void)) dlsym(third, "reach_third_next");

    fetched_dlsym = next();
    return dlopen("libcuda.so.1", RTLD_NOW);
}

static void *look_fetched(const struct entry *entry)
{
    return fetched_dlsym(library, entry->name);
}

static void *look_dlsym(const struct entry *entry)
{
    return dlsym(library, entry->name);
}

static void *look_dlvsym(const struct entry *entry)
{
    return dlvsym(library, entry->name, "GLIBC_2.2.5");
}

static void *look_default(const struct entry *entry)
{
    return dlsym(RTLD_DEFAULT, entry->name);
}

static void *look_proc_v1(const struct entry *entry)
{
    void *found = NULL;

    if (!entry->version ||
        proc_v1(entry->base, &found, entry->version, (unsigned)stream_flag(entry)) != CU_OK)
        return NULL;
    return found;
}

static void *look_proc_v2(const struct entry *entry)
{
    void *found = NULL;
    int status = -1;

    if (!entry->version || proc_v2(entry->base, &found, entry->version,
                                   (unsigned)stream_flag(entry), &status) != CU_OK)
        return NULL;
    return found;
}

/* The lookup function itself comes from a lookup: version 11030 means the first form, 12000 the
 * second. */
static void procs_from_dlsym(void)
{
    proc_v1 = (cu_proc_v1_fn *)dlsym(library, "cuGetProcAddress");
    proc_v2 = (cu_proc_v2_fn *)dlsym(library, "cuGetProcAddress_v2");
}

static void procs_from_v1(void)
{
    void *found = NULL;

    procs_from_dlsym();
    if (proc_v1("cuGetProcAddress", &found, 11030, 0) == CU_OK)
        proc_v1 = (cu_proc_v1_fn *)found;
    if (proc_v1("cuGetProcAddress", &found, 12000, 0) == CU_OK)
        proc_v2 = (cu_proc_v2_fn *)found;
}

static void procs_from_v2(void)
{
    void *found = NULL;
    int status;

    procs_from_dlsym();
    if (proc_v2("cuGetProcAddress", &found, 13000, 0, &status) == CU_OK)
        proc_v2 = (cu_proc_v2_fn *)found;
    if (proc_v2("cuGetProcAddress", &found, 11030, 0, &status) == CU_OK)
        proc_v1 = (cu_proc_v1_fn *)found;
}

#ifdef DIRECT
static void *look_linked(const struct entry *entry)
{
    return entry->linked;
}

static void *look_next(const struct entry *entry)
{
    return dlsym(RTLD_NEXT, entry->name);
}

static void *look_second_next(const struct entry *entry)
{
    return reach_second_next(entry->name);
}
#endif

struct way {
    const char *name;
    void *(*open)(const char *argument); /* NULL: linked */
    void (*prepare)(void);               /* NULL: nothing */
    void *(*look)(const struct entry *entry);
};

static const struct way ways[] = {
    {"dlsym", open_usual, NULL, look_dlsym},
    {"dlvsym", open_only_copy, NULL, look_dlvsym},
    {"default", open_global, NULL, look_default},
    {"self", open_self, NULL, look_default},
    {"twice", open_twice, NULL, look_dlsym},
    {"copy", open_copy, NULL, look_dlsym},
    {"only-copy", open_only_copy, NULL, look_dlsym},
    {"namespace", open_namespace, NULL, look_dlsym},
    {"namespace-third", open_third_apart, NULL, look_third},
    {"third-default", open_third, NULL, look_third},
    {"fetched", open_fetched, NULL, look_fetched},
    {"fetched-version", open_fetched_version, NULL, look_fetched},
    {"fetched-apart", open_fetched_apart, NULL, look_fetched},
    {"fetched-namespace", open_fetched_namespace, NULL, look_dlsym},
    {"fetched-next", open_fetched_next, NULL, look_fetched},
    {"proc1", open_usual, procs_from_dlsym, look_proc_v1},
    {"proc2", open_usual, procs_from_dlsym, look_proc_v2},
    {"proc1-by-proc1", open_usual, procs_from_v1, look_proc_v1},
    {"proc2-by-proc1", open_usual, procs_from_v1, look_proc_v2},
    {"proc1-by-proc2", open_usual, procs_from_v2, look_proc_v1},
    {"proc2-by-proc2", open_usual, procs_from_v2, look_proc_v2},
    {"copy-proc2", open_copy, procs_from_v2, look_proc_v2},
#ifdef DIRECT
    {"linked", NULL, NULL, look_linked},
    {"linked-default", NULL, NULL, look_default},
    {"next", NULL, NULL, look_next},
    {"second-next", NULL, NULL, look_second_next},
#endif
};

static const struct way *way;

static void *look(const char *name)
{
    const struct entry *entry = entry_find(name);
    void *found = entry ? way->look(entry) : NULL;

    if (!found) {
        fprintf(stderr, "reach: %s: no way to %s\n", way->name, name);
        exit(1);
    }
    return found;
}

#define LOOK(type, name) ((type *)look(name))

static int make_context(void)
{
    cu_handle context;
    int device, code = LOOK(cu_init_fn, "cuInit")(0);

    if (code == CU_OK)
        code = LOOK(cu_device_get_fn, "cuDeviceGet")(&device, 0);
    if (code == CU_OK)
        code = LOOK(cu_retain_fn, "cuDevicePrimaryCtxRetain")(&context, device);
    if (code == CU_OK)
        code = LOOK(cu_ctx_fn, "cuCtxSetCurrent")(context);
    return code;
}

/* The entry points that take memory, made alike. */

struct allocator {
    const char *name;
    const char *free_name;
    bool narrow; /* 32-bit sizes and addresses */
    bool pitched;
    bool mapped; /* memory apart from its addresses, in pieces of 2 MiB */
    bool pooled; /* in the order of streams, and pools grow by 2 MiB */
    bool array;  /* of multiples of 64 KiB */
    bool levels; /* a mipmapped one */
};

static const struct allocator allocators[] = {
    {"cuMemAlloc_v2", "cuMemFree_v2"},
    {"cuMemAlloc", "cuMemFree", .narrow = true},
    {"cuMemAllocPitch_v2", "cuMemFree_v2", .pitched = true},
    {"cuMemAllocPitch", "cuMemFree", .narrow = true, .pitched = true},
    {"cuMemCreate", "cuMemRelease", .mapped = true},
    {"cuMemAllocAsync", "cuMemFreeAsync", .pooled = true},
    {"cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz", .pooled = true},
    {"cuArray3DCreate_v2", "cuArrayDestroy", .array = true},
    {"cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", .array = true, .levels = true},
};

static const struct allocator *allocator;

/* Of rows of 16 KiB. */
static int take_array(void *call, cu_ptr *ptr, size_t bytes)
{
    const struct cu_array3d shape = {4096, bytes / 16384, 0, 32, 1, 0};
    cu_handle made = (cu_handle)(uintptr_t)*ptr;
    int code;

    if (allocator->levels)
        code = ((cu_mipmap_create_fn *)call)(&made, &shape, 1);
    else
        code = ((cu_array_create_fn *)call)(&made, &shape);
    *ptr = (cu_ptr)(uintptr_t)made;
    return code;
}

static int take(uint64_t *ptr, size_t bytes)
{
    void *call = look(allocator->name);
    size_t width = bytes < 65536 ? bytes : 65536, pitch = POISON;
    unsigned narrow = (unsigned)*ptr, narrow_pitch = (unsigned)POISON;
    static const struct cu_allocation_prop prop = {.type = 1, .location_type = 1};
    cu_ptr wide = *ptr;
    int code;

    if (allocator->array)
        code = take_array(call, &wide, bytes);
    else if (allocator->mapped)
        code = ((cu_create_fn *)call)(&wide, bytes, &prop, 0);
    else if (allocator->pooled)
        code = ((cu_alloc_async_fn *)call)(&wide, bytes, NULL);
    else if (allocator->narrow && allocator->pitched)
        code = ((cu_pitch_v1_fn *)call)(&narrow, &narrow_pitch, (unsigned)width,
                                        (unsigned)(bytes / width), 4);
    else if (allocator->narrow)
        code = ((cu_alloc_v1_fn *)call)(&narrow, (unsigned)bytes);
    else if (allocator->pitched)
        code = ((cu_pitch_fn *)call)(&wide, &pitch, width, bytes / width, 4);
    else
        code = ((cu_alloc_fn *)call)(&wide, bytes);
    if (allocator->narrow && narrow != (unsigned)*ptr)
        *ptr = narrow;
    else if (!allocator->narrow)
        *ptr = wide;
    if (code != CU_OK && allocator->pitched &&
        (pitch != POISON || narrow_pitch != (unsigned)POISON))
        *ptr = 0;
    return code;
}

static int give(uint64_t ptr)
{
    void *call = look(allocator->free_name);

    if (allocator->array)
        return ((cu_ctx_fn *)call)((cu_handle)(uintptr_t)ptr);
    if (allocator->pooled)
        return ((cu_free_async_fn *)call)(ptr, NULL);
    if (allocator->narrow)
        return ((cu_free_v1_fn *)call)((unsigned)ptr);
    return ((cu_free_fn *)call)(ptr);
}

struct filling {
    uint64_t pieces[MAX_PIECES];
    unsigned count;
    uint64_t bytes;
    unsigned refused;
    unsigned touched; /* refusals after which an output is not as a real driver leaves it */
    int strange;      /* a code that is neither success nor out of memory */
};

static struct filling filling;

static void fill(size_t piece)
{
    const size_t large = allocator->array ? (size_t)64 << 10 : (size_t)2 << 20;
    const bool is_large = allocator->mapped || allocator->pooled || allocator->array;
    const size_t least = is_large ? large : 512;
    const uint64_t left = allocator->mapped || allocator->array ? POISON : 0;
    uint64_t ptr;
    int code;

    while (piece >= least && filling.count < MAX_PIECES) {
        ptr = POISON;
        code = take(&ptr, piece);
        if (code == CU_OK) {
            filling.pieces[filling.count++] = ptr;
            filling.bytes += piece;
            continue;
        }
        filling.refused++;
        filling.touched += ptr != left;
        if (code != CU_OUT_OF_MEMORY)
            filling.strange = code;
        piece /= 2;
    }
}

static void wait_for_judge(void)
{
    char line[8];

    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        exit(1);
}

static void say_nvml(void)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    struct nvml_memory memory = {0};
    struct nvml_memory_v2 memory_v2 = {.version = (unsigned)sizeof(memory_v2) | 2u << 24};
    struct nvml_process_v1 list_v1[64];
    struct nvml_process_v2 list[64];
    static const char *const lists[] = {"nvmlDeviceGetComputeRunningProcesses",
                                        "nvmlDeviceGetComputeRunningProcesses_v2",
                                        "nvmlDeviceGetComputeRunningProcesses_v3"};
    cu_handle device;
    unsigned count;
    int code;

    code = ((nvml_void_fn *)dlsym(nvml, "nvmlInit_v2"))();
    code |= ((nvml_handle_fn *)dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    code |= ((nvml_memory_fn *)dlsym(nvml, "nvmlDeviceGetMemoryInfo"))(device, &memory);
    code |= ((nvml_memory_v2_fn *)dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2"))(device, &memory_v2);
    printf(
        ", \"nvml_code\": %d, \"nvml\": [%llu, %llu, %llu], \"nvml_v2\": [%llu, %llu, %llu, %llu]",
        code, memory.total, memory.free, memory.used, memory_v2.total, memory_v2.reserved,
        memory_v2.free, memory_v2.used);
    for (unsigned version = 0; version < 3; version++) {
        void *call = dlsym(nvml, lists[version]);

        count = 64;
        if (version == 0)
            code = ((nvml_processes_v1_fn *)call)(device, &count, list_v1);
        else
            code = ((nvml_processes_v2_fn *)call)(device, &count, list);
        printf(", \"processes_v%u\": [%d", version + 1, code);
        for (unsigned i = 0; code == 0 && i < count; i++)
            printf(", [%u, %llu]", version ? list[i].pid : list_v1[i].pid,
                   version ? list[i].bytes : list_v1[i].bytes);
        printf("]");
    }
}

static void say_driver(void)
{
    size_t free_bytes = 0, total = 0, device_total = 0;
    int code = LOOK(cu_info_fn, "cuMemGetInfo_v2")(&free_bytes, &total);

    code |= LOOK(cu_total_fn, "cuDeviceTotalMem_v2")(&device_total, 0);
    printf(", \"info_code\": %d, \"info\": [%zu, %zu], \"device_total\": %zu", code, free_bytes,
           total, device_total);
}

static int command_fill(int argc, char **argv)
{
    int code, free_code = 0, last;

    for (size_t i = 0; i < sizeof(allocators) / sizeof(allocators[0]); i++)
        if (argc > 3 && strcmp(allocators[i].name, argv[3]) == 0)
            allocator = &allocators[i];
    if (!allocator)
        return 2;
    code = make_context();
    if (code == CU_OK)
        fill((size_t)64 << 20);
    printf("{\"pid\": %d, \"context\": %d, \"taken\": %llu, \"pieces\": %u, \"refused\": %u, "
           "\"touched\": %u, \"strange\": %d",
           getpid(), code, (unsigned long long)filling.bytes, filling.count, filling.refused,
           filling.touched, filling.strange);
    say_driver();
    say_nvml();
    printf("}\n");
    wait_for_judge();

    for (unsigned i = 0; i < filling.count; i++) {
        last = give(filling.pieces[i]);
        free_code = last ? last : free_code;
    }
    if (allocator->pooled)
        free_code |= LOOK(cu_void_fn, "cuCtxSynchronize")();
    printf("{\"free\": %d, \"double_free\": %d", free_code,
           filling.count ? give(filling.pieces[0]) : -1);
    say_driver();
    printf("}\n");
    wait_for_judge();
    return 0;
}

/* Odd calls. Each prints its name, the answer, and whether an output was touched. */

static void row(const char *name, int code, bool touched)
{
    printf("%s: %d%s\n", name, code, touched ? " touched" : "");
}

static void odd_allocations(const char *when)
{
    cu_alloc_fn *alloc = LOOK(cu_alloc_fn, "cuMemAlloc_v2");
    cu_pitch_fn *pitched = LOOK(cu_pitch_fn, "cuMemAllocPitch_v2");
    static const struct {
        const char *name;
        size_t bytes;
    } sizes[] = {{"0", 0},
                 {"SIZE_MAX", SIZE_MAX},
                 {"SIZE_MAX-510", SIZE_MAX - 510},
                 {"2^63", (size_t)1 << 63},
                 {"2^48", (size_t)1 << 48}};
    char name[96];
    cu_ptr ptr;
    size_t pitch;
    int code;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ptr = POISON;
        snprintf(name, sizeof(name), "%s alloc %s", when, sizes[i].name);
        code = alloc(&ptr, sizes[i].bytes);
        row(name, code, ptr != POISON);
        ptr = POISON, pitch = POISON;
        snprintf(name, sizeof(name), "%s pitch %s wide", when, sizes[i].name);
        code = pitched(&ptr, &pitch, sizes[i].bytes, 4, 4);
        row(name, code, ptr != POISON || pitch != POISON);
        ptr = POISON, pitch = POISON;
        snprintf(name, sizeof(name), "%s pitch %s high", when, sizes[i].name);
        code = pitched(&ptr, &pitch, 4, sizes[i].bytes, 4);
        row(name, code, ptr != POISON || pitch != POISON);
    }
    ptr = POISON, pitch = POISON;
    code = pitched(&ptr, &pitch, 512, 4, 3);
    row("pitch element 3", code, ptr != POISON || pitch != POISON);
    row("alloc to NULL", alloc(NULL, 512), false);
    row("pitch to NULL", pitched(NULL, &pitch, 512, 4, 4), false);
    row("pitch of NULL", pitched(&ptr, NULL, 512, 4, 4), false);
}

static void odd_frees(const char *when)
{
    cu_free_fn *give_back = LOOK(cu_free_fn, "cuMemFree_v2");
    char name[64];

    snprintf(name, sizeof(name), "%s free 0", when);
    row(name, give_back(0), false);
    snprintf(name, sizeof(name), "%s free stranger", when);
    row(name, give_back(UINT64_C(0x123456789000)), false);
    snprintf(name, sizeof(name), "%s free poison", when);
    row(name, give_back(POISON), false);
}

static void odd_queries(const char *when)
{
    size_t a = POISON, b = POISON;
    char name[64];
    int code;

    code = LOOK(cu_info_fn, "cuMemGetInfo_v2")(&a, &b);
    snprintf(name, sizeof(name), "%s info", when);
    row(name, code, a != POISON || b != POISON);
    row("info NULL NULL", LOOK(cu_info_fn, "cuMemGetInfo_v2")(NULL, NULL), false);
    a = POISON;
    code = LOOK(cu_info_fn, "cuMemGetInfo_v2")(&a, NULL);
    row("info, total NULL", code, a != POISON);
    b = POISON;
    code = LOOK(cu_info_fn, "cuMemGetInfo_v2")(NULL, &b);
    row("info, free NULL", code, b != POISON);
    row("total NULL", LOOK(cu_total_fn, "cuDeviceTotalMem_v2")(NULL, 0), false);
    a = POISON;
    code = LOOK(cu_total_fn, "cuDeviceTotalMem_v2")(&a, 99);
    row("total of device 99", code, a != POISON);
    a = POISON;
    code = LOOK(cu_total_fn, "cuDeviceTotalMem_v2")(&a, -1);
    row("total of device -1", code, a != POISON);
}

static void odd_contexts(void)
{
    cu_handle context = (cu_handle)POISON;
    int code;

    code = LOOK(cu_retain_fn, "cuDevicePrimaryCtxRetain")(&context, 99);
    row("retain device 99", code, context != (cu_handle)POISON);
    row("retain to NULL", LOOK(cu_retain_fn, "cuDevicePrimaryCtxRetain")(NULL, 0), false);
    row("create to NULL", LOOK(cu_ctx_create_fn, "cuCtxCreate_v2")(NULL, 0, 0), false);
    context = (cu_handle)POISON;
    code = LOOK(cu_ctx_create_fn, "cuCtxCreate_v2")(&context, 0, 99);
    row("create on device 99", code, context != (cu_handle)POISON);
    row("release what is not held", LOOK(cu_release_fn, "cuDevicePrimaryCtxRelease_v2")(0), false);
    row("destroy NULL", LOOK(cu_ctx_fn, "cuCtxDestroy_v2")(NULL), false);
    row("destroy stranger", LOOK(cu_ctx_fn, "cuCtxDestroy_v2")((cu_handle)0x1234567890), false);
    row("unload stranger", LOOK(cu_module_fn, "cuModuleUnload")((cu_handle)0x1234567890), false);
}

static void odd_pieces(void)
{
    cu_alloc_fn *alloc = LOOK(cu_alloc_fn, "cuMemAlloc_v2");
    cu_free_fn *give_back = LOOK(cu_free_fn, "cuMemFree_v2");
    cu_ptr first = POISON, second = POISON;

    row("alloc 1", alloc(&first, 1), first != POISON);
    row("alloc 4 MiB", alloc(&second, 4 << 20), second != POISON);
    row("free inside", give_back(second + 4096), false);
    row("free first", give_back(first), false);
    row("free first again", give_back(first), false);
    row("free second", give_back(second), false);
    row("free second again", give_back(second), false);
}

static int command_codes(int argc, char **argv)
{
    cu_handle context = (cu_handle)POISON;
    int code;

    (void)argc, (void)argv;
    odd_allocations("before init,");
    odd_frees("before init,");
    odd_queries("before init,");
    row("init 1", LOOK(cu_init_fn, "cuInit")(1), false);
    row("init", LOOK(cu_init_fn, "cuInit")(0), false);
    odd_contexts();
    odd_allocations("no context,");
    odd_frees("no context,");
    odd_queries("no context,");
    row("context", make_context(), false);
    odd_allocations("context,");
    odd_frees("context,");
    odd_queries("context,");
    odd_pieces();
    code = LOOK(cu_ctx_create_fn, "cuCtxCreate_v2")(&context, 0, 0);
    row("second context", code, context != (cu_handle)POISON);
    odd_pieces();
    row("destroy second", LOOK(cu_ctx_fn, "cuCtxDestroy_v2")(context), false);
    row("destroy second again", LOOK(cu_ctx_fn, "cuCtxDestroy_v2")(context), false);
    row("release", LOOK(cu_release_fn, "cuDevicePrimaryCtxRelease_v2")(0), false);
    row("release again", LOOK(cu_release_fn, "cuDevicePrimaryCtxRelease_v2")(0), false);
    odd_allocations("released,");
    return 0;
}

/* Which export a pointer is, by comparing with what plain lookup tells. */
static const char *name_of(void *pointer)
{
    static void *known[ENTRIES];

    for (size_t i = 0; i < ENTRIES && !known[i]; i++)
        known[i] = dlsym(library, entries[i].name);
    if (!pointer)
        return "NULL";
    for (size_t i = 0; i < ENTRIES; i++)
        if (known[i] == pointer)
            return entries[i].name;
    return "stranger";
}

static int command_versions(int argc, char **argv)
{
    static const int more[] = {1000,  2000,  3010,  3020,  4000, 10000,
                               11030, 12000, 12080, 13000, 99999};
    const char *base = "";
    void *found;
    int code, status;

    (void)argc, (void)argv;
    for (size_t i = 0; i < ENTRIES; i++) {
        if (!entries[i].version || strcmp(entries[i].base, base) == 0)
            continue;
        base = entries[i].base;
        for (size_t v = 0; v < sizeof(more) / sizeof(more[0]); v++) {
            for (unsigned flags = 0; flags < 4; flags++) {
                found = NULL, status = -1;
                code = proc_v2(base, &found, more[v], flags, &status);
                printf("v2 %s %d %u: %d %d %s\n", base, more[v], flags, code, status,
                       name_of(found));
                found = NULL;
                code = proc_v1(base, &found, more[v], flags);
                printf("v1 %s %d %u: %d %s\n", base, more[v], flags, code, name_of(found));
            }
        }
    }
    found = (void *)POISON;
    code = proc_v2("cuNoSuchThing", &found, 13000, 0, &status);
    printf("unknown: %d %d\n", code, status);
    code = proc_v2("", &found, 13000, 0, &status);
    printf("empty: %d %d\n", code, status);
    return 0;
}

/* What is nobody's business must be as it was: also when asked again and again. */
static int command_others(int argc, char **argv)
{
    static const char *const names[] = {
        "malloc", "free",          "dlsym", "curl_easy_init",  "cu",
        "cuda",   "cuNoSuchThing", "nvml",  "nvmlNoSuchThing", "getpid"};
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    void *first, *again;

    (void)argc, (void)argv;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        first = dlsym(RTLD_NEXT, names[i]);
        for (int n = 0; n < 1000; n++) {
            again = dlsym(RTLD_NEXT, names[i]);
            if (again != first)
                printf("%s: RTLD_NEXT changed its mind\n", names[i]);
        }
        printf("%s: %s %s %s\n", names[i], first ? "found" : "none",
               dlsym(libc, names[i]) ? "found" : "none",
               dlsym(library, names[i]) ? "found" : "none");
    }
    printf("malloc is malloc: %d\n", dlsym(libc, "malloc") == (void *)malloc);
    printf("dlsym is dlsym: %d\n", dlsym(libc, "dlsym") == (void *)dlsym);
    printf("of no such version: %d\n", dlvsym(libc, "dlsym", "GLIBC_0.1") != NULL);
    printf("error told of it: %d\n", dlerror() != NULL);
    printf("error told: %d\n", (dlsym(libc, "cuNoSuchThing"), dlerror() != NULL));
    printf("error told once: %d\n", dlerror() == NULL);
    return 0;
}

static int command_floats(int argc, char **argv)
{
    typedef int floats_fn(double, double, double, double, double, double, double, double);

    (void)argc, (void)argv;
    printf("%d\n", ((floats_fn *)dlsym(library, "cuMemAllocFloats"))(1, 2, 3, 4, 5, 6, 7, 8));
    return 0;
}

/* Whether what the driver has at another address than its export is found as that export is. */
static void say_other_address(const char *name, const char *export)
{
    void *found = NULL;
    int status;

    if (proc_v2 && proc_v2(name, &found, 3020, 0, &status) == 0)
        printf("%s at another address: %d\n", name, found == dlsym(library, export));
}

static int command_newer(int argc, char **argv)
{
    static const char *const names[] = {"cuDriverAsked",       "cuMemAllocNewer",
                                        "cuGLCtxCreate_v2",    "cuMemFreeNewer",
                                        "cuLaunchHostFunc_v9", "cuLaunchKernelEx_v9"};
    static const char *const of_nvml[] = {"nvmlDeviceSetNewer", "nvmlGpuInstanceCreateNewer_v1",
                                          "nvmlDeviceGetResetNewer", "nvmlDeviceSettleNewer",
                                          "nvmlEventSetResetNewer"};
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    void *found = NULL;
    int status;

    (void)argc, (void)argv;
    if (proc_v2)
        (void)proc_v2("cuNoSuchThingAtAll", &found, 13000, 0, &status);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        found = dlsym(library, names[i]);
        printf("%s: %d\n", names[i], found ? ((int (*)(void))found)() : -1);
    }
    if (proc_v2 && proc_v2(names[1], &found, 13000, 0, &status) == 0)
        printf("%s by address: %d\n", names[1], ((int (*)(void))found)());
    say_other_address("cuMemFree", "cuMemFree_v2");
    (void)((int (*)(unsigned))dlsym(library, "cuInit"))(0);
    say_other_address("cuMemAlloc", "cuMemAlloc_v2");
    for (size_t i = 0; nvml && i < sizeof(of_nvml) / sizeof(of_nvml[0]); i++)
        printf("%s: %d\n", of_nvml[i], ((int (*)(void))dlsym(nvml, of_nvml[i]))());
    return 0;
}

/* What is told in memory, and where that memory is, as the library looks at it and the driver. */
static int command_memory(int argc, char **argv)
{
    typedef int any_fn(void *, void *, void *, size_t, void *, void *);
    static const struct {
        const char *name;
        unsigned argument; /* the memory */
        unsigned at;       /* in it, a pointer to itself */
    } calls[] = {
        {"cuGraphAddNode", 4, 16},        {"cuGraphAddNode_v2", 5, 16},
        {"cuGraphAddNode_v3", 5, 16},     {"cuLaunchKernelEx", 0, 32},
        {"cuLaunchKernelEx_ptsz", 0, 32}, {"cuLaunchCooperativeKernelMultiDevice", 0, 40},
    };

    (void)argc, (void)argv;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        any_fn *function = (any_fn *)dlsym(library, calls[i].name);
        static void *memory[64];
        void *words[6] = {NULL};
        int result;

        memset(memory, 0, sizeof(memory));
        memory[calls[i].at / sizeof(void *)] = memory;
        words[calls[i].argument] = memory;
        if (strcmp(calls[i].name, "cuLaunchCooperativeKernelMultiDevice") == 0)
            words[1] = (void *)1; /* device */
        result = function(words[0], words[1], words[2], (size_t)words[3], words[4], words[5]);
        printf("%s: %d%s\n", calls[i].name, result, memory[3] ? " with an output" : "");
    }
    return 0;
}

static int command_old(int argc, char **argv)
{
    typedef int any_fn(long, long, long, long, long, long, long, long);
    int status;

    for (int i = 3; i < argc; i++) {
        any_fn *function = (any_fn *)dlsym(RTLD_DEFAULT, argv[i]);
        pid_t child = function ? fork() : -1;

        if (child == 0) {
            (void)alarm(5);
            _exit(function(0, 0, 0, 0, 0, 0, 0, 0) == 0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            printf("%s: unreachable\n", argv[i]);
        else if (!WIFEXITED(status))
            printf("%s: signal %d\n", argv[i], WTERMSIG(status));
        else
            printf("%s: %s\n", argv[i], WEXITSTATUS(status) ? "refused" : "ok");
    }
    return 0;
}

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"fill", command_fill},     {"codes", command_codes},   {"versions", command_versions},
    {"others", command_others}, {"old", command_old},       {"floats", command_floats},
    {"newer", command_newer},   {"memory", command_memory},
};

/* reach WAY[=FILE] COMMAND... */
int main(int argc, char **argv)
{
    char *argument;

    if (argc < 3)
        return 2;
    argument = strchr(argv[1], '=');
    if (argument)
        *argument++ = '\0';
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i].name, argv[1]) == 0)
            way = &ways[i];
    if (!way)
        return 2;
    library = way->open ? way->open(argument ? argument : "") : dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("{\"unreachable\": true}\n");
        return 0;
    }
    if (way->prepare)
        way->prepare();
    else
        procs_from_dlsym();
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(commands[i].name, argv[2]) == 0)
            return commands[i].run(argc, argv);
    return 2;
}

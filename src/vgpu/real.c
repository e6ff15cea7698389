/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/real.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/glibc.h"
#include "base/lock.h"
#include "base/util.h"
#include "driver/entries.h"
#include "driver/entry_numbers.inc"
#include "vgpu/graphs.h"
#include "vgpu/nvml_fixed.h"
#include "vgpu/vgpu.h"

void *real_functions[REAL_COUNT];

/* One of each function of ours, from the table's own address: hooks.S. */
extern const int32_t hook_distances[];

enum {
    HOOK_COUNT = 0
#define HOOK_DRIVER(name) +1
#define HOOK_NVML(name) +1
#include "vgpu/hooks.inc"
#undef HOOK_DRIVER
#undef HOOK_NVML
};

/* The names of NVML's functions, which no other table has. */
struct nvml_names {
#define LENGTH(name) char name[sizeof(#name)];
#define HOOK_DRIVER(name)
#define HOOK_NVML(name) LENGTH(name)
#include "vgpu/hooks.inc"
#undef HOOK_DRIVER
#undef HOOK_NVML
    CALLED_NVML(LENGTH)
#undef LENGTH
};
static const struct nvml_names nvml_names = {
#define TEXT(name) #name,
#define HOOK_DRIVER(name)
#define HOOK_NVML(name) TEXT(name)
#include "vgpu/hooks.inc"
#undef HOOK_DRIVER
#undef HOOK_NVML
    CALLED_NVML(TEXT)
#undef TEXT
};

/*
 * Where the name of each real function is: in numbers, since a pointer to each would take the
 * loader's time, and 32 bytes of the file.
 */
static const struct {
    uint16_t at : 15; /* the driver's: the row of driver_entries; NVML's: the place in nvml_names */
    uint16_t of_driver : 1;
} real_names[REAL_COUNT] = {
#define HOOK_DRIVER(name) [REAL_##name] = {ENTRY_##name, true},
#define HOOK_NVML(name) [REAL_##name] = {offsetof(struct nvml_names, name), false},
#include "vgpu/hooks.inc"
    CALLED_DRIVER(HOOK_DRIVER) CALLED_NVML(HOOK_NVML)
#undef HOOK_DRIVER
#undef HOOK_NVML
};

static const char *nvml_name(size_t i)
{
    return (const char *)&nvml_names + real_names[i].at;
}

static const char *real_name(size_t i, char buffer[DRIVER_NAME_MAX])
{
    return real_names[i].of_driver ? driver_entry_name(&driver_entries[real_names[i].at], buffer)
                                   : nvml_name(i);
}

static void *hook_function(size_t i)
{
    return (void *)((uintptr_t)hook_distances + hook_distances[i]);
}

extern void unknown_0(void), unknown_1(void), unknown_2(void), unknown_3(void), unknown_4(void),
    unknown_5(void), unknown_6(void), unknown_7(void); /* entry.S */
struct unknown real_unknown[UNKNOWN_MAX];

/* From the driver's own addresses to ours: open addressing. What is there stays, and is read
 * without a lock. */
enum {
    POINTER_SLOTS = 4096,
};

/* Each hook has an export of the driver's, and may have another address by cuGetProcAddress. */
_Static_assert(2 * 2 * HOOK_COUNT <= POINTER_SLOTS, "the table stays half empty");

static struct {
    _Atomic(const void *) real;
    void *ours;
} pointers[POINTER_SLOTS];

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t pointers_lock =
    PTHREAD_MUTEX_INITIALIZER; /* while one is added: nothing is called under it */
static _Atomic bool driver_open, nvml_open, answers_known;
static void *driver_library; /* once driver_open */

static size_t pointer_slot(const void *real)
{
    uint64_t bits = (uint64_t)(uintptr_t)real;

    return (size_t)((bits * UINT64_C(0x9e3779b97f4a7c15)) >> 48) % POINTER_SLOTS;
}

static void add_pointer(const void *real, void *ours)
{
    size_t slot = pointer_slot(real);

    if (!real)
        return;
    lock_mutex(&pointers_lock);
    while (pointers[slot].real && pointers[slot].real != real)
        slot = (slot + 1) % POINTER_SLOTS;
    if (!pointers[slot].real) {
        pointers[slot].ours = ours;
        atomic_store_explicit(&pointers[slot].real, real, memory_order_release);
    }
    unlock_mutex(&pointers_lock);
}

void *hook_by_pointer(const void *real)
{
    const void *there;

    for (size_t slot = pointer_slot(real);
         (there = atomic_load_explicit(&pointers[slot].real, memory_order_acquire));
         slot = (slot + 1) % POINTER_SLOTS) {
        if (there == real)
            return pointers[slot].ours;
    }
    return NULL;
}

static void (*const unknown_thunks[])(void) = {unknown_0, unknown_1, unknown_2, unknown_3,
                                               unknown_4, unknown_5, unknown_6, unknown_7};
_Static_assert(ARRAY_SIZE(unknown_thunks) == UNKNOWN_MAX, "one each");

static CUresult refuse_unknown(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static bool contains_any(const char *name, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strstr(name, words[i]))
            return true;
    }
    return false;
}

/* The known function that an unlisted one is a later version of, by its name; or NULL. */
static const struct driver_entry *former_version(const char *name)
{
    char former[64];
    size_t len = strlen(name);
    const char *mark = strstr(name, "_v");

    if (!mark || len >= sizeof(former) || driver_entry_find(name))
        return NULL;
    memcpy(former, name, len);
    former[mark - name] = '\0';
    return driver_entry_find(former);
}

bool name_is_unknown(const char *name)
{
    const struct driver_entry *former = former_version(name);
    static const char *const takes[] = {"Alloc",     "Launch",       "MemCreate",  "PoolCreate",
                                        "CtxCreate", "ArrayCreate",  "ModuleLoad", "LibraryLoad",
                                        "Import",    "OpenMemHandle"};
    static const char *const tells[] = {"Get", "Set", "Free", "Destroy", "Export"};

    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z' &&
           contains_any(name, takes, ARRAY_SIZE(takes)) &&
           !contains_any(name, tells, ARRAY_SIZE(tells)) && !driver_entry_find(name) &&
           (!former || former->class != DRIVER_PASS);
}

static void note_unknown(const char *name, void *function)
{
    const struct driver_entry *former = former_version(name);
    unsigned count = 0;

    /* Its nodes may be of any type: it passes, and graphs are looked at. */
    if (former && former->class == DRIVER_GRAPH)
        graphs_will_allocate();
    if (!name_is_unknown(name))
        return;
    while (count < UNKNOWN_MAX && real_unknown[count].name)
        count++;
    if (count < UNKNOWN_MAX)
        real_unknown[count] = (struct unknown){name, function};
    add_pointer(function,
                count < UNKNOWN_MAX ? (void *)unknown_thunks[count] : (void *)refuse_unknown);
}

void *hook_by_name(const char *name)
{
    const struct driver_entry *entry = driver_entry_find(name);

    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (real_names[i].of_driver ? entry == &driver_entries[real_names[i].at]
                                    : strcmp(name, nvml_name(i)) == 0)
            return hook_function(i);
    }
    return name[0] == 'n' ? nvml_fixed_find(name) : NULL;
}

/*
 * cuGetProcAddress may give out other addresses than the exports. Asked for exactly the version
 * that means one export, its answer has that export's ABI, so it belongs to the same function of
 * ours.
 */
static bool add_answer(size_t hook)
{
    const struct driver_entry *entry = &driver_entries[real_names[hook].at];
    cuuint64_t flags;
    void *answer = NULL;

    if (!entry->version || !REAL(cuGetProcAddress_v2))
        return false;
    flags = entry->stream == DRIVER_STREAM_PER_THREAD
                ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    if (REAL(cuGetProcAddress_v2)(driver_entry_base(entry), &answer, entry->version, flags, NULL) !=
        CUDA_SUCCESS)
        return false;
    add_pointer(answer, hook_function(hook));
    return true;
}

/* Without a lock: the caller may hold the loader's, and the driver may call back whoever watches
 * it. Several threads may ask at once, and find the same. */
void *hook_by_answer(const void *real)
{
    static __thread bool is_asking;
    void *ours = hook_by_pointer(real);
    bool any = false;

    if (ours || is_asking || atomic_load_explicit(&answers_known, memory_order_acquire))
        return ours;
    is_asking = true;
    for (size_t i = 0; i < HOOK_COUNT; i++)
        any |= real_names[i].of_driver && add_answer(i);
    is_asking = false;
    /* A driver that refuses them all is asked again. */
    if (any)
        atomic_store_explicit(&answers_known, true, memory_order_release);
    return hook_by_pointer(real);
}

void real_ask_again(void)
{
    atomic_store(&answers_known, false);
}

static CUresult absent_in_driver(void)
{
    return CUDA_ERROR_NOT_FOUND;
}

static nvmlReturn_t absent_in_nvml(void)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

bool real_has(enum real_index index)
{
    const void *function = real_functions[index];

    return function && function != (void *)absent_in_driver && function != (void *)absent_in_nvml;
}

/* What is asked of a function that is not there is answered, whatever its arguments are. */
static void fill_absent(bool of_driver)
{
    void *absent = of_driver ? (void *)absent_in_driver : (void *)absent_in_nvml;

    for (size_t i = 0; i < REAL_COUNT; i++) {
        if (real_names[i].of_driver == of_driver && !real_functions[i])
            real_functions[i] = absent;
    }
}

static void fill(void *library, bool of_driver)
{
    const void *somewhere = of_driver ? libc_dlsym(library, "cuInit") : NULL;
    struct link_map *map = NULL;
    Dl_info info;

    for (size_t i = 0; i < REAL_COUNT; i++) {
        char buffer[DRIVER_NAME_MAX];

        if (real_names[i].of_driver != of_driver)
            continue;
        real_functions[i] = libc_dlsym(library, real_name(i, buffer));
        if (i < HOOK_COUNT)
            add_pointer(real_functions[i], hook_function(i));
    }
    fill_absent(of_driver);
    if (somewhere && dladdr1(somewhere, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map)
        elf_each_function(map, note_unknown);
}

static bool open_library(const char *name, bool of_driver, _Atomic bool *opened)
{
    void *library;

    if (atomic_load_explicit(opened, memory_order_acquire))
        return true;

    lock_mutex(&open_lock);
    if (!atomic_load(opened)) {
        if (!libc_dlsym)
            libc_find();
        /* Whichever copy the process has loaded under this name already, else the usual search. */
        library = libc_dlsym ? dlopen(name, RTLD_LAZY | RTLD_LOCAL) : NULL;
        if (library) {
            fill(library, of_driver);
            if (of_driver)
                driver_library = library;
            atomic_store_explicit(opened, true, memory_order_release);
        } else {
            fill_absent(of_driver);
        }
    }
    unlock_mutex(&open_lock);
    return atomic_load(opened);
}

bool real_driver(void)
{
    return open_library("libcuda.so.1", true, &driver_open);
}

void *real_driver_symbol(const char *name)
{
    return real_driver() ? libc_dlsym(driver_library, name) : NULL;
}

struct real_relaxed real_relax(void)
{
    struct real_relaxed relaxed = {.before = CU_STREAM_CAPTURE_MODE_RELAXED};

    relaxed.on = REAL(cuThreadExchangeStreamCaptureMode) &&
                 REAL(cuThreadExchangeStreamCaptureMode)(&relaxed.before) == CUDA_SUCCESS;
    return relaxed;
}

void real_end_relaxed(struct real_relaxed *relaxed)
{
    if (relaxed->on)
        (void)REAL(cuThreadExchangeStreamCaptureMode)(&relaxed->before);
}

bool real_nvml(void)
{
    return open_library("libnvidia-ml.so.1", false, &nvml_open);
}

void real_after_fork(void)
{
    (void)pthread_mutex_init(&open_lock, NULL);
    (void)pthread_mutex_init(&pointers_lock, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Every way to look a symbol up gives our function where it would have given the driver's.
 *
 * A lookup by name (dlsym, dlvsym) is made with the caller's own arguments first: only an answer
 * that lies in a driver library is replaced, so a program's own function of a driver-like name
 * stays its own. A driver is known by its file's name or by the name it gives itself, and there is
 * one a process: what is asked of a second copy is answered with the first one's, or half of the
 * calls would go to a driver that was never initialised. ELF names are exact ABIs. cuGetProcAddress
 * is asked first too, and its answer replaced by address, since only the driver knows which ABI a
 * name means at a version and flavour.
 */

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

#include "base/glibc.h"
#include "base/util.h"
#include "driver/entries.h"
#include "vgpu/real.h"
#include "vgpu/vgpu.h"

/* Called from entry.S. */
int lookup_is_ours(const char *name);
void *lookup_symbol(void *handle, const char *name, const void *unused, const void *caller);
void *lookup_version(void *handle, const char *name, const char *version, const void *caller);
PUBLIC void *dlmopen(Lmid_t namespace_id, const char *path, int flags);

static const char *file_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    return slash ? slash + 1 : path;
}

static bool is_driver_file(const char *path)
{
    const char *name = file_name(path);

    return name &&
           (strncmp(name, "libcuda.so", 10) == 0 || strncmp(name, "libnvidia-ml.so", 15) == 0);
}

/* The name that an object gives itself, or NULL. */
static const char *object_name(const struct link_map *map)
{
    const char *strings = NULL;
    size_t offset = 0;

    for (const ElfW(Dyn) *dynamic = map->l_ld; dynamic->d_tag != DT_NULL; dynamic++) {
        /* glibc relocates this address in place, musl does not. */
        if (dynamic->d_tag == DT_STRTAB)
            strings =
                (const char *)(dynamic->d_un.d_ptr < map->l_addr ? map->l_addr + dynamic->d_un.d_ptr
                                                                 : dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_SONAME)
            offset = dynamic->d_un.d_val;
    }
    return strings && offset ? strings + offset : NULL;
}

static bool lies_in_driver(const void *address)
{
    struct link_map *map = NULL;
    Dl_info info;

    if (dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || !map)
        return false;
    return is_driver_file(info.dli_fname) || is_driver_file(object_name(map));
}

/* A cheap test first: this stands before every dlsym of the process, a sanitizer's before it is
 * ready among them. */
__attribute__((no_sanitize("address", "thread", "undefined"))) int lookup_is_ours(const char *name)
{
    if (!__atomic_load_n(&libc_dlsym, __ATOMIC_ACQUIRE))
        libc_find();
    if (!name || !((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v')))
        return 0;
    return hook_by_name(name) != NULL || driver_entry_find(name) != NULL || name_is_unknown(name);
}

/* The answer, or ours for it if it is the driver's. */
static void *replace(void *answer, const char *name)
{
    void *ours = hook_by_name(name), *first;

    if (!answer || answer == ours || !lies_in_driver(answer))
        return answer;
    if (ours)
        return ours;
    first = real_driver_symbol(name);
    if (!first)
        return answer;
    ours = hook_by_pointer(first);
    return ours ? ours : first;
}

/* Whether an address lies in an object at or after this one in the order of loading. */
static bool lies_behind(const void *address, const struct link_map *first)
{
    struct link_map *map = NULL;
    Dl_info info;

    if (dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0)
        return false;
    for (; first; first = first->l_next) {
        if (first == map)
            return true;
    }
    return false;
}

/* RTLD_NEXT for another caller than ourselves: the first definition in the objects behind it. */
static void *next_symbol(const char *name, const void *caller)
{
    struct link_map *map = NULL;
    Dl_info info;

    if (dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || !map)
        return libc_dlsym(RTLD_NEXT, name);

    for (map = map->l_next; map; map = map->l_next) {
        void *handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        void *found;

        if (!handle)
            continue;
        found = libc_dlsym(handle, name);
        (void)dlclose(handle);
        if (found && lies_behind(found, map))
            return found;
    }
    return NULL;
}

/*
 * RTLD_DEFAULT for another caller than ourselves: the program's objects, then the caller's own and
 * those it was linked with, which only it can see if it was opened with RTLD_LOCAL.
 */
static void *default_symbol(const char *name, const void *caller)
{
    void *found = libc_dlsym(RTLD_DEFAULT, name), *handle;
    struct link_map *map = NULL;
    Dl_info info;

    if (found || dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || !map)
        return found;
    handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    found = libc_dlsym(handle, name);
    (void)dlclose(handle);
    return found;
}

void *lookup_symbol(void *handle, const char *name, const void *unused, const void *caller)
{
    void *found;

    (void)unused;
    if (!libc_dlsym)
        return NULL;
    if (handle == RTLD_NEXT)
        found = next_symbol(name, caller);
    else if (handle == RTLD_DEFAULT)
        found = default_symbol(name, caller);
    else
        found = libc_dlsym(handle, name);
    return replace(found, name);
}

/* The driver's exports carry no version: whichever is asked for, glibc gives the one there is. */
void *lookup_version(void *handle, const char *name, const char *version, const void *caller)
{
    void *found;

    if (!libc_dlvsym)
        return NULL;
    found = handle == RTLD_NEXT ? next_symbol(name, caller) : libc_dlvsym(handle, name, version);
    if (!found && handle == RTLD_DEFAULT)
        found = default_symbol(name, caller);
    return replace(found, name);
}

/* The C library's own parts, which open files by themselves, but no driver. */
static bool is_libc(const char *path)
{
    static const char *const starts[] = {"libc.so.",  "libdl.so.", "libpthread.so.",
                                         "ld-linux",  "libgcc_s.", "libm.so.",
                                         "librt.so.", "ld-musl-",  "libstdc++."};
    const char *name = file_name(path);

    for (size_t i = 0; name && i < ARRAY_SIZE(starts); i++) {
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    }
    return false;
}

/*
 * Whether a library, just opened in a namespace of its own, may reach the driver from there, where
 * we are not: it was linked with it, or some object of its namespace can open others.
 */
static bool may_reach_driver(void *opened)
{
    const struct link_map *map = opened; /* glibc's handle */

    if (libc_dlsym(opened, "cuInit") || libc_dlsym(opened, "nvmlInit_v2"))
        return true;
    while (map->l_prev)
        map = map->l_prev;
    for (; map; map = map->l_next) {
        if (!is_libc(map->l_name) && (elf_wants(map, "dlopen") || elf_wants(map, "dlmopen")))
            return true;
    }
    return false;
}

/*
 * A driver in a namespace of its own would be out of reach of those that are there with it, so it
 * is opened in ours; so is a library that brings the driver along, or could open it.
 */
void *dlmopen(Lmid_t namespace_id, const char *path, int flags)
{
    void *opened;

    if (!libc_dlmopen)
        libc_find();
    if (!libc_dlmopen)
        return NULL;
    if (is_driver_file(path))
        namespace_id = LM_ID_BASE;
    opened = libc_dlmopen(namespace_id, path, flags);
    if (!opened || namespace_id == LM_ID_BASE || !may_reach_driver(opened))
        return opened;
    (void)dlclose(opened);
    return libc_dlmopen(LM_ID_BASE, path, flags);
}

/* The driver writes into memory of our own, since another thread may read the caller's before what
 * is there is ours. */
static void give_answer(void *found, void **pfn)
{
    void *ours = found ? hook_by_answer(found) : NULL;

    *pfn = ours ? ours : found;
}

PUBLIC CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    void *untouched = &untouched, *found = untouched;
    CUresult result;

    if (!real_driver())
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    result = REAL(cuGetProcAddress)(symbol, pfn ? &found : NULL, version, flags);
    if (found != untouched)
        give_answer(found, pfn);
    return result;
}

PUBLIC CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status)
{
    void *untouched = &untouched, *found = untouched;
    CUresult result;

    if (!real_driver())
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    result = REAL(cuGetProcAddress_v2)(symbol, pfn ? &found : NULL, version, flags, status);
    if (found != untouched)
        give_answer(found, pfn);
    return result;
}

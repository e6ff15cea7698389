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
 *
 * A lookup of a lookup is treated alike: where the answer would be libc's dlsym, dlvsym or dlmopen,
 * it is ours, or the program would go on with one that we don't see. Another library's stays its
 * own.
 */

#include <dlfcn.h>
#include <errno.h>
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

/* The object that an address lies in, or NULL. */
static struct link_map *object_of(const void *address)
{
    struct link_map *map = NULL;
    Dl_info info;

    return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 ? map : NULL;
}

/* Whether an address lies in a file of such a name, or of one that calls itself so. */
static bool lies_in(const void *address, bool (*is_such)(const char *path))
{
    const struct link_map *map = object_of(address);

    return map && (is_such(map->l_name) || is_such(object_name(map)));
}

/* Our function for one of libc's that look symbols up, or NULL. */
static void *own_lookup(const char *name)
{
    if (strcmp(name, "dlsym") == 0)
        return (void *)dlsym;
    if (strcmp(name, "dlvsym") == 0)
        return (void *)dlvsym;
    return strcmp(name, "dlmopen") == 0 ? (void *)dlmopen : NULL;
}

/* A cheap test first: this stands before every dlsym of the process, a sanitizer's before it is
 * ready among them, which asks for dlopen, dlclose and dl_iterate_phdr. */
__attribute__((no_sanitize("address", "thread", "undefined"))) int lookup_is_ours(const char *name)
{
    if (!__atomic_load_n(&libc_dlsym, __ATOMIC_ACQUIRE))
        libc_find();
    if (!name)
        return 0;
    if (name[0] == 'd' && name[1] == 'l' && (name[2] == 's' || name[2] == 'v' || name[2] == 'm'))
        return own_lookup(name) != NULL;
    if (!((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v')))
        return 0;
    return hook_by_name(name) != NULL || driver_entry_find(name) != NULL || name_is_unknown(name);
}

/* The answer, or ours for it if it is the driver's, or one of libc's lookups. */
static void *replace(void *answer, const char *name)
{
    void *ours = own_lookup(name), *first;

    if (ours)
        return answer && lies_in(answer, is_libc) ? ours : answer;
    ours = hook_by_name(name);
    if (!answer || answer == ours || !lies_in(answer, is_driver_file))
        return answer;
    if (ours)
        return ours;
    first = real_driver_symbol(name);
    if (!first)
        return answer;
    ours = hook_by_pointer(first);
    return ours ? ours : first;
}

/* What libc answers us, of any version where none is named. */
static void *ask_libc(void *handle, const char *name, const char *version)
{
    return version ? libc_dlvsym(handle, name, version) : libc_dlsym(handle, name);
}

/*
 * The same for an object, and those it was linked with. By libc's own dlopen: another library's
 * could look dlsym up, and come here again.
 */
static void *ask_object(const struct link_map *map, const char *name, const char *version)
{
    void *handle = libc_dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD), *found;

    if (!handle)
        return NULL;
    found = ask_libc(handle, name, version);
    (void)libc_dlclose(handle);
    return found;
}

/*
 * RTLD_NEXT for another caller than ourselves: the first of the objects behind it that defines it,
 * else, since what is opened late may lie behind those it was linked with, the first of these.
 */
static void *next_symbol(const char *name, const char *version, const void *caller)
{
    const struct link_map *own = object_of(caller);
    void *found;

    for (const struct link_map *map = own ? own->l_next : NULL; map; map = map->l_next) {
        found = ask_object(map, name, version);
        if (found && object_of(found) == map)
            return found;
    }
    found = own ? ask_object(own, name, version) : NULL;
    return found && object_of(found) != own ? found : ask_libc(RTLD_NEXT, name, version);
}

/*
 * RTLD_DEFAULT for another caller than ourselves: the program's objects, then the caller's own and
 * those it was linked with, which only it can see if it was opened with RTLD_LOCAL.
 */
static void *default_symbol(const char *name, const char *version, const void *caller)
{
    void *found = ask_libc(RTLD_DEFAULT, name, version);
    const struct link_map *map = found ? NULL : object_of(caller);

    return map ? ask_object(map, name, version) : found;
}

static void *look_up(void *handle, const char *name, const char *version, const void *caller)
{
    void *found;

    if (handle == RTLD_NEXT)
        found = next_symbol(name, version, caller);
    else if (handle == RTLD_DEFAULT)
        found = default_symbol(name, version, caller);
    else
        found = ask_libc(handle, name, version);
    return replace(found, name);
}

void *lookup_symbol(void *handle, const char *name, const void *unused, const void *caller)
{
    (void)unused;
    return libc_dlsym ? look_up(handle, name, NULL, caller) : NULL;
}

/* The driver's exports carry no version: whichever is asked for, glibc gives the one there is. */
void *lookup_version(void *handle, const char *name, const char *version, const void *caller)
{
    return libc_dlvsym ? look_up(handle, name, version, caller) : NULL;
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

/* What stands before us */

static const struct link_map *taken; /* by the constructor */

/* Our function of a name. The cheap test first: all names of libc are asked for. */
static void *own_function(const char *name)
{
    if (!lookup_is_ours(name))
        return NULL;
    return name[0] == 'd' ? own_lookup(name) : hook_by_name(name);
}

static void *own_for_taken(const char *name, void **slot)
{
    void *ours = own_function(name);

    return ours && object_of(*slot) == taken ? ours : NULL;
}

/* Whether it is the driver or libc; its functions are noted while they can still be found. */
static bool open_real(const struct link_map *map)
{
    const char *name = is_driver_file(map->l_name) ? map->l_name : object_name(map);

    if (is_driver_file(name))
        return strncmp(file_name(name), "libcuda", 7) == 0 ? real_driver() : real_nvml();
    if (!is_libc(map->l_name) && !is_libc(name))
        return false;
    libc_find();
    return libc_dlsym != NULL;
}

static void take(const struct link_map *map, const struct link_map *own)
{
    const struct link_map *other = own;
    Dl_info info;

    if (dladdr(map->l_ld, &info) == 0)
        return;
    taken = map;
    elf_redirect(map, info.dli_fbase, own_function);
    while (other->l_prev)
        other = other->l_prev;
    for (; other; other = other->l_next) {
        if (other != map && other != own)
            elf_rebind(other, own_for_taken);
    }
}

/*
 * The driver or libc may have been preloaded before us: what is linked with it was bound past us,
 * and what is opened later would be. Both are given ours. A driver's own calls stay as they are.
 */
static void __attribute__((constructor)) take_what_precedes(void)
{
    const struct link_map *own = object_of((void *)take_what_precedes);
    int saved = errno;

    for (const struct link_map *map = own ? own->l_prev : NULL; map; map = map->l_prev) {
        if (open_real(map))
            take(map, own);
    }
    errno = saved;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's entry points, looked up in every way that a program has. */

#include <dlfcn.h>
#include <string.h>

#include "anything.h"
#include "cu.h"

#ifdef UNLINKED /* for drivers that have not all of them */
#define LINKED(export) NULL
#else
#define LINKED(export) ((void *)export)
#define ENTRY(export, class, base, version, stream) extern void export(void);
#include "reach_names.inc"
#undef ENTRY
#endif

static const struct entry {
    const char *name, *base;
    int version; /* 0: cuGetProcAddress does not know it */
    bool per_thread;
    void *linked;
} entries[] = {
#define ENTRY(export, class, base, version, stream)                                                \
    {#export, base, version, (stream)[0] != '-', LINKED(export)},
#include "reach_names.inc"
#undef ENTRY
};

enum {
    ENTRIES = sizeof(entries) / sizeof(entries[0]),
};

static void *library, *nvml;
static cu_proc_v2_fn *get_proc;

bool entries_open(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW);
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library || !nvml)
        return false;
    get_proc = (cu_proc_v2_fn *)dlsym(library, "cuGetProcAddress_v2");
    return true;
}

void *entries_driver(void)
{
    return library;
}

static const struct entry *entry_find(const char *name)
{
    size_t low = 0, high = ENTRIES;

    while (low < high) {
        size_t mid = (low + high) / 2;
        int order = strcmp(name, entries[mid].name);

        if (order == 0)
            return &entries[mid];
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

static void *by_proc(const struct entry *entry)
{
    void *found = NULL;
    int status;

    if (entry->version == 0 ||
        get_proc(entry->base, &found, entry->version, entry->per_thread ? 2 : 1, &status) != CU_OK)
        return NULL;
    return found;
}

/* The table that the CUDA runtime makes primary contexts by, unseen by whoever looks for names. */
static any_fn *by_table(void)
{
    static const unsigned char id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                         0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    typedef int table_fn(void *const **table, const void *id);
    table_fn *get_table = (table_fn *)dlsym(library, "cuGetExportTable");
    void *const *table = NULL;

    return get_table(&table, id) == CU_OK ? (any_fn *)table[2] : NULL;
}

any_fn *entries_look_up(char way, const char *name)
{
    const struct entry *entry = entry_find(name);
    void *found = NULL;

    if (way == 't')
        return by_table();
    if (way == 'n')
        return (any_fn *)dlsym(nvml, name);
    if (way == 'd')
        return (any_fn *)dlsym(RTLD_DEFAULT, name);
    if (way == 'p' && entry)
        found = by_proc(entry);
    if (way == 'l' && entry)
        found = entry->linked;
    return (any_fn *)(found ? found : dlsym(library, name));
}

const char *entries_name_of(const void *function)
{
    if (!function)
        return "null";
    for (size_t i = 0; i < ENTRIES; i++) {
        if (entries[i].linked == function || dlsym(library, entries[i].name) == function)
            return entries[i].name;
    }
    return "nobody";
}

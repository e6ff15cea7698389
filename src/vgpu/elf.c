/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Finds a symbol in a loaded object by reading its dynamic section, as the dynamic linker does.
 * Needed for dlsym itself: since we export one, asking the linker for it would give ours.
 *
 * A sanitizer's library asks for dlsym before it is ready, so this file is compiled without one,
 * and calls none of the functions of libc that it replaces.
 */

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "vgpu/real.h"

dlsym_fn libc_dlsym;
dlvsym_fn libc_dlvsym;
dlmopen_fn libc_dlmopen;
dlopen_fn libc_dlopen;
dlclose_fn libc_dlclose;

struct object {
    ElfW(Addr) base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
    const ElfW(Half) * versions;
    const ElfW(Rela) * relocations[2]; /* of data, of calls */
    size_t relocation_bytes[2];
};

static const char *file_name(const char *path)
{
    const char *name = path;

    for (; *path; path++) {
        if (*path == '/')
            name = path + 1;
    }
    return name;
}

/* A file's name, or the beginning of one, up to a "-". */
static bool is_named(const char *path, const char *name)
{
    const char *file = file_name(path), *rest = name;

    while (*rest && *file == *rest) {
        file++;
        rest++;
    }
    return !*rest && (!*file || (rest > name && rest[-1] == '-'));
}

static bool is_same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* glibc relocates these addresses in place, musl does not. */
static const void *dynamic_address(const struct object *object, ElfW(Addr) value)
{
    return (const void *)(value < object->base ? object->base + value : value);
}

static bool read_entries(const ElfW(Dyn) * dynamic, ElfW(Addr) base, struct object *object)
{
    *object = (struct object){.base = base};
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *address = dynamic_address(object, dynamic->d_un.d_ptr);

        if (dynamic->d_tag == DT_SYMTAB)
            object->symbols = address;
        else if (dynamic->d_tag == DT_STRTAB)
            object->strings = address;
        else if (dynamic->d_tag == DT_GNU_HASH)
            object->gnu_hash = address;
        else if (dynamic->d_tag == DT_HASH)
            object->sysv_hash = address;
        else if (dynamic->d_tag == DT_VERSYM)
            object->versions = address;
        else if (dynamic->d_tag == DT_RELA)
            object->relocations[0] = address;
        else if (dynamic->d_tag == DT_RELASZ)
            object->relocation_bytes[0] = dynamic->d_un.d_val;
        else if (dynamic->d_tag == DT_JMPREL)
            object->relocations[1] = address;
        else if (dynamic->d_tag == DT_PLTRELSZ)
            object->relocation_bytes[1] = dynamic->d_un.d_val;
    }
    return object->symbols && object->strings && (object->gnu_hash || object->sysv_hash);
}

/* A symbol that is defined here, under its default version if it has several. */
static void *match_symbol(const struct object *object, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &object->symbols[index];
    const ElfW(Half) hidden = 0x8000;

    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
        return NULL;
    if (object->versions && (object->versions[index] & hidden))
        return NULL;
    if (!is_same(object->strings + symbol->st_name, name))
        return NULL;
    return (void *)(object->base + symbol->st_value);
}

static void *find_by_gnu_hash(const struct object *object, const char *name)
{
    const uint32_t *table = object->gnu_hash;
    uint32_t bucket_count = table[0], first = table[1], bloom_size = table[2];
    const uint32_t *buckets = table + 4 + bloom_size * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;
    uint32_t hash = 5381, index;
    void *found;

    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        hash = hash * 33 + *p;
    if (!bucket_count)
        return NULL;

    index = buckets[hash % bucket_count];
    if (index < first)
        return NULL;
    do {
        if ((chain[index - first] | 1) == (hash | 1)) {
            found = match_symbol(object, index, name);
            if (found)
                return found;
        }
    } while (!(chain[index++ - first] & 1));
    return NULL;
}

static void *find_by_sysv_hash(const struct object *object, const char *name)
{
    uint32_t symbol_count = object->sysv_hash[1];

    for (uint32_t i = 1; i < symbol_count; i++) {
        void *found = match_symbol(object, i, name);

        if (found)
            return found;
    }
    return NULL;
}

static void *look_into(const struct link_map *map, const char *name)
{
    struct object object;

    if (!read_entries(map->l_ld, map->l_addr, &object))
        return NULL;
    return object.gnu_hash ? find_by_gnu_hash(&object, name) : find_by_sysv_hash(&object, name);
}

/* How many symbols there are, which only the hash tables know. The GNU table has no symbols that
 * are not defined here; those come first. */
static uint32_t count_undefined(const struct object *object)
{
    return object->gnu_hash ? object->gnu_hash[1] : object->sysv_hash[1];
}

/* The last chain of the GNU table ends at the last symbol. */
static uint32_t count_symbols(const struct object *object)
{
    const uint32_t *table = object->gnu_hash, *buckets, *chain;
    uint32_t last = 0;

    if (!table)
        return object->sysv_hash[1];
    buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    chain = buckets + table[0];
    for (uint32_t i = 0; i < table[0]; i++)
        last = MAX(last, buckets[i]);
    if (last < table[1])
        return table[1];
    while (!(chain[last - table[1]] & 1))
        last++;
    return last + 1;
}

static bool is_function(const ElfW(Sym) * symbol)
{
    return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
}

void elf_each_function(const struct link_map *map, void (*fn)(const char *name, void *function))
{
    struct object object;
    uint32_t count;

    if (!read_entries(map->l_ld, map->l_addr, &object))
        return;
    count = count_symbols(&object);
    for (uint32_t i = 1; i < count; i++) {
        const ElfW(Sym) *symbol = &object.symbols[i];

        if (is_function(symbol))
            fn(object.strings + symbol->st_name, (void *)(object.base + symbol->st_value));
    }
}

/* How the part of a library with this address was mapped, which its header tells, or -1. */
static int protection_of(const ElfW(Ehdr) * header, ElfW(Addr) base, const void *address)
{
    const ElfW(Phdr) *parts = (const ElfW(Phdr) *)((const char *)header + header->e_phoff);

    for (size_t i = 0; i < header->e_phnum; i++) {
        ElfW(Word) flags = parts[i].p_flags;

        if (parts[i].p_type == PT_LOAD &&
            (uintptr_t)address - base - parts[i].p_vaddr < parts[i].p_memsz)
            return (flags & PF_R ? PROT_READ : 0) | (flags & PF_W ? PROT_WRITE : 0) |
                   (flags & PF_X ? PROT_EXEC : 0);
    }
    return -1;
}

/* Writes where the linker has written, or only mapped, and leaves its page as `protection`. */
static void write_word(void *at, uintptr_t value, int protection)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *begin = (void *)((uintptr_t)at & ~(page - 1));

    if (mprotect(begin, page, protection | PROT_READ | PROT_WRITE) < 0)
        return;
    __atomic_store_n((uintptr_t *)at, value, __ATOMIC_RELEASE);
    if (!(protection & PROT_WRITE))
        (void)mprotect(begin, page, protection);
}

void elf_redirect(const struct link_map *map, const void *header, void *(*find)(const char *name))
{
    struct object object;
    uint32_t count;

    if (!read_entries(map->l_ld, map->l_addr, &object))
        return;
    count = count_symbols(&object);
    for (uint32_t i = 1; i < count; i++) {
        const ElfW(Sym) *symbol = &object.symbols[i];
        void *ours = is_function(symbol) ? find(object.strings + symbol->st_name) : NULL;
        int protection = ours ? protection_of(header, object.base, symbol) : -1;

        if (protection >= 0)
            write_word((void *)&symbol->st_value, (uintptr_t)ours - object.base, protection);
    }
}

void elf_rebind(const struct link_map *map, void *(*find)(const char *name, void **slot))
{
    struct object object;

    if (!read_entries(map->l_ld, map->l_addr, &object))
        return;
    for (size_t kind = 0; kind < ARRAY_SIZE(object.relocations); kind++) {
        size_t count = object.relocation_bytes[kind] / sizeof(ElfW(Rela));

        for (size_t i = 0; object.relocations[kind] && i < count; i++) {
            const ElfW(Rela) *relocation = &object.relocations[kind][i];
            const ElfW(Sym) *symbol = &object.symbols[ELF64_R_SYM(relocation->r_info)];
            void **slot = (void **)(object.base + relocation->r_offset), *ours;

            if (!ELF64_R_SYM(relocation->r_info) || (uintptr_t)slot % sizeof(*slot))
                continue;
            ours = find(object.strings + symbol->st_name, slot);
            if (ours)
                write_word(slot, (uintptr_t)ours, PROT_READ | PROT_WRITE);
        }
    }
}

bool elf_wants(const struct link_map *map, const char *name)
{
    struct object object;

    if (!read_entries(map->l_ld, map->l_addr, &object))
        return false;
    for (uint32_t i = 1; i < count_undefined(&object); i++) {
        const ElfW(Sym) *symbol = &object.symbols[i];

        if (symbol->st_shndx == SHN_UNDEF && is_same(object.strings + symbol->st_name, name))
            return true;
    }
    return false;
}

/*
 * The linker's own list, and not dl_iterate_phdr(): a program may have one of its own of that name,
 * or a sanitizer, and either asks for libc's by dlsym. What a program began with, libc's own parts
 * among it, is at the list's head and stays there.
 */
void *elf_find(const char *object, const char *name)
{
    const struct link_map *map = _r_debug.r_map;
    void *found = NULL;

    for (; map && !found; map = map->l_next) {
        if (map->l_name && is_named(map->l_name, object))
            found = look_into(map, name);
    }
    return found;
}

/* In every glibc dlsym has been in one of these; musl has it in the linker itself. */
void libc_find(void)
{
    static const char *const objects[] = {"libc.so.6", "libdl.so.2", "ld-musl-", "libc.musl-",
                                          "libc.so"};

    /* dlsym last: whoever sees it set may use them all. Threads that race write the same. */
    for (size_t i = 0; i < ARRAY_SIZE(objects); i++) {
        void *found = elf_find(objects[i], "dlsym");

        if (!found)
            continue;
        libc_dlvsym = (dlvsym_fn)elf_find(objects[i], "dlvsym");
        libc_dlmopen = (dlmopen_fn)elf_find(objects[i], "dlmopen");
        libc_dlopen = (dlopen_fn)elf_find(objects[i], "dlopen");
        libc_dlclose = (dlclose_fn)elf_find(objects[i], "dlclose");
        __atomic_store_n(&libc_dlsym, (dlsym_fn)found, __ATOMIC_RELEASE);
        return;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "region/shares.h"

uint64_t share_hash(const void *handle, size_t size)
{
    const unsigned char *bytes = handle;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash ? hash : 1;
}

/* The handle comes last: while it is 0 a row stands for nothing. */
static bool claim(struct region_share *row, unsigned slot, uint64_t handle, uint64_t address)
{
    uint32_t nobody = 0;

    if (atomic_load_explicit(&row->owner, memory_order_relaxed) ||
        !atomic_compare_exchange_strong(&row->owner, &nobody, slot + 1))
        return false;
    atomic_store(&row->address, address);
    atomic_store(&row->handle, handle);
    return true;
}

static void release(struct region_share *row)
{
    atomic_store(&row->handle, 0);
    atomic_store(&row->owner, 0);
}

bool share_add(struct region_ext *ext, unsigned slot, uint64_t handle, uint64_t address)
{
    for (unsigned i = 0; i < REGION_SHARES; i++) {
        const struct region_share *row = &ext->shares[i];

        if (atomic_load(&row->handle) == handle && atomic_load(&row->owner) == slot + 1 &&
            atomic_load(&row->address) == address)
            return true;
    }
    for (unsigned i = 0; i < REGION_SHARES; i++) {
        if (claim(&ext->shares[i], slot, handle, address))
            return true;
    }
    return false;
}

bool share_is_known(const struct region_ext *ext, uint64_t handle)
{
    for (unsigned i = 0; i < REGION_SHARES; i++) {
        if (atomic_load_explicit(&ext->shares[i].handle, memory_order_relaxed) == handle)
            return true;
    }
    return false;
}

void share_remove(struct region_ext *ext, unsigned slot, uint64_t address)
{
    for (unsigned i = 0; i < REGION_SHARES; i++) {
        struct region_share *row = &ext->shares[i];

        if (atomic_load_explicit(&row->owner, memory_order_relaxed) == slot + 1 &&
            atomic_load(&row->address) == address)
            release(row);
    }
}

void shares_settle(struct region_ext *ext, unsigned slot)
{
    for (unsigned i = 0; i < REGION_SHARES; i++) {
        if (atomic_load_explicit(&ext->shares[i].owner, memory_order_relaxed) == slot + 1)
            release(&ext->shares[i]);
    }
}

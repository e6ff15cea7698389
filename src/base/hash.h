/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * uthash with a hash of our own, for names and uids: short, many, looked up often. Eight bytes at a
 * time, mixed by multiplication. Keys are chosen by people and by Kubernetes, in bounded numbers.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* The last word's upper bytes, where numbers count, reach the lower bits only by another round; and
 * those choose the bucket. */
static inline uint64_t hash_end(uint64_t hash)
{
    return hash_mix(hash, 0);
}

static inline uint64_t hash_bytes(const void *key, size_t len)
{
    const unsigned char *bytes = key, *last;
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ len, word = 0;

    if (len < sizeof(word)) {
        memcpy(&word, bytes, len);
        return hash_end(hash_mix(hash, word));
    }
    /* The last word may overlap the one before. */
    for (last = bytes + len - sizeof(word); bytes < last; bytes += sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        hash = hash_mix(hash, word);
    }
    memcpy(&word, last, sizeof(word));
    return hash_end(hash_mix(hash, word));
}

#define HASH_FUNCTION(key, len, value) ((value) = (unsigned)hash_bytes((key), (len)))

#include <uthash.h>

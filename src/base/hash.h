/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * uthash with a hash of our own, for names and uids: short, many, looked up often. Eight bytes at a
 * time, mixed by multiplication. Keys are chosen by people and by Kubernetes, in bounded numbers.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_bytes(const void *key, size_t len)
{
    const unsigned char *bytes = key;
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ len, word;

    for (; len >= sizeof(word); len -= sizeof(word), bytes += sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, bytes, len);
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

#define HASH_FUNCTION(key, len, value) ((value) = (unsigned)hash_bytes((key), (len)))

#include <uthash.h>

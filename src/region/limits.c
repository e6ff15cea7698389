/* SPDX-License-Identifier: Apache-2.0 */
#include "region/limits.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/util.h"

#define PRIORITY_MAX 1000

/* Sets what a key says; index is the device's for a key that has one, else 0. */
typedef int (*limits_setter)(struct limits *limits, unsigned index, const char *value);

static int set_memory(struct limits *limits, unsigned index, const char *value)
{
    uint64_t bytes;
    int r;

    r = parse_bytes(value, &bytes);
    if (r < 0)
        return r;

    limits->devices[index].memory_bytes = bytes;
    return 0;
}

static int set_context(struct limits *limits, unsigned index, const char *value)
{
    uint64_t bytes;
    int r;

    r = parse_bytes(value, &bytes);
    if (r < 0)
        return r;

    limits->devices[index].context_bytes = bytes;
    return 0;
}

static int set_cores(struct limits *limits, unsigned index, const char *value)
{
    uint64_t percent;
    int r;

    r = parse_u64(value, &percent);
    if (r < 0)
        return r;

    /* HAMi-core: 100 and above mean no limit. */
    limits->devices[index].cores = percent < 100 ? (unsigned)percent : 0;
    return 0;
}

static int set_given_memory(struct limits *limits, unsigned index, const char *value)
{
    return parse_bytes(value, &limits->devices[index].given_memory_bytes);
}

static int set_given_cores(struct limits *limits, unsigned index, const char *value)
{
    uint64_t percent;
    int r;

    r = parse_u64(value, &percent);
    if (r < 0)
        return r;
    limits->devices[index].given_cores = percent < 100 ? (unsigned)percent : 0;
    return 0;
}

static int set_inode(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    return parse_u64(value, &limits->region_inode);
}

static int set_devices(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    if (strncmp(value, "GPU-", 4) != 0 && strncmp(value, "MIG-", 4) != 0) {
        /* "all", "none", "void", indices: the container runtime's business, nothing is named. */
        limits->device_count = 0;
        return 0;
    }

    limits->device_count = 0;
    while (*value) {
        size_t len = strcspn(value, ",");

        if (limits->device_count == LIMITS_MAX_DEVICES)
            return -E2BIG;
        if (!len || len >= LIMITS_UUID_SIZE)
            return -EINVAL;
        memcpy(limits->devices[limits->device_count].uuid, value, len);
        limits->devices[limits->device_count].uuid[len] = '\0';
        limits->device_count++;
        value += len;
        value += *value == ',';
    }
    return 0;
}

static int set_path(char path[LIMITS_PATH_SIZE], const char *value)
{
    if (value[0] != '/')
        return -EINVAL;
    if (strlen(value) >= LIMITS_PATH_SIZE)
        return -ENAMETOOLONG;

    memcpy(path, value, strlen(value) + 1);
    return 0;
}

static int set_region(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    return set_path(limits->region_path, value);
}

static int set_cells(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    return set_path(limits->cells, value);
}

static int set_cards(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    return set_path(limits->cards, value);
}

static int set_ranks(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    return set_path(limits->ranks, value);
}

static int set_priority(struct limits *limits, unsigned index, const char *value)
{
    uint64_t priority;
    int r;

    (void)index;
    r = parse_u64(value, &priority);
    if (r < 0)
        return r;
    /* A wish that Kubernetes lets through must not cost the container its memory. */
    limits->priority = (int)MIN(priority, (uint64_t)PRIORITY_MAX);
    return 0;
}

static int set_core_policy(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    limits->cores_disabled = strcmp(value, "disable") == 0 || strcmp(value, "DISABLE") == 0;
    limits->cores_forced = strcmp(value, "force") == 0 || strcmp(value, "FORCE") == 0;
    return 0;
}

static int set_oversubscribed(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    limits->oversubscribed = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
    return 0;
}

static int set_suspended(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return -EINVAL;

    limits->suspended = value[0] == 't';
    return 0;
}

static int set_visible(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    if (strcmp(value, "granted") != 0 && strcmp(value, "all") != 0)
        return -EINVAL;

    limits->only_granted = value[0] == 'g';
    return 0;
}

static int read_allow(const char *value, bool *ret_allow)
{
    if (strcmp(value, "refuse") != 0 && strcmp(value, "allow") != 0)
        return -EINVAL;

    *ret_allow = value[0] == 'a';
    return 0;
}

static int set_unaccounted(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    return read_allow(value, &limits->allow_unaccounted);
}

static int set_imports(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    return read_allow(value, &limits->allow_imports);
}

static const char *const managed_words[] = {
    [LIMITS_MANAGED_RESIDENT] = "resident",
    [LIMITS_MANAGED_FULL] = "full",
    [LIMITS_MANAGED_FREE] = "free",
};

int limits_read_managed(const char *word, enum limits_managed *ret_managed)
{
    for (unsigned i = 0; i < ARRAY_SIZE(managed_words); i++) {
        if (strcmp(word, managed_words[i]) != 0)
            continue;
        *ret_managed = (enum limits_managed)i;
        return 0;
    }
    return -EINVAL;
}

static int set_managed(struct limits *limits, unsigned index, const char *value)
{
    (void)index;
    return limits_read_managed(value, &limits->managed);
}

#define SIZE "a size, as 4g or 512m"
#define NUMBER "a whole number"
#define PATH "a path from the root on"

static const struct {
    const char *key;
    limits_setter set;
    const char *wanted; /* what a value is, for who wrote another; NULL: none is refused */
    bool per_device;    /* "<key>_<i>" is for device i, "<key>" for those without one */
} limits_keys[] = {
    {"NVIDIA_VISIBLE_DEVICES", set_devices,
     "sixteen names of devices at most, with commas between"},
    {"CUDA_DEVICE_MEMORY_LIMIT", set_memory, SIZE, .per_device = true},
    {"CUDA_DEVICE_SM_LIMIT", set_cores, NUMBER, .per_device = true},
    {"CUDA_DEVICE_CONTEXT_SIZE", set_context, SIZE, .per_device = true},
    {"CUDA_DEVICE_MEMORY_SHARED_CACHE", set_region, PATH},
    {"CUDA_TASK_PRIORITY", set_priority, NUMBER},
    {"GPU_CORE_UTILIZATION_POLICY", set_core_policy, NULL},
    {"CUDA_OVERSUBSCRIBE", set_oversubscribed, NULL},
    {"HAMI_ENVIRONMENT_MEMORY_LIMIT", set_given_memory, SIZE, .per_device = true},
    {"HAMI_ENVIRONMENT_SM_LIMIT", set_given_cores, NUMBER, .per_device = true},
    {"HAMI_REGION_INODE", set_inode, NUMBER},
    {"HAMI_CARD_CELLS", set_cells, PATH},
    {"HAMI_CARDS", set_cards, PATH},
    {"HAMI_CARD_RANKS", set_ranks, PATH},
    {"HAMI_SUSPENDED", set_suspended, "true or false"},
    {"HAMI_VISIBLE_DEVICES", set_visible, "granted or all"},
    {"HAMI_IMPORTS", set_imports, "refuse or allow"},
    {"HAMI_UNACCOUNTED", set_unaccounted, "refuse or allow"},
    {"HAMI_MANAGED", set_managed, "resident, full or free"},
};

#undef SIZE
#undef NUMBER
#undef PATH

bool limits_any(const struct limits *limits)
{
    for (unsigned i = 0; i < LIMITS_MAX_DEVICES; i++) {
        if (limits->devices[i].memory_bytes || limits->devices[i].cores)
            return true;
    }
    return limits->device_count > 0;
}

static int set_row(struct limits *limits, size_t row, unsigned first, unsigned end,
                   const char *value)
{
    int r = 0;

    for (unsigned i = first; i < end && r == 0; i++)
        r = limits_keys[row].set(limits, i, value);
    return r;
}

/* Keys for all devices are applied before keys for one, wherever they stand. */
enum pass {
    PASS_ALL_DEVICES,
    PASS_ONE_DEVICE,
};

/* What follows "<key>" in an assignment: "=VALUE" or "_<i>=VALUE"; anything else is another key. */
static int apply_tail(struct limits *limits, size_t row, enum pass pass, const char *tail)
{
    unsigned index = 0;

    if (*tail == '=') {
        if (pass != PASS_ALL_DEVICES || !tail[1])
            return 0;
        return set_row(limits, row, 0, limits_keys[row].per_device ? LIMITS_MAX_DEVICES : 1,
                       tail + 1);
    }

    if (pass != PASS_ONE_DEVICE || !limits_keys[row].per_device || *tail != '_')
        return 0;
    for (tail++; *tail >= '0' && *tail <= '9' && index < LIMITS_MAX_DEVICES; tail++)
        index = index * 10 + (unsigned)(*tail - '0');
    if (*tail != '=' || tail[-1] == '_' || index >= LIMITS_MAX_DEVICES || !tail[1])
        return 0;
    return set_row(limits, row, index, index + 1, tail + 1);
}

static int apply(struct limits *limits, enum pass pass, const char *assignment, struct error *err)
{
    int r;

    for (size_t row = 0; row < ARRAY_SIZE(limits_keys); row++) {
        size_t len = strlen(limits_keys[row].key);

        if (strncmp(assignment, limits_keys[row].key, len) != 0)
            continue;
        r = apply_tail(limits, row, pass, assignment + len);
        if (r < 0)
            return error_set(err, r, "\"%.100s\" can't be read: it takes %s", assignment,
                             limits_keys[row].wanted);
    }
    return 0;
}

static void finish(struct limits *limits)
{
    for (unsigned i = 0; limits->cores_disabled && i < LIMITS_MAX_DEVICES; i++)
        limits->devices[i].cores = 0;
}

static int apply_line(struct limits *limits, enum pass pass, const char *text, size_t len,
                      struct error *err)
{
    char line[LIMITS_PATH_SIZE + 64];

    if (!len || text[0] == '#')
        return 0;
    if (len >= sizeof(line) || !memchr(text, '=', len))
        return error_set(err, -EINVAL, "\"%.*s\" is not KEY=VALUE", (int)MIN(len, 60u), text);

    memcpy(line, text, len);
    line[len] = '\0';
    return apply(limits, pass, line, err);
}

int limits_parse(struct limits *limits, const char *text, struct error *err)
{
    int r;

    for (enum pass pass = PASS_ALL_DEVICES; pass <= PASS_ONE_DEVICE; pass++) {
        for (const char *p = text; *p; p += *p == '\n') {
            size_t len = strcspn(p, "\n");

            r = apply_line(limits, pass, p, len, err);
            if (r < 0)
                return r;
            p += len;
        }
    }

    finish(limits);
    return 0;
}

int limits_parse_environment(struct limits *limits, char *const *environment, struct error *err)
{
    int first = 0, r;

    for (enum pass pass = PASS_ALL_DEVICES; pass <= PASS_ONE_DEVICE; pass++) {
        for (char *const *p = environment; p && *p; p++) {
            r = apply(limits, pass, *p, first < 0 ? NULL : err);
            first = first < 0 ? first : r;
        }
    }

    finish(limits);
    return first;
}

void limits_lower(struct limits *limits, const struct limits *other)
{
    for (unsigned i = 0; i < LIMITS_MAX_DEVICES; i++) {
        struct limits_device *mine = &limits->devices[i];
        const struct limits_device *theirs = &other->devices[i];

        if (theirs->memory_bytes && theirs->memory_bytes != mine->given_memory_bytes &&
            (!mine->memory_bytes || theirs->memory_bytes < mine->memory_bytes))
            mine->memory_bytes = theirs->memory_bytes;
        mine->common_cores = mine->cores;
        if (theirs->cores && theirs->cores != mine->given_cores &&
            (!mine->cores || theirs->cores < mine->cores))
            mine->cores = theirs->cores;
    }
}

struct text_out {
    char *text;
    size_t size;
    size_t len;
};

static void __attribute__((format(printf, 2, 3))) put(struct text_out *out, const char *fmt, ...)
{
    size_t room = out->len < out->size ? out->size - out->len : 0;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(room ? out->text + out->len : NULL, room, fmt, args);
    va_end(args);
    out->len += n > 0 ? (size_t)n : 0;
}

int limits_format(const struct limits *limits, char *text, size_t size)
{
    struct text_out out = {.text = text, .size = size};

    for (unsigned i = 0; i < limits->device_count; i++)
        put(&out, "%s%s", i ? "," : "NVIDIA_VISIBLE_DEVICES=", limits->devices[i].uuid);
    if (limits->device_count)
        put(&out, "\n");

    for (unsigned i = 0; i < LIMITS_MAX_DEVICES; i++) {
        if (limits->devices[i].memory_bytes)
            put(&out, "CUDA_DEVICE_MEMORY_LIMIT_%u=%llu\n", i,
                (unsigned long long)limits->devices[i].memory_bytes);
        if (limits->devices[i].cores)
            put(&out, "CUDA_DEVICE_SM_LIMIT_%u=%u\n", i, limits->devices[i].cores);
        if (limits->devices[i].given_memory_bytes)
            put(&out, "HAMI_ENVIRONMENT_MEMORY_LIMIT_%u=%llu\n", i,
                (unsigned long long)limits->devices[i].given_memory_bytes);
        if (limits->devices[i].given_cores)
            put(&out, "HAMI_ENVIRONMENT_SM_LIMIT_%u=%u\n", i, limits->devices[i].given_cores);
        if (limits->devices[i].context_bytes)
            put(&out, "CUDA_DEVICE_CONTEXT_SIZE_%u=%llu\n", i,
                (unsigned long long)limits->devices[i].context_bytes);
    }

    if (limits->region_path[0])
        put(&out, "CUDA_DEVICE_MEMORY_SHARED_CACHE=%s\n", limits->region_path);
    if (limits->region_inode)
        put(&out, "HAMI_REGION_INODE=%llu\n", (unsigned long long)limits->region_inode);
    if (limits->cells[0])
        put(&out, "HAMI_CARD_CELLS=%s\n", limits->cells);
    if (limits->cards[0])
        put(&out, "HAMI_CARDS=%s\n", limits->cards);
    if (limits->ranks[0])
        put(&out, "HAMI_CARD_RANKS=%s\n", limits->ranks);
    put(&out, "CUDA_TASK_PRIORITY=%d\n", limits->priority);
    if (limits->suspended)
        put(&out, "HAMI_SUSPENDED=true\n");
    if (limits->oversubscribed)
        put(&out, "CUDA_OVERSUBSCRIBE=true\n");
    put(&out, "HAMI_VISIBLE_DEVICES=%s\n", limits->only_granted ? "granted" : "all");
    put(&out, "HAMI_IMPORTS=%s\n", limits->allow_imports ? "allow" : "refuse");
    put(&out, "HAMI_UNACCOUNTED=%s\n", limits->allow_unaccounted ? "allow" : "refuse");
    put(&out, "HAMI_MANAGED=%s\n", managed_words[limits->managed]);
    return out.len < size ? (int)out.len : -ENOBUFS;
}

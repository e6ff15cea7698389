/* SPDX-License-Identifier: Apache-2.0 */

/* What a lock's text says, and what a pod says of its allocations. */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/util.h"
#include "cluster/lock.h"
#include "model/keys.h"

bool lock_set_is_written(const struct lock_set *set)
{
    return set->count && set->items[0]->key;
}

/* A turn alone stands for itself, or is part of any lock. */
bool lock_set_add(struct lock_set *set, const struct vendor_lock *lock)
{
    if (set->count && !lock->key)
        return true;
    if (!lock_set_is_written(set))
        set->count = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (strcmp(set->items[i]->key, lock->key) == 0)
            return true;
    }
    if (set->count == LOCK_KEYS_MAX)
        return false;
    set->items[set->count++] = lock;
    return true;
}

/* "+08:00" in seconds; 0 and *ret_rest moved on for "Z". False: neither. */
static bool read_zone(const char *text, int64_t *ret_seconds)
{
    unsigned hours, minutes;
    char sign, end;

    *ret_seconds = 0;
    if (strcmp(text, "Z") == 0)
        return true;
    if (strlen(text) != 6 ||
        sscanf(text, "%c%2u:%2u%c", &sign, &hours, &minutes, &end) != 3 || // NOLINT
        (sign != '+' && sign != '-') || hours > 24 || minutes > 59)
        return false;
    *ret_seconds = (hours * INT64_C(3600) + minutes * INT64_C(60)) * (sign == '-' ? -1 : 1);
    return true;
}

/* RFC 3339, as Go reads it; fractions of a second do not count here. */
static bool read_time(const char *text, int64_t *ret_ns)
{
    struct tm utc = {0};
    const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    int64_t zone, seconds;

    if (!at)
        return false;
    if (*at == '.')
        at += 1 + strspn(at + 1, "0123456789");
    if (!read_zone(at, &zone))
        return false;
    seconds = (int64_t)timegm(&utc) - zone;
    if (seconds < 0)
        return false;
    *ret_ns = MIN(seconds, CLOCK_LATEST_S) * NS_PER_S;
    return true;
}

/* Cuts the text at the next comma. NULL: there is none. */
static char *cut(char *text)
{
    char *comma = text ? strchr(text, ',') : NULL;

    if (!comma)
        return NULL;
    *comma = '\0';
    return comma + 1;
}

void lock_value_read(const char *text, struct lock_value *ret_value)
{
    struct lock_value value = {.readable = false};
    char copy[sizeof(value.text)];
    char *namespace, *name;
    size_t len = strlen(text);

    COPY_TEXT(value.text, text);
    COPY_TEXT(copy, text);
    namespace = cut(copy);
    name = cut(namespace);
    if (len < sizeof(copy) && (!namespace || (name && !strchr(name, ',')))) {
        value.readable = read_time(copy, &value.written_ns);
        if (value.readable && name && *namespace && *name) {
            COPY_TEXT(value.holder.namespace, namespace);
            COPY_TEXT(value.holder.name, name);
        }
    }
    *ret_value = value;
}

void lock_value_write(const struct vendor_lock *lock, const struct lock_pod *pod, int64_t wall_ns,
                      struct strbuf *buf)
{
    char time[CLOCK_UTC_SIZE];

    strbuf_add(buf, clock_format_utc(wall_ns / NS_PER_S, time));
    if (lock->names_pod)
        strbuf_addf(buf, ",%s,%s", pod->namespace, pod->name);
}

bool lock_value_names(const struct lock_value *value, const struct lock_pod *pod)
{
    return value->holder.name[0] && strcmp(value->holder.name, pod->name) == 0 &&
           strcmp(value->holder.namespace, pod->namespace) == 0;
}

/* Agents take their part out of this text; what is left of empty parts are separators. */
static bool is_taken(const char *to_allocate)
{
    return !to_allocate || to_allocate[strspn(to_allocate, ":;")] == '\0';
}

/* Whether agents took all devices, as far as annotations can tell. */
static bool all_taken(const struct vendor_set *vendors, const struct pod *pod)
{
    bool any = false;

    for (size_t i = 0; i < vendors->count; i++) {
        const struct vendor_instance *instance = &vendors->instances[i];

        if (!text_pairs_get(&pod->annotations, instance->allocated_key))
            continue;
        if (!instance->to_allocate_key ||
            !is_taken(text_pairs_get(&pod->annotations, instance->to_allocate_key)))
            return false;
        any = true;
    }
    return any;
}

enum lock_progress lock_pod_progress(const struct vendor_set *vendors, const struct pod *pod,
                                     const struct lock_pod *wanted, const char *node)
{
    const char *phase;

    if (!pod || (wanted->uid[0] && strcmp(pod->uid, wanted->uid) != 0) || pod_is_over(pod))
        return LOCK_GONE;
    if (pod->has_spec && !pod->node_name[0])
        return LOCK_UNBOUND;
    if (pod->has_spec && strcmp(pod->node_name, node) != 0)
        return LOCK_GONE;
    phase = text_pairs_get(&pod->annotations, KEY_BIND_PHASE);
    if (pod->started || (phase && strcmp(phase, BIND_PHASE_FAILED) == 0) || all_taken(vendors, pod))
        return LOCK_OVER;
    return LOCK_ALLOCATING;
}

bool lock_pod_waits(const struct vendor_set *vendors, const struct pod *pod, const char *node,
                    int64_t wall_ns, int64_t *ret_age_ns)
{
    const char *phase = text_pairs_get(&pod->annotations, KEY_BIND_PHASE);
    const char *time = text_pairs_get(&pod->annotations, KEY_BIND_TIME);
    const struct lock_pod any = {.name = ""};
    uint64_t seconds;

    /* Some agents say success at the first container of several. */
    if (!phase || !time ||
        (strcmp(phase, BIND_PHASE_ALLOCATING) != 0 && strcmp(phase, BIND_PHASE_SUCCESS) != 0) ||
        parse_u64(time, &seconds) < 0 || seconds > INT64_MAX / NS_PER_S)
        return false;
    *ret_age_ns = MAX(wall_ns - (int64_t)seconds * NS_PER_S, INT64_C(0));
    return lock_pod_progress(vendors, pod, &any, node) == LOCK_ALLOCATING;
}

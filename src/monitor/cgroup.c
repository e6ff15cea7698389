/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cgroup.h"

#include <ctype.h>
#include <string.h>

#include "base/util.h"

enum {
    UID_LEN = 36,    /* 01234567-89ab-cdef-0123-456789abcdef */
    STATIC_LEN = 32, /* of a static pod: a hash */
};

#define SLICE ".slice"

/* How much of the text is a uid with this character between its parts; 0: it is none. */
static size_t uid_len(const char *text, size_t len, char dash)
{
    size_t digits = 0;

    while (digits < len && isxdigit((unsigned char)text[digits]))
        digits++;
    if (digits == STATIC_LEN)
        return STATIC_LEN;
    if (len < UID_LEN)
        return 0;
    for (size_t i = 0; i < UID_LEN; i++) {
        bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (is_dash ? text[i] != dash : !isxdigit((unsigned char)text[i]))
            return 0;
    }
    return UID_LEN;
}

static void copy_uid(const char *text, size_t len, char ret_uid[CGROUP_UID_SIZE])
{
    for (size_t i = 0; i < len; i++)
        ret_uid[i] = text[i] == '_' ? '-' : text[i];
    ret_uid[len] = '\0';
}

/* "pod<uid>", or "kubepods-burstable-pod<uid with underscores>.slice". */
static bool read_component(const char *text, size_t len, char ret_uid[CGROUP_UID_SIZE])
{
    const char *pod;
    size_t rest, uid;

    if (len > 3 && memcmp(text, "pod", 3) == 0) {
        uid = uid_len(text + 3, len - 3, '-');
        if (!uid || uid != len - 3)
            return false;
        copy_uid(text + 3, uid, ret_uid);
        return true;
    }
    pod = memmem(text, len, "-pod", 4);
    if (!pod)
        return false;
    pod += 4;
    rest = len - (size_t)(pod - text);
    uid = uid_len(pod, rest, '_');
    if (!uid || rest != uid + strlen(SLICE) || memcmp(pod + uid, SLICE, strlen(SLICE)) != 0)
        return false;
    copy_uid(pod, uid, ret_uid);
    return true;
}

static bool read_path(const char *path, size_t len, char ret_uid[CGROUP_UID_SIZE])
{
    const char *end = path + len;

    while (path < end) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        size_t part = slash ? (size_t)(slash - path) : (size_t)(end - path);

        if (read_component(path, part, ret_uid))
            return true;
        path += part + 1;
    }
    return false;
}

/* Lines "0::PATH", or, of version 1, "4:memory:PATH". */
bool cgroup_read_pod(const char *text, char ret_uid[CGROUP_UID_SIZE])
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        const char *colon = memchr(text, ':', len);

        colon = colon ? memchr(colon + 1, ':', len - (size_t)(colon + 1 - text)) : NULL;
        if (colon && read_path(colon + 1, len - (size_t)(colon + 1 - text), ret_uid))
            return true;
        text += len;
        text += *text == '\n';
    }
    return false;
}

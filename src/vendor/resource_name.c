/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/resource_name.h"

#include <stdbool.h>
#include <string.h>

#define DIGITS "0123456789"
#define LOWER "abcdefghijklmnopqrstuvwxyz" DIGITS
#define LETTERS LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define QUOTA "requests."

enum {
    DOMAIN_MAX = 253 - (int)(sizeof(QUOTA) - 1),
    NAME_MAX_LEN = 63,
};

/* Whether all of it are these letters, and the first and the last are none of `inside`. */
static bool is_made_of(const char *text, size_t len, const char *letters, const char *inside)
{
    for (size_t i = 0; i < len; i++) {
        const bool is_end = i == 0 || i == len - 1;

        if (!text[i] || (!strchr(letters, text[i]) && (is_end || !strchr(inside, text[i]))))
            return false;
    }
    return len > 0;
}

static bool is_domain(const char *text, size_t len)
{
    for (size_t label; len > 0; text += label + 1, len -= label + 1) {
        for (label = 0; label < len && text[label] != '.'; label++)
            ;
        if (!is_made_of(text, label, LOWER, "-"))
            return false;
        if (label == len)
            return true;
    }
    return false;
}

const char *resource_name_check(const char *name)
{
    static const char own[] = "kubernetes.io/";
    const char *slash = strchr(name, '/');
    const size_t len = slash ? (size_t)(slash - name) : 0;

    if (!slash)
        return "without a domain, which Kubernetes demands of a device's resource: name it as "
               "example.com/gpu";
    if (strstr(name, own))
        return "in kubernetes.io, which is Kubernetes' own: take another domain, as in "
               "example.com/gpu";
    if (strncmp(name, QUOTA, strlen(QUOTA)) == 0)
        return "begins with \"requests.\", by which quotas name a resource: leave that out";
    if (len > DOMAIN_MAX)
        return "too long: a domain has at most 244 letters";
    if (!is_domain(name, len))
        return "no domain before the slash: lower-case letters, digits, - and . as in "
               "example.com/gpu";
    if (strlen(slash + 1) > NAME_MAX_LEN)
        return "too long: there are at most 63 letters behind the slash";
    if (!is_made_of(slash + 1, strlen(slash + 1), LETTERS, "-_."))
        return "no name behind the slash: letters, digits, and - _ . between them, as in "
               "example.com/gpu";
    return NULL;
}

_Static_assert(DOMAIN_MAX == 244, "resource_name_check() says so");

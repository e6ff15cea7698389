/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/way.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

static const struct {
    const char *name;
    enum way_strategy strategy;
} strategies_by_name[] = {
    {"cdi-cri", WAY_CDI_CRI},
    {"cdi-annotations", WAY_CDI_ANNOTATIONS},
    {"envvar", WAY_ENVVAR},
    {"volume-mounts", WAY_VOLUME_MOUNTS},
};

static unsigned find_strategy(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(strategies_by_name); i++) {
        const char *known = strategies_by_name[i].name;

        if (strlen(known) == len && memcmp(known, name, len) == 0)
            return strategies_by_name[i].strategy;
    }
    return 0;
}

int way_read(const char *text, unsigned *strategies, struct error *err)
{
    unsigned set = *strategies;

    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        unsigned strategy = find_strategy(p, len);

        if (!strategy)
            return error_set(err, -EINVAL,
                             "device list strategy \"%.*s\" is none of envvar, volume-mounts, "
                             "cdi-annotations, cdi-cri",
                             (int)MIN(len, (size_t)64), p);
        set |= strategy;
        p += len;
        if (!*p)
            break;
    }
    *strategies = set;
    return 0;
}

enum way way_choose(unsigned strategies, enum fitness_outcome outcome)
{
    bool by_env = strategies & (WAY_ENVVAR | WAY_VOLUME_MOUNTS);
    bool runtime_takes = outcome == FITNESS_GOOD || outcome == FITNESS_OLD_KUBELET;

    if (strategies && !(strategies & (WAY_CDI_CRI | WAY_CDI_ANNOTATIONS)))
        return WAY_ORDERED;
    if (outcome != FITNESS_NO_CDI && !runtime_takes)
        return WAY_UNKNOWN;
    if (outcome == FITNESS_GOOD && (!strategies || strategies & WAY_CDI_CRI))
        return WAY_LATE;
    if (runtime_takes && strategies & WAY_CDI_ANNOTATIONS)
        return WAY_ANNOTATED;
    return !strategies || by_env ? WAY_ORDERED : WAY_CLOSED;
}

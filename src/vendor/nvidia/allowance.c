/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/allowance.h"

#include <stdlib.h>
#include <string.h>

const struct nvidia_allowance *allowance_find(const struct nvidia_config *config, const char *model)
{
    for (size_t i = 0; i < config->allowance_count; i++) {
        const struct nvidia_allowance *allowance = &config->allowances[i];

        for (size_t k = 0; k < allowance->name_count; k++) {
            if (strstr(model, allowance->names[k]))
                return allowance;
        }
    }
    return NULL;
}

bool allowance_lists(const struct nvidia_allowance *allowance, const char *profile)
{
    for (size_t i = 0; i < allowance->profile_count; i++) {
        if (strcmp(allowance->profiles[i], profile) == 0)
            return true;
    }
    return false;
}

static bool geometry_has(const struct mig_geometry *geometry, const char *profile)
{
    for (size_t i = 0; i < geometry->group_count; i++) {
        const struct mig_group *group = &geometry->groups[i];

        for (size_t k = 0; k < group->kind_count; k++) {
            if (strcmp(group->kinds[k].name, profile) == 0)
                return true;
        }
    }
    return false;
}

/* 0 where the name stands for itself alone. */
static unsigned long slices_of(const char *profile)
{
    return strchr(profile, '+') ? 0 : strtoul(profile, NULL, 10);
}

static bool is_allowed(const struct nvidia_allowance *allowance,
                       const struct mig_geometry *geometry, const char *profile)
{
    const unsigned long slices = slices_of(profile);

    if (allowance_lists(allowance, profile))
        return true;
    for (size_t i = 0; slices && i < allowance->profile_count; i++) {
        if (slices_of(allowance->profiles[i]) == slices &&
            !geometry_has(geometry, allowance->profiles[i]))
            return true;
    }
    return false;
}

/* Of a group's instances, from bit 0 on, those that are barred, or all of them. */
static uint64_t barred_of_group(const struct nvidia_allowance *allowance,
                                const struct mig_geometry *geometry, const struct mig_group *group,
                                bool all)
{
    uint64_t barred = 0;
    unsigned number = 0;

    for (size_t i = 0; i < group->kind_count; i++) {
        const struct mig_kind *kind = &group->kinds[i];
        const bool is_barred = all || !is_allowed(allowance, geometry, kind->name);

        for (size_t k = 0; k < kind->count && number < MIG_MAX_INSTANCES; k++, number++)
            barred |= is_barred ? UINT64_C(1) << number : 0;
    }
    return barred;
}

static uint64_t barred_of_model(const struct nvidia_config *config, const char *model, bool all)
{
    const struct nvidia_allowance *allowance = allowance_find(config, model);
    const struct mig_geometry *geometry = nvidia_find_geometry(config, model);
    uint64_t barred = 0;

    for (size_t i = 0; allowance && geometry && i < geometry->group_count; i++)
        barred |= barred_of_group(allowance, geometry, &geometry->groups[i], all)
                  << i * MIG_MAX_INSTANCES;
    return barred;
}

uint64_t allowance_barred(const struct nvidia_config *config, const char *model)
{
    return barred_of_model(config, model, false);
}

const char *allowance_find_useless(const struct nvidia_config *config)
{
    for (size_t i = 0; i < config->mig_count; i++) {
        const struct nvidia_mig *mig = &config->migs[i];

        for (size_t k = 0; k < mig->name_count; k++) {
            const uint64_t barred = allowance_barred(config, mig->names[k]);

            if (barred && barred == barred_of_model(config, mig->names[k], true))
                return mig->names[k];
        }
    }
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "place/mig.h"

static bool is_group_used(const struct device *device, size_t group)
{
    for (size_t i = 0; i < MIG_MAX_INSTANCES; i++) {
        if (device->mig_users[group][i])
            return true;
    }
    return false;
}

/* False: the card is cut in another way. */
static bool may_be_cut(const struct device *device, size_t group)
{
    for (size_t i = 0; i < MIG_MAX_GROUPS; i++) {
        if (i != group && is_group_used(device, i))
            return false;
    }
    return true;
}

static bool find_in_group(const struct device *device, size_t group, uint64_t memory_mib,
                          struct mig_instance *ret_instance)
{
    const struct mig_group *kinds = &device->geometry->groups[group];
    size_t number = 0;

    for (size_t i = 0; i < kinds->kind_count; i++) {
        const struct mig_kind *kind = &kinds->kinds[i];

        for (size_t k = 0; k < kind->count && number < MIG_MAX_INSTANCES; k++, number++) {
            if (kind->memory_mib < memory_mib || device->mig_users[group][number])
                continue;
            *ret_instance = (struct mig_instance){
                .group = (int)group,
                .number = (int)number,
                .memory_mib = kind->memory_mib,
                .cores = kind->cores,
            };
            return true;
        }
    }
    return false;
}

bool mig_instance_find(const struct device *device, uint64_t memory_mib,
                       struct mig_instance *ret_instance)
{
    for (size_t i = 0; device->geometry && i < device->geometry->group_count; i++) {
        if (may_be_cut(device, i) && find_in_group(device, i, memory_mib, ret_instance))
            return true;
    }
    return false;
}

bool mig_instance_use(struct device *device, int group, int number, int by)
{
    if (group < 0 || group >= MIG_MAX_GROUPS || number < 0 || number >= MIG_MAX_INSTANCES)
        return false;
    device->mig_users[group][number] = (uint8_t)(device->mig_users[group][number] + by);
    return true;
}

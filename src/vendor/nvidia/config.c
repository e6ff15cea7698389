/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/config.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/util.h"
#include "vendor/nvidia/allowance.h"
#include "vendor/nvidia/context_config.h"
#include "vendor/nvidia/mig_config.h"

enum {
    SPLIT_MAX = 1000,
};

_Static_assert(SPLIT_MAX == 1000, "read_split() says so");

static const char *read_split(const char *text, void *to)
{
    int32_t value = 0;
    const char *wrong = section_read_int32(text, &value);

    if (!wrong && (!value || value > SPLIT_MAX))
        wrong = "out of range, 1 to 1000";
    if (!wrong)
        *(uint32_t *)to = (uint32_t)value;
    return wrong;
}

/* The words stand before NULL; the longest fits. */
static bool read_word(const char *text, const char *const *words, void *to, size_t size)
{
    for (; *words; words++) {
        if (strcmp(text, *words) != 0)
            continue;
        copy_text(to, size, text);
        return true;
    }
    return false;
}

static const char *read_core_policy(const char *text, void *to)
{
    static const char *const words[] = {"", "default", "force", "disable", NULL};

    if (read_word(text, words, to, sizeof(((struct nvidia_config *)0)->core_policy)))
        return NULL;
    return "none of default, force, disable";
}

static const char *read_managed(const char *text, void *to)
{
    static const char *const words[] = {"", "resident", "full", "free", NULL};

    if (read_word(text, words, to, sizeof(((struct nvidia_config *)0)->managed)))
        return NULL;
    return "none of resident, full, free";
}

static const char *read_imports(const char *text, void *to)
{
    static const char *const words[] = {"", "refuse", "allow", NULL};

    if (read_word(text, words, to, sizeof(((struct nvidia_config *)0)->imports)))
        return NULL;
    return "neither refuse nor allow";
}

static const char *read_log_level(const char *text, void *to)
{
    if (*text && (strspn(text, "01234") != 1 || text[1]))
        return "not a level from 0 to 4";
    copy_text(to, sizeof(((struct nvidia_config *)0)->log_level), text);
    return NULL;
}

/* Such cores count as 100 (walk_of()), and 100 is a card alone (check_device()). */
static const char *doubt_cores(const void *member)
{
    return *(const int32_t *)member > DEVICE_CORES
               ? "more than 100 percent counts as 100: each container that names memory and no "
                 "cores gets a card that no other container uses"
               : NULL;
}

_Static_assert(NVIDIA_CARDS_MAX == 16, "doubt_count() says so");

static const char *doubt_count(const void *member)
{
    const int32_t count = *(const int32_t *)member;

    if (count > NVIDIA_CARDS_MAX)
        return "a container with more than 16 cards does not start: none does that names memory or "
               "cores and no number of cards";
    return count ? NULL
                 : "a container that names memory or cores and no number of cards gets no card";
}

static const struct section_key keys[] = {
#define KEY(key, reader, member) DOUBTED(key, reader, member, NULL)
#define DOUBTED(key, reader, member, doubter)                                                      \
    {                                                                                              \
        .name = key, .read = reader, .offset = offsetof(struct nvidia_config, member),             \
        .doubt = doubter                                                                           \
    }
    KEY("resourceCountName", section_read_resource, count_name),
    KEY("resourceMemoryName", section_read_resource, memory_name),
    KEY("resourceMemoryPercentageName", section_read_resource, memory_percent_name),
    KEY("resourceCoreName", section_read_resource, cores_name),
    KEY("resourcePriorityName", section_read_resource, priority_name),
    KEY("overwriteEnv", section_read_switch, overwrite_env),
    KEY("defaultMemory", section_read_int32, default_memory_mib),
    DOUBTED("defaultCores", section_read_int32, default_cores, doubt_cores),
    DOUBTED("defaultGPUNum", section_read_int32, default_count, doubt_count),
    KEY("memoryFactor", section_read_int32, memory_factor),
    KEY("deviceSplitCount", read_split, split_count),
    KEY("deviceMemoryScaling", section_read_scaling, memory_scaling),
    KEY("deviceCoreScaling", section_read_scaling, cores_scaling),
    KEY("preConfiguredDeviceMemory", section_read_int64, preconfigured_memory_mib),
    KEY("enableNumaTopology", section_read_switch, numa_topology),
    KEY("libCudaLogLevel", read_log_level, log_level),
    KEY("disableCoreLimit", section_read_switch, disable_core_limit),
    KEY("gpuCorePolicy", read_core_policy, core_policy),
    KEY("managedMemory", read_managed, managed),
    KEY("memoryImports", read_imports, imports),
    KEY("runtimeClassName", section_read_name, runtime_class),
#undef KEY
#undef DOUBTED
    {.name = "contextSizes", .read_value = context_config_read},
    {.name = "migProfileAllowlist", .read_value = mig_config_read_allowlist},
    {.name = "knownMigGeometries", .read_value = mig_config_read},
};

int nvidia_config_read(const struct section_reading *reading, const struct section *section,
                       void *config)
{
    return section_read_keys(reading, section, "nvidia", keys, ARRAY_SIZE(keys), config);
}

/* Pods can ask for devices only if the counted resource has a name, and cards in MIG mode be given
 * out only if some profile is allowed. */
int nvidia_config_check(const struct section_reading *reading, const void *config)
{
    const char *useless = allowance_find_useless(config);

    if (!((const struct nvidia_config *)config)->count_name[0])
        return error_set(reading->err, -EINVAL,
                         "%s: nvidia.resourceCountName: not given; pods could not ask for a device",
                         reading->file);
    if (useless)
        return error_set(reading->err, -EINVAL,
                         "%s: nvidia.migProfileAllowlist: allows no profile that "
                         "knownMigGeometries has for %s; add one, or remove its geometry",
                         reading->file, useless);
    return 0;
}

/* HAMi's values for missing keys; for keys without which it crashes, its chart's values. */
void nvidia_config_missing(void *ret_config)
{
    *(struct nvidia_config *)ret_config = (struct nvidia_config){
        .split_count = DEVICE_DEFAULT_MAX_TASKS,
        .memory_scaling = 1,
        .cores_scaling = 1,
    };
}

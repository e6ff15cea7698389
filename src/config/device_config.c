/* SPDX-License-Identifier: Apache-2.0 */
#include "config/device_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "config/yaml_section.h"

#define CONFIG_MAP_FILE "device-config.yaml"
#define FILE_MAX (256 * KIB)
#define MEMORY_MAX (16 * MIB) /* of the tree and all sections */

static const struct vendor *find_vendor(const char *section)
{
    for (size_t i = 0; vendor_table[i]; i++) {
        if (strcmp(vendor_table[i]->section, section) == 0)
            return vendor_table[i];
    }
    return NULL;
}

static int read_vendor(const struct section_reading *reading, const struct vendor *vendor,
                       const struct section *section, struct device_config *config)
{
    void *own = arena_alloc(config->arena, vendor->config_size);

    if (!own)
        return error_set(reading->err, -ENOMEM, "%s: no memory", reading->file);
    if (config->count == DEVICE_CONFIG_SECTIONS)
        return section_refuse(reading, section->place, vendor->section, "one section too many");
    vendor->set_missing(own);
    config->sections[config->count].vendor = vendor;
    config->sections[config->count++].config = own;
    return vendor->read_section(reading, section, own);
}

static int read_section(const struct section_reading *reading, const struct section_name *name,
                        const struct section *section, struct device_config *config)
{
    const struct vendor *vendor = find_vendor(name->text);

    return vendor ? read_vendor(reading, vendor, section, config)
                  : section_refuse(reading, name->place, name->text, "no such section");
}

static int read_sections(const struct section_reading *reading, const struct section *root,
                         struct device_config *config)
{
    int r = 0;

    if (root->kind == SECTION_NOTHING)
        return 0;
    if (root->kind != SECTION_KEYS)
        return section_refuse(reading, root->place, "", "not sections of vendors");
    for (size_t i = 0; i < root->count && r == 0; i++)
        r = read_section(reading, &root->names[i], &root->items[i], config);
    return r;
}

int device_config_parse(const char *name, const char *text, size_t len,
                        struct device_config *ret_config, struct error *err)
{
    struct section_reading reading = {.file = name, .err = err};
    struct device_config config = {.count = 0};
    struct section root;
    int r;

    if (len > FILE_MAX)
        return error_set(err, -EFBIG, "%s: more than 256 KiB", name);
    config.arena = arena_new(MEMORY_MAX);
    if (!config.arena)
        return error_set(err, -ENOMEM, "%s: no memory", name);
    config.doubts = reading.doubts = ARENA_NEW(config.arena, struct section_doubts);
    r = config.doubts ? yaml_section_read(&reading, text, len, config.arena, &root)
                      : error_set(err, -ENOMEM, "%s: no memory", name);
    if (r == 0)
        r = read_sections(&reading, &root, &config);
    if (r < 0)
        device_config_deinit(&config);
    else
        *ret_config = config;
    return r;
}

void device_config_deinit(struct device_config *config)
{
    arena_free(config->arena);
    *config = (struct device_config){.count = 0};
}

static bool has_resource(const struct vendor_instance *instance, const char *name)
{
    for (size_t i = 0; i < VENDOR_MAX_RESOURCES; i++) {
        if (instance->resources[i] && strcmp(instance->resources[i], name) == 0)
            return true;
    }
    return false;
}

/* The name that two of the instance's resources have, NULL if there is none. */
static const char *name_given_twice(const struct vendor_instance *instance)
{
    const char *const *names = instance->resources;

    for (size_t i = 0; i < VENDOR_MAX_RESOURCES; i++) {
        for (size_t k = i + 1; names[i] && *names[i] && k < VENDOR_MAX_RESOURCES; k++) {
            if (names[k] && strcmp(names[i], names[k]) == 0)
                return names[i];
        }
    }
    return NULL;
}

/* A pod's resource says which vendor's devices it asks for, and what of them. */
static int check_names(const char *path, const struct vendor_set *vendors, struct error *err)
{
    for (size_t i = 0; i < vendors->count; i++) {
        const struct vendor_instance *one = &vendors->instances[i];
        const char *twice = name_given_twice(one);

        if (twice)
            return error_set(err, -EINVAL, "%s: %s: two keys of the section name the resource %s",
                             path, one->vendor->section, twice);
        for (size_t k = 0; k < vendors->count; k++) {
            const struct vendor_instance *other = &vendors->instances[k];

            const char *name = one->count_resource;

            if (one->vendor != other->vendor && *name && has_resource(other, name))
                return error_set(err, -EINVAL, "%s: %s is a resource of %s and of %s", path, name,
                                 other->vendor->section, one->vendor->section);
        }
    }
    return 0;
}

/* There is something to share, and pods can ask for it. */
static int check_complete(const char *path, const struct device_config *config, struct error *err)
{
    const struct section_reading reading = {.file = path, .err = err};
    struct vendor_set vendors;
    int r = 0;

    for (size_t i = 0; i < config->count && r == 0; i++) {
        const struct vendor *vendor = config->sections[i].vendor;

        if (vendor->check_section)
            r = vendor->check_section(&reading, config->sections[i].config);
    }
    if (r < 0)
        return r;
    if (device_config_vendors(config, &vendors) < 0)
        return error_set(err, -EINVAL, "%s: more vendors than can be served", path);
    if (!vendors.count)
        return error_set(err, -EINVAL,
                         "%s: it has no section of a vendor that is served, so there is nothing to "
                         "share; a section counts once it names the vendor's resources",
                         path);
    return check_names(path, &vendors, err);
}

int device_config_read(const char *name, char *text, size_t len, struct device_config *ret_config,
                       struct error *err)
{
    struct device_config config;
    int r = yaml_unwrap(name, text, &len, CONFIG_MAP_FILE, err);

    if (r == 0)
        r = device_config_parse(name, text, len, &config, err);
    if (r < 0)
        return r;
    r = check_complete(name, &config, err);
    if (r < 0)
        device_config_deinit(&config);
    else
        *ret_config = config;
    return r;
}

int device_config_load(const char *path, struct device_config *ret_config, struct error *err)
{
    AUTOFREE char *text = malloc(FILE_MAX + 1);
    ssize_t len;

    if (!text)
        return error_set(err, -ENOMEM, "%s: no memory", path);
    len = file_read(path, text, FILE_MAX + 1);
    if (len == -EFBIG)
        return error_set(err, -EFBIG, "%s: more than 256 KiB", path);
    if (len < 0)
        return error_set(err, (int)len, "%s: %s", path, strerror((int)-len));
    return device_config_read(path, text, (size_t)len, ret_config, err);
}

void device_config_leave_out(struct device_config *config, const char *section)
{
    size_t kept = 0;

    for (size_t i = 0; i < config->count; i++) {
        if (strcmp(config->sections[i].vendor->section, section) != 0)
            config->sections[kept++] = config->sections[i];
    }
    config->count = kept;
}

const void *device_config_of(const struct device_config *config, const struct vendor *vendor)
{
    for (size_t i = 0; i < config->count; i++) {
        if (config->sections[i].vendor == vendor)
            return config->sections[i].config;
    }
    return NULL;
}

int device_config_vendors(const struct device_config *config, struct vendor_set *ret_set)
{
    int r = 0;

    *ret_set = (struct vendor_set){.count = 0};
    for (size_t i = 0; i < config->count && r == 0; i++)
        r = config->sections[i].vendor->add_instances(ret_set, config->sections[i].config);
    return r;
}

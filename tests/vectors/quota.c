/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "model/keys.h"
#include "vectors.h"

enum {
    TEXT_MAX = 1 << 20,
};

/* HAMi names the factor of a vendor's memory at each question; ours is the vendor's. */
static void set_units(struct vendor_set *vendors, int64_t factor)
{
    for (size_t i = 0; i < vendors->count; i++)
        vendors->instances[i].memory_unit_mib = (int32_t)factor;
}

static void set_quota(struct vector *vector, struct cluster *cluster, yyjson_val *object)
{
    struct error err = ERROR_INIT;
    struct quota quota;

    if (quota_read(object, vector->arena, &quota, &err) < 0 ||
        cluster_set_quota(cluster, &quota, &err) < 0)
        vector_fail(vector, "%s", err.text);
}

static void delete_quota(struct cluster *cluster, yyjson_val *object)
{
    yyjson_val *metadata = yyjson_obj_get(object, "metadata");

    cluster_delete_quota(cluster, vector_text(metadata, "namespace"),
                         vector_text(metadata, "name"));
}

static int32_t number_of(yyjson_val *object, const char *key)
{
    return (int32_t)yyjson_get_sint(yyjson_obj_get(object, key));
}

/* HAMi's text of what the containers have. */
static const char *write_devices(struct vector *vector, yyjson_val *containers)
{
    struct strbuf buf = STRBUF_IN(vector->arena, TEXT_MAX);
    yyjson_val *container, *device;
    size_t at, max, k, most;

    yyjson_arr_foreach(containers, at, max, container)
    {
        yyjson_arr_foreach(container, k, most, device)
        {
            strbuf_addf(&buf, "%s,%s,%d,%d:", vector_text(device, "uuid"),
                        vector_text(device, "type"), number_of(device, "mem"),
                        number_of(device, "cores"));
        }
        strbuf_add(&buf, ";");
    }
    return strbuf_text(&buf);
}

/* The vendors of the case are served; else its first that is not. */
static const char *unknown_vendor(const struct vector *vector)
{
    yyjson_val *ops = yyjson_obj_get(vector->line, "ops"), *op, *key, *value;
    size_t at, max, k, most;

    yyjson_arr_foreach(ops, at, max, op)
    {
        yyjson_val *devices = yyjson_obj_get(yyjson_obj_get(op, "pod"), "devices");

        yyjson_obj_foreach(devices, k, most, key, value)
        {
            (void)value;
            if (!vendor_find(vector->vendors, yyjson_get_str(key)))
                return yyjson_get_str(key);
        }
    }
    return NULL;
}

/* A pod that has these devices comes, or the first such pod goes. */
static void change_usage(struct vector *vector, struct cluster *cluster, size_t number,
                         yyjson_val *ops, yyjson_val *from, bool comes)
{
    yyjson_val *devices = yyjson_obj_get(from, "devices"), *key, *value, *op;
    struct text_pair pairs[VENDOR_MAX_INSTANCES + 1] = {{KEY_NODE, "n"}};
    struct pod pod = {.namespace = vector_text(from, "namespace"), .name = "p"};
    size_t at, max;

    pod.annotations.items = pairs;
    pod.annotations.count = 1;
    yyjson_obj_foreach(devices, at, max, key, value)
    {
        const struct vendor_instance *instance = vendor_find(vector->vendors, yyjson_get_str(key));

        pairs[pod.annotations.count++] =
            (struct text_pair){instance->allocated_key, write_devices(vector, value)};
    }
    pod.uid = arena_printf(vector->arena, "u%zu", number);
    if (comes) {
        if (cluster_set_pod(cluster, &pod, NULL) < 0)
            vector_fail(vector, "a pod can't be read");
        return;
    }
    yyjson_arr_foreach(ops, at, max, op)
    {
        const char *uid = arena_printf(vector->arena, "u%zu", at);
        struct cluster_pod_view view;

        if (at < number && yyjson_equals(yyjson_obj_get(op, "pod"), from) &&
            cluster_find_pod(cluster, uid, &view)) {
            cluster_delete_pod(cluster, uid);
            return;
        }
    }
}

static void check_fit(struct vector *vector, const struct cluster *cluster, yyjson_val *op)
{
    const struct vendor_instance *instance =
        vendor_find(cluster->options.vendors, vector_text(op, "vendor"));
    const struct request request = {
        .vendor = instance ? &instance->id : NULL,
        .count = 1,
        .memory_bytes = (uint64_t)number_of(op, "memreq") * MIB,
        .cores = (unsigned)number_of(op, "coresreq"),
    };
    const struct container_demand container = {.request_count = 1, .requests = &request};
    const struct demand demand = {1, &container};
    bool failed, fits = true;

    if (instance)
        fits = !namespace_refuses(cluster, vector_text(op, "namespace"), &demand, vector->arena,
                                  &failed);
    vector_equal_number(vector, "fit", fits, yyjson_get_bool(yyjson_obj_get(op, "fit")));
}

static void check_managed(struct vector *vector, yyjson_val *op)
{
    const char *resource = vector_text(op, "resource");
    bool managed = false;

    for (size_t i = 0; i < vector->vendors->count; i++) {
        const struct vendor_instance *instance = &vector->vendors->instances[i];

        managed |= instance->memory_resource && *resource &&
                   strcmp(instance->memory_resource, resource) == 0;
        managed |= instance->cores_resource && *resource &&
                   strcmp(instance->cores_resource, resource) == 0;
    }
    vector_equal_number(vector, resource, managed, yyjson_get_bool(yyjson_obj_get(op, "managed")));
}

/* The ops before one of them, on a cluster whose units are that one's. */
static struct cluster *replay(struct vector *vector, struct vendor_set *vendors, size_t end)
{
    const struct cluster_options options = {.vendors = vendors};
    yyjson_val *ops = yyjson_obj_get(vector->line, "ops"), *op;
    struct cluster *cluster = cluster_new(&options);
    size_t at, max;

    yyjson_arr_foreach(ops, at, max, op)
    {
        const char *what = vector_text(op, "op");

        if (at >= end)
            break;
        if (strcmp(what, "add-quota") == 0)
            set_quota(vector, cluster, yyjson_obj_get(op, "quota"));
        else if (strcmp(what, "del-quota") == 0)
            delete_quota(cluster, yyjson_obj_get(op, "quota"));
        else if (strstr(what, "-usage"))
            change_usage(vector, cluster, at, ops, yyjson_obj_get(op, "pod"),
                         strcmp(what, "add-usage") == 0);
    }
    return cluster;
}

/* HAMi says a limit of 0 where there is none. */
static void check_final(struct vector *vector, const struct cluster *cluster)
{
    yyjson_val *final = yyjson_obj_get(vector->line, "final"), *theirs, *row;
    struct cluster_quota_view *rows;
    size_t count, limited = 0, at, max, k, most;
    yyjson_val *key, *name;

    if (cluster_list_quotas(cluster, vector->arena, &rows, &count) < 0) {
        vector_fail(vector, "no memory");
        return;
    }
    yyjson_obj_foreach(final, at, max, key, theirs)
    {
        yyjson_obj_foreach(theirs, k, most, name, row)
        {
            limited += number_of(row, "limit") != 0;
        }
    }
    vector_equal_number(vector, "limits", (int64_t)count, (int64_t)limited);
    for (size_t i = 0; i < count; i++) {
        row = yyjson_obj_get(yyjson_obj_get(final, rows[i].namespace), rows[i].resource);
        vector_equal_number(vector, rows[i].resource, rows[i].bound, number_of(row, "limit"));
        vector_equal_number(vector, "used", rows[i].used, number_of(row, "used"));
    }
}

static void check_quota(struct vector *vector)
{
    struct vendor_set *vendors = ARENA_NEW(vector->arena, struct vendor_set);
    yyjson_val *ops = yyjson_obj_get(vector->line, "ops"), *op;
    CLEANUP(cluster_freep) struct cluster *whole = NULL;
    size_t at, max;

    *vendors = *vector->vendors;
    yyjson_arr_foreach(ops, at, max, op)
    {
        if (strcmp(vector_text(op, "op"), "managed") == 0)
            check_managed(vector, op);
        if (strcmp(vector_text(op, "op"), "fit") == 0) {
            CLEANUP(cluster_freep) struct cluster *cluster = NULL;

            set_units(vendors, number_of(op, "memory_factor"));
            cluster = replay(vector, vendors, at);
            check_fit(vector, cluster, op);
        }
    }
    set_units(vendors, 1);
    whole = replay(vector, vendors, SIZE_MAX);
    if (yyjson_obj_get(vector->line, "final"))
        check_final(vector, whole);
}

static const char *left_out(const struct vector *vector)
{
    return unknown_vendor(vector) ? "a vendor that is not served" : NULL;
}

const struct family quota_family = {
    .name = "quota",
    .check = check_quota,
    .left_out = left_out,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "model/amounts.h"

#include <string.h>

#include "base/util.h"
#include "model/quantity.h"

enum {
    CPU_DIGITS = 3, /* thousandths */
};

/* Sums of what a hundred thousand objects ask for stay below 64 bits. */
#define AMOUNT_MAX (UINT64_C(1) << 46)

struct sum {
    uint64_t cpu_milli, memory_bytes;
};

static uint64_t read_amount(yyjson_val *resources, const char *name, int digits)
{
    yyjson_val *value = yyjson_obj_get(resources, name);
    const char *text = yyjson_get_str(value);
    uint64_t amount = 0;

    if (text)
        amount = quantity_amount(text, strlen(text), digits);
    else if (yyjson_is_uint(value))
        amount = quantity_amount_of(yyjson_get_uint(value), digits);
    return MIN(amount, AMOUNT_MAX);
}

static struct sum read_list(yyjson_val *resources)
{
    return (struct sum){
        .cpu_milli = read_amount(resources, "cpu", CPU_DIGITS),
        .memory_bytes = read_amount(resources, "memory", 0),
    };
}

/* A limit is the request, too, of a resource that has none. */
static struct sum read_requests(yyjson_val *resources)
{
    yyjson_val *requests = yyjson_obj_get(resources, "requests");
    const struct sum limit = read_list(yyjson_obj_get(resources, "limits"));
    struct sum sum = read_list(requests);

    if (!yyjson_obj_get(requests, "cpu"))
        sum.cpu_milli = limit.cpu_milli;
    if (!yyjson_obj_get(requests, "memory"))
        sum.memory_bytes = limit.memory_bytes;
    return sum;
}

static struct sum add(struct sum a, struct sum b)
{
    return (struct sum){
        .cpu_milli = MIN(a.cpu_milli + b.cpu_milli, AMOUNT_MAX),
        .memory_bytes = MIN(a.memory_bytes + b.memory_bytes, AMOUNT_MAX),
    };
}

static struct sum larger(struct sum a, struct sum b)
{
    return (struct sum){
        .cpu_milli = MAX(a.cpu_milli, b.cpu_milli),
        .memory_bytes = MAX(a.memory_bytes, b.memory_bytes),
    };
}

static struct sum add_containers(yyjson_val *spec)
{
    struct sum running = {0}, most = {0};
    yyjson_val *container;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(spec, "initContainers"), at, max, container)
    {
        const struct sum one = read_requests(yyjson_obj_get(container, "resources"));

        most = larger(most, add(running, one));
        if (yyjson_equals_str(yyjson_obj_get(container, "restartPolicy"), "Always"))
            running = add(running, one);
    }
    yyjson_arr_foreach(yyjson_obj_get(spec, "containers"), at, max, container)
    {
        running = add(running, read_requests(yyjson_obj_get(container, "resources")));
    }
    return larger(most, running);
}

struct amounts amounts_of_pod(yyjson_val *spec)
{
    yyjson_val *own = yyjson_obj_get(yyjson_obj_get(spec, "resources"), "requests");
    const struct sum pods = read_list(own);
    struct sum sum = add_containers(spec);

    if (yyjson_obj_get(own, "cpu"))
        sum.cpu_milli = pods.cpu_milli;
    if (yyjson_obj_get(own, "memory"))
        sum.memory_bytes = pods.memory_bytes;
    sum = add(sum, read_list(yyjson_obj_get(spec, "overhead")));
    return (struct amounts){
        .cpu_milli = sum.cpu_milli,
        .memory_mib = (sum.memory_bytes + MIB - 1) / MIB,
    };
}

struct amounts amounts_of_node(yyjson_val *status)
{
    const struct sum sum = read_list(yyjson_obj_get(status, "allocatable"));

    return (struct amounts){.cpu_milli = sum.cpu_milli, .memory_mib = sum.memory_bytes / MIB};
}

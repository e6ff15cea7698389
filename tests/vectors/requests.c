/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/util.h"
#include "vectors.h"

enum {
    HAMI_NO_PERCENT = 101, /* HAMi's word for what we say with 0 */
};

/* A percentage of 0 alone is none given: as HAMi reads it a share would have no memory. */
static bool is_whole_on_purpose(const struct vector *vector)
{
    static const char *const ids[] = {"requests-0034", "requests-0466", "requests-0585"};

    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        if (strcmp(vector->id, ids[i]) == 0)
            return true;
    }
    return false;
}

static const struct request *find_request(const struct container_demand *demand,
                                          const struct device_vendor *vendor)
{
    for (size_t i = 0; i < demand->request_count; i++) {
        if (demand->requests[i].vendor == vendor)
            return &demand->requests[i];
    }
    return NULL;
}

static void compare_request(struct vector *vector, const struct device_vendor *vendor,
                            const struct container_demand *ours, yyjson_val *container)
{
    yyjson_val *theirs = yyjson_obj_get(container, vendor->word);
    int64_t percent = yyjson_get_sint(yyjson_obj_get(theirs, "mempercentage"));
    const struct request *request = find_request(ours, vendor);

    if (!theirs || !request) {
        if (theirs)
            vector_fail(vector, "a request was not seen");
        if (request)
            vector_fail(vector, "a request for nothing");
        return;
    }
    vector_equal(vector, "type", request->vendor->word, vector_text(theirs, "type"));
    vector_equal_number(vector, "nums", request->count,
                        yyjson_get_sint(yyjson_obj_get(theirs, "nums")));
    vector_equal_number(vector, "memreq", (int64_t)(request->memory_bytes / MIB),
                        yyjson_get_sint(yyjson_obj_get(theirs, "memreq")));
    vector_equal_number(vector, "mempercentage", request->memory_percent,
                        is_whole_on_purpose(vector)  ? 100
                        : percent == HAMI_NO_PERCENT ? 0
                                                     : percent);
    /* A whole device's cores are those of the device, wherever it is. HAMi 2.8 has them of the node
     * that it saw first. */
    if (strcmp(vendor->word, "AWSNeuron") == 0 && !request->cores)
        return;
    vector_equal_number(vector, "coresreq", request->cores,
                        yyjson_get_sint(yyjson_obj_get(theirs, "coresreq")));
}

static void check_requests(struct vector *vector)
{
    yyjson_val *out = yyjson_obj_get(vector->line, "out");
    struct error err = ERROR_INIT;
    struct demand demand;
    struct pod pod;

    if (pod_read(yyjson_obj_get(vector->line, "pod"), &vector->vendors->kept, vector->arena, &pod,
                 &err) < 0) {
        vector_fail(vector, "%s", err.text);
        return;
    }
    if (vendor_read_demand(vector->vendors, &pod, vector->arena, &demand) < 0) {
        vector_fail(vector, "no memory");
        return;
    }
    /* HAMi 2.8 doesn't look at init containers. */
    if (!vector_equal_number(vector, "containers", (int64_t)(demand.count - pod.init_count),
                             (int64_t)yyjson_arr_size(out)))
        return;
    for (size_t i = pod.init_count; i < demand.count; i++) {
        for (size_t k = 0; k < vector->vendors->count; k++)
            compare_request(vector, &vector->vendors->instances[k].id, &demand.containers[i],
                            yyjson_arr_get(out, i - pod.init_count));
    }
}

static const char *left_out(const struct vector *vector)
{
    static const struct {
        const char *id, *why;
    } cases[] = {
        {"requests-0162", "an amount beyond 32 bits is cut"},
        {"requests-0183", "a fraction is denied before"},
        {"requests-0425", "a negative amount is denied before"},
        {"requests-0516", "an amount beyond 32 bits is cut"},
        {"requests-0538", "a fraction is denied before"},
        {"requests-0545", "a fraction is denied before"},
        {"requests-0552", "a fraction is denied before"},
        {"requests-0559", "a fraction is denied before"},
        {"requests-0566", "a fraction is denied before"},
        {"requests-0573", "a fraction is denied before"},
        {"requests-0580", "a fraction is denied before"},
        {"requests-0602", "a fraction is denied before"},
        {"requests-0609", "a fraction is denied before"},
        {"requests-0614", "an amount beyond 32 bits is cut"},
        {"requests-0627", "an amount beyond 64 bits is denied before"},
        {"requests-0628", "an amount beyond 32 bits is cut"},
        {"requests-0635", "an amount beyond 64 bits is denied before"},
        {"requests-0649", "a fraction is denied before"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (strcmp(vector->id, cases[i].id) == 0)
            return cases[i].why;
    }
    return NULL;
}

const struct family requests_family = {
    .name = "requests",
    .check = check_requests,
    .left_out = left_out,
};

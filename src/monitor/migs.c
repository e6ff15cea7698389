/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/migs.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/util.h"

static int read_text(yyjson_val *object, const char *key, char *to, size_t size)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    if (!text || !*text || strlen(text) >= size)
        return -EINVAL;
    copy_text(to, size, text);
    return 0;
}

static int read_number(yyjson_val *object, const char *key, unsigned max, unsigned *ret_number)
{
    yyjson_val *value = yyjson_obj_get(object, key);

    /* What HAMi leaves out is zero. */
    if (value && (!yyjson_is_uint(value) || yyjson_get_uint(value) > max))
        return -EINVAL;
    *ret_number = (unsigned)yyjson_get_uint(value);
    return 0;
}

/* 1: it was made, 0: not yet. */
static int read_mig(yyjson_val *object, struct mig *mig)
{
    unsigned made = 0;
    int r;

    *mig = (struct mig){.container = 0};
    r = read_number(object, "containerIndex", MIGS_CONTAINERS_MAX, &mig->container);
    if (r == 0)
        r = read_number(object, "deviceIndex", MIGS_CONTAINERS_MAX, &mig->device);
    if (r == 0)
        r = read_text(object, "gpuUUID", mig->gpu_uuid, sizeof(mig->gpu_uuid));
    if (r == 0)
        r = read_text(object, "profile", mig->profile, sizeof(mig->profile));
    if (r == 0)
        r = read_number(object, "gpuInstanceID", INT32_MAX, &mig->gpu_instance);
    if (r == 0)
        r = read_number(object, "computeInstanceID", INT32_MAX, &mig->compute_instance);
    made += yyjson_obj_get(object, "gpuInstanceID") != NULL;
    made += yyjson_obj_get(object, "computeInstanceID") != NULL;
    made += read_text(object, "migUUID", mig->mig_uuid, sizeof(mig->mig_uuid)) == 0;
    if (r == 0 && made != 0 && made != 3)
        r = -EINVAL;
    return r < 0 ? r : made == 3;
}

int migs_parse(const char *text, size_t len, struct mig *ret_migs, size_t max)
{
    yyjson_doc *doc = len <= MIGS_TEXT_MAX ? yyjson_read(text, len, 0) : NULL;
    yyjson_val *list = yyjson_doc_get_root(doc), *object;
    int r = yyjson_is_arr(list) ? 0 : -EINVAL;
    size_t index, count, found = 0;

    yyjson_arr_foreach(list, index, count, object)
    {
        struct mig mig;
        int made = r == 0 ? read_mig(object, &mig) : r;

        r = MIN(made, 0);
        if (made > 0 && found < max)
            ret_migs[found++] = mig;
    }
    yyjson_doc_free(doc);
    return r < 0 ? r : (int)found;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/amounts.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "base/util.h"
#include "model/request.h"

bool amount_lacks_unit(const char *text)
{
    return !text[strspn(text, "0123456789.")];
}

int option_gpumem(char *text, void *member, struct error *err)
{
    struct request *request = member;

    if (strchr(text, '%')) {
        if (parse_percent(text, 100, &request->memory_percent) < 0 || !request->memory_percent)
            return error_set(err, -EINVAL, "\"%s\" is not a whole percentage from 1%% to 100%%",
                             text);
        request->memory_bytes = 0;
        return 0;
    }

    if (parse_bytes(text, &request->memory_bytes) < 0)
        return error_set(err, -EINVAL, "\"%s\" is not an amount of memory; say 4Gi, 512M or 50%%",
                         text);
    if (request->memory_bytes < MIB)
        return error_set(err, -EINVAL, "\"%s\" is less than 1 MiB%s", text,
                         amount_lacks_unit(text) ? "; is the unit missing, as in 4Gi?" : "");
    if (request->memory_bytes > UINT64_MAX - MIB)
        return error_set(err, -EINVAL, "\"%s\" is too much", text);
    request->memory_bytes = (request->memory_bytes + MIB - 1) / MIB * MIB;
    return 0;
}

int option_gpucores(char *text, void *member, struct error *err)
{
    unsigned *cores = member;

    if (parse_percent(text, 100, cores) < 0 || !*cores)
        return error_set(err, -EINVAL, "\"%s\" is not a whole percentage from 1 to 100", text);
    return 0;
}

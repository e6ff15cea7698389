/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

int symbols_load(void *library, const struct symbol *table, size_t count, void *target,
                 struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, table[i].name);

        if (!address && table[i].required)
            return error_set(err, -ENOENT, "it has no %s; is it too old?", table[i].name);
        memcpy((char *)target + table[i].offset, &address, sizeof(address));
    }
    return 0;
}

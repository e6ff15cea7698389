/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/models_config.h"

#include <string.h>

#include "base/util.h"

int models_config_read(const struct section_reading *reading, const struct section *list,
                       const char *path, char (*ret_names)[48], size_t *ret_count)
{
    int r = section_check_list(reading, list, path, NVIDIA_MIG_NAMES);

    for (size_t i = 0; r == 0 && i < list->count; i++) {
        const struct section *item = &list->items[i];

        if (item->kind != SECTION_TEXT || !*item->text ||
            strlen(item->text) >= sizeof(ret_names[0]))
            return section_refuse(reading, item->place, path,
                                  "not a model's name of at most 47 bytes");
        COPY_TEXT(ret_names[i], item->text);
        *ret_count = i + 1;
    }
    return r;
}

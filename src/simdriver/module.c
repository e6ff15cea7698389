/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/module.h"

#include <stdlib.h>

#include "base/parse.h"
#include "base/util.h"

#define HEADING "hamisim-module 1\n"
#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define NAME_MAX_LEN 255

/* Byte by byte, since a text may end early. */
static bool begins_with(const void *image, const void *bytes, size_t len)
{
    const char *a = image, *b = bytes;

    for (size_t i = 0; i < len; i++) {
        if (a[i] != b[i])
            return false;
    }
    return true;
}

static bool is_foreign(const char *image)
{
    static const uint32_t fatbin = FATBIN_MAGIC, wrapper = FATBIN_WRAPPER_MAGIC;

    if (begins_with(image, "\177ELF", 4) || begins_with(image, &fatbin, sizeof(fatbin)) ||
        begins_with(image, &wrapper, sizeof(wrapper)))
        return true;
    image += strspn(image, " \t\r\n");
    return begins_with(image, "//", 2) || begins_with(image, ".version", 8);
}

static CUresult parse_size(const char *line, size_t len, uint64_t *ret_bytes)
{
    char digits[24];

    if (len >= sizeof(digits))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(digits, line, len);
    digits[len] = '\0';
    return parse_u64(digits, ret_bytes) < 0 ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

static CUresult parse_line(const char *line, size_t len, struct module_image *image, size_t *names)
{
    if (len == 0)
        return CUDA_SUCCESS;
    if (len > 5 && begins_with(line, "size=", 5))
        return parse_size(line + 5, len - 5, &image->bytes);
    if (len <= 7 || len > 7 + NAME_MAX_LEN || !begins_with(line, "kernel ", 7))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(image->names + *names, line + 7, len - 7);
    *names += len - 7 + 1;
    return CUDA_SUCCESS;
}

CUresult module_image_parse(const void *text, struct module_image *ret_image)
{
    struct module_image image = {0};
    const char *line = text;
    size_t names = 0;
    CUresult r = CUDA_SUCCESS;

    if (!begins_with(text, HEADING, sizeof(HEADING) - 1)) {
        if (!is_foreign(text))
            return CUDA_ERROR_INVALID_IMAGE;
        *ret_image = (struct module_image){.bytes = 1 * MIB, .any = true};
        return CUDA_SUCCESS;
    }

    /* The names with their ends are shorter than their lines. */
    image.names = calloc(1, strlen(line) + 2);
    if (!image.names)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (line += sizeof(HEADING) - 1; *line && r == CUDA_SUCCESS;) {
        size_t len = strcspn(line, "\n");

        r = parse_line(line, len, &image, &names);
        line += len;
        line += *line == '\n';
    }
    if (r != CUDA_SUCCESS) {
        module_image_deinit(&image);
        return r;
    }
    *ret_image = image;
    return CUDA_SUCCESS;
}

void module_image_deinit(struct module_image *image)
{
    free(image->names);
    image->names = NULL;
}

bool module_image_has(const struct module_image *image, const char *name)
{
    if (image->any)
        return true;
    for (const char *p = image->names; *p; p += strlen(p) + 1) {
        if (strcmp(p, name) == 0)
            return true;
    }
    return false;
}

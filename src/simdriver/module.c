/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/module.h"

#include <stdlib.h>

#include "base/parse.h"
#include "base/util.h"
#include "simdriver/state.h"

#define HEADING "hamisim-module 1\n"
#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define LINE_MAX_LEN 511

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

/* The words behind a kernel's name. */
static CUresult parse_words(char *words, struct module_kernel *kernel)
{
    char *rest, *word;

    for (word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (strcmp(word, "waits") == 0)
            kernel->role = SIM_ROLE_WAITS;
        else if (strcmp(word, "posts") == 0)
            kernel->role = SIM_ROLE_POSTS;
        else if (strcmp(word, "touches") == 0)
            kernel->role = SIM_ROLE_TOUCHES;
        else if (strcmp(word, "counts") == 0)
            kernel->role = SIM_ROLE_COUNTS;
        else if (strcmp(word, "faults") == 0)
            kernel->role = SIM_ROLE_FAULTS;
        else if (strncmp(word, "local=", 6) != 0 || parse_u64(word + 6, &kernel->local_bytes) < 0)
            return CUDA_ERROR_INVALID_IMAGE;
    }
    return CUDA_SUCCESS;
}

static CUresult parse_kernel(const char *line, size_t len, struct module_kernel *kernel)
{
    char text[LINE_MAX_LEN + 1];
    size_t name_len;

    if (len == 0 || len > LINE_MAX_LEN)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(text, line, len);
    text[len] = '\0';
    name_len = strcspn(text, " ");
    if (name_len == 0 || name_len >= sizeof(kernel->name))
        return CUDA_ERROR_INVALID_IMAGE;
    memset(kernel, 0, sizeof(*kernel));
    memcpy(kernel->name, text, name_len);
    return parse_words(text + name_len, kernel);
}

/* "NAME BYTES" */
static CUresult parse_variable(const char *line, size_t len, struct module_variable *variable)
{
    const char *space = memchr(line, ' ', len);
    size_t name_len = space ? (size_t)(space - line) : 0;
    CUresult r;

    if (name_len == 0 || name_len >= sizeof(variable->name))
        return CUDA_ERROR_INVALID_IMAGE;
    memset(variable, 0, sizeof(*variable));
    memcpy(variable->name, line, name_len);
    r = parse_size(space + 1, len - name_len - 1, &variable->bytes);
    if (r != CUDA_SUCCESS)
        return r;
    return variable->bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult parse_line(const char *line, size_t len, struct module_image *image)
{
    if (len == 0)
        return CUDA_SUCCESS;
    if (len > 5 && begins_with(line, "size=", 5))
        return parse_size(line + 5, len - 5, &image->bytes);
    if (len > 8 && begins_with(line, "managed ", 8))
        return parse_variable(line + 8, len - 8, &image->variables[image->variable_count++]);
    if (len <= 7 || !begins_with(line, "kernel ", 7))
        return CUDA_ERROR_INVALID_IMAGE;
    return parse_kernel(line + 7, len - 7, &image->kernels[image->count++]);
}

static size_t count_lines(const char *text)
{
    size_t count = 1;

    for (; *text; text++)
        count += *text == '\n';
    return count;
}

CUresult module_image_parse(const void *text, struct module_image *ret_image)
{
    struct module_image image = {0};
    const char *line = text;
    CUresult r = CUDA_SUCCESS;

    if (!begins_with(text, HEADING, sizeof(HEADING) - 1)) {
        if (!is_foreign(text))
            return CUDA_ERROR_INVALID_IMAGE;
        *ret_image = (struct module_image){.bytes = 1 * MIB, .any = true};
        return CUDA_SUCCESS;
    }

    image.kernels = calloc(count_lines(line), sizeof(*image.kernels));
    image.variables = calloc(count_lines(line), sizeof(*image.variables));
    if (!image.kernels || !image.variables) {
        module_image_deinit(&image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (line += sizeof(HEADING) - 1; *line && r == CUDA_SUCCESS;) {
        size_t len = strcspn(line, "\n");

        r = parse_line(line, len, &image);
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
    free(image->kernels);
    free(image->variables);
    image->kernels = NULL;
    image->variables = NULL;
}

const struct module_kernel *module_image_find(const struct module_image *image, const char *name)
{
    static const struct module_kernel plain;

    if (image->any)
        return &plain;
    for (size_t i = 0; i < image->count; i++) {
        if (strcmp(image->kernels[i].name, name) == 0)
            return &image->kernels[i];
    }
    return NULL;
}

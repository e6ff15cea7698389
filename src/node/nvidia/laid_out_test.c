/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/laid_out.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "node/nvidia/edits.h"
#include "node/nvidia/guest.h"

#define SPEC                                                                                       \
    "kind: nvidia.com/gpu\n"                                                                       \
    "containerEdits:\n"                                                                            \
    "  mounts:\n"                                                                                  \
    "  - {hostPath: /host/libcuda.so.580.1, containerPath: /lib/x/libcuda.so.580.1}\n"             \
    "  - {hostPath: /host/libnvidia-nvvm.so.580.1, "                                               \
    "containerPath: /lib/x/libnvidia-nvvm.so.580.1}\n"                                             \
    "  - {hostPath: /host/nvoptix.bin, containerPath: /lib/x/nvoptix.bin}\n"                       \
    "  - {hostPath: /host/nvidia-smi, containerPath: /usr/bin/nvidia-smi}\n"                       \
    "  - {hostPath: /host/evil, containerPath: /etc/ld.so.preload}\n"                              \
    "  hooks:\n"                                                                                   \
    "  - {hookName: createContainer, path: /h, args: [h, create-symlinks, --link, "                \
    "'libcuda.so.1::/lib/x/libcuda.so', --link, '../../usr/bin/nvidia-smi::/lib/x/smi', --link, "  \
    "'../x/./libcuda.so.580.1::/lib/x/up', --link, "                                               \
    "'../card0::/dev/dri/by-path/pci', --link, 'libcuda.so.1::/usr/local/vgpu/x', --link, x]}\n"   \
    "  - {hookName: createContainer, path: /h, args: [h, update-ldcache, --folder, /lib/x]}\n"     \
    "devices:\n"                                                                                   \
    "- {name: GPU-a, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}\n"

static struct arena *arena;

static bool has(const struct strbuf *mounts, const char *host_path, const char *path)
{
    char text[512];

    (void)snprintf(text, sizeof(text), "{\"hostPath\":\"%s\",\"containerPath\":\"%s\"", host_path,
                   path);
    return strstr(strbuf_text(mounts), text);
}

static size_t count_of(const struct strbuf *mounts, const char *path)
{
    char text[512];
    size_t count = 0;

    (void)snprintf(text, sizeof(text), "\"containerPath\":\"%s\"", path);
    for (const char *p = strbuf_text(mounts); (p = strstr(p, text)); p++)
        count++;
    return count;
}

static void choose(struct cdi_choice *choice)
{
    static const struct cdi_card card = {.uuid = "GPU-a"};
    static struct cdi_spec spec;
    struct error err = ERROR_INIT;

    if (cdi_spec_parse("f", SPEC, strlen(SPEC), arena, &spec, &err) < 0 ||
        cdi_choose(&spec, 1, &card, 1, false, choice, &err) < 0)
        fail_msg("%s", err.text);
}

static void what_hooks_would_make_is_mounted(void **state)
{
    CLEANUP(strbuf_deinit) struct strbuf mounts = STRBUF_INIT(SPEC_MAX);
    struct cdi_choice choice;

    (void)state;
    choose(&choice);
    laid_out_add_mounts(&choice, guest_has_path, &mounts);
    assert_false(mounts.failed);
    assert_true(has(&mounts, "/host/libcuda.so.580.1", "/lib/x/libcuda.so.580.1"));
    assert_true(has(&mounts, "/host/libcuda.so.580.1", "/lib/x/libcuda.so.1"));
    assert_true(has(&mounts, "/host/libcuda.so.580.1", "/lib/x/libcuda.so"));
    assert_true(has(&mounts, "/host/libcuda.so.580.1", DRIVER_LIBRARY_FOLDER "/libcuda.so.1"));
    assert_true(has(&mounts, "/host/libcuda.so.580.1", "/usr/lib64/libcuda.so.580.1"));
    assert_true(has(&mounts, "/host/libnvidia-nvvm.so.580.1", "/usr/lib64/libnvidia-nvvm.so.4"));
    assert_true(has(&mounts, "/host/nvidia-smi", "/lib/x/smi"));
    assert_true(has(&mounts, "/host/libcuda.so.580.1", "/lib/x/up"));
    assert_int_equal(count_of(&mounts, "/lib/x/libcuda.so.580.1"), 1);
    assert_int_equal(count_of(&mounts, "/lib/x/libcuda.so.1"), 1);
}

static void what_leads_nowhere_or_to_our_files_is_not(void **state)
{
    CLEANUP(strbuf_deinit) struct strbuf mounts = STRBUF_INIT(SPEC_MAX);
    struct cdi_choice choice;

    (void)state;
    choose(&choice);
    laid_out_add_mounts(&choice, guest_has_path, &mounts);
    assert_int_equal(count_of(&mounts, "/etc/ld.so.preload"), 0);
    assert_int_equal(count_of(&mounts, "/usr/local/vgpu/x"), 0);
    assert_int_equal(count_of(&mounts, "/dev/dri/by-path/pci"), 0);
    assert_int_equal(count_of(&mounts, "/usr/lib64/nvidia-smi"), 0);
}

static void what_is_no_library_stays_where_it_is(void **state)
{
    CLEANUP(strbuf_deinit) struct strbuf mounts = STRBUF_INIT(SPEC_MAX);
    struct cdi_choice choice;

    (void)state;
    choose(&choice);
    laid_out_add_mounts(&choice, guest_has_path, &mounts);
    assert_true(has(&mounts, "/host/nvoptix.bin", "/lib/x/nvoptix.bin"));
    assert_int_equal(count_of(&mounts, "/usr/lib64/nvoptix.bin"), 0);
    assert_int_equal(count_of(&mounts, DRIVER_LIBRARY_FOLDER "/nvoptix.bin"), 0);
}

static int make_arena(void **state)
{
    (void)state;
    arena = arena_new(8 << 20);
    return arena ? 0 : -1;
}

static int free_arena(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_hooks_would_make_is_mounted),
        cmocka_unit_test(what_leads_nowhere_or_to_our_files_is_not),
        cmocka_unit_test(what_is_no_library_stays_where_it_is),
    };

    return cmocka_run_group_tests_name("laid_out", tests, make_arena, free_arena);
}

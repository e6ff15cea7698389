/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/answer.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"

static struct arena *arena;

static void environment_mounts_and_nodes_are_laid_out(void **state)
{
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    V1beta1__ContainerAllocateResponse response;

    (void)state;
    spec_add_env(&edits, "A=b=\"c\"");
    spec_add_env(&edits, "EMPTY=");
    spec_add_mount(&edits, "/host/x", "/x", false);
    spec_add_mount(&edits, "/host/y", "/y", true);
    spec_add_node(&edits, "/dev/nvidia0", "/root/dev/nvidia0");
    strbuf_add(&edits.nodes, ",{\"path\":\"/dev/nvidiactl\"}");
    strbuf_add(&edits.hooks, "{\"hookName\":\"createContainer\",\"path\":\"/h\"}");
    assert_int_equal(answer_lay_out(&edits, arena, &response, NULL), 0);
    assert_int_equal(response.n_envs, 2);
    assert_string_equal(response.envs[0]->key, "A");
    assert_string_equal(response.envs[0]->value, "b=\"c\"");
    assert_string_equal(response.envs[1]->value, "");
    assert_int_equal(response.n_mounts, 2);
    assert_string_equal(response.mounts[0]->host_path, "/host/x");
    assert_string_equal(response.mounts[0]->container_path, "/x");
    assert_true(response.mounts[0]->read_only);
    assert_false(response.mounts[1]->read_only);
    assert_int_equal(response.n_devices, 2);
    assert_string_equal(response.devices[0]->host_path, "/root/dev/nvidia0");
    assert_string_equal(response.devices[0]->permissions, "rw");
    assert_string_equal(response.devices[1]->host_path, "/dev/nvidiactl");
    assert_int_equal(response.n_cdi_devices, 0);
    assert_int_equal(response.n_annotations, 0);
}

static void nothing_is_laid_out_as_nothing(void **state)
{
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    V1beta1__ContainerAllocateResponse response;

    (void)state;
    assert_int_equal(answer_lay_out(&edits, arena, &response, NULL), 0);
    assert_int_equal(response.n_envs + response.n_mounts + response.n_devices, 0);
}

static void a_mount_that_kubelet_can_not_make_is_refused(void **state)
{
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    V1beta1__ContainerAllocateResponse response = {.n_envs = 7};
    struct error err = ERROR_INIT;

    (void)state;
    strbuf_add(&edits.mounts,
               "{\"hostPath\":\"tmpfs\",\"containerPath\":\"/t\",\"type\":\"tmpfs\"}");
    assert_int_equal(answer_lay_out(&edits, arena, &response, &err), -EINVAL);
    assert_non_null(strstr(err.text, "/t is to be a mount of type tmpfs"));
    assert_int_equal(response.n_envs, 7);
}

static void edits_that_were_cut_are_not_answered(void **state)
{
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    V1beta1__ContainerAllocateResponse response;

    (void)state;
    spec_add_env(&edits, "A=b");
    edits.mounts.failed = true;
    assert_int_equal(answer_lay_out(&edits, arena, &response, NULL), -ENOMEM);
}

static int make_arena(void **state)
{
    (void)state;
    arena = arena_new(1 << 20);
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
        cmocka_unit_test(environment_mounts_and_nodes_are_laid_out),
        cmocka_unit_test(nothing_is_laid_out_as_nothing),
        cmocka_unit_test(a_mount_that_kubelet_can_not_make_is_refused),
        cmocka_unit_test(edits_that_were_cut_are_not_answered),
    };

    return cmocka_run_group_tests_name("answer", tests, make_arena, free_arena);
}

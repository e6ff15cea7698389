/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/edits.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/util.h"
#include "node/nvidia/cards.h"

static struct nvidia_config config;
static const struct node_host host = {.hook_path = "/h"};
static const struct guest guest = {.host = &host, .library = "/h/libvgpu.so.1"};

static struct edits_source make_source(void)
{
    nvidia_config_defaults(&config);
    return (struct edits_source){.config = &config, .guest = &guest, .dev_root = "/root"};
}

static const struct container_grant grant = {
    .pod_uid = "u-1",
    .container = "main",
    .priority = 0,
    .device_count = 2,
    .devices = {{.uuid = "GPU-a", .memory_bytes = 100 * MIB, .cores = 30, .has_minor = true},
                {.uuid = "GPU-b", .memory_bytes = 200 * MIB, .cores = 100}},
};

static const struct cards no_cards;

static void limits_are_written_for_each_device(void **state)
{
    struct edits_source source = make_source();
    struct limits limits;

    (void)state;
    edits_limits(&source, &grant, &no_cards, &limits);
    assert_int_equal(limits.device_count, 2);
    assert_string_equal(limits.devices[1].uuid, "GPU-b");
    assert_int_equal(limits.devices[0].memory_bytes, 100 * MIB);
    assert_int_equal(limits.devices[0].cores, 30);
    assert_int_equal(limits.devices[1].cores, 0);
    assert_int_equal(limits.priority, 0);
    assert_false(limits.only_granted);

    assert_int_equal(limits.managed, LIMITS_MANAGED_RESIDENT);
    COPY_TEXT(config.managed, "full");
    edits_limits(&source, &grant, &no_cards, &limits);
    assert_int_equal(limits.managed, LIMITS_MANAGED_FULL);

    assert_false(limits.allow_imports);
    COPY_TEXT(config.imports, "allow");
    edits_limits(&source, &grant, &no_cards, &limits);
    assert_true(limits.allow_imports);
    COPY_TEXT(config.imports, "refuse");
    edits_limits(&source, &grant, &no_cards, &limits);
    assert_false(limits.allow_imports);

    assert_true(edits_lend(&source));
    config.disable_core_limit = true;
    assert_false(edits_lend(&source));
    edits_limits(&source, &grant, &no_cards, &limits);
    assert_int_equal(limits.devices[0].cores, 0);
    config.disable_core_limit = false;
    COPY_TEXT(config.core_policy, "disable");
    edits_limits(&source, &grant, &no_cards, &limits);
    assert_int_equal(limits.devices[0].cores, 0);
    COPY_TEXT(config.core_policy, "force");
    assert_false(edits_lend(&source));
    edits_limits(&source, &grant, &no_cards, &limits);
    assert_int_equal(limits.devices[0].cores, 30);
}

/* By the model, and for an instance by its card's; a node's own word counts for all. */
static void a_runtime_may_show_a_container_more_than_it_was_given(void **state)
{
    struct edits_source source = make_source();
    struct container_grant laid_out = grant;
    struct limits limits;

    (void)state;
    laid_out.laid_out = true;
    edits_limits(&source, &laid_out, &no_cards, &limits);
    assert_true(limits.only_granted);
}

static void limits_say_what_a_context_takes(void **state)
{
    static const struct container_grant three = {
        .device_count = 3,
        .devices = {{.uuid = "GPU-b", .index = 1},
                    {.uuid = "MIG-a", .index = 0, .is_instance = true},
                    {.uuid = "GPU-c", .index = 2}},
    };
    static const struct cards cards = {
        .count = 3,
        .items = {{.uuid = "GPU-a", .type = "NVIDIA A100-SXM4-40GB", .index = 0},
                  {.uuid = "GPU-b", .type = "NVIDIA H200", .index = 1},
                  {.uuid = "GPU-c", .type = "NVIDIA-Tesla T4", .index = 2}},
    };
    struct edits_source source = make_source();
    struct limits limits;

    (void)state;
    edits_limits(&source, &three, &cards, &limits);
    assert_int_equal(limits.devices[0].context_bytes, 0);
    config.context_count = 2;
    config.contexts[0] = (struct nvidia_context){1, {"A100"}, 420};
    config.contexts[1] = (struct nvidia_context){2, {"H100", "H200"}, 520};
    edits_limits(&source, &three, &cards, &limits);
    assert_int_equal(limits.devices[0].context_bytes, 520 * MIB);
    assert_int_equal(limits.devices[1].context_bytes, 420 * MIB);
    assert_int_equal(limits.devices[2].context_bytes, 0);
    config.context_mib = 300;
    edits_limits(&source, &three, &cards, &limits);
    assert_int_equal(limits.devices[0].context_bytes, 300 * MIB);
    assert_int_equal(limits.devices[2].context_bytes, 300 * MIB);
}

static void edits_have_what_a_container_needs(void **state)
{
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    const struct cdi_choice none = {.count = 0};
    struct edits_source source = make_source();

    (void)state;
    source.pass_device_specs = true;
    config.memory_scaling = 1.5;
    edits_add(&source, &grant, &none, "/h/containers/u-1_main", "r.cache", &edits);
    assert_non_null(strstr(edits.env.text, "\"CUDA_DEVICE_MEMORY_LIMIT_1=200m\""));
    assert_non_null(strstr(edits.env.text, "\"CUDA_OVERSUBSCRIBE=true\""));
    assert_non_null(strstr(edits.mounts.text, "\"/h/containers/u-1_main/r.cache\""));
    assert_non_null(strstr(edits.nodes.text, "\"hostPath\":\"/root/dev/nvidia0\""));
    assert_int_equal(edits.hooks.len, 0);
}

static void a_simulated_driver_lies_where_a_real_one_would(void **state)
{
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    const struct cdi_choice none = {.count = 0};
    struct edits_source source = make_source();

    (void)state;
    COPY_TEXT(source.sim_folder, "/sim");
    COPY_TEXT(source.sim_machine, "/machine");
    edits_add(&source, &grant, &none, "/h/containers/u-1_main", "r.cache", &edits);
    assert_non_null(
        strstr(edits.mounts.text,
               "{\"hostPath\":\"/sim/libcuda.so.1\",\"containerPath\":\"" DRIVER_LIBRARY_FOLDER
               "/libcuda.so.1\""));
    assert_non_null(
        strstr(edits.mounts.text,
               "{\"hostPath\":\"/sim/libnvidia-ml.so.1\",\"containerPath\":\"" DRIVER_LIBRARY_FOLDER
               "/libnvidia-ml.so.1\""));
    assert_non_null(strstr(edits.mounts.text, "{\"hostPath\":\"/machine\""));
    assert_non_null(strstr(edits.env.text, "\"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b\""));
}

static void write_minor(const char *folder, const char *path, unsigned minor)
{
    char file[PATH_MAX], text[64];
    int len = snprintf(text, sizeof(text), "DeviceFileMinor: %u\nDeviceFileMode: 292\n", minor);

    (void)snprintf(file, sizeof(file), "%s/driver/nvidia/capabilities/gpu3/mig/%s", folder, path);
    for (char *slash = strchr(file + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(file, 0755);
        *slash = '/';
    }
    assert_int_equal(file_replace(file, text, (size_t)len, 0644), 0);
}

/* Beside the card's node those by which the driver lets a program into the instance. */
static void an_instance_has_nodes_of_its_own(void **state)
{
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    const struct cdi_choice none = {.count = 0};
    struct edits_source source = make_source();
    struct container_grant one = {
        .pod_uid = "u-1",
        .container = "main",
        .device_count = 1,
        .devices = {{.uuid = "MIG-a",
                     .memory_bytes = 100 * MIB,
                     .has_minor = true,
                     .minor = 3,
                     .is_instance = true,
                     .gpu_instance = 5,
                     .compute_instance = 0}},
    };
    char folder[] = "/tmp/hami-edits-XXXXXX", command[64];

    (void)state;
    assert_non_null(mkdtemp(folder));
    write_minor(folder, "gi5/access", 48);
    write_minor(folder, "gi5/ci0/access", 49);
    source.procfs = folder;
    source.pass_device_specs = true;
    edits_add(&source, &one, &none, "/h/containers/u-1_main", "r.cache", &edits);
    assert_non_null(strstr(edits.nodes.text, "\"/root/dev/nvidia3\""));
    assert_non_null(strstr(edits.nodes.text, "\"path\":\"/dev/nvidia-caps/nvidia-cap48\""));
    assert_non_null(strstr(edits.nodes.text, "\"path\":\"/dev/nvidia-caps/nvidia-cap49\""));
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void cards_are_compared_and_encoded(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
    struct cards cards = {
        .count = 1,
        .items = {{.uuid = "GPU-a",
                   .type = "NVIDIA A",
                   .numa_node = -1,
                   .memory_mib = 1000,
                   .cores = 100,
                   .max_tasks = 10,
                   .healthy = true}},
    };
    struct cards other = cards;

    (void)state;
    assert_true(cards_equal(&cards, &other));
    other.items[0].healthy = false;
    assert_false(cards_equal(&cards, &other));
    assert_ptr_equal(cards_get(&cards, "GPU-a"), &cards.items[0]);
    assert_null(cards_get(&cards, "GPU-b"));
    assert_string_equal(nvidia_cards_encode(&cards, "hami-core", false, NULL, arena),
                        "[{\"id\":\"GPU-a\",\"count\":10,\"devmem\":1000,\"devcore\":100,"
                        "\"type\":\"NVIDIA A\",\"mode\":\"hami-core\",\"health\":true,"
                        "\"custominfo\":{\"lock\":\"none\"},\"devicepairscore\":{}}]");
    assert_non_null(strstr(nvidia_cards_encode(&cards, "hami-core", true, NULL, arena),
                           "\"custominfo\":{\"lock\":\"turn\"}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_written_for_each_device),
        cmocka_unit_test(a_runtime_may_show_a_container_more_than_it_was_given),
        cmocka_unit_test(limits_say_what_a_context_takes),
        cmocka_unit_test(edits_have_what_a_container_needs),
        cmocka_unit_test(a_simulated_driver_lies_where_a_real_one_would),
        cmocka_unit_test(an_instance_has_nodes_of_its_own),
        cmocka_unit_test(cards_are_compared_and_encoded),
    };

    return cmocka_run_group_tests_name("node/nvidia/edits", tests, NULL, NULL);
}

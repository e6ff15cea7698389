/* SPDX-License-Identifier: Apache-2.0 */
#include "config/device_config.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/util.h"
#include "vendor/nvidia/nvidia.h"

static int parse(const char *text, struct device_config *ret_config, struct error *err)
{
    return device_config_parse("d.yaml", text, strlen(text), ret_config, err);
}

static void every_key_is_read(void **state)
{
    static const char text[] = "nvidia:\n"
                               "  resourceCountName: acme.example/gpu\n"
                               "  resourceMemoryName: \"acme.example/mem\"\n"
                               "  resourceMemoryPercentageName: acme.example/pct\n"
                               "  resourceCoreName: acme.example/cores\n"
                               "  resourcePriorityName: acme.example/prio\n"
                               "  overwriteEnv: yes\n"
                               "  defaultMemory: 4096\n"
                               "  defaultCores: 30\n"
                               "  defaultGPUNum: 2\n"
                               "  memoryFactor: 10\n"
                               "  deviceSplitCount: 20\n"
                               "  deviceMemoryScaling: 1.25\n"
                               "  deviceCoreScaling: 2\n"
                               "  preConfiguredDeviceMemory: 8192\n"
                               "  enableNumaTopology: true\n"
                               "  libCudaLogLevel: 3\n"
                               "  disableCoreLimit: on\n"
                               "  gpuCorePolicy: force\n"
                               "  managedMemory: free\n"
                               "  memoryImports: allow\n"
                               "  runtimeClassName: nvidia\n"
                               "  contextSizes:\n"
                               "    - {models: [A30], memory: 300}\n"
                               "    - {models: [A100, H100], memory: 420}\n"
                               "  migProfileAllowlist:\n"
                               "    - {models: [A30], profiles: [1g.6gb]}\n"
                               "  knownMigGeometries:\n"
                               "    - models: [A30, A31]\n"
                               "      allowedGeometries:\n"
                               "        - - {name: 1g.6gb, core: 25, memory: 6144, count: 4}\n"
                               "        - - {name: 1g.6gb, core: 25, memory: 6144, count: 2}\n"
                               "          - {name: 2g.12gb, core: 50, memory: 12288, count: 1}\n"
                               "hygon:\n"
                               "  memoryFactor: 1\n"
                               "vnpus: {}\n";
    struct error err = ERROR_INIT;
    struct device_config config;
    const struct nvidia_config *nvidia;
    struct vendor_set vendors;

    (void)state;
    assert_int_equal(parse(text, &config, &err), 0);
    nvidia = device_config_of(&config, &nvidia_vendor);
    assert_non_null(nvidia);
    assert_string_equal(nvidia->count_name, "acme.example/gpu");
    assert_string_equal(nvidia->memory_name, "acme.example/mem");
    assert_string_equal(nvidia->memory_percent_name, "acme.example/pct");
    assert_string_equal(nvidia->cores_name, "acme.example/cores");
    assert_string_equal(nvidia->priority_name, "acme.example/prio");
    assert_true(nvidia->overwrite_env && nvidia->numa_topology && nvidia->disable_core_limit);
    assert_int_equal(nvidia->default_memory_mib, 4096);
    assert_int_equal(nvidia->default_cores, 30);
    assert_int_equal(nvidia->default_count, 2);
    assert_int_equal(nvidia->memory_factor, 10);
    assert_int_equal(nvidia->split_count, 20);
    assert_true(nvidia->memory_scaling == 1.25 && nvidia->cores_scaling == 2);
    assert_int_equal(nvidia->preconfigured_memory_mib, 8192);
    assert_string_equal(nvidia->log_level, "3");
    assert_string_equal(nvidia->core_policy, "force");
    assert_string_equal(nvidia->managed, "free");
    assert_string_equal(nvidia->imports, "allow");
    assert_string_equal(nvidia->runtime_class, "nvidia");
    assert_int_equal(nvidia->context_count, 2);
    assert_string_equal(nvidia->contexts[1].names[1], "H100");
    assert_int_equal(nvidia_find_context(nvidia, "NVIDIA H100 PCIe"), 420);
    assert_int_equal(nvidia_find_context(nvidia, "NVIDIA T4"), 0);
    assert_int_equal(nvidia->mig_count, 1);
    assert_int_equal(nvidia->migs[0].name_count, 2);
    assert_string_equal(nvidia->migs[0].names[1], "A31");
    assert_int_equal(nvidia->migs[0].geometry.group_count, 2);
    assert_int_equal(nvidia->migs[0].geometry.groups[1].kind_count, 2);
    assert_int_equal(nvidia->migs[0].geometry.groups[1].kinds[1].memory_mib, 12288);
    assert_int_equal(nvidia->migs[0].geometry.groups[1].kinds[1].cores, 50);
    assert_int_equal(nvidia->migs[0].geometry.groups[1].kinds[1].count, 1);

    assert_int_equal(device_config_vendors(&config, &vendors), 0);
    assert_int_equal(vendors.count, 1);
    assert_string_equal(vendors.instances[0].count_resource, "acme.example/gpu");
    device_config_deinit(&config);
}

static void a_missing_key_has_its_default(void **state)
{
    static const char *const texts[] = {"nvidia:\n", "nvidia: {}\n",
                                        "nvidia: {resourceCountName: ~, deviceSplitCount: ~}\n"};
    static const char *const without[] = {"", "vnpus: []\n", "iluvatars: {}\n"};
    const struct nvidia_config *nvidia;
    struct device_config config;
    struct vendor_set vendors;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        assert_int_equal(parse(texts[i], &config, NULL), 0);
        nvidia = device_config_of(&config, &nvidia_vendor);
        assert_non_null(nvidia);
        assert_string_equal(nvidia->count_name, "");
        assert_int_equal(nvidia->split_count, 10);
        assert_true(nvidia->memory_scaling == 1);
        device_config_deinit(&config);
    }
    for (size_t i = 0; i < ARRAY_SIZE(without); i++) {
        assert_int_equal(parse(without[i], &config, NULL), 0);
        assert_int_equal(device_config_vendors(&config, &vendors), 0);
        assert_int_equal(vendors.count, 0);
        assert_null(device_config_of(&config, &nvidia_vendor));
        device_config_deinit(&config);
    }
}

static void a_section_can_be_left_out(void **state)
{
    struct device_config config;
    struct vendor_set vendors;

    (void)state;
    assert_int_equal(parse("nvidia: {}\n"
                           "iluvatars:\n- {commonWord: MR-V50, resourceCountName: a/b}\n",
                           &config, NULL),
                     0);
    device_config_leave_out(&config, "vnpus");
    assert_int_equal(device_config_vendors(&config, &vendors), 0);
    assert_non_null(vendor_find(&vendors, "MR-V50"));
    device_config_leave_out(&config, "iluvatars");
    assert_int_equal(device_config_vendors(&config, &vendors), 0);
    assert_null(vendor_find(&vendors, "MR-V50"));
    assert_non_null(vendor_find(&vendors, "NVIDIA"));
    device_config_deinit(&config);
}

/* Both of HAMi's forms: 2.8's list, and 2.10's keys with the list in them. */
static void each_chip_of_ascend_is_an_instance(void **state)
{
    static const char *const texts[] = {
        "vnpus:\n"
        "- {commonWord: Ascend910B4, resourceName: huawei.com/Ascend910B4}\n"
        "- {commonWord: Ascend910B4-1, resourceName: huawei.com/Ascend910B4-1}\n",
        "vnpus:\n"
        "  hamiVnpuCore: false\n"
        "  configs:\n"
        "  - {commonWord: Ascend910B4, resourceName: huawei.com/Ascend910B4}\n"
        "  - {commonWord: Ascend910B4-1, resourceName: huawei.com/Ascend910B4-1}\n"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct device_config config;
        struct vendor_set vendors;

        assert_int_equal(parse(texts[i], &config, NULL), 0);
        assert_int_equal(device_config_vendors(&config, &vendors), 0);
        assert_int_equal(vendors.count, 2);
        assert_string_equal(vendors.instances[1].id.word, "Ascend910B4-1");
        assert_string_equal(vendors.instances[1].register_key,
                            "hami.io/node-register-Ascend910B4-1");
        assert_string_equal(vendors.instances[1].allocated_key,
                            "hami.io/Ascend910B4-1-devices-allocated");
        device_config_deinit(&config);
    }
}

static const struct {
    const char *text, *error;
} cases[] = {
    {"nvidia: 3\n", "d.yaml:1:9: nvidia: not a section of keys"},
    {"- nvidia\n", "d.yaml:1:1: not sections of vendors"},
    {"nvdia: {}\n", "d.yaml:1:1: nvdia: no such section"},
    {"nvidia:\n  gpu: 1\n", "d.yaml:2:3: gpu: no such key in nvidia"},
    {"nvidia:\n  defaultCores: 1\n  defaultCores: 2\n", "d.yaml:3:3: defaultCores: given twice"},
    {"nvidia: {}\nnvidia: {}\n", "d.yaml:2:1: nvidia: given twice"},
    {"nvidia:\n  defaultCores: -1\n", "d.yaml:2:17: nvidia.defaultCores: negative"},
    {"nvidia:\n  defaultCores: -x\n", "d.yaml:2:17: nvidia.defaultCores: not a whole number"},
    {"nvidia:\n  deviceSplitCount: -5\n", "d.yaml:2:21: nvidia.deviceSplitCount: negative"},
    {"nvidia:\n  defaultMemory: 99999999999999999999\n",
     "d.yaml:2:18: nvidia.defaultMemory: too large"},
    {"nvidia:\n  defaultMemory: 2147483648\n", "d.yaml:2:18: nvidia.defaultMemory: too large"},
    {"nvidia:\n  deviceSplitCount: 0\n",
     "d.yaml:2:21: nvidia.deviceSplitCount: out of range, 1 to 1000"},
    {"nvidia:\n  deviceMemoryScaling: 0\n",
     "d.yaml:2:24: nvidia.deviceMemoryScaling: out of range, above 0 and at most 100"},
    {"nvidia:\n  deviceMemoryScaling: 1e3\n",
     "d.yaml:2:24: nvidia.deviceMemoryScaling: not a number, as 1 or 1.5"},
    {"nvidia:\n  overwriteEnv: 1\n", "d.yaml:2:17: nvidia.overwriteEnv: neither true nor false"},
    {"nvidia:\n  gpuCorePolicy: never\n",
     "d.yaml:2:18: nvidia.gpuCorePolicy: none of default, force, disable"},
    {"nvidia:\n  managedMemory: some\n",
     "d.yaml:2:18: nvidia.managedMemory: none of resident, full, free"},
    {"nvidia:\n  memoryImports: yes\n",
     "d.yaml:2:18: nvidia.memoryImports: neither refuse nor allow"},
    {"nvidia:\n  libCudaLogLevel: 12\n",
     "d.yaml:2:20: nvidia.libCudaLogLevel: not a level from 0 to 4"},
    {"nvidia:\n  resourceCoreName: [a]\n",
     "d.yaml:2:21: nvidia.resourceCoreName: not a single value"},
    {"nvidia:\n  resourceCountName: gpu\n",
     "d.yaml:2:22: nvidia.resourceCountName: without a domain, which Kubernetes demands of a "
     "device's resource: name it as example.com/gpu"},
    {"hygon:\n  resourceMemoryName: kubernetes.io/mem\n",
     "d.yaml:2:23: hygon.resourceMemoryName: in kubernetes.io, which is Kubernetes' own: take "
     "another domain, as in example.com/gpu"},
    {"vnpus:\n  - {commonWord: A, resourceName: requests.a/b}\n",
     "d.yaml:2:35: vnpus.resourceName: begins with \"requests.\", by which quotas name a resource: "
     "leave that out"},
    {"nvidia:\n  contextSizes: 300\n", "d.yaml:2:17: nvidia.contextSizes: not a list"},
    {"nvidia:\n  contextSizes:\n    - {models: [A30], memory: 0}\n",
     "d.yaml:3:31: nvidia.contextSizes.memory: not a whole number of MiB from 1 to 65536"},
    {"nvidia:\n  contextSizes:\n    - {models: ['']}\n",
     "d.yaml:3:17: nvidia.contextSizes.models: not a model's name of at most 47 bytes"},
    {"nvidia:\n  contextSizes:\n    - {memory: 300}\n",
     "d.yaml:3:7: nvidia.contextSizes: an entry needs models and memory"},
    {"nvidia:\n  migProfileAllowlist: 3\n", "d.yaml:2:24: nvidia.migProfileAllowlist: not a list"},
    {"nvidia:\n  migProfileAllowlist:\n    - {models: [A30], profiles: [6gb]}\n",
     "d.yaml:3:34: nvidia.migProfileAllowlist.profiles: not a profile, as 1g.10gb"},
    {"nvidia:\n  migProfileAllowlist:\n    - {models: [A30]}\n",
     "d.yaml:3:7: nvidia.migProfileAllowlist: an entry needs models and profiles"},
    {"nvidia:\n  migProfileAllowlist:\n    - {models: [[]], profiles: [1g.6gb]}\n",
     "d.yaml:3:17: nvidia.migProfileAllowlist.models: not a model's name of at most 47 bytes"},
    {"nvidia:\n  knownMigGeometries: 3\n", "d.yaml:2:23: nvidia.knownMigGeometries: not a list"},
    {"nvidia:\n  knownMigGeometries:\n    - model: [A30]\n",
     "d.yaml:3:7: model: no such key in nvidia.knownMigGeometries"},
    {"nvidia:\n  knownMigGeometries:\n    - models: [[]]\n",
     "d.yaml:3:16: nvidia.knownMigGeometries: not a model's name of at most 47 bytes"},
    {"nvidia:\n  knownMigGeometries:\n    - allowedGeometries: [[{count: 9}]]\n",
     "d.yaml:3:36: nvidia.knownMigGeometries.count: not a whole number within range"},
    {"nvidia:\n  knownMigGeometries:\n    - allowedGeometries: [[{count: 5}, {count: 4}]]\n",
     "d.yaml:3:27: nvidia.knownMigGeometries: more than 8 instances"},
    {"nvidia:\n  knownMigGeometries:\n    - allowedGeometries: [[{core: 101}]]\n",
     "d.yaml:3:35: nvidia.knownMigGeometries.core: not a whole number within range"},
    {"nvidia:\n  ? [a]\n  : 1\n", "d.yaml:2:5: nvidia: a key that is not text"},
    {"nvidia: [\n", "d.yaml:2:1: did not find expected node content"},
    {"nvidia: &a [*a]\n", "d.yaml:1:9: nvidia: nested too deep"},
    {"nvidia: {defaultCores: [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}\n",
     "d.yaml:1:39: defaultCores: nested too deep"},
    {"amd:\n  resourceCount: x\n", "d.yaml:2:3: resourceCount: no such key in amd"},
    {"metax: {sgpuTopologyAware: [1]}\n",
     "d.yaml:1:28: metax.sgpuTopologyAware: not a single value"},
    {"kunlun: 3\n", "d.yaml:1:9: kunlun: not a section of keys"},
    {"iluvatars:\n  - {commonWord: a, resourceCountName: a/b}\n  - {chip: a}\n",
     "d.yaml:3:6: chip: no such key in iluvatars"},
    {"iluvatars:\n  - {chipName: a}\n",
     "d.yaml:2:5: iluvatars: a chip needs commonWord and resourceCountName"},
    {"iluvatars:\n  - {commonWord: A, resourceCountName: a/b}\n  - {commonWord: A, "
     "resourceCountName: a/c}\n",
     "d.yaml:3:5: iluvatars: a commonWord is given twice"},
    {"vnpus:\n  - {chipName: a}\n", "d.yaml:2:5: vnpus: a chip needs commonWord and resourceName"},
    {"vnpus:\n  - {commonWord: A, resourceName: a/b}\n  - {commonWord: A, resourceName: a/c}\n",
     "d.yaml:3:5: vnpus: a commonWord is given twice"},
    {"vnpus:\n  - {commonWord: ''}\n",
     "d.yaml:2:18: vnpus.commonWord: not a name of at most 63 letters"},
    {"iluvatars: {chipName: a}\n", "d.yaml:1:12: iluvatars: not a list"},
    {"vnpus:\n  - {chipName: a, aicore: 1}\n", "d.yaml:2:19: aicore: no such key in vnpus"},
    {"vnpus:\n  hamiVnpuCore: false\n  configs:\n    - templates:\n      - {name: a, mem: 1}\n",
     "d.yaml:5:19: mem: no such key in vnpus.configs.templates"},
};

static void an_error_names_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct device_config config = {.count = 99};
        struct error err = ERROR_INIT;

        print_message("%s", cases[i].text);
        assert_int_equal(parse(cases[i].text, &config, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].error);
        assert_int_equal(config.count, 99);
    }
}

static void a_file_too_large_or_missing_is_refused(void **state)
{
    struct device_config config;

    (void)state;
    assert_int_equal(device_config_load("/nonexistent/d.yaml", &config, NULL), -ENOENT);
    assert_int_equal(device_config_load("/dev/zero", &config, NULL), -EFBIG);
}

/* As a file: without a vendor there is nothing to share, without a name nothing to ask for. */
static void a_file_that_leaves_nothing_to_share_is_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } files[] = {
        {"", "it has no section of a vendor that is served"},
        {"vnpus: []\n", "it has no section of a vendor that is served"},
        {"nvidia:\n", "nvidia.resourceCountName: not given"},
        {"nvidia: {resourceCountName: \"\"}\n", "nvidia.resourceCountName: not given"},
        {"nvidia:\n  resourceCountName: a/b\n"
         "  migProfileAllowlist:\n    - {models: [A30], profiles: [2g.12gb]}\n"
         "  knownMigGeometries:\n    - models: [T4, NVIDIA A30]\n"
         "      allowedGeometries: [[{name: 1g.6gb, core: 25, memory: 6144, count: 4}]]\n",
         "nvidia.migProfileAllowlist: allows no profile that knownMigGeometries has for NVIDIA "
         "A30;"},
    };
    char path[] = "/tmp/device-config-XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct device_config config = {.count = 99};
        struct error err = ERROR_INIT;

        assert_int_equal(file_replace(path, files[i].text, strlen(files[i].text), 0600), 0);
        assert_int_equal(device_config_load(path, &config, &err), -EINVAL);
        assert_non_null(strstr(err.text, files[i].why));
        assert_non_null(strstr(err.text, path));
        assert_int_equal(config.count, 99);
    }
    (void)close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(a_missing_key_has_its_default),
        cmocka_unit_test(a_section_can_be_left_out),
        cmocka_unit_test(each_chip_of_ascend_is_an_instance),
        cmocka_unit_test(an_error_names_its_place),
        cmocka_unit_test(a_file_too_large_or_missing_is_refused),
        cmocka_unit_test(a_file_that_leaves_nothing_to_share_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* hami-device-plugin: hands parts of this node's GPUs to containers. */

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/options.h"
#include "base/parse.h"
#include "base/util.h"
#include "node/nvidia/driver.h"
#include "node/nvidia/instances.h"
#include "node/nvidia/measure.h"
#include "node/nvidia/node.h"
#include "plugin/plugin.h"

static int read_node_name(char *text, void *member, struct error *err)
{
    if (!*text || strlen(text) >= NODE_NAME_SIZE)
        return error_set(err, -EINVAL, "\"%.64s\" is no node's name", text);
    copy_text(member, NODE_NAME_SIZE, text);
    return 0;
}

/* HAMi's older name for --device-config-file, which rules. */
static int read_config_file(char *text, void *member, struct error *err)
{
    const char **device_config_file = member;

    return *device_config_file ? 0 : option_text(text, member, err);
}

static int read_time(char *text, void *member, struct error *err)
{
    if (parse_duration(text, member) < 0)
        return error_set(err, -EINVAL, "\"%s\" is not a time, as 5m", text);
    return 0;
}

static int read_runtime_cdi(char *text, void *member, struct error *err)
{
    if (strcmp(text, "auto") != 0 && strcmp(text, "on") != 0)
        return error_set(err, -EINVAL, "\"%s\" is neither auto nor on", text);
    *(bool *)member = strcmp(text, "on") == 0;
    return 0;
}

/* May be given several times. */
static int read_strategies(char *text, void *member, struct error *err)
{
    return way_read(text, member, err);
}

static int read_mig_strategy(char *text, void *member, struct error *err)
{
    enum mig_strategy unread;

    if (mig_strategy_parse(text, &unread) < 0)
        return error_set(err, -EINVAL, "\"%.32s\" is none of none, single, mixed", text);
    return option_text(text, member, err);
}

/* For a probe of kubelet's: the program does nothing else. */
static int check_ready_file(char *text, void *member, struct error *err)
{
    (void)member;
    (void)err;
    exit(access(text, F_OK) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

struct options {
    struct plugin_options plugin;
    struct nvidia_node_options nvidia;
};

static int check_together(void *data, struct error *err)
{
    char *mig = getenv("MIG_STRATEGY");
    const char *strategies = getenv("DEVICE_LIST_STRATEGY");
    struct options *options = data;

    if (!options->plugin.node_name[0])
        return error_set(err, -EINVAL, "which node is this? Set NODE_NAME or --node-name");
    if (!options->nvidia.mig_strategy && mig &&
        read_mig_strategy(mig, &options->nvidia.mig_strategy, err) < 0)
        return error_wrap(err, -EINVAL, "MIG_STRATEGY");
    if (options->plugin.strategies || !strategies || !*strategies)
        return 0;
    if (way_read(strategies, &options->plugin.strategies, err) < 0)
        return error_wrap(err, -EINVAL, "DEVICE_LIST_STRATEGY");
    return 0;
}

#define AT(member) offsetof(struct options, plugin.member)
#define NVIDIA(member) offsetof(struct options, nvidia.member)

/* HAMi's flags without effect here: some have none there either, the others are for MIG, for other
 * ways to name devices, or for parts of the driver that the NVIDIA runtime finds itself. */
#define WITHOUT(name)                                                                              \
    {                                                                                              \
        name, 0, OPTION_NO_EFFECT | OPTION_UNLISTED, NULL, NULL, 0, NULL                           \
    }

static const struct option_row rows[] = {
    {"node-name", 0, 0, "NAME", read_node_name, AT(node_name),
     "This node's name (default: $NODE_NAME)"},
    {"kubeconfig", 0, 0, "FILE", option_text, AT(kubeconfig),
     "How to reach the API server (default: $KUBECONFIG, the pod's own, ~/.kube/config)"},
    {"device-config-file", 0, 0, "FILE", option_text, AT(device_config_file),
     "HAMi's device-config.yaml, as the scheduler has it (default: HAMi's defaults)"},
    {"config-file", 0, 0, "FILE", read_config_file, AT(device_config_file),
     "HAMi's name for --device-config-file, which rules"},
    {"node-config-file", 0, 0, "FILE", option_text, AT(node_config_file),
     "What differs on this node, JSON (default: /config/config.json)"},
    {"hook-path", 0, 0, "FOLDER", option_text, AT(hook_path),
     "Where the library and the containers' files are kept (default: /usr/local/vgpu)"},
    {"cdi-dir", 0, 0, "FOLDER", option_text, AT(cdi_dir),
     "Where the container runtime looks for devices (default: /var/run/cdi)"},
    {"kubelet-socket", 0, 0, "SOCKET", option_text, AT(kubelet_socket),
     "Where to register (default: /var/lib/kubelet/device-plugins/kubelet.sock)"},
    {"pod-resources-socket", 0, 0, "SOCKET", option_text, AT(pod_resources_socket),
     "Where kubelet tells whose devices are (default: "
     "/var/lib/kubelet/pod-resources/kubelet.sock)"},
    {"nvidia-cdi-dirs", 0, 0, "FOLDERS", option_text, NVIDIA(cdi_folders),
     "Where NVIDIA's toolkit says in CDI specifications what its driver consists of; the first "
     "rules (default: " DRIVER_CDI_FOLDERS ")"},
    {"nvidia-driver-root", 0, 0, "FOLDER", option_root, NVIDIA(driver_root),
     "Where the driver is on the host: where the toolkit has written nothing its libraries and "
     "device nodes are given to containers one by one (default: none; the runtime's business)"},
    {"driver-root-ctr-path", 0, 0, "FOLDER", option_root, NVIDIA(seen_driver),
     "The same as this program sees it (default: /driver-root, else the same)"},
    {.name = "container-driver-root", .flags = OPTION_OTHER_NAME},
    {"sysfs", 0, OPTION_UNLISTED, "FOLDER", option_text, NVIDIA(sysfs),
     "Where sysfs is (default: /sys)"},
    {"nvidia-dev-root", 0, 0, "FOLDER", option_root, NVIDIA(dev_root),
     "Above /dev/nvidia0 on the host (default: none)"},
    {.name = "dev-root", .flags = OPTION_OTHER_NAME},
    {"pass-device-specs", 0, OPTION_MAY_STAND_ALONE, "BOOL", option_bool, NVIDIA(pass_device_specs),
     "List device nodes, for runtimes other than NVIDIA's"},
    {"fail-on-init-error", 0, OPTION_MAY_STAND_ALONE, "BOOL", option_not, AT(keep_trying),
     "End where NVML can't be opened (default: true); else say so on the Node, and try again"},
    {"runtime-socket", 0, 0, "SOCKET", option_text, AT(runtime_socket),
     "The container runtime's, which is asked whether it takes CDI devices (default: where "
     "containerd, CRI-O, k3s, k0s and MicroK8s have it)"},
    {"runtime-cdi", 0, 0, "auto|on", read_runtime_cdi, AT(assume_cdi),
     "Whether it takes CDI devices: as it says (default), or always"},
    {"device-list-strategy", 0, 0, "STRATEGY", read_strategies, AT(strategies),
     "How containers get their devices: cdi-cri, cdi-annotations, envvar, volume-mounts, or "
     "several "
     "with commas, of which the first that the node can do counts (default: $DEVICE_LIST_STRATEGY; "
     "else cdi-cri, and without CDI what the driver needs is laid out into Allocate's answer)"},
    {"ready-file", 0, 0, "FILE", option_text, AT(ready_file),
     "A file that is there while kubelet knows of the cards (default: none)"},
    {"check", 0, 0, "FILE", check_ready_file, 0,
     "Do nothing but end with status 0 if that file is there, else 1"},
    {"mig-strategy", 0, 0, "none|single|mixed", read_mig_strategy, NVIDIA(mig_strategy),
     "What becomes of MIG instances that are there: nothing (default); cards as any other, which "
     "may be shared; or whole ones, by resources nvidia.com/mig-PROFILE"},
    {"procfs", 0, OPTION_UNLISTED, "FOLDER", option_text, NVIDIA(procfs),
     "Where procfs is (default: /proc)"},
    {"health-quiet", 0, OPTION_UNLISTED, "TIME", read_time, NVIDIA(health_quiet_ms),
     "How long a card that failed stays out at least (default: 5m)"},
    {"measure-contexts", 0, OPTION_MAY_STAND_ALONE, "BOOL", option_bool, NVIDIA(measure_contexts),
     "Measure what a context takes on each kind of card, once for each driver, by making one for a "
     "moment (default: true)"},
    {"measure-limit", 0, OPTION_UNLISTED, "TIME", read_time, NVIDIA(measure_limit_ms),
     "How long that may take (default: 30s)"},
    {"node-capacity", 0, OPTION_MAY_STAND_ALONE, "BOOL", option_bool, AT(node_capacity),
     "Show the cards' memory and cores as the Node's capacity; kubelet then refuses pods by it "
     "(default: false)"},
    {"v", 'v', 0, "LEVEL", option_verbosity, 0, "How much to say; 5: everything"},
    WITHOUT("cdi-annotation-prefix"),
    WITHOUT("device-cores-scaling"),
    WITHOUT("device-discovery-strategy"),
    WITHOUT("device-id-strategy"),
    WITHOUT("device-memory-scaling"),
    WITHOUT("device-split-count"),
    WITHOUT("disable-core-limit"),
    WITHOUT("gdrcopy-enabled"),
    WITHOUT("gds-enabled"),
    WITHOUT("imex-channel-ids"),
    WITHOUT("imex-required"),
    WITHOUT("mofed-enabled"),
    WITHOUT("nvidia-cdi-hook-path"),
    WITHOUT("nvidia-ctk-path"),
    WITHOUT("resource-name"),
};

static const struct option_table table = {
    .rows = rows,
    .count = ARRAY_SIZE(rows),
    .version = "hami-device-plugin " HAMI_VERSION,
    .doc = "Registers this node's NVIDIA GPUs with kubelet and with hami-scheduler, and hands "
           "containers the parts that the scheduler gave them.\v"
           "With HAMI_SIM naming a simulated machine, and LD_LIBRARY_PATH the folder of the "
           "simulated driver, the node's cards are simulated.",
    .check = check_together,
};

/* In our pod the host's root is mounted at HOST_ROOT. */
static void set_seen_driver(struct nvidia_node_options *options)
{
    static char path[PATH_MAX];

    if (options->seen_driver || !options->driver_root)
        return;
    (void)snprintf(path, sizeof(path), HOST_ROOT "%s", options->driver_root);
    options->seen_driver = access(path, F_OK) == 0 ? path : options->driver_root;
}

int main(int argc, char **argv)
{
    struct options options = {
        .plugin =
            {
                .node_config_file = "/config/config.json",
                .hook_path = "/usr/local/vgpu",
                .cdi_dir = "/var/run/cdi",
                .kubelet_socket = "/var/lib/kubelet/device-plugins/kubelet.sock",
                .pod_resources_socket = "/var/lib/kubelet/pod-resources/kubelet.sock",
            },
        .nvidia =
            {
                .cdi_folders = DRIVER_CDI_FOLDERS,
                .sysfs = "/sys",
                .procfs = "/proc",
                .dev_root = "",
                .measure_contexts = true,
                .disabled_checks = getenv("DP_DISABLE_HEALTHCHECKS"),
                .enabled_checks = getenv("DP_ENABLE_HEALTHCHECKS"),
            },
    };
    const char *name = getenv("NODE_NAME");
    int r;

    file_hold_standard();
    if (argc > 1 && strcmp(argv[1], MEASURE_WORD) == 0)
        return measure_main(argc - 2, argv + 2);
    if (name)
        COPY_TEXT(options.plugin.node_name, name);
    options_read(&table, argc, argv, &options);
    set_seen_driver(&options.nvidia);
    do
        r = plugin_run(&options.plugin, &nvidia_node_vendor, &options.nvidia);
    while (r > 0);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

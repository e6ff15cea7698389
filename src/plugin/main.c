/* SPDX-License-Identifier: Apache-2.0 */

/* hami-device-plugin: hands parts of this node's GPUs to containers. */

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/util.h"
#include "plugin/plugin.h"

enum {
    OPTION_NODE_NAME = 256,
    OPTION_KUBECONFIG,
    OPTION_DEVICE_CONFIG,
    OPTION_CONFIG,
    OPTION_NODE_CONFIG,
    OPTION_HOOK_PATH,
    OPTION_CDI_DIR,
    OPTION_KUBELET_SOCKET,
    OPTION_POD_RESOURCES,
    OPTION_CDI_FOLDERS,
    OPTION_DRIVER_ROOT,
    OPTION_SEEN_DRIVER,
    OPTION_SYSFS,
    OPTION_DEV_ROOT,
    OPTION_PASS_DEVICE_SPECS,
    OPTION_FAIL_ON_INIT_ERROR,
    OPTION_RUNTIME_SOCKET,
    OPTION_RUNTIME_CDI,
    OPTION_READY_FILE,
    OPTION_CHECK,
    OPTION_NODE_CAPACITY,
    OPTION_WITHOUT_EFFECT,
};

/* HAMi's flags that say nothing here: some say nothing there either, the others are for MIG, for
 * other ways to name devices, or for what the NVIDIA runtime finds itself. */
#define WITHOUT(name)                                                                              \
    {                                                                                              \
        name, OPTION_WITHOUT_EFFECT, "VALUE", OPTION_ARG_OPTIONAL | OPTION_HIDDEN, NULL, 0         \
    }

static const struct argp_option argp_options[] = {
    {"node-name", OPTION_NODE_NAME, "NAME", 0, "This node's name (default: $NODE_NAME)", 0},
    {"kubeconfig", OPTION_KUBECONFIG, "FILE", 0,
     "How to reach the API server (default: $KUBECONFIG, the pod's own, ~/.kube/config)", 0},
    {"device-config-file", OPTION_DEVICE_CONFIG, "FILE", 0,
     "HAMi's device-config.yaml, as the scheduler has it (default: HAMi's defaults)", 0},
    {"config-file", OPTION_CONFIG, "FILE", 0, "HAMi's name for --device-config-file, which rules",
     0},
    {"node-config-file", OPTION_NODE_CONFIG, "FILE", 0,
     "What differs on this node, JSON (default: /config/config.json)", 0},
    {"hook-path", OPTION_HOOK_PATH, "FOLDER", 0,
     "Where the library and the containers' files are kept (default: /usr/local/vgpu)", 0},
    {"cdi-dir", OPTION_CDI_DIR, "FOLDER", 0,
     "Where the container runtime looks for devices (default: /var/run/cdi)", 0},
    {"kubelet-socket", OPTION_KUBELET_SOCKET, "SOCKET", 0,
     "Where to register (default: /var/lib/kubelet/device-plugins/kubelet.sock)", 0},
    {"pod-resources-socket", OPTION_POD_RESOURCES, "SOCKET", 0,
     "Where kubelet tells whose devices are (default: /var/lib/kubelet/pod-resources/kubelet.sock)",
     0},
    {"nvidia-cdi-dirs", OPTION_CDI_FOLDERS, "FOLDERS", 0,
     "Where NVIDIA's toolkit says in CDI specifications what its driver consists of; the first "
     "rules "
     "(default: " DRIVER_CDI_FOLDERS ")",
     0},
    {"nvidia-driver-root", OPTION_DRIVER_ROOT, "FOLDER", 0,
     "Where the driver is on the host: where the toolkit has written nothing its libraries and "
     "device nodes are given to containers one by one (default: none; the runtime's business)",
     0},
    {"driver-root-ctr-path", OPTION_SEEN_DRIVER, "FOLDER", 0,
     "The same as this program sees it (default: /driver-root, else the same)", 0},
    {"container-driver-root", OPTION_SEEN_DRIVER, NULL, OPTION_ALIAS, NULL, 0},
    {"sysfs", OPTION_SYSFS, "FOLDER", OPTION_HIDDEN, "Where sysfs is (default: /sys)", 0},
    {"nvidia-dev-root", OPTION_DEV_ROOT, "FOLDER", 0,
     "Above /dev/nvidia0 on the host (default: none)", 0},
    {"dev-root", OPTION_DEV_ROOT, NULL, OPTION_ALIAS, NULL, 0},
    {"pass-device-specs", OPTION_PASS_DEVICE_SPECS, "BOOL", OPTION_ARG_OPTIONAL,
     "List device nodes, for runtimes other than NVIDIA's", 0},
    {"fail-on-init-error", OPTION_FAIL_ON_INIT_ERROR, "BOOL", OPTION_ARG_OPTIONAL,
     "End where NVML can't be opened (default: true); else say so on the Node, and try again", 0},
    {"runtime-socket", OPTION_RUNTIME_SOCKET, "SOCKET", 0,
     "The container runtime's, which is asked whether it takes CDI devices (default: where "
     "containerd, CRI-O, k3s, k0s and MicroK8s have it)",
     0},
    {"runtime-cdi", OPTION_RUNTIME_CDI, "auto|on", 0,
     "Whether it takes CDI devices: as it says (default), or always", 0},
    {"ready-file", OPTION_READY_FILE, "FILE", 0,
     "A file that is there while kubelet knows of the cards (default: none)", 0},
    {"check", OPTION_CHECK, "FILE", 0,
     "Do nothing but end with status 0 if that file is there, else 1", 0},
    {"node-capacity", OPTION_NODE_CAPACITY, "BOOL", OPTION_ARG_OPTIONAL,
     "Show the cards' memory and cores as the Node's capacity; kubelet then refuses pods by it "
     "(default: false)",
     0},
    {"v", 'v', "LEVEL", 0, "How much to say; 5: everything", 0},
    WITHOUT("cdi-annotation-prefix"),
    WITHOUT("device-cores-scaling"),
    WITHOUT("device-discovery-strategy"),
    WITHOUT("device-id-strategy"),
    WITHOUT("device-list-strategy"),
    WITHOUT("device-memory-scaling"),
    WITHOUT("device-split-count"),
    WITHOUT("disable-core-limit"),
    WITHOUT("gdrcopy-enabled"),
    WITHOUT("gds-enabled"),
    WITHOUT("imex-channel-ids"),
    WITHOUT("imex-required"),
    WITHOUT("mig-strategy"),
    WITHOUT("mofed-enabled"),
    WITHOUT("nvidia-cdi-hook-path"),
    WITHOUT("nvidia-ctk-path"),
    WITHOUT("resource-name"),
    {0},
};

static bool read_bool(struct argp_state *state, const char *text)
{
    bool value = true;

    if (text && parse_bool(text, &value) < 0)
        argp_error(state, "\"%s\" is neither true nor false", text);
    return value;
}

static void set_verbosity(struct argp_state *state, const char *text)
{
    unsigned level;

    if (parse_verbosity(text, &level) < 0)
        argp_error(state, "\"%s\" is no level", text);
    else
        log_set_verbosity(level);
}

static void set_node_name(struct argp_state *state, struct plugin_options *options,
                          const char *name)
{
    if (!*name || strlen(name) >= sizeof(options->node_name))
        argp_error(state, "--node-name: no node's name");
    COPY_TEXT(options->node_name, name);
}

/* Options that are kept as they are given. Of a root "/" is as good as nothing in front of a path.
 */
static const struct {
    int key;
    size_t member;
    bool is_root;
} texts[] = {
    {OPTION_KUBECONFIG, offsetof(struct plugin_options, kubeconfig), false},
    {OPTION_DEVICE_CONFIG, offsetof(struct plugin_options, device_config_file), false},
    {OPTION_NODE_CONFIG, offsetof(struct plugin_options, node_config_file), false},
    {OPTION_HOOK_PATH, offsetof(struct plugin_options, hook_path), false},
    {OPTION_CDI_DIR, offsetof(struct plugin_options, cdi_dir), false},
    {OPTION_KUBELET_SOCKET, offsetof(struct plugin_options, kubelet_socket), false},
    {OPTION_POD_RESOURCES, offsetof(struct plugin_options, pod_resources_socket), false},
    {OPTION_CDI_FOLDERS, offsetof(struct plugin_options, cdi_folders), false},
    {OPTION_DRIVER_ROOT, offsetof(struct plugin_options, driver_root), true},
    {OPTION_SEEN_DRIVER, offsetof(struct plugin_options, seen_driver), true},
    {OPTION_DEV_ROOT, offsetof(struct plugin_options, dev_root), true},
    {OPTION_SYSFS, offsetof(struct plugin_options, sysfs), false},
    {OPTION_RUNTIME_SOCKET, offsetof(struct plugin_options, runtime_socket), false},
    {OPTION_READY_FILE, offsetof(struct plugin_options, ready_file), false},
};

static bool set_text(struct plugin_options *options, int key, const char *text)
{
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        const char **member = (const char **)((char *)options + texts[i].member);

        if (texts[i].key != key)
            continue;
        *member = texts[i].is_root && strcmp(text, "/") == 0 ? "" : text;
        return true;
    }
    return false;
}

static void set_runtime_cdi(struct argp_state *state, struct plugin_options *options,
                            const char *text)
{
    if (strcmp(text, "auto") != 0 && strcmp(text, "on") != 0)
        argp_error(state, "--runtime-cdi: \"%s\" is neither auto nor on", text);
    options->assume_cdi = strcmp(text, "on") == 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct plugin_options *options = state->input;

    if (set_text(options, key, arg))
        return 0;
    switch (key) {
    case OPTION_NODE_NAME:
        set_node_name(state, options, arg);
        return 0;
    case OPTION_CONFIG:
        if (!options->device_config_file)
            options->device_config_file = arg;
        return 0;
    case OPTION_PASS_DEVICE_SPECS:
        options->pass_device_specs = read_bool(state, arg);
        return 0;
    case OPTION_FAIL_ON_INIT_ERROR:
        options->keep_trying = !read_bool(state, arg);
        return 0;
    case OPTION_NODE_CAPACITY:
        options->node_capacity = read_bool(state, arg);
        return 0;
    case OPTION_RUNTIME_CDI:
        set_runtime_cdi(state, options, arg);
        return 0;
    case OPTION_CHECK:
        exit(access(arg, F_OK) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
    case OPTION_WITHOUT_EFFECT:
        log_warn("%s has no effect here", state->argv[state->next - 1]);
        return 0;
    case 'v':
        set_verbosity(state, arg);
        return 0;
    case ARGP_KEY_END:
        if (!options->node_name[0])
            argp_error(state, "which node is this? Set NODE_NAME or --node-name");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = argp_options,
    .parser = parse_option,
    .doc = "Registers this node's NVIDIA GPUs with kubelet and with hami-scheduler, and hands "
           "containers the parts that the scheduler gave them.\v"
           "With HAMI_SIM naming a simulated machine, and LD_LIBRARY_PATH the folder of the "
           "simulated driver, the node's cards are simulated.",
};

PUBLIC const char *argp_program_version = "hami-device-plugin " HAMI_VERSION;

/* In our pod the host's root is mounted at HOST_ROOT. */
static void set_seen_driver(struct plugin_options *options)
{
    static char path[PATH_MAX];

    if (options->seen_driver || !options->driver_root)
        return;
    (void)snprintf(path, sizeof(path), HOST_ROOT "%s", options->driver_root);
    options->seen_driver = access(path, F_OK) == 0 ? path : options->driver_root;
}

int main(int argc, char **argv)
{
    struct plugin_options options = {
        .node_config_file = "/config/config.json",
        .hook_path = "/usr/local/vgpu",
        .cdi_dir = "/var/run/cdi",
        .kubelet_socket = "/var/lib/kubelet/device-plugins/kubelet.sock",
        .pod_resources_socket = "/var/lib/kubelet/pod-resources/kubelet.sock",
        .cdi_folders = DRIVER_CDI_FOLDERS,
        .sysfs = "/sys",
        .dev_root = "",
    };
    const char *name = getenv("NODE_NAME");

    if (name)
        COPY_TEXT(options.node_name, name);
    if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0)
        return 2;
    set_seen_driver(&options);
    return plugin_run(&options) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

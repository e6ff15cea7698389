/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl sim: simulated machines, so that everything runs where there is no GPU. */

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/options.h"
#include "base/parse.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/paths.h"
#include "ctl/registry.h"
#include "ctl/sim_config.h"
#include "ctl/sim_print.h"
#include "simdriver/machine.h"

enum {
    TEXT_MAX = 4 << 20,
    OPT_GPUS = 'n',
    OPT_MODEL = 'm',
    OPT_MEMORY = 'M',
    OPT_SMS = 's',
    OPT_NUMA = 'N',
    OPT_CONFIG = 'c',
    OPT_FORCE = 'f',
    OPT_JSON = 'j',
    OPT_CONTEXT = 256,
    OPT_CAPABILITY,
    OPT_SLICE,
    OPT_SWITCH,
    OPT_DRIVER,
    OPT_GPU,
    OPT_XID,
    OPT_ECC,
    OPT_STATE,
    OPT_ACTION,
    OPT_COMPUTE_MODE,
    OPT_MIG,
};

struct sim {
    const char *path; /* as given; NULL: HAMI_SIM */
    const char *config;
    bool described; /* by options */
    bool force;
    bool json;
    struct sim_driver_spec driver;
    unsigned gpu_count;
    struct sim_gpu_spec gpu; /* all are alike but for the NUMA node */
    size_t numa_count;       /* 0: none given */
    int numa[SIM_MAX_GPUS];
    unsigned fault_gpu;
    struct sim_fault fault;
};

struct verb {
    const char *name; /* as it calls itself in messages, "hamictl sim NAME" */
    const struct argp argp;
    const char *(*lacks)(const struct sim *sim); /* what is to be said yet, or NULL; may be NULL */
    int (*act)(const struct sim *sim, const char *path, struct error *err);
};

static const struct argp_option create_options[] = {
    {"gpus", OPT_GPUS, "COUNT", 0, "Number of GPUs, 1 to 16. Default: 1", 0},
    {"model", OPT_MODEL, "NAME", 0, "Model, as NVML names it. Default: NVIDIA A100-SXM4-40GB", 0},
    {"memory", OPT_MEMORY, "AMOUNT", 0, "Memory of each GPU, such as 80Gi. Default: 40Gi", 0},
    {"sms", OPT_SMS, "COUNT", 0, "Streaming multiprocessors of each GPU, 1 to 1024. Default: 108",
     0},
    {"numa", OPT_NUMA, "NODE[,NODE...]", 0,
     "NUMA nodes; the GPUs are divided among them in order. Default: none", 0},
    {"context", OPT_CONTEXT, "AMOUNT", 0,
     "Device memory that each context takes for itself, less than the GPU has. Default: 400Mi, or "
     "a "
     "sixteenth of the GPU's memory where that is less",
     0},
    {"compute-capability", OPT_CAPABILITY, "X.Y", 0, "Default: 8.0", 0},
    {"slice", OPT_SLICE, "DURATION", 0,
     "Time slice of the round robin between contexts. Default: 2ms", 0},
    {"switch", OPT_SWITCH, "DURATION", 0, "Time lost at each change of context. Default: 160us", 0},
    {"driver", OPT_DRIVER, "KEY=VALUE", 0,
     "How the driver behaves, such as captures=kind; may be repeated. See hamictl-sim(1)", 0},
    {"config", OPT_CONFIG, "FILE", 0, "Take everything from a YAML file instead", 0},
    {0},
};

static const struct argp_option show_options[] = {
    {"json", OPT_JSON, NULL, 0, "Write JSON", 0},
    {0},
};

static const struct argp_option fault_options[] = {
    {"gpu", OPT_GPU, "NUMBER", 0, "Which GPU it befalls. Default: 0", 0},
    {"xid", OPT_XID, "NUMBER", 0, "An error of this number, told as an event", 0},
    {"ecc", OPT_ECC, "corrected|uncorrected", 0,
     "One more memory error of this kind, and its event", 0},
    {"state", OPT_STATE, "ok|lost|hangs", 0,
     "From now on NVML answers for it, says that it is lost, or does not answer; ok also resets it",
     0},
    {"action", OPT_ACTION, "none|reset|reboot|drain-p2p|drain-and-reset", 0,
     "What the driver says it needs", 0},
    {"compute-mode", OPT_COMPUTE_MODE, "default|threads|prohibited|exclusive", 0,
     "Who may use it, by its compute mode", 0},
    {"mig", OPT_MIG, "off|on", 0, "Whether it is in MIG mode, whoever uses it", 0},
    {0},
};

static const struct argp_option remove_options[] = {
    {"force", OPT_FORCE, NULL, 0,
     "Also while programs use it or hold a part of it, or when that can't be told", 0},
    {0},
};

static void sim_parse_gpus(struct sim *sim, const char *arg, struct argp_state *state)
{
    uint64_t count;

    if (parse_u64(arg, &count) < 0 || count < 1 || count > SIM_MAX_GPUS)
        argp_error(state, "--gpus: \"%s\" is not a number from 1 to %d", arg, SIM_MAX_GPUS);
    sim->gpu_count = (unsigned)count;
}

static void parse_model(struct sim *sim, const char *arg, struct argp_state *state)
{
    if (!*arg || strlen(arg) >= sizeof(sim->gpu.model))
        argp_error(state, "--model: a name of 1 to %zu bytes is needed",
                   sizeof(sim->gpu.model) - 1);
    COPY_TEXT(sim->gpu.model, arg);
}

static void parse_memory(const char *option, const char *arg, uint64_t *ret_bytes,
                         struct argp_state *state)
{
    const char *wrong = sim_config_read_amount(arg, ret_bytes);

    if (wrong)
        argp_error(state, "%s: \"%s\" is %s", option, arg, wrong);
}

static void parse_sms(struct sim *sim, const char *arg, struct argp_state *state)
{
    uint64_t count;

    if (parse_u64(arg, &count) < 0 || count < 1 || count > 1024)
        argp_error(state, "--sms: \"%s\" is not a number from 1 to 1024", arg);
    sim->gpu.multiprocessors = (unsigned)count;
}

static void parse_numa(struct sim *sim, char *arg, struct argp_state *state)
{
    char *rest, *word;
    uint64_t node;

    sim->numa_count = 0;
    for (word = strtok_r(arg, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (parse_u64(word, &node) < 0 || node > 1023)
            argp_error(state, "--numa: \"%s\" is not a node's number", word);
        if (sim->numa_count == SIM_MAX_GPUS)
            argp_error(state, "--numa: more than %d nodes", SIM_MAX_GPUS);
        sim->numa[sim->numa_count++] = (int)node;
    }
    if (!sim->numa_count)
        argp_error(state, "--numa: no node given");
}

static void parse_capability(struct sim *sim, const char *arg, struct argp_state *state)
{
    char left;

    if (sscanf(arg, "%2u.%1u%c", &sim->gpu.compute_major, &sim->gpu.compute_minor, &left) != 2 ||
        !sim->gpu.compute_major)
        argp_error(state, "--compute-capability: \"%s\" is not of the form 8.0", arg);
}

/* As in a configuration file. */
static void parse_time(const char *option, const char *arg, int64_t min_ns, int64_t *ret_ns,
                       struct argp_state *state)
{
    const char *wrong = sim_parse_duration(arg, ret_ns);

    if (wrong)
        argp_error(state, "%s: \"%s\": %s", option, arg, wrong);
    if (*ret_ns < min_ns)
        argp_error(state, "%s: \"%s\" is less than %lldus", option, arg,
                   (long long)(min_ns / NS_PER_US));
}

static unsigned parse_word(const char *option, const char *arg, const char *const *words,
                           size_t count, struct argp_state *state)
{
    char known[128];

    for (unsigned i = 0; i < count; i++) {
        if (strcmp(words[i], arg) == 0)
            return i;
    }
    (void)snprintf(known, sizeof(known), "%s", words[0]);
    for (unsigned i = 1; i < count; i++)
        (void)snprintf(known + strlen(known), sizeof(known) - strlen(known), ", %s", words[i]);
    argp_error(state, "%s: \"%s\" is none of %s", option, arg, known);
    return 0;
}

static uint64_t parse_number(const char *option, const char *arg, struct argp_state *state)
{
    uint64_t number = 0;

    if (parse_u64(arg, &number) < 0 || number > INT32_MAX)
        argp_error(state, "%s: \"%s\" is not a number", option, arg);
    return number;
}

/* In the order of NVML's recovery actions. */
static const char *const action_words[] = {"none", "reset", "reboot", "drain-p2p",
                                           "drain-and-reset"};
static const char *const compute_words[] = {"default", "threads", "prohibited", "exclusive"};
static const char *const mig_words[] = {"off", "on"};
static const char *const ecc_words[] = {"corrected", "uncorrected"};

static error_t parse_fault(struct sim *sim, int key, char *arg, struct argp_state *state)
{
    struct sim_fault *fault = &sim->fault;

    switch (key) {
    case OPT_GPU:
        sim->fault_gpu = (unsigned)parse_number("--gpu", arg, state);
        return 0;
    case OPT_XID:
        fault->xid = parse_number("--xid", arg, state);
        fault->has_xid = true;
        return 0;
    case OPT_ECC:
        if (parse_word("--ecc", arg, ecc_words, ARRAY_SIZE(ecc_words), state))
            fault->uncorrected++;
        else
            fault->corrected++;
        return 0;
    case OPT_STATE:
        fault->condition =
            parse_word("--state", arg, sim_condition_words, ARRAY_SIZE(sim_condition_words), state);
        fault->has_condition = true;
        return 0;
    case OPT_ACTION:
        fault->action = parse_word("--action", arg, action_words, ARRAY_SIZE(action_words), state);
        fault->has_action = true;
        return 0;
    case OPT_COMPUTE_MODE:
        fault->compute_mode =
            parse_word("--compute-mode", arg, compute_words, ARRAY_SIZE(compute_words), state);
        fault->has_compute_mode = true;
        return 0;
    case OPT_MIG:
        fault->mig = parse_word("--mig", arg, mig_words, ARRAY_SIZE(mig_words), state);
        fault->has_mig = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void parse_driver(struct sim *sim, char *arg, struct argp_state *state)
{
    char *value = strchr(arg, '=');
    const char *wrong;

    if (!value)
        argp_error(state, "--driver: \"%s\" is not of the form KEY=VALUE", arg);
    *value++ = '\0';
    wrong = sim_driver_set(&sim->driver, arg, value);
    if (wrong)
        argp_error(state, "--driver: %s=%s: %s", arg, value, wrong);
}

static error_t parse_description(struct sim *sim, int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case OPT_GPUS:
        sim_parse_gpus(sim, arg, state);
        break;
    case OPT_MODEL:
        parse_model(sim, arg, state);
        break;
    case OPT_MEMORY:
        parse_memory("--memory", arg, &sim->gpu.memory_bytes, state);
        break;
    case OPT_CONTEXT:
        parse_memory("--context", arg, &sim->gpu.context_bytes, state);
        break;
    case OPT_SMS:
        parse_sms(sim, arg, state);
        break;
    case OPT_NUMA:
        parse_numa(sim, arg, state);
        break;
    case OPT_CAPABILITY:
        parse_capability(sim, arg, state);
        break;
    case OPT_SLICE:
        parse_time("--slice", arg, SIM_SLICE_MIN_NS, &sim->gpu.slice_ns, state);
        break;
    case OPT_DRIVER:
        parse_driver(sim, arg, state);
        break;
    case OPT_SWITCH:
        parse_time("--switch", arg, 0, &sim->gpu.switch_ns, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    sim->described = true;
    return 0;
}

static error_t sim_parse_option(int key, char *arg, struct argp_state *state)
{
    struct sim *sim = state->input;

    switch (key) {
    case OPT_CONFIG:
        sim->config = arg;
        return 0;
    case OPT_FORCE:
        sim->force = true;
        return 0;
    case OPT_JSON:
        sim->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (sim->path)
            argp_error(state, "\"%s\" is too much; one PATH is enough", arg);
        sim->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (sim->config && sim->described)
            argp_error(state, "--config: the file says everything; leave the other options out");
        if (sim->numa_count > sim->gpu_count)
            argp_error(state, "--numa: more nodes than GPUs, of which --gpus says the number");
        if (sim_context_takes_all(&sim->gpu))
            argp_error(
                state,
                "--context: it would leave nothing of the GPU's memory, which --memory says");
        return 0;
    default:
        if (parse_fault(sim, key, arg, state) == 0)
            return 0;
        return parse_description(sim, key, arg, state);
    }
}

/* The GPUs are divided among the nodes in order: 0,1 puts the first half on 0. */
static void describe(const struct sim *sim, struct sim_spec *spec)
{
    spec->driver = sim->driver;
    spec->gpu_count = sim->gpu_count;
    for (unsigned i = 0; i < sim->gpu_count; i++) {
        spec->gpus[i] = sim->gpu;
        if (sim->numa_count)
            spec->gpus[i].numa_node = sim->numa[i * sim->numa_count / sim->gpu_count];
    }
}

/* For a shell, which may be told to evaluate it. */
static void print_export(const char *path)
{
    bool plain = true;

    for (const char *at = path; *at; at++)
        plain &= isalnum((unsigned char)*at) || strchr("/._+-,:@%=", *at);
    if (plain) {
        (void)printf("export HAMI_SIM=%s\n", path);
        return;
    }
    (void)fputs("export HAMI_SIM='", stdout);
    for (const char *at = path; *at; at++) {
        if (*at == '\'')
            (void)fputs("'\\''", stdout);
        else
            (void)fputc(*at, stdout);
    }
    (void)fputs("'\n", stdout);
}

static int create(const struct sim *sim, const char *path, struct error *err)
{
    AUTOFREE struct sim_spec *spec = calloc(1, sizeof(*spec));
    int r;

    if (!spec)
        return error_set(err, -ENOMEM, "out of memory");
    if (sim->config) {
        r = sim_config_load(sim->config, spec, err);
        if (r < 0)
            return r;
    } else {
        describe(sim, spec);
    }

    sim_spec_defaults(spec);
    r = sim_machine_create(path, spec, err);
    if (r == -EEXIST && sim_machine_is_one(path))
        return error_set(
            err, r, "there is already a simulated machine at %s; hamictl sim remove removes it",
            path);
    if (r == -EEXIST)
        return error_set(err, r, "there is already something at %s, which is no simulated machine",
                         path);
    if (r < 0)
        return r;

    if (sim->path)
        print_export(path);
    return 0;
}

static int show(const struct sim *sim, const char *path, struct error *err)
{
    AUTOFREE struct sim_view *view = malloc(sizeof(*view));
    struct strbuf text = STRBUF_INIT(TEXT_MAX);
    int r;

    if (!view)
        return error_set(err, -ENOMEM, "out of memory");
    r = sim_machine_view(path, view, err);
    if (r < 0)
        return r;

    if (sim->json)
        sim_print_json(&text, path, view);
    else
        sim_print_tables(&text, path, view);
    if (!text.failed)
        (void)fputs(strbuf_text(&text), stdout);
    r = text.failed ? error_set(err, -ENOMEM, "out of memory") : 0;
    strbuf_deinit(&text);
    return r;
}

static bool is_a_fault(const struct sim_fault *fault)
{
    return fault->has_condition || fault->corrected || fault->uncorrected || fault->has_action ||
           fault->has_xid || fault->has_compute_mode || fault->has_mig;
}

static const char *lacks_fault(const struct sim *sim)
{
    return is_a_fault(&sim->fault) ? NULL
                                   : "say what befalls the GPU: --xid, --ecc, --state, --action, "
                                     "--compute-mode or --mig";
}

static int fault_machine(const struct sim *sim, const char *path, struct error *err)
{
    return sim_machine_fault(path, sim->fault_gpu, &sim->fault, err);
}

/* If the machine was named by a link, that leads nowhere now, and would stand in the way of another
 * machine. */
static int remove_link(const struct sim *sim, const char *path, struct error *err)
{
    const char *named = sim->path ? sim->path : getenv("HAMI_SIM");
    struct stat st;

    if (!named || lstat(named, &st) < 0 || !S_ISLNK(st.st_mode) || unlink(named) == 0)
        return 0;
    return error_set(err, -errno, "%s is removed, but not the link %s: %s", path, named,
                     strerror(errno));
}

/* What hamictl run keeps for this machine goes with it. */
static int remove_machine(const struct sim *sim, const char *path, struct error *err)
{
    char state[PATH_MAX];
    int len, r;

    len = snprintf(state, sizeof(state), "%s.run", path);
    if (len < 0 || (size_t)len >= sizeof(state))
        return error_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
    if (!sim->force) {
        r = registry_check_unused(state, err);
        if (r < 0)
            return error_wrap(err, r, "cannot remove %s", path);
    }

    r = sim_machine_remove(path, sim->force, err);
    if (r < 0)
        return r;
    registry_remove(state);
    return remove_link(sim, path, err);
}

/* clang-format off */
static const struct verb verbs[] = {
    {
        .name = "hamictl sim create",
        .argp = {
            .options = create_options,
            .parser = sim_parse_option,
            .children = options_help,
            .args_doc = "[PATH]",
            .doc = "Make a simulated machine, in a state file at PATH or else at $HAMI_SIM.\v"
                   "Every process that finds HAMI_SIM=PATH in its environment and loads the "
                   "simulated driver uses this machine; hamictl run sees to the latter.",
        },
        .act = create,
    },
    {
        .name = "hamictl sim show",
        .argp = {
            .options = show_options,
            .parser = sim_parse_option,
            .children = options_help,
            .args_doc = "[PATH]",
            .doc = "Show the machine at PATH, or else at $HAMI_SIM, and what its processes use, by "
                   "its own count.",
        },
        .act = show,
    },
    {
        .name = "hamictl sim fault",
        .argp = {
            .options = fault_options,
            .parser = sim_parse_option,
            .children = options_help,
            .args_doc = "[PATH]",
            .doc = "Let an error befall a GPU of the machine at PATH, or else at $HAMI_SIM, as NVML "
                   "tells of it.\vPrograms that use the GPU go on.",
        },
        .lacks = lacks_fault,
        .act = fault_machine,
    },
    {
        .name = "hamictl sim remove",
        .argp = {
            .options = remove_options,
            .parser = sim_parse_option,
            .children = options_help,
            .args_doc = "[PATH]",
            .doc = "Remove the machine at PATH, or else at $HAMI_SIM, and what hamictl run kept "
                   "for it.",
        },
        .act = remove_machine,
    },
};
/* clang-format on */

static const char *sim_word_of(const struct verb *verb)
{
    return strrchr(verb->name, ' ') + 1;
}

/* Empty if nothing says which. */
static int find_path(const struct sim *sim, char ret_path[PATH_MAX], struct error *err)
{
    return sim->path ? paths_resolve(sim->path, ret_path, err) : paths_find_machine(ret_path, err);
}

static int sim_fail(const struct verb *verb, const char *text, int code)
{
    (void)fprintf(stderr, "%s: %s\n", verb->name, text);
    return code;
}

static int sim_call(const struct verb *verb, int argc, char **argv)
{
    struct sim sim = {.gpu_count = 1};
    struct error err = ERROR_INIT;
    const char *lacks;
    char path[PATH_MAX];
    int r;

    sim_driver_init(&sim.driver);
    sim_gpu_init(&sim.gpu);
    argv[0] = (char *)verb->name;
    if (argp_parse(&verb->argp, argc, argv, 0, NULL, &sim) != 0)
        return CTL_EXIT_USAGE;
    lacks = verb->lacks ? verb->lacks(&sim) : NULL;
    if (lacks)
        return sim_fail(verb, lacks, CTL_EXIT_USAGE);

    r = find_path(&sim, path, &err);
    if (r == 0 && !*path)
        return sim_fail(verb, "which machine? Give a PATH, or set HAMI_SIM", CTL_EXIT_USAGE);
    if (r == 0)
        r = verb->act(&sim, path, &err);
    return r == 0 ? 0 : sim_fail(verb, err.text, CTL_EXIT_FAILURE);
}

static error_t parse_verb(int key, char *arg, struct argp_state *state)
{
    int *position = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        *position = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "say what to do: create, show, fault or remove");
        return 0;
    default:
        (void)arg;
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .parser = parse_verb,
    .children = options_help,
    .args_doc = "create [OPTION...] [PATH]\nshow [--json] [PATH]\nfault [OPTION...] [PATH]\n"
                "remove [--force] [PATH]",
    .doc = "Make, show, harm and remove a simulated machine with GPUs.\v"
           "\"hamictl sim create --help\" and so on say more.",
};

int sim_main(int argc, char **argv)
{
    int position = 0;

    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &position) != 0)
        return CTL_EXIT_USAGE;

    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (strcmp(argv[position], sim_word_of(&verbs[i])) == 0)
            return sim_call(&verbs[i], argc - position, argv + position);
    }
    (void)fprintf(stderr, "hamictl sim: \"%s\" is none of create, show, fault and remove\n",
                  argv[position]);
    return CTL_EXIT_USAGE;
}

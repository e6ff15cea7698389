/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/sim_config.h"

#include <ctype.h>
#include <cyaml/cyaml.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/util.h"
#include "ctl/amounts.h"

#define FILE_MAX (64 * KIB)
#define MEMORY_MAX (1024 * 1024 * GIB) /* more is a slip of the finger */

/* As written: numbers and amounts are read by our own rules, so that their errors read like ours.
 */
struct gpu {
    char *count, *model, *uuid, *memory, *context, *multiprocessors, *numa, *compute, *slice,
        *change;
};

/* The driver's options, by the names that sim_driver_set() knows, in the order of the fields. */
struct driver {
    char *captures, *lost_captures, *pids, *stale_handles, *loading, *load_waits, *heaps, *events,
        *recovery_action, *deferred_arrays, *multicast, *host_memory, *graph_places, *idle_streams,
        *context_time, *granule, *graph_node, *stream, *event_resolution, *queues, *clock_drift;
};

struct document {
    struct driver *driver;
    struct gpu *gpus;
    unsigned gpus_count;
};

#define TEXT(key, member) CYAML_FIELD_STRING_PTR(key, OPTIONAL, struct gpu, member, 0, 128)
#define OPTION(key, member) CYAML_FIELD_STRING_PTR(key, OPTIONAL, struct driver, member, 0, 128)
#define OPTIONAL (CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL)
#define MAY_BE_EMPTY (OPTIONAL | CYAML_FLAG_POINTER_NULL)

static const cyaml_schema_field_t gpu_fields[] = {
    TEXT("count", count),   TEXT("model", model),     TEXT("uuid", uuid),
    TEXT("memory", memory), TEXT("context", context), TEXT("multiprocessors", multiprocessors),
    TEXT("numa", numa),     TEXT("compute", compute), TEXT("slice", slice),
    TEXT("switch", change), CYAML_FIELD_END,
};

static const cyaml_schema_value_t gpu_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct gpu, gpu_fields),
};

static const cyaml_schema_field_t driver_fields[] = {
    OPTION("captures", captures),
    OPTION("lost-captures", lost_captures),
    OPTION("pids", pids),
    OPTION("stale-handles", stale_handles),
    OPTION("loading", loading),
    OPTION("load-waits", load_waits),
    OPTION("heaps", heaps),
    OPTION("events", events),
    OPTION("recovery-action", recovery_action),
    OPTION("deferred-arrays", deferred_arrays),
    OPTION("multicast", multicast),
    OPTION("host-memory", host_memory),
    OPTION("graph-places", graph_places),
    OPTION("idle-streams", idle_streams),
    OPTION("context-time", context_time),
    OPTION("granule", granule),
    OPTION("graph-node", graph_node),
    OPTION("stream", stream),
    OPTION("event-resolution", event_resolution),
    OPTION("queues", queues),
    OPTION("clock-drift", clock_drift),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t document_fields[] = {
    CYAML_FIELD_MAPPING_PTR("driver", MAY_BE_EMPTY, struct document, driver, driver_fields),
    CYAML_FIELD_SEQUENCE("gpus", MAY_BE_EMPTY, struct document, gpus, &gpu_value, 0, SIM_MAX_GPUS),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t document_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct document, document_fields),
};

/* Where a node of the document stands; 1:1 when that is not known. */
struct mark {
    unsigned line, column;
};

static struct mark mark_of(yaml_mark_t at)
{
    return (struct mark){.line = (unsigned)at.line + 1, .column = (unsigned)at.column + 1};
}

/* Reading with libyaml alone: the syntax, and where things stand. */

static int read_syntax(const char *name, const char *text, size_t len, yaml_document_t *ret_tree,
                       struct error *err)
{
    yaml_parser_t parser;
    struct mark mark;
    int ok;

    if (!yaml_parser_initialize(&parser))
        return error_set(err, -ENOMEM, "%s: no memory", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    ok = yaml_parser_load(&parser, ret_tree);
    if (!ok) {
        mark = mark_of(parser.problem_mark);
        (void)error_set(err, -EINVAL, "%s:%u:%u: %s", name, mark.line, mark.column,
                        parser.problem ? parser.problem : "not YAML");
    }
    yaml_parser_delete(&parser);
    return ok ? 0 : -EINVAL;
}

/* The key of this name in a mapping, and its value. */
static const yaml_node_t *find_key(yaml_document_t *tree, const yaml_node_t *mapping,
                                   const char *key, const yaml_node_t **ret_value)
{
    const yaml_node_pair_t *pair;

    if (!mapping || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    for (pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *node = yaml_document_get_node(tree, pair->key);

        if (!node || node->type != YAML_SCALAR_NODE)
            continue;
        if (strcmp((const char *)node->data.scalar.value, key) != 0)
            continue;
        *ret_value = yaml_document_get_node(tree, pair->value);
        return node;
    }
    return NULL;
}

static const yaml_node_t *find_gpu(yaml_document_t *tree, unsigned index)
{
    const yaml_node_t *gpus = NULL;

    if (!find_key(tree, yaml_document_get_root_node(tree), "gpus", &gpus) || !gpus ||
        gpus->type != YAML_SEQUENCE_NODE)
        return NULL;
    if (index >= (size_t)(gpus->data.sequence.items.top - gpus->data.sequence.items.start))
        return NULL;
    return yaml_document_get_node(tree, gpus->data.sequence.items.start[index]);
}

static const yaml_node_t *find_driver(yaml_document_t *tree)
{
    const yaml_node_t *driver = NULL;

    (void)find_key(tree, yaml_document_get_root_node(tree), "driver", &driver);
    return driver;
}

static struct mark find_value(yaml_document_t *tree, const yaml_node_t *mapping, const char *key)
{
    const yaml_node_t *value = NULL;

    if (!find_key(tree, mapping, key, &value) || !value)
        return (struct mark){.line = 1, .column = 1};
    return mark_of(value->start_mark);
}

static bool is_field(const cyaml_schema_field_t *fields, const char *key)
{
    for (const cyaml_schema_field_t *field = fields; field->key; field++) {
        if (strcmp(field->key, key) == 0)
            return true;
    }
    return false;
}

/* libcyaml tells an unknown key by the place of what came before it. */
static struct mark find_unknown(yaml_document_t *tree, const char *key)
{
    const yaml_node_t *node, *value;

    node = find_key(tree, yaml_document_get_root_node(tree), key, &value);
    if (!node && !is_field(driver_fields, key))
        node = find_key(tree, find_driver(tree), key, &value);
    for (unsigned i = 0; !node && !is_field(gpu_fields, key) && i < SIM_MAX_GPUS; i++)
        node = find_key(tree, find_gpu(tree, i), key, &value);
    return node ? mark_of(node->start_mark) : (struct mark){.line = 1, .column = 1};
}

/* Reading with libcyaml: which keys there may be, and of what form. */

/*
 * libcyaml reports by its log: what is wrong, the word "Backtrace", then a line for each level
 * around it, innermost first.
 */
struct report {
    char what[160];
    char path[160];
    struct mark mark;
};

static void prepend(char *path, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void prepend(char *path, size_t size, const char *fmt, ...)
{
    char inner[160];
    va_list args;
    size_t len;

    copy_text(inner, sizeof(inner), path);
    va_start(args, fmt);
    (void)vsnprintf(path, size, fmt, args);
    va_end(args);
    len = strlen(path);
    (void)snprintf(path + len, size - len, "%s%s", inner[0] && inner[0] != '[' ? "." : "", inner);
}

static void keep_level(struct report *report, const char *line)
{
    const char *mark = strstr(line, "(line: ");
    char field[32];
    unsigned entry;

    if (sscanf(line, " in mapping field '%31[^']'", field) == 1)
        prepend(report->path, sizeof(report->path), "%s", field);
    else if (sscanf(line, " in sequence entry '%u'", &entry) == 1)
        prepend(report->path, sizeof(report->path), "[%u]", entry ? entry - 1 : 0);
    if (mark && !report->mark.line)
        (void)sscanf(mark, "(line: %u, column: %u", &report->mark.line, &report->mark.column);
}

static void __attribute__((format(printf, 3, 0)))
keep_report(cyaml_log_t level, void *ctx, const char *fmt, va_list args)
{
    static const char prefix[] = "Load: ";
    struct report *report = ctx;
    char line[256];

    (void)level;
    (void)vsnprintf(line, sizeof(line), fmt, args);
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, prefix, strlen(prefix)) != 0)
        keep_level(report, line);
    else if (!report->what[0] && !strstr(line, "Backtrace"))
        COPY_TEXT(report->what, line + strlen(prefix));
}

static const cyaml_config_t quiet = {
    .log_fn = keep_report,
    .mem_fn = cyaml_mem,
    .log_level = CYAML_LOG_WARNING,
    .flags = CYAML_CFG_NO_ALIAS,
};

/* The document is NULL where the file says nothing. */
static int read_document(const char *name, const char *text, size_t len, yaml_document_t *tree,
                         struct document **ret_document, struct error *err)
{
    static const char unknown[] = "Unexpected key: ";
    struct report report = {0};
    cyaml_config_t config = quiet;
    bool is_unknown;
    cyaml_err_t r;

    config.log_ctx = &report;
    r = cyaml_load_data((const uint8_t *)text, len, &config, &document_value,
                        (cyaml_data_t **)ret_document, NULL);
    if (r == CYAML_OK)
        return 0;
    is_unknown = strncmp(report.what, unknown, strlen(unknown)) == 0;
    if (is_unknown)
        report.mark = find_unknown(tree, report.what + strlen(unknown));
    if (!report.mark.line)
        report.mark = (struct mark){.line = 1, .column = 1};
    return error_set(err, r == CYAML_ERR_OOM ? -ENOMEM : -EINVAL, "%s:%u:%u: %s%s%s%s", name,
                     report.mark.line, report.mark.column, report.path, report.path[0] ? ": " : "",
                     report.what[0] ? report.what : cyaml_strerror(r),
                     is_unknown ? "; hamictl-sim(1) lists them" : "");
}

/* Values. Each returns NULL, or what they should have been. */

/* `range` is what to say of a number that is not from min to max. */
static const char *read_number(const char *text, uint64_t min, uint64_t max, const char *range,
                               uint64_t *ret_value)
{
    uint64_t value = 0;
    const int r = parse_u64(text[0] == '-' ? text + 1 : text, &value);

    if (r < 0 && r != -ERANGE)
        return "not a whole number";
    if (r < 0 || text[0] == '-')
        return range;
    if (value < min || value > max)
        return range;
    *ret_value = value;
    return NULL;
}

const char *sim_config_read_amount(const char *text, uint64_t *ret_bytes)
{
    uint64_t bytes = UINT64_MAX;
    const int r = parse_bytes(text, &bytes);

    if (r < 0 && r != -ERANGE)
        return "not an amount of memory, as 80Gi";
    if (bytes < MIB && amount_lacks_unit(text))
        return "less than 1 MiB; is the unit missing, as in 80Gi?";
    if (bytes < MIB || bytes > MEMORY_MAX)
        return "out of range, 1Mi to 1Pi";
    *ret_bytes = bytes;
    return NULL;
}

static const char *read_compute(const char *text, struct sim_gpu_spec *gpu)
{
    unsigned major, minor;
    char rest;

    if (sscanf(text, "%2u.%1u%c", &major, &minor, &rest) != 2 || text[0] < '1' || text[0] > '9')
        return "not a compute capability, as \"9.0\"";
    gpu->compute_major = major;
    gpu->compute_minor = minor;
    return NULL;
}

static bool is_uuid(const char *text)
{
    static const char form[] = "GPU-00000000-0000-0000-0000-000000000000";

    for (size_t i = 0; i < sizeof(form); i++) {
        if (form[i] == '0' ? !isxdigit((unsigned char)text[i]) : text[i] != form[i])
            return false;
    }
    return true;
}

/* Its letters are written small, as NVML writes them: programs compare the text. */
static const char *read_uuid(const char *text, struct sim_gpu_spec *gpu)
{
    const size_t prefix = strlen("GPU-");

    if (!is_uuid(text))
        return "not a UUID, as GPU-00000000-0000-0000-0000-000000000000";
    COPY_TEXT(gpu->uuid, text);
    for (char *at = gpu->uuid + prefix; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    return NULL;
}

static const char *read_model(const char *text, struct sim_gpu_spec *gpu)
{
    if (!text[0] || strlen(text) >= sizeof(gpu->model))
        return "empty, or longer than 95 bytes";
    COPY_TEXT(gpu->model, text);
    return NULL;
}

static const char *read_slice(const char *text, struct sim_gpu_spec *gpu)
{
    const char *wrong = sim_parse_duration(text, &gpu->slice_ns);

    if (!wrong && gpu->slice_ns < SIM_SLICE_MIN_NS)
        return "out of range, at least 10us";
    return wrong;
}

static const char *read_multiprocessors(const char *text, struct sim_gpu_spec *gpu)
{
    uint64_t value = gpu->multiprocessors;
    const char *wrong = read_number(text, 1, 1024, "out of range, 1 to 1024", &value);

    gpu->multiprocessors = (unsigned)value;
    return wrong;
}

static const char *read_numa(const char *text, struct sim_gpu_spec *gpu)
{
    uint64_t node = 0;
    const char *wrong = read_number(text, 0, 1023, "out of range, 0 to 1023", &node);

    gpu->numa_node = (int)node;
    return wrong;
}

static const char *read_memory(const char *text, struct sim_gpu_spec *gpu)
{
    return sim_config_read_amount(text, &gpu->memory_bytes);
}

static const char *read_context(const char *text, struct sim_gpu_spec *gpu)
{
    return sim_config_read_amount(text, &gpu->context_bytes);
}

static const char *read_switch(const char *text, struct sim_gpu_spec *gpu)
{
    return sim_parse_duration(text, &gpu->switch_ns);
}

static const struct {
    const char *key;
    size_t member; /* of struct gpu */
    const char *(*read)(const char *text, struct sim_gpu_spec *gpu);
} readers[] = {
    {"model", offsetof(struct gpu, model), read_model},
    {"uuid", offsetof(struct gpu, uuid), read_uuid},
    {"memory", offsetof(struct gpu, memory), read_memory},
    {"context", offsetof(struct gpu, context), read_context},
    {"multiprocessors", offsetof(struct gpu, multiprocessors), read_multiprocessors},
    {"numa", offsetof(struct gpu, numa), read_numa},
    {"compute", offsetof(struct gpu, compute), read_compute},
    {"slice", offsetof(struct gpu, slice), read_slice},
    {"switch", offsetof(struct gpu, change), read_switch},
};

/* Where and in whose name values are read. */
struct reading {
    const char *name;
    yaml_document_t *tree;
    struct error *err;
};

static int refuse(const struct reading *reading, unsigned index, const char *key, const char *wrong)
{
    struct mark mark = find_value(reading->tree, find_gpu(reading->tree, index), key);

    return error_set(reading->err, -EINVAL, "%s:%u:%u: gpus[%u].%s: %s", reading->name, mark.line,
                     mark.column, index, key, wrong);
}

static int read_gpu(const struct reading *reading, unsigned index, const struct gpu *gpu,
                    struct sim_gpu_spec *ret_spec)
{
    struct sim_gpu_spec spec;

    sim_gpu_init(&spec);
    for (size_t i = 0; i < ARRAY_SIZE(readers); i++) {
        const char *text = *(char *const *)((const char *)gpu + readers[i].member);
        const char *wrong = text ? readers[i].read(text, &spec) : NULL;

        if (wrong)
            return refuse(reading, index, readers[i].key, wrong);
    }
    if (sim_context_takes_all(&spec))
        return refuse(reading, index, "context", "it would leave nothing of the memory");
    *ret_spec = spec;
    return 0;
}

static int read_count(const struct reading *reading, unsigned index, const struct gpu *gpu,
                      unsigned left, unsigned *ret_count)
{
    uint64_t count = 1;
    const char *range = "out of range, 1 to 16 GPUs in all";
    const char *wrong = gpu->count ? read_number(gpu->count, 1, left, range, &count) : NULL;

    if (!wrong && count > left)
        wrong = range;
    if (wrong)
        return refuse(reading, index, "count", wrong);
    if (gpu->uuid && count > 1)
        return refuse(reading, index, "uuid",
                      "each GPU needs one of its own, and count says more than one");
    *ret_count = (unsigned)count;
    return 0;
}

static bool is_taken(const struct sim_spec *spec, const char *uuid)
{
    for (unsigned i = 0; i < spec->gpu_count; i++) {
        if (uuid[0] && strcmp(spec->gpus[i].uuid, uuid) == 0)
            return true;
    }
    return false;
}

/* What a list without an element is, and no list is not. */
static int refuse_none(const struct reading *reading)
{
    const yaml_node_t *root = yaml_document_get_root_node(reading->tree);
    const struct mark mark = find_value(reading->tree, root, "gpus");

    return error_set(reading->err, -EINVAL, "%s:%u:%u: gpus: none; a machine has 1 to %d",
                     reading->name, mark.line, mark.column, SIM_MAX_GPUS);
}

static bool has_list(yaml_document_t *tree)
{
    const yaml_node_t *gpus = NULL;

    (void)find_key(tree, yaml_document_get_root_node(tree), "gpus", &gpus);
    return gpus && gpus->type == YAML_SEQUENCE_NODE;
}

static int read_gpus(const struct reading *reading, const struct document *document,
                     struct sim_spec *spec)
{
    if (!has_list(reading->tree)) { /* one, as of the command line */
        sim_gpu_init(&spec->gpus[0]);
        spec->gpu_count = 1;
        return 0;
    }
    if (!document->gpus_count)
        return refuse_none(reading);
    for (unsigned i = 0; i < document->gpus_count; i++) {
        struct sim_gpu_spec gpu;
        unsigned count = 0;
        int r;

        r = read_gpu(reading, i, &document->gpus[i], &gpu);
        if (r < 0)
            return r;
        r = read_count(reading, i, &document->gpus[i], SIM_MAX_GPUS - spec->gpu_count, &count);
        if (r < 0)
            return r;
        if (is_taken(spec, gpu.uuid))
            return refuse(reading, i, "uuid", "another GPU has it already");
        for (unsigned k = 0; k < count; k++)
            spec->gpus[spec->gpu_count++] = gpu;
    }
    return 0;
}

static int read_driver(const struct reading *reading, const struct driver *driver,
                       struct sim_driver_spec *spec)
{
    for (const cyaml_schema_field_t *field = driver_fields; driver && field->key; field++) {
        const char *text = *(char *const *)((const char *)driver + field->data_offset);
        const char *wrong = text ? sim_driver_set(spec, field->key, text) : NULL;
        struct mark mark;

        if (!wrong)
            continue;
        mark = find_value(reading->tree, find_driver(reading->tree), field->key);
        return error_set(reading->err, -EINVAL, "%s:%u:%u: driver.%s: %s", reading->name, mark.line,
                         mark.column, field->key, wrong);
    }
    return 0;
}

int sim_config_parse(const char *name, const char *text, size_t len, struct sim_spec *ret_spec,
                     struct error *err)
{
    static const struct document empty;
    struct document *document = NULL;
    struct sim_spec spec = {0};
    yaml_document_t tree;
    int r;

    r = read_syntax(name, text, len, &tree, err);
    if (r < 0)
        return r;
    r = read_document(name, text, len, &tree, &document, err);
    if (r == 0) {
        struct reading reading = {.name = name, .tree = &tree, .err = err};
        const struct document *read = document ? document : &empty;

        sim_driver_init(&spec.driver);
        r = read_driver(&reading, read->driver, &spec.driver);
        if (r == 0)
            r = read_gpus(&reading, read, &spec);
        (void)cyaml_free(&quiet, &document_value, document, 0);
    }
    yaml_document_delete(&tree);
    if (r < 0)
        return r;
    sim_spec_defaults(&spec);
    *ret_spec = spec;
    return 0;
}

int sim_config_load(const char *path, struct sim_spec *ret_spec, struct error *err)
{
    AUTOFREE char *text = malloc(FILE_MAX + 1);
    ssize_t len;

    if (!text)
        return error_set(err, -ENOMEM, "%s: no memory", path);
    len = file_read(path, text, FILE_MAX + 1);
    if (len == -EFBIG)
        return error_set(err, -EFBIG, "%s: more than 64 KiB", path);
    if (len < 0)
        return error_set(err, (int)len, "%s: %s", path, strerror((int)-len));
    return sim_config_parse(path, text, (size_t)len, ret_spec, err);
}

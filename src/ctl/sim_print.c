/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/sim_print.h"

#include <inttypes.h>

#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/table.h"

const char *const sim_condition_words[3] = {"ok", "lost", "hangs"};

static const char *state_of(const struct sim_gpu_view *gpu)
{
    return gpu->condition < ARRAY_SIZE(sim_condition_words) ? sim_condition_words[gpu->condition]
                                                            : "?";
}

static const struct table_column gpu_columns[] = {
    {"GPU", .right = true},
    {"UUID"},
    {"MODEL", .cut = true},
    {"MEMORY", .right = true},
    {"USED", .right = true},
    {"SMS", .right = true},
    {"COMPUTE", .right = true},
    {"NUMA", .right = true},
    {"STATE"},
    {"BUSY", .right = true},
};

static const struct table_column process_columns[] = {
    {"PID", .right = true},  {"GPU", .right = true},  {"USED", .right = true},
    {"PEAK", .right = true}, {"BUSY", .right = true}, {"LAUNCHES", .right = true},
};

static void add_size(struct table *table, uint64_t bytes)
{
    char size[CTL_SIZE_TEXT];

    table_add_cell(table, "%s", ctl_format_size(bytes, size));
}

static void add_seconds(struct table *table, int64_t ns)
{
    table_add_cell(table, "%.3f s", (double)ns / (double)NS_PER_S);
}

static void print_gpus(struct strbuf *text, const struct sim_view *view)
{
    struct table table;

    table_init(&table, gpu_columns, ARRAY_SIZE(gpu_columns));
    for (unsigned i = 0; i < view->gpu_count; i++) {
        const struct sim_gpu_spec *spec = &view->gpus[i].spec;

        table_add_row(&table);
        table_add_cell(&table, "%u", i);
        table_add_cell(&table, "%s", spec->uuid);
        table_add_cell(&table, "%s", spec->model);
        add_size(&table, spec->memory_bytes);
        add_size(&table, view->gpus[i].used_bytes);
        table_add_cell(&table, "%u", spec->multiprocessors);
        table_add_cell(&table, "%u.%u", spec->compute_major, spec->compute_minor);
        if (spec->numa_node >= 0)
            table_add_cell(&table, "%d", spec->numa_node);
        else
            table_add_cell(&table, "-");
        table_add_cell(&table, "%s%s", state_of(&view->gpus[i]),
                       view->gpus[i].mig ? " (MIG mode)" : "");
        add_seconds(&table, view->gpus[i].busy_ns);
    }
    table_finish(&table, text);
}

/* A line for each GPU that the process has touched. */
static void add_process(struct table *table, const struct sim_view *view, unsigned i)
{
    const struct sim_process_view *process = &view->processes[i];

    for (unsigned gpu = 0; gpu < view->gpu_count; gpu++) {
        if (!process->peak_bytes[gpu] && !process->launches[gpu])
            continue;
        table_add_row(table);
        table_add_cell(table, "%d", (int)process->pid);
        table_add_cell(table, "%u", gpu);
        add_size(table, process->used_bytes[gpu]);
        add_size(table, process->peak_bytes[gpu]);
        add_seconds(table, process->busy_ns[gpu]);
        table_add_cell(table, "%" PRIu64, process->launches[gpu]);
    }
}

void sim_print_tables(struct strbuf *text, const char *path, const struct sim_view *view)
{
    struct table table;

    strbuf_addf(text, "%s\n", path);
    print_gpus(text, view);
    strbuf_add(text, "\n");
    if (!view->process_count) {
        strbuf_add(text, "No process uses it.\n");
        return;
    }
    table_init(&table, process_columns, ARRAY_SIZE(process_columns));
    for (unsigned i = 0; i < view->process_count; i++)
        add_process(&table, view, i);
    table_finish(&table, text);
}

static void add_gpu_json(struct strbuf *text, const struct sim_view *view, unsigned i)
{
    const struct sim_gpu_spec *spec = &view->gpus[i].spec;

    strbuf_addf(text, "%s{\"index\":%u,\"uuid\":", i ? "," : "", i);
    strbuf_add_json(text, spec->uuid);
    strbuf_add(text, ",\"model\":");
    strbuf_add_json(text, spec->model);
    strbuf_addf(text, ",\"memory_bytes\":%" PRIu64 ",\"context_bytes\":%" PRIu64,
                spec->memory_bytes, spec->context_bytes);
    strbuf_addf(text, ",\"multiprocessors\":%u,\"compute_capability\":\"%u.%u\"",
                spec->multiprocessors, spec->compute_major, spec->compute_minor);
    if (spec->numa_node >= 0)
        strbuf_addf(text, ",\"numa_node\":%d", spec->numa_node);
    else
        strbuf_add(text, ",\"numa_node\":null");
    strbuf_addf(text, ",\"slice_ns\":%" PRId64 ",\"switch_ns\":%" PRId64, spec->slice_ns,
                spec->switch_ns);
    strbuf_addf(text, ",\"state\":\"%s\",\"mig\":%s", state_of(&view->gpus[i]),
                view->gpus[i].mig ? "true" : "false");
    strbuf_addf(text, ",\"used_bytes\":%" PRIu64 ",\"busy_ns\":%" PRId64 "}",
                view->gpus[i].used_bytes, view->gpus[i].busy_ns);
}

/* An array with a number for each GPU. */
static void add_array(struct strbuf *text, const char *key, const uint64_t *values, unsigned count)
{
    strbuf_addf(text, ",\"%s\":[", key);
    for (unsigned i = 0; i < count; i++)
        strbuf_addf(text, "%s%" PRIu64, i ? "," : "", values[i]);
    strbuf_add(text, "]");
}

static void add_process_json(struct strbuf *text, const struct sim_view *view, unsigned i)
{
    const struct sim_process_view *process = &view->processes[i];
    uint64_t busy_ns[SIM_MAX_GPUS];

    for (unsigned gpu = 0; gpu < view->gpu_count; gpu++)
        busy_ns[gpu] = (uint64_t)process->busy_ns[gpu];
    strbuf_addf(text, "%s{\"pid\":%d", i ? "," : "", (int)process->pid);
    add_array(text, "used_bytes", process->used_bytes, view->gpu_count);
    add_array(text, "peak_bytes", process->peak_bytes, view->gpu_count);
    add_array(text, "busy_ns", busy_ns, view->gpu_count);
    add_array(text, "launches", process->launches, view->gpu_count);
    strbuf_add(text, "}");
}

static void add_driver_json(struct strbuf *text, const struct sim_view *view)
{
    const char *key;
    char value[32];

    strbuf_add(text, "\"driver\":{");
    for (unsigned i = 0; sim_driver_option(&view->driver, i, &key, value, sizeof(value)); i++) {
        strbuf_add(text, i ? "," : "");
        strbuf_add_json(text, key);
        strbuf_add(text, ":");
        strbuf_add_json(text, value);
    }
    strbuf_add(text, "}");
}

void sim_print_json(struct strbuf *text, const char *path, const struct sim_view *view)
{
    strbuf_add(text, "{\"path\":");
    strbuf_add_json(text, path);
    strbuf_addf(text, ",\"now_ns\":%" PRId64 ",", view->now_ns);
    add_driver_json(text, view);
    strbuf_add(text, ",\"gpus\":[");
    for (unsigned i = 0; i < view->gpu_count; i++)
        add_gpu_json(text, view, i);
    strbuf_add(text, "],\"processes\":[");
    for (unsigned i = 0; i < view->process_count; i++)
        add_process_json(text, view, i);
    strbuf_add(text, "]}\n");
}

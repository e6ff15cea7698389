/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/top_print.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/region_print.h"
#include "ctl/table.h"

static const struct table_column device_columns[] = {
    {"GPU", .right = true},     {"UUID"},
    {"MODEL", .cut = true},     {"USED", .right = true},
    {"MEMORY", .right = true},  {"UTIL", .right = true},
    {"GRANTED", .right = true}, {"CORES", .right = true},
    {"TASKS", .right = true},
};

static const struct table_column holder_columns[] = {
    {"ID", .right = true},      {"PID", .right = true},     {"GPU", .right = true},
    {"USED", .right = true},    {"ON HOST", .right = true}, {"LIMIT", .right = true},
    {"REFUSED", .right = true}, {"CORES", .right = true},   {"WAITED", .right = true},
    {"LONGEST", .right = true}, {"KERNELS", .right = true}, {"GRAPHS", .right = true},
    {"OWN ns", .right = true},  {"PROCS", .right = true},   {"AGE", .right = true},
    {"COMMAND", .cut = true},
};

static void add_size(struct table *table, uint64_t bytes)
{
    char size[CTL_SIZE_TEXT];

    table_add_cell(table, "%s", ctl_format_size(bytes, size));
}

static void add_limit(struct table *table, uint64_t bytes)
{
    if (bytes)
        add_size(table, bytes);
    else
        table_add_cell(table, "-");
}

static void add_cores(struct table *table, unsigned cores)
{
    if (cores)
        table_add_cell(table, "%u%%", cores);
    else
        table_add_cell(table, "-");
}

static void add_number(struct table *table, uint64_t number)
{
    if (number)
        table_add_cell(table, "%" PRIu64, number);
    else
        table_add_cell(table, "-");
}

static void add_wait(struct table *table, uint64_t ns)
{
    if (ns)
        table_add_cell(table, "%.1fs", (double)ns / 1e9);
    else
        table_add_cell(table, "-");
}

static void add_age(struct table *table, int64_t age_s)
{
    if (age_s < 0)
        table_add_cell(table, "-");
    else if (age_s < 60)
        table_add_cell(table, "%" PRId64 "s", age_s);
    else if (age_s < 3600)
        table_add_cell(table, "%" PRId64 "m%02" PRId64 "s", age_s / 60, age_s % 60);
    else
        table_add_cell(table, "%" PRId64 "h%02" PRId64 "m", age_s / 3600, age_s / 60 % 60);
}

static void print_devices(struct strbuf *text, const struct snapshot *snapshot)
{
    const struct local *local = snapshot->local;
    struct table table;

    table_init(&table, device_columns, ARRAY_SIZE(device_columns));
    for (size_t i = 0; i < local->device_count; i++) {
        const struct nvml_status *status = &snapshot->statuses[i];
        const struct device *device = &local->devices[i];

        table_add_row(&table);
        table_add_cell(&table, "%u", device->index);
        table_add_cell(&table, "%s", *device->uuid ? device->uuid : "?");
        table_add_cell(&table, "%s%s", *device->model ? device->model : "?",
                       local->is_split[i] ? " (MIG mode)"
                       : device->healthy  ? ""
                                          : " (not healthy)");
        if (snapshot->has_status[i])
            add_size(&table, status->memory_used_bytes);
        else
            table_add_cell(&table, "?");
        if (device->memory_bytes)
            add_size(&table, device->memory_bytes);
        else
            table_add_cell(&table, "?");
        if (snapshot->has_status[i] && status->has_utilization)
            table_add_cell(&table, "%u%%", status->utilization_percent);
        else
            table_add_cell(&table, "?");
        add_limit(&table, device->used.memory_bytes);
        add_cores(&table, device->used.cores);
        table_add_cell(&table, "%u/%u", device->used.tasks, device->max_tasks);
    }
    table_finish(&table, text);
}

static uint64_t launches_of(const struct holder *holder)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < REGION_LAUNCH_KINDS; i++)
        sum += holder->launches[i];
    return sum;
}

static uint64_t own_ns_of(const struct holder *holder)
{
    uint64_t launches = launches_of(holder);

    return launches ? holder->own_ns / launches : 0;
}

static void print_holders(struct strbuf *text, const struct snapshot *snapshot)
{
    struct table table;

    table_init(&table, holder_columns, ARRAY_SIZE(holder_columns));
    for (size_t i = 0; i < snapshot->holder_count; i++) {
        const struct holder *holder = &snapshot->holders[i];

        table_add_row(&table);
        add_number(&table, holder->id);
        add_number(&table, (uint64_t)holder->pid);
        if (holder->device < snapshot->local->device_count)
            table_add_cell(&table, "%u", snapshot->local->devices[holder->device].index);
        else
            table_add_cell(&table, "gone");
        add_size(&table, holder->used_bytes);
        add_limit(&table, holder->spilled_bytes);
        add_limit(&table, holder->limit_bytes);
        add_number(&table, holder->refusals);
        if (holder->suspended)
            table_add_cell(&table, "suspended");
        else
            add_cores(&table, holder->cores);
        add_wait(&table, holder->throttled_ns);
        region_add_longest(&table, holder->longest_range);
        add_number(&table, launches_of(holder) - holder->launches[REGION_LAUNCH_GRAPH]);
        add_number(&table, holder->launches[REGION_LAUNCH_GRAPH]);
        add_number(&table, own_ns_of(holder));
        table_add_cell(&table, "%u", holder->processes);
        add_age(&table, holder->age_s);
        table_add_cell(&table, "%s", holder->command);
    }
    table_finish(&table, text);
}

void top_print_tables(struct strbuf *text, const struct snapshot *snapshot)
{
    print_devices(text, snapshot);
    strbuf_add(text, "\n");
    if (snapshot->holder_count)
        print_holders(text, snapshot);
    else
        strbuf_add(text, "Nobody holds or uses a GPU.\n");
}

static void add_json_text(struct strbuf *text, const char *key, const char *value)
{
    strbuf_addf(text, "\"%s\":", key);
    strbuf_add_json(text, value);
}

/* A number, or null when it is not known. */
static void add_json_number(struct strbuf *text, const char *key, bool known, uint64_t value)
{
    if (known)
        strbuf_addf(text, ",\"%s\":%" PRIu64, key, value);
    else
        strbuf_addf(text, ",\"%s\":null", key);
}

/* null if it is empty: a card that is lost tells nothing of itself. */
static void add_json_known(struct strbuf *text, const char *key, const char *value)
{
    if (*value)
        add_json_text(text, key, value);
    else
        strbuf_addf(text, "\"%s\":null", key);
}

static void print_device_json(struct strbuf *text, const struct snapshot *snapshot, size_t i)
{
    const struct device *device = &snapshot->local->devices[i];
    const struct nvml_status *status = &snapshot->statuses[i];
    bool known = snapshot->has_status[i];

    strbuf_addf(text, "%s{\"index\":%u,", i ? "," : "", device->index);
    add_json_known(text, "uuid", device->uuid);
    strbuf_add(text, ",");
    add_json_known(text, "model", device->model);
    add_json_number(text, "numa_node", device->numa_node >= 0, (uint64_t)device->numa_node);
    strbuf_addf(text, ",\"healthy\":%s", device->healthy ? "true" : "false");
    add_json_number(text, "memory_bytes", device->memory_bytes > 0, device->memory_bytes);
    add_json_number(text, "memory_used_bytes", known, status->memory_used_bytes);
    add_json_number(text, "utilization_percent", known && status->has_utilization,
                    status->utilization_percent);
    add_json_number(text, "granted_memory_bytes", true, device->used.memory_bytes);
    add_json_number(text, "granted_cores_percent", true, device->used.cores);
    add_json_number(text, "tasks", true, device->used.tasks);
    add_json_number(text, "max_tasks", true, device->max_tasks);
    strbuf_add(text, "}");
}

static void print_holder_json(struct strbuf *text, const struct snapshot *snapshot, size_t i)
{
    const struct holder *holder = &snapshot->holders[i];
    bool here = holder->device < snapshot->local->device_count;
    const struct device *device = here ? &snapshot->local->devices[holder->device] : NULL;

    strbuf_add(text, i ? ",{" : "{");
    add_json_text(text, "command", holder->command);
    add_json_number(text, "id", holder->id != 0, holder->id);
    add_json_number(text, "pid", holder->pid != 0, (uint64_t)holder->pid);
    add_json_number(text, "age_seconds", holder->age_s >= 0, (uint64_t)holder->age_s);
    add_json_number(text, "gpu_index", here, here ? device->index : 0);
    strbuf_add(text, ",");
    if (here)
        add_json_text(text, "gpu_uuid", device->uuid);
    else
        strbuf_add(text, "\"gpu_uuid\":null");
    add_json_number(text, "memory_used_bytes", true, holder->used_bytes);
    add_json_number(text, "memory_on_host_bytes", true, holder->spilled_bytes);
    add_json_number(text, "memory_limit_bytes", holder->limit_bytes != 0, holder->limit_bytes);
    add_json_number(text, "cores_percent", holder->cores != 0, holder->cores);
    strbuf_addf(text, ",\"suspended\":%s", holder->suspended ? "true" : "false");
    add_json_number(text, "processes", true, holder->processes);
    add_json_number(text, "refusals", true, holder->refusals);
    add_json_number(text, "throttled_ns", true, holder->throttled_ns);
    add_json_number(text, "kernels", true, holder->launches[REGION_LAUNCH_KERNEL]);
    add_json_number(text, "cooperative", true, holder->launches[REGION_LAUNCH_COOPERATIVE]);
    add_json_number(text, "graphs", true, holder->launches[REGION_LAUNCH_GRAPH]);
    add_json_number(text, "own_ns_per_launch", true, own_ns_of(holder));
    strbuf_add(text, ",\"refusals_by_reason\":{");
    for (unsigned k = 0; k < REGION_REFUSAL_REASONS; k++)
        strbuf_addf(text, "%s\"%s\":%" PRIu64, k ? "," : "", region_refusal_names[k],
                    holder->refused[k]);
    strbuf_add(text, "}");
    strbuf_add(text, "}");
}

void top_print_json(struct strbuf *text, const struct snapshot *snapshot)
{
    strbuf_add(text, "{");
    if (*snapshot->local->machine)
        add_json_text(text, "simulated_machine", snapshot->local->machine);
    else
        strbuf_add(text, "\"simulated_machine\":null");
    strbuf_add(text, ",\"gpus\":[");
    for (size_t i = 0; i < snapshot->local->device_count; i++)
        print_device_json(text, snapshot, i);
    strbuf_add(text, "],\"holders\":[");
    for (size_t i = 0; i < snapshot->holder_count; i++)
        print_holder_json(text, snapshot, i);
    strbuf_add(text, "]}\n");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/region_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/table.h"

static const struct table_column device_columns[] = {
    {"DEVICE", .right = true},  {"UUID"},
    {"USED", .right = true},    {"LIMIT", .right = true},
    {"CONTEXT", .right = true}, {"MODULE", .right = true},
    {"DATA", .right = true},    {"REFUSED", .right = true},
    {"CORES", .right = true},   {"BUSY", .right = true},
    {"WAITED", .right = true},  {"LAUNCHES", .right = true},
    {"LONGEST", .right = true},
};

static const struct table_column process_columns[] = {
    {"PID", .right = true},
    {"HOSTPID", .right = true},
    {"DEVICE", .right = true},
    {"USED", .right = true},
    {"KERNELS", .right = true},
    {"COOPERATIVE", .right = true},
    {"GRAPHS", .right = true},
    {"WAITED", .right = true},
    {"LAUNCHES", .right = true},
    {"OWN ns", .right = true},
    {"REFUSED"},
};

const char *const region_refusal_names[REGION_REFUSAL_REASONS] = {
    [REGION_REFUSAL_DATA] = "data",
    [REGION_REFUSAL_CONTEXT] = "contexts",
    [REGION_REFUSAL_CODE] = "code",
    [REGION_REFUSAL_IMPORT] = "imports",
    [REGION_REFUSAL_UNACCOUNTED] = "unaccounted",
};

int region_picture_read(struct region_picture *picture, const char *path, struct error *err)
{
    int r = region_view_read(path, &picture->view, err);

    if (r < 0)
        return r;
    picture->path = path;
    r = region_view_explained(path, &picture->view, picture->explained);
    return r < 0 ? error_set(err, r, "%s: %s", path, strerror(-r)) : 0;
}

void region_add_longest(struct table *table, unsigned range)
{
    static const unsigned ends_ms[] = REGION_WAIT_MS;

    if (!range)
        table_add_cell(table, "-");
    else if (range <= ARRAY_SIZE(ends_ms))
        table_add_cell(table, "<=%ums", ends_ms[range - 1]);
    else
        table_add_cell(table, ">%ums", ends_ms[ARRAY_SIZE(ends_ms) - 1]);
}

static void add_size(struct table *table, uint64_t bytes, bool none_is_0)
{
    char size[CTL_SIZE_TEXT];

    if (bytes || !none_is_0)
        table_add_cell(table, "%s", ctl_format_size(bytes, size));
    else
        table_add_cell(table, "-");
}

static void add_seconds(struct table *table, uint64_t ns)
{
    if (ns)
        table_add_cell(table, "%.3fs", (double)ns / (double)NS_PER_S);
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

/* The ranges that launches waited in, a line for each device that has any. */
static void print_waits(struct strbuf *text, const struct region_view *view)
{
    static const unsigned ends_ms[] = REGION_WAIT_MS;

    for (unsigned i = 0; i < view->device_count; i++) {
        const struct region_view_device *device = &view->devices[i];
        bool any = false;

        for (unsigned k = 0; k < REGION_WAITS; k++) {
            if (!device->waits[k])
                continue;
            strbuf_addf(text, any ? ", " : "device %u waited: ", i);
            strbuf_addf(text, "%s%ums %" PRIu64, k < ARRAY_SIZE(ends_ms) ? "<=" : ">",
                        ends_ms[MIN(k, ARRAY_SIZE(ends_ms) - 1)], device->waits[k]);
            any = true;
        }
        if (any)
            strbuf_add(text, "\n");
    }
}

static void print_devices(struct strbuf *text, const struct region_view *view)
{
    struct table table;

    table_init(&table, device_columns, ARRAY_SIZE(device_columns));
    for (unsigned i = 0; i < view->device_count; i++) {
        const struct region_view_device *device = &view->devices[i];

        table_add_row(&table);
        table_add_cell(&table, "%u", i);
        table_add_cell(&table, "%s", device->uuid);
        add_size(&table, device->used.total, false);
        add_size(&table, device->limit_bytes, true);
        add_size(&table, device->used.context, false);
        add_size(&table, device->used.module, false);
        add_size(&table, device->used.data, false);
        add_number(&table, device->refusals);
        add_number(&table, device->cores % 100);
        add_seconds(&table, (uint64_t)MAX(device->charged_ns, INT64_C(0)));
        add_seconds(&table, device->delayed_ns);
        add_number(&table, device->launches_delayed);
        region_add_longest(&table, region_view_longest(device));
    }
    table_finish(&table, text);
    print_waits(text, view);
}

/* "3 data, 1 code" */
static void add_refusals(struct table *table, const struct region_refusals *refusals)
{
    char cell[160];
    size_t used = 0;

    for (unsigned i = 0; i < REGION_REFUSAL_REASONS; i++) {
        uint32_t count = atomic_load(&refusals->by_reason[i]);

        if (count && used < sizeof(cell))
            used += (size_t)snprintf(cell + used, sizeof(cell) - used, "%s%" PRIu32 " %s",
                                     used ? ", " : "", count, region_refusal_names[i]);
    }
    table_add_cell(table, "%s", used ? cell : "-");
}

static bool has_refusals(const struct region_refusals *refusals)
{
    for (unsigned i = 0; i < REGION_REFUSAL_REASONS; i++) {
        if (atomic_load(&refusals->by_reason[i]))
            return true;
    }
    return false;
}

static void print_processes(struct strbuf *text, const struct region_picture *picture)
{
    const struct region_view *view = &picture->view;
    struct table table;

    table_init(&table, process_columns, ARRAY_SIZE(process_columns));
    for (unsigned i = 0; i < view->process_count; i++) {
        for (unsigned j = 0; j < view->device_count; j++) {
            const struct region_explain *explain = &picture->explained[i].launches[j];
            const struct region_refusals *refusals = &picture->explained[i].refusals[j];

            if (j && !view->processes[i].used[j].total && !region_launches(explain) &&
                !has_refusals(refusals))
                continue;
            table_add_row(&table);
            table_add_cell(&table, "%d", (int)view->processes[i].pid);
            add_number(&table, (uint64_t)view->processes[i].host_pid);
            table_add_cell(&table, "%u", j);
            add_size(&table, view->processes[i].used[j].total, false);
            for (unsigned k = 0; k < REGION_LAUNCH_KINDS; k++)
                add_number(&table, atomic_load(&explain->launches[k]));
            add_seconds(&table, atomic_load(&explain->throttled_ns));
            add_number(&table, atomic_load(&explain->throttled));
            add_number(&table, region_own_ns(explain));
            add_refusals(&table, refusals);
        }
    }
    table_finish(&table, text);
}

static const char *word_of(const struct region_view *view)
{
    if (view->recent_kernel < 0)
        return "blocked by a monitor";
    return view->utilization_switch ? "held to its share" : "share switched off";
}

void region_print_tables(struct strbuf *text, const struct region_picture *picture)
{
    const struct region_view *view = &picture->view;

    strbuf_addf(text, "%s: region %u.%u%s, priority %d", picture->path, view->major_version,
                view->minor_version, view->has_extension ? "" : " of HAMi-core", view->priority);
    if (view->ruled_by_file)
        strbuf_add(text, ", ruled by a limits file\n");
    else
        strbuf_addf(text, ", ruled by the environment: %s\n", word_of(view));
    print_devices(text, view);
    if (view->spilled_bytes)
        strbuf_addf(text, "%" PRIu64 " MiB of it live on the host: the card had no room for them\n",
                    view->spilled_bytes >> 20);
    if (view->unaccounted_refused || view->unaccounted_allowed)
        strbuf_addf(
            text, "%" PRIu64 " calls that are not accounted for were refused, %" PRIu64 " passed\n",
            view->unaccounted_refused, view->unaccounted_allowed);
    strbuf_add(text, "\n");
    if (view->process_count)
        print_processes(text, picture);
    else
        strbuf_add(text, "No process is using it.\n");
}

void region_list_begin(struct table *table)
{
    static const struct table_column columns[] = {
        {"REGION"},
        {"PROCESSES", .right = true},
        {"DEVICES", .right = true},
        {"USED", .right = true},
        {"WRONG"},
    };

    table_init(table, columns, ARRAY_SIZE(columns));
}

void region_list_add(struct table *table, const char *path, const struct region_picture *picture,
                     const char *wrong)
{
    const struct region_view *view = picture ? &picture->view : NULL;
    uint64_t used = 0;

    for (unsigned i = 0; view && i < view->device_count; i++)
        used += view->devices[i].used.total;
    table_add_row(table);
    table_add_cell(table, "%s", path);
    if (*wrong)
        table_add_cell(table, "-");
    else
        table_add_cell(table, "%u", view ? view->process_count : 0);
    add_number(table, view ? view->device_count : 0);
    add_size(table, used, true);
    table_add_cell(table, "%s", *wrong ? wrong : "-");
}

/* Null where nobody said or counted it. */
static void add_json_number(struct strbuf *text, const char *name, bool known, uint64_t number)
{
    if (known)
        strbuf_addf(text, ",\"%s\":%" PRIu64, name, number);
    else
        strbuf_addf(text, ",\"%s\":null", name);
}

static void add_json_memory(struct strbuf *text, const struct region_view_memory *memory)
{
    strbuf_addf(text,
                "\"used_bytes\":%" PRIu64 ",\"context_bytes\":%" PRIu64 ",\"module_bytes\":%" PRIu64
                ",\"data_bytes\":%" PRIu64,
                memory->total, memory->context, memory->module, memory->data);
}

static void print_device_json(struct strbuf *text, const struct region_view *view, unsigned i)
{
    const struct region_view_device *device = &view->devices[i];

    strbuf_add(text, i ? ",{\"uuid\":" : "{\"uuid\":");
    strbuf_add_json(text, device->uuid);
    strbuf_add(text, ",");
    add_json_memory(text, &device->used);
    add_json_number(text, "limit_bytes", device->limit_bytes != 0, device->limit_bytes);
    add_json_number(text, "cores_percent", device->cores != 0, device->cores);
    add_json_number(text, "refusals", view->has_extension, device->refusals);
    strbuf_addf(text,
                ",\"busy_ns\":%" PRId64 ",\"throttled_ns\":%" PRIu64
                ",\"throttled_launches\":%" PRIu64 ",\"waits\":[",
                device->charged_ns, device->delayed_ns, device->launches_delayed);
    for (unsigned k = 0; k < REGION_WAITS; k++)
        strbuf_addf(text, "%s%" PRIu64, k ? "," : "", device->waits[k]);
    strbuf_add(text, "]}");
}

static void print_explain_json(struct strbuf *text, const struct region_view_memory *memory,
                               const struct region_explain *explain,
                               const struct region_refusals *refusals)
{
    strbuf_add(text, "{");
    add_json_memory(text, memory);
    strbuf_addf(text,
                ",\"kernels\":%" PRIu64 ",\"cooperative\":%" PRIu64 ",\"graphs\":%" PRIu64
                ",\"throttled_launches\":%" PRIu64 ",\"throttled_ns\":%" PRIu64
                ",\"own_ns_per_launch\":%" PRIu64 ",\"refusals\":{",
                atomic_load(&explain->launches[REGION_LAUNCH_KERNEL]),
                atomic_load(&explain->launches[REGION_LAUNCH_COOPERATIVE]),
                atomic_load(&explain->launches[REGION_LAUNCH_GRAPH]),
                atomic_load(&explain->throttled), atomic_load(&explain->throttled_ns),
                region_own_ns(explain));
    for (unsigned i = 0; i < REGION_REFUSAL_REASONS; i++)
        strbuf_addf(text, "%s\"%s\":%" PRIu32, i ? "," : "", region_refusal_names[i],
                    atomic_load(&refusals->by_reason[i]));
    strbuf_add(text, "}}");
}

static void print_process_json(struct strbuf *text, const struct region_picture *picture,
                               unsigned i)
{
    const struct region_view_process *process = &picture->view.processes[i];

    strbuf_addf(text, "%s{\"slot\":%u,\"pid\":%d", i ? "," : "", process->slot, (int)process->pid);
    add_json_number(text, "host_pid", process->host_pid != 0, (uint64_t)process->host_pid);
    strbuf_add(text, ",\"devices\":[");
    for (unsigned j = 0; j < picture->view.device_count; j++) {
        strbuf_add(text, j ? "," : "");
        print_explain_json(text, &process->used[j], &picture->explained[i].launches[j],
                           &picture->explained[i].refusals[j]);
    }
    strbuf_add(text, "]}");
}

void region_print_json(struct strbuf *text, const struct region_picture *picture)
{
    const struct region_view *view = &picture->view;

    strbuf_add(text, "{\"path\":");
    strbuf_add_json(text, picture->path);
    strbuf_addf(text,
                ",\"version\":\"%u.%u\",\"priority\":%d,\"ruled_by_file\":%s,\"recent_kernel\":%d"
                ",\"utilization_switch\":%d",
                view->major_version, view->minor_version, view->priority,
                view->ruled_by_file ? "true" : "false", view->recent_kernel,
                view->utilization_switch);
    add_json_number(text, "on_host_bytes", view->has_extension, view->spilled_bytes);
    add_json_number(text, "imported_allocations", view->has_extension, view->imports);
    add_json_number(text, "last_kernel_time", view->last_kernel_time != 0, view->last_kernel_time);
    strbuf_add(text, ",\"devices\":[");
    for (unsigned i = 0; i < view->device_count; i++)
        print_device_json(text, view, i);
    strbuf_add(text, "],\"processes\":[");
    for (unsigned i = 0; i < view->process_count; i++)
        print_process_json(text, picture, i);
    strbuf_add(text, "]}");
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes a simulated machine for a test and tells what the simulator counts, as JSON.
 *
 *   judge create PATH GPUS MEMORY-BYTES SMS CONTEXT-BYTES [KEY=VALUE...]
 *       # options of the driver; switch=DURATION of each GPU
 *   judge view PATH
 *   judge watch PATH                         # as view, once for every line of standard input
 *   judge hold PATH
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simdriver/machine.h"
#include "simdriver/state.h"

static const char *set(struct sim_spec *spec, const char *key, const char *value)
{
    const char *wrong = NULL;

    if (strcmp(key, "switch") != 0)
        return sim_driver_set(&spec->driver, key, value);
    for (unsigned i = 0; i < spec->gpu_count && !wrong; i++)
        wrong = sim_parse_duration(value, &spec->gpus[i].switch_ns);
    return wrong;
}

static int create(char **argv)
{
    static struct sim_spec spec;
    struct error err = ERROR_INIT;
    const char *path = argv[2];

    sim_driver_init(&spec.driver);
    spec.gpu_count = (unsigned)strtoul(argv[3], NULL, 0);
    for (unsigned i = 0; i < spec.gpu_count && i < SIM_MAX_GPUS; i++) {
        sim_gpu_init(&spec.gpus[i]);
        spec.gpus[i].memory_bytes = strtoull(argv[4], NULL, 0);
        spec.gpus[i].multiprocessors = (unsigned)strtoul(argv[5], NULL, 0);
        spec.gpus[i].context_bytes = strtoull(argv[6], NULL, 0);
    }
    for (argv += 7; *argv; argv++) {
        char *value = strchr(*argv, '=');

        if (!value || (*value++ = '\0', set(&spec, *argv, value))) {
            fprintf(stderr, "judge: %s: not an option of the driver\n", *argv);
            return 2;
        }
    }
    sim_spec_defaults(&spec);
    if (sim_machine_create(path, &spec, &err) < 0) {
        fprintf(stderr, "judge: %s\n", err.text);
        return 1;
    }
    return 0;
}

static void print_list(const char *name, const uint64_t *values, unsigned count)
{
    printf(", \"%s\": [", name);
    for (unsigned i = 0; i < count; i++)
        printf("%s%" PRIu64, i ? ", " : "", values[i]);
    printf("]");
}

static int view(char **argv)
{
    static struct sim_view view;
    struct error err = ERROR_INIT;

    if (sim_machine_view(argv[2], &view, &err) < 0) {
        fprintf(stderr, "judge: %s\n", err.text);
        return 1;
    }
    printf("{\"now\": %" PRId64 ", \"gpus\": [", view.now_ns);
    for (unsigned i = 0; i < view.gpu_count; i++)
        printf("%s{\"uuid\": \"%s\", \"memory\": %" PRIu64 ", \"context\": %" PRIu64
               ", \"used\": %" PRIu64 ", \"busy\": %" PRId64 "}",
               i ? ", " : "", view.gpus[i].spec.uuid, view.gpus[i].spec.memory_bytes,
               view.gpus[i].spec.context_bytes, view.gpus[i].used_bytes, view.gpus[i].busy_ns);
    printf("], \"processes\": [");
    for (unsigned i = 0; i < view.process_count; i++) {
        const struct sim_process_view *process = &view.processes[i];

        printf("%s{\"pid\": %d", i ? ", " : "", process->pid);
        print_list("used", process->used_bytes, view.gpu_count);
        print_list("managed", process->managed_bytes, view.gpu_count);
        print_list("claimed", process->claimed_bytes, view.gpu_count);
        print_list("peak", process->peak_bytes, view.gpu_count);
        print_list("busy", (const uint64_t *)process->busy_ns, view.gpu_count);
        print_list("launches", process->launches, view.gpu_count);
        printf("}");
    }
    printf("]}\n");
    return 0;
}

static int watch(char **argv)
{
    int r = 0;
    int c;

    while (r == 0 && (c = getchar()) != EOF) {
        if (c != '\n')
            continue;
        r = view(argv);
        (void)fflush(stdout);
    }
    return r;
}

/* Until it is killed nobody gets at the machine: its driver does not answer. */
static int hold(char **argv)
{
    struct error err = ERROR_INIT;
    struct sim *sim;

    if (sim_open(argv[2], &sim, &err) < 0) {
        fprintf(stderr, "judge: %s\n", err.text);
        return 1;
    }
    (void)sim_lock(sim);
    puts("held");
    (void)fflush(stdout);
    for (;;)
        (void)pause();
}

int main(int argc, char **argv)
{
    if (argc >= 7 && strcmp(argv[1], "create") == 0)
        return create(argv);
    if (argc == 3 && strcmp(argv[1], "view") == 0)
        return view(argv);
    if (argc == 3 && strcmp(argv[1], "watch") == 0)
        return watch(argv);
    if (argc == 3 && strcmp(argv[1], "hold") == 0)
        return hold(argv);
    fprintf(stderr,
            "usage: judge create PATH GPUS MEMORY SMS CONTEXT [KEY=VALUE...] | judge view PATH | "
            "judge watch PATH | judge hold PATH\n");
    return 2;
}

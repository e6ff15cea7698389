/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a context takes for itself on a card, measured by making one: in a process of its own, which
 * may hang or crash in the driver, and is killed then. The device plugin runs itself for that
 * (sizes.h).
 *
 * What is believed is a figure that no tenant can shape: what NVML says of our own process, where
 * it is named for sure; where nobody else is listed before and one process meanwhile, that one's;
 * and where NVML tells no process' memory, what is in use of the card more than before, as long as
 * nobody else is listed right before and after each reading.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "nvml/nvml.h"

/* The first argument by which the program is to measure; then a card's or instance's uuid, a
 * driver's root ("": the usual ones), and the seconds after which it ends itself. */
#define MEASURE_WORD "measure-context"

enum {
    MEASURE_PROCESSES_MAX = 1024, /* that a driver lists of a card */
};

/* How that process ends. On its standard output are the bytes, or else why. */
enum measure_end {
    MEASURE_DONE = 0,
    MEASURE_FAILED = 1,
    MEASURE_BUSY = 75, /* others are on the card, and NVML does not name us: another time */
};

/* The whole program: main()'s result. argv begins behind MEASURE_WORD. */
int measure_main(int argc, char **argv);

/* Processes on a card, or in an instance of it, by the index of nvml_list(): their number, as
 * nvml_list_all_processes(). */
int measure_list(struct nvml *nvml, unsigned index, bool is_instance, unsigned gpu_instance,
                 struct nvml_process ret_processes[MEASURE_PROCESSES_MAX], struct error *err);

/* Before and while we have a context. */
struct measure_lists {
    const struct nvml_process *before, *with;
    size_t before_count, with_count;
    uint64_t grown_bytes;       /* of the card's memory; 0: not known for sure */
    bool has_hosts_pids;        /* we are in the host's pid namespace */
    bool (*is_here)(pid_t pid); /* there is such a process in our pid namespace */
};

/* What the context takes, by a process of this pid; 0: that can't be said for sure. */
uint64_t measure_judge(const struct measure_lists *lists, pid_t own);

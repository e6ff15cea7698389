/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the subcommands have in common. Each takes its own name as argv[0], "hamictl run". */

#include <stdint.h>

enum ctl_exit {
    CTL_EXIT_FAILURE = 1,
    CTL_EXIT_USAGE = 2,
    /* Of `run` alone, whose other codes are the program's; as with env(1) and timeout(1). */
    CTL_EXIT_RUN_FAILURE = 125,
    CTL_EXIT_CANNOT_EXECUTE = 126,
    CTL_EXIT_NOT_FOUND = 127,
    CTL_EXIT_SIGNAL = 128, /* plus the signal's number */
};

int run_main(int argc, char **argv);
int resize_main(int argc, char **argv);
int top_main(int argc, char **argv);
int region_main(int argc, char **argv);
int sim_main(int argc, char **argv);
int config_main(int argc, char **argv);
int simulate_main(int argc, char **argv);
int why_main(int argc, char **argv);

/*
 * A length of time: a decimal number and ms, s, m or h; seconds when there is no unit. Returns 0,
 * -EINVAL, or -ERANGE beyond a year.
 */
int ctl_parse_duration(const char *text, int64_t *ret_ns);

/* An amount of memory as a person reads it, "12.5 GiB". */
enum {
    CTL_SIZE_TEXT = 32,
};
const char *ctl_format_size(uint64_t bytes, char text[CTL_SIZE_TEXT]);

/* A grant's share of the compute time as a person reads it: "cores 30%"; 0 is no share. */
const char *ctl_format_cores(unsigned percent, char text[CTL_SIZE_TEXT]);

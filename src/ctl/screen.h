/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A picture shown again and again: in place on a terminal, one after the other elsewhere. The
 * terminal is left as it was found, also when a signal ends it.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "base/error.h"

struct screen {
    bool in_place;
    bool has_keys; /* standard input is a terminal, whose keys are read one by one */
    bool shown;
    bool dense; /* elsewhere: no empty line between pictures */
    int signal_fd;
    sigset_t signals;
    struct termios terminal;
};

/* Takes over SIGINT, SIGTERM, SIGHUP and SIGQUIT until it is closed. */
int screen_open(struct screen *ret_screen, bool dense, struct error *err);
void screen_close(struct screen *screen);

void screen_show(struct screen *screen, const char *text);

/* Waits so long. False when the user or a signal wants an end. */
bool screen_wait(struct screen *screen, int64_t ns);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A simulated machine as tables for people or as JSON for programs. */

#include "base/strbuf.h"
#include "simdriver/machine.h"

void sim_print_tables(struct strbuf *text, const char *path, const struct sim_view *view);
void sim_print_json(struct strbuf *text, const char *path, const struct sim_view *view);

/* The words for a GPU's condition, in the order of enum sim_condition. */
extern const char *const sim_condition_words[3];

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A snapshot as tables for people or as JSON for programs. */

#include "base/strbuf.h"
#include "ctl/snapshot.h"

void top_print_tables(struct strbuf *text, const struct snapshot *snapshot);
void top_print_json(struct strbuf *text, const struct snapshot *snapshot);

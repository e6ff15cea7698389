/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A simulated machine described in YAML:
 *
 *     driver:                      # its options, as sim_driver_set() takes them
 *       captures: strict
 *     gpus:
 *       - count: 2                 # so many of these; 1
 *         model: NVIDIA H100 80GB HBM3
 *         uuid: GPU-...            # of a single one; made up otherwise
 *         memory: 80Gi
 *         context: 500Mi           # what each context takes
 *         multiprocessors: 132
 *         numa: 0                  # none if left out
 *         compute: "9.0"
 *         slice: 2ms               # of the round robin between contexts; us, ms, s
 *         switch: 50us             # lost at each change of context
 *
 * What is left out gets the default of sim_spec_defaults(); without a list there is one GPU.
 */

#include "base/error.h"
#include "simdriver/machine.h"

/*
 * The machine of a file of at most 64 KiB. What is wrong is told with the key and its line and
 * column: -EINVAL; -EFBIG, -ENOENT and the like for the file itself. The output is untouched then.
 */
int sim_config_load(const char *path, struct sim_spec *ret_spec, struct error *err);

/* The same for text, which name stands for in messages. */
int sim_config_parse(const char *name, const char *text, size_t len, struct sim_spec *ret_spec,
                     struct error *err);

/* A GPU's memory, or a context's, with the bounds that hold on the command line as well: NULL, or
 * what is wrong with it, for "is ...". */
const char *sim_config_read_amount(const char *text, uint64_t *ret_bytes);

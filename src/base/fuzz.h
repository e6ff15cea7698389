/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Fuzz targets: NAME_fuzz.c beside the code defines this one function, its corpus is the folder
 * tests/corpus/NAME. Ordinarily it is linked with fuzz_main.c and replays the corpus as a test;
 * configured with -Dfuzz=true, for clang, it is a libFuzzer program instead.
 */

#include <stddef.h>
#include <stdint.h>

/* Returns 0. An input that breaks a promise ends in abort() or in a sanitizer's report. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

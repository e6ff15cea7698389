/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where our functions are, as distances from the table itself, which only the assembler can write
 * down. A pointer to each would be eight times as long in the file, with what the loader is told to
 * make of it, and the loader would write to a page for it in each process.
 */

    .section .rodata.hook_distances, "a"
    .balign 4
    .globl hook_distances
    .hidden hook_distances
    .type hook_distances, %object
hook_distances:
#define HOOK_DRIVER(name) .long name - hook_distances
#define HOOK_NVML(name) .long name - hook_distances
#include "vgpu/hooks.inc"
    .size hook_distances, . - hook_distances

    .section .note.GNU-stack, "", %progbits

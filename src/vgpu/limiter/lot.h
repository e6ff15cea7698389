/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Drawing by lot which launches are measured. A thread draws how much risk it may run until its
 * next measurement, exponentially distributed with the mean of COSTS_GAP_NS; every launch uses up
 * its risk (cost_risk_ns()), and the one that exceeds the rest is measured. The distribution has no
 * memory: whatever a program knows of the past, the next launch of risk r is measured with the
 * chance lot_chance(r).
 */

#include <stdint.h>

/* xorshift64*; never 0. */
struct lot {
    uint64_t state;
};

static inline double lot_draw(struct lot *lot)
{
    lot->state ^= lot->state << 13;
    lot->state ^= lot->state >> 7;
    lot->state ^= lot->state << 17;
    return (double)((lot->state * UINT64_C(0x2545f4914f6cdd1d)) >> 11) / 9007199254740992.0;
}

/* Exponentially distributed, mean 1: von Neumann's way, which needs comparisons only (libvgpu does
 * not link libm). */
static inline double lot_exponential(struct lot *lot)
{
    for (double whole = 0;; whole += 1) {
        double first = lot_draw(lot), last = first, next;
        unsigned run = 1;

        while ((next = lot_draw(lot)) < last) {
            last = next;
            run++;
        }
        if (run % 2)
            return whole + first;
    }
}

/* 1 - exp(-x): to 0.0002. */
static inline double lot_chance(double x)
{
    if (x > 1) /* 1 - exp(-x/2)^2 */
        return 1 - (1 - lot_chance(x / 2)) * (1 - lot_chance(x / 2));
    return x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6)))));
}

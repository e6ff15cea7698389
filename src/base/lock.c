/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

static __thread struct {
    unsigned depth;
    int before;
} held __attribute__((tls_model("initial-exec")));

void lock_hold_cancel(void)
{
    if (held.depth++ == 0)
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &held.before);
}

void lock_release_cancel(void)
{
    int ours;

    if (--held.depth == 0)
        (void)pthread_setcancelstate(held.before, &ours);
}

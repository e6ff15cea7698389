/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/patience.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/util.h"

enum {
    SILENT_S = 10,
};

struct call {
    patience_fn *fn;
    struct error err;
    int answer;
    bool done;
    max_align_t work[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_lost;

static void *run(void *data)
{
    struct call *call = data;

    call->answer = call->fn(call->work, &call->err);
    (void)pthread_mutex_lock(&lock);
    call->done = true;
    (void)pthread_cond_signal(&changed);
    (void)pthread_mutex_unlock(&lock);
    return NULL;
}

static bool wait_for(const struct call *call, unsigned seconds)
{
    struct timespec until;
    bool done;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    (void)pthread_mutex_lock(&lock);
    while (!call->done && pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until) == 0)
        ;
    done = call->done;
    (void)pthread_mutex_unlock(&lock);
    return done;
}

/* Whoever waits for longer than a moment hears what for. */
static bool wait_and_say(const struct call *call, unsigned seconds)
{
    if (seconds <= SILENT_S)
        return wait_for(call, seconds);
    if (wait_for(call, SILENT_S))
        return true;
    (void)fprintf(stderr,
                  "hamictl: the driver has not answered for %d s; it is waited for, %u s at most\n",
                  SILENT_S, seconds);
    return wait_for(call, seconds - SILENT_S);
}

int patience_call(patience_fn *fn, void *work, size_t size, unsigned seconds, struct error *err)
{
    struct call *call = malloc(sizeof(*call) + size);
    pthread_t thread;
    int r;

    if (!call)
        return error_set(err, -ENOMEM, "out of memory");
    *call = (struct call){.fn = fn, .err = ERROR_INIT};
    memcpy(call->work, work, size);
    r = pthread_create(&thread, NULL, run, call);
    if (r != 0) {
        free(call);
        return error_set(err, -r, "cannot make a thread: %s", strerror(r));
    }
    if (!wait_and_say(call, seconds)) {
        is_lost = true;
        return error_set(err, -ETIMEDOUT,
                         "the driver has not answered for %u s. A GPU of this machine hangs, or is "
                         "being reset: the kernel's log (dmesg) may say which, after \"Xid\"",
                         seconds);
    }
    (void)pthread_join(thread, NULL);
    memcpy(work, call->work, size);
    r = call->answer;
    if (r < 0)
        *err = call->err;
    free(call);
    return r;
}

bool patience_is_lost(void)
{
    return is_lost;
}

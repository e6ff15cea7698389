/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/watchdog.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"

enum {
    LEAVE_MS = 1000,
};

static void on_work(uv_work_t *work)
{
    struct watchdog *watchdog = work->data;

    watchdog->options.ops->ask(watchdog->options.data);
}

static void on_work_done(uv_work_t *work, int status);

static void begin(struct watchdog *watchdog)
{
    if (watchdog->options.ops->begin)
        watchdog->options.ops->begin(watchdog->options.data);
    watchdog->again = false;
    watchdog->work.data = watchdog;
    watchdog->asking =
        uv_queue_work(watchdog->timer.loop, &watchdog->work, on_work, on_work_done) == 0;
}

static void on_work_done(uv_work_t *work, int status)
{
    struct watchdog *watchdog = work->data;
    bool ending = watchdog->ending;

    (void)status;
    watchdog->asking = false;
    watchdog->periods = 0;
    watchdog->options.ops->done(watchdog->options.data);
    if (ending)
        uv_close((uv_handle_t *)&watchdog->timer, NULL);
    else if (watchdog->again && !watchdog->ending)
        begin(watchdog);
}

static void on_period(uv_timer_t *timer)
{
    struct watchdog *watchdog = timer->data;
    const struct watchdog_options *options = &watchdog->options;

    if (watchdog->asking && ++watchdog->periods == options->late_periods)
        options->ops->late(options->data);
    else if (!watchdog->asking)
        begin(watchdog);
}

void watchdog_start(struct watchdog *watchdog, uv_loop_t *loop,
                    const struct watchdog_options *options)
{
    *watchdog = (struct watchdog){.options = *options};
    (void)uv_timer_init(loop, &watchdog->timer);
    watchdog->timer.data = watchdog;
    (void)uv_timer_start(&watchdog->timer, on_period, options->first_ms, options->period_ms);
}

void watchdog_hurry(struct watchdog *watchdog)
{
    if (watchdog->ending)
        return;
    if (watchdog->asking)
        watchdog->again = true;
    else
        begin(watchdog);
}

bool watchdog_is_late(const struct watchdog *watchdog)
{
    return watchdog->periods >= watchdog->options.late_periods;
}

static void on_leave(uv_timer_t *timer)
{
    (void)timer;
    log_warn("ending, although the driver does not answer");
    _exit(EXIT_SUCCESS);
}

void watchdog_stop(struct watchdog *watchdog)
{
    watchdog->ending = true;
    if (watchdog->asking)
        (void)uv_timer_start(&watchdog->timer, on_leave, LEAVE_MS, 0);
    else
        uv_close((uv_handle_t *)&watchdog->timer, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* What a container's limiter lets go while nothing is measured: on credit, by shares of the
 * container, and as its helper thread comes to rest. */

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/util.h"
#include "region/bucket.h"
#include "region/turns.h"
#include "vgpu/limiter/costs.h"
#include "vgpu/limiter/limiter.h"
#include "vgpu/limiter/parts_fixture.h"
#include "vgpu/limiter/share.h"
#include "vgpu/limiter/streams.h"

/* The stream 8 never comes to an end. */
static bool fake_is_idle(void *gpu, const struct launch *where)
{
    (void)gpu;
    return where->stream != (void *)8;
}

static const struct limiter_gpu gpu_of_container = {
    .now_ns = fake_now,
    .make_event = fake_no_event, /* nothing is ever measured */
    .is_idle = fake_is_idle,
    .asks_others = fake_asks_others,
    .is_captured = fake_is_captured,
};

struct container {
    struct region region;
    struct share share;
    struct limiter limiter;
};

static struct container *new_container(unsigned percent)
{
    struct container *container = calloc(1, sizeof(*container));

    assert_non_null(container);
    container->region.base = calloc(1, sizeof(*container->region.base));
    container->region.ext = calloc(1, sizeof(*container->region.ext));
    assert_true(container->region.base && container->region.ext);
    container->share.region = &container->region;
    container->share.rate = bucket_rate(percent);
    fake_now_ns = NS_PER_S;
    limiter_init(&container->limiter, &gpu_of_container, NULL, &container->share, 1);
    (void)share_balance(&container->share, fake_now_ns);
    return container;
}

static void free_container(struct container *container)
{
    free(container->region.base);
    free(container->region.ext);
    free(container);
}

/* Credit */

struct circumstances {
    double length_ns; /* of the shape's kernels */
    int64_t debt_ns;
    bool suspended;
    bool betters;   /* of higher priority used the card lately; half of the time is charged for */
    unsigned cores; /* 0: 30 */
};

/* How many of a thousand threads' launches go in ten seconds. */
static unsigned gone_on_credit(struct circumstances circumstances)
{
    enum { THREADS = 1000 };
    const unsigned cores = circumstances.cores ? circumstances.cores : 30;
    struct container *container = new_container(cores);
    struct limiter *limiter = &container->limiter;
    struct waiting *waiting = calloc(THREADS, sizeof(*waiting));
    struct launch_cache cache = {0};
    struct launch busy = launch_of(0x1000, 1), launch = launch_of(0x2000, 1);
    int64_t until_ns;
    unsigned gone = 0;

    container->share.suspended = circumstances.suspended;
    container->share.card.has_betters = circumstances.betters;
    busy.stream = (void *)8;
    launch.stream = (void *)16;
    streams_use(&limiter->streams, &busy, &cache, fake_now_ns);
    for (unsigned i = 0; i < 10; i++)
        (void)costs_learn(&limiter->costs, costs_of(&limiter->costs, &launch),
                          circumstances.length_ns);
    for (int64_t end_ns = fake_now_ns + 10 * NS_PER_S; fake_now_ns < end_ns;
         fake_now_ns += NS_PER_MS) {
        /* The debt stays: others add to it. */
        container->region.ext->devices[0].compute.zero_ns =
            fake_now_ns + circumstances.debt_ns * 100 / cores;
        limiter->charged_ns += NS_PER_MS / 2;
        for (unsigned i = 0; i < THREADS; i++) {
            if (!limiter_may_go(limiter, &cache, &launch, &waiting[i], &until_ns))
                continue;
            assert_true(waiting[i].on_credit);
            waiting[i] = (struct waiting){0};
            gone++;
        }
    }
    free(waiting);
    free_container(container);
    return gone;
}

/* Beside a stream that is busy with what nobody measured, a launch may be what that waits for. */
static void a_crowd_gets_no_more_on_credit_than_one(void **state)
{
    unsigned gone;

    (void)state;
    gone = gone_on_credit((struct circumstances){500e3, NS_PER_S});
    assert_true(gone > 150 && gone <= 200); /* each 50 ms */
    gone = gone_on_credit((struct circumstances){500e3, 10 * NS_PER_S});
    assert_true(gone > 1 && gone <= 6); /* more and more slowly */
    gone = gone_on_credit((struct circumstances){20e6, NS_PER_S});
    assert_true(gone > 2 && gone <= 70); /* each 160 ms */
}

/* What is owed beyond a minute is dropped: at a low limit it takes little to come to that. */
static void near_the_most_that_is_owed_little_goes_on_credit(void **state)
{
    unsigned gone;

    (void)state;
    gone = gone_on_credit((struct circumstances){150e6, NS_PER_S, .cores = 5});
    assert_true(gone > 50 && gone <= 70); /* each 160 ms */
    gone = gone_on_credit((struct circumstances){150e6, 2 * NS_PER_S, .cores = 5});
    assert_true(gone > 1 && gone <= 3);
    gone = gone_on_credit((struct circumstances){500e3, NS_PER_S / 2, .cores = 1});
    assert_int_equal(gone, 1);
}

/* Who is to launch nothing, or to leave the card to others, launches less and less. */
static void who_is_stopped_has_little_credit_as_beside_betters(void **state)
{
    unsigned gone;

    (void)state;
    gone = gone_on_credit((struct circumstances){500e3, NS_PER_S, .suspended = true});
    assert_true(gone > 2 && gone <= 6);
    gone = gone_on_credit((struct circumstances){500e3, NS_PER_S, .betters = true});
    assert_true(gone > 2 && gone <= 30);
    gone = gone_on_credit((struct circumstances){20e6, NS_PER_S, .betters = true});
    assert_true(gone > 2 && gone <= 10);
}

/* It waits for whoever lets it go on, and keeps nobody from the card meanwhile. */
static void who_is_stopped_wants_nothing(void **state)
{
    struct container *container = new_container(30);
    struct card_cell cell = {0};
    struct waiting waiting = {0};
    struct launch_cache cache = {0};
    struct launch launch = launch_of(0x2000, 1);
    int64_t until_ns = 0;

    (void)state;
    container->share.card.own = &cell;
    container->share.card.has_betters = true;
    container->share.suspended = true;
    assert_false(limiter_may_go(&container->limiter, &cache, &launch, &waiting, &until_ns));
    assert_true(until_ns > fake_now_ns);
    assert_true(cell.wanted_until_ns == 0 && cell.busy_until_ns == 0);
    container->share.suspended = false;
    (void)limiter_may_go(&container->limiter, &cache, &launch, &waiting, &until_ns);
    assert_true(cell.wanted_until_ns > fake_now_ns);
    container->share.card.own = NULL;
    free_container(container);
}

static void what_is_not_busy_gives_no_credit(void **state)
{
    struct container *container = new_container(30);
    struct waiting waiting = {0};
    struct launch_cache cache = {0};
    struct launch launch = launch_of(0x2000, 1);
    int64_t until_ns = 0;

    (void)state;
    launch.stream = (void *)16;
    container->region.ext->devices[0].compute.zero_ns = fake_now_ns + NS_PER_S;
    for (unsigned i = 0; i < 999; i++) {
        assert_false(limiter_may_go(&container->limiter, &cache, &launch, &waiting, &until_ns));
        assert_true(until_ns > fake_now_ns);
        fake_now_ns += NS_PER_MS;
    }
    fake_now_ns += 2 * NS_PER_MS;
    assert_true(limiter_may_go(&container->limiter, &cache, &launch, &waiting, &until_ns));
    assert_false(waiting.on_credit);
    free_container(container);
}

/* The helper thread */

static void caches_go_stale_when_the_helper_begins_to_rest(void **state)
{
    struct container *container = new_container(30);
    struct limiter *limiter = &container->limiter;
    const unsigned generation = limiter->generation;

    (void)state;
    limiter->last_launch_ns = fake_now_ns;
    assert_true(limiter_is_busy(limiter, fake_now_ns));
    limiter_rest(limiter, false);
    assert_false(limiter_is_busy(limiter, fake_now_ns + NS_PER_S));
    assert_int_equal(limiter->generation, generation);
    limiter_rest(limiter, true);
    assert_int_equal(limiter->generation, generation + 1);
    limiter_rest(limiter, true);
    assert_int_equal(limiter->generation, generation + 1);
    limiter_rest(limiter, false);
    limiter_rest(limiter, true);
    assert_int_equal(limiter->generation, generation + 2);
    free_container(container);
}

/* Shares */

static void a_process_with_less_has_its_own_bucket(void **state)
{
    struct container *container = new_container(50);
    struct share less = {.region = &container->region};
    int64_t until_ns, now_ns = fake_now_ns;

    (void)state;
    less.rate = bucket_rate(20);
    assert_int_equal(share_balance(&less, now_ns), 0);
    /* It earns 20, the container 50. */
    now_ns += 10 * NS_PER_MS;
    assert_near(share_balance(&less, now_ns), 2 * NS_PER_MS, 1000);
    assert_near(share_balance(&container->share, now_ns), 5 * NS_PER_MS, 1000);
    share_charge(&less, 3 * NS_PER_MS);
    assert_near(share_balance(&less, now_ns), -NS_PER_MS, 1000);
    assert_near(share_balance(&container->share, now_ns), 2 * NS_PER_MS, 1000);
    assert_false(share_allows(&less, 0, 0, now_ns, &until_ns));
    assert_true(share_allows(&container->share, 0, 0, now_ns, &until_ns));
    /* What others of the container use is not its own, but the container's debt holds it, too. */
    now_ns += 100 * NS_PER_MS;
    share_charge(&container->share, 100 * NS_PER_MS);
    assert_false(share_allows(&less, 0, 0, now_ns, &until_ns));
    assert_false(share_allows(&container->share, 0, 0, now_ns, &until_ns));
    /* One rule for all: who has less of it leaves the others' as it is, */
    less.common = bucket_rate(50);
    (void)share_balance(&less, now_ns);
    assert_int_equal(container->region.ext->devices[0].compute.rate, bucket_rate(50));
    /* and where it comes down, so does the container's rate. */
    less.common = bucket_rate(20);
    (void)share_balance(&less, now_ns);
    assert_int_equal(container->region.ext->devices[0].compute.rate, bucket_rate(20));
    free_container(container);
}

static void *lift_and_limit(void *share)
{
    for (unsigned i = 0; i < 200000; i++)
        ((struct share *)share)->rate = i % 2 ? bucket_rate(30) : 0;
    return NULL;
}

/* A limit that is lifted while launches look at it. */
static void a_limit_may_be_lifted_any_moment(void **state)
{
    struct container *container = new_container(30);
    struct share *share = &container->share;
    pthread_t other;
    int64_t until_ns = 0;

    (void)state;
    share->common = bucket_rate(30);
    share->rate = 0;
    assert_true(share_allows(share, 0, 0, fake_now_ns, &until_ns));
    assert_true(share_balance(share, fake_now_ns) > 0);
    assert_int_equal(pthread_create(&other, NULL, lift_and_limit, share), 0);
    while (pthread_tryjoin_np(other, NULL) != 0) {
        (void)share_balance(share, fake_now_ns);
        if (!share_allows(share, 0, 0, fake_now_ns, &until_ns))
            assert_true(until_ns > fake_now_ns);
        share_charge(share, 1);
    }
    free_container(container);
}

/* While a launch is about to be measured, another process looks at the debt. */
static void *no_event_and_others_look(void *container)
{
    turns_limit_debt(&((struct container *)container)->region, 0, fake_now_ns);
    return NULL;
}

/* A launch that does not go gets back what it paid: were it dropped meanwhile, the container would
 * have it twice: with launches that failed again and again 33 % were seen at a limit of 10 %. */
static void what_is_paid_for_no_launch_is_not_dropped_meanwhile(void **state)
{
    struct limiter_gpu gpu = gpu_of_container;
    struct container *container = new_container(10);
    struct limiter *limiter = &container->limiter;
    struct launch launch = launch_of(0x1000, 1);
    struct launch_cache cache = {0};
    struct waiting waiting = {0};
    struct ticket ticket;
    int64_t before_ns;

    (void)state;
    gpu.make_event = no_event_and_others_look;
    limiter->ops = &gpu;
    limiter->gpu = container;
    container->region.base->slot_count = 1;
    (void)costs_learn(&limiter->costs, costs_of(&limiter->costs, &launch), 20e9);
    before_ns = share_balance(&container->share, fake_now_ns);
    assert_false(limiter_begin(limiter, &cache, &launch, &waiting, &ticket));
    assert_int_equal(share_balance(&container->share, fake_now_ns), before_ns);
    assert_int_equal(container->region.ext->turns[0][0].unsettled_ns, 0);
    free_container(container);
}

/* A kernel of a millisecond, and where its process is killed: as the streams are looked at, which
 * comes right after it was found to have ended. */
static bool is_killed;

static void *fake_event(void *gpu)
{
    static char events[2 * SAMPLES];
    static unsigned next;

    (void)gpu;
    return &events[next++ % sizeof(events)];
}

static bool fake_elapsed_ms(void *gpu, void *from, void *to, double *ret_ms)
{
    (void)gpu;
    *ret_ms = from == to ? 0 : 1;
    return true;
}

static int64_t fake_wait_ns(void *gpu, void *event)
{
    (void)gpu;
    (void)event;
    return 0;
}

static bool is_idle_or_killed(void *container, const struct launch *where)
{
    (void)where;
    if (fake_stream.is_done && !is_killed)
        turns_settle(((struct container *)container)->region.ext, 0, 0, fake_now_ns);
    is_killed |= fake_stream.is_done;
    return fake_stream.is_done;
}

static void what_a_kernel_did_not_take_is_given_back_once(void **state)
{
    const struct limiter_gpu gpu = {
        .now_ns = fake_now,
        .make_event = fake_event,
        .record = fake_record,
        .query = fake_query,
        .elapsed_ms = fake_elapsed_ms,
        .is_idle = is_idle_or_killed,
        .asks_others = fake_asks_others,
        .is_captured = fake_is_captured,
        .wait_ns = fake_wait_ns,
    };
    struct container *container = new_container(10);
    struct limiter *limiter = &container->limiter;
    struct region_compute *compute = &container->region.ext->devices[0].compute;
    struct launch launch = launch_of(0x1000, 1);
    struct launch_cache cache = {0};
    struct waiting waiting = {0};
    struct ticket ticket;
    int64_t before_ns;

    (void)state;
    fake_now_ns = 100 * NS_PER_S;
    (void)share_balance(&container->share, fake_now_ns);
    before_ns = compute->zero_ns;
    launch.stream = (void *)16;
    fake_stream = (struct fake_stream){0};
    limiter->ops = &gpu;
    limiter->gpu = container;
    limiter->draws_lots = true; /* its streams are looked at */
    (void)costs_learn(&limiter->costs, costs_of(&limiter->costs, &launch), 20e9);
    assert_true(limiter_begin(limiter, &cache, &launch, &waiting, &ticket));
    limiter_calls(limiter, &ticket);
    limiter_returned(limiter, &launch, &ticket);
    limiter_end(limiter, &ticket, true);
    assert_near(container->region.ext->turns[0][0].unsettled_ns, 20e9, 1);
    fake_now_ns += NS_PER_S;
    fake_stream.is_done = true;
    limiter_poll(limiter);
    assert_true(is_killed);
    assert_true(compute->zero_ns >= before_ns);
    free_container(container);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_gets_no_more_on_credit_than_one),
        cmocka_unit_test(near_the_most_that_is_owed_little_goes_on_credit),
        cmocka_unit_test(who_is_stopped_has_little_credit_as_beside_betters),
        cmocka_unit_test(who_is_stopped_wants_nothing),
        cmocka_unit_test(what_is_not_busy_gives_no_credit),
        cmocka_unit_test(caches_go_stale_when_the_helper_begins_to_rest),
        cmocka_unit_test(a_process_with_less_has_its_own_bucket),
        cmocka_unit_test(a_limit_may_be_lifted_any_moment),
        cmocka_unit_test(what_is_paid_for_no_launch_is_not_dropped_meanwhile),
        cmocka_unit_test(what_a_kernel_did_not_take_is_given_back_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

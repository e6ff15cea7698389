/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"
#include "simdriver/state.h"

static void move_to(struct sim_history *history, int64_t bucket)
{
    int64_t from = MAX(history->last + 1, bucket - SIM_BUCKETS + 1);

    for (int64_t i = from; i <= bucket; i++)
        history->busy_ns[i % SIM_BUCKETS] = 0;
    history->last = MAX(history->last, bucket);
}

void sim_history_add(struct sim_history *history, int64_t from_ns, int64_t to_ns)
{
    int64_t last = to_ns / SIM_BUCKET_NS;

    move_to(history, last);
    from_ns = MAX(from_ns, (last - SIM_BUCKETS + 1) * SIM_BUCKET_NS);
    while (from_ns < to_ns) {
        int64_t bucket = from_ns / SIM_BUCKET_NS;
        int64_t until = MIN(to_ns, (bucket + 1) * SIM_BUCKET_NS);

        history->busy_ns[bucket % SIM_BUCKETS] += (uint32_t)(until - from_ns);
        from_ns = until;
    }
}

int64_t sim_history_sum(const struct sim_history *history, int64_t now_ns, int64_t window_ns,
                        int64_t *ret_span_ns)
{
    int64_t end = now_ns / SIM_BUCKET_NS;
    int64_t count = MIN(MAX(window_ns / SIM_BUCKET_NS, 1), SIM_BUCKETS - 1);
    int64_t sum = 0;

    for (int64_t i = end - count; i < end; i++) {
        if (i >= 0 && i <= history->last && i > history->last - SIM_BUCKETS)
            sum += history->busy_ns[i % SIM_BUCKETS];
    }
    *ret_span_ns = count * SIM_BUCKET_NS;
    return sum;
}

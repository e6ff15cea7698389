/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/tails.h"

#include "base/util.h"

/* A stream that long unused makes room for another. */
#define UNUSED_NS NS_PER_S

/* So long it counts that a capture kept us from a look: a program that begins one when its long
 * kernel runs would not be seen else. */
#define BLIND_NS (30 * NS_PER_S)

/* A measurement that is so long on its way may stand behind what nobody measured. */
#define BEHIND_NS INT64_C(50000000)

/* So much, and a quarter of what was charged, may be chance: the lot's charges are right on average
 * only, and what the lot finds of so long a kernel can be owed. */
#define CHANCE_NS 50e6
#define CHANCE_PART 1.25

/* The names of the legacy and of the thread's own stream. */
#define STREAM_LEGACY ((void *)1)
#define STREAM_OWN ((void *)2)

static bool is_hidden(const struct launch *launch)
{
    return launch->stream == STREAM_OWN || (!launch->stream && launch->per_thread);
}

static bool is_stream(const struct tail *tail, const void *stream)
{
    return tail->used_ns && tail->where.stream == stream;
}

enum tails_outcome tails_use(struct tails *tails, const struct launch *launch, int64_t charged_ns,
                             int64_t now_ns)
{
    void *stream = launch->stream == STREAM_LEGACY ? NULL : launch->stream;
    enum tails_outcome outcome;
    struct tail *oldest = &tails->list[0];

    if (is_hidden(launch))
        return TAILS_HIDDEN;
    for (unsigned i = 0; i < TAILS; i++) {
        struct tail *tail = &tails->list[i];

        if (is_stream(tail, stream)) {
            tail->used_ns = now_ns;
            return TAILS_KNOWN;
        }
        if (!tail->recorded_ns && (oldest->recorded_ns || tail->used_ns < oldest->used_ns))
            oldest = tail;
    }
    if (oldest->recorded_ns || (oldest->used_ns && now_ns - oldest->used_ns < UNUSED_NS))
        return TAILS_FULL;
    outcome = oldest->used_ns ? TAILS_REPLACED : TAILS_KNOWN;
    *oldest = (struct tail){.where = {.stream = stream},
                            .event = oldest->event,
                            .used_ns = now_ns,
                            .charged_ns = charged_ns,
                            .done_ns = charged_ns};
    return outcome;
}

static bool is_legacy(const struct tail *tail)
{
    return !tail->where.stream;
}

static bool can_ask(struct tails *tails, const struct tail *tail, const struct limiter_gpu *ops,
                    void *gpu, int64_t now_ns)
{
    if (ops->asks_others(gpu) && !ops->is_captured(gpu, &tail->where))
        return true;
    tails->blind_ns = now_ns;
    return false;
}

/* Whether all is done that was in the stream when it was looked at anew. */
static bool is_done(struct tails *tails, const struct samples *samples, const struct tail *tail,
                    const struct limiter_gpu *ops, void *gpu, int64_t now_ns)
{
    int64_t oldest_ns;

    if (tail->behind_ns) {
        oldest_ns = samples_oldest_ns(samples, &tail->where);
        return !oldest_ns || oldest_ns > tail->behind_ns;
    }
    if (!is_legacy(tail))
        return ops->query(gpu, tail->event) != EVENT_NOT_YET;
    return can_ask(tails, tail, ops, gpu, now_ns) && ops->is_idle(gpu, &tail->where);
}

static bool has_young_measurement(const struct samples *samples, const struct tail *tail,
                                  int64_t now_ns)
{
    int64_t began_ns = samples_oldest_ns(samples, &tail->where);

    return began_ns && now_ns - began_ns < BEHIND_NS;
}

static bool mark(struct tail *tail, const struct limiter_gpu *ops, void *gpu)
{
    if (is_legacy(tail))
        return true;
    if (!tail->event)
        tail->event = ops->make_event(gpu);
    return tail->event && ops->record(gpu, tail->event, &tail->where);
}

/* The last event is done, and with it what was launched before. Behind a measurement that is on its
 * way there is no need of another event, which may cost a slice of the device, or block. */
static void look_anew(struct tails *tails, const struct samples *samples, struct tail *tail,
                      const struct limiter_gpu *ops, void *gpu, int64_t charged_ns, int64_t now_ns)
{
    if (!can_ask(tails, tail, ops, gpu, now_ns) || has_young_measurement(samples, tail, now_ns))
        return;
    tail->done_ns = tail->charged_ns;
    tail->charged_ns = charged_ns;
    if (ops->is_idle(gpu, &tail->where)) {
        tail->done_ns = charged_ns;
        return;
    }
    tail->behind_ns = is_legacy(tail) ? 0 : samples_newest_ns(samples, &tail->where);
    if (!tail->behind_ns && !mark(tail, ops, gpu))
        return;
    tail->recorded_ns = now_ns;
    tails->out++;
}

static void clear_mark(struct tails *tails, struct tail *tail)
{
    tails->out -= tail->recorded_ns != 0;
    tail->recorded_ns = 0;
}

/* The legacy stream would be busy with what others do. */
static void drop_unused(struct tails *tails, struct tail *tail, int64_t now_ns)
{
    if (!is_legacy(tail) || !tail->used_ns || now_ns - tail->used_ns < UNUSED_NS)
        return;
    tail->used_ns = 0;
    tails->is_new = true;
}

static double unexplained_ns(const struct tail *tail, int64_t charged_ns, double on_device,
                             int64_t now_ns)
{
    double busy_ns = (double)(now_ns - tail->recorded_ns) * on_device;
    double paid_ns = MAX((double)(charged_ns - tail->done_ns), 0.0);

    return busy_ns > CHANCE_PART * paid_ns + CHANCE_NS ? busy_ns - paid_ns : 0;
}

double tails_look(struct tails *tails, const struct samples *samples, const struct limiter_gpu *ops,
                  void *gpu, int64_t charged_ns, double on_device, int64_t now_ns)
{
    double longest_ns = 0;
    unsigned looked = 0;

    if (now_ns - tails->looked_ns < TAILS_GAP_NS)
        return 0;
    tails->looked_ns = now_ns;
    for (unsigned i = 0; i < TAILS && looked < TAILS_LOOKED; i++) {
        struct tail *tail = &tails->list[tails->next];

        tails->next = (tails->next + 1) % TAILS;
        if (!tail->used_ns && !tail->recorded_ns)
            continue;
        looked++;
        if (tail->recorded_ns && !is_done(tails, samples, tail, ops, gpu, now_ns)) {
            longest_ns = MAX(longest_ns, unexplained_ns(tail, charged_ns, on_device, now_ns));
            continue;
        }
        clear_mark(tails, tail);
        drop_unused(tails, tail, now_ns);
        if (tail->used_ns)
            look_anew(tails, samples, tail, ops, gpu, charged_ns, now_ns);
    }
    tails->is_blind = tails->blind_ns && now_ns - tails->blind_ns < BLIND_NS;
    return longest_ns;
}

void tails_note_done(struct tails *tails, const struct launch *launch, int64_t began_ns)
{
    const void *stream = launch->stream == STREAM_LEGACY ? NULL : launch->stream;

    for (unsigned i = 0; i < TAILS && !stream && !is_hidden(launch); i++) {
        struct tail *tail = &tails->list[i];

        if (is_legacy(tail) && tail->recorded_ns && began_ns >= tail->recorded_ns)
            clear_mark(tails, tail);
    }
}

/* Records the event anew, behind what came since. */
static void mark_end(struct tails *tails, struct tail *tail, const struct limiter_gpu *ops,
                     void *gpu, int64_t now_ns)
{
    if (can_ask(tails, tail, ops, gpu, now_ns) && mark(tail, ops, gpu))
        tail->behind_ns = 0;
}

bool tails_forget(struct tails *tails, const struct samples *samples, const struct limiter_gpu *ops,
                  void *gpu, const void *stream, int64_t charged_ns, int64_t now_ns)
{
    bool was_out;

    for (unsigned i = 0; i < TAILS && stream; i++) {
        struct tail *tail = &tails->list[i];

        if (!is_stream(tail, stream))
            continue;
        was_out = tail->recorded_ns;
        if (!was_out)
            look_anew(tails, samples, tail, ops, gpu, charged_ns, now_ns);
        if (was_out || (tail->recorded_ns && tail->behind_ns))
            mark_end(tails, tail, ops, gpu, now_ns);
        tail->used_ns = 0;
        return true;
    }
    return false;
}

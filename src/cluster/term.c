/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/term.h"

#include <string.h>

#include "base/util.h"

enum {
    LATE = 5, /* the part of a Lease's duration that looks may be apart: 3 s of 15 s */
};

static int64_t settling_ns(const struct term *term)
{
    return term->options.bind_ns + term->options.bind_ns / 3;
}

/* How old a renewal may be for something to be sent. Not positive: the Lease is too short. */
static int64_t fresh_ns(const struct term *term, int64_t duration_ns)
{
    return duration_ns - MAX(duration_ns / 3, settling_ns(term));
}

/* From a leader's last renewal until its last request has settled. */
static int64_t lasting_ns(const struct term *term, int64_t duration_ns)
{
    return MAX(fresh_ns(term, duration_ns), INT64_C(0)) + settling_ns(term);
}

void term_init(struct term *term, const struct term_options *options, int64_t now_ns)
{
    *term = (struct term){
        .options = *options,
        .state = options->host ? TERM_OTHERS : TERM_WAITING,
        .former_settled_ns = INT64_MIN,
        .silent_until_ns = INT64_MIN,
        .renewed_after_ns = INT64_MIN,
    };
    term->settled_ns = now_ns + settling_ns(term);
}

/* kube-scheduler calls itself HOST_UUID. */
static bool is_ours(const struct term *term, const char *holder)
{
    size_t len = strlen(term->options.host);

    return strlen(holder) < TERM_HOLDER_SIZE && strncmp(holder, term->options.host, len) == 0 &&
           (holder[len] == '_' || holder[len] == '\0');
}

static bool is_same_term(const struct term *term, const struct lease *lease)
{
    return strncmp(term->holder, lease->holder, TERM_HOLDER_SIZE - 1) == 0 &&
           term->transitions == lease->transitions &&
           term->acquired_wall_ns == lease->acquired_wall_ns;
}

/* As many transitions as a Lease has whose holder, if it has one, took it after so many. */
static uint64_t transitions_after(uint64_t transitions, const struct lease *lease)
{
    return transitions + (lease->holder[0] != '\0');
}

/*
 * Whether the former holder's Lease has expired, as far as our looks can show: it was not renewed
 * for its whole duration, and our last look is so young that, if it was renewed since and released
 * at once, that was a late renewal (see note_renewal()).
 */
static bool has_expired(const struct term *term, const struct lease *lease, int64_t now_ns)
{
    bool known = term->renewed_after_ns != INT64_MIN;
    int64_t renewed_ns = known ? term->renewed_after_ns : term->renewed_before_ns;

    return now_ns - term->asked_ns < term->duration_ns / LATE &&
           now_ns - renewed_ns >= term->duration_ns &&
           lease->transitions <= transitions_after(term->transitions, lease);
}

/* Whether the holder before this one has handed the Lease back: only then is it no transition, or
 * one, ago. */
static bool was_handed_back(const struct lease *lease)
{
    return lease->handed_back &&
           lease->transitions == transitions_after(lease->handed_back_after, lease);
}

/* The former holder may send until its last renewal is no longer fresh. */
static void wait_for_former(struct term *term, const struct lease *lease, int64_t now_ns)
{
    bool was_idle =
        !term->holder[0] && lease->transitions <= transitions_after(term->transitions, lease);
    bool found_idle = was_idle && term->found_idle;
    /* If the former holder's Lease was never seen, its duration is taken to be the successor's. */
    int64_t duration_ns = MAX(term->duration_ns, lease->duration_ns);
    int64_t renewed_ns = now_ns;

    term->found_idle = false;
    if ((was_idle && !found_idle) || was_handed_back(lease))
        return;
    if (found_idle || (term->holder[0] && has_expired(term, lease, now_ns)))
        renewed_ns = term->renewed_before_ns;
    term->former_settled_ns =
        MAX(term->former_settled_ns, renewed_ns + lasting_ns(term, duration_ns));
}

/* The Lease was ours before we first looked. Its former holder is not known, but since when it is
 * ours. */
static void wait_for_unknown(struct term *term, const struct lease *lease, int64_t now_ns,
                             int64_t wall_ns)
{
    int64_t lasting = lasting_ns(term, lease->duration_ns);
    int64_t held_ns = MAX(wall_ns - lease->acquired_wall_ns, INT64_C(0));

    if (held_ns < lasting && !was_handed_back(lease))
        term->former_settled_ns = MAX(term->former_settled_ns, now_ns + lasting - held_ns);
}

static enum term_change end_term(struct term *term)
{
    bool was_ours = term->state != TERM_OTHERS;

    term->state = TERM_OTHERS;
    return was_ours ? TERM_ENDED : TERM_UNCHANGED;
}

static enum term_change change_holder(struct term *term, const struct lease *lease,
                                      bool looked_before, int64_t now_ns, int64_t wall_ns)
{
    enum term_change change = end_term(term);

    if (looked_before)
        wait_for_former(term, lease, now_ns);
    copy_text(term->holder, sizeof(term->holder), lease->holder);
    term->transitions = lease->transitions;
    term->acquired_wall_ns = lease->acquired_wall_ns;
    if (!lease->holder[0] || !is_ours(term, lease->holder))
        return change;
    if (!looked_before)
        wait_for_unknown(term, lease, now_ns, wall_ns);
    term->state = TERM_WAITING;
    return TERM_BEGAN;
}

/* Whoever hands the Lease back has waited for those before it. */
static enum term_change note_handed_back(struct term *term, const struct lease *lease)
{
    if (term->state != TERM_WAITING || !was_handed_back(lease) ||
        term->former_settled_ns == INT64_MIN)
        return TERM_UNCHANGED;
    term->former_settled_ns = INT64_MIN;
    return TERM_SETTLED;
}

/*
 * A renewal of ours that came so late that another extender, whose last look was before it, may
 * take the Lease for expired if its own kube-scheduler takes it now: ours may have released it
 * right after. That extender does not wait for us, so we are silent for as long as a renewal lasts.
 */
static void note_renewal(struct term *term, const struct lease *lease, int64_t now_ns)
{
    int64_t apart_ns = lease->renewed_wall_ns - term->renewed_wall_ns;

    if (term->renewed_after_ns != INT64_MIN)
        apart_ns = now_ns - term->renewed_after_ns;
    if (apart_ns < 0 || apart_ns >= term->duration_ns - term->duration_ns / LATE)
        term->silent_until_ns = now_ns + MAX(term->duration_ns, lease->duration_ns);
}

enum term_change term_see(struct term *term, const struct lease *lease, int64_t asked_ns,
                          int64_t now_ns, int64_t wall_ns)
{
    static const struct lease none = {.holder = ""};
    bool looked_before = term->looked;
    int64_t asked_before_ns = looked_before ? term->asked_ns : INT64_MIN;
    enum term_change change;
    bool same;

    term->found_idle = looked_before ? term->found_idle : lease && !lease->holder[0];
    lease = lease ? lease : &none;
    same = looked_before && is_same_term(term, lease);
    if (same)
        change = note_handed_back(term, lease);
    else
        change = change_holder(term, lease, looked_before, now_ns, wall_ns);
    term->looked = true;
    term->asked_ns = asked_ns;
    if (same && term->renewed_wall_ns == lease->renewed_wall_ns)
        return change;
    if (same && term->state != TERM_OTHERS)
        note_renewal(term, lease, now_ns);
    term->renewed_wall_ns = lease->renewed_wall_ns;
    term->duration_ns = lease->duration_ns;
    term->renewed_after_ns = asked_before_ns;
    term->renewed_before_ns = now_ns;
    return change;
}

int64_t term_settled_ns(const struct term *term)
{
    return MAX(term->settled_ns, term->former_settled_ns);
}

bool term_should_list(struct term *term, int64_t now_ns)
{
    if (term->state != TERM_WAITING || now_ns < term_settled_ns(term))
        return false;
    term->state = TERM_LISTING;
    return true;
}

bool term_listed(struct term *term)
{
    if (term->state != TERM_LISTING)
        return false;
    term->state = TERM_OURS;
    return true;
}

int64_t term_age_ns(const struct term *term, int64_t now_ns, int64_t wall_ns)
{
    if (term->renewed_after_ns == INT64_MIN || wall_ns < term->renewed_wall_ns)
        return INT64_MAX;
    return MAX(now_ns - term->renewed_after_ns, wall_ns - term->renewed_wall_ns);
}

bool term_may_send(const struct term *term, int64_t now_ns, int64_t wall_ns)
{
    if (term->state != TERM_OURS || now_ns < term->silent_until_ns)
        return false;
    return !term->options.host ||
           term_age_ns(term, now_ns, wall_ns) < fresh_ns(term, term->duration_ns);
}

enum term_word term_last_word(struct term *term, const struct lease *lease)
{
    bool held = lease->holder[0], mine = held && strcmp(lease->holder, term->holder) == 0;
    bool said = lease->handed_back && lease->handed_back_after == term->transitions;

    /* After one transition more nobody else had it in between: only a Lease without a holder makes
     * one of its former holder. */
    if (mine && lease->transitions - term->transitions <= 1) {
        term->transitions = lease->transitions;
        return TERM_HANDS_BACK;
    }
    if (!held && lease->transitions == term->transitions)
        return said ? TERM_HAS_SAID : TERM_HANDS_BACK;
    if (held && !mine && lease->transitions == term->transitions + 1 && !said)
        return TERM_SAYS;
    return TERM_LEAVES;
}

const char *term_why_not(const struct term *term)
{
    switch (term->state) {
    case TERM_OTHERS:
        return "this scheduler is not the leader: the lease is not its kube-scheduler's";
    case TERM_WAITING:
        return "what a former scheduler bound may still be on its way";
    case TERM_LISTING:
        return "pods are being listed after a change of the leader";
    case TERM_OURS:
        break;
    }
    if (fresh_ns(term, term->duration_ns) <= 0)
        return "the lease is too short for the time that a Binding may take";
    return "the lease was not renewed in time";
}

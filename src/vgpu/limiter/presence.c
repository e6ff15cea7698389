/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/presence.h"

#include "base/util.h"

/* What is this unlikely is not chance. */
#define UNLIKELY 0.01

/* Two times are the same: of a kernel's end, and of a probe right behind it. */
#define SAME_NS 600.0

/* One probe in thirty can be late for reasons of its own. */
#define CONTENDED 0.03

/* Of the sums over kernels in doubt, what the next probe leaves. */
#define DOUBT_KEPT 0.99

void presence_init(struct presence *presence)
{
    *presence = (struct presence){.on_device = 1, .run_chance = 1};
    presence_new_base(presence);
}

void presence_new_base(struct presence *presence)
{
    presence->least_known = false;
    presence->open = 0;
    for (unsigned i = 0; i < PRESENCE_PROBES; i++)
        presence->probes[i].state = PROBE_NONE;
    for (unsigned i = 0; i < PRESENCE_ENDS; i++)
        presence->ends_ns[i] = -1;
}

double presence_late_ns(struct presence *presence, double device_ns, double host_ns, int64_t now_ns)
{
    double behind_ns = device_ns - host_ns;
    double late_ns;

    if (presence->least_known)
        presence->least_ns += PRESENCE_DRIFT * (double)(now_ns - presence->least_at_ns);
    presence->least_at_ns = now_ns;
    if (!presence->least_known || behind_ns < presence->least_ns)
        presence->least_ns = behind_ns;
    presence->least_known = true;

    late_ns = behind_ns - presence->least_ns;
    return late_ns < PRESENCE_PROMPT_NS ? 0 : late_ns;
}

double presence_device_ns(const struct presence *presence, double host_ns)
{
    return presence->least_known ? host_ns + presence->least_ns : 1e30;
}

static void add(struct presence *presence, enum probe_state state, double host_ns)
{
    presence->open -= presence->probes[presence->next].state == PROBE_OPEN;
    presence->open += state == PROBE_OPEN;
    presence->probes[presence->next].at_ns = host_ns + presence->least_ns;
    presence->probes[presence->next].state = state;
    presence->next = (presence->next + 1) % PRESENCE_PROBES;
}

static void note_contention(struct presence *presence, bool on)
{
    presence->contended += ((on ? 0.0 : 1.0) - presence->contended) / 32;

    /* So long a run of "on" that the fraction so far does not explain it: the others have left. */
    presence->run_chance = on ? presence->run_chance * presence->on_device : 1;
    if (presence->run_chance < UNLIKELY) {
        presence->on_device = 1;
        presence->run_chance = 1;
    }
}

void presence_on(struct presence *presence, double host_ns)
{
    add(presence, PROBE_ON, host_ns);
    note_contention(presence, true);
}

void presence_open(struct presence *presence, double host_ns)
{
    add(presence, PROBE_OPEN, host_ns);
}

/* Whether anything of ours ended in between, the last moment included. */
static bool got_on(const struct presence *presence, double from_ns, double to_ns)
{
    for (unsigned i = 0; i < PRESENCE_ENDS; i++) {
        if (presence->ends_ns[i] > from_ns && presence->ends_ns[i] < to_ns + SAME_NS)
            return true;
    }
    return false;
}

unsigned presence_resolve(struct presence *presence, double done_ns)
{
    unsigned off = 0;

    for (unsigned i = 0; i < PRESENCE_PROBES && presence->open; i++) {
        if (presence->probes[i].state != PROBE_OPEN)
            continue;
        presence->open--;
        if (got_on(presence, presence->probes[i].at_ns, done_ns)) {
            presence->probes[i].state = PROBE_NONE;
            presence->voided++;
        } else {
            presence->probes[i].state = PROBE_OFF;
            note_contention(presence, false);
            off++;
        }
    }
    return off;
}

void presence_note_end(struct presence *presence, double end_ns)
{
    presence->ends_ns[presence->next_end] = end_ns;
    presence->next_end = (presence->next_end + 1) % PRESENCE_ENDS;
}

bool presence_contended(const struct presence *presence)
{
    return presence->contended > CONTENDED;
}

static unsigned count_within(const struct presence *presence, double start_ns, double end_ns,
                             unsigned *ret_on)
{
    unsigned all = 0;

    *ret_on = 0;
    for (unsigned i = 0; i < PRESENCE_PROBES; i++) {
        double at_ns = presence->probes[i].at_ns;

        if (at_ns < start_ns || at_ns > end_ns || presence->probes[i].state < PROBE_ON)
            continue;
        *ret_on += presence->probes[i].state == PROBE_ON;
        all++;
    }
    return all;
}

double presence_part(struct presence *presence, double start_ns, double end_ns)
{
    unsigned on, all = count_within(presence, start_ns, end_ns, &on);
    double before = presence->on_device;

    for (unsigned i = 0; i < all; i++) {
        double weight = MAX(1.0 / (presence->known + 8), 1.0 / 64);

        presence->on_device += ((double)on / all - presence->on_device) * weight;
        presence->known += presence->known < 1000;
    }
    return (on + 4 * before) / (all + 4.0);
}

double presence_doubt(struct presence *presence, double start_ns, double end_ns, double weight)
{
    unsigned on, all = count_within(presence, start_ns, end_ns, &on);

    for (unsigned i = 0; i < all; i++) {
        presence->doubt.on = presence->doubt.on * DOUBT_KEPT + weight * on / all;
        presence->doubt.all = presence->doubt.all * DOUBT_KEPT + weight;
    }
    return presence->doubt.all > 0 ? presence->doubt.on / presence->doubt.all : -1;
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Two schedulers and their kube-schedulers, stepped at random, any of them stopped for any time,
 * the clocks of their machines set now and then. A Binding is carried out up to 3 s after it was
 * sent. The judge: whoever sends has listed pods after all that anybody else sent was carried out.
 */

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/term.h"

#define S INT64_C(1000000000)
#define DAY (INT64_C(20000) * 86400 * S) /* the time of day when the monotonic clock began */

enum {
    HOSTS = 2,
};

static uint64_t random_state;

static int64_t draw(int64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int64_t)(random_state >> 20) % below;
}

static struct host {
    struct term term;
    char name[8], identity[16];
    int64_t stopped_until_ns;         /* the extender */
    int64_t kube_stopped_until_ns;    /* its kube-scheduler */
    int64_t wall_offset_ns, set_ns;   /* of the machine's clock; when it was set */
    struct lease observed;            /* by kube-scheduler, and when */
    int64_t observed_ns, next_try_ns; /* of kube-scheduler's */
    int64_t asked_ns;                 /* 0: no look is under way */
    struct lease answer;              /* to it */
    char answer_holder[16];
    bool ending;
} hosts[HOSTS];

static struct {
    struct lease lease;
    char holder[16];
    int64_t listed_ns[HOSTS]; /* when the list of its term began; INT64_MIN: none */
    int64_t carried_out_ns[HOSTS];
    uint64_t sends, terms, words[TERM_LEAVES + 1];
} server;

static bool is_same_lease(const struct lease *a, const struct lease *b)
{
    return a->renewed_wall_ns == b->renewed_wall_ns && a->transitions == b->transitions &&
           a->handed_back == b->handed_back && a->handed_back_after == b->handed_back_after;
}

/* As client-go's leader election does it. */
static void step_kube_scheduler(struct host *host, int64_t now_ns)
{
    bool mine = strcmp(server.holder, host->identity) == 0;

    if (now_ns < host->kube_stopped_until_ns || now_ns < host->next_try_ns)
        return;
    host->next_try_ns = now_ns + (mine ? 2 * S : 2 * S + draw(2400) * S / 1000);
    if (!is_same_lease(&host->observed, &server.lease)) {
        host->observed = server.lease;
        host->observed_ns = now_ns;
    }
    if (!mine && server.holder[0] && host->observed_ns + 15 * S >= now_ns)
        return;
    if (!mine) {
        server.lease.transitions++;
        server.lease.acquired_wall_ns = DAY + now_ns + host->wall_offset_ns;
        (void)strcpy(server.holder, host->identity);
    }
    server.lease.renewed_wall_ns = DAY + now_ns + host->wall_offset_ns;
    server.lease.duration_ns = 15 * S;
}

static void send_binding(unsigned self, int64_t now_ns)
{
    int64_t done_ns = now_ns + draw(3 * S);

    for (unsigned other = 0; other < HOSTS; other++)
        assert_false(other != self && server.carried_out_ns[other] > server.listed_ns[self]);
    server.sends++;
    server.carried_out_ns[self] = MAX(server.carried_out_ns[self], done_ns);
}

static void step_look(struct host *host, int64_t now_ns)
{
    if (!host->asked_ns) {
        host->asked_ns = now_ns;
        host->answer = server.lease;
        (void)strcpy(host->answer_holder, server.holder);
        host->answer.holder = host->answer_holder;
        return;
    }
    (void)term_see(&host->term, &host->answer, host->asked_ns, now_ns,
                   DAY + now_ns + host->wall_offset_ns);
    host->asked_ns = 0;
}

/* Told to end: it decides nothing any more, waits for what it sent, and then hands the Lease
 * back, by a request that changes what it has read. */
static void step_ending(unsigned self, int64_t now_ns)
{
    struct host *host = &hosts[self];
    enum term_word word;

    server.listed_ns[self] = INT64_MIN;
    if (server.carried_out_ns[self] >= now_ns)
        return;
    server.lease.holder = server.holder;
    word = host->term.state == TERM_OURS ? term_last_word(&host->term, &server.lease) : TERM_LEAVES;
    server.words[word]++;
    if (word == TERM_HANDS_BACK || word == TERM_SAYS) {
        server.lease.handed_back = true;
        server.lease.handed_back_after = host->term.transitions;
    }
    if (word == TERM_HANDS_BACK)
        server.holder[0] = '\0';
    if (word == TERM_LEAVES || draw(8) == 0) {
        host->ending = false;
        host->asked_ns = 0;
        term_init(&host->term, &(struct term_options){host->name, 3 * S}, now_ns);
    }
}

static void step_extender(unsigned self, int64_t now_ns)
{
    struct host *host = &hosts[self];

    if (now_ns < host->stopped_until_ns)
        return;
    if (host->ending) {
        step_ending(self, now_ns);
        return;
    }
    step_look(host, now_ns);
    if (host->term.state < TERM_LISTING)
        server.listed_ns[self] = INT64_MIN;
    if (term_should_list(&host->term, now_ns)) {
        server.listed_ns[self] = now_ns;
        server.terms++;
    } else if (draw(2)) {
        (void)term_listed(&host->term);
    }
    if (term_may_send(&host->term, now_ns, DAY + now_ns + host->wall_offset_ns))
        send_binding(self, now_ns);
}

static void disturb(struct host *host, int64_t now_ns)
{
    switch (draw(40)) {
    case 0:
        host->stopped_until_ns = now_ns + draw(40 * S);
        break;
    case 1:
        host->kube_stopped_until_ns = now_ns + draw(40 * S);
        break;
    case 2:
        host->wall_offset_ns += draw(7200 * S) - 3600 * S;
        host->set_ns = now_ns;
        break;
    case 3: /* started anew; that the clock was just set it could not know */
        if (now_ns - host->set_ns < 60 * S)
            break;
        term_init(&host->term, &(struct term_options){host->name, 3 * S}, now_ns);
        host->asked_ns = 0;
        break;
    case 4: /* the Lease is released, or deleted */
        if (draw(3) == 0)
            server.holder[0] = '\0';
        break;
    case 5: /* ended in order, its kube-scheduler before, after, or not at all */
        if (now_ns - host->set_ns >= 60 * S)
            host->ending = true;
        if (draw(2) && strcmp(server.holder, host->identity) == 0)
            server.holder[0] = '\0';
        break;
    default:
        break;
    }
}

static void test_two_that_are_disturbed_never_decide_at_once(void **state)
{
    int64_t now_ns = S;

    (void)state;
    random_state = UINT64_C(0x9e3779b97f4a7c15);
    memset(&server, 0, sizeof(server));
    for (unsigned i = 0; i < HOSTS; i++) {
        hosts[i] = (struct host){0};
        (void)snprintf(hosts[i].name, sizeof(hosts[i].name), "h%u", i);
        (void)snprintf(hosts[i].identity, sizeof(hosts[i].identity), "h%u_x", i);
        term_init(&hosts[i].term, &(struct term_options){hosts[i].name, 3 * S}, now_ns);
        server.listed_ns[i] = INT64_MIN;
    }
    for (unsigned i = 0; i < 50000000; i++) {
        struct host *host = &hosts[i % HOSTS];

        now_ns += draw(S);
        step_kube_scheduler(host, now_ns);
        step_extender(i % HOSTS, now_ns);
        if (draw(20) == 0)
            disturb(host, now_ns);
    }
    assert_true(server.sends > 10000 && server.terms > 1000);
    for (int word = TERM_HANDS_BACK; word <= TERM_LEAVES; word++)
        assert_true(server.words[word] > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_that_are_disturbed_never_decide_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

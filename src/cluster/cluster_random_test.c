/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random steps against a pretended API server (random_world.h), watched by a judge
 * (random_judge.h). Every so often all is delivered: then the state must equal, byte for byte, one
 * that is built from the objects alone, and what the judge counts; and a pod for which the judge
 * sees room must be placed.
 *
 * usage: cluster_random_test STEPS [SEED]
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "cluster/random_judge.h"
#include "cluster/random_pods.h"
#include "cluster/random_steps.h"
#include "cluster/rebuild_test.h"

enum {
    ACTIONS = 4,        /* of a step */
    SETTLE_STEPS = 400, /* between two looks at all */
    PROBES = 200,       /* pods that are tried then */
};

static struct api_pod *const pods = world.api.pods;

static void step_turns(void)
{
    for (unsigned i = 0; i < NODES; i++)
        locks_step(i);
}

static void step_allocate(void)
{
    locks_allocate(world_draw(NODES));
}

static void step_disturb(void)
{
    locks_disturb(world_draw(NODES));
}

static const struct {
    void (*run)(void);
    unsigned weight;
} steps[] = {
    {step_create, 20}, {step_delete, 14},   {step_filter, 30},      {step_bind, 25},
    {step_read, 10},   {step_node, 3},      {step_bind_answer, 35}, {step_time, 6},
    {step_requeue, 2}, {step_unseen, 5},    {step_term, 5},         {step_late_answer, 1},
    {step_agent, 2},   {step_quota, 2},     {step_turns, 40},       {step_allocate, 12},
    {step_disturb, 1}, {step_late_bind, 4}, {step_filter_bound, 1}, {step_evict, 12},
};

/* What happened just before it the watch does not bring any more. */
static void begin_list(enum kind kind)
{
    static void (*const change[KINDS])(void) = {
        [KIND_NODE] = step_node, [KIND_POD] = step_delete, [KIND_QUOTA] = step_quota};

    for (unsigned i = 0; i < 3; i++)
        change[kind]();
    world_begin_list(kind);
}

static void act(void)
{
    unsigned total = 0, chosen;

    for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
        total += steps[i].weight;
    chosen = world_draw(total);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        if (chosen < steps[i].weight) {
            steps[i].run();
            break;
        }
        chosen -= steps[i].weight;
    }
    for (enum kind kind = 0; kind < KINDS; kind++)
        world_move_on(kind, world_draw(3));
    if (world_draw(300) == 0)
        begin_list((enum kind)world_draw(KINDS));
}

static void take_step(void)
{
    for (unsigned i = 0; i < ACTIONS; i++)
        act();
}

/* Looks at all. */

static void deliver_all(void)
{
    for (enum kind kind = 0; kind < KINDS; kind++)
        world_deliver_all(kind);
}

/* What is written of handshakes is written, and shown. */
static void settle_agents(void)
{
    for (unsigned i = 0; i < 8; i++) {
        world_pass(20 * SECOND_NS);
        deliver_all();
        world_look_at_agents(false);
        judge_counts(); /* before the watch shows what was written */
        deliver_all();
    }
}

static void settle(void)
{
    evictions_end();
    for (unsigned i = 0; i < PODS; i++)
        bind_read(&pods[i]);
    deliver_all();
    for (unsigned i = 0; i < PODS; i++) {
        pods[i].decided = false;
        if (pods[i].binding)
            bind_end(&pods[i], pods[i].node[0] ? CLUSTER_BOUND : CLUSTER_NOT_BOUND);
    }
    world_pass(CLUSTER_RESERVATION_NS);
    cluster_expire(world.cluster, world.now_ns);
    step_unseen();
    deliver_all();
    settle_agents();
}

/* A line each for a node, a pod, a quota. */
static void check_same(const char *kept, const char *built)
{
    while (*kept && *built) {
        const size_t len = strcspn(kept, "\n"), other = strcspn(built, "\n");

        if (len != other || memcmp(kept, built, len) != 0)
            fail_msg("%.*s\nis when it is built anew\n%.*s", (int)len, kept, (int)other, built);
        kept += len + (kept[len] != '\0');
        built += other + (built[other] != '\0');
    }
    assert_string_equal(kept, built);
}

static void check_rebuilt(void)
{
    CLEANUP(cluster_freep) struct cluster *fresh = world_new_cluster();
    struct strbuf kept = STRBUF_INIT(16 << 20), built = STRBUF_INIT(16 << 20);
    struct cluster_handshake writes[NODES];

    world_list(fresh);
    (void)cluster_handshakes(fresh, world.now_ns, WALL_NS + world.now_ns, writes, 0);
    cluster_view(world.cluster, &kept);
    cluster_view(fresh, &built);
    check_same(strbuf_text(&kept), strbuf_text(&built));
    strbuf_deinit(&kept);
    strbuf_deinit(&built);
}

/* What it shows as objects, too, makes the same cluster. */
static void check_objects(void)
{
    CLEANUP(cluster_freep) struct cluster *fresh = world_new_cluster();

    rebuild_from_objects(world.cluster, world.vendors, fresh);
    rebuild_check_same(world.cluster, fresh);
}

static void fail_seen(const struct api_pod *pod)
{
    const struct ask *gpu = &pod->asks[NVIDIA], *dcu = &pod->asks[HYGON],
                     *chip = &pod->asks[NEURON];
    struct strbuf view = STRBUF_INIT(1 << 20);

    cluster_view(world.cluster, &view);
    (void)fprintf(stderr,
                  "the judge sees room for %s in %s: %d GPUs of %d MiB, %d %%, %d cores, NUMA %d, "
                  "list %d; %d DCUs of %d, %d; %d chips or %d cores; policy %d, shape %d: %s\n%s",
                  pod->uid, pod->space, gpu->count, gpu->memory, gpu->percent, gpu->cores,
                  pod->one_numa, pod->list, dcu->count, dcu->memory, dcu->cores, chip->count,
                  chip->cores, pod->policy, pod->shape, filter_why(), strbuf_text(&view));
    fail();
}

/* Some pod is tried: a refusal must be right, and so must be what is given. */
static void probe(void)
{
    const unsigned first = world_draw(4) ? 0 : world_draw(NODES);
    struct api_pod *pod = pods_pick(pods_is_free);
    bool room;

    if (!pod)
        return;
    pods_make(pod);
    pod->exists = true;
    room = judge_has_room(pod, first);
    filter_among(pod, first);
    if (room && !pod->decided)
        fail_seen(pod);
    world.covered.probes_placed += pod->decided;
    world.covered.probes_refused += !pod->decided;
    if (pod->decided && world_draw(2)) {
        assert_true(bind_begin(pod));
        judge_is_alone(pods_number(pod));
        bind_end(pod, CLUSTER_NOT_BOUND);
    }
    cluster_delete_pod(world.cluster, pod->uid);
    pod->decided = pod->exists = false;
}

static void look_at_all(void)
{
    settle();
    check_rebuilt();
    check_objects();
    judge_counts();
    for (unsigned i = 0; i < PROBES; i++)
        probe();
    check_rebuilt();
}

static void check_covered(uint64_t step_count)
{
    const struct covered *covered = &world.covered;
    const struct {
        const char *what;
        uint64_t count;
    } rows[] = {
        {"grants of NVIDIA", covered->placed[NVIDIA]},
        {"of Hygon", covered->placed[HYGON]},
        {"of Neuron", covered->placed[NEURON]},
        {"of two vendors", covered->two_vendors},
        {"MIG instances", covered->instances},
        {"of one geometry", covered->groups[0]},
        {"of the other", covered->groups[1]},
        {"by profile", covered->groups[2]},
        {"of one NUMA node", covered->one_numa},
        {"topology-aware", covered->connected},
        {"refused", covered->refused},
        {"refused by quota", covered->quota_refusals},
        {"grants up to a quota", covered->quotas_full},
        {"quotas changed", covered->quotas_lowered},
        {"bound", covered->bound},
        {"asked again during a bind", covered->conflicts},
        {"requeued", covered->requeued},
        {"answered late", covered->late},
        {"found gone", covered->gone},
        {"terms", covered->terms},
        {"renewed", covered->renewed},
        {"not renewed", covered->no_renewal},
        {"turns of nodes", covered->turns},
        {"binds that waited for one", covered->waited},
        {"that gave up", covered->gave_up},
        {"locks found", covered->locks_found},
        {"broken", covered->locks_broken},
        {"left behind", covered->locks_left},
        {"failed allocations", covered->failed},
        {"agents asked", covered->asked},
        {"silent", covered->silent},
        {"back", covered->back},
        {"nodes changed", covered->changed},
        {"pods on cards that changed their mode", covered->misused},
        {"evicted", covered->evicted},
        {"not evicted", covered->not_evicted},
        {"rooms kept", covered->held},
        {"taken by whom they were made for", covered->rooms},
        {"probes placed", covered->probes_placed},
        {"probes refused", covered->probes_refused},
    };

    printf("%" PRIu64 " steps:", step_count);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        printf("%s %" PRIu64 " %s", i ? "," : "", rows[i].count, rows[i].what);
    printf("\n");
    /* A test in which nothing happens shows nothing. */
    for (size_t i = 0; i < ARRAY_SIZE(rows) && step_count >= 50000; i++) {
        if (!rows[i].count)
            fail_msg("there were no %s", rows[i].what);
    }
}

static uint64_t step_count = 100000, seed = 1;

enum {
    WORLDS = 4,
    SCARCITY_WORLD = 1,
    EVICTING_WORLD = 3,
};

/* Of four worlds one places by scarcity, whose work between decisions is done now and then; in
 * another pods are evicted for more important ones. */
static void live_through(const struct vendor_set *vendors, unsigned number)
{
    world_set_up(vendors, seed + number, number == SCARCITY_WORLD, number == EVICTING_WORLD);
    for (uint64_t i = 0; i < step_count / WORLDS; i++) {
        take_step();
        if (number == SCARCITY_WORLD && world_draw(3) == 0)
            (void)cluster_work(world.cluster, world_draw(20));
        if (i % SETTLE_STEPS == SETTLE_STEPS - 1)
            look_at_all();
    }
    look_at_all();
    world_tear_down();
}

static void test_random_steps(void **state)
{
    const struct vendor_set *vendors = world_load_vendors();

    (void)state;
    for (unsigned number = 0; number < WORLDS; number++)
        live_through(vendors, number);
    check_covered(step_count);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_steps)};

    if (argc > 1)
        step_count = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

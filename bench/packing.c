/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How well a policy packs: nodes and pods of two files are put into a cluster, pods in random
 * order, and the scheduler's own code decides. See packing.py, which makes a table of it.
 *
 * usage: packing NODES PODS POLICY SETTING SEED [LOAD]
 *
 * NODES has rows "count,gpus,model,cpu_milli,memory_mib", PODS "count,gpus,gpu_milli,cpu_milli,
 * memory_mib,models" with | between models. SETTING: gpu, the policy places pods with GPUs, and
 * those without go where kube-scheduler puts them (least allocated, balanced); all: it places both.
 *
 * Without LOAD pods arrive, none leaves, until 130 % of the GPUs are asked for. Prints the GPUs,
 * and then for each percent from 0 to 130 of what arrived how many percent are allocated. With
 * LOAD, percent of the GPUs that pods would hold if all had room, pods come and go. Prints how many
 * percent are allocated, and how many of those asked for were refused.
 *
 * SETTING time: of pods with GPUs alone, all nodes named each time. Prints ns: choosing p50 and
 * p99, the work after a pod p50, all of the work a pod; then bytes in use.
 */

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

enum {
    MODEL_SIZE = 64,
    NAME_SIZE = 32,
    CARD_MIB = 32768,
    PERCENT_MAX = 130,
    NODES_MAX = 100000,
    KINDS_MAX = 1024,
    WARM_UP = 2, /* of a pod's mean life */
    SPAN = 4,
    ROUND = 100, /* steps of work at a time */
};

struct machine {
    char name[NAME_SIZE], model[MODEL_SIZE];
    unsigned gpus;
    int64_t cpu, memory, cpu_left, memory_left;
};

/* Pods that are alike. */
struct kind {
    unsigned gpus, milli;
    int64_t cpu, memory;
    char models[MODEL_SIZE];
};

struct live {
    double until;
    size_t machine, kind, number;
};

static struct machine *machines;
static size_t machine_count;
static struct kind kinds[KINDS_MAX];
static size_t kind_count;
static size_t *trace; /* kinds */
static size_t trace_count;
static uint64_t capacity_milli;
static struct live *lives; /* a heap, the first to leave on top */
static size_t live_count;

static enum place_order policy;
static bool all, timed;
static struct nvidia_config config;
static struct vendor_set vendors;
static struct cluster *cluster;
static struct arena *arena;
static const char **names;
static uint64_t random_state;

static void *must(void *memory)
{
    if (!memory)
        exit(EXIT_FAILURE);
    return memory;
}

static uint64_t draw64(void)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t draw(size_t below)
{
    return (size_t)((draw64() >> 11) % below);
}

static double draw_life(void)
{
    return -log(1 - (double)(draw64() >> 11) * 0x1p-53);
}

/* The files */

static FILE *open_rows(const char *path)
{
    char head[256];
    FILE *file = fopen(path, "r");

    if (!file || !fgets(head, sizeof(head), file)) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    return file;
}

static void read_machines(const char *path)
{
    FILE *file = open_rows(path);
    struct machine row = {0};
    unsigned count;

    machines = must(calloc(NODES_MAX, sizeof(*machines)));
    while (fscanf(file, "%u,%u,%63[^,],%ld,%ld\n", &count, &row.gpus, row.model, &row.cpu,
                  &row.memory) == 5) {
        for (; count-- > 0 && machine_count < NODES_MAX; capacity_milli += 1000 * row.gpus)
            machines[machine_count++] = row;
    }
    (void)fclose(file);
}

static void read_pods(const char *path)
{
    FILE *file = open_rows(path);
    unsigned count;
    char line[256];

    while (fgets(line, sizeof(line), file) && kind_count < KINDS_MAX) {
        struct kind *kind = &kinds[kind_count];

        kind->models[0] = '\0';
        if (sscanf(line, "%u,%u,%u,%ld,%ld,%63[^\n\r]", &count, &kind->gpus, &kind->milli,
                   &kind->cpu, &kind->memory, kind->models) < 5)
            continue;
        for (char *c = kind->models; *c; c++)
            *c = *c == '|' ? ',' : *c;
        trace = must(reallocarray(trace, trace_count + count, sizeof(*trace)));
        while (count-- > 0)
            trace[trace_count++] = kind_count;
        kind_count++;
    }
    (void)fclose(file);
}

static void shuffle_machines(void)
{
    for (size_t i = machine_count - 1; i > 0; i--) {
        const size_t other = draw(i + 1);
        const struct machine moved = machines[i];

        machines[i] = machines[other];
        machines[other] = moved;
    }
    for (size_t i = 0; i < machine_count; i++) {
        (void)snprintf(machines[i].name, NAME_SIZE, "node-%06zu", i);
        machines[i].cpu_left = machines[i].cpu;
        machines[i].memory_left = machines[i].memory;
    }
}

static unsigned milli_of(size_t kind)
{
    return kinds[kind].gpus * kinds[kind].milli;
}

/* The trace in random order, and then pods drawn from it, until so much is asked for. */
static size_t make_arrivals(size_t **ret_arrivals)
{
    const uint64_t wanted = capacity_milli * PERCENT_MAX / 100;
    size_t count = 0, size = trace_count;
    size_t *arrivals = must(calloc(size, sizeof(*arrivals)));
    uint64_t total = 0;

    memcpy(arrivals, trace, trace_count * sizeof(*arrivals));
    for (size_t i = trace_count - 1; i > 0; i--) {
        const size_t other = draw(i + 1), moved = arrivals[i];

        arrivals[i] = arrivals[other];
        arrivals[other] = moved;
    }
    while (count < trace_count && total + milli_of(arrivals[count]) <= wanted)
        total += milli_of(arrivals[count++]);
    while (count >= trace_count) {
        const size_t kind = trace[draw(trace_count)];

        if (total + milli_of(kind) > wanted)
            break;
        if (count == size)
            arrivals = must(reallocarray(arrivals, size *= 2, sizeof(*arrivals)));
        total += milli_of(kind);
        arrivals[count++] = kind;
    }
    *ret_arrivals = arrivals;
    return count;
}

/* The cluster */

static void add_machine(const struct machine *machine)
{
    static char text[8192];
    struct text_pair pair = {NVIDIA_REGISTER_KEY, text};
    struct resource resource = {.name = "nvidia.com/gpu", .text = "80"};
    const struct node node = {
        .name = machine->name,
        .uid = "",
        .resource_version = "",
        .has_status = true,
        .ready = true,
        .annotations = {&pair, 1},
        .allocatable = {&resource, 1},
        .amounts = {(uint64_t)machine->cpu, (uint64_t)machine->memory},
    };
    size_t len = 0;

    for (unsigned i = 0; i < machine->gpus; i++)
        len += (size_t)snprintf(
            text + len, sizeof(text) - len,
            "%c{\"id\":\"%s-%u\",\"index\":%u,\"count\":10,\"devmem\":%d,\"devcore\":100,"
            "\"type\":\"NVIDIA %s\",\"numa\":0,\"mode\":\"hami-core\",\"health\":true,"
            "\"custominfo\":{\"lock\":\"none\"}}",
            i ? ',' : '[', machine->name, i, i, CARD_MIB, machine->model);
    strcpy(text + len, "]");
    resource.quantity = (struct quantity){QUANTITY_WHOLE, 10 * (int64_t)machine->gpus};
    if (cluster_set_node(cluster, &node, NULL) < 0)
        exit(EXIT_FAILURE);
}

static void make_cluster(void)
{
    const struct cluster_options options = {
        .vendors = &vendors,
        .defaults = {.node_order = policy, .policy = {.order = PLACE_BINPACK}},
    };

    nvidia_config_defaults(&config);
    (void)nvidia_add_instance(&vendors, &config);
    cluster = must(cluster_new(&options));
    arena = must(arena_new(1u << 30));
    names = must(calloc(machine_count, sizeof(*names)));
    for (size_t i = 0; i < machine_count; i++)
        names[i] = machines[i].name;
    cluster_begin(cluster, CLUSTER_NODES);
    for (size_t i = 0; i < machine_count; i++)
        add_machine(&machines[i]);
    cluster_complete(cluster, CLUSTER_NODES);
    cluster_begin(cluster, CLUSTER_PODS);
    cluster_complete(cluster, CLUSTER_PODS);
}

static bool has_room(const struct machine *machine, const struct kind *kind)
{
    return machine->cpu_left >= kind->cpu && machine->memory_left >= kind->memory;
}

/* What kube-scheduler leaves to the extender. */
static size_t list_candidates(const struct kind *kind)
{
    size_t count = 0;

    if (timed)
        return machine_count;

    for (size_t i = 0; i < machine_count; i++) {
        if (has_room(&machines[i], kind))
            names[count++] = machines[i].name;
    }
    return count;
}

static size_t find_machine(const char *name)
{
    return (size_t)atol(name + strlen("node-"));
}

static void charge(size_t machine, size_t kind, int by)
{
    machines[machine].cpu_left -= by * kinds[kind].cpu;
    machines[machine].memory_left -= by * kinds[kind].memory;
}

/* kube-scheduler's scores: least allocated, and as much of the one as of the other. */
static double spread_score(const struct machine *machine, const struct kind *kind)
{
    const double cpu = (double)(machine->cpu_left - kind->cpu) / (double)machine->cpu;
    const double memory = (double)(machine->memory_left - kind->memory) / (double)machine->memory;

    return 50 * (cpu + memory) + 100 * (1 - fabs(cpu - memory));
}

static double score_plain(const struct machine *machine, const struct kind *kind)
{
    if (!all)
        return spread_score(machine, kind);
    return (policy == PLACE_SPREAD ? -1 : 1) *
           (double)cluster_find_node(cluster, machine->name)->score;
}

/* machine_count: nowhere. */
static size_t choose_plain(const struct kind *kind)
{
    size_t best = machine_count;
    double most = 0, score;

    for (size_t i = 0; i < machine_count; i++) {
        if (!has_room(&machines[i], kind))
            continue;
        score = score_plain(&machines[i], kind);
        if (best < machine_count && score <= most)
            continue;
        best = i;
        most = score;
    }
    return best;
}

struct asked {
    struct resource limits[3];
    struct container container;
    struct text_pair note;
    char uid[NAME_SIZE];
    struct pod pod;
};

static void write_pod(const struct kind *kind, size_t number, struct asked *asked)
{
    const int64_t percent = kind->milli / 10;

    *asked = (struct asked){
        .limits = {{"nvidia.com/gpu", "", {QUANTITY_WHOLE, kind->gpus}},
                   {"nvidia.com/gpumem-percentage", "", {QUANTITY_WHOLE, percent}},
                   {"nvidia.com/gpucores", "", {QUANTITY_WHOLE, percent}}},
        .note = {"nvidia.com/use-gputype", kind->models},
    };
    (void)snprintf(asked->uid, sizeof(asked->uid), "pod-%012zu", number);
    asked->container = (struct container){
        .name = "c",
        .has_resources = true,
        .has_limits = true,
        .limits = {asked->limits, kind->gpus ? 3 : 0},
    };
    asked->pod = (struct pod){
        .namespace = "default",
        .name = asked->uid,
        .uid = asked->uid,
        .resource_version = "1",
        .annotations = {&asked->note, kind->models[0] ? 1 : 0},
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &asked->container,
        .amounts = {(uint64_t)kind->cpu, (uint64_t)kind->memory},
    };
}

/* Binds it, and shows it bound. */
static void bind_pod(const struct pod *asked, const char *node)
{
    const struct cluster_bind bind = {asked->namespace, asked->name, asked->uid, node};
    struct pod pod = *asked;

    if (cluster_bind(cluster, &bind, 0, 0, arena, &pod.annotations, NULL) < 0)
        exit(EXIT_FAILURE);
    cluster_bound(cluster, pod.uid, CLUSTER_BOUND, 0);
    pod.node_name = node;
    if (cluster_set_pod(cluster, &pod, NULL) < 0)
        exit(EXIT_FAILURE);
}

static size_t place_plain(struct asked *asked, const struct kind *kind)
{
    struct cluster_answer answer = {0};
    size_t at;

    if (!all || policy != PLACE_SCARCITY) {
        at = choose_plain(kind);
    } else {
        const size_t count = list_candidates(kind);

        if (!count)
            return machine_count;
        if (cluster_filter(cluster, &asked->pod, names, count, 0, arena, &answer, NULL) !=
                CLUSTER_NOT_OURS ||
            !answer.kept_count)
            exit(EXIT_FAILURE);
        at = find_machine(answer.kept[0]);
    }
    if (at == machine_count)
        return at;
    asked->pod.node_name = machines[at].name;
    if (cluster_set_pod(cluster, &asked->pod, NULL) < 0)
        exit(EXIT_FAILURE);
    return at;
}

static size_t place_gpus(const struct asked *asked, const struct kind *kind)
{
    struct cluster_answer answer;
    const size_t count = list_candidates(kind);
    const int r = cluster_filter(cluster, &asked->pod, names, count, 0, arena, &answer, NULL);

    if (r == CLUSTER_REFUSED)
        return machine_count;
    if (r != CLUSTER_PLACED)
        exit(EXIT_FAILURE);
    bind_pod(&asked->pod, answer.node);
    return find_machine(answer.node);
}

static size_t place(size_t kind, size_t number)
{
    struct asked asked;
    size_t at;

    arena_reset(arena);
    write_pod(&kinds[kind], number, &asked);
    at = kinds[kind].gpus ? place_gpus(&asked, &kinds[kind]) : place_plain(&asked, &kinds[kind]);
    if (at < machine_count)
        charge(at, kind, 1);
    while (cluster_work(cluster, ROUND))
        ;
    return at;
}

/* Arrivals alone */

static void run_fill(void)
{
    double allocated[PERCENT_MAX + 2] = {0}, arrived = 0, held = 0;
    unsigned counts[PERCENT_MAX + 2] = {0};
    size_t *arrivals;
    const size_t count = make_arrivals(&arrivals);

    for (size_t i = 0; i < count; i++) {
        size_t percent;

        arrived += milli_of(arrivals[i]);
        if (place(arrivals[i], i) < machine_count)
            held += milli_of(arrivals[i]);
        percent = (size_t)lround(100 * arrived / (double)capacity_milli);
        allocated[percent] += 100 * held / (double)capacity_milli;
        counts[percent]++;
    }
    printf("%lu", (unsigned long)(capacity_milli / 1000));
    for (size_t i = 0; i <= PERCENT_MAX; i++)
        printf(" %.4f", counts[i] ? allocated[i] / counts[i] : -1.0);
    printf("\n");
    free(arrivals);
}

/* Times */

static int compare(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

static int64_t part(int64_t *times, size_t count, double which)
{
    qsort(times, count, sizeof(times[0]), compare);
    return times[(size_t)((double)(count - 1) * which)];
}

/* Of the processor: what else runs on the machine is not counted. */
static int64_t spent_ns(void)
{
    return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static void run_time(void)
{
    size_t *arrivals, measured = 0;
    const size_t count = make_arrivals(&arrivals);
    int64_t *choosing = must(calloc(count, sizeof(*choosing)));
    int64_t *working = must(calloc(count, sizeof(*working))), sum = 0;

    for (size_t i = 0; i < count; i++) {
        const struct kind *kind = &kinds[arrivals[i]];
        struct cluster_answer answer;
        struct asked asked;
        int64_t begun;
        int r;

        if (!kind->gpus)
            continue;
        arena_reset(arena);
        write_pod(kind, i, &asked);
        begun = spent_ns();
        r = cluster_filter(cluster, &asked.pod, names, machine_count, 0, arena, &answer, NULL);
        choosing[measured] = spent_ns() - begun;
        if (r == CLUSTER_PLACED)
            bind_pod(&asked.pod, answer.node);
        begun = spent_ns();
        while (cluster_work(cluster, ROUND))
            ;
        working[measured] = spent_ns() - begun;
        sum += working[measured];
        measured += r == CLUSTER_PLACED;
    }
    printf("%ld %ld %ld %ld %zu\n", part(choosing, measured, 0.5), part(choosing, measured, 0.99),
           part(working, measured, 0.5), sum / (int64_t)measured, mallinfo2().uordblks);
    free(choosing);
    free(working);
    free(arrivals);
}

/* Departures */

static void live_sink(size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1;
        struct live moved;

        if (child >= live_count)
            return;
        child += child + 1 < live_count && lives[child + 1].until < lives[child].until;
        if (lives[at].until <= lives[child].until)
            return;
        moved = lives[at];
        lives[at] = lives[child];
        lives[child] = moved;
        at = child;
    }
}

static void live_push(struct live live)
{
    size_t at = live_count++;

    lives = must(reallocarray(lives, live_count, sizeof(*lives)));
    for (; at > 0 && lives[(at - 1) / 2].until > live.until; at = (at - 1) / 2)
        lives[at] = lives[(at - 1) / 2];
    lives[at] = live;
}

static void leave(const struct live *live)
{
    char uid[NAME_SIZE];

    (void)snprintf(uid, sizeof(uid), "pod-%012zu", live->number);
    cluster_delete_pod(cluster, uid);
    charge(live->machine, live->kind, -1);
}

static void run_departures(double load)
{
    double mean = 0, now = 0, held = 0, area = 0, asked = 0, refused = 0, rate;

    for (size_t i = 0; i < trace_count; i++)
        mean += milli_of(trace[i]);
    rate = load / 100 * (double)capacity_milli / (mean / (double)trace_count);
    for (size_t number = 0; now < WARM_UP + SPAN; number++) {
        const double next = now + draw_life() / rate, life = draw_life();
        const size_t kind = trace[draw(trace_count)];
        size_t at;

        while (live_count && lives[0].until <= next) {
            const struct live gone = lives[0];

            area += held * MAX(gone.until - MAX(now, (double)WARM_UP), 0.0);
            now = gone.until;
            lives[0] = lives[--live_count];
            live_sink(0);
            leave(&gone);
            held -= milli_of(gone.kind);
        }
        area += held * MAX(next - MAX(now, (double)WARM_UP), 0.0);
        now = next;
        at = place(kind, number);
        if (now > WARM_UP)
            asked += milli_of(kind);
        if (at < machine_count) {
            held += milli_of(kind);
            live_push((struct live){now + life, at, kind, number});
        } else if (now > WARM_UP) {
            refused += milli_of(kind);
        }
    }
    printf("%.4f %.4f\n", 100 * area / ((now - WARM_UP) * (double)capacity_milli),
           100 * refused / asked);
}

int main(int argc, char **argv)
{
    if ((argc != 6 && argc != 7) || !place_node_order_read(argv[3], &policy))
        return 2;
    all = strcmp(argv[4], "all") == 0;
    timed = strcmp(argv[4], "time") == 0;
    random_state = strtoull(argv[5], NULL, 10) * 7919 + 17;
    read_machines(argv[1]);
    read_pods(argv[2]);
    if (!machine_count || !trace_count)
        return 2;
    shuffle_machines();
    make_cluster();
    if (argc == 7)
        run_departures(atof(argv[6]));
    else if (timed)
        run_time();
    else
        run_fill();
    cluster_free(cluster);
    arena_free(arena);
    free(names);
    free(machines);
    free(trace);
    free(lives);
    return 0;
}

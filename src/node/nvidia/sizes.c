/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/sizes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "driver/nvml.h"
#include "node/nvidia/measure.h"

#define SIZES_FILE "contexts"
#define ROOM_BYTES GIB                /* free on a card before we make a context there */
#define OWN_ROOM_BYTES (512 * MIB)    /* of the host's memory, which a context takes as well */
#define BUSY_AGAIN_NS (60 * NS_PER_S) /* on a card that others use */
#define FAILED_AGAIN_NS (10 * NS_PER_S)

enum {
    SIZES_MAX = 64,
    FILE_MAX = 16 << 10,
    LIMIT_MS = 30000,
    FAILURES_MAX = 7, /* the pause after one is not doubled more often */
    ANSWER_MAX = 512,
    VARIABLES_MAX = 512,
    END_TIMES = 50, /* a killed process is waited for */
    END_MS = 10,
};

#define KIND_SIZE sizeof(((struct card *)0)->type)

/* A kind of card. */
struct size {
    char kind[KIND_SIZE];
    uint64_t bytes; /* 0: not measured */
    int64_t again_ns;
    unsigned failures;
    char why[ANSWER_MAX]; /* as it was said last */
};

struct sizes {
    struct sizes_options options;

    pthread_mutex_t
        lock; /* for what follows, which the thread that finds the cards alone changes */
    char driver[NVML_VERSION_SIZE];
    size_t count;
    struct size items[SIZES_MAX];

    /* That thread's own. */
    pid_t child; /* 0: none */
    int answer;  /* its standard output; -1: none */
    int64_t began_ns;
    char measuring[KIND_SIZE];
    char uuid[DEVICE_UUID_SIZE];
    struct nvml_process listed[MEASURE_PROCESSES_MAX];
};

/* What is known */

static struct size *find_kind(struct sizes *sizes, const char *kind)
{
    for (size_t i = 0; i < sizes->count; i++) {
        if (strcmp(sizes->items[i].kind, kind) == 0)
            return &sizes->items[i];
    }
    return NULL;
}

/* NULL: there are too many kinds. */
static struct size *get_kind(struct sizes *sizes, const char *kind)
{
    struct size *size = find_kind(sizes, kind);

    if (size || sizes->count == SIZES_MAX)
        return size;
    size = &sizes->items[sizes->count];
    *size = (struct size){.bytes = 0};
    COPY_TEXT(size->kind, kind);
    (void)pthread_mutex_lock(&sizes->lock);
    sizes->count++;
    (void)pthread_mutex_unlock(&sizes->lock);
    return size;
}

uint64_t sizes_find(struct sizes *sizes, const char *type)
{
    const struct size *size;
    uint64_t bytes;

    if (!sizes)
        return 0;
    (void)pthread_mutex_lock(&sizes->lock);
    size = find_kind(sizes, type);
    bytes = size ? size->bytes : 0;
    (void)pthread_mutex_unlock(&sizes->lock);
    return bytes;
}

static bool is_size(uint64_t bytes)
{
    return bytes && bytes <= NVIDIA_CONTEXT_MAX_MIB * MIB;
}

/* On the disk */

/* A line that is not one is passed over: that kind is measured again. */
static void load_line(struct sizes *sizes, char *line)
{
    char *space = strchr(line, ' ');
    struct size *size;
    uint64_t bytes;

    if (!space || strlen(space + 1) >= KIND_SIZE)
        return;
    *space = '\0';
    if (parse_u64(line, &bytes) < 0 || !is_size(bytes))
        return;
    size = get_kind(sizes, space + 1);
    if (size)
        size->bytes = bytes;
}

static void load(struct sizes *sizes)
{
    AUTOFREE char *text = malloc(FILE_MAX);
    char path[PATH_MAX], *rest = text, *line;

    if (!text || file_path(path, NULL, "%s/" SIZES_FILE, sizes->options.host->hook_path) < 0 ||
        file_read(path, text, FILE_MAX) < 0)
        return;
    line = strsep(&rest, "\n");
    if (sscanf(line, "driver %79s", sizes->driver) != 1)
        return;
    while ((line = strsep(&rest, "\n")))
        load_line(sizes, line);
}

static void save(const struct sizes *sizes)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(FILE_MAX);
    struct error err = ERROR_INIT;
    char path[PATH_MAX];
    int r;

    strbuf_addf(&text, "driver %s\n", sizes->driver);
    for (size_t i = 0; i < sizes->count; i++) {
        if (sizes->items[i].bytes)
            strbuf_addf(&text, "%llu %s\n", (unsigned long long)sizes->items[i].bytes,
                        sizes->items[i].kind);
    }
    r = file_path(path, &err, "%s/" SIZES_FILE, sizes->options.host->hook_path);
    if (r == 0 && !text.failed)
        r = host_write_file(path, text.text, text.len, 0644, &err);
    if (r < 0)
        log_warn("what contexts take is not kept, and measured again at the next start: %s",
                 err.text);
}

/* The measuring process */

static void kill_child(struct sizes *sizes)
{
    const struct timespec pause = clock_timespec(END_MS * NS_PER_MS);

    if (!sizes->child)
        return;
    (void)kill(sizes->child, SIGKILL);
    /* One that hangs in the driver may stay for ever. */
    for (int i = 0; i < END_TIMES && waitpid(sizes->child, NULL, WNOHANG) == 0; i++)
        (void)nanosleep(&pause, NULL);
    sizes->child = 0;
}

/* Ours, but for what would change what the driver does; the caller frees the list and its last
 * row. */
static char **make_environment(const char *uuid)
{
    char **list = calloc(VARIABLES_MAX + 3, sizeof(*list));
    size_t count = 0;

    for (char **p = environ; list && *p && count < VARIABLES_MAX; p++) {
        if (strncmp(*p, "CUDA_", 5) != 0 && strncmp(*p, "LD_PRELOAD=", 11) != 0)
            list[count++] = *p;
    }
    if (!list)
        return NULL;
    list[count++] = (char *)"CUDA_CACHE_DISABLE=1";
    if (asprintf(&list[count], "CUDA_VISIBLE_DEVICES=%s", uuid) >= 0)
        return list;
    free(list);
    return NULL;
}

static void free_environment(char **list)
{
    size_t last = 0;

    if (!list)
        return;
    while (list[last + 1])
        last++;
    free(list[last]);
    free(list);
}

DEFINE_CLEANUP(char **, free_environment);

static int spawn(const struct sizes *sizes, int output, pid_t *ret_child)
{
    CLEANUP(free_environmentp) char **environment = make_environment(sizes->uuid);
    const uint64_t limit_ms = sizes->options.limit_ms ? sizes->options.limit_ms : LIMIT_MS;
    char seconds[32];
    const char *const argv[] = {
        "hami-device-plugin",
        MEASURE_WORD,
        sizes->uuid,
        sizes->options.root ? sizes->options.root : "",
        seconds,
        NULL,
    };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int r;

    if (!environment)
        return -ENOMEM;
    (void)snprintf(seconds, sizeof(seconds), "%llu",
                   (unsigned long long)MAX(limit_ms / 1000, UINT64_C(1)));
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    r = posix_spawn(ret_child, "/proc/self/exe", &actions, &attributes, (char *const *)argv,
                    environment);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return -r;
}

static void say_failure(struct sizes *sizes, struct size *size, const char *why)
{
    size->again_ns =
        clock_now_ns() + (FAILED_AGAIN_NS << MIN(size->failures, (unsigned)FAILURES_MAX));
    size->failures++;
    if (strcmp(size->why, why) == 0)
        return;
    COPY_TEXT(size->why, why);
    log_warn("what a context takes on %s can't be measured by card %s: %s. Where NVML does not "
             "name containers' processes they get no context, unless contextSizes of the device "
             "configuration says it",
             size->kind, sizes->uuid, why);
}

static void begin(struct sizes *sizes, const struct card *card)
{
    char why[ANSWER_MAX];
    int ends[2], r;

    COPY_TEXT(sizes->measuring, card->type);
    COPY_TEXT(sizes->uuid, card->uuid);
    r = pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 ? -errno : 0;
    if (r == 0) {
        r = spawn(sizes, ends[1], &sizes->child);
        (void)close(ends[1]);
        if (r < 0)
            (void)close(ends[0]);
    }
    if (r == 0) {
        sizes->answer = ends[0];
        sizes->began_ns = clock_now_ns();
        log_debug("measuring what a context takes on %s by card %s", card->type, card->uuid);
        return;
    }
    sizes->child = 0;
    (void)snprintf(why, sizeof(why), "no process can be started: %s", strerror(-r));
    say_failure(sizes, get_kind(sizes, card->type), why);
}

static void take_size(struct sizes *sizes, struct size *size, uint64_t bytes)
{
    (void)pthread_mutex_lock(&sizes->lock);
    size->bytes = bytes;
    (void)pthread_mutex_unlock(&sizes->lock);
    log_info("a context takes %llu MiB on %s with driver %s, as measured by card %s",
             (unsigned long long)(bytes / MIB), size->kind, sizes->driver, sizes->uuid);
    save(sizes);
}

static void take_answer(struct sizes *sizes, int status, char answer[ANSWER_MAX])
{
    struct size *size = get_kind(sizes, sizes->measuring);
    uint64_t bytes;

    if (!size)
        return;
    answer[strcspn(answer, "\n")] = '\0';
    if (WIFEXITED(status) && WEXITSTATUS(status) == MEASURE_BUSY) {
        size->again_ns = clock_now_ns() + BUSY_AGAIN_NS;
        log_debug("what a context takes on %s is not known yet: %s", size->kind, answer);
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == MEASURE_DONE &&
        parse_u64(answer, &bytes) == 0 && is_size(bytes)) {
        take_size(sizes, size, bytes);
        return;
    }
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGKILL))
        (void)snprintf(answer, ANSWER_MAX, "making a context there did not end, and was killed");
    else if (WIFSIGNALED(status))
        (void)snprintf(answer, ANSWER_MAX, "making a context there ended by signal %d",
                       WTERMSIG(status));
    else if (!answer[0])
        (void)snprintf(answer, ANSWER_MAX, "making a context there ended with status %d",
                       WEXITSTATUS(status));
    say_failure(sizes, size, answer);
}

/* False: it goes on. */
static bool collect(struct sizes *sizes)
{
    const int64_t limit_ms = (int64_t)(sizes->options.limit_ms ?: LIMIT_MS);
    char answer[ANSWER_MAX];
    ssize_t len;
    int status = 0; /* where nobody tells */

    if (waitpid(sizes->child, &status, WNOHANG) == 0) {
        if (clock_now_ns() - sizes->began_ns > limit_ms * NS_PER_MS + NS_PER_S)
            (void)kill(sizes->child, SIGKILL);
        return false;
    }
    len = read(sizes->answer, answer, sizeof(answer) - 1);
    answer[MAX(len, (ssize_t)0)] = '\0';
    (void)close(sizes->answer);
    sizes->answer = -1;
    sizes->child = 0;
    take_answer(sizes, status, answer);
    return true;
}

/* Which card */

/* The host's memory that our container may use; UINT64_MAX: all. */
static uint64_t own_memory(const char *sysfs)
{
    static const char *const files[] = {"memory.max", "memory/memory.limit_in_bytes"};
    char path[PATH_MAX], text[32];
    uint64_t bytes;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        if (file_path(path, NULL, "%s/fs/cgroup/%s", sysfs, files[i]) < 0 ||
            file_read(path, text, sizeof(text)) < 0)
            continue;
        text[strcspn(text, "\n")] = '\0';
        return parse_u64(text, &bytes) == 0 ? bytes : UINT64_MAX;
    }
    return UINT64_MAX;
}

/* In another compute mode than the default we would be in the way of whoever is to have it. */
static bool may_be_used(struct nvml *nvml, const struct card *card)
{
    struct nvml_health health;
    struct nvml_status status;

    if (nvml_read_health(nvml, card->index, &health, NULL) < 0 ||
        health.compute_mode != NVML_COMPUTE_DEFAULT)
        return false;
    return card->is_instance ||
           (nvml_read_status(nvml, card->index, &status, NULL) == 0 &&
            status.memory_total_bytes - MIN(status.memory_used_bytes, status.memory_total_bytes) >=
                ROOM_BYTES);
}

static bool is_missing(struct sizes *sizes, const struct nvidia_config *config,
                       const struct card *card)
{
    const struct size *size = find_kind(sizes, card->type);

    return card->healthy && !card->has_parts && !nvidia_find_context(config, card->type) &&
           (!size || (!size->bytes && clock_now_ns() >= size->again_ns));
}

/* One that nobody uses before any other; an instance is measured alone. */
static const struct card *choose(struct sizes *sizes, struct nvml *nvml,
                                 const struct nvidia_config *config, const struct cards *cards)
{
    const struct card *busy = NULL;

    for (size_t i = 0; i < cards->count; i++) {
        const struct card *card = &cards->items[i];
        int count;

        if (!is_missing(sizes, config, card) || !may_be_used(nvml, card))
            continue;
        count = measure_list(nvml, card->index, card->is_instance, card->gpu_instance,
                             sizes->listed, NULL);
        if (count == 0)
            return card;
        if (count > 0 && !card->is_instance && !busy)
            busy = card;
    }
    return busy;
}

static void follow_driver(struct sizes *sizes, const char *version)
{
    if (strcmp(sizes->driver, version) == 0)
        return;
    (void)pthread_mutex_lock(&sizes->lock);
    COPY_TEXT(sizes->driver, version);
    sizes->count = 0;
    (void)pthread_mutex_unlock(&sizes->lock);
}

void sizes_step(struct sizes *sizes, struct nvml *nvml, const struct nvidia_config *config,
                const struct cards *cards)
{
    char version[NVML_VERSION_SIZE], why[ANSWER_MAX];
    const struct card *card;
    uint64_t own_bytes;

    if (nvml_read_version(nvml, version, NULL) < 0 || (sizes->child && !collect(sizes)))
        return;
    follow_driver(sizes, version);
    card = choose(sizes, nvml, config, cards);
    if (!card || !get_kind(sizes, card->type))
        return;
    own_bytes = own_memory(sizes->options.sysfs);
    if (own_bytes >= OWN_ROOM_BYTES) {
        begin(sizes, card);
        return;
    }
    COPY_TEXT(sizes->uuid, card->uuid);
    (void)snprintf(why, sizeof(why),
                   "a context takes more of the host's memory than the %llu MiB that the device "
                   "plugin's container may use; let it have 1 GiB",
                   (unsigned long long)(own_bytes / MIB));
    say_failure(sizes, get_kind(sizes, card->type), why);
}

/* The whole */

int sizes_new(const struct sizes_options *options, struct sizes **ret_sizes, struct error *err)
{
    struct sizes *sizes = calloc(1, sizeof(*sizes));

    if (!sizes)
        return error_set(err, -ENOMEM, "no memory");
    sizes->options = *options;
    sizes->answer = -1;
    (void)pthread_mutex_init(&sizes->lock, NULL);
    load(sizes);
    *ret_sizes = sizes;
    return 0;
}

void sizes_free(struct sizes *sizes)
{
    if (!sizes)
        return;
    kill_child(sizes);
    if (sizes->answer >= 0)
        (void)close(sizes->answer);
    (void)pthread_mutex_destroy(&sizes->lock);
    free(sizes);
}

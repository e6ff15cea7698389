/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The API client at work, for tests: says on stdout what it is told.
 *
 *   kubeclient KUBECONFIG watch PATH [LABELS [FIELDS [metadata]]]
 *     "begin", "added NAME VERSION", ..., "complete COUNT", "trouble WHY", until stdin ends, then
 *     "most COUNT": of objects handed over in one turn of the loop. Objects of an initial list are
 *     not named but counted where they are more than a hundred. OBJECT_US in the environment is how
 *     long each of them takes.
 *   kubeclient KUBECONFIG request METHOD PATH [BODY [TIMEOUT_MS]]
 *     "error CODE STATUS WHY" and the body.
 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "kube/client.h"
#include "kube/watch.h"

enum {
    NAMED_MAX = 100,
};

static struct kube_client *client;
static struct kube_watch *watch;
static unsigned count, in_turn, most_in_turn;
static int64_t object_ns;

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vprintf(fmt, args);
    va_end(args);
    (void)putchar('\n');
    (void)fflush(stdout);
}

static void on_begin(void *data)
{
    (void)data;
    count = 0;
    say("begin");
}

static void on_object(void *data, enum kube_event event, yyjson_val *object)
{
    static const char *const names[] = {
        [KUBE_ADDED] = "added", [KUBE_MODIFIED] = "modified", [KUBE_DELETED] = "deleted"};
    yyjson_val *metadata = yyjson_obj_get(object, "metadata");
    const char *name = yyjson_get_str(yyjson_obj_get(metadata, "name"));
    const char *version = yyjson_get_str(yyjson_obj_get(metadata, "resourceVersion"));

    (void)data;
    count++;
    in_turn++;
    for (int64_t end = clock_now_ns() + object_ns; clock_now_ns() < end;)
        ;
    if (count <= NAMED_MAX || kube_watch_is_complete(watch))
        say("%s %s %s", names[event], name ? name : "-", version ? version : "-");
}

static void on_complete(void *data)
{
    (void)data;
    say("complete %u", count);
}

static void on_trouble(void *data, const char *why)
{
    (void)data;
    say("trouble %s", why);
}

static const struct kube_watch_ops ops = {on_begin, on_object, on_complete, on_trouble};

static void on_answer(void *data, const struct kube_answer *answer)
{
    (void)data;
    say("error %d %u %s", answer->error, answer->status, answer->why);
    say("%s", answer->body);
    kube_client_free(client);
}

/* Once a turn. */
static void on_prepare(uv_prepare_t *prepare)
{
    (void)prepare;
    most_in_turn = MAX(most_in_turn, in_turn);
    in_turn = 0;
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    char byte;

    (void)events;
    if (status >= 0 && read(STDIN_FILENO, &byte, 1) == 1)
        return;
    say("most %u", most_in_turn);
    (void)uv_poll_stop(poll);
    kube_watch_free(watch);
    kube_client_free(client);
    uv_stop(poll->loop);
}

static int run_watch(uv_loop_t *loop, int argc, char **argv)
{
    struct kube_watch_spec spec = {
        .path = argv[3],
        .label_selector = argc > 4 && *argv[4] ? argv[4] : NULL,
        .field_selector = argc > 5 && *argv[5] ? argv[5] : NULL,
        .metadata_only = argc > 6,
    };
    struct error err = ERROR_INIT;
    static uv_prepare_t prepare;
    static uv_poll_t input;

    if (kube_watch_new(client, &spec, &ops, NULL, &watch, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return EXIT_FAILURE;
    }
    (void)uv_prepare_init(loop, &prepare);
    (void)uv_prepare_start(&prepare, on_prepare);
    (void)uv_poll_init(loop, &input, STDIN_FILENO);
    (void)uv_poll_start(&input, UV_READABLE, on_input);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&prepare, NULL);
    uv_close((uv_handle_t *)&input, NULL);
    (void)uv_run(loop, UV_RUN_DEFAULT); /* the closing of the handles */
    return EXIT_SUCCESS;
}

static int run_request(uv_loop_t *loop, int argc, char **argv)
{
    static const char *const methods[] = {"", "GET", "POST", "PUT", "PATCH", "DELETE"};
    struct kube_call call = {.path = argv[4]};

    for (unsigned i = KUBE_GET; i < ARRAY_SIZE(methods); i++) {
        if (strcmp(argv[3], methods[i]) == 0)
            call.method = (enum kube_method)i;
    }
    if (argc > 5 && *argv[5]) {
        call.body = argv[5];
        call.body_len = strlen(argv[5]);
    }
    if (call.method == KUBE_PATCH)
        call.content_type = KUBE_MERGE_PATCH;
    call.timeout_ms = argc > 6 ? (unsigned)atoi(argv[6]) : 0;
    if (kube_request(client, &call, on_answer, NULL, NULL) < 0)
        return EXIT_FAILURE;
    (void)uv_run(loop, UV_RUN_DEFAULT);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    CLEANUP(kube_config_freep) struct kube_config *config = NULL;
    struct error err = ERROR_INIT;
    uv_loop_t loop;
    int r = EXIT_FAILURE;

    if (argc < 4 || uv_loop_init(&loop) < 0)
        return 2;
    if (getenv("OBJECT_US"))
        object_ns = atoi(getenv("OBJECT_US")) * NS_PER_US;
    if (getenv("VERBOSE"))
        log_set_verbosity(LOG_DEBUG_VERBOSITY);
    if (kube_config_load(argv[1], &config, &err) < 0 ||
        kube_client_new(&loop, config, "kubeclient/1", &client, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    if (strcmp(argv[2], "watch") == 0)
        r = run_watch(&loop, argc, argv);
    else if (argc > 4)
        r = run_request(&loop, argc, argv);
    (void)uv_loop_close(&loop);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "kube/event.h"
#include "kube/internal.h"
#include "kube/split.h"
#include "kube/transport.h"

enum {
    PAGE_FIRST = 500, /* objects */
    PAGE_MAX = 8000,
    PAGE_QUICK_MS = 500,     /* a page that took less is followed by one twice as long */
    PENDING_MAX = 192 << 10, /* bytes received and not read; beyond it the connection waits */
    PENDING_LOW = 16 << 10,  /* below it the connection goes on */
    REFUSAL_MAX = 4096,      /* bytes of a refusal's body that are kept */
    LIST_TIMEOUT_MS = 120000,
    WATCH_MIN_S = 300, /* least time that the server is asked to watch; at most twice that */
    WATCH_GRACE_MS = 30000,
    STALL_MS = 20000, /* if a streamed list brings nothing for so long, pages are asked for */
    URL_MAX = 16384,
};

/* Time for handing objects over in one turn of the loop. */
#define STEP_NS (250 * NS_PER_US)

/* A watch that ends sooner, without an event, is a failure. */
#define SHORTEST_NS (5 * NS_PER_S)

enum phase {
    PHASE_STREAMED_LIST, /* WatchList: the initial events, then a watch in the same answer */
    PHASE_PAGES,
    PHASE_WATCH,
};

struct kube_watch {
    struct transfer transfer;
    struct kube_client *client;
    const struct kube_watch_ops *ops;
    void *data;
    char *path, *labels, *fields; /* the selectors escaped */
    bool metadata_only;

    enum phase phase;
    bool begun;      /* begin() was called for this list */
    bool complete;   /* complete() was called since the last begin() */
    bool unstreamed; /* the server has no WatchList */
    char version[EVENT_VERSION_SIZE];
    char *continue_token;           /* escaped; NULL: the first page */
    unsigned page;                  /* objects in it, at most */
    unsigned failures;              /* in a row */
    bool advanced;                  /* this transfer brought an event */
    int64_t started_ns, written_ns; /* of the transfer, and of its latest bytes */
    int64_t lost_ns; /* when a connection was open last; at first, when the watch was made */

    struct split split;
    char *pending; /* PENDING_MAX bytes and what one write adds */
    size_t pending_start, pending_len, pending_size;
    bool paused, ended, page_read;
    CURLcode result; /* of the transfer that ended */
    unsigned status;
    unsigned retry_after_s;

    void *arena; /* for yyjson, used again */
    size_t arena_size;

    uv_idle_t step;
    uv_timer_t timer;
    unsigned open_handles;
    bool freed;
};

static void watch_start(struct kube_watch *watch);
static void watch_forget(struct kube_watch *watch);
static void stop_transfer(struct kube_watch *watch);

/* False: the last callback freed the watch or had it begin anew. */
static bool is_running(const struct kube_watch *watch)
{
    return !watch->freed && watch->transfer.easy;
}

/* URLs */

static unsigned watch_seconds(void)
{
    uint32_t random = 0;

    (void)getrandom(&random, sizeof(random), GRND_NONBLOCK);
    return WATCH_MIN_S + random % WATCH_MIN_S;
}

static int format_url(const struct kube_watch *watch, unsigned seconds, struct strbuf *url)
{
    strbuf_add(url, watch->path);
    if (watch->phase == PHASE_PAGES)
        strbuf_addf(url, "?limit=%u", watch->page);
    else
        strbuf_addf(url, "?watch=true&allowWatchBookmarks=true&timeoutSeconds=%u", seconds);
    if (watch->phase == PHASE_STREAMED_LIST)
        strbuf_add(url, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    if (watch->phase == PHASE_WATCH)
        strbuf_addf(url, "&resourceVersion=%s", watch->version);
    if (watch->phase == PHASE_PAGES && watch->continue_token)
        strbuf_addf(url, "&continue=%s", watch->continue_token);
    if (watch->labels)
        strbuf_addf(url, "&labelSelector=%s", watch->labels);
    if (watch->fields)
        strbuf_addf(url, "&fieldSelector=%s", watch->fields);
    return url->failed ? -ENOMEM : 0;
}

static const char *accept_of(const struct kube_watch *watch)
{
    if (!watch->metadata_only)
        return KUBE_JSON;
    if (watch->phase == PHASE_PAGES)
        return "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    return KUBE_METADATA_ONLY;
}

static bool is_open(const struct kube_watch *watch)
{
    return watch->transfer.easy && !watch->ended &&
           transfer_status((struct transfer *)&watch->transfer) == 200;
}

/* Failing and trying again */

static void watch_on_timer(uv_timer_t *timer)
{
    struct kube_watch *watch = timer->data;

    watch_start(watch);
}

/* The server knows WatchList and can't serve it: it waits for progress that its store does not
 * report. */
static void on_stall(uv_timer_t *timer)
{
    struct kube_watch *watch = timer->data;
    bool moving = watch->pending_len > watch->pending_start || watch->paused ||
                  clock_now_ns() - watch->written_ns < STALL_MS * NS_PER_MS;

    if (watch->phase != PHASE_STREAMED_LIST)
        return;
    if (moving) {
        (void)uv_timer_start(timer, on_stall, STALL_MS, 0);
        return;
    }
    log_warn("watching %s: the server does not stream the list; asking for pages", watch->path);
    watch->unstreamed = true;
    stop_transfer(watch);
    watch_forget(watch);
    watch_start(watch);
}

static void start_after(struct kube_watch *watch, unsigned ms)
{
    if (watch->freed)
        return;
    (void)uv_timer_start(&watch->timer, watch_on_timer, ms, 0);
}

/* The next request lists everything, from the first object on. */
static void watch_forget(struct kube_watch *watch)
{
    watch->phase = watch->unstreamed ? PHASE_PAGES : PHASE_STREAMED_LIST;
    watch->version[0] = '\0';
    watch->begun = false;
    watch->page = PAGE_FIRST;
    free(watch->continue_token);
    watch->continue_token = NULL;
}

static void stop_transfer(struct kube_watch *watch)
{
    if (is_open(watch))
        watch->lost_ns = clock_now_ns();
    transfer_stop(&watch->transfer);
    (void)uv_idle_stop(&watch->step);
    watch->pending_start = watch->pending_len = 0;
    watch->paused = watch->ended = false;
}

/* Tries again after a pause. A list that was cut begins anew; a watch resumes where it was cut. */
static void watch_trouble(struct kube_watch *watch, const char *why)
{
    unsigned pause_ms = retry_pause_ms(watch->failures++);

    if (watch->retry_after_s)
        pause_ms = watch->retry_after_s * 1000 + retry_pause_ms(0);
    stop_transfer(watch);
    if (watch->phase != PHASE_WATCH)
        watch_forget(watch);
    start_after(watch, pause_ms);
    if (watch->ops->trouble)
        watch->ops->trouble(watch->data, why);
    else if (transport_is_unreachable(watch->transfer.transport)) /* which has been said */
        log_debug("watching %s: %s; trying again in %u ms", watch->path, why, pause_ms);
    else
        log_warn("watching %s: %s; trying again in %u ms", watch->path, why, pause_ms);
}

static void watch_relist(struct kube_watch *watch)
{
    log_debug("watching %s: listing everything again", watch->path);
    stop_transfer(watch);
    watch_forget(watch);
    start_after(watch, watch->failures ? retry_pause_ms(watch->failures) : 0);
    watch->failures++;
}

/* Objects */

static void complete_list(struct kube_watch *watch)
{
    watch->phase = PHASE_WATCH;
    watch->complete = true;
    watch->failures = 0;
    watch->ops->complete(watch->data);
}

static void keep_version(struct kube_watch *watch, const char *version)
{
    copy_text(watch->version, sizeof(watch->version), version);
}

/* Reads an object's JSON in place, in the watch's arena; good until the next object. */
static yyjson_val *read_json(struct kube_watch *watch, char *text, size_t len)
{
    size_t need = yyjson_read_max_memory_usage(len, YYJSON_READ_INSITU);
    yyjson_alc allocator;
    yyjson_doc *doc;
    void *arena;

    if (need > watch->arena_size) {
        arena = realloc(watch->arena, need);
        if (!arena)
            return NULL;
        watch->arena = arena;
        watch->arena_size = need;
    }
    if (!yyjson_alc_pool_init(&allocator, watch->arena, watch->arena_size))
        return NULL;
    doc = yyjson_read_opts(text, len, YYJSON_READ_INSITU, &allocator, NULL);
    return yyjson_doc_get_root(doc);
}

static void on_error_event(struct kube_watch *watch, const struct event *event)
{
    char why[256];

    if (event->code == 410) {
        watch_relist(watch);
        return;
    }
    (void)snprintf(why, sizeof(why), "the server ended it: %s (%u)", event->message, event->code);
    watch_trouble(watch, why);
}

static void take_event(struct kube_watch *watch, yyjson_val *root)
{
    struct error err = ERROR_INIT;
    struct event event;

    if (event_read(root, &event, &err) < 0) {
        watch_trouble(watch, err.text);
        return;
    }
    if (event.kind == EVENT_ERROR) {
        on_error_event(watch, &event);
        return;
    }
    watch->advanced = true;
    if (watch->phase == PHASE_WATCH)
        watch->failures = 0;
    if (watch->phase == PHASE_WATCH || event.initial_end)
        keep_version(watch, event.version);
    if (event.kind == EVENT_OBJECT)
        watch->ops->object(watch->data, event.type, event.object);
    else if (event.initial_end && watch->phase == PHASE_STREAMED_LIST)
        complete_list(watch);
}

static void take_item(struct kube_watch *watch, yyjson_val *root)
{
    if (!yyjson_is_obj(yyjson_obj_get(root, "metadata"))) {
        watch_trouble(watch, "the list has an element without metadata");
        return;
    }
    watch->ops->object(watch->data, KUBE_ADDED, root);
}

static int keep_continue(struct kube_watch *watch, const char *token)
{
    char escaped[3 * EVENT_CONTINUE_SIZE];

    free(watch->continue_token);
    watch->continue_token = NULL;
    if (!token[0])
        return 0;
    if (!kube_escape(token, escaped, sizeof(escaped)))
        return -EPROTO;
    watch->continue_token = strdup(escaped);
    return watch->continue_token ? 0 : -ENOMEM;
}

static void take_envelope(struct kube_watch *watch, yyjson_val *root)
{
    struct error err = ERROR_INIT;
    struct list_end end;
    int r;

    r = event_read_envelope(root, &end, &err);
    if (r == 0)
        r = keep_continue(watch, end.continue_token);
    if (r < 0) {
        watch_trouble(watch, err.text[0] ? err.text : strerror(-r));
        return;
    }
    keep_version(watch, end.version);
    watch->page_read = true;
}

static void take_text(struct kube_watch *watch, int what, char *text, size_t len)
{
    yyjson_val *root = read_json(watch, text, len);

    if (!root)
        watch_trouble(watch, "the server sent what is not JSON");
    else if (what == SPLIT_ENVELOPE)
        take_envelope(watch, root);
    else if (watch->phase == PHASE_PAGES)
        take_item(watch, root);
    else
        take_event(watch, root);
}

/* The end of an answer */

/* The server has no WatchList: it says so, or does not know the parameters. */
static bool refuses_stream(const struct kube_watch *watch)
{
    return watch->phase == PHASE_STREAMED_LIST && (watch->status == 400 || watch->status == 422);
}

static void on_refusal(struct kube_watch *watch)
{
    char why[512];

    if (refuses_stream(watch)) {
        watch->unstreamed = true;
        stop_transfer(watch);
        watch_forget(watch);
        watch_start(watch);
        return;
    }
    if (watch->status == 410) {
        watch_relist(watch);
        return;
    }
    if (watch->status == 401)
        transport_forget_token(kube_client_transport(watch->client));
    kube_describe_failure(watch->status, watch->pending, watch->pending_len, why, sizeof(why));
    watch_trouble(watch, why);
}

static void on_page_end(struct kube_watch *watch)
{
    if (!watch->page_read) {
        watch_trouble(watch, "the list was cut short");
        return;
    }
    if (clock_now_ns() - watch->started_ns < PAGE_QUICK_MS * NS_PER_MS)
        watch->page = MIN(watch->page * 2, (unsigned)PAGE_MAX);
    stop_transfer(watch);
    if (watch->continue_token) {
        watch_start(watch);
        return;
    }
    complete_list(watch);
    if (!watch->freed && watch->phase == PHASE_WATCH)
        watch_start(watch);
}

/* The server ends a watch after the time that it was asked for. */
static void on_watch_end(struct kube_watch *watch)
{
    bool brief = clock_now_ns() - watch->started_ns < SHORTEST_NS;

    if (watch->phase == PHASE_STREAMED_LIST || (brief && !watch->advanced)) {
        watch_trouble(watch, watch->phase == PHASE_WATCH ? "the watch ended with nothing in it"
                                                         : "the list was cut short");
        return;
    }
    stop_transfer(watch);
    watch_start(watch);
}

static void watch_on_end(struct kube_watch *watch)
{
    if (watch->status != 200 && watch->status != 0) {
        on_refusal(watch);
        return;
    }
    /* Our own time-out ends a watch like the server's. */
    if (watch->result == CURLE_OPERATION_TIMEDOUT && watch->phase == PHASE_WATCH)
        watch->result = CURLE_OK;
    if (watch->result != CURLE_OK) {
        watch_trouble(watch, transfer_reason(&watch->transfer, watch->result));
        return;
    }
    if (watch->phase == PHASE_PAGES)
        on_page_end(watch);
    else
        on_watch_end(watch);
}

/* The steps */

/* Hands over the next object that is there; false: there is none for now. */
static bool take_next(struct kube_watch *watch)
{
    const char *bytes = watch->pending + watch->pending_start;
    size_t len = watch->pending_len - watch->pending_start, text_len;
    char *text;
    int r;

    if (!len)
        return false;
    r = split_next(&watch->split, &bytes, &len, &text, &text_len);
    watch->pending_start = watch->pending_len - len;
    if (r == SPLIT_MORE)
        return false;
    if (r < 0) {
        watch_trouble(watch, r == -EFBIG ? "the server sent an object that is too long"
                                         : "the server sent what is neither a list nor a watch");
        return false;
    }
    take_text(watch, r, text, text_len);
    return true;
}

static void after_step(struct kube_watch *watch)
{
    size_t left = watch->pending_len - watch->pending_start;

    if (!left)
        watch->pending_start = watch->pending_len = 0;
    if (watch->paused && left < PENDING_LOW) {
        memmove(watch->pending, watch->pending + watch->pending_start, left);
        watch->pending_start = 0;
        watch->pending_len = left;
        watch->paused = false;
        transfer_resume(&watch->transfer);
    }
    if (watch->pending_len > watch->pending_start)
        return;
    (void)uv_idle_stop(&watch->step);
    if (watch->ended)
        watch_on_end(watch);
}

static void on_step(uv_idle_t *idle)
{
    struct kube_watch *watch = idle->data;
    int64_t end = clock_now_ns() + STEP_NS;

    while (is_running(watch) && take_next(watch)) {
        if (clock_now_ns() >= end)
            break;
    }
    if (is_running(watch))
        after_step(watch);
}

static size_t watch_on_write(struct transfer *transfer, const char *bytes, size_t len)
{
    struct kube_watch *watch = (struct kube_watch *)transfer;
    bool refused = transfer_status(transfer) != 200;
    char *pending;

    if (refused && watch->pending_len + len > REFUSAL_MAX)
        return len; /* only its beginning is wanted */
    if (watch->pending_len > PENDING_MAX) {
        watch->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    if (watch->pending_len + len > watch->pending_size) {
        size_t size = MAX((watch->pending_len + len) * 2, (size_t)16384);

        pending = realloc(watch->pending, size);
        if (!pending)
            return 0;
        watch->pending = pending;
        watch->pending_size = size;
    }
    memcpy(watch->pending + watch->pending_len, bytes, len);
    watch->pending_len += len;
    watch->written_ns = clock_now_ns();
    if (!refused)
        (void)uv_idle_start(&watch->step, on_step);
    return len;
}

static void watch_on_done(struct transfer *transfer, CURLcode result)
{
    struct kube_watch *watch = (struct kube_watch *)transfer;

    watch->result = result;
    watch->status = transfer_status(transfer);
    watch->retry_after_s = transfer_retry_after(transfer);
    watch->ended = true;
    if (watch->status == 200)
        watch->lost_ns = clock_now_ns();
    if (!uv_is_active((uv_handle_t *)&watch->step))
        watch_on_end(watch);
}

static void watch_ask(struct kube_watch *watch)
{
    CLEANUP(strbuf_deinit) struct strbuf url = STRBUF_INIT(URL_MAX);
    unsigned seconds = watch_seconds();
    struct transfer_spec spec = {
        .method = KUBE_GET,
        .accept = accept_of(watch),
        .timeout_ms =
            watch->phase == PHASE_PAGES ? LIST_TIMEOUT_MS : seconds * 1000 + WATCH_GRACE_MS,
    };
    int r;

    split_begin(&watch->split, watch->phase == PHASE_PAGES);
    watch->pending_start = watch->pending_len = 0;
    watch->paused = watch->ended = watch->page_read = watch->advanced = false;
    watch->retry_after_s = 0;
    watch->started_ns = watch->written_ns = clock_now_ns();
    (void)uv_timer_stop(&watch->timer);
    r = format_url(watch, seconds, &url);
    spec.path = strbuf_text(&url);
    if (r == 0)
        r = transfer_start(&watch->transfer, kube_client_transport(watch->client), &spec);
    if (r < 0)
        watch_trouble(watch, strerror(-r));
    else if (watch->phase == PHASE_STREAMED_LIST)
        (void)uv_timer_start(&watch->timer, on_stall, STALL_MS, 0);
}

/*
 * Called before the list is asked for: the server may take its snapshot at any time from now on,
 * and later changes are not in it. False: the callback freed the watch, or had it begin anew.
 */
static bool begin_list(struct kube_watch *watch)
{
    if (watch->begun)
        return true;
    watch->begun = true;
    watch->complete = false;
    watch->ops->begin(watch->data);
    return !watch->freed && watch->begun;
}

static void watch_start(struct kube_watch *watch)
{
    if (watch->phase == PHASE_WATCH || begin_list(watch))
        watch_ask(watch);
}

/* Making and freeing */

static int escape_into(char **ret_escaped, const char *text)
{
    size_t size = text ? strlen(text) * 3 + 4 : 0;

    if (!text)
        return 0;
    *ret_escaped = malloc(size);
    if (!*ret_escaped)
        return -ENOMEM;
    (void)kube_escape(text, *ret_escaped, size);
    return 0;
}

static void watch_release(struct kube_watch *watch)
{
    split_deinit(&watch->split);
    free(watch->path);
    free(watch->labels);
    free(watch->fields);
    free(watch->continue_token);
    free(watch->pending);
    free(watch->arena);
    free(watch);
}

static void watch_on_closed(uv_handle_t *handle)
{
    struct kube_watch *watch = handle->data;

    if (--watch->open_handles == 0)
        watch_release(watch);
}

static int watch_copy(struct kube_watch *watch, const struct kube_watch_spec *spec)
{
    int r;

    watch->metadata_only = spec->metadata_only;
    watch->unstreamed = spec->paged;
    watch->path = strdup(spec->path);
    r = escape_into(&watch->labels, spec->label_selector);
    if (r == 0)
        r = escape_into(&watch->fields, spec->field_selector);
    return watch->path ? r : -ENOMEM;
}

int kube_watch_new(struct kube_client *client, const struct kube_watch_spec *spec,
                   const struct kube_watch_ops *ops, void *data, struct kube_watch **ret_watch,
                   struct error *err)
{
    struct kube_watch *watch = calloc(1, sizeof(*watch));
    uv_loop_t *loop = transport_loop(kube_client_transport(client));

    if (!watch)
        return error_set(err, -ENOMEM, "cannot watch %s: no memory", spec->path);
    watch->client = client;
    watch->ops = ops;
    watch->data = data;
    watch->transfer.write = watch_on_write;
    watch->transfer.done = watch_on_done;
    if (watch_copy(watch, spec) < 0) {
        watch_release(watch);
        return error_set(err, -ENOMEM, "cannot watch %s: no memory", spec->path);
    }
    (void)uv_idle_init(loop, &watch->step);
    (void)uv_timer_init(loop, &watch->timer);
    watch->step.data = watch->timer.data = watch;
    watch->open_handles = 2;
    watch->lost_ns = clock_now_ns();
    watch_forget(watch);
    start_after(watch, 0);
    *ret_watch = watch;
    return 0;
}

void kube_watch_free(struct kube_watch *watch)
{
    if (!watch || watch->freed)
        return;
    watch->freed = true;
    transfer_stop(&watch->transfer);
    uv_close((uv_handle_t *)&watch->step, watch_on_closed);
    uv_close((uv_handle_t *)&watch->timer, watch_on_closed);
}

void kube_watch_list_again(struct kube_watch *watch)
{
    stop_transfer(watch);
    watch_forget(watch);
    start_after(watch, 0);
}

bool kube_watch_is_complete(const struct kube_watch *watch)
{
    return watch->complete;
}

double kube_watch_age(const struct kube_watch *watch)
{
    return is_open(watch) ? 0 : (double)(clock_now_ns() - watch->lost_ns) / (double)NS_PER_S;
}

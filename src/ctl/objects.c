/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/objects.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admit/admit.h"
#include "base/options.h"
#include "base/util.h"
#include "config/manifest.h"
#include "model/json.h"

enum {
    FILE_MAX = 1 << 30,
    ARENA_MAX = 1 << 30,
    REPLICAS_MAX = 100000,
    WAITING_MAX = 200000,    /* Kubernetes serves 150,000 pods */
    WARNINGS_MAX = 64 << 20, /* of one pod */
};

static const char nvidia_alone[] = "nvidia: {resourceCountName: nvidia.com/gpu, "
                                   "resourceMemoryName: nvidia.com/gpumem, "
                                   "resourceMemoryPercentageName: nvidia.com/gpumem-percentage, "
                                   "resourceCoreName: nvidia.com/gpucores, "
                                   "resourcePriorityName: nvidia.com/priority, "
                                   "defaultGPUNum: 1}";

int objects_read_file(char *text, void *member, struct error *err)
{
    struct objects_options *options = member;

    if (options->file_count == OBJECTS_MAX_FILES)
        return error_set(err, -E2BIG, "more than %d files", OBJECTS_MAX_FILES);
    options->files[options->file_count++] = text;
    return 0;
}

int objects_read_node_policy(char *text, void *member, struct error *err)
{
    enum place_order unread;

    if (!place_node_order_read(text, &unread))
        return error_set(err, -EINVAL, "\"%s\" is none of " PLACE_NODE_ORDERS, text);
    return option_text(text, member, err);
}

int objects_read_device_policy(char *text, void *member, struct error *err)
{
    if (!place_policy_check(text))
        return error_set(err, -EINVAL,
                         "\"%s\" is not made of binpack, spread, mutex, numa, topology-aware",
                         text);
    return option_text(text, member, err);
}

static const char *text_of(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    return text ? text : "";
}

static void tell(const struct objects *objects, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A line on standard error, unless the same objects were told of before. */
static void tell(const struct objects *objects, const char *fmt, ...)
{
    va_list args;

    if (objects->is_silent)
        return;
    (void)fprintf(stderr, "%s: ", objects->program);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

/* kubectl puts what names none into the namespace default. */
static const char *namespace_of(yyjson_val *metadata)
{
    const char *namespace = text_of(metadata, "namespace");

    return *namespace ? namespace : "default";
}

/* Names that come twice. */

static int note_node(struct objects *objects, const char *name, struct error *err)
{
    const char *what = arena_printf(objects->arena, "node %s", name);

    return what ? seen_add(&objects->seen, what, objects->file, objects->names, err)
                : error_set(err, -ENOMEM, "out of memory");
}

static int note_pod(struct objects *objects, const char *namespace, const char *name,
                    struct error *err)
{
    const char *what = arena_printf(objects->arena, "pod %s/%s", namespace, name);

    return what ? seen_add(&objects->seen, what, objects->file, objects->names, err)
                : error_set(err, -ENOMEM, "out of memory");
}

/* Nodes, quotas and bound pods. */

static int add_node(struct objects *objects, yyjson_val *object, struct error *err)
{
    const char **nodes;
    struct node node;
    int r;

    r = node_read(object, &objects->vendors.kept, objects->arena, &node, err);
    if (r < 0)
        return error_wrap(err, r, "node %s", text_of(yyjson_obj_get(object, "metadata"), "name"));
    r = note_node(objects, node.name, err);
    if (r < 0)
        return r;
    nodes = reallocarray(objects->nodes, objects->node_count + 1, sizeof(*nodes));
    if (!nodes)
        return error_set(err, -ENOMEM, "out of memory");
    objects->nodes = nodes;
    nodes[objects->node_count] = arena_strdup(objects->names, node.name);
    if (!nodes[objects->node_count++] ||
        node_resources_add(&objects->resources, &node, objects->names) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    r = cluster_set_node(objects->cluster, &node, err);
    if (r < 0 && r != -ENOMEM)
        tell(objects, "node %s has no devices: %s", node.name, err->text);
    return r == -ENOMEM ? r : 0;
}

static int add_quota(struct objects *objects, yyjson_val *object, struct error *err)
{
    struct quota quota;
    int r = quota_read(object, objects->arena, &quota, err);

    if (r < 0)
        return error_wrap(err, r, "resource quota %s",
                          text_of(yyjson_obj_get(object, "metadata"), "name"));
    quota.namespace = namespace_of(yyjson_obj_get(object, "metadata"));
    r = cluster_set_quota(objects->cluster, &quota, err);
    if (r > 0)
        tell(objects, "resource quota %s/%s: %s", quota.namespace, quota.name, err->text);
    return r < 0 ? r : 0;
}

static int add_waiting(struct objects *objects, yyjson_val *object, const char *namespace,
                       const char *name, struct error *err)
{
    struct waiting_pod *waiting;
    int r;

    if (objects->waiting_count == WAITING_MAX)
        return error_set(err, -E2BIG, "more than %d pods without a node", WAITING_MAX);
    r = note_pod(objects, namespace, name, err);
    if (r < 0)
        return r;
    waiting = reallocarray(objects->waiting, objects->waiting_count + 1, sizeof(*waiting));
    if (!waiting)
        return error_set(err, -ENOMEM, "out of memory");
    objects->waiting = waiting;
    waiting += objects->waiting_count;
    waiting->text = yyjson_val_write(object, 0, NULL);
    waiting->namespace = arena_strdup(objects->names, namespace);
    waiting->name = arena_strdup(objects->names, name);
    if (!waiting->text || !waiting->namespace || !waiting->name) {
        free(waiting->text);
        return error_set(err, -ENOMEM, "out of memory");
    }
    objects->waiting_count++;
    return 0;
}

bool objects_is_named(const char *wanted, const char *namespace, const char *name)
{
    const char *slash = strchr(wanted, '/');
    const size_t len = slash ? (size_t)(slash - wanted) : strlen("default");

    return strcmp(slash ? slash + 1 : wanted, name) == 0 && strlen(namespace) == len &&
           strncmp(slash ? wanted : "default", namespace, len) == 0;
}

/* A pod that does not wait. */
static int note_sought(struct objects *objects, const struct pod *pod, const char *namespace,
                       const char *name, struct error *err)
{
    if (!objects->sought || !objects_is_named(objects->sought, namespace, name))
        return 0;
    if (pod_is_over(pod))
        objects->sought_is = "has ended";
    else if (*pod->node_name)
        objects->sought_is =
            arena_printf(objects->names, "has the node %s already", pod->node_name);
    else
        objects->sought_is = "has a node already";
    return objects->sought_is ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static bool names_devices(const struct vendor_set *vendors, const struct container *container)
{
    for (size_t i = 0; i < vendors->count; i++) {
        const char *const *names = vendors->instances[i].resources;

        for (size_t k = 0; k < VENDOR_MAX_RESOURCES && names[k]; k++) {
            if (*names[k] && container_resource(container, names[k]))
                return true;
        }
    }
    return false;
}

static bool has_grant(const struct vendor_set *vendors, const struct pod *pod)
{
    for (size_t i = 0; i < vendors->count; i++) {
        if (text_pairs_get(&pod->annotations, vendors->instances[i].allocated_key))
            return true;
    }
    return false;
}

/* A pod that somebody wrote with a node in it, and no API server has seen: the webhook is to judge
 * it, if it asks for devices. Others hold what the node has of processors and memory. */
static bool is_to_be_made(const struct vendor_set *vendors, const struct pod *pod)
{
    if (*pod->uid || pod->phase != POD_PHASE_UNKNOWN || has_grant(vendors, pod))
        return false;
    for (size_t i = 0; i < pod->container_count; i++) {
        if (names_devices(vendors, &pod->containers[i]))
            return true;
    }
    return false;
}

static int add_pod(struct objects *objects, yyjson_val *object, struct error *err)
{
    yyjson_val *metadata = yyjson_obj_get(object, "metadata");
    const char *name = text_of(metadata, "name");
    struct pod pod;
    int r;

    r = pod_read(object, &objects->vendors.kept, objects->arena, &pod, err);
    if (r < 0)
        return error_wrap(err, r, "pod %s", name);
    objects->pod_count++;
    pod.namespace = namespace_of(metadata);
    /* Without a spec it is one of /debug/objects: its annotations say where it is. */
    if (!pod_is_over(&pod) && pod.has_spec &&
        (!*pod.node_name || is_to_be_made(&objects->vendors, &pod)))
        return add_waiting(objects, object, pod.namespace, name, err);
    r = note_sought(objects, &pod, pod.namespace, name, err);
    if (r == 0 && !pod_is_over(&pod))
        r = note_pod(objects, pod.namespace, name, err);
    if (r < 0 || pod_is_over(&pod))
        return r;
    if (!*pod.uid)
        pod.uid = arena_printf(objects->arena, "%s/%s", pod.namespace, name);
    r = pod.uid ? cluster_set_pod(objects->cluster, &pod, err) : -ENOMEM;
    if (r < 0 && r != -ENOMEM)
        tell(objects, "pod %s/%s is not counted: %s", pod.namespace, name, err->text);
    return r == -ENOMEM ? r : 0;
}

/* A Deployment's pods, a Job's and the like: of its template, as many as it says. */
static int add_template(struct objects *objects, yyjson_val *object, yyjson_val *template,
                        struct error *err)
{
    yyjson_val *spec = yyjson_obj_get(object, "spec"), *count = yyjson_obj_get(spec, "replicas");
    yyjson_val *metadata = yyjson_obj_get(object, "metadata");
    int64_t replicas;
    int r = 0;

    if (!count)
        count = yyjson_obj_get(spec, "parallelism");
    replicas = count ? yyjson_get_sint(count) : 1;
    if (replicas < 0 || replicas > REPLICAS_MAX)
        return error_set(err, -EINVAL, "%s %s: more than %d replicas", text_of(object, "kind"),
                         text_of(metadata, "name"), REPLICAS_MAX);
    if (strcmp(text_of(object, "kind"), "DaemonSet") == 0)
        tell(objects, "%s: DaemonSet %s counts as one pod, not as one on each node", objects->file,
             text_of(metadata, "name"));
    for (int64_t i = 0; i < replicas && r == 0; i++) {
        const char *name =
            arena_printf(objects->arena, "%s-%" PRId64, text_of(metadata, "name"), i + 1);

        r = name ? add_waiting(objects, template, namespace_of(metadata), name, err) : -ENOMEM;
    }
    objects->pod_count += (size_t)replicas;
    return r;
}

static int keep_view(struct objects *objects, yyjson_val *object, struct error *err)
{
    free(objects->view);
    objects->view = yyjson_val_write(object, 0, NULL);
    return objects->view ? 0 : error_set(err, -ENOMEM, "out of memory");
}

/* A line for the first of its kind in a file; a cluster has many of each. */
static int leave_out(struct objects *objects, yyjson_val *object, struct error *err)
{
    const char *kind = text_of(object, "kind");
    const char *name = text_of(yyjson_obj_get(object, "metadata"), "name");
    const char *what = arena_printf(objects->arena, "kind %s of %s", kind, objects->file);
    int r;

    if (!what)
        return error_set(err, -ENOMEM, "out of memory");
    r = seen_add(&objects->seen, what, objects->file, objects->names, err);
    if (r != 0)
        return r == -EEXIST ? 0 : r;
    if (*kind)
        tell(objects,
             "%s: %s%s%s is left out, as all of its kind: only Nodes, ResourceQuotas, Pods "
             "and what has pods in its spec.template count",
             objects->file, kind, *name ? " " : "", name);
    else
        tell(objects, "%s: what has no kind is left out: it is no Kubernetes object",
             objects->file);
    return 0;
}

static int take_object(void *data, yyjson_val *object, struct error *err)
{
    struct objects *objects = data;
    const char *kind = text_of(object, "kind");
    yyjson_val *template = yyjson_obj_get(yyjson_obj_get(object, "spec"), "template");
    const struct arena_mark mark = arena_mark(objects->arena);
    int r;

    objects->object_count++;
    if (strcmp(kind, "Node") == 0)
        r = add_node(objects, object, err);
    else if (strcmp(kind, "Pod") == 0)
        r = add_pod(objects, object, err);
    else if (strcmp(kind, "ResourceQuota") == 0)
        r = add_quota(objects, object, err);
    else if (yyjson_obj_get(template, "spec"))
        r = add_template(objects, object, template, err);
    else if (yyjson_obj_get(object, "nodes") && yyjson_obj_get(object, "reserved"))
        r = keep_view(objects, object, err);
    else
        r = leave_out(objects, object, err);
    arena_rewind(objects->arena, mark);
    return r;
}

/* The whole file; NULL with err. */
static char *read_whole(const char *path, size_t *ret_len, struct error *err)
{
    const bool is_input = strcmp(path, "-") == 0;
    FILE *file = is_input ? stdin : fopen(path, "re");
    char *text = NULL;
    size_t size = 0, len = 0;

    if (!file) {
        (void)error_set(err, -errno, "%s: %s", path, strerror(errno));
        return NULL;
    }
    if (is_input && isatty(STDIN_FILENO))
        (void)fputs(
            "hamictl: standard input is a terminal: objects are awaited there, up to Ctrl-D. "
            "Those of a cluster: kubectl get nodes,pods,resourcequotas -A -o json | hamictl ...\n",
            stderr);
    do {
        char *larger = size <= FILE_MAX ? realloc(text, size = 2 * size + (64 << 10)) : NULL;

        if (!larger) {
            (void)error_set(err, -ENOMEM, "%s: too large", path);
            free(TAKE(text));
            break;
        }
        text = larger;
        len += fread(text + len, 1, size - 1 - len, file);
    } while (len == size - 1);
    if (text && ferror(file)) {
        (void)error_set(err, -EIO, "%s: can't be read: %s", path, strerror(errno));
        free(TAKE(text));
    }
    if (!is_input)
        (void)fclose(file);
    if (text)
        text[len] = '\0';
    *ret_len = len;
    return text;
}

static int load_file(struct objects *objects, const char *path, struct error *err)
{
    size_t len;
    AUTOFREE char *text = read_whole(path, &len, err);
    const size_t before = objects->object_count;
    int r;

    if (!text)
        return -EINVAL;
    objects->file = strcmp(path, "-") == 0 ? "standard input" : path;
    r = manifest_read(path, text, len, objects->arena, take_object, objects, err);
    if (r == 0 && objects->object_count == before)
        tell(objects, "%s: there is no object in it", objects->file);
    return r;
}

static int load_config(const struct objects_options *options, struct objects *objects,
                       struct error *err)
{
    int r;

    if (options->config_path)
        r = device_config_load(options->config_path, &objects->config, err);
    else
        r = device_config_parse("", nvidia_alone, strlen(nvidia_alone), &objects->config, err);
    if (r < 0)
        return r;
    r = device_config_vendors(&objects->config, &objects->vendors);
    return r < 0 ? error_set(err, r, "more vendors than can be served") : 0;
}

/* An answer about no node at all would look like one about the cluster. */
static int check_nodes(const struct objects_options *options, const struct objects *objects,
                       struct error *err)
{
    if (objects->node_count || (objects->view && options->takes_view))
        return 0;
    if (objects->view)
        return error_set(err, -EINVAL, "/debug/view has no Nodes; take /debug/objects");
    return error_set(
        err, -EINVAL,
        "no Node was read; `kubectl get nodes,pods,resourcequotas -A -o json` prints "
        "them%s",
        options->config_path ? "" : ", and a device configuration is given by --device-config");
}

static const char *scheduler_of(const struct objects_options *options)
{
    return options->scheduler_name && *options->scheduler_name ? options->scheduler_name
                                                               : "hami-scheduler";
}

int objects_load(const struct objects_options *options, struct objects *ret_objects,
                 struct error *err)
{
    struct cluster_options cluster = {.vendors = &ret_objects->vendors};
    int r;

    *ret_objects = (struct objects){
        .program = options->program,
        .sought = options->sought,
        .is_silent = options->warned_before,
        .scheduler_name = scheduler_of(options),
    };
    r = load_config(options, ret_objects, err);
    if (r < 0)
        return r;
    (void)place_node_order_read(options->node_policy ? options->node_policy : "binpack",
                                &cluster.defaults.node_order);
    place_policy_read(options->device_policy ? options->device_policy : "spread",
                      &cluster.defaults.policy);
    cluster.learns = options->learns;
    ret_objects->vendors.kept.amounts =
        options->learns || cluster.defaults.node_order == PLACE_SCARCITY;
    ret_objects->cluster = cluster_new(&cluster);
    ret_objects->arena = arena_new(ARENA_MAX);
    ret_objects->names = arena_new(ARENA_MAX);
    if (!ret_objects->cluster || !ret_objects->arena || !ret_objects->names)
        return error_set(err, -ENOMEM, "out of memory");
    for (int kind = 0; kind < CLUSTER_KINDS; kind++)
        cluster_begin(ret_objects->cluster, (enum cluster_kind)kind);
    for (size_t i = 0; i < options->file_count && r == 0; i++)
        r = load_file(ret_objects, options->files[i], err);
    for (int kind = 0; kind < CLUSTER_KINDS; kind++)
        cluster_complete(ret_objects->cluster, (enum cluster_kind)kind);
    cluster_renew_prices(ret_objects->cluster);
    return r < 0 ? r : check_nodes(options, ret_objects, err);
}

void objects_shuffle(struct objects *objects, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;

    for (size_t i = objects->waiting_count; i > 1; i--) {
        struct waiting_pod moved = objects->waiting[i - 1];
        size_t at;

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at = (size_t)((state >> 11) % i);
        objects->waiting[i - 1] = objects->waiting[at];
        objects->waiting[at] = moved;
    }
}

void objects_free(struct objects *objects)
{
    for (size_t i = 0; i < objects->waiting_count; i++)
        free(objects->waiting[i].text);
    free(objects->waiting);
    free(objects->view);
    free(objects->nodes);
    node_resources_deinit(&objects->resources);
    seen_deinit(&objects->seen);
    cluster_free(objects->cluster);
    arena_free(objects->arena);
    arena_free(objects->names);
    device_config_deinit(&objects->config);
}

/* Admission. */

static int find_bounds(const void *data, const char *namespace, struct arena *arena,
                       const struct place_budget **ret_bounds, size_t *ret_count)
{
    return cluster_quota_bounds(data, namespace, arena, ret_bounds, ret_count);
}

static yyjson_val *patched(struct objects *objects, yyjson_val *root, const char *patch)
{
    yyjson_alc alc = json_alc(objects->arena);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&alc);
    yyjson_mut_val *made;
    yyjson_val *steps;
    yyjson_doc *copy;

    if (!doc || json_parse(patch, strlen(patch), objects->arena, &steps, NULL) < 0)
        return NULL;
    made = yyjson_patch(doc, root, steps, NULL);
    copy = made ? yyjson_mut_val_imut_copy(made, &alc) : NULL;
    return yyjson_doc_get_root(copy);
}

static int read_waiting(struct objects *objects, const struct waiting_pod *waiting,
                        yyjson_val *root, struct pod *ret_pod, struct error *err)
{
    int r = pod_read(root, &objects->vendors.kept, objects->arena, ret_pod, err);

    if (r < 0)
        return error_wrap(err, r, "pod %s", waiting->name);
    ret_pod->namespace = waiting->namespace;
    ret_pod->name = waiting->name;
    if (!*ret_pod->uid)
        ret_pod->uid = arena_printf(objects->arena, "%s/%s", waiting->namespace, waiting->name);
    return ret_pod->uid ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static void tell_lines(const struct objects *objects, const struct waiting_pod *waiting,
                       const char *lines)
{
    for (size_t len; *lines; lines += len + 1) {
        len = strcspn(lines, "\n");
        tell(objects, "pod %s/%s: %.*s", waiting->namespace, waiting->name, (int)len, lines);
    }
}

/* Resources that nobody has, and what the webhook would warn of; once, where a Deployment's pods
 * are all alike. */
static int print_warnings(struct objects *objects, const struct waiting_pod *waiting,
                          const struct pod *pod, const char *warning)
{
    struct strbuf text = STRBUF_IN(objects->arena, WARNINGS_MAX);

    unserved_describe(&objects->resources, &objects->vendors, pod, &text);
    if (warning)
        strbuf_addf(&text, "%s\n", warning);
    if (text.failed)
        return -ENOMEM;
    if (!text.len || objects->is_silent ||
        (objects->warned && strcmp(objects->warned, strbuf_text(&text)) == 0))
        return 0;
    tell_lines(objects, waiting, strbuf_text(&text));
    objects->warned = arena_strdup(objects->names, strbuf_text(&text));
    return objects->warned ? 0 : -ENOMEM;
}

int objects_admit(struct objects *objects, const struct waiting_pod *waiting, struct pod *ret_pod,
                  struct error *err)
{
    const struct admit_options options = {
        .scheduler_name = objects->scheduler_name,
        .overwrite_default_scheduler = true,
        .find_bounds = find_bounds,
        .data = objects->cluster,
    };
    struct admit_answer answer;
    struct demand demand;
    yyjson_val *root;
    int r;

    arena_reset(objects->arena);
    r = json_parse(waiting->text, strlen(waiting->text), objects->arena, &root, err);
    if (r == 0)
        r = read_waiting(objects, waiting, root, ret_pod, err);
    if (r < 0)
        return r;
    r = admit_pod(&options, &objects->vendors, ret_pod, objects->arena, &answer);
    objects->advice = r > 0 ? answer.warning : NULL;
    if (r > 0 && print_warnings(objects, waiting, ret_pod, answer.warning) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    if (r == ADMIT_DENIED)
        return error_set(err, -EPERM, "%s", answer.message);
    if (r == ADMIT_PATCHED) {
        root = patched(objects, root, answer.patch);
        r = root ? read_waiting(objects, waiting, root, ret_pod, err) : -ENOMEM;
    }
    if (r < 0)
        return r;
    r = vendor_read_demand(&objects->vendors, ret_pod, objects->arena, &demand);
    if (r < 0)
        return error_set(err, r, "out of memory");
    return r > 0 && strcmp(ret_pod->scheduler_name, objects->scheduler_name) == 0;
}

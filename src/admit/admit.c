/* SPDX-License-Identifier: Apache-2.0 */
#include "admit/admit.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "admit/patch.h"
#include "base/spelling.h"
#include "base/util.h"
#include "model/keys.h"

enum {
    CODE_OK = 200,
    CODE_FORBIDDEN = 403,
    CODE_INVALID = 422,
};

#define DEFAULT_SCHEDULER "default-scheduler"

/* Letters by which an annotation may differ from the one that is meant: "use-uuid" lacks a word of
 * three. More than elsewhere, since the domain is ours or a vendor's. */
#define WISH_NEAR (SPELLING_NEAR + 1)

/* The annotations by which a user says where a pod of any vendor is to go. */
static const char *const wishes[] = {KEY_NODE_POLICY, KEY_DEVICE_POLICY, KEY_DEVICE_WEIGHTS, NULL};

/* One pod while it is admitted. */
struct admission {
    const struct admit_options *options;
    const struct vendor_set *vendors;
    const struct pod *pod;
    struct mutations mutations;
    bool asked[VENDOR_MAX_INSTANCES]; /* by the set's position: the pod asks for its devices */
    bool gets;                        /* a container gets a device */
    const char *warning;              /* of what the container asks for; NULL: none */
    struct error err;
};

static int set_answer(struct admit_answer *ret_answer, int outcome, int code, const char *reason,
                      const char *message)
{
    *ret_answer = (struct admit_answer){
        .code = code,
        .reason = reason,
        .message = message,
        .patch = "",
    };
    return outcome;
}

static int deny_forbidden(struct admit_answer *ret_answer, const char *message)
{
    return set_answer(ret_answer, ADMIT_DENIED, CODE_FORBIDDEN, "Forbidden", message);
}

static const char *our_scheduler(const struct admit_options *options)
{
    return options->scheduler_name ? options->scheduler_name : "";
}

/* A pod that names no scheduler, or the default one, gets ours, if the options say so. */
static bool is_ours(const struct admission *admission)
{
    const char *name = admission->pod->scheduler_name;

    return admission->options->overwrite_default_scheduler &&
           (!*name || strcmp(name, DEFAULT_SCHEDULER) == 0);
}

/* A pod that names our scheduler itself is completed like any other, as in HAMi 2.10: left as it is
 * (2.8) one that names memory alone would be placed without a device. */
static bool names_us(const struct admission *admission)
{
    const char *ours = our_scheduler(admission->options);

    return *ours && strcmp(admission->pod->scheduler_name, ours) == 0;
}

static int add_mutation(struct admission *admission, const struct mutation *mutation)
{
    if (admission->mutations.count == MUTATIONS_MAX)
        return -ENOMEM;
    admission->mutations.items[admission->mutations.count++] = *mutation;
    return 0;
}

static int drop_annotation(struct admission *admission, const char *key)
{
    if (!key || !text_pairs_get(&admission->pod->annotations, key))
        return 0;
    return add_mutation(admission,
                        &(struct mutation){.kind = MUTATION_DROP_ANNOTATION, .name = key});
}

/*
 * A new pod has been given nothing yet. An annotation that says otherwise was copied from another
 * pod, by `kubectl debug --copy-to` or out of a backup, and would be believed.
 */
static int drop_grants(struct admission *admission)
{
    static const char *const keys[] = {KEY_NODE,       KEY_TIME,       KEY_BIND_TIME,
                                       KEY_BIND_PHASE, POD_INIT_ROLES, KEY_PRIORITY};
    const struct vendor_set *vendors = admission->vendors;
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(keys) && r == 0; i++)
        r = drop_annotation(admission, keys[i]);
    for (size_t i = 0; i < vendors->count && r == 0; i++) {
        const char *key;

        for (size_t k = 0; r == 0 && (key = vendor_grant_key(&vendors->instances[i], k)); k++)
            r = drop_annotation(admission, key);
    }
    if (r == 0 && text_pairs_get(&admission->pod->labels, KEY_NODE))
        r = add_mutation(admission,
                         &(struct mutation){.kind = MUTATION_DROP_LABEL, .name = KEY_NODE});
    return r;
}

static int deny_privileged(struct admission *admission, size_t container)
{
    const struct container_place place = pod_container_place(admission->pod, container);

    return error_set(
        &admission->err, -EINVAL,
        "spec.%s[%zu].%s: a privileged container, or one with the capability SYS_ADMIN, "
        "gets no share of a device, since it can drop every limit",
        place.list, place.position, admission->pod->containers[container].privilege);
}

static int deny_mount(struct admission *admission, size_t container)
{
    const struct container_place place = pod_container_place(admission->pod, container);

    return error_set(&admission->err, -EINVAL,
                     "spec.%s[%zu].volumeMounts: \"%.64s\" leads through /proc, or back by \"..\"; "
                     "in a container with a share of a device it could hide what holds it to that",
                     place.list, place.position,
                     admission->pod->containers[container].through_proc);
}

/* The container asks for no device in so many words. */
static bool asks_for_none(const struct container *container, const struct vendor_instance *instance)
{
    const struct resource *count = container_resource(container, instance->count_resource);

    return count && count->quantity.value == 0;
}

/* An amount of a device that no container asks for: forgotten was the number of devices, or it is
 * 0. What takes nothing of a device, and means something at 0, is one if hints are. */
static const char *find_idle(const struct container *container,
                             const struct vendor_instance *instance, bool hints)
{
    for (size_t i = 0; i < VENDOR_MAX_RESOURCES && instance->resources[i]; i++) {
        const char *name = instance->resources[i];
        const struct resource *resource = *name ? resource_find(&container->limits, name) : NULL;

        if (!resource || strcmp(name, instance->count_resource) == 0)
            continue;
        if (instance->hint_resource && strcmp(name, instance->hint_resource) == 0) {
            if (hints && !asks_for_none(container, instance))
                return name;
        } else if (resource->quantity.value > 0) {
            return name;
        }
    }
    return NULL;
}

/* -ENOMEM. */
static int warn_of_idle(struct admission *admission, size_t container, bool hints)
{
    const struct container_place place = pod_container_place(admission->pod, container);
    const struct container *of = &admission->pod->containers[container];

    for (size_t k = 0; k < admission->vendors->count && !admission->warning; k++) {
        const struct vendor_instance *instance = &admission->vendors->instances[k];
        const char *name = find_idle(of, instance, hints);
        const bool is_none = asks_for_none(of, instance);

        if (!name)
            continue;
        admission->warning = arena_printf(
            admission->mutations.arena,
            "spec.%s[%zu].resources.limits[%s]: asks for nothing %s %s%s in the same container",
            place.list, place.position, name, is_none ? "beside" : "without",
            instance->count_resource, is_none ? ": 0" : "");
        if (!admission->warning)
            return -ENOMEM;
    }
    return 0;
}

/* 1 when the container asks for devices. A privileged one that doesn't is left as it is. */
static int mutate_container(struct admission *admission, size_t container)
{
    const struct pod *pod = admission->pod;
    const size_t before = admission->mutations.count;
    bool gets = false;
    int r, any = 0;

    for (size_t k = 0; k < admission->vendors->count; k++) {
        const struct vendor_instance *instance = &admission->vendors->instances[k];

        r = instance->vendor->mutate(instance, pod, container, &admission->mutations,
                                     &admission->err);
        if (r < 0)
            return r;
        admission->asked[k] |= r > 0;
        any |= r;
        gets |= r > 0 && !asks_for_none(&pod->containers[container], instance);
    }
    admission->gets |= gets;
    if (!gets && !admission->warning && warn_of_idle(admission, container, false) < 0)
        return -ENOMEM;
    if (any && pod->containers[container].through_proc)
        return deny_mount(admission, container);
    if (!pod->containers[container].privilege)
        return any;
    if (any)
        return deny_privileged(admission, container);
    admission->mutations.count = before;
    return 0;
}

/* 1 when any container asks for devices. */
static int mutate_pod(struct admission *admission)
{
    int r, any = 0;

    for (size_t i = 0; i < admission->pod->container_count; i++) {
        r = mutate_container(admission, i);
        if (r < 0)
            return r;
        any |= r;
    }
    for (size_t i = 0; i < admission->pod->container_count && !admission->gets; i++) {
        if (!admission->warning && warn_of_idle(admission, i, true) < 0)
            return -ENOMEM;
    }
    return any;
}

/* HAMi reads an unknown policy as binpack of nodes and as spread of devices; here the pod is
 * denied. */
static int check_policies(struct admission *admission)
{
    const struct text_pairs *annotations = &admission->pod->annotations;
    const char *text = text_pairs_get(annotations, KEY_NODE_POLICY);
    struct place_weights unused;
    enum place_order unread;

    if (text && !place_node_order_read(text, &unread))
        return error_set(&admission->err, -EINVAL,
                         "metadata.annotations[%s]: \"%.64s\" is none of " PLACE_NODE_ORDERS,
                         KEY_NODE_POLICY, text);
    text = text_pairs_get(annotations, KEY_DEVICE_POLICY);
    if (text && !place_policy_check(text))
        return error_set(&admission->err, -EINVAL,
                         "metadata.annotations[%s]: \"%.64s\" is not made of binpack, spread, "
                         "mutex, numa, topology-aware",
                         KEY_DEVICE_POLICY, text);
    text = text_pairs_get(annotations, KEY_DEVICE_WEIGHTS);
    if (!text || place_weights_read(text, &unused, &admission->err) == 0)
        return 0;
    return error_wrap(&admission->err, -EINVAL, "metadata.annotations[%s]", KEY_DEVICE_WEIGHTS);
}

static int deny_field(const struct admission *admission, struct admit_answer *ret_answer)
{
    const char *message = arena_strdup(admission->mutations.arena, admission->err.text);

    if (!message)
        return -ENOMEM;
    return set_answer(ret_answer, ADMIT_DENIED, CODE_INVALID, "Invalid", message);
}

static int admit_finish(const struct admission *admission, const char *message,
                        struct admit_answer *ret_answer)
{
    int outcome = set_answer(ret_answer, ADMIT_ALLOWED, CODE_OK, "", message);

    if (!admission->mutations.count)
        return outcome;
    ret_answer->patch =
        patch_format(admission->pod, &admission->mutations, admission->mutations.arena);
    return ret_answer->patch ? ADMIT_PATCHED : -ENOMEM;
}

/* Asks for more than the namespace may ever have, whatever its pods have now. */
static int check_bound(struct admission *admission, const struct vendor_instance *instance,
                       const char *resource, uint64_t asked, int64_t bound, int64_t unit)
{
    if ((int64_t)asked <= bound)
        return 0;
    return error_set(&admission->err, -EDQUOT,
                     "exceeded quota: %s in namespace %s: %" PRId64 " asked > %" PRId64,
                     resource ? resource : instance->id.word, admission->pod->namespace,
                     (int64_t)asked / unit, bound / unit);
}

static int set_limit(struct container *container, const struct mutation *change,
                     struct arena *arena)
{
    const struct resource_list had = container->limits;
    struct resource *items = ARENA_ARRAY(arena, struct resource, had.count + 1);
    size_t count = 0;
    int r;

    if (!items)
        return -ENOMEM;
    for (size_t i = 0; i < had.count; i++) {
        if (strcmp(had.items[i].name, change->name) != 0)
            items[count++] = had.items[i];
    }
    items[count] = (struct resource){.name = change->name, .text = change->value};
    r = quantity_parse(change->value, strlen(change->value), &items[count].quantity);
    assert(r == 0);
    container->limits = (struct resource_list){items, count + 1};
    return r;
}

/* What the pod asks for with the limits that the mutations set: a count that it left out is one of
 * them. As vendor_read_demand(). */
static int read_completed(const struct admission *admission, struct demand *ret_demand)
{
    struct arena *arena = admission->mutations.arena;
    struct pod pod = *admission->pod;
    struct container *containers = ARENA_ARRAY(arena, struct container, pod.container_count);
    int r = 0;

    if (!containers)
        return -ENOMEM;
    memcpy(containers, pod.containers, pod.container_count * sizeof(*containers));
    pod.containers = containers;
    for (size_t i = 0; i < admission->mutations.count && r == 0; i++) {
        const struct mutation *change = &admission->mutations.items[i];

        if (change->kind == MUTATION_LIMIT)
            r = set_limit(&containers[change->container], change, arena);
    }
    return r < 0 ? r : vendor_read_demand(admission->vendors, &pod, arena, ret_demand);
}

static int check_bounds(struct admission *admission)
{
    const struct admit_options *options = admission->options;
    struct arena *arena = admission->mutations.arena;
    const struct place_budget *bounds;
    struct demand demand;
    size_t count = 0;
    int r;

    if (!options->find_bounds)
        return 0;
    r = options->find_bounds(options->data, admission->pod->namespace, arena, &bounds, &count);
    if (r < 0 || !count)
        return r;
    r = read_completed(admission, &demand);
    if (r <= 0)
        return r;
    for (size_t i = 0; i < count; i++) {
        const struct vendor_instance *instance = vendor_of(bounds[i].vendor);
        const struct place_total total = place_demand_total(&demand, bounds[i].vendor);

        r = check_bound(admission, instance, instance->memory_resource, total.memory_mib,
                        bounds[i].memory_mib, MAX(instance->memory_unit_mib, 1));
        if (r == 0)
            r = check_bound(admission, instance, instance->cores_resource, total.cores,
                            bounds[i].cores, 1);
        if (r < 0)
            return r;
    }
    return 0;
}

static int deny_beyond(const struct admission *admission, struct admit_answer *ret_answer)
{
    const char *message = arena_strdup(admission->mutations.arena, admission->err.text);

    return message ? deny_forbidden(ret_answer, message) : -ENOMEM;
}

/*
 * Two vendors' agents that wait for the same lock: the one that is done first removes it. HAMi lets
 * such a pod pass, too. 1, with the text; 0; -ENOMEM.
 */
static int warn_of_lock(const struct admission *admission, const char **ret_text)
{
    const struct vendor_instance *first = NULL;

    for (size_t i = 0; i < admission->vendors->count; i++) {
        const struct vendor_instance *instance = &admission->vendors->instances[i];

        if (!admission->asked[i] || !instance->vendor->shares_lock)
            continue;
        if (first && first->vendor != instance->vendor) {
            *ret_text = arena_printf(
                admission->mutations.arena,
                "spec.containers: the agents of %s and %s share one lock, and the second may not "
                "start the pod; put them into two pods",
                first->count_resource, instance->count_resource);
            return *ret_text ? 1 : -ENOMEM;
        }
        first = instance;
    }
    return 0;
}

/* The wish that is nearest to an annotation which is none, in the same domain; NULL: it is one, or
 * near to none. */
static const char *find_wish(const char *const *known, const char *name)
{
    const size_t domain = strcspn(name, "/") + 1;
    size_t nearest = WISH_NEAR + 1;
    const char *found = NULL;

    for (; *known; known++) {
        size_t distance;

        if (strcmp(name, *known) == 0)
            return NULL;
        if (strncmp(name, *known, domain) != 0)
            continue;
        distance = spelling_distance(name, *known);
        if (distance < nearest) {
            nearest = distance;
            found = *known;
        }
    }
    return found;
}

/* An annotation that nobody reads, and that is nearly one which says what devices the pod wants.
 * Others may be anybody's. known may be NULL. 1, with the text; 0; -ENOMEM. */
static int warn_of_wish(const struct admission *admission, const char *const *known,
                        const char **ret_text)
{
    const struct text_pairs *annotations = &admission->pod->annotations;

    for (size_t i = 0; known && i < annotations->count; i++) {
        const char *name = annotations->items[i].key;
        const char *meant = find_wish(known, name);

        if (!meant)
            continue;
        *ret_text = arena_printf(admission->mutations.arena,
                                 "metadata.annotations[%.128s]: nothing reads it, and the pod is "
                                 "placed as if it were not there; is %s meant?",
                                 name, meant);
        return *ret_text ? 1 : -ENOMEM;
    }
    return 0;
}

/* As warn_of_wish(), by what the vendors of the pod's devices know, and all of them. */
static int warn_of_wishes(const struct admission *admission, const char **ret_text)
{
    bool any = false;
    int r = 0;

    for (size_t i = 0; i < admission->vendors->count && r == 0; i++) {
        if (!admission->asked[i])
            continue;
        any = true;
        r = warn_of_wish(admission, admission->vendors->instances[i].vendor->wishes, ret_text);
    }
    return r == 0 && any ? warn_of_wish(admission, wishes, ret_text) : r;
}

/* The first thing that speaks against a pod that is let pass. Keeps the outcome; -ENOMEM. */
static int add_warning(const struct admission *admission, int outcome,
                       struct admit_answer *ret_answer)
{
    int r = 0;

    ret_answer->warning = admission->warning;
    for (size_t i = 0; i < admission->vendors->count && r == 0 && !ret_answer->warning; i++) {
        const struct vendor_instance *instance = &admission->vendors->instances[i];

        if (admission->asked[i] && instance->vendor->warn)
            r = instance->vendor->warn(instance, admission->pod, admission->mutations.arena,
                                       &ret_answer->warning);
    }
    if (r == 0 && !ret_answer->warning)
        r = warn_of_wishes(admission, &ret_answer->warning);
    if (r == 0 && !ret_answer->warning)
        r = warn_of_lock(admission, &ret_answer->warning);
    return r < 0 ? r : outcome;
}

static int admit_complete(struct admission *admission, struct admit_answer *ret_answer)
{
    const char *ours = our_scheduler(admission->options);
    int r;

    r = mutate_pod(admission);
    if (r > 0 && check_policies(admission) < 0)
        r = -EINVAL;
    if (r > 0) {
        int bounded = check_bounds(admission);

        r = bounded < 0 ? bounded : r;
    }
    if (r == -EINVAL)
        return deny_field(admission, ret_answer);
    if (r == -EDQUOT)
        return deny_beyond(admission, ret_answer);
    if (r < 0)
        return r;
    if (!r || !*ours) {
        r = admit_finish(admission, "", ret_answer);
        return r < 0 ? r : add_warning(admission, r, ret_answer);
    }
    if (*admission->pod->node_name)
        return deny_forbidden(ret_answer, "pod has node assigned");
    if (!names_us(admission)) {
        r = add_mutation(admission,
                         &(struct mutation){.kind = MUTATION_SCHEDULER, .name = "", .value = ours});
        if (r < 0)
            return r;
    }
    r = admit_finish(admission, "", ret_answer);
    return r < 0 ? r : add_warning(admission, r, ret_answer);
}

/*
 * A pod of another scheduler may ask for our devices all the same: as it stands, or with the number
 * of devices that would be added if it were ours. What it asks for in vain is admission->warning.
 * 1, with the text; 0; -ENOMEM.
 */
static int warn_of_scheduler(struct admission *admission, const char **ret_text)
{
    struct arena *arena = admission->mutations.arena;
    const char *then = "it will not start";
    struct demand demand;
    int r;

    r = vendor_read_demand(admission->vendors, admission->pod, arena, &demand);
    if (r == 0) {
        then = "it gets none";
        r = mutate_pod(admission);
        if (r > 0 && !admission->gets)
            r = 0;
    }
    if (r == -ENOMEM)
        return r;
    if (r <= 0) /* nothing, or what no container can get */
        return 0;
    *ret_text = arena_printf(arena,
                             "spec.schedulerName: the pod asks for a share of a device, which only "
                             "%s gives; placed by another scheduler %s",
                             our_scheduler(admission->options), then);
    return *ret_text ? 1 : -ENOMEM;
}

static int leave_to_another(struct admission *admission, struct admit_answer *ret_answer)
{
    int r, outcome;

    outcome = admit_finish(admission, "pod already has different scheduler assigned", ret_answer);
    if (outcome < 0 || !*our_scheduler(admission->options))
        return outcome;
    r = warn_of_scheduler(admission, &ret_answer->warning);
    if (r == 0)
        ret_answer->warning = admission->warning;
    return r < 0 ? r : outcome;
}

static int admit_or_leave(struct admission *admission, struct admit_answer *ret_answer)
{
    int r;

    if (admission->pod->container_count == admission->pod->init_count)
        return deny_forbidden(ret_answer, "pod has no containers");
    r = drop_grants(admission);
    if (r < 0)
        return r;
    if (is_ours(admission) || names_us(admission))
        return admit_complete(admission, ret_answer);
    return leave_to_another(admission, ret_answer);
}

int admit_pod(const struct admit_options *options, const struct vendor_set *vendors,
              const struct pod *pod, struct arena *arena, struct admit_answer *ret_answer)
{
    struct admission admission = {
        .options = options,
        .vendors = vendors,
        .pod = pod,
        .mutations = {.arena = arena},
    };

    admission.mutations.items = ARENA_ARRAY(arena, struct mutation, MUTATIONS_MAX);
    if (!admission.mutations.items)
        return -ENOMEM;
    return admit_or_leave(&admission, ret_answer);
}

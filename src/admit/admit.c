/* SPDX-License-Identifier: Apache-2.0 */
#include "admit/admit.h"

#include <errno.h>
#include <string.h>

#include "admit/patch.h"

enum {
    CODE_OK = 200,
    CODE_FORBIDDEN = 403,
    CODE_INVALID = 422,
};

#define DEFAULT_SCHEDULER "default-scheduler"

/* A pod while it is looked at. */
struct admission {
    const struct admit_options *options;
    const struct vendor_set *vendors;
    const struct pod *pod;
    struct edits edits;
    struct error err;
};

static int answer(struct admit_answer *ret_answer, int outcome, int code, const char *reason,
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

static int forbid(struct admit_answer *ret_answer, const char *message)
{
    return answer(ret_answer, ADMIT_DENIED, CODE_FORBIDDEN, "Forbidden", message);
}

static const char *our_scheduler(const struct admit_options *options)
{
    return options->scheduler_name ? options->scheduler_name : "";
}

/* Pods that name no scheduler, or the default one, are ours to give away, if that is allowed. */
static bool is_ours(const struct admission *admission)
{
    const char *name = admission->pod->scheduler_name;

    return admission->options->overwrite_default_scheduler &&
           (!*name || strcmp(name, DEFAULT_SCHEDULER) == 0);
}

/* A pod that names our scheduler itself is not changed, but what can't be meant is denied all the
 * same. */
static bool names_us(const struct admission *admission)
{
    const char *ours = our_scheduler(admission->options);

    return *ours && strcmp(admission->pod->scheduler_name, ours) == 0;
}

/* 1 when any container asks for devices. */
static int mutate(struct admission *admission)
{
    const struct pod *pod = admission->pod;
    int r, any = 0;

    for (size_t i = 0; i < pod->container_count; i++) {
        if (pod->containers[i].privileged)
            continue;
        for (size_t k = 0; k < admission->vendors->count; k++) {
            const struct vendor_instance *instance = &admission->vendors->instances[k];

            r = instance->vendor->mutate(instance, pod, i, &admission->edits, &admission->err);
            if (r < 0)
                return r;
            any |= r;
        }
    }
    return any;
}

static int deny_field(const struct admission *admission, struct admit_answer *ret_answer)
{
    const char *message = arena_strdup(admission->edits.arena, admission->err.text);

    if (!message)
        return -ENOMEM;
    return answer(ret_answer, ADMIT_DENIED, CODE_INVALID, "Invalid", message);
}

static int finish(const struct admission *admission, struct admit_answer *ret_answer)
{
    int outcome = answer(ret_answer, ADMIT_ALLOWED, CODE_OK, "", "");

    if (!admission->edits.count)
        return outcome;
    ret_answer->patch = patch_format(admission->pod, &admission->edits, admission->edits.arena);
    return ret_answer->patch ? ADMIT_PATCHED : -ENOMEM;
}

static int admit(struct admission *admission, struct admit_answer *ret_answer)
{
    const char *ours = our_scheduler(admission->options);
    int r;

    if (admission->pod->container_count == admission->pod->init_count)
        return forbid(ret_answer, "pod has no containers");
    if (!is_ours(admission) && !names_us(admission))
        return answer(ret_answer, ADMIT_ALLOWED, CODE_OK, "",
                      "pod already has different scheduler assigned");
    r = mutate(admission);
    if (r == -EINVAL)
        return deny_field(admission, ret_answer);
    if (r < 0)
        return r;
    if (!is_ours(admission))
        return answer(ret_answer, ADMIT_ALLOWED, CODE_OK, "",
                      "pod already has different scheduler assigned");
    if (!r || !*ours)
        return finish(admission, ret_answer);

    if (*admission->pod->node_name)
        return forbid(ret_answer, "pod has node assigned");
    admission->edits.items[admission->edits.count++] =
        (struct edit){.kind = EDIT_SCHEDULER, .name = "", .value = ours};
    return finish(admission, ret_answer);
}

int admit_pod(const struct admit_options *options, const struct vendor_set *vendors,
              const struct pod *pod, struct arena *arena, struct admit_answer *ret_answer)
{
    struct admission admission = {
        .options = options,
        .vendors = vendors,
        .pod = pod,
        .edits = {.arena = arena},
    };

    admission.edits.items = ARENA_ARRAY(arena, struct edit, EDITS_MAX + 1);
    if (!admission.edits.items)
        return -ENOMEM;
    return admit(&admission, ret_answer);
}

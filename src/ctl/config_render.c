/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/config_render.h"

#include <string.h>

/*
 * The manifests as deploy/ ships them, but for its comments. Between the pieces stands what follows
 * from the configuration.
 */

static const char webhook_head[] = "apiVersion: admissionregistration.k8s.io/v1\n"
                                   "kind: MutatingWebhookConfiguration\n"
                                   "metadata:\n"
                                   "  name: hami-webhook\n"
                                   "webhooks:\n"
                                   "  - name: vgpu.hami.io\n"
                                   "    admissionReviewVersions: [v1]\n"
                                   "    clientConfig:\n"
                                   "      service:\n"
                                   "        name: hami-scheduler\n"
                                   "        namespace: hami-system\n"
                                   "        path: /webhook\n"
                                   "        port: 443\n"
                                   "      caBundle: \"\"\n"
                                   "    rules:\n"
                                   "      - apiGroups: [\"\"]\n"
                                   "        apiVersions: [v1]\n"
                                   "        operations: [CREATE]\n"
                                   "        resources: [pods]\n"
                                   "        scope: Namespaced\n"
                                   "    namespaceSelector:\n"
                                   "      matchExpressions:\n"
                                   "        - key: hami.io/webhook\n"
                                   "          operator: NotIn\n"
                                   "          values: [ignore]\n"
                                   "    matchConditions:\n";

static const char webhook_tail[] =
    "      - name: is-no-mirror-of-a-static-pod\n"
    "        expression: >-\n"
    "          !(has(object.metadata.annotations) && \"kubernetes.io/config.mirror\" in "
    "object.metadata.annotations\n"
    "          && has(request.userInfo.groups) && \"system:nodes\" in request.userInfo.groups)\n"
    "    matchPolicy: Equivalent\n"
    "    sideEffects: None\n"
    "    reinvocationPolicy: Never\n"
    "    timeoutSeconds: 10\n"
    "    failurePolicy: Fail\n";

static const char scheduler_head[] = "apiVersion: v1\n"
                                     "kind: ConfigMap\n"
                                     "metadata:\n"
                                     "  name: hami-kube-scheduler\n"
                                     "  namespace: hami-system\n"
                                     "data:\n"
                                     "  config.yaml: |\n"
                                     "    apiVersion: kubescheduler.config.k8s.io/v1\n"
                                     "    kind: KubeSchedulerConfiguration\n"
                                     "    clientConnection: {}\n"
                                     "    leaderElection:\n"
                                     "      leaderElect: true\n"
                                     "      resourceName: hami-scheduler\n"
                                     "      resourceNamespace: hami-system\n"
                                     "    percentageOfNodesToScore: 100\n"
                                     "    profiles:\n"
                                     "      - schedulerName: hami-scheduler\n"
                                     "    extenders:\n"
                                     "      - urlPrefix: https://127.0.0.1:9443\n"
                                     "        filterVerb: filter\n"
                                     "        bindVerb: bind\n"
                                     "        preemptVerb: preempt\n"
                                     "        enableHTTPS: true\n"
                                     "        tlsConfig:\n"
                                     "          caFile: /tls/ca.crt\n"
                                     "        nodeCacheCapable: true\n"
                                     "        weight: 1\n"
                                     "        httpTimeout: 30s\n"
                                     "        managedResources:\n";

static const char role[] =
    "apiVersion: rbac.authorization.k8s.io/v1\n"
    "kind: ClusterRole\n"
    "metadata:\n"
    "  name: hami-scheduler\n"
    "rules:\n"
    "  - apiGroups: [\"\"]\n"
    "    resources: [nodes, pods, resourcequotas]\n"
    "    verbs: [get, list, watch]\n"
    "  - apiGroups: [\"\"]\n"
    "    resources: [pods/binding]\n"
    "    verbs: [create]\n"
    "  - apiGroups: [\"\"]\n"
    "    resources: [pods/status]\n"
    "    verbs: [patch]\n"
    "  - apiGroups: [\"\", events.k8s.io]\n"
    "    resources: [events]\n"
    "    verbs: [create, patch]\n"
    "  - apiGroups: [admissionregistration.k8s.io]\n"
    "    resources: [validatingadmissionpolicybindings]\n"
    "    resourceNames: [hami-device-plugin, hami-pod-grants, hami-shares, hami-bindings]\n"
    "    verbs: [get]\n";

static const char shares_head[] =
    "apiVersion: admissionregistration.k8s.io/v1\n"
    "kind: ValidatingAdmissionPolicy\n"
    "metadata:\n"
    "  name: hami-shares\n"
    "spec:\n"
    "  failurePolicy: Fail\n"
    "  matchConstraints:\n"
    "    resourceRules:\n"
    "      - apiGroups: [\"\"]\n"
    "        apiVersions: [v1]\n"
    "        operations: [CREATE]\n"
    "        resources: [pods]\n"
    "    namespaceSelector:\n"
    "      matchExpressions:\n"
    "        - key: hami.io/webhook\n"
    "          operator: NotIn\n"
    "          values: [ignore]\n"
    "  matchConditions:\n"
    "    - name: asks-for-a-share\n"
    "      expression: >-\n"
    "        (object.spec.containers + (has(object.spec.initContainers) ? "
    "object.spec.initContainers : []))\n"
    "        .exists(c, has(c.resources) && (\n";

static const char shares_tail[] =
    "    - name: is-no-mirror-of-a-static-pod\n"
    "      expression: >-\n"
    "        !(has(object.metadata.annotations) && \"kubernetes.io/config.mirror\" in "
    "object.metadata.annotations\n"
    "        && has(request.userInfo.groups) && \"system:nodes\" in request.userInfo.groups)\n"
    "  validations:\n"
    "    - expression: object.spec.schedulerName == \"hami-scheduler\"\n"
    "      message: \"spec.schedulerName: a pod that asks for a share of a GPU is placed by "
    "hami-scheduler; leave the field out, and the webhook sets it\"\n"
    "    - expression: \"!has(object.spec.nodeName) || object.spec.nodeName == \\\"\\\"\"\n"
    "      message: \"spec.nodeName: a pod that asks for a share of a GPU names no node; use "
    "nodeSelector or affinity\"\n";

/* All that the scheduler writes on any pod begins so. */
static const char *const grant_prefixes[] = {"hami.io/vgpu-", "hami.io/bind-"};

static bool begins_as_ours(const char *key)
{
    for (size_t i = 0; i < 2; i++) {
        if (strncmp(key, grant_prefixes[i], strlen(grant_prefixes[i])) == 0)
            return true;
    }
    return false;
}

static void add_annotations(struct strbuf *text, const struct vendor_set *vendors)
{
    strbuf_addf(text, "k.startsWith(\"%s\") || k.startsWith(\"%s\")", grant_prefixes[0],
                grant_prefixes[1]);
    for (size_t i = 0; i < vendors->count; i++) {
        const char *key;

        for (size_t k = 0; (key = vendor_grant_key(&vendors->instances[i], k)); k++) {
            if (!begins_as_ours(key))
                strbuf_addf(text, " || k == \"%s\"", key);
        }
    }
}

/* A resource's domain with its slash; all of a name without one. */
static size_t domain_len(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash ? (size_t)(slash + 1 - name) : strlen(name);
}

/* The resources of all vendors, one after the other: NULL after the last. */
static const char *resource_at(const struct vendor_set *vendors, size_t number)
{
    for (size_t i = 0; i < vendors->count; i++) {
        for (size_t k = 0; k < VENDOR_MAX_RESOURCES && vendors->instances[i].resources[k]; k++) {
            if (*vendors->instances[i].resources[k] && !number--)
                return vendors->instances[i].resources[k];
        }
    }
    return NULL;
}

/* Whether an earlier resource has as much of the name in common. */
static bool stands_before(const struct vendor_set *vendors, size_t number, size_t len)
{
    const char *name = resource_at(vendors, number);

    for (size_t i = 0; i < number; i++) {
        const char *other = resource_at(vendors, i);

        if (strncmp(other, name, len) == 0 && domain_len(other) == domain_len(name))
            return true;
    }
    return false;
}

static void add_resources(struct strbuf *text, const struct vendor_set *vendors)
{
    const char *name;
    bool any = false;

    for (size_t i = 0; (name = resource_at(vendors, i)); i++) {
        const size_t len = domain_len(name);

        if (stands_before(vendors, i, len))
            continue;
        strbuf_addf(text, name[len] ? "%sr.startsWith(\"%.*s\")" : "%sr == \"%.*s\"",
                    any ? " || " : "", (int)len, name);
        any = true;
    }
}

/* Pods that the webhook has nothing to say of don't even come to it. */
static void add_condition(struct strbuf *text, const struct vendor_set *vendors)
{
    strbuf_add(text, "      - name: asks-for-a-device-or-says-it-has-one\n"
                     "        expression: >-\n"
                     "          (has(object.metadata.annotations) && "
                     "object.metadata.annotations.exists(k,\n"
                     "          ");
    add_annotations(text, vendors);
    strbuf_add(text, ")) ||\n"
                     "          (object.spec.containers + (has(object.spec.initContainers) ? "
                     "object.spec.initContainers : []))\n"
                     "          .exists(c, has(c.resources) && (\n"
                     "          (has(c.resources.limits) && c.resources.limits.exists(r, ");
    add_resources(text, vendors);
    strbuf_add(text, ")) ||\n"
                     "          (has(c.resources.requests) && c.resources.requests.exists(r, ");
    add_resources(text, vendors);
    strbuf_add(text, "))))\n");
}

static bool changes_all_pods(const struct vendor_set *vendors)
{
    for (size_t i = 0; i < vendors->count; i++) {
        if (vendors->instances[i].changes_all_pods)
            return true;
    }
    return false;
}

static void add_managed(struct strbuf *text, const struct vendor_set *vendors)
{
    const char *name;

    for (size_t i = 0; (name = resource_at(vendors, i)); i++) {
        if (!stands_before(vendors, i, strlen(name) + 1))
            strbuf_addf(text, "          - name: %s\n            ignoredByScheduler: true\n", name);
    }
}

static void add_taken(struct strbuf *text, const struct vendor_set *vendors, const char *amounts)
{
    bool any = false;

    strbuf_addf(text, "        (has(c.resources.%s) && [", amounts);
    for (size_t i = 0; i < vendors->count; i++) {
        const struct vendor_instance *instance = &vendors->instances[i];

        for (size_t k = 0; k < VENDOR_MAX_RESOURCES && instance->resources[k]; k++) {
            if (!*instance->resources[k] || instance->resources[k] == instance->hint_resource)
                continue;
            strbuf_addf(text, "%s\"%s\"", any ? ",\n        " : "", instance->resources[k]);
            any = true;
        }
    }
    strbuf_addf(text,
                "]\n        .exists(r, r in c.resources.%s && string(c.resources.%s[r]) != \"0\"))",
                amounts, amounts);
}

/* Of any vendor's: placed by another scheduler, a pod takes what was never granted. */
static void add_shares(struct strbuf *text, const struct vendor_set *vendors)
{
    strbuf_add(text, shares_head);
    add_taken(text, vendors, "limits");
    strbuf_add(text, " ||\n");
    add_taken(text, vendors, "requests");
    strbuf_add(text, "))\n");
    strbuf_add(text, shares_tail);
}

void config_render(struct strbuf *text, const struct vendor_set *vendors)
{
    strbuf_add(text, webhook_head);
    if (!changes_all_pods(vendors))
        add_condition(text, vendors);
    strbuf_add(text, webhook_tail);
    strbuf_add(text, "---\n");
    strbuf_add(text, scheduler_head);
    add_managed(text, vendors);
    strbuf_add(text, "---\n");
    strbuf_add(text, role);
    strbuf_add(text, "---\n");
    add_shares(text, vendors);
}

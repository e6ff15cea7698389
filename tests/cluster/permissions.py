#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What deploy/ lets each program do with the API, and what not, tried with its own token; and what tenants may."""

import ssl

from support import *

PHASE, TIME = "hami.io/bind-phase", "hami.io/vgpu-time"
REGISTER = programs.REGISTER
# All that says what a pod was given.
MIGS = "hami.io/vgpu-mig-allocations"
GRANT = [ON_NODE, TIME, ALLOCATED, TO_ALLOCATE, "hami.io/vgpu-init-containers", "hami.io/vgpu-pod-priority", PHASE, "hami.io/bind-time", MIGS]
TOLD = [
    "predicate-time", "AWS_NEURON_IDS", "NEURON_ALLOC_TIME", "NEURON_RESOURCE_TYPE", "aws.amazon.com/predicate-node", "BAIDU_COM_DEVICE_IDX", "CAMBRICON_DSMLU_PROFILE", "enflame.com/gcu-assigned-id", "enflame.com/gcu-assigned-index",
    "enflame.com/gcu-assigned-minor", "enflame.com/gcu-assigned-time", "enflame.com/gcu-request-size", "huawei.com/Ascend910B3", "huawei.com/vnpu-mode", "metax-tech.com/sgpu-qos-policy", "metax-tech.com/sgpu-app-class",
    "metax-tech.com/gpu-devices-allocated", "metax-tech.com/predicate-time", "mthreads.com/gpu-index", "mthreads.com/predicate-node", "mthreads.com/predicate-time",
]  # fmt: skip
RBAC = "/apis/rbac.authorization.k8s.io/v1"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
DENIED = 422
POD_PARTS = ["pods", "pods/status", "pods/binding", "pods/eviction", "pods/ephemeralcontainers", "bindings"]

# verb, group, resource, subresource, allowed
SCHEDULER = [
    ("watch", "", "pods", "", True),
    ("watch", "", "nodes", "", True),
    ("create", "", "pods", "binding", True),
    ("create", "", "pods", "eviction", False),
    ("create", "", "events", "", True),
    ("patch", "", "pods", "", False),
    ("delete", "", "pods", "", False),
    ("patch", "", "nodes", "", False),
    ("get", "", "secrets", "", False),
    ("get", "", "configmaps", "", False),
]
READ = {"get", "list", "watch"}
# All that an account may do with the resources of the cluster.
MAY = {
    "hami-device-plugin": {(kind, verb) for kind in ("nodes", "pods") for verb in READ | {"patch"}} | {("nodes/status", "patch")},
    "hami-vgpu-monitor": {("pods", verb) for verb in READ} | {("events", "create"), ("nodes/status", "patch")},
}


# And in the namespace in which events of nodes are.
IN_DEFAULT = {"hami-device-plugin": {("events", "create")}}


def caller(name):
    return kube.Api((WORK / f"{name}.token").read_text())


def check_rules():
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for verb, group, resource, subresource, allowed in SCHEDULER:
        wanted = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
        answer = caller("hami-scheduler").create(path, {"spec": {"resourceAttributes": wanted}})
        words = f"{verb} {resource}{'/' + subresource if subresource else ''}"
        check_equal(answer["status"]["allowed"], allowed, f"hami-scheduler may {'' if allowed else 'not '}{words}")


def check_all_rules(namespace):
    """Everything that an account may do, but for asking who it is."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    for name, wanted in MAY.items():
        answer = caller(name).create(path, {"spec": {"namespace": namespace}})
        own = {"authorization.k8s.io", "authentication.k8s.io"}
        rules = [rule for rule in answer["status"]["resourceRules"] if not own & set(rule["apiGroups"])]
        found = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
        if namespace == "default":
            wanted = wanted | IN_DEFAULT.get(name, set())
        check_equal(found, wanted, f"{name} may do with resources what it needs, and no more")
        check(all(not rule.get("resourceNames") for rule in rules), "whatever their names", rules)


def outcome(act):
    """What comes of a request: its status, and what was said."""
    try:
        act()
    except ApiError as error:
        return error.status, error.message
    return 200, ""


def expect(act, status, sentence):
    """The policies are in force some moments after they were made."""
    wait_until(lambda: outcome(act)[0] == status, 10, 0.2)
    got = outcome(act)
    check(got[0] == status, sentence, got, status)


def check_typed():
    """What the API server itself finds wrong with the policies' expressions."""

    def warnings():
        for policy in api.get(POLICIES)["items"]:
            if policy["metadata"]["name"].startswith("hami-"):
                if policy["status"].get("observedGeneration") is None:
                    return None
                yield from policy["status"].get("typeChecking", {}).get("expressionWarnings", [])

    check_equal(list(warnings()), [], "the API server finds nothing wrong with the policies' expressions")


# A device plugin's token


def widen(account):
    """More rights than it ships with: what is refused then, the policy refuses."""
    name = "hami-permissions-test"
    rules = [{"apiGroups": [""], "resources": ["nodes", "nodes/status", *POD_PARTS], "verbs": ["*"]}]
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    for kind, more in (("clusterroles", {"rules": rules}), ("clusterrolebindings", {"subjects": [subject], "roleRef": role})):
        api.delete(f"{RBAC}/{kind}/{name}")
        api.create(f"{RBAC}/{kind}", {"metadata": {"name": name}} | more)
        atexit.register(api.delete, f"{RBAC}/{kind}/{name}")


def metadata(**more):
    return {"metadata": more}


def annotations(*keys, value="x"):
    return metadata(annotations=dict.fromkeys(keys, value))


def change_conditions(who, node, condition):
    """As our programs do it: one condition by its type, whatever kubelet writes of the others in the meantime."""
    return who.patch(f"{node}/status", {"status": {"conditions": [condition]}}, strategic=True)


def owner(namespace, name):
    uid = get(namespace, name)["metadata"]["uid"]
    return metadata(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}])


def check_plugin_node():
    """Its own node: the registration, and conditions of ours. Another's: nothing."""
    plugin, ours, other = caller("hami-device-plugin"), f"/api/v1/nodes/{NODE}", "/api/v1/nodes/other"
    api.delete(other)
    api.create("/api/v1/nodes", {"metadata": {"name": "other"}})
    atexit.register(api.delete, other)
    before = api.get(ours)["metadata"]["annotations"]
    register = annotations(REGISTER, value=before.get(REGISTER, "[]"))
    api.patch(ours, metadata(annotations={"example.com/kept": "1", "hami.io/device-cordon": "GPU-0"}, labels={"example.com/kept": "1"}))
    expect(lambda: plugin.patch(ours, register), 200, "a device plugin registers its own node")
    expect(lambda: plugin.patch(other, register), DENIED, "but no other node")
    refused = [
        ("an annotation of others'", annotations("example.com/test")),
        ("an annotation of hami.io that is not its own", annotations("hami.io/test")),
        ("a node's lock", annotations("hami.io/mutex.lock")),
        ("what an operator cordoned", annotations("hami.io/device-cordon")),
        ("that a cordon is gone", annotations("hami.io/device-cordon", value=None)),
        ("that an annotation is gone", annotations("example.com/kept", value=None)),
        ("a label", metadata(labels={"example.com/test": "x"})),
        ("a label of hami.io", metadata(labels={ON_NODE: NODE})),
        ("that a label is gone", metadata(labels={"example.com/kept": None})),
        ("an owner", metadata(ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "other", "uid": "1"}])),
        ("a finalizer", metadata(finalizers=["example.com/test"])),
        ("a taint", {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}),
        ("that no pods may come", {"spec": {"unschedulable": True}}),
    ]
    for what, patch in refused:
        expect(lambda patch=patch: plugin.patch(ours, patch), DENIED, f"of its node it does not write {what}")
        expect(lambda patch=patch: plugin.patch(f"{ours}/status", patch), 200 if "spec" in patch else DENIED, "nor through the status")
    api.patch(ours, annotations("hami.io/mutex.lock"))
    expect(lambda: plugin.patch(ours, annotations("hami.io/mutex.lock", value="y")), DENIED, "nor does it change a lock that is there")
    expect(lambda: plugin.patch(ours, annotations("hami.io/mutex.lock", value=None)), 200, "but removes one")
    check(not api.get(ours)["spec"].get("unschedulable"), "a spec is not written through the status")
    condition = {"type": "hami.io/Test", "status": "True", "reason": "Test", "message": ""}
    expect(lambda: change_conditions(plugin, ours, condition), 200, "it writes conditions of hami.io")
    amounts = {"nvidia.com/gpumem": "1", "nvidia.com/gpucores": "1"}
    expect(lambda: plugin.patch(f"{ours}/status", {"status": {"capacity": amounts}}), 200, "it says how much memory and compute its cards have")
    api.patch(f"{ours}/status", {"status": {"capacity": dict.fromkeys(amounts)}})
    for what, patch in (
        ("other conditions", {"conditions": [condition, condition | {"type": "Ready", "status": "Unknown"}]}),
        ("that there are none", {"conditions": []}),
        ("the capacity", {"capacity": {"example.com/test": "1"}}),
        ("what can be allocated", {"allocatable": {"example.com/test": "1"}}),
        ("addresses", {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}),
        ("kubelet's port", {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}),
        ("images", {"images": [{"names": ["x"], "sizeBytes": 1}]}),
    ):
        patch = {"status": patch}
        if api.find(ours)["status"].get("conditions", [condition])[0]["type"] == "hami.io/Test" and what == "that there are none":
            continue  # a node without a kubelet has no other
        expect(lambda patch=patch: plugin.patch(f"{ours}/status", patch), DENIED, f"of its node's status it does not write {what}")
    gone = {"type": "hami.io/Test", "$patch": "delete"}
    expect(lambda: change_conditions(plugin, ours, gone), 200, "it takes its condition away")
    check(all(c["type"] != "hami.io/Test" for c in api.get(ours)["status"].get("conditions", [])), "and it is gone")
    expect(lambda: plugin.delete(other), DENIED, "it deletes no node")
    expect(lambda: plugin.create("/api/v1/nodes", {"metadata": {"name": "more"}}), DENIED, "and makes none")
    api.patch(ours, metadata(annotations={"example.com/kept": None, "hami.io/device-cordon": None}, labels={"example.com/kept": None}))


def check_monitor():
    """Conditions of ours of its own node's, and nothing else of any."""
    monitor, ours, other = caller("hami-vgpu-monitor"), f"/api/v1/nodes/{NODE}", "/api/v1/nodes/other-node"
    api.delete(other)
    api.create("/api/v1/nodes", {"metadata": {"name": "other-node"}})
    atexit.register(api.delete, other)
    condition = {"type": "hami.io/Test", "status": "True", "reason": "Test", "message": ""}
    old = api.get(ours)["status"].get("conditions", [])
    expect(lambda: change_conditions(monitor, ours, condition), 200, "the monitor writes conditions of hami.io")
    expect(lambda: change_conditions(monitor, other, condition), DENIED, "but of no other node")
    ready = [c | {"status": "Unknown"} if c["type"] == "Ready" else c for c in old] or [condition | {"type": "Ready"}]
    expect(lambda: monitor.patch(f"{ours}/status", {"status": {"conditions": ready}}), DENIED, "nor others")
    expect(lambda: monitor.patch(f"{ours}/status", {"status": {"capacity": {"example.com/test": "1"}}}), DENIED, "nor capacity")
    expect(lambda: monitor.patch(ours, annotations(REGISTER)), 403, "nor a node's registration")
    change_conditions(api, ours, {"type": "hami.io/Test", "$patch": "delete"})


def check_plugin_pods(namespace):
    """A pod of its own node: that it has its devices. Another's: nothing."""
    plugin = caller("hami-device-plugin")
    idle = container(command=["sleep", "1000"])
    create(namespace, pod("here", idle, nodeName=NODE, annotations={"example.com/kept": "1"}, labels={"kept": "1"}))
    api.patch(pods_path(namespace, "here"), annotations(ALLOCATED, value="GPU-1,NVIDIA,1,1:;"))
    create(namespace, pod("there", idle, nodeName="other"))
    create(namespace, pod("nowhere", idle, schedulerName="nobody"))
    here, there, nowhere = (pods_path(namespace, name) for name in ("here", "there", "nowhere"))
    done = metadata(annotations={PHASE: "success", TO_ALLOCATE: ";", MIGS: "[]"}, labels={ON_NODE: NODE})
    expect(lambda: plugin.patch(here, done), 200, "a device plugin says of a pod of its node that it has its devices")
    expect(lambda: plugin.patch(there, done), DENIED, "but of no pod of another node")
    expect(lambda: plugin.patch(nowhere, done), DENIED, "nor of one that is on none")
    refused = [(key, annotations(key)) for key in GRANT if key not in (PHASE, TO_ALLOCATE, MIGS)] + [
        ("that a pod was given nothing", annotations(ALLOCATED, value=None)),
        ("an annotation of others'", annotations("example.com/test")),
        ("that an annotation is gone", annotations("example.com/kept", value=None)),
        ("an annotation of hami.io that is not its own", annotations("hami.io/test")),
        ("a policy", annotations("hami.io/gpu-scheduler-policy")),
        ("a pod's other node", metadata(labels={ON_NODE: "other"})),
        ("a label", metadata(labels={"app": "x"})),
        ("that a label is gone", metadata(labels={"kept": None})),
        ("an owner", owner(namespace, "there")),
        ("a finalizer", metadata(finalizers=["example.com/test"])),
    ]
    for what, patch in refused:
        expect(lambda patch=patch: plugin.patch(here, patch), DENIED, f"of a pod it does not write {what}")
        expect(lambda patch=patch: plugin.patch(f"{here}/status", patch), DENIED, "nor through the status")
    expect(lambda: plugin.patch(f"{here}/status", {"status": {"message": "x"}}), DENIED, "nor a pod's status")
    image = {"spec": {"containers": [idle | {"image": "docker.io/local/pause:1"}]}}
    expect(lambda: plugin.patch(here, image), DENIED, "nor an image")
    debugger = {"spec": {"ephemeralContainers": [{"name": "d", "image": IMAGE}]}}
    expect(lambda: plugin.patch(f"{here}/ephemeralcontainers", debugger), DENIED, "nor a container to debug it with")
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "nowhere"}, "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}}
    expect(lambda: plugin.create(f"{nowhere}/binding", binding), DENIED, "it binds no pod")
    expect(lambda: plugin.create(f"/api/v1/namespaces/{namespace}/bindings", binding), DENIED, "nor by the old way")
    expect(lambda: plugin.create(pods_path(namespace), pod("more", idle)), DENIED, "it makes no pod")
    expect(lambda: plugin.call("DELETE", here), DENIED, "and deletes none")
    expect(lambda: plugin.create(f"{here}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "here"}}), DENIED, "nor evicts one")


def check_plugin_claim():
    """A token that is not a pod's of a node."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/hami-device-plugin/token"
    anywhere = kube.Api(api.create(path, {"spec": {"expirationSeconds": 600}})["status"]["token"])
    register = annotations(REGISTER, value=annotation(api.get(f"/api/v1/nodes/{NODE}"), REGISTER) or "[]")
    expect(lambda: anywhere.patch(f"/api/v1/nodes/{NODE}", register), DENIED, "a token that says no node writes nothing")


# Tenants


def kubelet():
    caller = kube.Api()
    caller.tls = ssl.create_default_context(cafile=kube.PKI / "ca.crt")
    caller.tls.load_cert_chain(kube.PKI / "kubelet.crt", kube.PKI / "kubelet.key")
    return caller


def tenant(namespace):
    """Somebody who may do with pods here as they like, and nothing more."""
    create_in = f"{RBAC}/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": POD_PARTS, "verbs": ["*"]}]
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "tenant"}})
    api.create(f"{create_in}/roles", {"metadata": {"name": "tenant"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    api.create(f"{create_in}/rolebindings", {"metadata": {"name": "tenant"}, "subjects": [subject], "roleRef": role})
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/tenant/token"
    return kube.Api(api.create(path, {"spec": {"expirationSeconds": 600}})["status"]["token"])


def check_grants(namespace, user):
    idle = container(command=["sleep", "1000"])
    claim = {ALLOCATED: "GPU-1,NVIDIA,30000,100:;", ON_NODE: NODE}
    plain, path = pod("plain", idle, schedulerName="nobody"), pods_path(namespace, "plain")
    expect(lambda: user.create(pods_path(namespace) + "?dryRun=All", plain), 200, "a tenant makes a pod")
    user.create(pods_path(namespace), plain)
    for part in ("", "/status"):
        for key in GRANT:
            expect(lambda key=key, part=part: user.patch(path + part, annotations(key)), DENIED, f"it can't be said later{part and ', through the status'}: {key}")
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "plain", "annotations": claim}, "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}}
    expect(lambda: user.create(f"{path}/binding", binding), DENIED, "nor with a Binding")
    expect(lambda: user.create(f"/api/v1/namespaces/{namespace}/bindings", binding), DENIED, "nor by the old way")
    del binding["metadata"]["annotations"]
    expect(lambda: user.create(f"{path}/binding", binding), DENIED, "whoever may bind in one namespace alone binds nothing")
    expect(lambda: user.create(f"/api/v1/namespaces/{namespace}/bindings", binding), DENIED, "nor by the old way")
    other = {"metadata": {"annotations": {"example.com/note": "x"}}}
    expect(lambda: user.patch(path, other), 200, "other annotations are the tenant's own")
    debugger = {"spec": {"ephemeralContainers": [{"name": "d", "image": IMAGE}]}}
    expect(lambda: user.patch(f"{path}/ephemeralcontainers", debugger), 200, "and a container to debug it with")


def check_told(namespace, user, given):
    """What other vendors' device plugins go by: of a pod that was given devices, or may still be, and of no other."""
    create(namespace, pod("there", container(command=["sleep", "1000"]), nodeName="other"))
    there, given, waits = (pods_path(namespace, name) for name in ("there", given, "plain"))
    for key in TOLD:
        for path in (given, waits, f"{given}/status"):
            expect(lambda key=key, path=path: user.patch(path, annotations(key)), DENIED, f"a tenant does not tell a device plugin {key}")
        expect(lambda key=key: user.patch(there, annotations(key)), 200, "but of a pod that runs without devices it is a word like others")
    for key in ("CAMBRICON_DSMLU_ASSIGHED", "CAMBRICON_DSMLU_ASSIGNED", "NEURON_ALLOCATED", "enflame.com/gcu-assigned"):
        expect(lambda key=key: user.patch(given, annotations(key, value="true")), 200, f"plugins say that they are done: {key}")
        expect(lambda key=key: user.patch(given, annotations(key, value="false")), DENIED, "a tenant does not say that they are not")


def check_over(namespace, user):
    """A pod that was given devices is over when its kubelet says so."""
    create(namespace, slice_pod("runs"))
    check(wait_running(namespace, ["runs"]) is not None, "a pod with a share runs")
    path = pods_path(namespace, "runs/status")
    for ended in ("Succeeded", "Failed"):
        expect(lambda ended=ended: user.patch(path, {"status": {"phase": ended}}), DENIED, f"a tenant does not say that it has {ended.lower()}")
    expect(lambda: user.patch(path, {"status": {"message": "x"}}), 200, "but something else of its status")
    check_told(namespace, user, "runs")
    expect(lambda: user.patch(pods_path(namespace, "plain/status"), {"status": {"phase": "Failed"}}), 200, "and of a pod without a share what they like")
    create(namespace, slice_pod("ends", command=["true"]))
    check(wait_until(lambda: phase(namespace, "ends") == "Succeeded", 30, 0.1), "its kubelet may", phase(namespace, "ends"))


def check_copies(namespace, user):
    """`kubectl debug --copy-to`, or a backup: what the first pod was given is not the copy's."""
    claim = dict.fromkeys(GRANT, "x") | {"example.com/note": "x"}
    for name, copy in (
        ("a share's", slice_pod("copy", annotations=claim, labels={ON_NODE: NODE}, schedulerName="hami-scheduler")),
        ("an ordinary pod's", pod("copy", container(command=["sleep", "1"]), annotations=claim)),
    ):
        got = outcome(lambda copy=copy: user.create(pods_path(namespace) + "?dryRun=All", copy))
        check(got[0] == 200, f"{name} copy is taken", got)
        made = user.create(pods_path(namespace) + "?dryRun=All", copy)["metadata"]
        check_equal((made.get("annotations"), made.get("labels", {}).get(ON_NODE)), ({"example.com/note": "x"}, None), "without what the first was given")


def check_shares(namespace, user):
    """Whoever asks for a share is placed by the scheduler that counts them."""
    dry = pods_path(namespace) + "?dryRun=All"
    left_alone = {"hami.io/webhook": "ignore"}
    for what, thing, status in (
        ("is placed by us", slice_pod("p"), 200),
        ("names us", slice_pod("p", schedulerName="hami-scheduler"), 200),
        ("names another scheduler", slice_pod("p", schedulerName="another"), DENIED),
        ("names another scheduler and a node", slice_pod("p", schedulerName="another", nodeName=NODE), DENIED),
        ("names a node", slice_pod("p", nodeName=NODE), 403),
        ("opts out by its own label", slice_pod("p", labels=left_alone, schedulerName="another", nodeName=NODE), DENIED),
        ("asks for memory alone, elsewhere", pod("p", container(limits={MEMORY: "1"}), schedulerName="another"), DENIED),
        ("asks in an init container", pod("p", container(command=["sleep", "1"]), initContainers=[container("i", limits=share(1, 1))], schedulerName="another"), DENIED),
        ("asks for none, elsewhere", pod("p", container(limits={GPU: "0"}), schedulerName="another"), 200),
        ("asks for nothing, and names a node", pod("p", container(command=["sleep", "1"]), nodeName=NODE), 200),
        ("asks for nothing, elsewhere", pod("p", container(command=["sleep", "1"]), schedulerName="another"), 200),
    ):
        expect(lambda thing=thing: user.create(dry, thing), status, f"a pod that {what} is {'taken' if status == 200 else 'refused'}")
    mirror = slice_pod("p", nodeName=NODE, schedulerName="default-scheduler", annotations={"kubernetes.io/config.mirror": "1"})
    expect(lambda: user.create(dry, mirror), 403, "whoever says that a pod is the mirror of a static one is not believed")
    expect(lambda: kubelet().create(dry, mirror), 200, "but for a kubelet, which runs it already")
    out = new_namespace("left-alone")
    api.patch(f"/api/v1/namespaces/{out}", {"metadata": {"labels": left_alone}})
    elsewhere = slice_pod("p", schedulerName="another", nodeName=NODE)
    expect(lambda: api.create(pods_path(out) + "?dryRun=All", elsewhere), 200, "a namespace that an administrator labelled is left alone")


def main():
    check_rules()
    check_all_rules(new_namespace("permissions"))
    check_all_rules("default")
    check_typed()
    grants = new_namespace("grants")
    user = tenant(grants)
    check_grants(grants, user)
    if "hami-scheduler" not in STATE["missing"]:
        use_machine(1)
        check_over(grants, user)
        check_copies(grants, user)
        check_shares(grants, user)
    widen("hami-device-plugin")
    check_plugin_node()
    check_monitor()
    check_plugin_pods("permissions")
    check_plugin_claim()
    finish()


if __name__ == "__main__":
    main()

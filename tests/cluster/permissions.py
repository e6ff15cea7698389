#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What deploy/ lets each program do with the API, and what not, tried with its own token."""

from support import *

# account, verb, group, resource, subresource, allowed
RULES = [
    ("hami-scheduler", "watch", "", "pods", "", True),
    ("hami-scheduler", "watch", "", "nodes", "", True),
    ("hami-scheduler", "create", "", "pods", "binding", True),
    ("hami-scheduler", "create", "", "events", "", True),
    ("hami-scheduler", "patch", "", "pods", "", False),
    ("hami-scheduler", "delete", "", "pods", "", False),
    ("hami-scheduler", "patch", "", "nodes", "", False),
    ("hami-scheduler", "get", "", "secrets", "", False),
    ("hami-scheduler", "get", "", "configmaps", "", False),
    ("hami-device-plugin", "watch", "", "pods", "", True),
    ("hami-device-plugin", "patch", "", "pods", "", True),
    ("hami-device-plugin", "patch", "", "nodes", "", True),
    ("hami-device-plugin", "patch", "", "nodes", "status", True),
    ("hami-device-plugin", "update", "", "nodes", "", False),
    ("hami-device-plugin", "delete", "", "nodes", "", False),
    ("hami-device-plugin", "create", "", "pods", "", False),
    ("hami-device-plugin", "delete", "", "pods", "", False),
    ("hami-device-plugin", "create", "", "pods", "binding", False),
    ("hami-device-plugin", "create", "", "pods", "exec", False),
    ("hami-device-plugin", "get", "", "secrets", "", False),
    ("hami-vgpu-monitor", "watch", "", "pods", "", True),
    ("hami-vgpu-monitor", "patch", "", "pods", "", False),
    ("hami-vgpu-monitor", "get", "", "nodes", "", False),
    ("hami-vgpu-monitor", "get", "", "secrets", "", False),
]


def caller(name):
    return kube.Api((WORK / f"{name}.token").read_text())


def is_allowed(name, verb, group, resource, subresource):
    wanted = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = caller(name).create(path, {"spec": {"resourceAttributes": wanted}})
    return answer["status"]["allowed"]


def check_rules():
    for name, verb, group, resource, subresource, allowed in RULES:
        words = f"{verb} {resource}{'/' + subresource if subresource else ''}"
        sentence = f"{name} may {'' if allowed else 'not '}{words}"
        check_equal(is_allowed(name, verb, group, resource, subresource), allowed, sentence)


def attempt(path, patch):
    """What comes of a patch by the device plugin: its status, and what was said."""
    try:
        caller("hami-device-plugin").patch(path, patch, strategic=path.endswith("/status"))
        return 200, ""
    except ApiError as error:
        return error.status, error.message


def check_own_node(namespace):
    api.delete("/api/v1/nodes/other")
    api.create("/api/v1/nodes", {"metadata": {"name": "other"}})
    atexit.register(api.delete, "/api/v1/nodes/other")
    create(namespace, pod("here", container(command=["sleep", "1000"]), nodeName=NODE))
    create(namespace, pod("there", container(command=["sleep", "1000"]), nodeName="other"))
    ours = {"metadata": {"annotations": {"hami.io/test": "x"}}}
    strange = {"metadata": {"annotations": {"example.com/test": "x"}}}
    label = {"metadata": {"labels": {"example.com/test": "x"}}}
    here, there = pods_path(namespace, "here"), pods_path(namespace, "there")
    image = {"spec": {"containers": [container(command=["sleep", "1000"]) | {"image": "docker.io/local/pause:1"}]}}
    for path, patch, status, sentence in (
        (f"/api/v1/nodes/{NODE}", ours, 200, "a plugin annotates its own node"),
        ("/api/v1/nodes/other", ours, 422, "but no other node"),
        (f"/api/v1/nodes/{NODE}", strange, 422, "and only with annotations of hami.io"),
        (f"/api/v1/nodes/{NODE}", label, 422, "no labels of others"),
        (f"/api/v1/nodes/{NODE}", {"spec": {"unschedulable": True}}, 422, "nor its spec"),
        (here, ours, 200, "it annotates a pod of its node"),
        (there, ours, 422, "but no pod of another node"),
        (here, image, 422, "nor a pod's image"),
    ):
        # The policy is in force some moments after it was made.
        wait_until(lambda path=path, patch=patch, status=status: attempt(path, patch)[0] == status, 20, 0.2)
        check_equal(attempt(path, patch)[0], status, sentence)
    api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {"hami.io/test": None}}})


def check_node_status():
    """Of its node's status a plugin writes conditions of its own."""
    condition = lambda kind: {"status": {"conditions": [{"type": kind, "status": "True", "reason": "Test", "message": "x"}]}}
    own, other = f"/api/v1/nodes/{NODE}/status", "/api/v1/nodes/other/status"
    for path, patch, status, sentence in (
        (own, condition("hami.io/Test"), 200, "a plugin writes a condition of its own node"),
        (other, condition("hami.io/Test"), 422, "but of no other node"),
        (own, condition("Ready"), 422, "and none of others"),
        (own, {"status": {"capacity": {"nvidia.com/gpumem": "1"}}}, 200, "what memory it has"),
        (own, {"status": {"capacity": {"cpu": "1000"}}}, 422, "but no other capacity"),
        (own, {"status": {"addresses": [{"type": "InternalIP", "address": "198.51.100.66"}]}}, 422, "nor an address"),
        (own, {"metadata": {"annotations": {"example.com/test": "x"}}}, 422, "nor metadata by that way"),
    ):
        wait_until(lambda path=path, patch=patch, status=status: attempt(path, patch)[0] == status, 20, 0.2)
        check_equal(attempt(path, patch)[0], status, sentence)
    api.patch(own, {"status": {"conditions": [{"$patch": "delete", "type": "hami.io/Test"}], "capacity": {"nvidia.com/gpumem": None}}}, strategic=True)


def tenant(namespace):
    """Somebody who may do with pods here as they like, and nothing more."""
    create_in = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "tenant"}})
    api.create(f"{create_in}/roles", {"metadata": {"name": "tenant"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    api.create(f"{create_in}/rolebindings", {"metadata": {"name": "tenant"}, "subjects": [subject], "roleRef": role})
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/tenant/token"
    return kube.Api(api.create(path, {"spec": {"expirationSeconds": 600}})["status"]["token"])


def check_grants(namespace):
    user = tenant(namespace)

    def outcome(act):
        try:
            act()
        except ApiError as error:
            return error.status
        return 200

    idle = container(command=["sleep", "1000"])
    claim = {ALLOCATED: "GPU-1,NVIDIA,30000,100:;", ON_NODE: NODE}
    plain, faked = pod("plain", idle), pod("faked", idle, annotations=claim)
    check_equal(outcome(lambda: user.create(pods_path(namespace), plain)), 200, "a tenant makes a pod")
    check_equal(outcome(lambda: user.create(pods_path(namespace), faked)), 422, "but none that says what it was given")
    patch = {"metadata": {"annotations": claim}}
    path = pods_path(namespace, "plain")
    check_equal(outcome(lambda: user.patch(path, patch)), 422, "nor can it be said later")
    other = {"metadata": {"annotations": {"example.com/note": "x"}}}
    check_equal(outcome(lambda: user.patch(path, other)), 200, "other annotations are the tenant's own")


def main():
    check_rules()
    check_grants(new_namespace("grants"))
    check_own_node(new_namespace("permissions"))
    check_node_status()
    finish()


if __name__ == "__main__":
    main()

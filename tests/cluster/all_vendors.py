#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All vendors configured at once, as `hamictl config render` has it: the API server takes the webhook, and the pods of docs/vendors as the
webhook leaves them. On nodes made as their agents make them they are bound, under the lock that an agent waits for."""

import re

import manifests
from support import *

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(p for p in (SOURCE / "docs/vendors").glob("*.md") if p.name != "README.md")
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook"
RIGHTS = "other-agents.yaml"
LOCKS = {"cambricon": "cambricon.com/dsmlu.lock"} | dict.fromkeys(("amd", "biren", "hygon", "iluvatar", "vastai"), "hami.io/mutex.lock")

# A user who gives the requests, too, as the API server sets them where they are missing.
SEVERAL = [
    {"mthreads.com/vgpu": "2", "mthreads.com/sgpu-memory": "4", "mthreads.com/sgpu-core": "1"},
    {"iluvatar.ai/BI-V150-vgpu": "2", "iluvatar.ai/BI-V150.vCore": "10"},
]


def blocks(page):
    """The YAML documents of a page."""
    found = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)
    return [document for block in found for document in block.split("\n---\n")]


def configuration():
    """A section of each vendor: the page's, or the one of the vectors."""
    text = (SOURCE / "tests/data/vectors/config-default.yaml").read_text()
    sections = {part.split(":")[0]: part for part in re.split(r"^(?=\w+:)", text, flags=re.M) if part[:1].isalpha()}
    for page in PAGES:
        for block in blocks(page):
            if "kind:" not in block:
                sections[block.split(":")[0]] = block + "\n"
    return "".join(sections.values())


def as_json(text):
    """What kubectl makes of a manifest."""
    return json.loads(manifests.kubectl(BINARIES, "create", "--dry-run=client", "-o", "json", "-f", "-", input=text))


def rendered(config):
    """The objects that follow from the configuration, by their kind."""
    path = WORK / "all-vendors.yaml"
    path.write_text(config)
    text = host.output(programs.HAMICTL, "config", "render", path)
    things = [as_json(part) for part in re.split(r"^---\n", text, flags=re.M) if part.strip()]
    return {thing["kind"]: thing for thing in things}


def put_webhook(conditions):
    webhook = api.get(WEBHOOK)
    before = webhook["webhooks"][0]["matchConditions"]
    webhook["webhooks"][0]["matchConditions"] = conditions
    api.call("PUT", WEBHOOK, webhook)
    return before


def restart_both():
    restart("hami-scheduler", extender_ready)
    restart("kube-scheduler", programs.kube_scheduler_ready)


def may_patch_nodes():
    spec = {"user": account("hami-scheduler"), "resourceAttributes": {"verb": "patch", "resource": "nodes"}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]


@contextlib.contextmanager
def runtime_class(name):
    """As an agent's own manifest makes it: a pod that names one that is not there is refused."""
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    api.create(classes, {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "runc"})
    try:
        yield
    finally:
        api.delete(f"{classes}/{name}")


@contextlib.contextmanager
def configured():
    """All vendors are served meanwhile."""
    files = {WORK / "device-config.yaml": None, WORK / "kube-scheduler.yaml": None}
    before = {path: path.read_text() for path in files}
    config = configuration()
    things = rendered(config)
    (WORK / "device-config.yaml").write_text(config)
    (WORK / "kube-scheduler.yaml").write_text(programs.scheduler_config(things["ConfigMap"]["data"]["config.yaml"]))
    manifests.apply(BINARIES, RIGHTS)
    check(wait_until(may_patch_nodes, 10, 0.1), "the rights to lock nodes are in force")
    conditions = put_webhook(things["MutatingWebhookConfiguration"]["webhooks"][0]["matchConditions"])
    try:
        restart_both()
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)
        put_webhook(conditions)
        manifests.kubectl(BINARIES, "delete", "-f", host.DEPLOY / RIGHTS)
        restart_both()


def admitted(namespace, thing, name):
    """The pod as the API server would store it; None. The webhook's conditions take a moment to be in force."""
    answers = [None]

    def is_ours():
        try:
            answers.append(api.create(pods_path(namespace) + "?dryRun=All", thing))
        except ApiError as error:
            answers.append(error.message)
        return isinstance(answers[-1], str) or answers[-1]["spec"]["schedulerName"] == "hami-scheduler"

    taken = wait_until(is_ours, 10, 0.2) and isinstance(answers[-1], dict)
    check(taken, f"{name}: the API server takes the pod as the webhook leaves it", answers[-1])
    return answers[-1] if taken else None


def pods_of(page):
    things = [as_json(block) for block in blocks(page) if re.search(r"^kind: Pod$", block, re.M)]
    for thing in things:
        thing["metadata"].pop("namespace", None)
    return things


def try_pages(namespace):
    for page in PAGES:
        for thing in pods_of(page):
            admitted(namespace, thing, f"{page.stem}/{thing['metadata']['name']}")
    for number, amounts in enumerate(SEVERAL):
        thing = pod(f"several-{number}", container() | {"resources": {"limits": amounts, "requests": amounts}})
        made = admitted(namespace, thing, f"{amounts}")
        resources = made["spec"]["containers"][0]["resources"] if made else {}
        check(made and resources["limits"] == resources["requests"], "whose limits and requests are equal", resources)


def agents_node(block):
    """A node that its agent has registered, with room for pods; there is no kubelet on it."""
    thing = as_json(block)
    status = thing.setdefault("status", {})
    for amounts in ("capacity", "allocatable"):
        status.setdefault(amounts, {}).update({"cpu": "8", "memory": "16Gi", "pods": "20"})
    status["conditions"] = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
    return thing


@contextlib.contextmanager
def pretended(page):
    """The page's nodes, while a test uses them."""
    names = []
    try:
        for block in blocks(page):
            if re.search(r"^kind: Node$", block, re.M):
                made = api.create("/api/v1/nodes", agents_node(block))
                names.append(made["metadata"]["name"])
                api.patch(f"/api/v1/nodes/{names[-1]}", {"spec": {"taints": None}})
        yield names
    finally:
        for name in names:
            api.delete(f"/api/v1/nodes/{name}")


def bind_one(namespace, page, thing, nodes):
    name = thing["metadata"]["name"]
    create(namespace, thing)
    bound = wait_until(lambda: get(namespace, name)["spec"].get("nodeName") in nodes, 30, 0.1)
    check(bound, f"{page}: {name} is bound to the vendor's node", why(namespace, name), programs.last_lines("hami-scheduler"))
    found = get(namespace, name)["metadata"].get("annotations", {})
    given = [value for key, value in found.items() if key.endswith("-allocated") and value.count(",") >= 3]
    check(given, "and has been given devices there", given)
    lock = annotation(api.get(f"/api/v1/nodes/{nodes[0]}"), LOCKS[page]) if page in LOCKS else None
    if LOCKS.get(page, "").startswith("hami.io/"):
        check(lock and lock.endswith(f",{namespace},{name}"), "under the lock that its agent looks for", lock)
    elif page in LOCKS:
        check(lock, "under the lock that its agent looks for", lock)
    api.delete(pods_path(namespace, name), grace=0)
    if page in LOCKS:
        gone = wait_until(lambda: not annotation(api.get(f"/api/v1/nodes/{nodes[0]}"), LOCKS[page]), 30, 0.2)
        check(gone, "which goes with the pod")


def bind_pages(namespace):
    for page in PAGES:
        with pretended(page) as nodes:
            for thing in pods_of(page) if nodes else []:
                bind_one(namespace, page.stem, thing, nodes)


def main():
    need("hami-scheduler")
    namespace = new_namespace("vendors")
    with runtime_class("ascend"), configured():
        try_pages(namespace)
        bind_pages(namespace)
    finish()


if __name__ == "__main__":
    main()

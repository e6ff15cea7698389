#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResourceQuotas: what a namespace may have, at admission and when a pod is placed."""

from support import *

NAME = "nvidia.com/gpumem"


def quota(amount, namespace="team", name="q", key=f"limits.{NAME}"):
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"quota-{namespace}-{name}"}, "spec": {"hard": {key: str(amount)}}}


def review(scheduler, thing, namespace):
    request = {"uid": "r", "namespace": namespace, "object": thing}
    status, text = scheduler.ask("POST", "/webhook", {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
    check_equal(status, 200, "a review is answered")
    return json.loads(text)["response"]


def try_to_place(api, scheduler, memory, namespace="team", **more):
    """The new pod, and the filter's answer about it."""
    thing = api.set(PODS, pod(memory, namespace=namespace, **more))
    return thing, scheduler.filter(thing, ["node-1", "node-2"])


def why(answer):
    return sorted(set(failed(answer).values()))


def has_bound(scheduler, limit):
    return wait_until(lambda: [q["limit"] for q in scheduler.view().get("quotas", [])] == limit, 10)


def test_the_quota_is_kept_from_the_reservation_on(api, scheduler):
    api.set(QUOTAS, quota(3000))
    check(has_bound(scheduler, [3000]), "the watch shows the quota", scheduler.view())
    first, answer = try_to_place(api, scheduler, 2000)
    check_equal(len(answer["NodeNames"] or []), 1, "what is within the quota is placed", answer)
    second, answer = try_to_place(api, scheduler, 1500)
    text = f"ResourceQuotaNotFit: {NAME} in namespace team: 1500 asked + 2000 used > 3000"
    check_equal(why(answer), [text], "a reservation counts; the refusal says the figures")
    _, answer = try_to_place(api, scheduler, 1500, namespace="other")
    check_equal(len(answer["NodeNames"] or []), 1, "other namespaces are not bound by it", answer)
    check_equal(scheduler.view()["quotas"], [{"namespace": "team", "resource": NAME, "limit": 3000, "used": 2000}], "the view has it")
    page = scheduler.metrics()
    labels = f'zone="vGPU",namespace="team",quota_name="{NAME}"'
    check(f'hami_resource_quota_used{{{labels},limit="3000"}} 2000' in page and f"hami_resource_quota_limit{{{labels}}} 3000" in page, "so have the metrics", page)
    check("QuotaUsed" not in page, "not under their former names", page)
    check_equal(scheduler.bind(first, scheduler.filter(first, ["node-1", "node-2"])["NodeNames"][0]), "", "the first is bound")
    api.set(QUOTAS, quota(3500))
    check(wait_until(lambda: scheduler.filter(second, ["node-1", "node-2"])["NodeNames"], 10), "a raised quota makes room")
    for thing in (first, second):
        api.delete(PODS, f"team/{thing['metadata']['name']}")
    api.delete(QUOTAS, "team/q")
    check(has_bound(scheduler, []), "a quota that is gone bounds nothing", scheduler.view())


def test_admission_denies_what_never_fits(api, scheduler):
    api.set(QUOTAS, quota(3000))
    check(has_bound(scheduler, [3000]), "the watch shows the quota", scheduler.view())
    for memory, gpus, allowed in ((3000, 1, True), (3001, 1, False), (1500, 2, True), (1501, 2, False)):
        answer = review(scheduler, pod(memory, gpus=gpus, namespace="team"), "team")
        check_equal(answer["allowed"], allowed, f"{gpus} x {memory} MiB of 3000", answer)
        if not allowed:
            check_equal(answer["status"]["code"], 403, "as Kubernetes denies by its own quotas")
            check_equal(answer["status"]["message"], f"exceeded quota: {NAME} in namespace team: {memory * gpus} asked > 3000", "with the figures")
    alone = pod(3001, namespace="team")
    del alone["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    check(not review(scheduler, alone, "team")["allowed"], "memory alone means a card, and counts")
    check(review(scheduler, pod(3001, namespace="other"), "other")["allowed"], "in another namespace it is allowed")
    nowhere = pod(3001)
    del nowhere["metadata"]["namespace"]
    check(not review(scheduler, nowhere, "team")["allowed"], "the review's namespace counts where the pod names none")
    api.delete(QUOTAS, "team/q")
    check(has_bound(scheduler, []), "the quota is gone", scheduler.view())


def test_two_at_once_do_not_pass_together(api, scheduler):
    api.set(QUOTAS, quota(3000, "crowd"))
    check(has_bound(scheduler, [3000]), "the watch shows the quota", scheduler.view())
    things = [api.set(PODS, pod(1000, namespace="crowd")) for _ in range(12)]
    answers = in_threads([lambda thing=thing: scheduler.filter(thing, ["node-1", "node-2"]) for thing in things])
    check_equal(sum(1 for a in answers if a["NodeNames"]), 3, "of twelve pods that ask at once those within the quota are placed")
    for thing in things:
        api.delete(PODS, f"crowd/{thing['metadata']['name']}")
    api.delete(QUOTAS, "crowd/q")
    check(has_bound(scheduler, []), "the quota is gone", scheduler.view())


def test_a_restart_counts_the_same(api, scheduler):
    api.set(QUOTAS, quota(3000, "steady"))
    thing, answer = try_to_place(api, scheduler, 2000, "steady")
    check_equal(scheduler.bind(thing, answer["NodeNames"][0]), "", "a pod is bound")
    check(wait_until(lambda: thing["metadata"]["uid"] in [p["uid"] for p in scheduler.view()["pods"]]), "and seen", scheduler.view())
    scheduler.kill_and_restart()
    check_equal(scheduler.view()["quotas"], [{"namespace": "steady", "resource": NAME, "limit": 3000, "used": 2000}], "a new process counts what is bound")
    _, answer = try_to_place(api, scheduler, 1001, "steady")
    check(not answer["NodeNames"], "and keeps to it", answer)


def test_no_decision_before_the_quotas_are_read(api, scheduler):
    api.fail(503, 1000, "GET", "/api/v1/resourcequotas")
    other = Scheduler(api, ready=False)
    check(wait_until(lambda: other.ask("GET", "/readyz")[0] == 503, 10), "it is not ready without the quotas")
    answer = other.filter(pod(), ["node-1"])
    check("resource quotas are not all read" in answer["Error"], "and does not decide", answer)
    api.faults.clear()
    check(wait_until(other.is_ready, 40), "once they are read it is", other.said()[-2000:])
    other.end()


def main():
    api = Api()
    for thing in (node("node-1", 2), node("node-2", 2)):
        api.set(NODES, thing)
    scheduler = Scheduler(api)
    run_each(
        api, scheduler,
        test_the_quota_is_kept_from_the_reservation_on, test_admission_denies_what_never_fits, test_two_at_once_do_not_pass_together, test_a_restart_counts_the_same,
        test_no_decision_before_the_quotas_are_read,
    )  # fmt: skip
    scheduler.end()
    finish()


main()

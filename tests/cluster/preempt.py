#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A more important pod that finds neither processors nor devices: kube-scheduler evicts both who holds the ones and who
holds the others, and nobody where not even that would help. Where devices alone are short, hami-scheduler evicts."""

import manifests
import programs
from support import *

CLASS = "/apis/scheduling.k8s.io/v1/priorityclasses"
URGENT, POLITE, MIDDLE = "hami-test-urgent", "hami-test-polite", "hami-test-middle"
RIGHTS = "evictions.yaml"


def millis(quantity):
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


def make_class(name, **more):
    api.delete(f"{CLASS}/{name}")
    api.create(CLASS, {"metadata": {"name": name}, "value": 1000} | more)
    atexit.register(lambda: api.delete(f"{CLASS}/{name}"))


def is_going(namespace, name):
    return not (thing := get(namespace, name)) or bool(thing["metadata"].get("deletionTimestamp"))


def reasons(namespace, name):
    return [event["reason"] for event in events(namespace, name)]


def devices_alone():
    """Processors there are; the card is held by three pods, of which a budget protects one."""
    third = CARD_MIB // 3
    namespace = new_namespace("evict")
    budget = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    api.create(budget, {"metadata": {"name": "kept"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}})
    # A container's first process without a handler heeds no SIGTERM.
    create(namespace, slice_pod("kept", third, 10, labels={"app": "kept"}))
    create(namespace, slice_pod("spare", third, 10, command=("sleep", "1000"), grace=12))
    create(namespace, slice_pod("second", third, 10, priorityClassName=MIDDLE))
    if not check(wait_running(namespace, ["kept", "spare", "second"], 60) is not None, "three pods hold a card"):
        return
    for name, mem, priority in (("in-vain", CARD_MIB + 1, URGENT), ("polite", third, POLITE)):
        create(namespace, slice_pod(name, mem, 10, priorityClassName=priority))
    time.sleep(8)
    check_equal([phase(namespace, n) for n in ("in-vain", "polite")], ["Pending"] * 2, "a pod that no card is large enough for waits, and one that preempts nobody")
    check_equal([is_going(namespace, n) for n in ("kept", "spare", "second")], [False] * 3, "and nobody is evicted for them")
    for name in ("in-vain", "polite"):
        api.delete(pods_path(namespace, name), grace=0)

    create(namespace, slice_pod("urgent", third, 10, priorityClassName=URGENT))
    check(wait_until(lambda: is_going(namespace, "spare"), 40, 0.1), "for one that finds room then a pod is evicted", why(namespace, "urgent"), programs.last_lines("hami-scheduler"))
    gone = programs.kill("hami-scheduler")
    ready = lambda: programs.fetch(f"{EXTENDER}/readyz") is not None
    check(programs.back("hami-scheduler", gone) and wait_until(ready, 30, 0.1), "the scheduler dies meanwhile, and another starts")
    took = wait_running(namespace, ["urgent"], 60)
    check(took is not None, "the urgent pod runs", why(namespace, "urgent"), programs.last_lines("hami-scheduler"))
    print(f"      after {took:.2f} s" if took else "")
    for name, words in (("kept", "the pod with a budget"), ("second", "one that is more important than the victim")):
        check_equal((phase(namespace, name), is_going(namespace, name)), ("Running", False), f"{words} runs on")
    create(namespace, slice_pod("other", third, 10, priorityClassName=MIDDLE))
    time.sleep(4)
    check_equal((phase(namespace, "other"), is_going(namespace, "second")), ("Pending", False), "a pod that is not more important than others waits")
    check("Preempted" in reasons(namespace, "spare"), "the victim has an event", reasons(namespace, "spare"))
    check("Preempting" in reasons(namespace, "urgent"), "and so has the other", reasons(namespace, "urgent"))
    check_share(namespace, "urgent", third)


def main():
    need()
    use_machine(1)
    namespace = new_namespace("preempt")
    make_class(URGENT)
    make_class(POLITE, preemptionPolicy="Never")
    make_class(MIDDLE, value=500)
    allocatable = millis(api.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]["cpu"])
    most, half = f"{allocatable * 9 // 10}m", f"{allocatable // 2}m"

    create(namespace, slice_pod("holds-card", CARD_MIB))
    create(namespace, pod("holds-processors", container(command=["sleep", "1000"], limits={"cpu": most})))
    if not check(wait_running(namespace, ["holds-card", "holds-processors"], 60) is not None, "one pod holds the card, one most of the processors"):
        finish()
    said = get(namespace, "holds-card")["metadata"]["annotations"].get("hami.io/vgpu-pod-priority")
    check_equal(said, "0", "the Binding says how important a pod is")

    for name, mem in (("in-vain", CARD_MIB + 1), ("urgent", CARD_MIB // 2)):
        limits = share(1, mem) | {"cpu": half}
        create(namespace, pod(name, container(limits=limits), priorityClassName=URGENT))
        if name == "in-vain":
            time.sleep(5)
            check_equal(phase(namespace, name), "Pending", "an urgent pod that no card is large enough for waits")
            check_equal([phase(namespace, other) for other in ("holds-card", "holds-processors")], ["Running"] * 2, "and nobody is evicted for it")
            api.delete(pods_path(namespace, name), grace=0)
    took = wait_running(namespace, ["urgent"], 60)
    check(took is not None, "one that would find room runs")
    print(f"      after {took:.2f} s" if took else "")
    gone = lambda name: (get(namespace, name) or {"metadata": {"deletionTimestamp": True}})["metadata"].get("deletionTimestamp")
    check(gone("holds-processors"), "kube-scheduler evicted who held the processors")
    check(gone("holds-card"), "and who held the card, which it could not know by itself")
    check_share(namespace, "urgent", CARD_MIB // 2)
    delete_namespace(namespace)
    manifests.apply(BINARIES, RIGHTS)
    atexit.register(lambda: manifests.kubectl(BINARIES, "delete", "-f", host.DEPLOY / RIGHTS))
    with scheduler_with("--evict-for-devices"):
        devices_alone()
    finish()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Evictions where devices alone are short, between a pretended API server and a pretended kube-scheduler."""

from support import *

EVENTS = ("Preempted", "Preempting", "PreemptionRefused")


def important(memory, priority, **more):
    thing = pod(memory, **more)
    thing["spec"]["priority"] = priority
    return thing


def run_pod(api, scheduler, name, memory, priority, **more):
    """A pod that runs on the node."""
    thing = api.set(PODS, important(memory, priority, **more))
    chosen = scheduler.filter(thing, [name])["NodeNames"]
    if chosen != [name]:
        check(False, f"a pod of {memory} MiB is placed on {name}", chosen)
    check_equal(scheduler.bind(thing, name), "", f"a pod of {memory} MiB and priority {priority} runs on {name}")
    return thing


def uid(thing):
    return thing["metadata"]["uid"]


def ask(api, scheduler, thing, nodes):
    """As kube-scheduler: with the pod as the API server has it, and bound at once. Its node, or why it is refused."""
    api.asked = changes(api)
    with api.lock:
        there = api.objects[PODS].get(f"ns/{thing['metadata']['name']}", thing)
    names = scheduler.filter(there, nodes)["NodeNames"]
    if not names:
        return None
    return scheduler.bind(there, names[0]) or names[0]


def changes(api):
    """What makes kube-scheduler ask again: a pod that goes, or a requeue of the pod that waits."""
    return len(api.objects[PODS]), api.patched


def wait_placed(api, scheduler, thing, nodes, seconds=15):
    until, asked = time.monotonic() + seconds, None
    while time.monotonic() < until:
        now = changes(api)
        placed = ask(api, scheduler, thing, nodes) if now != asked else None
        if placed:
            return placed
        asked = now
        time.sleep(0.1)
    return None


def wait_evicted(api, scheduler, thing, nodes):
    """The pod was refused. Whether another is evicted for it."""
    deadline = time.monotonic() + 15
    while not api.evicted and time.monotonic() < deadline:
        if changes(api) != api.asked:
            ask(api, scheduler, thing, nodes)
        time.sleep(0.05)
    return bool(api.evicted)


def clear(api, scheduler):
    api.budget.clear()
    api.evicted.clear()
    api.events.clear()
    api.faults.clear()
    api.grace_s = 0.3
    for key in list(api.objects[PODS]):
        api.delete(PODS, key)
    check(scheduler.sees_what_is(), "the node is empty again")
    time.sleep(1.1)  # one search a second


def evictions(api):
    """(pod's name, whether it was a trial) of each that was asked for."""
    return [(r[1].split("/")[6], "dryRun" in r[2]["deleteOptions"]) for r in api.requests if r[1].endswith("/eviction")]


def reasons(api, thing):
    return [e["reason"] for e in api.events if e["involvedObject"]["uid"] == uid(thing) and e["reason"] in EVENTS]


def test_the_least_important_goes(api, scheduler):
    more, less = (run_pod(api, scheduler, "n1", 10000, p) for p in (5, 4))
    same = run_pod(api, scheduler, "n1", 10000, 10)
    urgent = api.set(PODS, important(10000, 10))
    check_equal(ask(api, scheduler, urgent, ["n1"]), None, "a card is full")
    check_equal(wait_placed(api, scheduler, urgent, ["n1"]), "n1", "a more important pod is placed")
    check_equal(api.evicted, [uid(less)], "the least important one was evicted for it, once")
    check(all(f"ns/{t['metadata']['name']}" in api.objects[PODS] for t in (more, same)), "others stay")
    check_equal(reasons(api, less), ["Preempted"], "the victim has an event")
    check_equal(reasons(api, urgent), ["Preempting"], "and so has the other")
    check_equal(scheduler.metric('hami_scheduler_evictions_total{outcome="done"}'), 1, "it is counted")
    check_equal(scheduler.metric("hami_scheduler_rooms_made_total"), 1, "and what came of it")
    check_equal(api.granted_twice, [], "nothing is granted twice")
    clear(api, scheduler)


def test_a_budget_holds(api, scheduler):
    one, two = (run_pod(api, scheduler, "n1", 15000, p) for p in (5, 4))
    urgent = api.set(PODS, important(20000, 10))
    api.budget.add(one["metadata"]["name"])
    api.requests.clear()
    check_equal(ask(api, scheduler, urgent, ["n1"]), None, "a card is full")
    check(wait_until(lambda: reasons(api, urgent) == ["PreemptionRefused"], 15), "a budget that forbids one eviction of two is told", reasons(api, urgent))
    check_equal(api.evicted, [], "and nobody was evicted in vain")
    check(all(trial for _, trial in evictions(api)), "since all are tried before", evictions(api))
    begun = len(evictions(api))
    time.sleep(3)
    check_equal(len(evictions(api)), begun, "nobody is asked again at once")
    check_equal(scheduler.view()["reserved"], [], "nothing is kept for the pod")
    check_equal(reasons(api, two), [], "the victims hear nothing")
    clear(api, scheduler)


def test_answers_in_doubt(api, scheduler):
    for act, carried_out in ((("done", 409), True), (("late", 500), True), ("lost", True), (500, False), (504, False)):
        one = run_pod(api, scheduler, "n1", 30000, 4)
        urgent = api.set(PODS, important(20000, 10))
        api.fail(act, 1, "POST", "/eviction")
        check_equal(ask(api, scheduler, urgent, ["n1"]), None, "a card is full")
        placed = wait_placed(api, scheduler, urgent, ["n1"], 10 if carried_out else 5)
        check_equal(placed, "n1" if carried_out else None, f"{act}: the pod is placed if the eviction was carried out")
        check_equal(api.evicted, [uid(one)] if carried_out else [], f"{act}: nobody is evicted twice, or on a doubt")
        clear(api, scheduler)


def test_a_victim_that_is_gone(api, scheduler):
    one = run_pod(api, scheduler, "n1", 30000, 4)
    urgent = api.set(PODS, important(20000, 10))
    api.watch_lag_s = 2
    check_equal(ask(api, scheduler, urgent, ["n1"]), None, "a card is full")
    api.delete(PODS, f"ns/{one['metadata']['name']}")
    check_equal(wait_placed(api, scheduler, urgent, ["n1"]), "n1", "a victim that went by itself makes room as well")
    check_equal(api.evicted, [], "nobody else goes")
    api.watch_lag_s = 0
    clear(api, scheduler)


def test_the_room_is_kept(api, scheduler):
    api.grace_s = 4
    run_pod(api, scheduler, "n1", 30000, 4)
    urgent, small, greedy = (api.set(PODS, important(m, p)) for m, p in ((30000, 10), (1000, 4), (1000, 10)))
    check_equal(ask(api, scheduler, urgent, ["n1"]), None, "a card is full")
    check(wait_evicted(api, scheduler, urgent, ["n1"]), "its pod is evicted, with its grace")
    took = []
    while len(api.objects[PODS]) == 4 and len(took) < 80:
        took += [ask(api, scheduler, thing, ["n1"]) for thing in (small, greedy)]
        time.sleep(0.1)
    took += [ask(api, scheduler, thing, ["n1"]) for thing in (small, greedy) * 3]
    check_equal(set(took), {None}, "others get nothing of it, while the victim ends and after", len(took))
    check_equal(wait_placed(api, scheduler, urgent, ["n1"]), "n1", "when it has ended the important pod has its room")
    check_equal(len(api.evicted), 1, "nobody else went")
    clear(api, scheduler)


def test_killed_meanwhile(api, scheduler):
    api.grace_s = 6
    one, two = (run_pod(api, scheduler, "n1", 15000, p) for p in (5, 4))
    urgent = api.set(PODS, important(15000, 10))
    check_equal(ask(api, scheduler, urgent, ["n1"]), None, "a card is full")
    check(wait_evicted(api, scheduler, urgent, ["n1"]), "a pod is evicted")
    scheduler.kill_and_restart()
    check_equal(ask(api, scheduler, urgent, ["n1"]), None, "the next scheduler refuses the pod, as long as the victim ends")
    check_equal(wait_placed(api, scheduler, urgent, ["n1"]), "n1", "and places it then")
    check_equal(api.evicted, [uid(two)], "without another eviction")
    clear(api, scheduler)


def test_the_pod_goes(api, scheduler):
    api.grace_s = 4
    run_pod(api, scheduler, "n1", 30000, 4)
    urgent, other = (api.set(PODS, important(30000, p)) for p in (10, 4))
    check_equal(ask(api, scheduler, urgent, ["n1"]), None, "a card is full")
    api.delete(PODS, f"ns/{urgent['metadata']['name']}")
    time.sleep(3)
    check_equal(api.evicted, [], "nobody is evicted for a pod that is gone")
    urgent = api.set(PODS, important(30000, 10))
    check_equal(ask(api, scheduler, urgent, ["n1"]), None, "the same again")
    check(wait_evicted(api, scheduler, urgent, ["n1"]), "a pod is evicted")
    api.delete(PODS, f"ns/{urgent['metadata']['name']}")
    check_equal(wait_placed(api, scheduler, other, ["n1"]), "n1", "of a pod that goes afterwards others get the room")
    clear(api, scheduler)


def test_room_elsewhere(api, scheduler):
    api.set(NODES, node("n2"))
    api.grace_s = None
    one = run_pod(api, scheduler, "n1", 30000, 4)
    two = run_pod(api, scheduler, "n2", 30000, 20)
    urgent = api.set(PODS, important(30000, 10))
    check_equal(ask(api, scheduler, urgent, ["n1", "n2"]), None, "both cards are full")
    check(wait_evicted(api, scheduler, urgent, ["n1", "n2"]), "a pod is evicted")
    api.delete(PODS, f"ns/{two['metadata']['name']}")
    check_equal(wait_placed(api, scheduler, urgent, ["n1", "n2"]), "n2", "room that comes elsewhere is taken")
    check_equal(api.evicted, [uid(one)], "and nobody else goes")
    api.delete(PODS, f"ns/{one['metadata']['name']}")
    other = api.set(PODS, important(30000, 0))
    check_equal(wait_placed(api, scheduler, other, ["n1"]), "n1", "the other room is free for all")
    api.delete(NODES, "n2")
    clear(api, scheduler)


def test_off(api, _):
    scheduler = Scheduler(api)
    run_pod(api, scheduler, "n1", 30000, 4)
    urgent = api.set(PODS, important(20000, 10))
    check_equal(ask(api, scheduler, urgent, ["n1"]), None, "a card is full")
    api.requests.clear()
    time.sleep(4)
    check_equal(evictions(api), [], "without the flag nobody is evicted")
    check("hami_scheduler_evictions_total" not in scheduler.metrics(), "nor is it told of")
    scheduler.end()


def main():
    api = Api()
    api.set(NODES, node("n1"))
    scheduler = Scheduler(api, "--evict-for-devices")
    run_each(
        api, scheduler,
        test_the_least_important_goes, test_a_budget_holds, test_answers_in_doubt, test_a_victim_that_is_gone, test_the_room_is_kept,
        test_killed_meanwhile, test_the_pod_goes, test_room_elsewhere,
    )  # fmt: skip
    scheduler.end()
    run_part(test_off, api, None)
    finish()


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The policy scarcity: pods are read whole, and what they request of processors counts."""

from support import *

from promlint import lint


def machine(name, cpu):
    thing = node(name, cards=2)
    thing["status"]["allocatable"].update({"cpu": str(cpu), "memory": "256Gi"})
    return thing


def asking(cpu, memory=None, **more):
    thing = pod(memory, **more)
    for amounts in thing["spec"]["containers"][0]["resources"].values():
        amounts["cpu"] = str(cpu)
    return thing


def teach(scheduler, nodes, count=40):
    """Pods that ask for half of a card and two processors arrive; nothing stays promised."""
    for _ in range(count):
        thing = asking(2, CARD_MIB // 2)
        scheduler.filter(thing, nodes)
        give_back(scheduler, thing, nodes)


def kept(scheduler, cpu, nodes):
    return sorted(scheduler.filter(asking(cpu), nodes)["NodeNames"])


def test_processors_that_pods_request_count(api, scheduler):
    names = ["node-1", "node-2"]
    teach(scheduler, names)
    check(wait_until(lambda: kept(scheduler, 4, names) == names, 10), "two nodes that are alike cost a pod without cards as much")
    # On node-2 no processors are left for another pod with cards: there a pod that needs none of them takes nothing.
    busy = asking(7)
    busy["spec"]["nodeName"] = "node-2"
    api.set(PODS, busy)
    check(wait_until(lambda: kept(scheduler, 1, names) == ["node-2"], 10), "a pod without cards goes where the cards have no processors left")
    small = asking(1, 1000)
    check_equal(scheduler.filter(small, names)["NodeNames"], ["node-2"], "so does one with a small share, by cost alone")
    check_equal(give_back(scheduler, small, names), "", "which is given back")
    api.delete(PODS, f"ns/{busy['metadata']['name']}")
    check(wait_until(lambda: kept(scheduler, 1, names) == names, 10), "a pod that is gone requests nothing")


def test_what_would_still_fit_is_told(api, scheduler):
    scheduler.metrics()
    time.sleep(0.2)
    page = scheduler.metrics()
    # Each of two nodes has two cards and eight processors, of which a pod of half a card asks for two; the class is rounded up to four.
    found = re.findall(r'^hami_cluster_fillable\{class="(1x50% cpu=4 memory=0Gi)"\} (\d+)$', page, re.M)
    check_equal(found, [("1x50% cpu=4 memory=0Gi", "4")], "more pods of the class that arrived", page[-3000:])
    check(re.search(r"^hami_cluster_unallocatable_ratio 0\.\d+$", page, re.M), "and which part of the cards is of no use", page[-3000:])
    if shutil.which("promtool"):
        code, complaints = lint(page.encode())
        check(code in (0, 3) and not complaints, "promtool accepts it", code, complaints)


def test_without_the_view_the_word_means_binpack(api, scheduler):
    for _ in range(2):
        thing = pod(1000, annotations={"hami.io/node-scheduler-policy": "scarcity"})
        check_equal(scheduler.filter(thing, ["node-1", "node-2"])["NodeNames"], ["node-1"], "such a pod is placed by binpack")
    check_equal(scheduler.said().count("asks for the policy scarcity"), 1, "which is said once", scheduler.said())


def main():
    api = Api()
    for name in ("node-1", "node-2"):
        api.set(NODES, machine(name, 8))
    scheduler = Scheduler(api, "--node-scheduler-policy=scarcity")
    run_part(test_processors_that_pods_request_count, api, scheduler)
    run_part(test_what_would_still_fit_is_told, api, scheduler)
    scheduler.end()
    scheduler = Scheduler(api, "--node-scheduler-policy=spread")
    run_part(test_without_the_view_the_word_means_binpack, api, scheduler)
    scheduler.end()
    finish()


main()

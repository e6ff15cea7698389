#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Devices come free and kube-scheduler can't see it: a condition makes it try the pod again.

A filter is asked about a pod that there is not, as kube-scheduler would ask: it is promised the whole card, and later,
asked about again, no more than a piece of it. Nothing of that is in any object.
"""

from support import *

REQUEUE = (account("hami-scheduler"), "patch", "pods", "status")


def promise(memory):
    """To the pod that there is not: the names of nodes that the filter leaves."""
    ghost = slice_pod("ghost", memory)
    ghost["metadata"].update(namespace="default", uid="ghost")
    answer = programs.fetch(f"{EXTENDER}/filter", body={"Pod": ghost, "NodeNames": [NODE]})
    return json.loads(answer).get("NodeNames")


def main():
    need()
    use_machine(1)
    namespace = new_namespace("requeue")
    check_equal(promise(CARD_MIB), [NODE], "a pod that there is not is promised the whole card")
    create(namespace, slice_pod("waits", 3000))
    check(wait_until(lambda: any(e["reason"] == "FilteringFailed" for e in events(namespace, "waits")), 20), "another waits")
    time.sleep(5)
    check_equal(phase(namespace, "waits"), "Pending", "and waits")
    with audited() as requests:
        check_equal(promise(1), [NODE], "the promise becomes a small one")
        began = time.monotonic()
        check(wait_running(namespace, ["waits"]) is not None, "and the other runs")
        print(f"      after {time.monotonic() - began:.1f} s")
    check_equal([r for r in requests if r == REQUEUE], [REQUEUE], "since it was requeued, once")
    conditions = {c["type"]: c for c in get(namespace, "waits")["status"]["conditions"]}
    check("hami.io/DevicesFreed" in conditions, "by a condition of the pod", conditions)
    check_equal(promise(2 * CARD_MIB), None, "the promise ends")
    delete(namespace, "waits")
    time.sleep(4)  # for what is said of the pod that there is not
    finish()


if __name__ == "__main__":
    main()

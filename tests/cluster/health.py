#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A card that fails under a running pod: the pod stays, the scheduler gives the card to nobody, the Node says why."""

from support import *


def fault(*what):
    host.output(programs.HAMICTL, "sim", "fault", *what, programs.SIM)


def health():
    return [device.get("health", False) for device in json.loads(node_register() or "[]")]


def node_events(reason):
    found = api.get("/api/v1/namespaces/default/events")["items"]
    return [e for e in found if e["reason"] == reason and e["involvedObject"]["name"] == NODE]


def cards_of(namespace, names):
    return {device[0] for name in names for c in allocated(get(namespace, name)) for device in c}


def main():
    need()
    first, second = use_machine(2)
    namespace = new_namespace("health")
    create(namespace, slice_pod("before-0", 3000, 5))
    create(namespace, slice_pod("before-1", 3000, 5))
    if not check(wait_running(namespace, ["before-0", "before-1"]) is not None, "two pods run"):
        finish()
    (card,) = cards_of(namespace, ["before-0"])
    index = (first, second).index(card)
    other = second if card == first else first

    before = len(node_events("CardUnhealthy"))
    began = time.monotonic()
    fault(f"--gpu={index}", "--xid=79", "--action=reset")
    check(wait_until(lambda: health()[index] is False, 5), "within 5 s the Node's registration has the card as sick", node_register())
    print(f"      after {time.monotonic() - began:.2f} s")
    names = [f"after-{i}" for i in range(5)]
    create_at_once(namespace, [slice_pod(name, 3000, 5) for name in names])
    check(wait_running(namespace, names) is not None, "pods that come then run", [why(namespace, n) for n in names])
    check_equal(cards_of(namespace, names), {other}, "all of them on the other card")
    check(wait_until(lambda: len(node_events("CardUnhealthy")) > before, 10), "an event of the Node says so")
    print("     ", node_events("CardUnhealthy")[-1]["message"])
    check(is_running(get(namespace, "before-0")), "the pod on it runs on")
    check_equal(statuses(get(namespace, "before-0"))[0]["restartCount"], 0, "and was not restarted")
    fault(f"--gpu={index}", "--state=ok")
    check(wait_until(lambda: health() == [True, True], 60), "once it was reset, and nothing came for a while, it is well", node_register())
    delete_namespace(namespace)
    finish()


if __name__ == "__main__":
    main()

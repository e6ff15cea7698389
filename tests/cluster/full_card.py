#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ten pods, created at once, fill a card to the MiB; the eleventh waits, says why once, and runs when there is room."""

from support import *

SHARE_MIB = 3000
NAMES = [f"tenth-{i}" for i in range(10)]


def our_events(namespace, name):
    """kube-scheduler speaks under the profile's name, too, and calls it FailedScheduling."""
    return [e for e in events(namespace, name) if e["reason"] == "FilteringFailed"]


def check_full(namespace, card):
    for name in NAMES:
        check_share(namespace, name, SHARE_MIB)
    given = [device for name in NAMES for c in allocated(get(namespace, name)) for device in c]
    check_equal(sum(d[2] for d in given), CARD_MIB, "the card is given away to the MiB")
    check_equal({d[0] for d in given}, {card}, "and it is one card")


def check_waiting(namespace):
    create(namespace, slice_pod("eleventh", SHARE_MIB))
    check(wait_until(lambda: our_events(namespace, "eleventh"), 20), "the eleventh is told why it waits")
    time.sleep(5)
    check_equal(phase(namespace, "eleventh"), "Pending", "the eleventh waits")
    said = our_events(namespace, "eleventh")
    check_equal(len(said), 1, "with one event of ours")
    print("     ", said[0]["message"] if said else None)
    reasons = ("CardInsufficientMemory", "CardTimeSlicingExhausted", "CardInsufficientCore")
    check(said and any(r in said[0]["message"] for r in reasons), "that names what the card lacks", said)


def main():
    need()
    (card,) = use_machine(1)
    namespace = new_namespace("full-card")
    answers = create_at_once(namespace, [slice_pod(name, SHARE_MIB) for name in NAMES])
    check(not [a for a in answers.values() if isinstance(a, Exception)], "ten pods are created at once", answers)
    took = wait_running(namespace, NAMES, 60)
    if not check(took is not None, "all ten run"):
        finish()
    print(f"      after {took:.2f} s")
    check_full(namespace, card)
    check_waiting(namespace)

    api.delete(pods_path(namespace, NAMES[3]))
    check(wait_until(lambda: get(namespace, NAMES[3]) is None, 60, 0.02), "one of the ten goes")
    took = wait_running(namespace, ["eleventh"])
    check(took is not None and took < 5, "the eleventh runs within 5 s of that", took)
    print(f"      after {took:.2f} s" if took else "")
    check_share(namespace, "eleventh", SHARE_MIB)
    finish()


if __name__ == "__main__":
    main()

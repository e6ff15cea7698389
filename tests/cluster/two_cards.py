#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty pods with different limits, created within a second, on two cards: each gets its own."""

from support import *

MEMORY = {f"share-{i}": 1000 + 100 * i for i in range(20)}


def main():
    need()
    cards = use_machine(2)
    namespace = new_namespace("two-cards")
    begun = time.monotonic()
    answers = create_at_once(namespace, [slice_pod(name, mem, 5) for name, mem in MEMORY.items()])
    check(not [a for a in answers.values() if isinstance(a, Exception)], "twenty pods are created", answers)
    check(time.monotonic() - begun <= 1.0, "within a second", time.monotonic() - begun)
    took = wait_running(namespace, MEMORY, 90)
    if not check(took is not None, "all twenty run"):
        finish()
    print(f"      after {took:.2f} s")
    for name, mem in MEMORY.items():
        check_share(namespace, name, mem)

    given = [device for name in MEMORY for c in allocated(get(namespace, name)) for device in c]
    for card in cards:
        mine = [d for d in given if d[0] == card]
        check(sum(d[2] for d in mine) <= CARD_MIB and len(mine) <= 10, f"{card} is not given twice", mine)
    finish()


if __name__ == "__main__":
    main()

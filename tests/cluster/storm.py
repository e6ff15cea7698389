#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pods come and go at random on two cards while the scheduler is killed again and again: nothing is ever given twice.

    storm.py SECONDS

The judge recounts from the API's objects alone, a whole list at a time.
"""

import random

from support import *

WORKERS = 6
MEMORY_MIB = (500, 3000, 7000, 12000, 20000)
KINDS = 4


def random_pod(name, dice):
    kind = dice.randrange(KINDS)
    mem, cores = dice.choice(MEMORY_MIB), dice.choice((5, 10, 30, 60))
    if kind == 0:
        return slice_pod(name, mem, cores, command=("/bin/slice",))
    if kind == 1:
        return slice_pod(name, mem // 2, cores // 2, gpu=2)
    if kind == 2:
        first = container("first", ("/bin/slice",), share(1, dice.choice(MEMORY_MIB), 10))
        return pod(name, container(limits=share(1, mem, cores)), initContainers=[first])
    return slice_pod(name, mem, cores)


def work(namespace, number, deadline, made):
    dice = random.Random(number)
    count = 0
    while time.monotonic() < deadline:
        name = f"storm-{number}-{count}"
        count += 1
        try:
            create(namespace, random_pod(name, dice))
            made.append(name)
            time.sleep(dice.uniform(0.2, 2.0))
            api.delete(pods_path(namespace, name))
        except (ApiError, OSError):
            time.sleep(0.1)


def kill_again_and_again(deadline, kills):
    """One that was started anew decides after 4 s: some are killed before, some at work."""
    dice = random.Random(0)
    while time.monotonic() < deadline - 3:
        time.sleep(dice.uniform(3.0, 9.0))
        try:
            programs.kill("hami-scheduler")
            kills.append(1)
        except (host.ClusterError, ProcessLookupError):
            pass


def is_live(thing):
    return thing["status"].get("phase") not in ("Succeeded", "Failed")


def peaks(thing):
    """What a pod holds of each card at most: its containers together, or its init container alone."""
    given = allocated(thing)
    inits = len(thing["spec"].get("initContainers", []))
    held = {}
    for part in [[c] for c in given[:inits]] + [given[inits:]]:
        sums = {}
        for uuid, _, mib, cores in (device for c in part for device in c):
            had = sums.get(uuid, (0, 0, 0))
            sums[uuid] = (had[0] + 1, had[1] + mib, had[2] + cores)
        for uuid, amounts in sums.items():
            held[uuid] = tuple(map(max, held.get(uuid, (0, 0, 0)), amounts))
    return held


def overdrawn(things):
    """Cards of which more is given than there is: (card, slots, MiB, cores)."""
    sums = {}
    for thing in filter(is_live, things):
        for uuid, amounts in peaks(thing).items():
            sums[uuid] = tuple(map(sum, zip(sums.get(uuid, (0, 0, 0)), amounts)))
    return [(uuid, *s) for uuid, s in sums.items() if s[0] > 10 or s[1] > CARD_MIB or s[2] > 100]


def judge(namespace, deadline, seen):
    while time.monotonic() < deadline + 2:
        try:
            things = pods(namespace)
        except (ApiError, OSError):
            continue
        seen["looks"] += 1
        seen["held"] = max(seen["held"], sum(bool(allocated(t)) and is_live(t) for t in things))
        seen["wrong"] += overdrawn(things)
        seen["rejected"] |= {t["metadata"]["name"] for t in things if t["status"].get("reason") == "UnexpectedAdmissionError"}
        time.sleep(0.05)


def main():
    seconds = float(sys.argv[1])
    need()
    use_machine(2)
    namespace = new_namespace("storm")
    deadline = time.monotonic() + seconds
    made, kills, seen = [], [], {"looks": 0, "held": 0, "wrong": [], "rejected": set()}
    threads = [threading.Thread(target=work, args=(namespace, i, deadline, made)) for i in range(WORKERS)]
    threads += [
        threading.Thread(target=kill_again_and_again, args=(deadline, kills)),
        threading.Thread(target=judge, args=(namespace, deadline, seen)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"      {len(made)} pods, {len(kills)} kills, {seen['looks']} looks, at most {seen['held']} pods with shares at once")
    check(len(made) >= seconds and len(kills) >= seconds / 10 and seen["held"] >= 3, "it was a storm", made, kills)
    check_equal(seen["wrong"], [], "no card was ever given twice")
    check_equal(seen["rejected"], set(), "kubelet rejected no pod")

    for thing in pods(namespace):
        api.delete(pods_path(namespace, thing["metadata"]["name"]))
    check(wait_until(lambda: not pods(namespace), 60, 0.2), "all pods go")
    check(wait_until(lambda: view() is not None and b"storm-" not in view(), 30, 0.2), "none is left in the view", view())
    create_at_once(namespace, [slice_pod(f"full-{i}", CARD_MIB, 100) for i in range(2)])
    check(wait_running(namespace, ["full-0", "full-1"]) is not None, "both cards are free again, to the MiB")
    finish()


if __name__ == "__main__":
    main()

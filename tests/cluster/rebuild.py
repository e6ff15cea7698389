#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scheduler, killed and started from nothing, has the same view of 50 pods, byte for byte."""

from support import *

ENDS = ("/bin/slice",)
# Ends when it is told to, and not by a signal.
STUBBORN = ("sh", "-c", "trap '' TERM; until [ -e /tmp/end ]; do sleep 0.2; done")


def pods_of_all_kinds():
    yield from (slice_pod(f"running-{i}", 1000 + i, 2) for i in range(20))
    yield from (slice_pod(f"completed-{i}", 900, 2, command=ENDS) for i in range(8))
    yield from (slice_pod(f"terminating-{i}", 800, 2, command=STUBBORN, grace=120) for i in range(6))
    yield from (slice_pod(f"deleted-{i}", 700, 2) for i in range(8))
    for i in range(6):
        first = container("first", ENDS, share(1, 1500, 3))
        yield pod(f"init-{i}", container(limits=share(1, 600, 2)), initContainers=[first])
    yield from (slice_pod(f"too-large-{i}", CARD_MIB + 1, 2) for i in range(2))


def settled_view(seconds=10):
    """The view, once it has stopped changing."""
    seen = [view()]

    def is_still():
        time.sleep(0.5)
        seen.append(view())
        return seen[-1] is not None and seen[-1] == seen[-2]

    wait_until(is_still, seconds)
    return seen[-1]


def main():
    need()
    use_machine(8)
    namespace = new_namespace("rebuild")
    manifests = list(pods_of_all_kinds())
    check_equal(len(manifests), 50, "there are 50 pods")
    create_at_once(namespace, manifests)
    names = [m["metadata"]["name"] for m in manifests]
    running = [n for n in names if not n.startswith(("completed", "too-large"))]
    check(wait_running(namespace, running, 120) is not None, "those that go on run")
    ended = [n for n in names if n.startswith("completed")]
    check(wait_until(lambda: all(phase(namespace, n) == "Succeeded" for n in ended), 60, 0.2), "those that end have ended")
    for name in names:
        if name.startswith(("terminating", "deleted")):
            api.delete(pods_path(namespace, name))
    gone = [n for n in names if n.startswith("deleted")]
    check(wait_until(lambda: all(get(namespace, n) is None for n in gone), 30, 0.2), "those deleted are gone")
    check(
        all(get(namespace, n)["metadata"].get("deletionTimestamp") for n in names if n.startswith("terminating")),
        "those terminating are still there",
    )

    before = settled_view()
    check(before is not None and b"running-7" in before, "the scheduler shows its view", before)
    gone = programs.kill("hami-scheduler")
    begun = time.monotonic()
    check(programs.back("hami-scheduler", gone), "killed, it is started again")
    check(wait_until(lambda: programs.fetch(f"{EXTENDER}/readyz") is not None, 30, 0.02), "and ready")
    print(f"      after {time.monotonic() - begun:.2f} s")
    after = settled_view()
    check(before == after, "its view is the same, byte for byte", before, after)
    for name in names:
        if name.startswith("terminating"):
            execute(namespace, name, "touch", "/tmp/end")
    finish()


if __name__ == "__main__":
    main()

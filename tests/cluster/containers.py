#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pods with several containers: each container gets what was planned for it, init containers included."""

from support import *

STAY = ("/bin/slice", "--stay")


def two_containers(namespace, cards):
    # Neither card has room for both.
    create(
        namespace,
        pod(
            "pair",
            container("large", STAY, share(1, 20000, 30)),
            container("plain", ("sleep", "1000")),
            container("small", STAY, share(1, 18000, 20)),
        ),
    )
    if not check(wait_running(namespace, ["pair"]) is not None, "a pod with two shares runs"):
        return
    large = check_share(namespace, "pair", 20000, "large", 0)
    small = check_share(namespace, "pair", 18000, "small", 2)
    if large and small:
        seen = {large["cuda"][0]["uuid"], small["cuda"][0]["uuid"]}
        check_equal(seen, set(cards), "its containers have different cards")
    code, out, _ = execute(namespace, "pair", "sh", "-c", "cat /etc/ld.so.preload 2>&1; env", inside="plain")
    check(code == 0 and "CUDA_DEVICE" not in out and "libvgpu" not in out, "the one that asked for nothing got nothing", out)
    check(delete(namespace, "pair"), "it goes")


def several_cards(namespace, cards):
    create(namespace, slice_pod("both", mem=7000, cores=10, gpu=2))
    if not check(wait_running(namespace, ["both"]) is not None, "a container with two cards runs"):
        return
    seen = told(namespace, "both") or {"cuda": [], "nvml": []}
    check_equal({c["uuid"] for c in seen["cuda"]}, set(cards), "it sees both")
    check_equal([c["bytes"] for c in seen["cuda"]], [7000 * MIB] * 2, "and of each what it asked for, by CUDA")
    check_equal([c["bytes"] for c in seen["nvml"]], [7000 * MIB] * 2, "and by NVML")
    given = allocated(get(namespace, "both"))
    check_equal([c["uuid"] for c in seen["cuda"]], [d[0] for d in given[0]], "in the order on record")
    check(delete(namespace, "both"), "it goes")


def init_container(namespace):
    create(
        namespace,
        pod(
            "prepared",
            container("main", STAY, share(1, 3000, 10)),
            initContainers=[container("first", ("/bin/slice", "--hold", "4000"), share(1, 5000, 10))],
        ),
    )
    if not check(wait_running(namespace, ["prepared"]) is not None, "a pod whose init container has a share runs"):
        return
    seen = check_share(namespace, "prepared", 5000, "first", 0)
    check(seen and seen["hold"] == 0, "its init container uses it", seen)
    check_share(namespace, "prepared", 3000, "main", 1)
    check_equal(len(allocated(get(namespace, "prepared"))), 2, "init containers come first on record")
    check(delete(namespace, "prepared"), "it goes")


def sidecar(namespace):
    create(
        namespace,
        pod(
            "helped",
            container("main", STAY, share(1, 3000, 10)),
            initContainers=[container("side", STAY, share(1, 2000, 10), restartPolicy="Always")],
        ),
    )
    if not check(wait_running(namespace, ["helped"]) is not None, "a pod whose sidecar has a share runs"):
        return
    check_share(namespace, "helped", 2000, "side", 0)
    check_share(namespace, "helped", 3000, "main", 1)
    check(delete(namespace, "helped"), "it goes")


def restarted_container(namespace):
    """A container that ends is started anew, with the same share."""
    restless = pod(
        "restless", container(command=("/bin/slice", "--stay"), limits=share(1, 3000, 10)), restartPolicy="Always"
    )
    create(namespace, restless)
    if not check(wait_running(namespace, ["restless"]) is not None, "a pod that will restart runs"):
        return
    before = allocated(get(namespace, "restless"))
    execute(namespace, "restless", "kill", "-TERM", "1")
    again = wait_until(lambda: any(s["restartCount"] for s in statuses(get(namespace, "restless"))), 20, 0.1)
    check(again and wait_running(namespace, ["restless"]) is not None, "its container is started again")
    check_equal(allocated(get(namespace, "restless")), before, "with the same share on record")
    check_share(namespace, "restless", 3000)
    check(delete(namespace, "restless"), "it goes")


def main():
    need()
    cards = use_machine(2)
    namespace = new_namespace("containers")
    two_containers(namespace, cards)
    several_cards(namespace, cards)
    init_container(namespace)
    sidecar(namespace)
    restarted_container(namespace)
    finish()


if __name__ == "__main__":
    main()

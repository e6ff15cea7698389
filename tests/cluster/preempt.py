#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A more important pod that finds neither processors nor devices: kube-scheduler evicts both who holds the ones and who
holds the others, and nobody where not even that would help."""

from support import *

CLASS = "/apis/scheduling.k8s.io/v1/priorityclasses"
URGENT = "hami-test-urgent"


def millis(quantity):
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


def make_class():
    api.delete(f"{CLASS}/{URGENT}")
    api.create(CLASS, {"metadata": {"name": URGENT}, "value": 1000})
    atexit.register(lambda: api.delete(f"{CLASS}/{URGENT}"))


def main():
    need()
    use_machine(1)
    namespace = new_namespace("preempt")
    make_class()
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
    finish()


if __name__ == "__main__":
    main()

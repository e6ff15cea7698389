#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the webhook leaves alone, completes, and denies."""

import manifests
from support import *

PERCENT = "nvidia.com/gpumem-percentage"

# What can never be meant, by resource; what the answer must name. A text is refused by the API server itself,
# which takes it for no quantity, before any webhook is asked.
MALFORMED = [
    ({GPU: "-1"}, GPU),
    ({GPU: "1", MEMORY: "-3000"}, MEMORY),
    ({GPU: "1", MEMORY: "1500m"}, MEMORY),
    ({GPU: "1", MEMORY: "0.5"}, MEMORY),
    ({GPU: "1", CORES: "-10"}, CORES),
    ({GPU: "1", CORES: "1.5"}, CORES),
    ({GPU: "500m"}, GPU),
    ({GPU: "1", PERCENT: "101"}, PERCENT),
    ({GPU: "1", PERCENT: "0"}, PERCENT),
    ({GPU: "1", MEMORY: "lots"}, ""),
    ({GPU: "one"}, ""),
]
# Annotations of a pod that asks for a share.
MISSPELT = [
    ("hami.io/node-scheduler-policy", "bin-pack"),
    ("hami.io/gpu-scheduler-policy", "topology"),
    ("nvidia.com/vgpu-mode", "hami"),
    ("nvidia.com/numa-bind", "yes"),
]


def spec_of(namespace, manifest):
    """The pod as the API server would store it; nothing is stored."""
    made = api.create(pods_path(namespace) + "?dryRun=All", manifest)
    return made["spec"], made["metadata"].get("annotations"), made["metadata"].get("labels")


def untouched(namespace):
    ordinary = pod("ordinary", container(command=["sleep", "1"]), annotations={"a": "b"})
    left_out = pod("ordinary", container(command=["sleep", "1"]), annotations={"a": "b"}, labels={"hami.io/webhook": "ignore"})
    left_out_spec, left_out_annotations, _ = spec_of(namespace, left_out)
    spec, annotations, labels = spec_of(namespace, ordinary)
    check_equal(spec, left_out_spec, "a pod that asks for nothing of ours is as it was")
    check_equal((annotations, labels), (left_out_annotations, None), "its metadata, too")

    elsewhere = pod("elsewhere", container(command=["sleep", "1"]), schedulerName="another")
    check_equal(spec_of(namespace, elsewhere)[0]["schedulerName"], "another", "a pod with another scheduler keeps it")
    opted_out = slice_pod("opted-out", labels={"hami.io/webhook": "ignore"})
    check_equal(spec_of(namespace, opted_out)[0]["schedulerName"], "hami-scheduler", "a pod can't opt out by its own label")


def completed(namespace):
    only_memory = pod("only-memory", container(limits={MEMORY: "3000"}))
    spec = spec_of(namespace, only_memory)[0]
    check_equal(spec["schedulerName"], "hami-scheduler", "a pod that names only memory is ours")
    limits = spec["containers"][0]["resources"]["limits"]
    # The API server writes 3000 as it does all quantities: 3k.
    check_equal((limits.get(GPU), limits.get(MEMORY)), ("1", "3k"), "and gets one card")

    whole = pod("whole", container(limits={GPU: "1"}), annotations={"kept": "as/is"})
    spec, annotations, _ = spec_of(namespace, whole)
    check_equal(spec["containers"][0]["resources"]["limits"].get(CORES), "100", "a whole card is exclusive")
    check_equal(annotations, {"kept": "as/is"}, "annotations are as they were")

    both = pod("init", container(command=["sleep", "1"]), initContainers=[container("first", limits=share(1, 3000))])
    check_equal(spec_of(namespace, both)[0]["schedulerName"], "hami-scheduler", "an init container's share counts")


def denied(namespace):
    for limits, field in MALFORMED:
        try:
            create(namespace, pod("malformed", container(limits=limits)))
            check(False, f"{limits} is denied")
            delete(namespace, "malformed")
        except ApiError as error:
            check(400 <= error.status < 500, f"{limits} is denied", error.status, error.message)
            if field:
                check(field in error.message, f"with the field's name: {error.message[:160]}", field)
    for key, value in MISSPELT:
        refused(namespace, slice_pod("misspelt", annotations={key: value}), key)
    privileged = container(limits=share(1, 3000), securityContext={"privileged": True})
    refused(namespace, pod("privileged", privileged), "privileged")
    try:
        create(namespace, slice_pod("pinned", nodeName=NODE))
        check(False, "a pod that names its node itself is denied")
        delete(namespace, "pinned")
    except ApiError as error:
        check("node" in error.message, f"a pod that names its node itself is denied: {error.message[:160]}")


def refused(namespace, manifest, field):
    try:
        create(namespace, manifest)
        check(False, f"{field} is denied")
        delete(namespace, manifest["metadata"]["name"])
    except ApiError as error:
        check(error.status == 422 and field in error.message, f"{field} is denied: {error.message[:160]}", error.status)


def copied(namespace):
    """A copy to debug in gets a share of its own."""
    create(namespace, slice_pod("first", 1000, 5))
    if not check(wait_running(namespace, ["first"]) is not None, "a pod with a share runs"):
        return
    manifests.kubectl(BINARIES, "-n", namespace, "debug", "first", "--copy-to=copy", f"--set-image=main={IMAGE}")
    check(wait_running(namespace, ["copy"]) is not None, "its copy, made by kubectl debug, runs beside it")
    times = [annotation(get(namespace, name), "hami.io/bind-time") for name in ("first", "copy")]
    phases = [annotation(get(namespace, name), BIND_PHASE) for name in ("first", "copy")]
    check(all(times) and None not in phases, "by a bind of its own", times, phases)


def main():
    need("hami-scheduler")
    namespace = new_namespace("admission")
    untouched(namespace)
    completed(namespace)
    denied(namespace)
    copied(namespace)
    finish()


if __name__ == "__main__":
    main()

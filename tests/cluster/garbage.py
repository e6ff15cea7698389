#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Garbage in a node's or a pod's annotations costs that node or pod, and nobody else."""

from support import *

REGISTERS = [
    "",
    "{",
    "null",
    "[]",
    "[[[[[[[[[[[[[[[[]",
    '[{"id": "GPU-x", "count": -1, "devmem": -5, "devcore": 1e99}]',
    '[{"id": 7, "count": "ten"}, {"id": "GPU-y"}]',
    '[{"id": "GPU-z", "count": 10, "devmem": 99999999999999999999, "devcore": 100, "type": "NVIDIA-T4", "health": true}]',
    "GPU-1,10,1000,100,NVIDIA-T4,0",
    ":::::::",
    "GPU-1,ten,1000,100,NVIDIA-T4,0,true:",
    "\u0000\u0001\ufffd" + "\U0001f600" * 50,
    "x" * 100000,
]
DEVICES = [
    "",
    ";;;;",
    "{}",
    "GPU-x,NVIDIA,3000:;",
    "GPU-x,NVIDIA,many,10:;",
    "GPU-x,NVIDIA,-3000,-10:;",
    "GPU-x,NVIDIA,999999999999999999999,10:;",
    ",,,:;" * 1000,
    "x" * 100000,
]


def pretend_nodes():
    for i, text in enumerate(REGISTERS):
        name = f"garbage-{i}"
        api.delete(f"/api/v1/nodes/{name}")
        api.create("/api/v1/nodes", {"metadata": {"name": name, "annotations": {programs.REGISTER: text}}})
        ready = {"type": "Ready", "status": "True", "reason": "Pretended", "message": ""}
        status = {"conditions": [ready], "allocatable": {GPU: "10"}, "capacity": {GPU: "10"}}
        api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        atexit.register(api.delete, f"/api/v1/nodes/{name}")


def littered_pods(namespace):
    """Pods on the real node that say they hold devices, in words that mean nothing."""
    names = []
    for i, text in enumerate(DEVICES):
        said = {key: text for key in (ALLOCATED, TO_ALLOCATE)} | {ON_NODE: NODE, BIND_PHASE: "allocating"}
        names.append(f"litter-{i}")
        create(namespace, pod(names[-1], container(command=["sleep", "1000"]), nodeName=NODE))
        # By an administrator, later: at creation they are dropped.
        api.patch(pods_path(namespace, names[-1]), {"metadata": {"annotations": said}})
    return names


def main():
    need()
    use_machine(1)
    namespace = new_namespace("garbage")
    before = {name: host.read_pid(name) for name in programs.OURS}
    pretend_nodes()
    litter = littered_pods(namespace)
    check(wait_running(namespace, litter, 60) is not None, "pods with garbage of ours, which ask for nothing, run")

    create(namespace, slice_pod("honest"))
    check(wait_running(namespace, ["honest"]) is not None, "a pod that asks for a share runs beside them")
    check_share(namespace, "honest", 3000)
    check_equal(get(namespace, "honest")["spec"].get("nodeName"), NODE, "on the node that makes sense")
    check_equal({name: host.read_pid(name) for name in before}, before, "no program of ours has ended")
    seen = view()
    try:
        nodes = json.dumps(json.loads(seen))
        check(f'"{NODE}"' in nodes and "honest" in nodes, "the scheduler's view has the node and the pod")
    except (ValueError, TypeError) as error:
        check(False, "the scheduler's view is JSON", error, seen)
    for name in litter:
        api.delete(pods_path(namespace, name))
    finish()


if __name__ == "__main__":
    main()

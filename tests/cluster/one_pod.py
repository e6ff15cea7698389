#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One pod with a share of one card of 30,000 MiB: mutated, bound, started, held to its share, reported."""

from support import *

# As strict as a pod can be made.
STRICT = {
    "runAsUser": 1000,
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
COMMAND = ("/bin/slice", "--hold", "2800", "--then", "400", "--stay")


def manifest(name, **more):
    return pod(name, container(command=COMMAND, limits=share(1, 3000, 10), **more))


def check_placed(namespace, name, card):
    thing = get(namespace, name)
    check_equal(thing["spec"]["schedulerName"], "hami-scheduler", f"{name} was given to our scheduler")
    check_equal(thing["spec"].get("nodeName"), NODE, f"{name} was bound")
    check_equal(allocated(thing), [[(card, "NVIDIA", 3000, 10)]], f"{name} has its share on record")
    check_equal(annotation(thing, ON_NODE), NODE, f"{name} has its node on record")
    check_equal(thing["metadata"].get("labels", {}).get(ON_NODE), NODE, f"{name} carries the node's label")
    check(wait_until(lambda: annotation(get(namespace, name), BIND_PHASE) == "success", 20), f"{name} has its devices")
    left = devices(annotation(get(namespace, name), TO_ALLOCATE) or "")
    check(not any(left), f"{name} has nothing left to allocate", left)


def check_held(namespace, name):
    seen = check_share(namespace, name, 3000) or {}
    check_equal(seen.get("hold"), 0, f"{name} allocates 2,800 MiB")
    check_equal(seen.get("then"), 2, f"{name} is refused 400 MiB more with CUDA_ERROR_OUT_OF_MEMORY")
    code, out, err = execute(namespace, name, "/bin/slice", "--hold", "400")
    check(code == 0 and json.loads(out)["hold"] == 2, f"{name}: so is another process in it", code, out, err)


def check_reported(namespace, name, card):
    labels = {"namespace": namespace, "pod": name, "container": "main", "device_uuid": card}
    told = lambda what: sample(samples(programs.MONITOR_METRICS), f"hami_vgpu_memory_{what}_bytes", **labels)
    used = machine_use()[card]
    check(wait_until(lambda: told("limit") == 3000 * MIB, 5), f"{name}: the monitor reports its limit", told("limit"))
    check(wait_until(lambda: told("used") == used, 5), f"{name}: the monitor reports its use, as the simulator counts it", told("used"), used)
    check(used >= 2900 * MIB, f"{name}: which is what it allocated and a context", used)


def check_pod(namespace, card, name, **more):
    create(namespace, manifest(name, **more))
    took = wait_running(namespace, [name])
    if not check(took is not None, f"{name} runs"):
        return
    print(f"      after {took:.2f} s")
    check_placed(namespace, name, card)
    check_held(namespace, name)
    check_reported(namespace, name, card)
    check(delete(namespace, name), f"{name} goes")
    check(wait_until(lambda: machine_use()[card] == 0, 20), "and leaves nothing on the card", machine_use())
    check(
        wait_until(lambda: not reported_pods(namespace), 30, 0.2),
        "and nothing in the metrics", reported_pods(namespace),
    )


def reported_pods(namespace):
    return {dict(labels)["pod"] for _, labels in samples(programs.MONITOR_METRICS) if dict(labels).get("namespace") == namespace}


def main():
    need()
    (card,) = use_machine(1)
    namespace = new_namespace("one-pod")
    check_pod(namespace, card, "ordinary")
    check_pod(namespace, card, "strict", securityContext=STRICT)
    finish()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pods that use a card past the library, on a real node: found by the kernel's word on whose a process is, within seconds."""

from support import *

DRIVER = {
    "volumes": [{"name": "machine", "hostPath": {"path": str(programs.SIM)}}, {"name": "sim", "hostPath": {"path": str(programs.SIMDRIVER)}}],
    "volumeMounts": [{"name": "machine", "mountPath": "/machine"}, {"name": "sim", "mountPath": "/sim"}],
    "env": [{"name": "HAMI_SIM", "value": "/machine"}, {"name": "LD_LIBRARY_PATH", "value": "/sim"}],
}


def bare(name, mib):
    """A container that has brought the driver along, and no share."""
    return container(name, command=("/bin/slice", "--hold", str(mib), "--stay"), env=DRIVER["env"], volumeMounts=DRIVER["volumeMounts"])


def said(namespace, name):
    return [e["message"] for e in events(namespace, name) if e["reason"] == "DeviceBypass"]


def condition():
    found = [c for c in api.get(f"/api/v1/nodes/{NODE}")["status"]["conditions"] if c["type"] == "hami.io/DevicesBypassed"]
    return found[0] if found else {"status": None, "message": ""}


def is_honest(namespace, names):
    return not [m for n in names for m in said(namespace, n)]


def main():
    need()
    (card,) = use_machine(1)
    namespace = new_namespace("bypass")
    honest = [f"honest-{i}" for i in range(6)]
    create_at_once(namespace, [slice_pod(name, 3000, 5, command=("/bin/slice", "--hold", "2000", "--stay")) for name in honest])
    if not check(wait_running(namespace, honest, 90) is not None, "pods with a share run"):
        finish()
    time.sleep(6)
    check(is_honest(namespace, honest), "and are not accused", [said(namespace, n) for n in honest])
    check_equal(condition()["status"], "False", "which the Node's condition says")

    for name, kind, containers in (
        ("stranger", "not-given", [bare("main", 500)]),
        ("half", "no-slot", [container(command=("/bin/slice", "--stay"), limits=share(1, 3000, 5)), bare("side", 500)]),
    ):
        create(namespace, pod(name, *containers, volumes=DRIVER["volumes"]))
        check(wait_running(namespace, [name]) is not None, f"a pod that takes a card past the library runs ({kind})", why(namespace, name))
        began = time.monotonic()
        check(wait_until(lambda: said(namespace, name), 6), "it is found, and has an event", events(namespace, name))
        print(f"      after {time.monotonic() - began:.1f} s: {said(namespace, name)}")
        check(wait_until(lambda: condition()["status"] == "True" and f"{namespace}/{name}" in condition()["message"], 8), "the Node has the condition", condition())
        got = samples(programs.MONITOR_METRICS)
        check_equal(sample(got, "hami_pod_bypass", pod=name, kind=kind, device_uuid=card), 1, "there is a metric of it")
        delete(namespace, name)
    check(is_honest(namespace, honest), "the honest ones are still not accused", [said(namespace, n) for n in honest])
    delete_namespace(namespace)
    finish()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pod without a runtime class gets the driver by the CDI specification of NVIDIA's toolkit, here a pretended one.

Its libraries are the simulator's, its device nodes are made here, its hook leaves a mark.
"""

import json
import os
import stat

from support import *

SPEC = host.CDI / "nvidia.yaml"
FOLDER = WORK / "toolkit"
MAJOR, CONTROL = 195, 255
INSIDE = "/usr/lib/x86_64-linux-gnu" if host.ARCH == "amd64" else "/usr/lib/aarch64-linux-gnu"


def make_nodes(cards):
    """As /dev/nvidia0 and so on, by the driver's numbers; nobody opens them."""
    FOLDER.mkdir(exist_ok=True)
    for name, minor in (("nvidiactl", CONTROL), *((f"nvidia{i}", i) for i in range(len(cards)))):
        (FOLDER / name).unlink(missing_ok=True)
        os.mknod(FOLDER / name, 0o666 | stat.S_IFCHR, os.makedev(MAJOR, minor))
        (FOLDER / name).chmod(0o666)
    (FOLDER / "hook.ran").unlink(missing_ok=True)
    hook = FOLDER / "hook"
    hook.write_text(f"#!/bin/sh\ncat >{FOLDER}/hook.state\necho \"$@\" >>{FOLDER}/hook.ran\n")
    hook.chmod(0o755)


def toolkit(cards):
    """What `nvidia-ctk cdi generate` writes, in its form: by index and by uuid, in YAML."""
    library = lambda name: f"  - {{hostPath: {programs.SIMDRIVER}/{name}, containerPath: {INSIDE}/{name}, options: [ro, nosuid, nodev, rbind, rprivate]}}\n"
    node = lambda name: f"{{path: /dev/{name}, hostPath: {FOLDER}/{name}}}"
    device = lambda name, i: f"- name: \"{name}\"\n  containerEdits:\n    deviceNodes:\n    - {node(f'nvidia{i}')}\n"
    return (
        "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n"
        "  env: [NVIDIA_VISIBLE_DEVICES=void, HAMI_SIM=/dev/nvidia-machine]\n"
        f"  deviceNodes:\n  - {node('nvidiactl')}\n"
        f"  hooks:\n  - {{hookName: createContainer, path: {FOLDER}/hook, args: [hook, update-ldcache]}}\n"
        f"  mounts:\n{library('libcuda.so.1')}{library('libnvidia-ml.so.1')}"
        f"  - {{hostPath: {programs.SIM}, containerPath: /dev/nvidia-machine, options: [rw, nosuid, nodev, rbind, rprivate]}}\n"
        "devices:\n" + device("0", 0) + "".join(device(uuid, i) for i, uuid in enumerate(cards) if i)
    )


def condition():
    found = api.get(f"/api/v1/nodes/{NODE}")["status"]["conditions"]
    return next(((c["status"], c["reason"], c["message"]) for c in found if c["type"] == "hami.io/DriverReady"), (None, None, None))


def check_spec(namespace, name, given):
    """What the runtime was told, and systemd with it: a device that is only made in the container is lost when systemd
    loads its units again, which sets the cgroup's rules to those of the specification."""
    inside = get(namespace, name)["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    linux = json.loads((WORK / "containerd/state/io.containerd.runtime.v2.task/k8s.io" / inside / "config.json").read_text())["linux"]
    made = {d["path"] for d in linux["devices"] if d["path"].startswith("/dev/nvidia")}
    check_equal(made, {f"/dev/nvidia{given}", "/dev/nvidiactl"}, f"the device nodes of {name} are in its specification")
    rules = {r["minor"]: r["access"] for r in linux["resources"]["devices"] if r["allow"] and r.get("major") == MAJOR}
    check(rules.keys() == {given, CONTROL} and all({"r", "w"} <= set(a) for a in rules.values()), "and so is that it may use them", rules)


def check_pods(namespace, cards):
    for i in range(2):
        create(namespace, slice_pod(f"by-toolkit-{i}", 20000, 10))
    if not check(wait_running(namespace, ["by-toolkit-0", "by-toolkit-1"]) is not None, "pods that name no runtime class run"):
        return
    for i in range(2):
        name = f"by-toolkit-{i}"
        check("runtimeClassName" not in get(namespace, name)["spec"], f"{name} has no runtime class")
        check_share(namespace, name, 20000)
        given = cards.index(allocated(get(namespace, name))[0][0][0])
        _, nodes, _ = execute(namespace, name, "sh", "-c", "ls -d /dev/nvidia*")
        check_equal(nodes.split(), sorted([f"/dev/nvidia{given}", "/dev/nvidia-machine", "/dev/nvidiactl"]), f"{name} has the node of its card and no other's")
        check_spec(namespace, name, given)
        _, variables, _ = execute(namespace, name, "env")
        check("NVIDIA_VISIBLE_DEVICES=void" in variables and "HAMI_SIM=/dev/nvidia-machine" in variables, f"{name} has its variables from the specification", variables)
    ran = (FOLDER / "hook.ran").read_text().splitlines() if (FOLDER / "hook.ran").exists() else []
    check_equal(ran, ["update-ldcache"] * 2, "its hook ran for each")


def main():
    need()
    cards = use_machine(2)
    check(wait_until(lambda: condition()[:2] == ("True", "Simulated"), 40), "the Node says where containers get their driver from", condition())
    said = (WORK / "log/hami-device-plugin.log").read_text()
    check("does not tell of itself" not in said, "containerd has told whether it takes CDI devices", said[-500:])
    namespace = new_namespace("driver")
    make_nodes(cards)
    (FOLDER / "nvidia.yaml").write_text(toolkit(cards))
    try:
        (FOLDER / "nvidia.yaml").rename(SPEC)
        check(wait_until(lambda: condition()[:2] == ("True", "ToolkitSpecification"), 20), "when the toolkit has written its specification that is said", condition())
        check_pods(namespace, cards)

        SPEC.write_text("kind: nvidia.com/gpu\ndevices: none\n")
        create(namespace, slice_pod("broken", 1000, 10))
        said = lambda: [e for e in events(namespace, "broken") if f"{SPEC}:2:10: devices: not a list" in e.get("message", "")]
        check(wait_until(said, 20), "a malformed one is named in the pod's events", events(namespace, "broken"))
        SPEC.write_text(toolkit(cards))
        check(wait_running(namespace, ["broken"], 90) is not None, "and when it is mended the pod runs")
    finally:
        SPEC.unlink(missing_ok=True)
    check(wait_until(lambda: condition()[:2] == ("True", "Simulated"), 20), "and when it is gone that is said", condition())
    finish()


if __name__ == "__main__":
    main()

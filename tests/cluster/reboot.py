#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The node loses its power and starts again: what was in memory is gone, what was on disk is there.

Every process of the node dies at once, /run is empty, the boot is another. The control plane is elsewhere.
"""

import os
import shutil
import signal

from support import *

ON_THE_NODE = ["kubelet", "containerd", "hami-device-plugin", "hami-vgpu-monitor"]
BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")


@contextlib.contextmanager
def another_boot():
    """kubelet and libvgpu.so read another id of the boot meanwhile."""
    made = WORK / "boot_id"
    made.write_text("0b7e5a3c-7c1f-4b6e-9d2a-0123456789ab\n")
    host.run("mount", "--bind", made, BOOT_ID)
    try:
        yield
    finally:
        host.run("umount", "-l", BOOT_ID)


def lose_power():
    """SIGKILL for all at once. What lies in tmpfs on a real node is taken away."""
    supervisor = host.read_pid("supervisor")
    os.kill(supervisor, signal.SIGSTOP)
    doomed = {host.read_pid(name) for name in ON_THE_NODE} | host.cgroup_pids()
    doomed |= {pid for pid in host.our_processes() if "containerd-shim" in command_of(pid)}
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    gone = wait_until(lambda: not any(host.alive(pid) for pid in doomed), 10)
    host.mounts_remove()
    for folder in (WORK / "containerd/state", host.CDI, pathlib.Path("/run/containerd")):
        for path in folder.iterdir():
            if path.name != ".hami-cluster":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return supervisor if gone else None


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def restarts(namespace, name):
    return sum(s["restartCount"] for s in statuses(get(namespace, name) or {}))


def left_of(uid):
    """What the node has of a pod."""
    places = [*(host.HOOK / "containers").glob("*"), *(host.HOOK / "cards").glob("*/*"), *host.CDI.glob("*.json")]
    return [str(p) for p in places if uid in p.name or (p.suffix == ".json" and uid in p.read_text())]


def check_back(namespace, name, mib, held):
    """It runs again, has its share, and may take of it what it does not hold."""
    back = lambda: restarts(namespace, name) > 0 and is_running(get(namespace, name))
    if not check(wait_until(back, 90, 0.2), f"{name} runs again", why(namespace, name)):
        return
    check_share(namespace, name, mib)
    for more, wanted in ((mib - held - 200, 0), (mib - held, 2)):
        code, out, err = execute(namespace, name, "/bin/slice", "--hold", str(more))
        check(code == 0 and json.loads(out)["hold"] == wanted, f"{name}: {more} MiB beside its {held} answer {wanted}", code, out, err)


def resident(name, mib, held):
    return slice_pod(name, mib, 10, command=("/bin/slice", "--hold", str(held), "--stay"), restartPolicy="Always")


def restart_the_node(namespace):
    """All that the node had in memory is lost, and a pod is deleted before it is back."""
    create(namespace, resident("small", 3000, 1000))
    create(namespace, resident("large", 20000, 15000))
    create(namespace, resident("deleted", 2000, 500))
    create(namespace, slice_pod("ended", 1000, 10, command=("/bin/slice",)))
    if not check(wait_running(namespace, ["small", "large", "deleted"]) is not None, "pods with shares run"):
        finish()
    check(wait_until(lambda: phase(namespace, "ended") == "Succeeded", 30), "one has ended")
    kept = ("small", "large", "ended")
    deleted = get(namespace, "deleted")["metadata"]["uid"]
    before = {name: annotation(get(namespace, name), ALLOCATED) for name in kept}

    supervisor = lose_power()
    check(supervisor, "everything on the node has died")
    check(wait_until(lambda: not any(machine_use().values()), 20), "nothing is on the cards", machine_use())
    api.delete(pods_path(namespace, "deleted"), grace=0)
    os.kill(supervisor, signal.SIGCONT)

    check(wait_until(registered, 60, 0.2), "the node has registered its cards again", programs.last_lines("hami-device-plugin"))
    check_back(namespace, "small", 3000, 1000)
    check_back(namespace, "large", 20000, 15000)
    check_equal(phase(namespace, "ended"), "Succeeded", "what had ended has ended")
    check(wait_until(lambda: not left_of(deleted), 60, 0.5), "nothing is left of the pod that was deleted meanwhile", left_of(deleted))
    check_equal({name: annotation(get(namespace, name), ALLOCATED) for name in kept}, before, "nobody was given anything else")
    create(namespace, slice_pod("new", 4000, 10))
    if check(wait_running(namespace, ["new"]) is not None, "a new pod runs"):
        check_share(namespace, "new", 4000)
    reported = lambda: {
        dict(labels).get("pod")
        for name, labels in samples(programs.MONITOR_METRICS)
        if name == "hami_vgpu_memory_limit_bytes"
    }
    wanted = {"small", "large", "new"}
    check(wait_until(lambda: reported() & {*wanted, "deleted"} == wanted, 20, 0.5), "the monitor reports those who are there", reported())


def plugin_comes_late(namespace):
    """kubelet fails pods with devices that it admits before their plugin is there: a controller makes others."""
    supervisor = lose_power()
    late = WORK / "programs/hami-device-plugin.json"
    late.rename(late.with_suffix(".held"))
    os.kill(supervisor, signal.SIGCONT)
    names = ("small", "large", "new")
    failed = lambda: [name for name in names if phase(namespace, name) == "Failed"]
    wait_until(lambda: len(failed()) == len(names), 30, 0.5)
    late.with_suffix(".held").rename(late)
    check(wait_until(registered, 60, 0.2), "the plugin comes late", programs.last_lines("hami-device-plugin"))
    print(f"      kubelet failed {failed()}")
    for name in failed():
        delete(namespace, name)
        create(namespace, slice_pod(name, CARD_MIB // 2, 50))
    if check(wait_running(namespace, names, 90) is not None, "all run, or others in their place: their devices were given back"):
        for name in names:
            mib = allocated(get(namespace, name))[0][0][2]
            check_share(namespace, name, mib)


def main():
    need()
    use_machine(2)
    namespace = new_namespace("reboot")
    with another_boot():
        restart_the_node(namespace)
    plugin_comes_late(namespace)
    finish()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The API server is away and the device plugin was killed: a container that ends is started again, with its share."""

import pathlib
import signal

from support import *


def processes(uid):
    """Of a pod's container, by the variable that only it has."""
    mark, found = f"HAMI_POD_UID={uid}".encode(), set()
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
        except OSError:
            pass
    return {pid for pid in found if host.alive(pid)}


def main():
    need()
    use_machine(1)
    namespace = new_namespace("alone")
    create(namespace, pod("restless", container(limits=share(1, 3000, 10)), restartPolicy="Always"))
    if not check(wait_running(namespace, ["restless"]) is not None, "a pod with a share runs"):
        finish()
    uid = get(namespace, "restless")["metadata"]["uid"]
    check_share(namespace, "restless", 3000)
    first = processes(uid)
    with held("kube-apiserver"):
        check(wait_until(lambda: not reachable(), 20), "the API server goes")
        gone = programs.kill("hami-device-plugin")
        check(programs.back("hami-device-plugin", gone), "and the device plugin is killed, and comes back")
        begun = time.monotonic()
        for pid in first:
            host.os.kill(pid, signal.SIGKILL)
        again = wait_until(lambda: processes(uid) - first, 60, 0.1)
        check(again, "the container is started again, without an API server", programs.last_lines("hami-device-plugin"))
        print(f"      after {time.monotonic() - begun:.1f} s")
    check(wait_until(reachable, 60), "the API server is back")
    check(wait_until(lambda: any(s["restartCount"] for s in statuses(get(namespace, "restless"))), 60, 0.2), "and learns of it")
    check_share(namespace, "restless", 3000)
    check(delete(namespace, "restless", 60), "it goes")
    finish()


if __name__ == "__main__":
    main()

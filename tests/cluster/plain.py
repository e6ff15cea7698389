#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cluster itself, with pods that ask for nothing of ours."""

from support import *


def main():
    namespace = new_namespace("plain")
    create(namespace, pod("shell", container(command=["sh", "-c", "echo here; exec sleep 1000"])))
    check(wait_running(namespace, ["shell"]) is not None, "a pod runs")
    check(wait_until(lambda: logs(namespace, "shell") == "here\n", 30), "its log can be read")
    check_equal(execute(namespace, "shell", "id", "-u"), (0, "0\n", ""), "a command runs in it")
    with audited() as requests:
        api.get(f"/api/v1/nodes/{NODE}")
    check(("admin", "get", "nodes", "") in requests, "requests are on record by user", requests)

    gone = programs.kill("kube-controller-manager")
    check(programs.back("kube-controller-manager", gone), "a killed program is started again")
    check(delete(namespace, "shell"), "a deleted pod is gone")

    shown = subprocess.run([host.HERE / "cluster", "env"], stdout=subprocess.PIPE, text=True, check=True).stdout
    script = shown + "kubectl get nodes -o name"
    listed = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, text=True, check=False).stdout
    check_equal(listed, f"node/{NODE}\n", "`cluster env` makes a shell ready to use it")
    finish()


if __name__ == "__main__":
    main()

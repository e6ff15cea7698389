#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests to the API for each pod, counted from the audit log by user: one write of the scheduler's, one of the plugin's;
and the memory that each program takes for it."""

import collections

from support import *

PODS = 10
# What each may take for itself on so small a cluster: the node's programs anywhere.
PRIVATE_MIB = {"hami-scheduler": 16, "hami-device-plugin": 10, "hami-vgpu-monitor": 10}
READS = {"get", "list"}
WRITES = {"create", "update", "patch", "delete"}


def count(requests, user, verbs):
    # What the scheduler may is asked every half minute, however many pods come, and stored nowhere.
    hits = [r[1:] for r in requests if r[0] == account(user) and r[1] in verbs and r[2] not in ("events", "selfsubjectaccessreviews")]
    return collections.Counter(hits)


def check_memory():
    for name, most in PRIVATE_MIB.items():
        used = private_kib(host.read_pid(name)) / 1024
        check(used <= most, f"{name} takes {used:.1f} MiB for itself", f"bound {most}")


def main():
    need()
    use_machine(1)
    namespace = new_namespace("requests")
    names = [f"counted-{i}" for i in range(PODS)]
    with audited() as requests:
        for name in names:
            create(namespace, slice_pod(name, 1000, 5))
            check(wait_running(namespace, [name]) is not None, f"{name} runs")
    for user, writes in (("hami-scheduler", {("create", "pods", "binding"): PODS}), ("hami-device-plugin", {("patch", "pods", ""): PODS})):
        check_equal(dict(count(requests, user, WRITES)), writes, f"{user} writes once for each pod")
        # Whether it leads is looked at once a second, however many pods come.
        reads = {what: number for what, number in count(requests, user, READS).items() if what[1] != "leases"}
        check_equal(reads, {}, f"{user} reads nothing for it")
    # It writes its condition of the Node now and then, whatever the pods do.
    asked = {what: number for what, number in count(requests, "hami-vgpu-monitor", WRITES | READS).items() if what != ("patch", "nodes", "status") or number > 1}
    check_equal(asked, {}, "hami-vgpu-monitor asks nothing for it")
    silent = [r for r in requests if r[0] == account("hami-scheduler") and r[2] == "events"]
    check_equal(silent, [], "pods that fit have no events of ours")
    check_memory()
    finish()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pods per second through a real control plane, with a share of a card and without, in turns; private memory of ours.

On the test cluster, which is brought up for it unless it is there. The nodes are made up: no kubelet runs on them, so what
is measured ends when a pod is bound.

usage: throughput.py [--build DIRECTORY] [--nodes N] [--pods N] [--rounds N]
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import sys
import time

import cluster

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(SOURCE / "tests/cluster"), str(SOURCE / "tests")]

LABEL = "bench.hami.io/made-up"
CARDS, CARD_MIB = 8, 81920
CALLERS = 8  # at once
WATCHED = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kubelet", "hami-scheduler", "hami-device-plugin", "hami-vgpu-monitor")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def make_node(number):
    name = f"made-up-{number}"
    cards = [
        {
            "id": f"GPU-{number:08x}-{card}", "index": card, "count": 10, "devmem": CARD_MIB, "devcore": 100, "custominfo": {"lock": "none"},
            "type": "NVIDIA A100-SXM4-80GB", "numa": card // 4, "mode": "hami-core", "health": True,
        }
        for card in range(CARDS)
    ]  # fmt: skip
    register = {programs.REGISTER: json.dumps(cards)}
    support.api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {LABEL: "yes"}, "annotations": register}})
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "1000", programs.RESOURCE: str(10 * CARDS)}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    support.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def make_pods(namespace, count, limits):
    """Created as fast as the API server takes them; the time until the last is bound."""
    spec = {"nodeSelector": {LABEL: "yes"}, "tolerations": [{"operator": "Exists"}]}
    manifests = [support.pod(f"p{n}", support.container(limits=limits), **spec) for n in range(count)]

    def one(manifest):
        kube.Api().create(support.pods_path(namespace), manifest)

    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(one, manifests))
    while True:
        left = support.api.get(support.pods_path(namespace), fieldSelector="spec.nodeName=", limit=1)["items"]
        if not left:
            return time.monotonic() - begun
        if time.monotonic() - begun > 300:
            raise SystemExit(f"bench: {left[0]['metadata']['name']} is not bound: {left[0]['status']}")
        time.sleep(0.05)


def processor_ms():
    """What each program has had of the processor since it was started."""
    spent = {}
    for name in WATCHED:
        pid = host.read_pid(name)
        if pid:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            spent[name] = 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def measure(name, count, limits, spent):
    namespace = support.new_namespace(name)
    before = processor_ms()
    seconds = make_pods(namespace, count, limits)
    for program, ms in processor_ms().items():
        spent.setdefault(program, []).append((ms - before[program]) / count)
    for thing in support.api.get(support.pods_path(namespace))["items"]:
        support.api.delete(support.pods_path(namespace, thing["metadata"]["name"]), grace=0)
    return count / seconds


def compare(options):
    for number in range(options.nodes):
        make_node(number)
    rates, spent = {"without": [], "with": []}, {"without": {}, "with": {}}
    for turn in range(options.rounds):
        for which, limits in (("without", None), ("with", support.share(1, 3000, 5))):
            rates[which].append(measure(f"bench-{which}-{turn}", options.pods, limits, spent[which]))
    without, given = statistics.median(rates["without"]), statistics.median(rates["with"])
    print(f"{options.nodes} made-up nodes x {CARDS} cards, {options.pods} pods, medians of {options.rounds} turns")
    print(f"  pods per second without a share {without:.1f}, with {given:.1f}: {100 * given / without:.0f} %   target >= 90 %")
    print("  of the processor, ms a pod: without, with")
    for name in WATCHED:
        print(f"    {name:20} {statistics.median(spent['without'][name]):6.2f} {statistics.median(spent['with'][name]):6.2f}")
    for name in programs.OURS:
        pid = host.read_pid(name)
        if pid:
            print(f"  {name:20} private memory {harness.private_kib(pid) / 1024:.1f} MiB")


def main():
    global harness, host, kube, programs, support
    options = arguments()
    os.environ["HAMI_BUILD"] = str(options.build.resolve())
    with cluster.up() as there:
        if not there:
            return
        import harness
        import host
        import kube
        import programs
        import support

        try:
            compare(options)
        finally:
            for number in range(options.nodes):
                support.api.delete(f"/api/v1/nodes/made-up-{number}")


main()

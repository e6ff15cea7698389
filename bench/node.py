#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hami-device-plugin: what it adds to the start of a container, and its memory, with 80 containers on the node.

First what kubelet waits for, by its own calls (Allocate and PreStartContainer); then, on the test cluster, which is brought up for it
unless it is there, pods with a share and without, in turns: from the moment that a pod is bound until it runs.

usage: node.py [--build DIRECTORY] [--containers N] [--pods N]
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import cluster

SOURCE = pathlib.Path(__file__).resolve().parent.parent
TARGET_MS, TARGET_MIB = 20, 10
CARDS, TASKS = 8, 10


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--containers", type=int, default=CARDS * TASKS)
    parser.add_argument("--pods", type=int, default=25)
    return parser.parse_args()


options = arguments()
os.environ["HAMI_BUILD"] = str(options.build.resolve())
sys.path[:0] = [str(SOURCE / "tests/node"), str(SOURCE / "tests")]


def calls():
    """Of kubelet, one container after another, until the node is full."""
    import plugin as node_test

    node = node_test.Node(gpus=CARDS)
    node.kubelet.connect()
    took = []
    for number in range(options.containers):
        uuid, task = node.uuids[number % CARDS], number // CARDS
        pod = node.show(node.pod(f"p{number}", "main", gives=[[(uuid, 1000, 10)]]))
        time.sleep(0.02)  # kubelet makes the pod's sandbox in between, which takes longer
        began = time.monotonic()
        status, why, _ = node.run_container(pod, "main", [f"{uuid}::{task}"])
        took.append((time.monotonic() - began) * 1000)
        if status != "OK":
            raise SystemExit(f"bench: container {number} does not start: {why}")
    memory = node_test.private_kib(node.plugin.pid) / 1024
    node.plugin.terminate()
    node.plugin.wait(30)
    node.kubelet.stop()
    node.api.close()
    took.sort()
    print(f"{options.containers} containers, one after another: Allocate and PreStartContainer")
    print(f"  p50 {statistics.median(took):.1f} ms, p99 {took[len(took) * 99 // 100]:.1f} ms   target <= {TARGET_MS}")
    print(f"  private memory {memory:.1f} MiB   target <= {TARGET_MIB}")


def until_running_ms(support, namespace, name, limits):
    """From bound to running, as the API server tells it."""
    support.create(namespace, support.pod(name, support.container(command=("sleep", "1000"), limits=limits)))
    began, bound = time.monotonic(), None
    while True:
        pod = support.get(namespace, name)
        now = time.monotonic()
        if bound is None and pod["spec"].get("nodeName"):
            bound = now
        if pod["status"].get("phase") == "Running":
            break
        if now - began > 60 or pod["status"].get("phase") == "Failed":
            raise SystemExit(f"bench: {name} does not run: {pod['status']}")
        time.sleep(0.002)
    support.delete(namespace, name)
    return (now - bound) * 1000


def pods():
    with cluster.up() as there:
        if not there:
            return
        import support

        namespace = support.new_namespace("bench-start")
        took = {"without": [], "with": []}
        for number in range(options.pods + 1):
            for which, limits in (("without", None), ("with", support.share(1, 3000, 5))):
                took[which].append(until_running_ms(support, namespace, f"{which}-{number}", limits))
    without, given = (statistics.median(took[which][1:]) for which in took)
    print(f"{options.pods} pods of each kind in turns, one at a time, from bound to running, medians")
    print(f"  without a share {without:.0f} ms, with {given:.0f} ms: {given - without:+.0f} ms   target <= {TARGET_MS}")


def main():
    calls()
    pods()


if __name__ == "__main__":
    main()

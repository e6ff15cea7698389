#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""300 pods of a mix as in production through the real kube-scheduler, with the policy scarcity, onto nodes that are made up: so
much is allocated as hamictl simulate says, within a point; a card is two thirds of one."""

import contextlib
import random
import tempfile

from support import *

LABEL = "packing.hami.io/made-up"
CARD_MIB = 32768
NODES = [(14, 8, 96, "384Gi"), (15, 2, 104, "512Gi"), (6, 2, 16, "120Gi")]  # so many, cards, processors, memory
MIX = [  # weight, cards, percent of each, processors in thousandths
    (14, 1, 81, 3152), (10, 1, 47, 11908), (4, 1, 32, 4000), (3, 1, 65, 11908), (3, 1, 23, 8000), (2, 1, 16, 4000),
    (8, 1, 100, 3152), (16, 1, 100, 11300), (8, 1, 100, 12000), (4, 1, 100, 18708), (1, 2, 100, 23800), (1, 4, 100, 47600),
]  # fmt: skip
PODS = 300


def make_node(name, cards, processors, memory):
    register = [
        {
            "id": f"GPU-{name}-{card}", "index": card, "count": 10, "devmem": CARD_MIB, "devcore": 100, "custominfo": {"lock": "none"},
            "type": "NVIDIA Made-Up", "numa": 0, "mode": "hami-core", "health": True,
        }
        for card in range(cards)
    ]  # fmt: skip
    api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {LABEL: "yes"}, "annotations": {programs.REGISTER: json.dumps(register)}}})
    amounts = {"cpu": str(processors), "memory": memory, "pods": "250", programs.RESOURCE: str(10 * cards)}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


@contextlib.contextmanager
def made_up_nodes():
    shapes = [shape[1:] for shape in NODES for _ in range(shape[0])]
    random.shuffle(shapes)
    names = [f"made-up-{number:02}" for number in range(len(shapes))]
    try:
        for name, shape in zip(names, shapes):
            make_node(name, *shape)
        yield names, sum(shape[0] for shape in shapes)
    finally:
        for name in names:
            api.delete(f"/api/v1/nodes/{name}")


def draw_pods():
    drawn = random.choices(MIX, [row[0] for row in MIX], k=PODS)
    for number, (_, cards, percent, cpu) in enumerate(drawn):
        limits = {GPU: str(cards), "nvidia.com/gpumem-percentage": str(percent), CORES: str(percent), "cpu": f"{cpu}m", "memory": "4Gi"}
        yield pod(f"p{number:03}", container(limits=limits), nodeSelector={LABEL: "yes"}, tolerations=[{"operator": "Exists"}])


def simulate(names, manifests, policies):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "objects.json"
        nodes = [api.get(f"/api/v1/nodes/{name}") | {"kind": "Node"} for name in names]
        path.write_text(json.dumps({"kind": "List", "items": [*nodes, *manifests]}))
        words = [programs.HAMICTL, "simulate", "--json", "--in-order", "--policy", policies, "--device-config", WORK / "device-config.yaml", path]
        return {result["policy"]: result for result in json.loads(host.output(*words))}


def is_judged(thing):
    conditions = thing.get("status", {}).get("conditions", [])
    return thing["spec"].get("nodeName") or any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def await_decisions(namespace):
    """A scheduler that has started holds back until the binds of the one before it have come; a pod that it turns away then is
    asked about again later, and so in another order than the simulation's."""
    create(namespace, pod("first", container(limits={GPU: "1"}), nodeSelector={LABEL: "yes"}, tolerations=[{"operator": "Exists"}]))
    bound = lambda: api.get(pods_path(namespace, "first"))["spec"].get("nodeName")
    check(wait_until(bound, 60, 0.1), "hami-scheduler decides")
    api.delete(pods_path(namespace, "first"), grace=0)


def allocated(things):
    """In cards."""
    total = 0
    for thing in things:
        text = thing["metadata"].get("annotations", {}).get(ALLOCATED, "") if thing["spec"].get("nodeName") else ""
        for piece in text.replace(";", "").split(":"):
            if piece:
                _, _, memory, cores = piece.split(",")
                total += max(int(memory) / CARD_MIB, int(cores) / 100)
    return total


def main():
    need("hami-scheduler")
    random.seed(13)
    namespace = new_namespace("packing")
    with made_up_nodes() as (names, cards), scheduler_with("--node-scheduler-policy=scarcity"):
        await_decisions(namespace)
        manifests = list(draw_pods())
        said = simulate(names, manifests, "scarcity,binpack,spread")
        for manifest in manifests:
            create(namespace, manifest)
        check(wait_until(lambda: all(map(is_judged, pods(namespace))), 300, 0.5), "kube-scheduler judges every pod")
        things = pods(namespace)
        percent = 100 * allocated(things) / cards
        print(f"{percent:.2f} % of {cards} cards are allocated; the simulation says "
              + ", ".join(f"{policy} {100 * result['allocated']:.2f} %" for policy, result in said.items()))
        check(abs(percent - 100 * said["scarcity"]["allocated"]) <= 1, "about as much is allocated as the simulation says")
        bound = sum(1 for thing in things if thing["spec"].get("nodeName"))
        check(abs(bound - said["scarcity"]["placed"]) <= PODS / 30, "and about as many pods are placed", bound, said["scarcity"])
        for thing in things:
            api.delete(pods_path(namespace, thing["metadata"]["name"]), grace=0)
    finish()


main()

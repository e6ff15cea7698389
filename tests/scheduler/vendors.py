#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vendors whose agents find a pod by its annotations: from the webhook to the Binding, and what a node's own agent does to it."""

import base64

from support import *

CONFIGURATION = """
nvidia: {resourceCountName: nvidia.com/gpu, resourceMemoryName: nvidia.com/gpumem, resourceCoreName: nvidia.com/gpucores}
mthreads: {resourceCountName: mthreads.com/vgpu, resourceMemoryName: mthreads.com/sgpu-memory, resourceCoreName: mthreads.com/sgpu-core}
enflame: {resourceNameGCU: enflame.com/gcu, resourceNameDRSGCU: enflame.com/drs-gcu}
"""
MTHREADS, ENFLAME = "hami.io/mthreads-vgpu-devices-allocated", "hami.io/enflame-vgpu-devices-allocated"
CAPACITY = {"devices": [{"index": "0", "minor": "4", "capacity": 6}], "profiles": {"1g.7gb": "0", "3g.21gb": "1", "6g.42gb": "2"}}


def agents_node(name, amounts, annotations=None, alive=True):
    """As its agent and kubelet make it."""
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "annotations": annotations or {}},
        "status": {
            "capacity": amounts, "allocatable": amounts if alive else dict.fromkeys(amounts, "0"),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def mthreads_node(alive=True, cards=2):
    return agents_node("mt", {"mthreads.com/sgpu-core": str(16 * cards), "mthreads.com/sgpu-memory": str(96 * cards)}, alive=alive)


def enflame_node(alive=True, capacity=CAPACITY):
    return agents_node("gcu", {"enflame.com/drs-gcu": "6"}, {"enflame.com/gcu-drs-capacity": json.dumps(capacity)}, alive)


def asking(limits):
    thing = pod(None)
    thing["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
    return thing


def admitted(scheduler, thing):
    """What the webhook adds."""
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "r", "namespace": "ns", "object": thing}}
    response = json.loads(scheduler.ask("POST", "/webhook", body)[1])["response"]
    check(response["allowed"], "a pod is admitted", response)
    return json.loads(base64.b64decode(response.get("patch", "W10=")))


def bound(api, scheduler, limits, name):
    """The annotations of the Binding of a pod that asks for this, and whose containers start then: the next one's turn."""
    thing = api.set(PODS, asking(limits))
    check_equal(place(scheduler, thing, [name]), (name, ""), f"{limits} is placed")
    (binding,) = api.seen("POST", f"{thing['metadata']['name']}/binding")
    start_containers(api, thing)
    return binding[2]["metadata"]["annotations"]


def all_go(api, scheduler):
    for key in list(api.objects[PODS]):
        api.delete(PODS, key)
    check(wait_until(lambda: not scheduler.view()["pods"]), "pods that are gone hold nothing")


def test_moore_threads(api, scheduler):
    share = {"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "32", "mthreads.com/sgpu-core": "8"}
    patch = admitted(scheduler, asking({"mthreads.com/vgpu": "2"}))
    wanted = [
        ("/spec/containers/0/resources/limits/mthreads.com~1sgpu-core", "32"),
        ("/spec/containers/0/resources/limits/mthreads.com~1sgpu-memory", "192"),
        ("/metadata/annotations", {"mthreads.com/request-gpu-num": "2"}),
        ("/spec/schedulerName", "hami-scheduler"),
    ]
    check_equal(sorted((step["path"], step["value"]) for step in patch), sorted(wanted), "two cards are asked for whole")

    notes = [bound(api, scheduler, share, "mt") for _ in range(4)]
    times = [int(n["mthreads.com/predicate-time"]) for n in notes]
    check(all(a < b for a, b in zip(times, times[1:])), "the agent takes pods in the order of their binds", times)
    check(abs(times[0] / 1e9 - time.time()) < 60, "by nanoseconds", times)
    check_equal({n["mthreads.com/predicate-node"] for n in notes}, {"mt"}, "it is told the node")
    cards = [(n[MTHREADS], n["mthreads.com/gpu-index"]) for n in notes]
    check_equal(sorted(cards), sorted([(f"mt-mthreads-{i},Mthreads,16384,8:;", str(i)) for i in (0, 1, 0, 1)]), "and the card")
    check(not any("to-allocate" in key for n in notes for key in n), "nothing is left to be handed over", notes)
    check(not scheduler.filter(asking(share), ["mt"])["NodeNames"], "a card has no more cores than 16")
    check_equal(api.seen("PATCH"), [], "nothing is written but Bindings")
    all_go(api, scheduler)


def test_an_instance_of_enflames(api, scheduler):
    notes = [bound(api, scheduler, {"enflame.com/drs-gcu": "3"}, "gcu") for _ in range(2)]
    check_equal({n[ENFLAME] for n in notes}, {"gcu-enflame-drs-0,Enflame,21504,50:;"}, "a card is cut in two")
    said = {key: notes[0][key] for key in notes[0] if key.startswith("enflame.com/") and not key.endswith("-time")}
    wanted = {"gcu-assigned": "false", "gcu-assigned-id": "0", "gcu-assigned-index": "0", "gcu-assigned-minor": "4", "gcu-request-size": "3"}
    check_equal(said, {f"enflame.com/{key}": value for key, value in wanted.items()}, "its agent is told the card")
    wanted = {"main": {"allocated": False, "request": 3, "profileID": "1", "profileName": "3g.21gb"}}
    check_equal(json.loads(notes[0]["assigned-containers"]), wanted, "and the profile")
    times = [int(n["enflame.com/gcu-assigned-time"]) for n in notes]
    check(times[0] < times[1], "it takes pods in the order of their binds", times)
    check(not scheduler.filter(asking({"enflame.com/drs-gcu": "1"}), ["gcu"])["NodeNames"], "there is no seventh slice")
    all_go(api, scheduler)


def test_a_restart_knows_what_was_given(api, scheduler):
    bound(api, scheduler, {"enflame.com/drs-gcu": "6"}, "gcu")
    bound(api, scheduler, {"mthreads.com/vgpu": "2", "mthreads.com/sgpu-memory": "192", "mthreads.com/sgpu-core": "32"}, "mt")
    before = scheduler.view()["nodes"]
    scheduler.kill_and_restart()
    check_equal(scheduler.view()["nodes"], before, "after a restart the cards have what they had")
    all_go(api, scheduler)


def test_an_agent_that_dies(api, scheduler):
    share = {"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "2"}
    for name, make, limits in (("mt", mthreads_node, share), ("gcu", enflame_node, {"enflame.com/drs-gcu": "1"})):
        thing = asking(limits)
        api.set(NODES, make(alive=False))
        gone = wait_until(lambda thing=thing, name=name: not scheduler.filter(thing, [name])["NodeNames"])
        check(gone, f"{name}: without its agent a node's devices are not given out")
        api.set(NODES, make())
        back = wait_until(lambda thing=thing, name=name: scheduler.filter(thing, [name])["NodeNames"] == [name])
        check(back, f"{name}: with it they are")


def test_cards_that_come_and_go(api, scheduler):
    def cards():
        return {n["name"]: len(n["devices"]) for n in scheduler.view()["nodes"]}

    api.set(NODES, mthreads_node(cards=4))
    check(wait_until(lambda: cards().get("mt") == 4), "cards that were added are seen", cards())
    for garbage in ("bad", "[null]", {"devices": [], "profiles": {}}, {"devices": "x" * 10000}):
        api.set(NODES, enflame_node(capacity=garbage))
        check(wait_until(lambda: not cards().get("gcu")), "of a registration that is none no card is left", cards())
    api.set(NODES, enflame_node())
    check(wait_until(lambda: cards().get("gcu") == 1), "the next one is read", cards())


def simulated(config, objects, things):
    """Where hamictl says that each pod would go, from what the scheduler shows."""
    waiting = scratch / "waiting.json"
    waiting.write_text(json.dumps({"items": [{"kind": "Pod", **thing} for thing in things]}))
    ended = subprocess.run(
        [BUILD / "src/ctl/hamictl", "simulate", "--json", "-c", config, "-", waiting], input=objects, text=True, capture_output=True, timeout=60
    )  # fmt: skip
    check_equal((ended.returncode, ended.stderr), (0, ""), "hamictl reads what the scheduler shows")
    return {answer["name"]: answer["node"] for answer in json.loads(ended.stdout)}


def test_what_is_shown_decides_alike(api, scheduler):
    """What is bound and what is reserved of three vendors, as objects, through hamictl."""
    names, gcu = ["mt", "gcu", "node-1"], {"enflame.com/drs-gcu": "6"}
    all_go(api, scheduler)
    api.set(NODES, mthreads_node())
    api.set(NODES, node("node-1"))
    cards = lambda: {n["name"]: len(n["devices"]) for n in scheduler.view()["nodes"]}
    check(wait_until(lambda: cards() == {"mt": 2, "gcu": 1, "node-1": 1}), "the three nodes are seen", cards())
    bound(api, scheduler, {"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "64", "mthreads.com/sgpu-core": "8"}, "mt")
    reserved = [api.set(PODS, asking(gcu)), api.set(PODS, pod(CARD_MIB - 1000))]
    for thing in reserved:
        check(scheduler.filter(thing, names)["NodeNames"], "what is left is reserved", thing)
    check_equal(len(scheduler.view()["reserved"]), 2, "nothing of it is bound yet")
    status, objects = scheduler.ask("GET", "/debug/objects")
    check_equal((status, {o["kind"] for o in json.loads(objects)["items"]}), (200, {"Node", "Pod"}), "it is shown")
    for limits, wanted in (
        ({"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "64", "mthreads.com/sgpu-core": "8"}, "mt"),
        ({"mthreads.com/vgpu": "2", "mthreads.com/sgpu-memory": "192"}, None),
        ({"enflame.com/drs-gcu": "1"}, None),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}, "node-1"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1001"}, None),
    ):
        thing = asking(limits)
        here = (scheduler.filter(thing, names)["NodeNames"] or [None])[0]
        there = simulated(scratch / "device-config.yaml", objects, [thing])
        check_equal((here, there), (wanted, {thing["metadata"]["name"]: wanted}), f"{limits} here and there")
        give_back(scheduler, thing, names)
    for thing in reserved:
        give_back(scheduler, thing, names)
    all_go(api, scheduler)
    api.delete(NODES, "node-1")


def main():
    api = Api()
    config = scratch / "device-config.yaml"
    config.write_text(CONFIGURATION)
    api.set(NODES, mthreads_node())
    api.set(NODES, enflame_node())
    scheduler = Scheduler(api, config=config)
    run_each(
        api, scheduler, test_moore_threads, test_an_instance_of_enflames, test_a_restart_knows_what_was_given,
        test_what_is_shown_decides_alike, test_an_agent_that_dies, test_cards_that_come_and_go,
    )  # fmt: skip
    scheduler.end()
    finish()


main()

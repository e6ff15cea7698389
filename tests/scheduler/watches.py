#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the scheduler knows of nodes and pods, while they change, are nonsense, and the API server forgets or is away."""

from support import *


def cards(scheduler, name):
    """The devices of a node, or why it has none; None when it is not known."""
    for one in scheduler.view()["nodes"]:
        if one["name"] == name:
            return one.get("absent") or [d["uuid"] for d in one["devices"]]
    return None


def becomes(scheduler, name, wanted, sentence):
    wait_until(lambda: cards(scheduler, name) == wanted)
    check_equal(cards(scheduler, name), wanted, sentence)


def placed(name, text, number, namespace="ns", **more):
    """A pod that is bound already."""
    thing = pod(name=f"placed-{number}", namespace=namespace)
    thing["metadata"]["annotations"] = {ALLOCATED: text, ON_NODE: name}
    thing["spec"]["nodeName"] = name
    thing["status"]["phase"] = "Running"
    thing["metadata"].update(more)
    return thing


def test_nodes_change(api, scheduler):
    check_equal(cards(scheduler, "late"), None, "a node that is not there is not known")
    thing = node("late")
    api.set(NODES, thing)
    becomes(scheduler, "late", ["GPU-late-0"], "a node that comes is known")
    api.set(NODES, node("late", 3))
    becomes(scheduler, "late", [f"GPU-late-{i}" for i in range(3)], "so are its new cards")
    away = node("late", 3)
    away["status"]["allocatable"][GPU] = "0"
    api.set(NODES, away)
    becomes(scheduler, "late", "the node's device plugin is away", "one whose plugin is away has none to give")
    register = json.loads(away["metadata"]["annotations"][REGISTER])
    for card in register:
        card["health"] = False
    away["metadata"]["annotations"][REGISTER] = json.dumps(register)
    api.set(NODES, away)
    becomes(scheduler, "late", "none of the node's devices is healthy", "kubelet counts no sick card either")
    sick = node("late", 2)
    register = json.loads(sick["metadata"]["annotations"][REGISTER])
    register[0]["health"] = False
    sick["metadata"]["annotations"][REGISTER] = json.dumps(register)
    api.set(NODES, sick)
    becomes(scheduler, "late", ["GPU-late-0", "GPU-late-1"], "a card that is sick is known")
    answer = scheduler.filter(pod(gpus=2), ["late"])
    check("1/2 CardNotHealth" in failed(answer).get("late", ""), "and not given", answer)
    api.set(NODES, node("late", 2))
    check(wait_until(lambda: fits(scheduler, pod(gpus=2), ["late"])), "until it is well again")
    api.delete(NODES, "late")
    wait_until(lambda: cards(scheduler, "late") in (None, "the node is not known"))
    check_equal(failed(scheduler.filter(pod(), ["late"])), {"late": "the node is not known"}, "a node that goes is gone")


def test_a_node_comes_back(api, scheduler):
    api.set(NODES, node("back"))
    becomes(scheduler, "back", ["GPU-back-0"], "a node is there")
    thing = api.set(PODS, pod(2000))
    check_equal(place(scheduler, thing, ["back"])[0], "back", "a pod is on it")
    check(scheduler.sees_what_is(), "and seen")
    api.delete(NODES, "back")
    wait_until(lambda: cards(scheduler, "back") == "the node is not known")
    api.set(NODES, node("back"))
    becomes(scheduler, "back", ["GPU-back-0"], "it goes and comes again")
    check_equal(used(scheduler.view(), "GPU-back-0")["memory_mib"], 2000, "with what its pod holds")
    api.delete(PODS, f"ns/{thing['metadata']['name']}")
    check(scheduler.sees_what_is(), "until that goes")
    api.delete(NODES, "back")


def test_garbage(api, scheduler):
    whole = node("garbage")["metadata"]["annotations"][REGISTER]
    for text in ("", "[", "{}", "[]", "null", "7", '[{"id":7}]', whole[:-5], "GPU-1,x,y,z:", ":", ",,,,,,:", "[" * 10000, whole.replace("30000", "-1"), "\x01", "é" * 1000):
        thing = node("garbage")
        thing["metadata"]["annotations"][REGISTER] = text
        api.set(NODES, thing)
    api.set(NODES, node("good"))
    becomes(scheduler, "good", ["GPU-good-0"], "nodes of any nonsense leave the others alone")
    check(isinstance(cards(scheduler, "garbage"), (str, list)), "and are known", cards(scheduler, "garbage"))
    api.set(NODES, node("garbage"))
    becomes(scheduler, "garbage", ["GPU-garbage-0"], "and their registration counts again when it can be read")
    texts = (":", ";", ",,,:;", "GPU-good-0,NVIDIA,x,y:;", "GPU-good-0,NVIDIA,-5,-5:;", "GPU-good-0,NVIDIA,99999999999999999999,1:;",
             "GPU-good-0", "GPU-good-0,NVIDIA:;", "unknown,NVIDIA,1000,1:;", "\x00", "a" * 100000)  # fmt: skip
    for number, text in enumerate(texts):
        api.set(PODS, placed("good", text, number))
    api.set(PODS, placed("nowhere", "GPU-x,NVIDIA,100,1:;", 100))
    api.set(PODS, placed("good", "GPU-good-0,NVIDIA,500,5:;", 200))

    def held():
        return next(([d["memory_mib"] for d in p["devices"]] for p in scheduler.view()["pods"] if p["name"] == "placed-200"), None)

    check(wait_until(lambda: held() == [500]), "pods of any nonsense leave the others alone", held())
    for number in [*range(len(texts)), 100, 200]:
        api.delete(PODS, f"ns/placed-{number}")
    check(wait_until(lambda: used(scheduler.view(), "GPU-good-0") == {"slots": 0, "cores": 0, "memory_mib": 0}), "and hold nothing once gone")
    for name in ("garbage", "good"):
        api.delete(NODES, name)


def test_pods_end(api, scheduler):
    for phase in ("Succeeded", "Failed"):
        thing = api.set(PODS, pod(3000))
        check_equal(place(scheduler, thing, ["node-1"])[0], "node-1", "a pod is placed")
        check(scheduler.sees_what_is(), "and seen")
        with api.lock:
            ended = json.loads(json.dumps(api.objects[PODS][f"ns/{thing['metadata']['name']}"]))
        ended["status"]["phase"] = phase
        api.set(PODS, ended)
        check(wait_until(lambda: not scheduler.view()["pods"]), f"{phase}: its devices are free")
        api.delete(PODS, f"ns/{thing['metadata']['name']}")


def test_everything_is_listed_anew(api, scheduler):
    """What came and went while no watch was told."""
    things = [api.set(PODS, pod(1000)) for _ in range(6)]
    for thing in things:
        place(scheduler, thing, ["node-1"])
    api.set(NODES, node("goes"))
    becomes(scheduler, "goes", ["GPU-goes-0"], "a node is there")
    check(scheduler.sees_what_is(), "and pods are")
    reserved = pod(100)
    check_equal(scheduler.filter(reserved, ["node-1"])["NodeNames"], ["node-1"], "and a promise")
    listed = len(api.seen("GET", PODS))
    with api.lock:
        for thing in things[:3]:
            api.set_locked(PODS, f"ns/{thing['metadata']['name']}", None)
        api.set_locked(PODS, "ns/placed-7", placed("node-1", "GPU-node-1-0,NVIDIA,700,7:;", 7))
        api.set_locked(NODES, "goes", None)
        api.set_locked(NODES, "comes", node("comes"))
        api.forget()
    live = set(api.live())
    check(wait_until(lambda: {p["uid"] for p in scheduler.view()["pods"]} == live), "410: it sees what is there now", scheduler.view()["pods"])
    becomes(scheduler, "comes", ["GPU-comes-0"], "and the nodes")
    check(cards(scheduler, "goes") in (None, "the node is not known"), "without those that went")
    check(len(api.seen("GET", PODS)) > listed, "having listed anew")
    check_equal([r["uid"] for r in scheduler.view()["reserved"]], [reserved["metadata"]["uid"]], "a promise is kept through it")
    check_equal(scheduler.ask("GET", "/readyz")[0], 200, "it was ready all the time")
    for key in list(api.objects[PODS]):
        api.delete(PODS, key)
    api.delete(NODES, "comes")
    give_back(scheduler, reserved, ["node-1"])
    check(scheduler.sees_what_is(), "then all is free")


def condition(api, thing):
    key = f"ns/{thing['metadata']['name']}"
    with api.lock:
        conditions = api.objects[PODS][key]["status"].get("conditions", [])
    return next((c for c in conditions if c["type"] == "hami.io/DevicesFreed"), None)


def test_a_pod_is_requeued(api, scheduler):
    """kube-scheduler saw a pod go before we did, was refused from the older view, and asks no more."""
    holder, waiting, other, gone, anew = (api.set(PODS, pod(CARD_MIB)) for _ in range(5))
    told = lambda *things: [t["metadata"]["name"] for t in things for r in api.seen("PATCH") if r[1].split("/")[6] == t["metadata"]["name"]]
    names = [t["metadata"]["name"] for t in (waiting, gone, anew)]
    check_equal(place(scheduler, holder, ["node-1"])[0], "node-1", "a pod has the whole card")
    check(scheduler.sees_what_is(), "as is seen")
    for thing in (anew, gone, other, waiting):
        check_equal(scheduler.filter(thing, ["node-1"])["NodeNames"], None, "there is no room for another")
    api.delete(PODS, f"ns/{gone['metadata']['name']}")
    api.set(PODS, pod(CARD_MIB, name=anew["metadata"]["name"]))
    time.sleep(3.5)
    check_equal(told(waiting, other, gone, anew), [], "while nothing comes free nothing is written")
    api.delete(PODS, f"ns/{holder['metadata']['name']}")
    check(wait_until(lambda: fits(scheduler, other, ["node-1"])), "it goes; one of those that wait is asked about again")
    check(wait_until(lambda: condition(api, waiting), 10), "of another kube-scheduler is told by a condition", scheduler.said()[-1000:])
    print("     ", condition(api, waiting))
    check(wait_until(lambda: told(gone) and told(anew), 10), "one that is gone, or another by now, does no harm")
    check_equal(scheduler.filter(waiting, ["node-1"])["NodeNames"], ["node-1"], "asked about, it is placed")
    time.sleep(3.5)
    check_equal(told(waiting, other, gone, anew), names, "each is told of once")
    check("could not be requeued" not in scheduler.said(), "and none is warned of", scheduler.said()[-1000:])
    check_equal(scheduler.metric("hami_scheduler_reminders_total"), api.patched, "and counted")
    give_back(scheduler, waiting, ["node-1"])
    for thing in (waiting, other, anew):
        api.delete(PODS, f"ns/{thing['metadata']['name']}")


def test_the_question_is_faster_than_the_watch(api, scheduler):
    """A pod goes, and in the same moment another is asked about again, as kube-scheduler does; the news are 2 ms late."""
    rounds = placed_at_once = 0
    while placed_at_once < 3 and rounds < 60:
        rounds += 1
        holder, waiting = (api.set(PODS, pod(CARD_MIB)) for _ in range(2))
        place(scheduler, holder, ["node-1"])
        scheduler.sees_what_is()
        refused = scheduler.filter(waiting, ["node-1"])["NodeNames"] is None
        time.sleep(0.06)  # one waits in so many milliseconds
        api.watch_lag_s = 0.002
        api.delete(PODS, f"ns/{holder['metadata']['name']}")
        placed_at_once += refused and scheduler.filter(waiting, ["node-1"])["NodeNames"] == ["node-1"]
        api.watch_lag_s = 0
        give_back(scheduler, waiting, ["node-1"])
        api.delete(PODS, f"ns/{waiting['metadata']['name']}")
    waits = []
    thing = pod(2 * CARD_MIB)
    for _ in range(10):
        time.sleep(0.06)
        begun = time.monotonic()
        scheduler.filter(thing, ["node-1"])
        waits.append(time.monotonic() - begun)
    check(min(waits[1:]) > 0.004, "whoever is refused again waits for some milliseconds", waits)
    check_equal(placed_at_once, 3, f"it is placed at once, the watch being waited for: 3 times of {rounds}")


def test_the_api_server_is_away(api, scheduler):
    thing = api.set(PODS, pod(1000))
    place(scheduler, thing, ["node-1"])
    check(scheduler.sees_what_is(), "a pod is there")
    api.go_away()
    time.sleep(0.5)
    check_equal(scheduler.ask("GET", "/readyz")[0], 200, "away for a while: it stays ready")
    check_equal(len(scheduler.view()["pods"]), 1, "and knows what it knew")
    held = scheduler.filter(pod(CARD_MIB), ["node-1"])
    check(held["NodeNames"] is None, "what is held is not given")
    with api.lock:
        api.set_locked(PODS, f"ns/{thing['metadata']['name']}", None)
        api.set_locked(NODES, "meanwhile", node("meanwhile"))
    api.come_back()
    check(wait_until(lambda: cards(scheduler, "meanwhile") and not scheduler.view()["pods"], 15), "back: it sees what came and went", scheduler.said()[-1500:])
    api.go_away()
    with api.lock:
        api.set_locked(NODES, "meanwhile", None)
        api.forget()
    api.come_back()
    check(wait_until(lambda: cards(scheduler, "meanwhile") in (None, "the node is not known"), 15), "back, having forgotten: too", scheduler.said()[-1500:])
    for status in (500, 429, 503, 401, 403):
        api.fail(status, 1, "GET", "/nodes")
        api.fail(status, 1, "GET", "/pods")
    api.forget()
    api.set(NODES, node("after"))
    check(wait_until(lambda: cards(scheduler, "after"), 30), "refused with anything, it goes on asking", scheduler.said()[-1500:])
    api.faults.clear()
    api.delete(NODES, "after")


def test_lists_in_pages(streams):
    api = Api(streams=streams)
    for number in range(1100):
        api.set(PODS, placed("node-1", f"GPU-node-1-{number % 8},NVIDIA,1,0:;", number))
    api.set(NODES, node("node-1", 8, count=1000))
    scheduler = Scheduler(api)
    how = "streamed" if streams else "in pages"
    check(scheduler.sees_what_is(), f"a list {how} is complete")
    check_equal(sum(d["used"]["slots"] for n in scheduler.view()["nodes"] for d in n["devices"]), 1100, "and each counts once")
    api.forget()
    time.sleep(0.3)
    check(scheduler.sees_what_is(), f"listed anew {how}, it counts once, too")
    check_equal(sum(d["used"]["slots"] for n in scheduler.view()["nodes"] for d in n["devices"]), 1100, "each")
    scheduler.end()


def test_a_server_that_wants_an_hour(api, scheduler):
    """Retry-After is kept as far as half a minute, and how long nothing was heard is told."""

    def age(resource):
        return scheduler.metric(f'hami_scheduler_watch_age_seconds{{resource="{resource}"}}')

    check(wait_until(lambda: (age("nodes"), age("pods")) == (0, 0)), "watches that are open have no age", age("nodes"), age("pods"))
    api.fail((429, 3000), 2, "GET", "/nodes")
    api.go_away()
    api.come_back()
    begun = time.monotonic()
    check(wait_until(lambda: len([f for f in api.faults if f[2] < 2]), 10), "the watch of nodes is told to wait for 50 minutes")
    api.set(NODES, node("waited"))
    time.sleep(3)
    check(age("nodes") >= 3 and age("pods") == 0, "its age is told, that of the other is not", age("nodes"), age("pods"))
    check_equal(scheduler.ask("GET", "/readyz")[0], 200, "for a while it stays ready")
    check(wait_until(lambda: age("nodes") > 45, 60, 0.2), "told so twice, it is older than 45 s")
    check_equal(scheduler.ask("GET", "/readyz")[0], 503, "then it is not ready")
    check(wait_until(lambda: cards(scheduler, "waited"), 20), "but it goes on asking, and sees what came", scheduler.said()[-1500:])
    taken = time.monotonic() - begun
    check(60 < taken < 80, "after twice half a minute", f"{taken:.1f} s")
    check_equal((scheduler.ask("GET", "/readyz")[0], age("nodes")), (200, 0), "and is ready")
    api.delete(NODES, "waited")


def test_policies():
    """Where nobody is kept from writing annotations, they are held against what runs where and asks for what."""
    every = Api().policies
    for policies, believed in ((every, True), (every[:2], True), (every[1:], False), ([], False)):
        api = Api()
        api.policies = policies
        api.fail(500, method="GET", suffix="/hami-device-plugin")
        for name in ("node-1", "node-2"):
            api.set(NODES, node(name))
        faked = placed("node-1", "GPU-node-1-0,NVIDIA,30000,100:;", "faked")
        faked["spec"]["nodeName"] = "node-2"
        nothing = placed("node-1", "GPU-node-1-0,NVIDIA,30000,100:;", "nothing")
        nothing["spec"] = pod(None)["spec"] | {"nodeName": "node-1"}
        for thing in (faked, nothing, placed("node-1", "GPU-node-1-0,NVIDIA,500,5:;", "honest")):
            api.set(PODS, thing)
        scheduler = Scheduler(api)
        held = used(scheduler.view(), "GPU-node-1-0")["memory_mib"]
        check_equal(held, 60500 if believed else 500, f"with policies {policies} {'all' if believed else 'the honest'} is counted")
        told = re.findall(r"the policy (\S+) of deploy/policy.yaml is not in force, so \w+", scheduler.said())
        check_equal(told, [p for p in every if p not in policies], "and it is said which are missing")
        scheduler.end()
        api.go_away()
    api = Api()
    api.fail("cut", times=1000, method="GET", suffix="/hami-device-plugin")
    scheduler = Scheduler(api, ready=False)
    check_equal(scheduler.ask("GET", "/readyz")[0], 503, "while that can't be read it is not ready")
    check_equal(scheduler.ask("GET", "/healthz")[0], 200, "but there")
    check(wait_until(lambda: api.seen("GET", NODES)), "and the nodes are read meanwhile")
    check_equal(api.seen("GET", PODS), [], "while what it asks of the pods depends on the answer")
    scheduler.end()
    api = Api()
    api.fail(("slow", 5), method="GET", suffix="/hami-device-plugin")
    scheduler = Scheduler(api, ready=False)
    wait_until(lambda: api.seen("GET", "/hami-device-plugin"))
    began = time.monotonic()
    scheduler.end()
    check(time.monotonic() - began < 4, "told to stop, it does not wait for the answer")


def test_nobody_answers_at_the_start():
    """What can't be asked is said as what it is, at once, and nothing is said in the name of a server that is silent."""
    api = Api()
    api.may_patch_nodes = False
    api.go_away()
    scheduler = Scheduler(api, ready=False)
    unreachable = f"the API server http://127.0.0.1:{api.port} can't be reached"
    check(wait_until(lambda: unreachable in scheduler.said(), 2), "that the server can't be reached is said at once", scheduler.said())
    time.sleep(12)
    check_equal((scheduler.said().count("Failed to connect"), scheduler.said().count(unreachable)), (1, 1), "and once", scheduler.said())
    check("may not be patched" not in scheduler.said() and "other-agents" not in scheduler.said(), "nothing is said of rights that nobody told", scheduler.said())
    api.come_back()
    check(wait_until(scheduler.is_ready, 20), "the server is there: it is ready", scheduler.said())
    check("the API server is reached now" in scheduler.said(), "which is said, too", scheduler.said())
    check(wait_until(lambda: "nodes may not be patched" in scheduler.said(), 10), "and what the server says of rights", scheduler.said())
    api.go_away()
    check(wait_until(lambda: scheduler.said().count(unreachable) == 2, 10), "away again: it is said again", scheduler.said())
    scheduler.end()


def test_only_selected_nodes():
    api = Api()
    api.set(NODES, node("in", labels={"gpu": "on"}))
    api.set(NODES, node("out"))
    scheduler = Scheduler(api, "--node-label-selector=gpu=on")
    check_equal([n["name"] for n in scheduler.view()["nodes"]], ["in"], "--node-label-selector: only such nodes are known")
    check_equal(scheduler.filter(pod(), ["in", "out"])["NodeNames"], ["in"], "and chosen")
    api.set(NODES, node("in"))
    check(wait_until(lambda: scheduler.filter(pod(), ["in", "out"])["NodeNames"] is None), "a node that ceases to be one is none")
    scheduler.end()


def main():
    api = Api()
    api.set(NODES, node("node-1"))
    scheduler = Scheduler(api)
    run_each(
        api, scheduler,
        test_nodes_change, test_a_node_comes_back, test_garbage, test_pods_end, test_everything_is_listed_anew,
        test_a_pod_is_requeued, test_the_question_is_faster_than_the_watch, test_the_api_server_is_away,
        test_a_server_that_wants_an_hour,
    )  # fmt: skip
    scheduler.end()
    run_part(test_lists_in_pages, False)
    run_part(test_lists_in_pages, True)
    run_part(test_only_selected_nodes)
    run_part(test_policies)
    run_part(test_nobody_answers_at_the_start)
    finish()


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/filter, /bind and /webhook as kube-scheduler and the API server speak them."""

from support import *


def test_a_pod_is_placed_with_one_write(api, scheduler):
    thing = api.set(PODS, pod(3000, 20))
    before = len(api.requests)
    answer = scheduler.filter(thing, ["node-1", "node-2", "unknown"])
    check_equal(answer["Error"], "", "a filter has no error")
    check_equal(len(answer["NodeNames"]), 1, "it names one node", answer)
    check_equal(sorted(answer), ["Error", "FailedAndUnresolvableNodes", "FailedNodes", "NodeNames", "Nodes"], "and every field")
    (chosen,) = answer["NodeNames"]
    check_equal(len(api.requests) - before, 0, "a filter asks the API server nothing")
    check_equal([r["uid"] for r in scheduler.view()["reserved"]], [thing["metadata"]["uid"]], "its devices are reserved")
    check_equal(scheduler.bind(thing, chosen), "", "a bind has no error")
    made = api.requests[before:]
    path = f"/api/v1/namespaces/ns/pods/{thing['metadata']['name']}/binding"
    check_equal([(m, p) for m, p, *_ in made], [("POST", path)], "a pod costs one request, the Binding")
    written = made[0][2]
    metadata = written["metadata"]
    check_equal(written["target"]["name"], chosen, "whose target is the node")
    check_equal(metadata["labels"], {ON_NODE: chosen}, "with HAMi's label")
    check_equal(metadata["uid"], thing["metadata"]["uid"], "for this pod only")
    notes = metadata["annotations"]
    (card,) = [uuid for uuid, _, _ in shares(notes[ALLOCATED])]
    check_equal(notes[ALLOCATED], f"{card},NVIDIA,3000,20:;", "it says what is given")
    check_equal(notes[TO_ALLOCATE], notes[ALLOCATED], "and what is to be handed over")
    check_equal((notes[ON_NODE], notes[PHASE]), (chosen, "allocating"), "where, and how far it is")
    now = time.time()
    check(all(abs(int(notes[k]) - now) < 60 for k in ("hami.io/vgpu-time", "hami.io/bind-time")), "and when", notes)
    check(scheduler.sees_what_is(), "the watch makes a promise what is in force", scheduler.view())
    check_equal(used(scheduler.view(), card), {"slots": 1, "cores": 20, "memory_mib": 3000}, "the card is charged")
    check(scheduler.bind(thing, chosen) != "", "what is bound is not bound again")
    api.delete(PODS, f"ns/{thing['metadata']['name']}")
    check(scheduler.sees_what_is(), "a pod that is gone holds nothing")


def test_keys_in_any_case(api, scheduler):
    thing = api.set(PODS, pod())
    status, text = scheduler.ask("POST", "/filter", {"pod": thing, "nodenames": ["node-1"]})
    check_equal((status, json.loads(text)["NodeNames"]), (200, ["node-1"]), "filter's keys are read in lower case")
    metadata = thing["metadata"]
    body = {"podName": metadata["name"], "podnamespace": "ns", "PODUID": metadata["uid"], "node": "node-1"}
    check_equal(json.loads(scheduler.ask("POST", "/bind", body)[1])["Error"], "", "bind's in any")
    api.delete(PODS, f"ns/{metadata['name']}")
    check(scheduler.sees_what_is(), "and nothing is left of it")


def test_a_resource_of_ours_without_a_device(api, scheduler):
    """kube-scheduler leaves the bind of whoever names a resource of ours to us, were it none of it."""
    thing = pod(gpus=0)
    del thing["spec"]["containers"][0]["resources"]["limits"][MEMORY]
    api.set(PODS, thing)
    check_equal(scheduler.filter(thing, ["node-1", "elsewhere"])["NodeNames"], ["node-1", "elsewhere"], "a pod that asks for 0 devices passes")
    before = len(api.requests)
    check_equal(scheduler.bind(thing, "elsewhere"), "", "it is bound to whichever node was chosen")
    (written,) = [request[2] for request in api.requests[before:]]
    check_equal((written["target"]["name"], written["metadata"].get("annotations"), written["metadata"].get("labels")), ("elsewhere", {}, None), "with nothing said of devices")
    check_equal(scheduler.view()["reserved"], [], "it holds nothing")
    api.delete(PODS, f"ns/{thing['metadata']['name']}")


def test_what_is_not_ours(api, scheduler):
    before = len(api.requests)
    for names in (["node-1", "node-2"], [], ["elsewhere"] * 3):
        answer = scheduler.filter(pod(None), names)
        check_equal((answer["NodeNames"], answer["Error"]), (names, ""), f"a pod that asks for no device passes: {names}")
    status, text = scheduler.ask("POST", "/filter", {"Pod": pod(None), "NodeNames": None})
    check_equal((status, json.loads(text)["NodeNames"]), (200, []), "so it does where no node is named")
    check_equal(len(api.requests) - before, 0, "and nothing is written")


def test_a_refused_pod(api, scheduler):
    thing = pod(CARD_MIB * 2)
    names = ["node-1", "node-2", "bare", "unknown", "node-1"]
    for _ in range(20):
        answer = scheduler.filter(thing, names)
    check_equal(sorted(failed(answer)), sorted(set(names)), "a refused pod has a reason for each node", answer)
    check_equal((answer["NodeNames"], answer["Error"]), (None, ""), "and no node")
    check_equal(failed(answer)["node-1"], "2/2 CardInsufficientMemory", "in HAMi's words")
    check_equal(failed(answer)["unknown"], "the node is not known", "or plain ones")

    def told():
        return [e for e in api.events if e["involvedObject"]["uid"] == thing["metadata"]["uid"]]

    check(wait_until(told), "an event says so")
    time.sleep(0.3)
    check_equal(len(told()), 1, "one, however often it was asked", told())
    (event,) = told()
    check_equal((event["reason"], event["type"]), ("FilteringFailed", "Warning"), "a warning with HAMi's reason")
    check_equal(event["source"]["component"], "hami-scheduler", "by the scheduler's name")
    of = thing["metadata"]
    wanted = {"apiVersion": "v1", "kind": "Pod", "namespace": of["namespace"], "name": of["name"], "uid": of["uid"]}
    check_equal({k: v for k, v in event["involvedObject"].items() if k != "resourceVersion"}, wanted, "of the pod, as kubectl describe looks for it")
    check("CardInsufficientMemory" in event["message"], "with all reasons in one", event["message"])
    busy = json.loads(json.dumps(thing))
    busy["spec"]["containers"][0]["resources"]["limits"] = {GPU: "3", MEMORY: "1"}
    for _ in range(5):
        scheduler.filter(busy, names)
    check(wait_until(lambda: len(told()) == 2), "another kind of reason makes another event")
    time.sleep(0.2)
    check_equal(len(told()), 2, "one as well")
    none = scheduler.filter(pod(), [])
    check_equal((none["NodeNames"], none["Error"], failed(none)), (None, "", {}), "where no node is named, none is chosen")


def test_where_evicting_would_help(api, scheduler):
    """kube-scheduler looks for pods to evict on the nodes of FailedNodes alone."""
    whole = api.set(PODS, pod(CARD_MIB, gpus=2))
    (node_of_it,) = scheduler.filter(whole, ["node-1"])["NodeNames"]
    answer = scheduler.filter(pod(CARD_MIB), ["node-1", "bare", "unknown"])
    check_equal(answer["FailedNodes"], {"node-1": "2/2 CardInsufficientMemory"}, "a node that is full may be made free")
    check_equal(sorted(answer["FailedAndUnresolvableNodes"]), ["bare", "unknown"], "one without devices may not")
    for thing, why in ((pod(CARD_MIB + 1), "2/2 CardInsufficientMemory"), (pod(1, gpus=3), "NodeInsufficientDevice")):
        answer = scheduler.filter(thing, [node_of_it])
        check_equal((answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]), ({}, {node_of_it: why}), f"nor one that is too small: {why}")
    give_back(scheduler, whole, ["node-1"])
    api.delete(PODS, f"ns/{whole['metadata']['name']}")


def test_who_is_evicted(api, scheduler):
    """What kube-scheduler would evict for processors or memory is checked against devices."""
    low = pod(CARD_MIB, gpus=2)
    low["spec"]["priority"] = 1
    api.set(PODS, low)
    check_equal(place(scheduler, low, ["node-1"]), ("node-1", ""), "a pod takes a node's cards")
    check(scheduler.sees_what_is(), "it is seen there")
    uid, found = low["metadata"]["uid"], {"Pods": [{"UID": "plain"}], "NumPDBViolations": 2}

    def preempt(priority, memory=1000, nodes=("node-1", "bare", "unknown")):
        thing = pod(memory)
        thing["spec"]["priority"] = priority
        body = {"Pod": thing, "NodeNameToVictims": None, "NodeNameToMetaVictims": {name: found for name in nodes}}
        status, text = scheduler.ask("POST", "/preempt", body)
        return json.loads(text)["NodeNameToMetaVictims"] if status == 200 else status

    added = {"Pods": [{"UID": "plain"}, {"UID": uid}], "NumPDBViolations": 2}
    check_equal(preempt(2), {"node-1": added}, "a less important pod that holds the cards goes, too")
    check_equal(preempt(1), {}, "nobody goes in vain")
    check_equal(preempt(2, CARD_MIB + 1), {}, "or for what no card has")
    check_equal(preempt(1, nodes=("node-2",)), {"node-2": found}, "where there is room nobody is added")
    check_equal(preempt(1, None), {name: found for name in ("node-1", "bare", "unknown")}, "a pod without devices is kube-scheduler's own matter")
    for body in ({"Pod": pod()}, {"NodeNameToMetaVictims": {}}, {"Pod": pod(), "NodeNameToMetaVictims": {"a": {"Pods": [{}]}}}):
        check_equal(scheduler.ask("POST", "/preempt", body)[0], 500, f"what can't be read is an error: {list(body)}")
    api.delete(PODS, f"ns/{low['metadata']['name']}")
    check(scheduler.sees_what_is(), "a pod that was evicted holds nothing")


def ask_whole(scheduler, thing, nodes):
    status, text = scheduler.ask("POST", "/filter", {"Pod": thing, "Nodes": {"items": nodes}, "NodeNames": None})
    check_equal(status, 200, "a filter with whole nodes is answered")
    return json.loads(text)


def test_whole_nodes(api, scheduler):
    """A scheduler that is not told of nodeCacheCapable binds afterwards; who names nodes that do not exist only tries."""
    thing = api.set(PODS, pod(3000))
    known = [node("node-1", 2), node("node-2", 2)]
    answer = ask_whole(scheduler, thing, known)
    (chosen,) = answer["Nodes"]["items"]
    check(chosen in known and answer["NodeNames"] is None, "the chosen node comes back as it was sent", answer)
    check_equal(scheduler.bind(thing, chosen["metadata"]["name"]), "", "a bind follows, as with names")
    check(wait_until(lambda: thing["metadata"]["uid"] in [p["uid"] for p in scheduler.view()["pods"]]), "the pod is seen")
    answer = ask_whole(scheduler, thing, known)
    check_equal((answer["Error"], len(answer["Nodes"]["items"])), ("", 1), "of a pod that runs it is said where else it could go")
    view = scheduler.view()

    template = node("template-1", 1, memory=100000)
    large = pod(90000)
    answer = ask_whole(scheduler, large, [*known, template])
    check_equal([n["metadata"]["name"] for n in answer["Nodes"]["items"]], ["template-1"], "a node that is none yet is judged by what it carries")
    answer = ask_whole(scheduler, pod(100001), [node("node-1", 2), template, {"metadata": {"name": "empty"}}])
    check_equal(answer["Nodes"], None, "nothing fits")
    check_equal(
        failed(answer),
        {"node-1": "2/2 CardInsufficientMemory", "template-1": "1/1 CardInsufficientMemory", "empty": "the node has registered no devices"},
        "each node has its reason",
    )
    full = pod(CARD_MIB)
    answer = ask_whole(scheduler, full, [node("node-1", 2), node("node-2", 2), node("template-1", 1, memory=1000)])
    check_equal(len(answer["Nodes"]["items"]), 1, "what is used of known nodes counts, and one card is free")
    check_equal(scheduler.view(), view, "trying reserves nothing")
    plain = ask_whole(scheduler, pod(None), [node("template-1")])
    check_equal(len(plain["Nodes"]["items"]), 1, "a pod that asks for no device passes")
    api.delete(PODS, f"ns/{thing['metadata']['name']}")
    check(scheduler.sees_what_is(), "a pod that is gone holds nothing")


def test_bad_bodies(api, scheduler):
    time.sleep(0.2)
    before = len(api.requests)
    bodies = ["", "{", "null", "[]", "7", '"x"', "{}", '{"Pod":7}', '{"Pod":{}}', "\x00", "[" * 60000, '{"a":' * 12000, "\udcff\udcfe"]
    for body in bodies:
        for path in ("/filter", "/bind"):
            raw = body.encode(errors="surrogateescape")
            status, text = scheduler.ask("POST", path, raw)
            check(status == 200 and json.loads(text)["Error"], f"{path} says what is wrong with {raw[:12]}", status, text)
        status, _ = scheduler.ask("POST", "/webhook", raw)
        check_equal(status, 400, f"/webhook refuses {raw[:12]}")
    whole = {"Pod": pod(), "Nodes": {"items": [{"metadata": {"name": 7}}]}, "NodeNames": None}
    check("Nodes.items[0]" in json.loads(scheduler.ask("POST", "/filter", whole)[1])["Error"], "a whole node that is none is refused with its place")
    for names in ([1], [None], [["a"]], ["node-1", {}]):
        error = json.loads(scheduler.ask("POST", "/filter", {"Pod": pod(), "NodeNames": names})[1])["Error"]
        check(error, f"names that are none are refused: {names}")
    for missing in ("PodName", "PodNamespace", "PodUID", "Node"):
        body = {"PodName": "a", "PodNamespace": "b", "PodUID": "c", "Node": "d"}
        del body[missing]
        check(missing in scheduler.ask("POST", "/bind", body)[1], f"a bind without {missing} is refused by its name")
        body[missing] = "x" * 300
        check(missing in scheduler.ask("POST", "/bind", body)[1], f"and one whose {missing} is too long")
    nobody = pod()
    nobody["metadata"]["uid"] = ""
    check("uid" in scheduler.filter(nobody, ["node-1"])["Error"], "a pod without uid is refused")
    time.sleep(0.2)
    check_equal([r[1] for r in api.requests[before:]], [], "the API server hears of none of it")
    check_equal(scheduler.view()["reserved"], [], "nothing is reserved")


def test_an_undecided_bind(api, scheduler):
    thing = pod()
    check("nothing is reserved" in scheduler.bind(thing, "node-1"), "a bind without a filter is refused")
    answer = scheduler.filter(thing, ["node-1", "node-2"])
    (chosen,) = answer["NodeNames"]
    other = "node-2" if chosen == "node-1" else "node-1"
    check(scheduler.bind(thing, other), "so is one to another node")
    check_equal(api.seen("POST", f"{thing['metadata']['name']}/binding"), [], "and nothing is written")
    scheduler.filter(thing | {"spec": pod(CARD_MIB * 2)["spec"]}, ["node-1"])
    check_equal(scheduler.view()["reserved"], [], "a pod that is asked for again gives back what it had")


def test_a_node_with_a_long_name(api, scheduler):
    name = "a-node-" + "x" * 60 + ".example"
    api.set(NODES, node(name))
    thing = api.set(PODS, pod())
    wait_until(lambda: name in [n["name"] for n in scheduler.view()["nodes"]])
    check_equal(place(scheduler, thing, [name])[0], name, "a node's name may be longer than a label's value")
    (binding,) = api.seen("POST", f"{thing['metadata']['name']}/binding")
    check_equal(binding[2]["metadata"].get("labels", {}), {}, "then the label, which would be invalid, is left out")
    check_equal(binding[2]["metadata"]["annotations"][ON_NODE], name, "and the annotation is not")
    api.delete(PODS, f"ns/{thing['metadata']['name']}")
    api.delete(NODES, name)


def review(thing):
    return {
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "r-1", "operation": "CREATE", "namespace": "ns", "kind": {"version": "v1", "kind": "Pod"}, "object": thing},
    }  # fmt: skip


def test_the_webhook(api, scheduler):
    def answer(thing):
        status, text = scheduler.ask("POST", "/webhook?timeout=10s", review(thing))
        check_equal(status, 200, "a review is answered")
        return json.loads(text)["response"]

    ours = answer(pod())
    check_equal((ours["uid"], ours["allowed"]), ("r-1", True), "a pod with devices is allowed")
    check(ours.get("patch"), "and given to the scheduler", ours)
    check_equal(answer(pod(None)).get("patch"), None, "another is left as it is")
    denied = answer(pod("-5"))
    check((not denied["allowed"]) and MEMORY in denied["status"]["message"], "what can't be meant is denied by its name", denied)


def test_where_it_is_served(api, scheduler):
    for method, path, wanted in (
        ("GET", "/filter", 405), ("PUT", "/bind", 405), ("POST", "/healthz", 405), ("DELETE", "/readyz", 405),
        ("GET", "/", 404), ("POST", "/filter/", 404), ("GET", "/metrics", 404), ("GET", "/debug/view/../../etc/passwd", 404),
        ("GET", "/healthz", 200), ("HEAD", "/healthz", 200), ("GET", "/readyz", 200), ("GET", "/healthz?x=y", 200),
    ):  # fmt: skip
        check_equal(scheduler.ask(method, path)[0], wanted, f"{method} {path}: {wanted}")


def test_before_it_is_ready():
    api = Api()
    api.set(NODES, node("node-1"))
    api.fail(503, 100, "GET", "/api/v1/pods")
    scheduler = Scheduler(api, ready=False)
    wait_until(lambda: api.seen("GET", "/pods") and scheduler.view()["nodes"])
    check_equal(scheduler.ask("GET", "/readyz")[0], 503, "it is not ready before it has read all pods")
    check_equal(scheduler.ask("GET", "/healthz")[0], 200, "but healthy")
    check("not all read" in scheduler.filter(pod(), ["node-1"])["Error"], "it decides nothing")
    check_equal(scheduler.filter(pod(None), ["node-1"])["NodeNames"], ["node-1"], "though what is not its own passes")
    api.faults.clear()
    check(wait_until(scheduler.is_ready, 15), "it is ready once they are read")
    check_equal(scheduler.filter(pod(), ["node-1"])["NodeNames"], ["node-1"], "and decides")
    scheduler.end()


def test_what_is_for_this_machine():
    addresses = run(["hostname", "-I"], None).stdout.split()
    outside = [a for a in addresses if not a.startswith("127.") and ":" not in a]
    if not outside:
        print("no address but loopback here: who asks from elsewhere is not tried")
        return
    api = Api()
    scheduler = Scheduler(api, "--http_bind=0.0.0.0:0")
    far = http.client.HTTPSConnection(outside[0], scheduler.port, context=TRUSTING, source_address=(outside[0], 0))
    far.request("GET", "/debug/view")
    response = far.getresponse()
    check_equal((response.status, response.read()), (403, b"for this machine only\n"), "the view is refused to others, with a word")
    for path, body, wanted in (("/filter", {"Pod": pod(), "NodeNames": []}, 403), ("/bind", {}, 403), ("/webhook", review(pod()), 200)):
        far.request("POST", path, json.dumps(body))
        response = far.getresponse()
        response.read()
        check_equal(response.status, wanted, f"{path} of others: {wanted}")
    far.request("GET", "/healthz")
    check_equal(far.getresponse().status, 200, "and health is not")
    check_equal(scheduler.ask("GET", "/debug/view")[0], 200, "this machine sees it")
    scheduler.end()


def test_more_nodes_than_a_page(api):
    for number in range(1203):
        api.set(NODES, node(f"many-{number:04}", cards=1))
    scheduler = Scheduler(api)
    names = [f"many-{number:04}" for number in range(1203)]
    check_equal(scheduler.metric("hami_scheduler_nodes"), 1203 + 2, "nodes of all pages are known")
    answer = scheduler.filter(pod(CARD_MIB + 1), names)
    check_equal(len(failed(answer)), 1203, "and each has its reason")
    scheduler.end()


def main():
    api = Api()
    for thing in (node("node-1", 2), node("node-2", 2), {"metadata": {"name": "bare"}, "status": {}}):
        api.set(NODES, thing)
    scheduler = Scheduler(api)
    # What it asks for of its own accord ends with both watches, of pods the second: they are listed again before it decides.
    check(wait_until(lambda: len(api.seen("GET", NODES)) >= 2 and len(api.seen("GET", PODS)) >= 4), "nodes and pods are listed and watched")
    run_each(
        api, scheduler,
        test_a_pod_is_placed_with_one_write, test_keys_in_any_case, test_a_resource_of_ours_without_a_device, test_what_is_not_ours, test_a_refused_pod, test_where_evicting_would_help, test_who_is_evicted,
        test_whole_nodes, test_bad_bodies, test_an_undecided_bind, test_a_node_with_a_long_name, test_the_webhook, test_where_it_is_served,
    )  # fmt: skip
    scheduler.end()
    run_part(test_before_it_is_ready)
    run_part(test_what_is_for_this_machine)
    run_part(test_more_nodes_than_a_page, api)
    finish()


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes whose agents wait for a lock: it is written before the Binding, one pod has a node's turn at a time, and no lock is
left for good, whatever agents, the API server and the scheduler do. The agents are those of tests/agents.py; a pretended
kubelet asks them once a pod is bound.

usage: locks.py [each | random SECONDS]
"""

from support import *

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import agents
from agents import LOCK, VENDORS, Agent

SLICE = 16384


class Client:
    """An agent's, straight into the pretended API server."""

    def __init__(self, api, name):
        self.api, self.name = api, name

    def node(self):
        return self.api.objects[NODES][self.name]

    def patch_node(self, patch):
        allowed, self.api.may_patch_nodes = self.api.may_patch_nodes, True
        status = self.api.patch_node(self.name, patch)[0]
        self.api.may_patch_nodes = allowed
        self.api.node_patches.pop() if status == 200 else None
        return status

    def pod(self, namespace, name):
        return self.api.objects[PODS].get(f"{namespace}/{name}")

    def pods(self):
        with self.api.lock:
            return list(self.api.objects[PODS].values())

    def patch_pod(self, namespace, name, patch):
        return self.api.patch_pod(f"{namespace}/{name}", patch)[0]


def other_node(api, name, vendor="hygon", profile=None, devices=8):
    row = VENDORS[vendor]
    api.set(NODES, {
        "metadata": {"name": name, "uid": f"node-{name}", "annotations": {}},
        "status": {"allocatable": {row["resource"]: str(4 * devices)}, "conditions": [{"type": "Ready", "status": "True"}]},
    })  # fmt: skip
    agent = Agent(Client(api, name), vendor, name, devices, profile)
    agent.register()
    return agent


def other_pod(vendor="hygon", memory=SLICE, count=1, containers=1):
    row, thing = VENDORS[vendor], pod(None)
    limits = {row["resource"]: str(count), row["memory"]: str(memory)}
    thing["spec"]["containers"] = [{"name": f"c{i}", "image": "i", "resources": {"limits": limits, "requests": limits}} for i in range(containers)]
    return thing


def asking(limits):
    thing = pod(None)
    thing["spec"]["containers"] = [{"name": "c0", "image": "i", "resources": {"limits": limits, "requests": limits}}]
    return thing


def counted_node(api, name, vendor, devices, amounts):
    """A node whose agent registers with kubelet alone."""
    api.set(NODES, {
        "metadata": {"name": name, "uid": f"node-{name}", "annotations": {}, "labels": VENDORS[vendor].get("labels", {})},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    })  # fmt: skip
    return agents.make(Client(api, name), vendor, name, devices)


def lock_of(api, name):
    return api.objects[NODES][name]["metadata"].get("annotations", {}).get(LOCK)


def end_pod(api, thing):
    api.delete(PODS, f"ns/{thing['metadata']['name']}")


def bind_later(scheduler, thing, name):
    """The thread, and the list in which its answer will stand."""
    answers = []

    def ask():
        try:
            answers.append(scheduler.bind(thing, name))
        except (OSError, http.client.HTTPException) as error:
            answers.append(repr(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, answers


def begin(api, scheduler, name, **what):
    thing = api.set(PODS, other_pod(**what))
    check_equal(scheduler.filter(thing, [name])["NodeNames"], [name], "a pod is placed")
    return thing


def is_bound(api, thing):
    return thing["metadata"]["uid"] in api.bound


def test_the_lock_comes_before_the_binding(api, scheduler):
    agent = other_node(api, "n1")
    wait_until(lambda: fits(scheduler, other_pod(), ["n1"]))
    api.requests.clear()
    thing = begin(api, scheduler, "n1")
    check_equal(scheduler.bind(thing, "n1"), "", "a pod of an agent with a lock is bound")
    metadata = thing["metadata"]
    writes = [r for r in api.requests if r[0] in ("PATCH", "POST", "PUT") and not r[1].endswith("/events")]
    check_equal([w[0] for w in writes], ["PATCH", "POST"], "two writes: the lock, and the Binding", writes)
    reads = [r[1] for r in api.requests if r[0] == "GET" and r[1].endswith("/n1")]
    check(len(reads) <= 1, "and the node is read once at most", reads)
    patch = writes[0][2]["metadata"]
    check(patch.get("resourceVersion"), "the lock is guarded by the node's resource version", patch)
    words = patch["annotations"][LOCK].split(",")
    check_equal(words[1:], [metadata["namespace"], metadata["name"]], "it names the pod")
    written = datetime_of(words[0])
    check(abs(time.time() - written) < 5, "and says when it was written", words)
    notes = api.objects[PODS][f"ns/{metadata['name']}"]["metadata"]["annotations"]
    check_equal(notes[PHASE], "allocating", "the Binding says that the agent is waited for")
    check(notes["hami.io/bind-time"].isdigit() and notes[VENDORS["hygon"]["to_allocate"]], "when, and what it has to allocate", notes)
    got, devices = agent.allocate(1)
    check_equal(got["metadata"]["uid"], metadata["uid"], "the agent finds the pod by the lock")
    check_equal(lock_of(api, "n1"), None, "and the lock is gone")
    check_equal(len(api.node_patches), 1, "the scheduler wrote to the node once", api.node_patches)
    end_pod(api, thing)


def datetime_of(text):
    import datetime

    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_two_at_once(api, scheduler):
    for profile in ("hygon", "ascend-1.2", "biren", "never"):
        name = f"two-{profile}"
        agent = other_node(api, name, profile=profile)
        wait_until(lambda: fits(scheduler, other_pod(), [name]))
        first, second = begin(api, scheduler, name), begin(api, scheduler, name)
        threads = [bind_later(scheduler, thing, name) for thing in (first, second)]
        check(wait_until(lambda: is_bound(api, first) or is_bound(api, second)), f"{profile}: one is bound")
        time.sleep(0.5)
        check(not (is_bound(api, first) and is_bound(api, second)), f"{profile}: the other waits for its turn")
        served = []
        for _ in range(2):
            check(wait_until(lambda: len([t for t in (first, second) if is_bound(api, t)]) > len(served), 8), f"{profile}: the next is bound")
            got, devices = agent.allocate(1)
            served.append(got["metadata"]["uid"])
            granted = got["metadata"]["annotations"][VENDORS["hygon"]["allocated"]]
            check(devices[0] in granted, f"{profile}: it gets what it was granted", devices, granted)
            start_containers(api, got)
        check_equal(sorted(served), sorted(t["metadata"]["uid"] for t in (first, second)), f"{profile}: each pod was allocated once")
        for thread, answers in threads:
            thread.join(15)
            check_equal(answers, [""], f"{profile}: both binds succeed")
        check(wait_until(lambda: lock_of(api, name) is None, 8), f"{profile}: no lock is left")
        for thing in (first, second):
            end_pod(api, thing)
    check(scheduler.sees_what_is(), "nothing is left")


def test_a_turn_does_not_end_with_the_lock(api, scheduler):
    """An agent that removes the lock after the first of two containers."""
    agent = other_node(api, "n2", profile="ascend-1.4")
    wait_until(lambda: fits(scheduler, other_pod(), ["n2"]))
    first, second = begin(api, scheduler, "n2", containers=2), begin(api, scheduler, "n2")
    check_equal(scheduler.bind(first, "n2"), "", "the first pod is bound")
    thread, answers = bind_later(scheduler, second, "n2")
    agent.allocate(1)
    check_equal(lock_of(api, "n2"), None, "its first container has its device, and the lock is gone")
    time.sleep(1.5)
    check(not is_bound(api, second), "the second pod still waits")
    got, _ = agent.allocate(1)
    check_equal(got["metadata"]["uid"], first["metadata"]["uid"], "the agent finds the first pod for its second container")
    thread.join(10)
    check_equal(answers, [""], "then the second pod is bound")
    agent.allocate(1)
    for thing in (first, second):
        end_pod(api, thing)


def test_a_lock_of_somebody_else(api, scheduler):
    agent = other_node(api, "n3")
    wait_until(lambda: fits(scheduler, other_pod(), ["n3"]))

    def bound_by_somebody():
        stranger = api.set(PODS, pod(None))
        api.patch_pod(f"ns/{stranger['metadata']['name']}", {"spec": {"nodeName": "n3"}, "metadata": {"annotations": {PHASE: "allocating"}}})
        return stranger

    stamp = lambda age: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age))
    cases = [
        (f"{stamp(10)},ns,NAME", False, "of a pod whose allocations go on"),
        (f"{stamp(10)}", False, "that names none"),
        ("garbage", False, "that can't be read"),
        (f"{stamp(303)},ns,NAME", True, "older than five minutes"),
        (f"{stamp(10)},ns,nobody", True, "of a pod that is gone"),
    ]
    for value, free, words in cases:
        stranger = bound_by_somebody()
        value = value.replace("NAME", stranger["metadata"]["name"])
        agent.client.patch_node({"metadata": {"annotations": {LOCK: value}}})
        thing = begin(api, scheduler, "n3")
        begun = time.monotonic()
        error = scheduler.bind(thing, "n3")
        took = time.monotonic() - begun
        check_equal(not error, free, f"a lock {words} is {'broken' if free else 'honoured'}", error)
        if free:
            check(took < 3, f"at once: {took:.1f} s")
            agent.allocate(1)
        else:
            check(7 < took < 9, f"kube-scheduler is told in time: {took:.1f} s")
            check(lock_of(api, "n3") == value, "and the lock stays", lock_of(api, "n3"))
            check_equal(scheduler.view()["reserved"], [], "the devices are free")
        agent.client.patch_node({"metadata": {"annotations": {LOCK: None}}})
        for one in (thing, stranger):
            end_pod(api, one)
        time.sleep(0.3)


def test_what_becomes_of_the_pod(api, scheduler):
    """The agent does nothing: the lock is removed when the pod's allocations are over, and not before."""
    agent = other_node(api, "n4", profile="never")
    wait_until(lambda: fits(scheduler, other_pod(), ["n4"]))

    def say_failed(key):
        api.patch_pod(key, {"metadata": {"annotations": {PHASE: "failed"}}})

    def end(key):
        api.patch_pod(key, {"status": {"phase": "Failed"}})

    ends = [("deleted", lambda key: api.delete(PODS, key), 1.5), ("over", end, 1.5), ("failed by its agent", say_failed, 5), ("started", lambda key: start_containers(api, thing), 8)]
    for words, change, seconds in ends:
        thing = begin(api, scheduler, "n4")
        check_equal(scheduler.bind(thing, "n4"), "", "a pod is bound")
        time.sleep(1.2)
        check(lock_of(api, "n4"), "the lock waits for the agent")
        change(f"ns/{thing['metadata']['name']}")
        check(wait_until(lambda: lock_of(api, "n4") is None, seconds), f"{words}: the lock is removed", lock_of(api, "n4"))
        end_pod(api, thing)
        wait_until(scheduler.sees_what_is)


def test_the_api_server_refuses_the_lock(api, scheduler):
    agent = other_node(api, "n5")
    wait_until(lambda: fits(scheduler, other_pod(), ["n5"]))
    for act in (409, 503, "cut", "lost", ("done", 500), 429):
        thing = begin(api, scheduler, "n5")
        api.fail(act, 2, "PATCH", "/nodes/n5")
        check_equal(scheduler.bind(thing, "n5"), "", f"{act}: the lock is tried again, and the pod is bound")
        got, _ = agent.allocate(1)
        check_equal(got["metadata"]["uid"], thing["metadata"]["uid"], f"{act}: the lock names it")
        end_pod(api, thing)
    thing = begin(api, scheduler, "n5")
    api.fail(409, 10000, "PATCH", "/nodes/n5")
    begun = time.monotonic()
    error = scheduler.bind(thing, "n5")
    api.faults.clear()
    check(error and time.monotonic() - begun < 9, "where it never can be written, kube-scheduler is told in time", error)
    check(not is_bound(api, thing) and not scheduler.view()["reserved"], "and nothing is bound or reserved")
    end_pod(api, thing)


def test_the_binding_is_refused(api, scheduler):
    other_node(api, "n6")
    wait_until(lambda: fits(scheduler, other_pod(), ["n6"]))
    thing = begin(api, scheduler, "n6")
    api.fail(404)
    check(scheduler.bind(thing, "n6"), "a bind is refused")
    check(wait_until(lambda: lock_of(api, "n6") is None, 2), "and its lock is removed")
    end_pod(api, thing)


def test_killed_between_lock_and_binding(api, scheduler):
    agent = other_node(api, "n7")
    wait_until(lambda: fits(scheduler, other_pod(), ["n7"]))
    for again in (True, False):
        thing = begin(api, scheduler, "n7")
        api.holding = threading.Event()
        thread, _ = bind_later(scheduler, thing, "n7")
        check(wait_until(lambda: lock_of(api, "n7")), "the lock is written")
        scheduler.process.kill()
        scheduler.process.wait()
        api.faults.clear()
        with api.lock:  # the Binding never came
            holding, api.holding = api.holding, None
            api.objects[PODS].pop(f"ns/{thing['metadata']['name']}")
        holding.set()
        time.sleep(0.1)
        if again:
            api.set(PODS, thing)
        scheduler.start()
        if again:
            check_equal(place(scheduler, thing, ["n7"]), ("n7", ""), "the next scheduler binds the pod under the lock that names it")
            got, _ = agent.allocate(1)
            check_equal(got["metadata"]["uid"], thing["metadata"]["uid"], "and its agent finds it")
        check(wait_until(lambda: lock_of(api, "n7") is None, 10), "no lock is left", lock_of(api, "n7"))
        end_pod(api, thing)


def test_killed_while_allocating(api, scheduler):
    """The next scheduler knows from the pods that the node's turn is taken, even where the agent removed the lock."""
    agent = other_node(api, "n8", profile="ascend-1.4")
    wait_until(lambda: fits(scheduler, other_pod(), ["n8"]))
    first, second = begin(api, scheduler, "n8", containers=2), api.set(PODS, other_pod())
    check_equal(scheduler.bind(first, "n8"), "", "a pod is bound")
    agent.allocate(1)
    scheduler.kill_and_restart()
    check_equal(scheduler.filter(second, ["n8"])["NodeNames"], ["n8"], "another is placed")
    thread, answers = bind_later(scheduler, second, "n8")
    time.sleep(1.5)
    check(not is_bound(api, second), "and waits for the first one's second container")
    agent.allocate(1)
    thread.join(10)
    check_equal(answers, [""], "then it is bound")
    agent.allocate(1)
    for thing in (first, second):
        end_pod(api, thing)


def test_without_the_right(api, scheduler):
    api.may_patch_nodes = False
    scheduler.kill_and_restart()
    other_node(api, "n9")
    thing = api.set(PODS, other_pod())
    check(wait_until(lambda: "no right" in failed(scheduler.filter(thing, ["n9"])).get("n9", "")), "without the right a node with a lock has no devices, and the reason says why", failed(scheduler.filter(thing, ["n9"])))
    check_equal(scheduler.said().count("may not be patched"), 1, "the scheduler says once what it lacks")
    ours = api.set(PODS, pod(1000))
    check_equal(place(scheduler, ours, ["ours"]), ("ours", ""), "our own nodes need no right")
    api.may_patch_nodes = True
    check(wait_until(lambda: scheduler.filter(thing, ["n9"])["NodeNames"], 45, 0.5), "with the right it has them, without a restart")
    api.may_patch_nodes = False
    check("locked" in scheduler.bind(thing, "n9"), "when the right is taken away, a bind says so")
    check(wait_until(lambda: "no right" in failed(scheduler.filter(thing, ["n9"])).get("n9", "")), "and the node has no devices again")
    api.may_patch_nodes = True
    for one in (thing, ours):
        end_pod(api, one)


def test_turns_without_a_lock(api, scheduler):
    """An agent that takes the pod that was bound first: one at a time is bound, and nothing of the node is written."""
    agent = counted_node(api, "n11", "neuron", 4, {"aws.amazon.com/neuron": "4", "aws.amazon.com/neuroncore": "8"})
    patches = len(api.node_patches)

    for turn in range(2):
        things = [api.set(PODS, asking({"aws.amazon.com/neuron": "1"})) for _ in range(3)]
        check(wait_until(lambda: all(scheduler.filter(t, ["n11"])["NodeNames"] for t in things)), "pods are placed")
        threads = [bind_later(scheduler, thing, "n11") for thing in things]
        for number in range(3):
            bound = lambda: [t for t in things if is_bound(api, t)]
            check(wait_until(lambda: len(bound()) > number, 8), "the next pod is bound")
            time.sleep(0.3)
            check_equal(len(bound()), number + 1, "and none beside it")
            if turn and number == 1:
                scheduler.kill_and_restart()
                for thing in [t for t in things if not is_bound(api, t)]:
                    scheduler.filter(thing, ["n11"])
                    threads.append(bind_later(scheduler, thing, "n11"))
                time.sleep(1)
                check_equal(len(bound()), number + 1, "another scheduler knows whose turn it is")
            got, devices = agent.allocate(1, resource="aws.amazon.com/neuron")
            check(devices[0] in got["metadata"]["annotations"][VENDORS["neuron"]["allocated"]], "the agent gives it what it was granted", devices)
            start_containers(api, got)
        for thread, _ in threads:
            thread.join(15)
        for thing in things:
            end_pod(api, thing)
    check_equal(api.node_patches[patches:], [], "nothing is written on the node")
    api.delete(NODES, "n11")


AMOUNTS = {"cambricon.com/mlu.smlu.vcore": "200", "cambricon.com/mlu.smlu.vmemory": "192"}


def test_an_agent_with_two_calls(api, scheduler):
    """Cambricon's: of the two calls for a container the second commits; when one fails, the lock stays."""
    cores, memory = "cambricon.com/mlu.smlu.vcore", "cambricon.com/mlu.smlu.vmemory"
    agent = counted_node(api, "n12", "cambricon", 2, AMOUNTS)
    locked = lambda: api.objects[NODES]["n12"]["metadata"].get("annotations", {}).get(VENDORS["cambricon"]["lock"])
    for dies in (False, True, False):
        thing = api.set(PODS, asking({"cambricon.com/vmlu": "1", cores: "10", memory: "20"}))
        check(wait_until(lambda: scheduler.filter(thing, ["n12"])["NodeNames"]), "a pod is placed")
        check_equal(scheduler.bind(thing, "n12"), "", "and bound")
        check(locked(), "under the agent's lock")
        got, first = agent.allocate(10, resource=cores)
        if dies:
            api.patch_pod(f"ns/{thing['metadata']['name']}", {"status": {"phase": "Failed"}})
            check(wait_until(lambda: locked() is None, 8), "a lock that the agent left is removed")
            continue
        got, second = agent.allocate(20, resource=memory)
        check(first == second and first[0] in got["metadata"]["annotations"][VENDORS["cambricon"]["allocated"]], "both calls give what was granted", first, second)
        check_equal(locked(), None, "the second call removes the lock")
        start_containers(api, thing)
        end_pod(api, thing)
    api.delete(NODES, "n12")


def test_the_timeout_of_locks(_):
    api = Api()
    scheduler = Scheduler(api, "--node-lock-timeout=0m20s")
    agent = other_node(api, "n1")
    wait_until(lambda: fits(scheduler, other_pod(), ["n1"]))
    stranger = api.set(PODS, pod(None))
    name = stranger["metadata"]["name"]
    api.patch_pod(f"ns/{name}", {"spec": {"nodeName": "n1"}, "metadata": {"annotations": {PHASE: "allocating"}}})
    written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 25))
    agent.client.patch_node({"metadata": {"annotations": {LOCK: f"{written},ns,{name}"}}})
    check_equal(scheduler.bind(begin(api, scheduler, "n1"), "n1"), "", "a lock older than --node-lock-timeout is broken")
    scheduler.end()


def test_an_agent_that_falls_silent(api, scheduler):
    agent = other_node(api, "n10")
    wait_until(lambda: fits(scheduler, other_pod(), ["n10"]))
    patches = len(api.node_patches)
    time.sleep(3)
    check_equal(api.node_patches[patches:], [], "to an agent that reports nothing is written")
    key, ask = VENDORS["hygon"]["handshake"], {"Requesting_2026-01-02 03:04:05"}
    agent.client.patch_node({"metadata": {"annotations": {key: min(ask)}}})
    time.sleep(2)
    check(fits(scheduler, other_pod(), ["n10"]), "one that was asked a minute ago keeps its devices while kubelet counts them")
    agent.client.patch_node({"status": {"allocatable": {VENDORS["hygon"]["resource"]: None}}})
    check(wait_until(lambda: not fits(scheduler, other_pod(), ["n10"]), 5), "and loses them when it does not")
    check(wait_until(lambda: api.objects[NODES]["n10"]["metadata"]["annotations"][key].startswith("Deleted_"), 5), "which is written on the node")
    agent.register()
    check(wait_until(lambda: fits(scheduler, other_pod(), ["n10"]), 5), "when it reports again, it has them again")


def test_a_server_that_does_not_say_whether(_):
    """What cannot be asked holds nobody up for longer than ten seconds."""
    api = Api()
    api.set(NODES, node("ours"))
    api.fail(500, 1000, "POST", "/selfsubjectaccessreviews")
    scheduler = Scheduler(api)
    check("until the API server says whether nodes may be patched" in scheduler.said(), "the log says what is missing", scheduler.said())
    check("may not be patched" not in scheduler.said(), "and does not say what nobody said", scheduler.said())
    thing = api.set(PODS, pod(1000))
    check_equal(place(scheduler, thing, ["ours"]), ("ours", ""), "nodes that need no lock are served")
    scheduler.end()


def settle(api, seconds=0.5):
    """Waits for what the scheduler still asks about pods of before."""
    asked = lambda: len([r for r in api.requests if "leases" not in r[1]])

    def rests():
        before = asked()
        time.sleep(seconds)
        return asked() == before

    check(wait_until(rests), "the scheduler asks nothing when there is nothing to do")


def test_our_nodes_have_no_lock(api, scheduler):
    settle(api)
    api.requests.clear()
    thing = api.set(PODS, pod(1000))
    check_equal(place(scheduler, thing, ["ours"]), ("ours", ""), "a pod is bound to a node of ours")
    check_equal([r[0] for r in api.requests if r[0] != "GET" and not r[1].endswith("/events")], ["POST"], "with one write", [r[:2] for r in api.requests])
    check_equal([r[1] for r in api.requests if r[0] == "GET" and "leases" not in r[1]], [], "and no read")
    end_pod(api, thing)


def test_at_random(seconds, seed):
    """Agents of all habits that are slow, die and come back; a scheduler that is killed; pods that are deleted at any moment.
    kubelet asks an agent for each container of a bound pod, one pod after the other."""
    random.seed(seed)
    api = Api()
    names = [f"r-{profile}" for profile in agents.PROFILES]
    served = [other_node(api, name, profile=name[2:]) for name in names]
    scheduler = Scheduler(api)
    wrong, until, allocated = [], time.monotonic() + seconds, 0
    leaving = set()  # bound pods that their users deleted

    def delete(thing):
        """A bound pod goes when kubelet has done with it."""
        key = f"ns/{thing['metadata']['name']}"
        with api.lock:
            if api.objects[PODS][key]["spec"].get("nodeName"):
                leaving.add(key)
            else:
                api.delete(PODS, key)

    def kubelet(agent):
        """Pods of the node in the order of their binding."""
        nonlocal allocated
        done = set()
        while time.monotonic() < until + 30 and not stopped.is_set():
            time.sleep(random.uniform(0.005, 0.05))
            with api.lock:
                mine = [p for p in api.objects[PODS].values() if p["spec"].get("nodeName") == agent.node]
                bound = [p for p in mine if p["metadata"]["uid"] not in done]
                for key in [f"ns/{p['metadata']['name']}" for p in mine if p["metadata"]["uid"] in done]:
                    if key in leaving:
                        api.delete(PODS, key)
            for thing in bound:
                uid, key = thing["metadata"]["uid"], f"ns/{thing['metadata']['name']}"
                done.add(uid)
                try:
                    for _ in thing["spec"]["containers"]:
                        if random.random() < 0.03:
                            raise agents.Failed("the agent died")
                        time.sleep(random.choice([0, 0, 0.02, 0.2]))
                        got, devices = agent.allocate(1)
                        if got["metadata"]["uid"] != uid:
                            wrong.append((agent.node, "another pod's devices", uid, got["metadata"]["uid"]))
                        allocated += 1
                    start_containers(api, thing, "Running")
                except (agents.Failed, KeyError):
                    api.patch_pod(key, {"status": {"phase": "Failed"}})

    def user():
        while time.monotonic() < until:
            thing = api.set(PODS, other_pod(memory=random.choice([8192, SLICE]), containers=random.choice([1, 1, 2])))
            for _ in range(random.randint(1, 6)):
                try:
                    if place(scheduler, thing, names)[0]:
                        break
                except (OSError, http.client.HTTPException):
                    pass
                time.sleep(random.uniform(0.05, 0.3))
            time.sleep(random.uniform(0, 1))
            delete(thing)

    def killer():
        while time.monotonic() < until:
            time.sleep(random.uniform(1, 4))
            scheduler.kill_and_restart()

    stopped = threading.Event()
    kubelets = [threading.Thread(target=kubelet, args=(agent,), daemon=True) for agent in served]
    for thread in kubelets:
        thread.start()
    in_threads([user] * 10 + [killer])
    check(wait_until(lambda: not [n for n in names if lock_of(api, n) is not None], 60), "no lock is left in the end", [(n, lock_of(api, n)) for n in names], scheduler.said()[-2000:])
    stopped.set()
    print(f"seed {seed}: {len(api.bound)} bound, {allocated} containers allocated")
    check(allocated > 0, "containers were allocated")
    check_equal(wrong[:3], [], "no agent gave a container what another pod was granted")
    check(scheduler.sees_what_is(40), "the view is what is", scheduler.view())
    scheduler.end()


def test_nodes_that_are_gone_leave_nothing(api, scheduler):
    grown = []
    for turn in range(2):
        before = scheduler.anonymous_kib()
        for i in range(200):
            name = f"gone-{turn}-{i}"
            other_node(api, name, devices=1)
            held = api.objects[NODES][name]
            held["metadata"]["annotations"][LOCK] = "x" * 200000
            api.set(NODES, held)
            api.delete(NODES, name)
        check(wait_until(lambda: f"gone-{turn}-199" not in json.dumps(scheduler.view())), "the nodes are gone")
        time.sleep(1.5)
        grown.append(scheduler.anonymous_kib() - before)
    check(grown[1] < 10 << 10, "locks of nodes that are gone are forgotten", grown)


def test_either_lock_of_a_node_is_found(api, scheduler):
    """Agents of two vendors, each of which has a lock of its own: what a dead scheduler left of either is removed."""
    agent = other_node(api, "n13")
    there = api.objects[NODES]["n13"]
    api.set(NODES, there | {"status": there["status"] | {"capacity": AMOUNTS, "allocatable": there["status"]["allocatable"] | AMOUNTS}})
    both = (other_pod(), asking({"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vcore": "10", "cambricon.com/mlu.smlu.vmemory": "20"}))
    check(wait_until(lambda: all(fits(scheduler, thing, ["n13"]) for thing in both)), "a node has devices of two vendors")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 400))
    for key in (LOCK, VENDORS["cambricon"]["lock"]):
        agent.client.patch_node({"metadata": {"annotations": {key: stamp}}})
        check(wait_until(lambda: key not in api.objects[NODES]["n13"]["metadata"]["annotations"], 5), f"{key}: a lock that is older than five minutes is removed")
    api.delete(NODES, "n13")


def main():
    seed = int(os.environ.get("SEED", time.time()))
    what, *amount = sys.argv[1:] or ["each"]
    if what == "random":
        test_at_random(float(amount[0]), seed)
    else:
        api = Api()
        api.set(NODES, node("ours"))
        scheduler = Scheduler(api)
        run_each(
            api, scheduler,
            test_the_lock_comes_before_the_binding, test_our_nodes_have_no_lock, test_two_at_once, test_a_turn_does_not_end_with_the_lock, test_a_lock_of_somebody_else,
            test_what_becomes_of_the_pod, test_the_api_server_refuses_the_lock, test_the_binding_is_refused, test_killed_between_lock_and_binding,
            test_turns_without_a_lock, test_an_agent_with_two_calls, test_either_lock_of_a_node_is_found, test_an_agent_that_falls_silent, test_killed_while_allocating, test_nodes_that_are_gone_leave_nothing, test_without_the_right,
        )  # fmt: skip
        run_part(test_a_server_that_does_not_say_whether, None)
        run_part(test_the_timeout_of_locks, None)
    finish()


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a decision to a bound pod, while the API server refuses, is silent or loses answers, many bind at once, and the
scheduler is stopped. What is granted is added up again by the pretended API server, each time it binds a pod.

usage: bind.py [each | random SECONDS | kills ROUNDS | silence]
"""

from support import *

HALF = CARD_MIB // 2
# What a real API server says of a Binding that it, or etcd behind it, may have carried out, or still will.
UNCERTAIN = (409, 500, 502, 503, 504)
LIES = [(when, status) for when in ("done", "late") for status in UNCERTAIN]
ACCIDENTS = [[404, 403, 429, "cut"], [404, 403, 429, *UNCERTAIN, "cut", "lost", "late", *LIES]]


def begin_bind(api, scheduler):
    thing = api.set(PODS, pod(HALF))
    check_equal(scheduler.filter(thing, ["node-1"])["NodeNames"], ["node-1"], "a pod is placed")
    return thing


def end_bind(api, thing):
    api.delete(PODS, f"ns/{thing['metadata']['name']}")


def test_what_is_refused_is_given_back(api, scheduler):
    for status in (404, 403):
        thing = begin_bind(api, scheduler)
        api.fail(status)
        error = scheduler.bind(thing, "node-1")
        check(str(status) in error, f"{status}: kube-scheduler is told so", error)
        check_equal(scheduler.view()["reserved"], [], f"{status}: the devices are free")
        check_equal(place(scheduler, thing, ["node-1"]), ("node-1", ""), f"{status}: the pod may be placed again")
        check(scheduler.sees_what_is(), f"{status}: and is seen")
        end_bind(api, thing)
        check(scheduler.sees_what_is(), f"{status}: and goes")

    def told():
        return [e for e in api.events if e["involvedObject"]["uid"] == thing["metadata"]["uid"]]

    check(wait_until(told), "an event says that a bind failed")
    check_equal([e["reason"] for e in told()], ["BindingFailed"], "with HAMi's reason")


def test_what_is_certain(api, scheduler):
    """What the API server says of the pod itself, even after a try that may have been carried out."""

    def rename(thing):
        api.set(PODS, pod(HALF, name=thing["metadata"]["name"]))

    def begin_delete(thing):
        api.set(PODS, thing | {"metadata": thing["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}})

    def bind_elsewhere(thing):
        api.set(PODS, thing | {"spec": thing["spec"] | {"nodeName": "node-9"}})

    for before in (None, 409, "cut"):
        for change in (end_bind_of(api), rename, begin_delete, bind_elsewhere):
            thing = begin_bind(api, scheduler)
            if before:
                api.fail(before)
            change(thing)
            begun = time.monotonic()
            error = scheduler.bind(thing, "node-1")
            words = f"{change.__name__} after {before}"
            check(error and time.monotonic() - begun < 5, f"{words}: kube-scheduler is told", error)
            check_equal(scheduler.view()["reserved"], [], f"{words}: the devices are free")
            check_equal([u for u in api.bound if u == thing["metadata"]["uid"]], [], f"{words}: it is not bound")
            end_bind(api, thing)
    check(scheduler.sees_what_is(), "nothing is left")


def end_bind_of(api):
    def delete(thing):
        end_bind(api, thing)

    return delete


def test_what_is_not_certain(api, scheduler):
    """Not carried out, carried out, or carried out a moment later: others never get what it may take."""
    for act in [*UNCERTAIN, *LIES, "late"]:
        thing, other = begin_bind(api, scheduler), api.set(PODS, pod(HALF + 1000))
        api.fail(act)
        error = []
        asking = threading.Thread(target=lambda: error.append(scheduler.bind(thing, "node-1")))
        asking.start()
        taken = wait_until(lambda: place(scheduler, other, ["node-1"])[0], 0.5)
        asking.join(30)
        check(not taken and error == [""], f"{act}: it is bound in the end, and others do not get its devices", error, taken)
        check_equal(api.bound.count(thing["metadata"]["uid"]), 1, f"{act}: once")
        for one in (thing, other):
            end_bind(api, one)
        check(scheduler.sees_what_is(), f"{act}: it goes")
    check_equal(api.granted_twice, [], "nothing was granted twice")


def test_what_somebody_else_bound(api, scheduler):
    """To the same node with other devices, while our try is in doubt: what the pod says is in force."""
    thing = begin_bind(api, scheduler)
    api.watch_lag_s = 1
    api.fail("cut")
    given = {ON_NODE: "node-1", ALLOCATED: "GPU-node-1-0,NVIDIA,25000,0:;"}
    api.set(PODS, thing | {"spec": thing["spec"] | {"nodeName": "node-1"}, "metadata": thing["metadata"] | {"annotations": given}})
    check(scheduler.bind(thing, "node-1"), "kube-scheduler is told that it was not ours")
    check(not fits(scheduler, pod(5001), ["node-1"]), "what it holds is held before the watch shows it")
    check(fits(scheduler, pod(5000), ["node-1"]), "and what we promised is free")
    api.watch_lag_s = 0
    end_bind(api, thing)
    check(scheduler.sees_what_is(), "it goes")


def test_another_pod_has_its_name_by_now(api, scheduler):
    """While our try is in doubt the pod is deleted and made anew: what runs under its name is not it."""
    for uid in ("0-before", "zz-behind"):
        thing = begin_bind(api, scheduler)
        metadata = thing["metadata"]
        api.fail("cut", 3)
        given = {ON_NODE: "node-1", ALLOCATED: "GPU-node-1-0,NVIDIA,1000,0:;"}
        again = pod(1000, name=metadata["name"], annotations=given)
        again["metadata"]["uid"] = uid
        again["spec"]["nodeName"] = "node-1"
        api.set(PODS, again)
        check(scheduler.bind(thing, "node-1"), f"{uid}: kube-scheduler is told that it is not bound")
        api.faults.clear()
        check(wait_until(lambda: fits(scheduler, pod(CARD_MIB - 1000), ["node-1"])), f"{uid}: and what it was promised is free", scheduler.view())
        end_bind(api, again)
        check(scheduler.sees_what_is(), f"{uid}: it goes")


def test_an_answer_after_the_end():
    """The pod is bound, deleted and missing from the next list before the bind's answer is here."""
    api = Api()
    api.set(NODES, node("node-1"))
    scheduler = Scheduler(api, "--bind-timeout=3s")
    thing = begin_bind(api, scheduler)
    api.fail(("slow", 4))
    api.fail(503, 1000, "GET", "/pods")
    api.forget()
    error = []
    asking = threading.Thread(target=lambda: error.append(scheduler.bind(thing, "node-1")))
    asking.start()
    wait_until(lambda: thing["metadata"]["uid"] in api.bound)
    end_bind(api, thing)
    before = len(api.seen("GET", "/pods"))
    api.faults.clear()
    check(wait_until(lambda: len(api.seen("GET", "/pods")) >= before + 2, 4), "a list and the next watch begin before the answer")
    asking.join(30)
    check_equal(error, [""], "the answer says that it is bound")
    check_equal([p["uid"] for p in scheduler.view()["reserved"]], [thing["metadata"]["uid"]], "so its devices are its own")
    begun = time.monotonic()
    check(wait_until(lambda: fits(scheduler, pod(CARD_MIB), ["node-1"]), 40, 0.5), "until the API server was asked about it")
    check(25 < time.monotonic() - begun < 35, "half a minute later", time.monotonic() - begun)
    scheduler.end()


def test_what_is_asked_to_wait_waits(api, scheduler):
    thing = begin_bind(api, scheduler)
    api.fail(429)
    check_equal(scheduler.bind(thing, "node-1"), "", "429: the bind is tried again")
    check_equal(len(api.seen("POST", f"{thing['metadata']['name']}/binding")), 2, "after the time that was asked for")
    check(scheduler.sees_what_is(), "429: and is seen")
    end_bind(api, thing)


def test_an_answer_that_never_came(api, scheduler):
    """Whether it was done or not, the pod has its devices, and others do not."""
    for act in ("lost", "late", "cut", 500, 503, *LIES):
        for times in (1, 3) if isinstance(act, str) else (3,):
            thing = begin_bind(api, scheduler)
            uid = thing["metadata"]["uid"]
            api.fail(act, times)
            error = scheduler.bind(thing, "node-1")
            if error:
                held = [r["uid"] for r in scheduler.view()["reserved"] + scheduler.view()["pods"]]
                bound = uid in api.bound
                check(uid in held or not bound, f"{act}, {times}: what may be bound stays reserved", error, held)
            else:
                check(uid in api.bound, f"{act}, {times}: what is said to be bound is", error)
            time.sleep(0.6)
            api.faults.clear()
            check(scheduler.sees_what_is(), f"{act}, {times}: it becomes what the API server has", scheduler.view(), api.live())
            end_bind(api, thing)
            check(scheduler.sees_what_is(), f"{act}, {times}: and is gone with the pod")
    check_equal(api.granted_twice, [], "nothing was granted twice")


def test_a_bind_that_is_done_late(api, scheduler):
    """After its connection was cut, and after the pod could be read and was not bound."""
    thing, other = begin_bind(api, scheduler), api.set(PODS, pod(HALF + 1000))
    api.fail("late")
    error = []
    asking = threading.Thread(target=lambda: error.append(scheduler.bind(thing, "node-1")))
    asking.start()
    taken = wait_until(lambda: place(scheduler, other, ["node-1"])[0], 1)
    asking.join(30)
    check(not taken and error == [""], "others do not get what it may still take", error)
    check_equal(api.granted_twice, [], "nothing was granted twice")
    for one in (thing, other):
        end_bind(api, one)
    check(scheduler.sees_what_is(), "it goes")


def test_nothing_is_sent_twice_unseen(api, scheduler):
    """On a connection that was used before, where transports like to try again by themselves."""
    for act in ("cut", "lost"):
        before = len(api.seen("POST", "/events"))
        api.fail(act, 1, suffix="/events")
        scheduler.filter(pod(100 * CARD_MIB), ["node-1"])
        wait_until(lambda: "an event could not be written" in scheduler.said())
        time.sleep(0.3)
        check_equal(len(api.seen("POST", "/events")) - before, 1, f"{act}: an event is sent once")


def test_while_the_api_server_is_away(api, scheduler):
    thing, other = begin_bind(api, scheduler), begin_bind(api, scheduler)
    third = pod(HALF)
    api.fail("lost")
    answers = []
    asking = threading.Thread(target=lambda: answers.append(scheduler.bind(thing, "node-1")))
    asking.start()
    wait_until(lambda: thing["metadata"]["uid"] in api.bound)
    api.go_away()
    time.sleep(1)
    check_equal(scheduler.filter(third, ["node-1"])["NodeNames"], None, "nobody is given what may be bound")
    view = scheduler.view()
    held = {p["uid"] for p in view["reserved"] + view["pods"]}
    check_equal(held, {t["metadata"]["uid"] for t in (thing, other)}, "it is held while nobody can say")
    api.come_back()
    asking.join(40)
    check(wait_until(lambda: thing["metadata"]["uid"] in [p["uid"] for p in scheduler.view()["pods"]], 20), "until it is seen", scheduler.said()[-2000:])
    check_equal(scheduler.bind(other, "node-1"), "", "then binds go on")
    check(scheduler.sees_what_is(), "and are seen")
    for one in (thing, other):
        end_bind(api, one)
    check(scheduler.sees_what_is(), "and go")


def test_a_bind_asked_for_twice(api, scheduler):
    thing = begin_bind(api, scheduler)
    api.holding = threading.Event()
    answers = []
    asking = threading.Thread(target=lambda: answers.append(scheduler.bind(thing, "node-1")))
    asking.start()
    wait_until(lambda: api.seen("POST", f"{thing['metadata']['name']}/binding"))
    check("under way" in scheduler.bind(thing, "node-1"), "a second bind is told that one is under way")
    check("under way" in scheduler.filter(thing, ["node-1"])["Error"], "so is a filter")
    api.holding.set()
    api.holding = None
    asking.join(20)
    check_equal(answers, [""], "the first is done")
    check_equal(len(api.seen("POST", f"{thing['metadata']['name']}/binding")), 1, "once")
    end_bind(api, thing)
    check(scheduler.sees_what_is(), "it goes")


def test_stopping(api, scheduler):
    api.set(NODES, node("node-2", 8))
    wait_until(lambda: len(scheduler.view()["nodes"]) == 2)
    things = [api.set(PODS, pod(1000)) for _ in range(12)]
    for thing in things:
        scheduler.filter(thing, ["node-2"])
    sent = len(api.seen("POST", "/binding"))
    api.holding = threading.Event()
    late = things.pop()
    done = []
    asking = threading.Thread(target=lambda: done.extend(in_threads([lambda t=t: scheduler.bind(t, "node-2") for t in things])))
    asking.start()
    wait_until(lambda: len(api.seen("POST", "/binding")) == sent + len(things))
    scheduler.process.terminate()
    wait_until(lambda: "stopping" in scheduler.said())
    check("stopping" in scheduler.bind(late, "node-2"), "told to stop, it begins no bind")
    check(scheduler.process.poll() is None, "it waits for those under way")
    begun = time.monotonic()
    api.holding.set()
    api.holding = None
    asking.join(20)
    check_equal(done, [""] * len(things), "answers them")
    check_equal(scheduler.process.wait(30), 0, "and ends with status 0")
    check(time.monotonic() - begun < 9, "without waiting longer", time.monotonic() - begun)
    check(all(t["metadata"]["uid"] in api.bound for t in things), "what it said is so")
    scheduler.start()
    check(scheduler.sees_what_is(), "the next one sees them")
    for thing in things:
        end_bind(api, thing)
    scheduler.end()
    check(True, "idle, it ends when told")


def test_stopping_while_nobody_answers():
    """It does not wait for ever, and leaves nobody waiting."""
    api = crowded_api()
    scheduler = Scheduler(api)
    things = [api.set(PODS, pod(1000)) for _ in range(4)]
    for thing in things:
        scheduler.filter(thing, ["node-1"])
    api.holding = threading.Event()
    done = []
    asking = threading.Thread(target=lambda: done.extend(in_threads([lambda t=t: scheduler.bind(t, "node-1") for t in things])))
    asking.start()
    wait_until(lambda: len(api.seen("POST", "/binding")) == len(things))
    begun = time.monotonic()
    scheduler.process.terminate()
    check_equal(scheduler.process.wait(20), 0, "it ends with status 0")
    check(9 < time.monotonic() - begun < 18, "after ten seconds", time.monotonic() - begun)
    asking.join(20)
    check_equal(set(done), {"the scheduler is stopping"}, "and says so to who waits")
    api.holding.set()


class Crowd:
    """Four clients that filter, bind, forget and delete as they like, with accidents on the way."""

    def __init__(self, api, scheduler, accidents):
        self.api, self.scheduler, self.accidents = api, scheduler, accidents
        self.names = ["node-1", "node-2"]
        self.lock = threading.Lock()
        self.things, self.undone = [], []
        self.placed = self.refused = self.failed = 0
        self.stop = False

    def one_step(self, chance):
        if self.accidents and chance.random() < 0.15:
            self.api.fail(chance.choice(self.accidents))
        if self.things and chance.random() < 0.35:
            with self.lock:
                thing = self.things.pop(chance.randrange(len(self.things))) if self.things else None
            if thing:
                end_bind(self.api, thing)
        if self.undone and chance.random() < 0.5:
            self.forget_one()
        thing = self.api.set(PODS, pod(chance.randrange(1, 12) * 1000, chance.choice([None, 10, 30])))
        done = False
        try:
            done = self.ask(thing, chance)
        finally:
            if done:
                self.things.append(thing)
            else:
                self.undone.append(thing)
                if chance.random() < 0.5:
                    end_bind(self.api, thing)

    def forget_one(self):
        with self.lock:
            thing = self.undone.pop(0) if self.undone else None
        free = False
        try:
            free = thing and "under way" not in give_back(self.scheduler, thing, self.names)
        finally:
            if free:
                end_bind(self.api, thing)
            elif thing:
                self.undone.append(thing)

    def ask(self, thing, chance):
        answer = self.scheduler.filter(thing, self.names)
        if not answer.get("NodeNames"):
            self.refused += 1
            return False
        if chance.random() < 0.1:
            return False
        error = self.scheduler.bind(thing, answer["NodeNames"][0])
        self.failed += bool(error)
        self.placed += not error
        return not error

    def client(self, seed):
        chance = random.Random(seed)
        while not self.stop:
            try:
                self.one_step(chance)
            except (OSError, http.client.HTTPException, json.JSONDecodeError, KeyError):
                time.sleep(0.01)  # the scheduler was killed

    def start(self, seed):
        self.stop = False
        self.threads = [threading.Thread(target=self.client, args=(seed * 10 + i,), daemon=True) for i in range(4)]
        for thread in self.threads:
            thread.start()

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join(60)
        self.api.faults.clear()
        self.give_back()

    def give_back(self):
        """What was promised to pods that are not bound, once it is known of all of them whether they are."""
        deadline = time.monotonic() + 40
        while self.undone and time.monotonic() < deadline:
            thing = self.undone.pop()
            if "under way" in give_back(self.scheduler, thing, self.names):
                self.undone.insert(0, thing)
                time.sleep(0.05)
            elif thing["metadata"]["uid"] not in self.api.bound:
                end_bind(self.api, thing)


def crowded_api():
    api = Api()
    for name in ("node-1", "node-2"):
        api.set(NODES, node(name, 2, count=5))
    return api


def test_at_random(seconds, seed):
    api = crowded_api()
    scheduler = Scheduler(api)
    crowd = Crowd(api, scheduler, [])
    for accidents in ACCIDENTS:
        crowd.accidents = accidents
        crowd.start(seed)
        time.sleep(seconds / 2)
        crowd.end()
    print(f"seed {seed}: {crowd.placed} placed, {crowd.refused} refused, {crowd.failed} failed")
    check(crowd.placed > 20 and crowd.refused > 0 and crowd.failed > 0, "pods were placed, refused, and not bound")
    check_equal(api.granted_twice[:3], [], "nothing is granted twice")
    check(scheduler.sees_what_is(40), "in the end the scheduler sees what is", scheduler.view()["reserved"], scheduler.said()[-2000:])
    for key in list(api.objects[PODS]):
        api.delete(PODS, key)
    check(scheduler.sees_what_is(), "and nothing, when nothing is left")
    check_equal({d["used"]["slots"] for n in scheduler.view()["nodes"] for d in n["devices"]}, {0}, "every card is free")
    scheduler.end()


def test_kills(rounds, seed):
    """Killed at any moment and started anew, it sees what is; killed again, the same."""
    chance = random.Random(seed)
    api = crowded_api()
    scheduler = Scheduler(api)
    wrong = []
    crowd = Crowd(api, scheduler, ACCIDENTS[1])
    for number in range(rounds):
        crowd.start(seed * 1000 + number)
        time.sleep(chance.uniform(0.05, 0.5))
        scheduler.kill_and_restart(ready=chance.random() < 0.5)
        time.sleep(chance.uniform(0, 0.2))
        wait_until(scheduler.is_ready, 20)
        crowd.end()
        if not scheduler.sees_what_is(40):
            wrong.append(("a view that is not what is", scheduler.view(), api.live()))
        before = scheduler.view()
        scheduler.kill_and_restart()
        if scheduler.view() != before:
            wrong.append(("another view after a restart", before, scheduler.view()))
        if wrong:
            break
    print(f"seed {seed}: {rounds} rounds, {crowd.placed} placed, {crowd.refused} refused, {crowd.failed} failed")
    check_equal(wrong[:1], [], f"killed {rounds} times, it always sees what is", scheduler.said()[-1000:])
    check_equal(api.granted_twice[:3], [], "nothing is granted twice")
    scheduler.end()


def main():
    seed = int(os.environ.get("SEED", time.time()))
    what, *amount = sys.argv[1:] or ["each"]
    if what == "random":
        test_at_random(float(amount[0]), seed)
    elif what == "silence":
        test_stopping_while_nobody_answers()
    elif what == "kills":
        test_kills(int(amount[0]), seed)
    else:
        api = Api()
        api.set(NODES, node("node-1"))
        scheduler = Scheduler(api)
        run_each(
            api, scheduler,
            test_what_is_refused_is_given_back, test_what_is_certain, test_what_is_not_certain, test_what_somebody_else_bound, test_another_pod_has_its_name_by_now,
            test_what_is_asked_to_wait_waits, test_an_answer_that_never_came,
            test_a_bind_that_is_done_late, test_nothing_is_sent_twice_unseen, test_while_the_api_server_is_away, test_a_bind_asked_for_twice, test_stopping,
        )  # fmt: skip
        run_part(test_an_answer_after_the_end)
    finish()


main()

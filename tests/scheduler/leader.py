#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several hami-schedulers, of which one decides: the one beside the kube-scheduler that holds the Lease. Each has a host
name of its own (a UTS namespace); kube-schedulers are pretended, and renew as client-go does, or not. They are killed,
stopped for longer than the lease, cut off from the API server, and the Lease is taken away from them.

usage: leader.py [each | random SECONDS]
"""

from datetime import datetime, timedelta, timezone

from support import *

NAME = "hami"
# As kube-scheduler's default of 15 s, 2 s, but five times as fast. A Binding may take 300 ms, and settles in 400.
DURATION_S, RENEW_S, MARGIN_S = 3, 0.4, 1.0
LONG_S, AT_ONCE_S = 9, 4.0  # of which two thirds are waited for where nobody says that there is nothing to wait for


def lease_now(holder, transitions, acquired=None, renewed=None, duration=DURATION_S):
    now = datetime.now(timezone.utc)
    stamp = lambda t: (t or now).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "metadata": {"name": NAME, "namespace": "kube-system"},
        "spec": {
            "holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": duration,
            "acquireTime": stamp(acquired), "renewTime": stamp(renewed),
        },
    }  # fmt: skip


class KubeScheduler:
    """Holds the Lease of its host while it renews: take() it, and until stop() it does."""

    def __init__(self, api, host):
        self.api, self.host, self.duration = api, host, DURATION_S
        self.stopped = threading.Event()
        self.stopped.set()

    def take(self, transitions):
        self.identity = f"{self.host}_{random.getrandbits(64):016x}"
        self.transitions, self.acquired = transitions, datetime.now(timezone.utc)
        self.stopped = threading.Event()
        self.renew()
        threading.Thread(target=self.run, args=(self.stopped,), daemon=True).start()

    def renew(self):
        """client-go keeps what it does not know."""
        with self.api.lock:
            lease = lease_now(self.identity, self.transitions, self.acquired, duration=self.duration)
            there = self.api.objects[LEASES].get(f"kube-system/{NAME}", lease)
            lease["metadata"] = there["metadata"]
            if there["spec"]["holderIdentity"] == "" and there["spec"]["leaseTransitions"] == self.transitions:
                self.transitions += 1  # it was taken away, and is taken anew
                lease["spec"]["leaseTransitions"] = self.transitions
            self.api.set_locked(LEASES, f"kube-system/{NAME}", lease)

    def run(self, stopped):
        while not stopped.wait(RENEW_S):
            if not stopped.is_set():
                self.renew()

    def stop(self):
        self.stopped.set()

    def release(self):
        """As kube-scheduler 1.36 does when it is told to end."""
        self.stop()
        with self.api.lock:
            lease = self.api.objects[LEASES][f"kube-system/{NAME}"]
            spec = lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
            self.api.set_locked(LEASES, f"kube-system/{NAME}", lease | {"spec": spec})


class Replica(Scheduler):
    """hami-scheduler on a host of this name."""

    def __init__(self, api, host, *flags, **more):
        self.host = host
        election = ["--leader-elect", f"--leader-elect-resource-name={NAME}", "--leader-elect-resource-namespace=kube-system"]
        super().__init__(api, *election, *flags, ready=False, **more)
        check_here(wait_until(self.answers, 20), self.said)

    def command(self):
        return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.host, *super().command()]

    def answers(self):
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def decides(self):
        return self.metric("hami_scheduler_leader") == 1


def replicas(count=2, *flags):
    api = Api()
    api.set(NODES, node("node-1"))
    hosts = [f"host-{n}" for n in range(count)]
    return api, [Replica(api, host, *flags) for host in hosts], [KubeScheduler(api, host) for host in hosts]


def refusal(scheduler, thing):
    return scheduler.filter(thing, ["node-1"])["Error"]


def end(*schedulers):
    for scheduler in schedulers:
        scheduler.process.kill()
        scheduler.process.wait()


def test_one_decides():
    api, (a, b), (beside_a, beside_b) = replicas()
    thing = api.set(PODS, pod(1000))
    for one in (a, b):
        check("not the leader" in refusal(one, thing), f"{one.host}: without a lease nothing is decided", refusal(one, thing))
        check("not the leader" in one.bind(thing, "node-1"), f"{one.host}: nor bound")
        check_equal(one.filter(pod(None), ["node-1"])["NodeNames"], ["node-1"], f"{one.host}: what is not ours passes")
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "r", "operation": "CREATE", "namespace": "ns", "kind": {"version": "v1", "kind": "Pod"}, "object": pod()}}
        status, text = one.ask("POST", "/webhook", review)
        check(status == 200 and json.loads(text)["response"]["allowed"], f"{one.host}: the webhook is answered", text)
        check_equal(one.metric("hami_scheduler_leader"), 0, f"{one.host}: the metric says that it does not decide")
    beside_a.take(5)
    check(wait_until(a.decides, 10), "the one beside the lease's holder decides", a.said()[-1000:])
    check("not the leader" in refusal(b, thing), "the other does not")
    check_equal(place(a, thing, ["node-1"]), ("node-1", ""), "a pod is placed")
    check(b.sees_what_is(), "which both see")
    check("hami_gpu_memory_allocated_bytes{" in a.metrics(), "what is granted is a metric of the leader's")
    check("hami_gpu_memory_allocated_bytes{" not in b.metrics(), "and not of the other's, so that sums count it once")
    binding = api.seen("POST", "/binding")[-1]
    check_equal(binding[3].get("timeout"), "300ms", "the API server is told when to give a Binding up")
    check(0 <= a.metric("hami_scheduler_lease_age_seconds") < DURATION_S, "the lease's age is a metric", a.metric("hami_scheduler_lease_age_seconds"))
    lists = len([r for r in api.seen("GET", "/pods") if not r[3].get("watch")])
    api.fail(403, 1000, "GET", f"/leases/{NAME}")
    check(wait_until(lambda: not a.decides(), 5), "who can't read the lease does not go on")
    check("can't be read: told to refuse with 403" in a.said(), "and says why", a.said()[-500:])
    api.faults.clear()
    check(wait_until(a.decides, 5), "until it can")
    check_equal(len([r for r in api.seen("GET", "/pods") if not r[3].get("watch")]), lists, "it is the same term: nothing is listed again")
    end(a, b)


def test_fail_over():
    """The lease expires, and another takes it: what waits is only a list."""
    api, (a, b), (beside_a, beside_b) = replicas()
    beside_a.take(5)
    check(wait_until(a.decides, 10), "one decides")
    thing = api.set(PODS, pod(20000))
    api.fail(("late", 504))
    asked = []
    threading.Thread(target=lambda: asked.append(suppress(lambda: place(a, thing, ["node-1"]))), daemon=True).start()
    check(wait_until(lambda: api.seen("POST", "/binding")), "it sends a Binding", asked)
    a.process.kill()
    beside_a.stop()
    time.sleep(DURATION_S + 0.1)
    begun = time.monotonic()
    beside_b.take(6)
    check(wait_until(b.decides, 10, 0.02), "another takes over")
    took = time.monotonic() - begun
    check(took < 2, "without a wait beyond the next look at the lease and the list", took)
    check(thing["metadata"]["uid"] in api.bound, "what the former sent was carried out after it was killed")
    check_equal(refusal(b, pod(11000)) or b.filter(pod(11000), ["node-1"])["NodeNames"], None, "and holds its devices")
    check_equal(place(b, api.set(PODS, pod(10000)), ["node-1"]), ("node-1", ""), "pods go on being placed")
    check_equal(api.granted_twice, [], "nothing is granted twice")
    end(b)


def lease_of(api):
    return api.objects[LEASES][f"kube-system/{NAME}"]


def ends(replica, seconds):
    with contextlib.suppress(subprocess.TimeoutExpired):
        return replica.process.wait(seconds)
    return None


def test_handed_back():
    """At an orderly end nobody waits until the lease expires."""
    api, (a, b), (beside_a, beside_b) = replicas()
    beside_a.duration = beside_b.duration = LONG_S
    beside_a.take(5)
    check(wait_until(a.decides, 10), "one decides")
    begun = time.monotonic()
    a.process.terminate()
    beside_a.stop()
    check(wait_until(lambda: lease_of(api)["spec"]["holderIdentity"] == "", 2), "it hands the lease back", a.said()[-500:])
    check_equal(lease_of(api)["metadata"]["annotations"], {"hami.io/handed-back": "5"}, "and says after which transition")
    check_equal(ends(a, LONG_S), 0, "it ends in order")
    check(time.monotonic() - begun < LONG_S / 2, "long before the lease would have expired", time.monotonic() - begun)
    begun = time.monotonic()
    beside_b.take(6)
    check(wait_until(b.decides, 10, 0.02), "another takes over")
    took = time.monotonic() - begun
    check(took < AT_ONCE_S, "without a wait beyond the next look at the lease and the list", took)
    beside_b.stop()
    beside_a.host = "elsewhere"
    beside_a.take(9)
    time.sleep(1.5)
    begun = time.monotonic()
    beside_a.stop()
    beside_b.take(10)
    check(wait_until(b.decides, 10, 0.02), "that was handed back once")
    check(time.monotonic() - begun > LONG_S * 2 / 3, "is no word about later holders", time.monotonic() - begun)
    end(b)


def test_given_up_by_kube_scheduler():
    """Which does not know of binds: the word that there is none under way is ours."""
    api, (a, b), (beside_a, beside_b) = replicas()
    beside_a.duration = beside_b.duration = LONG_S
    for told in (False, True):
        beside_a.take(5 + 10 * told)
        check(wait_until(a.decides, 10), "one decides")
        if told:
            a.process.terminate()
        beside_a.release()
        if told:
            check(wait_until(lambda: "annotations" in lease_of(api)["metadata"], 2), "it says that it has ended", a.said()[-500:])
            check_equal(ends(a, LONG_S), 0, "and ends")
        begun = time.monotonic()
        beside_b.take(6 + 10 * told)
        check(wait_until(b.decides, 10, 0.02), "another takes over")
        took = time.monotonic() - begun
        check(took < AT_ONCE_S if told else took > LONG_S * 2 / 3, "at once" if told else "a scheduler that goes on may send", took)
        beside_b.stop()
        time.sleep(0 if told else LONG_S)
    end(b)


def test_given_up_and_taken_at_once():
    """The next kube-scheduler looks just after the other one gave the lease up, and before the extender beside that one did:
    its word comes late, and is a word still."""
    api, (a, b), (beside_a, beside_b) = replicas()
    beside_a.duration = beside_b.duration = LONG_S
    beside_a.take(5)
    check(wait_until(a.decides, 10), "one decides")
    a.process.send_signal(signal.SIGSTOP)
    beside_a.release()
    beside_b.take(6)
    check(wait_until(lambda: "the lease is ours" in b.said(), 3), "the other one has the lease", b.said()[-500:])
    time.sleep(1.5)
    check(not b.decides(), "and waits for what the former may have sent")
    begun = time.monotonic()
    a.process.terminate()
    a.process.send_signal(signal.SIGCONT)
    check(wait_until(b.decides, 10, 0.02), "it decides")
    took = time.monotonic() - begun
    check(took < AT_ONCE_S - 1, "as soon as that one has said that nothing is on its way", took)
    check_equal(lease_of(api)["metadata"]["annotations"], {"hami.io/handed-back": "5"}, "of its own term")
    check(lease_of(api)["spec"]["holderIdentity"].startswith(b.host), "the holder is left alone")
    check_equal(ends(a, 2), 0, "and ends")
    beside_b.stop()
    end(b)


def test_handed_back_again():
    """The kube-scheduler renews after it was told to end: it has the lease again, for a moment."""
    api, (a, b), (beside_a, beside_b) = replicas()
    beside_a.take(5)
    check(wait_until(a.decides, 10), "one decides")
    thing = api.set(PODS, pod(1000))
    a.process.terminate()
    check(wait_until(lambda: lease_of(api)["spec"]["holderIdentity"] == "", 2, 0.001), "the lease is handed back")
    check(wait_until(lambda: lease_of(api)["spec"]["holderIdentity"], 2, 0.001), "and taken once more")
    refused = suppress(lambda: refusal(a, thing))
    check(refused is None or "stopping" in refused, "nothing is decided any more", refused)
    check(wait_until(lambda: lease_of(api)["metadata"]["annotations"]["hami.io/handed-back"] == "6", 2, 0.001), "and handed back once more")
    beside_a.stop()
    check_equal(ends(a, DURATION_S + 1), 0, "until the kube-scheduler is gone")
    beside_b.take(lease_of(api)["spec"]["leaseTransitions"] + 1)
    check(wait_until(b.decides, 2, 0.02), "another takes over at once")
    end(b)


def test_not_handed_back():
    """With a bind whose end is not known, or by one that does not decide, the lease is left alone."""
    api, (a, b), (beside_a, _) = replicas()
    beside_a.take(5)
    check(wait_until(a.decides, 10), "one decides")
    b.process.terminate()
    check_equal(ends(b, 2), 0, "the other one ends")
    check(lease_of(api)["spec"]["holderIdentity"].startswith(a.host), "and leaves the lease alone")
    api.fail(500, 100000)
    thing = api.set(PODS, pod(20000))
    threading.Thread(target=lambda: suppress(lambda: place(a, thing, ["node-1"])), daemon=True).start()
    wait_until(lambda: api.seen("POST", "/binding"))
    begun = time.monotonic()
    a.process.terminate()
    check(ends(a, 15) is not None, "with a bind under way it ends in the end")
    print(f"after {time.monotonic() - begun:.1f} s")
    check(lease_of(api)["spec"]["holderIdentity"].startswith(a.host), "and leaves the lease alone")
    check("annotations" not in lease_of(api)["metadata"], "without a word in it")
    beside_a.stop()
    end(a)


def test_not_allowed_to():
    api, (a,), (beside_a,) = replicas(1)
    beside_a.take(5)
    check(wait_until(a.decides, 10), "it decides")
    api.fail(403, 100, "PATCH", f"/leases/{NAME}")
    a.process.terminate()
    check_equal(ends(a, 3), 0, "who may not hand the lease back ends at once")
    check("can't be handed back" in a.said(), "and says so", a.said()[-500:])
    beside_a.stop()


def test_a_lease_taken_early():
    """Released, or deleted and made anew: the former leader may not know, and may still send."""
    api, (a, b), (beside_a, beside_b) = replicas()
    beside_a.take(5)
    check(wait_until(a.decides, 10), "one decides")
    a.process.send_signal(signal.SIGSTOP)
    beside_a.stop()
    begun = time.monotonic()
    beside_b.take(6)
    check(wait_until(b.decides, 10, 0.02), "another takes over")
    took = time.monotonic() - begun
    check(took > DURATION_S - MARGIN_S + 0.3, "after the time for which the former may send", took)
    a.process.send_signal(signal.SIGCONT)
    end(a, b)


def test_who_stood_still():
    """Stopped for longer than the lease with a decision made: nothing of it is sent."""
    api, (a, b), (beside_a, beside_b) = replicas()
    beside_a.take(5)
    check(wait_until(a.decides, 10), "one decides")
    thing, other = api.set(PODS, pod(20000)), api.set(PODS, pod(20000))
    check_equal(a.filter(thing, ["node-1"])["NodeNames"], ["node-1"], "it decides")
    a.process.send_signal(signal.SIGSTOP)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(a.bind(thing, "node-1")))
    asking.start()
    beside_a.stop()
    time.sleep(DURATION_S + 0.1)
    beside_b.take(6)
    check(wait_until(b.decides, 10), "meanwhile another takes over")
    check_equal(place(b, other, ["node-1"]), ("node-1", ""), "and gives the devices to another pod")
    sent = len(api.seen("POST", "/binding"))
    a.process.send_signal(signal.SIGCONT)
    asking.join(10)
    check(answers and answers[0], "the one that stood still refuses the bind", answers)
    time.sleep(1)
    check_equal(len(api.seen("POST", "/binding")), sent, "and sends nothing")
    check_equal(api.granted_twice, [], "nothing is granted twice")
    end(a, b)


def test_lost_with_a_bind_under_way():
    """It is in doubt when the lease is lost: not sent again, and held until the next term's list."""
    api, (a, b), (beside_a, beside_b) = replicas()
    beside_a.take(5)
    check(wait_until(a.decides, 10), "one decides")
    thing = api.set(PODS, pod(20000))
    api.fail(500, 1000)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(place(a, thing, ["node-1"])))
    asking.start()
    wait_until(lambda: api.seen("POST", "/binding"))
    beside_a.stop()
    time.sleep(DURATION_S - MARGIN_S + 1.5)
    sent = len(api.seen("POST", "/binding"))
    time.sleep(1)
    check_equal(len(api.seen("POST", "/binding")), sent, "with an old lease nothing is sent again")
    check_equal([p["uid"] for p in a.view()["reserved"]], [thing["metadata"]["uid"]], "the devices stay reserved")
    beside_b.take(6)
    asking.join(15)
    check(answers and "no longer the leader" in answers[0][1], "lost: kube-scheduler is told", answers)
    check_equal(len(a.view()["reserved"]), 1, "they stay reserved still")
    api.faults.clear()
    check(wait_until(b.decides, 10), "another decides")
    check_equal(place(b, api.set(PODS, pod(15000)), ["node-1"]), ("node-1", ""), "the next leader has them, since it was never carried out")
    beside_b.stop()
    time.sleep(DURATION_S + 0.1)
    beside_a.take(7)
    check(wait_until(a.decides, 10), "the first decides again")
    check(a.sees_what_is(), "from what is")
    check_equal(place(a, api.set(PODS, pod(15000)), ["node-1"]), ("node-1", ""), "and gives what is left")
    check_equal(api.granted_twice, [], "nothing is granted twice")
    end(a, b)


def test_restarted_beside_the_leader():
    """Killed with a Binding on its way, which is carried out after the next process has read everything."""
    api, (a,), (beside_a,) = replicas(1)
    beside_a.take(5)
    check(wait_until(a.decides, 10), "it decides")
    api.fail(("late", 504), 1)
    thing = api.set(PODS, pod(20000))
    threading.Thread(target=lambda: suppress(lambda: place(a, thing, ["node-1"])), daemon=True).start()
    wait_until(lambda: api.seen("POST", "/binding"))
    a.kill_and_restart(ready=False)
    wait_until(a.answers, 10)
    other = api.set(PODS, pod(20000))
    placed = wait_until(lambda: place(a, other, ["node-1"])[0], 3, 0.01)
    check(not placed and a.decides(), "the next process does not give away what may be bound")
    check_equal(api.granted_twice, [], "nothing is granted twice")
    check(a.sees_what_is(), "and sees it", a.view(), api.live())
    end(a)


def suppress(function):
    with contextlib.suppress(Exception):
        return function()


def important(memory, priority):
    thing = pod(memory)
    thing["spec"]["priority"] = priority
    return thing


def test_evictions_end_with_a_term():
    """A former leader evicts nobody; the next one evicts nobody for whom somebody goes already."""
    api, (a, b), (beside_a, beside_b) = replicas(2, "--evict-for-devices")
    api.grace_s = 6
    beside_a.take(5)
    check(wait_until(a.decides, 10), "one decides")
    holders = [api.set(PODS, important(15000, priority)) for priority in (4, 5)]
    for thing in holders:
        check_equal(place(a, thing, ["node-1"]), ("node-1", ""), "a card is filled")
    check(a.sees_what_is() and b.sees_what_is(), "which both see")
    urgent = api.set(PODS, important(15000, 10))
    check_equal(a.filter(urgent, ["node-1"])["NodeNames"], None, "a more important pod is refused")
    beside_a.stop()
    beside_b.take(6)
    time.sleep(2.5)
    check_equal(api.evicted, [], "who is not the leader any more evicts nobody for it")
    check(wait_until(b.decides, 10), "another leads")
    check_equal(b.filter(urgent, ["node-1"])["NodeNames"], None, "it refuses the pod, too")
    check(wait_until(lambda: api.evicted, 10), "and evicts another for it")
    beside_b.stop()
    beside_a.take(7)
    check(wait_until(a.decides, 10), "the first one leads again, while the victim ends")
    begun = time.monotonic()
    check(wait_until(lambda: a.filter(urgent, ["node-1"])["NodeNames"], 15, 0.5), "it places the pod when the victim has ended")
    print(f"after {time.monotonic() - begun:.1f} s")
    check_equal(api.evicted, [holders[0]["metadata"]["uid"]], "nobody else went")
    end(a, b)


def test_at_random(seconds, seed):
    """Two replicas, of which kube-schedulers ask whichever is beside them, with all that goes wrong at once."""
    chance = random.Random(seed)
    api, schedulers, besides = replicas(2, "-v1")
    accidents = [404, 429, 409, 500, 504, "cut", "lost", "late", ("done", 500), ("late", 409), ("late", 504)]
    stop = threading.Event()
    whys = {}
    counts = {"placed": 0, "refused": 0, "failed": 0, "terms": 0, "handed back": 0}

    def client(scheduler, seed):
        mine = random.Random(seed)
        things = []
        while not stop.is_set():
            if mine.random() < 0.3 and not any(fault[2] for fault in api.faults):
                api.fail(mine.choice(accidents))
            if len(things) > 3 or (things and mine.random() < 0.3):
                thing = things.pop(mine.randrange(len(things)))
                api.delete(PODS, f"ns/{thing['metadata']['name']}")
            thing = api.set(PODS, pod(mine.randrange(1, 15) * 1000))
            things.append(thing)
            node_, why = suppress(lambda: place(scheduler, thing, ["node-1"])) or (None, "")
            if not node_ and isinstance(why, str):
                whys[re.sub(r"[a-z]+/pod-\d+", "POD", why)] = whys.get(re.sub(r"[a-z]+/pod-\d+", "POD", why), 0) + 1
            counts["placed" if node_ else "refused" if isinstance(why, dict) else "failed"] += 1
            time.sleep(0.002 if node_ else mine.random() * 0.1)
            scheduler.local.connection = None if mine.random() < 0.1 else getattr(scheduler.local, "connection", None)

    threads = [threading.Thread(target=client, args=(s, seed * 100 + i), daemon=True) for i, s in enumerate(schedulers * 2)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    transitions = 5
    leading = 0
    besides[0].take(transitions)
    while time.monotonic() < until:
        counts["terms"] += 1
        time.sleep(chance.uniform(0.5, 4))
        how = chance.choice(["killed", "stopped", "ended", "ended", "stays", "pause"])
        victim = schedulers[leading]
        if how == "pause":  # its kube-scheduler renews too late, and keeps the lease
            besides[leading].stop()
            time.sleep(chance.uniform(0.5, DURATION_S))
            with api.lock:
                besides[leading].stopped = threading.Event()
            threading.Thread(target=besides[leading].run, args=(besides[leading].stopped,), daemon=True).start()
            continue
        if how == "killed":
            victim.process.kill()
        elif how == "stopped":
            victim.process.send_signal(signal.SIGSTOP)
        elif how == "ended":
            victim.process.terminate()
            time.sleep(chance.choice([0, 0, chance.uniform(0, 0.5)]))
        besides[leading].stop()
        transitions = besides[leading].transitions
        if how != "ended" or not wait_until(lambda: not lease_of(api)["spec"]["holderIdentity"], DURATION_S):
            time.sleep(DURATION_S + chance.uniform(0.05, 1))
        counts["handed back"] += not lease_of(api)["spec"]["holderIdentity"]
        leading, transitions = 1 - leading, transitions + 1
        besides[leading].take(transitions)
        time.sleep(chance.uniform(0, 1.5))
        if how in ("killed", "ended"):
            victim.process.wait()
            victim.start(ready=False)
        elif how == "stopped":
            victim.process.send_signal(signal.SIGCONT)
    stop.set()
    for thread in threads:
        thread.join(30)
    api.faults.clear()
    print(f"seed {seed}: {counts}", *sorted(whys.items(), key=lambda pair: -pair[1])[:6], sep="\n  ")
    check(counts["placed"] > seconds / 3 and counts["terms"] >= seconds / 10, "pods were placed in several terms", counts)
    check_equal(api.granted_twice[:3], [], "nothing is granted twice")
    check(wait_until(schedulers[leading].decides, 20), "in the end one decides")
    check(schedulers[leading].sees_what_is(40), "and sees what is", schedulers[leading].view(), api.live())
    end(*schedulers)


def main():
    seed = int(os.environ.get("SEED", time.time()))
    what, *amount = sys.argv[1:] or ["each"]
    if run(["unshare", "--uts", "true"], None).returncode:
        skip("no right to give a process a host name of its own (unshare --uts)")
    if what == "random":
        test_at_random(float(amount[0]), seed)
    else:
        run_part(test_one_decides)
        run_part(test_fail_over)
        run_part(test_handed_back)
        run_part(test_given_up_by_kube_scheduler)
        run_part(test_handed_back_again)
        run_part(test_not_handed_back)
        run_part(test_not_allowed_to)
        run_part(test_a_lease_taken_early)
        run_part(test_who_stood_still)
        run_part(test_lost_with_a_bind_under_way)
        run_part(test_restarted_beside_the_leader)
        run_part(test_evictions_end_with_a_term)
    finish()


main()

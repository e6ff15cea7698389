#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two whole pairs of kube-scheduler and extender, as two replicas of deploy/scheduler.yaml, each with a host name of its own
(a UTS namespace), beside a stream of pods that fill a card. The leading pair is killed as with its node; the next is
stopped for longer than its lease and goes on. kube-scheduler's lease times are its own: 15 s, renewed every 2 s.

Nothing is ever given twice, pods go on being placed, and how long that took is told in its parts: until another
kube-scheduler has the lease (its own rules), until the extender beside it decides (ours), and until a pod is bound.
"""

import os
import signal

from support import *

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/hami-scheduler"
SHARE_MIB = 7000
# client-go: the lease's duration, and twice its period between two looks, which is 2 s to 4.4 s.
LEASE_OWN_S = 15 + 2 * 4.4 + 1
OURS_S = 2.5
HANDED_BACK_S = 4.4 + 2  # one look of the other kube-scheduler's, and what is under way
LAST_STEP_S = 10 + 4  # kube-scheduler's longest pause before it tries a pod again, and moments
NO_WEBHOOK = {"hami.io/webhook": "ignore"}  # it is the extender's of the cluster, which is away


class Pair:
    """As a pod of the Deployment: both on one host, each started again when it ends, until the host is lost."""

    def __init__(self, name, number):
        self.name, self.number = name, number
        self.processes = {}
        self.log = WORK / "log" / f"{name}.log"
        config = (WORK / "kube-scheduler.yaml").read_text()
        self.config = WORK / f"kube-scheduler-{name}.yaml"
        self.config.write_text(programs.replace_once(config, EXTENDER, f"https://127.0.0.1:{self.port(9443)}"))

    def port(self, base):
        return base + 100 * self.number

    def lines(self):
        extender = [str(w) for w in programs.ours()["hami-scheduler"] if not str(w).startswith(("--http_bind", "--metrics"))]
        scheduler = [str(w) for w in programs.kubernetes(BINARIES)["kube-scheduler"] if not str(w).startswith("--config=")]
        return {
            "extender": [*extender, f"--http_bind=127.0.0.1:{self.port(9443)}", f"--metrics-bind-address=127.0.0.1:{self.port(9395)}"],
            "kube-scheduler": [*scheduler, f"--config={self.config}", f"--secure-port={self.port(10259)}"],
        }

    def start(self):
        for what, line in self.lines().items():
            self.start_one(what, line)

    def start_one(self, what, line):
        words = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name, *line]
        with open(self.log, "ab") as log:
            self.processes[what] = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def tend(self):
        """As kubelet does: what ended is started again. Returns what had ended."""
        ended = [what for what, process in self.processes.items() if process.poll() is not None]
        for what in ended:
            self.start_one(what, self.lines()[what])
        return ended

    def send(self, number):
        for process in self.processes.values():
            process.send_signal(number)

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.processes = {}

    def decides(self):
        return sample(samples(f"127.0.0.1:{self.port(9395)}"), "hami_scheduler_leader") == 1

    def leads(self):
        spec = (api.find(LEASE) or {}).get("spec", {})
        return (spec.get("holderIdentity") or "").startswith(f"{self.name}_")


class Stream:
    """Makes pods, ends the oldest that runs when the card is full, and counts what is given each time it looks."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.made = 0
        self.bound = {}  # name -> when it was first seen with a node
        self.twice = []
        self.errors = set()
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopped.wait(0.1):
            try:
                self.turn()
            except (ApiError, OSError) as error:
                if str(error) not in self.errors:  # each once: they come ten times a second
                    print(f"      {error}")
                self.errors.add(str(error))

    def turn(self):
        there = pods(self.namespace)
        live = [p for p in there if p["spec"].get("nodeName") and p["status"]["phase"] not in ("Succeeded", "Failed")]
        for thing in live:
            self.bound.setdefault(thing["metadata"]["name"], time.monotonic())
        given = sum(d[2] for thing in live for inside in allocated(thing) for d in inside)
        if given > CARD_MIB:
            self.twice.append((given, [p["metadata"]["name"] for p in live]))
        running = sorted((p for p in live if is_running(p) and not p["metadata"].get("deletionTimestamp")), key=lambda p: p["metadata"]["creationTimestamp"])
        if len(running) >= 3:
            api.delete(pods_path(self.namespace, running[0]["metadata"]["name"]), grace=0)
        if sum(1 for p in there if not p["spec"].get("nodeName")) < 3:
            self.made += 1
            create(self.namespace, slice_pod(f"p-{self.made}", SHARE_MIB, 5, labels=NO_WEBHOOK, schedulerName="hami-scheduler"))

    def first_after(self, moment):
        return min((at for at in list(self.bound.values()) if at > moment), default=None)

    def end(self):
        self.stopped.set()
        self.thread.join(30)


def await_placing(stream, since, seconds):
    wait_until(lambda: stream.first_after(since), seconds, 0.05)
    return stream.first_after(since)


def check_fail_over(begun, stream, follower, how):
    leads = wait_until(follower.leads, 60, 0.05) and time.monotonic()
    check(leads, f"{how}: the other kube-scheduler takes the lease")
    decides = wait_until(follower.decides, 30, 0.02) and time.monotonic()
    check(decides, f"{how}: the extender beside it decides")
    placed = await_placing(stream, decides or begun, 30)
    if not check(leads and decides and placed, f"{how}: pods go on being placed"):
        print(follower.log.read_text(errors="replace")[-3000:])
        return
    parts = (leads - begun, decides - leads, placed - decides)
    print("      %s: lease %.1f s (kube-scheduler's own), then ours %.2f s, then the first pod %.1f s; in all %.1f s" % (how, *parts, sum(parts)))
    check(parts[0] < LEASE_OWN_S, f"{how}: the lease is taken when its own rules allow", parts)
    check(parts[1] < OURS_S, f"{how}: we need a look at the lease and a list of pods", parts)
    check(parts[2] < LAST_STEP_S, f"{how}: and kube-scheduler tries its pods again", parts)


def check_killed(leader, follower, stream):
    begun = time.monotonic()
    leader.end()
    check_fail_over(begun, stream, follower, "killed")


def check_stopped(leader, follower, stream):
    begun = time.monotonic()
    leader.send(signal.SIGSTOP)
    check_fail_over(begun, stream, follower, "stopped")
    leader.send(signal.SIGCONT)
    resumed = time.monotonic()
    check(wait_until(lambda: "kube-scheduler" in leader.tend(), 30, 0.1), "gone on, its kube-scheduler finds the lease lost and ends")
    check(not leader.decides(), "its extender does not decide")
    time.sleep(5)
    check(await_placing(stream, resumed, 15), "the follower goes on placing pods")
    check(follower.decides() and not leader.decides(), "and is the one that decides")


def check_ended(leader, follower, stream):
    """As in a rolling update: both are told to end."""
    begun = time.monotonic()
    leader.send(signal.SIGTERM)
    check(wait_until(lambda: all(p.poll() is not None for p in leader.processes.values()), 10, 0.05), "ended: a pair that is told to end does")
    print(f"      after {time.monotonic() - begun:.1f} s")
    leads = wait_until(follower.leads, 30, 0.05) and time.monotonic()
    decides = wait_until(follower.decides, 30, 0.02) and time.monotonic()
    if not check(leads and decides, "ended: the other one decides"):
        print(follower.log.read_text(errors="replace")[-3000:], leader.log.read_text(errors="replace")[-2000:])
        return
    print("      ended: lease %.1f s, then ours %.2f s" % (leads - begun, decides - leads))
    check(leads - begun < HANDED_BACK_S, "ended: the lease is handed back, not waited for", leads - begun)
    check(decides - leads < OURS_S, "ended: and nobody is waited for", decides - leads)
    check(await_placing(stream, decides, 30), "ended: pods go on being placed")
    leader.end()


def check_kube_scheduler_restarted(leader, stream):
    """Under another identity, so it waits for its own lease; the extender beside it begins a new term."""
    begun = time.monotonic()
    leader.processes["kube-scheduler"].kill()
    leader.processes["kube-scheduler"].wait()
    leader.tend()
    check(await_placing(stream, begun + 10, 60), "a killed kube-scheduler, the only one there is, comes back to its lease")


def main():
    need()
    use_machine(1)
    namespace = new_namespace("leaders")
    with held("kube-scheduler", "hami-scheduler"):
        pairs = [Pair("replica-a", 0), Pair("replica-b", 1)]
        stream = None
        try:
            pairs[0].start()
            check(wait_until(pairs[0].decides, 60, 0.1), "a first pair decides once the lease is its own")
            pairs[1].start()
            stream = Stream(namespace)
            check(await_placing(stream, time.monotonic(), 30), "pods are placed")
            time.sleep(6)
            check(not pairs[1].decides(), "the second pair waits")
            check_ended(*pairs, stream)
            pairs[0].start()
            time.sleep(6)
            check_killed(pairs[1], pairs[0], stream)
            pairs[1].start()
            time.sleep(6)
            check_stopped(*pairs, stream)
            pairs.reverse()
            pairs[1].end()
            check_kube_scheduler_restarted(pairs[0], stream)
            stream.end()
            check(len(stream.bound) > 10, f"{len(stream.bound)} pods were placed in all", len(stream.bound))
            check_equal(stream.twice[:2], [], "nothing was given twice")
        finally:
            if stream:
                stream.end()
            for pair in pairs:
                pair.end()
            api.delete(LEASE)
    finish()


if __name__ == "__main__":
    main()

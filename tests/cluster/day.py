#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node's day in minutes: pods of every kind come and go while programs are killed and cards fail.

    day.py [PODS [SEED]]

A pod's containers look at their share, take most of it, are refused more than it, launch, and end. No pod may
fail for a reason of ours, no limit may be wrong, and nothing may be left of any of them. What Kubernetes itself
does to pods at such moments is seen on bystanders, which ask for nothing of ours.
"""

import collections
import dataclasses
import random

from instances import mig, node, registered_cards
from kills import create_stubbornly, leftovers
from support import *

CARDS = 4
AT_ONCE = 14
PATIENCE_S = 240
PROGRAMS = ("kubelet", "containerd", "hami-device-plugin", "hami-vgpu-monitor", "kube-apiserver", "hami-scheduler")
STATIC = "nvidia.com/mig-3g.20gb"
INSTANCES_MIB = (4864, 9856, 19968, 40192)
OUT_OF_MEMORY = 2
# kubelet fails a pod for good that it asks for while no plugin is registered, or when that dies before it has answered.
NOT_ASKED = ("no healthy devices present", "Allocate failed due to rpc error: code = Unavailable")
AGAIN = "if [ -e /mark/there ]; then exec {0}; fi; echo >/mark/there; {0}; exit 7"
MARKED = 7


def looks(mib, *more, then=300):
    """Takes all but a context and something, then more than is left."""
    return ("/bin/slice", "--hold", str(mib - 200), "--then", str(then), *more)


def shared(dice):
    return dice.choice((600, 1000, 2500, 6000)), dice.choice((2, 5, 10))


class Kind:
    """How a pod is made, and what each of its containers must see: MiB of a card, or of one of several sizes."""

    def plain(name, dice):
        mib, cores = shared(dice)
        return pod(name, container(command=looks(mib), limits=share(1, mib, cores))), {"main": mib}

    def launches(name, dice):
        command = ("/bin/load", "--seconds", "1", "--kernel", "200us", "--memory", "200M")
        return pod(name, container(command=command, limits=share(1, 600, 20))), {"main": None}

    def prepared(name, dice):
        first, main = shared(dice), shared(dice)
        made = pod(
            name, container(command=looks(main[0]), limits=share(1, *main)),
            initContainers=[container("first", looks(first[0]), share(1, *first))],
        )
        return made, {"first": first[0], "main": main[0]}

    def sidecar(name, dice):
        side, main = shared(dice), shared(dice)
        made = pod(
            name, container(command=looks(main[0]), limits=share(1, *main)),
            initContainers=[container("side", looks(side[0], "--stay"), share(1, *side), restartPolicy="Always")],
        )
        return made, {"side": side[0], "main": main[0]}

    def several(name, dice):
        pairs = {f"c{i}": shared(dice) for i in range(3)}
        return pod(name, *(container(c, looks(p[0]), share(1, *p)) for c, p in pairs.items())), {c: p[0] for c, p in pairs.items()}

    def both(name, dice):
        mib, cores = shared(dice)
        return pod(name, container(command=looks(mib), limits=share(2, mib, cores))), {"main": mib}

    def again(name, dice):
        mib, cores = shared(dice)
        command = ("sh", "-c", AGAIN.format(" ".join(looks(mib))))
        mark = {"volumes": [{"name": "mark", "emptyDir": {}}]}
        return pod(name, container(command=command, limits=share(1, mib, cores), volumeMounts=[{"name": "mark", "mountPath": "/mark"}]), **mark), {"main": mib}

    def static(name, dice):
        return pod(name, container(command=looks(19968), limits={STATIC: "1"})), {"main": 19968}

    def instance(name, dice):
        """One that is free on a card in use may be larger than what was asked for."""
        notes = {"nvidia.com/vgpu-mode": "mig"}
        asked = dice.choice((4000, 8000, 18000))
        return (
            pod(name, container(command=looks(asked, then=20000), limits=share(1, asked)), annotations=notes),
            {"main": [size for size in INSTANCES_MIB if size >= asked]},
        )

    def bystander(name, dice):
        return pod(name, container(command=("sleep", "1"))), {}


MORNING = [Kind.plain] * 3 + [Kind.launches, Kind.prepared, Kind.sidecar, Kind.several, Kind.both, Kind.again, Kind.static, Kind.bystander]
EVENING = [Kind.instance] * 4 + [Kind.bystander]


def told_of(name):
    """What the device plugin said of a pod."""
    text = (host.WORK / "log/hami-device-plugin.log").read_text(errors="replace")
    return [line for line in text.splitlines() if f"/{name}" in line]


@dataclasses.dataclass
class UnderWay:
    sees: dict  # what each of its containers must
    made: float
    kind: object
    silent: int = 0  # looks at what it said that found nothing


class Day:
    def __init__(self, namespace, dice):
        self.namespace, self.dice = namespace, dice
        self.pods = {}  # those that have not ended, by name
        self.ended = []  # to be deleted
        self.done = collections.Counter()
        self.counts = collections.Counter()
        self.wrong = []
        self.slowest = 0
        self.over = threading.Event()
        self.number = self.rejected = 0

    def make(self, kind):
        name = f"{kind.__name__}-{self.number}"
        self.number += 1
        manifest, sees = kind(name, self.dice)
        # As a job's: a start that was cut short is tried again.
        manifest["spec"]["restartPolicy"] = "OnFailure"
        for part in manifest["spec"]["containers"] + manifest["spec"].get("initContainers", []):
            part["terminationMessagePolicy"] = "FallbackToLogsOnError"
        made = create_stubbornly(self.namespace, manifest, 60)
        if isinstance(made, Exception):
            self.wrong.append((name, "was not accepted", str(made)))
        else:
            self.pods[name] = UnderWay(sees, time.monotonic(), kind)

    def go_on(self, count, kinds):
        """Keeps so many pods under way until `count` have ended."""
        begun = self.number - self.rejected
        lacking = lambda: count - (self.number - self.rejected - begun)
        while self.pods or self.ended or lacking():
            while len(self.pods) < AT_ONCE and lacking():
                self.make(self.dice.choice(kinds))
            try:
                for thing in pods(self.namespace):
                    self.look(thing)
                while self.ended:
                    api.delete(pods_path(self.namespace, self.ended[0]))
                    del self.ended[0]
            except (ApiError, OSError):
                pass  # it was killed
            time.sleep(0.3)

    def look(self, thing):
        name, status = thing["metadata"]["name"], thing["status"]
        if name not in self.pods:
            return
        under_way = self.pods[name]
        took = time.monotonic() - under_way.made
        if status.get("phase") == "Failed":
            self.failed(thing, under_way.kind)
        elif status.get("phase") == "Succeeded":
            if not self.judge(thing, under_way.sees):
                return
            self.done[under_way.kind.__name__] += 1
            self.slowest = max(self.slowest, took)
        elif took < PATIENCE_S:
            return
        else:
            self.wrong.append((name, f"has not ended after {PATIENCE_S} s", why(self.namespace, name)))
        del self.pods[name]
        self.ended.append(name)
        ended = self.number - len(self.pods)
        if ended % 100 == 0:
            print(f"      {ended} have ended, {self.rejected} of them turned away", flush=True)

    def failed(self, thing, kind):
        """A controller makes another where kubelet turned one away."""
        message = thing["status"].get("message", "")
        if thing["status"].get("reason") == "UnexpectedAdmissionError" and any(words in message for words in NOT_ASKED):
            self.counts["failed by kubelet while the plugin was away"] += 1
            self.rejected += 1
            self.make(kind)
        else:
            self.wrong.append((thing["metadata"]["name"], "failed", why(self.namespace, thing["metadata"]["name"])))

    def judge(self, thing, sees):
        """False: what its containers said can't be read yet."""
        name = thing["metadata"]["name"]
        for inside, mib in sees.items():
            text = logs(self.namespace, name, inside)
            lines = [line for line in text.splitlines() if line.startswith("{")]
            if mib is None:
                continue
            if not lines:
                return self.silent(name, inside, text)
            said = json.loads(lines[-1])
            given = [card["bytes"] // MIB for card in said["cuda"]] + [card["bytes"] // MIB for card in said["nvml"]]
            sizes = mib if isinstance(mib, list) else [mib]
            if len(set(given)) != 1 or given[0] not in sizes or (said["hold"], said["then"], said["preloaded"]) != (0, OUT_OF_MEMORY, True):
                self.wrong.append((name, inside, f"was to see {mib} MiB, and to be held to them", said, told_of(name)))
        for one in statuses(thing) + statuses(thing, "initContainerStatuses"):
            self.judge_ends(name, one)
        return True

    def silent(self, name, inside, text):
        self.pods[name].silent += 1
        if self.pods[name].silent < 30:
            return False
        self.wrong.append((name, inside, "said nothing", text))
        return True

    def judge_ends(self, name, one):
        """How its containers ended: a program that found something wrong says so."""
        ended = [state["terminated"] for state in (one["state"], one.get("lastState", {})) if "terminated" in state]
        for end in ended:
            if end["exitCode"] == 0 or (end["exitCode"] == MARKED and name.startswith("again")):
                continue
            if end.get("reason") == "Error" and end["exitCode"] not in (137, 143, 255):
                self.wrong.append((name, one["name"], end))
            else:
                self.counts[f"ended as {end.get('reason')}, {end['exitCode']}, and tried again"] += 1
        self.counts["restarts"] += one["restartCount"]

    # Harm

    def kill(self):
        dice = random.Random(self.dice.random())
        while not self.over.wait(dice.uniform(6, 14)):
            program = dice.choice(PROGRAMS)
            try:
                gone = programs.kill(program)
            except (host.ClusterError, ProcessLookupError):
                continue
            self.counts[f"{program} killed"] += 1
            if not programs.back(program, gone, 30):
                self.wrong.append((program, "was not started again"))

    def fail_cards(self):
        dice = random.Random(self.dice.random())
        while not self.over.wait(dice.uniform(60, 120)):  # a card is back a minute after its error
            card = dice.randrange(1, CARDS)  # the first one's instances are all there are of theirs
            host.output(programs.HAMICTL, "sim", "fault", f"--gpu={card}", "--xid=79", "--action=reset", programs.SIM)
            self.counts["cards failed"] += 1
            self.over.wait(dice.uniform(3, 10))
            host.output(programs.HAMICTL, "sim", "fault", f"--gpu={card}", "--state=ok", programs.SIM)


@contextlib.contextmanager
def harm(day):
    day.over.clear()
    threads = [threading.Thread(target=what) for what in (day.kill, day.fail_cards)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        day.over.set()
        for thread in threads:
            thread.join()


def healthy(mode, count):
    return [card.get("health") for card in registered_cards() if card["mode"] == mode].count(True) >= count


def part(day, count, kinds, sentence):
    begun = time.monotonic()
    with harm(day):
        day.go_on(count, kinds)
    print(f"      {sentence}: {count} pods in {time.monotonic() - begun:.0f} s")
    wait_until(reachable, 60)
    check(wait_until(lambda: not pods(day.namespace), 60, 0.2), f"{sentence}: all pods go", [p["metadata"]["name"] for p in pods(day.namespace)])


def cut(found):
    assert found.set_mode(0) == 0
    for start in (0, 4):
        found.make(0, "3g", start)


def morning(day, count):
    with node(None, ["--mig-strategy=mixed"], cut, CARDS):
        there = lambda: api.get(f"/api/v1/nodes/{NODE}")["status"].get("allocatable", {}).get(STATIC) == "2"
        check(wait_until(lambda: healthy("hami-core", CARDS - 1) and there(), 60, 0.2), "cards to share and instances that somebody made", node_register())
        part(day, count, MORNING, "shares")
        check(wait_until(lambda: not leftovers(), 60, 0.5), "no file, no memory, no metric is left", leftovers())


def evening(day, count):
    with node({"operatingmode": "mig"}, gpus=CARDS):
        check(wait_until(lambda: healthy("mig", CARDS), 60, 0.2), "cards in mode mig", node_register())
        part(day, count, EVENING, "instances")
        with mig() as found:
            left = lambda: [found.placements(gpu) for gpu in range(CARDS)]
            check(wait_until(lambda: not any(left()), 60, 0.5), "no instance is left", left())
        check(wait_until(lambda: not leftovers(), 60, 0.5), "no file, no memory, no metric is left", leftovers())


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"{count} pods, seed {seed}")
    need()
    day = Day(new_namespace("day"), random.Random(seed))
    morning(day, count * 7 // 10)
    evening(day, count * 3 // 10)
    print(f"      ended well: {sum(day.done.values())}, of kinds {dict(day.done)}; the slowest after {day.slowest:.0f} s")
    for what, times in sorted(day.counts.items()):
        print(f"      {what}: {times}")
    check_equal(day.wrong, [], "no pod failed for a reason of ours, and no limit was wrong")
    check(sum(day.done.values()) >= count, "all ended well, those that kubelet turned away once they were made anew", day.done)
    finish()


if __name__ == "__main__":
    main()

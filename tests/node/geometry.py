#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operating mode mig: what hami-scheduler chose is made when a container starts, and ended after it; whenever the plugin is killed."""

import sys

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from plugin import *
from mig import IDS, Mig

CONFIG = """
nvidia:
  resourceCountName: nvidia.com/gpu
  resourceMemoryName: nvidia.com/gpumem
  resourceCoreName: nvidia.com/gpucores
  knownMigGeometries:
    - models: ["A100-SXM4-40GB"]
      allowedGeometries:
        - - {name: 1g.5gb, core: 14, memory: 5120, count: 7}
        - - {name: 2g.10gb, core: 28, memory: 10240, count: 3}
          - {name: 1g.5gb, core: 14, memory: 4000, count: 1}
        - - {name: 3g.20gb, core: 42, memory: 20480, count: 2}
"""
ALLOWED = """
  migProfileAllowlist:
    - {models: ["A100-SXM4-40GB"], profiles: ["1g.5gb", "3g.20gb"]}
"""
ALLOCATIONS = "hami.io/vgpu-mig-allocations"
G1, G2, G3 = IDS["1g"], IDS["2g"], IDS["3g"]


class Made(Node):
    def __init__(self, gpus=1, before=None, allow=False, more=(), **others):
        config = scratch / "mig.yaml"
        config.write_text(CONFIG + (ALLOWED if allow else ""))
        self.before = before
        super().__init__(gpus=gpus, memory=40960 * MIB, config={"operatingmode": "mig", "devicememoryscaling": 2}, more=["--device-config-file", config, *more], **others)

    def start(self):
        if self.before:
            with self.mig() as mig:
                self.before(mig)
        self.before = None
        return super().start()

    def mig(self):
        return Mig(self.machine, SIMDRIVER)

    def placements(self, gpu=0):
        with self.mig() as mig:
            return mig.placements(gpu)

    def uuid_at(self, start, gpu=0):
        with self.mig() as mig:
            return mig.uuids(gpu).get(start)

    def records(self):
        return sorted(p.name for p in (self.folder / "vgpu/instances").iterdir() if p.name != ".lock")

    def registered(self):
        found = self.api.objects[NODES][NODE]["metadata"].get("annotations", {}).get(REGISTER)
        return json.loads(found) if found else None

    def health(self):
        return [d.get("health", False) for d in self.registered() or []]

    def begin(self, wanted=(True,)):
        self.kubelet.connect()
        check(wait_until(lambda: self.health() == list(wanted), 15), "its cards are registered", self.health(), self.said()[-600:])

    def asks(self, name, *parts, share=0):
        pod = self.show(self.pod(name, "main", gives=[[(f"{self.uuids[0]}[{p}]", m, 14) for p, m in parts]]))
        ids = [f"{self.uuids[0]}::{share + i}" for i in range(len(parts))]
        return pod, ids

    def gone(self, pod):
        self.kubelet.release(pod)
        self.api.delete(PODS, pod["metadata"]["name"])


def makes():
    node = Made(gpus=2)
    node.begin((True, True))
    card, other = node.uuids
    shown = {k: node.registered()[0].get(k) for k in ("id", "mode", "count", "devmem", "devcore", "type")}
    check_equal(shown, {"id": card, "mode": "mig", "count": 7, "devmem": 40960, "devcore": 100, "type": "NVIDIA A100-SXM4-40GB"}, "cards are registered as HAMi registers them in mode mig, not scaled")
    with node.mig() as mig:
        check_equal([mig.instances(0), mig.set_mode(0)], [[], 0], "they are in MIG mode, and nothing is made yet")

    pod, ids = node.asks("one", ("1-3", 4000))
    status, why, name = node.run_container(pod, "main", ids)
    check_equal((status, node.placements()), ("OK", [(G1, 6)]), "what the scheduler chose is made when the container starts, at its place in the geometry", why, node.said()[-800:])
    uuid = node.uuid_at(6)
    env, _ = node.edits(name)
    check_equal((env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT"]), (uuid, uuid, "4000m", "0"), "the container has it, by its uuid")
    limits = node.limits(name)
    check_equal((limits["NVIDIA_VISIBLE_DEVICES"], limits["CUDA_DEVICE_MEMORY_LIMIT_0"], limits.get("CUDA_DEVICE_SM_LIMIT_0")), (uuid, str(4000 * MIB), None), "limited where it was given less than the instance, in memory alone")
    check_equal(node.records(), [f"{card}_1-3"], "and there is a record of it")
    told = lambda name: json.loads(node.api.objects[PODS][name]["metadata"]["annotations"].get(ALLOCATIONS, "[]"))
    mine = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": card, "profile": "1g.5gb", "placement": {"start": 6, "size": 1}, "migUUID": uuid, "gpuInstanceID": 13, "computeInstanceID": 0}
    check(wait_until(lambda: told("one") == [mine]), "the pod's annotation says which it is, as HAMi 2.10 has it", told("one"))

    two, ids = node.asks("two", ("1-0", 10240), ("1-2", 10240), share=1)
    status, why, name = node.run_container(two, "main", ids)
    check_equal((status, node.placements()), ("OK", [(G2, 0), (G2, 4), (G1, 6)]), "several at once, beside the first", why)
    check(wait_until(lambda: [(a["deviceIndex"], a["placement"]["start"]) for a in told("two")] == [(0, 0), (1, 4)]), "and both of a container with two", told("two"))
    env, _ = node.edits(name)
    check_equal([env[f"CUDA_DEVICE_MEMORY_LIMIT_{i}"] for i in range(2)], ["9856m"] * 2, "with the instance's memory where the configuration rounds up")
    kept = [node.uuid_at(s) for s in (0, 4, 6)]
    check_equal((node.kubelet.prestart(ids)[0], [node.uuid_at(s) for s in (0, 4, 6)]), ("OK", kept), "a container that starts again finds its own")
    twice, more = node.asks("twice", ("1-0", 10240), share=4)
    status, why, _ = node.run_container(twice, "main", more)
    check((status, "given out twice" in why) == ("FAILED_PRECONDITION", True), "which no other gets", status, why)
    node.restart()
    check_equal((node.kubelet.prestart(ids)[0], [node.uuid_at(s) for s in (0, 4, 6)]), ("OK", kept), "also after a restart of the plugin", node.said()[-500:])
    time.sleep(6)
    check_equal([node.uuid_at(s) for s in (0, 4, 6)], kept, "and all are kept")

    node.gone(two)
    check(wait_until(lambda: node.placements() == [(G1, 6)]), "those of a pod that is gone are ended, and no others", node.placements())
    node.gone(pod)
    check(wait_until(lambda: node.placements() == [] and node.records() == []), "the last one, too", node.placements(), node.records())
    check(wait_until(lambda: not list((node.folder / "vgpu/cards").glob("MIG-*"))), "and nothing is left of their containers' cells")
    three, ids = node.asks("three", ("2-1", 20480))
    status, why, _ = node.run_container(three, "main", ids)
    check_equal((status, node.placements()), ("OK", [(G3, 4)]), "then the card is cut in another way", why)
    node.end()


def placed():
    """As HAMi 2.10's scheduler has it: the Node says which profiles there are, the pod which one at which place it was given."""
    node = Made(allow=True)
    node.begin()
    (card,) = node.uuids
    profiles = node.registered()[0]["migProfiles"]
    check_equal([(p["name"], p["memoryMB"], p["core"], p["sliceCount"], [x["start"] for x in p["placements"]]) for p in profiles],
                [("1g.5gb", 4864, 15, 1, list(range(7))), ("3g.20gb", 19968, 43, 3, [0, 4])], "the registration has the profiles that migProfileAllowlist allows, as NVML says them")
    check_equal(profiles[1]["placements"][1], {"start": 4, "size": 4}, "with their placements")
    given = [{"containerIndex": 0, "deviceIndex": i, "gpuUUID": card, "profile": p, "placement": {"start": s, "size": n}} for i, (p, s, n) in enumerate([("3g.20gb", 4, 4), ("1g.5gb", 3, 1)])]
    pod = node.pod("one", "main", gives=[[(card, 20000, 43), (card, 4864, 15)]])
    pod["metadata"]["annotations"][ALLOCATIONS] = json.dumps(given)
    pod = node.show(pod)
    ids = [f"{card}::0", f"{card}::1"]
    status, why, name = node.run_container(pod, "main", ids)
    check_equal((status, node.placements()), ("OK", [(G3, 4), (G1, 3)]), "they are made where the pod's annotation says", why)
    env, _ = node.edits(name)
    check_equal(env["NVIDIA_VISIBLE_DEVICES"], f"{node.uuid_at(4)},{node.uuid_at(3)}", "the container has them in that order")
    wanted = [a | {"migUUID": node.uuid_at(a["placement"]["start"]), "gpuInstanceID": i, "computeInstanceID": 0} for a, i in zip(given, (2, 10))]
    told = lambda: json.loads(node.api.objects[PODS]["one"]["metadata"]["annotations"][ALLOCATIONS])
    check(wait_until(lambda: told() == wanted), "and the annotation says what they became", told(), wanted)
    node.restart()
    kept = node.uuid_at(4), node.uuid_at(3)
    status, why = node.kubelet.prestart(ids)
    check_equal((status, (node.uuid_at(4), node.uuid_at(3))), ("OK", kept), "after a restart of the plugin they are found again", why, node.said()[-500:])
    bare = node.show(node.pod("bare", "main", gives=[[(card, 1000, 10)]]))
    status, why, _ = node.run_container(bare, "main", [f"{card}::5"])
    check((status, "in instances alone" in why) == ("FAILED_PRECONDITION", True), "a grant without them gets nothing", status, why)
    node.gone(pod)
    check(wait_until(lambda: (node.placements(), node.records()) == ([], [])), "and they go with the pod", node.placements(), node.records())
    node.end()


def init_containers():
    """What an init container had may be in the way of what its pod's container was given: it is ended before that is made."""
    node = Made(allow=True)
    node.begin()
    (card,) = node.uuids
    pod = node.pod("one", "main", init=["prepare"], gives=[[(card, 4864, 15)], [(card, 19968, 43)]])
    pod["metadata"]["annotations"][ALLOCATIONS] = json.dumps([
        {"containerIndex": i, "deviceIndex": 0, "gpuUUID": card, "profile": p, "placement": {"start": s, "size": n}} for i, (p, s, n) in enumerate([("1g.5gb", 6, 1), ("3g.20gb", 4, 4)])])
    pod = node.show(pod)
    ids = [f"{card}::0"]
    is_done = lambda: node.api.put(PODS, "one", status={"initContainerStatuses": [{"name": "prepare", "state": {"terminated": {"exitCode": 0}}}]})
    status, why, _ = node.run_container(pod, "prepare", ids, init=True)
    check_equal((status, node.placements()), ("OK", [(G1, 6)]), "an init container has its instance", why)
    node.restart()
    time.sleep(6)
    check_equal(node.placements(), [(G1, 6)], "also after a restart of the plugin")
    is_done()
    status, why, _ = node.run_container(pod, "main", ids)
    check_equal((status, node.placements()), ("OK", [(G3, 4)]), "the next container has one across its place", why, node.said()[-600:])
    kept = node.uuid_at(4)
    node.restart()
    time.sleep(6)
    check_equal((node.kubelet.prestart(ids)[0], node.uuid_at(4)), ("OK", kept), "which is kept", node.said()[-600:])
    node.gone(pod)
    check(wait_until(lambda: (node.placements(), node.records()) == ([], []), 12), "and goes with the pod", node.placements(), node.records())
    node.end()


def allowed():
    """What migProfileAllowlist does not allow is not made, whoever chose it; what was made before it is kept."""
    node = Made()
    node.begin()
    (card,) = node.uuids
    first, ids = node.asks("first", ("1-0", 10240))
    check_equal((node.run_container(first, "main", ids)[0], node.placements()), ("OK", [(G2, 0)]), "without the list each profile is made")
    uuid = node.uuid_at(0)
    (scratch / "mig.yaml").write_text(CONFIG + ALLOWED)
    node.restart()
    check(wait_until(lambda: node.health() == [True], 15), "with a list that lacks it the card stays in service", node.health())
    status, why = node.kubelet.prestart(ids)
    check_equal((status, node.uuid_at(0)), ("OK", uuid), "and what was made before is kept", why)
    word = "migProfileAllowlist of the device configuration does not allow 2g.10gb on NVIDIA A100-SXM4-40GB"
    second, ids = node.asks("second", ("1-1", 10240), share=1)
    status, why, _ = node.run_container(second, "main", ids)
    check((status, word in why, node.placements()) == ("FAILED_PRECONDITION", True, [(G2, 0)]), "another is not made, and the pod is told why", status, why)
    node.gone(second)
    small, ids = node.asks("small", ("1-3", 4000), share=2)
    status, why, _ = node.run_container(small, "main", ids)
    check_equal((status, node.placements()), ("OK", [(G2, 0), (G1, 6)]), "one that is allowed is made beside it", why)
    theirs = node.pod("theirs", "main", gives=[[(card, 9856, 28)]])
    theirs["metadata"]["annotations"][ALLOCATIONS] = json.dumps([{"containerIndex": 0, "deviceIndex": 0, "gpuUUID": card, "profile": "2g.10gb", "placement": {"start": 2, "size": 2}}])
    status, why, _ = node.run_container(node.show(theirs), "main", [f"{card}::3"])
    check((status, word in why, node.placements()) == ("FAILED_PRECONDITION", True, [(G2, 0), (G1, 6)]), "nor one that HAMi 2.10's scheduler chose by another list", status, why)
    node.end()


def refuses():
    node = Made()
    node.begin()
    (card,) = node.uuids
    for part, word in (("3-0", "no such group"), ("2-5", "has 2 instances")):
        pod, ids = node.asks(f"p{part}", (part, 1000))
        status, why, name = node.run_container(pod, "main", ids)
        check((status, word in why, node.placements(), node.records()) == ("FAILED_PRECONDITION", True, [], []), f"an instance {part} can't be made, and the pod is told", status, why)
        node.gone(pod)
    pod = node.show(node.pod("whole", "main", gives=[[(card, 1000, 10)]]))
    status, why, _ = node.run_container(pod, "main", [f"{card}::0"])
    check((status, "in instances alone" in why) == ("FAILED_PRECONDITION", True), "nor is the whole card given out", status, why)
    node.gone(pod)

    # A program that outlives its pod keeps the instance.
    pod, ids = node.asks("used", ("0-2", 5120))
    status, why, name = node.run_container(pod, "main", ids)
    holder = start([BUILD / "tests/guest", "init", "alloc=1M", "say=here", "sleep=60000"], bare_environment(node.machine, CUDA_VISIBLE_DEVICES=node.uuid_at(2)), stdout=subprocess.PIPE)
    check(wait_until(lambda: node.machine.used()), "a program is in an instance", node.machine.view())
    node.gone(pod)
    time.sleep(7)
    check_equal((node.placements(), len(node.records())), ([(G1, 2)], 1), "which is not ended under it, though its pod is gone")
    holder.kill()
    holder.wait()
    check(wait_until(lambda: (node.placements(), node.records()) == ([], []), 10), "but after it", node.said()[-400:])
    node.end()


def strangers():
    def cut(mig):
        assert mig.set_mode(1) == 0
        cut.uuid = mig.make(1, "2g", 2)
        mig.make(1, "1g", 6, compute=False)

    node = Made(gpus=2, before=cut)
    node.begin((True, False))
    pod = node.show(node.pod("there", "main", gives=[[(f"{node.uuids[1]}[0-0]", 5120, 14)]]))
    status, why, _ = node.run_container(pod, "main", [f"{node.uuids[1]}::0"])
    check((status, "is not healthy" in why) == ("FAILED_PRECONDITION", True), "a card with instances of others takes nothing", status, why)
    time.sleep(0.5)  # the look that this asked for is over
    with node.mig() as mig:
        check_equal((mig.placements(1), mig.uuids(1)), ([(G2, 2), (G1, 6)], {2: cut.uuid}), "and they are left alone")
        mig.make(0, "1g", 3)
    pod = node.show(node.pod("late", "main", gives=[[(f"{node.uuids[0]}[0-0]", 5120, 14)]]))
    status, why, _ = node.run_container(pod, "main", [f"{node.uuids[0]}::0"])
    check_equal((status, node.placements()), ("FAILED_PRECONDITION", [(G1, 3)]), "nor is anything made beside one that came a moment ago", why)
    check(wait_until(lambda: node.health() == [False, False], 8), "so are those that come while it runs", node.health())
    check(wait_until(lambda: [e for e in node.api.told if "not made by this plugin" in e["message"]]), "which an event says", node.api.told)
    with node.mig() as mig:
        mig.end(0, 3)
    check(wait_until(lambda: node.health() == [True, False], 8), "once they are gone the card is back", node.health(), node.said()[-300:])
    node.end()


def busy():
    """A card that somebody uses keeps its mode."""
    machine = []

    def use(mig):
        program = [BUILD / "tests/guest", "init", "alloc=1M", "say=here", "sleep=60000"]
        machine.append(start(program, bare_environment(mig.machine), stdout=subprocess.PIPE))
        machine[0].stdout.readline()

    node = Made(before=use)
    node.begin((False,))
    with node.mig() as mig:
        check_equal(mig.mode(0), (0, 0), "it is not in MIG mode, and is not to be after a reset")
    machine[0].kill()
    machine[0].wait()
    check(wait_until(lambda: node.health() == [True], 10), "until nobody uses it", node.said()[-400:])
    node.end()


def fails():
    """A step that fails leaves nothing of those before it."""
    node = Made()
    node.begin()
    for change, what in ((1, "a GPU instance"), (2, "a compute instance")):
        node.environment["HAMI_SIM_MIG_FAILS"] = str(change)
        node.restart()
        pod, ids = node.asks(f"f{change}", ("1-1", 10240))
        status, why, _ = node.run_container(pod, "main", ids)
        check((status, f"cannot make {what}" in why) == ("FAILED_PRECONDITION", True), f"{what} can't be made, and the pod is told", status, why)
        check_equal((node.placements(), node.records()), ([], []), "nothing of it stays")
        status, why = node.kubelet.prestart(ids)
        check_equal((status, node.placements()), ("OK", [(G2, 2)]), "when kubelet tries again it works", why)
        node.gone(pod)
        check(wait_until(lambda: node.placements() == []), "and goes with its pod")
    for change in (3, 4):
        node.environment["HAMI_SIM_MIG_FAILS"] = str(change)
        node.restart()
        pod, ids = node.asks(f"e{change}", ("1-1", 10240))
        check_equal(node.run_container(pod, "main", ids)[0], "OK", "another is made")
        node.gone(pod)
        check(wait_until(lambda: (node.placements(), node.records()) == ([], []), 15), "one that could not be ended is ended at the next look", node.said()[-400:])
        check("cannot end" in node.said(), "of which the log tells")
    node.end()


def handed_on():
    """An instance that is being ended is given to nobody, however long the driver takes: who is to have it next gets one that lasts."""
    node = Made()
    node.begin()
    node.environment["HAMI_SIM_MIG_MS"] = "600"
    node.restart()
    first, ids = node.asks("first", ("1-1", 10240))
    check_equal(node.run_container(first, "main", ids)[0], "OK", "one is made")
    (record,) = (node.folder / "vgpu/instances").glob("GPU-*")
    node.gone(first)
    check(wait_until(lambda: record.exists() and "uuid=-" in record.read_text(), 10), "its pod goes, and it is being ended")
    second, ids = node.asks("second", ("1-1", 10240), share=1)
    status, why, name = node.run_container(second, "main", ids)
    check_equal(status, "OK", "another pod that was given it starts", why, node.said()[-400:])
    env, _ = node.edits(name)
    time.sleep(5)
    check_equal(node.uuid_at(2), env["NVIDIA_VISIBLE_DEVICES"], "and has one that is there", node.said()[-600:])
    node.gone(second)
    check(wait_until(lambda: (node.placements(), node.records()) == ([], []), 20), "which is ended after it")
    node.end()


def upgrades():
    """In an update two plugins run at once; one of them makes and ends instances, the other waits for its end."""
    node = Made()
    node.begin()
    first, ids = node.asks("first", ("1-1", 10240))
    check_equal(node.run_container(first, "main", ids)[0], "OK", "the old one makes an instance")
    old, seen, answers = node.plugin, [], []
    node.start()
    time.sleep(4)
    second, ids = node.asks("second", ("1-0", 10240), share=1)
    check_equal(node.run_container(second, "main", ids)[0], "OK", "and another one when the new one has looked around already")
    kept = node.uuid_at(0), node.uuid_at(2)
    node.kubelet.connect()
    node.kubelet.lists.get(timeout=30)
    third, more = node.asks("third", ("1-2", 10240), share=2)
    node.kubelet.allocate(more)
    node.kubelet.hold(third, "main", more)
    call = threading.Thread(target=lambda: answers.append(node.kubelet.prestart(more)))
    call.start()
    for _ in range(35):
        time.sleep(0.2)
        seen.append((node.health() == [True], (node.uuid_at(0), node.uuid_at(2)) == kept, len(node.records())))
    check(all(s == (True, True, 2) for s in seen), "while both are there the card stays in service, with what is on it", seen, node.said()[-600:])
    check_equal((answers, node.placements()), ([], [(G2, 0), (G2, 2)]), "the new one makes nothing beside the old one")
    old.terminate()
    check_equal(old.wait(30), 0, "the old one ends")
    call.join()
    check_equal((answers[0][0], node.placements()), ("OK", [(G2, 0), (G2, 2), (G2, 4)]), "and the new one makes what waits", answers, node.said()[-600:])
    check_equal(((node.uuid_at(0), node.uuid_at(2)), len(node.records())), (kept, 3), "beside what the old one made")
    time.sleep(6)
    check_equal(((node.uuid_at(0), node.uuid_at(2)), node.health()), (kept, [True]), "which it keeps", node.said()[-400:])
    node.gone(first)
    node.gone(third)
    check(wait_until(lambda: node.placements() == [(G2, 0)], 12), "and ends with its pod", node.placements())

    # What comes and goes while both are there is the old one's, and then the new one's.
    old = node.plugin
    node.start()
    node.kubelet.connect()
    node.kubelet.lists.get(timeout=30)
    node.gone(second)
    check(wait_until(lambda: (node.placements(), node.records()) == ([], []), 12), "what is over is ended by the old one")
    old.kill()
    old.wait()
    fourth, ids = node.asks("fourth", ("1-0", 10240), share=2)
    status, why, _ = node.run_container(fourth, "main", ids)
    check_equal((status, node.placements(), len(node.records())), ("OK", [(G2, 0)], 1), "a killed one's part is taken over, too", why, node.said()[-400:])
    uuid = node.uuid_at(0)
    node.restart()
    check(wait_until(lambda: node.health() == [True], 12), "and nothing is strange to the next one", node.health())
    check_equal((node.kubelet.prestart(ids)[0], node.uuid_at(0)), ("OK", uuid), "which finds it")
    node.gone(fourth)
    check(wait_until(lambda: (node.placements(), node.records()) == ([], []), 12), "and ends it")
    node.end()


def unanswered():
    """What the driver does not tell for a while is not gone; what it says that it did not do may be done."""
    node = Made()
    node.begin()
    blind = scratch / "blind"
    node.environment["HAMI_SIM_MIG_BLIND"] = str(blind)
    node.restart()
    pod, ids = node.asks("one", ("1-1", 10240))
    check_equal(node.run_container(pod, "main", ids)[0], "OK", "an instance is made")
    uuid = node.uuid_at(2)
    blind.touch()
    check(wait_until(lambda: node.health() == [False], 12), "while NVML does not tell of instances the card takes no more", node.health())
    check_equal(node.records(), [f"{node.uuids[0]}_1-1"], "and the record stays")
    blind.unlink()
    check(wait_until(lambda: node.health() == [True], 12), "then the card is back", node.health(), node.said()[-400:])
    status, why = node.kubelet.prestart(ids)
    check_equal((status, node.uuid_at(2)), ("OK", uuid), "with the instance, which its container finds again", why)
    node.gone(pod)
    check(wait_until(lambda: (node.placements(), node.records()) == ([], []), 12), "and which is ended with its pod", node.placements(), node.records())

    del node.environment["HAMI_SIM_MIG_BLIND"]
    for change, what in ((1, "a GPU instance"), (2, "a compute instance")):
        node.environment["HAMI_SIM_MIG_LIES"] = str(change)
        node.restart()
        pod, ids = node.asks(f"l{change}", ("1-1", 10240))
        status = node.run_container(pod, "main", ids)[0]
        if status != "OK":
            status, why = node.kubelet.prestart(ids)
        check_equal((status, node.placements()), ("OK", [(G2, 2)]), f"{what} that was made, though the driver says it was not, is ours", why, node.said()[-500:])
        check_equal(node.health(), [True], "and keeps the card from nobody")
        node.gone(pod)
        check(wait_until(lambda: (node.placements(), node.records()) == ([], []), 12), "it is ended with its pod", node.placements(), node.records())
    node.end()


def reboots():
    """What was made before the machine started anew is gone, whatever is in its place."""
    boot = scratch / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("11111111-1111-4111-8111-111111111111\n")
    node = Made(more=["--procfs", scratch / "proc"])
    node.begin()
    pod, ids = node.asks("one", ("1-1", 10240))
    check_equal((node.run_container(pod, "main", ids)[0], node.placements()), ("OK", [(G2, 2)]), "an instance is made")
    node.plugin.kill()
    node.plugin.wait()
    with node.mig() as mig:
        mig.end(0, 2)
        theirs = mig.make(0, "2g", 2)
    boot.write_text("22222222-2222-4222-8222-222222222222\n")
    node.start()
    node.kubelet.connect()
    check(wait_until(lambda: node.health() == [False], 15), "after another boot one of somebody else's is in its place", node.health())
    node.gone(pod)
    time.sleep(6)
    check_equal((node.uuid_at(2), node.records()), (theirs, []), "which is not taken for ours")
    with node.mig() as mig:
        mig.end(0, 2)
    check(wait_until(lambda: node.health() == [True], 10), "when that is gone the card is back")
    node.end()


def unreadable():
    """A record whose bytes say nothing: what it may stand for is held, not ended and not given out."""
    node = Made()
    node.begin()
    pod, ids = node.asks("one", ("1-1", 10240))
    check_equal((node.run_container(pod, "main", ids)[0], node.placements()), ("OK", [(G2, 2)]), "an instance is made")
    uuid = node.uuid_at(2)
    node.plugin.kill()
    node.plugin.wait()
    (name,) = node.records()
    (node.folder / "vgpu/instances" / name).write_text("boot=")
    node.start()
    node.kubelet.connect()
    check(wait_until(lambda: node.health() == [False], 15), "the card takes no more", node.health())
    check_equal(node.records(), [f"{name}.unreadable"], "the record is kept aside")
    check("the record of an instance can't be read, and is kept as" in node.said(), "which is said", node.said()[-600:])
    node.gone(pod)
    time.sleep(7)
    check_equal((node.uuid_at(2), node.records()), (uuid, [f"{name}.unreadable"]), "the instance stays, though its pod goes")
    with node.mig() as mig:
        mig.end(0, 2)
    check(wait_until(lambda: node.health() == [True], 10), "when somebody has ended it the card is back")
    again, ids = node.asks("again", ("1-1", 10240), share=1)
    check_equal((node.run_container(again, "main", ids)[0], node.placements()), ("OK", [(G2, 2)]), "and the same one is made again")
    node.end()


def kills():
    """SIGKILL between any two steps of making and ending, with somebody else's instance on another card."""

    def cut(mig):
        assert mig.set_mode(1) == 0
        cut.uuid = mig.make(1, "2g", 2)

    node = Made(gpus=2, before=cut)
    node.begin((True, False))
    stages = set()
    for moment in range(1, 9):
        pod, ids = node.asks(f"m{moment}", ("1-1", 10240))
        node.environment["HAMI_SIM_DIES"] = str(moment)
        node.restart()
        status, why, name = node.run_container(pod, "main", ids)
        if moment <= 4:
            check_equal((status, node.plugin.wait(20)), ("UNAVAILABLE", -signal.SIGKILL), f"moment {moment}: killed while making")
            stages.add((tuple(node.placements()), bool(node.uuid_at(2)), len(node.records())))
        else:
            check_equal(status, "OK", "made", why)
            node.gone(pod)
            check_equal(node.plugin.wait(20), -signal.SIGKILL, f"moment {moment}: killed while ending")
            stages.add((tuple(node.placements()), bool(node.uuid_at(2)), len(node.records())))
        del node.environment["HAMI_SIM_DIES"]
        node.restart()
        if moment <= 4 and moment % 2:
            node.gone(pod)
        elif moment <= 4:
            status, why = node.kubelet.prestart(ids)
            check_equal((status, node.placements(), len(node.records())), ("OK", [(G2, 2)], 1), "the next run makes it", why, node.said()[-500:])
            node.gone(pod)
        check(wait_until(lambda: (node.placements(), node.records()) == ([], []), 15), "in the end nothing is left", node.placements(), node.records(), node.said()[-500:])
        check_equal(node.uuid_at(2, gpu=1), cut.uuid, "and the other card's is as it was")
    check_equal(stages, {((), False, 1), (((G2, 2),), False, 1), (((G2, 2),), True, 1)}, "the kills came at each stage")
    node.end()


PARTS = ["makes", "placed", "init_containers", "allowed", "refuses", "fails", "strangers", "busy", "handed_on", "unanswered", "upgrades", "reboots", "unreadable", "kills"]

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        globals()[part]()
    finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tenant's day in minutes: containers of `hamictl run` on the cards of one machine, several processes in each, which
all do what theirs do in a day. They load a model by every kind of allocation, serve from graphs and pools, are put to
sleep and woken, get other limits while they run, are killed at any moment and start again. What each process does, and
what befalls whom, is drawn by a seed, which is said; in what order the processes come is the machine's affair.

The simulator's own count judges. At any moment: what a container has beyond the limit in force is not more, and does
not last longer, than what docs/plan.md lists as known. Each hour, when nobody is in a call: not a byte over it, and what
is in use is what is charged. After the day: nothing is charged or in use, and no file is left.

usage: tenants_day.py [SECONDS [SEED]]
"""

import random
import sys
import threading

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int(os.environ.get("HAMI_TEST_SEED", time.time_ns() & 0xFFFFFFFF))
HOURS = 24
PIECE = 2 * MIB
CONTEXT = 40 * MIB
UNSEEN = 8 * MIB  # that a process' small graphs, few streams and the library's own eight take before it is seen
CODE = 8 * MIB
CARDS, CARD = 2, 4 * GIB
# Each container: processes, card, the limits it may have, in MiB, which add up to less than a card; and when the driver
# loads code. What it loads late, at a launch, can't be undone: it is charged, and may exceed the limit.
CONTAINERS = [(3, 0, (600, 1500), "EAGER"), (2, 0, (300, 1200), "LAZY"), (2, 1, (400, 1800), "LAZY"), (1, 1, (200, 900), "EAGER")]
LARGEST = 128 * MIB  # that a process asks for at once
# What may be beyond the limit in the moment of a call, for each process: a context or code that is made and undone, and
# what a pool or a graph was let try. See "Known gaps" in docs/plan.md.
MOMENT = CONTEXT + CODE + 2 * LARGEST
MOMENT_S = 5  # after that it is no moment, however busy this machine is
RESIZED_S = 2  # until a limit that was lowered is in force
SEGMENTS, PTRS, ARRAYS, GRAPHS = range(1, 9), range(1, 17), range(1, 7), range(1, 5)
DIVIDED = 20 * MIB  # a piece of PyTorch's expandable segments
SEGMENT = 8 * DIVIDED
IMAGE = b"hamisim-module 1\nsize=%d\nkernel one\n" % CODE


class Died(Exception):
    """The process was killed under a call."""


class Worker(Caller):
    """A process, and what it has, by slot."""

    def __init__(self, environment, chance):
        super().__init__(environment)
        self.chance = chance
        self.ptrs, self.pooled, self.arrays, self.graphs, self.segments, self.asleep = {}, set(), set(), {}, {}, {}
        self.module = False
        self.calls = self.refused = 0

    def ask(self, line):
        try:
            return super().ask(line)
        except (RuntimeError, BrokenPipeError, ValueError, OSError) as error:
            raise Died from error

    def take(self, name, *words):
        """Whether there was room for it."""
        result = self.call(name, *words)
        self.calls += 1
        self.refused += result == OUT_OF_MEMORY
        if result not in (0, OUT_OF_MEMORY):
            raise AssertionError(f"{name} {words}: {result}")
        return result == 0

    def give(self, name, *words):
        result = self.call(name, *words)
        self.calls += 1
        if result != 0:
            raise AssertionError(f"{name} {words}: {result}")

    def come(self):
        """Whether there was room for a context, and its streams."""
        self.give("cuInit", 0)
        if not self.take("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0):
            return False
        self.give("cuCtxSetCurrent", f"h{slot('context')}")
        if not all(self.take("cuStreamCreate", f"n{slot('stream', i)}", 1) for i in (1, 2)):
            return False
        for i in SEGMENTS:
            self.give("cuMemAddressReserve", f"n{slot('va', i)}", SEGMENT, 0, 0, 0)
        return True

    def stream(self):
        return f"h{slot('stream', self.chance.choice((1, 2)))}"

    def size(self):
        return self.chance.choice((PIECE, 3 * PIECE + 512, 11 * PIECE, LARGEST // 4, self.chance.randrange(1, LARGEST)))

    # What is asked for in a day. Whatever has no room is left out.

    def do_alloc(self, n):
        if n not in self.ptrs and self.take("cuMemAlloc_v2", f"n{slot('ptr', n)}", self.size()):
            self.ptrs[n] = "cuMemFree_v2"

    def do_pitch(self, n):
        if n not in self.ptrs and self.take("cuMemAllocPitch_v2", f"n{slot('ptr', n)}", "o8", 1000, self.chance.randrange(1, 60000), 4):
            self.ptrs[n] = "cuMemFree_v2"

    def do_managed(self, n):
        size = self.size()
        if n not in self.ptrs and self.take("cuMemAllocManaged", f"n{slot('ptr', n)}", size, 1):
            self.ptrs[n] = "cuMemFree_v2"
            self.give("cuMemPrefetchAsync", f"h{slot('ptr', n)}", size, 0, self.stream())

    def do_pool(self, n):
        if n not in self.ptrs and self.take("cuMemAllocAsync", f"n{slot('ptr', n)}", self.size(), self.stream()):
            self.ptrs[n] = "cuMemFreeAsync"

    def do_free(self, n):
        how = self.ptrs.pop(n, None)
        if how:
            self.give(how, f"h{slot('ptr', n)}", *((self.stream(),) if how == "cuMemFreeAsync" else ()))

    def do_array(self, n):
        if n in ARRAYS and n not in self.arrays:
            shape = struct.pack("<QQQiII4x", 1024 * self.chance.randrange(1, 5), 1024 * self.chance.randrange(1, 5), 0, 32, 1, 0)
            if self.take("cuArray3DCreate_v2", f"n{slot('array', n)}", shape):
                self.arrays.add(n)

    def do_end_array(self, n):
        if n in self.arrays:
            self.arrays.discard(n)
            self.give("cuArrayDestroy", f"h{slot('array', n)}")

    def map(self, n, size):
        """A segment: pieces that are made, mapped in a row and let go of, as PyTorch's; or as one, as vLLM's."""
        each = DIVIDED if self.divided(n) else size
        handle = slot("physical", n)
        for at in range(0, size, each):
            if not self.take("cuMemCreate", f"n{handle}", each, allocation_prop(), 0):
                if at:
                    self.give("cuMemUnmap", f"h{slot('va', n)}", at)
                return False
            self.give("cuMemMap", f"h{slot('va', n)}+{at}", each, 0, f"h{handle}", 0)
            self.give("cuMemRelease", f"h{handle}")
        self.give("cuMemSetAccess", f"h{slot('va', n)}", size, access_desc(), 1)
        return True

    @staticmethod
    def divided(n):
        return n % 2

    def do_segment(self, n):
        size = self.chance.randrange(1, 5) * DIVIDED if self.divided(n) else self.chance.randrange(1, LARGEST // PIECE) * PIECE
        if n in SEGMENTS and n not in self.segments and n not in self.asleep and self.map(n, size):
            self.segments[n] = size

    def do_end_segment(self, n):
        self.asleep.pop(n, None)
        if n in self.segments:
            self.give("cuMemUnmap", f"h{slot('va', n)}", self.segments.pop(n))

    def do_sleep(self, n):
        """As vLLM: what is mapped goes, the addresses stay."""
        if self.chance.random() < 0.2:
            self.give("cuCtxSynchronize")
            for n in list(self.segments):
                self.asleep[n] = self.segments.pop(n)
                self.give("cuMemUnmap", f"h{slot('va', n)}", self.asleep[n])

    def do_wake(self, n):
        for n in list(self.asleep):
            if not self.map(n, self.asleep[n]):
                break
            self.segments[n] = self.asleep.pop(n)

    def do_code(self, n):
        if not self.module and self.take("cuModuleLoadData", f"n{slot('module')}", IMAGE):
            self.module = True
        elif self.module and self.take("cuModuleGetFunction", f"n{slot('function')}", f"h{slot('module')}", b"one"):
            self.take("cuLaunchKernel", f"h{slot('function')}", 1, 1, 1, 1, 1, 1, 0, self.stream(), f"k{20000}", 0)

    def do_unload(self, n):
        if self.module and self.chance.random() < 0.3:
            self.module = False
            self.give("cuModuleUnload", f"h{slot('module')}")

    def do_capture(self, n):
        """What a graph takes it frees, or leaves over until it is launched again."""
        if n not in GRAPHS or n in self.graphs:
            return
        stream, over = self.stream(), self.chance.random() < 0.3
        self.give("cuStreamBeginCapture_v2", stream, 2)
        for i in (20, 21):
            self.take("cuMemAllocAsync", f"n{slot('ptr', i)}", self.chance.randrange(1, LARGEST // 4), stream)
            if i == 20 or not over:
                self.give("cuMemFreeAsync", f"h{slot('ptr', i)}", stream)
        self.give("cuStreamEndCapture", stream, f"n{slot('graph', n)}")
        if self.take("cuGraphInstantiateWithFlags", f"n{slot('exec', n)}", f"h{slot('graph', n)}", 1):
            self.graphs[n] = self.value(slot("ptr", 21)) if over else 0
        self.give("cuGraphDestroy", f"h{slot('graph', n)}")

    def do_launch(self, n):
        if n in self.graphs:
            self.take(self.chance.choice(("cuGraphLaunch", "cuGraphLaunch", "cuGraphUpload")), f"h{slot('exec', n)}", self.stream())

    def do_end_graph(self, n):
        if n in self.graphs:
            left = self.graphs.pop(n)
            if left:
                self.call("cuMemFree_v2", left)  # unless it was never launched
            self.give("cuGraphExecDestroy", f"h{slot('exec', n)}")

    def do_wait(self, n):
        self.give("cuCtxSynchronize")

    def do_trim(self, n):
        self.give("cuDeviceGraphMemTrim", 0)

    def leave(self):
        """An orderly end."""
        for n in list(self.ptrs):
            self.do_free(n)
        for n in list(self.graphs):
            self.do_end_graph(n)
        for n in list(self.segments):
            self.do_end_segment(n)
        self.give("cuCtxSynchronize")


WORK = [name for name in dir(Worker) if name.startswith("do_")]
HUNGRY = [name for name in WORK if name in ("do_alloc", "do_pitch", "do_managed", "do_pool", "do_array", "do_segment", "do_wake", "do_capture", "do_launch")]


class Container:
    """A lease of hamictl's, whose environment its processes have; and threads that play these."""

    def __init__(self, day, number, processes, card, limits, loading, chance):
        self.day, self.number, self.card, self.limits, self.chance = day, number, card, limits, chance
        self.loading, self.late = loading, processes * CODE if loading == "LAZY" else 0
        self.workers = [None] * processes
        self.lock = threading.Lock()
        self.over_since, self.highest, self.longest, self.worst = None, 0, 0, 0
        self.holder = None
        self.begin()
        self.threads = [
            threading.Thread(target=self.play, args=(i, random.Random(f"{SEED}/{number}/{i}")), daemon=True) for i in range(processes)
        ]

    def draw(self):
        return self.chance.randrange(*self.limits)

    def begin(self):
        """Starts it, with a limit of its own."""
        self.mib = self.draw()
        self.policy = self.chance.choice(("full", "resident"))
        uuid = self.day.uuids[self.card]
        words = ["--gpumem", f"{self.mib}M", "--gpu-uuid", uuid, "--managed", self.policy]
        self.holder = start([HAMICTL, "run", "-v", *words, "sleep", "86400"], bare_environment(self.day.machine), stderr=subprocess.PIPE)
        said = self.holder.stderr.readline()
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        wait_until(lambda: children.read_text().split())
        program = children.read_text().split()[0]
        environ = pathlib.Path(f"/proc/{program}/environ")  # is there a moment later than the program's name
        wait_until(lambda: b"CUDA_DEVICE_MEMORY_SHARED_CACHE=" in environ.read_bytes())
        told = environ.read_bytes().decode().split("\0")
        self.environment = dict(word.split("=", 1) for word in told if "=" in word)
        self.environment["CUDA_MODULE_LOADING"] = self.loading
        self.lease = pathlib.Path(self.environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"]).parent.name
        self.ceiling, self.lowered_at, self.over_since = self.mib * MIB, None, None
        if not said:
            raise RuntimeError("hamictl run says nothing")

    def resize(self):
        """Another limit. One that is lower is in force a moment later; what is held then may stay."""
        mib = self.draw()
        with self.lock:
            self.ceiling, self.lowered_at = max(self.ceiling, mib * MIB), time.monotonic()
        ended = run([HAMICTL, "resize", "--gpumem", f"{mib}M", self.lease], bare_environment(self.day.machine))
        with self.lock:
            self.mib, self.lowered_at = mib, time.monotonic()
        self.day.count("resizes")
        if ended.returncode:
            self.day.fail(f"resize to {mib} MiB: {ended.stderr}")

    def restart(self):
        """All its processes are killed, and hamictl with them; it comes again as another container."""
        with self.day.starting[self.number]:
            for worker in self.workers:
                if worker:
                    worker.process.kill()
            self.holder.kill()
            self.holder.wait()
            guests.remove(self.holder)
            for worker in self.workers:
                if worker:
                    worker.process.wait()
            with self.lock:
                self.begin()
        self.day.count("restarts")

    def play(self, index, chance):
        try:
            while not self.day.over.is_set():
                self.live(index, chance)
        except Exception as error:
            self.day.fail(f"container {self.number}, process {index}: {error!r}")
            while not self.day.over.is_set():
                self.day.rest()

    def live(self, index, chance):
        """One process from its start to its end."""
        with self.day.starting[self.number]:
            worker = self.workers[index] = Worker(self.environment, chance)
            came = self.attempt(worker, worker.come)
        self.day.count("processes")
        for _ in range(chance.randrange(50, 2000)):
            self.day.rest()
            if self.day.over.is_set() or not came:
                break
            names = HUNGRY if chance.random() < 0.4 else WORK
            came = self.attempt(worker, lambda: getattr(worker, chance.choice(names))(chance.choice(PTRS)))
        if came and chance.random() < 0.5:
            self.attempt(worker, worker.leave)
        self.workers[index] = None
        self.day.count("calls", worker.calls)
        self.day.count("refusals", worker.refused)
        if chance.random() < 0.5:
            worker.process.kill()
        try:
            worker.process.stdin.close()
        except BrokenPipeError:
            pass
        worker.process.wait(60)
        self.hear(worker.process.stderr.read())
        guests.remove(worker.process)

    def attempt(self, worker, act):
        """False: it had no room for a context, or was killed."""
        try:
            return act() is not False
        except Died:
            if worker.process.wait(60) != -signal.SIGKILL:
                self.day.fail(f"a process ended by itself: {worker.process.returncode}")
            return False

    def hear(self, words):
        """What is to be said is of managed memory beyond the limit, of contexts that have no room, of what is UNSEEN, and of code that came late."""
        expected = ["of managed memory exceed the limit and live on the host", "and the limit has no room for it"]
        # With late code what is unseen, or less what is still charged and gone.
        most = UNSEEN + CODE if self.late else UNSEEN
        expected += [f"the driver took {size // MIB} MiB for code" for size in range(PIECE, most + PIECE, PIECE)]
        for word in words.splitlines():
            if not any(one in word for one in expected):
                self.day.fail(f"container {self.number} said: {word}")

    def kill_one(self):
        worker = self.chance.choice(self.workers)
        if worker:
            worker.process.kill()
            self.day.count("kills")

    def judge(self, used, now):
        """At any moment."""
        with self.lock:
            limit = self.mib * MIB
            self.highest = max(self.highest, used)
            if self.lowered_at and now - self.lowered_at > RESIZED_S:
                # From here on it gets no more: what it holds beyond the limit only goes down.
                self.ceiling, self.lowered_at = max(limit, min(self.ceiling, used)), None
            elif not self.lowered_at:
                self.ceiling = max(limit, min(self.ceiling, used))
            over = used - self.ceiling
        if over <= 0:
            self.over_since = None
            return
        self.worst = max(self.worst, over)
        self.over_since = self.over_since or now
        self.longest = max(self.longest, now - self.over_since)


class Day:
    def __init__(self):
        self.machine = Machine(gpus=CARDS, memory=CARD, context=CONTEXT)
        self.uuids = [gpu["uuid"] for gpu in self.machine.view()["gpus"]]
        self.over, self.night, self.judging = threading.Event(), threading.Event(), threading.Event()
        self.failures, self.counts, self.looks = [], {}, 0
        self.counting = threading.Lock()
        self.starting = [threading.Lock() for _ in CONTAINERS]
        self.resting = 0
        chance = random.Random(SEED)
        self.chance = chance
        self.containers = [Container(self, i, *one, random.Random(f"{SEED}/{i}")) for i, one in enumerate(CONTAINERS)]
        self.people = sum(len(one.workers) for one in self.containers)
        self.watch = start([JUDGE, "watch", self.machine.path], dict(os.environ))
        self.watcher = threading.Thread(target=self.look_on, daemon=True)

    def count(self, what, by=1):
        with self.counting:
            self.counts[what] = self.counts.get(what, 0) + by

    def fail(self, sentence):
        with self.counting:
            self.failures.append(sentence)

    def rest(self):
        """Nobody is in a call while a night lasts."""
        if not self.night.is_set():
            return
        with self.counting:
            self.resting += 1
        while self.night.is_set():
            time.sleep(0.002)
        with self.counting:
            self.resting -= 1

    def view(self):
        self.watch.stdin.write("\n")
        self.watch.stdin.flush()
        return json.loads(self.watch.stdout.readline())

    def held(self, view, container, claims=False):
        """What its processes have on its card; of managed memory what is there, or what may be."""
        pids = {worker.pid for worker in container.workers if worker}
        card = container.card
        mine = [one for one in view["processes"] if one["pid"] in pids]
        return sum(one["used"][card] + one["claimed" if claims else "managed"][card] for one in mine)

    def look_on(self):
        while not self.judging.is_set():
            view, now = self.view(), time.monotonic()
            self.looks += 1
            for container in self.containers:
                container.judge(self.held(view, container), now)
            time.sleep(0.002)

    def charged(self, container):
        told = json.loads(run([HAMICTL, "top", "--json"], bare_environment(self.machine)).stdout)
        return sum(one["memory_used_bytes"] for one in told["holders"] if str(one["id"]) == container.lease)

    def agrees(self, container):
        view = self.machine.view()
        held, charged = self.held(view, container, claims=True), self.charged(container)
        # What managed memory lives on the host is nobody's charge, unless all of it is.
        return held == charged if container.policy == "full" else self.held(view, container) <= charged <= held

    def rest_all(self, hour):
        """At night every account is settled: what is unseen is seen within a second of work."""
        self.night.set()
        if not wait_until(lambda: self.resting == self.people, 60):
            self.fail(f"hour {hour}: not all came to rest")
            return
        for container in self.containers:
            agreed = wait_until(lambda: self.agrees(container), 5, 0.1)
            if not agreed:
                self.fail(
                    f"hour {hour}, container {container.number} ({container.policy}): charged {self.charged(container)}, "
                    f"held {self.held(self.machine.view(), container, True)}"
                )
            over = self.held(self.machine.view(), container) - container.ceiling
            if over > container.late + len(container.workers) * UNSEEN:
                self.fail(f"hour {hour}, container {container.number}: {over} bytes over {container.ceiling} at rest")
        self.night.clear()
        wait_until(lambda: self.resting == 0, 60)

    def play(self):
        self.watcher.start()
        for container in self.containers:
            for thread in container.threads:
                thread.start()
        for hour in range(HOURS):
            until = time.monotonic() + SECONDS / HOURS
            while time.monotonic() < until:
                time.sleep(self.chance.uniform(0, SECONDS / HOURS / 4))
                container = self.chance.choice(self.containers)
                what = self.chance.random()
                if what < 0.5:
                    container.kill_one()
                elif what < 0.95:
                    container.resize()
                else:
                    container.restart()
            self.rest_all(hour)
        self.over.set()
        for container in self.containers:
            for thread in container.threads:
                thread.join(60)
        self.judging.set()
        self.watcher.join(60)

    def leave(self):
        """After the day: containers end in either way."""
        check(wait_until(lambda: all(self.charged(one) == 0 for one in self.containers), 5), "after the day nothing is charged")
        check_equal([self.machine.used(gpu=i) for i in range(CARDS)], [0] * CARDS, "and nothing in use")
        for i, container in enumerate(self.containers):
            container.holder.kill() if i % 2 else container.holder.terminate()
            container.holder.wait()
        shown = json.loads(run([HAMICTL, "top", "--json"], bare_environment(self.machine)).stdout)
        check_equal((shown["holders"], [gpu["granted_memory_bytes"] for gpu in shown["gpus"]]), ([], [0] * CARDS), "no lease is left")
        folder = pathlib.Path(f"{self.machine.path}.run")
        files = [str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir() and path.name != "lock"]
        check_equal(files, [], "nor a file")


def main():
    print(f"seed {SEED}")
    day = Day()
    began = time.monotonic()
    day.play()
    numbers = ", ".join(f"{count} {what}" for what, count in sorted(day.counts.items()))
    print(f"{HOURS} hours in {time.monotonic() - began:.0f} s: {numbers}, {day.looks} looks")
    for one in day.containers:
        print(
            f"container {one.number}: {one.highest >> 20} MiB at most; beyond the limit {one.worst >> 20} MiB at most, "
            f"for {one.longest * 1000:.0f} ms at most"
        )
    check_equal(day.failures, [], "all calls were answered as they should, and at rest every account held")
    for one in day.containers:
        most = len(one.workers) * MOMENT
        check(one.worst <= most, f"container {one.number} was beyond its limit by no more than what calls try", one.worst, most)
        if not one.late:
            check(one.longest < MOMENT_S, "nor for longer than a moment", one.longest)
    check(day.counts.get("refusals", 0) > 0 and day.counts.get("kills", 0) > 0, "limits were met, and processes killed", day.counts)
    day.leave()
    finish()


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Any calls, in any order, with any arguments: a program under limits is answered as the bare driver answers,
except for what the limits say.

Calls are drawn from all entry points, a few at a time. A guest of libvgpu.so is told to make them first. What it
was refused for its limit is left out of what a second guest, without the library and on a machine of its own, is
told then; so both are in the same state afterwards, and every other answer must be the same. Handles are slots:
their values are the driver's affair. The rules for what a limit may change are in class Judge (anything_judge.py),
from docs/security.md: they need only the simulator's own count of memory.

usage: anything.py [--seed N] [--calls N] [--seeds N] [--race N] [--coverage] [--found]
"""

import argparse
import random
import re
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from anything_calls import *
from anything_drawer import *
from anything_found import FOUND
from anything_judge import Judge
from anything_setting import *
from harness import *

GUEST = BUILD / "tests/anything"

# What libvgpu says, and may.
FORESEEN = ["imported has gone", "is refused: its memory is not accounted for", "the memory of graphs is not accounted for", "moves between host and device is not accounted for", "managed memory of graphs can't be charged", "with them the limit is exceeded", "a kernel's local memory", "and the limit has no room for it", "it may move what the limit has no room for"]


# Calls that are told of a function, which they may load.
TAKES_FUNCTION = re.compile("Launch|Kernel|Func|cuParam|Occupancy")


class Guest:
    def __init__(self, environment, folder):
        self.process = start([GUEST], environment, stderr=subprocess.PIPE)
        self.pid = self.process.pid
        self.fate = None
        self.told = [f"text {number} {text.hex()}" for number, text in texts(folder)]
        # libvgpu asks NVML itself, so that to a program, too, it is always initialised.
        self.ask(["call 0 n nvmlInit_v2"])

    def begin(self, lines):
        """False where it died."""
        lines, self.told = self.told + lines, []
        try:
            self.process.stdin.write("\n".join(lines) + "\ngo\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def ask(self, lines):
        """The answers; fewer where it died."""
        if not self.begin(lines):
            return []
        answers = []
        for line in self.process.stdout:
            if line == ".\n":
                return answers
            answers.append(line.rstrip("\n"))
        return answers

    def end(self, kill):
        """Its exit status, and what it said on standard error."""
        if self.fate:
            return self.fate
        if kill:
            self.process.kill()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        said = self.process.stderr.read()
        self.process.stderr.close()
        self.process.stdout.close()
        guests.remove(self.process)
        self.fate = self.process.returncode, said
        return self.fate


class Watch:
    """The simulator's own count of a machine, asked often."""

    def __init__(self, machine):
        self.judge = start([JUDGE, "watch", machine.path], dict(os.environ))

    def look(self):
        self.judge.stdin.write("\n")
        self.judge.stdin.flush()
        return json.loads(self.judge.stdout.readline())

    def used(self, pid, managed):
        """By device, with what only dma-bufs keep, and the managed memory that it made, where that is charged."""
        view = self.look()
        self.room = [MEMORY - gpu["used"] for gpu in view["gpus"]]
        held = [sum(process["used"][i] + process["managed"][i] for process in view["processes"]) for i in range(len(view["gpus"]))]
        used = [gpu["used"] - of_all for gpu, of_all in zip(view["gpus"], held)]
        for process in view["processes"]:
            if process["pid"] == pid:
                more = process["claimed"] if managed == "full" else [0] * len(view["gpus"])
                used = [kept + own + claimed for kept, own, claimed in zip(used, process["used"], more)]
        return used

    def end(self):
        self.judge.stdin.close()
        self.judge.wait()
        guests.remove(self.judge)


class Difference(Exception):
    @property
    def kind(self):
        """The same for what is likely the same trouble."""
        words = str(self).split()
        name = next((word for word in words if word[:2] == "cu" or word[:4] == "nvml"), "")
        return name, re.sub(r"[0-9a-f]{6,}|[sh]?\d{2,}|\[.*", "", str(self).split("\n", 1)[-1])[:60]


def graph_slots(call):
    """Of the slots that it uses or fills those of graphs, and of what is made of them."""
    slots = [int(word[1:].partition("+")[0]) for word in call.words if re.match(r"[hn]\d", word)]
    return [slot for slot in slots if KINDS[slot // GROUP] in ("graph", "exec", "node")]


class Run:
    """Two machines and, one after the other, pairs of guests on them."""

    def __init__(self, setting):
        self.setting = setting
        self.judge = Judge(setting)
        # Contexts come and go by the thousand.
        driver = {"context-time": "2ms"} | setting.driver
        self.machines = [
            Machine(gpus=setting.gpus, memory=MEMORY, sms=SMS, context=CONTEXT, driver=driver) for _ in range(2)
        ]
        # The same machine, down to the serial numbers of its cards.
        command = ["cp", "--sparse=always", self.machines[0].path, self.machines[1].path]
        subprocess.run(command, check=True)
        self.watches = [Watch(machine) for machine in self.machines]
        self.region, self.library = new_region(), None
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        self.refused = self.granted = 0
        self.begin()

    def begin(self):
        bare, limited = self.machines
        self.guests = [
            Guest(bare_environment(bare, **self.setting.environment), self.folder),
            Guest(self.limited_environment(limited), self.folder),
        ]
        self.used = [0] * self.setting.gpus
        self.stacks_parted = self.captures_parted = False
        self.judge.begin()
        uuids = [gpu["uuid"] for gpu in self.watches[0].look()["gpus"]]
        self.texts([f"text {TEXT_OWN_UUID + i} {uuid.encode().hex()}" for i, uuid in enumerate(uuids)])

    def limited_environment(self, machine):
        setting = self.setting
        if not setting.file:
            return limited_environment(
                machine,
                memory=setting.limit,
                cores=setting.cores,
                region=self.region,
                HAMI_MANAGED=setting.managed,
                **setting.environment,
            )
        if not self.library:
            uuids = [gpu["uuid"] for gpu in machine.view()["gpus"]]
            keys = {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": setting.limit for i in range(setting.gpus)}
            keys |= {f"CUDA_DEVICE_SM_LIMIT_{i}": setting.cores for i in range(setting.gpus) if setting.cores}
            keys["HAMI_MANAGED"] = setting.managed
            self.library = container(region=self.region, NVIDIA_VISIBLE_DEVICES=",".join(uuids), **keys)
        return bare_environment(machine, LD_PRELOAD=self.library, **setting.environment)

    def texts(self, lines):
        for guest in self.guests:
            guest.told += lines

    def step(self, lines, calls):
        """Makes some calls: lines, some of which are no calls (None in calls). Returns the answers by line."""
        bare, limited = self.guests
        answers = limited.ask(lines)
        before = self.used
        if len(answers) < sum(call is not None or line.startswith("fork") for line, call in zip(lines, calls)):
            raise Difference(f"the limited guest died: {self.fate(limited)}")
        self.used = self.watches[1].used(limited.pid, self.setting.managed)
        kept, said = self.sort_out(lines, calls, answers, max(before))
        wanted = bare.ask(kept)
        if len(wanted) < len(said):
            raise Difference(f"the bare guest died: {self.fate(bare)}")
        self.compare(said, wanted)
        self.check_memory(before, calls)
        return [(call, answer) for _, call, answer in said if call is not None]

    def fate(self, guest):
        code, said = guest.end(False)
        return f"{code}: {said[-3000:]}"

    def sort_out(self, lines, calls, answers, most):
        """What the bare guest is to be told, and what was answered to each of it."""
        kept, said, heard = [], [], iter(answers)
        forked = 0
        # At any moment of the step more may have been in use than before or after it: so a node of a kernel that is not loaded yet loads it.
        most = max(most, *self.used)
        if any(call and TAKES_FUNCTION.search(call.name) for call in calls) and len(calls) > 1:
            most += self.judge.lag()
        for line, call in zip(lines, calls):
            if call is None:
                kept.append(line)
                forked = int(line.split()[1]) if line.startswith("fork") else 0
                continue
            answer = next(heard)
            if forked:
                # A child has no memory to ask for, so nothing of it is left out.
                kept.append(line)
                said.append((line, call, answer))
                forked -= 1
                if not forked:
                    said.append(("the forked child's exit", None, next(heard)))
                continue
            if answer.split()[0] == str(OUT_OF_MEMORY) and self.judge.may_refuse(call, most):
                self.refused += 1
                continue
            if answer.split()[0] == str(NOT_SUPPORTED) and self.judge.may_keep(call):
                continue
            # The driver, which is not asked, would make a function of a kernel, also where its launch is wrong. Such a function
            # may have the handle of one that has gone.
            if self.setting.cores and "Launch" in call.name and int(answer.split()[0]) in (INVALID_CONTEXT, INVALID_HANDLE, CONTEXT_IS_DESTROYED):
                continue
            if answer.split()[0] == "0":
                most += self.judge.need(call) or 0
                self.granted += 1
            self.judge.heard(call, answer)
            kept.append(line)
            said.append((line, call, answer))
        return kept, said

    def compare(self, said, wanted):
        parted = False
        for i, ((line, call, answer), bare) in enumerate(zip(said, wanted)):
            if call is None and answer != bare:
                raise Difference(f"{line}: bare {bare}, limited {answer}")
            if call is None:
                continue
            runs = any(word in call.name for word in ("Launch", "Memcpy", "Memset"))
            if answer == bare:
                self.check_numbers(i == len(said) - 1, line, call, answer)
                continue
            if parted and graph_slots(call):
                continue
            # A graph that was captured may lack what one of the two launched into it.
            if self.captures_parted and graph_slots(call):
                self.part_from(call)
                parted = True
                continue
            mine, theirs = answer.split(), bare.split()
            if call.name in NUMBERS and mine[0] == theirs[0]:
                self.check_numbers(i == len(said) - 1, line, call, answer)
                continue
            if call.name in QUERIES and {mine[0], theirs[0]} <= {"0", str(NOT_READY)}:
                continue
            if call.name in SAMPLES and {mine[0], theirs[0]} <= {"0", "6", "7"}:
                continue
            # A function's handle is memory: whether it is that of one that has gone depends on the moment.
            if call.makes and KINDS[call.makes // GROUP] in ("function", "kernel") and mine[0] == theirs[0] == "0":
                continue
            # So is it for all that takes one; and to ask what stack a kernel needs loads it before its launch is refused.
            if TAKES_FUNCTION.search(call.name) and str(INVALID_HANDLE) in (mine[0], theirs[0]):
                if "0" in (mine[0], theirs[0]):
                    self.part_from(call)
                    parted = True
                    self.stacks_parted |= self.judge.stacks
                    self.captures_parted |= bool(self.judge.captured)
                continue
            # What one of the two launched made its stacks grow, or shrink.
            if self.stacks_parted and call.name == "cuCtxGetLimit" and call.words[1] == "i0" and mine[0] == theirs[0]:
                continue
            # Nor is it alike what is told of such a function: whether it is loaded, and of which module it is.
            if call.name in ("cuFuncIsLoaded", "cuFuncGetModule") and mine[0] == theirs[0]:
                continue
            # Which of two things that are wrong is said first is nobody's promise, where libvgpu answers itself.
            wrong = {mine[0], theirs[0]} == {str(INVALID_VALUE), str(CONTEXT_IS_DESTROYED)}
            if wrong and ("Launch" in call.name or self.judge.may_refuse(call, max(self.used))):
                continue
            # Under a limit of compute it says itself that there is no context, or no such stream; before what
            # takes memory without being asked for any, that there is no context.
            takes = call.name.startswith("cuModuleLoad") or call.name == "cuCtxSetLimit"
            nowhere = mine[0] in (str(INVALID_CONTEXT), str(CONTEXT_IS_DESTROYED)) or (runs and mine[0] == str(INVALID_HANDLE))
            if (runs or takes) and nowhere and theirs[0] != "0":
                continue
            raise Difference(f"{line}\n      bare    {bare}\n      limited {answer}, in use {self.used}")

    def part_from(self, call):
        """One guest did it, and the other one did not: nobody has any more what it made, nor the graphs that differ by it."""
        slots = graph_slots(call)
        lines = [f"dead {slot} 1" for slot in slots] + [f"dead {FIRST['node']} {GROUP}"]
        for guest in self.guests if slots else ():
            guest.ask(lines)

    def check_numbers(self, last, line, call, answer):
        if call.name in NUMBERS:
            wrong = self.judge.numbers(call, answer.split(), self.used if last else None, self.watches[1].room)
            if wrong:
                raise Difference(f"{line}\n      limited {answer}\n      {wrong}")

    def check_memory(self, before, calls):
        limit = self.setting.limit
        for old, new in zip(before, self.used):
            if new > limit + self.judge.lag() and not self.setting.strict:
                raise Difference(f"{self.used} bytes are in use, {new - limit} over the limit; before {before}")
            room = limit + self.judge.lag()
            if len(calls) == 1 and calls[0] and self.judge.takes(calls[0]) and new > max(old, room):
                raise Difference(f"{calls[0].line()}: {new} bytes are in use, over the limit; before {old}")

    def end_pair(self, kill, lines):
        """Ends both guests, by a kill amid some calls or as a program ends. Nothing of them stays."""
        for guest in self.guests if kill else []:
            guest.begin(lines)
            time.sleep(len(lines) * 1e-5)
        for name, guest, watch in zip(("bare", "limited"), self.guests, self.watches):
            code, said = guest.end(kill)
            if code != (-signal.SIGKILL if kill else 0):
                raise Difference(f"the {name} guest ends with {code}: {said[-3000:]}")
            words = [line for line in said.splitlines() if not any(word in line for word in FORESEEN)]
            if words:
                raise Difference(f"the {name} guest said {words[-10:]}")
            used = [gpu["used"] for gpu in watch.look()["gpus"]]
            if any(used):
                raise Difference(f"after the {name} guest's end {used} bytes are in use")
        self.guests = []

    def close(self):
        for guest in self.guests:
            guest.end(True)
        for watch in self.watches:
            watch.end()


class Script:
    """What was done, to be done again: a list of steps."""

    def __init__(self):
        self.steps = []  # ("calls", lines, calls) | ("end", kill, lines) | ("texts", lines)

    def add(self, *step):
        self.steps.append(step)
        return step


def perform(run, step):
    if step[0] == "calls":
        return run.step(step[1], step[2])
    if step[0] == "texts":
        run.texts(step[1])
    elif step[0] == "end":
        run.end_pair(step[1], step[2])
        run.begin()
    return []


def compare(seed, count):
    """Draws and performs. Returns (the setting, None) or (the setting, what differed, and the script up to there)."""
    chance = random.Random(seed)
    setting = Setting(chance)
    run, script, done = Run(setting), Script(), 0
    steps = draw_steps(chance, setting, count)
    answers = None
    try:
        while True:
            step = steps.send(answers)
            script.add(*step)
            answers = perform(run, step)
            done += len(answers)
    except StopIteration:
        return setting, None, done, run
    except Difference as difference:
        return setting, difference, done, script
    finally:
        run.close()


def happens(setting, steps, kind):
    """Whether a script ends in such a difference: which one."""
    run = Run(setting)
    try:
        for step in steps:
            perform(run, step)
    except Difference as difference:
        return difference if difference.kind == kind else None
    finally:
        run.close()
    return None


def flat(steps):
    """One call a step, where nothing forbids it."""
    out = []
    for step in steps:
        if step[0] != "calls" or any(line.startswith("fork") for line in step[1]):
            out.append(step)
            continue
        out += [("calls", [line], [call]) for line, call in zip(step[1], step[2])]
    return out


def shrink(setting, steps, kind, seconds=90):
    """The shortest script found that still ends in a difference, and that one."""
    deadline = time.monotonic() + seconds
    last = max([i for i, step in enumerate(steps[:-1]) if step[0] == "end"], default=-1)
    # First what the last pair of guests did, then all of it, then all of it as it was.
    for tried in (flat(steps[last + 1 :]), flat(steps), steps):
        found = happens(setting, tried, kind)
        if found:
            break
    else:
        return None, None
    steps = tried
    size = max(1, len(steps) // 2)
    while size and time.monotonic() < deadline:
        at = 0
        while at < len(steps) and time.monotonic() < deadline:
            shorter = steps[:at] + steps[at + size :]
            other = happens(setting, shorter, kind) if shorter else None
            if other:
                steps, found = shorter, other
            else:
                at += size
        size //= 2
    return steps, found


def explain(seed, setting, difference, done, script):
    print(f"FAIL: seed {seed}: after {done} calls an answer differs: {difference}")
    print(f"      {setting}")
    print(f"      again: tests/vgpu/anything.py --seed {seed} --calls {done + 100}")
    sys.stdout.flush()
    steps, found = shrink(setting, script.steps, difference.kind)
    if not steps:
        print("      (it does not happen again)")
        return
    print(f"      in short, {found}:")
    for step in steps:
        for line in step[1] if step[0] == "calls" else [f"({step[0]})"]:
            print(f"        {line}" if not line.startswith("text") else "")


def check_found():
    """What was found once does not come again."""
    for sentence, setting, text in FOUND:
        lines = text.split("\n")
        steps = [("calls", [line], [Call.parse(line)]) for line in lines if line]
        run, difference = Run(Setting.plain(**setting)), None
        try:
            for step in steps:
                perform(run, step)
        except Difference as found:
            difference = str(found)
        finally:
            run.close()
        check(difference is None, sentence, difference)


def race(seed, count):
    """Many threads of two processes in one container, killed at any moment: only what must always hold."""
    chance = random.Random(seed)
    setting = Setting(chance)
    setting.gpus = 1
    run = Run(setting)
    for guest in run.guests:
        guest.end(True)
    run.guests = []
    watch, limit = run.watches[1], setting.limit
    environment = run.limited_environment(run.machines[1])
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    highest = strange = granted = refused = died = rounds = 0
    done = 0
    while done < count:
        pair = [Guest(environment, run.folder) for _ in range(2)]
        for guest in pair:
            lines = ["call 0 s cuInit i0", f"race {chance.randrange(1 << 30)} 200 {limit}", "go"]
            guest.process.stdin.write("\n".join(lines) + "\n")
            guest.process.stdin.flush()
        kill = rounds % 2 == 1
        until = time.monotonic() + (chance.uniform(0.01, 0.5) if kill else 60)
        while time.monotonic() < until:
            highest = max(highest, sum(gpu["used"] for gpu in watch.look()["gpus"]))
            if not kill and all(guest.process.stdout.readline() for guest in pair):
                break
            time.sleep(0.002)
        for guest in pair:
            if not kill:
                words = guest.process.stdout.readline().split()
                if words and words[0] == "race":
                    granted, refused = granted + int(words[1]), refused + int(words[2])
                    strange += int(words[3])
            code, said = guest.end(kill)
            died += code not in (0, -signal.SIGKILL)
            if code not in (0, -signal.SIGKILL):
                print(said[-4000:])
        used = [gpu["used"] for gpu in watch.look()["gpus"]]
        if any(used):
            died += 1
            print(f"      after the end {used} are in use")
        done += 2 * 8 * 200
        rounds += 1
    run.close()
    # What a launch loads, and a context that is made and refused, are there before they can be undone.
    room = limit + 2 * CONTEXT + 16 * 200000
    title = f"race, seed {seed}: {rounds} rounds of 2 processes with 8 threads, {granted} given, {refused} refused"
    check(granted and refused, f"{title}: what was done was told")
    check(died == 0 and strange == 0, f"{title}: nobody dies, and all answers are foreseen", died, strange)
    check(highest <= room, f"{title}: nobody is over the limit", highest, limit)


def simulated():
    """The simulator's exports that have code: its stubs for the others are weak."""
    command = ["nm", "--dynamic", "--defined-only", SIMDRIVER / "libcuda.so.1"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {line.split()[2] for line in lines if line.split()[1] == "T"}


def report_coverage(count):
    """Says what was called. Whoever gives an entry point code, here or in the simulator, gives it a row as well."""
    called = {name for name in made if name in entries}
    real = {name for name in called if name in ROWS and ROWS[name][1]}
    without = sorted(name for name in entries if name not in ROWS)
    nvml = (SOURCE / "src/driver/nvml.txt").read_text().splitlines()
    hooked = [name for name in without if entries[name][0] != "pass"]
    # Those that are answered without a look at their arguments are all asked in nvml.py.
    rows = [line.split() for line in nvml if line[:4] == "nvml"]
    hooked += [name for name, kind in rows if name not in ROWS and kind not in ("change", "others", "end")]
    check_equal(hooked, [], "every entry point that libvgpu intercepts has a generator")
    check_equal(sorted(simulated() & set(without)), [], "and every one that the simulator has code for")
    never = sorted(name for name in ROWS if name in entries and not made[name])
    if count >= 20000:
        check_equal(never, [], "every generator was drawn")
    print(
        f"{len(called)} of {len(entries)} exports called, {len(real)} of them with arguments;"
        f" {sum(covered[name] > 0 for name in real)} succeeded at least once;"
        f" {len(without)} have no generator: neither libvgpu nor the simulator has code for them (--coverage names them)"
    )
    return without


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=1, help="so many, one after the other")
    parser.add_argument("--calls", type=int, default=10000, help="of each seed")
    parser.add_argument("--race", type=int, default=0, help="so many calls by threads and processes at once")
    parser.add_argument("--coverage", action="store_true", help="name what has no generator")
    parser.add_argument("--found", action="store_true", help="first what was found once")
    arguments = parser.parse_args()
    if arguments.found:
        check_found()

    seed = arguments.seed
    if seed is None:
        seed = int(os.environ.get("HAMI_TEST_SEED", time.time_ns() & 0xFFFFFF))
    began, refused, granted, calls = time.monotonic(), 0, 0, 0
    for one in range(seed, seed + arguments.seeds):
        setting, difference, done, rest = compare(one, arguments.calls)
        calls += done
        if difference:
            global_fail(one, setting, difference, done, rest)
            break
        refused, granted = refused + rest.refused, granted + rest.granted
    else:
        check(True, f"{calls} calls of seeds {seed} to {seed + arguments.seeds - 1}: bare and limited agree;"
                    f" {refused} were refused for the limit ({time.monotonic() - began:.0f} s)")
    without = report_coverage(calls)
    if arguments.coverage:
        print(*without, sep="\n")
    if arguments.race:
        race(seed, arguments.race)
    finish()


def global_fail(seed, setting, difference, done, script):
    check(False, f"seed {seed}: bare and limited agree", str(difference))
    explain(seed, setting, difference, done, script)


main()

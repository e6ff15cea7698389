#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Any calls, in any order, with any arguments: a program under limits is answered as the bare driver answers,
except for what the limits say.

Calls are drawn from all entry points, a few at a time. A guest of libvgpu.so is told to make them first. What it
was refused for its limit is left out of what a second guest, without the library and on a machine of its own, is
told then; so both are in the same state afterwards, and every other answer must be the same. Handles are slots:
their values are the driver's affair. The rules for what a limit may change are in class Judge, from
docs/security.md: they need only the simulator's own count of memory.

usage: anything.py [--seed N] [--calls N] [--seeds N] [--race N] [--coverage] [--found]
"""

import argparse
import collections
import random
import re
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from anything_calls import *
from anything_found import FOUND
from harness import *

GUEST = BUILD / "tests/anything"
UNIT = 512
MEMORY = 8 * GIB
SMS = 4
STACK_THREADS = 2048  # a multiprocessor's
CONTEXT = 60 * MIB
NODES = 18 * MIB  # that 256 nodes of executable graphs take, and a page: those are not measured one by one
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY, CONTEXT_IS_DESTROYED, NOT_SUPPORTED = 1, 2, 201, 400, 600, 709, 801
DEFAULT_LIMITS = {0: 1024, 1: 1 * MIB, 2: 8 * MIB}
THREADS = 4

# What the driver takes at a launch is charged within a second, mostly before the next allocation.
STRICT = False
# What libvgpu says, and may.
FORESEEN = ["imported has gone", "is refused: its memory is not accounted for", "the memory of graphs is not accounted for", "moves between host and device is not accounted for", "managed memory of graphs is not accounted for", "with them the limit is exceeded", "a kernel's local memory", "it may move what the limit has no room for"]

entries = {}
for line in (SOURCE / "src/driver/entries.txt").read_text().splitlines():
    if line.strip() and not line.startswith("#"):
        name, kind, base, version, stream = line.split()
        entries[name] = (kind, base, version, stream)


def round_up(size, unit=UNIT):
    return (size + unit - 1) // unit * unit


def paged(size):
    """At most: small pieces of a context share pages, which there may be already."""
    return round_up(size, 2 * MIB)


class Setting:
    """What a seed decides before the first call: the machine, the limits, the program's environment."""

    def __init__(self, chance):
        self.gpus = chance.choice([1, 1, 2])
        self.limit = chance.choice([512 * MIB, 1 * GIB, 2 * GIB, 3 * GIB])
        self.cores = chance.choice([None, None, 30, 60, 95])
        self.driver = {
            "loading": chance.choice(["lazy", "lazy", "eager"]),
            "captures": chance.choice(["strict", "strict", "kind"]),
            "lost-captures": chance.choice(["end", "end", "stay"]),
            "heaps": chance.choice(["keep", "shrink"]),
            "pids": chance.choice(["caller", "caller", "host"]),
            "queues": chance.choice([8, 8, 1, 32]),
            "load-waits": chance.choice(["no", "no", "yes"]),
        }
        # The CUDA runtime makes primary contexts without calling any function by its name.
        self.unseen = chance.random() < 0.2
        self.file = chance.random() < 0.3  # limits from a file beside the library
        # By the default one, what a call is answered depends on what is charged already.
        self.managed = "free" if self.gpus == 2 else chance.choice(["full", "free"])
        self.environment = {}
        if chance.random() < 0.15:
            self.environment["CUDA_LAUNCH_BLOCKING"] = 1
        if self.gpus == 2 and chance.random() < 0.2:
            self.environment["CUDA_VISIBLE_DEVICES"] = "1,0"
        # Mostly none, for where there is some the account may be late, and is not held to the byte.
        self.driver["graph-node"] = chance.choice(["0", "0", "64Ki"])
        self.driver["stream"] = "0"  # of what they take: tests/vgpu/stream_memory.py

    @classmethod
    def plain(cls, gpus=1, limit=512 * MIB, cores=None, driver={}, strict=False):
        setting = cls.__new__(cls)
        setting.gpus, setting.limit, setting.cores, setting.environment = gpus, limit, cores, {}
        setting.driver = {"loading": "lazy", "graph-node": "0", "stream": "0"} | driver
        setting.unseen = setting.file = False
        setting.managed = "full"
        return setting

    @property
    def eager(self):
        return self.driver["loading"] == "eager"

    @property
    def nodes(self):
        """What executable graphs may take of a device before it is seen."""
        return NODES if self.driver["graph-node"] != "0" else 0

    def __str__(self):
        options = " ".join(f"{k}={v}" for k, v in self.driver.items())
        more = [word for word, holds in (("unseen", self.unseen), ("file", self.file)) if holds]
        return f"{self.gpus} GPUs, limit {self.limit // MIB} MiB, cores {self.cores}, {options} {self.environment} {more} managed={self.managed}"


def graph_slots(call):
    """Of the slots that it uses or fills those of graphs, and of what is made of them."""
    slots = [int(word[1:].partition("+")[0]) for word in call.words if re.match(r"[hn]\d", word)]
    return [slot for slot in slots if KINDS[slot // GROUP] in ("graph", "exec", "node")]


class Call:
    """One call as the guest is told it, and what the judge must know of it."""

    __slots__ = ("thread", "way", "name", "arguments", "words", "ends", "makes", "also", "run")

    def __init__(self, thread, way, name, words):
        self.thread, self.way, self.name = thread, way, name
        self.words = words  # what the guest reads
        self.ends = self.makes = self.also = None  # slots
        self.run = None  # of mappings: slot, offset and bytes

    @classmethod
    def parse(cls, line):
        _, thread, way, name, *words = line.split()
        call = cls(int(thread), way, name, words)
        slots = {word[0]: int(word[1:]) for word in words if word[0] in "nwh" and word[1:].isdigit()}
        call.makes, call.ends = slots.get("n", slots.get("w")), slots.get("h")
        return call

    def line(self):
        return f"call {self.thread} {self.way} {self.name} {' '.join(self.words)}".rstrip()

    def number(self, at):
        word = self.words[at]
        return int(word[1:], 0) if word[0] == "i" else None


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


class Drawer:
    """Draws calls whose arguments mostly make sense, from what the answers told so far."""

    def __init__(self, chance, setting):
        self.chance, self.setting = chance, setting
        self.names = list(ROWS)
        # What has no row: nothing but stubs of the simulator, of class "pass".
        self.plain = [name for name in entries if name not in ROWS and name not in UNSAFE]
        self.weights = [ROWS[name][0] for name in self.names]
        self.forget()

    def forget(self):
        """A new program."""
        self.alive = {kind: set() for kind in KINDS}
        self.captured = []
        self.mapped = []  # slot, offset and bytes
        self.pooled = set()  # slots of what may have come from a pool
        self.sizes = {}  # of reservations, by slot
        self.graphs = set()  # slots of what graphs allocate
        self.thread = 0

    # Handles

    def slot_of(self, kind):
        """Mostly one that is alive, sometimes a dead or an empty one."""
        alive = self.alive[kind]
        if alive and self.chance.random() < 0.93:
            return self.chance.choice(sorted(alive))
        return FIRST[kind] + self.chance.randrange(GROUP)

    def handle(self, kind):
        chance = self.chance.random()
        if chance < 0.01:
            return "i0"
        if chance < 0.02 and kind in LOOKED_UP:
            return self.chance.choice(["i0xdeadbeef0", "i-1", f"h{FIRST['stream'] + self.chance.randrange(8)}"])
        return f"h{self.slot_of(kind)}"

    def stream(self):
        chance = self.chance.random()
        if chance < 0.25:
            return self.chance.choice(["i0", "i0", "i1", "i2"])
        if chance < 0.30 and self.captured:
            return f"h{self.chance.choice(self.captured)}"
        return self.handle("stream")

    def free_slot(self, kind):
        """Where a new one goes: an empty slot while there are some, so that little is lost sight of."""
        first = FIRST[kind]
        empty = [slot for slot in range(first + 1, first + 24) if slot not in self.alive[kind]]
        return self.chance.choice(empty) if empty else first + self.chance.randrange(1, 24)

    # Numbers

    def size(self):
        limit, chance = self.setting.limit, self.chance
        kind = chance.random()
        if kind < 0.55:
            return chance.randrange(1, 1 * MIB)
        if kind < 0.85:
            return chance.randrange(1 * MIB, limit // 8)
        if kind < 0.94:
            return chance.randrange(limit // 8, limit)
        return chance.choice([0, 1, 511, 512, 513, limit - CONTEXT, limit, limit + 1, MEMORY, 2**40, 2**63, 2**64 - 1])

    def parameters(self):
        ns = self.chance.choice([0, 500, 2000, 2000, 5000, 20000, 100000])
        return f"{ns},{self.chance.randrange(4)}"

    def word_launches(self, call):
        """A launch on several devices: function, stream and length for each."""
        rows = [
            f"{self.slot_of('function')},{self.slot_of('stream')},{self.chance.choice([0, 3000])}"
            for _ in range(self.chance.choice([1, 1, 2, 3]))
        ]
        return "m" + ";".join(rows)

    def word_count(self, call):
        return f"i{call.words[0].count(';') + 1}"

    def limit_value(self, limit):
        if limit == 0:
            return self.chance.choice([0, 512, 1024, 2048, 4096, 16384, 65536, 2**62])
        return self.chance.choice([0, 1 * MIB, 8 * MIB, 16 * MIB, 200 * MIB, 5 * GIB, 2**63])

    def word(self, call, text):
        """One argument, as the guest reads it."""
        chance = self.chance
        if text[0] == "+":
            call.makes = self.free_slot(text[1:])
            out = "w" if text in ("+ptr32", "+fd") else "n"
            return "i0" if chance.random() < 0.01 else f"{out}{call.makes}"
        if text[0] == "-":
            kind = text[1:]
            if kind == "host":  # the driver frees whatever it is given
                if not self.alive[kind]:
                    return "i0"
                call.ends = chance.choice(sorted(self.alive[kind]))
                self.alive[kind].discard(call.ends)
                return f"g{call.ends}"
            if kind == "stream":
                word = self.stream()
            else:
                word = self.handle(kind)
            call.ends = int(word[1:]) if word[0] == "h" else None
            return word
        if text[0] == "?":
            return "i0" if chance.random() < 0.02 else "x"
        if text[0] == "o" and text[1:].isdigit():
            return "i0" if chance.random() < 0.01 and call.name[:2] == "cu" else text
        if text[0] == "v" and text[1].isdigit():
            if text == "v8pool":
                return f"v8:{chance.choice([0, 0, 1, 4 * MIB, 2**64 - 1])}"
            return f"v8:{chance.choice([0, 1, 2, 2, 3])}" if text == "v8mode" else text
        if text.isdigit():
            return f"i{text}"
        if text in KINDS:
            return self.stream() if text == "stream" else self.handle(text)
        if text in "sf":
            return text
        special = getattr(self, "word_" + text, None)
        return special(call) if special else f"i{self.number(text)}"

    def number(self, text):
        if text == "device":
            return self.chance.choice(DEVICES[self.setting.gpus])
        if text == "attribute" and self.chance.random() < 0.5:
            return self.chance.randrange(150)
        return self.chance.choice(NUMBERS_OF[text])

    def text(self, first, count):
        return f"t{first + self.chance.randrange(count)}"

    def word_size(self, call):
        return f"i{self.size()}"

    def word_size32(self, call):
        return f"i{min(self.size(), 2**32 - 1) if self.chance.random() < 0.2 else self.chance.randrange(4 * MIB)}"

    def word_name(self, call):
        return self.text(TEXT_NAME, NAMES)

    def word_uuid(self, call):
        return self.text(TEXT_UUID, 2)

    def word_owncard(self, call):
        return self.chance.choice([f"t{TEXT_OWN_UUID}", f"t{TEXT_OWN_UUID + self.setting.gpus - 1}", f"t{TEXT_BUSID}"])

    def word_busid(self, call):
        return self.text(TEXT_BUSID, 4)

    def word_resource(self, call):
        return self.text(TEXT_RESOURCE, 5)

    def word_path(self, call):
        return self.text(TEXT_PATH, 5)

    def word_image(self, call):
        return f"t{TEXT_IMAGE + self.chance.choice([0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 6, 7])}"

    def word_kernelname(self, call):
        return f"t{TEXT_KERNEL + self.chance.choice([0, 0, 0, 1, 1, 2, 3, 4])}"

    def word_nanoseconds(self, call):
        return self.text(TEXT_NS, 4)

    def word_nodetext(self, call):
        return self.text(TEXT_NODE, 4)

    # Graphs

    def word_after(self, call):
        return "d" + ",".join(str(self.slot_of("node")) for _ in range(self.chance.choice([1, 1, 1, 2])))

    def word_aftercount(self, call):
        nodes = next(word.count(",") + 1 for word in call.words if word[0] == "d")
        return f"i{nodes if self.alive['node'] and self.chance.random() < 0.6 else 0}"

    def word_nodekernel(self, call):
        return f"q{self.slot_of('function')},{self.chance.choice([1, 4, 16, 0])},{self.chance.choice([0, 2000, 20000])}"

    def node_of_memory(self, call, letter):
        call.also = self.free_slot("ptr")
        size = min(self.size(), 2**40) if self.chance.random() < 0.5 else self.chance.randrange(64 * MIB)
        place = self.chance.choice((1,) * 8 + (2, 3))  # the device, or the host
        return f"{letter}{call.also},{self.chance.choice(DEVICES[self.setting.gpus])},{size},{place}"

    def word_nodealloc(self, call):
        return self.node_of_memory(call, "a")

    def word_nodeany(self, call):
        return self.node_of_memory(call, "A") if self.chance.random() < 0.7 else self.word_nodetext(call)

    def word_nodeptr(self, call):
        ours = sorted(self.graphs & self.alive["ptr"])
        return f"h{self.chance.choice(ours)}" if ours and self.chance.random() < 0.9 else f"h{self.slot_of('ptr')}"

    def word_instantiation(self, call):
        return self.text(TEXT_INSTANTIATION, 6)

    def word_parameters(self, call):
        return "k" + self.parameters() if self.chance.random() < 0.97 else "i0"

    def word_extra(self, call):
        return "e" + self.parameters()

    def word_config(self, call):
        if self.chance.random() < 0.02:
            return "i0"
        grid = self.chance.choice([0, 1, 4, 16, 100])
        return f"c{grid},1,1,{self.chance.choice([0, 1, 32, 32])},{self.slot_of('stream')}"

    def word_callable(self, call):
        return self.handle(self.chance.choice(["function", "function", "function", "kernel"]))

    def word_inside(self, call):
        at = self.slot_of(self.chance.choice(["ptr", "ptr", "ptr32"]))
        # What lies beyond a piece of a pool depends on the moment.
        return f"h{at}+{self.chance.choice([0, 0, 100, 100 if at in self.pooled else 2**20])}"

    def array_text(self, form):
        return f"t{TEXT_ARRAY + 4 * self.chance.randrange(len(ARRAYS)) + form}"

    def word_arraynarrow(self, call):
        return self.array_text(0)

    def word_arraywide(self, call):
        return self.array_text(1)

    def word_array3narrow(self, call):
        return self.array_text(2)

    def word_array3wide(self, call):
        return self.array_text(3)

    def word_newblob(self, call):
        return f"y{self.chance.randrange(8)}" if self.chance.random() < 0.98 else "i0"

    def word_blob(self, call):
        return f"b{self.chance.randrange(8)}"

    def word_captured(self, call):
        if self.captured and self.chance.random() < 0.8:
            return f"h{self.chance.choice(self.captured)}"
        return self.stream()

    # Memory that is made apart from its addresses

    def word_reservebytes(self, call):
        return f"i{self.chance.choice(RESERVED)}"

    def word_hint(self, call):
        return "i0" if self.chance.random() < 0.7 else f"h{self.slot_of('va')}+{self.chance.choice([0, 4, 64]) * PIECE}"

    def word_vabytes(self, call):
        return f"i{self.sizes.get(call.ends, 0) if self.chance.random() < 0.9 else self.chance.choice(RESERVED)}"

    def word_piece(self, call):
        size = self.chance.choice([1, 1, 2, 4, 8, 16, 64, self.setting.limit // PIECE]) * PIECE
        return f"i{size if self.chance.random() < 0.97 else self.chance.choice([0, 1, PIECE + 512, 2**62, 2**64 - PIECE])}"

    def word_prop(self, call):
        most = ON_DEVICE if self.chance.random() < 0.8 else len(PROPS)
        return "i0" if self.chance.random() < 0.01 else self.text(TEXT_PROP, most)

    def word_vapart(self, call):
        part = self.chance.choice([0, 0, 1, 1, 2, 3, 4, 6, 8, 15, 60]) * PIECE
        return f"h{self.slot_of('va')}+{part if self.chance.random() < 0.97 else part + 4096}"

    def word_partbytes(self, call):
        return f"i{self.chance.choice([1, 1, 1, 1, 2, 4, 8, 16, 0]) * PIECE}"

    def word_mapped(self, call):
        call.run = self.draw_run()
        if not call.run:
            return f"h{self.slot_of('va')}"
        at, offset, size = call.run
        return f"h{at}+{offset + (0 if self.chance.random() < 0.95 else PIECE)}"

    def draw_run(self):
        """A mapping, or some that follow one another."""
        if not self.mapped:
            return None
        at, offset, size = self.chance.choice(self.mapped)
        while self.chance.random() < 0.5:
            after = [one for one in self.mapped if one[:2] == (at, offset + size)]
            if not after:
                break
            size += after[0][2]
        return at, offset, size

    def word_mappedbytes(self, call):
        return f"i{call.run[2]}" if call.run and self.chance.random() < 0.95 else f"i{self.chance.choice([0, 1, 2]) * PIECE}"

    def word_poolprops(self, call):
        return self.text(TEXT_POOL, 3 if self.chance.random() < 0.8 else len(POOLS))

    def word_access(self, call):
        return self.text(TEXT_ACCESS, 1 if self.chance.random() < 0.7 else len(ACCESSES))

    def word_place(self, call):
        return self.text(TEXT_PLACE, 6)

    def heard_of_mapping(self, call):
        if call.name == "cuMemAddressReserve":
            self.sizes[call.makes] = call.number(1)
            self.mapped = [one for one in self.mapped if one[0] != call.makes]
        elif call.name == "cuMemMap":
            at, _, offset = call.words[0][1:].partition("+")
            self.mapped.append((int(at), int(offset or 0), call.number(1)))
        elif call.name == "cuMemUnmap" and call.run:
            at, offset, size = call.run
            self.mapped = [one for one in self.mapped if one[0] != at or not offset <= one[1] < offset + size]

    def word_limitvalue(self, call):
        return f"i{self.limit_value(call.number(0))}"

    # Calls

    def draw(self, thread=None):
        chance = self.chance
        if chance.random() < 0.05:
            self.thread = chance.randrange(THREADS)
        thread = self.thread if thread is None else thread
        if chance.random() < 0.01:
            name = chance.choice(self.plain)
            return Call(thread, chance.choice("lsdp"), name, [])
        name = chance.choices(self.names, self.weights)[0]
        call = Call(thread, "n" if name[:2] == "nv" else chance.choice("lssdp"), name, [])
        if name == "cuDevicePrimaryCtxRetain" and self.setting.unseen and chance.random() < 0.5:
            call.way = "t"
        for text in ROWS[name][1].split():
            call.words.append(self.word(call, text))
        return call

    def dead_after(self, call):
        """Which handles nobody has any more, whether the call succeeds or not: the memory of a module that has gone
        may be that of one that nobody has a handle of, and whether it is depends on the moment."""
        kind = KINDS[call.ends // GROUP] if call.ends else ""
        if call.also:
            self.pooled.add(call.also)
        if "Async" in call.name and call.makes:
            self.pooled.add(call.makes)
        if kind == "ptr" and call.ends in self.pooled:
            # Whether others have its addresses depends on the moment, too.
            self.alive[kind].discard(call.ends)
            return f"dead {call.ends} 1"
        if kind == "context" or call.name.startswith("cuDevicePrimaryCtxRe") and "Retain" not in call.name:
            self.alive["module"].clear()
            return f"dead {FIRST['module']} {GROUP}"
        if kind in ("module", "library", "graph", "exec"):
            self.alive[kind].discard(call.ends)
            if kind == "graph":
                # A graph's nodes end with it.
                self.alive["node"].clear()
                return f"dead {call.ends} 1\ndead {FIRST['node']} {GROUP}"
            return f"dead {call.ends} 1"
        if call.name == "cuMemImportFromShareableHandle" and call.words[1][0] == "h" and self.chance.random() < 0.7:
            at = int(call.words[1][1:])
            self.alive["fd"].discard(at)
            return f"close {at}"
        return None

    def heard(self, call, answer):
        """Remembers what a call made and ended."""
        words = answer.split()
        if not words or words[0] != "0":
            return
        if call.makes and len(words) > 1:
            # The last output that is said is not always the handle; a handle is said as new or a slot.
            kind = KINDS[call.makes // GROUP]
            if any(word == "new" or word[0] == "s" and word[1:].isdigit() for word in words[1:]):
                self.alive[kind].add(call.makes)
        if call.also:
            self.alive["ptr"].add(call.also)
            self.graphs.add(call.also)
        if call.ends:
            for kind in KINDS:
                self.alive[kind].discard(call.ends)
        self.heard_of_mapping(call)
        if "BeginCapture" in call.name and call.words[0][0] == "h":
            self.captured.append(int(call.words[0][1:]))
        if "EndCapture" in call.name and call.words[0][0] == "h":
            slot = int(call.words[0][1:])
            self.captured = [one for one in self.captured if one != slot]
        self.captured = self.captured[-4:]


class Judge:
    """What a limit may change, and nothing else may be."""

    def __init__(self, setting):
        self.setting = setting
        self.begin()

    on_device = [f"t{TEXT_PROP + i}" for i in range(ON_DEVICE)]

    def begin(self):
        """Nothing is there yet."""
        self.code = []  # slots of modules and libraries, and what they take in a context at most
        self.stacks = False  # code was loaded that makes stacks grow
        self.contexts = self.setting.gpus
        self.unseen_bytes = 0
        self.node_bytes = 0  # of executable graphs, in each of four processes
        self.graph_bytes = 0  # of all nodes that allocate
        self.captured = set()  # streams
        self.imported = False  # any memory, by a descriptor

    def stack_bytes(self):
        """What a launch may make a context's stack grow by."""
        return (LOCAL_BYTES - DEFAULT_LIMITS[0]) * SMS * STACK_THREADS if self.stacks else 0

    def code_bytes(self):
        return sum(size for _, size in self.code)

    def image_bytes(self, call):
        number = [int(word[1:]) for word in call.words if word[0] == "t"][0]
        if number >= TEXT_PATH:
            number -= TEXT_PATH
        return IMAGE_BYTES[number] if number < len(IMAGE_BYTES) else 0

    def need(self, call):
        """How many bytes a call takes if it succeeds, at least; None where memory is not its affair."""
        name, numbers = call.name, call.number
        if name in ("cuMemAlloc_v2", "cuMemAlloc"):
            return paged(numbers(1) % 2 ** (32 if name == "cuMemAlloc" else 64))
        if name.startswith("cuMemAllocPitch"):
            return paged(round_up(numbers(2)) * numbers(3))
        if name.startswith(("cuMemAllocAsync", "cuMemAllocFromPool")):
            return round_up(numbers(1), PIECE)
        if name.startswith(("cuGraphLaunch", "cuGraphUpload", "cuGraphInstantiateWithParams")):
            # Which graph it is nobody knows here: tests/vgpu/graphs.py is exact.
            return self.graph_bytes + self.setting.nodes * ("Instantiate" in name) or None
        if name.startswith("cuArray") and "Create" in name:
            return paged(array_bytes(self.array_of(call))) or None
        if name == "cuMipmappedArrayCreate":
            return paged(array_bytes(self.array_of(call), numbers(2))) or None
        if name.startswith(("cuLaunchKernel", "cuLaunchCooperative", "cuLaunchGrid")) or name == "cuLaunch":
            return self.stack_bytes() or None
        if name == "cuIpcGetMemHandle":
            return 2 * MIB
        if name == "cuMemAllocManaged":
            return round_up(numbers(1)) if self.setting.managed == "full" else None
        if name == "cuMemCreate":
            return numbers(1) if call.words[2] in self.on_device else None
        if name.startswith("cuCtxCreate") or name in ("cuDevicePrimaryCtxRetain", "cuGreenCtxCreate"):
            return CONTEXT + (self.code_bytes() if self.setting.eager else 0)
        if name.startswith("cuGraphInstantiate"):
            return max(1, self.setting.nodes)  # of graphs that were made before as well
        if name.startswith(("cuStreamCreate", "cuGreenCtxStreamCreate")):
            return 1  # none is made where more is charged than the limit
        if name.startswith(("cuModuleLoad", "cuLibraryLoad")):
            return max(1, paged(self.image_bytes(call)) * self.contexts if self.setting.eager else 1)
        if name == "cuCtxSetLimit":
            limit, value = numbers(0), numbers(1)
            # What was set before is not looked at here: it may have been nothing.
            return max(1, value * (SMS * STACK_THREADS if limit == 0 else 1) if limit in DEFAULT_LIMITS else 1)
        return None

    @staticmethod
    def array_of(call):
        shape, form = divmod(int(call.words[1][1:]) - TEXT_ARRAY, 4)
        width, height, depth, kind, channels, flags = ARRAYS[shape]
        # The first two forms have neither depth nor flags.
        return ARRAYS[shape] if form > 1 else (width, height, 0, kind, channels, 0)

    def takes(self, call):
        return self.need(call) is not None

    def may_keep(self, call):
        """Whether it may say that no descriptor is made: of what came as one."""
        return self.imported and call.name in ("cuMemExportToShareableHandle", "cuMemGetHandleForAddressRange")

    def may_refuse(self, call, most):
        """Whether out of memory is right when at most so much was in use on the fullest device."""
        need = self.need(call)
        return need is not None and most + need > self.setting.limit

    def heard(self, call, answer):
        if answer.split()[0] != "0":
            return
        self.heard_of_graphs(call)
        self.imported |= call.name == "cuMemImportFromShareableHandle"
        if call.name.startswith("cuGraphInstantiate"):
            self.node_bytes = min(self.node_bytes + PIECE, 4 * self.setting.nodes)
        if call.name.startswith(("cuModuleLoad", "cuLibraryLoad")):
            self.code.append((call.makes, paged(self.image_bytes(call))))
            self.stacks |= "t3" in call.words
        elif call.name in ("cuModuleUnload", "cuLibraryUnload"):
            # The latest in this slot: what was there before is out of reach, and still loaded.
            at = max((i for i, (slot, _) in enumerate(self.code) if slot == call.ends), default=None)
            if at is not None:
                del self.code[at]
        elif call.name.startswith("cuCtxCreate"):
            self.contexts += 1
        elif call.way == "t":
            # Known as soon as it is current somewhere, and then there is nothing to refuse.
            self.unseen_bytes = self.setting.gpus * CONTEXT

    def heard_of_graphs(self, call):
        if "BeginCapture" in call.name:
            self.captured.add(call.words[0])
        elif "AllocAsync" in call.name or "AllocFromPool" in call.name:
            if call.words[-1] in self.captured:
                self.graph_bytes += round_up(call.number(1), PIECE)
        elif call.also:
            self.graph_bytes += round_up(int(call.words[-1].split(",")[2]), PIECE)

    def lag(self):
        """What launches load and make grow nobody can refuse, and it is charged a little later."""
        if STRICT:
            return 0
        return self.contexts * (self.stack_bytes() + self.code_bytes()) + self.unseen_bytes + self.node_bytes

    def numbers(self, call, words, used, room):
        """Checks what is told of sizes, right after which so much was in use. None, or what is wrong."""
        limit = self.setting.limit
        if words[0] != "0" or len(words) < 2 or "kept" in words:
            return None
        data = [bytes.fromhex(word) for word in words[1:] if word not in ("kept", "null")]
        values = [int.from_bytes(word[i : i + 8], "little") for word in data for i in range(0, len(word), 8)]
        if call.name.startswith("cuDeviceTotalMem"):
            return None if values == [limit] else f"total {values}, limit {limit}"
        if call.name.startswith("cuMemGetInfo") and len(values) == 2:
            return self.free_of(values[1], values[0], None, used, room)
        if call.name == "nvmlDeviceGetMemoryInfo":
            return self.free_of(values[0], values[1], values[2], used, room)
        if call.name == "nvmlDeviceGetMemoryInfo_v2":
            return self.free_of(values[1], values[3], values[4], used, room)
        return None

    def free_of(self, total, free, in_use, used, room):
        limit = self.setting.limit
        if total != limit:
            return f"total {total}, limit {limit}"
        if in_use is not None and in_use + free != total:
            return f"used {in_use} and free {free} are not {total}"
        left = [limit - min(limit, one) for one in used or []]
        # Managed pages may have taken the device beyond what is charged for them.
        left += [min(one, more) for one, more in zip(left, room)]
        if used is not None and not any(abs(one - free) <= self.lag() for one in left):
            return f"free {free}, but of {limit} are used {used}"
        return None


class Difference(Exception):
    @property
    def kind(self):
        """The same for what is likely the same trouble."""
        words = str(self).split()
        name = next((word for word in words if word[:2] == "cu" or word[:4] == "nvml"), "")
        return name, re.sub(r"[0-9a-f]{6,}|[sh]?\d{2,}|\[.*", "", str(self).split("\n", 1)[-1])[:60]


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
        # At any moment of the step more may have been in use than before or after it.
        most = max(most, *self.used)
        if any(call and "Launch" in call.name for call in calls) and len(calls) > 1:
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
            takes_function = re.search("Launch|Kernel|Func|cuParam|Occupancy", call.name)
            if takes_function and str(INVALID_HANDLE) in (mine[0], theirs[0]):
                if "0" in (mine[0], theirs[0]):
                    self.part_from(call)
                    parted = True
                continue
            if call.name == "cuFuncIsLoaded" and mine[0] == theirs[0]:
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
            if new > limit + self.judge.lag() and not STRICT:
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


def draw_names(chance):
    """Texts for cuGetProcAddress: names of all entry points."""
    bases = [chance.choice(list(entries.values()))[1] for _ in range(NAMES - 2)] + ["cuNoSuchThing", ""]
    return [f"text {TEXT_NAME + i} {base.encode().hex()}" for i, base in enumerate(bases)]


def draw_calls(drawer, chance):
    """Lines and calls of one step."""
    lines, calls = [], []
    count = chance.choice([1, 1, 8, 30])
    for _ in range(count):
        kind = chance.random()
        if kind < 0.002:
            lines.append(f"end {chance.randrange(1, THREADS)}")
            calls.append(None)
        elif kind < 0.0025:
            inner = [drawer.draw(thread=0) for _ in range(chance.randrange(1, 8))]
            lines += [f"fork {len(inner)}"] + [call.line() for call in inner]
            calls += [None] + inner
        else:
            call = drawer.draw()
            lines.append(call.line())
            calls.append(call)
            dead = drawer.dead_after(call)
            if dead:
                lines.append(dead)
                calls.append(None)
    if chance.random() < 0.3:
        call = Call(drawer.thread, "s", "cuMemGetInfo_v2", ["o8", "o8"])
        lines.append(call.line())
        calls.append(call)
    return lines, calls


def init_step(drawer):
    """As most programs begin: initialised, with a context current in each thread."""
    calls = [Call(0, "s", "cuInit", ["i0"])]
    make = Call(0, "s", "cuDevicePrimaryCtxRetain", [f"n{FIRST['context'] + 1}", "i0"])
    make.makes = FIRST["context"] + 1
    calls.append(make)
    calls += [Call(t, "s", "cuCtxSetCurrent", [f"h{FIRST['context'] + 1}"]) for t in range(THREADS)]
    return [call.line() for call in calls], calls


covered, made = collections.Counter(), collections.Counter()


def draw_steps(chance, setting, count):
    """Yields steps, and takes their answers, until so many calls were made."""
    drawer = Drawer(chance, setting)
    done, until = 0, 0
    while done < count:
        if done >= until:
            if done:
                amid = [drawer.draw().line() for _ in range(chance.choice([0, 5, 30, 100]))]
                yield ("end", chance.random() < 0.5, amid)
            drawer.forget()
            until = done + chance.choice([30, 100, 1000, 4000])
            yield ("texts", draw_names(chance))
            if chance.random() < 0.9:
                lines, calls = init_step(drawer)
                for call, answer in (yield ("calls", lines, calls)):
                    drawer.heard(call, answer)
        lines, calls = draw_calls(drawer, chance)
        for call, answer in (yield ("calls", lines, calls)):
            done += 1
            made[call.name] += 1
            covered[call.name] += bool(call.words) and answer.startswith("0")
            if not answer.startswith("child"):
                drawer.heard(call, answer)
    yield ("end", False, [])


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
    global STRICT
    for sentence, setting, text in FOUND:
        lines = text.split("\n")
        steps = [("calls", [line], [Call.parse(line)]) for line in lines if line]
        STRICT = setting.get("strict", False)
        run, difference = Run(Setting.plain(**setting)), None
        try:
            for step in steps:
                perform(run, step)
        except Difference as found:
            difference = str(found)
        finally:
            run.close()
        check(difference is None, sentence, difference)
    STRICT = False


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

# SPDX-License-Identifier: Apache-2.0
"""How anything.py draws its calls: with arguments that mostly make sense, from what was answered so far."""

import collections

from anything_calls import *
from anything_setting import *


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

    def uncaptured(self):
        """A stream, or an empty slot."""
        slot = self.slot_of("stream")
        return FIRST["stream"] if slot in self.captured else slot

    def word_launches(self, call):
        """A launch on several devices: function, stream and length for each. Of a list that is refused some may run, in one of two
        guests: of a capture there would be a node more for good."""
        rows = [
            f"{self.slot_of('function')},{self.uncaptured()},{self.chance.choice([0, 3000])}"
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
        kind = self.chance.choice((1,) * 8 + (2,))  # which moves
        return f"{letter}{call.also},{self.chance.choice(DEVICES[self.setting.gpus])},{size},{place},{kind}"

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

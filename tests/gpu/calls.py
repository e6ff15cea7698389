# SPDX-License-Identifier: Apache-2.0
"""Any calls, in any order, on a real driver: a program under limits is answered as the bare one is, and what the simulated
driver answers otherwise is told.

Drawn as for tests/vgpu/anything, but with handles that are alive: a real driver follows a stale one, and crashes. Each call
is made by three guests, one call at a time: one without the library, one under limits that are never reached, and one on
a simulated machine.
"""

import collections
import random
import re
import select
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/vgpu")
from anything_calls import *
from anything_drawer import Drawer, draw_names, init_step
from anything_setting import *
from harness import *

GUEST = BUILD / "tests/gpu_calls"
LIMIT = 30 * GIB  # beyond what the calls can have at once
LONGEST = 20  # seconds that a call may take: the grid of 2^31 blocks takes some
# In which the bare driver has ended the program.
DEADLY = set()
# Which a real driver answers with INVALID_CONTEXT, and the simulated one as of old (docs/simulator.md).
OLD = {"cuCtxAttach", "cuCtxDetach", "cuCtxCreate", "cuCtxPopCurrent", "cuCtxPushCurrent", "cuMemAlloc", "cuMemAllocPitch", "cuMemFree", "cuMemGetInfo"}
OLD |= {"cuMemAllocHost", "cuArrayCreate", "cuArray3DCreate", "cuArrayGetDescriptor", "cuArray3DGetDescriptor"}
# What makes a context useless from then on.
STICKY = {"700", "702", "709", "710", "714", "715", "716", "717", "718", "719", "999"}

# kernels of the names that the drawn calls ask for: as long as their first parameter says, in ns
KERNEL = """.visible .entry NAME(.param .u64 ns)
{
    STACK
    .reg .pred p;
    .reg .b32 x;
    .reg .b64 begun, now, most;
    mov.u32 x, %ctaid.x;
    setp.ne.u32 p, x, 0;
    @p bra DONE;
    ld.param.u64 most, [ns];
    min.u64 most, most, 1000000;
    USE
    mov.u64 begun, %globaltimer;
AGAIN:
    mov.u64 now, %globaltimer;
    sub.u64 now, now, begun;
    setp.lt.u64 p, now, most;
    @p bra AGAIN;
DONE:
    ret;
}
"""
# of a place on the stack that is known only as it runs
USE = """.reg .b64 at, first;
    mov.u32 x, %tid.x;
    and.b32 x, x, 7;
    mul.wide.u32 at, x, 8;
    mov.u64 first, stack;
    add.u64 at, at, first;
    st.local.u64 [at], most;
    ld.local.u64 most, [first];"""


def ptx(*names, local=0, bytes_of_data=0):
    text = ".version 7.0\n.target sm_70\n.address_size 64\n"
    if bytes_of_data:
        text += f".visible .global .align 8 .b8 data[{bytes_of_data}];\n"
    return (text + "".join(KERNEL.replace("NAME", name).replace("STACK", f".local .align 8 .b8 stack[{local}];" if local else "").replace("USE", USE if local else "") for name in names)).encode()


CODE = [ptx("one", "two"), ptx("one", "two", "three", bytes_of_data=3000000), ptx("one", bytes_of_data=20000000), ptx("one", "two", local=2048), ptx("one"), b".version 8.0\n", b".version\n", b"not an image"]


class RealDrawer(Drawer):
    """Draws what a real driver survives."""

    def slot_of(self, kind):
        alive = self.alive[kind]
        return self.chance.choice(sorted(alive)) if alive else FIRST[kind]

    def handle(self, kind):
        return "i0" if self.chance.random() < 0.01 else f"h{self.slot_of(kind)}"

    def draw(self, thread=None):
        while True:
            call = super().draw(thread)
            if is_safe(call):
                # The guest is linked to no driver, so that what it looks up by default is not there.
                call.way = "s" if call.way == "d" else call.way
                call.words = ["i65535" if word == f"i{2**31 - 1}" else word for word in call.words]
                return call


def is_safe(call):
    """Changes nothing of the card, asks for no more managed memory than there is, and follows nothing that is not there."""
    name = call.name
    if name in DEADLY | OLD or any(word[0] == "h" and word[1:].isdigit() and int(word[1:]) % GROUP == 0 for word in call.words):
        return False
    if name[:4] == "nvml":
        return bool(re.match(r"nvml(Init|DeviceGet)", name))
    if name not in ROWS or not ROWS[name][1] or re.search("External|Graphics|GL|EGL|VDPAU|Checkpoint|LogicalEndpoint|Multicast|Coredump", name):
        return False
    # Of descriptors of texts that are none, and of numbers for handles.
    numbers = [int(word[1:], 0) for word in call.words if re.fullmatch(r"i-?(0x)?[0-9a-f]+", word)]
    if any(number < 0 for number in numbers):
        return False
    # Either next to nothing, or more than there is.
    most = 2**39 if name.startswith(("cuMemAlloc_v2", "cuMemAllocPitch", "cuMemCreate")) else 2**64
    return not any(2 * GIB < number < most for number in numbers)


class Died(Exception):
    pass


class Guest:
    def __init__(self, name, environment, texts_of):
        self.name = name
        self.log = open(scratch / f"calls-{name}", "w+")
        self.process = start([GUEST], environment, stderr=self.log)
        self.tell([f"text {number} {text.hex()}" for number, text in texts_of])

    def tell(self, lines):
        self.process.stdin.write("\n".join(lines) + "\n")

    def ask(self, line):
        self.process.stdin.write(f"{line}\ngo\n")
        try:
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Died(f"{self.name} died before {line}")
        # Not by lines: what Python has read already, select() does not see.
        said = b""
        while not said.endswith(b".\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], LONGEST)
            more = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not more:
                fate = f"died ({self.process.wait()})" if ready else "hangs"
                raise Died(f"{self.name} {fate} in {line}: {self.said()}")
            said += more
        return (said.decode().split("\n")[0]) if len(said) > 2 else None

    def said(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()[-600:]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin = None
        guests.remove(self.process)


def same(call, mine, theirs):
    """Whether both answers mean the same, as in tests/vgpu/anything."""
    if mine == theirs:
        return True
    mine, theirs = (mine or "-").split(), (theirs or "-").split()
    # What is beyond all limits is said first.
    if mine[0] == str(OUT_OF_MEMORY) and theirs[0] not in ("0", mine[0]):
        return True
    if call.name in SAMPLES and {mine[0], theirs[0]} <= {"0", "6", "7"}:
        return True
    # Of two things that are wrong a limit of compute has its own said first: no context, no such stream.
    if "Launch" in call.name and mine[0] in (str(INVALID_CONTEXT), str(CONTEXT_IS_DESTROYED), str(INVALID_HANDLE)) and theirs[0] != "0":
        return True
    # Of what fails an output may be as the driver happens to leave it; what devices have is told with pointers.
    if call.name in NUMBERS or call.name[:4] == "nvml" or "DevResource" in call.name or "touched" in theirs:
        return mine[0] == theirs[0]
    if call.name in QUERIES and {mine[0], theirs[0]} <= {"0", str(NOT_READY)}:
        return True
    makes = call.makes and KINDS[call.makes // GROUP] in ("function", "kernel")
    return bool(mine[0] == theirs[0] and (makes or call.name in ("cuFuncIsLoaded",)))


def real_code(folder):
    """The texts that are code, and the paths of files with it, as a real driver takes them."""
    code = {TEXT_IMAGE + i: image for i, image in enumerate(CODE)}
    for i in range(3):
        path = folder / f"real-{i}"
        path.write_bytes(CODE[i])
        code[TEXT_PATH + i] = str(path).encode()
    return code


def program(chance, count, environments, used_by):
    """A program of so many calls. Returns what differed, and what the simulated driver says otherwise."""
    setting = Setting.plain(limit=GIB)
    drawer = RealDrawer(chance, setting)
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    simulated = dict(texts(folder))
    real = simulated | real_code(folder)
    group = [Guest(name, environment, (simulated if name == "simulated" else real).items()) for name, environment in environments.items()]
    names = draw_names(chance)
    for guest in group:
        guest.tell(names)
    differs, otherwise, done = [], [], 0
    answered = collections.Counter()
    try:
        queue = []

        def begin():
            drawer.forget()
            _, calls = init_step(drawer)
            for guest in group:
                guest.tell(["clear %d" % slot for slot in range(GROUP, GROUP * len(KINDS))])
            # libvgpu asks NVML itself, so that to a program, too, it is always initialised.
            queue.extend([Call(0, "n", "nvmlInit_v2", []), *calls])

        begin()
        while done < count:
            call = queue.pop(0) if queue else drawer.draw()
            line = call.line()
            try:
                bare = group[0].ask(line)
            except Died as death:
                DEADLY.add(call.name)
                otherwise.append((done, line, str(death), "(not asked)"))
                account = None, None
                return differs, otherwise, done, account, answered
            answers = [bare, *(guest.ask(line) for guest in group[1:])]
            done += 1
            limited = answers[1]
            answered[call.name, (bare or "-").split()[0] == "0"] += 1
            if not same(call, limited, bare):
                differs.append((done, line, bare, limited))
            if len(answers) > 2 and not same(call, answers[2], bare):
                otherwise.append((done, line, bare, answers[2]))
            drawer.heard(call, bare)
            result = (bare or "-").split()[0]
            dead = drawer.dead_after(call) if result == "0" else None
            ends = [call.ends] if call.ends and result == "0" else []
            for text in (dead or "").split("\n"):
                words = text.split()
                if words[:1] == ["dead"]:
                    ends += range(int(words[1]), int(words[1]) + int(words[2]))
                elif words:
                    for guest in group:
                        guest.tell([text])
            for guest in group:
                guest.tell([f"clear {slot}" for slot in ends])
            # What belongs to a context ends with it.
            if result == "0" and re.match("cu(CtxDestroy|CtxDetach|DevicePrimaryCtxRe(lease|set)|GreenCtxDestroy)", call.name):
                begin()
            if result in STICKY:
                break
        result, free, _ = group[1].ask("call 0 s cuMemGetInfo_v2 o8 o8").split()
        told = LIMIT - int.from_bytes(bytes.fromhex(free), "little") if result == "0" else None
        account = told, used_by(group[1].process.pid)
    except Died as death:
        account = None, None
        differs.append((done, str(death), "", ""))
    finally:
        for guest in group:
            guest.end()
    return differs, otherwise, done, account, answered


def compare(environments, used_by, seconds, seed, say):
    """Programs, one after another, for so long."""
    until, total, programs = time.monotonic() + seconds, 0, 0
    strange, others, answered = [], collections.OrderedDict(), collections.Counter()
    while time.monotonic() < until:
        chance = random.Random(seed)
        differs, otherwise, done, (told, used), calls = program(chance, chance.choice([100, 400, 1500]), environments, used_by)
        total, programs, answered = total + done, programs + 1, answered + calls
        for at, line, bare, limited in differs:
            say(f"    seed {seed}, call {at}: {line}\n        bare {bare}, limited {limited}")
            strange.append(line)
        for at, line, bare, simulated in otherwise:
            words = line.split()
            key = words[3], (bare or "-").split()[0], (simulated or "-").split()[0]
            others.setdefault(key, [0, at, seed, line, bare, simulated])[0] += 1
        if used is not None and told is not None:
            say(f"    seed {seed}: {done} calls; charged {told / MIB:.1f}, NVML {used / MIB:.1f} MiB, {(told - used) / MIB:+.1f}")
        seed += 1
    for (name, bare, simulated), (count, at, where, line, whole, other) in others.items():
        say(f"    simulated otherwise, {count} times, first seed {where} call {at}: {line}\n        card {whole}, simulated {other}")
    done = {name for name, good in answered if good}
    say(f"    {programs} programs, {total} calls of {len({name for name, _ in answered})} functions, of which {len(done)} succeeded")
    return total, strange

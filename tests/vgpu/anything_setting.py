# SPDX-License-Identifier: Apache-2.0
"""Where anything.py makes its calls, and what a call is."""

from harness import *

UNIT = 512
MEMORY = 8 * GIB
SMS = 4
STACK_THREADS = 2048  # a multiprocessor's
CONTEXT = 60 * MIB
NODES = 18 * MIB  # that 256 nodes of executable graphs take, and a page: those are not measured one by one
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY, CONTEXT_IS_DESTROYED, NOT_SUPPORTED = 1, 2, 201, 400, 600, 709, 801
DEFAULT_LIMITS = {0: 1024, 1: 1 * MIB, 2: 8 * MIB}
THREADS = 4

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
        self.driver["graph-places"] = chance.choice(["managed", "host", "device"])
        self.driver["stream"] = "0"  # of what they take: tests/vgpu/stream_memory.py
        # What the driver takes at a launch is charged within a second, mostly before the next allocation.
        self.strict = False

    @classmethod
    def plain(cls, gpus=1, limit=512 * MIB, cores=None, driver={}, strict=False):
        setting = cls.__new__(cls)
        setting.gpus, setting.limit, setting.cores, setting.environment = gpus, limit, cores, {}
        setting.driver = {"loading": "lazy", "graph-node": "0", "stream": "0"} | driver
        setting.unseen = setting.file = False
        setting.strict = strict
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

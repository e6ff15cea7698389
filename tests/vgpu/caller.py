# SPDX-License-Identifier: Apache-2.0
"""A program that makes the driver calls it is told, one at a time: anything.c, for tests that know what comes next."""

import os
import resource
import struct
import subprocess

from harness import *

CALLER = BUILD / "tests/anything"
GROUP = 32
KINDS = "special context stream event module function library kernel graph exec ptr host ptr32 nvml physical va fd pool opened array mipmap node external"
KINDS = KINDS.split()
DEVICE, HOST, HOST_NUMA = 1, 2, 3
POSIX_FD = 1
INVALID_VALUE, OUT_OF_MEMORY, OPERATING_SYSTEM, NOT_SUPPORTED = 1, 2, 304, 801


def slot(kind, number=1):
    """Where the number-th handle of a kind is kept."""
    return KINDS.index(kind) * GROUP + number


def allocation_prop(place=DEVICE, number=0, handles=0, kind=1, compressed=0, for_cards=0, usage=0):
    """CUmemAllocationProp; for_cards: that network cards may have it (gpuDirectRDMACapable)."""
    return struct.pack("<iiiiQBBHI", kind, handles, place, number, 0, compressed, for_cards, usage, 0)


def access_desc(place=DEVICE, number=0, flags=3):
    """CUmemAccessDesc."""
    return struct.pack("<iii", place, number, flags)


class Caller:
    def __init__(self, environment):
        self.process = start([CALLER], environment, stderr=subprocess.PIPE)
        self.pid = self.process.pid
        self.next_text = 0

    def ask(self, line):
        """The words of the answer."""
        self.process.stdin.write(line + "\ngo\n")
        self.process.stdin.flush()
        answer = []
        for told in self.process.stdout:
            if told == ".\n":
                return answer
            answer = told.split()
        raise RuntimeError(f"{line}: it died: {self.process.stderr.read()}")

    def tell(self, line):
        self.ask(line)

    def call(self, name, *words, thread=0):
        """The result; words as anything.c reads them, plain numbers and bytes as well."""
        self.words = self.ask(f"call {thread} s {name} {' '.join(self.word(word) for word in words)}")
        return int(self.words[0])

    def word(self, word):
        if isinstance(word, int):
            return f"i{word}"
        if isinstance(word, bytes):
            self.next_text = (self.next_text + 1) % 64
            self.tell(f"text {self.next_text} {word.hex()}")
            return f"t{self.next_text}"
        return word

    def must(self, name, *words):
        result = self.call(name, *words)
        if result != 0:
            check(False, f"{name} {words} succeeds", result)

    def blob(self, number, value=""):
        """The 64 bytes that a call put there; or puts them there."""
        return self.ask(f"blob {number} {value}")[0]

    def value(self, at):
        return int(self.ask(f"value {at}")[0])

    def number(self, name, *words):
        """What a call puts into its first output of eight bytes."""
        self.must(name, *words)
        return int.from_bytes(bytes.fromhex(self.words[1]), "little")

    def begin(self, device=0):
        """A context on a device, current."""
        self.must("cuInit", 0)
        self.must("cuDevicePrimaryCtxRetain", f"n{slot('context', 1 + device)}", device)
        self.must("cuCtxSetCurrent", f"h{slot('context', 1 + device)}")
        return self

    def info(self):
        """Free and total, as the current device says."""
        self.must("cuMemGetInfo_v2", "o8", "o8")
        return tuple(int.from_bytes(bytes.fromhex(word), "little") for word in self.words[1:3])

    def charged(self):
        free, total = self.info()
        return total - free

    def leave_descriptors(self, count):
        """It can open so many more; None: as many as any."""
        most = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[1]
        taken = {int(number) for number in os.listdir(f"/proc/{self.pid}/fd")}
        free = [number for number in range(len(taken) + (count or 0) + 1) if number not in taken]
        soft = most if count is None else free[count]
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (soft, most))

    def kill(self):
        self.process.kill()
        return self.finish()

    def finish(self):
        """What it said."""
        self.process.stdin.close()
        self.process.wait(60)
        said = self.process.stderr.read()
        guests.remove(self.process)
        return said

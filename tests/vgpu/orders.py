#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A hostile container: processes that take every kind of memory, share it, leave it to one another, end contexts and are
killed, in orders drawn by lot. Never is more in use than the limit; in the end what is charged is what is in use, and
nothing stays.

usage: orders.py [SEED [COUNT]]
"""

import random
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 1)[0])
from caller import *
from harness import *

PIECE = 2 * MIB
CONTEXT = 60 * MIB
LIMIT = 512 * MIB
SMALL = 8  # of each kind
DEAD = {"cuDevicePrimaryCtxReset_v2"}


def array_form(chance):
    return struct.pack("<QQQiII4x", 1024 * chance.randrange(1, 8), 1024 * chance.randrange(1, 4), 0, 32, 1, 0)


class Tenant(Caller):
    """What it holds it remembers by slot."""

    def begin(self, device=0):
        super().begin(device)
        for i in (1, 2):
            self.must("cuStreamCreate", f"n{slot('stream', i)}", 1)
        self.must("cuDeviceGetDefaultMemPool", f"n{slot('pool')}", 0)
        self.must("cuMemAddressReserve", f"n{slot('va')}", 64 * PIECE, 0, 0, 0)
        return self

    def has(self, kind, number):
        return self.value(slot(kind, number)) != 0

    def end(self, name, kind, number, *more):
        """Ends what is in a slot, if anything is."""
        if self.has(kind, number) and self.call(name, f"h{slot(kind, number)}", *more) == 0:
            self.tell(f"clear {slot(kind, number)}")

    def stream(self, chance):
        return f"h{slot('stream', chance.randrange(1, 3))}"


class Orders:
    def __init__(self, chance, machine, region):
        self.chance, self.machine, self.region = chance, machine, region
        self.all = [self.start() for _ in range(3)]
        self.handles, self.shared, self.pointers = [], [], []
        self.log = []

    def start(self):
        return Tenant(limited_environment(self.machine, memory=LIMIT, region=self.region, HAMI_MANAGED="full")).begin()

    def size(self):
        return self.chance.choice([1, 1, 1, 2, 4]) * self.chance.randrange(1, 60) * MIB

    def number(self):
        return self.chance.randrange(1, SMALL)

    # What a process may do. Each may fail.

    def do_alloc(self, one, n):
        if not one.has("ptr", n):
            one.call("cuMemAlloc_v2", f"n{slot('ptr', n)}", self.size())

    def do_managed(self, one, n):
        if not one.has("ptr", n):
            one.call("cuMemAllocManaged", f"n{slot('ptr', n)}", self.size(), 1)
            one.call("cuMemPrefetchAsync", f"h{slot('ptr', n)}", 4 * MIB, 0, one.stream(self.chance))

    def do_pool(self, one, n):
        if not one.has("ptr", n):
            one.call("cuMemAllocAsync", f"n{slot('ptr', n)}", self.size(), one.stream(self.chance))

    def do_free(self, one, n):
        one.end("cuMemFree_v2", "ptr", n)

    def do_free_async(self, one, n):
        one.end("cuMemFreeAsync", "ptr", n, one.stream(self.chance))

    def do_wait(self, one, n):
        one.call("cuCtxSynchronize")

    def do_trim(self, one, n):
        one.call("cuMemPoolTrimTo", f"h{slot('pool')}", 0)
        one.call("cuDeviceGraphMemTrim", 0)

    def do_give(self, one, n):
        if one.has("ptr", n) and one.call("cuIpcGetMemHandle", "y1", f"h{slot('ptr', n)}") == 0:
            self.handles.append(one.blob(1))

    def do_open(self, one, n):
        if self.handles and not one.has("opened", n):
            one.blob(2, self.chance.choice(self.handles))
            one.call("cuIpcOpenMemHandle_v2", f"n{slot('opened', n)}", "b2", 1)

    def do_close(self, one, n):
        one.end("cuIpcCloseMemHandle", "opened", n)

    def do_create(self, one, n):
        if not one.has("physical", n):
            one.call("cuMemCreate", f"n{slot('physical', n)}", self.chance.randrange(1, 40) * PIECE, allocation_prop(handles=POSIX_FD), 0)

    def do_map(self, one, n):
        if one.has("physical", n):
            one.call("cuMemMap", f"h{slot('va')}+{n * PIECE}", PIECE, 0, f"h{slot('physical', n)}", 0)

    def do_unmap(self, one, n):
        one.call("cuMemUnmap", f"h{slot('va')}+{n * PIECE}", PIECE)

    def do_retain(self, one, n):
        if not one.has("physical", n + 8):
            one.call("cuMemRetainAllocationHandle", f"n{slot('physical', n + 8)}", f"h{slot('va')}+{n * PIECE}")

    def do_release(self, one, n):
        one.end("cuMemRelease", "physical", n + self.chance.choice([0, 8]))

    def do_export(self, one, n):
        if one.has("physical", n) and not one.has("fd", n):
            if one.call("cuMemExportToShareableHandle", f"w{slot('fd', n)}", f"h{slot('physical', n)}", POSIX_FD, 0) == 0:
                self.shared.append((one, n))

    def do_close_fd(self, one, n):
        one.tell(f"close {slot('fd', n)}")

    def do_import(self, one, n):
        if self.shared and not one.has("physical", n):
            maker, number = self.chance.choice(self.shared)
            if maker not in self.all or not maker.has("fd", number):
                return
            one.ask(f"borrow {slot('fd', 20)} {maker.pid} {maker.value(slot('fd', number))}")
            one.call("cuMemImportFromShareableHandle", f"n{slot('physical', n)}", f"h{slot('fd', 20)}", POSIX_FD)
            one.tell(f"close {slot('fd', 20)}")

    # A shared pool is in slot 2; what was imported of others' in the slots from 8 on

    def do_share_pool(self, one, n):
        if one.has("pool", 2):
            return
        props = struct.pack("<iiiiQQ56x", 1, POSIX_FD, 1, 0, 0, 0)
        if one.call("cuMemPoolCreate", f"n{slot('pool', 2)}", props) == 0:
            one.call("cuMemPoolExportToShareableHandle", f"w{slot('fd', 21)}", f"h{slot('pool', 2)}", POSIX_FD, 0)

    def do_take_shared(self, one, n):
        if one.has("pool", 2) and not one.has("ptr", n):
            size = self.size()
            if one.call("cuMemAllocFromPoolAsync", f"n{slot('ptr', n)}", size, f"h{slot('pool', 2)}", one.stream(self.chance)) == 0:
                one.call("cuMemPoolExportPointer", "y3", f"h{slot('ptr', n)}")
                self.pointers.append((one, one.blob(3)))

    def do_import_pool(self, one, n):
        if not self.pointers or one.has("ptr", 8 + n):
            return
        maker, pointer = self.chance.choice(self.pointers)
        if maker not in self.all or not maker.has("fd", 21):
            return
        one.ask(f"borrow {slot('fd', 22)} {maker.pid} {maker.value(slot('fd', 21))}")
        one.call("cuMemPoolImportFromShareableHandle", f"n{slot('pool', 8 + n)}", f"h{slot('fd', 22)}", POSIX_FD, 0)
        one.tell(f"close {slot('fd', 22)}")
        one.call("cuMemPoolImportPointer", f"n{slot('ptr', 8 + n)}", f"h{slot('pool', 8 + n)}", bytes.fromhex(pointer))

    def do_free_import(self, one, n):
        one.end(self.chance.choice(["cuMemFree_v2"]), "ptr", 8 + n)

    def do_end_pool(self, one, n):
        one.end("cuMemPoolDestroy", "pool", self.chance.choice([2, 8 + n]))
        if not one.has("pool", 2):
            one.tell(f"close {slot('fd', 21)}")

    def do_array(self, one, n):
        if not one.has("array", n):
            one.call("cuArray3DCreate_v2", f"n{slot('array', n)}", array_form(self.chance))

    def do_end_array(self, one, n):
        one.end("cuArrayDestroy", "array", n)

    def do_multicast(self, one, n):
        if one.has("physical", n) and not one.has("physical", n + 16):
            team = struct.pack("<IxxxxQQQ", 1, 64 * PIECE, POSIX_FD, 0)
            if one.call("cuMulticastCreate", f"n{slot('physical', n + 16)}", team) == 0:
                one.call("cuMulticastAddDevice", f"h{slot('physical', n + 16)}", 0)
                one.call("cuMulticastBindMem", f"h{slot('physical', n + 16)}", 0, f"h{slot('physical', n)}", 0, PIECE, 0)

    def do_end_multicast(self, one, n):
        one.end("cuMemRelease", "physical", n + 16)

    def do_graph(self, one, n):
        """Captured; what it leaves over, if it does, is behind slot 20."""
        if one.has("exec", n):
            return
        stream = one.stream(self.chance)
        one.call("cuStreamBeginCapture_v2", stream, 2)
        for i in range(self.chance.choice([1, 2, 3])):
            one.call("cuMemAllocAsync", f"n{slot('ptr', 24)}", self.size(), stream)
            if self.chance.random() < 0.7:
                one.call("cuMemFreeAsync", f"h{slot('ptr', 24)}", stream)
            elif not one.has("ptr", 16 + n):
                one.ask(f"value {slot('ptr', 24)}")
                one.left[n] = one.value(slot("ptr", 24))
        one.call("cuStreamEndCapture", stream, f"n{slot('graph', n)}")
        one.call("cuGraphInstantiateWithFlags", f"n{slot('exec', n)}", f"h{slot('graph', n)}", self.chance.choice([0, 1]))
        one.end("cuGraphDestroy", "graph", n)

    def do_launch(self, one, n):
        if one.has("exec", n):
            one.call(self.chance.choice(["cuGraphLaunch", "cuGraphLaunch", "cuGraphUpload"]), f"h{slot('exec', n)}", one.stream(self.chance))

    def do_free_left(self, one, n):
        if n in one.left:
            one.call("cuMemFreeAsync", one.left[n], one.stream(self.chance))

    def do_end_graph(self, one, n):
        one.end("cuGraphExecDestroy", "exec", n)

    def do_context(self, one, n):
        if not one.has("context", n + 8):
            one.call("cuCtxCreate_v2", f"n{slot('context', n + 8)}", 0, 0)
            one.call("cuCtxSetCurrent", f"h{slot('context')}")

    def do_end_context(self, one, n):
        one.end("cuCtxDestroy_v2", "context", n + 8)
        one.call("cuCtxSetCurrent", f"h{slot('context')}")

    def do_reset(self, one, n):
        if self.chance.random() > 0.2:
            return
        one.must("cuDevicePrimaryCtxReset_v2", 0)
        for kind in ("ptr", "array", "opened", "stream"):
            for i in range(1, 17):
                one.tell(f"clear {slot(kind, i)}")
        if one.call("cuDevicePrimaryCtxRetain", f"n{slot('context')}", 0) != 0:
            self.end(one)  # another one has its room
            return
        one.must("cuCtxSetCurrent", f"h{slot('context')}")
        for i in (1, 2):
            one.must("cuStreamCreate", f"n{slot('stream', i)}", 1)

    def do_kill(self, one, n):
        if self.chance.random() > 0.15:
            return
        self.end(one)
        if self.machine.used() + CONTEXT <= LIMIT:
            try:
                self.all.append(self.start())
                self.all[-1].left = {}
            except RuntimeError:
                pass

    def end(self, one):
        self.all.remove(one)
        one.kill()

    # Judging

    def run(self):
        """What is wrong, or None."""
        names = [name for name in dir(self) if name.startswith("do_")]
        for one in self.all:
            one.left = {}
        for step in range(self.chance.randrange(40, 160)):
            if not self.all:
                break
            one, name, number = self.chance.choice(self.all), self.chance.choice(names), self.number()
            getattr(self, name)(one, number)
            self.log.append((name, number, one.pid % 10000, one.__dict__.get("words"), self.machine.used() // 1024))
            if self.machine.used() > LIMIT:
                return f"step {step}, {name}: {self.machine.used() - LIMIT} bytes over the limit"
        return self.leave()

    def owned(self, one):
        """What a process has, of managed memory all, wherever it is."""
        process = next(p for p in self.machine.view()["processes"] if p["pid"] == one.pid)
        return process["used"][0] + process["claimed"][0]

    def leave(self):
        self.chance.shuffle(self.all)
        while len(self.all) > 1:
            self.end(self.all[-1])
        if self.all:
            last = self.all[0]
            until = time.monotonic() + 4
            while last.charged() != self.owned(last) and time.monotonic() < until:
                time.sleep(0.05)
            charged, used = last.charged(), self.owned(last)
            self.end(last)
            if charged != used:
                return f"{charged} bytes are charged of {used}"
        used = self.machine.used()
        return f"{used} bytes are left" if used else None


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    machine = Machine(memory=4 * GIB, context=CONTEXT, driver={"multicast": "yes", "graph-node": "0", "stream": "0"})
    wrong = []
    for i in range(seed, seed + count):
        orders = Orders(random.Random(i), machine, new_region())
        said = orders.run()
        if said:
            wrong.append((i, said))
            print(f"seed {i}: {said}", *orders.log[-40:], sep="\n  ")
            for one in list(orders.all):
                orders.end(one)
    check_equal(wrong, [], f"in {count} orders the limit holds, what is in use is charged, and nothing stays")
    finish()


main()

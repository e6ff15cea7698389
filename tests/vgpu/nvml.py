#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVML in a container: what it tells is the container's own, and nobody there changes a card. Bare, it does otherwise."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

LIMIT = 2 * GIB
NO_PERMISSION = 4
UNINITIALIZED = 1
NOBODY = 65534

# A program that asks NVML: its code follows. Prints what ANSWER became, as JSON.
CLIENT = """
import ctypes, json, os, sys
from ctypes import byref, c_uint, c_void_p
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
device = c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device)) == 0
"""


def client(code, *arguments):
    return [sys.executable, "-c", f"{CLIENT}{code}\nprint(json.dumps(ANSWER))", *map(str, arguments)]


def ask(environment, code, *arguments):
    ended = run(client(code, *arguments), environment)
    if not check(ended.returncode == 0, "a client of NVML runs", ended.stdout, ended.stderr):
        return None
    return json.loads(ended.stdout)


class Tenant:
    """A container of the machine's first card."""

    def __init__(self, machine, cores=None):
        self.machine = machine
        keys = {"NVIDIA_VISIBLE_DEVICES": machine.view()["gpus"][0]["uuid"], "CUDA_DEVICE_MEMORY_LIMIT_0": LIMIT}
        if cores:
            keys["CUDA_DEVICE_SM_LIMIT_0"] = cores
        self.library = container(**keys)

    def environment(self):
        return bare_environment(self.machine, LD_PRELOAD=self.library)

    def begin(self, *arguments):
        return start([LOAD, *map(str, arguments)], self.environment())

    def ask(self, code, *arguments):
        return ask(self.environment(), code, *arguments)


def listed(kind):
    lines = (SOURCE / "src/driver/nvml.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line.split()[1:] == [kind]]


# Every name, by the library and as a program that is linked with it has it. Their arguments name nothing.
CHANGES = """
ANSWER = [[getattr(library, name)(None, 0, None, None, None, None) for library in (nvml, ctypes.CDLL(None))] for name in sys.argv[1:]]
"""
BARE_CHANGES = """
ANSWER = [getattr(nvml, name)(None, 0, None, None, None, None) for name in sys.argv[1:]]
"""
# The modes that it finds, what comes of setting others, and what there is then.
MODES = """
if sys.argv[1:]:
    os.setuid(int(sys.argv[1]))
def modes():
    compute, mig, pending = c_uint(), c_uint(), c_uint()
    assert nvml.nvmlDeviceGetComputeMode(device, byref(compute)) == 0
    assert nvml.nvmlDeviceGetMigMode(device, byref(mig), byref(pending)) == 0
    return [compute.value, pending.value]
was = modes()
activation = ctypes.c_int()
set = [nvml.nvmlDeviceSetComputeMode(device, 3), nvml.nvmlDeviceSetMigMode(device, 1, byref(activation))]
ANSWER = [was, set, modes()]
"""


def check_changes():
    names = listed("change")
    check(len(names) > 70, "NVML has many calls that change a card", len(names))
    machine = Machine(2, 40960 * MIB)
    tenant = Tenant(machine)
    got = dict(zip(names, tenant.ask(CHANGES, *names)))
    wrong = {name: answers for name, answers in got.items() if answers != [NO_PERMISSION] * 2}
    check_equal(wrong, {}, "in a container each of them is answered no-permission, whichever way it is found")
    check_equal(tenant.ask(MODES), [[0, 0], [NO_PERMISSION] * 2, [0, 0]], "and the card's modes stay as they are, whoever asks")
    if os.geteuid() != 0:
        check(True, "what root may do bare: not root, so not tried")
        return
    got = dict(zip(names, ask(bare_environment(machine), BARE_CHANGES, *names)))
    check(NO_PERMISSION not in got.values(), "bare, none of them is for root", got)
    check_equal(ask(bare_environment(machine), MODES, NOBODY), [[0, 0], [NO_PERMISSION] * 2, [0, 0]], "bare, others than root may not change modes")
    check_equal(ask(bare_environment(machine), MODES), [[0, 0], [0, 0], [3, 1]], "but root may")


# What the card does, and who does it, by all three calls; the last of them first tells how much room it wants.
BUSY = """
class Rates(ctypes.Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]
class Sample(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("time", ctypes.c_ulonglong)] + [(n, c_uint) for n in ("sm", "memory", "encoder", "decoder")]
class Info(ctypes.Structure):
    _fields_ = [("time", ctypes.c_ulonglong)] + [(n, c_uint) for n in ("pid", "sm", "memory", "encoder", "decoder", "jpg", "ofa")]
class Infos(ctypes.Structure):
    _fields_ = [("version", c_uint), ("count", c_uint), ("since", ctypes.c_ulonglong), ("list", ctypes.POINTER(Info))]
rates, samples, count = Rates(), (Sample * 64)(), c_uint(64)
codes = [nvml.nvmlDeviceGetUtilizationRates(device, byref(rates))]
codes.append(nvml.nvmlDeviceGetProcessUtilization(device, samples, byref(count), ctypes.c_ulonglong(0)))
infos = Infos(ctypes.sizeof(Infos) | 1 << 24, 0, 0, None)
codes.append(nvml.nvmlDeviceGetProcessesUtilizationInfo(device, byref(infos)))
room = infos.count
infos.list = ctypes.cast((Info * 64)(), ctypes.POINTER(Info))
infos.count = 64
codes.append(nvml.nvmlDeviceGetProcessesUtilizationInfo(device, byref(infos)))
last = max([s.time for s in samples[: count.value]], default=0)
few = c_uint(64)
later = nvml.nvmlDeviceGetProcessUtilization(device, samples, byref(few), ctypes.c_ulonglong(last + 10**12)) if last else 6
of = lambda rows: {row.pid: row.sm for row in rows}
ANSWER = {"codes": codes, "rates": [rates.gpu, rates.memory], "samples": of(samples[: count.value]), "infos": of(infos.list[: infos.count]), "room": room, "later": later}
infos.version += 1 << 24
ANSWER["other version"] = nvml.nvmlDeviceGetProcessesUtilizationInfo(device, byref(infos))
"""
NOT_FOUND, INSUFFICIENT_SIZE, VERSION_MISMATCH = 6, 7, 25


def near(got, wanted):
    return {int(pid) for pid in got} == set(wanted) and all(abs(got[str(pid)] - percent) <= 8 for pid, percent in wanted.items())


def check_busy_of(who, got, wanted):
    """Of one answer: the percent of each process that is to be in it."""
    if got is None:
        return False
    codes = [0, 0, INSUFFICIENT_SIZE, 0] if wanted else [0, NOT_FOUND, NOT_FOUND, NOT_FOUND]
    holds = check_equal(got["codes"], codes, f"{who}: NVML answers")
    holds &= check(near(got["samples"], wanted), f"{who}: samples are of these processes", got, wanted)
    holds &= check(near(got["infos"], wanted) and got["room"] == len(wanted), f"{who}: so are those with more in them", got, wanted)
    holds &= check(abs(got["rates"][0] - sum(wanted.values())) <= 12, f"{who}: and the device's part is theirs", got, wanted)
    holds &= check_equal(got["rates"][1], 0, f"{who}: of the memory's controller nothing is told")
    return holds & check_equal((got["later"], got["other version"]), (NOT_FOUND, VERSION_MISMATCH), f"{who}: nobody was busy later on; another version is none")


def check_busy():
    machine = Machine(1)
    one, two, idle = Tenant(machine, 30), Tenant(machine, 50), Tenant(machine)
    work = ["--kernel", "1ms", "--batch", "8", "--seconds", "40"]
    pids = [tenant.begin(*work).pid for tenant in (one, two)]
    holder = idle.begin("--memory", "100M", "--hold")
    time.sleep(4)
    check_busy_of("bare", ask(bare_environment(machine), BUSY), {pids[0]: 30, pids[1]: 50})
    check_busy_of("a container with 30 percent", one.ask(BUSY), {pids[0]: 30})
    check_busy_of("its neighbour with 50", two.ask(BUSY), {pids[1]: 50})
    check_busy_of("a container that launches nothing", idle.ask(BUSY), {})
    stop()
    free = Tenant(machine)
    guests = [free.begin("--kernel", "10ms", "--batch", "1", "--pause", "30ms", "--seconds", "40") for _ in range(2)]
    time.sleep(4)
    check_busy_of("two processes that no share holds", free.ask(BUSY), {guest.pid: 25 for guest in guests})
    for guest in guests:
        guest.kill()
    check_busy_of("once they are dead", free.ask(BUSY), {})
    stop()


# The window onto the card's memory; whom accounting names, and what it says of the first.
WINDOW = """
class Window(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]
window, mode, count, pids, stats = Window(), c_uint(), c_uint(64), (c_uint * 64)(), (ctypes.c_ulonglong * 16)()
assert nvml.nvmlDeviceGetBAR1MemoryInfo(device, byref(window)) == 0
codes = [nvml.nvmlDeviceGetAccountingMode(device, byref(mode))]
codes.append(nvml.nvmlDeviceGetAccountingPids(device, byref(count), pids))
codes.append(nvml.nvmlDeviceGetAccountingStats(device, pids[0] or int(sys.argv[1]), stats))
ANSWER = {"window": [window.total, window.free, window.used], "codes": codes, "pids": pids[: count.value] if codes[1] == 0 else []}
"""
ACCOUNT = """
ANSWER = nvml.nvmlDeviceSetAccountingMode(device, 1)
"""
NOT_SUPPORTED = 3


# The processes of each kind.
DETAILS = """
class Detail(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("bytes", ctypes.c_ulonglong), ("gpu", c_uint), ("compute", c_uint), ("guarded", ctypes.c_ulonglong)]
class Details(ctypes.Structure):
    _fields_ = [("version", c_uint), ("mode", c_uint), ("count", c_uint), ("list", ctypes.POINTER(Detail))]
ANSWER = []
for mode in (0, 1, 2, 3):
    details = Details(ctypes.sizeof(Details) | 1 << 24, mode, 64, ctypes.cast((Detail * 64)(), ctypes.POINTER(Detail)))
    code = nvml.nvmlDeviceGetRunningProcessDetailList(device, byref(details))
    ANSWER.append([code, [[p.pid, p.bytes, p.gpu, p.compute] for p in details.list[: details.count if code == 0 else 0]]])
details = Details(ctypes.sizeof(Details) | 1 << 24, 0, 0, None)
ANSWER.append([nvml.nvmlDeviceGetRunningProcessDetailList(device, byref(details)), details.count])
"""


def check_details():
    machine = Machine(1)
    tenants = [Tenant(machine), Tenant(machine)]
    holders = [tenant.begin("--memory", "100M", "--hold") for tenant in tenants]
    check(wait_until(lambda: all(machine.used(h.pid) >= 100 * MIB for h in holders)), "two containers hold memory")
    time.sleep(1)
    of = lambda some: sorted([h.pid, machine.used(h.pid), 2**32 - 1, 2**32 - 1] for h in some)
    none = [[0, []], [0, []], [2, []]]
    whole = ask(bare_environment(machine), DETAILS)
    check_equal([[0, sorted(whole[0][1])], *whole[1:]], [[0, of(holders)], *none, [INSUFFICIENT_SIZE, 2]], "bare, the list with details has both processes")
    for tenant, holder in zip(tenants, holders):
        check_equal(tenant.ask(DETAILS), [[0, of([holder])], *none, [INSUFFICIENT_SIZE, 1]], "in a container its own, with what it holds")
    stop()


# A list of the machine's last card, in all versions: codes, and pids.
LAST = """
count = c_uint()
assert nvml.nvmlDeviceGetCount_v2(byref(count)) == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(count.value - 1, byref(device)) == 0
ANSWER = []
for version, size in (("", 16), ("_v2", 24), ("_v3", 24)):
    room, rows = c_uint(8), (ctypes.c_char * (8 * size))()
    code = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses" + version)(device, byref(room), rows)
    ANSWER.append([code, [int.from_bytes(rows.raw[i * size : i * size + 4], "little") for i in range(room.value)]])
"""


def check_another_card():
    """One that is seen, as where nothing hides it, and of which the container has no part, is told of as NVML does."""
    machine = Machine(2)
    tenant = Tenant(machine)
    own = tenant.begin("--memory", "100M", "--hold")
    stranger = start([LOAD, "--memory", "100M", "--hold"], bare_environment(machine, CUDA_VISIBLE_DEVICES="1"))
    check(wait_until(lambda: machine.used(own.pid) >= 100 * MIB and machine.used(stranger.pid, gpu=1) >= 100 * MIB), "two cards are in use")
    check_equal(tenant.ask(LAST), [[0, [stranger.pid]]] * 3, "a card that is not the container's has the processes that NVML lists")
    stop()


def check_others():
    machine = Machine(1)
    tenant, neighbour = Tenant(machine), Tenant(machine)
    holders = [one.begin("--memory", "100M", "--hold") for one in (tenant, neighbour)]
    check(wait_until(lambda: all(machine.used(h.pid) >= 100 * MIB for h in holders)), "two containers hold memory")
    root = os.geteuid() == 0
    if root:
        check_equal(ask(bare_environment(machine), ACCOUNT), 0, "the card keeps accounts of processes")
    bare = ask(bare_environment(machine), WINDOW, holders[1].pid)
    check(bare["window"][2] > 0 and bare["window"][0] >= 8 * GIB, "bare, the window onto the memory is the card's, and in use", bare)
    if root:
        check_equal((bare["codes"], set(bare["pids"])), ([0, 0, 0], {h.pid for h in holders}), "bare, accounting names both processes")
    got = tenant.ask(WINDOW, holders[1].pid)
    check_equal(got["window"], [LIMIT, LIMIT, 0], "in a container the window is as large as the limit, and nobody's use is told")
    check_equal((got["codes"], got["pids"]), ([NOT_SUPPORTED] * 3, []), "and there is no accounting")
    names = listed("others")
    got = dict(zip(names, tenant.ask(CHANGES, *names)))
    wrong = {name: answers for name, answers in got.items() if answers != [NOT_SUPPORTED] * 2}
    check(len(names) > 15 and not wrong, "nor is anything else there that tells of everybody's work", wrong)
    stop()


SHUTDOWN = """
cuda = ctypes.CDLL("libcuda.so.1")
context = c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(byref(context), 0, 0) == 0
ANSWER = [nvml.nvmlShutdown() for _ in range(3)]
assert nvml.nvmlInit_v2() == 0
ANSWER += [nvml.nvmlShutdown(), nvml.nvmlShutdown()]
"""


def check_shutdown():
    """By NVML the library measures hidden memory: a program ends what it began, and not that."""
    check_equal(Tenant(Machine(1)).ask(SHUTDOWN), [0, UNINITIALIZED, UNINITIALIZED, 0, UNINITIALIZED], "a program ends NVML as often as it began")


def stop():
    for guest in guests:
        guest.kill()
        guest.wait()


check_changes()
check_busy()
check_details()
check_another_card()
check_others()
check_shutdown()
finish()

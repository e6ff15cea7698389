#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVML in a container: what it tells is the container's own, and nobody there changes a card. Bare, it does otherwise."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

LIMIT = 2 * GIB
NO_PERMISSION = 4
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


check_changes()
finish()

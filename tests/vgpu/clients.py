#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real NVML clients, nvidia-ml-py and nvitop, on the simulated machine: bare, under `hamictl run`, and in a MIG instance."""

import json
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/node")
from harness import *
from mig import Mig
from packages import interpreter

PACKAGES = ["nvidia-ml-py==13.615.71", "nvitop==1.7.2"]
LIMIT = 2 * GIB

LISTING = """
import json, os, pynvml
pynvml.nvmlInit()
seen = []
for index in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    seen.append({
        "name": pynvml.nvmlDeviceGetName(handle),
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "total": memory.total, "used": memory.used, "free": memory.free,
        "utilisation": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "processes": [[p.pid, p.usedGpuMemory] for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)],
    })
pynvml.nvmlShutdown()
print(json.dumps(seen))
"""


def nvitop(python, environment, prefix=()):
    ended = run([*prefix, python, "-m", "nvitop", "-1"], environment | {"COLUMNS": "120", "LINES": "40", "TERM": "dumb"})
    return ended, "Traceback" in ended.stdout + ended.stderr


def bare(python, machine):
    holder = start([LOAD, "--memory", "1G", "--hold"], bare_environment(machine))
    wait_until(lambda: machine.used(holder.pid) >= 1 * GIB)
    ended = run([python, "-c", LISTING], bare_environment(machine))
    if check_equal((ended.returncode, ended.stderr), (0, ""), "nvidia-ml-py lists the machine bare"):
        view, seen = machine.view(), json.loads(ended.stdout)
        check_equal([d["uuid"] for d in seen], [g["uuid"] for g in view["gpus"]], "its cards are the machine's")
        check_equal([d["total"] for d in seen], [g["memory"] for g in view["gpus"]], "their memory, too")
        check_equal(seen[0]["processes"], [[holder.pid, view["gpus"][0]["used"]]], "and the process on the first")
    ended, broken = nvitop(python, bare_environment(machine))
    check(ended.returncode == 0 and not broken, "nvitop -1 draws it without a traceback", ended.stdout[-2000:], ended.stderr[-2000:])
    check(str(holder.pid) in ended.stdout, "with the process in it", ended.stdout[-3000:])
    holder.kill()
    holder.wait()


def granted(python, machine):
    environment = bare_environment(machine)
    prefix = [HAMICTL, "run", "--gpumem", "2g", "--gpucores", "30", "--"]
    ended = run([*prefix, python, "-c", LISTING], environment)
    if check_equal((ended.returncode, ended.stderr), (0, ""), "nvidia-ml-py lists what hamictl run granted"):
        seen = json.loads(ended.stdout)
        check_equal(len(seen), 1, "one card")
        check_equal((seen[0]["total"], seen[0]["free"]), (LIMIT, LIMIT), "whose memory is the limit")
    ended, broken = nvitop(python, environment, prefix)
    check(ended.returncode == 0 and not broken, "nvitop -1 draws it without a traceback", ended.stdout[-2000:], ended.stderr[-2000:])

    # Client and program in one grant.
    script = f"{LOAD} --memory 1G --quiet --ready {scratch}/ready --hold & load=$!; while [ ! -e {scratch}/ready ]; do sleep 0.05; done; "
    script += f"echo $load; {python} -c '{LISTING}'; {python} -m nvitop -1; code=$?; kill $load; exit $code"
    ended = run([*prefix, "sh", "-c", script], environment | {"COLUMNS": "120", "LINES": "40", "TERM": "dumb"})
    if check(ended.returncode == 0 and "Traceback" not in ended.stderr, "beside a program in the same grant", ended.returncode, ended.stderr[-2000:]):
        pid, listing = ended.stdout.splitlines()[:2]
        seen = json.loads(listing)[0]
        check_equal(seen["total"], LIMIT, "the memory is the limit")
        check(1 * GIB <= seen["used"] < LIMIT and seen["used"] + seen["free"] == LIMIT, "and what is used is the program's", seen)
        check_equal(seen["processes"], [[int(pid), seen["used"]]], "as its process list says")
        check(pid in ended.stdout.split("\n", 2)[2], "nvitop shows the process", ended.stdout[-3000:])


INSTANCES = """
import json, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
seen = {"cards": [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]}
seen |= {"mode": pynvml.nvmlDeviceGetMigMode(card), "index": pynvml.nvmlDeviceGetIndex(card), "instances": []}
for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card)):
    try:
        handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index)
    except pynvml.NVMLError_NotFound:
        continue
    above = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    processes = [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    seen["instances"].append([index, pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetIndex(handle), pynvml.nvmlDeviceGetMemoryInfo(handle).total, pynvml.nvmlDeviceGetUUID(above), processes])
refused = []
for ask in (pynvml.nvmlDeviceGetMemoryInfo, lambda card: pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2), pynvml.nvmlDeviceGetBAR1MemoryInfo):
    try:
        refused.append(ask(card).__class__.__name__)
    except pynvml.NVMLError_NoPermission:
        refused.append("no permission")
print(json.dumps(seen | {"refused": refused}))
"""


def in_instance(python):
    """The second of a card's instances, in a container of its own: below its card, and alone there."""
    machine = Machine(1, 40960 * MIB)
    with Mig(machine, SIMDRIVER) as mig:
        assert mig.set_mode(0) == 0
        first, second = mig.make(0, "3g", 0), mig.make(0, "3g", 4)
    card = machine.view()["gpus"][0]["uuid"]
    library = container(region=new_region(), NVIDIA_VISIBLE_DEVICES=second, HAMI_VISIBLE_DEVICES="granted", CUDA_DEVICE_MEMORY_LIMIT_0=LIMIT)
    environment = bare_environment(machine, LD_PRELOAD=library, CUDA_VISIBLE_DEVICES=second)
    stranger = start([LOAD, "--memory", "1G", "--hold"], bare_environment(machine, CUDA_VISIBLE_DEVICES=first))
    own = start([LOAD, "--memory", "100M", "--hold"], environment)
    check(wait_until(lambda: machine.used(own.pid) >= 100 * MIB and machine.used(stranger.pid) >= GIB), "both instances are in use")
    ended = run([python, "-c", INSTANCES], environment)
    if check_equal((ended.returncode, ended.stderr), (0, ""), "nvidia-ml-py lists what is in an instance's container"):
        seen = json.loads(ended.stdout)
        check_equal((seen["cards"], seen["mode"], seen["index"]), ([card], [1, 1], 0), "its card, in MIG mode")
        check_equal(seen["instances"], [[0, second, 0, LIMIT, card, [own.pid]]], "and below that the instance, which is the first there")
        check_equal(seen["refused"], ["no permission"] * 3, "what the card's memory holds is not told, as of any card of which one has a part")
    ended, broken = nvitop(python, environment)
    check(ended.returncode == 0 and not broken, "nvitop -1 draws it without a traceback", ended.stdout[-2000:], ended.stderr[-2000:])
    check(str(own.pid) in ended.stdout and str(stranger.pid) not in ended.stdout, "with its process, and no other one's", ended.stdout[-3000:])
    check("2048MiB" in ended.stdout, "and its limit", ended.stdout[-3000:])
    for process in (own, stranger):
        process.kill()
        process.wait()


python = interpreter(BUILD / "clients", PACKAGES, skip)
machine = Machine(gpus=2, memory=8 * GIB)
bare(python, machine)
granted(python, machine)
in_instance(python)
finish()

# SPDX-License-Identifier: Apache-2.0
"""What the parts have in common: the card, programs with the library and without it, and where what they find is said."""

import ctypes
import functools
import sys
import threading

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

WORK = BUILD / "tests/gpu_work"
LIMIT = 8 * GIB

said_in = None  # the file of the part that runs
saying = threading.Lock()
verdicts = {"ok": 0, "FAIL": 0, "skipped": 0}


def begin_part(file):
    global said_in
    said_in = file


def say(*words):
    with saying:
        line = " ".join(str(word) for word in words)
        if line.split(":")[0] in verdicts:
            verdicts[line.split(":")[0]] += 1
        print(line, flush=True)
        print(line, file=said_in, flush=True)


def count(text):
    """What a text says of itself, line by line."""
    for line in text.splitlines():
        word = line.strip().split(":")[0]
        if word in verdicts:
            verdicts[word] += 1


def judge(holds, sentence, *numbers):
    say("ok:" if holds else "FAIL:", sentence, *numbers)
    return holds


class Nvml:
    """What the driver says, asked by a process without the library."""

    class Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        if self.library.nvmlInit_v2() or self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)):
            raise SystemExit("run.py: no GPU")

    def uuid(self):
        text = ctypes.create_string_buffer(96)
        self.library.nvmlDeviceGetUUID(self.device, text, 96)
        return text.value.decode()

    def processes(self):
        count = ctypes.c_uint(1024)
        found = (Nvml.Process * 1024)()
        self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), found)
        return {one.pid: one.used for one in found[: count.value]}

    def used(self):
        memory = Nvml.Memory()
        self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory))
        return memory.used

    def free(self):
        memory = Nvml.Memory()
        self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory))
        return memory.free


@functools.cache
def card():
    return Nvml()


def limited(memory=None, cores=None, region=None, **more):
    """The environment of a container: its folder with the library and its limits."""
    keys = {"NVIDIA_VISIBLE_DEVICES": card().uuid(), "HAMI_VISIBLE_DEVICES": "granted"}
    if memory:
        keys["CUDA_DEVICE_MEMORY_LIMIT_0"] = f"{memory >> 20}m"
    if cores:
        keys["CUDA_DEVICE_SM_LIMIT_0"] = cores
    keys |= more.pop("keys", {})
    library = container(region=region, **keys)
    return dict(bare(**more), LD_PRELOAD=str(library))


def bare(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_DEVICE_", "HAMI_", "LD_PRELOAD"))}
    return kept | {k: str(v) for k, v in more.items()}


def work(environment, *words, timeout=60):
    ended = subprocess.run([WORK, *map(str, words)], env=environment, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode or ended.stderr.strip():
        say("     ", *words, f"exit {ended.returncode}:", ended.stdout.strip()[-300:], ended.stderr.strip()[-600:])
    return ended.stdout.strip()


def region_of(path):
    return run([HAMICTL, "region", path], bare(LD_LIBRARY_PATH=os.environ.get("HAMI_CTL_LIBRARIES", ""))).stdout

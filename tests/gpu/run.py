#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library on a real NVIDIA GPU: what a program takes, what frameworks do, what shares of the device come out.

usage: run.py OUT [PART...]      parts: machine memory frameworks over tools ctl node calls share rank idle greedy
beside among slices traces speed cost; all by default

Needs a GPU that nobody else uses, its driver, and the tree built (HAMI_BUILD). Frameworks are those that the python3
on the PATH has; programs of NVIDIA's runtime are built where there is nvcc, or those in HAMI_GPU_PROGRAMS, with the
runtimes (libcudart.so.*) that are to be tried. A text file for each part in OUT.
"""

import concurrent.futures
import ctypes
import pathlib
import random
import sys
import threading

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

HERE = pathlib.Path(__file__).resolve().parent
WORK = BUILD / "tests/gpu_work"
PROGRAMS = pathlib.Path(os.environ.get("HAMI_GPU_PROGRAMS", scratch))
LIMIT = 8 * GIB
SMALL = 3 * GIB  # of each of many programs at once
PARTS = ["machine", "memory", "frameworks", "over", "tools", "ctl", "node", "calls", "share", "rank", "idle", "greedy", "beside", "among", "slices", "traces", "speed", "cost"]

out = None
saying = threading.Lock()
verdicts = {"ok": 0, "FAIL": 0, "skipped": 0}


def say(*words):
    with saying:
        line = " ".join(str(word) for word in words)
        if line.split(":")[0] in verdicts:
            verdicts[line.split(":")[0]] += 1
        print(line, flush=True)
        print(line, file=out, flush=True)


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


def limited(memory=None, cores=None, region=None, **more):
    """The environment of a container: its folder with the library and its limits."""
    keys = {"NVIDIA_VISIBLE_DEVICES": nvml.uuid(), "HAMI_VISIBLE_DEVICES": "granted"}
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


# Parts


def machine():
    say(os.uname().release, "glibc", os.confstr("CS_GNU_LIBC_VERSION"), os.cpu_count(), "processors")
    for words in (["nvidia-smi"], ["nvidia-smi", "-q", "-d", "MEMORY,UTILIZATION,COMPUTE,CLOCK"], ["nvidia-smi", "topo", "-m"], ["cat", "/proc/driver/nvidia/version"]):
        ended = subprocess.run(words, env=bare(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        say(ended.stdout)
    ended = subprocess.run(["nvidia-smi"], env=limited(memory=LIMIT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    say("under a limit of 8 GiB:", ended.stdout)
    judge("8192MiB" in ended.stdout.replace(" ", ""), "nvidia-smi tells the limit")
    plugin = BUILD / "src/plugin/hami-device-plugin"
    for _ in range(2):
        ended = subprocess.run(
            [plugin, "measure-context", nvml.uuid(), "", "20"], env=bare(LD_LIBRARY_PATH=os.environ.get("HAMI_GPU_LIBRARIES", "")),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=40,
        )
        say("what a context takes, as the device plugin measures it:", ended.stdout.strip(), ended.stderr.strip()[:300], "exit", ended.returncode)


def hold(path, size, most=None, limit=LIMIT, environment=None):
    region = new_region()
    environment = environment or limited(memory=limit, region=region)
    before = nvml.used()
    guest = subprocess.Popen([WORK, "hold", path, str(size), *([str(most)] if most else [])], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = guest.stdout.readline().split()
    if len(line) != 4:
        guest.kill()
        return say(f"FAIL: {path} by {size}:", line, guest.stderr.read()[-500:])
    result, held, free, total = map(int, line)
    # Of one program after another: NVML's own figure of the process may come late.
    time.sleep(0.05)
    used, grown = nvml.processes().get(guest.pid), nvml.used() - before
    shown = region_of(region)
    guest.stdin.write("\n"), guest.stdin.flush()
    end_free, _ = map(int, guest.stdout.readline().split())
    time.sleep(0.05)
    at_rest = nvml.processes().get(guest.pid)
    guest.stdin.write("\n"), guest.stdin.flush()
    errors = guest.communicate(timeout=20)[1]
    figures = f"held {held / MIB:.0f}, told free {free / MIB:.1f} of {total / MIB:.0f}, NVML {'-' if used is None else f'{used / MIB:.0f}'} (card {grown / MIB:+.0f}); freed: told {end_free / MIB:.1f}, NVML {'-' if at_rest is None else f'{at_rest / MIB:.0f}'} MiB"
    if limit and used:
        judge(result in (0, 2) and used <= limit, f"{path} by {size}: result {result},", figures)
        charged = limit - free
        # Pages of managed memory NVML counts for no process. Small pieces share pages, more or less tightly.
        slack = 4 * MIB if size >= MIB else held / 4
        judge(path == "managed" or abs(charged - used) <= slack, f"{path} by {size}: charged {charged / MIB:.1f} for {used / MIB:.1f}, {(charged - used) / MIB:+.1f}")
    else:
        say(f"{path} by {size}: result {result},", figures)
    if errors.strip():
        say("      ", errors.strip()[-400:])
    return shown


def memory():
    hold("alloc", 64 * MIB, most=16, limit=None, environment=bare())
    shown = hold("alloc", 64 * MIB)
    say(shown)
    for path, size, most in (
        ("alloc", 2 * MIB, None), ("alloc", 1 * MIB, None), ("alloc", 100000, 20000), ("alloc", 3 * MIB, 500), ("alloc", 512, 5000), ("pitch", 32 * MIB, None), ("create", 2 * MIB, None),
        ("create", 64 * MIB, None), ("async", 32 * MIB, None), ("async", 1 * MIB, 3000), ("pool", 32 * MIB, None), ("pool", 100000, 5000), ("array", 64 * MIB, None), ("array", 100000, 2000),
        ("array", 5 * MIB, 500), ("managed", 64 * MIB, 32), ("host", 64 * MIB, 16),
    ):
        hold(path, size, most)
    used = nvml.used()
    say("in use of the card at rest:", used >> 20, "MiB")


def script(name, *words, environment, timeout=100, **more):
    begun = time.monotonic()
    try:
        ended = subprocess.run(
            ["python3", HERE / "frameworks" / name, *words], env=environment | {k: str(v) for k, v in more.items()} | {"PYTHONDONTWRITEBYTECODE": "1"},
            timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, cwd=scratch,
        )
        return ended.returncode, ended.stdout, ended.stderr, time.monotonic() - begun
    except subprocess.TimeoutExpired as error:
        text = lambda b: b.decode() if isinstance(b, bytes) else b or ""
        return "timeout", text(error.stdout), text(error.stderr), timeout


def program(*words, environment, timeout=100):
    try:
        ended = subprocess.run(list(map(str, words)), env=environment, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, cwd=scratch)
        return ended.returncode, ended.stdout, ended.stderr, 0
    except subprocess.TimeoutExpired as error:
        return "timeout", str(error.stdout), str(error.stderr), timeout


def build_programs():
    for kind in ("static", "shared"):
        words = ["nvcc", "-std=c++17", "-O1", "-arch=native", "-rdc=true", "-cudart", kind, HERE / "runtime.cu", "-o", PROGRAMS / f"runtime_{kind}", "-lcudadevrt"]
        ended = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ended.returncode:
            say(f"FAIL: nvcc, {kind}:", ended.stdout.strip()[-600:])


def frameworks():
    jobs = {}
    if not list(PROGRAMS.glob("runtime_*")) and shutil.which("nvcc"):
        build_programs()
    with concurrent.futures.ThreadPoolExecutor(20) as pool:

        def both(title, function, *words, **more):
            for way in ("limited", "bare"):
                region = new_region()
                environment = limited(memory=SMALL, region=region, GPU_TEST_LIMIT=SMALL) if way == "limited" else bare(XLA_PYTHON_CLIENT_MEM_FRACTION=0.05)
                jobs[f"{title}, {way}"] = pool.submit(function, *words, environment=environment | {k: str(v) for k, v in more.items()}), region

        both("PyTorch", script, "torch_.py")
        both("PyTorch, expandable segments", script, "torch_.py", PYTORCH_ALLOC_CONF="expandable_segments:True", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        both("PyTorch, cudaMallocAsync", script, "torch_.py", PYTORCH_ALLOC_CONF="backend:cudaMallocAsync", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        both("JAX", script, "jax_.py")
        both("JAX, platform", script, "jax_.py", XLA_PYTHON_CLIENT_ALLOCATOR="platform")
        both("JAX, cuda_async", script, "jax_.py", XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async")
        both("CuPy", script, "cupy_.py")
        both("Numba", script, "numba_.py")
        both("cuda-core", script, "core_.py")
        for library in sorted(PROGRAMS.glob("libcudart.so.*")):
            both(library.name, script, "runtime_.py", str(library))
        for one in sorted(PROGRAMS.glob("runtime_*")):
            if os.access(one, os.X_OK):
                both(one.name, program, one, LD_LIBRARY_PATH=f"{PROGRAMS}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        told = {job: (title, region) for title, (job, region) in jobs.items()}
        for job in concurrent.futures.as_completed(told):
            title, region = told[job]
            code, said, errors, took = job.result()
            say(f"== {title}: exit {code}, {took:.0f} s")
            say("\n".join("    " + line for line in said.strip().splitlines()))
            if title.endswith("limited"):
                count(said)
            if title.endswith("limited") and code not in (0, 1):
                say(f"FAIL: {title}: exit {code}")
            if errors.strip():
                lines = [line for line in errors.strip().splitlines() if code or "hami" in line.lower() or "vgpu" in line.lower()]
                say("\n".join("    ! " + line[:300] for line in lines[-40:]))
            if "limited" in title and region.exists():
                say("\n".join("    | " + line for line in region_of(region).splitlines()))
    say("in use of the card at rest:", nvml.used() >> 20, "MiB")


def over():
    """A container with a limit above what the card has free: what has no room there lives on the host."""
    ballast = subprocess.Popen([WORK, "hold", "alloc", str(nvml.free() - 6 * GIB), "1"], env=bare(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    say("the card's memory is held, but for 6 GiB:", ballast.stdout.readline().strip())
    try:
        for title, word, more in (
            ("the driver's functions", "driver", {}),
            ("PyTorch, expandable segments", "torch", {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
            ("PyTorch, cudaMallocAsync", "torch", {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}),
        ):
            region = new_region()
            environment = limited(memory=12 * GIB, region=region, keys={"CUDA_OVERSUBSCRIBE": "true"}, **more)
            code, said, errors, took = script("over_.py", word, environment=environment)
            say(f"== {title}: exit {code}, {took:.0f} s")
            say(said.strip())
            count(said)
            if code:
                say(f"skipped: {title}" if "No module" in errors else f"FAIL: {title}")
                say("\n".join("    ! " + line[:300] for line in errors.strip().splitlines()[-20:]))
                say(region_of(region))
    finally:
        ballast.communicate("\n\n", timeout=30)


def tools():
    """Profilers and debuggers, which put libraries of their own beside the driver."""
    small = [WORK, "launch"]
    profile = ["ncu", "--launch-count", "2", *small]
    if shutil.which("ncu"):
        code, said, errors, _ = program(*profile, environment=bare(), timeout=60)
        say(f"ncu without the library: exit {code}", "\n".join("    " + line[:200] for line in (said + errors).strip().splitlines()[-6:]))
    for title, words in (
        ("ncu", profile), ("compute-sanitizer", ["compute-sanitizer", *small]),
        ("cuda-gdb", ["cuda-gdb", "-batch", "-ex", "run", "--args", *small]),
    ):
        if not shutil.which(words[0]):
            say(f"skipped: {title}: not here")
            continue
        code, said, errors, _ = program(*words, environment=limited(memory=LIMIT), timeout=60)
        judge(code == 0, f"{title}: exit {code}")
        say("\n".join("    " + line[:200] for line in (said + errors).strip().splitlines()[-12:]))


def hamictl(*words, timeout=60):
    environment = bare(LD_LIBRARY_PATH=os.environ.get("HAMI_CTL_LIBRARIES", ""))
    ended = subprocess.run([HAMICTL, *map(str, words)], env=environment, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    return ended.returncode, ended.stdout.strip()


def ctl():
    """What README shows, on the card itself."""
    scale = float(work(bare(), "calibrate"))
    alone = float(work(bare(), "run", int(scale * 1000), 1.5))
    say(*hamictl("top"))
    say(*hamictl("run", "--verbose", "--gpumem", "8g", "--", "nvidia-smi"))
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(hamictl, "run", "--verbose", "--gpumem", "8g", "--gpucores", cores, "--", WORK, "run", int(scale * 1000), 3) for cores in (20, 30, 50)]
        time.sleep(3)
        say(*hamictl("top"))
        for cores, job in zip((20, 30, 50), jobs):
            code, said = job.result()
            got = 100 * float(said.splitlines()[-1]) / alone if code == 0 else 0
            judge(abs(got - cores) < 5, f"hamictl run --gpucores {cores}: {got:.1f} %;", said.splitlines()[0] if said else "", f"exit {code}")
    code, said = hamictl("run", "--gpumem", "2g", "--", WORK, "hold", "alloc", 64 * MIB)
    say("hold under 2g:", code, said)


def beside():
    """A limited program beside one that nobody limits, and that wants all of the card."""
    scale = float(work(bare(), "calibrate"))
    iterations = {name: max(1, int(scale * us)) for name, us in (("20us", 20), ("200us", 200), ("2ms", 2000), ("20ms", 20000))}
    alone = {name: float(work(bare(), "run", n, 1.5)) for name, n in iterations.items()}
    for cores, ours, theirs in (
        (None, "2ms", "2ms"), (None, "200us", "20ms"), (None, "20us", "2ms"), (30, "20us", "2ms"), (30, "200us", "2ms"), (30, "2ms", "2ms"), (30, "20ms", "2ms"), (30, "20ms", "20us"), (20, "20ms", "20ms"), (20, "2ms", "20ms"),
    ):
        region = new_region()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            other = pool.submit(work, bare(), "run", iterations[theirs], 3.5)
            mine = pool.submit(work, limited(memory=LIMIT, cores=cores, region=region) if cores else bare(), "run", iterations[ours], 2.5)
            mine, other = (100 * float(job.result() or "nan") / alone[name] for job, name in ((mine, ours), (other, theirs)))
        judge(cores is None or mine < cores + 2, f"{cores or 'bare'} % of {ours} beside all of {theirs}: {mine:.1f} and {other:.1f}")
        if os.environ.get("GPU_TEST_VERBOSE") and cores:
            say("    ", run([HAMICTL, "region", "--json", region], bare(LD_LIBRARY_PATH=os.environ.get("HAMI_CTL_LIBRARIES", ""))).stdout.strip()[:1500])


def idle():
    """What contexts that launch nothing, but record an event now and then, cost those that do."""
    scale = float(work(bare(), "calibrate"))
    alone = float(work(bare(), "run", int(scale * 2000), 1.5))
    for period in (None, 20000, 5000, 1000):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            other = period and pool.submit(work, bare(), "marks", period, 5)
            time.sleep(1)
            got = 100 * float(work(bare(), "run", int(scale * 2000), 1.5) or "nan") / alone
            say(f"2 ms kernels beside an idle context with an event each {period} us: {got:.1f} %;", other.result() if other else "(alone)")


def greedy():
    """Programs that want more than their share, in ways that a limiter could miss."""
    scale = float(work(bare(), "calibrate"))
    short, medium, long = (max(1, int(scale * us)) for us in (20, 200, 20000))

    def judge_way(title, cores, *words, **more):
        """As iterations of its kernels against those it has alone."""
        most = float(work(bare(), *words) or "nan")
        region = new_region()
        got = 100 * float(work(dict(limited(memory=LIMIT, cores=cores, region=region), **more), *words) or "nan") / most
        if not judge(got < cores + 3, f"{title} at {cores} %: {got:.1f}"):
            say("\n".join("    | " + line for line in region_of(region).splitlines()))

    judge_way("launches that wait for their end, of 200us,", 30, "run", medium, 2, CUDA_LAUNCH_BLOCKING="1")
    # Each of several threads waits for each of its kernels, which leave no room for others: what the device had to do, of all its time.
    full = float(work(bare(), "calibrate", "full"))
    for us, threads in ((20, 1), (20, 4), (50, 4), (100, 4), (100, 8)):
        rates = [float(work(environment, "threads", max(1, int(full * us)), 2, threads)) for environment in (bare(), limited(memory=LIMIT, cores=30))]
        could, got = (rate * us / 1e4 for rate in rates)
        judge(got < 33, f"{threads} threads whose launches wait for their end, of {us}us, at 30 %: {got:.1f}; without a limit {could:.1f}")
    judge_way("16 streams of 50us", 30, "run", max(1, int(scale * 50)), 2, 16)
    judge_way("each 1000th kernel of 20us is 20ms", 30, "mixed", short, long, 1000, 4)
    judge_way("graphs of 20 kernels of 200us", 30, "graph", medium, 20, 2)
    judge_way("graphs of 100 kernels of 20us", 20, "graph", short, 100, 2)


def among():
    """A limited program among two that nobody limits, and that want all of the card."""
    scale = float(work(bare(), "calibrate"))
    iterations = {name: max(1, int(scale * us)) for name, us in (("200us", 200), ("2ms", 2000), ("20ms", 20000))}
    two = ("2ms", 1)
    cases = [(10, "200us", 1), (10, "2ms", 1), (10, "20ms", 1), (20, "20ms", 1), (20, "200us", 4), (20, "200us", 16)]
    alone = {(name, streams): float(work(bare(), "run", iterations[name], 1.5, streams)) for name, streams in {two} | {case[1:] for case in cases}}
    for cores, ours, streams in cases:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            others = [pool.submit(work, bare(), "run", iterations["2ms"], 4.5) for _ in range(2)]
            region = new_region()
            mine = pool.submit(work, limited(memory=LIMIT, cores=cores, region=region), "run", iterations[ours], 3.5, streams)
            jobs = ((mine, (ours, streams)), (others[0], two), (others[1], two))
            mine, *others = (100 * float(job.result() or "nan") / alone[what] for job, what in jobs)
        where = f" in {streams} streams" if streams > 1 else ""
        if not judge(mine < cores + 2, f"{cores} % of {ours}{where} among two: {mine:.1f}, the others {others[0]:.1f} and {others[1]:.1f}"):
            say("\n".join("    | " + line for line in region_of(region).splitlines()))


def slices():
    """When a context is on the device beside others, and when what it launches into idle streams begins."""
    import slices as of_context

    scale = float(work(bare(), "calibrate"))
    for others, us, ahead in ((0, 0, 2), *((others, us, ahead) for others in (1, 2, 3) for us, ahead in ((0, 1), (0, 2), (20000, 1), (2000, 3)))):
        guest = subprocess.Popen([WORK, "slices", str(int(scale * us)), "1.8", str(ahead)], env=bare(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = []
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for mark in ("ready\n", "over\n", ""):
                said += iter(guest.stdout.readline, mark)
                if mark == "ready\n" and others:
                    jobs = [pool.submit(work, bare(), "run", int(scale * 2000), 1.9) for _ in range(others)]
                    time.sleep(0.7)
                elif mark == "over\n" and others:
                    concurrent.futures.wait(jobs)
                if mark:
                    guest.stdin.write("\n"), guest.stdin.flush()
        guest.wait()
        said = "".join(said)
        say(f"-- beside {others}, {f'filled by kernels of {us} us' if us else 'one thread'}, {ahead - 1} waiting:")
        print(said, file=open(pathlib.Path(sys.argv[1]) / f"slices-{others}-{us}-{ahead}.txt", "w"))
        of_context.tell(said, say)


def traces():
    """Random programs, of one container, beside others that nobody limits: what they get in all, in percent of what the
    same kernels get that nothing holds up. Each fills the device, so that those of several streams get no more than those of one."""
    scale = float(work(bare(), "calibrate", "full"))
    count, seed = (int(os.environ.get(key, other)) for key, other in (("GPU_TEST_TRACES", 30), ("GPU_TEST_SEED", 1)))

    what = {}

    def rate(environment, one, *words):
        said = (work(environment, "random", one, *words) or "?\nnan").splitlines()
        what.setdefault(one, said[0])
        return float(said[-1])

    def part(environment, tenants, neighbours, most):
        """What the tenants get together, each of what it has alone; the neighbours' windows are around theirs."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            others = [pool.submit(rate, bare(), one, scale, 3) for one in neighbours]
            got = [pool.submit(rate, environment, one, scale, 2.4) for one in tenants]
            for other in others:
                other.result()
            return sum(100 * one.result() / alone for one, alone in zip(got, most))

    for number in range(seed, seed + count):
        draw = random.Random(number)
        cores = draw.randint(5, 95)
        tenants, neighbours = (1 if draw.random() < 0.6 else draw.randint(2, 4)), (0 if draw.random() < 0.5 else draw.randint(1, 2))
        programs = [number * 10 + i for i in range(tenants + neighbours)]
        tenants, neighbours = programs[:tenants], programs[tenants:]
        most = [rate(bare(), one, scale, 0.6, "all") for one in tenants]
        region = new_region()
        got = part(limited(memory=LIMIT, cores=cores, region=region), tenants, neighbours, most)
        could = part(bare(), tenants, neighbours, most) if got < cores - 1 else 100
        holds = judge(got < cores + 2 and got > min(cores, could) - 3, f"trace {number}: {len(tenants)} beside {len(neighbours)} at {cores} %: {got:.1f}" + (f"; without a limit {could:.1f}" if could < 100 else ""))
        say("\n".join("      " + what[one] for one in programs))
        if not holds:
            say("\n".join("    | " + line for line in region_of(region).splitlines()))


def share():
    scale = float(work(bare(), "calibrate"))
    say(f"{scale:.3f} iterations in a microsecond")
    seconds = 2
    iterations = {name: max(1, int(scale * us)) for name, us in (("20us", 20), ("200us", 200), ("2ms", 2000), ("20ms", 20000))}
    alone = {name: float(work(bare(), "run", n, 1.5)) for name, n in iterations.items()}
    say("alone, kernels a second:", alone)
    cells = scratch / "cells"
    cells.mkdir()

    def part(name, cores, streams=1, **more):
        """The share that a limited container gets, in percent of what a program gets alone."""
        region = new_region()
        said = work(limited(memory=LIMIT, cores=cores, region=region, **more), "run", iterations[name], seconds, streams)
        got = 100 * float(said or "nan") / alone[name]
        if abs(got - cores) > 3:
            say("\n".join("    | " + line for line in region_of(region).splitlines()))
        return got

    for cores, names in ((30, list(iterations)), (70, ["200us", "20ms"])):
        for name in names:
            got = part(name, cores)
            judge(abs(got - cores) < 3, f"{cores} % alone, kernels of {name}: {got:.1f}")
    got = part("200us", 30, streams=4)
    judge(abs(got - 30) < 3, f"30 % alone, kernels of 200us in 4 streams: {got:.1f}")

    def together(*wanted, **more):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(part, name, cores, **more) for name, cores in wanted]
            got = [job.result() for job in jobs]
        judge(all(abs(g - cores) < 5 for g, (_, cores) in zip(got, wanted)), "together:", ", ".join(f"{cores} % of {name}: {g:.1f}" for g, (name, cores) in zip(got, wanted)))

    together(("2ms", 30), ("2ms", 60))
    together(("20us", 30), ("20ms", 50))
    together(("200us", 50), ("200us", 50))
    together(("200us", 25), ("2ms", 25), ("20us", 25), ("20ms", 25))
    # What is idle is lent, and given back.
    keys = cell_of(cells, nvml.uuid())
    got = part("2ms", 30, keys=keys)
    judge(got > 90, f"30 % alone, where what is idle is lent: {got:.1f}")
    jobs = [cell_of(cells, nvml.uuid()) for _ in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        got = list(pool.map(lambda pair: part("2ms", pair[0], keys=pair[1]), zip((30, 60), jobs)))
    judge(abs(got[0] - 30) < 5 and abs(got[1] - 60) < 5, f"30 and 60 % together, lent: {got[0]:.1f}, {got[1]:.1f}")


def rank():
    """A program of higher priority beside one that wants all of the card."""
    scale = float(work(bare(), "calibrate"))
    iterations = {name: max(1, int(scale * us)) for name, us in (("200us", 200), ("2ms", 2000))}
    alone = {"2ms": float(work(bare(), "run", iterations["2ms"], 1.5))}
    words = ("every", iterations["200us"], 5000, 3)
    say("200 us kernels each 5 ms, alone:", work(bare(), *words))
    for title, priorities in (("alike", (1, 1)), ("first", (0, 1))):
        folder = scratch / f"cells-{title}"
        folder.mkdir()
        high, low = (cell_of(folder, nvml.uuid(), priority) for priority in priorities)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            other = pool.submit(work, limited(memory=LIMIT, keys=low), "run", iterations["2ms"], 5)
            time.sleep(2)
            said = work(limited(memory=LIMIT, keys=high), *words)
        say(f"beside 2 ms kernels without pause, {title}:", said, f"; the others {100 * float(other.result() or 'nan') / alone['2ms']:.1f} %")


def node():
    """The device plugin and the monitor, as a node's."""
    try:
        import grpc  # noqa: F401
    except ImportError:
        return say("skipped: node: python3 has no grpc")
    import node as card_node

    card_node.tells(nvml, bare, judge, say)


def calls():
    """Any calls, in any order, beside a bare driver and the simulated one."""
    import calls as any_calls

    seconds, seed = (int(os.environ.get(key, other)) for key, other in (("GPU_TEST_SECONDS", 20), ("GPU_TEST_SEED", 1)))
    machine = Machine(memory=80 * GIB, sms=132, context=518 * MIB)
    for cores in (None, 60):
        environments = {"bare": bare(), "limited": limited(memory=any_calls.LIMIT, cores=cores), "simulated": bare_environment(machine)}
        total, strange = any_calls.compare(environments, lambda pid: nvml.processes().get(pid), seconds / 2, seed, say)
        judge(not strange, f"{total} calls, compute {cores or 'not limited'}: answered as without the library, but for {len(strange)}")
        seed += 1000


def speed():
    """Whole programs, alone on the card: bare, with the library, under limits."""
    ways = {"bare": bare, "a limit of memory": lambda: limited(memory=16 * GIB), "and of 100 % of compute": lambda: limited(memory=16 * GIB, cores=100), "and of 50 %": lambda: limited(memory=16 * GIB, cores=50)}
    first = None
    for way, environment in ways.items():
        code, said, errors, _ = script("speed_.py", environment=environment())
        if code:
            say(f"skipped: PyTorch, {way}:" if "No module" in errors else f"FAIL: PyTorch, {way}:", errors.strip()[-300:])
            continue
        rates = json.loads(said)
        first = first or rates
        say(f"{way}:", ", ".join(f"{name} {value:.1f} steps a second ({100 * value / first[name]:.1f} %)" for name, value in rates.items()))


def cost():
    ways = {"bare": lambda: bare(), "no limit": lambda: dict(bare(), LD_PRELOAD=str(LIBVGPU), CUDA_DEVICE_MEMORY_SHARED_CACHE=str(new_region())), "limited": lambda: limited(memory=LIMIT, cores=90)}
    tried = [("launch",)] + [("pairs", path, size) for path, size in (("alloc", 2 * MIB), ("alloc", 64 * KIB), ("create", 2 * MIB), ("async", 2 * MIB), ("pool", 2 * MIB), ("managed", 2 * MIB), ("array", 2 * MIB), ("host", 64 * KIB))]
    for words in tried:
        got = {way: [] for way in ways}
        for _ in range(3):
            for way, environment in ways.items():
                got[way].append(float(work(environment(), *words) or "nan"))
        say(" ".join(map(str, words)) + ":", ", ".join(f"{way} {sorted(times)[1]:.0f} ns" for way, times in got.items()))


def main():
    global out, nvml
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(2)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    nvml = Nvml()
    for name in sys.argv[2:] or PARTS:
        if name not in PARTS:
            sys.exit(f"run.py: no such part: {name} ({' '.join(PARTS)})")
    for name in sys.argv[2:] or PARTS:
        out = open(folder / f"{name}.txt", "w")
        begun = time.monotonic()
        try:
            globals()[name]()
        except Exception as error:
            say(f"FAIL: {name}: {type(error).__name__}: {error}")
        say(f"-- {name}: {time.monotonic() - begun:.1f} s")
    print(f"{verdicts['ok']} passed, {verdicts['FAIL']} failed, {verdicts['skipped']} skipped")
    sys.exit(1 if verdicts["FAIL"] else 0)


if __name__ == "__main__":
    main()

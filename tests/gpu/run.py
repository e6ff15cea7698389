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
import pathlib
import sys

from parts import *
from shares import *

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = pathlib.Path(os.environ.get("HAMI_GPU_PROGRAMS", scratch))
SMALL = 3 * GIB  # of each of many programs at once
PARTS = ["machine", "memory", "frameworks", "over", "tools", "ctl", "node", "calls", "share", "rank", "idle", "greedy", "beside", "among", "slices", "traces", "speed", "cost"]


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
            [plugin, "measure-context", card().uuid(), "", "20"], env=bare(LD_LIBRARY_PATH=os.environ.get("HAMI_GPU_LIBRARIES", "")),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=40,
        )
        say("what a context takes, as the device plugin measures it:", ended.stdout.strip(), ended.stderr.strip()[:300], "exit", ended.returncode)


def hold(path, size, most=None, limit=LIMIT, environment=None):
    region = new_region()
    environment = environment or limited(memory=limit, region=region)
    before = card().used()
    guest = subprocess.Popen([WORK, "hold", path, str(size), *([str(most)] if most else [])], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = guest.stdout.readline().split()
    if len(line) != 4:
        guest.kill()
        return say(f"FAIL: {path} by {size}:", line, guest.stderr.read()[-500:])
    result, held, free, total = map(int, line)
    # Of one program after another: NVML's own figure of the process may come late.
    time.sleep(0.05)
    used, grown = card().processes().get(guest.pid), card().used() - before
    shown = region_of(region)
    guest.stdin.write("\n"), guest.stdin.flush()
    end_free, _ = map(int, guest.stdout.readline().split())
    time.sleep(0.05)
    at_rest = card().processes().get(guest.pid)
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
    used = card().used()
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
    say("in use of the card at rest:", card().used() >> 20, "MiB")


def over():
    """A container with a limit above what the card has free: what has no room there lives on the host."""
    ballast = subprocess.Popen([WORK, "hold", "alloc", str(card().free() - 6 * GIB), "1"], env=bare(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


def node():
    """The device plugin and the monitor, as a node's."""
    try:
        import grpc  # noqa: F401
    except ImportError:
        return say("skipped: node: python3 has no grpc")
    import node as card_node

    card_node.tells(card(), bare, judge, say)


def calls():
    """Any calls, in any order, beside a bare driver and the simulated one."""
    import calls as any_calls

    seconds, seed = (int(os.environ.get(key, other)) for key, other in (("GPU_TEST_SECONDS", 20), ("GPU_TEST_SEED", 1)))
    machine = Machine(memory=80 * GIB, sms=132, context=518 * MIB)
    for cores in (None, 60):
        environments = {"bare": bare(), "limited": limited(memory=any_calls.LIMIT, cores=cores), "simulated": bare_environment(machine)}
        total, strange = any_calls.compare(environments, lambda pid: card().processes().get(pid), seconds / 2, seed, say)
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
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(2)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    card()
    for name in sys.argv[2:] or PARTS:
        if name not in PARTS:
            sys.exit(f"run.py: no such part: {name} ({' '.join(PARTS)})")
    for name in sys.argv[2:] or PARTS:
        begin_part(open(folder / f"{name}.txt", "w"))
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

# SPDX-License-Identifier: Apache-2.0
"""What shares of a card come out: alone, together, beside programs that nobody limits, and for those that want more."""

import concurrent.futures
import pathlib
import random
import sys

from parts import *


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
    keys = cell_of(cells, card().uuid())
    got = part("2ms", 30, keys=keys)
    judge(got > 90, f"30 % alone, where what is idle is lent: {got:.1f}")
    jobs = [cell_of(cells, card().uuid()) for _ in range(2)]
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
        high, low = (cell_of(folder, card().uuid(), priority) for priority in priorities)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            other = pool.submit(work, limited(memory=LIMIT, keys=low), "run", iterations["2ms"], 5)
            time.sleep(2)
            said = work(limited(memory=LIMIT, keys=high), *words)
        say(f"beside 2 ms kernels without pause, {title}:", said, f"; the others {100 * float(other.result() or 'nan') / alone['2ms']:.1f} %")

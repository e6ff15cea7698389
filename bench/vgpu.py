#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The costs of libvgpu.so, each beside its target, on a driver whose calls return at once.

Every number is a median over interleaved runs (bare, then limited, then bare again ...), so that what the
machine does meanwhile meets both alike.

usage: vgpu.py [--build DIRECTORY] [--rounds N]
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


class Bench:
    def __init__(self, build, rounds, scratch):
        self.build, self.rounds, self.scratch = build.resolve(), rounds, scratch
        self.library = self.build / "src/vgpu/libvgpu.so"
        self.regions = 0

    def environment(self, way):
        """bare; none: preloaded, no limit; limit: limits of memory and compute, neither reached; file: by a limits file."""
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(self.build / "bench/nulldriver")}
        if way == "bare":
            return environment
        self.regions += 1
        environment["LD_PRELOAD"] = str(self.library)
        environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = str(self.scratch / f"region-{self.regions}")
        if way == "file":
            environment["LD_PRELOAD"] = str(self.container(environment.pop("CUDA_DEVICE_MEMORY_SHARED_CACHE")))
        if way == "limit":
            environment["CUDA_DEVICE_MEMORY_LIMIT"] = "4096g"
            environment["CUDA_DEVICE_SM_LIMIT"] = "90"
            environment["CUDA_DEVICE_CONTEXT_SIZE"] = "300m"  # there is no NVML to measure it
        return environment

    def container(self, region):
        """A folder with a limits file, as the node agent makes it. Returns the library."""
        folder = self.scratch / "container"
        folder.mkdir()
        shutil.copy(self.library, folder)
        pathlib.Path(region).touch()
        limits = {"MEMORY_SHARED_CACHE": region, "MEMORY_LIMIT": "3072m", "CONTEXT_SIZE": "300m"}
        (folder / "limits").write_text("".join(f"CUDA_DEVICE_{key}={value}\n" for key, value in limits.items()))
        return folder / self.library.name

    def micro(self, way, *words):
        ended = subprocess.run(
            [self.build / "bench/micro", *words],
            env=self.environment(way), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        if ended.returncode:
            raise SystemExit(f"bench: micro {' '.join(words)} ({way}): exit {ended.returncode}: {ended.stderr}")
        return float(ended.stdout)

    def compare(self, ways, *words):
        """Medians, one for each way, over interleaved runs."""
        runs = {way: [] for way in ways}
        for _ in range(self.rounds):
            for way in ways:
                runs[way].append(self.micro(way, *words))
        return [statistics.median(runs[way]) for way in ways]

    def start(self, count, way, *program):
        environment = self.environment(way)
        environment.pop("LD_PRELOAD", None)
        out = subprocess.run(
            [self.build / "bench/start", str(count), self.library, *program],
            env=environment, stdout=subprocess.PIPE, text=True, check=True,
        ).stdout
        return [float(word) for word in out.split()]

    def crowd(self, count):
        """Seconds until `count` programs started at once have all called cuInit and ended, bare and limited."""
        took = {"bare": [], "limit": []}
        for _ in range(3):
            for way in took:
                environment = self.environment(way)
                begun = time.monotonic()
                crowd = [subprocess.Popen([self.build / "bench/micro", "init"], env=environment) for _ in range(count)]
                bad = sum(one.wait() != 0 for one in crowd)
                took[way].append(time.monotonic() - begun)
                if bad:
                    raise SystemExit(f"bench: {bad} of {count} programs at once failed ({way})")
        return [statistics.median(took[way]) for way in took]


def measure(bench):
    """Rows: what, bare, limited, what is judged, its unit, its target or None."""
    bare, none, limit = bench.compare(("bare", "none", "limit"), "launch")
    yield "launch, no limit", f"{bare:.1f} ns", f"{none:.1f} ns", none - bare, "ns added", 5
    yield "launch, limit, not throttled", f"{bare:.1f} ns", f"{limit:.1f} ns", limit - bare, "ns added", 15
    first = None
    for live in (0, 10_000, 1_000_000):
        bare, limit = bench.compare(("bare", "limit"), "pair", str(live))
        yield f"alloc + free, {live:,} live", f"{bare:.1f} ns", f"{limit:.1f} ns", limit - bare, "ns added", 100
        first = first or limit
    yield "... at 1,000,000 against none", "", "", limit / first, "times", 1.5
    bare, limit = bench.compare(("bare", "limit"), "pool")
    yield "async alloc + free of what a pool has", f"{bare:.1f} ns", f"{limit:.1f} ns", limit - bare, "ns added", 30
    paths = {"pitch": "pitched memory", "managed": "managed memory", "create": "cuMemCreate + release", "array": "array"}
    for path, name in paths.items():
        bare, limit = bench.compare(("bare", "limit"), path)
        more = "" if "+" in name else " + free"
        yield name + more, f"{bare:.1f} ns", f"{limit:.1f} ns", limit - bare, "ns added", 100
    bare, limit = bench.compare(("bare", "limit"), "oldest", "1000000")
    yield "free of the oldest + alloc, 1,000,000 live", f"{bare:.1f} ns", f"{limit:.1f} ns", limit - bare, "ns added", None
    bare, limit = bench.compare(("bare", "limit"), "memory", "1000000")
    yield "memory per live allocation", f"{bare:.1f} B", f"{limit:.1f} B", limit - bare, "bytes", 64
    slowest = bench.micro("file", "resize", str(bench.scratch / "container/limits"))
    yield "a changed limit is told, slowest of 40", "", f"{slowest:.1f} ms", slowest, "ms", 100
    bare, limit = bench.start(300, "limit", "/bin/true")
    yield "start of /bin/true", f"{bare:.0f} us", f"{limit:.0f} us", limit - bare, "us added", 1000
    bare, limit = bench.start(300, "limit", bench.build / "bench/micro", "init")
    yield "start of a CUDA program", f"{bare:.0f} us", f"{limit:.0f} us", limit - bare, "us added", 1000
    bare, limit = bench.crowd(300)
    yield "300 CUDA programs at once", f"{bare:.2f} s", f"{limit:.2f} s", limit - bare, "s added", 1
    stripped = bench.scratch / "libvgpu.so"
    if shutil.which("strip"):
        subprocess.run(["strip", "-o", stripped, bench.library], check=True)
        yield "size of libvgpu.so, stripped", "", "", stripped.stat().st_size / 1024, "KiB", 300


def table(rows):
    yield f"{'what':42} {'bare':>10} {'libvgpu':>10} {'':>12} {'target':>10}"
    for what, bare, limited, value, unit, target in rows:
        judged = "" if target is None else f"<= {target}" + ("" if value <= target else "  MISSED")
        digits = 2 if abs(value) < 10 else 1
        yield f"{what:42} {bare:>10} {limited:>10} {value:8.{digits}f} {unit:9} {judged}".rstrip()


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="hami-bench-") as scratch:
        bench = Bench(options.build, options.rounds, pathlib.Path(scratch))
        for line in table(measure(bench)):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

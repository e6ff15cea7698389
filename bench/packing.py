#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well the policies pack a trace: the scheduler's own code decides about its pods, in random order.

    bench/packing.py --build build --trace DIR [--only NAME] [--seeds N] [--jobs N] [--policies NAME...] [--arrivals-only] [--save] [--svg FILE]

DIR has nodes.csv and pods_NAME.csv, see bench/packing.c; cpu0 is the default trace without pods that ask for no GPU. For the method see docs/placement.md. Of each trace, setting
and policy it prints how many percent of the GPUs are allocated when as many are asked for as there are, the deviation
between seeds, and how many GPUs are left; and then, where pods come and go, what is allocated and what refused. --save
keeps that in bench/results, --svg draws the default trace."""

import argparse
import concurrent.futures
import pathlib
import statistics
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).parent.parent
TRACES = ["default", "cpu0", "gpushare40", "gpushare60", "gpushare100", "gpuspec10", "gpuspec20", "gpuspec33", "multigpu20", "multigpu50", "cpu250"]
POLICIES = ["binpack", "spread", "scarcity"]
SETTINGS = ["gpu", "all"]
FIRST_SEED, LOAD, LEFT, TOP = 101, 95, 60, 40
COLOURS = {"binpack": "#b45309", "spread": "#6b7280", "scarcity": "#047857"}


def needed(options):
    """The files without which nothing can be measured."""
    traces = options.only or TRACES
    names = ["default" if trace == "cpu0" else trace for trace in traces] + ["default"] * (not options.arrivals_only)
    return [options.build / "bench/packing", options.trace / "nodes.csv"] + [options.trace / f"pods_{name}.csv" for name in names]


class Runs:
    def __init__(self, options):
        self.options = options
        self.pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
        self.made = tempfile.TemporaryDirectory()
        self.seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)

    def one(self, *words):
        done = subprocess.run([self.options.build / "bench/packing", *map(str, words)], capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    def pods(self, trace):
        if trace != "cpu0":
            return self.options.trace / f"pods_{trace}.csv"
        path = pathlib.Path(self.made.name) / "pods_cpu0.csv"
        rows = (self.options.trace / "pods_default.csv").read_text().splitlines(keepends=True)
        path.write_text("".join(row for row in rows if row.split(",")[1] != "0"))
        return path

    def start(self, trace, policy, setting, *load):
        files = self.options.trace / "nodes.csv", self.pods(trace)
        return [self.pool.submit(self.one, *files, policy, setting, seed, *load) for seed in self.seeds]


def results(started):
    return [one.result() for one in started]


def deviation(values):
    return statistics.stdev(values) if len(values) > 1 else 0


def fill_line(trace, setting, policy, found):
    allocated = [one[101] for one in found]
    left = found[0][0] * (100 - statistics.mean(allocated)) / 100
    return f"{trace:12} {setting:4} {policy:9} {statistics.mean(allocated):6.2f} % ± {deviation(allocated):.2f}  {left:5.0f} GPUs left"


def departures_line(trace, setting, policy, found):
    allocated, refused = [one[0] for one in found], [one[1] for one in found]
    return (f"{trace:12} {setting:4} {policy:9} {statistics.mean(allocated):6.2f} % ± {deviation(allocated):.2f}  "
            f"{statistics.mean(refused):5.2f} % ± {deviation(refused):.2f} refused")


def curve_points(found):
    for percent in range(LEFT, 131):
        values = [one[1 + percent] for one in found if one[1 + percent] >= 0]
        if values:
            yield percent, statistics.mean(values)


def draw(curves, path):
    """Allocation over what was asked for, setting gpu of the default trace."""

    def x(percent):
        return 50 + (percent - LEFT) * 8

    def y(allocated):
        return 20 + (100 - allocated) * TOP / 5

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {y(LEFT) + 50:.0f}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>']
    for percent in range(LEFT, 101, 10):
        parts.append(f'<path d="M50 {y(percent):.1f}H610" stroke="#ddd"/><text x="44" y="{y(percent) + 4:.1f}" text-anchor="end">{percent}</text>')
    for percent in range(LEFT, 131, 10):
        parts.append(f'<text x="{x(percent)}" y="{y(LEFT) + 18:.1f}" text-anchor="middle">{percent}</text>')
    parts.append(f'<text x="330" y="{y(LEFT) + 38:.1f}" text-anchor="middle">GPUs asked for, percent of all</text>')
    parts.append('<text x="56" y="14">GPUs allocated, percent of all</text>')
    for place, (policy, points) in enumerate(curves.items()):
        line = "L".join(f"{x(percent)} {y(allocated):.2f}" for percent, allocated in points if allocated >= LEFT)
        parts.append(f'<path d="M{line}" fill="none" stroke="{COLOURS[policy]}" stroke-width="2"/>')
        parts.append(f'<text x="520" y="{y(75) + 18 * place:.0f}" fill="{COLOURS[policy]}">{policy}</text>')
    path.write_text("\n".join(parts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--trace", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--arrivals-only", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--svg", type=pathlib.Path)
    options = parser.parse_args()
    for path in needed(options):
        if not path.is_file():
            parser.error(f"there is no {path}")
    runs, lines, curves = Runs(options), [], {}

    def say(line):
        print(line, flush=True)
        lines.append(line)

    say(f"# Arrivals alone, at 100 % asked for, mean and deviation of {options.seeds} seeds")
    started = [(trace, setting, policy, runs.start(trace, policy, setting))
               for trace in options.only or TRACES for setting in SETTINGS for policy in options.policies]
    for trace, setting, policy, futures in started:
        found = results(futures)
        say(fill_line(trace, setting, policy, found))
        if trace == "default" and setting == "gpu":
            curves[policy] = list(curve_points(found))
    if not options.arrivals_only:
        say(f"# With departures, {LOAD} % offered")
    started = [] if options.arrivals_only else [("default", setting, policy, runs.start("default", policy, setting, LOAD)) for setting in SETTINGS for policy in options.policies]
    for trace, setting, policy, futures in started:
        say(departures_line(trace, setting, policy, results(futures)))
    if options.svg and curves:
        draw(curves, options.svg)
    if options.save:
        (SOURCE / "bench/results/packing.txt").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All numbers, each beside its target, part after part. With --save they are kept in bench/results/, one file for each
class of host, in which parts that were not measured stay as they are.

usage: run.py [--build DIRECTORY] [--save] [PART...]   parts: vgpu scheduler node monitor ready throughput
"""

import argparse
import os
import pathlib
import platform
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PARTS = {
    "vgpu": "libvgpu.so, in a program",
    "scheduler": "hami-scheduler, over made clusters",
    "node": "hami-device-plugin, on a simulated node and on a real one",
    "monitor": "hami-vgpu-monitor, on a simulated node",
    "ready": "hami-scheduler's start, beside a real API server",
    "throughput": "the control plane as a whole",
}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    return parser.parse_args()


def host_class():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = (re.search(r"model name\s*:\s*(.*)", text) or [None, platform.machine()])[1]
    words = re.sub(r"\(.*?\)|@.*|CPU|Processor", "", model).lower().split()
    return "-".join([re.sub(r"[^a-z0-9.]+", "", w) for w in words if w][:5] + [f"{os.cpu_count()}cpu"])


def run(part, build, lines):
    """Prints and gathers what a part says, line by line as it comes."""
    words = [sys.executable, "-u", str(SOURCE / "bench" / f"{part}.py"), "--build", str(build)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    return process.returncode


def sections(text):
    """What stands below each title; what is before the first one below None."""
    found, title = {None: []}, None
    for line in text.splitlines():
        if line.startswith("== "):
            title = line
            found[title] = []
        else:
            found[title].append(line)
    return {title: "\n".join(lines).strip("\n") for title, lines in found.items()}


def save(measured):
    """Parts that were not measured now stay as they are."""
    path = SOURCE / "bench/results" / f"{host_class()}.txt"
    path.parent.mkdir(exist_ok=True)
    kept = sections(path.read_text()) if path.exists() else {}
    kept |= {title: "\n".join(lines).strip("\n") for title, lines in measured.items()}
    kept[None] = f"{platform.system()} {platform.release()}"
    path.write_text("\n".join("\n".join(([title] if title else []) + [text, ""]) for title, text in kept.items()))
    print(f"kept in {path.relative_to(SOURCE)}")


def main():
    options = arguments()
    measured, worst = {}, 0
    for part in options.parts:
        title = f"== {PARTS[part]}"
        print(title, flush=True)
        measured[title] = []
        worst = max(worst, run(part, options.build.resolve(), measured[title]))
    if options.save and not worst:
        save(measured)
    return worst


if __name__ == "__main__":
    sys.exit(main())

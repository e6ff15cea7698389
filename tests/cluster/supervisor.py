#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the cluster's programs running, as a node's service manager and a Deployment do.

    supervisor.py WORK

A program is a file WORK/programs/NAME.json: {"argv": [...], "env": {...}, "cwd": "..."}. While the file is
there the program runs; changed, it is started anew; removed, it is ended. One that ends by itself is started
again, at once the first time, then at most twice a second. Output goes to WORK/log/NAME.log, the process id to
WORK/pids/NAME.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

STEP_S = 0.05
AGAIN_S = 0.5
GRACE_S = 8.0


class Program:
    def __init__(self, work, name, text):
        self.work, self.name, self.text = work, name, text
        self.spec = json.loads(text)
        self.process = None
        self.started = 0.0

    def start(self):
        self.started = time.monotonic()
        environment = {**os.environ, **self.spec.get("env", {})}
        with open(self.work / "log" / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                self.spec["argv"], env=environment, cwd=self.spec.get("cwd", self.work),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )
        pid = self.work / "pids" / self.name
        pid.with_suffix(".new").write_text(f"{self.process.pid}\n")
        pid.with_suffix(".new").rename(pid)

    def tend(self):
        if self.process is None:
            return self.try_start()
        code = self.process.poll()
        if code is None:
            return
        say(f"{self.name} ended with {code}")
        self.process = None
        if time.monotonic() - self.started >= AGAIN_S:
            self.try_start()

    def try_start(self):
        if self.started and time.monotonic() - self.started < AGAIN_S:
            return
        try:
            self.start()
            say(f"{self.name} is process {self.process.pid}")
        except OSError as error:
            say(f"{self.name} can't be started: {error}")

    def end(self):
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            say(f"{self.name} was ended")
        (self.work / "pids" / self.name).unlink(missing_ok=True)


def say(text):
    print(time.strftime("%H:%M:%S"), text, flush=True)


def wanted(work):
    found = {}
    for path in (work / "programs").glob("*.json"):
        try:
            found[path.stem] = path.read_text()
        except FileNotFoundError:
            pass
    return found


def turn(work, programs):
    now = wanted(work)
    for name in [n for n, p in programs.items() if now.get(n) != p.text]:
        programs.pop(name).end()
    for name in now.keys() - programs.keys():
        programs[name] = Program(work, name, now[name])
    for program in programs.values():
        program.tend()


def main():
    work = pathlib.Path(sys.argv[1])
    programs = {}
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while not stopped:
        turn(work, programs)
        time.sleep(STEP_S)
    # Those that others depend on were started first.
    for program in sorted(programs.values(), key=lambda p: p.started, reverse=True):
        program.end()


if __name__ == "__main__":
    main()

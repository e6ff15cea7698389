#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs share a GPU, each held to its part: what `hamictl run` does, live and then in a summary.

Where there is no GPU a simulated machine is made, and removed at the end. Exits 0 only if everything the
summary says is true.

usage: demo.py [--build DIRECTORY]
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
GIB = 1 << 30
POINTS = 5.0  # a share may be off by so many of a hundred
WARM_UP, MEASURED = 2.0, 8.0
OUT_OF_MEMORY = 3  # load's exit status


class Screen:
    """What has been said, and below it, on a terminal, `hamictl top` as it is now."""

    def __init__(self):
        self.live = sys.stdout.isatty()
        self.drawn = 0

    def erase(self):
        if self.drawn:
            sys.stdout.write(f"\033[{self.drawn}A\033[J")
            self.drawn = 0

    def say(self, text=""):
        self.erase()
        print(text, flush=True)

    def draw(self, text):
        if not self.live:
            return
        width, height = shutil.get_terminal_size()
        lines = [line[: width - 1] for line in text.splitlines()][: height - 2]
        self.erase()
        sys.stdout.write("".join(line + "\n" for line in lines))
        sys.stdout.flush()
        self.drawn = len(lines)


class Demo:
    def __init__(self, build):
        self.build = build.resolve()
        self.hamictl = self.build / "src/ctl/hamictl"
        self.load = self.build / "tests/load"
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="hami-demo-"))
        self.machine = self.scratch / "machine"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("HAMI_", "CUDA_"))}
        self.environment["HAMI_SIM"] = str(self.machine)
        self.screen = Screen()
        self.started = []
        self.results = []

    # The machine

    def ctl(self, *words):
        ended = subprocess.run(
            [self.hamictl, *map(str, words)], env=self.environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        if ended.returncode:
            raise RuntimeError(f"hamictl {' '.join(map(str, words))}: {ended.stderr.strip()}")
        return ended.stdout

    def make_machine(self):
        self.ctl("sim", "create", "--gpus", "2", "--model", "Tesla V100-SXM2-16GB", "--memory", "16G", self.machine)

    def view(self):
        """The simulator's own count."""
        return json.loads(self.ctl("sim", "show", "--json", self.machine))

    def clean_up(self):
        self.screen.erase()
        for program in self.started:
            if program.poll() is None:
                program.kill()
                program.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    # Programs

    def run(self, memory, cores, *load, gpu=None):
        """A program in a part of a GPU; gpu names the card, otherwise hamictl picks one."""
        command = [self.hamictl, "run", "--gpumem", memory, "--gpucores", str(cores)]
        command += ["--gpu-uuid", gpu] if gpu else []
        program = subprocess.Popen(
            [*command, "--", self.load, *load], env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.started.append(program)
        shown = " ".join(str(word) for word in ["hamictl", *command[1:], "--", "load", *load])
        self.screen.say(f"  $ {shown.replace(str(self.scratch), '.')}")
        return program

    def watch(self, seconds=None, until=None):
        """Lets time pass, with `hamictl top` below. Whether `until` came true."""
        deadline = time.monotonic() + (seconds if seconds is not None else 10)
        while time.monotonic() < deadline:
            if until and until():
                return True
            if self.screen.live:
                self.screen.draw(self.ctl("top"))
            time.sleep(0.25 if self.screen.live else 0.02)
        return bool(until and until())

    def result(self, holds, sentence):
        self.results.append((holds, sentence))
        self.screen.say(f"  {'ok' if holds else 'NOT SO'}: {sentence}\n")
        return holds

    # The scenes

    def inside(self):
        self.screen.say("A program that stays inside its part:")
        program = self.run("2g", 30, "--memory", "1G", "--seconds", "1", "--kernel", "1ms")
        ended = self.watch(until=lambda: program.poll() is not None)
        self.result(ended and program.returncode == 0, f"it takes 1 GiB of its 2 and ends with exit status {program.returncode}")

    def outside(self):
        self.screen.say("A program that asks for too much:")
        program = self.run("2g", 30, "--memory", "4G", "--piece", "256M")
        ended = self.watch(until=lambda: program.poll() is not None)
        text = program.stderr.read().strip() if ended else "still running"
        self.result(
            program.returncode == OUT_OF_MEMORY and "out of memory" in text,
            f"it gets CUDA's own out-of-memory, on a card with {self.view()['gpus'][0]['memory_bytes'] // GIB} GiB: \"{text}\"",
        )

    def pid_of(self, program):
        """The program's own pid: the child of its hamictl, or hamictl itself where that became it."""
        children = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children")
        words = children.read_text().split() if children.exists() else []
        return int(words[0]) if words else program.pid

    def killed(self, gpu):
        self.screen.say("A program that is killed:")
        ready = self.scratch / "ready"
        program = self.run("12g", 30, "--memory", "11G", "--ready", ready, "--hold", gpu=gpu["uuid"])
        held = self.watch(until=ready.exists)
        pid = self.pid_of(program)
        before = self.used(gpu["uuid"])
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        freed = self.watch(5, until=lambda: self.used(gpu["uuid"]) == 0)
        took = time.monotonic() - began
        program.wait(5)
        self.screen.say(f"  kill -9 {pid}: {before / GIB:.1f} GiB were held, none after {took * 1000:.0f} ms")
        following = self.run("12g", 30, "--memory", "11G", gpu=gpu["uuid"])
        self.watch(until=lambda: following.poll() is not None)
        self.result(
            held and freed and before >= 11 * GIB and took < 1 and following.returncode == 0,
            "its memory is free at once, and the next program takes as much",
        )

    def used(self, uuid):
        return next(gpu["used_bytes"] for gpu in self.view()["gpus"] if gpu["uuid"] == uuid)

    def busy(self, pids):
        view = self.view()
        times = {process["pid"]: sum(process["busy_ns"]) for process in view["processes"]}
        if missing := [pid for pid in pids if pid not in times]:
            raise RuntimeError(f"processes {missing} do not use the GPU: not yet, or not any more")
        return view["now_ns"], [times[pid] for pid in pids]

    def sharing(self, gpu):
        self.screen.say("Two programs that share a card 30/60, one with kernels of 50 us, one of 20 ms:")
        seconds = "60"  # longer than it is looked at, however busy this machine is; then they are told to end
        wanted = (30, 60)
        programs = [
            self.run("2g", 30, "--memory", "1G", "--kernel", "50us", "--seconds", seconds, gpu=gpu["uuid"]),
            self.run("2g", 60, "--memory", "1G", "--kernel", "20ms", "--batch", "2", "--seconds", seconds, gpu=gpu["uuid"]),
        ]
        self.watch(WARM_UP)
        pids = [self.pid_of(program) for program in programs]
        begun, before = self.busy(pids)
        if not self.screen.live:
            self.screen.say(self.ctl("top"))
        self.watch(MEASURED)
        ended, after = self.busy(pids)
        shares = [100 * (b - a) / (ended - begun) for a, b in zip(before, after)]
        for program in programs:
            program.terminate()
        self.watch(until=lambda: all(program.poll() is not None for program in programs))
        holds = all(program.returncode == 0 for program in programs) and all(
            abs(share - cores) <= POINTS for share, cores in zip(shares, wanted)
        )
        load, processors = os.getloadavg()[0], os.cpu_count()
        busy = not holds and load > processors
        self.result(
            holds,
            f"by the driver's busy time over {(ended - begun) / 1e9:.0f} s they had {shares[0]:.1f} % and {shares[1]:.1f} %"
            + (f"; this machine is busy (load {load:.0f} on {processors} processors), try again when it is not" if busy else ""),
        )

    def play(self):
        began = time.monotonic()
        self.make_machine()
        self.screen.say("No GPU is needed: two cards, V100 of 16 GiB, are simulated.\n")
        cards = self.view()["gpus"]
        self.inside()
        self.outside()
        self.killed(cards[1])
        self.sharing(cards[0])
        self.screen.say("Summary")
        for holds, sentence in self.results:
            self.screen.say(f"  {'ok' if holds else 'NOT SO'}: {sentence}")
        good = len(self.results) == 4 and all(holds for holds, _ in self.results)
        self.screen.say(f"{'All of it was so' if good else 'Not all of it was so'}, in {time.monotonic() - began:.0f} s.")
        return 0 if good else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    build = parser.parse_args().build
    for program in "src/ctl/hamictl", "tests/load":
        if not (build / program).is_file():
            parser.error(f"there is no {build / program}; --build names the folder that make builds in")
    demo = Demo(build)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    try:
        return demo.play()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except RuntimeError as error:
        demo.screen.say(f"demo: {error}")
        return 1
    finally:
        demo.clean_up()


if __name__ == "__main__":
    sys.exit(main())

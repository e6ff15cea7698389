# SPDX-License-Identifier: Apache-2.0
"""What the tests of hamictl share: a simulated machine of their own, and hamictl on it."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

BUILD = pathlib.Path(os.environ["HAMI_BUILD"])
SOURCE = pathlib.Path(__file__).resolve().parents[2]
HAMICTL = BUILD / "src/ctl/hamictl"
HOLDER = BUILD / "tests/ctl/holder"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class CtlTest(unittest.TestCase):
    """Every test has a folder and an environment without limits; most make a machine in it."""

    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hami-ctl-"))
        self.environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "HAMI_", "NVIDIA_", "LD_"))
        }
        if "HAMI_LIBDIR" in os.environ:
            self.environment["HAMI_LIBDIR"] = os.environ["HAMI_LIBDIR"]
        self.started = []

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def make_machine(self, *options):
        self.machine = self.folder / "machine"
        self.environment["HAMI_SIM"] = str(self.machine)
        self.grants_folder = self.folder / "machine.run/grants"
        made = self.ctl("sim", "create", *options)
        self.assertEqual((made.returncode, made.stderr), (0, ""))

    def ctl(self, *words, timeout=60, given="", **environment):
        """hamictl to its end, with what it is given on its standard input."""
        return subprocess.run(
            [HAMICTL, *map(str, words)], env={**self.environment, **environment}, timeout=timeout, text=True,
            input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def on_terminal(self, columns, *words):
        """What hamictl writes to a terminal of so many columns."""
        terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([HAMICTL, *map(str, words)], env=self.environment, stdin=theirs, stdout=theirs, stderr=theirs)
        self.started.append(process)
        seen = b""
        # Held open here until it has ended and all is read: what is on its way may be lost otherwise.
        while process.poll() is None or select.select([terminal], [], [], 0.1)[0]:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 10000)
        os.close(terminal)
        os.close(theirs)
        return seen.decode().replace("\r\n", "\n")

    def start(self, *words, **environment):
        process = subprocess.Popen(
            [HAMICTL, *map(str, words)], env={**self.environment, **environment}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def top(self):
        shown = self.ctl("top", "--json")
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        return json.loads(shown.stdout)

    def grants(self):
        """What the ledger's files say, without hamictl: a list of (uuid, bytes, cores)."""
        found = []
        for path in self.grants_folder.glob("*") if self.grants_folder.exists() else []:
            try:
                text = path.read_text()
            except FileNotFoundError:
                continue
            found += [(u, int(m), int(c)) for u, m, c in re.findall(r"^device=(\S+) (\d+) (\d+)$", text, re.M)]
        return found

    def until(self, condition, seconds=30):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def child_of(self, process):
        """The program of a running hamictl."""
        path = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        self.assertTrue(self.until(lambda: path.read_text().split()))
        return int(path.read_text().split()[0])

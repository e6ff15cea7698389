# SPDX-License-Identifier: Apache-2.0
"""Packages of Python's index that a test needs, in a virtual environment in the build folder."""

import fcntl
import subprocess
import venv


def interpreter(folder, packages, skip):
    """A Python that has them. Tests that start together wait for the one that makes it."""
    python, mark, wanted = folder / "bin/python", folder / "ready", "\n".join(packages)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(folder.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text() == wanted:
            return python
        try:
            venv.create(folder, with_pip=True, clear=True)
        except (subprocess.CalledProcessError, OSError) as error:
            skip(f"no virtual environment can be made: {error}")
        got = subprocess.run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "20", *packages],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        if got.returncode:
            print(got.stdout[-2000:])
            skip("the package index is out of reach")
        mark.write_text(wanted)
    return python

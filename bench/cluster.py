# SPDX-License-Identifier: Apache-2.0
"""The test cluster, for benchmarks: brought up for one unless it is there, and taken down again then."""

import contextlib
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/cluster"


@contextlib.contextmanager
def up():
    """Whether there is one; if this machine is not fit for it, that is said. tests/cluster can be imported inside."""
    sys.path.insert(0, str(FOLDER))
    import host

    if host.unfit():
        print(f"skipped: {host.unfit()}")
        yield False
        return
    there = (host.WORK / "cluster.json").exists()
    if not there:
        subprocess.run([FOLDER / "cluster", "up"], check=True, stdout=subprocess.DEVNULL)
    try:
        yield True
    finally:
        if not there:
            subprocess.run([FOLDER / "cluster", "down"], check=True, stdout=subprocess.DEVNULL)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cluster up` over a running cluster, from another shell: it finds what runs, and says so."""

import os

from support import *


def main():
    programs_there = sorted(path.stem for path in (WORK / "programs").glob("*.json"))
    before = {name: host.read_pid(name) for name in programs_there}
    other = os.environ | {"PATH": f"/nowhere:{os.environ['PATH']}", "HOME": "/nowhere", "XDG_CACHE_HOME": str(host.CACHE.parent)}
    ended = subprocess.run([sys.executable, host.HERE / "cluster", "up"], env=other, timeout=100, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check_equal(ended.returncode, 0, "from a shell with another PATH it comes to its end")
    check_equal({name: host.read_pid(name) for name in programs_there}, before, "and starts nothing anew")
    said = {name: f"{name} is up, process {pid}" in ended.stdout for name, pid in before.items()}
    check(all(said.values()), "it says what runs", [name for name, there in said.items() if not there], ended.stdout[-2000:])
    check(wait_until(reachable, 5), "the API server answers")
    finish()


if __name__ == "__main__":
    main()

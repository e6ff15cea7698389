#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hami-vgpu-monitor on a simulated node of 500 containers: a scrape, its memory, what it costs while nobody asks.

A stopped process holds memory in each container. Of the processor's time while nobody scrapes the simulated driver takes about an
eighth.

usage: monitor.py [--build DIRECTORY] [--containers N] [--rounds N]
"""

import argparse
import os
import pathlib
import signal
import socket
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
TARGET_MS, TARGET_MIB, TARGET_PERCENT = 5, 10, 0.5
POD = "0b8f6a1c-3a52-4d5e-9f0e-1c2d3e4f5a6b"


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--containers", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=100)
    return parser.parse_args()


options = arguments()
os.environ["HAMI_BUILD"] = str(options.build.resolve())
for folder in ("tests", "tests/node"):
    sys.path.insert(0, str(SOURCE / folder))
import monitor as node  # noqa: E402
from api import Api  # noqa: E402
from harness import GIB, MIB, Machine, bare_environment, private_kib, scratch, start, wait_until, LOAD  # noqa: E402


buffer = memoryview(bytearray(4 << 20))  # read into again and again, as a scraper does


def scrape(port):
    """The bytes of a page, and the milliseconds that it took."""
    began, size = time.monotonic(), 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while got := connection.recv_into(buffer):
            size += got
    return size, (time.monotonic() - began) * 1000


def processor_s(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def main():
    machine, hook, proc = Machine(8, 80 * GIB), scratch / "vgpu", scratch / "proc"
    proc.mkdir()
    uuids = [gpu["uuid"] for gpu in machine.view()["gpus"]]
    boxes = [node.Container(hook, POD, f"c{i}", uuids[i % 8], memory=1000 * MIB) for i in range(options.containers)]
    api = Api(objects={node.PODS: {"one": node.pod("one", POD)}})
    served = node.Monitor(machine, api, hook, f"--procfs={proc}")
    guests = [box.start(machine, "--memory", "100M", "--hold") for box in boxes]
    wait_until(lambda: all(machine.used(g.pid, i % 8) for i, g in enumerate(guests)), 300)
    for guest in guests:
        folder = proc / str(guest.pid)
        folder.mkdir()
        for name in ("stat", "status"):
            (folder / name).symlink_to(f"/proc/{guest.pid}/{name}")
        (folder / "cgroup").write_text(f"0::/kubepods/pod{POD}/{guest.pid}\n")
    for guest in guests:  # hundreds of idle processes would take half a core
        guest.send_signal(signal.SIGSTOP)
    scrape(served.port)
    times, before = [], processor_s(served.program.pid)
    for _ in range(options.rounds):
        time.sleep(0.05)
        size, took = scrape(served.port)
        times.append(took)
    times.sort()
    each_ms = (processor_s(served.program.pid) - before) * 1000 / options.rounds
    before, began = processor_s(served.program.pid), time.monotonic()
    time.sleep(10)
    percent = (processor_s(served.program.pid) - before) / (time.monotonic() - began) * 100
    print(f"scrape of {options.containers} containers, {size / 1e6:.1f} MB    p50 {times[len(times) // 2]:.1f} ms  least {times[0]:.1f} ms    <= {TARGET_MS}")
    print(f"of the processor, with what goes on meanwhile  {each_ms:.1f} ms")
    print(f"private memory                                {private_kib(served.program.pid) / 1024:.1f} MiB    <= {TARGET_MIB}")
    print(f"of a core, while nobody scrapes               {percent:.2f} %    <= {TARGET_PERCENT}")
    served.program.terminate()
    for guest in guests:
        guest.kill()
    api.close()


main()

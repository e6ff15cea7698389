# SPDX-License-Identifier: Apache-2.0
"""What the integration tests share: simulated machines, guests bare and preloaded, and a verdict.

The build is named by HAMI_BUILD, the tree by HAMI_SOURCE. A test calls check() for each sentence that
should hold, with the numbers, and ends with finish().
"""

import atexit
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(os.environ.get("HAMI_SOURCE", pathlib.Path(__file__).parent.parent)).resolve()
BUILD = pathlib.Path(os.environ.get("HAMI_BUILD", SOURCE / "build")).resolve()
LIBVGPU = BUILD / "src/vgpu/libvgpu.so"
SIMDRIVER = BUILD / "src/simdriver"
HAMICTL = BUILD / "src/ctl/hamictl"
JUDGE = BUILD / "tests/judge"
LOAD = BUILD / "tests/load"

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

scratch = pathlib.Path(tempfile.mkdtemp(prefix="hami-test-"))
# What runs the build's programs where it was made for another machine.
EMULATOR = shlex.split(os.environ.get("HAMI_EMULATOR", ""))


def sanitizer():
    """The library of AddressSanitizer where the build has it: it must come before all others."""
    told = BUILD / "meson-info/intro-buildoptions.json"
    options = json.loads(told.read_text()) if told.exists() else []
    if not any(option["name"] == "b_sanitize" and "address" in option["value"] for option in options):
        return None
    linked = subprocess.run(["ldd", LIBVGPU], check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.search(r"libasan\S* => (\S+)", linked)[1]


SANITIZER = sanitizer()

guests = []
failures = 0


def clean_up():
    for guest in guests:
        if guest.poll() is None:
            guest.kill()
            guest.wait()
    shutil.rmtree(scratch, ignore_errors=True)


atexit.register(clean_up)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def check(holds, sentence, *numbers):
    """Says the sentence, with its numbers where it does not hold."""
    global failures
    if holds:
        print(f"ok: {sentence}")
    else:
        failures += 1
        print(f"FAIL: {sentence}", *(repr(number) for number in numbers), sep="\n      ")
    sys.stdout.flush()
    if failures and os.environ.get("HAMI_FIRST_FAILURE"):
        clean_up()
        os._exit(1)
    return bool(holds)


def check_equal(got, wanted, sentence):
    return check(got == wanted, sentence, f"got    {got!r}", f"wanted {wanted!r}")


def finish():
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)


class Machine:
    """A simulated machine and the simulator's own count of it."""

    count = 0

    def __init__(self, gpus=1, memory=8 * GIB, sms=108, context=300 * MIB, driver={}):
        """`driver`: its options; HAMI_TEST_DRIVER="KEY=VALUE ..." sets some for all machines."""
        Machine.count += 1
        options = dict(option.split("=", 1) for option in os.environ.get("HAMI_TEST_DRIVER", "").split()) | driver
        self.path = scratch / f"machine-{Machine.count}"
        subprocess.run(
            command([JUDGE, "create", self.path, gpus, memory, sms, context, *(f"{k}={v}" for k, v in options.items())]),
            check=True,
        )

    def view(self):
        out = subprocess.run(command([JUDGE, "view", self.path]), check=True, stdout=subprocess.PIPE).stdout
        return json.loads(out)

    def hang(self):
        """From now on its driver does not answer; it does again when what is returned is killed."""
        holder = start([JUDGE, "hold", self.path], dict(os.environ))
        holder.stdout.readline()
        return holder

    def fault(self, gpu, *what):
        """Lets an error befall a card, as `hamictl sim fault` says it: "--xid=79"."""
        subprocess.run(command([HAMICTL, "sim", "fault", f"--gpu={gpu}", *what, self.path]), check=True)

    def used(self, pid=None, gpu=0):
        """Bytes in use on a card, by everybody or by one process."""
        view = self.view()
        if pid is None:
            return view["gpus"][gpu]["used"]
        return sum(p["used"][gpu] for p in view["processes"] if p["pid"] == pid)

    def busy_ns(self, pid, gpu=0):
        view = self.view()
        return view["now"], sum(p["busy"][gpu] for p in view["processes"] if p["pid"] == pid)

    def environment(self):
        return {"HAMI_SIM": str(self.path), "LD_LIBRARY_PATH": str(SIMDRIVER)}


def bare_environment(machine, **more):
    """The caller's environment without any limit in it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "HAMI_", "NVIDIA_", "LD_"))}
    kept["HAMI_BUILD"] = str(BUILD)
    if SANITIZER:
        # What a guest leaves behind is its own affair; what it gets from libc, it gets.
        kept["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1"
    if machine:
        kept.update(machine.environment())
    kept.update({k: str(v) for k, v in more.items()})
    if SANITIZER and "LD_PRELOAD" in kept:
        kept["LD_PRELOAD"] = f"{SANITIZER} {kept['LD_PRELOAD']}"
    return kept


def limited_environment(machine, memory=None, cores=None, region=None, library=LIBVGPU, **more):
    """As a container of HAMi's has it: the library preloaded, limits and region named."""
    environment = bare_environment(machine, LD_PRELOAD=library, **more)
    environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = str(region or new_region())
    if memory is not None:
        environment["CUDA_DEVICE_MEMORY_LIMIT"] = str(memory)
    if cores is not None:
        environment["CUDA_DEVICE_SM_LIMIT"] = str(cores)
    return environment


regions = 0


def new_region():
    global regions
    regions += 1
    return scratch / f"region-{regions}"


def container(region=None, **keys):
    """A folder as the node agent makes it: libvgpu.so with a file of limits beside it. Returns the library."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch, prefix="vgpu-"))
    library = folder / "libvgpu.so"
    shutil.copy(LIBVGPU, library)
    region = pathlib.Path(region or new_region())
    region.touch()
    write_limits(library, CUDA_DEVICE_MEMORY_SHARED_CACHE=region, **keys)
    return library


def cell_of(folder, uuid, priority=None):
    """A container's cell of the card, as the node agent makes it, and the keys that say so."""
    own = pathlib.Path(tempfile.mkdtemp(dir=folder, prefix="own-"))
    (folder / "cards" / uuid).mkdir(parents=True, exist_ok=True)
    cell = folder / "cards" / uuid / (own.name if priority is None else f"{own.name}.{priority}.0")
    cell.write_bytes(bytes(4096))
    os.link(cell, own / uuid)
    keys = {"HAMI_CARD_CELLS": own, "HAMI_CARDS": folder / "cards", "HAMI_CARD_RANKS": folder / "cards"}
    return keys | ({} if priority is None else {"CUDA_TASK_PRIORITY": priority})


def write_limits(library, **keys):
    """Replaces the file by rename, as a writer does that must never show half of it."""
    folder = library.parent
    (folder / "limits.new").write_text("".join(f"{k}={v}\n" for k, v in keys.items()))
    os.rename(folder / "limits.new", folder / "limits")


def command(arguments):
    ours = pathlib.Path(arguments[0]).is_relative_to(BUILD)
    return [str(a) for a in (EMULATOR if ours else []) + list(arguments)]


def run(arguments, environment, timeout=60, **options):
    """Runs to the end; stdout and stderr are text."""
    return subprocess.run(
        command(arguments),
        env=environment,
        timeout=timeout,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=options.pop("stdin", subprocess.DEVNULL),
        text=True,
        **options,
    )


def start(arguments, environment, **options):
    """Starts a guest that is killed, at the latest, when the test ends."""
    guest = subprocess.Popen(
        command(arguments),
        env=environment,
        stdin=options.pop("stdin", subprocess.PIPE),
        stdout=options.pop("stdout", subprocess.PIPE),
        text=True,
        **options,
    )
    guests.append(guest)
    return guest


def private_kib(pid):
    """Memory that a process shares with nobody."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def anonymous_kib(pid):
    """Memory that a process alone has made. A library's pages are private, too, while nobody else has it mapped."""
    found = re.search(r"^Anonymous:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    return int(found[1])


def wait_until(condition, seconds=30, step=0.01):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True

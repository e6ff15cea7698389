# SPDX-License-Identifier: Apache-2.0
"""The images of the test cluster, made here: pods get a shell and the test programs, nothing is pulled."""

import shutil
import subprocess
import sys

from host import BUILD, DEPLOY, WORK, ClusterError, output, run
from programs import CONTAINERD_SOCKET

sys.path.insert(0, str(DEPLOY))
import image  # noqa: E402

PAUSE = "docker.io/local/pause:1"
BOX = "docker.io/local/box:1"
APPLETS = ["sh", "[", "sleep", "cat", "ls", "echo", "env", "id", "touch", "true", "false", "grep", "readlink", "kill", "ps"]
# What runs in pods: those of the build that are there.
PROGRAMS = {"load": "tests/load", "slice": "tests/cluster/slice"}
# What the node mounts into pods; the image has the libraries that these ask for.
GUESTS = ["src/vgpu/libvgpu.so", "src/simdriver/libcuda.so.1", "src/simdriver/libnvidia-ml.so.1"]


def ctr(binaries, *words):
    """The runtime's own client. What it says besides is for who reads of a failure."""
    try:
        return output(binaries / "ctr", "-a", CONTAINERD_SOCKET, "-n", "k8s.io", *words, stderr=subprocess.PIPE)
    except subprocess.CalledProcessError as error:
        raise ClusterError(f"ctr {' '.join(map(str, words))}: {error.stderr}") from error


def make_pause(folder):
    source = folder / "pause.c"
    source.write_text("int pause(void);\nint main(void)\n{\n    for (;;)\n        pause();\n}\n")
    run("gcc", "-static", "-O1", "-o", folder / "pause", source)
    image.write(folder / "pause.tar", PAUSE, {"/pause": folder / "pause"}, entrypoint=["/pause"])


def make_box(folder):
    programs = {name: BUILD / path for name, path in PROGRAMS.items() if (BUILD / path).exists()}
    files = {"/bin/busybox": shutil.which("busybox")}
    files |= {f"/bin/{name}": path for name, path in programs.items()}
    guests = [*programs.values(), *(BUILD / path for path in GUESTS if (BUILD / path).exists())]
    files |= {library: library for library in image.libraries_of(guests)}
    image.write(
        folder / "box.tar", BOX, files, links={f"/bin/{name}": "busybox" for name in APPLETS},
        folders={"/tmp": 0o1777, "/etc": 0o755}, environment=["PATH=/bin"],
    )
    return sorted(PROGRAMS.keys() - programs.keys())


def load(binaries):
    """Makes and imports both. Returns the names of test programs that are not built."""
    folder = WORK / "images"
    folder.mkdir(exist_ok=True)
    make_pause(folder)
    missing = make_box(folder)
    for name in ("pause", "box"):
        ctr(binaries, "images", "import", folder / f"{name}.tar")
    there = ctr(binaries, "images", "ls", "-q").split()
    if not {PAUSE, BOX} <= set(there):
        raise ClusterError(f"images were not imported: {there}")
    return missing

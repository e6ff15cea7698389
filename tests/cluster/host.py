# SPDX-License-Identifier: Apache-2.0
"""Where the test cluster lives on this machine, what it needs of it, and how all of it is taken away again.

Everything is in one folder, WORK, but for what Kubernetes, the runtime and our programs fix: the rows of
OUTSIDE. A machine has one such cluster at a time.
"""

import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import time
from functools import partial

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
DEPLOY = SOURCE / "deploy"
WORK = pathlib.Path(os.environ.get("HAMI_CLUSTER", "/tmp/hami-cluster"))
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "hami-cluster"
BUILD = pathlib.Path(os.environ.get("HAMI_BUILD", SOURCE / "build")).resolve()

NODE = "node-1"
# kubelet takes no loopback address, and a machine may lack any other: lo gets one of its own.
NODE_ADDRESS = "198.51.100.1"
BRIDGE = "hami0"
CGROUP = "hami-cluster"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
HOOK = pathlib.Path("/usr/local/vgpu")
CDI = pathlib.Path("/var/run/cdi")
KUBELET = pathlib.Path("/var/lib/kubelet")
# Folders that programs name by constants: the plugin's, the CDI's, the runtime's, the network's, kubelet's.
FOLDERS = [HOOK, CDI, *map(pathlib.Path, ("/run/containerd", "/var/lib/cni", "/var/log/containers"))]
MARK = "HAMI_CLUSTER_WORK"

# What must be there, and the Debian package that brings it.
NEEDS = [
    ("runc", "runc"),
    ("busybox", "busybox-static"),
    ("openssl", "openssl"),
    ("gcc", "gcc"),
    ("ip", "iproute2"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("/usr/lib/cni/host-local", "containernetworking-plugins"),
]

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


class ClusterError(Exception):
    """Something a person has to know about; the message says what to do."""


def unfit():
    """Why no cluster can be had here, or None."""
    if os.geteuid() != 0:
        return "a Kubernetes node needs root"
    missing = {package for name, package in NEEDS if not shutil.which(name)}
    if missing:
        return f"not installed: {' '.join(sorted(missing))}"
    if not any(CGROUPS.iterdir()):
        return "there are no cgroups"
    return None


def run(*words, **options):
    return subprocess.run([str(w) for w in words], check=True, **options)


def output(*words, **options):
    return run(*words, stdout=subprocess.PIPE, text=True, **options).stdout


def quietly(*words):
    """For what may fail because there is nothing to do. True if it did something."""
    null = subprocess.DEVNULL
    return subprocess.run([str(w) for w in words], stdout=null, stderr=null, stdin=null).returncode == 0


def until(condition, seconds, step=0.1):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True


# Processes


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def read_pid(name):
    try:
        return int((WORK / "pids" / name).read_text())
    except (FileNotFoundError, ValueError):
        return None


def ours(pid):
    """Whether the cluster started it: its environment says so, or it is a shim of our runtime."""
    mark = f"{MARK}={WORK}".encode()
    try:
        if mark in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return True
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{WORK}/containerd/containerd.sock".encode() in words


def our_processes():
    pids = [int(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and ours(pid)]


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return until(lambda: not any(alive(pid) for pid in pids), 10)


# cgroups: the kubelet keeps its pods below one of our own.


def cgroup_roots():
    """One folder a hierarchy: several in version 1, the mount itself in version 2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    with open("/proc/mounts", encoding="utf-8") as mounts:
        fields = [line.split() for line in mounts]
    return [pathlib.Path(f[1]) for f in fields if f[2].startswith("cgroup") and pathlib.Path(f[1]).parent == CGROUPS]


def cgroup_make():
    for root in cgroup_roots():
        made = root / CGROUP
        made.mkdir(exist_ok=True)
        # In version 1 a new cpuset is empty, and nothing can run in it.
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (made / name).exists() and "cgroup.controllers" not in os.listdir(root):
                (made / name).write_text((root / name).read_text())


def cgroup_pids():
    found = set()
    for root in cgroup_roots():
        for procs in (root / CGROUP).rglob("cgroup.procs"):
            try:
                found |= {int(pid) for pid in procs.read_text().split()}
            except OSError:
                pass
    return found


def cgroup_remove():
    for root in cgroup_roots():
        for folder, _, _ in os.walk(root / CGROUP, topdown=False):
            until(lambda folder=folder: quietly("rmdir", folder) or not os.path.exists(folder), 2, 0.05)


# What lies outside of WORK: how it is made, how taken away, and how to see that it is gone.


def address_add():
    quietly("ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", "lo")


def address_remove():
    quietly("ip", "address", "delete", f"{NODE_ADDRESS}/32", "dev", "lo")


def address_left():
    return NODE_ADDRESS in output("ip", "address", "show", "dev", "lo")


def kubelet_add():
    """kubelet's folder of device plugins is a constant; a link leads it, and all beside it, into WORK."""
    target = WORK / "kubelet"
    target.mkdir(parents=True, exist_ok=True)
    if KUBELET.is_symlink() and os.readlink(KUBELET) == str(target):
        return
    if KUBELET.is_symlink() or KUBELET.exists():
        raise ClusterError(f"{KUBELET} is there already: another kubelet's? Remove it first")
    KUBELET.symlink_to(target)


def kubelet_remove():
    if KUBELET.is_symlink() and os.readlink(KUBELET) == str(WORK / "kubelet"):
        KUBELET.unlink()


def folder_add(path):
    """A folder that programs name by their defaults. Made by us, it is ours to remove."""
    marker = path / ".hami-cluster"
    if not path.exists():
        path.mkdir(parents=True)
        marker.touch()


def folder_remove(path):
    if (path / ".hami-cluster").exists():
        shutil.rmtree(path, ignore_errors=True)


# Settings of the kernel that kubelet and the bridge change.
SETTINGS = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
]


def settings_now():
    paths = [pathlib.Path("/proc/sys") / name for name in SETTINGS]
    return {str(path): path.read_text() for path in paths if path.exists()}


def settings_keep():
    kept = WORK / "settings.json"
    if not kept.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(settings_now()))


def settings_differ():
    """Those that are not as they were, with what they were."""
    kept = WORK / "settings.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    now = settings_now()
    return {path: value for path, value in before.items() if now.get(path) != value}


def settings_restore():
    for path, value in settings_differ().items():
        pathlib.Path(path).write_text(value)


def bridge_remove():
    quietly("ip", "link", "delete", BRIDGE)


def bridge_left():
    return os.path.exists(f"/sys/class/net/{BRIDGE}")


def mounts():
    with open("/proc/mounts", encoding="utf-8") as lines:
        points = [line.split()[1] for line in lines]
    return sorted((p for p in points if p.startswith(f"{WORK}/")), reverse=True)


def mounts_remove():
    for point in mounts():
        quietly("umount", "-l", point)


def nothing():
    pass


# name, make, remove, whether it is still there; in the order of making, removed the other way round
OUTSIDE = [
    ("kernel settings", settings_keep, settings_restore, lambda: bool(settings_differ())),
    ("address of the node", address_add, address_remove, address_left),
    ("folder of the kubelet", kubelet_add, kubelet_remove, KUBELET.is_symlink),
    *[
        (str(path), partial(folder_add, path), partial(folder_remove, path), (path / ".hami-cluster").exists)
        for path in FOLDERS
    ],
    ("cgroups", cgroup_make, cgroup_remove, lambda: any((r / CGROUP).exists() for r in cgroup_roots())),
    ("bridge", nothing, bridge_remove, bridge_left),
    ("mounts", nothing, mounts_remove, lambda: bool(mounts())),
    ("processes", nothing, lambda: kill_all(set(our_processes()) | cgroup_pids()), lambda: bool(our_processes())),
    ("work folder", nothing, lambda: shutil.rmtree(WORK, ignore_errors=True), WORK.exists),
]


def make_outside():
    for _, make, _, _ in OUTSIDE:
        make()


def remove_outside():
    # Processes hold mounts, mounts hold cgroups and the folder; the folder goes last.
    for _, _, remove, _ in sorted(reversed(OUTSIDE), key=lambda row: row[0] == "work folder"):
        remove()


def left_over():
    """Names of what a cluster left behind."""
    return [name for name, _, _, there in OUTSIDE if there()]

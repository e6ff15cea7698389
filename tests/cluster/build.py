# SPDX-License-Identifier: Apache-2.0
"""Builds the programs of Kubernetes and containerd from their Go modules, once, into a cache named by version."""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from host import ARCH, CACHE, HERE, ClusterError, output, run

KUBERNETES = HERE / "kubernetes"
CONTAINERD = HERE / "containerd"
# A machine's Go may be older than the modules ask for; then this one is fetched, itself a module.
GO_NEEDED = (1, 26, 6)
GO_PLACES = ["/usr/local/go/bin/go", "/usr/lib/go/bin/go"]

# module folder, packages, further arguments of `go build`
BUILDS = [
    (
        KUBERNETES,
        ["./etcd"]
        + [
            f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
        ],
        [],
    ),
    (
        CONTAINERD,
        [f"github.com/containerd/containerd/v2/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")],
        ["-tags", "no_btrfs no_devmapper no_zfs"],
    ),
]


def key():
    parts = hashlib.sha256()
    for path in sorted(HERE.glob("*/go.*")) + [KUBERNETES / "etcd/main.go"]:
        parts.update(path.read_bytes())
    parts.update(repr([build[1:] for build in BUILDS]).encode())
    return parts.hexdigest()[:12]


def programs():
    """The folder of the programs, whether or not they are built yet."""
    return CACHE / f"{key()}-{ARCH}"


def go_version(go):
    found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", output(go, "version", env=environment()))
    return tuple(int(n or 0) for n in found.groups())


def environment():
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}


def toolchain(go):
    """Fetches Go as the module that it also is. Modules are unpacked without run bits: a copy gets them."""
    version = "v0.0.1-go{}.{}.{}.linux-{}".format(*GO_NEEDED, ARCH)
    home = CACHE / version
    if not (home / "complete").exists():
        told = output(go, "mod", "download", "-json", f"golang.org/toolchain@{version}", env=environment(), cwd="/")
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(json.loads(told)["Dir"], home)
        for path in home.rglob("*"):
            path.chmod(0o755)
        (home / "complete").touch()
    return home / "bin/go"


def find_go():
    places = [shutil.which("go"), *GO_PLACES]
    found = [go for go in places if go and os.access(go, os.X_OK)]
    if not found:
        raise ClusterError("there is no Go to build Kubernetes with; Debian's is golang-go")
    for go in found:
        if go_version(go) >= GO_NEEDED:
            return go
    return toolchain(found[0])


def ldflags(go):
    version = output(go, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes", cwd=KUBERNETES, env=environment())
    stamp = "k8s.io/component-base/version"
    minor = version.split(".")[1]
    return f"-s -w -X {stamp}.gitVersion={version.strip()} -X {stamp}.gitMajor=1 -X {stamp}.gitMinor={minor}"


@contextlib.contextmanager
def alone():
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build():
    """Builds what is not built yet. Returns the folder of the programs."""
    folder = programs()
    if (folder / "complete").exists():
        return folder
    with alone():
        if (folder / "complete").exists():
            return folder
        print("cluster: building Kubernetes and containerd, once; this takes some minutes", file=sys.stderr)
        go = find_go()
        folder.mkdir(parents=True, exist_ok=True)
        for module, packages, arguments in BUILDS:
            try:
                run(
                    go, "build", "-trimpath", "-ldflags", ldflags(go), *arguments, "-o", f"{folder}/", *packages,
                    cwd=module, env=environment(), stdout=sys.stderr,
                )
            except subprocess.CalledProcessError as error:
                raise ClusterError(f"go build in {module} ended with {error.returncode}; see above") from error
        pathlib.Path(folder / "complete").touch()
    return folder

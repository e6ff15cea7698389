#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the container image of the programs out of an installed tree, with no container engine.

    make install PREFIX=/usr/local DESTDIR=/tmp/tree
    deploy/image.py --tree /tmp/tree --name hami:0.1.0 --output hami.tar
    ctr -n k8s.io images import hami.tar        # or: docker load -i hami.tar, skopeo copy docker-archive:hami.tar ...

The image holds the tree, the shared libraries that its programs ask for, taken from this machine, the licences
of both, and nothing else: no shell, no package manager. The archive is in the form that `docker save` writes.
"""

import argparse
import hashlib
import io
import json
import pathlib
import platform
import re
import subprocess
import sys
import tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What the manifests start, by these names.
PROGRAMS = ("hami-scheduler", "hami-device-plugin", "hami-vgpu-monitor")


def is_dynamic(path):
    """Whether it is an ELF file that asks for an interpreter or libraries."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return False
    shown = subprocess.run(["ldd", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return shown.returncode == 0


def libraries_of(paths):
    """The shared libraries that these files ask for, by the paths at which the loader finds them."""
    found = set()
    for path in paths:
        if not is_dynamic(path):
            continue
        shown = subprocess.run(["ldd", str(path)], stdout=subprocess.PIPE, text=True, check=True).stdout
        if "not found" in shown:
            raise SystemExit(f"image: {path} lacks a library:\n{shown}")
        found |= set(re.findall(r"(/\S+) \(0x", shown))
    return sorted(found)


def entry(name, data=b"", mode=0o755, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name.lstrip("/"))
    info.size, info.mode, info.type, info.linkname = len(data), mode, kind, target
    return info, data


def layer(files, links, folders):
    """One layer, the same bytes for the same content: owned by root, no times."""
    entries = [entry(name, kind=tarfile.DIRTYPE, mode=mode) for name, mode in folders.items()]
    entries += [entry(name, pathlib.Path(path).read_bytes()) for name, path in files.items()]
    entries += [entry(name, kind=tarfile.SYMTYPE, target=target) for name, target in links.items()]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, data in sorted(entries, key=lambda e: e[0].name):
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write(output, name, files, links=(), folders=(), entrypoint=(), environment=()):
    """Writes an image of one layer.

    files: path in the image -> file here; links: path -> target; folders: path -> mode.
    """
    content = layer(dict(files), dict(links), dict(folders))
    digest = hashlib.sha256(content).hexdigest()
    config = json.dumps(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint) or None, "Env": list(environment) or ["PATH=/usr/local/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]},
        }
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [digest + ".tar"]}]).encode()
    with tarfile.open(output, "w") as tar:
        for path, data in ((config_name, config), (digest + ".tar", content), ("manifest.json", manifest)):
            tar.addfile(entry(path, data)[0], io.BytesIO(data))


def package_of(library):
    """The Debian package that brought a library. dpkg may know it by its name from before /lib led to /usr/lib."""
    real = str(pathlib.Path(library).resolve())
    for name in (real, real.removeprefix("/usr")):
        shown = subprocess.run(["dpkg-query", "--search", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        if shown.returncode == 0:
            return shown.stdout.split(":")[0]
    raise SystemExit(f"image: {library} is of no Debian package, so its licence is not known")


def licences_of(libraries):
    """path in the image -> file here: what each library's package says of its licence."""
    files = {}
    for package in sorted({package_of(library) for library in libraries}):
        name = f"/usr/share/doc/{package}/copyright"
        if not pathlib.Path(name).exists():
            raise SystemExit(f"image: there is no {name}: a dpkg that leaves out documentation? Install {package} again with it")
        files[name] = pathlib.Path(name).resolve()
    return files


def tree_files(tree):
    return {
        "/" + str(path.relative_to(tree)): path
        for path in sorted(tree.rglob("*"))
        if path.is_file() and not re.search(r"/share/man/", str(path.relative_to(tree)))
    }


def folder_of_programs(tree, files):
    """Where the programs are in the image: the prefix that they were built for says it."""
    folders = [name.rsplit("/", 1)[0] for name in files if name.endswith("/" + PROGRAMS[0])]
    missing = [program for program in PROGRAMS if not folders or f"{folders[0]}/{program}" not in files]
    if missing:
        raise SystemExit(f"image: {tree} lacks {', '.join(missing)}; `make install DESTDIR={tree}` fills it")
    return folders[0]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tree", type=pathlib.Path, required=True, help="what `make install DESTDIR=` filled")
    options.add_argument("--name", default="hami:0.1.0", help="name and tag of the image")
    options.add_argument("--output", type=pathlib.Path, default=pathlib.Path("hami.tar"))
    chosen = options.parse_args()

    files = tree_files(chosen.tree)
    folder = folder_of_programs(chosen.tree, files)
    # libvgpu.so and the simulated driver are for other containers: theirs are the libraries of those.
    programs = [path for name, path in files.items() if "/lib/hami/" not in name]
    libraries = libraries_of(programs)
    files |= {library: library for library in libraries} | licences_of(libraries)
    write(chosen.output, chosen.name, files, folders={"/tmp": 0o1777}, environment=[f"PATH={folder}:/bin"])
    print(f"{chosen.output}: {chosen.name}, {chosen.output.stat().st_size / (1 << 20):.1f} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()

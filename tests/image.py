# SPDX-License-Identifier: Apache-2.0
"""The image that deploy/image.py makes: small, with the licence of everything in it, and nothing else."""

import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

from harness import BUILD, SOURCE, check, finish

# Of what our programs ask for, and the beginning of the name of the Debian package of each.
LIBRARIES = {
    "libc": "libc6", "libcurl-gnutls": "libcurl3", "libgnutls": "libgnutls30", "libmicrohttpd": "libmicrohttpd12",
    "libnghttp2": "libnghttp2-14", "libprotobuf-c": "libprotobuf-c1", "libuv": "libuv1", "libyyjson": "libyyjson0",
}


def make(folder):
    subprocess.run(
        ["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder / "tree"],
        check=True, stdout=subprocess.DEVNULL,
    )
    archive = folder / "hami.tar"
    command = [sys.executable, SOURCE / "deploy/image.py", "--tree", folder / "tree", "--name", "hami:test", "--output", archive]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return archive


def names_in(archive):
    with tarfile.open(archive) as outer:
        (manifest,) = json.load(outer.extractfile("manifest.json"))
        (layer,) = manifest["Layers"]
        with tarfile.open(fileobj=io.BytesIO(outer.extractfile(layer).read())) as inner:
            return {"/" + entry.name: entry.size for entry in inner if entry.isfile()}


def path_in(archive):
    """The folders in which the image's programs are looked for."""
    with tarfile.open(archive) as outer:
        (manifest,) = json.load(outer.extractfile("manifest.json"))
        environment = dict(line.split("=", 1) for line in json.load(outer.extractfile(manifest["Config"]))["config"]["Env"])
    return environment["PATH"].split(":")


def refused(folder):
    """What is said of a folder that `make install` did not fill."""
    command = [sys.executable, SOURCE / "deploy/image.py", "--tree", folder, "--output", folder / "none.tar"]
    ended = subprocess.run(command, capture_output=True, text=True)
    return ended.stderr if ended.returncode == 1 and not (folder / "none.tar").exists() else ""


def main():
    with tempfile.TemporaryDirectory(prefix="hami-image-") as folder:
        archive = make(pathlib.Path(folder))
        files = names_in(archive)
        folders = path_in(archive)
        (pathlib.Path(folder) / "other").mkdir()
        (pathlib.Path(folder) / "other/file").write_text("x")
        said = refused(pathlib.Path(folder) / "other")
        size = archive.stat().st_size
    check(size <= 40 << 20, f"the image is {size / (1 << 20):.1f} MiB, at most 40")
    for program in ("hami-scheduler", "hami-device-plugin", "hami-vgpu-monitor", "hamictl"):
        check(any(f"{there}/{program}" in files for there in folders), f"{program} is in it, where it is looked for")
    check("lacks hami-scheduler, hami-device-plugin, hami-vgpu-monitor; `make install DESTDIR=" in said, f"a folder without the programs is refused: {said}")
    texts = [name for name in files if re.fullmatch(r".*/share/doc/[^/]+/(copyright|LICENSE)", name)]
    check(all(files[name] > 500 for name in texts), "no licence is empty")
    check(any(name.endswith("/share/doc/hami/LICENSE") for name in texts), "our own licence is in it")
    packages = {pathlib.PurePath(name).parent.name for name in texts}
    libraries = {pathlib.PurePath(name).name for name in files}
    for library, package in LIBRARIES.items():
        check(any(name.startswith(library + ".so") for name in libraries), f"{library} is in it")
        check(any(name.startswith(package) for name in packages), f"so is the licence of {package}")
    other = [n for n in files if not re.search(r"/bin/hami|/lib.*\.so|/share/doc/|/lib/hami/", n)]
    check(not other, f"nothing else is in it: {other}")


main()
finish()

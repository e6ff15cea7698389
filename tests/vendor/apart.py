# SPDX-License-Identifier: Apache-2.0
"""A vendor is a folder and a line: the control plane is built with each vendor's folder and line taken out in turn, and a
made-up vendor's put in, and shown to work with the vendors that are left. What is compiled does not depend on the list but
for the table: it is compiled once, no file outside a vendor's folder may include one from it, and each program is linked
without the folder's objects.

usage: apart.py SOURCE COMPILER...
"""

import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, COMPILER = pathlib.Path(sys.argv[1]), sys.argv[2:]
PURE = ["base", "model", "place", "vendor", "admit", "config", "cluster"]
PROGRAM = ["kube", "http", "metrics", "scheduler"]
LIBRARIES = ["yyjson", "yaml-0.1", "libcyaml", "libuv", "libcurl", "gnutls", "libnghttp2", "libmicrohttpd", "cmocka"]
LIST = re.compile(r"^vendors = \[\n(.*?)^\]", re.M | re.S)


def pkg_config(what):
    return subprocess.run(["pkg-config", what, *LIBRARIES], check=True, capture_output=True, text=True).stdout.split()


FLAGS = ["-std=gnu17", "-O0", "-w", "-D_GNU_SOURCE", '-DHAMI_VERSION="test"', "-Isrc", *pkg_config("--cflags")]


def read_list(tree):
    """The vendors as src/vendor/meson.build lists them."""
    return re.findall(r"'(\w+)'", LIST.search((tree / "src/vendor/meson.build").read_text()).group(1))


def run(tree, command):
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def compile_all(tree, paths):
    def one(path):
        target = path.with_suffix(".o")
        return run(tree, [*COMPILER, *FLAGS, "-c", str(path), "-o", str(target)])[1] + "", target

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(one, paths))
    wrong = [text for text, target in done if text]
    if wrong:
        sys.exit("".join(wrong))
    return [str(target) for text, target in done]


def sources(tree, folders):
    for folder in folders:
        for path in sorted((tree / "src" / folder).rglob("*.c")):
            if not re.search(r"(_test|_fuzz|/fuzz_main)\.c$", str(path)):
                yield path.relative_to(tree)


def link(tree, name, objects):
    code, text = run(tree, [*COMPILER, *objects, "-o", name, "-lpthread", *pkg_config("--libs")])
    if code:
        sys.exit(text)


def write_table(tree, vendors):
    rows = " ".join(f"VENDOR({name})" for name in vendors)
    text = (tree / "src/vendor/table.c.in").read_text().replace("@VENDORS@", rows)
    (tree / "src/vendor/table.c").write_text(text)


def check_includes(tree, vendors):
    wrong = [
        f"{path.relative_to(tree)} includes {name}"
        for part in [*PURE, *PROGRAM]
        for path in sorted((tree / "src" / part).rglob("*.[ch]"))
        if not re.search(r"(_test|_fuzz|_fixture)\.[ch]$", path.name)
        for name in re.findall(r'^#include "vendor/(\w+)/', path.read_text(), re.M)
        if name in vendors and path.parent.name != name
    ]
    if wrong:
        sys.exit("\n".join(wrong))


def check_without(tree, gone, vendors, objects):
    """The vendor goes; the made-up one is there."""
    left = [name for name in vendors if name != gone]
    write_table(tree, left)
    table = compile_all(tree, [pathlib.Path("src/vendor/table.c")])
    kept = {part: [o for o in paths if f"src/vendor/{gone}/" not in o] for part, paths in objects.items()}
    link(tree, "acme_test", kept["test"] + kept["pure"] + table)
    link(tree, "hami-scheduler", kept["program"] + kept["pure"] + table)

    code, text = run(tree, ["./acme_test"])
    if code:
        sys.exit(text)
    (tree / "config.yaml").write_text("acme: {}\nSECTION: {}\n".replace("SECTION", gone))
    code, text = run(
        tree, ["./hami-scheduler", "--device-config-file=config.yaml", "--scheduler-name=x", "--http_bind=127.0.0.1:0"]
    )
    if code == 0 or f"config.yaml:2:1: {gone}: no such section" not in text:
        sys.exit(f"the section of a vendor that is not there: {text}")
    print(f"without {gone}: {len(kept['pure']) + len(kept['program'])} files, {', '.join(left)} left")


def main():
    vendors = read_list(SOURCE)
    folders = sorted(path.name for path in (SOURCE / "src/vendor").iterdir() if path.is_dir())
    if not vendors or folders != sorted(vendors):
        sys.exit(f"folders {folders}, lines {vendors}")
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        shutil.copytree(SOURCE / "src", tree / "src")
        shutil.copytree(SOURCE / "tests/vendor/acme", tree / "src/vendor/acme")
        shutil.copy(SOURCE / "tests/vendor/acme_test.c", tree / "acme_test.c")
        check_includes(tree, vendors)
        objects = {part: compile_all(tree, list(sources(tree, paths))) for part, paths in (("pure", PURE), ("program", PROGRAM))}
        FLAGS.append("-DACME_ALONE")
        objects["test"] = compile_all(tree, [pathlib.Path("acme_test.c")])
        for gone in vendors:
            check_without(tree, gone, [*vendors, "acme"], objects)


main()

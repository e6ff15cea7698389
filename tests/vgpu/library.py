#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What libvgpu.so is as a file: small, loadable on old systems, and calling nothing a guest would mind."""

import re
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

LIBC_FAMILY = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
UNWELCOME = set("exit _exit _Exit quick_exit abort printf vprintf puts putchar __printf_chk __vprintf_chk signal sigaction "
                "bsd_signal sysv_signal sigprocmask umask setenv putenv unsetenv on_exit".split())
# Not among them: atexit, by which our thread hears that it must leave the driver alone.
OLDEST = (2, 17)
SIZE = 300 * KIB

if not shutil.which("objdump"):
    skip("no objdump")

symbols = run(["objdump", "-T", LIBVGPU], bare_environment(None)).stdout.splitlines()
dynamic = run(["objdump", "-p", LIBVGPU], bare_environment(None)).stdout
imports, exports, versions = set(), set(), set()
for line in symbols:
    fields = line.split()
    if len(fields) < 4 or not re.match(r"[0-9a-f]{16}", line):
        continue
    name = fields[-1]
    versions.update(re.findall(r"GLIBC_([0-9.]+)", line))
    (imports if "*UND*" in line else exports).add(name)

too_new = sorted(v for v in versions if tuple(int(n) for n in v.split(".")) > OLDEST)
new_imports = [line for line in symbols if any(f"GLIBC_{v})" in line or f"GLIBC_{v} " in line for v in too_new)]
check(not too_new, "no symbol needs a glibc later than 2.17", too_new, *new_imports)
needed = set(re.findall(r"NEEDED\s+(\S+)", dynamic))
check(needed <= LIBC_FAMILY, "it needs libc and nothing else", needed)
check(not imports & UNWELCOME, "it can't exit, print, handle signals or change the umask", imports & UNWELCOME)

stripped = scratch / "libvgpu.so"
run(["strip", "-o", stripped, LIBVGPU], bare_environment(None))
size = stripped.stat().st_size
check(size <= SIZE, f"it is {size} bytes, stripped", f"at most {SIZE}")

scripts = [p for p in [*BUILD.glob("src/vgpu/*.map"), *BUILD.glob("src/vgpu/*.ver"), *SOURCE.glob("src/vgpu/*.map")]]
if check(len(scripts) == 1, "there is one version script", scripts):
    text = re.sub(r"/\*.*?\*/|#.*", "", scripts[0].read_text(), flags=re.S)
    listed = set(re.search(r"global:(.*?)local:", text, re.S).group(1).replace(";", " ").split())
    exports_named = {e for e in exports if not e.startswith("GLIBC")}
    check_equal(exports_named - listed, set(), "it exports no name beyond the version script's")
    check_equal(listed - exports_named, set(), "and every name of it")
finish()

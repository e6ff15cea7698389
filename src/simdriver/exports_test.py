#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The simulated libraries export what the lists name, and cuGetProcAddress finds it by itself.

usage: exports_test.py libcuda.so.1 libnvidia-ml.so.1 entries.txt nvml.txt nvml.h
"""

import ctypes
import re
import subprocess
import sys


def exports(library: str) -> set:
    command = ["nm", "--dynamic", "--defined-only", library]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # An export with a symbol version reads NAME@@VERSION, and differs from the list's.
    return {line.split()[2] for line in lines.splitlines()}


def rows(path: str) -> list:
    with open(path, encoding="utf-8") as lines:
        return [line.split() for line in lines if line.strip() and not line.startswith("#")]


def same(what: str, have: set, want: set) -> None:
    if have != want:
        sys.exit(f"{what}: missing {sorted(want - have)}, not in the list {sorted(have - want)}")


def resolve(cuda: ctypes.CDLL, base: str, version: int, flags: int) -> tuple:
    address, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = cuda.cuGetProcAddress_v2(
        base.encode(), ctypes.byref(address), version, ctypes.c_uint64(flags), ctypes.byref(status)
    )
    return result, address.value, status.value


def check_resolution(cuda: ctypes.CDLL, entries: list) -> None:
    for name, _kind, base, version, stream in entries:
        if version == "-":
            continue
        want = ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value
        flags = 1 if stream == "-" else 2
        if resolve(cuda, base, int(version), flags) != (0, want, 0):
            sys.exit(f"cuGetProcAddress does not find {name} by {base} at {version}")
    if resolve(cuda, "cuNoSuchThing", 13000, 0) != (0, None, 1):
        sys.exit("an unknown name is found")
    if resolve(cuda, "cuMemAlloc", 1000, 0) != (0, None, 2):
        sys.exit("a version before the first is found")
    if resolve(cuda, "", 13000, 0)[0] != 1:
        sys.exit("an empty name is no error")


def main() -> int:
    cuda_path, nvml_path, entries_path, hooks_path, header_path = sys.argv[1:]
    entries = rows(entries_path)
    same("libcuda", exports(cuda_path), {row[0] for row in entries})

    with open(header_path, encoding="utf-8") as header:
        declared = set(re.findall(r"\b(nvml[A-Z]\w+)\(", header.read()))
    have = exports(nvml_path)
    same("libnvidia-ml", have & declared, declared)
    same("libnvidia-ml", have & {row[0] for row in rows(hooks_path)}, {row[0] for row in rows(hooks_path)})
    if any(not name.startswith("nvml") or name.startswith("nvml_") for name in have):
        sys.exit("libnvidia-ml exports what is its own")

    check_resolution(ctypes.CDLL(cuda_path), entries)
    return 0


if __name__ == "__main__":
    sys.exit(main())

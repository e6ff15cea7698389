#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what the build needs out of the lists of entry points.

usage: generate.py KIND entries.txt nvml.txt OUTPUT

KIND  rows        the table and its texts, for entries.c
      numbers     an enum of the table's rows, by their names
      stubs       a weak not-supported function for every export, for the simulated driver
      sim-map     the simulated driver's version script
      sim-table   its functions, in the order of the table's rows
      vgpu-map    libvgpu's version script
      hooks       libvgpu's rows: every intercepted name
      nvml-fixed  NVML's functions that have one answer whatever they are called with
"""

import sys

ASIDE = ("pass",)
# Of NVML's: no table of the library has a row for them.
FIXED = ("change", "others")
NAME_MAX = 64  # entries.h
# Also intercepted, so that no lookup leaves the process' one driver.
LINKER = ("dlsym", "dlvsym", "dlmopen")


def read(path: str) -> list:
    with open(path, encoding="utf-8") as lines:
        return [line.split() for line in lines if line.strip() and not line.startswith("#")]


def rows(entries: list, _nvml: list) -> str:
    """
    Numbers in place of pointers: the loader has nothing to relocate, and a row is six bytes. A name is its base
    and an ending ("_v2_ptsz"), of which there are few.
    """
    at, endings, size = {}, [], 0
    for name, _, base, *_ in entries:
        if not name.startswith(base):
            sys.exit(f"{name} does not begin as {base} does")
        if name[len(base) :] not in endings:
            endings.append(name[len(base) :])
        if base not in at:
            at[base] = size
            size += len(base) + 1
    if size > 1 << 16:
        sys.exit("the names are more than 64 KiB")
    longest = max(len(ending) for ending in endings) + 1
    if max(len(base) for base in at) + longest > NAME_MAX:
        sys.exit(f"a name may be longer than {NAME_MAX}")
    out = ["static const char texts[] ="]
    out += [f'    "{text}\\0"' for text in at]
    out += [";", "", f"static const char endings[][{longest}] = {{"]
    out += [f'    "{ending}",' for ending in endings]
    out += ["};", "", "const struct driver_entry driver_entries[] = {"]
    for name, kind, base, version, stream in entries:
        flavour = "DRIVER_STREAM_LEGACY" if stream == "-" else "DRIVER_STREAM_PER_THREAD"
        number = 0 if version == "-" else version
        ending = endings.index(name[len(base) :])
        out.append(f"    {{{at[base]}, {number}, DRIVER_{kind.upper()}, {flavour}, {ending}}}, /* {name} */")
    return "\n".join(out + ["};"]) + "\n"


def numbers(entries: list, _nvml: list) -> str:
    return "enum {\n" + "".join(f"    ENTRY_{entry[0]},\n" for entry in entries) + "};\n"


def stubs(entries: list, _nvml: list) -> str:
    out = ["/* What the simulated driver does not simulate. */", "#define NOT_SUPPORTED 801", ""]
    for name, *_ in entries:
        out.append(
            f'__attribute__((weak, visibility("default"))) int {name}(void);\n'
            f"int {name}(void)\n{{\n    return NOT_SUPPORTED;\n}}"
        )
    return "\n".join(out) + "\n"


def version_script(names: list) -> str:
    return "{\nglobal:\n" + "".join(f"    {name};\n" for name in names) + "local:\n    *;\n};\n"


def sim_map(entries: list, _nvml: list) -> str:
    return version_script([entry[0] for entry in entries])


def sim_table(entries: list, _nvml: list) -> str:
    names = [entry[0] for entry in entries]
    declared = "".join(f"void {name}(void);\n" for name in names)
    return (
        '#define GUEST_FUNCTIONS_ONLY\n#include "simdriver/guest.h"\n\n'
        + declared
        + "\nvoid (*const guest_functions[])(void) = {\n"
        + "".join(f"    {name},\n" for name in names)
        + "};\n"
    )


def intercepted(entries: list) -> list:
    return [entry for entry in entries if entry[1] not in ASIDE]


def vgpu_map(entries: list, nvml: list) -> str:
    names = [entry[0] for entry in intercepted(entries)] + [entry[0] for entry in nvml]
    return version_script(names + list(LINKER))


def hooks(entries: list, nvml: list) -> str:
    out = [f"HOOK_DRIVER({name})" for name, *_ in intercepted(entries)]
    out += [f"HOOK_NVML({name})" for name, kind in nvml if kind not in FIXED]
    return "\n".join(out) + "\n"


def nvml_fixed(_entries: list, nvml: list) -> str:
    return "".join(f"FIXED_{kind.upper()}({name})\n" for name, kind in nvml if kind in FIXED)


KINDS = {
    "rows": rows,
    "numbers": numbers,
    "stubs": stubs,
    "sim-map": sim_map,
    "sim-table": sim_table,
    "vgpu-map": vgpu_map,
    "hooks": hooks,
    "nvml-fixed": nvml_fixed,
}


def main() -> int:
    kind, entries_path, nvml_path, output = sys.argv[1:]
    entries = read(entries_path)
    nvml = read(nvml_path)
    names = [entry[0] for entry in entries + nvml]
    if len(set(names)) != len(names):
        sys.exit(f"{entries_path}, {nvml_path}: an entry point is listed twice")
    entries.sort(key=lambda entry: entry[0])
    with open(output, "w", encoding="utf-8") as out:
        out.write("/* Made by generate.py out of the lists of entry points. */\n" + KINDS[kind](entries, nvml))
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Holds what each folder of src/ includes to the table in ARCHITECTURE.md.

usage: layers.py SOURCE
"""

import pathlib
import re
import sys

ROW = re.compile(r"^\| `src/(\w+)` \| .* \| ([^|]+) \|$", re.M)
INCLUDE = re.compile(r'^#include "(\w+)/', re.M)


def read_table(text):
    """folder -> those it may use directly, in the table's order. What follows a semicolon are libraries."""
    table = {}
    for folder, uses in ROW.findall(text):
        names = [name.strip() for name in uses.split(";")[0].split(",")]
        first, _, last = names[0].partition(" to ")
        if last:
            order = list(table)
            names = order[order.index(first) : order.index(last) + 1]
        table[folder] = [name for name in names if name in table]
    return table


def reach(table, folder):
    found = {folder}
    for name in table[folder]:
        found |= reach(table, name)
    return found


def main():
    source = pathlib.Path(sys.argv[1])
    table = read_table((source / "ARCHITECTURE.md").read_text())
    folders = sorted(path.name for path in (source / "src").iterdir() if path.is_dir())
    wrong = [f"src/{name} is not in ARCHITECTURE.md's table" for name in folders if name not in table]
    for folder in table:
        allowed = reach(table, folder)
        for path in sorted((source / "src" / folder).rglob("*.[ch]")):
            for name in INCLUDE.findall(path.read_text()):
                if name in folders and name not in allowed:
                    wrong.append(f"{path.relative_to(source)} includes {name}/, which src/{folder} may not use")
    # A vendor's side of a node is named where programs are put together, and in tests.
    for path in sorted((source / "src/plugin").glob("*.[ch]")):
        if path.name != "main.c" and not path.stem.endswith("_test") and re.search(r'^#include "(node|vendor)/\w+/', path.read_text(), re.M):
            wrong.append(f"{path.relative_to(source)} includes a vendor's own header; the table is node/node_vendor.h")
    print("\n".join(wrong) or f"{len(table)} folders include what they may")
    return bool(wrong) or len(table) < 10


sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/metrics.md names every metric that a program's source does, former names included, and no other.

deploy/monitoring compares types and labels with the pages that programs serve.
"""

import pathlib
import re
import sys

ROW = re.compile(r"^\| `(\w+)` \| (gauge|counter|histogram) \|(.*?)\| .* \| (yes|ours|in its documents)(.*?) \|$", re.M)
OURS = re.compile(r'"(hami_[a-z0-9_]+)"')
# A former name begins a row of a table, or is said to be a name, or begins a family.
FORMER = re.compile(r'(?:\{|\bname(?:\[\])? = |metrics_family\(\s*[\w>-]+, )"(\w*[A-Z]\w*)"')
FOLDERS = {"hami-scheduler": "scheduler", "hami-vgpu-monitor": "monitor"}


def of_page(root):
    """{program: {name: (type, labels, former name or None)}}"""
    found = {}
    for part in (root / "docs/metrics.md").read_text().split("\n## ")[1:]:
        rows = found[part.split("\n", 1)[0]] = {}
        for name, kind, labels, _, rest in ROW.findall(part):
            assert name not in rows, f"{name} has two rows"
            former = re.search(r"`(\w+)`", rest)
            rows[name] = (kind, set(re.findall(r"`(\w+)`", labels)), former and former[1])
        assert len(rows) == len(re.findall(r"^\| `", part, re.M)), "a row that can't be read"
    return found


def of_source(folder):
    """Names of the metrics in a program's folder; the parts of a histogram count as one."""
    text = "".join(path.read_text() for path in folder.glob("*.c") if "_test" not in path.stem and "metrics/metrics.h" in path.read_text())
    names = set(OURS.findall(text))
    return {name for name in names if name.rpartition("_")[0] not in names or name.rpartition("_")[2] not in ("bucket", "sum", "count")} | set(FORMER.findall(text))


def programs_with_metrics(source):
    users = {path.parent for path in source.glob("*/*.[ch]") if '"metrics/metrics.h"' in path.read_text()}
    return {folder.name for folder in users} - {"metrics"}


def main():
    root = pathlib.Path(sys.argv[1])
    page, wrong = of_page(root), []
    if set(page) != set(FOLDERS) or programs_with_metrics(root / "src") != set(FOLDERS.values()):
        wrong.append(f"the page's programs are {set(page)}, those of the source {programs_with_metrics(root / 'src')}")
    for program, folder in FOLDERS.items():
        source, rows = of_source(root / "src" / folder), page.get(program, {})
        told = set(rows) | {former for _, _, former in rows.values() if former}
        wrong += [f"{name} of {program} is missing in docs/metrics.md" for name in sorted(source - told)]
        wrong += [f"docs/metrics.md has {name}, which {program} does not export" for name in sorted(told - source)]
        print(f"{program}: {len(source)} names")
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

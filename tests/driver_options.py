#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The options of the simulated driver are the same in its source, in hamictl-sim(1) and in docs/simulator.md: keys and words.

The first word, or the value before the bounds of an amount, is the default: the two documents say the same one.
"""

import pathlib
import re
import sys

SOURCE = "src/simdriver/options.c"
MANUAL = "docs/man/hamictl-sim.1"
PAGE = "docs/simulator.md"
# In the source an option without words is an amount or a number.
OPTION = re.compile(r'^\s+\.key = "([\w-]+)",\n\s+\.kind = OPTION_(\w+),(.*?)^    \},', re.M | re.S)
LINE = re.compile(r"^\.BR ([\w-]+)=([\w|]+)( ,)?$", re.M)
ROW = re.compile(r"^\| `([\w-]+)` \| (.*?) \| .* \|$", re.M)


def part(text, begin, end):
    return text.split(begin, 1)[1].split(end, 1)[0]


def of_source(text):
    """{key: list of words, or None}"""
    found = {}
    for key, kind, rest in OPTION.findall(text):
        words = re.search(r"\.words = \{(.*?)\}", rest, re.S)
        assert (kind == "WORD") == bool(words), f"{key}: words are of the kind OPTION_WORD"
        found[key] = re.findall(r'"(\w+)"', words[1]) if words else None
    assert len(found) == text.count(".key = "), "an option that can't be read"
    return found


def of_manual(text):
    """{key: (list of words or None, default)}"""
    lines = part(text, ".SH OPTIONS OF THE DRIVER\n", ".SH ").split("\n.PP\n", 1)[1].replace("\\-", "-")
    found = {}
    for key, value, bounds in LINE.findall(lines):
        assert key not in found, f"{key} is there twice"
        words = value.split("|")
        found[key] = (None if bounds else words, words[0])
    assert len(found) == lines.count(".BR "), "an option that can't be read"
    return found


def of_page(text):
    """The same."""
    table = part(text, "\n## The driver's options\n", "\n## ")
    found = {}
    for key, values in ROW.findall(table):
        assert key not in found, f"{key} has two rows"
        words = re.findall(r"`(\w+)`", values)
        found[key] = (words if values == ", ".join(f"`{word}`" for word in words) else None, words[0])
    assert len(found) == len(re.findall(r"^\| `", table, re.M)), "a row that can't be read"
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    source = of_source((root / SOURCE).read_text())
    documents = {MANUAL: of_manual((root / MANUAL).read_text()), PAGE: of_page((root / PAGE).read_text())}
    wrong = []
    for name, told in documents.items():
        wrong += [f"{name} lacks {key}" for key in source if key not in told]
        wrong += [f"{name} has {key}, which the driver has not" for key in told if key not in source]
        for key in source.keys() & told.keys():
            if told[key][0] != source[key]:
                wrong.append(f"{name}: {key} has the words {told[key][0]}, in the source {source[key]}")
    manual, page = documents.values()
    for key in manual.keys() & page.keys():
        if manual[key][1] != page[key][1]:
            wrong.append(f"the default of {key} is {manual[key][1]} in {MANUAL}, {page[key][1]} in {PAGE}")
    print(f"{len(source)} options")
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

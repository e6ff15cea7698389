#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what meson ran, from its testlog.json, and ends with one plain line of totals.

A skipped test says why on a line "skipped: ..." of its output; the reason is repeated here, and so is what a failed
one said, since of a long run often only the end is kept.
"""

import json
import sys

# The input that a fuzz target died of: with it the target can be run elsewhere, so it is not cut.
FUZZ_INPUT = "Base64: "


def main() -> int:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as log:
            for line in log:
                report(json.loads(line), counts)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


def report(test: dict, counts: dict) -> None:
    result = {"OK": "passed", "SKIP": "skipped"}.get(test["result"], "failed")
    counts[result] += 1
    if result == "skipped":
        reasons = [l for l in test.get("stdout", "").splitlines() if l.startswith("skipped:")]
        print(f"{test['name']}: {reasons[-1] if reasons else 'skipped'}")
    elif result == "failed":
        print(f"FAILED: {test['name']} ({test['result']})")
        for line in said(test):
            print(f"    {line if line.startswith(FUZZ_INPUT) else line[:200]}")


def said(test: dict) -> list:
    """The sentences that did not hold, with their numbers; of a test that has none, its last words."""
    text = test.get("stdout", "") + test.get("stderr", "")
    if test.get("log"):
        with open(test["log"], encoding="utf-8", errors="replace") as log:
            text = log.read()
    lines = [l for l in text.splitlines() if l.strip()]
    wrong = [n for n, l in enumerate(lines) if "FAIL" in l]
    near = sorted({n + k for n in wrong for k in range(3) if n + k < len(lines)})
    return [lines[n] for n in near][:12] or lines[-6:]


if __name__ == "__main__":
    sys.exit(main())

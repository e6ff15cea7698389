# SPDX-License-Identifier: Apache-2.0
"""Metrics by promtool's rules, but for the names that HAMi's dashboards need."""

import subprocess

# HAMi's names that the linter dislikes, and are kept all the same (docs/compatibility.md).
KEPT = {"hami_gpu_shared_count"}


def lint(page, kept=KEPT):
    """promtool's exit status (3: only style, 1: not the format at all) and what it says of names not kept."""
    ended = subprocess.run(
        ["promtool", "check", "metrics"], input=page, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    complaints = [line for line in ended.stdout.decode().splitlines() if line.strip()]
    return ended.returncode, [c for c in complaints if c.split(" ")[0] not in kept]

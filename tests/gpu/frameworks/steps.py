# SPDX-License-Identifier: Apache-2.0
"""The steps of a framework's script: each is tried, said, and does not keep the next one from being tried."""

import os
import sys
import time
import traceback

LIMIT = int(os.environ.get("GPU_TEST_LIMIT", "0"))  # bytes; 0: bare
failed = 0


def step(function):
    """Runs at once. What it returns is said beside its name."""
    global failed
    begun = time.monotonic()
    try:
        said = function()
        print(f"ok: {function.__name__}: {'' if said is None else said} ({time.monotonic() - begun:.1f} s)", flush=True)
    except ImportError as error:
        print(f"skipped: {function.__name__}: {error}", flush=True)
    except BaseException as error:
        failed += 1
        print(f"FAIL: {function.__name__}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        traceback.print_exc(limit=-4)
    return function


def finish():
    print(f"{failed} failed")
    sys.stdout.flush()
    sys.exit(1 if failed else 0)


def close(value, wanted, part):
    assert abs(value - wanted) <= part * wanted, f"{value} where about {wanted} was wanted"


def mib(size):
    return f"{size / (1 << 20):.0f} MiB"

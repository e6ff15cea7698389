# SPDX-License-Identifier: Apache-2.0
"""Guests that say what they do in lines of JSON, and go on at the end of a line of ours."""

import json


def heard(running):
    line = running.stdout.readline()
    return json.loads(line) if line.startswith("{") else {"silent": True, "status": running.poll()}


def go_on(running):
    running.stdin.write("\n")
    running.stdin.flush()


def end(running):
    """Lets it go on till its end."""
    try:
        running.communicate("\n" * 8, timeout=30)
    except (BrokenPipeError, ValueError):
        running.wait(30)
    return running.returncode

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes reach_names.inc: one ENTRY(export, class, base, version, stream) for each driver export.

usage: reach_names.py entries.txt OUTPUT
"""

import sys

with open(sys.argv[1], encoding="utf-8") as entries, open(sys.argv[2], "w", encoding="utf-8") as out:
    for line in entries:
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        export, kind, base, version, stream = fields
        version = "0" if version == "-" else version
        out.write(f'ENTRY({export}, "{kind}", "{base}", {version}, "{stream}")\n')

# SPDX-License-Identifier: Apache-2.0
"""Pods of a mix as it is found in production, made: shares, whole GPUs, several GPUs, models, and pods without a GPU."""

import random


def make_pods(seed):
    """Rows with counts: a fifth without a GPU, most of the others with one, some with a few."""
    random.seed(seed)
    rows = ["count,gpus,gpu_milli,cpu_milli,memory_mib,models"]
    for count in (9, 6, 4, 2):
        rows.append(f"{count},0,0,{random.choice([8000, 12500, 16000, 32000])},{random.choice([30517, 51200, 57344])},")
    for milli, count in ((810, 14), (470, 10), (320, 4), (650, 3), (230, 3), (160, 2)):
        rows.append(f"{count},1,{milli},{random.choice([3152, 4000, 8000, 11908])},{random.choice([5600, 22888, 47104])},")
    for cpu, count in ((3152, 8), (9810, 6), (11300, 16), (12000, 8), (18708, 4)):
        rows.append(f"{count},1,1000,{cpu},{cpu * 4},{random.choice(['', '', '', 'A|B'])}")
    for gpus, count in ((2, 1), (4, 1), (8, 1)):
        rows.append(f"{count},{gpus},1000,{gpus * 11900},{gpus * 46000},")
    return "\n".join(rows) + "\n"

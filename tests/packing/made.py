#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On a made cluster and pods of a mix as it is found in production, scarcity packs better than binpack and spread:
shares, whole GPUs, several GPUs, models, and pods without a GPU; where pods come and go it refuses no more than
binpack."""

import os
import pathlib
import random
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["HAMI_BUILD"])
NODES = """\
count,gpus,model,cpu_milli,memory_mib
16,8,A,96000,393216
12,2,B,104000,524288
4,2,C,16000,122880
2,4,D,32000,131072
"""


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


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.nodes, self.pods = pathlib.Path(folder.name) / "nodes.csv", pathlib.Path(folder.name) / "pods.csv"
        self.nodes.write_text(NODES)
        self.pods.write_text(make_pods(5))

    def mean(self, column, policy, setting, *load):
        found = []
        for seed in range(1, 7):
            words = [BUILD / "bench/packing", self.nodes, self.pods, policy, setting, str(seed), *load]
            found.append(float(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[column]))
        return sum(found) / len(found)

    def test_more_is_allocated_than_with_binpack_and_spread(self):
        for setting in "gpu", "all":
            allocated = {policy: self.mean(101, policy, setting) for policy in ("binpack", "spread", "scarcity")}
            print(setting, allocated)
            self.assertGreater(allocated["scarcity"], allocated["binpack"] + 0.5)
            self.assertGreater(allocated["scarcity"], allocated["spread"] + 0.5)

    def test_no_more_is_refused_than_with_binpack_where_pods_leave(self):
        for setting in "gpu", "all":
            refused = {policy: self.mean(1, policy, setting, "90") for policy in ("binpack", "scarcity")}
            print(setting, refused)
            self.assertLessEqual(refused["scarcity"], refused["binpack"])


if __name__ == "__main__":
    unittest.main()

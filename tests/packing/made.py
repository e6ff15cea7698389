#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On a made cluster and pods of a mix as it is found in production, scarcity packs better than binpack and spread:
shares, whole GPUs, several GPUs, models, and pods without a GPU; where pods come and go it refuses no more than
binpack."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import mix

BUILD = pathlib.Path(os.environ["HAMI_BUILD"])
NODES = """\
count,gpus,model,cpu_milli,memory_mib
16,8,A,96000,393216
12,2,B,104000,524288
4,2,C,16000,122880
2,4,D,32000,131072
"""


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.nodes, self.pods = pathlib.Path(folder.name) / "nodes.csv", pathlib.Path(folder.name) / "pods.csv"
        self.nodes.write_text(NODES)
        self.pods.write_text(mix.make_pods(5))

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

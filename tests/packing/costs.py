#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The formulas of scarcity, written down a second time in a few lines, give the costs that the product gives, on
random nodes."""

import math
import os
import pathlib
import random
import subprocess
import unittest

BUILD = pathlib.Path(os.environ["HAMI_BUILD"])
WORLDS, NODES, PODS, TYPES = 250, 40, 2, 3


# A class or pod: (devices, cpu, memory, [share of each type]). A node: (cpu, memory, [(type, left)]).


def fill_and_usable(of, node):
    count, cpu, memory, shares = of
    allowed = [(left, shares[kind]) for kind, left in node[2] if shares[kind]]
    copies = sum(left // share for left, share in allowed) // count
    bound = min(node[0] // cpu if cpu else math.inf, node[1] // memory if memory else math.inf)
    enough = [left for left, share in allowed if left >= share]
    size = count * sum(share for _, share in allowed) / len(allowed) if allowed else 0
    return min(copies, bound) * size, sum(enough) if len(enough) >= count and bound >= 1 else 0


def prices_of(classes, arrivals, nodes, capacity):
    def base(of, arrived):
        allowed = [share for share in of[3] if share]
        if not allowed:
            return 0
        size = of[0] * sum(allowed) / len(allowed) / 1000
        return arrived * size**-0.5 * (4 if of[0] > 1 else 1)

    bases = [base(of, arrived) for of, arrived in zip(classes, arrivals)]
    left = [sum(fill_and_usable(of, node)[0] for node in nodes) / capacity for of in classes]
    prices = [b / (k + 0.01) ** 3 for b, k in zip(bases, left)]
    return [price * sum(bases) / sum(prices) for price in prices] if sum(prices) else prices


def value_of(classes, prices, node):
    return sum(price * sum(fill_and_usable(of, node)) for of, price in zip(classes, prices))


def cost_of(classes, prices, node, pod):
    count, cpu, memory, shares = pod
    fitting = [i for i, (kind, left) in enumerate(node[2]) if 0 < shares[kind] <= left]
    # The least left first; of devices that are alike one after the other.
    fitting.sort(key=lambda i: (node[2][i][1], node[2].index(node[2][i])))
    if len(fitting) < count:
        return math.inf
    before, least = value_of(classes, prices, node), math.inf
    for chosen in [[i] for i in fitting] if count == 1 else [fitting[:count]]:
        devices = [(kind, left - (shares[kind] if i in chosen else 0)) for i, (kind, left) in enumerate(node[2])]
        after = (max(0, node[0] - cpu), max(0, node[1] - memory), devices)
        least = min(least, before - value_of(classes, prices, after))
    return least


def up(amount, step):
    return -(-amount // step) * step


def class_of(pod):
    return pod[0], up(pod[1], 4000), up(pod[2], 16384), [up(share, 50) for share in pod[3]]


def draw_pod(devices=(1, 1, 1, 1, 2, 4, 8)):
    whole = random.random() < 0.4
    shares = [0 if random.random() < 0.2 else 1000 if whole else random.randint(1, 1000) for _ in range(TYPES)]
    return random.choice(devices), random.choice([0, random.randrange(40000)]), random.choice([0, random.randrange(200000)]), shares


def draw_node():
    kinds = [random.randrange(TYPES)] if random.random() < 0.8 else range(TYPES)
    devices = [(random.choice(kinds), random.choice([0, 1000, 1000, random.randint(0, 1000)])) for _ in range(random.choice([1, 2, 4, 8]))]
    return random.randrange(130000), random.randrange(800000), devices


def numbers(pod):
    return f"{pod[0]} {pod[1]} {pod[2]} {' '.join(map(str, pod[3]))}"


class Costs(unittest.TestCase):
    def near(self, got, wanted, scale, what):
        if math.isinf(wanted):
            self.assertEqual(got, wanted, what)
        else:
            self.assertLess(abs(got - wanted), 1e-5 * scale + 1e-6, f"{what}: {got}, not {wanted}")

    def test_prices_and_costs_are_those_of_the_formulas(self):
        random.seed(13)
        worlds, text = [], []
        for _ in range(WORLDS):
            pods = [draw_pod((0, 1, 1, 2, 4)) for _ in range(PODS)]
            drawn, classes = [draw_pod() for _ in range(random.randrange(1, 40))], []
            drawn = [pod for pod in drawn if class_of(pod) not in classes and not classes.append(class_of(pod))]
            arrivals = [random.randint(1, 1000) for _ in drawn]
            nodes = [draw_node() for _ in range(NODES)]
            worlds.append((classes, arrivals, nodes, pods))
            text.append(f"{len(drawn)} {NODES} {PODS} {1000 * sum(len(node[2]) for node in nodes)}")
            text += [f"{arrived} {numbers(pod)}" for arrived, pod in zip(arrivals, drawn)]
            for node in nodes:
                # Devices that are alike make one entry.
                text.append(f"{node[0]} {node[1]} {len(set(node[2]))}")
                text += [f"{kind} {left} {node[2].count((kind, left))}" for kind, left in dict.fromkeys(node[2])]
            text += map(numbers, pods)
        done = subprocess.run(BUILD / "tests/packing/costs", input="\n".join(text), capture_output=True, text=True, check=True)
        lines = iter(done.stdout.splitlines())
        for classes, arrivals, nodes, pods in worlds:
            prices = prices_of(classes, arrivals, nodes, 1000 * sum(len(node[2]) for node in nodes))
            for got, wanted in zip(map(float, next(lines).split()), prices, strict=True):
                self.near(got, wanted, wanted, "a price")
            for node in nodes:
                scale = value_of(classes, prices, node)
                for got, pod in zip(map(float, next(lines).split()), pods, strict=True):
                    self.near(got, cost_of(classes, prices, node, pod), scale, f"the cost of {pod} on {node}")


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hami-device-plugin measures what a context takes, once for each kind of card and driver, and containers' limits say it."""

import sys

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from plugin import *
from mig import Mig

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/vgpu")
from conversation import end, go_on, heard
from hidden import CONTEXT, HIDDEN, begin, in_container

SLOW = {"context-time": "900ms"}


class Measured(Node):
    def __init__(self, prepare=None, **others):
        """`prepare` is called before the plugin starts."""
        self.prepare = prepare
        super().__init__(**others)

    def start(self):
        if self.prepare:
            self.prepare(self)
        self.prepare = None
        return super().start()

    def kept(self):
        """The driver and the sizes by model, as the disk has them."""
        path = self.folder / "vgpu/contexts"
        if not path.exists():
            return None, {}
        driver, *lines = path.read_text().splitlines()
        return driver, {kind: int(size) for size, _, kind in (line.partition(" ") for line in lines) if size.isdigit()}

    def is_measured(self, seconds=30):
        return wait_until(lambda: self.kept()[1], seconds)

    def children(self):
        found = []
        for path in pathlib.Path(f"/proc/{self.plugin.pid}/task").glob("*/children"):
            try:
                found += [int(pid) for pid in path.read_text().split()]
            except OSError:
                pass
        return [pid for pid in found if not is_gone(pid)]

    def child(self):
        """The measuring process' pid."""
        found = []
        check(wait_until(lambda: found.extend(self.children()) or found, 15), "a process of its own measures", self.said())
        return found[0]

    def sizes_of(self, name, number, **more):
        """In the limits of a container that starts now."""
        pod = self.show(self.pod(name, "main", gives=[[(u, 1000, 10) for u in self.uuids]]))
        status, why, spec = self.run_container(pod, "main", [f"{u}::{number}" for u in self.uuids])
        check_equal(status, "OK", "a container starts", why)
        limits = self.limits(spec)
        return [limits.get(f"CUDA_DEVICE_CONTEXT_SIZE_{i}") for i in range(len(self.uuids))]


def is_gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def measures():
    node = Measured()
    node.kubelet.connect()
    check(node.is_measured(), "what a context takes is measured", node.said())
    driver, sizes = node.kept()
    check_equal(list(sizes.values()), [CONTEXT], "once for all cards of a model, by the simulator's own size")
    check(driver.startswith("driver ") and len(driver) > 8, "and kept with the driver's version", driver)
    check_equal(node.sizes_of("one", 0), [str(CONTEXT)] * 2, "a container that starts then has it in its limits")
    check(wait_until(lambda: node.machine.used() == 0), "and nothing of it stays on the card")

    node.restart()
    node.kubelet.lists.get(timeout=30)
    check_equal(node.sizes_of("two", 1), [str(CONTEXT)] * 2, "a plugin that was killed knows it at once")
    time.sleep(7)
    check_equal(node.said().count("a context takes 300 MiB"), 1, "and does not measure again")

    path = node.folder / "vgpu/contexts"
    model = next(iter(sizes))
    path.write_text(f"driver 1.2.3\n{7 * MIB} {model}\n")
    node.restart()
    check(wait_until(lambda: node.kept() == (driver, {model: CONTEXT}), 30), "by another driver it is measured anew", node.kept())
    path.write_text(f"{driver}\n{1 << 60} {model}\nnothing\n")
    node.restart()
    check(wait_until(lambda: node.kept() == (driver, {model: CONTEXT}), 30), "as where the disk says nothing that can be", node.kept())
    node.end()


def is_told():
    """What the configuration says rules, and who turns it off measures nothing."""
    (scratch / "told.yaml").write_text("nvidia:\n  resourceCountName: nvidia.com/gpu\n  contextSizes: [{models: [NVIDIA], memory: 420}]\n")
    for more, wanted in ((["--device-config-file", scratch / "told.yaml"], str(420 * MIB)), (["--measure-contexts=false"], None)):
        node = Measured(gpus=1, more=more)
        node.kubelet.connect()
        time.sleep(7)
        check_equal((node.sizes_of("one", 0), node.kept()[1]), ([wanted], {}), f"with {more[0]} nothing is measured")
        node.end()


def charges():
    """A container beside a busy neighbour, whose process NVML does not name."""
    container_of = in_container(own_proc=False)
    if not container_of:
        return
    for measured in (True, False):
        node = Measured(gpus=1, memory=40 * GIB, driver={"context-time": "800ms", "pids": "host"}, more=[f"--measure-contexts={str(measured).lower()}"])
        node.kubelet.connect()
        check(node.is_measured() if measured else True, "the size is measured on the quiet card", node.said())
        pod = node.show(node.pod("one", "main", gives=[[(node.uuids[0], 2048, 0)]]))
        status, why, name = node.run_container(pod, "main", [f"{node.uuids[0]}::0"])
        check_equal(status, "OK", "a container starts", why)
        limits = {k: v for k, v in node.limits(name).items() if not k.startswith("HAMI_CARD") and k != "CUDA_DEVICE_MEMORY_SHARED_CACHE"}
        environment = bare_environment(node.machine, LD_PRELOAD=container(**limits))
        running = start([*container_of, HIDDEN, *"init alloc=1 wait create launch=64M alloc=2M say wait".split()], environment, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        go_on(running)
        time.sleep(0.3)
        other = begin("init create alloc=1G say wait", bare_environment(node.machine))
        said = heard(running)
        code, free, total = said["info"]
        right = said.get("codes", [])[2:] == [0] * 3 and (code, total - free) == (0, CONTEXT + 2 * MIB)
        check_equal(right, measured, f"{'with' if measured else 'without'} it the container is charged {'right' if measured else 'something else'}", said)
        end(running)
        end(other)
        node.end()


def on_busy_cards():
    """A card that is always in use: measured where NVML names our process, if there is room."""
    started = []

    def fill(node):
        started.append(begin("init create alloc=7G say wait", bare_environment(node.machine)))
        heard(started[0])

    node = Measured(prepare=fill, gpus=1, memory=8 * GIB)
    node.kubelet.connect()
    time.sleep(7)
    check_equal(node.kept()[1], {}, "where there is no room nobody makes a context")
    end(started[0])
    other = begin("init create alloc=1G say wait", bare_environment(node.machine))
    heard(other)
    check(node.is_measured(), "on a card in use NVML tells our process from the others", node.said())
    check_equal(list(node.kept()[1].values()), [CONTEXT], "whatever they have")
    end(other)
    node.end()


def by_kinds():
    """A card that only one process may use is left alone; an instance is a kind of its own."""
    node = Measured(prepare=lambda node: node.machine.fault(0, "--compute-mode=exclusive"), gpus=1)
    node.kubelet.connect()
    time.sleep(7)
    check_equal(node.kept()[1], {}, "nobody is in the way on a card for one process")
    node.machine.fault(0, "--compute-mode=default")
    check(node.is_measured(), "once it is for all it is measured", node.said())
    node.end()

    def cut(node):
        with Mig(node.machine, SIMDRIVER) as mig:
            mig.set_mode(0)
            node.instances = [mig.make(0, "1g", 0), mig.make(0, "3g", 4), mig.make(0, "1g", 1)]

    node = Measured(prepare=cut, memory=40960 * MIB, more=["--mig-strategy=single"])
    node.kubelet.connect()
    model = "NVIDIA A100-SXM4-40GB"
    kinds = {model: CONTEXT, f"{model} MIG 1g.5gb": CONTEXT, f"{model} MIG 3g.20gb": CONTEXT}
    check(wait_until(lambda: node.kept()[1] == kinds, 40), "each profile is measured in an instance of it", node.kept(), node.said())
    node.uuids = node.instances[:1]
    check_equal(node.sizes_of("one", 0), [str(CONTEXT)], "and containers in one are told")
    node.end()


def is_killed():
    node = Measured(gpus=1, driver=SLOW)
    child = node.child()
    os.kill(child, signal.SIGKILL)
    node.kubelet.connect()
    check(wait_until(lambda: "did not end, and was killed" in node.said(), 15), "that it was killed is said", node.said())
    check("contextSizes" in node.said(), "with what may be done")
    check_equal(node.sizes_of("one", 0), [None], "containers start without it")
    check(node.is_measured(40), "until another one has measured", node.said())
    node.end()

    for how, sentence in ((signal.SIGKILL, "is killed"), (signal.SIGTERM, "ends")):
        node = Measured(gpus=1, driver=SLOW)
        child = node.child()
        node.plugin.send_signal(how)
        node.plugin.wait(30)
        check(wait_until(lambda: is_gone(child), 10), f"a plugin that {sentence} leaves nobody behind")
        check_equal(node.kept()[1], {}, "and nothing half known")
        node.start()
        check(node.is_measured(), "the next one measures", node.said())
        node.kubelet.connect()
        node.end()


def hangs():
    """A driver that hangs while a context is made."""
    node = Measured(gpus=1, driver=SLOW, more=["--measure-limit=3s"])
    child = node.child()
    holder = node.machine.hang()
    node.kubelet.connect()
    check(wait_until(lambda: is_gone(child), 10), "the measuring process ends itself, though nobody looks at it")
    holder.kill()
    holder.wait()
    check(wait_until(lambda: "did not end, and was killed" in node.said(), 20), "which is said", node.said())
    check(node.is_measured(40), "and it is measured once the driver answers", node.said())
    node.end()


def lacks_memory():
    """A context takes hundreds of MiB of the host, more than the plugin's container may have."""
    sysfs = scratch / "sysfs"
    (sysfs / "fs/cgroup").mkdir(parents=True)
    (sysfs / "fs/cgroup/memory.max").write_text(f"{128 * MIB}\n")
    node = Measured(gpus=1, more=["--sysfs", sysfs])
    node.kubelet.connect()
    check(wait_until(lambda: "than the 128 MiB that the device plugin's container may use" in node.said(), 15), "where it would be ended for its memory it does not begin", node.said())
    check_equal(node.kept()[1], {}, "nor know a size")
    (sysfs / "fs/cgroup/memory.max").write_text("max\n")
    check(node.is_measured(40), "and measures with more", node.said())
    check_equal(node.said().count("the device plugin's container may use"), 1, "what is missing is said once")
    node.end()


PARTS = ["measures", "is_told", "charges", "on_busy_cards", "by_kinds", "is_killed", "hangs", "lacks_memory"]

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        globals()[part]()
    finish()

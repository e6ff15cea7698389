#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hami-vgpu-monitor: what it says of containers is what the simulator counts, and promtool reads it."""

import os
import re
import shutil
import struct
import sys
import urllib.request

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import hamicore
from harness import *

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from api import Api

sys.path.insert(0, str(SOURCE / "tests/vgpu"))
from caller import POSIX_FD, Caller, allocation_prop, slot

# Set, malloc() writes over what it gives and takes back, and all of that counts as used.
os.environ["MALLOC_PERTURB_"] = "0"

PROGRAM = BUILD / "src/monitor/hami-vgpu-monitor"
PODS = "/api/v1/pods"
NODE = "node-1"
LIMIT = 3000 * MIB

# What promtool's linter says of names that HAMi's dashboards need.
EXCEPTIONS = {
    r"(MigInfo|HostGPUMemoryUsage|HostCoreUtilization|vGPU_device_memory_\w+|Device_\w+_of_container) metric names should be written in 'snake_case' not 'camelCase'",
}


class Container:
    """A container's folder as the device plugin makes it, and what runs in it."""

    def __init__(self, hook, uid, name, uuid, memory=LIMIT, cores=30, **more):
        self.folder = hook / "containers" / f"{uid}_{name}"
        self.folder.mkdir(parents=True)
        self.region = self.folder / "1b4e28ba-2fa1-4d11-8c3e-0123456789ab.cache"
        self.region.touch()
        keys = {"NVIDIA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_MEMORY_LIMIT_0": memory, "CUDA_DEVICE_SM_LIMIT_0": cores, "HAMI_VISIBLE_DEVICES": "granted"} | more
        inside = keys | {"CUDA_DEVICE_MEMORY_SHARED_CACHE": f"/usr/local/vgpu/{self.region.name}"}
        (self.folder / "limits").write_text("".join(f"{k}={v}\n" for k, v in inside.items()))
        self.library = container(self.region, **keys)
        self.uuid = uuid

    def start(self, machine, *arguments):
        return start([LOAD, *arguments], bare_environment(machine, LD_PRELOAD=self.library, CUDA_VISIBLE_DEVICES=self.uuid))


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Monitor:
    def __init__(self, machine, api, hook, *arguments, **environment):
        self.port = free_port()
        self.program = start(
            [PROGRAM, f"--metrics-bind-address=:{self.port}", f"--hook-path={hook}",
             f"--kubeconfig={api.kubeconfig(scratch / 'kubeconfig')}", *arguments],
            bare_environment(machine, NODE_NAME=NODE, no_proxy="*", **environment),
        )
        wait_until(lambda: self.get("/healthz")[0] == 200)

    def get(self, path, host="127.0.0.1"):
        try:
            with urllib.request.urlopen(f"http://{host}:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def scrape(self):
        """{name: {frozenset of labels: value}}"""
        out = {}
        for line in self.get("/metrics")[1].splitlines():
            got = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if got:
                labels = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', got[2] or ""))
                out.setdefault(got[1], {})[labels] = float(got[3])
        return out


def value(metrics, name, **labels):
    got = [v for l, v in metrics.get(name, {}).items() if set(labels.items()) <= set(l)]
    return got[0] if len(got) == 1 else got


def check_comes(read, wanted, what):
    """Containers are looked at each second."""
    check(wait_until(lambda: read() == wanted, 5), what, f"got {read()}, wanted {wanted}")


def pod(name, uid):
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1"}, "spec": {"nodeName": NODE}}


def two_pods():
    return Api(objects={PODS: {"one": pod("one", "uid-1"), "two": pod("two", "uid-2")}})


def many_containers(hook, machine):
    uuid = machine.view()["gpus"][0]["uuid"]
    for i in range(500):
        Container(hook, "uid-1", f"c{i}", uuid)


def tells():
    machine = Machine(2, 30000 * MIB)
    uuids = [g["uuid"] for g in machine.view()["gpus"]]
    hook = scratch / "vgpu"
    api = two_pods()
    api.objects[PODS]["far"] = pod("far", "uid-3") | {"spec": {"nodeName": "node-2"}}
    busy = Container(hook, "uid-1", "main", uuids[1])
    idle = Container(hook, "uid-2", "main", uuids[0])
    Container(hook, "uid-9", "gone", uuids[0])
    (hook / "containers/garbage").mkdir()
    hostile = Container(hook, "uid-2", "bad", uuids[0])
    hostile.region.write_bytes(b"\xff" * 5000)
    monitor = Monitor(machine, api, hook)

    which = {"namespace": "ns", "pod": "one", "container": "main", "vdevice_index": "0", "device_uuid": uuids[1]}
    check(wait_until(lambda: value(monitor.scrape(), "hami_vgpu_memory_limit_bytes", **which) == LIMIT), "a container's limit is told before it runs anything")
    check_equal(value(monitor.scrape(), "hami_vgpu_memory_used_bytes", **which), 0, "and that it uses nothing")
    if "00000001" in pathlib.Path("/proc/net/if_inet6").read_text():
        check_equal(monitor.get("/healthz", "[::1]")[0], 200, "it answers over IPv6, as well as IPv4")

    guest = busy.start(machine, "--memory", "1G", "--hold")
    wait_until(lambda: machine.used(guest.pid, 1) >= GIB)
    used = machine.used(guest.pid, 1)
    host = {"zone": "vGPU", "node": NODE, "device_index": "1", "device_uuid": uuids[1]}
    check(wait_until(lambda: value(monitor.scrape(), "hami_host_gpu_memory_used_bytes", **host) == machine.used(None, 1), 15), "the card's use as a whole is told, some seconds late")
    check(used > GIB, "a process takes 1 GiB", used)
    check_comes(lambda: value(monitor.scrape(), "hami_vgpu_memory_used_bytes", **which), used, "its use is what the simulator counts")
    got = monitor.scrape()
    check_equal(value(got, "hami_container_device_memory_bytes", **which), used, "under HAMi's other name, too")
    parts = [value(got, f"hami_vgpu_memory_{p}_bytes", **which) for p in ("context", "module", "buffer")]
    check_equal(sum(parts), used, "and it is the sum of its parts")
    check_equal(value(got, "hami_monitor_nvml_up"), 1, "NVML answers")
    check(value(got, "hami_monitor_cards_age_seconds") < 8, "what it said is fresh", value(got, "hami_monitor_cards_age_seconds"))
    check(0 <= value(got, "hami_monitor_containers_age_seconds") < 3, "what is said of the containers is, too", value(got, "hami_monitor_containers_age_seconds"))
    check_equal(len(got["hami_vgpu_memory_limit_bytes"]), 3, "containers of pods that are not the node's are left out")
    check_equal(value(got, "hami_monitor_nameless_containers"), 1, "and counted")
    check_equal(value(got, "hami_vgpu_memory_used_bytes", pod="two", container="bad"), 0, "a region that is none costs its container only")
    guest.kill()
    guest.wait()
    check_comes(lambda: value(monitor.scrape(), "hami_vgpu_memory_used_bytes", **which), 0, "a killed process uses nothing any more")

    guest = busy.start(machine, "--kernel", "1ms", "--seconds", "20")
    check(wait_until(lambda: 10 < value(monitor.scrape(), "hami_container_device_utilization_ratio", **which) < 50, 20), "a busy container's share of the card's time is told",
          value(monitor.scrape(), "hami_container_device_utilization_ratio", **which))
    first = monitor.scrape()
    for name, least in (("hami_container_device_busy_seconds_total", 0.2), ("hami_container_throttled_seconds_total", 0.3), ("hami_container_throttled_launches_total", 10)):
        more = lambda: value(monitor.scrape(), name, **which) - value(first, name, **which)
        check(wait_until(lambda: more() > least, 5, 0.2), f"{name} counts on", more())
    second = monitor.scrape()
    check(value(second, "hami_container_last_kernel_elapsed_seconds", **which) <= 10, "its last launch was just now")
    waits = {dict(labels)["le"]: count for labels, count in second["hami_container_launch_wait_seconds_bucket"].items()}
    check(10 < waits["+Inf"] == value(second, "hami_container_launch_wait_seconds_count", **which) and waits["0.001"] <= waits["0.25"] <= waits["+Inf"], "how long its launches waited", waits)
    guest.kill()
    api.delete(PODS, "two")
    check(wait_until(lambda: len(monitor.scrape()["hami_vgpu_memory_limit_bytes"]) == 1), "a pod that is gone is no longer told of")

    check_equal([monitor.get(p)[0] for p in ("/healthz", "/metrics", "/", "/metrics/x")], [200, 200, 404, 404], "it serves what it should")
    # What pages took that were just fetched is given back in the second after their connections.
    check(wait_until(lambda: private_kib(monitor.program.pid) < 10240, 5), "in less than 10 MiB of private memory", private_kib(monitor.program.pid))

    many_containers(hook, machine)
    check(wait_until(lambda: len(monitor.scrape()["hami_vgpu_memory_limit_bytes"]) == 501), "hundreds of containers are told of")
    times = []
    for _ in range(20):
        began = time.monotonic()
        monitor.get("/metrics")
        times.append((time.monotonic() - began) * 1000)
    print(f"scrape of 501 containers: median {sorted(times)[10]:.1f} ms")
    monitor.program.terminate()
    check_equal(monitor.program.wait(30), 0, "it ends on SIGTERM")

    for arguments, allowed in (((), set()), (("--legacy-metrics",), EXCEPTIONS)):
        lint(Monitor(machine, api, hook, *arguments), allowed, " ".join(arguments) or "new names")
    api.close()


def imports():
    """What processes hold that others made is told by pieces, whichever way it came."""
    machine, hook, api = Machine(1, 30000 * MIB), scratch / "vgpu-imports", two_pods()
    one = Container(hook, "uid-1", "main", machine.view()["gpus"][0]["uuid"], HAMI_IMPORTS="allow")
    maker, user = (Caller(bare_environment(machine, LD_PRELOAD=one.library)).begin() for _ in (1, 2))
    monitor = Monitor(machine, api, hook)
    told = lambda: value(monitor.scrape(), "hami_container_imported_allocations", namespace="ns", pod="one", container="main")
    check_comes(told, 0, "nothing is imported at first")
    maker.must("cuMemAlloc_v2", f"n{slot('ptr')}", 10 * MIB)
    maker.must("cuIpcGetMemHandle", "y1", f"h{slot('ptr')}")
    user.blob(1, maker.blob(1))
    user.must("cuIpcOpenMemHandle_v2", f"n{slot('opened')}", "b1", 1)
    check_comes(told, 1, "memory by a handle is told")
    maker.must("cuMemCreate", f"n{slot('physical')}", 10 * MIB, allocation_prop(handles=POSIX_FD), 0)
    maker.must("cuMemExportToShareableHandle", f"w{slot('fd')}", f"h{slot('physical')}", POSIX_FD, 0)
    borrow = lambda: user.ask(f"borrow {slot('fd')} {maker.pid} {maker.value(slot('fd'))}")
    borrow()
    user.must("cuMemImportFromShareableHandle", f"n{slot('physical')}", f"h{slot('fd')}", POSIX_FD)
    check_comes(told, 2, "by a descriptor, too")
    borrow()
    desc = struct.pack("<i4xi12xQI64x4x", 1, user.value(slot("fd")), 10 * MIB, 0)
    user.must("cuImportExternalMemory", f"n{slot('external')}", desc)
    check_comes(told, 3, "and external memory")
    user.must("cuIpcCloseMemHandle", f"h{slot('opened')}")
    user.must("cuDestroyExternalMemory", f"h{slot('external')}")
    check_comes(told, 1, "what is given back is not")
    user.kill()
    check_comes(told, 0, "nor what a dead process had")
    maker.finish()
    monitor.program.terminate()
    check_equal(monitor.program.wait(30), 0, "it ends well")
    api.close()


def health():
    """What the device plugin says of cards that failed, whether or not the monitor reads the cards itself."""
    machine, hook, api = Machine(2, 30000 * MIB), scratch / "vgpu-health", two_pods()
    hook.mkdir()
    uuids = [g["uuid"] for g in machine.view()["gpus"]]

    def tell(*healthy):
        cards = [{"uuid": u, "model": "A100", "index": i, "numa_node": -1, "healthy": h, "memory_bytes": 1, "failures": 1 - h, "why": "" if h else "XID 79",
                  "corrected_errors": 7, "uncorrected_errors": i} for i, (u, h) in enumerate(zip(uuids, healthy))]
        (hook / "cards.new").write_text(json.dumps({"cards": cards}))
        (hook / "cards.new").rename(hook / "cards.json")

    tell(True, True)
    monitors = [Monitor(machine, api, hook), Monitor(None, api, hook, f"--nvidia-driver-root={scratch}/none")]
    for monitor, what in zip(monitors, ("beside NVML", "alone")):
        of = lambda name: [value(monitor.scrape(), name, device_uuid=u) for u in uuids]
        check(wait_until(lambda: of("hami_host_gpu_healthy") == [1, 1], 15), f"{what}: cards are well", of("hami_host_gpu_healthy"))
    tell(True, False)
    for monitor, what in zip(monitors, ("beside NVML", "alone")):
        of = lambda name: [value(monitor.scrape(), name, device_uuid=u) for u in uuids]
        check(wait_until(lambda: of("hami_host_gpu_healthy") == [1, 0], 15), f"{what}: one that failed is told", of("hami_host_gpu_healthy"))
        check_equal((of("hami_host_gpu_failures_total"), of("hami_host_gpu_corrected_errors"), of("hami_host_gpu_uncorrected_errors")), ([0, 1], [7, 7], [0, 1]), f"{what}: with its errors")
    api.close()


def hangs():
    """NVML does not answer: all else goes on, and it is told."""
    machine = Machine(1, 30000 * MIB)
    hook = scratch / "vgpu-hangs"
    many_containers(hook, machine)
    api = two_pods()
    monitor = Monitor(machine, api, hook)
    check(wait_until(lambda: value(monitor.scrape(), "hami_monitor_nvml_up") == 1), "NVML answers")
    holder = machine.hang()
    check(wait_until(lambda: value(monitor.scrape(), "hami_monitor_nvml_up") == 0, 25), "NVML that hangs is told of")
    got = monitor.scrape()
    check_equal(monitor.get("/healthz")[0], 200, "meanwhile the monitor answers")
    check(len(got["hami_vgpu_memory_limit_bytes"]) == 500, "and tells of the containers", len(got["hami_vgpu_memory_limit_bytes"]))
    check_equal(len(got["hami_host_gpu_memory_total_bytes"]), 1, "and of the cards, what it knew")
    check(value(got, "hami_monitor_cards_age_seconds") > 8, "with its age", value(got, "hami_monitor_cards_age_seconds"))
    holder.kill()
    holder.wait()
    check(wait_until(lambda: value(monitor.scrape(), "hami_monitor_nvml_up") == 1, 15), "until NVML answers again")
    holder = machine.hang()
    time.sleep(6)
    began = time.monotonic()
    monitor.program.terminate()
    check_equal(monitor.program.wait(30), 0, "it ends on SIGTERM while NVML hangs")
    check(time.monotonic() - began < 10, "without waiting for it", time.monotonic() - began)
    monitor = Monitor(machine, api, hook)
    check(wait_until(lambda: monitor.scrape().get("hami_vgpu_memory_limit_bytes")), "where NVML hangs from the start it serves what it knows")
    check_equal(value(monitor.scrape(), "hami_monitor_nvml_up"), 0, "and says so")
    monitor.program.kill()
    monitor.program.wait()
    holder.kill()
    holder.wait()
    api.close()


def fails():
    """NVML answers with an error, as after a card fell off the bus: that is told, and the containers are."""
    root, cards, hook, api = scratch / "driver", scratch / "cards", scratch / "vgpu-fails", two_pods()
    (root / "usr/lib64").mkdir(parents=True)
    shutil.copy(BUILD / "tests/nvml_stub.so", root / "usr/lib64/libnvidia-ml.so.1")
    cards.write_text("GPU-a 1000 0000:01:00.0 0 ok\n")
    Container(hook, "uid-1", "main", "GPU-a")
    monitor = Monitor(None, api, hook, f"--nvidia-driver-root={root}", NVML_STUB=cards)
    total = lambda: monitor.scrape().get("hami_host_gpu_memory_total_bytes", {})
    check(wait_until(lambda: list(total().values()) == [1000 * MIB], 15), "a card is told of", total())
    cards.write_text("lost\n")
    check(wait_until(lambda: value(monitor.scrape(), "hami_monitor_nvml_up") == 0, 15), "that NVML fails is told")
    check_equal(total(), {}, "and nothing of cards that it does not list")
    check_equal(len(monitor.scrape()["hami_vgpu_memory_limit_bytes"]), 1, "containers are, as before")
    cards.write_text("GPU-a 2000 0000:01:00.0 0 ok\n")
    check(wait_until(lambda: list(total().values()) == [2000 * MIB], 15), "until it answers again")
    monitor.program.terminate()
    check_equal(monitor.program.wait(30), 0, "it ends on SIGTERM")
    api.close()


def feedback():
    """HAMi's priorities, on HAMi-core's own regions: who waits for whom, and who is held to its share."""
    hook, api = scratch / "vgpu-feedback", two_pods()
    api.objects[PODS] |= {str(i): pod(str(i), f"u{i}") for i in range(5)}

    def make(number, priority, recent, *cards, uid=None):
        folder = hook / "containers" / f"{uid or f'u{number}'}_main"
        folder.mkdir(parents=True)
        devices = [{"uuid": card, "limit": 0, "sm_limit": 30} for card in cards]
        data = hamicore.write(devices, [], priority=priority, recent_kernel=recent)
        (folder / "x.cache").write_bytes(data)
        return folder / "x.cache"

    def words(region):
        got = hamicore.read(region.read_bytes())
        return got["recent_kernel"], got["utilization_switch"]

    high = make(0, 0, 1000, "GPU-a", "GPU-b")
    low = make(1, 1, 1000, "GPU-b")
    apart = make(2, 1, 1000, "GPU-c")
    pair = make(3, 1, 1000, "GPU-d"), make(4, 1, 1000, "GPU-d")
    hostile = make(5, -7, 1000, "GPU-c")
    before = low.read_bytes()
    ours = Container(hook, "uid-1", "main", "GPU-c")
    (ours.folder / "limits").write_text((ours.folder / "limits").read_text() + "CUDA_TASK_PRIORITY=1\n")
    ours.region.write_bytes(hamicore.write([{"uuid": "GPU-a", "limit": 0, "sm_limit": 0}], [], priority=-1, recent_kernel=1000))
    monitor = Monitor(None, api, hook)
    check(wait_until(lambda: words(low) == (-1, 1), 15), "a container is blocked while one of higher priority launches on a card of its", words(low))
    changed = [i for i, (a, b) in enumerate(zip(before, low.read_bytes())) if a != b]
    check({i // 4 * 4 for i in changed} <= {hamicore.HEAD[n][0] for n in ("recent_kernel", "utilization_switch")}, "nothing else of its region is touched", changed)
    check_equal([words(r)[1] for r in pair], [1, 1], "two of the same priority are held to their shares")
    check(990 < words(high)[0] < 1000 and words(high)[1] == 0, "the one of higher priority is not, being alone", words(high))
    check_equal(words(apart)[1], 1, "one of ours counts with the cards and the priority of its limits file, not of its region")
    check(words(hostile)[0] > 0, "a priority below 0 blocks nobody, and costs nothing", words(hostile))
    data = bytearray(high.read_bytes())
    data[hamicore.HEAD["recent_kernel"][0]] = 0
    data[hamicore.HEAD["recent_kernel"][0] + 1] = 0
    high.write_bytes(data)
    check(wait_until(lambda: words(low) == (0, 0), 15), "when that one launches no more the other goes on", words(low))
    monitor.program.terminate()
    check_equal(monitor.program.wait(30), 0, "it ends well")
    api.close()


def options():
    """What is no option ends it with a word, before it does anything."""
    environment = bare_environment(None)
    for words, said in (
        (["--metrics-bind-address"], "metrics-bind-address"), (["--node-name"], "node-name"), (["--no-such-thing=1"], "no-such-thing"),
        (["--metrics-bind-address=:1x"], '--metrics-bind-address: :1x: "1x" is not a port'), (["--metrics-bind-address=foo"], "--metrics-bind-address: foo: not an address"),
        ([], "NODE_NAME"), (["--node-name=" + "n" * 300], "no node's name"),
        (["--node-name=n", f"--kubeconfig={scratch}/none"], f"error --kubeconfig: {scratch}/none: No such file"), (["--node-name=n", f"--kubeconfig={scratch}"], str(scratch)),
    ):  # fmt: skip
        ended = run([PROGRAM, *words], environment, timeout=20)
        check(ended.returncode not in (0, None) and ended.returncode > 0, f"{words}: it ends", ended.returncode)
        check(said in ended.stderr + ended.stdout, f"{words}: with the reason", ended.stderr)


def lint(monitor, allowed, what):
    if not shutil.which("promtool"):
        print("promtool is not here: not linted")
        return
    text = monitor.get("/metrics")[1]
    ended = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    left = [l for l in ended.stdout.splitlines() if l and not any(re.fullmatch(a, l) for a in allowed)]
    check_equal(left, [], f"{what}: promtool finds nothing but the listed names")
    names = [l.split()[2] for l in text.splitlines() if l.startswith("# TYPE")]
    check_equal(len(names), len(set(names)), f"{what}: each family is there once")
    monitor.program.terminate()
    monitor.program.wait(30)


PARTS = ["tells", "imports", "health", "hangs", "fails", "feedback", "options"]

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        globals()[part]()
    finish()

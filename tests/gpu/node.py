# SPDX-License-Identifier: Apache-2.0
"""hami-device-plugin and hami-vgpu-monitor on a real card, between a pretended kubelet and API server: containers are what the
plugin's CDI specifications say, in mount namespaces of their own."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/node")
import monitor as node_monitor
import plugin as node_plugin
from harness import *

WORK = BUILD / "tests/gpu_work"
LIBRARIES = os.environ.get("HAMI_GPU_LIBRARIES", "")


class CardNode(node_plugin.Node):
    """A node whose cards are this machine's."""

    def __init__(self, uuid, bare):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=scratch, prefix="node-"))
        self.uuids = [uuid]
        self.api = node_plugin.Api(objects={node_plugin.PODS: {}, node_plugin.NODES: {node_plugin.NODE: {"metadata": {"name": node_plugin.NODE, "uid": "node-uid", "resourceVersion": "1"}}}})
        self.kubelet = node_plugin.Kubelet(self.folder / "kubelet")
        self.log = open(self.folder / "log", "w+")
        self.uids, self.bare = 0, bare
        self.start()

    def start(self):
        environment = self.bare(NODE_NAME=node_plugin.NODE, no_proxy="*", LD_LIBRARY_PATH=f"{LIBRARIES}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        self.plugin = start(
            [
                node_plugin.PROGRAM, "--hook-path", self.folder / "vgpu", "--cdi-dir", self.folder / "cdi",
                "--nvidia-cdi-dirs", f"{self.folder}/toolkit", "--runtime-cdi", "on", "--runtime-socket", self.folder / "runtime.sock",
                "--kubelet-socket", self.folder / "kubelet/kubelet.sock", "--pod-resources-socket", self.folder / "kubelet/podresources.sock",
                "--kubeconfig", self.api.kubeconfig(self.folder / "kubeconfig"), "--node-config-file", self.folder / "config.json",
            ],
            environment, stderr=self.log,
        )

    def begin(self, name, number, memory, cores):
        """A pod of one container: its environment and mounts."""
        pod = self.show(self.pod(name, "main", gives=[[(self.uuids[0], memory >> 20, cores)]]))
        status, why, cdi = self.run_container(pod, "main", [f"{self.uuids[0]}::{number}"])
        return pod, (self.edits(cdi) if status == "OK" else (None, why)), cdi

    def command(self, edits, *words):
        """As a container runtime starts a process in it, with the host's root."""
        env, mounts = edits
        # The host has the driver where it is.
        ours = {to: m for to, m in mounts.items() if to.startswith("/usr/local/vgpu/")}
        script = ["set -e", "mkdir -p /usr/local/vgpu", "mount -t tmpfs none /usr/local/vgpu"]
        for to, m in ours.items():
            make = f"mkdir -p {to}" if os.path.isdir(m["hostPath"]) else f"mkdir -p {os.path.dirname(to)}; touch {to}"
            script += [make, f"mount --bind {m['hostPath']} {to}"]
            if "rw" not in m["options"]:
                script.append(f"mount -o remount,ro,bind {to}")
        kept = self.bare(**env, LD_PRELOAD="/usr/local/vgpu/libvgpu.so")
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", "\n".join(script) + '\nexec env LD_PRELOAD=/usr/local/vgpu/libvgpu.so "$@"', "sh", *map(str, words)], {k: v for k, v in kept.items() if k != "LD_PRELOAD"}

    def process(self, edits, *words):
        words, environment = self.command(edits, *words)
        return subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class CardMonitor(node_monitor.Monitor):
    def __init__(self, node):
        self.port = node_monitor.free_port()
        environment = node.bare(NODE_NAME=node_plugin.NODE, no_proxy="*", LD_LIBRARY_PATH=f"{LIBRARIES}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        self.log = open(node.folder / "monitor-log", "w+")
        self.program = start(
            [node_monitor.PROGRAM, f"--metrics-bind-address=:{self.port}", f"--hook-path={node.folder / 'vgpu'}", f"--kubeconfig={node.folder / 'kubeconfig'}"],
            environment, stderr=self.log,
        )
        wait_until(lambda: self.get("/healthz")[0] == 200)


def tells(nvml, bare, judge, say):
    node = CardNode(nvml.uuid(), bare)
    monitor = None
    try:
        got = node.kubelet.connect()
        devices = node.kubelet.lists.get(timeout=30)
        judge(len(devices) == 10 and set(devices.values()) == {"Healthy"}, f"the plugin registers {got['resource']}, with {len(devices)} healthy devices")
        judge(wait_until(lambda: node.patches()), "it writes the node's annotation")
        annotations = node.api.objects[node_plugin.NODES][node_plugin.NODE]["metadata"].get("annotations", {})
        for key, value in annotations.items():
            say(f"    {key}: {value}")
        say("    the Node's condition:", node.condition())
        started = time.monotonic()
        pods = [node.begin(name, i, memory, cores) for i, (name, memory, cores) in enumerate((("a", 8 * GIB, 30), ("b", 4 * GIB, 60)))]
        for pod, edits, cdi in pods:
            if not judge(edits[0], f"a container is handed over: {'' if edits[0] else edits[1]}"):
                continue
            limits = node.limits(cdi)
            say("    limits:", limits)
        say(f"    two containers handed over in {1000 * (time.monotonic() - started):.0f} ms")
        say("    specification:", json.dumps(node.all_edits(pods[0][2]))[:6000])
        if not all(edits[0] for _, edits, _ in pods):
            return
        monitor = CardMonitor(node)
        for (pod, edits, _), limit in zip(pods, (8 * GIB, 4 * GIB)):
            guest = node.process(edits, WORK, "hold", "alloc", 64 * MIB)
            line = guest.stdout.readline().split()
            if not judge(len(line) == 4, "a program in it takes memory until it is refused:", line, "" if line else guest.stderr.read()[-600:]):
                guest.kill()
                continue
            time.sleep(0.1)
            used = nvml.processes().get(guest.pid)
            judge(used and limit - 70 * MIB < used <= limit, f"of {limit >> 20} MiB NVML counts {(used or 0) >> 20}")
            which = {"namespace": "ns", "pod": pod["metadata"]["name"], "container": "main"}
            wait_until(lambda: node_monitor.value(monitor.scrape(), "hami_vgpu_memory_used_bytes", **which) == used, 5)
            told = node_monitor.value(monitor.scrape(), "hami_vgpu_memory_used_bytes", **which)
            judge(told == used, "the monitor tells the same:", told)
            guest.communicate("\n\n", timeout=20)
        scale = float(subprocess.run([WORK, "calibrate"], env=bare(), stdout=subprocess.PIPE, text=True).stdout)
        words = WORK, "run", int(scale * 1000)
        alone = float(subprocess.run([*map(str, words), "2"], env=bare(), stdout=subprocess.PIPE, text=True).stdout)
        both = [node.process(edits, *words, 4) for _, edits, _ in pods]
        time.sleep(3)
        metrics = monitor.scrape()
        ended = [one.communicate(timeout=30) for one in both]
        got = [100 * float(said or "nan") / alone for said, _ in ended]
        judge(abs(got[0] - 30) < 5 and abs(got[1] - 60) < 6, f"30 and 60 % in two containers, kernels of 1 ms: {got[0]:.1f} and {got[1]:.1f}", *(errors[-300:] for _, errors in ended))
        for name, values in metrics.items():
            for labels, value in values.items():
                if "hami_" in name and any(word in name for word in ("util", "core", "bypass", "host_gpu")):
                    say("    metric:", name, dict(labels).get("pod", ""), value)
        node.api.delete(node_plugin.PODS, "a")
        node.kubelet.release(pods[0][0])
        judge(wait_until(lambda: node.spec(pods[0][2]) is None), "a pod that is gone leaves nothing")
        node.plugin.terminate()
        judge(node.plugin.wait(30) == 0, "the plugin ends on SIGTERM")
        monitor.program.terminate()
        judge(monitor.program.wait(30) == 0, "and the monitor")
    finally:
        say("\n".join("    plugin: " + line for line in node.said().splitlines()[-20:]))
        if monitor:
            monitor.log.flush()
            say("\n".join("    monitor: " + line for line in (node.folder / "monitor-log").read_text().splitlines()[-10:]))
        node.kubelet.stop()
        node.api.close()

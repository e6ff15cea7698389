# SPDX-License-Identifier: Apache-2.0
"""The programs of the cluster: how each is configured, started, and known to be ready. See supervisor.py."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.request

import host
from host import BUILD, CDI, HOOK, MARK, NODE, NODE_ADDRESS, WORK, ClusterError
from pki import PKI

CONTAINERD_SOCKET = WORK / "containerd/containerd.sock"
ADMIN = WORK / "admin.kubeconfig"
AUDIT_LOG = WORK / "log/audit.log"
EXTENDER = "https://127.0.0.1:9443"
SCHEDULER_METRICS = "127.0.0.1:9395"
MONITOR_METRICS = "127.0.0.1:9394"
NAMESPACE = "hami-system"
SIM = WORK / "sim/machine"
SIMDRIVER = BUILD / "src/simdriver"
LIBVGPU = BUILD / "src/vgpu/libvgpu.so"
HAMICTL = BUILD / "src/ctl/hamictl"
# A card of 30,000 MiB, of which a context takes 100.
MACHINE = ["--gpus=1", "--memory=30000Mi", "--context=100Mi"]
REGISTER = "hami.io/node-nvidia-register"
RESOURCE = "nvidia.com/gpu"

# Ours, and where the build puts them.
OURS = {
    "hami-scheduler": BUILD / "src/scheduler/hami-scheduler",
    "hami-device-plugin": BUILD / "src/plugin/hami-device-plugin",
    "hami-vgpu-monitor": BUILD / "src/monitor/hami-vgpu-monitor",
}
# Whose token each uses: its ServiceAccount, by its RBAC alone.
ACCOUNTS = {
    "hami-scheduler": "hami-scheduler",
    "hami-device-plugin": "hami-device-plugin",
    "hami-vgpu-monitor": "hami-vgpu-monitor",
}


# Configuration files


def audit_policy():
    """Every request as one line, when it is answered; watches and health checks aside."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "omitManagedFields": True,
        "rules": [
            {"level": "None", "nonResourceURLs": ["/readyz*", "/healthz*", "/livez*"]},
            {"level": "Metadata"},
        ],
    }


def kubelet_config():
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(PKI / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{host.CGROUP}",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "healthzPort": 0,
        "imageGCHighThresholdPercent": 100,
        "kubeAPIBurst": 400,
        "kubeAPIQPS": 200,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "maxPods": 250,
        # When it was started anew it says that the node has no cards, and corrects that after so long.
        "nodeStatusUpdateFrequency": "5s",
        "podLogsDir": str(WORK / "podlogs"),
        "resolvConf": "",
        "serializeImagePulls": False,
        "volumePluginDir": str(WORK / "kubelet/plugins-of-volumes"),
        "tlsCertFile": str(PKI / "kubelet.crt"),
        "tlsPrivateKeyFile": str(PKI / "kubelet.key"),
    }


# A sandboxed root may not lower oom_score_adj, and runc would fail: restrict_oom_score_adj.
CONTAINERD_CONFIG = f"""\
version = 3
disabled_plugins = ["io.containerd.nri.v1.nri"]
root = "{WORK}/containerd/root"
state = "{WORK}/containerd/state"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "docker.io/local/pause:1"
[plugins."io.containerd.internal.v1.opt"]
  path = "{WORK}/containerd/opt"
[plugins."io.containerd.cri.v1.runtime"]
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["{CDI}"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{WORK}/cni"
"""


def network():
    return {
        "cniVersion": "1.0.0",
        "name": "test",
        "plugins": [
            {
                "type": "bridge",
                "bridge": host.BRIDGE,
                "isGateway": True,
                "ipMasq": False,
                "ipam": {"type": "host-local", "subnet": "10.89.0.0/16", "dataDir": str(WORK / "cni-data")},
            }
        ],
    }


def replace_once(text, old, new):
    if text.count(old) != 1:
        raise ClusterError(f"the shipped kube-scheduler configuration has {old!r} {text.count(old)} times, not once")
    return text.replace(old, new)


def scheduler_config(shipped):
    """The kube-scheduler configuration of deploy/, run outside a pod, with the default profile, too."""
    text = replace_once(shipped, "clientConnection: {}", f"clientConnection: {{kubeconfig: {WORK}/kube-scheduler.kubeconfig, qps: 1000, burst: 2000}}")
    text = replace_once(text, "/tls/ca.crt", str(PKI / "ca.crt"))
    text = replace_once(text, "  - schedulerName: hami-scheduler\n", "  - schedulerName: hami-scheduler\n  - schedulerName: default-scheduler\n")
    return text


def write_configs():
    for folder in ("log", "pids", "programs", "etcd", "containerd", "cni", "images", "sim", "podlogs"):
        (WORK / folder).mkdir(parents=True, exist_ok=True)
    (WORK / "audit-policy.json").write_text(json.dumps(audit_policy()))
    (WORK / "kubelet.json").write_text(json.dumps(kubelet_config()))
    (WORK / "containerd.toml").write_text(CONTAINERD_CONFIG)
    (WORK / "cni/10-bridge.conflist").write_text(json.dumps(network()))


# Command lines. Rows of (flag, value); a value of None leaves the flag bare.


def flags(**values):
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def kubernetes(binaries):
    """name -> argv, in the order of starting."""
    return {
        "etcd": [binaries / "etcd", "--unsafe-no-fsync"] + flags(
            data_dir=WORK / "etcd",
            log_level="error",
            listen_peer_urls="http://127.0.0.1:2380",
            listen_client_urls="http://127.0.0.1:2379",
            advertise_client_urls="http://127.0.0.1:2379",
        ),
        "kube-apiserver": [binaries / "kube-apiserver"] + flags(
            etcd_servers="http://127.0.0.1:2379",
            bind_address="127.0.0.1",
            secure_port=6443,
            tls_cert_file=PKI / "apiserver.crt",
            tls_private_key_file=PKI / "apiserver.key",
            client_ca_file=PKI / "ca.crt",
            service_account_key_file=PKI / "sa.pub",
            service_account_signing_key_file=PKI / "sa.key",
            service_account_issuer="https://kubernetes.default.svc",
            service_cluster_ip_range="10.0.0.0/24",
            authorization_mode="Node,RBAC",
            allow_privileged="true",
            endpoint_reconciler_type="none",
            kubelet_client_certificate=PKI / "admin.crt",
            kubelet_client_key=PKI / "admin.key",
            kubelet_preferred_address_types="InternalIP",
            audit_policy_file=WORK / "audit-policy.json",
            audit_log_path=AUDIT_LOG,
        ),
        "kube-controller-manager": [binaries / "kube-controller-manager"] + flags(
            kubeconfig=WORK / "controller-manager.kubeconfig",
            authentication_kubeconfig=WORK / "controller-manager.kubeconfig",
            authorization_kubeconfig=WORK / "controller-manager.kubeconfig",
            bind_address="127.0.0.1",
            service_account_private_key_file=PKI / "sa.key",
            root_ca_file=PKI / "ca.crt",
            use_service_account_credentials="true",
            leader_elect="false",
            flex_volume_plugin_dir=WORK / "kubelet/plugins-of-volumes",
        ),
        "containerd": [binaries / "containerd", "--config", WORK / "containerd.toml"],
        "kubelet": [binaries / "kubelet"] + flags(
            config=WORK / "kubelet.json",
            kubeconfig=WORK / "kubelet.kubeconfig",
            root_dir=WORK / "kubelet",
            cert_dir=WORK / "kubelet/pki",
            hostname_override=NODE,
            node_ip=NODE_ADDRESS,
        ),
        "kube-scheduler": [binaries / "kube-scheduler"] + flags(
            config=WORK / "kube-scheduler.yaml",
            bind_address="127.0.0.1",
            authentication_kubeconfig=WORK / "kube-scheduler.kubeconfig",
            authorization_kubeconfig=WORK / "kube-scheduler.kubeconfig",
        ),
    }


def ours():
    """name -> argv of our own programs; each has a kubeconfig with its ServiceAccount's token."""
    return {
        "hami-scheduler": [
            OURS["hami-scheduler"],
            "--http_bind=" + EXTENDER.removeprefix("https://"),
            f"--cert_file={PKI}/hami-scheduler.crt",
            f"--key_file={PKI}/hami-scheduler.key",
            "--scheduler-name=hami-scheduler",
            f"--device-config-file={WORK}/device-config.yaml",
            f"--metrics-bind-address={SCHEDULER_METRICS}",
            f"--kubeconfig={WORK}/hami-scheduler.kubeconfig",
            "--leader-elect=true",
            "--leader-elect-resource-name=hami-scheduler",
            f"--leader-elect-resource-namespace={NAMESPACE}",
        ],
        "hami-device-plugin": [
            OURS["hami-device-plugin"],
            f"--node-config-file={WORK}/node-config.json",
            f"--device-config-file={WORK}/device-config.yaml",
            f"--hook-path={HOOK}",
            f"--runtime-socket={CONTAINERD_SOCKET}",
            f"--kubeconfig={WORK}/hami-device-plugin.kubeconfig",
        ],
        "hami-vgpu-monitor": [
            OURS["hami-vgpu-monitor"],
            f"--metrics-bind-address={MONITOR_METRICS}",
            f"--hook-path={HOOK}",
            f"--kubeconfig={WORK}/hami-vgpu-monitor.kubeconfig",
            "--procfs=/proc",  # whose pids are not the whole machine's here, but all pods'
        ],
    }


def first_path():
    """PATH as it was when the cluster came up: another shell's is no reason to start a program anew."""
    kept = WORK / "path"
    if not kept.exists():
        kept.write_text(os.environ["PATH"])
    return kept.read_text()


def environment(name, binaries):
    if name not in OURS:
        return {"PATH": f"{binaries}:{first_path()}"}
    return {"NODE_NAME": NODE, "HAMI_SIM": str(SIM), "LD_LIBRARY_PATH": str(SIMDRIVER)}


# Starting and looking


def start(name, argv, binaries):
    """Tells the supervisor to keep it running; False where it does so already, in the same way."""
    spec = json.dumps({"argv": [str(a) for a in argv], "env": environment(name, binaries)}, indent=1)
    path = WORK / "programs" / f"{name}.json"
    if path.exists() and path.read_text() == spec:
        return False
    before = host.read_pid(name)
    path.with_suffix(".new").write_text(spec)
    path.with_suffix(".new").rename(path)
    # One that runs in another way is ended first: until then its answers are the old one's.
    if before and host.alive(before) and not host.until(lambda: not host.alive(before), 15):
        raise ClusterError(f"{name}, process {before}, runs with other arguments and does not end")
    return True


def forget(name):
    (WORK / "programs" / f"{name}.json").unlink(missing_ok=True)


def last_lines(name, count=15):
    path = WORK / "log" / f"{name}.log"
    if not path.exists():
        return f"(no {path})"
    return "\n".join(path.read_text(errors="replace").splitlines()[-count:])


def await_ready(name, condition, seconds):
    if not host.until(condition, seconds, 0.1):
        raise ClusterError(f"{name} did not come up in {seconds} s; its last lines:\n{last_lines(name)}")


def kill(name, number=signal.SIGKILL):
    """Kills a program as the out-of-memory killer would. Returns the process that is gone."""
    pid = host.read_pid(name)
    if pid is None or not host.ours(pid):
        raise ClusterError(f"{name} is not running")
    os.kill(pid, number)
    return pid


def back(name, gone, seconds=10):
    """Waits until the supervisor has started it again after `gone`."""
    return host.until(lambda: host.read_pid(name) not in (None, gone) and host.alive(host.read_pid(name)), seconds, 0.02)


def fetch(url, timeout=5, body=None):
    """Body of a page of ours, or of the answer to a JSON body; None where there is no answer of 200."""
    question = urllib.request.Request(url, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    context = ssl.create_default_context(cafile=PKI / "ca.crt") if url.startswith("https") else None
    try:
        with urllib.request.urlopen(question, timeout=timeout, context=context) as answer:
            return answer.read() if answer.status == 200 else None
    except (OSError, ValueError):
        return None


def clean_environment():
    """What a service manager gives its services: nothing of the caller's, such as a test runner's settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, MARK: str(WORK)}


def supervise():
    pid = host.read_pid("supervisor")
    if pid and host.ours(pid) and host.alive(pid):
        return
    with open(WORK / "log/supervisor.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, host.HERE / "supervisor.py", WORK], env=clean_environment(),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )
    (WORK / "pids/supervisor").write_text(f"{process.pid}\n")


def kube_scheduler_ready():
    context = ssl._create_unverified_context()  # its own, self-signed certificate
    try:
        with urllib.request.urlopen("https://127.0.0.1:10259/readyz", timeout=2, context=context) as answer:
            return answer.status == 200
    except OSError:
        return False


def cards():
    """UUIDs of the simulated machine's cards, in order."""
    shown = json.loads(host.output(HAMICTL, "sim", "show", "--json", SIM))
    return [gpu["uuid"] for gpu in shown["gpus"]]


def registered(api):
    """Whether the node says exactly the cards that the machine has, and kubelet offers them."""
    node = api.get(f"/api/v1/nodes/{NODE}")
    said = node["metadata"].get("annotations", {}).get(REGISTER, "[]")
    offered = int(node["status"].get("allocatable", {}).get(RESOURCE, 0))
    return offered > 0 and [card.get("id") for card in json.loads(said)] == cards()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long hami-scheduler needs until it is ready, beside a real API server that holds a large cluster.

The floor is curl, taking the same lists: nodes and pods at once, in pages that grow in the same way. Both are measured
in turns, and the quickest of each counts. As installed the policies of deploy/policy.yaml are in force, and the list of
pods is of their metadata; without them it is of whole pods, for curl as for us. Kubernetes' programs are those of the
test cluster (tests/cluster/build.py).

usage: ready.py [--build DIRECTORY] [--nodes N] [--pods N] [--rounds N]
"""

import argparse
import contextlib
import http.client
import importlib.util
import json
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parent.parent
ETCD, PEER, API, EXTENDER, METRICS = 32379, 32380, 36443, 39443, 39395
TARGET = 1.3
WRITERS = 16
WHOLE = "application/json"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
IN_FORCE = ("hami-device-plugin", "hami-pod-grants")  # what the scheduler asks for
RUNNING = urllib.parse.quote("spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
PAGE_FIRST, PAGE_MAX = 500, 8000
insecure = ssl._create_unverified_context()


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=40000)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def made():
    """bench/api.py's objects: a module that serves when it is run."""
    text = (SOURCE / "bench/api.py").read_text()
    names = {"__name__": "made"}
    exec(text[: text.index("class Handler")], names)
    return names


def binaries():
    sys.path.insert(0, str(SOURCE / "tests/cluster"))
    spec = importlib.util.spec_from_file_location("cluster_build", SOURCE / "tests/cluster/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build()


class Kubernetes:
    """etcd and an API server that believes everybody with the token."""

    def __init__(self, folder):
        programs = binaries()
        self.processes = []
        (folder / "tokens").write_text('bench,admin,1,"system:masters"\n')
        key = folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, stderr=subprocess.DEVNULL)
        etcd, peer = f"http://127.0.0.1:{ETCD}", f"http://127.0.0.1:{PEER}"
        self.start(
            folder, programs / "etcd", "--unsafe-no-fsync", f"--data-dir={folder}/etcd", "--log-level=error",
            f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
        )  # fmt: skip
        self.start(
            folder, programs / "kube-apiserver", f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
            f"--secure-port={API}", f"--cert-dir={folder}/certificates", f"--token-auth-file={folder}/tokens",
            "--authorization-mode=AlwaysAllow", f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition", "--endpoint-reconciler-type=none",
        )  # fmt: skip
        deadline = time.monotonic() + 90
        while not self.answers():
            if time.monotonic() > deadline:
                raise SystemExit("the API server does not come up:\n" + (folder / "kube-apiserver.log").read_text()[-2000:])
            time.sleep(0.2)

    def start(self, folder, *words):
        with (folder / f"{words[0].name}.log").open("w") as log:
            self.processes.append(subprocess.Popen([str(w) for w in words], stdout=log, stderr=log))

    def answers(self):
        try:
            question = urllib.request.Request(f"https://127.0.0.1:{API}/readyz", headers={"Authorization": "Bearer bench"})
            return urllib.request.urlopen(question, context=insecure, timeout=5).status == 200
        except OSError:
            return False

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def without_identity(text, kind):
    thing = json.loads(text) | {"apiVersion": "v1", "kind": kind}
    del thing["metadata"]["uid"], thing["metadata"]["resourceVersion"]
    return thing


def objects(nodes, pods):
    names = made()
    for number in range(nodes):
        yield "/api/v1/nodes", without_identity(names["node"](number), "Node")
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
    for number in range(pods):
        thing = without_identity(names["pod"](number, nodes), "Pod")
        where = thing["metadata"]["annotations"]["hami.io/vgpu-node"]
        inside = {"name": "main", "image": "registry.example/team/app:1.2.3", "resources": {"limits": limits, "requests": limits}}
        yield "/api/v1/namespaces/default/pods", thing | {"spec": {"nodeName": where, "containers": [inside]}}


def write(jobs, failed):
    connection = http.client.HTTPSConnection("127.0.0.1", API, context=insecure)
    for path, thing in jobs:
        connection.request("POST", path, json.dumps(thing), {"Content-Type": "application/json", "Authorization": "Bearer bench"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            failed.append(text)
            return


def fill(nodes, pods):
    jobs, failed = list(objects(nodes, pods)), []
    threads = [threading.Thread(target=write, args=(jobs[i::WRITERS], failed)) for i in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SystemExit(f"an object can't be made: {failed[0][:300]}")


def curl_list(folder, path, accept, more):
    page, token, out = PAGE_FIRST, "", folder / path.rsplit("/", 1)[1]
    while True:
        url = f"https://127.0.0.1:{API}{path}?limit={page}{more}" + (f"&continue={token}" if token else "")
        words = ["curl", "-sk", "-A", "bench", "-H", "Authorization: Bearer bench", "-H", f"Accept: {accept}", "-o", out, url]
        subprocess.run([str(w) for w in words], check=True)
        with out.open("rb") as text:
            found = re.search(rb'"continue":"([^"]+)"', text.read(2000))
        if not found:
            return
        token, page = found[1].decode(), min(page * 2, PAGE_MAX)


def floor(folder, accept):
    """Seconds for nodes, and pods as `accept` has them."""
    lists = (("/api/v1/nodes", WHOLE, ""), ("/api/v1/pods", accept, f"&fieldSelector={RUNNING}"))
    begun = time.monotonic()
    threads = [threading.Thread(target=curl_list, args=(folder, *row)) for row in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - begun


def is_ready():
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{EXTENDER}/readyz", timeout=30).status == 200
    except OSError:
        return False


def ours(build, folder):
    """Seconds, and private memory in KiB."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [build / "src/scheduler/hami-scheduler", f"--http_bind=127.0.0.1:{EXTENDER}", f"--metrics-bind-address=127.0.0.1:{METRICS}",
         f"--kubeconfig={folder}/kubeconfig", f"--device-config-file={SOURCE}/tests/data/vectors/config-default.yaml"],
        stderr=(folder / "log").open("w"),
    )  # fmt: skip
    try:
        while not is_ready():
            if process.poll() is not None:
                raise SystemExit((folder / "log").read_text())
            time.sleep(0.01)
        took = time.monotonic() - begun
        rollup = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        return took, sum(int(kib) for kib in re.findall(r"Private_(?:Clean|Dirty): +(\d+)", rollup))
    finally:
        process.kill()
        process.wait()


def kubeconfig(folder):
    text = {
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{API}", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "c", "user": {"token": "bench"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "current-context": "c",
    }  # fmt: skip
    (folder / "kubeconfig").write_text(json.dumps(text))


def install_policies():
    spec = {"validationActions": ["Deny"]}
    jobs = [(POLICIES, {"metadata": {"name": name}, "spec": spec | {"policyName": name}}) for name in IN_FORCE]
    failed = []
    write(jobs, failed)
    if failed:
        raise SystemExit(f"the policies can't be made: {failed[0][:300]}")


def measure(options, folder, accept, what):
    floors, times, kib = [], [], 0
    for _ in range(options.rounds):
        floors.append(floor(folder, accept))
        took, kib = ours(options.build.resolve(), folder)
        times.append(took)
    print(f"{what}: curl takes the lists in {min(floors):.2f} s; hami-scheduler is ready after {min(times):.2f} s")
    print(f"  {min(times) / min(floors):.2f} of the floor   target <= {TARGET}; private memory {kib / 1024:.1f} MiB", flush=True)


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="hami-bench-") as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        kubernetes = Kubernetes(folder)
        stack.callback(kubernetes.end)
        kubeconfig(folder)
        fill(options.nodes, options.pods)
        print(f"{options.nodes} nodes, {options.pods} pods, kube-apiserver and etcd of this machine; the quickest of {options.rounds}", flush=True)
        measure(options, folder, WHOLE, "without the policies, whole pods")
        install_policies()
        measure(options, folder, METADATA, "as installed, pods' metadata")


main()

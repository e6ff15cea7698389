#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node of a vendor that is made up (made_up.c): the plugin knows none, and serves as many resources as one has."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from api import Api
from kubelet import Kubelet, with_grpc

with_grpc(BUILD, skip)

PODS, NODES, NODE = "/api/v1/pods", "/api/v1/nodes", "node-1"
SMALL, LARGE = "acme.example/made-up", "acme.example/made-up-large"


def pod(name, allocated):
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}",
                     "annotations": {"acme.example/allocated": allocated, "acme.example/to-allocate": allocated, "hami.io/vgpu-node": NODE}},
        "spec": {"nodeName": NODE, "containers": [{"name": "main"}]},
        "status": {"phase": "Pending"},
    }


def main():
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    cards, ready, log = folder / "cards", folder / "ready", open(folder / "log", "w+")
    cards.write_text("S-0 0 ok\nS-1 0 ok\nL-0 1 ok\n")
    node = {"metadata": {"name": NODE, "uid": "n", "resourceVersion": "1"}, "status": {"nodeInfo": {"kubeletVersion": "v1.35.4"}}}
    api = Api(objects={PODS: {}, NODES: {NODE: node}})
    kubelet = Kubelet(folder / "kubelet")
    words = [BUILD / "tests/made_up_plugin", folder, api.kubeconfig(folder / "kubeconfig"), ready]
    plugin = start(words, os.environ | {"MADE_UP": str(cards), "no_proxy": "*"}, stderr=log)

    channels, lists = {}, {}
    for _ in range(2):
        got = kubelet.connect()
        channels[got["resource"]] = kubelet.channel
        lists[got["resource"]] = kubelet.lists.get(timeout=30)
        if len(channels) == 1:
            time.sleep(0.3)
            check(not ready.exists(), "it is not ready while kubelet listens to one of them")
    check_equal(lists, {SMALL: {"S-0::0": "Healthy", "S-1::0": "Healthy"}, LARGE: {"L-0::0": "Healthy"}}, "each resource has its own devices")
    check(wait_until(ready.exists), "it is ready when kubelet listens to both")
    written = lambda: api.objects[NODES][NODE]["metadata"].get("annotations", {}).get("acme.example/registered")
    check(wait_until(lambda: written() == "S-0=ok S-1=ok L-0=ok "), "the Node has the vendor's annotation", written())

    api.put(PODS, "p", **pod("p", "S-1,Made-Up,1000,100:;"))
    kubelet.channel, kubelet.resource = channels[SMALL], SMALL
    check_equal(kubelet.allocate(["L-0::0"])[0], "INVALID_ARGUMENT", "a resource does not know the other's devices")
    status, names = kubelet.allocate(["S-0::0"])
    kubelet.hold(api.objects[PODS]["p"], "main", ["S-0::0"])
    check_equal((status, kubelet.prestart(["S-0::0"])), ("OK", ("OK", b"")), "a container starts")
    spec = json.loads((folder / f"cdi/hami-{names[0].partition('=')[2]}.json").read_text())
    edits = spec["devices"][0]["containerEdits"]
    check_equal(edits, {"env": ["HAMI_POD_UID=uid-p", "HAMI_CONTAINER=main"],
                        "deviceNodes": [{"path": "/dev/made-up1", "hostPath": "/dev/made-up1", "permissions": "rw"}]},
                "with the device node of its card, and nothing of another vendor's")
    check_equal(sorted(p.name for p in (folder / "vgpu").rglob("*") if p.is_file()), ["made-up", "pod"], "and the vendor's file beside the record")
    done = lambda: api.objects[PODS]["p"]["metadata"]["annotations"]
    check(wait_until(lambda: done().get("hami.io/bind-phase") == "success" and done()["acme.example/to-allocate"] == ";"), "its pod is told to have what it was given", done())

    api.put(PODS, "q", **pod("q", "L-0,Made-Up,1000,100:;"))
    kubelet.channel, kubelet.resource = channels[LARGE], LARGE
    kubelet.release(api.objects[PODS]["p"])
    kubelet.hold(api.objects[PODS]["q"], "main", ["L-0::0"])
    check_equal(kubelet.prestart(["L-0::0"]), ("OK", b""), "so does one with the other resource, which is looked for by its own name")

    told = lambda: [e for e in api.told if e["reason"] == "TooManyInstances"]
    full = folder / "cards.full"
    for times in (1, 2):
        full.touch()
        for _ in range(2):
            kubelet.prestart(["L-0::0"])
        check(wait_until(lambda: len(told()) == times), "that more parts of cards are wanted than there can be is an event of the Node, once", told())
        full.unlink()
        kubelet.prestart(["L-0::0"])
    check_equal((len(told()), told()[0]["involvedObject"]["kind"], told()[0]["type"]), (2, "Node", "Warning"), "and again when it was over in between")

    cards.write_text("S-0 0 ok\nS-1 0 ok\nL-0 1 sick\n")
    told = kubelet.lists.get(timeout=20) | kubelet.lists.get(timeout=20)
    check_equal(told, {"S-0::0": "Healthy", "S-1::0": "Healthy", "L-0::0": "Unhealthy"}, "a sick card is its own resource's matter")
    cards.unlink()
    told = kubelet.lists.get(timeout=20) | kubelet.lists.get(timeout=20)
    check_equal(set(told.values()), {"Unhealthy"}, "where the vendor finds nothing no card is healthy")
    plugin.terminate()
    check_equal(plugin.wait(30), 0, "it ends on SIGTERM")
    kubelet.stop()
    api.close()


main()
finish()

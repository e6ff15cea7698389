#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""As much of an API server as hami-scheduler reads: nodes of 8 cards and pods placed on them, in pages, and watches
that say nothing. SIGUSR1 ends the watches as an API server does that has forgotten where they were (410).

usage: api.py NODES PODS   prints its port
"""

import http.server
import json
import random
import signal
import socketserver
import sys
import threading
import urllib.parse

CARDS, CARD_MIB = 8, 81920
forgotten = threading.Condition()
generation = 0


def uuid(node, card):
    return f"GPU-{node:08x}-0000-0000-0000-{card:012d}"


def node(number):
    cards = [
        {
            "id": uuid(number, card), "index": card, "count": 10, "devmem": CARD_MIB, "devcore": 100, "custominfo": {"lock": "none"},
            "type": "NVIDIA A100-SXM4-80GB", "numa": card // 4, "mode": "hami-core", "health": True,
        }
        for card in range(CARDS)
    ]
    return json.dumps(
        {
            "metadata": {
                "name": f"node-{number:05d}.example", "uid": f"{number}", "resourceVersion": "1",
                "annotations": {"hami.io/node-nvidia-register": json.dumps(cards)},
                "labels": {"kubernetes.io/hostname": f"node-{number:05d}.example", "kubernetes.io/os": "linux"},
            },
            "status": {
                "allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "80"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    ).encode()


def pod(number, nodes):
    place = random.Random(number)
    where = place.randrange(nodes)
    given = f"{uuid(where, number % CARDS)},NVIDIA,{place.randrange(1, 8) * 1024},{place.randrange(0, 10)}:;"
    return json.dumps(
        {
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {
                "name": f"pod-{number:06d}", "namespace": "default", "resourceVersion": "1",
                "uid": f"00000000-0000-0000-0000-{number:012d}",
                "labels": {"app": "bench", "hami.io/vgpu-node": f"node-{where:05d}.example"},
                "annotations": {
                    "hami.io/vgpu-node": f"node-{where:05d}.example", "hami.io/vgpu-time": "1700000000",
                    "hami.io/vgpu-devices-allocated": given, "hami.io/vgpu-devices-to-allocate": "",
                    "hami.io/bind-phase": "success", "hami.io/bind-time": "1700000000",
                },
            },
        }
    ).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_GET(self):
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        if query.get("sendInitialEvents"):
            self.answer(400, b'{"kind":"Status","code":400,"message":"sendInitialEvents is forbidden"}')
        elif "validatingadmissionpolicybindings" in path:
            self.answer(200, b"{}")  # so metadata are all that is read of pods
        elif query.get("watch"):
            self.watch()
        else:
            self.page(objects[path], int(query.get("continue") or 0), int(query.get("limit") or 500))

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        """Whether nodes may be patched: no."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer(201, b'{"status":{"allowed":false}}')

    def page(self, items, first, limit):
        more = str(first + limit) if first + limit < len(items) else ""
        head = json.dumps({"resourceVersion": "1", "continue": more}).encode()
        self.answer(200, b'{"metadata":' + head + b',"items":[' + b",".join(items[first : first + limit]) + b"]}")

    def watch(self):
        with forgotten:
            before = generation
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            forgotten.wait_for(lambda: generation != before)
        gone = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
        self.wfile.write(f"{len(gone):x}\r\n".encode() + gone + b"\r\n0\r\n\r\n")


def forget(*_):
    def tell():
        global generation
        with forgotten:
            generation += 1
            forgotten.notify_all()

    threading.Thread(target=tell).start()


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


nodes, pods = int(sys.argv[1]), int(sys.argv[2])
objects = {
    "/api/v1/nodes": [node(n) for n in range(nodes)],
    "/api/v1/pods": [pod(n, nodes) for n in range(pods)],
    "/api/v1/resourcequotas": [],
}
signal.signal(signal.SIGUSR1, forget)
server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()

# SPDX-License-Identifier: Apache-2.0
"""kubelet as a device plugin sees it: registration, pod resources, the checkpoint, and its calls.

The gRPC library is the real one, Google's; with_grpc() goes on with an interpreter that has it.
Messages are packed by hand, so that nothing here comes from the same definitions as the plugin's.
"""

import concurrent.futures
import json
import os
import pathlib
import queue
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from packages import interpreter

PACKAGE = "grpcio==1.76.0"


def with_grpc(build, skip):
    """Goes on in an interpreter that has grpcio."""
    try:
        import grpc  # noqa: F401
    except ImportError:
        python = str(interpreter(build / "kubelet", [PACKAGE], skip))
        os.execv(python, [python, *sys.argv])


# Protocol buffers, by hand.


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, (bool, int)):
        return varint(number << 3) + varint(int(value)) if value else b""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def unpack(data):
    """[(number, value)], values int or bytes."""
    out, at = [], 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = read()
        if tag & 7 == 0:
            out.append((tag >> 3, read()))
        else:
            length = read()
            out.append((tag >> 3, data[at : at + length]))
            at += length
    return out


def texts(data, number):
    return [v.decode() for n, v in unpack(data) if n == number]


RAW = dict(request_serializer=lambda b: b, response_deserializer=lambda b: b)


class Kubelet:
    """A kubelet whose folder is given. It holds devices for containers as the test says."""

    def __init__(self, folder, resource="nvidia.com/gpu"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.resource = resource
        self.registrations = queue.Queue()
        self.lists = queue.Queue()
        self.pods = {}  # (namespace, name) -> {container: [ids]}
        self.checkpoint = []  # (uid, container, ids)
        self.with_checkpoint = True
        self.channel = None
        self.channels = []  # those of earlier registrations, which kubelet leaves open
        self.lost = 0  # streams that a plugin's side ended: kubelet drops its present plugin for each
        self.start()

    def start(self):
        import grpc

        class Handler(grpc.GenericRpcHandler):
            def service(handler, call):
                method = {
                    "/v1beta1.Registration/Register": self.on_register,
                    "/v1.PodResourcesLister/List": self.on_list,
                }.get(call.method)
                return method and grpc.unary_unary_rpc_method_handler(
                    method, request_deserializer=lambda b: b, response_serializer=lambda b: b
                )

        self.stopping = False
        for path in self.folder.glob("*"):
            if not path.is_dir() and path.name != "kubelet_internal_checkpoint":
                path.unlink()
        self.servers = []
        for name in ("kubelet.sock", "podresources.sock"):
            server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
            server.add_generic_rpc_handlers((Handler(),))
            server.add_insecure_port(f"unix://{self.folder}/{name}")
            server.start()
            self.servers.append(server)

    def stop(self):
        for server in self.servers:
            server.stop(None).wait()
        self.stopping = True
        for channel in self.channels:
            channel.close()
        self.channel = None
        self.channels = []

    def on_register(self, request, context):
        got = dict(unpack(request))
        self.registrations.put({
            "version": got[1].decode(), "endpoint": got[2].decode(), "resource": got[3].decode(),
            "options": dict(unpack(got.get(4, b""))),
        })
        return b""

    def on_list(self, request, context):
        out = b""
        for (namespace, name), containers in list(self.pods.items()):
            pod = field(1, name) + field(2, namespace)
            for container, ids in containers.items():
                devices = field(1, self.resource) + b"".join(field(2, i) for i in ids)
                pod += field(3, field(1, container) + (field(2, devices) if ids else b""))
            out += field(1, pod)
        return out

    def write_checkpoint(self):
        entries = [
            {"PodUID": uid, "ContainerName": container, "ResourceName": self.resource, "DeviceIDs": {"-1": ids}, "AllocResp": ""}
            for uid, container, ids in self.checkpoint
        ]
        text = json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1})
        (self.folder / "kubelet_internal_checkpoint").write_text(text)

    def connect(self):
        """After a registration: listens to the list, as kubelet does."""
        import grpc

        got = self.registrations.get(timeout=10)
        # As kubelet before 1.26 dials: the path is the authority.
        path = f"{self.folder}/{got['endpoint']}"
        # Of its own: grpc shares connections by their address, and behind it may be another plugin by now.
        options = [("grpc.default_authority", path), ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"unix://{path}", options=options)
        self.channels.append(self.channel)
        self.stream = self.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch", **RAW)(b"")
        threading.Thread(target=self.listen, args=(self.stream,), daemon=True).start()
        return got

    def listen(self, stream):
        import grpc

        try:
            for message in stream:
                devices = [dict(unpack(d)) for n, d in unpack(message) if n == 1]
                self.lists.put({d[1].decode(): d[2].decode() for d in devices})
        except grpc.RpcError:
            pass
        self.lost += not self.stopping

    def call(self, method, message=b"", timeout=20):
        """(status name, details or the answer's bytes)"""
        import grpc

        try:
            return "OK", self.channel.unary_unary(f"/v1beta1.DevicePlugin/{method}", **RAW)(message, timeout=timeout)
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def allocate(self, *containers):
        """The CDI names for each container's list of ids."""
        status, answer = self.call("Allocate", b"".join(field(1, b"".join(field(1, i) for i in ids)) for ids in containers))
        if status != "OK":
            return status, answer
        return status, [dict(unpack(dict(unpack(r))[5]))[1].decode() for n, r in unpack(answer) if n == 1]

    def prestart(self, ids):
        return self.call("PreStartContainer", b"".join(field(1, i) for i in ids))

    def hold(self, pod, container, ids, init=False):
        """kubelet's bookkeeping of an allocation; init containers are not told of."""
        metadata = pod["metadata"]
        key = metadata["namespace"], metadata["name"]
        self.pods.setdefault(key, {c["name"]: [] for c in pod["spec"]["containers"]})
        if not init:
            self.pods[key][container] = ids
        self.checkpoint.append((metadata["uid"], container, ids))
        if self.with_checkpoint:
            self.write_checkpoint()

    def release(self, pod):
        metadata = pod["metadata"]
        self.pods.pop((metadata["namespace"], metadata["name"]), None)
        self.checkpoint = [e for e in self.checkpoint if e[0] != metadata["uid"]]
        if self.with_checkpoint:
            self.write_checkpoint()

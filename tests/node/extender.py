# SPDX-License-Identifier: Apache-2.0
"""hami-scheduler as a process beside a node's agent, and kube-scheduler's questions to it."""

import json
import os
import socket
import urllib.request

from harness import BUILD, SOURCE, start


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Extender:
    """kubeconfig: of the API server that it is to use."""

    def __init__(self, kubeconfig, **options):
        self.port = free_port()
        arguments = [f"--http_bind=127.0.0.1:{self.port}", f"--metrics-bind-address=127.0.0.1:{free_port()}", f"--kubeconfig={kubeconfig}",
                     f"--device-config-file={SOURCE}/tests/data/vectors/config-default.yaml", "--bind-timeout=100ms"]
        self.program = start([BUILD / "src/scheduler/hami-scheduler", *arguments], os.environ | {"no_proxy": "*"}, **options)

    def ask(self, path, body=None):
        """The answer's text; "" without one."""
        try:
            question = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body and json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(question, timeout=30) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def place(self, pod, node):
        """The nodes that it names for a pod that may be on this one; "no answer" without one."""
        return json.loads(self.ask("/filter", {"Pod": pod, "NodeNames": [node]}) or '{"NodeNames": "no answer"}').get("NodeNames")

    def bind(self, name, node):
        """Why the pod was not bound; "" if it was."""
        body = {"PodName": name, "PodNamespace": "ns", "PodUID": f"uid-{name}", "Node": node}
        return json.loads(self.ask("/bind", body) or '{"Error": "no answer"}').get("Error", "")

    def end(self):
        self.program.terminate()
        self.program.wait(30)

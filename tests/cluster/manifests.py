# SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/, read and applied by kubectl."""

import json

import host
import programs
from host import DEPLOY, ClusterError


def kubectl(binaries, *words, **options):
    fixed = ("--kubeconfig", programs.ADMIN, "--cache-dir", host.WORK / "kubectl")
    return host.output(binaries / "kubectl", *fixed, *words, **options)


def read(binaries, manifest):
    """A shipped manifest as a list of objects."""
    text = kubectl(binaries, "create", "--dry-run=client", "-o", "json", "-f", DEPLOY / manifest)
    decoder, objects = json.JSONDecoder(), []
    while text.strip():
        found, end = decoder.raw_decode(text.lstrip())
        text = text.lstrip()[end:]
        objects += found["items"] if found["kind"] == "List" else [found]
    return objects


def config(binaries, manifest, name, key):
    """A file in a shipped ConfigMap."""
    for thing in read(binaries, manifest):
        if thing["kind"] == "ConfigMap" and thing["metadata"]["name"] == name:
            return thing["data"][key]
    raise ClusterError(f"deploy/{manifest} has no ConfigMap {name}")


def apply(binaries, *names):
    for name in names:
        kubectl(binaries, "apply", "--server-side", "--validate=strict", "-f", DEPLOY / name)


def apply_objects(binaries, objects):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl(binaries, "apply", "--server-side", "--validate=strict", "-f", "-", input=text)


def scheduler_rights(binaries):
    """Those of scheduler.yaml. The kube-scheduler here is a user of its own, so that their requests can be told apart."""
    things = [t for t in read(binaries, "scheduler.yaml") if t["kind"] in ("Role", "RoleBinding")]
    for binding in [t for t in things if t["kind"] == "RoleBinding"]:
        binding["subjects"].append({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-scheduler"})
    return things

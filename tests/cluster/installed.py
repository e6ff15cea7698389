#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests as docs/install.md has them: the programs run in pods, from their image, with the rights they ship with.

    installed.py [upgrade]      and then the device plugin is replaced while pods come

Changed for this cluster, which has no service addresses, no NVIDIA runtime, and no second scheduler to place
the first: pods are put on the node, use its network, are told where the API server is, and node agents see
the simulated machine.
"""

from support import *

import images
import manifests
import pki
from images import image

NAME = "docker.io/library/hami:0.1.0"
SCHEDULER_NAME = "registry.k8s.io/kube-scheduler:v1.35.4"
SUPERVISED = ["kube-scheduler", *programs.OURS]


def import_image(path):
    images.ctr(BINARIES, "images", "import", path)


def make_images(folder):
    run_quietly("meson", "install", "-C", host.BUILD, "--no-rebuild", "--destdir", folder / "tree")
    run_quietly(host.DEPLOY / "image.py", "--tree", folder / "tree", "--name", NAME, "--output", folder / "hami.tar")
    import_image(folder / "hami.tar")
    size = (folder / "hami.tar").stat().st_size / MIB
    check(size <= 40, f"the image is {size:.1f} MiB, at most 40")
    image.write(folder / "kube-scheduler.tar", SCHEDULER_NAME, {"/usr/local/bin/kube-scheduler": BINARIES / "kube-scheduler"})
    import_image(folder / "kube-scheduler.tar")


def run_quietly(*words):
    host.run(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def mount(spec, name, path, read_only):
    spec["volumes"].append({"name": name, "hostPath": {"path": str(path)}})
    for inside in spec["containers"]:
        inside["volumeMounts"].append({"name": name, "mountPath": str(path), "readOnly": read_only})


def fit(thing):
    """A Deployment or DaemonSet, as it can run here."""
    if thing["kind"] == "Deployment":
        thing["spec"]["replicas"] = 1  # of this one node, whose ports and host name they would share
    spec = thing["spec"]["template"]["spec"]
    spec["nodeName"] = NODE
    spec["hostNetwork"] = True
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    if thing["metadata"]["name"] == "hami-device-plugin":
        environment |= {"HAMI_SIM": str(programs.SIM), "LD_LIBRARY_PATH": str(programs.SIMDRIVER)}
        mount(spec, "machine", programs.SIM.parent, False)
        mount(spec, "driver", programs.SIMDRIVER, True)
    for inside in spec["containers"]:
        inside["env"] = inside.get("env", []) + [{"name": k, "value": v} for k, v in environment.items()]
    return thing


def shipped():
    things = manifests.read(BINARIES, "scheduler.yaml") + manifests.read(BINARIES, "node.yaml")
    return [fit(t) if t["kind"] in ("Deployment", "DaemonSet") else t for t in things if t["kind"] != "Service"]


def secret():
    files = {"ca.crt": "ca.crt", "tls.crt": "hami-scheduler.crt", "tls.key": "hami-scheduler.key"}
    text = {name: (pki.PKI / file).read_text() for name, file in files.items()}
    return {
        "apiVersion": "v1", "kind": "Secret", "stringData": text,
        "metadata": {"name": "hami-scheduler-tls", "namespace": NAMESPACE},
    }


def remove(things):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": things})
    manifests.kubectl(BINARIES, "delete", "--ignore-not-found", "-f", "-", input=text, stderr=subprocess.DEVNULL)
    wait_until(lambda: not pods(NAMESPACE), 30, 0.1)


def all_ready():
    found = [c for p in pods(NAMESPACE) for c in p["status"].get("conditions", []) if c["type"] == "Ready"]
    return len(found) == 3 and all(c["status"] == "True" for c in found)


def say_why():
    for thing in pods(NAMESPACE):
        name = thing["metadata"]["name"]
        print(f"      {name}: {why(NAMESPACE, name)}")
        for inside in thing["spec"]["containers"]:
            print(f"      {inside['name']}: {logs(NAMESPACE, name, inside['name'])[-1000:]}")


def check_install(things):
    manifests.apply_objects(BINARIES, things)
    if not check(wait_until(all_ready, 60, 0.2), "scheduler, device plugin and monitor are ready in pods"):
        say_why()
        return
    check(wait_until(registered, 40, 0.1), "the node has registered its card", node_register())
    namespace = new_namespace("installed")
    # Another user's files are what the node agents' capabilities are for.
    user = {"runAsUser": 1000, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    command = ("/bin/slice", "--hold", "2800", "--then", "400", "--stay")
    create(namespace, pod("first", container(command=command, limits=share(1, 3000, 10), securityContext=user)))
    if not check(wait_running(namespace, ["first"]) is not None, "a pod with a share runs"):
        say_why()
        return
    seen = check_share(namespace, "first", 3000) or {}
    check_equal((seen.get("hold"), seen.get("then")), (0, 2), "and is held to it")
    labels = {"namespace": namespace, "pod": "first"}
    used = wait_until(lambda: sample(samples(programs.MONITOR_METRICS), "hami_vgpu_memory_used_bytes", **labels), 20)
    check(used, "the monitor, without privileges, reports it")
    known = wait_until(lambda: sample(samples(programs.MONITOR_METRICS), "hami_monitor_nvml_up") == 1, 20)
    check(known, "and, without access to the cards, what they do")
    if "upgrade" in sys.argv:
        check_upgrade(namespace)
    check(delete(namespace, "first"), "it goes")
    gone = wait_until(lambda: not list((host.HOOK / "containers").glob("*")), 30)
    check(gone, "and the device plugin, without privileges, removes what it left")


def check_webhook_is_valid():
    """Under another name: the one in force has another address."""
    (webhook,) = manifests.read(BINARIES, "webhook.yaml")
    webhook["metadata"]["name"] = "hami-webhook-again"
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?dryRun=All&fieldValidation=Strict"
    try:
        api.create(path, webhook)
        check(True, "the API server takes webhook.yaml")
    except ApiError as error:
        check(False, "the API server takes webhook.yaml", error)


def check_upgrade(namespace):
    """A new plugin comes before the old one goes: a running pod does not notice, nor one that comes.

    When the old one ends kubelet calls its devices unhealthy until the new one speaks again, some milliseconds: a
    pod that comes to it just then is rejected. That may meet one of these, half a second apart.
    """
    before = statuses(get(namespace, "first"))
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/hami-device-plugin"
    old = {p["metadata"]["name"] for p in pods(NAMESPACE)}
    api.patch(path, {"spec": {"template": {"metadata": {"annotations": {"again": "1"}}}}})
    names = [f"coming-{i}" for i in range(40)]
    for name in names:
        create(namespace, slice_pod(name, 500, 2, command=("/bin/slice",)))
        time.sleep(0.2)
    phases = lambda: {p["metadata"]["name"]: p["status"].get("phase") for p in pods(namespace)}
    ended = wait_until(lambda: all(phases()[name] in ("Succeeded", "Failed") for name in names), 120, 0.2)
    failed = {p["metadata"]["name"]: (p["status"].get("reason"), p["status"].get("message")) for p in pods(namespace) if p["status"].get("phase") == "Failed"}
    check(ended and not failed, "no pod is lost that comes while the device plugin is replaced", failed, phases())
    replaced = wait_until(lambda: len({p["metadata"]["name"] for p in pods(NAMESPACE)} - old) == 1 and all_ready(), 30, 0.2)
    check(replaced, "and it is replaced")
    check_equal(statuses(get(namespace, "first")), before, "the running pod was left alone")
    for name in names:
        api.delete(pods_path(namespace, name))
    create(namespace, slice_pod("after", 500, 2))
    check(wait_running(namespace, ["after"]) is not None, "the new device plugin serves")
    check(delete(namespace, "after"), "and goes on")


def check_valid():
    check_webhook_is_valid()
    # What else is in monitoring/ is of kinds that only Prometheus' operator brings.
    for path in sorted(set(host.DEPLOY.glob("*.yaml")) - {host.DEPLOY / "webhook.yaml"}) + [host.DEPLOY / "monitoring/dashboard.yaml"]:
        words = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", path)
        try:
            manifests.kubectl(BINARIES, *words, stderr=subprocess.STDOUT)
            check(True, f"the API server takes {path.name}")
        except subprocess.CalledProcessError as error:
            check(False, f"the API server takes {path.name}", error.output)


def main():
    check_valid()
    need()
    use_machine(1)
    folder = WORK / "images"
    make_images(folder)
    api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"gpu": "on"}}})
    things = [secret(), *shipped()]
    with held(*SUPERVISED):
        try:
            check_install(things)
        finally:
            remove(things)
            # Some of them are the rights of the programs outside of pods, too.
            manifests.apply_objects(BINARIES, manifests.scheduler_rights(BINARIES))
    check(wait_until(registered, 40, 0.1), "the programs outside of pods are back")
    finish()


if __name__ == "__main__":
    main()

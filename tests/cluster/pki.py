# SPDX-License-Identifier: Apache-2.0
"""Keys, certificates and kubeconfigs of the test cluster: one authority, one certificate for each program."""

import json
import subprocess

from host import NODE, NODE_ADDRESS, WORK, run

SERVER = "https://127.0.0.1:6443"

# name, subject, alternative names
CERTIFICATES = [
    ("apiserver", "/CN=kube-apiserver", "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.0.0.1"),
    ("admin", "/O=system:masters/CN=admin", "DNS:admin"),
    ("kube-scheduler", "/CN=system:kube-scheduler", "DNS:kube-scheduler"),
    ("controller-manager", "/CN=system:kube-controller-manager", "DNS:controller-manager"),
    ("kubelet", f"/O=system:nodes/CN=system:node:{NODE}", f"DNS:{NODE},IP:{NODE_ADDRESS}"),
    ("hami-scheduler", "/CN=hami-scheduler", "DNS:localhost,DNS:hami-scheduler.hami-system.svc,IP:127.0.0.1"),
]
USERS = ["admin", "kube-scheduler", "controller-manager", "kubelet"]
PKI = WORK / "pki"


def openssl(*words, **options):
    return run("openssl", *words, stderr=subprocess.DEVNULL, **options)


def new_key(name):
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", PKI / f"{name}.key")


def new_certificate(name, subject, names):
    new_key(name)
    extensions = PKI / f"{name}.ext"
    lines = [f"subjectAltName={names}", "extendedKeyUsage=serverAuth,clientAuth", "subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid"]
    extensions.write_text("\n".join(lines) + "\n")
    request = openssl(
        "req", "-new", "-key", PKI / f"{name}.key", "-subj", subject, stdout=subprocess.PIPE
    ).stdout
    openssl(
        "x509", "-req", "-CA", PKI / "ca.crt", "-CAkey", PKI / "ca.key", "-CAcreateserial", "-days", 3650,
        "-extfile", extensions, "-out", PKI / f"{name}.crt", input=request,
    )


def kubeconfig(name, user):
    """A kubeconfig in JSON, which is YAML, too."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": SERVER, "certificate-authority": str(PKI / "ca.crt")}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        "current-context": "test",
    }
    path = WORK / f"{name}.kubeconfig"
    path.write_text(json.dumps(config, indent=2) + "\n")
    path.chmod(0o600)
    return path


def make():
    if (PKI / "sa.pub").exists():
        return
    PKI.mkdir(parents=True, exist_ok=True, mode=0o700)
    new_key("ca")
    # What it may do is said: newer verifiers insist.
    openssl(
        "req", "-x509", "-new", "-key", PKI / "ca.key", "-subj", "/CN=test-ca", "-days", 3650, "-out", PKI / "ca.crt",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    for row in CERTIFICATES:
        new_certificate(*row)
    for name in USERS:
        files = {"client-certificate": str(PKI / f"{name}.crt"), "client-key": str(PKI / f"{name}.key")}
        kubeconfig(name, files)
    openssl("genrsa", "-out", PKI / "sa.key", 2048)
    openssl("rsa", "-in", PKI / "sa.key", "-pubout", "-out", PKI / "sa.pub")

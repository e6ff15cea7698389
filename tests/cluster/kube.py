# SPDX-License-Identifier: Apache-2.0
"""A small client of the Kubernetes API: JSON over TLS, by certificate or by token."""

import http.client
import json
import ssl
import threading
import urllib.parse

from pki import PKI

HOST, PORT = "127.0.0.1", 6443
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """An answer that is not a success: its status, and the server's words."""

    def __init__(self, status, body):
        self.status = status
        try:
            self.message = json.loads(body)["message"]
        except (ValueError, KeyError, TypeError):
            self.message = body.decode(errors="replace")
        super().__init__(f"{status}: {self.message}")


class Api:
    """One caller of the API. Threads may share it: each has a connection of its own."""

    def __init__(self, token=None):
        self.token = token
        self.tls = ssl.create_default_context(cafile=PKI / "ca.crt")
        if token is None:
            self.tls.load_cert_chain(PKI / "admin.crt", PKI / "admin.key")
        self.local = threading.local()

    def send(self, method, path, body, kind, timeout):
        headers = {"Content-Type": kind} if body is not None else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(HOST, PORT, context=self.tls, timeout=timeout)
            self.local.connection = connection
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def raw(self, method, path, body=None, kind="application/json", timeout=30):
        """Status and bytes. A connection that went stale between two requests is opened once more."""
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(2):
            try:
                return self.send(method, path, data, kind, timeout)
            except (http.client.HTTPException, OSError) as error:
                self.local.connection.close()
                self.local.connection = None
                if attempt or method != "GET":
                    raise ConnectionError(f"{method} {path}: {error!r}") from error

    def call(self, method, path, body=None, **options):
        status, answer = self.raw(method, path, body, **options)
        if status >= 300:
            raise ApiError(status, answer)
        return json.loads(answer) if answer[:1] in (b"{", b"[") else answer.decode(errors="replace")

    def get(self, path, **query):
        return self.call("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""))

    def find(self, path):
        """The object, or None where there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path, body):
        return self.call("POST", path, body)

    def patch(self, path, body, strategic=False):
        return self.call("PATCH", path, body, kind=STRATEGIC if strategic else MERGE)

    def delete(self, path, grace=None):
        try:
            return self.call("DELETE", path, None if grace is None else {"gracePeriodSeconds": grace})
        except ApiError as error:
            if error.status != 404:
                raise
        return None

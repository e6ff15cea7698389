# SPDX-License-Identifier: Apache-2.0
"""A small API server: enough of list, watch, patch and their failures to judge a client by.

Objects are kept in a dictionary per collection path, with one counter of resource versions and a log of
events. What goes wrong is told to it: `refuse` (statuses to answer next), `cut` (bytes after which the
next answer's connection is closed), `oldest` (watches from before it are told 410).
"""

import http.server
import json
import socket
import threading
import time
import urllib.parse


class Api:
    def __init__(self, watch_list=True, objects=None, port=0, token=None, tls=None, address="127.0.0.1"):
        self.watch_list = watch_list
        self.lock = threading.Condition()
        self.version = 1000
        self.oldest = 0
        self.objects = objects or {}
        self.events = []
        self.told = []  # events for people that were written
        self.requests = []  # (method, path, query, body, headers)
        self.refuse = []  # (status, headers) or a function of the request
        self.cut = []  # bytes to send before the connection is cut
        self.token = token
        self.connections = set()
        self.stalled = False  # a streamed list is answered, and nothing follows
        self.between_s = 0  # two objects of a streamed list
        self.held = None  # an event that lists wait for between their snapshot and their first object
        self.quiet = False  # watches bring nothing for now
        self.snapshots = 0  # lists whose snapshot was taken
        self.generation = 0
        self.host = f"[{address}]" if ":" in address else address
        kind = type("Server", (http.server.ThreadingHTTPServer,), {"address_family": socket.AF_INET6 if ":" in address else socket.AF_INET})
        self.server = kind((address, port), self.handler())
        self.scheme = "http"
        if tls:
            self.scheme = "https"
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # clients may be killed
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def url(self):
        return f"{self.scheme}://{self.host}:{self.port}"

    def kubeconfig(self, path, user="{}", cluster=""):
        path.write_text(
            f'clusters: [{{name: a, cluster: {{server: "{self.url()}"{cluster}}}}}]\n'
            f"users: [{{name: u, user: {user}}}]\n"
            "contexts: [{name: c, context: {cluster: a, user: u}}]\ncurrent-context: c\n"
        )
        return path

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.cut_all()

    def cut_all(self):
        """Every connection is closed, as by a server that is killed."""
        with self.lock:
            self.generation += 1
            self.lock.notify_all()
            for connection in list(self.connections):
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def put(self, path, name, kind="MODIFIED", **more):
        """Makes or changes an object and tells the watchers; more is merged into it."""
        with self.lock:
            self.version += 1
            collection = self.objects.setdefault(path, {})
            old = collection.get(name)
            thing = json.loads(json.dumps(old)) if old else {"metadata": {"name": name}}
            merge(thing, more)
            thing["metadata"]["resourceVersion"] = str(self.version)
            collection[name] = thing
            self.events.append((self.version, path, kind if old else "ADDED", thing))
            self.lock.notify_all()
            return thing

    def put_status(self, path, name, patch):
        """A strategic merge patch: conditions are merged by their type. Nothing but the status changes."""
        status = dict(patch.get("status", {}))
        old = self.objects[path][name].get("status", {}).get("conditions", [])
        new = {c["type"]: c for c in old}
        for condition in status.get("conditions", []):
            new[condition["type"]] = new.get(condition["type"], {}) | condition
        return self.put(path, name, status=status | {"conditions": list(new.values())})

    def delete(self, path, name):
        with self.lock:
            thing = self.objects[path].pop(name)
            self.version += 1
            thing["metadata"]["resourceVersion"] = str(self.version)
            self.events.append((self.version, path, "DELETED", thing))
            self.lock.notify_all()

    def forget_events(self):
        """As a compaction: whoever watches from an older version is told 410."""
        with self.lock:
            self.version += 1
            self.oldest = self.version

    def seen(self, method=None, contains=""):
        return [r for r in self.requests if (not method or r[0] == method) and contains in r[1] + "?" + r[2]]

    def locate(self, path):
        """Where an object is kept: one of a namespace, with all of its kind."""
        parts = path.split("/")
        return "/".join(parts[:3] + parts[5:]) if len(parts) > 5 and parts[3] == "namespaces" else path

    def handler(api):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                api.connections.add(self.connection)

            def finish(self):
                api.connections.discard(self.connection)
                try:
                    super().finish()
                except OSError:
                    pass

            def log_message(self, *_):
                pass

            def send(self, status, thing, headers=None):
                body = json.dumps(thing).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                for key, value in (headers or {}).items():
                    self.send_header(key, value)
                self.end_headers()
                if api.cut:
                    self.wfile.write(body[: api.cut.pop(0)])
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                self.wfile.write(body)

            def fail(self, status, message, headers=None):
                self.send(status, {"kind": "Status", "code": status, "message": message}, headers)

            def handle_one(self):
                url = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(url.query))
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length).decode() if length else ""
                api.requests.append((self.command, url.path, url.query, body, dict(self.headers)))
                if api.refuse:
                    status, headers = api.refuse.pop(0)
                    return self.fail(status, f"told to refuse with {status}", headers)
                if api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
                    return self.fail(401, "Unauthorized")
                if self.command == "GET" and url.path in api.objects:
                    return self.watch(url.path, query) if "watch" in query else self.list(url.path, query)
                if self.command == "GET" and url.path == "/big":
                    return self.send(200, {"x": "y" * 100000})
                folder, _, name = api.locate(url.path.removesuffix("/status")).rpartition("/")
                if name in api.objects.get(folder, {}):
                    if self.command == "PATCH" and url.path.endswith("/status"):
                        return self.send(200, api.put_status(folder, name, json.loads(body)))
                    if self.command == "PATCH":
                        return self.send(200, api.put(folder, name, **json.loads(body)))
                    return self.send(200, api.objects[folder][name])
                if self.command == "POST" and name == "events":
                    api.told.append(json.loads(body))
                    return self.send(201, api.told[-1])
                if self.command == "POST" and name == "binding":
                    return self.bind(folder, json.loads(body))
                return self.fail(404, f'"{url.path}" not found')

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one

            def bind(self, path, binding):
                """As the API server: the pod's node and its annotations, in one step."""
                folder, _, name = api.locate(path).rpartition("/")
                metadata = {k: binding["metadata"][k] for k in ("annotations", "labels") if k in binding["metadata"]}
                api.put(folder, name, metadata=metadata, spec={"nodeName": binding["target"]["name"]})
                return self.send(201, {"kind": "Status", "status": "Success"})

            def hold(self):
                api.snapshots += 1
                if api.held:
                    api.held.wait(20)

            def list(self, path, query):
                with api.lock:
                    things = [api.objects[path][k] for k in sorted(api.objects[path])]
                    version = api.version
                self.hold()
                things = [t for t in things if selected(t, query)]
                start = int(query.get("continue", "0"))
                limit = int(query.get("limit", len(things) or 1))
                metadata = {"resourceVersion": str(version)}
                if start + limit < len(things):
                    metadata["continue"] = str(start + limit)
                things = things[start : start + limit]
                if "PartialObjectMetadata" in self.headers.get("Accept", ""):
                    things = [{"kind": "PartialObjectMetadata", "metadata": t["metadata"]} for t in things]
                self.send(200, {"kind": "List", "metadata": metadata, "items": things})

            def event(self, kind, thing, partial):
                if partial and kind != "ERROR":
                    thing = {"kind": "PartialObjectMetadata", "metadata": thing["metadata"]}
                line = json.dumps({"type": kind, "object": thing}).encode() + b"\n"
                if api.cut and len(line) > api.cut[0]:
                    line = line[: api.cut.pop(0)]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)
                    raise ConnectionError
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

            def watch(self, path, query):
                initial = query.get("sendInitialEvents") == "true"
                if initial and not api.watch_list:
                    return self.fail(422, "sendInitialEvents: Forbidden")
                partial = "PartialObjectMetadata" in self.headers.get("Accept", "")
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.close_connection = True
                generation = api.generation
                with api.lock:
                    version = api.version
                    things = [api.objects[path][k] for k in sorted(api.objects[path])] if initial else []
                if initial:
                    self.hold()
                try:
                    while initial and api.stalled and api.generation == generation:
                        time.sleep(0.1)
                    for thing in things:
                        if selected(thing, query):
                            self.event("ADDED", thing, partial)
                        if api.between_s:
                            self.wfile.flush()
                            time.sleep(api.between_s)
                    if initial:
                        self.bookmark(version, {"k8s.io/initial-events-end": "true"})
                    else:
                        version = int(query["resourceVersion"])
                    self.follow(path, query, version, partial, generation)
                except (ConnectionError, OSError):
                    return

            def bookmark(self, version, annotations=None):
                metadata = {"resourceVersion": str(version)}
                if annotations:
                    metadata["annotations"] = annotations
                self.event("BOOKMARK", {"metadata": metadata}, False)
                self.wfile.flush()

            def follow(self, path, query, version, partial, generation):
                if version < api.oldest:
                    self.event("ERROR", {"kind": "Status", "code": 410, "message": "too old"}, False)
                    self.wfile.write(b"0\r\n\r\n")
                    return
                while api.generation == generation:
                    with api.lock:
                        news = [] if api.quiet else [e for e in api.events if e[0] > version and e[1] == path]
                        if not news:
                            api.lock.wait(0.2)
                            continue
                    for number, _, kind, thing in news:
                        if selected(thing, query):
                            self.event(kind, thing, partial)
                        version = number
                    self.wfile.flush()

        return Handler


def selected(thing, query):
    labels = thing["metadata"].get("labels", {})
    for pair in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = pair.partition("=")
        if labels.get(key) != value:
            return False
    for pair in filter(None, query.get("fieldSelector", "").split(",")):
        key, _, value = pair.partition("=")
        at = thing
        for part in key.rstrip("!").split("."):
            at = at.get(part, {}) if isinstance(at, dict) else {}
        if ((at or "") == value) == key.endswith("!"):
            return False
    return True


def merge(into, patch):
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value

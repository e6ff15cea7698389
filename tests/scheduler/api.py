# SPDX-License-Identifier: Apache-2.0
"""As much of an API server as hami-scheduler needs, that does on demand what real ones do at bad moments.

Nodes and pods are listed in pages (or streamed) and watched; a Binding assigns a pod once and lays its annotations
and labels over it; events are kept. What is to go wrong is told by fail(): a status, a connection cut before anything
was done (`cut`), after it (`lost`), or cut at once and done a moment later (`late`); a status that is told though it was
done (`("done", 500)`), or is done a moment later (`("late", 409)`), as etcd's time-outs are; an answer that comes so many
seconds late (`("slow", 2)`). A moment is never longer than the request's `?timeout=`. Every request is recorded. Each time a pod is bound, what is granted of each card is
added up again from the annotations of the pods there are.
"""

import bisect
import http.server
import json
import random
import re
import socket
import threading
import time
import urllib.parse

LATE_S = 0.3
NODES, PODS, QUOTAS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/resourcequotas"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
REGISTER, ALLOCATED, ON_NODE = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated", "hami.io/vgpu-node"


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024  # a burst that finds it full tries again a second later
    daemon_threads = True
    block_on_close = False


class Api:
    def __init__(self, streams=False):
        self.streams = streams  # sendInitialEvents
        self.lock = threading.Condition()
        self.version = 1000
        self.oldest = 0  # of what watches may begin at
        self.objects = {NODES: {}, PODS: {}, QUOTAS: {}, LEASES: {}}
        self.changes = []  # (version, collection, before, after)
        self.requests = []  # (method, path, body, query)
        self.events = []
        self.bound = []  # uids, in their order
        self.granted_twice = []  # sentences
        self.faults = []  # [function of method and path, act, how many times]
        self.holding = None  # an Event that Bindings wait for
        self.connections = set()
        self.round = 0  # watches of an earlier one end
        self.watch_lag_s = 0
        self.patched = 0
        self.policies = ["hami-device-plugin", "hami-pod-grants", "hami-shares", "hami-bindings"]  # those that are in force
        self.may_patch_nodes = True
        self.node_patches = []  # (node, patch) of those that were carried out
        self.budget = set()  # names of pods that may not be evicted
        self.evicted = []  # uids, in their order
        self.grace_s = 0.3  # from an eviction to the pod's end; None: it never ends
        self.port = 0
        self.come_back()

    def kubeconfig(self, path):
        server = f"http://127.0.0.1:{self.port}"
        path.write_text(json.dumps({
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "a", "user": "u"}}],
            "current-context": "c",
        }))  # fmt: skip
        return path

    def come_back(self):
        self.server = Server(("127.0.0.1", self.port), handler_for(self))
        self.server.handle_error = lambda *_: None  # clients are killed
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def go_away(self):
        """Nobody listens any more, and every connection ends."""
        self.server.shutdown()
        self.server.server_close()
        with self.lock:
            self.round += 1
            self.lock.notify_all()
            for connection in list(self.connections):
                shut(connection)

    # Objects

    def set(self, collection, thing):
        """Makes an object, or puts it in the place of the one of its name; None deletes."""
        with self.lock:
            return self.set_locked(collection, key_of(thing), thing)

    def delete(self, collection, key):
        with self.lock:
            if key in self.objects[collection]:
                self.set_locked(collection, key, None)

    def set_locked(self, collection, key, thing):
        self.version += 1
        before = self.objects[collection].pop(key, None)
        if thing is not None:
            thing = json.loads(json.dumps(thing))
            thing["metadata"]["resourceVersion"] = str(self.version)
            self.objects[collection][key] = thing
        self.changes.append((self.version, collection, before, thing))
        self.lock.notify_all()
        return thing

    def forget(self):
        """As after a compaction: every watch ends, and whoever goes on from before is told 410."""
        with self.lock:
            self.version += 1
            self.oldest = self.version
            self.changes.clear()
            self.lock.notify_all()

    # What goes wrong

    def fail(self, act, times=1, method="POST", suffix="/binding"):
        with self.lock:
            self.faults.append([lambda m, p: m == method and p.endswith(suffix), act, times])

    def fault_for(self, method, path):
        with self.lock:
            for fault in self.faults:
                if fault[2] > 0 and fault[0](method, path):
                    fault[2] -= 1
                    return fault[1]
        return None

    def seen(self, method=None, suffix=""):
        return [r for r in self.requests if (not method or r[0] == method) and r[1].endswith(suffix)]

    # What was granted

    def live(self):
        """Pods that hold devices, as a list shows them: uid -> (node, devices as text)."""
        with self.lock:
            pods = [p for p in self.objects[PODS].values() if selected(p, RUNNING)]
            return {p["metadata"]["uid"]: (p["spec"]["nodeName"], noted(p)) for p in pods if noted(p)}

    def recount_locked(self, node):
        registered = self.objects[NODES].get(node, {}).get("metadata", {}).get("annotations", {}).get(REGISTER)
        if not registered:
            return
        cards = {c["id"]: {"slots": c["count"], "memory": c["devmem"], "cores": c["devcore"]} for c in json.loads(registered)}
        used = {c: {"slots": 0, "memory": 0, "cores": 0} for c in cards}
        for pod in self.objects[PODS].values():
            if pod["spec"].get("nodeName") == node and selected(pod, RUNNING):
                for uuid, memory, cores in shares(noted(pod)):
                    for what, amount in (("slots", 1), ("memory", memory), ("cores", cores)):
                        used.setdefault(uuid, {"slots": 0, "memory": 0, "cores": 0})[what] += amount
        for uuid, sums in used.items():
            limits = cards.get(uuid, {"slots": 0, "memory": 0, "cores": 0})
            if any(sums[what] > limits[what] for what in sums):
                self.granted_twice.append(f"{uuid} of {node}: {sums} of {limits}")

    def bind(self, key, binding):
        """(status, message)"""
        with self.lock:
            pod = self.objects[PODS].get(key)
            wanted = binding["metadata"].get("uid")
            if not pod:
                return 404, f'pods "{key}" not found'
            name, has = pod["metadata"]["name"], pod["metadata"]["uid"]
            if wanted and has != wanted:
                return 409, f'Operation cannot be fulfilled on pods "{name}": StorageError: invalid object, Code: 4, Key: /registry/pods/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {has}'
            if pod["metadata"].get("deletionTimestamp"):
                return 409, f'{CONFLICT} "{name}": pod {name} is being deleted, cannot be assigned to a host'
            if pod["spec"].get("nodeName"):
                return 409, f'{CONFLICT} "{name}": pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            pod = json.loads(json.dumps(pod))
            pod["spec"]["nodeName"] = binding["target"]["name"]
            for field in ("annotations", "labels"):
                pod["metadata"].setdefault(field, {}).update(binding["metadata"].get(field) or {})
            self.set_locked(PODS, key, pod)
            self.bound.append(pod["metadata"]["uid"])
            self.recount_locked(binding["target"]["name"])
            return 201, ""

    def patch_status(self, key, patch):
        """(status, message). Of conditions, those of the patch take the place of those of their type."""
        with self.lock:
            pod = self.objects[PODS].get(key)
            if not pod:
                return 404, f'pods "{key}" not found'
            if pod["metadata"]["uid"] != patch["metadata"]["uid"]:
                return 422, "metadata.uid: Invalid value: field is immutable"
            pod = json.loads(json.dumps(pod))
            new = {c["type"]: c for c in patch["status"]["conditions"]}
            kept = [c for c in pod["status"].get("conditions", []) if c["type"] not in new]
            pod["status"]["conditions"] = kept + list(new.values())
            self.set_locked(PODS, key, pod)
            self.patched += 1
            return 200, ""


    def evict(self, key, eviction):
        """(status, message)"""
        with self.lock:
            pod = self.objects[PODS].get(key)
            options = eviction.get("deleteOptions", {})
            wanted = options.get("preconditions", {}).get("uid")
            if not pod:
                return 404, f'pods "{key}" not found'
            name, has = pod["metadata"]["name"], pod["metadata"]["uid"]
            if name in self.budget:
                return 429, "Cannot evict pod as it would violate the pod's disruption budget."
            if wanted and wanted != has:
                return 409, f'Operation cannot be fulfilled on Pod "{name}": Precondition failed: UID in precondition: {wanted}, UID in object meta: {has}'
            if options.get("dryRun"):
                return 201, ""
            self.evicted.append(has)
            if not pod["metadata"].get("deletionTimestamp"):
                pod = json.loads(json.dumps(pod))
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self.set_locked(PODS, key, pod)
                if self.grace_s is not None:
                    threading.Timer(self.grace_s, self.delete, (PODS, key)).start()
            return 201, ""

    def lease(self, name, patch):
        """As it is, or with a merge patch, which may say of which version."""
        with self.lock:
            lease = self.objects[LEASES].get(f"kube-system/{name}")
            if not lease:
                return 404, None
            if patch is None:
                return 200, lease
            if patch["metadata"].get("resourceVersion", lease["metadata"]["resourceVersion"]) != lease["metadata"]["resourceVersion"]:
                return 409, "the object has been modified"
            return 200, self.set_locked(LEASES, f"kube-system/{name}", merged(lease, patch))

    def patch_node(self, name, patch):
        """(status, message). A merge patch of annotations, guarded by the resource version where it names one."""
        with self.lock:
            node = self.objects[NODES].get(name)
            if not self.may_patch_nodes:
                return 403, f'nodes "{name}" is forbidden'
            if not node:
                return 404, f'nodes "{name}" not found'
            wanted = patch.get("metadata", {}).get("resourceVersion")
            if wanted and wanted != node["metadata"]["resourceVersion"]:
                return 409, f'Operation cannot be fulfilled on nodes "{name}": the object has been modified'
            self.set_locked(NODES, name, merged(node, patch))
            self.node_patches.append((name, patch))
            return 200, ""

    def patch_pod(self, key, patch):
        with self.lock:
            pod = self.objects[PODS].get(key)
            if not pod:
                return 404, f'pods "{key}" not found'
            self.set_locked(PODS, key, merged(pod, patch))
            return 200, ""


def merged(thing, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    thing = dict(thing) if isinstance(thing, dict) else {}
    for key, value in patch.items():
        if value is None:
            thing.pop(key, None)
        else:
            thing[key] = merged(thing.get(key), value)
    return thing


CONFLICT = "Operation cannot be fulfilled on pods/binding"
RUNNING = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}


def noted(pod):
    return pod["metadata"].get("annotations", {}).get(ALLOCATED, "")


def shares(text):
    """What an annotation of HAMi's gives: (uuid, MiB, cores) of each device of each container."""
    for container in text.split(";"):
        for device in filter(None, container.split(":")):
            uuid, _, memory, cores = device.split(",")
            yield uuid, int(memory), int(cores)


def moment(query):
    """How much later something is done that the server gave up on."""
    words = re.fullmatch(r"([0-9.]+)(m?s)", query.get("timeout", f"{LATE_S}s"))
    return random.uniform(0.1, 0.95) * float(words[1]) / (1000 if words[2] == "ms" else 1)


def key_of(thing):
    metadata = thing["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]


def shut(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def selected(thing, query):
    if thing is None:
        return False
    labels = thing["metadata"].get("labels", {})
    for pair in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = pair.partition("=")
        if labels.get(key) != value:
            return False
    for pair in filter(None, query.get("fieldSelector", "").split(",")):
        key, operator, value = pair.partition("!=") if "!=" in pair else pair.partition("=")
        at = thing
        for part in key.split("."):
            at = at.get(part, "") if isinstance(at, dict) else ""
        if (at == value) != (operator == "="):
            return False
    return True


def partial(thing, wanted):
    if not wanted:
        return thing
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": thing["metadata"]}


def handler_for(api):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

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

        def answer(self, status, thing, headers=None):
            body = json.dumps(thing).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def refuse(self, status, message, headers=None):
            self.answer(status, {"kind": "Status", "code": status, "message": message}, headers)

        def hang_up(self):
            self.close_connection = True
            shut(self.connection)

        def refuse_as_told(self, status):
            message = f"told to refuse with {status}"
            if status == 409:
                message = f'{CONFLICT} "a": etcdserver: request timed out, {message}'
            self.refuse(status, message, {"Retry-After": "1"} if status in (429, 503) else None)

        def lie(self, when, what, do, seconds):
            if when == "slow":
                status, thing = do()
                time.sleep(what)
                return self.answer(status, thing)
            if when == "done":
                do()
            else:
                threading.Timer(seconds, do).start()
            self.refuse_as_told(what)

        def handle_any(self):
            url = urllib.parse.urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            query = dict(urllib.parse.parse_qsl(url.query))
            with api.lock:
                api.requests.append((self.command, url.path, body, query))
            act = api.fault_for(self.command, url.path)
            if isinstance(act, tuple) and isinstance(act[0], int):  # a status, and Retry-After
                return self.refuse(act[0], f"told to refuse with {act[0]}", {"Retry-After": str(act[1])})
            if isinstance(act, int):
                return self.refuse_as_told(act)
            if act == "cut":
                return self.hang_up()
            if act == "late":
                self.hang_up()
                time.sleep(moment(query))
            if isinstance(act, tuple):
                return self.lie(*act, lambda command=self.command: self.do(command, url.path, query, body), moment(query))
            if self.command == "POST" and url.path.endswith("/binding") and api.holding:
                api.holding.wait(30)
            status, thing = self.do(self.command, url.path, query, body)
            if act in ("lost", "late"):
                return self.hang_up()
            if status:
                self.answer(status, thing)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

        def do(self, command, path, query, body):
            parts = path.split("/")  # "", api, v1, namespaces, NS, pods, NAME[, binding]
            if command == "GET" and path in api.objects:
                return self.watch(path, query) if query.get("watch") else self.page(path, query)
            if command == "POST" and len(parts) == 8 and parts[7] == "binding":
                status, message = api.bind(f"{parts[4]}/{parts[6]}", body)
                return status, {"kind": "Status", "code": status, "message": message, "details": {"kind": "pods"}}
            if command == "POST" and len(parts) == 8 and parts[7] == "eviction":
                status, message = api.evict(f"{parts[4]}/{parts[6]}", body)
                return status, {"kind": "Status", "code": status, "message": message, "details": {"kind": "pods"}}
            if command == "POST" and len(parts) == 6 and parts[5] == "events" and parts[4]:
                api.events.append(body)
                return 201, body
            if command == "PATCH" and len(parts) == 8 and parts[7] == "status":
                status, message = api.patch_status(f"{parts[4]}/{parts[6]}", body)
                return status, {"kind": "Status", "code": status, "message": message}
            if command == "POST" and parts[-1] == "selfsubjectaccessreviews":
                return 201, body | {"status": {"allowed": api.may_patch_nodes}}
            if len(parts) == 5 and parts[3] == "nodes":
                return self.do_node(command, parts[4], body)
            if command == "GET" and "validatingadmissionpolicybindings" in parts and parts[-1] in api.policies:
                return 200, {"metadata": {"name": parts[-1]}}
            if command in ("GET", "PATCH") and path.startswith(LEASES + "/"):
                status, lease = api.lease(parts[7], body if command == "PATCH" else None)
                if status == 200:
                    return status, lease
                if status == 409:
                    return status, {"kind": "Status", "code": status, "message": lease}
                return 404, {"kind": "Status", "code": 404, "message": f"{path} not found", "details": {"kind": "leases"}}
            if command == "GET" and len(parts) == 7 and parts[5] == "pods":
                with api.lock:
                    pod = api.objects[PODS].get(f"{parts[4]}/{parts[6]}")
                if pod:
                    return 200, pod
                return 404, {"kind": "Status", "code": 404, "message": f"{path} not found", "details": {"kind": "pods"}}
            return 404, {"kind": "Status", "code": 404, "message": f"{path} not found"}

        def do_node(self, command, name, body):
            if command == "PATCH":
                status, message = api.patch_node(name, body)
                if status != 200:
                    return status, {"kind": "Status", "code": status, "message": message}
            with api.lock:
                node = api.objects[NODES].get(name)
            if node:
                return 200, partial(node, self.wants_metadata())
            return 404, {"kind": "Status", "code": 404, "message": f'nodes "{name}" not found', "details": {"kind": "nodes"}}

        def wants_metadata(self):
            return "PartialObjectMetadata" in self.headers.get("Accept", "")

        def page(self, path, query):
            with api.lock:
                version = api.version
                things = [api.objects[path][key] for key in sorted(api.objects[path])]
            things = [thing for thing in things if selected(thing, query)]
            first, limit = int(query.get("continue", 0)), int(query.get("limit", 500))
            metadata = {"resourceVersion": query.get("version", str(version))}
            if first + limit < len(things):
                metadata["continue"] = str(first + limit)
            items = [partial(thing, self.wants_metadata()) for thing in things[first : first + limit]]
            return 200, {"kind": "List", "metadata": metadata, "items": items}

        def say(self, kind, thing):
            line = json.dumps({"type": kind, "object": thing}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

        def watch(self, path, query):
            initial = bool(query.get("sendInitialEvents"))
            if initial and not api.streams:
                return 400, {"kind": "Status", "code": 400, "message": "sendInitialEvents is forbidden"}
            self.close_connection = True
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                with api.lock:
                    number, began = api.version, api.round
                    things = list(api.objects[path].values()) if initial else []
                for thing in things:
                    if selected(thing, query):
                        self.say("ADDED", partial(thing, self.wants_metadata()))
                if initial:
                    ended = {"k8s.io/initial-events-end": "true"}
                    self.say("BOOKMARK", {"metadata": {"resourceVersion": str(number), "annotations": ended}})
                else:
                    number = int(query["resourceVersion"])
                self.follow(path, query, number, began)
            except OSError:
                pass
            return None, None

        def follow(self, path, query, number, began):
            while True:
                with api.lock:
                    if number >= api.oldest and api.round == began and number >= api.version:
                        api.lock.wait(5)
                    if api.round != began:
                        return
                    expired = number < api.oldest
                    news = api.changes[bisect.bisect_right(api.changes, number, key=lambda change: change[0]) :]
                if expired:
                    self.say("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
                    self.wfile.write(b"0\r\n\r\n")
                    return
                time.sleep(api.watch_lag_s if news else 0)
                for number, collection, before, after in news:
                    if collection == path:
                        self.tell(query, number, before, after)

        def tell(self, query, number, before, after):
            """As those see it who select: what begins to be selected is added, what ceases to be is deleted."""
            was, is_now = selected(before, query), selected(after, query)
            if not was and not is_now:
                return
            thing = json.loads(json.dumps(after if is_now else before))
            thing["metadata"]["resourceVersion"] = str(number)
            kind = "MODIFIED" if was and is_now else "ADDED" if is_now else "DELETED"
            self.say(kind, partial(thing, self.wants_metadata()))

    return Handler

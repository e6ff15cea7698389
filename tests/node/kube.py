#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The API client against a server that refuses, forgets and is cut off."""

import sys
import threading

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from harness import *

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from api import Api
from extender import Extender

PODS = "/api/v1/pods"
PROGRAM = BUILD / "tests/kubeclient"


class Watcher:
    """kubeclient watching; what it says, and the names that it should know by it."""

    def __init__(self, api, *arguments, config=None, object_us=0):
        config = config or api.kubeconfig(scratch / f"config-{api.port}")
        environment = os.environ | {"no_proxy": "*", "OBJECT_US": str(object_us)}
        self.program = start([PROGRAM, config, "watch", PODS, *arguments], environment)
        self.lines = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.program.stdout:
            self.lines.append(line.strip())

    def count(self, start):
        return sum(1 for line in self.lines if line.startswith(start))

    def await_line(self, line, seconds=15, times=1):
        return wait_until(lambda: self.count(line) >= times, seconds)

    def names(self):
        """The names that an owner keeps who follows the marks."""
        names, fresh = set(), set()
        for line in list(self.lines):
            word, *rest = line.split(" ")
            if word == "begin":
                fresh = set()
            elif word in ("added", "modified"):
                names.add(rest[0])
                fresh.add(rest[0])
            elif word == "deleted":
                names.discard(rest[0])
            elif word == "complete":
                names &= fresh
                fresh = names
        return names

    def end(self):
        self.program.stdin.close()
        self.program.wait(30)
        wait_until(lambda: self.count("most"))
        return int(self.lines[-1].split()[1])


def fill(api, count, size=0):
    collection = api.objects.setdefault(PODS, {})
    for i in range(count):
        collection[f"p{i:05}"] = {"metadata": {"name": f"p{i:05}", "resourceVersion": str(i + 1), "labels": {"n": str(i % 3)}}, "x": "y" * size}


def follows(watch_list):
    how = "WatchList" if watch_list else "pages"
    api = Api(watch_list)
    fill(api, 1201 if not watch_list else 20)
    watcher = Watcher(api)
    count = len(api.objects[PODS])
    check(watcher.await_line(f"complete {count}"), f"{how}: all {count} objects come", watcher.lines[-5:])
    pages = [len(api.seen("GET", f"limit={size}")) for size in (500, 1000)]
    check_equal(pages, [0, 0] if watch_list else [1, 1], f"{how}: in pages that grow while the server is quick")
    api.put(PODS, "new")
    api.put(PODS, "new")
    api.delete(PODS, "p00000")
    check(watcher.await_line("deleted p00000"), f"{how}: then the changes", watcher.lines[-5:])
    check([l.split()[0] for l in watcher.lines if " new " in l] == ["added", "modified"], f"{how}: each as what it is")

    begun = watcher.count("begin")
    api.cut_all()
    api.put(PODS, "after-cut")
    check(watcher.await_line("added after-cut"), f"{how}: a cut watch goes on where it was", watcher.lines[-5:])
    check_equal(watcher.count("begin"), begun, f"{how}: without listing again")

    api.put(PODS, "unseen")
    api.delete(PODS, "p00001")
    api.forget_events()
    api.cut_all()
    check(watcher.await_line("complete", times=2), f"{how}: 410 lists everything again", watcher.lines[-5:])
    if watch_list:
        check_equal(watcher.names(), set(api.objects[PODS]), f"{how}: and nothing stale is left")
    api.put(PODS, "last")
    check(watcher.await_line("added last"), f"{how}: and watches on")
    watcher.end()
    check_equal(watcher.program.returncode, 0, f"{how}: cleanly")
    api.close()


def six():
    """On a machine with IPv6 alone. Named by its number, as a pod has it."""
    try:
        api = Api(address="::1")
    except OSError as error:
        print(f"this machine has no ::1: {error}")
        return
    fill(api, 3)
    watcher = Watcher(api)
    check(watcher.await_line("complete 3"), "a server whose address is of IPv6 is watched", watcher.lines)
    watcher.end()
    head, _ = request(api, "GET", PODS + "/p00000")
    check_equal(head.strip(), "error 0 200", "and asked")
    api.close()


def selects():
    api = Api()
    fill(api, 9)
    api.objects[PODS]["p00003"]["spec"] = {"nodeName": "a b"}
    watcher = Watcher(api, "n=0", "spec.nodeName=a b", "metadata")
    check(watcher.await_line("complete 1"), "selectors reach the server", watcher.lines)
    check("as=PartialObjectMetadata" in api.requests[-1][4]["Accept"], "metadata alone are asked for")
    watcher.end()
    api.close()


def survives():
    for watch_list in (True, False):
        how = "WatchList" if watch_list else "pages"
        api = Api(watch_list)
        fill(api, 600, 1000)
        api.refuse = [(429, {"Retry-After": "1"}), (500, None)]
        began = time.monotonic()
        watcher = Watcher(api)
        check(watcher.await_line("complete 600", 20), f"{how}: 429 and 500 are waited out", watcher.lines[-3:])
        check(time.monotonic() - began > 1, f"{how}: as long as Retry-After says")
        check(watcher.count("trouble told to refuse with 429"), f"{how}: with the server's words", watcher.lines[:3])
        watcher.end()

        api.cut = [300]
        watcher = Watcher(api)
        check(watcher.await_line("complete 600", 20), f"{how}: a list that is cut begins anew", watcher.lines[-3:])
        watcher.end()
        api.close()

    slow = Api()
    slow.between_s = 3
    fill(slow, 9)
    patient = Watcher(slow)
    api = Api()
    api.stalled = True
    fill(api, 3)
    watcher = Watcher(api)
    check(watcher.await_line("complete 3", 30), "a list that is promised as a stream and does not come is asked for in pages", watcher.lines)
    watcher.end()
    api.close()
    check(patient.await_line("complete 9", 20), "one that comes slowly is waited for", patient.lines)
    check_equal(patient.count("begin"), 1, "and not begun anew")
    check(not [r for r in slow.seen("GET") if "limit=" in r[1]], "nor asked for in pages", slow.seen("GET"))
    patient.end()
    slow.close()

    api = Api()
    fill(api, 3)
    port = api.port
    watcher = Watcher(api)
    watcher.await_line("complete 3")
    api.close()
    check(watcher.await_line("trouble", times=3), "a server that is gone is tried again and again", watcher.lines)
    again = Api(port=port, objects=api.objects)
    again.version = api.version
    again.put(PODS, "back")
    check(watcher.await_line("added back"), "until it is back", watcher.lines[-3:])
    check_equal(watcher.count("begin"), 1, "and the watch goes on")
    watcher.end()
    again.close()


def begins(watch_list):
    """What comes about while a list is under way may be in it or not: its owner is told before."""
    how = "WatchList" if watch_list else "pages"
    api = Api(watch_list)
    fill(api, 3)
    api.held = threading.Event()
    watcher = Watcher(api)
    check(watcher.await_line("begin") and not watcher.count("added"), f"{how}: a list begins before the server answers", watcher.lines)
    api.held.set()
    check(watcher.await_line("complete 3"), f"{how}: and is complete when it did", watcher.lines)
    watcher.end()
    api.close()


def binds(watch_list):
    """The scheduler: a pod that it binds while a list is under way, whose snapshot lacks it, keeps its devices."""
    how = "WatchList" if watch_list else "pages"
    card = {"id": "GPU-a", "index": 0, "count": 10, "devmem": 1000, "devcore": 100, "type": "NVIDIA A100", "numa": 0, "mode": "hami-core", "health": True, "custominfo": {"lock": "none"}}
    node = {
        "metadata": {"name": "n", "uid": "n", "resourceVersion": "1", "annotations": {"hami.io/node-nvidia-register": json.dumps([card])}},
        "status": {"allocatable": {"nvidia.com/gpu": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }

    def pod(name):
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "600"}
        return {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"}, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}

    api = Api(watch_list, objects={"/api/v1/nodes": {"n": node}, "/api/v1/resourcequotas": {}, PODS: {"one": pod("one"), "two": pod("two")}})
    scheduler = Extender(api.kubeconfig(scratch / "scheduler"))
    place = lambda name: scheduler.place(pod(name), "n")
    check(wait_until(lambda: scheduler.ask("/readyz") and place("one") == ["n"]), f"{how}: the scheduler is ready")
    check_equal(place("one"), ["n"], f"{how}: a pod is placed")
    api.held = threading.Event()
    api.quiet = True
    before = api.snapshots
    api.forget_events()
    api.cut_all()
    check(wait_until(lambda: api.snapshots >= before + 2), f"{how}: a list is under way, whose snapshot lacks the pod")
    check_equal(scheduler.bind("one", "n"), "", f"{how}: now the pod is bound")
    api.held.set()
    time.sleep(1)
    check(not place("two"), f"{how}: and holds its devices still when the list is complete", place("two"))
    api.quiet = False
    api.delete(PODS, "one")
    check(wait_until(lambda: place("two") == ["n"]), f"{how}: until it is deleted")
    scheduler.end()
    api.close()


def request(api, *arguments, user="{}"):
    config = api.kubeconfig(scratch / "request", user)
    ended = run([PROGRAM, config, "request", *arguments], os.environ | {"no_proxy": "*"})
    head, _, body = ended.stdout.partition("\n")
    return head, body.strip()


def check_retries(api):
    """What may have been done already is sent again only where that does no harm."""
    for method in ("GET", "PUT", "PATCH", "DELETE", "POST"):
        again = method != "POST"
        for what, times, options in (
            ("503", 2 if again else 1, {"refuse": [(503, None)]}),
            ("503 with Retry-After", 2 if again else 1, {"refuse": [(503, {"Retry-After": "1"})]}),
            ("500", 1, {"refuse": [(500, None)]}),
            ("504", 1, {"refuse": [(504, None)]}),
            ("409", 1, {"refuse": [(409, None)]}),
            ("cut before an answer", 2 if again else 1, {"cut": [0]}),
        ):
            for name, value in options.items():
                setattr(api, name, value)
            before = len(api.requests)
            request(api, method, PODS + "/a", "{}" if method in ("PUT", "PATCH", "POST") else "")
            check_equal(len(api.requests) - before, times, f"{method}, {what}: sent {times} times")
            check_equal(api.requests[-1][0], method, "by that method")
            api.refuse, api.cut = [], []


def requests():
    api = Api(objects={PODS: {"a": {"metadata": {"name": "a"}}}})
    head, body = request(api, "GET", PODS + "/a")
    check_equal((head.strip(), json.loads(body)["metadata"]["name"]), ("error 0 200", "a"), "an object is got")
    head, _ = request(api, "PATCH", PODS + "/a", '{"metadata":{"labels":{"x":"y"}}}')
    check_equal(head.strip(), "error 0 200", "an object is patched")
    check_equal(api.requests[-1][4]["Content-Type"], "application/merge-patch+json", "by a merge patch")
    check_equal(api.objects[PODS]["a"]["metadata"]["labels"], {"x": "y"}, "with the body's content")
    # Of several buffers of libcurl's, which takes 64 KiB at a time.
    long = "".join(str(i % 10) for i in range(120_000))
    head, _ = request(api, "PATCH", PODS + "/a", json.dumps({"metadata": {"annotations": {"long": long}}}))
    check_equal((head.strip(), api.objects[PODS]["a"]["metadata"].get("annotations", {}).get("long") == long), ("error 0 200", True), "a long body arrives whole")
    head, _ = request(api, "GET", "/nothing")
    check_equal(head, 'error 0 404 "/nothing" not found', "a refusal has the server's words")

    api.refuse = [(429, {"Retry-After": "1"})]
    before, began = len(api.requests), time.monotonic()
    head, _ = request(api, "POST", PODS + "/a", "{}")
    check_equal((head.strip(), len(api.requests) - before), ("error 0 200", 2), "429 is tried again, a POST too")
    check(time.monotonic() - began >= 1, "after Retry-After")
    api.cut = [5]
    before = len(api.requests)
    head, _ = request(api, "POST", PODS + "/a", "{}")
    check_equal((head.split()[1], len(api.requests) - before), ("-5", 1), "a POST that was cut is not sent again")
    api.refuse = [(503, {"Retry-After": "1"})]
    before = len(api.requests)
    head, _ = request(api, "POST", PODS + "/a", "{}")
    check_equal((head, len(api.requests) - before), ("error 0 503 told to refuse with 503", 1), "nor one that was answered with 503")
    api.cut = [5]
    before = len(api.requests)
    head, _ = request(api, "GET", PODS + "/a")
    check_equal((head.strip(), len(api.requests) - before), ("error 0 200", 2), "a GET is")
    check_retries(api)
    api.refuse = [(429, {"Retry-After": "60"})]
    head, _ = request(api, "GET", PODS + "/a", "", "2000")
    check_equal(head, "error 0 429 told to refuse with 429", "what would take too long is told at once")

    token = scratch / "token"
    token.write_text("first\n")
    api.token = "first"
    head, _ = request(api, "GET", PODS + "/a", user=f"{{tokenFile: {token}}}")
    check_equal(head.strip(), "error 0 200", "the token of a file is sent")
    head, _ = request(api, "GET", PODS + "/a")
    check_equal(head, "error 0 401 Unauthorized", "without it nothing is had")
    api.close()
    began = time.monotonic()
    head, _ = request(api, "GET", PODS + "/a", "", "1500")
    check_equal(head.split()[1], "-111", "no server: refused")
    check(0.5 < time.monotonic() - began < 10, "after trying for its time, as far as its last pause fits")


def rotates():
    token = scratch / "rotating"
    token.write_text("first")
    api = Api(token="first")
    fill(api, 1)
    config = api.kubeconfig(scratch / "rotating-config", f"{{tokenFile: {token}}}")
    watcher = Watcher(api, config=config)
    watcher.await_line("complete 1")
    token.write_text("second")
    api.token = "second"
    api.cut_all()
    api.put(PODS, "late")
    check(watcher.await_line("added late"), "a token that changed is read again when the old one is refused", watcher.lines)
    watcher.end()
    api.close()


def certificates(folder):
    """A CA, a certificate of its own for the server at 127.0.0.1, one for a client."""
    folder.mkdir()
    config = folder / "openssl.cnf"
    config.write_text("[req]\ndistinguished_name=dn\n[dn]\n")

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def key(name):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")

    key("ca")
    openssl("req", "-x509", "-new", "-config", config, "-key", "ca.key", "-subj", "/CN=ca", "-days", "2", "-out", "ca.crt",
            "-addext", "basicConstraints=critical,CA:TRUE")
    for name, alt in (("server", "IP:127.0.0.1"), ("named", "DNS:kubernetes.test"), ("client", "DNS:client")):
        key(name)
        (folder / "ext").write_text(f"subjectAltName={alt}\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl("req", "-new", "-config", config, "-key", f"{name}.key", "-subj", f"/CN={name}", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-out", f"{name}.crt", "-extfile", "ext")
    return folder


def secured():
    import base64
    import ssl

    pki = certificates(scratch / "pki")
    data = lambda name: base64.b64encode((pki / name).read_bytes()).decode()

    def server(name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
        context.load_verify_locations(pki / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        return Api(objects={PODS: {"a": {"metadata": {"name": "a", "resourceVersion": "1"}}}}, tls=context)

    def ask(api, user, cluster):
        config = api.kubeconfig(scratch / "secured", user, cluster)
        return run([PROGRAM, config, "request", "GET", PODS + "/a", "", "3000"], os.environ | {"no_proxy": "*"}).stdout.partition("\n")[0].strip()

    api = server("server")
    by_data = f"{{client-certificate-data: {data('client.crt')}, client-key-data: {data('client.key')}}}"
    by_file = f"{{client-certificate: {pki}/client.crt, client-key: {pki}/client.key}}"
    check_equal(ask(api, by_file, f", certificate-authority: {pki}/ca.crt"), "error 0 200", "TLS with certificates of files")
    check_equal(ask(api, by_data, f", certificate-authority-data: {data('ca.crt')}"), "error 0 200", "TLS with certificates in the kubeconfig")
    check(ask(api, by_file, "").split()[1:3] == ["-129", "0"], "a server of an unknown CA is refused", ask(api, by_file, ""))
    check_equal(ask(api, by_file, ", insecure-skip-tls-verify: true"), "error 0 200", "unless the kubeconfig says not to look")
    api.close()
    api = server("named")
    check(ask(api, by_file, f", certificate-authority: {pki}/ca.crt").split()[1:3] == ["-129", "0"], "a certificate of another name is refused")
    check_equal(ask(api, by_file, f", certificate-authority: {pki}/ca.crt, tls-server-name: kubernetes.test"), "error 0 200", "unless it is the name that is asked for")
    fill(api, 600, 20000)
    config = api.kubeconfig(scratch / "secured-watch", by_file, f", certificate-authority: {pki}/ca.crt, tls-server-name: kubernetes.test")
    watcher = Watcher(api, config=config)
    check(watcher.await_line("complete 601"), "12 MB come over TLS", watcher.lines[-2:])
    watcher.end()
    api.close()


def bounded(watch_list):
    """10,000 pods of 6 KB each whose owner takes 100 us for each: they wait at the server, and the loop goes round meanwhile."""
    how = "WatchList" if watch_list else "pages"
    api = Api(watch_list)
    fill(api, 10000, 6000)
    watcher = Watcher(api, object_us=100)
    check(watcher.await_line("complete 10000", 100), f"{how}: 10,000 pods come", watcher.lines[-3:])
    peak = int([l.split()[1] for l in open(f"/proc/{watcher.program.pid}/status") if l.startswith("VmHWM")][0])
    check(peak < 20000, f"{how}: in little memory", f"{peak} KiB")
    # A turn hands objects over for 250 us.
    most = watcher.end()
    check(0 < most <= 3, f"{how}: at most three in a turn of the loop", most)
    api.close()


PARTS = ["follows", "selects", "six", "survives", "begins", "binds", "bounded", "requests", "rotates", "secured"]
# Lists that come in a watch, and lists in pages.
BOTH_WAYS = {"follows", "begins", "binds", "bounded"}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        for given in ((True,), (False,)) if part in BOTH_WAYS else ((),):
            globals()[part](*given)
    finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer on the network that sends or reads as slowly as it can: what it costs others, and for how long."""

import os
import struct

from support import *

# Set, malloc() writes over what it gives and takes back, and all of that counts as used.
os.environ["MALLOC_PERTURB_"] = "0"

# Of memory: 4 MiB of bodies, and of 128 connections from elsewhere 35 KiB each with 32 KiB for their requests.
SLACK_KIB = 16 << 10
KEPT_KIB = 1 << 10  # a second after the peers have gone: what the heap's end keeps, and holes smaller than a page
BODY_S, SEND_S, FIRST_S = 10, 30, 30  # of src/http/peers.c
REVIEW = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "u"}}


def open_raw(port, tls=True, receive_buffer=None, host="127.0.0.1"):
    raw = socket.socket()
    if receive_buffer:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    raw.settimeout(20)
    raw.connect((host, port))
    return TRUSTING.wrap_socket(raw) if tls else raw


def half_a_body(path, size):
    longest = 4 << 20 if path == b"/webhook" else 8 << 20
    return b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (path, longest) + b"x" * size


class Trickle:
    """A connection on which a byte is sent now and then; knows when the server ended it."""

    def __init__(self, connection, byte):
        self.connection, self.byte, self.begun, self.ended = connection, byte, time.monotonic(), None

    def step(self):
        if self.ended:
            return
        try:
            if self.byte:
                self.connection.send(self.byte)
            self.connection.setblocking(False)
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                if not self.connection.recv(1, *([socket.MSG_PEEK] if not isinstance(self.connection, ssl.SSLSocket) else [])):
                    raise ConnectionResetError
        except (OSError, ValueError):
            self.ended = time.monotonic() - self.begun
        finally:
            with contextlib.suppress(OSError):
                self.connection.setblocking(True)


def test_half_sent_bodies(api, scheduler):
    """As many as the whole server could hold, and more, at the webhook's door."""
    scheduler.filter(pod(None), ["node-1"])
    before = scheduler.anonymous_kib()
    held = []
    for _ in range(60):
        connection = open_raw(scheduler.port)
        with contextlib.suppress(OSError):
            connection.sendall(half_a_body(b"/webhook", 2 << 20))
        held.append(connection)
    placed, why = place(scheduler, api.set(PODS, pod(10)), ["node-1"])
    check_equal(placed, "node-1", "sixty half sent bodies of the webhook leave filter and bind alone", why)
    review = json.loads(json.dumps(REVIEW))
    review["request"]["object"] = pod(10) | {"padding": "x" * (1 << 20)}
    for _ in range(3):
        status, text = scheduler.ask("POST", "/webhook", review)
        check_equal((status, status == 200 and json.loads(text)["response"]["allowed"]), (200, True), "and a whole review is answered")
    peak = scheduler.anonymous_kib()
    check(SANITIZED or peak < before + SLACK_KIB, "in little memory", f"{before} KiB, then {peak} KiB")
    for connection in held:
        connection.close()
    check_given_back(scheduler, before)


def check_given_back(scheduler, before):
    time.sleep(2.5)
    after = scheduler.anonymous_kib()
    check(SANITIZED or after < before + KEPT_KIB, "and the memory is given back", f"{before} KiB, then {after} KiB")


def open_streams(port, count, host="127.0.0.1"):
    """A connection of HTTP/2 with so many requests for the webhook, of each of which one byte of the body came."""
    context = ssl._create_unverified_context()
    context.set_alpn_protocols(["h2"])
    connection = context.wrap_socket(open_raw(port, tls=False, host=host))

    def frame(kind, flags, stream, payload=b""):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    # RFC 7541: POST, https, and path and host as literals that no table is to remember.
    headers = b"\x83\x87\x04\x08/webhook\x01\x01h"
    streams = [frame(1, 4, 2 * i + 1, headers) + frame(0, 0, 2 * i + 1, b"x") for i in range(count)]
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + b"".join(streams))
    return connection


def test_many_half_sent_bodies(api, scheduler):
    """Of one byte each, more than the route may hold: which of them gives way is not looked for among all."""

    def spent_ns():
        return int(pathlib.Path(f"/proc/{scheduler.pid()}/schedstat").read_text().split()[0])

    held, spent = [], []
    for _ in range(3):
        before = spent_ns()
        for _ in range(20):
            held.append(open_streams(scheduler.port, 250))
        scheduler.ask("GET", "/readyz")
        spent.append(spent_ns() - before)
    shown = [f"{ns / 1e6:.0f} ms" for ns in spent]
    check(spent[2] < 2 * spent[0], "five thousand requests cost about the same beside ten thousand as beside none", shown)
    for connection in held:
        connection.close()


def test_trickles(api, scheduler):
    """Whoever sends a byte a second is waited for as long as one who sends none."""
    hello = b"\x16\x03\x01\x02\x00\x01"  # of a longer record
    kinds = {
        "a body": (Trickle(open_raw(scheduler.port), b"x"), half_a_body(b"/webhook", 1), BODY_S),
        "a filter's body": (Trickle(open_raw(scheduler.port), b"x"), half_a_body(b"/filter", 1), BODY_S),
        "a request's headers": (Trickle(open_raw(scheduler.port), b"x"), b"GET /healthz HTTP/1.1\r\nX-A: ", FIRST_S),
        "headers without TLS": (Trickle(open_raw(scheduler.metrics_port, tls=False), b"x"), b"GET /metrics HTTP/1.1\r\nX-A: ", FIRST_S),
        "a handshake": (Trickle(open_raw(scheduler.port, tls=False), b"\0"), hello, FIRST_S),
        "nothing": (Trickle(open_raw(scheduler.port, tls=False), b""), b"", FIRST_S),
    }
    for trickle, first, _ in kinds.values():
        trickle.connection.sendall(first)
    while time.monotonic() - kinds["nothing"][0].begun < FIRST_S + 6 and not all(t.ended for t, _, _ in kinds.values()):
        for trickle, _, _ in kinds.values():
            trickle.step()
        scheduler.filter(pod(None), ["node-1"])
        time.sleep(0.5)
    for what, (trickle, _, most) in kinds.items():
        check(trickle.ended and most - 1 <= trickle.ended < most + 5, f"{what}, a byte now and then, is ended after {most} s", trickle.ended)
        trickle.connection.close()


def test_slow_readers(api, scheduler):
    """A page of metrics of many MiB, which twelve peers begin to read, and stop."""
    for number in range(1000):
        api.set(NODES, node(f"big-{number:03d}", 8))
    wait_until(lambda: len(scheduler.view()["nodes"]) > 1000)
    page = len(scheduler.metrics()) >> 10
    time.sleep(1.5)
    rest, before, readers = scheduler.anonymous_kib(), 0, []
    for _ in range(4):  # what one honest reader takes, and what the last one left
        scheduler.metrics()
        before = max(before, scheduler.anonymous_kib())
        time.sleep(0.4)
    for _ in range(12):
        connection = open_raw(scheduler.metrics_port, tls=False, receive_buffer=4096)
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        readers.append(connection)
        time.sleep(0.4)
    # What is held for them they hold as long as they wait; a list that is read meanwhile is given back.
    held = []
    wait_until(lambda: held.append(scheduler.anonymous_kib()) or SANITIZED or held[-1] < before + page, 8, 0.5)
    print(f"an honest reader {before} KiB, twelve slow ones {held} KiB")
    check(SANITIZED or held[-1] < before + page, f"twelve slow readers of {page} KiB each take less than one page together", f"{before} KiB, then {held} KiB")
    check(scheduler.metrics().endswith("\n"), "an honest reader gets a whole page beside them")
    answers = in_threads([scheduler.metrics] * 6)
    check(all(a and a.endswith("\n") for a in answers), "and six at once do")
    check(all(established(connection) for connection in readers), "meanwhile all are waited for")
    check(wait_until(lambda: not any(map(established, readers)), SEND_S + 8, 0.5), f"after {SEND_S} s the slow ones are ended")
    check_given_back(scheduler, rest)
    for connection in readers:
        connection.close()


def established(connection):
    """Whether the other end is still there, though nothing is read: TCP's own word for it."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state == 1


def outside_address():
    """This machine's own, as another machine would name it."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]
    except OSError:
        return None


def test_crowd():
    """From elsewhere: as many connections as can be, of each as many requests as can be, of which a byte came."""
    host = outside_address()
    if host is None:
        print("skipped: this machine has no address but loopback's")
        return
    api = Api()
    api.set(NODES, node("node-1", 4, count=100))
    scheduler = Scheduler(api, "--http_bind=0.0.0.0:0")
    scheduler.filter(pod(None), ["node-1"])
    before, held = scheduler.anonymous_kib(), []
    for make in (lambda: open_streams(scheduler.port, 64, host), lambda: open_raw(scheduler.port, host=host)):
        for _ in range(400):
            with contextlib.suppress(OSError):
                held.append(make())
        peak = scheduler.anonymous_kib()
        check(SANITIZED or peak < before + SLACK_KIB, f"{len(held)} connections from elsewhere take little memory", f"{before} KiB, then {peak} KiB")
    placed, why = place(scheduler, api.set(PODS, pod(10)), ["node-1"])
    check_equal(placed, "node-1", "and leave filter and bind alone", why)
    for connection in held:
        connection.close()
    check_given_back(scheduler, before)
    scheduler.end()


def test_loopback():
    """/filter and /bind are this machine's alone, whichever kind of address it has."""
    api = Api()
    api.set(NODES, node("node-1"))
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        print("skipped: no IPv6 here")
        return
    scheduler = Scheduler(api, "--http_bind=[::]:0")
    for host, status in (("::1", 200), ("127.0.0.1", 200), ("127.8.9.10", 200), (outside_address(), 403)):
        if host is None:
            print("skipped: this machine has no address but loopback's")
            continue
        connection = http.client.HTTPSConnection(host, scheduler.port, context=TRUSTING, timeout=20)
        connection.request("POST", "/filter", json.dumps({"Pod": pod(None), "NodeNames": ["node-1"]}))
        check_equal(connection.getresponse().status, status, f"a filter from {host} is answered with {status}")
        connection.close()
    scheduler.end()


def main():
    api = Api()
    api.set(NODES, node("node-1", 4, count=100))
    scheduler = Scheduler(api)
    run_each(api, scheduler, test_half_sent_bodies, test_many_half_sent_bodies, test_trickles, test_slow_readers)
    scheduler.end()
    run_part(test_crowd)
    run_part(test_loopback)
    finish()


main()

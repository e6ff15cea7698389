#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP/2, as kube-scheduler and kube-apiserver speak it, and as nobody should. The client's side is written here by hand."""

import struct

from support import *

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE = 1, 4
# RFC 7541, appendix A: what the server may name by number alone; appendix B: the digits.
STATUS_BY_INDEX = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
DIGITS = {f"{code:05b}": str(code) for code in range(3)} | {f"{code:06b}": str(code - 0x19 + 3) for code in range(0x19, 0x20)}


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A header that no table is to remember, its words not compressed."""

    def text(word):
        assert len(word) < 127
        return bytes([len(word)]) + word.encode()

    return b"\0" + text(name) + text(value)


def read_status(block):
    """Of a block whose first header is :status, perhaps after a word about the size of the table."""
    block = block[1:] if block[0] >> 5 == 1 else block
    first = block[0]
    if first & 0x80:
        return STATUS_BY_INDEX[first & 0x7F]
    # A literal of some kind, whose name is one of the static table's entries for :status.
    length = block[1] & 0x7F
    word = block[2 : 2 + length]
    if not block[1] & 0x80:
        return int(word)
    bits, digits = "".join(f"{byte:08b}" for byte in word), ""
    while len(digits) < 3:
        size = 5 if bits[:5] in DIGITS else 6
        digits += DIGITS[bits[:size]]
        bits = bits[size:]
    return int(digits)


class Client:
    """A connection; streams are asked for and read in any order."""

    def __init__(self, scheduler, protocols=("h2", "http/1.1"), window=1 << 30, preface=True):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if protocols:
            context.set_alpn_protocols(list(protocols))
        self.host = f"127.0.0.1:{scheduler.port}"
        raw = socket.create_connection(("127.0.0.1", scheduler.port), timeout=30)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(raw)
        self.protocol = self.socket.selected_alpn_protocol()
        self.stream, self.buffer = -1, b""
        self.statuses, self.bodies, self.ended, self.windows = {}, {}, set(), {}
        self.gone = None
        if self.protocol == "h2" and preface:
            settings = struct.pack(">HIHI", HEADER_TABLE_SIZE, 0, INITIAL_WINDOW_SIZE, min(window, (1 << 31) - 1))
            self.send(PREFACE + frame(SETTINGS, 0, 0, settings))
            if window > 65535:
                self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", window)))
            # Until it is heard, the server's window is not what it will be.
            while self.read_frame() != SETTINGS:
                pass

    def send(self, data):
        self.socket.sendall(data)

    def block(self, method, path, *more):
        headers = [(":method", method), (":scheme", "https"), (":authority", self.host), (":path", path), *more]
        return b"".join(literal(*header) for header in headers)

    def begin(self, method, path, body=b"", end=True):
        """Asks; returns the stream."""
        self.stream += 2
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        head = self.block(method, path, *([("content-type", "application/json")] if body else []))
        self.send(frame(HEADERS, END_HEADERS | (END_STREAM if end and not body else 0), self.stream, head))
        self.bodies[self.stream] = b""
        for at in range(0, len(body), 16384):
            self.wait_for_window(at + 16384)
            last = end and at + 16384 >= len(body)
            self.send(frame(DATA, END_STREAM if last else 0, self.stream, body[at : at + 16384]))
        return self.stream

    def wait_for_window(self, wanted):
        """The server says a MiB; beyond, it says more as it reads."""
        while wanted > self.windows.setdefault(self.stream, 1 << 20) and self.stream not in self.ended:
            self.read_frame()

    def read_exactly(self, count):
        while len(self.buffer) < count:
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionResetError("closed")
            self.buffer += more
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def read_frame(self):
        head = self.read_exactly(9)
        payload = self.read_exactly(int.from_bytes(head[:3], "big"))
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        if kind == HEADERS:
            self.statuses[stream] = read_status(payload)
        elif kind == DATA:
            self.bodies[stream] += payload
        elif kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == WINDOW_UPDATE and stream:
            self.windows[stream] = self.windows.setdefault(stream, 1 << 20) + struct.unpack(">I", payload)[0]
        elif kind == GOAWAY:
            self.gone = struct.unpack(">II", payload[:8])
        elif kind == RST_STREAM:
            self.statuses.setdefault(stream, "reset")
            self.ended.add(stream)
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.ended.add(stream)
        return kind

    def answer(self, stream):
        """(status, body)."""
        while stream not in self.ended:
            self.read_frame()
        return self.statuses[stream], self.bodies[stream].decode()

    def ask(self, method, path, body=b""):
        return self.answer(self.begin(method, path, body))

    def close(self):
        self.socket.close()


def bind_of(thing, name="node-1"):
    metadata = thing["metadata"]
    return {"PodName": metadata["name"], "PodNamespace": "ns", "PodUID": metadata["uid"], "Node": name}


def check_alive(scheduler, sentence):
    try:
        client = Client(scheduler)
        check_equal(client.ask("GET", "/healthz"), (200, "ok\n"), sentence)
        client.close()
    except OSError as error:
        check(False, sentence, error, scheduler.said()[-2000:])


def test_what_is_offered(api, scheduler):
    for protocols in (("h2", "http/1.1"), ("h2",), ("http/1.1", "h2"), ("http/1.1",), ("http/1.0", "spdy/3"), ()):
        client = Client(scheduler, protocols)
        check_equal(client.protocol == "h2", "h2" in protocols, f"offered {protocols}, it takes {client.protocol or 'HTTP/1.1'}")
        if client.protocol == "h2":
            check_equal(client.ask("GET", "/healthz"), (200, "ok\n"), "and answers")
        else:
            client.send(b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            check(client.read_exactly(12).endswith(b"200"), "and answers")
        client.close()


def open_by_hand(scheduler, cuts=(), receive_buffer=None):
    """TLS whose bytes the caller carries: (tls, its outgoing bytes, the socket). The hello goes out in pieces."""
    raw = socket.socket()
    raw.settimeout(10)
    if receive_buffer:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    raw.connect(("127.0.0.1", scheduler.port))
    outgoing, incoming = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    tls = context.wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    hello, at = outgoing.read(), 0
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for cut in (*cuts, len(hello)):
        raw.sendall(hello[at:cut])
        at = cut
        time.sleep(0.05 if cuts else 0)
    while True:
        incoming.write(raw.recv(65536))
        try:
            tls.do_handshake()
            return tls, outgoing, raw
        except ssl.SSLWantReadError:
            pass


def test_a_hello_in_pieces(api, scheduler):
    """A network may bring the first record in any pieces: who offers HTTP/2 gets it all the same."""
    for cuts in ((1,), (4, 60), (5,), (100, 101, 102), (-1,)):
        tls, _, raw = open_by_hand(scheduler, cuts)
        check_equal(tls.selected_alpn_protocol(), "h2", f"a hello cut at {cuts} is understood")
        raw.close()
    for words in (b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\x01\x00\x01", b"\x16\x03\x01\xff\xff" + b"x" * 100, b"\x00" * 10, b"GET / HTTP/1.1\r\n\r\n"):
        raw = socket.create_connection(("127.0.0.1", scheduler.port), timeout=10)
        with contextlib.suppress(OSError):
            raw.sendall(words)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
        raw.close()
    check_alive(scheduler, "those who say half a hello, or none, disturb nobody")


def test_answers(api, scheduler):
    client = Client(scheduler)
    question = {"Pod": pod(None), "NodeNames": ["a", "b"]}
    status, text = client.ask("POST", "/filter", question)
    check_equal((status, json.loads(text)["NodeNames"]), (200, ["a", "b"]), "a body goes and comes")
    check_equal(client.ask("GET", "/healthz?x=y"), (200, "ok\n"), "what follows a question mark is passed over")
    check_equal(client.ask("HEAD", "/healthz"), (200, ""), "HEAD has no body")
    check_equal(client.ask("GET", "/nothing")[0], 404, "an unknown path")
    check_equal(client.ask("GET", "/" + "x" * 120)[0], 404, "a long one")
    check_equal(client.ask("PUT", "/filter")[0], 405, "another method")
    check_equal(client.ask("DELETEDELETEDELETEDELETE", "/filter")[0], 405, "a method that is none")
    for path, longest in (("/bind", 64 << 10), ("/webhook", 4 << 20)):
        check_equal(client.ask("POST", path, b"[" * (longest + 1))[0], 413, f"{path}: {longest} bytes are the most")
        check(client.ask("POST", path, b" " * longest)[0] in (200, 400), f"{path}: and may be sent")
    check_equal(client.ask("GET", "/healthz"), (200, "ok\n"), "the connection goes on")
    names = ["a-node-of-no-devices-%05d" % i for i in range(30000)]
    status, text = client.ask("POST", "/filter", {"Pod": pod(None), "NodeNames": names})
    check_equal((status, json.loads(text)["NodeNames"]), (200, names), "a long answer comes whole")
    slow = Client(scheduler, window=20000)
    stream = slow.begin("POST", "/filter", {"Pod": pod(None), "NodeNames": names})
    while len(slow.bodies[stream]) < 20000:
        slow.read_frame()
    check_equal(slow.ask("GET", "/nothing")[0], 404, "while a client takes no more of one answer it gets others")
    slow.close()
    client.close()


def test_binds_at_once(api, scheduler):
    """A burst over one connection; others are answered while they wait for the API server."""
    things = [api.set(PODS, pod(10)) for _ in range(100)]
    for thing in things:
        scheduler.filter(thing, ["node-1"])
    sent = len(api.seen("POST", "/binding"))
    api.holding = threading.Event()
    client = Client(scheduler)
    streams = [client.begin("POST", "/bind", bind_of(thing)) for thing in things]
    check(wait_until(lambda: len(api.seen("POST", "/binding")) > sent), "a hundred binds are under way")
    check_equal(client.ask("GET", "/healthz"), (200, "ok\n"), "meanwhile another is answered on the same connection")
    api.holding.set()
    api.holding = None
    answers = {client.answer(stream) for stream in streams}
    check_equal(answers, {(200, '{"Error":""}\n')}, "all are answered")
    check(scheduler.sees_what_is(), "and done")
    client.close()


def test_clients_that_leave(api, scheduler):
    things = [api.set(PODS, pod(10)) for _ in range(30)]
    for thing in things:
        scheduler.filter(thing, ["node-1"])
    bound = len(api.bound)
    api.holding = threading.Event()
    client, other, third = Client(scheduler), Client(scheduler), Client(scheduler)
    streams = [(client, other, third)[i % 3].begin("POST", "/bind", bind_of(thing)) for i, thing in enumerate(things)]
    time.sleep(0.3)
    for stream in streams[0::3]:
        client.send(frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))
    check_equal(client.ask("GET", "/healthz"), (200, "ok\n"), "streams that were reset leave the connection alone")
    other.close()
    third.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    third.close()
    check_alive(scheduler, "connections that were closed leave others alone")
    api.holding.set()
    api.holding = None
    check(wait_until(lambda: len(api.bound) >= bound + 30), "what they asked for is done all the same")
    check(scheduler.sees_what_is(), "and known", scheduler.view())
    half = Client(scheduler)
    for size in (0, 10, 40000):
        half.begin("POST", "/filter", b"x" * size, end=False)
    half.close()
    deaf = Client(scheduler)
    deaf.socket.settimeout(1)
    names = ["a-node-of-no-devices-%05d" % i for i in range(30000)]
    with contextlib.suppress(OSError):
        for _ in range(100):
            deaf.begin("POST", "/filter", {"Pod": pod(None), "NodeNames": names})
        check(False, "from a client that does not read nothing more is taken")
    check_alive(scheduler, "a client that does not read what it asked for holds up nobody")
    deaf.close()
    check_alive(scheduler, "nor one that leaves before it is sent")


def test_what_nobody_should_say(api, scheduler):
    """Whatever comes, the others are served, and nothing grows."""
    client = Client(scheduler)
    head = client.block("POST", "/filter")
    client.close()
    before = scheduler.private_kib()
    for name, data in (
        ("no preface", b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"),
        ("zeros", bytes(100000)),
        ("noise", random.Random(1).randbytes(100000)),
        ("a frame of 16 MiB", b"\xff\xff\xff" + struct.pack(">BBI", DATA, 0, 1)),
        ("data without a stream", frame(DATA, 0, 0, b"x")),
        ("data of a stream that never was", frame(DATA, 0, 99, b"x")),
        ("headers of an even stream", frame(HEADERS, END_HEADERS, 2, head)),
        ("headers that decode to nothing", frame(HEADERS, END_HEADERS, 1, b"\xff" * 100)),
        ("headers that lack a method", frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(":path", "/healthz"))),
        ("headers without an end", frame(HEADERS, 0, 1, head) + frame(CONTINUATION, 0, 1, literal("x", "y" * 100) * 100) * 1000),
        ("a header block of 2 MiB", frame(HEADERS, 0, 1, head) + b"".join(frame(CONTINUATION, 0, 1, literal(f"x{i}", "y" * 100) * 100) for i in range(200))),
        ("twenty thousand pings", frame(PING, 0, 0, bytes(8)) * 20000),
        ("twenty thousand settings", frame(SETTINGS, 0, 0, struct.pack(">HI", HEADER_TABLE_SIZE, 4096)) * 20000),
        ("twenty thousand streams reset at once", b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, head) + frame(RST_STREAM, 0, 2 * i + 1, bytes(4)) for i in range(20000))),
        ("more streams than may be open", b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, head) for i in range(2000))),
        ("a window too wide", frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1)) * 2),
    ):  # fmt: skip
        client = Client(scheduler, preface=name != "no preface")
        with contextlib.suppress(OSError):
            client.send(data)
        with contextlib.suppress(OSError, KeyError):
            client.socket.settimeout(0.3)
            while client.gone is None:
                client.read_frame()
        check(200 not in client.statuses.values(), f"{name}: answers nothing well")
        client.close()
        check_alive(scheduler, f"{name}: disturbs nobody")
    check(wait_until(lambda: SANITIZED or scheduler.private_kib() < before + 8 * 1024), "and leaves no memory behind", before, scheduler.private_kib())


def test_a_client_that_hardly_reads(api, scheduler):
    """Two million streams beyond those allowed, each of which is owed a word; few of them are taken."""
    tls, outgoing, raw = open_by_hand(scheduler, receive_buffer=4096)
    before, peak, sent = scheduler.private_kib(), 0, 0
    get = b"\x82\x87\x84"  # GET, https, /
    tls.write(PREFACE + frame(SETTINGS, 0, 0))
    for begun in range(0, 2000000, 1000):
        tls.write(b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, get) for i in range(begun, begun + 1000)))
    data = outgoing.read()
    raw.setblocking(False)
    end = time.monotonic() + 4
    while time.monotonic() < end and sent < len(data):
        with contextlib.suppress(BlockingIOError, ConnectionError):
            sent += raw.send(data[sent : sent + 65536])
        with contextlib.suppress(BlockingIOError, ConnectionError):
            raw.recv(4096)
        peak = max(peak, scheduler.private_kib())
        time.sleep(0.002)
    check(SANITIZED or peak < before + 16 * 1024, f"what is owed to it stays little, {sent >> 10} KiB sent", f"{before} KiB, then {peak} KiB")
    raw.close()
    check_alive(scheduler, "and others are served")


def test_answers_that_nobody_takes(api, scheduler):
    """Bodies that together are all that may be held, down to the last KiB; each is answered, which nobody hears."""
    client = Client(scheduler, window=0)
    for size in [4 << 20] * 8 + [(1 << n) - 1 for n in range(22, 11, -1)] * 2:
        client.begin("POST", "/webhook", b"[" * size)
    check_equal(scheduler.filter(pod(None), ["node-1"])["NodeNames"], ["node-1"], "bodies that were answered are not held on to")
    client.close()


def test_bodies_that_want_memory(api, scheduler):
    before = scheduler.private_kib()
    clients = [Client(scheduler) for _ in range(4)]
    for client in clients:
        for _ in range(10):
            client.begin("POST", "/filter", b"x" * (1 << 20), end=False)
    check_alive(scheduler, "forty bodies of which a part is there hold up nobody")
    for client in clients:
        client.close()
    check(wait_until(lambda: SANITIZED or scheduler.private_kib() < before + 40 * 1024), "their memory is given back", before, scheduler.private_kib())


def test_a_body_that_does_not_come(api, scheduler):
    """Whoever asks each second whether the server is there is not waited for any longer than others; nor is a slow reader."""
    half, deaf, honest = Client(scheduler), Client(scheduler, window=0), Client(scheduler)
    half.begin("POST", "/webhook", b"x" * 1000, end=False)
    asked = deaf.begin("GET", "/healthz")
    honest.ask("GET", "/healthz")
    begun, ended = time.monotonic(), {}
    while len(ended) < 2 and time.monotonic() - begun < 40:
        for client in {half, deaf} - set(ended):
            try:
                client.send(frame(PING, 0, 0, bytes(8)))
                client.socket.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    while True:
                        client.read_frame()
            except (OSError, ssl.SSLError):
                ended[client] = time.monotonic() - begun
        time.sleep(0.5)
    check(9 < ended.get(half, 0) < 15, "half a body is waited for 10 s", ended.get(half))
    check(29 < ended.get(deaf, 0) < 36, "an answer that is not taken 30 s", ended.get(deaf), deaf.statuses.get(asked))
    check_equal(honest.ask("GET", "/healthz"), (200, "ok\n"), "and one that asked before, and is silent, is left as it is")
    for client in (half, deaf, honest):
        client.close()


def test_more_than_it_keeps(api, scheduler):
    kept = []
    for _ in range(600):
        with contextlib.suppress(OSError):
            kept.append(Client(scheduler))
    check_alive(scheduler, "six hundred idle connections keep nobody out")
    for client in kept:
        client.close()
    check_alive(scheduler, "nor when they have gone")


def test_nothing_grows(api, scheduler):
    client, asked = Client(scheduler), {"Pod": pod(None), "NodeNames": [f"node-{i}" for i in range(200)]}
    seen = []
    for _ in range(4):
        for _ in range(2000):
            client.ask("POST", "/filter", asked)
        for _ in range(30):
            short = Client(scheduler)
            short.begin("POST", "/filter", b"x", end=False)
            short.close()
        wait_until(lambda: scheduler.descriptors() < 40)
        seen.append(scheduler.private_kib())
    least = min(after - before for before, after in zip(seen, seen[1:]))
    check(SANITIZED or least < 512, "thousands of requests leave no memory behind", f"KiB: {seen}")
    check(scheduler.descriptors() < 40, "and no descriptor", scheduler.descriptors())
    client.close()


def test_stopping(api, scheduler):
    """Who waits for an answer gets it, and is told that the connection ends."""
    thing = api.set(PODS, pod(10))
    scheduler.filter(thing, ["node-1"])
    api.holding = threading.Event()
    client = Client(scheduler)
    stream = client.begin("POST", "/bind", bind_of(thing))
    wait_until(lambda: api.seen("POST", f"{thing['metadata']['name']}/binding"))
    scheduler.process.terminate()
    wait_until(lambda: "stopping" in scheduler.said())
    api.holding.set()
    api.holding = None
    check_equal(client.answer(stream), (200, '{"Error":""}\n'), "a bind under way is answered")
    with contextlib.suppress(OSError):
        while True:
            client.read_frame()
    check_equal(client.gone and client.gone[1], 0, "then the connection is said to end, without an error")
    check_equal(scheduler.process.wait(30), 0, "and the scheduler ends with status 0")


def main():
    api = Api()
    api.set(NODES, node("node-1", 4, count=100))
    scheduler = Scheduler(api)
    run_each(
        api, scheduler,
        test_what_is_offered, test_a_hello_in_pieces, test_answers, test_binds_at_once, test_clients_that_leave, test_what_nobody_should_say,
        test_a_client_that_hardly_reads, test_answers_that_nobody_takes, test_bodies_that_want_memory,
        test_a_body_that_does_not_come, test_more_than_it_keeps, test_nothing_grows, test_stopping,
    )  # fmt: skip
    finish()


main()

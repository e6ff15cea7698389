#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The serving certificate while its files change, as Kubernetes changes them and as people do."""

from support import *

SECONDS = 5  # a change is seen within one


def serial(scheduler, timeout=10):
    """Of the certificate that a new connection is served."""
    with socket.create_connection(("127.0.0.1", scheduler.port), timeout=timeout) as raw:
        with TRUSTING.wrap_socket(raw) as connection:
            pem = ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True))
    out = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=pem, stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(out.strip().partition("=")[2], 16)


def becomes(scheduler, number, sentence):
    wait_until(lambda: serial(scheduler) == number, SECONDS, 0.1)
    check_equal(serial(scheduler), number, sentence)


def replace(folder, pair, names=("tls.crt", "tls.key")):
    """Each file by rename."""
    for name in names:
        shutil.copy(pair / name, folder / "new")
        os.rename(folder / "new", folder / name)


def complaints(scheduler):
    return [line for line in scheduler.said().splitlines() if "can't be used" in line]


def stays(scheduler, number, said, what):
    """It says once why the new pair is none, and goes on with the old one."""
    check(wait_until(lambda: len(complaints(scheduler)) > said, SECONDS), f"{what}: it is said", scheduler.said()[-500:])
    time.sleep(2.2)
    check_equal(len(complaints(scheduler)), said + 1, f"{what}: once", complaints(scheduler))
    check_equal(serial(scheduler), number, f"{what}: the certificate in force stays")
    return said + 1


def test_files_that_change(pairs):
    folder = scratch / "served"
    shutil.copytree(pairs[1], folder)
    api = Api()
    api.set(NODES, node("node-1"))
    scheduler = Scheduler(api, certificate=folder)
    check_equal(serial(scheduler), 1, "the certificate is served")
    scheduler.ask("GET", "/healthz")
    before = scheduler.local.connection.sock.getsockname()
    thing = api.set(PODS, pod())
    scheduler.filter(thing, ["node-1"])
    api.holding = threading.Event()
    answers = []
    asking = threading.Thread(target=lambda: answers.append(scheduler.bind(thing, "node-1")))
    asking.start()
    wait_until(lambda: api.seen("POST", "/binding"))
    greeted = half_handshake(scheduler)
    replace(folder, pairs[2])
    becomes(scheduler, 2, "a new one is served within a second or two")
    replace(folder, pairs[3])
    becomes(scheduler, 3, "and the next")
    api.holding.set()
    api.holding = None
    asking.join(20)
    check_equal(answers, [""], "a request under way is answered")
    scheduler.ask("GET", "/healthz")
    check_equal(scheduler.local.connection.sock.getsockname(), before, "connections go on")
    check_equal(end_handshake(greeted), True, "so does a handshake that was half done")

    said = len(complaints(scheduler))
    (folder / "tls.crt").write_text("garbage")
    said = stays(scheduler, 3, said, "a certificate that is none")
    replace(folder, pairs[2], ["tls.crt"])
    said = stays(scheduler, 3, said, "one whose key is another's")
    (folder / "tls.key").unlink()
    said = stays(scheduler, 3, said, "a key that is gone")
    replace(folder, pairs[2])
    becomes(scheduler, 2, "a pair that is whole again is served")
    check_equal(len(complaints(scheduler)), said, "without complaint")
    shutil.copy(pairs[1] / "tls.crt", folder / "tls.crt")
    time.sleep(0.05)
    shutil.copy(pairs[1] / "tls.key", folder / "tls.key")
    becomes(scheduler, 1, "files that are written one after the other come to be served")
    check("PRIVATE KEY" not in scheduler.said(), "no key is logged")
    scheduler.end()


def half_handshake(scheduler):
    """A client that has sent its first words and reads no answer yet."""
    raw = socket.create_connection(("127.0.0.1", scheduler.port), timeout=20)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = TRUSTING.wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    raw.sendall(outgoing.read())
    return raw, session, incoming, outgoing


def end_handshake(greeted):
    raw, session, incoming, outgoing = greeted
    try:
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                data = raw.recv(65536)
                if not data:
                    return False
                incoming.write(data)
        session.write(b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        raw.sendall(outgoing.read())
        data = b""
        while b"ok\n" not in data:
            incoming.write(raw.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                data += session.read(65536)
        return True
    except (OSError, ssl.SSLError) as error:
        return error
    finally:
        raw.close()


def test_a_mounted_secret(pairs):
    """tls.crt -> ..data/tls.crt, ..data -> a folder with a time in its name: the link is renamed over the old one."""
    folder = scratch / "mounted"
    folder.mkdir()
    shutil.copytree(pairs[1], folder / "..2026_01")
    os.symlink("..2026_01", folder / "..data")
    for name in ("tls.crt", "tls.key"):
        os.symlink(f"..data/{name}", folder / name)
    api = Api()
    scheduler = Scheduler(api, certificate=folder)
    check_equal(serial(scheduler), 1, "a mounted secret is served")
    shutil.copytree(pairs[2], folder / "..2026_02")
    os.symlink("..2026_02", folder / "..data_tmp")
    os.rename(folder / "..data_tmp", folder / "..data")
    shutil.rmtree(folder / "..2026_01")
    becomes(scheduler, 2, "a new one, once its link is swapped")
    check_equal(complaints(scheduler), [], "at once, never half")
    scheduler.end()


def main():
    pairs = {number: make_certificate(scratch / f"pair-{number}", number) for number in (1, 2, 3)}
    run_part(test_files_that_change, pairs)
    run_part(test_a_mounted_secret, pairs)
    finish()


main()

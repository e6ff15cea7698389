#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cards that fail while hami-device-plugin runs: out within seconds, told to all, and back again when they are well."""

import sys

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from plugin import *

QUIET = "--health-quiet=2s"


class Watched(Node):
    def __init__(self, **more):
        super().__init__(more=[QUIET], **more)
        self.kubelet.connect()
        check(wait_until(lambda: self.health() == [True] * len(self.uuids)), "all cards are well", self.said())
        time.sleep(1)  # until somebody waits for events

    def health(self):
        found = self.api.objects[NODES][NODE]["metadata"].get("annotations", {}).get(REGISTER)
        return [d.get("health", False) for d in json.loads(found)] if found else None

    def becomes(self, wanted, seconds, sentence):
        began = time.monotonic()
        check(wait_until(lambda: self.health() == wanted, seconds), sentence, self.health(), self.said()[-800:])
        print(f"    after {time.monotonic() - began:.1f} s")

    def stays(self, wanted, seconds, sentence):
        check(not wait_until(lambda: self.health() != wanted, seconds), sentence, self.health(), self.said()[-800:])

    def told(self, reason, word):
        return [e for e in self.api.told if e["reason"] == reason and word in e["message"]]

    def reported(self, index):
        return json.loads((self.folder / "vgpu/cards.json").read_text())["cards"][index]


def errors():
    node = Watched(gpus=3)
    _, b, _ = node.uuids
    pod = node.show(node.pod("one", "main", gives=[[(b, 1000, 10)]]))
    status, why, name = node.run_container(pod, "main", [f"{b}::0"])
    check_equal(status, "OK", "a container starts on a card", why)

    node.machine.fault(1, "--xid=31")
    node.machine.fault(1, "--ecc=corrected")
    node.stays([True] * 3, 2, "a program's own error takes no card out")
    node.machine.fault(1, "--xid=79")
    node.becomes([True, False, True], 5, "an XID that counts does, on the Node's annotation")
    check(wait_until(lambda: node.told("CardUnhealthy", "XID 79")), "an event says so", node.api.told)
    (event, *_) = node.told("CardUnhealthy", "XID 79")
    seen = {k: event["involvedObject"].get(k) for k in ("kind", "name", "uid")} | {"type": event["type"], "namespace": event["metadata"]["namespace"]}
    check_equal(seen, {"kind": "Node", "name": NODE, "uid": "node-uid", "type": "Warning", "namespace": "default"}, "of the Node, where kubectl looks for it")
    check(b in event["message"], "with the card", event["message"])
    check(wait_until(lambda: node.reported(1).get("why") == "XID 79"), "and the monitor is told why", node.reported(1))
    check_equal((node.reported(1)["healthy"], node.reported(1)["failures"], node.reported(1)["corrected_errors"], node.reported(0)["healthy"]), (False, 1, 1, True), "with the errors")
    check(node.spec(name), "the container's specification stays")
    two = node.show(node.pod("two", "main", gives=[[(b, 1000, 10)]]))
    status, why, _ = node.run_container(two, "main", [f"{b}::1"])
    check(status == "FAILED_PRECONDITION" and "is not healthy" in why, "a container that is to start on it waits", status, why)
    node.becomes([True] * 3, 10, "when the driver has asked for nothing for a while it is well")
    check(wait_until(lambda: node.told("CardHealthy", b)), "which is an event, too", node.api.told)
    check_equal(node.kubelet.prestart([f"{b}::1"])[0], "OK", "and the container starts")

    node.machine.fault(0, "--action=reset")
    node.becomes([False, True, True], 5, "a card that the driver wants reset is out")
    node.stays([False, True, True], 8, "as long as it does")
    node.machine.fault(0, "--action=none")
    node.becomes([True] * 3, 7, "and back when it does not")
    node.machine.fault(2, "--ecc=uncorrected")
    node.becomes([True, True, False], 5, "so is one with an uncorrected memory error")
    node.becomes([True] * 3, 10, "until that is over")
    node.end()


def lost():
    node = Watched(gpus=2)
    node.machine.fault(0, "--state=lost")
    node.becomes([False, True], 5, "a lost card is out")
    check(wait_until(lambda: node.told("CardUnhealthy", "GPU is lost")), "with NVML's reason", node.api.told)
    node.machine.fault(1, "--xid=95")
    node.becomes([False, False], 5, "errors of the other one are still seen")
    node.becomes([False, True], 10, "and are over")
    node.machine.fault(0, "--state=ok")
    node.becomes([True, True], 7, "a card that answers again is back")
    time.sleep(2)
    node.machine.fault(0, "--xid=79")
    node.becomes([False, True], 5, "and its errors are seen again")
    node.becomes([True, True], 10, "and are over")
    node.machine.fault(0, "--state=lost")
    time.sleep(0.5)
    node.machine.fault(1, "--xid=95")
    node.becomes([False, False], 5, "what befalls another card right after one was lost is seen")
    check(node.plugin.poll() is None, "all this time the plugin runs")
    node.end()


def hangs():
    """One card hangs, and with it whoever asks or waits: nothing is known of any card."""
    node = Watched(gpus=2)
    (a, _) = node.uuids
    pod = node.show(node.pod("one", "main", gives=[[(a, 1000, 10)]]))
    node.machine.fault(1, "--state=hangs")
    node.becomes([False, False], 25, "a driver that hangs takes all cards out")
    check(wait_until(lambda: len(node.told("CardUnhealthy", "does not answer")) == 2), "and says so", node.api.told)
    began = time.monotonic()
    status, why, _ = node.run_container(pod, "main", [f"{a}::0"])
    check(status == "FAILED_PRECONDITION" and time.monotonic() - began < 2, "meanwhile kubelet is answered", status, why)
    node.machine.fault(1, "--state=ok")
    node.becomes([True, True], 7, "until it answers again")
    node.machine.fault(1, "--state=hangs")
    time.sleep(6)
    began = time.monotonic()
    node.plugin.terminate()
    check_equal(node.plugin.wait(30), 0, "the plugin ends on SIGTERM while a card hangs")
    check(time.monotonic() - began < 5, "soon", time.monotonic() - began)
    node.kubelet.stop()
    node.api.close()


def options():
    off = Watched(gpus=2, DP_DISABLE_HEALTHCHECKS="all", driver={"recovery-action": "unknown"})
    some = Watched(gpus=2, DP_DISABLE_HEALTHCHECKS="79, x", DP_ENABLE_HEALTHCHECKS="31", driver={"recovery-action": "unknown"})
    none = Watched(gpus=2, driver={"events": "none", "recovery-action": "unknown"})
    for node in off, some, none:
        node.machine.fault(0, "--xid=79")
    some.machine.fault(1, "--xid=31")
    none.machine.fault(1, "--ecc=uncorrected")
    off.machine.fault(1, "--ecc=uncorrected")
    some.becomes([True, False], 5, "an XID that is enabled counts, and one that is disabled does not")
    check("DP_DISABLE_HEALTHCHECKS: 1 of its pieces are no XIDs" in some.said(), "what is no XID is said", some.said()[:600])
    none.becomes([True, False], 8, "where NVML has no events an error is seen in the count")
    off.stays([True, True], 3, "with all disabled none counts")
    some.becomes([True, True], 10, "a driver that does not say what a card needs: quiet heals")
    off.machine.fault(0, "--state=lost")
    off.becomes([False, True], 7, "but a card that does not answer is out all the same")
    began = time.monotonic()
    for node in off, some, none:
        node.end()
    check(time.monotonic() - began < 8, "plugins that wait for events end soon", time.monotonic() - began)


def modes():
    """How somebody set a card up: of no use at all, or to one only."""
    node = Watched(gpus=2)
    counts = lambda: [d["count"] for d in json.loads(node.api.objects[NODES][NODE]["metadata"]["annotations"][REGISTER])]
    for words, well, what in ((["--mig=on"], False, "in MIG mode"), (["--mig=off"], True, "not any more"),
                              (["--compute-mode=prohibited"], False, "that nobody may use"), (["--compute-mode=exclusive"], True, "that one process may use")):
        node.machine.fault(1, *words)
        node.becomes([True, well], 7, f"a card {what} is {'well' if well else 'out'}")
    check_equal(counts(), [10, 1], "the last to one container")
    node.machine.fault(1, "--compute-mode=default")
    check(wait_until(lambda: counts() == [10, 10], 7), "until it is as usual", counts())
    node.end()


def begins_anew():
    """SIGHUP while somebody waits for events."""
    node = Watched(gpus=1)
    node.plugin.send_signal(signal.SIGHUP)
    node.kubelet.connect()
    check(node.kubelet.lists.get(timeout=30) and node.plugin.poll() is None, "it begins anew on SIGHUP")
    time.sleep(7)
    node.machine.fault(0, "--xid=79")
    node.becomes([False], 5, "and sees errors as before")
    node.end()


PARTS = ["errors", "lost", "hangs", "options", "modes", "begins_anew"]

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        globals()[part]()
    finish()

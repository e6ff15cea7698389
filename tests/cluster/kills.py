#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One program of the chain is killed with SIGKILL, at rest and while pods are coming.

    kills.py PROGRAM

Running pods keep running and limited, new pods go on within 10 s, nothing stale is left. What kubelet itself
needs after such a moment (it tries a pod again after 10 s) shows on pods that ask for nothing of ours,
created beside the others: where those take longer, ours may, too. A pod in whose start the plugin was killed
is tried again in that way, as well.
"""

from support import *

COMING = 8
WITHIN_S = 10.0
# kubelet spreads those 10 s out to 15.
RETRY_S = 15.0
MARGIN_S = 5.0


def create_stubbornly(namespace, manifest, seconds):
    """As a controller does: tries again while the API or the webhook has no answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return create(namespace, manifest)
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.status == 409:
                return None
            if time.monotonic() > deadline:
                return error
            time.sleep(0.1)


def with_share(name):
    """As a controller makes it: started again where a start was cut short."""
    return slice_pod(name, 1000, 5, restartPolicy="Always")


def bystander(name):
    return pod(name, container(command=["sleep", "1000"]), restartPolicy="Always")


def replace_rejected(namespace, there):
    """A pod that comes to kubelet while no plugin is registered fails for good: its controller makes another."""
    rejected = [p["metadata"]["name"] for p in there if p["status"].get("reason") == "UnexpectedAdmissionError"]
    for name in rejected:
        api.delete(pods_path(namespace, name), grace=0)
        create_stubbornly(namespace, with_share(name), WITHIN_S)
    return rejected


def wait_all(namespace, ours, others, begun, seconds=40):
    """When each of them ran, in seconds after `begun`; those that do not are missing."""
    took, again = {}, set()

    def look():
        there = pods(namespace)
        again.update(replace_rejected(namespace, there))
        for thing in filter(is_running, there):
            took.setdefault(thing["metadata"]["name"], time.monotonic() - begun)
        return {*ours, *others} <= took.keys()

    wait_until(look, seconds, 0.05)
    if again:
        print(f"      kubelet rejected while the plugin was away, and a controller made anew: {sorted(again)}")
    for name in set(ours) - took.keys():
        print(f"      {name}: {why(namespace, name)}")
    return took


def was_caught(namespace, name):
    """Whether the plugin was killed under its hands: kubelet then waits before it asks again."""
    return any("PreStartContainer" in (e.get("message") or "") for e in events(namespace, name))


def check_in_time(namespace, took, ours, others, sentence):
    """Returns whether all of ours run at all."""
    beside = max((took.get(name, 0) for name in others), default=0)
    # Whom kubelet tries again it makes wait by a chance of each pod's own.
    retried = RETRY_S + MARGIN_S if beside >= WITHIN_S else 0
    allowed = max(WITHIN_S, beside + MARGIN_S, retried)
    late = {name: took.get(name) for name in ours if took.get(name, 1e9) > allowed}
    caught = {name for name in late if was_caught(namespace, name)}
    if caught:
        print(f"      killed in the middle of a start, which kubelet then tried again: {sorted(caught)}")
    wrong = {name: s for name, s in late.items() if s is None or name not in caught or s > RETRY_S + MARGIN_S}
    print(f"      with a share {max((took.get(n, 0) for n in ours)):.2f} s, without {beside:.2f} s")
    check(not wrong, f"{sentence} within 10 s, or with those without a share", wrong, beside)
    return not set(ours) - took.keys()


def identity(namespace, name):
    thing = get(namespace, name)
    return [(s["containerID"], s["restartCount"]) for s in statuses(thing)]


def check_untouched(namespace, name, before):
    check_equal(identity(namespace, name), before, "the running pod was not restarted")
    deadline = time.monotonic() + WITHIN_S
    answer = None
    while time.monotonic() < deadline:
        code, out, err = execute(namespace, name, "/bin/slice", "--hold", "400")
        answer = (code, json.loads(out)["hold"] if code == 0 and out else None, err)
        if answer[:2] == (0, 2):
            break
        time.sleep(0.2)
    check(answer[:2] == (0, 2), "it is still held to its limit", answer)


def check_new_pod(namespace, begun):
    made = [create_stubbornly(namespace, m, WITHIN_S) for m in (with_share("newcomer"), bystander("bystander"))]
    check(not any(isinstance(m, Exception) for m in made), "a new pod is accepted", made)
    took = wait_all(namespace, ["newcomer"], ["bystander"], begun)
    if check_in_time(namespace, took, ["newcomer"], ["bystander"], "it runs"):
        check_share(namespace, "newcomer", 1000)


def at_rest(namespace, program):
    before = identity(namespace, "resident")
    begun = time.monotonic()
    gone = programs.kill(program)
    check(programs.back(program, gone), f"{program}, killed, is started again")
    wait_until(reachable, 30)
    check_new_pod(namespace, begun)
    check_untouched(namespace, "resident", before)
    check(delete(namespace, "newcomer") and delete(namespace, "bystander"), "the new pod goes")


def stream(namespace, failed):
    for i in range(COMING):
        for manifest in (with_share(f"coming-{i}"), bystander(f"beside-{i}")):
            made = create_stubbornly(namespace, manifest, 15)
            if isinstance(made, Exception):
                failed.append((manifest["metadata"]["name"], made))
        time.sleep(0.2)


def while_coming(namespace, program):
    before = identity(namespace, "resident")
    names = [f"coming-{i}" for i in range(COMING)]
    failed = []
    coming = threading.Thread(target=stream, args=(namespace, failed))
    coming.start()
    time.sleep(0.2 * COMING / 2)
    gone = programs.kill(program)
    check(programs.back(program, gone), f"{program}, killed while pods come, is started again")
    coming.join()
    check(not failed, "all pods are accepted", failed)
    last = time.monotonic()
    wait_until(reachable, 30)
    others = [f"beside-{i}" for i in range(COMING)]
    took = wait_all(namespace, names, others, last)
    run = check_in_time(namespace, took, names, others, "after the last was created all run")
    for name in names if run else []:
        check_share(namespace, name, 1000)
    check_untouched(namespace, "resident", before)


def leftovers():
    """What speaks of pods on the node, when there are none any more."""
    folders = [str(p) for p in (host.HOOK / "containers").glob("*")]
    specs = [str(p) for p in host.CDI.glob("*.json")]
    used = {card: used for card, used in machine_use().items() if used}
    reported = [dict(ls) for (name, ls), _ in samples(programs.MONITOR_METRICS).items() if name == "hami_vgpu_memory_used_bytes"]
    return [found for found in (folders, specs, used, reported) if found]


def main():
    program = sys.argv[1]
    need()
    use_machine(2)
    namespace = new_namespace(f"kills-{program}")
    create(namespace, slice_pod("resident", 3000, 10, command=("/bin/slice", "--hold", "2800", "--stay")))
    if not check(wait_running(namespace, ["resident"]) is not None, "a pod with a share runs"):
        finish()
    check_share(namespace, "resident", 3000)
    at_rest(namespace, program)
    while_coming(namespace, program)
    for thing in pods(namespace):
        api.delete(pods_path(namespace, thing["metadata"]["name"]))
    check(wait_until(lambda: not pods(namespace), 40, 0.1), "all pods go")
    check(wait_until(lambda: not leftovers(), 40, 0.2), "nothing stale is left", leftovers())
    seen = view() or b""
    check(b"resident" not in seen and b"coming-" not in seen, "nor in the scheduler's view", seen)
    finish()


if __name__ == "__main__":
    main()

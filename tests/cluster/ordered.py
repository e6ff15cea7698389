#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""containerd that reads no CDI specification of ours: pods get their shares by Allocate's answer, from a real kubelet, one bind at a time."""

from support import *

CONFIG = WORK / "containerd.toml"


@contextlib.contextmanager
def without_cdi():
    before = CONFIG.read_text()
    CONFIG.write_text(programs.replace_once(before, f'cdi_spec_dirs = ["{host.CDI}"]', 'cdi_spec_dirs = ["/nowhere"]'))
    try:
        restart("containerd")
        restart("hami-device-plugin")
        yield
    finally:
        CONFIG.write_text(before)
        restart("containerd")
        restart("hami-device-plugin")
        check(wait_until(lambda: ways() == {"none"}, 60, 0.2), "with CDI again nothing waits for a turn", node_register())


def ways():
    return {card.get("custominfo", {}).get("lock") for card in json.loads(node_register() or "[]")}


def some_pods(namespace):
    names = [f"one-{i}" for i in range(4)]
    first = container("first", ("/bin/slice", "--hold", "1500"), share(1, 2000, 5))
    many = pod("many", container("a", limits=share(1, 1000, 5)), container("b", limits=share(1, 3000, 5)), initContainers=[first])
    create_at_once(namespace, [*(slice_pod(name, 2000 + 100 * i, 5) for i, name in enumerate(names)), many])
    took = wait_running(namespace, [*names, "many"])
    if not check(took is not None, "pods that come at once all run", programs.last_lines("hami-device-plugin")):
        return
    print(f"      after {took:.2f} s")
    for i, name in enumerate(names):
        check_share(namespace, name, 2000 + 100 * i)
    check_share(namespace, "many", 2000, "first", 0)
    check_share(namespace, "many", 1000, "a", 1)
    check_share(namespace, "many", 3000, "b", 2)
    code, out, err = execute(namespace, "one-0", "/bin/slice", "--hold", "1700", "--then", "400")
    said = json.loads(out) if code == 0 else {}
    check_equal((said.get("hold"), said.get("then")), (0, 2), "a container is held to its share")
    environment = execute(namespace, "one-0", "env")[1].splitlines()
    check("HAMI_CONTAINER=main" in environment, "which Allocate's answer brought", environment)
    phases = lambda: {annotation(get(namespace, name), BIND_PHASE) for name in [*names, "many"]}
    check(wait_until(lambda: phases() == {"success"}, 20), "all have their devices on record", phases())


def started_again(namespace):
    """kubelet keeps Allocate's answer: a container that starts again gets the same, from a new plugin, too."""
    again = slice_pod("again", 1500, 5, command=("sh", "-c", "/bin/slice; sleep 3; exit 1"), restartPolicy="Always")
    create(namespace, again)
    check(wait_running(namespace, ["again"]) is not None, "a pod whose container ends runs")
    restart("hami-device-plugin")
    restarts = lambda: sum(s["restartCount"] for s in statuses(get(namespace, "again")))
    check(wait_until(lambda: restarts() >= 2 and is_running(get(namespace, "again")), 60, 0.2), "it starts again", why(namespace, "again"))
    check_share(namespace, "again", 1500)


def main():
    need()
    use_machine(2)
    namespace = new_namespace("ordered")
    with without_cdi():
        check(wait_until(lambda: ways() == {"turn"}, 60, 0.2), "the registration says that pods are bound in turns", node_register(), programs.last_lines("hami-device-plugin"))
        some_pods(namespace)
        started_again(namespace)
        delete_namespace(namespace)
        check(wait_until(lambda: not list((host.HOOK / "containers").glob("*")), 30, 0.2), "their folders go with them")
    finish()


if __name__ == "__main__":
    main()

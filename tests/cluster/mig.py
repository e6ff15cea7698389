#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cards in MIG mode, and pods as HAMi's examples for them: dynamic_mig_example.yaml, mig_example.yaml."""

import re

from support import *

from instances import IDS, mig, node, registered_cards

ALLOCATIONS = "hami.io/vgpu-mig-allocations"
G2 = IDS["2g"]


def dynamic(namespace):
    """As its comment says: it gets two instances 2g.10gb."""
    with node({"operatingmode": "mig"}):
        modes = lambda: [(d["mode"], d.get("health", False)) for d in registered_cards()]
        if not check(wait_until(lambda: modes() == [("mig", True)] * 2, 60, 0.2), "two cards are registered in mode mig", node_register(), programs.last_lines("hami-device-plugin")):
            return
        notes = {"nvidia.com/vgpu-mode": "mig", "hami.io/gpu-scheduler-policy": "binpack"}
        create(namespace, pod("gpu-pod", container(command=("/bin/slice", "--stay"), limits=share(2, 8000)), annotations=notes))
        if not check(wait_running(namespace, ["gpu-pod"]) is not None, "HAMi's example of a dynamic instance runs", programs.last_lines("hami-device-plugin")):
            return
        with mig() as found:
            placed = [found.placements(gpu) for gpu in range(2)]
            uuids = [uuid for gpu in range(2) for uuid in found.uuids(gpu).values()]
        check_equal(sorted(placed), [[], [(G2, 0), (G2, 2)]], "with two instances 2g.10gb of one card, which were made for it")
        seen = told(namespace, "gpu-pod") or {}
        print("     ", seen)
        check(seen.get("preloaded"), "it has libvgpu.so preloaded")
        check_equal([c["bytes"] for c in seen.get("nvml", [])], [9856 * MIB] * 2, "and sees both, with their memory, by NVML")
        check_equal([c["bytes"] for c in seen.get("cuda", [])], [9856 * MIB] * 2, "and by CUDA")
        check_equal(sorted(c["uuid"] for c in seen.get("nvml", [])), sorted(uuids), "under their uuids")
        wrote = lambda: json.loads(annotation(get(namespace, "gpu-pod"), ALLOCATIONS) or "[]")
        check(wait_until(lambda: sorted(a["migUUID"] for a in wrote()) == sorted(uuids), 20), "the pod's annotation names them", wrote())
        labels = {"namespace": namespace, "pod": "gpu-pod", "container": "main", "profile": "2g.10gb"}
        check(wait_until(lambda: any(n == "hami_mig_device_info" and labels.items() <= dict(l).items() for n, l in samples(programs.MONITOR_METRICS)), 20, 0.5), "and so does the monitor")
        check(delete(namespace, "gpu-pod"), "it goes")
        with mig() as found:
            check(wait_until(lambda: not any(found.placements(gpu) for gpu in range(2)), 30, 0.2), "and its instances with it", [found.placements(g) for g in range(2)], programs.last_lines("hami-device-plugin"))


def by_profiles(namespace):
    """As configured for HAMi 2.10: no geometries, a list of profiles. They lie beside each other in ways that no geometry has."""
    path = WORK / "device-config.yaml"
    before = path.read_text()
    allowed = r"\1migProfileAllowlist:\n\1  - {models: [A100], profiles: [1g.5gb, 2g.10gb, 3g.20gb, 7g.40gb]}\n"
    text, times = re.subn(r"^( *)knownMigGeometries:\n(\1 .*\n)+", allowed, before, flags=re.M)
    check_equal(times, 1, "the configuration has geometries")
    path.write_text(text)
    try:
        restart("hami-scheduler", extender_ready)
        with node({"operatingmode": "mig"}, gpus=1):
            modes = lambda: [(d["mode"], d.get("health", False), len(d.get("migProfiles", []))) for d in registered_cards()]
            if not check(wait_until(lambda: modes() == [("mig", True, 4)], 60, 0.2), "a card is registered with its profiles", node_register(), programs.last_lines("hami-device-plugin")):
                return
            asked = {"three": 15000, "two": 8000, "one": 4000, "another": 4864}
            wanted = {"three": ("3g.20gb", 4, 19968), "two": ("2g.10gb", 0, 9856), "one": ("1g.5gb", 3, 4864), "another": ("1g.5gb", 2, 4864)}
            for name, memory in asked.items():
                create(namespace, pod(name, container(command=("/bin/slice", "--stay"), limits=share(1, memory))))
                if not check(wait_running(namespace, [name]) is not None, f"{name} runs, which asks for {memory} MiB", programs.last_lines("hami-device-plugin"), programs.last_lines("hami-scheduler")):
                    return
                profile, start, memory = wanted[name]
                made = json.loads(annotation(get(namespace, name), ALLOCATIONS))[0]
                check_equal((made["profile"], made["placement"]["start"]), (profile, start), "where HAMi's scheduler would have put it")
                check_equal([c["bytes"] for c in (told(namespace, name) or {}).get("nvml", [])], [memory * MIB], "with its instance's memory")
            with mig() as found:
                check_equal(sorted(start for _, start in found.placements(0)), [0, 2, 3, 4], "four instances of three profiles are on the card")
            for name in asked:
                check(delete(namespace, name), f"{name} goes")
            create(namespace, pod("all", container(command=("/bin/slice", "--stay"), limits=share(1))))
            check(wait_running(namespace, ["all"]) is not None, "the card is then had as a whole", programs.last_lines("hami-device-plugin"))
            check(delete(namespace, "all"), "and given back")
    finally:
        path.write_text(before)
        restart("hami-scheduler", extender_ready)


def static(namespace):
    def cut(found):
        assert found.set_mode(0) == 0
        cut.uuids = [found.make(0, "3g", 0), found.make(0, "3g", 4)]

    resource = "nvidia.com/mig-3g.20gb"
    with node(None, ["--mig-strategy=mixed"], cut):
        allocatable = lambda: api.get(f"/api/v1/nodes/{NODE}")["status"].get("allocatable", {}).get(resource)
        if not check(wait_until(lambda: allocatable() == "2", 60, 0.2), "kubelet counts two instances 3g.20gb", programs.last_lines("hami-device-plugin")):
            return
        names = ["gpu-pod", "gpu-pod-2"]
        for name in names:
            create(namespace, pod(name, container(command=("/bin/slice", "--stay"), limits={resource: "1"})))
        if not check(wait_running(namespace, names) is not None, "HAMi's example of a static instance runs, twice", programs.last_lines("hami-device-plugin")):
            return
        seen = [told(namespace, name) or {} for name in names]
        print("     ", seen[0])
        check_equal(sorted(c["uuid"] for s in seen for c in s.get("nvml", [])), sorted(cut.uuids), "each with an instance of its own")
        check_equal([c["bytes"] for s in seen for c in s.get("cuda", [])], [19968 * MIB] * 2, "and all of its memory")
        check_equal([allocated(get(namespace, name)) for name in names], [[], []], "which no scheduler of ours gave")
        for name in names:
            check(delete(namespace, name), f"{name} goes")
        with mig() as found:
            check_equal(len(found.uuids(0)), 2, "the instances stay")


def main():
    need()
    namespace = new_namespace("mig")
    dynamic(namespace)
    by_profiles(namespace)
    static(namespace)
    finish()


if __name__ == "__main__":
    main()

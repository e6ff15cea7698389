#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/metrics: promtool's rules, HAMi's names, and numbers that are right."""

from support import *

from promlint import KEPT, lint

FORMER = {f"GPUDevice{what}" for what in ("MemoryLimit", "CoreLimit", "MemoryAllocated", "SharedNum", "CoreAllocated")} | {
    "nodeGPUOverview", "nodeGPUMemoryPercentage", "nodeGPUMigInstance", "vGPUMemoryAllocated", "vGPUCoreAllocated", "QuotaUsed",
}  # fmt: skip


def sample(page, name, **labels):
    """The value of the one sample with these labels."""
    for line in page.splitlines():
        found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if found and labels.items() <= dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[1] or "")).items():
            return float(found[2])
    return None


def check_page(page, when, kept=KEPT):
    if not check(shutil.which("promtool"), "promtool is installed (Debian: prometheus)"):
        return
    code, complaints = lint(page.encode(), kept)
    check(code in (0, 3) and not complaints, f"promtool accepts what is told {when}", code, complaints)


def main():
    api = Api()
    api.set(NODES, node("node-1", 2))
    scheduler = Scheduler(api)
    check_page(scheduler.metrics(), "of nothing")
    odd = node("odd", 1)
    odd["metadata"]["annotations"][REGISTER] = odd["metadata"]["annotations"][REGISTER].replace("NVIDIA A100", 'A \\"B\\" \\\\ {C}\\n é')
    api.set(NODES, odd)
    thing = api.set(PODS, pod(3000, 20))
    check_equal(place(scheduler, thing, ["node-1"])[0], "node-1", "a pod is placed")
    scheduler.filter(pod(100 * CARD_MIB), ["node-1"])
    scheduler.filter(pod(500), ["node-1"])
    scheduler.bind(pod(), "node-1")
    scheduler.ask("POST", "/filter", "{")
    wait_until(lambda: scheduler.view()["pods"] and len(scheduler.view()["nodes"]) == 2)
    page = scheduler.metrics()
    check_page(page, "of what there is")
    ((card, _, _),) = shares(dict(api.live())[thing["metadata"]["uid"]][1])
    for name, value in (
        ("hami_gpu_memory_limit_bytes", CARD_MIB * MIB), ("hami_gpu_core_limit_ratio", 100), ("hami_gpu_core_allocated_ratio", 20),
        ("hami_gpu_memory_allocated_bytes", 3000 * MIB), ("hami_gpu_shared_count", 1), ("hami_node_gpu_memory_allocated_ratio", 0.1),
    ):  # fmt: skip
        check_equal(sample(page, name, node="node-1", device_uuid=card), value, f"{name} of the card is right")
    labels = {"namespace": "ns", "pod": thing["metadata"]["name"], "device_uuid": card}
    check_equal(sample(page, "hami_vgpu_memory_allocated_bytes", **labels), 3000 * MIB, "the pod's memory")
    check_equal(sample(page, "hami_vgpu_core_allocated_ratio", **labels), 20, "and its share of compute")
    for outcome, count in (("placed", 2), ("refused", 1), ("failed", 1)):
        check_equal(sample(page, "hami_scheduler_filters_total", outcome=outcome), count, f"filters that {outcome}")
    for outcome, count in (("done", 1), ("failed", 1)):
        check_equal(sample(page, "hami_scheduler_binds_total", outcome=outcome), count, f"binds {outcome}")
    check_equal(sample(page, "hami_scheduler_reservations"), 1, "a promise is counted")
    for verb, count in (("filter", 4), ("bind", 2), ("webhook", 0)):
        check_equal(sample(page, "hami_scheduler_request_duration_seconds_count", verb=verb), count, f"each {verb} was timed")
    check("GPUDevice" not in page and "nodeGPU" not in page and "vGPUMemory" not in page, "HAMi's former names are left out")
    scheduler.end()

    scheduler = Scheduler(api, "--legacy-metrics")
    wait_until(lambda: scheduler.view()["pods"])
    former = scheduler.metrics()
    check_page(former, "under former names, too", KEPT | FORMER)
    for name, value in (("GPUDeviceMemoryLimit", CARD_MIB * MIB), ("GPUDeviceCoreAllocated", 20), ("nodeGPUMemoryPercentage", 0.1)):
        check_equal(sample(former, name, nodeid="node-1", deviceuuid=card), value, f"{name} of the card is right")
    check_equal(sample(former, "vGPUMemoryAllocated", podname=thing["metadata"]["name"], deviceuuid=card), 3000 * MIB, "and the pod's memory")
    check_equal(sample(former, "hami_gpu_memory_allocated_bytes", node="node-1", device_uuid=card), 3000 * MIB, "beside the present ones")
    scheduler.end()
    finish()


main()

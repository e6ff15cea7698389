#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The metrics of monitor and scheduler: by promtool's rules, but for the names that HAMi's dashboards need."""

import shutil

from support import *
from promlint import lint  # noqa: E402

WANTED = {
    programs.MONITOR_METRICS: {
        "hami_host_gpu_memory_used_bytes",
        "hami_host_gpu_utilization_ratio",
        "hami_vgpu_memory_used_bytes",
        "hami_vgpu_memory_limit_bytes",
        "hami_container_device_memory_bytes",
        "hami_container_device_utilization_ratio",
    },
    programs.SCHEDULER_METRICS: {
        "hami_gpu_memory_limit_bytes",
        "hami_gpu_memory_allocated_bytes",
        "hami_gpu_core_limit_ratio",
        "hami_gpu_core_allocated_ratio",
        "hami_gpu_shared_count",
        "hami_vgpu_memory_allocated_bytes",
        "hami_vgpu_core_allocated_ratio",
    },
}


def check_page(address, name):
    page = programs.fetch(f"http://{address}/metrics")
    if not check(page, f"{name} has metrics"):
        return
    names = {name for name, _ in samples(address)}
    check_equal(sorted(WANTED[address] - names), [], f"{name} has HAMi's names")
    if not check(shutil.which("promtool"), "promtool is installed (Debian: prometheus)"):
        return
    code, complaints = lint(page)
    # 3: only style, of which HAMi's names are forgiven; 1: not the format at all.
    check(code in (0, 3) and not complaints, f"promtool accepts {name}'s", code, complaints)


def main():
    need()
    (card,) = use_machine(1)
    namespace = new_namespace("metrics")
    # Alone it might use what nobody else wants of the card.
    command = ("/bin/load", "--memory", "1G", "--seconds", "600", "--batch", "1")
    names = ["measured", "neighbour"]
    create_at_once(namespace, [slice_pod(name, command=command) for name in names])
    check(wait_running(namespace, names) is not None, "pods that compute run")
    time.sleep(6)
    check_page(programs.MONITOR_METRICS, "hami-vgpu-monitor")
    check_page(programs.SCHEDULER_METRICS, "hami-scheduler")

    labels = {"namespace": namespace, "pod": "measured", "container": "main", "device_uuid": card}
    found = samples(programs.MONITOR_METRICS)
    used = sample(found, "hami_vgpu_memory_used_bytes", **labels)
    other = sample(found, "hami_vgpu_memory_used_bytes", **labels | {"pod": "neighbour"})
    check_equal(used + other, machine_use()[card], "memory in use is the simulator's count")
    share_of_time = sample(found, "hami_container_device_utilization_ratio", **labels)
    check(share_of_time is not None and 5 <= share_of_time <= 15, "utilisation is about the 10 % it was given", share_of_time)
    throttled = [v for (name, ls), v in found.items() if "throttle" in name and labels.items() <= dict(ls).items()]
    check(any(v > 0 for v in throttled), "throttled time is told", throttled)

    found = samples(programs.SCHEDULER_METRICS)
    granted = sample(found, "hami_gpu_memory_allocated_bytes", node=NODE, device_uuid=card)
    check_equal(granted, 6000 * MIB, "the scheduler reports what it granted")
    check_equal(sample(found, "hami_gpu_memory_limit_bytes", node=NODE, device_uuid=card), CARD_MIB * MIB, "and what there is")
    finish()


if __name__ == "__main__":
    main()

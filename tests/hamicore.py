# SPDX-License-Identifier: Apache-2.0
"""HAMi-core 1.2's shared region, byte by byte, restated from its description (x86-64, little endian).

Nothing here comes from the headers under test: a region is written and read with the offsets below.
"""

import struct

MAGIC = 19920718
SIZE = 2008952
FILE_SIZE = SIZE + 1  # every starting process writes one byte past the end
DEVICES = 16
SLOTS = 1024

# offset, format
HEAD = {
    "initialized_flag": (0, "<i"),
    "major_version": (4, "<I"),
    "minor_version": (8, "<I"),
    "sm_init_flag": (12, "<i"),
    "owner_pid": (16, "<Q"),
    # 24..55: a semaphore of value 1
    "device_num": (56, "<Q"),
    # 64: char uuids[16][96]
    # 1600: uint64 limit[16]
    # 1728: uint64 sm_limit[16]
    # 1856: slots
    "proc_num": (2008896, "<i"),
    "utilization_switch": (2008900, "<i"),
    "recent_kernel": (2008904, "<i"),
    "priority": (2008908, "<i"),
    "last_kernel_time": (2008912, "<Q"),
    # 2008920..2008951: a second semaphore of value 1
}
SEM, SEM_POSTINIT = 24, 2008920
UUIDS, UUID_SIZE = 64, 96
LIMIT, SM_LIMIT = 1600, 1728
PROCS, SLOT_SIZE = 1856, 1960

SLOT = {
    "pid": (0, "<i"),
    "hostpid": (4, "<i"),
    # 8: used[16] of 64 bytes
    # 1032: uint64 monitorused[16]
    # 1160: device_util[16] of 48 bytes
    "status": (1928, "<i"),
    "seqlock": (1936, "<Q"),
}
USED, USED_SIZE = 8, 64
USED_FIELDS = ("context_size", "module_size", "data_size", "offset", "total")
MONITOR_USED = 1032
UTIL, UTIL_SIZE = 1160, 48
UTIL_FIELDS = ("dec_util", "enc_util", "sm_util")


def write(devices, processes, **head):
    """A region's bytes. devices: dicts of uuid, limit, sm_limit. processes: dicts of pid, hostpid, status,
    used: {device: {field: bytes}}, util: {device: {field: percent}}, slot."""
    data = bytearray(FILE_SIZE)
    values = {
        "initialized_flag": MAGIC,
        "major_version": 1,
        "minor_version": 2,
        "sm_init_flag": 0,
        "owner_pid": 0,
        "device_num": len(devices),
        "proc_num": max((p.get("slot", i) + 1 for i, p in enumerate(processes)), default=0),
        "utilization_switch": 1,
        "recent_kernel": 2,
        "priority": 1,
        "last_kernel_time": 0,
    } | head
    for name, (offset, form) in HEAD.items():
        struct.pack_into(form, data, offset, values[name])
    for sem in (SEM, SEM_POSTINIT):
        struct.pack_into("<I", data, sem, 1)
    for i, device in enumerate(devices):
        uuid = device["uuid"].encode()
        data[UUIDS + i * UUID_SIZE : UUIDS + i * UUID_SIZE + len(uuid)] = uuid
        struct.pack_into("<Q", data, LIMIT + 8 * i, device["limit"])
        struct.pack_into("<Q", data, SM_LIMIT + 8 * i, device["sm_limit"])
    for i, process in enumerate(processes):
        base = PROCS + process.get("slot", i) * SLOT_SIZE
        for name, (offset, form) in SLOT.items():
            struct.pack_into(form, data, base + offset, process.get(name, 0))
        for device, used in process.get("used", {}).items():
            for n, field in enumerate(USED_FIELDS):
                struct.pack_into("<Q", data, base + USED + device * USED_SIZE + 8 * n, used.get(field, 0))
        for device, util in process.get("util", {}).items():
            for n, field in enumerate(UTIL_FIELDS):
                struct.pack_into("<Q", data, base + UTIL + device * UTIL_SIZE + 8 * n, util.get(field, 0))
    return bytes(data)


def read(data):
    """The fields of a region, and its slots with a pid."""
    region = {name: struct.unpack_from(form, data, offset)[0] for name, (offset, form) in HEAD.items()}
    region["sem"] = struct.unpack_from("<I", data, SEM)[0]
    region["sem_postinit"] = struct.unpack_from("<I", data, SEM_POSTINIT)[0]
    region["uuids"] = [
        data[UUIDS + i * UUID_SIZE : UUIDS + (i + 1) * UUID_SIZE].split(b"\0")[0].decode("latin-1")
        for i in range(DEVICES)
    ]
    region["limit"] = list(struct.unpack_from("<16Q", data, LIMIT))
    region["sm_limit"] = list(struct.unpack_from("<16Q", data, SM_LIMIT))
    region["procs"] = []
    for slot in range(SLOTS):
        base = PROCS + slot * SLOT_SIZE
        process = {name: struct.unpack_from(form, data, base + offset)[0] for name, (offset, form) in SLOT.items()}
        if not process["pid"]:
            continue
        process["slot"] = slot
        process["used"] = [
            dict(zip(USED_FIELDS, struct.unpack_from("<5Q", data, base + USED + d * USED_SIZE)))
            for d in range(DEVICES)
        ]
        region["procs"].append(process)
    return region

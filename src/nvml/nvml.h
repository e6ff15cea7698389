/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * NVIDIA's management library as a source of devices. It is opened at run time, so nothing of
 * NVIDIA is needed to build, and a simulated one can stand in.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "model/device.h"

enum {
    NVML_VERSION_SIZE = 80,
};

struct nvml;

/* The present use of a device. */
struct nvml_status {
    uint64_t memory_total_bytes;
    uint64_t memory_used_bytes;
    bool has_utilization;
    unsigned utilization_percent; /* of time with a kernel running, as the driver samples it */
    unsigned controller_percent;  /* of time with the memory being read or written */
};

struct nvml_process {
    pid_t pid;
    uint64_t memory_bytes; /* UINT64_MAX: the driver does not tell */
    bool in_instance;      /* of a card in MIG mode: it is listed for each that it is in */
    unsigned gpu_instance;
};

/*
 * Opens the library, by path or by the loader's search of a name without a slash, and initialises
 * it, which with a real driver may take a second. -ENOENT when there is no such library, -EIO when
 * it fails. err says which and why.
 */
int nvml_open(const char *library, struct nvml **ret_nvml, struct error *err);
void nvml_close(struct nvml *nvml);
DEFINE_CLEANUP(struct nvml *, nvml_close);

/* The folder of the library that was opened, in which the driver's others are. -ENOENT. */
int nvml_folder(const struct nvml *nvml, char ret_folder[PATH_MAX]);

/* The driver's version, "580.95.05". -EIO. */
int nvml_read_version(struct nvml *nvml, char ret_version[NVML_VERSION_SIZE], struct error *err);

/* The newest CUDA that the driver serves: 1000 * major + 10 * minor. -EIO. */
int nvml_read_cuda_version(struct nvml *nvml);

/* Where the kernel tells which NUMA node a device is attached to, in place of "/sys"; kept. */
void nvml_set_sysfs(struct nvml *nvml, const char *folder);

/*
 * The devices, in NVML's order, with no usage. A device that does not answer is listed as not
 * healthy; one that has no memory of its own is healthy with 0 bytes. Returns their number, -E2BIG
 * when they are more than max, -EIO.
 */
int nvml_list(struct nvml *nvml, struct device *ret_devices, size_t max, struct error *err);

/* The number in /dev/nvidiaN. -EIO. By the index of nvml_list(), as all that follows. */
int nvml_read_minor(struct nvml *nvml, unsigned index, unsigned *ret_minor, struct error *err);

/* How a device is connected. */
enum {
    NVML_LINKS_MAX = 18,
    NVML_BUS_ID_SIZE = 32,
};

struct nvml_link {
    bool to_switch;
    char bus_id[NVML_BUS_ID_SIZE]; /* of the device that it leads to, as nvml_read_bus_id(); else ""
                                    */
};

/* "3b:00.0", or "1:3b:00.0" beyond the first PCI domain. -EIO. */
int nvml_read_bus_id(struct nvml *nvml, unsigned index, char ret_bus_id[NVML_BUS_ID_SIZE]);

/* NVLinks that are up; their number, 0 where NVML does not tell. */
size_t nvml_read_links(struct nvml *nvml, unsigned index,
                       struct nvml_link ret_links[NVML_LINKS_MAX]);

/* What two devices have in common: a value of nvmlGpuTopologyLevel_t (driver/nvml.h). -EIO. */
int nvml_read_ancestor(struct nvml *nvml, unsigned one, unsigned other);

int nvml_read_status(struct nvml *nvml, unsigned index, struct nvml_status *ret_status,
                     struct error *err);

/* Processes with a context on the device; of more than max the rest is left out. Returns their
 * number. */
int nvml_list_processes(struct nvml *nvml, unsigned index, struct nvml_process *ret_processes,
                        size_t max, struct error *err);

/* What NVML says of a device's health. */
struct nvml_health {
    bool has_action;
    unsigned action; /* NVML_RECOVERY_... (driver/nvml.h) */
    bool has_errors;
    uint64_t corrected, uncorrected; /* memory errors since the device was reset */
    unsigned compute_mode;           /* NVML_COMPUTE_... */
    bool is_split;                   /* in MIG mode: it is used by instances alone */
};

/* -EIO, with NVML's reason, when it does not answer for the device. */
int nvml_read_health(struct nvml *nvml, unsigned index, struct nvml_health *ret_health,
                     struct error *err);

/* As nvml_list_processes(), of every kind: those that compute, draw, or compute by way of MPS. */
int nvml_list_all_processes(struct nvml *nvml, unsigned index, struct nvml_process *ret_processes,
                            size_t max, struct error *err);

/* A process' share of a device's time since a moment, in percent. */
struct nvml_process_time {
    pid_t pid;
    unsigned percent;
};

/* since_us: microseconds of the wall clock, by which NVML's samples are stamped. The number of
 * samples; 0 where NVML has none. */
int nvml_read_process_times(struct nvml *nvml, unsigned index, uint64_t since_us,
                            struct nvml_process_time *ret_times, size_t max);

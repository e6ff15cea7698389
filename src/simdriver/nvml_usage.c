/* SPDX-License-Identifier: Apache-2.0 */

/* NVML: how much of a device is in use, and by whom. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/util.h"
#include "simdriver/mig.h"
#include "simdriver/nvml_guest.h"

/* The window of the utilisation rates, and the furthest back that samples are told. */
#define RATE_WINDOW_NS NS_PER_S
#define SAMPLE_WINDOW_NS NS_PER_S

#define BAR1_PROCESS (2ull << 20)

/* A device, and of a GPU its instances: the next of them after one, from -1 on; -1 after the last.
 */
static int next_part(unsigned device, int part)
{
    unsigned first = sim_instance_device(device, 0);

    if (part < 0)
        return (int)device;
    if (device >= SIM_MAX_GPUS)
        return -1;
    part = part == (int)device ? (int)first : part + 1;
    return part < (int)(first + SIM_MIG_STARTS) ? part : -1;
}

static nvmlReturn_t memory_of(nvmlDevice_t device, uint64_t *ret_total, uint64_t *ret_used)
{
    const struct sim_state *s = nvml_machine()->state;
    unsigned i;
    nvmlReturn_t r = nvml_check_any(device, &i);
    uint64_t used = 0;

    if (r != NVML_SUCCESS)
        return r;
    (void)nvml_enter_device(i);
    *ret_total = sim_spec_of(s, i)->memory_bytes;
    for (int part = next_part(i, -1); part >= 0; part = next_part(i, part))
        used += s->devices[part].used_bytes;
    *ret_used = MIN(used, *ret_total);
    sim_unlock(nvml_machine());
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    uint64_t total, used;
    nvmlReturn_t r = memory_of(device, &total, &used);

    if (r != NVML_SUCCESS)
        return r;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    *memory = (nvmlMemory_t){.total = total, .free = total - used, .used = used};
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    uint64_t total, used;
    nvmlReturn_t r = memory_of(device, &total, &used);

    if (r != NVML_SUCCESS)
        return r;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = total;
    memory->reserved = 0;
    memory->free = total - used;
    memory->used = used;
    return NVML_SUCCESS;
}

/* A window as large as the card's or the instance's memory, or the next power of two; each process
 * takes a little. */
PUBLIC nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    const struct sim_state *s;
    unsigned i;
    nvmlReturn_t r = nvml_check_any(device, &i);
    unsigned long long total = 1, used = 0;

    if (r != NVML_SUCCESS)
        return r;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    (void)nvml_enter_device(i);
    s = nvml_machine()->state;
    while (total < sim_spec_of(s, i)->memory_bytes)
        total *= 2;
    for (int part = next_part(i, -1); part >= 0; part = next_part(i, part)) {
        for (unsigned k = 0; k < s->slots; k++) {
            if (s->processes[k].in_use && sim_used_bytes(&s->processes[k].usage[part]))
                used += BAR1_PROCESS;
        }
    }
    sim_unlock(nvml_machine());
    used = MIN(used, total);
    *memory = (nvmlBAR1Memory_t){.bar1Total = total, .bar1Free = total - used, .bar1Used = used};
    return NVML_SUCCESS;
}

static unsigned percent(const struct sim_history *history, int64_t now_ns, int64_t window_ns)
{
    int64_t span_ns;
    int64_t busy_ns = sim_history_sum(history, now_ns, window_ns, &span_ns);

    return (unsigned)((busy_ns * 100 + span_ns / 2) / span_ns);
}

PUBLIC nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);
    struct sim_state *s;
    int64_t now_ns;

    if (r != NVML_SUCCESS)
        return r;
    if (!rates)
        return NVML_ERROR_INVALID_ARGUMENT;
    s = nvml_machine()->state;
    if (s->health[i].mig)
        return NVML_ERROR_NOT_SUPPORTED;
    now_ns = nvml_enter_device(i);
    rates->gpu = percent(&s->devices[i].history, now_ns, RATE_WINDOW_NS);
    rates->memory = 0;
    sim_unlock(nvml_machine());
    return NVML_SUCCESS;
}

/* Processes */

/*
 * The pid that NVML tells of a process; 0 or less: the process is left out. To whom the host's are
 * its own it is known without a system call.
 */
static pid_t pid_of(struct sim *sim, unsigned slot)
{
    const struct sim_state *s = sim->state;
    const bool is_host = sim->self.pid_namespace == s->header.pid_namespace;
    pid_t host_pid = sim_host_pid(sim, slot);

    if (s->header.driver.pids == SIM_PIDS_HOST || (is_host && s->processes[slot].host_pid))
        return host_pid;
    return sim_pid(sim, slot);
}

/* Under the lock: the next of those with memory on the device that are told of here, from a slot
 * on; 0 after the last. One after the other, since the caller's thread may have a small stack. */
static pid_t next_process(unsigned device, unsigned *slot)
{
    struct sim *sim = nvml_machine();

    for (; *slot < sim->state->slots; (*slot)++) {
        const struct sim_process *process = &sim->state->processes[*slot];
        pid_t pid;

        if (!process->in_use || !sim_used_bytes(&process->usage[device]))
            continue;
        pid = pid_of(sim, *slot);
        if (pid > 0)
            return pid;
    }
    return 0;
}

/* A process in several instances is in the GPU's list as often. */
struct listed {
    unsigned count;
    nvmlProcessInfo_v2_t infos[SIM_MAX_PROCESSES];
};

static void list_part(unsigned part, struct listed *listed)
{
    struct sim_state *s = nvml_machine()->state;
    bool is_instance = part >= SIM_MAX_GPUS;
    pid_t pid;

    for (unsigned slot = 0;
         listed->count < SIM_MAX_PROCESSES && (pid = next_process(part, &slot)) > 0; slot++) {
        listed->infos[listed->count++] = (nvmlProcessInfo_v2_t){
            .pid = (unsigned)pid,
            .usedGpuMemory = sim_used_bytes(&s->processes[slot].usage[part]),
            .gpuInstanceId = is_instance ? sim_mig_id(sim_instance(s, part)->profile,
                                                      (part - SIM_MAX_GPUS) % SIM_MIG_STARTS)
                                         : NVML_NO_INSTANCE,
            .computeInstanceId = is_instance ? 0 : NVML_NO_INSTANCE,
        };
    }
}

/* The protocol of all lists: how many the caller has room for comes in, how many there are goes
 * out. The caller frees the list. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, const void *infos,
                         struct listed **ret_listed)
{
    struct listed *listed;
    unsigned i, room;
    nvmlReturn_t r = nvml_check_any(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!count || (*count && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (i < SIM_MAX_GPUS && nvml_machine()->state->health[i].mig && geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;

    listed = calloc(1, sizeof(*listed));
    if (!listed)
        return NVML_ERROR_UNKNOWN;
    (void)nvml_enter_device(i);
    for (int part = next_part(i, -1); part >= 0; part = next_part(i, part))
        list_part((unsigned)part, listed);
    sim_unlock(nvml_machine());

    room = *count;
    *count = listed->count;
    *ret_listed = listed;
    return room < listed->count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                         nvmlProcessInfo_v1_t *infos)
{
    AUTOFREE struct listed *listed = NULL;
    nvmlReturn_t r = list(device, count, infos, &listed);

    if (r != NVML_SUCCESS)
        return r;
    for (unsigned i = 0; i < listed->count; i++) {
        infos[i] = (nvmlProcessInfo_v1_t){
            .pid = listed->infos[i].pid,
            .usedGpuMemory = listed->infos[i].usedGpuMemory,
        };
    }
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_v2_t *infos)
{
    AUTOFREE struct listed *listed = NULL;
    nvmlReturn_t r = list(device, count, infos, &listed);

    if (r != NVML_SUCCESS)
        return r;
    if (listed->count)
        memcpy(infos, listed->infos, listed->count * sizeof(*infos));
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_v2_t *infos)
{
    return nvmlDeviceGetComputeRunningProcesses_v2(device, count, infos);
}

static nvmlReturn_t list_none(nvmlDevice_t device, unsigned int *count)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_any(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                          nvmlProcessDetailList_t *details)
{
    AUTOFREE struct listed *listed = NULL;
    unsigned i;
    nvmlReturn_t r = nvml_check_any(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!details || details->mode > NVML_PROCESS_MODE_MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (details->version != NVML_PROCESS_DETAIL_LIST_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (details->mode != NVML_PROCESS_MODE_COMPUTE)
        return list_none(device, &details->numProcArrayEntries);
    r = list(device, &details->numProcArrayEntries, details->procArray, &listed);
    for (unsigned k = 0; r == NVML_SUCCESS && k < listed->count; k++) {
        details->procArray[k] = (nvmlProcessDetail_v1_t){
            .pid = listed->infos[k].pid,
            .usedGpuMemory = listed->infos[k].usedGpuMemory,
            .gpuInstanceId = listed->infos[k].gpuInstanceId,
            .computeInstanceId = listed->infos[k].computeInstanceId,
        };
    }
    return r;
}

/* One sample for each process that used the device since then, a second back at most. */
struct sampled {
    unsigned count;
    unsigned long long time_us;
    struct {
        unsigned pid, percent;
    } processes[SIM_MAX_PROCESSES];
};

/* The caller frees it. */
static nvmlReturn_t sample(nvmlDevice_t device, unsigned long long since_us,
                           struct sampled **ret_sampled)
{
    struct sampled *sampled;
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);
    pid_t pid;
    const uint64_t wall_us = (uint64_t)clock_read_ns(CLOCK_REALTIME) / 1000;
    int64_t now_ns, window_ns = 0;

    if (r != NVML_SUCCESS)
        return r;
    if (nvml_machine()->state->health[i].mig)
        return NVML_ERROR_NOT_SUPPORTED;

    sampled = calloc(1, sizeof(*sampled));
    if (!sampled)
        return NVML_ERROR_UNKNOWN;
    sampled->time_us = wall_us;
    now_ns = nvml_enter_device(i);
    if (since_us < wall_us)
        window_ns = (int64_t)MIN((uint64_t)SAMPLE_WINDOW_NS, (wall_us - since_us) * 1000);
    for (unsigned slot = 0; window_ns > 0 && (pid = next_process(i, &slot)) > 0; slot++) {
        const struct sim_usage *usage = &nvml_machine()->state->processes[slot].usage[i];
        unsigned part = percent(&usage->history, now_ns, window_ns);

        if (!part)
            continue;
        sampled->processes[sampled->count].pid = (unsigned)pid;
        sampled->processes[sampled->count++].percent = part;
    }
    sim_unlock(nvml_machine());
    *ret_sampled = sampled;
    return NVML_SUCCESS;
}

/* The protocol of samples. */
static nvmlReturn_t answer_samples(unsigned have, unsigned *count, const void *to)
{
    unsigned room = to ? *count : 0;

    *count = have;
    if (have == 0)
        return NVML_ERROR_NOT_FOUND;
    return room < have ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *samples,
                                                    unsigned int *count,
                                                    unsigned long long since_us)
{
    AUTOFREE struct sampled *sampled = NULL;
    nvmlReturn_t r;

    if (!count || (*count && !samples))
        return nvml_check() == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : nvml_check();
    r = sample(device, since_us, &sampled);
    if (r == NVML_SUCCESS)
        r = answer_samples(sampled->count, count, samples);
    for (unsigned k = 0; r == NVML_SUCCESS && k < sampled->count; k++) {
        samples[k] = (nvmlProcessUtilizationSample_t){
            .pid = sampled->processes[k].pid,
            .timeStamp = sampled->time_us,
            .smUtil = sampled->processes[k].percent,
        };
    }
    return r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                          nvmlProcessesUtilizationInfo_t *info)
{
    AUTOFREE struct sampled *sampled = NULL;
    nvmlReturn_t r;

    if (!info)
        return nvml_check() == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : nvml_check();
    if (info->version != NVML_PROCESSES_UTILIZATION_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    r = sample(device, info->lastSeenTimeStamp, &sampled);
    if (r == NVML_SUCCESS)
        r = answer_samples(sampled->count, &info->processSamplesCount, info->procUtilArray);
    for (unsigned k = 0; r == NVML_SUCCESS && k < sampled->count; k++) {
        info->procUtilArray[k] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = sampled->time_us,
            .pid = sampled->processes[k].pid,
            .smUtil = sampled->processes[k].percent,
        };
    }
    return r;
}

/* Accounting: of the processes that live, while it is on. */

PUBLIC nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, unsigned int mode)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (mode > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    __atomic_store_n(&nvml_machine()->state->health[i].accounting, mode, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned int *mode)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!mode)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mode = __atomic_load_n(&nvml_machine()->state->health[i].accounting, __ATOMIC_ACQUIRE);
    return NVML_SUCCESS;
}

/* With the lock, unless it fails. */
static nvmlReturn_t begin_accounted(nvmlDevice_t device, unsigned *ret_device)
{
    unsigned mode;
    nvmlReturn_t r = nvmlDeviceGetAccountingMode(device, &mode);

    if (r == NVML_SUCCESS)
        r = nvml_check_device(device, ret_device);
    if (r != NVML_SUCCESS)
        return r;
    if (!mode)
        return NVML_ERROR_NOT_SUPPORTED;
    (void)nvml_enter_device(*ret_device);
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                                unsigned int *pids)
{
    AUTOFREE unsigned int *listed = calloc(SIM_MAX_PROCESSES, sizeof(*listed));
    unsigned i, have = 0, room;
    nvmlReturn_t r = listed ? begin_accounted(device, &i) : NVML_ERROR_UNKNOWN;
    pid_t pid;

    if (r != NVML_SUCCESS)
        return r;
    for (unsigned slot = 0; (pid = next_process(i, &slot)) > 0; slot++)
        listed[have++] = (unsigned)pid;
    sim_unlock(nvml_machine());
    if (!count || (*count && !pids))
        return NVML_ERROR_INVALID_ARGUMENT;
    room = *count;
    *count = have;
    if (room < have)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (have)
        memcpy(pids, listed, have * sizeof(*pids));
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                                 nvmlAccountingStats_t *stats)
{
    nvmlAccountingStats_t found = {.isRunning = 1};
    unsigned i, slot = 0;
    nvmlReturn_t r = begin_accounted(device, &i);
    pid_t one;

    if (r != NVML_SUCCESS)
        return r;
    while ((one = next_process(i, &slot)) > 0 && (unsigned)one != pid)
        slot++;
    if (one > 0)
        found.maxMemoryUsage = nvml_machine()->state->processes[slot].usage[i].peak_bytes;
    sim_unlock(nvml_machine());
    if (!stats)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (one <= 0)
        return NVML_ERROR_NOT_FOUND;
    *stats = found;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                          nvmlProcessInfo_v1_t *infos)
{
    (void)infos;
    return list_none(device, count);
}

PUBLIC nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device,
                                                             unsigned int *count,
                                                             nvmlProcessInfo_v2_t *infos)
{
    (void)infos;
    return list_none(device, count);
}

PUBLIC nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
                                                             unsigned int *count,
                                                             nvmlProcessInfo_v2_t *infos)
{
    (void)infos;
    return list_none(device, count);
}

PUBLIC nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_v1_t *infos)
{
    (void)infos;
    return list_none(device, count);
}

PUBLIC nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
                                                               unsigned int *count,
                                                               nvmlProcessInfo_v2_t *infos)
{
    (void)infos;
    return list_none(device, count);
}

PUBLIC nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                               unsigned int *count,
                                                               nvmlProcessInfo_v2_t *infos)
{
    (void)infos;
    return list_none(device, count);
}

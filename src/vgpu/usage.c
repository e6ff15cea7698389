/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/usage.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vgpu/real.h"

#define HOST_PID_NAMESPACE 0xEFFFFFFCu /* its inode number, the same on every Linux */

enum {
    LISTED = 1024, /* of a device's processes */
};

/* NVML's last answer. */
static struct {
    nvmlProcessInfo_v2_t infos[LISTED];
    unsigned count;
    unsigned pid; /* by which NVML knows us, where it was learned; 0: not */
} list;

/* While a first context is made: the processes that were there before. */
static struct {
    unsigned pids[LISTED];
    unsigned count;
} strangers;

/* Whether our pid stood in the list before we had a context: it is another's there. */
static enum {
    PID_NOT_LOOKED_FOR,
    PID_OURS,
    PID_ANOTHERS,
} own_name;

void usage_after_fork(void)
{
    list.pid = 0;
    own_name = PID_NOT_LOOKED_FOR;
}

static bool no_nvml;

void usage_look_again(void)
{
    no_nvml = false;
}

static bool nvml_device(const struct vgpu_device *device, nvmlDevice_t *ret_handle)
{
    static bool initialised;

    if (no_nvml)
        return false;
    no_nvml = !real_nvml();
    if (!initialised && !no_nvml)
        initialised = REAL(nvmlInit_v2)() == NVML_SUCCESS;
    return initialised && REAL(nvmlDeviceGetHandleByUUID)(device->uuid, ret_handle) == NVML_SUCCESS;
}

bool usage_list(const struct vgpu_device *device)
{
    unsigned int count = LISTED;
    nvmlDevice_t handle;

    list.count = 0;
    if (!nvml_device(device, &handle) ||
        REAL(nvmlDeviceGetComputeRunningProcesses_v3)(handle, &count, list.infos) != NVML_SUCCESS)
        return false;
    list.count = MIN(count, (unsigned)LISTED);
    return true;
}

bool usage_of_device(const struct vgpu_device *device, uint64_t *ret_bytes)
{
    nvmlDevice_t handle;
    nvmlMemory_t memory;

    if (!nvml_device(device, &handle) ||
        REAL(nvmlDeviceGetMemoryInfo)(handle, &memory) != NVML_SUCCESS)
        return false;
    *ret_bytes = memory.used;
    return true;
}

static const nvmlProcessInfo_v2_t *listed(unsigned pid)
{
    for (unsigned i = 0; pid && i < list.count; i++) {
        if (list.infos[i].pid == pid)
            return &list.infos[i];
    }
    return NULL;
}

/* Then NVML lists by the pids of our namespace, and leaves others out. Who makes a namespace of his
 * own may have a process in it by each pid of the host's that is listed, and be one of them. */
static bool all_are_ours(void)
{
    if (own_name == PID_ANOTHERS)
        return false;
    for (unsigned i = 0; i < list.count; i++) {
        if (kill((pid_t)list.infos[i].pid, 0) < 0 && errno == ESRCH)
            return false;
    }
    return true;
}

static unsigned own_pid(void)
{
    return (unsigned)syscall(SYS_getpid);
}

/* By which pid the list names this process, for sure; 0 when that is not known. */
static unsigned name_in_list(void)
{
    if (list.pid)
        return list.pid;
    if (vgpu.region.self.pid_namespace == HOST_PID_NAMESPACE || all_are_ours())
        return own_pid();
    return (unsigned)atomic_load(&vgpu.region.base->slots[vgpu.region.slot].host_pid);
}

bool usage_of_self(const struct vgpu_device *device, uint64_t *ret_bytes, bool *ret_listed)
{
    unsigned pid = name_in_list();
    const nvmlProcessInfo_v2_t *info = listed(pid);

    *ret_listed = info != NULL;
    *ret_bytes = 0;
    if (!pid || (info && info->usedGpuMemory == NVML_VALUE_NOT_AVAILABLE_ULL))
        return false;
    if (info)
        *ret_bytes = info->usedGpuMemory;
    /* Whoever has no context there is not listed; whoever has one, and is not, is listed elsewhere.
     */
    return info || atomic_load(&device->contexts) == 0;
}

void usage_learn_name(void)
{
    unsigned news = 0, pid = 0;

    for (unsigned i = 0; i < list.count; i++) {
        bool known = false;

        for (unsigned k = 0; k < strangers.count && !known; k++)
            known = strangers.pids[k] == list.infos[i].pid;
        if (known)
            continue;
        news++;
        pid = list.infos[i].pid;
    }
    if (news == 1)
        list.pid = pid;
}

/* Before a context is made. Once it was not there it is ours, whatever stays of earlier contexts.
 */
static void look_for_own(void)
{
    bool any = own_name == PID_OURS;

    for (unsigned i = 0; i < vgpu.device_count; i++)
        any |= atomic_load(&vgpu.devices[i].contexts) != 0;
    if (!any)
        own_name = listed(own_pid()) ? PID_ANOTHERS : PID_OURS;
}

void usage_note_strangers(void)
{
    look_for_own();
    strangers.count = list.count;
    for (unsigned i = 0; i < list.count; i++)
        strangers.pids[i] = list.infos[i].pid;
}

bool usage_is_named(void)
{
    look_for_own();
    return name_in_list() && (list.count || vgpu.region.self.pid_namespace == HOST_PID_NAMESPACE);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/measure.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/util.h"
#include "driver/cuda.h"
#include "node/card.h"
#include "nvml/find.h"
#include "nvml/instances.h"
#include "nvml/symbols.h"

#define CUDA_LIBRARY "libcuda.so.1"
#define HOST_PID_NAMESPACE 0xEFFFFFFCu /* its inode number, the same on every Linux */

/* Judging */

static const struct nvml_process *find_pid(const struct nvml_process *processes, size_t count,
                                           pid_t pid)
{
    for (size_t i = 0; i < count; i++) {
        if (processes[i].pid == pid)
            return &processes[i];
    }
    return NULL;
}

/* Then NVML lists by the pids of our namespace. */
static bool all_are_here(const struct measure_lists *lists)
{
    for (size_t i = 0; i < lists->with_count; i++) {
        if (!lists->is_here(lists->with[i].pid))
            return false;
    }
    return true;
}

uint64_t measure_judge(const struct measure_lists *lists, pid_t own)
{
    const struct nvml_process *mine = find_pid(lists->with, lists->with_count, own);
    bool alone = lists->before_count == 0 && lists->with_count == 1;

    if (mine && (!all_are_here(lists) || find_pid(lists->before, lists->before_count, own)))
        mine = NULL;
    if (!mine && alone)
        mine = &lists->with[0];
    if (!mine || mine->memory_bytes != UINT64_MAX)
        return mine ? mine->memory_bytes : 0;
    /* By the pids of a namespace that is not the host's, others may be there and not be listed. */
    return alone && (lists->has_hosts_pids || mine->pid != own) ? lists->grown_bytes : 0;
}

/* Looking */

struct place {
    unsigned index;
    bool is_instance;
    unsigned gpu_instance;
};

int measure_list(struct nvml *nvml, unsigned index, bool is_instance, unsigned gpu_instance,
                 struct nvml_process ret_processes[MEASURE_PROCESSES_MAX], struct error *err)
{
    int count = nvml_list_all_processes(nvml, index, ret_processes, MEASURE_PROCESSES_MAX, err);
    int kept = 0;

    for (int i = 0; i < count; i++) {
        if (!is_instance ||
            (ret_processes[i].in_instance && ret_processes[i].gpu_instance == gpu_instance))
            ret_processes[kept++] = ret_processes[i];
    }
    return count < 0 ? count : kept;
}

static int find_instance(struct nvml *nvml, unsigned index, const char *uuid,
                         struct place *ret_place)
{
    struct nvml_mig_device devices[NVML_INSTANCES_MAX];
    int count = nvml_list_mig_devices(nvml, index, devices, NVML_INSTANCES_MAX, NULL);

    for (int i = 0; i < count; i++) {
        if (strcmp(devices[i].uuid, uuid) != 0)
            continue;
        *ret_place = (struct place){index, true, devices[i].gpu_instance};
        return 0;
    }
    return -ENOENT;
}

static int find_place(struct nvml *nvml, const char *uuid, struct place *ret_place,
                      struct error *err)
{
    struct device devices[CARDS_WHOLE_MAX];
    int count = nvml_list(nvml, devices, ARRAY_SIZE(devices), err);

    for (int i = 0; i < count; i++) {
        if (strcmp(devices[i].uuid, uuid) == 0) {
            *ret_place = (struct place){.index = (unsigned)i};
            return 0;
        }
        if (find_instance(nvml, (unsigned)i, uuid, ret_place) == 0)
            return 0;
    }
    return count < 0 ? count : error_set(err, -ENOENT, "NVML knows no %s", uuid);
}

/* Who is there, and what is in use while just those were there. */
struct look {
    struct nvml_process processes[MEASURE_PROCESSES_MAX];
    size_t count;
    uint64_t used_bytes; /* 0: not known */
};

static bool same_processes(const struct look *look, const struct nvml_process *processes,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!find_pid(look->processes, look->count, processes[i].pid))
            return false;
    }
    return look->count == count;
}

static int look_at(struct nvml *nvml, const struct place *place, struct look *look,
                   struct error *err)
{
    AUTOFREE struct nvml_process *again = calloc(MEASURE_PROCESSES_MAX, sizeof(*again));
    struct nvml_status status = {0};
    int count, r = 0;

    if (!again)
        return error_set(err, -ENOMEM, "no memory");
    count = measure_list(nvml, place->index, place->is_instance, place->gpu_instance,
                         look->processes, err);
    if (count < 0)
        return count;
    look->count = (size_t)count;
    if (!place->is_instance)
        r = nvml_read_status(nvml, place->index, &status, err);
    if (r < 0)
        return r;
    look->used_bytes = status.memory_used_bytes;
    count = measure_list(nvml, place->index, place->is_instance, place->gpu_instance, again, err);
    if (count >= 0 && !same_processes(look, again, (size_t)count))
        look->used_bytes = 0;
    return MIN(count, 0);
}

/* Making */

struct cuda {
    CUresult (*init)(unsigned flags);
    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*retain)(CUcontext *context, CUdevice device);
    CUresult (*release)(CUdevice device);
};

static const struct symbol symbols[] = {
    {"cuInit", offsetof(struct cuda, init), .required = true},
    {"cuDeviceGet", offsetof(struct cuda, device_get), .required = true},
    {"cuDevicePrimaryCtxRetain", offsetof(struct cuda, retain), .required = true},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(struct cuda, release), .required = true},
};

/* Of the same driver as NVML, thus beside it. */
static int open_cuda(struct nvml *nvml, struct cuda *ret_cuda, struct error *err)
{
    char folder[PATH_MAX], path[PATH_MAX];
    void *library = NULL;

    if (nvml_folder(nvml, folder) == 0 && file_path(path, NULL, "%s/" CUDA_LIBRARY, folder) == 0 &&
        access(path, F_OK) == 0)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(err, -ENOENT, "cannot open " CUDA_LIBRARY ": %s", dlerror());
    return symbols_load(library, symbols, ARRAY_SIZE(symbols), ret_cuda, err);
}

static int fail(const char *what, CUresult result, struct error *err)
{
    return error_set(err, -EIO, "%s failed with CUDA error %d", what, (int)result);
}

/* The one device that CUDA_VISIBLE_DEVICES leaves us. */
static int start_cuda(struct nvml *nvml, struct cuda *cuda, CUdevice *ret_device, struct error *err)
{
    CUresult result;
    int r = open_cuda(nvml, cuda, err);

    if (r < 0)
        return r;
    result = cuda->init(0);
    if (result != CUDA_SUCCESS)
        return fail("cuInit", result, err);
    result = cuda->device_get(ret_device, 0);
    return result == CUDA_SUCCESS ? 0 : fail("cuDeviceGet", result, err);
}

static bool is_here(pid_t pid)
{
    return kill(pid, 0) == 0 || errno != ESRCH;
}

static bool has_hosts_pids(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == HOST_PID_NAMESPACE;
}

static uint64_t judge(const struct look *before, const struct look *with, const struct look *after)
{
    struct measure_lists lists = {
        .before = before->processes,
        .before_count = before->count,
        .with = with->processes,
        .with_count = with->count,
        .has_hosts_pids = has_hosts_pids(),
        .is_here = is_here,
    };

    /* Somebody's memory may have come or gone after him. */
    if (before->used_bytes && before->used_bytes == after->used_bytes)
        lists.grown_bytes = with->used_bytes - MIN(with->used_bytes, before->used_bytes);
    return measure_judge(&lists, getpid());
}

static int with_context(struct nvml *nvml, const struct place *place, const struct cuda *cuda,
                        CUdevice device, struct look *ret_with, struct error *err)
{
    CUcontext context;
    CUresult result = cuda->retain(&context, device);
    int r;

    if (result != CUDA_SUCCESS)
        return fail("cuDevicePrimaryCtxRetain", result, err);
    r = look_at(nvml, place, ret_with, err);
    (void)cuda->release(device);
    return r;
}

static int measure(const char *uuid, const char *root, uint64_t *ret_bytes, struct error *err)
{
    AUTOFREE struct look *looks = calloc(3, sizeof(*looks));
    CLEANUP(nvml_closep) struct nvml *nvml = NULL;
    struct place place;
    struct cuda cuda;
    CUdevice device;
    int r;

    if (!looks)
        return error_set(err, -ENOMEM, "no memory");
    r = nvml_find(*root ? root : NULL, driver_usual_roots, &nvml, err);
    if (r == 0)
        r = find_place(nvml, uuid, &place, err);
    if (r == 0)
        r = start_cuda(nvml, &cuda, &device, err);
    if (r == 0)
        r = look_at(nvml, &place, &looks[0], err);
    if (r == 0)
        r = with_context(nvml, &place, &cuda, device, &looks[1], err);
    if (r == 0)
        r = look_at(nvml, &place, &looks[2], err);
    if (r == 0)
        *ret_bytes = judge(&looks[0], &looks[1], &looks[2]);
    return r;
}

/* Whoever runs out of memory first is this process, not the device plugin. */
static void offer_ourselves(void)
{
    AUTOCLOSE int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)file_write_all(fd, "1000", strlen("1000"));
}

int measure_main(int argc, char **argv)
{
    struct error err = ERROR_INIT;
    uint64_t limit_s, bytes = 0;

    if (argc != 3 || parse_u64(argv[2], &limit_s) < 0 || !limit_s || limit_s > 3600) {
        (void)fputs(MEASURE_WORD " UUID ROOT SECONDS\n", stderr);
        return MEASURE_FAILED;
    }
    (void)alarm((unsigned)limit_s);
    offer_ourselves();
    if (measure(argv[0], argv[1], &bytes, &err) < 0) {
        (void)puts(err.text);
        return MEASURE_FAILED;
    }
    if (!bytes) {
        (void)puts("others are on the card, and NVML does not name this process for sure");
        return MEASURE_BUSY;
    }
    (void)printf("%llu\n", (unsigned long long)bytes);
    return MEASURE_DONE;
}

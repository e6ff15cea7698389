/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A guest that does what guests do: a program for libvgpu to live in, told on the command line what
 * to do, one verb after the other. guest.py composes them and judges.
 *
 *   guest VERB[=ARGUMENT]...
 *
 * A code that a verb was answered is kept for `say`, which prints a line of JSON. Only `say`
 * prints.
 */

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cu.h"
#include "filters.h"

#define MAX_PIECES 65536
#define MAX_SIGNALS 65

static struct {
    cu_init_fn *init;
    cu_device_get_fn *device_get;
    cu_retain_fn *retain;
    cu_ctx_fn *set_current;
    cu_alloc_fn *alloc;
    cu_free_fn *free;
    cu_info_fn *info;
    cu_reserve_fn *reserve;
    cu_create_fn *create;
    cu_free_fn *release;
    cu_map_fn *map;
    cu_unmap_fn *unmap;
    cu_alloc_async_fn *alloc_async;
    cu_free_async_fn *free_async;
    cu_module_load_fn *load;
    cu_function_fn *function;
    cu_launch_fn *launch;
    cu_void_fn *sync;
} cu;

static cu_handle context;
static cu_ptr pieces[MAX_PIECES];
static uint64_t sizes[MAX_PIECES];
static unsigned piece_count;
static uint64_t taken;
static int last_code, strange;
static char **self_argv;

static void find_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

    if (!driver)
        exit(70);
    cu.init = (cu_init_fn *)dlsym(driver, "cuInit");
    cu.device_get = (cu_device_get_fn *)dlsym(driver, "cuDeviceGet");
    cu.retain = (cu_retain_fn *)dlsym(driver, "cuDevicePrimaryCtxRetain");
    cu.set_current = (cu_ctx_fn *)dlsym(driver, "cuCtxSetCurrent");
    cu.alloc = (cu_alloc_fn *)dlsym(driver, "cuMemAlloc_v2");
    cu.free = (cu_free_fn *)dlsym(driver, "cuMemFree_v2");
    cu.info = (cu_info_fn *)dlsym(driver, "cuMemGetInfo_v2");
    cu.reserve = (cu_reserve_fn *)dlsym(driver, "cuMemAddressReserve");
    cu.create = (cu_create_fn *)dlsym(driver, "cuMemCreate");
    cu.release = (cu_free_fn *)dlsym(driver, "cuMemRelease");
    cu.map = (cu_map_fn *)dlsym(driver, "cuMemMap");
    cu.unmap = (cu_unmap_fn *)dlsym(driver, "cuMemUnmap");
    cu.alloc_async = (cu_alloc_async_fn *)dlsym(driver, "cuMemAllocAsync");
    cu.free_async = (cu_free_async_fn *)dlsym(driver, "cuMemFreeAsync");
    cu.load = (cu_module_load_fn *)dlsym(driver, "cuModuleLoadData");
    cu.function = (cu_function_fn *)dlsym(driver, "cuModuleGetFunction");
    cu.launch = (cu_launch_fn *)dlsym(driver, "cuLaunchKernel");
    cu.sync = (cu_void_fn *)dlsym(driver, "cuCtxSynchronize");
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0);

    return *end == 'M'   ? value << 20
           : *end == 'K' ? value << 10
           : *end == 'G' ? value << 30
                         : value;
}

/* Finds the driver and makes the first device's context current. */
static int verb_init(const char *argument)
{
    int device;

    (void)argument;
    find_driver();
    last_code = cu.init(0);
    if (last_code == CU_OK)
        last_code = cu.device_get(&device, 0);
    if (last_code == CU_OK)
        last_code = cu.retain(&context, device);
    if (last_code == CU_OK)
        last_code = cu.set_current(context);
    return 0;
}

static int take(uint64_t bytes)
{
    cu_ptr ptr = 0;
    int code = piece_count < MAX_PIECES ? cu.alloc(&ptr, bytes) : CU_OUT_OF_MEMORY;

    if (code == CU_OK) {
        pieces[piece_count] = ptr;
        sizes[piece_count++] = bytes;
        taken += bytes;
    } else if (code != CU_OUT_OF_MEMORY) {
        strange = code;
    }
    return code;
}

static int verb_alloc(const char *argument)
{
    last_code = take(number(argument));
    return 0;
}

/* Takes until nothing is left, beginning with pieces of the given size. */
static int verb_fill(const char *argument)
{
    uint64_t piece = argument[0] ? number(argument) : 64 << 20;

    while (piece >= 512) {
        last_code = take(piece);
        if (last_code != CU_OK)
            piece /= 2;
    }
    return 0;
}

static int verb_free(const char *argument)
{
    int code;

    (void)argument;
    last_code = CU_OK;
    while (piece_count) {
        code = cu.free(pieces[--piece_count]);
        taken -= sizes[piece_count];
        last_code = code ? code : last_code;
    }
    return 0;
}

/* Takes and frees at random for so many milliseconds. */
static int verb_churn(const char *argument)
{
    unsigned seed = (unsigned)getpid() ^ (unsigned)time(NULL);
    struct timespec now, end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)(number(argument) / 1000);
    end.tv_nsec += (long)(number(argument) % 1000) * 1000000;
    do {
        if (piece_count < 64 && rand_r(&seed) % 2) {
            last_code = take(512u << rand_r(&seed) % 15);
        } else if (piece_count) {
            taken -= sizes[--piece_count];
            if (cu.free(pieces[piece_count]) != CU_OK)
                strange = -1;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    return 0;
}

/* Makes memory, maps it, and lets go of it, so many times. */
static int verb_map(const char *argument)
{
    static const struct cu_allocation_prop prop = {.type = 1, .location_type = 1};
    const size_t piece = 2 << 20;
    static cu_ptr at;
    cu_ptr handle;

    if (!at && cu.reserve(&at, 4 * piece, 0, 0, 0) != CU_OK)
        strange = -2;
    for (uint64_t i = number(argument); i; i--) {
        size_t bytes = piece * (1 + i % 4);

        last_code = cu.create(&handle, bytes, &prop, 0);
        if (last_code != CU_OK)
            continue;
        if (cu.map(at, bytes, 0, handle, 0) != CU_OK || cu.release(handle) != CU_OK ||
            cu.unmap(at, bytes) != CU_OK)
            strange = -3;
    }
    return 0;
}

/* Takes from the pool and gives back, so many times, and waits now and then. */
static int verb_pool(const char *argument)
{
    cu_ptr ptr[4];

    for (uint64_t i = number(argument); i; i--) {
        for (unsigned k = 0; k < 4; k++) {
            last_code = cu.alloc_async(&ptr[k], ((size_t)1 << 20) + 512 * k * i, NULL);
            ptr[k] = last_code == CU_OK ? ptr[k] : 0;
        }
        for (unsigned k = 0; k < 4; k++)
            if (cu.free_async(ptr[k], NULL) != CU_OK)
                strange = -4;
        if (i % 4 == 0 && cu.sync() != CU_OK)
            strange = -5;
    }
    return 0;
}

static int verb_launch(const char *argument)
{
    int64_t kernel_ns = 20000;
    void *params[] = {&kernel_ns};
    cu_handle module, function;

    /* Code of no size: what the driver takes at a first launch is for hidden.py to judge. */
    last_code = cu.load(&module, "hamisim-module 1\nsize=0\nkernel spin\n");
    if (last_code == CU_OK)
        last_code = cu.function(&function, module, "spin");
    for (uint64_t i = number(argument); last_code == CU_OK && i; i--)
        last_code = cu.launch(function, 108, 1, 1, 128, 1, 1, 0, NULL, params, NULL);
    if (last_code == CU_OK)
        last_code = cu.sync();
    return 0;
}

static int verb_say(const char *argument)
{
    size_t free_bytes = 0, total = 0;
    int info = cu.info ? cu.info(&free_bytes, &total) : -1;

    printf("{\"say\": \"%s\", \"pid\": %d, \"code\": %d, \"strange\": %d, \"taken\": %llu, "
           "\"info\": [%d, %zu, %zu]}\n",
           argument, getpid(), last_code, strange, (unsigned long long)taken, info, free_bytes,
           total);
    fflush(stdout);
    return 0;
}

static int verb_wait(const char *argument)
{
    char c;

    (void)argument;
    do {
        if (read(STDIN_FILENO, &c, 1) <= 0)
            return 1;
    } while (c != '\n');
    return 0;
}

/* Context switches of all threads but the main one. */
static long long switches(void)
{
    DIR *tasks = opendir("/proc/self/task");
    long long sum = 0, number;
    char path[300], line[128];

    for (struct dirent *task = readdir(tasks); task; task = readdir(tasks)) {
        FILE *status;

        if (task->d_name[0] == '.' || atoi(task->d_name) == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        status = fopen(path, "r");
        while (status && fgets(line, sizeof(line), status))
            if (sscanf(line, "voluntary_ctxt_switches: %lld", &number) == 1)
                sum += number;
        if (status)
            fclose(status);
    }
    closedir(tasks);
    return sum;
}

/* The driver's own end comes now, or has come: nobody may call it beside us. */
static void check_quiet(void)
{
    long long before, after;

    usleep(5000); /* a thread that was told to end may be at it */
    before = switches();
    usleep(50000);
    after = switches();
    if (after > before)
        _exit(85);
}

/* Before init: what was registered first is run last. */
static int verb_quiet_exit(const char *argument)
{
    (void)argument;
    return atexit(check_quiet) ? 86 : 0;
}

static int verb_sleep(const char *argument)
{
    usleep((useconds_t)number(argument) * 1000);
    return 0;
}

static int verb_chdir(const char *argument)
{
    return chdir(argument) ? 77 : 0;
}

static int verb_chroot(const char *argument)
{
    return chroot(argument) || chdir("/") ? 79 : 0;
}

static int write_to(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    (void)close(fd);
    return written ? 0 : -1;
}

/* OWN:PATH: one file over another, in a mount namespace of the program's own. */
static int verb_mount(const char *argument)
{
    char own[4096], map[64];
    const char *path = strchr(argument, ':');

    (void)snprintf(own, sizeof(own), "%.*s", (int)(path - argument), argument);
    (void)snprintf(map, sizeof(map), "0 %u 1", (unsigned)geteuid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) || write_to("/proc/self/uid_map", map) ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return 77; /* not permitted here */
    return mount(own, path + 1, NULL, MS_BIND, NULL) ? 78 : 0;
}

/* A thread that is held where the library, called by it, asks for a file. */
static atomic_bool is_parked;

static void park(int number)
{
    (void)number;
    atomic_store(&is_parked, true);
    for (;;)
        pause();
}

static void *parked_main(void *unused)
{
    cu_ptr ptr;

    cu.set_current(context);
    INSTALL(LOAD(nr), IS(SYS_newfstatat, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP), ALLOW);
    for (;;) {
        if (cu.alloc(&ptr, 1 << 20) == CU_OK)
            cu.free(ptr);
        usleep(10000);
    }
    return unused;
}

static int verb_park(const char *argument)
{
    pthread_t thread;

    (void)argument;
    if (signal(SIGSYS, park) == SIG_ERR || pthread_create(&thread, NULL, parked_main, NULL))
        return 86;
    for (unsigned i = 0; i < 1000 && !atomic_load(&is_parked); i++)
        usleep(10000);
    return atomic_load(&is_parked) ? 0 : 87;
}

/* From now on. */
static int verb_filter(const char *argument)
{
    filter(argument, 0);
    return 0;
}

/* So many descriptors may be open from now on. */
static int verb_files(const char *argument)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 80;
    limit.rlim_cur = (rlim_t)number(argument);
    return setrlimit(RLIMIT_NOFILE, &limit) ? 80 : 0;
}

static int verb_unlink(const char *argument)
{
    return unlink(argument) ? 78 : 0;
}

/* Says in the region that nothing is charged on the first device, by whomever. */
static int verb_forge(const char *argument)
{
    const off_t words = 2011136 + 512;
    uint64_t word = 0;
    int fd = open(argument, O_RDWR);

    if (fd < 0 || pwrite(fd, &word, sizeof(word), words) != sizeof(word))
        return 79;
    close(fd);
    return 0;
}

/* What daemons do. */
static int verb_closefrom(const char *argument)
{
    int first = (int)number(argument);

    for (int fd = first; fd < 4096; fd++)
        close(fd);
    return 0;
}

/* As a daemon that closed its standard error, and whose next file then has its number. "append": it
 * is a log. */
static int verb_stderr(const char *argument)
{
    bool log = strncmp(argument, "append,", 7) == 0;

    close(STDERR_FILENO);
    return open(argument + (log ? 7 : 0), O_WRONLY | O_CREAT | (log ? O_APPEND : 0), 0600) !=
                   STDERR_FILENO
               ? 85
               : 0;
}

/* As a server drops its rights once it has its sockets. */
static int verb_setuid(const char *argument)
{
    uid_t uid = (uid_t)number(argument);

    if (setgid(uid) || setuid(uid))
        return 71;
    return 0;
}

/* The child goes on with the verbs that follow; the parent waits for it and ends as it did. */
static int verb_fork(const char *argument)
{
    int status;
    pid_t child = fork();

    (void)argument;
    if (child == 0) {
        piece_count = 0;
        taken = 0;
        return 0;
    }
    if (waitpid(child, &status, 0) != child)
        return 72;
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* The other way round: a child that does nothing and exits, or _exits, while we go on. */
static int verb_fork_aside(const char *argument)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        if (strcmp(argument, "exit") == 0)
            exit(0);
        if (strcmp(argument, "free") == 0)
            (void)verb_free("");
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return 73;
    return 0;
}

static int verb_vfork(const char *argument)
{
    int status;
    pid_t child = vfork();

    (void)argument;
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return 74;
    return 0;
}

/* Becomes a new program of the same pid, which goes on with the verbs that follow. */
static int verb_exec(const char *argument)
{
    (void)argument;
    execv("/proc/self/exe", self_argv);
    return 75;
}

struct thread {
    pthread_t id;
    unsigned seed;
    uint64_t rounds, refused;
    int strange;
};

static void *thread_main(void *data)
{
    struct thread *thread = data;
    cu_ptr held[8];
    unsigned count = 0;
    int code;

    cu.set_current(context);
    for (uint64_t i = 0; i < thread->rounds; i++) {
        if (count < 8 && rand_r(&thread->seed) % 2) {
            code = cu.alloc(&held[count], (512u << rand_r(&thread->seed) % 16) + 1);
            count += code == CU_OK;
            thread->refused += code == CU_OUT_OF_MEMORY;
            if (code != CU_OK && code != CU_OUT_OF_MEMORY)
                thread->strange = code;
        } else if (count && cu.free(held[--count]) != CU_OK) {
            thread->strange = -1;
        }
    }
    while (count)
        cu.free(held[--count]);
    return NULL;
}

static int verb_threads(const char *argument)
{
    static struct thread threads[64];
    unsigned count = (unsigned)number(argument);

    for (unsigned i = 0; i < count && i < 64; i++) {
        threads[i] = (struct thread){.seed = i, .rounds = 5000};
        if (pthread_create(&threads[i].id, NULL, thread_main, &threads[i]))
            return 76;
    }
    for (unsigned i = 0; i < count && i < 64; i++) {
        pthread_join(threads[i].id, NULL);
        strange = threads[i].strange ? threads[i].strange : strange;
    }
    return 0;
}

/* Launches and allocates until it is cancelled. */
static void *cancelled_main(void *function)
{
    int64_t kernel_ns = 1000000;
    void *params[] = {&kernel_ns};
    cu_ptr ptr;

    (void)cu.set_current(context);
    for (;;) {
        (void)cu.launch(function, 108, 1, 1, 128, 1, 1, 0, NULL, params, NULL);
        if (cu.alloc(&ptr, 1 << 20) == CU_OK)
            (void)cu.free(ptr);
        pthread_testcancel();
    }
    return NULL;
}

/* Threads, one after the other, that are cancelled wherever they are just then. */
static int verb_cancel(const char *argument)
{
    cu_handle module, function;
    pthread_t thread;

    last_code = cu.load(&module, "hamisim-module 1\nsize=0\nkernel spin\n");
    if (last_code == CU_OK)
        last_code = cu.function(&function, module, "spin");
    for (uint64_t i = number(argument); last_code == CU_OK && i; i--) {
        if (pthread_create(&thread, NULL, cancelled_main, function))
            return 76;
        usleep((useconds_t)(i * 7919 % 20000));
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    return 0;
}

/* Sends all other threads what libc cancels by, whose handler is there once one was cancelled. Says
 * how many of them are left. */
static int verb_cancel_others(const char *argument)
{
    struct dirent *entry;
    int left = -1;

    (void)argument;
    for (int round = 0; round < 2; round++) {
        DIR *tasks = opendir("/proc/self/task");

        left = -1; /* this thread is none of them */
        while ((entry = readdir(tasks))) {
            pid_t thread = atoi(entry->d_name);

            left += thread > 0;
            if (thread > 0 && thread != gettid() && round == 0)
                (void)syscall(SYS_tgkill, getpid(), thread, 32);
        }
        closedir(tasks);
        usleep(200000);
    }
    last_code = left;
    return 0;
}

static struct {
    nvml_void_fn *init;
    nvml_handle_fn *handle;
    nvml_processes_v1_fn *processes_v1;
    nvml_processes_v2_fn *processes_v2;
    int (*details)(cu_handle device, void *details);
    int (*samples)(cu_handle device, void *samples, unsigned *count, unsigned long long since_us);
    int (*rates)(cu_handle device, unsigned rates[2]);
} nvml;

static void find_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

    if (!library)
        exit(70);
    nvml.init = (nvml_void_fn *)dlsym(library, "nvmlInit_v2");
    nvml.handle = (nvml_handle_fn *)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    nvml.processes_v1 =
        (nvml_processes_v1_fn *)dlsym(library, "nvmlDeviceGetComputeRunningProcesses");
    nvml.processes_v2 =
        (nvml_processes_v2_fn *)dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    nvml.details = dlsym(library, "nvmlDeviceGetRunningProcessDetailList");
    nvml.samples = dlsym(library, "nvmlDeviceGetProcessUtilization");
    nvml.rates = dlsym(library, "nvmlDeviceGetUtilizationRates");
}

static int ask_nvml(void)
{
    static struct nvml_process_v1 v1[8];
    static struct nvml_process_v2 v2[8];
    static unsigned char samples[8][64];
    struct {
        unsigned version, mode, count;
        void *list;
    } details = {.version = 0x1000018, .count = 0};
    unsigned count_v1 = 8, count_v2 = 8, count = 8, rates[2];
    cu_handle device = NULL;
    int code = nvml.init();

    if (code == CU_OK)
        code = nvml.handle(0, &device);
    if (code == CU_OK)
        code = nvml.processes_v1(device, &count_v1, v1);
    if (code == CU_OK)
        code = nvml.processes_v2(device, &count_v2, v2);
    if (code == CU_OK)
        code = nvml.rates(device, rates);
    if (code == CU_OK)
        code = (count_v1 == 1 && count_v2 == 1 && v2[0].pid == (unsigned)getpid()) ? CU_OK : -1;
    (void)nvml.details(device, &details);
    (void)nvml.samples(device, samples, &count, 0);
    return code;
}

/* All that a program does with a GPU, from the first call on, for a second in which the library
 * looks at what may have changed, too. */
static void *small_main(void *unused)
{
    int64_t kernel_ns = 1000;
    void *params[] = {&kernel_ns};
    cu_handle module, function;
    size_t free_bytes, total;
    cu_ptr ptr;

    (void)unused;
    (void)verb_init("");
    if (last_code == CU_OK)
        last_code = cu.load(&module, "hamisim-module 1\nsize=1048576\nkernel spin\n");
    if (last_code == CU_OK)
        last_code = cu.function(&function, module, "spin");
    for (unsigned i = 0; last_code == CU_OK && i < 40; i++) {
        for (unsigned k = 0; k < 10; k++)
            (void)cu.launch(function, 1 + i, 1, 1, 128, 1, 1, 0, NULL, params, NULL);
        if (cu.alloc(&ptr, 1 << 20) == CU_OK)
            (void)cu.free(ptr);
        if (cu.alloc(&ptr, UINT64_C(1) << 40) != CU_OUT_OF_MEMORY)
            strange = 1;
        last_code = cu.info(&free_bytes, &total);
        if (last_code == CU_OK)
            last_code = ask_nvml();
        (void)cu.sync();
        (void)usleep(30000);
    }
    return NULL;
}

/* A thread whose stack has so many bytes. */
static int verb_small_stack(const char *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;

    find_driver();
    find_nvml();
    (void)pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, number(argument)) ||
        pthread_create(&thread, &attributes, small_main, NULL))
        return 76;
    pthread_join(thread, NULL);
    return 0;
}

static atomic_bool launches_end;

/* As it is cancelled never: it launches, here without an end, and without allocating. */
static void *launching_main(void *function)
{
    int64_t kernel_ns = 10000;
    void *params[] = {&kernel_ns};

    (void)cu.set_current(context);
    for (unsigned i = 1; !atomic_load(&launches_end); i++)
        (void)cu.launch(function, 1 + i % 108, 1, 1, 128, 1, 1, 0, NULL, params, NULL);
    return NULL;
}

/* A thread launches and forks; what is left of it in the child ends, and with it the child. */
static void *forking_main(void *function)
{
    int64_t kernel_ns = 10000;
    void *params[] = {&kernel_ns};
    int status = 0;

    (void)cu.set_current(context);
    for (unsigned i = 0; i < 200 && !status; i++) {
        pid_t child;

        (void)cu.launch(function, 1 + i % 108, 1, 1, 128, 1, 1, 0, NULL, params, NULL);
        child = fork();
        if (child == 0) {
            (void)alarm(5);
            pthread_exit(NULL);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            status = 1;
    }
    return (void *)(intptr_t)status;
}

static int verb_fork_in_thread(const char *argument)
{
    cu_handle module, function;
    pthread_t forking, launching[2];
    void *status = NULL;

    (void)argument;
    last_code = cu.load(&module, "hamisim-module 1\nsize=0\nkernel spin\n");
    if (last_code == CU_OK)
        last_code = cu.function(&function, module, "spin");
    if (last_code != CU_OK)
        return 0;
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&launching[i], NULL, launching_main, function))
            return 76;
    }
    if (pthread_create(&forking, NULL, forking_main, function))
        return 76;
    pthread_join(forking, &status);
    atomic_store(&launches_end, true);
    for (int i = 0; i < 2; i++)
        pthread_join(launching[i], NULL);
    return status ? 77 : 0;
}

/* What must be found as it was left: signal handlers, the umask, the environment. */
static struct {
    struct sigaction actions[MAX_SIGNALS];
    sigset_t mask;
    mode_t umask;
    unsigned variables;
} manners;

static mode_t umask_now(void)
{
    mode_t mask = umask(0);

    umask(mask);
    return mask;
}

static unsigned variables_now(void)
{
    extern char **environ;
    unsigned count = 0;

    while (environ[count])
        count++;
    return count;
}

static int verb_remember(const char *argument)
{
    (void)argument;
    for (int i = 1; i < MAX_SIGNALS; i++)
        sigaction(i, NULL, &manners.actions[i]);
    sigprocmask(SIG_BLOCK, NULL, &manners.mask);
    umask(0137);
    manners.umask = umask_now();
    manners.variables = variables_now();
    return 0;
}

static int verb_compare(const char *argument)
{
    struct sigaction now;
    sigset_t mask = {0}; /* of which the kernel fills in what it knows */

    (void)argument;
    for (int i = 1; i < MAX_SIGNALS; i++)
        if (sigaction(i, NULL, &now) == 0 && now.sa_handler != manners.actions[i].sa_handler)
            return 80;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    if (memcmp(&mask, &manners.mask, sizeof(mask)) != 0)
        return 81;
    if (umask_now() != manners.umask)
        return 82;
    if (variables_now() != manners.variables)
        return 83;
    return 0;
}

/* Every descriptor that is ours to pass on to an exec'd program, except 0-2: there must be none. */
static int verb_inheritable(const char *argument)
{
    (void)argument;
    for (int fd = 3; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);

        if (flags >= 0 && !(flags & FD_CLOEXEC))
            return 84;
    }
    return 0;
}

struct verb {
    const char *name;
    int (*run)(const char *argument); /* an exit status that ends the guest, or 0 */
};

static const struct verb verbs[] = {
    {"init", verb_init},
    {"alloc", verb_alloc},
    {"fill", verb_fill},
    {"free", verb_free},
    {"churn", verb_churn},
    {"map", verb_map},
    {"pool", verb_pool},
    {"launch", verb_launch},
    {"say", verb_say},
    {"wait", verb_wait},
    {"sleep", verb_sleep},
    {"quiet-exit", verb_quiet_exit},
    {"chdir", verb_chdir},
    {"chroot", verb_chroot},
    {"mount", verb_mount},
    {"park", verb_park},
    {"files", verb_files},
    {"filter", verb_filter},
    {"unlink", verb_unlink},
    {"forge", verb_forge},
    {"closefrom", verb_closefrom},
    {"stderr", verb_stderr},
    {"setuid", verb_setuid},
    {"fork", verb_fork},
    {"fork-aside", verb_fork_aside},
    {"vfork", verb_vfork},
    {"exec", verb_exec},
    {"threads", verb_threads},
    {"cancel", verb_cancel},
    {"cancel-others", verb_cancel_others},
    {"small-stack", verb_small_stack},
    {"fork-in-thread", verb_fork_in_thread},
    {"remember", verb_remember},
    {"compare", verb_compare},
    {"inheritable", verb_inheritable},
};

static int run_verb(char *word)
{
    char *argument = strchr(word, '=');

    if (argument)
        *argument++ = '\0';
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verbs[i].name, word) == 0)
            return verbs[i].run(argument ? argument : "");
    return 2;
}

int main(int argc, char **argv)
{
    int status = 0;

    for (int i = 1; i < argc && status == 0; i++) {
        self_argv = argv + i; /* argv[0] of an exec'd self is the verb that was `exec` */
        status = run_verb(argv[i]);
    }
    return status;
}

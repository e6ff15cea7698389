/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A guest that makes the driver take memory for itself: contexts, code, heaps. Told on the command
 * line what to do, one verb after the other; hidden.py composes them and judges.
 *
 *   hidden VERB[=ARGUMENT]...
 *
 * `say` prints a line of JSON: what the verbs since the last one were answered, and what the
 * program is told of its memory.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cu.h"

#define MAX_PIECES 65536
#define MAX_CONTEXTS 8192
#define MAX_CODES 64
#define THREADS 8

typedef int cu_limit_set_fn(int limit, size_t value);
typedef int cu_limit_get_fn(size_t *value, int limit);
typedef int cu_attach_fn(cu_handle *context, unsigned int flags);
typedef int cu_library_load_fn(cu_handle *library, const void *image, void *, void *, unsigned,
                               void *, void *, unsigned);
typedef int cu_kernel_fn(cu_handle *kernel, cu_handle library, const char *name);
typedef int cu_kernel_function_fn(cu_handle *function, cu_handle kernel);
struct cu_launch_config {
    unsigned grid[3], block[3], shared;
    cu_handle stream;
    void *attributes;
    unsigned attribute_count;
};
typedef int cu_launch_ex_fn(const struct cu_launch_config *config, cu_handle function,
                            void **params, void **extra);
typedef int cu_cooperative_fn(cu_handle function, unsigned gx, unsigned gy, unsigned gz,
                              unsigned bx, unsigned by, unsigned bz, unsigned shared,
                              cu_handle stream, void **params);
struct cu_launch_params {
    cu_handle function;
    unsigned grid[3], block[3], shared;
    cu_handle stream;
    void **params;
};
typedef int cu_launch_list_fn(struct cu_launch_params *list, unsigned count, unsigned flags);
typedef int cu_export_fn(const void **table, const void *uuid);
typedef int cu_primary_fn(cu_handle *context, int device);

static struct {
    cu_init_fn *init;
    cu_device_get_fn *device_get;
    cu_retain_fn *retain;
    cu_release_fn *release, *reset;
    cu_ctx_create_fn *create;
    cu_ctx_fn *destroy, *detach, *set_current, *push;
    cu_ctx_out_fn *current, *pop;
    cu_attach_fn *attach;
    cu_limit_set_fn *set_limit;
    cu_limit_get_fn *get_limit;
    cu_alloc_fn *alloc;
    cu_free_fn *free;
    cu_info_fn *info;
    cu_module_load_fn *load;
    cu_module_fn *unload;
    cu_function_fn *function;
    cu_library_load_fn *load_library;
    cu_kernel_fn *kernel;
    cu_kernel_function_fn *kernel_function;
    cu_launch_fn *launch;
    cu_launch_ex_fn *launch_ex;
    cu_cooperative_fn *cooperative;
    cu_launch_list_fn *launch_list;
    cu_void_fn *sync;
    cu_export_fn *export;
} cu;

static cu_handle contexts[MAX_CONTEXTS];
static unsigned context_count;
static cu_ptr pieces[MAX_PIECES];
static unsigned piece_count;
static uint64_t taken;
static cu_handle module;
static int codes[MAX_CODES];
static unsigned code_count;

static void answered(int code)
{
    if (code_count < MAX_CODES)
        codes[code_count++] = code;
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

static const struct {
    const char *name;
    void *pointer;
} names[] = {
    {"cuInit", &cu.init},
    {"cuDeviceGet", &cu.device_get},
    {"cuDevicePrimaryCtxRetain", &cu.retain},
    {"cuDevicePrimaryCtxRelease_v2", &cu.release},
    {"cuDevicePrimaryCtxReset_v2", &cu.reset},
    {"cuCtxCreate_v2", &cu.create},
    {"cuCtxDestroy_v2", &cu.destroy},
    {"cuCtxDetach", &cu.detach},
    {"cuCtxSetCurrent", &cu.set_current},
    {"cuCtxPushCurrent_v2", &cu.push},
    {"cuCtxPopCurrent_v2", &cu.pop},
    {"cuCtxGetCurrent", &cu.current},
    {"cuCtxAttach", &cu.attach},
    {"cuCtxSetLimit", &cu.set_limit},
    {"cuCtxGetLimit", &cu.get_limit},
    {"cuMemAlloc_v2", &cu.alloc},
    {"cuMemFree_v2", &cu.free},
    {"cuMemGetInfo_v2", &cu.info},
    {"cuModuleLoadData", &cu.load},
    {"cuModuleUnload", &cu.unload},
    {"cuModuleGetFunction", &cu.function},
    {"cuLibraryLoadData", &cu.load_library},
    {"cuLibraryGetKernel", &cu.kernel},
    {"cuKernelGetFunction", &cu.kernel_function},
    {"cuLaunchKernel", &cu.launch},
    {"cuLaunchKernelEx", &cu.launch_ex},
    {"cuLaunchCooperativeKernel", &cu.cooperative},
    {"cuLaunchCooperativeKernelMultiDevice", &cu.launch_list},
    {"cuCtxSynchronize", &cu.sync},
    {"cuGetExportTable", &cu.export},
};

/* Finds the driver; makes no context. */
static int verb_init(const char *argument)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int device;

    (void)argument;
    if (!driver)
        return 70;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *found = dlsym(driver, names[i].name);

        memcpy(names[i].pointer, &found, sizeof(found));
    }
    answered(cu.init(0) ? 1 : cu.device_get(&device, 0));
    return 0;
}

static int verb_create(const char *argument)
{
    uint64_t count = argument[0] ? number(argument) : 1;
    int code = CU_OK;

    for (uint64_t i = 0; i < count && code == CU_OK && context_count < MAX_CONTEXTS; i++) {
        code = cu.create(&contexts[context_count], 0, 0);
        context_count += code == CU_OK;
    }
    answered(code);
    return 0;
}

/* A context for each on this thread's stack is one too many for a driver: off it again. */
static int verb_many(const char *argument)
{
    cu_handle popped;
    int code = CU_OK;

    for (uint64_t i = number(argument); i && code == CU_OK; i--) {
        code = cu.create(&contexts[context_count], 0, 0);
        if (code == CU_OK) {
            context_count++;
            cu.pop(&popped);
        }
    }
    answered(code);
    return 0;
}

static int verb_destroy(const char *argument)
{
    uint64_t count = argument[0] ? number(argument) : 1;
    int code = CU_OK;

    for (; count && code == CU_OK && context_count; count--)
        code = cu.destroy(contexts[--context_count]);
    answered(code);
    return 0;
}

static int verb_attach(const char *argument)
{
    cu_handle same;

    (void)argument;
    answered(cu.attach(&same, 0));
    return 0;
}

static int verb_detach(const char *argument)
{
    cu_handle current;

    (void)argument;
    cu.current(&current);
    answered(cu.detach(current));
    return 0;
}

static int verb_retain(const char *argument)
{
    cu_handle context;
    int code = cu.retain(&context, 0);

    (void)argument;
    answered(code ? code : cu.set_current(context));
    return 0;
}

/* As the CUDA runtime does it: through a table that is no export. */
static int verb_unseen(const char *argument)
{
    static const unsigned char uuid[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                           0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    const void *table;
    cu_primary_fn *make;
    cu_handle context;
    int code = cu.export(&table, uuid);

    (void)argument;
    if (code == CU_OK) {
        memcpy(&make, (const char *)table + 2 * sizeof(void *), sizeof(make));
        code = make(&context, 0);
    }
    answered(code ? code : cu.set_current(context));
    return 0;
}

static int verb_release(const char *argument)
{
    (void)argument;
    answered(cu.release(0));
    return 0;
}

static int verb_reset(const char *argument)
{
    (void)argument;
    answered(cu.reset(0));
    return 0;
}

/* limit=NUMBER:VALUE */
static int verb_limit(const char *argument)
{
    answered(cu.set_limit(atoi(argument), number(strchr(argument, ':') + 1)));
    return 0;
}

/* was=NUMBER:VALUE: whether a limit reads so. */
static int verb_was(const char *argument)
{
    size_t value = 0;
    int code = cu.get_limit(&value, atoi(argument));

    answered(code ? code : value == number(strchr(argument, ':') + 1) ? 0 : -1);
    return 0;
}

static int take(uint64_t bytes)
{
    cu_ptr ptr = 0;
    int code = piece_count < MAX_PIECES ? cu.alloc(&ptr, bytes) : CU_OUT_OF_MEMORY;

    if (code == CU_OK) {
        pieces[piece_count++] = ptr;
        taken += bytes;
    }
    return code;
}

static int verb_alloc(const char *argument)
{
    answered(take(number(argument)));
    return 0;
}

static int verb_fill(const char *argument)
{
    uint64_t piece = argument[0] ? number(argument) : 64 << 20;

    while (piece >= 512) {
        if (take(piece) != CU_OK)
            piece /= 2;
    }
    return 0;
}

static int verb_free(const char *argument)
{
    int code = CU_OK;

    (void)argument;
    while (piece_count && code == CU_OK)
        code = cu.free(pieces[--piece_count]);
    taken = 0;
    answered(code);
    return 0;
}

static const char *image_of(const char *argument)
{
    static char image[128];

    snprintf(image, sizeof(image), "hamisim-module 1\nsize=%llu\nkernel spin\n",
             (unsigned long long)number(argument));
    return image;
}

static int verb_module(const char *argument)
{
    answered(cu.load(&module, image_of(argument)));
    return 0;
}

static int verb_unload(const char *argument)
{
    (void)argument;
    answered(cu.unload(module));
    return 0;
}

static int launch(cu_handle function)
{
    int64_t kernel_ns = 1000;
    void *params[] = {&kernel_ns};

    return cu.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
}

/* Loads a module of that size, and launches its kernel so many times as follow a colon. */
static int verb_launch(const char *argument)
{
    const char *times = strchr(argument, ':');
    cu_handle own, function;
    int code = cu.load(&own, image_of(argument));

    if (code == CU_OK)
        code = cu.function(&function, own, "spin");
    for (uint64_t i = times ? number(times + 1) : 1; i && code == CU_OK; i--)
        code = launch(function);
    if (code == CU_OK)
        code = cu.sync();
    answered(code);
    return 0;
}

static int launch_by(const char *way, cu_handle function)
{
    static int64_t kernel_ns = 1000;
    static void *params[] = {&kernel_ns};
    const struct cu_launch_config config = {.grid = {1, 1, 1}, .block = {32, 1, 1}};
    struct cu_launch_params one = {
        .function = function, .grid = {1, 1, 1}, .block = {32, 1, 1}, .params = params};

    switch (*way) {
    case 'x':
        return cu.launch_ex(&config, function, params, NULL);
    case 'c':
        return cu.cooperative(function, 1, 1, 1, 32, 1, 1, 0, NULL, params);
    case 'l':
        return cu.launch_list(&one, 1, 0);
    default:
        return launch(function);
    }
}

static const char *image_of_depth(const char *argument)
{
    static char image[160];

    snprintf(image, sizeof(image), "hamisim-module 1\nsize=0\nkernel spin local=%llu\n",
             (unsigned long long)number(argument));
    return image;
}

static cu_handle deep;

/* A kernel of a module of no size whose threads need so much stack, launched by that way:
 * deep=STACK, deep=STACK:x (extended), :c (cooperative), :l (a list). */
static int verb_deep(const char *argument)
{
    const char *way = strchr(argument, ':');
    int code = cu.load(&module, image_of_depth(argument));

    if (code == CU_OK)
        code = cu.function(&deep, module, "spin");
    if (code == CU_OK)
        code = launch_by(way ? way + 1 : "", deep);
    if (code == CU_OK)
        code = cu.sync();
    answered(code);
    return 0;
}

/* The last one, so many times, by each of those ways. */
static int verb_again(const char *argument)
{
    int code = CU_OK;

    for (uint64_t i = number(argument); i && code == CU_OK; i--) {
        code = launch_by(i % 2 ? "" : "x", deep);
        if (i % 256 == 0)
            cu.sync();
    }
    answered(code ? code : cu.sync());
    return 0;
}

/* Whose module in this context no call that loads code makes. */
static int verb_library(const char *argument)
{
    cu_handle library, kernel, function;
    int code = cu.load_library(&library, image_of(argument), NULL, NULL, 0, NULL, NULL, 0);

    if (code == CU_OK)
        code = cu.kernel(&kernel, library, "spin");
    if (code == CU_OK)
        code = cu.kernel_function(&function, kernel);
    if (code == CU_OK)
        code = launch(function);
    if (code == CU_OK)
        code = cu.sync();
    answered(code);
    return 0;
}

static cu_handle kernel;

/* Of a library of that size, a kernel that has one handle in all contexts. */
static int verb_kernel(const char *argument)
{
    cu_handle library;
    int code = cu.load_library(&library, image_of(argument), NULL, NULL, 0, NULL, NULL, 0);

    if (code == CU_OK)
        code = cu.kernel(&kernel, library, "spin");
    answered(code);
    return 0;
}

/* The same of a library whose kernel needs so much stack. */
static int verb_deep_kernel(const char *argument)
{
    cu_handle library;
    int code = cu.load_library(&library, image_of_depth(argument), NULL, NULL, 0, NULL, NULL, 0);

    if (code == CU_OK)
        code = cu.kernel(&kernel, library, "spin");
    answered(code);
    return 0;
}

/* Launches it in the current context, so many times. */
static int verb_spin(const char *argument)
{
    int code = CU_OK;

    for (uint64_t i = number(argument); i && code == CU_OK; i--)
        code = launch(kernel);
    if (code == CU_OK)
        code = cu.sync();
    answered(code);
    return 0;
}

/* The context that was current before the last one. */
static int verb_pop(const char *argument)
{
    cu_handle popped;

    (void)argument;
    answered(cu.pop(&popped));
    return 0;
}

/* Launches a kernel that is loaded already, now and then, for so many milliseconds. */
static int verb_work(const char *argument)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    cu_handle own, function;
    int code = cu.load(&own, image_of("512"));

    if (code == CU_OK)
        code = cu.function(&function, own, "spin");
    for (uint64_t i = number(argument) / 2; i && code == CU_OK; i--) {
        code = launch(function);
        nanosleep(&pause, NULL);
    }
    answered(code);
    return 0;
}

static cu_handle shared;
static _Atomic int wrong;

/* Each loads and unloads modules of a size of its own, some of them used, and takes and gives back
 * memory. */
static void *load_and_unload(void *argument)
{
    uint64_t bytes = (uint64_t)(uintptr_t)argument;
    char image[128];
    cu_handle own, function;

    snprintf(image, sizeof(image), "hamisim-module 1\nsize=%llu\nkernel spin\n",
             (unsigned long long)bytes);
    cu.set_current(shared);
    for (unsigned i = 0; i < 40; i++) {
        int code = cu.load(&own, image);

        if (code == CU_OK && i % 2)
            code = cu.function(&function, own, "spin") || launch(function) || cu.sync();
        cu_ptr ptr = 0;

        if (code == CU_OK)
            code = cu.alloc(&ptr, (uint64_t)(i + 1) << 18);
        if (code == CU_OK)
            code = cu.unload(own);
        if (code == CU_OK)
            code = cu.free(ptr);
        if (code != CU_OK)
            wrong = code;
    }
    return NULL;
}

static int verb_threads(const char *argument)
{
    pthread_t threads[THREADS];

    (void)argument;
    cu.current(&shared);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, load_and_unload, (void *)(uintptr_t)((i + 1) << 20));
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    answered(wrong);
    return 0;
}

static _Atomic bool enough;

/* Memory on its way in and out all the time; what can be kept is kept now and then. */
static void *move(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    cu_ptr ptr;

    cu.set_current(shared);
    while (!enough) {
        if (cu.alloc(&ptr, 24u << 20) == CU_OK && rand_r(&seed) % 16)
            cu.free(ptr);
    }
    return NULL;
}

/* For so many milliseconds one thing is done again and again, while threads do another. */
static void beside_threads(void *(*other)(void *), const char *milliseconds, void (*again)(void))
{
    pthread_t threads[THREADS];
    struct timespec now, end;

    cu.current(&shared);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)(number(milliseconds) / 1000);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, other, (void *)(uintptr_t)(i + 1));
    do {
        again();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    enough = true;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static int loaded;

static void load_and_unload_of(const char *size)
{
    cu_handle own;

    if (cu.load(&own, image_of(size)) == CU_OK) {
        loaded++;
        cu.unload(own);
    }
}

static void load_small(void)
{
    load_and_unload_of("1M");
}

static void load_large(void)
{
    load_and_unload_of("4M");
}

/* Code comes and goes beside that, for so many milliseconds. */
static int verb_squeeze(const char *argument)
{
    beside_threads(move, argument, load_small);
    return 0;
}

/* Looks for functions, which may mean that code was loaded: so the account is settled before memory
 * is refused. */
static void *ask(void *unused)
{
    cu_handle function;
    cu_ptr ptr;

    (void)unused;
    cu.set_current(shared);
    while (!enough) {
        if (cu.function(&function, module, "spin") != CU_OK || cu.alloc(&ptr, 24u << 20) == CU_OK)
            wrong = 1;
    }
    return NULL;
}

/* At the limit, so many milliseconds: other threads are refused memory, and no module has room.
 * Says how many were loaded. */
static int verb_cramped(const char *argument)
{
    beside_threads(ask, argument, load_large);
    answered(loaded + wrong);
    return 0;
}

/* A module that the driver is slow with: its text can't be read before the others are done. */
#define PAGE 4096

static char *slow_image;
static _Atomic bool reached, let_go;

static void on_fault(int signal)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    (void)signal;
    reached = true;
    while (!let_go)
        nanosleep(&moment, NULL);
    mprotect(slow_image, PAGE, PROT_READ);
}

static void *load_slowly(void *unused)
{
    cu_handle own;

    (void)unused;
    cu.set_current(shared);
    wrong = cu.load(&own, slow_image);
    return NULL;
}

/* While one thread's module is on its way, this one's is loaded. */
static int verb_beside(const char *argument)
{
    const struct sigaction action = {.sa_handler = on_fault};
    const struct timespec moment = {.tv_nsec = 1000000};
    pthread_t thread;

    (void)argument;
    slow_image = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slow_image == MAP_FAILED)
        return 71;
    strcpy(slow_image, image_of("5M"));
    mprotect(slow_image, PAGE, PROT_NONE);
    sigaction(SIGSEGV, &action, NULL);
    alarm(20); /* should they wait for each other */
    cu.current(&shared);
    pthread_create(&thread, NULL, load_slowly, NULL);
    while (!reached)
        nanosleep(&moment, NULL);
    answered(cu.load(&module, image_of("5M")));
    let_go = true;
    pthread_join(thread, NULL);
    alarm(0);
    answered(wrong);
    return 0;
}

/* Takes and gives back gigabytes, for so many milliseconds. */
static int verb_churn(const char *argument)
{
    struct timespec now, end;
    unsigned seed = (unsigned)getpid();
    cu_ptr held = 0;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)(number(argument) / 1000);
    do {
        if (!held) {
            if (cu.alloc(&held, (uint64_t)(1 + rand_r(&seed) % 4) << 29) != CU_OK)
                held = 0;
        } else {
            cu.free(held);
            held = 0;
        }
        usleep(1000 + (unsigned)rand_r(&seed) % 4000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    if (held)
        cu.free(held);
    return 0;
}

/* Comes back from a checkpoint: to the same devices, or to each other's. */
static int verb_restore(const char *argument)
{
    struct {
        unsigned char from[16], to[16];
    } pairs[2] = {{{1}, {1}}, {{2}, {2}}};
    struct {
        void *pairs;
        unsigned count, rest[13];
    } args = {pairs, 2, {0}};
    typedef int restore_fn(int pid, void *args);
    restore_fn *restore;

    if (strcmp(argument, "swap") == 0) {
        pairs[0].to[0] = 2;
        pairs[1].to[0] = 1;
    }
    restore = (restore_fn *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCheckpointProcessRestore");
    if (!restore)
        return 70;
    answered(restore(getpid(), &args));
    return 0;
}

static int verb_say(const char *argument)
{
    size_t free_bytes = 0, total = 0;
    int code = cu.info(&free_bytes, &total);

    (void)argument;
    printf("{\"pid\": %d, \"codes\": [", getpid());
    for (unsigned i = 0; i < code_count; i++)
        printf("%s%d", i ? ", " : "", codes[i]);
    printf("], \"taken\": %llu, \"info\": [%d, %zu, %zu]}\n", (unsigned long long)taken, code,
           free_bytes, total);
    fflush(stdout);
    code_count = 0;
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

static int verb_sleep(const char *argument)
{
    usleep((useconds_t)number(argument) * 1000);
    return 0;
}

struct verb {
    const char *name;
    int (*run)(const char *argument); /* an exit status that ends the program, or 0 */
};

static const struct verb verbs[] = {
    {"init", verb_init},
    {"create", verb_create},
    {"many", verb_many},
    {"destroy", verb_destroy},
    {"attach", verb_attach},
    {"detach", verb_detach},
    {"retain", verb_retain},
    {"unseen", verb_unseen},
    {"release", verb_release},
    {"reset", verb_reset},
    {"limit", verb_limit},
    {"was", verb_was},
    {"alloc", verb_alloc},
    {"fill", verb_fill},
    {"free", verb_free},
    {"module", verb_module},
    {"unload", verb_unload},
    {"launch", verb_launch},
    {"deep", verb_deep},
    {"library", verb_library},
    {"work", verb_work},
    {"threads", verb_threads},
    {"beside", verb_beside},
    {"squeeze", verb_squeeze},
    {"churn", verb_churn},
    {"say", verb_say},
    {"wait", verb_wait},
    {"sleep", verb_sleep},
    {"cramped", verb_cramped},
    {"kernel", verb_kernel},
    {"spin", verb_spin},
    {"pop", verb_pop},
    {"restore", verb_restore},
    {"again", verb_again},
    {"deep-kernel", verb_deep_kernel},
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

    for (int i = 1; i < argc && status == 0; i++)
        status = run_verb(argv[i]);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A guest that makes the driver take memory for itself: contexts, code, heaps. Told on the command
 * line what to do, one verb after the other; hidden.py composes them and judges.
 *
 *   hidden VERB[=ARGUMENT]...
 *
 * `say` prints a line of JSON: what the verbs since the last one were answered, and what the
 * program is told of its memory. Verbs of contexts, of code and of threads are in files of their
 * own (hidden_verbs.h).
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hidden_verbs.h"

#define MAX_PIECES 65536
#define MAX_CODES 64

struct hidden_driver cu;

static cu_ptr pieces[MAX_PIECES];
static unsigned piece_count;
static uint64_t taken;
static int codes[MAX_CODES];
static unsigned code_count;

void answered(int code)
{
    if (code_count < MAX_CODES)
        codes[code_count++] = code;
}

uint64_t number(const char *text)
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
    {"stopped", verb_stopped},
    {"interrupted", verb_interrupted},
    {"refused", verb_refused},
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

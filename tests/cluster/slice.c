/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a container sees of its share, told as one line of JSON: each card's UUID and memory by CUDA
 * and by NVML (MIG instances there, where it has some), whether libvgpu.so is in this process, and
 * the driver's answers to two allocations on the first card. It includes none of the project's
 * headers and finds the driver as most libraries do.
 *
 *   slice [--hold MIB] [--then MIB] [--stay]
 *
 * --hold takes memory and keeps it, --then tries to take more, --stay waits, with the memory, to be
 * killed.
 */

#include <dlfcn.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../vgpu/cu.h"

#define MIB ((size_t)1 << 20)
#define MAX_CARDS 16
#define UUID_TEXT 64

struct card {
    char uuid[UUID_TEXT];
    size_t bytes;
};

typedef int cu_uuid_fn(unsigned char uuid[16], int device);
typedef int nvml_uuid_fn(cu_handle device, char *uuid, unsigned length);
typedef int nvml_mig_mode_fn(cu_handle device, unsigned *current, unsigned *pending);
typedef int nvml_mig_count_fn(cu_handle device, unsigned *count);
typedef int nvml_mig_handle_fn(cu_handle device, unsigned index, cu_handle *instance);

static void *must_find(void *library, const char *name)
{
    void *found = dlsym(library, name);

    if (!found) {
        fprintf(stderr, "slice: there is no %s\n", name);
        exit(1);
    }
    return found;
}

static void *must_open(const char *name)
{
    void *library = dlopen(name, RTLD_NOW);

    if (!library) {
        fprintf(stderr, "slice: %s\n", dlerror());
        exit(1);
    }
    return library;
}

static void must(int code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "slice: %s: error %d\n", what, code);
    exit(1);
}

static void uuid_text(char text[UUID_TEXT], const unsigned char uuid[16])
{
    int at = snprintf(text, UUID_TEXT, "GPU-");

    for (int i = 0; i < 16; i++)
        at += snprintf(text + at, (size_t)(UUID_TEXT - at), "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static unsigned cuda_cards(void *cuda, struct card cards[])
{
    cu_uuid_fn *get_uuid = must_find(cuda, "cuDeviceGetUuid");
    cu_total_fn *total = must_find(cuda, "cuDeviceTotalMem_v2");
    unsigned char uuid[16];
    int count = 0;

    must(((cu_init_fn *)must_find(cuda, "cuInit"))(0), "cuInit");
    must(((cu_count_fn *)must_find(cuda, "cuDeviceGetCount"))(&count), "cuDeviceGetCount");
    for (int i = 0; i < count && i < MAX_CARDS; i++) {
        must(get_uuid(uuid, i), "cuDeviceGetUuid");
        uuid_text(cards[i].uuid, uuid);
        must(total(&cards[i].bytes, i), "cuDeviceTotalMem");
    }
    return (unsigned)count;
}

static void read_nvml_card(void *nvml, cu_handle handle, struct card *card)
{
    struct nvml_memory memory;

    must(((nvml_uuid_fn *)must_find(nvml, "nvmlDeviceGetUUID"))(handle, card->uuid, UUID_TEXT),
         "nvmlDeviceGetUUID");
    must(((nvml_memory_fn *)must_find(nvml, "nvmlDeviceGetMemoryInfo"))(handle, &memory),
         "nvmlDeviceGetMemoryInfo");
    card->bytes = memory.total;
}

/* A card's MIG instances, as many as are told of; 0: it is none that is divided. */
static unsigned nvml_instances(void *nvml, cu_handle parent, struct card cards[], unsigned room)
{
    nvml_mig_mode_fn *get_mode = must_find(nvml, "nvmlDeviceGetMigMode");
    nvml_mig_handle_fn *get_handle = must_find(nvml, "nvmlDeviceGetMigDeviceHandleByIndex");
    unsigned current = 0, pending, most = 0, found = 0;
    cu_handle handle;

    if (get_mode(parent, &current, &pending) || !current)
        return 0;
    must(((nvml_mig_count_fn *)must_find(nvml, "nvmlDeviceGetMaxMigDeviceCount"))(parent, &most),
         "nvmlDeviceGetMaxMigDeviceCount");
    for (unsigned i = 0; i < most && found < room; i++)
        if (get_handle(parent, i, &handle) == 0)
            read_nvml_card(nvml, handle, &cards[found++]);
    return found;
}

/* Cards, and in the place of one that is divided its instances, as nvidia-smi -L lists them. */
static unsigned nvml_cards(void *nvml, struct card cards[])
{
    nvml_handle_fn *get_handle = must_find(nvml, "nvmlDeviceGetHandleByIndex_v2");
    unsigned count = 0, listed = 0, instances;
    cu_handle handle;

    must(((nvml_void_fn *)must_find(nvml, "nvmlInit_v2"))(), "nvmlInit");
    must(((nvml_count_fn *)must_find(nvml, "nvmlDeviceGetCount_v2"))(&count), "nvmlDeviceGetCount");
    for (unsigned i = 0; i < count && listed < MAX_CARDS; i++) {
        must(get_handle(i, &handle), "nvmlDeviceGetHandleByIndex");
        instances = nvml_instances(nvml, handle, &cards[listed], MAX_CARDS - listed);
        if (!instances)
            read_nvml_card(nvml, handle, &cards[listed]);
        listed += instances ? instances : 1;
    }
    return listed;
}

static void print_cards(const char *name, const struct card cards[], unsigned count)
{
    printf("\"%s\": [", name);
    for (unsigned i = 0; i < count && i < MAX_CARDS; i++)
        printf("%s{\"uuid\": \"%s\", \"bytes\": %zu}", i ? ", " : "", cards[i].uuid,
               cards[i].bytes);
    printf("], ");
}

static bool is_preloaded(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;

    while (maps && fgets(line, sizeof(line), maps))
        found = found || strstr(line, "libvgpu.so");
    if (maps)
        fclose(maps);
    return found;
}

/* The driver's answer, or -1 where nothing was asked for. Where a refusal does not clear the
 * output, as a real driver does, it is -2. */
static int take(void *cuda, size_t mib)
{
    cu_ptr ptr = 0x5a5a5a5a;
    int code;

    if (!mib)
        return -1;
    code = ((cu_alloc_fn *)must_find(cuda, "cuMemAlloc_v2"))(&ptr, mib * MIB);
    return code && ptr ? -2 : code;
}

static void make_context(void *cuda)
{
    cu_handle context;

    must(((cu_retain_fn *)must_find(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0), "a context");
    must(((cu_ctx_fn *)must_find(cuda, "cuCtxSetCurrent"))(context), "a context");
}

/* The first process of a container ignores what it does not handle. */
static void leave(int number)
{
    (void)number;
    _exit(0);
}

static size_t number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*end || end == text) {
        fprintf(stderr, "slice: \"%s\" is not a number of MiB\n", text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"hold", required_argument, NULL, 'h'},
                                            {"then", required_argument, NULL, 't'},
                                            {"stay", no_argument, NULL, 's'},
                                            {0}};
    struct card by_cuda[MAX_CARDS], by_nvml[MAX_CARDS];
    size_t hold = 0, then = 0;
    bool stay = false;
    void *cuda;
    int option, held;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h')
            hold = number(optarg);
        else if (option == 't')
            then = number(optarg);
        else if (option == 's')
            stay = true;
        else
            return 2;
    }
    signal(SIGTERM, leave);
    cuda = must_open("libcuda.so.1");
    printf("{");
    print_cards("cuda", by_cuda, cuda_cards(cuda, by_cuda));
    print_cards("nvml", by_nvml, nvml_cards(must_open("libnvidia-ml.so.1"), by_nvml));
    if (hold || then)
        make_context(cuda);
    held = take(cuda, hold);
    printf("\"preloaded\": %s, \"hold\": %d, \"then\": %d}\n", is_preloaded() ? "true" : "false",
           held, take(cuda, then));
    fflush(stdout);
    while (stay)
        pause();
    return 0;
}

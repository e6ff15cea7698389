/* SPDX-License-Identifier: Apache-2.0 */

/* clang-format off */
/*
 * Calls whatever entry point of the driver or of NVML it is told to, with whatever arguments, and
 * says what came of it. anything.py draws the calls, and compares what a bare program is answered
 * with what one under a limit is. This one knows no prototypes: an argument is a word.
 *
 * A line of standard input is a command:
 *
 *   call THREAD WAY NAME ARGUMENT...   in one of its threads, looked up in that way: l linked, s
 *                                      dlsym, d dlsym(RTLD_DEFAULT), p cuGetProcAddress, n dlsym in
 *                                      NVML
 *   end THREAD                the thread ends; the next call makes another one
 *   text NUMBER HEX           these bytes, and a NUL, are text NUMBER from now on
 *   dead SLOT COUNT           nobody has the handles in these slots any more
 *   clear SLOT                the slot is NULL
 *   close SLOT                closes the file descriptor in a slot
 *   borrow SLOT PID FD        gets another process' descriptor
 *   value SLOT                says what is in a slot
 *   blob NUMBER [HEX]         says the 64 bytes of that number; or makes them these
 *   fork COUNT                the next COUNT commands are a child's, which then exits
 *   race SEED COUNT LIMIT     threads that take, launch and give back, all at once
 *   go                        answer all that
 *
 * An ARGUMENT is
 *
 *   iNUMBER                 that number (-1 and 0x10 as well)
 *   hSLOT[+NUMBER]          the word in a slot, and so much more
 *   gSLOT                   the word in a slot, which is NULL from then on
 *   nSLOT                   points to a word; what the driver puts there on success is the slot's
 *   wSLOT                   as n, for a word of 32 bits
 *   oBYTES                  points to so many poisoned bytes, which are said
 *   vBYTES:NUMBER           as o, of which the first word is this number
 *   x                       points to a word: the slot is said that has the same
 *   s                       points to a pointer to text, which is said
 *   f                       points to a pointer to a function, whose name is said
 *   uBYTES[:NUMBER]         points to so many bytes before a page that can't be written, the first
 *                           four of which are this number
 *   tNUMBER                 points to text NUMBER
 *   kNS[,FLAG]              the parameters of a kernel that takes so long
 *   eNS[,FLAG]              the same as a buffer, for "extra"
 *   cGX,GY,GZ,BX,SLOT       points to a launch configuration, for the stream in the slot
 *   yNUMBER                 points to 64 bytes; what the driver puts there is blob NUMBER
 *   bNUMBER                 blob NUMBER itself, between the pointer and the number of cuIpcOpen*
 *   aSLOT,DEVICE,BYTES      points to the parameters of a graph's node that allocates; the address
 *                           that the driver puts there on success is the slot's
 *   ASLOT,DEVICE,BYTES      the same for a node of any type
 *   CSLOT,HANDLE,TYPE,COUNT points to the parameters of a graph's conditional node: the condition
 *                           that is in slot HANDLE, so many bodies; the first one is the slot's
 *   dSLOT[,SLOT...]         points to a list of the words in slots
 *   qSLOT,GX,NS             points to the parameters of a graph's kernel: function, blocks, length
 *   mSLOT,SLOT,NS[;...]     points to a list of launches on several devices: function, stream
 *
 * The answer to a call is the result and a word for each of n, w, a, A, C, o, v, x, s, f. Slots are
 * in groups of 32, one for each kind of handle; slot 0 is NULL. The result of a call that faults at
 * memory which can't be written (u) is -11, and the program goes on.
 */
/* clang-format on */

#include "anything.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cu.h"

#define POISON UINT64_C(0xa5a5a5a5a5a5a5a5)
#define DEAD UINT64_C(0x6b6b6b6b6b6b0000) /* nobody's handle */

enum {
    ARGUMENTS = 12,
    SLOTS = 1024,
    GROUP = 32, /* slots of one kind of handle */
    TEXTS = 192,
    SCRATCH = 4096, /* bytes behind one argument */
    ANSWER = 65536,
    LINE_MAX_LEN = 4096,
    LISTED = 16, /* launches on several devices */
    BLOBS = 64,
    BLOB_SIZE = 64,
};

struct blob {
    char bytes[BLOB_SIZE];
};

typedef int blob_fn(uint64_t, struct blob, uint64_t);

struct launch_config {
    unsigned grid[3], block[3], shared;
    void *stream;
    void *attributes;
    unsigned attribute_count;
};

struct launch_params {
    void *function;
    unsigned grid[3], block[3], shared;
    void *stream;
    void **params;
};

/* CUDA_KERNEL_NODE_PARAMS of CUDA 12. */
struct kernel_node {
    void *function;
    unsigned grid[3], block[3], shared;
    void **params;
    void **extra;
    void *kernel, *context;
};

/* CUDA_MEM_ALLOC_NODE_PARAMS, and CUgraphNodeParams with it. */
struct alloc_node {
    int kind, handle_types, place, device;
    unsigned char rest[72];
    void *accesses;
    uint64_t access_count, bytes, address;
};

struct conditional_node {
    uint64_t handle;
    int type;
    unsigned count;
    void **bodies, *context;
};

struct any_node {
    int type, reserved[3];
    union {
        struct alloc_node alloc;
        struct conditional_node conditional;
        unsigned char bytes[240];
    };
};

_Static_assert(sizeof(struct any_node) == 256 && sizeof(struct alloc_node) == 120, "the driver's");

struct argument {
    char kind;
    unsigned slot;
    size_t bytes; /* that are said */
    uint64_t word;
    union {
        _Alignas(64) unsigned char bytes[SCRATCH];
        uint64_t word;
        uint32_t half;
        const char *text;
        void *function;
        struct launch_config config;
        struct alloc_node alloc;
        struct any_node any;
        uint64_t list[LISTED];
        struct {
            struct kernel_node node;
            uint64_t ns;
            void *params[2];
        } kernel;
        struct {
            uint64_t values[2];
            size_t size;
            void *list[5];
        } parameters;
        struct {
            struct launch_params launches[LISTED];
            uint64_t ns[LISTED];
            void *params[LISTED][2];
        } many;
    } at;
};

static uint64_t slots[SLOTS];
static char *texts[TEXTS];
static struct blob blobs[BLOBS];
static char answers[ANSWER];
static size_t answered;

__attribute__((format(printf, 1, 2))) static void answer(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    answered += (size_t)vsnprintf(answers + answered, sizeof(answers) - answered, fmt, args);
    va_end(args);
    if (answered > sizeof(answers) - 16384) {
        (void)!write(STDOUT_FILENO, answers, answered);
        answered = 0;
    }
}

/* Arguments */

static uint64_t slot_word(const char *text, char **end)
{
    unsigned long slot = strtoul(text, end, 10);

    return slots[slot % SLOTS];
}

static void prepare_parameters(struct argument *a, const char *text)
{
    char *rest;

    a->at.parameters.values[0] = strtoull(text, &rest, 0);
    a->at.parameters.values[1] = *rest == ',' ? strtoull(rest + 1, NULL, 0) : 0;
    a->at.parameters.size = sizeof(a->at.parameters.values);
    if (a->kind == 'k') {
        a->at.parameters.list[0] = &a->at.parameters.values[0];
        a->at.parameters.list[1] = &a->at.parameters.values[1];
    } else {
        a->at.parameters.list[0] = (void *)1;
        a->at.parameters.list[1] = a->at.parameters.values;
        a->at.parameters.list[2] = (void *)2;
        a->at.parameters.list[3] = &a->at.parameters.size;
        a->at.parameters.list[4] = NULL;
    }
    a->word = (uintptr_t)a->at.parameters.list;
}

static void prepare_config(struct argument *a, const char *text)
{
    struct launch_config *config = &a->at.config;
    char *rest = (char *)text;

    memset(config, 0, sizeof(*config));
    for (unsigned i = 0; i < 3; i++)
        config->grid[i] = (unsigned)strtoul(rest, &rest, 0), rest += *rest == ',';
    config->block[0] = (unsigned)strtoul(rest, &rest, 0), rest += *rest == ',';
    config->block[1] = config->block[2] = 1;
    config->stream = (void *)(uintptr_t)slot_word(rest, &rest);
    a->word = (uintptr_t)config;
}

static void prepare_many(struct argument *a, const char *text)
{
    char *rest = (char *)text;

    for (unsigned i = 0; i < LISTED && *rest; i++) {
        struct launch_params *launch = &a->at.many.launches[i];

        memset(launch, 0, sizeof(*launch));
        for (unsigned k = 0; k < 3; k++)
            launch->grid[k] = launch->block[k] = 1;
        launch->function = (void *)(uintptr_t)slot_word(rest, &rest), rest += *rest == ',';
        launch->stream = (void *)(uintptr_t)slot_word(rest, &rest), rest += *rest == ',';
        a->at.many.ns[i] = strtoull(rest, &rest, 0), rest += *rest == ';';
        a->at.many.params[i][0] = &a->at.many.ns[i];
        a->at.many.params[i][1] = NULL;
        launch->params = a->at.many.params[i];
    }
    a->word = (uintptr_t)a->at.many.launches;
}

static void prepare_alloc(struct argument *a, const char *text)
{
    struct alloc_node *node = a->kind == 'a' ? &a->at.alloc : &a->at.any.alloc;
    char *rest;

    memset(a->at.bytes, 0, sizeof(a->at.any));
    if (a->kind == 'A')
        a->at.any.type = 10;
    a->slot = (unsigned)strtoul(text, &rest, 10) % SLOTS;
    rest += *rest == ',';
    node->kind = node->place = 1;
    node->device = (int)strtol(rest, &rest, 10);
    rest += *rest == ',';
    node->bytes = strtoull(rest, &rest, 0);
    if (*rest == ',') /* the type of the place, and of the memory */
        node->place = (int)strtol(rest + 1, &rest, 10);
    if (*rest == ',')
        node->kind = (int)strtol(rest + 1, &rest, 10);
    node->address = POISON;
    a->word = (uintptr_t)a->at.bytes;
}

static void prepare_conditional(struct argument *a, const char *text)
{
    struct conditional_node *node = &a->at.any.conditional;
    char *rest;

    memset(a->at.bytes, 0, sizeof(a->at.any));
    a->at.any.type = 13;
    a->slot = (unsigned)strtoul(text, &rest, 10) % SLOTS;
    rest += *rest == ',';
    node->handle = slot_word(rest, &rest);
    rest += *rest == ',';
    node->type = (int)strtol(rest, &rest, 10);
    rest += *rest == ',';
    node->count = (unsigned)strtoul(rest, &rest, 10);
    a->word = (uintptr_t)a->at.bytes;
}

static void prepare_list(struct argument *a, const char *text)
{
    char *rest = (char *)text;

    for (unsigned i = 0; i < LISTED && *rest; i++) {
        a->at.list[i] = slot_word(rest, &rest);
        rest += *rest == ',';
    }
    a->word = (uintptr_t)a->at.list;
}

static void prepare_kernel(struct argument *a, const char *text)
{
    struct kernel_node *node = &a->at.kernel.node;
    char *rest;

    memset(node, 0, sizeof(*node));
    node->function = (void *)(uintptr_t)slot_word(text, &rest);
    rest += *rest == ',';
    node->grid[0] = (unsigned)strtoul(rest, &rest, 0);
    node->grid[1] = node->grid[2] = node->block[1] = node->block[2] = 1;
    node->block[0] = 32;
    rest += *rest == ',';
    a->at.kernel.ns = strtoull(rest, &rest, 0);
    a->at.kernel.params[0] = &a->at.kernel.ns;
    a->at.kernel.params[1] = NULL;
    node->params = a->at.kernel.params;
    a->word = (uintptr_t)node;
}

static void prepare_buffer(struct argument *a, const char *text)
{
    char *rest = (char *)text;

    a->bytes = a->kind == 'o' || a->kind == 'v' ? strtoul(text, &rest, 10) : 8;
    if (a->kind == 'y' || a->kind == 'b') {
        a->bytes = BLOB_SIZE;
        a->slot = (unsigned)strtoul(text, NULL, 10) % BLOBS;
    }
    if (a->bytes > SCRATCH)
        a->bytes = SCRATCH;
    if (a->kind == 'n' || a->kind == 'w')
        a->slot = (unsigned)strtoul(text, NULL, 10) % SLOTS;
    memset(a->at.bytes, 0xa5, a->bytes > 8 ? a->bytes : 8);
    if (a->kind == 'v' && *rest == ':')
        a->at.word = strtoull(rest + 1, NULL, 0);
    a->word = (uintptr_t)a->at.bytes;
}

/* So many bytes before a page that can't be written. */
static uint64_t unwritable(size_t bytes_before)
{
    static char *pages;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (!pages) {
        pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        (void)mprotect(pages + page, page, PROT_READ);
    }
    return (uintptr_t)(pages + page - bytes_before);
}

static void prepare(struct argument *a, const char *text)
{
    char *rest;

    a->kind = *text++;
    a->bytes = 0;
    switch (a->kind) {
    case 'i':
        a->word = *text == '-' ? (uint64_t)strtoll(text, NULL, 0) : strtoull(text, NULL, 0);
        break;
    case 'h':
        a->word = slot_word(text, &rest);
        if (*rest == '+')
            a->word += strtoull(rest + 1, NULL, 0);
        break;
    case 'g':
        a->word = slot_word(text, &rest);
        slots[strtoul(text, NULL, 10) % SLOTS] = 0;
        break;
    case 'u':
        a->word = unwritable(strtoul(text, &rest, 10));
        if (*rest == ':')
            *(unsigned *)(uintptr_t)a->word = (unsigned)strtoul(rest + 1, NULL, 10);
        break;
    case 't':
        a->word = (uintptr_t)texts[strtoul(text, NULL, 10) % TEXTS];
        break;
    case 'k':
    case 'e':
        prepare_parameters(a, text);
        break;
    case 'c':
        prepare_config(a, text);
        break;
    case 'm':
        prepare_many(a, text);
        break;
    case 'a':
    case 'A':
        prepare_alloc(a, text);
        break;
    case 'C':
        prepare_conditional(a, text);
        break;
    case 'd':
        prepare_list(a, text);
        break;
    case 'q':
        prepare_kernel(a, text);
        break;
    default:
        prepare_buffer(a, text);
    }
}

/* Groups of what is handed out more than once: contexts, functions, kernels, NVML's devices, memory
 * that is mapped, pools, what others share, arrays. */
static bool may_repeat(unsigned group)
{
    return group == 1 || group == 5 || group == 7 || group == 13 || group == 14 || group == 17 ||
           group == 18 || group == 19;
}

/* A graph's handle is followed, and a node's. */
static void kill_slot(unsigned slot)
{
    slots[slot] = slot / GROUP == 8 || slot / GROUP == 9 || slot / GROUP == 21 ? 0 : DEAD;
}

/*
 * The value of a handle is the driver's affair: said is whether another slot of its kind has the
 * same. Where that can't be, the other one is dead, its memory used again, and is no handle any
 * more.
 */
static void say_handle(struct argument *a, bool success)
{
    unsigned group = a->slot / GROUP;
    uint64_t word = a->kind == 'w' ? a->at.half : a->at.word;

    if (word == (a->kind == 'w' ? (uint32_t)POISON : POISON)) {
        answer(" kept");
        return;
    }
    if (!success || !word) {
        answer(word ? " touched" : " null");
        return;
    }
    for (unsigned i = group * GROUP; i < (group + 1) * GROUP; i++) {
        if (slots[i] != word || i == a->slot)
            continue;
        if (may_repeat(group)) {
            answer(" s%u", i);
            slots[a->slot] = word;
            return;
        }
        kill_slot(i);
    }
    slots[a->slot] = word;
    answer(" new");
}

static void say_bytes(const struct argument *a)
{
    bool kept = true;

    for (size_t i = a->kind == 'v' ? 8 : 0; i < a->bytes; i++)
        kept = kept && a->at.bytes[i] == 0xa5;
    if (kept && a->kind == 'o') {
        answer(" kept");
        return;
    }
    answer(" ");
    for (size_t i = 0; i < a->bytes; i++)
        answer("%02x", a->at.bytes[i]);
}

/* Of an output that is a handle the caller has already, or has not. */
static void say_known(const struct argument *a)
{
    if (a->at.word == POISON || !a->at.word) {
        answer(a->at.word ? " kept" : " null");
        return;
    }
    for (unsigned i = 1; i < SLOTS; i++) {
        if (slots[i] == a->at.word) {
            answer(" s%u", i);
            return;
        }
    }
    answer(" stranger");
}

/* Its bytes are the driver's affair. */
static void say_blob(const struct argument *a, bool success)
{
    if (success)
        memcpy(blobs[a->slot].bytes, a->at.bytes, BLOB_SIZE);
    answer(success ? " new" : a->at.word == POISON ? " kept" : " touched");
}

static void say_output(struct argument *a, bool success)
{
    switch (a->kind) {
    case 'a':
    case 'A':
        a->at.word = a->kind == 'a' ? a->at.alloc.address : a->at.any.alloc.address;
        say_handle(a, success);
        break;
    case 'C':
        a->at.word =
            a->at.any.conditional.bodies ? (uintptr_t)a->at.any.conditional.bodies[0] : POISON;
        say_handle(a, success);
        break;
    case 'y':
        say_blob(a, success);
        break;
    case 'n':
    case 'w':
        say_handle(a, success);
        break;
    case 'o':
    case 'v':
        say_bytes(a);
        break;
    case 'x':
        say_known(a);
        break;
    case 's':
        answer(" %s", a->at.word == POISON ? "kept" : a->at.text ? a->at.text : "null");
        break;
    case 'f':
        answer(" %s", a->at.word == POISON ? "kept" : entries_name_of(a->at.function));
        break;
    default:
        break;
    }
}

static int invoke(any_fn *function, const struct argument *a)
{
    if (a[1].kind == 'b')
        return ((blob_fn *)(void *)function)(a[0].word, blobs[a[1].slot], a[2].word);
    return function(a[0].word, a[1].word, a[2].word, a[3].word, a[4].word, a[5].word, a[6].word,
                    a[7].word, a[8].word, a[9].word, a[10].word, a[11].word);
}

static sigjmp_buf before_fault;

static void go_back(int number)
{
    (void)number;
    siglongjmp(before_fault, 1);
}

/* The program goes on after a fault, as one that catches it. */
static int invoke_past_fault(any_fn *function, const struct argument *a)
{
    struct sigaction action = {.sa_handler = go_back}, before;
    volatile int result = -SIGSEGV;

    (void)sigaction(SIGSEGV, &action, &before);
    if (sigsetjmp(before_fault, 1) == 0)
        result = invoke(function, a);
    (void)sigaction(SIGSEGV, &before, NULL);
    return result;
}

static void call(char *line)
{
    static struct argument arguments[ARGUMENTS];
    char *rest, *way = strtok_r(line, " ", &rest), *name = strtok_r(NULL, " ", &rest), *word;
    any_fn *function = entries_look_up(way[0], name);
    bool may_fault = false;
    unsigned count = 0;
    int result;

    if (!function) {
        answer("absent\n");
        return;
    }
    for (unsigned i = 0; i < ARGUMENTS; i++)
        arguments[i].word = 0, arguments[i].kind = 0;
    while (count < ARGUMENTS && (word = strtok_r(NULL, " ", &rest)))
        prepare(&arguments[count++], word);
    for (unsigned i = 0; i < count; i++)
        may_fault |= arguments[i].kind == 'u';
    result = may_fault ? invoke_past_fault(function, arguments) : invoke(function, arguments);
    answer("%d", result);
    for (unsigned i = 0; i < count; i++)
        say_output(&arguments[i], result == CU_OK);
    answer("\n");
}

/* Threads: each does what it is told, one at a time. */

struct worker {
    pthread_t thread;
    bool running;
    char *line; /* NULL: end */
    sem_t told, done;
};

static struct worker workers[THREADS];

static void *work(void *argument)
{
    struct worker *w = argument;

    for (;;) {
        (void)sem_wait(&w->told);
        if (!w->line)
            return NULL;
        call(w->line);
        (void)sem_post(&w->done);
    }
}

static void call_in(unsigned number, char *line)
{
    struct worker *w = &workers[number % THREADS];

    if (number == 0) {
        call(line);
        return;
    }
    if (!w->running) {
        (void)sem_init(&w->told, 0, 0);
        (void)sem_init(&w->done, 0, 0);
        w->running = pthread_create(&w->thread, NULL, work, w) == 0;
    }
    w->line = line;
    (void)sem_post(&w->told);
    (void)sem_wait(&w->done);
}

static void end_thread(unsigned number)
{
    struct worker *w = &workers[number % THREADS];

    if (!w->running)
        return;
    w->line = NULL;
    (void)sem_post(&w->told);
    (void)pthread_join(w->thread, NULL);
    w->running = false;
}

/* Commands */

static void set_text(unsigned number, const char *hex)
{
    size_t len = strlen(hex) / 2;
    char *text = malloc(len + 1);

    for (size_t i = 0; i < len; i++) {
        unsigned byte = 0;

        (void)sscanf(hex + 2 * i, "%2x", &byte);
        text[i] = (char)byte;
    }
    text[len] = '\0';
    free(texts[number % TEXTS]);
    texts[number % TEXTS] = text;
}

static void say_all(void)
{
    size_t from = 0;

    while (from < answered) {
        ssize_t n = write(STDOUT_FILENO, answers + from, answered - from);

        if (n <= 0)
            _exit(3);
        from += (size_t)n;
    }
    answered = 0;
}

static char *read_line(char *line)
{
    if (!fgets(line, LINE_MAX_LEN, stdin))
        exit(0);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

static void command(char *line);

enum {
    CHILD_MAX = 16, /* commands of a child */
};

/* What comes next is a child's affair; the parent leaves it out. */
/* AddressSanitizer's allocator (gcc 12) does not look after its locks where a process forks: what
 * another thread held then, as the library's own where it has just begun, nobody lets go of in the
 * child. */
static void let_others_rest(void)
{
#ifdef __SANITIZE_ADDRESS__
    enum { REST_US = 100000 };

    (void)usleep(REST_US);
#endif
}

static void fork_for(unsigned count)
{
    static char lines[CHILD_MAX][LINE_MAX_LEN];
    int status = 0;
    pid_t child;

    count = count < CHILD_MAX ? count : CHILD_MAX;
    for (unsigned i = 0; i < count; i++)
        (void)read_line(lines[i]);
    say_all();
    let_others_rest();
    child = fork();
    for (unsigned i = 0; child == 0 && i < count; i++)
        command(lines[i]);
    if (child == 0) {
        say_all();
        exit(0);
    }
    (void)waitpid(child, &status, 0);
    answer("child %d\n", status);
}

static void close_slot(unsigned slot)
{
    if (slots[slot] > 2 && slots[slot] < 4096)
        (void)close((int)slots[slot]);
    slots[slot] = 0;
}

/* Another process' descriptor, as PyTorch gets one. */
static void borrow(unsigned slot, pid_t pid, int fd)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int own = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, fd, 0);

    slots[slot] = (uint64_t)own;
    (void)close(process);
    answer("borrowed %d\n", own >= 0);
}

static void blob(unsigned number, const char *hex)
{
    while (*hex == ' ')
        hex++;
    for (unsigned i = 0; *hex && i < BLOB_SIZE; i++) {
        unsigned byte = 0;

        (void)sscanf(hex + (size_t)2 * i, "%2x", &byte);
        blobs[number].bytes[i] = (char)byte;
    }
    for (unsigned i = 0; i < BLOB_SIZE; i++)
        answer("%02x", (unsigned char)blobs[number].bytes[i]);
    answer("\n");
}

static void say_race(struct race_result result)
{
    answer("race %u %u %u\n", result.granted, result.refused, result.strange);
}

static void command(char *line)
{
    char *rest = strchr(line, ' ');
    unsigned number = 0;

    if (rest)
        number = (unsigned)strtoul(rest + 1, &rest, 10);
    if (strncmp(line, "call ", 5) == 0) {
        call_in(number, rest + 1);
    } else if (strncmp(line, "end ", 4) == 0) {
        end_thread(number);
    } else if (strncmp(line, "text ", 5) == 0) {
        set_text(number, rest + 1);
    } else if (strncmp(line, "dead ", 5) == 0) {
        for (unsigned i = 0, count = (unsigned)strtoul(rest, NULL, 10); i < count; i++)
            kill_slot((number + i) % SLOTS);
    } else if (strncmp(line, "clear ", 6) == 0) {
        slots[number % SLOTS] = 0;
    } else if (strncmp(line, "close ", 6) == 0) {
        close_slot(number % SLOTS);
    } else if (strncmp(line, "borrow ", 7) == 0) {
        pid_t pid = (pid_t)strtol(rest, &rest, 10);

        borrow(number % SLOTS, pid, (int)strtol(rest, NULL, 10));
    } else if (strncmp(line, "blob ", 5) == 0) {
        blob(number % BLOBS, rest);
    } else if (strncmp(line, "value ", 6) == 0) {
        answer("%llu\n", (unsigned long long)slots[number % SLOTS]);
    } else if (strncmp(line, "fork ", 5) == 0) {
        fork_for(number);
    } else if (strncmp(line, "race ", 5) == 0) {
        unsigned count = (unsigned)strtoul(rest, &rest, 10);

        say_race(race(number, count, strtoull(rest, NULL, 10)));
    } else if (strcmp(line, "go") == 0) {
        answer(".\n");
        say_all();
    }
}

int main(void)
{
    char line[LINE_MAX_LEN];

    if (!entries_open()) {
        (void)fprintf(stderr, "anything: %s\n", dlerror());
        return 1;
    }
    slots[0] = 0;
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    for (;;)
        command(read_line(line));
}

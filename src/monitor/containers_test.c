/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/containers.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/check_lease.h"
#include "base/clock.h"
#include "base/util.h"
#include "region/region.h"

#define REGION "x.cache"

static char hook[64];
static struct containers *containers;
static const struct container_use *uses;

static int set_up(void **state)
{
    char path[128];

    (void)state;
    COPY_TEXT(hook, "/tmp/hami-containers-XXXXXX");
    assert_non_null(mkdtemp(hook));
    (void)snprintf(path, sizeof(path), "%s/containers", hook);
    assert_int_equal(mkdir(path, 0755), 0);
    containers = containers_new(hook);
    return containers ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    containers_free(containers);
    return nftw(hook, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *path_of(const char *folder, const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof(path), "%s/containers/%s%s%s", hook, folder, name[0] ? "/" : "",
                   name);
    return path;
}

static void make_folder(const char *folder)
{
    assert_int_equal(mkdir(path_of(folder, ""), 0755), 0);
}

static void write_limits(const char *folder, const char *text)
{
    FILE *file = fopen(path_of(folder, "limits"), "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void make_container(const char *folder, const char *limits)
{
    make_folder(folder);
    write_limits(folder, limits);
}

static int look_at_ms(int64_t ms)
{
    struct containers_look look = {.now_ns = ms * NS_PER_MS};
    int r = containers_look(containers, &look, NULL);

    uses = look.uses;
    return r < 0 ? r : (int)look.use_count;
}

static const struct container_use *only_use(int64_t ms)
{
    assert_int_equal(look_at_ms(ms), 1);
    return &uses[0];
}

#define ONE_CARD                                                                                   \
    "NVIDIA_VISIBLE_DEVICES=GPU-a\nCUDA_DEVICE_MEMORY_LIMIT_0=1000\nCUDA_DEVICE_SM_LIMIT_0=30\n"   \
    "CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/" REGION "\n"

static const struct container_use *find_use(int count, const char *uid, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(uses[i].pod_uid, uid) == 0 && strcmp(uses[i].name, name) == 0)
            return &uses[i];
    }
    return NULL;
}

static void a_folder_names_its_pod_and_container(void **state)
{
    char longest[CONTAINER_UID_SIZE + 8], too_long[CONTAINER_UID_SIZE + 8];
    int count;

    (void)state;
    memset(longest, 'u', sizeof(longest));
    (void)strcpy(longest + CONTAINER_UID_SIZE - 1, "_c");
    memset(too_long, 'v', sizeof(too_long));
    (void)strcpy(too_long + CONTAINER_UID_SIZE, "_c");
    make_container("uid-1_main", ONE_CARD);
    make_container("uid-1_a_b", ONE_CARD);
    make_container(longest, ONE_CARD);
    make_container(too_long, ONE_CARD);
    make_container("_main", ONE_CARD);
    make_container("uid-2", ONE_CARD);
    make_container("uid-3_", ONE_CARD);
    make_container(".uid-4_main", ONE_CARD);
    make_folder("uid-5_empty");

    count = look_at_ms(1);
    assert_int_equal(count, 3);
    assert_non_null(find_use(count, "uid-1", "main"));
    assert_non_null(find_use(count, "uid-1", "a_b"));
    longest[CONTAINER_UID_SIZE - 1] = '\0';
    assert_non_null(find_use(count, longest, "c"));
}

static void without_containers_there_is_nothing_to_tell(void **state)
{
    (void)state;
    assert_int_equal(look_at_ms(1), 0);
    assert_int_equal(rmdir(path_of("", "")), 0);
    assert_int_equal(look_at_ms(2), 0);
}

static void a_folder_that_cant_be_read_is_an_error(void **state)
{
    struct containers_look look = {.now_ns = 1};
    struct error err = ERROR_INIT;
    char path[128];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/containers", hook);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0644)), 0);
    assert_int_equal(containers_look(containers, &look, &err), -ENOTDIR);
    assert_non_null(strstr(err.text, path));
}

static void limits_are_those_of_the_file_as_it_is_now(void **state)
{
    struct timespec same[2];
    struct stat st;
    char from[512];

    (void)state;
    make_container("uid-1_main", ONE_CARD);
    assert_int_equal(only_use(1)->card_count, 1);
    assert_string_equal(uses[0].cards[0].uuid, "GPU-a");
    assert_int_equal(uses[0].cards[0].index, 0);
    assert_int_equal(uses[0].cards[0].limit_bytes, 1000);
    assert_int_equal(uses[0].cards[0].cores, 30);
    assert_false(uses[0].has_region);

    /* Replaced by rename, with the same time. */
    assert_int_equal(stat(path_of("uid-1_main", "limits"), &st), 0);
    same[0] = same[1] = st.st_mtim;
    make_container("uid-9_other",
                   "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b\nCUDA_DEVICE_MEMORY_LIMIT_0=2000\n"
                   "CUDA_DEVICE_MEMORY_LIMIT_1=3000\nCUDA_DEVICE_SM_LIMIT_1=40\n");
    COPY_TEXT(from, path_of("uid-9_other", "limits"));
    assert_int_equal(rename(from, path_of("uid-1_main", "limits")), 0);
    assert_int_equal(rmdir(path_of("uid-9_other", "")), 0);
    assert_int_equal(utimensat(AT_FDCWD, path_of("uid-1_main", "limits"), same, 0), 0);
    assert_int_equal(only_use(1000)->card_count, 1); /* not looked for yet */
    assert_int_equal(only_use(1001)->card_count, 2);
    assert_int_equal(uses[0].cards[0].limit_bytes, 2000);
    assert_string_equal(uses[0].cards[1].uuid, "GPU-b");
    assert_int_equal(uses[0].cards[1].index, 1);
    assert_int_equal(uses[0].cards[1].limit_bytes, 3000);
    assert_int_equal(uses[0].cards[1].cores, 40);

    /* Written in place, a second or a nanosecond later. */
    for (int i = 0; i < 2; i++) {
        write_limits("uid-1_main", i ? "NVIDIA_VISIBLE_DEVICES=GPU-c\n" : ONE_CARD);
        same[1].tv_sec += !i;
        same[1].tv_nsec = (same[1].tv_nsec + i) % NS_PER_S;
        assert_int_equal(utimensat(AT_FDCWD, path_of("uid-1_main", "limits"), same, 0), 0);
        assert_string_equal(only_use(3000 + 1000 * i)->cards[0].uuid, i ? "GPU-c" : "GPU-a");
    }

    /* A share that is not enforced, and one beyond which idle time may be used. */
    write_limits("uid-1_main", ONE_CARD "GPU_CORE_UTILIZATION_POLICY=disable\n");
    same[1].tv_sec++;
    assert_int_equal(utimensat(AT_FDCWD, path_of("uid-1_main", "limits"), same, 0), 0);
    assert_int_equal(only_use(5000)->cards[0].cores, 0);
    assert_false(uses[0].borrows);
    write_limits("uid-1_main", ONE_CARD "HAMI_CARDS=/x\n");
    same[1].tv_sec++;
    assert_int_equal(utimensat(AT_FDCWD, path_of("uid-1_main", "limits"), same, 0), 0);
    assert_int_equal(only_use(6000)->cards[0].cores, 30);
    assert_true(uses[0].borrows);

    /* An empty file limits nothing. */
    write_limits("uid-1_main", "");
    same[1].tv_sec++;
    assert_int_equal(utimensat(AT_FDCWD, path_of("uid-1_main", "limits"), same, 0), 0);
    assert_int_equal(only_use(7000)->card_count, 0);

    /* What can't be read is no container's limit; nor is what is gone. */
    write_limits("uid-1_main", "CUDA_DEVICE_MEMORY_LIMIT_0=much\n");
    assert_int_equal(look_at_ms(8000), 0);
    write_limits("uid-1_main", ONE_CARD);
    assert_int_equal(look_at_ms(9000), 1);
    assert_int_equal(unlink(path_of("uid-1_main", "limits")), 0);
    assert_int_equal(look_at_ms(10000), 0);
}

/* Its processes' region, as a library opens it. */

static void open_region(struct region *region, const char *folder, const char *name)
{
    memset(region, 0, sizeof(*region));
    assert_int_equal(region_open(region, path_of(folder, name), NULL), 0);
    region_set_device(region, 0, "GPU-a");
}

static void what_a_region_counts_is_told(void **state)
{
    struct region region;
    const struct container_card *card;

    (void)state;
    make_container("uid-1_main", ONE_CARD);
    open_region(&region, "uid-1_main", REGION);
    region_set_device(&region, 1, "GPU-other");
    region.base->last_kernel_time = 77;
    region.ext->unaccounted_refused = 5;
    region.ext->unaccounted_allowed = 6;
    region.ext->devices[0].refusals = 7;
    region.ext->devices[0].compute.launches_delayed = 8;
    region.ext->devices[0].compute.delayed_ns = 9;
    region.ext->devices[0].compute.charged_ns = 10;
    region.ext->devices[1].refusals = 99;
    card = &only_use(1)->cards[0];
    assert_true(uses[0].has_region);
    assert_int_equal(uses[0].last_kernel_time, 77);
    assert_int_equal(uses[0].unaccounted_refused, 5);
    assert_int_equal(uses[0].unaccounted_allowed, 6);
    assert_int_equal(uses[0].card_count, 1);
    assert_int_equal(card->refusals, 7);
    assert_int_equal(card->launches_delayed, 8);
    assert_int_equal(card->delayed_ns, 9);
    assert_int_equal(card->charged_ns, 10);
    /* The tenant writes what it likes. */
    region.ext->devices[0].compute.charged_ns = -5;
    assert_int_equal(only_use(2)->cards[0].charged_ns, 0);
    region_close(&region);
}

static double utilization_at(struct region *region, int64_t charged_ms, int64_t ms)
{
    region->ext->devices[0].compute.charged_ns = charged_ms * NS_PER_MS;
    return only_use(ms)->cards[0].utilization;
}

static void utilization_is_of_the_time_between_two_looks(void **state)
{
    struct region region;

    (void)state;
    make_container("uid-1_main", ONE_CARD);
    open_region(&region, "uid-1_main", REGION);
    /* What was charged before the first look is of a time that nobody knows. */
    assert_float_equal(utilization_at(&region, 5000, 1000), 0, 0.01);
    assert_float_equal(utilization_at(&region, 5200, 2000), 20, 0.01);
    /* Too short a time changes nothing, and is part of the next. */
    assert_float_equal(utilization_at(&region, 5300, 2499), 20, 0.01);
    assert_float_equal(utilization_at(&region, 5400, 2500), 40, 0.01);
    assert_float_equal(utilization_at(&region, 9000, 3500), 100, 0.01);
    /* A new region. */
    assert_float_equal(utilization_at(&region, 100, 4500), 0, 0.01);
    assert_float_equal(utilization_at(&region, 200, 5500), 10, 0.01);
    region_close(&region);

    /* A container that was gone for a look begins anew. */
    assert_int_equal(unlink(path_of("uid-1_main", "limits")), 0);
    assert_int_equal(unlink(path_of("uid-1_main", REGION)), 0);
    assert_int_equal(rmdir(path_of("uid-1_main", "")), 0);
    assert_int_equal(look_at_ms(8000), 0);
    make_container("uid-1_main", ONE_CARD);
    open_region(&region, "uid-1_main", REGION);
    assert_float_equal(utilization_at(&region, 500, 7000), 0, 0.01);
    region_close(&region);
}

/* HAMi's plugin writes no limits. */
static void without_limits_the_region_says_what_there_is(void **state)
{
    struct region region;

    (void)state;
    make_folder("uid-1_main");
    assert_int_equal(
        close(open(path_of("uid-1_main", "libvgpu.so.cache"), O_CREAT | O_WRONLY, 0644)), 0);
    assert_int_equal(close(open(path_of("uid-1_main", ".cache"), O_CREAT | O_WRONLY, 0644)), 0);
    assert_int_equal(look_at_ms(1), 0);
    open_region(&region, "uid-1_main", REGION);
    region_set_device(&region, 2, "GPU-c");
    region.base->limit[0] = 5000;
    region.base->sm_limit[0] = 100;
    region.base->limit[2] = 6000;
    region.base->sm_limit[2] = 30;
    assert_int_equal(only_use(2)->card_count, 2);
    assert_string_equal(uses[0].cards[0].uuid, "GPU-a");
    assert_int_equal(uses[0].cards[0].limit_bytes, 5000);
    assert_int_equal(uses[0].cards[0].cores, 0);
    assert_string_equal(uses[0].cards[1].uuid, "GPU-c");
    assert_int_equal(uses[0].cards[1].index, 2);
    assert_int_equal(uses[0].cards[1].limit_bytes, 6000);
    assert_int_equal(uses[0].cards[1].cores, 30);
    region_close(&region);

    /* Nor does its library extend the file. */
    assert_int_equal(truncate(path_of("uid-1_main", REGION), REGION_BASE_SIZE), 0);
    assert_int_equal(only_use(3)->card_count, 2);
    assert_int_equal(uses[0].cards[1].limit_bytes, 6000);
    assert_int_equal(truncate(path_of("uid-1_main", REGION), 100), 0);
    assert_int_equal(look_at_ms(4), 0);
}

static void limits_that_a_lease_hides_are_not_made_up_for_by_the_region(void **state)
{
    struct region region;
    pid_t pid;

    (void)state;
    make_container("uid-1_main", ONE_CARD);
    open_region(&region, "uid-1_main", REGION);
    region_set_device(&region, 0, "GPU-b");
    pid = lease_start(path_of("uid-1_main", "limits"));
    if (pid) {
        assert_int_equal(look_at_ms(1000), 0);
        lease_end(pid);
    } else {
        (void)puts("skipped: there are no leases of files in /tmp");
    }
    assert_string_equal(only_use(2000)->cards[0].uuid, "GPU-a");
    region_close(&region);
}

/* A tenant of HAMi's plugin has the whole folder. */
static void limits_that_are_no_file_are_none_and_hide_nobody(void **state)
{
    struct containers_look look = {.now_ns = 1};

    (void)state;
    make_container("uid-1_main", ONE_CARD);
    make_folder("uid-2_main");
    assert_int_equal(symlink("/proc/self/mem", path_of("uid-2_main", "limits")), 0);
    assert_int_equal(containers_look(containers, &look, NULL), 0);
    assert_int_equal(look.missed, 0);
    assert_int_equal(look.use_count, 1);
}

static bool wants_all(void *data, const char *pod_uid)
{
    (void)data;
    (void)pod_uid;
    return true;
}

static void count_visit(void *data, const struct container_use *use, const char *region_path,
                        const struct region_view *view)
{
    unsigned *count = data;

    (void)region_path;
    assert_string_equal(use->cards[0].uuid, "GPU-a");
    assert_non_null(view);
    (*count)++;
}

static bool wants_second(void *data, const char *pod_uid)
{
    (void)data;
    return strcmp(pod_uid, "uid-2") == 0;
}

static void containers_of_other_pods_are_passed_over(void **state)
{
    static const char *const folders[] = {"uid-1_main", "uid-2_main", "uid-3_main", "uid-2_side"};
    unsigned count = 0;
    const struct containers_visitor visitor = {wants_second, count_visit, &count};
    struct containers_look look = {.now_ns = 1, .visitors = &visitor, .visitor_count = 1};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        struct region region;

        make_container(folders[i], ONE_CARD);
        open_region(&region, folders[i], REGION);
        region_close(&region);
    }
    assert_int_equal(containers_look(containers, &look, NULL), 0);
    assert_int_equal(look.use_count, 4);
    assert_int_equal(count, 2);
}

/* Whoever took an empty look for the truth would end every process of the node. */
static void what_could_not_be_looked_into_is_not_taken_for_nothing(void **state)
{
    unsigned count = 0;
    const struct containers_visitor visitor = {wants_all, count_visit, &count};
    struct containers_look look = {.now_ns = 1, .visitors = &visitor, .visitor_count = 1};
    struct containers *fresh;
    struct rlimit all, few;
    struct region region;
    int fd;

    (void)state;
    make_container("uid-1_main", ONE_CARD);
    open_region(&region, "uid-1_main", REGION);
    assert_int_equal(containers_look(containers, &look, NULL), 0);
    assert_int_equal(look.missed, 0);
    assert_int_equal(count, 1);
    region_close(&region);
    assert_int_equal(unlink(path_of("uid-1_main", REGION)), 0);
    open_region(&region, "uid-1_main", REGION); /* the one that was kept open is of no use */

    fresh = containers_new(hook);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)fd + 1, .rlim_max = all.rlim_max};
    (void)close(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(containers_look(containers, &look, NULL), 0);
    assert_int_equal(look.missed, -EMFILE); /* the region */
    assert_int_equal(containers_look(fresh, &look, NULL), 0);
    assert_int_equal(look.missed, -EMFILE); /* the limits */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    assert_int_equal(count, 1);
    assert_int_equal(containers_look(fresh, &look, NULL), 0);
    assert_int_equal(look.missed, 0);
    assert_int_equal(count, 2);
    containers_free(fresh);
    region_close(&region);
}

static int count_descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void remove_container(const char *folder)
{
    assert_int_equal(unlink(path_of(folder, "limits")), 0);
    assert_int_equal(unlink(path_of(folder, REGION)), 0);
    assert_int_equal(rmdir(path_of(folder, "")), 0);
}

static void regions_are_kept_open_while_their_containers_are_there(void **state)
{
    const int before = count_descriptors();
    struct region first, second;

    (void)state;
    make_container("uid-1_main", ONE_CARD);
    make_container("uid-2_main", ONE_CARD);
    open_region(&first, "uid-1_main", REGION);
    region_close(&first);
    open_region(&second, "uid-2_main", REGION);
    region_close(&second);
    assert_int_equal(look_at_ms(1), 2);
    assert_int_equal(look_at_ms(2), 2);
    assert_int_equal(count_descriptors(), before + 2);

    /* One that is made anew is read, not the one before. */
    assert_int_equal(unlink(path_of("uid-1_main", REGION)), 0);
    open_region(&first, "uid-1_main", REGION);
    first.base->last_kernel_time = 77;
    region_close(&first);
    assert_int_equal(look_at_ms(3), 2);
    assert_int_equal(find_use(2, "uid-1", "main")->last_kernel_time, 77);
    assert_int_equal(count_descriptors(), before + 2);

    remove_container("uid-1_main");
    assert_int_equal(look_at_ms(4), 1);
    assert_int_equal(count_descriptors(), before + 1);
    remove_container("uid-2_main");
    assert_int_equal(look_at_ms(5), 0);
    assert_int_equal(count_descriptors(), before);
}

/* The others of hundreds are opened for each look. */
enum {
    SLOW = 12,
    SLOW_LOCKS = 4000, /* of a region: all of them are looked through for each slot */
};

static void fill_slots(const char *folder)
{
    struct region region;

    open_region(&region, folder, REGION);
    for (int i = 0; i < REGION_SLOTS; i++) {
        region.base->slots[i].pid = region.ext->slots[i].pid = (1 << 23) + i;
        region.base->slots[i].status = REGION_STATUS_RUNNING;
        region.ext->slots[i].pid_namespace = 77;
    }
    region.base->slot_count = REGION_SLOTS;
    region_close(&region);
}

static void lock_much(const char *folder)
{
    int fd = open(path_of(folder, REGION), O_RDWR | O_CLOEXEC);

    for (off_t i = 0; i < SLOW_LOCKS; i++) {
        struct flock lock = {.l_type = F_WRLCK, .l_start = (INT64_C(1) << 41) + 2 * i, .l_len = 1};

        (void)fcntl(fd, F_SETLK, &lock);
    }
}

static pid_t start_slow_containers(void)
{
    char folder[32], byte;
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < SLOW; i++) {
        (void)snprintf(folder, sizeof(folder), "uid-%d_main", i);
        make_container(folder, ONE_CARD);
        fill_slots(folder);
    }
    pid = fork();
    for (int i = 0; pid == 0 && i < SLOW; i++) {
        (void)snprintf(folder, sizeof(folder), "uid-%d_main", i);
        lock_much(folder);
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)write(ends[1], "", 1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return pid;
}

static void those_who_make_looks_slow_share_the_time_of_them(void **state)
{
    pid_t pid = start_slow_containers();
    int64_t began_ns;

    (void)state;
    assert_int_equal(look_at_ms(1000), SLOW);
    began_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    assert_int_equal(look_at_ms(2000), SLOW);
    assert_int_equal(look_at_ms(3000), SLOW);
    /* Twice 100 ms, and the reading; each for itself would take 50. */
    assert_true(clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - began_ns < 600 * NS_PER_MS);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static void half_of_the_descriptors_are_left(void **state)
{
    const int before = count_descriptors();
    struct region region;
    struct rlimit all, few;
    char name[32];

    (void)state;
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof(name), "uid_%d", i);
        make_container(name, ONE_CARD);
        open_region(&region, name, REGION);
        region.base->last_kernel_time = 5;
        region_close(&region);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    few = (struct rlimit){.rlim_cur = 60, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(look_at_ms(i), 40);
        assert_int_equal(count_descriptors(), before + 30);
    }
    for (int i = 0; i < 40; i++)
        assert_int_equal(uses[i].last_kernel_time, 5);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
}

/* What a place of the list held before is nobody's. */
static void a_container_is_not_taken_for_the_one_before_it(void **state)
{
    struct region region;

    (void)state;
    make_container("uid-1_main", ONE_CARD);
    open_region(&region, "uid-1_main", REGION);
    region.ext->devices[0].refusals = 7;
    region.ext->devices[0].compute.charged_ns = 10;
    region.ext->devices[0].compute.waits[0] = 3;
    region_close(&region);
    assert_int_equal(only_use(1)->cards[0].refusals, 7);
    remove_container("uid-1_main");
    make_container("uid-2_main", "NVIDIA_VISIBLE_DEVICES=GPU-b\n");
    assert_int_equal(only_use(2)->cards[0].refusals, 0);
    assert_string_equal(uses[0].cards[0].uuid, "GPU-b");
    assert_int_equal(uses[0].cards[0].charged_ns, 0);
    assert_int_equal(uses[0].cards[0].waits[0], 0);
    assert_int_equal(uses[0].cards[0].limit_bytes, 0);
    assert_false(uses[0].has_region);
}

static void more_containers_than_a_node_has_are_an_error(void **state)
{
    struct containers_look look = {.now_ns = 2 * NS_PER_MS};
    struct error err = ERROR_INIT;
    char name[32], first[512];

    (void)state;
    make_container("uid_0", ONE_CARD);
    COPY_TEXT(first, path_of("uid_0", "limits"));
    for (int i = 1; i < 4096; i++) {
        (void)snprintf(name, sizeof(name), "uid_%d", i);
        make_folder(name);
        assert_int_equal(link(first, path_of(name, "limits")), 0);
    }
    assert_int_equal(look_at_ms(1), 4096);
    assert_string_equal(uses[4095].cards[0].uuid, "GPU-a");
    make_container("uid_more", ONE_CARD);
    assert_int_equal(containers_look(containers, &look, &err), -E2BIG);
    assert_non_null(strstr(err.text, "containers"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_folder_names_its_pod_and_container, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_containers_there_is_nothing_to_tell, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_cant_be_read_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits_are_those_of_the_file_as_it_is_now, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_a_region_counts_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(utilization_is_of_the_time_between_two_looks, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(without_limits_the_region_says_what_there_is, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(limits_that_are_no_file_are_none_and_hide_nobody, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(limits_that_a_lease_hides_are_not_made_up_for_by_the_region,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_could_not_be_looked_into_is_not_taken_for_nothing,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(containers_of_other_pods_are_passed_over, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(regions_are_kept_open_while_their_containers_are_there,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(those_who_make_looks_slow_share_the_time_of_them, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(half_of_the_descriptors_are_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_container_is_not_taken_for_the_one_before_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(more_containers_than_a_node_has_are_an_error, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

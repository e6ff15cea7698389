/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/containers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/util.h"

enum {
    CONTAINERS_MAX = 4096,
    KEPT_MAX = 1024,    /* regions' files that are kept open, at most */
    ENTRIES_MAX = 1024, /* of a folder */
};

#define LIMITS_NS NS_PER_S

/*
 * Who of a region's slots lives takes the time that its owner wants it to. Regions that took much
 * of it at the last look share so much of it at the next.
 */
#define ASKING_NS (100 * NS_PER_MS)
#define ASKING_MOST_NS (50 * NS_PER_MS)
#define ASKING_LEAST_NS (100 * NS_PER_US)
#define MUCH_NS NS_PER_MS /* or half of what it may take */

/* Utilisation is taken over at least so long. */
#define INTERVAL_NS (NS_PER_S / 2)

/* A container's state from one look to the next. */
struct past {
    UT_hash_handle hh; /* first, beside the key: they are read of others, too */
    char key[CONTAINER_UID_SIZE + CONTAINER_NAME_SIZE]; /* the folder's name */

    /* Its limits, read again when the file is another. */
    bool has_limits;
    int64_t limits_ns; /* when the file was looked at */
    struct timespec limits_time;
    ino_t limits_ino;
    struct limits limits;

    /* The charges at the last look, from which utilisation is computed. */
    int64_t at_ns; /* 0: not yet */
    uint64_t charged_ns[LIMITS_MAX_DEVICES];
    double utilization[LIMITS_MAX_DEVICES];
    bool seen;

    struct region_kept region; /* open from one look to the next, where there are descriptors */
};

struct containers {
    char folder[PATH_MAX];
    struct container_use *uses;
    size_t count, size;
    int fd; /* of the folder, during a look */
    int64_t now_ns;
    struct past *pasts;
    size_t kept_count, kept_max; /* regions' files that are open */
    size_t slow_count;           /* of this look's regions */
    int64_t asking_ns;           /* for how long each is asked */
    struct region_view view;     /* large */
    char limits[LIMITS_FILE_MAX + 1];
};

/* Half of the process' descriptors are left to its readers and to all else. */
static size_t kept_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    return (size_t)MIN(limit.rlim_cur / 2, (rlim_t)KEPT_MAX);
}

struct containers *containers_new(const char *hook_path)
{
    struct containers *containers = calloc(1, sizeof(*containers));

    if (containers)
        (void)snprintf(containers->folder, sizeof(containers->folder), "%s/containers", hook_path);
    return containers;
}

static void past_remove(struct containers *containers, struct past *past)
{
    containers->kept_count -= past->region.fd >= 0;
    region_kept_close(&past->region);
    HASH_DEL(containers->pasts, past);
    free(past);
}

void containers_free(struct containers *containers)
{
    struct past *past, *next;

    if (!containers)
        return;
    HASH_ITER(hh, containers->pasts, past, next)
    {
        past_remove(containers, past);
    }
    free(containers->uses);
    free(containers);
}

/* Failures that say nothing of a container: whoever went on would take what it has for nothing. */
static bool is_own_failure(int r)
{
    return r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -EIO;
}

/* A container's folder, "<pod uid>_<container>". */
static bool read_name(const char *entry, struct container_use *use)
{
    size_t len = strcspn(entry, "_");

    if (!len || len >= sizeof(use->pod_uid) || entry[len] != '_' || !entry[len + 1] ||
        strlen(entry + len + 1) >= sizeof(use->name))
        return false;
    memcpy(use->pod_uid, entry, len);
    use->pod_uid[len] = '\0';
    COPY_TEXT(use->name, entry + len + 1);
    return true;
}

static bool is_region(const char *name)
{
    size_t len = strlen(name);

    return len > 6 && strcmp(name + len - 6, ".cache") == 0 && !strstr(name, "libvgpu.so");
}

/* HAMi's plugin writes no limits file: the region is the folder's one file of that kind, among so
 * many as a look has time for. */
static int find_region(const struct containers *containers, const char *entry_name,
                       char ret_path[PATH_MAX])
{
    int fd = openat(containers->fd, entry_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    int len = -1, seen = 0;

    if (!entries) {
        const int r = -errno;

        if (fd >= 0)
            (void)close(fd);
        return is_own_failure(r) ? r : -ENOENT;
    }
    for (struct dirent *entry = readdir(entries); entry && len < 0 && seen < ENTRIES_MAX;
         entry = readdir(entries), seen++) {
        if (is_region(entry->d_name))
            len = snprintf(ret_path, PATH_MAX, "%s/%s", entry_name, entry->d_name);
    }
    (void)closedir(entries);
    return len > 0 && len < PATH_MAX ? 0 : -ENOENT;
}

static int parse_limits(struct containers *containers, const char *path, struct limits *ret_limits)
{
    struct limits limits = LIMITS_INIT;
    struct error err = ERROR_INIT;
    ssize_t len;
    int r;

    len = file_read(path, containers->limits, sizeof(containers->limits));
    if (len < 0)
        return (int)len;
    r = limits_parse(&limits, containers->limits, &err);
    if (r < 0)
        log_warn("%s: %s", path, err.text);
    else
        *ret_limits = limits;
    return r;
}

/* What was read a moment ago is not looked for again: a look reads hundreds of containers. A
 * negative errno only where it is not known whether there are limits, or which. */
static int read_limits(struct containers *containers, const char *entry, struct past *past)
{
    char path[PATH_MAX];
    struct stat st;
    int r = 0;

    if (past->has_limits && containers->now_ns - past->limits_ns < LIMITS_NS)
        return 0;
    past->limits_ns = containers->now_ns;
    if (snprintf(path, sizeof(path), "%s/%s/limits", containers->folder, entry) >=
        (int)sizeof(path))
        r = -ENAMETOOLONG;
    if (r == 0)
        r = file_stat_link_at(containers->fd, path + strlen(containers->folder) + 1, &st);
    if (r == 0 && !S_ISREG(st.st_mode)) /* where HAMi's plugin is, the folder is the tenant's */
        r = -EPROTO;
    if (r == 0 && past->has_limits && st.st_ino == past->limits_ino &&
        st.st_mtim.tv_sec == past->limits_time.tv_sec &&
        st.st_mtim.tv_nsec == past->limits_time.tv_nsec)
        return 0;
    if (r == 0) {
        past->limits_ino = st.st_ino;
        past->limits_time = st.st_mtim;
        r = parse_limits(containers, path, &past->limits);
    }
    past->has_limits = r == 0;
    /* The container's root can take a lease of the file, by which nobody can open it: what it wrote
     * into its region instead is not believed. */
    return is_own_failure(r) || r == -EWOULDBLOCK ? r : 0;
}

/* Below the folder of all containers. */
static int region_path(const struct containers *containers, const char *entry,
                       const struct limits *limits, char ret_path[PATH_MAX])
{
    const char *name = limits ? strrchr(limits->region_path, '/') : NULL;
    size_t folder_len, name_len;

    if (!name)
        return find_region(containers, entry, ret_path);
    /* Done for each container at each look, so without printf(). */
    folder_len = strlen(entry);
    name_len = strlen(name);
    if (folder_len + name_len >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(ret_path, entry, folder_len);
    memcpy(ret_path + folder_len, name, name_len + 1);
    return 0;
}

/* All but the cards, which are many and are set as they are counted. */
static void clear_use(struct container_use *use)
{
    memset(use, 0, offsetof(struct container_use, cards));
}

static void use_limits(const struct limits *limits, struct container_use *use)
{
    use->card_count = limits->device_count;
    use->borrows = limits->cards[0] != '\0';
    use->priority = limits->priority;
    for (unsigned i = 0; i < limits->device_count; i++) {
        struct container_card *card = &use->cards[i];

        *card = (struct container_card){.index = 0};
        COPY_TEXT(card->uuid, limits->devices[i].uuid);
        card->index = i;
        card->limit_bytes = limits->devices[i].memory_bytes;
        card->cores = limits->cores_disabled ? 0 : limits->devices[i].cores;
    }
}

/* Without a limits file the region says which cards there are. */
static void use_region_limits(const struct region_view *view, struct container_use *use)
{
    use->priority = view->priority;
    for (unsigned i = 0; i < view->device_count && i < LIMITS_MAX_DEVICES; i++) {
        struct container_card *card = &use->cards[use->card_count];

        if (!view->devices[i].uuid[0])
            continue;
        *card = (struct container_card){.index = 0};
        COPY_TEXT(card->uuid, view->devices[i].uuid);
        card->index = i;
        card->limit_bytes = view->devices[i].limit_bytes;
        card->cores = view->devices[i].cores % 100;
        use->card_count++;
    }
}

static const struct region_view_device *find_device(const struct region_view *view,
                                                    const char *uuid)
{
    for (unsigned i = 0; i < view->device_count; i++) {
        if (strcmp(view->devices[i].uuid, uuid) == 0)
            return &view->devices[i];
    }
    return NULL;
}

static void use_region(const struct region_view *view, struct container_use *use)
{
    use->has_region = true;
    use->last_kernel_time = view->last_kernel_time;
    use->unaccounted_refused = view->unaccounted_refused;
    use->unaccounted_allowed = view->unaccounted_allowed;
    use->pinned_bytes = view->pinned_bytes;
    use->spilled_bytes = view->spilled_bytes;
    use->imports = view->imports;
    for (unsigned i = 0; i < use->card_count; i++) {
        struct container_card *card = &use->cards[i];
        const struct region_view_device *device = find_device(view, card->uuid);

        if (!device)
            continue;
        card->used = device->used;
        card->charged_ns = (uint64_t)MAX(device->charged_ns, INT64_C(0));
        card->delayed_ns = device->delayed_ns;
        card->launches_delayed = device->launches_delayed;
        card->refusals = device->refusals;
        memcpy(card->waits, device->waits, sizeof(card->waits));
        if (!view->has_extension)
            card->utilization = device->sm_util;
    }
}

static struct past *find_past(struct containers *containers, const char *entry)
{
    struct past *past;

    HASH_FIND_STR(containers->pasts, entry, past);
    if (past)
        return past;
    past = calloc(1, sizeof(*past));
    if (!past)
        return NULL;
    COPY_TEXT(past->key, entry);
    past->region = (struct region_kept)REGION_KEPT_INIT;
    HASH_ADD_STR(containers->pasts, key, past);
    return past;
}

/* A new region counts from zero again. */
static void measure(struct past *past, struct container_use *use, int64_t now_ns)
{
    int64_t passed_ns = past->at_ns ? now_ns - past->at_ns : 0;
    bool due = !past->at_ns || passed_ns >= INTERVAL_NS;

    for (unsigned i = 0; i < use->card_count; i++) {
        uint64_t charged = use->cards[i].charged_ns;
        uint64_t more = charged > past->charged_ns[i] ? charged - past->charged_ns[i] : 0;

        if (passed_ns >= INTERVAL_NS)
            past->utilization[i] = MIN(100.0 * (double)more / (double)passed_ns, 100.0);
        if (due)
            past->charged_ns[i] = charged;
        use->cards[i].utilization = past->utilization[i];
    }
    if (due)
        past->at_ns = now_ns;
}

/* What is read of a container: its limits and, if there is one, its region. */
struct read {
    struct past *past;
    bool has_view;              /* containers->view is its */
    char region_path[PATH_MAX]; /* below the folder of all containers */
};

static int read_region(struct containers *containers, const char *path, struct past *past)
{
    const bool was_open = past->region.fd >= 0;
    const bool keeps = was_open || containers->kept_count < containers->kept_max;
    int r;

    past->region.asking_ns = containers->asking_ns;
    r = region_view_read_at(containers->fd, path, &past->region, &containers->view, NULL);
    containers->slow_count += past->region.asked_ns > MIN(MUCH_NS, containers->asking_ns / 2);
    if (!keeps)
        region_kept_close(&past->region);
    containers->kept_count += (past->region.fd >= 0) - was_open;
    return r;
}

/* A container whose folder is not one, or says nothing at all, is a negative errno. */
static int read_container(struct containers *containers, const char *entry,
                          struct container_use *use, struct read *read)
{
    struct past *past;
    int r;

    past = find_past(containers, entry);
    if (!past)
        return -ENOMEM;
    read->past = past;
    read->region_path[0] = '\0';
    past->seen = true;
    r = read_limits(containers, entry, past);
    if (r < 0)
        return r;
    r = region_path(containers, entry, past->has_limits ? &past->limits : NULL, read->region_path);
    if (past->has_limits)
        use_limits(&past->limits, use);
    if (r == 0)
        r = read_region(containers, read->region_path, past);
    read->has_view = r == 0;
    if (r < 0) /* no process has made it a region yet, as a rule */
        return past->has_limits && !is_own_failure(r) ? 0 : r;
    if (!past->has_limits)
        use_region_limits(&containers->view, use);
    use_region(&containers->view, use);
    return 0;
}

static void show(const struct containers *containers, const struct containers_visitor *visitor,
                 const struct container_use *use, const struct read *read)
{
    char path[PATH_MAX];

    if (!visitor->wants(visitor->data, use->pod_uid))
        return;
    if (snprintf(path, sizeof(path), "%s/%s", containers->folder, read->region_path) <
        (int)sizeof(path))
        visitor->visit(visitor->data, use, path, read->has_view ? &containers->view : NULL);
}

static int look_at(struct containers *containers, const char *entry, struct containers_look *look,
                   struct container_use *use)
{
    struct read read;
    int r;

    clear_use(use);
    r = read_name(entry, use) ? read_container(containers, entry, use, &read) : -EINVAL;
    if (is_own_failure(r))
        look->missed = r;
    if (r < 0)
        return r;
    if (read.has_view && containers->view.has_extension)
        measure(read.past, use, look->now_ns);
    for (size_t i = 0; i < look->visitor_count; i++)
        show(containers, &look->visitors[i], use, &read);
    return 0;
}

static int uses_grow(struct containers *containers)
{
    size_t size = containers->size ? containers->size * 2 : 16;
    struct container_use *uses;

    if (containers->count < containers->size)
        return 0;
    if (containers->count == CONTAINERS_MAX)
        return -E2BIG;
    uses = realloc(containers->uses, size * sizeof(*uses));
    if (!uses)
        return -ENOMEM;
    containers->uses = uses;
    containers->size = size;
    return 0;
}

static int64_t share_asking(size_t slow_count)
{
    const int64_t share_ns = ASKING_NS / (int64_t)MAX(slow_count, (size_t)1);

    return MIN(MAX(share_ns, ASKING_LEAST_NS), ASKING_MOST_NS);
}

static void forget_unseen(struct containers *containers)
{
    struct past *past, *next;

    HASH_ITER(hh, containers->pasts, past, next)
    {
        bool seen = past->seen;

        past->seen = false;
        if (!seen)
            past_remove(containers, past);
    }
}

int containers_look(struct containers *containers, struct containers_look *look, struct error *err)
{
    DIR *entries = opendir(containers->folder);
    int r = 0;

    containers->count = 0;
    look->missed = 0;
    if (!entries && errno != ENOENT)
        return error_set(err, -errno, "%s: %s", containers->folder, strerror(errno));
    containers->fd = entries ? dirfd(entries) : -1;
    containers->now_ns = look->now_ns;
    containers->kept_max = kept_max();
    containers->asking_ns = share_asking(containers->slow_count);
    containers->slow_count = 0;
    for (struct dirent *entry = entries ? readdir(entries) : NULL; entry && r == 0;
         entry = readdir(entries)) {
        r = uses_grow(containers);
        if (r < 0)
            (void)error_set(err, r, "%s: %s", containers->folder, strerror(-r));
        else if (entry->d_name[0] != '.' && look_at(containers, entry->d_name, look,
                                                    &containers->uses[containers->count]) == 0)
            containers->count++;
    }
    if (entries)
        (void)closedir(entries);
    if (r < 0)
        return r;
    forget_unseen(containers);
    look->uses = containers->uses;
    look->use_count = containers->count;
    return 0;
}

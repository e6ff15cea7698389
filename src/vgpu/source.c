/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/source.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/glibc.h"
#include "vgpu/vgpu.h"

struct source source;

extern char **environ;

/* The file "limits" lies in the folder through which this library was loaded. */
static void find_limits_file(void)
{
    char *path = source.path;
    size_t len, folder = 0;
    Dl_info info;

    if (dladdr((void *)find_limits_file, &info) == 0 || !info.dli_fname)
        return;
    /* Of two slashes in a row one is ignored. */
    if (info.dli_fname[0] != '/') {
        if (!getcwd(path, sizeof(source.path) - 1)) {
            path[0] = '\0';
            return;
        }
        folder = strlen(path);
        path[folder++] = '/';
    }
    len = strlen(info.dli_fname);
    while (len > 0 && info.dli_fname[len - 1] != '/')
        len--;
    if (folder + len + sizeof("limits") > sizeof(source.path)) {
        path[0] = '\0';
        return;
    }
    memcpy(path + folder, info.dli_fname, len);
    memcpy(path + folder + len, "limits", sizeof("limits"));
}

/* The only thing that is done before the first CUDA or NVML call: the program may change its
 * working directory, which a library loaded by a relative path would be looked for in. */
static void __attribute__((constructor)) note_limits_file(void)
{
    int saved = errno;
    struct stat st;

    find_limits_file();
    source.was_there = source.path[0] && file_stat(source.path, &st) == 0;
    errno = saved;
}

/* Reads the file's limits, or the environment's; a file's are lowered by the environment's. */
static int read_limits(struct limits *limits, bool *ret_from_file, struct error *err)
{
    struct limits environment = LIMITS_INIT;
    static char text[LIMITS_FILE_MAX];
    ssize_t len;
    int r;

    *limits = (struct limits)LIMITS_INIT;
    len = file_read(source.path, text, sizeof(text));
    if (len < 0 && len != -ENOENT)
        return error_set(err, (int)len, "%s: %s", source.path, strerror((int)-len));
    *ret_from_file = len >= 0;

    r = limits_parse_environment(&environment, environ, err);
    if (r < 0)
        return r;
    if (!*ret_from_file) {
        *limits = environment;
        return 0;
    }

    r = limits_parse(limits, text, err);
    if (r < 0)
        return error_wrap(err, r, "%s", source.path);
    limits_lower(limits, &environment);
    return 0;
}

int source_read(struct error *err)
{
    int r;

    if (source.read)
        return 0;
    if (!source.path[0])
        return error_set(err, -ENAMETOOLONG,
                         "the folder of libvgpu.so can't be known, nor the limits file in it");
    /* First: what is changed after it was read is to be seen. */
    (void)file_stat(source.path, &source.seen);
    r = read_limits(&source.limits, &source.is_file, err);
    if (r < 0)
        return r;
    if (!source.is_file && source.was_there)
        return error_set(err, -ENOENT, "%s: it was there when the program began, and is gone",
                         source.path);

    source.read = true;
    return 0;
}

static bool file_changed(void)
{
    struct stat now;

    if (file_stat(source.path, &now) < 0)
        return false;
    if (now.st_ino == source.seen.st_ino && now.st_size == source.seen.st_size &&
        now.st_mtim.tv_sec == source.seen.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == source.seen.st_mtim.tv_nsec)
        return false;

    source.seen = now;
    return true;
}

static void read_again(void)
{
    struct error err = ERROR_INIT;
    struct limits limits;
    bool from_file;

    if (read_limits(&limits, &from_file, &err) < 0) {
        vgpu_say(VGPU_WORD_LIMITS, "%s; the limits stay as they were", err.text);
        return;
    }
    if (!from_file)
        return; /* it went away just now; what it said stays in force */
    /* Who is granted what, and where the region is, stays for the life of a process. */
    for (unsigned i = 0; i < LIMITS_MAX_DEVICES; i++) {
        source.limits.devices[i].memory_bytes = limits.devices[i].memory_bytes;
        source.limits.devices[i].cores = limits.devices[i].cores;
    }
    source.limits.allow_unaccounted = limits.allow_unaccounted;
    source.limits.allow_imports = limits.allow_imports;
    source.limits.managed = limits.managed;
    source.limits.oversubscribed = limits.oversubscribed;
    source.limits.suspended = limits.suspended;
}

void source_refresh(void)
{
    if (source.read && source.is_file && file_changed())
        read_again();
}

const struct limits *vgpu_limits(void)
{
    return &source.limits;
}

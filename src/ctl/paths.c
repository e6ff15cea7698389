/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/paths.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

static const char *environment(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static int __attribute__((format(printf, 3, 4)))
format_path(char ret_path[PATH_MAX], struct error *err, const char *fmt, ...)
{
    va_list args;
    int len;

    va_start(args, fmt);
    len = vsnprintf(ret_path, PATH_MAX, fmt, args);
    va_end(args);
    if (len < 0 || len >= PATH_MAX)
        return error_set(err, -ENAMETOOLONG, "the path \"%.60s...\" is too long", ret_path);
    return 0;
}

int paths_absolute(const char *path, char ret_path[PATH_MAX], struct error *err)
{
    char folder[PATH_MAX], resolved[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    if (strlen(path) >= sizeof(folder))
        return error_set(err, -ENAMETOOLONG, "the path \"%.60s...\" is too long", path);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return error_set(err, -EINVAL, "\"%s\" does not name a file", path);

    if (!slash)
        COPY_TEXT(folder, ".");
    else if (slash == path)
        COPY_TEXT(folder, "/");
    else
        (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    if (!realpath(folder, resolved))
        return error_set(err, -errno, "cannot find the folder %s: %s", folder, strerror(errno));
    return format_path(ret_path, err, "%s/%s", strcmp(resolved, "/") == 0 ? "" : resolved, name);
}

/* The folder that the running program is in. */
static int find_program_folder(char ret_path[PATH_MAX], struct error *err)
{
    ssize_t len = readlink("/proc/self/exe", ret_path, PATH_MAX - 1);
    char *slash;

    if (len < 0)
        return error_set(err, -errno, "cannot find hamictl's own folder: /proc/self/exe: %s",
                         strerror(errno));
    ret_path[len] = '\0';
    slash = strrchr(ret_path, '/');
    if (slash)
        *slash = '\0';
    return 0;
}

int paths_find(struct paths *ret_paths, struct error *err)
{
    const char *chosen = environment("HAMI_LIBDIR");
    char folder[PATH_MAX], installed[PATH_MAX], built[PATH_MAX];
    int r;

    if (chosen) {
        if (!realpath(chosen, installed))
            return error_set(err, -errno, "HAMI_LIBDIR=%s: %s", chosen, strerror(errno));
    } else {
        r = find_program_folder(folder, err);
        if (r == 0)
            r = format_path(installed, err, "%s/../lib/hami", folder);
        if (r == 0)
            r = format_path(built, err, "%s/..", folder);
        if (r < 0)
            return r;
        if (!realpath(installed, folder)) {
            /* Not installed: the build tree, which has a folder for each. */
            if (!realpath(built, folder))
                return error_set(err, -errno, "%s: %s", built, strerror(errno));
            r = format_path(ret_paths->vgpu, err, "%s/vgpu/libvgpu.so", folder);
            return r < 0 ? r : format_path(ret_paths->sim, err, "%s/simdriver", folder);
        }
        COPY_TEXT(installed, folder);
    }

    r = format_path(ret_paths->vgpu, err, "%s/libvgpu.so", installed);
    return r < 0 ? r : format_path(ret_paths->sim, err, "%s/sim", installed);
}

int paths_find_machine(char ret_path[PATH_MAX], struct error *err)
{
    const char *machine = environment("HAMI_SIM");
    int r;

    if (!machine) {
        ret_path[0] = '\0';
        return 0;
    }
    r = paths_absolute(machine, ret_path, err);
    return r < 0 ? error_wrap(err, r, "HAMI_SIM") : 0;
}

static int choose_state(const char *machine, char ret_path[PATH_MAX], struct error *err)
{
    const char *chosen = environment("HAMI_RUN_DIR");
    const char *runtime = environment("XDG_RUNTIME_DIR");
    int r;

    if (chosen) {
        r = paths_absolute(chosen, ret_path, err);
        return r < 0 ? error_wrap(err, r, "HAMI_RUN_DIR") : 0;
    }
    if (*machine)
        return format_path(ret_path, err, "%s.run", machine);
    if (geteuid() == 0)
        return format_path(ret_path, err, "/run/hami");
    if (runtime)
        return format_path(ret_path, err, "%s/hami", runtime);
    return format_path(ret_path, err, "/tmp/hami-%u", (unsigned)geteuid());
}

int paths_open_state(const char *machine, char ret_path[PATH_MAX], struct error *err)
{
    struct stat st;
    int r;

    r = choose_state(machine, ret_path, err);
    if (r < 0)
        return r;

    if (mkdir(ret_path, 0700) < 0 && errno != EEXIST)
        return error_set(err, -errno,
                         "cannot make the state directory %s: %s; HAMI_RUN_DIR names another",
                         ret_path, strerror(errno));
    /* Not followed: in /tmp somebody else may have put a link there. */
    if (lstat(ret_path, &st) < 0)
        return error_set(err, -errno, "cannot use the state directory %s: %s", ret_path,
                         strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return error_set(err, -ENOTDIR, "the state directory %s is not a directory", ret_path);
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return error_set(err, -EPERM,
                         "the state directory %s is not ours alone (owner %u, mode %03o); "
                         "HAMI_RUN_DIR names another",
                         ret_path, (unsigned)st.st_uid, (unsigned)st.st_mode & 0777u);
    return 0;
}

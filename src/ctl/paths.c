/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/util.h"

static const char *environment(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
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
    return file_path(ret_path, err, "%s/%s", strcmp(resolved, "/") == 0 ? "" : resolved, name);
}

int paths_resolve(const char *path, char ret_path[PATH_MAX], struct error *err)
{
    char absolute[PATH_MAX];
    int r = paths_absolute(path, absolute, err);

    if (r < 0)
        return r;
    return realpath(absolute, ret_path) ? 0 : file_path(ret_path, err, "%s", absolute);
}

/* A path in the folder above the one that hamictl is in: PREFIX of PREFIX/bin, src of src/ctl. */
static int find_beside(const char *below, char ret_path[PATH_MAX], struct error *err)
{
    char program[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash;

    if (len < 0)
        return error_set(err, -errno, "cannot find hamictl's own folder: /proc/self/exe: %s",
                         strerror(errno));
    program[len] = '\0';
    for (int i = 0; i < 2; i++) {
        slash = strrchr(program, '/');
        if (slash)
            *slash = '\0';
    }
    return file_path(ret_path, err, "%s/%s", program, below);
}

/* $HAMI_LIBDIR, or ../lib/hami of an installation. */
static int find_folder(char ret_path[PATH_MAX], struct error *err)
{
    const char *chosen = environment("HAMI_LIBDIR");

    if (!chosen)
        return find_beside("lib/hami", ret_path, err);
    if (!realpath(chosen, ret_path))
        return error_set(err, -errno, "HAMI_LIBDIR=%s: %s", chosen, strerror(errno));
    return 0;
}

int paths_find(struct paths *ret_paths, struct error *err)
{
    char folder[PATH_MAX];
    int r;

    r = find_folder(folder, err);
    if (r < 0)
        return r;
    if (access(folder, F_OK) < 0) {
        /* Not installed: the build tree has a folder for each. */
        r = find_beside("vgpu/libvgpu.so", ret_paths->vgpu, err);
        return r < 0 ? r : find_beside("simdriver", ret_paths->sim, err);
    }
    r = file_path(ret_paths->vgpu, err, "%s/libvgpu.so", folder);
    return r < 0 ? r : file_path(ret_paths->sim, err, "%s/sim", folder);
}

int paths_find_machine(char ret_path[PATH_MAX], struct error *err)
{
    const char *machine = environment("HAMI_SIM");
    int r;

    if (!machine) {
        ret_path[0] = '\0';
        return 0;
    }
    r = paths_resolve(machine, ret_path, err);
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
        return file_path(ret_path, err, "%s.run", machine);
    if (geteuid() == 0)
        return file_path(ret_path, err, "/run/hami");
    if (runtime)
        return file_path(ret_path, err, "%s/hami", runtime);
    return file_path(ret_path, err, "/tmp/hami-%u", (unsigned)geteuid());
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
                         "cannot make the state directory %s: %s; set HAMI_RUN_DIR to a directory "
                         "of your own",
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
                         "set HAMI_RUN_DIR to a directory of your own",
                         ret_path, (unsigned)st.st_uid, (unsigned)st.st_mode & 0777u);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/region_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"

/* A look into a folder and those in it. */
struct search {
    struct region_files *files;
    struct error *err;
};

/* Whoever owns a container's folder can name a file as he likes, and the name goes to a terminal.
 * C1 controls are c2 80 to c2 9f in UTF-8. */
static bool is_printable(const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c < ' ' || *c == 0x7f || (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0))
            return false;
    }
    return true;
}

static bool is_region_name(const char *name)
{
    static const char end[] = ".cache";
    const size_t len = strlen(name);

    return len >= strlen(end) && strcmp(name + len - strlen(end), end) == 0;
}

static int add_file(struct region_files *files, const char *path, bool is_empty, struct error *err)
{
    char *own = strdup(path);

    if (!own)
        return error_set(err, -ENOMEM, "out of memory");
    files->items[files->count++] = (struct region_file){own, is_empty};
    return 0;
}

static int search_folder(struct search *search, const char *path, bool goes_on);

static int look_at(struct search *search, const char *folder, int folder_fd, const char *name,
                   bool goes_on)
{
    AUTOFREE char *path = NULL;
    struct stat st;

    if (name[0] == '.' || !is_printable(name) ||
        fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (!(S_ISDIR(st.st_mode) && goes_on) && !(S_ISREG(st.st_mode) && is_region_name(name)))
        return 0;
    if (asprintf(&path, "%s/%s", folder, name) < 0) {
        path = NULL;
        return error_set(search->err, -ENOMEM, "out of memory");
    }
    if (S_ISDIR(st.st_mode))
        return search_folder(search, path, false);
    if (search->files->count == REGION_FILES_MAX)
        return error_set(search->err, -E2BIG, "more than %d regions; name a folder with fewer",
                         REGION_FILES_MAX);
    return add_file(search->files, path, st.st_size == 0, search->err);
}

/* What goes away meanwhile is passed over; so is what a folder in the folder has too much of, else
 * one container could hide all others. */
static int search_folder(struct search *search, const char *path, bool goes_on)
{
    const size_t before = search->files->count;
    DIR *folder = opendir(path);
    size_t seen = 0;
    int r = 0;

    if (!folder && errno == ENOENT)
        return 0;
    if (!folder)
        return error_set(search->err, -errno, "%s: %s", path, strerror(errno));
    for (const struct dirent *entry = readdir(folder); entry && r == 0; entry = readdir(folder)) {
        seen++;
        if (!goes_on && (seen > REGION_FILES_SEEN_IN_ONE ||
                         search->files->count - before == REGION_FILES_IN_ONE))
            break;
        if (seen > REGION_FILES_SEEN_MAX)
            r = error_set(search->err, -E2BIG, "%s: too many files there", path);
        else
            r = look_at(search, path, dirfd(folder), entry->d_name, goes_on);
    }
    (void)closedir(folder);
    return r;
}

static int compare_files(const void *one, const void *other)
{
    return strcmp(((const struct region_file *)one)->path,
                  ((const struct region_file *)other)->path);
}

/* hamictl's state directory, as machine.run: its programs' folders stand in a folder of their own.
 */
static int search_runs(struct search *search, const char *path)
{
    AUTOFREE char *runs = NULL;
    struct stat st;

    if (asprintf(&runs, "%s/runs", path) < 0) {
        runs = NULL;
        return error_set(search->err, -ENOMEM, "out of memory");
    }
    return lstat(runs, &st) == 0 && S_ISDIR(st.st_mode) ? search_folder(search, runs, true) : 0;
}

/* "/a/" and "/a" are the same folder, and make the same paths. */
static int find_in_folder(const char *given, struct region_files *files, struct error *err)
{
    struct search search = {.files = files, .err = err};
    AUTOFREE char *path = strdup(given);
    int r;

    if (!path)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
        path[len - 1] = '\0';
    files->in_folder = true;
    r = search_folder(&search, path, true);
    if (r == 0 && !files->count)
        r = search_runs(&search, path);
    if (r == 0 && !files->count)
        r = error_set(err, -ENOENT,
                      "%s: no region there: no file *.cache, nor in a folder in it or in its runs/",
                      path);
    qsort(files->items, files->count, sizeof(*files->items), compare_files);
    return r;
}

int region_files_find(const char *path, struct region_files *ret_files, struct error *err)
{
    struct stat st;
    int r;

    ret_files->count = 0;
    ret_files->in_folder = false;
    if (stat(path, &st) < 0)
        r = add_file(ret_files, path, false, err); /* whoever reads it says why not */
    else if (S_ISDIR(st.st_mode))
        r = find_in_folder(path, ret_files, err);
    else
        r = add_file(ret_files, path, S_ISREG(st.st_mode) && st.st_size == 0, err);
    if (r < 0)
        region_files_deinit(ret_files);
    return r;
}

void region_files_deinit(struct region_files *files)
{
    while (files->count)
        free(files->items[--files->count].path);
}

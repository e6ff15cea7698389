/* SPDX-License-Identifier: Apache-2.0 */

/* Replays the inputs named on the command line, files or folders of files, through a fuzz target.
 */

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/fuzz.h"
#include "base/util.h"

#define INPUT_MAX (16 * MIB)

static int replay_file(const char *path)
{
    AUTOFREE char *text = malloc(INPUT_MAX);
    AUTOFREE uint8_t *exact = NULL;
    ssize_t len;

    if (!text)
        return -ENOMEM;
    len = file_read(path, text, INPUT_MAX);
    if (len < 0)
        return (int)len;

    /* Of its exact size, so that a sanitizer sees reads beyond it. */
    exact = malloc((size_t)len + !len);
    if (!exact)
        return -ENOMEM;
    memcpy(exact, text, (size_t)len);
    (void)LLVMFuzzerTestOneInput(exact, (size_t)len);
    return 0;
}

static int replay_folder(const char *path, unsigned *count)
{
    DIR *folder = opendir(path);
    int r = 0;

    if (!folder)
        return -errno;
    for (struct dirent *entry = readdir(folder); entry && r == 0; entry = readdir(folder)) {
        char file[PATH_MAX];

        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        r = replay_file(file);
        (*count)++;
    }
    (void)closedir(folder);
    return r;
}

static int replay(const char *path, unsigned *count)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return replay_folder(path, count);
    (*count)++;
    return replay_file(path);
}

int main(int argc, char **argv)
{
    unsigned count = 0;

    for (int i = 1; i < argc; i++) {
        int r = replay(argv[i], &count);

        if (r < 0) {
            (void)fprintf(stderr, "%s: %s\n", argv[i], strerror(-r));
            return EXIT_FAILURE;
        }
    }
    (void)printf("%u inputs replayed\n", count);
    return count ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How long it takes to start a program and see it end, in microseconds: the median of COUNT starts
 * with the caller's environment, and as many with LIBRARY preloaded, in turns.
 *
 *   start COUNT LIBRARY PROGRAM [ARGUMENT]...     prints BARE PRELOADED
 */

#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static double start_us(char **argv, char **environment)
{
    struct timespec begun, ended;
    int status;
    pid_t pid;

    clock_gettime(CLOCK_MONOTONIC, &begun);
    if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environment) != 0 ||
        waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "start: %s did not end well\n", argv[0]);
        exit(1);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    return (double)(ended.tv_sec - begun.tv_sec) * 1e6 +
           (double)(ended.tv_nsec - begun.tv_nsec) / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static char preload[4096], *preloaded[1024];
    size_t count, variables = 0;
    double *bare, *with;

    if (argc < 4 || (count = strtoul(argv[1], NULL, 0)) == 0)
        return 2;
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", argv[2]);
    preloaded[variables++] = preload;
    for (size_t i = 0; environ[i] && variables < 1023; i++)
        preloaded[variables++] = environ[i];
    bare = calloc(count, sizeof(*bare));
    with = calloc(count, sizeof(*with));
    if (!bare || !with)
        return 1;
    for (size_t i = 0; i < count; i++) {
        bare[i] = start_us(argv + 3, environ);
        with[i] = start_us(argv + 3, preloaded);
    }
    qsort(bare, count, sizeof(*bare), by_value);
    qsort(with, count, sizeof(*with), by_value);
    printf("%.1f %.1f\n", bare[count / 2], with[count / 2]);
    free(bare);
    free(with);
    return 0;
}

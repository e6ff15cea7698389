/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Asks the same thing again and again over one connection, as kube-scheduler does, and prints the
 * times of each answer in ns, sorted: p50, p99, longest. Stops after ROUNDS, or when MARKER, a
 * file, is there.
 *
 * usage: ask URL BODY-FILE ROUNDS [MARKER]
 */

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static size_t swallow(char *bytes, size_t size, size_t count, void *expected)
{
    /* An answer that says an error is none that was measured. */
    if (memmem(bytes, size * count, "\"Error\":\"\"", 10))
        *(int *)expected = 1;
    return size * count;
}

static int compare(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

static char *read_file(const char *path, size_t *ret_len)
{
    FILE *file = fopen(path, "r");
    char *text = malloc(64 << 20);

    if (!file || !text)
        exit(2);
    *ret_len = fread(text, 1, 64 << 20, file);
    (void)fclose(file);
    return text;
}

int main(int argc, char **argv)
{
    size_t len, rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 0, done = 0;
    int64_t *times = calloc(rounds + 1, sizeof(*times));
    CURL *curl = curl_easy_init();
    int expected = 0;
    char *body;

    if (!rounds || !curl || !times)
        return 2;
    body = read_file(argv[2], &len);
    curl_easy_setopt(curl, CURLOPT_URL, argv[1]);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)len);
    curl_easy_setopt(
        curl, CURLOPT_HTTPHEADER,
        curl_slist_append(curl_slist_append(NULL, "Content-Type: application/json"), "Expect:"));
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, swallow);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &expected);

    for (; done < rounds && !(argc > 4 && access(argv[4], F_OK) == 0); done++) {
        int64_t begun = clock_now_ns();

        expected = 0;
        if (curl_easy_perform(curl) != CURLE_OK || !expected) {
            fprintf(stderr, "ask: request %zu failed\n", done);
            return 1;
        }
        times[done] = clock_now_ns() - begun;
    }
    qsort(times, done, sizeof(times[0]), compare);
    printf("%zu %lld %lld %lld\n", done, (long long)times[done / 2],
           (long long)times[(done - 1) * 99 / 100], (long long)times[done - 1]);
    return 0;
}

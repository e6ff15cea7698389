/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/handshake.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/util.h"

#define TIME_FORMAT "%Y-%m-%d %H:%M:%S"

/*
 * By state, and whether kubelet counts devices; the rules' columns as in enum handshake_rule. 2.8
 * is what the vectors and the project's first documents say. 2.10 keeps an agent that kubelet
 * counts devices of, since some are honestly silent for five minutes (Biren), and knows no Deleted:
 * there a dead agent's devices come and go. Ours is 2.10's, with 2.8's Deleted.
 */
/* clang-format off */
static const enum handshake_verdict verdicts[HANDSHAKE_STATES][2][HANDSHAKE_RULES] = {
    /*                         2.8                   2.10             here */
    [HANDSHAKE_REPORTED] = {
        /* none counted */    {HANDSHAKE_ASK,        HANDSHAKE_ASK,   HANDSHAKE_ASK},
        /* some counted */    {HANDSHAKE_ASK,        HANDSHAKE_ASK,   HANDSHAKE_ASK}},
    [HANDSHAKE_ASKED] = {
        /* none counted */    {HANDSHAKE_WAIT,       HANDSHAKE_WAIT,  HANDSHAKE_WAIT},
        /* some counted */    {HANDSHAKE_WAIT,       HANDSHAKE_WAIT,  HANDSHAKE_WAIT}},
    [HANDSHAKE_SILENT] = {
        /* none counted */    {HANDSHAKE_GONE,       HANDSHAKE_GONE,  HANDSHAKE_GONE},
        /* some counted */    {HANDSHAKE_GONE,       HANDSHAKE_WAIT,  HANDSHAKE_WAIT}},
    [HANDSHAKE_DELETED] = {
        /* none counted */    {HANDSHAKE_STAYS_GONE, HANDSHAKE_ASK,   HANDSHAKE_STAYS_GONE},
        /* some counted */    {HANDSHAKE_STAYS_GONE, HANDSHAKE_ASK,   HANDSHAKE_STAYS_GONE}},
};
/* clang-format on */

/* The text between the first underscore and the next, as HAMi takes it. */
static bool read_asked(const char *value, int64_t *ret_ns)
{
    const char *from = strchr(value, '_');
    char text[HANDSHAKE_TEXT_SIZE];
    struct tm utc = {0};
    const char *end;
    size_t len;

    if (!from)
        return false;
    len = strcspn(++from, "_");
    if (len >= sizeof(text))
        return false;
    memcpy(text, from, len);
    text[len] = '\0';
    end = strptime(text, TIME_FORMAT, &utc);
    if (!end || *end || utc.tm_year < 70)
        return false;
    *ret_ns = MIN((int64_t)timegm(&utc), CLOCK_LATEST_S) * NS_PER_S;
    return true;
}

enum handshake_state handshake_read(const char *value, int64_t wall_ns, int64_t *ret_asked_ns)
{
    *ret_asked_ns = 0;
    if (!value)
        return HANDSHAKE_REPORTED;
    if (strstr(value, HANDSHAKE_REQUESTING)) {
        if (!read_asked(value, ret_asked_ns))
            return HANDSHAKE_SILENT;
        return wall_ns - *ret_asked_ns < HANDSHAKE_SILENT_NS ? HANDSHAKE_ASKED : HANDSHAKE_SILENT;
    }
    return strstr(value, HANDSHAKE_DELETED_WORD) ? HANDSHAKE_DELETED : HANDSHAKE_REPORTED;
}

enum handshake_verdict handshake_judge(enum handshake_state state, bool counted,
                                       enum handshake_rule rule)
{
    return verdicts[state][counted][rule];
}

const char *handshake_write(const char *word, int64_t wall_ns, char to[static HANDSHAKE_TEXT_SIZE])
{
    time_t seconds = wall_ns / NS_PER_S;
    struct tm utc;
    char time[24];

    if (!gmtime_r(&seconds, &utc) || !strftime(time, sizeof(time), TIME_FORMAT, &utc))
        time[0] = '\0';
    (void)snprintf(to, HANDSHAKE_TEXT_SIZE, "%.12s_%s", word, time);
    return to;
}

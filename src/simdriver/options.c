/* SPDX-License-Identifier: Apache-2.0 */

/* The options of a machine's driver by their names: one table for all who read or show them. */

#include <inttypes.h>
#include <stdio.h>

#include "base/parse.h"
#include "base/util.h"
#include "simdriver/state.h"

enum option_kind {
    OPTION_WORD,
    OPTION_DURATION,
    OPTION_AMOUNT, /* a power of two */
    OPTION_BYTES,  /* any */
    OPTION_NUMBER,
};

struct option {
    const char *key;
    enum option_kind kind;
    size_t member;        /* of struct sim_driver_spec: unsigned for words, else of 64 bits */
    const char *words[3]; /* the first one is the default; the last may be NULL */
    int64_t min, max;
    const char *wrong;
};

#define MEMBER(name) offsetof(struct sim_driver_spec, name)

static const struct option options[] = {
    {
        .key = "captures",
        .kind = OPTION_WORD,
        .member = MEMBER(captures),
        .words = {"strict", "kind"},
        .wrong = "neither strict nor kind",
    },
    {
        .key = "lost-captures",
        .kind = OPTION_WORD,
        .member = MEMBER(lost_captures),
        .words = {"end", "stay"},
        .wrong = "neither end nor stay",
    },
    {
        .key = "pids",
        .kind = OPTION_WORD,
        .member = MEMBER(pids),
        .words = {"caller", "host"},
        .wrong = "neither caller nor host",
    },
    {
        .key = "stale-handles",
        .kind = OPTION_WORD,
        .member = MEMBER(stale_handles),
        .words = {"error", "crash"},
        .wrong = "neither error nor crash",
    },
    {
        .key = "loading",
        .kind = OPTION_WORD,
        .member = MEMBER(loading),
        .words = {"lazy", "eager"},
        .wrong = "neither lazy nor eager",
    },
    {
        .key = "load-waits",
        .kind = OPTION_WORD,
        .member = MEMBER(load_waits),
        .words = {"no", "yes"},
        .wrong = "neither no nor yes",
    },
    {
        .key = "heaps",
        .kind = OPTION_WORD,
        .member = MEMBER(heaps),
        .words = {"keep", "shrink"},
        .wrong = "neither keep nor shrink",
    },
    {
        .key = "events",
        .kind = OPTION_WORD,
        .member = MEMBER(events),
        .words = {"told", "none"},
        .wrong = "neither told nor none",
    },
    {
        .key = "recovery-action",
        .kind = OPTION_WORD,
        .member = MEMBER(recovery),
        .words = {"told", "unknown"},
        .wrong = "neither told nor unknown",
    },
    {
        .key = "deferred-arrays",
        .kind = OPTION_WORD,
        .member = MEMBER(deferred),
        .words = {"yes", "no"},
        .wrong = "neither yes nor no",
    },
    {
        .key = "multicast",
        .kind = OPTION_WORD,
        .member = MEMBER(multicast),
        .words = {"no", "yes"},
        .wrong = "neither no nor yes",
    },
    {
        .key = "host-memory",
        .kind = OPTION_WORD,
        .member = MEMBER(host_memory),
        .words = {"any", "nodes"},
        .wrong = "neither any nor nodes",
    },
    {
        .key = "graph-places",
        .kind = OPTION_WORD,
        .member = MEMBER(graph_places),
        .words = {"managed", "host", "device"},
        .wrong = "none of managed, host, device",
    },
    {
        .key = "idle-streams",
        .kind = OPTION_WORD,
        .member = MEMBER(idle_streams),
        .words = {"late", "prompt"},
        .wrong = "neither late nor prompt",
    },
    {
        .key = "context-time",
        .kind = OPTION_DURATION,
        .member = MEMBER(context_time_ns),
        .max = NS_PER_S,
        .wrong = "out of range, at most 1s",
    },
    {
        .key = "granule",
        .kind = OPTION_AMOUNT,
        .member = MEMBER(granule_bytes),
        .min = SIM_ALIGN,
        .max = 64 << 20,
        .wrong = "not a power of two from 512 to 64Mi",
    },
    {
        .key = "graph-node",
        .kind = OPTION_BYTES,
        .member = MEMBER(graph_node_bytes),
        .max = 1 << 20,
        .wrong = "not an amount of memory up to 1Mi",
    },
    {
        .key = "stream",
        .kind = OPTION_BYTES,
        .member = MEMBER(stream_bytes),
        .max = 64 << 20,
        .wrong = "not an amount of memory up to 64Mi",
    },
    {
        .key = "event-resolution",
        .kind = OPTION_DURATION,
        .member = MEMBER(event_resolution_ns),
        .min = 1,
        .max = NS_PER_MS,
        .wrong = "out of range, 1ns to 1ms",
    },
    {
        .key = "queues",
        .kind = OPTION_NUMBER,
        .member = MEMBER(queues),
        .min = 1,
        .max = SIM_STREAMS,
        .wrong = "not a number of queues, 1 to 4096",
    },
    {
        .key = "clock-drift",
        .kind = OPTION_NUMBER,
        .member = MEMBER(clock_drift_ppm),
        .min = -1000,
        .max = 1000,
        .wrong = "not a number of parts in a million, -1000 to 1000",
    },
};

const char *sim_parse_duration(const char *text, int64_t *ret_ns)
{
    static const struct {
        const char *name;
        int64_t ns;
    } units[] = {{"ns", 1}, {"us", NS_PER_US}, {"ms", NS_PER_MS}, {"s", NS_PER_S}};
    size_t digits = strspn(text, "0123456789");
    char number[16];
    uint64_t count;

    if (digits >= sizeof(number))
        return "out of range, at most 1s";
    memcpy(number, text, digits);
    number[digits] = '\0';
    if (strcmp(text, "0") == 0) {
        *ret_ns = 0;
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcmp(text + digits, units[i].name) != 0 || parse_u64(number, &count) < 0)
            continue;
        if (count > (uint64_t)(NS_PER_S / units[i].ns))
            return "out of range, at most 1s";
        *ret_ns = (int64_t)count * units[i].ns;
        return NULL;
    }
    return "not a duration, as 2ms or 50us";
}

static const struct option *find_option(const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        if (strcmp(options[i].key, key) == 0)
            return &options[i];
    }
    return NULL;
}

static const char *read_word(const struct option *option, const char *value, unsigned *ret_word)
{
    for (unsigned i = 0; i < ARRAY_SIZE(option->words); i++) {
        if (!option->words[i] || strcmp(option->words[i], value) != 0)
            continue;
        *ret_word = i;
        return NULL;
    }
    return option->wrong;
}

static const char *read_amount(const struct option *option, const char *value, int64_t *ret_number)
{
    uint64_t bytes;

    if (parse_bytes(value, &bytes) < 0 || bytes > INT64_MAX)
        return option->wrong;
    *ret_number = (int64_t)bytes;
    return NULL;
}

static const char *read_signed(const struct option *option, const char *value, int64_t *ret_number)
{
    bool negative = value[0] == '-';
    uint64_t number;

    if (parse_u64(value + negative, &number) < 0 || number > INT32_MAX)
        return option->wrong;
    *ret_number = negative ? -(int64_t)number : (int64_t)number;
    return NULL;
}

static bool is_in_range(const struct option *option, int64_t value)
{
    if (option->kind == OPTION_AMOUNT && (value & (value - 1)))
        return false;
    return value >= option->min && value <= option->max;
}

const char *sim_driver_set(struct sim_driver_spec *driver, const char *key, const char *value)
{
    const struct option *option = find_option(key);
    const char *wrong;
    int64_t number = 0;

    if (!option)
        return "not an option of the simulated driver; hamictl-sim(1) lists them";
    if (option->kind == OPTION_WORD)
        return read_word(option, value, (unsigned *)((char *)driver + option->member));
    if (option->kind == OPTION_DURATION)
        wrong = sim_parse_duration(value, &number);
    else if (option->kind == OPTION_AMOUNT || option->kind == OPTION_BYTES)
        wrong = read_amount(option, value, &number);
    else
        wrong = read_signed(option, value, &number);
    if (wrong)
        return wrong;
    if (!is_in_range(option, number))
        return option->wrong;
    memcpy((char *)driver + option->member, &number, sizeof(number));
    return NULL;
}

static void print_duration(int64_t ns, char *text, size_t size)
{
    if (ns && ns % NS_PER_MS == 0)
        (void)snprintf(text, size, "%" PRId64 "ms", ns / NS_PER_MS);
    else if (ns && ns % NS_PER_US == 0)
        (void)snprintf(text, size, "%" PRId64 "us", ns / NS_PER_US);
    else
        (void)snprintf(text, size, "%" PRId64 "ns", ns);
}

bool sim_driver_option(const struct sim_driver_spec *driver, unsigned number, const char **ret_key,
                       char *ret_value, size_t size)
{
    const struct option *option;
    const char *member;
    int64_t value;

    if (number >= ARRAY_SIZE(options))
        return false;
    option = &options[number];
    member = (const char *)driver + option->member;
    *ret_key = option->key;
    if (option->kind == OPTION_WORD) {
        copy_text(ret_value, size, option->words[*(const unsigned *)member]);
        return true;
    }
    memcpy(&value, member, sizeof(value));
    if (option->kind == OPTION_DURATION)
        print_duration(value, ret_value, size);
    else
        (void)snprintf(ret_value, size, "%" PRId64, value);
    return true;
}

bool sim_driver_is_sane(const struct sim_driver_spec *driver)
{
    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        const char *member = (const char *)driver + options[i].member;
        int64_t value;

        if (options[i].kind == OPTION_WORD) {
            if (*(const unsigned *)member >= ARRAY_SIZE(options[i].words))
                return false;
            continue;
        }
        memcpy(&value, member, sizeof(value));
        if (!is_in_range(&options[i], value))
            return false;
    }
    return true;
}

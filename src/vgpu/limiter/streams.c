/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/streams.h"

#include <stddef.h>

void streams_use(struct streams *streams, const struct launch *launch, const void *thread,
                 int64_t now_ns)
{
    unsigned oldest = 0;

    for (unsigned i = 0; i < STREAMS; i++) {
        if (streams->list[i].used_ns && streams->list[i].stream == launch->stream &&
            streams->list[i].per_thread == launch->per_thread) {
            streams->list[i].thread = thread;
            streams->list[i].used_ns = now_ns;
            return;
        }
        if (streams->list[i].used_ns < streams->list[oldest].used_ns)
            oldest = i;
    }
    streams->list[oldest].stream = launch->stream;
    streams->list[oldest].per_thread = launch->per_thread;
    streams->list[oldest].thread = thread;
    streams->list[oldest].used_ns = now_ns;
}

/* thread NULL: of any. */
static unsigned list_beside(const struct streams *streams, const struct launch *launch,
                            const void *thread, int64_t since_ns, struct launch ret_others[STREAMS])
{
    unsigned count = 0;

    for (unsigned i = 0; i < STREAMS; i++) {
        if (!streams->list[i].used_ns || !launch_stream_has_handle(streams->list[i].stream) ||
            streams->list[i].stream == launch->stream || streams->list[i].used_ns < since_ns ||
            (thread && streams->list[i].thread != thread))
            continue;
        ret_others[count++] = (struct launch){.stream = streams->list[i].stream};
    }
    return count;
}

unsigned streams_beside(const struct streams *streams, const struct launch *launch,
                        int64_t since_ns, struct launch ret_others[STREAMS])
{
    return list_beside(streams, launch, NULL, since_ns, ret_others);
}

unsigned streams_beside_of_thread(const struct streams *streams, const struct launch *launch,
                                  const void *thread, int64_t since_ns,
                                  struct launch ret_others[STREAMS])
{
    return list_beside(streams, launch, thread, since_ns, ret_others);
}

unsigned streams_count(const struct streams *streams, int64_t since_ns)
{
    unsigned count = 0;

    for (unsigned i = 0; i < STREAMS; i++)
        count += streams->list[i].used_ns && streams->list[i].used_ns >= since_ns;
    return count;
}

void streams_forget(struct streams *streams, const void *stream)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        if (streams->list[i].stream == stream && stream)
            streams->list[i].used_ns = 0;
    }
}

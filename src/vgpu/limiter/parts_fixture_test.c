/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/parts_fixture.h"

struct fake_stream fake_stream;
int64_t fake_now_ns;

struct launch launch_of(uintptr_t function, uint32_t blocks)
{
    return (struct launch){
        .function = (const void *)function, .grid = {blocks, 1, 1}, .block = {128, 1, 1}};
}

bool fake_record(void *gpu, void *event, const struct launch *where)
{
    (void)gpu;
    (void)event;
    (void)where;
    fake_stream.recorded++;
    return true;
}

enum event_state fake_query(void *gpu, void *event)
{
    (void)gpu;
    (void)event;
    return fake_stream.is_done ? EVENT_DONE : EVENT_NOT_YET;
}

bool fake_stream_is_idle(void *gpu, const struct launch *where)
{
    (void)gpu;
    (void)where;
    return fake_stream.is_idle;
}

bool fake_asks_others(void *gpu)
{
    (void)gpu;
    return !fake_stream.joins;
}

bool fake_is_captured(void *gpu, const struct launch *where)
{
    (void)gpu;
    (void)where;
    return fake_stream.is_captured;
}

int64_t fake_now(void *gpu)
{
    (void)gpu;
    return fake_now_ns;
}

void *fake_no_event(void *gpu)
{
    (void)gpu;
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* The streams that were used last. */

#include "vgpu/limiter/streams.h"

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/parts_fixture.h"

static void the_streams_beside_one(void **state)
{
    static const char threads[2];
    struct streams streams = {0};
    struct launch launch = launch_of(0x1000, 1), others[STREAMS];

    (void)state;
    for (uintptr_t i = 0; i < 20; i++) { /* stream 0 is the legacy one: it can't be marked */
        launch.stream = (void *)(i * 8);
        streams_use(&streams, &launch, &threads[i % 2], (int64_t)i + 1);
    }
    assert_int_equal(streams_beside(&streams, &launch, 0, others), STREAMS - 1);
    for (unsigned i = 0; i < STREAMS - 1; i++)
        assert_true((uintptr_t)others[i].stream >= 4 * 8); /* the first four gave way */
    streams_forget(&streams, (void *)(10 * 8));
    assert_int_equal(streams_beside(&streams, &launch, 0, others), STREAMS - 2);
    assert_int_equal(streams_beside(&streams, &launch, NS_PER_S, others), 0);

    /* A thread's own: 4 to 18 without 10, and 5 to 17, for 19 is the launch's. */
    assert_int_equal(streams_beside_of_thread(&streams, &launch, &threads[0], 0, others), 7);
    assert_int_equal(streams_beside_of_thread(&streams, &launch, &threads[1], 0, others), 7);
    launch.stream = (void *)(10 * 8);
    streams_use(&streams, &launch, &threads[1], 21);
    launch.stream = (void *)(19 * 8);
    assert_int_equal(streams_beside_of_thread(&streams, &launch, &threads[1], 0, others), 8);
    streams_forget(&streams, (void *)(10 * 8));

    /* The other names of the legacy stream and of a thread's own. */
    for (uintptr_t name = 1; name <= 2; name++) {
        const struct launch unnamed = {.stream = (void *)name};

        streams_use(&streams, &unnamed, &threads[0], NS_PER_MS);
        assert_int_equal(streams_beside(&streams, &launch, 0, others), STREAMS - 2);
        streams_forget(&streams, (void *)name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_streams_beside_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"

static void memory_is_zeroed_aligned_and_apart(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
    unsigned char *last = NULL;

    (void)state;
    assert_non_null(arena);
    for (size_t size = 1; size < 1000; size += 7) {
        unsigned char *bytes = arena_alloc(arena, size);

        assert_non_null(bytes);
        assert_int_equal((uintptr_t)bytes % alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(bytes[i], 0);
        memset(bytes, 0xff, size);
        if (last)
            assert_int_equal(last[0], 0xff);
        last = bytes;
    }
}

static void the_bound_holds_and_a_reset_gives_all_back(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(100000);

    (void)state;
    for (int round = 0; round < 3; round++) {
        assert_non_null(arena_alloc(arena, 60000));
        assert_null(arena_alloc(arena, 60000));
        assert_non_null(arena_alloc(arena, 30000));
        assert_null(arena_alloc(arena, SIZE_MAX));
        assert_null(arena_alloc_array(arena, SIZE_MAX / 2, 4));
        assert_int_equal(arena_used(arena), 90000);
        arena_reset(arena);
        assert_int_equal(arena_used(arena), 0);
        assert_non_null(arena_alloc(arena, 0));
        arena_reset(arena);
    }
}

static void going_back_keeps_what_was_there_before(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
    struct arena_mark start = arena_mark(arena), mark;
    char *kept;

    (void)state;
    kept = arena_strdup(arena, "kept");
    mark = arena_mark(arena);
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 10; k++)
            memset(arena_alloc(arena, 10000), 0xff, 10000);
        arena_rewind(arena, mark);
    }
    assert_string_equal(kept, "kept");
    assert_int_equal(arena_used(arena), 16);
    arena_rewind(arena, start);
    assert_int_equal(arena_used(arena), 0);
    assert_string_equal(arena_strdup(arena, "again"), "again");
}

static void text_is_copied_and_formatted(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(64);

    (void)state;
    assert_string_equal(arena_strdup(arena, "GPU-a"), "GPU-a");
    assert_string_equal(arena_strndup(arena, "GPU-a", 3), "GPU");
    assert_string_equal(arena_printf(arena, "%s %d", "n", 7), "n 7");
    assert_null(arena_strdup(arena, "much longer than what is left of it"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_apart),
        cmocka_unit_test(the_bound_holds_and_a_reset_gives_all_back),
        cmocka_unit_test(going_back_keeps_what_was_there_before),
        cmocka_unit_test(text_is_copied_and_formatted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Measured intervals that overlap: no moment is charged twice. */

#include "vgpu/limiter/overlap.h"

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/lot.h"
#include "vgpu/limiter/parts_fixture.h"

static void a_moment_is_charged_once(void **state)
{
    struct cover cover = {0};

    (void)state;
    assert_near(cover_take(&cover, (struct interval){10, 20}), 10, 1e-9);
    assert_near(cover_take(&cover, (struct interval){15, 25}), 5, 1e-9);
    assert_near(cover_take(&cover, (struct interval){12, 24}), 0, 1e-9);
    assert_near(cover_take(&cover, (struct interval){5, 30}), 10, 1e-9);
    assert_near(cover_take(&cover, (struct interval){40, 40}), 0, 0);
    assert_near(cover_take(&cover, (struct interval){50, 40}), 0, 0);
    assert_near(cover_open(&cover, (struct interval){0, 100}), 75, 1e-9);
    assert_near(cover_open(&cover, (struct interval){50, 40}), 0, 0);
}

static void intervals_in_any_order_add_up_to_their_union(void **state)
{
    struct lot lot = {.state = 7};

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        struct cover cover = {0};
        bool covered[100] = {0};
        double sum = 0;
        unsigned expected = 0;

        for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
            unsigned start = (unsigned)(lot_draw(&lot) * 100);
            unsigned end = start + (unsigned)(lot_draw(&lot) * (100 - start));

            sum += cover_take(&cover, (struct interval){start, end});
            for (unsigned j = start; j < end; j++)
                covered[j] = true;
        }
        for (unsigned j = 0; j < 100; j++)
            expected += covered[j];
        assert_near(sum, expected, 1e-6);
    }
}

static void assert_rest(const struct cover *cover, struct interval of, struct interval wanted)
{
    const struct interval rest = cover_rest(cover, of);

    assert_near(rest.start_ms, wanted.start_ms, 0);
    assert_near(rest.end_ms, wanted.end_ms, 0);
}

static void what_is_left_is_between_what_was_covered_before(void **state)
{
    struct cover cover = {0};

    (void)state;
    (void)cover_take(&cover, (struct interval){10, 20});
    (void)cover_take(&cover, (struct interval){30, 40});
    assert_rest(&cover, (struct interval){15, 35}, (struct interval){20, 30});
    assert_rest(&cover, (struct interval){20, 25}, (struct interval){20, 25});
    assert_rest(&cover, (struct interval){5, 35}, (struct interval){5, 30});
    assert_rest(&cover, (struct interval){5, 50}, (struct interval){5, 50});
    assert_rest(&cover, (struct interval){50, 60}, (struct interval){50, 60});
    /* Nothing is left. */
    assert_true(cover_rest(&cover, (struct interval){12, 18}).start_ms >= 18);
}

/* What another cover has of an interval is not taken, nor returned. */
static void what_another_cover_has_is_left_out(void **state)
{
    struct lot lot = {.state = 7};

    (void)state;
    for (unsigned round = 0; round < 500; round++) {
        struct cover cover = {0}, other = {0};
        unsigned bounds[6][2], expected = 0;
        bool taken[100] = {0};

        for (unsigned i = 0; i < ARRAY_SIZE(bounds); i++) {
            bounds[i][0] = (unsigned)(lot_draw(&lot) * 100);
            bounds[i][1] = bounds[i][0] + (unsigned)(lot_draw(&lot) * (100 - bounds[i][0]));
            if (i < 3)
                (void)cover_take(&other, (struct interval){bounds[i][0], bounds[i][1]});
            else if (i < 5)
                (void)cover_take(&cover, (struct interval){bounds[i][0], bounds[i][1]});
            for (unsigned j = bounds[i][0]; j < bounds[i][1]; j++) {
                expected += i == 5 && !taken[j];
                taken[j] = true;
            }
        }
        assert_near(
            cover_take_beside(&cover, &other, (struct interval){bounds[5][0], bounds[5][1]}),
            expected, 1e-6);
        /* All of it is in one of the two. */
        assert_near(
            cover_take_beside(&cover, &other, (struct interval){bounds[5][0], bounds[5][1]}), 0,
            1e-6);
    }
}

static void covers_are_moved_with_the_base(void **state)
{
    struct overlap overlap = {0};

    (void)state;
    (void)cover_take(&overlap.always, (struct interval){10, 20});
    (void)cover_take(&overlap.shorts, (struct interval){30, 40});
    overlap_move(&overlap, 8);
    assert_near(cover_open(&overlap.always, (struct interval){0, 20}), 10, 1e-9);
    assert_near(cover_open(&overlap.always, (struct interval){2, 12}), 0, 1e-9);
    assert_near(cover_open(&overlap.shorts, (struct interval){22, 32}), 0, 1e-9);
}

static void short_kernels_overlap_as_those_measured_did(void **state)
{
    struct overlap overlap = {0};

    (void)state;
    assert_near(overlap_factor(&overlap), 1, 0);
    for (unsigned i = 0; i < 1000; i++)
        overlap_note(&overlap, 30e3, 10e3);
    assert_near(overlap_factor(&overlap), 1.0 / 3, 0.001);
    for (unsigned i = 0; i < 200; i++)
        overlap_note(&overlap, 30e3, 30e3);
    assert_near(overlap_factor(&overlap), 1, 0.03);
}

static double filled_after(double beside_ns, double longer_ns)
{
    struct overlap overlap = {0};

    for (unsigned i = 0; i < 1000; i++)
        overlap_note_longer(&overlap, beside_ns, longer_ns);
    return overlap_filled(&overlap);
}

/* As much longer as they ran beside others, and not at all, with what may be chance. */
static void kernels_that_take_longer_beside_others_fill_the_device(void **state)
{
    struct overlap overlap = {0};

    (void)state;
    assert_near(overlap_filled(&overlap), 0, 0);
    assert_near(filled_after(100e3, 0), 0, 0);
    assert_near(filled_after(100e3, -20e3), 0, 0);
    assert_near(filled_after(100e3, 55e3), 0, 0);
    assert_near(filled_after(100e3, 72.5e3), 0.5, 1e-9);
    assert_near(filled_after(100e3, 94e3), 1, 0); /* as seen on an H200 */
    assert_near(filled_after(100e3, 120e3), 1, 0);
    for (unsigned i = 0; i < 1000; i++)
        overlap_note_longer(&overlap, 100e3, 100e3);
    for (unsigned i = 0; i < 600; i++)
        overlap_note_longer(&overlap, 100e3, 0);
    assert_near(overlap_filled(&overlap), 0, 0); /* the former ones are forgotten */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moment_is_charged_once),
        cmocka_unit_test(intervals_in_any_order_add_up_to_their_union),
        cmocka_unit_test(what_is_left_is_between_what_was_covered_before),
        cmocka_unit_test(what_another_cover_has_is_left_out),
        cmocka_unit_test(covers_are_moved_with_the_base),
        cmocka_unit_test(short_kernels_overlap_as_those_measured_did),
        cmocka_unit_test(kernels_that_take_longer_beside_others_fill_the_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

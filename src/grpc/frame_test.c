/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "grpc/h2.h"

static void a_message_comes_in_any_pieces(void **state)
{
    static const uint8_t bytes[] = {0, 0, 0, 0, 4, 'w', 'x', 'y', 'z'};

    (void)state;
    for (size_t piece = 1; piece <= sizeof(bytes); piece++) {
        struct grpc_frame frame = {.max = 4};
        size_t len;
        int r = 0;

        for (size_t at = 0; at < sizeof(bytes); at += piece) {
            assert_false(grpc_frame_is_done(&frame));
            r = grpc_frame_add(&frame, bytes + at, MIN(piece, sizeof(bytes) - at));
        }
        assert_int_equal(r, GRPC_FRAME_DONE);
        assert_memory_equal(grpc_frame_message(&frame, &len), "wxyz", 4);
        assert_int_equal(len, 4);
        grpc_frame_deinit(&frame);
    }
}

static void streams_that_are_not_one_plain_message_are_refused(void **state)
{
    static const struct {
        uint8_t bytes[8];
        size_t len;
        int r;
    } cases[] = {
        {{1, 0, 0, 0, 1}, 5, -EPROTO},         {{0, 0, 0, 0, 5}, 5, -EFBIG},
        {{0, 255, 255, 255, 255}, 5, -EFBIG},  {{0, 0, 0, 0, 1, 'a', 'b'}, 7, -EPROTO},
        {{0, 0, 0, 0, 0}, 5, GRPC_FRAME_DONE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct grpc_frame frame = {.max = 4};

        assert_int_equal(grpc_frame_add(&frame, cases[i].bytes, cases[i].len), cases[i].r);
        grpc_frame_deinit(&frame);
    }
}

static void reasons_survive_the_header(void **state)
{
    char encoded[64], decoded[64];

    (void)state;
    grpc_encode_message("100 % of \xc3\xa9\n", encoded, sizeof(encoded));
    assert_string_equal(encoded, "100 %25 of %C3%A9%0A");
    grpc_decode_message(encoded, strlen(encoded), decoded, sizeof(decoded));
    assert_string_equal(decoded, "100 % of \xc3\xa9\n");
    grpc_decode_message("50%", 3, decoded, sizeof(decoded));
    assert_string_equal(decoded, "50%");
    grpc_decode_message("a long reason", 13, decoded, 5);
    assert_string_equal(decoded, "a lo");
    grpc_encode_message("\n\n\n", encoded, 7);
    assert_string_equal(encoded, "%0A%0A");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_comes_in_any_pieces),
        cmocka_unit_test(streams_that_are_not_one_plain_message_are_refused),
        cmocka_unit_test(reasons_survive_the_header),
    };

    return cmocka_run_group_tests_name("grpc frame", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes are objects of a list or of a watch, or an error: each object that is cut out lies in
 * the input, and the texts that are read of it are bounded. The first byte chooses list or watch
 * and how the rest comes in pieces.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "base/util.h"
#include "kube/event.h"
#include "kube/split.h"

static void check_object(int what, char *text, size_t len, bool is_list)
{
    struct error err = ERROR_INIT;
    struct list_end end;
    struct event event;
    yyjson_doc *doc;

    if (text[len] != '\0')
        abort();
    doc = yyjson_read_opts(text, len, YYJSON_READ_INSITU, NULL, NULL);
    if (!doc)
        return;
    if (what == SPLIT_ENVELOPE) {
        if (event_read_envelope(yyjson_doc_get_root(doc), &end, &err) == 0 &&
            (!end.version[0] || strlen(end.continue_token) >= EVENT_CONTINUE_SIZE))
            abort();
    } else if (!is_list && event_read(yyjson_doc_get_root(doc), &event, &err) == 0) {
        if (strlen(event.version) >= EVENT_VERSION_SIZE || !event.message)
            abort();
    }
    yyjson_doc_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool is_list = size && (data[0] & 1);
    size_t piece = size ? (size_t)(data[0] >> 1) + 1 : 1;
    struct split split = {0};
    size_t at = 1;
    int r = SPLIT_MORE;

    split_begin(&split, is_list);
    while (at < size && r > 0) {
        size_t len = MIN(piece, size - at), text_len;
        const char *bytes = (const char *)data + at;
        char *text;

        at += len;
        while (len && r > 0) {
            r = split_next(&split, &bytes, &len, &text, &text_len);
            if (r == SPLIT_OBJECT || r == SPLIT_ENVELOPE)
                check_object(r, text, text_len, is_list);
        }
    }
    split_deinit(&split);
    return 0;
}

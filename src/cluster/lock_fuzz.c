/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a lock's value, or a handshake: agents write both, and so may whoever may write
 * nodes. */

#include "cluster/lock.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "base/util.h"
#include "vendor/handshake.h"

/* What is read is written the same, but for the time's fraction and zone. */
static void check_lock(const char *text)
{
    struct strbuf again = STRBUF_INIT(4096);
    struct lock_value value, second;

    lock_value_read(text, &value);
    if (!value.readable && value.holder.name[0])
        abort();
    if (!value.holder.name[0] != !value.holder.namespace[0])
        abort();
    if (value.readable && value.holder.name[0]) {
        lock_value_write(&vendor_mutex_lock, &value.holder, value.written_ns, &again);
        lock_value_read(strbuf_text(&again), &second);
        if (!second.readable || second.written_ns != value.written_ns ||
            !lock_value_names(&second, &value.holder))
            abort();
    }
    strbuf_deinit(&again);
}

static void check_handshake(const char *text)
{
    int64_t asked_ns;
    enum handshake_state state = handshake_read(text, INT64_C(1) << 60, &asked_ns);

    if (state < HANDSHAKE_REPORTED || state >= HANDSHAKE_STATES || asked_ns < 0)
        abort();
    if (state == HANDSHAKE_REPORTED && strstr(text, HANDSHAKE_REQUESTING))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);

    if (!text)
        return 0;
    check_lock(text);
    check_handshake(text);
    free(text);
    return 0;
}

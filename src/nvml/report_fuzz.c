/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a report that reads back the same when it is written again, or none. */

#include "nvml/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(strbuf_deinit) struct strbuf once = STRBUF_INIT(1 << 20), again = STRBUF_INIT(1 << 20);
    struct nvml_card cards[8];
    int count = nvml_report_parse((const char *)data, size, cards, 8);

    if (count < 0)
        return 0;
    nvml_report_format(cards, (size_t)count, &once);
    if (once.failed || nvml_report_parse(once.text, once.len, cards, 8) != count)
        abort();
    nvml_report_format(cards, (size_t)count, &again);
    if (strcmp(once.text, again.text) != 0)
        abort();
    return 0;
}

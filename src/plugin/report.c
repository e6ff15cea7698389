/* SPDX-License-Identifier: Apache-2.0 */

/* Writes NVML's report of the cards for the monitor, which has no access to them. */

#include "nvml/report.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "plugin/plugin.h"

void plugin_report(const struct plugin *plugin, struct nvml *nvml)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(NVML_REPORT_MAX);
    struct nvml_card cards[CARDS_MAX];
    char path[PATH_MAX + 32];
    int count;

    count = nvml_read_cards(nvml, cards, CARDS_MAX, NULL);
    if (count < 0)
        return; /* the former report stays, and grows old */
    nvml_report_format(cards, (size_t)count, &text);
    (void)snprintf(path, sizeof(path), "%s/" NVML_REPORT_FILE, plugin->host.hook_path);
    if (text.failed || file_replace(path, text.text, text.len, 0644) < 0)
        log_debug("%s can't be written", path);
}

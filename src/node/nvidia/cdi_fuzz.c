/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a specification whose edits make one of ours that is JSON and reads back, or none. */

#include "node/nvidia/cdi.h"

#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "base/fuzz.h"
#include "base/util.h"
#include "node/nvidia/edits.h"

static void lay_in(const struct cdi_choice *choice)
{
    static struct nvidia_config config;
    const struct node_host host = {.hook_path = "/h"};
    const struct guest guest = {.host = &host, .library = "/h/l"};
    const struct edits_source source = {.config = &config, .guest = &guest, .dev_root = ""};
    const struct container_grant grant = {
        .pod_uid = "u", .container = "c", .device_count = 1, .devices = {{.uuid = "GPU-a"}}};
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(64 << 20);
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    struct spec_owner owner;
    yyjson_doc *doc;

    edits_add(&source, &grant, choice, "/h/containers/u_c", "r", &edits);
    if (spec_format("u", "c", "a0123456789abcdef", &edits, &text) < 0)
        return;
    doc = yyjson_read(text.text, text.len, 0);
    if (!doc)
        abort();
    yyjson_doc_free(doc);
    if (spec_read(text.text, text.len, &owner) < 0 || strcmp(owner.pod_uid, "u") != 0 ||
        strcmp(owner.container, "c") != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
    struct cdi_choice choice = {.count = 0};
    struct error err = ERROR_INIT;
    const struct cdi_device *devices;
    struct cdi_spec spec;

    if (!arena)
        return 0;
    if (cdi_spec_parse("fuzz", (const char *)data, size, arena, &spec, &err) < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    devices = spec.devices.items;
    choice.parts[choice.count++] = &spec.edits;
    for (size_t i = 0; i < spec.devices.count && i < 4; i++)
        choice.parts[choice.count++] = &devices[i].edits;
    lay_in(&choice);
    return 0;
}

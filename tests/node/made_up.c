/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A device plugin for a vendor that is made up: whole cards with a device node each and nothing of
 * NVIDIA's, of two kinds, which are two resources. The cards are the lines "UUID KIND ok|sick" of
 * the file $MADE_UP, KIND 0 or 1.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/util.h"
#include "plugin/plugin.h"

static int made_up_start(const struct node_setup *setup, void **ret_node,
                         struct node_offer *ret_offer, struct error *err)
{
    (void)setup;
    *ret_node = getenv("MADE_UP");
    *ret_offer = (struct node_offer){
        .resources = {{"acme.example/made-up", "made-up.sock"},
                      {"acme.example/made-up-large", "made-up-large.sock"}},
        .resource_count = 2,
    };
    return *ret_node ? 0 : error_set(err, -EINVAL, "MADE_UP names no file");
}

static void made_up_stop(void *node)
{
    (void)node;
}

static int made_up_find(void *node, const struct cards *known, struct cards *ret_cards,
                        struct error *err)
{
    FILE *file = fopen(node, "re");
    char uuid[DEVICE_UUID_SIZE] = "", state[8] = "";
    unsigned kind;

    *ret_cards = known ? *known : (struct cards){.count = 0};
    if (!file) {
        cards_set_unhealthy(ret_cards, "its file is not there");
        return error_set(err, -errno, "%s: %s", (const char *)node, strerror(errno));
    }
    ret_cards->count = 0;
    while (ret_cards->count < CARDS_MAX && fscanf(file, "%95s %u %7s", uuid, &kind, state) == 3) {
        struct card *card = &ret_cards->items[ret_cards->count];

        *card = (struct card){
            .type = "Made-Up",
            .index = (unsigned)ret_cards->count++,
            .resource = kind,
            .memory_mib = 1000,
            .cores = 100,
            .max_tasks = 1,
            .healthy = strcmp(state, "ok") == 0,
        };
        COPY_TEXT(card->uuid, uuid);
    }
    ret_cards->present = ret_cards->count;
    (void)fclose(file);
    return 0;
}

static int made_up_annotate(void *node, const struct cards *cards, struct arena *arena,
                            struct node_note ret_notes[NODE_NOTES_MAX])
{
    struct strbuf text = STRBUF_IN(arena, 4096);

    (void)node;
    for (size_t i = 0; i < cards->count; i++)
        strbuf_addf(&text, "%s=%s ", cards->items[i].uuid, cards->items[i].healthy ? "ok" : "sick");
    if (text.failed)
        return -ENOMEM;
    ret_notes[0] = (struct node_note){"acme.example/registered", strbuf_text(&text)};
    return 1;
}

static void made_up_describe(void *node, const char *why_no_cards, const char *handler,
                             struct node_condition *ret_condition)
{
    (void)node;
    (void)handler;
    *ret_condition = (struct node_condition){.ready = !why_no_cards, .reason = "MadeUp"};
    COPY_TEXT(ret_condition->message, why_no_cards ? why_no_cards : "nothing is needed");
}

static int made_up_prepare(void *node, const struct container_grant *grant,
                           const struct cards *cards, const char *folder, struct spec_edits *edits,
                           struct error *err)
{
    char path[64], file[PATH_MAX];
    int r;

    (void)node;
    (void)cards;
    r = file_path(file, err, "%s/made-up", folder);
    if (r == 0)
        r = host_write_file(file, "x", 1, 0444, err);
    for (size_t i = 0; i < grant->device_count && r == 0; i++) {
        (void)snprintf(path, sizeof(path), "/dev/made-up%u", grant->devices[i].index);
        spec_add_node(edits, path, path);
    }
    return r;
}

/* It has no parts; that they are too many says the file $MADE_UP.full. */
static enum node_want made_up_want(void *node, const char *const *names, size_t count, bool all)
{
    char path[PATH_MAX];

    (void)names;
    (void)count;
    (void)all;
    return file_path(path, NULL, "%s.full", (const char *)node) == 0 && access(path, F_OK) == 0
               ? NODE_WANT_FULL
               : NODE_WANT_SAME;
}

static const struct node_vendor made_up = {
    .name = "Made-Up",
    .allocated_key = "acme.example/allocated",
    .to_allocate_key = "acme.example/to-allocate",
    .start = made_up_start,
    .stop = made_up_stop,
    .find = made_up_find,
    .want = made_up_want,
    .annotate = made_up_annotate,
    .describe = made_up_describe,
    .prepare = made_up_prepare,
};

/* made_up FOLDER KUBECONFIG READY-FILE */
int main(int argc, char **argv)
{
    struct plugin_options options = {.node_name = "node-1", .assume_cdi = true};
    char paths[4][PATH_MAX];

    if (argc != 4)
        return 2;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        static const char *const names[] = {"vgpu", "cdi", "kubelet/kubelet.sock",
                                            "kubelet/podresources.sock"};

        (void)snprintf(paths[i], sizeof(paths[i]), "%s/%s", argv[1], names[i]);
    }
    options.hook_path = paths[0];
    options.cdi_dir = paths[1];
    options.kubelet_socket = paths[2];
    options.pod_resources_socket = paths[3];
    options.kubeconfig = argv[2];
    options.ready_file = argv[3];
    options.node_capacity = true; /* which this vendor has none of */
    return plugin_run(&options, &made_up, NULL) < 0;
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the vendors' pages show works: each page's section of the device configuration is read, each
 * of its nodes has devices, and each of its pods is admitted, asks for devices and fits, with
 * annotations that say so. A page without a section is read with the configuration of the test.
 */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admit/admit.h"
#include "base/check.h"
#include "base/file.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "config/device_config.h"
#include "config/yaml_section.h"
#include "model/json.h"
#include "model/node.h"
#include "place/place.h"

enum {
    PAGE_MAX = 256 << 10,
    DOCUMENTS_MAX = 32,
    NODES_MAX = 8,
    DEPTH_MAX = 64,
};

/* One YAML document of a page. */
struct document {
    const char *text;
    struct section root;
};

struct page {
    const char *name;
    struct arena *arena;
    struct document documents[DOCUMENTS_MAX];
    size_t count;
    struct device_config config;
    struct vendor_set vendors;
    struct place_node nodes[NODES_MAX];
    size_t node_count;
};

static const char *folder, *default_config;

/* YAML as JSON; every single value is a text, which Kubernetes' quantities and ours may be. */
static void add_json(struct strbuf *json, const struct section *value, unsigned depth)
{
    assert_true(depth < DEPTH_MAX);
    if (value->kind == SECTION_NOTHING)
        strbuf_add(json, "null");
    if (value->kind == SECTION_TEXT)
        strbuf_add_json(json, value->text);
    if (value->kind != SECTION_LIST && value->kind != SECTION_KEYS)
        return;
    strbuf_add(json, value->kind == SECTION_LIST ? "[" : "{");
    for (size_t i = 0; i < value->count; i++) {
        strbuf_add(json, i ? "," : "");
        if (value->kind == SECTION_KEYS) {
            strbuf_add_json(json, value->names[i].text);
            strbuf_add(json, ":");
        }
        add_json(json, &value->items[i], depth + 1);
    }
    strbuf_add(json, value->kind == SECTION_LIST ? "]" : "}");
}

static yyjson_val *to_json(struct page *page, const struct section *root)
{
    struct strbuf json = STRBUF_IN(page->arena, PAGE_MAX);
    yyjson_val *value;

    add_json(&json, root, 0);
    assert_int_equal(
        json_parse(strbuf_text(&json), strlen(strbuf_text(&json)), page->arena, &value, NULL), 0);
    return value;
}

/* "" when it has none. */
static const char *kind_of(const struct document *document)
{
    for (size_t i = 0; document->root.kind == SECTION_KEYS && i < document->root.count; i++) {
        if (strcmp(document->root.names[i].text, "kind") == 0)
            return document->root.items[i].text;
    }
    return "";
}

static void add_document(struct page *page, const char *text, size_t len)
{
    struct document *document = &page->documents[page->count++];
    struct error err = ERROR_INIT;
    const struct section_reading reading = {.file = page->name, .err = &err};

    assert_true(page->count < DOCUMENTS_MAX);
    document->text = arena_strndup(page->arena, text, len);
    if (yaml_section_read(&reading, document->text, len, page->arena, &document->root) < 0)
        fail_msg("%s", err.text);
}

/* A block may hold several documents. */
static void add_block(struct page *page, const char *text, const char *end)
{
    while (text < end) {
        const char *next = strstr(text, "\n---\n");
        const char *stop = next && next < end ? next + 1 : end;

        add_document(page, text, (size_t)(stop - text));
        text = stop < end ? stop + strlen("---\n") : end;
    }
}

static void read_blocks(struct page *page, const char *text)
{
    static const char begin[] = "\n```yaml\n", end[] = "\n```";

    while ((text = strstr(text, begin))) {
        const char *stop;

        text += strlen(begin);
        stop = strstr(text, end);
        assert_non_null(stop);
        add_block(page, text, stop + 1);
        text = stop + strlen(end);
    }
}

static void read_config(struct page *page)
{
    struct error err = ERROR_INIT;
    int r = 1;

    for (size_t i = 0; i < page->count && r > 0; i++) {
        const char *text = page->documents[i].text;

        if (!*kind_of(&page->documents[i]))
            r = device_config_parse(page->name, text, strlen(text), &page->config, &err);
    }
    if (r > 0)
        r = device_config_load(default_config, &page->config, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    assert_int_equal(device_config_vendors(&page->config, &page->vendors), 0);
    assert_true(page->vendors.count > 0);
}

static void add_node(struct page *page, const struct document *document)
{
    struct place_node *place_node = &page->nodes[page->node_count++];
    struct device *devices = ARENA_ARRAY(page->arena, struct device, PLACE_MAX_DEVICES);
    struct error err = ERROR_INIT;
    size_t count = 0;
    struct node node;

    assert_true(page->node_count < NODES_MAX);
    assert_int_equal(
        node_read(to_json(page, &document->root), &page->vendors.kept, page->arena, &node, NULL),
        0);
    for (size_t i = 0; i < page->vendors.count; i++) {
        const struct vendor_instance *instance = &page->vendors.instances[i];
        size_t added = 0;
        int r = instance->vendor->read_node(instance, &node, page->arena, devices + count,
                                            PLACE_MAX_DEVICES - count, &added, &err);

        if (r != CODEC_EXACT && r != -ENOENT)
            fail_msg("%s: %s: %s", page->name, node.name, err.text);
        if (added && !vendor_is_alive(instance, &node))
            fail_msg("%s: %s: its agent is away", page->name, node.name);
        if (vendor_prepare_bind(instance, &node) == &vendor_mutex_lock)
            assert_true(instance->vendor->shares_lock);
        count += added;
    }
    assert_true(count > 0);
    *place_node =
        (struct place_node){.name = node.name, .devices = devices, .device_count = (uint32_t)count};
    place_node_update(place_node);
}

/* As the webhook leaves it. */
static yyjson_val *admit(struct page *page, yyjson_val *value)
{
    static const struct admit_options options = {"hami-scheduler", true};
    yyjson_alc alc = json_alc(page->arena);
    yyjson_patch_err wrong = {0};
    struct admit_answer answer;
    yyjson_mut_doc *doc;
    yyjson_mut_val *patched;
    yyjson_val *steps;
    struct pod pod;
    int r;

    assert_int_equal(pod_read(value, &page->vendors.kept, page->arena, &pod, NULL), 0);
    r = admit_pod(&options, &page->vendors, &pod, page->arena, &answer);
    if (r != ADMIT_PATCHED)
        fail_msg("%s: pod %s is not given to us: %s", page->name, pod.name, answer.message);
    if (answer.warning)
        fail_msg("%s: pod %s: %s", page->name, pod.name, answer.warning);
    assert_int_equal(json_parse(answer.patch, strlen(answer.patch), page->arena, &steps, NULL), 0);
    doc = yyjson_mut_doc_new(&alc);
    patched = yyjson_patch(doc, value, steps, &wrong);
    assert_non_null(patched);
    return yyjson_doc_get_root(yyjson_mut_val_imut_copy(patched, &alc));
}

static void check_written(struct page *page, const struct pod *pod, const struct place_node *node,
                          const struct placement *placement)
{
    for (size_t i = 0; i < placement->vendor_count; i++) {
        struct text_pair pairs[VENDOR_MAX_ANNOTATIONS];
        const struct vendor_instance *instance = vendor_of(placement->vendors[i].vendor);
        const struct vendor_grant grant = {
            .pod = pod,
            .node = node->name,
            .devices = node->devices,
            .device_count = node->device_count,
            .given = &placement->vendors[i].devices,
        };
        int count = vendor_write_annotations(instance, &grant, page->arena, pairs);

        assert_true(count > 0);
        assert_non_null(
            text_pairs_get(&(struct text_pairs){pairs, (size_t)count}, instance->allocated_key));
    }
}

/* Pods of a page stay where they are: all of them fit together. */
static void place(struct page *page, const struct pod *pod, const struct demand *demand)
{
    const struct place_options options = {.node_order = PLACE_BINPACK};
    const struct place_node *nodes[NODES_MAX];
    struct placement placement;
    size_t position = 0;

    for (size_t i = 0; i < page->node_count; i++)
        nodes[i] = &page->nodes[i];
    if (place_choose(nodes, page->node_count, demand, &options, page->arena, &position,
                     &placement) != PLACE_FITS)
        fail_msg("%s: pod %s does not fit", page->name, pod->name);
    check_written(page, pod, nodes[position], &placement);
    assert_int_equal(place_usage_charge(page->nodes[position].devices,
                                        page->nodes[position].device_count, &placement.usage),
                     0);
    place_node_update(&page->nodes[position]);
}

static void check_pod(struct page *page, const struct document *document)
{
    yyjson_val *value = admit(page, to_json(page, &document->root));
    struct demand demand;
    struct pod pod;

    assert_int_equal(pod_read(value, &page->vendors.kept, page->arena, &pod, NULL), 0);
    assert_string_equal(pod.scheduler_name, "hami-scheduler");
    if (vendor_read_demand(&page->vendors, &pod, page->arena, &demand) != 1)
        fail_msg("%s: pod %s asks for no device", page->name, pod.name);
    if (page->node_count)
        place(page, &pod, &demand);
}

static void check_page(const char *name, const char *text)
{
    struct page *page = calloc(1, sizeof(*page));
    size_t pods = 0;

    print_message("%s\n", name);
    assert_non_null(page);
    page->name = name;
    page->arena = arena_new(64 << 20);
    read_blocks(page, text);
    read_config(page);
    for (size_t i = 0; i < page->count; i++) {
        if (strcmp(kind_of(&page->documents[i]), "Node") == 0)
            add_node(page, &page->documents[i]);
    }
    for (size_t i = 0; i < page->count; i++) {
        if (strcmp(kind_of(&page->documents[i]), "Pod") != 0)
            continue;
        check_pod(page, &page->documents[i]);
        pods++;
    }
    if (!pods)
        fail_msg("%s: no pod", name);
    if (!page->node_count)
        fail_msg("%s: no node", name);
    device_config_deinit(&page->config);
    arena_free(page->arena);
    free(page);
}

static char *read_page(const char *name)
{
    char *text = malloc(PAGE_MAX + 1), path[512];
    ssize_t len;

    assert_non_null(text);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    len = file_read(path, text, PAGE_MAX);
    assert_true(len > 0);
    text[len] = '\0';
    return text;
}

static bool is_page(const char *name)
{
    const char *end = strrchr(name, '.');

    return end && strcmp(end, ".md") == 0 && strcmp(name, "README.md") != 0;
}

static void what_the_pages_show_works(void **state)
{
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    size_t pages = 0;

    (void)state;
    assert_non_null(directory);
    while ((entry = readdir(directory))) {
        char *text;

        if (!is_page(entry->d_name))
            continue;
        text = read_page(entry->d_name);
        check_page(entry->d_name, text);
        free(text);
        pages++;
    }
    (void)closedir(directory);
    assert_true(pages > 0);
}

/* NVIDIA's examples stand where its resources are explained. */
static void what_the_page_about_pods_shows_works(void **state)
{
    char *text = read_page("../pods.md");

    (void)state;
    check_page("../pods.md", text);
    free(text);
}

static void the_index_names_each_page(void **state)
{
    DIR *directory = opendir(folder);
    char *index = read_page("README.md"), link[300];
    const struct dirent *entry;

    (void)state;
    assert_non_null(directory);
    while ((entry = readdir(directory))) {
        if (!is_page(entry->d_name))
            continue;
        (void)snprintf(link, sizeof(link), "](%.255s)", entry->d_name);
        if (!strstr(index, link))
            fail_msg("%s is not in the index", entry->d_name);
    }
    (void)closedir(directory);
    free(index);
}

/* pages_test FOLDER CONFIGURATION */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_pages_show_works),
        cmocka_unit_test(what_the_page_about_pods_shows_works),
        cmocka_unit_test(the_index_names_each_page),
    };

    if (argc < 3)
        return EXIT_FAILURE;
    folder = argv[1];
    default_config = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

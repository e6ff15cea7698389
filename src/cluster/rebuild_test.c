/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/rebuild_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "model/json.h"

enum {
    TEXT_MAX = 64 << 20,
    LINES_MAX = 10000,
};

static void set_object(struct cluster *to, const struct vendor_set *vendors, yyjson_val *object,
                       struct arena *arena)
{
    const char *kind = yyjson_get_str(yyjson_obj_get(object, "kind"));
    struct quota quota;
    struct node node;
    struct pod pod;

    if (strcmp(kind, "Node") == 0) {
        assert_int_equal(node_read(object, &vendors->kept, arena, &node, NULL), 0);
        (void)cluster_set_node(to, &node, NULL);
    } else if (strcmp(kind, "Pod") == 0) {
        assert_int_equal(pod_read(object, &vendors->kept, arena, &pod, NULL), 0);
        assert_true(cluster_set_pod(to, &pod, NULL) >= 0);
    } else {
        assert_string_equal(kind, "ResourceQuota");
        assert_int_equal(quota_read(object, arena, &quota, NULL), 0);
        assert_int_equal(cluster_set_quota(to, &quota, NULL), 0);
    }
}

void rebuild_from_objects(const struct cluster *from, const struct vendor_set *vendors,
                          struct cluster *to)
{
    struct strbuf text = STRBUF_INIT(TEXT_MAX);
    struct arena *arena = arena_new(TEXT_MAX);
    yyjson_val *root, *object;
    size_t at, max;

    cluster_objects(from, &text);
    assert_false(text.failed);
    assert_int_equal(json_parse(strbuf_text(&text), text.len, arena, &root, NULL), 0);
    for (int kind = 0; kind < CLUSTER_KINDS; kind++)
        cluster_begin(to, (enum cluster_kind)kind);
    yyjson_arr_foreach(yyjson_obj_get(root, "items"), at, max, object)
    {
        set_object(to, vendors, object, arena);
    }
    for (int kind = 0; kind < CLUSTER_KINDS; kind++)
        cluster_complete(to, (enum cluster_kind)kind);
    arena_free(arena);
    strbuf_deinit(&text);
}

/* Takes out of the line what begins so, up to the end. */
static void cut(char *line, const char *begin, char end)
{
    char *from = strstr(line, begin), *to = from ? strchr(from + strlen(begin), end) : NULL;

    if (to)
        memmove(from, to + 1, strlen(to));
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The view's lines of devices, pods and quotas, in order. */
static size_t list_lines(char *view, char *lines[static LINES_MAX])
{
    size_t count = 0;
    char *state;

    for (char *line = strtok_r(view, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        size_t len = strlen(line);

        while (len && strchr(",]}", line[len - 1]))
            line[--len] = '\0';
        cut(line, ",\"absent\":\"", '"');
        cut(line, ",\"requested\":{", '}');
        len = strlen(line);
        if (strncmp(line, "{\"name", 6) != 0 ||
            (len > 11 && strcmp(line + len - 11, "\"devices\":[") == 0))
            continue;
        assert_true(count < LINES_MAX);
        lines[count++] = line;
    }
    qsort(lines, count, sizeof(lines[0]), compare_lines);
    return count;
}

void rebuild_check_same(const struct cluster *a, const struct cluster *b)
{
    static char *left[LINES_MAX], *right[LINES_MAX];
    struct strbuf one = STRBUF_INIT(TEXT_MAX), other = STRBUF_INIT(TEXT_MAX);
    size_t count, others;

    cluster_view(a, &one);
    cluster_view(b, &other);
    count = list_lines(one.text, left);
    others = list_lines(other.text, right);
    for (size_t i = 0; i < count && i < others; i++)
        assert_string_equal(left[i], right[i]);
    assert_int_equal(count, others);
    strbuf_deinit(&one);
    strbuf_deinit(&other);
}

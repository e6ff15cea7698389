/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/report.h"

#include <errno.h>
#include <string.h>
#include <yyjson.h>

#include "base/util.h"

enum {
    LIST_MAX = 64,
};

static void add_card(const struct nvml_card *card, struct strbuf *text)
{
    const struct device *device = &card->device;

    strbuf_add(text, "{\"uuid\":");
    strbuf_add_json(text, device->uuid);
    strbuf_add(text, ",\"model\":");
    strbuf_add_json(text, device->model);
    strbuf_addf(text, ",\"index\":%u,\"numa_node\":%d,\"healthy\":%s,\"memory_bytes\":%llu",
                device->index, device->numa_node, device->healthy ? "true" : "false",
                (unsigned long long)device->memory_bytes);
    if (card->has_status)
        strbuf_addf(text, ",\"memory_total_bytes\":%llu,\"memory_used_bytes\":%llu",
                    (unsigned long long)card->status.memory_total_bytes,
                    (unsigned long long)card->status.memory_used_bytes);
    if (card->has_status && card->status.has_utilization)
        strbuf_addf(text, ",\"utilization_percent\":%u,\"controller_percent\":%u",
                    card->status.utilization_percent, card->status.controller_percent);
    if (card->has_health) {
        strbuf_addf(text, ",\"failures\":%llu,\"why\":", (unsigned long long)card->failures);
        strbuf_add_json(text, card->why);
    }
    if (card->has_errors)
        strbuf_addf(text, ",\"corrected_errors\":%llu,\"uncorrected_errors\":%llu",
                    (unsigned long long)card->corrected, (unsigned long long)card->uncorrected);
    strbuf_add(text, "}");
}

void nvml_report_format(const struct nvml_card *cards, size_t count, struct strbuf *text)
{
    strbuf_add(text, "{\"cards\":[");
    for (size_t i = 0; i < count; i++) {
        strbuf_add(text, i ? ",\n" : "\n");
        add_card(&cards[i], text);
    }
    strbuf_add(text, "]}\n");
}

void nvml_card_take_health(struct nvml_card *card, const struct nvml_card *told)
{
    card->device.healthy = told->device.healthy;
    card->has_health = told->has_health;
    COPY_TEXT(card->why, told->why);
    card->failures = told->failures;
    card->has_errors = told->has_errors;
    card->corrected = told->corrected;
    card->uncorrected = told->uncorrected;
}

static uint64_t read_number(yyjson_val *object, const char *key)
{
    return yyjson_get_uint(yyjson_obj_get(object, key));
}

static int read_text(yyjson_val *object, const char *key, char *to, size_t size)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    if (!text || strlen(text) >= size)
        return -EINVAL;
    copy_text(to, size, text);
    return 0;
}

static int read_card(yyjson_val *object, struct nvml_card *card)
{
    struct device *device = &card->device;
    int64_t node = yyjson_get_sint(yyjson_obj_get(object, "numa_node"));
    int r;

    *card = (struct nvml_card){
        .device = {.cores = DEVICE_CORES, .max_tasks = DEVICE_DEFAULT_MAX_TASKS}};
    r = read_text(object, "uuid", device->uuid, sizeof(device->uuid));
    if (r == 0)
        r = read_text(object, "model", device->model, sizeof(device->model));
    device->index = (unsigned)MIN(read_number(object, "index"), UINT64_C(65535));
    device->numa_node = node >= 0 && node <= INT32_MAX ? (int)node : -1;
    device->healthy = yyjson_is_true(yyjson_obj_get(object, "healthy"));
    device->memory_bytes = read_number(object, "memory_bytes");
    card->has_status = yyjson_is_uint(yyjson_obj_get(object, "memory_used_bytes"));
    card->status = (struct nvml_status){
        .memory_total_bytes = read_number(object, "memory_total_bytes"),
        .memory_used_bytes = read_number(object, "memory_used_bytes"),
        .has_utilization = yyjson_is_uint(yyjson_obj_get(object, "utilization_percent")),
        .utilization_percent = (unsigned)read_number(object, "utilization_percent"),
        .controller_percent = (unsigned)read_number(object, "controller_percent"),
    };
    card->has_health = yyjson_is_uint(yyjson_obj_get(object, "failures"));
    card->failures = read_number(object, "failures");
    if (read_text(object, "why", card->why, sizeof(card->why)) < 0)
        card->why[0] = '\0';
    card->has_errors = yyjson_is_uint(yyjson_obj_get(object, "corrected_errors"));
    card->corrected = read_number(object, "corrected_errors");
    card->uncorrected = read_number(object, "uncorrected_errors");
    return r;
}

static int read_cards(yyjson_val *list, struct nvml_card *ret_cards, size_t max)
{
    size_t index, count;
    yyjson_val *object;
    int r = 0;

    if (!yyjson_is_arr(list))
        return -EINVAL;
    if (yyjson_arr_size(list) > max)
        return -E2BIG;
    yyjson_arr_foreach(list, index, count, object)
    {
        if (r == 0)
            r = read_card(object, &ret_cards[index]);
    }
    return r < 0 ? r : (int)yyjson_arr_size(list);
}

int nvml_report_parse(const char *text, size_t len, struct nvml_card *ret_cards, size_t max)
{
    yyjson_doc *doc = yyjson_read(text, len, 0);
    int r = read_cards(yyjson_obj_get(yyjson_doc_get_root(doc), "cards"), ret_cards, max);

    yyjson_doc_free(doc);
    return r;
}

int nvml_read_cards(struct nvml *nvml, struct nvml_card *ret_cards, size_t max, struct error *err)
{
    struct device devices[LIST_MAX];
    int count;

    count = nvml_list(nvml, devices, MIN(max, (size_t)LIST_MAX), err);
    for (int i = 0; i < count; i++) {
        ret_cards[i] = (struct nvml_card){.device = devices[i]};
        ret_cards[i].has_status =
            devices[i].healthy &&
            nvml_read_status(nvml, (unsigned)i, &ret_cards[i].status, NULL) == 0;
    }
    return count;
}

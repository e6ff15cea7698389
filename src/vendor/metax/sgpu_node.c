/* SPDX-License-Identifier: Apache-2.0 */

/* What MetaX's agent registers: a list of objects in a form of its own. */

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "model/json.h"
#include "vendor/metax/metax.h"
#include "vendor/registered.h"

/* The members of a card; absent is 0 or "". */
static int read_text(yyjson_val *card, const char *key, const char **ret_text, struct error *err)
{
    yyjson_val *value = yyjson_obj_get(card, key);

    *ret_text = value && !yyjson_is_null(value) ? yyjson_get_str(value) : "";
    if (!*ret_text || strlen(*ret_text) != yyjson_get_len(value) * (**ret_text != '\0'))
        return error_set(err, -EINVAL, "%s: not a text", key);
    return 0;
}

static int read_number(yyjson_val *card, const char *key, int32_t *ret_number, struct error *err)
{
    yyjson_val *value = yyjson_obj_get(card, key);
    const int64_t number = yyjson_get_sint(value);

    *ret_number = 0;
    if (!value || yyjson_is_null(value))
        return 0;
    if (!yyjson_is_int(value) || number != (int32_t)number)
        return error_set(err, -EINVAL, "%s: not a number of 32 bits", key);
    *ret_number = (int32_t)number;
    return 0;
}

static int read_card(yyjson_val *card, size_t position, struct registered_device *device,
                     struct error *err)
{
    int32_t numa = 0;
    int r = yyjson_is_obj(card) ? 0 : error_set(err, -EINVAL, "not an object");

    *device = (struct registered_device){.type = METAX_SGPU_WORD, .mode = "", .index = position};
    if (r == 0)
        r = read_text(card, "uuid", &device->id, err);
    if (r == 0)
        r = read_number(card, "totalDevCount", &device->count, err);
    if (r == 0)
        r = read_number(card, "totalCompute", &device->devcore, err);
    if (r == 0)
        r = read_number(card, "totalVRam", &device->devmem, err);
    if (r == 0)
        r = read_number(card, "numa", &numa, err);
    device->numa = numa;
    device->health = yyjson_get_bool(yyjson_obj_get(card, "healthy"));
    return r;
}

static int read_cards(yyjson_val *root, struct arena *arena, struct registered_devices *ret_cards,
                      struct error *err)
{
    const size_t count = yyjson_arr_size(root);
    yyjson_val *card;
    size_t at, max;
    int r = 0;

    if (!yyjson_is_arr(root) && !yyjson_is_null(root))
        return error_set(err, -EINVAL, "not a list");
    if (count > CODEC_MAX_DEVICES)
        return error_set(err, -E2BIG, "more than %d devices", CODEC_MAX_DEVICES);
    ret_cards->items = ARENA_ARRAY(arena, struct registered_device, count);
    ret_cards->count = count;
    if (!ret_cards->items)
        return error_set(err, -ENOMEM, "out of memory");
    yyjson_arr_foreach(root, at, max, card)
    {
        if (r == 0)
            r = read_card(card, at, &ret_cards->items[at], err);
    }
    return r;
}

static enum metax_qos read_qos(yyjson_val *card)
{
    const char *text = yyjson_get_str(yyjson_obj_get(card, "qosPolicy"));
    unsigned i = METAX_NO_QOS;

    while (text && metax_qos_names[i] && strcmp(metax_qos_names[i], text) != 0)
        i++;
    return (enum metax_qos)i;
}

/* The card of a device is the one at its index. */
static int add_facts(yyjson_val *root, struct arena *arena, struct device *devices, size_t count,
                     struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct metax_facts *facts = ARENA_NEW(arena, struct metax_facts);
        yyjson_val *card = yyjson_arr_get(root, devices[i].index);

        if (!facts)
            return error_set(err, -ENOMEM, "out of memory");
        facts->qos = read_qos(card);
        (void)read_number(card, "linkZone", &facts->zone, NULL);
        devices[i].special = true;
        /* Pods of a policy are counted in a byte. */
        devices[i].max_tasks = MIN(devices[i].max_tasks, (unsigned)UINT8_MAX);
        devices[i].facts = facts;
        devices[i].facts_size = sizeof(*facts);
    }
    return 0;
}

int metax_sgpu_read_node(const struct vendor_instance *instance, const struct node *node,
                         struct arena *arena, struct device *ret_devices, size_t max,
                         size_t *ret_count, struct error *err)
{
    const char *text = text_pairs_get(&node->annotations, instance->register_key);
    struct registered_devices cards;
    yyjson_val *root;
    int r, outcome;

    if (!text)
        return error_set(err, -ENOENT, "no annotation %s", instance->register_key);
    if (strlen(text) > CODEC_MAX_TEXT)
        return error_set(err, -E2BIG, "%s: too long", instance->register_key);
    r = json_parse(text, strlen(text), arena, &root, err);
    if (r == 0)
        r = read_cards(root, arena, &cards, err);
    if (r < 0)
        return error_wrap(err, r, "%s", instance->register_key);
    outcome = registered_list(instance, node, &cards, CODEC_EXACT, arena, ret_devices, max,
                              ret_count, err, NULL);
    if (outcome < 0)
        return outcome;
    r = add_facts(root, arena, ret_devices, *ret_count, err);
    return r < 0 ? r : outcome;
}

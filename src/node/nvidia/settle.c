/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/util.h"
#include "node/nvidia/allocations.h"
#include "node/nvidia/layout.h"
#include "node/nvidia/made_state.h"
#include "vendor/nvidia/allowance.h"

/* One card, as NVML has it now, and what is wanted of it. */
struct settling {
    struct made *made;
    struct nvml *nvml;
    struct card *card;
    bool all;
    size_t wanted_count;
    char wanted[RECORDS_MAX][NAME_SIZE];
    size_t instance_count, device_count;
    struct nvml_gpu_instance instances[NVML_INSTANCES_MAX];
    struct nvml_mig_device devices[NVML_INSTANCES_MAX];
};

static int read_card(struct settling *settling, struct error *err)
{
    unsigned index = settling->card->index;
    int count = nvml_list_gpu_instances(settling->nvml, index, settling->instances,
                                        NVML_INSTANCES_MAX, err);

    if (count < 0)
        return count;
    settling->instance_count = (size_t)count;
    count =
        nvml_list_mig_devices(settling->nvml, index, settling->devices, NVML_INSTANCES_MAX, err);
    settling->device_count = (size_t)MAX(count, 0);
    return MIN(count, 0);
}

static const struct nvml_gpu_instance *instance_at(const struct settling *settling,
                                                   const struct record *record)
{
    for (size_t i = 0; i < settling->instance_count; i++) {
        const struct nvml_gpu_instance *it = &settling->instances[i];

        if (it->profile_id == record->profile_id && it->start == record->start)
            return it;
    }
    return NULL;
}

static const struct nvml_mig_device *device_in(const struct settling *settling,
                                               unsigned gpu_instance)
{
    for (size_t i = 0; i < settling->device_count; i++) {
        if (settling->devices[i].gpu_instance == gpu_instance)
            return &settling->devices[i];
    }
    return NULL;
}

/* Whether a GPU instance is the record's: where that has no uuid, the one at its place is. */
static bool is_record_of(const struct settling *settling, const struct record *record,
                         const struct nvml_gpu_instance *instance)
{
    const struct nvml_mig_device *device = device_in(settling, instance->id);

    if (strcmp(record->card, settling->card->uuid) != 0 ||
        instance_at(settling, record) != instance)
        return false;
    return !record->uuid[0] || (device && strcmp(device->uuid, record->uuid) == 0);
}

/*
 * Takes the uuid out of the record in memory, so that nobody is given it any more. False: since the
 * settling began somebody came who wants the instance.
 */
static bool withdraw(struct made *made, const char *name)
{
    struct record *record;
    bool wanted;

    (void)pthread_mutex_lock(&made->lock);
    wanted = !made->all || made_is_listed(made->wanted, made->wanted_count, name);
    record = record_find(made, name);
    if (record && !wanted)
        record->uuid[0] = '\0';
    (void)pthread_mutex_unlock(&made->lock);
    return !wanted;
}

/*
 * Ending: the record loses its uuid first, in memory, so that nobody is given what is about to go,
 * and on the disk, so that whoever comes after us knows whose the rest is.
 */
static int end_instance(struct settling *settling, const struct record *known,
                        const struct nvml_gpu_instance *instance, struct error *err)
{
    struct record record = *known;
    unsigned index = settling->card->index;
    int r = 0;

    if (!withdraw(settling->made, known->name))
        return 0;
    record.uuid[0] = '\0';
    if (known->uuid[0])
        r = record_write(settling->made, &record, err);
    if (r == 0)
        r = nvml_end_compute_instances(settling->nvml, index, instance->id, err);
    if (r == -EBUSY && known->uuid[0]) { /* a process is in it: later */
        (void)record_write(settling->made, known, NULL);
        record_put(settling->made, known);
    }
    if (r == 0)
        r = nvml_end_gpu_instance(settling->nvml, index, instance->id, err);
    if (r < 0)
        return r;
    log_info("instance %s is ended", record.name);
    record_drop(settling->made, known);
    return 0;
}

/* Making goes on from whatever is there. */
static int complete_instance(struct settling *settling, struct record *record,
                             unsigned gpu_instance, struct error *err)
{
    const struct nvml_mig_device *device = device_in(settling, gpu_instance);
    int r = 0;

    if (!device)
        r = nvml_make_compute_instance(settling->nvml, settling->card->index, gpu_instance, err);
    if (r == 0 && !device)
        r = read_card(settling, err);
    if (r < 0)
        return r;
    device = device_in(settling, gpu_instance);
    if (!device)
        return error_set(err, -EIO, "it was made, and NVML does not list it");
    COPY_TEXT(record->uuid, device->uuid);
    record->gpu_instance = gpu_instance;
    record->compute_instance = device->compute_instance;
    record->memory_bytes = device->memory_bytes;
    COPY_TEXT(record->profile, device->profile);
    r = record_write(settling->made, record, err);
    if (r == 0)
        record_put(settling->made, record);
    return r;
}

static int refuse_profile(const struct settling *settling, const char *profile, struct error *err)
{
    return error_set(err, -EPERM,
                     "migProfileAllowlist of the device configuration does not allow %s on %s",
                     profile, settling->card->type);
}

/* By its number in a group of the configuration's. */
static int plan_numbered(const struct settling *settling, const char *name,
                         const struct nvml_profile *profiles, size_t count,
                         struct layout_place *ret_place, struct error *err)
{
    const struct mig_geometry *geometry =
        nvidia_find_geometry(settling->made->config, settling->card->type);
    const uint64_t barred = allowance_barred(settling->made->config, settling->card->type);
    struct layout_place places[MIG_MAX_INSTANCES];
    int group, number, r;

    if (mig_instance_parse(name, &group, &number) < 0 || group < 0 || number < 0 || !geometry ||
        (size_t)group >= geometry->group_count)
        return error_set(err, -EINVAL, "knownMigGeometries has no such group for %s",
                         settling->card->type);
    r = layout_group(&geometry->groups[group], profiles, count, places, err);
    if (r < 0)
        return r;
    if (number >= r)
        return error_set(err, -EINVAL, "its group has %d instances", r);
    if (barred >> (group * MIG_MAX_INSTANCES + number) & 1)
        return refuse_profile(settling, profiles[places[number].profile].name, err);
    *ret_place = places[number];
    return 0;
}

/* By its profile and place, as HAMi 2.10's scheduler chose them. */
static int plan_placed(const struct settling *settling, const char *profile, unsigned start,
                       const struct nvml_profile *profiles, size_t count,
                       struct layout_place *ret_place, struct error *err)
{
    const struct nvidia_allowance *allowance =
        allowance_find(settling->made->config, settling->card->type);
    int found = layout_find_profile(profile, 0, profiles, count);

    if (allowance && !allowance_lists(allowance, profile))
        return refuse_profile(settling, profile, err);
    for (size_t i = 0; found >= 0 && i < profiles[found].start_count; i++) {
        *ret_place = (struct layout_place){(unsigned)found, start};
        if (profiles[found].starts[i] == start)
            return 0;
    }
    return error_set(err, -EINVAL, "the card has no MIG profile %s at slice %u", profile, start);
}

static int plan_instance(const struct settling *settling, const char *name, struct record *record,
                         struct error *err)
{
    struct nvml_profile profiles[NVML_PROFILES_MAX];
    char profile[NVML_PROFILE_NAME_SIZE];
    struct layout_place place = {0};
    unsigned start;
    int count, r;

    count =
        nvml_list_profiles(settling->nvml, settling->card->index, profiles, NVML_PROFILES_MAX, err);
    if (count < 0)
        return count;
    if (allocations_parse_name(name, profile, &start) == 0)
        r = plan_placed(settling, profile, start, profiles, (size_t)count, &place, err);
    else
        r = plan_numbered(settling, name, profiles, (size_t)count, &place, err);
    if (r < 0)
        return r;
    *record = (struct record){.profile_id = profiles[place.profile].id,
                              .start = place.start,
                              .size = profiles[place.profile].size};
    copy_text(record->name, sizeof(record->name), name);
    COPY_TEXT(record->card, settling->card->uuid);
    return 0;
}

/* Of an attempt that failed nothing stays. */
static void roll_back(struct settling *settling, const struct record *record, unsigned gpu_instance)
{
    struct error err = ERROR_INIT;

    if (nvml_end_compute_instances(settling->nvml, settling->card->index, gpu_instance, &err) < 0 ||
        nvml_end_gpu_instance(settling->nvml, settling->card->index, gpu_instance, &err) < 0)
        log_warn("instance %s: what was made of it can't be ended: %s", record->name, err.text);
    else
        record_drop(settling->made, record);
}

static int make_instance(struct settling *settling, const char *name, struct error *err)
{
    struct record record;
    unsigned gpu_instance;
    int r = plan_instance(settling, name, &record, err);

    if (r < 0)
        return r;
    if (instance_at(settling, &record))
        return error_set(err, -EBUSY, "there is an instance at its place that is not ours");
    if (settling->made->count == RECORDS_MAX)
        return error_set(err, -ENOSPC, "the node has %d instances already", RECORDS_MAX);
    r = record_write(settling->made, &record, err);
    if (r < 0)
        return r;
    record_put(settling->made, &record);
    r = nvml_make_gpu_instance(settling->nvml, settling->card->index, record.profile_id,
                               record.start, record.size, &gpu_instance, err);
    if (r < 0) {
        /* The driver may have made it all the same: then the record is kept, and says whose it is.
         */
        if (read_card(settling, NULL) == 0 && !instance_at(settling, &record))
            record_drop(settling->made, &record);
        return r;
    }
    r = complete_instance(settling, &record, gpu_instance, err);
    if (r < 0)
        roll_back(settling, &record, gpu_instance);
    else
        log_info("instance %s is made: %s", record.name, record.uuid);
    return r;
}

static bool is_wanted(struct settling *settling, const char *name)
{
    return made_is_listed(settling->wanted, settling->wanted_count, name);
}

/* A record of the card against what is there. */
static int settle_record(struct settling *settling, struct record *record, struct error *err)
{
    const struct nvml_gpu_instance *instance = instance_at(settling, record);
    const struct nvml_mig_device *device;

    if (!instance || !is_record_of(settling, record, instance)) {
        log_info("instance %s is not there any more", record->name);
        record_drop(settling->made, record);
        return 0;
    }
    if (!is_wanted(settling, record->name))
        return settling->all ? end_instance(settling, record, instance, err) : 0;
    if (!record->uuid[0])
        return complete_instance(settling, record, instance->id, err);
    device = device_in(settling, instance->id);
    record->gpu_instance = instance->id;
    record->compute_instance = device->compute_instance;
    record->memory_bytes = device->memory_bytes;
    COPY_TEXT(record->profile, device->profile);
    record_put(settling->made, record);
    return 0;
}

/* A copy, since settling removes some. */
static size_t records_of(struct made *made, const char *card,
                         struct record ret_records[RECORDS_MAX])
{
    size_t count = 0;

    for (size_t i = 0; i < made->count; i++) {
        if (strcmp(made->records[i].card, card) == 0)
            ret_records[count++] = made->records[i];
    }
    return count;
}

static void settle_records(struct settling *settling)
{
    AUTOFREE struct record *records = calloc(RECORDS_MAX, sizeof(*records));
    size_t count = records ? records_of(settling->made, settling->card->uuid, records) : 0;

    for (size_t i = 0; i < count; i++) {
        struct error err = ERROR_INIT;

        if (settle_record(settling, &records[i], &err) < 0)
            failure_say(settling->made, records[i].name, &err);
    }
}

static bool is_strange(const struct settling *settling, const struct nvml_gpu_instance *instance)
{
    const struct made *made = settling->made;

    for (size_t i = 0; i < made->count; i++) {
        if (is_record_of(settling, &made->records[i], instance))
            return false;
    }
    return true;
}

static bool has_strangers(const struct settling *settling)
{
    for (size_t i = 0; i < settling->instance_count; i++) {
        if (is_strange(settling, &settling->instances[i]))
            return true;
    }
    return false;
}

static bool is_of_card(const char *name, const char *card)
{
    size_t len = strlen(card);

    return strncmp(name, card, len) == 0 && name[len] == '[';
}

static void make_missing(struct settling *settling)
{
    for (size_t i = 0; i < settling->wanted_count; i++) {
        const char *name = settling->wanted[i];
        struct error err = ERROR_INIT;

        if (!is_of_card(name, settling->card->uuid) || record_find(settling->made, name))
            continue;
        if (make_instance(settling, name, &err) < 0)
            failure_say(settling->made, name, &err);
    }
}

static void refuse_card(struct card *card, const char *why)
{
    if (card->healthy)
        copy_text(card->why, sizeof(card->why), why);
    card->healthy = false;
}

/* A card that anybody uses keeps its mode: on some cards the change is a reset. */
static bool put_into_mode(struct settling *settling)
{
    struct nvml_process process;
    struct error err = ERROR_INIT;
    bool on, pending;
    unsigned index = settling->card->index;
    int r = nvml_read_mig_mode(settling->nvml, index, &on, &pending, &err);

    if (r == 0 && on && pending)
        return true;
    if (r == 0 && on != pending)
        r = error_set(&err, -EBUSY, "its MIG mode changes when it is reset");
    else if (r == 0 && nvml_list_all_processes(settling->nvml, index, &process, 1, NULL) != 0)
        r = error_set(&err, -EBUSY, "it is not in MIG mode, and is in use");
    if (r == 0)
        r = nvml_set_mig_mode(settling->nvml, index, true, &err);
    if (r == 0)
        log_info("card %s is in MIG mode now", settling->card->uuid);
    else
        refuse_card(settling->card, err.text);
    return r == 0;
}

static bool is_offered(const struct made *made, const char *card)
{
    for (size_t i = 0; i < made->offered_count; i++) {
        if (strcmp(made->offered[i].card, card) == 0)
            return true;
    }
    return false;
}

/* Once: they are the card's for ever. */
static void offer_profiles(struct settling *settling)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(64 << 10);
    struct nvml_profile profiles[NVML_PROFILES_MAX];
    struct made *made = settling->made;
    const struct card *card = settling->card;
    struct offered *offered;
    int count;

    if (is_offered(made, card->uuid) || made->offered_count == CARDS_MAX)
        return;
    count = nvml_list_profiles(settling->nvml, card->index, profiles, NVML_PROFILES_MAX, NULL);
    if (count < 0)
        return;
    (void)pthread_mutex_lock(&made->lock);
    offered = &made->offered[made->offered_count++];
    COPY_TEXT(offered->card, card->uuid);
    if (allocations_format_profiles(made->config, card->type, profiles, (size_t)count, &text) > 0)
        offered->profiles = strdup(strbuf_text(&text));
    (void)pthread_mutex_unlock(&made->lock);
}

static void settle_card(struct settling *settling)
{
    struct error err = ERROR_INIT;

    if (!put_into_mode(settling))
        return;
    if (read_card(settling, &err) < 0) {
        refuse_card(settling->card, err.text);
        return;
    }
    settle_records(settling);
    if (read_card(settling, &err) < 0)
        return;
    if (has_strangers(settling))
        refuse_card(settling->card, "it has MIG instances that were not made by this plugin");
    else
        make_missing(settling);
}

void made_settle(struct made *made, struct nvml *nvml, struct cards *cards)
{
    AUTOFREE struct settling *settling = calloc(1, sizeof(*settling));
    bool is_said;

    if (!settling)
        return;
    settling->made = made;
    settling->nvml = nvml;
    (void)pthread_mutex_lock(&made->lock);
    is_said = made->is_said;
    settling->all = made->all;
    settling->wanted_count = made->wanted_count;
    memcpy(settling->wanted, made->wanted, sizeof(settling->wanted));
    (void)pthread_mutex_unlock(&made->lock);
    for (size_t i = 0; i < cards->count; i++) {
        settling->card = &cards->items[i];
        settling->card->has_parts = true;
        if (settling->card->uuid[0])
            offer_profiles(settling);
        if (settling->card->uuid[0] && is_said)
            settle_card(settling);
        else if (settling->card->uuid[0])
            (void)put_into_mode(settling);
    }
}

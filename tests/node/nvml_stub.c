/* SPDX-License-Identifier: Apache-2.0 */

/*
 * NVML as a file says: $NVML_STUB has a line for each card, "UUID MIB|none PCI MINOR ok|dead", read
 * at each question. With a first line "lost" the driver answers nothing. Of how cards are connected
 * $NVML_STUB.links tells: lines "level CARD CARD LEVEL" and "link CARD NUMBER gpu|switch PCI", by
 * places in the other file. What it lacks of NVML our programs do without.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "driver/nvml.h"

enum {
    STUB_CARDS_MAX = 80,
};

struct stub_card {
    char uuid[64], memory[16], pci[32], state[8];
    unsigned minor;
};

/* A handle is one of these; their number is the card's. */
struct nvmlDevice_st {
    char unused;
};

static struct nvmlDevice_st handles[STUB_CARDS_MAX];

static unsigned read_cards(struct stub_card cards[STUB_CARDS_MAX])
{
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "re") : NULL;
    unsigned count = 0;

    if (!file)
        return 0;
    while (count < STUB_CARDS_MAX &&
           fscanf(file, "%63s %15s %31s %u %7s", cards[count].uuid, cards[count].memory,
                  cards[count].pci, &cards[count].minor, cards[count].state) == 5)
        count++;
    (void)fclose(file);
    return count;
}

static nvmlReturn_t find(nvmlDevice_t device, struct stub_card *ret_card)
{
    struct stub_card cards[STUB_CARDS_MAX];
    size_t index = (size_t)(device - handles);

    if (index >= read_cards(cards))
        return NVML_ERROR_INVALID_ARGUMENT;
    *ret_card = cards[index];
    return strcmp(ret_card->state, "ok") == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

PUBLIC nvmlReturn_t nvmlInit_v2(void)
{
    return getenv("NVML_STUB") ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

PUBLIC nvmlReturn_t nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    struct stub_card cards[STUB_CARDS_MAX] = {0};

    *count = read_cards(cards);
    return strcmp(cards[0].uuid, "lost") == 0 ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    *device = &handles[index < STUB_CARDS_MAX ? index : 0];
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    struct stub_card card;
    nvmlReturn_t r = find(device, &card);

    if (r == NVML_SUCCESS)
        (void)snprintf(uuid, length, "%s", card.uuid);
    return r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    (void)device;
    (void)snprintf(name, length, "NVIDIA Stub");
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    struct stub_card card;
    nvmlReturn_t r = find(device, &card);

    if (r == NVML_SUCCESS)
        *minor = card.minor;
    return r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct stub_card card;
    nvmlReturn_t r = find(device, &card);

    if (r != NVML_SUCCESS)
        return r;
    if (strcmp(card.memory, "none") == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    memory->total = strtoull(card.memory, NULL, 10) << 20;
    memory->used = 0;
    memory->free = memory->total;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    struct stub_card card;
    nvmlReturn_t r = find(device, &card);

    memset(info, 0, sizeof(*info));
    if (r == NVML_SUCCESS)
        (void)snprintf(info->busId, sizeof(info->busId), "%s", card.pci);
    return r;
}

/* Of a card's own memory, which is not what anybody means here. */
PUBLIC nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    (void)device;
    *node = 77;
    return NVML_SUCCESS;
}

/* Connections */

struct stub_line {
    char kind[8], pci[32];
    unsigned card, other, number;
};

/* The line of $NVML_STUB.links that begins with these three. */
static nvmlReturn_t find_line(const char *word, nvmlDevice_t device, unsigned other,
                              struct stub_line *ret_line)
{
    unsigned card = (unsigned)(device - handles);
    struct stub_line line = {.card = 0};
    char path[512], text[128];
    FILE *file;
    bool found = false;

    (void)snprintf(path, sizeof(path), "%s.links", getenv("NVML_STUB"));
    file = fopen(path, "re");
    while (file && !found && fgets(text, sizeof(text), file)) {
        int level = sscanf(text, "level %u %u %u", &line.card, &line.other, &line.number);
        int link =
            sscanf(text, "link %u %u %7s %31s", &line.card, &line.other, line.kind, line.pci);

        found = (level == 3 || link == 4) && strcmp(word, level == 3 ? "level" : "link") == 0 &&
                line.card == card && line.other == other;
    }
    if (file)
        (void)fclose(file);
    *ret_line = line;
    return found ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

PUBLIC nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                        unsigned int *level)
{
    struct stub_line line;
    nvmlReturn_t r = find_line("level", one, (unsigned)(other - handles), &line);

    *level = line.number;
    return r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                             unsigned int *is_active)
{
    struct stub_line line;
    nvmlReturn_t r = find_line("link", device, link, &line);

    *is_active = r == NVML_SUCCESS;
    return r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                        nvmlPciInfo_t *info)
{
    struct stub_line line;
    nvmlReturn_t r = find_line("link", device, link, &line);

    memset(info, 0, sizeof(*info));
    (void)snprintf(info->busId, sizeof(info->busId), "%s", line.pci);
    return r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                        unsigned int *type)
{
    struct stub_line line;
    nvmlReturn_t r = find_line("link", device, link, &line);

    *type = strcmp(line.kind, "switch") == 0 ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                             : NVML_NVLINK_DEVICE_TYPE_GPU;
    return r;
}

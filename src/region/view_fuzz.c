/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any file as a region, seen from outside and opened from inside: it is refused with a reason, or
 * nothing that was read out of it leaves its bounds. The input is laid over the parts that decide;
 * a size that is made right lets it get further.
 */

#include "region/view.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fuzz.h"
#include "base/util.h"
#include "region/ledger.h"
#include "region/region.h"
#include "region/view_v0.h"

static struct region_view view;

static void look(const char *path)
{
    struct error err = ERROR_INIT;

    if (region_view_read(path, &view, &err) < 0) {
        if (!err.text[0])
            abort();
        return;
    }
    if (view.device_count > REGION_DEVICES || view.process_count > REGION_SLOTS)
        abort();
    for (unsigned i = 0; i < view.device_count; i++) {
        if (!memchr(view.devices[i].uuid, 0, sizeof(view.devices[i].uuid)))
            abort();
    }
}

static void live_in(const char *path)
{
    static struct region region;
    struct error err = ERROR_INIT;

    memset(&region, 0, sizeof(region));
    if (region_open(&region, path, &err) < 0) {
        if (!err.text[0])
            abort();
        return;
    }
    if (region_claim(&region, &err) == 0) {
        if (region.slot < 0 || region.slot >= REGION_SLOTS)
            abort();
        if (ledger_charge(region.ext, (unsigned)region.slot, 0, 8, 1024) == LEDGER_CHARGED)
            ledger_discharge(region.ext, (unsigned)region.slot, 0, 8);
        (void)region_settle(&region);
        (void)region_device(&region, "GPU-00000000-0000-0000-0000-000000000000");
    }
    region_close(&region);
}

/* The head, the first slots, the tail, our extension: a quarter of the input each. */
static void lay(int fd, const uint8_t *data, size_t size)
{
    static const off_t places[] = {0, 1856, 2008896, REGION_EXT_OFFSET};
    size_t part = size / ARRAY_SIZE(places);

    for (unsigned i = 0; i < ARRAY_SIZE(places); i++)
        (void)!pwrite(fd, data + i * part, part, places[i]);
}

/* Head, first slots, tail. */
static void lay_v0(int fd, const uint8_t *data, size_t size)
{
    size_t part = MIN(size / 3, (size_t)16);

    (void)!pwrite(fd, data, size - 2 * part, 0);
    (void)!pwrite(fd, data + size - 2 * part, part, 1848);
    (void)!pwrite(fd, data + size - part, part, VIEW_V0_SIZE - 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/dev/shm/region-fuzz-XXXXXX";
    AUTOCLOSE int fd = -1;

    if (!size || size > 65536 || (fd = mkstemp(path)) < 0)
        return 0;
    /* The first byte chooses the size: as given, version 0's, HAMi-core's, or ours. */
    if (data[0] == 255 && ftruncate(fd, (off_t)VIEW_V0_SIZE) == 0)
        lay_v0(fd, data + 1, size - 1);
    else if (data[0] % 4 == 0)
        (void)!pwrite(fd, data + 1, size - 1, 0);
    else if (ftruncate(fd, data[0] % 4 == 1 ? REGION_BASE_SIZE + 1 : (off_t)REGION_SIZE) == 0)
        lay(fd, data + 1, size - 1);
    look(path);
    live_in(path);
    (void)unlink(path);
    return 0;
}

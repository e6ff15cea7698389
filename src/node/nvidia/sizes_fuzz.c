/* SPDX-License-Identifier: Apache-2.0 */

/* Any file of measured contexts: what is found in it for a kind of card is a size that can be. */

#include "node/nvidia/sizes.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/fuzz.h"
#include "base/util.h"
#include "vendor/nvidia/nvidia.h"

static void look(const struct node_host *host)
{
    static const char *const kinds[] = {"", "K", "KK", "NVIDIA A100-SXM4-80GB", "MIG-1g.10gb"};
    const struct sizes_options options = {.host = host, .sysfs = "/none"};
    struct error err = ERROR_INIT;
    struct sizes *sizes = NULL;

    if (sizes_new(&options, &sizes, &err) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (sizes_find(sizes, kinds[i]) > NVIDIA_CONTEXT_MAX_MIB * MIB)
            abort();
    }
    sizes_free(sizes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct node_host host;
    char path[FILE_PATH_SIZE];

    COPY_TEXT(host.hook_path, "/dev/shm/sizes-fuzz-XXXXXX");
    if (!mkdtemp(host.hook_path))
        return 0;
    if (file_path(path, NULL, "%s/contexts", host.hook_path) == 0 &&
        file_replace(path, (const char *)data, size, 0600) == 0)
        look(&host);
    (void)unlink(path);
    (void)rmdir(host.hook_path);
    return 0;
}

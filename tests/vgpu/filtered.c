/* SPDX-License-Identifier: Apache-2.0 */

/* A program whose system calls are answered by filters from its first on: filtered WAY[,WAY...]
 * ADDRESS PROGRAM [ARGUMENT...]. ADDRESS: where the library has its source of limits, in its file.
 * 77: this kernel has no filters. */

#include <unistd.h>

#include "filters.h"
#include "vgpu/source.h"

int main(int argc, char **argv)
{
    unsigned long address;
    char *rest;

    if (argc < 4)
        return 1;
    address = strtoul(argv[2], NULL, 16) + offsetof(struct source, path);
    for (char *way = strtok_r(argv[1], ",", &rest); way; way = strtok_r(NULL, ",", &rest))
        filter(way, (unsigned)(address & (FILTER_PAGE - 1)));
    (void)execv(argv[3], argv + 3);
    return 1;
}

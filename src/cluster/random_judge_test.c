/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/random_judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "cluster/random_world.h"

/* Adds the part of card `uuid` that "uuid,type,mem,cores:...;" takes: apps and sidecars together,
 * an init container beside the sidecars before it. */
static void recount(const char *text, const char *roles, const char *uuid, long *mib, long *cores,
                    long *tasks)
{
    long apps[3] = {0}, most[3] = {0};
    size_t container = 0;
    const char *at = text;

    while (*at) {
        long here[3] = {0};

        for (; *at && *at != ';';) {
            char id[64], type[64];
            long m, c;
            int used = 0;

            if (sscanf(at, "%63[^,],%63[^,],%ld,%ld:%n", id, type, &m, &c, &used) != 4 || !used)
                break;
            at += used;
            if (strcmp(id, uuid) == 0) {
                here[0] += m;
                here[1] += c;
                here[2] += 1;
            }
        }
        at = strchr(at, ';');
        at = at ? at + 1 : "";
        for (int i = 0; i < 3; i++) {
            if (container >= strlen(roles) || roles[container] == 's')
                apps[i] += here[i];
            else
                most[i] = MAX(most[i], apps[i] + here[i]);
        }
        container++;
    }
    *mib += apps[0] > most[0] ? apps[0] : most[0];
    *cores += apps[1] > most[1] ? apps[1] : most[1];
    *tasks += apps[2] > most[2] ? apps[2] : most[2];
}

void judge_grants(void)
{
    for (unsigned n = 0; n < NODES; n++) {
        for (unsigned c = 0; c < CARDS; c++) {
            long mib = 0, cores = 0, tasks = 0;
            char uuid[64];

            (void)snprintf(uuid, sizeof(uuid), "GPU-%u-%u", n, c);
            for (unsigned p = 0; p < PODS; p++) {
                const struct api_pod *pod = &world.pods[p];

                if (pod->exists && pod->node[0] && !pod->garbage)
                    recount(pod->devices, pod->roles, uuid, &mib, &cores, &tasks);
                else if (pod->exists && pod->binding)
                    recount(pod->bind_devices, pod->bind_roles, uuid, &mib, &cores, &tasks);
            }
            if (mib > CARD_MIB || cores > 100 || tasks > CARD_TASKS) {
                fprintf(stderr, "%s: %ld MiB, %ld cores, %ld tasks granted\n", uuid, mib, cores,
                        tasks);
                abort();
            }
        }
    }
}

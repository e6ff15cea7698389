/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The pods of random_world.h: what they ask for, as users write it and as kube-scheduler sends it.
 */

#include <stdbool.h>

#include "cluster/random_world.h"
#include "model/pod.h"
#include "model/text.h"

/* Nobody has it, and no bind of it is on its way. */
bool pods_is_free(const struct api_pod *pod);
/* Some pod of this kind, or NULL. */
struct api_pod *pods_pick(bool (*is)(const struct api_pod *));

static inline unsigned pods_number(const struct api_pod *pod)
{
    return (unsigned)(pod - world.api.pods);
}

/* What is asked of a card's memory: often such that a few of them fill it to the last MiB, or want
 * one more. */
int pods_draw_mib(int card_mib);

/* A name and a uid that no other has: no two pods of a namespace have one name. */
void pods_name(struct api_pod *pod);
/* A new one, which does not exist yet. */
void pods_make(struct api_pod *pod);
void pods_delete(struct api_pod *pod);

struct sent_pod {
    struct pod pod;
    struct text_pair annotations[6];
    struct container containers[3];
    struct resource limits[8];
};

void pods_fill_sent(const struct api_pod *from, struct sent_pod *sent);

/* Whether the cluster under test counts devices for it. */
bool pods_holds(const char *uid);

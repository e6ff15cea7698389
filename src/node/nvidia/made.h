/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MIG instances that are made for containers and ended after them. Which there are to be is said by
 * made_want(); made_settle() makes what is missing and ends what is not wanted any more.
 *
 * "<hook path>/instances/<card's uuid>_<group>-<number>" (or "_<profile>@<start>") is the record of
 * one that we made: written before the first step of making it, without its uuid, and again with it
 * after the last one; so before and after ending. Killed at any moment, the next run finds in it
 * what it may touch. A GPU instance without a record is somebody else's: it is never ended, and its
 * card takes no more. So it is with one whose record can't be read, which is kept aside.
 */

#include "base/arena.h"
#include "base/strbuf.h"
#include "node/node_vendor.h"
#include "nvml/nvml.h"
#include "vendor/nvidia/nvidia.h"

struct made;

/*
 * Reads the records; those of another boot of the machine are removed, as their instances are gone.
 * While another plugin has the folder's lock nothing is read, found, made or ended: made_want()
 * takes it and reads them once that has ended. -ENOMEM, or the folder's error. The host and the
 * config outlive it.
 */
int made_new(const struct node_host *host, const struct nvidia_config *config, const char *procfs,
             struct made **ret_made, struct error *err);
void made_free(struct made *made);

/* As node_vendor.want, and from any thread as node_vendor.find_part. */
enum node_want made_want(struct made *made, const char *const *names, size_t count, bool all);
int made_find(struct made *made, const char *name, struct node_part *ret_part, struct error *err);

/*
 * HAMi's annotation of the instances that a pod has, JSON: 1; 0 where one of them is not there, or
 * there is none.
 */
int made_describe(struct made *made, const struct pod_devices *devices, struct strbuf *text);

/* A card's migProfiles for the registration (allocations.h), the arena's; NULL: none. */
const char *made_profiles(struct made *made, const char *card, struct arena *arena);

/*
 * Blocks as long as the driver does. Cards that nobody uses are put into MIG mode. A card that
 * can't be used in instances is not healthy afterwards, and says why.
 */
void made_settle(struct made *made, struct nvml *nvml, struct cards *cards);

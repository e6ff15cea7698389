/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a CDI specification gives to a container, without CDI: kubelet's API has no hooks, so what
 * the toolkit's hooks would make in the container is mounted instead: the names by which its loader
 * finds the driver's libraries, and other links. Texts only, no I/O.
 */

#include "node/nvidia/cdi.h"

/*
 * As cdi_add_mounts(), and a mount more for each link: of "create-symlinks" its own, where it leads
 * to a file that is mounted; of "update-ldcache" those that ldconfig would make, and each library
 * in the folders, too, that images' loaders search by default.
 */
void laid_out_add_mounts(const struct cdi_choice *choice, bool (*skip)(const char *path),
                         struct strbuf *mounts);

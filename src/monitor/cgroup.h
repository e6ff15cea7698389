/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which pod a process belongs to, by its cgroup: the kernel's word, which a container can't change
 * but by groups of its own below the one that the runtime made. No I/O.
 */

#include <stdbool.h>
#include <stddef.h>

enum {
    CGROUP_UID_SIZE = 64, /* as CONTAINER_UID_SIZE */
};

/*
 * Reads /proc/PID/cgroup as kubelet's drivers cgroupfs and systemd name groups, of either version,
 * seen from the host or from another group's namespace. Of several pods in a path the outermost
 * counts: the others a container may have made. False: it is in no pod.
 */
bool cgroup_read_pod(const char *text, char ret_uid[CGROUP_UID_SIZE]);

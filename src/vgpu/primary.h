/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Primary contexts: one a device, which is made when the first of its users retains it, and ends
 * with the last one or when it is reset.
 */

#include "vgpu/vgpu.h"

/* Held over what may make or end a primary context, so that its coming and going are seen in
 * order. */
void primary_hold(void);
void primary_let_go(void);

/* With that held. Retaining an active one makes nothing; nobody's capture minds. */
bool primary_is(CUcontext handle, const struct vgpu_device *device);

/* Those who attached to it, or detached from it. */
void primary_add_users(const struct vgpu_device *device, int more);

/* cuCtxDetach of one. */
CUresult primary_detach(CUcontext context, const struct vgpu_device *device);

void primary_after_fork(void);

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

bool primary_is_active(CUdevice device);

/* With that held. NULL: there is none. Retaining an active one makes nothing; nobody's capture
 * minds. */
CUcontext primary_handle(const struct vgpu_device *device);

/* Those that were made unseen, and current to nobody yet whom we know of, are known from now on. */
void primary_meet_unseen(void);

/* Those who attached to it, or detached from it. */
void primary_add_users(const struct vgpu_device *device, int more);

/* cuGreenCtxDestroy: each green context retains the primary one. */
CUresult primary_end_green(CUgreenCtx green, const struct vgpu_device *device);

/* cuCtxDetach of one. */
CUresult primary_detach(CUcontext context, const struct vgpu_device *device);

void primary_after_fork(void);

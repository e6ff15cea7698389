/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A container's edits laid out as Allocate answers them, for kubelets and runtimes without CDI:
 * environment, mounts, device nodes. Pure.
 */

#include "base/arena.h"
#include "base/error.h"
#include "grpc/deviceplugin.pb-c.h"
#include "node/spec.h"

/*
 * The answer points into the arena. Hooks and groups have no place in it and are left out: whoever
 * makes the edits does without (container_grant.laid_out). -EINVAL for a mount that is no bind
 * mount, -ENOMEM.
 */
int answer_lay_out(const struct spec_edits *edits, struct arena *arena,
                   V1beta1__ContainerAllocateResponse *ret_response, struct error *err);

/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/grant.h"

#include "vgpu/hidden.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"

enum {
    SETTLES_MOST = 256, /* for one refusal, while others are given what is given back */
};

void grant_begin_moving(const struct vgpu_device *device)
{
    atomic_fetch_add(&hidden_moment(device)->moving, 1);
}

void grant_end_moving(const struct vgpu_device *device)
{
    atomic_fetch_sub(&hidden_moment(device)->moving, 1);
}

CUresult grant_find_place(struct grant *grant)
{
    size_t free_bytes, total;
    CUresult result;

    if (grant_place(grant) || grant->context)
        return CUDA_SUCCESS;
    result = REAL(cuMemGetInfo_v2)(&free_bytes, &total);
    if (result != CUDA_SUCCESS)
        return result;
    return grant_place(grant) || grant->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static bool charge(const struct grant *grant)
{
    grant_begin_moving(grant->device);
    if (vgpu_try_charge_now(grant->device, VGPU_DATA, grant->units))
        return true;
    grant_end_moving(grant->device);
    return false;
}

/* What one thread has given back others may have taken before it can: it tries again, then. */
static bool charge_settled(const struct grant *grant)
{
    struct hidden_moment *moment = hidden_moment(grant->device);
    bool again = true;

    for (unsigned i = 0; i < SETTLES_MOST && again; i++) {
        const unsigned returns = atomic_load(&moment->returns);

        if (charge(grant))
            return true;
        again = hidden_settle_refused(grant->device) || atomic_load(&moment->returns) != returns;
    }
    return charge(grant);
}

/* What is charged for hidden memory and gone is given back before more is refused, though not for
 * each of many refusals; another thread may just have done so. */
bool grant_try(const struct grant *grant)
{
    struct hidden_moment *moment = hidden_moment(grant->device);
    int64_t now_ns = vgpu_refresh();

    if (now_ns >= atomic_load_explicit(&moment->due_ns, memory_order_relaxed))
        hidden_settle_due(grant->device);
    if (charge(grant) || (pools_settle(grant->device) && charge(grant)))
        return true;
    if (now_ns >= atomic_load_explicit(&moment->again_ns, memory_order_relaxed) ||
        hidden_is_left(grant->device))
        return charge_settled(grant);
    return charge(grant);
}

bool grant_take(const struct grant *grant)
{
    if (grant_try(grant))
        return true;
    vgpu_count_refusal(grant->device, REGION_REFUSAL_DATA);
    return false;
}

void grant_end(const struct grant *grant)
{
    grant_end_moving(grant->device);
}

void grant_cancel(const struct grant *grant)
{
    if (!grant->device)
        return;
    vgpu_discharge(grant->device, VGPU_DATA, grant->units);
    grant_end_moving(grant->device);
}

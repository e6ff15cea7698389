/* SPDX-License-Identifier: Apache-2.0 */

/* The table of contexts, on a driver that has as many as it is asked for. */

#include "vgpu/contexts.h"

#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "vgpu/allocations.h"
#include "vgpu/code.h"
#include "vgpu/compute.h"
#include "vgpu/host.h"
#include "vgpu/ipc.h"
#include "vgpu/managed.h"
#include "vgpu/overhead.h"
#include "vgpu/pages.h"
#include "vgpu/real.h"

#define CONTEXT_UNITS 100u

struct vgpu vgpu;
void *real_functions[REAL_COUNT];

static uint64_t charged; /* units, by overhead.h and for data */
static CUcontext current;
static bool refuses;
static unsigned made;

/* The driver's side */

static CUresult get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *context, unsigned int flags, CUdevice device)
{
    (void)flags;
    (void)device;
    *context = current = (CUcontext)(uintptr_t)(++made * 16);
    return CUDA_SUCCESS;
}

static CUresult end(CUcontext context)
{
    (void)context;
    return refuses ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult get_state(CUdevice device, unsigned int *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 0;
    return CUDA_SUCCESS;
}

/* The rest of libvgpu's */

enum vgpu_mode vgpu_attach(void)
{
    return VGPU_ON;
}

struct vgpu_device *vgpu_device(CUdevice handle)
{
    (void)handle;
    return &vgpu.devices[0];
}

struct vgpu_device *vgpu_current_device(void)
{
    return &vgpu.devices[0];
}

void vgpu_say(enum vgpu_word word, const char *fmt, ...)
{
    (void)word;
    (void)fmt;
}

void vgpu_charge_anyway(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    (void)device;
    (void)kind;
    charged += units;
}

void vgpu_discharge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    (void)device;
    (void)kind;
    charged -= units;
}

bool real_driver(void)
{
    return true;
}

bool real_has(enum real_index index)
{
    return real_functions[index] != NULL;
}

struct real_relaxed real_relax(void)
{
    return (struct real_relaxed){.on = false};
}

void real_end_relaxed(struct real_relaxed *relaxed)
{
    (void)relaxed;
}

void compute_ending(CUcontext context)
{
    (void)context;
}

void compute_ended(CUcontext context, bool gone)
{
    (void)context;
    (void)gone;
}

bool overhead_begin(struct overhead *overhead, struct vgpu_device *device, enum overhead_of of,
                    uint64_t expected)
{
    (void)overhead;
    (void)device;
    (void)of;
    (void)expected;
    return true;
}

enum overhead_outcome overhead_end(struct overhead *overhead, bool success, uint64_t *ret_units)
{
    (void)overhead;
    *ret_units = success ? CONTEXT_UNITS : 0;
    charged += *ret_units;
    return success ? OVERHEAD_CHARGED : OVERHEAD_NOTHING;
}

bool overhead_adopt(struct vgpu_device *device, uint64_t *ret_units)
{
    (void)device;
    *ret_units = CONTEXT_UNITS;
    charged += CONTEXT_UNITS;
    return true;
}

void overhead_gone(struct vgpu_device *device, uint64_t context_units, uint64_t code_units)
{
    (void)device;
    charged -= context_units + code_units;
}

void overhead_undone(const struct overhead *overhead, uint64_t units)
{
    (void)overhead;
    charged -= units;
}

bool managed_begin_context_end(unsigned context, struct allocations_bag *ret_bag)
{
    allocations_take_context(ALLOCATION_MANAGED, context, ret_bag);
    return false;
}

void managed_end_context_end(bool held, unsigned context, unsigned now)
{
    (void)held;
    (void)context;
    (void)now;
}

void managed_count_spilled(int64_t units)
{
    (void)units;
}

void host_count(int64_t units)
{
    (void)units;
}

void virtual_count_imports(int64_t more)
{
    (void)more;
}

void ipc_context_ended(struct vgpu_device *device, const struct allocations_bag *data)
{
    (void)device;
    charged -= data->shared_units + data->kept_units;
}

void code_forget_functions(void)
{
}

void code_remember(const void *handle, const struct vgpu_device *device, uint64_t units,
                   unsigned context)
{
    (void)handle;
    (void)device;
    (void)units;
    (void)context;
}

struct code code_take(const void *handle)
{
    (void)handle;
    return (struct code){0};
}

void code_end(const void *handle, const struct code *code, bool gone)
{
    (void)handle;
    (void)code;
    (void)gone;
}

void overhead_after_fork(void)
{
}

static int start(void **state)
{
    (void)state;
    real_functions[REAL_cuCtxGetCurrent] = (void *)get_current;
    real_functions[REAL_cuCtxCreate_v2] = (void *)create;
    real_functions[REAL_cuCtxDestroy_v2] = (void *)end;
    real_functions[REAL_cuCtxDetach] = (void *)end;
    real_functions[REAL_cuDevicePrimaryCtxGetState] = (void *)get_state;
    atomic_store(&vgpu.mode, VGPU_ON);
    vgpu.device_count = 1;
    vgpu.devices[0].granted = true;
    contexts_after_fork();
    allocations_after_fork();
    charged = 0;
    made = 0;
    refuses = false;
    return 0;
}

static CUcontext handle_of(unsigned number)
{
    return (CUcontext)(uintptr_t)(number * 16);
}

/* Made by us, or met. */
static void fill_table(bool met)
{
    CUcontext context;

    for (unsigned i = 1; i < CONTEXTS_MAX; i++) {
        if (!met) {
            assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
            continue;
        }
        current = handle_of(i);
        assert_in_range(context_current(), 1, CONTEXTS_MAX - 1);
    }
}

static void what_does_not_fit_into_the_table_is_refused(void **state)
{
    CUcontext context = NULL;

    (void)state;
    for (unsigned met = 0; met < 2; met++) {
        (void)start(NULL);
        fill_table(met);
        made = CONTEXTS_MAX;
        assert_int_equal(charged, (CONTEXTS_MAX - 1) * CONTEXT_UNITS);
        assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
        assert_null(context);
        current = handle_of(CONTEXTS_MAX + 7);
        assert_int_equal(context_current(), CONTEXTS_MAX);
    }
}

static void the_place_of_what_ended_is_free(void **state)
{
    CUcontext context;

    (void)state;
    fill_table(true);
    for (unsigned i = 1; i < CONTEXTS_MAX; i++)
        assert_int_equal(cuCtxDestroy_v2(handle_of(i)), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&contexts_live), 0);
    assert_int_equal(charged, 0);
    made = CONTEXTS_MAX;
    fill_table(false);

    assert_int_equal(cuCtxDestroy_v2(handle_of(CONTEXTS_MAX + 1)), CUDA_SUCCESS);
    assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
}

/* Nothing of it is lost: not its place, nor what is in it. */
static void what_the_driver_does_not_end_stays(void **state)
{
    struct allocation entry = {.units = PAGE_UNITS};
    CUcontext context;

    (void)state;
    assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    entry.context = context_current();
    assert_true(allocations_add(ALLOCATION_ADDRESS, 0x1000, &entry));
    charged += entry.units;
    refuses = true;
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(context_current(), entry.context);
    assert_int_equal(charged, CONTEXT_UNITS + PAGE_UNITS);
    refuses = false;
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(charged, 0);
    assert_false(allocations_take(ALLOCATION_ADDRESS, 0x1000, &entry));
}

/* The moment the driver has destroyed a context, another thread may get its handle: here from
 * within. */
static CUresult end_and_make(CUcontext context)
{
    CUcontext again;

    (void)context;
    made = 0;
    assert_int_equal(cuCtxCreate_v2(&again, 0, 0), CUDA_SUCCESS);
    assert_ptr_equal(again, context);
    return CUDA_SUCCESS;
}

static void a_handle_that_comes_again_at_once_is_another_context(void **state)
{
    CUcontext context;

    (void)state;
    assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    real_functions[REAL_cuCtxDestroy_v2] = (void *)end_and_make;
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(charged, CONTEXT_UNITS);
    assert_int_equal(atomic_load(&contexts_live), 1);
    real_functions[REAL_cuCtxDestroy_v2] = (void *)end;
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(charged, 0);
}

/* Two pieces, which another thread frees while their context is about to end. */

#define FIRST UINT64_C(0x1000000)
#define SECOND UINT64_C(0x2000000)
#define PIECE_UNITS (2 * PAGE_UNITS)

static struct allocation taken;

static unsigned make_with_pieces(CUcontext *context)
{
    struct allocation piece = {.units = PIECE_UNITS};

    assert_int_equal(cuCtxCreate_v2(context, 0, 0), CUDA_SUCCESS);
    piece.context = context_current();
    assert_true(allocations_add(ALLOCATION_ADDRESS, FIRST, &piece));
    assert_true(allocations_add(ALLOCATION_ADDRESS, SECOND, &piece));
    charged += 2 * PIECE_UNITS;
    return piece.context;
}

/* The driver frees the first, and refuses to free the second. */
static CUresult end_beside_frees(CUcontext context)
{
    assert_true(context_take(ALLOCATION_ADDRESS, FIRST, &taken));
    charged -= taken.units;
    assert_false(context_take(ALLOCATION_ADDRESS, FIRST, &taken));
    assert_true(context_take(ALLOCATION_ADDRESS, SECOND, &taken));
    assert_true(context_put_back(ALLOCATION_ADDRESS, SECOND, &taken));
    return end(context);
}

static void what_is_freed_as_its_context_ends_stays_freed(void **state)
{
    struct allocation entry;
    CUcontext context;
    unsigned number = make_with_pieces(&context);

    (void)state;
    real_functions[REAL_cuCtxDestroy_v2] = (void *)end_beside_frees;
    refuses = true;
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(charged, CONTEXT_UNITS + PIECE_UNITS);
    assert_false(allocations_look(ALLOCATION_ADDRESS, FIRST, &entry));
    assert_true(allocations_look(ALLOCATION_ADDRESS, SECOND, &entry));
    assert_int_equal(entry.context, number);

    real_functions[REAL_cuCtxDestroy_v2] = (void *)end;
    refuses = false;
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(charged, 0);
}

static CUresult end_during_a_free(CUcontext context)
{
    assert_true(context_take(ALLOCATION_ADDRESS, FIRST, &taken));
    return end(context);
}

static void nothing_is_put_back_into_a_context_that_has_ended(void **state)
{
    struct allocation entry;
    CUcontext context;

    (void)state;
    (void)make_with_pieces(&context);
    real_functions[REAL_cuCtxDestroy_v2] = (void *)end_during_a_free;
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    assert_int_equal(charged, PIECE_UNITS);
    assert_false(context_put_back(ALLOCATION_ADDRESS, FIRST, &taken));
    assert_false(allocations_look(ALLOCATION_ADDRESS, FIRST, &entry));
}

/* Another thread has it current, and meets it as one unseen. */
static CUresult end_beside_use(CUcontext context)
{
    current = context;
    (void)context_current();
    return end_during_a_free(context);
}

static void what_is_put_back_has_the_number_that_its_context_has_now(void **state)
{
    struct allocation entry;
    CUcontext context;
    unsigned number = make_with_pieces(&context), now;

    (void)state;
    real_functions[REAL_cuCtxDestroy_v2] = (void *)end_beside_use;
    refuses = true;
    assert_int_equal(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
    now = context_current();
    assert_int_not_equal(now, number);
    assert_true(context_put_back(ALLOCATION_ADDRESS, FIRST, &taken));
    assert_true(allocations_look(ALLOCATION_ADDRESS, FIRST, &entry));
    assert_int_equal(entry.context, now);
    assert_true(allocations_look(ALLOCATION_ADDRESS, SECOND, &entry));
    assert_int_equal(entry.context, now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_freed_as_its_context_ends_stays_freed, start),
        cmocka_unit_test_setup(nothing_is_put_back_into_a_context_that_has_ended, start),
        cmocka_unit_test_setup(what_is_put_back_has_the_number_that_its_context_has_now, start),
        cmocka_unit_test_setup(what_does_not_fit_into_the_table_is_refused, start),
        cmocka_unit_test_setup(the_place_of_what_ended_is_free, start),
        cmocka_unit_test_setup(what_the_driver_does_not_end_stays, start),
        cmocka_unit_test_setup(a_handle_that_comes_again_at_once_is_another_context, start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

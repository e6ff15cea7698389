/* SPDX-License-Identifier: Apache-2.0 */

/* Of the judge: whether a pod can't be refused, with nothing on its way. */

#include <limits.h>

#include "cluster/random_judge.h"
#include "cluster/random_judge_parts.h"

/* A quarter or a half lies anywhere where nothing is. */
static bool has_place(uint64_t parts, long mib)
{
    const unsigned size = mib <= CARD_MIB / 4 ? 2 : 4;
    const uint64_t slices = parts / PLACED;
    bool found = false;

    if (mib > CARD_MIB / 2)
        return false;
    for (unsigned start = 0; start < 8; start += size)
        found |= !(slices >> start & ((1u << size) - 1));
    return found;
}

/* An instance of the way in which the card is cut, or will be. */
static bool has_instance(uint64_t parts, long mib)
{
    const bool small = mib <= CARD_MIB / 4 && !(parts & 0xff00) && (parts & 0xf) != 0xf;
    const bool large = mib <= CARD_MIB / 2 && !(parts & 0xff) && (parts & 0x300) != 0x300;

    return small || large;
}

/* A device that is shared by amounts. */
static bool fits_on(const struct api_pod *pod, enum maker maker, unsigned number, unsigned device,
                    long *ret_mib)
{
    const struct ask *ask = &pod->asks[maker];
    const struct room room = judge_room_of(number, maker, device);
    const struct sum sum = judge_sum_of(number, maker, device);
    const long cores = maker == HYGON && ask->cores < 0 ? 100 : ask->cores;
    long mib = ask->memory * (maker == HYGON ? DCU_UNIT_MIB : 1);

    if (!mib)
        mib = room.mib * (ask->percent ? ask->percent : 100) / 100;
    *ret_mib = mib;
    if ((!room.whole && !room.cut && !room.placed) || judge_is_spoilt(number, maker, device))
        return false;
    if (maker == NVIDIA && (!judge_is_listed(pod, number, device) || (room.whole && sum.parts) ||
                            (!room.whole && sum.whole) || (room.cut && sum.parts >= PLACED) ||
                            (room.placed && sum.parts & CUT)))
        return false;
    if (pod->policy == POLICY_MUTEX && sum.tasks)
        return false;
    if (sum.tasks >= room.tasks || sum.mib + mib > room.mib || sum.cores + cores > room.cores ||
        (cores == 100 && sum.tasks) || (!cores && sum.cores >= room.cores))
        return false;
    if (room.placed)
        return has_place(sum.parts, mib);
    return room.whole || has_instance(sum.parts, mib);
}

static unsigned most_of(const unsigned counts[static DEVICES])
{
    unsigned top = 0;

    for (unsigned i = 0; i < DEVICES; i++)
        top = counts[i] > top ? counts[i] : top;
    return top;
}

static bool have_shares(const struct api_pod *pod, enum maker maker, unsigned number)
{
    const long bound = judge_bound_of(pod->space, maker, MEMORY);
    const bool bounded = bound != LONG_MAX || judge_bound_of(pod->space, maker, CORES) != LONG_MAX;
    unsigned by_numa[DEVICES] = {0}, all = 0;
    long mib = 0, cores = pod->asks[maker].cores < 0 ? 100 : pod->asks[maker].cores;

    for (unsigned i = 0; i < world_device_count(number, maker); i++) {
        /* An instance may be larger than what is asked for, and use up the quota. */
        if (bounded &&
            (judge_room_of(number, maker, i).cut || judge_room_of(number, maker, i).placed))
            return false;
        if (!fits_on(pod, maker, number, i, &mib))
            continue;
        by_numa[maker == NVIDIA ? world_numa_node(number, i) : 0]++;
        all++;
    }
    if (maker == NVIDIA && pod->one_numa)
        all = most_of(by_numa);
    if (all < (unsigned)pod->asks[maker].count)
        return false;
    /* Parts of cards of two sizes: which of them, is not the judge's to say. */
    if (bound != LONG_MAX && world.shown[number].small && !pod->asks[maker].memory)
        return false;
    if (bound != LONG_MAX &&
        judge_used_of(pod->space, maker, MEMORY) + mib * pod->asks[maker].count > bound)
        return false;
    cores *= pod->asks[maker].count;
    return judge_bound_of(pod->space, maker, CORES) == LONG_MAX ||
           judge_used_of(pod->space, maker, CORES) + cores <=
               judge_bound_of(pod->space, maker, CORES);
}

/* A device with so many free cores; for several devices only the plain case: all are unused. */
static bool have_chips(const struct api_pod *pod, unsigned number)
{
    const struct ask *ask = &pod->asks[NEURON];
    const unsigned wanted = judge_pieces_wanted(ask, NEURON),
                   cores = ask->count || ask->cores > 1 ? 2 : 1;
    const long bound = judge_bound_of(pod->space, NEURON, CORES);
    unsigned fitting = 0, unused = 0;

    for (unsigned i = 0; i < world_device_count(number, NEURON); i++) {
        const struct sum sum = judge_sum_of(number, NEURON, i);

        if (!judge_room_of(number, NEURON, i).whole || (pod->policy == POLICY_MUTEX && sum.tasks))
            continue;
        fitting += sum.cores + cores <= CHIP_CORES;
        unused += !sum.tasks;
    }
    if (bound != LONG_MAX &&
        judge_used_of(pod->space, NEURON, CORES) + (long)(wanted * cores) > bound)
        return false;
    if (wanted == 1)
        return fitting > 0;
    return unused == world_device_count(number, NEURON) && wanted <= unused &&
           (number == 5 || wanted == unused);
}

bool judge_has_room(const struct api_pod *pod, unsigned first)
{
    /* An init container's devices are free when the app's are chosen. */
    if (pod->shape != SHAPE_APP && pod->shape != SHAPE_INIT)
        return false;
    for (unsigned n = first; n < NODES; n++) {
        bool room = true;

        for (enum maker maker = 0; maker < MAKERS; maker++) {
            if (judge_pieces_wanted(&pod->asks[maker], maker))
                room &= maker == NEURON ? have_chips(pod, n) : have_shares(pod, maker, n);
        }
        if (room)
            return true;
    }
    return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cgroup.h"

#include "base/check.h"
#include "base/util.h"

#define UID "0b8f6a1c-3a52-4d5e-9f0e-1c2d3e4f5a6b"
#define UID_ "0b8f6a1c_3a52_4d5e_9f0e_1c2d3e4f5a6b"
#define OTHER "ffffffff-3a52-4d5e-9f0e-1c2d3e4f5a6b"
#define HASH "d41d8cd98f00b204e9800998ecf8427e"
#define ID "cri-containerd-5bf4e74a.scope"

static void a_process_is_in_the_pod_of_its_group(void **state)
{
    static const struct {
        const char *text, *uid; /* NULL: none */
    } cases[] = {
        {"0::/kubepods/burstable/pod" UID "/5bf4e74a\n", UID},
        {"0::/kubepods/pod" UID "/5bf4e74a\n", UID},
        {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_ ".slice/" ID
         "\n",
         UID},
        {"0::/kubepods.slice/kubepods-pod" UID_ ".slice/" ID, UID},
        {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
         "kubelet-kubepods-besteffort-pod" UID_ ".slice/" ID "\n",
         UID},
        {"12:cpuset:/\n4:memory:/kubepods/besteffort/pod" UID "/x\n1:name=systemd:/\n", UID},
        {"0::/../../kubepods-pod" UID_ ".slice/" ID "\n", UID}, /* from another namespace */
        {"0::/../pod" UID "/x\n", UID},
        {"0::/kubepods/pod" HASH "/x\n", HASH}, /* a static pod */
        {"0::/kubepods.slice/kubepods-pod" HASH ".slice/x\n", HASH},
        /* What a container makes below its own group. */
        {"0::/kubepods/pod" UID "/x/pod" OTHER "/y\n", UID},
        {"0::/kubepods/pod" UID "/x:/pod" OTHER "\n", UID},
        /* The node's own. */
        {"", NULL},
        {"0::/\n", NULL},
        {"0::/system.slice/nvidia-persistenced.service\n", NULL},
        {"0::/machine.slice/libpod-" HASH ".scope\n", NULL},
        {"0::/user.slice/podman-1.scope\n", NULL},
        {"0::/pod" UID "0/x\n", NULL},
        {"0::/podx" UID "/x\n", NULL},
        {"0::/podz41d8cd98f00b204e9800998ecf8427e/x\n", NULL},
        {"0::/pod" UID_ "/x\n", NULL},
        {"0::/a-pod" UID ".slice/x\n", NULL},
        {"0::/a-pod" UID_ ".slicer/x\n", NULL},
        {"pod" UID, NULL},
        {"0:pod" UID, NULL},
        {"::pod" UID, UID},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char uid[CGROUP_UID_SIZE] = "";
        bool found = cgroup_read_pod(cases[i].text, uid);

        if (found != (cases[i].uid != NULL) || (found && strcmp(uid, cases[i].uid) != 0))
            fail_msg("%s: %s", cases[i].text, found ? uid : "none");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_in_the_pod_of_its_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

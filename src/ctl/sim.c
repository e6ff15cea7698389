/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"

int sim_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return CTL_EXIT_FAILURE;
}

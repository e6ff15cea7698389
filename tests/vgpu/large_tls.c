/* SPDX-License-Identifier: Apache-2.0 */

/* Linked into a program, makes it one whose threads need more than our helper thread's stack. */

static __thread char large[2 << 20];
char *large_tls(void);

char *large_tls(void)
{
    return large;
}

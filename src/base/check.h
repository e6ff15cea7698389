/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cmocka with the headers that it needs before it. For tests only. */

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

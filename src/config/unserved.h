/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sections of vendors that HAMi serves and this system does not yet. A file that HAMi reads is
 * read, and what is misspelt in it is found before the vendor is served. Inside config only.
 */

#include "vendor/section.h"

/* -EINVAL: there is no such section, or it has a key that HAMi does not know. */
int unserved_read(const struct section_reading *reading, const struct section_name *name,
                  const struct section *section);

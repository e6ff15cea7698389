/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A server's certificate and key, read again when their files change. If the new pair can't be
 * used, the old one stays in force, and that is logged once.
 */

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>

#include "base/error.h"

enum {
    CERTIFICATE_CHAIN_MAX = 16,
};

struct certificate_pair {
    gnutls_pcert_st chain[CERTIFICATE_CHAIN_MAX];
    unsigned count;
    gnutls_privkey_t key;
};

struct certificate;

int certificate_new(const char *cert_file, const char *key_file,
                    struct certificate **ret_certificate, struct error *err);
void certificate_free(struct certificate *certificate);

/* Reads the files if they changed. Blocks on them. */
void certificate_refresh(struct certificate *certificate);

/* The pair in force; good until the second refresh that changes it. */
struct certificate_pair *certificate_current(struct certificate *certificate);

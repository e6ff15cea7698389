/* SPDX-License-Identifier: Apache-2.0 */
#include "http/certificate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"

enum {
    PEM_MAX = 64 << 10,
};

/* Identifies a file's content; taken through links. */
struct stamp {
    dev_t device;
    ino_t inode;
    struct timespec changed;
    off_t size;
};

struct certificate {
    char *cert_file, *key_file;
    struct stamp cert_stamp, key_stamp;
    struct certificate_pair *current;
    struct certificate_pair *before; /* handshakes may still be using it */
};

static void pair_free(struct certificate_pair *pair)
{
    if (!pair)
        return;
    for (unsigned i = 0; i < pair->count; i++)
        gnutls_pcert_deinit(&pair->chain[i]);
    if (pair->key)
        gnutls_privkey_deinit(pair->key);
    free(pair);
}
DEFINE_CLEANUP(struct certificate_pair *, pair_free);

/* It may hold a key, and is wiped after use. */
struct pem {
    char text[PEM_MAX];
    gnutls_datum_t datum;
};

static int pem_read(struct pem *pem, const char *path, struct error *err)
{
    ssize_t len = file_read(path, pem->text, sizeof(pem->text));

    if (len < 0)
        return error_set(err, (int)len, "%s: %s", path, strerror((int)-len));
    pem->datum = (gnutls_datum_t){(unsigned char *)pem->text, (unsigned)len};
    return 0;
}

static struct stamp stamp_of(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return (struct stamp){0};
    return (struct stamp){st.st_dev, st.st_ino, st.st_mtim, st.st_size};
}

static bool same_stamp(const struct stamp *a, const struct stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static int read_chain(struct pem *pem, const char *path, struct certificate_pair *pair,
                      struct error *err)
{
    unsigned count = CERTIFICATE_CHAIN_MAX;
    int r;

    r = pem_read(pem, path, err);
    if (r < 0)
        return r;
    r = gnutls_pcert_list_import_x509_raw(pair->chain, &count, &pem->datum, GNUTLS_X509_FMT_PEM, 0);
    if (r < 0)
        return error_set(err, -EINVAL, "%s: %s", path, gnutls_strerror(r));
    pair->count = count;
    return 0;
}

static int read_key(struct pem *pem, const char *path, struct certificate_pair *pair,
                    struct error *err)
{
    int r;

    r = pem_read(pem, path, err);
    if (r < 0)
        return r;
    r = gnutls_privkey_init(&pair->key);
    if (r >= 0)
        r = gnutls_privkey_import_x509_raw(pair->key, &pem->datum, GNUTLS_X509_FMT_PEM, NULL, 0);
    return r < 0 ? error_set(err, -EINVAL, "%s: %s", path, gnutls_strerror(r)) : 0;
}

static bool belong_together(const struct certificate_pair *pair)
{
    unsigned char cert_id[64], key_id[64];
    size_t cert_len = sizeof(cert_id), key_len = sizeof(key_id);
    gnutls_pubkey_t public;
    bool same = false;

    if (gnutls_pubkey_init(&public) < 0)
        return false;
    if (gnutls_pubkey_import_privkey(public, pair->key, 0, 0) >= 0 &&
        gnutls_pubkey_get_key_id(public, GNUTLS_KEYID_USE_SHA256, key_id, &key_len) >= 0 &&
        gnutls_pubkey_get_key_id(pair->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, cert_id,
                                 &cert_len) >= 0)
        same = cert_len == key_len && memcmp(cert_id, key_id, key_len) == 0;
    gnutls_pubkey_deinit(public);
    return same;
}

static int read_files(const struct certificate *certificate, struct pem *pem,
                      struct certificate_pair *pair, struct error *err)
{
    int r;

    r = read_chain(pem, certificate->cert_file, pair, err);
    if (r < 0)
        return error_wrap(err, r, "--cert_file");
    r = read_key(pem, certificate->key_file, pair, err);
    if (r < 0)
        return error_wrap(err, r, "--key_file");
    if (!belong_together(pair))
        return error_set(err, -EINVAL, "--key_file: %s: not the key of %s", certificate->key_file,
                         certificate->cert_file);
    return 0;
}

static int read_pair(const struct certificate *certificate, struct certificate_pair **ret_pair,
                     struct error *err)
{
    CLEANUP(pair_freep) struct certificate_pair *pair = calloc(1, sizeof(*pair));
    struct pem pem;
    int r;

    if (!pair)
        return -ENOMEM;
    r = read_files(certificate, &pem, pair, err);
    explicit_bzero(&pem, sizeof(pem));
    if (r < 0)
        return r;
    *ret_pair = TAKE(pair);
    return 0;
}

static void remember_stamps(struct certificate *certificate)
{
    certificate->cert_stamp = stamp_of(certificate->cert_file);
    certificate->key_stamp = stamp_of(certificate->key_file);
}

int certificate_new(const char *cert_file, const char *key_file,
                    struct certificate **ret_certificate, struct error *err)
{
    struct certificate *certificate = calloc(1, sizeof(*certificate));
    int r;

    if (!certificate)
        return -ENOMEM;
    certificate->cert_file = strdup(cert_file);
    certificate->key_file = strdup(key_file);
    if (!certificate->cert_file || !certificate->key_file) {
        certificate_free(certificate);
        return -ENOMEM;
    }
    remember_stamps(certificate);
    r = read_pair(certificate, &certificate->current, err);
    if (r < 0) {
        certificate_free(certificate);
        return r;
    }
    *ret_certificate = certificate;
    return 0;
}

void certificate_free(struct certificate *certificate)
{
    if (!certificate)
        return;
    pair_free(certificate->current);
    pair_free(certificate->before);
    free(certificate->cert_file);
    free(certificate->key_file);
    free(certificate);
}

void certificate_refresh(struct certificate *certificate)
{
    struct stamp cert = stamp_of(certificate->cert_file), key = stamp_of(certificate->key_file);
    struct certificate_pair *pair = NULL;
    struct error err = ERROR_INIT;

    if (same_stamp(&cert, &certificate->cert_stamp) && same_stamp(&key, &certificate->key_stamp))
        return;
    remember_stamps(certificate);
    if (read_pair(certificate, &pair, &err) < 0) {
        log_warn("the certificate in force stays, the new one can't be used: %s", err.text);
        return;
    }
    pair_free(certificate->before);
    certificate->before = certificate->current;
    certificate->current = pair;
    log_info("certificate %s: read anew", certificate->cert_file);
}

struct certificate_pair *certificate_current(struct certificate *certificate)
{
    return certificate->current;
}

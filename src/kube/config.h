/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the Kubernetes API server is and how to talk to it: from a kubeconfig, or from the pod's
 * ServiceAccount.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/error.h"

/* Strings are NULL where they are not given. Data are PEM texts, and rule over files. */
struct kube_config {
    char *server; /* "https://HOST:PORT", perhaps with a path, without a final slash */
    char *tls_server_name;
    char *proxy_url;
    bool insecure; /* the server's certificate is not checked */

    char *ca_data, *ca_file;
    char *client_cert_data, *client_cert_file;
    char *client_key_data, *client_key_file;
    char *token;
    char *token_file; /* read again as it changes; rules over token */
    char *username, *password;

    char *default_namespace; /* the context's, or the pod's; else "default" */
};

/*
 * The kubeconfig at path; path NULL or "": the file that $KUBECONFIG names, else the pod's own
 * (KUBERNETES_SERVICE_HOST and the ServiceAccount's files), else ~/.kube/config. Blocks on files.
 * -ENOENT when there is none, -EINVAL when it can't be read or asks for exec or auth-provider
 * plugins, which are not supported. Errors name places, never secrets, and begin with --kubeconfig,
 * by which each program takes path, or with KUBECONFIG.
 */
int kube_config_load(const char *path, struct kube_config **ret_config, struct error *err);

/*
 * A kubeconfig's text, its current context. Relative file names are taken against folder. name is
 * for errors. Touches no file.
 */
int kube_config_parse(const char *name, const char *folder, const char *text, size_t len,
                      struct kube_config **ret_config, struct error *err);

void kube_config_free(struct kube_config *config);
DEFINE_CLEANUP(struct kube_config *, kube_config_free);

/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of this folder share and others need not see. */

#include <stddef.h>

#include "kube/client.h"

struct transport;

struct transport *kube_client_transport(struct kube_client *client);

/* What a refusal means, for a person: the Status object's message, else the HTTP status. */
void kube_describe_failure(unsigned status, const char *body, size_t len, char *why, size_t size);

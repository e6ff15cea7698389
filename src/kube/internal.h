/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside kube only. */

#include <stddef.h>

#include "kube/client.h"

struct transport;

struct transport *kube_client_transport(struct kube_client *client);

/* Why the server refused, for a person: the Status object's message, else the HTTP status. */
void kube_describe_failure(unsigned status, const char *body, size_t len, char *why, size_t size);

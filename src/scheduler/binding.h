/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A Binding, and what the API server's answers to it mean.
 *
 * The server binds a pod of a uid once, and never one that is being deleted. So an answer about the
 * pod is certain. An answer about a failed request is not: the server, or etcd behind it, may still
 * carry the request out. etcd's time-outs come as 409, like refusals; only the message
 * distinguishes them.
 */

#include "base/strbuf.h"
#include "kube/client.h"
#include "model/text.h"
#include "scheduler/wire.h"

enum binding_end {
    BINDING_DONE = 1,
    BINDING_NEVER,    /* there is no pod of this uid: no try will be carried out any more */
    BINDING_ASSIGNED, /* the pod has a node, which an earlier try may have given to it */
    BINDING_REFUSED,  /* this try is not carried out; an earlier one may be */
    BINDING_LATER,    /* as BINDING_REFUSED, and the server asks to try again */
    BINDING_DOUBTFUL, /* it may be carried out, even now */
};
enum binding_end binding_read(const struct kube_answer *answer);

/* Whether the API server itself says that the pod does not exist: a 404 may be a proxy's. */
bool binding_says_no_pod(const struct kube_answer *answer);

void binding_write(struct strbuf *body, const struct bind_args *args,
                   const struct text_pairs *annotations);

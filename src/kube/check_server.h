/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * For tests: an API server in the place of kube/client.c, for the status of one Node. It keeps the
 * last request and answers when it is told to.
 */

#include "base/check.h"
#include "base/util.h"
#include "kube/client.h"

static struct {
    unsigned writes;
    char body[2048];
    kube_answer_fn fn;
    void *data;
} server;

int kube_request(struct kube_client *client, const struct kube_call *call, kube_answer_fn fn,
                 void *data, struct kube_request **ret_request)
{
    (void)client;
    assert_string_equal(call->path, "/api/v1/nodes/node-1/status");
    assert_true(call->body_len < sizeof(server.body));
    COPY_TEXT(server.body, call->body);
    server.writes++;
    server.fn = fn;
    server.data = data;
    *ret_request = (struct kube_request *)(void *)&server;
    return 0;
}

void kube_request_cancel(struct kube_request *request)
{
    (void)request;
}

char *kube_escape(const char *text, char *to, size_t size)
{
    copy_text(to, size, text);
    return to;
}

static void answer(unsigned status)
{
    const struct kube_answer told = {.status = status, .body = "", .why = ""};

    server.fn(server.data, &told);
}

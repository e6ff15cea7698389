/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * gRPC over a unix socket, on a libuv loop: a server, and calls to one. Messages are what
 * protobuf-c packs. Nothing blocks; callbacks come from the loop.
 */

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/cleanup.h"
#include "base/error.h"

/* The status codes that are used here; peers may send others. */
enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
};

enum {
    GRPC_REQUEST_MAX = 1 << 20, /* bytes of a message that a server takes */
    GRPC_ANSWER_MAX = 16 << 20, /* and that a client takes */
};

/* Serving */

struct grpc_server;
struct grpc_call; /* a call under way, from its request on */

struct grpc_method {
    const char *path; /* "/v1beta1.DevicePlugin/Allocate" */
    /*
     * A request came; message is good for this call only. Answer it now or later: any number of
     * grpc_call_send(), then grpc_call_end(), unless gone() comes first.
     */
    void (*call)(void *data, struct grpc_call *call, const uint8_t *message, size_t len);
};

struct grpc_service {
    const struct grpc_method *methods;
    size_t method_count;
    /* The client is gone, or the server is freed; the call must not be used any more. */
    void (*gone)(void *data, struct grpc_call *call);
};

/*
 * Listens on a socket at path, with mode 0600; it replaces an existing one. The service is not
 * copied. -ENAMETOOLONG for a path beyond what a unix socket has, or bind()'s errno.
 */
int grpc_server_new(uv_loop_t *loop, const char *path, const struct grpc_service *service,
                    void *data, struct grpc_server **ret_server, struct error *err);

/*
 * Ends all calls, with gone() for those that still have an owner, and removes the socket. The
 * memory goes with the loop's turns.
 */
void grpc_server_free(struct grpc_server *server);
DEFINE_CLEANUP(struct grpc_server *, grpc_server_free);

/* Whether the socket at its path is still the server's: it may have been removed or replaced. */
bool grpc_server_is_reachable(const struct grpc_server *server);

/* Sends a message, which is packed at once. -ENOMEM. */
int grpc_call_send(struct grpc_call *call, const ProtobufCMessage *message);

/* Ends the call; why may be NULL. The call is gone for its owner. */
void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *why);

/* The descriptor of the call's connection, which stays the server's; -EBADF. */
int grpc_call_fd(const struct grpc_call *call);

/* Calling */

struct grpc_request;

struct grpc_answer {
    int error; /* 0: the server answered; else -ENOENT, -ECONNREFUSED, -ETIMEDOUT... */
    enum grpc_status status; /* of its answer */
    const char *why;         /* "" on success */
    const uint8_t *message;  /* of a successful answer; good for the callback only */
    size_t len;
};

typedef void (*grpc_answer_fn)(void *data, const struct grpc_answer *answer);

/*
 * Calls a method with one message and waits for one, on a connection of its own. fn is called
 * exactly once unless the request is cancelled. Returns 0, -ENOMEM or -ENAMETOOLONG.
 */
int grpc_request(uv_loop_t *loop, const char *socket, const char *method,
                 const ProtobufCMessage *message, unsigned timeout_ms, grpc_answer_fn fn,
                 void *data, struct grpc_request **ret_request);
void grpc_request_cancel(struct grpc_request *request);

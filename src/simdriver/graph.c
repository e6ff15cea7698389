/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "simdriver/graph_memory.h"
#include "simdriver/guest.h"
#include "simdriver/semaphores.h"

#define NODE_MAGIC 0x65646f4eu

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph *unused;
static struct graph_node *unused_nodes;

struct graph *graph_find(const void *handle, uint32_t magic)
{
    struct graph *graph = (struct graph *)(uintptr_t)handle;

    if (!graph || __atomic_load_n(&graph->magic, __ATOMIC_ACQUIRE) == magic)
        return graph;
    if (!graph->magic)
        guest_meet_stale();
    return NULL;
}

struct graph_node *graph_find_node(CUgraphNode handle)
{
    struct graph_node *node = (struct graph_node *)handle;

    if (!node || __atomic_load_n(&node->magic, __ATOMIC_ACQUIRE) == NODE_MAGIC)
        return node;
    guest_meet_stale();
    return NULL;
}

struct graph *graph_new(uint32_t magic)
{
    struct graph *graph;

    (void)pthread_mutex_lock(&lock);
    graph = unused;
    if (graph)
        unused = graph->next_unused;
    (void)pthread_mutex_unlock(&lock);
    if (!graph)
        graph = malloc(sizeof(*graph));
    if (!graph)
        return NULL;
    memset(graph, 0, sizeof(*graph));
    __atomic_store_n(&graph->magic, magic, __ATOMIC_RELEASE);
    return graph;
}

static struct graph_node *node_new(const struct graph_node *like)
{
    struct graph_node *node;

    (void)pthread_mutex_lock(&lock);
    node = unused_nodes;
    if (node)
        unused_nodes = node->next_unused;
    (void)pthread_mutex_unlock(&lock);
    if (!node)
        node = malloc(sizeof(*node));
    if (!node)
        return NULL;
    *node = *like;
    node->after = NULL;
    node->after_count = 0;
    node->begins = NULL;
    node->goes_on = 0;
    node->followed = false;
    if (node->memory)
        graph_memory_hold(node->memory);
    if (node->semaphores)
        semaphores_hold(node->semaphores);
    for (unsigned i = 0; i < ARRAY_SIZE(node->pointers); i++)
        node->pointers[i] = &node->values[i];
    node->kernel.kernelParams = node->pointers;
    __atomic_store_n(&node->magic, NODE_MAGIC, __ATOMIC_RELEASE);
    return node;
}

static void node_free(struct graph_node *node)
{
    if (!node)
        return;
    __atomic_store_n(&node->magic, 0, __ATOMIC_RELEASE);
    free(TAKE(node->after));
    free(TAKE(node->begins));
    for (unsigned i = 0; node->bodies && i < node->body_count; i++)
        graph_free(node->bodies[i]);
    free(TAKE(node->bodies));
    graph_free(TAKE(node->child));
    if (node->memory)
        graph_memory_drop(TAKE(node->memory));
    semaphores_drop(TAKE(node->semaphores));
    (void)pthread_mutex_lock(&lock);
    node->next_unused = unused_nodes;
    unused_nodes = node;
    (void)pthread_mutex_unlock(&lock);
}

void graph_free(struct graph *graph)
{
    if (!graph)
        return;
    __atomic_store_n(&graph->magic, 0, __ATOMIC_RELEASE);
    if (graph->exec)
        graph->exec->source = NULL;
    if (graph->source)
        graph->source->exec = NULL;
    for (size_t i = 0; i < graph->count; i++)
        node_free(graph->nodes[i]);
    free(TAKE(graph->nodes));
    while (graph->conditions) {
        struct graph_condition *condition = graph->conditions;

        graph->conditions = condition->next;
        free(condition);
    }
    graph->count = graph->size = 0;
    graph->capturing = false;
    (void)pthread_mutex_lock(&lock);
    graph->next_unused = unused;
    unused = graph;
    (void)pthread_mutex_unlock(&lock);
}

struct graph_node *graph_add(struct graph *graph, const struct graph_node *like)
{
    struct graph_node *node;

    if (graph->count == graph->size) {
        size_t size = graph->size ? graph->size * 2 : 16;
        struct graph_node **nodes = realloc(graph->nodes, size * sizeof(*nodes));

        if (!nodes)
            return NULL;
        graph->nodes = nodes;
        graph->size = size;
    }
    node = node_new(like);
    if (!node)
        return NULL;
    node->graph = graph;
    graph->nodes[graph->count++] = node;
    return node;
}

void graph_set_work(struct graph_node *node, const struct graph_node *like)
{
    node->op = like->op;
    node->context = like->context;
    node->context_gen = like->context_gen;
    node->local_bytes = like->local_bytes;
    node->kernel = like->kernel;
    node->kernel.kernelParams = node->pointers;
    memcpy(node->values, like->values, sizeof(node->values));
    if (like->semaphores)
        semaphores_hold(like->semaphores);
    semaphores_drop(node->semaphores);
    node->semaphores = like->semaphores;
}

bool graph_add_after(struct graph_node *node, struct graph_node *before)
{
    struct graph_node **after;

    after = realloc(node->after, (node->after_count + 1) * sizeof(struct graph_node *));
    if (!after)
        return false;
    node->after = after;
    node->after[node->after_count++] = before;
    return true;
}

void graph_forget_after(struct graph_node *node, const struct graph_node *before)
{
    size_t kept = 0;

    for (size_t i = 0; i < node->after_count; i++) {
        if (node->after[i] != before)
            node->after[kept++] = node->after[i];
    }
    node->after_count = kept;
}

void graph_remove(struct graph_node *node)
{
    struct graph *graph = node->graph;
    size_t kept = 0;

    for (size_t i = 0; i < graph->count; i++) {
        graph_forget_after(graph->nodes[i], node);
        if (graph->nodes[i] != node)
            graph->nodes[kept++] = graph->nodes[i];
    }
    graph->count = kept;
    node_free(node);
}

static void unmark(const struct graph *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->marked = false;
}

static bool is_ready(const struct graph_node *node)
{
    for (size_t i = 0; i < node->after_count; i++) {
        if (!node->after[i]->marked)
            return false;
    }
    return true;
}

struct graph_node **graph_order(const struct graph *graph, size_t *ret_count)
{
    struct graph_node **order = calloc(graph->count + 1, sizeof(struct graph_node *));
    size_t count = 0, before = SIZE_MAX;

    if (!order)
        return NULL;
    unmark(graph);
    while (count != before) {
        before = count;
        for (size_t i = 0; i < graph->count; i++) {
            struct graph_node *node = graph->nodes[i];

            if (node->marked || !is_ready(node))
                continue;
            node->marked = true;
            order[count++] = node;
        }
    }
    *ret_count = count;
    return order;
}

/* No node is looked at twice. */
static bool reaches(struct graph_node *from, const struct graph_node *to)
{
    if (from == to)
        return true;
    if (from->marked)
        return false;
    from->marked = true;
    for (size_t i = 0; i < from->after_count; i++) {
        if (reaches(from->after[i], to))
            return true;
    }
    return false;
}

bool graph_is_before(const struct graph_node *first, const struct graph_node *second)
{
    unmark(second->graph);
    return first != second && reaches((struct graph_node *)(uintptr_t)second, first);
}

struct graph_node *graph_find_copy(const struct graph *graph, const struct graph_node *origin)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->origin == origin)
            return graph->nodes[i];
    }
    return NULL;
}

static bool copy_child(struct graph_node *copy, const struct graph_node *from)
{
    copy->child = NULL;
    if (!from->child)
        return true;
    copy->child = graph_new(GRAPH_MAGIC);
    if (!copy->child)
        return false;
    copy->child->is_child = true;
    return graph_copy(copy->child, from->child);
}

bool graph_copy(struct graph *to, const struct graph *from)
{
    for (size_t i = 0; i < from->count; i++) {
        struct graph_node *copy = graph_add(to, from->nodes[i]);

        if (!copy || !copy_child(copy, from->nodes[i]))
            return false;
        copy->origin = from->nodes[i];
    }
    for (size_t i = 0; i < from->count; i++) {
        for (size_t k = 0; k < from->nodes[i]->after_count; k++) {
            if (!graph_add_after(to->nodes[i], graph_find_copy(to, from->nodes[i]->after[k])))
                return false;
        }
    }
    return true;
}

CUresult graph_insert(CUgraphNode *ret, CUgraph handle, const CUgraphNode *dependencies,
                      size_t count, const struct graph_node *like)
{
    struct graph *graph = graph_find(handle, GRAPH_MAGIC);
    struct graph_node *node;

    if (!ret || !graph || (count && !dependencies) || !graph_has_nodes(graph, dependencies, count))
        return CUDA_ERROR_INVALID_VALUE;
    node = graph_add(graph, like);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (graph_add_after(node, graph_find_node(dependencies[i])))
            continue;
        graph_remove(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

bool graph_has_memory(const struct graph *graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->memory ||
            (graph->nodes[i]->child && graph_has_memory(graph->nodes[i]->child)))
            return true;
    }
    return false;
}

bool graph_has_conditions(const struct graph *graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            return true;
    }
    return graph->conditions != NULL;
}

struct graph_condition *graph_add_condition(struct graph *graph, const struct graph_condition *like)
{
    static uint64_t last;
    struct graph_condition *condition = calloc(1, sizeof(*condition));

    if (!condition)
        return NULL;
    if (like)
        *condition = *like;
    else
        condition->id = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    condition->next = graph->conditions;
    graph->conditions = condition;
    return condition;
}

struct graph_condition *graph_find_condition(const struct graph *graph, uint64_t id)
{
    for (; graph; graph = graph->around) {
        for (struct graph_condition *c = graph->conditions; c; c = c->next) {
            if (c->id == id)
                return c;
        }
    }
    return NULL;
}

bool graph_may_free(const struct graph *graph, const struct graph_memory *memory)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
            graph->nodes[i]->memory == memory)
            return false;
    }
    return memory != NULL;
}

bool graph_has_nodes(const struct graph *graph, const CUgraphNode *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct graph_node *node = graph_find_node(nodes[i]);

        if (!node || node->graph != graph)
            return false;
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/config.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/util.h"

#define FILE_MAX (1 * MIB)
#define POD_FOLDER "/var/run/secrets/kubernetes.io/serviceaccount"

void kube_config_free(struct kube_config *config)
{
    if (!config)
        return;
    free(config->server);
    free(config->tls_server_name);
    free(config->proxy_url);
    free(config->ca_data);
    free(config->ca_file);
    free(config->client_cert_data);
    free(config->client_cert_file);
    free(config->client_key_data);
    free(config->client_key_file);
    free(config->token);
    free(config->token_file);
    free(config->username);
    free(config->password);
    free(config->default_namespace);
    free(config);
}

/* A kubeconfig's text while it is read. */
struct reading {
    const char *name;
    const char *folder;
    yaml_document_t *tree;
    struct error *err;
};

static const yaml_node_t *find_value(const struct reading *reading, const yaml_node_t *mapping,
                                     const char *key)
{
    const yaml_node_pair_t *pair;

    if (!mapping || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    for (pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *node = yaml_document_get_node(reading->tree, pair->key);

        if (node && node->type == YAML_SCALAR_NODE &&
            strcmp((const char *)node->data.scalar.value, key) == 0)
            return yaml_document_get_node(reading->tree, pair->value);
    }
    return NULL;
}

/* The scalar under a key; NULL where there is none, or it is empty or null. */
static const char *find_text(const struct reading *reading, const yaml_node_t *mapping,
                             const char *key)
{
    const yaml_node_t *node = find_value(reading, mapping, key);
    const char *text;

    if (!node || node->type != YAML_SCALAR_NODE)
        return NULL;
    text = (const char *)node->data.scalar.value;
    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
        (strcmp(text, "null") == 0 || strcmp(text, "~") == 0))
        return NULL;
    return *text ? text : NULL;
}

/* The entry of this name in the list under key: {name: ..., MEMBER: {...}}; its MEMBER. */
static const yaml_node_t *find_named(const struct reading *reading, const char *list,
                                     const char *name, const char *member)
{
    const yaml_node_t *root = yaml_document_get_root_node(reading->tree);
    const yaml_node_t *entries = find_value(reading, root, list);
    const yaml_node_item_t *item;

    if (!entries || entries->type != YAML_SEQUENCE_NODE)
        return NULL;
    for (item = entries->data.sequence.items.start; item < entries->data.sequence.items.top;
         item++) {
        const yaml_node_t *entry = yaml_document_get_node(reading->tree, *item);
        const char *found = find_text(reading, entry, "name");

        if (found && strcmp(found, name) == 0)
            return find_value(reading, entry, member);
    }
    return NULL;
}

static int config_refuse(const struct reading *reading, int code, const char *what, const char *why)
{
    return error_set(reading->err, code, "%s: %.200s: %s", reading->name, what, why);
}

static int keep_text(char **ret_text, const char *text)
{
    if (!text)
        return 0;
    *ret_text = strdup(text);
    return *ret_text ? 0 : -ENOMEM;
}

/* The path of a file name in a kubeconfig. */
static int keep_path(const struct reading *reading, char **ret_path, const char *path)
{
    if (!path || path[0] == '/' || !reading->folder)
        return keep_text(ret_path, path);
    if (asprintf(ret_path, "%s/%s", reading->folder, path) < 0) {
        *ret_path = NULL;
        return -ENOMEM;
    }
    return 0;
}

static int base64_value(char letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    if (letter == '+')
        return 62;
    return letter == '/' ? 63 : -1;
}

/* Text out of base64 (RFC 4648, line ends skipped). NUL bytes inside are an error: it is PEM. */
static int base64_decode(const char *text, char **ret_text)
{
    AUTOFREE char *out = malloc(strlen(text) / 4 * 3 + 4);
    unsigned bits = 0, group = 0;
    size_t len = 0;

    if (!out)
        return -ENOMEM;
    for (; *text && *text != '='; text++) {
        int value = base64_value(*text);

        if (*text == '\n' || *text == '\r' || *text == ' ')
            continue;
        if (value < 0)
            return -EINVAL;
        group = group << 6 | (unsigned)value;
        bits += 6;
        if (bits < 8)
            continue;
        bits -= 8;
        out[len] = (char)(group >> bits & 0xff);
        if (!out[len++])
            return -EINVAL;
    }
    if (text[strspn(text, "=\r\n ")])
        return -EINVAL;
    out[len] = '\0';
    *ret_text = TAKE(out);
    return 0;
}

enum form {
    FORM_TEXT,
    FORM_PATH,
    FORM_DATA, /* base64 */
};

struct field {
    const char *key;
    enum form form;
    size_t member; /* of struct kube_config */
};

static const struct field cluster_fields[] = {
    {"server", FORM_TEXT, offsetof(struct kube_config, server)},
    {"tls-server-name", FORM_TEXT, offsetof(struct kube_config, tls_server_name)},
    {"proxy-url", FORM_TEXT, offsetof(struct kube_config, proxy_url)},
    {"certificate-authority", FORM_PATH, offsetof(struct kube_config, ca_file)},
    {"certificate-authority-data", FORM_DATA, offsetof(struct kube_config, ca_data)},
};

static const struct field user_fields[] = {
    {"client-certificate", FORM_PATH, offsetof(struct kube_config, client_cert_file)},
    {"client-certificate-data", FORM_DATA, offsetof(struct kube_config, client_cert_data)},
    {"client-key", FORM_PATH, offsetof(struct kube_config, client_key_file)},
    {"client-key-data", FORM_DATA, offsetof(struct kube_config, client_key_data)},
    {"token", FORM_TEXT, offsetof(struct kube_config, token)},
    {"tokenFile", FORM_PATH, offsetof(struct kube_config, token_file)},
    {"username", FORM_TEXT, offsetof(struct kube_config, username)},
    {"password", FORM_TEXT, offsetof(struct kube_config, password)},
};

static int read_field(const struct reading *reading, const yaml_node_t *mapping,
                      const struct field *field, struct kube_config *config)
{
    char **member = (char **)((char *)config + field->member);
    const char *text = find_text(reading, mapping, field->key);
    int r;

    if (!text)
        return 0;
    if (field->form == FORM_PATH)
        r = keep_path(reading, member, text);
    else if (field->form == FORM_DATA)
        r = base64_decode(text, member);
    else
        r = keep_text(member, text);
    if (r < 0)
        return config_refuse(reading, r, field->key, r == -EINVAL ? "not base64" : strerror(-r));
    return 0;
}

static int read_fields(const struct reading *reading, const yaml_node_t *mapping,
                       const struct field *fields, size_t count, struct kube_config *config)
{
    int r = 0;

    for (size_t i = 0; i < count && r == 0; i++)
        r = read_field(reading, mapping, &fields[i], config);
    return r;
}

static int check_server(const struct reading *reading, struct kube_config *config)
{
    size_t len;

    if (!config->server)
        return config_refuse(reading, -EINVAL, "server", "missing");
    if (strncmp(config->server, "https://", 8) != 0 && strncmp(config->server, "http://", 7) != 0)
        return config_refuse(reading, -EINVAL, "server", "not an http:// or https:// address");
    for (len = strlen(config->server); len && config->server[len - 1] == '/'; len--)
        config->server[len - 1] = '\0';
    return 0;
}

static int read_cluster(const struct reading *reading, const char *name, struct kube_config *config)
{
    const yaml_node_t *cluster = find_named(reading, "clusters", name, "cluster");
    const char *insecure;
    int r;

    if (!cluster)
        return config_refuse(reading, -EINVAL, name, "there is no cluster of this name");
    r = read_fields(reading, cluster, cluster_fields, ARRAY_SIZE(cluster_fields), config);
    if (r < 0)
        return r;
    insecure = find_text(reading, cluster, "insecure-skip-tls-verify");
    config->insecure = insecure && strcmp(insecure, "true") == 0;
    return check_server(reading, config);
}

static int read_user(const struct reading *reading, const char *name, struct kube_config *config)
{
    const yaml_node_t *user = find_named(reading, "users", name, "user");

    if (!user)
        return config_refuse(reading, -EINVAL, name, "there is no user of this name");
    if (find_value(reading, user, "exec") || find_value(reading, user, "auth-provider"))
        return config_refuse(
            reading, -EINVAL, name,
            "credentials of a plugin are not supported; use a token or a certificate");
    return read_fields(reading, user, user_fields, ARRAY_SIZE(user_fields), config);
}

static int read_context(const struct reading *reading, struct kube_config *config)
{
    const yaml_node_t *root = yaml_document_get_root_node(reading->tree);
    const char *current = find_text(reading, root, "current-context");
    const char *cluster, *user, *home;
    const yaml_node_t *context;
    int r;

    if (!current)
        return config_refuse(reading, -EINVAL, "current-context", "missing");
    context = find_named(reading, "contexts", current, "context");
    if (!context)
        return config_refuse(reading, -EINVAL, current, "there is no context of this name");

    cluster = find_text(reading, context, "cluster");
    if (!cluster)
        return config_refuse(reading, -EINVAL, current, "the context names no cluster");
    r = read_cluster(reading, cluster, config);
    user = find_text(reading, context, "user");
    if (r == 0 && user)
        r = read_user(reading, user, config);
    if (r < 0)
        return r;
    home = find_text(reading, context, "namespace");
    return keep_text(&config->default_namespace, home ? home : "default");
}

int kube_config_parse(const char *name, const char *folder, const char *text, size_t len,
                      struct kube_config **ret_config, struct error *err)
{
    CLEANUP(kube_config_freep) struct kube_config *config = calloc(1, sizeof(*config));
    struct reading reading = {.name = name, .folder = folder, .err = err};
    yaml_document_t tree;
    yaml_parser_t parser;
    int r = 0;

    if (!config || !yaml_parser_initialize(&parser))
        return error_set(err, -ENOMEM, "%s: no memory", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    if (!yaml_parser_load(&parser, &tree)) {
        r = error_set(err, -EINVAL, "%s:%zu:%zu: %s", name, parser.problem_mark.line + 1,
                      parser.problem_mark.column + 1, parser.problem ? parser.problem : "not YAML");
    } else {
        reading.tree = &tree;
        r = read_context(&reading, config);
        if (r == -ENOMEM)
            (void)error_set(err, r, "%s: no memory", name);
        yaml_document_delete(&tree);
    }
    yaml_parser_delete(&parser);
    if (r < 0)
        return r;
    *ret_config = TAKE(config);
    return 0;
}

static int load_file(const char *path, struct kube_config **ret_config, struct error *err)
{
    AUTOFREE char *text = malloc(FILE_MAX + 1);
    char folder[PATH_MAX];
    ssize_t len;
    char *slash;

    if (!text)
        return error_set(err, -ENOMEM, "%s: no memory", path);
    len = file_read(path, text, FILE_MAX + 1);
    if (len < 0)
        return error_set(err, (int)len, "%s: %s", path, strerror((int)-len));
    COPY_TEXT(folder, path);
    slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    return kube_config_parse(path, slash ? folder : ".", text, (size_t)len, ret_config, err);
}

static int load_pod(const char *host, const char *port, struct kube_config **ret_config,
                    struct error *err)
{
    CLEANUP(kube_config_freep) struct kube_config *config = calloc(1, sizeof(*config));
    bool is_v6 = strchr(host, ':') != NULL;
    char home[256];

    if (!config)
        return error_set(err, -ENOMEM, "no memory");
    if (asprintf(&config->server, "https://%s%s%s:%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
                 port) < 0)
        config->server = NULL;
    config->ca_file = strdup(POD_FOLDER "/ca.crt");
    config->token_file = strdup(POD_FOLDER "/token");
    if (file_read(POD_FOLDER "/namespace", home, sizeof(home)) <= 0)
        COPY_TEXT(home, "default");
    home[strcspn(home, "\r\n ")] = '\0';
    config->default_namespace = strdup(home);
    if (!config->server || !config->ca_file || !config->token_file || !config->default_namespace)
        return error_set(err, -ENOMEM, "no memory");
    *ret_config = TAKE(config);
    return 0;
}

int kube_config_load(const char *path, struct kube_config **ret_config, struct error *err)
{
    const char *chosen = path && *path ? path : getenv("KUBECONFIG");
    const char *by = path && *path ? "--kubeconfig" : "KUBECONFIG";
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    const char *home = getenv("HOME");
    char usual[PATH_MAX];
    int r;

    if (chosen && *chosen) {
        r = load_file(chosen, ret_config, err);
        return r < 0 ? error_wrap(err, r, "%s", by) : 0;
    }
    if (host && *host && port && *port)
        return load_pod(host, port, ret_config, err);
    (void)snprintf(usual, sizeof(usual), "%s/.kube/config", home && *home ? home : "/root");
    r = load_file(usual, ret_config, err);
    if (r == -ENOENT)
        return error_wrap(err, r,
                          "no API server is known: name a kubeconfig by --kubeconfig or "
                          "KUBECONFIG, or run in a pod");
    return r;
}

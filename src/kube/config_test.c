/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static int parse(const char *text, struct kube_config **ret_config, struct error *err)
{
    return kube_config_parse("kubeconfig", "/etc/k", text, strlen(text), ret_config, err);
}

#define HEAD                                                                                       \
    "contexts: [{name: c, context: {cluster: a, user: u, namespace: n}}]\ncurrent-context: c\n"

static void a_kubeconfig_is_read(void **state)
{
    CLEANUP(kube_config_freep) struct kube_config *config = NULL;
    struct error err = ERROR_INIT;

    (void)state;
    assert_int_equal(
        parse(HEAD "clusters:\n"
                   "- name: other\n  cluster: {server: 'https://wrong'}\n"
                   "- name: a\n  cluster: {server: 'https://[::1]:6443/', certificate-authority: "
                   "pki/ca.crt, tls-server-name: kubernetes}\n"
                   "users: [{name: u, user: {tokenFile: /t, client-certificate-data: "
                   "aGVsbG8K, client-key-data: \"d29y\\r\\nbG Q=\\r\\n\", token: \"abc\"}}]\n",
              &config, &err),
        0);
    assert_string_equal(config->server, "https://[::1]:6443");
    assert_string_equal(config->ca_file, "/etc/k/pki/ca.crt");
    assert_string_equal(config->tls_server_name, "kubernetes");
    assert_string_equal(config->token_file, "/t");
    assert_string_equal(config->token, "abc");
    assert_string_equal(config->client_cert_data, "hello\n");
    assert_string_equal(config->client_key_data, "world");
    assert_string_equal(config->default_namespace, "n");
    assert_false(config->insecure);
}

static void json_is_yaml(void **state)
{
    CLEANUP(kube_config_freep) struct kube_config *config = NULL;
    struct error err = ERROR_INIT;

    (void)state;
    assert_int_equal(
        parse("{\"clusters\":[{\"name\":\"a\",\"cluster\":{\"server\":\"http://127.0.0.1:1\","
              "\"insecure-skip-tls-verify\":true}}],\"contexts\":[{\"name\":\"c\",\"context\":{"
              "\"cluster\":\"a\"}}],\"current-context\":\"c\"}",
              &config, &err),
        0);
    assert_true(config->insecure);
    assert_null(config->token);
    assert_string_equal(config->default_namespace, "default");
}

/* YAML's words for nothing are nothing; within quotes, or as a part of a text, they are text. */
static void nothing_is_told_from_text(void **state)
{
    static const struct {
        const char *written, *token; /* NULL: none */
    } rows[] = {
        {"null", NULL},
        {"~", NULL},
        {"''", NULL},
        {"", NULL},
        {"'null'", "null"},
        {"\"~\"", "~"},
        {"nul", "nul"},
        {"nulls", "nulls"},
        {"~a", "~a"},
        {"a~", "a~"},
        {"zzz", "zzz"},
        {"ABC", "ABC"},
        {"\u00fcber", "\u00fcber"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        CLEANUP(kube_config_freep) struct kube_config *config = NULL;
        struct error err = ERROR_INIT;
        char text[512];

        (void)snprintf(text, sizeof(text),
                       HEAD "clusters: [{name: a, cluster: {server: 'http://b'}}]\n"
                            "users:\n- name: u\n  user:\n    token: %s\n",
                       rows[i].written);
        assert_int_equal(parse(text, &config, &err), 0);
        if (!rows[i].token)
            assert_null(config->token);
        else
            assert_string_equal(config->token, rows[i].token);
    }
}

static const struct {
    const char *name, *text, *why;
} refused[] = {
    {"nothing", "", "current-context: missing"},
    {"no context", "current-context: x", "x: there is no context of this name"},
    {"no cluster", HEAD, "a: there is no cluster of this name"},
    {"no server", HEAD "clusters: [{name: a, cluster: {x: y}}]", "server: missing"},
    {"another scheme", HEAD "clusters: [{name: a, cluster: {server: 'file:///etc'}}]",
     "server: not an http:// or https:// address"},
    {"no user", HEAD "clusters: [{name: a, cluster: {server: 'http://b'}}]",
     "u: there is no user of this name"},
    {"a plugin",
     HEAD "clusters: [{name: a, cluster: {server: 'http://b'}}]\n"
          "users: [{name: u, user: {exec: {command: x}}}]",
     "u: credentials of a plugin are not supported; use a token or a certificate"},
    {"bad base64",
     HEAD "clusters: [{name: a, cluster: {server: 'http://b', certificate-authority-data: '%'}}]",
     "certificate-authority-data: not base64"},
    {"not YAML", "a: [", NULL},
};

static void errors_say_why(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct kube_config *config = NULL;
        struct error err = ERROR_INIT;
        char expected[256];

        assert_int_equal(parse(refused[i].text, &config, &err), -EINVAL);
        assert_null(config);
        (void)snprintf(expected, sizeof(expected), "kubeconfig: %s", refused[i].why);
        if (refused[i].why)
            assert_string_equal(err.text, expected);
        assert_non_null(strstr(err.text, "kubeconfig:"));
    }
}

static void a_pod_finds_its_own(void **state)
{
    CLEANUP(kube_config_freep) struct kube_config *config = NULL;
    struct error err = ERROR_INIT;

    (void)state;
    (void)unsetenv("KUBECONFIG");
    (void)setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    (void)setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    assert_int_equal(kube_config_load(NULL, &config, &err), 0);
    assert_string_equal(config->server, "https://[fd00::1]:443");
    assert_string_equal(config->token_file, "/var/run/secrets/kubernetes.io/serviceaccount/token");
    assert_string_equal(config->ca_file, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt");
    (void)setenv("KUBECONFIG", "/nonexistent/config", 1);
    kube_config_free(TAKE(config));
    assert_int_equal(kube_config_load(NULL, &config, &err), -ENOENT);
    assert_string_equal(err.text, "KUBECONFIG: /nonexistent/config: No such file or directory");
    (void)unsetenv("KUBECONFIG");
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
    (void)setenv("HOME", "/nonexistent", 1);
    assert_int_equal(kube_config_load(NULL, &config, &err), -ENOENT);
    assert_non_null(strstr(err.text, "name a kubeconfig by --kubeconfig"));
    assert_non_null(strstr(err.text, "/nonexistent/.kube/config"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kubeconfig_is_read),      cmocka_unit_test(json_is_yaml),
        cmocka_unit_test(nothing_is_told_from_text), cmocka_unit_test(errors_say_why),
        cmocka_unit_test(a_pod_finds_its_own),
    };

    return cmocka_run_group_tests_name("kube config", tests, NULL, NULL);
}

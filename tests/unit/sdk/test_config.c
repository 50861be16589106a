/* Configurations of clients: from addresses, files of endpoints, and Paddle Serving's predictors.prototxt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>

#include <cmocka.h>

#include "sdk/config/config.h"

static struct config *parse(const char *text)
{
    const struct config_policy policy = config_policy_default();
    struct config *c = NULL;
    struct mr_err err;

    if (config_parse(mr_str_c(text), &policy, NULL, 0, &c, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return c;
}

static void refused(const char *text, int status, const char *why)
{
    const struct config_policy policy = config_policy_default();
    struct config *c = NULL;
    struct mr_err err = {0};

    assert_int_equal(config_parse(mr_str_c(text), &policy, NULL, 0, &c, &err), status);
    assert_null(c);
    if (!strstr(err.msg, why)) {
        fail_msg("'%s' does not have '%s'", err.msg, why);
    }
}

/* The error begins with the line. */
static void refused_at(const char *text, const char *why)
{
    const struct config_policy policy = config_policy_default();
    struct config *c = NULL;
    struct mr_err err = {0};

    assert_true(config_parse(mr_str_c(text), &policy, NULL, 0, &c, &err) < 0);
    if (strncmp(err.msg, why, strlen(why)) != 0) {
        fail_msg("'%s' does not begin with '%s'", err.msg, why);
    }
}

static void is(mr_str s, const char *text)
{
    assert_string_equal(s.ptr, text);
}

static void test_addresses(void **state)
{
    const mr_str texts[] = {MR_STR("http://a:1"), MR_STR("list://b:2 3,grpc://c:4"),
                            MR_STR("dns://grpc://d:5 0.5"), MR_STR("file:///x")};
    const struct config_policy policy = config_policy_default();
    struct config *c;
    struct mr_err err;

    (void)state;
    assert_int_equal(config_parse(MR_STR(""), &policy, texts, 4, &c, &err), MR_OK);
    assert_int_equal(c->host_count, 5);
    is(c->hosts[1].url, "b:2");
    assert_true(c->hosts[1].share == 3);
    is(c->hosts[2].url, "grpc://c:4");
    assert_true(c->hosts[2].share == 1 && c->hosts[3].share == 0.5);
    config_free(&c);
}

static void test_endpoints(void **state)
{
    struct config *c =
        parse("# comment\n"
              "client { remote: \"http://a:1\" strategy: \"rr\" timeout_ms: 70 attempts: 2 }\n"
              "endpoint { name: \"e\" sticky { key: \"header:X-User\" salt: \"s\" }\n"
              "  variant { tag: \"v\" model: \"m\" version: 3 weight: 95 }\n"
              "  variant { tag: \"w\" model: \"m\" weight: 5 remote: \"grpc://b:2\" } }\n");
    const struct config_endpoint *e = &c->endpoints[0];

    (void)state;
    assert_int_equal(c->endpoint_count, 1);
    is(e->name, "e");
    is(e->key, "x-user");
    assert_int_equal(e->variant_count, 2);
    is(e->variants[0].version, "3");
    is(e->variants[0].hosts[0].url, "http://a:1");
    is(e->variants[1].hosts[0].url, "grpc://b:2");
    assert_int_equal(e->variants[1].policy.strategy, MR_BALANCE_ROUND_ROBIN);
    assert_int_equal(e->variants[1].policy.timeout_ms, 70);
    assert_int_equal(c->policy.attempts, 2);
    assert_int_equal(c->policy.coding, MR_CODING_IDENTITY);
    config_free(&c);
    c = parse("client { remote: \"a:1\" compression: \"zlib\" }");
    assert_int_equal(c->policy.coding, MR_CODING_DEFLATE);
    config_free(&c);
}

static void test_refusals(void **state)
{
    (void)state;
    refused("endpoint { name: \"e\" variant { tag: \"v\" model: \"m\" weight: 1 } }", MR_E_INVALID,
            "endpoint 'e': variant 'v': no host");
    refused("client { strategy: \"best\" }", MR_E_INVALID, "client: strategy 'best'");
    refused("client { max_channel_per_request: 65 }", MR_E_INVALID, "max_channel_per_request: 65");
    refused("client { attempts: 17 }", MR_E_INVALID, "attempts: 17, possible is 1 to 16");
    refused("client { compression: \"lz4\" }", MR_E_UNSUPPORTED, "compression 'lz4'");
    refused("client { remote: \"bns://x\" }", MR_E_UNSUPPORTED, "bns://");
    refused("client { remote: \"a:1 0\" }", MR_E_INVALID, "share '0'");
    refused("client { remote: \"a:1 0x2\" }", MR_E_INVALID, "share '0x2'");
    refused("endpoint { name: \"e\" variant { tag: \"v\" model: \"m\" weight: 1 remote: \"a:1\" }\n"
            "  shadow { model: \"m\" percent: 1 } }",
            MR_E_INVALID, "endpoint 'e', shadow: variant 'shadow': no host");
    refused(
        "client { remote: \"a:1\" } endpoint { name: \"e\"\n"
        "  variant { tag: \"v\" model: \"m\" weight: 99 }\n"
        "  variant { tag: \"w\" model: \"n\" weight: 1 ramp { to: 50 step: 10 every_s: 60 } } }",
        MR_E_UNSUPPORTED, "endpoint 'e': ramp");
    refused("client { nothing: 1 }", MR_E_INVALID, "line 1");
}

static const char predictors[] =
    "default_variant_conf { tag: \"default\"\n"
    "  connection_conf { connect_timeout_ms: 1500 rpc_timeout_ms: 900\n"
    "    connect_retry_count: 1 max_connection_per_host: 7\n"
    "    hedge_request_timeout_ms: 40 hedge_fetch_retry_count: 2 }\n"
    "  naming_conf { load_balance_strategy: \"la\" }\n"
    "  rpc_parameter { compress_type: 0 package_size: 20\n"
    "    protocol: \"baidu_std\" max_channel_per_request: 3 } }\n"
    "predictors { name: \"general_model\"\n"
    "  service_name: \"baidu.paddle_serving.GeneralModelService\"\n"
    "  endpoint_router: \"WeightedRandomRender\"\n"
    "  weighted_random_render_conf { variant_weight_list: \"30|70\" }\n"
    "  variants { tag: \"var1\"\n"
    "    naming_conf { cluster: \"list://127.0.0.1:9292 blue, 127.0.0.2:9292 green\" }\n"
    "    split_conf { split_tag_name: \"env\" tag_candidates: \"blue,green\" } }\n"
    "  variants { tag: \"var2\" naming_conf { cluster: \"list://127.0.0.3:9393\" }\n"
    "    rpc_parameter { protocol: \"h2:grpc\" } } }\n";

static void test_paddle(void **state)
{
    struct config *c = parse(predictors);
    const struct config_variant *v = c->endpoints[0].variants;

    (void)state;
    is(c->endpoints[0].name, "general_model");
    assert_int_equal(c->endpoints[0].variant_count, 4);
    is(v[0].model, "GeneralModelService");
    assert_true(v[0].weight == 30 && v[1].weight == 70 && v[2].weight == 0);
    assert_int_equal(v[0].host_count, 2);
    assert_int_equal(v[0].policy.timeout_ms, 900);
    assert_int_equal(v[0].policy.connect_timeout_ms, 1500);
    assert_int_equal(v[0].policy.attempts, 2);
    assert_int_equal(v[0].policy.max_connections, 7);
    assert_int_equal(v[0].policy.hedge_after_ms, 40);
    assert_int_equal(v[0].policy.strategy, MR_BALANCE_LEAST_REQUEST);
    is(v[1].hosts[0].url, "grpc://127.0.0.3:9393");
    is(v[3].tag, "green");
    assert_int_equal(v[3].host_count, 1);
    is(v[3].hosts[0].url, "127.0.0.2:9292");
    assert_int_equal(v[0].policy.shard_rows, 20);
    assert_int_equal(v[1].policy.max_shards, 3);
    assert_string_equal(config_warning(c), "");
    config_free(&c);
}

static void test_paddle_warnings(void **state)
{
    static const char *const texts[][2] = {
        {"", ""},
        {"connection_conf { connection_type: \"short\" }", "connection_type \"short\""},
        {"connection_conf { connection_type: \"single\" }", "connection_type \"short\", and"},
        {"} variants { tag: \"w\" naming_conf { cluster_filter_strategy: \"x\" cluster: \"a:1\" }",
         "cluster_filter_strategy has"}};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "predictors { name: \"p\" variants { tag: \"v\"\n"
                 "  naming_conf { cluster: \"a:1\" } %s } }",
                 texts[i][0]);
        struct config *c = parse(text);
        assert_int_equal(strncmp(config_warning(c), texts[i][1], strlen(texts[i][1])), 0);
        assert_int_equal(config_warning(c)[0] == '\0', i == 0);
        config_free(&c);
    }
}

/* Calls at a time are not bounded by the one connection. */
static void test_paddle_single(void **state)
{
    struct config *c = parse("predictors { name: \"p\" variants { tag: \"v\"\n"
                             "  connection_conf { connection_type: \"single\"\n"
                             "    max_connection_per_host: 50 }\n"
                             "  rpc_parameter { protocol: \"h2:grpc\" }\n"
                             "  naming_conf { cluster: \"a:1\" } } }");
    const struct config_policy *p = &c->endpoints[0].variants[0].policy;

    (void)state;
    assert_true(p->is_single);
    assert_int_equal(p->max_connections, 50);
    assert_string_equal(config_warning(c), "");
    config_free(&c);
}

static void test_lines(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"\nclient { remote: \"bns://x\" }", "line 2: client: "},
        {"client { remote: \"grpc://h:99999\" }", "line 1: client: 'h:99999' is not an address"},
        {"client { remote: \"dns://h:x\" }", "line 1: client: 'h:x' is not an address"},
        {"client { remote: \"http://::1:80\" }", "line 1: client: '::1:80': an IPv6 address"},
        {"client {}\nendpoint { name: \"e\"\n variant { tag: \"v\" model: \"m\" weight: 1 } }",
         "line 3: endpoint 'e': variant 'v': no host"},
        {"endpoint { name: \"e\"\n variant { tag: \"v\" model: \"m\" weight: 1 remote: \"a:1\" }\n"
         " shadow { model: \"m\" percent: 1 } }",
         "line 3: endpoint 'e', shadow: "},
        {"endpoint { name: \"e\"\n variant { tag: \"v\" model: \"m\" weight: 1\n"
         " remote: \"\" } }",
         "line 3: endpoint 'e': variant 1: remote: "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refused_at(bad[i].text, bad[i].why);
    }
}

/* A predictor with one variant. */
static void predictor_refused(const char *predictor, const char *variant, int status,
                              const char *why)
{
    char text[400];

    snprintf(text, sizeof text, "predictors { %s variants { tag: \"v\" %s } }", predictor, variant);
    refused(text, status, why);
}

static void test_paddle_refusals(void **state)
{
    const char *name = "name: \"p\"";
    const char *weighted =
        "name: \"p\" weighted_random_render_conf { variant_weight_list: \"1|2\" }";
    const char *good = "naming_conf { cluster: \"a:1\" }";

    (void)state;
    predictor_refused(name, "naming_conf { cluster: \"bns://x\" }", MR_E_UNSUPPORTED, "bns://");
    predictor_refused(name, "", MR_E_INVALID,
                      "predictor 'p': variant 'v': naming_conf has no cluster");
    predictor_refused(weighted, good, MR_E_INVALID, "variant_weight_list '1|2'");
    predictor_refused(name, "rpc_parameter { compress_type: 1 }", MR_E_UNSUPPORTED, "snappy");
    predictor_refused(name, "rpc_parameter { package_size: 0 }", MR_E_INVALID, "package_size: 0");
    predictor_refused(name, "rpc_parameter { max_channel_per_request: 65 }", MR_E_INVALID,
                      "max_channel_per_request: 65, possible is 1 to 64");
    predictor_refused(name, "rpc_parameter { protocol: \"thrift\" }", MR_E_UNSUPPORTED, "thrift");
    predictor_refused("name: \"p\" endpoint_router: \"Other\"", good, MR_E_UNSUPPORTED, "Other");
    predictor_refused("", good, MR_E_INVALID, "predictor 1 has no name");
    refused("predictors { name: \"p\" }", MR_E_INVALID, "0 variants");
}

/* Where it is wrong: in a block of the variant, on line 5, or in the same one of the default, on line 2. */
static void paddle_refused_at(const char *in_default, const char *in_variant, const char *why)
{
    char text[600];

    snprintf(text, sizeof text,
             "default_variant_conf { tag: \"d\"\n %s }\n"
             "predictors { name: \"p\"\n  variants { tag: \"v\"\n    %s } }\n",
             in_default, in_variant);
    refused_at(text, why);
}

static void test_paddle_lines(void **state)
{
#define CLUSTER "naming_conf { cluster: \"a:1\" }"
    (void)state;
    paddle_refused_at("", "", "line 4: predictor 'p': variant 'v': naming_conf has no cluster");
    paddle_refused_at("naming_conf { cluster: \"bns://x\" }", "", "line 2: predictor 'p': ");
    paddle_refused_at("", "naming_conf {\n cluster: \"bns://x\" }", "line 6: predictor 'p': ");
    paddle_refused_at("", "naming_conf { cluster: \"a:1\" load_balance_strategy: \"x\" }",
                      "line 5: predictor 'p': variant 'v': strategy 'x'");
    paddle_refused_at("connection_conf { connect_retry_count: -1 }", "connection_conf {}",
                      "line 2: predictor 'p': variant 'v': connect_retry_count: -1");
    paddle_refused_at("connection_conf { max_connection_per_host: 1 }",
                      "connection_conf { max_connection_per_host: 0 }",
                      "line 5: predictor 'p': variant 'v': max_connection_per_host: 0");
    paddle_refused_at("connection_conf { connection_type: \"x\" }", "",
                      "line 2: predictor 'p': variant 'v': connection_type 'x'");
    paddle_refused_at("", "connection_conf { rpc_timeout_ms: -1 }",
                      "line 5: predictor 'p': variant 'v': timeout_ms: -1");
    paddle_refused_at("rpc_parameter { protocol: \"x\" }", CLUSTER, "line 2: predictor 'p': ");
    paddle_refused_at("rpc_parameter { package_size: 0 }", "rpc_parameter {}",
                      "line 2: predictor 'p': variant 'v': package_size: 0");
    paddle_refused_at("", "rpc_parameter { compress_type: 9 }", "line 5: predictor 'p': ");
    paddle_refused_at("", CLUSTER " split_conf { tag_candidates: \"x\" }",
                      "line 5: predictor 'p': split_conf of variant 'v': ");
    paddle_refused_at("", CLUSTER "}\n variants { tag: \"v\" " CLUSTER,
                      "line 6: predictor 'p': two variants have the tag 'v'");
    paddle_refused_at("", CLUSTER "}\n weighted_random_render_conf { variant_weight_list: \"1|x\"",
                      "line 6: predictor 'p': variant_weight_list '1|x'");
    paddle_refused_at("", CLUSTER "} }\n predictors { name: \"p\" variants {",
                      "line 6: two predictors have the name 'p'");
    refused_at("\npredictors {\n name: 1 }", "line 3 column ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),       cmocka_unit_test(test_endpoints),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_paddle),
        cmocka_unit_test(test_paddle_warnings), cmocka_unit_test(test_paddle_refusals),
        cmocka_unit_test(test_lines),           cmocka_unit_test(test_paddle_lines),
        cmocka_unit_test(test_paddle_single),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The REST endpoints by paths: each route with its parts, and paths that are close to one but unknown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/http/routes_priv.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MODEL           "/v2/models/{model}[/versions/{version}]"
#define REPOSITORY      "/v2/repository[/{repository}]"

struct path_row {
    const char *path;
    const char *pattern;
    const char *model;
    const char *version;
    const char *repository;
    const char *region;
};

static const struct path_row rows[] = {
    {"/v2", "/v2", "", "", "", ""},
    {"/v2/health/live", "/v2/health/live", "", "", "", ""},
    {"/v2/health/ready", "/v2/health/ready", "", "", "", ""},
    {"/v2/models/m", MODEL, "m", "", "", ""},
    {"/v2/models/m/versions/3", MODEL, "m", "3", "", ""},
    {"/v2/models/m/versions/stable", MODEL, "m", "stable", "", ""},
    {"/v2/models/m/versions/_a-1.b/infer", MODEL "/infer", "m", "_a-1.b", "", ""},
    {"/v2/models/m/versions/1.0.0-b/infer", MODEL "/infer", "m", "1.0.0-b", "", ""},
    {"/v2/models/m/infer", MODEL "/infer", "m", "", "", ""},
    {"/v2/models/m/versions/3/infer", MODEL "/infer", "m", "3", "", ""},
    {"/v2/models/m%20x/versions/0012/ready", MODEL "/ready", "m%20x", "0012", "", ""},
    {"/v2/models/m/ready", MODEL "/ready", "m", "", "", ""},
    {"/v2/models/m/generate", MODEL "/generate", "m", "", "", ""},
    {"/v2/models/m/versions/1/generate_stream", MODEL "/generate_stream", "m", "1", "", ""},
    {"/v2/models/m/config", MODEL "/config", "m", "", "", ""},
    {"/v2/models/m/stats", MODEL "/stats", "m", "", "", ""},
    {"/v2/models/m/versions/9/stats", MODEL "/stats", "m", "9", "", ""},
    {"/v2/models/stats", "/v2/models/stats", "", "", "", ""},
    {"/v2/models/stats/stats", MODEL "/stats", "stats", "", "", ""},
    {"/v2/models/stats/infer", MODEL "/infer", "stats", "", "", ""},
    {"/v2/models/m/versions", "/v2/models/{model}/versions", "m", "", "", ""},
    {"/v2/models/versions/versions", "/v2/models/{model}/versions", "versions", "", "", ""},
    {"/v2/models/versions", MODEL, "versions", "", "", ""},
    {"/v2/models/versions/versions/1", MODEL, "versions", "1", "", ""},
    {"/v2/models/infer/infer", MODEL "/infer", "infer", "", "", ""},
    {"/v2/models/m/trace/setting", "/v2/models/{model}/trace/setting", "m", "", "", ""},
    {"/v2/repository/index", REPOSITORY "/index", "", "", "", ""},
    {"/v2/repository/r/index", REPOSITORY "/index", "", "", "r", ""},
    {"/v2/repository/models/index", REPOSITORY "/index", "", "", "models", ""},
    {"/v2/repository/models/m/load", REPOSITORY "/models/{model}/load", "m", "", "", ""},
    {"/v2/repository/models/m/label", REPOSITORY "/models/{model}/label", "m", "", "", ""},
    {"/v2/repository/models/m/rollback", REPOSITORY "/models/{model}/rollback", "m", "", "", ""},
    {"/v2/repository/models/m/record-warmup", REPOSITORY "/models/{model}/record-warmup", "m", "",
     "", ""},
    {"/v2/repository/models/models/load", REPOSITORY "/models/{model}/load", "models", "", "", ""},
    {"/v2/repository/r/models/m/unload", REPOSITORY "/models/{model}/unload", "m", "", "r", ""},
    {"/v2/systemsharedmemory/status", "/v2/systemsharedmemory[/region/{region}]/status", "", "", "",
     ""},
    {"/v2/systemsharedmemory/region/x/register",
     "/v2/systemsharedmemory[/region/{region}]/register", "", "", "", "x"},
    {"/v2/cudasharedmemory/unregister", "/v2/cudasharedmemory[/region/{region}]/unregister", "", "",
     "", ""},
    {"/v2/cudasharedmemory/region/region/status", "/v2/cudasharedmemory[/region/{region}]/status",
     "", "", "", "region"},
    {"/v2/trace/setting", "/v2/trace/setting", "", "", "", ""},
    {"/v2/logging", "/v2/logging", "", "", "", ""},
    {"/v2/docs", "/v2/docs", "", "", "", ""},
    {"/v2/docs/openapi.json", "/v2/docs/openapi.json", "", "", "", ""},
};

static const char *const none[] = {
    "",
    "/",
    "v2",
    "/v1",
    "/v2/",
    "//v2",
    "/v2//",
    "/V2",
    "/v2/health",
    "/v2/health/",
    "/v2/health/live/",
    "/v2/health/dead",
    "/v2/docs/",
    "/v2/docs/x",
    "/v2/docs/openapi.json/x",
    "/v2/models",
    "/v2/models/",
    "/v2/models//infer",
    "/v2/models/m/",
    "/v2/models/m/infer/",
    "/v2/models/m/infer/x",
    "/v2/models/m/unknown",
    "/v2/models/m/versions/",
    "/v2/models/m/versions//infer",
    "/v2/models/m/versions/x%20",
    "/v2/models/m/versions/.x",
    "/v2/models/m/versions/-1",
    "/v2/models/m/versions/+1",
    "/v2/models/m/versions/1/trace/setting",
    "/v2/models/m/trace",
    "/v2/models/m/trace/settings",
    "/v2/models/m/Infer",
    "/v2/repository",
    "/v2/repository/r",
    "/v2/repository//index",
    "/v2/repository/r/s/index",
    "/v2/repository/models/m",
    "/v2/repository/models/m/reload",
    "/v2/repository/r/model/m/load",
    "/v2/repository/a/b/models/m/load",
    "/v2/systemsharedmemory",
    "/v2/systemsharedmemory/list",
    "/v2/systemsharedmemory/region/x",
    "/v2/systemsharedmemory/region//status",
    "/v2/systemsharedmemory/area/x/status",
    "/v2/systemsharedmemory/region/x/y/status",
    "/v2/trace",
    "/v2/trace/setting/x",
    "/v2/logging/x",
    "/v2/a/b/c/d/e/f/g/h/i/j",
};

static void routes(void **state)
{
    struct mr_oip_path p;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct path_row *row = &rows[i];
        const struct rest_route *route = route_find(mr_str_c(row->path), &p);
        if (!route || strcmp(route->pattern, row->pattern) != 0 ||
            !mr_str_eq_c(p.model, row->model) || !mr_str_eq_c(p.version, row->version) ||
            !mr_str_eq_c(p.repository, row->repository) || !mr_str_eq_c(p.region, row->region)) {
            fail_msg("%s: %s", row->path, route ? route->pattern : "unknown");
        }
    }
}

static void no_routes(void **state)
{
    struct mr_oip_path p;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        if (route_find(mr_str_c(none[i]), &p)) {
            fail_msg("%s has a route", none[i]);
        }
        assert_true(p.model.len == 0 && p.version.len == 0 && p.repository.len == 0);
    }
    /* A NUL is a character like any other. */
    assert_non_null(route_find(MR_STR("/v2/models/m\0/infer"), &p));
    assert_int_equal(p.model.len, 2);
    assert_null(route_find((mr_str){NULL, 0}, &p));
}

static void methods(void **state)
{
    struct mr_oip_path p;
    const struct rest_route *infer = route_find(MR_STR("/v2/models/m/infer"), &p);
    const struct rest_route *live = route_find(MR_STR("/v2/health/live"), &p);

    (void)state;
    assert_true(route_allows(infer, MR_STR("POST")) && !route_allows(infer, MR_STR("GET")));
    assert_true(route_allows(live, MR_STR("GET")) && route_allows(live, MR_STR("HEAD")));
    assert_false(route_allows(live, MR_STR("POST")) || route_allows(live, MR_STR("get")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(routes), cmocka_unit_test(no_routes),
                                       cmocka_unit_test(methods)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

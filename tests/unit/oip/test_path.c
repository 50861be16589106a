/* Paths by table: each route with its parts, and what is close to one but none. */
#include "oip_test.h"

struct path_row {
    const char *path;
    enum mr_oip_route route;
    const char *model;
    const char *version;
    const char *repository;
    const char *region;
    const char *action;
};

static const struct path_row rows[] = {
    {"/v2", MR_ROUTE_SERVER_METADATA, "", "", "", "", ""},
    {"/v2/health/live", MR_ROUTE_LIVE, "", "", "", "", ""},
    {"/v2/health/ready", MR_ROUTE_READY, "", "", "", "", ""},
    {"/v2/models/m", MR_ROUTE_MODEL_METADATA, "m", "", "", "", ""},
    {"/v2/models/m/versions/3", MR_ROUTE_MODEL_METADATA, "m", "3", "", "", ""},
    {"/v2/models/m/versions/stable", MR_ROUTE_MODEL_METADATA, "m", "stable", "", "", ""},
    {"/v2/models/m/versions/_a-1.b/infer", MR_ROUTE_MODEL_INFER, "m", "_a-1.b", "", "", ""},
    {"/v2/models/m/infer", MR_ROUTE_MODEL_INFER, "m", "", "", "", ""},
    {"/v2/models/m/versions/3/infer", MR_ROUTE_MODEL_INFER, "m", "3", "", "", ""},
    {"/v2/models/m%20x/versions/0012/ready", MR_ROUTE_MODEL_READY, "m%20x", "0012", "", "", ""},
    {"/v2/models/m/ready", MR_ROUTE_MODEL_READY, "m", "", "", "", ""},
    {"/v2/models/m/generate", MR_ROUTE_MODEL_GENERATE, "m", "", "", "", ""},
    {"/v2/models/m/versions/1/generate_stream", MR_ROUTE_MODEL_GENERATE_STREAM, "m", "1", "", "",
     ""},
    {"/v2/models/m/config", MR_ROUTE_MODEL_CONFIG, "m", "", "", "", ""},
    {"/v2/models/m/stats", MR_ROUTE_MODEL_STATS, "m", "", "", "", ""},
    {"/v2/models/m/versions/9/stats", MR_ROUTE_MODEL_STATS, "m", "9", "", "", ""},
    {"/v2/models/stats", MR_ROUTE_ALL_STATS, "", "", "", "", ""},
    {"/v2/models/stats/stats", MR_ROUTE_MODEL_STATS, "stats", "", "", "", ""},
    {"/v2/models/stats/infer", MR_ROUTE_MODEL_INFER, "stats", "", "", "", ""},
    {"/v2/models/m/versions", MR_ROUTE_MODEL_VERSIONS, "m", "", "", "", ""},
    {"/v2/models/versions/versions", MR_ROUTE_MODEL_VERSIONS, "versions", "", "", "", ""},
    {"/v2/models/versions", MR_ROUTE_MODEL_METADATA, "versions", "", "", "", ""},
    {"/v2/models/versions/versions/1", MR_ROUTE_MODEL_METADATA, "versions", "1", "", "", ""},
    {"/v2/models/infer/infer", MR_ROUTE_MODEL_INFER, "infer", "", "", "", ""},
    {"/v2/models/m/trace/setting", MR_ROUTE_MODEL_TRACE, "m", "", "", "", ""},
    {"/v2/repository/index", MR_ROUTE_REPO_INDEX, "", "", "", "", ""},
    {"/v2/repository/r/index", MR_ROUTE_REPO_INDEX, "", "", "r", "", ""},
    {"/v2/repository/models/index", MR_ROUTE_REPO_INDEX, "", "", "models", "", ""},
    {"/v2/repository/models/m/load", MR_ROUTE_REPO_LOAD, "m", "", "", "", ""},
    {"/v2/repository/models/m/label", MR_ROUTE_REPO_LABEL, "m", "", "", "", ""},
    {"/v2/repository/models/m/rollback", MR_ROUTE_REPO_ROLLBACK, "m", "", "", "", ""},
    {"/v2/repository/models/m/record-warmup", MR_ROUTE_REPO_RECORD, "m", "", "", "", ""},
    {"/v2/repository/models/models/load", MR_ROUTE_REPO_LOAD, "models", "", "", "", ""},
    {"/v2/repository/r/models/m/unload", MR_ROUTE_REPO_UNLOAD, "m", "", "r", "", ""},
    {"/v2/systemsharedmemory/status", MR_ROUTE_SYSTEM_SHM, "", "", "", "", "status"},
    {"/v2/systemsharedmemory/region/x/register", MR_ROUTE_SYSTEM_SHM, "", "", "", "x", "register"},
    {"/v2/cudasharedmemory/unregister", MR_ROUTE_CUDA_SHM, "", "", "", "", "unregister"},
    {"/v2/cudasharedmemory/region/region/status", MR_ROUTE_CUDA_SHM, "", "", "", "region",
     "status"},
    {"/v2/trace/setting", MR_ROUTE_TRACE, "", "", "", "", ""},
    {"/v2/logging", MR_ROUTE_LOGGING, "", "", "", "", ""},
    {"/v2/docs", MR_ROUTE_DOCS, "", "", "", "", ""},
    {"/v2/docs/openapi.json", MR_ROUTE_DOCS, "", "", "", "", "openapi.json"},
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
    "/v2/models/m/versions/1x/infer",
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
    "/v2/models/m\0/infer",
};

static void routes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct path_row *row = &rows[i];
        struct mr_oip_path p = mr_oip_path_parse(mr_str_c(row->path));
        CHECK_ROW(p.route == row->route, i, "%s: route %d", row->path, (int)p.route);
        CHECK_ROW(str_is(p.model, row->model) && str_is(p.version, row->version) &&
                      str_is(p.repository, row->repository) && str_is(p.region, row->region) &&
                      str_is(p.action, row->action),
                  i, "%s: parts", row->path);
    }
}

static void no_routes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(none) - 1; i++) {
        struct mr_oip_path p = mr_oip_path_parse(mr_str_c(none[i]));
        CHECK_ROW(p.route == MR_ROUTE_NONE, i, "%s: route %d", none[i], (int)p.route);
        CHECK_ROW(p.model.len == 0 && p.version.len == 0 && p.repository.len == 0, i, "%s: parts",
                  none[i]);
    }
    /* A NUL is a character like any other. */
    struct mr_oip_path p = mr_oip_path_parse(MR_STR("/v2/models/m\0/infer"));
    assert_int_equal(p.route, MR_ROUTE_MODEL_INFER);
    assert_int_equal(p.model.len, 2);
    assert_int_equal(mr_oip_path_parse((mr_str){NULL, 0}).route, MR_ROUTE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(routes), cmocka_unit_test(no_routes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

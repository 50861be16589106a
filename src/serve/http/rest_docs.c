/* GET /v2/docs and /v2/docs/openapi.json: the REST endpoints, for people and for programs. openapi.json is written by
 * hand; the page is made of it when CMake configures. And GET /v2/mesh/page, whose script asks for the rest. Constant answers, on
 * network threads. */
#include "rest_docs.h"

#include "mesh_page.h" /* mesh_page_html[] */
#include "openapi.h"   /* openapi_json[], docs_html[]; cmake/openapi.cmake */
#include "serve/state/reply.h"
#include "serve/state/state.h"

static void reply_page(struct mr_call *call, const char *html, size_t len, const char *policy)
{
    const struct mr_header headers[] = {
        {MR_STR("content-type"), MR_STR("text/html; charset=utf-8")},
        {MR_STR("content-security-policy"), mr_str_c(policy)},
    };
    const struct mr_piece page = {html, len, NULL};
    const struct mr_reply reply = {
        .status = 200, .headers = headers, .header_count = 2, .pieces = &page, .piece_count = 1};

    mr_call_reply(call, &reply);
}

void rest_docs(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)s, (void)path;
    reply_page(call, docs_html, sizeof docs_html - 1,
               "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
}

void rest_mesh_page(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)s, (void)path;
    reply_page(call, mesh_page_html, sizeof mesh_page_html - 1,
               "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
               "connect-src 'self'; frame-ancestors 'none'");
}

void rest_openapi(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)s, (void)path;
    reply_json(call, 200, mr_str_n(openapi_json, sizeof openapi_json - 1));
}

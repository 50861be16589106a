/* GET /v2/docs and /v2/docs/openapi.json: the REST endpoints, for people and for programs. openapi.json is written by
 * hand; the page is made of it when CMake configures. Constant answers, on network threads. */
#include "rest_docs.h"

#include "openapi.h" /* openapi_json[], docs_html[]; cmake/openapi.cmake */
#include "serve/state/reply.h"
#include "serve/state/state.h"

void rest_docs(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    static const struct mr_header headers[] = {
        {MR_STR_INIT("content-type"), MR_STR_INIT("text/html; charset=utf-8")},
        {MR_STR_INIT("content-security-policy"),
         MR_STR_INIT("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")},
    };
    const struct mr_piece page = {docs_html, sizeof docs_html - 1, NULL};
    const struct mr_reply reply = {
        .status = 200, .headers = headers, .header_count = 2, .pieces = &page, .piece_count = 1};

    (void)s, (void)path;
    mr_call_reply(call, &reply);
}

void rest_openapi(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)s, (void)path;
    reply_json(call, 200, mr_str_n(openapi_json, sizeof openapi_json - 1));
}

"""GET /v2/docs/openapi.json: the document describes all that the server does, and nothing else."""
import json
import re

import pytest

from lib.repo import TOP

DOCUMENT = json.loads((TOP / "src/serve/http/openapi.json").read_text())
# A model that is not there, so that control calls change nothing.
VALUES = {"model": "nosuch", "version": "1", "repository": "r", "region": "x"}
OPERATIONS = [(path, method) for path, item in DOCUMENT["paths"].items() for method in ("get", "post") if method in item]
MODEL, REPOSITORY = "/v2/models/{model}", "/v2/repository"


def send(rest, path, method):
    return rest.request(method.upper(), re.sub(r"\{(\w+)\}", lambda m: VALUES[m.group(1)], path))


def is_unknown(reply):
    return reply.status == 404 and reply.error == "Not Found"


def routes():
    """(path, methods) of each form of each row in the server's table of routes."""
    text = (TOP / "src/serve/http/routes.c").read_text()
    macros = dict(re.findall(r'^#define (\w+) +"(.*)"$', text, re.M))
    for macro, word, methods in re.findall(r'^    \{(\w*) ?(?:"([^"]*)")?, ([A-Z_| ]+), REST_\w+,', text, re.M):
        pattern = macros.get(macro, "") + word
        methods = {m.removeprefix("REST_").lower() for m in methods.split(" | ")}
        yield re.sub(r"[][]", "", pattern), methods
        if "[" in pattern:
            yield re.sub(r"\[.*\]", "", pattern), methods


def test_the_document_is_served(rest):
    reply = rest.get("/v2/docs/openapi.json").ok()
    assert reply.headers["content-type"] == "application/json" and reply.json() == DOCUMENT
    assert reply.json()["openapi"] == "3.1.0"


def test_the_page_lists_each_endpoint(rest):
    reply = rest.get("/v2/docs").ok()
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    page = reply.body.decode()
    rows = re.findall(r"<tr><td>(\w+)<td><code>(.*?)</code><td>(.*)\n", page)
    assert rows == [(method.upper(), path, DOCUMENT["paths"][path][method]["summary"]) for path, method in sorted(OPERATIONS)]
    assert not re.search(r"<script|src=|https?:", page), "it needs nothing from elsewhere"


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_methods(rest, path):
    """Each path exists, with these methods and no others."""
    for method in ("get", "post", "put", "delete", "patch"):
        reply = send(rest, path, method)
        assert not is_unknown(reply), method
        assert (reply.status == 405) == (method not in DOCUMENT["paths"][path]), method
        if reply.status == 405:
            assert set(reply.headers["allow"].split(", ")) - {"HEAD"} == {m.upper() for m in ("get", "post") if m in DOCUMENT["paths"][path]}


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_parameters(path):
    named = [p["$ref"].rpartition("/")[2] for p in DOCUMENT["paths"][path].get("parameters", [])]
    assert named == re.findall(r"\{(\w+)\}", path)
    assert all(DOCUMENT["components"]["parameters"][n]["name"] == n for n in named)


@pytest.mark.parametrize("path", [p for p in DOCUMENT["paths"] if p.startswith((MODEL, REPOSITORY))])
def test_no_form_of_a_path_is_left_out(rest, path):
    """A path with a version or a repository in it is in the document, or unknown to the server."""
    for begin, more in ((MODEL, "/versions/{version}"), (REPOSITORY, "/{repository}")):
        longer = begin + more + path[len(begin):]
        if path.startswith(begin) and more not in path and longer not in DOCUMENT["paths"]:
            assert is_unknown(send(rest, longer, "get")), longer


@pytest.mark.parametrize("path,method", OPERATIONS)
def test_answers(rest, path, method):
    """Its status is there, or an error, which any operation may have: by its path, its key or its body."""
    responses = DOCUMENT["paths"][path][method]["responses"]
    status = send(rest, path, method).status
    assert str(status) in responses or status >= 400 and "default" in responses
    assert "default" in responses or path == "/v2/docs/openapi.json"


def test_no_route_is_left_out():
    table = dict(routes())
    assert table == {path: item.keys() & {"get", "post"} for path, item in DOCUMENT["paths"].items()} and len(table) > 30


def test_references_lead_somewhere():
    def follow(value):
        if isinstance(value, dict):
            if "$ref" in value:
                target = DOCUMENT
                for part in value["$ref"].removeprefix("#/").split("/"):
                    target = target[part]
                used.add(value["$ref"])
            value = list(value.values())
        if isinstance(value, list):
            [follow(v) for v in value]

    used = set()
    follow(DOCUMENT)
    assert used == {f"#/components/{kind}/{name}" for kind, named in DOCUMENT["components"].items() for name in named}


@pytest.mark.parametrize("model", ["simple", "flat_fp32"])
def test_answers_have_the_form_that_it_says(rest, model):
    schemas = DOCUMENT["components"]["schemas"]
    for path, name in (("", "ModelMetadata"), ("/ready", "ModelReady")):
        answer = rest.get(f"/v2/models/{model}{path}").ok().json()
        assert set(answer) <= set(schemas[name]["properties"]) and set(answer) >= set(schemas[name].get("required", []))
    for path, name in (("/v2", "ServerMetadata"), ("/v2/health/live", "Live"), ("/v2/health/ready", "Ready")):
        assert set(rest.get(path).ok().json()) == set(schemas[name]["properties"])
    index = rest.post("/v2/repository/index", {}).ok().json()
    assert {key for row in index for key in row} <= set(schemas["Index"]["items"]["properties"])
    assert set(rest.get("/v2/logging").ok().json()) == set(schemas["Logging"]["properties"])

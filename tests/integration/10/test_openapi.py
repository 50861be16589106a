"""GET /v2/docs/openapi.json: the document says what the server does, and the server does no more than it says."""
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


def route_rows():
    """(path, route) of each route that the parser of paths is tested with."""
    text = (TOP / "tests/unit/oip/test_path.c").read_text()
    return re.findall(r'\{"(/v2[^"]*)", (MR_ROUTE_\w+)', text)


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
    """Each path is there, with these methods and no others."""
    for method in ("get", "post", "put", "delete", "patch"):
        reply = send(rest, path, method)
        assert not is_unknown(reply), method
        assert (reply.status == 405) == (method not in DOCUMENT["paths"][path]), method


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


def test_no_route_is_left_out():
    """Each route has a row in the unit test of paths, and each of its paths is one of the document's."""
    enumerated = set(re.findall(r"^    (MR_ROUTE_\w+)", (TOP / "src/oip/api/oip/oip.h").read_text(), re.M)) - {"MR_ROUTE_NONE"}
    rows = route_rows()
    assert enumerated == {route for _, route in rows} and len(enumerated) > 20
    forms = [re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)) + "$") for path in DOCUMENT["paths"]]
    assert [path for path, _ in rows if not any(f.match(path) for f in forms)] == []


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

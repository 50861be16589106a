"""Every route of the REST side: methods, statuses, bodies, and paths that look like a route but are none."""
import json

import pytest

from lib import repo
from lib.rest import Rest

ROUTES = [  # path, methods, status of GET
    ("/v2", "GET", 200),
    ("/v2/health/live", "GET", 200),
    ("/v2/health/ready", "GET", 200),
    ("/v2/models/simple", "GET", 200),
    ("/v2/models/simple/versions/1", "GET", 200),
    ("/v2/models/simple/versions", "GET", 200),
    ("/v2/models/simple/versions/x", "GET", 400),
    ("/v2/models/simple/versions/1x", "GET", 400),
    ("/v2/models/simple/ready", "GET", 200),
    ("/v2/models/simple/versions/1/ready", "GET", 200),
    ("/v2/models/simple/config", "GET", 200),
    ("/v2/models/simple/versions/1/config", "GET", 200),
    ("/v2/models/simple/stats", "GET", 200),
    ("/v2/models/simple/versions/1/stats", "GET", 200),
    ("/v2/models/stats", "GET", 200),
    ("/v2/logging", "GET POST", 200),
    ("/v2/docs", "GET", 200),
    ("/v2/docs/openapi.json", "GET", 200),
    ("/v2/systemsharedmemory/status", "GET", 200),
    ("/v2/cudasharedmemory/status", "GET", 200),
    ("/v2/trace/setting", "GET POST", 501),
    ("/v2/models/simple/trace/setting", "GET POST", 501),
    ("/v2/models/simple/infer", "POST", None),
    ("/v2/models/simple/versions/1/infer", "POST", None),
    ("/v2/models/simple/generate", "POST", None),
    ("/v2/models/simple/generate_stream", "POST", None),
    ("/v2/repository/index", "POST", None),
    ("/v2/repository/models/simple/load", "POST", None),
    ("/v2/repository/models/simple/unload", "POST", None),
    ("/v2/systemsharedmemory/region/x/register", "POST", None),
    ("/v2/systemsharedmemory/unregister", "POST", None),
    ("/v2/cudasharedmemory/region/x/register", "POST", None),
]
NO_ROUTES = [
    "/", "/v1", "/v2/", "/v2/health", "/v2/health/", "/v2/health/live/", "/v2/health/dead", "/v2/docs/", "/v2/docs/x", "/v2/models", "/v2/models/",
    "/v2/models/simple/", "/v2/models/simple/nosuch", "/v2/models/simple/infer/",
    "/v2/models/simple/versions/x%20y", "/v2/models/simple/versions/-1",
    "/v2/models/a/b/infer", "/v2//models/simple", "//v2", "/v2/models//infer", "/V2", "/v2/repository",
    "/v2/repository/models/simple", "/v2/logging/x", "/metrics", "/v2/models/simple/versions/1/trace/setting",
    "/v2/health%2Flive", "/v2/../v2", "/v2/models/simple/%69nfer",
]


@pytest.mark.parametrize("path, methods, status", ROUTES, ids=[r[0] for r in ROUTES])
def test_get(rest, path, methods, status):
    reply = rest.get(path)
    if "GET" not in methods:
        assert reply.status == 405 and reply.error == "Method Not Allowed"
    else:
        assert reply.status == status
        assert status == 200 or reply.error


@pytest.mark.parametrize("method, path, methods", [
    (m, path, methods) for m in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW") for path, methods, _ in ROUTES
    if m not in methods], ids=lambda v: v.replace(" ", "+"))
def test_other_methods(rest, method, path, methods):
    reply = rest.request(method, path)
    assert reply.status == 405 and reply.error == "Method Not Allowed"
    assert set(reply.headers.get("allow", methods.replace(" ", ",")).replace(" ", "").split(",")) >= set(methods.split())


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
@pytest.mark.parametrize("path", NO_ROUTES)
def test_no_route(rest, path, method):
    reply = rest.request(method, path)
    assert reply.status == 404
    assert method == "HEAD" or reply.error == "Not Found"


@pytest.mark.parametrize("path, methods, status", [r for r in ROUTES if r[2] == 200], ids=[r[0] for r in ROUTES if r[2] == 200])
def test_head_is_get_without_body(rest, path, methods, status):
    head = rest.request("HEAD", path)
    assert head.status == 200 and head.body == b""
    get = rest.get(path)
    assert head.headers.get("content-type") == get.headers.get("content-type")
    if "stats" not in path and not path.endswith("/versions"):
        assert head.headers["content-length"] == str(len(get.body))


@pytest.mark.parametrize("path", [r[0] for r in ROUTES if "GET" not in r[1]])
def test_head_of_what_has_no_get(rest, path):
    reply = rest.request("HEAD", path)
    assert reply.status == 405 and reply.body == b""


def test_query_is_not_part_of_the_route(rest):
    assert rest.get("/v2/health/live?x=1&y=/v3").status == 200
    assert rest.get("/v2?").status == 200


def test_model_named_like_a_word_of_the_api(rest):
    """The statistics of all models hide a model called `stats`, as in Triton."""
    assert "model_stats" in rest.get("/v2/models/stats").ok().json()


# ---- health, with the JSON bodies that the OIP text asks for ----

def test_health_bodies(rest):
    assert rest.get("/v2/health/live").ok().json() == {"live": True}
    ready = rest.get("/v2/health/ready").ok().json()
    assert ready.get("ready", ready.get("live")) is True
    assert rest.get("/v2/models/simple/ready").ok().json() == {"name": "simple", "ready": True}


def test_health_without_bodies(models, start):
    """As Triton answers: the status is all."""
    repo.add(models, "m")
    server = start(models, "--empty-health-bodies")
    with Rest(server.http) as rest:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/v2/models/m/versions/1/ready"):
            reply = rest.get(path)
            assert (reply.status, reply.body, reply.headers.get("content-length")) == (200, b"", "0"), path
            assert "content-type" not in reply.headers
        assert rest.get("/v2/models/nosuch/ready").error == "Model version not ready"


def test_model_that_is_not_ready(rest):
    reply = rest.get("/v2/models/nosuch/ready")
    assert reply.status == 400 and reply.error == "Model version not ready"


# ---- look-ups ----

@pytest.mark.parametrize("tail", ["", "/config", "/stats", "/infer"])
@pytest.mark.parametrize("model, status, text", [
    ("nosuch", 404, "'nosuch' is not found"), ("simple/versions/2", 404, "'simple' version 2 is not found"),
    ("simple/versions/99999999999999999999", 400, ""), ("simple/versions/0", None, "")])
def test_look_ups_that_fail(rest, model, status, text, tail):
    path = f"/v2/models/{model}{tail}"
    reply = rest.post(path, {"inputs": []}) if tail == "/infer" else rest.get(path)
    if tail == "/stats" and status == 404:
        assert reply.status in (400, 404) and "is not available" in reply.error or text in reply.error
    elif status:
        assert (reply.status, text in reply.error) == (status, True)
    else:
        assert reply.status in (400, 404) and reply.error


def test_unknown_model_of_an_inference(rest):
    assert "Request for unknown model: 'nosuch' is not found" in rest.post("/v2/models/nosuch/infer", {"inputs": []}).error


def test_statistics_of_an_unknown_model(rest):
    reply = rest.get("/v2/models/nosuch/stats")
    assert reply.status == 400 and "requested model 'nosuch' is not available" in reply.error


# ---- metadata and configuration ----

def test_server_metadata(rest):
    document = rest.get("/v2").ok().json()
    assert list(document) == ["name", "version", "extensions"]
    assert document["name"] == "triton"


def test_model_metadata(rest):
    document = rest.get("/v2/models/pair").ok().json()
    assert list(document) == ["name", "versions", "platform", "inputs", "outputs"]
    assert document["platform"] == "identity", "the backend, when there is no platform"
    assert document["inputs"][0] == {"name": "INPUT0", "datatype": "INT32", "shape": [-1, 4]}
    assert rest.get("/v2/models/grid").ok().json()["inputs"][0]["shape"] == [-1, -1]


def test_config_prints_every_default(rest):
    c = rest.get("/v2/models/pair/config").ok().json()
    for key, value in {"name": "pair", "platform": "", "backend": "identity", "max_batch_size": 4,
                       "default_model_filename": "", "batch_input": [], "batch_output": [], "cc_model_filenames": {},
                       "metric_tags": {}, "parameters": {}, "model_warmup": []}.items():
        if key != "default_model_filename":
            assert c[key] == value, key
    assert c["version_policy"] == {"latest": {"num_versions": 1}}
    io = c["input"][0]
    assert {k: io[k] for k in ("name", "data_type", "format", "dims", "is_shape_tensor", "allow_ragged_batch", "optional")} == {
        "name": "INPUT0", "data_type": "TYPE_INT32", "format": "FORMAT_NONE", "dims": [4], "is_shape_tensor": False,
        "allow_ragged_batch": False, "optional": False}
    assert {k: c["output"][0][k] for k in ("name", "data_type", "dims", "label_filename", "is_shape_tensor")} == {
        "name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [4], "label_filename": "", "is_shape_tensor": False}
    (group,) = c["instance_group"]
    assert group["name"] == "pair" and group["kind"] == "KIND_CPU" and group["count"] >= 1
    for key in ("gpus", "secondary_devices", "profile", "passive", "host_policy"):
        assert key in group, key
    assert "priority" in c["optimization"] and c["optimization"]["input_pinned_memory"] == {"enable": True}


def test_config_has_numbers_as_numbers(rest):
    text = rest.get("/v2/models/versions/config").ok().body.decode()
    c = json.loads(text)
    assert c["version_policy"] == {"all": {}}
    assert c["input"][0]["dims"] == [-1]


# ---- statistics ----

def test_statistics_document(rest):
    from lib.rest import infer_path

    data = {"name": "INPUT0", "datatype": "INT32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}
    assert rest.post(infer_path("batch_int32"), {"inputs": [data]}).status == 200
    (s,) = rest.stats("batch_int32")
    assert s["name"] == "batch_int32" and s["version"] == "1" and s["last_inference"] > 1_600_000_000_000
    kinds = s["inference_stats"]
    for kind in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"):
        assert set(kinds[kind]) == {"count", "ns"}, kind
    assert s["inference_count"] >= 2 and kinds["success"]["count"] == kinds["queue"]["count"] == kinds["compute_infer"]["count"]
    assert kinds["cache_hit"] == {"count": 0, "ns": 0}
    assert s["execution_count"] == sum(b["compute_infer"]["count"] for b in s["batch_stats"])
    assert s["inference_count"] == sum(b["batch_size"] * b["compute_infer"]["count"] for b in s["batch_stats"])


def test_repository_index(rest):
    index = rest.post("/v2/repository/index").ok().json()
    mine = [m for m in index if m["name"] == "versions"]
    assert sorted((m["version"], m["state"]) for m in mine) == [("1", "READY"), ("10", "READY"), ("2", "READY")]
    ready = rest.post("/v2/repository/index", {"ready": True}).ok().json()
    assert all(m["state"] == "READY" for m in ready)
    assert rest.post("/v2/repository/index", {"ready": False}).ok().json() == index
    assert rest.post("/v2/repository/index", "{not json").status == 400

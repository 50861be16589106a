"""Sentences of errors that clients and foreign test suites look for."""
import json

import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from lib import repo
from lib.control import Control
from lib.raw import Http1, request
from lib.rest import Rest


@pytest.mark.parametrize("path", ["models/nosuch", "models/nosuch/config", "models/simple/versions/7", "models/simple/versions/7/config"])
def test_unknown_model(rest, path):
    reply = rest.get(f"/v2/{path}")
    assert reply.status == 404 and reply.error.startswith("Request for unknown model: '")


def test_unknown_model_over_grpc(server):
    with InferenceServerClient(server.url("grpc")) as client:
        for ask in client.get_model_metadata, client.get_model_config:
            with pytest.raises(InferenceServerException, match="Request for unknown model: 'nosuch' is not found"):
                ask("nosuch")


@pytest.mark.parametrize("fields, text", [
    ({"outputs": [{"name": "OUTPUT0"}, {"name": "OUTPUT0"}]}, "output 'OUTPUT0' already exists in request"),
    ({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1 << 40, 1 << 40], "data": [1]}]},
     "causes total element count to exceed maximum size of"),
    ({"x": json.loads("[" * 110 + "]" * 110)}, "JSON nesting depth exceeds maximum allowed limit (100)"),
])
def test_bad_request(rest, fields, text):
    body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "data": [1] * 16}], **fields}
    reply = rest.post("/v2/models/simple/infer", body)
    assert reply.status == 400 and text in reply.error


def test_statistics_of_a_version_that_is_not_there(rest):
    reply = rest.get("/v2/models/simple/versions/7/stats")
    assert reply.status == 400 and reply.error == "requested model version is not available for model 'simple'"


def test_order_of_labels(server):
    with Rest(server.http) as rest:  # a model that was never asked has no such lines
        rest.infer("simple", [(name, "INT32", [1, 16], [1] * 16) for name in ("INPUT0", "INPUT1")]).ok()
    with Rest(server.metrics) as rest:
        assert 'nv_inference_request_failure{model="simple",reason="REJECTED",version="1"} ' in rest.get("/metrics").body.decode()


def test_index_with_a_bad_flag(rest):
    reply = rest.post("/v2/repository/index", {"ready": [1]})
    assert reply.status == 400 and "Invalid value for 'ready': expected a boolean" in reply.error


def test_body_too_large(models, start):
    repo.add(models, "m")
    server = start(models, "--http-max-input-size=10000")
    for head, text in ("", "request JSON size of 20000 bytes exceeds the maximum allowed input size of 10000 bytes"), \
                      ("Inference-Header-Content-Length: 10\r\n", "Request body size of 20000 bytes exceeds the maximum allowed value of "):
        with Http1(server.http) as wire:
            wire.send_until_refused(request("POST", "/v2/models/m/infer", f"Content-Length: 20000\r\n{head}", b" " * 20000))
            answer = wire.response()
            assert answer.status == 400 and text in answer.body.decode()


def test_too_many_chunks(server):
    with Http1(server.http) as wire:
        wire.send_until_refused(request("POST", "/v2/models/simple/infer", "Transfer-Encoding: chunked\r\n") + b"1\r\n \r\n" * 65537)
        answer = wire.response()
        assert answer.status == 400 and "Chunked request body exceeds maximum of 65536 non-empty chunks" in answer.body.decode()


@pytest.mark.parametrize("name, text", [
    ("..", "model name must not contain path traversal characters"),
    ("...", "failed to poll from model repository"), ("a..b", "failed to poll from model repository"),
])
def test_names(models, start, name, text):
    repo.add(models, "m")
    with Rest(start(models, mode="explicit").http) as rest:
        assert text in rest.post(f"/v2/repository/models/{name}/load").error
        assert rest.post(f"/v2/repository/models/{name}/unload").status == 200


@pytest.mark.parametrize("name", ["", " ", "\v"])
def test_blank_names(models, start, name):
    repo.add(models, "m")
    with InferenceServerClient(start(models, mode="explicit").url("grpc")) as client:
        with pytest.raises(InferenceServerException, match="Model name cannot be empty. Please enter a valid name to deploy."):
            client.load_model(name)


def test_a_bad_file_in_a_load_request(models, start):
    repo.add(models, "m")
    with Control(start(models, mode="explicit")) as control:
        reply = control.load("m", config="{}", files={"A" * 256: b"a"})
        assert "failed to load 'm', failed to poll from model repository" in reply.error
        assert "failed to load" in control.load("m", config='"max_batch_size": 1').error

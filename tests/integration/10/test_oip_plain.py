"""A client written from the text of the Open Inference Protocol alone (V2 REST), over httpx: nothing of Triton in it."""
import json

import httpx
import pytest

from lib import wait


@pytest.fixture(params=[False, True], ids=["http1", "http2"])
def oip(request, server):
    with httpx.Client(base_url=f"http://{server.url()}", http1=not request.param, http2=request.param, timeout=wait.PATIENCE) as client:
        yield client


def test_server_live(oip):
    r = oip.get("/v2/health/live")
    assert (r.status_code, r.json()) == (200, {"live": True})
    assert r.headers["content-type"] == "application/json"


def test_server_ready(oip):
    r = oip.get("/v2/health/ready")
    assert r.status_code == 200
    assert True in (r.json().get("ready"), r.json().get("live")), "the text prints the key as live, the schema means ready"


@pytest.mark.parametrize("path", ["/v2/models/simple/ready", "/v2/models/simple/versions/1/ready"])
def test_model_ready(oip, path):
    r = oip.get(path)
    assert (r.status_code, r.json()["name"], r.json()["ready"]) == (200, "simple", True)


def test_server_metadata(oip):
    document = oip.get("/v2").raise_for_status().json()
    assert isinstance(document["name"], str) and isinstance(document["version"], str)
    assert all(isinstance(e, str) for e in document["extensions"])


@pytest.mark.parametrize("path", ["/v2/models/simple", "/v2/models/simple/versions/1"])
def test_model_metadata(oip, path):
    document = oip.get(path).raise_for_status().json()
    assert document["name"] == "simple" and document["versions"] == ["1"] and isinstance(document["platform"], str)
    for tensor in document["inputs"] + document["outputs"]:
        assert set(tensor) == {"name", "datatype", "shape"}
        assert tensor["datatype"] == "INT32" and all(isinstance(d, int) for d in tensor["shape"])


REQUEST = {"id": "42", "inputs": [
    {"name": "INPUT0", "shape": [1, 16], "datatype": "INT32", "data": [[*range(16)]]},
    {"name": "INPUT1", "shape": [1, 16], "datatype": "INT32", "data": [*range(16)]}],
    "outputs": [{"name": "OUTPUT0"}]}


@pytest.mark.parametrize("path", ["/v2/models/simple/infer", "/v2/models/simple/versions/1/infer"])
def test_infer(oip, path):
    document = oip.post(path, json=REQUEST).raise_for_status().json()
    assert document["model_name"] == "simple" and document["id"] == "42"
    (output,) = document["outputs"]
    assert (output["name"], output["shape"], output["datatype"]) == ("OUTPUT0", [1, 16], "INT32")
    assert output["data"] == [2 * i for i in range(16)]


def test_errors_are_objects_with_a_text(oip):
    for r in (oip.post("/v2/models/simple/infer", json={"inputs": []}), oip.get("/v2/models/nosuch"),
              oip.post("/v2/models/simple/infer", content=b"{")):
        assert 400 <= r.status_code < 500
        assert isinstance(r.json()["error"], str) and r.json()["error"]


def test_streamed_upload(oip):
    body = json.dumps(REQUEST).encode()
    r = oip.post("/v2/models/simple/infer", content=(body[i : i + 50] for i in range(0, len(body), 50)))
    assert r.raise_for_status().json()["id"] == "42"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_answers_may_be_compressed(oip, coding):
    r = oip.post("/v2/models/simple/infer", json=REQUEST, headers={"Accept-Encoding": coding})
    assert r.raise_for_status().json()["id"] == "42"
    assert r.headers.get("content-encoding") == coding


@pytest.mark.parametrize("accept, coding", [
    ("gzip;q=0, deflate", "deflate"), ("gzip;q=0.1, deflate;q=0.9", "deflate"), ("br", None), ("identity", None),
    ("*;q=0", None), ("gzip;q=0", None), ("", None), ("gzip;q=abc", "any"), ("GZIP", "gzip")])
def test_choice_of_compression(oip, accept, coding):
    r = oip.post("/v2/models/simple/infer", json=REQUEST, headers={"Accept-Encoding": accept})
    assert r.raise_for_status().json()["id"] == "42"
    assert coding == "any" or r.headers.get("content-encoding") in (coding, "identity" if coding is None else coding)

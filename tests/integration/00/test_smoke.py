"""The server starts, answers one request over each encoding, and ends."""
import numpy as np

from lib import grpcraw, repo
from lib.grpcraw import Grpc
from lib.rest import Rest

A, B = list(range(16)), [1] * 16
SUM, DIFFERENCE = [a + 1 for a in A], [a - 1 for a in A]
INPUTS = [("INPUT0", "INT32", [1, 16], A), ("INPUT1", "INT32", [1, 16], B)]
RAW = [np.array(x, "<i4").tobytes() for x in (A, B)]


def test_start_answer_stop(models, start):
    repo.stock(models, "simple")
    server = start(models)
    with Rest(server.http) as rest:
        assert rest.get("/v2/health/live").status == 200
        assert rest.get("/v2/health/ready").status == 200
    server.stop()


def test_rest_json(rest):
    answer = rest.infer("simple", INPUTS).ok().json()
    assert answer["model_name"] == "simple" and answer["model_version"] == "1"
    assert [(o["name"], o["datatype"], o["shape"], o["data"]) for o in answer["outputs"]] == [
        ("OUTPUT0", "INT32", [1, 16], SUM), ("OUTPUT1", "INT32", [1, 16], DIFFERENCE)]


def test_rest_binary(rest):
    inputs = [("INPUT0", "INT32", [1, 16]), ("INPUT1", "INT32", [1, 16])]
    reply = rest.infer_binary("simple", inputs, RAW, parameters={"binary_data_output": True}).ok()
    document, blobs = reply.parts()
    assert np.frombuffer(blobs["OUTPUT0"], "<i4").tolist() == SUM
    assert np.frombuffer(blobs["OUTPUT1"], "<i4").tolist() == DIFFERENCE
    assert all("data" not in o for o in document["outputs"])


def test_grpc(server):
    with Grpc(server.url("grpc")) as client:
        inputs = [("INPUT0", "INT32", [1, 16], None), ("INPUT1", "INT32", [1, 16], None)]
        answer = client.infer(grpcraw.request("simple", inputs, raw=RAW))
    assert [o.name for o in answer.outputs] == ["OUTPUT0", "OUTPUT1"]
    assert [np.frombuffer(r, "<i4").tolist() for r in answer.raw_output_contents] == [SUM, DIFFERENCE]


def test_metrics_answer(server):
    with Rest(server.metrics) as client:
        reply = client.get("/metrics").ok()
    assert reply.headers["content-type"].startswith("text/plain")
    assert b"nv_inference_request_success" in reply.body

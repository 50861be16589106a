"""Requests that are refused before they reach a model: the answer, the log line, the counters."""
import socket

import grpc
import pytest

from lib import repo, wait
from lib.grpcraw import Grpc, request
from lib.metrics import value
from lib.raw import Http1
from lib.raw import request as http1_request
from lib.rest import Rest

TRITONS = "Unable to parse 'data': Shape does not match true shape of 'data' field"


@pytest.fixture
def served(models, start):
    repo.add(models, "m")
    repo.add(models, "s", inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")])
    return start(models)


@pytest.fixture
def client(served):
    with Rest(served.http) as client:
        yield client


def refused(server):
    return [e for e in server.events() if e["event"] == "request.refused"]


def body(data, shape="[1,16]", datatype="INT32", before='"id":"r-7",', after=""):
    tensor = f'{{"name":"INPUT0","shape":{shape},"datatype":"{datatype}","data":{data}}}'
    return f'{{{before}"inputs":[{tensor}]{after}}}'.encode()


@pytest.mark.parametrize("data, given", [("[]", "0"), ("[1,2,3]", "3"), ("[[1],[2]]", "2"), (str(list(range(17))), "17"),
                                         (str([[7] * 20] * 4), "80")], ids=["0", "3", "nested", "17", "80"])
@pytest.mark.parametrize("place", [dict(), dict(before="", after=',"id":"r-7"')], ids=["id first", "id last"])
def test_data_of_another_length(served, client, data, given, place):
    reply = client.post("/v2/models/m/infer", body(data, **place))
    assert reply.status == 400
    assert reply.error == f"[request id: r-7] {TRITONS}: input 'INPUT0' of shape [1,16] takes 16 elements, got {given}"
    (line,) = refused(served)
    assert all(part in str(line) for part in ("r-7", "INPUT0", f"got {given}", "127.0.0.1:", "INVALID")) and line["level"] == "info"
    assert value(served, "millrace_inference_refused_total", protocol="rest", reason="INVALID") == 1
    assert value(served, "millrace_http_responses_total", status="400") == 1


def test_data_of_another_length_without_an_id(client):
    assert client.post("/v2/models/m/infer", body("[1]", before="")).error.startswith(TRITONS)


def test_strings_of_another_count(client):
    reply = client.post("/v2/models/s/infer", body('["a","b\\u00e9"]', shape="[3]", datatype="BYTES"))
    assert reply.error.endswith("input 'INPUT0' of shape [3] takes 3 elements, got 2")


def test_long_data_is_counted_as_far_as_a_moment_goes(client):
    reply = client.post("/v2/models/m/infer", body("[" + "1," * 1_000_000 + "1]", shape="[1]"))
    assert reply.status == 400 and reply.error.endswith("takes 1 elements, got 524288 or more")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"id":3}', b'{"id":"r\\ud800","inputs":[]}', b'{"id":"x","inputs":7}', b"\xff"], ids=repr)
def test_bodies_that_are_no_request(served, client, text):
    reply = client.post("/v2/models/m/infer", text)
    assert reply.status == 400 and reply.error.startswith("[request id: x] ") == (b'"x"' in text)
    wait.equal(lambda: len(refused(served)), 1, "lines")
    assert value(served, "millrace_inference_refused_total", protocol="rest") == 1


def failure(call):
    with pytest.raises(grpc.RpcError) as e:
        call()
    return e.value


def test_grpc(served):
    with Grpc(served.url("grpc")) as g:
        e = failure(lambda: g.infer(request("m", [("INPUT0", "INT32", [1, 16], {"int_contents": [1, 2, 3]})], id="r-8")))
    assert e.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert all(part in e.details() for part in ("[request id: r-8]", "'INPUT0'", "Expected 64, got 12"))
    (line,) = refused(served)
    assert all(part in str(line) for part in ("r-8", "INPUT0", "grpc", "INVALID"))
    assert value(served, "millrace_inference_refused_total", protocol="grpc", reason="INVALID") == 1
    assert value(served, "millrace_grpc_responses_total", status="INVALID_ARGUMENT") == 1
    assert value(served, "millrace_grpc_responses_total", status="OK") >= 1, "the first call of the client"


def test_a_stream(served):
    bad = request("m", [("INPUT0", "INT32", [1, 16], {"int_contents": [1, 2, 3]})], id="r-9")
    with Grpc(served.url("grpc")) as g:
        (answer,) = g.stub.ModelStreamInfer(iter([bad]), timeout=wait.PATIENCE)
    assert "[request id: r-9]" in answer.error_message and answer.infer_response.id == "r-9"
    assert len(refused(served)) == 1 and value(served, "millrace_inference_refused_total", protocol="grpc") == 1


def test_unknown_models(served, client):
    assert client.post("/v2/models/nosuch/infer", body("[1]", shape="[1]")).status == 404
    assert client.post("/v2/models/nosuch/infer_stream", body("[1]", shape="[1]")).status == 404
    assert client.post("/v2/models/m/infer_stream", body("[1]", shape="[1]")).status == 501
    with Grpc(served.url("grpc")) as g:
        assert failure(lambda: g.infer(request("nosuch", []))).code() == grpc.StatusCode.NOT_FOUND
    assert [e["level"] for e in refused(served)] == ["info"] * 4
    for protocol, reason, count in (("rest", "NOT_FOUND", 2), ("grpc", "NOT_FOUND", 1), ("rest", "UNSUPPORTED", 1)):
        assert value(served, "millrace_inference_refused_total", protocol=protocol, reason=reason) == count
    assert value(served, "millrace_http_responses_total", status="404") == 2
    assert value(served, "millrace_grpc_responses_total", status="NOT_FOUND") == 1


def test_bodies_over_the_limit(models, start):
    repo.add(models, "m")
    server = start(models, "--http-max-input-size=1000", "--grpc-max-message-size=1000")
    kinds = ("infer", "generate", "generate_stream", "infer_stream")
    with Rest(server.http) as c:
        assert {c.post(f"/v2/models/m/{kind}", b"x" * 2000).status for kind in kinds} == {400}
        assert c.post("/v2/logging", b"x" * 2000).status == 400
    large = request("m", [("INPUT0", "INT32", [1000], {"int_contents": [1] * 1000})])
    with Grpc(server.url("grpc")) as g:
        for call in (lambda: g.infer(large), lambda: list(g.stub.ModelStreamInfer(iter([large]), timeout=wait.PATIENCE))):
            assert failure(call).code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(refused(server)) == len(kinds) + 2
    for protocol, count in (("rest", len(kinds)), ("grpc", 2)):
        assert value(server, "millrace_inference_refused_total", protocol=protocol, reason="TOO_LARGE") == count


def test_every_inference_is_counted_once(served, client):
    good = {"inputs": [{"name": "INPUT0", "shape": [2], "datatype": "INT32", "data": [1, 2]}]}
    for content in (good, {"inputs": []}, b"{"):
        client.post("/v2/models/m/infer", content)
    assert value(served, "nv_inference_request_success", model="m") == 1
    assert value(served, "nv_inference_request_failure", model="m") == 1, "it names no input"
    assert value(served, "millrace_inference_refused_total") == 1
    assert len(refused(served)) == 2


def test_a_flood_is_counted_whole_and_logged_in_part(served):
    with Http1(served.http) as wire:
        wire.send(http1_request("POST", "/v2/models/m/infer", body="{") * 200)
        assert {wire.response().status for _ in range(200)} == {400}
    assert value(served, "millrace_inference_refused_total", reason="INVALID") == 200
    assert 20 <= len(refused(served)) < 200


def test_answers_that_no_handler_gave(served):
    """Broken requests are answered, and counted, too."""
    with socket.create_connection(("127.0.0.1", served.http), timeout=wait.PATIENCE) as s:
        s.sendall(b"GET / HTTP/1.1\r\nbad header\r\n\r\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 400 ")
    assert value(served, "millrace_http_responses_total", status="400") == 1

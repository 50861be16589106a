"""Models that misbehave: their clients get errors, the same over every protocol, and no other client is affected."""
import json
import threading

import grpc
import numpy as np
import pytest

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.grpcraw import Grpc
from lib.metrics import value
from lib.raw import Http1, request
from lib.rest import Rest

ONE = [("INPUT0", "INT32", [1], [1])]
LIES = ("wrong_size", "wrong_dtype", "wrong_rank", "negative_dim", "missing_output", "twice", "bad_index")


@pytest.fixture
def sick(models, start):
    repo.add(models, "sick", backend="fault")
    repo.add(models, "good")
    return start(models, "--exit-timeout-secs=1")


def ask_all(server, parameters):
    """[(status of REST, code name of gRPC, error in the stream)]"""
    with Rest(server.http) as rest, Grpc(server.url("grpc")) as client:
        reply = rest.infer("sick", ONE, parameters=parameters)
        try:
            client.infer(grpcraw.int32("sick", [1], parameters=parameters))
            code = "OK"
        except grpc.RpcError as e:
            code = e.code().name
        messages = [grpcraw.int32("sick", [1], parameters=parameters), grpcraw.int32("good", [2]), grpcraw.int32("sick", [3])]
        answers = list(client.stub.ModelStreamInfer(iter(messages), timeout=wait.PATIENCE))
        assert [np.frombuffer(a.infer_response.raw_output_contents[0], "<i4")[0] for a in answers[1:]] == [2, 3], "the stream goes on"
        return reply.status, code, answers[0].error_message


@pytest.mark.parametrize("lie", LIES)
def test_breaks_its_word(sick, lie):
    status, code, text = ask_all(sick, {lie: True})
    assert (status, code) == (500, "INTERNAL") and "sick" in text, text
    assert ask_all(sick, {}) == (200, "OK", "")
    assert "request.failed" in {e["event"] for e in sick.events()}


@pytest.mark.parametrize("name, status", [("INVALID", 400), ("NOT_FOUND", 404), ("UNAVAILABLE", 503), ("NOMEM", 503), ("INTERNAL", 500)])
def test_fails(sick, name, status):
    told, code, text = ask_all(sick, {"fail_status": name, "fail_message": "because"})
    assert told == status and code != "OK" and "because" in text


def test_fails_at_each_second_request(models, start):
    """With many concurrent requests: each gets its own result."""
    repo.add(models, "sick", backend="fault", parameters={"fail_status": "INTERNAL", "fail_every": 2},
             extra="instance_group [ { count: 4 kind: KIND_CPU } ]")
    server = start(models)
    counts = {200: 0, 500: 0}

    def ask(seed):
        with Rest(server.http) as rest:
            for i in range(50):
                reply = rest.infer("sick", [("INPUT0", "INT32", [1], [seed + i])])
                assert reply.status == 500 or reply.json()["outputs"][0]["data"] == [seed + i]
                counts[reply.status] += 1

    threads = [threading.Thread(target=ask, args=(1000 * i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert counts == {200: 100, 500: 100}
    assert value(server, "nv_inference_request_failure", reason="BACKEND") == 100


def test_never_comes_back(sick):
    """It keeps its own requests; the others' are answered, and the end of the server does not wait for it."""
    with Rest(sick.http) as rest, Grpc(sick.url("grpc")) as client:
        stuck = client.stub.ModelInfer.future(grpcraw.int32("sick", [1], parameters={"hang": True}), timeout=wait.PATIENCE)
        behind = client.stub.ModelInfer.future(grpcraw.int32("sick", [1]), timeout=0.3)
        assert behind.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED
        for _ in range(20):
            assert rest.infer("good", ONE).status == 200
        wait.equal(lambda: value(sick, "nv_inference_pending_request_count", model="sick"), 0, "the queue's length")
        sick.signal()
        sick.checked = True
        assert sick.wait_exit() == 1
        assert stuck.exception()
    assert "model.left" in {e["event"] for e in sick.events()}


def test_never_comes_back_to_a_network_thread(models, start, hold):
    repo.add(models, "sick", backend="fault", parameters={"may_inline": "true"})
    server = start(models, "--exit-timeout-secs=0", "--inline-threshold-us=1000000")
    with Rest(server.http) as rest, Http1(server.http) as stuck:
        def runs_inline():
            assert rest.infer("sick", ONE).status == 200
            return value(server, "millrace_inline_exec_total", model="sick")
        wait.until(runs_inline, "it to run on a network thread")
        inputs = [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [1]}]
        stuck.send(request("POST", "/v2/models/sick/infer", body=json.dumps({"inputs": inputs, "parameters": hold.parameters})))
        hold.wait_held()
        server.signal()
        server.checked = True
        assert server.wait_exit() == 1
    assert "model.left" in {e["event"] for e in server.events()}


@pytest.mark.parametrize("parameters, text", [
    ({"fail_open": "true", "fail_message": "because"}, "because"), ({"fail_instance": 0, "fail_message": "because"}, "because"),
    ({"fail_instance": 2, "fail_message": "because"}, "because"), ({"fail_status": "no such"}, "no such")])
def test_fails_while_it_loads(models, start, parameters, text):
    """Again and again, and then it does not."""
    repo.add(models, "good")
    server = start(models, "--load-model=good", mode="explicit")
    group = "instance_group [ { count: 3 kind: KIND_CPU } ]"
    with Control(server) as c:
        for _ in range(3):
            repo.add(models, "sick", backend="fault", parameters=parameters, extra=group)
            reply = c.load("sick")
            assert reply.status >= 400 and text in reply.error
            assert c.states("sick") == {"1": "UNAVAILABLE"} and c.answer("good")[0] == [1, 2]
        repo.add(models, "sick", backend="fault", extra=group)
        assert c.load("sick").status == 200 and c.answer("sick")[0] == [1, 2]
        repo.add(models, "sick", backend="fault", parameters=parameters, extra=group)
        assert c.load("sick").status >= 400
        assert c.answer("sick")[0] == [1, 2], "the old one goes on"

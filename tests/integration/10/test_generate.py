"""The generate extension: a flat object in, one out, or server-sent events."""
import json
import os
import re
import signal
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from lib import repo, wait
from lib.held import resident
from lib.metrics import value
from lib.raw import Http1, request
from lib.rest import Rest
from lib.workers import add_fault, pids

DECOUPLED = "model_transaction_policy { decoupled: true }"
MIB = 1 << 20


@pytest.fixture(scope="module", params=["thread", "process"])
def served(tmp_path_factory, keeper, request):
    from lib.server import Server
    folder = tmp_path_factory.mktemp("generate")
    models = folder / "models"
    text = dict(inputs=[repo.tensor("text_input", "TYPE_STRING", (1,))], outputs=[repo.tensor("text_output", "TYPE_STRING", (1,))])
    repo.add(models, "one", **text)
    repo.add(models, "many", extra=DECOUPLED, **text)
    repo.add(models, "batched", max_batch_size=4, **text)
    repo.add(models, "numbers", inputs=[repo.tensor("A", "TYPE_FP32", (-1, 2)), repo.tensor("B", "TYPE_BOOL", (1,), "optional: true")],
             outputs=[repo.tensor("A", "TYPE_FP32", (-1, 2))])
    repo.add(models, "several", inputs=[repo.tensor("A", "TYPE_INT64", (-1,))], outputs=[repo.tensor("A", "TYPE_INT64", (-1,))], extra=DECOUPLED)
    server = Server(folder, [models], f"--backend-placement=identity={request.param}")
    server.wait_ready()
    yield server
    server.stop()


@pytest.fixture
def rest(served):
    with Rest(served.http) as r:
        yield r


def events(reply):
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8", reply.headers
    parts = reply.body.decode().split("\n\n")
    assert parts.pop() == "" and all(p.startswith("data: ") for p in parts)
    return [json.loads(p[6:]) for p in parts]


def ask(rest, model, body, kind="generate"):
    return rest.post(f"/v2/models/{model}/{kind}", body)


@pytest.mark.parametrize("model", ["one", "batched", "many"])
@pytest.mark.parametrize("text", ["hello", "", 'quo"te\n\u00e9'])
def test_one_text(rest, model, text):
    reply = ask(rest, model, {"text_input": text})
    assert reply.status == 200 and reply.headers["content-type"] == "application/json"
    assert reply.json() == {"model_name": model, "model_version": "1", "text_output": text}


def test_id_and_version(rest):
    reply = rest.post("/v2/models/one/versions/1/generate", {"id": "7", "text_input": "x", "temperature": 0.5, "stop": True})
    assert reply.json() == {"id": "7", "model_name": "one", "model_version": "1", "text_output": "x"}


def test_inputs_within_parameters(rest):
    assert ask(rest, "numbers", {"parameters": {"A": [1, 2], "temperature": 0.5}}).json()["A"] == [1, 2]


@pytest.mark.parametrize("given,shown", [([1, 2], [1, 2]), ([1, 2, 3, 4.5], [1, 2, 3, 4.5])])
def test_numbers_fill_the_open_dimension(rest, given, shown):
    assert ask(rest, "numbers", {"A": given, "B": True}).json()["A"] == shown


@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
@pytest.mark.parametrize("texts", [["a"], ["a", "b", "c"]])
def test_elements_are_rows_of_a_batch(rest, kind, texts):
    reply = ask(rest, "batched", {"text_input": texts}, kind)
    assert reply.status == 200
    shown = reply.json() if kind == "generate" else events(reply)[0]
    assert shown["text_output"] == (texts if len(texts) > 1 else texts[0])


@pytest.mark.parametrize("body,says", [
    ({"A": [1, 2, 3]}, "The schema can not convert input 'A' to tensor with proper shape: 3 elements are not a multiple of 2 at offset"),
    ({"A": [1, 2], "B": [True, True]}, "The schema can not convert input 'B' to tensor with proper shape: 2 elements are not 1 at offset"), ({"A": [[1, 2]]}, "array of values"), ({"A": "x"}, "A"), ({"B": True}, "A"),
    ({"A": [1, 2], "C": [1]}, "parameter 'C' has invalid type"), ({"A": [1, 2], "C": None}, "parameter 'C' has invalid type"),
    ({"A": [1, 2], "triton_x": 1}, "triton_"), ([], "object"), ("{", "JSON"),
    ({"A": [1, 2], "parameters": {"a": [1]}}, "Converting keyword: 'parameters': parameter 'a' has invalid type. It should be either"),
    ({"A": [1, 2], "parameters": 1}, "Expected JSON object for keyword: 'parameters'"),
    ({"A": [1, 2], "B": 1}, "input 'B': attempt to access JSON non-boolean as boolean at offset 19"),
    ({"A": [1, {}]}, "input 'A' takes a value"), ({"A": [1, "2"]}, "input 'A': attempt to access JSON non-number as number at offset 10"),
    ('{"A":[1,2],"A":[1,2]}', "input 'A' already exists in request at offset 15"),
], ids=str)
def test_bad_requests(rest, body, says):
    reply = rest.post("/v2/models/numbers/generate", body if not isinstance(body, str) else body.encode())
    assert reply.status == 400 and reply.headers["content-type"] == "application/json"
    assert says.lower() in reply.error.lower() or says == "JSON"


def test_an_offset_is_one_of_the_text_that_was_sent(rest):
    reply = ask(rest, "several", {"A": [1, 2.5]})
    assert reply.status == 400 and "fraction" in reply.error and "offset" not in reply.error


@pytest.mark.parametrize("value", [5, True, None, {"a": 1}])
def test_a_text_that_is_none(rest, value):
    reply = ask(rest, "one", {"text_input": value}, "generate_stream")
    assert reply.status == 400 and reply.error == "input 'text_input': attempt to access JSON non-string as string at offset 15"


def test_unknown_model(rest):
    for kind in ("generate", "generate_stream"):
        assert ask(rest, "none", {"text_input": "x"}, kind).status in (400, 404)


def test_compressed_body_is_refused(rest):
    reply = rest.request("POST", "/v2/models/one/generate", body=b"x", headers={"content-encoding": "gzip"})
    assert reply.status == 400 and "Content-Encoding" in reply.error


@pytest.mark.parametrize("model", ["one", "batched"])
def test_stream_of_an_ordinary_model(rest, model):
    assert [e["text_output"] for e in events(ask(rest, model, {"text_input": "x"}, "generate_stream"))] == ["x"]


@pytest.mark.parametrize("repeat", [0, 1, 3, 500])
def test_stream_of_several(rest, repeat):
    got = events(ask(rest, "many", {"text_input": "x", "parameters": {"repeat": repeat}}, "generate_stream"))
    assert got == [{"model_name": "many", "model_version": "1", "text_output": "x"}] * repeat


def test_large_events(rest):
    numbers = list(range(200_000))
    got = events(ask(rest, "several", {"A": numbers, "repeat": 3}, "generate_stream"))
    assert [e["A"] == numbers for e in got] == [True] * 3


@pytest.mark.parametrize("repeat", [0, 2, 1_000_000_000])
def test_not_one_answer(rest, repeat):
    reply = ask(rest, "many", {"text_input": "x", "repeat": repeat})
    assert reply.status == 500 and reply.error == ("generate expects model to produce exactly 1 response, use generate stream "
                                                   "for model that generates various number of responses")
    assert ask(rest, "many", {"text_input": "x"}).status == 200  # the model's only instance is free


def test_error_before_the_first_event(rest):
    reply = ask(rest, "many", {"text_input": "x", "repeat": -1}, "generate_stream")
    assert reply.status == 400 and "repeat" in reply.error


@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
def test_error_after_the_first_answer(models, start, hold, tmp_path, kind):
    """The worker process dies: a stream, which has begun, ends with an event. Without one the request has failed."""
    add_fault(models, extra=DECOUPLED, max_batch_size=0)
    server = start(models, f"--worker-directory={tmp_path}")
    with socket.create_connection(("127.0.0.1", server.http)) as s:
        s.sendall(request("POST", f"/v2/models/m/{kind}", "Connection: close\r\n", body=json.dumps(
            {"INPUT0": [7], "responses": 3, "hold_after": 1, **hold.parameters})))
        hold.wait_held()
        os.kill(pids(server, "m")[0], signal.SIGKILL)
        got = s.makefile("rb").read().decode()
    if kind == "generate":
        assert got.startswith("HTTP/1.1 500 ") and "worker process ended while it was answering" in got
        return
    assert got.startswith("HTTP/1.1 200 ")
    first, last = re.findall(r"data: (.*?)\n\n", got)
    assert json.loads(first)["OUTPUT0"] == 7 and "worker process ended while it was answering" in json.loads(last)["error"]


def test_http_1_0_and_closed_client(served, rest):
    body = json.dumps({"text_input": "x", "repeat": 1_000_000_000})
    with Http1(served.http) as c:
        c.send(request("POST", "/v2/models/many/generate_stream", body=body))
        c._until(b"data: ")
    assert ask(rest, "many", {"text_input": "x"}).status == 200  # its stream has ended


def test_a_client_that_does_not_read(served, rest):
    before = resident(served)
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", served.http))
        s.sendall(request("POST", "/v2/models/several/generate_stream",
                          body=json.dumps({"A": list(range(2000)), "repeat": 1_000_000_000})))
        for _ in range(200):
            assert ask(rest, "one", {"text_input": "x"}).status == 200
        if wait.SLOW == 1:
            assert resident(served) - before < 40 * MIB
    assert ask(rest, "several", {"A": [1]}).status == 200


@pytest.mark.few
@pytest.mark.parametrize("repeat", [2, 1_000_000_000])
def test_a_client_that_leaves_while_answers_wait(models, start, repeat):
    """Of two answers, each larger than what a socket takes, the second waits although the model is done; of many, the model
    waits. Neither holds the model once the client has disconnected: the server ends at once."""
    repo.add(models, "m", inputs=[repo.tensor("A", "TYPE_INT64", (-1,))], outputs=[repo.tensor("A", "TYPE_INT64", (-1,))],
             extra=DECOUPLED)
    server = start(models, "--max-output-backlog=64KiB")
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", server.http))
        s.sendall(request("POST", "/v2/models/m/generate_stream", body=json.dumps({"A": [10 ** 17] * 500_000, "repeat": repeat})))
        assert s.recv(12) == b"HTTP/1.1 200"
        if repeat == 2:
            wait.equal(lambda: value(server, "nv_inference_exec_count", model="m"), 1, "the model to be done")
    wait.until(lambda: value(server, "millrace_connections") == 1, "the connection to go (one asks)")
    server.signal()
    assert server.wait_exit() == 0


def test_a_client_that_leaves_does_not_make_it_a_failure(models, start, hold):
    """Of the model, which has given its one answer."""
    repo.add(models, "m", backend="fault", inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,))], outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (1,))],
             parameters=hold.parameters)
    server = start(models)
    with Http1(server.http) as wire:
        wire.send(request("POST", "/v2/models/m/generate", body=json.dumps({"INPUT0": [1]})))
        hold.wait_held()
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset: no answer could be read
    wait.until(lambda: value(server, "millrace_connections") == 1, "the connection to go (one asks)")
    hold.end()
    wait.equal(lambda: value(server, "nv_inference_exec_count", model="m"), 1, "the model to be done")
    server.stop()
    assert not [e for e in server.events() if e["event"] == "request.failed"]


def test_clients_that_leave_while_answers_are_encoded(models, start):
    repo.add(models, "m", inputs=[repo.tensor("A", "TYPE_INT64", (-1,))], outputs=[repo.tensor("A", "TYPE_INT64", (-1,))], extra=DECOUPLED)
    server = start(models, "--loop-threads=1")
    body = request("POST", "/v2/models/m/generate_stream", body=json.dumps({"A": [10 ** 17] * 60_000, "repeat": 4}))

    def leave(after):
        with socket.create_connection(("127.0.0.1", server.http)) as s:
            s.sendall(body)
            while after > 0 and (got := s.recv(min(after, 1 << 16))):
                after -= len(got)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(leave, [12, 100_000, 1_300_000, 2_000_000, 3_000_000] * 8))

"""Large tensors of models in worker processes: received where the workers read them and sent from where they wrote them.
What is copied is counted; bodies and answers may outlive the version whose memory they lie in."""
import json
import os
import signal
import threading

import numpy as np
import pytest

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.grpcraw import Grpc
from lib.held import in_use
from lib.metrics import value
from lib.raw import Http1, Http2, request
from lib.rest import Rest, binary_body, infer_path
from lib.workers import thread_names

PROCESS = {"execution_placement": "process"}
PATIENT = ("--body-timeout=3600s", "--write-timeout=3600s", "--worker-hang-timeout=3600s")
FOUR_MB = 1 << 20  # numbers


def add(models, name="m", extra="", **kw):
    repo.add(models, name, parameters=PROCESS, inputs=[repo.tensor("INPUT0", "TYPE_FP32")], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32")],
             extra=extra, **kw)


@pytest.fixture
def start(start):
    """No server ends what a test holds up."""
    return lambda *args, **kw: start(*args, *PATIENT, **kw)


@pytest.fixture
def served(models, start):
    add(models)
    return start(models)


def copied(server, model="m"):
    return value(server, "millrace_worker_copied_bytes_total", model=model)


def numbers(count):
    return np.random.default_rng(count).random(count, dtype="f4")


def rest_body(data, **fields):
    """(body, its header)"""
    body, length = binary_body([("INPUT0", "FP32", [len(data)])], [data.tobytes()],
                               outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}], **fields)
    return body, {"Inference-Header-Content-Length": str(length)}


def rest_infer(server, data, model="m"):
    body, headers = rest_body(data)
    with Rest(server.http) as rest:
        return rest.post(infer_path(model), body, headers=headers).ok().parts()[1]["OUTPUT0"]


def grpc_infer(server, data, model="m", **kw):
    with Grpc(server.url("grpc")) as grpc:
        return grpc.infer(grpcraw.request(model, [("INPUT0", "FP32", [len(data)], None)], raw=[data.tobytes()], **kw)).raw_output_contents[0]


def rest2_infer(server, data):
    """REST over HTTP/2."""
    body, headers = rest_body(data)
    with Http2(server.http) as wire:
        lines = {"content-length": str(len(body)), **{k.lower(): v for k, v in headers.items()}}
        stream = wire.headers("POST", infer_path("m"), lines.items(), end=False)
        wire.send(stream, body)
        answer = wire.response(stream)
    return answer.body[int(answer.headers["inference-header-content-length"]):]


def odd_infer(server, data):
    """gRPC whose first frames end in the message's prefix and in its names."""
    message = grpcraw.request("m", [("INPUT0", "FP32", [len(data)], None)], raw=[data.tobytes()]).SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    with Http2(server.http) as wire:
        stream = wire.headers("POST", "/inference.GRPCInferenceService/ModelInfer", [("content-type", "application/grpc"), ("te", "trailers")],
                              end=False)
        for begin, end in ((0, 3), (3, 5), (5, 6), (6, 20), (20, None)):
            wire.send(stream, body[begin:end], end=end is None)
        answer = wire.response(stream)
    assert answer.headers["grpc-status"] == "0", answer.headers
    return grpcraw.pb.ModelInferResponse.FromString(answer.body[5:]).raw_output_contents[0]


class Upload:
    """A request without its last byte: the received part has its place."""

    def __init__(self, server, data, model="m", **fields):
        body, headers = rest_body(data, **fields)
        had = in_use(server)
        self.wire = Http1(server.http)
        lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        self.wire.send(request("POST", infer_path(model), lines, body)[:-1])
        self.last = body[-1:]
        wait.until(lambda: in_use(server) >= had + len(body), "the body to be there")

    def finish(self):
        """The bytes of the output."""
        self.wire.send(self.last)
        answer = self.wire.response()
        self.wire.close()
        assert answer.status == 200, answer.body[:300]
        return answer.body[int(answer.headers["inference-header-content-length"]):]


def pids(server, model="m"):
    with Rest(server.http) as rest:
        return [w["pid"] for w in rest.get(f"/v2/models/{model}/workers").ok().json()["workers"] if w["state"] == "ready"]


def wait_gone(pid):
    wait.until(lambda: not os.path.exists(f"/proc/{pid}"), f"worker {pid} to be gone")


@pytest.mark.parametrize("count,size", [(24, 25_000), (24, 2_100), (3, 1_000_000)])
def test_many_large_outputs(models, start, count, size):
    """There are six extents at most for an execution, and no bound on its outputs."""
    names = [f"X{i}" for i in range(count)]
    repo.add(models, "m", parameters=PROCESS, inputs=[repo.tensor(n, "TYPE_FP32") for n in names],
             outputs=[repo.tensor(n, "TYPE_FP32") for n in names])
    server = start(models)
    data = [numbers(size + i) for i in range(count)]
    with Grpc(server.url("grpc")) as grpc:
        answer = grpc.infer(grpcraw.request("m", [(n, "FP32", [len(d)], None) for n, d in zip(names, data)], raw=[d.tobytes() for d in data]))
    assert answer.raw_output_contents == [d.tobytes() for d in data]


# ---- what is copied ----

@pytest.mark.few(2)
@pytest.mark.release
@pytest.mark.parametrize("infer", [rest_infer, grpc_infer, rest2_infer, odd_infer])
def test_large_tensors_are_not_copied(served, infer):
    before = copied(served)
    for count in (FOUR_MB, 20_000, 3 * FOUR_MB, FOUR_MB):
        data = numbers(count)
        assert infer(served, data) == data.tobytes()
    assert copied(served) == before
    assert not [name for name in thread_names(served) if name.startswith("run:")]  # the network's hand them over


@pytest.mark.release
@pytest.mark.parametrize("infer", [rest_infer, grpc_infer])
def test_small_tensors_are_copied_once(served, infer):
    """Each way."""
    for count in (1, 2048, 2049, 15_000):
        before = copied(served)
        data = numbers(count)
        assert infer(served, data) == data.tobytes()
        assert copied(served) - before == 2 * data.nbytes


@pytest.mark.release
def test_what_is_not_binary_is_copied_once(served):
    """Numbers of a JSON text are no tensor before they are read."""
    before = copied(served)
    data = numbers(50_000)
    with Rest(served.http) as rest:
        reply = rest.post(infer_path("m"), {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [len(data)], "data": data.tolist()}]})
    assert np.array_equal(np.array(reply.ok().json()["outputs"][0]["data"], "f4"), data)
    assert copied(served) - before == data.nbytes


@pytest.mark.release
def test_batches_are_joined_where_workers_read_them(models, start, hold, tmp_path):
    repo.add(models, "m", backend="fault", parameters=PROCESS, max_batch_size=8, extra="dynamic_batching { }")
    server = start(models, f"--worker-directory={tmp_path}")
    with Grpc(server.url("grpc")) as grpc:
        first = grpc.stub.ModelInfer.future(grpcraw.int32("m", [7], shape=[1, 1], parameters=hold.parameters))
        hold.wait_held()
        before = copied(server)
        rows = [np.arange(i, 50_000 + i, dtype="<i4") for i in range(4)]
        others = [grpc.stub.ModelInfer.future(grpcraw.int32("m", row, shape=[1, len(row)])) for row in rows]
        wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), 4)
        hold.end()
        assert first.result().raw_output_contents[0] == np.array([7], "<i4").tobytes()
        for row, future in zip(rows, others):
            assert future.result().raw_output_contents[0] == row.tobytes()
    assert value(server, "nv_inference_exec_count", model="m") == 2
    assert copied(server) - before == 4  # the output of the first


def test_version_of_the_request(models, start):
    """The body goes to the memory of the version that it asks for."""
    add(models, versions=(1, 2), extra="version_policy { all { } }")
    server = start(models)
    data = numbers(FOUR_MB)
    body, headers = rest_body(data)
    before = copied(server)
    with Rest(server.http) as rest:
        for version in (1, 2):
            reply = rest.post(f"/v2/models/m/versions/{version}/infer", body, headers=headers)
            assert reply.ok().parts()[1]["OUTPUT0"] == data.tobytes()
            assert grpc_infer(server, data, version=str(version)) == data.tobytes()
    assert copied(server) == before


# ---- bodies and answers that take their time ----

def test_version_replaced_during_an_upload(models, explicit):
    """The body lies in memory of a version that is unloaded before it is complete."""
    add(models)
    server, control = explicit()
    control.load("m").ok()
    data = numbers(FOUR_MB)
    old = pids(server)
    upload = Upload(server, data)
    add(models, versions=(1, 2))
    control.load("m").ok()
    wait_gone(old[0])
    before = copied(server)
    assert upload.finish() == data.tobytes()
    assert copied(server) - before == data.nbytes


def test_model_unloaded_during_an_upload(models, explicit):
    add(models)
    server, control = explicit()
    control.load("m").ok()
    old = pids(server)
    had = in_use(server)
    upload = Upload(server, numbers(FOUR_MB))
    control.unload("m").ok()
    wait_gone(old[0])
    upload.wire.send(upload.last)
    assert upload.wire.response().status == 404
    upload.wire.close()
    wait.until(lambda: in_use(server) < had + FOUR_MB, "the memory to be given back")


def test_client_that_does_not_read_holds_no_model_up(models, explicit):
    """A model is closed, and others after it, while an answer that lies in its memory is being sent."""
    add(models)
    add(models, "n")
    server, control = explicit()
    control.load("m").ok()
    control.load("n").ok()
    data = numbers(4 * FOUR_MB)
    body, headers = rest_body(data)
    workers = pids(server), pids(server, "n")
    with Http1(server.http, receive_buffer=1 << 16) as slow:
        slow.send(request("POST", infer_path("m"), "".join(f"{k}: {v}\r\n" for k, v in headers.items()), body))
        wait.equal(lambda: value(server, "nv_inference_request_success", model="m"), 1)
        for model, (pid,) in zip("mn", workers):
            control.unload(model).ok()
            wait_gone(pid)
        answer = slow.response()
    assert answer.body[int(answer.headers["inference-header-content-length"]):] == data.tobytes()


def test_requests_that_fail(served):
    """Large bodies of requests that are refused, or whose client disconnects, leak nothing."""
    had = in_use(served)
    data = numbers(FOUR_MB)
    body, headers = rest_body(data)
    with Rest(served.http) as rest:
        assert rest.post(infer_path("none"), body, headers=headers).status == 404
        assert rest.post(infer_path("m"), body.replace(b'"FP32"', b'"INT8"'), headers=headers).status == 400
    given_back = lambda: in_use(served) < had + FOUR_MB
    wait.until(given_back, "the memory of what was refused")
    Upload(served, data).wire.close()
    wait.until(given_back, "the memory to be given back")
    assert rest_infer(served, data) == data.tobytes()


def test_budget_counts_bodies(models, start):
    """What clients upload is bounded, for models in processes as for others; what is small is still answered."""
    add(models)
    server = start(models, "--memory-budget=16MiB")
    data = numbers(FOUR_MB * 5)
    body, headers = rest_body(data)
    with Rest(server.http) as rest:
        reply = rest.post(infer_path("m"), body, headers=headers)
        assert reply.status == 503 and "--memory-budget" in reply.error
    uploads = [Upload(server, numbers(FOUR_MB)) for _ in range(2)]
    small = numbers(10)
    assert rest_infer(server, small) == small.tobytes()
    for upload in uploads:
        upload.wire.close()
    wait.until(lambda: in_use(server) < FOUR_MB, "the memory to be given back")
    assert rest_infer(server, numbers(FOUR_MB)) == numbers(FOUR_MB).tobytes()


def test_uploads_that_take_all_places(models, start):
    """Sizes that clients claim take places in the shared memory, and little memory: other bodies are then copied, none is refused."""
    add(models)
    server = start(models, "--memory-budget=256MiB")
    claim = 64 << 20  # the most that is taken; 64 places of twice that are there
    head = f"Inference-Header-Content-Length: 2\r\nContent-Length: {claim}\r\n"
    before = copied(server)
    data = numbers(20_000)
    wires = []
    for _ in range(64):
        had = in_use(server)
        wires.append(Http1(server.http))
        wires[-1].send(request("POST", infer_path("m"), head) + b"{}" + bytes(100_000))
        wait.until(lambda: in_use(server) > had, "the body to have its place")
    assert rest_infer(server, data) == data.tobytes()
    assert copied(server) - before == data.nbytes
    for wire in wires:
        wire.close()
    wait.until(lambda: in_use(server) < 1 << 20, "the places to be free")
    assert rest_infer(server, data) == data.tobytes()
    assert copied(server) - before == data.nbytes


# ---- workers that end ----

def test_worker_ends_during_an_upload(served):
    data = numbers(FOUR_MB)
    upload = Upload(served, data)
    (pid,) = pids(served)
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    assert upload.finish() == data.tobytes()


def test_worker_ends_with_a_large_input(models, start, hold, tmp_path):
    """The next worker reads the same bytes."""
    repo.add(models, "m", backend="fault", parameters=PROCESS)
    server = start(models, f"--worker-directory={tmp_path}")
    before = copied(server)
    data = np.arange(FOUR_MB, dtype="<i4")
    body, length = binary_body([("INPUT0", "INT32", [len(data)])], [data.tobytes()], parameters={**hold.parameters, "binary_data_output": True})
    replies = []

    def ask():
        with Rest(server.http) as rest:
            replies.append(rest.post(infer_path("m"), body, headers={"Inference-Header-Content-Length": str(length)}))

    thread = threading.Thread(target=ask)
    thread.start()
    hold.wait_held()
    os.kill(pids(server)[0], signal.SIGKILL)
    wait.until(lambda: value(server, "millrace_worker_requeued_total", model="m") == 1, "the request to be queued again")
    hold.end()
    thread.join()
    assert replies[0].ok().parts()[1]["OUTPUT0"] == data.tobytes()
    assert copied(server) == before

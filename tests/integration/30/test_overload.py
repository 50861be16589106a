"""More load than capacity: no work is wasted, excess requests are refused at once, and others do not wait for them.
Counts; nothing here asserts a time."""
import json
import threading

import grpc
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lib import grpcraw, repo, wait
from lib.grpcraw import Grpc
from lib.metrics import value
from lib.raw import Http1, request
from lib.rest import Rest

ONE = [("INPUT0", "INT32", [1], [1])]
GREEDY = [("X", "FP32", [1], [1.0])]
DOCUMENT = json.dumps({"inputs": [dict(zip(("name", "datatype", "shape", "data"), GREEDY[0]))]})


def executions(server, model):
    return value(server, "nv_inference_exec_count", model=model) or 0


@pytest.fixture
def slow(models, start):
    """slow(*options): a server whose model `slow` takes its requests one at a time."""
    repo.add(models, "slow", backend="fault", extra="instance_group [ { count: 1 kind: KIND_CPU } ]")
    repo.add(models, "other")
    return lambda *options: start(models, *options)


def test_what_is_too_late_is_not_run(slow, hold):
    """Each execution answers a client: a request that has expired or was cancelled before its turn does not run. The number of
    answers in time at twice the sustained rate is a row of the benchmark, `overload`."""
    server = slow()
    with Grpc(server.url("grpc")) as client, Rest(server.http) as rest:
        before = executions(server, "slow")
        first = client.stub.ModelInfer.future(grpcraw.int32("slow", [1], parameters=hold.parameters), timeout=300)
        hold.wait_held()
        calls = [client.stub.ModelInfer.future(grpcraw.int32("slow", [1]), timeout=0.2) for _ in range(60)]
        assert {c.exception().code() for c in calls} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        client.infer(grpcraw.int32("other", [1]))  # on the same connection: all earlier requests have been read
        wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="slow"), 0, "requests that wait")
        hold.end()
        assert first.result()
        assert rest.infer("slow", ONE).status == 200, "and all is well again"
        assert executions(server, "slow") - before == 2


def test_full_queue_answers_at_once(slow, hold):
    """Of 300 at once those that find no room are answered while the model is busy with the first, and do not run."""
    server = slow("--max-queue-size=10")
    with Grpc(server.url("grpc")) as client:
        before = executions(server, "slow")
        first = client.stub.ModelInfer.future(grpcraw.int32("slow", [1], parameters=hold.parameters), timeout=300)
        hold.wait_held()
        calls = [client.stub.ModelInfer.future(grpcraw.int32("slow", [1]), timeout=300) for _ in range(300)]
        wait.equal(lambda: sum(c.done() for c in calls), 290, "answers")
        assert {c.exception().code() for c in calls if c.done()} == {grpc.StatusCode.UNAVAILABLE}
        hold.end()
        assert first.result() and sum(c.exception() is None for c in calls) == 10
    assert executions(server, "slow") - before == 11


def worker(side=256, products=4):
    """A model of one number that multiplies matrices for some milliseconds."""
    nodes = [helper.make_node("Expand", ["X", "shape"], ["m0"])]
    nodes += [helper.make_node("MatMul", [f"m{i}", "m0"], [f"m{i + 1}"]) for i in range(products)]
    nodes += [helper.make_node("ReduceMax", [f"m{products}"], ["Y"], keepdims=0)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1])],
                              [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [])],
                              [numpy_helper.from_array(np.array([side, side], np.int64), "shape")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture
def inline(models, start):
    """A server of one network thread on which the model `greedy` runs, some milliseconds each time."""
    repo.add(models, "greedy", 'backend: "onnxruntime" max_batch_size: 0 parameters { key: "intra_op_thread_count" '
             'value { string_value: "1" } }', files={"1/model.onnx": worker()})
    repo.add(models, "other")
    server = start(models, "--loop-threads=1", "--inline-threshold-us=500000")
    with Rest(server.http) as rest:
        def runs_inline():
            assert rest.infer("greedy", GREEDY).status == 200 and rest.infer("other", ONE).status == 200
            return value(server, "millrace_inline_exec_total", model="greedy")
        wait.until(runs_inline, "it to run inline")
    return server


def test_a_round_of_inline_work_is_bounded(inline):
    """Requests that come at once run inline for a while, and the rest of the round goes to the queue."""
    before = executions(inline, "greedy"), value(inline, "millrace_inline_exec_total", model="greedy")
    with Http1(inline.http) as wire:
        wire.send(request("POST", "/v2/models/greedy/infer", body=DOCUMENT) * 100)
        assert all(wire.response().status == 200 for _ in range(100))
    ran = executions(inline, "greedy") - before[0]
    inlined = value(inline, "millrace_inline_exec_total", model="greedy") - before[1]
    assert ran == 100 and 0 < inlined <= 90, f"{inlined} of {ran} inline"


@pytest.mark.few
@pytest.mark.parametrize("what", ["other", "health", "metrics"])
def test_one_greedy_model(inline, what):
    """40 clients of one model do not delay all others: while 20 others are answered, few of theirs are."""
    stop = threading.Event()

    def flood():
        with Http1(inline.http) as wire:
            while not stop.is_set():
                wire.send(request("POST", "/v2/models/greedy/infer", body=DOCUMENT) * 8)
                assert all(wire.response().status == 200 for _ in range(8))

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(40)]
    try:
        [t.start() for t in threads]
        before = executions(inline, "greedy")
        wait.until(lambda: executions(inline, "greedy") > before + 200, "the flood")
        with Rest(inline.metrics if what == "metrics" else inline.http) as rest:
            def round_of_20():
                before = executions(inline, "greedy")
                for _ in range(20):
                    reply = rest.infer("other", ONE) if what == "other" else rest.get("/metrics" if what == "metrics" else "/v2/health/ready")
                    assert reply.status == 200
                return executions(inline, "greedy") - before
            # again where this client is the one that is slow
            ran = next((n for n in (round_of_20() for _ in range(5)) if n < 2000), 2000)
    finally:
        stop.set()
        [t.join(wait.PATIENCE) for t in threads]
    assert ran < 20 * 100, f"{ran} executions while 20 others were answered; each waits for a whole round of 320"

"""Models that give any number of answers to a request, over ModelStreamInfer: order, final flags, errors, cancellation,
and a client that does not read."""
import contextlib

import grpc
import pytest

from lib import grpcraw, repo, wait
from lib.faults import PROGRAM, Faults
from lib.held import resident
from lib.hold import Hold
from lib.metrics import value
from lib.raw import GRPC_HEADERS, Http2, grpc_frame, grpc_path
from lib.rest import Rest
from lib.stream import DECOUPLED, Stream, flag, values

MIB = 1 << 20


def ask(model="many", numbers=(1, 2, 3), repeat=3, id="", empty=False, shape=None, **parameters):
    parameters = {"repeat": repeat, **parameters, **({"triton_enable_empty_final_response": True} if empty else {})}
    return grpcraw.int32(model, list(numbers), id=id, parameters=parameters, shape=shape or [len(numbers)])


@pytest.fixture(params=["thread", "process"])
def placement(request):
    """Parameters of a model in the server, and of one in a worker process."""
    return {"execution_placement": request.param}


@pytest.fixture
def served(models, start, placement):
    repo.add(models, "many", extra=DECOUPLED, parameters=placement)
    repo.add(models, "one", parameters=placement)
    repo.add(models, "batched", max_batch_size=8, extra=DECOUPLED + "\ndynamic_batching { max_queue_delay_microseconds: 20000 }",
             parameters=placement)
    repo.add(models, "pair", max_batch_size=2, extra=DECOUPLED + "\ndynamic_batching { max_queue_delay_microseconds: 600000000 }",
             parameters=placement)
    return start(models, "--batching-delay=exact")


@pytest.fixture
def stream(served):
    with Stream(served.url("grpc")) as s:
        yield s


@pytest.mark.parametrize("repeat", [1, 2, 7, 500])
def test_answers_in_order(stream, repeat):
    stream.send(ask(repeat=repeat, id="x"))
    answers = stream.end()
    assert [flag(a) for a in answers] == [False] * (repeat - 1) + [True]
    assert all(values(a) == [1, 2, 3] and a.infer_response.id == "x" and not a.error_message for a in answers)


def test_large_answers(stream):
    numbers = list(range(1_000_000))
    stream.send(ask(numbers=numbers, repeat=5))
    assert [values(a) == numbers for a in stream.end()] == [True] * 5


@pytest.mark.parametrize("empty", [False, True])
def test_no_answer(stream, empty):
    stream.send(ask(repeat=0, id="none", empty=empty), ask(repeat=1, id="next"))
    answers = stream.end()
    nothing = [a for a in answers if a.infer_response.id == "none"]
    assert len(nothing) == (1 if empty else 0)
    for a in nothing:
        assert flag(a) is True and not a.infer_response.outputs and a.infer_response.model_name == "many"
    assert [values(a) for a in answers if a.infer_response.id == "next"] == [[1, 2, 3]]


@pytest.mark.parametrize("empty", [False, True])
def test_no_final_answer(models, start, empty, placement):
    """A backend that ends its execution ends the answers: a client that waits for the final one gets it."""
    repo.add(models, "f", backend="fault", extra=DECOUPLED, parameters=placement)
    with Stream(start(models).url("grpc")) as s:
        s.send(grpcraw.int32("f", [7], id="x", parameters={
            "responses": 2, "no_final": True, **({"triton_enable_empty_final_response": True} if empty else {})}))
        answers = s.end()
    assert [flag(a) for a in answers] == [False, False] + [True] * empty
    assert all(values(a) == [7] for a in answers[:2]) and all(a.infer_response.id == "x" for a in answers)
    assert not [a for a in answers[2:] if a.infer_response.outputs]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failure_is_final(models, start, when, placement):
    """No answer follows it, and none comes after the final answer."""
    repo.add(models, "f", backend="fault", extra=DECOUPLED, parameters=placement)
    with Stream(start(models).url("grpc")) as s:
        s.send(grpcraw.int32("f", [7], parameters={
            "responses": 2, "fail_request": 0, "fail_status": "NOT_FOUND", "fail_message": "lost", "fail_last": when == "after"}))
        answers = s.end()
    assert [(a.error_message, a.infer_response.parameters["triton_final_response"].bool_param) for a in answers] == (
        [("lost", True)] if when == "before" else [("", False), ("", True)])


def test_many_requests_on_one_stream(stream):
    """Answers of ordinary models keep their order among themselves; those of decoupled ones come beside them."""
    wanted = {}
    for i in range(40):
        model, repeat = (("many", "one", "batched")[i % 3], 1 + i % 5)
        numbers = [[i, i + 1]] if model == "batched" else [i, i + 1]
        if model == "batched":
            stream.send(grpcraw.request(model, [("INPUT0", "INT32", [1, 2], {"int_contents": numbers[0]})], id=str(i),
                                        parameters={"repeat": repeat}))
        else:
            stream.send(ask(model, numbers, repeat=repeat, id=str(i)))
        wanted[str(i)] = 1 if model == "one" else repeat
    answers = stream.end()
    assert not [a.error_message for a in answers if a.error_message]
    got = {i: [a for a in answers if a.infer_response.id == i] for i in wanted}
    assert {i: len(g) for i, g in got.items()} == wanted
    for i, g in got.items():
        assert all(values(a) == [int(i), int(i) + 1] for a in g)
        assert [flag(a) for a in g] == [False] * (len(g) - 1) + [True]
    ordinary = [int(a.infer_response.id) for a in answers if a.infer_response.model_name == "one"]
    assert ordinary == sorted(ordinary)


def test_a_request_ends_before_others_of_its_batch(served, stream):
    """The client of the second one does not read."""
    stream.send(ask("pair", shape=[1, 3], repeat=100))
    wait.equal(lambda: value(served, "nv_inference_pending_request_count", model="pair"), 1, "requests that wait")
    with Http2(served.grpc, settings={4: 0}, auto=False) as wire:
        unread = wire.headers("POST", grpc_path("ModelStreamInfer"), GRPC_HEADERS, end=False)
        wire.send(unread, grpc_frame(ask("pair", shape=[1, 3], repeat=1_000_000_000)), end=False)
        assert [flag(a) for a in stream.end()] == [False] * 99 + [True]


def test_one_request_fails(stream):
    stream.send(ask(repeat=-1, id="bad"), ask(repeat=2, id="good"))
    answers = stream.end()
    bad = [a for a in answers if a.error_message]
    assert len(bad) == 1 and "repeat" in bad[0].error_message and bad[0].infer_response.id == "bad"
    assert bad[0].infer_response.model_name == "many" and bad[0].infer_response.parameters["triton_final_response"].bool_param
    assert len([a for a in answers if a.infer_response.id == "good"]) == 2


def test_failure_ends_the_stream_when_asked(served):
    with Stream(served.url("grpc"), metadata=[("triton_grpc_error", "true")]) as s:
        s.send(ask(repeat=1_000_000_000, id="endless"), ask("one", id="x"), ask("none", id="missing"))
        with pytest.raises(grpc.RpcError) as e:
            for _ in s.answers:
                pass
        assert e.value.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE)
    with Stream(served.url("grpc")) as s:  # the endless one has ended
        s.send(ask(repeat=1))
        assert len(s.end()) == 1


def test_other_ways_are_refused(served):
    with grpcraw.Grpc(served.url("grpc")) as g, pytest.raises(grpc.RpcError) as e:
        g.infer(ask())
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert e.value.details() == "ModelInfer RPC doesn't support models with decoupled transaction policy"
    with Rest(served.http) as rest:
        r = rest.infer("many", [("INPUT0", "INT32", [1], [1])])
        assert r.status == 501
        assert r.json()["error"] == "HTTP end point doesn't support models with decoupled transaction policy"


def test_a_backend_of_one_answer(models, start):
    """ONNX Runtime gives one to each request, and that is the final one."""
    repo.stock(models, "simple")
    config = models / "simple" / "config.pbtxt"
    config.write_text((config.read_text() if config.exists() else "") + DECOUPLED + "\n")
    server = start(models)
    request = grpcraw.request("simple", [(f"INPUT{i}", "INT32", [1, 16], {"int_contents": list(range(16))}) for i in (0, 1)])
    with Stream(server.url("grpc")) as s:
        s.send(request, request)
        answers = s.end()
    assert [flag(a) for a in answers] == [True, True]
    assert [values(a) for a in answers] == [[2 * i for i in range(16)]] * 2
    with grpcraw.Grpc(server.url("grpc")) as g, pytest.raises(grpc.RpcError) as e:
        g.infer(request)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_cancel(served):
    """The model has one instance: it answers others once the stream of the endless request has ended."""
    with Stream(served.url("grpc")) as s:
        s.send(ask(repeat=1_000_000_000))
        s.take(100)
    with Stream(served.url("grpc")) as s:
        s.send(ask(repeat=2))
        assert len(s.end()) == 2


@pytest.mark.release
def test_a_client_that_does_not_read(models, start, tmp_path, placement):
    repo.add(models, "many", extra=DECOUPLED, parameters=placement)
    repo.add(models, "one")
    faults = Faults(tmp_path)
    server = start(models, "--write-timeout=3600s", "--idle-timeout=10000s", f"--memory-budget={64 * MIB}", "--loop-threads=1",
                   program=PROGRAM, env=faults.env)
    before = resident(server)
    with Http2(server.grpc, settings={4: 0}, auto=False) as wire:
        stream = wire.headers("POST", grpc_path("ModelStreamInfer"), GRPC_HEADERS, end=False)
        wire.send(stream, grpc_frame(ask(numbers=range(10_000), repeat=1_000_000_000)), end=False)
        with Rest(server.http) as rest:
            for _ in range(200):
                assert rest.infer("one", [("INPUT0", "INT32", [1], [1])]).status == 200
        if wait.SLOW == 1:
            assert resident(server) - before < 40 * MIB
        wire.sock.settimeout(0.05)

        def ended():
            faults.later(server, 3601)
            with contextlib.suppress(TimeoutError):
                wire.read()
            return wire.ended or wire.reset_of(stream) is not None

        wait.until(ended, "an end of the stream")
    with Stream(server.url("grpc")) as s:
        s.send(ask(repeat=2))
        assert len(s.end()) == 2


def test_a_server_that_exits(served):
    with Stream(served.url("grpc")) as s:
        s.send(ask(repeat=3, repeat_delay_ms=100))
        first = s.take(1)
        served.signal()
        assert len(first + s.take(2)) == 3
        assert served.wait_exit() == 0


def test_answers_leave_while_many_requests_wait(models, start, hold):
    """What a stream's requests take is a reason to take no more, not to hold back the answers that end them."""
    repo.add(models, "m", backend="fault", extra=DECOUPLED + " instance_group [ { count: 1 kind: KIND_CPU } ]")
    server = start(models, "--max-output-backlog=64KiB")
    with Stream(server.url("grpc")) as s:
        s.send(grpcraw.int32("m", [0], parameters={**hold.parameters, "responses": 1}), *(grpcraw.int32("m", [i], parameters={"responses": 1}) for i in range(1, 40)))
        wait.until(lambda: value(server, "nv_inference_pending_request_count", model="m") >= 5, "64 KiB of requests")
        hold.end()
        assert [values(a) for a in s.take(40)] == [[i] for i in range(40)]


def test_a_stream_that_fails_does_not_run_what_waits(models, start, hold, tmp_path):
    """With triton_grpc_error. What runs is waited for."""
    repo.add(models, "m", backend="fault", extra="instance_group [ { count: 1 kind: KIND_CPU } ]")
    server = start(models)
    (tmp_path / "second").mkdir()
    second = Hold(tmp_path / "second")  # in case that it is taken before the failure is known
    pending = lambda: value(server, "nv_inference_pending_request_count", model="m")
    with Stream(server.url("grpc"), metadata=[("triton_grpc_error", "true")], timeout=2 * wait.PATIENCE) as s:
        s.send(grpcraw.int32("m", [0], parameters={"fail_status": "INTERNAL", **hold.parameters}),
               grpcraw.int32("m", [1], parameters=second.parameters), *(grpcraw.int32("m", [i]) for i in range(2, 10)))
        hold.wait_held()
        wait.equal(pending, 9, "requests that wait")
        hold.end()
        wait.equal(pending, 0, "requests that wait")
        second.end()
        with pytest.raises(grpc.RpcError) as e:
            next(s.answers)
        assert e.value.code() == grpc.StatusCode.INTERNAL
    assert value(server, "nv_inference_exec_count", model="m") <= 1

"""Several answers to a request from a worker process that dies in the middle. Files and events hold the order: no verdict
depends on timing."""
import os
import signal

import pytest

from lib import grpcraw, wait
from lib.hold import Hold
from lib.metrics import value
from lib.stream import DECOUPLED, Stream, flag, values
from lib.workers import RESTARTS, add_fault, pids


@pytest.fixture
def start(start, tmp_path):
    """Held executions wait for files of the test."""
    return lambda *args, **kw: start(*args, f"--worker-directory={tmp_path}", "--worker-hang-timeout=600s", **kw)


def ask(number, responses, **parameters):
    return grpcraw.int32("m", [number], id=str(number), parameters={"responses": responses, **parameters})


def kill(server, by=signal.SIGKILL):
    pid, = pids(server, "m")
    os.kill(pid, by)


def test_before_the_first_answer(models, start, hold):
    """Another worker gives all of them."""
    add_fault(models, extra=DECOUPLED, max_batch_size=0)
    server = start(models)
    with Stream(server.url("grpc")) as s:
        s.send(ask(7, 3, **hold.parameters))
        hold.wait_held()
        hold.path.with_suffix(".held").unlink()
        kill(server)
        hold.wait_held()
        hold.end()
        answers = s.end()
    assert [(values(a), flag(a)) for a in answers] == [([7], False), ([7], False), ([7], True)]
    assert value(server, "millrace_worker_requeued_total", model="m") == 1


def test_after_an_answer(models, start, hold):
    """It is not run again: the client would have answers twice."""
    add_fault(models, extra=DECOUPLED, max_batch_size=0)
    server = start(models)
    with Stream(server.url("grpc")) as s:
        s.send(ask(7, 3, hold_after=1, **hold.parameters))
        first, = s.take(1)
        assert values(first) == [7] and not flag(first)
        hold.wait_held()
        kill(server)
        end, = s.take(1)
        assert end.infer_response.id == "7" and "worker process ended while it was answering" in end.error_message
        s.send(ask(8, 2))
        assert [values(a) for a in s.end()] == [[8], [8]]
    assert value(server, "millrace_worker_requeued_total", model="m") == 0
    assert value(server, RESTARTS, model="m", reason="crash") == 1


def test_a_crash_after_an_answer_each_time(models, start, hold):
    """A process has answered when the answer was one of several: the next one starts at once, however often that happens."""
    add_fault(models, extra=DECOUPLED, max_batch_size=0)
    server = start(models)
    with Stream(server.url("grpc")) as s:
        for number in range(8):
            s.send(ask(number, 3, hold_after=1, **hold.parameters))
            first, = s.take(1)
            assert values(first) == [number], first
            hold.wait_held()
            hold.path.with_suffix(".held").unlink()
            kill(server, signal.SIGABRT)
            assert "worker process ended while it was answering" in s.take(1)[0].error_message
        s.end()


def test_after_the_last_answer(models, start, hold):
    """Nothing was missing."""
    add_fault(models, extra=DECOUPLED, max_batch_size=0)
    server = start(models)
    with Stream(server.url("grpc")) as s:
        s.send(ask(7, 2, hold_after=2, **hold.parameters))
        answers = s.take(2)
        hold.wait_held()
        kill(server)
        hold.end()
        s.send(ask(8, 1))
        answers += s.end()
    assert [(a.infer_response.id, flag(a), a.error_message) for a in answers] == [("7", False, ""), ("7", True, ""), ("8", True, "")]


def test_one_of_a_batch_had_an_answer(models, start, tmp_path, hold):
    """All of the batch have an error: nothing of it is run again."""
    add_fault(models, extra=DECOUPLED + " dynamic_batching { }")
    server = start(models)
    (tmp_path / "second").mkdir()
    second = Hold(tmp_path / "second")

    def row(number, **parameters):
        return grpcraw.request("m", [("INPUT0", "INT32", [1, 1], {"int_contents": [number]})], id=str(number),
                               parameters={"responses": 2, **parameters})

    with Stream(server.url("grpc")) as s:
        s.send(row(1, **hold.parameters))
        hold.wait_held()
        s.send(row(2, hold_after=1, **second.parameters), row(3))
        wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), 2)
        hold.end()
        assert [values(a) for a in s.take(3)] == [[1], [1], [2]]
        second.wait_held()
        kill(server)
        ends = s.take(2)
        assert sorted(a.infer_response.id for a in ends) == ["2", "3"]
        assert all("worker process ended while it was answering" in a.error_message for a in ends)
        second.end()
        s.send(row(4))
        assert [values(a) for a in s.end()] == [[4], [4]]


def test_an_answer_behind_the_final_one(models, start):
    """It is refused, and its client does not see it."""
    add_fault(models, extra=DECOUPLED, max_batch_size=0)
    server = start(models)
    with Stream(server.url("grpc")) as s:
        s.send(ask(7, 1, after_final=True), ask(8, 1))
        answers = s.end()
    assert [(a.infer_response.id, flag(a), a.error_message) for a in answers] == [("7", True, ""), ("8", True, "")]

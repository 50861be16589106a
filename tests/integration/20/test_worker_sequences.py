"""Sequences in worker processes: the process of an instance keeps their state, and loses it when it dies.
Files and events hold the order: no verdict depends on timing."""
import os
import signal

import grpc
import pytest

from lib import grpcraw, repo, wait
from lib.metrics import value
from lib.workers import PROCESS, RESTARTS, group, pids

HOUR = "max_sequence_idle_microseconds: 3600000000"


@pytest.fixture
def start(start, tmp_path):
    """Held executions wait for files of the test."""
    return lambda *args, **kw: start(*args, f"--worker-directory={tmp_path}", "--worker-hang-timeout=600s", **kw)


@pytest.fixture
def client_of():
    made = []

    def make(server):
        made.append(grpcraw.Grpc(server.url("grpc")))
        return made[-1]

    yield make
    [m.close() for m in made]


def add(models, strategy="oldest { }", more="", count=1, max_batch_size=4, **parameters):
    repo.add(models, "m", backend="fault", max_batch_size=max_batch_size, inputs=[repo.tensor("INPUT0", dims=(1,))],
             outputs=[repo.tensor("OUTPUT0", dims=(1,))], parameters={**PROCESS, **parameters},
             extra=f"sequence_batching {{ {strategy} {HOUR} {more} }} " + group(count))


def ask(number, id, *marks, **parameters):
    return grpcraw.request("m", [("INPUT0", "INT32", [1, 1], {"int_contents": [number]})],
                           parameters={"sequence_id": id, **{f"sequence_{m}": True for m in marks}, **parameters})


def asked(client, *args, **kw):
    return client.stub.ModelInfer.future(ask(*args, **kw), timeout=wait.PATIENCE)


def number(answer):
    only, = memoryview(answer.raw_output_contents[0]).cast("i").tolist()
    return only


def refused(future):
    with pytest.raises(grpc.RpcError) as e:
        future.result()
    return e.value.code(), e.value.details()


def kill(server, pid):
    os.kill(pid, signal.SIGKILL)
    wait.until(lambda: pid not in pids(server, "m") and len(pids(server, "m")) > 0, "another worker")


LOST = "that kept the state of the sequence ended; start the sequence again"


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 8 }"])
def test_each_sequence_has_its_process(models, start, client_of, strategy):
    add(models, strategy, count=3, sums="true")
    client = client_of(start(models))
    for n in range(1, 4):
        futures = [asked(client, k, k, *(["start"] if n == 1 else [])) for k in range(1, 9)]
        assert [number(f.result()) for f in futures] == [n * k for k in range(1, 9)]


def test_killed_between_two_requests(models, start, client_of):
    """The sequence has to be started again; it is not answered from a lost state."""
    add(models, sums="true")
    server = start(models)
    client = client_of(server)
    assert number(client.infer(ask(5, 1, "start"))) == 5
    assert number(client.infer(ask(6, 1))) == 11
    pid, = pids(server, "m")
    kill(server, pid)
    code, text = refused(asked(client, 7, 1))
    assert code == grpc.StatusCode.UNAVAILABLE and LOST in text
    code, text = refused(asked(client, 7, 1))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "must specify the START flag" in text
    assert number(client.infer(ask(1, 1, "start"))) == 1
    assert number(client.infer(ask(2, 1, "end"))) == 3


@pytest.mark.parametrize("order", ["waits", "comes later"])
def test_place_of_a_lost_sequence(models, start, client_of, order):
    """The process dies while the only place is of a sequence whose client is silent: another sequence gets it."""
    add(models, "oldest { max_candidate_sequences: 1 }", max_batch_size=1, sums="true")
    server = start(models)
    client = client_of(server)
    assert number(client.infer(ask(5, 1, "start"))) == 5
    pid, = pids(server, "m")
    other = asked(client, 7, 2, "start") if order == "waits" else None
    wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), 1 if other else 0)
    kill(server, pid)
    assert number((other or asked(client, 7, 2, "start")).result()) == 7


def test_others_go_on(models, start, client_of):
    add(models, "oldest { max_candidate_sequences: 4 }", count=2, sums="true")
    server = start(models)
    client = client_of(server)
    for k in range(1, 5):
        assert number(client.infer(ask(k, k, "start"))) == k
    first, second = pids(server, "m")
    os.kill(first, signal.SIGKILL)
    wait.until(lambda: len(pids(server, "m")) == 2 and first not in pids(server, "m"), "another worker")
    ends = [asked(client, 10, k) for k in range(1, 5)]
    lost = [k for k, f in enumerate(ends, 1) if f.exception() is not None]
    # the first request of any of them ends all that the process had
    texts = [refused(ends[k - 1])[1] for k in lost]
    assert len(lost) == 2 and all(LOST in t or "must specify the START flag" in t for t in texts)
    assert [number(f.result()) for k, f in enumerate(ends, 1) if k not in lost] == [10 + k for k in range(1, 5) if k not in lost]
    for k in lost:
        assert number(client.infer(ask(1, k, "start"))) == 1


def test_killed_while_it_runs_one(models, start, client_of, hold):
    """What it ran fails once, what waits of the sequence fails with it, and a start that waits is answered."""
    add(models, sums="true")
    server = start(models)
    client = client_of(server)
    assert number(client.infer(ask(5, 1, "start"))) == 5
    running = asked(client, 6, 1, **hold.parameters)
    hold.wait_held()
    waiting, other = asked(client, 7, 1), asked(client, 8, 2, "start", "end")
    wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), 2)
    pid, = pids(server, "m")
    os.kill(pid, signal.SIGKILL)
    code, text = refused(running)
    assert code == grpc.StatusCode.INTERNAL and LOST in text
    code, text = refused(waiting)
    assert code == grpc.StatusCode.UNAVAILABLE and LOST in text
    assert number(other.result()) == 8
    assert value(server, "millrace_worker_requeued_total", model="m") == 0
    assert value(server, RESTARTS, model="m", reason="crash") == 1


def test_a_batch_that_takes_too_much_memory(models, start, client_of):
    """Its requests fail, and the batches after it are smaller."""
    add(models, "oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 600000000 }", exit="71", exit_rows="2")
    server = start(models)
    client = client_of(server)
    for future in [asked(client, k, k, "start") for k in range(1, 5)]:
        code, text = refused(future)
        assert code == grpc.StatusCode.INTERNAL and LOST in text
    futures = [asked(client, k, k, "start", "end") for k in range(1, 5)]
    assert [number(f.result()) for f in futures] == [1, 2, 3, 4]
    assert value(server, RESTARTS, model="m") == value(server, RESTARTS, model="m", reason="sick") == 1


def test_implicit_state_outlives_the_process(models, start, client_of, hold):
    """The server has it: another process runs the request again."""
    repo.add(models, "m", backend="fault", max_batch_size=4, inputs=[repo.tensor("INPUT0", dims=(1,))],
             outputs=[repo.tensor("OUTPUT0", dims=(1,)), repo.tensor("OUTPUT_S", dims=(1,))], parameters=PROCESS,
             extra=f'sequence_batching {{ {HOUR} state {{ input_name: "INPUT_S" output_name: "OUTPUT_S" data_type: TYPE_INT32 '
                   'dims: [ 1 ] initial_state { name: "i" data_type: TYPE_INT32 dims: [ 1 ] data_file: "begin" } } }',
             files={"initial_state/begin": (42).to_bytes(4, "little")})
    server = start(models)
    client = client_of(server)

    def both(answer):
        outputs = dict(zip([o.name for o in answer.outputs], answer.raw_output_contents))
        return [memoryview(outputs[n]).cast("i")[0] for n in ("OUTPUT0", "OUTPUT_S")]

    assert both(client.infer(ask(5, 1, "start"))) == [5, 42]
    running = asked(client, 6, 1, **hold.parameters)
    hold.wait_held()
    hold.path.with_suffix(".held").unlink()
    pid, = pids(server, "m")
    kill(server, pid)
    hold.wait_held()
    hold.end()
    assert both(running.result()) == [6, 42]
    pid, = pids(server, "m")
    kill(server, pid)
    assert both(client.infer(ask(7, 1, "end"))) == [7, 42]
    assert value(server, "millrace_worker_requeued_total", model="m") == 1

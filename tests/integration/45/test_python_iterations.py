"""Requests that a model in Python gives back to get them again, with those that have come in between."""
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2 as pb

from lib import grpcraw, pymodels, repo, wait
from lib.stream import DECOUPLED, Stream
from lib.workers import pids

MODELS = Path(__file__).parent / "models"
ITERATIVE = "sequence_batching { iterative_sequence: true }"


@pytest.fixture
def serve(models, start):
    def make(extra="", max_batch_size=4):
        pymodels.add(models, "m", MODELS / "again.py", extra=ITERATIVE + extra, max_batch_size=max_batch_size,
                     inputs=[repo.tensor("INPUT0", dims=(1,))], outputs=[repo.tensor("OUTPUT0", dims=(4,))])
        return start(models, *pymodels.options())
    return make


def request(times, id="", **kw):
    return grpcraw.int32("m", [times], shape=[1, 1], id=id, **kw)


def said(response):
    return memoryview(response.raw_output_contents[0]).cast("i").tolist()


def asked(client, *args, **kw):
    return client.stub.ModelInfer.future(request(*args, **kw), timeout=wait.PATIENCE)


def test_times(serve):
    """Each request as often as it wants; the first time has the flag of a start."""
    server = serve()
    first = pids(server, "m")
    with grpcraw.Grpc(server.url("grpc")) as client:
        assert said(client.infer(request(1))) == [1, 1, 1, 1]
        assert said(client.infer(request(5))) == [5, 1, 1, 0]
        futures = [asked(client, n) for n in range(1, 40)]
        assert [said(f.result())[0] for f in futures] == list(range(1, 40))
        assert said(client.infer(request(3, parameters={"sequence_id": 7, "sequence_start": True})))[0] == 3
    assert pids(server, "m") == first


def test_with_new_ones(serve):
    """Executions have requests that came back and new ones, as many as a batch may have."""
    server = serve()
    with grpcraw.Grpc(server.url("grpc")) as client:
        futures = [asked(client, -4)]
        for together in (2, 3):
            wait.until(lambda: said(client.infer(request(2)))[1] == together, "the earlier ones to be executed with a new one")
            futures.append(asked(client, -4))
        wait.until(lambda: said(client.infer(request(2)))[1] == 4, "a whole batch")
        assert [said(f.result())[1] for f in futures] == [4] * 3


def test_without_batches(serve):
    server = serve(max_batch_size=1)
    with grpcraw.Grpc(server.url("grpc")) as client:
        answers = [said(f.result()) for f in [asked(client, n) for n in range(1, 20)]]
    assert [a[:2] for a in answers] == [[n, 1] for n in range(1, 20)]


def test_decoupled(serve):
    """An answer each time, of several requests at once."""
    server = serve(DECOUPLED)
    with Stream(server.url("grpc")) as stream:
        stream.send(*(request(n, f"r{n}") for n in (7, 1, 3, 20)))
        found = {}
        for answer in stream.take(31):
            found.setdefault(answer.infer_response.id, []).append(said(answer.infer_response)[0])
    assert found == {f"r{n}": list(range(1, n + 1)) for n in (7, 1, 3, 20)}


def error(future):
    with pytest.raises(Exception) as e:
        future.result()
    return e.value.details()


def test_failures(serve):
    """An exception is the error of the requests of its execution; the process goes on."""
    server = serve()
    first = pids(server, "m")
    with grpcraw.Grpc(server.url("grpc")) as client:
        assert "ValueError: zero times" in error(asked(client, 0))
        assert "a request that is to be scheduled again has no final response" in error(asked(client, 99))
        assert said(client.infer(request(2)))[0] == 2
    assert pids(server, "m") == first


def test_cancelled(serve):
    """A request whose client has gone does not come back for ever."""
    server = serve()
    with grpcraw.Grpc(server.url("grpc")) as client:
        endless = asked(client, -100)
        wait.until(lambda: said(client.infer(request(2)))[1] == 2, "the request to be there")
        endless.cancel()
        wait.until(lambda: said(client.infer(request(2)))[1] == 1, "the request to be gone")


@pytest.mark.parametrize("config, text", [
    ("iterative_sequence: true direct { }", "with a strategy, direct or oldest"),
    ('iterative_sequence: true control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }',
     "with control_input"),
    ('iterative_sequence: true state { input_name: "s" output_name: "s" data_type: TYPE_INT32 dims: [ 1 ] }', "with state")])
def test_what_is_not_there(models, start, config, text):
    pymodels.add(models, "m", MODELS / "again.py", extra=f"sequence_batching {{ {config} }}", max_batch_size=4,
                 inputs=[repo.tensor("INPUT0", dims=(1,))], outputs=[repo.tensor("OUTPUT0", dims=(4,))])
    server = start(models, *pymodels.options(), "--exit-on-error=false")
    with grpcraw.Grpc(server.url("grpc")) as client:
        row, = client.stub.RepositoryIndex(pb.RepositoryIndexRequest()).models
    assert "asks for iterative sequences" in row.reason and text in row.reason

"""Models in Python that keep something of a sequence: its requests reach one process, with its id, flags and control inputs."""
import json
import os
import queue
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import pymodels, repo, wait
from lib.rest import Rest
from lib.workers import group, pids

MODELS = Path(__file__).parent / "models"
HOUR = "max_sequence_idle_microseconds: 3600000000"
STRATEGIES = ["direct { }", "oldest { max_candidate_sequences: 8 }"]
WAYS = ["http", "grpc", "stream"]


def control(name, kind, values):
    return f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{kind} {values} }} }}\n'


def controls(corrid):
    return "".join(control(k, k, "int32_false_true: [ 0, 1 ]") for k in ("START", "END", "READY")) + control("ID", "CORRID", f"data_type: {corrid}")


@pytest.fixture
def serve(models, start):
    def make(strategy="oldest { }", more="", count=1):
        pymodels.add(models, "m", MODELS / "tally.py", max_batch_size=4, inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,))],
                     outputs=[repo.tensor("OUTPUT0", "TYPE_INT64", (2,)), repo.tensor("OUTPUT1", "TYPE_STRING", (1,))],
                     extra=f"sequence_batching {{ {strategy} {HOUR}\n{more} }} " + group(count))
        return start(models, *pymodels.options())
    return make


class Client:
    """Requests of sequences by one of the ways."""

    def __init__(self, way, server):
        self.way, self.kit = way, tritonclient.http if way == "http" else tritonclient.grpc
        self.client = self.kit.InferenceServerClient(server.url("http" if way == "http" else "grpc"))
        self.answers = queue.Queue()
        if way == "stream":
            self.client.start_stream(lambda result, error: self.answers.put(error or result))

    def ask(self, number, id, start=False, end=False, **options):
        """(the sum, the process, what the request says)"""
        x = self.kit.InferInput("INPUT0", [1, 1], "INT32")
        x.set_data_from_numpy(np.array([[number]], np.int32))
        marks = {"sequence_id": id, "sequence_start": start, "sequence_end": end}
        if self.way == "stream":
            self.client.async_stream_infer("m", [x], **marks)
            answer = self.answers.get(timeout=wait.PATIENCE)
        else:
            answer = self.client.infer("m", [x], **marks, **options)
        if isinstance(answer, Exception):
            raise answer
        total, pid = answer.as_numpy("OUTPUT0").ravel().tolist()
        return total, pid, json.loads(answer.as_numpy("OUTPUT1").ravel()[0])


@pytest.fixture
def client_of():
    made = []

    def make(*args):
        made.append(Client(*args))
        return made[-1]

    yield make
    [m.client.close() for m in made]


def said(id, flags, **more):
    return {**more, "id": id, "flags": flags}


def given(id, flags):
    """The same by control inputs as well."""
    return said(id, flags, START=flags & 1, END=flags >> 1, READY=1, ID=id)


@pytest.mark.few
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["direct", "oldest"])
def test_control_inputs(serve, client_of, strategy):
    """Sequences that take turns, of two processes, by each way."""
    server = serve(strategy, controls("TYPE_UINT64"), count=2)
    workers = set(pids(server, "m"))
    for client in (client_of(way, server) for way in WAYS):
        first = {id: client.ask(id, id, start=True) for id in range(1, 5)}
        assert {id: (a[0], a[2]) for id, a in first.items()} == {id: (id, given(id, 1)) for id in first}
        assert {a[1] for a in first.values()} <= workers
        for n, flags in ((2, 0), (3, 0), (4, 2)):
            for id, (_, pid, _) in first.items():
                assert client.ask(id, id, end=flags == 2) == (n * id, pid, given(id, flags))
        assert client.ask(7, 1, start=True, end=True)[::2] == (7, given(1, 3))


@pytest.mark.parametrize("corrid", ["TYPE_STRING", None], ids=["control", "request"])
def test_ids_that_are_texts(serve, client_of, corrid):
    server = serve("direct { }", controls(corrid) if corrid else "")
    expected = given if corrid else said
    for way in WAYS:
        client = client_of(way, server)
        for n, flags in ((1, 1), (2, 0), (3, 2)):
            assert client.ask(5, "a text", start=flags == 1, end=flags == 2)[::2] == (5 * n, expected("a text", flags))


def test_a_sequence_that_was_not_started(serve, client_of):
    """The scheduler's error, which the model does not see."""
    server = serve()
    first = pids(server, "m")
    for way in WAYS:
        client = client_of(way, server)
        assert client.ask(1, 9, start=True)[0] == 1 and client.ask(1, 9, end=True)[0] == 2
        with pytest.raises(InferenceServerException, match="START"):
            client.ask(1, 9)
    assert pids(server, "m") == first


def test_a_request_that_its_process_does_not_take(serve, client_of):
    """It leaves a hole in its sequence, which ends."""
    server = serve()
    client, [pid] = client_of("grpc", server), pids(server, "m")

    def failed():
        return int(client.client.get_inference_statistics("m").model_stats[0].inference_stats.fail.count)
    assert client.ask(1, 9, start=True)[0] == 1
    os.kill(pid, signal.SIGSTOP)
    wait.stopped(pid)
    with pytest.raises(InferenceServerException):
        client.ask(1, 9, client_timeout=0.2)
    wait.equal(failed, 1, "failed requests")
    os.kill(pid, signal.SIGCONT)
    with pytest.raises(InferenceServerException, match="START"):
        client.ask(1, 9)
    assert client.ask(1, 9, start=True)[0] == 1


@pytest.mark.few
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["direct", "oldest"])
@pytest.mark.parametrize("output, executions", [("OUTPUT0", 4), ("OUTPUT1", 1)])
def test_answers_of_different_lengths(models, start, strategy, output, executions):
    """Requests run one by one where the configuration leaves the length of an output open; a batch cannot run again."""
    outputs = {"OUTPUT0": repo.tensor("OUTPUT0", "TYPE_INT32", (-1,)), "OUTPUT1": repo.tensor("OUTPUT1", "TYPE_INT32", (1,))}
    pymodels.add(models, "m", MODELS / "histories.py", max_batch_size=4, inputs=[repo.tensor("INPUT0", "TYPE_INT32", (-1,))],
                 outputs=[outputs[output]], extra=f"sequence_batching {{ {strategy} {HOUR} }} " + group(1))
    server = start(models, *pymodels.options(), env={"TRITONSERVER_DELAY_SCHEDULER": "4"})
    client = tritonclient.grpc.InferenceServerClient(server.url("grpc"))
    answers = queue.Queue()

    def send(id, count, **marks):
        x = tritonclient.grpc.InferInput("INPUT0", [1, count], "INT32")
        x.set_data_from_numpy(np.full([1, count], id, np.int32))
        client.async_infer("m", [x], lambda result, error: answers.put((id, error or result.as_numpy(output).ravel().tolist())),
                           sequence_id=id, **marks)

    for count in (1, 2):  # of each sequence, and of all before
        for id in range(1, 5):
            send(id, id, sequence_start=count == 1)
        got = dict(answers.get(timeout=wait.PATIENCE) for _ in range(4))
        assert got == {id: [id] * id * count if output == "OUTPUT0" else [id * count] for id in range(1, 5)}
        if count == 1:
            (stats,) = Rest(server.http).stats("m")
            assert stats["execution_count"] == executions and stats["inference_count"] == 4
    client.close()


def test_a_model_goes_on_with_its_sequence_after_an_update(models, explicit):
    """A sequence of another model, which the update does not end, and which a start does."""
    repo.stock(models, "seq_sum")
    path = models / "seq_sum/config.pbtxt"
    repo.write(path, path.read_text().replace("sequence_batching {", f"sequence_batching {{ {HOUR}"))
    pymodels.add(models, "m", MODELS / "continued.py", max_batch_size=4, inputs=[repo.tensor("INPUT", "TYPE_INT32", (1,))],
                 outputs=[repo.tensor("OUTPUT", "TYPE_INT32", (1,))])
    server, control = explicit(*pymodels.options())
    [control.load(name).ok() for name in ("seq_sum", "m")]
    client = tritonclient.grpc.InferenceServerClient(server.url("grpc"))
    x = tritonclient.grpc.InferInput("INPUT", [1, 1], "INT32")

    def ask(number, id, model="m", **marks):
        x.set_data_from_numpy(np.array([[number]], np.int32))
        return client.infer(model, [x], sequence_id=id, **marks).as_numpy("OUTPUT").item()

    for id in (7, "text"):
        assert ask(10, id, sequence_start=True) == 10
    shutil.copytree(models / "seq_sum/1", models / "seq_sum/2")
    control.load("seq_sum").ok()
    assert [ask(1, 7), ask(1, 7), ask(1, 7, sequence_end=True)] == [11, 12, 13]
    assert ask(1, "text", "seq_sum") == 11
    assert [ask(2, "text", sequence_start=True), ask(2, "text", sequence_end=True)] == [2, 4]
    for model in ("m", "seq_sum"):
        with pytest.raises(InferenceServerException, match="must specify the START flag"):
            ask(3, "text", model)
    versions = lambda: [v["state"] for v in Rest(server.http).get("/v2/models/seq_sum/versions").ok().json()["versions"]]
    wait.equal(lambda: sorted(versions()), ["READY", "UNLOADED"], "the states")
    client.close()


@pytest.mark.few
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["direct", "oldest"])
def test_a_process_that_dies(serve, client_of, strategy):
    """What it kept is lost: its sequences have to be started again, those of the other process go on."""
    server = serve(strategy, count=2)
    client = client_of("grpc", server)
    first = {id: client.ask(id, id, start=True) for id in range(1, 5)}
    dead = first[1][1]
    os.kill(dead, signal.SIGKILL)
    wait.until(lambda: dead not in pids(server, "m") and len(pids(server, "m")) == 2, "another worker")
    for id, (_, pid, _) in first.items():
        if pid != dead:
            assert client.ask(id, id)[:2] == (2 * id, pid)
            continue
        with pytest.raises(InferenceServerException, match="start the sequence again|must specify the START flag"):
            client.ask(id, id)
        assert client.ask(id, id, start=True)[0] == id and client.ask(id, id)[0] == 2 * id

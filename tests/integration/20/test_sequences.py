"""Models with sequence_batching: direct and oldest, control inputs, implicit state, idle time, limits and errors, over REST as
JSON and binary, gRPC and ModelStreamInfer."""
import queue
import shutil

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import grpcraw, repo, wait
from lib.metrics import value
from lib.rest import Rest
from lib.server import Server

HOUR = "max_sequence_idle_microseconds: 3600000000"


def control(name, kind, values):
    return f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{kind} {values} }} }}\n'


INT32 = "int32_false_true: [ 0, 1 ]"


def echo(folder, name, strategy="direct { }", max_batch_size=4, dtype="TYPE_INT32", values=INT32, corrid="TYPE_UINT64", more="", **kw):
    """An identity model whose outputs are its control inputs."""
    kinds = ("START", "END", "READY")
    repo.add(folder, name, max_batch_size=max_batch_size, inputs=[repo.tensor("INPUT_X", dims=(1,))],
             outputs=[repo.tensor("OUTPUT_X", dims=(1,))] + [repo.tensor(f"OUTPUT_{k}", dtype, (1,)) for k in kinds]
             + [repo.tensor("OUTPUT_CORRID", corrid, (1,))],
             extra=f"sequence_batching {{ {strategy} {more}\n" + "".join(control(f"INPUT_{k}", k, values) for k in kinds)
             + control("INPUT_CORRID", "CORRID", f"data_type: {corrid}") + "}", **kw)


class Client:
    """One request of a sequence by one of four ways."""

    def __init__(self, kind, server):
        self.kind, self.server = kind, server
        self.module = tritonclient.http if kind in ("json", "binary") else tritonclient.grpc
        self.client = self.module.InferenceServerClient(server.url("http" if self.module is tritonclient.http else "grpc"))
        self.answers = queue.Queue()
        if kind == "stream":
            self.client.start_stream(lambda result, error: self.answers.put(error or result))

    def close(self):
        self.client.close()

    def infer(self, model, number, id, start=False, end=False, name="INPUT", **kw):
        """The outputs by name, as lists."""
        i = self.module.InferInput(name, [1, 1], "INT32")
        array = np.array([[number]], np.int32)
        kw = dict(sequence_id=id, sequence_start=start, sequence_end=end, **kw)
        if self.module is tritonclient.http:
            i.set_data_from_numpy(array, binary_data=self.kind == "binary")
            outputs = None if self.kind == "binary" else [self.module.InferRequestedOutput(n, binary_data=False)
                                                          for n in self.outputs(model)]
            result = self.client.infer(model, [i], outputs=outputs, **kw)
        else:
            i.set_data_from_numpy(array)
            if self.kind == "stream":
                self.client.async_stream_infer(model, [i], **kw)
                result = self.answers.get(timeout=wait.PATIENCE)
                if isinstance(result, Exception):
                    raise result
            else:
                result = self.client.infer(model, [i], **kw)
        return {n: result.as_numpy(n).ravel().tolist() for n in self.outputs(model)}

    def outputs(self, model):
        return [o["name"] for o in Rest(self.server.http).get(f"/v2/models/{model}").ok().json()["outputs"]]

    def one(self, *args, **kw):
        """The only element of the only output."""
        ((only,),) = self.infer(*args, **kw).values()
        return only


@pytest.fixture(scope="module", params=["thread", "process"])
def served(tmp_path_factory, request):
    """A server of many tests, which end their sequences or use other ids."""
    folder = tmp_path_factory.mktemp("sequences") / "repo"
    folder.mkdir()
    [with_idle(folder, name) for name in ("seq_controls", "seq_sum", "seq_history")]
    echo(folder, "int32", more=HOUR)
    echo(folder, "fp32", dtype="TYPE_FP32", values="fp32_false_true: [ -1.5, 2.5 ]", more=HOUR)
    echo(folder, "bool", dtype="TYPE_BOOL", values="bool_false_true: [ false, true ]", more=HOUR)
    echo(folder, "string", corrid="TYPE_STRING", strategy="oldest { }", more=HOUR)
    echo(folder, "single", max_batch_size=0, corrid="TYPE_INT32", more=HOUR)
    echo(folder, "usual")
    server = Server(folder.parent / "server", [folder], f"--backend-placement=identity={request.param}").wait_ready()
    yield server
    server.stop()


@pytest.fixture(params=["json", "binary", "grpc", "stream"])
def client(request, served):
    c = Client(request.param, served)
    yield c
    c.close()


def test_controls(client):
    for id in (3, 7):
        assert client.one("seq_controls", 1, id, start=True) == 1 + 10 + 1000 * id
    assert client.one("seq_controls", 2, 3) == 2 + 3000
    assert client.one("seq_controls", 3, 7, end=True) == 3 + 100 + 7000
    assert client.one("seq_controls", 4, 3, end=True) == 4 + 100 + 3000
    assert client.one("seq_controls", 5, 9, start=True, end=True) == 5 + 110 + 9000


def test_implicit_state(client):
    for id in (1, 2):
        assert client.one("seq_sum", 10 * id, id, start=True) == 10 * id
    for n in range(1, 6):
        assert client.one("seq_sum", 1, 1) == 10 + n
        assert client.one("seq_sum", 2, 2) == 20 + 2 * n
    assert client.one("seq_sum", 5, 1, end=True) == 20
    assert client.one("seq_sum", 100, 1, start=True, end=True) == 100
    assert client.one("seq_sum", 1, 2, start=True) == 1  # starts again without an end
    assert client.one("seq_sum", 1, 2, end=True) == 2


def test_state_that_grows(client):
    history = lambda *args, **kw: client.infer("seq_history", *args, **kw)["HISTORY_OUT"]
    assert history(5, 1, start=True) == [0, 5]
    assert history(6, 1) == [0, 5, 6]
    assert history(1, 2, start=True) == [0, 1]
    assert history(7, 1, end=True) == [0, 5, 6, 7]
    assert history(2, 2, end=True) == [0, 1, 2]


@pytest.mark.parametrize("model, false, true", [("int32", 0, 1), ("fp32", -1.5, 2.5), ("bool", False, True)])
def test_kinds_of_controls(client, model, false, true):
    def got(*marks):
        o = client.infer(model, 4, 11, name="INPUT_X", **dict.fromkeys(marks, True))
        assert o["OUTPUT_X"] == [4] and o["OUTPUT_CORRID"] == [11] and o["OUTPUT_READY"] == [true]
        return o["OUTPUT_START"] + o["OUTPUT_END"]
    assert got("start") == [true, false]
    assert got() == [false, false]
    assert got("end") == [false, true]
    assert got("start", "end") == [true, true]


@pytest.mark.parametrize("id, text", [("a", b"a"), ("äö" * 32, ("äö" * 32).encode()), (2**63, b"9223372036854775808"), ("7", b"7"), (7, b"7")])
def test_text_ids(client, id, text):
    if client.module is tritonclient.grpc and id == 2**63:
        id = 12  # the client has no field for it
        text = b"12"
    expected = [text.decode() if client.kind == "json" else text]
    assert client.infer("string", 1, id, start=True, name="INPUT_X")["OUTPUT_CORRID"] == expected
    assert client.infer("string", 1, id, end=True, name="INPUT_X")["OUTPUT_CORRID"] == expected


def test_text_and_number_are_two_sequences(client):
    assert client.infer("string", 1, "5", start=True, name="INPUT_X")["OUTPUT_START"] == [1]
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        client.infer("string", 1, 5, name="INPUT_X")
    assert client.infer("string", 1, "5", end=True, name="INPUT_X")["OUTPUT_END"] == [1]


def test_errors(client):
    def refused(model, id, text, name="INPUT", rows=1, **kw):
        with pytest.raises(InferenceServerException) as e:
            client.infer(model, 1, id, name=name, **kw)
        assert e.value.message().removeprefix("[request id: <id_unknown>] ") == text
        assert e.value.status() in ("400", "StatusCode.INVALID_ARGUMENT") or client.kind == "stream"
    start = "inference request for sequence {} to model '{}' must specify the START flag on the first request of the sequence"
    refused("seq_sum", 77, start.format(77, "seq_sum"))
    refused("seq_sum", 77, start.format(77, "seq_sum"), end=True)
    refused("string", "abc", start.format("abc", "string"), name="INPUT_X")
    for id in (0, ""):
        refused("seq_sum", id, "inference request to model 'seq_sum' must specify a non-zero or non-empty correlation ID", start=True)
    refused("seq_controls", "x", "inference request to model 'seq_controls' must specify a correlation ID that is a number, as "
            "the model takes it as one", start=True)
    refused("string", "x" * 129, "sequence_id has 129 bytes, at most 128 are allowed", name="INPUT_X", start=True)
    refused("string", "a\0b", "sequence_id has a byte 0, which a text must not have", name="INPUT_X", start=True)


def test_more_rows_than_one(served):
    client = tritonclient.grpc.InferenceServerClient(served.url("grpc"))
    i = tritonclient.grpc.InferInput("INPUT", [2, 1], "INT32")
    i.set_data_from_numpy(np.array([[1], [2]], np.int32))
    with pytest.raises(InferenceServerException) as e:
        client.infer("seq_sum", [i], sequence_id=1, sequence_start=True)
    assert e.value.message().endswith("inference request to model 'seq_sum' must specify batch-size 1 due to requirements of sequence batcher")


def test_model_without_batching(served):
    client = tritonclient.grpc.InferenceServerClient(served.url("grpc"))
    i = tritonclient.grpc.InferInput("INPUT_X", [1], "INT32")
    i.set_data_from_numpy(np.array([4], np.int32))
    for marks, expected in ((dict(sequence_start=True), [1, 0]), ({}, [0, 0]), (dict(sequence_end=True), [0, 1])):
        r = client.infer("single", [i], sequence_id=5, **marks)
        assert [r.as_numpy(f"OUTPUT_{k}").tolist() for k in ("START", "END")] == [[n] for n in expected]
        assert r.as_numpy("OUTPUT_CORRID").tolist() == [5] and r.as_numpy("OUTPUT_READY").tolist() == [1]


def test_config_and_metadata(served):
    rest = Rest(served.http)
    meta = rest.get("/v2/models/seq_sum").ok().json()
    assert meta["inputs"] == [{"name": "INPUT", "datatype": "INT32", "shape": [-1, 1]}]
    assert meta["outputs"] == [{"name": "OUTPUT", "datatype": "INT32", "shape": [-1, 1]}]
    batching = rest.get("/v2/models/seq_sum/config").ok().json()["sequence_batching"]
    assert batching["max_sequence_idle_microseconds"] == 3600000000
    usual = rest.get("/v2/models/usual/config").ok().json()["sequence_batching"]
    assert usual["max_sequence_idle_microseconds"] == 1000000
    assert batching["oldest"]["max_candidate_sequences"] == 16 and batching["oldest"]["preferred_batch_size"] == [8]
    assert batching["state"][0]["input_name"] == "SUM_IN" and batching["state"][0]["dims"] == [1]
    controls = rest.get("/v2/models/seq_controls/config").ok().json()["sequence_batching"]
    assert "direct" in controls and [c["name"] for c in controls["control_input"]] == ["START", "END", "READY", "CORRID"]
    assert "dynamic_batching" not in rest.get("/v2/models/seq_controls/config").ok().json()


def test_statistics(served):
    def counts():
        stats = Rest(served.http).get("/v2/models/seq_sum/stats").ok().json()["model_stats"][0]
        of = stats["inference_stats"]
        return np.array([stats["inference_count"], stats["execution_count"], of["success"]["count"], of["fail"]["count"]])

    client, before = Client("grpc", served), counts()
    for n in range(3):
        client.infer("seq_sum", 1, 101, start=n == 0, end=n == 2)
    with pytest.raises(InferenceServerException):
        client.infer("seq_sum", 1, 101)
    assert (counts() - before).tolist() == [3, 3, 3, 1]


# ---- what waits, and what runs together ----

def fault(folder, name, strategy="direct { }", max_batch_size=4, count=1, more="", **parameters):
    repo.add(folder, name, backend="fault", max_batch_size=max_batch_size, inputs=[repo.tensor("INPUT0", dims=(1,))],
             outputs=[repo.tensor("OUTPUT0", dims=(1,))], parameters=parameters,
             extra=f"sequence_batching {{ {strategy} {HOUR} {more} }} instance_group {{ count: {count} kind: KIND_CPU }}")


def ask(model, number, id, *marks, shape=(1, 1), **parameters):
    return grpcraw.request(model, [("INPUT0", "INT32", list(shape), {"int_contents": [number]})],
                           parameters={"sequence_id": id, **{f"sequence_{m}": True for m in marks}, **parameters})


def numbers(answer):
    return memoryview(answer.raw_output_contents[0]).cast("i").tolist()


def pending(server, count, model="m"):
    wait.equal(lambda: value(server, "nv_inference_pending_request_count", model=model), count, "the requests that wait")


@pytest.fixture
def grpc_to():
    made = []

    def make(server):
        made.append(grpcraw.Grpc(server.url("grpc")))
        return made[-1]

    yield make
    [m.close() for m in made]


def test_rows_of_direct(models, start, tmp_path, grpc_to):
    """The place of a sequence is its row; rows between are zeros, and what follows the last request is left out."""
    trace = tmp_path / "trace"
    fault(models, "m", trace=trace)
    client = grpc_to(start(models))
    for n in (1, 2, 3):
        assert numbers(client.infer(ask("m", n, f"s{n}", "start"))) == [n]
    assert numbers(client.infer(ask("m", 7, "s3"))) == [7]
    assert numbers(client.infer(ask("m", 8, "s1", "end"))) == [8]
    assert numbers(client.infer(ask("m", 9, "s4", "start"))) == [9]  # the place that is free
    assert numbers(client.infer(ask("m", 6, "s2"))) == [6]
    lines = [line.split() for line in trace.read_text().splitlines()]
    rows = [(int(line[1]), line[2]) for line in lines]
    zeros = "00000000"
    assert [(r, data[: 8 * r]) for r, data in rows] == [
        (1, "01000000"), (2, zeros + "02000000"), (3, zeros * 2 + "03000000"), (3, zeros * 2 + "07000000"), (1, "08000000"),
        (1, "09000000"), (2, zeros + "06000000")]


def test_batch_of_direct(models, start, grpc_to):
    """Requests of all sequences that wait run together, the second ones of each after that."""
    fault(models, "m")
    server = start(models, env={"TRITONSERVER_DELAY_SCHEDULER": "8"})
    client = grpc_to(server)
    futures = [client.stub.ModelInfer.future(ask("m", 10 * k + i, f"s{k}", *(["start"] if i == 0 else ["end"])), timeout=wait.PATIENCE)
               for i in range(2) for k in range(4)]
    assert [numbers(f.result()) for f in futures] == [[10 * k + i] for i in range(2) for k in range(4)]
    (stats,) = Rest(server.http).stats("m")
    assert stats["inference_count"] == 8 and stats["execution_count"] == 2
    assert [b["batch_size"] for b in stats["batch_stats"]] == [4]


def test_batch_of_oldest(models, start, grpc_to):
    """As many as fit, oldest first, also when there are more sequences."""
    fault(models, "m", "oldest { max_candidate_sequences: 6 }")
    server = start(models, env={"TRITONSERVER_DELAY_SCHEDULER": "6"})
    client = grpc_to(server)
    futures = [client.stub.ModelInfer.future(ask("m", k, f"s{k}", "start", "end"), timeout=wait.PATIENCE) for k in range(6)]
    assert [numbers(f.result()) for f in futures] == [[k] for k in range(6)]
    (stats,) = Rest(server.http).stats("m")
    assert sorted((b["batch_size"], b["compute_infer"]["count"]) for b in stats["batch_stats"]) == [(2, 1), (4, 1)]


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 1 }"])
def test_backlog(models, start, grpc_to, strategy):
    """Without a free place a sequence waits, with all its requests, until another ends."""
    fault(models, "m", strategy, max_batch_size=0)
    server = start(models)
    client = grpc_to(server)
    one = lambda *args: ask("m", *args, shape=(1,))
    assert numbers(client.infer(one(1, "a", "start"))) == [1]
    waiting = [client.stub.ModelInfer.future(one(*args), timeout=wait.PATIENCE) for args in ((2, "b", "start"), (3, "b", "end"), (4, "c", "start"))]
    pending(server, 3)
    assert numbers(client.infer(one(5, "a"))) == [5]
    pending(server, 3)
    assert numbers(client.infer(one(6, "a", "end"))) == [6]
    assert [numbers(f.result()) for f in waiting] == [[2], [3], [4]]


def test_timeout_in_the_backlog(models, start, grpc_to):
    """The sequence is given up: its other requests wait in vain, too."""
    fault(models, "m", max_batch_size=0)
    server = start(models)
    client = grpc_to(server)
    client.infer(ask("m", 1, "a", "start", shape=(1,), timeout=1))  # it has a place: no time-out
    first = client.stub.ModelInfer.future(ask("m", 2, "b", "start", shape=(1,)), timeout=wait.PATIENCE)
    pending(server, 1)
    second = client.stub.ModelInfer.future(ask("m", 3, "b", shape=(1,), timeout=1000), timeout=wait.PATIENCE)
    for f in (first, second):
        assert f.code().name == "UNAVAILABLE" and "timeout of the corresponding sequence has been expired" in f.details()


def test_cancelled(models, start, hold, grpc_to):
    """A request that is cancelled while it waits ends its sequence; its waiting requests fail, the running one continues."""
    fault(models, "m", max_batch_size=0)
    server = start(models)
    client = grpc_to(server)
    running = client.stub.ModelInfer.future(ask("m", 1, "a", "start", shape=(1,), **hold.parameters), timeout=wait.PATIENCE)
    hold.wait_held()
    second = client.stub.ModelInfer.future(ask("m", 2, "a", shape=(1,)), timeout=wait.PATIENCE)
    pending(server, 1)
    third = client.stub.ModelInfer.future(ask("m", 3, "a", shape=(1,)), timeout=wait.PATIENCE)
    pending(server, 2)
    second.cancel()
    assert third.code().name == "CANCELLED" and "a request of the same sequence was cancelled" in third.details()
    hold.end()
    assert numbers(running.result()) == [1]
    again = client.stub.ModelInfer.future(ask("m", 4, "a", shape=(1,)), timeout=wait.PATIENCE)
    assert again.code().name == "INVALID_ARGUMENT" and "must specify the START flag" in again.details()
    assert numbers(client.infer(ask("m", 5, "a", "start", shape=(1,)))) == [5]  # its place is free


def test_clients_that_vanish(models, start, grpc_to):
    """The backlog of a client that disconnects is dropped, and its sequences end after their timeout."""
    repo.add(models, "m", inputs=[repo.tensor("INPUT0", dims=(1,))], outputs=[repo.tensor("OUTPUT0", dims=(1,))],
             extra=f"sequence_batching {{ {HOUR} }} instance_group {{ count: 1 kind: KIND_CPU }}")
    server = start(models)
    client = grpc_to(server)
    client.infer(ask("m", 1, "a", "start", shape=(1,)))
    with grpcraw.Grpc(server.url("grpc")) as other:
        futures = [other.stub.ModelInfer.future(ask("m", n, f"b{n}", "start", shape=(1,)), timeout=wait.PATIENCE) for n in range(50)]
        pending(server, 50)
    pending(server, 0)
    assert numbers(client.infer(ask("m", 2, "a", "end", shape=(1,)))) == [2]
    assert numbers(client.infer(ask("m", 3, "b0", "start", "end", shape=(1,)))) == [3]
    del futures


def test_idle(models, start, grpc_to):
    """A sequence without a request for max_sequence_idle_microseconds has ended, and its place is another's."""
    repo.add(models, "m", inputs=[repo.tensor("INPUT0", dims=(1,))], outputs=[repo.tensor("OUTPUT0", dims=(1,))],
             extra="sequence_batching { max_sequence_idle_microseconds: 1 } instance_group { count: 1 kind: KIND_CPU }")
    client = grpc_to(start(models))
    for n in range(3):
        assert numbers(client.infer(ask("m", n, f"s{n}", "start", shape=(1,)))) == [n]
        late = client.stub.ModelInfer.future(ask("m", n, f"s{n}", shape=(1,)), timeout=wait.PATIENCE)
        assert late.code().name == "INVALID_ARGUMENT" and "must specify the START flag" in late.details()


def test_queue_size(models, start, grpc_to):
    fault(models, "m", max_batch_size=0)
    server = start(models, "--max-queue-size=2")
    client = grpc_to(server)
    client.infer(ask("m", 1, "a", "start", shape=(1,)))
    waiting = [client.stub.ModelInfer.future(ask("m", n, f"b{n}", "start", "end", shape=(1,)), timeout=wait.PATIENCE) for n in range(2)]
    pending(server, 2)
    more = client.stub.ModelInfer.future(ask("m", 9, "c", "start", shape=(1,)), timeout=wait.PATIENCE)
    assert more.code().name == "UNAVAILABLE" and "Exceeds maximum queue size (2: --max-queue-size)" in more.details()
    more = client.stub.ModelInfer.future(ask("m", 9, "a", "end", shape=(1,)), timeout=wait.PATIENCE)
    assert more.code().name == "UNAVAILABLE"  # the backlog is bounded for all clients
    waiting[0].cancel()
    pending(server, 1)
    assert numbers(client.infer(ask("m", 2, "a", "end", shape=(1,)))) == [2]
    assert numbers(waiting[1].result()) == [1]


# ---- state ----

def stateful(folder, name, initial, dtype="TYPE_INT32", dims="[ 2 ]", files=None, more=""):
    """An identity model that shows the state that comes in, and whose next state is the same."""
    repo.add(folder, name, max_batch_size=2, inputs=[repo.tensor("INPUT_X", dims=(1,))], files=files,
             outputs=[repo.tensor("OUTPUT_X", dims=(1,)), repo.tensor("OUTPUT_S", dtype, (-1,))],
             extra=f'sequence_batching {{ state {{ input_name: "INPUT_S" output_name: "OUTPUT_S" data_type: {dtype} dims: {dims} '
                   f'{initial} }} {more} }}')


@pytest.mark.parametrize("initial, dtype, dims, file, expected", [
    ("", "TYPE_INT32", "[ 2 ]", None, [0, 0]),
    ("", "TYPE_FP32", "[ -1 ]", None, [0.0]),
    ("", "TYPE_STRING", "[ 3 ]", None, [b"", b"", b""]),
    ("dims: [ 2 ] zero_data: true", "TYPE_INT32", "[ 2 ]", None, [0, 0]),
    ("dims: [ 3 ] zero_data: true", "TYPE_INT32", "[ -1 ]", None, [0, 0, 0]),
    ('dims: [ 2 ] data_file: "begin"', "TYPE_INT32", "[ 2 ]", np.array([5, -6], np.int32).tobytes(), [5, -6]),
    ('dims: [ 2 ] data_file: "begin"', "TYPE_STRING", "[ 2 ]", b"\1\0\0\0a\2\0\0\0bc", [b"a", b"bc"]),
])
def test_initial_state(models, start, initial, dtype, dims, file, expected):
    text = f'initial_state {{ name: "i" data_type: {dtype} {initial} }}' if initial else ""
    stateful(models, "m", text, dtype, dims, {"initial_state/begin": file} if file else None)
    client = Client("grpc", start(models))
    for id in (1, 2, 1):
        assert client.infer("m", 4, id, start=True, name="INPUT_X") == {"OUTPUT_X": [4], "OUTPUT_S": expected}
        assert client.infer("m", 5, id, end=True, name="INPUT_X") == {"OUTPUT_X": [5], "OUTPUT_S": expected}
    client.close()


def test_states_of_a_batch(models, start, grpc_to):
    """Each sequence of a batch has its own state, with direct and with oldest; a history of another length runs apart."""
    names = ("seq_sum", "seq_history")
    [with_idle(models, name) for name in names]
    server = start(models, env={"TRITONSERVER_DELAY_SCHEDULER": "6"})
    client = grpc_to(server)

    def send(model, number, id, *marks):
        r = grpcraw.request(model, [("INPUT", "INT32", [1, 1], {"int_contents": [number]})],
                            parameters={"sequence_id": id, **{f"sequence_{m}": True for m in marks}})
        return client.stub.ModelInfer.future(r, timeout=wait.PATIENCE)

    for model in names:
        futures = [send(model, k + 1, f"s{k}", *(["start"] if n == 0 else [])) for n in range(2) for k in range(3)]
        got = [numbers(f.result()) for f in futures]
        assert got == ([[1], [2], [3], [2], [4], [6]] if model == "seq_sum" else
                       [[0, 1], [0, 2], [0, 3], [0, 1, 1], [0, 2, 2], [0, 3, 3]])
        later = [send(model, 5, "s0"), send(model, 5, "new", "start"), send(model, 5, "s2", "end")]
        assert [numbers(f.result()) for f in later] == ([[7], [5], [11]] if model == "seq_sum" else
                                                        [[0, 1, 1, 5], [0, 5], [0, 3, 3, 5]])


def test_a_request_that_fails_leaves_the_state(models, start, grpc_to):
    repo.add(models, "m", backend="fault", inputs=[repo.tensor("X", dims=(1,)), ], outputs=[repo.tensor("Y", dims=(1,))],
             extra='sequence_batching { state { input_name: "S" output_name: "T" data_type: TYPE_INT32 dims: [ 1 ] } }')
    client = grpc_to(start(models))

    def send(number, *marks, **parameters):
        return grpcraw.request("m", [("X", "INT32", [1], {"int_contents": [number]})],
                               parameters={"sequence_id": 3, **{f"sequence_{m}": True for m in marks}, **parameters})

    assert numbers(client.infer(send(1, "start"))) == [1]
    bad = client.stub.ModelInfer.future(send(2, fail_status="INTERNAL"), timeout=wait.PATIENCE)
    assert bad.code().name == "INTERNAL"
    assert numbers(client.infer(send(3, "end"))) == [3]


def test_a_restart_that_fails_begins_without_state(models, start, grpc_to):
    """Nothing of the previous sequence is left."""
    repo.add(models, "m", backend="fault", inputs=[repo.tensor("X", dims=(1,))], outputs=[repo.tensor(n, dims=(1,)) for n in ("T", "Y")],
             extra=f'sequence_batching {{ {HOUR} state {{ input_name: "S" output_name: "T" data_type: TYPE_INT32 dims: [ 1 ] }} }}')
    client = grpc_to(start(models))

    def send(number, *marks, **parameters):
        """X becomes the state; Y is the one that came in."""
        answer = client.infer(grpcraw.request("m", [("X", "INT32", [1], {"int_contents": [number]})], outputs=["Y"],
                                              parameters={"sequence_id": 1, **{f"sequence_{m}": True for m in marks}, **parameters}))
        return numbers(answer)

    assert [send(10, "start"), send(11)] == [[0], [10]]
    with pytest.raises(grpc.RpcError, match="INTERNAL"):
        send(99, "start", fail_status="INTERNAL")
    assert [send(3), send(4, "end")] == [[0], [3]]


@pytest.mark.parametrize("dims", [(1, 4), (4,), (2, 1, 2)], ids=["same rank", "lower", "higher"])
@pytest.mark.parametrize("state", ["[ 2, 2 ]", "[ -1, -1 ]"])
def test_state_that_is_shown_in_another_shape(models, start, grpc_to, dims, state):
    """`reshape` of an output is for clients: the state keeps the shape that the model gave it."""
    repo.add(models, "m", backend="fault", max_batch_size=4, inputs=[repo.tensor("X", dims=(2, 2))],
             outputs=[repo.tensor("T", dims=dims, extra="reshape { shape: [ 2, 2 ] }"), repo.tensor("Y", dims=(2, 2))],
             extra=f'sequence_batching {{ {HOUR} state {{ input_name: "S" output_name: "T" data_type: TYPE_INT32 dims: {state} '
                   'initial_state { name: "i" data_type: TYPE_INT32 dims: [ 2, 2 ] zero_data: true } } }')
    client = grpc_to(start(models))

    def send(values, *marks):
        answer = client.infer(grpcraw.request("m", [("X", "INT32", [1, 2, 2], {"int_contents": values})],
                                              parameters={"sequence_id": 1, **{f"sequence_{m}": True for m in marks}}))
        return [(o.name, list(o.shape), memoryview(raw).cast("i").tolist()) for o, raw in zip(answer.outputs, answer.raw_output_contents)]

    assert send([1, 2, 3, 4], "start") == [("T", [1, *dims], [1, 2, 3, 4]), ("Y", [1, 2, 2], [0, 0, 0, 0])]
    assert send([5, 6, 7, 8], "end") == [("T", [1, *dims], [5, 6, 7, 8]), ("Y", [1, 2, 2], [1, 2, 3, 4])]


# ---- updates ----

def summed(number, id, *marks, version="", model="seq_sum"):
    return grpcraw.request(model, [("INPUT", "INT32", [1, 1], {"int_contents": [number]})], version=version,
                           parameters={"sequence_id": id, **{f"sequence_{m}": True for m in marks}})


def with_idle(folder, name="seq_sum"):
    """A stock model, whose sequences last for an hour."""
    repo.stock(folder, name)
    path = folder / name / "config.pbtxt"
    repo.write(path, path.read_text().replace("sequence_batching {", f"sequence_batching {{ {HOUR}"))
    return path


def loads(server, model="seq_sum"):
    """The states of all loads of the model's versions, oldest first."""
    document = Rest(server.http).get(f"/v2/models/{model}/versions").ok().json()
    return [v["state"] for v in document["versions"]]


@pytest.mark.parametrize("kind", ["in place", "next version"])
def test_update(models, explicit, grpc_to, kind):
    """Sequences that go on stay with the version that has them until they end; new ones begin in the new one."""
    path = with_idle(models)
    server, control = explicit()
    control.load("seq_sum").ok()
    client = grpc_to(server)
    assert numbers(client.infer(summed(10, 1, "start"))) == [10]
    assert numbers(client.infer(summed(20, 2, "start"))) == [20]
    if kind == "in place":
        repo.write(path, path.read_text().replace("max_candidate_sequences: 16", "max_candidate_sequences: 17"))
    else:
        shutil.copytree(models / "seq_sum/1", models / "seq_sum/2")
    control.load("seq_sum").ok()
    new = "1" if kind == "in place" else "2"
    answer = client.infer(summed(1, 1))
    assert numbers(answer) == [11] and answer.model_version == "1"
    answer = client.infer(summed(5, 3, "start"))
    assert numbers(answer) == [5] and answer.model_version == new
    answer = client.infer(summed(7, 2, "start"))  # starts again, in the new version
    assert numbers(answer) == [7] and answer.model_version == new
    assert numbers(client.infer(summed(1, 2))) == [8]
    if kind == "next version":  # who names a version gets that
        with pytest.raises(grpc.RpcError, match="must specify the START flag"):
            client.infer(summed(1, 1, version="2"))
        with pytest.raises(grpc.RpcError, match="version 1 is not at ready state"):  # no more
            client.infer(summed(1, 1, version="1"))
    assert sorted(loads(server)) == ["DRAINING", "READY"]
    assert numbers(client.infer(summed(1, 1, "end"))) == [12]
    with pytest.raises(grpc.RpcError, match="must specify the START flag"):
        client.infer(summed(1, 1))
    assert numbers(client.infer(summed(1, 3, "end"))) == [6]
    wait.equal(lambda: sorted(loads(server)), ["READY", "UNLOADED"], "the states")  # the old version's other sequence began again in the new one


def test_a_version_beside_another(models, explicit, grpc_to):
    """A sequence stays where it began when another version that is ready becomes the default, and ends there when it begins anew. What was begun
    by the name of a version is of that alone."""
    path = with_idle(models)
    repo.write(path, path.read_text() + "version_policy { all { } }")
    server, control = explicit()
    control.load("seq_sum").ok()
    client = grpc_to(server)
    for id, version in ((1, ""), (2, "1"), (3, "")):
        assert numbers(client.infer(summed(10, id, "start", version=version))) == [10]
    shutil.copytree(models / "seq_sum/1", models / "seq_sum/2")
    control.load("seq_sum").ok()
    assert loads(server) == ["READY", "READY"]
    answer = client.infer(summed(1, 1))
    assert numbers(answer) == [11] and answer.model_version == "1"
    assert numbers(client.infer(summed(50, 1, "start", version="2"))) == [50]
    assert numbers(client.infer(summed(1, 1))) == [12]
    with pytest.raises(grpc.RpcError, match="must specify the START flag"):
        client.infer(summed(1, 2))
    for id in (2, 3):
        answer = client.infer(summed(7, id, "start", "end"))
        assert numbers(answer) == [7] and answer.model_version == "2"
        with pytest.raises(grpc.RpcError, match="must specify the START flag"):
            client.infer(summed(1, id))
    assert numbers(client.infer(summed(5, 2, version="1"))) == [15]
    with pytest.raises(grpc.RpcError, match="must specify the START flag"):
        client.infer(summed(5, 3, version="1"))


def test_updates_one_after_the_other(models, explicit, grpc_to):
    """Each version has its own sequences, and is unloaded when the last one has ended."""
    with_idle(models)
    server, control = explicit()
    client = grpc_to(server)
    for n in range(1, 4):
        if n > 1:
            shutil.copytree(models / "seq_sum/1", models / f"seq_sum/{n}")
        control.load("seq_sum").ok()
        assert numbers(client.infer(summed(n, f"s{n}", "start"))) == [n]
    assert sorted(loads(server)) == ["DRAINING", "DRAINING", "READY"]
    for n in (2, 1, 3):
        answer = client.infer(summed(10, f"s{n}", "end"))
        assert numbers(answer) == [10 + n] and answer.model_version == str(n)
    wait.equal(lambda: sorted(loads(server)), ["READY", "UNLOADED", "UNLOADED"], "the states")


@pytest.mark.parametrize("kind", ["in place", "next version"])
def test_a_sequence_that_begins_again_after_an_update(models, explicit, grpc_to, kind):
    """The one that the old version has is over, and does not come back when the new one ends."""
    path = with_idle(models)
    server, control = explicit()
    control.load("seq_sum").ok()
    client = grpc_to(server)
    for id in (5, 6):
        assert numbers(client.infer(summed(100, id, "start"))) == [100]
    if kind == "in place":
        repo.write(path, path.read_text().replace("max_candidate_sequences: 16", "max_candidate_sequences: 17"))
    else:
        shutil.copytree(models / "seq_sum/1", models / "seq_sum/2")
    control.load("seq_sum").ok()
    assert [numbers(client.infer(summed(n, 5, *marks))) for n, marks in ((1, ["start"]), (2, []), (3, ["end"]))] == [[1], [3], [6]]
    with pytest.raises(grpc.RpcError, match="must specify the START flag"):
        client.infer(summed(4, 5))
    two = grpcraw.request("seq_sum", [("INPUT", "INT32", [2, 1], {"int_contents": [1, 1]})], parameters={"sequence_id": 6, "sequence_start": True})
    with pytest.raises(grpc.RpcError, match="batch-size 1"):
        client.infer(two)
    assert numbers(client.infer(summed(1, 6))) == [101]  # a start that is refused ends nothing
    assert numbers(client.infer(summed(7, 6, "start", "end"))) == [7]
    with pytest.raises(grpc.RpcError, match="must specify the START flag"):
        client.infer(summed(4, 6))
    wait.equal(lambda: sorted(loads(server)), ["READY", "UNLOADED"], "the states")


def test_a_start_without_room_after_an_update(models, explicit, grpc_to):
    """The one that the old version has is over all the same."""
    fault(models, "m", max_batch_size=0)
    server, control = explicit("--max-queue-size=1")
    control.load("m").ok()
    client = grpc_to(server)
    assert numbers(client.infer(ask("m", 1, "a", "start", shape=(1,)))) == [1]
    shutil.copytree(models / "m/1", models / "m/2")
    control.load("m").ok()
    assert numbers(client.infer(ask("m", 2, "b", "start", shape=(1,)))) == [2]  # has the place
    waiting = client.stub.ModelInfer.future(ask("m", 3, "c", "start", shape=(1,)), timeout=wait.PATIENCE)
    pending(server, 1)
    with pytest.raises(grpc.RpcError, match="Exceeds maximum queue size"):
        client.infer(ask("m", 4, "a", "start", shape=(1,)))
    waiting.cancel()
    pending(server, 0)
    with pytest.raises(grpc.RpcError, match="must specify the START flag"):
        client.infer(ask("m", 5, "a", shape=(1,)))


def test_a_start_that_names_a_version(models, explicit, grpc_to):
    """It ends the sequence in replaced versions of that number."""
    path = with_idle(models)
    shutil.copytree(models / "seq_sum/1", models / "seq_sum/2")
    repo.write(path, path.read_text() + "version_policy { all { } }")
    server, control = explicit()
    control.load("seq_sum").ok()
    client = grpc_to(server)
    for version in "12":
        assert numbers(client.infer(summed(100, 5, "start", version=version))) == [100]
    repo.write(path, path.read_text().replace("max_candidate_sequences: 16", "max_candidate_sequences: 17"))
    control.load("seq_sum").ok()
    assert numbers(client.infer(summed(1, 5, "start", "end", version="2"))) == [1]
    with pytest.raises(grpc.RpcError, match="must specify the START flag"):
        client.infer(summed(4, 5, version="2"))
    assert numbers(client.infer(summed(4, 5, version="1"))) == [104]


@pytest.mark.parametrize("before", ["load", "update"])
def test_unload(models, explicit, grpc_to, before):
    """Sequences of an unloaded model cannot continue, so they do not hold it."""
    with_idle(models)
    server, control = explicit()
    control.load("seq_sum").ok()
    client = grpc_to(server)
    assert numbers(client.infer(summed(1, 1, "start"))) == [1]
    if before == "update":
        shutil.copytree(models / "seq_sum/1", models / "seq_sum/2")
        control.load("seq_sum").ok()
        assert numbers(client.infer(summed(1, 2, "start"))) == [1]
    control.unload("seq_sum").ok()
    with pytest.raises(grpc.RpcError, match="unknown model|not ready"):
        client.infer(summed(1, 1))
    wait.until(lambda: set(loads(server)) == {"UNLOADED"}, "the model to be unloaded")


@pytest.mark.parametrize("end", ["unload", "unload after an update", "switch policy", "stop"])
@pytest.mark.parametrize("strategy, places", [("direct { }", 1), ("direct { }", 2), ("oldest { max_candidate_sequences: 2 }", 2)])
def test_backlog_of_a_version_that_ends(models, explicit, grpc_to, end, strategy, places):
    """It is answered: sequences without a request, which nothing can continue, give up their places to it."""
    fault(models, "m", strategy, max_batch_size=places if places > 1 else 0,
          **{"millrace.switch_policy": "resource" if end == "switch policy" else "availability"})
    server, control = explicit()
    control.load("m").ok()
    client = grpc_to(server)
    one = lambda *args: ask("m", *args, shape=(1, 1) if places > 1 else (1,))
    for n in range(places):
        assert numbers(client.infer(one(n, f"idle{n}", "start"))) == [n]
    waiting = [client.stub.ModelInfer.future(one(n, f"s{n // 2}", *["start"] * (n % 2 == 0)), timeout=wait.PATIENCE) for n in range(8)]
    pending(server, 8)
    if end in ("switch policy", "unload after an update"):
        shutil.copytree(models / "m/1", models / "m/2")
        control.load("m").ok()
    if end.startswith("unload"):
        control.unload("m").ok()
    if end == "stop":
        server.signal()
    assert [numbers(f.result()) for f in waiting] == [[n] for n in range(8)]
    if end == "stop":
        assert server.wait_exit() == 0
    else:
        states = {"READY", "UNLOADED"} if end == "switch policy" else {"UNLOADED"}
        wait.until(lambda: set(loads(server, "m")) == states, "the old version to be unloaded")


def test_idle_in_a_replaced_version(models, explicit, grpc_to):
    """Idle time ends sequences of a version that was replaced as well, and with them the version."""
    path = with_idle(models)
    repo.write(path, path.read_text().replace(HOUR, "max_sequence_idle_microseconds: 1"))
    server, control = explicit()
    control.load("seq_sum").ok()
    client = grpc_to(server)
    assert numbers(client.infer(summed(1, 1, "start"))) == [1]
    shutil.copytree(models / "seq_sum/1", models / "seq_sum/2")
    control.load("seq_sum").ok()
    wait.equal(lambda: sorted(loads(server)), ["READY", "UNLOADED"], "the states")

"""Models in Python, with Triton's interface."""
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as http
import tritonclient.grpc as grpc

from lib import grpcraw, pymodels, repo, wait
from lib.metrics import value
from lib.models.graphs import ensemble, step
from lib.rest import Rest, infer_path
from lib.stream import DECOUPLED, Stream, values
from lib.workers import pids, report

MODELS = Path(__file__).parent / "models"
TEXT = {"inputs": [repo.tensor("INPUT0", "TYPE_STRING", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_STRING", (1,))]}


@pytest.fixture
def start(start):
    def make(*args, **kw):
        return start(args[0], *pymodels.options(), *args[1:], **kw)
    return make


def tensors(dtype, dims):
    return {"inputs": [repo.tensor(f"INPUT{i}", dtype, dims) for i in range(2)],
            "outputs": [repo.tensor(f"OUTPUT{i}", dtype, dims) for i in range(2)]}


PAGES = (4 << 20) // 4096  # of the tensor of test_kept_inputs


def page_faults(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def ask(rest, word, model="m"):
    return rest.post(infer_path(model), json.dumps({"inputs": [
        {"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [word]}]}))


@pytest.mark.parametrize("client", [http, grpc], ids=["http", "grpc"])
def test_add_sub(models, start, client):
    pymodels.add(models, "m", MODELS / "add_sub.py", max_batch_size=8, **tensors("TYPE_FP32", (4,)))
    server = start(models)
    with client.InferenceServerClient(server.url("http" if client is http else "grpc")) as c:
        a, b = np.arange(8, dtype="f4").reshape(2, 4), np.full((2, 4), 0.5, "f4")
        inputs = [client.InferInput(f"INPUT{i}", (2, 4), "FP32") for i in range(2)]
        for tensor, array in zip(inputs, (a, b)):
            tensor.set_data_from_numpy(array)
        result = c.infer("m", inputs)
        assert (result.as_numpy("OUTPUT0") == a + b).all() and (result.as_numpy("OUTPUT1") == a - b).all()


def test_kept_inputs(models, start):
    """An array that a model keeps does not change when later requests use the same memory."""
    pymodels.add(models, "m", MODELS / "echo.py", inputs=[repo.tensor("INPUT0", "TYPE_FP32")],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_FP32")])
    server = start(models)
    with http.InferenceServerClient(server.url()) as c:
        def send(value, id=""):
            tensor = http.InferInput("INPUT0", (1 << 20,), "FP32")
            tensor.set_data_from_numpy(np.full(1 << 20, value, "f4"))
            return c.infer("m", [tensor], request_id=id).as_numpy("OUTPUT0")
        for value in range(5):
            assert (send(value) == value).all()
        assert (send(9, "recall") == 0).all()
        # An input that is sent back, and not kept, is copied once, to its output: no page is taken for it.
        send(7, "forget")
        before = page_faults(pids(server, "m")[0])
        for value in range(10):
            assert (send(value, "forget") == value).all()
        assert page_faults(pids(server, "m")[0]) - before < 10 * PAGES / 4


@pytest.mark.few(4)
@pytest.mark.parametrize("word,status,text", [
    ("raise", 500, "Failed to process the request(s) for model instance 'm_0', message: ValueError: no good"),
    ("raise surrogate", 500, r"message: ValueError: no file \udcff"),
    ("surrogate", 500, r"no file \udcff"),
    ("nul", 500, "no file"),
    ("long 0 1000", 500, "ä"),
    ("long 1 1000", 500, "ä"),
    ("exit", 500, "Failed to process the request(s) for model instance 'm_0', message: SystemExit: 3"),
    ("error", 404, "mine"),
    ("none", 500, "execute of model 'm' gave no response to the request, and took no response sender"),
    ("name", 500, "unexpected inference output 'OTHER' for model 'm'"),
    ("missing", 500, "output 'OUTPUT0' is missing in a response of model 'm'"),
    ("type", 500, "backend 'python', model 'm', output 'OUTPUT0': came as FP64, declared is BYTES"),
])
def test_failures(models, start, word, status, text):
    """Each is the error of its request, and the process keeps running."""
    pymodels.add(models, "m", MODELS / "commanded.py", **TEXT)
    server = start(models)
    first = pids(server, "m")
    with Rest(server.http) as rest:
        reply = ask(rest, word)
        assert reply.status == status and reply.error.endswith(text) and "request id" not in reply.error, reply.error
        assert ask(rest, "grüße").ok().json()["outputs"][0]["data"] == ["GRÜSSE"]
    assert pids(server, "m") == first


def test_crash(models, start):
    """The request that crashes a worker fails, and another process serves."""
    pymodels.add(models, "m", MODELS / "commanded.py", **TEXT)
    server = start(models)
    with Rest(server.http) as rest:
        assert "ended while it ran this request (crash: signal 11" in ask(rest, "crash").error
        wait.until(lambda: pids(server, "m"), "another worker")
        assert ask(rest, "a").ok().json()["outputs"][0]["data"] == ["A"]
    assert sum(w["restarts"]["crash"] for w in report(server, "m")["workers"]) >= 1
    server.checked = True  # sanitizers report the crash that was asked for


def test_decoupled(models, start):
    pymodels.add(models, "m", MODELS / "countdown.py", inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (1,))], extra="model_transaction_policy { decoupled: true }")
    server = start(models)
    with Rest(server.http) as rest:
        for count in (3, 0, 100):
            body = rest.post("/v2/models/m/generate_stream", json.dumps({"INPUT0": [count]})).ok().body.decode()
            answers = [json.loads(line[6:])["OUTPUT0"] for line in body.splitlines() if line.startswith("data: ")]
            assert answers == list(range(count))


AT_ONCE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            if tensor[0] == 0:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("none")), 1)
            else:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor)]), 1)
"""


def test_decoupled_at_once(models, start):
    """All answers are sent before execute returns."""
    pymodels.add(models, "m", AT_ONCE, inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (1,))], extra="model_transaction_policy { decoupled: true }")
    server = start(models)
    first = pids(server, "m")
    with Rest(server.http) as rest:
        for count in (7, 8):
            assert rest.post("/v2/models/m/generate", {"INPUT0": [count]}).ok().json()["OUTPUT0"] == count
        assert rest.post("/v2/models/m/generate", {"INPUT0": [0]}).error.endswith("none")
    assert pids(server, "m") == first


@pytest.mark.few(3)
@pytest.mark.parametrize("extra,steps,events,said", [
    ("", "answer last", ["given"], "nothing"),
    ("", "answer answer last", ["given"], "a model that is not decoupled sends one response"),
    ("", "error last", ["failed"], "nothing"),
    ("", "answer last last", ["given"], "Unable to send response. Response sender has been closed."),
    (DECOUPLED, "error last", ["failed"], "nothing"),
    (DECOUPLED, "answer error answer last", ["given", "failed"], "nothing"),
    (DECOUPLED, "error last answer", ["failed"], "Unable to send response. Response sender has been closed."),
])
def test_flag_of_the_last_response_by_itself(models, start, extra, steps, events, said):
    """After the one answer, or an error, with which the request is over for the client."""
    pymodels.add(models, "m", MODELS / "steps.py", extra=extra, **TEXT)
    with Rest(start(models).http) as rest:
        for text, expected in ((steps, events), ("said last", [said])):
            body = rest.post("/v2/models/m/generate_stream", json.dumps({"INPUT0": text})).body.decode()
            found = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line]
            assert [e["OUTPUT0"] if "OUTPUT0" in e else e["error"].split("] ")[-1] for e in found] == expected


def test_shapes_of_a_batch(models, start):
    """Requests that are executed together have outputs of different shapes, one of them a wrong one."""
    pymodels.add(models, "m", MODELS / "ragged.py", max_batch_size=8, inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (-1,))],
                 extra="dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 100000000 }")
    server = start(models)

    def one(width):
        with Rest(server.http) as rest:
            body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [width]}]}
            return rest.post(infer_path("m"), json.dumps(body))
    widths = [3, 1, 3, 0, 2, 2, 3, 3]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(one, widths))
    for width, reply in zip(widths, replies):
        if width:
            assert reply.ok().json()["outputs"][0] == {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, width],
                                                      "data": [width] * width}
        else:
            assert "rows" in reply.error


def test_requests_without_inputs(models, start):
    """Where all are optional. Each is a row of a batch, of which there are as many as fit."""
    pymodels.add(models, "m", """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([[len(requests)]], np.int32))]) for _ in requests]
""", max_batch_size=4, extra="dynamic_batching { }", inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,), "optional: true")],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (1,))])
    server = start(models, env={"TRITONSERVER_DELAY_SCHEDULER": "20"})
    with ThreadPoolExecutor(20) as pool, Rest(server.http) as rest:
        def ask(_):
            with Rest(server.http) as rest:
                return rest.post(infer_path("m"), {"inputs": []}).ok().json()["outputs"][0]
        answers = list(pool.map(ask, range(20)))
        assert {(*a["shape"], *a["data"]) for a in answers} == {(1, 1, 4)}
        assert [(b["batch_size"], b["compute_infer"]["count"]) for b in rest.stats("m")[0]["batch_stats"]] == [(4, 5)]


def test_parameters_of_a_graphs_request(models, start):
    """They reach its models with their types."""
    pymodels.add(models, "m", """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([r.parameters()], dtype=object))]) for r in requests]
""", **TEXT)
    repo.add(models, "e", ensemble(step("m", {"INPUT0": "INPUT0"}, {"OUTPUT0": "OUTPUT0"}), **TEXT))
    server = start(models)
    given = {"n": 5, "flag": True, "real": 0.5, "text": "5"}
    with Rest(server.http) as rest:
        for model in ("m", "e"):
            body = {"parameters": given, "inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}
            said = rest.post(infer_path(model), body).ok().json()["outputs"][0]["data"][0]
            assert json.loads(said) == given, model


def test_tracebacks(models, start):
    """The reason comes first, then where it was raised and who called that."""
    pymodels.add(models, "m", MODELS / "commanded.py", parameters={"show_tracebacks": "1"}, **TEXT)
    with Rest(start(models).http) as rest:
        error = ask(rest, "raise").error
    lines = error.partition("message: ")[2].splitlines()
    assert lines[:3] == ["ValueError: no good", "", "At:"] and lines[3].endswith("): one") and "model.py(" in lines[3]


def test_traceback_in_the_log(models, start):
    """As an error, with the end of the traceback, where the reason is."""
    pymodels.add(models, "m", MODELS / "commanded.py", **TEXT)
    server = start(models)
    with Rest(server.http) as rest:
        assert ask(rest, "raise").status == 500
    line, = wait.until(lambda: [l for l in server.events() if l.get("event") == "worker.output" and "Traceback" in l["msg"]], "the line")
    assert line["level"] == "error", line
    assert "in one" in line["msg"] and "ValueError: no good" in line["msg"], line


def in_one_batch(server, numbers):
    """The replies of the model "m", which waits for two requests, to requests of a number each."""
    def one(number):
        with Rest(server.http) as rest:
            body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [number]}]}
            return rest.post(infer_path("m"), json.dumps(body))

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, numbers))


LONG_ERRORS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request.inputs()[0]) for request in requests]

    def one(self, tensor):
        if tensor.as_numpy()[0, 0] == 0:
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())])
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("\u00e4" * tensor.as_numpy()[0, 0]))
"""


@pytest.mark.parametrize("count", [1000, 1 << 20])
def test_a_long_error_in_a_batch(models, start, count):
    """Of one request: the other one has its answer, and as much of the text is answered as there is room for."""
    pymodels.add(models, "m", LONG_ERRORS, max_batch_size=2, inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (1,))],
                 extra="dynamic_batching { preferred_batch_size: 2 max_queue_delay_microseconds: 100000000 }")
    server = start(models)
    good, bad = in_one_batch(server, (0, count))
    assert good.ok().json()["outputs"][0]["data"] == [0]
    assert bad.status == 500 and bad.error.endswith("ä" * 100)


CALLER = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request.inputs()) for request in requests]

    def one(self, inputs):
        error = pb_utils.InferenceRequest(model_name="m", requested_output_names=["OUTPUT0"], inputs=inputs).exec().error()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([error.message()], dtype=object))])
"""


def test_long_errors_of_another_model(models, start):
    pymodels.add(models, "m", MODELS / "commanded.py", **TEXT)
    pymodels.add(models, "n", CALLER, **TEXT)
    with Rest(start(models).http) as rest:
        for pad in (0, 1):  # so that the text is cut within a character, and between two
            assert ask(rest, f"long {pad} 1000", "n").ok().json()["outputs"][0]["data"][0].endswith("ä" * 100)


def test_an_answer_of_a_batch_that_cannot_be_read(models, start):
    """Every request of the batch has an answer, and the next ones are executed."""
    pymodels.add(models, "m", MODELS / "unreadable.py", max_batch_size=8, inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_STRING", (1,))],
                 extra="dynamic_batching { preferred_batch_size: 2 max_queue_delay_microseconds: 100000000 }")
    server = start(models)
    for numbers in ([7, 0], [0, 7], [7, 8]):
        for number, reply in zip(numbers, in_one_batch(server, numbers)):
            if reply.status == 200:
                assert reply.json()["outputs"][0]["data"] == [str(number)] != ["0"]
            else:
                assert "it has no text" in reply.error and 0 in numbers


def test_no_threads(models, start):
    pymodels.add(models, "m", MODELS / "echo.py", parameters={"execution_placement": "thread"})
    server = start(models, "--exit-on-error=false")
    assert "Python models run in processes" in server.err()


def test_absent_interpreter(models, start):
    pymodels.add(models, "m", MODELS / "echo.py")
    server = start(models, "--exit-on-error=false", "--python=/nowhere/python3")
    assert "no interpreter for Python models: /nowhere/python3; --python names another" in server.err()


@pytest.mark.few(2)
@pytest.mark.parametrize("text,reason", [
    ("class TritonPythonModel: pass", "model.py of model 'm' has no class TritonPythonModel with a method execute"),
    ("class TritonPythonModel: execute = 1 / 0", "the file of model 'm' failed: ZeroDivisionError: division by zero"),
    ("import nothing_of_that_name", "the file of model 'm' failed: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ("class TritonPythonModel:\n def execute(self, r): pass\n def initialize(self, args): raise OSError(args['model_name'])",
     "initialize of model 'm' failed: OSError: m"),
    ("class TritonPythonModel:\n def execute(self, r): pass\n def initialize(self, args): exit(3)", "initialize of model 'm' failed: SystemExit: 3"),
    ("class TritonPythonModel:\n def execute(self, r): pass\n def auto_complete_config(c):\n"
     "  c.add_input({'name': 'X', 'data_type': 'TYPE_FLOAT', 'dims': [1]})", "no data type is called 'TYPE_FLOAT'"),
])
def test_bad_files(models, start, text, reason):
    pymodels.add(models, "m", text)
    server = start(models, "--exit-on-error=false")
    assert reason in server.err()


@pytest.mark.parametrize("array,reason", [
    ("np.zeros(1)", "output 'OUTPUT0': came as FP64, declared is FP32"),
    ("np.zeros(2, np.float32)", "gave output 'OUTPUT0' with an unexpected shape (FP32 [2])"),
])
def test_an_output_that_differs_from_the_configuration(models, start, array, reason):
    pymodels.add(models, "m", "import numpy as np\nimport triton_python_backend_utils as pb_utils\nclass TritonPythonModel:\n def execute(self, requests):\n"
                 f"  return [pb_utils.InferenceResponse([pb_utils.Tensor('OUTPUT0', {array})]) for _ in requests]",
                 inputs=[repo.tensor("INPUT0", "TYPE_FP32", (1,))], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32", (1,))])
    with Rest(start(models).http) as rest:
        reply = rest.post(infer_path("m"), json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [0]}]}))
    assert reply.status == 500 and reason in reply.error


def add_gathering(models, **kw):
    pymodels.add(models, "m", MODELS / "gathering.py", inputs=[repo.tensor("INPUT0", "TYPE_INT32", (2,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (1,))], extra="model_transaction_policy { decoupled: true }", **kw)


def stream(server, count, answers):
    with Rest(server.http) as rest:
        body = rest.post("/v2/models/m/generate_stream", json.dumps({"INPUT0": [count, answers]})).ok().body.decode()
    return [json.loads(line[6:])["OUTPUT0"] for line in body.splitlines() if line.startswith("data: ")]


def test_decoupled_requests_at_once(models, start):
    """One instance has many requests of a decoupled model open at once, and more wait for their turn."""
    add_gathering(models)
    server = start(models)
    with ThreadPoolExecutor(40) as pool:
        for count in (32, 5):
            answers = list(pool.map(lambda i: stream(server, count, i), range(count)))
            assert answers == [list(range(i)) for i in range(count)]
        first = [pool.submit(stream, server, 32, 3) for _ in range(40)]  # 8 are still open when 32 are answered
        wait.until(lambda: sum(f.done() for f in first) == 32)
        rest = [pool.submit(stream, server, 10, 2), pool.submit(stream, server, 10, 2)]
        assert [f.result() for f in first] == [[0, 1, 2]] * 40 and [f.result() for f in rest] == [[0, 1]] * 2


def test_decoupled_requests_of_a_dead_worker(models, start):
    """Requests that have no answer yet are run by the next worker."""
    add_gathering(models)
    server = start(models)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(stream, server, -3 if i == 2 else 3, 2) for i in range(3)]
        assert [f.result() for f in asked] == [[0, 1]] * 3
    assert report(server, "m")["workers"][0]["restarts"]["sick"] == 1


def test_slow_reader_of_a_decoupled_model(models, start):
    """A client that does not read holds up its own answers only."""
    add_gathering(models)
    server = start(models)
    body = json.dumps({"INPUT0": [1, 1 << 30]})
    with socket.create_connection(("127.0.0.1", server.http)) as slow:
        slow.sendall(f"POST /v2/models/m/generate_stream HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        assert slow.recv(12) == b"HTTP/1.1 200"
        for _ in range(3):
            assert stream(server, 1, 200) == list(range(200))


def test_a_request_ends_before_others_of_its_batch(models, start):
    """What the model keeps of it does not change when later requests use its memory."""
    count = 1 << 18
    pymodels.add(models, "m", MODELS / "together.py", max_batch_size=2, inputs=[repo.tensor("INPUT0", "TYPE_INT32")],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_INT32")],
                 extra=DECOUPLED + " dynamic_batching { max_queue_delay_microseconds: 600000000 }")
    server = start(models, "--batching-delay=exact")
    waiting = lambda: value(server, "nv_inference_pending_request_count", model="m")
    request = lambda number: grpcraw.int32("m", [number] * count, shape=[1, count])
    with Stream(server.url("grpc")) as first, Stream(server.url("grpc")) as second, Stream(server.url("grpc")) as third:
        first.send(request(1))
        wait.equal(waiting, 1, "requests that wait")
        second.send(request(2))
        assert [values(a) for a in first.end()] == [[count]]
        third.send(request(3))
        wait.equal(waiting, 1, "requests that wait")
        (models / "m" / "go").touch()
        assert [values(a) for a in second.end()] == [[count, 2 * count]]

"""What models for Triton's python backend may call, answered as Triton answers."""
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http

from lib import pymodels, repo, wait
from lib.rest import Rest, infer_path
from lib.workers import pids

MODELS = Path(__file__).parent / "models"
TEXT = {"inputs": [repo.tensor("INPUT0", "TYPE_STRING", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_STRING", (1,))]}
INT = {"inputs": [repo.tensor("INPUT0", "TYPE_INT32", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_INT32", (1,))]}
DECOUPLED = "model_transaction_policy { decoupled: true }"


@pytest.fixture
def start(start):
    def make(*args, **kw):
        return start(args[0], *pymodels.options(), *args[1:], **kw)
    return make


@pytest.fixture
def ask(models, start):
    """ask(text): what it is in the model m; n is another model of the same kind."""
    for name in ("m", "n"):
        pymodels.add(models, name, MODELS / "asked.py", **TEXT)
    server = start(models)
    with grpc.InferenceServerClient(server.url("grpc")) as client:
        def make(text, **kw):
            tensor = grpc.InferInput("INPUT0", [1], "BYTES")
            tensor.set_data_from_numpy(np.array([text.encode()], np.object_))
            return client.infer("m", [tensor], **kw).as_numpy("OUTPUT0")[0].decode()
        make.server = server
        yield make


CASES = [
    ("self.config['max_batch_size'], self.config['input'][0]['optional'], self.config['parameters']", "(0, False, {})"),
    ("self.config['version_policy'], self.config['optimization']['input_pinned_memory'], self.config['instance_group'][0]['name'], "
     "self.config['instance_group'][0]['kind'], self.config['instance_group'][0]['count']",
     "({'latest': {'num_versions': 1}}, {'enable': True}, 'm', 'KIND_CPU', 1)"),
    ("sorted(self.args)", "['model_config', 'model_instance_device_id', 'model_instance_kind', 'model_instance_name', "
                          "'model_name', 'model_repository', 'model_version']"),
    ("pb_utils.get_model_dir() == os.path.dirname(__file__)", "True"),
    ("pb_utils.TRITON_STRING_TO_NUMPY['TYPE_FP16'].__name__, len(pb_utils.TRITON_STRING_TO_NUMPY)", "('float16', 13)"),
    ("pb_utils.Logger.log('a'), pb_utils.Logger.log('b', pb_utils.Logger.WARNING), "
     "pb_utils.Logger.log('c', level=pb_utils.Logger.LogLevel.ERROR)", "(None, None, None)"),
    ("pb_utils.get_input_tensor_by_name(request, 'OTHER')", "None"),
    ("pb_utils.get_output_config_by_name(self.config, 'OUTPUT0')['data_type']", "TYPE_STRING"),
    ("pb_utils.Tensor.from_dlpack('A', pb_utils.Tensor('B', np.arange(3)).to_dlpack()).as_numpy().tolist()", "[0, 1, 2]"),
    ("np.from_dlpack(pb_utils.Tensor('B', np.arange(3, dtype='f4'))).tolist()", "[0.0, 1.0, 2.0]"),
    ("import ml_dtypes\nt = pb_utils.Tensor('B', np.array([1.5], ml_dtypes.bfloat16))\n"
     "out = [(f.triton_dtype(), f.as_numpy().tolist()) for f in (pb_utils.Tensor.from_dlpack('A', x) for x in (t, t.to_dlpack()))]",
     "[(14, [1.5]), (14, [1.5])]"),
    ("pb_utils.deserialize_bytes_tensor(pb_utils.serialize_byte_tensor(np.array([['a'], ['bc']], np.object_))).tolist()",
     "[b'a', b'bc']"),
    ("pb_utils.InferenceRequest(model_name='n', requested_output_names=[], inputs=[], parameters={1: 1})",
     "refused: Expect parameters keys to have type str, found type <class 'int'>"),
    ("pb_utils.InferenceRequest(model_name='n', requested_output_names=[], inputs=[], parameters={'a': None})",
     "refused: Expect parameters values to have type bool/int/str, found type <class 'NoneType'>"),
    ("pb_utils.Tensor('A', np.array([1j]))", "refused: no tensor has the data type complex128"),
    ("try: pb_utils.ModelConfig({}).add_input({'name': 'A', 'data_type': 'TYPE_FP32', 'dims': [1], 'reshape': {'shape': []}})\n"
     "except ValueError as e: out = e", "input of the configuration has the unknown property 'reshape'"),
    ("pb_utils.load_model('m')", "refused: model 'm' cannot load or unload itself"),
    ("asyncio.get_event_loop() is self.loop, self.loop.run_until_complete(asyncio.sleep(0, 'done'))", "(True, 'done')"),
    ("sleep = subprocess.Popen(['sleep', '60'])\nsleep.terminate()\nout = sleep.wait()", "-15"),
    ("call('n', '1 + 1')", "2"),
    ("call(b'n', '1 + 1', names=[b'OUTPUT0'], request_id=b'x'), pb_utils.Tensor(b'A', np.arange(1)).name(), pb_utils.is_model_ready(b'n')",
     "('2', 'A', True)"),
    ("import gc, weakref, _millrace_calls\n"
     "async def ask():\n"
     " asked = [pb_utils.InferenceRequest(model_name='n', requested_output_names=['OUTPUT0'], inputs=[\n"
     "  pb_utils.Tensor('INPUT0', np.array([b'1'], np.object_))]).async_exec() for _ in range(3)]\n"
     " return [answer.has_error() for answer in await asyncio.gather(*asked)]\n"
     "loop = asyncio.new_event_loop()\n"
     "_millrace_calls.CALLS_MAX = 1\n"  # so that the others wait for the first one
     "answers = loop.run_until_complete(ask())\n"
     "_millrace_calls.CALLS_MAX = 256\n"
     "loop.close()\n"
     "left = weakref.ref(loop)\n"
     "del loop\n"
     "gc.collect()\n"
     "out = answers, left()", "([False, False, False], None)"),
    ("pb_utils.TritonError(b'text').message()", "text"),
    ("call('n', 'request.parameters()', parameters={'i': -7, 'f': 0.5, 'b': True, 's': '8'})",
     '{"i": -7, "f": 0.5, "b": true, "s": "8"}'),
    ("call('n', 'request.timeout()', timeout=900000000)", "900000000"),
    ("call('n', 'request.request_id(), request.correlation_id(), request.flags()', request_id='r', correlation_id=9, flags=3)",
     "('r', 9, 3)"),
    ("call('n', 'request.correlation_id()', correlation_id='text', flags=1)", "text"),
    ("call('n', '1', names=['OTHER'])", "3: unexpected inference output 'OTHER' for model 'n'"),
    ("call('n', '1', model_version=7)", "2: Request for unknown model: 'n' version 7 is not found"),
    ("call('n', '1 / 0')", "1: Failed to process the request(s) for model instance 'n_0', message: ZeroDivisionError: division by zero"),
    ("type(request.trace()) is pb_utils.InferenceTrace, request.trace().get_context()", "(True, None)"),
    ("call('n', 'request.trace().get_context()', trace=request.trace(), preferred_memory=pb_utils.PreferredMemory("
     "pb_utils.TRITONSERVER_MEMORY_CPU, 0))", "None"),
    ("pb_utils.InferenceRequest(model_name='n', requested_output_names=[], inputs=[], trace=request.trace()).trace().get_context()", "None"),
    ("request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL)", "None"),
    ("request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)",
     "refused: TRITONSERVER_REQUEST_RELEASE_RESCHEDULE is for requests to a model with sequence_batching { iterative_sequence: true }"),
]


def test_interface(ask):
    for text, answer in CASES:
        assert ask(text) == answer, text


def test_what_a_request_says(ask):
    given = {"i": 1, "big": 1 << 40, "f": 1.5, "b": True, "s": "1"}
    assert json.loads(ask("request.parameters()", parameters=given)) == given
    assert ask("request.timeout()", timeout=900_000_000) == "900000000"
    assert ask("request.request_id(), request.correlation_id(), request.flags()", request_id="r", sequence_id="s",
               sequence_start=True) == "('r', 's', 1)"
    assert ask("request.requested_output_names(), request.is_cancelled()") == "(['OUTPUT0'], False)"
    with Rest(ask.server.http) as rest:
        body = {"parameters": {"i": -1, "f": 0.25, "b": False, "s": "x"},
                "inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["request.parameters()"]}]}
        out = rest.post(infer_path("m"), json.dumps(body)).ok().json()["outputs"][0]["data"][0]
    assert json.loads(out) == body["parameters"]


def test_event_loop_of_a_process_that_was_warmed_up(models, start):
    """All calls of execute are on one thread, also those of a replacement that run the warm-up again."""
    pymodels.add(models, "m", MODELS / "asked.py", **TEXT, extra='model_warmup { name: "w" inputs { key: "INPUT0" '
                 'value { data_type: TYPE_STRING dims: [ 1 ] zero_data: true } } }')
    server = start(models)
    dead, = pids(server, "m")
    os.kill(dead, signal.SIGKILL)
    wait.until(lambda: pids(server, "m") not in ([], [dead]), "another worker")
    with Rest(server.http) as rest:
        reply = rest.infer("m", [("INPUT0", "BYTES", [1], ["asyncio.get_event_loop() is self.loop"])])
        assert reply.ok().json()["outputs"][0]["data"] == ["True"]


def test_codes(models, start):
    """Each code of TritonError has its status over gRPC."""
    pymodels.add(models, "m", MODELS / "codes.py", **TEXT)
    server = start(models)
    with grpc.InferenceServerClient(server.url("grpc")) as client:
        for word, code in {"UNKNOWN": "UNKNOWN", "INTERNAL": "INTERNAL", "NOT_FOUND": "NOT_FOUND", "INVALID_ARG": "INVALID_ARGUMENT",
                           "UNAVAILABLE": "UNAVAILABLE", "UNSUPPORTED": "UNIMPLEMENTED", "ALREADY_EXISTS": "ALREADY_EXISTS",
                           "CANCELLED": "CANCELLED"}.items():
            tensor = grpc.InferInput("INPUT0", [1], "BYTES")
            tensor.set_data_from_numpy(np.array([word], np.object_))
            with pytest.raises(Exception) as e:
                client.infer("m", [tensor])
            assert e.value.status() == f"StatusCode.{code}" and e.value.message().endswith(f"it is {word}")


ARRAYS = {
    "BOOL": [np.array([[True, False]])], "UINT8": [np.array([[0, 255]], "u1")], "INT8": [np.array([[-128]], "i1")],
    "UINT16": [np.array([[65535]], "u2")], "INT16": [np.array([[-1]], "i2")], "UINT32": [np.array([[1]], "u4")],
    "INT32": [np.arange(6, dtype="i4").reshape(2, 3)], "UINT64": [np.array([[2 ** 64 - 1]], "u8")],
    "INT64": [np.zeros((0, 4), "i8"), np.arange(1 << 17).reshape(-1, 2)], "FP16": [np.array([[1.5, -2]], "f2")],
    "BF16": [np.array([[1.5]], ml_dtypes.bfloat16)], "FP32": [np.zeros((3, 0), "f4")], "FP64": [np.array([[1e300]], "f8")],
    "STRING": [np.array([[b"", b"\0\xff", "grüße".encode()]], np.object_), np.zeros((0, 2), np.object_)]}


@pytest.mark.parametrize("client", [http, grpc], ids=["http", "grpc"])
def test_data_types(models, start, client):
    """There and back, as arrays made anew; all inputs are optional."""
    pymodels.add(models, "m", MODELS / "remade.py", **{
        kind: [repo.tensor(f"{kind[:-1].upper()}{i}", f"TYPE_{name}", (-1, -1), extra) for i, name in enumerate(ARRAYS)]
        for kind, extra in (("inputs", "optional: true"), ("outputs", ""))})
    server = start(models)
    with client.InferenceServerClient(server.url("http" if client is http else "grpc")) as c:
        for i, (name, arrays) in enumerate(ARRAYS.items()):
            for array in arrays:
                tensor = client.InferInput(f"INPUT{i}", array.shape, "BYTES" if name == "STRING" else name)
                tensor.set_data_from_numpy(array)
                out = c.infer("m", [tensor], outputs=[client.InferRequestedOutput(f"OUTPUT{i}")]).as_numpy(f"OUTPUT{i}")
                assert out.shape == array.shape and (out == array).all(), name


def test_completed_config(models, start):
    """Everything comes from auto_complete_config, the scheduling too."""
    pymodels.add(models, "m", MODELS / "completed.py", inputs=[], outputs=[])
    server = start(models)
    with Rest(server.http) as rest:
        config = rest.get("/v2/models/m/config").ok().json()
        assert config["max_batch_size"] == 6 and config["model_transaction_policy"] == {"decoupled": True}
        assert "dynamic_batching" in config and [i["optional"] for i in config["input"]] == [False, True]
        for extra, answers in ({}, [0, 1, 2]), ({"EXTRA": [4.0, 5.0]}, [9, 9, 9]):
            body = rest.post("/v2/models/m/generate_stream", json.dumps({"INPUT0": 3, **extra})).ok().body.decode()
            assert [json.loads(line[6:])["OUTPUT0"] for line in body.splitlines() if line.startswith("data: ")] == answers


COMPLETES_NOTHING = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        return config

    def execute(self, requests):
        return [self.one({t.name(): t.as_numpy() for t in request.inputs()}) for request in requests]

    def one(self, given):
        if "OLD" in given:
            total = given["OLD"] + given["INPUT0"]
            outputs = {"OUTPUT0": total + 100 * given["START"], "TOTAL": total}
        else:
            outputs = {"OUTPUT0": given["INPUT0"].sum(axis=(1, 2))}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])
"""


def test_what_completion_leaves_alone(models, start):
    """reshape, control inputs and states are those of the configuration."""
    pymodels.add(models, "shaped", COMPLETES_NOTHING, max_batch_size=8,
                 inputs=[repo.tensor("INPUT0", "TYPE_FP32", (4,), "reshape { shape: [ 2, 2 ] }")],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_FP32", (1,), "reshape { }")])
    pymodels.add(models, "kept", COMPLETES_NOTHING, max_batch_size=8, inputs=[repo.tensor("INPUT0", dims=(1,))],
                 outputs=[repo.tensor("OUTPUT0", dims=(1,)), repo.tensor("TOTAL", dims=(1,))], extra="""sequence_batching {
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  state { input_name: "OLD" output_name: "TOTAL" data_type: TYPE_INT32 dims: [ 1 ] }
}""")
    with Rest(start(models).http) as rest:
        def outputs(model, *tensor, **parameters):
            reply = rest.infer(model, [("INPUT0", *tensor)], parameters=parameters).ok().json()
            return {o["name"]: (o["shape"], o["data"]) for o in reply["outputs"]}
        assert outputs("shaped", "FP32", [2, 4], list(range(8))) == {"OUTPUT0": ([2, 1], [6, 22])}
        for total, answer, is_start in ((3, 103, True), (6, 6, False)):
            assert outputs("kept", "INT32", [1, 1], [3], sequence_id=7, sequence_start=is_start) == {
                "OUTPUT0": ([1, 1], [answer]), "TOTAL": ([1, 1], [total])}


def test_completion_that_is_switched_off(models, start):
    """auto_complete_config, which would refuse this configuration, is not called."""
    pymodels.add(models, "m", MODELS / "completed.py", max_batch_size=2, extra=DECOUPLED, **INT)
    with Rest(start(models, "--disable-auto-complete-config").http) as rest:
        assert rest.post("/v2/models/m/generate", json.dumps({"INPUT0": 1})).ok().json()["OUTPUT0"] == 0


def test_coroutines_at_once(models, start):
    """Executions of a decoupled model whose execute is a coroutine run beside each other."""
    pymodels.add(models, "m", MODELS / "coroutines.py", extra=DECOUPLED, **INT)
    server = start(models)
    first = pids(server, "m")

    def stream(count):
        with Rest(server.http) as rest:
            reply = rest.post("/v2/models/m/generate_stream", json.dumps({"INPUT0": count}))
        return [json.loads(line[6:])["OUTPUT0"] for line in reply.ok().body.decode().splitlines() if line.startswith("data: ")]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(stream, [12] * 12))
    assert answers == [[0, 1, 2]] * 12
    with Rest(server.http) as rest:
        assert rest.post("/v2/models/m/generate", json.dumps({"INPUT0": -1})).error.endswith("ValueError: below 0")
    assert pids(server, "m") == first

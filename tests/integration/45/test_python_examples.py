"""What the examples of Triton's python backend do, asked as their clients ask: square, repeat, preprocessing, kinds of instances, and modules
that models share."""
import json
import queue
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http

from lib import pymodels, repo, wait
from lib.models.graphs import ensemble, step
from lib.rest import Rest, infer_path
from lib.stream import DECOUPLED
from lib.workers import pids

MODELS = Path(__file__).parent / "models"
TEXT = {"inputs": [repo.tensor("INPUT0", "TYPE_STRING", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_STRING", (1,))]}


@pytest.fixture
def start(start):
    def make(*args, **kw):
        return start(args[0], *pymodels.options(), *args[1:], **kw)
    return make


class Stream:
    """tritonclient's stream: answers and errors as they come."""

    def __init__(self, server):
        self.client, self.answers = grpc.InferenceServerClient(server.url("grpc")), queue.Queue()
        self.client.start_stream(lambda result, error: self.answers.put(error or result))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.stop_stream()
        self.client.close()

    def send(self, model, id, **kw):
        """Arrays by the names of inputs; kw that begins with a small letter is for the request."""
        inputs = []
        for name in [k for k in kw if k.isupper()]:
            array = kw.pop(name)
            inputs.append(grpc.InferInput(name, array.shape, "BOOL" if array.dtype == bool else "INT32"))
            inputs[-1].set_data_from_numpy(array)
        self.client.async_stream_infer(model, inputs, request_id=id, enable_empty_final_response=True, **kw)

    def all(self, count):
        """Of so many requests, by their ids: the answers but the mark of the end, in their order."""
        found, open_requests = {}, count
        while open_requests > 0:
            answer = self.answers.get(timeout=wait.PATIENCE)
            assert not isinstance(answer, Exception), answer
            response = answer.get_response()
            list_ = found.setdefault(response.id, [])
            if response.outputs:
                list_.append({o.name: answer.as_numpy(o.name).tolist() for o in response.outputs})
            open_requests -= response.parameters["triton_final_response"].bool_param
        return found


def test_square(models, start):
    """Many requests of one stream at once, each with as many answers as it says; then one of a number that has none."""
    pymodels.add(models, "square_int32", MODELS / "square.py", extra=DECOUPLED, inputs=[repo.tensor("IN", dims=(1,))],
                 outputs=[repo.tensor("OUT", dims=(1,))])
    server = start(models)
    first = pids(server, "square_int32")
    numbers = [4, 0, 1, 20, 2, 0, 7]
    with Stream(server) as stream:
        for i, n in enumerate(numbers):
            stream.send("square_int32", f"r{i}", IN=np.array([n], np.int32))
        assert stream.all(len(numbers)) == {f"r{i}": [{"OUT": [n]}] * n for i, n in enumerate(numbers)}
        stream.send("square_int32", "bad", IN=np.array([-1], np.int32))
        error = stream.answers.get(timeout=wait.PATIENCE)
        assert isinstance(error, Exception) and "a number below 0" in str(error)
        stream.send("square_int32", "good", IN=np.array([3], np.int32))
        assert stream.all(1) == {"good": [{"OUT": [3]}] * 3}
    assert pids(server, "square_int32") == first


@pytest.mark.parametrize("waits", [True, False])
def test_repeat(models, start, waits):
    """Two outputs, in the order of the input, while other requests of the stream have theirs."""
    pymodels.add(models, "repeat_int32", MODELS / "repeat.py", extra=DECOUPLED,
                 inputs=[repo.tensor("IN"), repo.tensor("WAIT", "TYPE_BOOL", (1,))],
                 outputs=[repo.tensor("OUT", dims=(1,)), repo.tensor("IDX", "TYPE_UINT32", (1,))])
    server = start(models)
    arrays = {f"r{i}": np.arange(i * 10, i * 10 + 3 * i, dtype=np.int32) for i in range(4)}
    with Stream(server) as stream:
        for id, array in arrays.items():
            stream.send("repeat_int32", id, IN=array, WAIT=np.array([waits]))
        assert stream.all(len(arrays)) == {
            id: [{"IDX": [i], "OUT": [int(n)]} for i, n in enumerate(array)] for id, array in arrays.items()}


@pytest.mark.parametrize("kit", [http, grpc], ids=["http", "grpc"])
def test_preprocessing(models, start, kit):
    """Bytes become what the next model takes, by itself and as the first step of an ensemble."""
    bytes_in, image = repo.tensor("INPUT0", "TYPE_STRING", (1,)), repo.tensor("OUTPUT0", "TYPE_FP32", (3, 4, 4))
    pymodels.add(models, "pre", MODELS / "preprocessing.py", max_batch_size=8, inputs=[bytes_in], outputs=[image])
    repo.add(models, "net", max_batch_size=8, inputs=[repo.tensor("INPUT0", "TYPE_FP32", (3, 4, 4))], outputs=[image])
    repo.add(models, "whole", ensemble(step("pre", {"INPUT0": "INPUT0"}, {"OUTPUT0": "t"}), step("net", {"INPUT0": "t"}, {"OUTPUT0": "OUTPUT0"}),
                                       max_batch_size=8, inputs=[bytes_in], outputs=[image]))
    server = start(models)
    pixels = np.random.default_rng(1).integers(0, 256, (12, 8, 3), np.uint8)
    expected = pixels[::3, ::2].transpose(2, 0, 1).astype(np.float32) / 127.5 - 1
    with kit.InferenceServerClient(server.url("http" if kit is http else "grpc")) as client:
        for model in ("pre", "whole"):
            x = kit.InferInput("INPUT0", [2, 1], "BYTES")
            x.set_data_from_numpy(np.array([[b"8x12:" + pixels.tobytes()]] * 2, np.object_))
            assert np.array_equal(client.infer(model, [x]).as_numpy("OUTPUT0"), np.stack([expected] * 2))


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    repo.write(path, data)


def ask(server, model, text, version=""):
    body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [text]}]}
    path = f"/v2/models/{model}/versions/{version}/infer" if version else infer_path(model)
    with Rest(server.http) as rest:
        return rest.post(path, json.dumps(body)).ok().json()["outputs"][0]["data"][0]


def test_kinds_of_instances(models, start):
    """What initialize is told of its instance."""
    groups = {"none": "", "cpu": "kind: KIND_CPU", "model": "kind: KIND_MODEL", "named": 'name: "group" kind: KIND_CPU'}
    for name, group in groups.items():
        pymodels.add(models, name, MODELS / "asked.py", extra=f"instance_group [ {{ {group} }} ]" if group else "", **TEXT)
    server = start(models)
    said = {name: ask(server, name, "[self.args[f'model_instance_{k}'] for k in ('kind', 'name', 'device_id')]") for name in groups}
    assert said == {"none": "['CPU', 'none_0', '0']", "cpu": "['CPU', 'cpu_0_0', '0']", "model": "['MODEL', 'model_0_0', '0']",
                    "named": "['CPU', 'group_0', '0']"}


def test_names_of_instances(models, start):
    """They are numbered within their groups."""
    pymodels.add(models, "many", MODELS / "asked.py", extra='instance_group [ { name: "one" }, { count: 2 } ]', **TEXT)
    server, said = start(models), set()
    wait.until(lambda: said.add(ask(server, "many", "self.args['model_instance_name']")) or len(said) == 3, "answers of all instances")
    assert said == {"one_0", "many_1_0", "many_1_1"}


def test_shared_modules(models, start):
    """Modules in the folder of a model are those of all of its versions, modules of a version its own; models do not see each other's."""
    asks = "import ours, mine\nout = [ours.WORD, mine.WORD, mine.__file__.split('/')[-2]]"
    for model in ("a", "b"):
        pymodels.add(models, model, MODELS / "asked.py", extra="version_policy { all { } }", **TEXT)
        write(models / model / "2" / "model.py", (MODELS / "asked.py").read_bytes())
        write(models / model / "ours.py", f"WORD = 'shared by {model}'\n")
        for version in "12":
            write(models / model / version / "mine.py", f"WORD = '{model}{version}'\n")
    server = start(models)
    for model in ("a", "b"):
        for version in "12":
            assert ask(server, model, asks, version) == f"['shared by {model}', '{model}{version}', '{version}']"


def test_a_package_that_models_share(models, start, tmp_path):
    """By the variable of the interpreter, and a package of relative imports beside model.py."""
    write(tmp_path / "lib" / "everyones" / "__init__.py", "WORD = 'everyone'\n")
    for model in ("a", "b"):
        pymodels.add(models, model, MODELS / "asked.py", **TEXT)
        write(models / model / "1" / "parts" / "__init__.py", "from .one import WORD\n")
        write(models / model / "1" / "parts" / "one.py", f"from everyones import WORD as EVERYONE\nWORD = EVERYONE + ' and {model}'\n")
    server = start(models, env={"PYTHONPATH": str(tmp_path / "lib")})
    assert [ask(server, m, "import parts\nout = parts.WORD") for m in ("a", "b")] == ["everyone and a", "everyone and b"]

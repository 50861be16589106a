"""Configs that are completed from the model, and the ONNX models of tests/models/repo as a client sees them."""
import shutil

import numpy as np
import pytest
from google.protobuf import text_format
from google.protobuf.json_format import ParseDict
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.model_config_pb2 import ModelConfig

from lib import onnxgen, repo
from lib.control import Control
from lib.grpcraw import Grpc
from lib.rest import Rest

NAMES = ["simple_auto", "simple_fixed", "dynamic", "mlp", "optional", "scalar", "passthrough", "lying", "external", "folder", "versions"]


@pytest.fixture(scope="module")
def onnx(tmp_path_factory):
    from lib.server import Server

    folder = tmp_path_factory.mktemp("onnx")
    (folder / "models").mkdir()
    repo.stock(folder / "models", *NAMES)
    (folder / "models" / "lying" / "config.pbtxt").write_text("max_batch_size: 0")
    server = Server(folder / "server", [folder / "models"]).wait_ready()
    with Rest(server.http) as rest:
        yield rest
    server.stop()


def outputs(reply):
    return {o["name"]: (o["datatype"], o["shape"], o["data"]) for o in reply.ok().json()["outputs"]}


def test_config_is_completed(onnx):
    c = onnx.get("/v2/models/simple_auto/config").ok().json()
    assert (c["name"], c["platform"], c["backend"], c["max_batch_size"]) == ("simple_auto", "onnxruntime_onnx", "onnxruntime", 4)
    assert [(i["name"], i["data_type"], i["dims"]) for i in c["input"] + c["output"]] == [
        (n, "TYPE_INT32", [16]) for n in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")]
    assert c["default_model_filename"] == "model.onnx"
    assert "dynamic_batching" in c, "as Triton: a completed batch size brings dynamic batching"


def test_completed_model_answers(onnx):
    x = list(range(16))
    reply = onnx.infer("simple_auto", [("INPUT0", "INT32", [1, 16], x), ("INPUT1", "INT32", [1, 16], x)])
    assert outputs(reply)["OUTPUT0"] == ("INT32", [1, 16], [2 * v for v in x])


def test_fixed_first_dimension_is_no_batch(onnx):
    c = onnx.get("/v2/models/simple_fixed/config").ok().json()
    assert c["max_batch_size"] == 0 and c["input"][0]["dims"] == [1, 16]
    x = list(range(16))
    reply = onnx.infer("simple_fixed", [("INPUT0", "INT32", [1, 16], x), ("INPUT1", "INT32", [1, 16], x)])
    assert outputs(reply)["OUTPUT1"] == ("INT32", [1, 16], [0] * 16)


@pytest.mark.parametrize("shape", [[2, 3], [1, 1], [3, 1]], ids=str)
def test_free_dimensions(onnx, shape):
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    got = outputs(onnx.infer("dynamic", [("X", "FP32", shape, x.ravel().tolist())]))
    assert got["T"] == ("FP32", shape[::-1], x.T.ravel().tolist())
    assert got["S"] == ("INT64", [2], shape)


@pytest.mark.parametrize("shape", [[0, 3], [3, 0], [0, 0]], ids=str)
def test_zero_dimensions(onnx, shape):
    got = outputs(onnx.infer("dynamic", [("X", "FP32", shape, [])]))
    assert got["T"] == ("FP32", shape[::-1], []) and got["S"][2] == shape


def test_optional_input(onnx):
    x = ("X", "FP32", [4], [1, 2, 3, 4])
    assert outputs(onnx.infer("optional", [x]))["Y"][2] == [2, 4, 6, 8]
    assert outputs(onnx.infer("optional", [x, ("SCALE", "FP32", [1], [10])]))["Y"][2] == [10, 20, 30, 40]


@pytest.mark.parametrize("config", ["", onnxgen.ADDER_CONFIG], ids=["no config", "config"])
def test_initializer_that_is_called_as_a_setting(models, start, config):
    """It is an optional input only if an input of the configuration has its name."""
    repo.add(models, "m", config, files={"1/model.onnx": onnxgen.adder(10, "latest", is_overridable=True)})
    with Rest(start(models).http) as rest:
        assert [i["name"] for i in rest.get("/v2/models/m").ok().json()["inputs"]] == ["INPUT0"]


def test_scalar_output(onnx):
    datatype, shape, data = outputs(onnx.infer("scalar", [("X", "FP32", [3], [1, 2, 3.5])]))["SUM"]
    assert (datatype, data) == ("FP32", [6.5]) and shape in ([], [1])


def test_outputs_that_are_inputs_and_constants(onnx):
    got = outputs(onnx.infer("passthrough", [("X", "FP32", [2], [1, 2])]))
    assert {n: v[2] for n, v in got.items()} == {"X": [1, 2], "COPY": [1, 2], "C": [1, 2, 3]}


def test_answer_with_another_size_than_declared(onnx):
    """The shape of the answer is the one that the model gave, not the one of its declaration."""
    assert outputs(onnx.infer("lying", [("X", "INT32", [4], [0, 5, 0, 7])]))["Y"] == ("INT64", [2], [1, 3])


@pytest.mark.parametrize("model, size", [("external", 32)])
def test_weights_beside_the_model(onnx, model, size):
    got = outputs(onnx.infer(model, [("X", "FP32", [1, size], [1.0] * size)]))
    assert got["Y"][2] == [1.0 + i for i in range(size)]


def test_model_in_a_folder(onnx):
    x = [1] * 16
    reply = onnx.infer("folder", [("INPUT0", "INT32", [1, 16], x), ("INPUT1", "INT32", [1, 16], x)])
    assert outputs(reply)["OUTPUT0"][2] == [2] * 16


def test_net_with_dynamic_batching(onnx):
    x = np.linspace(-1, 1, 5 * 64).astype(np.float32)
    data = np.array(outputs(onnx.infer("mlp", [("INPUT0", "FP32", [5, 64], x.tolist())]))["OUTPUT0"][2]).reshape(5, 10)
    assert np.allclose(data.sum(axis=1), 1, atol=1e-5)
    one = outputs(onnx.infer("mlp", [("INPUT0", "FP32", [1, 64], x[64:128].tolist())]))["OUTPUT0"][2]
    assert np.allclose(one, data[1], atol=1e-6), "a row's answer does not depend on its batch"


def test_completion_may_be_switched_off(models, start):
    repo.stock(models, "simple_auto", "simple")
    with Control(start(models, "--disable-auto-complete-config", mode="explicit")) as c:
        assert c.load("simple").status == 200
        reply = c.load("simple_auto")
        assert reply.status != 200 and "simple_auto" in reply.error


RICH = """dynamic_batching { preferred_batch_size: [ 4, 8 ] priority_levels: 2 default_priority_level: 1
    default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }
    priority_queue_policy { key: 2 value { max_queue_size: 3 } } }
metric_tags { key: "a" value: "b" } version_policy { all { } } instance_group [ { count: 3 kind: KIND_CPU }, { kind: KIND_MODEL } ]
parameters { key: "x\\"y" value { string_value: "a\\nb" } } optimization { graph { level: 1 } }
model_warmup { name: "w" batch_size: 1 inputs { key: "INPUT0" value { data_type: TYPE_INT32 dims: 3 zero_data: true } } }"""
WHOLE = ["dynamic", "identity_any", "identity_bytes", "mlp", "optional", "passthrough", "scalar", "simple", "simple_auto",
         "simple_fixed", "simple_string", "versions", "zipmap"]


def printed(server, model):
    """The configuration as text, made from gRPC's message and from REST's JSON, and that JSON."""
    with Control(server) as c, Grpc(server.url("grpc")) as client:
        document = c.rest.get(f"/v2/models/{model}/config").ok().json()
        message = client.stub.ModelConfig(pb.ModelConfigRequest(name=model)).config
    return text_format.MessageToString(message), text_format.MessageToString(ParseDict(document, ModelConfig())), document


@pytest.mark.few
@pytest.mark.parametrize("options", [[], ["--disable-auto-complete-config"]], ids=len)
def test_what_is_printed_can_be_used(models, tmp_path, start, options):
    """As config.pbtxt and as the config of a load request: it means and prints the same again."""
    repo.stock(models, *WHOLE)
    repo.add(models, "rich", max_batch_size=8, extra=RICH, inputs=[repo.tensor("INPUT0", dims=(3,))], outputs=[repo.tensor("OUTPUT0", dims=(3,))])
    first = start(models)
    known = {model: printed(first, model) for model in (*WHOLE, "rich")}
    for kind in (0, 1):
        copy = tmp_path / f"copy{kind}"
        shutil.copytree(models, copy)
        for model, forms in known.items():
            repo.write(copy / model / "config.pbtxt", forms[kind])
        again = start(copy, *options, mode="explicit")
        with Control(again) as c:
            for model, forms in known.items():
                c.load(model).ok()
                assert printed(again, model) == forms
                c.load(model, forms[2]).ok()
                assert printed(again, model) == forms


@pytest.mark.parametrize("text", ["", 'output { name: "SUM" data_type: TYPE_FP32 dims: 1 }', 'output { name: "SUM" dims: 1 reshape { } }'])
def test_a_scalar_has_one_element(models, start, text):
    """Without batching Triton refuses an empty reshape, so that dims: [ 1 ] is a scalar's only form there."""
    repo.stock(models, "scalar")
    if text:
        repo.write(models / "scalar" / "config.pbtxt", text)
    with Control(start(models)) as c:
        (output,) = c.rest.get("/v2/models/scalar/config").ok().json()["output"]
        assert output["dims"] == [1] and ("reshape" in output) == ("reshape" in text)
        (answer,) = c.rest.infer("scalar", [("X", "FP32", [3], [1, 2, 4])]).ok().json()["outputs"]
        assert (answer["shape"], answer["data"]) == ([1], [7.0])


def test_default_batch_size_option(models, start):
    repo.stock(models, "simple_auto")
    with Control(start(models, "--backend-config=default-max-batch-size=7")) as c:
        assert c.rest.get("/v2/models/simple_auto/config").json()["max_batch_size"] == 7


def test_partial_config_is_completed(models, start):
    repo.stock(models, "simple_auto")
    (models / "simple_auto" / "config.pbtxt").write_text("max_batch_size: 2\ninstance_group { count: 3 kind: KIND_CPU }\n")
    with Control(start(models)) as c:
        got = c.rest.get("/v2/models/simple_auto/config").json()
        assert (got["max_batch_size"], got["instance_group"][0]["count"], len(got["input"])) == (2, 3, 2)


def test_config_by_name(models, start):
    folder = repo.add(models, "m")
    repo.add(models, "other")
    (folder / "configs").mkdir()
    (folder / "configs" / "big.pbtxt").write_text(repo.config(max_batch_size=99))
    with Control(start(models, "--model-config-name=big")) as c:
        assert c.rest.get("/v2/models/m/config").json()["max_batch_size"] == 99
        assert c.rest.get("/v2/models/other/config").json()["max_batch_size"] == 0


@pytest.mark.parametrize("text", [
    "# comment\nbackend : 'identity' max_batch_size: 2,\ninput: [ { name: 'INPUT' '0' data_type: 8 dims: -1 } ];\n"
    "output < name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [-1] >",
    'backend:"identity"max_batch_size:0x2 input{name:"INPUT\\x30"data_type:TYPE_INT32 dims:[-1,]}output{name:"OUTPUT0"data_type:TYPE_INT32 dims:-1}',
], ids=["loose", "tight"])
def test_text_format(models, start, text):
    repo.add(models, "m", text if "dims:[-1,]" not in text else text.replace("[-1,]", "[-1]"))
    with Control(start(models)) as c:
        got = c.rest.get("/v2/models/m/config").json()
        assert (got["max_batch_size"], got["input"][0]["name"], got["input"][0]["data_type"]) == (2, "INPUT0", "TYPE_INT32")

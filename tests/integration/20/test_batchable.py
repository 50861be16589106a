"""Which models batch without a config, and the fate of those that turn out to be unable to."""
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from lib import repo
from lib.control import Control


def model(nodes, inputs, outputs, constants=()):
    """inputs and outputs: {name: dims}."""
    values = lambda io: [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(dims)) for n, dims in io.items()]  # noqa: E731
    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs), list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def concat(a, b, c):
    """OUTPUT0 is INPUT0 followed by INPUT1, with first dimensions of these names."""
    return model([helper.make_node("Concat", ["INPUT0", "INPUT1"], ["OUTPUT0"], axis=0)],
                 {"INPUT0": [a, 2], "INPUT1": [b, 2]}, {"OUTPUT0": [c, 2]})


def add(*names):
    """OUTPUT0 = INPUT0 + INPUT1, which can batch."""
    return model([helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"])],
                 {"INPUT0": [names[0], 2], "INPUT1": [names[1], 2]}, {"OUTPUT0": [names[2], 2]})


def one_row():
    """Declares any number of rows and takes one; ONNX Runtime cannot know, as the shape is computed."""
    nodes = [helper.make_node("Sub", ["INPUT0", "INPUT0"], ["zeros"]), helper.make_node("ReduceSum", ["zeros"], ["zero"], keepdims=0),
             helper.make_node("Cast", ["zero"], ["none"], to=TensorProto.INT64), helper.make_node("Add", ["shape", "none"], ["to"]),
             helper.make_node("Reshape", ["INPUT0", "to"], ["OUTPUT0"])]
    return model(nodes, {"INPUT0": [None, 2]}, {"OUTPUT0": [None, 2]}, [numpy_helper.from_array(np.array([1, 2]), "shape")])


def fp32(name, rows):
    return (name, "FP32", [rows, 2], [float(i) for i in range(2 * rows)])


def most(control):
    return control.rest.get("/v2/models/m/config").ok().json()["max_batch_size"]


@pytest.fixture
def load(models, start):
    controls = []

    def make(file, text="", *args):
        repo.add(models, "m", text, files={"1/model.onnx": file})
        server = start(models, "--start-warmup-time=600", "--default-warmup-time=600", *args)
        controls.append(Control(server))
        controls[-1].server = server
        return controls[-1]

    yield make
    [c.close() for c in controls]


def test_inputs_of_different_names(load):
    c = load(concat("left", "right", "both"), "", "--default-warmup-time=0")
    assert most(c) == 0
    reply = c.rest.infer("m", [fp32("INPUT0", 5), fp32("INPUT1", 1)])
    assert reply.ok().json()["outputs"][0]["shape"] == [6, 2]
    lines = [e["msg"] for e in c.server.events() if "no max_batch_size by itself" in e["msg"]]
    assert lines and all(f"'{w}'" in line for line in lines for w in ("INPUT0", "left", "INPUT1", "right"))


def test_an_output_of_another_name(load):
    assert most(load(add("rows", "rows", "others"))) == 0


@pytest.mark.parametrize("names", [("n", "n", "n"), (None, None, None), ("n", None, "n"), ("unk__1", "unk__2", "unk__3"),
                                   ("INPUT0_dynamic_axes_1", "INPUT1_dynamic_axes_1", "n"), ("n", "n", "Addoutput_dim_0")], ids=str)
def test_names_that_say_nothing_else(load, names):
    assert most(load(add(*names))) == 4


def test_dims_of_the_config_go_before_names(load):
    """They leave the batch dimension out, so there is one."""
    c = load(add("a", "b", "c"), 'input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }\ninput { name: "INPUT1" data_type: TYPE_FP32 dims: [ 2 ] }')
    assert most(c) == 4
    assert c.rest.infer("m", [fp32("INPUT0", 3), fp32("INPUT1", 3)]).status == 200


def test_max_batch_size_of_the_config_goes_before_names(load):
    c = load(add("a", "b", "c"), "max_batch_size: 3")
    assert most(c) == 3
    assert not [e for e in c.server.events() if "no max_batch_size by itself" in e["msg"]]


@pytest.mark.parametrize("file", [concat("n", "n", "n"), concat(None, None, None), one_row()], ids=["names", "no names", "one row"])
@pytest.mark.parametrize("text", ["", 'backend: "onnxruntime"'], ids=["no config", "plain"])
def test_a_model_that_fails_made_up_batches_does_not_batch(load, file, text):
    c = load(file, text)
    assert most(c) == 0
    (warning,) = [e for e in c.server.events() if e["event"] == "model.batching_off"]
    assert warning["level"] == "warning"
    inputs = [fp32("INPUT0", 3), fp32("INPUT1", 1)] if b"INPUT1" in file else [fp32("INPUT0", 1)]
    assert c.rest.infer("m", inputs).ok().json()["outputs"][0]["shape"] == [4 if b"INPUT1" in file else 1, 2]
    assert c.rest.get("/v2/models/m").ok().json()["inputs"][0]["shape"] == [-1, 2]


@pytest.mark.parametrize("text", ["max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 50000 preferred_batch_size: [ 4 ] }",
                                  'input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] } dynamic_batching { max_queue_delay_microseconds: 50000 }'],
                         ids=["given", "by the dims"])
def test_requests_are_not_joined_where_the_config_wants_rows(load, text):
    """Each alone, however many come at once."""
    c = load(one_row(), text)
    assert most(c) == 4
    assert [e["level"] for e in c.server.events() if e["event"] == "model.batching_off"] == ["warning"]
    begin, replies = threading.Barrier(8), []

    def ask():
        with Control(c.server) as mine:
            begin.wait()
            replies.append(mine.rest.infer("m", [fp32("INPUT0", 1)]).status)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert replies == [200] * 8
    (s,) = c.stats("m")
    assert s["inference_count"] == s["execution_count"] == 8


def test_without_made_up_requests_nothing_is_found_out(load):
    c = load(one_row(), "", "--default-warmup-time=0")
    assert most(c) == 4


# ---- backends that options name ----


@pytest.mark.parametrize("option", ["--backend-config=onxruntime,intra_op_thread_count=1", "--allow-backend=onxruntime",
                                    "--backend-config=../x,a=b"])
def test_a_misspelt_backend_keeps_the_server_from_starting(models, start, option):
    repo.add(models, "m")
    server = start(models, option, ready=False)
    server.checked = True
    assert server.wait_exit() == 1
    last = server.err().splitlines()[-1]
    assert option.split(",")[0] in last and "millrace doctor" in last, last


def test_a_backend_of_triton_is_warned_about(models, start):
    repo.add(models, "m")
    server = start(models, "--backend-config=tensorflow,version=2", "--backend-config=pytorch,DISABLE_OPTIMIZED_EXECUTION=true")
    assert [e["level"] for e in server.events() if e["event"] == "backend.absent"] == ["warning", "warning"]

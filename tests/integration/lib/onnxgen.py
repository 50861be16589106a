"""Small ONNX models whose answers identify them."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper


def adder(n, name="n", is_overridable=False):
    """OUTPUT0 = INPUT0 + n, INT32 vectors of any length, no batch dimension. `name` is that of n, which a request may override."""
    others = [helper.make_tensor_value_info(name, TensorProto.INT32, [1])] if is_overridable else []
    graph = helper.make_graph(
        [helper.make_node("Add", ["INPUT0", name], ["OUTPUT0"])], "adder",
        [helper.make_tensor_value_info("INPUT0", TensorProto.INT32, ["length"]), *others],
        [helper.make_tensor_value_info("OUTPUT0", TensorProto.INT32, ["length"])],
        [numpy_helper.from_array(np.array([n], np.int32), name)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def loop(n):
    """As adder(n), which adds 1 for n times."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["goes_on"]), helper.make_node("Add", ["sum", "one"], ["next"])], "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("sum", TensorProto.INT32, ["length"])],
        [value("goes_on", TensorProto.BOOL, []), value("next", TensorProto.INT32, ["length"])])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "INPUT0"], ["OUTPUT0"], body=body)], "loop",
        [value("INPUT0", TensorProto.INT32, ["length"])], [value("OUTPUT0", TensorProto.INT32, ["length"])],
        [numpy_helper.from_array(np.array(n, np.int64), "n"), numpy_helper.from_array(np.array([1], np.int32), "one")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def heavy(matrices, size):
    """A chain of matrix products: matrices * size * size * 4 bytes of weights."""
    names = ["INPUT0", *(f"x{i}" for i in range(1, matrices)), "OUTPUT0"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(matrices)]
    weights = [numpy_helper.from_array(np.full((size, size), i, np.float32), f"w{i}") for i in range(matrices)]
    shape = {name: [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])] for name in ("INPUT0", "OUTPUT0")}
    graph = helper.make_graph(nodes, "heavy", shape["INPUT0"], shape["OUTPUT0"], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def filler(elements=None):
    """Many FP32 from one INT64: as many as its value, in memory that ONNX Runtime allocates, or a fixed number, in memory that
    it is given."""
    nodes, weights = [helper.make_node("ConstantOfShape", ["INPUT0"], ["OUTPUT0"])], []
    if elements:
        nodes = [helper.make_node("Cast", ["INPUT0"], ["one"], to=TensorProto.FLOAT), helper.make_node("Expand", ["one", "shape"], ["OUTPUT0"])]
        weights = [numpy_helper.from_array(np.array([elements], np.int64), "shape")]
    graph = helper.make_graph(nodes, "filler", [helper.make_tensor_value_info("INPUT0", TensorProto.INT64, [1])],
                              [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, [elements or "many"])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


ADDER_CONFIG = """backend: "onnxruntime"
max_batch_size: 0
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""


def matrix(rng, size):
    """Random numbers by which a row's size stays about the same; cheaper to make than those of a bell curve."""
    return (rng.random((size, size), np.float32) - np.float32(0.5)) * np.float32((12 / size) ** 0.5)


def dense(layers, size, seed, fails=False):
    """A net of random numbers that differ with the seed: layers * size * size * 4 bytes of weights. One that `fails` loads,
    and cannot run: it asks for rows of another length than there are numbers for."""
    rng = np.random.default_rng(seed)
    names = ["INPUT0", *(f"x{i}" for i in range(1, layers)), "OUTPUT0"]
    nodes, weights = [], []
    for i in range(layers):
        nodes += [helper.make_node("MatMul", [names[i], f"w{i}"], [f"m{i}"]), helper.make_node("Tanh", [f"m{i}"], [names[i + 1]])]
        weights.append(numpy_helper.from_array(matrix(rng, size), f"w{i}"))
    if fails:
        nodes[-1].output[0] = "row"
        nodes.append(helper.make_node("Reshape", ["row", "shape"], ["OUTPUT0"]))
        weights.append(numpy_helper.from_array(np.array([-1, size + 1]), "shape"))
    shape = {name: [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size + (fails and name == "OUTPUT0")])]
             for name in ("INPUT0", "OUTPUT0")}
    graph = helper.make_graph(nodes, "dense", shape["INPUT0"], shape["OUTPUT0"], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def lookup(rows, size):
    """OUTPUT0 = tanh(table[INPUT0] * w): a table of rows * size * 4 bytes that is read as it is, and size * size * 4 bytes
    that are packed."""
    rng = np.random.default_rng(rows)
    weights = [numpy_helper.from_array(rng.standard_normal((n, size), np.float32), name) for n, name in ((rows, "table"), (size, "w"))]
    nodes = [helper.make_node("Gather", ["table", "INPUT0"], ["row"]), helper.make_node("MatMul", ["row", "w"], ["product"]),
             helper.make_node("Tanh", ["product"], ["OUTPUT0"])]
    graph = helper.make_graph(nodes, "lookup", [helper.make_tensor_value_info("INPUT0", TensorProto.INT64, ["length"])],
                              [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, ["length", size])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()

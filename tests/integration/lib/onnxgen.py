"""Small ONNX models whose answer tells which of them answered."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper


def adder(n):
    """OUTPUT0 = INPUT0 + n, INT32 vectors of any length, no batch dimension."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["INPUT0", "n"], ["OUTPUT0"])], "adder",
        [helper.make_tensor_value_info("INPUT0", TensorProto.INT32, ["length"])],
        [helper.make_tensor_value_info("OUTPUT0", TensorProto.INT32, ["length"])],
        [numpy_helper.from_array(np.array([n], np.int32), "n")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


ADDER_CONFIG = """backend: "onnxruntime"
max_batch_size: 0
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""

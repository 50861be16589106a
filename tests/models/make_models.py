#!/usr/bin/env python3
"""Makes the model repository of the tests, tests/models/repo.

The result is committed, so tests need neither this script nor its packages; run it after a change:

    python3 tests/models/make_models.py [folder]        (needs: numpy, onnx)

It writes the same bytes every time. Opset 17 and IR 8 load in ONNX Runtime 1.21 and newer. Every model is a
function below that is named like its folder; its docstring gives its use in the tests.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DTYPES = {  # name in folders: (ONNX type, config type)
    "bool": (TensorProto.BOOL, "TYPE_BOOL"),
    "uint8": (TensorProto.UINT8, "TYPE_UINT8"),
    "uint16": (TensorProto.UINT16, "TYPE_UINT16"),
    "uint32": (TensorProto.UINT32, "TYPE_UINT32"),
    "uint64": (TensorProto.UINT64, "TYPE_UINT64"),
    "int8": (TensorProto.INT8, "TYPE_INT8"),
    "int16": (TensorProto.INT16, "TYPE_INT16"),
    "int32": (TensorProto.INT32, "TYPE_INT32"),
    "int64": (TensorProto.INT64, "TYPE_INT64"),
    "fp16": (TensorProto.FLOAT16, "TYPE_FP16"),
    "fp32": (TensorProto.FLOAT, "TYPE_FP32"),
    "fp64": (TensorProto.DOUBLE, "TYPE_FP64"),
    "bytes": (TensorProto.STRING, "TYPE_STRING"),
    "bf16": (TensorProto.BFLOAT16, "TYPE_BF16"),
}


class Repo:
    """Writes models and configs below one folder."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    def file(self, name, data):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())

    def config(self, model, text):
        self.file(f"{model}/config.pbtxt", text.strip() + "\n")

    def onnx(self, model, nodes, inputs, outputs, initializers=(), version=1, ml=False):
        """inputs, outputs: (name, type, shape) or finished ValueInfoProtos."""
        value = lambda v: v if isinstance(v, onnx.ValueInfoProto) else helper.make_tensor_value_info(*v)
        graph = helper.make_graph(nodes, model, [value(v) for v in inputs], [value(v) for v in outputs],
                                  initializer=list(initializers))
        opsets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid("ai.onnx.ml", 3)] if ml else [])
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="millrace-tests")
        self.file(f"{model}/{version}/model.onnx", proto.SerializeToString(deterministic=True))
        return proto


def io_text(kind, *entries):
    """Config text of inputs or outputs: (name, config type, dims)."""
    return "".join(f'{kind} {{ name: "{n}" data_type: {t} dims: {list(d)} }}\n' for n, t, d in entries)


def add_sub(repo, model, onnx_type, shape, cast_to=None):
    """Two inputs, their sum and their difference; through `cast_to` where ONNX cannot add the type itself."""
    nodes = []
    operands = ["INPUT0", "INPUT1"]
    results = ["OUTPUT0", "OUTPUT1"]
    if cast_to is not None:
        nodes += [helper.make_node("Cast", [n], [n + "_number"], to=cast_to) for n in operands]
        operands = [n + "_number" for n in operands]
        results = [n + "_number" for n in results]
    nodes += [helper.make_node("Add", operands, results[:1]), helper.make_node("Sub", operands, results[1:])]
    if cast_to is not None:
        nodes += [helper.make_node("Cast", [n + "_number"], [n], to=onnx_type) for n in ("OUTPUT0", "OUTPUT1")]
    repo.onnx(model, nodes, [(n, onnx_type, shape) for n in ("INPUT0", "INPUT1")],
              [(n, onnx_type, shape) for n in ("OUTPUT0", "OUTPUT1")])


def add_sub_config(repo, model, config_type, more=""):
    repo.config(model, f'name: "{model}"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 8\n'
                + io_text("input", ("INPUT0", config_type, [16]), ("INPUT1", config_type, [16]))
                + io_text("output", ("OUTPUT0", config_type, [16]), ("OUTPUT1", config_type, [16])) + more)


def simple(repo):
    """Triton's example: INT32[16] x 2 -> sum, difference; batches up to 8."""
    add_sub(repo, "simple", TensorProto.INT32, ["batch", 16])
    add_sub_config(repo, "simple", "TYPE_INT32")


def simple_int8(repo):
    """Triton's example with INT8."""
    add_sub(repo, "simple_int8", TensorProto.INT8, ["batch", 16], cast_to=TensorProto.INT32)
    add_sub_config(repo, "simple_int8", "TYPE_INT8")


def simple_string(repo):
    """Triton's example with decimals as strings."""
    add_sub(repo, "simple_string", TensorProto.STRING, ["batch", 16], cast_to=TensorProto.INT32)
    add_sub_config(repo, "simple_string", "TYPE_STRING")


def simple_auto(repo):
    """`simple` without a config: everything is completed from the file."""
    add_sub(repo, "simple_auto", TensorProto.INT32, ["batch", 16])


def simple_fixed(repo):
    """`simple` with a fixed shape [1,16] and no batching, without a config."""
    add_sub(repo, "simple_fixed", TensorProto.INT32, [1, 16])


def versions(repo):
    """Three versions of one model, all served: version N adds N to its input."""
    for n in (1, 2, 3):
        repo.onnx("versions", [helper.make_node("Add", ["INPUT0", "n"], ["OUTPUT0"])],
                  [("INPUT0", TensorProto.INT32, ["batch", 4])], [("OUTPUT0", TensorProto.INT32, ["batch", 4])],
                  [numpy_helper.from_array(np.array([n], np.int32), "n")], version=n)
    repo.config("versions", 'name: "versions"\nbackend: "onnxruntime"\nmax_batch_size: 8\n'
                + io_text("input", ("INPUT0", "TYPE_INT32", [4])) + io_text("output", ("OUTPUT0", "TYPE_INT32", [4]))
                + "version_policy { all {} }")


def identities(repo):
    """identity_<dtype>: one input of any length, copied by ONNX; all data types."""
    for name, (onnx_type, config_type) in DTYPES.items():
        model = f"identity_{name}"
        repo.onnx(model, [helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])],
                  [("INPUT0", onnx_type, ["batch", "n"])], [("OUTPUT0", onnx_type, ["batch", "n"])])
        repo.config(model, f'name: "{model}"\nbackend: "onnxruntime"\nmax_batch_size: 64\n'
                    + io_text("input", ("INPUT0", config_type, [-1])) + io_text("output", ("OUTPUT0", config_type, [-1])))


def identity_any(repo):
    """No model file: the identity backend copies each input to the output of the same number."""
    repo.config("identity_any", 'name: "identity_any"\nbackend: "identity"\nmax_batch_size: 64\n'
                + io_text("input", ("INPUT0", "TYPE_FP32", [-1]), ("INPUT1", "TYPE_STRING", [-1]))
                + io_text("output", ("OUTPUT0", "TYPE_FP32", [-1]), ("OUTPUT1", "TYPE_STRING", [-1])))
    repo.file("identity_any/1/.keep", "")


def dynamic(repo):
    """Free dimensions that are no batch, zero included: the transpose and the shape of a matrix."""
    repo.onnx("dynamic", [helper.make_node("Transpose", ["X"], ["T"], perm=[1, 0]), helper.make_node("Shape", ["X"], ["S"])],
              [("X", TensorProto.FLOAT, ["rows", "columns"])],
              [("T", TensorProto.FLOAT, ["columns", "rows"]), ("S", TensorProto.INT64, [2])])
    repo.config("dynamic", 'name: "dynamic"\nbackend: "onnxruntime"\nmax_batch_size: 0\n'
                + io_text("input", ("X", "TYPE_FP32", [-1, -1]))
                + io_text("output", ("T", "TYPE_FP32", [-1, -1]), ("S", "TYPE_INT64", [2])))


def mlp(repo):
    """A small dense net with dynamic batching: 64 -> 32 -> 10, softmax."""
    rng = np.random.default_rng(7)
    weights = {"w1": rng.normal(0, 0.2, (64, 32)), "b1": rng.normal(0, 0.1, 32),
               "w2": rng.normal(0, 0.3, (32, 10)), "b2": rng.normal(0, 0.1, 10)}
    repo.onnx("mlp", [helper.make_node("Gemm", ["INPUT0", "w1", "b1"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
                      helper.make_node("Gemm", ["r", "w2", "b2"], ["z"]), helper.make_node("Softmax", ["z"], ["OUTPUT0"], axis=1)],
              [("INPUT0", TensorProto.FLOAT, ["batch", 64])], [("OUTPUT0", TensorProto.FLOAT, ["batch", 10])],
              [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()])
    repo.config("mlp", 'name: "mlp"\nbackend: "onnxruntime"\nmax_batch_size: 32\n'
                + io_text("input", ("INPUT0", "TYPE_FP32", [64])) + io_text("output", ("OUTPUT0", "TYPE_FP32", [10]))
                + "dynamic_batching { max_queue_delay_microseconds: 500 }\n"
                + "instance_group { count: 2 kind: KIND_CPU }")


def slow(repo):
    """A small file and a long computation, some 10 ms on one core: 1024 times the square of the input."""
    repo.onnx("slow", [helper.make_node("Expand", ["X", "shape"], ["m"]), helper.make_node("MatMul", ["m", "m"], ["mm"]),
                       helper.make_node("ReduceMean", ["mm"], ["mean"], keepdims=0),
                       helper.make_node("Reshape", ["mean", "one"], ["Y"])],
              [("X", TensorProto.FLOAT, [1])], [("Y", TensorProto.FLOAT, [1])],
              [numpy_helper.from_array(np.array([1024, 1024], np.int64), "shape"),
               numpy_helper.from_array(np.array([1], np.int64), "one")])
    repo.config("slow", 'name: "slow"\nbackend: "onnxruntime"\nmax_batch_size: 0\n'
                + io_text("input", ("X", "TYPE_FP32", [1])) + io_text("output", ("Y", "TYPE_FP32", [1])))


def optional(repo):
    """An optional input: SCALE has a default of 2 in the file."""
    repo.onnx("optional", [helper.make_node("Mul", ["X", "SCALE"], ["Y"])],
              [("X", TensorProto.FLOAT, [4]), ("SCALE", TensorProto.FLOAT, [1])], [("Y", TensorProto.FLOAT, [4])],
              [numpy_helper.from_array(np.array([2], np.float32), "SCALE")])
    repo.config("optional", 'name: "optional"\nbackend: "onnxruntime"\nmax_batch_size: 0\n'
                + io_text("input", ("X", "TYPE_FP32", [4]))
                + 'input { name: "SCALE" data_type: TYPE_FP32 dims: [1] optional: true }\n'
                + io_text("output", ("Y", "TYPE_FP32", [4])))


def scalar(repo):
    """A scalar output (rank 0), without a config."""
    repo.onnx("scalar", [helper.make_node("ReduceSum", ["X"], ["SUM"], keepdims=0)],
              [("X", TensorProto.FLOAT, ["n"])], [("SUM", TensorProto.FLOAT, [])])


def zipmap(repo):
    """A classifier as exporters make it by default: a label and a sequence of maps."""
    repo.onnx("zipmap",
              [helper.make_node("LinearClassifier", ["X"], ["label", "scores"], domain="ai.onnx.ml",
                                coefficients=[1.0, -1.0, 0.5, -1.0, 1.0, 0.5], intercepts=[0.0, 0.0],
                                classlabels_ints=[3, 7], post_transform="SOFTMAX", multi_class=0),
               helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[3, 7])],
              [("X", TensorProto.FLOAT, ["batch", 3])],
              [("label", TensorProto.INT64, ["batch"]),
               helper.make_value_info("probabilities", helper.make_sequence_type_proto(helper.make_map_type_proto(
                   TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))))], ml=True)


def sequence(repo):
    """A sequence of tensors, which no protocol carries: must be refused at load."""
    repo.onnx("sequence", [helper.make_node("SequenceConstruct", ["X", "X"], ["Y"])],
              [("X", TensorProto.FLOAT, ["n"])],
              [helper.make_value_info("Y", helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])))])


def control_text(name, kind, values):
    return f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{kind} {values} }} }}\n'


def seq_controls(repo):
    """The controls that a model of sequences gets: the input, 10 for a start, 100 for an end, 1000 times the correlation id;
    nothing of it in rows that are not ready."""
    one = ["batch", 1]
    repo.onnx("seq_controls",
              [helper.make_node("Cast", ["CORRID"], ["id"], to=TensorProto.INT32),
               helper.make_node("Mul", ["START", "ten"], ["start"]), helper.make_node("Mul", ["END", "hundred"], ["end"]),
               helper.make_node("Mul", ["id", "thousand"], ["id1000"]),
               helper.make_node("Add", ["INPUT", "start"], ["a"]),
               helper.make_node("Add", ["a", "end"], ["b"]), helper.make_node("Add", ["b", "id1000"], ["c"]),
               helper.make_node("Mul", ["c", "READY"], ["OUTPUT"])],
              [(n, TensorProto.INT32, one) for n in ("INPUT", "START", "END", "READY")] + [("CORRID", TensorProto.UINT64, one)],
              [("OUTPUT", TensorProto.INT32, one)],
              [numpy_helper.from_array(np.array([v], np.int32), n) for n, v in (("ten", 10), ("hundred", 100), ("thousand", 1000))])
    repo.config("seq_controls", 'name: "seq_controls"\nbackend: "onnxruntime"\nmax_batch_size: 4\n'
                + io_text("input", ("INPUT", "TYPE_INT32", [1])) + io_text("output", ("OUTPUT", "TYPE_INT32", [1]))
                + "sequence_batching {\ndirect { }\n"
                + "".join(control_text(n, n, "int32_false_true: [ 0, 1 ]") for n in ("START", "END", "READY"))
                + control_text("CORRID", "CORRID", "data_type: TYPE_UINT64") + "}")


def seq_sum(repo):
    """Implicit state: the sum of the sequence's inputs so far."""
    one = ["batch", 1]
    repo.onnx("seq_sum", [helper.make_node("Add", ["INPUT", "SUM_IN"], ["OUTPUT"]), helper.make_node("Identity", ["OUTPUT"], ["SUM_OUT"])],
              [("INPUT", TensorProto.INT32, one), ("SUM_IN", TensorProto.INT32, one)],
              [("OUTPUT", TensorProto.INT32, one), ("SUM_OUT", TensorProto.INT32, one)])
    repo.config("seq_sum", 'name: "seq_sum"\nbackend: "onnxruntime"\nmax_batch_size: 8\n'
                "sequence_batching {\noldest { max_candidate_sequences: 16 }\n"
                'state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [ 1 ] }\n}')


def seq_history(repo):
    """Implicit state that grows: all inputs of the sequence, after the initial zero."""
    row = ["batch", "n"]
    repo.onnx("seq_history", [helper.make_node("Concat", ["HISTORY_IN", "INPUT"], ["HISTORY_OUT"], axis=1)],
              [("INPUT", TensorProto.INT32, ["batch", 1]), ("HISTORY_IN", TensorProto.INT32, row)],
              [("HISTORY_OUT", TensorProto.INT32, ["batch", "m"])])
    repo.config("seq_history", 'name: "seq_history"\nbackend: "onnxruntime"\nmax_batch_size: 8\n'
                + io_text("input", ("INPUT", "TYPE_INT32", [1])) + io_text("output", ("HISTORY_OUT", "TYPE_INT32", [-1]))
                + "sequence_batching {\ndirect { }\n"
                'state { input_name: "HISTORY_IN" output_name: "HISTORY_OUT" data_type: TYPE_INT32 dims: [ -1 ] }\n}')


def complex64(repo):
    """An element type that no protocol carries: must be refused at load."""
    repo.onnx("complex64", [helper.make_node("Identity", ["X"], ["Y"])],
              [("X", TensorProto.COMPLEX64, ["n"])], [("Y", TensorProto.COMPLEX64, ["n"])])


def passthrough(repo):
    """Outputs that are no computation: an input as it is, and a constant."""
    repo.onnx("passthrough", [helper.make_node("Identity", ["X"], ["COPY"])],
              [("X", TensorProto.FLOAT, ["n"])],
              [("X", TensorProto.FLOAT, ["n"]), ("COPY", TensorProto.FLOAT, ["n"]), ("C", TensorProto.INT64, [3])],
              [numpy_helper.from_array(np.array([1, 2, 3], np.int64), "C")])


def lying(repo):
    """Declares as many results as elements, but gives the positions of those that are not zero."""
    repo.onnx("lying", [helper.make_node("NonZero", ["X"], ["P"]), helper.make_node("Squeeze", ["P", "axis"], ["Y"])],
              [("X", TensorProto.INT32, ["n"])], [("Y", TensorProto.INT64, ["n"])],
              [numpy_helper.from_array(np.array([0], np.int64), "axis")])


def external(repo):
    """Weights in a file beside the model."""
    weights = np.arange(32, dtype=np.float32)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[32], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", str(weights.nbytes))):
        tensor.external_data.add(key=key, value=value)
    repo.onnx("external", [helper.make_node("Add", ["X", "w"], ["Y"])],
              [("X", TensorProto.FLOAT, ["batch", 32])], [("Y", TensorProto.FLOAT, ["batch", 32])], [tensor])
    repo.file("external/1/weights.bin", weights.tobytes())


def folder(repo):
    """The model file as a folder: model.onnx/model.onnx."""
    add_sub(repo, "folder/1", TensorProto.INT32, ["batch", 16])
    (repo.root / "folder/1/1/model.onnx").rename(repo.root / "folder/1/model.onnx.tmp")
    (repo.root / "folder/1/1").rmdir()
    (repo.root / "folder/1/model.onnx").mkdir(exist_ok=True)
    (repo.root / "folder/1/model.onnx.tmp").rename(repo.root / "folder/1/model.onnx/model.onnx")


def broken(repo):
    """The model file is no model."""
    repo.file("broken/1/model.onnx", b"this is not a model\n" * 8)
    add_sub_config(repo, "broken", "TYPE_INT32")


def truncated(repo):
    """The first half of a model file."""
    whole = (repo.root / "mlp/1/model.onnx").read_bytes()
    repo.file("truncated/1/model.onnx", whole[:len(whole) // 2])


def disagree_type(repo):
    """The config has FP32, the file INT32."""
    add_sub(repo, "disagree_type", TensorProto.INT32, ["batch", 16])
    add_sub_config(repo, "disagree_type", "TYPE_FP32")


def disagree_batch(repo):
    """The config asks for batches, the file has a fixed first dimension."""
    add_sub(repo, "disagree_batch", TensorProto.INT32, [16])
    add_sub_config(repo, "disagree_batch", "TYPE_INT32")


def disagree_name(repo):
    """The config has an input that the file has not."""
    add_sub(repo, "disagree_name", TensorProto.INT32, ["batch", 16])
    repo.config("disagree_name", 'name: "disagree_name"\nbackend: "onnxruntime"\nmax_batch_size: 8\n'
                + io_text("input", ("INPUT0", "TYPE_INT32", [16]), ("INPUT_X", "TYPE_INT32", [16]))
                + io_text("output", ("OUTPUT0", "TYPE_INT32", [16])))


def main():
    repo = Repo(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "repo")
    for make in (simple, simple_int8, simple_string, simple_auto, simple_fixed, versions, identities, identity_any,
                 dynamic, mlp, slow, optional, scalar, zipmap, sequence, seq_controls,
                 seq_sum, seq_history, complex64, passthrough, lying, external, folder,
                 broken, truncated, disagree_type, disagree_batch, disagree_name):
        make(repo)


if __name__ == "__main__":
    main()

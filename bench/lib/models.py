"""The model repositories of the bench. Both servers read the same folders; all is made anew, with fixed numbers.

Models run on one thread: with more, ONNX Runtime's own pool would leave the CPU that the server is pinned to.
"""
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from . import machine

sys.path.insert(0, str(machine.ROOT / "tests/models"))
from make_models import Repo, add_sub, io_text  # noqa: E402

ONE_THREAD = "".join(f'parameters {{ key: "{k}" value: {{ string_value: "1" }} }}\n'
                     for k in ("intra_op_thread_count", "inter_op_thread_count"))
DELAY_500_US = "dynamic_batching { max_queue_delay_microseconds: 500 }\n"
FLOAT = TensorProto.FLOAT


def config(repo, model, backend, batch, inputs, outputs, more=""):
    instances = getattr(repo, "instances", 1)
    repo.config(model, f'name: "{model}"\nbackend: "{backend}"\nmax_batch_size: {batch}\n' + io_text("input", *inputs)
                + io_text("output", *outputs) + f"instance_group {{ count: {instances} kind: KIND_CPU }}\n" + (ONE_THREAD if backend == "onnxruntime" else "") + more)


def weights(rng, name, *shape):
    scale = np.sqrt(np.prod(shape[1:]) or 1)
    return numpy_helper.from_array((rng.standard_normal(shape) / scale).astype(np.float32), name)


def simple(repo):
    """Two INT32[16] in, their sum and difference out."""
    add_sub(repo, "simple", TensorProto.INT32, ["n", 16])
    pair = lambda names: [(n, "TYPE_INT32", [16]) for n in names]
    config(repo, "simple", "onnxruntime", 8, pair(("INPUT0", "INPUT1")), pair(("OUTPUT0", "OUTPUT1")))


def identity_pair(repo, model="identity", more=""):
    """The same tensors without a computation: the identity backend."""
    pair = lambda names: [(n, "TYPE_INT32", [16]) for n in names]
    config(repo, model, "identity", 8, pair(("INPUT0", "INPUT1")), pair(("OUTPUT0", "OUTPUT1")), more)
    repo.file(f"{model}/1/.keep", "")


def in_processes(repo):
    """The identity backend in a thread of the server and in a worker process, with small and large tensors."""
    for model, more in (("threads", ""), ("processes", 'parameters { key: "execution_placement" value: { string_value: "process" } }\n')):
        identity_pair(repo, model, more)
        config(repo, f"{model}_fp32", "identity", 0, [("INPUT0", "TYPE_FP32", [-1, -1])], [("OUTPUT0", "TYPE_FP32", [-1, -1])], more)
        repo.file(f"{model}_fp32/1/.keep", "")


PYTHON_IDENTITY = """import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        import json
        self.count = len(json.loads(args["model_config"])["input"])

    def execute(self, requests):
        take = lambda r, i: pb.get_input_tensor_by_name(r, f"INPUT{i}").as_numpy()
        return [pb.InferenceResponse([pb.Tensor(f"OUTPUT{i}", take(r, i)) for i in range(self.count)]) for r in requests]
"""


def in_python(repo):
    """The same by Triton's python backend, the only one of its that has a process of its own."""
    pair = lambda names: [(n, "TYPE_INT32", [16]) for n in names]
    config(repo, "processes", "python", 8, pair(("INPUT0", "INPUT1")), pair(("OUTPUT0", "OUTPUT1")))
    config(repo, "processes_fp32", "python", 0, [("INPUT0", "TYPE_FP32", [-1, -1])], [("OUTPUT0", "TYPE_FP32", [-1, -1])])
    for model in ("processes", "processes_fp32"):
        repo.file(f"{model}/1/model.py", PYTHON_IDENTITY)


PYTHON_REPEAT = """import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for i in range(int(pb.get_input_tensor_by_name(request, "IN").as_numpy()[0])):
                sender.send(pb.InferenceResponse([pb.Tensor("OUT", np.array([i], np.int32))]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
PYTHON_CHAIN = """import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request.inputs()) for request in requests]

    def one(self, inputs):
        for _ in range(3):
            answer = pb.InferenceRequest(model_name="processes", requested_output_names=["OUTPUT0", "OUTPUT1"],
                                         inputs=[pb.Tensor(f"INPUT{i}", t.as_numpy()) for i, t in enumerate(inputs)]).exec()
            if answer.has_error():
                return pb.InferenceResponse(error=answer.error())
            inputs = [pb.get_output_tensor_by_name(answer, f"OUTPUT{i}") for i in range(2)]
        return pb.InferenceResponse([pb.Tensor(f"OUTPUT{i}", t.as_numpy()) for i, t in enumerate(inputs)])
"""


def in_python_more(repo):
    """A model of many answers, and one that asks another three times."""
    pair = lambda names: [(n, "TYPE_INT32", [16]) for n in names]
    in_python(repo)
    config(repo, "repeat", "python", 0, [("IN", "TYPE_INT32", [1])], [("OUT", "TYPE_INT32", [1])],
           "model_transaction_policy { decoupled: true }\n")
    repo.file("repeat/1/model.py", PYTHON_REPEAT)
    config(repo, "chain", "python", 8, pair(("INPUT0", "INPUT1")), pair(("OUTPUT0", "OUTPUT1")))
    repo.file("chain/1/model.py", PYTHON_CHAIN)


def chain(repo, model, step, kind, dims, batch):
    """An ensemble: `step` three times, one after the other."""
    names = [f"{{}}{i}" for i in range(len(dims))]
    value = lambda name, at: name.format("INPUT") if at == 0 else name.format("OUTPUT") if at == 3 else f"{name.format('T')}_{at}"
    steps = []
    for at in range(3):
        maps = [f'input_map {{ key: "{n.format("INPUT")}" value: "{value(n, at)}" }} '
                f'output_map {{ key: "{n.format("OUTPUT")}" value: "{value(n, at + 1)}" }}' for n in names]
        steps.append(f'step {{ model_name: "{step}" model_version: -1 {" ".join(maps)} }}')
    io = lambda word: [(n.format(word), kind, d) for n, d in zip(names, dims)]
    repo.config(model, f'name: "{model}"\nplatform: "ensemble"\nmax_batch_size: {batch}\n' + io_text("input", *io("INPUT"))
                + io_text("output", *io("OUTPUT")) + "ensemble_scheduling {\n" + "\n".join(steps) + "\n}\n")
    repo.file(f"{model}/1/.keep", "")


def graphs(repo):
    """Steps of the identity backend, and ensembles of three of them."""
    identity_pair(repo, "step")
    config(repo, "step_fp32", "identity", 0, [("INPUT0", "TYPE_FP32", [-1, -1])], [("OUTPUT0", "TYPE_FP32", [-1, -1])])
    repo.file("step_fp32/1/.keep", "")
    chain(repo, "chain3", "step", "TYPE_INT32", [[16], [16]], 8)
    chain(repo, "chain3_fp32", "step_fp32", "TYPE_FP32", [[-1, -1]], 0)


def part(repo):
    rows = ("TYPE_INT32", [16])
    config(repo, "part", "identity", 8, [("INPUT0", *rows)], [("OUTPUT0", *rows)])
    repo.file("part/1/.keep", "")


def far(folder, port):
    """The repository `far`: a model and a workflow that asks it and then that of the server with this port."""
    repo = Repo(Path(folder, "far"))
    part(repo)
    step = 'node {{ name: "{}" model {{ name: "part" {} }} input_map {{ key: "INPUT0" value: "{}" }} output_map {{ key: "OUTPUT0" value: "{}" }} }}'
    repo.config("far", 'name: "far"\nplatform: "workflow"\nmax_batch_size: 8\n' + io_text("input", ("INPUT0", "TYPE_INT32", [16]))
                + io_text("output", ("OUTPUT0", "TYPE_INT32", [16])) + "workflow_scheduling { " + step.format("near", "", "INPUT0", "t")
                + step.format("far", f'remote: "grpc://127.0.0.1:{port}"', "t", "OUTPUT0") + " }\n")
    repo.file("far/1/.keep", "")


def workflows(repo):
    """A model of rows, a workflow that divides rows among two branches of it, and one that runs it for each of any number of rows."""
    part(repo)
    node = ('node {{ name: "{}" model {{ name: "part" }} input_map {{ key: "INPUT0" value: "INPUT0" }} '
            'output_map {{ key: "OUTPUT0" value: "OUTPUT0" }} {} }}')
    switch = 'switch { name: "s" per: ROW input: "INPUT0" case { when: "INPUT0[0] % 2 == 1" node: "odd" } else { node: "even" } }'
    graph = {"switch": (8, [16], node.format("odd", "") + node.format("even", "") + switch),
             "each": (0, [-1, 16], node.format("one", 'foreach { over: "INPUT0" }'))}
    for model, (batch, dims, text) in graph.items():
        repo.config(model, f'name: "{model}"\nplatform: "workflow"\nmax_batch_size: {batch}\n' + io_text("input", ("INPUT0", "TYPE_INT32", dims))
                    + io_text("output", ("OUTPUT0", "TYPE_INT32", dims)) + f"workflow_scheduling {{ {text} }}\n")
        repo.file(f"{model}/1/.keep", "")


def python_graphs(repo):
    """The same of Python models."""
    pair = lambda names: [(n, "TYPE_INT32", [16]) for n in names]
    config(repo, "step", "python", 8, pair(("INPUT0", "INPUT1")), pair(("OUTPUT0", "OUTPUT1")))
    repo.file("step/1/model.py", PYTHON_IDENTITY)
    chain(repo, "chain3", "step", "TYPE_INT32", [[16], [16]], 8)


def of_mlserver(repo):
    """Two tensors that are sent back, in a folder of MLServer."""
    repo.file("identity/model-settings.json", '{"name": "identity", "implementation": "runtime.Identity"}')
    repo.file("identity/runtime.py", """from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Identity(MLModel):
    async def predict(self, payload):
        outputs = [NumpyCodec.encode_output(f"OUTPUT{i}", self.decode(t, default_codec=NumpyCodec))
                   for i, t in enumerate(payload.inputs)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
""")


def identity_rows(repo):
    """A matrix of any size, as ONNX Runtime copies it and by the identity backend."""
    repo.onnx("identity_onnx", [helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])],
              [("INPUT0", FLOAT, ["n", "m"])], [("OUTPUT0", FLOAT, ["n", "m"])])
    for model, backend in (("identity_onnx", "onnxruntime"), ("identity_fp32", "identity")):
        config(repo, model, backend, 0, [("INPUT0", "TYPE_FP32", [-1, -1])], [("OUTPUT0", "TYPE_FP32", [-1, -1])])
        repo.file(f"{model}/1/.keep", "")


def dense(repo, variants=(("dense", ""), ("dense_batched", DELAY_500_US)), batch=64):
    """64 -> 128 -> 128 -> 10, without and with dynamic batching."""
    for model, more in variants:
        rng, sizes, nodes, inits, last = np.random.default_rng(7), [64, 128, 128, 10], [], [], "INPUT0"
        for i in range(3):
            inits += [weights(rng, f"w{i}", sizes[i], sizes[i + 1]), weights(rng, f"b{i}", sizes[i + 1])]
            out = "OUTPUT0" if i == 2 else f"g{i}"
            nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [out]))
            if i < 2:
                nodes.append(helper.make_node("Relu", [out], [f"r{i}"]))
            last = f"r{i}"
        repo.onnx(model, nodes, [("INPUT0", FLOAT, ["n", 64])], [("OUTPUT0", FLOAT, ["n", 10])], inits)
        config(repo, model, "onnxruntime", batch, [("INPUT0", "TYPE_FP32", [64])], [("OUTPUT0", "TYPE_FP32", [10])], more)


def table_models(repo):
    """The same net for calls of many rows; texts that come back as they are."""
    dense(repo, (("dense_rows", ""),), 1024)
    config(repo, "text", "identity", 1024, [("INPUT0", "TYPE_STRING", [1])], [("OUTPUT0", "TYPE_STRING", [1])])
    repo.file("text/1/.keep", "")


def convolutional(repo):
    """A residual net on 160 x 160 pixels: 5 to 10 ms an item."""
    rng, nodes, inits = np.random.default_rng(8), [], []

    def conv(x, channels_in, channels, size, stride, relu=True):
        n = len(nodes)
        inits.extend([weights(rng, f"w{n}", channels, channels_in, size, size), weights(rng, f"b{n}", channels)])
        nodes.append(helper.make_node("Conv", [x, f"w{n}", f"b{n}"], [f"c{n}"], kernel_shape=[size] * 2,
                                      strides=[stride] * 2, pads=[size // 2] * 4))
        return add_relu(f"c{n}") if relu else f"c{n}"

    def add_relu(x):
        nodes.append(helper.make_node("Relu", [x], [x + "_relu"]))
        return x + "_relu"

    x, channels = conv("INPUT0", 3, 32, 7, 2), 32
    for wanted in (32, 32, 64, 64, 128, 128):
        stride = 1 if wanted == channels else 2
        y = conv(conv(x, channels, wanted, 3, stride), wanted, wanted, 3, 1, relu=False)
        beside = x if stride == 1 else conv(x, channels, wanted, 1, stride, relu=False)
        name = f"a{len(nodes)}"
        nodes.append(helper.make_node("Add", [y, beside], [name]))
        x, channels = add_relu(name), wanted
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", "wf", "bf"], ["OUTPUT0"]))
    inits += [weights(rng, "wf", 128, 100), weights(rng, "bf", 100)]
    repo.onnx("convolutional", nodes, [("INPUT0", FLOAT, ["n", 3, 160, 160])], [("OUTPUT0", FLOAT, ["n", 100])], inits)
    config(repo, "convolutional", "onnxruntime", 16, [("INPUT0", "TYPE_FP32", [3, 160, 160])],
           [("OUTPUT0", "TYPE_FP32", [100])])


def products(repo, model, count, version=1, more=""):
    """A chain of matrices of 2048 x 2048, 16 MiB each; other numbers in each version."""
    rng, nodes, inits, last = np.random.default_rng(8 + version), [], [], "INPUT0"
    for i in range(count):
        inits.append(weights(rng, f"w{i}", 2048, 2048))
        out = "OUTPUT0" if i == count - 1 else f"h{i}"
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [out]))
        last = out
    repo.onnx(model, nodes, [("INPUT0", FLOAT, ["n", 2048])], [("OUTPUT0", FLOAT, ["n", 2048])], inits, version=version)
    config(repo, model, "onnxruntime", 8, [("INPUT0", "TYPE_FP32", [2048])], [("OUTPUT0", "TYPE_FP32", [2048])], more)


def restart(repo):
    """400 MB of weights in a worker process: alone, with another one that stands by, and with one that makes up no requests."""
    parameter = lambda key, value: f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
    process, standby = parameter("execution_placement", "process"), parameter("worker_standby", "1")
    products(repo, "alone", 24, more=process)
    products(repo, "standby", 24, more=process + standby)
    products(repo, "standby_unwarmed", 24, more=process + standby + parameter("millrace.default_warmup", "false"))


def heavy(repo):
    """200 MB of weights."""
    products(repo, "heavy", 12)


def large(repo):
    """384 MiB of weights, in two versions."""
    products(repo, "large", 24)
    products(repo, "large", 24, version=2)


def medium(repo):
    """128 MiB of weights, in two versions."""
    products(repo, "large", 8)
    products(repo, "large", 8, version=2)


def giant(repo):
    """A gigabyte of weights."""
    products(repo, "large", 64)


TWO = "-two"


def make(folder, kind):
    """Makes the repository `kind` below the folder unless it is there; its path. With TWO behind it each model has two instances."""
    root = Path(folder, kind)
    if root.exists():
        return root
    root.mkdir(parents=True)
    repo = Repo(root)
    repo.instances = 2 if kind.endswith(TWO) else 1
    kind = kind.removesuffix(TWO)
    many = kind.split("-")
    if many[0] == "many":
        for i in range(int(many[1])):
            identity_pair(repo, f"m{i}")
    else:
        for one in {"main": (simple, identity_pair, identity_rows, dense, convolutional), "small": (simple,),
                    "counted": (simple, identity_pair), "heavy": (heavy,), "restart": (restart,), "updates": (simple, large), "busy updates": (simple, medium),
                    "giant": (simple, giant), "tables": (table_models,), "workers": (in_processes,), "python": (in_python_more,),
                    "graphs": (graphs,), "workflows": (workflows,), "python-graphs": (python_graphs,), "mlserver": (of_mlserver,), "empty": ()}[kind]:
            one(repo)
    return root

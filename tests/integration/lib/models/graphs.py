"""Ensembles, workflows, and clients that ask them through both protocols."""
import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from lib import onnxgen, repo


def step(model, inputs, outputs, version=-1):
    maps = "".join(f' input_map {{ key: "{k}" value: "{v}" }}' for k, v in inputs.items())
    maps += "".join(f' output_map {{ key: "{k}" value: "{v}" }}' for k, v in outputs.items())
    return f'step {{ model_name: "{model}" model_version: {version}{maps} }}'


def ensemble(*steps, inputs=None, outputs=None, extra="", **kw):
    """The text of an ensemble's config.pbtxt."""
    text = repo.config(inputs=inputs, outputs=outputs, **kw).replace('backend: "identity"', 'platform: "ensemble"')
    return text + f"ensemble_scheduling {{ {' '.join(steps)} {extra} }}\n"


def adders(models, **numbers):
    for name, n in numbers.items():
        repo.add(models, name, onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(n)})


class Clients:
    """One request through each protocol; the answers must agree."""

    def __init__(self, server):
        self.http = httpclient.InferenceServerClient(server.url("http"))
        self.grpc = grpcclient.InferenceServerClient(server.url("grpc"))

    def ask(self, model, tensors, outputs=None, **kw):
        answers = []
        for kit, client in ((httpclient, self.http), (grpcclient, self.grpc)):
            inputs = []
            for name, array in tensors.items():
                dtype = {np.int32: "INT32", np.float32: "FP32", np.int64: "INT64", np.object_: "BYTES"}[array.dtype.type]
                inputs.append(kit.InferInput(name, array.shape, dtype))
                inputs[-1].set_data_from_numpy(array)
            wanted = [kit.InferRequestedOutput(o) for o in outputs] if outputs else None
            more = {"headers": dict(kw["headers"])} if "headers" in kw else {}  # the HTTP client adds its own to them
            answers.append(client.infer(model, inputs, outputs=wanted, **{**kw, **more}))
        names = [[o["name"] for o in answers[0].get_response()["outputs"]], [o.name for o in answers[1].get_response().outputs]]
        assert names[0] == names[1]
        found = [{n: a.as_numpy(n) for n in names[0]} for a in answers]
        for n in names[0]:
            assert np.array_equal(found[0][n], found[1][n])
        return found[0]



def vector(*numbers):
    return np.array(numbers, np.int32)


def node(name, model, inputs=None, outputs=None, extra=""):
    inputs = {"INPUT0": "INPUT0"} if inputs is None else inputs
    outputs = {"OUTPUT0": "OUTPUT0"} if outputs is None else outputs
    maps = "".join(f' input_map {{ key: "{k}" value: "{v}" }}' for k, v in inputs.items())
    maps += "".join(f' output_map {{ key: "{k}" value: "{v}" }}' for k, v in outputs.items())
    return f'node {{ name: "{name}" model {{ name: "{model}" }}{maps} {extra} }}\n'


def op(name, kind, inputs, outputs, extra="", **parameters):
    """A node that is an operator."""
    maps = "".join(f' input_map {{ key: "{k}" value: "{v}" }}' for k, v in inputs.items())
    maps += "".join(f' output_map {{ key: "{k}" value: "{v}" }}' for k, v in outputs.items())
    settings = "".join(f' parameters {{ key: "{k}" value: "{v}" }}' for k, v in parameters.items())
    return f'node {{ name: "{name}" op: "{kind}"{maps}{settings} {extra} }}\n'


def workflow(*nodes, extra="", inputs=None, outputs=None, **kw):
    text = repo.config(inputs=inputs, outputs=outputs, **kw).replace('backend: "identity"', 'platform: "workflow"')
    return text + f"workflow_scheduling {{ {''.join(nodes)} {extra} }}\n"

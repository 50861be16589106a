"""Parameters that a model gives its answers reach the client, with their types."""
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lib import grpcraw, pymodels, repo
from lib.rest import Rest, infer_path
from lib.stream import DECOUPLED, Stream

MODELS = Path(__file__).parent / "models"
GIVEN = {"text": "grüße", "int": -(1 << 40), "yes": True, "no": False, "real": 0.5, "whole": 2.0, "": "x"}
TYPED = {k: v for k, v in GIVEN.items() if k}
KINDS = {"text": "string_param", "int": "int64_param", "yes": "bool_param", "no": "bool_param", "real": "double_param",
         "whole": "double_param"}
LONG = 600  # seconds; a batch that is complete does not wait
BATCHES = f"dynamic_batching {{ max_queue_delay_microseconds: {LONG * 1000000} }}"


@pytest.fixture
def serve(models, start):
    def make(extra="", max_batch_size=1):
        pymodels.add(models, "m", MODELS / "said.py", extra=extra, max_batch_size=max_batch_size,
                     inputs=[repo.tensor("INPUT0", "TYPE_STRING", (1,))], outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (1,))])
        return start(models, *pymodels.options(), "--batching-delay=exact")
    return make


def request(*said):
    return grpcraw.request("m", [("INPUT0", "BYTES", [1, 1], {"bytes_contents": [json.dumps(said).encode()]})])


def ask(rest, *said, word="infer"):
    body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1, 1], "data": [json.dumps(said)]}]}
    return rest.post(infer_path("m"), body) if word == "infer" else rest.post(f"/v2/models/m/{word}", {"INPUT0": json.dumps(said)})


def typed(answer):
    return {k: getattr(p, p.WhichOneof("parameter_choice")) for k, p in answer.parameters.items()}


def check_rest(server):
    with Rest(server.http) as rest:
        reply = ask(rest, TYPED).ok().json()
        assert reply["parameters"] == TYPED and list(reply["parameters"]) == list(TYPED)
        assert type(reply["parameters"]["yes"]) is bool and type(reply["parameters"]["int"]) is int
        assert type(reply["parameters"]["whole"]) is float
        assert "parameters" not in ask(rest, {}).ok().json()
        generated = ask(rest, TYPED, word="generate").ok().json()
        assert generated == {"model_name": "m", "model_version": "1", **TYPED, "OUTPUT0": 1}


def check_refused(server):
    """What no parameter can be is the answer's error, and the model goes on."""
    with Rest(server.http) as rest:
        for said, text in ((GIVEN, "no name"), ({"a": None}, "Expect parameters values"), ({"a": [1]}, "Expect parameters values"),
                           ({str(i): i for i in range(65)}, "65 parameters, allowed are 64"), ({"a": 1 << 64}, "not of its type"),
                           ({"a": "x" * 16384}, "16385 bytes, allowed are 16384"), ({"a": "b\0c"}, "character NUL"),
                           ({"a": float("inf")}, "not of its type")):
            reply = ask(rest, said)
            assert reply.status == 500 and text in reply.error, (said, reply.body)
        most = {str(i): "y" * 250 for i in range(64)}
        assert ask(rest, most).ok().json()["parameters"] == most


def test_one_answer(serve):
    server = serve()
    check_rest(server)
    check_refused(server)
    with grpcraw.Grpc(server.url("grpc")) as client:
        answer = client.stub.ModelInfer(request(TYPED))
    assert typed(answer) == TYPED
    assert {k: p.WhichOneof("parameter_choice") for k, p in answer.parameters.items()} == KINDS


def test_batch(serve):
    """Each request of a batch gets its own."""
    server = serve(BATCHES, max_batch_size=4)
    said = [{"a": 1}, {}, {"b": "2", "c": True}, {"a": "4"}]

    def one(parameters):
        with Rest(server.http) as rest:
            return ask(rest, parameters).ok().json()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(one, said))
    assert [a.get("parameters", {}) for a in answers] == said
    assert {a["outputs"][0]["data"][0] for a in answers} == {4}


def test_several_answers(serve):
    """Each answer of a decoupled model has its own, beside the server's mark of the last one."""
    server = serve(DECOUPLED)
    with Stream(server.url("grpc")) as stream:
        stream.send(request({"n": 1}, {}, TYPED, {"triton_final_response": "mine"}))
        answers = [a.infer_response for a in stream.take(4)]
    assert [typed(a) for a in answers] == [{"triton_final_response": False, **p} for p in ({"n": 1}, {}, TYPED, {})]
    with Rest(server.http) as rest:
        lines = ask(rest, {"n": 1}, {"n": 2}, word="generate_stream").ok().body.decode().split("\n\n")
    assert [json.loads(line[6:])["n"] for line in lines if line] == [1, 2]


ASKING = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.one(*json.loads(request.inputs()[0].as_numpy().ravel()[0])) for request in requests]

    def one(self, is_decoupled, said):
        request = pb_utils.InferenceRequest(model_name="m", requested_output_names=["OUTPUT0"], inputs=[
            pb_utils.Tensor("INPUT0", np.array([[json.dumps(said).encode()]], np.object_))])
        answers = request.exec(decoupled=True) if is_decoupled else [request.exec()]
        found = [json.loads(answer.parameters()) for answer in answers if answer.output_tensors()]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([[json.dumps(found).encode()]], np.object_))])
"""


@pytest.mark.few
@pytest.mark.parametrize("is_decoupled", [False, True])
def test_models_that_ask(models, serve, is_decoupled):
    """They get the parameters of each answer, with their types."""
    pymodels.add(models, "asking", ASKING, max_batch_size=1, inputs=[repo.tensor("INPUT0", "TYPE_STRING", (1,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_STRING", (1,))])
    server = serve(DECOUPLED if is_decoupled else "")
    said = [TYPED, {}, {"n": 3}] if is_decoupled else [TYPED]
    with Rest(server.http) as rest:
        body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1, 1], "data": [json.dumps([is_decoupled, said])]}]}
        answer = rest.post(infer_path("asking"), body).ok().json()["outputs"][0]["data"][0]
    assert json.loads(answer) == said

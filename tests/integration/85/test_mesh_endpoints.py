"""Endpoints and services in a mesh: the model that a request leads to comes when it is asked, wherever that is."""
import http.client
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.models.graphs import adders
from lib.rest import Rest

KINDS = ("rest", "generate", "grpc", "stream")
TARGETS = {"": 1, "y": 10, "z": 100}  # of the service by the request's `lang`

SERVICE = """
endpoint { name: "ep" variant { tag: "x" model: "a" weight: 50 } variant { tag: "y" model: "b" weight: 50 } }
endpoint { name: "numbered" variant { tag: "x" model: "a" weight: 100 } variant { tag: "y" model: "b" version: 1 weight: 0 } }
service {
  name: "service" request_field_key: "lang" default: "a"
  value_mapped_workflows { request_field_value: "y" workflow: "b" }
  value_mapped_workflows { request_field_value: "z" workflow: "c" }
}
"""


def answer(server, kind, model, lang=""):
    """To the number 1."""
    parameters = {"lang": lang} if lang else {}
    if kind == "rest":
        with Rest(server.http) as rest:
            return rest.infer(model, [("INPUT0", "INT32", [1], [1])], parameters=parameters).ok().json()["outputs"][0]["data"][0]
    if kind == "generate":
        with Rest(server.http) as rest:
            return rest.post(f"/v2/models/{model}/generate", {"INPUT0": [1], **parameters}).ok().json()["OUTPUT0"]
    message = grpcraw.int32(model, [1], parameters=parameters)
    with grpcraw.Grpc(server.url("grpc")) as client:
        if kind == "grpc":
            reply = client.infer(message)
        else:
            [reply] = client.stub.ModelStreamInfer(iter([message]), timeout=wait.PATIENCE)
            assert not reply.error_message, reply.error_message
            reply = reply.infer_response
    return int.from_bytes(reply.raw_output_contents[0], "little")


@pytest.fixture
def serve(fleet, models, tmp_path):
    def make():
        repo.write(tmp_path / "endpoints.pbtxt", SERVICE)
        return fleet(models, models, options=["--loop-threads=1", f"--endpoints={tmp_path / 'endpoints.pbtxt'}"])
    return make


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_each_variant_comes_when_it_is_asked(serve, models, kind):
    adders(models, a=1, b=10, c=100)
    for server in serve():
        for lang, added in TARGETS.items():
            assert answer(server, kind, "service", lang) == 1 + added
        assert sorted(answer(server, kind, "ep") for _ in range(4)) == [2, 2, 11, 11]
        with Control(server) as control:
            assert control.model_ready("ep") and control.model_ready("service")


def test_a_variant_of_a_version_comes_back(serve, models):
    """What is said of the version of a model that was here, and is not, differs from what is said of others."""
    adders(models, a=1, b=10)
    servers = serve()
    for server in servers:
        for _ in range(2):
            assert answer(server, "rest", "numbered/versions/y") == 11
            assert answer(server, "generate", "numbered/versions/y") == 11
            for s in servers:
                with Control(s) as control:
                    control.unload("b").ok()


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_variant_that_is_not_there(serve, models, kind):
    adders(models, a=1)
    servers = serve()
    for server in servers:
        assert answer(server, kind, "service") == 2
        with pytest.raises((AssertionError, grpc.RpcError)) as e:
            answer(server, kind, "service", "y")
        assert "unknown model: 'b' is not found" in str(e.value).replace("\\", ""), e.value


@pytest.mark.few
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_goes_while_its_variant_comes(serve, models, hold, kind):
    """The model is loaded all the same, and the request ends."""
    adders(models, a=1)
    repo.add(models, "b", backend="fault", parameters=hold.loading)
    servers = server, _ = serve()
    assert answer(server, kind, "service") == 2
    with Control(servers[0]) as one, Control(servers[1]) as other, ThreadPoolExecutor(1) as pool:
        state = lambda: {**one.states("b"), **other.states("b")}.get("1")
        if kind in ("rest", "generate"):
            rest = Rest(server.http)
            text = {"INPUT0": [1], "lang": "y"} if kind == "generate" else {
                "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [1]}], "parameters": {"lang": "y"}}
            ask = lambda: rest.post(f"/v2/models/service/{'generate' if kind == 'generate' else 'infer'}", text)
            leave = lambda: rest.connection.sock.shutdown(2)
        else:
            client = grpcraw.Grpc(server.url("grpc"))
            message = grpcraw.int32("service", [1], parameters={"lang": "y"})
            call = client.stub.ModelInfer.future(message) if kind == "grpc" else client.stub.ModelStreamInfer(iter([message]))
            ask = lambda: list(call) if kind == "stream" else call.result()
            leave = call.cancel
        asking = pool.submit(ask)
        wait.until(lambda: state() == "LOADING", "the load")
        leave()
        with pytest.raises((OSError, http.client.HTTPException, grpc.RpcError, grpc.FutureCancelledError)):
            asking.result(wait.PATIENCE)
        hold.end()
        wait.until(lambda: state() == "READY", "the model")
        assert answer(server, kind, "service", "y") == 1

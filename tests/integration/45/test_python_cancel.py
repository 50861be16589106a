"""What models in Python see of clients that do not wait any more. The models say by files how far they are."""
import json
from pathlib import Path

import grpc
import pytest

from lib import grpcraw, pymodels, raw, repo, wait
from lib.metrics import value
from lib.rest import Rest
from lib.stream import DECOUPLED, Stream
from lib.workers import pids

MODELS = Path(__file__).parent / "models"


class Place:
    """Where the model says how far it is."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def wait_for(self, name):
        wait.until((self.folder / name).exists, f"the model to be {name}")

    def has(self, name):
        return (self.folder / name).exists()

    def go(self):
        (self.folder / "go").touch()


@pytest.fixture
def place(tmp_path):
    """Names of folders that workers can write in."""
    (tmp_path / "places").mkdir()
    return lambda name="one": Place(tmp_path / "places" / name)


@pytest.fixture
def serve(models, start, tmp_path):
    def make(extra=""):
        pymodels.add(models, "m", MODELS / "patient.py", extra=extra, inputs=[repo.tensor("INPUT0", "TYPE_STRING", (1,))],
                     outputs=[repo.tensor("OUTPUT0", "TYPE_STRING", (1,))])
        return start(models, *pymodels.options(), f"--worker-directory={tmp_path}", "--worker-hang-timeout=3600s")
    return make


def request(text, id=""):
    return grpcraw.request("m", [("INPUT0", "BYTES", [1], {"bytes_contents": [str(text).encode()]})], id=id)


def text_of(answer):
    return answer.raw_output_contents[0][4:].decode()


def pending(server):
    return value(server, "nv_inference_pending_request_count", model="m")


def check_serves(server, first):
    """The same process answers, and nothing is left of the request."""
    with grpcraw.Grpc(server.url("grpc")) as client:
        assert text_of(client.infer(request("x", "after"))).split()[-1] == "after"
    assert pids(server, "m") == first


def test_grpc(serve, place):
    server, one = serve(), place()
    first = pids(server, "m")
    with grpcraw.Grpc(server.url("grpc")) as client:
        call = client.stub.ModelInfer.future(request(one.folder), timeout=wait.PATIENCE)
        one.wait_for("begun")
        call.cancel()
        one.wait_for("cancelled")
    check_serves(server, first)


def test_rest(serve, place):
    """The client closes its connection."""
    server, one = serve(), place()
    first = pids(server, "m")
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [str(one.folder)]}]}).encode()
    connection = raw.Http1(server.http)
    connection.send(raw.request("POST", "/v2/models/m/infer", body=body))
    one.wait_for("begun")
    connection.close()
    one.wait_for("cancelled")
    check_serves(server, first)


def test_deadline(serve, place):
    """A client's own time ends while the model runs. It is given more until the model has begun in it."""
    server = serve()
    first = pids(server, "m")
    with grpcraw.Grpc(server.url("grpc")) as client:
        for n in range(8):
            one = place(str(n))
            with pytest.raises(grpc.RpcError) as e:
                client.infer(request(one.folder), timeout=2 ** n)
            assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            if one.has("begun"):
                break
        one.wait_for("cancelled")
    check_serves(server, first)


def test_decoupled(serve, place):
    """After an answer; other requests of the same process go on."""
    server, one, two = serve(DECOUPLED), place(), place("two")
    first = pids(server, "m")
    with Stream(server.url("grpc")) as other:
        other.send(request(two.folder))
        assert text_of(other.take(1)[0].infer_response) == "begun"
        with Stream(server.url("grpc")) as stream:
            stream.send(request(one.folder))
            assert text_of(stream.take(1)[0].infer_response) == "begun"
            one.wait_for("begun")
            stream.answers.cancel()
            one.wait_for("cancelled")
        assert not two.has("cancelled")
        two.go()
        assert text_of(other.take(1)[0].infer_response) == str(two.folder)
    assert pids(server, "m") == first


def test_generate_stream(serve, place):
    """Over REST, by a client that closes its connection after the first event."""
    server, one = serve(DECOUPLED), place()
    connection = raw.Http1(server.http)
    connection.send(raw.request("POST", "/v2/models/m/generate_stream", body=json.dumps({"INPUT0": str(one.folder)}).encode()))
    one.wait_for("begun")
    connection.close()
    one.wait_for("cancelled")
    with Rest(server.http) as rest:
        assert rest.post("/v2/models/m/generate", {"INPUT0": "x"}).ok().json()["OUTPUT0"] == "x"


def test_waiting_request(serve, place):
    """A request that is cancelled while it waits for the process never reaches the model."""
    server, one = serve(), place()
    with grpcraw.Grpc(server.url("grpc")) as client:
        held = client.stub.ModelInfer.future(request(one.folder, "a"), timeout=wait.PATIENCE)
        one.wait_for("begun")
        waiting = client.stub.ModelInfer.future(request("x", "b"), timeout=wait.PATIENCE)
        wait.until(lambda: pending(server) == 1, "the request to wait")
        waiting.cancel()
        wait.until(lambda: pending(server) == 0, "the end of the wait")
        one.go()
        assert text_of(held.result()) == "a"
        assert text_of(client.infer(request("x", "c"))) == "a c"
    assert not one.has("cancelled")

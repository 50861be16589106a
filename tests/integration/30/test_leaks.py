"""What a server holds does not grow with what it has done: descriptors, threads, memory."""
import numpy as np
import pytest

from lib import grpcraw, onnxgen, repo, wait
from lib.control import Control
from lib.grpcraw import Grpc
from lib.held import descriptors, resident, threads
from lib.metrics import value
from lib.raw import Http1, Http2, request
from lib.rest import Rest

sanitized = pytest.mark.release_only("sanitizers keep freed memory")


@pytest.fixture
def own(models, start):
    repo.add(models, "m", max_batch_size=4)
    repo.stock(models, "simple")
    return start(models, "--load-model=*", mode="explicit")


def ask(server):
    with Rest(server.http) as rest, Http2(server.http) as wire, Http1(server.http) as broken:
        rest.infer("m", [("INPUT0", "INT32", [1, 2], [1, 2])]).ok()
        wire.ask()
        broken.send(request("POST", "/v2/models/m/infer", "Content-Length: 100\r\n") + b"{")


def test_descriptors_of_connections(own):
    ask(own)
    wait.until(lambda: value(own, "millrace_connections") <= 1, "the connections to be closed")
    before = descriptors(own)
    for _ in range(50):
        ask(own)
    wait.until(lambda: descriptors(own) <= before, f"the number of descriptors to be {before} again")


def test_descriptors_and_threads_of_models(own):
    with Control(own) as c:
        def cycle():
            for model in ("m", "simple"):
                assert c.unload(model).status == 200
                wait.until(lambda: not c.model_ready(model), "the end of the model")
                assert c.load(model).status == 200
            c.rest.infer("m", [("INPUT0", "INT32", [1, 1], [1])]).ok()

        cycle()
        before = descriptors(own), threads(own)
        for _ in range(15):
            cycle()
        wait.until(lambda: descriptors(own) <= before[0], f"the number of descriptors to be {before[0]} again; {descriptors(own)}")
        wait.until(lambda: threads(own) <= before[1] + 1, f"the number of threads to be {before[1]} again")


@sanitized
def test_memory_of_requests(own):
    def round_trips(count):
        blob = np.zeros(250_000, "<i4").tobytes()
        with Rest(own.http) as rest, Grpc(own.url("grpc")) as client:
            for _ in range(count):
                rest.infer_binary("m", [("INPUT0", "INT32", [1, 250_000])], [blob], parameters={"binary_data_output": True}).ok()
                rest.infer("m", [("INPUT0", "INT32", [1, 20_000], [1] * 20_000)]).ok()
                client.infer(grpcraw.request("m", [("INPUT0", "INT32", [1, 250_000], None)], raw=[blob]))
                rest.infer("m", [("INPUT0", "INT32", [9, 1], [1] * 9)])

    round_trips(20)
    before = resident(own)
    round_trips(60)
    assert resident(own) - before < 24 << 20, "no megabyte per request stays"


@sanitized
def test_memory_of_errors_and_ids(own):
    def round_trips(count):
        with Rest(own.http) as rest:
            for i in range(count):
                rest.post("/v2/models/m/infer", "{" * 50)
                rest.get(f"/v2/models/nosuch{i}/ready")
                rest.infer("m", [("INPUT0", "INT32", [1, 1], [1])], id=f"{i}" * 1000).ok()

    round_trips(300)
    before = resident(own)
    round_trips(2000)
    assert resident(own) - before < 8 << 20


@sanitized
def test_memory_of_reloads(own):
    """Memory after many loads is that after a few."""
    with Control(own) as c:
        def cycles(count):
            for _ in range(count):
                assert c.unload("simple").status == 200
                assert c.load("simple").status == 200

        cycles(10)
        before = resident(own)
        cycles(60)
        assert resident(own) - before < 16 << 20


@sanitized
def test_memory_of_weights(models, start):
    """What a model's weights took is the system's again when it is unloaded."""
    weights = 4 * 1600 * 1600 * 4
    repo.add(models, "heavy", "", files={"1/model.onnx": onnxgen.heavy(4, 1600)})
    server = start(models, mode="explicit")
    kept = []
    with Control(server) as c:
        for _ in range(4):
            assert c.load("heavy").status == 200
            assert c.unload("heavy").status == 200
            wait.until(lambda: not c.model_ready("heavy"), "the end of the model")
            kept.append(resident(server))
    wait.until(lambda: resident(server) - kept[0] < weights / 2, f"memory to be given back: {kept}")

"""What reviews of the server found, one test each."""
import json
import threading
import time

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tritonclient.grpc import service_pb2_grpc

from lib import grpcraw, repo, wait
from lib.control import Control, GrpcControl
from lib.held import resident
from lib.metrics import value
from lib.raw import GRPC_HEADERS, Http2, grpc_frame
from lib.rest import Rest


def body(delay_ms=0, **parameters):
    return {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [7]}],
            "parameters": {"delay_ms": delay_ms, **parameters}}


def test_a_time_limit_that_is_over_at_once(models, start, hold):
    """The time is over before the timer could be started, and no instance is free to notice."""
    repo.add(models, "m", backend="fault", max_batch_size=1,
             extra="dynamic_batching { default_queue_policy { allow_timeout_override: true } }")
    server = start(models)
    with grpcraw.Grpc(server.url("grpc")) as client, Rest(server.http) as rest:
        running = client.stub.ModelInfer.future(grpcraw.int32("m", [1], shape=[1, 1], parameters=hold.parameters), timeout=wait.PATIENCE)
        hold.wait_held()
        for _ in range(5):
            reply = rest.post("/v2/models/m/infer", body=json.dumps(body(timeout=1)))
            assert reply.status == 503 and "Request timeout expired" in reply.json()["error"]
        assert not running.done(), "nobody waited for the model"
        hold.end()
        running.result()


def test_no_inference_on_the_metrics_port(models, start):
    repo.add(models, "m")
    server = start(models)
    with grpc.insecure_channel(server.url("metrics")) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as e:
            next(stub.ModelStreamInfer(iter([grpcraw.int32("m", [5])]), timeout=wait.PATIENCE))
        assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_stream_goes_on_when_its_answers_are_read(models, start):
    """More answers wait than the server lets wait; then the client reads them all, and asks again."""
    repo.add(models, "m")
    server = start(models)
    asked = threading.Event()
    large = grpcraw.int32("m", list(range(1_000_000)))

    def requests():
        yield from [large] * 10
        asked.wait(wait.PATIENCE)
        yield grpcraw.int32("m", [5])

    with grpcraw.Grpc(server.url("grpc")) as client:
        stream = client.stub.ModelStreamInfer(requests(), timeout=wait.PATIENCE)
        time.sleep(1)
        sizes = [len(next(stream).infer_response.raw_output_contents[0]) for _ in range(10)]
        asked.set()
        assert sizes == [4_000_000] * 10
        assert next(stream).infer_response.raw_output_contents[0] == b"\5\0\0\0"


def test_reflection_for_a_client_that_does_not_read(models, start):
    """A file of descriptors is a hundred times as large as the request for it."""
    repo.add(models, "m")
    server = start(models)
    question = grpc_frame(reflection_pb2.ServerReflectionRequest(file_containing_symbol="inference.GRPCInferenceService"))
    with Http2(server.grpc) as wire:
        before = resident(server)
        stream = wire.headers("POST", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", GRPC_HEADERS, end=False)
        for _ in range(60):
            wire.send(stream, question * (16_000 // len(question)), end=False)
        time.sleep(1)
        assert resident(server) - before < 150 << 20


def test_open_streams_end_with_the_server(models, start, hold):
    """What was taken is answered, then streams that their clients would keep open are ended."""
    repo.add(models, "m", backend="fault")
    server = start(models, "--exit-timeout-secs=3600")
    release = threading.Event()

    def requests():
        yield grpcraw.int32("m", [1])
        yield grpcraw.int32("m", [2], parameters=hold.parameters)
        release.wait(wait.PATIENCE)

    def questions():
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        release.wait(wait.PATIENCE)

    with grpcraw.Grpc(server.url("grpc")) as client, grpc.insecure_channel(server.url("grpc")) as channel:
        stream = client.stub.ModelStreamInfer(requests())
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(questions())
        next(stream), next(reflection)
        hold.wait_held()
        server.signal()
        wait.until(lambda: "serve.stopping" in server.err(), "the drain to begin")
        hold.end()
        assert next(stream).infer_response.raw_output_contents[0] == b"\2\0\0\0"
        for call in (stream, reflection):
            with pytest.raises(grpc.RpcError) as e:
                next(call)
            assert e.value.code() == grpc.StatusCode.UNAVAILABLE
        server.checked = True
        assert server.wait_exit() == 0, "not cut off by --exit-timeout-secs"
        release.set()


FILE_CONFIG = json.dumps({"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
                          "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]})


@pytest.mark.few
@pytest.mark.parametrize("megabytes", [50, 100])
def test_load_with_a_large_file(models, start, megabytes):
    """A file is bounded by the size of messages and by the memory budget, not by what a call has for small things."""
    data = bytes(megabytes * 1_000_000)
    with Control(start(models, "--http-max-input-size=200000000", "--allow-backend=identity", mode="explicit")) as control:
        assert control.load("m", config=FILE_CONFIG, files={"1/model.bin": data}).status == 200
    control = GrpcControl(start(models, "--allow-backend=identity", mode="explicit"))
    assert control.load("m", config=FILE_CONFIG, files={"1/model.bin": data}) is None
    control.close()


def test_request_of_very_many_small_things(models, start):
    """Two bytes of a message would become a struct of fifty: they are refused where they lie."""
    server = start(models, mode="explicit")
    with grpc.insecure_channel(server.url("grpc")) as channel:
        load = channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelLoad")
        with pytest.raises(grpc.RpcError) as e:
            load(b"\x1a\0" * 3_000_000, timeout=wait.PATIENCE)
        assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "load parameter ''" in e.value.details()


def test_a_name_with_nul_is_no_other_name(models, start):
    repo.add(models, "m")
    server = start(models, mode="explicit")
    control = GrpcControl(server)
    assert control.load("m\0x")[0] == "INVALID_ARGUMENT"
    assert control.load("m", config=FILE_CONFIG, files={"1/a\0b": b"x"})[0] == "INVALID_ARGUMENT"
    assert control.load("m") is None
    assert control.unload("m\0")[0] == "INVALID_ARGUMENT"
    control.close()
    with Rest(server.http) as rest:
        assert rest.get("/v2/models/m/ready").status == 200

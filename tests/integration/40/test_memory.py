"""Memory that is refused: each request gets its answer, an error or the end of its connection, never a wrong answer;
and once there is memory again everything is as before."""
import gzip
import http.client
import json
import random
import resource
import time

import grpc
import numpy as np
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.faults import PROGRAM, Faults
from lib.grpcraw import Grpc
from lib.held import descriptors, in_flight, threads
from lib.metrics import value
from lib.raw import Http2
from lib.reflected import reflection_call
from lib.rest import Rest, binary_body

SIZES = (1, 300, 5_000, 70_000, 700_000)
REFUSED = ("RESOURCE_EXHAUSTED", "UNAVAILABLE")


@pytest.fixture
def scarce(models, start, tmp_path):
    """(server, Faults): three kinds of models are loaded, memory is still there."""
    repo.add(models, "m")
    repo.add(models, "batch", max_batch_size=8, extra="dynamic_batching { }")
    repo.add(models, "text", inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")])
    repo.stock(models, "simple")
    faults = Faults(tmp_path)
    server = start(models, "--load-model=*", mode="explicit", program=PROGRAM, env=faults.env)
    with Rest(server.http) as rest:
        assert ask_json(rest, random.Random(1)) and ask_text(rest, random.Random(1))
    return server, faults


def numbers(rng):
    return np.arange(rng.choice(SIZES), dtype="<i4") + rng.randrange(1 << 20)


def answered(reply, expected, told):
    """Whether there was an answer, which must be right."""
    if reply.status == 200:
        assert told(reply) == expected
        return True
    assert reply.status == 503 and reply.error, (reply.status, reply.body[:300])
    return False


def ask_json(rest, rng):
    x = numbers(rng)[:5_000].tolist()
    model, shape = rng.choice([("m", [len(x)]), ("batch", [1, len(x)])])
    return answered(rest.infer(model, [("INPUT0", "INT32", shape, x)]), x, lambda r: r.json()["outputs"][0]["data"])


def ask_text(rest, rng):
    x = ["x" * rng.choice((0, 10, 3000)) for _ in range(rng.choice((1, 50)))]
    return answered(rest.infer("text", [("INPUT0", "BYTES", [len(x)], x)]), x, lambda r: r.json()["outputs"][0]["data"])


def ask_binary(rest, rng):
    x = numbers(rng)
    reply = rest.infer_binary("m", [("INPUT0", "INT32", [len(x)])], [x.tobytes()], parameters={"binary_data_output": True})
    return answered(reply, x.tobytes(), lambda r: r.parts()[1]["OUTPUT0"])


def ask_compressed(rest, rng):
    x = numbers(rng)[:70_000]
    body, length = binary_body([("INPUT0", "INT32", [len(x)])], [x.tobytes()])
    headers = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip", "Inference-Header-Content-Length": str(length)}
    reply = rest.post("/v2/models/m/infer", gzip.compress(body, 1), headers=headers)
    if reply.headers.get("content-encoding") == "gzip":
        reply.body = gzip.decompress(reply.body)
    return answered(reply, x.tolist(), lambda r: r.json()["outputs"][0]["data"])


def ask_onnx(rest, rng):
    x = [rng.randrange(100) for _ in range(16)]
    reply = rest.infer("simple", [(f"INPUT{i}", "INT32", [1, 16], x) for i in range(2)])
    return answered(reply, [2 * v for v in x], lambda r: r.json()["outputs"][0]["data"])


def ask_reports(rest, rng):
    path = rng.choice(["/v2", "/v2/models/simple/config", "/v2/models/stats", "/v2/models/m"])
    reply = rest.get(path)
    return answered(reply, True, lambda r: bool(r.json()))


REST = (ask_json, ask_text, ask_binary, ask_compressed, ask_onnx, ask_reports)


@pytest.mark.few(2)
@pytest.mark.parametrize("every, least", [(1, 0), (2, 0), (3, 0), (7, 0), (1, 16_384)])
def test_rest(scarce, every, least):
    server, faults = scarce
    rng = random.Random(every)
    faults.memory_least, faults.memory_every = least, every
    outcomes = set()
    for _ in range(150):
        try:
            with Rest(server.http) as rest:
                for ask in rng.sample(REST, 3):
                    outcomes.add(ask(rest, rng))
        except (ConnectionError, OSError, http.client.HTTPException):
            outcomes.add("closed")
    assert faults.memory_failed > 0
    assert outcomes - {True}, "something was refused"
    recovers(server, faults)


def test_a_report_that_finds_no_room(models, start, tmp_path):
    """Half a report is none. What a connection needs is smaller, and there is room for it."""
    repo.add(models, "m", extra='parameters { key: "note" value { string_value: "%s" } }' % ("x" * 100_000))
    faults = Faults(tmp_path)
    server = start(models, program=PROGRAM, env=faults.env)
    with Rest(server.http) as rest:
        assert rest.get("/v2/health/live").status == 200
        faults.memory_least, faults.memory_every = 65_536, 1
        reply = rest.get("/v2/models/m/config")
        assert (reply.status, reply.error) == (503, "out of memory")
        faults.memory_every = 0
        assert rest.get("/v2/models/m/config").json()["name"] == "m"


@pytest.mark.few
@pytest.mark.parametrize("every", [1, 2, 5])
def test_grpc(scarce, every):
    server, faults = scarce
    rng = random.Random(every)
    faults.memory_every = every
    for _ in range(8):
        channel = grpc.insecure_channel(server.url("grpc"), options=(*grpcraw.NO_LIMIT, ("grpc.use_local_subchannel_pool", 1)))
        stub = grpcraw.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        asked = [numbers(rng) for _ in range(8)]
        futures = [(x, stub.ModelInfer.future(grpcraw.int32("m", x), timeout=wait.PATIENCE)) for x in asked]
        for x, future in futures:
            check_grpc(x, future)
        sent = [numbers(rng)[:5000] for _ in range(4)]
        try:
            for x, got in zip(sent, stub.ModelStreamInfer((grpcraw.int32("batch", x, shape=[1, len(x)]) for x in sent), timeout=wait.PATIENCE)):
                if not got.error_message:
                    assert np.array_equal(np.frombuffer(got.infer_response.raw_output_contents[0], "<i4"), x)
        except grpc.RpcError as e:
            assert e.code().name in REFUSED, e
        channel.close()
    assert faults.memory_failed > 0
    recovers(server, faults)


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_grpc_answers_that_find_no_memory(scarce, models, method):
    """Not even for the end of the stream: the connection closes, long before the deadline of the client."""
    server, faults = scarce
    repo.add(models, "slow", backend="fault")
    with Control(server) as c:
        assert c.load("slow").status == 200
    with Grpc(server.url("grpc"), options=(("grpc.use_local_subchannel_pool", 1),)) as client:
        message = grpcraw.int32("slow", [1], parameters={"delay_ms": 500 * wait.SLOW})
        if method == "ModelInfer":
            future = client.stub.ModelInfer.future(message, timeout=wait.PATIENCE)
        else:
            future = client.stub.ModelStreamInfer(iter([message]), timeout=wait.PATIENCE)
        time.sleep(0.2 * wait.SLOW)  # the request has arrived by now; otherwise it is refused as well
        faults.memory_every = 1
        try:
            [*future] if method == "ModelStreamInfer" else future.result()
        except grpc.RpcError as e:
            assert e.code().name in REFUSED, e
    recovers(server, faults)


def test_reflection_that_finds_no_room(models, start, tmp_path):
    """An error, not the silence of a stream without an answer."""
    faults = Faults(tmp_path)
    server = start(models, program=PROGRAM, env=faults.env)
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol="inference.GRPCInferenceService")
    with Grpc(server.url("grpc"), options=(("grpc.use_local_subchannel_pool", 1),)) as client:
        assert client.stub.ServerLive(grpcraw.pb.ServerLiveRequest()).live
        faults.memory_least, faults.memory_every = 2_048, 1
        try:  # where the loop has kept enough from earlier answers there is one
            assert len(list(reflection_call(client.channel, "v1")(iter([request]), timeout=wait.PATIENCE))) == 1
        except grpc.RpcError as e:
            assert e.code().name in REFUSED, e
        faults.memory_every = 0
        assert len(list(reflection_call(client.channel, "v1")(iter([request]), timeout=wait.PATIENCE))) == 1


def check_grpc(x, future):
    try:
        answer = future.result()
    except grpc.RpcError as e:
        assert e.code().name in REFUSED, e
    else:
        assert np.array_equal(np.frombuffer(answer.raw_output_contents[0], "<i4"), x)


def test_loads(scarce):
    """A load without memory fails, and the served version stays."""
    server, faults = scarce
    body = json.dumps({"parameters": {"config": json.dumps({"backend": "identity", "max_batch_size": 3, "input": [
        {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}], "output": [
            {"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]})}})
    statuses = set()
    for every in (1, 2, 3, 4, 6, 9, 15):
        faults.memory_every = every
        for _ in range(3):
            try:
                with Rest(server.http) as rest:
                    statuses.add(rest.post("/v2/repository/models/m/load", body).status)
                    statuses.add(rest.post("/v2/repository/models/m/load", b"").status)
            except (ConnectionError, OSError):
                pass
        faults.memory_every = 0
        with Control(server) as c:
            assert c.infer("m", (1, 2)).status in (200, 400), "one of the two configurations serves"
    assert statuses <= {200, 400, 500, 503}, statuses
    with Control(server) as c:
        assert c.unload("m").status == 200  # a load alone keeps the configuration of an earlier request
        assert c.load("m").status == 200
    recovers(server, faults)


def recovers(server, faults):
    faults.memory_every = 0
    rng = random.Random(5)
    with Rest(server.http) as rest, Http2(server.http) as wire, Grpc(server.url("grpc")) as client:
        assert all(ask(rest, rng) for ask in REST)
        assert wire.ask().status == 200
        client.infer(grpcraw.int32("m", [1]))
    wait.equal(lambda: in_flight(server), (0, 0), "what is in flight")
    wait.until(lambda: value(server, "millrace_connections") <= 1, "the connections to be closed")


# ---- no memory anywhere, the libraries' included ----

@pytest.mark.release_only("sanitizers reserve address space without limit")
def test_address_space(models, start):
    """The backend and ONNX Runtime find no memory for a large request: it fails, and small ones go on."""
    repo.stock(models, "identity_fp32")
    repo.add(models, "m")
    server = start(models)
    big = np.zeros((1, 30_000_000), "<f4")
    with Rest(server.http) as rest:
        assert rest.infer("identity_fp32", [("INPUT0", "FP32", [1, 4], [1, 2, 3, 4])]).status in (200, 400)
        assert rest.infer("m", [("INPUT0", "INT32", [1], [1])]).status == 200
        before = descriptors(server), threads(server)
        size = int(open(f"/proc/{server.process.pid}/statm").read().split()[0]) * resource.getpagesize()
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size + (24 << 20), resource.RLIM_INFINITY))
        for model, dtype in (("m", "INT32"), ("identity_fp32", "FP32")):
            for _ in range(3):
                try:
                    reply = rest.infer_binary(model, [("INPUT0", dtype, list(big.shape[-1:] if model == "m" else big.shape))], [big.tobytes()])
                    assert reply.status in (400, 500, 503), reply.body[:200]
                except ConnectionError:
                    rest.close()
                assert rest.infer("m", [("INPUT0", "INT32", [1], [1])]).status == 200
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert rest.infer("m", [("INPUT0", "INT32", [1], [1])]).status == 200
    wait.equal(lambda: in_flight(server), (0, 0), "what is in flight")
    wait.until(lambda: descriptors(server) <= before[0], "the descriptors")

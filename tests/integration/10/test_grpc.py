"""gRPC with plain grpcio: stubs made from server reflection, health, deadlines, cancellation, limits, compression."""
import queue
import threading

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

from lib import grpcraw, repo, wait
from lib.grpcraw import Grpc
from lib.metrics import value
from lib.raw import GRPC_HEADERS, Http2, grpc_frame, grpc_path
from lib.reflected import VERSIONS, Reflected, reflection_call

Code = grpc.StatusCode
SERVICE = "inference.GRPCInferenceService"


@pytest.fixture(params=VERSIONS)
def reflected(request, server):
    with Reflected(server.url("grpc"), request.param) as client:
        yield client


def failure(function, *args, **kw):
    try:
        result = function(*args, **kw)
    except grpc.RpcError as e:
        return e
    raise AssertionError(f"no error but {result!r}")


def numbers(answer, index=0):
    return np.frombuffer(answer.raw_output_contents[index], "<i4").tolist()


# ---- reflection ----

def test_services(reflected):
    services = set(reflected.database.get_services())
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection"} <= services
    assert "mmesh.ModelMesh" not in services  # this server is in no mesh


def fields_of(message, seen=None):
    """{message name: {field name: (number, type, label, message or enum)}} of a message and all below it."""
    seen = {} if seen is None else seen
    if message.full_name in seen:
        return seen
    own = seen[message.full_name] = {}
    for f in message.fields:
        below = f.message_type or f.enum_type
        own[f.name] = (f.number, f.type, f.is_repeated, below.full_name if below else None)
        if f.message_type:
            fields_of(f.message_type, seen)
    return seen


def test_the_service_is_tritons(reflected):
    """Every method and field of tritonclient exists with the same number and type."""
    ours = reflected.pool.FindServiceByName(SERVICE)
    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert {m.name for m in theirs.methods} <= {m.name for m in ours.methods}
    for method in theirs.methods:
        mine = ours.methods_by_name[method.name]
        assert (mine.client_streaming, mine.server_streaming) == (method.client_streaming, method.server_streaming)
        for a, b in ((mine.input_type, method.input_type), (mine.output_type, method.output_type)):
            mine_all, their_all = fields_of(a), fields_of(b)
            for message, fields in their_all.items():
                assert fields.items() <= mine_all[message].items(), message


def test_model_config_is_tritons(reflected):
    ours = fields_of(reflected.pool.FindMessageTypeByName("inference.ModelConfig"))
    for message, fields in fields_of(model_config_pb2.ModelConfig.DESCRIPTOR).items():
        assert fields.items() <= ours[message].items(), message
    enum = reflected.pool.FindEnumTypeByName("inference.DataType")
    assert {(v.name, v.number) for v in model_config_pb2.DataType.DESCRIPTOR.values} == {(v.name, v.number) for v in enum.values}


def test_what_reflection_does_not_know(reflected):
    with pytest.raises(KeyError):
        reflected.pool.FindMessageTypeByName("no.such.Message")
    with pytest.raises(KeyError):
        reflected.database.FindFileByName("nothing.proto")


def test_files_by_name(reflected):
    name = reflected.pool.FindServiceByName(SERVICE).file.name
    assert reflected.database.FindFileByName(name).package == "inference"


@pytest.mark.parametrize("version", VERSIONS)
def test_reflection_in_one_stream(server, version):
    with grpc.insecure_channel(server.url("grpc")) as channel:
        requests = [reflection_pb2.ServerReflectionRequest(list_services=""),
                    reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such.Thing"),
                    reflection_pb2.ServerReflectionRequest(file_containing_symbol=f"{SERVICE}.ModelInfer"),
                    reflection_pb2.ServerReflectionRequest(all_extension_numbers_of_type="inference.ModelConfig")]
        answers = list(reflection_call(channel, version)(iter(requests), timeout=wait.PATIENCE))
    assert [a.WhichOneof("message_response") for a in answers[:3]] == [
        "list_services_response", "error_response", "file_descriptor_response"]
    assert answers[1].error_response.error_code == Code.NOT_FOUND.value[0]
    assert answers[1].original_request == requests[1]
    assert len(answers) == 4


# ---- stubs made at run time ----

def test_metadata_calls(reflected):
    assert reflected.infer("ServerLive").live
    assert reflected.infer("ServerReady").ready
    assert reflected.infer("ModelReady", name="simple").ready
    assert reflected.infer("ServerMetadata").name == "triton"
    m = reflected.infer("ModelMetadata", name="simple")
    assert (m.platform, [list(i.shape) for i in m.inputs]) == ("onnxruntime_onnx", [[-1, 16], [-1, 16]])
    assert reflected.infer("ModelConfig", name="simple").config.max_batch_size == 8
    assert {m.name for m in reflected.infer("RepositoryIndex").models} >= {"simple", "versions"}
    assert reflected.infer("ModelStatistics", name="simple").model_stats[0].name == "simple"
    assert "log_verbose_level" in reflected.infer("LogSettings").settings
    assert not reflected.infer("SystemSharedMemoryStatus").regions
    assert not reflected.infer("CudaSharedMemoryStatus").regions


def test_version_texts(server):
    """Triton's words, also where the model is not there: a version that is no number is wrong for any model."""
    with Grpc(server.url("grpc")) as client:
        for model in ("simple", "nosuch"):
            for call in ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "ModelInfer"):
                field = "model_" if call == "ModelInfer" else ""
                for version, words in (("x", "failed to get model version from specified version string 'x'"),
                                       ("1.5", "failed to get model version from specified version string '1.5'"),
                                       ("-1", "invalid model version specified '-1'")):
                    message = getattr(service_pb2, f"{call}Request")(**{f"{field}name": model, f"{field}version": version})
                    e = failure(getattr(client.stub, call), message)
                    assert e.code() == Code.INVALID_ARGUMENT and words in e.details(), (call, e.details())
                    assert e.details().endswith("version should be an integral value > 0")


@pytest.mark.parametrize("method", ["ServerLive", "ServerReady", "ServerMetadata"])
def test_a_message_that_should_be_empty_is_parsed(server, method):
    with grpc.insecure_channel(server.url("grpc")) as channel:
        call = channel.unary_unary(f"/{SERVICE}/{method}")
        e = failure(call, b"\x0a\xff", timeout=wait.PATIENCE)
        assert e.code() == Code.INTERNAL and "not a valid protobuf message" in e.details()
        assert call(b"", timeout=wait.PATIENCE)
        assert call(b"\x0a\x01x", timeout=wait.PATIENCE), "an unknown field is none of its business"
        e = failure(call, b"\x0a\x01x" * 10_001, timeout=wait.PATIENCE)
        assert e.code() == Code.INVALID_ARGUMENT and "too many fields" in e.details()


def test_blanks_around_metadata(models, start):
    repo.add(models, "m", backend="fault")
    server = start(models, "--grpc-header-forward-pattern=fail_.*")
    with Grpc(server.url("grpc")) as client:
        e = failure(client.infer, grpcraw.int32("m", [1]), metadata=(("fail_status", "  NOT_FOUND  "), ("x-blank", " ")))
        assert e.code() == Code.NOT_FOUND, e.details()


def test_infer(reflected):
    vector = {"datatype": "INT32", "shape": [1, 16]}
    answer = reflected.infer("ModelInfer", model_name="simple", id="x", inputs=[
        {"name": "INPUT0", **vector, "contents": {"int_contents": list(range(16))}},
        {"name": "INPUT1", **vector, "contents": {"int_contents": [2] * 16}}], outputs=[{"name": "OUTPUT1"}])
    assert (answer.id, answer.model_name, answer.model_version, len(answer.outputs)) == ("x", "simple", "1", 1)
    assert numbers(answer) == [i - 2 for i in range(16)]


@pytest.mark.parametrize("method, fields", [
    ("SystemSharedMemoryRegister", {"name": "r", "key": "/k", "byte_size": 8}),
    ("CudaSharedMemoryRegister", {"name": "r", "byte_size": 8}), ("TraceSetting", {})])
def test_features_that_are_not_there(reflected, method, fields):
    e = failure(reflected.infer, method, **fields)
    assert e.code() == Code.UNIMPLEMENTED
    assert ("shared memory" if "Shared" in method else "trace") in e.details().lower()


@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig", "ModelStatistics", "ModelInfer"])
@pytest.mark.parametrize("name, version, code, text", [
    ("nosuch", "", Code.NOT_FOUND, "'nosuch' is not found"), ("simple", "9", Code.NOT_FOUND, "'simple' version 9 is not found"),
    ("simple", "x", Code.INVALID_ARGUMENT, ""), ("simple", "-1", Code.INVALID_ARGUMENT, "")])
def test_look_ups_that_fail(reflected, method, name, version, code, text):
    fields = {"model_name": name, "model_version": version} if method == "ModelInfer" else {"name": name, "version": version}
    if method == "ModelStatistics" and code == Code.NOT_FOUND:
        e = failure(reflected.infer, method, **fields)
        assert e.code() in (Code.NOT_FOUND, Code.INVALID_ARGUMENT) and name in e.details()
        return
    e = failure(reflected.infer, method, **fields)
    assert e.code() == code and text in e.details()


@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig", "ModelInfer"])
def test_empty_name(reflected, method):
    assert failure(reflected.infer, method).code() in (Code.NOT_FOUND, Code.INVALID_ARGUMENT)


@pytest.mark.parametrize("name, version", [("nosuch", ""), ("simple", "9")])
def test_unknown_model_is_not_ready(reflected, name, version):
    assert reflected.infer("ModelReady", name=name, version=version).ready is False


@pytest.mark.parametrize("path", [f"/{SERVICE}/NoSuch", "/no.such.Service/Call", "/grpc.health.v1.Health/NoSuch"])
@pytest.mark.parametrize("kind", ["unary_unary", "stream_stream"])
def test_unknown_method(server, path, kind):
    messages = queue.SimpleQueue()  # whose end is not waited for
    messages.put(b"")
    with grpc.insecure_channel(server.url("grpc")) as channel:
        call = getattr(channel, kind)(path, request_serializer=bytes, response_deserializer=bytes)
        e = failure(call, b"", timeout=wait.PATIENCE) if kind == "unary_unary" else failure(list, call(iter(messages.get, None), timeout=wait.PATIENCE))
        messages.put(None)
    assert e.code() == Code.UNIMPLEMENTED


# ---- health ----

@pytest.fixture
def health(server):
    with grpc.insecure_channel(server.url("grpc")) as channel:
        yield health_pb2_grpc.HealthStub(channel)


@pytest.mark.parametrize("service", ["", SERVICE])
def test_health_check(health, service):
    answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=wait.PATIENCE)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_health_check_of_an_unknown_service(health):
    assert failure(health.Check, health_pb2.HealthCheckRequest(service="no.such"), timeout=wait.PATIENCE).code() == Code.NOT_FOUND


@pytest.mark.parametrize("service, status", [("", "SERVING"), (SERVICE, "SERVING"), ("no.such", "SERVICE_UNKNOWN")])
def test_health_watch(health, service, status):
    watch = health.Watch(health_pb2.HealthCheckRequest(service=service), timeout=wait.PATIENCE)
    assert next(watch).status == health_pb2.HealthCheckResponse.ServingStatus.Value(status)
    watch.cancel()


# ---- deadlines and cancellation ----

class Busy:
    """The model `slow` has one instance; this keeps it busy, and counts what it has run."""

    def __init__(self, server, rest, client, hold):
        self.server, self.rest, self.client, self.hold = server, rest, client, hold
        self.before = self.runs()

    def runs(self):
        return self.rest.stats("slow")[0]["execution_count"]

    def fails(self, reason):
        return value(self.server, "nv_inference_request_failure", model="slow", reason=reason) or 0  # none before the first

    def start(self):
        self.first = self.client.stub.ModelInfer.future(grpcraw.int32("slow", [1], parameters=self.hold.parameters), timeout=wait.PATIENCE)
        self.hold.wait_held()

    def wait_pending(self, count):
        wait.until(lambda: value(self.server, "nv_inference_pending_request_count", model="slow") == count,
                   f"{count} waiting requests")

    def finish(self, runs=1):
        self.hold.end()
        assert numbers(self.first.result()) == [1]
        wait.until(lambda: self.runs() - self.before >= runs, "the counts")
        assert self.runs() - self.before == runs


@pytest.fixture
def busy(server, rest, grpc_, hold):
    return Busy(server, rest, grpc_, hold)


def test_work_that_expired_is_not_run(busy, grpc_):
    busy.start()
    late = [grpc_.stub.ModelInfer.future(grpcraw.int32("slow", [2]), timeout=0.3) for _ in range(5)]
    assert [failure(f.result).code() for f in late] == [Code.DEADLINE_EXCEEDED] * 5
    busy.wait_pending(0)
    busy.finish()


def test_cancelled_work_is_not_run(busy, grpc_):
    cancelled = busy.fails("CANCELED")
    busy.start()
    waiting = [grpc_.stub.ModelInfer.future(grpcraw.int32("slow", [2])) for _ in range(5)]
    busy.wait_pending(5)
    for f in waiting:
        f.cancel()
    busy.wait_pending(0)
    busy.finish()
    wait.until(lambda: busy.fails("CANCELED") - cancelled == 5, "five cancelled requests in the metrics")


def test_a_client_that_goes_away_cancels(busy, server):
    busy.start()
    with Grpc(server.url("grpc")) as other:
        waiting = [other.stub.ModelInfer.future(grpcraw.int32("slow", [2])) for _ in range(3)]
        busy.wait_pending(len(waiting))
    busy.wait_pending(0)
    busy.finish()


def test_deadline_while_it_runs(busy, grpc_, rest, hold):
    """What runs already is let run; the client has its answer in time and the next one is served."""
    e = failure(grpc_.infer, grpcraw.int32("slow", [1], parameters=hold.parameters), timeout=0.2)
    assert e.code() == Code.DEADLINE_EXCEEDED
    hold.end()
    assert numbers(grpc_.infer(grpcraw.int32("slow", [5]))) == [5]
    assert rest.infer("slow", [("INPUT0", "INT32", [1], [6])]).status == 200


# ---- sizes and compression ----

def test_messages_beyond_four_megabytes(grpc_):
    array = np.arange(3_000_000, dtype="<i4")
    answer = grpc_.infer(grpcraw.request("flat_int32", [("INPUT0", "INT32", [3_000_000], None)], raw=[array.tobytes()]))
    assert answer.raw_output_contents[0] == array.tobytes()


def test_message_size_limit(models, start):
    repo.add(models, "flat_int32")
    server = start(models, "--grpc-max-message-size=100000")
    with Grpc(server.url("grpc")) as client:
        assert len(numbers(client.infer(grpcraw.int32("flat_int32", list(range(20_000)))))) == 20_000
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            e = failure(client.infer, grpcraw.int32("flat_int32", [0] * 200_000), compression=compression)
            assert e.code() == Code.RESOURCE_EXHAUSTED and "--grpc-max-message-size" in e.details()
        e = failure(list, client.stub.ModelStreamInfer(iter([grpcraw.int32("flat_int32", [0] * 200_000)]), timeout=wait.PATIENCE))
        assert e.code() == Code.RESOURCE_EXHAUSTED
        assert numbers(client.infer(grpcraw.int32("flat_int32", [1]))) == [1]


@pytest.mark.parametrize("compression", ["Gzip", "Deflate"])
def test_compressed_requests(grpc_, compression):
    values = list(range(5000))
    c = getattr(grpc.Compression, compression)
    assert numbers(grpc_.infer(grpcraw.int32("flat_int32", values), compression=c)) == values
    answers = list(grpc_.stub.ModelStreamInfer(iter([grpcraw.int32("flat_int32", values)] * 3), compression=c, timeout=wait.PATIENCE))
    assert [numbers(a.infer_response) for a in answers] == [values] * 3


@pytest.mark.parametrize("level", ["none", "low", "medium", "high"])
def test_compressed_answers(models, start, level):
    repo.add(models, "flat_int32")
    server = start(models, f"--grpc-infer-response-compression-level={level}")
    with Grpc(server.url("grpc")) as client:
        values = [1] * 50_000
        assert numbers(client.infer(grpcraw.int32("flat_int32", values))) == values
        (answer,) = client.stub.ModelStreamInfer(iter([grpcraw.int32("flat_int32", values)]), timeout=wait.PATIENCE)
        assert numbers(answer.infer_response) == values


def test_answers_behind_an_error_are_compressed(models, start):
    """The first message of a stream, which is short, says how the others come."""
    repo.add(models, "flat_int32")
    server = start(models, "--grpc-infer-response-compression-level=high")
    with Http2(server.grpc) as wire:
        stream = wire.headers("POST", grpc_path("ModelStreamInfer"), [*GRPC_HEADERS, ("grpc-accept-encoding", "identity,gzip")], end=False)
        wire.send(stream, grpc_frame(grpcraw.int32("none", [1])) + grpc_frame(grpcraw.int32("flat_int32", [1] * 50_000)))
        reply = wire.response(stream)
    error, packed = reply.body[0], reply.body[5 + int.from_bytes(reply.body[1:5], "big"):]
    assert reply.headers["grpc-encoding"] == "gzip" and error == 0 and packed[0] == 1 and len(packed) < 200_000


# ---- contents ----

def test_mixed_contents_and_raw(grpc_):
    m = grpcraw.request("pair", [("INPUT0", "INT32", [1, 4], {"int_contents": [1, 2, 3, 4]}), ("INPUT1", "INT32", [1, 4], None)],
                        raw=[b"\0" * 16])
    assert failure(grpc_.infer, m).code() == Code.INVALID_ARGUMENT


@pytest.mark.parametrize("raw", [[b"\0" * 16], [b"\0" * 16] * 3], ids=["fewer", "more"])
def test_count_of_raw_contents(grpc_, raw):
    m = grpcraw.request("pair", [("INPUT0", "INT32", [1, 4], None), ("INPUT1", "INT32", [1, 4], None)], raw=raw)
    assert failure(grpc_.infer, m).code() == Code.INVALID_ARGUMENT


@pytest.mark.parametrize("datatype, shape, contents", [
    ("INT32", [3], {"int_contents": [1, 2]}), ("INT32", [3], {"int_contents": [1, 2, 3, 4]}),
    ("INT32", [3], {"fp32_contents": [1, 2, 3]}), ("INT32", [3], {"int_contents": [1, 2, 3], "fp32_contents": [1]}),
    ("INT8", [1], {"int_contents": [128]}), ("INT8", [1], {"int_contents": [-129]}), ("UINT8", [1], {"uint_contents": [256]}),
    ("INT16", [1], {"int_contents": [32768]}), ("UINT16", [1], {"uint_contents": [65536]}),
    ("UINT8", [1], {"int_contents": [1]}), ("INT64", [1], {"int_contents": [1]}), ("FP64", [1], {"fp32_contents": [1]}),
    ("BYTES", [1], {"int_contents": [1]}), ("BOOL", [1], {"int_contents": [1]})], ids=repr)
def test_contents_that_do_not_fit(grpc_, datatype, shape, contents):
    m = grpcraw.request(f"flat_{datatype.lower()}", [("INPUT0", datatype, shape, contents)])
    assert failure(grpc_.infer, m).code() == Code.INVALID_ARGUMENT


def test_unsigned_parameters(grpc_):
    m = grpcraw.int32("flat_int32", [1])
    m.parameters["priority"].uint64_param = 0
    m.parameters["timeout"].int64_param = 10**9
    m.parameters["d"].double_param = 1.5
    assert numbers(grpc_.infer(m)) == [1]


@pytest.mark.parametrize("key, bad", [("triton_anything", 1), ("priority", "high"), ("timeout", "x"), ("sequence_start", "x")])
def test_bad_parameters(grpc_, key, bad):
    e = failure(grpc_.infer, grpcraw.int32("flat_int32", [1], parameters={key: bad}))
    assert e.code() == Code.INVALID_ARGUMENT and ("triton_" if key.startswith("triton_") else key) in e.details()


@pytest.mark.parametrize("k", [0, -1, "2"])
def test_bad_classification(grpc_, k):
    m = grpcraw.request("flat_int32", [("INPUT0", "INT32", [1], None)], raw=[b"\0" * 4], outputs=[("OUTPUT0", {"classification": k})])
    e = failure(grpc_.infer, m)
    assert e.code() == Code.INVALID_ARGUMENT and "classification" in e.details()


def test_metadata_of_any_kind(grpc_):
    """Text, binary and many keys are taken and mean nothing."""
    metadata = [("x-text", "a b c"), ("x-binary-bin", bytes(range(256))), ("x-twice", "1"), ("x-twice", "2"),
                *((f"x-{i}", "y" * 100) for i in range(50))]
    assert numbers(grpc_.infer(grpcraw.int32("flat_int32", [1]), metadata=metadata)) == [1]


# ---- ModelStreamInfer ----

def stream(client, requests, **kw):
    return client.stub.ModelStreamInfer(iter(requests), timeout=wait.PATIENCE, **kw)


def test_stream_answers_in_order(grpc_):
    """The first is the slowest, and four instances work at once."""
    delays = [400, 0, 100, 0, 200, 0, 0, 50]
    requests = [grpcraw.int32("fault", [i], id=f"r{i}", parameters={"delay_ms": d}) for i, d in enumerate(delays)]
    answers = [a.infer_response for a in stream(grpc_, requests)]
    assert [(a.id, numbers(a)) for a in answers] == [(f"r{i}", [i]) for i in range(len(delays))]


def test_stream_many_in_flight(grpc_):
    answers = list(stream(grpc_, (grpcraw.int32("flat_int32", [i]) for i in range(2000))))
    assert [numbers(a.infer_response) for a in answers] == [[i] for i in range(2000)]


def test_stream_final_response_parameter(grpc_):
    (answer,) = stream(grpc_, [grpcraw.int32("flat_int32", [1])])
    assert answer.infer_response.parameters["triton_final_response"].bool_param is True


def test_stream_with_empty_final_response_asked_for(grpc_):
    m = grpcraw.int32("flat_int32", [1], parameters={"triton_enable_empty_final_response": True})
    (answer,) = stream(grpc_, [m])
    assert numbers(answer.infer_response) == [1]


def test_stream_stays_open_after_errors(grpc_):
    good = grpcraw.int32("flat_int32", [1], id="good")
    bad = [grpcraw.int32("nosuch", [1], id="bad0"), grpcraw.int32("flat_int32", [1], id="bad1", shape=[2]),
           grpcraw.int32("fault", [1], id="bad2", parameters={"fail_status": "INTERNAL"})]
    answers = list(stream(grpc_, [good, bad[0], good, bad[1], bad[2], good]))
    assert [bool(a.error_message) for a in answers] == [False, True, False, True, True, False]
    assert [a.infer_response.id for a in answers] == ["good", "bad0", "good", "bad1", "bad2", "good"]
    assert "'nosuch' is not found" in answers[1].error_message and "failed as configured" in answers[4].error_message


def test_stream_with_real_errors(grpc_):
    """With triton_grpc_error the first error ends the stream with its status."""
    requests = [grpcraw.int32("flat_int32", [1]), grpcraw.int32("nosuch", [1]), grpcraw.int32("flat_int32", [2])]
    call = stream(grpc_, requests, metadata=(("triton_grpc_error", "true"),))
    assert numbers(next(call).infer_response) == [1]
    e = failure(next, call)
    assert e.code() == Code.NOT_FOUND and "'nosuch' is not found" in e.details()


def test_empty_stream(grpc_):
    assert list(stream(grpc_, [])) == []


def test_stream_in_conversation(grpc_):
    """Each request is sent after the answer to the one before."""
    ready = threading.Semaphore(1)

    def requests():
        for i in range(50):
            ready.acquire(timeout=wait.PATIENCE)
            yield grpcraw.int32("flat_int32", [i])

    for i, answer in enumerate(stream(grpc_, requests())):
        assert numbers(answer.infer_response) == [i]
        ready.release()
    assert i == 49


def test_stream_with_large_messages(grpc_):
    values = list(range(300_000))
    answers = list(stream(grpc_, (grpcraw.int32("flat_int32", values) for _ in range(10))))
    assert all(numbers(a.infer_response) == values for a in answers) and len(answers) == 10


def test_cancelled_stream_frees_the_queue(busy, grpc_):
    busy.start()
    release = threading.Event()

    def requests():
        for _ in range(6):
            yield grpcraw.int32("slow", [2])
        release.wait(wait.PATIENCE)

    call = stream(grpc_, requests())
    busy.wait_pending(6)
    call.cancel()
    busy.wait_pending(0)
    release.set()
    busy.finish()


def test_many_streams(server):
    def one(i, found):
        with Grpc(server.url("grpc"), options=(("grpc.use_local_subchannel_pool", 1),)) as client:
            answers = stream(client, (grpcraw.int32("flat_int32", [i, j]) for j in range(50)))
            found[i] = [numbers(a.infer_response) for a in answers]

    found = {}
    threads = [threading.Thread(target=one, args=(i, found)) for i in range(10)]
    [t.start() for t in threads]
    [t.join(wait.PATIENCE) for t in threads]
    assert found == {i: [[i, j] for j in range(50)] for i in range(10)}

"""Runtimes of ModelMesh under servers of a mesh: what they are told, and calls of any service that are passed through to them."""
import queue
import re
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from lib import grpcraw, metrics, raw, repo, wait
from lib.reflected import Reflected
from lib.rest import Rest
from lib.services.mesh import X, joined
from lib.services.runtime import data, fields, number

ECHO = "/made.up.Service/Echo"


class Client:
    def __init__(self, server):
        self.channel = grpc.insecure_channel(str(server.url("grpc")), options=grpcraw.NO_LIMIT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def call(self, method, message, id=None, metadata=(), timeout=wait.PATIENCE, **kw):
        metadata = [*metadata, *([("mm-model-id", id)] if id else [])]
        return self.channel.unary_unary(method)(message, metadata=metadata, timeout=timeout, **kw)


def ask(server, id, message=b"hello", method=ECHO, **kw):
    with Client(server) as c:
        return c.call(method, message, id, **kw)


def refusal(server, id, message=b"x", **kw):
    with pytest.raises(grpc.RpcError) as e:
        ask(server, id, message, **kw)
    return e.value


def test_any_method_is_passed_to_the_runtime_that_has_the_model(runtime, under):
    runtimes = [runtime(), runtime()]
    servers = under(*runtimes)
    for i in range(8):
        for server in servers:
            assert ask(server, f"m{i}", b"%d" % i * 1000) == b"%d" % i * 1000
    for i in range(8):
        assert sum(r.count("loadModel", f"m{i}") for r in runtimes) == 1
    for r in runtimes:
        assert r.count("runtimeStatus") == 1
        assert all(path.endswith("/" + id) for id, path in r.loaded.items())
    big = bytes(range(256)) * 40_000
    for server in servers:
        assert ask(server, "m0", big) == big


def test_calls_are_measured_by_method_and_status(runtime, under):
    r = [runtime(allow_any=True), runtime(allow_any=True)]
    servers = under(*r)

    def answer(name, id, messages, context):
        if name.endswith("/Bad"):
            context.abort(grpc.StatusCode.DATA_LOSS, "lost")
        yield from messages

    for one in r:
        one.answer = answer
    for s in servers:
        for _ in range(3):
            ask(s, "m0")
        assert refusal(s, "m0", method="/made.up.Service/Bad").code() == grpc.StatusCode.DATA_LOSS
    count = lambda s, name: {(m["method"], m["code"]): v for m, v in metrics.samples(s, f"modelmesh_{name}_milliseconds_count")}  # noqa: E731
    for s in servers:
        assert count(s, "api_request") == {("Echo", "OK"): 3, ("Bad", "DATA_LOSS"): 1}
    runs = sorted((count(s, "invoke_model") for s in servers), key=len)
    assert runs == [{}, {("Echo", "OK"): 6, ("Bad", "DATA_LOSS"): 2}]
    for i in range(40):  # as many names as clients like
        ask(servers[0], "m0", method=f"/made.up.Service/M{i}")
    names = {method for method, _ in count(servers[0], "api_request")}
    assert len(names) == 32 and "other" in names and sum(count(servers[0], "api_request").values()) == 44


def test_sizes_are_measured_at_the_bounds_of_a_modelmesh(runtime, under):
    r = runtime(concurrency=100)  # nothing waits
    r.size = lambda id: 0 if id == "m1" else 1 << 20
    server, = under(r)
    read = lambda name, **labels: metrics.value(server, f"modelmesh_{name}", **labels)  # noqa: E731
    for n in (0, 100, 128, 129, 5000):
        assert ask(server, "m0", b"x" * n) == b"x" * n
    with Client(server) as c:
        assert len(list(c.channel.stream_stream("/a.B/Stream")(iter([b"y" * 50_000] * 2), metadata=[("mm-model-id", "m1")], timeout=wait.PATIENCE))) == 2
    for kind in ("request", "response"):
        bucket = lambda le, kind=kind: read(f"{kind}_size_bytes_bucket", method="Echo", code="OK", le=le)  # noqa: E731
        assert [bucket(le) for le in ("128.0", "512.0", "2048.0", "8192.0", "2097152.0", "+Inf")] == [3, 4, 4, 5, 5, 5]
        assert read(f"{kind}_size_bytes_sum", method="Echo") == 5357
        assert read(f"{kind}_size_bytes_sum", method="Stream") == 100_005, "and the prefix of the second message"
    assert read("loadmodel_milliseconds_count") == read("loaded_model_size_bytes_count") == 2
    assert read("model_sizing_milliseconds_count") == 1, "of that which has not said it"
    assert [read("loaded_model_size_bytes_bucket", le=le) for le in ("262144.0", "1048576.0", "4194304.0", "1.6777216E7")] == [0, 1, 2, 2]
    assert read("loaded_model_size_bytes_sum") == 4 << 20
    assert read("req_queue_delay_milliseconds_count") == 0


def test_loads_and_unloads_that_fail_are_counted(runtime, under):
    r = runtime()
    server, = under(r)
    read = lambda name: metrics.value(server, f"modelmesh_{name}")  # noqa: E731

    def load(id, path, context):
        if id == "m0":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a model")

    r.load = load
    refusal(server, "m0")
    wait.until(lambda: read("loadmodel_failure") == 1, "the load that failed")
    assert read("unloadmodel_milliseconds_count") == 1, "what it may have left"
    assert ask(server, "m1", b"x") == b"x"
    r._unloadModel = lambda id, f, context: context.abort(grpc.StatusCode.INTERNAL, "stuck")
    with Rest(server.http) as c:
        c.post("/v2/mesh/models/m1/unregister", {}).ok()
    wait.until(lambda: read("unloadmodel_failure") == 1, "the runtime to be given up")
    assert read("unloadmodel_attempt_failure") == r.count("unloadModel", "m1") == 3
    assert read("unloadmodel_milliseconds_count") == read("loadmodel_milliseconds_count") == 1


def test_call_that_has_come_in_part_is_answered_by_a_server_that_ends(runtime, under):
    server, = under(runtime())
    assert ask(server, "m0") == b"hello"
    frame = raw.grpc_frame(b"a message in two parts")
    with raw.Http2(server.grpc) as c:
        stream = c.headers("POST", ECHO, (*raw.GRPC_HEADERS, ("mm-model-id", "m0")), end=False)
        c.send(stream, frame[:9], end=False)
        server.signal()
        c.wait(c.terminated, "the server to say that it ends")
        c.send(stream, frame[9:])
        got = c.response(stream)
    assert got.headers["grpc-status"] == "0" and got.body == frame
    server.stop()


def test_call_without_a_message_moves_on_when_its_server_ends(runtime, under):
    runtimes = [runtime(), runtime()]
    servers = under(*runtimes)
    assert ask(servers[0], "m0") == b"hello"
    at = next(i for i, r in enumerate(runtimes) if r.count("loadModel", "m0"))
    has_ended = threading.Event()

    def messages():
        has_ended.wait(wait.PATIENCE)
        yield b"late"

    with Client(servers[1 - at]) as c:
        answers = c.channel.stream_stream(ECHO)(messages(), metadata=[("mm-model-id", "m0")], timeout=wait.PATIENCE)
        wait.until(lambda: len(runtimes[at].seen) == 2, "the call to reach the runtime")
        servers[at].stop()
        has_ended.set()
        assert list(answers) == [b"late"]


def test_metadata_and_status_pass_unchanged(runtime, under):
    r = [runtime(), runtime()]
    servers = under(*r)

    def answer(name, id, messages, context):
        list(messages)
        context.send_initial_metadata([("x-first", "1")])
        context.set_trailing_metadata([("x-last", "2"), ("x-raw-bin", b"\x00\xff")])
        context.set_code(grpc.StatusCode.DATA_LOSS)
        context.set_details("50 % of it – lost")
        return iter(())

    def says(name, id, messages, context):
        context.set_trailing_metadata([("x-last", "2")])
        yield from messages

    for one in r:
        one.answer = answer
    for server in servers:
        e = refusal(server, "m1", metadata=[("x-mine", "a"), ("mm-balanced", "true")])
        assert e.code() == grpc.StatusCode.DATA_LOSS and e.details() == "50 % of it – lost"
        assert dict(e.trailing_metadata())["x-last"] == "2" and dict(e.trailing_metadata())["x-raw-bin"] == b"\x00\xff"
        assert dict(e.initial_metadata())["x-first"] == "1"
    seen = [dict(m) for one in r for _, _, m in one.seen]
    assert len(seen) == 2
    for m in seen:
        assert m["x-mine"] == "a" and m["mm-model-id"] == "m1" and m["mm-model-id-bin"] == b"m1"
        assert not [k for k in m if k.startswith("mr-mesh") or k == "mm-balanced"]
    for one in r:
        one.answer = says
    with Client(servers[0]) as c:
        _, call = c.channel.unary_unary(ECHO).with_call(b"x", metadata=[("mm-model-id", "m1")], timeout=wait.PATIENCE)
    assert dict(call.trailing_metadata())["x-last"] == "2"


def test_deadline_reaches_the_runtime(runtime, under):
    r = runtime()
    [server] = under(r)
    left = []

    def answer(name, id, messages, context):
        left.append(context.time_remaining())
        yield from messages

    r.answer = answer
    ask(server, "m0", timeout=100)
    assert 0 < left[0] <= 101


def test_calls_that_name_no_model_or_no_method(runtime, under):
    r = runtime()
    [server] = under(r)
    e = refusal(server, None)
    assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and "mm-model-id" in e.details()
    e = refusal(server, "nobody")
    assert e.code() == grpc.StatusCode.NOT_FOUND and "nobody" in e.details()
    e = refusal(server, "m0", method="/mmesh.ModelRuntime/unloadModel")
    assert e.code() == grpc.StatusCode.UNIMPLEMENTED
    for method in ("/mmesh.ModelRuntime/ofItsOwn", "/mmesh.ModelMesh/unknown"):
        assert refusal(server, "m0", method=method).code() == grpc.StatusCode.UNIMPLEMENTED
    assert {name for name, _ in r.calls} == {"runtimeStatus"} and not r.seen


def test_service_of_the_package_mmesh_is_the_runtimes(runtime, under):
    """As that of ModelMesh's example is."""
    [server] = under(runtime())
    assert ask(server, "m0", method="/mmesh.ExamplePredictor/predict") == b"hello"


def test_model_is_loading_from_the_call_on_that_has_it_loaded(runtime, under):
    r, go = runtime(), threading.Event()
    r.load = lambda id, path, context: go.wait(wait.PATIENCE)
    [server] = under(r)
    loading = 2
    with Reflected(server.url("grpc")) as g:
        assert g.call("mmesh.ModelMesh/ensureLoaded", modelId="m0").status == loading
        assert g.call("mmesh.ModelMesh/registerModel", modelId="new", modelInfo={"type": "made-up"}, loadNow=True).status == loading
        assert g.call("mmesh.ModelMesh/setVModel", vModelId="v", targetModelId="m1", loadNow=True).activeModelStatus.status == loading
        go.set()
        assert ask(server, "m1") == b"hello"


@pytest.mark.parametrize("asked", [0, 1])
def test_request_of_a_vmodel_outlives_the_model_that_it_waits_for(runtime, under, asked):
    r, go = [runtime(), runtime()], threading.Event()
    for one in r:
        one.load = lambda id, path, context: go.wait(wait.PATIENCE) if id == "old" else None
    servers = under(*r)
    with Reflected(servers[0].url("grpc")) as g, Client(servers[asked]) as c, Rest(servers[asked].http) as rest:
        g.call("mmesh.ModelMesh/setVModel", vModelId="v", targetModelId="old", modelInfo={"type": "made-up"}, autoDeleteTargetModel=True)
        wait.until(lambda: rest.get("/v2/mesh/models/old").json().get("status") == "NOT_LOADED", "it to be known")
        waits = c.channel.unary_unary(ECHO).future(b"x", metadata=[("mm-vmodel-id", "v")], timeout=wait.PATIENCE)
        wait.until(lambda: any(one.count("loadModel", "old") for one in r), "the load to begin")
        g.call("mmesh.ModelMesh/setVModel", vModelId="v", targetModelId="m1", force=True)
        assert waits.result() == b"x"
        assert dict(next(one for one in r if one.seen).seen[0][2])["mm-model-id"] == "m1"
        go.set()


def test_id_is_injected_where_the_runtime_wants_it(runtime, under):
    r = [runtime(methods={ECHO[1:]: [2, 1], "inference.GRPCInferenceService/ModelInfer": [1]}), runtime(methods={ECHO[1:]: [2, 1], "inference.GRPCInferenceService/ModelInfer": [1]})]
    servers = under(*r)
    for server in servers:
        out = fields(ask(server, "m3", data(1, "payload" * 10_000)))
        assert out[1] == b"payload" * 10_000 and fields(out[2])[1] == b"m3"
        out = fields(ask(server, "m3", data(2, data(1, "old") + data(5, "kept"))))
        assert fields(out[2]) == {1: b"m3", 5: b"kept"}
        out = fields(ask(server, "m3", data(2, data(1, "old")), compression=grpc.Compression.Gzip))
        assert fields(out[2]) == {1: b"m3"}
        e = refusal(server, "m3", b"\x0a")
        assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and "protobuf" in e.details()
        e = refusal(server, "m3", method="/made.up.Service/Other")
        assert e.code() == grpc.StatusCode.UNIMPLEMENTED
        # the inference protocol's own messages name their model
        out = fields(ask(server, None, data(1, "m4") + data(3, "id"), method="/inference.GRPCInferenceService/ModelInfer"))
        assert out == {1: b"m4", 3: b"id"}


def test_readiness_is_said_by_the_mesh(runtime, under):
    """Whatever the runtime lists, and nothing is loaded; of a version the runtime says it."""
    r = [runtime(methods={"inference.GRPCInferenceService/ModelInfer": [1]}), runtime()]
    servers = under(*r)
    method = "/inference.GRPCInferenceService/ModelReady"
    for server in servers:
        wait.until(lambda: fields(ask(server, None, data(1, "m0"), method=method)) == {1: 1}, "the server to know the model")
        assert fields(ask(server, "m0", b"", method=method)) == {1: 1}
        assert fields(ask(server, None, data(1, "nobody"), method=method)) == {}
    assert not any(one.count("loadModel") or one.seen for one in r)
    assert fields(ask(servers[1], None, data(1, "m0") + data(2, "1"), method=method)) == {1: b"m0", 2: b"1"}  # an echo


BOTH = "/made.up.Service/Both"


class Talk:
    """A stream of messages both ways."""

    def __init__(self, client, id="m2", **kw):
        self.sent = queue.Queue()
        self.call = client.channel.stream_stream(BOTH)(iter(self.sent.get, None), metadata=[("mm-model-id", id)], timeout=wait.PATIENCE, **kw)

    def say(self, *messages):
        for m in messages:
            self.sent.put(m)

    def hear(self):
        return next(self.call)

    def end(self):
        self.sent.put(None)
        return list(self.call)


def test_streams_pass_message_by_message(runtime, under):
    r = [runtime(), runtime()]
    servers = under(*r)
    for server in servers:
        for compression in (None, grpc.Compression.Gzip):
            with Client(server) as c:
                talk = Talk(c, compression=compression)
                for i in range(20):
                    talk.say(b"%d" % i * 1000)
                    assert talk.hear() == b"%d" % i * 1000
                talk.say(b"", b"last")
                assert talk.end() == [b"", b"last"]
    assert sum(one.count("loadModel", "m2") for one in r) == 1


def test_answers_come_before_the_runtime_has_ended(runtime, under):
    r = [runtime(), runtime()]
    servers = under(*r)
    go = threading.Event()

    def answer(name, id, messages, context):
        list(messages)
        yield b"first"
        assert go.wait(wait.PATIENCE)
        yield b"second"

    for one in r:
        one.answer = answer
    for server in servers:
        go.clear()
        with Client(server) as c:
            call = c.channel.unary_stream("/made.up.Service/Many")(b"a", metadata=[("mm-model-id", "m2")], timeout=wait.PATIENCE)
            assert next(call) == b"first"
            go.set()
            assert list(call) == [b"second"]


def test_status_and_trailers_follow_the_messages_of_a_stream(runtime, under):
    r = [runtime(), runtime()]
    servers = under(*r)

    def answer(name, id, messages, context):
        context.send_initial_metadata([("x-first", "1")])
        yield next(messages)
        context.set_trailing_metadata([("x-last", "2")])
        context.abort(grpc.StatusCode.NOT_FOUND, "the rest of it")

    for one in r:
        one.answer = answer
    for server in servers:
        with Client(server) as c:
            talk = Talk(c)
            assert dict(talk.call.initial_metadata())["x-first"] == "1"  # before the client has said anything
            talk.say(b"x")
            assert talk.hear() == b"x"
            with pytest.raises(grpc.RpcError) as e:
                talk.hear()
            assert e.value.code() == grpc.StatusCode.NOT_FOUND and e.value.details() == "the rest of it"
            assert dict(e.value.trailing_metadata())["x-last"] == "2"
    assert sum(one.count("loadModel") for one in r) == 1


@pytest.mark.parametrize("ends", ["cancel", "deadline"])
def test_end_of_a_client_reaches_the_runtime(runtime, under, ends):
    r = [runtime(), runtime()]
    servers = under(*r)
    over = []

    def answer(name, id, messages, context):
        context.add_callback(lambda: over.append(context.is_active()))
        yield next(messages)
        yield from messages

    for one in r:
        one.answer = answer
    for n, server in enumerate(servers, 1):
        with Client(server) as c:
            talk = Talk(c)
            talk.say(b"x")
            talk.hear()
            if ends == "cancel":
                talk.call.cancel()
            else:
                ended, timeout = len(over), 0.5
                while len(over) == ended:  # again, and longer, where the time was over before the runtime had the call
                    messages = queue.Queue()
                    messages.put(b"x")
                    with pytest.raises(grpc.RpcError) as e:
                        list(c.channel.stream_stream(BOTH)(iter(messages.get, None), metadata=[("mm-model-id", "m2")], timeout=timeout))
                    assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
                    timeout *= 2
                talk.end()
        wait.until(lambda: len(over) >= (n if ends == "cancel" else 2 * n), "the runtime to hear of it")


@pytest.mark.more
def test_slow_reader_holds_up_the_runtime(runtime, under):
    r = [runtime(), runtime()]
    servers = under(*r)
    made = [0]

    def answer(name, id, messages, context):
        list(messages)
        for _ in range(300):
            made[0] += 1
            yield b"x" * (1 << 20)

    for one in r:
        one.answer = answer
    for server in servers:
        made[0] = 0
        with Client(server) as c:
            call = c.channel.unary_stream("/made.up.Service/Many")(b"a", metadata=[("mm-model-id", "m2")], timeout=wait.PATIENCE)
            next(call)
            stands_still(lambda: made[0])
            assert made[0] < 150
            assert sum(len(m) for m in call) == 299 << 20


@pytest.mark.more
def test_slow_runtime_holds_up_the_client(runtime, under):
    r = [runtime(), runtime()]
    servers = under(*r)
    go = threading.Event()

    def answer(name, id, messages, context):
        assert go.wait(wait.PATIENCE)
        yield b"%d" % sum(len(m) for m in messages)

    for one in r:
        one.answer = answer
    for server in servers:
        go.clear()
        sent = [0]

        def messages():
            for _ in range(300):
                sent[0] += 1
                yield b"x" * (1 << 20)

        with Client(server) as c:
            call = c.channel.stream_unary("/made.up.Service/One").future(messages(), metadata=[("mm-model-id", "m2")], timeout=wait.PATIENCE)
            stands_still(lambda: sent[0])
            assert sent[0] < 150
            go.set()
            assert int(call.result()) == 300 << 20


def stands_still(count):
    """Until it has not changed between many looks."""
    seen = []
    wait.until(lambda: seen.append(count()) or (len(seen) > 20 and len(set(seen[-20:])) == 1), "it to stand still")


def test_message_that_is_too_large_ends_the_stream(runtime, under):
    r = runtime()
    [server] = under(r, options=["--grpc-max-message-size=100000"])
    with Client(server) as c:
        talk = Talk(c)
        talk.say(b"x" * 100_000)
        assert talk.hear() == b"x" * 100_000
        talk.say(b"x" * 100_001)
        with pytest.raises(grpc.RpcError) as e:
            talk.hear()
        assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--grpc-max-message-size" in e.value.details()
        talk.say(None)
    assert ask(server, "m2") == b"hello"


def test_runtime_that_dies_ends_its_streams(runtime, under):
    r = [runtime(), runtime()]
    servers = under(*r)
    assert ask(servers[0], "m2") == b"hello"
    has = next(one for one in r if "m2" in one.loaded)
    with Client(servers[0]) as a, Client(servers[1]) as b:
        talks = [Talk(a), Talk(b)]
        for talk in talks:
            talk.say(b"x")
            assert talk.hear() == b"x"
        has.stop()
        for talk in talks:
            with pytest.raises(grpc.RpcError) as e:
                talk.hear()
            assert e.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            talk.say(None)


def test_sizes_decide_what_stays(runtime, under):
    r = runtime(capacity=10 << 20, default=1 << 20)
    r.size = lambda id: 4 << 20
    [server] = under(r)
    for i in range(6):
        assert ask(server, f"m{i}") == b"hello"
    wait.until(lambda: len(r.loaded) <= 2, "the others to be unloaded")
    r.size = lambda id: 1 << 50  # it lies
    e = refusal(server, "m7")
    assert "capacity" in e.details()
    wait.until(lambda: "m7" not in r.loaded, "it to be unloaded")
    r.size = lambda id: 0  # asked for afterwards
    assert ask(server, "m6") == b"hello"
    assert r.count("modelSize", "m6") == 1


def test_predicted_size_makes_room_before_the_load(runtime, under):
    r = runtime(capacity=10 << 20, default=1 << 20)
    r.size = r.predict = lambda id: 4 << 20
    [server] = under(r)
    for i in range(4):
        assert ask(server, f"m{i}") == b"hello"
    assert 4 <= r.count("predictModelSize") <= 6  # two of them waited for an unload, if their predictions came in time
    r.predict = lambda id: 1 << 40
    for id in ("m4", "m5", "m6", "m7"):  # a prediction that takes half a second is not waited for
        with Client(server) as c:
            try:
                c.call(ECHO, b"hello", id)
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "predicts" in e.details() and r.count("loadModel", id) == 0
                return
    pytest.fail("no model was refused")


@pytest.mark.more  # a prediction that takes half a second is not waited for
def test_load_waits_until_there_is_the_room_that_was_predicted(runtime, under):
    r, go, gone = runtime(capacity=10 << 20, default=1 << 20), threading.Event(), []
    r.size = r.predict = lambda id: 6 << 20
    r._unloadModel = lambda id, f, context: (go.wait(wait.PATIENCE), gone.append(id), b"")[-1]
    r.load = lambda id, path, context: gone.append("load " + id)
    [server] = under(r)
    assert ask(server, "m0") == b"hello"
    with Client(server) as c, Rest(server.http) as rest:
        waits = c.channel.unary_unary(ECHO).future(b"x", metadata=[("mm-model-id", "m1")], timeout=wait.PATIENCE)
        wait.until(lambda: r.count("unloadModel", "m0"), "what has to go")
        assert rest.get("/v2/mesh/models/m1").json()["status"] == "LOADING"
        go.set()
        assert waits.result() == b"x"
    assert gone[:3] == ["load m0", "m0", "load m1"]


def test_load_that_fails_says_why_and_leaves_nothing(runtime, under):
    r = runtime()
    [server] = under(r)

    def load(id, path, context):
        r.loaded[id] = "half"
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the weights are torn")

    r.load = load
    e = refusal(server, "m0")
    assert "the weights are torn" in e.details()
    assert r.loaded == {} and r.count("unloadModel", "m0") == 1


def test_load_that_an_administrator_asks_for_goes_on_where_it_failed(runtime, under):
    bad, good = runtime(), runtime()
    bad.load = lambda id, path, context: context.abort(grpc.StatusCode.INTERNAL, "the disk is full")
    servers = under(bad, good)
    with Reflected(servers[0].url("grpc")) as c:
        for i in range(8):
            got = c.call("mmesh.ModelMesh/ensureLoaded", modelId=f"m{i}", sync=True)
            assert got.status == 3, got
    assert good.count("loadModel") == 8 and bad.count("loadModel") >= 1


def test_load_that_fails_elsewhere_has_the_same_status(runtime, under):
    codes = {f"m{i}": code for i, code in enumerate(2 * [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE])}
    said = {"RESOURCE_EXHAUSTED": "RESOURCE_EXHAUSTED", "UNAVAILABLE": "UNAVAILABLE"}
    runtimes = [runtime(), runtime()]
    for r in runtimes:
        r.load = lambda id, path, context: context.abort(codes[id], f"{id} is torn")
    servers = under(*runtimes, options=['--mesh-constraints={"millrace": {"required": ["gpu"]}}'], last=["--mesh-label=gpu"])
    for turn in range(2):
        for i, id in enumerate(codes):
            e = refusal(servers[(turn + i // 4) % 2], id)
            assert (e.code().name, f"{id} is torn" in e.details()) == (said.get(codes[id].name, "INTERNAL"), True), e.details()


def test_server_that_ends_answers_those_who_wait_for_a_load(runtime, under):
    r = runtime()
    [server] = under(r)
    may_end = threading.Event()
    r.load = lambda id, path, context: may_end.wait(wait.PATIENCE)
    with Reflected(server.url("grpc")) as c:
        call, request = c.method("mmesh.ModelMesh/ensureLoaded")
        answer = call.future(request(modelId="m0", sync=True), timeout=wait.PATIENCE)
        wait.until(lambda: r.count("loadModel", "m0"), "the load to begin")
        server.signal()
        assert answer.result().status in (0, 1, 2)  # as it is then
        may_end.set()
    server.stop()


def test_load_that_hangs_ends_at_its_deadline(runtime, under):
    r = runtime(timeout_ms=3000)
    [server] = under(r)
    r.load = lambda id, path, context: wait.until(lambda: not context.is_active(), "the end")
    e = refusal(server, "m0")
    assert e.code() == grpc.StatusCode.UNAVAILABLE
    r.load = lambda id, path, context: None
    assert ask(server, "m1") == b"hello"


def test_model_that_the_runtime_lost_is_loaded_again(runtime, under):
    r = runtime()
    [server] = under(r)
    assert ask(server, "m0") == b"hello"
    r.loaded.clear()
    assert ask(server, "m0") == b"hello"
    assert r.count("loadModel", "m0") == 2


def test_model_that_the_runtime_loses_again_is_loaded_again(runtime, under):
    runtimes = [runtime(), runtime()]
    servers = under(*runtimes)
    assert ask(servers[0], "m0") == b"hello"
    for server in servers * 3:
        for r in runtimes:
            r.loaded.clear()
        assert ask(server, "m0") == b"hello"
    assert sum(r.count("loadModel", "m0") for r in runtimes) == 7


def test_loss_is_noticed_by_a_call_that_is_too_large_to_be_repeated(runtime, under):
    r, lost = runtime(), set()
    [server] = under(r)

    def answer(name, id, messages, context):
        messages = list(messages)  # all of it passes through
        if id in lost:
            context.abort(grpc.StatusCode.NOT_FOUND, "not loaded")
        yield from messages

    r.answer, r.load = answer, lambda id, path, context: lost.discard(id)
    big = b"x" * (5 << 20)
    with Client(server) as c:
        for n in (1, 2):
            assert c.call(ECHO, big, "m0") == big
            lost.add("m0")
            with pytest.raises(grpc.RpcError) as e:
                c.call(ECHO, big, "m0")
            assert e.value.code() == grpc.StatusCode.NOT_FOUND
            wait.until(lambda: r.count("loadModel", "m0") == n + 1, "it to be loaded again")  # noqa: B023


@pytest.mark.parametrize("code, text", [
    (grpc.StatusCode.NOT_FOUND, "no such user"), (grpc.StatusCode.UNAVAILABLE, "Request for unknown model: 'm0' is not found"),
    (grpc.StatusCode.INVALID_ARGUMENT, "Model m0 with version  not found"),
])
def test_not_found_of_the_models_own_loads_it_again_once(runtime, under, code, text):
    r = runtime()
    [server] = under(r)

    def answer(name, id, messages, context):
        if list(messages) == [b"missing"]:
            context.abort(code, text)
        yield b"found"

    r.answer = answer
    assert ask(server, "m0", b"there") == b"found"
    for _ in range(5):
        e = refusal(server, "m0", b"missing")
        assert e.code() == grpc.StatusCode.NOT_FOUND and e.details() == text
        assert ask(server, "m0", b"there") == b"found"
    assert r.count("loadModel", "m0") == 2 and r.count("unloadModel", "m0") == 1


def test_runtime_that_dies_and_comes_back(runtime, under):
    r = [runtime(), runtime()]
    servers = under(*r)
    for i in range(8):
        ask(servers[0], f"m{i}")
    had = list(r[1].loaded)
    assert had
    r[1].stop()
    for id in had:  # loaded elsewhere
        for server in servers:
            assert ask(server, id) == b"hello"
    assert all(id in r[0].loaded for id in had)
    wait.until(lambda: any("away" in str(e) for e in servers[1].events()), "the log line")
    r[1].start()
    wait.until(lambda: r[1].count("runtimeStatus") == 2, "the question")


def test_only_runtime_that_dies_and_comes_back(runtime, under):
    r = runtime()
    [server] = under(r)
    assert ask(server, "m0") == b"hello" and ask(server, "m1") == b"hello"
    r.stop()
    e = refusal(server, "m0")
    assert e.code() == grpc.StatusCode.UNAVAILABLE
    r.start()
    wait.until(lambda: r.count("runtimeStatus") == 2, "the question")
    assert ask(server, "m1") == b"hello"  # not the one whose load failed
    assert r.count("loadModel", "m1") == 2


def test_load_that_finds_the_runtime_away_waits_for_it(runtime, under):
    r = runtime()
    [server] = under(r)
    assert ask(server, "m0") == b"hello"
    r.stop()
    e = refusal(server, "m1")
    assert e.code() == grpc.StatusCode.UNAVAILABLE and re.search("the runtime does not answer: .*refused", e.details()), e.details()


@pytest.mark.more  # a load waits five seconds for its runtime
def test_model_that_is_lost_before_its_size_is_known_is_loaded_again(runtime, under):
    r = runtime()
    r.size = lambda id: 0
    [server] = under(r)

    def size(id, f, context):
        del r._modelSize
        r.cut()
        wait.until(lambda: not context.is_active(), "the end of the call")

    r._modelSize = size
    assert ask(server, "m0") == b"hello"
    assert r.count("loadModel", "m0") == 2 and r.count("unloadModel") == 0


def test_runtime_that_is_failing_is_said_at_once(runtime, registry, start, models):
    repo.add(models, "m0", repo.config())
    r = runtime()
    r.state = 2
    server = start(models, f"--mesh={registry}", f"--mesh-runtime={r.target}", mode=None, ready=False)
    server.wait_ready()
    wait.until(lambda: [e for e in server.events() if e["event"] == "mesh.runtime" and "failing" in str(e)], "a line in the log")
    with Rest(server.http) as rest:
        assert "failing" in rest.get("/v2/mesh").json()["error"]
    r.state = 1
    joined(server)


def test_calls_go_to_the_model_server_of_an_adapter(runtime, under):
    """The adapter loads and unloads there, and knows nothing of other calls."""
    adapter, behind = runtime(), runtime()
    behind.loaded = adapter.loaded
    [server] = under(adapter, options=[f"--mesh-runtime-inference={behind.target}"])
    for id in ("m0", "m1"):
        assert ask(server, id) == b"hello"
    behind.stop()

    def load(id, path, context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "the model server is away")

    adapter.load = load
    e = refusal(server, "m0")
    assert e.code() == grpc.StatusCode.UNAVAILABLE and "the model server is away" in e.details()
    adapter.load = lambda id, path, context: None
    behind.start()
    assert ask(server, "m1") == b"hello"
    assert adapter.count("loadModel", "m1") == 2 and adapter.count("runtimeStatus") == 1
    assert not adapter.seen and not behind.calls


def test_server_waits_for_a_runtime_that_starts(runtime, registry, start, models):
    repo.add(models, "m0", repo.config())
    r = runtime()
    r.state = 0
    server = start(models, f"--mesh={registry}", f"--mesh-runtime={r.target}", mode=None, ready=False)
    server.wait_ready()
    e = refusal(server, "m0")
    assert e.code() == grpc.StatusCode.UNAVAILABLE
    wait.until(lambda: r.count("runtimeStatus") >= 2, "another question")
    with Rest(server.http) as rest:
        assert "it is starting" in rest.get("/v2/mesh").json()["error"]
    assert not [e for e in server.events() if e["event"] == "mesh.runtime"]
    r.state = 1
    joined(server)
    assert ask(server, "m0") == b"hello"


def test_runtime_without_capacity_is_said_at_once(runtime, registry, start, models):
    repo.add(models, "m0", repo.config())
    r = runtime(capacity=0)
    server = start(models, f"--mesh={registry}", f"--mesh-runtime={r.target}", mode=None, ready=False)
    server.wait_ready()
    told = lambda: [e for e in server.events() if "capacityInBytes is 0" in str(e)]  # noqa: E731
    wait.until(told, "the log line")
    with Rest(server.http) as rest:
        reply = rest.get("/v2/mesh")
        assert reply.status == 503 and "capacityInBytes is 0" in reply.json()["error"]
        assert rest.get("/v2/health/ready").status == 400
    wait.until(lambda: r.count("runtimeStatus") >= 4, "further questions")
    assert [(e["event"], e["level"]) for e in told()] == [("mesh.runtime", "error")]
    r.status["capacity"] = 1 << 30
    joined(server)
    assert ask(server, "m0") == b"hello"


def test_millrace_under_millrace(registry, start, models, grpc_port_of=None):
    for i in range(4):
        repo.add(models, f"m{i}", repo.config())
    lower = [start([], f"--model-runtime={models}", mode=None) for _ in range(2)]
    servers = [start(models, f"--mesh={registry}", f"--mesh-id=s{i}", f"--mesh-runtime=127.0.0.1:{low.grpc}", mode=None, ready=False) for i, low in enumerate(lower)]
    for s in servers:
        joined(s.wait_ready())
    for i in range(4):
        for server in servers:
            with grpcraw.Grpc(server.url("grpc")) as g:
                assert g.infer(grpcraw.int32(f"m{i}", [1, 2])).model_name == f"m{i}"
                assert g.infer(grpcraw.int32("", [1, 2]), metadata=[("mm-model-id", f"m{i}")]).model_name == f"m{i}"
    loads = [e["model"] for low in lower for e in low.events() if e["event"] == "model.ready"]
    assert sorted(loads) == [f"m{i}" for i in range(4)]


def several(server, ids, message=b"x", required=None, key="mm-model-id", method=ECHO, **kw):
    metadata = [(key, i) for i in ids] + ([("mm-required", required)] if required else [])
    return ask(server, None, message, metadata=metadata, method=method, **kw)


def test_call_of_several_models_is_the_answers_in_order(runtime, under):
    r = [runtime(), runtime()]
    servers = under(*r)

    def answer(name, id, messages, context):
        for m in messages:
            yield id.encode() + m + b";"

    for one in r:
        one.answer = answer
    ids = [f"m{i}" for i in (5, 0, 3, 7, 1, 2, 6, 4)]
    for server in servers:
        assert several(server, ids) == b"".join(i.encode() + b"x;" for i in ids)
        assert several(server, [i.encode() for i in ids], key="mm-model-id-bin") == b"".join(i.encode() + b"x;" for i in ids)
        assert several(server, ["m1", "nobody", "m2"]) == b"m1x;m2x;"
        big = b"y" * 100_000
        assert several(server, ["m1", "m2"], big, compression=grpc.Compression.Gzip) == b"m1" + big + b";m2" + big + b";"
        for required in ("all", "ALL"):
            with pytest.raises(grpc.RpcError) as e:
                several(server, ["m1", "nobody", "m2"], required=required)
            assert e.value.code() == grpc.StatusCode.NOT_FOUND and "nobody" in e.value.details()
        with pytest.raises(grpc.RpcError) as e:
            several(server, ["nobody", "nothing"])
        assert e.value.code() == grpc.StatusCode.NOT_FOUND


def test_call_of_several_models_fails_with_the_first_error(runtime, under):
    r = runtime()
    [server] = under(r)

    def answer(name, id, messages, context):
        list(messages)
        begun.append(id)
        if id == "m2":
            wait.until(lambda: len(begun) == 4, "the others, of which four run at a time")
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")
        wait.until(lambda: not context.is_active(), "its cancellation")
        cancelled.append(id)
        return iter(())

    begun, cancelled = [], []
    r.answer = answer
    with pytest.raises(grpc.RpcError) as e:
        several(server, ["m0", "m1", "m2", "m3", "m4"])
    assert e.value.code() == grpc.StatusCode.FAILED_PRECONDITION and e.value.details() == "not today"
    wait.until(lambda: sorted(cancelled) == ["m0", "m1", "m3"], "the cancellation of the others")


def test_alias_names_the_model_that_is_active(runtime, under):
    r = [runtime(methods={ECHO[1:]: [1]}, allow_any=True), runtime(methods={ECHO[1:]: [1]}, allow_any=True)]
    servers = under(*r)
    for target in ["m1", "m2"]:
        ask(servers[0], None, data(1, "v") + data(2, target) + number(8, 1), method="/mmesh.ModelMesh/setVModel")
        for server in servers:
            wait.equal(lambda: fields(ask(server, None, data(3, "x"), metadata=[("mm-vmodel-id", "v")])), {1: target.encode(), 3: b"x"}, "the answer")
            # KServe's clients have it in the message alone
            assert ask(server, None, data(1, "v"), method="/inference.GRPCInferenceService/ModelInfer") == data(1, "v")
    assert [id for one in r for name, id, _ in one.seen if name.endswith("/ModelInfer")].count("m2") >= 2


def switches(server, thread):
    """How often that thread of the server has slept or was put aside."""
    for task in (Path("/proc") / str(server.process.pid) / "task").iterdir():
        if (task / "comm").read_text().strip() == thread:
            return sum(int(line.split()[1]) for line in (task / "status").read_text().splitlines() if "ctxt_switches" in line)
    raise AssertionError(f"no thread {thread}")


@pytest.mark.more
@pytest.mark.parametrize("key", ["mm-model-id", "mm-vmodel-id"])
def test_calls_do_not_pass_through_the_thread_of_the_mesh(runtime, under, key):
    r = runtime()
    [server] = under(r)
    ask(server, None, data(1, "m1") + data(2, "m1") + number(8, 1), method="/mmesh.ModelMesh/setVModel")
    with Client(server) as c:
        c.call(ECHO, b"x", metadata=[(key, "m1")])
        before = switches(server, "mesh")
        for i in range(2000):
            c.call(ECHO, b"x", metadata=[(key, "m1")])
        assert switches(server, "mesh") - before < 1000
    assert len(r.seen) == 2001


def test_vmodel_answers_with_its_new_model_at_once(runtime, under):
    r = runtime()
    r.answer = lambda name, id, messages, context: (id.encode() for _ in messages)
    [server] = under(r)
    for i in range(30):
        target = f"m{i % 3}"
        ask(server, None, data(1, "v") + data(2, target) + number(7, 1) + number(8, 1), method="/mmesh.ModelMesh/setVModel")
        for _ in range(3):
            assert ask(server, None, metadata=[("mm-vmodel-id", "v")]) == target.encode()


def test_models_are_not_unloaded_under_their_calls(runtime, under):
    r = runtime(capacity=6 << 20, default=1 << 20)
    r.size = lambda id: 2 << 20
    lost = []

    def answer(name, id, messages, context):
        list(messages)
        time.sleep(0.002)
        if id not in r.loaded:
            lost.append(id)
        yield b"done"

    r.answer = answer
    [server] = under(r)

    def work(n):
        with Client(server) as c:
            for i in range(60):
                assert c.call(ECHO, b"x", f"m{(n + i // 3) % 5}") == b"done"

    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert not lost and r.count("unloadModel") > 10
    assert len(r.seen) == 480  # none came to a model that was not there


def test_model_that_limits_its_requests_has_a_queue(runtime, under):
    """Two run, sixteen wait, more are refused, whichever server gets them."""
    runtimes, go, lock, running = [runtime(concurrency=2), runtime(concurrency=2)], threading.Event(), threading.Lock(), [0, 0]

    def answer(name, id, messages, context):
        with lock:
            running[0] += 1
            running[1] = max(running)
        go.wait(wait.PATIENCE)
        with lock:
            running[0] -= 1
        yield from messages

    servers = under(*runtimes, options=["--mesh-max-copies=1"])
    ask(servers[0], "m0")
    for r in runtimes:
        r.answer = answer
    with Client(servers[0]) as one, Client(servers[1]) as other:
        calls = [c.channel.unary_unary(ECHO).future(b"x", metadata=[("mm-model-id", "m0")], timeout=wait.PATIENCE) for c in (one, other) * 15]
        wait.until(lambda: sum(c.done() for c in calls) == 12, "those that are too many to be refused")
        wait.until(lambda: running[0] == 2, "two that run")
        refused = [c for c in calls if c.done()]
        go.set()
        assert all(c.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "wait for the model" in c.details() for c in refused)
        hints = [dict(c.trailing_metadata()) for c in refused]
        # the mesh's estimate: a server that has loaded one model, in less than the 100 ms that count before or in more
        assert all(list(h) == ["grpc-retry-pushback-ms"] and int(h["grpc-retry-pushback-ms"]) >= 80 for h in hints), hints
        assert [c.result() for c in calls if c not in refused] == [b"x"] * 18
    assert running[1] == 2
    assert sum(metrics.value(s, "modelmesh_req_queue_delay_milliseconds_count") for s in servers) == 16
    assert sum(r.count("loadModel", "m0") for r in runtimes) == 1


def test_rest_says_that_the_runtime_takes_grpc(runtime, under):
    [server] = under(runtime())
    with Rest(server.http) as r:
        for reply in (r.infer("m0", X), r.get("/v2/models/m0"), r.get("/v2/models/m0/config")):
            assert reply.status == 501 and "gRPC" in reply.json()["error"], reply
        assert r.get("/v2").status == 200

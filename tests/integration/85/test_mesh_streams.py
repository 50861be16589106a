"""Streams of models that are on another server pass through to it."""
import contextlib
import json
import signal
import threading
from concurrent import futures

import grpc
import pytest
from h2.events import TrailersReceived

from lib import grpcraw, metrics, pymodels, repo, wait
from lib.raw import GRPC_HEADERS, Http2, grpc_frame, grpc_path
from lib.rest import Rest
from lib.services.mesh import answers, loads
from lib.stream import DECOUPLED, Stream, Talk, flag, values


def ask(model, numbers=(1, 2, 3), repeat=3, **kw):
    return grpcraw.int32(model, list(numbers), parameters={"repeat": repeat}, **kw)


@pytest.fixture
def pair(fleet, tmp_path):
    """(a server, another one that alone has the models)."""
    repo.add(tmp_path / "a", "own", repo.config())
    repo.add(tmp_path / "b", "many", extra=DECOUPLED + " instance_group [ { count: 4 } ]")
    repo.add(tmp_path / "b", "one")
    return fleet(tmp_path / "a", tmp_path / "b")


def test_answers_come_one_by_one(pair):
    with Stream(pair[0].url("grpc")) as s:
        for i in range(20):
            s.send(ask("many", [i], repeat=3))
            got = s.take(3)
            assert [values(a) for a in got] == [[i]] * 3 and [flag(a) for a in got] == [False, False, True]
        s.send(ask("one", [9], repeat=1))  # a later request of the stream is asked for where the stream is
        assert values(s.take(1)[0]) == [9]
        assert s.end() == []
    assert loads(pair[0], "many") == 0 and loads(pair[1], "many") == 1


@pytest.mark.more
def test_large_messages_pass_both_ways(pair):
    numbers = list(range(3_000_000))  # more than what is kept of a stream, and than its window
    with Stream(pair[0].url("grpc")) as s:
        s.send(ask("many", numbers, repeat=4), ask("one", numbers, repeat=1))
        got = s.end()
    assert len(got) == 5 and all(values(a) == numbers for a in got)


@pytest.mark.more
def test_slow_reader_holds_up_no_other_stream(pair):
    """Streams of several clients share connections between the servers."""
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            slow = stack.enter_context(Stream(pair[0].url("grpc")))
            slow.send(ask("many", range(10_000), repeat=1_000_000_000))
            slow.take(1)
        fast = stack.enter_context(Stream(pair[0].url("grpc")))
        for i in range(300):
            fast.send(ask("one", [i], repeat=1))
            assert values(fast.take(1)[0]) == [i]


def test_stream_ends_well_and_with_errors(pair):
    with Stream(pair[0].url("grpc")) as s:
        s.send(ask("many", repeat=-1), ask("many", repeat=1))
        got = s.end()
    assert len([a for a in got if "repeat" in a.error_message]) == 1 and len(got) == 2
    with Stream(pair[0].url("grpc"), metadata=[("triton_grpc_error", "true")]) as s:
        s.send(ask("many", repeat=-1))
        with pytest.raises(grpc.RpcError) as e:
            s.take(1)
        assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "repeat" in e.value.details()
    with Http2(pair[0].grpc) as wire:
        stream = wire.headers("POST", grpc_path("ModelStreamInfer"), (*GRPC_HEADERS, ("triton_grpc_error", "true")), end=False)
        wire.send(stream, grpc_frame(ask("many", repeat=-1)))
        assert wire.response(stream).headers["grpc-status"] == "3"
        assert not wire.of(stream, TrailersReceived), "one block of headers: clients repeat only such calls"
    with Stream(pair[0].url("grpc")) as s:
        s.send(ask("nobody"))
        assert "nobody" in s.take(1)[0].error_message


def test_cancelled_stream_ends_at_the_other_server(pair):
    with Stream(pair[0].url("grpc")) as s:
        s.send(ask("many", repeat=1_000_000_000))
        s.take(1)
    wait.until(lambda: running(pair[1], "many") == 0, "the endless request to end")


def running(server, model):
    with Rest(server.http) as r:
        stats = r.get(f"/v2/models/{model}/stats").ok().json()["model_stats"]
    return sum(m["inference_count"] == 0 and not m["inference_stats"]["fail"]["count"] and not m["inference_stats"].get("cancel", {}).get("count") for m in stats)


def test_events_of_generate_stream_pass_through(pair):
    for server in pair:
        with Rest(server.http) as r:
            reply = r.post("/v2/models/many/generate_stream", {"INPUT0": [1, 2], "parameters": {"repeat": 3}})
        assert reply.status == 200 and reply.headers["content-type"].startswith("text/event-stream"), reply
        events = [json.loads(line[6:]) for line in reply.body.decode().splitlines() if line.startswith("data: ")]
        assert [e["OUTPUT0"] for e in events] == [[1, 2]] * 3
    assert loads(pair[0], "many") == 0


def test_stream_to_a_hung_server_goes_elsewhere(fleet, models):
    for i in range(4):
        repo.add(models, f"m{i}")
    servers = fleet(models, models, models)
    for i in range(4):
        answers(servers[i % 3], f"m{i}")
    servers[2].signal(signal.SIGSTOP)
    for server in servers[:2]:
        for i in range(4):
            with Stream(server.url("grpc")) as s:
                s.send(ask(f"m{i}", [i], repeat=1))
                assert values(s.take(1)[0]) == [i]
    servers[2].signal(signal.SIGCONT)


def test_killed_server_ends_its_streams(pair):
    with Stream(pair[0].url("grpc")) as s:
        s.send(ask("many", repeat=1))
        s.take(1)
        pair[1].signal(signal.SIGKILL)
        with pytest.raises(grpc.RpcError) as e:
            s.send(ask("many", repeat=1))
            s.take(1)
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE, e.value
    pair[1].wait_exit()
    pair[1].end_anyhow()


def test_server_that_ends_tells_its_streams(pair):
    with Stream(pair[0].url("grpc")) as s:
        s.send(ask("many", repeat=1))
        s.take(1)
        pair[0].signal()
        with pytest.raises(grpc.RpcError) as e:
            s.take(1)
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE and "exiting" in e.value.details()


def test_models_that_make_room_for_each_other_answer_on_streams(fleet, models):
    """A model that was loaded for a request of a stream may be the next to go."""
    for i in range(6):
        repo.add(models, f"m{i}")
        (models / f"m{i}" / "1" / "weights").write_bytes(bytes(3 << 20))
    [server] = fleet(models, options=["--mesh-capacity=4M"])

    def work(n):
        with Stream(server.url("grpc")) as s:
            for i in range(120):
                s.send(ask(f"m{(n + i) % 6}", [i], repeat=1))
                answer = s.take(1)[0]
                assert not answer.error_message, answer.error_message
                assert values(answer) == [i]

    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert any(e["event"] == "model.unloaded" for e in server.events())


def test_streams_that_lack_memory_for_a_piece_fail(runtime, under):
    r = runtime()
    [server] = under(r, options=["--memory-budget=2MiB"])
    go = threading.Event()

    def answer(name, id, messages, context):
        assert go.wait(wait.PATIENCE)
        yield b"%d" % sum(len(m) for m in messages)

    r.answer = answer
    with grpc.insecure_channel(str(server.url("grpc"))) as channel:
        one = channel.stream_unary("/made.up.Service/One")
        calls = [one.future(iter([b"x" * (1 << 16)] * 16), metadata=[("mm-model-id", "m2")], timeout=wait.PATIENCE) for _ in range(32)]
        wait.until(lambda: r.seen, "a call to reach the runtime")
        held = []
        wait.until(lambda: held.append(metrics.value(server, "millrace_block_bytes", use="requests")) or (len(held) > 20 and len(set(held[-20:])) == 1), "it to stand still")
        go.set()  # many that wait have kept more than there is: the runtime takes 64 KiB of each, the server 256 KiB more
        assert {call.code() for call in calls} <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert any("--memory-budget" in call.details() for call in calls)
        assert {int(call.result()) for call in calls if call.code() == grpc.StatusCode.OK} <= {1 << 20}


def test_messages_for_one_call(fleet, tmp_path):
    """A model of MLServer that another server has gets all of them in one call of its predict_stream, and its error is the stream's."""
    repo.add(tmp_path / "a", "own", repo.config())
    pymodels.add_mlserver(tmp_path / "b" / "m", "runtimes.Talk")
    server, _ = fleet(tmp_path / "a", tmp_path / "b", options=pymodels.options(pymodels.MLSERVER))
    with Talk(server) as talk:
        talk.say("1", id="first")
        one = talk.next()
        talk.say("20", id="second")
        assert talk.next() == ["21", "first", one[2]]
        assert talk.end() == [["end", "21"]]
    with Talk(server, "1", "fail", "2") as talk:
        talk.next()
        assert talk.error() == (grpc.StatusCode.INTERNAL, "builtins.ValueError: a bad word")

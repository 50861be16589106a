"""Streams of the client library: many requests on one, each with any number of answers, in Python with and without an event loop; errors
within, cancel, deadline, hosts that go, and memory that stays bounded on both sides."""
import pytest

from lib import repo, sdk, wait
from lib.sdk import run_python as run
from lib.stream import DECOUPLED

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")

BEGIN = """
import json, urllib.request

def send(stream, numbers=(1, 2, 3), repeat=3, **more):
    return stream.send({"INPUT0": numpy.array(numbers, numpy.int32)}, parameters={"repeat": repeat}, **more)

def rest_of(stream):
    return list(stream)

def cut(read, reason):
    try:
        read()
    except millrace.InferenceError as error:
        assert error.reason == reason, (error.reason, str(error))
        return str(error)
    raise SystemExit("no error")
"""


def url(server, kind="grpc"):
    return f"{kind}://{server.url(kind)}"


@pytest.fixture
def served(models, start):
    repo.add(models, "many", extra=DECOUPLED)
    repo.add(models, "one")
    return start(models)


def test_many_requests_each_with_many_answers(served):
    run(BEGIN + """
wanted = {str(i): 1 if i % 2 else 1 + i % 5 for i in range(40)}

def check(answers):
    got = {i: [a for a in answers if a.id == i] for i in wanted}
    assert {i: len(g) for i, g in got.items()} == wanted and len(answers) == sum(wanted.values())
    for i, g in got.items():
        assert [a.final for a in g] == [False] * (len(g) - 1) + [True], i
        assert all(a["OUTPUT0"].tolist() == [int(i), 1] and a.error is None and a.host == words[0] for a in g)
        assert {a.model for a in g} == {"one" if int(i) % 2 else "many"}

with millrace.Client(words[0]) as client, client.stream("many") as stream:
    for i, repeat in wanted.items():
        send(stream, [int(i), 1], repeat, id=i, model="one" if int(i) % 2 else "many")
    stream.done()
    check(rest_of(stream))
    assert stream.host == words[0] and rest_of(stream) == []
    cut(lambda: send(stream), "closed")

async def main():
    async with millrace.AsyncClient(words[0]) as client:
        async with client.stream("many") as stream:
            async def ask():
                for i, repeat in wanted.items():
                    await send(stream, [int(i), 1], repeat, id=i, model="one" if int(i) % 2 else "many")
                stream.done()
            task = asyncio.ensure_future(ask())
            check([a async for a in stream])
            await task
asyncio.run(main())
""", url(served))


def test_no_answer_and_large_ones(served):
    run(BEGIN + """
with millrace.Client(words[0]) as client, client.stream("many") as stream:
    send(stream, repeat=0, id="none")
    answer = next(stream)  # says that there is none
    assert answer.id == "none" and answer.final and len(answer) == 0 and answer.error is None
    numbers = numpy.arange(1_000_000, dtype=numpy.int32)
    for i in range(3):
        send(stream, numbers, repeat=2)
    stream.done()
    answers = rest_of(stream)
    assert len(answers) == 6 and all((a["OUTPUT0"] == numbers).all() for a in answers)
""", url(served))


def test_an_error_within_a_stream_is_of_its_request(served):
    run(BEGIN + """
with millrace.Client(words[0]) as client, client.stream("many") as stream:
    send(stream, repeat=-1, id="bad")
    bad = next(stream)
    assert bad.id == "bad" and bad.final and bad.error.reason == "unknown error" and "repeat" in str(bad.error), bad.error
    assert str(bad.error) in cut(lambda: bad["OUTPUT0"], "unknown error")
    send(stream, model="nothing", id="none")
    assert "nothing" in str(next(stream).error)
    send(stream, repeat=2)
    assert [next(stream).final for _ in range(2)] == [False, True]
    # What is wrong on this side is not sent.
    assert "headers" in cut(lambda: send(stream, headers={"a": "b"}), "invalid argument")
    assert "key" in cut(lambda: send(stream, key="k"), "invalid argument")
    send(stream, repeat=1)
    stream.done()
    assert len(rest_of(stream)) == 1
""", url(served))


def test_the_stream_of_an_endpoint(served):
    run(BEGIN + """
config = '''
client { remote: "%s" }
endpoint { name: "e" variant { tag: "a" model: "many" weight: 1 } variant { tag: "b" model: "one" } }
endpoint { name: "other" variant { tag: "a" model: "many" weight: 1 } }
''' % words[0]
with millrace.Client(config=config) as client:
    for options, model, count in (({}, "many", 3), ({"variant": "b"}, "one", 1)):
        with client.stream("e", **options) as stream:
            send(stream)
            stream.done()
            answers = rest_of(stream)
            assert len(answers) == count and {(a.model, a.variant) for a in answers} == {(model, options.get("variant", "a"))}
    with client.stream("e") as stream:
        assert "'e', not of 'other'" in cut(lambda: send(stream, model="other"), "invalid argument")
        send(stream, model="one")  # as it is, of the same host
        assert next(stream).model == "one"
    cut(lambda: client.stream("e", variant="c"), "not found")
    cut(lambda: client.stream(""), "invalid argument")
""", url(served))


def test_sequences(models, start):
    repo.add(models, "m", max_batch_size=1, inputs=[repo.tensor("INPUT_X", dims=(1,))],
             outputs=[repo.tensor("OUTPUT_X", dims=(1,)), repo.tensor("OUTPUT_START", dims=(1,))],
             extra='sequence_batching { max_sequence_idle_microseconds: 3600000000 control_input { name: "INPUT_START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }')
    run(BEGIN + """
with millrace.Client(words[0]) as client, client.stream("m") as stream:
    for i in range(6):
        for sequence in (1, 2):
            stream.send({"INPUT_X": numpy.array([[i]], numpy.int32)}, sequence=sequence, sequence_start=i % 3 == 0, sequence_end=i % 3 == 2,
                        id=str(sequence))
    stream.done()
    answers = rest_of(stream)
    for sequence in ("1", "2"):
        got = [(int(a["OUTPUT_X"][0, 0]), int(a["OUTPUT_START"][0, 0])) for a in answers if a.id == sequence]
        assert got == [(i, i % 3 == 0) for i in range(6)], got
""", url(start(models)))


def test_cancel_and_deadline(models, start, hold):
    repo.add(models, "held", backend="fault", parameters=hold.parameters)
    repo.add(models, "one")
    server = start(models)
    run(BEGIN + """
with millrace.Client(words[0]) as client:
    with client.stream("held") as stream:
        send(stream)
        until(lambda: os.path.exists(words[1]))
        stream.cancel()
        cut(lambda: next(stream), "cancelled")
        cut(lambda: send(stream), "closed")
    with client.stream("held", timeout=0.1) as stream:
        assert "deadline" in cut(lambda: next(stream), "deadline exceeded")
    with client.stream("held") as stream:  # closed while it is open
        send(stream)
    client_2 = millrace.Client(words[0])
    stream = client_2.stream("held")
    send(stream)
    client_2.close()
    assert "freed" in cut(lambda: next(stream), "cancelled")
    cut(lambda: send(stream), "closed")
    stream.close()

async def main():
    async with millrace.AsyncClient(words[0]) as client:
        stream = client.stream("held")
        await send(stream)
        task = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.cancel()
        try:
            await task
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert error.reason == "cancelled"
        other = client.stream("held")
        await send(other)
    # The client is gone with the second one.
    other.close()
asyncio.run(main())
""", url(server), hold.path.with_suffix(".held"))
    hold.end()


def test_hosts(served, models, start):
    gone = start(models)
    run(BEGIN + """
http, grpc, gone, pid = words
with millrace.Client(http) as client, client.stream("many") as stream:
    assert "grpc://" in cut(lambda: next(stream), "not supported")
    assert "grpc://" in cut(lambda: send(stream), "closed")
with millrace.Client("grpc://127.0.0.1:1") as client, client.stream("many") as stream:
    assert "127.0.0.1:1" in cut(lambda: next(stream), "unavailable")
for strategy in ("round_robin", "peak_ewma"):  # its attempts go where they can, not to the host of REST
    with millrace.Client(http, "grpc://127.0.0.1:1", strategy=strategy) as client, client.stream("many", timeout=300) as stream:
        assert "127.0.0.1:1" in cut(lambda: next(stream), "unavailable")
with millrace.Client(http, grpc) as client:
    for _ in range(4):
        with client.stream("many") as stream:
            send(stream)
            assert next(stream).host == grpc
with millrace.Client(gone) as client, client.stream("many") as stream:
    send(stream, repeat=2)
    answers = [next(stream), next(stream)]
    os.kill(int(pid), signal.SIGKILL)
    cut(lambda: next(stream), "unavailable")
    assert all(a["OUTPUT0"].tolist() == [1, 2, 3] for a in answers)
""", url(served, "http"), url(served), url(gone), gone.process.pid)
    gone.end_anyhow()


def test_a_host_that_goes_before_its_first_answer(models, start, hold, tmp_path):
    """Another one gets all requests, in their order; not those that are to be sent once."""
    repo.add(models, "m", backend="fault", parameters=hold.parameters)
    repo.add(tmp_path / "other", "m")
    killed, bound, other = start(models), start(models), start(tmp_path / "other")
    run(BEGIN + """
held, other, *rest = words
for kill, pid, once in ((rest[0], rest[1], False), (rest[2], rest[3], True)):
    with millrace.Client(kill, **PATIENT) as client, millrace.Client(kill, other, strategy="round_robin", **PATIENT) as both:
        streams = []
        until(lambda: streams.append(both.stream("m")) or until(lambda: streams[-1].host) or streams[-1].host == kill)
        stream = streams.pop()
        for i in range(20):
            send(stream, [i], id=str(i), once=once)
        if not once:
            stream.done()
        until(lambda: os.path.exists(held))
        os.kill(int(pid), signal.SIGKILL)
        if once:
            cut(lambda: next(stream), "unavailable")
        else:
            answers = rest_of(stream)
            assert [(a.id, a["OUTPUT0"].tolist(), a.host, a.attempts) for a in answers] == [(str(i), [i], other, 2) for i in range(20)]
            assert stream.host == other
        os.unlink(held)
""", hold.path.with_suffix(".held"), url(other), url(killed), killed.process.pid, url(bound), bound.process.pid)
    for server in (killed, bound):
        assert server.process.wait(wait.PATIENCE) == -9
        server.end_anyhow()


def test_calls_beside_a_stream_that_waits_for_a_host(served):
    """A stream that waits for room at its host does not hold up calls for the others."""
    run(BEGIN + """
http, grpc = words
with millrace.Client(http, grpc, max_connections=1, strategy="round_robin") as client:
    with client.stream("many") as first:
        send(first, repeat=1)
        next(first)  # the host of gRPC has no more room
        with client.stream("many") as second:
            send(second, repeat=1)
            for _ in range(10):
                assert infer(client, "one").host == http
            assert second.host == ""
            first.close()
            assert next(second).host == grpc
""", url(served, "http"), url(served))


def test_one_connection_for_many_streams(served):
    """Paddle Serving's "single" is a connection, not a call at a time."""
    run(BEGIN + """
config = '''predictors { name: "many" variants { tag: "v" connection_conf { connection_type: "single" }
  rpc_parameter { protocol: "h2:grpc" } naming_conf { cluster: "list://%s" } } }''' % words[0]
with millrace.Client(config=config) as client, client.stream("many", timeout=300) as first, client.stream("many", timeout=300) as second:
    for stream in (first, second):
        send(stream, repeat=1)
        assert next(stream).host == words[0]
""", url(served))


def test_a_client_that_does_not_read(served):
    """The host stops: it is not done with the request while more is unread than the client and the sockets take."""
    run(BEGIN + """
http, grpc = words

def done():
    with urllib.request.urlopen(f"{http}/v2/models/many/stats") as answer:
        return json.load(answer)["model_stats"][0]["inference_stats"]["success"]["count"]

numbers = numpy.arange(1 << 18, dtype=numpy.int32)  # a mebibyte
with millrace.Client(grpc) as client, client.stream("many", max_unread_bytes=1 << 20) as stream:
    send(stream, numbers, repeat=200)
    for i in range(120):
        answer = next(stream)
        assert answer["OUTPUT0"][-1] == numbers[-1] and not answer.final
    assert done() == 0
    assert [next(stream).final for _ in range(80)] == [False] * 79 + [True]
    until(lambda: done() == 1)

async def main():
    async with millrace.AsyncClient(grpc) as client:
        async with client.stream("many", max_unread_bytes=1 << 20) as stream:
            await send(stream, numbers, repeat=100)
            for i in range(20):
                await stream.__anext__()
            assert done() == 1
            stream.done()
            assert len([a async for a in stream]) == 80
asyncio.run(main())
""", url(served, "http"), url(served))


def test_a_host_that_takes_no_more(models, start, hold):
    repo.add(models, "held", backend="fault", parameters=hold.parameters)
    server = start(models)
    run(BEGIN + """
grpc, hold_file = words
numbers = numpy.arange(1 << 14, dtype=numpy.int32)

async def main():
    async with millrace.AsyncClient(grpc) as client:
        async with client.stream("held", max_unsent_bytes=1 << 18) as stream:
            message = stream._message({"INPUT0": numbers})
            sent = 0
            while sent < 4000 and stream._send(message, 0):
                sent += 1
            assert 1 <= sent < 4000, sent  # 250 MiB are more than all buffers on the way
            os.unlink(hold_file)
            async def ask():
                for i in range(100):
                    await stream.send({"INPUT0": numbers}, id=str(i))
                stream.done()
            task = asyncio.ensure_future(ask())
            answers = [a async for a in stream]
            await task
            assert len(answers) == sent + 100 and not [a.error for a in answers if a.error], sent
asyncio.run(main())
""", url(server), hold.path)

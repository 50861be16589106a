"""The client library and hosts that break off, or answer what no host should."""
import pytest

from lib import sdk
from lib.sdk import run_python as run
from lib.services import odd

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")

KINDS = pytest.mark.parametrize("kind", ["http", "grpc"])


@pytest.mark.few(2)
@KINDS
@pytest.mark.parametrize("way", ["once=True", "sequence=5", "key=None"])
def test_a_request_that_must_not_be_sent_twice_is_not(kind, way):
    """The host reads the second one on the connection that has served the first, and closes: it may have done it."""
    with odd.serving(kind, odd.GOOD[kind], [odd.CLOSE], odd.GOOD[kind]) as host:
        run(f"""
with millrace.Client(words[0]) as client:
    infer(client, {way})
    if {way == "key=None"}:
        infer(client)
    else:
        assert refused(client, {way}).reason == "unavailable"
""", host.url)
        assert host.asked == (3 if way == "key=None" else 2)


def elsewhere(kind, *answers, then=""):
    """A host that always answers so beside a good one: the call is tried there."""
    with odd.serving(kind, *answers) as bad, odd.serving(kind, odd.GOOD[kind]) as good:
        run("""
with millrace.Client(*words, strategy="round_robin") as client:
    results = [infer(client) for _ in range(4)]
    assert {r.host for r in results} == {words[1]}
    assert max(r.attempts for r in results) == 2, [r.attempts for r in results]
""" + then, bad.url, good.url)
        assert bad.asked > 0


@pytest.mark.few
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_proxy_that_answers_for_a_host_of_grpc(status):
    elsewhere("grpc", [odd.head((":status", str(status)), ("content-type", "text/html")), odd.data(b"<html>", end=True)])


JSON = b'{"outputs":[]}'
CUT = odd.message(odd.inferred())[:-3]
BROKEN = {
    "other-protocol": ("http", [b"\0\1\2 garbage", odd.CLOSE]),
    "other-text": ("http", [b"Hello there\r\n\r\n", odd.CLOSE]),
    "negative-length": ("http", [b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", odd.CLOSE]),
    "two-lengths": ("http", [odd.http(JSON, headers="Content-Length: 3\r\n"), odd.CLOSE]),
    "length-and-chunks": ("http", [odd.http(JSON, headers="Transfer-Encoding: chunked\r\n"), odd.CLOSE]),
    "switching": ("http", [b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", odd.CLOSE]),
    "large-header": ("http", [odd.http(JSON, headers=f"X: {'a' * 70000}\r\n"), odd.CLOSE]),
    "many-headers": ("http", [odd.http(JSON, headers="X: a\r\n" * 300), odd.CLOSE]),
    "no-grpc-status": ("grpc", [odd.GRPC, odd.data(odd.message(odd.inferred()), end=True)]),
    "no-message": ("grpc", [odd.GRPC, odd.trailers()]),
    "compressed": ("grpc", [odd.GRPC, odd.data(odd.message(odd.inferred(), compressed=1)), odd.trailers()]),
    "cut-message": ("grpc", [odd.GRPC, odd.data(CUT), odd.trailers()]),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("kind, answer", BROKEN.values(), ids=BROKEN)
def test_what_is_no_answer_is_asked_for_elsewhere(kind, answer):
    elsewhere(kind, answer, then="""
with millrace.Client(words[0]) as client:
    error = refused(client)
    assert error.reason == "internal error", error
""")


def ended(status, *more):
    """A stream without an answer."""
    return [odd.head((":status", "200"), ("content-type", "application/grpc"), ("grpc-status", str(status)), *more, end=True)]


STREAMED = {
    "busy": ended(8),
    "does-not-have-it": ended(5),
    "proxy": [odd.head((":status", "503"), end=True)],
    "no-grpc-status": [odd.head((":status", "200"), ("content-type", "application/grpc"), end=True)],
    "compressed": [odd.GRPC, odd.data(odd.message(b"", compressed=1))],
    "cut-message": [odd.GRPC, odd.data(CUT), odd.trailers()],
}


def test_a_stream_whose_output_is_said_to_be_in_shared_memory():
    """It has no bytes then: as of a call, it is broken."""
    answer = odd.pb.ModelStreamInferResponse(infer_response=odd.inferred())
    del answer.infer_response.raw_output_contents[:]
    places = answer.infer_response.outputs[0].parameters
    places["shared_memory_region"].string_param = "descriptor"
    places["shared_memory_byte_size"].int64_param = 16
    with odd.serving("grpc", [odd.GRPC, odd.data(odd.message(answer)), odd.trailers()]) as host:
        run("""
with millrace.Client(words[0]) as client, client.stream("m", timeout=300) as stream:
    stream.send({"INPUT0": X})
    try:
        next(stream)
        raise SystemExit("no error")
    except millrace.InferenceError as error:
        assert error.reason == "internal error" and "'OUTPUT0' is said to be in shared memory" in str(error), error
""", host.url)


def streams_moved(answer, count):
    """So many streams, in turn to a host that answers so and to a good one: how often the first was asked."""
    streamed = odd.pb.ModelStreamInferResponse(infer_response=odd.inferred())
    streamed.infer_response.parameters["triton_final_response"].bool_param = True
    good = [odd.GRPC, odd.data(odd.message(streamed)), odd.trailers()]
    with odd.serving("grpc", answer) as bad, odd.serving("grpc", good) as other:
        run("""
def hosts(client):
    with client.stream("m", timeout=300) as stream:
        stream.send({"INPUT0": X})
        stream.done()
        return [good(answer).host for answer in stream]

with millrace.Client(*words[:2], strategy="round_robin") as client:
    for _ in range(int(words[2])):
        assert hosts(client) == [words[1]]
""", bad.url, other.url, count)
        return bad.asked


@pytest.mark.few
@pytest.mark.parametrize("answer", STREAMED.values(), ids=STREAMED)
def test_a_stream_is_moved_from_what_is_no_answer(answer):
    assert streams_moved(answer, 2) > 0


@pytest.mark.parametrize("status", [8, 14])
def test_a_host_that_is_busy_with_streams_is_left_alone(status):
    assert streams_moved(ended(status, ("grpc-retry-pushback-ms", "250000")), 6) == 1

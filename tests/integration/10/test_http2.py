"""HTTP/2 through the `h2` library: streams, flow control, resets, violations; REST and raw gRPC over it."""
import gzip
import json
import socket
import zlib

import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from lib import grpcraw, repo, wait
from lib.metrics import value
from lib.raw import GRPC_HEADERS, Http2, frame, grpc_frame, grpc_path
from lib.rest import binary_body

INFER = "/v2/models/flat_int32/infer"
PLAIN = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v2")]
ErrorCodes = h2.errors.ErrorCodes
Setting = h2.settings.SettingCodes


@pytest.fixture
def wire(server):
    with Http2(server.http) as connection:
        yield connection


def infer_body(values, **fields):
    return json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [len(values)], "data": values}], **fields}).encode()


def data_of(response):
    assert response.status == 200, response
    return json.loads(response.body)["outputs"][0]["data"]


def pending(server, model="slow"):
    return value(server, "nv_inference_pending_request_count", model=model)


# ---- REST over HTTP/2 ----

def test_get(wire):
    answer = wire.ask()
    assert answer.status == 200 and json.loads(answer.body)["name"] == "triton"
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.body)


def test_head(wire):
    answer = wire.ask("HEAD")
    assert answer.status == 200 and answer.body == b"" and int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize("method, path, status, text", [
    ("GET", "/nothing", 404, "Not Found"), ("DELETE", "/v2", 405, "Method Not Allowed"),
    ("GET", INFER, 405, "Method Not Allowed")])
def test_errors(wire, method, path, status, text):
    answer = wire.ask(method, path)
    assert (answer.status, json.loads(answer.body)) == (status, {"error": text})


def test_infer(wire):
    assert data_of(wire.ask("POST", INFER, infer_body([1, 2, 3]))) == [1, 2, 3]


def test_query_and_authority(wire):
    assert wire.ask("GET", "/v2/health/live?x=1").status == 200


def test_many_streams_at_once(wire):
    bodies = {wire.headers("POST", INFER, end=False): [i, -i] for i in range(100)}
    for stream, values in reversed(bodies.items()):
        wire.send(stream, infer_body(values))
    for stream, values in bodies.items():
        assert data_of(wire.response(stream)) == values


def test_bodies_in_turns(wire):
    streams = [wire.headers("POST", INFER, end=False) for _ in range(10)]
    body = infer_body([5])
    for i in range(len(body)):
        for stream in streams:
            wire.send(stream, body[i : i + 1], end=i == len(body) - 1)
    assert all(data_of(wire.response(s)) == [5] for s in streams)


def test_a_slow_stream_holds_no_other_up(wire, hold):
    slow = wire.headers("POST", "/v2/models/fault/infer", end=False)
    wire.send(slow, infer_body([1], parameters=hold.parameters))
    assert data_of(wire.ask("POST", INFER, infer_body([2]))) == [2]
    assert not wire.of(slow, h2.events.StreamEnded)
    hold.end()
    assert data_of(wire.response(slow)) == [1]


def test_trailers_of_a_request(wire):
    stream = wire.headers("POST", INFER, end=False)
    wire.send(stream, infer_body([1]), end=False)
    wire.h2.send_headers(stream, [("x-checksum", "1")], end_stream=True)
    wire.flush()
    assert data_of(wire.response(stream)) == [1]


def test_padding_and_priorities(wire):
    stream = wire.h2.get_next_available_stream_id()
    wire.h2.send_headers(stream, [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", INFER)],
                         priority_weight=200, priority_depends_on=0, priority_exclusive=True)
    body = infer_body([1, 2])
    for i in range(0, len(body), 10):
        wire.h2.send_data(stream, body[i : i + 10], pad_length=i % 256, end_stream=i + 10 >= len(body))
    wire.flush()
    assert data_of(wire.response(stream)) == [1, 2]


def test_headers_in_many_frames(wire):
    """40 kB of headers are within the limit and need CONTINUATION."""
    answer = wire.ask(extra=[(f"x-{i}", "y" * 1000) for i in range(40)])
    assert answer.status == 200


def test_expect_continue(wire):
    stream = wire.headers("POST", INFER, [("expect", "100-continue")], end=False)
    wire.wait(lambda: wire.of(stream, h2.events.InformationalResponseReceived), "leave to send the body")
    wire.send(stream, infer_body([1]))
    assert data_of(wire.response(stream)) == [1]


# ---- flow control ----

def large(count):
    blob = np.arange(count, dtype="<i4").tobytes()
    body, length = binary_body([("INPUT0", "INT32", [count])], [blob], parameters={"binary_data_output": True})
    return body, [("inference-header-content-length", str(length))], blob


def test_upload_larger_than_every_window(wire):
    body, headers, blob = large(8_000_000)
    answer = wire.ask("POST", INFER, body, headers)
    assert answer.body[int(answer.headers["inference-header-content-length"]):] == blob


def test_answer_within_the_window_that_we_grant(server):
    body, headers, blob = large(50_000)
    with Http2(server.http, {Setting.INITIAL_WINDOW_SIZE: 1000}, auto=False) as wire:
        stream = wire.headers("POST", INFER, headers, end=False)
        wire.send(stream, body)
        wire.wait(lambda: len(wire.data_of(stream)) >= 1000, "the first window")
        assert wire.ask("GET", "/v2/health/live").status == 200  # another stream continues; its turn is over by now
        assert len(wire.data_of(stream)) == 1000
        total = 1000
        while not wire.of(stream, h2.events.StreamEnded):
            wire.h2.increment_flow_control_window(20_000, stream)
            wire.h2.increment_flow_control_window(20_000)
            wire.flush()
            total += 20_000
            wire.wait(lambda: len(wire.data_of(stream)) >= total or wire.of(stream, h2.events.StreamEnded), "more")
            assert len(wire.data_of(stream)) <= total
        assert wire.data_of(stream).endswith(blob)


def test_window_of_zero(server):
    with Http2(server.http, {Setting.INITIAL_WINDOW_SIZE: 0}, auto=False) as wire:
        stream = wire.headers()
        wire.wait(lambda: wire.of(stream, h2.events.ResponseReceived), "the headers")
        wire.h2.ping(b"12345678")
        wire.flush()
        wire.wait(lambda: any(isinstance(e, h2.events.PingAckReceived) for e in wire.events), "the answer to a ping")
        assert wire.data_of(stream) == b""
        wire.h2.increment_flow_control_window(100_000, stream)
        wire.flush()
        assert wire.response(stream).status == 200


def test_small_frames_only(server):
    body, headers, blob = large(100_000)
    with Http2(server.http, {Setting.MAX_FRAME_SIZE: 16384}) as wire:
        stream = wire.headers("POST", INFER, headers, end=False)
        wire.send(stream, body)
        assert wire.response(stream).body.endswith(blob)
        assert all(len(e.data) <= 16384 for e in wire.of(stream, h2.events.DataReceived))


def test_body_beyond_the_limit(wire):
    stream = wire.headers("POST", INFER, [("content-length", str((64 << 20) + 1))], end=False)
    answer = wire.response(stream)
    assert answer.status == 400 and "--http-max-input-size" in json.loads(answer.body)["error"]
    assert wire.ask().status == 200


# ---- resets and goodbyes ----

def test_reset_of_a_waiting_request_takes_it_out_of_the_queue(server, rest, wire, hold):
    def runs():
        return rest.stats("slow")[0]["execution_count"]

    before = runs()
    body = infer_body([1], parameters=hold.parameters)
    first = wire.headers("POST", "/v2/models/slow/infer", end=False)
    wire.send(first, body)
    hold.wait_held()
    others = []
    for _ in range(8):
        others.append(wire.headers("POST", "/v2/models/slow/infer", end=False))
        wire.send(others[-1], body)
    wait.until(lambda: pending(server) == 8, "eight requests to wait")
    for stream in others:
        wire.h2.reset_stream(stream, ErrorCodes.CANCEL)
    wire.flush()
    wait.until(lambda: pending(server) == 0, "the queue to be empty")
    hold.end()
    assert data_of(wire.response(first)) == [1]
    wait.until(lambda: runs() > before, "the count")
    assert runs() - before == 1
    assert wire.ask().status == 200


def test_reset_in_the_middle_of_a_body(wire):
    for _ in range(50):
        stream = wire.headers("POST", INFER, end=False)
        wire.send(stream, b'{"inputs":', end=False)
        wire.h2.reset_stream(stream)
    wire.flush()
    assert data_of(wire.ask("POST", INFER, infer_body([1]))) == [1]


def test_reset_in_the_middle_of_an_answer(server, wire):
    body, headers, _ = large(2_000_000)
    with Http2(server.http, {Setting.INITIAL_WINDOW_SIZE: 1000}, auto=False) as other:
        for _ in range(3):
            stream = other.headers("POST", INFER, headers, end=False)
            other.send(stream, body)
            other.wait(lambda: other.data_of(stream), "some data")
            other.h2.reset_stream(stream, ErrorCodes.CANCEL)
            other.flush()
        assert other.ask("GET", "/v2/health/live").status == 200


def test_rapid_resets_end_the_connection(server):
    with Http2(server.http) as wire:
        try:
            for _ in range(5000):
                stream = wire.h2.get_next_available_stream_id()
                wire.h2.send_headers(stream, PLAIN, end_stream=True)
                wire.h2.reset_stream(stream, ErrorCodes.CANCEL)
                wire.flush()
            while wire.read():
                pass
        except (ConnectionError, h2.exceptions.ProtocolError):
            pass
        else:
            assert wire.terminated() and wire.terminated().error_code == ErrorCodes.ENHANCE_YOUR_CALM
    with Http2(server.http) as again:
        assert again.ask().status == 200


def test_resets_that_the_server_allows(models, start):
    """As many as the option says, and not what the HTTP/2 library thinks of."""
    with Http2(start(models, "--h2-max-resets=100000").http) as wire:
        for _ in range(3000):
            stream = wire.h2.get_next_available_stream_id()
            wire.h2.send_headers(stream, PLAIN, end_stream=True)
            wire.h2.reset_stream(stream, ErrorCodes.CANCEL)
            wire.flush()
        assert wire.ask().status == 200


MANY_HEADERS = PLAIN + [(f"x-{i}", "v" * 30000) for i in range(8)]  # in 15 frames


def test_headers_of_many_frames(models, start):
    with Http2(start(models, "--max-header-bytes=1MiB").http) as wire:
        stream = wire.h2.get_next_available_stream_id()
        wire.h2.send_headers(stream, MANY_HEADERS, end_stream=True)
        wire.flush()
        assert wire.response(stream).status == 200


@pytest.mark.more
def test_headers_of_too_many_frames(server):
    with Http2(server.http) as wire:
        stream = wire.h2.get_next_available_stream_id()
        wire.h2.send_headers(stream, MANY_HEADERS, end_stream=True)
        wire.flush()
        assert wire.response(stream).status == 431
        assert wire.ask().status == 200


def test_more_streams_than_allowed(server):
    """Opened before the server's settings have been read, as a careless client might."""
    with Http2(server.http) as wire:
        slow = [wire.headers("POST", "/v2/models/fault/infer", end=False) for _ in range(300)]
        wire.wait(lambda: any(wire.reset_of(s) is not None for s in slow), "a refusal")
        refused = [s for s in slow if wire.reset_of(s) is not None]
        assert {wire.reset_of(s) for s in refused} == {ErrorCodes.REFUSED_STREAM}
        kept = next(s for s in slow if s not in refused)
        wire.send(kept, infer_body([1]))
        assert data_of(wire.response(kept)) == [1]


def test_gone_with_open_streams(server):
    with Http2(server.http) as wire:
        for _ in range(20):
            wire.send(wire.headers("POST", "/v2/models/fault/infer", end=False), infer_body([1], parameters={"delay_ms": 100}))
    with Http2(server.http) as again:
        assert again.ask().status == 200


@pytest.mark.few(4)
@pytest.mark.parametrize("reset", [False, True], ids=["open", "reset"])
@pytest.mark.parametrize("path, headers", [
    (INFER, [("content-length", "100")]), (INFER, []), (grpc_path("ModelInfer"), GRPC_HEADERS),
    (grpc_path("ModelStreamInfer"), GRPC_HEADERS)], ids=["length", "no length", "ModelInfer", "ModelStreamInfer"])
def test_gone_with_an_incomplete_stream(server, path, headers, reset):
    """The connection ends with its client, whatever was under way."""
    def connections():
        return value(server, "millrace_connections")

    before = connections()
    with Http2(server.http) as wire:
        wire.ask()
        stream = wire.headers("POST", path, headers, end=False)
        wire.send(stream, b"\0\0\0", end=False)
        if reset:
            wire.h2.reset_stream(stream)
            wire.flush()
        wire.h2.ping(b"12345678")
        wire.flush()
        wire.wait(lambda: any(isinstance(e, h2.events.PingAckReceived) for e in wire.events), "all of it to be seen")
        wire.sock.shutdown(socket.SHUT_WR)
        wire.sock.settimeout(wait.PATIENCE)
        while wire.read():
            pass
    wait.until(lambda: connections() <= before, "the connection to be gone")


def test_goodbye_of_the_client(wire):
    stream = wire.headers("POST", "/v2/models/fault/infer", end=False)
    wire.send(stream, infer_body([3], parameters={"delay_ms": 200}))
    wire.sock.sendall(b"\0\0\x08\x07\0" + b"\0" * 12)  # GOAWAY; h2 itself would not go on reading
    assert data_of(wire.response(stream)) == [3]


def test_ping(wire):
    wire.h2.ping(b"ABCDEFGH")
    wire.flush()
    wire.wait(lambda: [e for e in wire.events if isinstance(e, h2.events.PingAckReceived) and e.ping_data == b"ABCDEFGH"], "the ping")


# ---- violations ----

@pytest.mark.parametrize("data", [
    frame(0, 0, 0, b"data"), frame(4, 0, 0, b"12345"), frame(4, 0, 1, b"\0" * 6), frame(1, 4, 0, b"\x82"),
    frame(1, 4, 2, b"\x82"), frame(9, 4, 1, b"\x82"), frame(6, 0, 0, b"short"), frame(8, 0, 0, b"\0\0\0\0"),
    frame(3, 0, 0, b"\0\0\0\0"), frame(1, 4, 1, b"\xff\xff\xff\xff\xff"), frame(0, 0, 101, b"idle"),
    frame(5, 4, 1, b"\0\0\0\2\x82"), b"\xff\xff\xff\0\0\0\0\0\1" + b"x" * 100, frame(4, 0, 0, b"\0\4\xff\xff\xff\xff")],
    ids=["DATA on 0", "SETTINGS size", "SETTINGS on 1", "HEADERS on 0", "HEADERS on 2", "lone CONTINUATION", "PING size",
         "WINDOW_UPDATE 0", "RST on 0", "bad HPACK", "DATA on idle", "PUSH_PROMISE", "frame too large", "window beyond 31 bits"])
def test_violation_ends_the_connection(server, data):
    with Http2(server.http) as wire:
        assert wire.ask().status == 200
        wire.sock.sendall(data)
        try:
            while wire.read():
                pass
        except h2.exceptions.ProtocolError:
            pass
        assert wire.ended
    with Http2(server.http) as again:
        assert again.ask().status == 200


@pytest.mark.parametrize("headers", [
    [(":method", "GET"), (":scheme", "http"), (":authority", "localhost")],
    [(":scheme", "http"), (":authority", "localhost"), (":path", "/v2")],
    [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "")],
    [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v2"), (":path", "/v3")],
    [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v2"), ("Upper", "x")],
    [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v2"), ("connection", "close")],
    [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v2"), ("transfer-encoding", "chunked")],
    [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v2"), ("te", "gzip")],
    [(":method", "GET"), ("early", "x"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v2")],
    [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v2"), (":odd", "x")]],
    ids=["no path", "no method", "empty path", "two paths", "upper case", "connection", "transfer-encoding", "te",
         "late pseudo", "unknown pseudo"])
def test_malformed_request(server, headers):
    with Http2(server.http, unchecked=True) as wire:
        wire.h2.config.validate_outbound_headers = wire.h2.config.normalize_outbound_headers = False
        stream = wire.h2.get_next_available_stream_id()
        wire.h2.send_headers(stream, headers, end_stream=True)
        wire.flush()
        wire.wait(lambda: wire.reset_of(stream) is not None or wire.of(stream, h2.events.StreamEnded) or wire.ended, "an answer")
        if not wire.ended and wire.reset_of(stream) is None:
            assert wire.response(stream).status == 400
    with Http2(server.http) as again:
        assert again.ask().status == 200


@pytest.mark.parametrize("length, sent", [(5, b"abcdef"), (50, b"abc")], ids=["longer", "shorter"])
def test_body_that_differs_from_its_length(server, length, sent):
    with Http2(server.http) as wire:
        stream = wire.headers("POST", INFER, [("content-length", str(length))], end=False)
        wire.sock.sendall(frame(0, 1, stream, sent))  # h2 would refuse to send that
        wire.wait(lambda: wire.reset_of(stream) is not None or wire.of(stream, h2.events.StreamEnded) or wire.ended, "an answer")
        assert wire.ended or wire.reset_of(stream) is not None or wire.of(stream, h2.events.ResponseReceived)[0]
    with Http2(server.http) as again:
        assert again.ask().status == 200


def test_header_too_large(wire):
    stream = wire.headers(extra=[(f"x-{i}", "y" * 1000) for i in range(80)])
    wire.wait(lambda: wire.reset_of(stream) is not None or wire.of(stream, h2.events.StreamEnded) or wire.ended, "an answer")
    headers = wire.of(stream, h2.events.ResponseReceived)
    assert not headers or dict(headers[0].headers)[":status"] == "431"


def test_endless_continuation(server):
    with Http2(server.http) as wire:
        try:
            wire.sock.sendall(frame(1, 0, 1, b"\x82"))
            for _ in range(20_000):
                wire.sock.sendall(frame(9, 0, 1, b"\x40\x01a\x04bbbb" * 20))
            while wire.read():
                pass
        except (ConnectionError, h2.exceptions.ProtocolError):
            pass
    with Http2(server.http) as again:
        assert again.ask().status == 200


def test_connection_preface_in_pieces(server):
    with socket.create_connection(("127.0.0.1", server.http), timeout=wait.PATIENCE) as s:
        for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""):
            s.sendall(bytes([byte]))
        answer = s.recv(9)
        assert answer[3] == 4, "the server's first frame is SETTINGS"


# ---- raw gRPC ----

def infer_message(values=(1, 2, 3), model="flat_int32", **kw):
    return grpcraw.int32(model, list(values), **kw)


def call(wire, message, extra=(), method="ModelInfer", headers=GRPC_HEADERS):
    return wire.ask("POST", grpc_path(method) if "/" not in method else method,
                    message if isinstance(message, bytes) else grpc_frame(message), [*headers, *extra])


def grpc_status(answer):
    return int(answer.headers["grpc-status"]), answer.headers.get("grpc-message", "")


def message_of(answer, kind=pb.ModelInferResponse):
    assert grpc_status(answer)[0] == 0, answer.headers
    assert answer.body[0] == 0 and int.from_bytes(answer.body[1:5], "big") == len(answer.body) - 5
    return kind.FromString(answer.body[5:])


def test_grpc_call(wire):
    answer = call(wire, infer_message())
    assert answer.headers["content-type"].startswith("application/grpc")
    assert np.frombuffer(message_of(answer).raw_output_contents[0], "<i4").tolist() == [1, 2, 3]


def test_grpc_message_in_single_bytes(wire):
    data = grpc_frame(infer_message())
    stream = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
    for i in range(len(data)):
        wire.send(stream, data[i : i + 1], end=i == len(data) - 1)
    message_of(wire.response(stream))


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=x"])
def test_grpc_content_types(wire, kind):
    message_of(call(wire, infer_message(), headers=[("content-type", kind), ("te", "trailers")]))


@pytest.mark.parametrize("data, codes", [
    (b"", {3, 12, 13}), (b"\0", {3, 13}), (b"\0\0\0\0\5abc", {3, 13}), (grpc_frame(b"\xff\xff\xff\xff"), {3, 13}),
    (grpc_frame(infer_message()) * 2, {3, 12, 13}), (grpc_frame(infer_message()) + b"x", {3, 13}),
    (grpc_frame(infer_message(), compressed=1), {12, 13}), (grpc_frame(infer_message(), compressed=7), {3, 12, 13}),
    (b"\0\xff\xff\xff\xff" + b"x" * 100, {3, 8, 13})],
    ids=["no message", "half a prefix", "half a message", "no protobuf", "two messages", "rest", "compressed without coding",
         "odd flag", "length of 4 GiB"])
def test_grpc_framing_errors(wire, data, codes):
    status, _ = grpc_status(call(wire, data))
    assert status in codes
    message_of(call(wire, infer_message()))


def test_grpc_unknown_coding(wire):
    answer = call(wire, grpc_frame(b"x", compressed=1), [("grpc-encoding", "snappy")])
    assert grpc_status(answer)[0] == 12
    assert "gzip" in answer.headers["grpc-accept-encoding"]


@pytest.mark.parametrize("timeout", ["abc", "1", "1x", "-1S", "123456789S", "", "1.5S"])
def test_grpc_bad_timeout(wire, timeout):
    status, _ = grpc_status(call(wire, infer_message(), [("grpc-timeout", timeout)]))
    assert status in (3, 13)
    message_of(call(wire, infer_message()))


@pytest.mark.parametrize("timeout", ["99999999H", "60S", "1M", "60000m", "9999999u", "99999999n"])
def test_grpc_good_timeout(wire, timeout):
    assert grpc_status(call(wire, infer_message(), [("grpc-timeout", timeout)]))[0] in ((0, 4) if timeout[-1] in "nu" else (0,))


def test_grpc_deadline_is_kept_by_the_server_itself(server, rest, wire, hold):
    """A client that states a deadline and then only waits gets DEADLINE_EXCEEDED, and what expired is not run."""
    def runs():
        return rest.stats("slow")[0]["execution_count"]

    before = runs()
    first = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
    wire.send(first, grpc_frame(infer_message([1], "slow", parameters=hold.parameters)))
    late = []
    for _ in range(5):
        late.append(wire.headers("POST", grpc_path("ModelInfer"), [*GRPC_HEADERS, ("grpc-timeout", "100m")], end=False))
        wire.send(late[-1], grpc_frame(infer_message([2], "slow")))
    for stream in late:
        assert grpc_status(wire.response(stream))[0] == 4
    assert not wire.of(first, h2.events.StreamEnded), "the late ones were answered before the running one ended"
    hold.end()
    message_of(wire.response(first))
    assert grpc_status(call(wire, infer_message([1], "slow")))[0] == 0
    wait.until(lambda: runs() - before >= 2, "the two counts")
    assert runs() - before == 2


def test_grpc_deadline_that_is_over_at_once(wire):
    assert grpc_status(call(wire, infer_message([1], "slow"), [("grpc-timeout", "1n")]))[0] == 4


def test_grpc_message_text_is_percent_encoded(wire):
    answer = call(wire, infer_message([1], "fault", parameters={"fail_status": "INTERNAL", "fail_message": "naïve 100%\nline"}))
    status, text = grpc_status(answer)
    assert status == 13 and "na%C3%AFve 100%25%0Aline" in text


@pytest.mark.parametrize("path", ["/inference.GRPCInferenceService/Nothing", "/no.Service/Method", "/x", "/inference.GRPCInferenceService/"])
def test_grpc_unknown_method(wire, path):
    answer = wire.ask("POST", path, grpc_frame(b""), GRPC_HEADERS)
    assert answer.status == 200 and grpc_status(answer)[0] == 12


def test_grpc_answers_are_compressed_when_asked(models, start):
    repo.add(models, "flat_int32")
    server = start(models, "--grpc-infer-response-compression-level=high")
    with Http2(server.grpc) as wire:
        plain = call(wire, infer_message(range(1000)))
        message_of(plain)  # we did not announce that we can read anything else
        answer = call(wire, infer_message([7] * 1000), [("grpc-accept-encoding", "identity,deflate,gzip")])
        assert grpc_status(answer)[0] == 0 and answer.body[0] == 1
        unpack = {"gzip": gzip.decompress, "deflate": zlib.decompress}[answer.headers["grpc-encoding"]]
        m = pb.ModelInferResponse.FromString(unpack(answer.body[5:]))
        assert np.frombuffer(m.raw_output_contents[0], "<i4").tolist() == [7] * 1000
        assert len(answer.body) < 2000


# ---- either protocol on either port ----

@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_both_protocols_on_one_connection(server, kind):
    with Http2(server.ports[kind]) as wire:
        message_of(call(wire, infer_message()))
        assert data_of(wire.ask("POST", INFER, infer_body([4]))) == [4]
        assert wire.ask("GET", "/v2/health/ready").status == 200

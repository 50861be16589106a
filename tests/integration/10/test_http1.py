"""HTTP/1.1 on bare sockets: framing, pipelining, slow and broken peers."""
import json
import socket
import struct

import numpy as np
import pytest

from lib import wait
from lib.raw import Closed, Http1, request
from lib.rest import binary_body

INFER = "/v2/models/flat_int32/infer"
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}]}).encode()
LIVE = request("GET", "/v2/health/live")


@pytest.fixture
def wire(server):
    with Http1(server.http) as connection:
        yield connection


def data_of(response):
    assert response.status == 200, response
    return json.loads(response.body)["outputs"][0]["data"]


def infer(values):
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [len(values)], "data": values}]})
    return request("POST", INFER, body=body)


# ---- ordinary use ----

def test_pipelined_requests_are_answered_in_order(wire):
    wire.send(b"".join(infer([i]) for i in range(50)) + LIVE)
    assert [data_of(wire.response()) for _ in range(50)] == [[i] for i in range(50)]
    assert wire.response().status == 200


def test_pipelined_requests_behind_a_slow_one(wire):
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [7]}],
                       "parameters": {"delay_ms": 300}})
    wire.send(request("POST", "/v2/models/fault/infer", body=body) + infer([8]) + request("GET", "/nothing") + LIVE)
    assert data_of(wire.response()) == [7]
    assert data_of(wire.response()) == [8]
    assert [wire.response().status, wire.response().status] == [404, 200]


@pytest.mark.parametrize("step", [1, 7])
def test_byte_by_byte(wire, step):
    data = infer([1, 2]) + LIVE
    for i in range(0, len(data), step):
        wire.send(data[i : i + step])
    assert data_of(wire.response()) == [1, 2]
    assert wire.response().status == 200


def chunked(body, sizes, extension="", trailers=""):
    out, at = b"", 0
    for size in sizes:
        piece = body[at : at + size]
        at += size
        out += f"{len(piece):x}{extension}\r\n".encode() + piece + b"\r\n"
    return out + b"0\r\n" + trailers.encode() + b"\r\n"


@pytest.mark.parametrize("sizes", [[len(BODY)], [1] * len(BODY), [10, 50, len(BODY) - 60]], ids=["one", "single bytes", "three"])
@pytest.mark.parametrize("extension, trailers", [("", ""), (";name=value;x", "X-After: yes\r\n")], ids=["plain", "extras"])
def test_chunked_body(wire, sizes, extension, trailers):
    head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    wire.send(head + chunked(BODY, sizes, extension, trailers) + LIVE)
    assert data_of(wire.response()) == [1, 2, 3]
    assert wire.response().status == 200


def test_header_names_and_values_in_any_form(wire):
    wire.send(f"POST {INFER} HTTP/1.1\r\nhOsT:localhost\r\nCONTENT-LENGTH: \t {len(BODY)} \t \r\nx-empty:\r\n\r\n".encode() + BODY)
    assert data_of(wire.response()) == [1, 2, 3]


def test_empty_lines_before_a_request(wire):
    wire.send(b"\r\n\r\n" + LIVE)
    assert wire.response().status == 200


def test_head_keeps_the_connection(wire):
    wire.send(request("HEAD", "/v2") + LIVE)
    first = wire.response(head=True)
    assert first.status == 200 and int(first.headers["content-length"]) > 0
    assert wire.response().status == 200


def test_body_of_a_get_is_read_and_ignored(wire):
    wire.send(request("GET", "/v2/health/live", body=b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n") + request("GET", "/v2"))
    assert wire.response().status == 200
    assert json.loads(wire.response().body)["name"] == "triton"
    wire.send(LIVE)
    assert wire.response().status == 200


def test_expect_continue(wire):
    wire.send(request("POST", INFER, f"Expect: 100-continue\r\nContent-Length: {len(BODY)}\r\n"))
    assert wire._until(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
    wire.send(BODY)
    assert data_of(wire.response()) == [1, 2, 3]


def test_expect_continue_when_the_body_comes_along(wire):
    wire.send(request("POST", INFER, "Expect: 100-continue\r\n", BODY))
    assert data_of(wire.response()) == [1, 2, 3]


def test_expect_continue_of_a_body_beyond_the_limit(wire):
    wire.send(request("POST", INFER, "Expect: 100-continue\r\nContent-Length: 99999999\r\n"))
    answer = wire.response()
    assert (answer.status, answer.interim) == (400, [])
    assert "--http-max-input-size" in json.loads(answer.body)["error"]


@pytest.mark.parametrize("header, closes", [("Connection: close\r\n", True), ("Connection: keep-alive\r\n", False),
                                            ("Connection: foo, Close\r\n", True)])
def test_connection_header(wire, header, closes):
    wire.send(request("GET", "/v2", header))
    assert wire.response().status == 200
    if closes:
        wire.expect_close()
    else:
        wire.send(LIVE)
        assert wire.response().status == 200


def test_http_1_0(server):
    with Http1(server.http) as wire:
        wire.send(b"GET /v2 HTTP/1.0\r\n\r\n")
        assert wire.response().status == 200
        wire.expect_close()
    with Http1(server.http) as wire:
        wire.send(b"GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = wire.response()
        assert answer.status == 200
        if answer.headers.get("connection", "").lower() == "keep-alive":
            wire.send(LIVE)
            assert wire.response().status == 200


def test_half_close_after_the_request(wire):
    """An answer that waits for nothing comes; an inference may have been cancelled (40/test_vanishing.py)."""
    wire.send(LIVE)
    wire.sock.shutdown(socket.SHUT_WR)
    assert wire.response().status == 200
    wire.expect_close()


# ---- what is no request (test_smuggling.py: what could be taken for two) ----

@pytest.mark.parametrize("data", [
    b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\xaa" * 200, b"\0" * 64, b"SSH-2.0-OpenSSH_9.2\r\n",
    b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100, b"\r\n" * 5000,
    "漢字\r\n\r\n".encode(), b"GET\r\n\r\n", b"\xff" * 1000], ids=lambda d: repr(d[:24]))
def test_garbage(server, wire, data):
    """No hang, no crash: an answer or none, and the end of the connection."""
    wire.send_until_refused(data)
    wire.sock.shutdown(socket.SHUT_WR)
    try:
        while wire.sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    with Http1(server.http) as again:
        again.send(LIVE)
        assert again.response().status == 200


# ---- limits ----

def test_header_too_large(wire):
    wire.send_until_refused(request("GET", "/v2", "".join(f"X-{i}: {'y' * 1000}\r\n" for i in range(80))))
    assert wire.response().status == 431
    wire.expect_close()


def test_one_header_without_end(wire):
    wire.send_until_refused(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000)
    assert wire.response().status == 431
    wire.expect_close()


def test_request_line_without_end(wire):
    wire.send_until_refused(b"GET /" + b"y" * 200_000)
    assert wire.response().status in (400, 414, 431)
    wire.expect_close()


def test_too_many_headers(wire):
    wire.send_until_refused(request("GET", "/v2", "".join(f"X-{i}: y\r\n" for i in range(500))))
    assert wire.response().status == 431
    wire.expect_close()


def test_declared_body_beyond_the_limit(wire):
    wire.send(request("POST", INFER, f"Content-Length: {(64 << 20) + 1}\r\n"))
    answer = wire.response()
    assert answer.status == 400 and "--http-max-input-size" in json.loads(answer.body)["error"]


def test_chunked_body_beyond_the_limit(models, start):
    from lib import repo

    repo.add(models, "flat_int32")
    server = start(models, "--http-max-input-size=100000")
    with Http1(server.http) as wire:
        wire.send(f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(40):
            wire.send_until_refused(b"1000\r\n" + b" " * 4096 + b"\r\n")
        answer = wire.response()
        assert answer.status == 400 and "--http-max-input-size" in json.loads(answer.body)["error"]


def test_very_many_chunks(wire):
    wire.send(f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    wire.send_until_refused(b"1\r\n \r\n" * 70_000 + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
    answer = wire.response()
    assert answer.status == 400 and "maximum of 65536 non-empty chunks" in json.loads(answer.body)["error"]


# ---- peers that go away ----

@pytest.mark.parametrize("cut", [1, 20, 70, 100, 150])
@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
def test_gone_in_the_middle_of_a_request(server, cut, reset):
    with Http1(server.http) as wire:
        wire.send(infer(list(range(20)))[:cut])
        if reset:
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with Http1(server.http) as again:
        again.send(infer([1]))
        assert data_of(again.response()) == [1]


def test_gone_in_the_middle_of_a_large_body(server):
    blob = np.zeros(2_000_000, "<i4").tobytes()
    body, length = binary_body([("INPUT0", "INT32", [2_000_000])], [blob])
    for cut in (len(body) // 2, len(body) - 1):
        with Http1(server.http) as wire:
            wire.send(request("POST", INFER, f"Inference-Header-Content-Length: {length}\r\nContent-Length: {len(body)}\r\n"))
            wire.send(body[:cut])
    with Http1(server.http) as again:
        again.send(infer([1]))
        assert data_of(again.response()) == [1]


@pytest.mark.more
def test_slow_reader_of_a_large_answer(server):
    count = 4_000_000
    body, length = binary_body([("INPUT0", "INT32", [count])], [np.arange(count, dtype="<i4").tobytes()],
                               parameters={"binary_data_output": True})
    with Http1(server.http, receive_buffer=4096) as slow, Http1(server.http) as other:
        slow.send(request("POST", INFER, f"Inference-Header-Content-Length: {length}\r\n", body))
        for i in range(20):
            other.send(infer([i]))
            assert data_of(other.response()) == [i]
        answer = slow.response()
        assert np.array_equal(np.frombuffer(answer.body[int(answer.headers["inference-header-content-length"]):], "<i4"),
                              np.arange(count))


def test_reader_that_never_reads(server):
    """Pipelined requests with large answers that are not read: the server stays healthy."""
    count = 500_000
    body, length = binary_body([("INPUT0", "INT32", [count])], [bytes(4 * count)], parameters={"binary_data_output": True})
    one = request("POST", INFER, f"Inference-Header-Content-Length: {length}\r\n", body)
    with Http1(server.http, receive_buffer=4096) as wire:
        wire.sock.settimeout(1)
        try:
            for _ in range(40):
                wire.send(one)
        except TimeoutError:
            pass  # the server has stopped reading, as it should
        with Http1(server.http) as other:
            other.send(infer([1]))
            assert data_of(other.response()) == [1]


def test_a_disconnected_client_frees_the_queue(server, rest, hold):
    """Queued requests of a client that has disconnected are dropped without running."""
    def slow(value, parameters):
        return request("POST", "/v2/models/slow/infer", body=json.dumps({
            "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [value]}],
            "parameters": parameters}))

    def counts():
        s = rest.stats("slow")[0]
        return s["execution_count"], s["inference_stats"]["fail"]["count"]

    runs, fails = counts()
    clients = [Http1(server.http) for _ in range(6)]
    for client in clients:
        client.send(slow(2, hold.parameters))
        hold.wait_held()
    wait.until(lambda: pending(server, "slow") == 5, "one request to run and five to wait")
    for client in clients:
        client.close()
    wait.until(lambda: pending(server, "slow") == 0, "the queue to be empty")
    hold.end()
    with Http1(server.http) as last:
        last.send(slow(1, {}))
        assert data_of(last.response()) == [1]
    wait.until(lambda: counts()[0] >= runs + 2, "the runs to be counted")
    assert counts()[0] == runs + 2, "the one that ran, and the last one"
    assert counts()[1] - fails in (5, 6), "whether an answer that nobody took is a failure is not said"


def pending(server, model):
    from lib.metrics import value

    return value(server, "nv_inference_pending_request_count", model=model)

"""Every size and every wait that comes from outside has a limit, an option, and an error that names the option."""
import json
import os
import resource
import socket

import numpy as np
import pytest

from lib import repo, wait
from lib.faults import PROGRAM, Faults
from lib.metrics import value
from lib.raw import Closed, Http1, Http2, request
from lib.rest import Rest

ONE = [("INPUT0", "INT32", [1], [1])]


@pytest.fixture
def limited(models, start):
    """limited(*options, ...)"""
    repo.add(models, "m")
    repo.add(models, "slow", backend="fault")
    return lambda *options, **kw: start(models, *options, **kw)


def test_connections(limited):
    server = limited("--max-connections=3")
    held = [Http1(server.http) for _ in range(3)]
    for wire in held:
        wire.send(request("GET", "/v2/health/live"))
        assert wire.response().status == 200
    with Http1(server.http) as extra:
        extra.send_until_refused(request("GET", "/v2/health/live"))
        try:
            answer = extra.response()
            assert answer.status == 503 and "--max-connections" in json.loads(answer.body)["error"]
            extra.expect_close()
        except Closed:
            pytest.fail("closed without an answer")
    held.pop().close()

    def served():
        with Http1(server.http) as wire:
            wire.send_until_refused(request("GET", "/v2/health/live"))
            try:
                return wire.response().status == 200
            except Closed:
                return False

    wait.until(served, "a free place")
    held[0].send(request("GET", "/v2/health/live"))
    assert held[0].response().status == 200
    [w.close() for w in held]


def test_body(limited):
    server = limited("--http-max-input-size=1000")
    with Rest(server.http) as rest:
        reply = rest.infer("m", [("INPUT0", "INT32", [1000], list(range(1000)))])
        assert reply.status == 400 and "--http-max-input-size" in reply.error
        assert rest.infer("m", ONE).status == 200


@pytest.mark.parametrize("how", ["with a length", "in chunks", "with a length, in chunks of the sender"])
def test_answer_to_a_body_that_is_too_large_arrives(limited, how):
    """Also for those who send all of it before they read, and more than the kernel takes in without the server."""
    server = limited("--http-max-input-size=1MiB")
    size, piece = 100 << 20, 1 << 20
    framing = "Transfer-Encoding: chunked\r\n" if how == "in chunks" else f"Content-Length: {size}\r\n"
    with Http1(server.http) as wire:
        wire.send(request("POST", "/v2/models/m/infer", framing))
        if how == "with a length":
            wire.send(bytes(size))
        else:
            for _ in range(size // piece):
                wire.send(b"%x\r\n%s\r\n" % (piece, bytes(piece)) if how == "in chunks" else bytes(piece))
        if how == "in chunks":
            wire.send(b"0\r\n\r\n")
        answer = wire.response()
        assert answer.status == 400 and "--http-max-input-size" in json.loads(answer.body)["error"]
        wire.expect_close()


def test_answer_to_a_body_that_is_too_large_arrives_first(limited):
    server = limited("--http-max-input-size=1000")
    with Http1(server.http) as wire:
        wire.send(request("POST", "/v2/models/m/infer", "Content-Length: 2000000\r\n") + bytes(10))
        answer = wire.response()
        assert answer.status == 400 and answer.headers["connection"] == "close"


def test_what_is_thrown_away_is_bounded(limited):
    server = limited("--http-max-input-size=1000")
    with Http1(server.http) as wire:
        wire.send(request("POST", "/v2/models/m/infer", f"Content-Length: {1 << 40}\r\n"))
        assert wire.response().status == 400
        sent, piece = 0, bytes(8 << 20)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while sent < 4 << 30:
                sent += wire.sock.send(piece)
        assert sent > 100 << 20


@pytest.mark.parametrize("length", [True, False])
def test_body_that_is_too_large_over_http2(limited, length):
    """Other streams continue: its bytes do not reduce the connection's window permanently."""
    server = limited("--http-max-input-size=1MiB")
    body = bytes(8 << 20)
    with Http2(server.http) as wire:
        for _ in range(5):
            stream = wire.headers("POST", "/v2/models/m/infer", [("content-length", str(len(body)))] if length else [], end=False)
            with pytest.raises(Closed):
                wire.send(stream, body)
            answer = wire.response(stream)
            assert answer.status == 400 and "--http-max-input-size" in json.loads(answer.body)["error"]
            assert wire.reset_of(stream) == 0
        assert wire.ask("POST", "/v2/models/m/infer", json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [150000],
                                                                            "data": [7] * 150000}]}).encode()).status == 200


def test_tensor_made_from_little_text(limited):
    """The limit holds for the tensor, too: 400 kB of text make 8 bytes of each of 200,000 elements."""
    server = limited("--http-max-input-size=500000")
    with Rest(server.http) as rest:
        body = '{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[200000],"data":[%s]}]}' % ",".join("1" * 200_000)
        assert len(body) < 500_000
        reply = rest.post("/v2/models/m/infer", body)
        assert reply.status == 400 and "--http-max-input-size" in reply.error


def test_json_depth(limited):
    server = limited("--json-max-depth=10")
    with Rest(server.http) as rest:
        reply = rest.post("/v2/models/m/infer", '{"x":' + "[" * 10 + "]" * 10 + "}")
        assert reply.status == 400 and "nesting depth exceeds maximum allowed limit (10) (--json-max-depth)" in reply.error
        assert rest.infer("m", ONE).status == 200


def test_header_size(limited):
    server = limited("--max-header-bytes=2048")
    with Http1(server.http) as wire:
        wire.send_until_refused(request("GET", "/v2", f"X: {'y' * 3000}\r\n"))
        answer = wire.response()
        assert answer.status == 431 and "--max-header-bytes" in answer.body.decode()


def test_header_size_of_grpc(limited):
    import grpc

    from lib import grpcraw
    from lib.grpcraw import Grpc

    server = limited("--max-header-bytes=2048")
    with Grpc(server.url("grpc")) as client:
        with pytest.raises(grpc.RpcError) as e:
            client.infer(grpcraw.int32("m", [1]), metadata=[("x", "y" * 3000)])
        assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--max-header-bytes" in e.value.details()
        client.infer(grpcraw.int32("m", [1]))


def test_header_count(limited):
    server = limited("--max-headers=10")
    with Http1(server.http) as wire:
        wire.send_until_refused(request("GET", "/v2", "".join(f"X-{i}: y\r\n" for i in range(12))))
        answer = wire.response()
        assert answer.status == 431 and "--max-headers" in answer.body.decode()


def test_header_time(limited):
    server = limited("--header-timeout=300ms")
    with Http1(server.http) as slow, Rest(server.http) as rest:
        slow.send(b"GET /v2 HTTP/1.1\r\nHost")
        answer = slow.response()
        assert answer.status == 408
        slow.expect_close()
        assert rest.infer("m", ONE).status == 200


def test_body_time(limited):
    server = limited("--body-timeout=300ms")
    with Http1(server.http) as slow:
        slow.send(request("POST", "/v2/models/m/infer", "Content-Length: 100\r\n") + b"{")
        assert slow.response().status == 408
        slow.expect_close()


def test_body_time_over_http2(limited):
    server = limited("--body-timeout=300ms")
    with Http2(server.http) as wire:
        stream = wire.headers("POST", "/v2/models/m/infer", [("content-length", "100")], end=False)
        wire.wait(lambda: wire.reset_of(stream) is not None or wire.of(stream) or wire.ended, "an end of the stream")


def test_idle_time(limited, hold, tmp_path):
    faults = Faults(tmp_path)
    server = limited("--idle-timeout=3600s", "--loop-threads=1", program=PROGRAM, env=faults.env)
    with Http1(server.http) as wire:
        wire.send(request("GET", "/v2"))
        assert wire.response().status == 200
        faults.later(server, 3601)
        wire.expect_close()
    with Http1(server.http) as wire:  # a request that takes longer is not idleness
        wire.send(request("POST", "/v2/models/slow/infer", body=json.dumps({
            "inputs": [dict(zip(("name", "datatype", "shape", "data"), ONE[0]))], "parameters": hold.parameters})))
        hold.wait_held()
        faults.later(server, 3601)
        hold.end()
        assert wire.response().status == 200


def test_write_time(limited):
    """A client that asks for much and reads nothing is cut off, and its memory comes back."""
    server = limited("--write-timeout=500ms")
    count = 4_000_000
    from lib.rest import binary_body

    body, length = binary_body([("INPUT0", "INT32", [count])], [bytes(4 * count)], parameters={"binary_data_output": True})
    with Http1(server.http, receive_buffer=4096) as wire:
        wire.send(request("POST", "/v2/models/m/infer", f"Inference-Header-Content-Length: {length}\r\n", body))
        wait.until(lambda: value(server, "nv_inference_request_success", model="m") == 1, "the inference")
        wait.until(lambda: value(server, "millrace_block_bytes", use="requests") < 1 << 20, "the memory to come back")


def test_streams(limited):
    server = limited("--h2-max-streams=5")
    with Http2(server.http) as wire:
        streams = [wire.headers("POST", "/v2/models/m/infer", end=False) for _ in range(8)]
        wire.wait(lambda: sum(wire.reset_of(s) is not None for s in streams) == 3, "three refusals")


def test_memory(limited):
    server = limited("--memory-budget=8MiB")
    with Rest(server.http) as rest:
        blob = np.zeros(8_000_000, "<i4").tobytes()
        reply = rest.infer_binary("m", [("INPUT0", "INT32", [8_000_000])], [blob])
        assert reply.status == 503 and "--memory-budget" in reply.error
        assert rest.infer("m", ONE).status == 200


def test_grpc_message(limited):
    import grpc

    from lib import grpcraw
    from lib.grpcraw import Grpc

    server = limited("--grpc-max-message-size=1000")
    with Grpc(server.url("grpc")) as client:
        with pytest.raises(grpc.RpcError) as e:
            client.infer(grpcraw.int32("m", [1] * 1000))
        assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--grpc-max-message-size" in e.value.details()
        client.infer(grpcraw.int32("m", [1]))


def test_many_idle_connections(limited):
    server = limited()
    held = []
    for _ in range(500):
        s = socket.create_connection(("127.0.0.1", server.http), timeout=wait.PATIENCE)
        held.append(s)
    with Rest(server.http) as rest:
        assert rest.infer("m", ONE).status == 200
    [s.close() for s in held]


def test_more_connections_than_descriptors(limited):
    """The system refuses; the server waits for better times, and they come."""
    server = limited()
    used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 20, used + 20))
    held = [socket.create_connection(("127.0.0.1", server.http), timeout=wait.PATIENCE) for _ in range(100)]
    wait.until(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) >= used + 20, "no descriptor to be left")
    assert server.running
    [s.close() for s in held]
    with Rest(server.http) as rest:
        assert rest.infer("m", ONE).status == 200


def test_slow_clients_do_not_hold_others_up(limited):
    server = limited()
    slow = [Http1(server.http) for _ in range(50)]
    for i, wire in enumerate(slow):
        wire.send(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"[: 10 + i])
    with Rest(server.http) as rest:
        for _ in range(20):
            assert rest.infer("m", ONE).status == 200
    [w.close() for w in slow]

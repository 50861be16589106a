"""Hostile clients: each reaches its limit, gets a clear answer or loses its connection, does not grow the memory, and does
not affect others."""
import contextlib
import json
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lib import grpcraw, repo, wait
from lib.grpcraw import Grpc
from lib.faults import PROGRAM, Faults
from lib.held import in_use, resident
from lib.metrics import value
from lib.raw import GRPC_HEADERS, Closed, Http1, Http2, frame, grpc_frame, grpc_path, request
from lib.rest import Rest, binary_body

ONE = [("INPUT0", "INT32", [1], [1])]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def hosted(models, start):
    """hosted(*options): a server with a quick model and one that a request can make slow."""
    repo.add(models, "m")
    repo.add(models, "fault", backend="fault", extra="instance_group [ { count: 8 kind: KIND_CPU } ]")
    repo.add(models, "one", backend="fault", extra="instance_group [ { count: 1 kind: KIND_CPU } ]")
    return lambda *options, **kw: start(models, *options, **kw)


@pytest.fixture
def patient(hosted, tmp_path):
    """patient(*options): such a server, whose limits on time are an hour, and what lets it pass."""
    faults = Faults(tmp_path)
    hour = [f"--{kind}-timeout=3600s" for kind in ("header", "body", "idle", "write")]
    return lambda *options: (hosted("--loop-threads=1", *hour, *options, program=PROGRAM, env=faults.env), faults)


def at_rest(server):
    """Others are served, and no request holds memory."""
    with Rest(server.http) as rest:
        assert rest.infer("m", ONE).status == 200
    wait.until(lambda: in_use(server) < 1 << 20, "the memory of requests to come back")


def large(model, count, parameters=None):
    """(head lines, body) of an inference with a binary tensor of `count` INT32."""
    fields = {"parameters": {"binary_data_output": True, **(parameters or {})}}
    body, length = binary_body([("INPUT0", "INT32", [count])], [bytes(4 * count)], **fields)
    return f"Inference-Header-Content-Length: {length}\r\n", body


# ---- drips ----


@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_body_in_drips(hosted, framing):
    """Each byte comes in time, the body does not."""
    server = hosted("--body-timeout=600ms", "--min-transfer-rate=1MiB")
    with Http1(server.http) as wire:
        chunked = framing == "chunked"
        lines = "Transfer-Encoding: chunked\r\n" if chunked else "Content-Length: 1000000\r\n"
        wire.send(request("POST", "/v2/models/m/infer", lines))
        wire.sock.settimeout(0.05)

        def answered():
            wire.send_until_refused(b"1\r\n{\r\n" if chunked else b"{" * 20)
            with contextlib.suppress(socket.timeout):
                wire._more()
            return b"\r\n\r\n" in wire.buffer

        wait.until(answered, "an end of the drip")
        wire.sock.settimeout(wait.PATIENCE)
        answer = wire.response()
        assert answer.status == 408 and b"--body-timeout" in answer.body
    at_rest(server)


def test_body_in_drips_over_http2(hosted):
    server = hosted("--body-timeout=600ms", "--min-transfer-rate=1MiB")
    with Http2(server.http) as wire:
        stream = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
        wire.sock.settimeout(0.05)

        def ended():
            if wire.reset_of(stream) is None:
                wire.send(stream, b"\0", end=False)
                with contextlib.suppress(socket.timeout):
                    wire.read()
            return wire.reset_of(stream) is not None

        wait.until(ended, "an end of the drip")
    at_rest(server)


@pytest.mark.parametrize("count, rate, pieces", [(100_000, 1, 25), (2000, 0, 4)], ids=["large", "small"])
def test_slow_but_steady_body(patient, count, rate, pieces):
    """Longer than the timeout in total, but never late."""
    server, faults = patient(f"--min-transfer-rate={rate}")
    head, body = large("m", count)
    with Http1(server.http) as wire:
        wire.send(request("POST", "/v2/models/m/infer", f"{head}Content-Length: {len(body)}\r\n"))
        step = len(body) // pieces + 1
        for at in range(0, len(body), step):
            before = value(server, "millrace_received_bytes_total")
            wire.send(body[at : at + step])
            wait.until(lambda: value(server, "millrace_received_bytes_total") >= before + len(body[at : at + step]), "the piece to be read")
            faults.later(server, 3000)
        assert wire.response().status == 200


def test_answer_taken_in_drips(hosted):
    """A window that opens by a byte now and then."""
    server = hosted("--write-timeout=600ms", "--min-transfer-rate=1MiB")
    _, body = large("m", 500_000)
    with Http2(server.http, settings={4: 1000}, auto=False) as wire:
        stream = wire.headers("POST", "/v2/models/m/infer",
                              [("inference-header-content-length", str(len(body) - 2_000_000))], end=False)
        wire.send(stream, body)
        wire.sock.settimeout(0.05)

        def ended():
            wire.h2.increment_flow_control_window(1, stream)
            with contextlib.suppress(OSError):
                wire.flush()
            with contextlib.suppress(socket.timeout):
                wire.read()
            return wire.ended

        wait.until(ended, "an end of the connection")
    at_rest(server)


@pytest.mark.parametrize("kind", ["headers", "continuation"])
def test_head_in_drips_over_http2(hosted, kind):
    server = hosted("--header-timeout=500ms")
    with socket.create_connection(("127.0.0.1", server.http), timeout=0.05) as s:
        s.sendall(PREFACE + frame(4, 0, 0))
        if kind == "continuation":
            s.sendall(frame(1, 0, 1, b"\x82"))
        else:  # a frame of 1000 bytes with one long header
            s.sendall((1000).to_bytes(3, "big") + bytes([1, 4]) + (1).to_bytes(4, "big") + b"\x82\x86\x84\0\1a\x7f\x85\6")

        def ended():
            try:
                s.sendall(frame(9, 0, 1, b"\0\1a\1x") if kind == "continuation" else b"x")
                return s.recv(4096) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait.until(ended, "an end of the connection")
    at_rest(server)


# ---- memory ----


def held(server, count, elements, hold):
    """The connections of `count` requests of that many INT32 each, which stay in a model until `hold` ends and then fail, as
    answers would take memory too."""
    wires = []
    for _ in range(count):
        head, body = large("fault", elements, {**hold.parameters, "fail_status": "INVALID"})
        wires.append(Http1(server.http))
        wires[-1].send(request("POST", "/v2/models/fault/infer", head, body))
    return wires


def answered(wires):
    for wire in wires:
        assert wire.response().status == 400
        wire.close()


@pytest.mark.parametrize("how", ["sized", "chunked", "http2", "grpc"])
def test_no_reading_while_memory_is_scarce(hosted, hold, how):
    """A body for which there is no room stays with its client, and is served when there is room again."""
    server = hosted("--memory-budget=32MiB", "--loop-threads=2")
    others = held(server, 5, 1_150_000, hold)  # 4.6 MB each: more than three quarters
    wait.until(lambda: in_use(server) > 24 << 20, "the memory to be used")
    head, body = large("m", 1_000_000)
    count = value(server, "nv_inference_request_success", model="m") or 0
    with contextlib.ExitStack() as stack:
        if how in ("sized", "chunked"):
            wire = stack.enter_context(Http1(server.http))
            if how == "chunked":
                head += "Transfer-Encoding: chunked\r\n"
                body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
                text = request("POST", "/v2/models/m/infer", head) + body
            else:
                text = request("POST", "/v2/models/m/infer", head, body)
            # Less may fit into the sockets' buffers.
            status = lambda: (wire.send(text), wire.response().status)[1]
        elif how == "http2":
            wire = stack.enter_context(Http2(server.http))
            status = lambda: wire.ask("POST", "/v2/models/m/infer", body,
                                      [("inference-header-content-length", head.split()[1])]).status
        else:
            client = stack.enter_context(Grpc(server.url("grpc")))
            message = grpcraw.int32("m", [1] * 1_000_000)
            status = lambda: 200 if client.infer(message).raw_output_contents else 0
        found = []
        thread = threading.Thread(target=lambda: found.append(status()))
        thread.start()
        with Rest(server.http) as rest:  # others are served in between
            for _ in range(20):
                assert rest.infer("m", ONE).status == 200
        hold.end()
        answered(others)
        thread.join(wait.PATIENCE)
        assert found == [200]
    assert value(server, "nv_inference_request_success", model="m") == count + 21
    assert value(server, "millrace_block_refused_total") == 0, "nobody was refused"
    at_rest(server)


@pytest.mark.parametrize("how", ["http1", "grpc"])
def test_memory_that_does_not_come_back(patient, hold, how):
    """A body that waits for too long gets the reason."""
    server, faults = patient("--memory-budget=32MiB")
    others = held(server, 5, 1_150_000, hold)
    wait.until(lambda: value(server, "millrace_received_bytes_total") > 5 * 4_600_000, "their bodies")
    assert in_use(server) > 24 << 20

    def hours_later(ask, *args):
        """What ask() returns when it has waited for an hour."""
        received = lambda: value(server, "millrace_received_bytes_total")
        before = received()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(ask, *args)
            # The connection is not to be ended as an idle one. What asks for the metric is received, too.
            wait.until(lambda: received() > before + 20_000, "the request to have begun")
            # No hour after the refusal, in which the client reads it.
            wait.until(lambda: value(server, "millrace_timeouts_total") or faults.later(server, 3601), "an end of its time")
            return future.result()

    if how == "http1":
        head, body = large("m", 1_000_000)
        with Http1(server.http) as wire:
            hours_later(wire.send_until_refused, request("POST", "/v2/models/m/infer", head, body))
            answer = wire.response()
            assert answer.status == 503 and b"--memory-budget" in answer.body and answer.headers["retry-after"] == "1"
    else:
        import grpc

        with Grpc(server.url("grpc")) as client:
            with pytest.raises(grpc.RpcError) as e:
                hours_later(client.infer, grpcraw.int32("m", [1] * 1_000_000))
            assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--memory-budget" in e.value.details()
            assert dict(e.value.trailing_metadata()) == {"grpc-retry-pushback-ms": "1000"}
            assert client.infer(grpcraw.int32("m", [1])), "the connection goes on"
    hold.end()
    answered(others)
    at_rest(server)


def test_gone_while_waiting_for_memory(hosted, hold):
    server = hosted("--memory-budget=32MiB")
    others = held(server, 5, 1_150_000, hold)
    wait.until(lambda: in_use(server) > 24 << 20, "the memory to be used")
    head, body = large("m", 1_000_000)
    for _ in range(10):
        with Http1(server.http) as wire:
            wire.send(request("POST", "/v2/models/m/infer", head + f"Content-Length: {len(body)}\r\n") + body[:100_000])
    hold.end()
    answered(others)
    at_rest(server)
    wait.until(lambda: value(server, "millrace_connections") <= 1, "their connections to go")


@pytest.mark.parametrize("how", ["http1", "http2"])
def test_claims_take_no_memory_from_others(hosted, how):
    """200 bodies of a gigabyte of which a few bytes come."""
    server = hosted("--memory-budget=64MiB", "--http-max-input-size=1GiB")
    claims = []
    if how == "http1":
        for _ in range(200):
            claims.append(Http1(server.http))
            claims[-1].send(request("POST", "/v2/models/m/infer", "Content-Length: 1000000000\r\n") + b"{" * 20_000)
    else:
        claims.append(Http2(server.http))
        for _ in range(200):
            stream = claims[0].headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
            claims[0].send(stream, b"\0" + (1_000_000_000).to_bytes(4, "big") + b"x" * 8000, end=False)
    head, body = large("m", 2_000_000)
    for _ in range(5):
        with Http1(server.http) as wire:
            wire.send(request("POST", "/v2/models/m/infer", head, body))
            assert wire.response().status == 200
    [c.close() for c in claims]
    at_rest(server)


def test_grpc_claim_beyond_the_limit(hosted):
    """Five bytes with the announced length are enough for a refusal."""
    server = hosted("--grpc-max-message-size=1000000")
    with Http2(server.grpc) as wire:
        stream = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
        wire.send(stream, b"\0" + (1 << 30).to_bytes(4, "big"), end=False)
        answer = wire.response(stream)
        assert answer.headers["grpc-status"] == "8" and "--grpc-max-message-size" in answer.headers["grpc-message"]
        stream = wire.headers("POST", grpc_path("ModelStreamInfer"), GRPC_HEADERS, end=False)
        wire.send(stream, b"\0" + (1 << 30).to_bytes(4, "big"), end=False)
        answer = wire.response(stream)
        assert answer.headers["grpc-status"] == "8" and "--grpc-max-message-size" in answer.headers["grpc-message"]
    at_rest(server)


def test_answers_that_nobody_reads(patient):
    """A window of zero, and as many large answers as streams are allowed."""
    server, faults = patient("--max-output-backlog=1MiB", "--memory-budget=256MiB", "--h2-max-streams=200")
    at_rest(server)
    _, body = large("m", 100_000)

    def answers():
        return value(server, "nv_inference_request_success", model="m") or 0
    before = answers()
    with Http2(server.http, settings={4: 0}, auto=False) as wire:
        def ask():
            stream = wire.headers("POST", "/v2/models/m/infer",
                                  [("inference-header-content-length", str(len(body) - 400_000))], end=False)
            wire.send(stream, body)

        def ask_on():
            with contextlib.suppress(Closed, ConnectionError):
                for _ in range(197):
                    ask()

        for number in range(1, 4):  # more than the backlog; what runs when it is reached is made all the same
            ask()
            wait.equal(answers, before + number, "answers made")
        with ThreadPoolExecutor(1) as pool:
            future, received = pool.submit(ask_on), [-1]

            def stuck():
                """Nothing more was read of it while others were served."""
                last, received[0] = received[0], value(server, "millrace_received_bytes_total") // 16384
                return last == received[0]

            wait.until(stuck, "the client to be stuck")
            wait.until(lambda: value(server, "millrace_connections") == 1 or faults.later(server, 3601), "an end of the connection")
            future.result()
        assert answers() - before < 20, "answers are made that nobody takes"
    at_rest(server)


# ---- floods ----

FLOODS = {
    "settings": frame(4, 0, 0, struct.pack(">HI", 4, 65535)),
    "ping": frame(6, 0, 0, bytes(8)),
    "priority": frame(2, 0, 1, bytes([0, 0, 0, 0, 1])),
    "unknown": frame(99, 0, 0, bytes(8)),
    "window": frame(8, 0, 0, struct.pack(">I", 1)),
    "empty": frame(0, 0, 1),
    "goaway": frame(7, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("read", [True, False], ids=["reads", "does not read"])
@pytest.mark.parametrize("kind", FLOODS)
def test_floods_of_frames(hosted, kind, read):
    """Up to 400,000 frames: the connection ends or not, but memory stays and others are served."""
    server = hosted()
    at_rest(server)
    before = resident(server)
    opened = (PREFACE + frame(4, 0, 0) +
              frame(1, 4, 1, bytes.fromhex("83 86 41 01 78 44 12") + b"/v2/models/m/infer"[:18]))
    with socket.create_connection(("127.0.0.1", server.http), timeout=0.2) as s, Rest(server.http) as rest:
        s.sendall(opened)
        with contextlib.suppress(OSError):
            for _ in range(400):
                s.sendall(FLOODS[kind] * 1000)
                if read:
                    with contextlib.suppress(BlockingIOError):
                        s.recv(1 << 20, socket.MSG_DONTWAIT)
        for _ in range(10):
            assert rest.infer("m", ONE).status == 200
        assert resident(server) - before < 24 << 20
    at_rest(server)


def test_resets_do_not_run_models(hosted):
    """Requests that are opened and reset at once; the model runs no more than one at a time and what was waiting goes."""
    server = hosted("--h2-max-resets=200")
    body = grpc_frame(grpcraw.int32("one", [1], parameters={"delay_ms": 50}))
    with Http2(server.grpc) as wire:
        with contextlib.suppress(Exception):
            for _ in range(1000):
                stream = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
                wire.send(stream, body)
                wire.h2.reset_stream(stream, 8)
                wire.flush()
        wait.until(lambda: not wire.read(), "an end of the connection")
        assert wire.terminated().error_code == 11  # ENHANCE_YOUR_CALM
    wait.until(lambda: value(server, "nv_inference_pending_request_count", model="one") == 0, "the queue to be empty")
    assert (value(server, "nv_inference_exec_count", model="one") or 0) < 100
    at_rest(server)


# ---- what waits in a queue ----


@pytest.mark.parametrize("how", ["http1", "http2", "grpc", "stream"])
def test_closed_connections_cancel_what_waits(hosted, hold, how):
    server = hosted()
    busy = Http1(server.http)
    busy.send(request("POST", "/v2/models/one/infer", body=json.dumps(
        {"inputs": [dict(zip(("name", "datatype", "shape", "data"), ONE[0]))], "parameters": hold.parameters})))
    hold.wait_held()
    document = json.dumps({"inputs": [dict(zip(("name", "datatype", "shape", "data"), ONE[0]))]})
    message = grpc_frame(grpcraw.int32("one", [1]))
    wires = []
    for _ in range(20 if how == "http1" else 1):
        wires.append(Http1(server.http) if how == "http1" else Http2(server.grpc))
    for i in range(20):
        if how == "http1":
            wires[i].send(request("POST", "/v2/models/one/infer", body=document))
        elif how == "http2":
            stream = wires[0].headers("POST", "/v2/models/one/infer", end=False)
            wires[0].send(stream, document.encode())
        elif how == "grpc":
            stream = wires[0].headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
            wires[0].send(stream, message)
        elif i == 0:
            stream = wires[0].headers("POST", grpc_path("ModelStreamInfer"), GRPC_HEADERS, end=False)
            wires[0].send(stream, message * 20, end=False)
    wait.until(lambda: value(server, "nv_inference_pending_request_count", model="one") >= 20, "twenty to wait")
    [w.close() for w in wires]
    wait.until(lambda: (value(server, "nv_inference_request_failure", model="one", reason="CANCELED") or 0) >= 20, "twenty to be cancelled")
    assert value(server, "nv_inference_pending_request_count", model="one") == 0
    hold.end()
    assert busy.response().status == 200
    busy.close()
    assert value(server, "nv_inference_exec_count", model="one") == 1, "nobody's requests are run for nobody"
    at_rest(server)


def test_full_queue(hosted, hold):
    """A request that finds the queue full is refused at once, with the time of a retry."""
    import grpc

    server = hosted("--max-queue-size=5")
    with Grpc(server.url("grpc")) as client:
        running = [client.stub.ModelInfer.future(grpcraw.int32("one", [1], parameters=hold.parameters), timeout=wait.PATIENCE)]
        hold.wait_held()
        running += [client.stub.ModelInfer.future(grpcraw.int32("one", [1]), timeout=wait.PATIENCE) for _ in range(5)]
        wait.until(lambda: value(server, "nv_inference_pending_request_count", model="one") == 5, "the queue to be full")
        with pytest.raises(grpc.RpcError) as e:
            client.infer(grpcraw.int32("one", [1]))
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE and "--max-queue-size" in e.value.details()
        with Rest(server.http) as rest:
            reply = rest.infer("one", ONE)
            assert reply.status == 503 and "--max-queue-size" in reply.error and int(reply.headers["retry-after"]) >= 1
            assert rest.infer("m", ONE).status == 200, "another model is not concerned"
        hold.end()
        assert all(f.result() for f in running)
    assert value(server, "nv_inference_request_failure", model="one", reason="REJECTED") == 2

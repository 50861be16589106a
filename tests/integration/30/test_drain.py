"""The end of a server: draining, readiness, the second signal, exit codes."""
import json
import signal
import socket
import threading
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lib import grpcraw, repo, wait
from lib.grpcraw import Grpc
from lib.metrics import value
from lib.raw import GRPC_HEADERS, Http1, Http2, grpc_frame, grpc_path, request

SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
Status = health_pb2.HealthCheckResponse


@pytest.fixture
def drained(models, start):
    """drained(*options): a server with the model `slow` (one instance) and `quick`."""
    repo.add(models, "slow", backend="fault")
    repo.add(models, "quick")
    return lambda *options: start(models, *options)


def body(value, **parameters):
    return json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [value]}], "parameters": parameters})


def numbers(future):
    return np.frombuffer(future.result().raw_output_contents[0], "<i4").tolist()


@SIGNALS
def test_idle_server_ends(drained, number):
    server = drained()
    server.signal(number)
    server.stop()


@SIGNALS
def test_requests_in_flight_finish(drained, hold, number):
    server = drained()
    with Grpc(server.url("grpc")) as client, Http1(server.http) as wire:
        futures = hold.requests(server, client, "slow", 3)
        wire.send(request("POST", "/v2/models/slow/infer", body=body(7)))
        wait.until(lambda: value(server, "nv_inference_pending_request_count", model="slow") == 3, "the REST request, too")
        server.signal(number)
        wait.until(lambda: "serve.stopping" in server.err(), "the drain to begin")
        hold.end()
        assert [numbers(f) for f in futures] == [[0], [1], [2]]
        answer = wire.response()
        assert answer.status == 200 and json.loads(answer.body)["outputs"][0]["data"] == [7]
        assert answer.headers.get("connection", "").lower() == "close"
        wire.expect_close()
    server.stop()


@pytest.mark.parametrize("how", ["gRPC cancelled", "gRPC connection closed", "HTTP connection closed"])
def test_execution_whose_client_has_gone(drained, hold, how):
    """The exit waits for its end, not for its answer, and no longer than it lasts."""
    server = drained("--exit-timeout-secs=3600")
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [1]}], "parameters": hold.parameters})
    message = grpcraw.int32("slow", [1], parameters=hold.parameters)
    with Http2(server.grpc) as grpc_wire, Http1(server.http) as wire:
        if how == "HTTP connection closed":
            wire.send(request("POST", "/v2/models/slow/infer", body=body))
        else:
            stream = grpc_wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
            grpc_wire.send(stream, grpc_frame(message))
        hold.wait_held()
        if how == "gRPC cancelled":
            grpc_wire.h2.reset_stream(stream, 8)
            grpc_wire.flush()
            assert grpc_wire.ask().status == 200  # the reset has been read
        elif how == "gRPC connection closed":
            wire.close()
            grpc_wire.close()
            wait.until(lambda: value(server, "millrace_connections") == 1, "the server to see that the client has gone")
        else:
            wire.close()
        server.signal()
        wait.until(lambda: "serve.stopping" in server.err(), "the drain to begin")
        wait.until(lambda: refused(server.http), "new connections to be refused")
        hold.end()
        server.stop()


def refused(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=wait.PATIENCE) as s:
            s.sendall(request("GET", "/v2/health/live"))
            return s.recv(100) == b""
    except OSError:
        return True


def test_new_connections_are_refused(drained, hold):
    server = drained()
    with Grpc(server.url("grpc")) as client:
        futures = hold.requests(server, client, "slow", 2)
        server.signal()
        for port in (server.http, server.grpc):
            wait.until(lambda: refused(port), "new connections to be refused")
        assert not futures[0].done() and server.running
        hold.end()
        assert [numbers(f) for f in futures] == [[0], [1]]
    server.stop()


def test_idle_connections_are_closed(drained, hold):
    server = drained()
    with Http1(server.http) as idle, Http2(server.http) as idle2, Grpc(server.url("grpc")) as client:
        idle.send(request("GET", "/v2"))
        assert idle.response().status == 200 and idle2.ask().status == 200
        futures = hold.requests(server, client, "slow", 2)
        server.signal()
        idle.expect_close()
        while idle2.read():
            pass
        assert idle2.terminated() is None or idle2.terminated().error_code == 0
        hold.end()
        assert [numbers(f) for f in futures] == [[0], [1]]
    server.stop()


def test_readiness_goes_first(drained, hold):
    """A watcher of the health service learns it while requests still run."""
    server = drained()
    own_connection = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(server.url("grpc")) as channel, Grpc(server.url("grpc"), options=own_connection) as client:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=wait.PATIENCE)
        assert next(watch).status == Status.SERVING
        futures = hold.requests(server, client, "slow", 2)
        server.signal()
        assert next(watch).status == Status.NOT_SERVING
        assert not futures[0].done()
        hold.end()
        assert [numbers(f) for f in futures] == [[0], [1]]
    server.stop()


def test_requests_behind_the_signal_on_an_open_connection(drained, hold):
    """A pipelined request that was there before is answered or the connection is closed: never half an answer."""
    server = drained()
    with Http1(server.http) as wire:
        wire.send(request("POST", "/v2/models/slow/infer", body=body(1, **hold.parameters)) + request("GET", "/v2/health/ready"))
        hold.wait_held()
        server.signal()
        wait.until(lambda: "serve.stopping" in server.err(), "the drain to begin")
        hold.end()
        first = wire.response()
        assert first.status == 200
        if first.headers.get("connection", "").lower() != "close":
            assert wire.response().status in (200, 400, 503)
        wire.expect_close()
    server.stop()


def test_streams_on_an_open_connection(drained, hold):
    server = drained()
    with Http2(server.http) as wire:
        stream = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
        wire.send(stream, grpc_frame(grpcraw.int32("slow", [5], parameters=hold.parameters)))
        hold.wait_held()
        second = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
        wire.send(second, grpc_frame(grpcraw.int32("slow", [6])))
        wait.until(lambda: value(server, "nv_inference_pending_request_count", model="slow") == 1, "the second to wait")
        server.signal()
        wait.until(lambda: "serve.stopping" in server.err(), "the drain to begin")
        hold.end()
        assert wire.response(stream).headers["grpc-status"] == "0"
        assert wire.response(second).headers["grpc-status"] == "0"
    server.stop()


def test_watchers_do_not_hold_the_server(drained):
    server = drained("--exit-timeout-secs=3600")
    with grpc.insecure_channel(server.url("grpc")) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=wait.PATIENCE)
        assert next(watch).status == Status.SERVING
        server.stop()
        with pytest.raises((grpc.RpcError, StopIteration)):
            while True:
                next(watch)


def test_idle_streams_do_not_hold_the_server(drained):
    """A stream on which nothing is under way is ended, and the exit is clean."""
    server = drained("--exit-timeout-secs=3600")
    with Grpc(server.url("grpc")) as client:
        release = threading.Event()

        def requests():
            yield grpcraw.int32("quick", [1])
            release.wait(wait.PATIENCE)

        stream = client.stub.ModelStreamInfer(requests())
        assert not next(stream).error_message
        try:
            server.stop()
        finally:
            release.set()
        with pytest.raises((grpc.RpcError, StopIteration)):
            next(stream)


def test_requests_of_a_stream_finish(drained, hold):
    server = drained()
    with Grpc(server.url("grpc")) as client:
        def messages():
            yield grpcraw.int32("slow", [0], parameters=hold.parameters)
            hold.wait_held()
            yield from (grpcraw.int32("slow", [i]) for i in (1, 2, 3))

        stream = client.stub.ModelStreamInfer(messages(), timeout=wait.PATIENCE)
        wait.until(lambda: value(server, "nv_inference_pending_request_count", model="slow") == 3, "the requests to be there")
        server.signal()
        wait.until(lambda: "serve.stopping" in server.err(), "the drain to begin")
        hold.end()
        answers = [np.frombuffer(a.infer_response.raw_output_contents[0], "<i4").tolist() for a in stream]
    assert answers == [[0], [1], [2], [3]]
    server.stop()


def test_exit_timeout(drained, hold):
    server = drained("--exit-timeout-secs=1")
    with Grpc(server.url("grpc")) as client:
        futures = hold.requests(server, client, "slow", 2)
        server.signal()
        server.checked = True
        assert server.wait_exit() == 1
        assert all(f.exception() for f in futures)
    assert "--exit-timeout-secs is over" in server.err()


@SIGNALS
def test_second_signal_ends_at_once(drained, hold, number):
    server = drained("--exit-timeout-secs=3600")
    with Grpc(server.url("grpc")) as client:
        futures = hold.requests(server, client, "slow", 2)
        server.signal(signal.SIGTERM)
        wait.until(lambda: "serve.stopping" in server.err(), "the drain to begin")
        server.signal(number)
        server.checked = True
        assert server.wait_exit() not in (0, None)
        assert futures[0].exception()
    assert "second signal" in server.err()


def test_signal_while_loading(models, start):
    repo.add(models, "slow", backend="fault", parameters={"open_delay_ms": 3_600_000})
    server = start(models, ready=False)
    server.checked = True
    wait.until(lambda: "SigBlk:\t0000000000000000" not in Path(f"/proc/{server.process.pid}/status").read_text(), "it to watch for signals")
    server.signal()
    assert server.wait_exit() != 0


def test_what_it_says(drained):
    server = drained()
    server.stop()
    events = [e["event"] for e in server.events()]
    assert events.index("serve.ready") < events.index("serve.stopping") < events.index("serve.stopped")


def test_end_under_load(drained):
    """Clients that go on asking see whole answers, refusals or the end of the connection."""
    server = drained()
    problems, counts, end = [], [0] * 4, threading.Event()

    def run(slot):
        from lib.rest import Rest

        with Rest(server.http) as client:
            while not end.is_set():
                try:
                    reply = client.infer("quick", [("INPUT0", "INT32", [1], [slot])])
                except (OSError, Exception) as e:  # the connection is closed between requests
                    if server.process.poll() is None and counts[slot] == 0:
                        problems.append(repr(e))
                    return
                if reply.status == 200 and reply.json()["outputs"][0]["data"] != [slot]:
                    problems.append(reply)
                if reply.status not in (200, 503):
                    problems.append(reply)
                counts[slot] += 1

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    wait.until(lambda: all(c > 20 for c in counts), "answers")
    server.stop()
    end.set()
    [t.join(wait.PATIENCE) for t in threads]
    assert not problems, problems[:3]


@pytest.mark.parametrize("used", ["http", "grpc", "metrics"])
def test_port_in_use(models, start, used):
    repo.add(models, "m")
    first = start(models)
    second = start(models, f"--{used}-port={first.ports[used]}", ready=False)
    second.checked = True
    assert second.wait_exit() == 1
    assert "in use" in second.err() and str(first.ports[used]) in second.err()

"""Clients that ask and do not read: what their answers take is bounded for each connection and counted in the byte budget,
they lose their stream or their connection in time, and the memory comes back. Who reads gets everything."""
import contextlib
import json
import select
import socket
import ssl
import subprocess

import h2.events
import numpy as np
import pytest

from lib import grpcraw, onnxgen, repo, wait
from lib.faults import PROGRAM, Faults
from lib.grpcraw import Grpc
from lib.held import in_use, resident
from lib.metrics import value
from lib.raw import GRPC_HEADERS, Http1, Http2, grpc_frame, grpc_path, request
from lib.rest import Rest

MIB = 1 << 20
ONE = [("INPUT0", "INT32", [1], [1])]
BUDGET = 64 * MIB


def others_are_served(server):
    with Rest(server.http) as rest:
        assert rest.infer("m", ONE).status == 200


def hours_pass(server, faults):
    """Until no connection is left but the one that asks: one may stop only now to take what it gets."""
    wait.until(lambda: faults.later(server, 3601) or value(server, "millrace_connections") == 1, "an end of the connections")


def comes_back(server, before):
    wait.until(lambda: in_use(server) < MIB, "the memory of answers to come back")
    if wait.SLOW == 1:  # sanitizers keep freed memory
        wait.until(lambda: resident(server) < before + 12 * MIB, "the system to have it back", 90)
    others_are_served(server)


@pytest.fixture
def faults(tmp_path):
    return Faults(tmp_path)


@pytest.fixture
def served(models, start, faults):
    """served(*options): a server of one network thread, whose clients lose their patience when `faults` lets an hour pass."""
    repo.add(models, "m")

    def make(*options):
        server = start(models, f"--memory-budget={BUDGET}", "--loop-threads=1", "--write-timeout=3600s", "--body-timeout=7200s",
                       "--idle-timeout=7200s", "--header-timeout=7200s", *options, program=PROGRAM, env=faults.env)
        others_are_served(server)
        return server
    return make


def open_streams(wire, count):
    return [wire.headers("POST", grpc_path("ModelStreamInfer"), GRPC_HEADERS, end=False) for _ in range(count)]


def reads_in_a_moment(wire):
    """False where nothing comes, or the connection has ended."""
    wire.sock.settimeout(0.3 * wait.SLOW)
    try:
        return wire.read()
    except socket.timeout:
        return False
    finally:
        wire.sock.settimeout(wait.PATIENCE)


def push(wire, streams, message, most, least=0):
    """Send whole messages on all streams until their windows are used up, or `most` bytes; how many on each. Of each stream there is
    room for `least`."""
    sent = dict.fromkeys(streams, 0)
    while sum(sent.values()) * len(message) < most:
        moved = False
        for stream in streams:
            room = min(wire.h2.local_flow_control_window(stream), wire.h2.max_outbound_frame_size)
            if count := room // len(message):
                wire.h2.send_data(stream, message * count)
                wire.flush()
                sent[stream] += count
                moved = True
        if not moved and not (wire.read() if min(sent.values()) < least else reads_in_a_moment(wire)):
            break
    return sent


# ---- a bound ----


@pytest.mark.few
@pytest.mark.release
@pytest.mark.parametrize("elements", [1, 250, 4000])
def test_streams_without_windows(served, faults, elements):
    """100 streams of one connection whose answers never leave."""
    server = served()
    before = resident(server)
    message = grpc_frame(grpcraw.int32("m", list(range(elements))))
    with Http2(server.grpc, settings={4: 0}, auto=False) as wire:
        push(wire, open_streams(wire, 100), message, 64 * MIB)
        # what one connection may have unread, and a connection's window of input; chunks are larger with sanitizers
        assert in_use(server) < (28 if wait.SLOW == 1 else 40) * MIB
        if wait.SLOW == 1:
            assert resident(server) - before < 40 * MIB
        others_are_served(server)
        hours_pass(server, faults)
    comes_back(server, before)


ELEMENTS = 3_000_000
ANSWER = 4 * ELEMENTS
ASKED = ("INPUT0", "INT64", [1])


@pytest.fixture
def filled(models, served):
    """filled(name, *options): a server with a model of one instance, whose answers have 12 MB: `given` by ONNX Runtime from memory of
    its own, or `pooled`; and the options."""
    def make(name, *options):
        config = 'backend: "onnxruntime" instance_group [ { count: 1 kind: KIND_CPU } ]'
        if name == "given":
            config += ' input [ { name: "INPUT0" data_type: TYPE_INT64 dims: [ 1 ] } ]'
            config += ' output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]'
        repo.add(models, name, config, files={"1/model.onnx": onnxgen.filler(None if name == "given" else ELEMENTS)})
        return served(*options)
    return make


def ask_for(name, elements=ELEMENTS):
    return grpcraw.request(name, [(*ASKED, None)], raw=[np.array([elements], "<i8").tobytes()])


def ask_many(wire, message, count):
    """`count` requests at once; their streams."""
    streams = [wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False) for _ in range(count)]
    for stream in streams:
        wire.h2.send_data(stream, grpc_frame(message), end_stream=True)
    wire.flush()
    return streams


def answers(server, name):
    return value(server, "nv_inference_request_success", model=name) or 0


@pytest.mark.few
@pytest.mark.release
@pytest.mark.parametrize("name,rpc", [("given", "ModelInfer"), ("given", "ModelStreamInfer"), ("pooled", "ModelInfer")])
def test_one_connection_has_a_share(filled, faults, name, rpc):
    """100 requests of one connection that were taken at once, and their answers never leave: they do not run ahead, and others
    find memory for bodies of theirs."""
    budget = 512 * MIB  # less than all answers; the share, and what runs before it is seen to be used, are far below half of it
    server = filled(name, f"--memory-budget={budget}")
    before = resident(server)
    with Http2(server.grpc, settings={4: 0}, auto=False) as wire:
        if rpc == "ModelInfer":
            ask_many(wire, ask_for(name), 100)
        else:
            wire.send(open_streams(wire, 1)[0], grpc_frame(ask_for(name)) * 100, end=False)
        wait.until(lambda: in_use(server) > budget // 8, "the share of a connection to be used")
        with Rest(server.http) as rest:
            assert rest.infer("m", [("INPUT0", "INT32", [500_000], [1] * 500_000)]).status == 200
        assert in_use(server) < budget // 2
        if wait.SLOW == 1:
            assert resident(server) - before < budget // 2
        ran = answers(server, name)
        hours_pass(server, faults)
    assert ran < 40 and answers(server, name) < 40, "answers are made that nobody takes"
    wait.until(lambda: in_use(server) < MIB, "the memory of answers to come back")
    others_are_served(server)


@pytest.mark.release
def test_many_connections_that_do_not_read(filled, faults):
    """What a backend takes itself is counted: no execution begins while more than the budget is used."""
    server = filled("given")
    before = resident(server)
    document = json.dumps({"inputs": [dict(zip(("name", "datatype", "shape", "data"), (*ASKED, [ELEMENTS])))],
                           "parameters": {"binary_data_output": True}})
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Http1(server.http, receive_buffer=4096)) for _ in range(60)]
        for wire in wires:
            wire.send(request("POST", "/v2/models/given/infer", body=document))
        wait.until(lambda: value(server, "millrace_block_refused_total") > 0, "a refusal")
        # the system keeps some of each answer, so that there may be more of them than the budget alone allows
        assert in_use(server) < BUDGET + 2 * ANSWER
        if wait.SLOW == 1:
            assert resident(server) - before < BUDGET + 3 * ANSWER
        with Rest(server.http) as rest:
            assert rest.infer("m", ONE).status == 200
            reply = rest.infer("given", [(*ASKED, [10])])
            assert reply.status == 200 or "--memory-budget" in reply.error
        hours_pass(server, faults)
    comes_back(server, before)


@pytest.fixture
def certificate(tmp_path):
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3",
                    "-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def connect(port, secure):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", port))
    if secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        s = context.wrap_socket(s)
    s.setblocking(False)
    return s


def push_until_stuck(connections, data):
    """Until the server takes nothing more from any of them."""
    total = 0
    while total < 2000 * MIB:
        writable = select.select([], connections, [], 0.5 * wait.SLOW)[1]
        if not writable:
            break
        for c in writable:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError, ConnectionError):
                total += c.send(data)
    return total


@pytest.mark.few
@pytest.mark.parametrize("listener,path,secure", [("http", "/v2/models/m/config", False), ("metrics", "/metrics", False),
                                                  ("grpc", "/v2/models/m/config", True)], ids=["http", "metrics", "tls"])
@pytest.mark.release
def test_pipelines_without_reading(served, faults, certificate, listener, path, secure):
    """Requests sent ahead on many connections, and nothing is read."""
    options = []
    if secure:
        options += ["--grpc-use-ssl", f"--grpc-server-cert={certificate[0]}", f"--grpc-server-key={certificate[1]}"]
    server = served(*options)
    before = resident(server)
    connections = [connect(server.ports[listener], secure) for _ in range(60 if wait.SLOW == 1 else 20)]
    with contextlib.ExitStack() as stack:
        [stack.enter_context(c) for c in connections]
        assert push_until_stuck(connections, request("GET", path) * 200) > 0
        assert in_use(server) < BUDGET // 2 + len(connections) * (MIB // 8)
        if wait.SLOW == 1:
            # The heap keeps what was in use at some time: on a busy machine up to twice the budget has been seen. All
            # answers together would be several times as much.
            assert resident(server) - before < 4 * BUDGET
        others_are_served(server)
        hours_pass(server, faults)
    comes_back(server, before)


# ---- in time ----


def test_one_unread_stream_beside_others(served, faults):
    """The stream whose window stays shut ends; the connection and its other streams go on."""
    server = served("--min-transfer-rate=1")  # an answer's 4000 bytes give their connection more than an hour
    message = grpc_frame(grpcraw.int32("m", [1] * 1000))
    with Http2(server.grpc, auto=False) as wire:
        wire.h2.increment_flow_control_window(1 << 30)
        shut, read = open_streams(wire, 2)
        for _ in range(40):  # ten times what a window holds
            wire.send(shut, message, end=False)

        def ask():
            wire.send(read, message, end=False)
            wire.wait(lambda: len(wire.data_of(read)) >= 4000 or wire.reset_of(shut) is not None, "an answer")
            if taken := sum(e.flow_controlled_length for e in wire.of(read, h2.events.DataReceived)):
                wire.h2.increment_flow_control_window(taken, read)
            wire.flush()
            wire.events = [e for e in wire.events if not isinstance(e, h2.events.DataReceived)]

        ask()
        faults.later(server, 2000)
        ask()
        assert wire.reset_of(shut) is None
        faults.later(server, 2000)  # of the hour the stream has had 4000 s, and the connection 2000
        while wire.reset_of(shut) is None:
            ask()
        assert wire.reset_of(shut) == 8 and wire.reset_of(read) is None
        wire.send(read, b"", end=True)
        wire.wait(lambda: wire.of(read, h2.events.StreamEnded), "the end of the other stream")
    others_are_served(server)


# ---- others of the connection ----


def test_streams_that_are_not_read_hold_up_no_other(served):
    """The client reads one stream and other answers, while several times the backlog waits on further streams. What these have
    sent does not use up the connection's window, and comes back to it when they are cancelled."""
    server = served("--max-output-backlog=64KiB")
    message, answer = grpc_frame(grpcraw.int32("m", [1] * 4000)), 16000
    with Http2(server.grpc, auto=False) as wire:
        wire.h2.increment_flow_control_window(1 << 30)
        unread = open_streams(wire, 10)
        assert min(push(wire, unread, message, 16 * MIB, least=20).values()) >= 20
        read = open_streams(wire, 1)[0]

        def ask():
            wire.send(read, message, end=False)
            wire.wait(lambda: len(wire.data_of(read)) >= answer, "an answer")
            wire.h2.increment_flow_control_window(sum(e.flow_controlled_length for e in wire.of(read, h2.events.DataReceived)), read)
            wire.flush()
            wire.events = [e for e in wire.events if not isinstance(e, h2.events.DataReceived)]

        for _ in range(100):
            ask()
        single = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
        wire.send(single, message)
        assert wire.response(single).headers["grpc-status"] == "0"
        for _ in range(2):  # each time they fill much of the window
            for stream in unread:
                wire.h2.reset_stream(stream, 8)
            unread = open_streams(wire, 10)
            assert min(push(wire, unread, message, 16 * MIB, least=20).values()) >= 20
            ask()
    others_are_served(server)


# ---- nothing is lost ----


def test_requests_that_waited_are_answered(filled):
    """Requests that wait while the client does not read run when it does; cancelled ones do not."""
    budget = 256 * MIB
    server = filled("given", f"--memory-budget={budget}")
    cancelled = lambda: value(server, "nv_inference_request_failure", model="given", reason="CANCELED") or 0
    with Http2(server.grpc, settings={4: 0}, auto=False) as wire:
        streams = ask_many(wire, ask_for("given"), 20)  # fewer than the budget has room for
        wait.until(lambda: in_use(server) > budget // 8, "the share of a connection to be used")
        for stream in streams[8:]:
            wire.h2.reset_stream(stream, 8)
        wire.flush()
        wait.until(cancelled, "a request to be cancelled that did not run")
        wire.auto = True
        wire.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
        wire.h2.increment_flow_control_window(300 * MIB)
        wire.flush()
        for stream in streams[:8]:
            answer = wire.response(stream)
            assert answer.headers["grpc-status"] == "0" and len(answer.body) > ANSWER
    wait.until(lambda: answers(server, "given") + cancelled() == 20, "all of them to be answered or cancelled")
    others_are_served(server)


@pytest.mark.few
@pytest.mark.parametrize("name", ["given", "pooled"])
def test_clients_that_read_lose_nothing(filled, name):
    """More than the budget holds, asked for at once by a client that reads."""
    server = filled(name, f"--memory-budget={256 * MIB}")
    with Grpc(server.url("grpc")) as client:
        for call in [client.stub.ModelInfer.future(ask_for(name), timeout=wait.PATIENCE) for _ in range(40)]:
            assert len(call.result().raw_output_contents[0]) == ANSWER
    assert answers(server, name) == 40
    others_are_served(server)


def messages_in(data):
    while data:
        size = 5 + int.from_bytes(data[1:5], "big")
        yield data[5:size]
        data = data[size:]


@pytest.mark.parametrize("elements", [1, 300, 30000])
def test_streams_that_read_late(served, elements):
    """Everything that was sent on many streams is answered, in order, once the client reads."""
    server = served("--max-output-backlog=64KiB")
    streams, most = 8, 16 * MIB
    with Http2(server.grpc, settings={4: 0}, auto=False) as wire:
        ids = open_streams(wire, streams)
        values = dict.fromkeys(ids, 0)
        sent, wire_room, idle = dict.fromkeys(ids, 0), 0, False
        pending = dict.fromkeys(ids, b"")
        while not idle and sum(sent.values()) < 3000:
            moved = False
            for stream in ids:
                if not pending[stream]:
                    pending[stream] = grpc_frame(grpcraw.int32("m", [sent[stream]] * elements))
                    sent[stream] += 1
                room = min(wire.h2.local_flow_control_window(stream), wire.h2.max_outbound_frame_size, 777)
                if room > 0:
                    wire.h2.send_data(stream, pending[stream][:room])
                    pending[stream] = pending[stream][room:]
                    moved = True
            wire.flush()
            idle = not moved and not reads_in_a_moment(wire)
        wire.auto = True
        wire.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
        wire.h2.increment_flow_control_window(100 * MIB)
        wire.flush()
        for stream in ids:
            while pending[stream]:
                room = min(wire.h2.local_flow_control_window(stream), wire.h2.max_outbound_frame_size)
                if room > 0:
                    wire.h2.send_data(stream, pending[stream][:room])
                    pending[stream] = pending[stream][room:]
                    wire.flush()
                else:
                    wire.read()
            wire.send(stream, b"", end=True)
        for stream in ids:
            answer = wire.response(stream)
            assert answer.headers["grpc-status"] == "0"
            got = []
            for message in messages_in(answer.body):
                reply = grpcraw.pb.ModelStreamInferResponse.FromString(message)
                assert not reply.error_message
                raw = reply.infer_response.raw_output_contents[0]
                assert len(raw) == 4 * elements and raw == raw[:4] * elements
                got.append(int.from_bytes(raw[:4], "little"))
            assert got == list(range(sent[stream]))

"""Streams of a client's messages to a model of MLServer, which one call of its predict_stream serves."""
import concurrent.futures
import contextlib
import json
import os
import signal
import socket

import grpc
import pytest

from lib import pymodels, wait
from lib.pymodels import add_mlserver
from lib.rest import Rest
from lib.stream import Talk, words

BODY = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}


@pytest.fixture
def start(start):
    def make(models, *args, **kw):
        return start(models, *pymodels.options(pymodels.MLSERVER), *args, **kw)
    return make


def ended(server):
    """How many calls of predict_stream have ended."""
    with Rest(server.http) as rest:
        return int(rest.post("/v2/models/m/infer", BODY).ok().json()["outputs"][0]["data"][0])


def check_one_call(server):
    """Each message is answered before the next is sent, by the call that had the first one, whose id all have."""
    with Talk(server) as talk:
        talk.say("1", id="first")
        one = talk.next()
        talk.say("20", id="second")
        two = talk.next()
        assert one[:2] == ["1", "first"] and two == ["21", "first", one[2]]
        assert ended(server) == 0  # another request, while the stream is open
        assert talk.end() == [["end", "21"]]
    assert ended(server) == 1


def check_own_rhythm(server):
    """Many messages without an answer; answers after the last one. Large ones arrive whole."""
    with Talk(server, "7", *["quiet"] * 600, "4" + " " * 300000, "5") as talk:
        assert [a[0] for a in talk.end()] == ["7", "7", "12", "end"]


def check_end_by_model(server):
    """The stream ends with the call, as at MLServer; what the client still sends is dropped. An error is the stream's."""
    with Talk(server, "1", "stop", "2", "3") as talk:
        assert [words(a)[0] for a in talk.answers] == ["1"]
        assert talk.answers.code() == grpc.StatusCode.OK
    with Talk(server, "1", "fail", "2") as talk:
        talk.next()
        assert talk.error() == (grpc.StatusCode.INTERNAL, "builtins.ValueError: a bad word")


def check_cancel(server):
    """It ends the call, whether that waits for a message or for something else."""
    for sent in (["1"], ["wait"], ["wait", "2", "3"]):
        before = ended(server)
        with Talk(server, *sent) as talk:
            talk.next()
            assert ended(server) == before
            talk.answers.cancel()
            wait.until(lambda: ended(server) == before + 1, "end of the call")


def check_rest(server):
    """A stream over REST is a call of its own, also beside those of messages."""
    with Talk(server, "1") as talk, Rest(server.http) as rest:
        talk.next()
        assert len(rest.post("/v2/models/m/infer_stream", BODY).ok().body.split(b"\n\n")) == 3
        failing = {"inputs": [{**BODY["inputs"][0], "data": ["fail"]}]}
        assert rest.post("/v2/models/m/infer_stream", failing).error == "builtins.ValueError: a bad word"
        assert talk.end() == [["end", "1"]]


def test_messages(models, start):
    add_mlserver(models / "m", "runtimes.Talk")
    server = start(models)
    check_one_call(server)
    check_own_rhythm(server)
    check_end_by_model(server)
    check_cancel(server)
    check_rest(server)


def check_slow_reader(server):
    """A client that does not read holds up its own call only."""
    with Talk(server, "1") as fast, Talk(server, "many") as slow:
        slow.next()
        assert fast.next()[0] == "1"
        for i in range(20):
            fast.say("1")
            assert fast.next()[0] == str(i + 2) and ended(server) == 0
        assert slow.next() == ["1" * 1000]


@pytest.mark.more
def test_two_models(models, start):
    """Messages of one stream for different models go to a call of each."""
    add_mlserver(models / "m", "runtimes.Talk")
    add_mlserver(models / "n", "runtimes.Talk")
    server = start(models, "--write-timeout=3600s")  # for the client that does not read
    check_slow_reader(server)
    with Talk(server, "1") as talk:
        one = talk.next()
        talk.say("10", model="n")
        assert talk.next()[0] == "10"
        talk.say("2")
        assert talk.next() == ["3", "", one[2]]
        assert sorted(talk.end()) == [["end", "10"], ["end", "3"]]


@pytest.mark.more
def test_many_streams(models, start):
    """Each has its own call in one of two processes and keeps it."""
    add_mlserver(models / "m", "runtimes.Talk")
    server = start(models, env={"MLSERVER_PARALLEL_WORKERS": "2"})
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(Talk(server, str(i))) for i in range(40)]
        first = [t.next() for t in talks]
        [t.say("100") for t in talks]
        assert [t.next() for t in talks] == [[str(i + 100), "", f[2]] for i, f in enumerate(first)]
        assert len({f[2] for f in first}) == 2
        assert ended(server) == 0
        assert [t.end() for t in talks] == [[["end", str(i + 100)]] for i in range(40)]


def check_rest_beside_batches(server):
    """A stream over REST is not joined with the next request, which would wait for its end."""
    before, body = ended(server), json.dumps({"inputs": [{**BODY["inputs"][0], "data": ["wait"]}]})
    with socket.create_connection(("127.0.0.1", server.http)) as stream:
        stream.sendall(f"POST /v2/models/m/infer_stream HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        assert ended(server) == before
        assert stream.recv(12) == b"HTTP/1.1 200"
    wait.until(lambda: ended(server) == before + 1, "end of the call")


@pytest.mark.more
def test_limit(models, start):
    """Beyond it streams are refused; other requests are not. Streams are not joined with others by adaptive batching."""
    add_mlserver(models / "m", "runtimes.Talk", max_batch_size=8, max_batch_time=0.2)
    server = start(models, "--batching-delay=exact")
    with Talk(server, "quiet") as talk:  # from now on requests run beside each other
        assert talk.end() == [["end", "0"]]
    check_rest_beside_batches(server)
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(Talk(server, "1")) for _ in range(96)]
        assert {t.next()[0] for t in talks} == {"1"}
        with Talk(server, "1") as talk:
            assert talk.error() == (grpc.StatusCode.UNAVAILABLE, "model 'm' has too many streams")
        assert ended(server) == 2
        talks[0].say("2")
        assert talks[0].next()[0] == "3"


@pytest.mark.more
def test_loop_that_is_blocked(models, start, tmp_path):
    """The next request finds it, is answered by another process, and the one that blocks has an error."""
    add_mlserver(models / "m", "runtimes.Talk")
    server = start(models, "--worker-hang-timeout=5s")
    with Talk(server, "1") as talk:
        talk.end()
    begun = tmp_path / "begun"
    with Rest(server.http) as one, concurrent.futures.ThreadPoolExecutor() as pool:
        blocking = pool.submit(one.post, "/v2/models/m/infer", {"inputs": [{**BODY["inputs"][0], "data": [f"block {begun}"]}]})
        wait.until(begun.exists, "the loop to be blocked")
        assert ended(server) == 0
        reply = blocking.result()
    assert reply.status == 500 and "hang" in reply.error, reply.error


@pytest.mark.more
def test_worker_dies(models, start):
    """The stream has an error; the model goes on with the next one. When the server exits, the messages end, and what the model
    answers to that arrives."""
    add_mlserver(models / "m", "runtimes.Talk")
    server = start(models)
    with Talk(server, "quiet", "die") as talk:
        code, text = talk.error()
        assert code == grpc.StatusCode.INTERNAL and "it has taken messages of its stream" in text
    with Talk(server, "1") as talk:
        process = int(talk.next()[2])
        os.kill(process, signal.SIGKILL)
        code, text = talk.error()
        assert code == grpc.StatusCode.INTERNAL and "answers have been sent" in text
    with Talk(server, "1") as talk:
        assert talk.next()[0] == "1"
        server.signal()
        assert [words(a) for a in talk.answers] == [["end", "1"]]

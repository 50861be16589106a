"""Models in Python that hang, take too much memory, fork or leave threads. Limits of the server and files decide."""
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from lib import grpcraw, pymodels, repo, wait
from lib.control import Control
from lib.rest import Rest, infer_path
from lib.stream import Stream
from lib.workers import pids, report

FAULTY = """
import ctypes
import os
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request.inputs()[0].as_numpy()[0].decode()) for request in requests]

    def one(self, word):
        word, _, path = word.partition("@")
        if path:
            open(path, "w").close()
        if word == "loop":
            while True:
                pass
        if word == "sleep":
            threading.Event().wait()
        if word == "gil":
            ctypes.PyDLL(None).pause()
        if word == "memory":
            kept = []
            while True:
                kept.append(bytes(bytearray(b"x") * (16 << 20)))
        if word == "full":
            kept = []
            try:
                while True:
                    kept.append(bytes(bytearray(b"x") * (16 << 20)))
            except MemoryError:
                open(path + ".full", "w").close()
                while not os.path.exists(path + ".go"):
                    threading.Event().wait(0.01)
                raise
        if word in ("fork", "daemon"):
            child = os.fork()
            if child == 0:
                if word == "daemon":
                    os.setsid()
                    open(path + ".daemon", "w").close()
                threading.Event().wait()
            word = str(child)
        if word == "thread":
            threading.Thread(target=threading.Event().wait).start()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([word.upper()], np.object_))])
"""


def begin(models, start, *options, **kw):
    """The model `m`, which fails, and `other`, which does not."""
    for name in ("m", "other"):
        pymodels.add(models, name, FAULTY, inputs=[repo.tensor("INPUT0", "TYPE_STRING", (1,))],
                     outputs=[repo.tensor("OUTPUT0", "TYPE_STRING", (1,))])
    return start(models, *pymodels.options(), *options, **kw)


def ask(server, word, model="m"):
    with Rest(server.http) as rest:
        return rest.post(infer_path(model), json.dumps({"inputs": [
            {"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [word]}]}))


def answer(*args):
    return ask(*args).ok().json()["outputs"][0]["data"][0]


def restarts(server, model, reason):
    return sum(worker["restarts"][reason] for worker in report(server, model)["workers"])


@pytest.mark.few
@pytest.mark.parametrize("word", [pytest.param("loop", marks=pytest.mark.more), "sleep", "gil"])
def test_hanging(models, start, word):
    """The request fails with one error, another process serves the model, and the other model's stays."""
    server = begin(models, start, "--worker-hang-timeout=5s")
    first, other = pids(server, "m"), pids(server, "other")
    reply = ask(server, word)
    assert reply.status == 500 and "ended while it ran this request (hang" in reply.error, reply.error
    assert answer(server, "a") == "A" and answer(server, "b", "other") == "B"
    assert restarts(server, "m", "hang") >= 1
    assert pids(server, "m") != first and pids(server, "other") == other


LIFE = """
import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.note("initialize")

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]

    def finalize(self):
        self.note("finalize")
        try:  # two of them meet: one opens the pipe for reading, the other for writing
            os.mkfifo("FILE.pipe")
            mode = "r"
        except FileExistsError:
            mode = "w"
        open("FILE.pipe", mode).close()
        self.note("end")

    def note(self, word):
        with open("FILE", "a") as f:
            f.write(f"{word} {os.getpid()}\\n")
"""


@pytest.fixture
def add_alive(models, tmp_path):
    """add_alive(name, **parameters): a model of LIFE, all of them with one FILE."""
    return lambda name, **parameters: pymodels.add(
        models, name, LIFE.replace("FILE", str(tmp_path / "life")), inputs=[repo.tensor("INPUT0", "TYPE_STRING", (1,))],
        outputs=[repo.tensor("OUTPUT0", "TYPE_STRING", (1,))], parameters=parameters)


def test_models_end_at_the_same_time(models, start, tmp_path, add_alive):
    """With the server: each of them waits for the other's finalize."""
    add_alive("m")
    add_alive("other")
    server = start(models, *pymodels.options(), f"--worker-directory={tmp_path}")
    server.signal()
    server.stop()
    words = [line.split()[0] for line in (tmp_path / "life").read_text().splitlines()]
    assert words == [word for word in ("initialize", "finalize", "end") for _ in range(2)]


def test_a_standby_has_run_initialize(models, start, tmp_path, add_alive):
    """And runs finalize when the model is unloaded without having needed it, at the same time as the other worker."""
    add_alive("m", worker_standby="1")
    lines = lambda: sorted((tmp_path / "life").read_text().splitlines())
    of = lambda: {w["state"]: w["pid"] for w in report(server, "m")["workers"]}
    server = start(models, *pymodels.options(), f"--worker-directory={tmp_path}", mode="explicit")
    with Control(server) as control:
        control.load("m").ok()
        wait.until(lambda: set(of()) == {"ready", "standby"}, "the standby worker")
        dead, standby = of()["ready"], of()["standby"]
        assert lines() == sorted(f"initialize {pid}" for pid in (dead, standby))
        os.kill(dead, signal.SIGKILL)
        assert answer(server, "a") == "a"
        wait.until(lambda: of().get("ready") == standby and "standby" in of(), "the next standby worker")
        alive = of().values()
        assert lines() == sorted(f"initialize {pid}" for pid in (dead, *alive))
        control.unload("m").ok()
        wait.equal(lines, sorted([f"initialize {pid}" for pid in (dead, *alive)] + [f"{word} {pid}" for pid in alive for word in ("finalize", "end")]))


def kill_until_done(server, request, begun):
    """A process that runs the request gets a signal for which the request may be the reason; so does the next one, when it has begun,
    until the request is given up."""
    for _ in range(10):
        wait.until(lambda: begun.exists() or request.done(), "the request to be run again, or to fail")
        if request.done():
            return
        ready = wait.until(lambda: pids(server, "m"), "what runs it to be called ready, which may come after the request")
        begun.unlink()
        [os.kill(pid, signal.SIGUSR1) for pid in ready]
    raise AssertionError("the request is run again and again")


@pytest.mark.few
@pytest.mark.parametrize("word", ["loop", "sleep", "gil"])
def test_others_while_one_hangs(models, start, tmp_path, word):
    """For as long as it hangs: only the end of its processes ends the request."""
    server = begin(models, start, "--worker-hang-timeout=3600s", f"--worker-directory={tmp_path}")
    other = pids(server, "other")
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(ask, server, f"{word}@{tmp_path / 'begun'}")
        wait.until((tmp_path / "begun").exists, "the model to hang")
        assert [answer(server, f"{i}a", "other") for i in range(20)] == [f"{i}A" for i in range(20)]
        assert not hanging.done()
        kill_until_done(server, hanging, tmp_path / "begun")
    assert hanging.result().status == 500
    assert answer(server, "a") == "A" and pids(server, "other") == other


@pytest.mark.few
@pytest.mark.parametrize("word", ["sleep", "gil"])
def test_waiting_requests(models, start, tmp_path, word):
    """What waits for a process that hangs is answered by the one that replaces it."""
    server = begin(models, start, "--worker-hang-timeout=5s", f"--worker-directory={tmp_path}")
    with ThreadPoolExecutor(5) as pool:
        hanging = pool.submit(ask, server, f"{word}@{tmp_path / 'begun'}")
        wait.until((tmp_path / "begun").exists, "the model to hang")
        answers = list(pool.map(lambda i: answer(server, f"{i}a"), range(4)))
        assert answers == [f"{i}A" for i in range(4)]
    assert "ended while it ran this request (hang" in hanging.result().error


@pytest.mark.release_only("a sanitizer's own memory")
def test_others_while_one_is_full(models, start, tmp_path):
    server = begin(models, start, "--worker-memory=2GiB", "--worker-hang-timeout=3600s", f"--worker-directory={tmp_path}")
    first = pids(server, "m"), pids(server, "other")
    with ThreadPoolExecutor(1) as pool:
        full = pool.submit(ask, server, f"full@{tmp_path / 'm'}")
        wait.until((tmp_path / "m.full").exists, "the model to have all of its memory")
        assert [answer(server, f"{i}a", "other") for i in range(20)] == [f"{i}A" for i in range(20)]
        assert not full.done()
        (tmp_path / "m.go").touch()
    assert "MemoryError" in full.result().error
    assert answer(server, "a") == "A" and (pids(server, "m"), pids(server, "other")) == first


@pytest.mark.release_only("a sanitizer's own memory")
def test_memory(models, start):
    """A request that takes more than --worker-memory fails as an exception, and the process goes on."""
    server = begin(models, start, "--worker-memory=2GiB")
    first, other = pids(server, "m"), pids(server, "other")
    reply = ask(server, "memory")
    assert reply.status == 500 and "MemoryError" in reply.error, reply.error
    assert answer(server, "a") == "A" and answer(server, "b", "other") == "B"
    assert pids(server, "m") == first and pids(server, "other") == other


def exists(pid):
    """Whether it runs: what has ended and waits for its parent does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("end", ["killed", "unloaded"])
def test_forked_children(models, start, end):
    """They end with the worker that forked them."""
    server = begin(models, start, mode="explicit")
    with Control(server) as control:
        control.load("m").ok()
        pid, = pids(server, "m")
        child = int(answer(server, "fork"))
        assert exists(child)
        if end == "killed":
            os.kill(pid, signal.SIGKILL)
            assert answer(server, "a") == "A"
        else:
            control.unload("m").ok()
        wait.until(lambda: not exists(pid) and not exists(child), "the end of both processes")


def test_a_daemon_left_behind(models, start, tmp_path):
    """A child in a session of its own survives, with all that it has inherited: the server does not wait for it."""
    server = begin(models, start)
    pid, = pids(server, "m")
    child = int(answer(server, f"daemon@{tmp_path}/m"))
    wait.until((tmp_path / "m.daemon").exists, "the child's own session")
    try:
        os.kill(pid, signal.SIGKILL)
        wait.until(lambda: pids(server, "m") not in ([], [pid]), "another worker")
        assert answer(server, "a") == "A" and answer(server, "a", "other") == "A"
    finally:
        os.kill(child, signal.SIGKILL)


def test_threads_left_behind(models, start):
    """A thread that never ends does not keep the process after the unload."""
    server = begin(models, start, mode="explicit")
    with Control(server) as control:
        for _ in range(2):
            control.load("m").ok()
            pid, = pids(server, "m")
            assert answer(server, "thread") == "THREAD"
            control.unload("m").ok()
            wait.until(lambda: not exists(pid), "the end of the worker")


SPEAKING = """
import os
import signal
import sys
import threading

import triton_python_backend_utils as pb_utils

HERE = threading.Barrier(2)
SENDERS = []  # none is dropped before the process ends


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            SENDERS.append(request.get_response_sender())
            threading.Thread(target=self.end, args=(request.get_response_sender(),)).start()

    def end(self, sender):
        if HERE.wait() == 0:
            for i in range(15):
                print("out" if i % 2 else "error", i, file=sys.stdout if i % 2 else sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGUSR2)
"""


CROWDED = """
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender, all_there = request.get_response_sender(), threading.Barrier(9)
            for _ in range(8):
                threading.Thread(target=self.answer, args=(sender, all_there)).start()
            threading.Thread(target=self.end, args=(sender, all_there)).start()

    def answer(self, sender, all_there):
        all_there.wait()
        try:
            for _ in range(20):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([1], np.int32))]))
        except Exception:
            pass  # it has ended

    def end(self, sender, all_there):
        all_there.wait()
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_end_beside_answers_of_other_threads(models, start):
    """The execution is there until they have been sent, or refused."""
    pymodels.add(models, "m", CROWDED, inputs=[repo.tensor("INPUT0", dims=(1,))], outputs=[repo.tensor("OUTPUT0", dims=(1,))],
                 extra="model_transaction_policy { decoupled: true }")
    server = start(models, *pymodels.options())
    before = pids(server, "m")
    for i in range(40):
        with Stream(server.url("grpc")) as stream:
            stream.send(grpcraw.int32("m", [1], id=str(i)))
            answers = stream.end()
        assert not any(a.error_message for a in answers), answers
    assert pids(server, "m") == before


def test_log_line_of_a_crash(models, start):
    """How the process ended, the requests that it had, and its last lines."""
    pymodels.add(models, "m", SPEAKING, inputs=[repo.tensor("INPUT0", dims=(1,))], outputs=[repo.tensor("OUTPUT0", dims=(1,))],
                 extra="model_transaction_policy { decoupled: true }")
    server = start(models, *pymodels.options())
    with Stream(server.url("grpc")) as stream:
        stream.send(*(grpcraw.int32("m", [1], id=id) for id in ("first", "second")))
        errors = [a.error_message for a in stream.take(2)]
        assert all("SIGUSR2" in e for e in errors), errors
    line = wait.until(lambda: [l for l in server.events() if l.get("event") == "worker.end"], "the line")[0]
    assert line["fault"] == "crash" and line["requests"] == 2 and sorted(line["ids"].split(",")) == ["first", "second"]
    how, _, said = line["msg"].partition("; last output: ")
    assert "SIGUSR2" in how
    assert said == " ".join(f'"{"out" if i % 2 else "error"} {i}"' for i in range(5, 15))

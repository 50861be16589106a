"""Workers that die all the time, systems that are short of everything, clients that ask for nonsense: each answer is right,
and nothing is left over. tests/soak does the same for longer."""
import json
import os
import resource
import signal
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from lib import chaos, repo, wait
from lib.held import descriptors, resident, threads
from lib.metrics import value
from lib.rest import Rest, infer_path
from lib.server import BIN
from lib.workers import PROCESS, RESTARTS, add_fault, answer, ask, asked, numbers, pids


def test_kills_under_load(models, start):
    """Two backends at once: 0 lost, 0 wrong, 0 doubled."""
    chaos.fill(models)
    server = start(models)
    with ExitStack() as stack:
        clients = {model: stack.enter_context(chaos.Clients(server, model)) for model in chaos.ADDED}
        killed = {model: chaos.kill_ready(server, model, 15, clients[model]) for model in chaos.ADDED}
    assert not any(c.wrong for c in clients.values()), [c.wrong for c in clients.values()]
    for model in chaos.ADDED:
        wait.equal(lambda: value(server, RESTARTS, model=model), killed[model])
        assert value(server, RESTARTS, model=model, reason="crash") == killed[model]
        assert value(server, "millrace_worker_quarantined_total", model=model) == 0
    wait.equal(lambda: len(chaos.children(server)), 4)


def test_one_poisoned_request_of_32(models, start, tmp_path, hold):
    """Halves of halves until it is alone: 31 right answers and one error."""
    add_fault(models, max_batch_size=32, extra=" dynamic_batching { }")
    server = start(models, f"--worker-directory={tmp_path}", "--worker-hang-timeout=600s")
    first = asked(server, "m", [0], hold.parameters)
    hold.wait_held()
    others = []
    for i in range(1, 33):  # in this order: among the first four, the poison would be five deaths without an answer between them
        others.append(asked(server, "m", [i], {"segv": True} if i == 21 else None))
        wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), i)
    hold.end()
    for i, (thread, replies) in enumerate([first, *others]):
        thread.join()
        if i == 21:
            assert replies[0].status == 500 and "worker process ended while it ran this request" in replies[0].error
        else:
            assert answer(replies[0]) == [i]
    assert value(server, "millrace_worker_quarantined_total", model="m") == 1


def test_abort_before_it_is_ready(models, explicit, tmp_path):
    """Ten loads fail with the way in which the process ended, and leak nothing; the eleventh finds no trace of them."""
    program, gate = tmp_path / "worker", tmp_path / "gate"
    program.write_text(f"#!/bin/sh\n[ -e {gate} ] || kill -ABRT $$\nexec {BIN.with_name('millrace-worker')} \"$@\"\n")
    program.chmod(0o755)
    repo.add(models, "m", parameters=PROCESS)
    server, control = explicit(f"--worker-program={program}")
    before = []
    for _ in range(10):
        assert "SIGABRT" in control.load("m").error
        wait.until(lambda: not chaos.children(server), "the process to be gone")
        before.append(descriptors(server))
    assert before[-1] <= before[1]
    gate.touch()
    control.load("m").ok()
    body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [5]}]}
    with Rest(server.http) as rest:
        assert answer(rest.post(infer_path("m"), json.dumps(body))) == [5]


WRONG = [numbers([1], {"fail_status": "INVALID", "fail_message": "no such number"}), numbers([1], {"wrong_size": True}),
         {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1.5]}]},
         {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 2], "data": [1]}]},
         {"inputs": [{"name": "OTHER", "datatype": "INT32", "shape": [1, 1], "data": [1]}]}, {"inputs": []}]


def test_errors_of_clients_are_no_faults(models, start):
    """Whatever their number, and whichever side detects them: the worker stays, and others are answered."""
    add_fault(models)
    server = start(models)
    before, surprises = pids(server, "m"), []

    def storm():
        with Rest(server.http) as rest:
            for i in range(20):
                for body in WRONG:
                    if rest.post(infer_path("m"), json.dumps(body)).status == 200:
                        surprises.append(body)
                if answer(rest.post(infer_path("m"), json.dumps(numbers([i])))) != [i]:
                    surprises.append(i)

    storms = [threading.Thread(target=storm) for _ in range(4)]
    [t.start() for t in storms]
    [t.join() for t in storms]
    assert not surprises
    assert pids(server, "m") == before
    for name in (RESTARTS, "millrace_worker_requeued_total", "millrace_worker_quarantined_total"):
        assert value(server, name, model="m") == 0


def test_scribbled_memory(models, start):
    """A worker overwrites all that it shares: its request fails once four have done so, its model is served by new workers, and
    other models do not notice. It is no poison, as it may be another request of the model that does this. What a worker says on
    its own socket is its own."""
    add_fault(models, "m", 2)
    add_fault(models, "talks")
    add_fault(models, "other")
    server = start(models)
    before = pids(server, "other")
    for times in (4, 8):
        reply = ask(server, "m", [1], {"attempt": "scribble"})
        assert reply.status == 500 and "worker process ended while it ran this request" in reply.error
        assert value(server, RESTARTS, model="m", reason="damage") >= times
        assert answer(ask(server, "m", [0])) == [0]
    for text in ("it is not tried again", "is refused for 60 seconds"):
        assert text in ask(server, "talks", [1], {"attempt": "message"}).error
    assert value(server, RESTARTS, model="talks", reason="damage") == 2
    for i in range(20):
        assert answer(ask(server, "m", [i])) == [i] and answer(ask(server, "other", [i])) == [i]
    assert pids(server, "other") == before and value(server, RESTARTS, model="other") == 0


def shared_memory(server):
    """Bytes of it that are in memory, over all segments of the server."""
    found = {}
    for fd in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if os.readlink(fd).startswith("/memfd:"):
                stat = fd.stat()
                found[stat.st_ino] = 512 * stat.st_blocks
    return sum(found.values())


def test_memory_that_no_one_gave(models, start, tmp_path, hold):
    """A worker fills 512 MiB of the memory for large outputs: no more than 256 MiB of that stay."""
    add_fault(models)
    server = start(models, f"--worker-directory={tmp_path}", "--worker-hang-timeout=600s")
    before = shared_memory(server)
    assert "possible" in ask(server, "m", [1], {"attempt": "fill"}).error
    thread, replies = asked(server, "m", [7], hold.parameters)  # sweeps come while something runs
    hold.wait_held()
    wait.until(lambda: shared_memory(server) < before + (288 << 20), "the memory to be given back")
    hold.end()
    thread.join()
    assert answer(replies[0]) == [7]
    assert value(server, RESTARTS, model="m") == 0


def test_restarts_leave_nothing_behind(models, start):
    """No descriptor, no thread, no process, and no memory."""
    add_fault(models)
    server = start(models)
    chaos.replace(server, "m", 20)
    before, memory = (descriptors(server), threads(server)), resident(server)
    times = 200 if wait.SLOW == 1 else 40
    chaos.replace(server, "m", times)
    assert value(server, RESTARTS, model="m", reason="crash") == times + 20
    wait.until(lambda: (descriptors(server), threads(server)) <= before, "descriptors and threads as before")
    assert len(chaos.children(server)) == 1
    assert wait.SLOW > 1 or resident(server) < memory + (2 << 20)


def test_full_disk(models, start, small_disk):
    """The log cannot be written and nor can what the workers' folder is for: requests are answered, dead workers replaced."""
    add_fault(models)
    server = start(models, f"--log-file={small_disk}/log", f"--worker-directory={small_disk}")
    with open(small_disk / "rest", "wb", buffering=0) as f, pytest.raises(OSError):
        while True:
            f.write(bytes(4096))
    chaos.replace(server, "m", 5)
    assert answer(ask(server, "m", [7])) == [7]
    assert ask(server, "m", [7], {"abort": True}).status == 500
    assert answer(ask(server, "m", [8])) == [8]


PIDS = Path("/sys/fs/cgroup/pids")


class NoProcess:
    """The system refuses the server another process."""

    def __init__(self, server):
        self.folder = PIDS / f"millrace-test-{server.process.pid}"
        try:
            self.folder.mkdir()
        except OSError:
            pytest.skip("no group of processes can be made here")
        (self.folder / "cgroup.procs").write_text(str(server.process.pid))
        (self.folder / "pids.max").write_text("0")

    def end(self):
        (self.folder / "pids.max").write_text("max")

    def remove(self, server):
        for pid in (self.folder / "cgroup.procs").read_text().split():
            (PIDS / "cgroup.procs").write_text(pid)
        self.folder.rmdir()


class NoDescriptor:
    """The server has as many descriptors as it may have."""

    def __init__(self, server):
        self.pid = server.process.pid
        self.limits = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (4, self.limits[1]))

    def end(self):
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self.limits)

    def remove(self, server):
        pass


@pytest.mark.parametrize("shortage, text", [(NoProcess, "cannot start"), (NoDescriptor, "no socket for a worker process")])
def test_no_other_worker_can_be_started(models, start, shortage, text):
    """Requests get an error, the log has the reason, and the model is back when it is possible again."""
    add_fault(models)
    server = start(models)
    with Rest(server.http) as rest:
        ready = lambda: rest.get("/v2/models/m/ready").status == 200
        post = lambda: rest.post(infer_path("m"), json.dumps(numbers([7])))
        pid, = pids(server, "m")
        assert ready()  # on a connection that stays
        short = shortage(server)
        try:
            os.kill(pid, signal.SIGKILL)
            wait.until(lambda: not ready(), "the model not to be ready")
            reply = wait.until(lambda: (lambda r: r.status == 503 and r)(post()), "requests to be refused")
            assert reply.error
            assert rest.get("/v2/health/live").status == 200
            assert any(text in e["msg"] for e in server.events() if e["event"] == "worker.start")
            short.end()
            wait.until(ready, "the model to be ready")
            assert answer(post()) == [7]
        finally:
            short.end()
            server.stop()
            short.remove(server)

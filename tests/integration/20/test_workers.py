"""Models in worker processes: the same answers, and no loss when workers die. Files and events hold the order: no verdict
depends on timing."""
import ctypes
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.grpcraw import Grpc
from lib.services.health import NOT_SERVING, SERVING, watched
from lib.metrics import value
from lib.rest import Rest, infer_path
from lib.server import BIN
from lib.workers import (PROCESS, RESTARTS, add_fault, answer, ask, asked, group, is_alive, numbers, pids, states, thread_names,
                         workers)


@pytest.fixture
def fault(models):
    return lambda *args, **kw: add_fault(models, *args, **kw)


@pytest.fixture
def start(start, tmp_path):
    """Held executions wait for files of the test."""
    def make(*args, **kw):
        return start(*args, f"--worker-directory={tmp_path}", **kw)
    make.plainly = start
    return make


@pytest.fixture
def plainly(start):
    return start.plainly


# ---- the same answers ----

def test_protocols_and_sizes(models, start):
    """Small and large tensors, binary and JSON, REST and gRPC; strings; several requests in turn."""
    repo.add(models, "m", max_batch_size=8, parameters=PROCESS, extra=group(2), inputs=[repo.tensor("INPUT0", "TYPE_FP32")],
             outputs=[repo.tensor("OUTPUT0", "TYPE_FP32")])
    repo.add(models, "s", parameters=PROCESS, inputs=[repo.tensor("INPUT0", "TYPE_STRING")],
             outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")])
    server = start(models)
    with Rest(server.http) as rest, Grpc(server.url("grpc")) as grpc:
        for count in (1, 1000, 20_000, 1_000_000, 3, 500_000):
            data = np.random.default_rng(count).random((1, count), dtype="f4")
            head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, count],
                                           "parameters": {"binary_data_size": data.nbytes}}],
                               "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
            reply = rest.post(infer_path("m"), head + data.tobytes(), headers={"Inference-Header-Content-Length": str(len(head))})
            assert reply.ok().parts()[1]["OUTPUT0"] == data.tobytes()
            message = grpcraw.request("m", [("INPUT0", "FP32", [1, count], None)], raw=[data.tobytes()])
            assert grpc.infer(message).raw_output_contents[0] == data.tobytes()
        for texts in (["", "a", "b" * 100], ["x" * 300_000] * 3):
            body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [3], "data": texts}]}
            assert answer(rest.post(infer_path("s"), json.dumps(body))) == texts


def test_batches(fault, models, start, hold):
    """What waits while the only worker is held becomes one batch."""
    fault(extra=" dynamic_batching { }")
    server = start(models, "--worker-hang-timeout=600s")
    first = asked(server, "m", [0], hold.parameters)
    hold.wait_held()
    others = [asked(server, "m", [i]) for i in range(1, 4)]
    wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), 3)
    hold.end()
    for i, (thread, replies) in enumerate([first, *others]):
        thread.join()
        assert answer(replies[0]) == [i]
    assert value(server, "nv_inference_exec_count", model="m") == 2


def test_requests_of_a_batch_that_fail_twice(fault, models, start, hold):
    """Each has its error, however often the backend says it."""
    fault(extra=" dynamic_batching { }")
    server = start(models, "--worker-hang-timeout=600s")
    first = asked(server, "m", [0], hold.parameters)
    hold.wait_held()
    others = [asked(server, "m", [i], {"fail_request": 2, "fail_times": 2, "fail_status": "NOT_FOUND"}) for i in range(1, 4)]
    wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), 3)
    hold.end()
    for thread, replies in [first, *others]:
        thread.join()
    assert [replies[0].status for _, replies in [first, *others]] == [200, 404, 404, 404]


def test_failures_are_the_backends(fault, models, start):
    fault()
    server = start(models)
    reply = ask(server, "m", [1], {"fail_status": "NOT_FOUND", "fail_message": "not here"})
    assert reply.status == 404 and reply.error == "not here"
    for broken in ("wrong_size", "wrong_dtype", "wrong_rank", "wrong_rows", "negative_dim", "missing_output", "twice"):
        assert ask(server, "m", [1], {broken: True}).status == 500, broken
    assert answer(ask(server, "m", [5])) == [5]
    assert value(server, RESTARTS, model="m") == 0


def test_model_that_does_not_open(models, explicit):
    repo.add(models, "m", backend="fault", parameters={**PROCESS, "fail_open": "true", "fail_status": "INVALID",
                                                       "fail_message": "no such weights"})
    server, control = explicit()
    assert "no such weights" in control.load("m").error


def test_no_thread_between_loop_and_worker(models, start):
    """A network thread hands small requests over; a model's own thread copies large ones."""
    repo.add(models, "m", parameters=PROCESS)
    server = start(models)
    with Rest(server.http) as rest:
        for count in (1, 10, 1000):
            body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [count], "data": list(range(count))}]}
            assert answer(rest.post(infer_path("m"), json.dumps(body))) == list(range(count))
        assert "run:m" not in thread_names(server)
        body["inputs"][0] |= {"shape": [100_000], "data": list(range(100_000))}
        assert answer(rest.post(infer_path("m"), json.dumps(body))) == list(range(100_000))
        assert "run:m" in thread_names(server)


def test_cancel(fault, models, start, hold):
    """An execution that no worker has taken ends at once; a running one sees the cancel when it polls."""
    fault(max_batch_size=0)
    server = start(models, "--worker-hang-timeout=600s")
    with Grpc(server.url("grpc")) as client:
        first = client.stub.ModelInfer.future(grpcraw.int32("m", [1], parameters=hold.parameters), timeout=wait.PATIENCE)
        hold.wait_held()
        others = [client.stub.ModelInfer.future(grpcraw.int32("m", [i]), timeout=wait.PATIENCE) for i in range(2, 6)]
        pending = lambda: value(server, "nv_inference_pending_request_count", model="m")
        wait.equal(pending, 4)
        for other in others:
            other.cancel()
        wait.equal(lambda: value(server, "nv_inference_request_failure", model="m", reason="CANCELED"), 4)
        assert pending() == 0 and not first.done()
        hold.end()
        assert np.frombuffer(first.result().raw_output_contents[0], "<i4").tolist() == [1]
    assert value(server, "nv_inference_exec_count", model="m") == 1


def test_the_backend_is_told_of_a_cancel(fault, models, start, tmp_path):
    """It ends the execution, and its only worker is free for others."""
    trace = tmp_path / "trace"
    fault(max_batch_size=0, trace=trace)
    server = start(models)
    with Grpc(server.url("grpc")) as client:
        first = client.stub.ModelInfer.future(grpcraw.int32("m", [1], parameters={"async": 1, "until_cancelled": "true"}),
                                              timeout=wait.PATIENCE)
        wait.until(lambda: trace.exists() and trace.read_text(), "the execution to run")
        first.cancel()
        assert np.frombuffer(client.infer(grpcraw.int32("m", [2])).raw_output_contents[0], "<i4").tolist() == [2]
    assert sum(value(server, RESTARTS, model="m", reason=r) for r in ("crash", "hang")) == 0


# ---- placement ----

@pytest.mark.parametrize("option, parameter, placement", [
    ([], None, "thread"), ([], "process", "process"), (["--backend-placement=identity=process"], None, "process"),
    (["--backend-placement=identity=process"], "thread", "thread")])
def test_placement(models, start, option, parameter, placement):
    repo.add(models, "m", parameters={"execution_placement": parameter} if parameter else {})
    server = start(models, *option)
    with Rest(server.http) as rest:
        answer = rest.get("/v2/models/m/workers").ok().json()
        assert answer["placement"] == placement and len(answer["workers"]) == (placement == "process")
        of_version = rest.get("/v2/models/m/versions/1/workers").ok().json()
        assert [w["pid"] for w in of_version["workers"]] == [w["pid"] for w in answer["workers"]]
        assert rest.get("/v2/models/none/workers").status == 404
    told = subprocess.run([BIN, "model", "workers", "m", "-u", server.url()], capture_output=True, text=True)
    assert told.returncode == 0 and len(told.stdout.splitlines()) == (placement == "process")
    assert ("m runs in threads of the server" in told.stderr) == (placement == "thread")


@pytest.mark.parametrize("extra, parameter, text", [
    ("", "elsewhere", "allowed are thread and process"),
    ("instance_group [ { count: 65 kind: KIND_CPU } ]", "process", "at most 64 instances")])
def test_placement_that_is_not_possible(models, explicit, extra, parameter, text):
    repo.add(models, "m", backend="fault", extra=extra, parameters={"execution_placement": parameter})
    server, control = explicit()
    assert text in control.load("m").error


# ---- workers that die ----

def test_killed_in_the_middle(fault, models, start, hold):
    """The execution is given to the next worker, and answered."""
    fault()
    server = start(models, "--worker-hang-timeout=600s")
    thread, replies = asked(server, "m", [7], hold.parameters)
    for _ in range(3):
        hold.wait_held()
        hold.path.with_suffix(".held").unlink()
        pid, = pids(server, "m")
        os.kill(pid, signal.SIGKILL)
        wait.until(lambda: pids(server, "m") not in ([], [pid]), "another worker")
    hold.wait_held()
    hold.end()
    thread.join()
    assert answer(replies[0]) == [7]
    assert value(server, RESTARTS, model="m", reason="crash") == 3
    assert value(server, "millrace_worker_requeued_total", model="m") == 3


def test_killed_again_and_again_under_load(models, start):
    """0 lost, 0 wrong, 0 doubled: each client knows what it asked."""
    repo.add(models, "m", max_batch_size=8, parameters=PROCESS, extra=group(2))
    server = start(models)
    kills, wrong, answered = [0], [], [0] * 4

    def client(n):
        with Rest(server.http, timeout=300) as rest:
            i = 0
            while kills[0] < 60 and not wrong:
                i += 1
                values = [n, i, n * i]
                reply = rest.post(infer_path("m"), json.dumps(numbers(values)))
                if reply.status != 200 or answer(reply) != values:
                    wrong.append((values, reply.status, reply.body))
                answered[n] += 1

    threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    before = set()
    while kills[0] < 60 and not wrong:
        there = set(pids(server, "m")) - before
        for pid in there:
            os.kill(pid, signal.SIGKILL)
            before.add(pid)
            kills[0] += 1
    [t.join() for t in threads]
    assert not wrong, wrong
    assert min(answered) > 0
    wait.equal(lambda: value(server, RESTARTS, model="m"), kills[0])
    wait.equal(lambda: len(pids(server, "m")), 2)


@pytest.mark.parametrize("way", ["segv", "abort"])
def test_one_poisoned_request_in_a_batch(fault, models, start, hold, way):
    """All others of its batch are answered; it gets one clear error, and the server keeps serving."""
    fault(max_batch_size=8, extra=" dynamic_batching { }")
    server = start(models, "--worker-hang-timeout=600s")
    first = asked(server, "m", [0], hold.parameters)
    hold.wait_held()
    others = [asked(server, "m", [i], {way: True} if i == 3 else None) for i in range(1, 8)]
    wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), 7)
    hold.end()
    for i, (thread, replies) in enumerate([first, *others]):
        thread.join()
        if i == 3:
            assert replies[0].status == 500 and "worker process ended while it ran this request" in replies[0].error
        else:
            assert answer(replies[0]) == [i]
    assert answer(ask(server, "m", [9])) == [9]
    assert value(server, "millrace_worker_quarantined_total", model="m") == 1


def test_exit_codes(fault, models, start):
    """An end without a signal is a fault as well, whatever its code."""
    fault()
    server = start(models)
    assert ask(server, "m", [1], {"exit": 0}).status == 500
    assert ask(server, "m", [1], {"exit": 3}).status == 500
    assert answer(ask(server, "m", [9])) == [9]
    assert "exit code 3" in workers(server, "m")[0]["last_fault"]


def stop(server, model):
    pid, = pids(server, model)
    os.kill(pid, signal.SIGSTOP)
    wait.until(lambda: set(states(pid)) == {"T"}, "all threads to stand still")
    return pid


def test_stopped_worker_is_replaced(fault, models, start, hold):
    """What hangs is known by what executions took before. One that has room for what waits hangs although what it runs ends later;
    one that has none waits for that, longer than usual if need be."""
    fault()
    fault("later", **{"async": "1"})
    fault("several", max_pending="2", **{"async": "1"})
    server = start(models)
    for i in range(120):
        assert answer(ask(server, "m", [i])) == answer(ask(server, "later", [i])) == [i]
    assert answer(ask(server, "later", [7], {"delay_ms": 1000})) == [7]
    assert value(server, RESTARTS, model="later", reason="hang") == 0
    pid = stop(server, "m")
    assert answer(ask(server, "m", [7])) == [7]
    assert value(server, RESTARTS, model="m", reason="hang") == 1
    line, = wait.until(lambda: [l for l in server.events() if l.get("event") == "worker.end"], "the line")
    assert workers(server, "m")[0]["last_fault"] in line["msg"]
    wait.until(lambda: not is_alive(pid), "the stopped one to be gone")
    thread, replies = asked(server, "several", [8], hold.parameters)
    hold.wait_held()
    stop(server, "several")
    assert answer(ask(server, "several", [7])) == [7]
    hold.end()
    thread.join()
    assert answer(replies[0]) == [8] and "does not take what waits" in workers(server, "several")[0]["last_fault"]


def test_endless_loop(fault, models, start):
    """It hangs in each worker; its client has an error, the others have answers. So it is on a thread of the backend's own, which
    may run it alone or beside others."""
    fault()
    fault("one", **{"async": "1"})
    fault("several", max_pending="2", **{"async": "1"})
    server = start(models, "--worker-hang-timeout=1s")
    asking = {name: asked(server, name, [1], {"hang": True}) for name in ("m", "one", "several")}
    for name, (thread, replies) in asking.items():
        thread.join()
        assert replies[0].status == 500 and "hang: an execution takes longer than 1000 ms (--worker-hang-timeout)" in replies[0].error
        assert answer(ask(server, name, [2])) == [2]
        # A process that takes a second to start hangs as well, so that the metric may say more.
        assert value(server, RESTARTS, model=name, reason="hang") >= 2
    assert sum("an execution takes longer" in l["msg"] for l in server.events() if l.get("event") == "worker.end") == 6


# ---- confinement ----

def attempt(server, what):
    reply = ask(server, "m", [1], {"attempt": what})
    assert reply.status == 400, reply
    return reply.error


# A sanitizer build has no seccomp.
CONFINED = [*(pytest.param("seccomp", what, marks=pytest.mark.release) for what in ("socket", "exec", "fork", "ptrace", "signal")),
            ("limits", "files"), ("landlock", "read:{models}/other/config.pbtxt"), ("landlock", "write:{models}/m/new"),
            ("landlock", "write:{models}/../new"), ("landlock", "server_memory")]


@pytest.mark.few(5)
@pytest.mark.parametrize("step, what", CONFINED)
def test_what_a_worker_cannot_do(fault, models, plainly, step, what):
    """Tried by code in the worker; the same is possible without the step."""
    if step != "limits" and step not in subprocess.run([BIN, "doctor"], capture_output=True, text=True).stdout:
        pytest.skip(f"no {step} here")  # the kernel lacks it, or a sanitizer starts processes of its own
    for name in ("m", "other"):
        fault(name)
    what = what.format(models=models)
    server = plainly(models, "--worker-confinement=all")
    assert "refused" in attempt(server, what)
    assert answer(ask(server, "m", [5])) == [5]
    others = ",".join({"limits", "landlock", "seccomp"} - {step})
    free = plainly(models, f"--worker-confinement={others}")
    # A process may also be short of rights that have nothing to do with us.
    if what in ("ptrace", "server_memory"):
        return
    if what != "exec":
        assert "possible" in attempt(free, what)
    else:
        assert ask(free, "m", [1], {"attempt": what}).status == 500  # it became another program
        assert value(free, RESTARTS, model="m") > 0


LANDLOCK_CREATE_RULESET, ASK_VERSION = 444, 1


def kernel_has_landlock():
    return ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, ASK_VERSION) >= 1


def test_doctor_says_what_confines_workers(fault, models, plainly):
    """As the kernel says it, and as the system shows it of a worker."""
    done = subprocess.run([BIN, "doctor", "--json"], capture_output=True, text=True)
    finding, = (f for f in json.loads(done.stdout) if f["name"] == "workers")
    text, _, rest = finding["text"].removeprefix("worker processes can be confined by ").partition(", not by all that millrace has")
    steps = text.split(", ")
    assert rest == "" and steps[0] == "limits" and set(steps) <= {"limits", "landlock", "seccomp"}
    is_whole = len(steps) == 3
    assert (finding["level"] == "ok") == is_whole == ("not by all" not in finding["text"])
    assert ("the rest needs another kernel" in (finding.get("advice") or "")) != is_whole
    assert ("landlock" in steps) == kernel_has_landlock()
    fault()
    pid, = pids(plainly(models, "--worker-confinement=all"), "m")
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    if "Seccomp:\t0" in Path("/proc/self/status").read_text():  # in a container all processes may have filters
        assert (status["Seccomp"] == "2") == ("seccomp" in steps)


def test_temporary_folder(fault, models, plainly, tmp_path):
    """Each worker has one of its own, which its next process finds empty, and which goes with the model."""
    if "landlock" not in subprocess.run([BIN, "doctor"], capture_output=True, text=True).stdout:
        pytest.skip("no landlock here")
    for name in ("m", "other"):
        fault(name)
    folder = tmp_path / "temporary"
    folder.mkdir()
    server = plainly(models, "--worker-confinement=landlock", mode="explicit", env={"TMPDIR": str(folder)})
    left = lambda: sorted(str(p.relative_to(base))[:8] for p in base.rglob("*"))
    with Control(server) as control:
        control.load("m").ok()
        base, = folder.iterdir()
        control.load("other").ok()
        assert left() == ["0", "0/0", "1", "1/0"]
        for _ in range(2):
            assert "possible" in attempt(server, "temporary")
        for path in ("1/0/new", "0/new", "new"):
            assert "refused" in attempt(server, f"write:{base}/{path}")
        assert left() == ["0", "0/0", "0/0/left", "0/0/left", "1", "1/0"]
        before = pids(server, "m")
        os.kill(before[0], signal.SIGKILL)
        wait.until(lambda: pids(server, "m") not in ([], before), "the next process")
        assert left() == ["0", "0/0", "1", "1/0"]
        assert "possible" in attempt(server, "temporary")
        control.unload("m").ok()
        wait.equal(left, ["1", "1/0"])
    server.stop()
    assert not list(folder.iterdir())


def test_temporary_folders_of_killed_servers(fault, models, plainly, tmp_path):
    """The next server removes them with what is in them. Those of servers that run, and other folders, stay."""
    if "landlock" not in subprocess.run([BIN, "doctor"], capture_output=True, text=True).stdout:
        pytest.skip("no landlock here")
    fault()
    folder = tmp_path / "temporary"
    (folder / "millrace-other").mkdir(parents=True)
    names = lambda: {p.name for p in folder.iterdir()}
    begin = lambda: plainly(models, "--worker-confinement=landlock", env={"TMPDIR": str(folder)})
    killed = begin()
    killed_has, = names() - {"millrace-other"}
    running = begin()
    running_has, = names() - {"millrace-other", killed_has}
    assert "possible" in attempt(killed, "temporary")
    killed.process.kill()
    killed.process.wait()
    killed.checked = True
    third = begin()
    assert killed_has not in names() and {"millrace-other", running_has} < names()
    assert "possible" in attempt(running, "temporary")
    for server in (running, third):
        server.stop()
    assert names() == {"millrace-other"}


@pytest.mark.release_only("a sanitizer's own memory")
def test_memory_limit(fault, models, plainly):
    fault()
    server = plainly(models, "--worker-memory=256MiB")
    assert "refused" in attempt(server, "memory")
    assert "possible" in attempt(plainly(models), "memory")


@pytest.mark.parametrize("option, text", [("--worker-confinement=seccomp,walls", "limits, landlock and seccomp"),
                                          ("--worker-directory=/nonexistent", "/nonexistent: No such file or directory")])
def test_confinement_that_is_not_there(models, plainly, option, text):
    server = plainly(models, option, ready=False)
    assert server.wait_exit() == 2 and text in server.err()
    server.checked = True


# ---- cgroups ----

@pytest.fixture
def cgroup():
    """A folder of cgroup v2 below the test's own, where the machine lets its user make one."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if line.split()[2] == "cgroup2"]
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    folder = Path(mounts[0] + own[0]) / f"test-{os.getpid()}" if mounts and own else None
    try:
        if not folder or not os.access(folder.parent / "cgroup.procs", os.W_OK):
            pytest.skip("the machine has no cgroup v2 that this user may write")
        folder.mkdir()
    except OSError as e:
        pytest.skip(f"the machine does not let this user make a cgroup: {e}")
    yield folder
    for left in folders(folder):
        wait.until(lambda: removed(folder / left), "a cgroup to be empty")
    folder.rmdir()


def folders(cgroup):
    return sorted(p.name for p in cgroup.iterdir() if p.is_dir())


def removed(folder):
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def cgroup_of(pid):
    return [line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::")][0]


def test_workers_in_cgroups(cgroup, fault, models, plainly):
    """Each process in its own, which goes with it; what the folder cannot limit is logged."""
    fault(count=2)
    server = plainly(models, f"--worker-cgroup={cgroup}", "--worker-cpus=4", "--worker-memory=8GiB",
                     "--worker-confinement=none")
    name = f"millrace-{server.process.pid}-"
    assert folders(cgroup) == [f"{name}1", f"{name}2"]
    before = pids(server, "m")
    assert sorted(cgroup_of(p).rsplit("/", 1)[1] for p in before) == folders(cgroup)
    lacks = [c for c in ("memory", "pids", "cpu") if c not in (cgroup / "cgroup.controllers").read_text().split()]
    lines = [l["msg"] for l in server.events() if l.get("event") == "worker.cgroup"]
    assert len(lines) == bool(lacks) and all(line.endswith(": " + " ".join(lacks)) for line in lines)
    os.kill(before[0], signal.SIGKILL)
    wait.until(lambda: len(set(pids(server, "m")) - {before[0]}) == 2, "the next process")
    assert answer(ask(server, "m", [5])) == [5]
    now = sorted(cgroup_of(p).rsplit("/", 1)[1] for p in pids(server, "m"))
    assert f"{name}3" in now and len(now) == 2
    server.stop()
    assert folders(cgroup) == []


def test_cgroups_of_a_killed_server(cgroup, fault, models, plainly):
    """The next server removes them."""
    fault()
    server = plainly(models, f"--worker-cgroup={cgroup}")
    server.process.kill()
    server.process.wait()
    server.checked = True
    assert folders(cgroup) == [f"millrace-{server.process.pid}-1"]
    second = plainly(models, f"--worker-cgroup={cgroup}")
    assert folders(cgroup) == [f"millrace-{second.process.pid}-1"]
    second.stop()
    assert folders(cgroup) == []


@pytest.mark.parametrize("args, text", [
    (["--worker-cgroup={tmp_path}"], "--worker-cgroup: {tmp_path} cannot hold cgroups: it is not a folder of a cgroup v2 file system"),
    (["--worker-cgroup={tmp_path}/none"], "{tmp_path}/none cannot hold cgroups: No such file"),
    (["--worker-cpus=2"], "--worker-cpus needs --worker-cgroup"),
    (["--worker-cgroup={tmp_path}", "--worker-cpus=some"], "--worker-cpus: 'some': a number from 0.01 to 4096")])
def test_cgroup_that_cannot_be_used(models, plainly, tmp_path, args, text):
    server = plainly(models, *(a.format(tmp_path=tmp_path) for a in args), ready=False)
    assert server.wait_exit() == 2 and text.format(tmp_path=tmp_path) in server.err()
    server.checked = True


# ---- readiness ----

@pytest.mark.parametrize("way", ["they end", "they cannot be started"])
def test_readiness_without_workers(models, start, tmp_path, way):
    """A model whose workers do not come back is not ready, and nor is the server; requests have an error, not a wait."""
    program, gate = tmp_path / "worker", tmp_path / "gate"
    real = BIN.with_name("millrace-worker")
    program.write_text(f"#!/bin/sh\n[ -e {gate} ] && exec {real} \"$@\"\nexit 3\n")
    program.chmod(0o755)
    gate.touch()
    repo.add(models, "m", parameters=PROCESS)
    server = start(models, f"--worker-program={program}")
    with Rest(server.http) as rest, watched(server) as heard, watched(server, "m") as model_heard:
        gate.unlink() if way == "they end" else program.rename(tmp_path / "away")
        os.kill(pids(server, "m")[0], signal.SIGKILL)
        wait.until(lambda: rest.get("/v2/health/ready").status != 200, "the server not to be ready")
        assert rest.get("/v2/models/m/ready").status == 400
        for of_it in (heard, model_heard):
            wait.equal(lambda: of_it, [SERVING, NOT_SERVING])
        body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [1]}]})
        wait.until(lambda: rest.post(infer_path("m"), body).status == 503, "requests to be refused")
        assert rest.get("/v2/health/live").status == 200
        gate.touch() if way == "they end" else (tmp_path / "away").rename(program)
        wait.until(lambda: rest.get("/v2/health/ready").status == 200, "the server to be ready")
        assert rest.get("/v2/models/m/ready").status == 200
        for of_it in (heard, model_heard):
            wait.equal(lambda: of_it, [SERVING, NOT_SERVING, SERVING])
        assert answer(rest.post(infer_path("m"), body)) == [1]


# ---- ends ----

def test_no_worker_outlives_the_server(fault, models, start):
    fault(count=3)
    server = start(models)
    there = pids(server, "m")
    assert len(there) == 3
    server.process.kill()
    server.process.wait()
    server.checked = True
    wait.until(lambda: not any(is_alive(p) for p in there), "the workers to be gone")


def test_update(models, explicit):
    """New workers are ready before the switch, old ones go after it."""
    repo.add(models, "m", parameters=PROCESS)
    server, control = explicit()
    control.load("m").ok()
    old = pids(server, "m")
    repo.add(models, "m", parameters=PROCESS, versions=(1, 2))
    control.load("m").ok()
    new = pids(server, "m")
    assert old and new and old != new
    wait.until(lambda: not any(is_alive(p) for p in old), "the old worker to be gone")
    control.unload("m").ok()
    wait.until(lambda: not any(is_alive(p) for p in new), "the new worker to be gone")


def test_output_of_a_worker_is_logged(fault, models, start):
    """The end of a worker is one line with how, and which requests it had."""
    fault()
    server = start(models)
    with Rest(server.http) as rest:
        rest.post(infer_path("m"), json.dumps({"id": "the-one", **numbers([1], {"abort": True})}))
    line = wait.until(lambda: [l for l in server.events() if l.get("event") == "worker.end"], "the line")[0]
    assert line["model"] == "m" and line["ids"] == "the-one" and "SIGABRT" in line["msg"]


# ---- the way there and back ----

def test_no_thread_of_the_model(models, start):
    """Requests go from the network's threads to the workers, alone and in batches that do not wait."""
    repo.add(models, "plain", parameters=PROCESS)
    repo.add(models, "batches", max_batch_size=8, parameters=PROCESS, extra="dynamic_batching { }")
    server = start(models)
    with Rest(server.http) as rest:
        for model in ("plain", "batches"):
            for i in range(50):
                shape = [1, 4] if model == "batches" else [4]
                body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": shape, "data": [i] * 4}]}
                assert rest.post(infer_path(model), body).ok().json()["outputs"][0]["data"] == [i] * 4
    names = thread_names(server)
    assert "sentinel" in names and not [n for n in names if n.startswith("run:")], names

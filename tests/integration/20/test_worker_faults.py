"""Decisions about workers that die, hang or report a fault. Files and events hold the order: no verdict depends on
timing."""
import json
import os
import signal
import subprocess

import pytest

from lib import onnxgen, repo, wait
from lib.control import Control
from lib.faults import PROGRAM, Faults
from lib.metrics import samples, value
from lib.rest import Rest, infer_path
from lib.server import BIN
from lib.workers import PROCESS, RESTARTS, add_fault, answer, ask, asked, group, is_alive, numbers, pids, report, states, workers


@pytest.fixture
def fault(models):
    return lambda *args, **kw: add_fault(models, *args, **kw)


@pytest.fixture
def start(start, tmp_path):
    """Held executions and loads wait for files of the test."""
    return lambda *args, **kw: start(*args, f"--worker-directory={tmp_path}", **kw)


WARM_UP = ' model_warmup { name: "w" batch_size: 1 inputs { key: "INPUT0" value { data_type: TYPE_INT32 dims: [1] zero_data: true } } }'
NOT_HELD = {"hold_file": ""}  # a request that the model's hold does not stop


# ---- hanging ----

def test_hangs_while_it_loads_again(fault, models, start, hold):
    """The replacement of a dead process does not make progress with the model: it is replaced in turn, until one does."""
    fault(**hold.loading)
    hold.end()
    server = start(models, "--worker-hang-timeout=1s")
    pid, = pids(server, "m")
    hold.path.touch()
    os.kill(pid, signal.SIGKILL)
    wait.until(lambda: value(server, RESTARTS, model="m", reason="hang") >= 1, "a hanging load to be ended")
    hold.end()
    assert answer(ask(server, "m", [7])) == [7]
    assert value(server, RESTARTS, model="m", reason="crash") == 1


def test_update_whose_warm_up_hangs(fault, models, explicit, hold):
    """It fails and says why. The version that serves is ready all the time."""
    fault(extra=WARM_UP, **hold.parameters)
    hold.end()
    server, control = explicit("--worker-hang-timeout=1s")
    control.load("m").ok()
    hold.path.touch()
    fault(extra=WARM_UP, changed="1", **hold.parameters)
    assert "(--worker-hang-timeout)" in control.load("m").error
    assert not [line for line in server.events() if line.get("event") == "worker.none"]
    assert answer(ask(server, "m", [7], NOT_HELD)) == [7]


# ---- killed from outside ----

def test_killed_again_and_again_with_one_request(fault, models, start, hold):
    """It is tried up to twenty times, and is no poison: sent again, it is run."""
    fault()
    server = start(models, "--worker-hang-timeout=600s")
    thread, replies = asked(server, "m", [7], hold.parameters)
    for _ in range(20):
        hold.wait_held()
        hold.path.with_suffix(".held").unlink()
        pid, = wait.until(lambda: pids(server, "m"), "the worker to be known as ready")  # it runs what waits at once
        os.kill(pid, signal.SIGKILL)
    thread.join()
    assert replies[0].status == 500 and "worker process ended while it ran this request" in replies[0].error
    assert value(server, "millrace_worker_requeued_total", model="m") == 19
    assert value(server, RESTARTS, model="m", reason="crash") == 20
    hold.end()
    assert answer(ask(server, "m", [7], hold.parameters)) == [7]


# ---- standby ----

def test_standby(fault, models, start, hold):
    """It has loaded the model when a worker dies: requests have answers although no process can load now."""
    fault(worker_standby="1", **hold.loading)
    hold.end()
    server = start(models, "--worker-hang-timeout=600s")
    of = lambda: sorted(w["state"] for w in workers(server, "m"))
    wait.equal(of, ["ready", "standby"])
    for _ in range(2):
        hold.path.touch()
        before = pids(server, "m")
        os.kill(before[0], signal.SIGKILL)
        assert answer(ask(server, "m", [1])) == [1]
        wait.equal(of, ["ready", "starting"])
        assert pids(server, "m") != before
        hold.end()
        wait.equal(of, ["ready", "standby"])
    assert value(server, RESTARTS, model="m", reason="crash") == 2
    assert report(server, "m")["replacement"]["crash"]["count"] == 2


def test_standby_hangs_while_it_loads(fault, models, start, hold):
    """No loader waits for it. It is replaced as often as it takes, and meanwhile the other worker answers."""
    fault(worker_standby="1", **hold.loading)
    hold.end()
    server = start(models, "--worker-hang-timeout=1s")
    pid = wait.until(lambda: [w["pid"] for w in workers(server, "m") if w["state"] == "standby"], "the standby worker")[0]
    hold.path.touch()
    os.kill(pid, signal.SIGKILL)
    wait.until(lambda: value(server, RESTARTS, model="m", reason="hang") >= 1, "a hanging load to be ended")
    assert answer(ask(server, "m", [1])) == [1]
    hold.end()
    wait.equal(lambda: sorted(w["state"] for w in workers(server, "m")), ["ready", "standby"])


def standby_held(server, hold):
    """The process of a standby worker that a held execution keeps from the end of its warm-up."""
    of = lambda state: [w["pid"] for w in workers(server, "m") if w["state"] == state]
    old, = wait.until(lambda: of("standby"), "the standby worker")
    hold.path.touch()
    hold.path.with_suffix(".held").unlink()
    os.kill(old, signal.SIGKILL)
    hold.wait_held()
    pid, = of("starting")
    assert pid != old
    return pid


def test_standby_hangs_while_it_warms_up(fault, models, start, hold):
    """It is replaced as often as it takes; the other worker answers, and a death meanwhile does not end the model."""
    fault(worker_standby="1", extra=WARM_UP, **hold.parameters)
    hold.end()
    server = start(models, "--worker-hang-timeout=1s")
    standby_held(server, hold)
    wait.until(lambda: value(server, RESTARTS, model="m", reason="hang") >= 2, "two hanging warm-ups to be ended")
    assert answer(ask(server, "m", [1], NOT_HELD)) == [1]
    hold.end()
    wait.equal(lambda: sorted(w["state"] for w in workers(server, "m")), ["ready", "standby"])


def test_standby_is_needed_while_it_warms_up(fault, models, start, hold):
    """It takes the place at once, and requests as soon as it is warm."""
    fault(worker_standby="1", extra=WARM_UP, **hold.parameters)
    hold.end()
    server = start(models, "--worker-hang-timeout=600s")
    standby = standby_held(server, hold)
    dead, = pids(server, "m")
    os.kill(dead, signal.SIGKILL)
    wait.until(lambda: dead not in [w["pid"] for w in workers(server, "m")], "the death to be known")
    thread, replies = asked(server, "m", [7], NOT_HELD)
    assert pids(server, "m") == []
    hold.end()
    thread.join()
    assert answer(replies[0]) == [7]
    wait.equal(lambda: sorted(w["state"] for w in workers(server, "m")), ["ready", "standby"])
    assert pids(server, "m") == [standby]


def test_standby_that_has_died_often(fault, models, start, hold):
    """Its deaths say nothing of the other worker: when it is needed, requests wait for it."""
    fault(worker_standby="1", extra=WARM_UP, **hold.parameters)
    hold.end()
    server = start(models, "--worker-hang-timeout=600s")
    of = lambda: [w["pid"] for w in workers(server, "m") if w["state"] == "standby"]
    for _ in range(5):
        old, = wait.until(of, "the standby worker")
        os.kill(old, signal.SIGABRT)
        wait.until(lambda: old not in of(), "its end to be known")
    standby_held(server, hold)
    dead, = pids(server, "m")
    os.kill(dead, signal.SIGKILL)
    wait.until(lambda: dead not in [w["pid"] for w in workers(server, "m")], "the death to be known")
    thread, replies = asked(server, "m", [7], NOT_HELD)
    thread.join(2)  # an error would come at once
    hold.end()
    thread.join()
    assert answer(replies[0]) == [7]


def test_standby_that_was_stopped(fault, models, start):
    """It goes on when it is needed."""
    fault(worker_standby="1")
    server = start(models, "--worker-hang-timeout=600s")
    standby, = wait.until(lambda: [w["pid"] for w in workers(server, "m") if w["state"] == "standby"], "the standby worker")
    os.kill(standby, signal.SIGSTOP)
    wait.until(lambda: set(states(standby)) == {"T"}, "all threads to stand still")
    os.kill(pids(server, "m")[0], signal.SIGKILL)
    assert answer(ask(server, "m", [7])) == [7]
    assert pids(server, "m") == [standby]


def test_unload_while_a_standby_warms_up(fault, models, start, hold):
    fault(worker_standby="1", extra=WARM_UP, **hold.parameters)
    hold.end()
    server = start(models, "--worker-hang-timeout=600s", mode="explicit")
    with Control(server) as control:
        control.load("m").ok()
        standby = standby_held(server, hold)
        control.unload("m").ok()
        wait.until(lambda: not is_alive(standby), "its end")
        hold.end()
        control.load("m").ok()
        assert answer(ask(server, "m", [1])) == [1]


@pytest.mark.parametrize("standby, extra, text", [
    ("-1", "", "allowed are 0 to 63"), ("64", "", "allowed are 0 to 63"), ("x", "", "allowed are 0 to 63"),
    ("1", " sequence_batching { }", "has no substitute")])
def test_standby_that_is_not_possible(models, explicit, standby, extra, text):
    add_fault(models, extra=extra, worker_standby=standby)
    server, control = explicit()
    assert text in control.load("m").error


# ---- warm-ups ----

def test_made_up_request_that_crashes(fault, models, start):
    """The load goes on, and no later process runs it."""
    fault(warmup="true", abort="true")
    server = start(models)
    fine = {"abort": False}
    assert answer(ask(server, "m", [7], fine)) == [7]
    os.kill(pids(server, "m")[0], signal.SIGKILL)
    assert answer(ask(server, "m", [8], fine)) == [8]
    assert value(server, RESTARTS, model="m", reason="crash") == 3


# ---- quarantine ----

@pytest.mark.parametrize("batching", ["", " dynamic_batching { }"])
def test_the_same_poison_again(fault, models, start, tmp_path, batching):
    """It costs no worker, whatever its id, until its time is over. Other requests have their answers."""
    fault(extra=batching)
    faults = Faults(tmp_path)
    server = start(models, "--loop-threads=1", env=faults.env, program=PROGRAM)
    poison = lambda n=1: ask(server, "m", [n], {"abort": True})
    died = lambda: value(server, RESTARTS, model="m", reason="crash")
    assert poison().status == 500
    assert died() == 2 and report(server, "m")["quarantine"] == {"held": 1, "refused": 0}
    for _ in range(5):
        reply = poison()
        assert reply.status == 500 and "is refused for 60 seconds" in reply.error
        assert answer(ask(server, "m", [1])) == [1]
    assert died() == 2
    assert value(server, "millrace_worker_refused_total", model="m") == 5
    assert value(server, "millrace_worker_quarantine", model="m") == 1
    assert "worker process ended" in poison(2).error
    assert died() == 4 and report(server, "m")["quarantine"] == {"held": 2, "refused": 5}
    faults.later(server, 61)
    wait.equal(lambda: value(server, "millrace_worker_quarantine", model="m"), 0)
    assert "worker process ended" in poison().error
    assert died() == 6


@pytest.mark.more
def test_endless_loop_is_found_by_what_is_usual(fault, models, start):
    """A process that computes for longer than a new one takes is replaced. Then the execution has the whole time, in which
    it may end. A first execution has that time, too."""
    fault()
    server = start(models, "--worker-hang-timeout=5s")
    ends = lambda: [line["msg"] for line in server.events() if line.get("event") == "worker.end"]
    loop = {"spin_ms": 3600000}
    assert "5000 ms (--worker-hang-timeout)" in ask(server, "m", [1], loop).error  # nothing is known
    with Rest(server.http, timeout=300) as rest:
        for i in range(150):
            assert answer(rest.post(infer_path("m"), json.dumps(numbers([i])))) == [i]
    before = len(wait.until(lambda: len(ends()) == 2 and ends(), "two lines"))
    assert "5000 ms (--worker-hang-timeout)" in ask(server, "m", [2], loop).error
    first, second = wait.until(lambda: len(ends()) == before + 2 and ends()[before:], "two more")
    assert "computes for more than" in first and "(--worker-hang-timeout)" in second


# ---- reports ----

def test_times_of_faults(fault, models, start):
    """How long a fault was not known and how long there was no successor, by reason."""
    fault()
    server = start(models, "--worker-hang-timeout=5s")
    assert report(server, "m")["detection"] == report(server, "m")["replacement"] == {}
    for fault_of_it in ({"abort": True}, {"hang": True}, {"exit": 3}):
        ask(server, "m", [1], fault_of_it)
        assert answer(ask(server, "m", [1])) == [1]
    counts = lambda: [{reason: of["count"] for reason, of in report(server, "m")[kind].items()} for kind in ("detection", "replacement")]
    wait.equal(counts, [{"crash": 2, "hang": 2, "sick": 2}] * 2)
    told = report(server, "m")
    for kind in ("detection", "replacement"):
        name = f"millrace_worker_{kind}_seconds"
        for reason, of in told[kind].items():
            of_it = {"model": "m", "reason": reason}
            assert 0 < of["mean_ns"] <= of["max_ns"]
            assert value(server, name + "_count", **of_it) == value(server, name + "_bucket", **of_it, le="+Inf") == 2
            assert value(server, name + "_sum", **of_it) == pytest.approx(2 * of["mean_ns"] / 1e9, abs=1e-8)
    assert told["detection"]["hang"]["mean_ns"] > 5e9
    table = subprocess.run([BIN, "model", "workers", "m", "-u", server.url(), "--output=table"], capture_output=True, text=True)
    lines = table.stdout.splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["FAULT", "crash", "hang", "sick"], table


def test_what_each_worker_takes(fault, models, start):
    fault(count=2)
    repo.add(models, "in_thread")
    server = start(models)
    for i in range(2):
        resident = value(server, "millrace_worker_resident_bytes", model="m", version="1", worker=str(i))
        assert 1 << 20 < resident < 1 << 40
        assert value(server, "millrace_worker_cpu_seconds_total", model="m", version="1", worker=str(i)) >= 0
    assert len(samples(server, "millrace_worker_resident_bytes")) == len(samples(server, "millrace_worker_cpu_seconds_total")) == 2
    before = pids(server, "m")
    os.kill(before[0], signal.SIGKILL)
    wait.until(lambda: before[0] not in pids(server, "m"), "the end of the worker")
    wait.equal(lambda: len(samples(server, "millrace_worker_resident_bytes")), 2)


# ---- sick ----

def batch(server, hold, count):
    """One request runs alone until `count` others wait, which become one batch or more. Their answers."""
    hold.path.touch()
    first = asked(server, "m", [0], hold.parameters)
    hold.wait_held()
    hold.path.with_suffix(".held").unlink()
    others = [asked(server, "m", [i]) for i in range(1, count + 1)]
    wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), count)
    hold.end()
    for thread, _ in [first, *others]:
        thread.join()
    return [answer(replies[0]) for _, replies in [first, *others]]


def test_batches_that_take_too_much_memory(fault, models, start, hold):
    """They are run in halves at once, and those that follow are smaller."""
    fault(max_batch_size=8, extra=" dynamic_batching { }", exit="71", exit_rows="2")
    server = start(models, "--worker-hang-timeout=600s")
    executions = lambda: value(server, "nv_inference_exec_count", model="m")
    assert batch(server, hold, 7) == [[i] for i in range(8)]
    assert value(server, RESTARTS, model="m", reason="sick") == value(server, RESTARTS, model="m") == 3  # of 7, 3 and 4 rows
    before = executions()
    assert batch(server, hold, 6) == [[i] for i in range(7)]
    assert executions() == before + 7
    assert value(server, RESTARTS, model="m") == 3
    wait.equal(lambda: [int(line["rows"]) for line in server.events() if line.get("event") == "worker.rows"], [3, 1])


@pytest.mark.parametrize("code", [64, 70])
def test_process_that_says_why_it_ends(fault, models, start, code):
    """64 is no verdict on a model that has answered."""
    fault()
    server = start(models)
    assert ask(server, "m", [1], {"exit": code}).status == 500
    assert answer(ask(server, "m", [2])) == [2]
    assert value(server, RESTARTS, model="m", reason="sick") == value(server, RESTARTS, model="m") == 2


@pytest.mark.parametrize("says", ["a reason", "last words"])
def test_process_that_cannot_load_the_model_has_no_successor(models, explicit, tmp_path, says):
    """The first load ends, and says why; the version has no workers then."""
    starts, program = tmp_path / "starts", tmp_path / "worker"
    end = f"exec {BIN.with_name('millrace-worker')} \"$@\"" if says == "a reason" else "echo bad weights >&2; exit 64"
    program.write_text(f"#!/bin/sh\necho >>{starts}\n{end}\n")
    program.chmod(0o755)
    repo.add(models, "m", files={"1/model.onnx": b"no model"}, backend="onnxruntime", extra=group(2), parameters=PROCESS)
    server, control = explicit(f"--worker-program={program}")
    reason = "is not a valid ONNX model" if says == "a reason" else "(exit code 64); its last words: bad weights"
    assert reason in control.load("m").error
    [row] = control.index("m")
    assert row["state"] == "UNAVAILABLE" and reason in row["reason"]
    with Rest(server.http) as rest:
        assert rest.get("/v2/models/m/versions/1/workers").status == 503
    [end] = [line for line in server.events() if line.get("event") == "worker.end"]
    assert "exit code 64" in end["msg"]
    assert len(starts.read_text()) == 1


# ---- no process at all ----

def program_once(tmp_path):
    """A program of workers of which one process can be started: then its file is away."""
    program = tmp_path / "worker"
    program.write_text(f"#!/bin/sh\nrm {program}\nexec {BIN.with_name('millrace-worker')} \"$@\"\n")
    program.chmod(0o755)
    return program


def starts_failed(server, worker):
    return [line for line in server.events() if line.get("event") == "worker.start" and line["worker"] == worker]


def test_second_process_of_a_load_that_cannot_be_started(fault, explicit, tmp_path):
    """The load fails and says why; it does not wait for a system that has no room."""
    fault(count=2)
    server, control = explicit(f"--worker-program={program_once(tmp_path)}")
    assert "cannot start" in control.load("m").error
    assert len(starts_failed(server, 1)) == 1


def test_replacement_that_cannot_be_started(fault, models, start, tmp_path):
    fault()
    program = program_once(tmp_path)
    server = start(models, f"--worker-program={program}")
    os.kill(pids(server, "m")[0], signal.SIGKILL)
    state = lambda: [(w["state"], w["last_fault"].split(":")[0]) for w in workers(server, "m")]
    wait.equal(state, [("waiting", "start")])
    wait.until(lambda: ask(server, "m", [1]).status == 503, "no process to be tried for a while")
    assert len(starts_failed(server, 0)) >= 5
    program_once(tmp_path)
    wait.until(lambda: ask(server, "m", [1]).status == 200, "an answer")
    assert value(server, RESTARTS, model="m", reason="crash") == value(server, RESTARTS, model="m") == 1


# ---- coming back ----

def ask_vector(server, values):
    with Rest(server.http, timeout=300) as rest:
        return rest.post(infer_path("m"), json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [len(values)], "data": values}]}))



@pytest.mark.few
@pytest.mark.parametrize("standby", ["0", "1"])
def test_model_that_cannot_be_loaded_for_a_while(models, start, standby):
    """It has been ready, so that is no verdict on it: its places have processes again when its file is there."""
    folder = repo.add(models, "m", files={"1/model.onnx": onnxgen.adder(10)}, backend="onnxruntime",
                      extra=group(1), parameters={**PROCESS, "worker_standby": standby})
    file, away = folder / "1/model.onnx", models.parent / "away"
    server = start(models)
    states = lambda: sorted(w["state"] for w in workers(server, "m"))
    normal = ["ready", "standby"][:1 + int(standby)]
    wait.equal(states, normal)
    file.rename(away)
    for _ in normal:
        pid, = wait.until(lambda: pids(server, "m"), "a worker")
        os.kill(pid, signal.SIGKILL)
        wait.until(lambda: pid not in pids(server, "m"), "its end to be known")
    failures = lambda: [w["restarts"].get("sick", 0) for w in workers(server, "m")]
    wait.until(lambda: min(failures()) >= 1 and ask_vector(server, [7]).status == 503, "no process to be tried for a while")
    assert not set(states()) & {"ready", "standby", "failed"}
    assert all("exit code 64" in w["last_fault"] for w in workers(server, "m"))
    away.rename(file)
    wait.until(lambda: ask_vector(server, [7]).status == 200, "an answer")
    assert answer(ask_vector(server, [7])) == [17]
    wait.equal(states, normal)


def test_model_whose_outputs_are_others(models, start):
    """Its file changed while it serves. A process that finds other inputs or outputs does not run: answers would be wrong."""
    folder = repo.add(models, "m", files={"1/model.onnx": onnxgen.adder(10)}, backend="onnxruntime", extra=group(1), parameters=PROCESS)
    server = start(models)
    repo.write(folder / "1/model.onnx", onnxgen.adder(10).replace(b"OUTPUT0", b"OUTPUT1"))
    os.kill(pids(server, "m")[0], signal.SIGKILL)
    wait.until(lambda: "the model has changed since it was loaded" in workers(server, "m")[0]["last_fault"], "a process to be refused")
    repo.write(folder / "1/model.onnx", onnxgen.adder(10))
    assert answer(ask_vector(server, [7])) == [17]


def test_deaths_that_are_rare(fault, models, start, tmp_path):
    """Each process was ready for a minute, though nothing was asked of it: the next one starts at once."""
    fault()
    faults = Faults(tmp_path)
    server = start(models, "--loop-threads=1", env=faults.env, program=PROGRAM)
    for _ in range(7):
        pid, = wait.until(lambda: pids(server, "m"), "the worker to be ready")
        faults.later(server, 61)
        os.kill(pid, signal.SIGABRT)
        wait.until(lambda: pid not in pids(server, "m"), "its end to be known")
    assert answer(ask(server, "m", [7])) == [7]


def test_workers_come_back_one_after_the_other(fault, models, start, hold, tmp_path):
    """After deaths without end, the next is started when the one before has answered."""
    program, gate, starts = tmp_path / "worker", tmp_path / "gate", tmp_path / "starts"
    program.write_text(f"#!/bin/sh\n[ -e {gate} ] || exit 3\necho >>{starts}\nexec {BIN.with_name('millrace-worker')} \"$@\"\n")
    program.chmod(0o755)
    gate.touch()
    fault(count=2)
    server = start(models, f"--worker-program={program}", "--worker-hang-timeout=600s")
    assert len(pids(server, "m")) == 2
    gate.unlink()
    starts.unlink()
    for pid in pids(server, "m"):
        os.kill(pid, signal.SIGABRT)
    refused = lambda: ask(server, "m", [1]).status == 503
    died = lambda: min(sum(w["restarts"].values()) for w in workers(server, "m"))
    wait.until(lambda: died() >= 6 and refused(), "no worker to be tried for a while")
    gate.touch()
    wait.until(lambda: pids(server, "m"), "one worker to be back")
    thread, replies = asked(server, "m", [7], hold.parameters)
    hold.wait_held()
    assert len(pids(server, "m")) == 1 and starts.read_text() == "\n"
    hold.end()
    thread.join()
    assert answer(replies[0]) == [7]
    wait.equal(lambda: len(pids(server, "m")), 2)
    assert starts.read_text() == "\n\n"

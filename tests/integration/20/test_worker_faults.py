"""What is decided about workers that die, hang or fall ill. Order is held by files and events: no verdict depends on who is
quicker."""
import os
import signal

import pytest

from lib import wait
from lib.faults import PROGRAM, Faults
from lib.metrics import value
from lib.workers import RESTARTS, add_fault, answer, ask, asked, pids, report


@pytest.fixture
def fault(models):
    return lambda *args, **kw: add_fault(models, *args, **kw)


@pytest.fixture
def start(start, tmp_path):
    """Held executions and loads wait for files of the test."""
    return lambda *args, **kw: start(*args, f"--worker-directory={tmp_path}", **kw)


# ---- hanging ----

def test_hangs_while_it_loads_again(fault, models, start, hold):
    """The process that replaces a dead one does not get on with the model: it is replaced in turn, until one does."""
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


# ---- killed from outside ----

def test_killed_again_and_again_with_one_request(fault, models, start, hold):
    """It is tried up to twenty times, and is no poison: sent again, it is run."""
    fault()
    server = start(models)
    thread, replies = asked(server, "m", [7], hold.parameters)
    for _ in range(20):
        hold.wait_held()
        hold.path.with_suffix(".held").unlink()
        pid, = pids(server, "m")
        os.kill(pid, signal.SIGKILL)
    thread.join()
    assert replies[0].status == 500 and "worker process ended while it ran this request" in replies[0].error
    assert value(server, "millrace_worker_requeued_total", model="m") == 19
    assert value(server, RESTARTS, model="m", reason="crash") == 20
    hold.end()
    assert answer(ask(server, "m", [7], hold.parameters)) == [7]


# ---- quarantine ----

@pytest.mark.parametrize("batching", ["", " dynamic_batching { }"])
def test_the_same_poison_again(fault, models, start, tmp_path, batching):
    """It costs no worker, whatever its id, until its time is over. Other requests have their answers."""
    fault(extra=batching)
    faults = Faults(tmp_path)
    server = start(models, "--loop-threads=1", env=faults.env, program=PROGRAM)
    poison = lambda n=1: ask(server, "m", [n], {"abort": True})
    died = lambda: value(server, RESTARTS, model="m")
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

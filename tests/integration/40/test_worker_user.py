"""Workers that run as another user than the server."""
import os
import pwd
import signal
from pathlib import Path

import pytest

from lib import wait
from lib.server import BIN
from lib.workers import add_fault, answer, ask, is_alive, pids

NOBODY = pwd.getpwnam("nobody")


def status(pid, key):
    return [int(n) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(key + ":") for n in line.split()[1:]]


def test_workers_of_another_user(models, start):
    """All of its numbers are that user's, it has no privilege, and it still dies with the server."""
    if os.geteuid() != 0 or not all(f.stat().st_mode & 1 for f in BIN.resolve().parents):
        pytest.skip("the tests are not root's, or the program is where no other user may read")
    add_fault(models, count=2)
    server = start(models, "--worker-user=nobody")
    there = pids(server, "m")
    for pid in there:
        assert status(pid, "Uid") == [NOBODY.pw_uid] * 4 and status(pid, "Gid") == [NOBODY.pw_gid] * 4
        assert status(pid, "Groups") == [NOBODY.pw_gid]
        assert Path(f"/proc/{pid}/status").read_text().count("CapEff:\t0000000000000000") == 1
    assert answer(ask(server, "m", [5])) == [5]
    os.kill(there[0], signal.SIGKILL)
    wait.until(lambda: len(set(pids(server, "m")) - {there[0]}) == 2, "another worker")
    assert answer(ask(server, "m", [6])) == [6]
    there = pids(server, "m")
    server.process.kill()
    server.process.wait()
    server.checked = True
    wait.until(lambda: not any(is_alive(p) for p in there), "the workers to be gone")


def test_user_that_is_not_there(models, start):
    server = start(models, "--worker-user=no-such-user", ready=False)
    assert server.wait_exit() == 2
    assert ("no user 'no-such-user'" if os.geteuid() == 0 else "only root") in server.err()
    server.checked = True

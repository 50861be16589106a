"""A disk that is full or fails under `millrace batch run`: the job waits, reports it, and continues, and each row is in the
results once.

Each call of the job that changes its folder fails once, and for a while.
"""
import contextlib
import errno
import json
import os
import re
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

from lib import batch, wait
from lib.faults import PROGRAM, Faults

pytestmark = [batch.pytestmark, pytest.mark.skipif(not PROGRAM.exists(), reason="this build has no program with faults")]

ROWS = 600


class Counts(batch.Host):
    """Knows how often the disk was used when the first call came."""
    faults = None
    started = None

    def answer(self, number, x, key):
        if self.faults and self.started is None:
            type(self).started = self.faults.disk_calls
        if 77 in key:
            self.say(400, {"error": "row of ill will"})
        else:
            self.good(x, key)


def start(folder, addresses, *args, verb="run", **fields):
    folder.mkdir(exist_ok=True)
    faults = Faults(folder)
    for name, value in fields.items():
        setattr(faults, name, value)
    command = batch.command(folder, addresses, "--commit-interval", "1", "--extent-rows", "100", "--part-bytes", "2000",
                            "--output-format", "jsonl", *args, verb=verb)
    command[0] = str(PROGRAM)
    command[command.index("-i") + 1] = str(folder.parent / "in")
    env = batch.environment() | faults.env | {"MR_FAULTS_FOLDER": str(folder / "out")}
    return faults, subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def undisturbed(tmp_path, addresses, made):
    """(folder, faults) of a run with a working disk, for which the host counts the calls."""
    folder = tmp_path / "probe"
    folder.mkdir()
    made.faults = Faults(folder)
    faults, process = start(folder, addresses)
    made.faults = faults
    assert process.wait() == 0, process.stderr.read()
    return folder, faults


def results(folder):
    return [json.loads(line) for f in (folder / "out/parts").iterdir() for line in f.read_text().splitlines()]


def check(folder, x):
    rows = results(folder)
    assert sorted(r["id"] for r in rows) == [k for k in range(len(x)) if k != 77]
    assert all(r["y"] == x[r["id"]].sum() for r in rows)
    assert [letter["values"]["id"] for letter in batch.dead(folder)] == [77]
    assert (folder / "out/_SUCCESS").exists()
    assert not [f for f in (folder / "out").iterdir() if f.name.startswith(".tmp")]


@pytest.mark.parametrize("error,count", [
    (errno.ENOSPC, 1), pytest.param(errno.EIO, 1, marks=pytest.mark.more), pytest.param(errno.ENOSPC, 3, marks=pytest.mark.more)])
def test_each_call_fails(tmp_path, error, count):
    """Whatever call it is that fails. Those before the first row end a start, as nothing is at stake yet."""
    x = batch.table(tmp_path / "in", ROWS, files=1)
    counting = type("Counting", (Counts,), {})
    with batch.hosts(counting) as (addresses, (made,)):
        probe, faults = undisturbed(tmp_path, addresses, made)
        check(probe, x)
        total, started = faults.disk_calls, made.started
        assert 10 < started < total - 20

        def once(number):
            folder = tmp_path / str(number)
            faults, process = start(folder, addresses, disk_first=number, disk_count=count, disk_error=error)
            _, said = process.communicate(timeout=wait.PATIENCE)
            assert faults.disk_failed >= 1
            if number <= started and process.returncode == 1:
                _, process = start(folder, addresses)
                _, said = process.communicate(timeout=wait.PATIENCE)
            assert process.returncode == 0, (number, said)
            check(folder, x)

        step = 1 if "MR_LONG" in os.environ else 7
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(once, range(1 + (error + count) % step, total + 1, step)))


def status(folder):
    """As fast as can be: what `millrace batch status` asks for."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(folder / "out/control"))
        s.sendall(b"GET /status HTTP/1.1\r\nHost: job\r\nConnection: close\r\n\r\n")
        head, body = b"".join(iter(lambda: s.recv(65536), b"")).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 ")
    return json.loads(body)


@pytest.mark.more
def test_asked_while_it_is_begun_again(tmp_path):
    """A failure in the manifest takes the job down, and opens it again until that does well: who asks gets an answer."""
    batch.table(tmp_path / "in", ROWS, files=1)
    with batch.hosts(type("Counting", (Counts,), {})) as (addresses, (made,)):
        undisturbed(tmp_path, addresses, made)

        def once(number):
            folder = tmp_path / str(number)
            faults, process = start(folder, addresses, disk_first=number, disk_count=10**9)
            reasons = []
            try:
                wait.until(lambda: faults.disk_failed and (folder / "out/control").exists(), "a disk that fails")
                failed = faults.disk_failed

                def look():
                    reasons.append(status(folder)["held"])
                    return faults.disk_failed >= failed + 3
                wait.until(look, "more tries", step=0)
            finally:
                process.kill()
                process.communicate()
            return any("cannot make LOCK" in r for r in reasons)

        # The calls of a commit, that of the manifest's line among them.
        with ThreadPoolExecutor(4) as pool:
            assert any(pool.map(once, range(made.started + 1, made.started + 13)))


class Fills(batch.Host):
    """The disk fails from a call on."""
    faults = None
    first = 3

    def answer(self, number, x, key):
        if number == self.first:
            self.faults.disk_first = 1
        self.good(x, key)


@contextlib.contextmanager
def filling(tmp_path, *args, rows=ROWS, error=errno.ENOSPC, first=3):
    x = batch.table(tmp_path / "in", rows, files=1)
    filled = type("Filled", (Fills,), {"first": first})
    folder = tmp_path / "job"
    folder.mkdir()
    with batch.hosts(filled) as (addresses, (made,)):
        # The file exists before the process that gets its name, as a host needs it first.
        made.faults = Faults(folder)
        faults, process = start(folder, addresses, *args, disk_error=error, disk_count=10**9)
        made.faults = faults
        try:
            wait.until(lambda: (folder / "out/control").exists() and faults.disk_failed and batch.asked(folder)["held"],
                       "a job that waits for its disk")
            yield folder, faults, process, x, addresses
        finally:
            process.kill()
            process.communicate()


@pytest.mark.few(2)
@pytest.mark.parametrize("error,text", [(errno.ENOSPC, "No space left on device"), (errno.EIO, "Input/output error"),
                                        (errno.EDQUOT, "Disk quota exceeded"), (errno.EROFS, "Read-only file system")])
def test_disk_fails_for_a_while(tmp_path, error, text):
    """All reports show that the job waits; resume tries at once; then it continues."""
    with filling(tmp_path, error=error) as (folder, faults, process, x, _):
        reason = wait.until(lambda: batch.asked(folder)["held"], "the reason")
        assert text in reason and f"{folder}/out: " in reason and " free" in reason
        # Between two tries it is so for a moment only that nothing is wrong.
        wait.until(lambda: "paused: " in told(folder) and text in told(folder), "status")
        wait.until(lambda: b"millrace_batch_held 1\n" in get(folder, "/metrics"), "the metric")
        wait.until(lambda: b"<b>paused</b>" in get(folder, "/") and text.encode() in get(folder, "/"), "the page")
        failed = faults.disk_failed
        post(folder, "/resume")
        wait.until(lambda: faults.disk_failed > failed, "another try")
        assert process.poll() is None
        faults.disk_first = 0
        post(folder, "/resume", check=False)  # it may have tried by itself, and ended
        _, err = process.communicate(timeout=wait.PATIENCE)
        assert process.returncode == 0, err
        assert "batch.disk_failed" in err and "batch.disk_works" in err
    rows = results(folder)
    assert sorted(r["id"] for r in rows) == list(range(len(x))) and all(r["y"] == x[r["id"]].sum() for r in rows)


class Rots(batch.Host):
    """Answers wrongly from the second call on, when the rows of the first one are committed."""
    log = None
    rotten = set()

    def answer(self, number, x, key):
        if number == 1:
            self.good(x, key)
            return
        wait.until(lambda: f":{self.server.server_address[1]}\"" in self.log.read_text(), "a commit")
        self.rotten.update(key.tolist())
        self.good(x, key, y=x.sum(axis=1, dtype=numpy.float32) + 1000)


class Asked(batch.Host):
    """The disk fails from the first question on by which a wrong answer may be found."""
    faults = None
    rotten = set()

    def answer(self, number, x, key):
        if self.rotten.issuperset(key.tolist()) and not self.faults.disk_failed:
            self.faults.disk_first = 1
        self.good(x, key)


@contextlib.contextmanager
def rotting(tmp_path):
    """A job that has found the second host to be wrong, and cannot record that. One that meets the full disk first, at a commit, begins
    again, or stays paused, and does not see that host's answer: then the next one may."""
    x = batch.table(tmp_path / "in", 6000, files=1)
    for number in range(10):
        with maybe_rotting(tmp_path / f"job{number}") as found:
            if found:
                yield *found, x
                return
    raise AssertionError("no host was found to be wrong before the disk was full")


@contextlib.contextmanager
def maybe_rotting(folder):
    """(folder, faults, process, addresses), or None."""
    folder.mkdir()
    shared = {"rotten": set(), "log": folder / "out/manifest.log", "faults": Faults(folder)}
    with batch.hosts(*(type(h.__name__, (h,), shared) for h in (Asked, Rots, Asked)), together=True) as (addresses, _):
        faults, process = start(folder, addresses, "--cross-check-share", "0.05", disk_error=errno.ENOSPC, disk_count=10**9)
        try:
            said, paused = [process.stderr.readline()], 0
            while not re.search(r"batch\.host_wrong|must be opened again", said[-1]) and paused < 4:
                said.append(process.stderr.readline())
                assert said[-1], "".join(said)
                paused += " paused: " in said[-1]
            if "host_wrong" not in said[-1]:
                yield None
                return
            failed = faults.disk_failed
            wait.until(lambda: faults.disk_failed > failed + 2 or process.poll() is not None, "more tries")
            yield folder, faults, process, addresses
        finally:
            process.kill()
            process.communicate()


def test_host_is_wrong_while_the_disk_fails(tmp_path):
    """What it answered is taken back when the disk works again."""
    with rotting(tmp_path) as (folder, faults, process, addresses, x):
        faults.disk_first = 0
        post(folder, "/resume", check=False)
        _, err = process.communicate(timeout=wait.PATIENCE)
        assert process.returncode == 0 and re.search(r"batch\.recompute .* rows=[1-9]", err), err
    rows = results(folder)
    assert sorted(r["id"] for r in rows) == list(range(len(x))) and all(r["y"] == x[r["id"]].sum() for r in rows)


def test_signal_ends_a_job_that_cannot_record_a_wrong_host(tmp_path):
    """The log says what the next start must be told."""
    with rotting(tmp_path) as (folder, faults, process, addresses, x):
        process.terminate()
        _, err = process.communicate(timeout=wait.PATIENCE)
        assert process.returncode == 1
        assert re.search(rf"batch\.recompute_failed .*{addresses[1]}", err), err


def told(folder):
    return subprocess.run([str(batch.BIN), "batch", "status", str(folder / "out")], check=True, capture_output=True, text=True,
                          env=batch.environment()).stdout


def get(folder, path):
    done = subprocess.run(["curl", "-sS", "--unix-socket", str(folder / "out/control"), f"http://job{path}"], check=True,
                          capture_output=True)
    return done.stdout


def post(folder, path, check=True):
    subprocess.run(["curl", "-sS", "-XPOST", "--unix-socket", str(folder / "out/control"), f"http://job{path}"],
                   check=check, capture_output=True)


def test_signal_ends_a_job_that_waits(tmp_path):
    with filling(tmp_path) as (folder, faults, process, x, addresses):
        process.terminate()
        _, err = process.communicate(timeout=wait.PATIENCE)
        assert process.returncode == 1 and "stopped" in err
        faults, process = start(folder, addresses)
        _, err = process.communicate(timeout=wait.PATIENCE)
        assert process.returncode == 0, err
    assert sorted(r["id"] for r in results(folder)) == list(range(len(x)))


def test_killed_while_it_waits(tmp_path):
    with filling(tmp_path) as (folder, faults, process, x, addresses):
        process.kill()
        process.communicate()
        _, process = start(folder, addresses)
        _, err = process.communicate(timeout=wait.PATIENCE)
        assert process.returncode == 0, err
    assert sorted(r["id"] for r in results(folder)) == list(range(len(x)))


def test_waits_no_longer_than_it_may(tmp_path):
    with filling(tmp_path, "--max-outage", "10") as (folder, faults, process, x, addresses):
        _, err = process.communicate(timeout=wait.PATIENCE)
        assert process.returncode == 1 and "No space left on device" in err
        _, process = start(folder, addresses)
        _, err = process.communicate(timeout=wait.PATIENCE)
        assert process.returncode == 0, err
    assert sorted(r["id"] for r in results(folder)) == list(range(len(x)))


def test_calls_stop_when_memory_is_used_up(tmp_path):
    """Rows that wait for the disk take no more than they may: the hosts have nothing to do then. The disk fails before
    anything was written: were it the manifest, the job would be opened again, without rows."""
    with filling(tmp_path, "--memory", "1MiB", rows=20000, first=1) as (folder, faults, process, x, _):
        wait.until(lambda: batch.waits_for_memory(batch.asked(folder)), "the memory to be used up")
        s = batch.asked(folder)
        assert s["memory_bytes"] < 3 << 20 and s["under_way"] < 15000
        faults.disk_first = 0
        post(folder, "/resume")
        _, err = process.communicate(timeout=wait.PATIENCE)
        assert process.returncode == 0, err
    assert sorted(r["id"] for r in results(folder)) == list(range(len(x)))


@pytest.mark.more
def test_dead_letters_once_more_on_a_failing_disk(tmp_path):
    """Each call that fails leaves each row a letter or a result."""
    x = batch.table(tmp_path / "in", ROWS, files=1)
    folder = tmp_path / "job"
    with batch.hosts(Counts, batch.Host) as ((poisoned, well), _):
        _, process = start(folder, [poisoned])
        assert process.wait() == 0
        saved = tmp_path / "saved"
        shutil.copytree(folder, saved)
        faults, process = start(saved, [well], verb="retry-dlq")
        assert process.wait() == 0, process.stderr.read()
        failed = 0
        for number in range(1, faults.disk_calls + 1, 1 if "MR_LONG" in os.environ else 4):
            one = tmp_path / str(number)
            shutil.copytree(folder, one)
            _, process = start(one, [well], verb="retry-dlq", disk_first=number, disk_count=1, disk_error=errno.EIO)
            _, err = process.communicate(timeout=wait.PATIENCE)
            if process.returncode == 1:
                failed += 1
                _, process = start(one, [well], verb="retry-dlq")
                assert process.wait() == 0
            rows = results(one)
            assert sorted(r["id"] for r in rows) == list(range(ROWS)) and not batch.dead(one), (number, err)
        assert failed < faults.disk_calls / 4

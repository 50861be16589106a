"""A job of `millrace batch run` that is asked, paused and changed while it runs."""
import contextlib
import fcntl
import http.client
import json
import os
import pty
import re
import signal
import socket
import stat
import struct
import subprocess
import termios
import threading

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lib import batch, wait
from lib.server import BIN

pytestmark = batch.pytestmark


class Gate(batch.Host):
    """Answers when the test lets it."""
    gate = None

    def answer(self, number, x, key):
        self.gate.wait(wait.PATIENCE)
        self.good(x, key)


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=wait.PATIENCE)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(wait.PATIENCE)
        self.sock.connect(self.path)


def ask(to, path, body=None, method=None, headers=()):
    """(status, document) of a job in a folder, or at (host, port)."""
    c = http.client.HTTPConnection(*to, timeout=wait.PATIENCE) if isinstance(to, tuple) else Connection(to / "out/control")
    with contextlib.closing(c):
        c.request(method or ("GET" if body is None else "POST"), path, body, dict(headers))
        r = c.getresponse()
        data = r.read()
        return r.status, json.loads(data) if r.getheader("content-type") == "application/json" else data


def status(to):
    code, document = ask(to, "/status")
    assert code == 200
    return document


@contextlib.contextmanager
def running(folder, addresses, *args):
    """A running job for queries; killed at the end of the block if it has not ended."""
    with open(folder / "err", "a") as err:
        process = subprocess.Popen(batch.command(folder, addresses, *args), stderr=err, env=batch.environment())
    try:
        wait.until(lambda: reachable(folder) or process.poll() is not None, "the job's socket")
        yield process
    finally:
        process.kill()
        process.wait()


def reachable(folder):
    try:
        return ask(folder, "/status")[0] == 200
    except OSError:
        return False


def finish(process, folder):
    assert process.wait(wait.PATIENCE) == 0, (folder / "err").read_text()


def cli(*args):
    return subprocess.run([str(BIN), "batch", *map(str, args)], capture_output=True, text=True, env=batch.environment(),
                          timeout=wait.PATIENCE)


@pytest.fixture
def gated(tmp_path):
    """(folder, table, addresses, class of the host, gate): a job for a host that answers when the gate is open."""
    gate = threading.Event()
    x = batch.table(tmp_path / "in", 5000)
    with batch.hosts(type("Gate", (Gate,), {"gate": gate})) as (addresses, made):
        yield tmp_path, x, addresses, made[0], gate
        gate.set()


def test_the_reader_is_not_far_ahead(tmp_path):
    """Rows that no host has room for are not read, although there is memory."""
    rows, gate = 60000, threading.Event()
    (tmp_path / "in").mkdir()
    x = pa.FixedSizeListArray.from_arrays(pa.array(numpy.ones(rows * batch.WIDTH, numpy.float32)), batch.WIDTH)
    pq.write_table(pa.table({"id": range(rows), "x": x, "name": ["n" * 1000] * rows}), tmp_path / "in/0.parquet")
    with batch.hosts(type("Gate", (Gate,), {"gate": gate})) as (addresses, _):
        with running(tmp_path, addresses, "--max-in-flight-per-host", 2) as process:
            wait.until(lambda: status(tmp_path)["reader"] == "waits for hosts", "rows enough")
            s = status(tmp_path)
            assert s["under_way"] < rows / 2 and 16 << 20 < s["memory_bytes"] < 32 << 20
            gate.set()
            assert process.wait(timeout=wait.PATIENCE) == 0
    assert sorted(batch.results(tmp_path)["id"].to_pylist()) == list(range(rows))


class Stuck(batch.Host):
    """After some answers."""
    gate = None

    def answer(self, number, x, key):
        if number > 5:
            self.gate.wait(wait.PATIENCE)
        self.good(x, key)


def test_little_is_done_again(tmp_path):
    """What slow hosts have answered is committed soon, without an option for that."""
    x = batch.table(tmp_path / "in", 20000)
    gate = threading.Event()
    with batch.hosts(type("Stuck", (Stuck,), {"gate": gate})) as (addresses, _):
        with running(tmp_path, addresses):
            wait.until(lambda: batch.committed(tmp_path), "what was answered")
        gate.set()
    done = sum(batch.committed(tmp_path).values())
    assert 0 < done <= 500
    with batch.hosts(batch.Host) as (addresses, made):  # another one: calls of the killed job may still reach the first
        batch.run(tmp_path, addresses)
    assert made[0].calls == (20000 - done) // 100
    batch.check(tmp_path, x)


def test_status(gated):
    folder, x, addresses, host, gate = gated
    with running(folder, addresses, "--max-in-flight-per-host", 2) as process:
        wait.until(lambda: status(folder)["hosts"][0]["in_flight"] == 2, "calls")
        wait.until(lambda: status(folder)["reader"] == "has ended", "all to be read")
        s = status(folder)
        assert s["under_way"] == 5000
        assert (s["state"], s["phase"], s["paused"], s["pid"]) == ("running", "running", False, process.pid)
        assert (s["total_rows"], s["rows"], s["dead"], s["model"]) == (5000, 0, 0, "m")
        assert s["memory_bytes"] > 5000 * 4 * batch.WIDTH
        assert s["limits"]["batch_rows"] == 100 and s["limits"]["max_in_flight_per_host"] == 2
        assert s["hosts"][0]["address"] == addresses[0] and s["hosts"][0]["state"] == "ready"
        assert stat.S_IMODE(os.stat(folder / "out/control").st_mode) == 0o600
        text = cli("status", folder / "out").stdout
        assert addresses[0] in text and "of 5000" in text
        assert json.loads(cli("status", folder / "out", "--json").stdout)["pid"] == process.pid
        gate.set()
        finish(process, folder)
    batch.check(folder, x)
    assert not (folder / "out/control").exists()


def test_pause_and_resume(gated):
    """No call is made while it is paused; those that were made count."""
    folder, x, addresses, host, gate = gated
    with running(folder, addresses, "--max-in-flight-per-host", 2, "--commit-interval", 1, "--extent-rows", 100) as process:
        wait.until(lambda: status(folder)["hosts"][0]["in_flight"] == 2, "calls")
        wait.equal(lambda: host.calls, 2)
        assert "paused" in cli("pause", folder / "out").stdout
        calls = host.calls
        gate.set()
        # What was under way ends and is committed, and nothing new is sent.
        wait.until(lambda: status(folder)["rows"] == 100 * calls, "what was under way")
        s = status(folder)
        assert s["paused"] and s["hosts"][0]["in_flight"] == 0 and host.calls == calls == 2
        assert ask(folder, "/resume", b"")[1]["paused"] is False
        finish(process, folder)
    batch.check(folder, x)


def test_pause_is_seen_in_the_progress(gated):
    folder, x, addresses, host, gate = gated
    with running(folder, addresses) as process:
        cli("pause", folder / "out")
        wait.until(lambda: ", paused" in (folder / "err").read_text(), "the progress to say it")
        process.terminate()  # a paused job can be stopped
        assert process.wait(wait.PATIENCE) == 1
    with running(folder, addresses) as process:
        assert status(folder)["paused"] is False  # and a restart runs
        gate.set()
        finish(process, folder)
    batch.check(folder, x)


def test_pause_is_no_outage(gated):
    """The one host fails, so that the route is stalled; a pause of any length does not end the job."""
    folder, x, addresses, host, gate = gated
    paused = threading.Event()

    def busy(self, number, x, key):
        paused.wait(wait.PATIENCE)
        self.say(503, {"error": "busy"})
    host.answer = busy
    with running(folder, addresses, "--max-outage", 2) as process:
        cli("pause", folder / "out")
        paused.set()
        wait.until(lambda: status(folder)["ran_s"] > 4, "the outage to be over its limit")
        assert process.poll() is None
        del host.answer
        gate.set()
        cli("resume", folder / "out")
        finish(process, folder)
    batch.check(folder, x)


def test_set(gated):
    folder, x, addresses, host, gate = gated
    rows = []

    def answer(self, number, x, key):
        rows.append(len(key))
        Gate.answer(self, number, x, key)
    host.answer = answer
    with running(folder, addresses, "--max-in-flight-per-host", 1) as process:
        wait.until(lambda: status(folder)["hosts"][0]["in_flight"] == 1, "calls")
        code, s = ask(folder, "/set", json.dumps({"batch_rows": 50, "max_in_flight_per_host": 7}))
        assert code == 200 and s["limits"]["batch_rows"] == 50 and s["limits"]["max_in_flight_per_host"] == 7
        # The limit of the host grows from 1 as it answers.
        done = cli("set", folder / "out", "--batch-rows", 20)
        assert done.returncode == 0 and "calls of 20 rows" in done.stdout
        gate.set()
        finish(process, folder)
    batch.check(folder, x)
    assert rows[0] == 100 and max(rows[3:]) == 20  # one or two calls were cut before


def test_set_hosts(gated):
    """The new host does the rest; the old one gets no more calls, and those under way are waited for."""
    folder, x, addresses, host, gate = gated
    # The new host waits as well: else it would do what the old one is slow with, and the job be over.
    with batch.hosts(type("Gate", (Gate,), {"gate": gate})) as ((other,), made):
        with running(folder, addresses, "--max-in-flight-per-host", 1) as process:
            wait.until(lambda: status(folder)["hosts"][0]["in_flight"] == 1, "calls")
            done = cli("set", folder / "out", "--hosts", f"{other},http://{other}/")
            assert done.returncode == 0, done.stderr
            wait.until(lambda: made[0].calls > 0, "calls to the new host")
            assert status(folder)["hosts"][0]["state"] == "removed"
            gate.set()
            finish(process, folder)
    assert host.calls == 1
    batch.check(folder, x)


def test_set_hosts_of_which_one_cannot_be(gated):
    """None of them is taken, and none of those before goes."""
    folder, x, addresses, host, gate = gated
    with running(folder, addresses, "--tls-ca", folder / "none") as process:
        wait.until(lambda: status(folder)["hosts"][0]["in_flight"] > 0, "calls")
        code, document = ask(folder, "/set", json.dumps({"batch_rows": 7, "hosts": ["127.0.0.1:1", "https://127.0.0.1:2"]}))
        assert code == 400 and "none" in document["error"]
        now = status(folder)
        assert now["limits"]["batch_rows"] == 100
        assert [h["address"] for h in now["hosts"] if h["state"] != "removed"] == addresses
        code, document = ask(folder, "/set", json.dumps({"hosts": ["::::"]}))
        assert code == 400 and "::::" in document["error"]
        assert "::::" not in [h["address"] for h in status(folder)["hosts"]]
        gate.set()
        finish(process, folder)
    batch.check(folder, x)


def test_set_rows_larger_than_an_extent(gated):
    """Stretches that are read from then on are as long as calls are."""
    folder, x, addresses, host, gate = gated
    batch.table(folder / "in", 60000, files=1)
    rows = []
    host.answer = lambda self, number, x, key: (rows.append(len(key)), Gate.answer(self, number, x, key))
    # Memory for a few stretches only, so that the others are read after the change.
    with running(folder, addresses, "--max-in-flight-per-host", 1, "--memory", "6MiB") as process:
        wait.until(lambda: rows, "a call")
        assert ask(folder, "/set", b'{"batch_rows": 10000}')[0] == 200
        gate.set()
        finish(process, folder)
    assert max(rows) > 4096


@pytest.mark.few(6)
@pytest.mark.parametrize("body,text", [
    (b'{"batch_rows": 0}', "from 1 to 1048576"),
    (b'{"batch_rows": 1048577}', "from 1 to 1048576"),
    (b'{"batch_rows": 1.5}', "batch_rows 1.5: expected a whole number"),
    (b'{"batch_rows": "many"}', "from 1 to 1048576"),
    (b'{"max_in_flight_per_host": 65536}', "from 1 to 65535"),
    (b'{"max_in_flight_per_host": -1}', "from 1 to 65535"),
    (b'{"batch_rows": 7, "speed": 11}', "'speed' cannot be set: expected batch_rows"),
    (b'{"batch_rows": 7', "offset"),
    (b'{"batch_rows": 7, "hosts": []}', "expected one at least"),
    (b'{"batch_rows": 7, "hosts": ["a:1", "@list"]}', "'@list' is no host"),
    (b'{"batch_rows": 7, "hosts": ["ftp://a:1"]}', "are the known schemes"),
    (b'{"batch_rows": 7, "hosts": "a:1"}', "expected"),
    (b'{"batch_rows": 7, "hosts": ["a b"]}', "is no host"),
    (b'{"batch_rows": 7, "hosts": ["https://"]}', "is not the address of a host"),
    (b'{}', "set what?"),
    (b'', "offset"),
    (b'[1]', "offset"),
])
def test_bad_values(gated, body, text):
    folder, _, addresses, _, _ = gated
    with running(folder, addresses):
        code, document = ask(folder, "/set", body)
        assert code == 400 and text in document["error"]
        assert status(folder)["limits"]["batch_rows"] == 100  # all of it or nothing


def test_bad_calls(gated):
    folder, _, addresses, _, _ = gated
    with running(folder, addresses):
        assert ask(folder, "/nothing")[0] == 404
        assert ask(folder, "/pause")[0] == 405
        assert ask(folder, "/status", b"{}")[0] == 405
        assert ask(folder, "/set", b" " * 70000)[0] == 413
        code, document = ask(folder, "/pause", b"", headers={"Origin": "http://example.com"})
        assert code == 403 and "web pages of the origin" in document["error"]
        code, document = ask(folder, "/pause", b"", headers={"Host": "example.com", "Origin": "http://example.com"})
        assert code == 403 and "browser" in document["error"]
        # Half a request, and then nothing.
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(folder / "out/control"))
            s.sendall(b"POST /set HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        assert status(folder)["paused"] is False


@pytest.mark.parametrize("args,changes", [([], False), (["--listen-control"], True)])
def test_over_tcp(gated, args, changes):
    folder, x, addresses, host, gate = gated
    with running(folder, addresses, "--listen", "127.0.0.1:0", *args) as process:
        name, port = status(folder)["listen"].rsplit(":", 1)
        assert status((name, int(port)))["pid"] == process.pid
        code, document = ask((name, int(port)), "/pause", b"")
        assert code == (200 if changes else 403)
        assert changes or "--listen-control" in document["error"]
        assert status(folder)["paused"] is changes
        ask(folder, "/resume", b"")
        gate.set()
        finish(process, folder)


def test_address_that_is_taken(gated):
    folder, _, addresses, _, _ = gated
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        done = batch.run(folder, addresses, "--listen", f"127.0.0.1:{s.getsockname()[1]}", code=1)
    assert "in use" in done.stderr


def test_socket_of_a_killed_job(gated):
    folder, x, addresses, host, gate = gated
    with running(folder, addresses) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert stat.S_ISSOCK(os.stat(folder / "out/control").st_mode)
    assert "no job" in cli("status", folder / "out").stderr or "not finished" in cli("status", folder / "out").stdout
    with running(folder, addresses) as process:
        assert status(folder)["pid"] == process.pid
        gate.set()
        finish(process, folder)
    batch.check(folder, x)


def test_status_of_a_job_that_does_not_run(gated):
    folder, _, addresses, _, gate = gated
    assert cli("status", folder / "out").returncode == 1
    with running(folder, addresses, "--max-in-flight-per-host", 1) as process:
        wait.until(lambda: status(folder)["phase"] == "running", "the job to run")
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = cli("status", folder / "out")
    assert done.returncode == 0 and "not finished" in done.stdout and "after 1 start" in done.stdout
    document = json.loads(cli("status", folder / "out", "--json").stdout)
    assert (document["state"], document["pid"], document["rows"]) == ("stopped", 0, 0)
    refused = cli("pause", folder / "out")
    assert refused.returncode == 1 and "does not run" in refused.stderr
    gate.set()
    batch.run(folder, addresses)
    document = json.loads(cli("status", folder / "out", "--json").stdout)
    assert (document["state"], document["rows"], document["dead"], document["starts"]) == ("finished", 5000, 0, 2)
    assert "finished" in cli("status", folder / "out").stdout


def test_path_that_is_too_long(tmp_path):
    """The job runs all the same, and status shows its process."""
    folder = tmp_path / ("d" * 60) / ("e" * 60)
    folder.mkdir(parents=True)
    gate = threading.Event()
    x = batch.table(folder / "in", 1000)
    with batch.hosts(type("Gate", (Gate,), {"gate": gate})) as (addresses, made):
        with open(folder / "err", "w") as err:
            process = subprocess.Popen(batch.command(folder, addresses), stderr=err, env=batch.environment())
            try:
                wait.until(lambda: made[0].calls, "a call")
                assert "the path of a socket" in (folder / "err").read_text()
                document = json.loads(cli("status", folder / "out", "--json").stdout)
                assert (document["state"], document["pid"]) == ("running", process.pid)
                assert f"process {process.pid} works on it" in cli("status", folder / "out").stdout
                gate.set()
                finish(process, folder)
            finally:
                gate.set()
                process.kill()
                process.wait()
    batch.check(folder, x)


def test_failures_are_told(tmp_path):
    batch.table(tmp_path / "in", 5000)

    class Fails(batch.Host):
        def answer(self, number, x, key):
            self.say(500, {"error": "out of order"})
    with batch.hosts(Fails) as (addresses, _), running(tmp_path, addresses):
        wait.until(lambda: status(tmp_path)["failures"], "a failure")
        failure = status(tmp_path)["failures"][0]
        assert failure["host"] == addresses[0] and "out of order" in failure["cause"] and failure["count"] >= 1
        assert "out of order" in cli("status", tmp_path / "out").stdout


def metrics(to):
    """{(sample, labels): value}, read by Prometheus' own parser."""
    code, text = ask(to, "/metrics")
    assert code == 200
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for s in family.samples:
            key = (s.name, *sorted(s.labels.items()))
            assert key not in found
            found[key] = s.value
    return found


def test_metrics(tmp_path):
    """Calls with rows from 2000 on wait, but for one that began before; the row 777 is refused, and two cannot be sent."""
    gate = threading.Event()

    class Some(batch.Poisoned):
        def answer(self, number, x, key):
            if (key >= 2000).all():
                gate.wait(wait.PATIENCE)
            super().answer(number, x, key)
    x = batch.table(tmp_path / "in", 5000, files=1, bad={5: None, 900: [1]})
    with batch.hosts(Some) as (addresses, _), running(
            tmp_path, addresses, "--extent-rows", 500, "--commit-interval", 1, "--max-in-flight-per-host", 2) as process:
        host = ("host", addresses[0])
        rows = "millrace_batch_rows_total"
        wait.until(lambda: metrics(tmp_path)[rows, ("outcome", "result")] == 1997, "what can be done to be done")
        wait.until(lambda: (m := metrics(tmp_path))["millrace_batch_calls_in_flight", host] == m["millrace_batch_calls_limit", host] > 0,
                   "the others to wait")
        m = metrics(tmp_path)
        assert m[rows, ("outcome", "dead_letter")] == 3 and m["millrace_batch_input_rows",] == 5000
        assert m["millrace_batch_under_way_rows",] == 3000
        assert 0 < m["millrace_batch_under_way_bytes",] < m["millrace_batch_memory_limit_bytes",]
        calls = {o: m["millrace_batch_calls_total", host, ("outcome", o)] for o in ("ok", "rejected", "failed", "throttled")}
        assert calls["ok"] >= 20 and calls["rejected"] >= 7 and calls["failed"] == calls["throttled"] == 0
        assert m["millrace_batch_call_seconds_count", host] == calls["ok"]
        assert m["millrace_batch_call_seconds_bucket", host, ("le", "+Inf")] == calls["ok"]
        assert m["millrace_batch_call_seconds_sum", host] > 0
        assert 1997 <= m["millrace_batch_host_rows_total", host] < 2100 and m["millrace_batch_retried_calls_total", host] > 0
        assert m["millrace_batch_host_dead_letters_total", host] == 1
        assert {k: m["millrace_batch_dead_letters_total", ("kind", k)] for k in ("row", "rejected", "failed")} == {
            "row": 2, "rejected": 1, "failed": 0}
        assert m["millrace_batch_hosts", ("state", "ready")] == 1 and m["millrace_batch_paused",] == 0
        assert sum(m["millrace_batch_bottleneck", ("stage", s)] for s in ("reader", "hosts", "writer")) == 1
        assert all(m["millrace_batch_stage_seconds_total", ("stage", s)] > 0
                   for s in ("read", "encode", "judge", "write", "commit", "writer_waits"))
        gate.set()
        finish(process, tmp_path)
    batch.check(tmp_path, x, gone=[5, 777, 900])
    report = json.loads((tmp_path / "out/report.json").read_text())
    causes = {(d["kind"], d["count"]) for d in report["this_start"]["dead_causes"]}
    assert ("rejected", 1) in causes and sum(count for _, count in causes) >= 2
    assert all(report["this_start"][s] > 0 for s in ("read_s", "write_s", "commit_s", "writer_idle_s"))
    told = report["hosts"][0]
    assert (told["rows"], told["dead_letters"], told["version"]) == (4997, 1, "1") and told["retries"] > 0
    assert 0 < told["p50_s"] <= told["p95_s"] <= told["p99_s"] and told["stages"]["answer_s"] > told["p50_s"]


def test_page(tmp_path):
    """Readable as it comes, without scripts and without anything from elsewhere; text from hosts stays text."""
    batch.table(tmp_path / "in", 1000)

    class Fails(batch.Host):
        def answer(self, number, x, key):
            self.say(500, {"error": "<script>alert(1)</script> & so on"})
    with batch.hosts(Fails) as (addresses, _), running(tmp_path, addresses):
        wait.until(lambda: status(tmp_path)["failures"], "a failure")
        code, page = ask(tmp_path, "/")
        page = page.decode()
        assert code == 200 and page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
        assert addresses[0] in page and "of 1000 rows done" in page and "<!--figures-->" not in page
        assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
        assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)
        code, part = ask(tmp_path, "/figures")
        assert code == 200 and part.decode().startswith("<h1>m</h1>")


def test_metrics_of_many_hosts(tmp_path):
    """Labels are bounded, however many hosts there are."""
    batch.table(tmp_path / "in", 1000)
    gate = threading.Event()
    with batch.hosts(type("Gate", (Gate,), {"gate": gate})) as (addresses, _):
        many = [f"127.0.0.1:{port}" for port in range(1, 251)]
        with running(tmp_path, [*addresses, *many]):
            m = metrics(tmp_path)
            names = {dict(key[1:])["host"] for key in m if key[0] == "millrace_batch_calls_limit"}
            assert len(names) == 201 and "other" in names and addresses[0] in names
            assert len(status(tmp_path)["hosts"]) == 251
            gate.set()


@pytest.mark.parametrize("args,text", [
    (["status"], "expected the folder"),
    (["set", "x"], "set what?"),
    (["set", "x", "--batch-rows", "0"], "1"),
    (["pause", "x", "--batch-rows", "5"], "only set"),
    (["jump", "x"], "expected: run, "),
])
def test_wrong_command_lines(args, text):
    done = cli(*args)
    assert done.returncode == 2 and text in done.stderr


def test_slow_hosts_are_what_it_is_bound_by(gated):
    """Also while the writer has waited all the time, and although all is read."""
    folder, x, addresses, host, gate = gated
    with running(folder, addresses) as process:
        wait.until(lambda: host.calls and status(folder)["reader"] == "has ended", "calls")
        s = status(folder)
        assert s["bottleneck"] == "hosts"
        m = metrics(folder)
        assert m["millrace_batch_stage_seconds_total", ("stage", "writer_waits")] > 0
        gate.set()
        finish(process, folder)
    batch.check(folder, x)


class Rejects(batch.Host):
    """A row, and one call fails."""
    def answer(self, number, x, key):
        if 777 in key:
            self.say(400, {"error": "row of ill will"})
        else:
            self.good(x, key)


def test_the_end_is_told_in_words(tmp_path):
    """Version, retries, dead letters by cause and times, as in report.json; canaries are no retries."""
    x = batch.table(tmp_path / "in", 5000)
    with batch.hosts(Rejects, Rejects, together=True) as (addresses, _):
        told = batch.run(tmp_path, addresses).stderr
    batch.check(tmp_path, x, [777])
    report = json.loads((tmp_path / "out/report.json").read_text())
    for h in report["hosts"]:
        line = next(i for i in told.splitlines() if i.startswith(f"  {h['address']}: "))
        assert f", version 1, {h['rows']} rows in {h['calls']} calls, " in line
        assert line.endswith(f", {h['failures']} failures, {h['retries']} retries")
    assert "  dead letters, 1 of kind rejected: HTTP status 400: " in told and "row of ill will" in told
    assert "  reader: read for " in told


def test_no_figures_of_a_job_that_has_not_begun(gated):
    """The error contains all of it."""
    folder, _, addresses, _, gate = gated
    told = batch.run(folder, addresses, "--keep", "nothing", code=1).stderr
    assert "'nothing' is to be kept" in told and "rows done" not in told and "rows in" not in told
    told = batch.run(folder, ["127.0.0.1:1"], "--max-outage", "1s", code=1).stderr
    assert "files" not in told and "  127.0.0.1:1: no answer yet: " in told


def test_a_cross_check_is_no_retry(tmp_path):
    batch.table(tmp_path / "in", 5000)
    with batch.hosts(batch.Host, batch.Host, together=True) as (addresses, _):
        batch.run(tmp_path, addresses, "--cross-check-share", 1)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["this_start"]["calls"] > 50 and [h["retries"] for h in report["hosts"]] == [0, 0]


def test_nobody_reads_what_it_says(gated):
    """The job continues."""
    folder, x, addresses, host, gate = gated
    process = subprocess.Popen(batch.command(folder, addresses), stderr=subprocess.PIPE, env=batch.environment())
    try:
        wait.until(lambda: host.calls, "calls")
        process.stderr.close()
        gate.set()
        assert process.wait(wait.PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    batch.check(folder, x)


def test_progress_fits_a_terminal(gated):
    """The bottleneck is shown on 80 columns as well."""
    folder, x, addresses, host, gate = gated
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(batch.command(folder, addresses), stderr=slave, env=batch.environment())
    os.close(slave)
    told = b""
    try:
        while b"bound by the hosts" not in told:
            told += os.read(master, 65536)
        lines = told.decode().split("\r\n")
        assert " rows done, " in lines[0] and "bound by" not in lines[0] and all(len(i) < 80 for i in lines[:2])
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.mark.parametrize("rows", [100, 2000])
def test_too_many_dead_letters_pause_the_job(tmp_path, rows):
    """On request, also at the end of all rows; a resume accepts them."""
    batch.table(tmp_path / "in", 2000, bad={k: None for k in range(0, 2000, 7)})
    with batch.hosts(batch.Host) as (addresses, made):
        with running(tmp_path, addresses, "--max-dead", "10", "--extent-rows", rows, "--on-threshold", "pause") as process:
            wait.until(lambda: status(tmp_path)["paused"], "a paused job")
            assert "dead letters of " in status(tmp_path)["held"] and "more than --max-dead 10" in status(tmp_path)["held"]
            assert process.poll() is None
            ask(tmp_path, "/resume", b"")
            assert process.wait(wait.PATIENCE) == 0
    assert batch.results(tmp_path).num_rows + len(batch.dead(tmp_path)) == 2000

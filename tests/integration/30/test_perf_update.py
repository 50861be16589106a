"""millrace perf update against a real server and a foreign one: updates that take place, requests counted in the right
windows, and the reports of both."""
import json
import signal
import subprocess
import time

import pytest

from lib import repo, wait
from lib.services import other
from lib.control import Control
from lib.server import BIN, clean_environment

SHORT = ["--rate", 200, "--warmup", "100ms", "--window", "200ms", "--shape", "INPUT0:4"]


def command(*args):
    return [BIN, "perf", "update", *map(str, args)]


def update(*args, code=0):
    """The JSON report and what went to standard error."""
    done = subprocess.run(command(*args, "--json", "-"), capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout else None, done.stderr


def sums(report):
    return {s["name"]: s for s in report["sums"]}


def check_sums(report):
    """Windows, phases and histograms agree with each other."""
    told = sums(report)
    for name, is_update in (("quiet", False), ("update", True)):
        windows = [w for w in report["windows"] if w["update"] == is_update]
        assert told[name]["count"] == len(windows)
        assert told[name]["sent"] == sum(w["sent"] for w in windows)
    for s in told.values():
        assert s["sent"] == s["answered"] + s["failed"]
        assert s["latency_ns"]["count"] == sum(n for _, n in s["histogram"])
        assert ("added_ns" in s) == (s["name"] != "quiet")
    for w in report["windows"]:
        begin, end = w["span_s"]
        slots = (end - begin) * report["rate"]
        assert abs(w["sent"] - slots) <= 1.5, "each slot once"
        for phase_begin, phase_end in w.get("phases_s", {}).values():
            assert begin <= phase_begin < phase_end <= end + 1e-6
    spans = [w["span_s"] for w in report["windows"]]
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), "one after the other"


@pytest.fixture
def explicit(models, start):
    repo.add(models, "m", versions=(1, 2))
    repo.add(models, "other")
    return start(models, "--load-model=*", mode="explicit")


@pytest.mark.few
@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_versions_in_turn(explicit, protocol):
    """Two updates are not counted, so the third that is loads version 1."""
    url = explicit.url("grpc" if protocol == "grpc" else "http")
    report, _ = update("-m", "m", "-u", url, "--protocol", protocol, *SHORT, "--updates", 3, "--versions", "1,2",
                       "--pid", explicit.process.pid)
    check_sums(report)
    assert [w["update"] for w in report["windows"]] == [False, True, True, False, False, True]
    assert (report["update"], report["control_protocol"], report["tells_states"]) == ("m", protocol, True)
    run = report["run"]
    assert run["failed"] == run["samples_lost"] == report["failed_updates"] == 0 and run["sent"] == run["answered"]
    told = sums(report)
    phases = {"load", "warm", "publish", "drain", "release", "after"}
    assert set(told) == phases | {"quiet", "update"}
    assert all(told[name]["count"] == 3 for name in phases)
    for w in report["windows"]:
        assert w["rss_after"] > 1 << 20 and w["maps"] > 10 and 0 <= w["steal"] <= 1
        assert any(t["name"].startswith("loop-") for t in w["threads"])
        assert w.get("clock_shift_ns", 0) == 0
    with Control(explicit) as control:
        assert control.states("m")["1"] == "READY" and control.states("m").get("2") != "READY"


def test_unload_and_load_of_another(explicit, tmp_path):
    done = subprocess.run(command("-m", "m", "-u", explicit.url(), *SHORT, "--update", "other", "--updates", 1, "--control-protocol", "grpc",
                                  "--control-url", explicit.url("grpc"), "--json", tmp_path / "x.json", "--pid", explicit.process.pid),
                          capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "x.json").read_text())
    check_sums(report)
    assert report["control_protocol"] == "grpc" and report["protocol"] == "rest"
    for word in ("1 updates of other", "quiet ", "publish ", "slow:", "added by", "fewer than five", "quiet windows among themselves", "resident:", "loop-0"):
        assert word in done.stdout, done.stdout
    with Control(explicit) as control:
        assert control.states("other")["1"] == "READY"


def test_a_command_before_each_update(models, explicit):
    """Each puts a new version there, which the load finds."""
    copy = f"cp -r {models}/m/1 {models}/m/$((MILLRACE_UPDATE + 3)); echo made"
    report, told = update("-m", "m", "-u", explicit.url(), *SHORT, "--updates", 2, "--command", copy)
    check_sums(report)
    assert told.count("made") == 3
    assert report["run"]["failed"] == 0
    with Control(explicit) as control:
        assert control.answer("m")[1] == "5"


def test_failures(models, explicit):
    """A failed load is reported and counted, and the run continues; a failed first load ends it, and so does a command."""
    arguments = ["-m", "m", "-u", explicit.url(), *SHORT, "--update", "other"]
    config = models / "other" / "config.pbtxt"
    breaks = f"test $MILLRACE_UPDATE != 1 || echo nonsense >> {config}; mkdir {models}/other/$((MILLRACE_UPDATE + 2))"
    report, told = update(*arguments, "--updates", 2, "--command", breaks, code=1)
    check_sums(report)
    assert "2 updates failed" in told and report["failed_updates"] == 2
    assert all(w["problem"] for w in report["windows"] if w["update"]) and report["run"]["failed"] == 0
    report, told = update(*arguments, code=1)
    assert report is None and "the first update of other failed" in told
    report, told = update(*arguments, "--command", "exit 3", code=1)
    assert report is None and "--command failed before update 0" in told


def test_wrong_command_lines(server):
    for arguments, word in (
        (["--rate", 5], "another model with --update"),
        (["--rate", 5, "--update", "simple"], "another model with --update"),
        (["--versions", "1,2"], "--rate R"),
        (["--rate", "5:10:5", "--versions", "1,2"], "--rate R"),
        (["--rate", 5, "--versions", "1,x"], "--versions '1,x'"),
        (["--rate", 5, "--versions", "1", "--command", "true"], "exclude"),
        (["--rate", 5, "--versions", "1", "--requests", 5], "--requests"),
        (["--rate", 5, "--versions", "1", "--control-url", "http://h/v2"], "'http://h/v2' is not the address of a host"),
    ):
        report, told = update("-m", "simple", "-u", server.url(), *arguments, code=2)
        assert report is None and word in told
    for arguments, word in ((["--versions", "1,2"], "go with"), (["updates"], "'updates': expected options, or 'update'")):
        done = subprocess.run([BIN, "perf", "-m", "simple", *arguments], capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
        assert done.returncode == 2 and word in done.stderr
    report, told = update("-m", "simple", "-u", server.url(), "--rate", 5, "--versions", "1", "--pid", 2**31 - 1, code=1)
    assert report is None and "no process" in told


def test_interrupt_ends_with_a_report(explicit):
    process = subprocess.Popen(command("-m", "m", "-u", explicit.url(), *SHORT, "--updates", 1000, "--versions", "1,2", "--json", "-"),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
    with Control(explicit) as control:
        wait.until(lambda: len(control.rest.get("/v2/models/m/versions").ok().json()["versions"]) >= 5, "some updates")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=wait.PATIENCE)
    assert process.returncode == 0, err
    report = json.loads(out)
    check_sums(report)
    assert 2 <= len(report["windows"]) < 100


class Blocking(other.Handler):
    """Answers no request while it loads, and does not report it."""

    def do_POST(self):
        self.body()
        with self.server.lock:
            if self.path.endswith("/load"):
                time.sleep(0.4)
        self.say(200, {"model_name": "m", "outputs": []})


@pytest.fixture
def blocking():
    with other.serving(Blocking) as server:
        yield server


def test_a_load_that_stops_the_server_shows(blocking):
    """Slots lie 20 ms apart, so 400 ms of stop keep (400 - 100) / 20 of them for more than 100 ms, in the load's phase. Other
    delays can only add to it."""
    report, _ = update("-m", "m", "-u", f"127.0.0.1:{blocking.server_port}", "--rate", 50, "--warmup", "100ms", "--window", "300ms",
                       "--update", "big", "--updates", 2)
    check_sums(report)
    assert not report["tells_states"]
    told = sums(report)
    assert {"unload", "load", "after"} == set(told) - {"quiet", "update"}
    for w in report["windows"]:
        if w["update"]:
            assert w["stall_ns"] >= 0.3e9
    slow = sum(n for upper, n in told["load"]["histogram"] if upper > 100e6)
    assert slow >= 2 * (300 // 20 - 2)
    assert told["load"]["latency_ns"]["max"] >= 0.3e9 and told["load"]["stall_ns"] >= 0.3e9

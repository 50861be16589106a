"""Warm-up: samples of model_warmup, or made-up requests, run on every instance before a model is ready, and are not the
clients' business."""
import os
import signal
import threading

import numpy as np
import pytest

from lib import repo, wait
from lib.control import Control
from lib.workers import is_alive, pids, workers


def sample(name="sample", batch=1, count=0, data="zero_data: true", dims="[4]"):
    return (f'model_warmup {{ name: "{name}" batch_size: {batch} {f"count: {count}" if count else ""} '
            f'inputs {{ key: "INPUT0" value {{ data_type: TYPE_INT32 dims: {dims} {data} }} }} }}\n')


@pytest.fixture
def load(models, start):
    """load(extra, **config): a Control of a server whose model `m` has that config."""
    made = []

    def run(extra, files=None, **kw):
        repo.add(models, "m", repo.config(backend="fault", extra=extra, **{"max_batch_size": 8, **kw}), files=files)
        made.append(Control(start(models)))
        return made[-1]

    yield run
    [c.close() for c in made]


def ask(c):
    return c.rest.infer("m", [("INPUT0", "INT32", [1, 4], [1, 2, 3, 4])])


@pytest.mark.parametrize("extra, instances, runs", [
    (sample(), 1, 1), (sample(count=3), 1, 3), (sample("a") + sample("b", count=2), 1, 3), (sample(count=2), 3, 6)],
    ids=["one", "three times", "two samples", "three instances"])
def test_every_sample_runs_on_every_instance(load, extra, instances, runs):
    """The model fails at execution number runs + 1: the first one of a client."""
    c = load(extra + f"instance_group {{ count: {instances} kind: KIND_CPU }}",
             parameters={"fail_every": runs + 1, "fail_status": "NOT_FOUND"})
    assert ask(c).status == 404
    assert ask(c).status == 200


@pytest.mark.parametrize("data", ["zero_data: true", "random_data: true"])
def test_made_up_data(load, data):
    assert ask(load(sample(data=data, batch=8))).status == 200


def test_data_of_a_file(load):
    blob = np.arange(4, dtype="<i4").tobytes()
    assert ask(load(sample(data='input_data_file: "four.bin"'), files={"warmup/four.bin": blob})).status == 200


def test_model_without_batching(load):
    c = load(sample(batch=0), max_batch_size=0)
    assert c.rest.infer("m", [("INPUT0", "INT32", [4], [1, 2, 3, 4])]).status == 200


def test_warm_up_is_not_counted(load):
    c = load(sample(count=5))
    (s,) = c.stats("m")
    assert s["inference_count"] == s["execution_count"] == s["inference_stats"]["success"]["count"] == 0
    assert s["last_inference"] == 0
    assert c.rest.infer("m", [("INPUT0", "FP32", [1, 4], [1, 2, 3, 4])]).status == 400
    (s,) = c.stats("m")
    assert s["inference_stats"]["fail"]["count"] == 1 and s["last_inference"] == 0, "a request that did not run"


def test_strings(models, start):
    repo.add(models, "m", max_batch_size=2, inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")],
             extra='model_warmup { name: "s" batch_size: 2 inputs { key: "INPUT0" value { data_type: TYPE_STRING dims: [3] zero_data: true } } }')
    with Control(start(models)) as c:
        assert c.model_ready("m")


def test_onnx(models, start):
    repo.stock(models, "simple")
    config = models / "simple" / "config.pbtxt"
    config.write_text(config.read_text() + 'model_warmup { name: "s" batch_size: 8 ' + "".join(
        f'inputs {{ key: "INPUT{i}" value {{ data_type: TYPE_INT32 dims: [16] random_data: true }} }} ' for i in (0, 1)) + "}")
    with Control(start(models)) as c:
        assert c.model_ready("simple") and c.stats("simple")[0]["execution_count"] == 0


# ---- by default: made-up requests ----

AMPLE = ("--start-warmup-time=600", "--default-warmup-time=600")  # for what the models of a start share, and for each


class Seen:
    """What a model saw, by the fault backend's own word: (instance, rows, first bytes of the input) of each execution."""

    def __init__(self, folder):
        self.path = folder / "trace"

    @property
    def parameters(self):
        return {"warmup": "true", "trace": self.path}

    def runs(self):
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(int(i), int(rows), bytes.fromhex(first[0] if first else "")) for i, rows, *first in map(str.split, lines)]


@pytest.fixture
def seen(tmp_path):
    return Seen(tmp_path)


def add(models, seen, max_batch_size=8, extra="", **parameters):
    repo.add(models, "m", repo.config(backend="fault", max_batch_size=max_batch_size, extra=extra,
                                      parameters={**seen.parameters, **parameters}))


def test_default_warm_up(models, start, seen):
    """Every size on every instance, zeros and random values by turns, without an effect on others."""
    add(models, seen, extra="instance_group { count: 2 kind: KIND_CPU } dynamic_batching { preferred_batch_size: [ 4 ] }")
    with Control(start(models, *AMPLE)) as c:
        runs = seen.runs()
        for instance in (0, 1):
            for rows in (1, 4, 8):
                mine = [first for i, r, first in runs if (i, r) == (instance, rows)]
                assert 2 <= len(mine) <= 10
                assert all(first == bytes(4 * rows) for first in mine[::2])
                assert all(set(first) <= {0, 1} and len(first) == 4 * rows for first in mine[1::2])
        assert {rows for _, rows, _ in runs} == {1, 4, 8}
        (s,) = c.stats("m")
        assert s["inference_count"] == s["execution_count"] == s["inference_stats"]["success"]["count"] == 0
        assert s["last_inference"] == 0
        assert c.rest.infer("m", [("INPUT0", "INT32", [1, 1], [7])]).status == 200
        assert len(seen.runs()) == len(runs) + 1


@pytest.mark.parametrize("placement", ["thread", "process"])
def test_each_instance_is_warmed_up(models, start, seen, tmp_path, placement):
    add(models, seen, extra="instance_group { count: 3 kind: KIND_CPU } " + sample(count=5, dims="[1]"), execution_placement=placement)
    start(models, f"--worker-directory={tmp_path}")
    assert sorted(instance for instance, _, _ in seen.runs()) == [0] * 5 + [1] * 5 + [2] * 5


@pytest.mark.parametrize("elements", [1, 100_000])
def test_a_worker_that_replaces_another(models, start, seen, tmp_path, elements):
    """Runs each of the samples once before it takes waiting requests."""
    extra = "".join(sample(name, batch=rows, count=3, dims=f"[{elements}]") for name, rows in (("a", 1), ("b", 2)))
    add(models, seen, extra=extra, execution_placement="process")
    server = start(models, f"--worker-directory={tmp_path}")
    with Control(server) as c:
        assert [rows for _, rows, _ in seen.runs()] == [1] * 3 + [2] * 3
        for deaths in (1, 2):
            pid, = wait.until(lambda: pids(server, "m"), "a worker")
            os.kill(pid, signal.SIGKILL)
            wait.until(lambda: not is_alive(pid), "the worker's end")
            assert c.rest.infer("m", [("INPUT0", "INT32", [3, 1], [7, 8, 9])]).status == 200
            assert [rows for _, rows, _ in seen.runs()] == [1] * 3 + [2] * 3 + [1, 2, 3] * deaths


def test_a_standby_worker(models, start, seen, hold, tmp_path):
    """Has run the samples when a worker dies: no warm-up comes between the death and the next answer."""
    add(models, seen, extra=sample("a", batch=1, count=3, dims="[1]") + sample("b", batch=2, dims="[1]"), execution_placement="process",
        worker_standby="1", **hold.loading)
    hold.end()
    server = start(models, f"--worker-directory={tmp_path}")
    expected = [1, 1, 1, 2]
    with Control(server) as c:
        for _ in range(2):
            wait.equal(lambda: sorted(w["state"] for w in workers(server, "m")), ["ready", "standby"])
            expected += [1, 2]
            assert [rows for _, rows, _ in seen.runs()] == expected
            hold.path.touch()  # no further process loads the model
            pid, = pids(server, "m")
            os.kill(pid, signal.SIGKILL)
            assert c.rest.infer("m", [("INPUT0", "INT32", [3, 1], [7, 8, 9])]).status == 200
            expected += [3]
            assert [rows for _, rows, _ in seen.runs()] == expected
            hold.end()


def test_a_standby_worker_of_several_instances(models, start, seen, tmp_path):
    """Does not know which of them it will run: it runs the samples as that one, once a worker has died."""
    add(models, seen, extra="instance_group { count: 2 kind: KIND_CPU } " + sample(dims="[1]"), execution_placement="process", worker_standby="1")
    server = start(models, f"--worker-directory={tmp_path}")
    wait.equal(lambda: sorted(w["state"] for w in workers(server, "m")), ["ready", "ready", "standby"])
    instances = lambda: [i for i, _, _ in seen.runs()]
    assert instances() == [0, 1]
    os.kill(workers(server, "m")[1]["pid"], signal.SIGKILL)
    wait.equal(instances, [0, 1, 1])


@pytest.mark.parametrize("options, parameters, extra, expected", [
    (["--default-warmup-time=0"], {}, "", 0),
    ([], {"millrace.default_warmup": "false"}, "", 0),
    ([], {"warmup": "false"}, "", 0),
    ([], {}, sample(count=3, dims="[1]"), 3)], ids=["option", "parameter", "backend", "model_warmup"])
def test_no_default_warm_up(models, start, seen, options, parameters, extra, expected):
    add(models, seen, extra=extra, **parameters)
    start(models, *AMPLE, *options)
    assert len(seen.runs()) == expected


def test_made_up_requests_that_fail_do_no_harm(models, start, seen):
    add(models, seen, fail_status="INVALID", fail_message="no such word")
    server = start(models, *AMPLE)
    with Control(server) as c:
        assert c.model_ready("m")
    assert [rows for _, rows, _ in seen.runs()] == [1, 8]
    (told,) = [e for e in server.events() if e["event"] == "model.warmup"]
    assert "no such word" in told["msg"]


def test_wrong_parameter(models, start, seen):
    add(models, seen, **{"millrace.default_warmup": "perhaps"})
    with Control(start(models, *AMPLE, mode="explicit")) as c:
        assert "millrace.default_warmup is 'perhaps'" in c.load("m").error


def endless(models, seen):
    """A model whose default warm-up would go on for a minute."""
    sizes = ", ".join(map(str, range(2, 8)))
    add(models, seen, extra=f"dynamic_batching {{ preferred_batch_size: [ {sizes} ] }}", delay_ms=3000)


def test_an_unload_ends_the_warm_up(models, start, seen):
    endless(models, seen)
    server = start(models, *AMPLE, "--default-warmup-time=1h", mode="explicit")
    answers = []

    def load():
        with Control(server) as other:
            answers.append(other.load("m").status)

    thread = threading.Thread(target=load)
    thread.start()
    with Control(server) as c:
        wait.until(seen.runs, "the first run")
        assert c.states("m") == {"1": "LOADING"}
        assert c.unload("m").status == 200
        thread.join()
        assert answers == [400]
        assert c.states("m") == {"1": "UNAVAILABLE"}
        wait.equal(lambda: {v["state"] for v in c.rest.get("/v2/models/m/versions").ok().json()["versions"]}, {"UNLOADED"})
    assert len(seen.runs()) < 15


def test_a_stop_ends_the_warm_up(models, start, seen):
    """Of a load that no client waits for: those are waited for like other calls."""
    server = start(models, *AMPLE, "--default-warmup-time=1h", "--repository-poll-secs=1", mode="poll")
    endless(models, seen)
    wait.until(seen.runs, "the first run")
    server.stop()
    assert len(seen.runs()) < 15


# ---- a start ----


def slow_models(models, tmp_path, count=3):
    """Models whose runs are not cheap; returns what each saw."""
    seen = [Seen(tmp_path / f"m{i}") for i in range(count)]
    for i, s in enumerate(seen):
        (tmp_path / f"m{i}").mkdir()
        repo.add(models, f"m{i}", repo.config(backend="fault", max_batch_size=8, parameters={**s.parameters, "delay_ms": 2}))
    return seen


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_a_start_waits_for_one_run_of_each_model(models, start, tmp_path, mode):
    seen = slow_models(models, tmp_path)
    options = ["--load-model=*"] if mode == "explicit" else []
    with Control(start(models, "--start-warmup-time=0", *options, mode=mode)) as c:
        assert [[rows for _, rows, _ in s.runs()] for s in seen] == [[1]] * 3
        if mode == "explicit":
            (models / "m0" / "config.pbtxt").write_text((models / "m0" / "config.pbtxt").read_text() + "\n# changed\n")
            assert c.load("m0").status == 200
            assert {rows for _, rows, _ in seen[0].runs()} == {1, 8}, "a load beside others takes its time"


def test_what_a_start_shares_is_for_all_together(models, start, tmp_path):
    """Three runs of 2 ms and more: one of each model, which is beyond what they share, so nothing comes after these."""
    seen = slow_models(models, tmp_path)
    with Control(start(models, "--start-warmup-time=1ms")):
        assert [len(s.runs()) for s in seen] == [1] * 3

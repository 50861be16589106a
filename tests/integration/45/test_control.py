"""Models in Python that load and unload others, and that have metrics of their own."""
import json
import os
import signal
from pathlib import Path

import pytest

from lib import pymodels, repo, wait
from lib.rest import Rest, infer_path
from lib.workers import pids, states

MODELS = Path(__file__).parent / "models"
TEXT = {"inputs": [repo.tensor("INPUT0", "TYPE_STRING", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_STRING", (1,))]}
EXPLICIT = ("--model-control-mode=explicit", "--load-model=m")


class Asked:
    def __init__(self, server, rest):
        self.server, self.rest = server, rest

    def __call__(self, word, model="m"):
        body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [word]}]}
        return self.rest.post(infer_path(model), json.dumps(body)).ok().json()["outputs"][0]["data"][0]

    def samples(self, name):
        with Rest(self.server.metrics) as rest:
            text = rest.get("/metrics").ok().body.decode()
        return [line for line in text.split("\n") if line.startswith(name)]

    def control(self, verb, model):
        return self.rest.post(f"/v2/repository/models/{model}/{verb}", "{}")


@pytest.fixture
def ask(models, start):
    pymodels.add(models, "m", MODELS / "controller.py", **TEXT)
    repo.add(models, "other", inputs=[repo.tensor("INPUT0", "TYPE_FP32")], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32")])

    def make(*options):
        server = start(models, *pymodels.options(), *(options or EXPLICIT))
        make.rests.append(Rest(server.http))
        return Asked(server, make.rests[-1])
    make.rests = []
    yield make
    for rest in make.rests:
        rest.close()


def test_load_and_unload(ask):
    m = ask()
    assert m("ready other") == "False"
    assert m("load other") == "loaded"
    assert [m("ready other"), m("ready other 1"), m("ready other 2"), m("ready nobody")] == ["True", "True", "False", "False"]
    assert m.rest.get("/v2/models/other/ready").status == 200
    assert m("unload other") == "unloaded"
    assert m("ready other") == "False"


def test_config_and_files(ask):
    m = ask()
    config = json.dumps({"name": "made", "backend": "python",
                         "input": [{"name": "INPUT0", "data_type": "TYPE_STRING", "dims": [1]}],
                         "output": [{"name": "OUTPUT0", "data_type": "TYPE_STRING", "dims": [1]}]})
    assert m(f"load_files made {config}") == "loaded"
    assert m("fill 3", model="made") == "2.0"
    assert m("ready made") == "True"


@pytest.mark.few(2)
@pytest.mark.parametrize("word,answer", [
    ("load nobody", "failed to load 'nobody', failed to poll from model repository"),
    ("load m", "model 'm' cannot load or unload itself"),
    ("unload m", "model 'm' cannot load or unload itself"),
    ("load other {", "failed to load 'other'"),
])
def test_refusals(ask, word, answer):
    m = ask()
    assert m(word).startswith("refused: " + answer), m(word)
    assert m("ready m") == "True"


def test_mode(ask):
    m = ask("--model-control-mode=none")
    assert "explicit" in m("load other") and m("load other").startswith("refused: ")


def test_load_while_it_is_loaded(ask, models):
    """initialize loads another model, with one place for loads; finalize unloads it."""
    (models / "m" / "needs_other").write_text("")
    m = ask("--model-control-mode=explicit", "--model-update-thread-count=1")
    m.control("load", "m").ok()
    assert m("ready other") == "True"
    m.control("unload", "m").ok()
    wait.until(lambda: m.rest.get("/v2/models/other/ready").status == 400)


def test_stopped_worker_ends_as_any_other(ask, models):
    """Its finalize runs, which unloads the other model: it goes on when it is to end, and is not killed later."""
    (models / "m" / "needs_other").write_text("")
    m = ask("--model-control-mode=explicit", "--model-update-thread-count=1")
    m.control("load", "m").ok()
    pid, = pids(m.server, "m")
    os.kill(pid, signal.SIGSTOP)
    wait.until(lambda: set(states(pid)) == {"T"}, "all threads to stand still")
    m.control("unload", "m").ok()
    wait.until(lambda: m.rest.get("/v2/models/other/ready").status == 400, "finalize to run")


def test_load_at_start_is_refused(ask, models):
    (models / "m" / "needs_other").write_text("")
    m = ask("--model-control-mode=explicit", "--load-model=m", "--exit-on-error=false")
    index = {e["name"]: e for e in m.rest.post("/v2/repository/index", "{}").ok().json()}
    assert "once the server has started" in index["m"]["reason"]


def test_too_few_threads(ask, models):
    (models / "m" / "needs_other").write_text("")
    m = ask("--model-control-mode=explicit", "--model-load-thread-count=1")
    assert "--model-load-thread-count=1 leaves no thread" in m.control("load", "m").error


# ---- metrics ----

def test_metrics(ask):
    m = ask()
    label = r'steps_total{stage="a \"b\""}'
    assert m.samples("steps_total") == [label + " 0"]
    assert m("count 2.5") == "2.5"
    assert m.samples("steps_total") == [label + " 2.5"]
    assert m("fill 4") == "3.0"
    assert m.samples("level") == ["level 3"]
    assert m.samples("# HELP level") == ["# HELP level Fill"]
    assert m.samples("# TYPE steps_total") == ["# TYPE steps_total counter"]
    m("observe 1 2 2.5 3")
    assert m.samples("sizes") == ['sizes_bucket{of="x",le="1"} 1', 'sizes_bucket{of="x",le="2.5"} 3',
                                  'sizes_bucket{of="x",le="+Inf"} 4', 'sizes_sum{of="x"} 8.5', 'sizes_count{of="x"} 4']


@pytest.mark.few(2)
@pytest.mark.parametrize("word,answer", [
    ("count -1", "metric 'steps_total' is a counter: its increment is 0 or more"),
    ("set_counter", "metric 'steps_total' is a counter: only a gauge is set"),
    ("bad nv_inference_count", "'nv_inference_count' cannot be the name of a metric"),
    ("bad a-b", "'a-b' cannot be the name of a metric"),
    ("other_kind", "there is a metric 'level' already, of another kind or with other buckets"),
])
def test_refused_metrics(ask, word, answer):
    assert ask()(word).startswith("refused: " + answer)


def test_metrics_are_shared_and_outlive_a_worker(ask, models):
    """Of two models, and after the death of a worker; they go with the last model."""
    pymodels.add(models, "n", MODELS / "controller.py", **TEXT)
    m = ask(*EXPLICIT, "--load-model=n")
    m("count 1")
    assert m("count 2", model="n") == "3.0"
    body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["die"]}]}
    m.rest.post(infer_path("m"), json.dumps(body))
    wait.until(lambda: m.rest.get("/v2/models/m/ready").status == 200)
    assert m("count 1") == "4.0"
    m.control("unload", "m").ok()
    assert m("count 1", model="n") == "5.0"
    m.control("unload", "n").ok()
    wait.until(lambda: m.samples("steps_total") == [])

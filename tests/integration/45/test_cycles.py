"""Models that ask each other in circles: each request ends, with an answer or with the error that says why."""
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lib import pymodels, repo
from lib.control import Control
from lib.models.graphs import ensemble, step
from lib.rest import Rest, infer_path
from lib.workers import pids

MODELS = Path(__file__).parent / "models"
TEXT = {"inputs": [repo.tensor("INPUT0", "TYPE_STRING", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_STRING", (1,))]}
WAITS = "would wait for itself"


@pytest.fixture
def start(start):
    def make(*args, **kw):
        return start(args[0], *pymodels.options(), *args[1:], **kw)
    return make


@pytest.fixture
def asked(models, start):
    """asked({model: instances}, extra): a server, and asked.ask(server, model, text)."""
    def make(counts, extra=""):
        for name, count in counts.items():
            pymodels.add(models, name, MODELS / "asked.py", extra=f"instance_group [ {{ count: {count} }} ]\n{extra}", **TEXT)
        return start(models)

    def ask(server, model, text, **parameters):
        with Rest(server.http) as rest:
            body = {"parameters": parameters, "inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [text]}]}
            return rest.post(infer_path(model), json.dumps(body)).ok().json()["outputs"][0]["data"][0]
    make.ask = ask
    return make


def nested(names, innermost="'end'"):
    """The expression that asks the models in turn."""
    text = innermost
    for name in reversed(names):
        text = f"call({name!r}, {text!r})"
    return text


def test_circle_of_three(asked):
    server = asked({"a": 1, "b": 1, "c": 1})
    for _ in range(2):
        assert WAITS in asked.ask(server, "a", nested("bca"))
        assert asked.ask(server, "a", nested("bc")) == "end"


def test_a_free_instance_answers_its_own_model(asked):
    server = asked({"a": 2})
    assert asked.ask(server, "a", nested("a")) == "end"
    assert WAITS in asked.ask(server, "a", nested("aa"))


def test_a_sequence_that_asks_itself(asked):
    """Its requests run one after the other, however many instances there are."""
    server = asked({"a": 2}, "sequence_batching { }")
    assert WAITS in asked.ask(server, "a", "call('a', \"'end'\", correlation_id=1)", sequence_id=1, sequence_start=True)
    assert asked.ask(server, "a", "1 + 1", sequence_id=1, sequence_end=True) == "2"


def test_circles_at_once(asked):
    """Two instances each, many circles at once in both directions: whichever come first, all end."""
    server = asked({"a": 2, "b": 2})
    first = pids(server, "a"), pids(server, "b")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: asked.ask(server, "ab"[i % 2], nested(["baba", "abab"][i % 2])), range(48)))
    assert all(a == "end" or WAITS in a for a in answers), answers
    assert asked.ask(server, "a", nested("b")) == "end"
    assert (pids(server, "a"), pids(server, "b")) == first


def test_calls_of_threads_in_circles(asked):
    """Two calls of one execution at once, both of which lead back to it."""
    server = asked({"a": 1, "b": 2})
    text = ("out = []\n"
            "def one():\n out.append(call('b', \"call('a', '1')\"))\n"
            "threads = [threading.Thread(target=one) for _ in range(2)]\n"
            "[t.start() for t in threads]\n[t.join() for t in threads]\n")
    answer = asked.ask(server, "a", text)
    assert answer.count(WAITS) == 2, answer


def test_calls_of_every_instance(asked):
    """The answer of a call goes to the worker that has made it."""
    server = asked({"a": 3, "b": 1})
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda i: asked.ask(server, "a", nested("b", str(i))), range(30))) == [str(i) for i in range(30)]


@pytest.mark.more
def test_depth(asked):
    """Sixteen calls one within the other, and no more."""
    names = [f"m{i}" for i in range(18)]
    server = asked({name: 1 for name in names})
    assert asked.ask(server, names[0], nested(names[1:17])) == "end"
    answer = asked.ask(server, names[0], nested(names[1:18]))
    assert "model 'm16' calls a model, and was called by 16 models one within the other: no more are allowed" in answer
    assert asked.ask(server, names[17], nested(names[1:17])) == "end"


@pytest.fixture
def graphs(models, asked):
    """graphs({model: instances}, {ensemble: its steps}): as asked, with ensembles, whose steps ask each other's answers in turn."""
    def make(counts, ensembles):
        for name, steps in ensembles.items():
            tensors = ["INPUT0", *(f"t{i}" for i in range(1, len(steps))), "OUTPUT0"]
            repo.add(models, name, ensemble(*(step(model, {"INPUT0": tensors[i]}, {"OUTPUT0": tensors[i + 1]})
                                              for i, model in enumerate(steps)), **TEXT))
        return asked(counts)
    make.ask = asked.ask
    return make


def test_an_ensemble_that_asks_its_caller(graphs):
    """As a step, as a step of a step, and as a later step; asked by a client, and by another model."""
    server = graphs({"m": 1, "n": 1}, {"e": ["m"], "f": ["e"], "late": ["n", "m"]})
    for _ in range(2):
        for name in ("e", "f"):
            assert WAITS in graphs.ask(server, "m", nested([name]))
            assert WAITS in graphs.ask(server, "n", nested(["m", name]))
            assert graphs.ask(server, "n", nested([name])) == "end"
            assert WAITS in graphs.ask(server, name, nested([name]))
        assert WAITS in graphs.ask(server, "m", nested(["late"], "'1 + 1'"))
        assert graphs.ask(server, "late", "'1 + 1'") == "2"


def test_a_free_instance_answers_the_ensemble_of_its_own_model(graphs):
    server = graphs({"m": 2}, {"e": ["m"]})
    assert graphs.ask(server, "m", nested(["e"])) == "end"
    assert WAITS in graphs.ask(server, "m", nested(["e", "e"]))
    assert WAITS in graphs.ask(server, "e", nested(["e", "m"]))


def test_circles_through_ensembles_at_once(graphs):
    """As many requests as there are instances, and more, in both directions: all end, and no instance is left waiting."""
    server = graphs({"a": 2, "b": 2}, {"ea": ["a"], "eb": ["b"]})
    first = pids(server, "a"), pids(server, "b")
    ways = [["eb", "ea", "b"], ["ea", "eb", "a"], ["b", "ea", "eb"], ["a", "eb", "ea"]]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: graphs.ask(server, "ab"[i % 2], nested(ways[i % 4])), range(48)))
    assert all(a == "end" or WAITS in a for a in answers), answers
    assert graphs.ask(server, "a", nested(["eb"])) == "end" and graphs.ask(server, "b", nested(["ea"])) == "end"
    assert (pids(server, "a"), pids(server, "b")) == first


LOADS = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        try:
            pb_utils.load_model("OTHER")
        except Exception as e:
            self.said = str(e)
        else:
            self.said = "loaded"

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([self.said], np.object_))]) for _ in requests]
""".replace("import triton", "import numpy as np\nimport triton", 1)


def loaded(server, *names):
    """All of these loads end, and one succeeds."""
    with ThreadPoolExecutor(len(names)) as pool:
        def load(name):
            with Control(server) as control:
                return control.load(name).status
        assert 200 in pool.map(load, names)


def said(server, model):
    with Rest(server.http) as rest:
        return rest.post(infer_path(model), json.dumps({"inputs": [
            {"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["x"]}]})).ok().json()["outputs"][0]["data"][0]


def test_models_that_load_each_other(models, start):
    for name, other in (("a", "b"), ("b", "a")):
        pymodels.add(models, name, LOADS.replace("OTHER", other), **TEXT)
    server = start(models, mode="explicit")
    loaded(server, "a", "b")
    assert any("waits for this one" in said(server, m) for m in "ab")


def test_model_that_loads_an_ensemble_of_it(models, start):
    pymodels.add(models, "a", LOADS.replace("OTHER", "e"), **TEXT)
    repo.add(models, "e", ensemble(step("a", {"INPUT0": "INPUT0"}, {"OUTPUT0": "OUTPUT0"}), **TEXT))
    server = start(models, mode="explicit")
    loaded(server, "a")
    assert "not available or ambiguous: a" in said(server, "a")
    loaded(server, "e")
    assert "not available or ambiguous: a" in said(server, "e")


LOADS_THREE = LOADS.replace('pb_utils.load_model("OTHER")', '[pb_utils.load_model(name) for name in ("one", "two", "three")]')


def test_model_that_loads_several(models, start):
    """It leaves its place among the loads for each, and takes it again."""
    for name in ("one", "two", "three", "four"):
        repo.add(models, name)
    pymodels.add(models, "a", LOADS_THREE, **TEXT)
    server = start(models, mode="explicit")
    loaded(server, "a")
    assert said(server, "a") == "loaded"
    with Control(server) as control:
        control.load("four").ok()
        assert [control.model_ready(m) for m in ("a", "one", "two", "three", "four")] == [True] * 5

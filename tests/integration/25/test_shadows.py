"""Shadows of nodes: copies of calls for another model, whose answers are compared and whose troubles no request has."""
import re

import pytest

from lib import repo, wait
from lib.control import Control
from lib.hold import Hold
from lib.metrics import node_events
from lib.models.graphs import adders, node, op, workflow
from lib.models.shares import spread
from lib.rest import Rest

INPUT = [("INPUT0", "INT32", [1], [3])]


def shadow(model, more='percent: 100 compare: "equal"'):
    return f'shadow {{ name: "next" model {{ name: "{model}" }} {more} }}'


def ask(server, count, model="w"):
    with Rest(server.http) as rest:
        return [rest.infer(model, INPUT).ok().json()["outputs"][0]["data"] for _ in range(count)]


@pytest.fixture
def serve(models, start):
    """serve(shadow's text, or None, name=parameters of a model of the fault backend) -> a server with a workflow `w`."""
    def make(text, *options, mode=None, extra="", **faulty):
        adders(models, one=1, ten=10)
        for name, parameters in faulty.items():
            repo.add(models, name, backend="fault", parameters=parameters)
        repo.add(models, "w", workflow(node("a", "one", outputs={"OUTPUT0": "t"}, extra=text), node("b", "ten", {"INPUT0": "t"}), extra=extra))
        return start(models, "--default-warmup-time=0", *options, **({"mode": mode} if mode else {}))

    return make


@pytest.mark.parametrize("model, wanted", [
    ("one", {"shadow": 5, "shadow_equal": 5}),
    ("ten", {"shadow": 5, "shadow_different": 5}),
    ("bad", {"shadow": 5, "shadow_failed": 5}),
    ("absent", {"shadow": 5, "shadow_failed": 5}),  # it need not exist
])
def test_what_is_compared(serve, model, wanted):
    server = serve(shadow(model), bad={"fail_status": "UNAVAILABLE"})
    assert ask(server, 5) == [[14]] * 5
    wait.equal(lambda: node_events(server), wanted, "the counts")


def test_a_share_of_the_calls(serve):
    server = serve(shadow("one", 'percent: 25 compare: "tolerance:0.5"'))
    ask(server, 40)
    count = sum(b < 2500 for b in spread(40))
    wait.equal(lambda: node_events(server), {"shadow": count, "shadow_equal": count}, "the counts")


def test_a_shadow_that_is_stuck(serve, tmp_path):
    hold = Hold(tmp_path)
    server = serve(shadow("slow", 'percent: 100 compare: "equal" max_queue: 1'), slow=hold.parameters)
    assert ask(server, 1) == [[14]]
    hold.wait_held()
    # one runs, one waits, and three are dropped; every request is answered
    assert ask(server, 4) == [[14]] * 4
    wait.equal(lambda: node_events(server), {"shadow": 5, "shadow_dropped": 3}, "the counts")
    hold.end()
    wait.equal(lambda: node_events(server), {"shadow": 5, "shadow_dropped": 3, "shadow_different": 2}, "the counts")


def test_unloaded_while_the_shadow_runs(serve, models, tmp_path, start):
    hold = Hold(tmp_path)
    server = serve(shadow("slow"), "--load-model=w", "--load-model=slow", mode="explicit", slow=hold.parameters)
    ask(server, 1)
    hold.wait_held()
    ask(server, 2)
    with Control(server) as control:
        control.unload("w").ok()
        wait.until(lambda: "model.unloaded" in server.err() and "shadow.ended" in server.err(), "the end of the workflow")
        hold.end()
        control.load("w").ok()
    assert ask(server, 1) == [[14]]


def test_fallbacks_have_none(serve):
    server = serve(shadow("one") + ' fallback { model { name: "ten" } }')
    ask(server, 3)
    wait.equal(lambda: node_events(server), {"shadow": 3, "shadow_equal": 3}, "the counts")


REFUSED = [
    ("shadow { }", "shadow of node 'a' must specify 'model'"),
    (shadow("one", "percent: 101"), "shadow of node 'a' has 'percent' 101, possible is 0 to 100"),
    (shadow("one", "percent: nan"), "shadow of node 'a' has 'percent' "),
    (shadow("one", 'compare: "edit_distance"'), "shadow of node 'a': compare 'edit_distance': possible are 'equal' and 'tolerance:NUMBER'"),
    (shadow("one", "max_queue: 5000"), "shadow of node 'a' has 'max_queue' 5000, possible is 1 to 4096"),
]


def test_what_is_refused(models, start):
    adders(models, one=1)
    for i, (text, _) in enumerate(REFUSED):
        repo.add(models, f"w{i}", workflow(node("a", "one", extra=text)))
    repo.add(models, "o", workflow(node("a", "one", outputs={"OUTPUT0": "t"}), op("c", "cast", {"x": "t"}, {"x": "OUTPUT0"}, shadow("one"), dtype="INT32")))
    with Control(start(models, mode="explicit")) as control:
        for i, (_, error) in enumerate(REFUSED):
            reply = control.load(f"w{i}")
            assert reply.status == 400 and re.search(error, reply.json()["error"]), reply.json()["error"]
        assert "node 'c' has 'shadow', which is for models" in control.load("o").json()["error"]

"""Second calls of nodes. The clock is the test's: it moves when the first call is known to be held."""
import json
import re
import threading

import pytest

from lib import repo, wait
from lib.control import Control
from lib.faults import PROGRAM, Faults
from lib.hold import Hold
from lib.metrics import node_events, value
from lib.models.graphs import adders, node, op, workflow
from lib.rest import Rest, as_input, infer_path

INPUT = [("INPUT0", "INT32", [2], [3, 4])]
HEDGE = "hedge { after_ms: 3600000 max_extra_percent: 50 }"
TWO = "instance_group [ { count: 2 kind: KIND_CPU } ]"


class Asked(threading.Thread):
    """A request that is under way."""

    def __init__(self, server, model, **kw):
        super().__init__()
        self.server, self.model, self.kw, self.reply = server, model, kw, None
        self.start()

    def run(self):
        with Rest(self.server.http) as rest:
            self.reply = rest.infer(self.model, INPUT, **self.kw)

    def answer(self):
        self.join(wait.PATIENCE)
        return self.reply


def failures(server, **labels):
    return value(server, "nv_inference_request_failure", model="m", **labels)


@pytest.fixture
def moved(models, start, tmp_path):
    """make(model's parameters, workflow's node) -> a server with a workflow `w` of a model `m`, and a function that moves its clock."""
    faults = Faults(tmp_path)

    def make(parameters, extra=HEDGE, instances=TWO, **kw):
        repo.add(models, "m", backend="fault", parameters=parameters, extra=instances)
        repo.add(models, "w", workflow(node("a", "m", extra=extra), **kw))
        server = start(models, "--loop-threads=1", "--default-warmup-time=0", env=faults.env, program=PROGRAM)
        return server, lambda seconds: faults.later(server, seconds)

    return make


def test_a_second_call_answers(moved, tmp_path):
    hold = Hold(tmp_path)
    server, later = moved(hold.parameters | {"stuck_first": 1})
    request = Asked(server, "w", parameters={"workflow.trace": True})
    hold.wait_held()
    assert node_events(server) == {}
    later(3601)
    answer = request.answer().ok().json()  # and the first call is still held
    assert answer["outputs"][0]["data"] == [3, 4]
    assert json.loads(answer["parameters"]["workflow.trace"])["nodes"][0]["calls"] == 2
    assert node_events(server) == {"second_call": 1, "second_call_won": 1}
    hold.end()
    # the call that lost has ended, and its model and the workflow serve on
    with Rest(server.http) as rest:
        assert rest.infer("w", INPUT).ok().json()["outputs"][0]["data"] == [3, 4]
    assert node_events(server) == {"second_call": 1, "second_call_won": 1}


ROWS = 'switch { name: "s" per: ROW input: "INPUT0" case { when: "INPUT0 > 2" node: "a" } else { node: "b" } }'


@pytest.mark.parametrize("extra, more", [('foreach { over: "INPUT0" }', {}), ("", {"more": node("b", "one") + ROWS})])
def test_a_second_call_for_rows_answers(models, start, tmp_path, extra, more):
    """Of each row its own, or of the rows of a branch. The calls that lost end alone, later."""
    faults, hold = Faults(tmp_path), Hold(tmp_path)
    adders(models, one=1)
    repo.add(models, "m", backend="fault", parameters=hold.parameters | {"stuck_first": 1}, extra=TWO)
    repo.add(models, "w", workflow(node("a", "m", extra=HEDGE + extra), more.get("more", "")))
    server = start(models, "--loop-threads=1", "--default-warmup-time=0", env=faults.env, program=PROGRAM)
    request = Asked(server, "w")
    hold.wait_held()
    if not more:  # the other row has its answer, so that only the held call is late
        wait.until(lambda: value(server, "nv_inference_request_success", model="m") == 1, "the other row's call")
    faults.later(server, 3601)
    assert request.answer().ok().json()["outputs"][0]["data"] == [3, 4]
    assert node_events(server) == {"second_call": 1, "second_call_won": 1}
    hold.end()
    with Rest(server.http) as rest:
        assert rest.infer("w", INPUT).ok().json()["outputs"][0]["data"] == [3, 4]


ENDLESS = {"async": 1, "max_pending": 4, "until_cancelled": "true"}


def executions(path, count):
    wait.until(lambda: path.exists() and len(path.read_text().splitlines()) == count, f"{count} executions")


def test_the_other_call_is_cancelled(moved, tmp_path):
    trace = tmp_path / "trace"
    server, later = moved(ENDLESS | {"stuck_first": 1, "trace": trace}, instances="")
    request = Asked(server, "w")
    executions(trace, 1)
    later(3601)
    assert request.answer().ok().json()["outputs"][0]["data"] == [3, 4]
    # the first execution ends because it was cancelled, and in no other way
    wait.until(lambda: failures(server, reason="CANCELED") == 1, "the end of the first call")


def test_clients_that_go_away(moved, tmp_path):
    trace = tmp_path / "trace"
    server, later = moved(ENDLESS | {"trace": trace}, instances="")
    with Rest(server.http) as rest:
        rest.connection.request("POST", infer_path("w"), body=json.dumps({"inputs": [as_input(INPUT[0])]}))
        executions(trace, 1)
        later(3601)
        executions(trace, 2)
    wait.until(lambda: failures(server, reason="CANCELED") == 2, "the end of both calls")


def test_the_first_call_may_answer_yet(moved, tmp_path):
    hold = Hold(tmp_path)
    server, later = moved(hold.parameters, instances=TWO)
    request = Asked(server, "w")
    hold.wait_held()
    later(3601)
    wait.until(lambda: node_events(server) == {"second_call": 1}, "the second call")
    hold.end()  # both go on, and whichever is first answers
    assert request.answer().ok().json()["outputs"][0]["data"] == [3, 4]
    assert node_events(server)["second_call"] == 1


def test_a_failure_waits_for_the_other_call(moved, tmp_path):
    hold = Hold(tmp_path)
    server, later = moved(hold.parameters | {"stuck_first": 1, "fail_every": 1, "fail_status": "UNAVAILABLE", "fail_message": "no luck"})
    request = Asked(server, "w")
    hold.wait_held()
    later(3601)
    # the second call has failed, and that is not the end
    wait.until(lambda: failures(server) == 1, "the failure of the second call")
    assert request.is_alive()
    hold.end()
    reply = request.answer()
    assert reply.status == 503 and "no luck" in reply.json()["error"]
    assert failures(server) == 2


def test_the_budget(moved, tmp_path):
    hold = Hold(tmp_path)
    four = TWO.replace("2", "4")
    server, later = moved(hold.parameters | {"stuck_first": 2}, extra=HEDGE.replace("50", "1"), instances=four)
    first = Asked(server, "w")
    hold.wait_held()
    hold.path.with_suffix(".held").unlink()
    later(3601)
    # of so few requests one second call is allowed: it is the second execution, and held as well
    hold.wait_held()
    second = Asked(server, "w")  # a third execution: it is not held
    assert second.answer().ok()
    hold.end()
    assert first.answer().ok()
    assert node_events(server)["second_call"] == 1


def test_a_time_that_is_measured(moved, tmp_path):
    hold = Hold(tmp_path)
    server, _ = moved({}, extra="hedge { after_quantile: 0.99 max_extra_percent: 100 }")
    with Rest(server.http) as rest:
        for _ in range(25):
            rest.infer("w", INPUT).ok()
    before = node_events(server).get("second_call", 0)
    request = Asked(server, "w", parameters=hold.parameters)
    wait.until(lambda: node_events(server).get("second_call", 0) > before, "a second call")
    hold.end()
    assert request.answer().ok().json()["outputs"][0]["data"] == [3, 4]


REFUSED = [
    ("hedge { }", "hedge of node 'a' must specify 'after_ms' or 'after_quantile'"),
    ("hedge { after_ms: 0 }", "hedge of node 'a' has an 'after_ms' that is not 1 to 3600000"),
    ("hedge { after_ms: 3600001 }", "hedge of node 'a' has an 'after_ms'"),
    ("hedge { after_quantile: 1 }", "hedge of node 'a' has an 'after_quantile' that is not between 0 and 1"),
    ("hedge { after_quantile: nan }", "hedge of node 'a' has an 'after_quantile'"),
    ("hedge { after_ms: 1 max_extra_percent: 101 }", "hedge of node 'a' has a 'max_extra_percent' that is not 0 to 100"),
]


def test_what_is_refused(models, start):
    adders(models, one=1)
    for i, (text, _) in enumerate(REFUSED):
        repo.add(models, f"w{i}", workflow(node("a", "one", extra=text)))
    repo.add(models, "o", workflow(node("a", "one", outputs={"OUTPUT0": "t"}), op("c", "cast", {"x": "t"}, {"x": "OUTPUT0"}, "hedge { after_ms: 1 }", dtype="INT32")))
    with Control(start(models, mode="explicit")) as control:
        for i, (_, error) in enumerate(REFUSED):
            reply = control.load(f"w{i}")
            assert reply.status == 400 and re.search(error, reply.json()["error"]), reply.json()["error"]
        assert "node 'c' has 'hedge', which is for models" in control.load("o").json()["error"]

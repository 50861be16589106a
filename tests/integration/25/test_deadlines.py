"""Time-outs and deadlines of workflows. The clock is the test's, and moves only when it is known what runs and what waits."""
import re
import threading

import pytest

from lib import repo, wait
from lib.control import Control
from lib.faults import PROGRAM, Faults
from lib.hold import Hold
from lib.metrics import value
from lib.models.graphs import adders, node, workflow
from lib.rest import Rest

INPUT = [("INPUT0", "INT32", [1], [3])]
ENDLESS = {"async": 1, "max_pending": 64, "until_cancelled": "true"}
DEFAULT = 'default { tensor: "OUTPUT0" int64: -1 }'
HOUR = 3600000


class Asked(threading.Thread):
    """A request that is under way."""

    def __init__(self, server, model="w"):
        super().__init__()
        self.server, self.model, self.reply = server, model, None
        self.start()

    def run(self):
        with Rest(self.server.http) as rest:
            self.reply = rest.infer(self.model, INPUT)

    def answer(self):
        self.join(wait.PATIENCE)
        return self.reply


class World:
    def __init__(self, models, start, folder):
        self.models, self._start, self.folder, self.faults = models, start, folder, Faults(folder)

    def model(self, name, parameters, extra=""):
        repo.add(self.models, name, backend="fault", parameters=parameters | {"trace": self.folder / f"{name}.trace"}, extra=extra)

    def workflow(self, *nodes, **kw):
        repo.add(self.models, "w", workflow(*nodes, **kw))

    def start(self):
        adders(self.models, one=1)
        self.server = self._start(self.models, "--loop-threads=1", "--default-warmup-time=0", env=self.faults.env, program=PROGRAM)
        return self.server

    def later(self, seconds):
        self.faults.later(self.server, seconds)

    def executions(self, model, count):
        path = self.folder / f"{model}.trace"
        wait.until(lambda: path.exists() and len(path.read_text().splitlines()) == count, f"{count} executions of {model}")

    def cancelled(self, model, count):
        wait.equal(lambda: value(self.server, "nv_inference_request_failure", model=model, reason="CANCELED"), count, "cancelled requests")


@pytest.fixture
def world(models, start, tmp_path):
    return World(models, start, tmp_path)


def test_a_time_out_ends_what_runs(world):
    world.model("m", ENDLESS)
    world.workflow(node("a", "m", extra=f"timeout_ms: {HOUR} {DEFAULT}"))
    request = Asked(world.start())
    world.executions("m", 1)
    world.later(3601)
    assert request.answer().ok().json()["outputs"][0]["data"] == [-1]
    world.cancelled("m", 1)


def test_a_time_out_says_so(world):
    world.model("m", ENDLESS)
    world.workflow(node("a", "m", extra=f"timeout_ms: {HOUR}"))
    request = Asked(world.start())
    world.executions("m", 1)
    world.later(3601)
    reply = request.answer()
    assert reply.status == 504 and "in workflow 'w', node 'a': Deadline Exceeded: the model was cancelled" in reply.error


def test_a_time_out_in_the_queue(world):
    hold = Hold(world.folder)
    world.model("m", hold.parameters)
    world.workflow(node("a", "m", extra=f"timeout_ms: {HOUR} {DEFAULT}"))
    server = world.start()
    first = Asked(server, "m")
    world.executions("m", 1)
    request = Asked(server)
    wait.until(lambda: value(server, "nv_inference_pending_request_count", model="m") == 1, "the request to be in the queue")
    world.later(3601)
    assert request.answer().ok().json()["outputs"][0]["data"] == [-1]
    hold.end()
    assert first.answer().ok()
    world.executions("m", 1)


def ramped(model, guard, extra):
    """A node that a request without a key gives to `model`, until the guard does not hold."""
    variants = (f'variant {{ name: "stable" model {{ name: "one" }} weight: 1 }} variant {{ name: "cand" model {{ name: "{model}" }} weight: 9999 '
                f'ramp {{ to: 10000 step: 1 every_s: 86400 min_samples: 1 guard: "{guard}" }} }}')
    return node("a", "", extra=extra).replace('model { name: "" }', f"split {{ {variants} }}")


def test_what_a_guard_counts(world):
    """Time-outs are failures, and the calls for the rows of a request are one request."""
    world.model("m", ENDLESS)
    world.workflow(ramped("m", "err < 0.5", f"timeout_ms: {HOUR}"))
    repo.add(world.models, "rows", workflow(ramped("ten", "count < 6", 'foreach { over: "INPUT0" }')))
    adders(world.models, ten=10)
    server = world.start()

    def rows():
        with Rest(server.http) as rest:
            return rest.infer("rows", [("INPUT0", "INT32", [5], [1, 2, 3, 4, 5])]).ok().json()["outputs"][0]["data"][0]

    request = Asked(server)
    world.executions("m", 1)
    assert rows() == 11
    world.later(3601)
    assert request.answer().status == 504
    assert Asked(server).answer().ok().json()["outputs"][0]["data"] == [4]  # of the other variant
    assert [rows(), rows()] == [11, 11]  # the end of the first of them has looked at the guard, at two requests
    [rows() for _ in range(3)]
    world.later(1)
    rows()
    assert rows() == 2


def test_a_repetition_after_a_time_out(world):
    world.model("m", ENDLESS | {"stuck_first": 1})
    world.workflow(node("a", "m", extra=f"timeout_ms: {HOUR} retry {{ attempts: 2 on: TIMEOUT budget_percent: 100 }}"))
    request = Asked(world.start())
    world.executions("m", 1)
    world.later(3601)
    assert request.answer().ok().json()["outputs"][0]["data"] == [3]
    world.executions("m", 2)


def test_the_deadline_of_the_whole(world):
    world.model("m", ENDLESS)
    world.workflow(node("a", "one", outputs={"OUTPUT0": "t"}), node("b", "m", {"INPUT0": "t"}), extra=f"deadline_ms: {HOUR}")
    request = Asked(world.start())
    world.executions("m", 1)
    world.later(3601)
    reply = request.answer()
    assert reply.status == 504 and "node 'b': Deadline Exceeded" in reply.error
    world.cancelled("m", 1)


def test_the_deadline_comes_before_a_model_that_runs_at_once(world):
    """It has no queue that refuses what would begin too late."""
    stuck = Hold(world.folder)
    stuck.end()
    world.model("z", stuck.parameters)
    world.workflow(node("a", "z", outputs={"OUTPUT0": "t"}), node("b", "one", {"INPUT0": "t"}), extra=f"deadline_ms: {HOUR}")
    server = world.start()
    with Rest(server.http) as rest:
        for _ in range(20):
            rest.infer("one", INPUT).ok()
    stuck.path.with_suffix(".held").unlink(missing_ok=True)
    stuck.path.touch()
    request = Asked(server)
    stuck.wait_held()
    world.later(3601)
    stuck.end()
    reply = request.answer()
    assert reply.status == 504 and "Deadline Exceeded" in reply.error


def test_a_failure_ends_what_runs_beside_it(world):
    hold = Hold(world.folder)
    world.model("m", ENDLESS)
    world.model("bad", hold.parameters | {"fail_status": "UNAVAILABLE", "fail_message": "no luck"})
    world.workflow(node("a", "m"), node("b", "bad", outputs={"OUTPUT0": "OUTPUT1"}), outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")])
    request = Asked(world.start())
    world.executions("m", 1)
    hold.wait_held()
    hold.end()
    reply = request.answer()
    assert reply.status == 503 and "in workflow 'w', node 'b': no luck" in reply.error
    world.cancelled("m", 1)


def _folder(world, name):
    (world.folder / name).mkdir()
    return world.folder / name


def test_what_follows_a_node_needs_its_time(world):
    """b takes 600 s of the test's clock, far more than the longest time that is measured; a begins when 100 s are left."""
    slow, stuck = Hold(_folder(world, "slow")), Hold(_folder(world, "stuck"))
    stuck.end()
    world.model("z", stuck.parameters)
    world.model("b", {"async": 1, "max_pending": 64} | slow.parameters)
    world.workflow(node("z", "z", outputs={"OUTPUT0": "t"}), node("a", "one", {"INPUT0": "t"}, {"OUTPUT0": "u"}),
                   node("b", "b", {"INPUT0": "u"}), extra="deadline_ms: 1000000")
    server = world.start()
    first = [Asked(server) for _ in range(20)]
    world.executions("b", 20)
    world.later(600)
    slow.end()
    assert all(a.answer().ok() for a in first)
    assert all(Asked(server).answer().ok() for _ in range(16))  # b is quick now, as it is for less than half of all

    def late_at_a():
        stuck.path.with_suffix(".held").unlink()
        stuck.path.touch()
        request = Asked(server)
        stuck.wait_held()
        world.later(900)
        stuck.end()
        return request.answer()

    reply = late_at_a()
    assert reply.status == 504
    assert re.search(r"node 'a': Deadline Exceeded: the nodes after it usually take 1\d{5} ms, and \d{2,5} ms are left", reply.error)
    world.executions("b", 36)
    # b has not run for a while, so it may be quick by now
    assert all(Asked(server).answer().ok() for _ in range(11))
    world.later(3)
    assert late_at_a().ok()
    world.executions("b", 48)


LINTED = [
    (f"deadline_ms: 250", 100, True),
    (f"deadline_ms: 300", 100, False),
    (f"deadline_ms: 100", 0, False),
    (f"", 100, False),
]


def test_time_outs_longer_than_the_deadline(models, start):
    adders(models, one=1)
    for i, (extra, ms, _) in enumerate(LINTED):
        time = f"timeout_ms: {ms} " if ms else ""
        repo.add(models, f"w{i}", workflow(node("a", "one", outputs={"OUTPUT0": "t"}, extra=time), node("x", "one", outputs={"OUTPUT0": "s"}, extra=time),
                                           node("b", "one", {"INPUT0": "t"}, extra=time + "retry { attempts: 2 }" if ms else ""), extra=extra))
    server = start(models, mode="explicit")
    with Control(server) as control:
        for i, (_, _, is_warned) in enumerate(LINTED):
            control.load(f"w{i}").ok()
    found = [e for e in server.events() if e.get("event") == "workflow.deadline"]
    assert [e["model"] for e in found] == [f"w{i}" for i, (_, _, is_warned) in enumerate(LINTED) if is_warned]
    assert "node 'b': the time-outs up to its end, with repetitions and fallbacks, are 300 ms on the longest way (from the end: b, a)" in found[0]["msg"]

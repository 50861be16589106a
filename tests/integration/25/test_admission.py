"""Admission: how many requests of a workflow are under way. Which of them run is known from the model's own trace."""
import threading

import grpc
import pytest

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.faults import PROGRAM, Faults
from lib.hold import Hold
from lib.metrics import node_events
from lib.models.graphs import adders, node, workflow
from lib.rest import Rest, as_input, infer_path

INPUT = [("INPUT0", "INT32", [2], [3, 4])]


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
        self.models, self.start, self.hold, self.trace = models, start, Hold(folder), folder / "trace"
        self.faults = Faults(folder)

    def serve(self, admission, extra=""):
        """A workflow `w` of a model whose executions are held, eight at most at once."""
        repo.add(self.models, "m", backend="fault", parameters=self.hold.parameters | {"trace": self.trace},
                 extra="instance_group [ { count: 8 kind: KIND_CPU } ]")
        repo.add(self.models, "w", workflow(node("a", "m"), extra=f"admission {{ {admission} }} {extra}"))
        self.server = self.start(self.models, "--loop-threads=1", "--default-warmup-time=0", env=self.faults.env, program=PROGRAM)
        return self.server

    def executions(self, count):
        wait.until(lambda: self.trace.exists() and len(self.trace.read_text().splitlines()) == count, f"{count} executions")


@pytest.fixture
def world(models, start, tmp_path):
    return World(models, start, tmp_path)


@pytest.mark.parametrize("admission, count", [("max_inflight: 1", 1), ("max_inflight: 2", 2), ("max_bytes: 1", 1),
                                              ("max_inflight: 4 max_bytes: 1", 1)])
def test_requests_wait(world, admission, count):
    server = world.serve(admission)
    asked = [Asked(server) for _ in range(5)]
    wait.equal(lambda: node_events(server), {"admission_waited": 5 - count}, "the counts")
    world.executions(count)
    world.hold.end()
    for a in asked:
        assert a.answer().ok().json()["outputs"][0]["data"] == [3, 4]
    world.executions(5)


def test_requests_are_refused(world):
    server = world.serve("max_inflight: 1 on_full: REJECT")
    first = Asked(server)
    world.executions(1)
    reply = Asked(server).answer()
    assert reply.status == 503 and reply.headers["retry-after"] == "1"
    assert reply.error == ("in workflow 'w', as many requests are under way as its admission "
                           "allows (1); try later")
    with grpcraw.Grpc(server.url("grpc")) as client, pytest.raises(grpc.RpcError) as failure:
        client.infer(grpcraw.int32("w", [3, 4]))
    assert failure.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(failure.value.trailing_metadata()) == {"grpc-retry-pushback-ms": "1000"}
    world.hold.end()
    assert first.answer().ok()
    assert Asked(server).answer().ok()
    assert node_events(server) == {"admission_refused": 2}


def test_a_bounded_queue(world):
    server = world.serve("max_inflight: 1 max_queue: 2")
    asked = [Asked(server) for _ in range(3)]
    wait.equal(lambda: node_events(server), {"admission_waited": 2}, "the counts")
    reply = Asked(server).answer()
    assert reply.status == 503 and "as many requests wait as its admission allows (2)" in reply.error
    world.hold.end()
    assert all(a.answer().ok() for a in asked)


def test_who_goes_away_while_waiting(world):
    server = world.serve("max_inflight: 1 max_queue: 1")
    first = Asked(server)
    world.executions(1)
    with Rest(server.http) as rest:
        rest.connection.request("POST", infer_path("w"), body='{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}')
        wait.equal(lambda: node_events(server), {"admission_waited": 1}, "the counts")
    # its place in the queue becomes free
    second = wait.until(lambda: (a := Asked(server, "w")) and _waits(server, a), "a place in the queue")
    world.hold.end()
    assert first.answer().ok() and second.answer().ok()
    world.executions(2)  # and it was not run


def _waits(server, asked):
    """The request, if it waits; None if it was refused."""
    wait.until(lambda: not asked.is_alive() or node_events(server).get("admission_waited") == 2, "the request to wait, or its refusal")
    return asked if asked.is_alive() else None


def test_a_deadline_ends_the_wait(world):
    server = world.serve("max_inflight: 1", extra="deadline_ms: 3600000")
    first = Asked(server)
    world.executions(1)
    second = Asked(server)
    wait.equal(lambda: node_events(server), {"admission_waited": 1}, "the counts")
    world.faults.later(server, 3601)
    reply = second.answer()
    assert reply.status == 504 and "in workflow 'w', Deadline Exceeded: the request waited for others to end" in reply.error
    world.hold.end()
    assert first.answer()
    world.executions(1)


def test_a_workflow_within_a_workflow(world):
    """The inner one's requests wait, whatever the outer one allows."""
    repo.add(world.models, "outer", workflow(node("n", "w"), extra="admission { max_inflight: 3 }"))
    server = world.serve("max_inflight: 1")
    asked = [Asked(server, "outer") for _ in range(5)]
    wait.equal(lambda: (node_events(server, "outer"), node_events(server)), ({"admission_waited": 2}, {"admission_waited": 2}), "the counts")
    world.executions(1)
    world.hold.end()
    assert all(a.answer().ok() for a in asked)


REFUSED = [
    ("admission { }", "admission must specify 'max_inflight' or 'max_bytes'"),
    ("admission { max_inflight: 1 max_queue: 1000001 }", "admission has 'max_queue' 1000001, possible is 1 to 1000000"),
]


def test_what_is_refused(models, start):
    adders(models, one=1)
    for i, (text, _) in enumerate(REFUSED):
        repo.add(models, f"w{i}", workflow(node("a", "one"), extra=text))
    with Control(start(models, mode="explicit")) as control:
        for i, (_, error) in enumerate(REFUSED):
            assert error in control.load(f"w{i}").json()["error"]

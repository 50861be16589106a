"""Scheduling: dynamic batching, queue policies, priorities, order, instances, and their statistics.

TRITONSERVER_DELAY_SCHEDULER=n makes a scheduler hold everything until n requests wait, so that the rule under
test forms a batch and not the clock.
"""
import threading

import grpc
import numpy as np
import pytest

from lib import grpcraw, onnxgen, repo, wait
from lib.control import Control
from lib.grpcraw import Grpc
from lib.hold import Hold
from lib.metrics import samples, value
from lib.rest import Rest

Code = grpc.StatusCode


# Requests of the second level may set their own timeout in the queue.
CLOCK = """priority_levels: 2 default_priority_level: 1
    priority_queue_policy { key: 2 value { allow_timeout_override: true default_timeout_microseconds: 3600000000 } }"""


class Scheduled:
    """A server with one model `m`, and clients that count what it does."""

    def __init__(self, server, hold):
        self.server, self.hold = server, hold
        self.grpc = Grpc(server.url("grpc"))
        self.rest = Rest(server.http)

    def close(self):
        self.grpc.close()
        self.rest.close()

    def send(self, values, rows=1, **kw):
        """A future; the request has `rows` rows of the width of `values`."""
        timeout = kw.pop("deadline", wait.PATIENCE)
        shape = [rows, len(values)] if rows else [len(values)]
        array = np.array(list(values) * max(rows, 1), "<i4")
        message = grpcraw.request("m", [("INPUT0", "INT32", shape, None)], raw=[array.tobytes()], **kw)
        return self.grpc.stub.ModelInfer.future(message, timeout=timeout)

    def pending(self, count):
        wait.until(lambda: value(self.server, "nv_inference_pending_request_count", model="m") == count, f"{count} waiting requests")

    def over(self, microseconds):
        """With CLOCK: until the time of whatever came before, and has so much, is over for the scheduler."""
        code, text = error(self.send([1], parameters={"priority": 2, "timeout": microseconds}))
        assert code == Code.UNAVAILABLE and "Request timeout expired" in text

    def sizes(self):
        """{batch size: executions}"""
        (s,) = self.rest.stats("m")
        return {b["batch_size"]: b["compute_infer"]["count"] for b in s["batch_stats"]}

    def wait_sizes(self, sizes):
        wait.until(lambda: self.sizes() == sizes, f"the batch sizes {sizes}")

    def reasons(self):
        return {l["reason"]: v for l, v in samples(self.server, "millrace_batch_close_total") if l["model"] == "m" and v}

    def failures(self):
        return {l["reason"]: v for l, v in samples(self.server, "nv_inference_request_failure") if l["model"] == "m" and v}


def numbers(future):
    return np.frombuffer(future.result().raw_output_contents[0], "<i4").tolist()


def error(future):
    e = future.exception()
    assert e is not None, f"no error but {future.result()}"
    return e.code(), e.details()


@pytest.fixture
def scheduled(models, start, request):
    made = []
    gate = request.getfixturevalue("hold")

    def make(batching="", max_batch_size=8, hold=0, options=(), **kw):
        extra = (f"dynamic_batching {{ {batching} }}\n" if batching is not None else "") + kw.pop("extra", "")
        repo.add(models, "m", **{"backend": "fault", "max_batch_size": max_batch_size, "extra": extra, **kw})
        env = {"TRITONSERVER_DELAY_SCHEDULER": str(hold)} if hold else None
        made.append(Scheduled(start(models, *options, env=env), gate))
        return made[-1]

    yield make
    [s.close() for s in made]


# ---- forming ----

def check_batch(s, futures, sizes):
    assert [numbers(f)[0] for f in futures] == list(range(len(futures))), "each got the answer to its own question"
    s.wait_sizes(sizes)


def test_without_batching_one_by_one(scheduled):
    s = scheduled(None, hold=6)
    check_batch(s, [s.send([i, i]) for i in range(6)], {1: 6})
    assert s.reasons() == {"single": 6}


def test_full_batch(scheduled):
    s = scheduled(hold=8)
    check_batch(s, [s.send([i, i]) for i in range(8)], {8: 1})
    assert s.reasons() == {"full": 1}


def test_what_is_there(scheduled):
    s = scheduled(hold=5)
    check_batch(s, [s.send([i]) for i in range(5)], {5: 1})


def test_more_than_a_batch(scheduled):
    s = scheduled(hold=11)
    check_batch(s, [s.send([i]) for i in range(11)], {8: 1, 3: 1})


def test_requests_with_rows(scheduled):
    s = scheduled(hold=3)
    check_batch(s, [s.send([i], rows=3) for i in range(3)], {6: 1, 3: 1})


def test_large_request_behind_small_ones(scheduled):
    s = scheduled(hold=3)
    futures = [s.send([0], rows=1), s.send([1], rows=8), s.send([2], rows=1)]
    check_batch(s, futures, {1: 2, 8: 1})


def test_preferred_size(scheduled):
    s = scheduled("preferred_batch_size: [4]", hold=8)
    check_batch(s, [s.send([i]) for i in range(8)], {4: 2})
    assert s.reasons().get("preferred") == 2


def test_largest_preferred_size_that_is_reached(scheduled):
    s = scheduled("preferred_batch_size: [2, 6]", hold=7)
    check_batch(s, [s.send([i]) for i in range(7)], {6: 1, 1: 1})


def test_shapes_that_differ(scheduled):
    s = scheduled(hold=4)
    futures = [s.send([0, 0]), s.send([1, 1]), s.send([2, 2, 2]), s.send([3, 3, 3])]
    check_batch(s, futures, {2: 2})
    assert s.reasons().get("shape") == 1


def test_optional_inputs_that_differ(scheduled):
    s = scheduled(hold=4, inputs=[repo.tensor("INPUT0"), repo.tensor("INPUT1", extra="optional: true")])

    def both(i):
        raw = np.array([i], "<i4").tobytes()
        m = grpcraw.request("m", [("INPUT0", "INT32", [1, 1], None), ("INPUT1", "INT32", [1, 1], None)], raw=[raw, raw])
        return s.grpc.stub.ModelInfer.future(m, timeout=wait.PATIENCE)

    check_batch(s, [s.send([0]), s.send([1]), both(2), both(3)], {2: 2})


def test_delay(scheduled):
    s = scheduled("max_queue_delay_microseconds: 100000")
    assert numbers(s.send([7])) == [7]
    s.wait_sizes({1: 1})
    assert set(s.reasons()) <= {"delay", "no_company"}


def test_exact_delay(scheduled):
    """As Triton's: a lone client waits each time, where the usual delay learns after a few that nothing comes."""
    s = scheduled("max_queue_delay_microseconds: 20000", options=["--batching-delay=exact"])
    for i in range(12):
        assert numbers(s.send([i])) == [i]
    s.wait_sizes({1: 12})
    assert s.reasons() == {"delay": 12}


def test_exact_delay_ends_when_the_batch_is_full(scheduled):
    s = scheduled("max_queue_delay_microseconds: 3600000000", hold=8, options=["--batching-delay=exact"])
    check_batch(s, [s.send([i]) for i in range(8)], {8: 1})


def test_delay_ends_when_the_batch_is_full(scheduled):
    """An hour of delay, and no request waits for it."""
    s = scheduled("max_queue_delay_microseconds: 3600000000", hold=8)
    check_batch(s, [s.send([i]) for i in range(8)], {8: 1})


def test_delay_ends_before_a_deadline_is_missed(scheduled):
    """By less than a stall of the machine: so by more after a stall."""
    s = scheduled("max_queue_delay_microseconds: 3600000000", hold=1)
    assert any(s.send([1], deadline=seconds).exception() is None for seconds in (3, 15, 60))


def test_strings_in_batches(scheduled):
    from lib.dtypes import BY_NAME, decode_bytes

    s = scheduled(hold=3, inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")])
    values = [["a", ""], ["bb" * 5000, "c"], ["é", "漢字"]]
    futures = [s.grpc.stub.ModelInfer.future(grpcraw.request(
        "m", [("INPUT0", "BYTES", [1, 2], None)], raw=[BY_NAME["BYTES"].encode(v)]), timeout=wait.PATIENCE) for v in values]
    assert [decode_bytes(f.result().raw_output_contents[0]) for f in futures] == [[x.encode() for x in v] for v in values]
    s.wait_sizes({3: 1})


def test_large_rows_in_batches(scheduled):
    s = scheduled(hold=4)
    futures = [s.send(range(i, i + 100_000)) for i in range(4)]
    assert [numbers(f) for f in futures] == [list(range(i, i + 100_000)) for i in range(4)]
    s.wait_sizes({4: 1})


def test_rest_and_grpc_share_a_batch(scheduled):
    s = scheduled(hold=2)
    future = s.send([5])
    reply = s.rest.infer("m", [("INPUT0", "INT32", [1, 1], [6])])
    assert reply.ok().json()["outputs"][0]["data"] == [6] and numbers(future) == [5]
    s.wait_sizes({2: 1})


def test_some_want_fewer_outputs(scheduled):
    io = dict(inputs=[repo.tensor("INPUT0"), repo.tensor("INPUT1")], outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")])
    s = scheduled(hold=2, **io)

    def ask(i, outputs):
        m = grpcraw.request("m", [(n, "INT32", [1, 1], None) for n in ("INPUT0", "INPUT1")], outputs=outputs,
                            raw=[np.array([i + k], "<i4").tobytes() for k in (0, 10)])
        return s.grpc.stub.ModelInfer.future(m, timeout=wait.PATIENCE)

    one, two = ask(1, ["OUTPUT1"]), ask(2, [])
    assert [o.name for o in one.result().outputs] == ["OUTPUT1"] and numbers(one) == [11]
    assert [o.name for o in two.result().outputs] == ["OUTPUT0", "OUTPUT1"]
    assert np.frombuffer(two.result().raw_output_contents[1], "<i4").tolist() == [12]
    s.wait_sizes({2: 1})


# ---- failures in a batch ----

def test_whole_batch_fails(scheduled):
    s = scheduled(hold=3)
    futures = [s.send([i], parameters={"fail_status": "NOT_FOUND"}) for i in range(3)]
    assert [error(f)[0] for f in futures] == [Code.NOT_FOUND] * 3
    wait.until(lambda: s.failures() == {"BACKEND": 3}, "the failures to be counted")


def test_one_of_a_batch_fails(scheduled):
    s = scheduled(hold=3)
    futures = [s.send([i], parameters={"fail_request": 1, "fail_status": "NOT_FOUND"}) for i in range(3)]
    assert error(futures[1])[0] == Code.NOT_FOUND
    assert (numbers(futures[0]), numbers(futures[2])) == ([0], [2])
    wait.until(lambda: s.failures() == {"BACKEND": 1}, "the failure to be counted")


@pytest.mark.parametrize("fault", ["wrong_rows", "wrong_dtype", "wrong_size", "negative_dim", "missing_output"])
def test_model_that_breaks_its_word_in_a_batch(scheduled, fault):
    s = scheduled(hold=3)
    futures = [s.send([i], parameters={fault: True}) for i in range(3)]
    assert [error(f)[0] for f in futures] == [Code.INTERNAL] * 3
    assert numbers(s.send([9])) == [9]


def test_cancelled_while_others_of_the_batch_wait(scheduled):
    s = scheduled(hold=4)
    gone = s.send([0])
    s.pending(1)
    gone.cancel()
    s.pending(0)
    check_batch(s, [s.send([i]) for i in range(4)], {4: 1})
    wait.until(lambda: s.failures() == {"CANCELED": 1}, "the cancelled one to be counted")


# ---- queue policies ----

def busy(s, probe=True):
    """The one instance works until s.hold ends. Its request has another shape, so that nothing joins it; later requests on
    the same connection wait. It has begun when this returns. `probe`: the instance has taken note of the requests behind it as well;
    tests of policies that would answer the probe omit it."""
    # Its own time in the queue may be over before its thread exists.
    assert wait.until(lambda: (ready := s.send([9])).exception() is None and numbers(ready), "an answer") == [9]
    first = s.send([0, 0], parameters=s.hold.parameters)

    def begun():
        nonlocal first
        if first.done():  # its own time in the queue was over
            first = s.send([0, 0], parameters=s.hold.parameters)
        return s.hold.path.with_suffix(".held").exists()

    wait.until(begun, "the instance to be busy")
    if probe:
        waiting = s.send([0])
        s.pending(1)
        waiting.cancel()
        s.pending(0)
    return first


def test_queue_timeout_rejects(scheduled):
    s = scheduled("default_queue_policy { default_timeout_microseconds: 100000 }")
    first = busy(s, probe=False)
    before = s.failures().get("REJECTED", 0)
    code, text = error(s.send([1]))
    assert (code, text) == (Code.UNAVAILABLE, "Request timeout expired")
    assert not first.done(), "in time: not after the running batch"
    s.hold.end()
    assert numbers(first) == [0, 0]
    wait.until(lambda: s.failures().get("REJECTED", 0) == before + 1, "the rejection to be counted")


def test_queue_timeout_rejects_over_rest(scheduled):
    s = scheduled("default_queue_policy { default_timeout_microseconds: 100000 }")
    first = busy(s, probe=False)
    assert error(s.send([1]))[0] == Code.UNAVAILABLE, "the first one runs by now"
    reply = s.rest.infer("m", [("INPUT0", "INT32", [1, 1], [1])])
    assert (reply.status, reply.error) == (503, "Request timeout expired")
    s.hold.end()
    assert numbers(first) == [0, 0]


def test_queue_timeout_delays(scheduled):
    s = scheduled("default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 100000 } " + CLOCK)
    first = busy(s)
    second = s.send([1])
    s.pending(1)
    s.over(100_000)
    assert not second.done()
    s.hold.end()
    assert numbers(first) == [0, 0] and numbers(second) == [1]


@pytest.mark.parametrize("default", [0, 3_600_000_000])
def test_timeout_of_the_request(scheduled, default):
    s = scheduled(f"default_queue_policy {{ allow_timeout_override: true default_timeout_microseconds: {default} }}")
    first = busy(s)
    code, text = error(s.send([1], parameters={"timeout": 100_000}))
    assert code == Code.UNAVAILABLE and "Request timeout expired" in text
    assert not first.done()
    s.hold.end()
    assert numbers(first) == [0, 0]


def test_timeout_of_the_request_that_the_policy_does_not_allow(scheduled):
    s = scheduled("default_queue_policy { default_timeout_microseconds: 3600000000 } " + CLOCK)
    first = busy(s)
    second = s.send([1], parameters={"timeout": 1000})
    s.pending(1)
    s.over(1000)
    assert not second.done()
    s.hold.end()
    assert numbers(first) == [0, 0] and numbers(second) == [1]


@pytest.mark.parametrize("where", ["policy", "option"])
def test_queue_size(scheduled, where):
    if where == "policy":
        s = scheduled("default_queue_policy { max_queue_size: 2 }", max_batch_size=1)
    else:
        s = scheduled(None, max_batch_size=1, options=["--max-queue-size=2"])
    first = busy(s)
    waiting = [s.send([i]) for i in (1, 2)]
    s.pending(2)
    code, text = error(s.send([3]))
    assert code == Code.UNAVAILABLE and "Exceeds maximum queue size" in text
    reply = s.rest.infer("m", [("INPUT0", "INT32", [1, 1], [3])])
    assert reply.status == 503 and "Exceeds maximum queue size" in reply.error
    s.hold.end()
    assert [numbers(f) for f in [first, *waiting]] == [[0, 0], [1], [2]]
    wait.until(lambda: s.failures().get("REJECTED") == 2, "the rejections to be counted")
    assert numbers(s.send([4])) == [4]


# ---- priorities and order ----

class Order:
    """In which order requests are answered."""

    def __init__(self):
        self.seen = []
        self.lock = threading.Lock()

    def watch(self, future, name):
        def done(_):
            with self.lock:
                self.seen.append(name)

        future.add_done_callback(done)
        return future

    def wait(self, count):
        wait.until(lambda: len(self.seen) == count, f"{count} answers")
        return self.seen


def test_priorities(scheduled):
    s = scheduled("priority_levels: 3 default_priority_level: 2", max_batch_size=1)
    order = Order()
    first = busy(s)
    sent = 0
    for name, priority in (("low", 3), ("default", 0), ("two", 2), ("high", 1), ("too high a number", 9), ("high again", 1)):
        order.watch(s.send([1], parameters={"delay_ms": 60, "priority": priority}), name)
        sent += 1
        s.pending(sent)
    s.hold.end()
    assert numbers(first) == [0, 0]
    assert order.wait(6) == ["high", "high again", "default", "two", "too high a number", "low"]


def test_policy_of_one_level(scheduled):
    s = scheduled("priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 2 value { max_queue_size: 1 } }",
                  max_batch_size=1)
    first = busy(s)
    low = s.send([1], parameters={"priority": 2})
    s.pending(1)
    assert error(s.send([2], parameters={"priority": 2}))[0] == Code.UNAVAILABLE
    high = s.send([3])
    s.hold.end()
    assert [numbers(f) for f in (first, low, high)] == [[0, 0], [1], [3]]


def test_delayed_requests_go_behind_the_others(scheduled):
    s = scheduled("default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 3600000000 "
                  "allow_timeout_override: true }", max_batch_size=1)
    order = Order()
    first = busy(s)
    order.watch(s.send([1], parameters={"timeout": 100, "delay_ms": 60}), "late")
    s.pending(1)
    for i in range(3):
        order.watch(s.send([1], parameters={"delay_ms": 60}), f"in time {i}")
        s.pending(2 + i)
    s.hold.end()
    assert numbers(first) == [0, 0]
    assert order.wait(4) == ["in time 0", "in time 1", "in time 2", "late"]


def test_order_of_requests_is_kept_without_priorities(scheduled):
    s = scheduled(None, max_batch_size=1)
    order = Order()
    first = busy(s)
    for i in range(5):
        order.watch(s.send([1], parameters={"delay_ms": 40}), i)
        s.pending(1 + i)
    s.hold.end()
    assert numbers(first) == [0, 0]
    assert order.wait(5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("keep", [True, False])
def test_preserve_ordering(scheduled, keep, tmp_path, request):
    """Three instances; the first request and the third are held, and the others are executed meanwhile. Which of two answers that
    are sent at once the client sees first is not the server's doing."""
    (tmp_path / "third").mkdir()
    third = Hold(tmp_path / "third")
    request.addfinalizer(third.end)
    s = scheduled(f"preserve_ordering: {'true' if keep else 'false'}", max_batch_size=1, hold=4,
                  extra="instance_group { count: 3 kind: KIND_CPU }")
    order = Order()
    for i, parameters in enumerate((s.hold.parameters, {}, third.parameters, {})):
        order.watch(s.send([i], parameters=parameters), i)
        if i < 3:
            s.pending(i + 1)
    s.wait_sizes({1: 2})
    assert sorted(order.wait(0 if keep else 2)) == ([] if keep else [1, 3])
    s.hold.end()
    assert set(order.wait(2 if keep else 3)) == ({0, 1} if keep else {0, 1, 3})
    third.end()
    assert set(order.wait(4)) == {0, 1, 2, 3}


# ---- instances ----

@pytest.mark.parametrize("group, count", [
    ("", 1), ("instance_group { count: 3 kind: KIND_CPU }", 3), ("instance_group { kind: KIND_AUTO }", 1),
    ("instance_group [ { count: 1 kind: KIND_CPU }, { count: 2 kind: KIND_CPU } ]", 3)], ids=["none", "3", "auto", "1+2"])
def test_instances_work_at_once(scheduled, group, count):
    s = scheduled(None, max_batch_size=1, extra=group)
    futures = [s.send([i], parameters=s.hold.parameters) for i in range(count + 2)]
    s.pending(2)
    s.hold.end()
    assert [numbers(f) for f in futures] == [[i] for i in range(count + 2)]


def test_every_instance_batches(scheduled):
    s = scheduled(hold=16, extra="instance_group { count: 2 kind: KIND_CPU }")
    check_batch(s, [s.send([i], parameters={"delay_ms": 50}) for i in range(16)], {8: 2})


# ---- the inline path ----

def test_fast_model_runs_on_the_network_thread(models, start):
    repo.add(models, "m")
    with Control(start(models, "--inline-threshold-us=1000000")) as c:
        for i in range(200):
            assert c.answer("m", [i])[0] == [i]
        (s,) = c.stats("m")
        assert s["execution_count"] == s["inference_count"] == 200


@pytest.mark.parametrize("threshold, inline", [("0", False), ("1000000", True)])
def test_inline_threshold(models, start, threshold, inline):
    repo.add(models, "m")
    server = start(models, f"--inline-threshold-us={threshold}")
    with Control(server) as c:
        for i in range(50):
            assert c.answer("m", [i])[0] == [i]
    assert bool(value(server, "millrace_inline_exec_total", model="m")) == inline


def test_models_that_never_run_inline(models, start):
    """One that has a delay, and one for which inputs could say how long it takes."""
    repo.add(models, "late", parameters={"execute_delay_ms": 5})
    repo.add(models, "loop", backend="onnxruntime", files={"1/model.onnx": onnxgen.loop(3)})
    server = start(models, "--inline-threshold-us=1000000")
    with Control(server) as c:
        for i in range(5):
            assert c.answer("late", [i])[0] == [i] and c.answer("loop", [i])[0] == [i + 3]
    for name in ("late", "loop"):
        assert not value(server, "millrace_inline_exec_total", model=name), "a counter of nothing has no line"


# ---- statistics ----

def test_statistics_of_success_and_failure(scheduled):
    s = scheduled(hold=4)
    [numbers(f) for f in [s.send([i], rows=2) for i in range(4)]]
    assert error(s.send([1], parameters={"fail_status": "INTERNAL"}))[0] == Code.INTERNAL
    s.wait_sizes({8: 1})
    wait.until(lambda: s.rest.stats("m")[0]["inference_stats"]["fail"]["count"] == 1, "the failure to be counted")
    (m,) = s.rest.stats("m")
    kinds = m["inference_stats"]
    assert (m["inference_count"], m["execution_count"]) == (8, 1)
    assert (kinds["success"]["count"], kinds["fail"]["count"]) == (4, 1)
    for kind in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert kinds[kind]["count"] == 4, "of requests that succeeded, each counts as if it had been alone"
    assert kinds["success"]["ns"] >= kinds["compute_infer"]["ns"]


def test_statistics_of_a_refused_request(scheduled):
    s = scheduled()
    assert s.rest.infer("m", [("INPUT0", "INT32", [9, 1], [1] * 9)]).status == 400
    wait.until(lambda: s.rest.stats("m")[0]["inference_stats"]["fail"]["count"] == 1, "the failure to be counted")
    (m,) = s.rest.stats("m")
    assert (m["inference_count"], m["execution_count"]) == (0, 0)


def test_statistics_of_each_version(models, start):
    repo.add(models, "m", versions=(1, 2), extra="version_policy { all { } }")
    with Control(start(models)) as c:
        for version, count in ((1, 3), (2, 1)):
            for _ in range(count):
                assert c.infer(f"m/versions/{version}").status == 200
        assert {s["version"]: s["inference_count"] for s in c.stats("m")} == {"1": 3, "2": 1}
        one = c.rest.get("/v2/models/m/versions/1/stats").json()["model_stats"]
        assert [(s["version"], s["inference_count"]) for s in one] == [("1", 3)]

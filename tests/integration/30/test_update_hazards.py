"""Updates of large models with disturbances: other updates, more requests than can be served, damaged files, cancels,
requests that do not end, a full disk. No request is refused, each answer is that of one version, and afterwards the server
has the memory of the served version."""
import threading

import numpy as np
import pytest

from lib import onnxgen, wait
from lib.control import Control
from lib.held import resident
from lib.metrics import value
from lib.rest import Rest
from lib.updated import LAYERS, ROW, SIZE, WEIGHTS, Updated, ask

pytestmark = pytest.mark.release_only("sanitizers have a heap of their own")


@pytest.fixture
def updated(tmp_path, start):
    def make(*options, **kw):
        return Updated(tmp_path / "server", start, "pool", options, **kw)
    return make


def assert_holds(u, versions, ranges):
    """Packed weights of that many versions are in memory, all others are freed."""
    had, used = u.pool()
    assert had <= ranges and versions * WEIGHTS <= used <= versions * (WEIGHTS + (2 << 20)), (had, used)


class Loading(threading.Thread):
    """A load by a client of its own."""

    def __init__(self, u, model="dense"):
        super().__init__()
        self.u, self.model, self.reply = u, model, None
        self.start()

    def run(self):
        with Control(self.u.server) as control:
            self.reply = control.load(self.model)

    def result(self):
        self.join(wait.PATIENCE)
        return self.reply


def test_saturation(updated):
    """More requests than the server can answer, all the time."""
    with updated(askers=4, pause=0) as u:
        u.update()
        assert_holds(u, 1, 2)


def test_two_models_at_once(updated):
    with updated("--model-update-thread-count=2", names=("one", "two")) as u:
        problems = []

        def some(name):
            try:
                for _ in range(3):
                    u.update(name)
            except BaseException as e:
                problems.append(repr(e))

        both = [threading.Thread(target=some, args=(name,)) for name in u.models]
        [t.start() for t in both]
        [t.join() for t in both]
        assert not problems, problems
        assert_holds(u, 2, 4)


def damaged():
    """What is no model, in ways that are found at different steps of a load."""
    good = onnxgen.dense(LAYERS, SIZE, 99)
    yield "cut short", good[:len(good) // 2]
    yield "empty", b""
    yield "operator that nobody knows", good.replace(b"MatMul", b"MatMux", 1)
    yield "weight of another name", good.replace(b"w7", b"w~", 1)
    yield "other bytes", bytes(1 << 20)
    yield "fails when it runs", onnxgen.dense(LAYERS, SIZE, 99, fails=True)


def test_damaged_files(updated):
    """The old version keeps serving, and nothing of the others stays, however often it happens."""
    with updated() as u:
        u.update()
        before, good = ask(u.control.rest, "dense"), u.models["dense"].number
        [a.answers.clear() for a in u.askers]
        sizes = []
        for _ in range(2):
            for what, data in damaged():
                u.models["dense"].write(data)
                reply = u.control.load("dense")
                assert reply.status == 400, what
                assert u.versions()[u.models["dense"].number] == "FAILED", what
                u.models["dense"].remove(u.models["dense"].number)
            u.some_more()
            sizes.append(resident(u.server))
        assert u.versions()[good] == "READY" and ask(u.control.rest, "dense") == before
        assert all(a.answers <= {before} for a in u.askers)
        assert_holds(u, 1, 2)
        assert sizes[-1] <= 1.05 * sizes[0], sizes


# A load beside something that serves then takes seconds; the first one does not.
SLOWLY = f"--backend-config=onnxruntime,load_bytes_per_second={WEIGHTS}"


def wait_for(u, number, state):
    wait.until(lambda: u.versions().get(number) == state, f"version {number} to be {state}")


def assert_ended(loading):
    reply = loading.result()
    assert reply.status == 400 and "newer request for model 'dense'" in reply.error


def test_rollback_during_a_load(updated):
    """The load ends, its caller is notified, and the version before serves again."""
    with updated(SLOWLY) as u:
        first = ask(u.control.rest, "dense")
        u.control.rest.post("/v2/repository/models/dense/label", {"label": "stable", "version": "1"}).ok()
        u.models["dense"].write()
        assert u.control.load("dense").status == 200
        assert ask(u.control.rest, "dense") != first
        u.models["dense"].write()
        loading = Loading(u)
        wait_for(u, 3, "LOADING")
        u.control.rest.post("/v2/repository/models/dense/rollback", {"version": "1"}).ok()
        assert_ended(loading)
        assert ask(u.control.rest, "dense") == first
        u.settle()
        assert u.versions() == {1: "READY", 2: "UNLOADED", 3: "UNLOADED"}
        assert_holds(u, 1, 3)


def test_a_load_that_is_given_up(updated, tmp_path):
    """Nothing of it stays: no packed weights, no half of an entry in the cache."""
    with updated(SLOWLY, names=("dense", "other")) as u:
        u.models["dense"].write()
        loading = Loading(u)
        wait_for(u, 2, "LOADING")
        u.askers[0].is_over.set()
        u.askers[0].join()
        assert u.control.unload("dense").status == 200
        assert_ended(loading)
        u.settle()
        assert_holds(u, 1, 3)
        assert not list((tmp_path / "server" / "cache").glob(".new-*"))
        u.askers[1].some_more()
        assert u.control.load("dense").status == 200 and u.versions()[2] == "READY"


MANY_ROWS = 1 << 13  # a second or more of work
# One thread computes; the loader has the other CPU, or its share of the only one.
BUSY = dict(max_batch_size=MANY_ROWS, askers=0, extra='parameters { key: "intra_op_thread_count" value { string_value: "1" } }')
LARGE = ("--http-max-input-size=256MiB", "--default-warmup-time=0", "--backend-config=onnxruntime,load_yield_seconds=0")


class Asking(threading.Thread):
    """Asks for many rows at once."""

    def __init__(self, u):
        super().__init__()
        self.u, self.rows, self.answer = u, np.tile(ROW, (MANY_ROWS, 1)), None
        self.is_sent = threading.Event()
        self.start()
        assert self.is_sent.wait(wait.PATIENCE)

    def run(self):
        with Rest(self.u.server.http, timeout=300) as rest:
            response = rest.connection.getresponse

            def sent():
                self.is_sent.set()
                return response()
            rest.connection.getresponse = sent
            self.answer = np.frombuffer(ask(rest, "dense", self.rows), "<f4").reshape(self.rows.shape)

    def assert_of(self, one):
        """Each row equals the answer of the version that answered `one`."""
        self.join(300)
        np.testing.assert_allclose(self.answer, np.broadcast_to(np.frombuffer(one, "<f4"), self.rows.shape), atol=1e-3)


def busy(u):
    """A request that runs, and one that waits for it; two that ran one after the other do not count."""
    for _ in range(20):
        requests = [Asking(u), Asking(u)]
        waits = lambda: value(u.server, "nv_inference_pending_request_count", model="dense") == 1
        if wait.until(lambda: "waits" if waits() else not any(r.is_alive() for r in requests), "a request that waits, or two answers") == "waits":
            return requests
    pytest.fail("no request waited for another")


def test_unload_with_a_request_that_runs(updated):
    with updated(*LARGE, **BUSY) as u:
        one = ask(u.control.rest, "dense")
        requests = busy(u)
        assert u.control.unload("dense").status == 200
        assert u.versions() == {1: "DRAINING"}
        assert u.control.infer("dense").status == 404
        [r.assert_of(one) for r in requests]
        u.settle()
        assert u.versions() == {1: "UNLOADED"}
        assert_holds(u, 0, 1)


def test_update_with_a_request_that_runs(updated):
    """It is answered by the version that it began with, and takes longer than the load: if it did not, once more."""
    with updated(*LARGE, **BUSY) as u:
        for k in range(1, 9):
            one = ask(u.control.rest, "dense")
            requests = busy(u)
            u.models["dense"].write()
            assert u.control.load("dense").status == 200
            states = u.versions()
            assert ask(u.control.rest, "dense") != one
            [r.assert_of(one) for r in requests]
            u.settle()
            assert (u.versions()[k], u.versions()[k + 1]) == ("UNLOADED", "READY")
            assert_holds(u, 1, k + 1)
            if states[k] == "DRAINING":
                return
        pytest.fail("the requests never ran for as long as a load")


def test_full_disk(updated, small_disk):
    """The cache has no room for the weights: the model loads in the plain way, and the report says why."""
    with updated(cache=small_disk / "cache") as u:
        for _ in range(3):
            u.update()
        assert u.pool()[1] == 0
        told = [e["msg"] for e in u.server.events() if "parameters=plain" in e["msg"]]
        assert len(told) == 4 and all("No space left on device" in t for t in told), told
        assert not list((small_disk / "cache").iterdir())

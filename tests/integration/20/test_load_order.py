"""Loads and what ends, delays or repeats them."""
import threading

import pytest

from lib import repo, wait
from lib.control import Control
from lib.metrics import value


@pytest.fixture
def explicit(models, start):
    made = []

    def make(*args):
        server = start(models, *args, mode="explicit")
        made.append(Control(server))
        return server, made[-1]

    yield make
    [c.close() for c in made]


class Loading(threading.Thread):
    """A load by a client of its own."""

    def __init__(self, server, model):
        super().__init__()
        self.server, self.model, self.reply = server, model, None
        self.start()

    def run(self):
        with Control(self.server) as c:
            self.reply = c.load(self.model)

    def result(self):
        self.join(60)
        return self.reply


def slow(models, name="m", ms=1500, **kw):
    return repo.add(models, name, backend="fault", parameters={"open_delay_ms": ms}, **kw)


def test_an_unload_ends_a_load(models, explicit):
    slow(models)
    server, c = explicit()
    loading = Loading(server, "m")
    wait.until(lambda: c.states("m") == {"1": "LOADING"}, "the load")
    assert c.unload("m").status == 200
    reply = loading.result()
    assert reply.status == 400 and "newer request for model 'm'" in reply.error
    assert c.states("m") == {"1": "UNAVAILABLE"}
    assert value(server, "millrace_model_loads_total", outcome="cancelled") == 1
    assert [v["state"] for v in c.rest.get("/v2/models/m/versions").json()["versions"]] == ["UNLOADED"]


def test_a_load_of_changed_files_ends_the_one_before(models, explicit):
    folder = slow(models)
    server, c = explicit()
    loading = Loading(server, "m")
    wait.until(lambda: c.states("m") == {"1": "LOADING"}, "the load")
    (folder / "2").mkdir()
    assert c.load("m").status == 200
    reply = loading.result()
    assert reply.status == 400 and "newer request" in reply.error
    assert c.answer("m")[1] == "2"
    assert value(server, "millrace_model_loads_total", outcome="ready") == 1


def test_two_who_want_the_same(models, explicit):
    slow(models, ms=500)
    server, c = explicit()
    loading = Loading(server, "m")
    wait.until(lambda: c.states("m") == {"1": "LOADING"}, "the load")
    assert c.load("m").status == 200 and loading.result().status == 200
    assert value(server, "millrace_model_loads_total", outcome="ready") == 1


def test_failed_loads_are_tried_again_where_nobody_asked(models, start):
    folder = repo.add(models, "m", backend="fault", parameters={"fail_open": 1})
    server = start(models, "--model-load-retry-pause=1", "--exit-on-error=false", mode="poll")
    with Control(server) as c:
        assert c.states("m") == {"1": "UNAVAILABLE"}
        wait.until(lambda: value(server, "millrace_model_loads_total", outcome="failed") >= 2, "another try")
        repo.write(folder / "config.pbtxt", repo.config())
        wait.until(lambda: c.states("m") == {"1": "READY"}, "the repaired model")
        assert c.ready()

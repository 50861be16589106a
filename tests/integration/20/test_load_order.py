"""Loads and what ends, delays or repeats them."""
import threading

from lib import onnxgen, repo, wait
from lib.control import Control
from lib.metrics import value


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
        self.join(wait.PATIENCE)
        return self.reply


def slow(models, name="m", ms=3_600_000, **kw):
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


def test_the_backend_hears_of_it(models, explicit):
    """The unload waits for the load's end, and that load alone would take an hour."""
    folder = slow(models, ms=3_600_000)
    server, c = explicit()
    loading = Loading(server, "m")
    wait.until(lambda: c.states("m") == {"1": "LOADING"}, "the load")
    assert c.unload("m").status == 200 and loading.result().status == 400
    (life,) = c.rest.get("/v2/models/m/versions").json()["versions"]
    assert (life["state"], life["reason"]) == ("UNLOADED", "cancelled")
    assert value(server, "millrace_model_loads_total", outcome="cancelled") == 1
    assert value(server, "millrace_model_loads_total", outcome="failed") == 0
    repo.write(folder / "config.pbtxt", repo.config())
    assert c.load("m").status == 200 and c.answer("m")[1] == "1"


def test_a_paced_load_ends_in_its_pause(models, explicit, tmp_path):
    """Reading the file would take ten hours."""
    size, layers, cache = 512, 36, tmp_path / "cache"
    repo.add(models, "served")
    repo.add(models, "dense", files={"1/model.onnx": onnxgen.dense(layers, size, 1)}, backend="onnxruntime", max_batch_size=1,
             inputs=[repo.tensor("INPUT0", "TYPE_FP32", (size,))], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32", (size,))])
    server, c = explicit("--load-model=served", f"--backend-config=onnxruntime,parameter_cache={cache}",
                         "--backend-config=onnxruntime,load_bytes_per_second=1000")
    loading = Loading(server, "dense")
    wait.until(cache.exists, "the load")
    assert c.unload("dense").status == 200 and loading.result().status == 400
    assert value(server, "millrace_model_loads_total", outcome="cancelled") == 1
    assert not list(cache.iterdir())


def test_a_load_of_changed_files_ends_the_one_before(models, explicit):
    folder = slow(models)
    server, c = explicit()
    loading = Loading(server, "m")
    wait.until(lambda: c.states("m") == {"1": "LOADING"}, "the load")
    (folder / "2").mkdir()
    repo.write(folder / "config.pbtxt", repo.config())
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


def sized(folder, version, mib):
    """A version with a file of that size, which takes no room on the disk."""
    (folder / str(version)).mkdir(exist_ok=True)
    with open(folder / str(version) / "weights.bin", "wb") as f:
        f.truncate(mib << 20)


def test_a_load_that_does_not_fit_is_refused(models, explicit):
    folder = repo.add(models, "m")
    sized(folder, 1, 8)
    server, c = explicit("--model-memory-budget=32MiB", "--load-model=m")
    sized(folder, 2, 40)
    reply = c.load("m")
    assert reply.status == 400
    assert "not enough memory: it needs about 54.0 MiB (files of 40.0 MiB), 18.0 MiB of 32.0 MiB are available" in reply.error
    assert c.answer("m")[1] == "1"
    assert "not enough memory" in c.rest.get("/v2/models/m/versions").json()["versions"][-1]["reason"]
    (folder / "2" / "weights.bin").write_bytes(b"small")
    assert c.load("m").status == 200 and c.answer("m")[1] == "2"


def test_more_than_the_machine_has_is_refused(models, explicit):
    folder = repo.add(models, "m")
    sized(folder, 1, 4 << 20)
    _, c = explicit()
    reply = c.load("m")
    assert reply.status == 400 and "not enough memory: it needs about 5242884.0 MiB" in reply.error


def test_a_marker_says_that_a_version_is_whole(models, start):
    folder = repo.add(models, "m", parameters={"millrace.ready_marker": "true"}, files={"1/.ready": b""})
    with Control(start(models, mode="poll")) as c:
        assert c.answer("m")[1] == "1"
        (folder / "2").mkdir()
        repo.add(models, "later")
        wait.until(lambda: c.model_ready("later"), "a model that came afterwards")
        assert c.states("m") == {"1": "READY"}
        (folder / "2" / ".ready").touch()
        wait.until(lambda: c.infer("m").json().get("model_version") == "2", "the version with its marker")

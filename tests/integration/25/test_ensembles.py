"""Ensembles, as Triton runs them."""
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from lib import onnxgen, repo, wait
from lib.control import Control
from lib.models.graphs import Clients, adders, ensemble, step, vector


CHAIN = ensemble(step("a", {"INPUT0": "INPUT0"}, {"OUTPUT0": "t1"}), step("b", {"INPUT0": "t1"}, {"OUTPUT0": "t2"}),
                 step("c", {"INPUT0": "t2"}, {"OUTPUT0": "OUTPUT0"}))


def test_a_chain(models, start):
    adders(models, a=1, b=10, c=100)
    repo.add(models, "chain", CHAIN)
    clients = Clients(start(models))
    assert clients.ask("chain", {"INPUT0": vector(1, 2)})["OUTPUT0"].tolist() == [112, 113]


@pytest.fixture
def clients(models, start):
    """Made by a test when its models are there."""
    return lambda *args, **kw: Clients(start(models, *args, **kw))


IDENTITY = {"INPUT0": "INPUT0"}, {"OUTPUT0": "OUTPUT0"}


def test_branches_join(models, clients):
    """Two steps that nothing orders, and one that takes both of their outputs."""
    adders(models, a=1, b=10)
    repo.add(models, "pair", inputs=[repo.tensor("INPUT0"), repo.tensor("INPUT1")],
             outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")])
    repo.add(models, "e", ensemble(
        step("pair", {"INPUT0": "left", "INPUT1": "right"}, {"OUTPUT0": "OUTPUT0", "OUTPUT1": "OUTPUT1"}),
        step("a", {"INPUT0": "INPUT0"}, {"OUTPUT0": "left"}), step("b", {"INPUT0": "INPUT0"}, {"OUTPUT0": "right"}),
        outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")]))
    found = clients().ask("e", {"INPUT0": vector(5)})
    assert (found["OUTPUT0"].tolist(), found["OUTPUT1"].tolist()) == ([6], [15])


def count(clients, model):
    return clients.http.get_inference_statistics(model)["model_stats"][0]["inference_stats"]["success"]["count"]


def test_only_needed_steps_run(models, clients):
    adders(models, a=1, b=10)
    repo.add(models, "e", ensemble(step("a", {"INPUT0": "INPUT0"}, {"OUTPUT0": "OUTPUT0"}),
                                   step("b", {"INPUT0": "INPUT0"}, {"OUTPUT0": "OUTPUT1"}),
                                   outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")]))
    c = clients("--default-warmup-time=0")
    assert c.ask("e", {"INPUT0": vector(5)}, outputs=["OUTPUT1"])["OUTPUT1"].tolist() == [15]
    assert (count(c, "a"), count(c, "b"), count(c, "e")) == (0, 2, 2)
    c.ask("e", {"INPUT0": vector(5)})
    assert (count(c, "a"), count(c, "b"), count(c, "e")) == (2, 4, 4)


@pytest.mark.parametrize("ensemble_batch, model_batch", [(8, 8), (8, 0), (0, 8), (4, 8)])
def test_batching_and_non_batching(models, clients, ensemble_batch, model_batch):
    """A batch dimension of 1 is added or removed."""
    repo.add(models, "m", max_batch_size=model_batch)
    repo.add(models, "e", ensemble(step("m", *IDENTITY), max_batch_size=ensemble_batch))
    c = clients()
    one = np.array([[1, 2, 3]], np.int32) if ensemble_batch else vector(1, 2, 3)
    assert np.array_equal(c.ask("e", {"INPUT0": one})["OUTPUT0"], one)
    if ensemble_batch and model_batch:
        rows = np.arange(6, dtype=np.int32).reshape(2, 3)
        assert np.array_equal(c.ask("e", {"INPUT0": rows})["OUTPUT0"], rows)


def test_nested(models, clients):
    adders(models, a=1, b=10, c=100)
    repo.add(models, "chain", CHAIN)
    repo.add(models, "twice", ensemble(step("chain", {"INPUT0": "INPUT0"}, {"OUTPUT0": "t"}),
                                       step("chain", {"INPUT0": "t"}, {"OUTPUT0": "OUTPUT0"})))
    assert clients().ask("twice", {"INPUT0": vector(0)})["OUTPUT0"].tolist() == [222]


def test_large_tensors(models, clients):
    """What does not fit into the arena of a request."""
    repo.add(models, "m", max_batch_size=0)
    repo.add(models, "e", ensemble(step("m", {"INPUT0": "INPUT0"}, {"OUTPUT0": "t"}), step("m", {"INPUT0": "t"}, {"OUTPUT0": "OUTPUT0"})))
    large = np.arange(1_000_000, dtype=np.int32)
    assert np.array_equal(clients().ask("e", {"INPUT0": large})["OUTPUT0"], large)


OPTIONAL = [repo.tensor("INPUT0"), repo.tensor("INPUT1", extra="optional: true")]


def test_optional_input(models, clients):
    repo.add(models, "m", inputs=OPTIONAL)
    repo.add(models, "e", ensemble(step("m", {"INPUT0": "INPUT0", "INPUT1": "INPUT1"}, {"OUTPUT0": "OUTPUT0"}), inputs=OPTIONAL))
    c = clients()
    assert c.ask("e", {"INPUT0": vector(3)})["OUTPUT0"].tolist() == [3]
    assert c.ask("e", {"INPUT0": vector(3), "INPUT1": vector(4)})["OUTPUT0"].tolist() == [3]


def test_optional_input_that_a_model_needs(models, clients):
    repo.add(models, "m", inputs=[repo.tensor("INPUT0"), repo.tensor("INPUT1")])
    repo.add(models, "e", ensemble(step("m", {"INPUT0": "INPUT0", "INPUT1": "INPUT1"}, {"OUTPUT0": "OUTPUT0"}), inputs=OPTIONAL))
    with pytest.raises(Exception, match="in ensemble 'e', .*expected 2 inputs but got 1 inputs for model 'm'"):
        clients().ask("e", {"INPUT0": vector(3)})


def test_error_of_a_step(models, clients):
    adders(models, a=1)
    repo.add(models, "f", backend="fault", parameters={"fail_message": "no luck", "fail_status": "INVALID"})
    repo.add(models, "e", ensemble(step("a", {"INPUT0": "INPUT0"}, {"OUTPUT0": "t"}), step("f", {"INPUT0": "t"}, {"OUTPUT0": "OUTPUT0"})))
    c = clients("--default-warmup-time=0")
    with pytest.raises(Exception, match="in ensemble 'e', .*no luck"):
        c.ask("e", {"INPUT0": vector(3)})


def test_metadata_and_config(models, clients):
    adders(models, a=1, b=10, c=100)
    repo.add(models, "chain", CHAIN)
    c = clients()
    metadata = c.http.get_model_metadata("chain")
    assert metadata["platform"] == "ensemble" and metadata["versions"] == ["1"]
    assert metadata["inputs"] == [{"name": "INPUT0", "datatype": "INT32", "shape": [-1]}]
    config = c.http.get_model_config("chain")
    assert [s["model_name"] for s in config["ensemble_scheduling"]["step"]] == ["a", "b", "c"]
    assert config["platform"] == "ensemble" and config["backend"] == "" and config["instance_group"] == []
    assert c.grpc.get_model_config("chain").config.ensemble_scheduling.step[1].input_map == {"INPUT0": "t1"}
    assert {r["name"]: r["state"] for r in c.http.get_model_repository_index()} == {n: "READY" for n in ("a", "b", "c", "chain")}


def test_a_queue_timeout_of_a_step(models, clients, hold):
    """The time-out of a request to the ensemble is that of its steps' requests."""
    extra = "dynamic_batching { default_queue_policy { allow_timeout_override: true timeout_action: REJECT } }"
    repo.add(models, "m", backend="fault", max_batch_size=1, extra=extra, parameters=hold.parameters)
    repo.add(models, "e", ensemble(step("m", *IDENTITY), max_batch_size=1))
    c = clients()
    one = grpcclient.InferInput("INPUT0", [1, 1], "INT32").set_data_from_numpy(np.array([[1]], np.int32))
    answers = queue.Queue()
    # over gRPC, whose thread sends it whatever this one does
    c.grpc.async_infer("e", [one], callback=lambda result, error: answers.put((result, error)))
    hold.wait_held()
    late = grpcclient.InferInput("INPUT0", [1, 1], "INT32").set_data_from_numpy(np.array([[2]], np.int32))
    with pytest.raises(Exception, match="in ensemble 'e', Request timeout expired"):
        c.grpc.infer("e", [late], timeout=1000)
    hold.end()
    result, error = answers.get(timeout=wait.PATIENCE)
    assert not error and result.as_numpy("OUTPUT0").tolist() == [[1]]


def test_loads_and_unloads_in_mode_explicit(models, start):
    """With an ensemble the models that it asks are loaded; it goes with one of them, and comes back with it."""
    adders(models, a=1, b=10, c=100)
    repo.add(models, "chain", CHAIN)
    repo.add(models, "other", ensemble(step("chain", *IDENTITY)))
    names = "chain", "a", "b", "c", "other"
    with Control(start(models, mode="explicit")) as control:
        ready = lambda: [control.model_ready(m) for m in names]
        control.load("other").ok()
        assert ready() == [True] * 5
        assert control.answer("other") == ([112, 113], "1")
        control.unload("a").ok()
        assert ready() == [False, False, True, True, False]
        wait.equal(lambda: [control.index(m)[0].get("reason") for m in ("chain", "a", "other")], ["unloaded"] * 3)
        assert "'other' has no available versions" in control.infer("other").error
        control.load("a").ok()
        wait.until(lambda: all(ready()), "the ensembles to come back")
        assert control.answer("other") == ([112, 113], "1")
        control.unload("chain", unload_dependents=True).ok()
        assert ready() == [False] * 5


def test_an_ensemble_waits_for_all_that_it_asks(models, start):
    """Of two models that were unloaded, one is loaded again, and then the other one."""
    adders(models, a=1, b=10, c=100)
    repo.add(models, "chain", CHAIN)
    with Control(start(models, mode="explicit")) as control:
        control.load("chain").ok()
        control.unload("a").ok()
        control.unload("b").ok()
        control.load("a").ok()
        assert [control.model_ready(m) for m in ("a", "b", "chain")] == [True, False, False]
        control.load("b").ok()
        wait.until(lambda: control.model_ready("chain"), "the ensemble")


def test_many_loads_and_unloads_at_once(models, start):
    """None waits for another that waits for it."""
    adders(models, a=1, b=10, c=100)
    repo.add(models, "chain", CHAIN)
    repo.add(models, "other", ensemble(step("chain", *IDENTITY)))
    server = start(models, mode="explicit")

    def ask(names, steps):
        with Control(server) as control:
            for k in range(steps):
                for name in names:
                    control.load(name) if k % 3 else control.unload(name, unload_dependents=k % 2 == 0)

    threads = [threading.Thread(target=ask, args=(names, 60), daemon=True)
               for names in (("a", "chain"), ("b", "other"), ("c", "a"), ("other", "c"))]
    [t.start() for t in threads]
    [t.join(wait.PATIENCE) for t in threads]
    assert not any(t.is_alive() for t in threads), "a request was never answered"
    with Control(server) as control:
        control.load("other").ok()
        assert control.answer("other") == ([112, 113], "1")
        control.unload("a").ok()
        control.load("a").ok()
        wait.until(lambda: control.model_ready("other"), "the ensemble to come back")


def test_a_load_asks_for_what_is_about_to_go(models, start, hold):
    """A model that serves or is loaded now, and whose unload waits in line, is loaded again for the ensemble."""
    repo.add(models, "a", backend="fault", parameters={"deaf": 1, **hold.loading})
    repo.add(models, "e", ensemble(step("a", *IDENTITY)))
    repo.add(models, "last")
    server = start(models, "--model-update-thread-count=2", mode="explicit")
    # The load of the model goes on, though the unload behind it has ended it; "last" is loaded when "e" waits.
    with ThreadPoolExecutor(3) as pool, Control(server) as control:
        def begin(call, model):
            with Control(server) as own:
                return getattr(own, call)(model)
        first = pool.submit(begin, "load", "a")
        wait.until(lambda: control.states("a") == {"1": "LOADING"}, "the load")
        unload = pool.submit(begin, "unload", "a")
        assert "newer request for model 'a'" in first.result(wait.PATIENCE).error
        load = pool.submit(begin, "load", "e")
        control.load("last").ok()
        hold.end()
        unload.result(wait.PATIENCE).ok()
        load.result(wait.PATIENCE).ok()
        assert control.answer("e")[0] == [1, 2]


def test_what_a_client_unloads_does_not_come_back(models, start):
    adders(models, a=1)
    repo.add(models, "e", ensemble(step("a", *IDENTITY)))
    repo.add(models, "f", ensemble(step("a", *IDENTITY)))
    with Control(start(models, mode="explicit")) as control:
        control.load("e").ok()
        control.load("f").ok()
        control.unload("a").ok()
        control.unload("e").ok()
        control.load("a").ok()
        wait.until(lambda: control.model_ready("f"), "the other ensemble")
        assert not control.model_ready("e")


def test_an_ensemble_goes_and_comes_with_a_folder(models, start):
    adders(models, a=1)
    repo.add(models, "e", ensemble(step("a", *IDENTITY)))
    repo.add(models, "early", ensemble(step("late", *IDENTITY)))
    server = start(models, "--repository-poll-secs=1", "--model-load-retry-pause=3600", "--exit-on-error=false", mode="poll")
    with Control(server) as control:
        assert control.answer("e")[0] == [2, 3]
        adders(models, late=5)
        wait.until(lambda: control.model_ready("early"), "the ensemble whose model comes after it, at once and not in an hour")
        os.rename(models / "a", models.parent / "a")
        wait.until(lambda: not control.model_ready("a"), "the model to go")
        assert not control.model_ready("e")
        os.rename(models.parent / "a", models / "a")
        wait.until(lambda: control.model_ready("e"), "the ensemble")
        assert control.answer("e")[0] == [2, 3]


def test_an_update_that_does_not_fit(models, start):
    """The ensemble goes, and comes back with the next one that does."""
    adders(models, a=1)
    repo.add(models, "e", ensemble(step("a", *IDENTITY)))
    server = start(models, mode="explicit")
    with Control(server) as control:
        control.load("e").ok()
        good = control.rest.get("/v2/models/a/config").ok().json()
        control.load("a", config=good | {"dynamic_batching": {}}).ok()
        assert control.answer("e")[0] == [2, 3]
        repo.add(models, "a", inputs=[repo.tensor("OTHER")], outputs=[repo.tensor("OUTPUT0")])
        control.load("a").ok()
        wait.until(lambda: not control.model_ready("e"), "the ensemble to go")
        assert [(e["model"], e["asks"]) for e in server.events() if e.get("event") == "ensemble.unloaded"] == [("e", "a")]
        repo.add(models, "a", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(5)})
        control.load("a").ok()
        wait.until(lambda: control.model_ready("e"), "the ensemble")
        assert control.answer("e")[0] == [6, 7]


def test_configuration_that_is_refused_changes_nothing(models, start):
    """What the ensemble asks that serves stays loaded, and goes with it; what the refused one asks is free."""
    adders(models, a=1, b=10, c=100, d=1000)
    repo.add(models, "chain", CHAIN)
    with Control(start(models, mode="explicit")) as control:
        control.load("chain").ok()
        config = control.rest.get("/v2/models/chain/config").ok().json()
        config["ensemble_scheduling"]["step"] = [
            {"model_name": "d", "model_version": -1, "input_map": {"INPUT0": "INPUT0"}, "output_map": {"OUTPUT0": "OUTPUT0"}}]
        config["output"][0]["data_type"] = "TYPE_FP32"
        assert "TYPE_FP32" in control.load("chain", config=config).json()["error"]
        assert control.answer("chain") == ([112, 113], "1")
        control.unload("d").ok()
        assert control.model_ready("chain")
        control.unload("chain", unload_dependents=True).ok()
        assert [control.model_ready(m) for m in ("chain", "a", "b", "c", "d")] == [False] * 5


def test_a_new_version_of_a_step(models, start):
    adders(models, a=1)
    repo.add(models, "e", ensemble(step("a", *IDENTITY)))
    with Control(start(models, mode="explicit")) as control:
        control.load("e").ok()
        assert control.answer("e")[0] == [2, 3]
        repo.add(models, "a", onnxgen.ADDER_CONFIG, versions=(1, 2), files={"2/model.onnx": onnxgen.adder(5)})
        control.load("a").ok()
        assert control.answer("e")[0] == [6, 7]


CYCLE = ensemble(step("two", *IDENTITY)), ensemble(step("one", *IDENTITY))


def test_ensembles_that_ask_each_other(models, start):
    for name, text in zip(("one", "two"), CYCLE):
        repo.add(models, name, text)
    server = start(models, "--exit-on-error=false")
    with Control(server) as control:
        assert [r["state"] for r in control.index()] == ["UNAVAILABLE"] * 2
        for name, other in (("one", "two"), ("two", "one")):
            assert f"circular dependency between ensembles: {name} -> ... -> {other}" in control.index(name)[0]["reason"]


def test_loads_of_ensembles_that_ask_each_other(models, start):
    """By several clients at once: each is refused."""
    for name, text in zip(("one", "two"), CYCLE):
        repo.add(models, name, text)
    server = start(models, mode="explicit")

    def load(name):
        with Control(server) as control:
            return [control.load(name).error for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for errors in pool.map(load, ("one", "two") * 2):
            assert all("circular dependency" in e or "not available or ambiguous" in e for e in errors), errors


def test_a_step_whose_model_does_not_load(models, start):
    """Before a model that failed comes one that nobody knows."""
    repo.add(models, "bad", backend="fault", parameters={"fail_open": "true"})
    repo.add(models, "e", ensemble(step("bad", *IDENTITY)))
    repo.add(models, "f", ensemble(step("bad", {"INPUT0": "INPUT0"}, {"OUTPUT0": "t"}), step("none", {"INPUT0": "t"}, {"OUTPUT0": "OUTPUT0"})))
    server = start(models, "--exit-on-error=false")
    with Control(server) as control:
        assert control.index("e")[0]["reason"].startswith(
            "ensemble 'e' depends on 'bad' which has no loaded version. Model 'bad' loading failed with error: "
            "load failed for model 'bad': version 1 is at UNAVAILABLE state: "), control.index("e")
        assert "contains models that are not available or ambiguous: none" in control.index("f")[0]["reason"]


def test_a_circle_that_an_update_would_close(explicit, models):
    """It is refused, and what serves goes on."""
    through = lambda model: ensemble(step(model, {"INPUT0": "INPUT0"}, {"OUTPUT0": "OUTPUT0"}))
    repo.add(models, "one")
    for name, asked in (("two", "one"), ("three", "two")):
        repo.add(models, name, through(asked))
    server, control = explicit()
    assert control.load("three").status == 200 and control.answer("three")[0] == [1, 2]
    for asked in ("three", "two", "one"):
        repo.add(models, "one", through(asked))
        reply = control.load("one")
        assert reply.status == 400 and "circular dependency between ensembles" in reply.error, reply.error
        for name in ("one", "two", "three"):
            assert control.answer(name)[0] == [1, 2]

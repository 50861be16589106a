"""Ensembles and workflows in a mesh: what they ask is loaded where they are, and comes again when it has gone."""
import pytest

from lib import repo, wait
from lib.control import Control
from lib.models.graphs import adders, ensemble, step
from lib.services.mesh import answers

CHAIN = (step("a", {"INPUT0": "INPUT0"}, {"OUTPUT0": "t"}), step("b", {"INPUT0": "t"}, {"OUTPUT0": "OUTPUT0"}))


def copies(control, model):
    """Of instances where it is loaded."""
    return [c["instance"] for c in control.rest.get(f"/v2/mesh/models/{model}").ok().json()["copies"] if c["state"] == "LOADED"]


@pytest.fixture
def servers(fleet, models):
    """Two that have the ensemble "e"; one has it loaded, and its models, which both know."""
    adders(models, a=1, b=10)
    repo.add(models, "e", ensemble(*CHAIN))
    servers = fleet(models, models)
    with Control(servers[0]) as control, Control(servers[1]) as other:
        assert control.answer("e") == ([12, 13], "1")

        def one_has_them():
            found = [copies(c, m) for c in (control, other) for m in "abe"]
            if len({holder for f in found for holder in f}) > 1:  # one said nothing for 0.2 s, and the other loaded as well
                [other.unload(m) for m in "eab"]
                [other.answer(m) for m in "eab"]  # it finds that they are gone, and asks the one that has them
            return len(found[2]) == 1 and found == 6 * [found[2]]
        wait.until(one_has_them, "the copies of one to be known")
    return servers


@pytest.fixture
def holder(servers):
    with Control(servers[0]) as control:
        return servers[int(copies(control, "e")[0][1:])]


def test_models_of_an_ensemble_are_copies(servers, holder):
    """Others use them, and they go when they are unregistered."""
    with Control(next(s for s in servers if s != holder)) as control:
        def asked_there():
            for model, answer in (("a", [2, 3]), ("e", [12, 13])):
                assert control.answer(model) == (answer, "1")
                if control.index(model)[0].get("state") == "READY":  # a holder that says nothing for 0.2 s is not waited for
                    [control.unload(m) for m in "eab"]
                    return False
            return True
        wait.until(asked_there, "requests to go to the holder")
        wait.until(lambda: len(copies(control, "a")) == len(copies(control, "e")) == 1, "no other copy to be known")
    with Control(holder) as control:
        control.rest.post("/v2/mesh/models/a/unregister", {}).ok()
        wait.until(lambda: control.answer("e") == ([12, 13], "1") if control.rest.get("/v2/mesh/models/a").status == 200 else None,
                   "the repository to register it again, and the ensemble")


def test_an_ensemble_stays_without_its_model(holder):
    with Control(holder) as control:
        for model in "ab":
            control.unload(model).ok()
            assert control.states(model) != {"1": "READY"} and control.states("e") == {"1": "READY"}
            assert control.answer("e") == ([12, 13], "1")
            assert control.states(model) == {"1": "READY"}
    assert not [e for e in holder.events() if e.get("event") == "ensemble.unloaded"]


def test_what_a_load_would_not_make_again_is_no_copy(fleet, models):
    """With a configuration of a load request, which an eviction would lose."""
    adders(models, a=1, b=10)
    repo.add(models, "e", ensemble(*CHAIN))
    [server] = fleet(models)
    with Control(server) as control:
        io = {name: [{"name": tensor, "data_type": "TYPE_INT32", "dims": [-1]}] for name, tensor in (("input", "INPUT0"), ("output", "OUTPUT0"))}
        control.load("a", config={"backend": "onnxruntime", **io}).ok()
        assert control.answer("e") == ([12, 13], "1")
        wait.until(lambda: copies(control, "b"), "the other model to be a copy")
        assert copies(control, "a") == []


def test_more_ensembles_than_room(fleet, models):
    """Their models are evicted as well."""
    for i in range(6):
        adders(models, **{f"a{i}": i, f"b{i}": 10})
        for name in (f"a{i}", f"b{i}"):
            repo.write(models / name / "1" / "more", bytes(1 << 20))
        repo.add(models, f"e{i}", ensemble(step(f"a{i}", {"INPUT0": "INPUT0"}, {"OUTPUT0": "t"}), step(f"b{i}", {"INPUT0": "t"}, {"OUTPUT0": "OUTPUT0"})))
    [server] = fleet(models, options=["--mesh-capacity=6M"])
    with Control(server) as control:
        for _ in range(3):
            for i in range(6):
                assert control.answer(f"e{i}")[0] == [11 + i, 12 + i]
        ready = lambda: [r["name"] for r in control.index() if r.get("state") == "READY"]
        wait.until(lambda: len(ready()) <= 6, "the others to be evicted")
        for i in range(6):
            assert control.answer(f"e{i}")[0] == [11 + i, 12 + i]

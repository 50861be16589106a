"""Versions: policies, folder names, look-ups, and what comes and goes."""
import pytest

from lib import repo, wait
from lib.control import Control

POLICIES = [
    ("", {3}), ("version_policy { latest { num_versions: 1 } }", {3}), ("version_policy { latest { num_versions: 2 } }", {2, 3}),
    ("version_policy { latest { num_versions: 9 } }", {1, 2, 3}), ("version_policy { all { } }", {1, 2, 3}),
    ("version_policy: { specific: { versions: [1, 3] } }", {1, 3}), ("version_policy { specific { versions: 2 } }", {2}),
    ("version_policy { specific { versions: [2, 7] } }", {2})]


@pytest.fixture
def control(models, start):
    made = []

    def make(*args, **kw):
        made.append(Control(start(models, *args, **{"mode": "explicit", **kw})))
        return made[-1]

    yield make
    [c.close() for c in made]


def ready(c, model):
    return {int(r["version"]) for r in c.index(model) if r["state"] == "READY"}


@pytest.mark.parametrize("policy, served", POLICIES, ids=[p[0] or "none" for p in POLICIES])
def test_policies(models, control, policy, served):
    repo.add(models, "m", versions=(1, 2, 3), extra=policy)
    c = control()
    assert c.load("m").status == 200
    assert ready(c, "m") == served
    assert c.answer("m")[1] == str(max(served))
    for version in (1, 2, 3, 7):
        reply = c.infer(f"m/versions/{version}")
        if version in served:
            assert reply.ok().json()["model_version"] == str(version)
        else:
            assert reply.status in (404, 503) and f"'m' version {version} is not" in reply.error
    assert c.rest.get("/v2/models/m").json()["versions"] == [str(v) for v in sorted(served)]


def test_numbers_are_compared_as_numbers(models, control):
    repo.add(models, "m", versions=(2, 9, 10))
    c = control()
    c.load("m")
    assert c.answer("m")[1] == "10"


def test_folders_that_are_no_versions(models, control):
    folder = repo.add(models, "m", versions=(2,), extra="version_policy { all { } }")
    for name in ("0", "01", "-1", "1a", "a", "1.5", "99999999999999999999", ".3", "+4", " 5"):
        (folder / name).mkdir()
    (folder / "7").write_text("a file")
    c = control()
    assert c.load("m").status == 200
    assert ready(c, "m") == {2}


@pytest.mark.parametrize("versions, policy", [((), ""), ((1,), "version_policy { specific { versions: 5 } }")], ids=["none", "not that"])
def test_no_version_is_there(models, control, versions, policy):
    repo.add(models, "m", versions=versions, extra=policy)
    c = control()
    reply = c.load("m")
    assert reply.status == 500 and "failed to load 'm', no version is available" in reply.error


def test_all_versions_must_load(models, control):
    """One damaged version fails the load, as in Triton; nothing of it serves."""
    stock = models / "versions"
    repo.stock(models, "versions")
    (stock / "2" / "model.onnx").write_bytes(b"damaged")
    c = control()
    reply = c.load("versions")
    assert reply.status == 400 and "load failed for model 'versions': version 2" in reply.error
    assert c.states("versions")["2"] == "UNAVAILABLE"


def test_versions_of_onnx_models_differ(models, control):
    repo.stock(models, "versions")
    c = control()
    c.load("versions")
    for version in (1, 2, 3):
        reply = c.rest.infer(f"versions/versions/{version}", [("INPUT0", "INT32", [1, 4], [10, 20, 30, 40])])
        assert reply.ok().json()["outputs"][0]["data"] == [n + version for n in (10, 20, 30, 40)]


def test_a_new_version_takes_over(models, control):
    folder = repo.add(models, "m")
    c = control()
    c.load("m")
    assert c.answer("m")[1] == "1"
    (folder / "2").mkdir()
    assert c.load("m").status == 200
    assert c.answer("m")[1] == "2"
    wait.until(lambda: c.states("m") == {"1": "UNAVAILABLE", "2": "READY"}, "the end of version 1")
    assert c.index("m")[0].get("reason") == "unloaded"
    assert c.ready()


def test_a_removed_version_goes(models, control):
    folder = repo.add(models, "m", versions=(1, 2), extra="version_policy { all { } }")
    c = control()
    c.load("m")
    (folder / "2").rmdir()
    assert c.load("m").status == 200
    assert c.answer("m")[1] == "1"
    wait.until(lambda: ready(c, "m") == {1}, "the end of version 2")
    assert c.ready()


def test_a_changed_policy(models, control):
    repo.add(models, "m", versions=(1, 2, 3))
    c = control()
    c.load("m")
    assert ready(c, "m") == {3}
    repo.add(models, "m", versions=(), extra="version_policy { specific { versions: [1, 2] } }")
    assert c.load("m").status == 200
    wait.until(lambda: ready(c, "m") == {1, 2}, "the versions of the new policy")
    assert c.answer("m")[1] == "2"

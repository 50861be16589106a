"""Which model answers: a version that changes while `millrace batch run` is at work, or between two starts."""
import json

from lib import batch

pytestmark = batch.pytestmark


class Updated(batch.Host):
    """Version 2, which answers differently, takes over after some calls."""
    old_calls = 10

    def answer(self, number, x, key):
        if number > self.old_calls:
            type(self).version = "2"
            self.good(x, key, y=x.sum(axis=1) + 1000)
        else:
            self.good(x, key)


def test_model_is_replaced_on_one_host(tmp_path):
    """Not one row of the new version comes into the results, and none is blamed for it."""
    x = batch.table(tmp_path / "in", 20000)
    with batch.hosts(batch.Host, Updated) as (addresses, made):
        done = batch.run(tmp_path, addresses, "--json")
    batch.check(tmp_path, x)
    assert made[1].calls > Updated.old_calls and not batch.dead(tmp_path)
    assert f"{addresses[1]}: cordoned: another model: version '2' instead of '1'" in done.stderr or \
        f"{addresses[1]}: cordoned: another model: an answer of version '2' instead of '1'" in done.stderr, done.stderr
    told = {h["address"]: h["version"] for h in json.loads(done.stdout)["hosts"]}
    assert told[addresses[0]] == "1"


def test_model_is_replaced_everywhere(tmp_path):
    """The job waits for the version that it began with, and reports it; it continues with the new one only by an option."""
    x = batch.table(tmp_path / "in", 5000)
    with batch.hosts(Updated) as (addresses, made):
        done = batch.run(tmp_path, addresses, "--max-outage", "5", "--extent-rows", "200", code=1)
        assert "version '2' instead of '1'" in done.stderr
        assert not batch.dead(tmp_path)
        done = batch.run(tmp_path, addresses, code=1)
        assert 'another model version: "1", now "2" (--accept-changed-model goes on' in done.stderr
        batch.run(tmp_path, addresses, "--accept-changed-model")
        batch.run(tmp_path, addresses)
    t = batch.results(tmp_path)
    key, y = t["id"].to_numpy(), t["y"].to_numpy()
    new = y != x[key].sum(axis=1)
    assert sorted(key) == list(range(5000)) and 0 < new.sum() < 5000
    assert (y[new] == x[key[new]].sum(axis=1) + 1000).all()


def test_dead_letters_through_a_repaired_model(tmp_path):
    x = batch.table(tmp_path / "in", 2000)
    repaired = type("Repaired", (batch.Host,), {"version": "2"})
    with batch.hosts(batch.Poisoned) as (addresses, _):
        batch.run(tmp_path, addresses)
    with batch.hosts(repaired) as (addresses, _):
        batch.run(tmp_path, addresses, "--accept-changed-model", verb="retry-dlq")
    batch.check(tmp_path, x)


def test_inputs_that_changed(tmp_path):
    class Wider(batch.Host):
        def do_GET(self):
            self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                           "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, batch.WIDTH]}],
                           "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]},
                                       {"name": "z", "datatype": "INT64", "shape": [-1, 2]}]})
    batch.table(tmp_path / "in", 200)
    with batch.hosts(batch.Host, Wider) as (addresses, _):
        batch.run(tmp_path, addresses[:1])
        done = batch.run(tmp_path, addresses[1:], code=1)
    assert "other model inputs: " in done.stderr and "--accept-changed-model" in done.stderr

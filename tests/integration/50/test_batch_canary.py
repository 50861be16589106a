"""Hosts of `millrace batch run` that answer well-formed rubbish: found by comparison, and what they did is done again."""
import json
import math
import random
import shutil
import subprocess

import numpy
import pytest

from lib import batch, wait

pytestmark = batch.pytestmark

OFTEN = ("--canary-share", "0.05")
SMALL = ("--extent-rows", "100", "--part-bytes", "2000", "--commit-interval", "1")


class Rubbish(batch.Host):
    """All is as it should be, but for the values."""
    def answer(self, number, x, key):
        self.good(x, key, y=x.sum(axis=1, dtype=numpy.float32) + 1000)


class Late(Rubbish):
    """After some good answers."""
    good_calls = 8

    def answer(self, number, x, key):
        self.good(x, key) if number <= self.good_calls else super().answer(number, x, key)


class Close(batch.Host):
    """Another processor's rounding."""
    def answer(self, number, x, key):
        self.good(x, key, y=(x.sum(axis=1, dtype=numpy.float32) * 1.001).astype(numpy.float32))


class Dice(batch.Host):
    def answer(self, number, x, key):
        self.good(x, key, y=numpy.random.default_rng().uniform(-1000, 1000, len(key)).astype(numpy.float32))


@pytest.mark.parametrize("handler", [Rubbish, Late])
def test_one_of_three_is_wrong(tmp_path, handler):
    """Nothing of it stays, as nothing was committed; it is fenced, and says why."""
    x = batch.table(tmp_path / "in", 20000)
    with batch.hosts(batch.Host, handler, batch.Host, together=True) as (addresses, made):
        done = batch.run(tmp_path, addresses, *OFTEN, "--json")
    batch.check(tmp_path, x)
    assert "batch.host_wrong" in done.stderr and f"{addresses[1]}: fenced: it answers row " in done.stderr
    assert [h["address"] for h in json.loads(done.stdout)["hosts"] if "fenced" in h] == [addresses[1]]
    assert made[1].calls > 0


def test_what_is_committed_is_named_and_done_again(tmp_path):
    x = batch.table(tmp_path / "in", 20000)
    with batch.hosts(batch.Host, Rubbish, batch.Host, together=True) as (addresses, made):
        # The first look at it comes when some of its rows are committed, as a rule.
        for _ in range(20):
            done = batch.run(tmp_path, addresses, "--canary-share", "0.001", *SMALL)
            wrong = batch.results(tmp_path)
            key = wrong["id"].to_numpy()
            assert sorted(key) == list(range(len(x)))
            differ = int((wrong["y"].to_numpy() != x[key].sum(axis=1)).sum())
            if differ:
                break
            shutil.rmtree(tmp_path / "out")
        assert 0 < differ < len(x) / 2
        assert f"{differ} rows that it answered are committed: the same command with --recompute-host {addresses[1]}" in done.stderr
        calls = made[1].calls
        urls = [f"http://{a}" for a in addresses]  # as --hosts has them, which the log has not
        batch.run(tmp_path, urls, *SMALL, "--recompute-host", urls[1])
        batch.check(tmp_path, x)
        assert made[1].calls == calls
        # Once more is no more: nothing of the host is left.
        calls = made[0].calls + made[2].calls
        batch.run(tmp_path, addresses, *SMALL, "--recompute-host", addresses[1])
        assert made[0].calls + made[2].calls == calls
    batch.check(tmp_path, x)


def test_where_rows_come_from_is_no_difference(tmp_path):
    batch.table(tmp_path / "in", 10000)
    with batch.hosts(batch.Host, batch.Host, together=True) as (addresses, _):
        batch.run(tmp_path, addresses, *OFTEN, "--keep", "filename,file_row_number")


def test_two_hosts_differ(tmp_path):
    x = batch.table(tmp_path / "in", 10000)
    with batch.hosts(batch.Host, Rubbish, together=True) as (addresses, _):
        done = batch.run(tmp_path, addresses, *OFTEN, code=3)
        assert "differently, and no majority tells who is wrong" in done.stderr
        assert all(a in done.stderr.splitlines()[-1] for a in addresses)
        batch.run(tmp_path, addresses[:1], *OFTEN)
    batch.check(tmp_path, x)


@pytest.mark.parametrize("args", [("--canary-share", "0"), ("--canary-tolerance", "1000", *OFTEN)])
def test_nobody_looks(tmp_path, args):
    batch.table(tmp_path / "in", 10000)
    with batch.hosts(batch.Host, Rubbish, together=True) as (addresses, _):
        batch.run(tmp_path, addresses, *args)


@pytest.mark.parametrize("handlers", [(batch.Host, Close), (batch.Host, Close, batch.Host)])
def test_hosts_that_nobody_blames(tmp_path, handlers):
    batch.table(tmp_path / "in", 10000)
    with batch.hosts(*handlers, together=True) as (addresses, _):
        done = batch.run(tmp_path, addresses, *OFTEN)
    assert "batch.host_wrong" not in done.stderr


def test_model_that_throws_dice(tmp_path):
    """No two answers are alike, also of one host: there is nothing to compare."""
    batch.table(tmp_path / "in", 10000)
    with batch.hosts(Dice, Dice, Dice, together=True) as (addresses, made):
        done = batch.run(tmp_path, addresses, *OFTEN)
    assert "batch.canary_off" in done.stderr and "batch.host_wrong" not in done.stderr
    assert sum(m.calls for m in made) < 100 + 20


class Ends(batch.Host):
    """Does not answer this call nor those after it: the job is still there when the test kills it."""
    end = math.inf

    def answer(self, number, x, key):
        if number < self.end:
            self.good(x, key)


def test_killed_while_rows_are_done_again(tmp_path):
    """At any time each row is there once or is still to be done; in the end none of the host's is left."""
    x = batch.table(tmp_path / "in", 10000)
    with batch.hosts(Ends, Rubbish) as (addresses, made):
        batch.run(tmp_path, addresses, *SMALL, "--canary-share", "0")
        command = batch.command(tmp_path, addresses, *SMALL, "--recompute-host", addresses[1])
        kills, is_done = 0, False
        while not is_done:
            made[0].end = made[0].calls + random.randrange(1, 15 + kills)
            process = subprocess.Popen(command, env=batch.environment(), stderr=subprocess.DEVNULL)
            wait.until(lambda: made[0].calls >= made[0].end or process.poll() is not None, "some calls", step=0.001)
            is_done = process.poll() is not None
            process.kill()
            assert process.wait() == (0 if is_done else -9)
            kills += not is_done
            key = [k for f in (tmp_path / "out/parts").iterdir() if f.name in committed(tmp_path)
                   for k in batch.pq.read_table(f, columns=["id"])["id"].to_pylist()]
            assert len(key) == len(set(key))
    assert kills > 2
    batch.check(tmp_path, x)


def committed(folder):
    """Names of files that the log holds at the end."""
    names = set()
    for line in (folder / "out/manifest.log").read_text().splitlines():
        record = json.loads(line.rsplit(" ", 1)[0])
        names -= set(record.get("remove", ()))
        names |= {item["part"] for item in record.get("add", ()) if "part" in item}
    return names


@pytest.mark.parametrize("args,text", [
    (("--canary-share", "2"), "expected a number from 0 to 1"),
    (("--canary-tolerance", "x"), "expected a number"),
    (("--recompute-host", "a:1", "--plan"), "--recompute-host is for run"),
])
def test_what_cannot_be(tmp_path, args, text):
    done = batch.run(tmp_path, ["127.0.0.1:1"], *args, code=2)
    assert text in done.stderr

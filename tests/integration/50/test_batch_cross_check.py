"""Hosts of `millrace batch run` that answer well-formed rubbish: found by comparison, and what they did is done again."""
import json
import math
import random
import re
import shutil
import subprocess
import threading

import numpy
import pytest

from lib import batch, wait

pytestmark = batch.pytestmark

OFTEN = ("--cross-check-share", "0.05")
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


@pytest.mark.few
@pytest.mark.parametrize("handler", [Rubbish, Late])
def test_one_of_three_is_wrong(tmp_path, handler):
    """Nothing of it stays, as nothing was committed; it is quarantined, with the reason."""
    x = batch.table(tmp_path / "in", 20000)
    with batch.hosts(batch.Host, handler, batch.Host, together=True) as (addresses, made):
        done = batch.run(tmp_path, addresses, *OFTEN, "--json")
    batch.check(tmp_path, x)
    assert "batch.host_wrong" in done.stderr and f"{addresses[1]}: quarantined: it answers row " in done.stderr
    assert [h["address"] for h in json.loads(done.stdout)["hosts"] if "quarantined" in h] == [addresses[1]]
    assert made[1].calls > 0


def wrong_in_the_end(tmp_path, times, *args, code=0):
    """Runs jobs of three hosts, one of them wrong, until one finds it when some of its rows are committed. Yields the last
    one, and the hosts."""
    x = batch.table(tmp_path / "in", 20000)
    with batch.hosts(batch.Host, Rubbish, batch.Host, together=True) as (addresses, made):
        for _ in range(times):
            done = subprocess.run(batch.command(tmp_path, addresses, "--cross-check-share", "0.001", *SMALL, *args), text=True,
                                  capture_output=True, env=batch.environment(), timeout=wait.PATIENCE)
            assert "batch.host_wrong" in done.stderr
            if re.search(r"batch\.recompute.* rows=[1-9]", done.stderr) or done.returncode:
                break
            shutil.rmtree(tmp_path / "out")
    assert done.returncode == code, done.stderr
    return x, done, addresses


def test_what_is_committed_is_done_again_by_itself(tmp_path):
    """Whatever the host had answered, the job that is finished has none of it."""
    x, done, _ = wrong_in_the_end(tmp_path, 20)
    assert re.search(r"batch\.recompute.* rows=[1-9]", done.stderr)
    batch.check(tmp_path, x)
    assert (tmp_path / "out/_SUCCESS").exists()


def test_what_is_committed_to_a_table_is_not_finished(tmp_path):
    """It cannot be taken back there: exit status 3, which rows, and no _SUCCESS."""
    _, done, addresses = wrong_in_the_end(tmp_path, 20, "--output-database", f"sqlite:{tmp_path}/results.db", "--output-table", "t", code=3)
    assert addresses[1] in done.stderr.splitlines()[-1] and "removed by hand" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out/_SUCCESS").exists()


def test_a_host_that_somebody_names_is_done_again(tmp_path):
    x = batch.table(tmp_path / "in", 20000)
    with batch.hosts(batch.Host, Rubbish, batch.Host, together=True) as (addresses, made):
        batch.run(tmp_path, addresses, "--cross-check-share", "0", *SMALL)
        wrong = batch.results(tmp_path)
        assert (wrong["y"].to_numpy() != x[wrong["id"].to_numpy()].sum(axis=1)).any()
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
        assert "differently, and there is no majority" in done.stderr
        assert all(a in done.stderr.splitlines()[-1] for a in addresses)
        batch.run(tmp_path, addresses[:1], *OFTEN)
    batch.check(tmp_path, x)


@pytest.mark.parametrize("args", [("--cross-check-share", "0"), ("--cross-check-tolerance", "1000", *OFTEN)])
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
    assert "batch.cross_check_off" in done.stderr and "batch.host_wrong" not in done.stderr
    assert sum(m.calls for m in made) < 100 + 20


class Ends(batch.Host):
    """Does not answer this call nor those after it: the job is still there when the test kills it."""
    end = math.inf

    def answer(self, number, x, key):
        if number < self.end:
            self.good(x, key)


@pytest.mark.more
def test_killed_while_rows_are_done_again(tmp_path):
    """At any time each row is in the results once or is still to be done; in the end no row of the host is left."""
    x = batch.table(tmp_path / "in", 10000)
    with batch.hosts(Ends, Rubbish) as (addresses, made):
        batch.run(tmp_path, addresses[1:], *SMALL, "--cross-check-share", "0")  # all rows are its own, so that there is time for kills
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
    (("--cross-check-share", "2"), "expected a number from 0 to 1"),
    (("--cross-check-tolerance", "x"), "expected a number"),
    (("--recompute-host", "a:1", "--plan"), "--recompute-host is for run"),
])
def test_what_cannot_be(tmp_path, args, text):
    done = batch.run(tmp_path, ["127.0.0.1:1"], *args, code=2)
    assert text in done.stderr


class Hangs(batch.Host):
    """From the first row on that is compared: no other call has one row."""
    def answer(self, number, x, key):
        if len(key) > 1:
            self.good(x, key)
        else:
            self.hung.set()
            self.is_over.wait()
            self.close_connection = True


def test_a_job_that_is_done_does_not_wait_for_the_last_check(tmp_path):
    """Hosts that hang then are none the worse for it, and the job ends long before the call would. Both do, as either may have
    answered all rows."""
    x = batch.table(tmp_path / "in", 2000)
    events = {"hung": threading.Event(), "is_over": threading.Event()}
    hangs = type("Hangs", (Hangs,), events)
    with batch.hosts(hangs, hangs, together=True) as (addresses, _):
        try:
            done = subprocess.run(batch.command(tmp_path, addresses), env=batch.environment(), capture_output=True, text=True,
                                  timeout=wait.PATIENCE)
        finally:
            events["is_over"].set()
    assert done.returncode == 0 and events["hung"].is_set(), done.stderr
    batch.check(tmp_path, x)


class Behind(batch.Host):
    """Has answered nothing before the one row comes that compares: all rows of the table are answered by others then, as
    200 calls are enough for a second copy of each call that it has."""
    def answer(self, number, x, key):
        if len(key) == 1:
            self.compared.set()
        wait.until(self.compared.is_set, "the row that compares")
        self.good(x, key)


class Hidden(Behind):
    """Does not report its model before the other host has answered all rows."""
    def do_GET(self):
        wait.until(lambda: self.first[0].calls >= 200, "all calls to the other host")
        super().do_GET()


def quick_and_wrong(*others):
    """The hosts, of which the first one does all of the table; their classes know each other."""
    first, compared = [], threading.Event()
    made = [type(h.__name__, (h,), {"compared": compared, "first": first}) for h in others]
    first.append(type("Quick", (Rubbish,), {"calls": 0}))
    return first + made


@pytest.mark.parametrize("handler", [Behind, Hidden])
def test_who_has_done_all_is_compared_with_who_has_done_nothing(tmp_path, handler):
    batch.table(tmp_path / "in", 2000)
    with batch.hosts(*quick_and_wrong(handler)) as (addresses, made):
        made[1].first[0] = made[0]
        done = batch.run(tmp_path, addresses, "--batch-rows", 10, code=3)
    assert "differently, and there is no majority" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out/_SUCCESS").exists()


def test_who_has_done_all_wrongly_is_done_again(tmp_path):
    x = batch.table(tmp_path / "in", 2000)
    with batch.hosts(*quick_and_wrong(Behind, Behind)) as (addresses, _):
        done = batch.run(tmp_path, addresses, "--batch-rows", 10)
    batch.check(tmp_path, x)
    assert "batch.host_wrong" in done.stderr
    assert (tmp_path / "out/_SUCCESS").exists()


class Fails(batch.Host):
    """Never answers, and is used all the same: it is busy."""
    def answer(self, number, x, key):
        self.say(503, {"error": "busy"})


class Gone(batch.Host):
    """Hangs, whatever it is asked."""
    def answer(self, number, x, key):
        wait.until(self.is_over.is_set, "the job to end", patience=100)
        self.close_connection = True


@pytest.mark.parametrize("handler", [Fails, Gone])
def test_who_is_compared_with_none_is_told(tmp_path, handler):
    """It is unknown whether it is right, and the job does not wait for long."""
    x = batch.table(tmp_path / "in", 2000)
    is_over = threading.Event()
    with batch.hosts(batch.Host, type("Other", (handler,), {"is_over": is_over})) as (addresses, _):
        try:
            done = batch.run(tmp_path, addresses)
        finally:
            is_over.set()
    batch.check(tmp_path, x)
    assert f'batch.not_compared host="{addresses[0]}" rows=2000' in done.stderr


def test_who_is_gone_was_compared(tmp_path):
    """A wrong host that does its part and is not there any more at the end: its answer is compared all the same."""
    class Leaves(Rubbish):
        def answer(self, number, x, key):
            self.say(500, {"error": "away"}) if number > 5 else super().answer(number, x, key)
    batch.table(tmp_path / "in", 2000)
    with batch.hosts(Leaves, batch.Host, together=True) as (addresses, _):
        done = batch.run(tmp_path, addresses, code=3)
    assert "differently, and there is no majority" in done.stderr.splitlines()[-1]

"""Whose fault it is: a host that refuses what others answer, rows that all of them refuse, and hosts that are away for a while.

What must hold: the word of one host makes no dead letter where another one would answer; an outage makes none at all.
"""
import subprocess
import threading

import grpc
import pytest

from lib import batch, wait
from lib.batch import Host, check, dead, hosts, run, table
from lib.services.batchgrpc import Service, services

pytestmark = batch.pytestmark

REFUSALS = [400, 409, 413, 415, 422]


def refusing(status):
    class Refuses(Host):
        def answer(self, number, x, key):
            self.say(status, {"error": "not from me"})
    return Refuses


class Broken(Host):
    """Not able to take any row whose number can be divided by three."""
    def answer(self, number, x, key):
        self.say(400, {"error": "no threes"}) if (key % 3 == 0).any() else self.good(x, key)


class Slow(Host):
    """So that a host that refuses at once gets most of the calls."""
    def answer(self, number, x, key):
        threading.Event().wait(0.01)
        self.good(x, key)


@pytest.mark.few(2)
@pytest.mark.parametrize("status", REFUSALS)
def test_one_host_refuses_all(tmp_path, status):
    x = table(tmp_path / "in", 5000)
    with hosts(refusing(status), Slow) as (addresses, made):
        done = run(tmp_path, addresses, "--batch-rows", 10)
    check(tmp_path, x)
    assert dead(tmp_path) == []
    assert "batch.host_refuses" in done.stderr and "not from me" in done.stderr
    assert made[0].calls < 250  # of 500: it gets no more soon


def test_two_of_three_hosts_refuse_all(tmp_path):
    """Neither has ever answered, so their agreement shows nothing."""
    x = table(tmp_path / "in", 3000)
    with hosts(refusing(400), refusing(400), Slow) as (addresses, _):
        run(tmp_path, addresses, "--batch-rows", 1)
    check(tmp_path, x)
    assert dead(tmp_path) == []


@pytest.mark.parametrize("batch_rows", [1, 100])
def test_one_host_refuses_some(tmp_path, batch_rows):
    x = table(tmp_path / "in", 2000)
    with hosts(Broken, Host) as (addresses, _):
        run(tmp_path, addresses, "--batch-rows", batch_rows)
    check(tmp_path, x)
    assert dead(tmp_path) == []


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.OUT_OF_RANGE])
def test_one_host_refuses_all_over_grpc(tmp_path, code):
    x = table(tmp_path / "in", 3000)
    with services(Service(lambda number, key: (code, "not from me")), Service()) as addresses:
        run(tmp_path, addresses, "--protocol", "grpc")
    check(tmp_path, x)
    assert dead(tmp_path) == []


class Poisoned(Host):
    """Refuses calls with one of these rows."""
    poison = (777, 778, 2500)

    def answer(self, number, x, key):
        self.say(400, {"error": "row of ill will"}) if set(key.tolist()) & set(self.poison) else self.good(x, key)


def test_hosts_agree(tmp_path):
    """The second opinion on a bad row costs two calls."""
    x = table(tmp_path / "in", 10000)
    with hosts(Poisoned, Poisoned) as (addresses, made):
        run(tmp_path, addresses, "--batch-rows", 256, "--cross-check-share", 0)
    check(tmp_path, x, gone=Poisoned.poison)
    assert {d["row"] for d in dead(tmp_path) if d["file"].endswith("0.parquet")} == {777, 778, 2500}
    # one by each host, and one as JSON where a host had not taken bytes before
    assert {d["attempts"] for d in dead(tmp_path)} <= {2, 3, 4} and {d["kind"] for d in dead(tmp_path)} == {"rejected"}
    # for each two halves of 256, 128, ... 2 rows, the second opinion, and once as JSON; at the end some are sent twice
    assert sum(h.again for h in made) <= 3 * (16 + 2 + 1) + 1 + 120 // 20


def test_bad_rows_and_a_bad_host(tmp_path):
    x = table(tmp_path / "in", 3000)
    with hosts(refusing(400), Poisoned, Poisoned) as (addresses, _):
        run(tmp_path, addresses)
    check(tmp_path, x, gone=Poisoned.poison)


def test_bad_rows_and_a_host_that_is_not_there(tmp_path):
    """There is no third host: the answer of the other one counts, as it answers other rows."""
    x = table(tmp_path / "in", 3000)
    with hosts(Poisoned) as (addresses, _):
        run(tmp_path, ["127.0.0.1:1", *addresses])
    check(tmp_path, x, gone=Poisoned.poison)


def test_many_rows_are_bad(tmp_path):
    """One of ten: then nearly each row goes alone, and no more than twice."""
    asked = []

    class Tenth(Host):
        def answer(self, number, x, key):
            asked.append(tuple(key.tolist()))
            self.say(400, {"error": "no tens"}) if (key % 10 == 0).any() else self.good(x, key)
    x = table(tmp_path / "in", 2000)
    with hosts(Tenth, Tenth) as (addresses, _):
        run(tmp_path, addresses)
        assert len(set(asked)) < 2000 and len(asked) < 2 * 2000  # which calls come twice depends on who is quicker
    check(tmp_path, x, gone=range(0, 2000, 10))


def test_all_rows_are_bad(tmp_path):
    table(tmp_path / "in", 300)
    with hosts(refusing(400), refusing(400)) as (addresses, made):
        run(tmp_path, addresses)
        assert sum(h.calls for h in made) < 300 * 9  # each call by both, with bytes and as JSON
    assert len(dead(tmp_path)) == 300


def test_a_host_that_takes_fewer_rows(tmp_path):
    """It is no bad host: it gets smaller calls, and the other one, which waits for more of them after the first, does not."""
    first, more = threading.Event(), threading.Event()

    class Small(Host):
        most_rows = 20
        sizes = []

        def answer(self, number, x, key):
            self.sizes.append(len(key))
            small = sum(n <= 20 for n in self.sizes)
            if small > 0:
                first.set()
            if small > 10:
                more.set()
            super().answer(number, x, key)

    class Large(Slow):
        sizes = []

        def answer(self, number, x, key):
            self.sizes.append(len(key))
            if first.is_set():
                more.wait(wait.PATIENCE)
            super().answer(number, x, key)
    x = table(tmp_path / "in", 100000)  # so that the other one is not through with it before the first
    with hosts(Small, Large) as (addresses, _):
        run(tmp_path, addresses, "--batch-rows", 160)
    check(tmp_path, x)
    assert sum(n <= 20 for n in Small.sizes) > 10 and Large.sizes.count(160) > 5


def test_map_with_a_host_that_refuses(tmp_path):
    rows = "".join('{"id": %d, "x": [1, 2, 3, 4]}\n' % i for i in range(200))
    with hosts(refusing(400), Slow) as (addresses, _):
        done = subprocess.run([str(batch.BIN), "map", "-m", "m", "--hosts", ",".join(addresses), "--keep", "id"], input=rows,
                              capture_output=True, text=True, env=batch.environment(), timeout=wait.PATIENCE)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 200, done.stderr


class Outage:
    """Hosts that all fail for a number of calls, from one on."""
    first, count = 40, 30

    def __init__(self, status=500):
        self.calls, self.lock, self.status = 0, threading.Lock(), status

    def is_down(self):
        with self.lock:
            self.calls += 1
            return self.first < self.calls <= self.first + self.count


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_outage(tmp_path, batch_rows):
    outage = Outage()

    class Goes(Host):
        def answer(self, number, x, key):
            self.say(500, {"error": "away"}) if outage.is_down() else self.good(x, key)
    x = table(tmp_path / "in", 200 if batch_rows == 1 else 20000 if batch_rows == 100 else 1000)
    with hosts(Goes, Goes, Goes) as (addresses, _):
        run(tmp_path, addresses, "--batch-rows", batch_rows)
    check(tmp_path, x)
    assert outage.calls > outage.first + outage.count and dead(tmp_path) == []


def test_one_host_of_two_fails_rows(tmp_path):
    """The other one is asked before a row is given up."""
    class Fails(Host):
        def answer(self, number, x, key):
            self.say(500, {"error": "no threes"}) if (key % 3 == 0).any() else self.good(x, key)
    x = table(tmp_path / "in", 2000)
    with hosts(Fails, Host) as (addresses, _):
        run(tmp_path, addresses, "--batch-rows", 16)
    check(tmp_path, x)


def test_row_that_fails_says_how_often(tmp_path):
    class Crashes(Host):
        def answer(self, number, x, key):
            self.say(500, {"error": "crashed"}) if 777 in key else self.good(x, key)
    x = table(tmp_path / "in", 3000)
    with hosts(Crashes, Crashes) as (addresses, _):
        run(tmp_path, addresses)
    check(tmp_path, x, gone=[777])
    (letter,) = dead(tmp_path)
    assert letter["kind"] == "failed" and letter["attempts"] >= 5


def test_a_model_whose_name_would_be_another_path(tmp_path):
    """Over REST: the host is not asked."""
    table(tmp_path / "in", 10)
    with hosts(Host) as (addresses, made):
        words = batch.command(tmp_path, addresses)
        words[words.index("m")] = "m?x"
        done = subprocess.run(words, capture_output=True, text=True, env=batch.environment(), timeout=wait.PATIENCE)
    assert done.returncode != 0 and "over REST names of models and versions have no" in done.stderr, done.stderr
    assert made[0].calls == 0

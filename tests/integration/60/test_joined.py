"""Calls with rows of several extents, and the outcome of each row."""
import pytest

from lib import wait
from lib.batch import Broken, Errs, Host, Poisoned, asked, check, dead, hosts, pytestmark, run, table

TINY = ["--extent-rows", 10]
ONE = ["--max-in-flight-per-host", 1]


def waits_for_rows(folder):
    """A host that answers the first call when all rows have been read: then none of the others waits for the reader."""
    class Waits(Host):
        def answer(self, number, x, key):
            if number == 1:
                wait.until(lambda: asked(folder).get("reader") == "has ended", "the end of the table")
            self.good(x, key)
    return Waits


def test_small_extents_fill_calls(tmp_path):
    x = table(tmp_path / "in", 5000, files=1)
    with hosts(waits_for_rows(tmp_path)) as (addresses, made):
        run(tmp_path, addresses, *TINY, *ONE)
        assert 50 <= made[0].calls <= 52  # 500 extents; the first call may be small, and so may the next one
    check(tmp_path, x)


def test_small_files_fill_calls(tmp_path):
    x = table(tmp_path / "in", 900, files=30)
    with hosts(waits_for_rows(tmp_path)) as (addresses, made):
        run(tmp_path, addresses, "--order", "physical", *ONE)
        assert 9 <= made[0].calls <= 11
    check(tmp_path, x)


def test_dead_rows_leave_no_gaps(tmp_path):
    bad = {k: None for k in range(4000) if k % 4 == 1}
    x = table(tmp_path / "in", 4000, files=1, bad=bad)
    with hosts(waits_for_rows(tmp_path)) as (addresses, made):
        run(tmp_path, addresses, "--max-dead-percent", 100, *ONE)
        assert 30 <= made[0].calls <= 32
    check(tmp_path, x, gone=list(bad))


@pytest.mark.parametrize("handler,kind", [(Poisoned, "rejected"), (Broken, "failed")])
def test_one_row_of_many_extents(tmp_path, handler, kind):
    """Halves cross extents; the rows beside it succeed, in its extent and in others."""
    x = table(tmp_path / "in", 5000, files=1)
    with hosts(handler) as (addresses, made):
        run(tmp_path, addresses, "--batch-rows", 256, "--extent-rows", 50)
    check(tmp_path, x, gone=[777])
    letter, = dead(tmp_path)
    assert (letter["row"], letter["kind"]) == (777, kind)


def test_hosts_that_fail_now_and_then(tmp_path):
    x = table(tmp_path / "in", 5000)
    with hosts(Errs, Host) as (addresses, _):
        run(tmp_path, addresses, *TINY, "--order", "physical")
    check(tmp_path, x)
    assert dead(tmp_path) == []


@pytest.mark.parametrize("args", [["--extent-rows", 64], [], ["--order", "physical"]])
def test_a_call_is_never_waited_for_that_cannot_be_filled(tmp_path, args):
    """The budget has room for far fewer rows than a call takes."""
    x = table(tmp_path / "in", 6000)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, "--memory", "1MiB", "--batch-rows", 100000, *args)
    check(tmp_path, x)

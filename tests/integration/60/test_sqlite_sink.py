"""Results of batch jobs in tables of SQLite files."""
import json
import shutil
import sqlite3
import subprocess
import threading
import time

import pytest

from lib import wait
from lib.batch import WIDTH, Broken, Host, Poisoned, dead, environment, hosts, pytestmark, table
from lib.sql import arguments, check_rows, killed_at_random, killed_at_syncs, run, sqlite_table


def sink(folder, name="out.db"):
    return ["--output-database", f"sqlite:{folder}/{name}", "--output-table", "results"]


def ask(folder, sql, name="out.db"):
    db = sqlite3.connect(folder / name, timeout=wait.PATIENCE)
    with db:
        rows = db.execute(sql).fetchall()
    db.close()
    return rows


def stored(folder, name="out.db", where=""):
    return [(*r[:3], json.loads(r[3])) for r in ask(folder, f"select id, name, y, z from results {where}", name)]


def files(folder):
    return ["-i", str(folder / "in")]


def test_results(tmp_path):
    """Of files, with their types; each commit is noted; another start does nothing, another job adds its rows."""
    x = table(tmp_path / "in", 5000)
    with hosts(Poisoned) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *sink(tmp_path))
        assert "0 of them now" in run(tmp_path, addresses, files(tmp_path), *sink(tmp_path)).stderr
        check_rows(stored(tmp_path), x, gone=[777])
        (tmp_path / "out").rename(tmp_path / "first")
        run(tmp_path, addresses, files(tmp_path), *sink(tmp_path))
    assert ask(tmp_path, "select count(*), count(distinct id) from results") == [(9998, 4999)]
    assert [r[1:3] for r in ask(tmp_path, "pragma table_info(results)")] == [
        ("id", "INTEGER"), ("name", "TEXT"), ("y", "REAL"), ("z", "TEXT")]
    assert ask(tmp_path, "select count(*) from millrace_jobs") == [(2,)]
    assert ask(tmp_path, "select sum(row_count) from millrace_commits") == [(9998,)]
    assert list((tmp_path / "out/parts").iterdir()) == []
    assert [d["row"] for d in dead(tmp_path)] == [777]
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert (report["results"], report["dead_letters"]) == (4999, 1)
    merge = subprocess.run(arguments(tmp_path, [], [], verb="merge")[:3] + [str(tmp_path / "out"), "--output", "x"], env=environment(),
                           capture_output=True, text=True)
    assert merge.returncode == 1 and "no files to merge" in merge.stderr


def test_with_little_memory(tmp_path):
    """Rows that wait for their commit keep some of it: what is left is enough to read on."""
    x = table(tmp_path / "in", 3000)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *sink(tmp_path), "--memory", "1MiB", "--commit-interval", "1h")
    check_rows(stored(tmp_path), x)


@pytest.mark.few
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_killed_at_each_sync(tmp_path, mode):
    """The file is source and sink of the job; whatever was on disk, each row is there once in the end."""
    x = sqlite_table(tmp_path / "out.db", 2000)
    ask(tmp_path, f"pragma journal_mode={mode}")
    with hosts(Poisoned) as (addresses, _):
        words = arguments(tmp_path, addresses, ["-i", f"sqlite:{tmp_path}/out.db", "--table", "rows"], *sink(tmp_path),
                          "--extent-rows", "100", "--part-bytes", "1")
        assert killed_at_syncs(words) > 8
    check_rows(stored(tmp_path), x, gone=[777])
    assert [d["row"] for d in dead(tmp_path)] == [777]
    assert ask(tmp_path, "select sum(row_count) from millrace_commits") == [(1999,)]
    assert json.loads((tmp_path / "out/report.json").read_text())["results"] == 1999


def test_answers_of_unknown_size(tmp_path):
    """The first rows go ahead of the others, which do not wait for the next commit."""
    x = table(tmp_path / "in", 2000)

    class Open(Host):
        def do_GET(self):
            self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                           "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]},
                                      {"name": "id", "datatype": "INT64", "shape": [-1]}],
                           "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]},
                                       {"name": "z", "datatype": "INT64", "shape": [-1, -1]}]})
    with hosts(Open) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *sink(tmp_path), "--commit-interval", "1h")
    check_rows(stored(tmp_path), x)
    assert ask(tmp_path, "select row_count from millrace_commits order by rowid") == [(16,), (1984,)]


@pytest.mark.parametrize("options, more", [
    ("", ("--query", "select * from rows order by id")),
    ("WITHOUT ROWID", ("--table", "rows")),
], ids=["query", "no-rowid"])
def test_one_file_that_the_source_keeps_locked(tmp_path, options, more):
    """Whatever its name: refused at once, unless others can write beside a reader."""
    x = sqlite_table(tmp_path / "rows.db", 10500, options=options)
    (tmp_path / "out.db").symlink_to("rows.db")
    source = ["-i", f"sqlite:{tmp_path}/rows.db", *more]
    small = ["--extent-rows", "100", "--part-bytes", "1"]
    with hosts(Host) as (addresses, _):
        done = run(tmp_path, addresses, source, *sink(tmp_path), *small, "--max-outage", "5", code=1)
        assert "journal_mode=WAL" in done.stderr and "is locked" not in done.stderr
        ask(tmp_path, "pragma journal_mode=wal")
        run(tmp_path, addresses, source, *sink(tmp_path), *small)
    check_rows(stored(tmp_path), x)


@pytest.mark.more
def test_killed_at_random(tmp_path):
    x = table(tmp_path / "in", 20000)
    with hosts(Host) as (addresses, _):
        words = arguments(tmp_path, addresses, files(tmp_path), *sink(tmp_path), "--extent-rows", "200", "--part-bytes", "1")
        killed_at_random(words, 5, 0.5)
    check_rows(stored(tmp_path), x)


@pytest.mark.more
def test_dead_letters_once_more(tmp_path):
    """Killed at each sync as well: a row is a letter, or a result, and never both."""
    x = table(tmp_path / "in", 3000, files=1)

    class Refuses(Host):
        def answer(self, number, x, key):
            bad = [k for k in key.tolist() if k % 300 == 7]
            self.say(400, {"error": "ill will"}) if bad else self.good(x, key)
    options = [*sink(tmp_path), "--extent-rows", "300", "--part-bytes", "1", "--max-dead-percent", "100"]
    with hosts(Refuses) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *options)
    gone = list(range(7, 3000, 300))
    assert sorted(d["row"] for d in dead(tmp_path)) == gone

    class Some(Host):
        def answer(self, number, x, key):
            self.say(400, {"error": "still"}) if 307 in key else self.good(x, key)
    with hosts(Some) as (addresses, _):
        assert killed_at_syncs(arguments(tmp_path, addresses, files(tmp_path), *options, verb="retry-dlq")) > 5
        check_rows(stored(tmp_path), x, gone=[307])
        letter, = dead(tmp_path)
        assert letter["row"] == 307
        run(tmp_path, addresses, files(tmp_path), *options)
    check_rows(stored(tmp_path), x, gone=[307])


def test_a_locked_file_is_waited_for(tmp_path):
    x = table(tmp_path / "in", 2000)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *sink(tmp_path), "--plan")
        assert not (tmp_path / "out.db").exists()
        calls = []

        class Locks(Host):
            def answer(self, number, x, key):
                if not calls:
                    calls.append(number)
                    db = sqlite3.connect(tmp_path / "out.db", check_same_thread=False, isolation_level=None)
                    db.execute("begin exclusive")
                    threading.Timer(1.5, lambda: db.execute("rollback")).start()
                self.good(x, key)
        with hosts(Locks) as (locking, _):
            run(tmp_path, locking, files(tmp_path), *sink(tmp_path))
    check_rows(stored(tmp_path), x)


def test_a_file_that_stays_locked(tmp_path):
    """The job ends after its time limit, and continues at the next start."""
    x = table(tmp_path / "in", 2000)
    held = []

    class Locks(Host):
        def answer(self, number, x, key):
            if not held:
                held.append(sqlite3.connect(tmp_path / "out.db", check_same_thread=False, isolation_level=None))
                held[0].execute("begin exclusive")
            self.good(x, key)
    with hosts(Locks) as (addresses, _):
        done = run(tmp_path, addresses, files(tmp_path), *sink(tmp_path), "--max-outage", "5", code=1)
        assert "database is locked" in done.stderr
        held[0].execute("rollback")
        run(tmp_path, addresses, files(tmp_path), *sink(tmp_path))
    check_rows(stored(tmp_path), x)


@pytest.mark.parametrize("made, why", [
    ("create table results (id, y, z)", "has no column 'name'"),
    ("create table results (id, name, y TEXT, z)", "its column 'y' is TEXT; results need REAL"),
    ("create table results (id, name BLOB, y, z)", "its column 'name' is BLOB; results need TEXT"),
    ("create table results (id, name, y, z DECIMAL)", "its column 'z' is DECIMAL; results need TEXT"),
])
def test_a_table_that_does_not_fit(tmp_path, made, why):
    table(tmp_path / "in", 10)
    ask(tmp_path, made)
    with hosts(Host) as (addresses, _):
        assert why in run(tmp_path, addresses, files(tmp_path), *sink(tmp_path), code=1).stderr


def test_a_table_that_refuses_rows(tmp_path):
    """Committed rows stay, and the job continues when the table is repaired."""
    x = table(tmp_path / "in", 2000, files=1)
    ask(tmp_path, "create table results (id INTEGER PRIMARY KEY, name, y, z, at DEFAULT CURRENT_TIMESTAMP)")
    ask(tmp_path, "create trigger stop before insert on results when new.id = 1500 begin select raise(abort, 'no 1500'); end")
    with hosts(Host) as (addresses, _):
        options = [*sink(tmp_path), "--extent-rows", "100", "--part-bytes", "1"]
        assert "no 1500" in run(tmp_path, addresses, files(tmp_path), *options, code=1).stderr
        ask(tmp_path, "drop trigger stop")
        run(tmp_path, addresses, files(tmp_path), *options)
    check_rows(stored(tmp_path), x)


def test_a_database_that_lost_rows(tmp_path):
    """An older backup, or no table: the job does not continue as if nothing had happened."""
    table(tmp_path / "in", 3000, files=1)

    class Stops(Host):
        def answer(self, number, x, key):
            self.good(x, key) if number <= 15 else self.say(503, {"error": "full"})
    options = [*sink(tmp_path), "--extent-rows", "100", "--part-bytes", "1"]
    with hosts(Stops) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *options, "--max-outage", "5", code=1)
    shutil.copy(tmp_path / "out.db", tmp_path / "good.db")
    with hosts(Host) as (addresses, _):
        ask(tmp_path, "delete from millrace_commits where rowid = 3")
        why = run(tmp_path, addresses, files(tmp_path), *options, code=1).stderr
        assert "the database does not know of p-000001-" in why
        shutil.copy(tmp_path / "good.db", tmp_path / "out.db")
        ask(tmp_path, "drop table results")
        assert "the table 'results' is gone" in run(tmp_path, addresses, files(tmp_path), *options, code=1).stderr
        (tmp_path / "out.db").unlink()
        assert "the table 'results' is gone" in run(tmp_path, addresses, files(tmp_path), *options, code=1).stderr
        (tmp_path / "good.db").rename(tmp_path / "out.db")
        ask(tmp_path, "update millrace_jobs set epoch = 1000")
        why = run(tmp_path, addresses, files(tmp_path), *options, code=1).stderr
        assert "another process has taken the job over: start 1000" in why
        assert "another table of results" in run(tmp_path, addresses, files(tmp_path), *sink(tmp_path, "other.db"), code=1).stderr
        assert "another table of results" in run(tmp_path, addresses, files(tmp_path), code=1).stderr


def test_a_table_is_gone_of_which_only_the_database_knows(tmp_path):
    """Killed between the first commit and its record: the rows are not taken for done."""
    table(tmp_path / "in", 100, files=1)

    class Copies(Host):
        def answer(self, number, x, key):
            shutil.copytree(tmp_path / "out", tmp_path / "early", ignore=shutil.ignore_patterns("control"), dirs_exist_ok=True)
            self.good(x, key)
    with hosts(Copies) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *sink(tmp_path))
        shutil.rmtree(tmp_path / "out")
        (tmp_path / "early").rename(tmp_path / "out")
        ask(tmp_path, "drop table results")
        assert "the table 'results' is gone" in run(tmp_path, addresses, files(tmp_path), *sink(tmp_path), code=1).stderr


@pytest.mark.parametrize("more, code, why", [
    (("--output-database", "sqlite:x.db"), 2, "only one of the two was named"),
    (("--output-table", "t"), 2, "only one of the two was named"),
    (("--output-database", "x.db", "--output-table", "t"), 2, "results go to a database: sqlite:FILE"),
    (("--output-database", "sqlite:x.db", "--output-table", "t", "--order", "logical"), 2, "a table has no order"),
    (("--output-database", "sqlite:/nowhere/x.db", "--output-table", "t"), 1, "cannot be opened"),
    (("--output-database", "sqlite:", "--output-table", "t"), 1, "names no file"),
])
def test_what_cannot_be_written(tmp_path, more, code, why):
    table(tmp_path / "in", 10)
    with hosts(Host) as (addresses, _):
        assert why in run(tmp_path, addresses, files(tmp_path), *more, code=code).stderr

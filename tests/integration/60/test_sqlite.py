"""Batch jobs over tables in SQLite files."""
import contextlib
import json
import sqlite3
import struct
import subprocess

import numpy
import pytest

from lib import wait
from lib.batch import Host, Poisoned, check, dead, environment, hosts, pytestmark, results
from lib.sql import arguments, run, sqlite_table, vectors

COLUMNS = "id INTEGER PRIMARY KEY, x TEXT, name TEXT"


def source(folder, *more):
    return ["-i", f"sqlite:{folder}/rows.db", *(more or ("--table", "rows"))]


def execute(folder, *statements, name="rows.db"):
    with contextlib.closing(sqlite3.connect(folder / name)) as db, db:
        for statement in statements:
            db.execute(*statement) if isinstance(statement, tuple) else db.execute(statement)


@pytest.mark.few(2)
@pytest.mark.parametrize("columns, options, more", [
    (COLUMNS, "", ("--table", "rows")),
    (COLUMNS, "WITHOUT ROWID", ("--table", "rows")),
    (COLUMNS, "STRICT", ("--table", "ROWS")),
    (COLUMNS, "", ("--query", "select * from rows where id >= 0 order by id desc; ")),
    ("id INT, x, name", "", ("--query", "select name, id, x from rows order by id -- by number")),
    ("id INT, x TEXT, name VARCHAR(20)", "", ("--table", "rows")),
], ids=["rowid", "no-rowid", "strict", "query", "undeclared", "hidden-key"])
def test_a_table(tmp_path, columns, options, more):
    x = sqlite_table(tmp_path / "rows.db", 10500, columns=columns, options=options)
    with hosts(Poisoned) as (addresses, _):
        run(tmp_path, addresses, source(tmp_path, *more))
        again = run(tmp_path, addresses, source(tmp_path, *more))
    check(tmp_path, x, gone=[777])
    assert "0 of them now" in again.stderr
    letter, = dead(tmp_path)
    assert letter["file"] == f"sqlite:{tmp_path}/rows.db#{more[1] if more[0] == '--table' else 'query'}"
    assert letter["row"] == (10500 - 778 if "desc" in more[1] else 777)


@pytest.mark.parametrize("keys", ["gaps", "negative"])
def test_goes_on_where_it_was(tmp_path, keys):
    """Row numbers are places in the order of the keys, wherever a start begins."""
    numbers = [k * 7 + (k % 3) for k in range(9000)] if keys == "gaps" else list(range(-4500, 4500))
    numbers[0], numbers[-1] = (numbers[0], 2**63 - 1) if keys == "gaps" else (-2**63, numbers[-1])
    sqlite_table(tmp_path / "rows.db", 9000, numbers)

    class Stops(Host):
        def answer(self, number, x, key):
            self.good(x, key) if number <= 30 else self.say(503, {"error": "full"})
    with hosts(Stops) as (addresses, _):
        run(tmp_path, addresses, source(tmp_path), "--max-outage", "5", "--extent-rows", "100", code=1)
    first = len(results(tmp_path))
    assert 0 < first < 9000
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, source(tmp_path), "--extent-rows", "1000")
    assert sorted(results(tmp_path)["id"].to_pylist()) == sorted(numbers)


def test_types(tmp_path):
    """Declared ones, and those that only the values have; a value of another type is a fault of its row."""
    execute(tmp_path, "create table rows (id INTEGER PRIMARY KEY, x BLOB, n INT, r REAL, t TEXT, b BLOB, flag BOOLEAN,"
            " any, name TEXT)")
    blob = struct.pack("<4f", 1, 2, 3.5, -4)
    execute(tmp_path,
            ("insert into rows values (0, ?, 5, 1.5, 'ä', x'00ff', 1, 2.5, 'row 0')", [blob]),
            ("insert into rows values (1, ?, NULL, NULL, NULL, NULL, NULL, NULL, 'row 1')", [blob]),
            ("insert into rows values (2, ?, 'many', 1, '', x'', 0, 1, 'row 2')", [blob]),
            ("insert into rows values (3, ?, 1, 1, 't', 'text', 0, 1, 'row 3')", [blob[:-1]]),
            ("insert into rows values (4, '[1,2]', 1, 1, 't', 'text', 0, 1, 'row 4')",),
            ("insert into rows values (5, ?, 1, 1, x'41', 'text', 0, 1, 'row 5')", [blob]),
            ("insert into rows values (6, ?, 1, 1, 't', 'text', 7, 1, 'row 6')", [blob]),
            ("insert into rows values (7, '[1,2,3.5,-4]', -9223372036854775808, 9e999, 't', 'text', 0, 1, 'row 7')",),
            ("insert into rows values (8, ?, 1, 1, 't', 'text', 0, ?, 'row 8')", [blob, 2**53 + 1]))
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, source(tmp_path), "--keep", "n,r,t,b,flag,any", "--max-cell-bytes", "1024")
    t = results(tmp_path).sort_by("id").to_pydict()
    assert t["id"] == [0, 1, 7]
    assert t["y"] == [2.5] * 3
    assert (t["n"], t["r"]) == ([5, None, -2**63], [1.5, None, numpy.inf])
    assert (t["t"], t["b"], t["flag"]) == (["ä", None, "t"], [b"\0\xff", None, b"text"], [True, None, False])
    assert t["any"] == [2.5, None, 1.0]
    why = {d["row"]: d["cause"] for d in dead(tmp_path)}
    assert why == {
        2: "column 'n' (I64): 'many' is not a value of this type",
        3: "column 'x' (FIXED_LIST<F32>[4]): there are more or fewer bytes than such a list has",
        4: "column 'x' (FIXED_LIST<F32>[4]): expected 4 items, found 2 at offset 5",
        5: "column 't' (STRING): the value is a BLOB",
        6: "column 'flag' (BOOL): the number does not fit",
        8: "column 'any' (F64): the number does not fit"}


def test_kept_numbers_of_inputs_are_as_found(tmp_path):
    whole = 2**53 + 1
    execute(tmp_path, "create table rows (id INTEGER PRIMARY KEY, a REAL, b INT, c REAL, d REAL, name TEXT)",
            ("insert into rows values (0, 0.1, ?, 1, 2, 'row 0')", [whole]))
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, source(tmp_path), "--map", "x=stack(a,b,c,d)", "--keep", "a,b")
    t = results(tmp_path).to_pydict()
    assert (t["a"], t["b"], t["y"]) == ([0.1], [whole], [numpy.float32(whole)])


def test_a_table_that_changed(tmp_path):
    """Other tables of the file may; this one may not, but where that is asked for."""
    x = sqlite_table(tmp_path / "rows.db", 2000)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, source(tmp_path))
        execute(tmp_path, "create table other (a)", "insert into other values (1)")
        run(tmp_path, addresses, source(tmp_path))
        execute(tmp_path, ("insert into rows values (2000, ?, 'row 2000')", [json.dumps(vectors(2001)[2000].tolist())]))
        why = run(tmp_path, addresses, source(tmp_path), code=1).stderr
        assert '"rows":2000' in why and '"rows":2001' in why and "--accept-changed-input" in why
        run(tmp_path, addresses, source(tmp_path), "--accept-changed-input")
    x = vectors(2001)
    check(tmp_path, x)


@pytest.mark.parametrize("change, words", [("delete from rows where id > 5500", "has changed since it was opened"),
                                           ("drop table rows", "no such table")])
def test_it_changes_while_it_is_read(tmp_path, change, words):
    """That is no damage, which could be left out."""
    sqlite_table(tmp_path / "rows.db", 6000)

    class Changes(Host):
        def answer(self, number, x, key):
            if number == 1:
                execute(tmp_path, change)
            self.good(x, key)
    with hosts(Changes) as (addresses, _):
        done = run(tmp_path, addresses, [*source(tmp_path), "--memory", "1MiB"], "--extent-rows", "100", "--skip-bad-files",
                   code=1)
    assert words in done.stderr


@pytest.mark.parametrize("stops", [False, True])
def test_a_locked_file_is_waited_for(tmp_path, stops):
    x = sqlite_table(tmp_path / "rows.db", 6000)
    held = []

    class Locks(Host):
        def answer(self, number, x, key):
            if number == 1:
                held.append(sqlite3.connect(tmp_path / "rows.db", check_same_thread=False, isolation_level=None))
                held[0].execute("begin exclusive")
            self.good(x, key)
    with hosts(Locks) as (addresses, _):
        words = arguments(tmp_path, addresses, source(tmp_path), "--memory", "1MiB", "--extent-rows", "100")
        with subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            said = next((line for line in process.stderr if "table.read_waits" in line), "")
            process.terminate() if stops else held[0].execute("rollback")
            _, err = process.communicate(timeout=wait.PATIENCE)
    assert "database is locked" in said and "database is locked" not in err, err
    assert process.returncode == (1 if stops else 0), err
    if not stops:
        check(tmp_path, x)


def test_others_write_when_all_rows_are_read(tmp_path):
    x = sqlite_table(tmp_path / "rows.db", 500, options="WITHOUT ROWID")

    def is_written():
        with contextlib.suppress(sqlite3.OperationalError):
            execute(tmp_path, "create table if not exists other (a)")
            return True

    class Writes(Host):
        def answer(self, number, x, key):
            wait.until(is_written, "the lock")
            self.good(x, key)
    with hosts(Writes) as (addresses, _):
        run(tmp_path, addresses, source(tmp_path))
    check(tmp_path, x)


@pytest.mark.parametrize("more, why", [
    (("--table", "nothing"), "there is no table 'nothing'"),
    (("--table", "seen"), "is a view, which has no order"),
    (("--query", "select * from rows"), "has no ORDER BY"),
    (("--query", "select * from rows order by id; drop table rows"), "one statement is expected"),
    (("--query", "delete from rows"), "the query gives no rows"),
    (("--query", "select id from rows order by"), "incomplete input"),
    (("--table", "rows", "--query", "select 1 order by 1"), "either a table or a query"),
    ((), "either a table or a query"),
    (("--table", "rows", "-i", "more.csv"), "a database is the only input"),
])
def test_what_cannot_be_read(tmp_path, more, why):
    sqlite_table(tmp_path / "rows.db", 10)
    execute(tmp_path, "create view seen as select * from rows")
    with hosts(Host) as (addresses, _):
        done = run(tmp_path, addresses, ["-i", f"sqlite:{tmp_path}/rows.db", *more], code=1)
    assert why in done.stderr


def test_files_that_are_none(tmp_path):
    with hosts(Host) as (addresses, _):
        assert "No such file" in run(tmp_path, addresses, source(tmp_path), code=1).stderr
        assert not (tmp_path / "rows.db").exists()
        (tmp_path / "rows.db").write_bytes(b"garbage, not a database " * 1000)
        assert "file is not a database" in run(tmp_path, addresses, source(tmp_path), code=1).stderr
        why = run(tmp_path, addresses, ["-i", str(tmp_path / "rows.db"), "--table", "rows"], code=1).stderr
        assert "table 'rows': the input is no database" in why


def test_plan(tmp_path):
    """Rows of a table are counted, those of a query are not, unless the probe reaches their end."""
    sqlite_table(tmp_path / "rows.db", 21000)
    with hosts(Host) as (addresses, _):
        plan = json.loads(run(tmp_path, addresses, source(tmp_path), "--plan", "--json").stdout)
        assert (plan["rows"], plan["rows_are"]) == (21000, "counted")
        assert "1 table, 21000 rows\n" in run(tmp_path, addresses, source(tmp_path), "--plan").stdout
        by_query = source(tmp_path, "--query", "select * from rows order by id")
        assert "rows not known" in run(tmp_path, addresses, by_query, "--plan").stdout
    assert not (tmp_path / "out").exists()

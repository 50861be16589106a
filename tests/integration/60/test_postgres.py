"""Batch jobs over tables in PostgreSQL, with a server of our own."""
import json
import shutil
import signal
import subprocess
import sys

import numpy
import pytest

from lib import wait
from lib.batch import Host, Poisoned, check, dead, environment, hosts, results
from lib.batch import pytestmark as needs_duckdb
from lib.services.postgres import PASSWORD, needs_server, server, stopped_at_lock
from lib.sql import arguments, run, vectors

pytestmark = [needs_duckdb, needs_server]


@pytest.fixture(scope="module")
def pg():
    with server() as s:
        yield s


@pytest.fixture(autouse=True)
def clean(pg):
    yield
    if not pg.process:
        pg.start()
    pg.psql("drop schema public cascade; create schema public; drop schema if exists other cascade")


def fill(pg, rows, table="rows", columns="id bigint primary key, x real[], name text", keys="k"):
    """Rows as of lib.batch.table."""
    x = vectors(rows)
    arrays = "\n".join("{" + ",".join(map(str, v)) + "}" for v in x.astype(int).tolist())
    pg.psql(f"create table {table} ({columns});\ncreate temp table lists (k bigserial, x real[]);\n"
            f"copy lists (x) from stdin with (delimiter ';');\n{arrays}\n\\.\n"
            f"insert into {table} select {keys}, x, 'row ' || {keys} from (select k - 1 as k, x from lists order by x) s;")
    return x


def source(pg, *more):
    return ["-i", pg.url(), *(more or ("--table", "rows"))]


@pytest.mark.few
@pytest.mark.parametrize("columns, more", [
    ("id bigint primary key, x real[], name text", ("--table", "rows")),
    ("id int not null, x double precision[], name varchar(20) collate \"C\", unique (name, id)", ("--table", "public.rows")),
    ("id numeric(20, 0) primary key, x numeric[], name char(9)", ("--query", "select * from rows order by id desc; ")),
    ("id smallint, x text, name name", ("--query", "select *, row_number() over (order by id) n from rows order by id -- !")),
], ids=["table", "unique", "query", "text"])
def test_a_table(pg, tmp_path, columns, more):
    keys = "k"
    if "x text" in columns:
        fill(pg, 3000)
        pg.psql("alter table rows alter x type text using array_to_json(x)::text")
    else:
        fill(pg, 3000, columns=columns, keys=keys)
    if "not null" in columns:
        pg.psql("alter table rows alter name set not null")
    pg.psql("update rows set name = rtrim(name)")  # rows move about in the table
    x = vectors(3000)
    with hosts(Poisoned) as (addresses, _):
        run(tmp_path, addresses, source(pg, *more))
        again = run(tmp_path, addresses, source(pg, *more))
    if "char(9)" in columns:
        t = results(tmp_path)
        assert sorted(int(v) for v in t["id"].to_pylist()) == [k for k in range(3000) if k != 777]
    else:
        check(tmp_path, x, gone=[777])
    assert "0 of them now" in again.stderr
    letter, = dead(tmp_path)
    what = more[1] if more[0] == "--table" else "query"
    assert letter["file"] == f"postgresql://127.0.0.1:{pg.port}/postgres#{what}"


def test_types(pg, tmp_path):
    """Declared ones; what has no type here comes as text; what cannot be is a fault of its row."""
    pg.psql("""
        create type mood as enum ('sad', 'glad');
        create table rows (id int primary key, x float4[], name text, b bool, s smallint, o oid, n numeric(10, 3), m numeric,
          d date, t timestamp, zone timestamptz, raw bytea, j jsonb, u uuid, e mood, names text[], grid int8[], day date[],
          amount numeric[], r float8);
        insert into rows values (0, '{1,2,3.5,-4}', 'row 0', true, -5, 4000000000, 1234567.891, 0.1, '2026-02-03', '2026-02-03 04:05:06.789',
           '2026-02-03 04:05:06+02', '\\x00ff', '{"a": [1]}', '00000000-0000-0000-0000-000000000001', 'glad', '{a,NULL,"c d"}',
           '{{1,2},{3,4}}', '{2000-01-01}', '{1.5,2}', 'Infinity');
        insert into rows values (1, '{1,2,3.5,-4}');
        insert into rows values (2, '[2:5]={1,2,3.5,-4}', 'row 2', false, 0, 0, -0.001, 1e30, '0001-01-01', '1969-12-31 23:59:59', 'epoch', '', '1',
           null, 'sad', '{}', '{}', '{}', '{}', 'NaN');
        insert into rows values (3, '{{1,2},{3.5,-4}}', 'row 3', true, 1, 1, -1234567.000, 'NaN');
        insert into rows values (4, '{1,2,3}');
        insert into rows values (5, '{1,2,3.5,-4}', 'row 5', true, 1, 1, 'NaN');
        insert into rows values (6, '{1,2,3.5,-4}', 'row 6', true, 1, 1, 0, 0, 'infinity');
        insert into rows values (7, '{1,2,3.5,-4}', 'row 7', true, 1, 1, 0, 0, null, '-infinity');
        insert into rows values (8, null);
        insert into rows values (9, '{1,2,NULL,4}');
        insert into rows values (10, '{1,2,3.5,-4}', repeat('x', 5000));
    """)
    columns = "b,s,o,n,m,d,t,zone,raw,j,u,e,names,grid,day,amount,r"
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, source(pg), "--keep", columns, "--allow-nan", "--max-cell-bytes", "4096", "--output-format",
            "jsonl")
    got = {}
    for f in (tmp_path / "out/parts").iterdir():
        got.update({r["id"]: r for r in map(json.loads, f.read_text().splitlines())})
    assert sorted(got) == [0, 1, 2, 3]
    assert {r["y"] for r in got.values()} == {2.5}
    first = {k: v for k, v in got[0].items() if k not in ("id", "y", "z")}
    assert first == {
        "name": "row 0", "b": True, "s": -5, "o": 4000000000, "n": "1234567.891", "m": 0.1, "d": "2026-02-03",
        "t": "2026-02-03T04:05:06.789000Z", "zone": "2026-02-03T02:05:06Z", "raw": "AP8=", "j": '{"a": [1]}',
        "u": "00000000-0000-0000-0000-000000000001", "e": "glad", "names": ["a", None, "c d"], "grid": [1, 2, 3, 4],
        "day": ["2000-01-01"], "amount": [1.5, 2], "r": numpy.inf}
    assert [got[1][c] for c in ("name", "b", "n", "t", "raw", "names")] == [None] * 6
    assert [got[2][c] for c in ("n", "m", "d", "t", "names", "grid")] == ["-0.001", 1e30, "0001-01-01",
                                                                        "1969-12-31T23:59:59Z", [], []]
    assert got[3]["n"] == "-1234567.000"
    why = {d["row"]: d["cause"] for d in dead(tmp_path)}
    assert why[4] == "column 'x' (FIXED_LIST<F32>[4]): the array has another number of items"
    assert "the number is NaN" in why[5] and "the date is infinite" in why[6] and "the timestamp is infinite" in why[7]
    assert "null" in why[8] and "null" in why[9] and "larger than a cell may be" in why[10]
    assert sorted(why) == [4, 5, 6, 7, 8, 9, 10]


def test_kept_numbers_of_inputs_are_as_found(pg, tmp_path):
    pg.psql("create table rows (id bigint primary key, x double precision[], name text);\n"
            "insert into rows values (0, '{0.1, 1, 2, 3}', 'row 0');")
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, source(pg), "--keep", "x")
    assert results(tmp_path)["x"].to_pylist() == [[0.1, 1, 2, 3]]


def test_goes_on_where_it_was(pg, tmp_path):
    """Rows that others change during the job are read as they were when the start began."""
    x = fill(pg, 9000)

    class Stops(Host):
        def answer(self, number, x, key):
            if number == 1:
                pg.psql("begin; update rows set x = '{9,9,9,9}'; delete from rows where id > 4000; rollback;"
                        "update rows set name = 'other' where id = 8999")
            self.good(x, key) if number <= 30 else self.say(503, {"error": "full"})
    with hosts(Stops) as (addresses, _):
        run(tmp_path, addresses, source(pg), "--max-outage", "5", "--extent-rows", "100", code=1)
    first = len(results(tmp_path))
    assert 0 < first < 9000
    pg.psql("update rows set name = 'row 8999' where id = 8999")
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, source(pg), "--extent-rows", "1000")
    check(tmp_path, x)


def test_the_snapshot_ends_when_all_rows_are_read(pg, tmp_path):
    x = fill(pg, 500)

    class Waits(Host):
        def answer(self, number, x, key):
            wait.until(lambda: not pg.rows("select pid from pg_stat_activity where application_name = 'millrace'"), "the end")
            self.good(x, key)
    with hosts(Waits) as (addresses, _):
        run(tmp_path, addresses, source(pg))
    check(tmp_path, x)


def test_a_table_that_changed(pg, tmp_path):
    fill(pg, 1000)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, source(pg))
        pg.psql("update rows set id = 5000 where id = 999")
        why = run(tmp_path, addresses, source(pg), code=1).stderr
        assert '"last":"(999)"' in why and '"last":"(5000)"' in why and "--accept-changed-input" in why
        run(tmp_path, addresses, source(pg), "--accept-changed-input")


@pytest.mark.few
@pytest.mark.parametrize("how", ["backend", "server"])
def test_a_connection_that_is_lost(pg, tmp_path, how):
    """The backend is ended, or the whole server killed and started again: the job reads on where it was."""
    x = fill(pg, 20000)

    class Ends(Host):
        def answer(self, number, x, key):
            if number == 10 and how == "server":
                pg.stop(signal.SIGQUIT)
                pg.start()
            elif number in (10, 40):
                pg.psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'millrace'")
            self.good(x, key)
    with hosts(Ends) as (addresses, _):
        done = run(tmp_path, addresses, source(pg), "--memory", "1MiB", "--extent-rows", "200")
    check(tmp_path, x)
    assert "20000 of them now" in done.stderr and "table.read_waits" in done.stderr


def test_a_server_that_stays_away(pg, tmp_path):
    x = fill(pg, 20000)

    class Ends(Host):
        def answer(self, number, x, key):
            if number == 10:
                pg.stop(signal.SIGQUIT)
            self.good(x, key)
    with hosts(Ends) as (addresses, _):
        done = run(tmp_path, addresses, source(pg), "--memory", "1MiB", "--extent-rows", "200", "--max-outage", "5", code=1)
        assert "PostgreSQL: " in done.stderr
        done = run(tmp_path, addresses, source(pg), code=1)
        assert "Connection refused" in done.stderr
        pg.start()
        run(tmp_path, addresses, source(pg))
    check(tmp_path, x)


@pytest.mark.few(4)
@pytest.mark.parametrize("more, why", [
    (("--table", "nothing"), "there is no table 'nothing'"),
    (("--table", "seen"), "is a view, which has no order"),
    (("--table", "parent"), "tables inherit from 'parent'"),
    (("--table", "loose"), "has no primary key, nor another unique index without nulls"),
    (("--query", "select * from rows"), "has no ORDER BY"),
    (("--query", "select * from rows order by id) q; drop table rows; --"), "syntax error"),
    (("--query", "select nothing from rows order by 1"), 'column "nothing" does not exist'),
    (("--query", "delete from rows order by id"), "syntax error"),
    (("--query", "select id, id from rows order by id"), "two columns are named 'id'"),
    (("--query", "select 1/(id - id) as id, x, name from rows order by id"), "division by zero"),
])
def test_what_cannot_be_read(pg, tmp_path, more, why):
    fill(pg, 10)
    pg.psql("create view seen as select * from rows; create table loose (id int unique, x real[]);"
            "create table parent (id int primary key, x real[], name text); create table child () inherits (parent)")
    with hosts(Host) as (addresses, _):
        done = run(tmp_path, addresses, source(pg, *more), "--skip-bad-files", code=1)  # which is for damage
    assert why in done.stderr
    assert pg.rows("select count(*) from rows") == [[10]]


@pytest.mark.parametrize("url, env, why", [
    ("postgresql://owner:wrong-Secret@127.0.0.1:{port}/postgres", {}, "password authentication failed"),
    ("postgresql://owner@127.0.0.1:{port}/postgres", {"PGPASSWORD": "wrong-Secret"}, "password authentication failed"),
    ("postgresql://owner:wrong-Secret@127.0.0.1:{port}/nothing", {}, "failed"),
    ("postgresql://owner:wrong-Secret@127.0.0.1:1/postgres", {}, "Connection refused"),
    ("postgresql://owner:wrong-S@ecret@127.0.0.1:{port}/postgres", {}, "cannot be understood"),
    ("postgresql://owner:wrong-Secret:7@127.0.0.1:{port}/postgres", {}, "failed"),
    ("postgresql://owner:wrong-Secret%zz@127.0.0.1:{port}/postgres", {}, "cannot be understood"),
    ("postgresql://owner:wrong-Secret/x@127.0.0.1:{port}/postgres", {}, "P"),
])
def test_passwords_are_never_told(pg, tmp_path, url, env, why):
    with hosts(Host) as (addresses, _):
        done = run(tmp_path, addresses, ["-i", url.format(port=pg.port), "--table", "rows"], code=1, env=env)
    assert why in done.stderr
    assert "ecret" not in done.stderr + done.stdout


def test_passwords_of_the_environment(pg, tmp_path):
    """A job by PGPASSWORD, one by the address, and nothing of it in the folder."""
    x = fill(pg, 500)
    with hosts(Poisoned) as (addresses, _):
        run(tmp_path, addresses, ["-i", pg.url(password=""), "--table", "rows"], env={"PGPASSWORD": PASSWORD})
        shutil.rmtree(tmp_path / "out")
        done = run(tmp_path, addresses, source(pg))
    check(tmp_path, x)
    kept = b"".join(f.read_bytes() for f in (tmp_path / "out").rglob("*") if f.is_file())
    assert b"ecret" not in kept and "ecret" not in done.stderr


@pytest.mark.release_only("a sanitizer's own memory")
def test_memory_of_large_rows(pg, tmp_path):
    """A row at a time is held, however many are asked for at once."""
    fill(pg, 2000)
    pg.psql("alter table rows add more bytea; update rows set more = convert_to(repeat('x', 16 << 20), 'UTF8') where id >= 1960")
    code = ("import resource, subprocess, sys; code = subprocess.call(sys.argv[1:], stdout=sys.stderr); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)")
    with hosts(Host) as (addresses, _):
        words = arguments(tmp_path, addresses, source(pg), "--keep", "more", "--max-cell-bytes", "1MiB", "--max-dead-percent", "100")
        done = subprocess.run([sys.executable, "-c", code, *words], env=environment(), capture_output=True, text=True,
                              timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    assert len(dead(tmp_path)) == 40
    assert int(done.stdout) << 10 < 512 << 20


def test_a_lock_is_not_waited_for_when_stopped(pg, tmp_path):
    fill(pg, 10)
    with hosts(Host) as (addresses, _):
        stopped_at_lock(pg, arguments(tmp_path, addresses, source(pg)), "lock table rows")


def test_plan(pg, tmp_path):
    fill(pg, 21000)
    with hosts(Host) as (addresses, _):
        plan = json.loads(run(tmp_path, addresses, source(pg), "--plan", "--json").stdout)
        assert (plan["rows"], plan["rows_are"]) == (21000, "counted")
        query = source(pg, "--query", "select * from rows order by id")
        assert "rows not known" in run(tmp_path, addresses, query, "--plan").stdout
    assert not (tmp_path / "out").exists()

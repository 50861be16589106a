"""Results of batch jobs in tables of PostgreSQL, with a server of our own."""
import json
import shutil
import signal
import sqlite3
import threading

import pytest

from lib import wait
from lib.batch import Host, Poisoned, dead, hosts, table
from lib.batch import pytestmark as needs_duckdb
from lib.services.postgres import needs_server, server, stopped_at_lock
from lib.sql import arguments, check_rows, killed_at_random, killed_at_syncs, run

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


def sink(pg, name="results"):
    return ["--output-database", pg.url(), "--output-table", name]


def stored(pg, name="results"):
    return [tuple(r) for r in pg.rows(f"select id, name, y, z from {name}")]


def files(folder):
    return ["-i", str(folder / "in")]


SMALL = ["--extent-rows", "100", "--part-bytes", "1"]


def test_results(pg, tmp_path):
    """With their types, also in another schema; another start does nothing, another job adds its rows."""
    x = table(tmp_path / "in", 5000)
    pg.psql("create schema other")
    with hosts(Poisoned) as (addresses, _):
        done = run(tmp_path, addresses, files(tmp_path), *sink(pg, "other.results"))
        assert "0 of them now" in run(tmp_path, addresses, files(tmp_path), *sink(pg, "other.results")).stderr
        check_rows(stored(pg, "other.results"), x, gone=[777])
        kept = b"".join(f.read_bytes() for f in (tmp_path / "out").rglob("*") if f.is_file())
        assert b"ecret" not in kept and "ecret" not in done.stderr
        (tmp_path / "out").rename(tmp_path / "first")
        run(tmp_path, addresses, files(tmp_path), *sink(pg, "other.results"))
    assert pg.rows("select count(*), count(distinct id) from other.results") == [[9998, 4999]]
    assert pg.rows("select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = "
                   "'other.results'::regclass and attnum > 0 order by attnum") == [
        ["id", "bigint"], ["name", "text"], ["y", "real"], ["z", "bigint[]"]]
    assert pg.rows("select count(*) from other.millrace_jobs") == [[2]]
    assert pg.rows("select sum(row_count) from other.millrace_commits") == [[9998]]
    assert [d["row"] for d in dead(tmp_path)] == [777]


def test_types(pg, tmp_path):
    """Columns that are kept, of a source of the same server, come out as they went in."""
    pg.psql("""
        create table rows (id int primary key, x float4[], name text, b bool, s smallint, o oid, n numeric(38, 10), d date,
          at timestamptz, raw bytea, names text[], reals float8[], days date[], amounts numeric(12, 2), r float8);
        insert into rows select g, '{1,2,3.5,-4}', 'row ' || g from generate_series(0, 99) g where g > 3;
        insert into rows values (0, '{1,2,3.5,-4}', 'row 0', true, -5, 4000000000, 1234567890123456789012345678.0123456789,
          '2026-02-03', '2026-02-03 04:05:06.789+00', '\\x00ff', '{a,NULL,"c \\\\ d"}', '{1.5,NaN}', '{2000-01-01}', 12.50,
          'Infinity');
        insert into rows values (1, '{1,2,3.5,-4}', 'row 1', false, 7, 0, -0.0000000001, '0001-01-01', '1969-12-31 23:59:59+00',
          '', '{}', '{}', '{}', -99999.99, '-0');
        insert into rows values (2, '{1,2,3.5,-4}', 'row 2', false, 7, 0, 0, '9999-12-31', 'epoch', '', '{""}', '{0}', null,
          10000, 'NaN');
        insert into rows values (3, '{1,2,3.5,-4}', 'row 3', false, 7, 0, -9999000000000000000000000001, null, null, null,
          null, null, null, 0.01, 1e-300)""")
    columns = "id, name, b, s, o::bigint as o, n, d, at, raw, names, reals, days, amounts, r"
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, ["-i", pg.url(), "--table", "rows"], *sink(pg), "--keep",
            "b,s,o,n,d,at,raw,names,reals,days,amounts,r", "--allow-nan")
    assert pg.rows(f"(select {columns} from rows except all select {columns} from results) union all "
                   f"(select {columns} from results except all select {columns} from rows)") == []
    assert pg.rows("select count(*) from results") == [[100]]
    assert pg.rows("select distinct y, z = array[10 * id, 10 * id + 1]::bigint[] from results") == [[2.5, True]]


@pytest.mark.few(2)
@pytest.mark.parametrize("column, why", [
    ("n numeric(18, 6), t timestamp(6), l timestamp(6)[]", None),
    ("n numeric, t timestamptz, l timestamptz[]", None),
    ("n numeric(18, 2), t timestamp, l timestamp[]", "its column 'n' is numeric(18,2); results need numeric(18,6)"),
    ("n numeric(12, 6), t timestamp, l timestamp[]", "its column 'n' is numeric(12,6); results need numeric(18,6)"),
    ("n numeric, t timestamptz(0), l timestamp[]", "its column 't' is timestamp(0) with time zone; results need"),
    ("n numeric, t timestamp, l timestamp(3)[]", "its column 'l' is timestamp(3) without time zone[]; results need"),
])
def test_a_table_that_would_round(pg, tmp_path, column, why):
    pg.psql(f"create table rows (id bigint primary key, x real[], name text, n numeric(18, 6), t timestamp, l timestamp[]);"
            f"insert into rows select 1, '{{1,2,3,4}}', 'row 1', 1.123456, '2026-01-02 03:04:05.678901', '{{now}}';"
            f"create table results (id bigint, name text, y real, z bigint[], {column})")
    with hosts(Host) as (addresses, _):
        done = run(tmp_path, addresses, ["-i", pg.url(), "--table", "rows"], *sink(pg), "--keep", "n,t,l", code=1 if why else 0)
    assert (why or "") in done.stderr
    assert pg.rows("select count(*) from results natural join (select id, n, t from rows) r") == [[0 if why else 1]]


def test_killed_at_each_sync(pg, tmp_path):
    x = table(tmp_path / "in", 2000)
    with hosts(Poisoned) as (addresses, _):
        assert killed_at_syncs(arguments(tmp_path, addresses, files(tmp_path), *sink(pg), *SMALL)) > 5
    check_rows(stored(pg), x, gone=[777])
    assert [d["row"] for d in dead(tmp_path)] == [777]
    assert pg.rows("select sum(row_count) from millrace_commits") == [[1999]]


@pytest.mark.more
def test_killed_at_random(pg, tmp_path):
    """The job, and the server with all that it has not ended."""
    x = table(tmp_path / "in", 20000)

    def other():
        pg.stop(signal.SIGQUIT)
        pg.start()
    with hosts(Host) as (addresses, _):
        killed_at_random(arguments(tmp_path, addresses, files(tmp_path), *sink(pg), *SMALL), 4, 0.6, other)
    check_rows(stored(pg), x)


@pytest.mark.few
@pytest.mark.parametrize("how", ["backend", "server"])
def test_a_connection_that_is_lost(pg, tmp_path, how):
    """While the job runs: it continues by itself, and no row is there twice."""
    x = table(tmp_path / "in", 6000)
    ending = threading.Lock()

    class Ends(Host):
        def answer(self, number, x, key):
            if how == "backend" and number % 5 == 0:
                pg.psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'millrace'")
            elif how == "server" and number in (20, 40):
                with ending:
                    pg.stop(signal.SIGQUIT)
                    pg.start()
            self.good(x, key)
    with hosts(Ends) as (addresses, _):
        done = run(tmp_path, addresses, files(tmp_path), *sink(pg), *SMALL)
    check_rows(stored(pg), x)
    assert "6000 of them now" in done.stderr and "table.commit_waits" in done.stderr


def test_a_commit_whose_end_nobody_saw(pg, tmp_path):
    """The connection is lost after the commit: the commit is found, and not repeated."""
    x = table(tmp_path / "in", 300, files=1)
    seen = []

    class Ends(Host):
        def answer(self, number, x, key):
            if not seen:
                seen.append(number)
                # a transaction that is committed without an answer to the client, as it waits for a standby
                pg.psql("alter system set synchronous_standby_names = 'nobody'; select pg_reload_conf()")

                def end():
                    wait.until(lambda: pg.rows("select 1 from pg_stat_activity where wait_event = 'SyncRep'"), "the commit")
                    pg.psql("set synchronous_commit = local; alter system reset synchronous_standby_names")
                    pg.psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'millrace'")
                    pg.psql("select pg_reload_conf()")
                threading.Thread(target=end).start()
            self.good(x, key)
    with hosts(Ends) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *sink(pg), *SMALL)
    check_rows(stored(pg), x)


def test_dead_letters_once_more(pg, tmp_path):
    x = table(tmp_path / "in", 3000, files=1)

    class Refuses(Host):
        def answer(self, number, x, key):
            bad = [k for k in key.tolist() if k % 300 == 7]
            self.say(400, {"error": "ill will"}) if bad else self.good(x, key)
    options = [*sink(pg), "--extent-rows", "300", "--part-bytes", "1", "--max-dead-percent", "100"]
    with hosts(Refuses) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *options)
    with hosts(Host) as (addresses, _):
        killed_at_syncs(arguments(tmp_path, addresses, files(tmp_path), *options, verb="retry-dlq"))
        run(tmp_path, addresses, files(tmp_path), *options)
    assert dead(tmp_path) == []
    check_rows(stored(pg), x)


def test_a_server_that_stays_away(pg, tmp_path):
    x = table(tmp_path / "in", 2000)
    gone = threading.Event()

    class Ends(Host):
        def answer(self, number, x, key):
            if number == 5:
                pg.stop(signal.SIGQUIT)
                gone.set()
            elif number > 5:
                gone.wait()
            self.good(x, key)
    with hosts(Ends) as (addresses, _):
        done = run(tmp_path, addresses, files(tmp_path), *sink(pg), *SMALL, "--max-outage", "5", code=1)
        assert "PostgreSQL: " in done.stderr
        done = run(tmp_path, addresses, files(tmp_path), *sink(pg), code=1)
        assert "Connection refused" in done.stderr and "ecret" not in done.stderr
        pg.start()
        run(tmp_path, addresses, files(tmp_path), *sink(pg))
    check_rows(stored(pg), x)


def test_a_full_disk_of_the_server(pg, tmp_path):
    """Is waited for, with what was answered kept."""
    x = table(tmp_path / "in", 1000)
    pg.psql("""
        create table results (id bigint, name text, y real, z bigint[]);
        create sequence tries;
        create function no_room() returns trigger language plpgsql as $$ begin
          if nextval('tries') < 4 then raise exception 'no room' using errcode = 'disk_full'; end if;
          return new;
        end $$;
        create trigger no_room before insert on results for each row execute function no_room()""")
    with hosts(Host) as (addresses, made):
        done = run(tmp_path, addresses, files(tmp_path), *sink(pg))
    check_rows(stored(pg), x)
    assert "batch.disk_failed" in done.stderr and "no room" in done.stderr
    assert made[0].calls == 10


@pytest.mark.few(3)
@pytest.mark.parametrize("made, why", [
    ("id bigint, y real, z bigint[]", "has no column 'name'"),
    ("id bigint, name text, y text, z bigint[]", "its column 'y' is text; results need real"),
    ("id int, name text, y real, z bigint[]", "its column 'id' is integer; results need bigint"),
    ("id bigint, name text, y real, z bigint", "its column 'z' is bigint; results need bigint[]"),
    ("id bigint, name char(20), y real, z bigint[]", "its column 'name' is character(20); results need text"),
    ("id bigint, name text, y real, z bigint[], more int not null", 'null value in column "more"'),
    ("id bigint check (id < 5), name text, y real, z bigint[]", "violates check constraint"),
    (None, "permission denied"),
])
def test_a_table_that_does_not_fit(pg, tmp_path, made, why):
    """Nothing is changed there, and the job continues when it is repaired."""
    x = table(tmp_path / "in", 10)
    where = sink(pg)
    if made:
        pg.psql(f"create table results ({made})")
    else:
        pg.psql("drop role if exists guest; create role guest login password 'guest'; revoke all on schema public from public;"
                "grant usage on schema public to guest")
        where = ["--output-database", pg.url(user="guest", password="guest"), "--output-table", "results"]
    with hosts(Host) as (addresses, _):
        assert why in run(tmp_path, addresses, files(tmp_path), *where, code=1).stderr
        pg.psql("drop table if exists results; create table results (more int, id numeric, name varchar(20), y float8, z bigint[]);")
        pg.psql("grant create on schema public to guest; grant all on results to guest" if not made else "")
        run(tmp_path, addresses, files(tmp_path), *where)
    check_rows(stored(pg), x)


def test_a_lock_is_not_waited_for_when_stopped(pg, tmp_path):
    table(tmp_path / "in", 10)
    with hosts(Host) as (addresses, _):
        stopped_at_lock(pg, arguments(tmp_path, addresses, files(tmp_path), *sink(pg)), "select pg_advisory_lock(7812434902713)")


def test_no_numbers_in_json(pg, tmp_path):
    """JSON has no NaN: it is a string there, and bare in no list."""
    rows = "".join(f'{{"id": {k}, "name": "row {k}", "x": [1, 2, 3, 4], "l": [[{v}, 1.5], []]}}\n'
                   for k, v in enumerate(["NaN", "-Infinity", "0.5"]))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/rows.jsonl").write_text(rows)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *sink(pg), "--keep", "l", "--allow-nan")
        shutil.rmtree(tmp_path / "out")
        run(tmp_path, addresses, files(tmp_path), "--output-database", f"sqlite:{tmp_path}/out.db", "--output-table", "results",
            "--keep", "l", "--allow-nan")
    expected = [["NaN", 1.5], []], [["-Infinity", 1.5], []], [[0.5, 1.5], []]
    assert [r[0] for r in pg.rows("select l from results order by id")] == list(expected)
    db = sqlite3.connect(tmp_path / "out.db")
    assert db.execute("select json_extract(l, '$[0][0]') from results order by id").fetchall() == [(e[0][0],) for e in expected]
    db.close()


def test_a_database_that_lost_rows(pg, tmp_path):
    table(tmp_path / "in", 3000, files=1)

    class Stops(Host):
        def answer(self, number, x, key):
            self.good(x, key) if number <= 15 else self.say(503, {"error": "full"})
    with hosts(Stops) as (addresses, _):
        run(tmp_path, addresses, files(tmp_path), *sink(pg), *SMALL, "--max-outage", "5", code=1)
    with hosts(Host) as (addresses, _):
        pg.psql("create table kept as table millrace_commits; delete from millrace_commits where part = "
                "(select min(part) from millrace_commits)")
        assert "the database does not know of p-000001-" in run(tmp_path, addresses, files(tmp_path), *sink(pg), code=1).stderr
        pg.psql("insert into millrace_commits select * from kept on conflict do nothing; alter table results rename to hidden")
        assert "the table 'results' is gone" in run(tmp_path, addresses, files(tmp_path), *sink(pg), code=1).stderr
        pg.psql("alter table hidden rename to results; update millrace_jobs set epoch = 1000")
        why = run(tmp_path, addresses, files(tmp_path), *sink(pg), code=1).stderr
        assert "another process has taken the job over: start 1000" in why
        assert "another table of results" in run(tmp_path, addresses, files(tmp_path), *sink(pg, "other"), code=1).stderr

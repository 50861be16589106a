"""Parquet files that pyarrow wrote, and SQL queries, as sources of rows: what tests/interop/table_dump.c prints of them.

Reading needs DuckDB's library, which tools/setup puts into build/deps; without it these tests are skipped.
"""
import datetime
import decimal
import json
import os
import random
import subprocess
import uuid

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import wait
from lib.repo import TOP
from lib.server import clean_environment

BUILD = TOP / "build" / os.environ.get("MR_BUILD", "release")
DUMP = BUILD / "tests" / "table_dump"

pytestmark = pytest.mark.skipif(
    not (BUILD / "lib" / "millrace" / "libduckdb.so").exists() and "MILLRACE_DUCKDB" not in os.environ,
    reason="tools/setup has not put DuckDB's library into build/deps")


def environment():
    """That of table_dump. The library is not instrumented: what its own threads share is no finding."""
    env = clean_environment()
    env["MILLRACE_DUCKDB"] = os.environ.get("MILLRACE_DUCKDB", str(BUILD / "lib" / "millrace" / "libduckdb.so"))
    env["TSAN_OPTIONS"] += ":ignore_noninstrumented_modules=1"
    return env


def run(*args, env=()):
    return subprocess.run([str(DUMP), *map(str, args)], capture_output=True, text=True,
                          env=environment() | dict(env), timeout=wait.PATIENCE)


def dump(*args):
    """The first line and the rows."""
    done = run(*args)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    head, *rows = [json.loads(line) for line in done.stdout.splitlines()]
    return head, rows


def error(*args, env=()):
    done = run(*args, env=env)
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()[-1].removeprefix("error ")


def types_of(head):
    return dict(head["schema"])


DAY = datetime.date(2024, 2, 29)
TIME = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)
MICROS = 1709209815123456

# name: (pyarrow's type, values, our type, values as printed)
TYPES = {
    "bool": (pa.bool_(), [True, None, False], "BOOL", None),
    "i8": (pa.int8(), [-128, None, 127], "I8", None),
    "i16": (pa.int16(), [-32768, None, 32767], "I16", None),
    "i32": (pa.int32(), [-2**31, None, 2**31 - 1], "I32", None),
    "i64": (pa.int64(), [-2**63, None, 2**63 - 1], "I64", None),
    "u8": (pa.uint8(), [0, None, 255], "U8", None),
    "u16": (pa.uint16(), [0, None, 65535], "U16", None),
    "u32": (pa.uint32(), [0, None, 2**32 - 1], "U32", None),
    "u64": (pa.uint64(), [0, None, 2**64 - 1], "U64", None),
    "f16": (pa.float16(), [1.5, None, -2.0], "F32", None),
    "f32": (pa.float32(), [1.5, None, -0.25], "F32", None),
    "f64": (pa.float64(), [0.1, None, -1e300], "F64", None),
    "date": (pa.date32(), [DAY, None, datetime.date(1969, 12, 31)], "DATE", [19782, None, -1]),
    "us": (pa.timestamp("us"), [TIME, None, TIME], "TIMESTAMP", [MICROS, None, MICROS]),
    "ms": (pa.timestamp("ms"), [TIME.replace(microsecond=123000), None, None], "TIMESTAMP",
           [MICROS - 456, None, None]),
    "ns": (pa.timestamp("ns"), [TIME, None, TIME], "TIMESTAMP", [MICROS, None, MICROS]),
    "utc": (pa.timestamp("us", tz="Europe/Berlin"), [TIME, None, TIME], "TIMESTAMP", None),
    "d4": (pa.decimal128(4, 2), [decimal.Decimal("-12.34"), None, decimal.Decimal("99.99")], "DECIMAL(4,2)",
           ["-1234", None, "9999"]),
    "d18": (pa.decimal128(18, 6), [decimal.Decimal("1.000001"), None, decimal.Decimal("-0.5")], "DECIMAL(18,6)",
            ["1000001", None, "-500000"]),
    "d38": (pa.decimal128(38, 0), [decimal.Decimal(10**38 - 1), None, decimal.Decimal(1 - 10**38)], "DECIMAL(38,0)",
            [str(10**38 - 1), None, str(1 - 10**38)]),
    "text": (pa.string(), ["", None, "a text of more than twelve bytes, with ä\n\""], "STRING", None),
    "large": (pa.large_string(), ["twelve bytes", None, "thirteen byte"], "STRING", None),
    "bytes": (pa.binary(), [b"\0\xff", None, b"x" * 40], "BINARY", ["00ff", None, "78" * 40]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", None, "b"], "STRING", None),
    "list": (pa.list_(pa.float32()), [[1.0, None, 2.0], None, []], "LIST<F32>", None),
    "texts": (pa.list_(pa.string()), [["a", None, "a longer text than twelve"], None, []], "LIST<STRING>", None),
    "fixed": (pa.list_(pa.int32(), 2), [[1, 2], None, [3, 4]], "LIST<I32>", None),
    "deep": (pa.list_(pa.list_(pa.list_(pa.int64()))), [[[[1], []], None, []], None, [[[2, 3, None]]]],
             "LIST<LIST<LIST<I64>>>", None),
    "decimals": (pa.list_(pa.decimal128(5, 1)), [[decimal.Decimal("1.5")], None, [None]], "LIST<DECIMAL(5,1)>",
                 [["15"], None, [None]]),
}


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_types(tmp_path, compression):
    table = pa.table({name: pa.array(values, type=kind) for name, (kind, values, _, _) in TYPES.items()})
    pq.write_table(table, tmp_path / "t.parquet", compression=compression)
    head, rows = dump(tmp_path / "t.parquet")
    assert head["rows"] == [3]
    assert types_of(head) == {name: text for name, (_, _, text, _) in TYPES.items()}
    for i, (name, (_, values, _, printed)) in enumerate(TYPES.items()):
        if name != "utc":
            assert [row[i] for row in rows] == (printed or values), name
    local = list(TYPES).index("utc")
    assert rows[0][local] == table["utc"].cast(pa.int64())[0].as_py()


def big(path, rows, first=0, seed=1, **options):
    """A table with nulls, lists of many lengths and strings; the rows as they are printed."""
    rng = random.Random(seed)
    columns = {
        "id": pa.array(range(first, first + rows), pa.int64()),
        "x": pa.array([None if rng.random() < .1 else [rng.choice([None, .5, 1.25]) for _ in range(rng.randrange(4))]
                       for _ in range(rows)], pa.list_(pa.float32())),
        "n": pa.array([None if rng.random() < .1 else
                       [None if rng.random() < .2 else ["s" * rng.randrange(20)] * rng.randrange(3)
                        for _ in range(rng.randrange(3))] for _ in range(rows)], pa.list_(pa.list_(pa.string()))),
        "s": pa.array([None if rng.random() < .1 else "t" * rng.randrange(30) for _ in range(rows)]),
    }
    table = pa.table(columns)
    pq.write_table(table, path, **options)
    return [list(row) for row in zip(*(column.to_pylist() for column in table.columns))]


@pytest.mark.more
@pytest.mark.parametrize("threads", [1, 2])
def test_ranges_in_any_order_give_what_one_pass_gives(tmp_path, threads):
    want = [big(tmp_path / f"{i}.parquet", 9000, first=9000 * i, seed=i, row_group_size=2500) for i in range(2)]
    _, rows = dump("--threads", threads, tmp_path)
    assert rows == want[0] + want[1]
    _, rows = dump("--threads", threads, "--batch", 700, "--bytes", 20000, tmp_path)
    assert rows == want[0] + want[1]

    rng = random.Random(5)
    ranges = [(rng.randrange(2), rng.randrange(9000), rng.randrange(1, 3000)) for _ in range(12)]
    ranges += [(0, 2499, 2), (0, 2500, 1), (1, 8999, 5), (1, 0, 1), (1, 1, 1), (0, 9000, 1), (0, 10**12, 1)]
    args = [a for f, first, n in ranges for a in ("--range", f"{f}:{first}:{n}")]
    head, rows = dump("--threads", threads, *args, tmp_path)
    assert head["rows"] == [9000, 9000]
    assert rows == [row for f, first, n in ranges for row in want[f][first:first + n]]


def test_a_read_gives_no_more_bytes_than_asked_for(tmp_path):
    pq.write_table(pa.table({"s": ["x" * 100000, "y", "z" * 50000] * 20}), tmp_path / "t.parquet")
    head, rows = dump("--bytes", 60000, tmp_path)
    assert [len(row[0]) for row in rows] == [100000, 1, 50000] * 20


def test_columns_are_picked_and_ordered(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "s": [{"k": 1}, None], 'the "c"': ["x", "y"], "b": [[1], []]}),
                   tmp_path / "t.parquet")
    assert dump("--columns", 'the "c",a', tmp_path)[1] == [["x", 1], ["y", 2]]
    assert "has no column 'z'" in error("--columns", "z", tmp_path)
    text = error(tmp_path)
    assert text.startswith("UNSUPPORTED") and "column 's'" in text and "STRUCT" in text and "t.parquet" in text


@pytest.mark.parametrize("kind, name", [(pa.map_(pa.string(), pa.int32()), "MAP"), (pa.time64("us"), "TIME"),
                                        (pa.list_(pa.struct({"a": pa.int8()})), "STRUCT")])
def test_types_that_rows_do_not_have(tmp_path, kind, name):
    pq.write_table(pa.table({"a": [1], "c": pa.array([None], kind)}), tmp_path / "t.parquet")
    text = error(tmp_path)
    assert text.startswith("UNSUPPORTED") and "column 'c'" in text and name in text
    assert dump("--columns", "a", tmp_path)[1] == [[1]]


def test_a_uuid_is_its_text(tmp_path):
    one = uuid.UUID(int=7)
    pq.write_table(pa.table({"u": pa.array([one.bytes, None], pa.uuid())}), tmp_path / "t.parquet")
    head, rows = dump(tmp_path)
    assert types_of(head) == {"u": "STRING"} and rows == [[str(one)], [None]]


def test_lists_of_a_width(tmp_path):
    # Row 3 and 4 have the right number of items together.
    lists = [[1, 2, 3, 4], None, [5, 6, 7, 8], [1, 2, 3], [1, 2, 3, 4, 5], [], [9, None, 9, 9]]
    pq.write_table(pa.table({"id": range(7), "x": pa.array(lists, pa.list_(pa.float32())),
                             "d": pa.array([[.1] * 4] * 7, pa.list_(pa.float64()))}), tmp_path / "t.parquet")
    for batch in (100, 1):
        head, rows = dump("--batch", batch, "--fixed", "x=4", "--fixed", "d=4", tmp_path)
        assert types_of(head) == {"id": "I64", "x": "FIXED_LIST<F32>[4]", "d": "FIXED_LIST<F32>[4]"}
        tenth = [0.100000001] * 4
        assert rows[:3] == [[0, lists[0], tenth], [1, None, tenth], [2, lists[2], tenth]]
        assert [row["fault"] for row in rows[3:6]] == [
            f"column 'x': a list of {n} items, not 4" for n in (3, 5, 0)]
        assert rows[6] == [6, lists[6], tenth]


def test_numbers_as_wanted(tmp_path):
    pq.write_table(pa.table({"i": pa.array([1, -2**31], pa.int32()), "f": [1e300, None], "t": ["1", "2"],
                             "d": [decimal.Decimal("1.50"), None]}), tmp_path / "t.parquet")
    head, rows = dump("--as", "i=I64", "--as", "f=I64", "--as", "t=F32", "--as", "d=F64", tmp_path)
    assert types_of(head) == {"i": "I64", "f": "F64", "t": "STRING", "d": "F64"}
    assert rows == [[1, 1e300, "1", 1.5], [-2**31, None, "2", None]]
    assert dump("--as", "i=STRING", "--columns", "i", tmp_path)[1] == [["1"], [str(-2**31)]]


def test_a_cell_that_is_too_large_is_a_fault(tmp_path):
    pq.write_table(pa.table({"id": [0, 1, 2], "s": ["a", "b" * 5000, "c"]}), tmp_path / "t.parquet")
    _, rows = dump("--max-cell", 1000, tmp_path)
    assert rows[0] == [0, "a"] and rows[2] == [2, "c"] and "column 's'" in rows[1]["fault"]


def test_partitioned_folders(tmp_path):
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"a": [year + .5]}), tmp_path / f"year={year}" / "p[1].parquet")
    head, rows = dump(tmp_path)
    assert types_of(head) == {"a": "F64", "year": "I64"} and head["rows"] == [1, 1]
    assert rows == [[2023.5, 2023], [2024.5, 2024]]
    pq.write_table(pa.table({"a": [0.5], "year": [7]}), tmp_path / "year=2024" / "p[1].parquet")
    head, rows = dump("--columns", "year", tmp_path)
    assert rows == [[2023], [7]]  # the file's own column counts


def test_names_that_are_patterns_or_need_quotes(tmp_path):
    for name in ("it's [1].parquet", "a*.parquet", "ab.parquet"):
        pq.write_table(pa.table({"a": [name]}), tmp_path / name)
    assert dump(tmp_path / "it's [1].parquet")[1] == [["it's [1].parquet"]]
    assert dump(tmp_path / "a*.parquet")[1] == [["a*.parquet"]]


def test_a_column_that_has_the_name_of_row_numbers(tmp_path):
    pq.write_table(pa.table({"file_row_number": [7, 8, 9]}), tmp_path / "t.parquet")
    assert dump("--range", "0:2:1", "--range", "0:1:9", tmp_path)[1] == [[9], [8], [9]]


def test_files_that_differ(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["x"], "b": [1]}), tmp_path / "2.parquet")
    text = error(tmp_path)
    assert "column 'a'" in text and "2.parquet" in text and "STRING" in text and "I64" in text
    pq.write_table(pa.table({"b": [1]}), tmp_path / "2.parquet")
    text = error(tmp_path)
    assert "column 'a'" in text and "2.parquet" in text


def test_tables_without_rows(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.int32())}), tmp_path / "1.parquet")
    with pq.ParquetWriter(tmp_path / "2.parquet", pa.schema([("a", pa.int32())])):
        pass
    pq.write_table(pa.table({"a": pa.array([5], pa.int32())}), tmp_path / "3.parquet")
    head, rows = dump(tmp_path)
    assert head["rows"] == [0, 0, 1] and rows == [[5]]


def test_damaged_files(tmp_path):
    whole = tmp_path / "whole.parquet"
    big(whole, 5000, row_group_size=1000)
    data = whole.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little")
    bad = tmp_path / "bad.parquet"
    for content in (b"", b"PAR1", data[:-1], data[:len(data) // 2], data[:-8 - footer] + b"\xff" * footer + data[-8:],
                    data[:-8] + b"\xff\xff\xff\x7fPAR1"):
        bad.write_bytes(content)
        text = error(bad)
        assert text.split()[0] in ("INVALID", "IO") and "bad.parquet" in text, text
    bad.write_bytes(data[:200] + bytes(2000) + data[2200:])
    text = error(bad)
    assert text.split()[0] in ("INVALID", "IO") and "bad.parquet" in text, text


def test_a_column_that_goes_beyond_the_end_is_damage(tmp_path):
    bad = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"x": numpy.random.default_rng(1).random(5000)}), bad, row_group_size=1000, use_dictionary=False,
                   compression="none")
    data = bad.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little")
    bad.write_bytes(data[:-8 - footer - 4000] + data[-8 - footer:])
    text = error(bad)
    assert text.startswith("INVALID ") and "Could not read enough bytes" in text, text


@pytest.mark.parametrize("then, words", [("0:30000:10", "has changed since it was opened"),
                                         ("0:10:39990", "t.parquet")])
def test_a_file_that_shrinks_while_it_is_read(tmp_path, then, words):
    """Seen by a jump when it opens the file again, by reading on where the bytes are missing."""
    noise = pa.array(numpy.random.default_rng(1).random(40000 * 64, dtype=numpy.float32))
    pq.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(noise, 64)}), tmp_path / "t.parquet",
                   row_group_size=2000)
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    done = subprocess.Popen([str(DUMP), "--count", "--pause", str(fifo), "--range", "0:0:10", "--range", then,
                             str(tmp_path / "t.parquet")], stdout=subprocess.PIPE, text=True, env=environment())
    with open(fifo, "w"):  # opened by it after the first range
        os.truncate(tmp_path / "t.parquet", 5000000)
    out, _ = done.communicate(timeout=wait.PATIENCE)
    assert done.returncode == 1 and out.startswith("error I") and words in out, out


def test_a_query(tmp_path):
    want = big(tmp_path / "t.parquet", 9000, row_group_size=2500)
    sql = f"SELECT id AS key, x FROM '{tmp_path}/t.parquet' WHERE id % 3 = 0 ORDER BY id -- done"
    head, rows = dump("--query", sql)
    assert head == {"schema": [["key", "I64"], ["x", "LIST<F32>"]], "rows": [-1]}
    assert rows == [row[:2] for row in want if row[0] % 3 == 0]
    assert dump("--range", "0:2500:2", "--range", "0:7:1", "--range", "0:3000:5", "--query", sql + "\n; ")[1] == [
        want[7500][:2], want[7503][:2], want[21][:2]]


def test_a_query_gives_types_of_its_own(tmp_path):
    sql = """SELECT 'b'::ENUM('a', 'b') AS e, [[1, 2], [3, 4]]::TINYINT[2][2] AS a,
                    [NULL, [1, 2]]::FLOAT[2][] AS f, TIMESTAMP_S '2024-02-29 12:30:15' AS s"""
    head, rows = dump("--query", sql)
    assert types_of(head) == {"e": "STRING", "a": "FIXED_LIST<FIXED_LIST<I8>[2]>[2]",
                              "f": "LIST<FIXED_LIST<F32>[2]>", "s": "TIMESTAMP"}
    assert rows == [["b", [[1, 2], [3, 4]], [None, [1, 2]], MICROS // 10**6 * 10**6]]
    # Lists in another order than their items, of which some belong to no row.
    sql = "SELECT x FROM (SELECT [i, i + 1] AS x, i FROM range(5000) t(i)) WHERE i % 7 = 0 ORDER BY i DESC"
    assert dump("--query", sql)[1] == [[[i, i + 1]] for i in range(4998 // 7 * 7, -1, -7)]
    assert dump("--as", "h=F64", "--query", "SELECT sum(i) AS h FROM range(10) t(i)")[1] == [[45]]


@pytest.mark.parametrize("sql, words", [
    ("SELECT nothing FROM range(3)", ["INVALID", "nothing"]), ("DROP TABLE t", ["INVALID"]),
    ("SELECT 1; SELECT 2", ["INVALID"]), ("SELECT 170141183460469231731687303715884105727::HUGEINT AS h",
                                         ["UNSUPPORTED", "'h'", "HUGEINT"]),
    ("SELECT CAST(s AS INT) FROM (SELECT CAST(i AS TEXT) || 'x' AS s FROM range(3) t(i))", ["INVALID", "0x"]),
    ("SELECT 1 AS a, 2 AS a FROM range(0)", [])])
def test_queries_that_fail(sql, words):
    if not words:
        assert len(types_of(dump("--query", sql)[0])) == 2
        return
    text = error("--query", sql)
    assert all(word in text for word in words), text


def test_memory_is_bounded_and_told(tmp_path):
    pq.write_table(pa.table({"x": [os.urandom(200000) for _ in range(200)]}), tmp_path / "t.parquet",
                   compression="zstd", row_group_size=200)
    assert error("--memory", 8 << 20, tmp_path).startswith("EXHAUSTED")


def test_without_the_library(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    text = error(tmp_path, env={"MILLRACE_DUCKDB": str(tmp_path / "none.so")})
    assert text.startswith("UNSUPPORTED") and "tools/setup" in text and "MILLRACE_DUCKDB" in text
    libc = next(line.split()[-1] for line in open("/proc/self/maps") if "/libc.so" in line)
    assert "has no function duckdb_" in error(tmp_path, env={"MILLRACE_DUCKDB": libc})

"""CSV that Python's csv and pyarrow wrote, as sources of rows, and CSV of our own writer, read by them."""
import csv
import json
import os
import random

import pyarrow as pa
import pyarrow.csv
import pytest

from lib.table import dump, dump_measured, error, run

TEXTS = ["", "ä€😀", "a,b\t;", 'x "y"', '"', "one\ntwo\r\n\n", "x" * 5000, "null", "[1,", " a ", "\\", "\u2028"]


def rows_of(rng, count):
    for k in range(count):
        yield [rng.randrange(-2**63, 2**63), rng.choice([0.1, -1e300, 5e-324, k / 7]), rng.random() < 0.5,
               rng.choice(TEXTS) + str(k) * rng.randrange(3), [rng.uniform(-1e9, 1e9) for _ in range(rng.randrange(6))],
               [[rng.choice(TEXTS)] * rng.randrange(3) for _ in range(rng.randrange(3))]]


NAMES = ["id", "x", "flag", "te,xt", "list", "deep"]
TYPES = ["I64", "F64", "BOOL", "STRING", "LIST<F64>", "LIST<LIST<STRING>>"]


@pytest.mark.parametrize("dialect, quoting, end", [
    ("excel", csv.QUOTE_ALL, ".csv"), ("excel-tab", csv.QUOTE_ALL, ".tsv"), ("unix", csv.QUOTE_NONNUMERIC, ".csv")])
def test_values(tmp_path, dialect, quoting, end):
    rows = list(rows_of(random.Random(7), 3000))
    path = tmp_path / ("t" + end)
    with open(path, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, dialect=dialect, quoting=quoting)
        writer.writerow(NAMES)
        writer.writerows([v if i < 4 else json.dumps(v) for i, v in enumerate(r)] for r in rows)
    head, found = dump("--batch", 777, path)
    assert head["schema"] == [list(x) for x in zip(NAMES, TYPES)]
    assert found == rows


def test_what_pyarrow_writes(tmp_path):
    path = tmp_path / "t.csv"
    table = pa.table({"i": [1, None, 3], "t": ["a", None, ""], "f": [0.5, None, -2.0], "b": [True, False, None]})
    pa.csv.write_csv(table, path)
    head, found = dump(path)
    assert head["schema"] == [["i", "I64"], ["t", "STRING"], ["f", "F64"], ["b", "BOOL"]]
    assert found == [list(r.values()) for r in table.to_pylist()]


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_what_others_read(tmp_path, delimiter):
    """Also what comes back to us."""
    rows = list(rows_of(random.Random(5), 500))
    for k, row in enumerate(rows):
        row[k % 6] = None if k % 4 == 0 else row[k % 6]
    source, target = tmp_path / "t.jsonl", tmp_path / "t.csv"
    source.write_text("".join(json.dumps(dict(zip(NAMES, r))) + "\n" for r in rows))
    dump("--to", target, "--delimiter", delimiter, source)
    with open(target, newline="", encoding="utf-8") as f:
        head, *cells = csv.reader(f, delimiter=delimiter)
    assert head == NAMES
    reads = [int, float, lambda v: v == "true", str, json.loads, json.loads]
    for row, got in zip(rows, cells, strict=True):
        assert [None if v == "" and row[i] is None else reads[i](v) for i, v in enumerate(got)] == row
    table = pa.csv.read_csv(target, parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                            convert_options=pa.csv.ConvertOptions(strings_can_be_null=True, null_values=[""],
                                                                  quoted_strings_can_be_null=False))
    assert [list(r.values())[:4] for r in table.to_pylist()] == [r[:4] for r in rows]
    head, found = dump("--delimiter", delimiter, target)
    assert [t for _, t in head["schema"]] == TYPES
    assert found == rows


def test_files_that_differ(tmp_path):
    (tmp_path / "a.csv").write_text("k,t\n1,x\n2,y\n")
    (tmp_path / "b.csv").write_text("t,z,k\nw,1.5,3\n")
    (tmp_path / "c.tsv").write_text("z\tk\n2\t4.5\n")
    (tmp_path / "d.csv").write_text("k\n")
    head, found = dump(tmp_path)
    assert head["schema"] == [["k", "F64"], ["t", "STRING"], ["z", "F64"]]
    assert found == [[1, "x", None], [2, "y", None], [3, "w", 1.5], [4.5, None, 2]]
    assert dump("--range", "1:0:5", "--range", "0:1:1", "--range", "1:1:5", "--range", "2:0:1",
                tmp_path)[1] == [[3, "w", 1.5], [2, "y", None], [4.5, None, 2]]
    assert "2 of 4 files cannot be used" in error("--columns", "t,k", tmp_path)
    assert "c.tsv': column 't' of '" in error("--columns", "t,k", tmp_path / "*[ac].*")
    (tmp_path / "empty.csv").write_text("")
    assert dump("--columns", "t,k", tmp_path / "*[aby].csv")[1] == [["x", 1], ["y", 2], ["w", 3]]
    (tmp_path / "e.csv").write_text("k\nx\n")
    assert "column 'k' is STRING, and F64 in" in error(tmp_path)  # the widest of the other files


def test_faults_are_of_rows(tmp_path):
    path = tmp_path / "t.csv"
    good = [f'{k},"[{k},{k}.5]"' for k in range(2000)]
    good[1200], good[1500], good[1700] = '1200,"[1,null]"', "1500", '1700x,"[1,2]"'
    path.write_text("k,v\n" + "\n".join(good) + '\n2000,"[1')
    _, found = dump("--fixed", "v=2", path)
    wrong = {i: r["fault"] for i, r in enumerate(found) if isinstance(r, dict)}
    assert list(wrong) == [1200, 1500, 1700, 2000]
    assert wrong[1200].startswith("column 'v' (FIXED_LIST<F32>[2]): ") and "null" in wrong[1200]
    assert wrong[1500] == "not a row of CSV: expected 2 cells, found 1"
    assert wrong[1700] == "column 'k' (I64): '1700x' is not a value of this type"
    assert wrong[2000] == "the file ends within a quoted cell"
    assert found[1999] == [1999, [1999, 1999.5]]


@pytest.mark.more
@pytest.mark.release
def test_a_cell_of_100_mb(tmp_path):
    """It is one row's fault, and is never held as a whole."""
    path = tmp_path / "t.csv"
    with open(path, "w") as f:
        f.write('k,t\n1,a\n2,"')
        for _ in range(100):
            f.write("y\n" * 500000)
        f.write('"\n3,c\n')
    _, found, peak = dump_measured("--max-cell", 1000000, path)
    assert found == [[1, "a"], {"fault": "column 't' (STRING): a cell of more than 1000000 bytes"}, [3, "c"]]
    if os.environ.get("MR_BUILD", "release") == "release":
        assert peak < 32 * 1024
    rows, _, size, _ = run("--count", "--max-cell", 200000000, "--memory", 600000000, path).stdout.split()
    assert int(rows) == 3 and int(size) > 100000000


def test_wildcards_skip_marks_and_unfinished_files(tmp_path):
    for name in ("a/t.csv", "_temporary/t.csv", "a/_t.csv", "a/.t.csv", "_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"name\n{name}\n")
    (tmp_path / "link").symlink_to("a")
    assert dump(tmp_path)[1] == [["a/t.csv"]]  # one file
    assert [dump(tmp_path / pattern)[1] for pattern in ("*/*.csv", "*", "_t*/*")] == [[["a/t.csv"]], [["a/t.csv"]], [["_temporary/t.csv"]]]

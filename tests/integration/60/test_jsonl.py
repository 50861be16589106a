"""JSON lines that Python's json wrote, as sources of rows, and those of our own writer, read by it."""
import json
import os
import random

import pytest

from lib.table import dump, dump_measured, error, run

TEXTS = ["", "ä€😀", "\u2028\x7f\\\"/\b\n\r\t\x01", "x" * 5000, "null", "[1,2]", " a "]


def rows_of(rng, count):
    for k in range(count):
        yield {"id": rng.randrange(-2**63, 2**63), "x": rng.choice([0.1, -1e300, 5e-324, k / 7]),
               "flag": rng.random() < 0.5, "text": rng.choice(TEXTS) + str(k) * rng.randrange(3),
               "list": [rng.uniform(-1e9, 1e9) for _ in range(rng.randrange(6))],
               "deep": [[rng.choice(TEXTS)] * rng.randrange(3) for _ in range(rng.randrange(3))],
               "maybe": rng.choice([None, 1, 2])}


@pytest.mark.parametrize("ascii_only", [True, False])
def test_values(tmp_path, ascii_only):
    rows = list(rows_of(random.Random(7), 3000))
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(r, ensure_ascii=ascii_only) + "\n" for r in rows), encoding="utf-8")
    head, found = dump("--batch", 777, path)
    assert head["schema"] == [["id", "I64"], ["x", "F64"], ["flag", "BOOL"], ["text", "STRING"], ["list", "LIST<F64>"],
                              ["deep", "LIST<LIST<STRING>>"], ["maybe", "I64"]]
    assert found == [list(r.values()) for r in rows]


def test_what_is_written(tmp_path):
    rows = list(rows_of(random.Random(5), 1000))
    source, target = tmp_path / "t.jsonl", tmp_path / "to.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows))
    dump("--to", target, source)
    assert [json.loads(line) for line in target.read_text(encoding="utf-8").split("\n")[:-1]] == rows


def test_ranges(tmp_path):
    """Any range at any time is the same rows, also of files that are not alike."""
    rng = random.Random(3)
    parts = [list(rows_of(rng, n)) for n in (500, 0, 700)]
    for i, part in enumerate(parts):
        keep = [k for k in ("maybe", "text", "id", "x")[i:]]  # other columns in another order
        (tmp_path / f"{i}.jsonl").write_text("".join(json.dumps({k: r[k] for k in keep}) + "\n\n" for r in part))
    ranges = [(rng.choice([0, 2, 2, 1]), rng.randrange(800), rng.randrange(1, 200)) for _ in range(40)]
    head, found = dump(*(x for f, a, n in ranges for x in ("--range", f"{f}:{a}:{n}")), "--columns", "text,maybe,id",
                       tmp_path)
    expected = [[r["text"] if f < 2 else None, r["maybe"] if f < 1 else None, r["id"]]
                for f, a, n in ranges for r in parts[f][a:a + n]]
    assert found == expected
    assert [name for name, _ in head["schema"]] == ["text", "maybe", "id"]


def test_faults_are_of_rows(tmp_path):
    path = tmp_path / "t.jsonl"
    good = [json.dumps({"k": k, "v": [k, k + 0.5]}) for k in range(2000)]
    good[1200] = '{"k": 1200, "v": [1200, null]}'
    good[1500] = '{"k": 1500, "v": [1, 2'
    good[1700] = '{"k": 1700, "v": [1, 2, 3]}'
    path.write_text("\n".join(good) + '\n{"k": 20')
    _, found = dump("--fixed", "v=2", path)
    wrong = {i: r["fault"] for i, r in enumerate(found) if isinstance(r, dict)}
    assert list(wrong) == [1200, 1500, 1700, 2000]
    assert wrong[1200].startswith("column 'v' (FIXED_LIST<F32>[2]): ") and "null" in wrong[1200]
    assert "column 'v'" in wrong[1500] and "found the end of the text" in wrong[2000]
    assert "expected 2 items, found 3" in wrong[1700]
    assert found[1999] == [1999, [1999, 1999.5]]


def test_what_is_no_table(tmp_path):
    one = tmp_path / "a.jsonl"
    one.write_text('{"a": 1, "b": "x"}\n')
    assert "has no column 'z'" in error("--columns", "z", one)
    two = tmp_path / "b.jsonl"
    two.write_text('{"a": [1]}\n')
    assert "column 'a' is LIST<I64>, and I64 in" in error(one, two)
    two.write_text("[\n 1\n]\n")
    assert "b.jsonl' is no table of JSON lines" in error(two)
    two.write_text('{"a": 1, "a": 2}\n')
    assert dump(two)[1][0]["fault"].startswith("column 'a' (I64): the name is there twice")


@pytest.mark.release
def test_a_cell_of_100_mb(tmp_path):
    """It is one row's fault, and is never held as a whole."""
    path = tmp_path / "t.jsonl"
    with open(path, "w") as f:
        f.write('{"k": 1, "t": "a"}\n{"k": 2, "t": "')
        for _ in range(100):
            f.write("y" * 1000000)
        f.write('"}\n{"k": 3, "t": "c"}\n')
    _, found, peak = dump_measured("--max-cell", 1000000, path)
    assert found == [[1, "a"], {"fault": "column 't': a cell of more than 1000000 bytes"}, [3, "c"]]
    if os.environ.get("MR_BUILD", "release") == "release":
        assert peak < 32 * 1024
    rows, _, size, _ = run("--count", "--max-cell", 200000000, "--memory", 600000000, path).stdout.split()
    assert int(rows) == 3 and int(size) > 100000000


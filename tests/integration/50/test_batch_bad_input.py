"""Input of `millrace batch run` that is not as it should be: an error that names file and column before the first call
where that can be known, a dead letter where it is one row's fault."""
import json
import math
import random

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import batch, wait

pytestmark = batch.pytestmark


def line(key, x=(1.0, 2.0, 3.0, 4.0), **more):
    return json.dumps({"id": key, "x": x, "name": f"row {key}", **more}) + "\n"


def jsonl(folder, name, text):
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_text(text)


def parquet(folder, name, keys, x=None, field=pa.list_(pa.float32()), groups=None):
    (folder / "in").mkdir(exist_ok=True)
    t = pa.table({"id": pa.array(keys, pa.int64()), "x": pa.array(x or [[1, 2, 3, 4]] * len(keys), field),
                  "name": pa.array([f"row {k}" for k in keys], pa.string())})
    with pq.ParquetWriter(folder / "in" / name, t.schema) as w:
        for begin, end in groups or [(0, len(keys))]:
            w.write_table(t.slice(begin, end - begin))


def run(folder, *args, code=0, handler=batch.Host):
    """Its output, and the number of calls."""
    with batch.hosts(handler) as (addresses, (made,)):
        done = batch.run(folder, addresses, *args, code=code)
        return done.stderr, made.calls


def keys(folder):
    return sorted(batch.results(folder)["id"].to_pylist())


def test_files_and_groups_without_rows(tmp_path):
    parquet(tmp_path, "a.parquet", [])
    parquet(tmp_path, "b.parquet", list(range(10)), groups=[(0, 0), (0, 4), (4, 4), (4, 10), (10, 10)])
    parquet(tmp_path, "c.parquet", [])
    run(tmp_path)
    assert keys(tmp_path) == list(range(10)) and not batch.dead(tmp_path)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_nothing_but_empty_text(tmp_path, text):
    jsonl(tmp_path, "a.jsonl", text)
    jsonl(tmp_path, "b.jsonl", line(1))
    run(tmp_path)
    assert keys(tmp_path) == [1]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_nothing_at_all(tmp_path, name):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text("")
    _, calls = run(tmp_path)
    assert calls == 0 and batch.results(tmp_path).column_names == ["id", "name", "y", "z"] and keys(tmp_path) == []


def noise_for_a_footer(b):
    """All of it, the same each time: a part of it, or other noise, may be a footer by chance."""
    size = int.from_bytes(b[-8:-4], "little")
    return b[:-8 - size] + random.Random(5).randbytes(size) + b[-8:]


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-8] + b"\xff\xff\xff\x7fPAR1", lambda b: b"", lambda b: b[:100],
                                    noise_for_a_footer])
def test_corrupt_footer(tmp_path, damage):
    parquet(tmp_path, "a.parquet", list(range(100)))
    parquet(tmp_path, "b.parquet", list(range(100)))
    bad = tmp_path / "in/b.parquet"
    bad.write_bytes(damage(bad.read_bytes()))
    said, calls = run(tmp_path, code=1)
    assert str(bad) in said and calls == 0


def test_lines_that_are_cut_or_no_json(tmp_path):
    jsonl(tmp_path, "a.jsonl", line(0) + line(1)[:-20] + "\n" + line(2) + "[]\n" + line(4) + line(5)[:-5])
    run(tmp_path, "--max-dead-percent", "100")
    assert keys(tmp_path) == [0, 2, 4]
    letters = {d["row"]: d for d in batch.dead(tmp_path)}
    assert sorted(letters) == [1, 3, 5]
    assert all(d["file"].endswith("a.jsonl") and d["kind"] == "row" and d["cause"] and "values" not in d for d in letters.values())


def test_lengths_that_cancel_out(tmp_path):
    """A short list or a null, and a long one beside it: flattened they would be right."""
    bad = {3: [1, 2, 3], 4: [1, 2, 3, 4, 5], 10: None, 11: [1, 2, 3, 4, 5, 6, 7, 8], 20: [], 21: [9] * 8}
    x = [bad.get(k, [k, 1, 2, 3]) for k in range(30)]
    parquet(tmp_path, "a.parquet", list(range(30)), x)
    jsonl(tmp_path, "../b.jsonl", "".join(line(100 + k, v) for k, v in enumerate(x)))
    run(tmp_path)
    (tmp_path / "second").mkdir()
    jsonl(tmp_path / "second", "b.jsonl", (tmp_path / "b.jsonl").read_text())
    run(tmp_path / "second")
    for folder, first in ((tmp_path, 0), (tmp_path / "second", 100)):
        t = batch.results(folder)
        assert sorted(t["id"].to_pylist()) == [first + k for k in range(30) if k not in bad]
        assert all(y == (k - first) + 6 for k, y in zip(t["id"].to_pylist(), t["y"].to_pylist()))
        letters = {d["row"]: d["cause"] for d in batch.dead(folder)}
        assert sorted(letters) == sorted(bad) and all("x" in cause for cause in letters.values())


class Square(batch.Host):
    """x is a matrix."""
    def do_GET(self):
        self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                       "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2, 2]},
                                  {"name": "id", "datatype": "INT64", "shape": [-1]}],
                       "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]},
                                   {"name": "z", "datatype": "INT64", "shape": [-1, 2]}]})

    def answer(self, number, x, key):
        self.good(x, key, y=x[:, 1, 0].copy())


@pytest.mark.parametrize("write", ["parquet", "arrow", "jsonl"])
def test_lists_in_lists(tmp_path, write):
    """Their lengths are those of the model's dimensions, whatever their sum is."""
    bad = {0: [[1, 2, 3], [4]], 7: [[1], [2, 3, 4]], 11: [[1, 2, 3, 4]], 12: [[1], [2], [3], [4]], 13: [[1, 2], None], 14: [[1, 2]]}
    x = [bad.get(k, [[k, k + 1], [k + 2, k + 3]]) for k in range(30)]
    if write == "jsonl":
        bad = {k: v for k, v in bad.items() if k != 13}  # text has no null lists in lists
        jsonl(tmp_path, "a.jsonl", "".join(line(k, [[k, k + 1], [k + 2, k + 3]] if k == 13 else v) for k, v in enumerate(x)))
    else:
        parquet(tmp_path, "a.parquet", list(range(30)), x, field=pa.list_(pa.list_(pa.float32())))
    if write == "arrow":
        t = pq.read_table(tmp_path / "in/a.parquet")
        (tmp_path / "in/a.parquet").unlink()
        with pa.OSFile(str(tmp_path / "in/a.arrow"), "wb") as f, pa.ipc.new_file(f, t.schema) as w:
            w.write_table(t)
    run(tmp_path, handler=Square)
    assert keys(tmp_path) == [k for k in range(30) if k not in bad]
    t = batch.results(tmp_path)
    assert t["y"].to_pylist() == [k + 2 for k in t["id"].to_pylist()]
    letters = {d["row"]: d["cause"] for d in batch.dead(tmp_path)}
    assert sorted(letters) == sorted(bad) and all("column 'x'" in cause for cause in letters.values())
    assert letters[0] == "column 'x': a list of 3 items at level 2, not 2 as the model asks for"


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")
    return json.loads(text, parse_constant=refuse)


def test_letters_are_strict_json_whatever_is_in_the_row(tmp_path):
    odd, words = [math.nan, math.inf, -math.inf, 1.5], ["NaN", "Infinity", "-Infinity", 1.5]
    said = 'NaN, "Infinity\\'
    rows = [{"id": k, "x": odd if k == 777 else [1, 2, 3, 4], "name": {"NaN": odd, "say": said}} for k in (0, 777, 2)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(tmp_path, handler=batch.Poisoned)
    (text,) = [t for f in (tmp_path / "out/dlq").iterdir() for t in f.read_text().splitlines()]
    assert strict(text)["values"] == {"id": 777, "x": words, "name": {"NaN": words, "say": said}}


@pytest.mark.parametrize("args,name", [(("--keep", "nosuch"), "'nosuch'"), (("--map", "x=nosuch"), "nosuch"), (("--map", "nosuch=x"), "nosuch")])
def test_unknown_columns(tmp_path, args, name):
    parquet(tmp_path, "a.parquet", [1])
    said, calls = run(tmp_path, *args, code=1)
    assert name in said and calls == 0


def test_column_that_the_model_needs_is_missing(tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1], "name": ["row 1"]}), tmp_path / "in/a.parquet")
    said, calls = run(tmp_path, code=1)
    assert "'x'" in said and calls == 0


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_names_that_are_there_twice(tmp_path, form):
    (tmp_path / "in").mkdir()
    if form == "parquet":
        t = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([[1.0, 2, 3, 4]], pa.list_(pa.float32())), pa.array(["a"])],
                                 ["id", "id", "x", "name"])
        pq.write_table(t, tmp_path / "in/a.parquet")
    elif form == "csv":
        (tmp_path / "in/a.csv").write_text('id,id,x,name\n1,2,"[1,2,3,4]",a\n')
    else:
        (tmp_path / "in/a.jsonl").write_text(line(0) + '{"id":1,"id":2,"x":[1,2,3,4],"name":"a"}\n')
    if form == "jsonl":
        run(tmp_path, "--max-dead-percent", "100")
        (letter,) = batch.dead(tmp_path)
        assert letter["row"] == 1 and "'id'" in letter["cause"] and keys(tmp_path) == [0]
    else:
        said, calls = run(tmp_path, code=1)
        assert "in/a." in said and "id" in said and calls == 0


@pytest.mark.release_only("large")
def test_cell_of_100_mb(tmp_path):
    jsonl(tmp_path, "a.jsonl", line(0) + line(1, name="x" * 100_000_000).replace('"name": "row 1", ', "") + line(2))
    run(tmp_path, "--max-dead-percent", "100")
    (letter,) = batch.dead(tmp_path)
    assert letter["row"] == 1 and keys(tmp_path) == [0, 2] and len(json.dumps(letter)) < 200_000


def test_files_with_other_columns(tmp_path):
    parquet(tmp_path, "a.parquet", [1, 2])
    (tmp_path / "in/b.parquet").write_bytes(b"")
    pq.write_table(pa.table({"id": pa.array([3], pa.int64()), "x": pa.array(["text"]), "name": ["row 3"]}), tmp_path / "in/b.parquet")
    said, calls = run(tmp_path, code=1)
    assert "b.parquet" in said and "'x'" in said and calls == 0


class Changes(batch.Host):
    """Does something to the folder when the third call comes."""
    folder = None
    change = None

    def answer(self, number, x, key):
        if number == 3:
            type(self).change(self.folder)
        self.good(x, key)


def shrink(folder):
    with open(folder / "in/b.jsonl", "r+") as f:
        f.truncate(100)


@pytest.mark.more
@pytest.mark.parametrize("change,code", [(lambda folder: (folder / "in/b.jsonl").unlink(), 1), (shrink, None),
                                         (lambda folder: (folder / "in/c.jsonl").write_text(line(9999)), 0)])
def test_folder_that_changes_during_the_run(tmp_path, change, code):
    """A file that goes or shrinks is an error that names it, if its rows were not read yet; a new one is none of this run's.
    No row appears twice or changes its place, and the next start reports what has changed."""
    for name, first in (("a", 0), ("b", 20000)):
        jsonl(tmp_path, f"{name}.jsonl", "".join(line(first + k) for k in range(20000)))
    handler = type("Handler", (Changes,), {"folder": tmp_path, "change": staticmethod(change)})
    with batch.hosts(handler) as (addresses, _):
        command = batch.command(tmp_path, addresses, "--memory", "1MiB", "--batch-rows", "10", "--extent-rows", "100")
        done = batch.subprocess.run(command, capture_output=True, text=True, env=batch.environment(), timeout=wait.PATIENCE)
        assert done.returncode in ((0, 1) if code is None else (code,)), done.stderr
        assert done.returncode == 0 or "b.jsonl" in done.stderr
        if done.returncode == 0 and code == 0:
            assert keys(tmp_path) == list(range(40000))
        again = batch.run(tmp_path, addresses, code=1)
        assert "another input" in again.stderr and ".jsonl" in again.stderr or "input" in again.stderr

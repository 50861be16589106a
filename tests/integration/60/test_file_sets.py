"""Sets of files as input of `millrace batch run` that are not all alike, or not all whole: differences in columns that are not
needed do not matter, each bad file is named, and damage does not keep other rows from being done."""
import decimal
import gzip
import json

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import batch, wait

pytestmark = batch.pytestmark

X = pa.array([[1, 2, 3, 4]] * 10, pa.list_(pa.float32()))


def keys_of(first):
    return pa.array(range(first, first + 10), pa.int64())


def write(folder, name, columns, **options):
    """columns: {name: array}"""
    (folder / "in").mkdir(exist_ok=True)
    table, path = pa.table(columns), folder / "in" / name
    if name.endswith(".arrow"):
        with pa.OSFile(str(path), "wb") as f, pa.ipc.new_file(f, table.schema) as w:
            w.write_table(table)
    elif name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        pq.write_table(table, path, **options)
    return path


def run(folder, *args, code=0, keep="id", handler=batch.Host):
    with batch.hosts(handler) as (addresses, _):
        command = batch.command(folder, addresses, *args)
        at = command.index("--keep")
        command[at:at + 2] = [word for name in keep.split("|") for word in ("--keep", name)]
        done = batch.subprocess.run(command, capture_output=True, text=True, env=batch.environment(), timeout=wait.PATIENCE)
        assert done.returncode == code, f"{done.returncode}: {done.stderr[-3000:]}"
        return done.stderr


def keys(folder):
    return sorted(batch.results(folder)["id"].to_pylist())


@pytest.mark.parametrize("end", ["parquet", "arrow", "jsonl"])
def test_columns_that_are_not_needed_may_differ(tmp_path, end):
    write(tmp_path, f"a.{end}", {"id": keys_of(0), "x": X, "note": ["text"] * 10, "old": [1] * 10})
    write(tmp_path, f"b.{end}", {"new": [[1]] * 10, "x": X, "note": [1.5] * 10, "id": keys_of(10)})
    run(tmp_path)
    assert keys(tmp_path) == list(range(20))


def test_a_letter_has_the_columns_that_all_files_have(tmp_path):
    write(tmp_path, "a.parquet", {"id": keys_of(770), "x": X, "note": ["text"] * 10, "both": ["a"] * 10})
    write(tmp_path, "b.parquet", {"x": X, "note": [1.5] * 10, "id": keys_of(10), "both": ["b"] * 10})
    run(tmp_path, handler=batch.Poisoned)
    (letter,) = batch.dead(tmp_path)
    assert letter["values"] == {"id": 777, "x": [1, 2, 3, 4], "both": "a"}


@pytest.mark.few(5)
@pytest.mark.parametrize("end", ["parquet", "arrow"])
@pytest.mark.parametrize("narrow,wide,kind", [
    (pa.int32(), pa.int64(), "int64"), (pa.int64(), pa.int8(), "int64"), (pa.uint8(), pa.int16(), "int16"), (pa.int8(), pa.uint32(), "int64"),
    (pa.uint16(), pa.uint64(), "uint64"), (pa.float32(), pa.float64(), "double"), (pa.list_(pa.int16()), pa.list_(pa.int32()), "list<element: int32>")])
def test_kept_numbers_become_the_widest(tmp_path, end, narrow, wide, kind):
    values = [[[1, 2]] * 9 + [None], [[3]] * 9 + [None]] if pa.types.is_list(narrow) else [[1] * 9 + [None], [100] * 9 + [None]]
    if pa.types.is_signed_integer(narrow):
        values[0][3] = -5
    write(tmp_path, f"a.{end}", {"id": keys_of(0).cast(pa.int32()), "x": X, "n": pa.array(values[0], narrow)})
    write(tmp_path, f"b.{end}", {"id": keys_of(10), "x": X.cast(pa.list_(pa.float64())), "n": pa.array(values[1], wide)})
    run(tmp_path, keep="id|n")
    t = batch.results(tmp_path).sort_by("id")
    assert t["id"].to_pylist() == list(range(20)) and str(t.schema.field("n").type).startswith(kind.split("<")[0])
    assert t["n"].to_pylist() == values[0] + values[1]


def bad_set(tmp_path):
    write(tmp_path, "a.parquet", {"id": keys_of(0).cast(pa.string()), "x": X})
    write(tmp_path, "b.parquet", {"id": keys_of(10), "x": X})
    write(tmp_path, "c.parquet", {"id": keys_of(20)})
    write(tmp_path, "d.parquet", {"id": keys_of(30), "x": X})
    (tmp_path / "in/e.parquet").write_bytes(b"PAR1 no PAR1")
    write(tmp_path, "f.parquet", {"id": keys_of(50), "x": X})


def test_all_bad_files_are_named(tmp_path):
    bad_set(tmp_path)
    said = run(tmp_path, code=1)
    assert "3 of 6 files" in said and "--skip-bad-files" in said
    assert "a.parquet': column 'id' is STRING, and I64 in" in said
    assert "c.parquet': column 'x' of" in said and "is missing" in said and "e.parquet" in said
    assert not any(f"{name}.parquet': " in said for name in "bdf")


def test_bad_files_are_skipped_and_done_once_they_are_repaired(tmp_path):
    bad_set(tmp_path)
    said = run(tmp_path, "--skip-bad-files")
    assert all(f"{name}.parquet" in said for name in "ace")
    assert keys(tmp_path) == sorted([*range(10, 20), *range(30, 40), *range(50, 60)])
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert [item["file"].rpartition("/")[2] for item in report["left_out"]] == ["a.parquet", "c.parquet", "e.parquet"]
    write(tmp_path, "e.parquet", {"id": keys_of(40), "x": X})
    run(tmp_path, "--skip-bad-files", code=1)  # another input
    run(tmp_path, "--skip-bad-files", "--accept-changed-input")
    assert keys(tmp_path) == sorted([*range(10, 20), *range(30, 60)])


@pytest.mark.few(2)
@pytest.mark.parametrize("end", ["parquet", "arrow"])
@pytest.mark.parametrize("kinds,odd,said", [
    ("uint32 int64 uint64", "c", "U64, and I64 in '{}/b."), ("uint64 uint32 int64", "c", "I64, and U64 in '{}/a."),
    ("int32 uint32 uint64 int8", "c", "U64, and I64 in '{}/a.")])
def test_integers_that_go_together_only_two_by_two(tmp_path, end, kinds, odd, said):
    """U32 goes with either of I64 and U64, and these do not with each other."""
    names = [f"{'abcd'[i]}.{end}" for i in range(len(kinds.split()))]
    for i, kind in enumerate(kinds.split()):
        write(tmp_path, names[i], {"id": keys_of(10 * i), "x": X, "n": pa.array([i] * 10, kind)})
    error = run(tmp_path, code=1, keep="id|n").strip().splitlines()[-1]
    assert f"{odd}.{end}': column 'n' is {said.format(tmp_path / 'in')}" in error
    run(tmp_path, "--skip-bad-files", keep="id|n")
    assert keys(tmp_path) == [k for k in range(10 * len(names)) if names[k // 10][0] != odd]


def test_nothing_but_bad_files(tmp_path):
    for name in "ab":
        write(tmp_path, f"{name}.parquet", {"id": keys_of(0)})
        (tmp_path / "in" / f"{name}.parquet").write_bytes(b"nothing")
    said = run(tmp_path, "--skip-bad-files", code=1)
    assert "a.parquet" in said and "b.parquet" in said and "leaves such files out" not in said


def damaged(tmp_path, crc, flips):
    """Three files of row groups of 1000 rows; `flips`: {(file, row group): column}, one byte in the midst of its values."""
    x = batch.table(tmp_path / "in", 12000, files=3)
    for i in range(3):
        path = tmp_path / "in" / f"{i}.parquet"
        pq.write_table(pq.read_table(path), path, row_group_size=1000, write_page_checksum=crc, use_dictionary=False,
                       compression="none" if crc else "zstd")
    for (file, group), column in flips.items():
        path = tmp_path / "in" / f"{file}.parquet"
        data = bytearray(path.read_bytes())
        groups = pq.ParquetFile(path).metadata.row_group(group)
        chunk = next(c for c in (groups.column(i) for i in range(groups.num_columns)) if c.path_in_schema.startswith(column))
        at = chunk.data_page_offset + chunk.total_compressed_size // 2
        data[at:at + 8] = bytes(b ^ 0x55 for b in data[at:at + 8])
        path.write_bytes(data)
    return x


@pytest.mark.few
@pytest.mark.parametrize("crc", [True, False])
def test_damage_in_the_middle_costs_its_row_group_only(tmp_path, crc):
    x = damaged(tmp_path, crc, {(0, 1): "x", (1, 3): "x"})
    gone = set(range(1000, 2000)) | set(range(7000, 8000))
    for _ in range(2):  # it is no other at the second start
        said = run(tmp_path, code=1, keep="id|name")
        assert "0.parquet" in said and "1.parquet" in said and "2 parts of the input" in said and "--skip-bad-files" in said
        key = batch.results(tmp_path)["id"].to_pylist()
        assert len(key) == len(set(key)) and set(range(12000)) - gone <= set(key)
        assert not (tmp_path / "out/_SUCCESS").exists()
    if crc:
        batch.check(tmp_path, x, sorted(gone))
    run(tmp_path, "--skip-bad-files", keep="id|name")
    assert (tmp_path / "out/_SUCCESS").exists()
    left = json.loads((tmp_path / "out/report.json").read_text())["left_out"]
    assert [item["file"].rpartition("/")[2] for item in left] == ["0.parquet", "1.parquet"]
    assert not crc or [(item["first_row"], item["rows"]) for item in left] == [(1000, 1000), (3000, 1000)]
    for i in range(3):  # repaired
        batch.table(tmp_path / "in", 12000, files=3)
    run(tmp_path, "--accept-changed-input", keep="id|name")
    batch.check(tmp_path, x)


def test_a_checksum_is_wrong_although_all_can_be_read(tmp_path):
    """Not compressed: only the checksum detects it. A column that is not needed is not read."""
    x = damaged(tmp_path, True, {(0, 0): "name", (2, 3): "id"})
    said = run(tmp_path, code=1)
    assert "another checksum than its header says; it belongs to rows 3000 to 3999" in said and "2.parquet" in said
    assert keys(tmp_path) == list(range(11000)) and "0.parquet" not in said and len(x) == 12000


@pytest.mark.few
@pytest.mark.parametrize("rows", [1000, 20000])
def test_text_that_is_damaged_does_not_stop_the_others(tmp_path, rows):
    """Among the rows that determine the types, or after them."""
    for i in range(3):
        lines = "".join(json.dumps({"id": rows * i + k, "x": [k, k * 7 % 13, k * k % 101, 3]}) + "\n" for k in range(rows))
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{i}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    whole = (tmp_path / "in/1.jsonl.gz").read_bytes()
    (tmp_path / "in/1.jsonl.gz").write_bytes(whole[:len(whole) * 2 // 3] + b"\0" * 100)
    said = run(tmp_path, "--extent-rows", "10", code=1)
    assert "1.jsonl.gz" in said
    assert set(range(rows)) | set(range(2 * rows, 3 * rows)) <= set(keys(tmp_path))
    run(tmp_path, "--extent-rows", "10", "--skip-bad-files")
    assert (tmp_path / "out/_SUCCESS").exists()


@pytest.mark.parametrize("end", ["jsonl", "csv"])
def test_a_small_packed_file_with_a_wrong_check_stops_nothing(tmp_path, end):
    """All of it is unpacked at once: rows before the damage count all the same."""
    (tmp_path / "in").mkdir()
    for i in range(2):
        rows = [{"id": 50 * i + k, "x": [k, 1, 2, 3]} for k in range(50)]
        lines = "".join(json.dumps(r) + "\n" for r in rows) if end == "jsonl" else \
            "id,x\n" + "".join(f"{r['id']},\"{r['x']}\"\n" for r in rows)
        packed = bytearray(gzip.compress(lines.encode()))
        packed[-6] ^= 1 if i == 0 else 0
        (tmp_path / "in" / f"{i}.{end}.gz").write_bytes(packed)
    said = run(tmp_path, code=1)
    assert f"0.{end}.gz' is damaged" in said and set(range(50, 100)) <= set(keys(tmp_path))
    run(tmp_path, "--skip-bad-files")
    assert (tmp_path / "out/_SUCCESS").exists() and set(range(50, 100)) <= set(keys(tmp_path))


def test_decimals_of_more_than_38_digits(tmp_path):
    wide = pa.array([decimal.Decimal("1.5")] * 10, pa.decimal256(60, 2))
    write(tmp_path, "a.parquet", {"id": keys_of(0), "x": X, "d": wide, "l": pa.array([[decimal.Decimal(1)]] * 10, pa.list_(pa.decimal256(40, 0))),
                                  "s": pa.array([decimal.Decimal("2.5")] * 10, pa.decimal256(20, 2))})
    for name in "dl":
        said = run(tmp_path, code=1, keep=f"id|{name}")
        assert f"column '{name}'" in said and "more than 38 digits" in said
    run(tmp_path, keep="id|s")
    assert batch.results(tmp_path)["s"].to_pylist() == [decimal.Decimal("2.50")] * 10


def test_names_that_differ_in_case_only(tmp_path):
    upper = pa.array([f"upper {k}" for k in range(10)])
    write(tmp_path, "a.parquet", {"id": keys_of(0), "ID": upper, "x": X, "X": numpy.arange(10)})
    run(tmp_path, keep="id|ID|X")
    t = batch.results(tmp_path).sort_by("id")
    assert t["ID"].to_pylist() == upper.to_pylist() and t["X"].to_pylist() == list(range(10)) and t["y"].to_pylist() == [10] * 10

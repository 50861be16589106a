"""Tables of text in gzip and zstd: those of Python and pyarrow are read, those of our own writer are read by them,
and faults of such a file are reported with their place."""
import gzip
import json
import random

import pyarrow as pa
import pytest

from lib import batch
from lib.table import dump, error, run

MAGIC = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd"}


def pack(data, end):
    return gzip.compress(data) if end == "gz" else pa.compress(data, codec="zstd", asbytes=True)


def unpack(path, end):
    with pa.input_stream(str(path), compression="gzip" if end == "gz" else "zstd") as f:
        return f.read()


def table(count, seed=1):
    rng = random.Random(seed)
    rows = [[k, rng.randbytes(rng.randrange(200)).hex()] for k in range(count)]
    return rows, {"jsonl": "".join(json.dumps({"k": k, "t": t}) + "\n" for k, t in rows).encode(),
                  "csv": ("k,t\n" + "".join(f'{k},"{t}"\n' for k, t in rows)).encode()}


@pytest.mark.few(2)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("end", ["gz", "zst"])
def test_read(tmp_path, end, form):
    rows, text = table(20000)
    path = tmp_path / f"t.{form}.{end}"
    path.write_bytes(pack(text[form], end))
    head, found = dump("--batch", 999, path)
    assert head["schema"] == [["k", "I64"], ["t", "STRING"]] and found == rows
    # Any range, forwards and back.
    ranges = [(15000, 20), (100, 3), (101, 2), (19990, 100), (0, 1)]
    assert dump(*(x for a, n in ranges for x in ("--range", f"0:{a}:{n}")), path)[1] == \
        [row for a, n in ranges for row in rows[a:a + n]]
    # Several streams one after the other, one of them empty, cut within a row; the name does not show it.
    half = len(text[form]) // 2
    path = tmp_path / f"several.{form}"
    path.write_bytes(pack(text[form][:half], end) + pack(b"", end) + pack(text[form][half:], end))
    assert path.read_bytes().startswith(MAGIC[end])
    assert dump(path)[1] == rows
    path.write_bytes(pack(b"", end))
    assert dump(path) == ({"schema": [], "rows": [-1]}, [])


@pytest.mark.more
@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("end", ["gz", "zst"])
def test_written(tmp_path, end, form):
    rows, text = table(20000)
    source, target = tmp_path / "t.jsonl", tmp_path / f"t.{form}.{end}"
    source.write_bytes(text["jsonl"])
    dump("--to", target, source)
    assert target.read_bytes().startswith(MAGIC[end]) and target.stat().st_size < 0.8 * source.stat().st_size
    plain = unpack(target, end).decode()
    if form == "jsonl":
        assert [list(json.loads(line).values()) for line in plain.splitlines()] == rows
    assert dump(target)[1] == rows


@pytest.mark.few
@pytest.mark.parametrize("end", ["gz", "zst"])
def test_damage(tmp_path, end):
    _, text = table(20000)
    plain, path = tmp_path / "t.jsonl", tmp_path / f"t.jsonl.{end}"
    plain.write_bytes(text["jsonl"])
    dump("--to", path, plain)  # of our own, as pyarrow's zstd has no checksum
    packed = path.read_bytes()
    kind = {"gz": "gzip", "zst": "zstd"}[end]
    for size in (len(packed) - 1, len(packed) // 2):
        path.write_bytes(packed[:size])
        assert error(path) == f"INVALID '{path}' is cut off: it ends at byte {size} within its {kind} data"
    flip = bytes([packed[-3] ^ 1])
    middle = packed[:600000] + b"\xff" * 1000 + packed[601000:]
    for wrong in (packed[:-3] + flip + packed[-2:], middle, packed + b"xyz"):
        path.write_bytes(wrong)
        told = error(path)
        assert told.startswith(f"INVALID '{path}' is damaged: its {kind} data is wrong before byte ")
        assert 0 < int(told.split(" before byte ")[1].split(":")[0]) <= len(wrong)
    path.write_bytes(text["jsonl"])
    assert error(path) == f"INVALID '{path}' is no {kind} file: at byte 0 there is no mark of one"
    path.write_bytes(b"")
    assert dump(path) == ({"schema": [], "rows": [-1]}, [])


def damaged(text, row):
    """Packed without compression, so that a byte of damage is a byte of its row: only the checksum at the end detects it."""
    packed = gzip.compress(text, 0)
    at = packed.index(row)
    return packed[:at] + b"#" + packed[at + 1:]


@pytest.mark.few
@pytest.mark.parametrize("form,row", [("jsonl", b'{"k": 7000,'), ("csv", b"7000,")])
@pytest.mark.parametrize("cut", [0, 3000])
def test_damaged_row(tmp_path, form, row, cut):
    """A row that only damage has made wrong is no row; one that is wrong in a file which is cut off is."""
    rows, text = table(20000)
    path = tmp_path / f"t.{form}.gz"
    packed = damaged(text[form], row)
    path.write_bytes(packed[:len(packed) - cut])
    told, lines = error(path), run(path).stdout.count("\n")
    assert lines > 19000 if cut else lines <= 7002
    if cut:
        assert told == f"INVALID '{path}' is cut off: it ends at byte {len(packed) - cut} within its gzip data"
    else:
        assert told.startswith(f"INVALID '{path}' is damaged: its gzip data is wrong before byte {len(packed) - 4}: ")
    head, found = dump("--range", "0:0:6000", path)
    assert found == rows[:6000]


def test_damaged_block(tmp_path):
    """The blocks of zstd before one that is none are read."""
    rows, text = table(1000)
    half = len(text["jsonl"]) // 2
    blocks = (text["jsonl"][:half], text["jsonl"][half:])
    (tmp_path / "t.jsonl.zst").write_bytes(MAGIC["zst"] + b"\0\x58" + b"".join((len(b) << 3).to_bytes(3, "little") + b for b in blocks) + b"\7\0\0")
    lines = run(tmp_path / "t.jsonl.zst").stdout.split("\n")
    assert [json.loads(line) for line in lines[1:-2]] == rows and "damaged" in lines[-2]


def test_damaged_file_of_a_job(tmp_path):
    (tmp_path / "in").mkdir()
    text = "".join(json.dumps({"id": k, "x": [k, 1, 2, 3], "name": f"row {k}"}) + "\n" for k in range(3000)).encode()
    bad = tmp_path / "in/0.jsonl.gz"
    bad.write_bytes(damaged(text, b'{"id": 2000,'))
    (tmp_path / "in/1.jsonl.gz").write_bytes(gzip.compress(text.replace(b'"id": ', b'"id": 5')))
    (tmp_path / "in/2.jsonl.gz").write_bytes(b"")
    with batch.hosts(batch.Host) as (addresses, _):
        said = batch.run(tmp_path, addresses, "--extent-rows", "150", code=1).stderr
        assert f"'{bad}' is damaged: its gzip data is wrong before byte " in said and not batch.dead(tmp_path)
        batch.run(tmp_path, addresses, "--extent-rows", "150", "--skip-bad-files")
    assert sorted(batch.results(tmp_path)["id"].to_pylist()) == sorted([*range(2000), *(int(f"5{k}") for k in range(3000))])
    (left_out,) = json.loads((tmp_path / "out/report.json").read_text())["left_out"]
    assert left_out["file"] == str(bad) and not batch.dead(tmp_path)

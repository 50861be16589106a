"""Parquet files of our own writer, read back by pyarrow (page checksums verified) and by DuckDB: each type, nulls and
nesting, pages, row groups, statistics. The rows go through tests/interop/table_write.c."""
import datetime
import decimal
import math
import os
import random
import struct
import subprocess

import duckdb
import pyarrow.parquet as pq
import pytest

from lib import wait
from lib.repo import TOP
from lib.server import clean_environment

WRITE = TOP / "build" / os.environ.get("MR_BUILD", "release") / "tests" / "table_write"
NAMES = "BOOL I8 I16 I32 I64 U8 U16 U32 U64 F16 F32 F64 DATE TIMESTAMP DECIMAL STRING BINARY LIST FIXED_LIST".split()
NUMBER = {name: i + 1 for i, name in enumerate(NAMES)}
PACKED = {"BOOL": "<B", "I8": "<b", "I16": "<h", "I32": "<i", "I64": "<q", "U8": "<B", "U16": "<H", "U32": "<I",
          "U64": "<Q", "F16": "<e", "F32": "<f", "F64": "<d"}
BITS = {"I8": (-2**7, 2**7), "I16": (-2**15, 2**15), "I32": (-2**31, 2**31), "I64": (-2**63, 2**63), "U8": (0, 2**8),
        "U16": (0, 2**16), "U32": (0, 2**32), "U64": (0, 2**64)}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Field:
    def __init__(self, name, type_, null=False, width=0, item=None, precision=0, scale=0):
        self.name, self.type, self.null, self.width, self.item = name, type_, null, width, item
        self.precision, self.scale = precision, scale

    def head(self):
        name = self.name.encode()
        return (struct.pack("<BBBBQI", NUMBER[self.type], self.null, self.precision, self.scale, self.width, len(name)) +
                name + (self.item.head() if self.item else b""))

    def bytes(self, v):
        if self.null:
            return b"\0" if v is None else b"\1" + self.value(v)
        return self.value(v)

    def value(self, v):
        if self.item:
            return struct.pack("<I", len(v)) + b"".join(self.item.bytes(x) for x in v)
        if self.type in PACKED:
            return struct.pack(PACKED[self.type], v)
        if self.type == "DATE":
            return struct.pack("<i", (v - EPOCH.date()).days)
        if self.type == "TIMESTAMP":
            return struct.pack("<q", (v - EPOCH) // datetime.timedelta(microseconds=1))
        if self.type == "DECIMAL":
            return int(v.scaleb(self.scale)).to_bytes(16, "little", signed=True)
        data = v.encode() if self.type == "STRING" else v
        return struct.pack("<I", len(data)) + data

    def some(self, rng):
        """A random value."""
        if self.null and rng.random() < 0.2:
            return None
        if self.item:
            return [self.item.some(rng) for _ in range(self.width or rng.choice([0, 0, 1, 2, 7]))]
        if self.type in BITS:
            low, high = BITS[self.type]
            return rng.choice([low, high - 1, 0, 1, rng.randrange(low, high)])
        return {"BOOL": lambda: rng.random() < 0.5,
                "F16": lambda: rng.randrange(-1000, 1000) / 8, "F32": lambda: rng.randrange(-10**6, 10**6) / 64,
                "F64": lambda: rng.uniform(-1e300, 1e300),
                "DATE": lambda: datetime.date(1, 1, 1) + datetime.timedelta(rng.randrange(3650000)),
                "TIMESTAMP": lambda: EPOCH + datetime.timedelta(microseconds=rng.randrange(-10**16, 10**17)),
                "DECIMAL": lambda: decimal.Decimal(rng.randrange(-10**15, 10**15)).scaleb(-self.scale),
                "STRING": lambda: rng.choice(["", "ä€😀", "x" * 100, str(rng.random())]),
                "BINARY": lambda: rng.randbytes(rng.choice([0, 1, 80]))}[self.type]()


def write(path, fields, rows, *args):
    data = struct.pack("<I", len(fields)) + b"".join(f.head() for f in fields) + struct.pack("<Q", len(rows))
    data += b"".join(f.bytes(r[f.name]) for r in rows for f in fields)
    done = subprocess.run([str(WRITE), "parquet", str(path), *map(str, args)], input=data, capture_output=True,
                          env=clean_environment(), timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr.decode()
    return pq.ParquetFile(path, page_checksum_verification=True)


def scalar(type_, null=False):
    return Field("v", type_, null, precision=20 if type_ == "DECIMAL" else 0, scale=3 if type_ == "DECIMAL" else 0)


@pytest.mark.parametrize("null,compression", [(False, "none"), (True, "zstd")])
@pytest.mark.parametrize("type_", NAMES[:-2])
def test_type(tmp_path, type_, null, compression):
    rng = random.Random(f"{type_} {null}")
    item = scalar(type_, null)
    item.name = "element"
    fields = [scalar(type_, null), Field("l", "LIST", null, item=item), Field("f", "FIXED_LIST", null, 3, item),
              Field("ll", "LIST", null, item=Field("element", "LIST", null, item=item)),
              Field("fl", "FIXED_LIST", null, 2, Field("element", "LIST", null, item=item))]
    rows = [{f.name: f.some(rng) for f in fields} for _ in range(700)]
    file = write(tmp_path / "t.parquet", fields, rows, compression, 2000, 97)
    assert file.metadata.num_row_groups > 1
    assert file.read().to_pylist() == rows
    if type_ not in ("TIMESTAMP", "F16", "DATE"):  # DuckDB's Python has its own idea of far dates and of halves
        found = duckdb.sql(f"select * from '{tmp_path}/t.parquet'").fetchall()
        names = [f.name for f in fields]
        plain = [tuple(list(x) if isinstance(x, tuple) else x for x in row) for row in found]
        assert [dict(zip(names, [as_lists(x) for x in row])) for row in plain] == rows


def as_lists(v):
    return [as_lists(x) for x in v] if isinstance(v, (list, tuple)) else v


def test_statistics(tmp_path):
    fields = [Field("i", "I64", True), Field("x", "F64"), Field("s", "STRING"), Field("u", "U32")]
    rows = [{"i": None if k % 3 == 0 else k - 50, "x": math.nan if k == 5 else k / 4, "s": chr(97 + k % 26) * (k + 1),
             "u": 2**32 - 1 - k} for k in range(100)]
    group = write(tmp_path / "t.parquet", fields, rows).metadata.row_group(0)
    i, x, s, u = (group.column(n).statistics for n in range(4))
    assert (i.min, i.max, i.null_count) == (-49, 48, 34)
    assert (x.min, x.max, x.null_count) == (0, 24.75, 0)
    assert (u.min, u.max) == (2**32 - 100, 2**32 - 1)
    assert s.min <= min(r["s"] for r in rows) and s.max >= max(r["s"] for r in rows)


@pytest.mark.parametrize("type_", ["I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "F32", "F64"])
def test_statistics_of_each_group(tmp_path, type_):
    """Rows put in parts, groups that end within them: each group has statistics of its own rows only."""
    rows = [{"v": k % 120} for k in range(3000)]
    file = write(tmp_path / "t.parquet", [Field("v", type_)], rows, "none", 1000, 97)
    first = 0
    for g in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(g)
        values = [r["v"] for r in rows[first:first + group.num_rows]]
        found = group.column(0).statistics
        assert (found.min, found.max) == (min(values), max(values))
        first += group.num_rows
    assert first == len(rows) and file.metadata.num_row_groups > 3


def test_no_rows_and_only_nulls(tmp_path):
    fields = [Field("v", "F32", True), Field("l", "LIST", True, item=Field("element", "I64", True))]
    assert write(tmp_path / "none.parquet", fields, []).read().num_rows == 0
    rows = [{"v": None, "l": None}] * 1000
    file = write(tmp_path / "nulls.parquet", fields, rows)
    assert file.read().to_pylist() == rows
    assert file.metadata.row_group(0).column(0).statistics.null_count == 1000


@pytest.mark.more
def test_large_rows(tmp_path):
    """Rows of a megabyte, which no page and no group holds many of."""
    fields = [Field("k", "I64"), Field("v", "FIXED_LIST", width=1 << 18, item=Field("element", "F32"))]
    rng = random.Random(1)
    values = [[float(rng.randrange(1000))] * (1 << 18) for _ in range(12)]
    rows = [{"k": i, "v": v} for i, v in enumerate(values)]
    table = write(tmp_path / "t.parquet", fields, rows, "none", 4 << 20, 5).read()
    assert table["k"].to_pylist() == list(range(12))
    for i, v in enumerate(values):
        found = table["v"][i].values.to_numpy()
        assert len(found) == 1 << 18 and (found == v[0]).all()


def test_notes(tmp_path):
    file = write(tmp_path / "t.parquet", [Field("k", "I64")], [{"k": 1}], "none", 100000, 100, "job", "7", "extents", "[]")
    notes = file.metadata.metadata
    assert notes[b"job"] == b"7" and notes[b"extents"] == b"[]"
    assert file.metadata.created_by.startswith("millrace")

"""Arrow IPC as a source of rows: what tests/interop/table_dump.c prints of files that pyarrow wrote, whole and damaged."""
import datetime
import decimal
import itertools
import json
import random
import struct
import subprocess

import numpy
import pyarrow as pa
import pyarrow.feather
import pytest

from lib import batch, wait
from lib.server import BIN
from lib.table import dump, dump_measured, error, run

DAY = datetime.date(2024, 2, 29)
TIME = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)
EARLY = datetime.datetime(1901, 1, 1, 0, 0, 0, 1)
D = decimal.Decimal

# name: (pyarrow's type, values, our type)
TYPES = {
    "null": (pa.null(), [None, None, None, None], "STRING"),
    "bool": (pa.bool_(), [True, None, False, True], "BOOL"),
    "i8": (pa.int8(), [-128, None, 127, 1], "I8"),
    "i16": (pa.int16(), [-32768, None, 32767, 1], "I16"),
    "i32": (pa.int32(), [-2**31, None, 2**31 - 1, 1], "I32"),
    "i64": (pa.int64(), [-2**63, None, 2**63 - 1, 1], "I64"),
    "u8": (pa.uint8(), [0, None, 255, 1], "U8"),
    "u16": (pa.uint16(), [0, None, 65535, 1], "U16"),
    "u32": (pa.uint32(), [0, None, 2**32 - 1, 1], "U32"),
    "u64": (pa.uint64(), [0, None, 2**64 - 1, 1], "U64"),
    "f16": (pa.float16(), [1.5, None, -2.0, 0.0], "F16"),
    "f32": (pa.float32(), [1.5, None, -0.25, 0.0], "F32"),
    "f64": (pa.float64(), [0.1, None, -1e300, 0.0], "F64"),
    "date": (pa.date32(), [DAY, None, datetime.date(1969, 12, 31), DAY], "DATE"),
    "date64": (pa.date64(), [DAY, None, datetime.date(1969, 12, 31), DAY], "DATE"),
    "s": (pa.timestamp("s"), [TIME.replace(microsecond=0), None, EARLY.replace(microsecond=0), None], "TIMESTAMP"),
    "ms": (pa.timestamp("ms"), [TIME.replace(microsecond=123000), None, EARLY.replace(microsecond=0), None], "TIMESTAMP"),
    "us": (pa.timestamp("us"), [TIME, None, EARLY, TIME], "TIMESTAMP"),
    "ns": (pa.timestamp("ns"), [TIME, None, EARLY, TIME], "TIMESTAMP"),
    "d4": (pa.decimal128(4, 2), [D("-12.34"), None, D("99.99"), D("0")], "DECIMAL(4,2)"),
    "d38": (pa.decimal128(38, 0), [D(10**38 - 1), None, D(1 - 10**38), D(0)], "DECIMAL(38,0)"),
    "d32": (pa.decimal32(5, 1), [D("-1.5"), None, D("9999.9"), D(0)], "DECIMAL(5,1)"),
    "d64": (pa.decimal64(18, 2), [D("-1.25"), None, D("9.99"), D(0)], "DECIMAL(18,2)"),
    "text": (pa.string(), ["", None, "a text of more than twelve bytes, with ä\n\"", "x"], "STRING"),
    "large": (pa.large_string(), ["twelve bytes", None, "thirteen byte", ""], "STRING"),
    "view": (pa.string_view(), ["twelve bytes", None, "thirteen byte", ""], "STRING"),
    "bytes": (pa.binary(), [b"\0\xff", None, b"x" * 40, b""], "BINARY"),
    "large_bytes": (pa.large_binary(), [b"\0\xff", None, b"x" * 40, b""], "BINARY"),
    "view_bytes": (pa.binary_view(), [b"\0\xff", None, b"x" * 40, b""], "BINARY"),
    "three": (pa.binary(3), [b"abc", None, b"\0\0\0", b"xyz"], "BINARY"),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "b", "a"], "STRING"),
    "codes": (pa.dictionary(pa.uint32(), pa.int64()), [7, None, -7, 7], "I64"),
    "days": (pa.dictionary(pa.int64(), pa.date32()), [DAY, None, DAY, DAY], "DATE"),
    "list": (pa.list_(pa.float32()), [[1.0, None, 2.0], None, [], [4.0]], "LIST<F32>"),
    "large_list": (pa.large_list(pa.int16()), [[1, None], None, [], [4]], "LIST<I16>"),
    "texts": (pa.list_(pa.string()), [["a", None, "a longer text"], None, [], [""]], "LIST<STRING>"),
    "flags": (pa.list_(pa.bool_()), [[True, None, False], None, [], [True] * 9], "LIST<BOOL>"),
    "fixed": (pa.list_(pa.int32(), 2), [[1, 2], None, [3, None], [5, 6]], "FIXED_LIST<I32>[2]"),
    "matrix": (pa.list_(pa.list_(pa.float64(), 2), 2), [[[1, 2], [3, 4]], None, [[5, 6], None], None],
               "FIXED_LIST<FIXED_LIST<F64>[2]>[2]"),
    "words": (pa.list_(pa.dictionary(pa.int16(), pa.string())), [["a", "b", None], None, [], ["b"]], "LIST<STRING>"),
    "deep": (pa.list_(pa.list_(pa.list_(pa.int64()))), [[[[1], []], None, []], None, [[[2, 3, None]]], []],
             "LIST<LIST<LIST<I64>>>"),
}


def printed(kind, value):
    """As table_dump has it."""
    if value is None:
        return None
    if pa.types.is_dictionary(kind):
        return printed(kind.value_type, value)
    if isinstance(value, list):
        return [printed(kind.value_type, v) for v in value]
    if pa.types.is_timestamp(kind):
        return (value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    if pa.types.is_date(kind):
        return (value - datetime.date(1970, 1, 1)).days
    if pa.types.is_decimal(kind):
        return str(int(value.scaleb(kind.scale, decimal.Context(76))))
    return value.hex() if isinstance(value, bytes) else value


def array(kind, values):
    if pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type):
        return pa.array(values, pa.list_(pa.string())).cast(kind)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def table(repeat=1):
    return pa.table({name: array(kind, values * repeat) for name, (kind, values, _) in TYPES.items()})


def write(path, what, chunk=None, **options):
    """A stream for .arrows, a file otherwise."""
    make = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with make(path, what.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(what, max_chunksize=chunk)
    return path


def types_of(head):
    return dict(head["schema"])


def check(rows, repeat=1):
    for i, (name, (kind, values, _)) in enumerate(TYPES.items()):
        assert [row[i] for row in rows] == [printed(kind, v) for v in values] * repeat, name


FORMS = ["t.arrow", "t.arrows"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_types(tmp_path, form, compression):
    head, rows = dump(write(tmp_path / form, table(), compression=compression))
    assert head["rows"] == [4]
    assert types_of(head) == {name: text for name, (_, _, text) in TYPES.items()}
    check(rows)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{"use_legacy_format": True}, {"metadata_version": pa.ipc.MetadataVersion.V4},
                                     {"unify_dictionaries": True}, {"allow_64bit": True}])
def test_ways_of_writing(tmp_path, form, options):
    if form == "t.arrow" and "use_legacy_format" in options:
        options = {}
    check(dump(write(tmp_path / form, table(50), 17, **options))[1], 50)


def test_feather(tmp_path):
    """Compressed with LZ4 by default."""
    pyarrow.feather.write_feather(table(), tmp_path / "t.feather")
    check(dump(tmp_path / "t.feather")[1])
    assert dump(tmp_path)[0]["rows"] == [4]  # the folder
    pyarrow.feather.write_feather(pa.table({"a": [1]}), tmp_path / "old.feather", version=1)
    assert "version 1 of Feather" in error(tmp_path / "old.feather")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("start,length", [(0, 1), (1, 200), (7, 93), (199, 1), (200, 0)])
def test_slices(tmp_path, form, start, length):
    """Bits that do not begin with a byte, offsets that do not begin with 0."""
    what = table(50).slice(start, length)
    _, rows = dump(write(tmp_path / form, what))
    assert len(rows) == what.num_rows
    for i, name in enumerate(what.column_names):
        assert [row[i] for row in rows] == [printed(TYPES[name][0], v) for v in what[name].to_pylist()], name


@pytest.mark.few
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_any_range(tmp_path, form, compression):
    """In whatever steps, over the borders of batches and backwards."""
    path = write(tmp_path / form, table(100), 13, compression=compression)
    rng = random.Random(3)
    want = dump(path)[1]
    assert len(want) == 400
    for batch, size in [(1, 1 << 20), (7, 100), (400, 300), (50, 1 << 20)]:
        assert dump("--batch", batch, "--bytes", size, path)[1] == want
    spans = [(a, rng.randint(1, 40)) for a in rng.sample(range(400), 30)]
    ranges = itertools.chain.from_iterable(("--range", f"0:{a}:{n}") for a, n in spans)
    assert dump(*ranges, path)[1] == list(itertools.chain.from_iterable(want[a:a + n] for a, n in spans))
    assert dump("--range", "0:400:5", path)[1] == []


def test_columns_and_files(tmp_path):
    names = ["b", "a"]
    for i in range(3):
        write(tmp_path / f"{i}.arrow{'s' * (i % 2)}", pa.table({"a": [i], "b": [str(i)], "c": [[i]]}))
    head, rows = dump("--columns", ",".join(names), tmp_path)
    assert head == {"schema": [["b", "STRING"], ["a", "I64"]], "rows": [1, 1, 1]}
    assert rows == [[str(i), i] for i in range(3)]
    write(tmp_path / "3.arrow", pa.table({"a": [1.5], "b": ["x"], "c": [[1]]}))
    assert "3.arrow': column 'a' is F64, and I64 in" in error(tmp_path)
    write(tmp_path / "3.arrow", pa.table({"a": [1], "b": ["x"]}))
    assert "3.arrow': column 'c' of" in error(tmp_path) and "is missing" in error(tmp_path)


def test_what_cannot_be_read_is_named(tmp_path):
    """And skipped when it is not asked for: all that follows is found."""
    odd = {"struct": pa.array([{"x": 1, "y": "a"}, None]), "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
           "time": pa.array([1, None], pa.time64("us")), "duration": pa.array([1, None], pa.duration("s")),
           "d76": pa.array([D(1), None], pa.decimal256(50, 2)), "negative": pa.array([10, None], pa.decimal128(5, -1)),
           "dense": pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([5]), pa.array(["x"])]),
           "sparse": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([5, 6]), pa.array(["x", "y"])]),
           "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["a", "b"])),
           "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
           "list_view": pa.array([[1], None], pa.list_view(pa.int32())),
           "structs": pa.array([[{"x": 1}], None]),
           "list_codes": pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([[1, 2]])),
           "struct_codes": pa.array([{"w": "a"}, None], pa.struct([("w", pa.string())])).cast(
               pa.struct([("w", pa.dictionary(pa.int8(), pa.string()))]))}
    what = pa.table({**odd, "last": [["behind", None], []]})
    for form in FORMS:
        path = write(tmp_path / form, what)
        assert dump("--columns", "last", path)[1] == [[["behind", None]], [[]]]
        for name in odd:
            text = error("--columns", name, path)
            assert text.startswith("UNSUPPORTED") and f"column '{name}'" in text and form in text, text
        assert error(path).startswith("UNSUPPORTED")


def test_nulls_over_values(tmp_path):
    """Values below a null are undefined, and do not show."""
    valid = pa.array([True, False, True, False])
    mask = pa.array([False, True, False, True])
    text = pa.StringArray.from_buffers(4, pa.py_buffer(struct.pack("<5i", 0, 1, 3, 4, 6)), pa.py_buffer(b"abbcdd"),
                                       valid.buffers()[1])
    bits = pa.array([1, None, 3, None]).buffers()[0]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4, 6], pa.int32()), pa.array([10, 11, 12, 13, 14, 15]), mask=mask)
    texts = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4, 6], pa.int32()), pa.array(list("abcdef")), mask=mask)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(range(8)), 2, mask=mask)
    numbers = pa.Array.from_buffers(pa.int64(), 4, [bits, pa.py_buffer(struct.pack("<4q", 1, 2, 3, 4))])
    text = pa.Array.from_buffers(pa.string(), 4, [bits, *text.buffers()[1:]])
    what = pa.table({"text": text, "lists": lists, "texts": texts, "fixed": fixed, "numbers": numbers})
    for form in FORMS:
        _, rows = dump(write(tmp_path / form, what))
        assert rows == [["a", [10], ["a"], [0, 1], 1], [None] * 5, ["c", [13], ["d"], [4, 5], 3], [None] * 5]


def test_dictionaries_that_change(tmp_path):
    """In a stream they may be replaced, in both they may grow."""
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [pa.record_batch({"a": pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), words)})
               for words in (["a", "b"], ["a", "b", "c"], ["x", "y"], [None, "z"])]
    want = [["a"], ["b"], [None]] * 2 + [["x"], ["y"], [None]] + [[None], ["z"], [None]]
    for deltas, count, form in [(True, 2, "t.arrow"), (True, 4, "t.arrows"), (False, 4, "t.arrows")]:
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
        make = pa.ipc.new_stream if form == "t.arrows" else pa.ipc.new_file
        with make(tmp_path / form, pa.schema([("a", kind)]), options=options) as writer:
            for b in batches[:count]:
                writer.write_batch(b)
        assert dump(tmp_path / form)[1] == want[:3 * count]
        ranges = [x for i in (10, 0, 7, 4, 1, 5, 8, 2, 11) if i < 3 * count for x in ("--range", f"0:{i}:1")]
        assert dump(*ranges, tmp_path / form)[1] == [want[int(r.split(":")[1])] for r in ranges[1::2]]


def test_rows_that_cannot_be_read(tmp_path):
    bad = pa.Array.from_buffers(pa.string(), 4, [None, pa.py_buffer(struct.pack("<5i", 0, 1, 2, 4, 5)), pa.py_buffer(b"a\xffb\xc3d")])
    split = pa.Array.from_buffers(pa.string(), 4, [None, pa.py_buffer(struct.pack("<5i", 0, 1, 2, 3, 4)), pa.py_buffer("aäb".encode())])
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 1, 2, 4], pa.int32()), bad)
    late = pa.array([0, 2**62, None, -1], pa.int64()).cast(pa.timestamp("s"))
    fault = {"fault": "column 'bad' (STRING): not UTF-8"}
    for form in FORMS:
        path = write(tmp_path / form, pa.table({"k": range(4), "bad": bad}))
        assert dump(path)[1] == [[0, "a"], fault, fault | {}, [3, "d"]]
        path = write(tmp_path / form, pa.table({"k": [[1], None, [2, 3], []], "bad": split}))
        assert dump(path)[1] == [[[1], "a"], fault, fault, [[], "b"]]
        path = write(tmp_path / form, pa.table({"k": ["a", "bb", "ccc", "dddd"], "bad": lists}))
        assert dump(path)[1] == [["a", []], ["bb", ["a"]], {"fault": "column 'bad' (LIST<STRING>): not UTF-8"},
                                 {"fault": "column 'bad' (LIST<STRING>): not UTF-8"}]
        path = write(tmp_path / form, pa.table({"late": late}))
        assert dump(path)[1] == [[0], {"fault": "column 'late' (TIMESTAMP): a time that microseconds, or a date that 32 bits, "
                                                "cannot hold"}, [None], [-1000000]]
        path = write(tmp_path / form, pa.table({"k": [1, 2, 3], "x": ["a", "b" * 5000, "c"], "y": [["d"], ["e"], ["f" * 999] * 9]}))
        assert dump("--max-cell", 4000, path)[1] == [
            [1, "a", ["d"]], {"fault": "column 'x' (STRING): it has too many bytes"},
            {"fault": "column 'y' (LIST<STRING>): it has too many bytes"}]


def test_what_is_no_table(tmp_path):
    def text(name, content):
        (tmp_path / name).write_bytes(content)
        message = error(tmp_path / name)
        assert f"{name}'" in message
        return message
    whole = write(tmp_path / "t.arrow", table()).read_bytes()
    stream = write(tmp_path / "t.arrows", table()).read_bytes()
    assert "is empty" in text("0.arrow", b"")
    assert "no footer" in text("1.arrow", b"ARROW1\0\0")
    assert "is cut off" in text("2.arrows", b"\xff\xff\xff\xff\x10\0\0\0")
    assert "is cut off" in text("3.arrow", b"a,b,c\n")
    assert "Parquet" in text("4.arrow", b"PAR1PAR1PAR1")
    assert "compressed as a whole" in text("5.arrow", b"\x1f\x8b\x08\0\0\0")
    assert "compressed as a whole" in text("6.arrow.zst", b"\x28\xb5\x2f\xfd\0\0")
    assert "no message" in text("7.arrow", b"\xff\xff\xff\xff\x10\0\0\0" + bytes(16))
    assert "begin with a schema" in text("8.arrows", stream[len(pa.ipc.read_schema(pa.py_buffer(stream)).serialize()):])
    assert "begin with a schema" in text("9.arrows", b"\xff\xff\xff\xff\0\0\0\0")
    assert "footer" in text("10.arrow", whole[:-20] + whole[-10:])
    assert "footer" in text("11.arrow", whole[:-10] + b"\xff\xff\xff\x7fARROW1")


@pytest.mark.few(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_files_that_are_cut_off_or_damaged(tmp_path, form, compression):
    """Each is reported with its name, or read without one; none crashes the reader."""
    whole = write(tmp_path / form, table(3), 5, compression=compression).read_bytes()
    path = tmp_path / ("x" + form)
    rng = random.Random(7)
    ends = {len(whole), len(whole) - 8} if form == "t.arrows" else {len(whole)}
    for end in rng.sample(range(1, len(whole)), 20 if wait.SLOW == 1 else 5):
        path.write_bytes(whole[:end])
        assert end in ends or f"{path.name}'" in error(path) or form == "t.arrows"
    for _ in range(60 if wait.SLOW == 1 else 10):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(whole))] = rng.choice([0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)])
        path.write_bytes(damaged)
        done = run(path)
        assert done.returncode in (0, 1), done.stderr[-2000:]
        assert done.returncode == 0 or f"{path.name}'" in done.stdout.split("\n")[-2]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_rows_before_damage(tmp_path, compression):
    """In the same read: in the fourth batch the end of the texts, or a compressed buffer."""
    what = pa.table({"t": [f"row {k:03}" for k in range(500)]})
    whole = bytearray(write(tmp_path / "t.arrow", what, 100, compression=compression).read_bytes())
    if compression:
        parts = bytes(whole).split(b"\x28\xb5\x2f\xfd")
        at = len(whole) - len(parts[-1]) - len(parts[-2]) - len(parts[-3]) - 12
    else:
        at = whole.index(b"row 300") - 8
    whole[at:at + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "t.arrow").write_bytes(whole)
    *lines, told, _ = run("--batch", 1000, tmp_path / "t.arrow").stdout.split("\n")
    assert [json.loads(line) for line in lines[1:]] == [[f"row {k:03}"] for k in range(300)] and "t.arrow'" in told


def test_big_endian(tmp_path):
    """A hand-made schema, as nothing here writes one."""
    for endianness in (0, 1):
        message = struct.pack("<I HHHHH xx iIhBx HHHH ihxxI I xxxx", 16, 10, 12, 8, 10, 4, 12, 16, 4, 1,
                              8, 12, 4, 8, 8, endianness, 4, 0)
        (tmp_path / "t.arrows").write_bytes(struct.pack("<iI", -1, len(message)) + message)
        if endianness:
            assert "t.arrows': its numbers are big-endian" in error(tmp_path / "t.arrows")
        else:
            assert dump(tmp_path / "t.arrows") == ({"schema": [], "rows": [0]}, [])


def test_columns_that_share_a_name(tmp_path):
    """Its place in the message: 65,536 of 1 MB would take 64 GiB."""
    def schema(count, name):
        head = struct.pack("<I HHHHH xx iIhBx HHHH ihxxI I", 16, 10, 12, 8, 10, 4, 12, 16, 4, 1, 8, 12, 4, 8, 8, 0, 4, count)
        places = struct.pack(f"<{count}I", *(4 * (count - i) + 12 for i in range(count)))
        field = struct.pack("<HHHHHH iIIBxxx HHi I", 12, 16, 4, 0, 12, 8, 12, 20, 12, 6, 4, 4, 4, len(name))
        message = head + places + field + name + bytes(8 - len(name) % 8)
        (tmp_path / "t.arrows").write_bytes(struct.pack("<iI", -1, len(message)) + message)
        return tmp_path / "t.arrows"

    assert dump(schema(1, b"n" * 1000)) == ({"schema": [["n" * 1000, "BOOL"]], "rows": [0]}, [])
    assert error(schema(20, b"n" * 1000)).endswith("the names of columns are longer than the schema")


def test_an_empty_table(tmp_path):
    for form in FORMS:
        for what in (table().slice(0, 0), pa.table({"a": pa.array([], pa.int32())})):
            head, rows = dump(write(tmp_path / form, what))
            assert head["rows"] == [0] and rows == [] and len(head["schema"]) == what.num_columns
        with pa.ipc.new_stream(tmp_path / form, what.schema):
            pass
        assert dump(tmp_path / form)[1] == []


@pytest.mark.parametrize("form", FORMS)
def test_reads_that_end_with_a_batch(tmp_path, form):
    """Batches that take more of the memory than several of them may at once."""
    path = write(tmp_path / form, pa.table({"id": range(10000)}), 1000, compression="zstd")
    for batch_rows in (500, 1000, 1500, 4000):
        assert dump("--memory", 20000, "--batch", batch_rows, path)[1] == [[k] for k in range(10000)]


@pytest.mark.release
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_memory(tmp_path, compression):
    """A batch of 160 MB is read in pieces as it is, and not at all when it is compressed and memory does not suffice."""
    rng = numpy.random.default_rng(1)
    x = rng.standard_normal(20_000_000 // 4, numpy.float32)
    what = pa.table({"id": pa.array(numpy.arange(len(x) // 8)), "x": pa.FixedSizeListArray.from_arrays(pa.array(x), 8)})
    path = write(tmp_path / "t.arrow", what, len(x), compression=compression)
    if compression:
        assert "write smaller ones" in error("--count", "--memory", 8 << 20, path)
        return
    done = dump_measured("--range", "0:600000:3", path)
    assert [row[0] for row in done[1]] == [600000, 600001, 600002]
    assert numpy.float32(done[1][0][1]).tolist() == x[4800000:4800008].tolist()
    assert wait.SLOW > 1 or done[2] < 30000


def plain(kind):
    """What is written for a column of that type."""
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    for found, becomes in [((pa.types.is_null, pa.types.is_large_string, pa.types.is_string_view), pa.string()), ((pa.types.is_date,), pa.date32()),
                           ((pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view), pa.binary())]:
        if any(is_it(kind) for is_it in found):
            return becomes
    return kind


@pytest.mark.few(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("repeat,batch_rows", [(1, 1), (1, 100), (300, 100), (20000, 5000)])
def test_written(tmp_path, form, repeat, batch_rows):
    """pyarrow finds in what was written what it had written itself."""
    what = table(repeat) if repeat < 5000 else pa.table({"id": range(4 * repeat), "flag": [True, None, False, True] * repeat})
    path, to = write(tmp_path / "from.arrow", what), tmp_path / form
    dump("--batch", batch_rows, "--range", f"0:0:{what.num_rows}", "--to", to, path)
    with (pa.ipc.open_stream if form == "t.arrows" else pa.ipc.open_file)(to) as reader:
        found = reader.read_all()
    found.validate(full=True)
    assert found.column_names == what.column_names and found.num_rows == what.num_rows
    for name in what.column_names:
        kind = what[name].type
        assert found[name].type == plain(kind), name
        values = found[name]
        if pa.types.is_timestamp(plain(kind)):
            values = values.cast(pa.timestamp("us"))
            assert values.to_pylist() == what[name].cast(pa.timestamp("us")).to_pylist(), name
        else:
            assert values.to_pylist() == what[name].to_pylist(), name
    assert max(b.num_rows for b in found.to_batches()) <= 65536 and len(found.to_batches()) <= 3
    assert dump(to)[1] == dump(path)[1]


def test_written_empty(tmp_path):
    path = write(tmp_path / "from.arrow", table().slice(0, 0))
    for form in FORMS:
        dump("--to", tmp_path / form, path)
        with (pa.ipc.open_stream if form == "t.arrows" else pa.ipc.open_file)(tmp_path / form) as reader:
            found = reader.read_all()
        assert found.num_rows == 0 and found.schema == pa.schema([(n, plain(k)) for n, (k, _, _) in TYPES.items()])


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_results(tmp_path, compression):
    x = batch.table(tmp_path / "in", 20000, files=3, bad={777: [1.0]})
    with batch.hosts(batch.Host) as (addresses, _):
        batch.run(tmp_path, addresses, "--output-format", "arrow", "--compression", compression, "--part-bytes", "200KB")
        assert "Parquet and Arrow take none or zstd" in batch.run(tmp_path, addresses, "--output-format", "arrow", "--compression",
                                                                  "gzip", code=2).stderr
    parts = sorted((tmp_path / "out/parts").iterdir())
    assert len(parts) > 1 and all(p.suffix == ".arrow" for p in parts)
    found = pa.concat_tables(pa.ipc.open_file(p).read_all() for p in parts)
    found.validate(full=True)
    assert sorted(found["id"].to_pylist()) == [k for k in range(20000) if k != 777]
    assert (found["y"].to_numpy() == x[found["id"].to_numpy()].sum(axis=1, dtype=numpy.float32)).all()
    assert found.schema.field("z").type == pa.list_(pa.int64(), 2)


def test_merged(tmp_path):
    """Batches are copied, compressed or not, into one file beside the job, or into fewer in it."""
    batch.table(tmp_path / "in", 4000)
    with batch.hosts(batch.Host) as (addresses, _):
        batch.run(tmp_path, addresses, "--output-format", "arrow", "--compression", "zstd", "--part-bytes", "2KiB", "--extent-rows", 300)
    folder = tmp_path / "out/parts"
    before = pa.concat_tables(pa.ipc.open_file(p).read_all() for p in folder.iterdir()).sort_by("id")
    count = len(list(folder.iterdir()))
    assert before.num_rows == 4000 and count > 4

    def merge(*args):
        return subprocess.run([str(BIN), "batch", "merge", str(tmp_path / "out"), *map(str, args)], capture_output=True, text=True)
    assert "4000 rows" in merge("--output", tmp_path / "all.arrow").stderr
    with pa.ipc.open_file(tmp_path / "all.arrow") as reader:
        assert reader.num_record_batches == count and reader.read_all().sort_by("id").equals(before)
    assert len(dump("--columns", "id", "--range", "0:3990:10", tmp_path / "all.arrow")[1]) == 10
    assert merge("--max-bytes", "1GiB").returncode == 0
    merged, = folder.iterdir()
    assert pa.ipc.open_file(merged).read_all().sort_by("id").equals(before)


def test_a_job(tmp_path):
    """Two files and a stream, one row that is too short; killed by a low limit of dead letters, and gone on with."""
    x = batch.table(tmp_path / "parquet", 10000, files=3, bad={777: [1.0]})
    (tmp_path / "in").mkdir()
    for i, form in enumerate(["arrow", "feather", "arrows"]):
        write(tmp_path / "in" / f"{i}.{form}", pa.parquet.read_table(tmp_path / f"parquet/{i}.parquet"), 900,
              compression=[None, "lz4", "zstd"][i])
    with batch.hosts(batch.Host) as (addresses, _):
        batch.run(tmp_path, addresses, "--max-dead", 0, code=3)
        batch.run(tmp_path, addresses)
    batch.check(tmp_path, x, gone=[777])
    letter, = batch.dead(tmp_path)
    assert letter["row"] == 777 and letter["file"].endswith("0.arrow") and letter["values"]["id"] == 777

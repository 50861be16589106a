"""`millrace map` on Arrow streams, as pyarrow writes and reads them over pipes."""
import contextlib
import io
import json
import subprocess
import threading

import numpy
import pyarrow as pa
import pytest

from lib import wait
from lib.batch import WIDTH, Host, Poisoned, environment, hosts
from lib.server import BIN

X = numpy.random.default_rng(5).integers(-100, 100, (20000, WIDTH)).astype(numpy.float32)


SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.list_(pa.float32())), ("name", pa.string()), ("odd", pa.struct([("a", pa.int64())]))])


def batch(first, count, bad=()):
    return pa.RecordBatch.from_pylist([{"id": k, "x": [1.0] if k in bad else X[k].tolist(), "name": None if k % 7 == 0 else f"row {k}",
                                        "odd": {"a": k}} for k in range(first, first + count)], SCHEMA)


def stream(*batches, form="stream", **options):
    to = io.BytesIO()
    make = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with make(to, SCHEMA, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for b in batches:
            writer.write_batch(b)
    return to.getvalue()


def command(addresses, *args, keep="id,name"):
    return [str(BIN), "map", "-m", "m", "--hosts", ",".join(addresses), "--keep", keep, "-b", "100", "--input-format", "arrow",
            *map(str, args)]


def run(addresses, data, *args, code=0, **more):
    done = subprocess.run(command(addresses, *args, **more), input=data, capture_output=True, env=environment(),
                          timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stderr[-2000:]}"
    return done


def table(done):
    found = pa.ipc.open_stream(done.stdout).read_all()
    found.validate(full=True)
    return found


def check(found, keys):
    keys = numpy.array(keys)
    assert found["id"].to_pylist() == keys.tolist()
    assert (found["y"].to_numpy() == X[keys].sum(axis=1)).all()
    assert found["z"].to_pylist() == [[k * 10, k * 10 + 1] for k in keys.tolist()]
    assert found["name"].to_pylist() == [None if k % 7 == 0 else f"row {k}" for k in keys.tolist()]


@pytest.mark.few(2)
@pytest.mark.parametrize("rows,options", [(1, {}), (333, {}), (10000, {}), (2000, {"compression": "zstd"}), (2000, {"compression": "lz4"})])
def test_order(rows, options):
    """Whatever the batches are."""
    count = 20000 if rows > 1 else 300
    with hosts(Host) as (addresses, made):
        done = run(addresses, stream(*(batch(k, min(rows, count - k)) for k in range(0, count, rows)), **options))
        assert made[0].calls < count / 100 * 2
    check(table(done), range(count))
    assert table(done).schema == pa.schema([("id", pa.int64()), ("name", pa.string()), ("y", pa.float32()), ("z", pa.list_(pa.int64(), 2))])


def test_a_file_is_a_stream_too():
    with hosts(Host) as (addresses, _):
        check(table(run(addresses, stream(batch(0, 500), form="file"))), range(500))


def test_dictionaries():
    words = [pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), names) for names in (["a", "b"], ["c", "d"], ["c", "d", "e"])]
    to = io.BytesIO()
    with pa.ipc.new_stream(to, pa.schema([("id", pa.int64()), ("x", pa.list_(pa.float32(), WIDTH)), ("w", words[0].type)])) as writer:
        for i, w in enumerate(words):
            writer.write_batch(pa.record_batch([pa.array([0, 1, 2]), pa.array(X[:3].tolist(), pa.list_(pa.float32(), WIDTH)), w], writer_schema(w)))
    with hosts(Host) as (addresses, _):
        found = table(run(addresses, to.getvalue(), keep="id,w"))
    assert found["w"].to_pylist() == ["a", "b", "a", "c", "d", "c", "c", "d", "c"]
    assert (found["y"].to_numpy() == numpy.tile(X[:3].sum(axis=1), 3)).all()


def writer_schema(words):
    return pa.schema([("id", pa.int64()), ("x", pa.list_(pa.float32(), WIDTH)), ("w", words.type)])


def test_without_rows():
    """A stream without rows becomes one; nothing at all is not a stream."""
    with hosts(Host) as (addresses, made):
        for batches in ((), (batch(0, 0), batch(0, 0))):
            found = table(run(addresses, stream(*batches)))
            assert found.num_rows == 0 and found.column_names == ["id", "name", "y", "z"]
        assert made[0].calls == 0
    assert b"'stdin' is empty" in run(["127.0.0.1:1"], b"", code=1).stderr


@pytest.mark.parametrize("cut", [3, 7, 100, -100, -2000])
def test_cut_off(cut):
    with hosts(Host) as (addresses, _):
        done = run(addresses, stream(batch(0, 1000))[:cut], code=1)
    assert b"'stdin' is cut off within a message of Arrow" in done.stderr


@pytest.mark.parametrize("data,text", [
    (b'{"id": 1}\n' * 100, b"'stdin'"), (b"\xff\xff\xff\xff\x08\0\0\0" + bytes(100), b"no message of Arrow"),
    (b"\xff" * 100, b"negative length"), (b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(100), b"write smaller ones"),
    (stream(batch(0, 9))[400:], b"'stdin'")])
def test_what_is_no_stream(data, text):
    with hosts(Host) as (addresses, _):
        done = run(addresses, data, code=1)
    assert text in done.stderr and done.stdout == b""


@pytest.mark.parametrize("args,text", [(["--keep", "none"], b"'stdin' has no column 'none'"), (["--map", "x=odd"], b"'odd' is of type struct"),
                                       (["--map", "x=name"], b"cannot become input 'x'")])
def test_columns_that_cannot_be(args, text):
    with hosts(Host) as (addresses, made):
        assert text in run(addresses, stream(batch(0, 10)), *args, code=1).stderr
        assert made[0].calls == 0


def test_dead_rows():
    data = stream(batch(0, 500, bad=[20]), batch(500, 500, bad=[600]))
    dead = [20, 600, 777]
    with hosts(Poisoned) as (addresses, _):
        done = run(addresses, data, code=1)
        assert b"row 20 (row): column 'x' has 1 values" in done.stderr
        check(table(done), range(20))
        check(table(run(addresses, data, "--dead", "skip")), [k for k in range(1000) if k not in dead])
        found = table(run(addresses, data, "--dead", "null", "--error-column", "why"))
    assert found["id"].to_pylist() == list(range(1000))
    assert [k for k, y in enumerate(found["y"].to_pylist()) if y is None] == dead
    assert [k for k, why in enumerate(found["why"].to_pylist()) if why] == dead
    check(found.filter(pa.compute.is_valid(found["y"])), [k for k in range(1000) if k not in dead])


def test_other_formats():
    with hosts(Host) as (addresses, _):
        done = run(addresses, stream(batch(0, 300)), "--output-format", "jsonl", keep="id")
        assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == list(range(300))
        text = "".join(json.dumps({"id": k, "x": X[k].tolist()}) + "\n" for k in range(300))
        done = subprocess.run([*command(addresses, "--output-format", "arrow", keep="id"), "--input-format", "jsonl"],
                              input=text.encode(), capture_output=True, env=environment(), check=True)
        assert table(done)["id"].to_pylist() == list(range(300))


class Pipe:
    """The filter, and a writer and a reader of streams at its ends."""

    def __init__(self, addresses, *args):
        self.process = subprocess.Popen(command(addresses, *args), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=environment())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                end.close()

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()


def test_an_answer_waits_for_no_more_input():
    """The schema comes first, then a batch for each batch; half a message holds nothing back."""
    with hosts(Host) as (addresses, _), Pipe(addresses) as pipe:
        pipe.send(SCHEMA.serialize().to_pybytes())
        reader = pa.ipc.open_stream(pipe.process.stdout)
        assert reader.schema.names == ["id", "name", "y", "z"]
        messages = [batch(k, 3).serialize().to_pybytes() for k in range(0, 30, 3)] + [b"\xff\xff\xff\xff\0\0\0\0"]
        pipe.send(messages[0][:100])
        for k in range(10):
            pipe.send(messages[k][100:] + messages[k + 1][:100 if k < 9 else 2])
            check(pa.Table.from_batches([reader.read_next_batch()]), range(3 * k, 3 * k + 3))
        pipe.send(messages[10][2:])
        with pytest.raises(StopIteration):
            reader.read_next_batch()
        assert pipe.process.wait(wait.PATIENCE) == 0  # the input is still open


def test_nobody_reads_any_more():
    """The parent of the filter was killed: it ends, although no host is up and its input stays open."""
    with Pipe(["127.0.0.1:1"]) as pipe:
        pipe.send(stream(batch(0, 10))[:-8])
        pipe.process.stdout.close()
        assert pipe.process.wait(wait.PATIENCE) == 1
        assert b"'stdout': its reader is gone" in pipe.process.stderr.read()


def test_large_and_small_batches_in_little_memory():
    """More rows than the budget has room for, written by one thread and read by another."""
    with hosts(Host) as (addresses, _), Pipe(addresses, "--memory", "4MiB") as pipe:
        def write():
            with pa.ipc.new_stream(pipe.process.stdin, SCHEMA) as writer:
                for k in range(0, 20000, 2000):
                    writer.write_batch(batch(k, 2000))
            pipe.process.stdin.close()
        writer = threading.Thread(target=write)
        writer.start()
        found = pa.ipc.open_stream(pipe.process.stdout).read_all()
        writer.join()
        assert pipe.process.wait(wait.PATIENCE) == 0
    check(found, range(20000))

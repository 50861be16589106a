"""Memory of `millrace batch run`: that of --memory, and 64 MiB, whatever hosts answer."""
import contextlib
import json
import sqlite3
import subprocess
import sys
import threading

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import batch, wait

pytestmark = batch.pytestmark

MEASURE = ("import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)")
WIDTH = 1 << 18


class Large(batch.Host):
    """Answers a MiB to each row."""
    dimension = WIDTH

    def do_GET(self):
        self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                       "inputs": [{"name": "id", "datatype": "INT64", "shape": [-1]}],
                       "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, self.dimension]}]})

    def do_POST(self):
        body = self.body()
        key = numpy.frombuffer(body[int(self.headers["Inference-Header-Content-Length"]):], "<i8")
        y = numpy.broadcast_to(key.astype(numpy.float32)[:, None], (len(key), WIDTH)).tobytes()
        head = json.dumps({"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [len(key), WIDTH],
                                                           "parameters": {"binary_data_size": len(y)}}]}).encode()
        self.send_response(200)
        self.send_header("Inference-Header-Content-Length", str(len(head)))
        self.send_header("Content-Length", str(len(head) + len(y)))
        self.end_headers()
        self.wfile.write(head + y)


class Open(Large):
    """Does not report the size of its answers in advance."""
    dimension = -1


class Small(batch.Host):
    """Gets 100 KiB of each row, and answers a number; it answers the third call, after the rows that go ahead, only when memory
    is full."""
    width = 25600
    folder = None

    def do_GET(self):
        self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                       "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, self.width]}],
                       "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]})

    def do_POST(self):
        rows = json.loads(self.body()[:int(self.headers["Inference-Header-Content-Length"])])["inputs"][0]["shape"][0]
        with self.server.lock:
            type(self).calls += 1
            number = type(self).calls
        if number >= 3:
            wait.until(lambda: self.has_filled.is_set() or batch.asked(self.folder)["reader"] != "reads", "memory to fill")
            self.has_filled.set()
        self.say(200, {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [rows], "data": [1] * rows}]})


def measured(folder, address, *args, memory=32, beside=64):
    """A run with that many MiB stays within them, and within 64 MiB for all else."""
    command = [str(batch.BIN), "batch", "run", "-i", str(folder / "in"), "-m", "m", "--hosts", address, "-o",
               str(folder / "out"), "--keep", "id", "--memory", f"{memory}MiB", *args]
    done = subprocess.run([sys.executable, "-c", MEASURE, *command], capture_output=True, text=True,
                          env=batch.environment(), timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stderr.split()[-1]) < (memory + beside) * 1024


@pytest.mark.release_only("a sanitizer's own memory")
def test_letters_with_large_cells(tmp_path):
    """Cells of 40 KB that only dead letters need are not read far ahead."""
    (tmp_path / "in").mkdir()
    rows = 12000
    x = pa.array([None if k % 3000 == 7 else [1.0] * batch.WIDTH for k in range(rows)], pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": range(rows), "x": x, "photo": pa.array([b"p" * 40000] * rows)}), tmp_path / "in/0.parquet",
                   row_group_size=100, use_dictionary=False)
    with batch.hosts(batch.Host) as (addresses, _):
        measured(tmp_path, addresses[0])
    assert len(batch.dead(tmp_path)) == 4


@pytest.mark.release_only("a sanitizer's own memory")
def test_large_input_of_a_table(tmp_path):
    """Rows that wait for the commit do not keep what they were made of."""
    rows = 2000
    (tmp_path / "in").mkdir()
    x = pa.FixedSizeListArray.from_arrays(pa.array(numpy.zeros(rows * Small.width, numpy.float32)), Small.width)
    pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64()), "x": x}), tmp_path / "in/0.parquet", row_group_size=50)
    handler = type("Filled", (Small,), {"folder": tmp_path, "has_filled": threading.Event()})
    with batch.hosts(handler) as (addresses, (made,)):
        measured(tmp_path, addresses[0], "--batch-rows", "10", "--commit-interval", "1h", "--output-database",
                 f"sqlite:{tmp_path}/out.db", "--output-table", "results")
    assert made.has_filled.is_set()
    with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("select count(*), count(distinct id) from results").fetchall() == [(rows, rows)]


@pytest.mark.release_only("a sanitizer's own memory")
@pytest.mark.parametrize("handler", [Large, Open])
@pytest.mark.parametrize("batch_rows", [1, 64])
def test_large_answers(tmp_path, handler, batch_rows):
    rows = 300
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), tmp_path / "in/0.parquet")
    with batch.hosts(handler) as (addresses, _):
        measured(tmp_path, addresses[0], "--batch-rows", str(batch_rows), "--compression", "zstd")
    keys = [key for f in (tmp_path / "out/parts").iterdir() for key in pq.read_table(f, columns=["id"])["id"].to_pylist()]
    assert sorted(keys) == list(range(rows))


class Endless(batch.Host):
    """An answer that never ends, of no length or of one that it does not have."""
    length = None

    def answer(self, number, x, key):
        self.send_response(200)
        self.send_header("Content-Length" if self.length else "Transfer-Encoding", str(self.length or "chunked"))
        self.end_headers()
        piece = b" " * (1 << 16)
        try:
            while True:
                self.wfile.write(piece if self.length else b"10000\r\n" + piece + b"\r\n")
        except OSError:
            self.close_connection = True


class Claims(Endless):
    length = 1 << 40


class Silent(Endless):
    """Its model does not report the size of answers."""
    def do_GET(self):
        self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                       "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, batch.WIDTH]},
                                  {"name": "id", "datatype": "INT64", "shape": [-1]}],
                       "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, -1]},
                                   {"name": "z", "datatype": "INT64", "shape": [-1, 2]}]})


class Good(Silent):
    def answer(self, number, x, key):
        self.good(x, key, y=x.sum(axis=1, dtype=numpy.float32).reshape(-1, 1))


@pytest.mark.release_only("a sanitizer's own memory")
@pytest.mark.parametrize("bad,good", [(Endless, batch.Host), (Claims, batch.Host), (Silent, Good)])
def test_answers_without_end(tmp_path, bad, good):
    """They end where an answer cannot be that large, or where memory does, and the rows go elsewhere."""
    rows = 3000
    x = batch.table(tmp_path / "in", rows)
    with batch.hosts(bad, good, together=True) as (addresses, (endless, _)):
        # the C library keeps some of what was freed; of an answer without an end it would be gigabytes
        measured(tmp_path, ",".join(addresses), "--batch-rows", "10", "--keep", "name", beside=128)
    assert endless.calls > 0
    key = batch.results(tmp_path)["id"].to_pylist()
    assert sorted(key) == list(range(rows)) and len(x) == rows and batch.dead(tmp_path) == []


class Wide(batch.Host):
    """Is sent rows of 40 MB."""
    datatype, shape = "FP32", [-1, 10**7]

    def do_GET(self):
        self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                       "inputs": [{"name": "x", "datatype": self.datatype, "shape": self.shape}],
                       "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]})

    def do_POST(self):
        left = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, 1 << 20)))
        self.say(200, {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1]}]})


class Text(Wide):
    datatype, shape = "BYTES", [-1, 1]


def wide_table(folder, form, handler, rows):
    folder.mkdir()
    x = "t" * (4 * 10**7) if handler is Text else "[" + ",".join(["1.5"] * 10**7) + "]"
    with open(folder / f"0.{form}", "w") as f:
        f.write("id,x\n" if form == "csv" else "")
        for key in range(rows):
            f.write(f'{key},"{x}"\n' if form == "csv" else
                    json.dumps({"id": key, "x": x}) + "\n" if handler is Text else f'{{"id": {key}, "x": {x}}}\n')


@pytest.mark.release_only("a sanitizer's own memory")
@pytest.mark.parametrize("form,handler,protocol", [("jsonl", Wide, "binary"), ("jsonl", Wide, "rest"),
                                                   ("jsonl", Text, "binary"), ("csv", Text, "binary")])
def test_large_rows(tmp_path, form, handler, protocol):
    """Rows of 40 MB go one at a time, each with one copy beside it: its text while it is read, its request while it is sent."""
    rows = 3
    wide_table(tmp_path / "in", form, handler, rows)
    with batch.hosts(handler) as (addresses, _):
        measured(tmp_path, addresses[0], "--protocol", protocol, memory=64)
    assert sorted(batch.results(tmp_path)["id"].to_pylist()) == list(range(rows)) and batch.dead(tmp_path) == []


@pytest.mark.release_only("a sanitizer's own memory")
def test_nulls_of_wide_rows(tmp_path):
    """A null of a list of one length takes as much memory as the list, however short its row is."""
    rows = 200
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.jsonl").write_text("".join(f'{{"id": {key}, "x": null}}\n' for key in range(rows)))
    narrow = type("Narrow", (Wide,), {"shape": [-1, 10**6]})
    with batch.hosts(narrow) as (addresses, _):
        measured(tmp_path, addresses[0], "--max-dead", "-1", memory=64)
    assert len(batch.dead(tmp_path)) == rows


class Number(Small):
    def do_GET(self):
        self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                       "inputs": [{"name": "id", "datatype": "INT64", "shape": [-1]}],
                       "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]})


def test_query_that_needs_memory(tmp_path):
    """Half of --memory is for queries, if that is more than 256 MiB."""
    command = [str(batch.BIN), "batch", "run", "--query", "select list(range)[1] as id from range(20000000)", "-m", "m", "-o",
               str(tmp_path / "out"), "--keep", "id"]
    with batch.hosts(Number) as (addresses, _):
        for memory, code in ("64MiB", 1), ("2GiB", 0):
            done = subprocess.run([*command, "--hosts", addresses[0], "--memory", memory], capture_output=True, text=True,
                                  env=batch.environment(), timeout=wait.PATIENCE)
            assert done.returncode == code, done.stderr[-3000:]
            assert ("reading takes more than 256 MiB, use a larger --memory: Out of Memory" in done.stderr) == (code == 1)
    assert batch.results(tmp_path)["id"].to_pylist() == [0]

"""Memory of `millrace batch run`: what --memory says, and 64 MiB, whatever hosts answer."""
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
    """Does not tell before how large its answers are."""
    dimension = -1


class Small(batch.Host):
    """Is sent 100 KiB of each row, and answers a number; the third call, behind the rows that go ahead, only when memory has
    filled."""
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


def measured(folder, address, *args):
    """A run with 32 MiB keeps to them, and to 64 MiB for all else."""
    command = [str(batch.BIN), "batch", "run", "-i", str(folder / "in"), "-m", "m", "--hosts", address, "-o",
               str(folder / "out"), "--keep", "id", "--memory", "32MiB", *args]
    done = subprocess.run([sys.executable, "-c", MEASURE, *command], capture_output=True, text=True,
                          env=batch.environment(), timeout=100 * wait.SLOW)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stderr.split()[-1]) < (32 + 64) * 1024


@pytest.mark.skipif(wait.SLOW > 1, reason="a sanitizer's own memory")
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


@pytest.mark.skipif(wait.SLOW > 1, reason="a sanitizer's own memory")
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


@pytest.mark.skipif(wait.SLOW > 1, reason="a sanitizer's own memory")
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

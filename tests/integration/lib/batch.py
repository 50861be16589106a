"""Batch jobs: tables, hosts and what must hold of the results.

The hosts are small servers of our own, so that each fault is known: y is the sum of x, and z is 10 x the key. What must
hold whatever they do: each row is in the results once, with its own answer, or is a dead letter with the reason.
"""
import collections
import contextlib
import json
import os
import subprocess
import threading

import numpy
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from lib import wait
from lib.services import other
from lib.repo import TOP
from lib.server import BIN, clean_environment

BUILD = TOP / "build" / os.environ.get("MR_BUILD", "release")
WIDTH = 4
LOCK = threading.Lock()

pytestmark = pytest.mark.skipif(
    not (BUILD / "lib" / "millrace" / "libduckdb.so").exists() and "MILLRACE_DUCKDB" not in os.environ,
    reason="tools/setup has not put DuckDB's library into build/deps")


def tensors(request, header_length):
    """{name: array} of a request with binary data, or of JSON (None)."""
    head, at, found = json.loads(request[:header_length]), header_length, {}
    for t in head["inputs"]:
        dtype = {"FP32": "<f4", "INT64": "<i8"}[t["datatype"]]
        if header_length is None:
            found[t["name"]] = numpy.array(t["data"], dtype).reshape(t["shape"])
            continue
        size = t["parameters"]["binary_data_size"]
        found[t["name"]] = numpy.frombuffer(request[at:at + size], dtype).reshape(t["shape"])
        at += size
    return found


class Host(other.Handler):
    """A good one. What is wrong with others is in `answer`, which may be replaced."""
    calls = 0
    again = 0  # calls with rows that were sent before, to this host or another one of hosts()
    rows_sent = set()
    version = "1"
    z_width = 2  # as its metadata say
    most_rows = 10**9
    peers = ()  # no answer before each of these was called

    def do_GET(self):
        self.say(200, {"name": "m", "versions": [self.version], "platform": "",
                       "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]},
                                  {"name": "id", "datatype": "INT64", "shape": [-1]}],
                       "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]},
                                   {"name": "z", "datatype": "INT64", "shape": [-1, self.z_width]}]})

    def do_POST(self):
        body = self.body()
        with self.server.lock:
            type(self).calls += 1
            number = type(self).calls
        wait.until(lambda: all(p.calls for p in self.peers), "a call to each host")
        length = self.headers["Inference-Header-Content-Length"]
        inputs = tensors(body, int(length) if length else None)
        keys = set(inputs["id"].ravel().tolist())
        with LOCK:
            type(self).again += not keys.isdisjoint(self.rows_sent)
            self.rows_sent.update(keys)
        self.answer(number, inputs["x"], inputs["id"])

    def answer(self, number, x, key):
        if len(key) > self.most_rows:
            self.say(400, {"error": "too many rows"})
        else:
            self.good(x, key)

    def good(self, x, key, y=None):
        y = x.sum(axis=1, dtype=numpy.float32) if y is None else y
        z = numpy.stack([key * 10, key * 10 + 1], axis=1)
        head = json.dumps({"model_name": "m", "model_version": self.version, "outputs": [
            {"name": "y", "datatype": "FP32", "shape": list(y.shape), "parameters": {"binary_data_size": y.nbytes}},
            {"name": "z", "datatype": "INT64", "shape": list(z.shape), "parameters": {"binary_data_size": z.nbytes}}]}).encode()
        self.send_response(200)
        self.send_header("Inference-Header-Content-Length", str(len(head)))
        self.send_header("Content-Length", str(len(head) + y.nbytes + z.nbytes))
        self.end_headers()
        self.wfile.write(head + y.tobytes() + z.tobytes())


class Poisoned(Host):
    """Refuses calls with the row 777."""
    def answer(self, number, x, key):
        self.say(400, {"error": "row of ill will"}) if 777 in key else self.good(x, key)


class Broken(Host):
    """Fails calls with the row 777."""
    def answer(self, number, x, key):
        self.say(500, {"error": "crashed"}) if 777 in key else self.good(x, key)


class Throttles(Host):
    def answer(self, number, x, key):
        self.say(503, {"error": "busy"}) if number % 2 else self.good(x, key)


class Errs(Host):
    """One of three calls."""
    def answer(self, number, x, key):
        self.say(500, {"error": "now and then"}) if number % 3 == 0 else self.good(x, key)


class Nan(Host):
    def answer(self, number, x, key):
        self.good(x, key, y=numpy.full(len(key), numpy.nan, numpy.float32))


class Short(Host):
    """One answer too few."""
    def answer(self, number, x, key):
        self.good(x[:-1], key[:-1])


class Other(Host):
    version = "2"


@contextlib.contextmanager
def hosts(*handlers, together=False):
    """Addresses; each handler is a class of its own, which counts its calls. `together`: each of them takes part, however
    short the job is."""
    with contextlib.ExitStack() as stack:
        rows_sent = set()
        made = [type(h.__name__, (h,), {"calls": 0, "again": 0, "rows_sent": rows_sent}) for h in handlers]
        for h in made if together else ():
            h.peers = made
        running = [stack.enter_context(other.serving(h)) for h in made]
        yield [f"127.0.0.1:{s.server_address[1]}" for s in running], made


def table(folder, rows, files=2, bad=()):
    """Rows 0 … rows - 1; `bad` is {row: x}."""
    folder.mkdir(exist_ok=True)
    rng = numpy.random.default_rng(5)
    x = rng.integers(-100, 100, (rows, WIDTH)).astype(numpy.float32)
    lists = x.tolist()
    for row, value in dict(bad).items():
        lists[row] = value
    key = numpy.arange(rows)
    for i, part in enumerate(numpy.array_split(key, files)):
        t = pa.table({"id": pa.array(part), "x": pa.array([lists[k] for k in part], pa.list_(pa.float32())),
                      "name": pa.array([f"row {k}" for k in part])})
        pq.write_table(t, folder / f"{i}.parquet", row_group_size=1000)
    return x


def command(folder, addresses, *args, verb="run"):
    return [str(BIN), "batch", verb, "-i", str(folder / "in"), "-m", "m", "--hosts", ",".join(addresses), "-o",
            str(folder / "out"), "--keep", "id,name", "--batch-rows", "100", *map(str, args)]


def environment():
    env = clean_environment()
    env["MILLRACE_DUCKDB"] = os.environ.get("MILLRACE_DUCKDB", str(BUILD / "lib" / "millrace" / "libduckdb.so"))
    env["TSAN_OPTIONS"] += ":ignore_noninstrumented_modules=1"
    return env


def run(folder, addresses, *args, code=0, verb="run"):
    done = subprocess.run(command(folder, addresses, *args, verb=verb), capture_output=True, text=True, env=environment(),
                          timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-9000:]}"
    return done


def asked(folder):
    """The status of the job that runs there."""
    return json.loads(subprocess.run([str(BIN), "batch", "status", "--json", str(folder / "out")], check=True,
                                     capture_output=True, env=environment()).stdout)


def waits_for_memory(status, in_flight=0):
    """Nothing moves until memory is freed, or one of that many calls is answered."""
    return status.get("reader") == "waits for memory" and sum(h["in_flight"] for h in status["hosts"]) == in_flight


def results(folder):
    files = sorted(str(f) for f in (folder / "out/parts").iterdir())
    return pa.dataset.dataset(files).to_table() if files else None


def dead(folder):
    letters = [json.loads(line) for f in (folder / "out/dlq").iterdir() for line in f.read_text().splitlines()]
    return letters


def check(folder, x, gone=()):
    """All rows but the missing ones, once each, each with its own answer."""
    t = results(folder)
    key = t["id"].to_numpy()
    want = numpy.setdiff1d(numpy.arange(len(x)), gone)
    assert collections.Counter(key.tolist()) == collections.Counter(want.tolist())
    assert (t["y"].to_numpy() == x[key].sum(axis=1, dtype=numpy.float32)).all()
    z = t["z"].combine_chunks().flatten().to_numpy().reshape(-1, 2)
    assert (z == numpy.stack([key * 10, key * 10 + 1], axis=1)).all()
    assert t["name"].to_pylist() == [f"row {k}" for k in key]


def names(folder):
    return sorted(f.name for f in (folder / "out/parts").iterdir())


def keys(folder, files):
    """Of the rows in these files, one file after the other."""
    return [k for f in files for k in pq.read_table(folder / "out/parts" / f)["id"].to_pylist()]


def committed(folder):
    """{file: rows} by their names, as manifest.log has them."""
    log = folder / "out/manifest.log"
    files = {}
    for line in log.read_bytes().splitlines() if log.exists() else []:
        try:
            record = json.loads(line.rpartition(b" ")[0])
        except ValueError:
            continue  # the last one, torn by a kill
        files |= {i["part"]: i["rows"] for i in record.get("add", []) if "part" in i}
    return dict(sorted(files.items()))

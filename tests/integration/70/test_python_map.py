"""python/millrace.py: iterators through `millrace map`, and what they do when something fails."""
import itertools
import pathlib
import pickle
import subprocess
import sys

import numpy
import pyarrow as pa
import pytest

from lib import wait
from lib.batch import WIDTH, Host, Poisoned, environment, hosts
from lib.repo import TOP
from lib.server import BIN

sys.path.insert(0, str(TOP / "python"))
import millrace  # noqa: E402

X = numpy.random.default_rng(5).integers(-100, 100, (5000, WIDTH)).astype(numpy.float32)


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    """All filters that were started; none may be left."""
    started = []

    class Popen(subprocess.Popen):
        def __init__(self, *args, **more):
            super().__init__(*args, **more, env=environment())
            started.append(self)
    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setenv("MILLRACE", str(BIN))
    yield started
    assert all(p.returncode is not None for p in started)


def batches(count=len(X), rows=300):
    for k in range(0, count, rows):
        keys = range(k, min(k + rows, count))
        yield pa.record_batch({"id": pa.array(keys, pa.int64()), "x": pa.array(X[k:keys[-1] + 1].tolist(), pa.list_(pa.float32()))})


def test_arrow():
    with hosts(Host) as (addresses, _):
        predict = millrace.map_arrow("m", hosts=addresses, keep=["id"], batch_rows=100)
        found = pa.Table.from_batches(predict(batches()))
        as_they_are = next(millrace.map_arrow("m", addresses, "id", spark_types=False)(batches(10)))
    assert found["id"].to_pylist() == list(range(len(X)))
    assert (found["y"].to_numpy() == X.sum(axis=1)).all()
    assert found.schema.field("z").type == pa.list_(pa.int64())
    assert found["z"].to_pylist() == [[10 * k, 10 * k + 1] for k in range(len(X))]
    assert as_they_are.schema.field("z").type == pa.list_(pa.int64(), 2)


def test_spark_types():
    for kind, becomes in [(pa.uint8(), pa.int16()), (pa.uint64(), pa.decimal128(20, 0)), (pa.list_(pa.list_(pa.float16(), 2), 3), pa.list_(pa.list_(pa.float32()))),
                          (pa.string(), pa.string()), (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"))]:
        assert millrace.spark_type(kind) == becomes


def test_rows():
    with hosts(Host) as (addresses, _):
        predict = millrace.map_rows("m", addresses, "id", map={"x": "y"}, outputs="y", unordered=False)
        found = list(predict({"id": k, "y": X[k].tolist()} for k in range(1000)))
    assert found == [{"id": k, "y": float(X[k].sum())} for k in range(1000)]


def test_options():
    assert millrace.command_of("m", ["a", "b"], "id", {"max_retries": 0, "share": 0.0, "unordered": True, "rows": None, "dead": False,
                                                       "columns": [], "param": {"max_tokens": 8, "top": [0.5], "stop": '"x"'}})[2:] == [
        "--model", "m", "--hosts", "a,b", "--keep", "id", "--max-retries", "0", "--share", "0.0", "--unordered",
        "--param", "max_tokens=8", "--param", "top=[0.5]", "--param", 'stop="x"']


def test_nothing(processes):
    assert list(millrace.map_arrow("m", "127.0.0.1:1")([])) == [] and not processes
    assert list(millrace.map_rows("m", "127.0.0.1:1")([])) == []


def test_results_come_while_the_input_goes_on():
    with hosts(Host) as (addresses, _):
        asked = []

        def endless():
            for k in range(10**9):
                asked.append(k)
                yield {"id": k, "x": X[k % len(X)].tolist()}
        results = millrace.map_rows("m", addresses, "id")(endless())
        assert [next(results)["id"] for _ in range(100)] == list(range(100))
        results.close()
        assert len(asked) < 10**6


@pytest.mark.parametrize("of_rows", [True, False])
def test_a_row_that_is_refused(of_rows):
    with hosts(Poisoned) as (addresses, _):
        seen = []
        with pytest.raises(millrace.MillraceError, match=r"status 1:\n(.*\n)*.*row 777 \(rejected\): .*ill will") as told:
            if of_rows:
                seen.extend(r["id"] for r in millrace.map_rows("m", addresses, "id")({"id": k, "x": X[k].tolist()} for k in range(1000)))
            else:
                for b in millrace.map_arrow("m", addresses, "id")(batches()):
                    seen += b["id"].to_pylist()
    assert seen == list(range(777))
    again = pickle.loads(pickle.dumps(told.value))
    assert (again.status, again.lines, str(again)) == (1, told.value.lines, str(told.value))


@pytest.mark.parametrize("kind", [KeyError, BrokenPipeError])
@pytest.mark.parametrize("of_rows", [True, False])
def test_input_that_fails(of_rows, kind):
    """It is no end of the input: what has no result is not passed over. A broken pipe may be one of the input's own."""
    def failing(items):
        for i, item in enumerate(items):
            if i == 3:
                raise kind("of the input")
            yield item
    with hosts(Host) as (addresses, _), pytest.raises(kind, match="of the input"):
        if of_rows:
            list(millrace.map_rows("m", addresses)(failing({"id": k, "x": X[k].tolist()} for k in range(10))))
        else:
            list(millrace.map_arrow("m", addresses)(failing(batches())))


def test_a_filter_that_is_killed(processes):
    with hosts(Host) as (addresses, _):
        results = millrace.map_arrow("m", addresses, "id")(b for _ in itertools.count() for b in batches())
        next(results)
        processes[0].kill()
        with pytest.raises(millrace.MillraceError, match="status -9"):
            list(results)


def test_an_iterator_that_is_given_up(processes):
    """Its input has no end, so the filter is still there."""
    with hosts(Host) as (addresses, _):
        results = millrace.map_arrow("m", addresses, "id")(itertools.cycle(batches()))
        next(results)
        results.close()
        assert processes[0].returncode == -9
        del processes[:]
        next(millrace.map_arrow("m", addresses, "id")(itertools.cycle(batches())))  # gone with its last reference
        wait.until(lambda: processes[0].returncode is not None)


def test_no_program(monkeypatch):
    monkeypatch.setenv("MILLRACE", "/none/millrace")
    with pytest.raises(FileNotFoundError, match="/none/millrace"):
        list(millrace.map_arrow("m", "127.0.0.1:1")(batches()))


def test_a_wrong_option():
    with pytest.raises(millrace.MillraceError, match="status 2") as told:
        list(millrace.map_arrow("m", "127.0.0.1:1", no_such=1)(batches()))
    assert any("no-such" in line for line in told.value.lines)


def test_the_whole_process_is_killed():
    """As an engine kills a task: its filter, which waits for a host, does not stay."""
    script = ("import itertools, sys, millrace; next(millrace.map_rows('m', '127.0.0.1:1')"
              "({'id': k, 'x': [0] * 4} for k in itertools.count()))")
    process = subprocess.Popen([sys.executable, "-c", script], cwd=TOP / "python", stderr=subprocess.DEVNULL)

    def children():
        return [int(pid) for found in pathlib.Path(f"/proc/{process.pid}/task").glob("*/children") for pid in found.read_text().split()]
    wait.until(children)
    filter_pid, = children()
    process.kill()
    process.wait()
    wait.until(lambda: not pathlib.Path(f"/proc/{filter_pid}/cmdline").exists() or
               b"millrace" not in pathlib.Path(f"/proc/{filter_pid}/cmdline").read_bytes())

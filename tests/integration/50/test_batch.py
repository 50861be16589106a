"""`millrace batch run`: tables of Parquet through hosts that behave and hosts that do not."""
import csv
import io
import gzip
import json
import os
import random
import signal
import subprocess
import threading
import time

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import wait
from lib.server import BIN
from lib.batch import (WIDTH, Broken, Errs, Host, Nan, Other, Poisoned, Short, Throttles, check, command, dead, environment,
                       hosts, pytestmark, results, run, table)


def test_all_is_well(tmp_path):
    x = table(tmp_path / "in", 5000)
    with hosts(Host, Host, together=True) as (addresses, made):
        run(tmp_path, addresses)
        calls = [h.calls for h in made]
    check(tmp_path, x)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert 50 <= sum(calls) <= 55 + report["this_start"]["hedged_calls"] and min(calls) > 0  # some compare the hosts
    assert (report["rows"], report["results"], report["dead_letters"]) == (5000, 5000, 0)
    assert (tmp_path / "out/_SUCCESS").exists()


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_mask(tmp_path, form):
    """An input that marks the nulls of a column of any type; such a null is not a fault."""
    flags = [None if k % 3 == 0 else f"row {k}" for k in range(1000)]
    (tmp_path / "in").mkdir()
    t = pa.table({"name": flags, "id": range(1000), "x": [[float(k % 7)] * WIDTH for k in range(1000)]})
    path = tmp_path / f"in/a.{form}"
    if form == "parquet":
        pa.parquet.write_table(t, path)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in t.to_pylist()))
    else:
        path.write_text("name,id,x\n" + "".join(f'{r["name"] or ""},{r["id"]},"{r["x"]}"\n' for r in t.to_pylist()))
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, "--map", "id=mask(name)")
    found = results(tmp_path).to_pylist()
    assert len(found) == 1000 and not dead(tmp_path)
    assert {r["id"]: (r["name"], r["z"][0]) for r in found} == {k: (v, 0 if v is None else 10) for k, v in enumerate(flags)}


@pytest.mark.parametrize("form,compression", [("jsonl", "none"), ("jsonl", "gzip"), ("csv", "none"), ("csv", "zstd")])
def test_text_in_and_out(tmp_path, form, compression):
    """Rows that no cell can be read of are dead letters by their numbers."""
    x = numpy.random.default_rng(5).integers(-100, 100, (3000, WIDTH)).astype(numpy.float32)
    lines = [json.dumps({"id": k, "x": v, "name": f"row {k}"}) if form == "jsonl" else f'{k},"{v}",row {k}'
             for k, v in enumerate(x.tolist())]
    lines[7], lines[2000] = ('{"id": 7', '{"id": 2000, "x": [1, "2"]}') if form == "jsonl" else ("7", "x,,,")
    end = {"none": "", "gzip": ".gz", "zstd": ".zst"}[compression]
    codec = None if compression == "none" else compression
    (tmp_path / "in").mkdir()
    for i, part in enumerate((lines[:1500], lines[1500:])):
        text = "\n".join(([] if form == "jsonl" else ["id,x,name"]) + part)
        with pa.output_stream(str(tmp_path / f"in/{i}.{form}{end}"), compression=codec) as f:
            f.write(text.encode())
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, "--output-format", form, "--compression", compression)
    assert sorted((os.path.basename(d["file"]), d["row"]) for d in dead(tmp_path)) == \
        [(f"0.{form}{end}", 7), (f"1.{form}{end}", 500)]
    found = {}
    for path in (tmp_path / "out/parts").iterdir():
        assert path.name.endswith(f".{form}{end}")
        with pa.input_stream(str(path), compression=codec) as f:
            text = f.read().decode()
        if form == "jsonl":
            rows = [json.loads(line) for line in text.splitlines()]
        else:
            rows = [r | {"id": int(r["id"]), "y": float(r["y"]), "z": json.loads(r["z"])}
                    for r in csv.DictReader(io.StringIO(text, newline=""))]
        assert not found.keys() & {r["id"] for r in rows}
        found |= {r["id"]: r for r in rows}
    expected = {k: {"id": k, "name": f"row {k}", "y": float(v.sum()), "z": [k * 10, k * 10 + 1]}
                for k, v in enumerate(x) if k not in (7, 2000)}
    assert found == expected


def test_finished_is_finished(tmp_path):
    x = table(tmp_path / "in", 1000)
    with hosts(Host) as (addresses, made):
        run(tmp_path, addresses)
        calls = made[0].calls
        run(tmp_path, addresses)
        assert made[0].calls == calls
    check(tmp_path, x)


def test_job_within_its_input(tmp_path):
    """Its own folder is no input of the next start."""
    x = table(tmp_path / "in", 1000)
    with hosts(Host) as (addresses, made):
        run(tmp_path, addresses, "-o", tmp_path / "in/job")
        calls = made[0].calls
        run(tmp_path, addresses, "-o", tmp_path / "in/job")
        assert made[0].calls == calls
    (tmp_path / "in/job").rename(tmp_path / "out")
    check(tmp_path, x)


@pytest.mark.parametrize("handler,kind", [(Poisoned, "rejected"), (Broken, "failed")])
def test_one_poisoned_row(tmp_path, handler, kind):
    x = table(tmp_path / "in", 10000)
    with hosts(handler) as (addresses, made):
        run(tmp_path, addresses, "--batch-rows", 256)
    check(tmp_path, x, gone=[777])
    letter, = dead(tmp_path)
    assert (letter["row"], letter["kind"]) == (777, kind)
    assert letter["file"].endswith("0.parquet") and letter["host"] == addresses[0]
    assert "row of ill will" in letter["cause"] or "crashed" in letter["cause"]
    # Two halves of 256, 128, ... 2 rows, the last row as often as --max-attempts, and once as JSON. A call that fails is sent
    # once more as a whole while too few others succeeded beside it, which a busy machine decides: of each size, too, as
    # often as --max-attempts.
    assert made[0].again <= 16 * (1 if kind == "rejected" else 5) + 5 + 1


def test_rows_that_cannot_be_sent(tmp_path):
    bad = {5: None, 10: [1, 2, 3], 11: [1, 2, 3, 4, 5], 900: [1, None, 3, 4]}
    x = table(tmp_path / "in", 2000, bad=bad)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
    check(tmp_path, x, gone=sorted(bad))
    causes = {d["row"]: d["cause"] for d in dead(tmp_path)}
    assert sorted(causes) == sorted(bad)
    assert all("column 'x'" in c for c in causes.values()) and "null" in causes[5] and "3" in causes[10]


@pytest.mark.few(2)
@pytest.mark.parametrize("handler", [Errs, Throttles, Nan, Short, Other])
def test_one_host_of_two_is_bad(tmp_path, handler):
    x = table(tmp_path / "in", 20000)
    with hosts(Host, handler) as (addresses, _):
        run(tmp_path, addresses)
    check(tmp_path, x)
    assert dead(tmp_path) == []


@pytest.mark.more
def test_failures_do_not_pile_up(tmp_path):
    """Half as many calls again as there are rows: what fails while others succeed goes again at once, however much it is.
    With ten a second it would take minutes."""
    x = table(tmp_path / "in", 2000)
    with hosts(Errs, Errs) as (addresses, made):
        done = subprocess.run(command(tmp_path, addresses, "--batch-rows", 1, "--max-attempts", 50), capture_output=True, text=True,
                              env=environment(), timeout=wait.PATIENCE)
        assert done.returncode == 0, done.stderr
        assert sum(h.calls for h in made) > 2000 * 1.4
    check(tmp_path, x)


def test_one_host_is_not_there(tmp_path):
    x = table(tmp_path / "in", 5000)
    with hosts(Host) as (addresses, _):
        run(tmp_path, ["127.0.0.1:1", *addresses])
    check(tmp_path, x)


def test_no_host_is_there(tmp_path):
    table(tmp_path / "in", 10)
    done = run(tmp_path, ["127.0.0.1:1"], "--max-outage", 1, code=1)
    assert "no host has worked" in done.stderr and "127.0.0.1:1" in done.stderr
    assert not (tmp_path / "out/_SUCCESS").exists()


def test_hosts_that_take_few_rows(tmp_path):
    """The limit is found once, not for each call."""
    class Small(Host):
        most_rows = 20
    x = table(tmp_path / "in", 10000)
    with hosts(Small) as (addresses, made):
        run(tmp_path, addresses, "--batch-rows", 160)
        assert made[0].calls < 10000 / 20 * 1.5
    check(tmp_path, x)


class TooLarge(Host):
    """Has no memory for calls of more than 20 rows, and fails as if it was down."""
    def answer(self, number, x, key):
        self.say(500, {"error": "out of memory"}) if len(key) > 20 else self.good(x, key)


class First(Host):
    """Of a model that is for single rows: what it answers to others has the first one's result."""
    def answer(self, number, x, key):
        self.good(x[:1], key[:1])


@pytest.mark.more
@pytest.mark.parametrize("kinds,rows", [([TooLarge], 10000), ([TooLarge, TooLarge], 10000), ([First], 600)], ids=["one", "two", "single"])
def test_hosts_that_fail_with_many_rows(tmp_path, kinds, rows):
    """It is not an outage: rows succeed in smaller calls, and hardly any call fails afterwards. These have half the rows of
    a call that failed, so 10 at least."""
    x = table(tmp_path / "in", rows)
    with hosts(*kinds) as (addresses, made):
        done = run(tmp_path, addresses, "--batch-rows", 160)
        assert "batch.small_calls" in done.stderr
        assert sum(h.calls for h in made) < rows / (1 if First in kinds else 10) + 200
    check(tmp_path, x)


def test_calls_are_small_for_a_short_time_only(tmp_path):
    """An outage is over: calls are as large as before."""
    class Down(Host):
        sizes = []

        def answer(self, number, x, key):
            self.sizes.append(len(key))
            self.say(500, {"error": "down"}) if number <= 12 else self.good(x, key)
    x = table(tmp_path / "in", 20000)
    with hosts(Down) as (addresses, made):
        run(tmp_path, addresses, "--batch-rows", 160)
        assert 1 in Down.sizes[:13] and Down.sizes[-20:].count(160) > 10
        assert made[0].calls < 12 + 20000 / 160 + 100
    check(tmp_path, x)


def test_a_larger_call_that_is_refused(tmp_path):
    """For a row in it, and not for its size: others try again, and calls become as large as before."""
    class Recovers(Host):
        sizes, bad = [], None

        def answer(self, number, x, key):
            with self.server.lock:
                self.sizes.append(len(key))
                if number > 100 and len(key) > 20 and self.bad is None:
                    type(self).bad = key[0]
            if self.bad in key:
                self.say(400, {"error": "not this row"})
            elif number <= 100 and len(key) > 20:
                self.say(500, {"error": "out of memory"})
            else:
                self.good(x, key)
    x = table(tmp_path / "in", 20000)
    with hosts(Recovers) as (addresses, made):
        run(tmp_path, addresses, "--batch-rows", 160)
        (letter,) = dead(tmp_path)
        assert letter["values"]["id"] == made[0].bad and 160 in made[0].sizes[100:]
    check(tmp_path, x, gone=[letter["values"]["id"]])


class Away(Host):
    """Works until the last row arrives, then fails for some calls, whatever they contain."""
    left = 7

    def answer(self, number, x, key):
        if type(self).left and (100 in key or type(self).left < 7):
            type(self).left -= 1
            self.say(500, {"error": "away"})
        else:
            self.good(x, key)


def test_outage_at_the_end(tmp_path):
    """Nothing else is left that could succeed, and still it is not the row's fault."""
    x = table(tmp_path / "in", 101, files=1)
    with hosts(Away) as (addresses, made):
        run(tmp_path, addresses, "--max-attempts", 1, "--max-in-flight-per-host", 1)
        assert made[0].left == 0
    check(tmp_path, x)


def test_poisoned_row_at_the_end(tmp_path):
    """A row that has succeeded before serves as the probe of the host."""
    x = table(tmp_path / "in", 778, files=1)
    with hosts(Broken) as (addresses, made):
        run(tmp_path, addresses, "--max-in-flight-per-host", 1)
        assert made[0].calls < 50
    check(tmp_path, x, gone=[777])
    (letter,) = dead(tmp_path)
    assert letter["kind"] == "failed" and "crashed" in letter["cause"]


def test_poisoned_row_among_the_first(tmp_path):
    """No other row is read while the first ones show how large answers are: the probe serves here, too."""
    class Open(Host):
        z_width = -1

        def answer(self, number, x, key):
            self.say(500, {"error": "crashed"}) if 7 in key else self.good(x, key)
    x = table(tmp_path / "in", 100, files=1)
    with hosts(Open) as (addresses, _):
        run(tmp_path, addresses)
    check(tmp_path, x, gone=[7])


def status(folder):
    return subprocess.run([str(BIN), "batch", "status", str(folder / "out")], capture_output=True, text=True, check=True,
                          env=environment()).stdout


@pytest.mark.parametrize("extent_rows", [10, 1000])
def test_too_many_dead_letters(tmp_path, extent_rows):
    """With small extents there are always some on their way when it ends."""
    table(tmp_path / "in", 2000, bad={k: None for k in range(0, 2000, 7)})
    with hosts(Host) as (addresses, _):
        done = run(tmp_path, addresses, "--max-dead", 100, "--extent-rows", extent_rows, code=3)
        assert " rows, more than --max-dead 100" in done.stderr
        assert "stopped: " in status(tmp_path) and " rows, more than --max-dead 100" in status(tmp_path)
        done = run(tmp_path, addresses, "--max-dead", 1000, "--extent-rows", extent_rows)
        assert "stopped" not in status(tmp_path)


def test_too_many_dead_letters_of_an_earlier_start(tmp_path):
    """All rows have their outcome, and still the job is not finished."""
    x = table(tmp_path / "in", 100, files=1, bad={k: None for k in range(10)})
    with hosts(Host) as (addresses, made):
        for _ in range(2):
            done = run(tmp_path, addresses, "--max-dead", 5, "--extent-rows", 100, code=3)
            assert "10 dead letters of 100 rows, more than --max-dead 5" in done.stderr
            assert not (tmp_path / "out/_SUCCESS").exists()
        calls = made[0].calls
        run(tmp_path, addresses, "--max-dead", 10)
        assert made[0].calls == calls
    check(tmp_path, x, gone=range(10))


def test_killed_and_run_again(tmp_path):
    """Each row is in the results once, whenever the job is killed."""
    budget, starved = threading.Semaphore(0), threading.Event()

    class Rationed(Host):
        def answer(self, number, x, key):
            if not budget.acquire(blocking=False):
                starved.set()
                budget.acquire(timeout=wait.PATIENCE)
            self.good(x, key)
    x = table(tmp_path / "in", 30000, files=3)
    rng = random.Random(7)
    kills = 0
    with hosts(Rationed, Rationed) as (addresses, _):
        args = command(tmp_path, addresses, "--part-bytes", "20KiB", "--extent-rows", 500)
        for k in range(100):
            starved.clear()
            budget.release(1 + int(rng.uniform(0, 30) * 1.1 ** k))  # more and more answers, until they are enough
            with open(tmp_path / "err", "w") as err:
                process = subprocess.Popen(args, stdout=err, stderr=err, env=environment())
            wait.until(lambda: process.poll() is not None or starved.is_set(), "the job to end, or to want more answers")
            code = process.poll()
            if code is not None:
                break
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            pytest.fail("it does not come forward")
        budget.release(10000)  # for calls of those that were killed
    assert code == 0, (tmp_path / "err").read_text()
    assert kills > 0
    check(tmp_path, x)
    assert json.loads((tmp_path / "out/report.json").read_text())["starts"] > 1


def test_stopped_by_a_signal(tmp_path):
    """What is done is committed before it ends."""
    go = threading.Event()

    class Slow(Host):
        def answer(self, number, x, key):
            if number > 50:
                go.wait(wait.PATIENCE)
            self.good(x, key)
    x = table(tmp_path / "in", 20000)
    with hosts(Slow) as (addresses, made):
        process = subprocess.Popen(command(tmp_path, addresses, "--extent-rows", 500, "--max-in-flight-per-host", 4), stderr=subprocess.PIPE,
                                   text=True, env=environment())
        wait.until(lambda: made[0].calls > 50, "calls")
        process.terminate()
        _, err = process.communicate(timeout=wait.PATIENCE)
        go.set()
        assert process.returncode == 1 and "stopped" in err
        before = results(tmp_path)
        assert before is not None and 0 < len(before) < 20000
        run(tmp_path, addresses, "--extent-rows", 500)
    check(tmp_path, x)


def plan(folder, addresses, *args, **kw):
    done = run(folder, addresses, "--plan", "--json", *args, **kw)
    assert not (folder / "out").exists()
    return json.loads(done.stdout)


def lines(folder, rows, packed=False):
    """Rows as JSON lines of different lengths."""
    folder.mkdir()
    text = "".join(json.dumps({"id": k, "x": [k, 1, 2, 3], "name": "row " + "r" * (k % 7)}) + "\n" for k in range(rows))
    with (gzip.open if packed else open)(folder / ("a.jsonl" + (".gz" if packed else "")), "wt") as f:
        f.write(text)


def test_plan_counts_rows(tmp_path):
    """All of the table is probed, so that the results' size can be compared with those of the job."""
    table(tmp_path / "in", 5000, bad={7: None})
    with hosts(Host, Host) as (addresses, made):
        told = plan(tmp_path, addresses)
        assert sum(h.calls for h in made) >= 50
        run(tmp_path, addresses)
    size = sum(f.stat().st_size for f in (tmp_path / "out/parts").iterdir())
    assert (told["files"], told["rows"], told["rows_are"]) == (2, 5000, "counted")
    assert told["bytes"] == sum(f.stat().st_size for f in (tmp_path / "in").iterdir())
    assert (told["probe"]["rows"], told["probe"]["dead_letters"]) == (5000, 1)
    assert (told["call_rows"], told["calls"]) == (100, 50)
    assert told["result_bytes"] == pytest.approx(size, rel=0.1)
    assert told["seconds"] == pytest.approx(5000 / told["rows_per_s"], rel=0.01, abs=0.001)
    assert 0 < told["memory_bytes"] <= 5000 * told["row_bytes"] <= 512 << 20


def test_plan_sends_only_the_first_rows_are_sent(tmp_path):
    table(tmp_path / "in", 60000)
    with hosts(Host) as (addresses, made):
        told = plan(tmp_path, addresses)
        assert made[0].calls <= 210
    assert told["rows"] == 60000 and told["probe"]["rows"] == 20000 and told["calls"] == 600


def test_plan_estimates_text(tmp_path):
    lines(tmp_path / "in", 50000)
    with hosts(Host) as (addresses, _):
        told = plan(tmp_path, addresses)
    assert told["rows_are"] == "estimated" and told["rows"] == pytest.approx(50000, rel=0.05)


def test_plan_of_a_small_text(tmp_path):
    lines(tmp_path / "in", 1000)
    with hosts(Host) as (addresses, _):
        told = plan(tmp_path, addresses)
    assert told["rows_are"] == "counted" and told["rows"] == 1000


def test_plan_says_what_is_not_known(tmp_path):
    lines(tmp_path / "in", 30000, packed=True)
    with hosts(Host) as (addresses, _):
        told = plan(tmp_path, addresses)
        assert "rows not known" in run(tmp_path, addresses, "--plan").stdout
    assert told["rows_are"] == "unknown"
    assert [told[n] for n in ("rows", "calls", "result_bytes", "seconds")] == [None] * 4
    assert told["rows_per_s"] > 0 and told["row_bytes"] > 0


def test_plan_as_text(tmp_path):
    table(tmp_path / "in", 3000)
    with hosts(Host) as (addresses, _):
        told = run(tmp_path, [*addresses, "127.0.0.1:1"], "--plan").stdout
    assert not (tmp_path / "out").exists()
    assert "2 files" in told and "3000 rows\n" in told and "1 of 2 hosts" in told
    assert [line.split()[0] for line in told.splitlines()] == ["input", "probe", "calls", "results", "memory", "time"]


def test_plan_with_hosts_that_never_answer_rows(tmp_path):
    over = threading.Event()

    class Hangs(Host):
        def answer(self, number, x, key):
            over.wait(wait.PATIENCE)
    table(tmp_path / "in", 300)
    with hosts(Hangs) as (addresses, _):
        told = plan(tmp_path, addresses)
        over.set()
    assert (told["rows"], told["probe"]["rows"]) == (300, 0)
    assert [told[n] for n in ("rows_per_s", "result_bytes", "row_bytes", "seconds")] == [None] * 4


def test_plan_leaves_a_job_as_it_is(tmp_path):
    table(tmp_path / "in", 1000)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
        before = {f: f.stat().st_mtime_ns for f in (tmp_path / "out").rglob("*")}
        run(tmp_path, addresses, "--plan")
    assert before == {f: f.stat().st_mtime_ns for f in (tmp_path / "out").rglob("*")}


def test_plan_without_hosts(tmp_path):
    table(tmp_path / "in", 10)
    done = run(tmp_path, ["127.0.0.1:1"], "--plan", "--max-outage", 1, code=1)
    assert "no host has worked" in done.stderr and not (tmp_path / "out").exists()


def test_another_job_in_the_folder(tmp_path):
    table(tmp_path / "in", 100)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
        done = run(tmp_path, addresses, "--outputs", "y", code=1)
    assert "results" in done.stderr


def test_query(tmp_path):
    """Rows that SQL gives; the job of one query is not that of another."""
    x = table(tmp_path / "in", 3000)
    with hosts(Host) as (addresses, _):
        args = command(tmp_path, addresses)
        at = args.index("-i")
        sql = f"select * from '{tmp_path}/in/*.parquet' where id % 3 <> 1 order by id"
        args[at:at + 2] = "--query", sql
        for _ in range(2):
            done = subprocess.run(args, capture_output=True, text=True, env=environment(), timeout=wait.PATIENCE)
            assert done.returncode == 0, done.stderr
        check(tmp_path, x, gone=range(1, 3000, 3))
        args[at + 1] = sql.replace("% 3", "% 5")
        done = subprocess.run(args, capture_output=True, text=True, env=environment(), timeout=wait.PATIENCE)
        assert done.returncode == 1 and "query" in done.stderr
        done = subprocess.run([*args, "-i", str(tmp_path / "in")], capture_output=True, text=True, env=environment(),
                              timeout=wait.PATIENCE)
        assert done.returncode == 2 and "a query or files" in done.stderr


def test_input_that_changed(tmp_path):
    table(tmp_path / "in", 100)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
        table(tmp_path / "in", 120)
        done = run(tmp_path, addresses, code=1)
        assert "input" in done.stderr


@pytest.mark.parametrize("args,text", [
    (["--map", "none=x"], "the model has no input 'none'"),
    (["--map", "x=name"], "column 'name' (STRING) cannot become input 'x' (FP32)"),
    (["--map", "x=nothing"], "the table has no column 'nothing'"),
    (["--keep", "nothing"], "column 'nothing'"),
    (["--outputs", "w"], "the model has no output 'w'"),
])
def test_what_cannot_be(tmp_path, args, text):
    table(tmp_path / "in", 10)
    with hosts(Host) as (addresses, made):
        done = run(tmp_path, addresses, *args, code=1)
        assert made[0].calls == 0
    assert text in done.stderr


class PerCall(Host):
    """Takes its time for a call, however many rows it has, one at a time."""
    def answer(self, number, x, key):
        with self.server.lock:
            self.sizes.append(len(key))
            threading.Event().wait(0.004)
        super().answer(number, x, key)


def default_command(folder, addresses, *args):
    words = command(folder, addresses, *args)
    at = words.index("--batch-rows")
    return words[:at] + words[at + 2:]


@pytest.mark.few
@pytest.mark.parametrize("most_rows,args", [(10**9, ()), (300, ()), (10**9, ("--batch-rows", "256"))], ids=["any", "300", "as told"])
def test_calls_grow_by_themselves(tmp_path, most_rows, args):
    """As far as hosts allow it, unless an option sets the number of rows. unit.batch.test_grow checks how far that pays: here
    it depends on the machine."""
    x = table(tmp_path / "in", 200000)
    kind = type("Grows", (PerCall,), {"sizes": [], "most_rows": most_rows})
    with hosts(kind) as (addresses, _):
        done = subprocess.run(default_command(tmp_path, addresses, *args), capture_output=True, text=True, env=environment(),
                              timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    t = results(tmp_path)
    assert sorted(t["id"].to_pylist()) == list(range(len(x)))
    if most_rows == 300 or args:
        assert sum(n > 256 for n in kind.sizes) <= (0 if args else 8)
    else:
        assert max(kind.sizes) >= 512 and kind.sizes[0] <= 256


def test_kept_numbers_of_inputs_are_as_found(tmp_path):
    (tmp_path / "in").mkdir()
    x = [[0.1, 2**53 + 2.0, 1, 2]]
    pq.write_table(pa.table({"id": [0], "x": x, "name": ["row 0"]}), tmp_path / "in/0.parquet")
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, "--keep", "x")
    assert results(tmp_path)["x"].to_pylist() == x

"""`millrace map`: rows through hosts as a filter. What an engine relies on: each row in its order, an exit status that is
0 only when none is missing, no answer that waits for more input, memory that is bounded."""
import contextlib
import csv
import io
import json
import os
import select
import subprocess
import sys
import threading
import time

import numpy
import pytest

from lib import repo, wait
from lib.batch import WIDTH, Broken, Errs, Host, Nan, Poisoned, Throttles, environment, hosts
from lib.server import BIN

X = numpy.random.default_rng(5).integers(-100, 100, (100000, WIDTH)).astype(numpy.float32)


class Slow(Host):
    """One of three calls, so that answers come in another order."""
    def answer(self, number, x, key):
        time.sleep(0.05 if number % 3 == 0 else 0)
        self.good(x, key)


def row(key, **more):
    return json.dumps({"id": key, "x": X[key].tolist(), "name": f"row {key}", **more})


def lines(count):
    return "".join(row(k) + "\n" for k in range(count))


def answer(key):
    return {"id": key, "name": f"row {key}", "y": float(X[key].sum()), "z": [key * 10, key * 10 + 1]}


def command(addresses, *args, keep="id,name"):
    return [str(BIN), "map", "-m", "m", "--hosts", ",".join(addresses), "--keep", keep, "-b", "100", *map(str, args)]


def run(addresses, text, *args, code=0, **more):
    done = subprocess.run(command(addresses, *args, **more), input=text, capture_output=True, text=True, env=environment(),
                          timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stderr[-2000:]}"
    return done


def rows(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.few
@pytest.mark.parametrize("args", [(), ("--unordered",)])
def test_order(args):
    """100,000 rows, and two hosts that are not equally fast."""
    with hosts(Host, Slow) as (addresses, made):
        found = rows(run(addresses, lines(len(X)), "-b", 500, *args))
        assert min(h.calls for h in made) > 0
    keys = [r["id"] for r in found]
    assert (keys == list(range(len(X)))) == (not args)
    assert sorted(keys) == list(range(len(X)))
    assert all(r == answer(r["id"]) for r in found)


def test_without_a_line_feed_at_the_end():
    with hosts(Host) as (addresses, _):
        assert rows(run(addresses, "\n" + row(0) + "\n \n" + row(1))) == [answer(0), answer(1)]


@pytest.mark.parametrize("form", ["jsonl", "csv", "tsv"])
def test_empty_input_needs_no_host(form):
    done = run(["127.0.0.1:1"], "", "--input-format", form)
    assert (done.stdout, done.stderr) == ("", "")


def test_what_is_kept_is_kept_as_it_is():
    """Whatever rows come later, and whatever their values: no type is guessed from the first ones."""
    kept = ["1", "1.50", '"\\u00e4 \\"b"', '{"c": [1, null]}', "null", "12345678901234567890123", "true"]
    text = "".join(f'{{"id":{k},"x":{X[k].tolist()},"name": {v}}}\n' for k, v in enumerate(kept))
    text += f'{{"id":7,"x":{X[7].tolist()}}}\n'
    with hosts(Host) as (addresses, _):
        done = run(addresses, text)
        as_csv = run(addresses, text, "--output-format", "csv")
    assert [line.split('"name":')[1].split(',"y"')[0] for line in done.stdout.splitlines()] == [*kept, "null"]
    assert [r["name"] for r in csv.DictReader(io.StringIO(as_csv.stdout))] == \
        ["1", "1.50", 'ä "b', '{"c": [1, null]}', "", "12345678901234567890123", "true", ""]


@pytest.mark.parametrize("form,delimiter", [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("header", [True, False])
def test_csv(form, delimiter, header):
    names = ["id", "x", "name"] if header else ["column0", "column1", "column2"]
    out = io.StringIO(newline="")
    write = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    write.writerows(([names] if header else []) + [[k, X[k].tolist(), f"{k},\t\n{k}"] for k in range(1000)])
    args = [] if header else ["--no-header", "--map", "x=column1", "--map", "id=column0"]
    with hosts(Host) as (addresses, _):
        done = run(addresses, out.getvalue(), "--input-format", form, *args, keep=f"{names[0]},{names[2]}")
    found = list(csv.reader(io.StringIO(done.stdout, newline=""), delimiter=delimiter))
    if header:
        assert found.pop(0) == ["id", "name", "y", "z"]
    assert found == [[str(k), f"{k},\t\n{k}", format(float(X[k].sum()), "g"), f"[{k * 10},{k * 10 + 1}]"] for k in range(1000)]


class Square(Host):
    """x is a matrix, or several rows of two."""
    dims = [-1, 2, 2]

    def do_GET(self):
        self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                       "inputs": [{"name": "x", "datatype": "FP32", "shape": self.dims}, {"name": "id", "datatype": "INT64", "shape": [-1]}],
                       "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}, {"name": "z", "datatype": "INT64", "shape": [-1, 2]}]})

    def answer(self, number, x, key):
        self.good(x, key, y=x[:, 1, 0].copy())


class Open(Square):
    dims = [-1, -1, 2]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("host", [Square, Open])
def test_lists_in_lists(form, host):
    """They are the model's dimensions, as they are to batch run; a flat list is one as well."""
    good = {0: [[1, 2], [3, 4]], 1: [1, 2, 5, 4], 2: [[1.0, 2e0], [6, 4]]}
    bad = {3: [[1, 2, 3], [4]], 4: [[1, 2, 3, 4]], 5: [[1], [2], [3], [4]], 6: [[1, 2], None], 7: [[[1, 2], [3, 4]]], 8: [[1, 2], [3, "a"]]}
    every = good | bad
    if form == "jsonl":
        text = "".join(json.dumps({"id": k, "x": v}) + "\n" for k, v in every.items())
    else:
        text = "id,x\n" + "".join(f'{k},"{json.dumps(v)}"\n' for k, v in every.items() if k != 8)
    with hosts(host) as (addresses, _):
        done = run(addresses, text, "--dead", "skip", "--input-format", form, "--output-format", "jsonl", keep="id")
    assert {r["id"]: r["y"] for r in rows(done)} == {0: 3, 1: 5, 2: 6}
    assert "a list of 3 items at level 2, not 2 as the model asks for" in done.stderr
    assert done.stderr.count("column 'x'") == len(every) - 3 - (form == "csv")


BAD = {777: row(777), 20: '{"id": 20, "x": [1, 2', 30: '{"id": 30, "name": "row 30"}'}


def bad_lines():
    text = lines(1000).splitlines(keepends=True)
    for k, line in BAD.items():
        text[k] = line + "\n"
    return "".join(text)


def test_dead_rows_end_the_run():
    with hosts(Poisoned) as (addresses, _):
        done = run(addresses, bad_lines(), code=1)
    assert "row 20 (row): line 21: " in done.stderr
    assert rows(done) == [answer(k) for k in range(20)]


@pytest.mark.parametrize("handler,kind", [(Poisoned, "rejected"), (Broken, "failed")])
def test_a_row_that_hosts_refuse_ends_the_run(handler, kind):
    with hosts(handler) as (addresses, _):
        done = run(addresses, lines(1000), code=1)
    assert f"row 777 ({kind}): " in done.stderr
    assert rows(done) == [answer(k) for k in range(777)]


def test_dead_rows_are_skipped():
    with hosts(Poisoned) as (addresses, _):
        done = run(addresses, bad_lines(), "--dead", "skip")
    assert rows(done) == [answer(k) for k in range(1000) if k not in BAD]
    told = done.stderr.splitlines()
    assert [t.split(":")[1] for t in told] == [" row 20 (row)", " row 30 (row)", " row 777 (rejected)"]


@pytest.mark.parametrize("error", [(), ("--error-column", "error")])
def test_dead_rows_become_nulls(error):
    """A line for each line."""
    with hosts(Poisoned) as (addresses, _):
        done = run(addresses, bad_lines(), "--dead", "null", *error)
    for k, r in enumerate(rows(done)):
        why = r.pop("error") if error else None
        if k in BAD:
            name = None if k == 20 else f"row {k}"
            assert r == {"id": None if k == 20 else k, "name": name, "y": None, "z": None}
            assert not error or {777: "row of ill will", 20: "line 21: ", 30: "column 'x'"}[k] in why
        else:
            assert r == answer(k) and why is None
    assert len(done.stderr.splitlines()) == 3


def test_input_that_is_cut_off():
    with hosts(Host) as (addresses, _):
        done = run(addresses, row(0) + "\n" + row(1)[:-5], code=1)
    assert "row 1 (row): line 2: " in done.stderr and rows(done) == [answer(0)]


@pytest.mark.parametrize("args,text", [
    (["--map", "none=x"], "the model has no input 'none'"),
    (["--outputs", "w"], "the model has no output 'w'"),
    (["--keep", "y"], "the output table would have two columns 'y'"),
    (["--dead", "null", "--error-column", "y"], "the output table would have two columns 'y'"),
    (["--input-format", "csv"], "'stdin' has no column 'x'"),
])
def test_what_cannot_be(args, text):
    with hosts(Host) as (addresses, made):
        assert text in run(addresses, "a,b\n1,2\n", *args, code=1).stderr
        assert made[0].calls == 0


@pytest.mark.parametrize("args,text", [
    ((), "no hosts: give --hosts"),
    (("--hosts", "127.0.0.1:1", "--model", ""), "no model: give --model"),
])
def test_what_can_never_be(args, text):
    done = subprocess.run([BIN, "map", "-m", "m", *args], input="", capture_output=True, text=True, env=environment())
    assert done.returncode == 2 and text in done.stderr


def test_help_names_no_empty_range():
    done = subprocess.run([BIN, "map", "--help"], capture_output=True, text=True, env=environment(), check=True)
    assert "any number (default 0)" in " ".join(done.stdout.split())


def test_two_columns_of_one_name():
    with hosts(Host) as (addresses, _):
        assert "'stdin': two columns are named 'id'" in run(addresses, "id,id,x\n", "--input-format", "csv", code=1).stderr


def test_error_column_needs_nulls():
    assert "--error-column needs --dead null" in run(["127.0.0.1:1"], "", "--error-column", "e", code=2).stderr


class Pipe:
    """The filter, and a peer that talks to it line by line."""

    def __init__(self, addresses, *args, **more):
        self.process = subprocess.Popen(command(addresses, *args), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=environment(), **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):  # what was sent to one that had ended
                end.close()

    def say(self, text):
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def hear(self):
        assert select.select([self.process.stdout], [], [], 60 * wait.SLOW)[0], "no answer while the input pauses"
        return json.loads(self.process.stdout.readline())


@pytest.mark.parametrize("args", [(), ("--unordered",)])
def test_an_answer_waits_for_no_more_input(args):
    with hosts(Host) as (addresses, _), Pipe(addresses, *args) as pipe:
        for k in range(50):
            pipe.say(row(k) + "\n" + row(k + 1)[:10])  # half a row does not hold back the one before it
            assert pipe.hear() == answer(k)
            pipe.say(row(k + 1)[10:] + "\n")
            assert pipe.hear() == answer(k + 1)
        pipe.process.stdin.close()
        assert pipe.process.wait(wait.PATIENCE) == 0


def test_a_row_that_fails_waits_for_no_more_input():
    """One that succeeded before is sent again as the probe."""
    with hosts(Broken) as (addresses, _), Pipe(addresses, "--dead", "null") as pipe:
        for expected in answer(0), answer(777) | {"y": None, "z": None}, answer(1):
            pipe.say(row(expected["id"]) + "\n")
            assert pipe.hear() == expected


def test_csv_waits_for_no_more_input():
    with hosts(Host) as (addresses, _), Pipe(addresses, "--input-format", "csv", "--output-format", "jsonl") as pipe:
        pipe.say("id,x,name\n")
        for k in range(0, 20, 2):
            first, second = (f'{j},"{X[j].tolist()}",row {j}\n' for j in (k, k + 1))
            pipe.say(first + second[:6])
            assert pipe.hear() == answer(k)
            pipe.say(second[6:])
            assert pipe.hear() == answer(k + 1)


def test_rows_that_come_together_go_together(tmp_path):
    """From a file, which never pauses."""
    (tmp_path / "in").write_text(lines(10000))
    with hosts(Host) as (addresses, made), open(tmp_path / "in") as file:
        subprocess.run(command(addresses), stdin=file, capture_output=True, env=environment(), timeout=wait.PATIENCE, check=True)
        assert made[0].calls <= 10000 / 100 * 2


def test_standard_output_is_closed():
    with hosts(Host) as (addresses, _), Pipe(addresses) as pipe:
        pipe.say(row(0) + "\n")
        pipe.hear()
        pipe.process.stdout.close()
        pipe.say(row(1) + "\n")  # the input stays open
        assert pipe.process.wait(wait.PATIENCE) == 1
        said = pipe.process.stderr.read()  # by the write, or before that by a poll of the pipe
        assert b"'stdout': cannot write: Broken pipe" in said or b"'stdout': its reader is gone" in said, said


@pytest.mark.parametrize("closed,code", [("<&-", 1), (">&-", 1), ("2>&-", 0)])
def test_standard_descriptors_that_are_closed(closed, code):
    """No socket takes their place."""
    with hosts(Host) as (addresses, _):
        done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command(addresses)], input=row(0) + "\n",
                              capture_output=True, text=True, env=environment(), timeout=wait.PATIENCE)
    assert done.returncode == code, done.stderr
    assert ("Bad file descriptor" in done.stderr) == (code == 1) and len(done.stdout.splitlines()) == (code == 0)


def test_pipes_that_do_not_block():
    """As some programs leave them: a full or an empty one is no error."""
    (reads, to), (out, writes) = os.pipe(), os.pipe()
    for fd in (reads, writes):
        os.set_blocking(fd, False)
    with hosts(Host) as (addresses, _), open(to, "w") as say, open(out) as hear:
        process = subprocess.Popen(command(addresses), stdin=reads, stdout=writes, env=environment())
        os.close(reads)
        os.close(writes)
        writer = threading.Thread(target=lambda: (time.sleep(0.2), say.write(lines(5000)), say.close()))
        writer.start()
        time.sleep(1)  # the pipe is full
        assert [json.loads(line) for line in hear] == [answer(k) for k in range(5000)]
        writer.join()
        assert process.wait(wait.PATIENCE) == 0


def test_stopped_by_a_signal():
    with hosts(Host) as (addresses, _), Pipe(addresses) as pipe:
        pipe.say(row(0) + "\n")
        pipe.hear()
        pipe.process.terminate()
        assert pipe.process.wait(wait.PATIENCE) == 1
        assert b"stopped" in pipe.process.stderr.read()


@pytest.mark.parametrize("handler", [Errs, Throttles, Nan])
def test_one_host_of_two_is_bad(handler):
    with hosts(Host, handler) as (addresses, _):
        assert rows(run([*addresses, "127.0.0.1:1"], lines(5000))) == [answer(k) for k in range(5000)]


def test_without_a_host(tmp_path):
    """The model runs in the filter's process."""
    repo.add(tmp_path, "m", backend="identity", max_batch_size=64, inputs=[repo.tensor("x", "TYPE_FP32", [WIDTH])],
             outputs=[repo.tensor("y", "TYPE_FP32", [WIDTH])])
    done = subprocess.run([str(BIN), "map", "-m", "m", "--local", str(tmp_path), "--keep", "id"], input=lines(10000),
                          capture_output=True, text=True, env=environment(), timeout=wait.PATIENCE, check=True)
    assert rows(done) == [{"id": k, "y": X[k].tolist()} for k in range(10000)]


def test_hosts_that_are_nowhere():
    """The run ends in seconds, not after --max-outage."""
    done = run(["127.0.0.1:1"], lines(10), "--max-outage", 40, code=1)
    assert "no host serves the job" in done.stderr and "127.0.0.1:1" in done.stderr


def test_no_host_is_there():
    done = run(["127.0.0.1:1"], lines(10), "--max-outage", 1, code=1)
    assert "no host has worked" in done.stderr and "127.0.0.1:1" in done.stderr and done.stdout == ""


class Large(Host):
    """32 KiB a row."""
    def do_GET(self):
        self.say(200, {"name": "m", "versions": ["1"], "platform": "",
                       "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]},
                                  {"name": "id", "datatype": "INT64", "shape": [-1]}],
                       "outputs": [{"name": "y", "datatype": "INT64", "shape": [-1, 4096]}]})

    def good(self, x, key, y=None):
        y = numpy.repeat(key[:, None], 4096, 1)
        head = json.dumps({"model_name": "m", "outputs": [
            {"name": "y", "datatype": "INT64", "shape": list(y.shape), "parameters": {"binary_data_size": y.nbytes}}]}).encode()
        self.send_response(200)
        self.send_header("Inference-Header-Content-Length", str(len(head)))
        self.send_header("Content-Length", str(len(head) + y.nbytes))
        self.end_headers()
        self.wfile.write(head + y.tobytes())


@pytest.mark.release_only("a sanitizer's own memory")
def test_memory_is_bounded_when_nobody_reads():
    """Five thousand rows are 160 MiB of answers; the budget is 16 MiB."""
    script = ("import resource, subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=1); code = p.wait(); "
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)")
    with hosts(Large) as (addresses, made):
        process = subprocess.Popen([sys.executable, "-c", script, *command(addresses, "--memory", "16MiB", "--outputs", "y", "-b", 50)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        writer = threading.Thread(target=lambda: (process.stdin.write(lines(5000).encode()), process.stdin.close()))
        writer.start()
        calls = -1
        while calls < made[0].calls or calls == 0:  # until nothing moves any more
            calls = made[0].calls
            time.sleep(1 * wait.SLOW)
        assert calls < 5000 / 50 / 2
        found = [json.loads(line)["id"] for line in process.stdout]
        writer.join()
        peak = int(process.stderr.read())
        assert process.wait() == 0
    assert found == list(range(5000))
    assert peak < (16 + 64) * 1024

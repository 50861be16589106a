"""Dead letters: their content, and trying them again."""
import base64
import json
import random
import subprocess
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import wait
from lib.batch import (Broken, Host, Poisoned, asked, check, command, dead, environment, hosts, pytestmark, results, run, table)


def letters(folder):
    return {d["row"]: d for d in dead(folder)}


def test_the_row_and_the_answer(tmp_path):
    x = table(tmp_path / "in", 2000, files=1, bad={5: None})
    with hosts(Poisoned) as (addresses, _):
        run(tmp_path, addresses)
    found = letters(tmp_path)
    assert sorted(found) == [5, 777]
    assert found[5]["values"] == {"id": 5, "x": None, "name": "row 5"}
    assert "answer" not in found[5] and "attempts" not in found[5]
    assert found[777]["values"] == {"id": 777, "x": x[777].tolist(), "name": "row 777"}
    text = '{"error": "row of ill will"}'
    assert found[777]["answer"] == {"status": 400, "bytes": len(text), "text": text}
    assert "truncated" not in found[777]


def test_large_cells_are_left_out(tmp_path):
    """By name, and the others stay."""
    (tmp_path / "in").mkdir()
    t = pa.table({"id": [0, 1], "x": [[1.0] * 4, None], "photo": [b"", b"\x00\xff" * 40000],
                  "text": ["", "y" * 30000], "more": ["", "z" * 40000], "small": [b"a", b"\xff"],
                  "name": ["", "row 1"]},
                 pa.schema({"id": pa.int64(), "x": pa.list_(pa.float32()), "photo": pa.binary(), "text": pa.string(),
                            "more": pa.string(), "small": pa.binary(), "name": pa.string()}))
    pq.write_table(t, tmp_path / "in/0.parquet")
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
    letter, = dead(tmp_path)
    assert letter["values"] == {"id": 1, "x": None, "text": "y" * 30000, "small": "/w==", "name": "row 1"}
    assert letter["truncated"] == ["photo", "more"]


def wide(folder, rows):
    """A table with columns that the job does not need: a text, one that is too long for a cell, and a type that cannot be
    read. Row groups of 1,000 rows."""
    folder.mkdir()
    x = pa.array([[float(k)] * 4 for k in range(rows)], pa.list_(pa.float32()))
    t = pa.table({"note": [f"note {k}" for k in range(rows)], "id": range(rows), "x": x, "name": [f"row {k}" for k in range(rows)],
                  "odd": [{"a": k} for k in range(rows)], "long": ["l" * (100000 if k == 42 else 1) for k in range(rows)]})
    pq.write_table(t, folder / "0.parquet", row_group_size=1000)


class Moody(Host):
    """Refuses rows by the attributes of its class."""
    refused = set()

    def answer(self, number, x, key):
        if self.refused & set(key.tolist()):
            self.say(400, {"error": "not today"})
        else:
            self.good(x, key)


def test_columns_that_nobody_needs(tmp_path):
    """They are in letters, wherever the rows are, and what is wrong with them is nothing to the others."""
    rows = [10, 11, 500, 4100, 19000, 29999]
    wide(tmp_path / "in", 30000)
    with hosts(type("Some", (Moody,), {"refused": set(rows)})) as (addresses, _):
        run(tmp_path, addresses, "--max-cell-bytes", "64KiB")
    found = letters(tmp_path)
    assert sorted(found) == rows
    for k in rows:
        assert found[k]["values"] == {"note": f"note {k}", "id": k, "x": [float(k)] * 4, "name": f"row {k}", "long": "l"}
    assert sorted(results(tmp_path)["id"].to_pylist()) == [k for k in range(30000) if k not in rows]


@pytest.mark.parametrize("is_long", [False, True])
def test_letters_without_the_other_columns(tmp_path, is_long):
    """The file has gone when they are needed, or one of them is too long to be read."""
    wide(tmp_path / "in", 100)
    go = threading.Event()

    class Late(Moody):
        refused = {42}

        def answer(self, number, x, key):
            go.wait(wait.PATIENCE)
            super().answer(number, x, key)
    with hosts(Late) as (addresses, _):
        process = subprocess.Popen(command(tmp_path, addresses, "--max-cell-bytes", "64KiB"), stderr=subprocess.PIPE, text=True,
                                   env=environment())
        wait.until(lambda: (tmp_path / "out/control").exists() and asked(tmp_path)["reader"] == "has ended", "all to be read")
        if not is_long:
            (tmp_path / "in/0.parquet").unlink()
        go.set()
        _, err = process.communicate(timeout=wait.PATIENCE)
    assert process.returncode == 0, err
    assert ("batch.dead_letters" in err) == (not is_long)
    letter, = dead(tmp_path)
    assert letter["values"] == {"id": 42, "x": [42.0] * 4, "name": "row 42"}


def test_answers_that_are_no_text(tmp_path):
    """Cut where they are long: between characters, if they are text."""
    class Answers(Host):
        texts = {3: b"\x00\xff" * 3000, 4: b"x" + "\u00e4".encode() * 5000, 5: b""}

        def answer(self, number, x, key):
            bad = [k for k in key.tolist() if k in self.texts]
            self.say(400, self.texts[bad[0]]) if bad else self.good(x, key)
    table(tmp_path / "in", 100, files=1)
    with hosts(Answers) as (addresses, _):
        run(tmp_path, addresses)
    found = {row: d["answer"] for row, d in letters(tmp_path).items()}
    assert found == {3: {"status": 400, "bytes": 6000, "base64": base64.b64encode(b"\x00\xff" * 2048).decode()},
                     4: {"status": 400, "bytes": 10001, "text": "x" + "\u00e4" * 2047},
                     5: {"status": 400, "bytes": 0, "text": ""}}


def test_a_line_that_cannot_be_read(tmp_path):
    """It has no columns to report."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.jsonl").write_text('{"id": 0, "x": [1, 2, 3, 4], "name": "row 0"}\n{"id": 1\n')
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
    letter, = dead(tmp_path)
    assert (letter["row"], letter["kind"]) == (1, "row") and "values" not in letter


def retry(folder, addresses, *args, code=0):
    args = command(folder, addresses, *args)
    args[args.index("run")] = "retry-dlq"
    done = subprocess.run(args, capture_output=True, text=True, env=environment(), timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stderr


class Refuses(Moody):
    refused = set(range(5, 3000, 50))


class RefusesFewer(Moody):
    refused = set(range(5, 3000, 200))


def test_tried_again(tmp_path):
    """What succeeds is a result, what does not a letter with one more attempt."""
    x = table(tmp_path / "in", 3000, files=3)
    small = ["--part-bytes", "2KiB", "--extent-rows", 200, "--max-dead-percent", 100]
    with hosts(Refuses) as (addresses, _):
        run(tmp_path, addresses, *small)
    check(tmp_path, x, gone=sorted(Refuses.refused))
    with hosts(RefusesFewer) as (addresses, made):
        text = retry(tmp_path, addresses, *small)
        calls = made[0].calls
    assert "60 dead letters tried again: 45 are results now, 15 are left" in text
    assert 60 <= calls <= 64  # at the end some may be sent twice
    check(tmp_path, x, gone=sorted(RefusesFewer.refused))
    found = dead(tmp_path)
    assert sorted(d["values"]["id"] for d in found) == sorted(RefusesFewer.refused)
    assert {d["attempts"] for d in found} == {2}
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert (report["rows"], report["results"], report["dead_letters"]) == (3000, 2985, 15)
    assert (tmp_path / "out/_SUCCESS").exists()
    with hosts(Host) as (addresses, made):
        assert "15 are results now, 0 are left" in retry(tmp_path, addresses, *small)
        check(tmp_path, x)
        assert dead(tmp_path) == [] and list((tmp_path / "out/dlq").iterdir()) == []
        calls = made[0].calls
        assert "has no dead letters" in retry(tmp_path, addresses, *small)
        run(tmp_path, addresses, *small)
        assert made[0].calls == calls


def test_the_input_is_named_in_another_way(tmp_path):
    """Letters have the name that their start was given, the first one or another."""
    x = table(tmp_path / "in", 1000)

    def named(name, verb, addresses, cwd=tmp_path):
        words = command(tmp_path, addresses, verb=verb)
        words[words.index("-i") + 1] = name
        subprocess.run(words, cwd=cwd, env=environment(), timeout=wait.PATIENCE, check=True)
        return [letter["file"] for letter in dead(tmp_path)]
    with hosts(Poisoned) as (addresses, _):
        assert named("in", "run", addresses) == ["in/1.parquet"]
        assert named(f"{tmp_path}/in", "retry-dlq", addresses, tmp_path / "in") == [f"{tmp_path}/in/1.parquet"]
        assert named("in/../in", "retry-dlq", addresses) == ["in/../in/1.parquet"]
    with hosts(Host) as (addresses, _):
        assert named(str(tmp_path / "in"), "retry-dlq", addresses) == []
    check(tmp_path, x)


def test_another_host_fails_as_well(tmp_path):
    """Also when there is no other row whose success would count against it."""
    x = table(tmp_path / "in", 2000)
    with hosts(Broken) as (addresses, _):
        run(tmp_path, addresses)
        before, = dead(tmp_path)
        retry(tmp_path, addresses)
    after, = dead(tmp_path)
    assert (after["row"], after["kind"]) == (777, "failed") and after["attempts"] > before["attempts"]
    check(tmp_path, x, gone=[777])


def test_rows_that_could_not_be_sent(tmp_path):
    """They can, if nulls are allowed now."""
    x = table(tmp_path / "in", 1000, bad={5: [1, None, 3, 4], 600: [1, 2]})
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
        assert len(dead(tmp_path)) == 2
        retry(tmp_path, addresses, "--null-value", 0)
        letter, = dead(tmp_path)
        assert letter["row"] == 100 and "attempts" not in letter
    x[5] = [1, 0, 3, 4]
    check(tmp_path, x, gone=[600])


def test_a_job_that_was_stopped(tmp_path):
    """Rows that were not done yet are left for the run."""
    x = table(tmp_path / "in", 5000, files=1)
    with hosts(Refuses) as (addresses, _):
        done = run(tmp_path, addresses, "--max-dead", 20, "--extent-rows", 100, code=3)
        assert "dead letters" in done.stderr
    letters = sorted(d["row"] for d in dead(tmp_path))
    rows = len(results(tmp_path))
    assert 0 < len(letters) < 60 and rows + len(letters) < 5000
    with hosts(Host) as (addresses, _):
        assert "0 are left" in retry(tmp_path, addresses)
        assert len(results(tmp_path)) == rows + len(letters)
        assert not (tmp_path / "out/_SUCCESS").exists()
        run(tmp_path, addresses)
    check(tmp_path, x)


def test_no_job_to_try_again(tmp_path):
    table(tmp_path / "in", 10)
    with hosts(Host) as (addresses, _):
        assert "No such file" in retry(tmp_path, addresses, code=1)
        assert not (tmp_path / "out").exists()
        (tmp_path / "out").mkdir()
        assert "no job" in retry(tmp_path, addresses, code=1)
        assert not list((tmp_path / "out").iterdir())


@pytest.mark.more
def test_killed_while_it_tries_again(tmp_path):
    """Each row has one outcome at any time: as a result or as a letter."""
    class Slow(Host):
        def answer(self, number, x, key):
            time.sleep(0.01)
            self.good(x, key)
    class Third(Moody):
        refused = set(range(0, 6000, 3))
    x = table(tmp_path / "in", 6000, files=2)
    small = ["--max-dead-percent", 100, "--batch-rows", 1, "--extent-rows", 500]
    with hosts(Third) as (addresses, _):
        run(tmp_path, addresses, *small)
    assert len(dead(tmp_path)) == len(Third.refused)
    rng = random.Random(9)
    kills = 0
    with hosts(Slow, Slow) as (addresses, made):
        args = command(tmp_path, addresses, *small, "--part-bytes", "1KiB", "--max-in-flight-per-host", 8)
        args[args.index("run")] = "retry-dlq"
        for _ in range(500):
            until = sum(h.calls for h in made) + rng.randrange(1, 800)  # each of the 2,000 letters is a call
            process = subprocess.Popen(args, stderr=subprocess.DEVNULL, env=environment())
            wait.until(lambda: process.poll() is not None or sum(h.calls for h in made) >= until, "calls", step=0.001)
            code = process.poll()
            if code is not None:
                break
            process.kill()
            process.wait()
            kills += 1
            committed(tmp_path, 6000)
        else:
            pytest.fail("it does not come forward")
    assert code == 0 and kills > 0
    assert (tmp_path / "out/_SUCCESS").exists()
    check(tmp_path, x)
    assert dead(tmp_path) == []


def committed(folder, rows):
    """What manifest.log names, read without the program, has each row once."""
    live = {}
    for line in (folder / "out/manifest.log").read_text().splitlines():
        try:
            record = json.loads(line[:-9])
        except ValueError:
            break  # torn
        for item in record.get("add", []):
            live[item.get("part") or item["dlq"]] = item
        for name in record.get("remove", []):
            if name not in {item.get("part") or item["dlq"] for item in record["add"]}:
                del live[name]
    keys = [d["values"]["id"] for item in live.values() if "dlq" in item
            for d in map(json.loads, (folder / "out/dlq" / item["dlq"]).read_text().splitlines())]
    for item in live.values():
        if "part" in item:
            keys += pq.read_table(folder / "out/parts" / item["part"], columns=["id"])["id"].to_pylist()
    assert sorted(keys) == list(range(rows))

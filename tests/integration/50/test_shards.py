"""One table, several processes with --shard: each row once over all of them, for each format, with kill -9 and
restarts; refusals; status and merge over all."""
import collections
import gzip
import json
import os
import shutil
import signal
import subprocess
import threading

import numpy
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from lib import wait
from lib.batch import BIN, Host, Poisoned, command, environment, hosts, pytestmark, table  # noqa: F401

ROWS = 30000


class Gated(Host):
    """One row has no answer until the gate is open, so that a kill finds work under way."""
    gate = threading.Event()

    def answer(self, number, x, key):
        if ROWS // 2 in key:
            self.gate.wait(wait.PATIENCE)
        self.good(x, key)


def begin(folder, addresses, shard, *args):
    words = command(folder, addresses, "--shard", shard, *args)
    return subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def millrace(*words, code=0, **more):
    done = subprocess.run([str(BIN), *map(str, words)], capture_output=True, text=True, env=environment() | more,
                          timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-9000:]}"
    return done


def all_end(processes, code=0):
    for p in processes:
        _, text = p.communicate(timeout=wait.PATIENCE)
        assert p.returncode == code, text


def text_table(folder, rows, files, pack):
    """JSON lines; every second file packed."""
    folder.mkdir()
    x = numpy.random.default_rng(5).integers(-100, 100, (rows, 4)).astype(numpy.float32)
    for i, part in enumerate(numpy.array_split(numpy.arange(rows), files)):
        lines = "".join(json.dumps({"id": int(k), "name": f"row {k}", "x": x[k].tolist()}) + "\n" for k in part).encode()
        if pack and i % 2:
            (folder / f"{i:02}.jsonl.gz").write_bytes(gzip.compress(lines, 1))
        else:
            (folder / f"{i:02}.jsonl").write_bytes(lines)
    return x


def check(results, x, gone=()):
    key = results["id"].to_numpy()
    want = numpy.setdiff1d(numpy.arange(len(x)), gone)
    assert collections.Counter(key.tolist()) == collections.Counter(want.tolist())
    assert (results["y"].to_numpy() == x[key].sum(axis=1, dtype=numpy.float32)).all()


def shards(folder):
    return sorted((folder / "out").iterdir())


def test_killed_and_merged(tmp_path):
    x = table(tmp_path / "in", ROWS)
    with hosts(Gated) as (addresses, _):
        running = [begin(tmp_path, addresses, f"{i}/3", "--commit-interval", "1s") for i in range(3)]
        parts = tmp_path / "out/shard-00001-of-00003/manifest.log"
        wait.until(lambda: parts.exists() and b"p-000001" in parts.read_bytes(), "a first commit")
        running[1].send_signal(signal.SIGKILL)
        all_end([running[1]], -signal.SIGKILL)
        Gated.gate.set()
        all_end([running[0], running[2]])
        failed = millrace("batch", "merge", tmp_path / "out", "-o", tmp_path / "all.parquet", code=1).stderr
        assert "1 of 3 shards of the job in" in failed and "are not finished: 1 (stopped)" in failed
        status = json.loads(millrace("batch", "status", tmp_path / "out", "--json").stdout)
        assert [s["state"] for s in status["shards"]] == ["finished", "not finished", "finished"]
        all_end([begin(tmp_path, addresses, "1/3")])
    status = json.loads(millrace("batch", "status", tmp_path / "out", "--json").stdout)
    assert (status["state"], status["rows"], status["starts"]) == ("finished", ROWS, 4)
    assert {s["rows"] for s in status["shards"]} == {ROWS // 3}
    assert "3 of 3 shards are finished" in millrace("batch", "status", tmp_path / "out").stdout
    millrace("batch", "merge", tmp_path / "out", "-o", tmp_path / "all.parquet")
    check(pq.read_table(tmp_path / "all.parquet"), x)
    millrace("batch", "merge", tmp_path / "out", "--max-bytes", "1GiB")
    assert all(len(list((s / "parts").iterdir())) == 1 and (s / "_SUCCESS").exists() for s in shards(tmp_path))
    check(pyarrow.dataset.dataset([str(f) for f in (tmp_path / "out").glob("*/parts/*")]).to_table(), x)


@pytest.mark.few
@pytest.mark.parametrize("files", [3, 33], ids=["stretches", "whole files"])
def test_text(tmp_path, files):
    x = text_table(tmp_path / "in", ROWS, files, pack=True)
    with hosts(Host) as (addresses, _):
        all_end([begin(tmp_path, addresses, f"{i}/3") for i in range(3)])
    millrace("batch", "merge", tmp_path / "out", "-o", tmp_path / "all.parquet")
    check(pq.read_table(tmp_path / "all.parquet"), x)
    rows = [s["rows"] for s in json.loads(millrace("batch", "status", tmp_path / "out", "--json").stdout)["shards"]]
    assert min(rows) > ROWS / 3 * 0.7


def test_query_and_environment(tmp_path):
    x = table(tmp_path / "in", ROWS)
    query = f"select id, x, name from '{tmp_path}/in/*.parquet' order by id"
    with hosts(Host) as (addresses, _):
        for i in range(2):
            millrace("batch", "run", "--query", query, "-m", "m", "--hosts", addresses[0], "-o", tmp_path / "out", "--keep",
                     "id,name", MILLRACE_SHARD=f"{i}/2")
    millrace("batch", "merge", tmp_path / "out", "-o", tmp_path / "all.parquet")
    check(pq.read_table(tmp_path / "all.parquet"), x)


def test_dead_letters(tmp_path):
    x = table(tmp_path / "in", 3000)
    with hosts(Poisoned, Host) as (addresses, _):
        all_end([begin(tmp_path, addresses[:1], f"{i}/2") for i in range(2)])
        letters = [len(f.read_text().splitlines()) for f in (tmp_path / "out").glob("*/dlq/*")]
        assert letters == [1]
        for i in range(2):
            words = command(tmp_path, addresses[1:], "--shard", f"{i}/2")
            words[2] = "retry-dlq"
            millrace(*words[1:])
    assert not list((tmp_path / "out").glob("*/dlq/*"))
    millrace("batch", "merge", tmp_path / "out", "-o", tmp_path / "all.parquet")
    check(pq.read_table(tmp_path / "all.parquet"), x)


def test_refused(tmp_path):
    table(tmp_path / "in", 1000)
    out = tmp_path / "out"
    with hosts(Host) as (addresses, made):
        def refused(text, *args):
            assert text in millrace(*command(tmp_path, addresses, *args)[1:], code=1).stderr

        plan = json.loads(millrace(*command(tmp_path, addresses, "--shard", "1/4", "--plan", "--json")[1:]).stdout)
        assert plan["rows"] == 250 and not out.exists()
        all_end([begin(tmp_path, addresses, "1/4")])
        refused("is divided into 4 shards, so --shard 1/3 is none of them", "--shard", "1/3")
        assert [s.name for s in shards(tmp_path)] == ["shard-00001-of-00004"]
        refused("holds other things (shard-00001-of-00004)")
        shutil.copytree(out / "shard-00001-of-00004", out / "shard-00002-of-00004")
        refused("was begun with another shard", "--shard", "2/4")
        calls = made[0].calls
        all_end([begin(tmp_path, addresses, "1/4")])  # finished: no call is made
        assert made[0].calls == calls
        os.rename(out, tmp_path / "shards")
        all_end([subprocess.Popen(command(tmp_path, addresses), env=environment(), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)])
        refused("is not divided into shards", "--shard", "0/4")
    merge = ["batch", "merge", tmp_path / "shards", "-o", tmp_path / "a"]
    assert "2 of 4 shards" in millrace(*merge, code=1).stderr
    for i in (0, 3):
        shutil.copytree(tmp_path / "shards/shard-00001-of-00004", tmp_path / f"shards/shard-0000{i}-of-00004")
    assert "shard-00000-of-00004 holds the work of another shard" in millrace(*merge, code=1).stderr


def test_other_inputs_do_not_merge(tmp_path):
    table(tmp_path / "in", 1000)
    with hosts(Host) as (addresses, _):
        all_end([begin(tmp_path, addresses, "0/2")])
        table(tmp_path / "in", 1001)
        all_end([begin(tmp_path, addresses, "1/2")])
    failed = millrace("batch", "merge", tmp_path / "out", "-o", tmp_path / "all.parquet", code=1).stderr
    assert "was begun with another model, inputs or columns" in failed


def test_a_text_file_that_is_repaired(tmp_path):
    """It keeps its turn while it is left out, and the other files stay with their shards."""
    x = text_table(tmp_path / "in", 300, 3, pack=False)
    path = tmp_path / "in/00.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b"no table\n")
    with hosts(Host) as (addresses, _):
        all_end([begin(tmp_path, addresses, "0/2", "--skip-bad-files")])
        path.write_bytes(whole)
        all_end([begin(tmp_path, addresses, f"{i}/2", "--accept-changed-input") for i in range(2)])
    millrace("batch", "merge", tmp_path / "out", "-o", tmp_path / "all.parquet")
    check(pq.read_table(tmp_path / "all.parquet"), x)


def test_shards_of_other_rows_do_not_merge(tmp_path):
    """One left out a file that the other has: it looks the same from outside, and its rows are counted."""
    table(tmp_path / "in", 1000)
    path = tmp_path / "in/1.parquet"
    whole, at = path.read_bytes(), path.stat().st_mtime_ns
    with hosts(Host) as (addresses, _):
        for i, text in enumerate([bytes(len(whole)), whole]):
            path.write_bytes(text)
            os.utime(path, ns=(at, at))
            all_end([begin(tmp_path, addresses, f"{i}/2", "--skip-bad-files")])
    failed = millrace("batch", "merge", tmp_path / "out", "-o", tmp_path / "all.parquet", code=1).stderr
    assert "was begun with another model, inputs or columns" in failed


@pytest.mark.parametrize("shard", ["4/4", "1", "a/2", "-1/2", "0/0", "0/10001", "1/2/3", ""])
def test_wrong(tmp_path, shard):
    failed = millrace("batch", "run", "-i", "x", "-m", "m", "--hosts", "h", "-o", tmp_path / "out", "--shard=" + shard,
                      code=2).stderr
    assert f"--shard {shard}: expected I/N, as 0/4 to 3/4" in failed

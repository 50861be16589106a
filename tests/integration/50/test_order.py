"""`millrace batch run --order`: results in the order of the input, whatever hosts, kills and dead letters do."""
import json
import os
import random
import signal
import subprocess
import threading
import time

import numpy
import pyarrow.parquet as pq
import pytest

from lib import wait
from lib.batch import (Host, asked, check, command, committed, environment, hosts, keys, names, pytestmark, run, table,
                       waits_for_memory)
from lib.server import BIN

KILLS = int(os.environ.get("MR_KILLS", 6))
SMALL = ["--part-bytes", "4KiB", "--extent-rows", 100, "--batch-rows", 50]


class Jitters(Host):
    """Answers come in any order; some rows are refused."""
    refused = frozenset()

    def answer(self, number, x, key):
        time.sleep(random.uniform(0, 0.01))
        self.say(400, {"error": "no"}) if self.refused.intersection(key.tolist()) else self.good(x, key)


def merge(folder, *args):
    return subprocess.run([str(BIN), "batch", "merge", str(folder / "out"), *map(str, args)], capture_output=True, text=True,
                          env=environment(), timeout=wait.PATIENCE, check=True).stderr


@pytest.mark.few
@pytest.mark.parametrize("order", ["logical", "physical"])
def test_files_are_the_input(tmp_path, order):
    gone = [3, 299, 300, *range(700, 900), 1500, 2999]
    refused = type("Refuses", (Jitters,), {"refused": frozenset(gone) - {3}})
    x = table(tmp_path / "in", 3000, files=4, bad={3: None})
    with hosts(refused, refused) as (addresses, _):
        run(tmp_path, addresses, "--order", order, "--max-dead-percent", 100, *SMALL)
    want = [k for k in range(3000) if k not in set(gone)]
    files = names(tmp_path)
    assert len(files) > 8
    assert keys(tmp_path, files) == want
    check(tmp_path, x, gone)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    items = [i for i in manifest["items"] if "part" in i]
    assert manifest["in_order"] is True and [i["part"] for i in items] == files
    assert [i["rows"] for i in items] == [pq.read_metadata(tmp_path / "out/parts" / f).num_rows for f in files]
    firsts = [i["extents"][0][:2] for i in items]
    assert firsts == sorted(firsts)
    assert "in the order of the input" in merge(tmp_path, "--output", tmp_path / "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet")["id"].to_pylist() == want
    merge(tmp_path, "--max-bytes", 4 * max((tmp_path / "out/parts" / f).stat().st_size for f in files))
    assert len(names(tmp_path)) < len(files) / 2
    assert keys(tmp_path, names(tmp_path)) == want
    assert json.loads((tmp_path / "out/manifest.json").read_text())["in_order"] is True


def test_without_order_nothing_is_said(tmp_path):
    x = table(tmp_path / "in", 1000)
    with hosts(Jitters) as (addresses, _):
        run(tmp_path, addresses, *SMALL)
        assert "begun with another order" in run(tmp_path, addresses, "--order", "logical", code=1).stderr
    check(tmp_path, x)
    assert json.loads((tmp_path / "out/manifest.json").read_text())["in_order"] is False
    assert "in the order" not in merge(tmp_path, "--output", tmp_path / "all.parquet")


class Late(Host):
    """The call with this row waits."""
    row = 250
    go = threading.Event()

    def answer(self, number, x, key):
        if self.row in key:
            self.go.wait(wait.PATIENCE)
        self.good(x, key)


@pytest.mark.few
@pytest.mark.parametrize("order", ["logical", "physical"])
def test_a_row_that_is_late(tmp_path, order):
    """It is waited for, as far as the memory goes, or gets a file of its own."""
    late = type("Late", (Late,), {"go": threading.Event()})
    x = table(tmp_path / "in", 40000, files=1)
    args = command(tmp_path, [], "--order", order, *SMALL, "--memory", "4MiB")
    with hosts(late, late) as (addresses, made):
        args[args.index("--hosts") + 1] = ",".join(addresses)
        process = subprocess.Popen(args, stderr=subprocess.PIPE, text=True, env=environment())
        try:
            if order == "logical":
                # Rows far after it are committed, and nothing else is missing.
                wait.until(lambda: sum(committed(tmp_path).values()) > 30000, "the others")
                found = keys(tmp_path, committed(tmp_path))
                assert found == sorted(found) and not set(range(200, 300)).intersection(found)
            else:
                wait.until(lambda: sum(committed(tmp_path).values()) == 200, "those before it")
                wait.until(lambda: waits_for_memory(asked(tmp_path), in_flight=1), "the memory to be used up")
                assert 20 < sum(h.calls for h in made) < 600  # of 800
                assert keys(tmp_path, committed(tmp_path)) == list(range(200))
        finally:
            late.go.set()
            _, err = process.communicate(timeout=wait.PATIENCE)
    assert process.returncode == 0, err
    assert keys(tmp_path, names(tmp_path)) == list(range(40000))
    check(tmp_path, x)


@pytest.mark.more
@pytest.mark.parametrize("order", ["logical", "physical"])
def test_killed_and_run_again(tmp_path, order):
    """Whatever was there at a kill stays where it belongs."""
    x = table(tmp_path / "in", 20000, files=5)
    rng = random.Random(11)
    with hosts(Jitters, Jitters) as (addresses, _):
        args = command(tmp_path, addresses, "--order", order, *SMALL)
        kills = 0
        while kills < KILLS:
            process = subprocess.Popen(args, stderr=subprocess.DEVNULL, env=environment())
            try:
                process.wait(rng.uniform(0.04, 0.12) * min(wait.SLOW, 2))
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
            found = keys(tmp_path, committed(tmp_path))
            assert found == (list(range(len(found))) if order == "physical" else sorted(set(found)))
        run(tmp_path, addresses, "--order", order, *SMALL)
    assert kills > 0
    assert keys(tmp_path, names(tmp_path)) == list(range(20000))
    check(tmp_path, x)


def test_dead_letters_that_become_results(tmp_path):
    """They follow the file that they belong to, and the order is not claimed any more."""
    x = table(tmp_path / "in", 1000)
    refuses = type("Refuses", (Jitters,), {"refused": frozenset([33, 34, 600])})
    with hosts(refuses) as (addresses, _):
        run(tmp_path, addresses, "--order", "physical", "--max-dead-percent", 100, *SMALL)
    with hosts(Jitters) as (addresses, _):
        args = command(tmp_path, addresses, "--order", "physical", *SMALL)
        args[args.index("run")] = "retry-dlq"
        subprocess.run(args, check=True, env=environment(), timeout=wait.PATIENCE, capture_output=True)
    check(tmp_path, x)
    assert json.loads((tmp_path / "out/manifest.json").read_text())["in_order"] is False
    for _ in range(2):
        assert "in the order" not in merge(tmp_path, "--max-bytes", "1GiB")
        assert json.loads((tmp_path / "out/manifest.json").read_text())["in_order"] is False
    found = keys(tmp_path, names(tmp_path))
    assert sorted(found) == list(range(1000)) and (numpy.diff(found) < 0).any()

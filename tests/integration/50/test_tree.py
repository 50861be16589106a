"""`millrace batch run --merge-bytes`: small files become larger ones while the job runs, without delaying it."""
import csv
import json
import os
import random
import signal
import subprocess

import pytest

from lib import wait
from lib.batch import (BUILD, Errs, Host, Poisoned, check, command, committed, dead, environment, hosts, keys, names,
                       pytestmark, run, table)

KILLS = int(os.environ.get("MR_KILLS", 6))
SMALL = ["--part-bytes", "1KiB", "--extent-rows", 100, "--merge-bytes", "1MiB"]
HOLD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
/* Files are copied when a file that holds this back has gone. */
ssize_t copy_file_range(int in, off_t *from, int out, off_t *to, size_t n, unsigned flags)
{
    ssize_t (*real)(int, off_t *, int, off_t *, size_t, unsigned) = dlsym(RTLD_NEXT, "copy_file_range");
    close(open(getenv("MR_TEST_HELD"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    while (access(getenv("MR_TEST_HOLD"), F_OK) == 0) {
        usleep(1000);
    }
    return real(in, from, out, to, n, flags);
}
"""


def replaced(folder):
    return (folder / "out/manifest.log").read_bytes().count(b'"op":"replace"')


@pytest.mark.few
@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_fewer_files(tmp_path, form):
    """Rows, and dead letters with them, stay what they are."""
    x = table(tmp_path / "in", 8000, bad={5: None, 4000: None})
    with hosts(Poisoned) as (addresses, made):
        done = run(tmp_path, addresses, "--output-format", form, *SMALL)
        files = names(tmp_path)
        # 80 were made, and 8 became one at least once; how often depends on when the merger runs.
        assert replaced(tmp_path) > 0 and len(files) <= 80 - 7 and f"in {len(files)} file" in done.stderr
        calls = made[0].calls
        run(tmp_path, addresses, "--output-format", form, *SMALL, "--verify")
        assert made[0].calls == calls and names(tmp_path) == files  # what is finished stays as it is
    gone = [5, 777, 4000]
    assert sorted(d["row"] + 4000 * d["file"].endswith("1.parquet") for d in dead(tmp_path)) == gone
    if form == "parquet":
        check(tmp_path, x, gone)
        return
    text = [(tmp_path / "out/parts" / f).read_text().splitlines() for f in files]
    found = [int(r["id"]) for t in text for r in (csv.DictReader(t) if form == "csv" else map(json.loads, t))]
    assert sorted(found) == [k for k in range(8000) if k not in gone]


@pytest.mark.parametrize("order", ["logical", "physical"])
def test_in_the_order_of_the_input(tmp_path, order):
    x = table(tmp_path / "in", 8000, files=3)
    with hosts(Host, Errs) as (addresses, _):
        run(tmp_path, addresses, "--order", order, *SMALL)
    assert replaced(tmp_path) > 0
    assert keys(tmp_path, names(tmp_path)) == list(range(8000))
    assert json.loads((tmp_path / "out/manifest.json").read_text())["in_order"] is True
    check(tmp_path, x)


@pytest.mark.few
@pytest.mark.parametrize("order", ["logical", "physical"])
def test_items_of_dead_letters_only(tmp_path, order):
    """They go into files with results, and are no files of results; whose results these are stays known."""
    gone = list(range(1000))
    x = table(tmp_path / "in", 8000, files=1, bad={k: None for k in gone})

    class Full(Host):
        def answer(self, number, x, key):
            self.say(503, {"error": "full"})
    with hosts(Full, Host, Host) as (addresses, made):
        options = ["--order", order, "--max-dead-percent", 100, *SMALL]
        run(tmp_path, addresses[:1], *options, "--max-outage", "5", code=1)
        assert len(dead(tmp_path)) == len(gone) and names(tmp_path) == []
        done = run(tmp_path, addresses[1:2], *options)
        files = names(tmp_path)
        assert replaced(tmp_path) > 0 and f"in {len(files)} file" in done.stderr
        calls = made[1].calls
        run(tmp_path, addresses[1:], *options, "--recompute-host", addresses[2])
        assert (made[1].calls, names(tmp_path)) == (calls, files)
    check(tmp_path, x, gone)


@pytest.mark.more
@pytest.mark.parametrize("order", ["unordered", "physical"])
def test_killed_and_run_again(tmp_path, order):
    x = table(tmp_path / "in", 20000)
    rng = random.Random(5)
    merges = 0
    with hosts(Host, Errs) as (addresses, _):
        args = command(tmp_path, addresses, "--order", order, *SMALL)
        for _ in range(KILLS):
            process = subprocess.Popen(args, stderr=subprocess.DEVNULL, env=environment())
            try:
                process.wait(rng.uniform(0.1, 0.4) * wait.SLOW)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            merges += (tmp_path / "out/manifest.log").exists() and replaced(tmp_path)
        run(tmp_path, addresses, "--order", order, *SMALL)
    assert merges + replaced(tmp_path) > 0
    check(tmp_path, x)
    if order == "physical":
        assert keys(tmp_path, names(tmp_path)) == list(range(20000))


@pytest.mark.release
@pytest.mark.skipif(BUILD.name in ("asan", "tsan"), reason="the sanitizer's library has to be the first that is loaded")
def test_nobody_waits_for_a_merge(tmp_path):
    """All rows are committed while the first merge does not come forward."""
    (tmp_path / "hold.c").write_text(HOLD)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "hold.so", tmp_path / "hold.c"], check=True)
    hold, held = tmp_path / "hold", tmp_path / "held"
    hold.touch()
    x = table(tmp_path / "in", 6000)
    env = environment() | {"LD_PRELOAD": str(tmp_path / "hold.so"), "MR_TEST_HOLD": str(hold), "MR_TEST_HELD": str(held)}
    with hosts(Host) as (addresses, _):
        process = subprocess.Popen(command(tmp_path, addresses, *SMALL), stderr=subprocess.PIPE, text=True, env=env)
        try:
            wait.until(held.exists, "a merge")
            wait.equal(lambda: sum(committed(tmp_path).values()), 6000, "committed rows")
            assert replaced(tmp_path) == 0 and len(committed(tmp_path)) > 30
        finally:
            hold.unlink()
            _, err = process.communicate(timeout=wait.PATIENCE)
    assert process.returncode == 0, err
    assert replaced(tmp_path) > 0
    check(tmp_path, x)

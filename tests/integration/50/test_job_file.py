"""A job whose options are in a file: the same file for run, --plan, retry-dlq and map, and what is wrong with one."""
import json
import subprocess

import pytest

from lib import wait
from lib.batch import BIN, Host, Poisoned, check, dead, environment, hosts, pytestmark, table  # noqa: F401

ROWS = 1000


def millrace(*words, code=0, **more):
    done = subprocess.run([str(BIN), *map(str, words)], capture_output=True, text=True, env=environment(),
                          timeout=wait.PATIENCE, **more)
    assert done.returncode == code, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-9000:]}"
    return done


def job_file(folder, addresses):
    path = folder / "job.conf"
    path.write_text(f'''\
# every row of the table
input = {folder}/in
model = m
hosts = {",".join(addresses)}
output = {folder}/out
output-format = parquet
keep = id            # a list: given again
keep = name
batch-rows = 100
map = id=id
max-outage = 20s
unordered = true     # map's
dead = null
''')
    return path


def test_one_file(tmp_path):
    x = table(tmp_path / "in", ROWS)
    with hosts(Poisoned, Host) as (addresses, _):
        job = job_file(tmp_path, addresses)
        plan = json.loads(millrace("batch", "run", "--job", job, "--plan", "--json").stdout)
        assert plan["rows"] == ROWS
        millrace("batch", "run", "--job", job, "--hosts", addresses[0])
        check(tmp_path, x, gone=[777])
        done = millrace("batch", "retry-dlq", "--job", job, "--hosts", addresses[1])
        assert "1 dead letters tried again: 1 are results now" in done.stderr
        check(tmp_path, x)
        line = json.dumps({"x": x[7].tolist(), "id": 7, "name": "n"})
        done = millrace("map", "--job", job, input=line + "\n")
        assert json.loads(done.stdout) == {"id": 7, "name": "n", "y": float(x[7].sum()), "z": [70, 71]}


def test_command_line_wins(tmp_path):
    x = table(tmp_path / "in", ROWS)
    with hosts(Host) as (addresses, _):
        job = job_file(tmp_path, ["127.0.0.1:1"])
        millrace("batch", "run", "--job", job, "--hosts", addresses[0], "--output", tmp_path / "out2")
        assert not (tmp_path / "out").exists()
        (tmp_path / "out2").rename(tmp_path / "out")
        check(tmp_path, x)


@pytest.mark.parametrize("text, message", [
    ("model = m\nhost = a\n", ":2: host is not an option; did you mean hosts?"),
    ("model = m\nmodel = n\n", ":2: model is given twice, first at "),
    ("batch-rows = many\n", ":1: batch-rows: 'many' is not a whole number"),
    ("\nbatch-rows = 1048577\n", ":2: batch-rows: 1048577 is out of range; allowed: 0 to 1048576"),
    ("output-format = orc\n", ":1: output-format: 'orc' is not one of parquet, jsonl, csv"),
    ("error-columns = e\n", ":1: error-columns is not an option; did you mean error-column?"),
    ("job = more.conf\n", ":1: job cannot be set in a config file"),
    ("{\"model\": 1}\n", ":1: expected 'name = value', got '{\"model\": 1}'"),
])
def test_wrong(tmp_path, text, message):
    job = tmp_path / "job.conf"
    job.write_text(text)
    assert f"{job}{message}" in millrace("batch", "run", "--job", job, code=2).stderr

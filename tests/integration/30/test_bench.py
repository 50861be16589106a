"""The bench runs, names what is missing in place of a figure, and judges. Its figures do not matter here."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lib import wait

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments):
    return subprocess.run([sys.executable, ROOT / "bench/run", *arguments], capture_output=True, text=True,
                          timeout=wait.PATIENCE)


@pytest.mark.release_only("measures the release build")
def test_a_row_without_triton(tmp_path):
    done = run("--only", "start-demo", "--rounds", "2", "--no-triton", "--json", str(tmp_path / "figures"))
    assert done.returncode == 0, done.stderr
    row, = json.loads((tmp_path / "figures").read_text())["rows"]
    ready = row["contenders"]["millrace"]["ready"]
    assert len(ready["rounds"]) == 2 and min(ready["rounds"]) <= ready["median"] <= max(ready["rounds"])
    assert row["missing"]["triton"] == "left out by --no-triton" and "triton" not in row["contenders"]
    target, = row["targets"]
    assert target["met"] is (target["value"] <= 30)
    assert "triton: not measured: left out by --no-triton" in done.stdout


JUDGE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from lib import report, rows
row = next(r for r in rows.all_rows() if r.key == "rest-json")
found = report.result(row, {"millrace": {"rate": [100.0, 300.0, 200.0], "cpu": [1.0, 1.0, 1.0]},
                            "nginx": {"rate": [100.0, 100.0, 400.0], "cpu": [2.0, 2.0, 2.0]}}, {"triton": "none here"})
print(json.dumps([found["targets"], report.as_text(found)]))
"""


NO_CPU = """
import json, sys
sys.path.insert(0, sys.argv[1])
from lib import report
row = lambda *other: {"contenders": {"millrace": {"cpu": {"rounds": [1.0, 0.0]}}, "nginx": {"cpu": {"rounds": other}}}}
print(json.dumps([report.cpu_text(row(0.0, 0.0)), report.cpu_text(row(2.0, 0.0))]))
"""


def test_rounds_too_short_for_cpu_time():
    done = subprocess.run([sys.executable, "-c", NO_CPU, ROOT / "bench"], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0 and json.loads(done.stdout) == ["", "CPU 0.50 × nginx's"], done.stderr


def test_earlier_figures_are_quoted_and_never_compared():
    done = subprocess.run([sys.executable, "-c", JUDGE, ROOT / "bench"], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    (triton, nginx), text = json.loads(done.stdout)
    assert triton["value"] is None and triton["met"] is None
    assert nginx["value"] == 1.0 and nginx["met"] is True  # the median of 1, 3 and 0.5, not the ratio of medians
    assert "measured earlier on another machine" in text and "not judged" in text and "0.50 × nginx's" in text


BETTER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from lib import bench, load
one, two = {"rate": [1.0, 5.0, 2.0], "cpu": [9.0] * 3}, {"rate": [3.0, 3.0, 3.0], "cpu": [8.0] * 3}
pick = lambda a, b: bench.better_triton({"triton": dict(a), bench.TRITON_TWO: dict(b)})
print(json.dumps([pick(one, two), pick(two, one), bench.better_triton({"triton": one}),
                  [load.seconds_of(f"finished in {t}, 9 req/s") for t in ("1.50s", "20ms", "300us")]]))
"""


def test_the_better_triton_is_compared():
    done = subprocess.run([sys.executable, "-c", BETTER, ROOT / "bench"], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    first, second, alone, seconds = json.loads(done.stdout)
    assert first == {"triton": {"rate": [3.0] * 3, "cpu": [8.0] * 3, "instances": [2] * 3}}
    assert second["triton"]["instances"] == [1] * 3 and "instances" not in alone["triton"]
    assert seconds == [1.5, 0.02, 0.0003]


def test_an_unknown_row_is_named():
    done = run("--only", "nothing-like-it")
    assert done.returncode != 0 and "rest-json" in done.stderr


TABLES = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lib import machine, markdown, report, rows
row = next(r for r in rows.all_rows() if r.key == "table-net")
found = report.result(row, {"millrace": {"rows": [3e6], "worker cpu": [9e5], "peak rss": [90.0]},
                            "script": {"rows": [1e6], "worker cpu": [3e6], "peak rss": [200.0]}}, {})
machine.ROOT = Path(sys.argv[2])
run = {"machine": {"date": "D", "cpu": "C", "cpus": 2, "kernel": "K", "load_before": 3.0}, "versions": {}, "rounds": 1, "seconds": 1}
markdown.update(dict(run, rows=[found]))
"""


def test_tables_have_a_part_of_the_page(tmp_path):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs/performance.md"
    page.write_text("<!-- bench: begin -->\nkept\n<!-- bench: end -->\n<!-- bench of tables: begin -->\nold\n<!-- bench of tables: end -->\n")
    done = subprocess.run([sys.executable, "-c", TABLES, ROOT / "bench", tmp_path], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "kept" in text and "old" not in text
    assert "| 3,000,000 rows/s, 900.0 ms CPU, 90 MB | script 1,000,000 rows/s, 3.00 s CPU, 200 MB |" in text
    assert "3.00 × script" in text and "target" not in text and "busy with other work" in text


AGAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from lib import bench, machine
tried = []
def begin(*_):
    tried.append(1)
    if len(tried) < 2:
        raise machine.Ended("another program has its port")
    return "server"
bench.Millrace = begin
assert bench.Bench("", 1, 1).begin("millrace", "repository") == "server" and len(tried) == 2
try:
    with machine.Clock() as clock:
        pass
    assert clock.late_us >= 0
except machine.Missing as e:
    assert "real-time" in str(e)
"""


def test_a_server_that_ends_at_start_is_begun_again_and_the_clock_is_watched():
    done = subprocess.run([sys.executable, "-c", AGAIN, ROOT / "bench"], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr

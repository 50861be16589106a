"""Where rows come from: columns of the results that no table has to have, and what of a job is done before a plan."""
import json
import subprocess

import pytest

from lib import wait
from lib.batch import Host, Poisoned, command, dead, environment, hosts, pytestmark, results, run, table  # noqa: F401

ROWS = 3000


def retry(folder, addresses, *args):
    words = command(folder, addresses, *args)
    words[2] = "retry-dlq"
    subprocess.run(words, env=environment(), check=True, capture_output=True, timeout=wait.PATIENCE)


@pytest.mark.parametrize("args", [[], ["--shard", "1/2"]], ids=["all", "shard"])
def test_parquet(tmp_path, args):
    table(tmp_path / "in", ROWS, files=2)
    with hosts(Poisoned, Host) as (addresses, _):
        run(tmp_path, addresses[:1], "--keep", "file_row_number,filename", *args)
        retry(tmp_path, addresses[1:], "--keep", "file_row_number,filename", *args)
    if args:
        (tmp_path / "out/shard-00001-of-00002").rename(tmp_path / "shard")
        (tmp_path / "out").rmdir()
        (tmp_path / "shard").rename(tmp_path / "out")
    rows = results(tmp_path).to_pylist()
    assert len(rows) == (ROWS // 2 if args else ROWS)
    for row in rows:
        assert row["filename"] == str(tmp_path / f"in/{row['id'] // (ROWS // 2)}.parquet")
        assert row["file_row_number"] == row["id"] % (ROWS // 2)


def test_text_and_own_column(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "ab":
        lines = [json.dumps({"id": i, "x": [1, 2, 3, 4], "name": "n", "filename": f"own {i}"}) if i != 3 else "{" for i in range(9)]
        (tmp_path / f"in/{name}.jsonl").write_text("\n".join(lines))
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, "--keep", "file_row_number,filename", "--output-format", "jsonl")
    rows = [json.loads(line) for f in (tmp_path / "out/parts").iterdir() for line in f.read_text().splitlines()]
    assert len(rows) == 16 and len(dead(tmp_path)) == 2
    assert all(r["file_row_number"] == r["id"] and r["filename"] == f"own {r['id']}" for r in rows)


def test_plan_of_the_rest(tmp_path):
    table(tmp_path / "in", ROWS)
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
        done = run(tmp_path, addresses, "--plan", "--json").stdout
        assert {k: v for k, v in json.loads(done).items() if k in ("rows", "done_rows", "calls", "seconds")} == {
            "rows": ROWS, "done_rows": ROWS, "calls": 0, "seconds": 0}
        assert f"done     {ROWS} rows, by earlier starts" in run(tmp_path, addresses, "--plan").stdout

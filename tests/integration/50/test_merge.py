"""`millrace batch merge`: fewer files of results, read back with other readers."""
import json
import os
import random
import subprocess
import time

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import wait
from lib.batch import Host, Poisoned, check, command, dead, environment, hosts, pytestmark, results, run, table
from lib.server import BIN


def merge(folder, *args, code=0, files=None):
    """With at most that many descriptors. (A preexec_fn would run what gRPC does at a fork, which may abort.)"""
    limit = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"] if files else []
    done = subprocess.run([*limit, str(BIN), "batch", "merge", str(folder / "out"), *map(str, args)], capture_output=True, text=True,
                          env=environment(), timeout=wait.PATIENCE)
    assert done.returncode == code, done.stderr
    return done.stderr


def parts(folder):
    return sorted((folder / "out/parts").iterdir())


def job(folder, handler, *args, rows=4000):
    """A finished one with many files."""
    x = table(folder / "in", rows)
    with hosts(handler) as (addresses, _):
        run(folder, addresses, "--part-bytes", "2KiB", "--extent-rows", 300, *args)
    assert len(parts(folder)) > 4
    return x


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_one_file_of_parquet(tmp_path, compression):
    job(tmp_path, Host, "--compression", compression)
    before = {f.name: f.read_bytes() for f in parts(tmp_path)}
    text = merge(tmp_path, "--output", tmp_path / "all.parquet")
    assert "4000 rows" in text and f"{len(before)} files before, 1 now" in text
    assert {f.name: f.read_bytes() for f in parts(tmp_path)} == before
    assert sorted(f.name for f in tmp_path.iterdir()) == ["all.parquet", "in", "out"]
    got, want = pq.ParquetFile(tmp_path / "all.parquet"), results(tmp_path)
    rows = got.read()
    assert rows.schema.equals(want.schema) and rows.sort_by("id").equals(want.sort_by("id"))
    assert pq.read_table(tmp_path / "all.parquet", page_checksum_verification=True).num_rows == 4000
    groups = [g for f in before for g in [pq.ParquetFile(tmp_path / "out/parts" / f).metadata]]
    assert got.metadata.num_row_groups == sum(g.num_row_groups for g in groups)
    found, were = [], []
    for meta, into in [(got.metadata, found), *((g, were) for g in groups)]:
        for i in range(meta.num_row_groups):
            for k in range(meta.num_columns):
                c = meta.row_group(i).column(k)
                s = c.statistics
                into.append((c.path_in_schema, c.num_values, c.total_compressed_size, s and (s.min, s.max, s.null_count)))
    assert sorted(map(str, found)) == sorted(map(str, were))
    assert duckdb.sql(f"SELECT count(*), count(DISTINCT id), sum(y), sum(z[2]) FROM '{tmp_path}/all.parquet'").fetchall() == \
        duckdb.sql(f"SELECT count(*), count(DISTINCT id), sum(y), sum(z[2]) FROM '{tmp_path}/out/parts/*.parquet'").fetchall()
    assert duckdb.sql(f"SELECT name FROM '{tmp_path}/all.parquet' WHERE id = 3210").fetchall() == [("row 3210",)]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_one_file_of_text(tmp_path, form):
    job(tmp_path, Host, "--output-format", form)
    merge(tmp_path, "--output", tmp_path / f"all.{form}")
    lines = (tmp_path / f"all.{form}").read_text().splitlines()
    if form == "csv":
        assert lines.pop(0) == "id,name,y,z" and "id,name,y,z" not in lines
    assert sorted(lines) == sorted(line for f in parts(tmp_path) for line in f.read_text().splitlines()
                                   if line != "id,name,y,z")
    assert len(lines) == 4000


def test_in_the_folder(tmp_path):
    """The job stays one: dead letters, manifest and all."""
    x = job(tmp_path, Poisoned)
    size = max(f.stat().st_size for f in parts(tmp_path))
    merge(tmp_path, "--max-bytes", 3 * size)
    check(tmp_path, x, gone=[777])
    assert all(f.stat().st_size <= 3 * size for f in parts(tmp_path))
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["results"] == 3999 and (tmp_path / "out/_SUCCESS").exists()
    assert sum(i.get("rows", 0) for i in json.loads((tmp_path / "out/manifest.json").read_text())["items"]) == 3999
    merge(tmp_path, "--max-bytes", "1GiB")
    assert len(parts(tmp_path)) == 1
    letter, = dead(tmp_path)
    assert letter["row"] == 777
    with hosts(Host) as (addresses, made):
        run(tmp_path, addresses, "--verify")
        assert made[0].calls == 0
        args = command(tmp_path, addresses)
        args[args.index("run")] = "retry-dlq"
        subprocess.run(args, check=True, capture_output=True, env=environment(), timeout=wait.PATIENCE)
    check(tmp_path, x)


def test_more_files_than_descriptors(tmp_path):
    x = job(tmp_path, Host, "--part-bytes", 1, "--extent-rows", 100)
    assert len(parts(tmp_path)) == 40
    merge(tmp_path, "--output", tmp_path / "all.parquet", files=20)
    merge(tmp_path, "--max-bytes", "1GiB", files=20)
    assert len(parts(tmp_path)) == 1
    check(tmp_path, x)


@pytest.mark.more
def test_killed_while_it_merges(tmp_path):
    """Nothing is lost or doubled; the next one does the rest."""
    x = job(tmp_path, Host)
    rng = random.Random(3)
    with hosts(Host) as (addresses, made):
        for k in range(12):
            process = subprocess.Popen([str(BIN), "batch", "merge", str(tmp_path / "out"), "--max-bytes", str(20000 + 5000 * k)],
                                       stderr=subprocess.DEVNULL, env=environment())
            time.sleep(rng.uniform(0, 0.05) * wait.SLOW)
            process.kill()
            process.wait()
            run(tmp_path, addresses, "--part-bytes", "2KiB", "--extent-rows", 300)
            check(tmp_path, x)
        assert made[0].calls == 0
    merge(tmp_path, "--max-bytes", "1GiB")
    check(tmp_path, x)
    assert len(parts(tmp_path)) == 1


def test_what_cannot_be_merged(tmp_path):
    (tmp_path / "out").mkdir()
    assert "no job" in merge(tmp_path, "--max-bytes", "1GiB", code=1)
    assert "expected --output FILE or --max-bytes SIZE" in merge(tmp_path, code=2)
    assert "expected --output FILE or --max-bytes SIZE" in merge(tmp_path, "--output", "a", "--max-bytes", 5, code=2)
    job(tmp_path, Host)
    assert "nowhere" in merge(tmp_path, "--output", tmp_path / "nowhere/a.parquet", code=1)
    os.remove(tmp_path / "out/_SUCCESS")
    assert "is not finished" in merge(tmp_path, "--output", tmp_path / "a.parquet", code=1)
    assert not (tmp_path / "a.parquet").exists()
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, "--part-bytes", "2KiB", "--extent-rows", 300)
    torn = parts(tmp_path)[0]
    pq.write_table(pa.table({"id": [1]}), torn)
    assert torn.name in merge(tmp_path, "--output", tmp_path / "a.parquet", code=1)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["in", "out"]

"""Tables in a storage that speaks S3, which checks signatures: found, read by ranges, and faults during that."""
import gzip
import io
import json
import os
import re
import subprocess
import threading

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import batch, wait
from lib.services import s3

pytestmark = batch.pytestmark
SLOW_DOWN = 503


@pytest.fixture(scope="module")
def storage():
    with s3.storage() as found:
        found.client.create_bucket(Bucket="data")
        yield found


@pytest.fixture(scope="module")
def host():
    with batch.hosts(batch.Host) as (addresses, _):
        yield addresses[0]


def lines(first, end):
    return "".join(json.dumps({"id": i, "x": [float(i % 7)] * batch.WIDTH, "name": f"row {i}"}) + "\n"
                   for i in range(first, end)).encode()


def parquet(first, end, **options):
    """The column big is never asked for."""
    keys, out = numpy.arange(first, end), io.BytesIO()
    pq.write_table(pa.table({"id": keys, "x": pa.array([[float(i % 7)] * batch.WIDTH for i in keys], pa.list_(pa.float32())),
                             "big": [os.urandom(300) for _ in keys], "name": [f"row {i}" for i in keys]}),
                   out, row_group_size=1000, **options)
    return out.getvalue()


def command(folder, host, *inputs, args=()):
    words = [str(batch.BIN), "batch", "run", "-m", "m", "--hosts", host, "-o", str(folder / "out"), "--keep", "id,name",
             "--batch-rows", "100", "--spool", str(folder), *map(str, args)]
    for name in inputs:
        words += ["-i", name]
    return words


def run(folder, host, env, *inputs, args=(), code=0):
    done = subprocess.run(command(folder, host, *inputs, args=args), capture_output=True, text=True, env=batch.environment() | env, timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stderr[-3000:]}"
    assert not env.get("AWS_SECRET_ACCESS_KEY") or env["AWS_SECRET_ACCESS_KEY"] not in done.stderr
    return done.stderr


def ids(folder):
    t = batch.results(folder)
    keys = t["id"].to_numpy()
    assert (t["y"].to_numpy() == batch.WIDTH * (keys % 7)).all()
    assert t["name"].to_pylist() == [f"row {k}" for k in keys]
    return sorted(keys.tolist())


# ---- finding


@pytest.fixture(scope="module")
def texts(storage):
    storage.put("data", "t/a.jsonl", lines(0, 900))
    storage.put("data", "t/day=1/b.jsonl.gz", gzip.compress(lines(900, 1500)))
    storage.put("data", "t/\u00e9 +&%41.jsonl", lines(1500, 1600))
    storage.put("data", "t/empty.jsonl", b"")
    for hidden in ("t/_tmp/c.jsonl", "t/.d.jsonl", "t/_SUCCESS", "t/note.txt", "t/dir/"):
        storage.put("data", hidden, b"no rows")


@pytest.mark.few(3)
@pytest.mark.parametrize("names,want", [
    (["s3://data/t/"], [(0, 1600)]),
    (["s3://data/t"], [(0, 1600)]),
    (["s3://data/t/*.jsonl"], [(0, 900), (1500, 1600)]),
    (["s3://data/t/day=*/"], [(900, 1500)]),
    (["s3://data/t/*/*.jsonl*"], [(900, 1500)]),
    (["s3://data/t/d*/*"], [(900, 1500)]),
    (["s3://data/*"], [(0, 1600)]),
    (["s3://data/t/[b-d]*", "s3://data/t/a.jsonl"], [(0, 1500)]),
    (["s3://data/t/\u00e9 +&%41.jsonl"], [(1500, 1600)]),
])
def test_objects_are_found(storage, texts, host, tmp_path, names, want):
    if names == ["s3://data/*"]:  # other tests put other formats there
        names = ["s3://data/[t]"]
    run(tmp_path, host, storage.environment(), *names, args=["--input-format", "jsonl"])
    assert ids(tmp_path) == [i for first, end in want for i in range(first, end)]


@pytest.mark.parametrize("name,env,args,words", [
    ("s3://data/none.jsonl", {}, [], "s3://data/none.jsonl: NoSuchKey, HTTP status 404"),
    ("s3://data/none/", {}, [], "no object is found below 's3://data/none/'"),
    ("s3://data/none*", {}, [], "no object is found by 's3://data/none*'"),
    ("s3://nobody/x/", {}, [], "s3://nobody/: NoSuchBucket"),
    ("s3://No/x", {}, [], "expected s3://BUCKET/KEY"),
    ("s3://data/t/a.jsonl", {"AWS_SECRET_ACCESS_KEY": "wrong"}, [], "SignatureDoesNotMatch, HTTP status 403"),
    ("s3://data/t/a.jsonl", {"AWS_ACCESS_KEY_ID": "AKIAWHO"}, [], "InvalidAccessKeyId, HTTP status 403"),
    ("s3://data/t/a.jsonl", {}, ["--s3-anonymous"], "s3://data/t/a.jsonl: HTTP status 403"),
    ("s3://data/t/a.jsonl", {}, ["--input-format", "arrow"], "Arrow IPC is read from files, not from objects of S3"),
    ("s3://data/t/a.jsonl", {}, ["--s3-endpoint", "127.0.0.1:1"], "is not an endpoint of S3"),
    ("s3://data/t/a.jsonl", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": "/nowhere", "AWS_EC2_METADATA_DISABLED": "true"}, [],
     "no credentials for S3: set AWS_ACCESS_KEY_ID"),
])
def test_what_is_wrong_is_named(storage, texts, host, tmp_path, name, env, args, words):
    assert words in run(tmp_path, host, storage.environment() | env, name, args=args, code=1)


def test_credentials_of_a_profile(storage, texts, host, tmp_path):
    (tmp_path / "keys").write_text(f"[lab]\naws_access_key_id = {storage.key}\naws_secret_access_key = {storage.secret}\n")
    env = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"), "AWS_PROFILE": "lab", "AWS_ENDPOINT_URL": storage.endpoint}
    run(tmp_path, host, env, "s3://data/t/a.jsonl")
    assert ids(tmp_path) == list(range(900))


# ---- ranges


def test_only_the_columns_that_are_wanted(storage, host, tmp_path):
    storage.put("data", "p/day=1/a.parquet", parquet(0, 3000))
    storage.put("data", "p/day=2/b.parquet", parquet(3000, 5000, compression="zstd", write_page_index=True))
    size = sum(len(storage.get("data", k)) for k in storage.keys("data", "p/"))
    with s3.faulty(storage, lambda *_: None) as proxy:
        run(tmp_path, host, storage.environment(proxy.endpoint), "s3://data/p/", args=["--keep", "day", "--columns", "id,x,name,day"])
        asked = 0
        for method, path, headers in proxy.requests:
            if "range" in headers:
                first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", headers["range"]).groups())
                asked += last - first + 1
                assert headers["if-match"]
    assert ids(tmp_path) == list(range(5000))
    assert sorted(set(batch.results(tmp_path)["day"].to_pylist())) == [1, 2]
    assert asked < size / 2, (asked, size)
    assert not list(tmp_path.glob("millrace-*")), "the spool's folder is left"


def test_columns_that_the_key_names_too(storage, host, tmp_path):
    """The file's own columns count. They are far from those that are fetched."""
    keys, far, out = list(range(300)), [os.urandom(1000) for _ in range(300)], io.BytesIO()
    pq.write_table(pa.table({"id": keys, "x": pa.array([[k % 7.0] * batch.WIDTH for k in keys], pa.list_(pa.float32())),
                             "name": [f"row {k}" for k in keys], "far": far, "day": keys, "lr": keys, "end": far}), out,
                   write_page_checksum=True)
    storage.put("data", "keys/day=7/lr=0.1.parquet", out.getvalue())
    run(tmp_path, host, storage.environment(), "s3://data/keys/", args=["--keep", "day,lr", "--columns", "id,x,name,day,lr"])
    assert ids(tmp_path) == keys
    found = batch.results(tmp_path)
    assert found["lr"] == found["id"] and found["day"] == found["id"]


def test_large_objects_come_in_pieces_side_by_side(storage, host, tmp_path):
    body = b"".join(json.dumps({"id": i, "x": [0.0] * batch.WIDTH, "name": f"row {i}", "pad": "p" * 20000}).encode() + b"\n"
                    for i in range(700))
    storage.put("data", "large/a.jsonl", body)
    with s3.faulty(storage, lambda *_: None) as proxy:
        run(tmp_path, host, storage.environment(proxy.endpoint), "s3://data/large/a.jsonl")
        ranges = [h["range"] for m, p, h in proxy.requests if "range" in h]
    assert sorted(batch.results(tmp_path)["id"].to_pylist()) == list(range(700))
    assert len(set(ranges)) >= 4 and max(int(r.split("-")[1]) for r in ranges) == len(body) - 1


def test_a_plan_reads_samples(storage, texts, host, tmp_path):
    storage.put("data", "plan/a.jsonl", lines(0, 30000))
    env = storage.environment()
    words = [str(batch.BIN), "batch", "run", "-m", "m", "--hosts", host, "-o", str(tmp_path / "out"), "-i", "s3://data/plan/",
             "--plan", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, env=batch.environment() | env, timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    assert 27000 < json.loads(done.stdout)["rows"] < 33000
    assert not (tmp_path / "out").exists()


# ---- faults


def every(n, what):
    return lambda method, path, number: what if number % n == 0 else None


@pytest.mark.few(2)
@pytest.mark.parametrize("fault", [every(2, SLOW_DOWN), every(3, "cut"), every(3, "lost"), every(4, 500)])
def test_failures_that_pass(storage, texts, host, tmp_path, fault):
    storage.put("data", "f/a.parquet", parquet(0, 2000))
    with s3.faulty(storage, fault) as proxy:
        run(tmp_path, host, storage.environment(proxy.endpoint), "s3://data/f/")
        assert ids(tmp_path) == list(range(2000))
        other = tmp_path / "text"
        other.mkdir()
        run(other, host, storage.environment(proxy.endpoint), "s3://data/t/")
        assert ids(other) == list(range(1600))


def test_an_outage_is_waited_for_and_told(storage, texts, host, tmp_path):
    with s3.faulty(storage, lambda *_: SLOW_DOWN) as proxy:
        said = run(tmp_path, host, storage.environment(proxy.endpoint), "s3://data/t/a.jsonl", args=["--max-outage", "5s"],
                   code=1)
    assert "s3://data/t/a.jsonl: HTTP status 503; tried again" in said
    assert len(proxy.requests) > 2


class Slow(batch.Host):
    """The table is opened when it has reported the model: the reader and the job, which check for a stop every 0.2 s, do so
    at different times."""
    folder = None

    def do_GET(self):
        wait.until(lambda: batch.asked(self.folder)["ran_s"] > 0.15, "the job to run", step=0.01)
        super().do_GET()


@pytest.mark.more
@pytest.mark.parametrize("first", [1, 4, 5, 6])
def test_stopped_while_the_storage_is_away(storage, host, tmp_path, first):
    """It is away from the first request on, when the table is opened, or while it is read. What is not read is not done."""
    storage.put("data", "stop/a.jsonl", lines(0, 20000))
    storage.put("data", "stop/b.jsonl", lines(20000, 40000))
    is_away = threading.Event()

    def away(method, path, number):
        if number > first:  # twice
            is_away.set()
        return SLOW_DOWN if number >= first else None

    with s3.faulty(storage, away) as proxy, batch.hosts(type("SlowHere", (Slow,), {"folder": tmp_path})) as (addresses, _):
        env = batch.environment() | storage.environment(proxy.endpoint)
        process = subprocess.Popen(command(tmp_path, addresses[0], "s3://data/stop/", args=["--max-outage", "1h"]), env=env,
                                   stderr=subprocess.PIPE, text=True)
        try:
            assert is_away.wait(wait.PATIENCE)
            process.terminate()
            _, said = process.communicate(timeout=wait.PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 1, said
    run(tmp_path, host, storage.environment(), "s3://data/stop/")
    assert ids(tmp_path) == list(range(40000))


def test_a_changed_object_is_noticed(storage, host, tmp_path):
    """In the middle of a run, and at the next start."""
    key, good = "changes/a.jsonl", lines(0, 40000)
    storage.put("data", key, good)
    env = storage.environment()

    def change(method, path, number):
        if number == 4:
            storage.put("data", key, lines(1, 40001))

    with s3.faulty(storage, change) as proxy:
        said = run(tmp_path, host, storage.environment(proxy.endpoint), f"s3://data/{key}", code=1)
    assert f"'s3://data/{key}' has changed since it was opened" in said
    assert "was begun with another input 0" in run(tmp_path, host, env, f"s3://data/{key}", code=1)
    storage.put("data", key, good)  # what it was: the same ETag
    run(tmp_path, host, env, f"s3://data/{key}")
    assert ids(tmp_path) == list(range(40000))


def test_what_is_no_table(storage, host, tmp_path):
    for name, body in {"short.parquet": b"PAR1", "garbage.parquet": os.urandom(200000), "cut.parquet": parquet(0, 2000)[:-5],
                       "lie.parquet": b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1",
                       "odd.parquet": b"PAR1" + os.urandom(5000) + (4000).to_bytes(4, "little") + b"PAR1"}.items():
        storage.put("data", f"bad/{name}", body)
        said = run(tmp_path, host, storage.environment(), f"s3://data/bad/{name}", code=1)
        assert f"s3://data/bad/{name}" in said, said

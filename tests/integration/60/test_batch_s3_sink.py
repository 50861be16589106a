"""Results as objects of a storage that speaks S3: each row once, whatever is killed, lost or away."""
import contextlib
import io
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import threading

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import batch, wait
from lib.services import s3

pytestmark = batch.pytestmark
ROWS = 600


@pytest.fixture(scope="module")
def storage():
    with s3.storage() as found:
        found.client.create_bucket(Bucket="out")
        yield found


@pytest.fixture(scope="module")
def host():
    with batch.hosts(batch.Host) as (addresses, _):
        yield addresses[0]


@pytest.fixture
def place(request):
    """A prefix of the test's own."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name) + "/"


def table(folder, rows=ROWS, pad=0):
    """JSON lines; with a column of `pad` bytes, which nothing compresses away."""
    folder.mkdir(exist_ok=True)
    rng = numpy.random.default_rng(3)
    with open(folder / "in.jsonl", "w") as f:
        for i in range(rows):
            f.write(json.dumps({"id": i, "x": [float(i % 7)] * batch.WIDTH, "name": rng.bytes(pad // 2).hex()}) + "\n")


def words(folder, host, place, *args, sub="run"):
    return [str(batch.BIN), "batch", sub, "-i", str(folder / "in.jsonl"), "-m", "m", "--hosts", host, "-o", str(folder / "job"),
            "--output-objects", f"s3://out/{place}", "--keep", "id,name", "--batch-rows", "50", "--extent-rows", "100",
            *map(str, args)]


def run(folder, host, place, env, *args, code=0, sub="run"):
    done = subprocess.run(words(folder, host, place, *args, sub=sub), capture_output=True, text=True,
                          env=batch.environment() | env, timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stderr[-3000:]}"
    assert env["AWS_SECRET_ACCESS_KEY"] not in done.stderr
    return done.stderr


def check(storage, place, rows=ROWS, gone=()):
    """What manifest.json names is all there is, and has each row once."""
    manifest = json.loads(storage.get("out", place + "manifest.json"))
    names = [o["key"] for o in manifest["objects"]]
    assert sorted(names + [place + n for n in ("_SUCCESS", "_job.json", "manifest.json")]) == sorted(storage.keys("out", place))
    assert not [k for k in storage.uploads("out") if k.startswith(place)]
    tables = []
    for o in manifest["objects"]:
        body = storage.get("out", o["key"])
        assert len(body) == o["bytes"]
        tables.append(pq.read_table(io.BytesIO(body)))
        assert tables[-1].num_rows == o["rows"]
    t = pa.concat_tables(tables)
    keys = t["id"].to_numpy()
    assert sorted(keys.tolist()) == [i for i in range(rows) if i not in gone]
    assert (t["y"].to_numpy() == batch.WIDTH * (keys % 7)).all()
    assert manifest["rows"] == rows - len(gone) and manifest["dead"] == len(gone)
    return names


def test_results_are_objects(storage, host, place, tmp_path):
    table(tmp_path)
    env = storage.environment()
    run(tmp_path, host, place, env, "--part-bytes", 4000)
    names = check(storage, place)
    assert len(names) > 1 and not list((tmp_path / "job/parts").iterdir())
    run(tmp_path, host, place, env | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "--part-bytes", 4000)  # it is finished
    said = subprocess.run([str(batch.BIN), "batch", "merge", str(tmp_path / "job"), "--output", str(tmp_path / "all.parquet")],
                          capture_output=True, text=True, env=batch.environment())
    assert said.returncode == 1 and "there are no files to merge" in said.stderr


def test_a_new_job_deletes_nothing(storage, host, place, tmp_path):
    """It needs no right to: where it had none, its place would be taken before that is known."""
    table(tmp_path)
    with s3.faulty(storage, lambda method, p, n: (403, "AccessDenied", []) if method == "DELETE" else None) as proxy:
        run(tmp_path, host, place, storage.environment(proxy.endpoint))
    check(storage, place)


def test_in_the_order_of_the_input(storage, host, place, tmp_path):
    table(tmp_path)
    run(tmp_path, host, place, storage.environment(), "--part-bytes", 4000, "--order", "logical")
    names = check(storage, place)
    assert names == sorted(names) and len(names) > 1
    rows = [i for n in names for i in pq.read_table(io.BytesIO(storage.get("out", n)))["id"].to_pylist()]
    assert rows == list(range(ROWS))


def test_large_ones_go_in_pieces(storage, host, place, tmp_path):
    """They have memory of their own: no full disk, which would be waited for."""
    table(tmp_path, pad=50000)
    with s3.faulty(storage, lambda *_: None) as proxy:
        said = run(tmp_path, host, place, storage.environment(proxy.endpoint), "--part-bytes", "1GiB", "--memory", "1MiB",
                   "--commit-interval", "600")
        assert "batch.disk_failed" not in said
        assert [p for m, p, h in proxy.requests if m == "PUT" and "partNumber=3" in p]
    check(storage, place)


# ---- whose place it is


def test_a_place_that_holds_other_things(storage, host, place, tmp_path):
    table(tmp_path)
    storage.put("out", place + "old.parquet", b"x")
    assert f"holds other things ({place}old.parquet)" in run(tmp_path, host, place, storage.environment(), code=1)
    assert storage.keys("out", place) == [place + "old.parquet"]


def test_a_place_of_another_job(storage, host, place, tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    table(first)
    table(second)
    run(first, host, place, storage.environment())
    assert f"s3://out/{place} belongs to another job" in run(second, host, place, storage.environment(), code=1)
    check(storage, place)


def test_another_place_for_the_same_job(storage, host, place, tmp_path):
    table(tmp_path)
    run(tmp_path, host, place, storage.environment())
    assert "was begun with another place of results" in run(tmp_path, host, place + "other/", storage.environment(), code=1)


@pytest.mark.parametrize("damage,words_", [(None, "was committed and is missing"), (b"short", "has 5 bytes, and ")])
def test_a_committed_object_is_missed(storage, host, place, tmp_path, damage, words_):
    table(tmp_path)
    env = storage.environment()
    run(tmp_path, host, place, env)
    os.unlink(tmp_path / "job/_SUCCESS")
    name = check(storage, place)[0]
    storage.client.delete_object(Bucket="out", Key=name) if damage is None else storage.put("out", name, damage)
    assert f"s3://out/{name} {words_}" in run(tmp_path, host, place, env, code=1)


# ---- faults


@pytest.mark.few
@pytest.mark.parametrize("pad", [0, 50000])
def test_answers_that_are_lost(storage, host, place, tmp_path, pad):
    """Every request that changes something is done, reported as lost, and sent again."""
    seen = set()

    def once(method, path, number):
        if method in ("PUT", "POST", "DELETE") and (method, path) not in seen:
            seen.add((method, path))
            return "lost"

    table(tmp_path, pad=pad)
    with s3.faulty(storage, once) as proxy:
        run(tmp_path, host, place, storage.environment(proxy.endpoint))
    assert len(seen) >= 4
    check(storage, place)


def test_a_storage_that_is_away_for_a_while(storage, host, place, tmp_path):
    """From its fifth request on, for a second or two."""
    refused = itertools.count()
    table(tmp_path)

    with s3.faulty(storage, lambda m, p, number: 503 if number > 4 and next(refused) < 4 else None) as proxy:
        said = run(tmp_path, host, place, storage.environment(proxy.endpoint), "--part-bytes", 4000)
    assert "HTTP status 503" in said and "tried again" in said
    check(storage, place)


def test_a_storage_that_stays_away(storage, host, place, tmp_path):
    table(tmp_path)
    with s3.faulty(storage, lambda m, p, n: 503 if "p-0" in p else None) as proxy:
        said = run(tmp_path, host, place, storage.environment(proxy.endpoint), "--max-outage", "5s", code=1)
    assert "HTTP status 503" in said
    assert place + "_SUCCESS" not in storage.keys("out", place)
    run(tmp_path, host, place, storage.environment())
    check(storage, place)


def catches(pid, number):
    with open(f"/proc/{pid}/status") as f:
        caught = next(int(line.split()[1], 16) for line in f if line.startswith("SigCgt:"))
    return caught >> (number - 1) & 1


def test_stopped_while_the_storage_is_away(storage, host, place, tmp_path):
    """A first signal lets what is under way be committed for 30 s, a second one does not."""
    table(tmp_path)
    is_away = threading.Event()

    def away(method, path, number):
        if "p-0" in path and method in ("PUT", "POST"):
            is_away.set()
            return 503
        return None

    with s3.faulty(storage, away) as proxy:
        env = batch.environment() | storage.environment(proxy.endpoint)
        process = subprocess.Popen(words(tmp_path, host, place, "--max-outage", "1h"), env=env, stderr=subprocess.PIPE, text=True)
        try:
            assert is_away.wait(wait.PATIENCE)
            process.terminate()
            wait.until(lambda: not catches(process.pid, signal.SIGTERM), "the first signal")
            process.terminate()
            _, said = process.communicate(timeout=wait.PATIENCE)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGTERM, said
    run(tmp_path, host, place, storage.environment())
    check(storage, place)


def kills(storage, host, place, folder, number, is_done):
    """kill -9 when the storage gets the number-th request that changes something; is_done: it does it first."""
    process, count = [], itertools.count(1)

    def kill(method, path, _):
        if method not in ("PUT", "POST", "DELETE") or next(count) != number:
            return None
        if not is_done:
            process[0].send_signal(signal.SIGKILL)
            return 503
        return lambda headers, body: (process[0].send_signal(signal.SIGKILL), (headers, body))[1]

    with s3.faulty(storage, kill) as proxy:
        env = batch.environment() | storage.environment(proxy.endpoint)
        with subprocess.Popen(words(folder, host, place, "--part-bytes", 4000), env=env, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as p:
            process.append(p)
            return p.wait(wait.PATIENCE) == -signal.SIGKILL


@pytest.mark.few
@pytest.mark.parametrize("is_done", [False, True])
def test_killed_at_each_request(storage, host, place, tmp_path, is_done):
    """One job; each start is killed a request later than the one before."""
    table(tmp_path, rows=1000)
    killed = sum(kills(storage, host, place, tmp_path, n, is_done) for n in range(1, int(os.environ.get("MR_S3_KILLS", 8))))
    assert killed >= 4
    run(tmp_path, host, place, storage.environment(), "--part-bytes", 4000)
    check(storage, place, rows=1000)


def test_killed_between_pieces(storage, host, place, tmp_path):
    """An upload that was cut off is ended by the next start; one of another job, whose place is within this one, is not."""
    table(tmp_path, pad=50000)
    with s3.faulty(storage, lambda m, p, n: 503 if "partNumber=3" in p else None) as proxy:
        env = batch.environment() | storage.environment(proxy.endpoint)
        with subprocess.Popen(words(tmp_path, host, place), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
            wait.until(lambda: [1 for m, path, _ in list(proxy.requests) if "partNumber=3" in path], "the third piece")
            p.kill()
    assert [k for k in storage.uploads("out") if k.startswith(place)]
    other = {"Bucket": "out", "Key": place + "other/p-000001-000001-0123456789abcdef.parquet"}
    upload = storage.client.create_multipart_upload(**other)["UploadId"]
    run(tmp_path, host, place, storage.environment())
    assert [k for k in storage.uploads("out") if k.startswith(place)] == [other["Key"]]
    storage.client.abort_multipart_upload(**other, UploadId=upload)
    check(storage, place)


# ---- afterwards


def test_dead_letters_once_more(storage, place, tmp_path):
    table(tmp_path, rows=1000)
    env = storage.environment()
    with batch.hosts(batch.Poisoned, batch.Host) as (addresses, _):
        run(tmp_path, addresses[0], place, env, "--max-dead", 5)
        check(storage, place, rows=1000, gone=[777])
        run(tmp_path, addresses[1], place, env, sub="retry-dlq")
        check(storage, place, rows=1000)


def test_a_retry_that_is_killed_before_it_commits(storage, host, place, tmp_path):
    """_SUCCESS is put back by the next start, though there was nothing to do but that."""
    table(tmp_path, rows=1000)
    env = storage.environment()
    with batch.hosts(batch.Poisoned) as (addresses, _):
        run(tmp_path, addresses[0], place, env, "--max-dead", 5)
    process = []

    def kill(method, path, _):
        return (lambda *answer: (process[0].kill(), answer)[1]) if method == "DELETE" and path.endswith("_SUCCESS") else None

    with s3.faulty(storage, kill) as proxy:
        with subprocess.Popen(words(tmp_path, host, place, sub="retry-dlq"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=batch.environment() | storage.environment(proxy.endpoint)) as p:
            process.append(p)
            assert p.wait(wait.PATIENCE) == -signal.SIGKILL
    assert place + "_SUCCESS" not in storage.keys("out", place)
    run(tmp_path, host, place, env)
    check(storage, place, rows=1000, gone=[777])


@pytest.mark.parametrize("kind", [batch.Host, batch.Poisoned])
def test_a_finished_job_finds_more_rows(storage, place, tmp_path, kind):
    """Also when the first of them is a dead letter, and nothing else comes."""
    def more(first, end):
        with contextlib.closing(sqlite3.connect(tmp_path / "in.db")) as db, db:
            db.execute("create table if not exists rows (id INTEGER PRIMARY KEY, x TEXT, name TEXT)")
            db.executemany("insert into rows values (?, ?, '')",
                           [(i, json.dumps([float(i % 7)] * batch.WIDTH)) for i in range(first, end)])

    with batch.hosts(kind) as (addresses, _):
        line = words(tmp_path, addresses[0], place, "--table", "rows", "--accept-changed-input", "--max-dead", 5)
        line[line.index("-i") + 1] = f"sqlite:{tmp_path}/in.db"
        for first, end in (0, 777), (777, 778), (778, 900):
            more(first, end)
            done = subprocess.run(line, capture_output=True, text=True, env=batch.environment() | storage.environment(),
                                  timeout=wait.PATIENCE)
            assert done.returncode == 0, f"{done.returncode}: {done.stderr[-3000:]}"
            check(storage, place, rows=end, gone=[777] if kind is batch.Poisoned and end > 777 else [])


# ---- patience


def test_a_storage_that_asks_for_more_patience_than_there_is(storage, host, place, tmp_path):
    """The job neither waits for its pause, nor asks it to abort uploads when it is away."""
    table(tmp_path, pad=50000)
    away = (503, "SlowDown", [("Retry-After", "300")])
    with s3.faulty(storage, lambda m, p, n: away if "p-0" in p and "uploadId" in p else None) as proxy:
        said = run(tmp_path, host, place, storage.environment(proxy.endpoint), "--max-outage", "5s", code=1)
    assert "HTTP status 503" in said
    assert not [p for m, p, _ in proxy.requests if m == "DELETE" and "uploadId" in p]
    run(tmp_path, host, place, storage.environment())
    check(storage, place)


def test_an_object_that_is_seen_late(storage, host, place, tmp_path):
    """The end of an upload was lost, the storage knows the upload no more, and the object not yet."""
    table(tmp_path, pad=50000)
    ends, looks = itertools.count(), itertools.count()

    def late(method, path, _):
        if method == "POST" and "uploadId" in path:
            return "lost" if next(ends) == 0 else (404, "NoSuchUpload", [])
        return (404, "NoSuchKey", []) if method in ("HEAD", "GET") and "/p-0" in path and next(looks) < 2 else None

    with s3.faulty(storage, late) as proxy:
        run(tmp_path, host, place, storage.environment(proxy.endpoint), "--part-bytes", "1GiB")
    assert next(looks) > 2
    check(storage, place)

"""Archives by their addresses in the place of a repository."""
import contextlib
import hashlib
import subprocess
import tarfile

import pytest

from lib import repo, wait
from lib.faults import PROGRAM, Faults
from lib.rest import Rest
from lib.server import BIN
from lib.services import s3
from lib.services.web import serving


@pytest.fixture
def web():
    with serving() as server:
        yield server


def bundle(folder, *names, size=0):
    """An archive of models, of that many bytes and some more, and its checksum."""
    for name in names:
        repo.add(folder / "models", name)
    (folder / "ballast").write_bytes(bytes(i * i % 251 for i in range(251)) * (size // 251))
    target = folder / "bundle.tar"
    with tarfile.open(target, "w") as t:
        for file in ("models", "ballast"):
            t.add(folder / file, file)
    return target.read_bytes(), hashlib.sha256(target.read_bytes()).hexdigest()


def index(server):
    with Rest(server.http) as rest:
        return {m["name"]: m for m in rest.post("/v2/repository/index", "{}").ok().json()}


@pytest.mark.few
@pytest.mark.parametrize("has_ranges", [True, False], ids=["ranges", "whole"])
def test_http(models, start, web, tmp_path, has_ranges):
    """More than a range, over a redirection, beside a folder; a later server with the same cache asks for nothing."""
    content, sha256 = bundle(tmp_path / "b", "a", "b", size=40_000_000)
    web.files["/it/bundle.tar"], web.has_ranges = content, has_ranges
    url = f"--model-repository={web.url}/moved/it/bundle.tar?token=1#sha256={sha256.upper()}"
    repo.add(models, "other")
    server = start(models, url)
    assert {name: m["state"] for name, m in index(server).items()} == {"a": "READY", "b": "READY", "other": "READY"}
    assert web.asked[0] == "/moved/it/bundle.tar?token=1" and web.asked.count("/it/bundle.tar") == (3 if has_ranges else 1)
    assert "token" not in server.err()
    count = len(web.asked)
    server.stop()
    again = start([], url, env={"CACHE_DIRECTORY": str(server.folder / "cache")})
    assert sorted(index(again)) == ["a", "b"] and len(web.asked) == count


def test_refused(models, start, web, tmp_path):
    """The failure of the model by the archive's name, which a load tries again."""
    content, sha256 = bundle(tmp_path / "b", "a")
    web.files["/wrong.tar"] = content
    other = "0" * 64
    server = start(models, f"--model-repository={web.url}/wrong.tar#sha256={other}", f"--model-repository={web.url}/late.tar#sha256={sha256}",
                   mode="explicit")
    with Rest(server.http) as rest:
        assert f"wrong.tar: has the SHA-256 {sha256}, not {other}" in rest.post("/v2/repository/models/wrong/load").error
        assert "late.tar: the server answers with HTTP status 404" in rest.post("/v2/repository/models/late/load").error
        web.files["/late.tar"] = content
        rest.post("/v2/repository/models/a/load").ok()


@pytest.mark.parametrize("text,reason", [
    ("http://127.0.0.1/a.tar", "has no checksum: append #sha256="),
    ("http://127.0.0.1/a.tar#sha256=12", "after '#' come sha256= and 64 hexadecimal digits"),
    ("http://127.0.0.1/a.tar#sha256=" + "g" * 64, "the checksum has a 'g'"),
    ("https://127.0.0.1/a.rar", "is not the address of an archive"),
    ("http://user@127.0.0.1/a.tar#sha256=" + "0" * 64, "is not the address of an archive"),
    ("s3://bucket", "is not the address of an archive"),
    ("file:a.tar", "is not the address of an archive"),
])
def test_no_address(text, reason):
    done = subprocess.run([BIN, "serve", f"--model-repository={text}", "--http-port=0", "--grpc-port=0", "--metrics-port=0"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and reason in done.stderr


def test_file(models, start, tmp_path):
    """Of an archive and of a folder."""
    bundle(tmp_path / "b", "a")
    repo.add(models, "other")
    server = start([], f"--model-repository=file://{tmp_path}/b/bundle.tar", f"--model-repository=file:{models}")
    assert sorted(index(server)) == ["a", "other"]


@contextlib.contextmanager
def bucket():
    with s3.storage() as storage:
        storage.client.create_bucket(Bucket="models")
        yield storage


def test_s3(start, tmp_path):
    """A new object by the same name is an update; one that cannot be used changes nothing."""
    with bucket() as storage:
        storage.put("models", "deep/bundle.tar", bundle(tmp_path / "b", "a")[0])
        server = start([], "--model-repository=s3://models/deep/bundle.tar", "--load-model=*", mode="explicit", env=storage.environment())
        assert sorted(index(server)) == ["a"]
        storage.put("models", "deep/bundle.tar", bundle(tmp_path / "c", "a", "b")[0])
        with Rest(server.http) as rest:
            rest.post("/v2/repository/models/b/load").ok()
        assert {name: m["state"] for name, m in index(server).items()} == {"a": "READY", "b": "READY"}
        storage.put("models", "deep/bundle.tar", b"no archive")
        with Rest(server.http) as rest:
            assert "s3://models/deep/bundle.tar is no whole archive" in rest.post("/v2/repository/models/a/load").error
        assert {name: m["state"] for name, m in index(server).items()} == {"a": "READY", "b": "READY"}
        server.stop()


def test_s3_refused(start):
    with bucket() as storage:
        server = start([], "--model-repository=s3://models/none.tar", mode="explicit", env=storage.environment())
        with Rest(server.http) as rest:
            assert "s3://models/none.tar" in rest.post("/v2/repository/models/none/load").error
        server.stop()


def test_s3_that_does_not_answer(models, start, tmp_path):
    """The start waits for it once, and loads of other models do not, until it is asked again."""
    faults = Faults(tmp_path)
    repo.add(models, "other")
    with bucket() as storage, s3.faulty(storage, lambda *_: 503) as proxy:
        storage.put("models", "bundle.tar", bundle(tmp_path / "b", "a")[0])
        server = start(models, "--model-repository=s3://models/bundle.tar", mode="explicit", ready=False, program=PROGRAM,
                       env=storage.environment(proxy.endpoint) | faults.env)
        wait.until(lambda: len(proxy.requests) > 1, "the second try")
        faults.steady_offset_ns += 21 * 10**9
        server.wait_ready()
        count = len(proxy.requests)
        with Rest(server.http) as rest:
            rest.post("/v2/repository/models/other/load").ok()
            assert "s3://models/bundle.tar" in rest.post("/v2/repository/models/bundle/load").error
        assert len(proxy.requests) == count
        proxy.fault = lambda *_: None
        faults.steady_offset_ns += 31 * 10**9
        with Rest(server.http) as rest:
            rest.post("/v2/repository/models/a/load").ok()
        server.stop()

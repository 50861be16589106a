"""curl as a client: what people type, and what only curl does (Expect, h2c, Unix sockets, odd uploads).

Reuse of an HTTP/2 connection is left to other clients: curl 7.88, Debian 12's, cannot do that with prior knowledge.
"""
import gzip
import json
import re
import shutil
import subprocess
import zlib

import numpy as np
import pytest

from lib.rest import binary_body

pytestmark = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}]})
INFER = "/v2/models/flat_int32/infer"
VERSIONS = pytest.mark.parametrize("version", ["--http1.0", "--http1.1", "--http2-prior-knowledge"])


class Answer:
    def __init__(self, done):
        head, self.body = b"", done.stdout
        while re.match(rb"HTTP/\d", self.body):  # 100 Continue comes before the final head
            head, _, self.body = self.body.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:])}
        self.trace = done.stderr.decode(errors="replace")

    def json(self):
        return json.loads(self.body)


def curl(*args, stdin=None, code=0):
    done = subprocess.run(["curl", "-q", "-sS", "-v", "-i", "--max-time", "60", *args], input=stdin, capture_output=True)
    assert done.returncode == code, done.stderr.decode(errors="replace")
    return Answer(done) if code == 0 else done


def url(server, path=INFER):
    return f"http://{server.url()}{path}"


@VERSIONS
def test_get(server, version):
    a = curl(version, url(server, "/v2"))
    assert a.status == 200 and a.json()["name"] == "triton"
    assert a.headers["content-type"] == "application/json"


@VERSIONS
def test_infer(server, version):
    a = curl(version, "-d", BODY, url(server))
    assert a.status == 200 and a.json()["outputs"][0]["data"] == [1, 2, 3]


def test_content_type_does_not_matter(server):
    for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain", ""):
        assert curl("-H", f"Content-Type: {kind}" if kind else "Content-Type:", "-d", BODY, url(server)).status == 200


def test_offer_of_an_upgrade(server):
    """curl --http2 asks in HTTP/1.1 whether to go on in HTTP/2; the answer may be either."""
    for args in (["-d", BODY], []):
        a = curl("--http2", *args, url(server, INFER if args else "/v2"))
        assert a.status == 200 and a.json()


@VERSIONS
def test_head(server, version):
    a = curl(version, "-I", url(server, "/v2"))
    assert a.status == 200 and a.body == b"" and int(a.headers["content-length"]) > 10


@VERSIONS
def test_errors(server, version):
    a = curl(version, url(server, "/nothing"))
    assert (a.status, a.json()) == (404, {"error": "Not Found"})
    a = curl(version, "-X", "DELETE", url(server, "/v2"))
    assert (a.status, a.json()) == (405, {"error": "Method Not Allowed"})
    a = curl(version, "-d", "{", url(server))
    assert a.status == 400 and a.json()["error"]


def test_keep_alive(server):
    done = subprocess.run(["curl", "-q", "-sS", "-v", *[url(server, "/v2/health/live")] * 4], capture_output=True)
    assert done.returncode == 0
    assert done.stderr.count(b"Re-using existing connection") == 3, done.stderr.decode()


def test_connection_close(server):
    a = curl("-H", "Connection: close", url(server, "/v2"))
    assert a.headers["connection"].lower() == "close" and "Closing connection" in a.trace


def test_old_http_closes_after_the_answer(server):
    a = curl("--http1.0", url(server, "/v2"))
    assert a.status == 200 and "keep-alive" not in a.headers.get("connection", "").lower()


def binary(count):
    blob = np.arange(count, dtype="<i4").tobytes()
    body, length = binary_body([("INPUT0", "INT32", [count])], [blob], parameters={"binary_data_output": True})
    return body, length, blob


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("count", [3, 400_000])
def test_binary_upload(server, version, chunked, count):
    body, length, blob = binary(count)
    extra = ["-H", "Transfer-Encoding: chunked"] if chunked and version == "--http1.1" else []
    source = ["-T", "-"] if chunked else ["--data-binary", "@-"]
    a = curl(version, "-X", "POST", *extra, "-H", f"Inference-Header-Content-Length: {length}", *source, url(server), stdin=body)
    assert a.status == 200
    assert a.body[int(a.headers["inference-header-content-length"]):] == blob


def test_expect_continue(server):
    body, length, blob = binary(1_000_000)
    a = curl("--http1.1", "-H", "Expect: 100-continue", "--expect100-timeout", "50",
             "-H", f"Inference-Header-Content-Length: {length}", "--data-binary", "@-", url(server), stdin=body)
    assert "< HTTP/1.1 100 Continue" in a.trace
    assert a.status == 200 and a.body.endswith(blob)


def test_expect_continue_of_a_refused_request(server):
    """The answer replaces 100, and the body is not sent."""
    a = curl("--http1.1", "-H", "Expect: 100-continue", "--expect100-timeout", "50", "--data-binary", "@-",
             url(server), stdin=b" " * ((64 << 20) + 1))
    assert a.status == 400 and "100 Continue" not in a.trace
    assert "--http-max-input-size" in a.json()["error"]


def test_another_expectation(server):
    assert curl("--http1.1", "-H", "Expect: tea", "-d", BODY, url(server)).status in (200, 417)


@VERSIONS
def test_raw_binary_request(server, version):
    blob = np.arange(5, dtype="<i4").tobytes()
    a = curl(version, "-H", "Inference-Header-Content-Length: 0", "--data-binary", "@-", url(server), stdin=blob)
    assert a.status == 200
    length = int(a.headers["inference-header-content-length"])
    assert json.loads(a.body[:length])["outputs"][0]["shape"] == [5] and a.body[length:] == blob


@pytest.mark.parametrize("coding, pack", [
    ("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)], ids=["gzip", "deflate", "identity"])
@VERSIONS
def test_compressed_request(server, coding, pack, version):
    a = curl(version, "-H", f"Content-Encoding: {coding}", "--data-binary", "@-", url(server), stdin=pack(BODY.encode()))
    assert a.status == 200 and a.json()["outputs"][0]["data"] == [1, 2, 3]


@VERSIONS
def test_compressed_answer(server, version):
    a = curl(version, "--compressed", "-d", BODY, url(server))
    assert a.headers["content-encoding"] in ("gzip", "deflate")
    assert a.json()["outputs"][0]["data"] == [1, 2, 3]


def test_unix_sockets(models, start, tmp_path_factory):
    from lib import repo

    repo.add(models, "flat_int32")
    folder = tmp_path_factory.mktemp("s")
    http, grpc = folder / "http", folder / "grpc"
    server = start(models, f"--http-address=unix:{http}", f"--grpc-address=unix:{grpc}")
    for version in ("--http1.1", "--http2-prior-knowledge"):
        for path in (http, grpc):
            a = curl(version, "--unix-socket", str(path), "-d", BODY, "http://localhost" + INFER)
            assert a.status == 200 and a.json()["outputs"][0]["data"] == [1, 2, 3]
    server.stop()
    assert not http.exists() and not grpc.exists()


def test_unix_socket_that_was_left_over(models, start, tmp_path_factory):
    """A socket file without a listener is replaced, a file of another kind is not."""
    import socket

    folder = tmp_path_factory.mktemp("s")
    stale, file = folder / "stale", folder / "file"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(stale))
    file.write_text("precious")
    start(models, f"--http-address=unix:{stale}")
    assert curl("--unix-socket", str(stale), "http://localhost/v2").status == 200
    second = start(models, f"--http-address=unix:{stale}", ready=False)
    third = start(models, f"--http-address=unix:{file}", ready=False)
    for server, path in ((second, stale), (third, file)):
        server.checked = True
        assert server.wait_exit() == 1 and str(path) in server.err()
    assert file.read_text() == "precious"
    assert curl("--unix-socket", str(stale), "http://localhost/v2").status == 200

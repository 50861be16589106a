"""Compressed bodies over REST, sound and hostile."""
import gzip
import json
import zlib

import numpy as np
import pytest

from lib import repo
from lib.rest import Rest, binary_body, infer_path

FLAT = infer_path("flat_int32")
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}]}).encode()
PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress}
CODINGS = pytest.mark.parametrize("coding", PACK)


def data_of(reply):
    return reply.ok().json()["outputs"][0]["data"]


@CODINGS
def test_header_length_counts_plain_bytes(rest, coding):
    blob = np.arange(5000, dtype="<i4").tobytes()
    body, length = binary_body([("INPUT0", "INT32", [5000])], [blob], parameters={"binary_data_output": True})
    reply = rest.post(FLAT, PACK[coding](body), headers={
        "Content-Encoding": coding, "Accept-Encoding": coding, "Inference-Header-Content-Length": str(length)}).ok()
    assert reply.headers["content-encoding"] == coding
    plain = UNPACK[coding](reply.body)
    assert plain[int(reply.headers["inference-header-content-length"]):] == blob


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "x", "gzip, deflate", "gzip, gzip"])
def test_unknown_coding(rest, coding):
    reply = rest.post(FLAT, BODY, headers={"Content-Encoding": coding})
    assert reply.status == 501 and "Unsupported compression type" in reply.error
    assert reply.headers["accept-encoding"].replace(" ", "") == "gzip,deflate"
    assert data_of(rest.post(FLAT, BODY)) == [1, 2, 3]


@CODINGS
@pytest.mark.parametrize("damage", [lambda b: b[:-6], lambda b: b[:10], lambda b: b"", lambda b: b"not packed at all",
                                    lambda b: b[:20] + b"\xff\xff\xff" + b[23:], lambda b: b[:1]],
                         ids=["no end", "head only", "nothing", "plain", "damaged", "one byte"])
def test_damaged_body(rest, coding, damage):
    reply = rest.post(FLAT, damage(PACK[coding](BODY)), headers={"Content-Encoding": coding})
    assert reply.status == 400 and reply.error
    assert data_of(rest.post(FLAT, PACK[coding](BODY), headers={"Content-Encoding": coding})) == [1, 2, 3]


def test_deflate_without_its_wrapper(rest):
    """Some clients send bare deflate data under that name; either answer is fine, a crash is not."""
    packer = zlib.compressobj(wbits=-15)
    reply = rest.post(FLAT, packer.compress(BODY) + packer.flush(), headers={"Content-Encoding": "deflate"})
    assert reply.status in (200, 400)


def test_several_gzip_members(rest):
    body = gzip.compress(BODY[:30]) + gzip.compress(BODY[30:])
    assert rest.post(FLAT, body, headers={"Content-Encoding": "gzip"}).status in (200, 400)


@CODINGS
def test_bomb(models, start, coding):
    repo.add(models, "flat_int32")
    server = start(models, "--http-max-input-size=1000000")
    with Rest(server.http) as rest:
        reply = rest.post(FLAT, PACK[coding](BODY + b" " * 100_000_000), headers={"Content-Encoding": coding})
        assert reply.status == 400 and "--http-max-input-size" in reply.error
        assert data_of(rest.post(FLAT, PACK[coding](BODY), headers={"Content-Encoding": coding})) == [1, 2, 3]


@pytest.mark.parametrize("path", ["/v2", "/v2/models/simple/config", "/v2/models/stats"])
def test_only_inference_is_compressed(rest, path):
    reply = rest.get(path, headers={"Accept-Encoding": "gzip, deflate"}).ok()
    assert "content-encoding" not in reply.headers and reply.json()


def test_errors_are_readable_whatever_was_accepted(rest):
    reply = rest.post(FLAT, b"{", headers={"Accept-Encoding": "gzip"})
    body = gzip.decompress(reply.body) if reply.headers.get("content-encoding") == "gzip" else reply.body
    assert reply.status == 400 and json.loads(body)["error"]


@pytest.mark.parametrize("path", ["repository/index", "repository/models/simple/load", "logging"])
def test_other_bodies_are_not_compressed(server, path):
    with Rest(server.http) as rest:
        reply = rest.post(f"/v2/{path}", gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})
        assert reply.status == 400 and "Content-Encoding 'gzip'" in reply.error and "inference requests" in reply.error
        assert rest.post("/v2/repository/index", b"{}", headers={"Content-Encoding": "identity"}).status == 200

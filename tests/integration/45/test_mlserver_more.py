"""Of models of MLServer: adaptive batching, metrics, errors in MLServer's form."""
import gzip
import json
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from lib import pymodels
from lib.metrics import value
from lib.pymodels import add_mlserver
from lib.rest import Rest, infer_path

LONG = 600  # seconds; a batch that is complete does not wait


@pytest.fixture
def start(start):
    def make(*args, **kw):
        return start(args[0], *pymodels.options(pymodels.MLSERVER), *args[1:], **kw)
    return make


def tensor(data, shape, datatype="FP64", name="x"):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def all_at_once(server, model, bodies):
    """Replies to requests that are sent at once, in their order."""
    def one(body):
        with Rest(server.http) as rest:
            return rest.post(infer_path(model), json.dumps(body))
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(one, bodies))


def outputs(reply):
    return {o["name"]: (o["shape"], o["data"]) for o in reply.ok().json()["outputs"]}


def request(data, shape, i, **fields):
    return {"id": f"r{i}", "inputs": [tensor(data, shape, **fields)]}


def check_rows(server):
    """Requests of several rows become one, and each gets its rows, id and headers."""
    replies = all_at_once(server, "m", [request([i] * 2 * (i + 1), [i + 1, 2], i) for i in range(4)])
    for i, reply in enumerate(replies):
        assert outputs(reply) == {"sum": ([i + 1, 1], [2.0 * i] * (i + 1)), "rows": ([i + 1, 1], [10] * (i + 1))}
        assert reply.json()["id"] == f"r{i}" and reply.headers["ce-id"] == f"r{i}" and reply.headers["x-rows"] == "10"


def check_what_fits(server):
    """A request of another width or data type, or with nested data, does not spoil others."""
    for other in (request([1, 1, 1], [1, 3], 0), request([1, 1], [1, 2], 0, datatype="INT32"), request([[1, 1]], [1, 2], 0)):
        replies = all_at_once(server, "m", [other, *(request([1, 1], [1, 2], i) for i in (1, 2, 3))])
        assert [outputs(r)["rows"][1] for r in replies] == [[1], [3], [3], [3]]
    short = request([1], [1, 2], 0)
    replies = all_at_once(server, "m", [short, *(request([1, 1], [1, 2], i) for i in (1, 2, 3))])
    assert [outputs(r)["rows"][1] for r in replies[1:]] == [[3]] * 3
    assert (replies[0].status, replies[0].error) == (500, "builtins.ValueError: cannot reshape array of size 1 into shape (1,2)")


def check_failure(server):
    """The request that fails is the only one."""
    replies = all_at_once(server, "m", [request([x, 1], [1, 2], x) for x in (1, -1, 2, 3)])
    assert [outputs(replies[i])["sum"][1] for i in (0, 2, 3)] == [[2.0], [3.0], [4.0]]
    assert (replies[1].status, replies[1].error) == (400, "a negative number")


@pytest.mark.more
def test_batches(models, start):
    """Adaptive batching. The model `odd`, whose answer has not a row for each of the requests', is asked for each one."""
    add_mlserver(models / "m", "more.Batched", max_batch_size=4, max_batch_time=LONG)
    add_mlserver(models / "odd", "more.Odd", max_batch_size=3, max_batch_time=LONG)
    server = start(models, "--batching-delay=exact")  # requests may come far apart where the machine is busy
    check_rows(server)
    check_what_fits(server)
    check_failure(server)
    replies = all_at_once(server, "odd", [request([x, 1], [1, 2], x) for x in range(3)])
    assert [outputs(r)["all"] for r in replies] == [([1], [1.0]), ([1], [2.0]), ([1], [3.0])]


def check_stream_beside_batches(rest):
    body = {"inputs": [tensor(["a b"], [1], "BYTES")]}
    events = [json.loads(line[6:]) for line in rest.post("/v2/models/words/infer_stream", body).ok().body.decode().split("\n\n") if line]
    assert [e["outputs"][0]["data"] for e in events] == [["a"], ["b"]]
    assert rest.post(infer_path("words"), json.dumps(body)).ok().json()["outputs"][0]["data"] == ["a b"]
    for path, text in (("generate", b'"a b"'), ("infer_stream", b'"b"'), ("generate_stream", b'"b"')):
        reply = rest.post(f"/v2/models/words/{path}", gzip.compress(json.dumps(body).encode()), headers={"content-encoding": "gzip"})
        assert text in reply.ok().body
    reply = rest.post("/v2/models/words/infer_stream", b"x", headers={"content-encoding": "gzip"})
    assert reply.status == 400


def check_metrics(server, rest):
    """Histograms of `register` and `log`, with the model's labels."""
    rest.post(infer_path("counting"), json.dumps({"inputs": [tensor([1, 30], [2])]})).ok()
    with Rest(server.metrics) as metrics:
        lines = set(metrics.get("/metrics").ok().body.decode().splitlines())
    labels = 'model_name="counting",model_version="v1"'
    for line in ("# HELP word_length Letters of a word", "# TYPE word_length histogram", f'word_length_bucket{{{labels},le="1"}} 1',
                 f'word_length_bucket{{{labels},le="+Inf"}} 2', f"word_length_sum{{{labels}}} 31", f"other_length_count{{{labels}}} 2"):
        assert line in lines, [found for found in lines if "length" in found]


DATATYPES = "'BOOL', 'UINT8', 'UINT16', 'UINT32', 'UINT64', 'INT8', 'INT16', 'INT32', 'INT64', 'FP16', 'FP32', 'FP64' or 'BYTES'"
DETAILS = [
    ('{"inputs":[', {"type": "json_invalid", "loc": ["body", 11], "msg": "JSON decode error", "input": {}, "ctx": {"error": "unexpected end of data"}}),
    ("", {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}),
    ('{"inputs":[{"name":"x","shape":[1],"datatype":"FP32"}]}',
     {"type": "missing", "loc": ["body", "inputs", 0, "data"], "msg": "Field required", "input": {"name": "x", "shape": [1], "datatype": "FP32"}}),
    ('{"inputs":[{"name":"x","shape":[1],"datatype":"FLOAT","data":[1]}]}',
     {"type": "enum", "loc": ["body", "inputs", 0, "datatype"], "msg": f"Input should be {DATATYPES}", "input": "FLOAT", "ctx": {"expected": DATATYPES}}),
    ("[]", {"type": "model_attributes_type", "loc": ["body"], "msg": "Input should be a valid dictionary or object to extract fields from", "input": []}),
]


def check_details(rest):
    """What is not of the protocol is answered as MLServer does, and counts as a failure."""
    stats = "/v2/models/failing/stats"
    before = rest.get(stats).ok().json()["model_stats"][0]["inference_stats"]
    for path in ("infer", "infer_stream"):
        for body, detail in DETAILS:
            reply = rest.post(f"/v2/models/failing/{path}", body)
            assert (reply.status, reply.json()) == (422, {"detail": [detail]})
            assert reply.headers["content-type"] == "application/json"
    after = rest.get(stats).ok().json()["model_stats"][0]["inference_stats"]
    assert after["success"] == before["success"] and int(after["fail"]["count"]) == int(before["fail"].get("count", 0)) + 2 * len(DETAILS)


def check_statuses(rest):
    for status in (400, 404, 418, 429, 500, 507):
        reply = rest.post(infer_path("failing"), json.dumps({"inputs": [tensor([status], [1], "INT64")]}))
        assert (reply.status, reply.error) == (status, "as asked")


@pytest.mark.more
def test_answers(models, start):
    add_mlserver(models / "counting", "more.Counting", parameters={"version": "v1"})
    add_mlserver(models / "failing", "more.Failing")
    add_mlserver(models / "words", "runtimes.Words", max_batch_size=8, max_batch_time=0.001)
    server = start(models)
    with Rest(server.http) as rest:
        check_stream_beside_batches(rest)
        check_metrics(server, rest)
        check_details(rest)
        check_statuses(rest)


@pytest.mark.more
def test_handlers(models, start):
    """Paths of a model's own, while it is loaded; those of the server come first."""
    add_mlserver(models / "m", "more.Handled")
    server = start(models, "--load-model=*", "--http-restricted-api=inference:key=secret", "--http-max-input-size=6000000",
                   mode="explicit")
    key = {"key": "secret"}
    with Rest(server.http) as rest:
        reply = rest.post("/sum", [1, 2, 39], headers=key).ok()
        assert reply.json() == {"sum": 42} and reply.headers["x-model"] == "m" and reply.headers["content-type"] == "application/json"
        assert rest.post("/sum", list(range(1000)) * 1000, headers=key).ok().json() == {"sum": 499500000}  # more than a mebibyte
        reply = rest.request("GET", "/words/gr%C3%BC%C3%9Fe?times=2", headers=key).ok()
        assert reply.body.decode() == "grüßegrüße" and reply.headers["content-type"].startswith("text/plain")
        assert rest.request("PUT", "/typed", {"n": 7}, headers=key).ok().json() == {"n": 7}
        reply = rest.request("PUT", "/typed", {"n": -7}, headers=key)
        assert (reply.status, reply.json()) == (418, {"error": "too small"})
        reply = rest.request("PUT", "/typed", {"n": "x"}, headers=key)
        assert reply.status == 422 and reply.json()["detail"][0]["loc"] == ["body", "n"]
        assert rest.request("GET", "/parts", headers=key).ok().body == b"part 0\npart 1\npart 2\n"
        assert rest.post("/sum", gzip.compress(b"[1, 41]"), headers={**key, "content-encoding": "gzip"}).ok().json() == {"sum": 42}
        reply = rest.post("/broken", headers=key)
        assert (reply.status, reply.error) == (500, "builtins.ValueError: no answer")
        assert rest.post("/sum", b"x" * 6_000_001, headers=key).status == 400
        assert value(server, "millrace_inference_refused_total", protocol="rest", reason="TOO_LARGE") == 1
        assert rest.post("/sum", [1]).status in (401, 403)
        for method, path in (("GET", "/sum"), ("GET", "/words/a/b"), ("GET", "/words/"), ("POST", "/other")):
            assert rest.request(method, path, headers=key).status == 404
        rest.post("/v2/repository/models/m/unload").ok()
        assert rest.post("/sum", [1], headers=key).status == 404


def test_errors_of_start(models, start):
    """Those of `mlserver start` that no model makes."""
    add_mlserver(models / "m", "more.Failing", parameters={"version": "v1"})
    server = start(models, "--load-model=*", "--mlserver-errors", mode="explicit")
    nothing = {"error": "Model nope not found"}
    no_version = {"error": "Model m with version 9 not found"}
    with Rest(server.http) as rest:
        body = {"inputs": [tensor([1], [1])]}
        for method, path, status, expected in (
                ("POST", "/v2/models/nope/infer", 404, nothing), ("GET", "/v2/models/nope", 404, nothing),
                ("GET", "/v2/models/nope/ready", 404, nothing), ("POST", "/v2/models/m/versions/9/infer", 404, no_version),
                ("GET", "/v2/models/m/versions/9/ready", 404, no_version), ("POST", "/v2/models/m/versions/v9/infer", 404,
                                                                            {"error": "Model m with version v9 not found"}),
                ("POST", "/v2/repository/models/nope/load", 404, nothing), ("POST", "/v2/repository/models/nope/unload", 404, nothing),
                ("GET", "/nope", 404, {"detail": "Not Found"}), ("GET", "/v2/models/m/infer", 405, {"detail": "Method Not Allowed"})):
            reply = rest.request(method, path, body if method == "POST" else None)
            assert (reply.status, reply.json()) == (status, expected), path
        rest.post("/v2/repository/models/m/unload").ok()
        reply = rest.post("/v2/repository/models/m/unload")
        assert (reply.status, reply.json()) == (404, {"error": "Model m not found"})


def packed_environment(folder):
    """As venv-pack makes it, with the packages of the tests' own."""
    subprocess.run([pymodels.MLSERVER, "-m", "venv", "--without-pip", "--symlinks", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "millrace_testing.py").write_text("WORD = 'unpacked'\n")
    own = next((pymodels.MLSERVER.parent.parent / "lib").glob("python*/site-packages"))
    (site / "own.pth").write_text(f"{own}\n")


@pytest.mark.more
def test_environments(models, start, tmp_path):
    """A folder, and an archive beside the settings; of a model at the top of the repository that archive is no repository."""
    packed_environment(tmp_path / "env")
    add_mlserver(models / "folder", "more.Where", parameters={"environment_path": str(tmp_path / "env")})
    add_mlserver(models, "more.Where", name="packed", parameters={"environment_tarball": "./env.tar.gz"})
    with tarfile.open(models / "env.tar.gz", "w:gz") as t:
        for file in [*sorted((tmp_path / "env").iterdir()), tmp_path / "env" / "pyvenv.cfg"]:  # which venv-pack adds once more
            t.add(file, file.name)
    server = start(models, "--python=/nowhere/python3")
    with Rest(server.http) as rest:
        assert sorted(m["name"] for m in rest.post("/v2/repository/index").ok().json()) == ["folder", "packed"]
        for model, prefix in (("folder", tmp_path / "env"), ("packed", server.folder / "cache")):
            found = rest.post(infer_path(model), json.dumps({"inputs": []})).ok().json()["outputs"][0]["data"]
            assert found[0].startswith(str(prefix)) and found[1] == "unpacked"

"""Endpoints: names whose requests are shared among variants. Shares are compared with the very sequence and the very hash
that docs/endpoints.md describes, on one network thread, so that no verdict is a matter of chance."""
import json
import signal
import subprocess
import threading
from contextlib import closing

import grpc
import pytest
from tritonclient.utils import InferenceServerException

from lib import repo, wait
from lib.faults import PROGRAM, Faults
from lib.metrics import value
from lib.models.shares import bucket, spread
from lib.reflected import Reflected
from lib.rest import Rest
from lib.server import BIN, clean_environment
from lib.tclients import KINDS, Triton

def variant(tag, model, weight, more=""):
    return f'variant {{ tag: "{tag}" model: "{model}" weight: {weight} {more} }}'


def endpoint(name, *parts):
    return f'endpoint {{ name: "{name}" {" ".join(parts)} }}\n'


def write(folder, *texts):
    """The file, replaced in one step."""
    path = folder / "endpoints.pbtxt"
    repo.write(path, "".join(texts))
    return path


def report(server, name):
    with Rest(server.http) as rest:
        return rest.get(f"/v2/endpoints/{name}").ok().json()


def counts(server, name):
    """{tag: (requests, errors)}"""
    return {v["tag"]: (v["requests"], v["errors"]) for v in report(server, name)["variants"]}


def change(server, name, verb, body=None):
    with Rest(server.http) as rest:
        return rest.post(f"/v2/endpoints/{name}/{verb}", body or {})


STABLE, CAND = variant("stable", "m", 90), variant("cand", "n", 10)
INPUT = [("INPUT0", "INT32", [2], [3, 4])]


@pytest.fixture
def serve(tmp_path, models, start):
    """serve(text..., options=...): a server with models m, n and bad, and endpoints."""
    def make(*texts, options=(), bad=None, **kw):
        repo.add(models, "m")
        repo.add(models, "n")
        repo.add(models, "bad", backend="fault", parameters=bad or {"fail_status": "INTERNAL"})
        return start(models, f"--endpoints={write(tmp_path, *texts)}", "--loop-threads=1", *options, **kw)

    return make


def tags(rest, name, count, headers=None):
    out = []
    for _ in range(count):
        reply = rest.infer(name, INPUT, headers=headers)
        assert reply.ok().json()["outputs"][0]["data"] == [3, 4]
        assert reply.json()["parameters"]["variant"] == reply.headers["millrace-variant"]
        out.append(reply.headers["millrace-variant"])
    return out


def expected(border, buckets, below="stable", above="cand"):
    return [below if b < border else above for b in buckets]


# ---- shares ----


def test_generate_has_forwarded_headers(serve):
    server = serve(endpoint("e", STABLE, variant("cand", "n", 90), 'sticky { key: "parameter:x-user" salt: "s" }'),
                   options=["--http-header-forward-pattern=x-user"])
    users = [f"user-{i}" for i in range(40)]
    with Rest(server.http) as rest:
        for user in users:
            reply = rest.request("POST", "/v2/models/e/generate", body=json.dumps({"INPUT0": [3, 4]}).encode(), headers={"x-user": user})
            assert reply.ok().headers["millrace-variant"] == tags(rest, "e", 1, {"x-user": user})[0]


@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
def test_generate_reads_by_the_variant_that_answers(serve, kind):
    """Not by that with the largest share, which is not there, nor by one with other inputs."""
    server = serve(endpoint("e", variant("gone", "nomodel", 60), variant("here", "m", 40), 'sticky { key: "parameter:user" salt: "s" }'),
                   endpoint("all", variant("a", "m", 1), variant("b", "nomodel", 0), variant("c", "m", 0, 'label: "nolabel"')),
                   options=["--log-verbose=1"])
    users = [f"user-{i}" for i in range(40)]
    with Rest(server.http) as rest:
        for user, tag in zip(users, expected(6000, [bucket("s", u) for u in users], "gone", "here")):
            reply = rest.post(f"/v2/models/e/{kind}", {"INPUT0": [3, 4], "user": user})
            if tag == "gone":
                assert reply.status == 404 and "nomodel" in reply.error
                continue
            assert reply.status == 200 and reply.headers["millrace-variant"] == "here"
            shown = json.loads(reply.body.decode().removeprefix("data: "))
            assert shown["OUTPUT0"] == [3, 4] and shown["variant"] == "here" and shown["model_name"] == "e"
        long = {"id": "x", "user": users[0], "INPUT0": [0] * 5000, "extra": [1]}
        assert rest.post(f"/v2/models/m/{kind}", long).error == rest.post("/v2/models/all/" + kind, long).error
        for tag in "bc":
            assert rest.infer(f"all/versions/{tag}", INPUT).status in (400, 404)
    faults = {(e, v, f): value(server, "millrace_endpoint_errors_total", endpoint=e, variant=v, fault=f)
              for e, v in (("e", "gone"), ("all", "a"), ("all", "b"), ("all", "c")) for f in ("server", "client")}
    assert {key: n for key, n in faults.items() if n} == {
        ("e", "gone", "server"): counts(server, "e")["gone"][1], ("all", "a", "client"): 1, ("all", "b", "server"): 1, ("all", "c", "server"): 1}
    events = {(e["event"], e["variant"], e["msg"] == "") for e in server.events() if e.get("endpoint") == "e"}
    assert events == {("request.refused", "gone", False), ("request.done", "here", True)}
    (gone, failed), (here, well) = counts(server, "e")["gone"], counts(server, "e")["here"]
    assert gone == failed > 0 and here > 0 == well and gone + here == len(users)


def test_requests_are_spread_by_the_weights(serve):
    server = serve(endpoint("e", STABLE, CAND))
    with Rest(server.http) as rest:
        assert tags(rest, "e", 100) == expected(9000, spread(100))
    shares = expected(9000, spread(100))
    assert counts(server, "e") == {"stable": (shares.count("stable"), 0), "cand": (shares.count("cand"), 0)}
    assert shares.count("cand") == 10


def test_a_key_stays_with_its_variant(serve):
    server = serve(endpoint("e", STABLE, CAND, 'sticky { key: "header:X-User" salt: "s" }'))
    users = [f"user-{i}" for i in range(60)]
    buckets = [bucket("s", u) for u in users]
    with Rest(server.http) as rest:
        for border, weights in ((9000, None), (9000, {}), (5000, {"stable": 50, "cand": 50}), (10000, {"cand": 0})):
            if weights:
                change(server, "e", "weights", {"weights": weights}).ok()
            got = [tags(rest, "e", 1, {"x-user": u})[0] for u in users]
            assert got == expected(border, buckets)
        # without the key: the tag of an earlier answer, while it has a share
        change(server, "e", "weights", {"weights": {"stable": 1, "cand": 1}}).ok()
        for tag in ("cand", "stable", "cand"):
            assert tags(rest, "e", 3, {"millrace-variant": tag}) == [tag] * 3
        change(server, "e", "promote", {"tag": "stable"}).ok()
        assert tags(rest, "e", 3, {"millrace-variant": "cand"}) == ["stable"] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_may_be_a_parameter(serve, kind):
    server = serve(endpoint("e", variant("a", "m", 1), variant("b", "n", 1), 'sticky { key: "parameter:user" salt: "p" }'))
    client = Triton(kind, server)
    for user in ("ann", "bob", "eve", "joe", "kim", "lee", "may", "sue", "zoe"):
        result = client.infer("e", [client.int32([1, 2])], parameters={"user": user})
        response = result.get_response()
        tag = response.parameters["variant"].string_param if client.is_grpc else response["parameters"]["variant"]
        assert tag == ("a" if bucket("p", user) < 5000 else "b")
    client.close()


def test_requests_of_a_sequence_stay_together(serve):
    server = serve(endpoint("e", variant("a", "m", 1), variant("b", "n", 1)))
    with Rest(server.http) as rest:
        for number in range(1, 9):
            got = {rest.infer("e", INPUT, parameters={"sequence_id": number, "sequence_start": k == 0}).headers["millrace-variant"]
                   for k in range(4)}
            assert got == {"a" if bucket("", str(number)) < 5000 else "b"}


# ---- beside models ----


@pytest.mark.parametrize("kind", KINDS)
def test_an_endpoint_is_asked_as_a_model(serve, kind):
    server = serve(endpoint("e", STABLE, CAND))
    client = Triton(kind, server)
    assert client.call("is_model_ready", "e")
    meta = client.document("get_model_metadata", "e")
    assert meta["name"] == "e" and meta["versions"] == ["stable", "cand"] and meta["inputs"][0]["name"] == "INPUT0"
    config = client.document("get_model_config", "e")
    assert (config.get("config") or config)["name"] == "m"
    result = client.infer("e", [client.int32([7])])
    assert result.as_numpy("OUTPUT0").tolist() == [7]
    response = result.get_response()
    assert (response.model_name if client.is_grpc else response["model_name"]) == "e"
    # a tag is a version: it takes no account of weights
    for tag in ("cand", "stable", "cand"):
        response = client.infer("e", [client.int32([7])], model_version=tag).get_response()
        assert (response.parameters["variant"].string_param if client.is_grpc else response["parameters"]["variant"]) == tag
        assert client.call("is_model_ready", "e", tag)
    with pytest.raises(InferenceServerException, match="endpoint 'e' has no variant 'x1'"):
        client.infer("e", [client.int32([7])], model_version="x1")
    # a model answers as before
    response = client.infer("m", [client.int32([7])]).get_response()
    assert "variant" not in (response.parameters if client.is_grpc else response.get("parameters", {}))
    client.close()


def test_streams_and_generate(serve):
    server = serve(endpoint("e", variant("b", "n", 1)))
    with closing(Triton("grpc", server)) as client:
        answers = []
        client.client.start_stream(callback=lambda result, error: answers.append((result, error)))
        for _ in range(3):
            client.client.async_stream_infer("e", [client.int32([5])])
        wait.equal(lambda: len(answers), 3, "the number of answers")
        client.client.stop_stream()
        assert [error for _, error in answers] == [None] * 3
        assert {r.get_response().parameters["variant"].string_param for r, _ in answers} == {"b"}
    with Rest(server.http) as rest:
        reply = rest.post("/v2/models/e/generate", {"INPUT0": [1]}).ok().json()
        assert reply["model_name"] == "e" and reply["OUTPUT0"] == 1
    wait.equal(lambda: counts(server, "e"), {"b": (4, 0)}, "the counts")


def test_readiness_is_that_of_all_variants_with_a_share(serve):
    server = serve(endpoint("e", STABLE, CAND, variant("gone", "n", 0, "version: 9")), mode="explicit",
                   options=("--load-model=m",))
    with Rest(server.http) as rest:
        assert rest.get("/v2/models/e/ready").status == 400
        rest.post("/v2/repository/models/n/load").ok()
        assert rest.get("/v2/models/e/ready").status == 200
        assert rest.get("/v2/models/e/versions/gone/ready").status == 400
        change(server, "e", "weights", {"weights": {"gone": 1}}).ok()
        assert rest.get("/v2/models/e/ready").status == 400
        assert [v["ready"] for v in report(server, "e")["variants"]] == [True, True, False]


def test_a_service_chooses_by_a_parameter(serve):
    server = serve(endpoint("e", variant("b", "n", 1)),
                   'service { name: "s" request_field_key: "lang" value_mapped_workflows { request_field_value: "zh" workflow: "e" }'
                   ' value_mapped_workflows { request_field_value: "7" workflow: "m" }'
                   ' value_mapped_workflows { request_field_value: "true" workflow: "e" } value_mapped_workflows { request_field_value: "1.5" workflow: "e" }'
                   ' default: "m" }\n',
                   'service { name: "strict" request_field_key: "lang" value_mapped_workflows { request_field_value: "zh" workflow: "m" } }\n')
    with Rest(server.http) as rest:
        reply = rest.infer("s", INPUT, parameters={"lang": "zh"}).ok()
        assert reply.headers["millrace-variant"] == "b" and reply.json()["model_name"] == "s"
        for value in (True, 1.5):
            assert rest.infer("s", INPUT, parameters={"lang": value}).ok().headers["millrace-variant"] == "b"
        for parameters in ({"lang": 7}, {"lang": False}, {"lang": "fr"}, {}):
            reply = rest.infer("s", INPUT, parameters=parameters).ok()
            assert "millrace-variant" not in reply.headers and reply.json()["model_name"] == "s"
        assert rest.infer("strict", INPUT, parameters={"lang": "zh"}).status == 200
        reply = rest.infer("strict", INPUT, parameters={"lang": "fr"})
        assert reply.status == 400 and "service 'strict' has no workflow for lang 'fr' of the request" in reply.error
        assert rest.get("/v2/models/s/ready").status == 200 and rest.get("/v2/models/s").json()["name"] == "s"


# ---- changes ----


def test_weights_change_under_load_without_a_failure(serve, tmp_path):
    server = serve(endpoint("e", STABLE, CAND))
    stop, failures, done = threading.Event(), [], []

    def ask():
        with Rest(server.http) as rest:
            while not stop.is_set():
                reply = rest.infer("e", INPUT)
                done.append(reply.headers.get("millrace-variant"))
                if reply.status != 200:
                    failures.append(reply.error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    [t.start() for t in threads]
    try:
        with Reflected(server.url("grpc")) as client:
            method, request = client.method("millrace.EndpointControl/EndpointChange")
            for i in range(1, 21):
                change(server, "e", "weights", {"weights": {"stable": i, "cand": 21 - i}}).ok()
                answer = method(request(name="e", weights={"stable": 21 - i, "cand": i}), timeout=wait.PATIENCE)
                assert [v.weight for v in answer.variants] == [21 - i, i]
            run("set-weights", server, "e", "stable=3", "cand=1")
            write(tmp_path, endpoint("e", STABLE, variant("cand", "n", 30)))
            wait.equal(lambda: [v["weight"] for v in report(server, "e")["variants"]], [90, 30], "the file's weights")
            seen = len(done)
            wait.until(lambda: len(done) > seen + 20, "more answers")
    finally:
        stop.set()
        [t.join() for t in threads]
    assert not failures and set(done) == {"stable", "cand"}
    history = report(server, "e")["history"]
    assert history == []  # of the new entry


def run(verb, server, *args, code=0):
    """`millrace endpoint`: its output."""
    words = [BIN, "endpoint", verb, *args, f"--url=127.0.0.1:{server.http}"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=clean_environment(), timeout=wait.PATIENCE)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_the_command(serve):
    server = serve(endpoint("e", STABLE, CAND), endpoint("f", variant("only", "m", 1)))
    assert sorted(line.split("\t")[:3] for line in run("list", server).splitlines()) == [
        ["e", "-", "stable=90 cand=10"], ["f", "-", "only=1"]]
    assert "cand\tn\t-\t25\t25.00%\tyes\t0\t0" in run("set-weights", server, "e", "stable=75", "cand=25")
    assert "cand\tn\t-\t100\t100.00%" in run("promote", server, "e", "cand")
    out = run("rollback", server, "e")
    assert "stable\tm\t-\t75\t75.00%" in out
    assert [line.split("\t")[1:4] for line in out.splitlines()[-3:]] == [
        ["set", "hand", "stable=75 cand=25"], ["promote", "hand", "stable=0 cand=100"], ["rollback", "hand", "stable=75 cand=25"]]
    assert run("show", server, "e").startswith("endpoint\te\n")
    assert '"name":"e"' in run("show", server, "e", "--json").replace(" ", "")
    assert "there is no endpoint 'x'" in run("show", server, "x", code=1)
    assert "has no variant 'y'" in run("promote", server, "e", "y", code=1)
    assert "expected TAG=WEIGHT" in run("set-weights", server, "e", "stable", code=2)
    assert "'cand' is given twice" in run("set-weights", server, "e", "cand=1", "cand=2", code=1)
    assert run("set-weights", server, "e", "stable=123456.78125", "cand=-0").splitlines()[-1].split("\t")[3] == "stable=123456.78125 cand=0"
    out = run("set-weights", server, "e", "stable=1000000", "cand=1")
    assert "stable\tm\t-\t1000000\t100.00%" in out and "cand\tn\t-\t1\t<0.01%" in out and "\tstable=1000000 cand=1" in out.splitlines()[-1], out
    assert "e\t-\tstable=1000000 cand=1\t" in run("list", server)
    assert "all weights are 0" in run("set-weights", server, "e", "stable=0", "cand=0", code=1)
    assert "variant 1 'stable' has weight -1" in run("set-weights", server, "e", "stable=-1", code=1)
    assert "there is no ramp" in run("resume", server, "e", code=1)
    assert "promote takes the name of an endpoint, and a tag" in run("promote", server, "e", code=2)
    assert "'lst' is not one of list, show" in run("lst", server, code=2)


def test_grpc_reports_and_refuses(serve):
    server = serve(endpoint("e", STABLE, CAND))
    with Reflected(server.url("grpc")) as client:
        method, request = client.method("millrace.EndpointControl/Endpoints")
        assert [e.name for e in method(request(), timeout=wait.PATIENCE).endpoints] == ["e"]
        with pytest.raises(grpc.RpcError) as e:
            method(request(name="x"), timeout=wait.PATIENCE)
        assert e.value.code() == grpc.StatusCode.NOT_FOUND
        method, request = client.method("millrace.EndpointControl/EndpointChange")
        for wrong in (dict(name="e"), dict(name="e", action=9), dict(name="e", action=1, tag="x"), dict(name="e", weights={"x": 1})):
            with pytest.raises(grpc.RpcError) as e:
                method(request(**wrong), timeout=wait.PATIENCE)
            assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_bodies_that_are_wrong(serve):
    server = serve(endpoint("e", STABLE, CAND))
    with Rest(server.http) as rest:
        for verb, body, error in (("weights", b"{", None), ("weights", b"[]", None), ("weights", b'{"wights":{}}', "wights"),
                                  ("weights", b"", "no weights"), ("weights", b'{"weights":{"x":1}}', "no variant 'x'"),
                                  ("weights", b'{"weights":{"cand":"NaN"}}', None), ("weights", b'{"weights":{"cand":1e7}}', "1e+07"),
                                  ("weights", b'{"weights":{"cand":1000000.5}}', "weight 1000000.5, possible is 0 to 1000000"),
                                  ("weights", b'{"weights":{"cand":1,"cand":2}}', "'cand' is given twice in 'weights'"),
                                  ("weights", b'{"weights":{"cand":1},"weights":{"stable":2}}', "'weights' is given twice"),
                                  ("promote", b'{"tag":"cand","tag":"stable"}', "'tag' is given twice"),
                                  ("promote", b"", "no variant ''"), ("rollback", b"", "nothing to go back to")):
            reply = rest.post(f"/v2/endpoints/e/{verb}", body)
            assert reply.status == 400 and (error or "") in reply.error, (verb, body, reply.error)
        assert rest.post("/v2/endpoints/x/rollback").status == 404
        assert rest.get("/v2/endpoints/e/weights").status == 405
    assert report(server, "e")["history"] == []


# ---- the file ----


def test_the_file_is_read_again(serve, tmp_path):
    server = serve(endpoint("kept", STABLE, CAND), endpoint("gone", variant("a", "m", 1)))
    with Rest(server.http) as rest:
        tags(rest, "kept", 5)
        change(server, "kept", "weights", {"weights": {"cand": 0}}).ok()
        write(tmp_path, endpoint("kept", STABLE, CAND), endpoint("new", variant("b", "n", 1)))
        server.process.send_signal(signal.SIGHUP)
        wait.until(lambda: rest.get("/v2/endpoints/new").status == 200, "the new endpoint")
        assert tags(rest, "new", 2) == ["b", "b"]
        assert rest.get("/v2/endpoints/gone").status == 404 and rest.infer("gone", INPUT).status == 404
        # an entry that is the same keeps its counts and its weights
        assert counts(server, "kept")["stable"][0] + counts(server, "kept")["cand"][0] == 5
        assert report(server, "kept")["variants"][1]["weight"] == 0
        # one that is wrong changes nothing
        for i, (text, why) in enumerate((("endpoint { name: 'kept' }", "line 1: endpoint 'kept': 0 variants"),
                                         (endpoint("kept", STABLE, variant("far", "m", 1, 'remote: "ftp://h:1"')), "line 1: endpoint 'kept': variant 'far': remote: "))):
            write(tmp_path, text)
            wait.until(lambda: value(server, "millrace_endpoints_reload_failures_total") == i + 1, "a failure to be counted")
            assert f"{tmp_path / 'endpoints.pbtxt'}: {why}" in server.err()
            assert tags(rest, "kept", 1) == ["stable"] and tags(rest, "new", 1) == ["b"]
        repo.change_rights(tmp_path / "endpoints.pbtxt")
        wait.until(lambda: value(server, "millrace_endpoints_reload_failures_total") == 3, "a try with other rights")
        assert value(server, "millrace_endpoints") == 2


SERVICE = 'service { name: "s" request_field_key: "k" value_mapped_workflows { request_field_value: "x" workflow: "%s" } }'


def remote(*addresses):
    return variant("far", "m", 1, "\n" + " ".join(f'remote: "{a}"' for a in addresses))


@pytest.mark.parametrize("text, error", [
    (endpoint("m", variant("a", "n", 1)), "line 1: 'm' is the name of a model as well"),
    ("endpoint { nme: 'e' }", "line 1 column 12: "),
    (endpoint("e", variant("a", "e", 1)), "line 1: endpoint 'e': variant 'a' names 'e', which is an endpoint: possible are models and workflows"),
    (endpoint("e", variant("a", "m", 1)) + endpoint("f", variant("b", "e", 1)), "line 2: endpoint 'f': variant 'b' names 'e', which is an endpoint"),
    (endpoint("e", variant("a", "m", 1), '\nshadow { model: "e" percent: 1 }'), "line 2: endpoint 'e': shadow 'shadow' names 'e'"),
    (endpoint("e", variant("a", "s", 1)) + SERVICE % "e", "line 1: endpoint 'e': variant 'a' names 's', which is a service"),
    ("\n" + SERVICE % "s", "line 2: service 's': the value 'x' names 's', which is a service: possible are models, workflows and endpoints"),
    ('service { name: "s" request_field_key: "k" default: "s" }', "line 1: the default of service 's' names 's', which is a service"),
    (endpoint("e"), "line 1: endpoint 'e': 0 variants, possible are 1 to 32"),
    (endpoint("e", "\n", remote("ftp://h:1")), "line 2: endpoint 'e': variant 'far': remote: 'ftp://h:1': http://, https://, grpc:// and grpcs:// are the known schemes"),
    (endpoint("e", remote("grpc://h:1", "bns://x")), "line 1: endpoint 'e': variant 'far': remote: 'bns://x': hosts cannot be found by bns://"),
    (endpoint("e", remote("grpc://h:1;http://")), "line 1: endpoint 'e': variant 'far': remote: 'http://' is not the address of a host"),
    (endpoint("e", remote("grpc://h:port")), "line 1: endpoint 'e': variant 'far': remote: 'h:port' is not an address: expected host:port"),
    (endpoint("e", remote(";")), "line 1: endpoint 'e': variant 'far': remote ';' has no address"),
    (endpoint("e", remote("")), "line 2: endpoint 'e': variant 1: remote: a name of 1 to 255 bytes is needed, not of 0"),
    (endpoint("e", remote(*(f"grpc://10.0.0.{i}:8001" for i in range(20)))), "line 1: endpoint 'e': variant 'far': the model's name with all that is in `remote` has "),
    (endpoint("e", variant("a", "m", 1), '\nshadow { model: "m" percent: 1 remote: "grpc://h:1" }'), "line 2: endpoint 'e': shadow: remote is for clients"),
])
def test_a_wrong_file_ends_the_start(serve, tmp_path, text, error):
    server = serve(text, ready=False)
    server.process.wait(timeout=wait.PATIENCE)
    server.checked = True
    assert server.process.returncode == 1 and f"{tmp_path / 'endpoints.pbtxt'}: {error}" in server.err()


def test_no_file_ends_the_start(models, start, tmp_path):
    server = start(models, f"--endpoints={tmp_path / 'none'}", ready=False)
    server.process.wait(timeout=wait.PATIENCE)
    server.checked = True
    assert server.process.returncode == 1 and "none: No such file or directory" in server.err()


def test_a_model_may_not_have_the_name_of_an_endpoint(serve, models):
    server = serve(endpoint("e", STABLE, CAND), mode="explicit", options=("--load-model=m", "--load-model=n"))
    repo.add(models, "e")
    with Rest(server.http) as rest:
        reply = rest.post("/v2/repository/models/e/load")
        assert reply.status == 400 and "'e' is the name of an endpoint" in reply.error
        assert tags(rest, "e", 1) == ["stable"]
    client = Triton("grpc", server)
    with pytest.raises(InferenceServerException, match="'e' is the name of an endpoint"):
        client.call("load_model", "e")
    client.close()


def test_a_model_that_appears_later_is_not_asked(serve, models):
    server = serve(endpoint("e", STABLE, CAND), mode="poll", options=("--repository-poll-secs=1",))
    repo.add(models, "e")
    wait.until(lambda: "endpoint.hides_model" in server.err(), "the warning")
    with Rest(server.http) as rest:
        assert tags(rest, "e", 1) == ["stable"]


def test_without_a_file_there_are_no_endpoints(models, start):
    repo.add(models, "m")
    server = start(models)
    with Rest(server.http) as rest:
        assert rest.get("/v2/endpoints").ok().json() == {"endpoints": []}
        reply = rest.get("/v2/endpoints/e")
        assert reply.status == 404 and "there is no endpoint 'e'" in reply.error
        assert rest.post("/v2/endpoints/e/rollback").status == 404
    assert value(server, "millrace_endpoints") is None


# ---- canaries ----

RAMP = 'ramp {{ to: 50 step: 20 every_s: 600 min_samples: 20 guard: "{}" on_breach: {} }}'


def canary(guard, model="n", on_breach="ROLLBACK"):
    return endpoint("e", STABLE, variant("cand", model, 10, RAMP.format(guard, on_breach)))


@pytest.fixture
def moved(serve, tmp_path):
    """A server whose clock the test moves."""
    faults = Faults(tmp_path)

    def make(*texts, **kw):
        server = serve(*texts, env=faults.env, program=PROGRAM, **kw)
        return server, lambda seconds: faults.later(server, seconds)

    return make


def ask(server, count):
    with Rest(server.http) as rest:
        return [rest.infer("e", INPUT).status for _ in range(count)]


def weight(server):
    return report(server, "e")["variants"][1]["weight"]


def kinds(server):
    return [e["kind"] for e in report(server, "e")["history"]]


def test_a_ramp_goes_up_while_its_guard_holds(moved):
    server, later = moved(canary("err < 0.01 && p99_ms < stable.p99_ms + 100000000"))
    for expected_weight in (10, 30, 50):
        assert ask(server, 250) == [200] * 250
        wait.equal(lambda: weight(server), expected_weight, "the weight")
        later(600)
    wait.equal(lambda: report(server, "e")["ramp"]["state"], "done", "the state")
    assert kinds(server) == ["start", "step", "done"]
    assert value(server, "millrace_endpoint_share", endpoint="e", variant="cand") == 0.5
    assert value(server, "millrace_endpoint_changes_total", endpoint="e") == 3
    assert "endpoint.weights" in server.err()


def test_time_alone_is_no_reason_to_go_on(moved):
    server, later = moved(canary("err < 0.01"))
    assert ask(server, 50) == [200] * 50  # five of the variant, of the twenty that it takes
    later(6000)
    assert ask(server, 250) == [200] * 250
    wait.equal(lambda: weight(server), 30, "the weight")
    assert kinds(server) == ["start", "step"]


def test_a_canary_that_fails_goes_back_by_itself(moved):
    server, later = moved(canary("err < 0.01 && p99_ms < stable.p99_ms + 100000000", model="bad"))
    statuses = ask(server, 150)
    assert statuses.count(500) == 15  # of the 150, and of those that it takes to judge none has succeeded
    assert weight(server) == 10
    while weight(server) == 10:
        ask(server, 10)
        later(1)
    wait.equal(lambda: report(server, "e")["ramp"]["state"], "rolled_back", "the state")
    assert weight(server) == 0 and report(server, "e")["variants"][0]["weight"] == 100
    assert ask(server, 100) == [200] * 100
    last = report(server, "e")["history"][-1]
    assert last["kind"] == "rollback" and not last["by_hand"] and last["weights"] == [100, 0]
    assert last["reason"] == "err < 0.01 does not hold: left 1, right 0.01"
    assert "rollback\tramp\tstable=100 cand=0\terr < 0.01 does not hold" in run("show", server, "e")
    assert value(server, "millrace_endpoint_errors_total", endpoint="e", variant="cand", fault="server") == counts(server, "e")["cand"][1]
    # and once more by hand
    change(server, "e", "resume").ok()
    assert weight(server) == 10 and kinds(server)[-1] == "resume"


def test_a_canary_may_be_held(moved):
    server, later = moved(canary("err < 0.01", model="bad", on_breach="HOLD"))
    while report(server, "e")["ramp"]["state"] == "running":
        ask(server, 10)
        later(1)
    assert report(server, "e")["ramp"]["state"] == "held" and weight(server) == 10
    change(server, "e", "rollback").ok()
    assert weight(server) == 0 and kinds(server) == ["start", "hold", "rollback"]


def test_weights_by_hand_stop_a_ramp(moved):
    server, later = moved(canary("err < 0.01"))
    change(server, "e", "weights", {"weights": {"cand": 7}}).ok()
    assert report(server, "e")["ramp"]["state"] == "stopped"
    ask(server, 300)
    later(6000)
    assert weight(server) == 7


# ---- shadows ----


def shadow(server):
    s = report(server, "e")["shadow"]
    return [s[k] for k in ("requests", "dropped", "failed", "compared", "different")]


@pytest.mark.parametrize("model, compare, outcome", [
    ("n", "equal", [50, 0, 0, 50, 0]), ("n", "", [50, 0, 0, 0, 0]), ("bad", "equal", [50, 0, 50, 0, 0]), ("missing", "equal", [50, 0, 50, 0, 0]),
    ("wide", "equal", [50, 0, 50, 0, 0])])
def test_a_shadow_gets_its_share(serve, models, model, compare, outcome):
    repo.add(models, "wide", inputs=[repo.tensor("OTHER")])
    server = serve(endpoint("e", variant("a", "m", 1),
                            f'shadow {{ tag: "next" model: "{model}" percent: 50 compare: "{compare}" max_queue: 4096 }}'))
    assert ask(server, 100) == [200] * 100
    wait.equal(lambda: shadow(server), outcome, "what became of the copies")
    if outcome[3]:
        assert value(server, "millrace_endpoint_shadow_total", endpoint="e", variant="next", outcome="equal") == 50
    # its requests are not the endpoint's
    assert counts(server, "e") == {"a": (100, 0)}


def test_a_shadow_that_answers_otherwise_is_noticed(serve, models):
    a, b, out = repo.tensor("A", "TYPE_FP32", (2,)), repo.tensor("B", "TYPE_FP32", (2,)), [repo.tensor(f"OUTPUT{i}", "TYPE_FP32", (2,)) for i in (0, 1)]
    repo.add(models, "x", inputs=[a, b], outputs=out)
    repo.add(models, "y", inputs=[b, a], outputs=out)
    server = serve(endpoint("e", variant("a", "x", 1), 'shadow { model: "y" percent: 100 compare: "tolerance:1e-3" }'))
    with Rest(server.http) as rest:
        for n, (second, different) in enumerate([([1.5, -2.5], 0), ([1.501, -2.501], 0), ([1.5, -2.4], 1), ([1.5, 2.5], 2)]):
            rest.infer("e", [("A", "FP32", [2], [1.5, -2.5]), ("B", "FP32", [2], second)], outputs=[{"name": "OUTPUT0"}]).ok()
            wait.equal(lambda: shadow(server), [n + 1, 0, 0, n + 1, different], "what became of the copies")


def test_a_shadow_that_is_slow_drops(serve, hold):
    server = serve(endpoint("e", variant("a", "m", 1), 'shadow { model: "bad" percent: 100 compare: "equal" max_queue: 4 }'), bad=hold.parameters)
    assert ask(server, 30) == [200] * 30  # one runs, four wait
    wait.equal(lambda: shadow(server), [30, 25, 0, 0, 0], "what became of the copies")
    hold.end()
    wait.equal(lambda: shadow(server), [30, 25, 0, 5, 0], "what became of the copies")


def test_a_server_ends_with_a_shadow_under_way(serve, hold):
    server = serve(endpoint("e", variant("a", "m", 1), 'shadow { model: "bad" percent: 100 }'), bad=hold.parameters)
    assert ask(server, 5) == [200] * 5
    hold.wait_held()
    server.process.send_signal(signal.SIGTERM)
    wait.until(lambda: "server.stopping" in server.err() or "drain" in server.err(), "the end to begin")
    hold.end()

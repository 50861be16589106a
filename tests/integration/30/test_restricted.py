"""Restricted APIs: every endpoint of both protocols has a class, and requires its header when the class is restricted."""
import queue
import subprocess

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb

from lib import grpcraw, repo, wait
from lib.grpcraw import Grpc
from lib.raw import Closed, Http1, Http2, request
from lib.reflected import reflection_call
from lib.rest import Rest
from lib.server import BIN, clean_environment
from lib.tclients import KINDS, Triton, error_of

ROUTES = {
    "health": ["/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/v2/models/m/versions/1/ready"],
    "metadata": ["/v2", "/v2/docs", "/v2/docs/openapi.json", "/v2/models/m", "/v2/models/m/versions/1"],
    "inference": ["/v2/models/m/infer", "/v2/models/m/versions/1/infer", "/v2/models/m/generate", "/v2/models/m/generate_stream"],
    "shared-memory": [f"/v2/{kind}sharedmemory/{path}" for kind in ("system", "cuda") for path in
                      ("status", "region/x/status", "region/x/register", "unregister", "region/x/unregister")],
    "model-config": ["/v2/models/m/config", "/v2/models/m/versions/1/config"],
    "model-repository": ["/v2/repository/index", "/v2/repository/r/index", "/v2/repository/models/m/load",
                         "/v2/repository/models/m/unload", "/v2/repository/r/models/m/load"],
    "statistics": ["/v2/models/stats", "/v2/models/m/stats", "/v2/models/m/versions/1/stats"],
    "trace": ["/v2/trace/setting", "/v2/models/m/trace/setting"],
    "logging": ["/v2/logging"],
}
METHODS = {
    "health": ["ServerLive", "ServerReady", "ModelReady"],
    "metadata": ["ServerMetadata", "ModelMetadata"],
    "inference": ["ModelInfer", "ModelStreamInfer"],
    "shared-memory": [f"{kind}SharedMemory{verb}" for kind in ("System", "Cuda") for verb in ("Status", "Register", "Unregister")],
    "model-config": ["ModelConfig"],
    "model-repository": ["RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"],
    "statistics": ["ModelStatistics"],
    "trace": ["TraceSetting"],
    "logging": ["LogSettings"],
}
SERVICE = "/inference.GRPCInferenceService/"
KEYS = {name: f"key-{name}" for name in [*ROUTES, "metrics", "reflection"]}


def secret(name):
    return f"secret of {name}:=;,"


@pytest.fixture
def filled(models):
    repo.add(models, "m")
    repo.add(models, "fault", backend="fault")
    return models


@pytest.fixture
def closed(filled, start):
    """Every class has a header of its own."""
    http = [f"--http-restricted-api={n}:{KEYS[n]}={secret(n)}" for n in [*ROUTES, "metrics"]]
    rpc = [f"--grpc-restricted-protocol={n}:{KEYS[n]}={secret(n)}" for n in [*METHODS, "reflection"]]
    return start(filled, *http, *rpc, "--log-verbose=1")


def test_every_route(closed):
    with Rest(closed.http) as rest:
        for name, paths in ROUTES.items():
            others = {k: secret(n) for n, k in KEYS.items() if n != name}
            for path in paths:
                for method in ("GET", "POST", "DELETE"):
                    for headers in ({}, others, {KEYS[name]: ""}, {KEYS[name]: secret(name)[:-1]}, {KEYS[name]: secret(name) + "x"}):
                        reply = rest.request(method, path, body=b"{}" if method == "POST" else None, headers=headers)
                        assert reply.status == 403, (method, path, headers, reply)
                        assert reply.error == f"This API is restricted, expecting header '{KEYS[name]}'"
                    reply = rest.request(method, path, body=b"{}" if method == "POST" else None,
                                         headers={KEYS[name].title(): secret(name)})
                    assert reply.status != 403 and b"restricted" not in reply.body, (method, path, reply)
        assert rest.get("/v2/nosuch").status == 404
    with Rest(closed.metrics) as rest:
        assert rest.get("/metrics").status == 403
        assert b"nv_inference_count" in rest.get("/metrics", headers={"key-metrics": secret("metrics")}).ok().body


def call(channel, method, metadata=()):
    """(code, text) of a call with an empty message, whatever its kind."""
    stream = method.endswith(("ModelStreamInfer", "ServerReflectionInfo"))
    kind = channel.stream_stream if stream else channel.unary_unary
    made = kind(method, request_serializer=bytes, response_deserializer=bytes)
    try:
        if stream:
            list(made(iter([b""]), metadata=metadata, timeout=wait.PATIENCE))
        else:
            made(b"", metadata=metadata, timeout=wait.PATIENCE)
    except grpc.RpcError as e:
        return e.code(), e.details()
    return grpc.StatusCode.OK, ""


def test_every_method(closed):
    known = {SERVICE + m for methods in METHODS.values() for m in methods}
    told = {SERVICE + m.name for m in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods}
    assert known == told, "a method of the service has no class here"
    table = {name: [SERVICE + m for m in methods] for name, methods in METHODS.items()}
    table["health"].append("/grpc.health.v1.Health/Check")
    table["reflection"] = [f"/grpc.reflection.{v}.ServerReflection/ServerReflectionInfo" for v in ("v1", "v1alpha")]
    with grpc.insecure_channel(closed.url("grpc")) as channel:
        for name, methods in table.items():
            key = f"triton-grpc-protocol-{KEYS[name]}"
            others = [(f"triton-grpc-protocol-{k}", secret(n)) for n, k in KEYS.items() if n != name]
            for method in methods:
                for metadata in ((), others, [(KEYS[name], secret(name))], [(key, secret(name) + "x")]):
                    assert call(channel, method, metadata) == (
                        grpc.StatusCode.UNAVAILABLE, f"This protocol is restricted, expecting header '{key}'"), (method, metadata)
                assert "restricted" not in call(channel, method, [(key, secret(name))])[1], method
        assert call(channel, SERVICE + "NoSuch")[0] == grpc.StatusCode.UNIMPLEMENTED


def test_health_watch(closed):
    with grpc.insecure_channel(closed.url("grpc")) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=bytes,
                                     response_deserializer=health_pb2.HealthCheckResponse.FromString)
        with pytest.raises(grpc.RpcError) as e:
            next(watch(b"", timeout=wait.PATIENCE))
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE and "restricted" in e.value.details()
        stream = watch(b"", metadata=[("triton-grpc-protocol-key-health", secret("health"))], timeout=wait.PATIENCE)
        assert next(stream).status == health_pb2.HealthCheckResponse.SERVING
        stream.cancel()


def test_secrets_are_told_to_nobody(closed):
    """After calls of all kinds: not in the log, the metrics, an answer, a model's answer."""
    seen = []
    with Rest(closed.http) as rest:
        for name, paths in ROUTES.items():
            seen += [rest.get(p, headers={KEYS[name]: secret(name)}).body for p in paths]
            seen += [rest.get(p, headers={KEYS[name]: "wrong guess"}).body for p in paths]
    with Rest(closed.metrics) as rest:
        seen.append(rest.get("/metrics", headers={"key-metrics": secret("metrics")}).ok().body)
    everything = b"".join(seen).decode() + closed.err() + closed.out()
    assert "secret of" not in everything and "wrong guess" not in everything


@pytest.mark.parametrize("kind", KINDS)
def test_tritonclient(filled, start, kind):
    server = start(filled, "--http-restricted-api=model-repository:admin-key=admin-value",
                   "--http-restricted-api=inference,health:infer-key=infer-value",
                   "--grpc-restricted-protocol=model-repository:admin-key=admin-value",
                   "--grpc-restricted-protocol=inference,health:infer-key=infer-value")
    client = Triton(kind, server)
    prefix = "triton-grpc-protocol-" if client.is_grpc else ""
    text = f"This {'protocol' if client.is_grpc else 'API'} is restricted"
    infer, admin = {prefix + "infer-key": "infer-value"}, {prefix + "admin-key": "admin-value"}
    assert text in str(error_of(client.infer, "m", [client.int32([1, 2])]))
    assert text in str(error_of(client.infer, "m", [client.int32([1, 2])], headers={"test": "1"}))
    assert text in str(error_of(client.infer, "m", [client.int32([1, 2])], headers=admin))
    assert client.infer("m", [client.int32([1, 2])], headers=infer).as_numpy("OUTPUT0").tolist() == [1, 2]
    assert text in str(error_of(client.call, "unload_model", "m", headers=infer))
    assert "explicit model load / unload is not allowed" in str(error_of(client.call, "unload_model", "m", headers=admin))
    assert client.call("is_server_live", headers=infer)
    if client.is_grpc:
        assert text in str(error_of(client.call, "is_server_live"))
    else:
        assert not client.call("is_server_live")
    assert client.document("get_server_metadata")["name"] == "triton", "what is in no group is open"
    client.close()


def test_stream_of_tritonclient(filled, start):
    server = start(filled, "--grpc-restricted-protocol=inference:infer-key=infer-value")
    client = Triton("grpc", server)
    for headers, want in (({"test": "1"}, "restricted"), ({"triton-grpc-protocol-infer-key": "infer-value"}, [1, 2])):
        answers = queue.Queue()
        client.client.start_stream(lambda result, error: answers.put((result, error)), headers=headers)
        try:
            client.client.async_stream_infer("m", [client.int32([1, 2])])
        except Exception as e:
            assert want == "restricted" and "no longer in valid state" in str(e)
        result, error = answers.get(timeout=wait.PATIENCE)
        if want == "restricted":
            assert "This protocol is restricted, expecting header 'triton-grpc-protocol-infer-key'" in str(error)
        else:
            assert np.array_equal(result.as_numpy("OUTPUT0"), want)
        client.client.stop_stream()
    client.close()


def test_refused_before_the_body(filled, start):
    """A client without the header cannot make the server read a body."""
    server = start(filled, "--http-restricted-api=inference:k=v", "--http-max-input-size=1GiB")
    with Http1(server.http) as wire:
        wire.send(request("POST", "/v2/models/m/infer", "Content-Length: 1000000000\r\n"))
        assert wire.response().status == 403
    with Http1(server.http) as wire:
        wire.send(request("POST", "/v2/models/m/infer", "Content-Length: 100\r\nExpect: 100-continue\r\n"))
        answer = wire.response()
        assert answer.status == 403 and answer.interim == []
    with Http1(server.http) as wire:
        wire.send(request("POST", "/v2/models/m/infer", "Transfer-Encoding: chunked\r\n") + b"ZZZ\r\n")
        assert wire.response().status == 403
        with pytest.raises(Closed):  # one answer for one request
            wire.response()
    with Http2(server.http) as wire:
        stream = wire.headers("POST", "/v2/models/m/infer", end=False)
        wire.wait(lambda: wire.data_of(stream), "the refusal")
        assert b"restricted" in wire.data_of(stream)


def test_no_way_around_by_the_other_protocol(filled, start):
    """Each port speaks one protocol while anything is restricted; otherwise both speak both."""
    server = start(filled, "--http-restricted-api=model-repository:k=v")
    with grpc.insecure_channel(server.url("http")) as channel:
        assert call(channel, SERVICE + "RepositoryIndex")[0] == grpc.StatusCode.PERMISSION_DENIED
        assert call(channel, SERVICE + "ModelStreamInfer")[0] == grpc.StatusCode.PERMISSION_DENIED
    with Rest(server.grpc) as rest:
        reply = rest.get("/v2/health/live")
        assert reply.status == 403 and "--http-port" in reply.error
    with Grpc(server.url("grpc")) as client:
        assert client.infer(grpcraw.int32("m", [1]))


def test_models_do_not_see_the_header(filled, start):
    """The fault backend fails with the parameter fail_status, also when it comes from a header."""
    server = start(filled, "--http-header-forward-pattern=.*", "--http-restricted-api=inference:fail_status=NOT_FOUND",
                   "--grpc-restricted-protocol=statistics:k=v")
    with Rest(server.http) as rest:
        assert rest.infer("fault", [("INPUT0", "INT32", [1], [1])], headers={"fail_status": "NOT_FOUND"}).status == 200


def test_reflection_works_unless_it_is_restricted(filled, start):
    server = start(filled, "--grpc-restricted-protocol=inference,health,metadata,model-repository:k=v")
    with grpc.insecure_channel(server.url("grpc")) as channel:
        from grpc_reflection.v1alpha import reflection_pb2

        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        assert next(reflection_call(channel, "v1")(iter([ask]), timeout=wait.PATIENCE)).list_services_response.service


def serve(*args, env=None):
    done = subprocess.run([BIN, "serve", *map(str, args)], capture_output=True, text=True, timeout=wait.PATIENCE,
                          stdin=subprocess.DEVNULL, env=clean_environment(env))
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("option, what", [("http-restricted-api", "api"), ("grpc-restricted-protocol", "protocol")])
@pytest.mark.parametrize("groups, text", [
    (["model-reposit,health:k1=hidden", "metadata:k2=hidden"], "unknown restricted {} 'model-reposit'"),
    (["model-repository,health:k1=hidden", "metadata,health:k2=hidden"],
     "restricted {} 'health' can not be specified in multiple config groups"),
    (["health,health:k=hidden"], "restricted {} 'health' can not be specified in multiple config groups"),
    (["health"], "APIS:KEY=VALUE"), (["health:k"], "APIS:KEY=VALUE"), (["k=hidden"], "APIS:KEY=VALUE"), ([":k=hidden"], "APIS:KEY=VALUE"),
    (["k=hidden:x=y"], "APIS:KEY=VALUE"), ([",:k=hidden"], "unknown restricted {} ''"), (["health:=hidden"], "the key must have"),
    (["health:a key=hidden"], "the key must have"), (["health:" + "k" * 200 + "=hidden"], "the key must have"), (["health:k="], "the value must"),
    (["health:k= hidden"], "the value must"), (["health:k=********"], "the value must")], ids=str)
def test_wrong_groups(filled, option, what, groups, text):
    code, out, err = serve(f"--model-repository={filled}", *(f"--{option}={g}" for g in groups))
    assert code == 2 and out == ""
    assert text.format(what) in err and f"--{option}" in err and "hidden" not in err


@pytest.mark.parametrize("group, option", [("metrics:k=v", "grpc-restricted-protocol"), ("reflection:k=v", "http-restricted-api")])
def test_classes_of_one_protocol(filled, group, option):
    code, _, err = serve(f"--model-repository={filled}", f"--{option}={group}")
    assert code == 2 and "unknown restricted" in err


def test_dump_options_masks(filled, tmp_path):
    file = tmp_path / "c.conf"
    file.write_text("grpc-restricted-protocol = health:k=hidden one\n")
    file.chmod(0o600)
    code, out, err = serve(f"--model-repository={filled}", f"--config={file}", "--dump-options",
                           env={"MILLRACE_HTTP_RESTRICTED_API": "health:k=hidden two"})
    assert code == 0 and "hidden" not in out + err
    assert "http-restricted-api = ********" in out and "grpc-restricted-protocol = ********" in out
    file.write_text(out)
    code, _, err = serve(f"--config={file}")
    assert code == 2 and "restricted" in err, "what is masked does not become a password"


def test_from_environment_and_file(filled, start, tmp_path):
    file = tmp_path / "c.conf"
    file.write_text("http-restricted-api = inference:k=from file\n")
    server = start(filled, f"--config={file}", env={"MILLRACE_GRPC_RESTRICTED_PROTOCOL": "health:a=1;inference:b=2"})
    with Rest(server.http) as rest:
        assert rest.infer("m", [("INPUT0", "INT32", [1], [1])]).status == 403
        assert rest.infer("m", [("INPUT0", "INT32", [1], [1])], headers={"k": "from file"}).status == 200
    with grpc.insecure_channel(server.url("grpc")) as channel:
        assert "triton-grpc-protocol-a" in call(channel, SERVICE + "ServerLive")[1]
        assert "triton-grpc-protocol-b" in call(channel, SERVICE + "ModelInfer")[1]


ALL = "health,metadata,inference,model-config,model-repository,statistics"
BEARER = "Bearer a=b; c"


@pytest.fixture
def guarded(filled, start):
    return start(filled, f"--http-restricted-api={ALL}:authorization={BEARER}", f"--grpc-restricted-protocol={ALL}:authorization={BEARER}",
                 "--model-control-mode=explicit", "--load-model=*")


def tool(*args, code, **environment):
    done = subprocess.run([BIN, *map(str, args)], capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment(environment))
    assert done.returncode == code, (args, done.stdout, done.stderr)
    return done.stdout + done.stderr


def commands(server, folder):
    """{name: (arguments, exit status without the header)} of everything that calls a server."""
    http, rpc, folder = server.url("http"), server.url("grpc"), str(folder)
    infer = ["infer", "-m", "m", "-i", "INPUT0=[7]"]
    load = ["perf", "-m", "m", "--requests", "20", "--warmup", "0", "--concurrency", "2"]
    batch = ["batch", "run", "-i", f"{folder}/in.jsonl", "-m", "m", "--batch-rows", "4", "-o"]
    return {
        "infer": ([*infer, "-u", http], 1),
        "infer binary": ([*infer, "-u", http, "--protocol", "binary"], 1),
        "infer grpc": ([*infer, "-u", rpc, "--protocol", "grpc"], 1),
        "perf": ([*load, "-u", http], 1),
        "perf http2": ([*load, "-u", http, "--http2"], 1),
        "perf grpc": ([*load, "-u", rpc, "--protocol", "grpc"], 1),
        "perf grpc-stream": ([*load, "-u", rpc, "--protocol", "grpc-stream"], 1),
        "list": (["model", "list", "-u", http], 1),
        "stats": (["model", "stats", "-u", http], 1),
        "versions": (["model", "versions", "m", "-u", http], 1),
        "config": (["model", "config", "m", "-u", http], 1),
        "load": (["model", "load", "m", "-u", http], 1),
        "label": (["model", "label", "m", "stable", "1", "-u", http], 1),
        "batch": ([*batch, f"{folder}/rest", "--hosts", http], None),
        "batch grpc": ([*batch, f"{folder}/grpc", "--hosts", f"grpc://{rpc}"], None),
    }


@pytest.mark.few(5)
@pytest.mark.parametrize("name", list(commands(type("S", (), {"url": lambda self, kind: kind})(), "")))
def test_commands_send_headers(guarded, tmp_path, name):
    """Over gRPC they are metadata."""
    (tmp_path / "in.jsonl").write_text("".join('{"INPUT0": %d}\n' % k for k in range(20)))
    args, refused = commands(guarded, tmp_path)[name]
    if refused is not None:
        assert "restricted" in tool(*args, code=refused)
    tool(*args, "-H", f"Authorization: {BEARER}", "-H", f"Triton-Grpc-Protocol-Authorization:{BEARER}", code=0)


def test_headers_from_the_environment(filled, start):
    """A token there is in no list of processes."""
    server = start(filled, f"--http-restricted-api={ALL}:authorization=Bearer abc")
    args = ["infer", "-m", "m", "-i", "INPUT0=[7]", "-u", server.url("http")]
    tool(*args, code=0, MILLRACE_HEADER="x: y;Authorization: Bearer abc")


def test_map_sends_headers(guarded):
    done = subprocess.run([BIN, "map", "-m", "m", "--hosts", guarded.url("http"), "-H", f"authorization:{BEARER}"], input='{"INPUT0": 3}\n',
                          capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 0 and "3" in done.stdout, done.stderr


@pytest.mark.parametrize("header, text", [
    ("nothing", "has no colon"), (": x", "has no valid name"), ("a b: x", "has no valid name"), ("x: a\r\nb: c", "printable ASCII"),
    ("Content-Length: 3", "cannot be set"), ("TE: trailers", "cannot be set"), ("Grpc-Timeout: 1S", "cannot be set"),
    ("x: " + "y" * 9000, "at most 8192 bytes")])
def test_wrong_headers(header, text):
    said = tool("infer", "-m", "m", "-i", "x=1", "-u", "127.0.0.1:1", "-H", header, code=2)
    assert text in said and "yyyy" not in said

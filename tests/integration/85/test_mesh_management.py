"""Calls that change models, from the server's machine and from another one (lib/services/network.py): without TLS the other one may only ask."""
import http.client
import json
import ssl
import subprocess
import sys

import pytest

from lib import repo, wait
from lib.services import network
from lib.services.authority import Authority

WHY_NOT = network.why_not()
needs_network = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
EVERYWHERE = "--http-address=0.0.0.0", "--grpc-address=0.0.0.0", "--allowed-host=*"
QUESTIONS = [("GET", "/v2/mesh"), ("GET", "/v2/mesh/models"), ("POST", "/v2/repository/index"), ("GET", "/v2/models/m/ready"), ("POST", "/v2/models/m/infer")]
CHANGES = ["/v2/mesh/models/n/register", "/v2/mesh/models/m/load", "/v2/mesh/models/m/unregister", "/v2/mesh/vmodels/v/set", "/v2/mesh/vmodels/v/delete",
           "/v2/mesh/drain", "/v2/repository/models/m/load", "/v2/repository/models/m/unload"]
INFERENCE = b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}'
# Makes calls of gRPC with empty messages, as field numbers do not matter here: METHOD… -> their codes.
GRPC = """
import grpc, json, sys
channel = grpc.insecure_channel(sys.argv[1])
codes = {}
for method in sys.argv[2:]:
    try:
        channel.unary_unary(method)(b"", timeout=60, wait_for_ready=True)
        codes[method] = "OK"
    except grpc.RpcError as e:
        codes[method] = e.code().name
print(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def machines():
    net = network.Network(2)
    yield net.nodes
    net.end()


def ask(node, address, method, path, body=b"{}", context=None):
    """(status, text) of a request that a machine sends."""
    def there():
        to = (http.client.HTTPSConnection(*address, context=context, timeout=wait.PATIENCE) if context
              else http.client.HTTPConnection(*address, timeout=wait.PATIENCE))
        try:
            to.request(method, path, INFERENCE if path.endswith("/infer") else body if method == "POST" else None)
            answer = to.getresponse()
            return answer.status, answer.read().decode()
        finally:
            to.close()
    return node.within(there)


def codes(node, target, *methods):
    done = subprocess.run([*node.prefix, sys.executable, "-c", GRPC, target, *methods], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def begin(start, models, node, *options, **kw):
    repo.add(models, "m", repo.config())
    server = start(models, "--mesh=memory:", *EVERYWHERE, *options, mode=None, prefix=node.prefix, **kw)
    wait.until(lambda: ask(node, ("127.0.0.1", server.http), "GET", "/v2/health/ready")[0] == 200, f"the server to join\n{server.describe()}")
    return server


@needs_network
def test_another_machine_may_only_ask(start, models, machines):
    here, there = machines
    server = begin(start, models, here)
    at = here.ip, server.http
    for question in QUESTIONS:
        assert ask(there, at, *question)[0] == 200, question
    for path in CHANGES:
        status, text = ask(there, at, "POST", path)
        assert status == 403 and "--allow-remote-management" in json.loads(text)["error"], (path, text)
    assert ask(there, at, "GET", "/v2/mesh/models/n")[0] == 404, "nothing was registered"

    mesh, triton = "/mmesh.ModelMesh/", "/inference.GRPCInferenceService/"
    said = codes(there, f"{here.ip}:{server.ports['grpc']}", mesh + "registerModel", mesh + "setVModel", mesh + "getModelStatus", mesh + "getVModelStatus",
                 "/com.ibm.watson.tas.proto.TasRuntime/addModel", triton + "RepositoryModelLoad", triton + "RepositoryIndex")
    assert {m for m, code in said.items() if code == "PERMISSION_DENIED"} == {
        mesh + "registerModel", mesh + "setVModel", "/com.ibm.watson.tas.proto.TasRuntime/addModel", triton + "RepositoryModelLoad"}
    assert said[triton + "RepositoryIndex"] == "OK"
    assert codes(there, f"{here.ip}:{server.http}", mesh + "registerModel")[mesh + "registerModel"] == "PERMISSION_DENIED", "gRPC on the port of HTTP"


@needs_network
def test_own_machine_may_change_models_by_any_of_its_addresses(start, models, machines):
    here, _ = machines
    server = begin(start, models, here)
    for address in ("127.0.0.1", here.ip):
        assert ask(here, (address, server.http), "POST", "/v2/mesh/models/n/register", b'{"type": "t", "path": "", "key": ""}')[0] == 200
        assert ask(here, (address, server.http), "POST", "/v2/mesh/models/m/load")[0] == 200


@needs_network
@pytest.mark.parametrize("given", ["option", "variable"])
def test_another_machine_may_change_models_if_it_is_said(start, models, machines, given):
    here, there = machines
    server = begin(start, models, here, *(["--allow-remote-management"] if given == "option" else []), env={"KV_STORE": "memory:"} if given == "variable" else None)
    assert ask(there, (here.ip, server.http), "POST", "/v2/mesh/models/n/register", b'{"type": "t", "path": "", "key": ""}')[0] == 200


@needs_network
def test_another_machine_may_change_models_over_tls(start, models, machines, tmp_path):
    here, there = machines
    authority = Authority(tmp_path / "a")
    cert, key = authority.sign("server", subject=f"IP:{here.ip}")
    repo.add(models, "m", repo.config())
    server = start(models, "--mesh=memory:", *EVERYWHERE, "--http-use-ssl", f"--http-server-cert={cert}", f"--http-server-key={key}", mode=None, prefix=here.prefix)
    at, context = (here.ip, server.http), ssl.create_default_context(cafile=str(authority.cert))
    wait.until(lambda: ask(there, at, "GET", "/v2/health/ready", context=context)[0] == 200, f"the server to join\n{server.describe()}")
    assert ask(there, at, "POST", "/v2/mesh/models/n/register", b'{"type": "t", "path": "", "key": ""}', context)[0] == 200


@needs_network
def test_another_machine_is_not_the_mesh_of_a_runtime(start, tmp_path, machines):
    here, there = machines
    (tmp_path / "placed").mkdir()
    server = start([], f"--model-runtime={tmp_path / 'placed'}", *EVERYWHERE, mode=None, prefix=here.prefix)
    state = "/mmesh.ModelRuntime/runtimeStatus"
    assert codes(there, f"{here.ip}:{server.ports['grpc']}", state)[state] == "PERMISSION_DENIED"
    assert codes(here, f"127.0.0.1:{server.ports['grpc']}", state)[state] == "OK"


@needs_network
def test_a_server_without_a_mesh_is_open_as_ever(start, models, machines):
    here, there = machines
    repo.add(models, "m", repo.config())
    server = start(models, *EVERYWHERE, mode="explicit", prefix=here.prefix)
    assert ask(there, (here.ip, server.http), "POST", "/v2/repository/models/m/load")[0] == 200


@pytest.mark.parametrize("address", ["10.0.0.5:8085", "runtime:8085", "127.0.0.1.example:8085"])
@pytest.mark.parametrize("option", ["--mesh-runtime", "--mesh-runtime-inference"])
def test_runtime_of_another_machine_is_refused(start, models, option, address):
    repo.add(models, "m", repo.config())
    server = start(models, "--mesh=memory:", "--mesh-runtime=127.0.0.1:8085", f"{option}={address}", mode=None, ready=False)
    assert server.wait_exit() != 0
    server.end_anyhow()
    assert f"{option} '{address}'" in server.err() and "loopback" in server.err()

"""Servers that start: with a registry that is not there, beside others that end, from the environment of a ModelMesh; and their metrics."""
import json
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from lib import metrics, repo, wait
from lib.hold import Hold
from lib.rest import Rest
from lib.server import BIN, clean_environment
from lib.services.authority import Authority
from lib.services.mesh import X, answers, ask, joined, mesh_port, see_each_other
from lib.services.ports import quiet_port

needs_etcd = pytest.mark.skipif(not shutil.which("etcd"), reason="there is no etcd here")


@pytest.fixture
def nobody():
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1]


def is_ready(server):
    with Rest(server.http) as r:
        return r.get("/v2/health/ready").status == 200


@pytest.mark.parametrize("runtime", [[], ["--mesh-runtime=unix:/nowhere"]], ids=["", "runtime"])
def test_registry_that_is_not_there_ends_the_start(nobody, start, models, runtime):
    repo.add(models, "m")
    server = start(models, f"--mesh=etcd://127.0.0.1:{nobody}", "--mesh-start-timeout=1s", *runtime, mode=None, ready=False)
    assert server.wait_exit() == 1
    server.end_anyhow()
    assert f"etcd://127.0.0.1:{nobody}" in server.err() and "Connection refused" in server.err() and "--mesh-start-timeout" in server.err()


@pytest.mark.parametrize("runtime", [[], ["--mesh-runtime=unix:/nowhere"]], ids=["", "runtime"])
@pytest.mark.parametrize("path", ["/nowhere/", "/" + "x" * 200], ids=["folder", "long"])
def test_journal_that_is_no_path_ends_the_start(start, models, path, runtime):
    repo.add(models, "m")
    server = start(models, "--mesh=memory:", f"--mesh-journal={path}", *runtime, mode=None, ready=False)
    assert server.wait_exit() == 1
    server.end_anyhow()
    assert "--mesh-journal: file: '/" in server.err()


def test_local_registry_needs_no_name(start, models):
    repo.add(models, "m", repo.config())
    with tempfile.TemporaryDirectory(prefix="mr", dir="/tmp") as state:  # the path of its socket must be short
        servers = [start(models, "--mesh=local", f"--mesh-id=s{i}", mode=None, env={"STATE_DIRECTORY": state}) for i in range(2)]
        for s in servers:
            joined(s)
        see_each_other(servers)
        answers(servers[0], "m")
        registry = Path(state) / "mesh" / "registry"
        assert registry.exists() and registry.parent.stat().st_mode & 0o777 == 0o700
        with Rest(servers[0].http) as r:
            assert r.get("/v2/mesh").json()["registry"] == f"file:{registry}"
        for s in servers:
            s.stop()
        registry.parent.chmod(0o770)
        server = start(models, "--mesh=local", mode=None, ready=False, env={"STATE_DIRECTORY": state})
        assert server.wait_exit() == 1
        server.end_anyhow()
        assert f"--mesh: local: {registry.parent} must be a folder of this user" in server.err()


@needs_etcd
def test_registry_may_come_later(etcd, start, models):
    repo.add(models, "m", repo.config())
    etcd.kill()
    server = start(models, f"--mesh=etcd://127.0.0.1:{etcd.ports[0]}", "--mesh-start-timeout=0", mode=None, ready=False)
    server.wait_ready()
    assert not is_ready(server) and ask(server, "m").status == 503
    wait.until(etcd.start, "etcd to start again on its ports")
    joined(server)
    answers(server, "m")


@needs_etcd
def test_server_is_not_ready_before_its_models_are_registered(etcd, start, models, tmp_path):
    registry = f"--mesh=etcd://127.0.0.1:{etcd.ports[0]}"
    joined(start(models, registry, mode=None))
    repo.add(tmp_path / "more", "m", repo.config())
    etcd.alarm("ACTIVATE")
    server = start(tmp_path / "more", registry, mode=None, ready=False)
    server.wait_ready()
    wait.until(lambda: any(e["event"] == "mesh.register" for e in server.events()), f"etcd to refuse the model\n{server.describe()}")
    assert not is_ready(server)
    etcd.alarm("DEACTIVATE")
    joined(server)
    assert "mesh/m/m" in etcd.keys()


def id_taken(server):
    return [e for e in server.events() if e["event"] == "mesh.id_taken"]


def test_server_with_the_id_of_another_waits_until_that_has_left(registry, start, models):
    repo.add(models, "m", repo.config())
    first = start(models, f"--mesh={registry}", "--mesh-id=same", mode=None)
    joined(first)
    second = start(models, f"--mesh={registry}", "--mesh-id=same", mode=None)
    wait.until(lambda: id_taken(second), f"the second server to see the first\n{second.describe()}")
    [told] = id_taken(second)
    assert told["level"] == "error" and told["id"] == "same" and told["address"] == f"127.0.0.1:{mesh_port(first)}"
    assert not is_ready(second) and is_ready(first) and not id_taken(first)
    with Rest(mesh_port(second)) as peer:  # it has not joined: whoever sends it a request has to ask elsewhere
        reply = peer.infer("m", X)
    assert (reply.status, reply.headers["mr-mesh-why"], reply.body) == (503, "not-here", b"the server is starting")
    answers(first, "m")
    first.stop()
    joined(second)
    answers(second, "m")
    assert {e["address"] for e in id_taken(second)} == {told["address"]}  # again when that record changes, as at its end


@pytest.mark.parametrize("address", ["127.0.0.1:0", "unix:"])
def test_killed_server_comes_back_at_another_address(registry, start, models, address):
    """It does not wait for the end of its lease: on its own machine it sees that no process listens there."""
    repo.add(models, "m", repo.config())
    where = lambda n: address + (f"{registry[5:]}{n}" if address == "unix:" else "")  # noqa: E731
    first = start(models, f"--mesh={registry}", "--mesh-id=same", f"--mesh-address={where(1)}", mode=None)
    joined(first)
    answers(first, "m")
    first.signal(signal.SIGKILL)
    first.wait_exit()
    first.end_anyhow()
    second = start(models, f"--mesh={registry}", "--mesh-id=same", f"--mesh-address={where(2)}", mode=None)
    joined(second)
    answers(second, "m")
    assert [e["id"] for e in second.events() if e["event"] == "mesh.id_left"] == ["same"]
    if address == "unix:":
        assert not id_taken(second)
    with Rest(second.http) as r:
        assert [p["id"] for p in r.get("/v2/mesh").json()["peers"]] == ["same"]


@needs_etcd
def test_record_that_another_writes_over_is_an_error_in_the_log(etcd, start, models):
    repo.add(models, "m", repo.config())
    server = start(models, f"--mesh=etcd://127.0.0.1:{etcd.ports[0]}", "--mesh-id=same", mode=None)
    joined(server)
    wait.until(lambda: "mesh/i/same" in etcd.keys(), "the server's record")
    assert not id_taken(server)  # its own record is none of another
    for port in (b"1", b"2"):
        etcd.put("mesh/i/same", b"\x0a\x0b127.0.0.1:" + port + b"\x28\x01")
    wait.until(lambda: len(id_taken(server)) == 2, f"the server to see both\n{server.describe()}")
    assert [(e["level"], e["id"], e["address"]) for e in id_taken(server)] == [("error", "same", f"127.0.0.1:{n}") for n in (1, 2)]


@needs_etcd
def test_lists_pass_over_keys_that_others_have_put_there(etcd, start, models):
    for name in "ab":
        repo.add(models, name, repo.config())
    server = start(models, f"--mesh=etcd://127.0.0.1:{etcd.ports[0]}", mode=None)
    joined(server)
    for key in ("", "a" + 600 * "x", "a\n", "z\n"):
        etcd.put(f"mesh/m/{key}", b"?")
    with Rest(server.http) as r:
        for limit, pages in ((100, [["a", "b"]]), (1, [["a"], ["b"]])):
            seen, after = [], ""
            while after is not None:
                got = r.get(f"/v2/mesh/models?limit={limit}" + (f"&after={after}" if after else "")).json()
                seen.append([m["id"] for m in got.get("models", [])])
                after = got.get("next") or None
            assert [page for page in seen if page] == pages


@needs_etcd
@pytest.mark.parametrize("form", ["file", "", "http://"])
def test_environment_of_a_modelmesh(etcd, start, models, tmp_path, form):
    for name, kind in (("big", "big"), ("small", "small")):
        repo.add(models, name, repo.config(parameters={"millrace.mesh_type": kind}))
    store = tmp_path / "store.json"
    store.write_text(json.dumps({"endpoints": f"http://127.0.0.1:{etcd.ports[0]}", "root_prefix": "/prod"}))
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"big": {"required": ["gpu"]}}))
    env = {"KV_STORE": f"etcd:{store}" if form == "file" else f"etcd:{form}127.0.0.1:{etcd.ports[0]}", "MM_TYPE_CONSTRAINTS_PATH": str(rules),
           "MM_LOCATION": "here", "KV_READ_ONLY": "false", "MM_ZONE": "a", "SHUTDOWN_TIMEOUT_MS": "20000"}
    of_kserve = ",".join(f"mt:{f}{v}{p}" for f in "abcdefghij" for v in ("", ":1", ":2") for p in ("", "|pv:grpc-v2"))
    servers = [start(models, f"--mesh-id=s{i}", mode=None, ready=False, env={**env, "MM_LABELS": f"{labels},{of_kserve}"}) for i, labels in enumerate(("cpu", "cpu,gpu"))]
    for s in servers:
        s.wait_ready()
        joined(s)
    see_each_other(servers)
    for s in servers:
        answers(s, "big")
        answers(s, "small")
    assert [any(e["event"] == "model.ready" and e["model"] == "big" for e in s.events()) for s in servers] == [False, True]
    [told] = [e for e in servers[0].events() if e["event"] == "serve.environment"]
    assert "MM_LOCATION" in str(told) and "KV_READ_ONLY" in str(told) and "MM_ZONE" not in str(told) and "MM_LABELS" not in str(told)
    prefix = "/prod/" if form == "file" else ""
    assert f"{prefix}mesh/m/big" in etcd.keys()


@needs_etcd
def test_services_on_one_etcd_are_meshes_of_their_own(etcd, start, models, tmp_path):
    repo.add(models, "m", repo.config())
    store = tmp_path / "store.json"
    store.write_text(json.dumps({"endpoints": f"http://127.0.0.1:{etcd.ports[0]}", "root_prefix": "/prod"}))
    services = [{"MM_SERVICE_NAME": "one", "MM_KVSTORE_PREFIX": "/mm/"}, {"MM_SERVICE_NAME": "two", "MM_KVSTORE_PREFIX": "/mm/"}, {}]
    servers = [start(models, "--mesh-id=same", mode=None, ready=False, env={"KV_STORE": f"etcd:{store}", **service}) for service in services]
    for s in servers:
        s.wait_ready()
        joined(s)  # each has its id for itself
        answers(s, "m")
        with Rest(s.http) as r:
            assert [p["id"] for p in r.get("/v2/mesh").ok().json()["peers"]] == ["same"]
    keys = etcd.keys()
    assert {"/prod/mm/one/mesh/m/m", "/prod/mm/two/mesh/m/m", "/prod/mesh/m/m"} <= set(keys)


def test_options_win_over_the_environment(registry, start, models):
    repo.add(models, "m", repo.config())
    server = start(models, f"--mesh={registry}", mode=None, ready=False, env={"KV_STORE": "etcd:127.0.0.1:1", "MM_TYPE_CONSTRAINTS": "{}"})
    server.wait_ready()
    joined(server)
    answers(server, "m")


def test_wrong_value_of_the_environment_is_named_by_its_variable(start, models):
    repo.add(models, "m")
    server = start(models, mode=None, ready=False, env={"KV_STORE": "memory:", "MM_SVC_GRPC_PORT": "many"}, ports=False)
    assert server.wait_exit() == 2
    server.end_anyhow()
    assert "MM_SVC_GRPC_PORT" in server.err()


def test_variables_mean_nothing_without_kv_store(start, models):
    repo.add(models, "m")
    server = start(models, mode="none", env={"MM_SVC_GRPC_PORT": "many", "MM_ZONE": "x"})
    assert not [e for e in server.events() if e["event"] == "serve.environment"]


def test_new_server_is_not_ready_while_another_drains(fleet, registry, start, models, tmp_path):
    """So that a rolling update replaces one after the other. The drain lasts as long as the other server loads the model."""
    hold = Hold(tmp_path)
    hold.end()
    repo.add(models, "m", repo.config(backend="fault", parameters=hold.loading))
    old, _ = servers = fleet(models, models, options=["--exit-timeout-secs=600"])
    answers(old, "m")
    old = next(s for s in servers if loaded(s, "m"))
    hold.path.touch()
    old.signal()
    wait.until(lambda: any(e["event"] == "serve.stopping" for e in old.events()), "the server to end")
    new = start(models, f"--mesh={registry}", "--mesh-id=new", mode=None, ready=False)
    new.wait_ready()
    wait.until(lambda: any(e["event"] == "mesh.joined" for e in new.events()), "the new server to join")
    assert not is_ready(new) and old.running
    hold.end()
    old.stop()
    joined(new)


def test_server_that_is_not_fit_does_not_become_ready(fleet, registry, start, models, tmp_path):
    """Its models load elsewhere, and not here: a rolling update should not go on."""
    for i in range(3):
        repo.add(models, f"m{i}", repo.config(parameters={"millrace.mesh_min_copies": "2"}))
        repo.add(tmp_path / "broken", f"m{i}", repo.config(backend="nonesuch"))
    [good] = fleet(models)
    wait.until(lambda: all(loaded(good, f"m{i}") for i in range(3)), "the models to be loaded")
    bad = start(tmp_path / "broken", f"--mesh={registry}", "--mesh-id=bad", mode=None, ready=False)
    bad.wait_ready()
    wait.until(lambda: any(e["event"] == "mesh.unfit" for e in bad.events()), f"three loads to fail\n{bad.describe()}")
    assert not is_ready(bad) and is_ready(good)


def loaded(server, model):
    return any(e["event"] == "model.ready" and e["model"] == model for e in server.events())


@pytest.mark.more
def test_metrics_say_whether_the_fleet_has_room(fleet, models):
    for i in range(12):
        repo.add(models, f"m{i}", repo.config())
    servers = fleet(models, models, options=["--mesh-capacity=4M"])
    read = lambda name, server=servers[0]: metrics.value(server, f"millrace_mesh_{name}")
    wait.until(lambda: read("instances") == 2 and read("models") == 12, "the figures of the registry")
    assert read("fleet_lru_age_seconds") == float("inf") and read("capacity_bytes") == 4 << 20
    for _ in range(3):
        for i in range(12):
            answers(servers[i % 2], f"m{i}")
    wait.until(lambda: sum(read("evictions_total", s) for s in servers) > 0 and read("fleet_lru_age_seconds") < 100, "evictions and their age")
    assert read("misses_total") > 0 and read("loads_total") > 0 and read("models_loaded") >= 1
    assert 0 < read("used_bytes") <= 4 << 20
    wait.until(lambda: read("fleet_capacity_bytes") == 8 << 20 and read("fleet_used_bytes") > 4 << 20, "the figures of the fleet")
    check_names_of_modelmesh(servers)


def check_names_of_modelmesh(servers):
    for s in servers:
        read = lambda name, s=s, **labels: metrics.value(s, f"modelmesh_{name}", **labels)  # noqa: E731
        assert read("instance_capacity_bytes") == 4 << 20 and read("instance_models_total") >= 1
        assert 0 < read("instance_used_bytes") <= 4 << 20 and 0 < read("instance_used_bps") <= 10000
        assert read("loadmodel_failure") == 0
        assert read("loadmodel_milliseconds_count") >= 1 and read("loadmodel_milliseconds_sum") > 0
        assert read("loadmodel_milliseconds_bucket", le="+Inf") >= 1
        assert read("loading_queue_delay_milliseconds_count") >= read("loadmodel_milliseconds_count")
        assert read("cache_miss_milliseconds_count") >= 1 and read("cache_miss_milliseconds_sum") > 0
        assert read("age_at_eviction_milliseconds_count") >= 1
    managed = lambda: [value for s in servers for _, value in metrics.samples(s, "modelmesh_models_managed_total")]  # noqa: E731
    wait.until(lambda: managed() == [12], "one of the servers to report what is the same for all")
    with Rest(servers[0].http) as rest:
        models = rest.get("/v2/mesh/models").ok().json()["models"]
        count = sum(m["status"] == "LOADED" for m in models)
        wait.until(lambda: [value for s in servers for _, value in metrics.samples(s, "modelmesh_models_loaded_total")] == [count], "those that are loaded")
        rest.post("/v2/mesh/models/broken/register", {"type": "t", "path": "p", "load_now": True, "sync": True}).ok()
        wait.until(lambda: metrics.value(servers[0], "modelmesh_models_with_failure_total") == 1, "the model that failed")
        for i in range(12):
            answers(servers[i % 2], f"m{i}")  # both have room where it was tried
        own = lambda: next(p for p in rest.get("/v2/mesh").json()["peers"] if p["id"] == "s0")  # noqa: E731
        wait.until(lambda: own()["age_s"] < 1000, "the server's own age")


def test_variables_are_those_of_the_documentation():
    source = (repo.TOP / "src" / "cli" / "serve" / "modelmesh_env.c").read_text()
    page = (repo.TOP / "docs" / "from-modelmesh.md").read_text()
    assert re.findall(r'\{"([A-Z_]+)", "([a-z-]+)", [A-Z_]+\}', source) == re.findall(r"^\| `([A-Z_]+)` \| `--([a-z-]+)` \|", page, re.M)


def dumped(env):
    """The options that come from the environment, as the program shows them."""
    done = subprocess.run([BIN, "serve", "--dump-options", "--model-repository=x"], capture_output=True, text=True, timeout=wait.PATIENCE,
                          env=clean_environment({"KV_STORE": "etcd:e:1", **env}))
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^([a-z-]+) = (.*?) +# (?:[A-Z_]+)$", done.stdout, re.M))


@pytest.mark.parametrize("env, options", [
    ({"MM_LABELS": "a,b"}, {"mesh-label": "b"}),
    ({"MM_METRICS": "prometheus:port=2112;scheme=https"}, {"metrics-port": "2112"}),
    ({"INTERNAL_GRPC_SOCKET_PATH": "/tmp/mmesh/grpc.sock"}, {"mesh-runtime": "unix:/tmp/mmesh/grpc.sock"}),
    ({"INTERNAL_GRPC_PORT": "8085", "INTERNAL_SERVING_GRPC_PORT": "8086"}, {"mesh-runtime": "127.0.0.1:8085", "mesh-runtime-inference": "127.0.0.1:8086"}),
    ({"INTERNAL_GRPC_PORT": "8085", "INTERNAL_SERVING_GRPC_SOCKET_PATH": "/s"}, {"mesh-runtime": "127.0.0.1:8085", "mesh-runtime-inference": "unix:/s"}),
    ({"MM_METRICS": "statsd:port=8126"}, {}),
    ({"SHUTDOWN_TIMEOUT_MS": "30500"}, {"exit-timeout-secs": "30500ms"}),
    ({"MM_TLS_CLIENT_AUTH": "optional"}, {}),
    ({"MM_TLS_CLIENT_AUTH": "required"}, {"grpc-use-ssl-mutual": "true"}),
    ({"MM_TLS_KEY_CERT_PATH": "/c", "MM_TLS_PRIVATE_KEY_PATH": "/k"}, {"grpc-use-ssl": "true", "grpc-server-cert": "/c", "grpc-server-key": "/k"}),
    ({"MM_SERVICE_NAME": "svc"}, {"mesh-prefix": "tas-runtime/svc"}),
    ({"MM_SERVICE_NAME": "svc", "MM_KVSTORE_PREFIX": "mm"}, {"mesh-prefix": "mm/svc"}),
    ({"MM_KVSTORE_PREFIX": "mm"}, {"mesh-prefix": "mm"}),
    ({"MM_DEFAULT_VMODEL_OWNER": "me"}, {"mesh-vmodel-owner": "me"}),
    ({"MM_ZONE": "", "MM_SVC_GRPC_PORT": "8033"}, {"grpc-port": "8033"}),
    ({"MM_SCALEUP_RPM_THRESHOLD": "100", "MILLRACE_MESH_SCALE_UP_RATE": "200"}, {"mesh-scale-up-rate": "200"}),
])
def test_what_variables_mean(env, options):
    assert dumped(env) == {"mesh": "etcd:e:1", "allow-remote-management": "true", **options}


def test_tls_of_the_environment(start, models, tmp_path):
    repo.add(models, "m", repo.config())
    authority = Authority(tmp_path / "a")
    cert, key = authority.sign("server")
    server = start(models, mode=None, ready=False, env={
        "KV_STORE": "memory:", "MM_TLS_KEY_CERT_PATH": str(cert), "MM_TLS_PRIVATE_KEY_PATH": str(key), "MM_TLS_TRUST_CERT_PATH": str(authority.cert)})
    server.wait_ready()
    joined(server)
    assert {e["what"]: e["tls"] for e in server.events() if e["event"] == "serve.listen"} == {"http": 0, "grpc": 1, "metrics": 0, "mesh": 1}
    done = subprocess.run([BIN, "infer", "-m", "m", "-u", f"grpcs://{server.url('grpc')}", "--tls-ca", authority.cert, "-i", "INPUT0=[7]"],
                          capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 0 and "[7]" in done.stdout, done.stderr


@pytest.mark.skipif(not shutil.which("jq"), reason="there is no jq here")
def test_models_are_registered_from_what_a_modelmesh_has(fleet, models, tmp_path):
    """The shell commands of the documentation, with an etcdctl that prints two records as a ModelMesh writes them."""
    repo.add(models, "m")
    [server] = fleet(models)
    text = (repo.TOP / "docs" / "from-modelmesh.md").read_text()
    script = re.search(r"^   ```\n(   etcdctl.*?)^   ```", text, re.M | re.S).group(1)
    records = {"fraud-7": {"type": "mt:onnx", "encKey": '{"storage_key":"s"}', "mPath": "/models/fraud-7", "lu": 1}, "plain": {"type": "t"}}
    lines = "".join(f"/mm/tas-runtime/s/registry/{k}\n{json.dumps(v)}\n" for k, v in records.items())
    (tmp_path / "records").write_text(lines)
    done = subprocess.run(["bash", "-c", f"R=/mm/tas-runtime/s/registry/\netcdctl() {{ cat {tmp_path}/records; }}\nmillrace() {{ {BIN} \"$@\" -u {server.url()}; }}\n{script}"],
                          capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 0 and not done.stderr, done.stderr
    with Rest(server.http) as r:
        have = {m["id"]: m for m in r.get("/v2/mesh/models").json()["models"]}
    assert {(have[k]["type"], have[k]["path"], have[k]["key"]) for k in records} == {("mt:onnx", "/models/fraud-7", '{"storage_key":"s"}'), ("t", "", "")}


@pytest.mark.more
def test_server_has_joined_when_all_its_models_are_registered(start, models):
    """More than may be changed at once."""
    for i in range(10_500):
        (models / f"m{i}").mkdir()
    server = start(models, "--mesh=memory:", mode=None, ready=False)
    server.wait_ready()
    joined(server)
    with Rest(server.http) as r:
        assert r.get("/v2/mesh").json()["models"] == 10_500


def test_server_is_asked_while_it_starts(registry, start, models):
    """By clients that connect as soon as it listens: it answers once it is in the mesh, or says that it is not."""
    repo.add(models, "m", repo.config())
    port = quiet_port()
    statuses, is_over = [], threading.Event()

    def hammer(path):
        while not is_over.is_set():
            try:
                with Rest(port) as rest:
                    statuses.append(rest.get(path).status)
            except OSError:
                pass

    threads = [threading.Thread(target=hammer, args=[path]) for path in ("/v2/mesh", "/v2/mesh/models", "/v2/mesh/models/m", "/v2/models/m")]
    [t.start() for t in threads]
    try:
        for _ in range(2):
            server = start(models, f"--mesh={registry}", f"--http-port={port}", mode=None, ready=False)
            server.wait_ready()
            joined(server)
            server.stop()
    finally:
        is_over.set()
        [t.join() for t in threads]
    assert 200 in statuses and set(statuses) <= {200, 400, 404, 503}, set(statuses)

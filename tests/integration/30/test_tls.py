"""TLS on every port through independent clients: curl, tritonclient, Python's ssl, openssl s_client."""
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import numpy as np
import pytest

from lib import wait
from lib.repo import TOP
from lib.server import BIN, clean_environment
from lib.services.authority import Authority, openssl

MODELS = TOP / "tests/models/repo"
GET = "GET /v2 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "a")


@pytest.fixture
def served(start, authority, tmp_path):
    """served(*options): a server with TLS on all ports and files of its own in tmp_path."""
    def make(*options, mutual=False):
        cert, key = authority.sign("server")
        shutil.copy(cert, tmp_path / "s.crt")
        shutil.copy(key, tmp_path / "s.key")
        args = ["--load-model=simple", "--metrics-use-ssl"]
        for side in ("http", "grpc"):
            args += [f"--{side}-use-ssl" + ("-mutual" if mutual else ""), f"--{side}-server-cert={tmp_path / 's.crt'}",
                     f"--{side}-server-key={tmp_path / 's.key'}", f"--{side}-root-cert={authority.cert}"]
        return start(MODELS, *args, *options, mode="explicit")
    return make


def context(authority, cert=None, version=None):
    c = ssl.create_default_context(cafile=str(authority.cert))
    if cert:
        c.load_cert_chain(*map(str, cert))
    if version:
        c.minimum_version = c.maximum_version = version
    return c


def serial(pair):
    """The serial number of the certificate of a pair, as `ask` returns it."""
    return openssl("x509", "-in", pair[0], "-noout", "-serial").stdout.strip().partition("=")[2]


def ask(port, ctx):
    """The status of GET /v2 and the serial number of the certificate that the server showed."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait.PATIENCE) as raw, ctx.wrap_socket(raw, server_hostname="localhost") as s:
        serial = s.getpeercert()["serialNumber"]
        s.sendall(GET.encode())
        answer = b""
        while piece := s.recv(65536):
            answer += piece
    return int(answer.split()[1]), serial


def curl(server, authority, *args, kind="http", path="/v2"):
    return subprocess.run(["curl", "-sS", "--max-time", "20", "--cacert", authority.cert, *map(str, args),
                           f"https://localhost:{server.ports[kind]}{path}"], capture_output=True, text=True, timeout=wait.PATIENCE)


# ---- clients ----

@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_curl(served, authority, version):
    server = served()
    for tls in ([], ["--tls-max", "1.2"]):
        for kind, path in (("http", "/v2"), ("grpc", "/v2"), ("metrics", "/metrics")):
            done = curl(server, authority, version, *tls, "-w", "%{http_version} %{http_code}", kind=kind, path=path)
            assert done.returncode == 0, done.stderr
            assert done.stdout.endswith(("2 200" if version == "--http2" else "1.1 200"))
    done = curl(server, authority, "--resolve", f"elsewhere:{server.http}:127.0.0.1")
    assert done.returncode == 0
    bare = subprocess.run(["curl", "-sS", f"https://localhost:{server.http}/v2"], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert bare.returncode == 60, "not signed by an authority that everyone knows"
    plain = subprocess.run(["curl", "-sS", f"http://localhost:{server.http}/v2"], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert plain.stdout == '{"error":"this port speaks TLS: use https"}\n'


def infer(client, module):
    data = np.arange(16, dtype=np.int32).reshape(1, 16)
    inputs = []
    for name in ("INPUT0", "INPUT1"):
        inputs.append(module.InferInput(name, [1, 16], "INT32"))
        inputs[-1].set_data_from_numpy(data)
    assert (client.infer("simple", inputs).as_numpy("OUTPUT0") == 2 * data).all()


def test_tritonclient_http(served, authority):
    import tritonclient.http as module

    server = served()
    client = module.InferenceServerClient(f"localhost:{server.http}", ssl=True, ssl_options={"ca_certs": str(authority.cert)})
    infer(client, module)
    client.close()


@pytest.mark.parametrize("mutual", [False, True])
def test_tritonclient_grpc(served, authority, mutual):
    import tritonclient.grpc as module

    server = served(mutual=mutual)
    cert, key = authority.sign("client")
    own = {"private_key": str(key), "certificate_chain": str(cert)} if mutual else {}
    client = module.InferenceServerClient(f"localhost:{server.grpc}", ssl=True, root_certificates=str(authority.cert), **own)
    infer(client, module)
    client.close()
    if mutual:
        client = module.InferenceServerClient(f"localhost:{server.grpc}", ssl=True, root_certificates=str(authority.cert))
        with pytest.raises(module.InferenceServerException):
            client.is_server_live(client_timeout=wait.PATIENCE)
        client.close()


def test_large_bodies(served, authority):
    server = served()
    ctx = context(authority)
    body = os.urandom(6_000_000)
    for _ in range(2):
        connection = http.client.HTTPSConnection("localhost", server.http, context=ctx, timeout=wait.PATIENCE)
        connection.request("POST", "/v2/models/simple/infer", body, {"inference-header-content-length": "20"})
        assert connection.getresponse().status == 400, "all of it was taken, and it is no request"
        connection.close()
    assert ask(server.http, ctx)[0] == 200


# ---- who may come in ----

def test_mutual(served, authority, tmp_path):
    server = served(mutual=True)
    stranger = Authority(tmp_path / "b", "stranger")
    assert ask(server.http, context(authority, authority.sign("good")))[0] == 200
    for cert in (None, stranger.sign("other"), authority.sign("old", days=0)):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for port in server.ports.values():
                with pytest.raises(OSError):
                    ask(port, context(authority, cert, version))
    reasons = " ".join(e["msg"] for e in server.events() if e["event"] == "tls.failed")
    for said in ("peer did not return a certificate", "unable to get local issuer certificate", "certificate has expired"):
        assert said in reasons


def handshake(server, *args):
    done = openssl("s_client", "-connect", f"127.0.0.1:{server.http}", *args)
    found = re.search(r"New, (\S+), Cipher is (\S+)", done.stdout)
    return found.group(2) if found else "(NONE)"


@pytest.mark.more
def test_what_is_spoken(served):
    server = served()
    assert handshake(server, "-tls1_3") == "TLS_AES_256_GCM_SHA384"
    assert handshake(server, "-tls1_2").startswith("ECDHE-")
    for old in (["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], ["-tls1", "-cipher", "ALL:@SECLEVEL=0"]):
        assert handshake(server, *old) == "(NONE)"
    everything = openssl("ciphers", "-tls1_2", "-s", "ALL:COMPLEMENTOFALL:@SECLEVEL=0").stdout.strip().split(":")
    taken = {c for c in everything if handshake(server, "-tls1_2", "-cipher", f"{c}:@SECLEVEL=0") != "(NONE)"}
    assert taken == {"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"}
    assert handshake(server, "-alpn", "foo") == "(NONE)"


def test_min_version(served):
    server = served("--tls-min-version=1.3")
    assert handshake(server, "-tls1_2") == "(NONE)"
    assert handshake(server, "-tls1_3") != "(NONE)"


def test_tls_on_a_plain_port(start):
    server = start(MODELS, mode="explicit")
    assert handshake(server) == "(NONE)"
    wait.until(lambda: [e for e in server.events() if e["event"] == "tls.failed" and "client speaks TLS" in e["msg"]], "the log line")


# ---- start ----

@pytest.mark.parametrize("args, said", [
    (["--http-use-ssl"], "--http-use-ssl needs --http-server-cert"),
    (["--grpc-use-ssl", "--grpc-server-cert=S.crt"], "--grpc-use-ssl needs --grpc-server-key"),
    (["--grpc-use-ssl-mutual", "--grpc-server-cert=S.crt", "--grpc-server-key=S.key"], "--grpc-use-ssl-mutual needs --grpc-root-cert"),
    (["--http-use-ssl", "--http-server-cert=S.crt", "--http-server-key=other.key"], "other.key: is not the key of the certificate in"),
    (["--http-use-ssl", "--http-server-cert=S.crt", "--http-server-key=locked.key"], "locked.key: the key is encrypted"),
    (["--http-use-ssl", "--http-server-cert=gone.crt", "--http-server-key=S.key"], "gone.crt: No such file"),
    (["--metrics-use-ssl"], "--metrics-use-ssl needs --http-use-ssl")], ids=str)
def test_wrong_files(authority, tmp_path, args, said):
    cert, key = authority.sign("server")
    shutil.copy(cert, tmp_path / "S.crt")
    shutil.copy(key, tmp_path / "S.key")
    shutil.copy(authority.sign("other")[1], tmp_path / "other.key")
    assert openssl("ec", "-in", key, "-aes128", "-passout", "pass:geheim", "-out", tmp_path / "locked.key").returncode == 0
    done = subprocess.run([BIN, "serve", f"--model-repository={MODELS}", "--model-control-mode=explicit", "--http-port=0", "--grpc-port=0",
                           "--metrics-port=0", *args], capture_output=True, text=True, timeout=wait.PATIENCE, cwd=tmp_path, env=clean_environment())
    assert done.returncode == (2 if " needs " in said else 1)  # without a file the command line is wrong
    assert said in done.stderr.splitlines()[-1]
    assert "PRIVATE" not in done.stderr


def test_key_that_all_may_read(served, tmp_path):
    server = served()
    assert not [e for e in server.events() if e["event"] == "tls.key_open"]
    (tmp_path / "s.key").chmod(0o644)
    server.signal(signal.SIGHUP)
    wait.until(lambda: [e for e in server.events() if e["event"] == "tls.key_open"], "the warning")


# ---- rotation ----

def put(tmp_path, pair):
    for path, name in zip(pair, ("s.crt", "s.key")):
        shutil.copy(path, tmp_path / f"{name}.new")
        os.replace(tmp_path / f"{name}.new", tmp_path / name)


def metric(server, authority, name, listener):
    text = curl(server, authority, kind="metrics", path="/metrics").stdout
    return float(re.search(rf'^{name}{{listener="{listener}"}} (\S+)$', text, re.M).group(1))


@pytest.mark.more
def test_rotation_under_load(served, authority, tmp_path):
    server = served()
    ctx = context(authority)
    ports = server.http, server.grpc
    first = ask(server.http, ctx)[1]
    statuses, stop = [], threading.Event()

    def failures():
        return [e for e in server.events() if e["event"] == "tls.reload_failed" and e["listener"] == "http"]

    def load():
        kept = http.client.HTTPSConnection("localhost", server.http, context=ctx, timeout=wait.PATIENCE)
        while not stop.is_set():
            kept.request("GET", "/v2")  # all the time on one connection
            answer = kept.getresponse()
            answer.read()
            statuses.append(answer.status if answer.will_close is False else "closed")
            statuses.append(ask(server.http, ctx)[0])
        kept.close()

    threads = [threading.Thread(target=load) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        assert first == serial([tmp_path / "s.crt"])
        second = authority.sign("server2")
        put(tmp_path, second)
        for port in ports:  # each listener loads the files by itself
            wait.until(lambda: ask(port, ctx)[1] == serial(second), "the new certificate without a signal")
        third = authority.sign("server3")
        put(tmp_path, third)
        server.signal(signal.SIGHUP)
        for port in ports:
            wait.until(lambda: ask(port, ctx)[1] == serial(third), "the newer one")

        # Only half of a pair: reported by each listener, nothing changes.
        half = len(failures())
        shutil.copy(authority.sign("server4")[0], tmp_path / "s.crt")
        server.signal(signal.SIGHUP)
        wait.until(lambda: len(failures()) > half, "the warning")
        assert ask(server.http, ctx)[1] == serial(third)
        assert metric(server, authority, "millrace_tls_reload_failures_total", "http") >= 1
        assert metric(server, authority, "millrace_tls_reloads_total", "http") >= 2
        assert metric(server, authority, "millrace_tls_certificate_expiry_seconds", "grpc") > 1.7e9
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert len(statuses) > 10 and set(statuses) == {200}


# ---- our own client ----

def millrace(*args):
    done = subprocess.run([BIN, *map(str, args)], capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    return done.returncode, done.stdout + done.stderr


ONE = "[[" + ",".join(["1"] * 16) + "]]"


def infer_args(server, protocol, *more):
    port = server.grpc if protocol == "grpc" else server.http
    scheme = "grpcs" if protocol == "grpc" else "https"
    return ["infer", "-m", "simple", "-u", f"{scheme}://localhost:{port}", "--protocol", protocol, "-i", f"INPUT0={ONE}", "-i", f"INPUT1={ONE}", *more]


@pytest.mark.few(2)
@pytest.mark.parametrize("mutual", [False, True])
@pytest.mark.parametrize("protocol", ["rest", "binary", "grpc"])
def test_own_client(served, authority, protocol, mutual):
    server = served(mutual=mutual)
    cert, key = authority.sign("client")
    own = ["--tls-cert", cert, "--tls-key", key] if mutual else []
    code, said = millrace(*infer_args(server, protocol, "--tls-ca", authority.cert, *own))
    assert code == 0 and "OUTPUT0" in said, said
    code, said = millrace(*infer_args(server, protocol, "--tls-insecure", *own))
    assert code == 0, said
    code, said = millrace(*infer_args(server, protocol, *own))
    assert code == 1 and "the server's certificate is not trusted" in said
    code, said = millrace(*infer_args(server, protocol, "--tls-ca", authority.cert, "--tls-server-name", "elsewhere", *own))
    assert code == 1 and "mismatch" in said
    if mutual:
        code, said = millrace(*infer_args(server, protocol, "--tls-ca", authority.cert))
        assert code == 1 and "certificate required" in said, said


def test_own_client_of_models(served, authority, start):
    server = served()
    code, said = millrace("model", "list", "-u", f"https://127.0.0.1:{server.http}", "--tls-ca", authority.cert)
    assert code == 0 and "simple" in said
    plain = start(MODELS, mode="explicit")
    code, said = millrace("model", "list", "-u", f"https://127.0.0.1:{plain.http}", "--tls-ca", authority.cert)
    assert code == 1 and "the server does not speak TLS" in said
    code, said = millrace("model", "list", "-u", f"http://127.0.0.1:{server.http}")
    assert code == 1 and "this port speaks TLS" in said

"""Requests that web pages make a browser send: which Host and which Origin is taken, on every listener and protocol."""
import json
import socket
import subprocess

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from lib import repo, wait
from lib.raw import GRPC_HEADERS, Http1, Http2, grpc_frame, grpc_path, request
from lib.server import BIN, clean_environment

LOAD = "/v2/repository/models/other/load"
APP = "https://app.example.org"


@pytest.fixture
def filled(models):
    repo.add(models, "m")
    repo.add(models, "other")
    return models


def ask(port, method="GET", path="/v2", host="localhost", headers="", body=b""):
    with Http1(port) as wire:
        wire.send(request(method, path, (f"Host: {host}\r\n" if host is not None else "") + headers, body, host=False))
        return wire.response(head=method == "HEAD")


def why(answer):
    assert answer.status == 403, answer
    assert answer.headers["content-type"] == "application/json"
    assert "access-control-allow-origin" not in answer.headers
    return json.loads(answer.body)["error"]


def ask_grpc(port, authority, *extra):
    """grpc-status of ServerLive."""
    with Http2(port, unchecked=True) as wire:
        stream = wire.h2.get_next_available_stream_id()
        pseudo = [(":method", "POST"), (":scheme", "http"), (":path", grpc_path("ServerLive"))]
        pseudo += [(":authority", authority)] if authority else []
        wire.h2.send_headers(stream, pseudo + list(GRPC_HEADERS) + list(extra))
        wire.flush()
        wire.send(stream, grpc_frame(b""))
        answer = wire.response(stream)
        return int(answer.headers["grpc-status"]), answer.headers.get("grpc-message", "")


def is_loaded(server):
    return ask(server.http, path="/v2/models/other/ready").status == 200


@pytest.mark.parametrize("headers", [
    "Origin: https://evil.example\r\n", "Origin: null\r\n", "ORIGIN: http://localhost\r\n", "Origin: http://localhost:1\r\n",
    "Origin: http://127.0.0.1\r\n", "Origin: file://\r\n", "Origin: \r\n", "Origin: http://localhost:1 http://localhost\r\n"])
def test_page_of_another_origin_loads_nothing(filled, start, headers):
    server = start(filled, "--load-model=m", mode="explicit")
    same = f"Origin: http://localhost:{server.http}\r\n"
    for port in (server.http, server.grpc):
        answer = ask(port, "POST", LOAD, f"localhost:{server.http}", headers + "Content-Type: text/plain\r\n", b"{}")
        assert "--allowed-origin" in why(answer)
        assert any(e["event"] == "request.foreign" and "--allowed-origin" in json.dumps(e) for e in server.events())
        # The page's own beside the server's: what one reader takes is not what another takes.
        both = ask(port, "POST", LOAD, f"localhost:{server.http}", same + headers, b"{}")
        assert both.status == 403
    assert not is_loaded(server)
    assert ask(server.http, "POST", LOAD, f"localhost:{server.http}", same, b"{}").status == 200
    assert is_loaded(server)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example",
                                  "models.example.org", "[evil.example]", "localhost:x", "300.1.1.1"])
def test_name_that_points_to_loopback_is_refused(filled, start, host):
    """DNS rebinding: the page is of the same origin as the server that its name leads to."""
    server = start(filled, "--load-model=m", mode="explicit")
    for kind in ("http", "grpc", "metrics"):
        name = host.format(port=server.ports[kind])
        for headers in ("", f"Origin: http://{name}\r\n"):
            assert "--allowed-host" in why(ask(server.ports[kind], "GET", "/metrics", name, headers))
            assert "--allowed-host" in why(ask(server.ports[kind], "POST", LOAD, name, headers, b"{}"))
    code, text = ask_grpc(server.grpc, host.format(port=server.grpc))
    assert code == grpc.StatusCode.PERMISSION_DENIED.value[0] and "--allowed-host" in text
    # The target's own authority counts, whatever Host contains.
    with Http1(server.http) as wire:
        wire.send(request("GET", f"http://{host.format(port=server.http)}/v2"))
        assert wire.response().status in (400, 403)
    assert not is_loaded(server)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:{port}", "localhost.", "127.0.0.1:{port}", "[::1]:{port}", "192.0.2.1", "", None])
def test_addresses_and_localhost_are_taken(filled, start, host):
    server = start(filled)
    for kind in ("http", "grpc", "metrics"):
        name = host and host.format(port=server.ports[kind])
        with Http1(server.ports[kind]) as wire:
            line = f"Host: {name}\r\n" if name is not None else ""
            wire.send(request("GET", "/metrics" if kind == "metrics" else "/v2", line, host=False,
                              version="HTTP/1.1" if line else "HTTP/1.0"))
            assert wire.response().status == 200
    if host:  # HTTP/2 has to have one
        assert ask_grpc(server.grpc, host.format(port=server.grpc))[0] == 0


def test_names_are_given_by_an_option(filled, start):
    server = start(filled, "--allowed-host=models.example.org", "--allowed-host=box")
    for name in ("models.example.org", "Models.Example.org:443", "models.example.org.", "box"):
        assert ask(server.http, host=name).status == 200
        assert ask_grpc(server.grpc, name)[0] == 0
    # A proxy that passes Host on: its pages are of the same origin, whatever it speaks to them.
    assert ask(server.http, host="models.example.org", headers="Origin: https://models.example.org\r\n").status == 200
    assert ask(server.http, host="box:8443", headers="Origin: https://BOX:8443\r\n").status == 200
    for name, origin in (("models.example.org", "https://models.example.org:8443"), ("models.example.org:80", "https://models.example.org"),
                         ("box", "ftp://box")):
        why(ask(server.http, host=name, headers=f"Origin: {origin}\r\n"))
    why(ask(server.http, host="evil.example"))
    why(ask(start(filled, "--allowed-host=*").http, host="evil.example", headers=f"Origin: {APP}\r\n"))


def test_a_good_host_vouches_for_itself_only(filled, start):
    """The last good one is remembered; one that is longer, shorter or of another case is checked again."""
    name = "a" * 80 + ".example.org"
    server = start(filled, "--loop-threads=1", "--allowed-host=models.example.org", f"--allowed-host={name}")
    good = ("models.example.org", name, "127.0.0.1", "localhost")
    bad = ("models.example.or", "models.example.org.evil.example", "evil.example.org.a", name + "a", name[:64], "127.0.0.256", "localhos")
    for host in good:
        assert ask(server.http, host=host).status == 200
        for other in bad:
            why(ask(server.http, host=other))
            assert ask(server.http, host=host).status == 200


def test_other_addresses_take_any_host_until_names_are_given(filled, start):
    assert ask(start(filled, "--http-address=0.0.0.0").http, host="models.example.org").status == 200
    server = start(filled, "--http-address=0.0.0.0", "--allowed-host=models.example.org")
    assert ask(server.http, host="models.example.org").status == 200
    assert ask(server.http, host="192.0.2.1").status == 200
    why(ask(server.http, host="evil.example"))


def test_ipv6_loopback(filled, start):
    server = start(filled, "--http-address=::1")
    for host, status in (("[::1]:1", 200), ("evil.example", 403)):
        with socket.create_connection(("::1", server.http), timeout=wait.PATIENCE) as s:
            s.sendall(f"GET /v2 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert int(s.recv(4096).split()[1]) == status


def test_socket_files_take_any_host_and_no_page(filled, start, tmp_path):
    path = tmp_path / "s"
    start(filled, f"--http-address=unix:{path}", "--allowed-host=box")
    for headers, status in (("Host: anything\r\n", 200), (f"Host: anything\r\nOrigin: {APP}\r\n", 403)):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(wait.PATIENCE)
            s.connect(str(path))
            s.sendall(f"GET /v2 HTTP/1.1\r\n{headers}\r\n".encode())
            assert int(s.recv(4096).split()[1]) == status


def test_grpc_from_a_page(filled, start):
    server = start(filled)
    with grpc.insecure_channel(server.url("grpc"), options=(("grpc.default_authority", "evil.example"),)) as channel:
        with pytest.raises(grpc.RpcError) as e:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive(pb.ServerLiveRequest(), timeout=wait.PATIENCE)
    assert e.value.code() == grpc.StatusCode.PERMISSION_DENIED and "'evil.example'" in e.value.details()
    for port in (server.http, server.grpc):
        code, text = ask_grpc(port, f"localhost:{port}", ("origin", "https://evil.example"))
        assert code == 7 and "--allowed-origin" in text
        assert ask_grpc(port, f"localhost:{port}", ("origin", f"http://localhost:{port}"))[0] == 0
        assert ask_grpc(port, "localhost", ("host", "evil.example"))[0] == 7
    for kind in ("http", "metrics"):  # REST over HTTP/2
        with Http2(server.ports[kind]) as wire:
            assert wire.ask("GET", "/metrics", extra=[("origin", "https://evil.example")]).status == 403


# ---- CORS ----

@pytest.fixture
def open_to_app(filled, start):
    return start(filled, f"--allowed-origin={APP}", "--allowed-origin=http://localhost:3000")


@pytest.mark.parametrize("origin", [APP, APP + ":443", "http://localhost:3000"])
def test_allowed_origin_may_read(open_to_app, origin):
    server = open_to_app
    for kind in ("http", "grpc", "metrics"):
        path = "/metrics" if kind == "metrics" else "/v2"
        for method in ("GET", "HEAD"):
            answer = ask(server.ports[kind], method, path, headers=f"Origin: {origin}\r\n")
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == origin
            assert "inference-header-content-length" in answer.headers["access-control-expose-headers"].lower()
            assert answer.headers["vary"].lower() == "origin"
        with Http2(server.ports[kind]) as wire:
            answer = wire.ask("GET", path, extra=[("origin", origin)])
            assert answer.status == 200 and answer.headers["access-control-allow-origin"] == origin
        # Without an Origin a cache must still know that one matters.
        assert ask(server.ports[kind], "GET", path).headers["vary"].lower() == "origin"
    # Errors can be read as well, streams and refused bodies included.
    for method, path, body in (("GET", "/nothing", b""), ("PUT", "/v2", b""), ("GET", "/v2/health/live", b""), ("POST", "/v2/models/m/infer", b"{")):
        assert ask(server.http, method, path, headers=f"Origin: {origin}\r\n", body=body).headers["access-control-allow-origin"] == origin
    assert ask_grpc(server.grpc, "localhost", ("origin", origin))[0] == 0


def test_other_origins_stay_out(open_to_app):
    for origin in ("https://evil.example", "http://app.example.org", APP + ":8443", "https://sub.app.example.org", "null", "http://localhost:3001"):
        assert "--allowed-origin" in why(ask(open_to_app.http, headers=f"Origin: {origin}\r\n"))
        why(ask(open_to_app.http, "OPTIONS", headers=f"Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\n"))


@pytest.mark.parametrize("path", ["/v2/models/m/infer", "/v2/health/live", "/metrics"])
def test_preflight(filled, start, path):
    """Answered before anything asks for keys, which browsers do not send with it."""
    head = f"Origin: {APP}\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type,inference-header-content-length,key\r\n"
    server = start(filled, f"--allowed-origin={APP}", "--http-restricted-api=health,inference,metrics:key=value")
    for kind in ("http", "grpc", "metrics"):
        with Http1(server.ports[kind]) as wire:
            for _ in range(2):
                wire.send(request("OPTIONS", path, head))
                # Twice the same field: a list in two parts.
                raw = wire._until(b"\r\n\r\n").decode().lower().split("\r\n")
                assert raw[0].split()[1] == "204"
                fields = {}
                for line in raw[1:]:
                    name, value = line.split(": ", 1)
                    fields.setdefault(name, []).append(value)
                assert fields["access-control-allow-origin"] == [APP]
                assert "post" in fields["access-control-allow-methods"][0]
                allowed = [h.strip() for v in fields["access-control-allow-headers"] for h in v.split(",")]
                assert {"content-type", "inference-header-content-length", "key"} <= set(allowed)
                assert "origin" in fields["vary"][0]
        with Http2(server.ports[kind]) as wire:
            answer = wire.ask("OPTIONS", path, extra=[("origin", APP), ("access-control-request-method", "POST")])
            assert answer.status == 204 and answer.headers["access-control-allow-origin"] == APP
    # One that asks for nothing is an ordinary request.
    assert ask(server.http, "OPTIONS", "/v2", headers=f"Origin: {APP}\r\n").status == 405


def test_any_origin_and_none(filled, start):
    server = start(filled, "--allowed-origin=*")
    for origin in (APP, "null", "http://localhost:1"):
        assert ask(server.http, headers=f"Origin: {origin}\r\n").headers["access-control-allow-origin"] == "*"
    why(ask(server.http, host="evil.example", headers="Origin: http://evil.example\r\n"))
    server = start(filled, "--allowed-origin=null")
    assert ask(server.http, headers="Origin: null\r\n").headers["access-control-allow-origin"] == "null"
    why(ask(server.http, headers=f"Origin: {APP}\r\n"))


@pytest.mark.parametrize("option, text", [("--allowed-host=a:80", "without scheme and port"), ("--allowed-host=http://a", "without scheme and port"),
                                          ("--allowed-origin=a", "scheme://host[:port]"), ("--allowed-origin=https://a/", "without a path")])
def test_bad_options(filled, option, text):
    done = subprocess.run([BIN, "serve", f"--model-repository={filled}", option], capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 2 and option.split("=")[0] in done.stderr and text in done.stderr

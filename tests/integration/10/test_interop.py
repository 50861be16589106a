"""Conformance suites of others: h2spec against the server, grpc-go's interop client against a test service on our gRPC layer.

Both are Go programs that `tools/setup --test` builds; without them these tests are skipped.
"""
import os
import signal
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from lib import wait
from lib.repo import TOP
from lib.server import SANITIZER_EXIT, WITH_PARENT, clean_environment

GO = TOP / "build" / "go"
SERVICE = TOP / "build" / os.environ.get("MR_BUILD", "release") / "tests" / "interop_server"


def program(name):
    if not (GO / name).exists():
        pytest.skip(f"build/go/{name} is not there; tools/setup --test builds it")
    return str(GO / name)


# Without TLS both protocols share a port: what is no preface of HTTP/2 is answered as HTTP/1, and then the connection ends.
DEVIATIONS = {"3.5. HTTP/2 Connection Preface: Sends invalid connection preface"}


def check_h2spec(report, port, *options, deviations):
    done = subprocess.run(
        [program("h2spec"), "--strict", "--host=127.0.0.1", f"--port={port}", "--path=/v2/health/live",
         "--timeout=30", f"--junit-report={report}", *options], capture_output=True, text=True,
        timeout=wait.PATIENCE)
    suites = ElementTree.parse(report).getroot()
    cases = [(suite.get("name"), case) for suite in suites.iter("testsuite") for case in suite.iter("testcase")]
    failed = {f"{name}: {case.get('classname')}" for name, case in cases if len(case)}
    assert len(cases) > 140 and failed == deviations, done.stdout[-4000:]


@pytest.mark.parametrize("port", ["http", "grpc"])
def test_h2spec(server, tmp_path, port):
    check_h2spec(tmp_path / "report.xml", server.ports[port], deviations=DEVIATIONS)


@pytest.mark.parametrize("port", ["http", "grpc"])
def test_h2spec_over_tls(models, start, tmp_path, port):
    cert, key = tmp_path / "s.crt", tmp_path / "s.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    server = start(models, f"--{port}-use-ssl", f"--{port}-server-cert={cert}", f"--{port}-server-key={key}")
    check_h2spec(tmp_path / "report.xml", server.ports[port], "--tls", "--insecure", deviations=set())  # ALPN has chosen HTTP/2


@pytest.fixture(scope="module")
def service():
    """Port of the test service."""
    process = subprocess.Popen([*WITH_PARENT, SERVICE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=clean_environment())
    yield int(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=wait.PATIENCE)
    assert process.returncode == 0 and process.returncode != SANITIZER_EXIT, err


@pytest.mark.parametrize("case", [
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream", "cancel_after_begin",
    "cancel_after_first_response", "timeout_on_sleeping_server", "status_code_and_message", "special_status_message",
    "custom_metadata", "unimplemented_method", "unimplemented_service", "pick_first_unary", "rpc_soak", "channel_soak"])
def test_grpc_go(service, case):
    # The client of cancel_after_begin asks for the answer after it has cancelled; now and then that comes before it looks.
    for _ in range(20 if case == "cancel_after_begin" else 1):
        done = subprocess.run(
            [program("interop_client"), "--server_host=127.0.0.1", f"--server_port={service}", f"--test_case={case}", "--soak_iterations=50",
             f"--soak_per_iteration_max_acceptable_latency_ms={int(1000 * wait.PATIENCE)}",
             f"--soak_overall_timeout_seconds={int(wait.PATIENCE)}"], capture_output=True, text=True, timeout=2 * wait.PATIENCE)
        if "got error code 0" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-4000:]

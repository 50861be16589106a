"""Sources of options (command line, environment, file) and the messages about wrong ones."""
import subprocess

import pytest

from lib import grpcraw, repo, wait
from lib.grpcraw import Grpc
from lib.rest import Rest
from lib.server import BIN, clean_environment


def serve(*args, env=None):
    done = subprocess.run([BIN, "serve", *map(str, args)], capture_output=True, text=True, timeout=wait.PATIENCE,
                          stdin=subprocess.DEVNULL, env=clean_environment(env))
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def filled(models):
    repo.add(models, "m")
    return models


def name_of(server):
    with Rest(server.http) as rest:
        return rest.get("/v2").json()["name"]


def test_environment(filled, start):
    server = start(filled, env={"MILLRACE_ID": "from-environment"})
    assert name_of(server) == "from-environment"


def test_config_file(filled, start, tmp_path):
    file = tmp_path / "millrace.conf"
    file.write_text(f'# a comment\nmodel-repository = "{filled}"\nid = from-file\nhttp-port = 0\ngrpc-port = 0\n'
                    "metrics-port = 0\nprint-ports = json\n")
    server = start([], f"--config={file}", ports=False, mode=None)
    assert name_of(server) == "from-file"


def test_precedence(filled, start, tmp_path):
    file = tmp_path / "millrace.conf"
    file.write_text("id = from-file\nexit-timeout-secs = 7\n")
    assert name_of(start(filled, f"--config={file}")) == "from-file"
    env = {"MILLRACE_ID": "from-environment"}
    assert name_of(start(filled, f"--config={file}", env=env)) == "from-environment"
    assert name_of(start(filled, f"--config={file}", "--id=from-line", env=env)) == "from-line"


def test_config_file_named_by_the_environment(filled, start, tmp_path):
    file = tmp_path / "millrace.conf"
    file.write_text("id = from-file\n")
    assert name_of(start(filled, env={"MILLRACE_CONFIG": str(file)})) == "from-file"


def test_dump_options(filled, tmp_path):
    code, out, _ = serve(f"--model-repository={filled}", "--http-port=1234", "--dump-options", env={"MILLRACE_ID": "x"})
    assert code == 0
    lines = [line.split("#")[0].strip() for line in out.splitlines()]
    assert "http-port = 1234" in lines and "id = x" in lines
    file = tmp_path / "dumped.conf"
    file.write_text(out)
    code, again, err = serve(f"--config={file}", "--dump-options")
    assert code == 0, err
    assert "http-port = 1234" in again


@pytest.mark.parametrize("args, said", [
    (["--http-prot=1"], ["--http-prot", "--http-port"]), (["--nonsense"], ["--nonsense"]), (["--http-port=70000"], ["--http-port", "65535"]),
    (["--http-port=8001"], ["--http-port", "--grpc-port", "8001"]), (["--http-address=localhost:80"], ["--http-address", "--http-port"]),
    (["--http-port=x"], ["--http-port"]), (["--http-port="], ["--http-port"]), (["--model-control-mode=pol"], ["--model-control-mode", "poll"]),
    (["--h2-max-streams=100001"], ["--h2-max-streams", "100000"]),
    (["--strict-readiness=maybe"], ["--strict-readiness"]), (["stray"], ["stray"]), (["--config=/nothing"], ["/nothing"]),
    (["--http-max-input-size=-1"], ["--http-max-input-size"]), (["--exit-timeout-secs=abc"], ["--exit-timeout-secs"]),
    (["--model-repository="], ["--model-repository"])], ids=str)
def test_wrong_options(filled, args, said):
    code, out, err = serve(f"--model-repository={filled}", *args)
    assert code == 2 and out == ""
    for text in said:
        assert text in err, err
    assert len(err.splitlines()) <= 3, "a sentence, not a page"


@pytest.mark.parametrize("args, feature", [
    (["--cache-config=local,size=1048576"], "cache"), (["--trace-config=level=TIMESTAMPS"], "trac"),
    (["--allow-client-shm=true"], "shared memory"), (["--rate-limit=execution_count"], "rate limit"),
    (["--allow-sagemaker=true"], "SageMaker"), (["--trace-file=/tmp/trace"], "trac"), (["--trace-level=TIMESTAMPS"], "trac"),
    (["--response-cache-byte-size=1048576"], "cache")], ids=str)
def test_features_that_are_not_there(filled, args, feature):
    code, _, err = serve(f"--model-repository={filled}", *args)
    assert code == 2 and feature.lower() in err.lower() and args[0].split("=")[0] in err


@pytest.mark.parametrize("option", ["--pinned-memory-pool-byte-size=0", "--http-thread-count=8", "--grpc-infer-thread-count=4",
                                    "--allow-gpu-metrics=false", "--metrics-interval-ms=100", "--rate-limit=off", "--allow-client-shm=false",
                                    "--allow-client-shm=off", "--trace-level=OFF", "--response-cache-byte-size=0",
                                    "--cuda-virtual-address-size=0:1073741824", "--min-supported-compute-capability=6.0",
                                    "--model-load-gpu-limit=0:0.9", "--trace-rate=1", "--sagemaker-port=8080",
                                    "--sagemaker-safe-port-range=8081-8090", "--vertex-ai-default-model=m"])
def test_options_of_triton_without_effect(filled, start, option):
    server = start(filled, option)
    assert name_of(server) == "triton"
    if option.split("=")[1] not in ("off", "false", "OFF", "0") or "gpu" in option or "pinned" in option:
        assert option.split("=")[0].lstrip("-") in server.err(), "it is warned about"


# What `tritonserver --help` lists from 2.50 to 2.73, with the two names of the older form.
TRITON = """id exit-timeout-secs model-store model-repository exit-on-error disable-auto-complete-config strict-readiness
model-control-mode repository-poll-secs load-model model-config-name model-load-thread-count model-load-retry-count
model-namespacing enable-peer-access allow-http http-address http-port reuse-http-port http-header-forward-pattern
http-thread-count http-max-input-size http-restricted-api allow-grpc grpc-address grpc-port reuse-grpc-port
grpc-header-forward-pattern grpc-infer-thread-count grpc-infer-allocation-pool-size grpc-max-response-pool-size
grpc-use-ssl grpc-use-ssl-mutual grpc-server-cert grpc-server-key grpc-root-cert
grpc-infer-response-compression-level grpc-keepalive-time grpc-keepalive-timeout grpc-keepalive-permit-without-calls
grpc-http2-max-pings-without-data grpc-http2-min-recv-ping-interval-without-data grpc-http2-max-ping-strikes
grpc-max-connection-age grpc-max-connection-age-grace grpc-restricted-protocol log-verbose log-info log-warning
log-error log-format log-file allow-sagemaker sagemaker-port sagemaker-safe-port-range sagemaker-thread-count
allow-vertex-ai vertex-ai-port vertex-ai-thread-count vertex-ai-default-model allow-metrics allow-gpu-metrics
allow-cpu-metrics metrics-address metrics-port metrics-interval-ms metrics-config trace-config cache-config
cache-directory rate-limit rate-limit-resource pinned-memory-pool-byte-size cuda-memory-pool-byte-size
cuda-virtual-address-size min-supported-compute-capability buffer-manager-thread-count host-policy
model-load-gpu-limit allow-client-shm backend-directory backend-config repoagent-directory strict-model-config
response-cache-byte-size trace-file trace-level trace-rate trace-count trace-log-frequency""".split()


def test_every_option_of_triton_is_known_by_name(filled):
    """An option that is not known makes Triton's command line fail with a guess at another name."""
    for name in TRITON:
        _, _, err = serve(f"--model-repository={filled}", f"--{name}=!", "--dump-options")
        assert "is not an option" not in err, name


@pytest.mark.parametrize("option", ["--strict-model-config", "--strict-model-config=on", "--disable-auto-complete-config"])
def test_strict_model_config_is_the_older_name(models, option):
    repo.stock(models, "simple_auto")
    code, _, err = serve(f"--model-repository={models}", option, "--http-port=0", "--grpc-port=0", "--metrics-port=0")
    assert code == 1 and "must specify at least one 'output'" in err, "nothing is filled in"
    assert ("--strict-model-config is deprecated" in err) == ("strict" in option)


def test_model_store_is_the_older_name(filled, start):
    server = start([], f"--model-store={filled}")
    with Rest(server.http) as rest:
        assert rest.get("/v2/models/m/ready").status == 200


def test_values_may_follow_as_words(filled, start):
    server = start([], "--model-repository", filled, "--id", "words", "--strict-readiness", "false")
    assert name_of(server) == "words"


def test_help_stands_alone():
    done = subprocess.run([BIN, "serve", "--help"], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0 and done.stderr == ""
    for option in ("--model-repository", "--http-port", "--grpc-port", "--metrics-port", "--model-control-mode", "--exit-timeout-secs"):
        assert option in done.stdout
    for args in (["--help"], ["serve", "-h"]):
        assert subprocess.run([BIN, *args], capture_output=True, timeout=wait.PATIENCE).returncode == 0


def test_reuse_of_ports(filled, start):
    first = start(filled, "--reuse-http-port=true", "--reuse-grpc-port=true")
    second = start(filled, "--reuse-http-port=true", "--reuse-grpc-port=true", f"--http-port={first.http}", f"--grpc-port={first.grpc}")
    assert (second.http, second.grpc) == (first.http, first.grpc)
    first.stop()
    assert name_of(second) == "triton"


def test_loopback_unless_told_otherwise(filled, start):
    import socket

    server = start(filled)
    other = next((a[4][0] for a in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET) if not a[4][0].startswith("127.")), None)
    if not other:
        pytest.skip("this machine has no other address")
    for port in server.ports.values():
        with pytest.raises(OSError):
            socket.create_connection((other, port), timeout=wait.PATIENCE).close()


def test_ipv6(filled, start):
    import socket

    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    server = start(filled, "--http-address=::1", "--grpc-address=[::1]")
    with Rest(server.http, host="::1") as rest:
        assert rest.get("/v2/health/ready").status == 200


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_one_protocol_alone(filled, start, kind):
    other = {"http": "grpc", "grpc": "http"}[kind]
    server = start(filled, f"--allow-{other}=false")
    assert set(server.ports) == {kind, "metrics"}
    with Rest(server.ports[kind]) as rest:
        assert rest.get("/v2/health/ready").status == 200


@pytest.mark.parametrize("pattern, reaches", [("fail_.*", True), ("fail_status", True), ("FAIL_.*", True), ("fail", True),
                                              ("status$", True), ("^status", False), ("x-.*", False), (".*", True)])
@pytest.mark.parametrize("option", ["http", "grpc"])
def test_header_forwarding(models, start, pattern, reaches, option):
    """A header in whose name the pattern is found becomes a parameter; the fault backend fails with fail_status."""
    repo.add(models, "m", backend="fault")
    server = start(models, f"--{option}-header-forward-pattern={pattern}")
    with Rest(server.http) as rest:
        reply = rest.infer("m", [("INPUT0", "INT32", [1], [1])], headers={"fail_status": "NOT_FOUND"})
        assert reply.status == (404 if reaches else 200)
    with Grpc(server.url("grpc")) as client:
        future = client.stub.ModelInfer.future(grpcraw.int32("m", [1]), metadata=(("fail_status", "NOT_FOUND"),), timeout=wait.PATIENCE)
        assert (future.exception() is not None) == reaches


@pytest.mark.parametrize("pattern, sent, reaches", [
    ("(?-i)fail_.*", "fail_status", True), ("(?-i)fail_.*", "Fail_status", False), ("(?-i)FAIL_.*", "fail_status", False),
    ("(?i)FAIL_.*", "Fail_Status", True)])
def test_header_forwarding_minds_the_case_when_told_so(models, start, pattern, sent, reaches):
    """As Triton's documentation has it; HTTP/2 and gRPC know lower case only."""
    repo.add(models, "m", backend="fault")
    server = start(models, f"--http-header-forward-pattern={pattern}")
    with Rest(server.http) as rest:
        for _ in range(2):
            reply = rest.infer("m", [("INPUT0", "INT32", [1], [1])], headers={sent: "NOT_FOUND"})
            assert reply.status == (404 if reaches else 200)


def test_a_forwarded_header_keeps_its_case(models, start):
    repo.add(models, "m", backend="fault")
    server = start(models, "--http-header-forward-pattern=(?-i)[A-Z]+_.*")
    with Rest(server.http) as rest:
        headers = {"TRITON_x": "1", "triton_x": "1"}
        assert rest.infer("m", [("INPUT0", "INT32", [1], [1])], headers=headers).status == 200, "the reserved name is triton_"


def test_reserved_headers_are_not_forwarded(filled, start):
    """What means something to the server comes with the request alone."""
    server = start(filled, "--http-header-forward-pattern=.*")
    with Rest(server.http) as rest:
        for name in ("priority", "timeout", "sequence_id", "headers", "triton_x"):
            reply = rest.infer("m", [("INPUT0", "INT32", [1], [1])], headers={name: "1"})
            assert (reply.status, reply.error) == (400, f"Header '{name}' is reserved for Triton usage and cannot be forwarded.")


@pytest.mark.parametrize("pattern", ["(", "[a", "(?-i)("])
def test_bad_header_pattern(filled, pattern):
    code, _, err = serve(f"--model-repository={filled}", f"--http-header-forward-pattern={pattern}", "--http-port=0",
                         "--grpc-port=0", "--metrics-port=0")
    assert code == 2 and "--http-header-forward-pattern" in err and pattern in err

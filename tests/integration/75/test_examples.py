"""The examples of the client library, built outside of the tree against an installed one, by pkg-config and by CMake."""
import re
import subprocess

import pytest

from lib import sdk

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")
SUM = "OUTPUT0 of simple: 0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30\n"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    return sdk.install(tmp_path_factory.mktemp("prefix"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory, prefix):
    folder = tmp_path_factory.mktemp("programs")
    return {name: sdk.compile_c(sdk.EXAMPLES / f"{name}.c", prefix, folder / name) for name in ("infer", "many", "poll", "stream")}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_infer(server, programs, protocol):
    assert sdk.run(programs["infer"], "simple", f"{protocol}://{server.url(protocol)}") == SUM


def test_a_host_that_is_not_there_is_passed_over(server, programs):
    url = f"http://{server.url()}"
    for _ in range(3):
        assert sdk.run(programs["infer"], "simple", "http://127.0.0.1:1", url) == SUM


def test_errors_say_what_is_wrong(server, programs):
    url = f"http://{server.url()}"
    assert "not found" in sdk.run(programs["infer"], "nothing", url, status=1)
    assert "cannot connect to 127.0.0.1:1" in sdk.run(programs["infer"], "simple", "http://127.0.0.1:1", status=1)
    assert "'ftp://a:1'" in sdk.run(programs["infer"], "simple", "ftp://a:1", status=1)
    assert "consul://" in sdk.run(programs["infer"], "simple", "consul://a:1", status=1)


def test_variants_share_the_traffic(server, programs, tmp_path):
    config = tmp_path / "endpoints.pbtxt"
    config.write_text(f'''
client {{ timeout_ms: 60000 }}
endpoint {{
  name: "sum"
  variant {{ tag: "stable" model: "simple" weight: 3 remote: "http://{server.url()}" }}
  variant {{ tag: "next" model: "simple" weight: 1 remote: "grpc://{server.url("grpc")}" }}
}}''')
    told = sdk.run(programs["many"], config, "sum", 400)
    assert "400 good, 0 bad" in told
    counts = {tag: int(n) for tag, n in re.findall(r"variant (\w+): (\d+)", told)}
    assert abs(counts["stable"] - 300) < 12 and counts["next"] == 400 - counts["stable"]


def test_an_event_loop_of_ones_own(server, programs):
    lines = sdk.run(programs["poll"], "simple", f"http://{server.url()}").splitlines()
    assert len(lines) == 2 and lines.count("2 outputs") >= 1
    assert all(line in ("2 outputs", "cancelled: the call was cancelled") for line in lines)


def test_a_stream(server, programs):
    lines = sdk.run(programs["stream"], "simple", f"grpc://{server.url('grpc')}").splitlines()
    assert sorted(lines) == [f"request {i}: 2 outputs, the last" for i in range(3)]
    told = sdk.run(programs["stream"], "nothing", f"grpc://{server.url('grpc')}").splitlines()
    assert len(told) == 3 and all("failed" in line and "nothing" in line for line in told)
    assert "grpc://" in sdk.run(programs["stream"], "simple", f"http://{server.url()}", status=1)


@pytest.mark.more
def test_cmake_finds_it(server, prefix, tmp_path):
    flags = " ".join(sdk.FLAGS)
    sdk.command("cmake", "-S", sdk.EXAMPLES, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_FLAGS={flags}",
                f"-DCMAKE_CXX_FLAGS={flags}")
    sdk.command("cmake", "--build", tmp_path / "build", "-j2")
    assert sdk.run(tmp_path / "build" / "infer", "simple", f"http://{server.url()}") == SUM
    told = sdk.run(tmp_path / "build" / "infer_cpp", "simple", f"http://{server.url()}")
    assert told == SUM.partition(": ")[2] + "20 outputs\n"
    told = sdk.run(tmp_path / "build" / "infer_cpp", "simple", f"grpc://{server.url('grpc')}")
    assert told == SUM.partition(": ")[2] + "20 outputs\n3 answers\n"
    assert "not found" in sdk.run(tmp_path / "build" / "infer_cpp", "nothing", f"http://{server.url()}", status=1)


def test_only_the_interface_is_exported(prefix):
    told = subprocess.run(["nm", "-D", "--defined-only", prefix / "lib" / "libmillrace.so"], check=True, capture_output=True, text=True).stdout
    names = {line.split()[2] for line in told.splitlines()}
    declared = set(re.findall(r"\b(mr_sdk_\w+)\(", (prefix / "include" / "millrace" / "client.h").read_text()))
    functions = {name.split("@@")[0] for name in names if not name.startswith("MILLRACE_")}
    assert functions == declared - {"mr_sdk_done_fn", "mr_sdk_stream_fn"}
    assert all(name.endswith("@@MILLRACE_1.0") for name in names if name.startswith("mr_"))

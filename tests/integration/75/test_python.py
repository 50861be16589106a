"""The Python package over the client library: installed by pip as a user does it, without a network."""
import os
import subprocess
import sys

import pytest

from lib import sdk, wait
from lib.repo import TOP

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    source = folder / "source"
    subprocess.run(["cp", "-r", str(TOP / "python"), str(source)], check=True)  # pip writes beside its source
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--target",
                    str(folder / "packages"), str(source)], check=True, capture_output=True)
    return folder / "packages"


def python(site, *words, status=0):
    env = sdk.python_environment() | {"PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, *map(str, words)], env=env, capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_example(server, site):
    assert (site / "millrace_client" / "py.typed").exists()
    told = python(site, sdk.EXAMPLES / "infer.py", "simple", f"http://{server.url()}")
    assert told == "0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30\n0 1 2 3 4 5 6 7 8 9\n"


PROGRAM = """
import asyncio, sys, numpy, millrace
http, grpc = sys.argv[1:]

def same(client, model, array):
    result = client.infer(model, {"INPUT0": array})
    got = result["OUTPUT0"]
    assert got.shape == array.shape and got.dtype == array.dtype and (got == array).all(), (model, got)
    assert not got.flags.writeable or got.dtype == object
    del result
    assert (got == array).all()  # the array keeps the answer

for url in (http, grpc):
    with millrace.Client(url) as client:
        for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"):
            model = "identity_" + name.replace("float", "fp")
            same(client, model, (numpy.arange(24) % 2).astype(name).reshape(2, 12))
        same(client, "identity_fp32", numpy.random.default_rng(1).random((1, 300000), numpy.float32))  # sent where it is
        same(client, "identity_fp32", numpy.arange(24, dtype=numpy.float32).reshape(12, 2).T.copy())
        texts = numpy.array([["a", "", "\\u00fc"]], object)
        assert [t.decode() for t in client.infer("identity_bytes", {"INPUT0": texts})["OUTPUT0"].ravel()] == ["a", "", "\\u00fc"]
        try:
            client.infer("nothing", {"INPUT0": numpy.zeros(1, numpy.int32)})
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert error.reason == "not found" and "nothing" in str(error)
        try:
            client.infer("identity_fp32", {"INPUT0": numpy.zeros(1, complex)})
            raise SystemExit("no error")
        except TypeError as error:
            assert "complex" in str(error)
print("good")
"""


def test_types_both_ways(server, site):
    assert python(site, "-c", PROGRAM, f"http://{server.url()}", f"grpc://{server.url('grpc')}") == "good\n"

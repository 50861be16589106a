"""KServe's own clients, unmodified. They come with tests/requirements-kserve.txt (tools/setup --kserve)."""
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lib import wait

CLIENT = Path(__file__).parents[1] / "lib" / "kserve_client.py"
pytestmark = pytest.mark.skipif(not importlib.util.find_spec("kserve"), reason="kserve is not installed (tests/requirements-kserve.txt)")


@pytest.fixture(scope="module")
def answers(keeper):
    server = keeper.get()
    done = subprocess.run([sys.executable, CLIENT, server.url(), server.url("grpc")], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
class TestKServe:
    @pytest.mark.parametrize("what", ["live", "ready", "model ready"])
    def test_health(self, answers, protocol, what):
        assert answers[protocol][what] is True

    @pytest.mark.parametrize("kind", ["plain", "binary"])
    def test_simple(self, answers, protocol, kind):
        got = answers[protocol][f"simple {kind}"]
        assert (got["id"], got["model"]) == ("k1", "simple")
        assert got["OUTPUT0"] == [2 * i for i in range(16)] and got["OUTPUT1"] == [0] * 16

    @pytest.mark.parametrize("kind", ["plain", "binary"])
    @pytest.mark.parametrize("dtype, values", [("INT32", [0, 1, 2, 3]), ("FP32", [0.0, 1.0, 2.0, 3.0]), ("UINT64", [0, 1, 2, 3]),
                                               ("BOOL", [False, True, False, True])])
    def test_types(self, answers, protocol, kind, dtype, values):
        assert answers[protocol][f"{dtype} {kind}"]["OUTPUT0"] == values

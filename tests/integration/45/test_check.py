"""`millrace model pack` and `model check`: without a server."""
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from lib import pymodels, repo
from lib.server import BIN, clean_environment

MODELS = Path(__file__).parent / "models"
IO = {"inputs": [repo.tensor("INPUT0", "TYPE_STRING", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_STRING", (1,))]}
ECHO = '''
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())])
                for r in requests]
'''


@pytest.fixture
def run(tmp_path):
    def run(*args, code=0):
        env = clean_environment({"CACHE_DIRECTORY": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)})
        done = subprocess.run([str(BIN), "model", *map(str, args)], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        assert not list(tmp_path.glob("millrace-*")), "temporary folders are left"
        return done
    return run


def check(run, path, code=0):
    found = json.loads(run("check", path, "--json", f"--python={sys.executable}", code=code).stdout)["models"]
    return {m["model"]: m for m in found}


def test_pack(tmp_path, run):
    """The same files give the same bytes, and the archive is what a repository takes."""
    folder = repo.add(tmp_path, "m")
    assert run("pack", folder).stdout == "m.tar.gz, 1 files\n"
    first = (tmp_path / "m.tar.gz").read_bytes()
    assert "is there already" in run("pack", folder, code=1).stderr
    os.utime(folder / "config.pbtxt", (0, 0))
    assert json.loads(run("pack", folder, "--to", "again.tar.gz", "--json").stdout) == {
        "archive": "again.tar.gz", "files": 1, "bytes": len(first)}
    assert (tmp_path / "again.tar.gz").read_bytes() == first
    with tarfile.open(tmp_path / "m.tar.gz") as t:
        assert t.getnames() == ["m", "m/1", "m/config.pbtxt"]
    assert check(run, tmp_path / "m.tar.gz")["m"]["ok"]


def test_project(tmp_path, run):
    """A folder with models/ is checked as the archive that is made of it."""
    project = tmp_path / "project"
    pymodels.add(project / "models", "echo", ECHO, **IO)
    repo.add(project / "models", "plain", backend="nothing")
    (project / "assets").mkdir()
    for target in (project, tmp_path / "p.zip"):
        if target != project:
            run("pack", project, "--to", target)
        found = check(run, target, code=1)
        assert found["echo"]["ok"] and found["echo"]["answer"] == "OUTPUT0 BYTES [1]"
        assert not found["plain"]["ok"] and "nothing" in found["plain"]["error"]


@pytest.mark.few
@pytest.mark.parametrize("text,error", [
    ("raise RuntimeError('no good')", "no good"),
    ("import ctypes; ctypes.string_at(0)", "signal 11"),
    ("return []", "returned 0 responses to 1 requests"),
])
def test_failing_request(tmp_path, run, text, error):
    model = pymodels.add(tmp_path, "m", ECHO.replace("return [pb_utils", f"{text}; return [pb_utils"), **IO)
    done = run("check", model, f"--python={sys.executable}", code=1)
    assert "m version 1: loaded in " in done.stdout and ", but a request fails: " in done.stdout and error in done.stdout
    assert done.stderr.splitlines()[-1] == "millrace model: 1 of 1 models failed"


def test_loads(tmp_path, run):
    """What does not load says why; several answers are counted."""
    pymodels.add(tmp_path, "bad", "class Other: pass", **IO)
    assert "bad version 1: does not load: " in run("check", tmp_path / "bad", f"--python={sys.executable}", code=1).stdout
    model = pymodels.add(tmp_path, "many", MODELS / "countdown.py", inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,))],
                         outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (1,))], extra="model_transaction_policy { decoupled: true }")
    assert check(run, model)["many"]["answer"] == "0 answers"


@pytest.mark.parametrize("path,error", [("none", "No such file or directory"), ("text.txt", "neither the folder of a model nor an archive"),
                                        ("bad.tar", "no whole archive")])
def test_paths(tmp_path, run, path, error):
    (tmp_path / "text.txt").write_text("no model")
    (tmp_path / "bad.tar").write_text("no archive")
    done = run("check", tmp_path / path, code=1)
    assert error in done.stdout + done.stderr

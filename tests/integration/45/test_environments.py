"""Environments of Python models: from requirements.txt, offline, and from a packed one."""
import base64
import hashlib
import json
import os
import sys
import tarfile
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lib import pymodels, repo, wait
from lib.rest import Rest, infer_path

IO = {"inputs": [repo.tensor("INPUT0", "TYPE_STRING", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_STRING", (1,))]}
# Answers with what a package says, and with the interpreter's prefix.
MODEL = '''
import sys
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        try:
            import millrace_testing
            said = millrace_testing.WORD
        except ImportError:
            said = "nothing"
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([said + " " + sys.prefix], dtype=object))])
                for _ in requests]
'''

# Takes uv's commands, and has venv and pip do them.
UV = '''#!{python}
import subprocess, sys
with open("{log}", "a") as log:
    print(*sys.argv[1:], file=log)
if sys.argv[1] == "venv":
    command = ["{python}", "-m", "venv", sys.argv[-1]]
else:
    command = [sys.argv[sys.argv.index("--python") + 1], "-m", "pip", "install", *sys.argv[sys.argv.index("--python") + 2:]]
sys.exit(subprocess.call(command))
'''


def wheel(folder, word, version="1.0"):
    """A package of one module, as pip takes it."""
    name = f"millrace_testing-{version}"
    files = {"millrace_testing.py": f"WORD = {word!r}\n",
             f"{name}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: millrace-testing\nVersion: {version}\n",
             f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             f"{name}.dist-info/entry_points.txt": "[console_scripts]\nmillrace-testing = millrace_testing:main\n"}
    record = "".join(f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}\n"
                     for path, text in files.items())
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as z:
        for path, text in files.items():
            z.writestr(zipfile.ZipInfo(path), text)  # without the time: equal wheels have equal bytes
        z.writestr(zipfile.ZipInfo(f"{name}.dist-info/RECORD"), record + f"{name}.dist-info/RECORD,,\n")


def ask(server, model="m"):
    with Rest(server.http) as rest:
        body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}
        return rest.post(infer_path(model), json.dumps(body)).ok().json()["outputs"][0]["data"][0].split(" ", 1)


def index(server):
    with Rest(server.http) as rest:
        return {m["name"]: m for m in rest.post("/v2/repository/index", "{}").ok().json()}


def environments(server):
    return sorted(p.name for p in (server.folder / "cache" / "unpacked").glob("environment-*") if p.is_dir())


@pytest.mark.more
def test_requirements(models, start):
    """Equal files share an environment, in which the interpreter's own packages are in sight; a later server has it at once."""
    for name in ("m", "same", "other", "none"):
        pymodels.add(models, name, MODEL, **IO)
    for name, word in (("m", "one"), ("same", "one"), ("other", "two")):
        wheel(models / name / "wheels", word)
        (models / name / "wheels" / "folder").mkdir()  # which pip does not look into
        repo.write(models / name / "requirements.txt", "# comment\nmillrace-testing==1.0\n")
    repo.write(models / "none" / "requirements.txt", "# nothing\n")
    server = start(models, *pymodels.options())
    said = {name: ask(server, name) for name in ("m", "same", "other", "none")}
    assert [said[n][0] for n in ("m", "same", "other", "none")] == ["one", "one", "two", "nothing"]
    assert said["m"][1] == said["same"][1] != said["other"][1]
    made = environments(server)
    assert len(made) == 2 and said["m"][1].split("/")[-1] in made
    script = Path(said["m"][1], "bin", "millrace-testing").read_text()
    assert said["m"][1] + "/bin/python" in script and ".part" not in script
    cache = server.folder / "cache"
    server.stop()
    before = (cache / "unpacked" / made[0]).stat().st_mtime_ns
    again = start(models, *pymodels.options(), env={"CACHE_DIRECTORY": str(cache)})
    assert ask(again) == said["m"] and (cache / "unpacked" / made[0]).stat().st_mtime_ns == before


@pytest.mark.more
def test_requirements_of_a_version(models, start):
    """In the folder of a version they are that version's; other versions have those of the model, if any."""
    for version in "123":
        pymodels.add(models, "m", MODEL, extra="version_policy { all { } }", **IO)
        (models / "m" / version).mkdir(exist_ok=True)
        repo.write(models / "m" / version / "model.py", MODEL)
    for folder, word in ((models / "m", "all"), (models / "m" / "2", "own")):
        wheel(folder / "wheels", word)
        repo.write(folder / "requirements.txt", "millrace-testing")
    server = start(models, *pymodels.options())
    said = [ask(server, f"m/versions/{v}")[0] for v in "123"]
    assert said == ["all", "own", "all"]


@pytest.mark.few(2)
@pytest.mark.parametrize("text,reason", [
    pytest.param("millrace-absent", "No matching distribution found for millrace-absent", marks=pytest.mark.more),
    ("-r other.txt", "m/requirements.txt: line 1: '-r other.txt' names another file"),
    ("ok\n./local.whl", "line 2: './local.whl' names another file"),
    ("millrace-testing@file:///wheels/x.whl", "line 1: 'millrace-testing@file:///wheels/x.whl' names another file"),
    ("wheels/millrace_testing-1.0-py3-none-any.whl", "line 1: 'wheels/millrace_testing-1.0-py3-none-any.whl' names another file"),
    ("--find-links=../other\nmillrace-testing", "line 1: '--find-links=../other' names another file"),
    pytest.param("a b c", "Invalid requirement: 'a b c'", marks=pytest.mark.more),
    (b"six\n\xff\n", "m/requirements.txt: byte 4 is no UTF-8"),
])
def test_failures(models, start, text, reason):
    """The model's failure, with the installer's reason; others serve."""
    pymodels.add(models, "m", MODEL, **IO)
    pymodels.add(models, "good", MODEL, **IO)
    wheel(models / "m" / "wheels", "one")
    repo.write(models / "m" / "requirements.txt", text)
    server = start(models, *pymodels.options(), "--exit-on-error=false")
    assert ask(server, "good")[0] == "nothing"
    assert reason in index(server)["m"]["reason"], index(server)["m"]
    assert environments(server) == []


@pytest.mark.more
def test_archive_has_requirements(models, start, tmp_path):
    """requirements.txt and wheels/ beside models/ are for all models of the archive."""
    folder = tmp_path / "bundle"
    pymodels.add(folder / "models", "m", MODEL, **IO)
    wheel(folder / "wheels", "packed")
    repo.write(folder / "requirements.txt", "millrace-testing")
    with tarfile.open(models / "bundle.tar.gz", "w:gz") as t:
        for file in sorted(folder.iterdir()):
            t.add(file, file.name)
    server = start(models, *pymodels.options())
    assert ask(server)[0] == "packed"


@pytest.mark.more
def test_update_of_requirements(models, start):
    """Other packages are an update of the model."""
    pymodels.add(models, "m", MODEL, **IO)
    wheel(models / "m" / "wheels", "one")
    wheel(models / "m" / "wheels", "two", "2.0")
    repo.write(models / "m" / "requirements.txt", "millrace-testing==1.0")
    server = start(models, *pymodels.options(), "--load-model=m", mode="explicit")
    assert ask(server)[0] == "one"
    repo.write(models / "m" / "requirements.txt", "millrace-testing==2.0")
    with Rest(server.http) as rest:
        rest.post("/v2/repository/models/m/load", "{}").ok()
    assert ask(server)[0] == "two"


def test_others_load_meanwhile(models, start, tmp_path):
    """An environment that takes long to make keeps no other model from being loaded, and its load can be given up."""
    pymodels.add(models, "slow", MODEL, **IO)
    repo.add(models, "quick")
    repo.write(models / "slow" / "requirements.txt", "millrace-testing")
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    os.mkfifo(tmp_path / "door")
    uv.write_text(f"#!/bin/sh\nread line <{tmp_path}/door\n")
    uv.chmod(0o755)
    server = start(models, *pymodels.options(), mode="explicit", env={"PATH": f"{uv.parent}:{os.environ['PATH']}"})
    with Rest(server.http) as rest, Rest(server.http) as other, ThreadPoolExecutor(1) as pool:
        reply = pool.submit(rest.post, "/v2/repository/models/slow/load", "{}")
        wait.until(lambda: b'"step":"making the environment"' in other.get("/v2/models/slow/versions").body, "the environment to be made")
        other.post("/v2/repository/models/quick/load", "{}").ok()
        other.post("/v2/repository/models/slow/unload", "{}").ok()
        assert reply.result().status >= 400
    assert environments(server) == []


@pytest.mark.more
def test_uv(models, start, tmp_path):
    """Where there is uv, it makes the environment."""
    pymodels.add(models, "m", MODEL, **IO)
    wheel(models / "m" / "wheels", "one")
    repo.write(models / "m" / "requirements.txt", "millrace-testing")
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV.format(python=sys.executable, log=tmp_path / "log"))
    uv.chmod(0o755)
    server = start(models, *pymodels.options(), env={"PATH": f"{uv.parent}:{os.environ['PATH']}"})
    assert ask(server)[0] == "one"
    log = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[0] for line in log] == ["venv", "pip"] and "--no-index --find-links" in log[1]
    assert all("--no-cache" in line for line in log), "a service may have no home folder"


@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_packed_environment(models, start, tmp_path, kind):
    """EXECUTION_ENV_PATH is an environment as venv-pack packs it."""
    folder = tmp_path / "env"
    venv.create(folder, system_site_packages=True, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "millrace_testing.py").write_text("WORD = 'unpacked'\n")
    (site / "numpy.pth").write_text(os.path.dirname(os.path.dirname(__import__("numpy").__file__)) + "\n")
    target = "$$TRITON_MODEL_DIRECTORY/env"
    if kind == "archive":
        target += ".tar.gz"
    model = pymodels.add(models, "m", MODEL, parameters={"EXECUTION_ENV_PATH": target}, **IO)
    if kind == "archive":
        with tarfile.open(model / "env.tar.gz", "w:gz") as t:
            for file in [*sorted(folder.iterdir()), folder / "pyvenv.cfg"]:  # which venv-pack adds once more
                t.add(file, file.name)
    else:
        folder.rename(model / "env")
    server = start(models, "--python=/nowhere/python3", *(["--allow-links-to=/"] if kind == "folder" else []))
    word, prefix = ask(server)
    assert word == "unpacked"
    assert prefix.startswith(str((server.folder / "cache") if kind == "archive" else model))


def test_bad_packed_environment(models, start):
    model = pymodels.add(models, "m", MODEL, parameters={"EXECUTION_ENV_PATH": "$$TRITON_MODEL_DIRECTORY/env.tar.gz"}, **IO)
    (model / "env.tar.gz").write_bytes(b"no archive")
    server = start(models, *pymodels.options(), "--exit-on-error=false")
    assert "parameter EXECUTION_ENV_PATH: " in index(server)["m"]["reason"]
    assert "env.tar.gz is no whole archive" in index(server)["m"]["reason"]

"""Under a service manager: notifications over its socket, the installed unit, and the report of doctor on the cache folder."""
import json
import os
import shutil
import signal
import socket
import subprocess
import uuid

import pytest

from lib import repo, sdk, wait
from lib.server import BIN, WITH_PARENT, clean_environment

BUILD = BIN.parent.parent


class Manager:
    """Listens as systemd does."""

    def __init__(self, name):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name.replace("@", "\0") if name.startswith("@") else name)
        self.socket.settimeout(wait.PATIENCE)

    def hear(self):
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def hears_nothing(self):
        self.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.socket.recv(4096)
        self.socket.settimeout(wait.PATIENCE)


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    name = str(tmp_path / "notify") if request.param == "path" else f"@millrace-{uuid.uuid4()}"
    made = Manager(name)
    made.name = name
    yield made
    made.socket.close()


def test_a_life(models, start, manager, hold):
    """READY comes when the models are loaded and not before."""
    repo.add(models, "slow", backend="fault", parameters=hold.loading)
    server = start(models, env={"NOTIFY_SOCKET": manager.name}, ready=False)
    assert "READY" not in manager.hear(), "models load"
    manager.hears_nothing()
    hold.end()
    assert manager.hear()["READY"] == "1"
    server.wait_ready()
    server.signal(signal.SIGHUP)
    told = manager.hear()
    assert told["RELOADING"] == "1" and int(told["MONOTONIC_USEC"]) > 0
    assert manager.hear() == {"READY": "1"}
    server.signal()
    assert manager.hear()["STOPPING"] == "1"
    server.stop()


def test_output_that_cannot_be_written(models, tmp_path):
    """A server that has drained has not failed, also if nobody could read what it printed at its start."""
    manager = Manager(str(tmp_path / "notify"))
    with open("/dev/full", "w") as full:
        server = subprocess.Popen([*WITH_PARENT, BIN, "serve", f"--model-repository={models}", "--http-port=0", "--grpc-port=0", "--metrics-port=0"],
                                  stdout=full, env=clean_environment({"NOTIFY_SOCKET": manager.socket.getsockname()}))
    while "READY" not in manager.hear():
        pass
    server.terminate()
    assert server.wait(wait.PATIENCE) == 0
    manager.socket.close()


@pytest.mark.parametrize("name", ["", "/", "relative", "/nowhere/at/all", "@" + "x" * 300, "vsock:2:1"])
def test_sockets_that_are_none(models, start, name):
    repo.add(models, "m")
    start(models, env={"NOTIFY_SOCKET": name})


def doctor(**env):
    base = {k: v for k, v in clean_environment().items() if k not in ("HOME", "CACHE_DIRECTORY", "XDG_CACHE_HOME")}
    out = subprocess.run([str(BIN), "doctor", "--json"], capture_output=True, text=True, env={**base, **env}, timeout=wait.PATIENCE)
    return next(f for f in json.loads(out.stdout) if f["name"] == "cache")


def test_doctor_looks_at_the_cache_folder(tmp_path):
    none = doctor()
    assert none["level"] == "warning" and "stay on the heap" in none["text"] and "CacheDirectory=" in none["advice"]
    assert doctor(HOME=str(tmp_path))["level"] == "ok" and not (tmp_path / ".cache").exists(), "it changes nothing"
    cache = tmp_path / "cache"
    cache.mkdir()
    assert doctor(CACHE_DIRECTORY=str(cache), HOME="/")["text"].startswith(f"{cache}/parameters")
    (cache / "parameters").mkdir()
    assert doctor(CACHE_DIRECTORY=str(cache))["level"] == "ok"
    (cache / "parameters").chmod(0o777)
    assert doctor(CACHE_DIRECTORY=str(cache))["level"] == "warning"
    (tmp_path / "file").touch()
    assert doctor(CACHE_DIRECTORY=str(tmp_path / "file"))["level"] == "warning", "nothing can be made there"


@pytest.mark.skipif(not (BUILD / "cmake_install.cmake").exists() or not shutil.which("cmake"), reason="no build folder")
def test_the_unit_is_installed(tmp_path):
    """It names the program where that is, and the installed program takes what the unit gives it."""
    prefix = tmp_path / "prefix"
    sdk.install(prefix)
    unit = (prefix / "lib/systemd/system/millrace.service").read_text()
    lines = [line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#")]
    settings = dict(lines)
    assert settings["ExecStart"] == f"{prefix}/bin/millrace serve" and os.access(prefix / "bin/millrace", os.X_OK)
    assert settings["Type"] == "notify" and "@" not in unit
    assert settings["KillMode"] == "mixed" and settings["OOMPolicy"] == "continue", "worker processes are the server's affair"
    assert {settings[f"{folder}Directory"] for folder in ("Cache", "State", "Runtime", "Logs")} == {"millrace"}, "all else is read-only"
    given = dict(pair.split("=", 1) for pair in settings["Environment"].split())
    out = subprocess.run([prefix / "bin/millrace", "serve", "--dump-options"], capture_output=True, text=True,
                         env={**clean_environment(), **given}, timeout=wait.PATIENCE)
    assert out.returncode == 0 and "model-repository = /srv/models" in out.stdout
    if shutil.which("systemd-analyze"):
        checked = subprocess.run(["systemd-analyze", "verify", prefix / "lib/systemd/system/millrace.service"], capture_output=True, text=True)
        assert "millrace.service" not in checked.stderr, checked.stderr

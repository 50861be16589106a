"""The servers that are compared, each pinned to the first CPU, started on free ports of loopback."""
import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from . import machine

MILLRACE = Path(os.environ.get("MR_BIN", machine.ROOT / "build/release/bin/millrace"))
OF_TABLES = ("pyarrow", "aiohttp", "duckdb", "onnxruntime", "pyspark")  # whose versions matter to the rows of tables only
START_LIMIT_S = 300  # valgrind takes its time


class Server:
    """A process that serves until stopped. `after` puts a program before it (valgrind). It has the first CPU, or as many
    as are there."""

    name = "server"

    def __init__(self, command, http=None, grpc=None, ready="/v2/health/ready", env=None, after=(), cpus=1):
        self.http, self.grpc = http, grpc
        self.started = time.perf_counter()
        command = [str(c) for c in (*after, *command)]
        self.process = subprocess.Popen(machine.pinned(machine.server_cpu(), command) if cpus == 1 else command,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        try:
            self.wait(http or grpc, ready)
        except BaseException:
            self.process.kill()
            raise
        self.ready_ms = 1e3 * (time.perf_counter() - self.started)

    def wait(self, port, ready):
        """Until `ready` is answered with 200 (or, where it is None, the port accepts)."""
        while time.perf_counter() - self.started < START_LIMIT_S:
            if self.process.poll() is not None:
                raise machine.Ended(f"{self.name} ended at start with {self.process.returncode}")
            try:
                if ready is None:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    return
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=START_LIMIT_S):
                    return
            except (OSError, urllib.error.HTTPError):
                time.sleep(0.0005)
        raise machine.Missing(f"{self.name} was not ready after {START_LIMIT_S} s")

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Millrace(Server):
    name = "millrace"

    def __init__(self, repository, *options, after=(), explicit=False, cpus=1):
        if not MILLRACE.exists():
            raise machine.Missing(f"{MILLRACE} is not built (make build)")
        http, grpc, self.metrics = (machine.free_port() for _ in range(3))
        options = list(options) + (["--model-control-mode=explicit"] if explicit else [])
        super().__init__([MILLRACE, "serve", f"--model-repository={repository}", f"--http-port={http}",
                          f"--grpc-port={grpc}", f"--metrics-port={self.metrics}", *options],
                         None if any(o.startswith("--http-address=unix:") for o in options) else http, grpc, after=after, cpus=cpus)


class Triton(Server):
    """A Triton of this machine: `home` is a folder with bin/tritonserver and backends/ in it."""

    name = "triton"
    home = None  # set by find()
    lacking = ()  # backends that it does not have; set by find()

    def __init__(self, repository, *options, explicit=False, cpus=1):
        http, grpc, metrics = (machine.free_port() for _ in range(3))
        options = list(options) + (["--model-control-mode=explicit"] if explicit else [])
        loopback = [f"--{what}-address=127.0.0.1" for what in ("http", "grpc", "metrics")]
        env = dict(os.environ, ORT_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1")
        super().__init__([self.home / "bin/tritonserver", f"--model-repository={repository}",
                          f"--backend-directory={self.home / 'backends'}", f"--http-port={http}", f"--grpc-port={grpc}",
                          f"--metrics-port={metrics}", "--allow-gpu-metrics=false", *loopback, *options], http, grpc, env=env,
                         cpus=cpus)

    @classmethod
    def find(cls, given):
        """Where Triton is: as given, in $TRITON_HOME as a folder or a virtual environment with its wheel, in /opt."""
        home = Path(given or os.environ.get("TRITON_HOME", Path.home() / ".cache/triton-peer"))
        for folder in [home, *home.glob("venv/lib/python3*/site-packages/pytriton/tritonserver"), Path("/opt/tritonserver")]:
            if (folder / "bin/tritonserver").exists():
                cls.home = folder
                cls.lacking = [b for b in ("onnxruntime", "identity") if not (folder / f"backends/{b}/libtriton_{b}.so").exists()]
                return
        raise machine.Missing(f"no Triton in {home} (TRITON_HOME or --triton names a folder with bin/tritonserver and backends/)")


class MLServer(Server):
    """MLServer with its defaults, of the environment of the tests (tools/setup --test)."""

    name = "mlserver"
    ENVIRONMENT = machine.ROOT / "build/venv-mlserver/bin"

    def __init__(self, repository, cpus=1):
        if not (self.ENVIRONMENT / "mlserver").exists():
            raise machine.Missing(f"no MLServer in {self.ENVIRONMENT} (tools/setup --test)")
        http, grpc, metrics = (machine.free_port() for _ in range(3))
        env = dict(os.environ, MLSERVER_HTTP_PORT=str(http), MLSERVER_GRPC_PORT=str(grpc), MLSERVER_METRICS_PORT=str(metrics),
                   MLSERVER_DEBUG="false", MLSERVER_HOST="127.0.0.1")
        super().__init__([self.ENVIRONMENT / "mlserver", "start", repository], http, grpc, env=env, cpus=cpus)


class Nginx(Server):
    """Answers every POST with a constant: what HTTP/1.1 alone costs."""

    name = "nginx"

    def __init__(self, folder):
        program = machine.need("nginx", "nginx-light")
        port = machine.free_port()
        conf = Path(folder, "nginx.conf")
        conf.write_text(f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log /dev/null;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; location / {{ default_type application/json; return 200 '{"x" * 200}'; }} }} }}
""")
        super().__init__([program, "-p", folder, "-c", conf], port, ready=None)


class CopyLoop(Server):
    """Reads each body and sends it back: what the kernel's copies of a large tensor cost (bench/copy_loop.c)."""

    name = "copy loop"

    def __init__(self, folder):
        program = MILLRACE.parent.parent / "bench" / "bench_copy_loop"
        if not program.exists():
            raise machine.Missing(f"{program} is not built (make bench builds it)")
        port = machine.free_port()
        super().__init__([program, str(port)], port, ready=None)


class Nghttpd(Server):
    """Answers every call with a constant: what HTTP/2 alone costs."""

    name = "nghttpd"

    def __init__(self, folder):
        program = machine.need("nghttpd", "nghttp2-server")
        port = machine.free_port()
        root = Path(folder, "nghttpd")
        root.mkdir(exist_ok=True)
        (root / "reply").write_text("x" * 200)
        (root / "reply-4MB").write_text("x" * (4 << 20))
        super().__init__([program, "--no-tls", "-d", root, str(port)], grpc=port, ready=None)


def versions():
    """What was compared, for the record."""
    found = {"millrace": machine.output([MILLRACE, "--version"]).split()[-1] if MILLRACE.exists() else None}
    if Triton.home:
        found["triton"] = triton_version()
    for tool, argument in (("nginx", "-v"), ("nghttpd", "--version"), ("wrk", "-v"), ("h2load", "--version")):
        path = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin")
        if path:
            said = subprocess.run([path, argument], capture_output=True, text=True)
            line = (said.stdout or said.stderr).splitlines()[0]
            found[tool] = next((w.split("/")[-1] for w in line.split() if any(c.isdigit() for c in w)), line)
    for package in OF_TABLES:
        if importlib.util.find_spec(package):
            found[package] = importlib.metadata.version(package)
    return found


def triton_version():
    """By asking it: a Triton without models starts in a moment."""
    import tempfile
    with tempfile.TemporaryDirectory() as empty:
        server = Triton(empty)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.http}/v2", timeout=20) as reply:
                return json.load(reply)["version"]
        finally:
            server.stop()

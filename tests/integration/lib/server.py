"""A millrace server as a child process: started on free ports, ended by its own process id."""
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

from lib import wait
from lib.repo import TOP

BIN = Path(os.environ.get("MR_BIN", TOP / "build" / os.environ.get("MR_BUILD", "release") / "bin" / "millrace"))
# Servers go when the test run is killed; setpriv replaces itself by the server, so that the process id is the server's.
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
# Root, but for the right to read and write what belongs to others.
WITHOUT_PRIVILEGES = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"] if WITH_PARENT else []
# A sanitizer's report ends the process with this code, which no other way of ending has.
SANITIZER_EXIT = 97
SANITIZER_ENV = {
    "ASAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:detect_leaks=1:handle_abort=0:handle_sigill=1:detect_stack_use_after_return=1",
    "TSAN_OPTIONS": f"exitcode={SANITIZER_EXIT}:halt_on_error=1",
}
REPORT = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer")


def clean_environment(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MILLRACE_", "TRITONSERVER_"))}
    for key, value in SANITIZER_ENV.items():
        env[key] = value + (":" + env[key] if env.get(key) else "")
    env.update(extra or {})
    return env


class Server:
    """One `millrace serve`. The options of `args` follow the usual ones and may replace them; `command`: words in its place;
    `prefix`: a command that runs it."""

    def __init__(self, folder, repos, *args, mode="none", env=None, ports=True, log="json", program=BIN,
                 without_privileges=False, most_descriptors=None, command=("serve",), prefix=()):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.command = ["prlimit", f"--nofile={most_descriptors}"] if most_descriptors else []
        self.command += [str(program), *map(str, command)]
        self.command += [f"--model-repository={r}" for r in repos]
        self.command += [f"--model-control-mode={mode}"] if mode else []
        if ports:
            self.command += ["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--print-ports=json"]
        self.command += [f"--log-format={log}"] if log else []
        self.command += [str(a) for a in args]
        self.out_path, self.err_path = self.folder / "stdout", self.folder / "stderr"
        self.ports = {}
        self.checked = False
        self.signalled = False
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                [*WITH_PARENT, *(WITHOUT_PRIVILEGES if without_privileges else []), *prefix, *self.command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=clean_environment({"CACHE_DIRECTORY": str(self.folder / "cache"), **(env or {})}), cwd=self.folder, start_new_session=True)

    # ---- start ----

    def wait_ready(self):
        """Until it listens; the ports are known afterwards. Dies with its output when the server does."""
        wait.until(self._read_ports, f"the server to listen\n{self.describe()}")
        return self

    def _read_ports(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode} at its start\n{self.describe()}")
        line, newline, _ = self.out().partition("\n")
        if not newline:
            return False
        told = json.loads(line)
        self.ports = {kind: told[kind]["port"] or told[kind]["address"].removeprefix("unix:") for kind in ("http", "grpc", "metrics") if kind in told}
        return told["event"] == "ready"

    @property
    def http(self):
        return self.ports["http"]

    @property
    def grpc(self):
        return self.ports["grpc"]

    @property
    def metrics(self):
        return self.ports["metrics"]

    def url(self, kind="http"):
        return f"127.0.0.1:{self.ports[kind]}"

    # ---- its output ----

    def out(self):
        return self.out_path.read_text(errors="replace")

    def err(self):
        return self.err_path.read_text(errors="replace")

    def events(self):
        """The log lines that are JSON objects."""
        found = []
        for line in self.err().splitlines():
            if line.startswith("{"):
                try:
                    found.append(json.loads(line))
                except ValueError:
                    pass  # the last line may not be whole yet
        return found

    def describe(self):
        return f"$ {' '.join(self.command)}\n--- stdout\n{self.out()[-2000:]}\n--- stderr\n{self.err()[-6000:]}"

    # ---- end ----

    @property
    def running(self):
        return self.process.poll() is None

    def signal(self, number=signal.SIGTERM):
        self.signalled |= number in (signal.SIGTERM, signal.SIGINT)
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            wait.stopped(self.process.pid)

    def wait_exit(self, patience=wait.PATIENCE):
        """Exit code once it has ended by itself or by an earlier signal."""
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not end within {patience} s\n{self.describe()}") from None
        self._check_sanitizers()
        return code

    def stop(self):
        """Sends SIGTERM unless that was done already; it must end with 0."""
        self.checked = True
        if self.running and not self.signalled:
            self.signal()
        code = self.wait_exit()
        assert code == 0, f"the server ended with {code}\n{self.describe()}"

    def end_anyhow(self):
        """For a test that has judged the end itself, or failed."""
        self.checked = True
        if self.running:
            self.process.kill()
        self.process.wait()
        self._check_sanitizers()

    def _check_sanitizers(self):
        report = REPORT.search(self.err())
        assert not report and self.process.returncode != SANITIZER_EXIT, f"sanitizer report\n{self.err()[-20000:]}"


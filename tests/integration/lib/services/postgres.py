"""A PostgreSQL server of our own, on a free port of the loopback, and what is asked of it."""
import contextlib
import glob
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest

from lib import wait
from lib.batch import environment
from lib.services.ports import quiet_port

FOLDERS = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda f: int(f.split("/")[4]), reverse=True)
BIN = pathlib.Path(next(iter(FOLDERS), "/usr/bin"))
PASSWORD = "Secret%37/#word"

needs_server = pytest.mark.skipif(not (BIN / "initdb").exists() or not (BIN / "postgres").exists(),
                                  reason="tools/setup --test has not installed PostgreSQL's server")


def somebody():
    """The server does not run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise RuntimeError("there is no user to run PostgreSQL as")


class Server:
    def __init__(self, folder):
        self.folder, self.process, self.port = folder, None, quiet_port()
        (folder / "password").write_text(PASSWORD)
        if somebody():
            os.chown(folder, somebody()["user"], somebody()["group"])
            os.chmod(folder / "password", 0o644)
        subprocess.run([BIN / "initdb", "-D", folder / "data", "-U", "owner", "-E", "UTF8", "--no-locale", "--no-sync",
                        "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={folder}/password"],
                       check=True, capture_output=True, cwd="/", timeout=wait.PATIENCE, **somebody())

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [BIN / "postgres", "-D", self.folder / "data", "-k", self.folder, "-p", str(self.port), "-c",
                 "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "log_statement=all"],
                stdout=log, stderr=log, cwd="/", **somebody())
        wait.until(lambda: self.psql("select 1", check=False).returncode == 0, "PostgreSQL to be up", step=0.05)

    def stop(self, how=signal.SIGINT):
        """SIGINT ends it properly, SIGQUIT at once, as a crash does; all its processes have ended afterwards."""
        self.process.send_signal(how)
        self.process.wait(wait.PATIENCE)
        self.process = None

    def psql(self, sql, check=True, database="postgres"):
        done = subprocess.run([BIN / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-p",
                               str(self.port), "-U", "owner", "-d", database], input=sql, text=True, capture_output=True,
                              timeout=wait.PATIENCE)
        assert not check or done.returncode == 0, done.stderr
        return done

    def rows(self, select, database="postgres"):
        """Lists of values."""
        text = self.psql("select coalesce(json_agg(r), '[]') from (select (select json_agg(value) from json_each("
                         f"row_to_json(t))) r from ({select}) t) s", database=database).stdout
        return json.loads(text)

    def url(self, database="postgres", user="owner", password="Secret%2537%2F%23word"):
        return f"postgresql://{user}{':' if password else ''}{password}@127.0.0.1:{self.port}/{database}"


def stopped_at_lock(server, words, lock):
    """The command waits for a lock of another one, and ends on request."""
    waits = "select pid from pg_stat_activity where wait_event = '{}' or application_name = 'millrace' and wait_event_type = 'Lock'"
    holder = threading.Thread(target=server.psql, args=(f"begin; {lock}; select pg_sleep(600)", False))
    holder.start()
    try:
        wait.until(lambda: server.rows(waits.format("PgSleep")), "the lock to be held")
        process = subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True)
        wait.until(lambda: server.rows(waits.format("")), "the command to wait for it")
        process.send_signal(signal.SIGTERM)
        assert "stopped" in process.communicate(timeout=wait.PATIENCE)[1]
        assert process.returncode > 0
    finally:
        server.psql("select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'")
        holder.join()


@contextlib.contextmanager
def server():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mr-pg-"))
    s = None
    try:
        s = Server(folder)
        s.start()
        yield s
    finally:
        if s and s.process:
            s.stop()
        shutil.rmtree(folder, ignore_errors=True)

"""Tables in databases: what batch jobs read there, and write there."""
import json
import sqlite3
import subprocess

import numpy

from lib import wait
from lib.batch import WIDTH, command, environment


def vectors(rows):
    return numpy.random.default_rng(5).integers(-100, 100, (rows, WIDTH)).astype(numpy.float32)


def sqlite_table(path, rows, keys=None, columns="id INTEGER PRIMARY KEY, x TEXT, name TEXT", options=""):
    """Rows as of lib.batch.table, the lists as JSON."""
    x = vectors(rows)
    with sqlite3.connect(path) as db:
        db.execute(f"create table rows ({columns}) {options}")
        db.executemany("insert into rows values (?, ?, ?)",
                       [(k, json.dumps(v), f"row {k}") for k, v in zip(keys or range(rows), x.tolist())])
    db.close()
    return x


def arguments(folder, addresses, source, *args, verb="run"):
    """The command line, with another input than files."""
    words = command(folder, addresses, *args)
    words[2] = verb
    at = words.index("-i")
    words[at:at + 2] = [str(w) for w in source]
    return words


def run(folder, addresses, source, *args, code=0, verb="run", env=None):
    done = subprocess.run(arguments(folder, addresses, source, *args, verb=verb), capture_output=True, text=True,
                          env={**environment(), **(env or {})}, timeout=120 * wait.SLOW)
    assert done.returncode == code, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-9000:]}"
    return done

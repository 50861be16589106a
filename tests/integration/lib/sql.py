"""Tables in databases: what batch jobs read there, and write there."""
import contextlib
import json
import random
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
                          env={**environment(), **(env or {})}, timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-9000:]}"
    return done


def check_rows(rows, x, gone=()):
    """All rows but the missing ones, once each, each with its own answer: (id, name, y, z) each."""
    want = numpy.setdiff1d(numpy.arange(len(x)), gone)
    assert sorted(r[0] for r in rows) == want.tolist()
    sums = x.sum(axis=1, dtype=numpy.float32)
    for key, name, y, z in rows:
        assert (name, y, list(z)) == (f"row {key}", sums[key], [10 * key, 10 * key + 1])


def killed_at_syncs(words, most=200):
    """Runs the command again and again, the k-th time until its k-th call that brings something to disk, which it does
    not survive; until it ends well. Returns how often it was killed."""
    env = environment()
    env["ASAN_OPTIONS"] += ":detect_leaks=0"  # it cannot under strace
    for k in range(1, most):
        done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e",
                               f"inject=fsync,fdatasync:signal=KILL:when={k}", *words], capture_output=True, text=True,
                              env=env, timeout=wait.PATIENCE)
        if done.returncode == 0:
            return k - 1
        assert done.returncode in (-9, 137), done.stderr[-3000:]
    raise AssertionError(f"not ready after {most} starts")


def killed_at_random(words, rounds, longest_s=1.0, before=None):
    """Kills the command `rounds` times at any moment, then lets it end."""
    rng = random.Random(7)
    for _ in range(rounds):
        process = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.1, longest_s) * wait.SLOW)
        process.kill()
        process.wait()
        if before:
            before()
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]

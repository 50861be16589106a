"""What tests/interop/table_dump.c prints of a table."""
import json
import os
import subprocess
import sys

from lib import wait
from lib.repo import TOP
from lib.server import clean_environment

DUMP = TOP / "build" / os.environ.get("MR_BUILD", "release") / "tests" / "table_dump"

MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def run(*args, command=()):
    return subprocess.run([*command, str(DUMP), *map(str, args)], capture_output=True, text=True,
                          env=clean_environment(), timeout=wait.PATIENCE)


def parse(lines):
    head, *rows = [json.loads(line) for line in lines]
    return head, rows


def dump(*args):
    """The first line and the rows."""
    done = run(*args)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return parse(done.stdout.split("\n")[:-1])


def dump_measured(*args):
    """The same, and the most memory that it had, in KiB."""
    done = run(*args, command=[sys.executable, "-c", MEASURE])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    *lines, peak = done.stdout.split("\n")[:-1]
    return *parse(lines), int(peak)


def error(*args):
    done = run(*args)
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.split("\n")[-2].removeprefix("error ")

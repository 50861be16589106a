"""The client library as an installed tree, and programs that are built with it outside of this one."""
import fcntl
import os
import shutil
import subprocess
import sys

from lib import wait
from lib.repo import TOP
from lib.server import BIN, clean_environment

BUILD = BIN.parent.parent
EXAMPLES = TOP / "examples" / "sdk"
SANITIZER = {"asan": "address,undefined", "tsan": "thread"}.get(os.environ.get("MR_BUILD", ""))
# Programs outside are linked as the library is.
FLAGS = ["-fsanitize=" + SANITIZER, "-fno-sanitize-recover=all", "-g"] if SANITIZER else []
MISSING = not (BUILD / "cmake_install.cmake").exists() or not shutil.which("cmake") or not shutil.which("cc")


def install(folder):
    """One at a time: cmake writes the file for pkg-config into the build folder first, with this prefix. It is relative; what is
    installed says the whole path."""
    with open(BUILD / "install.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command("cmake", "--install", BUILD, "--prefix", folder.name, cwd=folder.parent)
    return folder


def command(*words, cwd=None, env=None):
    done = subprocess.run([str(w) for w in words], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def pkg_config(prefix, *words):
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    return command("pkg-config", *words, "millrace", env=env).split()


def compile_c(source, prefix, out):
    """As the comments of the examples say it, with warnings as errors; C++ by its suffix."""
    compiler = ("c++", "-std=c++17") if source.suffix == ".cpp" else ("cc", "-std=c11", "-D_GNU_SOURCE")
    command(*compiler, "-Wall", "-Wextra", "-Werror", *FLAGS, source, *pkg_config(prefix, "--cflags", "--libs"),
            *(f"-Wl,-rpath,{folder}" for folder in pkg_config(prefix, "--variable=libdir")), "-o", out)
    return out


def run(*words, status=0):
    """A program to its end: what it printed."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=clean_environment(), timeout=wait.PATIENCE)
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def python_environment():
    """For a Python program that loads the library of the build, which needs the sanitizer's own library first."""
    env = {"MILLRACE_LIBRARY": str(BUILD / "lib" / "libmillrace.so.1")}
    if SANITIZER:
        name = {"a": "libasan.so", "t": "libtsan.so"}[SANITIZER[0]]
        env["LD_PRELOAD"] = command("cc", f"-print-file-name={name}").strip()
        env["ASAN_OPTIONS"] = "detect_leaks=0"  # those of the interpreter
    return clean_environment(env)


BEGIN = """
import asyncio, os, signal, socket, sys, threading, time, numpy, millrace
from pathlib import Path
words = sys.argv[1:]
X = numpy.arange(4, dtype=numpy.int32)
PATIENT = {"timeout": 300, "attempt_timeout_ms": 300000}  # however slow the machine is

def good(result):
    assert (result["OUTPUT0"] == X).all()
    return result

def infer(client, model="m", **more):
    return good(client.infer(model, {"INPUT0": X}, **({"timeout": 300} | more)))

def until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)

def refused(client, model="m", **more):
    try:
        infer(client, model, **more)
    except millrace.InferenceError as error:
        return error
    raise SystemExit("no error")
"""


def start_python(program, *words):
    """A program in Python with the client library, after BEGIN."""
    env = python_environment() | {"PYTHONPATH": str(TOP / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([sys.executable, "-c", BEGIN + program + "\nprint('good')", *map(str, words)], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def ends_well(process):
    try:
        out, err = process.communicate(timeout=2 * wait.PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "good\n"), out + err


def run_python(program, *words):
    """Such a program to its end."""
    ends_well(start_python(program, *words))

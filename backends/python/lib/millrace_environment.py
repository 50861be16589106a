"""Makes the virtual environment of a model from its requirements.txt. The server runs it with the interpreter that the
environment is for:

    millrace_environment.py key REQUIREMENTS             prints what the environment is to be named after, or nothing
    millrace_environment.py make REQUIREMENTS DIR PATH   makes it in the folder DIR, which will then be renamed to PATH

Wheels in a folder `wheels` beside the file are all that is installed from; without it packages come from where pip or uv are
set up to get them. Lines `step WORDS` say what happens. After a failure the last line is the reason."""
import ctypes
import hashlib
import os
import platform
import re
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

FORMAT = "1"  # of what is made: another one makes all environments anew
OTHER_FILES = (("-r", "--requirement"), ("-c", "--constraint"), ("-e", "--editable"))
ARCHIVES = (".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MOST_BYTES = 1 << 20


class Failure(Exception):
    pass


def is_option(line, short, name):
    """pip takes beginnings of long options as well."""
    word = line.replace("=", " ").split()[0]
    return line.startswith(short) or (len(word) > 2 and name.startswith(word))


def names_file(line):
    """Whether a line asks for a file, or what a file or a folder says."""
    if re.search(r"(^|[@=+\s])file:", line) or any(is_option(line, *option) for option in OTHER_FILES):
        return True
    if line.startswith("-"):
        return is_option(line, "-f", "--find-links") and "://" not in line
    what = re.split(r"\s--|;", line)[0].strip()
    return "://" not in what and (what.startswith(".") or "/" in what or what.endswith(ARCHIVES))


def lines_of(requirements):
    """Its lines without comments; those that name other files are refused, as the key would not know of them."""
    if requirements.stat().st_size > MOST_BYTES:
        raise Failure(f"more than {MOST_BYTES} bytes")
    try:
        text = requirements.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise Failure(f"byte {e.start} is no UTF-8") from None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        if names_file(line):
            raise Failure(f"line {number}: '{line[:80]}' names another file; wheels belong in a folder 'wheels' beside it")
        found.append(line)
    return found


def wheels_of(requirements):
    folder = requirements.parent / "wheels"
    return folder if folder.is_dir() else None


def key(requirements):
    lines = lines_of(requirements)
    if not any(not line.startswith("-") for line in lines):
        return ""  # it asks for nothing
    parts = [FORMAT, sys.version, os.path.realpath(sys.executable), sys.prefix, platform.platform(), *lines]
    wheels = wheels_of(requirements)
    if wheels:
        parts.append("wheels")
        for file in sorted(file for file in wheels.iterdir() if file.is_file()):
            parts += [file.name, hashlib.sha256(file.read_bytes()).hexdigest()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run(command, cwd=None):
    """Passes the command's lines on; its failure ends with the reason that it gave."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")}
    process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", preexec_fn=die_with_parent)
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines = [*lines[-199:], line.strip()]
    if process.wait() != 0:
        errors = [line.split(":", 1)[1].strip() for line in lines if line.lower().startswith("error:")]
        raise Failure("; ".join(errors) or " ".join(line for line in lines[-5:] if line) or f"{command[0]} ended with {process.returncode}")


def install(requirements, folder):
    wheels = wheels_of(requirements)
    source = ["--no-index", "--find-links", str(wheels.resolve())] if wheels else []
    python = str(folder / "bin" / "python3")
    uv = shutil.which("uv")
    print("step making the environment", flush=True)
    if uv:
        # A service may have no home folder for a cache, without which uv would not start.
        cache = [] if "UV_CACHE_DIR" in os.environ else ["--no-cache"]
        run([uv, "venv", *cache, "--no-project", "--python", sys.executable, str(folder)])
        command = [uv, "pip", "install", *cache, "--no-config", "--python", python]
    else:
        try:
            import ensurepip  # noqa: F401
        except ImportError:
            raise Failure(f"{sys.executable} cannot make virtual environments: its module ensurepip is missing "
                          "(Debian: python3-venv), and there is no uv in PATH") from None
        run([sys.executable, "-m", "venv", str(folder)])
        command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    print("step installing packages", flush=True)
    run([*command, *source, "-r", str(requirements.resolve())], cwd=requirements.parent)


def sites_add(folder):
    """Packages of the interpreter that the environment is made for stay in sight, after those of the environment."""
    own = next(folder.glob("lib/python*/site-packages"))
    seen = [p for p in [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")] if os.path.isdir(p)]
    (own / "zz_millrace.pth").write_text("".join(f"{p}\n" for p in dict.fromkeys(seen)))


def paths_change(folder, path):
    """Programs and settings name the folder that they were made in."""
    old, new = str(folder).encode(), str(path).encode()
    for file in [folder / "pyvenv.cfg", *(folder / "bin").iterdir()]:
        if file.is_file() and not file.is_symlink():
            data = file.read_bytes()
            if old in data:
                mode = file.stat().st_mode
                file.write_bytes(data.replace(old, new))
                file.chmod(mode)


def make(requirements, folder, path):
    folder.rmdir()  # an empty one, which uv would not take
    install(requirements, folder)
    print("step finishing", flush=True)
    sites_add(folder)
    paths_change(folder, path)


def main():
    die_with_parent()
    requirements = Path(sys.argv[2])
    try:
        if sys.argv[1] == "key":
            print(key(requirements))
        else:
            make(requirements, Path(sys.argv[3]), Path(sys.argv[4]))
    except (Failure, OSError, ValueError) as e:
        print(" ".join(str(e).split())[:400], flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The machine: its CPUs, the processes on it and what they used."""
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGESIZE")


class Missing(Exception):
    """Something that a row needs is not on this machine; the text says what."""


class Ended(Missing):
    """A server that ended while it started."""


def need(tool, package):
    """The path of a program, or Missing with the name of its Debian package."""
    path = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        raise Missing(f"{tool} is not installed (Debian: {package}; tools/setup --bench)")
    return path


def server_cpu():
    return min(os.sched_getaffinity(0))


def client_cpu():
    return max(os.sched_getaffinity(0))


def pinned(cpu, command):
    return ["taskset", "-c", str(cpu)] + [str(c) for c in command]


def realtime():
    """What starts a program that runs before all ordinary ones."""
    chrt = ["chrt", "-f", "1"]
    if subprocess.run([*chrt, "true"], capture_output=True).returncode:
        raise Missing("real-time scheduling is not allowed here (root, or CAP_SYS_NICE)")
    return chrt


CLOCK = """
import select, sys, time
late = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    due = time.monotonic() + 0.001
    time.sleep(0.001)
    late = max(late, time.monotonic() - due)
print(late)
"""


class Clock:
    """A real-time program on each CPU that sleeps for 1 ms again and again; `late_us` is by how much one woke up late."""

    def __enter__(self):
        self.programs = [subprocess.Popen([*realtime(), *pinned(cpu, [sys.executable, "-c", CLOCK])], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, text=True) for cpu in {server_cpu(), client_cpu()}]
        return self

    def __exit__(self, *_):
        self.late_us = max(1e6 * float(p.communicate()[0] or 0) for p in self.programs)


def output(command, with_errors=False, **more):
    """What a command printed; a failure says the command and its last words."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}): {(done.stderr or done.stdout)[-800:]}")
    return done.stdout + done.stderr if with_errors else done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def family(pid):
    """The process and its children (nginx works in one)."""
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        pids += [int(p) for p in (task / "children").read_text().split()]
    return pids


def cpu_seconds(pid):
    total = 0
    for p in family(pid):
        fields = Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def idle_seconds():
    """Of all CPUs, since they run: without work, or with nothing but waits for a disk."""
    fields = Path("/proc/stat").read_text().split(None, 6)
    return (int(fields[4]) + int(fields[5])) / TICKS


def resident_mb(pid):
    return sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in family(pid)) * PAGE / 1e6


def switches(pid):
    """Context switches of each thread that lives now, by thread id."""
    counts = {}
    for p in family(pid):
        for task in Path(f"/proc/{p}/task").iterdir():
            try:
                lines = (task / "status").read_text().splitlines()
            except OSError:  # it has just ended
                continue
            counts[task.name] = sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return counts


def switches_since(before, pid):
    return {task: n - before.get(task, 0) for task, n in switches(pid).items()}


def describe():
    """What a reader needs to know about the machine of a run."""
    model = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return {"cpu": model[0] if model else platform.machine(), "cpus": len(os.sched_getaffinity(0)),
            "kernel": platform.release(), "load_before": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%d", time.gmtime())}

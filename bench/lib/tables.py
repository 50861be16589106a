"""Tables through a model: `millrace batch run` beside a script of pyarrow and aiohttp, with a Millrace or a Triton as the
host; the model in the worker's own process beside other ways to do that; and Parquet written. Host and worker share all
CPUs. The worker's CPU and memory are those of its process, and of those that it started, at its end."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

from . import machine
from .balance import Hosts
from .servers import MILLRACE

FILES = 8
SCRIPT = machine.ROOT / "bench/table_script.py"
LOCAL = machine.ROOT / "bench/table_local.py"
WRITER = machine.ROOT / "build/release/bench/bench_table_write"


def need(*packages):
    """Missing, unless these packages of Python are here."""
    for package in packages:
        if not importlib.util.find_spec(package):
            raise machine.Missing(f"{package} is not installed (tools/setup --{'spark' if package == 'pyspark' else 'bench'})")


def numbers(folder, rows):
    """`rows` rows of a key, 64 floats and a text of 40 bytes in 8 Parquet files, half of them zstd and half snappy."""
    path = Path(folder, f"table of {rows}")
    if path.exists():
        return path
    import pyarrow as pa
    import pyarrow.parquet as pq
    rng = numpy.random.default_rng(5)
    making = path.with_suffix(".part")
    making.mkdir(exist_ok=True)
    for i, key in enumerate(numpy.array_split(numpy.arange(rows), FILES)):
        x = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(len(key) * 64, numpy.float32)), 64)
        text = pa.array([f"{k:040d}" for k in key])
        pq.write_table(pa.table({"id": key, "x": x, "text": text}), making / f"{i}.parquet", row_group_size=65536,
                       compression="zstd" if i % 2 else "snappy", use_dictionary=False)
    return making.rename(path)


def texts(folder, rows):
    """`rows` JSON lines with texts of 20 to 2,000 bytes."""
    path = Path(folder, f"texts of {rows}")
    if not path.exists():
        rng = numpy.random.default_rng(6)
        path.mkdir()
        words = "the quick brown fox jumps over the lazy dog and says \"hello\"; " * 40
        with open(path / "a.jsonl", "w") as f:
            for k, n in enumerate(rng.integers(20, 2000, rows)):
                f.write(json.dumps({"id": k, "text": words[k % 60:k % 60 + int(n)]}) + "\n")
    return path


def peak_and_cpu(pid):
    """MB and seconds of a process and those that it started, each at its own peak."""
    peak = cpu = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1]) * 1024 / 1e6
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        cpu = (int(fields[11]) + int(fields[12])) / machine.TICKS
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                more = peak_and_cpu(int(child))
                peak, cpu = peak + more[0], cpu + more[1]
    except OSError:
        pass  # it is ending
    return peak, cpu


def busy(samples):
    """Per cent of the time of all CPUs in which these worked, from the host's first work to its last.
    Samples: (time, CPU of the host, idle time of all CPUs)."""
    first = max(s for s in samples if s[1] == samples[0][1])
    last = min(s for s in samples if s[1] == samples[-1][1])
    seconds, _, idle = (b - a for a, b in zip(first, last))
    return 100 * (1 - idle / (seconds * os.cpu_count())) if seconds > 0 else 0


def used(command, running, rows):
    """Runs a worker to its end. `running`: the host, or None."""
    def host_seconds():
        return machine.cpu_seconds(running.pid) if running else 0
    host, begin = host_seconds(), time.perf_counter()
    peak, cpu, pid, samples = 0, 0, 0, []
    with tempfile.TemporaryFile() as said:
        worker = subprocess.Popen([str(c) for c in command], stdout=said, stderr=said)
        while not pid:  # rusage would count what this process had in memory when the worker was forked
            peak, cpu = map(max, zip((peak, cpu), peak_and_cpu(worker.pid)))
            if running:
                samples.append((time.perf_counter(), host_seconds(), machine.idle_seconds()))
            time.sleep(0.02)
            pid, status, usage = os.wait4(worker.pid, os.WNOHANG)
        seconds = time.perf_counter() - begin
        worker.returncode = os.waitstatus_to_exitcode(status)
        if worker.returncode:
            said.seek(0)
            raise RuntimeError(f"{command[0]} failed ({worker.returncode}): {said.read().decode()[-800:]}")
    # Those that it did not wait for are not in its usage.
    worker, host = max(cpu, usage.ru_utime + usage.ru_stime), host_seconds() - host
    figures = {"rows": rows / seconds, "worker cpu": 1e6 * worker, "peak rss": peak}
    if running:
        figures |= {"host cpu": 1e6 * host, "busy": busy(samples)}
    return figures


def counted(rows, files):
    import pyarrow.parquet as pq
    found = sum(pq.read_metadata(f).num_rows for f in files)
    if found != rows:
        raise RuntimeError(f"{found} rows of {rows} were written")


def in_process(who, model, rows, call_rows):
    """A contender: the whole table once through a model in the worker's own process, start and load included."""
    def measure(bench):
        need("pyarrow", *{"script": ["onnxruntime"], "duckdb": ["onnxruntime", "duckdb"],
                          "spark": ["onnxruntime", "pyspark"]}.get(who, []))
        table, out = numbers(bench.folder, rows), Path(bench.folder, "job")
        repository = Path(bench.repository("tables"))
        subprocess.run(["rm", "-rf", out], check=True)
        if who == "millrace":
            figures = used([MILLRACE, "batch", "run", "-i", table, "-m", model, "--local", repository, "-o", out, "--keep", "id",
                            "--map", "INPUT0=x", "--batch-rows", call_rows], None, rows)
            written_files = (out / "parts").iterdir()
        else:
            figures = used([sys.executable, LOCAL, who, table, out, repository / model / "1/model.onnx", call_rows], None, rows)
            written_files = out.glob("*.parquet") if out.is_dir() else [out]
        counted(rows, written_files)
        subprocess.run(["rm", "-rf", out], check=True)
        return figures
    return measure


def lean(who, rows, call_rows):
    """A contender: the whole table once to a host that takes 64 floats a row and answers with 10 zeros at once."""
    def measure(bench):
        need("pyarrow", *(["aiohttp"] if who == "script" else []))
        table, out = numbers(bench.folder, rows), Path(bench.folder, "job")
        subprocess.run(["rm", "-rf", out], check=True)
        hosts = Hosts([{"slots": 256, "service_us": 0, "takes": 64, "gives": 10}])
        try:
            if who == "millrace":
                figures = used([MILLRACE, "batch", "run", "-i", table, "-m", "m", "--hosts", hosts.addresses[0], "-o", out, "--keep",
                                "id", "--batch-rows", call_rows], hosts, rows)
                counted(rows, (out / "parts").iterdir())
            else:
                figures = used([sys.executable, SCRIPT, table, out, hosts.addresses[0], "m", call_rows], hosts, rows)
                counted(rows, [out])
        finally:
            hosts.end()
        subprocess.run(["rm", "-rf", out], check=True)
        return figures
    return measure


def worked(who, model, rows, call_rows, is_text=False, host="millrace"):
    """A contender: the whole table once, start of the worker included."""
    def measure(bench):
        need("pyarrow", *(["aiohttp"] if who == "script" else []))
        table = (texts if is_text else numbers)(bench.folder, rows)
        out = Path(bench.folder, "job")
        running = bench.server(host, "tables", cpus=2)
        address = f"127.0.0.1:{running.http}"
        subprocess.run(["rm", "-rf", out], check=True)
        if who == "millrace":
            figures = used([MILLRACE, "batch", "run", "-i", table, "-m", model, "--hosts", address, "-o", out, "--keep", "id",
                            "--map", "INPUT0=" + ("text" if is_text else "x"), "--batch-rows", call_rows], running, rows)
            counted(rows, (out / "parts").iterdir())
        else:
            figures = used([sys.executable, SCRIPT, table, out, address, model, call_rows, *(["text"] if is_text else [])],
                           running, rows)
            counted(rows, [out])
        subprocess.run(["rm", "-rf", out], check=True)
        return figures
    return measure


FASTEST = """
import os, sys, time, numpy
out, width, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def fastest(write):
    seconds = []
    for i in range(5):
        if os.path.exists(out):
            os.unlink(out)
        begin = time.perf_counter()
        write()
        seconds.append(time.perf_counter() - begin)
    print(min(seconds))
"""
PYARROW = FASTEST + """
import pyarrow as pa, pyarrow.parquet as pq
pa.set_cpu_count(1); pa.set_io_thread_count(1)
x = numpy.random.default_rng(1).random(8192 * width, numpy.float32)
batch = pa.record_batch({"id": numpy.arange(8192), "y": pa.FixedSizeListArray.from_arrays(pa.array(x), width)})
table = pa.Table.from_batches([batch] * (rows // 8192))
fastest(lambda: pq.write_table(table, out, compression="none", use_dictionary=False))
"""
DUCKDB = FASTEST + """
import duckdb
c = duckdb.connect(config={"threads": 1})
c.execute("set enable_progress_bar = false")
values = ", ".join(["random()"] * width)
c.execute(f"create table t as select i as id, cast([{values}] as float[{width}]) as y from range({rows}) r(i)")
fastest(lambda: c.execute(f"copy t to '{out}' (format parquet, compression uncompressed)"))
"""


def written(who, width, rows):
    """A contender: a file of a key and `width` floats a row, from memory to the page cache, on one thread, the fastest of
    five: the page cache of a virtual machine is slow where its memory is used for the first time."""
    def measure(bench):
        need("pyarrow", *([] if who == "millrace" else [who.lower()]))  # pyarrow also counts what was written
        out = Path(bench.folder, "written.parquet")
        if who == "millrace":
            if not WRITER.exists():
                raise machine.Missing(f"{WRITER} is not built (cmake --build build/release --target bench_table_write)")
            command = [WRITER]
        else:
            command = [sys.executable, "-c", PYARROW if who == "pyarrow" else DUCKDB]
        count = rows // 8192 * 8192
        seconds = float(machine.output(machine.pinned(machine.server_cpu(), [*command, out, width, count])))
        counted(count, [out])
        out.unlink()
        return {"rows": count / seconds}
    return measure

"""Rows of a Python program through a model, by `millrace map`.

    predict = millrace.map_arrow("digits", hosts=["10.0.0.1:8000", "10.0.0.2:8000"], keep=["id"])
    for batch in predict(batches):  # pyarrow.RecordBatch to pyarrow.RecordBatch
        ...
    frame.mapInArrow(predict, "id long, y array<float>")  # in Spark

map_arrow and map_rows return functions from an iterator to an iterator. Results come in the order of the rows, while
the input is still being read. The filter is a process of its own for each iterator: it ends with the iterator, however
that ends, and what went wrong in it is raised here, with its last lines.
"""
import collections
import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
import threading

__all__ = ["MillraceError", "map_arrow", "map_rows"]

LINES_KEPT = 20


def __getattr__(name):
    """Client, AsyncClient and others of the client library, where the package millrace_client is installed as well."""
    if name in ("Answer", "AsyncClient", "AsyncStream", "Client", "InferenceError", "Memory", "Result", "Stream"):
        import millrace_client
        return getattr(millrace_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class MillraceError(RuntimeError):
    """The filter has failed. `status` is its exit status, `lines` are the last lines that it said."""

    def __init__(self, status, lines):
        super().__init__(f"millrace map ended with status {status}:\n" + "\n".join(lines))
        self.status = status
        self.lines = lines

    def __reduce__(self):
        return type(self), (self.status, self.lines)


def command_of(model, hosts, keep, options):
    """hosts, keep and lists in options are joined by commas; batch_rows=64 is --batch-rows 64, unordered=True --unordered,
    param={"max_tokens": 8} --param max_tokens=8."""
    words = [os.environ.get("MILLRACE", "millrace"), "map", "--model", model]
    for name, value in {"hosts": hosts, "keep": keep, **options}.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif isinstance(value, dict):  # map={"x": "column"}
            for key, text in value.items():
                words += [option, f"{key}={text if isinstance(text, str) else json.dumps(text)}"]
        elif value is not None and value is not False and value not in ((), []):
            words += [option, value if isinstance(value, str) else ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)]
    return words


def is_unread(pipe):
    """Nobody has its other end any more."""
    if pipe.closed:
        return True
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def run(command, write, read):
    """What `read` finds in the standard output of a process, to whose standard input `write` writes from another thread."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines, failed = collections.deque(maxlen=LINES_KEPT), []

    def feed():
        try:
            write(process.stdin)
            process.stdin.close()
        except BaseException as error:
            if isinstance(error, BrokenPipeError) and is_unread(process.stdin):
                return  # the process has ended, and its status says why
            failed.append(error)  # the input has failed; its end must not look like one
            process.kill()

    def listen():
        for line in process.stderr:
            text = line.decode(errors="replace").rstrip("\n")
            lines.append(text)
            print(text, file=sys.stderr)

    threads = [threading.Thread(target=work, daemon=True) for work in (feed, listen)]
    for thread in threads:
        thread.start()

    def check():
        status = process.wait()
        threads[1].join(1)
        if failed:
            raise failed[0]
        if status:
            raise MillraceError(status, list(lines))

    try:
        try:
            yield from read(process.stdout)
        except (OSError, ValueError):  # what a broken stream is to its reader
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
                check()
            raise
        check()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for thread in threads:
            thread.join(1)


def spark_type(kind):
    """The nearest type that Spark has."""
    import pyarrow as pa
    types = pa.types
    if types.is_fixed_size_list(kind) or types.is_list(kind):
        return pa.list_(spark_type(kind.value_type))
    for is_it, becomes in ((types.is_uint8, pa.int16()), (types.is_uint16, pa.int32()), (types.is_uint32, pa.int64()),
                           (types.is_uint64, pa.decimal128(20, 0)), (types.is_float16, pa.float32())):
        if is_it(kind):
            return becomes
    return kind


def map_arrow(model, hosts=(), keep=(), *, spark_types=True, **options):
    """A function from an iterator of pyarrow.RecordBatch to an iterator of them, as mapInArrow of Spark takes one.

    model, hosts, keep and options are those of `millrace map`: batch_rows=1024, local="/models", dead="null",
    map={"x": "pixels"}. Types that Spark does not have (lists of one length, unsigned and half-precision numbers) become
    its nearest ones, unless spark_types is False. Needs pyarrow 16 or later.
    """
    command = command_of(model, hosts, keep, {**options, "input_format": "arrow", "output_format": "arrow"})

    def predict(batches):
        import pyarrow as pa
        batches = iter(batches)
        first = next(batches, None)
        if first is None:
            return

        def write(pipe):
            with pa.ipc.new_stream(pipe, first.schema) as writer:
                for batch in itertools.chain([first], batches):
                    writer.write_batch(batch)

        def read(pipe):
            with pa.ipc.open_stream(pipe) as reader:
                schema = pa.schema([(f.name, spark_type(f.type)) for f in reader.schema])
                for batch in reader:
                    yield batch.cast(schema) if spark_types and batch.schema != schema else batch

        yield from run(command, write, read)

    return predict


def map_rows(model, hosts=(), keep=(), **options):
    """A function from an iterator of dictionaries to an iterator of them, as mapPartitions of Spark's RDDs takes one.

    Arguments as for map_arrow. Rows travel as JSON: slower, but without a schema and without pyarrow.
    """
    command = command_of(model, hosts, keep, options)

    def predict(rows):
        def write(pipe):
            for row in rows:
                pipe.write(json.dumps(row).encode() + b"\n")

        def read(pipe):
            return map(json.loads, pipe)

        yield from run(command, write, read)

    return predict

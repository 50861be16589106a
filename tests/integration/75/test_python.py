"""The Python package over the client library: installed by pip as a user does it, without a network."""
import json
import subprocess
import sys

import pytest

from lib import sdk, wait
from lib.repo import TOP
from lib.services import other

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder / "packages"),
                    str(TOP / "python")], check=True, capture_output=True)
    return folder / "packages"


def python(site, *words, status=0):
    env = sdk.python_environment() | {"PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, *map(str, words)], env=env, capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_example(server, site):
    assert (site / "millrace_client" / "py.typed").exists()
    told = python(site, sdk.EXAMPLES / "infer.py", "simple", f"http://{server.url()}")
    assert told == "0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30\n0 1 2 3 4 5 6 7 8 9\n"


PROGRAM = """
import asyncio, sys, numpy, millrace
http, grpc = sys.argv[1:]

def same(client, model, array):
    result = client.infer(model, {"INPUT0": array})
    got = result["OUTPUT0"]
    assert got.shape == array.shape and got.dtype == array.dtype and (got == array).all(), (model, got)
    assert not got.flags.writeable or got.dtype == object
    del result
    assert (got == array).all()  # the array keeps the answer

for url in (http, grpc):
    with millrace.Client(url) as client:
        for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"):
            same(client, "flat_" + name.replace("float", "fp"), (numpy.arange(24) % 2).astype(name))
        same(client, "flat_fp32", numpy.random.default_rng(1).random(300000, numpy.float32))  # sent from where it is
        unaligned = numpy.frombuffer(b"\\0" * 10 + numpy.arange(6, dtype=numpy.float32).tobytes(), numpy.float32, offset=10)
        assert not unaligned.flags.aligned
        same(client, "flat_fp32", unaligned)
        same(client, "grid", numpy.arange(24, dtype=numpy.float32).reshape(12, 2).T)  # not contiguous
        texts = numpy.array(["a", "", "\\u00fc"], object)
        assert [t.decode() for t in client.infer("flat_bytes", {"INPUT0": texts})["OUTPUT0"]] == ["a", "", "\\u00fc"]
        nuls = [b"a\\0", "\\u00fc\\0\\0", b"\\0"]
        for kind in (bytes, str):
            given = [t for t in nuls if isinstance(t, kind)]
            assert [t.decode() for t in client.infer("flat_bytes", {"INPUT0": given})["OUTPUT0"]] == [t if kind is str else t.decode() for t in given]
        try:
            client.infer("nothing", {"INPUT0": numpy.zeros(1, numpy.int32)})
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert error.reason == "not found" and "nothing" in str(error)
        try:
            client.infer("flat_fp32", {"INPUT0": numpy.zeros(1, complex)})
            raise SystemExit("no error")
        except TypeError as error:
            assert "complex" in str(error)
print("good")
"""


def test_types_both_ways(server, site):
    assert python(site, "-c", PROGRAM, f"http://{server.url()}", f"grpc://{server.url('grpc')}") == "good\n"


CLOSED = """
import asyncio, sys, numpy, millrace
x = {"INPUT0": numpy.zeros(1, numpy.float32)}

def refused(call):
    try:
        call()
        raise SystemExit("no error")
    except millrace.InferenceError as error:
        assert error.reason == "closed" and "is closed" in str(error), (error.reason, error)

client = millrace.Client(sys.argv[1])
stream = client.stream("flat_fp32")
stream.close()
client.close()
for call in (lambda: client.infer("flat_fp32", x), client.is_live, lambda: client.stream("flat_fp32"), lambda: client.shadow_stats("e"),
             lambda: stream.send(x), stream.done, stream.cancel, lambda: stream.host, lambda: next(iter(stream))):
    refused(call)

async def main():
    client = millrace.AsyncClient(sys.argv[1])
    stream = client.stream("flat_fp32")
    task = asyncio.ensure_future(stream.__anext__())
    await asyncio.sleep(0)
    stream.close()
    client.close()
    for call in (task, client.infer("flat_fp32", x), client.is_live(), stream.send(x)):
        try:
            await call
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert "is closed" in str(error), error

asyncio.run(main())
print("good")
"""


def test_clients_and_streams_that_were_closed(server, site):
    assert python(site, "-c", CLOSED, f"grpc://{server.url('grpc')}") == "good\n"


def test_options_that_do_not_exist(site):
    program = 'import millrace\ntry:\n    millrace.Client("http://127.0.0.1:1", attemps=1)\nexcept TypeError as error:\n    print(error)'
    assert python(site, "-c", program) == "no such option: attemps\n"


NAMES = """
import sys, numpy, millrace
x = {"INPUT0": numpy.zeros(1, numpy.float32)}

def refused(call):
    try:
        call()
        raise SystemExit("no error")
    except (millrace.InferenceError, TypeError) as error:
        return str(error)

rest, grpc = (millrace.Client(url, timeout=300) for url in sys.argv[1:])
for name in ("flat_fp32/versions/1", "../models/flat_fp32", "flat_fp32?x", "flat_fp32#x", "flat fp32"):
    assert repr(name) in refused(lambda: rest.infer(name, x)) and name in refused(lambda: rest.model_metadata(name))
    assert "unknown model" in refused(lambda: grpc.infer(name, x))
assert "'1/infer?'" in refused(lambda: rest.infer("flat_fp32", x, version="1/infer?"))
print("good")
"""


def test_names_that_are_no_names(server, site):
    assert python(site, "-c", NAMES, f"http://{server.url()}", f"grpc://{server.url('grpc')}") == "good\n"


ARGUMENTS = """
import asyncio, sys, millrace, millrace_client, numpy
x = {"INPUT0": numpy.zeros(1, numpy.float32)}

def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
        return
    raise SystemExit(f"no error: {text}")

client = millrace.Client(sys.argv[1], timeout=300)
for kind, text, arguments in (
        (ValueError, "parameter 'a' is 1180591620717411303424", {"parameters": {"a": 2**70}}), (ValueError, "sequence is -1", {"sequence": -1}), (ValueError, "priority is -1", {"priority": -1}),
        (ValueError, f"sequence is {2**64}", {"sequence": 2**64}), (ValueError, "timeout is -1", {"timeout": -1}),
        (ValueError, "timeout is nan", {"timeout": float("nan")}), (ValueError, "has a NUL", {"parameters": {"a": "x\\0y"}}),
        (ValueError, "has a NUL", {"id": "x\\0y"}), (ValueError, "has a NUL", {"headers": {"a": "x\\0y"}}),
        (TypeError, "parameter 'a': possible are bool, int, float and str, not NoneType", {"parameters": {"a": None}}),
        (TypeError, "outputs is the text 'OUTPUT0'", {"outputs": "OUTPUT0"})):
    refused(kind, text, lambda: client.infer("flat_fp32", x, **arguments))
refused(ValueError, "has a NUL", lambda: client.infer("flat_fp32\\0x", x))
refused(ValueError, "max_unread_bytes is -1", lambda: client.stream("flat_fp32", max_unread_bytes=-1))
refused(ValueError, f"bytes is {2**64 + 4096}", lambda: millrace.Memory(2**64 + 4096))
refused(millrace.InferenceError, "/dev/zero: more than", lambda: millrace.Client(config_file="/dev/zero"))
for kind, text, options in ((ValueError, f"attempts is {2**40}", {"attempts": 2**40}), (millrace.InferenceError, "strategy '5'", {"strategy": 5}),
                            (TypeError, "no such option: urls", {"urls": 5}), (TypeError, "integer", {"attempts": "3"})):
    refused(kind, text, lambda: millrace.Client(sys.argv[1], **options))
numbers = {"a": numpy.int64(5), "b": numpy.bool_(True), "c": numpy.float32(1.5), "d": numpy.str_("x")}
client.infer("flat_fp32", x, parameters=numbers)

async def unread():  # an answer that Python does not take ends its call
    millrace_client._told = lambda *_: 1 / 0
    async with millrace.AsyncClient(sys.argv[1], timeout=300) as client:
        await client.is_live()

try:
    asyncio.run(unread())
    raise SystemExit("no error")
except ZeroDivisionError:
    print("good")
"""


def test_arguments_that_c_cannot_hold(server, site):
    assert python(site, "-c", ARGUMENTS, f"http://{server.url()}") == "good\n"


ASKED = """
import sys, numpy, millrace
with millrace.Client(sys.argv[1], timeout=300, attempt_timeout_ms=300000) as client:
    for model, more in (("all", {"priority": 4}), ("busy", {"fail_fast": True, "version": "1"}), ("busy", {"version": "2"})):
        try:
            client.infer(model, {"INPUT0": numpy.zeros(1, numpy.int32)}, **more)
        except millrace.InferenceError as error:
            print(error.reason)
"""


class Handler(other.Handler):
    def do_POST(self):
        body, length = self.body(), self.headers.get("Inference-Header-Content-Length")
        self.server.users.append(self.headers.get_all("X-User"))
        self.server.asked.append((self.path, json.loads(body[:int(length)] if length else body)))
        if "busy" in self.path:
            self.say(503, {"error": "busy"})
        else:
            self.say(200, {"model_name": "all", "model_version": "3", "outputs": []})


def test_priority_and_no_wait_for_a_busy_host(site):
    with other.serving(Handler) as server:
        server.asked, server.users = [], []
        assert python(site, "-c", ASKED, f"http://127.0.0.1:{server.server_port}") == "unavailable\n" * 2
    (_, first), *busy = server.asked
    assert first["parameters"]["priority"] == 4
    assert [path.split("/")[5] for path, _ in busy] == ["1", "2", "2", "2"]


NAMED = """
import sys, numpy, millrace
for own in ({}, {"X-User": "all"}):
    with millrace.Client(sys.argv[1], headers=own, timeout=300, attempt_timeout_ms=300000) as client:
        for headers in ({}, {"X-User": "anna"}, {" X-User ": "anna"}):
            client.infer("all", {"INPUT0": numpy.zeros(1, numpy.int32)}, headers=headers)
"""


def test_headers(site):
    with other.serving(Handler) as server:
        server.asked, server.users = [], []
        python(site, "-c", NAMED, f"http://127.0.0.1:{server.server_port}")
        assert server.users == [None, ["anna"], ["anna"], ["all"], ["anna"], ["anna"]]


FAULTS = """
import asyncio, socket, sys, threading, numpy, millrace
url, kind = sys.argv[1:]
inputs = {"INPUT0": numpy.arange(4, dtype=numpy.float32)}

class Host:
    \"\"\"A host that answers each request with these bytes; b"": it closes; None: it never answers.\"\"\"

    def __init__(self, answer):
        self.answer, self.asked = answer, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        self.open = []
        while True:
            connection, _ = self.socket.accept()
            self.open.append(connection)
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        while connection.recv(1 << 20):
            self.asked += 1
            if self.answer:
                connection.sendall(self.answer)
            elif self.answer == b"":
                connection.close()
                return

BUSY = b"HTTP/1.1 503 Service Unavailable\\r\\ncontent-length: 16\\r\\n\\r\\n{\\"error\\":\\"busy\\"}"
BROKEN = b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\n[]"
bad = Host({"busy": BUSY, "closes": b"", "hangs": None, "broken": BROKEN}[kind])

def good(result):
    assert (result["OUTPUT0"] == inputs["INPUT0"]).all() and result.host == url
    return result

if kind == "hangs":
    # A second copy after 20 ms answers in place of the host that hangs; the call that hangs is given up.
    with millrace.Client(bad.url, url, hedge_after_ms=20, strategy="round_robin") as client:
        assert max(good(client.infer("flat_fp32", inputs)).attempts for _ in range(2)) == 2
    for own, timeout in ((0.2, None), (0, None), (300, 0.1), (300, 1e-9), (300, 0)):
        with millrace.Client(bad.url, timeout=own) as client:
            try:
                client.infer("flat_fp32", inputs, timeout=timeout)
                raise SystemExit("no error")
            except millrace.InferenceError as error:
                assert error.reason == "deadline exceeded", error
    async def cancelled():
        async with millrace.AsyncClient(bad.url) as client:
            before = bad.asked
            task = asyncio.ensure_future(client.infer("flat_fp32", inputs))
            while bad.asked == before:
                await asyncio.sleep(0.001)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return "cancelled"
    assert asyncio.run(cancelled()) == "cancelled"
elif kind == "broken":
    with millrace.Client(bad.url) as client:
        try:
            client.infer("flat_fp32", inputs)
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert bad.url in str(error) and error.reason == "internal error", error
else:
    with millrace.Client(bad.url, url, strategy="round_robin") as client:
        results = [good(client.infer("flat_fp32", inputs)) for _ in range(20)]
        assert bad.asked >= 1 and max(r.attempts for r in results) == 2, (bad.asked, [r.attempts for r in results])
    with millrace.Client(bad.url, attempts=1) as client:
        try:
            client.infer("flat_fp32", inputs)
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert error.reason == "unavailable" and ("busy" in str(error)) == (kind == "busy"), error
print("good")
"""


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["busy", "closes", "hangs", "broken"])
def test_hosts_that_fail(server, site, kind):
    assert python(site, "-c", FAULTS, f"http://{server.url()}", kind) == "good\n"

"""Compression of requests, seen by the bytes that a proxy counts on their way to the server."""
import pytest

from lib import sdk
from lib.sdk import run_python as run

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")

PROGRAM = """
class Proxy:
    def __init__(self, port):
        self.port, self.bytes = port, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()

    def url(self, kind):
        return f"{kind}://127.0.0.1:{self.socket.getsockname()[1]}"

    def serve(self):
        while True:
            near, _ = self.socket.accept()
            far = socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.pass_on, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(far, near, False), daemon=True).start()

    def pass_on(self, near, far, counts):
        try:
            while data := near.recv(1 << 16):
                self.bytes += len(data) if counts else 0
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the client has closed

kind, port = words
proxy = Proxy(int(port))
zeros = numpy.zeros(1 << 18, numpy.float32)
noise = numpy.frombuffer(numpy.random.default_rng(1).bytes(1 << 20), numpy.uint8)

def cost(client, array):
    before = proxy.bytes
    got = client.infer("flat_uint8" if array.dtype == numpy.uint8 else "flat_fp32", {"INPUT0": array}, timeout=300)["OUTPUT0"]
    assert (got == array).all()
    return proxy.bytes - before

for compression, packs in ((None, False), ("none", False), ("gzip", True), ("deflate", True), ("zlib", True)):
    with millrace.Client(proxy.url(kind), compression=compression, **PATIENT) as client:
        assert (cost(client, zeros) < zeros.nbytes // 20) == packs
        assert cost(client, zeros[:4096]) > 16384  # too small
        assert cost(client, noise) > noise.nbytes  # would not become smaller
        both = numpy.concatenate((noise[:1 << 19], numpy.zeros(1 << 19, numpy.uint8)))
        assert cost(client, both) > both.nbytes // 2
if kind == "http":
    with millrace.Client(proxy.url(kind), compression="gzip", protocol="json", **PATIENT) as client:
        assert cost(client, zeros) < zeros.nbytes // 20
paddle = 'predictors { name: "flat_fp32" variants { tag: "v" naming_conf { cluster: "list://%s" } rpc_parameter { protocol: "%s" compress_type: %d } } }'
protocol = "h2:grpc" if kind == "grpc" else "http"
for number in (2, 3):
    with millrace.Client(config=paddle % (proxy.url("http").partition("://")[2], protocol, number)) as client:
        assert cost(client, zeros) < zeros.nbytes // 20
for number, name in ((1, "snappy"), (4, "lz4")):
    try:
        millrace.Client(config=paddle % ("127.0.0.1:1", protocol, number))
        raise SystemExit("no error")
    except millrace.InferenceError as error:
        assert error.reason == "not supported" and name in str(error), error
"""


@pytest.mark.few
@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_requests_are_compressed_where_it_pays(server, kind):
    run(PROGRAM, kind, getattr(server, kind))

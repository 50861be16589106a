"""Ctrl-C in a Python program whose call does not end: the call is cancelled, on the server as well, and the program goes on."""
import signal

import pytest

from lib import repo, sdk, wait
from lib.grpcraw import Grpc
from lib.metrics import value

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")

BEGIN = """
import weakref
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the parent has done about it

def interrupted(call):
    try:
        call()
    except KeyboardInterrupt:
        return
    raise SystemExit("no interrupt")

"""
CALL = BEGIN + """
with millrace.Client(words[0], **PATIENT) as client:
    infer(client)
    x = numpy.arange(1 << 20, dtype=numpy.int32)
    there = weakref.ref(x)
    interrupted(lambda: client.infer("held", {"INPUT0": x}))
    del x
    assert there() is None, "the call keeps its input"
    infer(client)
"""
OTHERS = BEGIN + """
def host():
    connection = listener.accept()
    os.kill(os.getpid(), signal.SIGINT)
    return connection

for kind, call in (("http", lambda c: c.is_ready()), ("grpc", lambda c: c.model_metadata("m")), ("grpc", lambda c: next(c.stream("m")))):
    with socket.create_server(("127.0.0.1", 0)) as listener, millrace.Client(f"{kind}://127.0.0.1:{listener.getsockname()[1]}", **PATIENT) as client:
        thread = threading.Thread(target=host)
        thread.start()
        interrupted(lambda: call(client))
        thread.join()
"""


def _wait_pending(server, count):
    wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="held"), count, "requests in the queue")


@pytest.mark.few
@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_call_that_waits(models, start, hold, kind):
    repo.add(models, "m")
    repo.add(models, "held", backend="fault")
    server = start(models)
    client = Grpc(server.url("grpc"))
    running, = hold.requests(server, client, "held", 1)
    hold.wait_held()
    program = sdk.start_python(CALL, f"{kind}://{server.url(kind)}")
    _wait_pending(server, 1)
    program.send_signal(signal.SIGINT)
    sdk.ends_well(program)
    _wait_pending(server, 0)
    assert not running.done()
    hold.end()
    running.result()
    client.close()


def test_questions_and_streams():
    """Beside a host that takes connections and says nothing."""
    sdk.run_python(OTHERS)

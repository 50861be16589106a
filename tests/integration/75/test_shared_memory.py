"""The client library and memory that it shares with a server on the same host."""
import pytest

from lib import repo, sdk, wait
from lib.sdk import run_python as run

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")

SUM = "0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30\n"
BYTES = """
import urllib.request

def received(address):
    '''Bytes that the server has received.'''
    text = urllib.request.urlopen(f"http://{address}/metrics", timeout=300).read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("millrace_received_bytes_total"))
"""


@pytest.fixture
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("s") / "http"


@pytest.fixture
def shared(models, start, path):
    repo.add(models, "m")
    repo.stock(models, "simple")
    return start(models, f"--http-address=unix:{path}", "--http-shared-memory=true", "--metrics-address=127.0.0.1")


@pytest.mark.few
@pytest.mark.parametrize("source", ["shared.c", "shared.cpp"])
def test_the_example(shared, start, models, path, tmp_path, source):
    program = sdk.compile_c(sdk.EXAMPLES / source, sdk.install(tmp_path / "prefix"), tmp_path / "shared")
    assert sdk.run(program, "simple", f"http://unix:{path}") == f"OUTPUT0 in its place: {SUM}"
    other = start(models)
    assert sdk.run(program, "simple", f"http://{other.url()}") == f"OUTPUT0: {SUM}"
    start(models, f"--http-address=unix:{path}-2")
    assert "--http-shared-memory" in sdk.run(program, "simple", f"http://unix:{path}-2", status=1)


def test_arrays(shared, path):
    """Nothing of the tensors goes through the socket, and the result's arrays are those that were given."""
    run(BYTES + """
with millrace.Client(words[0], **PATIENT) as client:
    memory = millrace.Memory(16 << 20)
    x, y, small = memory.array(1 << 20, "int32"), memory.array((1024, 1024), numpy.int32), memory.array(3, "int32")
    before = received(words[1])
    for turn in range(5):
        x[:] = numpy.arange(turn, len(x) + turn)
        result = client.infer("m", {"INPUT0": x}, outputs={"OUTPUT0": y}, memory=memory)
        got = result["OUTPUT0"]
        assert numpy.shares_memory(got, y) and (got == x).all() and (y.ravel() == x).all()
    assert received(words[1]) - before < 5000, "tensors were sent"
    x[:4] = X
    assert numpy.shares_memory(infer(client, memory=memory, outputs={"OUTPUT0": y})["OUTPUT0"], y)  # an input from elsewhere
    for places in ({"OUTPUT0": small}, {"OUTPUT0": None}, ["OUTPUT0"], []):  # too small, none
        got = client.infer("m", {"INPUT0": x[:4]}, outputs=places, memory=memory)["OUTPUT0"]
        assert (got == X).all() and not numpy.shares_memory(got, y)
    kept = client.infer("m", {"INPUT0": x[:4]}, outputs={"OUTPUT0": y}, memory=memory)["OUTPUT0"]
    del memory, x, y, small, result, got
    assert (kept == X).all()
    for elsewhere in ({"memory": millrace.Memory(64)}, {}):
        try:
            client.infer("m", {"INPUT0": X}, outputs={"OUTPUT0": numpy.zeros(4, "int32")}, **elsewhere)
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert error.reason == "invalid" or "memory" in str(error), error
    for size in (0, (1 << 30) + 1):
        try:
            millrace.Memory(size)
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert "1073741824" in str(error)

async def many():
    async with millrace.AsyncClient(words[0], **PATIENT) as client:
        memories = [millrace.Memory(8192) for _ in range(50)]
        async def one(i, memory):
            x, y = memory.array(16, "int32"), memory.array(16, "int32")
            for turn in range(20):
                x[:] = i * 100 + turn
                result = await client.infer("m", {"INPUT0": x}, outputs={"OUTPUT0": y}, memory=memory)
                assert (result["OUTPUT0"] == i * 100 + turn).all(), (i, turn, result["OUTPUT0"])
        await asyncio.gather(*(one(i, m) for i, m in enumerate(memories)))

asyncio.run(many())
""", f"http://unix:{path}", shared.url("metrics"))


def test_hosts_that_share_nothing(models, shared, start, path):
    other = start(models)
    run("""
for url in words:
    with millrace.Client(url, **PATIENT) as client:
        memory = millrace.Memory(4096)
        x, y = memory.array(4, "int32"), memory.array(4, "int32")
        x[:] = X
        result = client.infer("m", {"INPUT0": x}, outputs={"OUTPUT0": y}, memory=memory)
        assert (result["OUTPUT0"] == X).all() and not numpy.shares_memory(result["OUTPUT0"], y) and not memory.is_lost
""", f"http://{other.url()}", f"grpc://{other.url('grpc')}")


def test_a_call_that_is_given_up(models, start, hold, path):
    """Its server may still write to the place: the memory is not shared any more."""
    repo.add(models, "m")
    repo.add(models, "held", backend="fault", parameters=hold.parameters)
    start(models, f"--http-address=unix:{path}", "--http-shared-memory=true")
    run("""
with millrace.Client(words[0], **PATIENT) as client:
    memory = millrace.Memory(4096)
    x, y = memory.array(4, "int32"), memory.array(4, "int32")
    x[:] = X
    assert refused(client, "held", memory=memory, outputs={"OUTPUT0": y}, timeout=0.2).reason == "deadline exceeded"
    assert memory.is_lost
    result = client.infer("m", {"INPUT0": x}, outputs={"OUTPUT0": y}, memory=memory)
    assert (result["OUTPUT0"] == X).all() and not numpy.shares_memory(result["OUTPUT0"], y)
""", f"http://unix:{path}")


def test_a_server_that_dies(models, start, hold, tmp_path, path):
    """Another one gets the call, and puts the output into the answer."""
    repo.add(models, "m", backend="fault", parameters=hold.parameters)
    repo.add(tmp_path / "other", "m")
    killed, other = start(models, f"--http-address=unix:{path}", "--http-shared-memory=true"), start(tmp_path / "other")
    run("""
pid, held, killed, other = int(words[0]), *words[1:]

async def main():
    async with millrace.AsyncClient(killed, other, strategy="round_robin", **PATIENT) as client:
        memories = [millrace.Memory(4096) for _ in range(2)]
        places = [m.array(4, "int32") for m in memories]
        calls = [asyncio.ensure_future(client.infer("m", {"INPUT0": X}, memory=m, outputs={"OUTPUT0": p})) for m, p in zip(memories, places)]
        while not os.path.exists(held):
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        for result in await asyncio.gather(*calls):
            assert good(result).host == other
        assert not any(m.is_lost for m in memories)

asyncio.run(main())
""", killed.process.pid, hold.path.with_suffix(".held"), f"http://unix:{path}", f"http://{other.url()}")
    assert killed.process.wait(wait.PATIENCE) == -9
    killed.end_anyhow()

"""Shadows of the client's endpoints: copies of answered calls, whose answers are compared and dropped."""
import pytest

from lib import repo, sdk
from lib.sdk import run_python as run

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")

CONFIG = """
config = '''
client { remote: "%s" }
endpoint { name: "e" variant { tag: "v" model: "m" weight: 1 } shadow { %s } }
'''

def stats(client, **wanted):
    until(lambda: wanted.items() <= client.shadow_stats("e").items())
    return client.shadow_stats("e")
"""


@pytest.fixture
def served(models, start):
    repo.add(models, "m")
    repo.add(models, "other", inputs=[repo.tensor("INPUT0", "TYPE_FP32")], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32")])
    return start(models)


def test_copies_are_compared(served):
    run(CONFIG + """
for url in words:
    with millrace.Client(config=config % (url, 'model: "m" percent: 100 compare: "equal"'), **PATIENT) as client:
        for i in range(20):
            assert infer(client, "e", outputs=["OUTPUT0"], parameters={"a": 1, "b": "c"}).variant == "v"
        stats(client, requests=20, compared=20, different=0, failed=0, dropped=0)
        infer(client, "e", once=True)  # it may change something
        stats(client, requests=20)
    with millrace.Client(config=config % (url, 'model: "m" percent: 25'), **PATIENT) as client:
        for i in range(40):
            infer(client, "e")
        stats(client, requests=10, compared=0, failed=0)
    with millrace.Client(config=config % (url, 'model: "other" percent: 100 compare: "equal"'), **PATIENT) as client:
        infer(client, "e")  # which takes other types
        stats(client, requests=1, failed=1)
    with millrace.Client(config=config % (url, 'model: "nothing" percent: 100'), **PATIENT) as client:
        infer(client, "e")
        stats(client, failed=1)

async def main():
    async with millrace.AsyncClient(config=config % (words[0], 'model: "m" percent: 100 compare: "equal"'), **PATIENT) as client:
        big = [numpy.full(100_000, i, numpy.int32) for i in range(50)]
        await asyncio.gather(*(client.infer("e", {"INPUT0": x}) for x in big))
        for x in big:
            x[:] = -1  # the copies have their own
        until(lambda: client.shadow_stats("e")["compared"] + client.shadow_stats("e")["dropped"] == 50)
        assert client.shadow_stats("e")["different"] == client.shadow_stats("e")["failed"] == 0
asyncio.run(main())

for text, word in (('model: "m" percent: 101', "percent"), ('model: "m" percent: 1 remote: "ftp://x"', "ftp")):
    try:
        millrace.Client(config=config % (words[0], text))
        raise SystemExit("no error")
    except millrace.InferenceError as error:
        assert "shadow" in str(error) and word in str(error), error
with millrace.Client(config=config % (words[0], 'model: "m" percent: 1')) as client:
    try:
        client.shadow_stats("f")
        raise SystemExit("no error")
    except millrace.InferenceError as error:
        assert error.reason == "not found"
""", f"http://{served.url()}", f"grpc://{served.url('grpc')}")


def test_answers_that_differ(models, start, tmp_path):
    """A shadow on hosts of its own, which gives back what the other one adds."""
    repo.stock(models, "simple")
    both = dict(inputs=[repo.tensor(f"INPUT{i}", dims=(16,)) for i in (0, 1)], outputs=[repo.tensor(f"OUTPUT{i}", dims=(16,)) for i in (0, 1)])
    repo.add(tmp_path / "second", "pair", max_batch_size=8, **both)
    first, second = start(models), start(tmp_path / "second")
    run(CONFIG.replace('"m" weight', '"simple" weight') + """
with millrace.Client(config=config % (words[0], 'model: "pair" percent: 100 compare: "equal" remote: "%s"' % words[1]), **PATIENT) as client:
    for right in (0, 1, 1, 0, 1):
        x = numpy.full((1, 16), 3, "int32")
        result = client.infer("e", {"INPUT0": x, "INPUT1": x * right}, outputs=["OUTPUT0"])
        assert (result["OUTPUT0"] == x + x * right).all()
    stats(client, compared=5, different=3)
""", f"http://{first.url()}", f"grpc://{second.url('grpc')}")


def test_a_shadow_that_does_not_answer(models, start, hold, served):
    """It holds up no call, and has as many copies as it may."""
    repo.add(models, "held", backend="fault", parameters=hold.parameters)
    server = start(models)
    run(CONFIG + """
client = millrace.Client(config=config % (words[0], 'model: "held" percent: 100 max_queue: 3'), **PATIENT)
for _ in range(10):
    infer(client, "e")
stats(client, requests=10, dropped=7, failed=0)
client.close()
""", f"http://{server.url()}")
    hold.end()


def test_a_server_refuses_the_hosts_of_a_shadow(models, start, tmp_path):
    repo.add(models, "m")
    file = tmp_path / "endpoints.pbtxt"
    file.write_text('endpoint { name: "e" variant { tag: "v" model: "m" weight: 1 } shadow { model: "m" percent: 1 remote: "a:1" } }')
    server = start(models, f"--endpoints={file}", ready=False)
    server.checked = True
    assert server.wait_exit() != 0 and "remote is for clients" in server.err()

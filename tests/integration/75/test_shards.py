"""Requests whose rows are divided among hosts: what each host gets, how answers are joined, and parts that fail."""
import pytest

from lib import repo, sdk
from lib.sdk import run_python as run

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")


def url(server, kind="http"):
    return f"{kind}://{server.url(kind)}"


@pytest.fixture
def served(models, start):
    """Two servers with the same models: rows of numbers, rows of texts with a tensor that has none."""
    repo.add(models, "m", inputs=[repo.tensor("INPUT0", dims=(-1, -1))], outputs=[repo.tensor("OUTPUT0", dims=(-1, -1))])
    repo.add(models, "mixed", inputs=[repo.tensor("INPUT0", "TYPE_STRING", (-1, -1)), repo.tensor("INPUT1", dims=(-1,))],
             outputs=[repo.tensor("OUTPUT0", "TYPE_STRING", (-1, -1)), repo.tensor("OUTPUT1", dims=(-1,))])
    return start(models), start(models)


def test_rows_go_to_all_hosts_and_come_back_in_order(served):
    run("""
import json, urllib.request
a, b, *other = words

def count(url, model="m"):
    with urllib.request.urlopen(f"{url}/v2/models/{model}/stats") as answer:
        return json.load(answer)["model_stats"][0]["inference_count"]

def rows(n, columns=3):
    return numpy.arange(n * columns, dtype=numpy.int32).reshape(n, columns)

def check(client, n, parts, pack_on=True, **more):
    result = client.infer("m", {"INPUT0": rows(n)}, pack_on=pack_on, timeout=300, **more)
    assert (result["OUTPUT0"] == rows(n)).all() and result.attempts == parts, (n, result.attempts)
    return result

with millrace.Client(a, b, strategy="round_robin", package_size=10, **PATIENT) as client:
    before = count(a), count(b)
    result = check(client, 100, 2)  # as many parts as hosts
    assert (count(a) - before[0], count(b) - before[1]) == (1, 1)
    assert result.model == "m" and result.host in (a, b) and result.version == "1" and len(result) == 1
    for n, parts in ((1, 1), (10, 1), (11, 2), (13, 2), (0, 1)):
        check(client, n, parts)
    check(client, 100, 1, pack_on=False)
    check(client, 100, 2, pack_on=["INPUT0"], once=True, id="x")
with millrace.Client(a, b, *other, strategy="rr", package_size=1, max_channel_per_request=4, **PATIENT) as client:
    for n in range(9):
        check(client, n, min(max(n, 1), 4))
    large = rows(200000)  # parts are sent from where they are, and answers do not fit a read
    assert (client.infer("m", {"INPUT0": large}, pack_on=True, timeout=300)["OUTPUT0"] == large).all()
with millrace.Client(a, b, *other, package_size=1, **PATIENT) as client:
    check(client, 50, 3)  # max_channel_per_request by itself
with millrace.Client(a, package_size=1, **PATIENT) as client:
    check(client, 50, 1)  # one host

texts = numpy.array([[f"{i}" * (i % 7), f"t{i}"] for i in range(23)], object)
with millrace.Client(a, *other, strategy="rr", package_size=4, **PATIENT) as client:
    result = client.infer("mixed", {"INPUT0": texts, "INPUT1": X[:2]}, pack_on=["INPUT0"], timeout=300)
    assert [[t.decode() for t in row] for row in result["OUTPUT0"]] == texts.tolist() and result.attempts == 3
    assert result["OUTPUT1"].tolist() == [0, 1] * 3  # sent with each part

config = 'client { remote: "%s" remote: "%s" strategy: "rr" package_size: 5 max_channel_per_request: 2 }' % (a, b)
with millrace.Client(config=config, **PATIENT) as client:
    check(client, 6, 2)
paddle = '''predictors { name: "m" variants { tag: "v" naming_conf { cluster: "list://%s,%s" load_balance_strategy: "rr" }
    rpc_parameter { protocol: "http" package_size: 20 max_channel_per_request: 2 }
    connection_conf { rpc_timeout_ms: 300000 } } }''' % (a.partition("://")[2], b.partition("://")[2])
with millrace.Client(config=paddle, attempt_timeout_ms=300000) as client:
    check(client, 20, 1)
    assert check(client, 21, 2).variant == "v"

async def main():
    async with millrace.AsyncClient(a, b, strategy="rr", package_size=10, **PATIENT) as client:
        results = await asyncio.gather(*(client.infer("m", {"INPUT0": rows(n)}, pack_on=True, timeout=300) for n in range(40)))
        assert all((r["OUTPUT0"] == rows(n)).all() for n, r in enumerate(results))
asyncio.run(main())

# A C program that knows no more than the old struct divides nothing; and what cannot be divided is refused.
with millrace.Client(a, b) as client:
    for bad, words in (({"INPUT0": rows(3), "INPUT1": X}, "4 rows"), ({"INPUT0": numpy.int32(1)}, "no rows")):
        try:
            client.infer("m", bad, pack_on=True)
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert error.reason == "invalid argument" and words in str(error), error
    try:
        client.infer("m", {"INPUT0": rows(3)}, pack_on=["OTHER"])
        raise SystemExit("no error")
    except ValueError as error:
        assert "OTHER" in str(error)
""", *(url(s) for s in served), *(url(s, "grpc") for s in served))


def test_a_part_has_attempts_of_its_own_and_its_error_names_it(served):
    run("""
good, other = words
n = numpy.arange(200, dtype=numpy.int32).reshape(100, 2)

class Host:
    def __init__(self, answer):
        self.answer = answer
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        data = b""
        while more := connection.recv(1 << 20):
            data += more
            head, _, body = data.partition(b"\\r\\n\\r\\n")
            length = [int(line.partition(b":")[2]) for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length:")]
            if length and len(body) >= length[0]:
                connection.sendall(b"HTTP/1.1 %s\\r\\ncontent-length: %d\\r\\n\\r\\n%s" % (self.answer[0], len(self.answer[1]), self.answer[1]))
                data = b""

def infer(*urls, **options):
    with millrace.Client(*urls, strategy="rr", package_size=10, **PATIENT, **options) as client:
        return client.infer("m", {"INPUT0": n}, pack_on=True, timeout=300)

busy = Host((b"503 Busy", b'{"error":"busy"}'))
result = infer(good, busy.url)
assert (result["OUTPUT0"] == n).all() and result.attempts == 3

def refused(*urls, **options):
    try:
        infer(*urls, **options)
    except millrace.InferenceError as error:
        return error
    raise SystemExit("no error")

error = refused(good, busy.url, attempts=1)
assert error.reason == "unavailable" and "busy" in str(error), error
assert "rows 0 to 49, part 1 of 2" in str(error) or "rows 50 to 99, part 2 of 2" in str(error), error
wrong = Host((b"400 Bad", b'{"error":"wrong input"}'))
error = refused(good, wrong.url)
assert error.reason == "invalid argument" and "wrong input" in str(error) and " of 2" in str(error), error
for shape, datatype, data in (([2, 3], "INT32", [0] * 6), ([4], "INT32", [0] * 4), ([], "INT32", [1]), ([2, 2], "INT64", [0] * 4)):
    import json
    odd = Host((b"200 OK", json.dumps({"model_name": "m", "outputs": [{"name": "OUTPUT0", "shape": shape, "datatype": datatype, "data": data}]}).encode()))
    error = refused(good, odd.url)
    assert error.reason == "internal error" and "does not fit" in str(error) and "OUTPUT0" in str(error), error
none = Host((b"200 OK", b'{"model_name":"m","outputs":[]}'))
two = Host((b"200 OK", b'{"model_name":"m","outputs":[]}'))
assert len(infer(none.url, two.url)) == 0
""", *(url(s) for s in served))


def test_cancel_of_a_request_in_parts(models, start, hold):
    repo.add(models, "m", backend="fault", parameters=hold.parameters)
    server = start(models)
    run("""
http, grpc, held = words

async def main():
    async with millrace.AsyncClient(http, grpc, strategy="rr", package_size=2, **PATIENT) as client:
        for i in range(2):
            task = asyncio.ensure_future(client.infer("m", {"INPUT0": X}, pack_on=True))
            if i == 0:
                while not os.path.exists(held):
                    await asyncio.sleep(0.01)
            else:
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
                raise SystemExit("no error")
            except asyncio.CancelledError:
                pass
        call = asyncio.ensure_future(client.infer("m", {"INPUT0": X}, pack_on=True))
        await asyncio.sleep(0)
    try:  # the client has gone
        await call
        raise SystemExit("no error")
    except millrace.InferenceError as error:
        assert error.reason == "cancelled", error
    with millrace.Client(http, grpc, strategy="rr", package_size=2, timeout=0.1) as client:
        try:
            client.infer("m", {"INPUT0": X}, pack_on=True)
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert error.reason == "deadline exceeded" and " of 2" in str(error), error
asyncio.run(main())
""", url(server), url(server, "grpc"), hold.path.with_suffix(".held"))
    hold.end()
